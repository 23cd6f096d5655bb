//! Register allocation. In: machine form over virtual registers. Out: the same operations over R0 to R9, with moves,
//! reloads and saves between them. Ranges of values compete for registers by weight; who loses goes to the stack (or is
//! made again, if it is a constant) and is cut into pieces, down to single uses, which always fit. Never fails for want of
//! registers, and never leaves a value in R1 to R5 across a call. `check` proves every result in debug builds.

mod assign;
pub(crate) mod check;
mod finish;
mod live;
pub(crate) mod moves;
mod split;
mod tidy;

use cranelift_entity::EntityRef;

use super::mach::{Const, MBlock, MEnd, MFunc, MInst, Reg, VReg};

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Loc {
    Reg(Reg),
    /// A spill slot of 8 bytes, by number.
    Spill(u32),
}

/// What is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Loc(Loc),
    Const(Const),
}

/// Copies 8 bytes. At least one of the two is a register, or the source is a small number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    pub(crate) dst: Loc,
    pub(crate) src: Source,
}

/// An operation of the original or a move between them; `orig` is the number of the operation in the original block that
/// it is, or serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AInst {
    Op { inst: MInst<Reg>, orig: usize },
    Move { copy: Move, orig: usize },
}

/// A block over registers. Jumps have no arguments any more: moves have put them in place.
#[derive(Clone, Debug)]
pub(crate) struct ABlock {
    pub(crate) insts: Vec<AInst>,
    pub(crate) end: MEnd<Reg>,
}

/// The result: blocks as in the original, by index.
#[derive(Clone, Debug)]
pub(crate) struct Allocated {
    pub(crate) blocks: Vec<ABlock>,
    /// How many spill slots it needs.
    pub(crate) spills: u32,
}

/// Allocates. An error is a bug of the allocator.
pub(crate) fn allocate(func: &MFunc) -> Result<Allocated, String> {
    let mut work = Work::new(func);
    // Every round moves each loser one step towards single uses, so there is an end; typical functions take one round.
    loop {
        let ranges = live::ranges(&work);
        let assignment = assign::assign(&work, &ranges);
        if assignment.failed.is_empty() {
            return finish::finish(&work, &ranges, &assignment);
        }
        for vreg in &assignment.failed {
            if work.stages[vreg.index()] == Stage::Single {
                return Err(format!("{vreg} found no register"));
            }
        }
        split::split(&mut work, &assignment.failed);
    }
}

/// The function while it is being cut up.
struct Work {
    blocks: Vec<WBlock>,
    /// By virtual register.
    stages: Vec<Stage>,
    /// For pieces and single uses: what they hold.
    homes: Vec<Option<Home>>,
}

struct WBlock {
    params: Vec<VReg>,
    insts: Vec<(WInst, usize)>,
    end: MEnd<VReg>,
}

#[derive(Clone, Debug)]
enum WInst {
    Op(MInst<VReg>),
    /// Brings a value back into a register.
    Reload {
        dst: VReg,
        from: Home,
    },
    /// Puts a value into its place on the stack.
    Save {
        src: VReg,
        to: VReg,
    },
}

/// How far a virtual register has been cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// As it came; a constant can be made again.
    Whole(Option<Const>),
    /// Lives on the stack.
    Stack,
    /// Holds a value between two calls of one block.
    Piece,
    /// Holds a value for one instruction.
    Single,
    /// No longer mentioned.
    Gone,
}

/// Where a piece's value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Home {
    Stack(VReg),
    Const(Const),
}

impl Work {
    fn new(func: &MFunc) -> Work {
        let mut stages = vec![Stage::Whole(None); func.vregs as usize];
        let mut blocks = Vec::new();
        for block in &func.blocks {
            let MBlock {
                params, insts, end, ..
            } = block;
            for (inst, _) in insts {
                if let MInst::Const { dst, value } = inst {
                    stages[dst.index()] = Stage::Whole(Some(*value));
                }
            }
            let insts = insts.iter().enumerate();
            blocks.push(WBlock {
                params: params.clone(),
                insts: insts
                    .map(|(at, (inst, _))| (WInst::Op(inst.clone()), at))
                    .collect(),
                end: end.clone(),
            });
        }
        Work {
            blocks,
            homes: vec![None; stages.len()],
            stages,
        }
    }

    fn fresh(&mut self, stage: Stage, home: Home) -> VReg {
        let vreg = VReg::new(self.stages.len());
        self.stages.push(stage);
        self.homes.push(Some(home));
        vreg
    }
}
