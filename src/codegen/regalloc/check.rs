//! Proves an allocation right without trusting how it was made. In: the function before and after. Out: the first place
//! where an operation would read something else than the original says. Follows every path, knowing for each register
//! and spill slot which values it holds; what two paths disagree on is not known after they meet.

use std::collections::{BTreeMap, BTreeSet};

use super::super::mach::{Const, MEnd, MFunc, MInst, Reg, Rhs, Role, Src, VReg, commutes};
use super::{AInst, Allocated, Loc, Source};

/// Something that a place can be known to hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Content {
    Value(VReg),
    Const(Const),
}

/// What each place is known to hold.
type State = BTreeMap<Loc, BTreeSet<Content>>;

/// Checks it.
pub(crate) fn check(func: &MFunc, allocated: &Allocated) -> Result<(), String> {
    if func.blocks.len() != allocated.blocks.len() {
        return Err("blocks were lost".to_string());
    }
    let mut constants: BTreeMap<Const, BTreeSet<Content>> = BTreeMap::new();
    for (inst, _) in func.blocks.iter().flat_map(|block| &block.insts) {
        if let MInst::Const { dst, value } = inst {
            let known = constants.entry(*value).or_default();
            known.insert(Content::Value(*dst));
        }
    }
    let mut checker = Checker {
        func,
        allocated,
        constants,
        entries: vec![None; func.blocks.len()],
    };
    for at in 0..func.blocks.len() {
        checker
            .block(at)
            .map_err(|error| format!("machine block {at}: {error}"))?;
    }
    Ok(())
}

struct Checker<'a> {
    func: &'a MFunc,
    allocated: &'a Allocated,
    /// Virtual registers by the constant they are.
    constants: BTreeMap<Const, BTreeSet<Content>>,
    /// What is known at the start of each block, from the edges seen so far.
    entries: Vec<Option<State>>,
}

