//! What every pass asks of an instruction: which values it reads, whether it does anything besides its result, what
//! type its result has. In: an instruction. Never changes one.

use super::inst::{BlockCall, InstData, Offset, Operand, Space, Terminator, Type, Width};
use super::{Func, Inst, MapRef, Reloc, Value};

impl InstData {
    /// Calls `f` with each value that it reads, in the order of the text.
    pub fn for_each_use(&self, mut f: impl FnMut(Value)) {
        match self {
            InstData::Ctx
            | InstData::Iconst(_)
            | InstData::RelocConst(_)
            | InstData::SlotAddr(_)
            | InstData::MapAddr(_) => {}
            InstData::Binary { lhs, rhs, .. } => {
                f(*lhs);
                rhs.value().into_iter().for_each(f);
            }
            InstData::Neg { src, .. }
            | InstData::Extend { src, .. }
            | InstData::Bswap { src, .. }
            | InstData::RelocShift { src, .. }
            | InstData::Cast { src, .. } => f(*src),
            InstData::Load { base, .. } | InstData::FieldAddr { base, .. } => f(*base),
            InstData::Store { base, value, .. } => {
                f(*base);
                value.value().into_iter().for_each(f);
            }
            InstData::AtomicAdd { base, value, .. } => {
                f(*base);
                f(*value);
            }
            InstData::Call { args, .. } => args.iter().filter_map(|arg| arg.value()).for_each(f),
        }
    }

    /// Whether only its result matters, so that it can go when nobody reads that.
    pub fn is_pure(&self) -> bool {
        match self {
            InstData::Ctx
            | InstData::Iconst(_)
            | InstData::Binary { .. }
            | InstData::Neg { .. }
            | InstData::Extend { .. }
            | InstData::Bswap { .. }
            | InstData::Load { .. }
            | InstData::FieldAddr { .. }
            | InstData::RelocConst(_)
            | InstData::RelocShift { .. }
            | InstData::SlotAddr(_)
            | InstData::MapAddr(_)
            | InstData::Cast { .. } => true,
            InstData::Store { .. } | InstData::AtomicAdd { .. } | InstData::Call { .. } => false,
        }
    }

    /// The relocation that it carries.
    pub fn reloc(&self) -> Option<Reloc> {
        match self {
            InstData::Load {
                offset: Offset::Reloc(reloc),
                ..
            }
            | InstData::FieldAddr { reloc, .. }
            | InstData::RelocConst(reloc)
            | InstData::RelocShift { reloc, .. } => Some(*reloc),
            InstData::Load {
                offset: Offset::Bytes(_),
                ..
            }
            | InstData::Ctx
            | InstData::Iconst(_)
            | InstData::Binary { .. }
            | InstData::Neg { .. }
            | InstData::Extend { .. }
            | InstData::Bswap { .. }
            | InstData::Store { .. }
            | InstData::AtomicAdd { .. }
            | InstData::SlotAddr(_)
            | InstData::MapAddr(_)
            | InstData::Call { .. }
            | InstData::Cast { .. } => None,
        }
    }

    /// The map that it names.
    pub fn map(&self) -> Option<MapRef> {
        if let InstData::MapAddr(map) = self {
            Some(*map)
        } else {
            None
        }
    }

    /// The type of its result, given the types of other values; `None` if it has no result.
    pub fn result_type(&self, type_of: impl Fn(Value) -> Type) -> Option<Type> {
        match self {
            InstData::Ctx => Some(Type::Ptr(Space::Ctx)),
            InstData::Iconst(_)
            | InstData::Neg { .. }
            | InstData::Extend { .. }
            | InstData::Bswap { .. }
            | InstData::RelocConst(_)
            | InstData::RelocShift { .. } => Some(Type::Int),
            InstData::Binary { lhs, .. } => Some(type_of(*lhs)),
            InstData::Load { ty, .. } | InstData::Cast { ty, .. } => Some(*ty),
            InstData::Store { .. } | InstData::AtomicAdd { .. } => None,
            InstData::FieldAddr { base, .. } => Some(match type_of(*base) {
                Type::Ptr(Space::Btf) => Type::Ptr(Space::Kernel),
                other @ (Type::Int | Type::Ptr(_) | Type::Map) => other,
            }),
            InstData::SlotAddr(_) => Some(Type::Ptr(Space::Stack)),
            InstData::MapAddr(_) => Some(Type::Map),
            InstData::Call { helper, .. } => helper.result(),
        }
    }
}

impl Width {
    /// How many bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Width::B1 => 1,
            Width::B2 => 2,
            Width::B4 => 4,
            Width::B8 => 8,
        }
    }
}

impl Operand {
    /// The value, if it is one.
    pub fn value(self) -> Option<Value> {
        match self {
            Operand::Value(value) => Some(value),
            Operand::Imm(_) => None,
        }
    }
}

impl Terminator {
    /// Where it may go, in order.
    pub fn targets(&self) -> Vec<&BlockCall> {
        match self {
            Terminator::Jump(to) => vec![to],
            Terminator::Branch { then, otherwise, .. } => vec![then, otherwise],
            Terminator::Return(_) => Vec::new(),
        }
    }

    /// Calls `f` with each value that it reads, arguments of jumps included.
    pub fn for_each_use(&self, mut f: impl FnMut(Value)) {
        if let Terminator::Branch { lhs, rhs, .. } = self {
            f(*lhs);
            rhs.value().into_iter().for_each(&mut f);
        }
        for target in self.targets() {
            target.args.iter().copied().for_each(&mut f);
        }
    }
}

impl Func {
    /// For each value the instruction that defines it; `None` for block parameters.
    pub fn definitions(&self) -> cranelift_entity::SecondaryMap<Value, Option<Inst>> {
        let mut defs = cranelift_entity::SecondaryMap::new();
        for block in &self.layout {
            for inst in &self.blocks[*block].insts {
                if let Some(value) = self.results[*inst] {
                    defs[value] = Some(*inst);
                }
            }
        }
        defs
    }
}
