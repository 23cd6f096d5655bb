//! IR to machine form. In: a verified function. Out: operations that BPF has, over virtual registers. Folds constants
//! and addresses into the instructions that use them, drops what nobody reads, splits edges that carry values. Never
//! chooses a register.

mod blocks;
mod facts;

use cranelift_entity::{EntityRef, SecondaryMap};

use self::blocks::{drop_unread, place, reachable, read_values, shared_ends};
use self::facts::Facts;
use super::mach::{Base, Const, MBlock, MEnd, MFunc, MInst, Rhs, Src, VReg, commutes};
use crate::ir::{
    BinaryOp, Bits, Block, BlockCall, Func, Inst, InstData, Offset, Operand, Origin, Reloc, Terminator,
    Value, Width,
};

/// Selects instructions. `far` says which relocations have values that do not fit into a load's 16-bit offset.
pub(crate) fn select(func: &Func, far: &dyn Fn(Reloc) -> bool) -> MFunc {
    let mut selector = Selector {
        func,
        far,
        facts: Facts::new(func),
        read: read_values(func),
        vregs: SecondaryMap::new(),
        next: 0,
        cached: Vec::new(),
        out: Vec::new(),
    };
    selector.run()
}

struct Selector<'a> {
    func: &'a Func,
    far: &'a dyn Fn(Reloc) -> bool,
    facts: Facts<'a>,
    /// Values that something reads which matters.
    read: SecondaryMap<Value, bool>,
    vregs: SecondaryMap<Value, Option<VReg>>,
    next: u32,
    /// Constants that are in a register since the last call in this block.
    cached: Vec<(Const, VReg)>,
    out: Vec<(MInst<VReg>, Origin)>,
}