impl Checker<'_> {
    fn block(&mut self, at: usize) -> Result<(), String> {
        let mut state = self.entries[at].take().unwrap_or_default();
        let original = &self.func.blocks[at];
        let allocated = &self.allocated.blocks[at];
        let mut next = 0;
        if let Some((MInst::Entry { dst }, _)) = original.insts.first() {
            state.insert(Loc::Reg(Reg::R1), BTreeSet::from([Content::Value(*dst)]));
            next = 1;
        }
        for inst in &allocated.insts {
            match inst {
                AInst::Move { copy, .. } => {
                    let values = self.values(&state, copy.src);
                    state.insert(copy.dst, values);
                }
                AInst::Op { inst, orig } => {
                    // Only constants may be left out: they are made where they are needed.
                    while next < *orig && matches!(original.insts[next].0, MInst::Const { .. }) {
                        next += 1;
                    }
                    if next != *orig {
                        return Err(format!("operation {next} is missing or in the wrong place"));
                    }
                    self.op(&original.insts[next].0, inst, &mut state)
                        .map_err(|error| format!("operation {next}: {error}"))?;
                    next += 1;
                }
            }
        }
        let rest = &original.insts[next..];
        if !rest.iter().all(|(inst, _)| matches!(inst, MInst::Const { .. })) {
            return Err(format!("operation {next} is missing"));
        }
        self.end(&original.end, &allocated.end, &state)
    }

    fn values(&self, state: &State, source: Source) -> BTreeSet<Content> {
        match source {
            Source::Loc(loc) => state.get(&loc).cloned().unwrap_or_default(),
            Source::Const(value) => {
                let mut all = self.constants.get(&value).cloned().unwrap_or_default();
                all.insert(Content::Const(value));
                all
            }
        }
    }

    fn op(&self, original: &MInst<VReg>, allocated: &MInst<Reg>, state: &mut State) -> Result<(), String> {
        if let MInst::Call { args, ret, .. } = original {
            if *allocated != without_operands(original) {
                return Err("another call".to_string());
            }
            for (arg, reg) in args.iter().zip(Reg::ARGS) {
                holds(state, reg, content(*arg))?;
            }
            for reg in Reg::ALL.into_iter().filter(|reg| !reg.survives_calls()) {
                state.remove(&Loc::Reg(reg));
            }
            if let Some(ret) = ret {
                state.insert(Loc::Reg(Reg::R0), BTreeSet::from([Content::Value(*ret)]));
            }
            return Ok(());
        }
        let mut regs = Vec::new();
        allocated.for_each(|reg, role| regs.push((reg, role)));
        let mut vregs = Vec::new();
        original.for_each(|vreg, role| vregs.push((vreg, role)));
        let mut numbering = regs.iter();
        let same = original.map(|_| ()) == allocated.map(|_| ());
        if !same || regs.len() != vregs.len() {
            return Err("another operation".to_string());
        }
        let mut written = None;
        for (vreg, role) in vregs {
            let Some((reg, _)) = numbering.next() else {
                return Err("an operand is missing".to_string());
            };
            match role {
                Role::Use | Role::LateUse | Role::Any => holds(state, *reg, Content::Value(vreg))?,
                Role::Def => written = Some((*reg, vreg)),
            }
        }
        if let MInst::Alu {
            op,
            dst,
            lhs,
            rhs: Rhs::Reg(rhs),
            ..
        } = allocated
            && dst == rhs
            && dst != lhs
            && !commutes(*op)
        {
            return Err(format!("writing {dst:?} destroys the right operand"));
        }
        if let Some((reg, vreg)) = written {
            let values = if let MInst::Const { value, .. } = original {
                self.values(state, Source::Const(*value))
            } else {
                BTreeSet::from([Content::Value(vreg)])
            };
            state.insert(Loc::Reg(reg), values);
        }
        Ok(())
    }

    fn end(&mut self, original: &MEnd<VReg>, allocated: &MEnd<Reg>, state: &State) -> Result<(), String> {
        match (original, allocated) {
            (MEnd::Return(a), MEnd::Return(b)) if a == b => Ok(()),
            (MEnd::Jump { to, args }, MEnd::Jump { to: other, .. }) if to == other => {
                let params = self.func.blocks[*to].params.clone();
                let mut after = state.clone();
                for (arg, param) in args.iter().zip(&params) {
                    let given = content(*arg);
                    for contents in after.values_mut().filter(|contents| contents.contains(&given)) {
                        contents.insert(Content::Value(*param));
                    }
                }
                self.meet(*to, after);
                Ok(())
            }
            (
                MEnd::Branch {
                    op,
                    bits,
                    lhs,
                    rhs,
                    then,
                    otherwise,
                },
                MEnd::Branch {
                    op: op2,
                    bits: bits2,
                    lhs: lhs2,
                    rhs: rhs2,
                    then: then2,
                    otherwise: otherwise2,
                },
            ) if (op, bits, then, otherwise) == (op2, bits2, then2, otherwise2) => {
                holds(state, *lhs2, Content::Value(*lhs))?;
                match (rhs, rhs2) {
                    (Rhs::Reg(vreg), Rhs::Reg(reg)) => holds(state, *reg, Content::Value(*vreg))?,
                    (Rhs::Imm(a), Rhs::Imm(b)) if a == b => {}
                    (Rhs::Reg(_) | Rhs::Imm(_), Rhs::Reg(_) | Rhs::Imm(_)) => {
                        return Err("another comparison".to_string());
                    }
                }
                self.meet(*then, state.clone());
                self.meet(*otherwise, state.clone());
                Ok(())
            }
            (MEnd::Return(_) | MEnd::Jump { .. } | MEnd::Branch { .. }, _) => Err("another end".to_string()),
        }
    }

    fn meet(&mut self, to: usize, state: State) {
        let entry = &mut self.entries[to];
        match entry {
            None => *entry = Some(state),
            Some(known) => {
                for (loc, values) in known.iter_mut() {
                    let other = state.get(loc);
                    values.retain(|value| other.is_some_and(|other| other.contains(value)));
                }
            }
        }
    }
}

fn content(src: Src<VReg>) -> Content {
    match src {
        Src::Reg(vreg) => Content::Value(vreg),
        Src::Const(value) => Content::Const(value),
    }
}

fn holds(state: &State, reg: Reg, wanted: Content) -> Result<(), String> {
    match state.get(&Loc::Reg(reg)) {
        Some(contents) if contents.contains(&wanted) => Ok(()),
        Some(contents) => Err(format!("{reg:?} should hold {wanted:?} but holds {contents:?}")),
        None => Err(format!("{reg:?} should hold {wanted:?} but holds nothing known")),
    }
}

fn without_operands(call: &MInst<VReg>) -> MInst<Reg> {
    match call.map(|_| Reg::R0) {
        MInst::Call { helper, .. } => MInst::Call {
            helper,
            args: Vec::new(),
            ret: None,
        },
        other @ (MInst::Entry { .. }
        | MInst::Const { .. }
        | MInst::Alu { .. }
        | MInst::AluReloc { .. }
        | MInst::Neg { .. }
        | MInst::Bswap { .. }
        | MInst::Zext { .. }
        | MInst::Sext { .. }
        | MInst::Load { .. }
        | MInst::Store { .. }
        | MInst::AtomicAdd { .. }) => other,
    }
}
