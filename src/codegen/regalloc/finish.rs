//! Writes down what was decided. In: the function after its last cut, and the registers. Out: operations over registers
//! with explicit moves. Gives places on the stack their numbers; two values share one if they never live together.

use std::collections::BTreeMap;

use cranelift_entity::EntityRef;

use super::super::mach::{MEnd, MInst, Reg, Role, Src, VReg};
use super::assign::Assignment;
use super::live::Ranges;
use super::moves::{Scratch, sequence};
use super::{ABlock, AInst, Allocated, Home, Loc, Move, Source, Stage, WBlock, WInst, Work};

pub(super) fn finish(work: &Work, ranges: &Ranges, assignment: &Assignment) -> Result<Allocated, String> {
    let (places, spills) = places(work, ranges);
    let mut finisher = Finisher {
        work,
        ranges,
        assignment,
        places,
        spills,
        extra: 0,
        error: None,
    };
    let mut blocks: Vec<ABlock> = (0..work.blocks.len()).map(|at| finisher.block(at)).collect();
    super::tidy::drop_reloads(&mut blocks);
    super::tidy::drop_saves(&mut blocks);
    match finisher.error {
        Some(error) => Err(error),
        None => Ok(Allocated {
            blocks,
            spills: spills + finisher.extra,
        }),
    }
}

struct Finisher<'a> {
    work: &'a Work,
    ranges: &'a Ranges,
    assignment: &'a Assignment,
    places: BTreeMap<VReg, u32>,
    spills: u32,
    /// Spill slots that moves needed on top.
    extra: u32,
    error: Option<String>,
}

impl Finisher<'_> {
    fn block(&mut self, at: usize) -> ABlock {
        let block: &WBlock = &self.work.blocks[at];
        let mut insts = Vec::new();
        let mut number = self.ranges.heads[at];
        for (inst, orig) in &block.insts {
            number += 1;
            match inst {
                WInst::Op(MInst::Entry { dst }) => {
                    self.single(self.loc(*dst), Source::Loc(Loc::Reg(Reg::R1)), *orig, &mut insts);
                }
                WInst::Op(MInst::Call { helper, args, ret }) => {
                    let moves = args.iter().zip(Reg::ARGS);
                    let moves: Vec<Move> = moves
                        .map(|(arg, reg)| Move {
                            dst: Loc::Reg(reg),
                            src: self.source(*arg),
                        })
                        .collect();
                    self.moves(&moves, 2 * number + 1, *orig, &mut insts);
                    let inst = MInst::Call {
                        helper: *helper,
                        args: Vec::new(),
                        ret: None,
                    };
                    insts.push(AInst::Op { inst, orig: *orig });
                    if let Some(ret) = ret {
                        let result = Source::Loc(Loc::Reg(Reg::R0));
                        self.single(self.loc(*ret), result, *orig, &mut insts);
                    }
                }
                WInst::Op(op) => {
                    let inst = op.map(|vreg| self.reg(vreg));
                    insts.push(AInst::Op { inst, orig: *orig });
                }
                WInst::Reload { dst, from } => {
                    let from = match from {
                        Home::Stack(from) => Source::Loc(self.loc(*from)),
                        Home::Const(value) => Source::Const(*value),
                    };
                    self.single(self.loc(*dst), from, *orig, &mut insts);
                }
                WInst::Save { src, to } => {
                    self.single(self.loc(*to), Source::Loc(self.loc(*src)), *orig, &mut insts);
                }
            }
        }
        let orig = usize::MAX;
        let end = match &block.end {
            MEnd::Return(code) => MEnd::Return(*code),
            MEnd::Jump { to, args } => {
                // A parameter that nobody reads needs no move.
                let moves = args.iter().zip(&self.work.blocks[*to].params);
                let moves: Vec<Move> = moves
                    .filter(|(_, param)| self.ranges.read[param.index()])
                    .map(|(arg, param)| Move {
                        dst: self.loc(*param),
                        src: self.source(*arg),
                    })
                    .collect();
                self.moves(&moves, 2 * (number + 1) + 1, orig, &mut insts);
                MEnd::Jump {
                    to: *to,
                    args: Vec::new(),
                }
            }
            MEnd::Branch {
                op,
                bits,
                lhs,
                rhs,
                then,
                otherwise,
            } => MEnd::Branch {
                op: *op,
                bits: *bits,
                lhs: self.reg(*lhs),
                rhs: rhs.map(|vreg| self.reg(vreg)),
                then: *then,
                otherwise: *otherwise,
            },
        };
        ABlock { insts, end }
    }

    fn loc(&self, vreg: VReg) -> Loc {
        match (self.assignment.regs[vreg.index()], self.places.get(&vreg)) {
            (Some(reg), _) => Loc::Reg(reg),
            (None, Some(place)) => Loc::Spill(*place),
            // Only a register that is never mentioned has no place; `reg` reports the rest.
            (None, None) => Loc::Spill(0),
        }
    }

    fn reg(&mut self, vreg: VReg) -> Reg {
        match self.assignment.regs[vreg.index()] {
            Some(reg) => reg,
            None => {
                self.error = Some(format!(
                    "{vreg} is on the stack where an operation needs it in a register"
                ));
                Reg::R0
            }
        }
    }

    fn source(&self, src: Src<VReg>) -> Source {
        match src {
            Src::Reg(vreg) => Source::Loc(self.loc(vreg)),
            Src::Const(value) => Source::Const(value),
        }
    }

    fn single(&self, dst: Loc, src: Source, orig: usize, insts: &mut Vec<AInst>) {
        if src != Source::Loc(dst) {
            let copy = Move { dst, src };
            insts.push(AInst::Move { copy, orig });
        }
    }

    fn moves(&mut self, moves: &[Move], point: u32, orig: usize, insts: &mut Vec<AInst>) {
        let free = Reg::ALL.into_iter();
        let free = free
            .filter(|reg| !self.assignment.holds_through(*reg, point))
            .collect();
        let mut scratch = Scratch {
            free,
            first_spill: self.spills,
            spills_used: 0,
        };
        let moves = sequence(moves, &mut scratch);
        self.extra = self.extra.max(scratch.spills_used);
        insts.extend(moves.into_iter().map(|copy| AInst::Move { copy, orig }));
    }
}

