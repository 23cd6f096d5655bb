//! The key under which an aggregation counts an event, made on the stack or in memory that belongs to the call. In: keys as items of the
//! event, read now or kept since the entry. Out: instructions that write them where the layout says. A key that can't be read goes to the
//! fault's handler, and never stands for another one.

use super::program::Lower;
use super::text::Read;
use crate::ctype::CType;
use crate::ir::{Bits, CmpOp, Helper, Operand, Slot, Space, Type, Value, Width};
use crate::typed::{self, Item, Source};
use crate::wire::{self, ItemLayout, ValueLayout};

/// Where a part of the key is: an address and a distance from it.
struct Spot {
    base: Value,
    at: i16,
}

/// Where a key is made.
#[derive(Clone, Copy)]
pub(super) enum Room {
    /// On the stack.
    Stack(Slot),
    /// In memory that belongs to the call.
    Own(Value),
}

impl Lower<'_> {
    /// The key's address. The stack's is made anew wherever it is used, which takes no register in between.
    pub(super) fn room(&mut self, room: Room) -> Value {
        match room {
            Room::Stack(slot) => self.b.slot_addr(slot),
            Room::Own(place) => place,
        }
    }

    /// Where a part of the key is.
    fn spot_in(&mut self, room: Room, layout: &ItemLayout) -> Spot {
        Spot {
            base: self.room(room),
            at: layout.offset as i16,
        }
    }

    /// Writes one part of the key.
    pub(super) fn key_part(&mut self, item: &Item, layout: &ItemLayout, room: Room) {
        let value_at = wire::VALUE as i16;
        match (&item.source, &item.value) {
            (Source::Comm, _) => {
                self.at(item.span, "comm");
                let spot = self.spot_in(room, layout);
                let to = self.b.add(spot.base, i32::from(spot.at + value_at));
                self.call(Helper::GetCurrentComm, &[to.into(), Operand::Imm(16)]);
                let spot = self.spot_in(room, layout);
                self.b
                    .store(Width::B4, spot.base, spot.at + wire::LENGTH as i16, 16);
            }
            (Source::Value(expr), ValueLayout::Scalar) => {
                let value = self.number(expr);
                self.at(item.span, format!("key {}", item.label));
                let spot = self.spot_in(room, layout);
                self.b.store(Width::B8, spot.base, spot.at + value_at, value);
            }
            (Source::Value(expr), ValueLayout::String { capacity }) => {
                let pointer = self.value(expr);
                let memory = self.memory(expr);
                self.at(item.span, format!("key {}", item.label));
                let spot = self.spot_in(room, layout);
                let to = self.b.add(spot.base, i32::from(spot.at + value_at));
                let count = self.read(Read::String, to, Operand::Imm(*capacity as i32), pointer, memory);
                self.check_failed(CmpOp::Slt, count, item.span, pointer);
                self.text_length(count, room, layout);
            }
            (Source::Memory(place), ValueLayout::String { capacity }) => match &place.base {
                typed::Base::Pointer { pointer, memory } => {
                    let base = self.value(pointer);
                    let address = self.place_address(place, base, *memory);
                    self.at(item.span, format!("key {}", item.label));
                    let spot = self.spot_in(room, layout);
                    let to = self.b.add(spot.base, i32::from(spot.at + value_at));
                    let count = self.read(Read::String, to, Operand::Imm(*capacity as i32), address, *memory);
                    self.check_failed(CmpOp::Slt, count, pointer.span, base);
                    self.text_length(count, room, layout);
                }
                typed::Base::Arg(_) | typed::Base::Return => {
                    let full = if let CType::Btf(id) = &place.ty {
                        self.types.size_of(*id).unwrap_or(0) as u32
                    } else {
                        0
                    };
                    self.own_bytes(item, place, full.min(*capacity), room, layout);
                }
            },
            (
                Source::Sized {
                    pointer,
                    memory,
                    length,
                },
                ValueLayout::String { .. } | ValueLayout::Buffer { .. },
            ) => {
                let note = format!("key {}", item.label);
                let (read, to) = self.sized((pointer, length), &item.value, (item.span, note), |lower| {
                    let spot = lower.spot_in(room, layout);
                    lower.b.add(spot.base, i32::from(spot.at + value_at))
                });
                let status = self.read(read.what, to, read.size, read.pointer, *memory);
                self.check_failed(CmpOp::Slt, status, pointer.span, read.pointer);
                match read.what {
                    Read::String => match self.cut_length(status, read.size) {
                        None => self.text_length(status, room, layout),
                        Some(length) => {
                            let spot = self.spot_in(room, layout);
                            self.b
                                .store(Width::B4, spot.base, spot.at + wire::LENGTH as i16, length);
                        }
                    },
                    Read::Bytes => {
                        let spot = self.spot_in(room, layout);
                        self.b
                            .store(Width::B4, spot.base, spot.at + wire::LENGTH as i16, read.full);
                    }
                }
            }
            (Source::Stack { user }, ValueLayout::Stack { depth, .. }) => {
                self.at(item.span, format!("key {}", item.label));
                let spot = self.spot_in(room, layout);
                let to = self.b.add(spot.base, i32::from(spot.at + value_at));
                let bytes = self.stack(to, *depth, *user);
                let spot = self.spot_in(room, layout);
                self.b
                    .store(Width::B4, spot.base, spot.at + wire::LENGTH as i16, bytes);
            }
            (Source::Literal(text), _) => {
                self.at(item.span, format!("key {}", item.label));
                let spot = self.spot_in(room, layout);
                self.write_bytes(spot.base, spot.at + value_at, text);
                self.b.store(
                    Width::B4,
                    spot.base,
                    spot.at + wire::LENGTH as i16,
                    text.len() as i32,
                );
            }
            (Source::Name, _) => {
                self.at(item.span, format!("key {}", item.label));
                let which = self.number_of_name();
                let spot = self.spot_in(room, layout);
                self.b.store(Width::B8, spot.base, spot.at + value_at, which);
            }
            (Source::Memory(place), ValueLayout::Bytes { copied, .. }) => match &place.base {
                typed::Base::Pointer { pointer, memory } => {
                    let base = self.value(pointer);
                    let address = self.place_address(place, base, *memory);
                    self.at(item.span, format!("key {}", item.label));
                    let spot = self.spot_in(room, layout);
                    let to = self.b.add(spot.base, i32::from(spot.at + value_at));
                    let status = self.probe(to, *copied, address, *memory);
                    self.check_failed(CmpOp::Ne, status, pointer.span, base);
                }
                typed::Base::Arg(_) | typed::Base::Return => {
                    self.own_bytes(item, place, *copied, room, layout);
                }
            },
            (
                Source::Value(_),
                ValueLayout::Pointee { .. }
                | ValueLayout::Bytes { .. }
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
                Source::Memory(_),
                ValueLayout::Scalar
                | ValueLayout::Pointee { .. }
                | ValueLayout::Buffer { .. }
                | ValueLayout::Name
                | ValueLayout::Stack { .. },
            )
            | (
                Source::Sized { .. },
                ValueLayout::Scalar
                | ValueLayout::Pointee { .. }
                | ValueLayout::Bytes { .. }
                | ValueLayout::Name
                | ValueLayout::Stack { .. },
            ) => {
                unreachable!("bug in ksnoop-jit: a layout that does not fit a key")
            }
        }
    }

    /// The length of a string of which so many bytes, its NUL counted, were read.
    fn text_length(&mut self, count: Value, room: Room, layout: &ItemLayout) {
        let length = self.b.add(count, -1);
        let spot = self.spot_in(room, layout);
        self.b
            .store(Width::B4, spot.base, spot.at + wire::LENGTH as i16, length);
    }

    /// Copies a part of what was passed or returned by value.
    fn own_bytes(&mut self, item: &Item, place: &typed::Place, size: u32, room: Room, layout: &ItemLayout) {
        let from = self.by_value(&place.base);
        let from = self.b.slot_addr(from);
        self.at(item.span, format!("key {}", item.label));
        let spot = self.spot_in(room, layout);
        self.copy_small(
            from,
            place.offset as i16,
            spot.base,
            spot.at + wire::VALUE as i16,
            size,
        );
        if let ValueLayout::String { .. } = item.value {
            self.b
                .store(Width::B4, spot.base, spot.at + wire::LENGTH as i16, size as i32);
        }
    }

    /// Goes to the fault if a helper's status says so.
    fn check_failed(&mut self, op: CmpOp, status: Value, step: crate::span::Span, offender: Value) {
        let (good, bad) = self.fault_blocks(step, offender);
        self.b
            .branch_with(op, Bits::W64, status, 0, bad, crate::ir::build::call(good, &[]));
        self.b.switch_to(good);
    }

    /// Goes to the fault if the entry could not read the item.
    pub(super) fn check_kept(&mut self, item: &Item, from: &ItemLayout, kept: Value) {
        self.at(item.span, format!("was {} read at entry?", item.label));
        let at = self.b.add(kept, from.offset as i32);
        let fault = self.b.load(Type::Int, Width::B4, at, wire::FAULT as i16);
        self.check_failed(CmpOp::Ne, fault, item.span, fault);
    }

    /// A part of the key that the entry has kept.
    pub(super) fn kept_key(
        &mut self,
        item: &Item,
        from: &ItemLayout,
        kept: Value,
        layout: &ItemLayout,
        room: Room,
    ) {
        self.check_kept(item, from, kept);
        self.b.note(format!("key {}", item.label));
        let to = self.spot_in(room, layout);
        let at = self.b.add(kept, from.offset as i32);
        match item.value {
            // Behind the NUL of a string the kept memory has whatever was there before.
            ValueLayout::String { capacity } => {
                let value = self.b.add(at, wire::VALUE as i32);
                let value = self.b.as_ptr(Space::Kernel, value);
                let target = self.b.add(to.base, i32::from(to.at) + wire::VALUE as i32);
                let count = self.call(
                    Helper::ProbeReadKernelStr,
                    &[target.into(), Operand::Imm(capacity as i32), value.into()],
                );
                self.check_failed(CmpOp::Slt, count, item.span, count);
                let length = self.b.load(Type::Int, Width::B4, at, wire::LENGTH as i16);
                let to = self.spot_in(room, layout);
                self.b
                    .store(Width::B4, to.base, to.at + wire::LENGTH as i16, length);
            }
            ValueLayout::Scalar
            | ValueLayout::Name
            | ValueLayout::Bytes { .. }
            | ValueLayout::Pointee { .. }
            | ValueLayout::Stack { .. }
            | ValueLayout::Buffer { .. } => {
                let size = item.value.item_size();
                self.copy_small(at, 0, to.base, to.at, size);
            }
        }
    }
}
