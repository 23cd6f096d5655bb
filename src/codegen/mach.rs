//! The machine form between the IR and encoded instructions: BPF's operations over virtual registers, three-address, in
//! blocks. In: what `select` makes. Out: what `regalloc` and `encode` read. The frame pointer is no register here: it
//! appears only as the base of an access to a slot, so nothing can write it.

use cranelift_entity::entity_impl;

use crate::ir::{BinaryOp, Bits, Block, CmpOp, Helper, MapRef, Offset, Origin, Reloc, Slot, Width};

/// A virtual register, written once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct VReg(u32);
entity_impl!(VReg, "t");

/// A general register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
}

impl Reg {
    pub(crate) const ALL: [Reg; 10] = [
        Reg::R0,
        Reg::R1,
        Reg::R2,
        Reg::R3,
        Reg::R4,
        Reg::R5,
        Reg::R6,
        Reg::R7,
        Reg::R8,
        Reg::R9,
    ];
    /// Where helpers take their arguments.
    pub(crate) const ARGS: [Reg; 5] = [Reg::R1, Reg::R2, Reg::R3, Reg::R4, Reg::R5];

    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// Whether a call keeps its content.
    pub(crate) fn survives_calls(self) -> bool {
        self >= Reg::R6
    }
}

/// What can be made anywhere out of nothing, and so is never kept in a register across anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Const {
    Int(i64),
    /// An address in a stack slot.
    Slot(Slot, i32),
    Map(MapRef),
    Reloc(Reloc),
}

/// A right-hand side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rhs<R> {
    Reg(R),
    Imm(i32),
}

/// What an access is relative to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Base<R> {
    Reg(R),
    /// The frame pointer; the distance counts from the slot's start.
    Slot(Slot),
}

/// Something that is moved to a place that the machine or another block prescribes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Src<R> {
    Reg(R),
    Const(Const),
}

/// An operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MInst<R> {
    /// The context arrives (in R1).
    Entry {
        dst: R,
    },
    Const {
        dst: R,
        value: Const,
    },
    Alu {
        op: BinaryOp,
        bits: Bits,
        dst: R,
        lhs: R,
        rhs: Rhs<R>,
    },
    /// On 64 bits, with a relocated immediate.
    AluReloc {
        op: BinaryOp,
        dst: R,
        lhs: R,
        reloc: Reloc,
    },
    Neg {
        bits: Bits,
        dst: R,
        src: R,
    },
    Bswap {
        width: Width,
        dst: R,
        src: R,
    },
    /// The low 4 bytes, zero-extended.
    Zext {
        dst: R,
        src: R,
    },
    /// The low bytes, sign-extended.
    Sext {
        from: Width,
        dst: R,
        src: R,
    },
    Load {
        width: Width,
        dst: R,
        base: Base<R>,
        offset: Offset,
    },
    Store {
        width: Width,
        base: Base<R>,
        offset: i16,
        value: Rhs<R>,
    },
    /// In one step that nothing can come between.
    AtomicAdd {
        width: Width,
        base: Base<R>,
        offset: i16,
        value: R,
    },
    /// Arguments are taken from anywhere.
    Call {
        helper: Helper,
        args: Vec<Src<R>>,
        ret: Option<R>,
    },
}

/// How an operation touches a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Read before the result is written.
    Use,
    /// Read after the result's register may have been written: must be another one.
    LateUse,
    /// Read from wherever it is.
    Any,
    Def,
}

/// Whether `a op b` and `b op a` are the same.
pub(crate) fn commutes(op: BinaryOp) -> bool {
    match op {
        BinaryOp::Add | BinaryOp::Mul | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => true,
        BinaryOp::Sub | BinaryOp::Udiv | BinaryOp::Urem | BinaryOp::Shl | BinaryOp::Lshr | BinaryOp::Ashr => {
            false
        }
    }
}

impl<R: Copy> MInst<R> {
    /// Calls `f` with each register and its role, the result last.
    pub(crate) fn for_each(&self, mut f: impl FnMut(R, Role)) {
        let mut copy = self.clone();
        copy.for_each_mut(|r, role| f(*r, role));
    }

    /// The same with the registers open to change.
    pub(crate) fn for_each_mut(&mut self, mut f: impl FnMut(&mut R, Role)) {
        match self {
            MInst::Entry { dst } | MInst::Const { dst, .. } => f(dst, Role::Def),
            MInst::Alu {
                op, dst, lhs, rhs, ..
            } => {
                f(lhs, Role::Use);
                if let Rhs::Reg(rhs) = rhs {
                    f(rhs, if commutes(*op) { Role::Use } else { Role::LateUse });
                }
                f(dst, Role::Def);
            }
            MInst::AluReloc { dst, lhs: src, .. }
            | MInst::Neg { dst, src, .. }
            | MInst::Bswap { dst, src, .. }
            | MInst::Zext { dst, src }
            | MInst::Sext { dst, src, .. } => {
                f(src, Role::Use);
                f(dst, Role::Def);
            }
            MInst::Load { dst, base, .. } => {
                if let Base::Reg(base) = base {
                    f(base, Role::Use);
                }
                f(dst, Role::Def);
            }
            MInst::Store { base, value, .. } => {
                if let Base::Reg(base) = base {
                    f(base, Role::Use);
                }
                if let Rhs::Reg(value) = value {
                    f(value, Role::Use);
                }
            }
            MInst::AtomicAdd { base, value, .. } => {
                if let Base::Reg(base) = base {
                    f(base, Role::Use);
                }
                f(value, Role::Use);
            }
            MInst::Call { args, ret, .. } => {
                for arg in args {
                    if let Src::Reg(arg) = arg {
                        f(arg, Role::Any);
                    }
                }
                if let Some(ret) = ret {
                    f(ret, Role::Def);
                }
            }
        }
    }

