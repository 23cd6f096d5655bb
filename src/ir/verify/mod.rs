//! Says whether a function keeps the IR's rules, so that later stages need not ask. In: any function, hostile ones too.
//! Out: every violation found. Never panics and never changes the function. What the rules are is told at [`Rule`].

mod memory;
mod records;
mod types;

use std::fmt;

use cranelift_entity::SecondaryMap;

use super::inst::{CmpOp, InstData, Operand, Terminator};
use super::{Block, Func, Inst, Value};

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IrError {
    /// The rule.
    pub rule: Rule,
    /// The block, if it is in one.
    pub block: Option<Block>,
    /// The instruction's place in the block; `None` for its parameters and its end.
    pub at: Option<usize>,
    /// What exactly.
    pub detail: String,
}

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A program has at least one block, and its name and section fit where they go.
    Program,
    /// Every reference is to something that exists; a block is in the layout once, an instruction in one block.
    References,
    /// Every block ends.
    End,
    /// Jumps go to later blocks, and never to the first.
    ForwardJumps,
    /// A jump has one argument for each parameter, of its type.
    BlockArguments,
    /// A value is defined once, and its definition dominates its uses.
    Dominance,
    /// The context is the first instruction of the first block, and nowhere else.
    ContextFirst,
    /// An instruction has a result of the right type, or none.
    ResultType,
    /// Operands are of the types that the instruction takes.
    OperandType,
    /// A shift by a constant is less than the width; no constant divisor is 0.
    ConstantOperand,
    /// An extension is never from 8 bytes, a byte swap never of 1.
    Width,
    /// Plain loads only from memory that allows them: never through a kernel or user address.
    LoadSpace,
    /// Plain stores only to the stack, map values and records.
    StoreSpace,
    /// A load from a BTF-typed address has a relocation, every other one has bytes.
    OffsetKind,
    /// An access stays inside its slot, map value or record, and behind the start of the context.
    Range,
    /// The kind of a relocation fits the instruction.
    RelocationKind,
    /// A relocated shift is a shift.
    RelocationShift,
    /// Addresses that may be NULL are only compared with 0 and cast.
    OrNull,
    /// A cast to an address that is not NULL is dominated by a branch that says so.
    NullCheck,
    /// A cast keeps to the pairs that mean something.
    Cast,
    /// A helper gets as many arguments as it takes.
    ArgumentCount,
    /// A helper's arguments are what it takes.
    ArgumentKind,
    /// Comparisons of addresses are on 64 bits.
    Comparison,
    /// A record is not used after it was given back.
    UseAfterRelease,
    /// A record is submitted or discarded on every path, once.
    RecordLeak,
}

impl fmt::Display for IrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(block) = self.block {
            write!(f, "{block}")?;
            match self.at {
                Some(at) => write!(f, ", instruction {at}: ")?,
                None => write!(f, ": ")?,
            }
        }
        write!(f, "{} ({:?})", self.detail, self.rule)
    }
}

impl std::error::Error for IrError {}

