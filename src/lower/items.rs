//! Shown values, written straight into the record. Items that read through the same pointer are grouped under it, so that it is
//! read and tested once; if it is bad, the fault goes to all of them.

use super::expr::Shape;
use super::program::{Handler, Key, Lower};
use super::text::Read;
use crate::ir::build::call;
use crate::ir::{BinaryOp, Bits, CmpOp, Helper, Operand, Type, Value, Width};
use crate::span::Span;
use crate::typed::{Base, Expr, Item, Memory, Source};
use crate::wire::{self, ItemLayout, ValueLayout};

/// A string or bytes of a stated length.
pub(super) struct Sized {
    /// Which of both.
    pub(super) what: Read,
    /// Where they are.
    pub(super) pointer: Value,
    /// How many bytes are read.
    pub(super) size: Operand,
    /// How many were asked for.
    pub(super) full: Operand,
}

impl Lower<'_> {
    /// Writes these items.
    pub(super) fn items(&mut self, items: &[Item], layouts: &[ItemLayout], which: &[usize]) {
        self.group(items, layouts, which);
    }

    fn group(&mut self, items: &[Item], layouts: &[ItemLayout], members: &[usize]) {
        let mut left: Vec<usize> = members.to_vec();
        while let Some(first) = left.first().copied() {
            match self.shared(items, &left) {
                Some((pointer, sharers)) => {
                    left.retain(|index| !sharers.contains(index));
                    let known = self.known.len();
                    self.guarded(layouts, &sharers, |this| {
                        let value = this.value(&pointer);
                        if this.b.type_of(value) == Type::Ptr(crate::ir::Space::Btf) {
                            this.good(value, pointer.span);
                        }
                        this.learn(Key::Visited(pointer.clone()), value);
                        let all: Vec<&Item> = sharers.iter().map(|index| &items[*index]).collect();
                        let before = this.read_together(&all, &pointer, value);
                        this.group_inside(items, layouts, &sharers);
                        this.forget_windows(before);
                    });
                    self.known.truncate(known);
                }
                None => {
                    left.remove(0);
                    let known = self.known.len();
                    self.guarded(layouts, &[first], |this| {
                        let before = this.windows.len();
                        this.own_neighbours(&items[first]);
                        this.write(&items[first], &layouts[first]);
                        this.forget_windows(before);
                    });
                    self.known.truncate(known);
                }
            }
        }
    }

    /// Members of one struct that a single value is computed from.
    fn own_neighbours(&mut self, item: &Item) {
        let all = pointers(item);
        for (at, pointer) in all.iter().enumerate() {
            let again = all[at + 1..].contains(pointer);
            if again && !all[..at].contains(pointer) && self.find(&Key::Visited((*pointer).clone())).is_none()
            {
                let value = self.value(pointer);
                self.read_together(&[item], pointer, value);
            }
        }
    }

    /// The members of a group, when their common pointer has been found good: each on its own again.
    fn group_inside(&mut self, items: &[Item], layouts: &[ItemLayout], members: &[usize]) {
        // The group's handler is for the pointer only. What follows has handlers of its own.
        self.group(items, layouts, members);
    }

    /// The first pointer of the first item that another item needs too and that is not known yet.
    fn shared(&self, items: &[Item], left: &[usize]) -> Option<(Expr, Vec<usize>)> {
        let first = *left.first()?;
        for pointer in pointers(&items[first]) {
            if self.find(&Key::Visited(pointer.clone())).is_some() {
                continue;
            }
            let sharers: Vec<usize> = left
                .iter()
                .copied()
                .filter(|index| pointers(&items[*index]).contains(&pointer))
                .collect();
            if sharers.len() > 1 {
                return Some((pointer.clone(), sharers));
            }
        }
        None
    }

    /// Does something whose faults are those of all these items.
    fn guarded(&mut self, layouts: &[ItemLayout], members: &[usize], body: impl FnOnce(&mut Self)) {
        let (fault, params) = self.b.block_with("a fault", &[Type::Int, Type::Int]);
        let after = self.b.block("");
        self.handlers.push(Handler::Step(fault));
        body(self);
        self.handlers.pop();
        self.b.jump(after, &[]);
        self.b.switch_to(fault);
        let record = self.the_record();
        for member in members {
            let layout = &layouts[*member];
            self.at(layout.span, "fault");
            let (base, at) = self.spot(record, layout.offset);
            self.b.store(Width::B4, base, at + wire::FAULT as i16, params[0]);
            self.b.store(Width::B8, base, at + wire::VALUE as i16, params[1]);
        }
        self.b.jump(after, &[]);
        self.b.switch_to(after);
    }

    /// Where an item begins, as a base and a distance: stores reach 32 KiB from their base only.
    fn spot(&mut self, record: Value, offset: u32) -> (Value, i16) {
        match i16::try_from(offset) {
            Ok(near) if near < i16::MAX - 64 => (record, near),
            Ok(_) | Err(_) => (self.b.add(record, offset as i32), 0),
        }
    }

    fn the_record(&self) -> Value {
        match self.record {
            Some(record) => record,
            None => unreachable!("bug in ksnoop-jit: a value is shown before there is a record"),
        }
    }

    /// One value, in its place.
    fn write(&mut self, item: &Item, layout: &ItemLayout) {
        let record = self.the_record();
        let (record, here) = self.spot(record, layout.offset);
        let (fault, length) = (here + wire::FAULT as i16, here + wire::LENGTH as i16);
        let place = here + wire::VALUE as i16;
        match (&item.source, &item.value) {
            (Source::Comm, _) => {
                self.at(item.span, "comm");
                let to = self.b.add(record, i32::from(place));
                self.call(Helper::GetCurrentComm, &[to.into(), Operand::Imm(16)]);
                self.b.store(Width::B4, record, length, 16);
            }
            (Source::Value(expr), ValueLayout::Scalar) => {
                let value = self.value(expr);
                self.at(item.span, format!("show {}", item.label));
                self.b.store(Width::B8, record, place, value);
            }
            (Source::Value(expr), ValueLayout::Pointee { copied, .. }) => {
                let pointer = self.value(expr);
                self.at(item.span, format!("show {}", item.label));
                self.b.store(Width::B8, record, place, pointer);
                let to = self.b.add(record, i32::from(place) + 8);
                let memory = self.memory(expr);
                self.at(item.span, format!("copy *{}", item.label));
                let status = self.probe(to, *copied, pointer, memory);
                // 0 or a negative error code, which is just what the fault word wants.
                self.b.store(Width::B4, record, fault, status);
                return;
            }
            (Source::Value(expr), ValueLayout::String { capacity }) => {
                let pointer = self.value(expr);
                let to = self.b.add(record, i32::from(place));
                let memory = self.memory(expr);
                self.at(item.span, format!("copy the string {}", item.label));
                let size = Operand::Imm(*capacity as i32);
                let count = self.read(Read::String, to, size, pointer, memory);
                self.copied(count, pointer, record, here, None);
                return;
            }
            (
                Source::Sized {
                    pointer,
                    memory,
                    length: bytes,
                },
                ValueLayout::String { .. } | ValueLayout::Buffer { .. },
            ) => {
                let note = format!("copy {}", item.label);
                let (read, to) = self.sized((pointer, bytes), &item.value, (item.span, note), |lower| {
                    lower.b.add(record, i32::from(place))
                });
                let status = self.read(read.what, to, read.size, read.pointer, *memory);
                let full = match read.what {
                    Read::Bytes => Some(read.full),
                    Read::String => self.cut_length(status, read.size),
                };
                self.copied(status, read.pointer, record, here, full);
                return;
            }
            (Source::Stack { user }, ValueLayout::Stack { depth, .. }) => {
                self.at(item.span, item.label.clone());
                let to = self.b.add(record, i32::from(place));
                let bytes = self.stack(to, *depth, *user);
                self.b.store(Width::B4, record, length, bytes);
            }
            (Source::Literal(text), _) => {
                self.at(item.span, format!("show {}", item.label));
                self.write_bytes(record, place, text);
                self.b.store(Width::B4, record, length, text.len() as i32);
            }
            (Source::Name, _) => {
                self.at(item.span, format!("show {}", item.label));
                let which = self.number_of_name();
                self.b.store(Width::B8, record, place, which);
            }
            // An array of letters that is a key, kept from the entry to the return.
            (Source::Memory(from), ValueLayout::String { capacity }) => {
                let (base, address, memory) = match &from.base {
                    Base::Pointer { pointer, memory } => {
                        let base = self.value(pointer);
                        (base, self.place_address(from, base, *memory), *memory)
                    }
                    Base::Arg(_) | Base::Return => {
                        let slot = self.by_value(&from.base);
                        let slot = self.b.slot_addr(slot);
                        let address = self.b.add(slot, from.offset as i32);
                        (address, address, Memory::Kernel)
                    }
                };
                let to = self.b.add(record, i32::from(place));
                self.at(item.span, format!("copy the string {}", item.label));
                let size = Operand::Imm(*capacity as i32);
                let count = self.read(Read::String, to, size, address, memory);
                self.copied(count, base, record, here, None);
                return;
            }
            (Source::Memory(from), ValueLayout::Bytes { copied, .. }) => match &from.base {
                Base::Pointer { pointer, memory } => {
                    let base = self.value(pointer);
                    let address = self.place_address(from, base, *memory);
                    let to = self.b.add(record, i32::from(place));
                    self.at(item.span, format!("copy {}", item.label));
                    let status = self.probe(to, *copied, address, *memory);
                    self.check(status, pointer, base);
                }
                Base::Arg(_) | Base::Return => {
                    let slot = self.by_value(&from.base);
                    let slot = self.b.slot_addr(slot);
                    self.at(item.span, format!("copy {}", item.label));
                    self.copy_small(slot, from.offset as i16, record, place, *copied);
                }
            },
            (
                Source::Value(_),
                ValueLayout::Bytes { .. }
                | ValueLayout::Buffer { .. }
                | ValueLayout::Name
                | ValueLayout::Stack { .. },
            )
            | (
                Source::Stack { .. },
                ValueLayout::Scalar
                | ValueLayout::Pointee { .. }
                | ValueLayout::Bytes { .. }
                | ValueLayout::String { .. }
                | ValueLayout::Name
                | ValueLayout::Buffer { .. },
            )
            | (
                Source::Sized { .. },
                ValueLayout::Scalar
                | ValueLayout::Pointee { .. }
                | ValueLayout::Bytes { .. }
                | ValueLayout::Name
                | ValueLayout::Stack { .. },
            )
            | (
                Source::Memory(_),
                ValueLayout::Scalar
                | ValueLayout::Pointee { .. }
                | ValueLayout::Stack { .. }
                | ValueLayout::Name
                | ValueLayout::Buffer { .. },
            ) => unreachable!("bug in ksnoop-jit: a layout that does not fit its source"),
        }
        self.b.store(Width::B4, record, fault, 0);
    }

    /// The end of a copy: its length, or the fault of the pointer. A `full` length is that of bytes, which may be more than were
    /// copied; without one, the status of the copy is the length of a string with its NUL.
    fn copied(&mut self, status: Value, pointer: Value, record: Value, here: i16, full: Option<Operand>) {
        let (fault, length) = (here + wire::FAULT as i16, here + wire::LENGTH as i16);
        let good = self.b.block("");
        let bad = self.b.block("nothing to read there");
        let done = self.b.block("");
        self.b.branch(CmpOp::Slt, Bits::W64, status, 0, bad, good);
        self.b.switch_to(bad);
        self.b.store(Width::B4, record, fault, status);
        let number = self.as_int(pointer);
        self.b.store(Width::B8, record, here + wire::VALUE as i16, number);
        self.b.jump(done, &[]);
        self.b.switch_to(good);
        let count = match full {
            Some(full) => full,
            None => self.b.add(status, -1).into(),
        };
        self.b.store(Width::B4, record, length, count);
        self.b.store(Width::B4, record, fault, 0);
        self.b.jump(done, &[]);
        self.b.switch_to(done);
    }

    /// The length of a string for which there was room of a size that was worked out, its NUL counted in both: with
    /// [`wire::CUT`] if it filled all of it. `None` for a constant size, of which the display knows.
    pub(super) fn cut_length(&mut self, count: Value, size: Operand) -> Option<Operand> {
        let Operand::Value(size) = size else {
            return None;
        };
        self.b.note("whether it ends there");
        // 0 where nothing is left, else positive: less 1, only the first has the top bit.
        let left = self.b.binary(BinaryOp::Sub, Bits::W64, size, count);
        let full = self.b.add(left, -1);
        let full = self.b.binary(BinaryOp::Lshr, Bits::W64, full, 63);
        let mark = self.b.binary(
            BinaryOp::Shl,
            Bits::W64,
            full,
            i32::try_from(wire::CUT.trailing_zeros()).unwrap_or(31),
        );
        let length = self.b.add(count, -1);
        Some(self.b.binary(BinaryOp::Or, Bits::W64, length, mark).into())
    }

    /// What it takes to read a string or bytes of a stated length: their pointer, how many bytes are read, and how many were asked for. `to`
    /// is where they go, asked when the rest is known.
    pub(super) fn sized(
        &mut self,
        (pointer, length): (&Expr, &Expr),
        value: &ValueLayout,
        (span, note): (Span, String),
        to: impl FnOnce(&mut Self) -> Value,
    ) -> (Sized, Value) {
        let pointer = self.value(pointer);
        let (what, most) = match *value {
            ValueLayout::String { capacity } => (Read::String, capacity - 1),
            ValueLayout::Buffer { capacity } => (Read::Bytes, capacity),
            ValueLayout::Scalar
            | ValueLayout::Pointee { .. }
            | ValueLayout::Bytes { .. }
            | ValueLayout::Name
            | ValueLayout::Stack { .. } => {
                unreachable!("bug in ksnoop-jit: neither a string nor a buffer")
            }
        };
        let (size, full) = self.bounded(length, most);
        self.at(span, note);
        // A string has a NUL behind its characters.
        let size = match (what, size) {
            (Read::Bytes, size) => size,
            (Read::String, Operand::Imm(size)) => Operand::Imm(size + 1),
            (Read::String, Operand::Value(size)) => self.b.add(size, 1).into(),
        };
        let to = to(self);
        let sized = Sized {
            what,
            pointer,
            size,
            full,
        };
        (sized, to)
    }

    /// A length as the verifier accepts it, at most `most`, and as it was asked for. A negative one is a fault.
    fn bounded(&mut self, length: &Expr, most: u32) -> (Operand, Operand) {
        let limit = i32::try_from(most).unwrap_or(i32::MAX);
        if let Some(bytes) = length.constant() {
            let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
            return (Operand::Imm(bytes.min(limit)), Operand::Imm(bytes));
        }
        let wanted = self.number(length);
        self.at(length.span, "how many bytes");
        if matches!(self.shape(&length.ty), Shape::Int(_, true)) {
            let (good, bad) = self.fault_named(length.span, " is negative", wanted);
            self.b
                .branch_with(CmpOp::Slt, Bits::W64, wanted, 0, bad, call(good, &[]));
            self.b.switch_to(good);
        }
        let (join, params) = self.b.block_with("", &[Type::Int, Type::Int]);
        let all = self.b.block("all of them");
        let many = self.b.block("as many as there is room for");
        let huge = self.b.block("");
        let large = self.b.block("");
        self.b.branch(CmpOp::Ugt, Bits::W64, wanted, limit, many, all);
        self.b.switch_to(all);
        self.b.jump(join, &[wanted, wanted]);
        // The record tells the length in 32 bits.
        self.b.switch_to(many);
        let room = self.b.iconst(i64::from(limit));
        self.b
            .branch(CmpOp::Ugt, Bits::W64, wanted, i32::MAX, huge, large);
        self.b.switch_to(large);
        self.b.jump(join, &[room, wanted]);
        self.b.switch_to(huge);
        let most = self.b.iconst(i64::from(i32::MAX));
        self.b.jump(join, &[room, most]);
        self.b.switch_to(join);
        (params[0].into(), params[1].into())
    }

    /// Stores bytes that are known.
    pub(super) fn write_bytes(&mut self, to: Value, at: i16, bytes: &[u8]) {
        for (number, word) in bytes.chunks(8).enumerate() {
            let mut padded = [0u8; 8];
            padded[..word.len()].copy_from_slice(word);
            let word = self.b.iconst(i64::from_le_bytes(padded));
            self.b.store(Width::B8, to, at + 8 * number as i16, word);
        }
    }

    fn check(&mut self, status: Value, step: &Expr, offender: Value) {
        let (good, bad) = self.fault_blocks(step.span, offender);
        self.b
            .branch_with(CmpOp::Ne, Bits::W64, status, 0, bad, call(good, &[]));
        self.b.switch_to(good);
    }

    /// Copies memory of ours with loads and stores, wide ones first.
    pub(super) fn copy_small(&mut self, from: Value, from_at: i16, to: Value, to_at: i16, size: u32) {
        let mut done = 0i16;
        while (done as u32) < size {
            let left = size - done as u32;
            let step = [8u32, 4, 2, 1]
                .into_iter()
                .find(|step| *step <= left && ((from_at + done) as u32).is_multiple_of(*step))
                .unwrap_or(1);
            let width = super::expr::width(step);
            let word = self.b.load(Type::Int, width, from, from_at + done);
            self.b.store(width, to, to_at + done, word);
            done += step as i16;
        }
    }

    /// Which memory a shown pointer points into.
    pub(super) fn memory(&self, expr: &Expr) -> Memory {
        let tagged = if let crate::ctype::CType::Btf(id) = &expr.ty {
            self.types.has_type_tag(*id, "user")
        } else {
            false
        };
        if tagged { Memory::User } else { Memory::Unknown }
    }
}

/// The pointers that an item follows, from the argument on.
fn pointers(item: &Item) -> Vec<&Expr> {
    let mut out = Vec::new();
    match &item.source {
        Source::Value(expr) => Lower::chain(expr, &mut out),
        Source::Memory(place) => {
            if let Base::Pointer { pointer, .. } = &place.base {
                Lower::chain(pointer, &mut out);
                out.push(pointer);
            }
        }
        Source::Sized { pointer, length, .. } => {
            Lower::chain(pointer, &mut out);
            Lower::chain(length, &mut out);
        }
        Source::Comm | Source::Literal(_) | Source::Name | Source::Stack { .. } => {}
    }
    out
}