    /// The same operation over other registers.
    pub(crate) fn map<S>(&self, mut f: impl FnMut(R) -> S) -> MInst<S> {
        match self {
            MInst::Entry { dst } => MInst::Entry { dst: f(*dst) },
            MInst::Const { dst, value } => MInst::Const {
                dst: f(*dst),
                value: *value,
            },
            MInst::Alu {
                op,
                bits,
                dst,
                lhs,
                rhs,
            } => MInst::Alu {
                op: *op,
                bits: *bits,
                dst: f(*dst),
                lhs: f(*lhs),
                rhs: rhs.map(f),
            },
            MInst::AluReloc { op, dst, lhs, reloc } => MInst::AluReloc {
                op: *op,
                dst: f(*dst),
                lhs: f(*lhs),
                reloc: *reloc,
            },
            MInst::Neg { bits, dst, src } => MInst::Neg {
                bits: *bits,
                dst: f(*dst),
                src: f(*src),
            },
            MInst::Bswap { width, dst, src } => MInst::Bswap {
                width: *width,
                dst: f(*dst),
                src: f(*src),
            },
            MInst::Zext { dst, src } => MInst::Zext {
                dst: f(*dst),
                src: f(*src),
            },
            MInst::Sext { from, dst, src } => MInst::Sext {
                from: *from,
                dst: f(*dst),
                src: f(*src),
            },
            MInst::Load {
                width,
                dst,
                base,
                offset,
            } => MInst::Load {
                width: *width,
                dst: f(*dst),
                base: base.map(f),
                offset: *offset,
            },
            MInst::Store {
                width,
                base,
                offset,
                value,
            } => MInst::Store {
                width: *width,
                base: base.map(&mut f),
                offset: *offset,
                value: value.map(f),
            },
            MInst::AtomicAdd {
                width,
                base,
                offset,
                value,
            } => MInst::AtomicAdd {
                width: *width,
                base: base.map(&mut f),
                offset: *offset,
                value: f(*value),
            },
            MInst::Call { helper, args, ret } => MInst::Call {
                helper: *helper,
                args: args.iter().map(|arg| arg.map(&mut f)).collect(),
                ret: ret.map(f),
            },
        }
    }
}

impl<R: Copy> Rhs<R> {
    pub(crate) fn map<S>(self, f: impl FnOnce(R) -> S) -> Rhs<S> {
        match self {
            Rhs::Reg(reg) => Rhs::Reg(f(reg)),
            Rhs::Imm(imm) => Rhs::Imm(imm),
        }
    }
}

impl<R: Copy> Base<R> {
    pub(crate) fn map<S>(self, f: impl FnOnce(R) -> S) -> Base<S> {
        match self {
            Base::Reg(reg) => Base::Reg(f(reg)),
            Base::Slot(slot) => Base::Slot(slot),
        }
    }
}

impl<R: Copy> Src<R> {
    pub(crate) fn map<S>(self, f: impl FnOnce(R) -> S) -> Src<S> {
        match self {
            Src::Reg(reg) => Src::Reg(f(reg)),
            Src::Const(value) => Src::Const(value),
        }
    }
}

/// How a block ends. `to` and its like are indices into [`MFunc::blocks`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MEnd<R> {
    Jump {
        to: usize,
        /// One for each parameter of the target.
        args: Vec<Src<R>>,
    },
    /// Neither target has parameters: an edge that needs moves has a block of its own.
    Branch {
        op: CmpOp,
        bits: Bits,
        lhs: R,
        rhs: Rhs<R>,
        then: usize,
        otherwise: usize,
    },
    Return(i32),
}

impl<R> MEnd<R> {
    pub(crate) fn targets(&self) -> Vec<usize> {
        match self {
            MEnd::Jump { to, .. } => vec![*to],
            MEnd::Branch { then, otherwise, .. } => vec![*then, *otherwise],
            MEnd::Return(_) => Vec::new(),
        }
    }
}

impl<R: Copy> MEnd<R> {
    pub(crate) fn for_each_mut(&mut self, mut f: impl FnMut(&mut R, Role)) {
        match self {
            MEnd::Jump { args, .. } => {
                for arg in args {
                    if let Src::Reg(arg) = arg {
                        f(arg, Role::Any);
                    }
                }
            }
            MEnd::Branch { lhs, rhs, .. } => {
                f(lhs, Role::Use);
                if let Rhs::Reg(rhs) = rhs {
                    f(rhs, Role::Use);
                }
            }
            MEnd::Return(_) => {}
        }
    }
}

/// A block.
#[derive(Clone, Debug)]
pub(crate) struct MBlock {
    /// The IR block it comes from; `None` for one that only holds the moves of an edge.
    pub(crate) ir: Option<Block>,
    pub(crate) params: Vec<VReg>,
    pub(crate) insts: Vec<(MInst<VReg>, Origin)>,
    pub(crate) end: MEnd<VReg>,
    pub(crate) end_origin: Origin,
}

/// A function in machine form. Blocks are in order of emission and every jump goes to a later one.
#[derive(Clone, Debug)]
pub(crate) struct MFunc {
    pub(crate) blocks: Vec<MBlock>,
    /// How many virtual registers there are.
    pub(crate) vregs: u32,
}