/// Gives each value on the stack a place: the first in which it never meets another, preferably that of a value it is
/// handed to, so that nothing has to be moved.
fn places(work: &Work, ranges: &Ranges) -> (BTreeMap<VReg, u32>, u32) {
    let mut on_stack: Vec<VReg> = (0..work.stages.len())
        .map(VReg::new)
        .filter(|vreg| work.stages[vreg.index()] == Stage::Stack && !ranges.of[vreg.index()].is_empty())
        .collect();
    on_stack.sort_by_key(|vreg| (ranges.of[vreg.index()][0].0, *vreg));
    let mut handed: BTreeMap<VReg, Vec<VReg>> = BTreeMap::new();
    for block in &work.blocks {
        if let MEnd::Jump { to, .. } = &block.end {
            let mut args = Vec::new();
            block.end.clone().for_each_mut(|vreg, role| {
                if role == Role::Any {
                    args.push(*vreg);
                }
            });
            for arg in args {
                for param in &work.blocks[*to].params {
                    handed.entry(*param).or_default().push(arg);
                }
            }
        }
    }
    let mut taken: Vec<BTreeMap<u32, u32>> = Vec::new();
    let mut places = BTreeMap::new();
    for vreg in on_stack {
        let own = &ranges.of[vreg.index()];
        let fits = |place: &BTreeMap<u32, u32>| {
            own.iter().all(|(start, end)| {
                place
                    .range(..end)
                    .next_back()
                    .is_none_or(|(_, until)| until <= start)
            })
        };
        let wanted = handed
            .get(&vreg)
            .into_iter()
            .flatten()
            .filter_map(|arg| places.get(arg).copied());
        let place = wanted
            .map(|place: u32| place as usize)
            .chain(0..taken.len())
            .find(|place| fits(&taken[*place]))
            .unwrap_or(taken.len());
        if place == taken.len() {
            taken.push(BTreeMap::new());
        }
        taken[place].extend(own.iter().copied());
        places.insert(vreg, place as u32);
    }
    (places, taken.len() as u32)
}
