//! Reading memory. A BTF-typed pointer is followed by a plain load with a relocation, after a test for addresses that can't be
//! the kernel's; everything else by a probe read, whose failure is the test. Arguments and return values come from the
//! context, by value or by way of the stack.

use super::Reads;
use super::abi::{self, Location};
use super::expr::{Shape, width};
use super::program::{Key, Lower};
use super::walk::{self, Seen};
use crate::ctype::CType;
use crate::ir::build::call;
use crate::ir::{
    BinaryOp, Bits, CmpOp, Helper, InstData, Operand, RelocData, RelocKind, Slot, Space, Type, Value, Width,
};
use crate::span::Span;
use crate::typed::{Base, Expr, Memory, Path, Place};
use crate::types::{self, TypeId};

/// The lowest address that can be the kernel's on x86-64, with five levels of page tables
/// (`Documentation/arch/x86/x86_64/mm.rst`). What lies below is NULL, a user address or poison.
const KERNEL_FROM: i64 = 0xff00_0000_0000_0000_u64 as i64;
/// The first error code seen as an address: `-MAX_ERRNO`, `include/linux/err.h`.
const ERRORS_FROM: i32 = -4095;

impl Lower<'_> {
    /// A scalar argument.
    pub(super) fn arg(&mut self, index: usize, expr: &Expr) -> Value {
        self.at(expr.span, format!("argument {index}"));
        let location = self.arg_locations[index].clone();
        let ty = self.query.probe.func().params[index].ty;
        self.context_value(&location, ty, expr)
    }

    /// A scalar return value.
    pub(super) fn returned(&mut self, expr: &Expr) -> Value {
        self.at(expr.span, "return value");
        let location = self.return_location.clone();
        let ty = self.query.probe.func().ret;
        self.context_value(&location, ty, expr)
    }

    fn context_value(&mut self, location: &Location, declared: TypeId, expr: &Expr) -> Value {
        let raw = match location {
            Location::Words(words) if words.len() == 1 => {
                let ty = self.argument_type(declared);
                if self.kind.typed() && !self.context_readable(declared) {
                    // The verifier refuses a plain load of a pointer that it has no type for (btf_ctx_access,
                    // kernel/bpf/btf.c), but the word is there.
                    let base = self.b.as_ptr(Space::Kernel, self.ctx);
                    let address = self.b.add(base, i32::from(words[0]));
                    let slot = self.scratch();
                    let raw = self.probe_into(slot, 8, address, Memory::Kernel, None);
                    if ty == Type::Int {
                        raw
                    } else {
                        self.b.cast(ty, raw)
                    }
                } else {
                    let raw = self.context_word(ty, words[0]);
                    match ty {
                        // The verifier gives it a type even where it is not followed plainly.
                        Type::Ptr(space @ (Space::Kernel | Space::User))
                            if self.kind.typed()
                                && self
                                    .types
                                    .pointee(declared)
                                    .is_some_and(|to| self.types.composite(to).is_some()) =>
                        {
                            let number = self.b.cast(Type::Int, raw);
                            let number = self.washed(number);
                            self.b.as_ptr(space, number)
                        }
                        Type::Int | Type::Ptr(_) | Type::Map => raw,
                    }
                }
            }
            Location::Stack(offset) => {
                let address = self.stack_word(*offset);
                let slot = self.scratch();
                let raw = self.probe_into(slot, 8, address, Memory::Kernel, None);
                self.as_argument(raw, declared)
            }
            Location::Saved(offset) => {
                let saved = self.saved_at(*offset);
                let raw = self.b.load(Type::Int, Width::B8, saved, 0);
                self.as_argument(raw, declared)
            }
            Location::Result => {
                let raw = self.result_word();
                self.as_argument(raw, declared)
            }
            Location::User(recipes) => {
                let raw = self.by_recipes(recipes, Some(expr.span));
                // What a recipe gives is extended already.
                if self.b.type_of(raw) == Type::Int
                    && let Shape::Int(width, signed) = self.shape(&expr.ty)
                    && recipes.iter().all(|recipe| recipe.fits(width.bytes(), signed))
                {
                    return raw;
                }
                self.as_argument(raw, declared)
            }
            Location::Words(_) | Location::Behind(_) | Location::Unknown => {
                panic!("bug in ksnoop-jit: a value that this kind of program does not have")
            }
        };
        if self.b.type_of(raw) == Type::Int {
            self.extended(raw, &expr.ty)
        } else {
            raw
        }
    }

    /// A register's or stack slot's word as what the argument is declared to be.
    fn as_argument(&mut self, raw: Value, declared: TypeId) -> Value {
        match self.argument_type(declared) {
            Type::Int => raw,
            ty @ (Type::Ptr(_) | Type::Map) => self.b.cast(ty, raw),
        }
    }

    /// The address of something that the entry kept.
    pub(super) fn saved_at(&mut self, offset: u32) -> Value {
        match self.saved {
            Some(saved) => self.b.add(saved, offset as i32),
            None => unreachable!("bug in ksnoop-jit: nothing was kept at entry"),
        }
    }

    pub(super) fn stack_word(&mut self, offset: i16) -> Value {
        let ctx = self.ctx;
        let sp = self.b.load(Type::Int, Width::B8, ctx, abi::SP);
        let sp = self.b.as_ptr(Space::Kernel, sp);
        self.b.add(sp, i32::from(offset))
    }

    /// What the verifier takes an argument of a declared type for.
    fn argument_type(&self, declared: TypeId) -> Type {
        if !matches!(self.types.get_stripped(declared), types::Type::Ptr(_)) {
            return Type::Int;
        }
        if self.kind.in_program() || self.types.has_type_tag(declared, "user") {
            return Type::Ptr(Space::User);
        }
        if self.kind.typed() && self.verifier_follows(declared) {
            Type::Ptr(Space::Btf)
        } else {
            Type::Ptr(Space::Kernel)
        }
    }

    /// Whether the verifier knows what a pointer of that type points to, and lets plain loads through it.
    fn verifier_follows(&self, pointer: TypeId) -> bool {
        let tagged = ["user", "percpu"]
            .iter()
            .any(|tag| self.types.has_type_tag(pointer, tag));
        let Some(to) = self.types.pointee(pointer) else {
            return false;
        };
        // A definition that only another BTF object has is not the verifier's.
        let defined = matches!(
            self.types.get_stripped(to),
            types::Type::Struct(_) | types::Type::Union(_)
        );
        defined && !tagged && self.target.reads == Reads::Auto
    }

    /// Whether the verifier lets a typed program load an argument of that type (`btf_ctx_access`, kernel/bpf/btf.c): numbers, and
    /// pointers to structs and to plain void; to integers since 5.17, to const void since 6.16.
    fn context_readable(&self, declared: TypeId) -> bool {
        let types::Type::Ptr(to) = self.types.get_stripped(declared) else {
            return true;
        };
        match self.types.get_stripped(to) {
            types::Type::Void => to == TypeId::VOID,
            types::Type::Int(_) => self.target.int_pointers,
            types::Type::Struct(_) | types::Type::Union(_) => true,
            types::Type::Float { .. }
            | types::Type::Ptr(_)
            | types::Type::Array { .. }
            | types::Type::Enum(_)
            | types::Type::Fwd { .. }
            | types::Type::Typedef(_)
            | types::Type::Const(_)
            | types::Type::Volatile(_)
            | types::Type::Restrict(_)
            | types::Type::TypeTag { .. }
            | types::Type::Func { .. }
            | types::Type::FuncProto { .. }
            | types::Type::Other => false,
        }
    }

    /// A scalar in memory.
    pub(super) fn load(&mut self, place: &Place) -> Value {
        match &place.base {
            Base::Pointer { pointer, memory } => {
                let base = self.value(pointer);
                let memory = if let Type::Ptr(Space::User) = self.b.type_of(base) {
                    Memory::User
                } else {
                    *memory
                };
                match place.bits {
                    Some(bits) => self.load_bits(place, bits, base, pointer.span, memory),
                    None => self.load_scalar(place, base, pointer.span, memory),
                }
            }
            Base::Arg(_) | Base::Return => {
                let slot = self.by_value(&place.base);
                let base = self.b.slot_addr(slot);
                self.at(place.span, "");
                match place.bits {
                    Some(bits) => {
                        let raw = self.gather(base, bits);
                        self.cut(raw, bits, &place.ty)
                    }
                    None => {
                        let size = self.scalar_size(&place.ty);
                        let raw = self.load_own(base, place.offset as i16, size);
                        self.finish_load(raw, &place.ty)
                    }
                }
            }
        }
    }

    /// A load from the stack, in aligned parts if need be: the verifier refuses any other there. They are zero-extended.
    pub(super) fn load_own(&mut self, base: Value, offset: i16, size: u32) -> Value {
        let mut whole = None;
        let mut done = 0;
        while done < size {
            let at = offset + done as i16;
            let step = [8u32, 4, 2, 1]
                .into_iter()
                .find(|step| *step <= size - done && (at as u32).is_multiple_of(*step))
                .unwrap_or(1);
            let part = self.b.load(Type::Int, width(step), base, at);
            whole = Some(match whole {
                None => part,
                Some(below) => {
                    let part = self.b.binary(BinaryOp::Shl, Bits::W64, part, (done * 8) as i32);
                    self.b.binary(BinaryOp::Or, Bits::W64, below, part)
                }
            });
            done += step;
        }
        match whole {
            Some(value) => value,
            None => self.b.iconst(0),
        }
    }

    fn load_scalar(&mut self, place: &Place, base: Value, step: Span, memory: Memory) -> Value {
        let size = self.scalar_size(&place.ty);
        if let Some((path, seen)) = self.plainly(place, base, place.offset, size) {
            self.good(base, step);
            let reloc = self.offset_reloc(path, place.offset);
            self.at(place.span, path.text.clone());
            let ty = if self.stays_typed(path, &place.ty, seen) {
                Type::Ptr(Space::Btf)
            } else {
                Type::Int
            };
            let raw = self.b.load_field(ty, width(size), base, reloc);
            return if ty == Type::Int {
                let raw = match seen {
                    Seen::Pointer(_) | Seen::Address => self.washed(raw),
                    Seen::Number | Seen::Refused => raw,
                };
                self.finish_load(raw, &place.ty)
            } else {
                raw
            };
        }
        if let (Some(path), Some(image)) = (&place.path, self.in_window(base, memory, place.offset, size)) {
            let reloc = self.offset_reloc(path, place.offset);
            self.at(place.span, path.text.clone());
            let raw = self.b.load_field(Type::Int, width(size), image, reloc);
            return self.finish_load(raw, &place.ty);
        }
        let address = self.place_address(place, base, memory);
        self.at(
            place.span,
            place
                .path
                .as_ref()
                .map_or(String::new(), |path| path.text.clone()),
        );
        let slot = self.scratch();
        let raw = self.probe_into(slot, size, address, memory, Some((step, base)));
        self.finish_load(raw, &place.ty)
    }

    /// Whether the verifier takes what is loaded for a pointer to what it is declared to point to: behind a flexible array's start it
    /// may find another member than is meant.
    fn stays_typed(&self, path: &Path, declared: &CType, seen: Seen) -> bool {
        let (Seen::Pointer(to), CType::Btf(id)) = (seen, declared) else {
            return false;
        };
        let meant = self.types.pointee(*id).map(|to| self.types.complete(to));
        !path.through_union && meant == Some(to) && self.verifier_follows(*id)
    }

    /// The path of a place that a plain load may read, and what the verifier takes the value for.
    pub(super) fn plainly<'p>(
        &self,
        place: &'p Place,
        base: Value,
        offset: u64,
        size: u32,
    ) -> Option<(&'p Path, Seen)> {
        let path = place.path.as_ref()?;
        if self.b.type_of(base) != Type::Ptr(Space::Btf) {
            return None;
        }
        match walk::plain_load(self.types, path.root, offset, u64::from(size)) {
            Seen::Refused => None,
            seen @ (Seen::Number | Seen::Pointer(_) | Seen::Address) => Some((path, seen)),
        }
    }

    /// A typed pointer as a number that the verifier knows nothing of. It allows only additions on typed pointers, and none at
    /// all on one that may be NULL (`adjust_ptr_min_max_vals`, kernel/bpf/verifier.c); a negation gives a number whatever it is
    /// of, so two give the same bits.
    pub(super) fn washed(&mut self, number: Value) -> Value {
        let negated = self.b.neg(Bits::W64, number);
        self.b.neg(Bits::W64, negated)
    }

    /// An address as a value of its own, which anything may be done with: a typed pointer loses its type, good or not.
    pub(super) fn freed(&mut self, pointer: Value, space: Space) -> Value {
        match self.b.type_of(pointer) {
            ty if ty == Type::Ptr(space) => pointer,
            Type::Ptr(Space::Btf) => {
                let number = self.b.cast(Type::Int, pointer);
                let number = self.washed(number);
                self.b.as_ptr(space, number)
            }
            Type::Int | Type::Ptr(_) | Type::Map => self.b.as_ptr(space, pointer),
        }
    }

    /// An address to read from, a constant further on: typed pointers that have not been found good lose their type. What comes
    /// of it may go to a probe read, but nothing may be computed with it.
    pub(super) fn loose(&mut self, base: Value, space: Space) -> Value {
        match self.b.type_of(base) {
            ty if ty == Type::Ptr(space) => base,
            Type::Ptr(Space::Btf) if self.find(&Key::Good(base)).is_none() => {
                let number = self.b.cast(Type::Int, base);
                let number = self.washed(number);
                self.b.as_ptr(space, number)
            }
            Type::Int | Type::Ptr(_) | Type::Map => self.b.as_ptr(space, base),
        }
    }

    /// 64 bits that are extended already, as a value of its type.
    pub(super) fn finished(&mut self, raw: Value, ty: &CType) -> Value {
        match self.shape(ty) {
            Shape::Ptr => {
                let user = matches!(ty, CType::Btf(id) if self.types.has_type_tag(*id, "user"));
                self.b.as_ptr(if user { Space::User } else { Space::Kernel }, raw)
            }
            Shape::Int(..) | Shape::Bool => raw,
        }
    }

    /// What was read, as a value of its type.
    fn finish_load(&mut self, raw: Value, ty: &CType) -> Value {
        match self.shape(ty) {
            Shape::Ptr => self.finished(raw, ty),
            // Loads zero-extend.
            Shape::Int(Width::B8, _) | Shape::Int(_, false) | Shape::Bool => raw,
            Shape::Int(from, true) => self.b.extend(from, true, raw),
        }
    }

    pub(super) fn scalar_size(&self, ty: &CType) -> u32 {
        match self.shape(ty) {
            Shape::Ptr => 8,
            Shape::Bool => 1,
            Shape::Int(Width::B1, _) => 1,
            Shape::Int(Width::B2, _) => 2,
            Shape::Int(Width::B4, _) => 4,
            Shape::Int(Width::B8, _) => 8,
        }
    }

    /// The address of a place.
    pub(super) fn address(&mut self, place: &Place) -> Value {
        let Base::Pointer { pointer, memory } = &place.base else {
            unreachable!("bug in ksnoop-jit: the address of something in registers");
        };
        let base = self.value(pointer);
        self.at(place.span, "");
        let base = match self.b.type_of(base) {
            Type::Ptr(Space::Btf) => self.freed(base, Space::Kernel),
            Type::Int | Type::Ptr(_) | Type::Map => base,
        };
        self.place_address(place, base, *memory)
    }

    /// The address of a place whose base is known.
    pub(super) fn place_address(&mut self, place: &Place, base: Value, memory: Memory) -> Value {
        let space = if let Type::Ptr(Space::User) = self.b.type_of(base) {
            Space::User
        } else {
            self.space_of(memory)
        };
        match &place.path {
            Some(path) if path.access != [0] => {
                self.at(place.span, path.text.clone());
                let reloc = self.offset_reloc(path, place.offset);
                let base = self.loose(base, space);
                self.b.field_addr(base, reloc)
            }
            Some(_) | None => {
                if place.offset == 0 && self.b.type_of(base) != Type::Ptr(space) {
                    return self.b.as_ptr(space, base);
                }
                let base = self.loose(base, space);
                match place.offset {
                    0 => base,
                    offset => self.b.add(base, offset as i32),
                }
            }
        }
    }

    pub(super) fn offset_reloc(&mut self, path: &Path, offset: u64) -> crate::ir::Reloc {
        self.b.reloc(RelocData {
            kind: RelocKind::FieldByteOffset,
            root: path.root,
            access: path.access.clone(),
            text: path.text.clone(),
            kernel: offset,
        })
    }

    /// Tests a typed pointer before a plain load through it: the load itself would give 0 for a bad address.
    pub(super) fn good(&mut self, pointer: Value, step: Span) {
        let key = Key::Good(pointer);
        if self.find(&key).is_some() {
            return;
        }
        self.at(step, "a kernel address?");
        // An argument may be of the verifier's "or NULL" kind, with which nothing but this comparison is allowed.
        let (not_null, bad) = self.fault_blocks(step, pointer);
        self.b
            .branch_with(CmpOp::Eq, Bits::W64, pointer, 0, bad, call(not_null, &[]));
        self.b.switch_to(not_null);
        let (high, bad) = self.fault_blocks(step, pointer);
        let from = self.b.iconst(KERNEL_FROM);
        self.b
            .branch_with(CmpOp::Ult, Bits::W64, pointer, from, bad, call(high, &[]));
        self.b.switch_to(high);
        let (fine, bad) = self.fault_blocks(step, pointer);
        self.b.branch_with(
            CmpOp::Uge,
            Bits::W64,
            pointer,
            Operand::Imm(ERRORS_FROM),
            bad,
            call(fine, &[]),
        );
        self.b.switch_to(fine);
        self.learn(key, pointer);
    }

    /// Reads up to 8 bytes and gives them zero-extended. A failure is the fault of that step; without one it can't fail.
    pub(super) fn probe_into(
        &mut self,
        slot: Slot,
        size: u32,
        address: Value,
        memory: Memory,
        step: Option<(Span, Value)>,
    ) -> Value {
        let to = self.b.slot_addr(slot);
        let status = self.probe(to, size, address, memory);
        if let Some((step, base)) = step {
            let (good, bad) = self.fault_blocks(step, base);
            self.b
                .branch_with(CmpOp::Ne, Bits::W64, status, 0, bad, call(good, &[]));
            self.b.switch_to(good);
        }
        let to = self.b.slot_addr(slot);
        self.b.load(Type::Int, width(size), to, 0)
    }

    /// A probe read of any size; its status.
    pub(super) fn probe(&mut self, to: Value, size: u32, address: Value, memory: Memory) -> Value {
        let (helper, space) = match (memory, self.b.type_of(address)) {
            (Memory::User, _) | (_, Type::Ptr(Space::User)) => (Helper::ProbeReadUser, Space::User),
            (Memory::Kernel | Memory::Unknown, _) => (Helper::ProbeReadKernel, Space::Kernel),
        };
        let from = match self.b.type_of(address) {
            Type::Ptr(Space::Btf) if space == Space::Kernel => address,
            ty if ty == Type::Ptr(space) => address,
            Type::Int | Type::Ptr(_) | Type::Map => self.b.as_ptr(space, address),
        };
        self.call(helper, &[to.into(), Operand::Imm(size as i32), from.into()])
    }

    /// The stack slot with a struct that was passed or returned by value.
    pub(super) fn by_value(&mut self, base: &Base) -> Slot {
        let (location, ty) = match base {
            Base::Arg(index) => (
                self.arg_locations[*index].clone(),
                self.query.probe.func().params[*index].ty,
            ),
            Base::Return => (self.return_location.clone(), self.query.probe.func().ret),
            Base::Pointer { .. } => unreachable!("bug in ksnoop-jit: a pointer is not by value"),
        };
        let key = Key::ByValue(base.clone());
        if let Some(address) = self.find(&key)
            && let Some(slot) = self.slot_behind(address)
        {
            return slot;
        }
        let size = self.types.size_of(ty).unwrap_or(0) as u32;
        self.b.note("a struct by value");
        // A word more than it takes, so that reading a nine-byte bitfield stays inside.
        let slot = self.b.slot(size.next_multiple_of(8).max(8));
        let address = self.b.slot_addr(slot);
        match location {
            Location::Words(words) => {
                for (index, word) in words.iter().enumerate() {
                    let value = self.context_word(Type::Int, *word);
                    self.b.store(Width::B8, address, index as i16 * 8, value);
                }
                if words.is_empty() {
                    self.b.store(Width::B8, address, 0, 0);
                }
            }
            Location::Stack(offset) => {
                let from = self.stack_word(offset);
                self.probe(address, size.next_multiple_of(8), from, Memory::Kernel);
            }
            Location::Behind(word) => {
                let from = self.context_word(Type::Int, word);
                let from = self.b.as_ptr(Space::Kernel, from);
                self.probe(address, size, from, Memory::Kernel);
            }
            Location::Saved(offset) => {
                let from = self.saved_at(offset);
                self.copy_small(from, 0, address, 0, size.next_multiple_of(8));
            }
            Location::Result => {
                let value = self.result_word();
                self.b.store(Width::B8, address, 0, value);
            }
            Location::User(_) | Location::Unknown => {
                panic!("bug in ksnoop-jit: a struct that this kind of program does not have")
            }
        }
        self.learn(key, address);
        slot
    }

    fn slot_behind(&self, address: Value) -> Option<Slot> {
        let func = self.b.func();
        func.insts.iter().find_map(|(inst, data)| {
            if let InstData::SlotAddr(slot) = data
                && func.results[inst] == Some(address)
            {
                Some(*slot)
            } else {
                None
            }
        })
    }
}
