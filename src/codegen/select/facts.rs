//! What is known about values without running anything. In: a function. Out: which values are other names of others,
//! which are constants, how many bits of each can be set. Never looks at uses.

use cranelift_entity::SecondaryMap;

use super::super::mach::Const;
use crate::ir::{BinaryOp, Bits, Func, Inst, InstData, Operand, Value};

/// What is known about all values.
pub(super) struct Facts<'a> {
    func: &'a Func,
    defs: SecondaryMap<Value, Option<Inst>>,
    /// What a value is another name of.
    roots: SecondaryMap<Value, Option<Value>>,
    /// Values that cost nothing to make again.
    consts: SecondaryMap<Value, Option<Const>>,
    /// How many low bits of a value may be set, where that is less than all.
    known: SecondaryMap<Value, Option<u32>>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(func: &'a Func) -> Facts<'a> {
        let mut facts = Facts {
            func,
            defs: func.definitions(),
            roots: SecondaryMap::new(),
            consts: SecondaryMap::new(),
            known: SecondaryMap::new(),
        };
        facts.learn();
        facts
    }

    /// Whether no instruction has to be made for a value: it is a constant or another name.
    pub(super) fn is_free(&self, value: Value) -> bool {
        self.consts[value].is_some() || self.roots[value].is_some()
    }

    /// The instruction that made a value, seen through casts.
    pub(super) fn def_of(&self, value: Value) -> Option<&InstData> {
        self.defs[self.root(value)].map(|inst| &self.func.insts[inst])
    }

    pub(super) fn root(&self, value: Value) -> Value {
        self.roots[value].unwrap_or(value)
    }

    pub(super) fn constant(&self, value: Value) -> Option<Const> {
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
            | InstData::AtomicAdd { .. }
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
                let width: u32 = match bits {
                    Bits::W32 => 32,
                    Bits::W64 => 64,
                };
                let imm = self.imm(*rhs).and_then(|imm| u32::try_from(imm).ok());
                let fewer = match op {
                    BinaryOp::And => imm.map(|mask| 32 - mask.leading_zeros()),
                    BinaryOp::Lshr => imm.and_then(|shift| width.checked_sub(shift)),
                    BinaryOp::Add
                    | BinaryOp::Sub
                    | BinaryOp::Mul
                    | BinaryOp::Udiv
                    | BinaryOp::Urem
                    | BinaryOp::Or
                    | BinaryOp::Xor
                    | BinaryOp::Shl
                    | BinaryOp::Ashr => None,
                };
                Some(fewer.map_or(width, |fewer| fewer.min(width)))
            }
            InstData::Neg { bits: Bits::W32, .. } => Some(32),
            InstData::Ctx
            | InstData::Neg { bits: Bits::W64, .. }
            | InstData::Extend { signed: true, .. }
            | InstData::Store { .. }
            | InstData::AtomicAdd { .. }
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
            | InstData::AtomicAdd { .. }
            | InstData::FieldAddr { .. }
            | InstData::RelocShift { .. }
            | InstData::Call { .. }
            | InstData::Cast { .. } => None,
        }
    }

    /// By how much a value is further than its left operand, if it is a sum with a constant.
    pub(super) fn step(&self, value: Value) -> Option<i32> {
        let InstData::Binary {
            op,
            bits: Bits::W64,
            rhs,
            ..
        } = self.def_of(value)?
        else {
            return None;
        };
        match op {
            BinaryOp::Add => self.imm(*rhs),
            BinaryOp::Sub => self.imm(*rhs)?.checked_neg(),
            BinaryOp::Mul
            | BinaryOp::Udiv
            | BinaryOp::Urem
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::Shl
            | BinaryOp::Lshr
            | BinaryOp::Ashr => None,
        }
    }

    pub(super) fn small(&self, value: Value) -> Option<i32> {
        match self.constant(value)? {
            Const::Int(value) => i32::try_from(value).ok(),
            Const::Slot(..) | Const::Map(_) | Const::Reloc(_) => None,
        }
    }

    pub(super) fn imm(&self, operand: Operand) -> Option<i32> {
        match operand {
            Operand::Imm(imm) => Some(imm),
            Operand::Value(value) => self.small(value),
        }
    }
}
