//! Aggregations: instead of sending an event, the program finds the value that its map keeps for the event's key, on this CPU,
//! and changes it in place. In: keys and values as items of the event. Out: instructions, and the layout of keys and
//! values. What can't be read counts nowhere, and is counted as such; so is what finds no room in the map.
//!
//! Short keys are made on the stack; one that does not fit there is made in a place that belongs to the call alone
//! (`super::stash`), so that a task which preempts this one never writes to it. A value is only this CPU's, so adding
//! to it needs no lock; display adds up the CPUs.

use super::MISSED;
use super::program::{Handler, Lower};
use super::stash::{KEY, Keep};
use super::text::Read;
use crate::ctype::CType;
use crate::ir::{
    BinaryOp, Bits, Block, CmpOp, Helper, MapData, MapKind, Operand, Slot, Space, Type, Value, Width,
};
use crate::typed::{self, Event, Item, Source, When};
use crate::wire::{
    self, AggregateLayout, HIST_ZERO, HITS, ItemLayout, Measure, MeasureLayout, RecordLayout, VALUE_HEADER,
    ValueLayout,
};

/// The longest key that is made on the stack, in bytes: more would leave too little of it for the rest.
const KEY_ON_STACK: u32 = 192;
/// The most memory that one CPU's values and the keys of one query take, in bytes, before the map gets fewer entries.
const MEMORY: u32 = 1 << 20;
/// The most keys, if nothing else is asked for.
const KEYS: u32 = 10240;
/// `BPF_NOEXIST`, include/uapi/linux/bpf.h.
const NOEXIST: i32 = 1;

/// Where a part of the key is: an address and a distance from it.
struct Spot {
    base: Value,
    at: i16,
}

/// Where a key is made.
#[derive(Clone, Copy)]
enum Room {
    /// On the stack.
    Stack(Slot),
    /// In memory that belongs to the call.
    Own(Value),
}

