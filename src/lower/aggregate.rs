//! Aggregations: instead of sending an event, the program finds the value that its map keeps for the event's key, on this CPU,
//! and changes it in place. In: keys and values as items of the event. Out: instructions, and the layout of keys and
//! values. What can't be read counts nowhere, and is counted as such; so is what finds no room in the map.
//!
//! Short keys are made on the stack; one that does not fit there is made in a place that belongs to the call alone
//! (`super::stash`), so that a task which preempts this one never writes to it. A value is only this CPU's, so adding
//! to it needs no lock; display adds up the CPUs.

use super::MISSED;
use super::key::Room;
use super::program::{Handler, Lower};
use super::stash::{KEY, Keep};
use crate::ctype::CType;
use crate::ir::{BinaryOp, Bits, Block, CmpOp, Helper, MapData, MapKind, Operand, Space, Type, Value, Width};
use crate::typed::{self, Event, Item, Source, When};
use crate::wire::{
    self, AggregateLayout, HITS, ItemLayout, Measure, MeasureLayout, RecordLayout, VALUE_HEADER,
};

/// The longest key that is made on the stack, in bytes: more would leave too little of it for the rest.
const KEY_ON_STACK: u32 = 192;
/// The most memory that one CPU's values and the keys of one query take, in bytes, before the map gets fewer entries.
const MEMORY: u32 = 1 << 20;
/// The most keys, if nothing else is asked for.
const KEYS: u32 = 10240;
/// `BPF_NOEXIST`, include/uapi/linux/bpf.h.
const NOEXIST: i32 = 1;

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
        self.handlers
            .push(Handler::Plain(None, "a fault: it is counted nowhere"));
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
        let Some(Handler::Plain(faulted, _)) = self.handlers.pop() else {
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
                Measure::Sum | Measure::Avg => self.add_up(measure, value, number),
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

    /// Adds both halves of the number to sums of their own, neither of which overflows: that takes no carry, which is nothing that
    /// an atomic addition of 5.10 tells.
    fn add_up(&mut self, measure: &MeasureLayout, value: Value, number: Value) {
        let shift = if measure.signed {
            BinaryOp::Ashr
        } else {
            BinaryOp::Lshr
        };
        let high = self.b.binary(shift, Bits::W64, number, 32);
        let low = self.b.extend(Width::B4, false, number);
        self.add_at(value, measure.offset, low);
        self.add_at(value, measure.offset + 8, high);
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