/// Checks all rules.
pub fn verify(func: &Func) -> Result<(), Vec<IrError>> {
    let mut verifier = Verifier {
        func,
        errors: Vec::new(),
        position: SecondaryMap::new(),
        defs: SecondaryMap::new(),
        parents: SecondaryMap::new(),
        reachable: SecondaryMap::new(),
        depth: SecondaryMap::new(),
    };
    verifier.program();
    verifier.structure();
    // Everything else relies on references that lead somewhere and on jumps that go forward.
    if verifier.errors.is_empty() {
        verifier.dominators();
        verifier.dominance();
        verifier.types();
        verifier.memory();
        verifier.records();
    }
    if verifier.errors.is_empty() {
        Ok(())
    } else {
        Err(verifier.errors)
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Def {
    /// Parameter of the block.
    Param(Block),
    /// Instruction, and its place.
    Inst(Block, usize, Inst),
}

/// Where an error is.
#[derive(Clone, Copy)]
struct Place {
    block: Option<Block>,
    at: Option<usize>,
}

struct Verifier<'a> {
    func: &'a Func,
    errors: Vec<IrError>,
    /// Of each block in the layout.
    position: SecondaryMap<Block, Option<usize>>,
    defs: SecondaryMap<Value, Option<Def>>,
    /// Immediate dominators.
    parents: SecondaryMap<Block, Option<Block>>,
    reachable: SecondaryMap<Block, bool>,
    /// How many dominators each block has.
    depth: SecondaryMap<Block, u32>,
}

impl<'a> Verifier<'a> {
    fn error(&mut self, rule: Rule, place: Place, detail: impl Into<String>) {
        self.errors.push(IrError {
            rule,
            block: place.block,
            at: place.at,
            detail: detail.into(),
        });
    }

    fn program(&mut self) {
        let place = Place {
            block: None,
            at: None,
        };
        let func = self.func;
        let identifier = |name: &str| {
            !name.is_empty()
                && name.len() <= 15
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && !name.starts_with(|first: char| first.is_ascii_digit())
        };
        if func.layout.is_empty() {
            self.error(Rule::Program, place, "there are no blocks");
        }
        if !identifier(&func.name) {
            self.error(
                Rule::Program,
                place,
                format!("{:?} is no name for a program", func.name),
            );
        }
        if func.section.is_empty() || func.section.bytes().any(|byte| byte == 0) {
            self.error(
                Rule::Program,
                place,
                format!("{:?} is no name for a section", func.section),
            );
        }
        for (map, data) in &func.maps {
            if !identifier(&data.name) {
                self.error(
                    Rule::Program,
                    place,
                    format!("{:?} is no name for {map}", data.name),
                );
            }
        }
        for (reloc, data) in &func.relocs {
            if data.access.is_empty() {
                self.error(Rule::RelocationKind, place, format!("{reloc} has no access"));
            }
        }
    }

    /// References, ends and the direction of jumps.
    fn structure(&mut self) {
        let func = self.func;
        for (position, block) in func.layout.iter().enumerate() {
            let place = Place {
                block: Some(*block),
                at: None,
            };
            if !func.blocks.is_valid(*block) {
                self.error(Rule::References, place, "it does not exist");
            } else if self.position[*block].replace(position).is_some() {
                self.error(Rule::References, place, "it is in the layout twice");
            }
        }
        if !self.errors.is_empty() {
            return;
        }
        let mut placed: SecondaryMap<Inst, bool> = SecondaryMap::new();
        for block in &func.layout {
            let place = |at| Place {
                block: Some(*block),
                at,
            };
            let data = &func.blocks[*block];
            for param in &data.params {
                self.define(*param, Def::Param(*block), place(None));
            }
            for (at, inst) in data.insts.iter().enumerate() {
                if !func.insts.is_valid(*inst) || std::mem::replace(&mut placed[*inst], true) {
                    self.error(
                        Rule::References,
                        place(Some(at)),
                        "it does not exist, or is here twice",
                    );
                    continue;
                }
                if let Some(result) = func.results[*inst] {
                    self.define(result, Def::Inst(*block, at, *inst), place(Some(at)));
                }
                self.references(&func.insts[*inst], place(Some(at)));
            }
            match &data.end {
                None => self.error(Rule::End, place(None), "the block has no end"),
                Some(end) => self.end(end, place(None)),
            }
        }
    }

    fn define(&mut self, value: Value, def: Def, place: Place) {
        if !self.func.values.is_valid(value) {
            self.error(Rule::References, place, format!("{value} does not exist"));
        } else if self.defs[value].replace(def).is_some() {
            self.error(Rule::Dominance, place, format!("{value} is defined twice"));
        }
    }

    fn references(&mut self, data: &InstData, place: Place) {
        let func = self.func;
        let mut missing = Vec::new();
        data.for_each_use(|value| {
            if !func.values.is_valid(value) {
                missing.push(value.to_string());
            }
        });
        if let Some(reloc) = data.reloc()
            && !func.relocs.is_valid(reloc)
        {
            missing.push(reloc.to_string());
        }
        if let InstData::SlotAddr(slot) = data
            && !func.slots.is_valid(*slot)
        {
            missing.push(slot.to_string());
        }
        if let Some(map) = data.map()
            && !func.maps.is_valid(map)
        {
            missing.push(map.to_string());
        }
        for name in missing {
            self.error(Rule::References, place, format!("{name} does not exist"));
        }
    }

    fn end(&mut self, end: &Terminator, place: Place) {
        let func = self.func;
        let mut missing = Vec::new();
        end.for_each_use(|value| {
            if !func.values.is_valid(value) {
                missing.push(value);
            }
        });
        for value in missing {
            self.error(Rule::References, place, format!("{value} does not exist"));
        }
        let from = place.block.and_then(|block| self.position[block]);
        for target in end.targets() {
            let to = target.block;
            if !func.blocks.is_valid(to) || self.position[to].is_none() {
                self.error(Rule::References, place, format!("{to} is not in the layout"));
            } else if self.position[to] <= from {
                self.error(Rule::ForwardJumps, place, format!("a jump back to {to}"));
            }
        }
    }

    /// Immediate dominators, in one pass because all jumps go forward.
    fn dominators(&mut self) {
        let func = self.func;
        if let Some(entry) = func.layout.first() {
            self.reachable[*entry] = true;
        }
        for block in &func.layout {
            if !self.reachable[*block] {
                continue;
            }
            self.depth[*block] = self.parents[*block].map_or(0, |parent| self.depth[parent] + 1);
            let Some(end) = &func.blocks[*block].end else {
                continue;
            };
            for target in end.targets() {
                let to = target.block;
                self.parents[to] = Some(match self.parents[to] {
                    Some(parent) if self.reachable[to] => self.common(parent, *block),
                    Some(_) | None => *block,
                });
                self.reachable[to] = true;
            }
        }
    }

    fn common(&self, a: Block, b: Block) -> Block {
        let (mut a, mut b) = (a, b);
        while a != b {
            // The later of the two can't dominate the other.
            let later = if self.position[a] > self.position[b] {
                &mut a
            } else {
                &mut b
            };
            match self.parents[*later] {
                Some(parent) => *later = parent,
                None => return a.min(b),
            }
        }
        a
    }

    /// Whether every path to `b` goes through `a`.
    fn dominates(&self, a: Block, b: Block) -> bool {
        let mut at = b;
        loop {
            if at == a {
                return true;
            }
            match self.parents[at] {
                Some(parent) if self.position[at] > self.position[a] => at = parent,
                Some(_) | None => return false,
            }
        }
    }

    fn dominance(&mut self) {
        let func = self.func;
        for block in &func.layout {
            let data = &func.blocks[*block];
            for (at, inst) in data.insts.iter().enumerate() {
                let mut uses = Vec::new();
                func.insts[*inst].for_each_use(|value| uses.push(value));
                self.uses(&uses, *block, Some(at));
            }
            if let Some(end) = &data.end {
                let mut uses = Vec::new();
                end.for_each_use(|value| uses.push(value));
                self.uses(&uses, *block, None);
            }
        }
    }

    fn uses(&mut self, uses: &[Value], block: Block, at: Option<usize>) {
        let place = Place {
            block: Some(block),
            at,
        };
        for value in uses {
            let good = match self.defs[*value] {
                None => false,
                // What is never reached needs no more than a definition further up.
                Some(Def::Param(from)) if !self.reachable[block] => {
                    self.position[from] <= self.position[block]
                }
                Some(Def::Inst(from, ..)) if !self.reachable[block] && from != block => {
                    self.position[from] < self.position[block]
                }
                Some(Def::Param(from)) => self.dominates(from, block),
                Some(Def::Inst(from, def, _)) if from == block => at.is_none_or(|at| def < at),
                Some(Def::Inst(from, ..)) => self.dominates(from, block),
            };
            if !good {
                self.error(
                    Rule::Dominance,
                    place,
                    format!("{value} is not defined on every path to here"),
                );
            }
        }
    }

    /// The instruction that defines a value.
    fn inst_of(&self, value: Value) -> Option<&'a InstData> {
        match self.defs[value] {
            Some(Def::Inst(_, _, inst)) => Some(&self.func.insts[inst]),
            Some(Def::Param(_)) | None => None,
        }
    }

    /// Whether a branch that dominates the block says that the value is not 0 there.
    fn known_not_null(&self, value: Value, block: Block) -> bool {
        let mut at = block;
        while let Some(parent) = self.parents[at] {
            if let Some(Terminator::Branch {
                op,
                lhs,
                rhs: Operand::Imm(0),
                then,
                otherwise,
                ..
            }) = &self.func.blocks[parent].end
                && *lhs == value
                && then.block != otherwise.block
                && self.predecessors(at) == 1
            {
                let holds = match op {
                    CmpOp::Ne => then.block == at,
                    CmpOp::Eq => otherwise.block == at,
                    CmpOp::Ult
                    | CmpOp::Ule
                    | CmpOp::Ugt
                    | CmpOp::Uge
                    | CmpOp::Slt
                    | CmpOp::Sle
                    | CmpOp::Sgt
                    | CmpOp::Sge
                    | CmpOp::Set => false,
                };
                if holds {
                    return true;
                }
            }
            at = parent;
        }
        false
    }

    fn predecessors(&self, block: Block) -> usize {
        let ends = self.func.layout.iter().filter(|from| self.reachable[**from]);
        let ends = ends.filter_map(|from| self.func.blocks[*from].end.as_ref());
        ends.flat_map(Terminator::targets)
            .filter(|target| target.block == block)
            .count()
    }
}
