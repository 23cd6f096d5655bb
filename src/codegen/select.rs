//! IR to machine form. In: a verified function. Out: operations that BPF has, over virtual registers. Folds constants
//! and addresses into the instructions that use them, drops what nobody reads, splits edges that carry values. Never
//! chooses a register.

use cranelift_entity::{EntityRef, SecondaryMap};

use super::mach::{Base, Const, MBlock, MEnd, MFunc, MInst, Rhs, Role, Src, VReg, commutes};
use crate::ir::{
    BinaryOp, Bits, Block, BlockCall, Func, Inst, InstData, Offset, Operand, Origin, Reloc, Terminator,
    Value, Width,
};

/// Selects instructions. `far` says which relocations have values that do not fit into a load's 16-bit offset.
pub(crate) fn select(func: &Func, far: &dyn Fn(Reloc) -> bool) -> MFunc {
    let mut selector = Selector {
        func,
        far,
        defs: func.definitions(),
        read: read_values(func),
        roots: SecondaryMap::new(),
        consts: SecondaryMap::new(),
        known: SecondaryMap::new(),
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
    defs: SecondaryMap<Value, Option<Inst>>,
    /// Values that something reads which matters.
    read: SecondaryMap<Value, bool>,
    /// What a value is another name of.
    roots: SecondaryMap<Value, Option<Value>>,
    /// Values that cost nothing to make again.
    consts: SecondaryMap<Value, Option<Const>>,
    /// How many low bits of a value may be set, where that is less than all.
    known: SecondaryMap<Value, Option<u32>>,
    vregs: SecondaryMap<Value, Option<VReg>>,
    next: u32,
    /// Constants that are in a register since the last call in this block.
    cached: Vec<(Const, VReg)>,
    out: Vec<(MInst<VReg>, Origin)>,
}

impl Selector<'_> {
    fn run(&mut self) -> MFunc {
        let func = self.func;
        self.learn();
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
            && (self.constant(result).is_some() || self.roots[result].is_some())
        {
            return;
        }
        let data = &func.insts[inst];
        let made = match data {
            InstData::Ctx => self.def(result, |dst| MInst::Entry { dst }),
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
                let (base, offset) = self.address(*base, Offset::Bytes(*offset), origin);
                let value = self.rhs(*value, origin);
                let offset = match offset {
                    Offset::Bytes(offset) => offset,
                    Offset::Reloc(_) => unreachable!("`address` keeps the kind of the offset"),
                };
                MInst::Store {
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
            && self.small(lhs).is_some()
            && self.small(right).is_none()
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

    /// The instruction that made a value, seen through casts.
    fn def_of(&self, value: Value) -> Option<&InstData> {
        self.defs[self.root(value)].map(|inst| &self.func.insts[inst])
    }

    fn root(&self, value: Value) -> Value {
        self.roots[value].unwrap_or(value)
    }

    fn constant(&self, value: Value) -> Option<Const> {
        self.consts[value]
    }

    fn bits(&self, value: Value) -> u32 {
        self.known[value].unwrap_or(64)
    }

    /// Finds out about all values. A definition comes before its uses in the layout, so one pass is enough.
    fn learn(&mut self) {
        let func = self.func;
        for block in &func.layout {
            for inst in &func.blocks[*block].insts {
                let Some(result) = func.results[*inst] else {
                    continue;
                };
                let data = &func.insts[*inst];
                if let Some(to) = self.alias(data) {
                    self.roots[result] = Some(self.root(to));
                    self.consts[result] = self.consts[to];
                    self.known[result] = self.known[to];
                } else {
                    self.consts[result] = self.const_of(result, data);
                    self.known[result] = self.bits_of(data);
                }
            }
        }
    }

    fn alias(&self, data: &InstData) -> Option<Value> {
        match data {
            InstData::Cast { src, .. } => Some(*src),
            // Nothing to do where the upper bits are known to be 0.
            InstData::Extend {
                from,
                signed: false,
                src,
            } if self.bits(*src) <= 8 * from.bytes() => Some(*src),
            InstData::Ctx
            | InstData::Iconst(_)
            | InstData::Binary { .. }
            | InstData::Neg { .. }
            | InstData::Extend { .. }
            | InstData::Bswap { .. }
            | InstData::Load { .. }
            | InstData::Store { .. }
            | InstData::FieldAddr { .. }
            | InstData::RelocConst(_)
            | InstData::RelocShift { .. }
            | InstData::SlotAddr(_)
            | InstData::MapAddr(_)
            | InstData::Call { .. } => None,
        }
    }

    fn bits_of(&self, data: &InstData) -> Option<u32> {
        match data {
            InstData::Load { width, .. } | InstData::Bswap { width, .. } => Some(8 * width.bytes()),
            InstData::Iconst(value) => Some(64 - value.leading_zeros()),
            InstData::Extend {
                from, signed: false, ..
            } => Some(8 * from.bytes()),
            InstData::Binary { op, bits, rhs, .. } => {
                let width = match bits {
                    Bits::W32 => 32,
                    Bits::W64 => 64,
                };
                let imm = self.imm(*rhs).and_then(|imm| u32::try_from(imm).ok());
                Some(match (op, imm) {
                    (BinaryOp::And, Some(mask)) => width.min(32 - mask.leading_zeros()),
                    (BinaryOp::Lshr, Some(shift)) if shift < width => width - shift,
                    _ => width,
                })
            }
            InstData::Neg { bits: Bits::W32, .. } => Some(32),
            InstData::Ctx
            | InstData::Neg { bits: Bits::W64, .. }
            | InstData::Extend { signed: true, .. }
            | InstData::Store { .. }
            | InstData::FieldAddr { .. }
            | InstData::RelocConst(_)
            | InstData::RelocShift { .. }
            | InstData::SlotAddr(_)
            | InstData::MapAddr(_)
            | InstData::Call { .. }
            | InstData::Cast { .. } => None,
        }
    }

    fn const_of(&self, result: Value, data: &InstData) -> Option<Const> {
        match data {
            InstData::Iconst(value) => Some(Const::Int(*value)),
            InstData::RelocConst(reloc) => Some(Const::Reloc(*reloc)),
            InstData::SlotAddr(slot) => Some(Const::Slot(*slot, 0)),
            InstData::MapAddr(map) => Some(Const::Map(*map)),
            InstData::Binary { lhs, .. } => {
                let step = self.step(result)?;
                let Const::Slot(slot, offset) = self.constant(*lhs)? else {
                    return None;
                };
                let offset = offset.checked_add(step)?;
                i16::try_from(offset).ok().map(|_| Const::Slot(slot, offset))
            }
            InstData::Ctx
            | InstData::Neg { .. }
            | InstData::Extend { .. }
            | InstData::Bswap { .. }
            | InstData::Load { .. }
            | InstData::Store { .. }
            | InstData::FieldAddr { .. }
            | InstData::RelocShift { .. }
            | InstData::Call { .. }
            | InstData::Cast { .. } => None,
        }
    }

    /// By how much a value is further than its left operand, if it is a sum with a constant.
    fn step(&self, value: Value) -> Option<i32> {
        match self.def_of(value)? {
            InstData::Binary {
                op: BinaryOp::Add,
                bits: Bits::W64,
                rhs,
                ..
            } => self.imm(*rhs),
            InstData::Binary {
                op: BinaryOp::Sub,
                bits: Bits::W64,
                rhs,
                ..
            } => self.imm(*rhs)?.checked_neg(),
            _ => None,
        }
    }

    fn small(&self, value: Value) -> Option<i32> {
        match self.constant(value)? {
            Const::Int(value) => i32::try_from(value).ok(),
            Const::Slot(..) | Const::Map(_) | Const::Reloc(_) => None,
        }
    }

    fn imm(&self, operand: Operand) -> Option<i32> {
        match operand {
            Operand::Imm(imm) => Some(imm),
            Operand::Value(value) => self.small(value),
        }
    }

    /// The value in a register.
    fn reg(&mut self, value: Value, origin: &Origin) -> VReg {
        let Some(value) = self.constant(value) else {
            let root = self.root(value);
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
        match (self.imm(operand), operand) {
            (Some(imm), _) | (None, Operand::Imm(imm)) => Rhs::Imm(imm),
            (None, Operand::Value(value)) => Rhs::Reg(self.reg(value, origin)),
        }
    }

    /// The value for a move.
    fn src(&mut self, operand: Operand) -> Src<VReg> {
        match operand {
            Operand::Imm(imm) => Src::Const(Const::Int(i64::from(imm))),
            Operand::Value(value) => match self.constant(value) {
                Some(value) => Src::Const(value),
                None => {
                    let root = self.root(value);
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
        let Offset::Bytes(mut offset) = offset else {
            return (Base::Reg(self.reg(base, origin)), offset);
        };
        let mut base = base;
        loop {
            if let Some(Const::Slot(slot, distance)) = self.constant(base)
                && let Some(sum) = sum16(offset, distance)
            {
                return (Base::Slot(slot), Offset::Bytes(sum));
            }
            let Some(InstData::Binary { lhs, .. }) = self.def_of(base) else {
                break;
            };
            let Some(sum) = self.step(base).and_then(|step| sum16(offset, step)) else {
                break;
            };
            (base, offset) = (*lhs, sum);
        }
        (Base::Reg(self.reg(base, origin)), Offset::Bytes(offset))
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

/// Which blocks can be got to.
fn reachable(func: &Func) -> SecondaryMap<Block, bool> {
    let mut reachable = SecondaryMap::new();
    if let Some(entry) = func.layout.first() {
        reachable[*entry] = true;
    }
    for block in &func.layout {
        if reachable[*block]
            && let Some(end) = &func.blocks[*block].end
        {
            for target in end.targets() {
                reachable[target.block] = true;
            }
        }
    }
    reachable
}

/// Empty blocks for which another one stands: the target of a block that only jumps on without values, and the last of
/// the blocks that only return the same.
fn shared_ends(func: &Func, reachable: &SecondaryMap<Block, bool>) -> SecondaryMap<Block, Option<Block>> {
    let mut stands_for: SecondaryMap<Block, Option<Block>> = SecondaryMap::new();
    let mut returns: Vec<(i32, Block)> = Vec::new();
    for (position, block) in func.layout.iter().enumerate().rev() {
        let data = &func.blocks[*block];
        if !reachable[*block] || position == 0 || !data.insts.is_empty() || !data.params.is_empty() {
            continue;
        }
        match &data.end {
            Some(Terminator::Return(code)) => match returns.iter().find(|(known, _)| known == code) {
                Some((_, last)) => stands_for[*block] = Some(*last),
                None => returns.push((*code, *block)),
            },
            Some(Terminator::Jump(to)) if to.args.is_empty() => {
                stands_for[*block] = Some(stands_for[to.block].unwrap_or(to.block));
            }
            Some(Terminator::Jump(_) | Terminator::Branch { .. }) | None => {}
        }
    }
    stands_for
}

/// Values that an instruction reads which does something, directly or through other values.
fn read_values(func: &Func) -> SecondaryMap<Value, bool> {
    let mut read: SecondaryMap<Value, bool> = SecondaryMap::new();
    // Every use is later in the layout than its definition, so one pass from the end sees it first.
    for block in func.layout.iter().rev() {
        let data = &func.blocks[*block];
        if let Some(end) = &data.end {
            if let Terminator::Branch { lhs, rhs, .. } = end {
                read[*lhs] = true;
                rhs.value().into_iter().for_each(|value| read[value] = true);
            }
            for target in end.targets() {
                for (arg, param) in target.args.iter().zip(&func.blocks[target.block].params) {
                    if read[*param] {
                        read[*arg] = true;
                    }
                }
            }
        }
        for inst in data.insts.iter().rev() {
            let result_read = func.results[*inst].is_some_and(|value| read[value]);
            if result_read || !func.insts[*inst].is_pure() {
                func.insts[*inst].for_each_use(|value| read[value] = true);
            }
        }
    }
    read
}

/// Drops operations whose result nobody reads any more because it was folded into other operations.
fn drop_unread(blocks: &mut [MBlock], vregs: u32) {
    let mut read = vec![false; vregs as usize];
    for block in blocks.iter_mut().rev() {
        block.end.for_each_mut(|vreg, _| read[vreg.index()] = true);
        let mut kept: Vec<(MInst<VReg>, Origin)> = Vec::new();
        for (inst, origin) in std::mem::take(&mut block.insts).into_iter().rev() {
            let mut needed = matches!(inst, MInst::Store { .. } | MInst::Call { .. });
            inst.for_each(|vreg, role| needed |= role == Role::Def && read[vreg.index()]);
            if needed {
                inst.for_each(|vreg, role| read[vreg.index()] |= role != Role::Def);
                kept.push((inst, origin));
            }
        }
        kept.reverse();
        block.insts = kept;
    }
    // A call's unread result needs no register.
    for (inst, _) in blocks.iter_mut().flat_map(|block| &mut block.insts) {
        if let MInst::Call { ret, .. } = inst
            && ret.is_some_and(|ret| !read[ret.index()])
        {
            *ret = None;
        }
    }
}

/// Puts edge blocks in their places and numbers all targets anew. The moves of a "then" edge go right before its
/// target unless something falls through into that; else, like those of the other edge, right after the branch.
fn place(blocks: Vec<MBlock>, edges: Vec<(MBlock, bool)>) -> Vec<MBlock> {
    let count = blocks.len();
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (at, block) in blocks.iter().enumerate() {
        let MEnd::Branch { then, otherwise, .. } = block.end else {
            continue;
        };
        if otherwise >= count {
            after[at].push(otherwise);
        }
        if then >= count {
            let MEnd::Jump { to, .. } = edges[then - count].0.end else {
                continue;
            };
            let fallen_into = blocks[to - 1].end.targets().contains(&to);
            if fallen_into || !before[to].is_empty() {
                after[at].push(then);
            } else {
                before[to].push(then);
            }
        }
    }
    let mut order: Vec<usize> = Vec::new();
    for at in 0..count {
        order.extend(&before[at]);
        order.push(at);
        order.extend(&after[at]);
    }
    let mut position = vec![0; count + edges.len()];
    for (to, from) in order.iter().enumerate() {
        position[*from] = to;
    }
    let mut all: Vec<Option<MBlock>> = blocks
        .into_iter()
        .chain(edges.into_iter().map(|(block, _)| block))
        .map(Some)
        .collect();
    order
        .iter()
        .filter_map(|from| all[*from].take())
        .map(|mut block| {
            match &mut block.end {
                MEnd::Jump { to, .. } => *to = position[*to],
                MEnd::Branch { then, otherwise, .. } => {
                    *then = position[*then];
                    *otherwise = position[*otherwise];
                }
                MEnd::Return(_) => {}
            }
            block
        })
        .collect()
}