impl Lower<'_> {
    /// Counts the event, and ends the program. `kept` is what its entry has kept, as `record` lays it out.
    pub(super) fn aggregate(
        &mut self,
        event: &Event,
        record: &RecordLayout,
        aggregate: &typed::Aggregate,
        kept: Option<Value>,
    ) {
        let layout = layout(event, record, aggregate, self.id.event);
        let end = self.end;
        let mut own = None;
        let room = if layout.key_size <= KEY_ON_STACK {
            Room::Stack(self.b.slot(layout.key_size))
        } else {
            let keep = Keep::own(self.id.event, layout.key_size);
            let key = self.b.slot(KEY);
            let place = self.make_place(&keep, key);
            // From here on every way to the end gives the place back.
            let forget = self.b.block("give the key's place back");
            self.end = forget;
            own = Some((keep, key));
            Room::Own(place)
        };
        let clear = match room {
            Room::Stack(_) => layout.key_size,
            Room::Own(_) => 0,
        };
        self.b.at(None, "the key");
        let at = self.room(room);
        for word in 0..clear / 8 {
            self.b.store(Width::B8, at, word as i16 * 8, 0);
        }
        self.handlers.push(Handler::Plain(None));
        for (index, key) in layout.keys.iter().enumerate() {
            let item = &event.items[index];
            match kept {
                Some(kept) if item.when == When::Entry => {
                    self.kept_key(item, &record.items[index], kept, key, room);
                }
                Some(_) | None => self.key_part(item, key, room),
            }
        }
        let values: Vec<Option<Value>> = aggregate
            .measures
            .iter()
            .map(|measure| {
                let index = measure.item?;
                let item = &event.items[index];
                Some(match kept {
                    Some(kept) if item.when == When::Entry => {
                        self.kept_word(item, &record.items[index], kept)
                    }
                    Some(_) | None => {
                        let Source::Value(expr) = &item.source else {
                            unreachable!("bug in ksnoop-jit: what is measured is a number");
                        };
                        self.number(expr)
                    }
                })
            })
            .collect();
        let Some(Handler::Plain(faulted)) = self.handlers.pop() else {
            unreachable!("bug in ksnoop-jit: handlers are nested");
        };
        let value = self.entry_of(&layout, room);
        self.update(&layout, value, &values);
        let to = self.end;
        self.b.jump(to, &[]);
        if let Some(faulted) = faulted {
            self.b.switch_to(faulted);
            self.b.at(None, "count the fault");
            self.bump(MISSED, 2 * self.id.query as u32 + 1);
            self.b.jump(to, &[]);
        }
        if let Some((keep, key)) = own {
            self.b.switch_to(to);
            self.delete_place(&keep, key);
            self.b.jump(end, &[]);
            self.end = end;
        }
        self.aggregated = Some(layout);
    }

    /// The key's address. The stack's is made anew wherever it is used, which takes no register in between.
    fn room(&mut self, room: Room) -> Value {
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
    fn key_part(&mut self, item: &Item, layout: &ItemLayout, room: Room) {
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
                    let full = match &place.ty {
                        CType::Btf(id) => self.types.size_of(*id).unwrap_or(0) as u32,
                        _ => 0,
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
                let offender = self.value(pointer);
                let (what, most) = match item.value {
                    ValueLayout::String { capacity } => (Read::String, capacity - 1),
                    ValueLayout::Buffer { capacity } => (Read::Bytes, capacity),
                    ValueLayout::Scalar
                    | ValueLayout::Pointee { .. }
                    | ValueLayout::Bytes { .. }
                    | ValueLayout::Stack { .. } => {
                        unreachable!("bug in ksnoop-jit: neither a string nor a buffer")
                    }
                };
                let (size, full) = self.bounded(length, most);
                self.at(item.span, format!("key {}", item.label));
                // A string has a NUL behind its characters.
                let size = match (what, size) {
                    (Read::Bytes, size) => size,
                    (Read::String, Operand::Imm(size)) => Operand::Imm(size + 1),
                    (Read::String, Operand::Value(size)) => self.b.add(size, 1).into(),
                };
                let spot = self.spot_in(room, layout);
                let to = self.b.add(spot.base, i32::from(spot.at + value_at));
                let status = self.read(what, to, size, offender, *memory);
                self.check_failed(CmpOp::Slt, status, pointer.span, offender);
                if what == Read::String {
                    self.text_length(status, room, layout);
                } else {
                    let spot = self.spot_in(room, layout);
                    self.b
                        .store(Width::B4, spot.base, spot.at + wire::LENGTH as i16, full);
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
                | ValueLayout::Stack { .. },
            )
            | (
                Source::Stack { .. },
                ValueLayout::Scalar
                | ValueLayout::Pointee { .. }
                | ValueLayout::Bytes { .. }
                | ValueLayout::String { .. }
                | ValueLayout::Buffer { .. },
            )
            | (
                Source::Memory(_),
                ValueLayout::Scalar
                | ValueLayout::Pointee { .. }
                | ValueLayout::Buffer { .. }
                | ValueLayout::Stack { .. },
            )
            | (
                Source::Sized { .. },
                ValueLayout::Scalar
                | ValueLayout::Pointee { .. }
                | ValueLayout::Bytes { .. }
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
    fn check_kept(&mut self, item: &Item, from: &ItemLayout, kept: Value) {
        self.at(item.span, format!("was {} read at entry?", item.label));
        let at = self.b.add(kept, from.offset as i32);
        let fault = self.b.load(Type::Int, Width::B4, at, wire::FAULT as i16);
        self.check_failed(CmpOp::Ne, fault, item.span, fault);
    }

    /// A part of the key that the entry has kept.
    fn kept_key(&mut self, item: &Item, from: &ItemLayout, kept: Value, layout: &ItemLayout, room: Room) {
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
            | ValueLayout::Bytes { .. }
            | ValueLayout::Pointee { .. }
            | ValueLayout::Stack { .. }
            | ValueLayout::Buffer { .. } => {
                let size = item.value.item_size();
                self.copy_small(at, 0, to.base, to.at, size);
            }
        }
    }

    /// A number that the entry has kept.
    fn kept_word(&mut self, item: &Item, from: &ItemLayout, kept: Value) -> Value {
        self.check_kept(item, from, kept);
        let at = self.b.add(kept, from.offset as i32);
        self.b.load(Type::Int, Width::B8, at, wire::VALUE as i16)
    }

    /// This CPU's value for the key, which is made if it is not there yet.
    fn entry_of(&mut self, layout: &AggregateLayout, room: Room) -> Value {
        self.b.at(None, "the value of this key");
        let entries = self
            .target
            .keys
            .unwrap_or_else(|| (MEMORY / (layout.key_size + layout.value_size)).clamp(64, KEYS));
        let map = self.b.map(MapData {
            name: layout.map.clone(),
            kind: MapKind::PercpuHash,
            key_size: layout.key_size,
            value_size: layout.value_size,
            max_entries: entries,
        });
        let (hit, value) = self.b.block_with("the value", &[Type::Ptr(Space::MapValue)]);
        let missing = self.b.block("the first time");
        self.find_entry(map, room, hit, missing);
        self.b.switch_to(missing);
        let empty = self.b.map(MapData {
            name: format!("zero_{}", self.id.event),
            kind: MapKind::Array,
            key_size: 4,
            value_size: layout.value_size,
            max_entries: 1,
        });
        let zero = self.scratch();
        let zero = self.b.slot_addr(zero);
        self.b.store(Width::B8, zero, 0, 0);
        let empty = self.b.map_addr(empty);
        let empty = self.call(Helper::MapLookupElem, &[empty.into(), zero.into()]);
        let there = self.b.block("");
        let end = self.end;
        self.b.branch(CmpOp::Eq, Bits::W64, empty, 0, end, there);
        self.b.switch_to(there);
        let empty = self.b.as_ptr(Space::MapValue, empty);
        let at = self.b.map_addr(map);
        let key = self.room(room);
        // Another CPU may have made it meanwhile: then this changes nothing, and it is found.
        self.call(
            Helper::MapUpdateElem,
            &[at.into(), key.into(), empty.into(), Operand::Imm(NOEXIST)],
        );
        let full = self.b.block("no room: count it");
        self.find_entry(map, room, hit, full);
        self.b.switch_to(full);
        self.bump(MISSED, 2 * self.id.query as u32);
        self.b.jump(end, &[]);
        self.b.switch_to(hit);
        value[0]
    }

    fn find_entry(&mut self, map: crate::ir::MapRef, room: Room, hit: Block, miss: Block) {
        let at = self.b.map_addr(map);
        let key = self.room(room);
        let found = self.call(Helper::MapLookupElem, &[at.into(), key.into()]);
        let there = self.b.block("");
        self.b.branch(CmpOp::Eq, Bits::W64, found, 0, miss, there);
        self.b.switch_to(there);
        let value = self.b.as_ptr(Space::MapValue, found);
        self.b.jump(hit, &[value]);
    }

    /// Changes the value in place.
    fn update(&mut self, layout: &AggregateLayout, value: Value, numbers: &[Option<Value>]) {
        self.b.at(None, "one hit more");
        let one = self.b.iconst(1);
        self.b.atomic_add(Width::B8, value, HITS as i16, one);
        for (measure, number) in layout.measures.iter().zip(numbers) {
            let Some(number) = *number else {
                continue;
            };
            self.at(measure.span, measure.label.clone());
            match measure.measure {
                Measure::Count => {}
                Measure::Sum | Measure::Avg => self.add_at(value, measure.offset, number),
                Measure::Min | Measure::Max => self.keep_extreme(measure, value, number),
                Measure::Hist => {
                    let bucket = if measure.signed {
                        self.signed_log(number)
                    } else {
                        self.log(number)
                    };
                    self.count_bucket(measure, value, bucket);
                }
                Measure::Lhist { lo, hi, step } => {
                    let bucket = self.linear(measure, number, (lo, hi, step));
                    self.count_bucket(measure, value, bucket);
                }
            }
        }
    }

    fn add_at(&mut self, value: Value, offset: u32, number: Value) {
        let (base, at) = self.within_reach(value, offset);
        self.b.atomic_add(Width::B8, base, at, number);
    }

    /// Keeps the number if it is less or greater than what is there, as [`wire::extreme_mask`] has it: the greatest of
    /// unsigned numbers, and a value that nothing was written to yet is less than any.
    fn keep_extreme(&mut self, measure: &MeasureLayout, value: Value, number: Value) {
        let number = match wire::extreme_mask(measure.measure, measure.signed) {
            0 => number,
            mask => {
                let mask = self.wide(mask as i64);
                self.b.binary(BinaryOp::Xor, Bits::W64, number, mask)
            }
        };
        let keep = self.b.block("keep it");
        let done = self.b.block("");
        let (base, at) = self.within_reach(value, measure.offset);
        let before = self.b.load(Type::Int, Width::B8, base, at);
        self.b.branch(CmpOp::Ugt, Bits::W64, number, before, keep, done);
        self.b.switch_to(keep);
        let (base, at) = self.within_reach(value, measure.offset);
        self.b.store(Width::B8, base, at, number);
        self.b.jump(done, &[]);
        self.b.switch_to(done);
    }

    /// Adds 1 to a bucket. The comparison can't fail, but tells the kernel's verifier that the access is in bounds.
    fn count_bucket(&mut self, measure: &MeasureLayout, value: Value, bucket: Value) {
        let last = measure.measure.words(measure.signed) as i32 - 1;
        let inside = self.b.block("the bucket");
        let done = self.b.block("");
        self.b.branch(CmpOp::Ugt, Bits::W64, bucket, last, done, inside);
        self.b.switch_to(inside);
        let offset = self.b.binary(BinaryOp::Shl, Bits::W64, bucket, 3);
        let base = self.b.add(value, offset);
        let one = self.b.iconst(1);
        self.add_at(base, measure.offset, one);
        self.b.jump(done, &[]);
        self.b.switch_to(done);
    }

    /// An address and a distance that fits an instruction.
    fn within_reach(&mut self, value: Value, offset: u32) -> (Value, i16) {
        match i16::try_from(offset) {
            Ok(near) => (value, near),
            Err(_) => (self.b.add(value, offset as i32), 0),
        }
    }

    /// 0 for 0, else one more than the number of the highest bit that is set: a binary search without branches.
    fn log(&mut self, number: Value) -> Value {
        let mut left = number;
        let mut sum: Option<Value> = None;
        for shift in [5, 4, 3, 2, 1, 0] {
            // Whether anything is left above the lower half, as 0 or 1, and from that how far to shift.
            let high = self.b.binary(BinaryOp::Lshr, Bits::W64, left, 1 << shift);
            let is_set = self.one_if_set(high);
            let by = match shift {
                0 => is_set,
                _ => self.b.binary(BinaryOp::Shl, Bits::W64, is_set, shift),
            };
            left = self.b.binary(BinaryOp::Lshr, Bits::W64, left, by);
            sum = Some(match sum {
                Some(sum) => self.b.add(sum, by),
                None => by,
            });
        }
        // What is left is 1, or 0 if there was nothing.
        match sum {
            Some(sum) => self.b.add(sum, left),
            None => left,
        }
    }

    /// 1 if the number, which is less than 2^63, is not 0.
    fn one_if_set(&mut self, number: Value) -> Value {
        let negative = self.b.neg(Bits::W64, number);
        self.b.binary(BinaryOp::Lshr, Bits::W64, negative, 63)
    }

    /// The same of the magnitude, in both directions from [`HIST_ZERO`].
    fn signed_log(&mut self, number: Value) -> Value {
        let sign = self.b.binary(BinaryOp::Ashr, Bits::W64, number, 63);
        let magnitude = self.magnitude(number, sign);
        let log = self.log(magnitude);
        let signed = self.magnitude(log, sign);
        self.b.add(signed, HIST_ZERO as i32)
    }

    /// The bucket of a linear histogram.
    fn linear(&mut self, measure: &MeasureLayout, number: Value, (lo, hi, step): (i64, i64, i64)) -> Value {
        let (less, not_less) = if measure.signed {
            (CmpOp::Slt, CmpOp::Sge)
        } else {
            (CmpOp::Ult, CmpOp::Uge)
        };
        let last = i64::from(measure.measure.words(measure.signed)) - 1;
        let (found, bucket) = self.b.block_with("", &[Type::Int]);
        let below = self.b.block("below all buckets");
        let above = self.b.block("above all buckets");
        let upper = self.b.block("");
        let inside = self.b.block("in a bucket");
        let bound = self.wide(lo);
        self.b.branch(less, Bits::W64, number, bound, below, upper);
        self.b.switch_to(upper);
        let bound = self.wide(hi);
        self.b.branch(not_less, Bits::W64, number, bound, above, inside);
        self.b.switch_to(inside);
        let distance = match lo {
            0 => number,
            lo => {
                let bound = self.wide(lo);
                self.b.binary(BinaryOp::Sub, Bits::W64, number, bound)
            }
        };
        let step = self.wide(step);
        let steps = self.b.binary(BinaryOp::Udiv, Bits::W64, distance, step);
        let steps = self.b.add(steps, 1);
        self.b.jump(found, &[steps]);
        for (block, constant) in [(below, 0), (above, last)] {
            self.b.switch_to(block);
            let constant = self.b.iconst(constant);
            self.b.jump(found, &[constant]);
        }
        self.b.switch_to(found);
        bucket[0]
    }

    /// A constant as an operand.
    fn wide(&mut self, constant: i64) -> Operand {
        match i32::try_from(constant) {
            Ok(imm) => Operand::Imm(imm),
            Err(_) => self.b.iconst(constant).into(),
        }
    }
}

/// How keys and values lie.
fn layout(
    event: &Event,
    record: &RecordLayout,
    aggregate: &typed::Aggregate,
    number: u32,
) -> AggregateLayout {
    let mut key_size = 0;
    let keys = record.items[..aggregate.keys]
        .iter()
        .map(|item| {
            let offset = key_size;
            key_size += item.value.item_size();
            ItemLayout {
                offset,
                ..item.clone()
            }
        })
        .collect();
    let mut value_size = VALUE_HEADER;
    let measures = aggregate
        .measures
        .iter()
        .map(|measure| {
            let offset = value_size;
            value_size += 8 * measure.measure.words(measure.signed);
            MeasureLayout {
                label: measure.label.clone(),
                measure: measure.measure,
                offset,
                signed: measure.signed,
                ty: measure
                    .item
                    .map_or(CType::ULONG, |index| event.items[index].ty.clone()),
                unit: measure.unit,
                format: measure.format,
                span: measure.span,
            }
        })
        .collect();
    AggregateLayout {
        map: format!("agg_{number}"),
        names: record.names.clone(),
        query: record.query,
        phase: event.phase,
        // A map has no keys of nothing.
        key_size: key_size.max(8),
        keys,
        value_size,
        measures,
    }
}
