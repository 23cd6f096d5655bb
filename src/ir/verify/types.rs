//! The rules about types: what each instruction takes and gives. In: a function whose references are sound.

use super::{Place, Rule, Verifier};
use crate::ir::inst::{
    BinaryOp, Bits, BlockCall, CmpOp, InstData, Offset, Operand, Space, Terminator, Type, Width,
};
use crate::ir::{ArgKind, Block, Helper, Inst, MapKind, RelocKind, Value};

impl Verifier<'_> {
    pub(super) fn types(&mut self) {
        let func = self.func;
        for (position, block) in func.layout.iter().enumerate() {
            let data = &func.blocks[*block];
            if position == 0 && !data.params.is_empty() {
                let place = Place {
                    block: Some(*block),
                    at: None,
                };
                self.error(Rule::BlockArguments, place, "the first block has parameters");
            }
            for (at, inst) in data.insts.iter().enumerate() {
                let place = Place {
                    block: Some(*block),
                    at: Some(at),
                };
                let first = position == 0 && at == 0;
                if matches!(func.insts[*inst], InstData::Ctx) && !first {
                    self.error(
                        Rule::ContextFirst,
                        place,
                        "the context is not the first instruction",
                    );
                }
                self.result(*inst, place);
                self.inst(&func.insts[*inst], *block, place);
            }
            if let Some(end) = &data.end {
                let place = Place {
                    block: Some(*block),
                    at: None,
                };
                self.end_types(end, place);
            }
        }
    }

    fn ty(&self, value: Value) -> Type {
        self.func.values[value]
    }

    fn result(&mut self, inst: Inst, place: Place) {
        let expected = self.func.insts[inst].result_type(|value| self.ty(value));
        let actual = self.func.results[inst].map(|value| self.ty(value));
        // Nobody has to name the result of a call.
        let unnamed = actual.is_none() && matches!(self.func.insts[inst], InstData::Call { .. });
        if expected != actual && !unnamed {
            let detail = format!("the result is {actual:?}, should be {expected:?}");
            self.error(Rule::ResultType, place, detail);
        }
    }

    fn inst(&mut self, data: &InstData, block: Block, place: Place) {
        match data {
            InstData::Ctx | InstData::Iconst(_) | InstData::SlotAddr(_) | InstData::MapAddr(_) => {}
            InstData::Binary { op, bits, lhs, rhs } => self.binary(*op, *bits, *lhs, *rhs, place),
            InstData::Neg { src, .. } => self.number(*src, place),
            InstData::Extend { from, src, .. } => {
                if *from == Width::B8 {
                    self.error(Rule::Width, place, "an extension from 8 bytes");
                }
                self.number(*src, place);
            }
            InstData::Bswap { width, src } => {
                if *width == Width::B1 {
                    self.error(Rule::Width, place, "a byte swap of 1 byte");
                }
                self.number(*src, place);
            }
            InstData::Load {
                ty,
                width,
                base,
                offset,
            } => self.load(*ty, *width, *base, *offset, place),
            InstData::Store {
                base, value, width, ..
            } => {
                self.store(*base, place);
                if let Operand::Value(value) = value {
                    self.storable(*value, *width, place);
                }
            }
            InstData::AtomicAdd {
                width,
                base,
                offset,
                value,
            } => {
                // The stack is no other program's, and the kernel's verifier forgets what lies there.
                if self.ty(*base) == Type::Ptr(Space::Stack) {
                    let detail = format!("an atomic addition to {base}, which is on the stack");
                    self.error(Rule::StoreSpace, place, detail);
                } else {
                    self.store(*base, place);
                }
                if !matches!(width, Width::B4 | Width::B8) {
                    self.error(Rule::Width, place, "an atomic addition of less than 4 bytes");
                }
                if i32::from(*offset) % width.bytes() as i32 != 0 {
                    self.error(Rule::Range, place, "an atomic addition that is not aligned");
                }
                self.number(*value, place);
            }
            InstData::FieldAddr { base, reloc } => {
                self.relocation(*reloc, &[RelocKind::FieldByteOffset], place);
                match self.ty(*base) {
                    Type::Ptr(
                        Space::Kernel
                        | Space::User
                        | Space::Btf
                        | Space::Stack
                        | Space::MapValue
                        | Space::Record,
                    ) => {}
                    Type::Ptr(Space::Ctx | Space::MapValueOrNull | Space::RecordOrNull)
                    | Type::Int
                    | Type::Map => {
                        self.error(
                            Rule::OperandType,
                            place,
                            format!("{base} is no address of a struct"),
                        );
                    }
                }
            }
            InstData::RelocConst(reloc) => {
                let kinds = [
                    RelocKind::FieldByteOffset,
                    RelocKind::FieldByteSize,
                    RelocKind::FieldLshiftU64,
                    RelocKind::FieldRshiftU64,
                    RelocKind::TypeSize,
                ];
                self.relocation(*reloc, &kinds, place);
            }
            InstData::RelocShift { op, src, reloc } => {
                let kinds = [RelocKind::FieldLshiftU64, RelocKind::FieldRshiftU64];
                self.relocation(*reloc, &kinds, place);
                self.number(*src, place);
                if !matches!(op, BinaryOp::Shl | BinaryOp::Lshr | BinaryOp::Ashr) {
                    self.error(Rule::RelocationShift, place, "a relocated shift that is no shift");
                }
            }
            InstData::Call { helper, args } => self.call(*helper, args, place),
            InstData::Cast { ty, src } => self.cast(*ty, *src, block, place),
        }
    }

    fn number(&mut self, value: Value, place: Place) {
        match self.ty(value) {
            Type::Int => {}
            Type::Ptr(Space::MapValueOrNull | Space::RecordOrNull) => {
                let detail = format!("{value} may be NULL and is neither compared with 0 nor cast");
                self.error(Rule::OrNull, place, detail);
            }
            Type::Ptr(
                Space::Ctx
                | Space::Stack
                | Space::MapValue
                | Space::Record
                | Space::Kernel
                | Space::User
                | Space::Btf,
            )
            | Type::Map => {
                self.error(Rule::OperandType, place, format!("{value} is no number"));
            }
        }
    }

    fn binary(&mut self, op: BinaryOp, bits: Bits, lhs: Value, rhs: Operand, place: Place) {
        if let Operand::Imm(imm) = rhs {
            let width = match bits {
                Bits::W32 => 32,
                Bits::W64 => 64,
            };
            let bad = match op {
                BinaryOp::Shl | BinaryOp::Lshr | BinaryOp::Ashr => !(0..width).contains(&imm),
                BinaryOp::Udiv | BinaryOp::Urem => imm == 0,
                BinaryOp::Add
                | BinaryOp::Sub
                | BinaryOp::Mul
                | BinaryOp::And
                | BinaryOp::Or
                | BinaryOp::Xor => false,
            };
            if bad {
                self.error(Rule::ConstantOperand, place, format!("{op:?} by {imm}"));
            }
        }
        if let Operand::Value(value) = rhs {
            self.number(value, place);
        }
        match self.ty(lhs) {
            Type::Int => {}
            Type::Ptr(
                Space::Ctx
                | Space::Stack
                | Space::MapValue
                | Space::Record
                | Space::Kernel
                | Space::User
                | Space::Btf,
            ) => {
                if !matches!(op, BinaryOp::Add | BinaryOp::Sub) || bits != Bits::W64 {
                    let detail = format!("{op:?} on the address {lhs}: only 64-bit add and sub");
                    self.error(Rule::OperandType, place, detail);
                }
            }
            Type::Ptr(Space::MapValueOrNull | Space::RecordOrNull) => self.number(lhs, place),
            Type::Map => self.error(Rule::OperandType, place, format!("arithmetic on the map {lhs}")),
        }
    }

    fn load(&mut self, ty: Type, width: Width, base: Value, offset: Offset, place: Place) {
        let relocated = match offset {
            Offset::Bytes(_) => false,
            Offset::Reloc(reloc) => {
                self.relocation(reloc, &[RelocKind::FieldByteOffset], place);
                true
            }
        };
        match self.ty(base) {
            Type::Ptr(Space::Btf) => {
                if !relocated {
                    self.error(
                        Rule::OffsetKind,
                        place,
                        "a load from a typed address without a relocation",
                    );
                }
            }
            // What is on the stack may be a copy of a piece of a kernel struct.
            Type::Ptr(Space::Stack) => {}
            Type::Ptr(Space::Ctx | Space::MapValue | Space::Record) => {
                if relocated {
                    self.error(Rule::OffsetKind, place, "a relocated load from memory of ours");
                }
            }
            Type::Ptr(Space::MapValueOrNull | Space::RecordOrNull) => {
                self.error(
                    Rule::OrNull,
                    place,
                    format!("a load from {base}, which may be NULL"),
                );
            }
            Type::Ptr(Space::Kernel | Space::User) | Type::Int | Type::Map => {
                let detail = format!("a plain load from {base}, which is {:?}", self.ty(base));
                self.error(Rule::LoadSpace, place, detail);
            }
        }
        match ty {
            Type::Int => {}
            Type::Ptr(_) if width == Width::B8 => {}
            Type::Ptr(_) => self.error(Rule::Width, place, "an address of less than 8 bytes is loaded"),
            Type::Map => self.error(Rule::ResultType, place, "a map is loaded"),
        }
    }

    fn store(&mut self, base: Value, place: Place) {
        match self.ty(base) {
            Type::Ptr(Space::Stack | Space::MapValue | Space::Record) => {}
            Type::Ptr(Space::MapValueOrNull | Space::RecordOrNull) => {
                self.error(
                    Rule::OrNull,
                    place,
                    format!("a store to {base}, which may be NULL"),
                );
            }
            Type::Ptr(Space::Ctx | Space::Kernel | Space::User | Space::Btf) | Type::Int | Type::Map => {
                let detail = format!("a store to {base}, which is {:?}", self.ty(base));
                self.error(Rule::StoreSpace, place, detail);
            }
        }
    }

    fn storable(&mut self, value: Value, width: Width, place: Place) {
        match self.ty(value) {
            Type::Int => {}
            Type::Ptr(Space::MapValueOrNull | Space::RecordOrNull) => self.number(value, place),
            Type::Ptr(
                Space::Ctx
                | Space::Stack
                | Space::MapValue
                | Space::Record
                | Space::Kernel
                | Space::User
                | Space::Btf,
            ) => {
                if width != Width::B8 {
                    self.error(Rule::Width, place, "less than 8 bytes of an address are stored");
                }
            }
            Type::Map => self.error(Rule::OperandType, place, "a map is stored"),
        }
    }

    fn relocation(&mut self, reloc: crate::ir::Reloc, kinds: &[RelocKind], place: Place) {
        let kind = self.func.relocs[reloc].kind;
        if !kinds.contains(&kind) {
            self.error(Rule::RelocationKind, place, format!("{reloc} is {kind:?}"));
        }
    }

    fn cast(&mut self, ty: Type, src: Value, block: Block, place: Place) {
        let from = self.ty(src);
        let good = match (from, ty) {
            (Type::Ptr(Space::RecordOrNull), Type::Ptr(Space::Record))
            | (Type::Ptr(Space::MapValueOrNull), Type::Ptr(Space::MapValue)) => {
                if self.reachable[block] && !self.known_not_null(src, block) {
                    let detail = format!("{src} is cast where it may still be NULL");
                    self.error(Rule::NullCheck, place, detail);
                }
                return;
            }
            (Type::Ptr(Space::RecordOrNull | Space::MapValueOrNull), _) => {
                self.error(
                    Rule::OrNull,
                    place,
                    format!("{src} may be NULL and is cast to {ty:?}"),
                );
                return;
            }
            // A number is an address only of memory that every access of is checked at run time.
            (Type::Int, Type::Int | Type::Ptr(Space::Kernel | Space::User)) => true,
            (
                Type::Ptr(Space::Kernel | Space::User | Space::Btf),
                Type::Int | Type::Ptr(Space::Kernel | Space::User),
            ) => true,
            (Type::Ptr(Space::Stack | Space::Record), Type::Int) => true,
            // The context and what is in maps outlive the program's own view of them, and may be read as any kernel memory.
            (Type::Ptr(Space::Ctx | Space::MapValue), Type::Int | Type::Ptr(Space::Kernel)) => true,
            (Type::Map, _) | (_, Type::Map) => false,
            (Type::Int | Type::Ptr(_), Type::Ptr(_)) => from == ty,
        };
        if !good {
            self.error(Rule::Cast, place, format!("a cast of {from:?} to {ty:?}"));
        }
    }

    fn call(&mut self, helper: Helper, args: &[Operand], place: Place) {
        let params = helper.params();
        if args.len() != params.len() {
            let detail = format!(
                "{} takes {} arguments, not {}",
                helper.name(),
                params.len(),
                args.len()
            );
            self.error(Rule::ArgumentCount, place, detail);
            return;
        }
        for (arg, kind) in args.iter().zip(params) {
            if !self.fits(*arg, *kind) {
                let detail = format!("{} is given {arg:?} as {kind:?}", helper.name());
                self.error(Rule::ArgumentKind, place, detail);
            }
        }
        let wants_ringbuf = matches!(helper, Helper::RingbufReserve | Helper::RingbufQuery);
        let wants_cgroups = helper == Helper::CurrentTaskUnderCgroup;
        let map = self.map_of(args);
        if let Some(map) = map
            && ((self.func.maps[map].kind == MapKind::Ringbuf) != wants_ringbuf
                || (self.func.maps[map].kind == MapKind::CgroupArray) != wants_cgroups)
        {
            self.error(
                Rule::ArgumentKind,
                place,
                format!("{} does not take {map}", helper.name()),
            );
        }
    }

    fn fits(&self, arg: Operand, kind: ArgKind) -> bool {
        let ty = arg.value().map(|value| self.ty(value));
        match kind {
            ArgKind::Ctx => ty == Some(Type::Ptr(Space::Ctx)),
            // Which map must be known where it is used, so a map never goes through a block's parameter.
            ArgKind::Map => {
                ty == Some(Type::Map)
                    && arg
                        .value()
                        .is_some_and(|value| matches!(self.inst_of(value), Some(InstData::MapAddr(_))))
            }
            ArgKind::Key | ArgKind::MapValue | ArgKind::Memory | ArgKind::Word => {
                matches!(
                    ty,
                    Some(Type::Ptr(Space::Stack | Space::MapValue | Space::Record))
                )
            }
            ArgKind::Size => match arg {
                Operand::Imm(size) => size >= 0,
                Operand::Value(_) => ty == Some(Type::Int),
            },
            ArgKind::Number => ty.is_none_or(|ty| ty == Type::Int),
            ArgKind::Kernel => matches!(ty, Some(Type::Ptr(Space::Kernel | Space::Btf))),
            ArgKind::User => ty == Some(Type::Ptr(Space::User)),
            ArgKind::Record => ty == Some(Type::Ptr(Space::Record)),
        }
    }

    fn end_types(&mut self, end: &Terminator, place: Place) {
        for target in end.targets() {
            self.arguments(target, place);
        }
        let Terminator::Branch {
            op, bits, lhs, rhs, ..
        } = end
        else {
            return;
        };
        match self.ty(*lhs) {
            Type::Int => {}
            Type::Ptr(Space::MapValueOrNull | Space::RecordOrNull) => {
                let with_zero = *rhs == Operand::Imm(0) && matches!(op, CmpOp::Eq | CmpOp::Ne);
                if !with_zero || *bits != Bits::W64 {
                    let detail = format!("{lhs} may be NULL: only eq and ne with 0, on 64 bits");
                    self.error(Rule::OrNull, place, detail);
                }
            }
            Type::Ptr(Space::Kernel | Space::User | Space::Btf) => {
                if *bits != Bits::W64 {
                    self.error(
                        Rule::Comparison,
                        place,
                        format!("the address {lhs} is compared on 32 bits"),
                    );
                }
            }
            Type::Ptr(Space::Ctx | Space::Stack | Space::MapValue | Space::Record) | Type::Map => {
                self.error(Rule::OperandType, place, format!("{lhs} has no value to compare"));
            }
        }
        if let Operand::Value(value) = rhs {
            match self.ty(*value) {
                Type::Int | Type::Ptr(Space::Kernel | Space::User | Space::Btf) => {}
                Type::Ptr(Space::MapValueOrNull | Space::RecordOrNull) => self.number(*value, place),
                Type::Ptr(Space::Ctx | Space::Stack | Space::MapValue | Space::Record) | Type::Map => {
                    self.error(
                        Rule::OperandType,
                        place,
                        format!("{value} has no value to compare"),
                    );
                }
            }
        }
    }

    fn arguments(&mut self, target: &BlockCall, place: Place) {
        let params = &self.func.blocks[target.block].params;
        if params.len() != target.args.len() {
            let detail = format!(
                "{} takes {} arguments, not {}",
                target.block,
                params.len(),
                target.args.len()
            );
            self.error(Rule::BlockArguments, place, detail);
            return;
        }
        for (param, arg) in params.iter().zip(&target.args) {
            let (param, arg) = (self.ty(*param), self.ty(*arg));
            if param != arg {
                let detail = format!("{} takes {param:?}, not {arg:?}", target.block);
                self.error(Rule::BlockArguments, place, detail);
            }
            match param {
                // A NULL check would not be seen, a map not be known.
                Type::Ptr(Space::MapValueOrNull | Space::RecordOrNull) => {
                    self.error(
                        Rule::OrNull,
                        place,
                        "an address that may be NULL goes to another block's parameter",
                    );
                }
                Type::Map => self.error(Rule::BlockArguments, place, "a map goes to a block's parameter"),
                Type::Int
                | Type::Ptr(
                    Space::Ctx
                    | Space::Stack
                    | Space::MapValue
                    | Space::Record
                    | Space::Kernel
                    | Space::User
                    | Space::Btf,
                ) => {}
            }
        }
    }
}