impl Selector<'_> {
    fn run(&mut self) -> MFunc {
        let func = self.func;
        let reachable = reachable(func);
        let shared = shared_ends(func, &reachable);
        let order: Vec<Block> = func
            .layout
            .iter()
            .copied()
            .filter(|block| reachable[*block] && shared[*block].is_none())
            .collect();
        let mut index: SecondaryMap<Block, usize> = SecondaryMap::new();
        for (at, block) in order.iter().enumerate() {
            index[*block] = at;
        }
        let resolve = |block: Block| index[shared[block].unwrap_or(block)];

        // Edge blocks go between the originals, so positions are settled only at the end; until then a target is the
        // number of its original, or, for an edge block, a number past all of them.
        let mut blocks: Vec<MBlock> = Vec::new();
        let mut edges: Vec<(MBlock, bool)> = Vec::new();
        for block in &order {
            let data = &func.blocks[*block];
            let params = data.params.iter().copied().filter(|param| self.read[*param]);
            let params: Vec<Value> = params.collect();
            let params = params.into_iter().map(|param| self.vreg(param)).collect();
            self.cached.clear();
            for inst in &data.insts {
                let read = func.results[*inst].is_some_and(|result| self.read[result]);
                if read || !func.insts[*inst].is_pure() {
                    self.inst(*inst);
                }
            }
            let end = match data.end.as_ref() {
                None => MEnd::Return(0),
                Some(Terminator::Return(code)) => MEnd::Return(*code),
                Some(Terminator::Jump(to)) => MEnd::Jump {
                    to: resolve(to.block),
                    args: self.args(to),
                },
                Some(Terminator::Branch {
                    op,
                    bits,
                    lhs,
                    rhs,
                    then,
                    otherwise,
                }) => {
                    let lhs = self.reg(*lhs, &data.end_origin);
                    let rhs = self.rhs(*rhs, &data.end_origin);
                    let mut target = |to: &BlockCall, is_then: bool| {
                        let args = self.args(to);
                        if args.is_empty() {
                            return resolve(to.block);
                        }
                        edges.push((
                            MBlock {
                                ir: None,
                                params: Vec::new(),
                                insts: Vec::new(),
                                end: MEnd::Jump {
                                    to: resolve(to.block),
                                    args,
                                },
                                end_origin: data.end_origin.clone(),
                            },
                            is_then,
                        ));
                        order.len() + edges.len() - 1
                    };
                    MEnd::Branch {
                        op: *op,
                        bits: *bits,
                        lhs,
                        rhs,
                        then: target(then, true),
                        otherwise: target(otherwise, false),
                    }
                }
            };
            blocks.push(MBlock {
                ir: Some(*block),
                params,
                insts: std::mem::take(&mut self.out),
                end,
                end_origin: data.end_origin.clone(),
            });
        }
        let mut blocks = place(blocks, edges);
        drop_unread(&mut blocks, self.next);
        MFunc {
            blocks,
            vregs: self.next,
        }
    }

    fn inst(&mut self, inst: Inst) {
        let func = self.func;
        let origin = &func.origins[inst];
        let result = func.results[inst];
        // Constants are made where they are used, and casts are other names of the same register.
        if let Some(result) = result
            && self.facts.is_free(result)
        {
            return;
        }
        let data = &func.insts[inst];
        let made = match data {
            InstData::Ctx => self.def(result, |dst| MInst::Entry { dst }),
            InstData::Binary {
                op,
                bits: Bits::W64,
                lhs,
                rhs: Operand::Value(rhs),
            } if let Some(Const::Reloc(reloc)) = self.facts.constant(*rhs) => {
                // A relocated constant goes into the instruction as any other does.
                let lhs = self.reg(*lhs, origin);
                self.def(result, |dst| MInst::AluReloc {
                    op: *op,
                    dst,
                    lhs,
                    reloc,
                })
            }
            InstData::Binary { op, bits, lhs, rhs } => {
                let (lhs, rhs) = self.ordered(*op, *lhs, *rhs);
                let lhs = self.reg(lhs, origin);
                let rhs = self.rhs(rhs, origin);
                self.def(result, |dst| MInst::Alu {
                    op: *op,
                    bits: *bits,
                    dst,
                    lhs,
                    rhs,
                })
            }
            InstData::Neg { bits, src } => {
                let src = self.reg(*src, origin);
                self.def(result, |dst| MInst::Neg {
                    bits: *bits,
                    dst,
                    src,
                })
            }
            InstData::Extend { from, signed, src } => {
                let src = self.reg(*src, origin);
                self.def(result, |dst| extend(*from, *signed, dst, src))
            }
            InstData::Bswap { width, src } => {
                let src = self.reg(*src, origin);
                self.def(result, |dst| MInst::Bswap {
                    width: *width,
                    dst,
                    src,
                })
            }
            InstData::Load {
                width, base, offset, ..
            } => {
                let (mut base, mut offset) = self.address(*base, *offset, origin);
                if let (Offset::Reloc(reloc), Base::Reg(lhs)) = (offset, base)
                    && (self.far)(reloc)
                {
                    let dst = self.fresh();
                    self.out.push((
                        MInst::AluReloc {
                            op: BinaryOp::Add,
                            dst,
                            lhs,
                            reloc,
                        },
                        origin.clone(),
                    ));
                    (base, offset) = (Base::Reg(dst), Offset::Bytes(0));
                }
                self.def(result, |dst| MInst::Load {
                    width: *width,
                    dst,
                    base,
                    offset,
                })
            }
            InstData::Store {
                width,
                base,
                offset,
                value,
            } => {
                let (base, offset) = self.distance(*base, *offset, origin);
                let value = self.rhs(*value, origin);
                MInst::Store {
                    width: *width,
                    base,
                    offset,
                    value,
                }
            }
            InstData::AtomicAdd {
                width,
                base,
                offset,
                value,
            } => {
                let (base, offset) = self.distance(*base, *offset, origin);
                let value = self.reg(*value, origin);
                MInst::AtomicAdd {
                    width: *width,
                    base,
                    offset,
                    value,
                }
            }
            InstData::FieldAddr { base, reloc } => {
                let lhs = self.reg(*base, origin);
                self.def(result, |dst| MInst::AluReloc {
                    op: BinaryOp::Add,
                    dst,
                    lhs,
                    reloc: *reloc,
                })
            }
            InstData::RelocShift { op, src, reloc } => {
                let lhs = self.reg(*src, origin);
                self.def(result, |dst| MInst::AluReloc {
                    op: *op,
                    dst,
                    lhs,
                    reloc: *reloc,
                })
            }
            InstData::Call { helper, args } => {
                let args = args.iter().map(|arg| self.src(*arg)).collect();
                self.cached.clear();
                let ret = result.map(|value| self.vreg(value));
                MInst::Call {
                    helper: *helper,
                    args,
                    ret,
                }
            }
            // All of these are constants or other names, which were handled above, unless nobody named the result.
            InstData::Iconst(_)
            | InstData::RelocConst(_)
            | InstData::SlotAddr(_)
            | InstData::MapAddr(_)
            | InstData::Cast { .. } => return,
        };
        self.out.push((made, origin.clone()));
    }

    /// The constant goes to the right where that makes no difference.
    fn ordered(&self, op: BinaryOp, lhs: Value, rhs: Operand) -> (Value, Operand) {
        if let (true, Operand::Value(right)) = (commutes(op), rhs)
            && self.facts.small(lhs).is_some()
            && self.facts.small(right).is_none()
        {
            return (right, Operand::Value(lhs));
        }
        (lhs, rhs)
    }

    fn def(&mut self, result: Option<Value>, make: impl FnOnce(VReg) -> MInst<VReg>) -> MInst<VReg> {
        let dst = match result {
            Some(value) => self.vreg(value),
            None => self.fresh(),
        };
        make(dst)
    }

    fn fresh(&mut self) -> VReg {
        let vreg = VReg::new(self.next as usize);
        self.next += 1;
        vreg
    }

    fn vreg(&mut self, value: Value) -> VReg {
        match self.vregs[value] {
            Some(vreg) => vreg,
            None => {
                let vreg = self.fresh();
                self.vregs[value] = Some(vreg);
                vreg
            }
        }
    }

    /// The value in a register.
    fn reg(&mut self, value: Value, origin: &Origin) -> VReg {
        let Some(value) = self.facts.constant(value) else {
            let root = self.facts.root(value);
            return self.vreg(root);
        };
        if let Some((_, known)) = self.cached.iter().find(|(known, _)| *known == value) {
            return *known;
        }
        let dst = self.fresh();
        self.out.push((MInst::Const { dst, value }, origin.clone()));
        self.cached.push((value, dst));
        dst
    }

    fn rhs(&mut self, operand: Operand, origin: &Origin) -> Rhs<VReg> {
        match (self.facts.imm(operand), operand) {
            (Some(imm), _) | (None, Operand::Imm(imm)) => Rhs::Imm(imm),
            (None, Operand::Value(value)) => Rhs::Reg(self.reg(value, origin)),
        }
    }

    /// The value for a move.
    fn src(&mut self, operand: Operand) -> Src<VReg> {
        match operand {
            Operand::Imm(imm) => Src::Const(Const::Int(i64::from(imm))),
            Operand::Value(value) => match self.facts.constant(value) {
                Some(value) => Src::Const(value),
                None => {
                    let root = self.facts.root(value);
                    Src::Reg(self.vreg(root))
                }
            },
        }
    }

    /// The arguments for those parameters that are read.
    fn args(&mut self, to: &BlockCall) -> Vec<Src<VReg>> {
        let params = &self.func.blocks[to.block].params;
        let mut args = Vec::new();
        for (arg, param) in to.args.iter().zip(params) {
            if self.read[*param] {
                args.push(self.src(Operand::Value(*arg)));
            }
        }
        args
    }

    /// Moves constant distances from the address into the access.
    fn address(&mut self, base: Value, offset: Offset, origin: &Origin) -> (Base<VReg>, Offset) {
        match offset {
            Offset::Bytes(bytes) => {
                let (base, bytes) = self.distance(base, bytes, origin);
                (base, Offset::Bytes(bytes))
            }
            Offset::Reloc(_) => (Base::Reg(self.reg(base, origin)), offset),
        }
    }

    /// The same for a distance that is known.
    fn distance(&mut self, mut base: Value, mut offset: i16, origin: &Origin) -> (Base<VReg>, i16) {
        loop {
            if let Some(Const::Slot(slot, distance)) = self.facts.constant(base)
                && let Some(sum) = sum16(offset, distance)
            {
                return (Base::Slot(slot), sum);
            }
            let Some(InstData::Binary { lhs, .. }) = self.facts.def_of(base) else {
                break;
            };
            let Some(sum) = self.facts.step(base).and_then(|step| sum16(offset, step)) else {
                break;
            };
            (base, offset) = (*lhs, sum);
        }
        (Base::Reg(self.reg(base, origin)), offset)
    }
}

fn sum16(offset: i16, step: i32) -> Option<i16> {
    i16::try_from(i32::from(offset).checked_add(step)?).ok()
}

fn extend(from: Width, signed: bool, dst: VReg, src: VReg) -> MInst<VReg> {
    let mask = |mask| MInst::Alu {
        op: BinaryOp::And,
        bits: Bits::W64,
        dst,
        lhs: src,
        rhs: Rhs::Imm(mask),
    };
    match (from, signed) {
        (_, true) => MInst::Sext { from, dst, src },
        (Width::B1, false) => mask(0xff),
        (Width::B2, false) => mask(0xffff),
        (Width::B4, false) => MInst::Zext { dst, src },
        // The verifier refuses it; all the bytes are what there is.
        (Width::B8, false) => mask(-1),
    }
}
