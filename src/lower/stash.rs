//! One event from two programs: what a call's entry reads is kept until its return. In: an event whose values belong to both
//! moments. Out: a program for each. What is kept belongs to the task and the call: its key is the thread and the
//! address of the call's own stack frame, so that sleep, migration, preemption and recursion never mix two calls.
//!
//! The place is made in the map before it is written, so there is no buffer that a preempting task could overwrite. The map
//! forgets the oldest entries when it is full: those of calls whose return was missed.

use super::program::Lower;
use super::{Lowered, ProgramKind, abi};
use crate::ir::{BinaryOp, Bits, CmpOp, Helper, MapData, MapKind, Operand, Slot, Space, Type, Value, Width};
use crate::typed::{Base, Event, Expr, ExprKind, Place, Source, When};
use crate::wire::{RecordLayout, ValueLayout};

/// The most memory that kept values of one event take, in bytes, before the map gets fewer entries.
const MEMORY: u32 = 8 << 20;

/// What has to be kept.
pub(super) struct Plan {
    /// Arguments that the return needs and does not have, by index.
    args: Vec<usize>,
}

impl Plan {
    /// `None` if the program at `kind` sees all that the event needs by itself.
    pub(super) fn of(event: &Event, kind: ProgramKind) -> Option<Plan> {
        match kind {
            ProgramKind::Fentry | ProgramKind::Kprobe | ProgramKind::TpBtf | ProgramKind::RawTp => None,
            ProgramKind::Fexit => {
                // A trampoline still has the arguments at return, but not the memory as it was at entry.
                let reads = event.items.iter().any(|item| {
                    item.when == When::Entry
                        && (reads_memory(&item.source) || item.value != ValueLayout::Scalar)
                }) || event
                    .predicates
                    .iter()
                    .any(|predicate| predicate.when == When::Entry && expr_reads(&predicate.cond));
                reads.then(|| Plan { args: Vec::new() })
            }
            ProgramKind::Kretprobe => {
                let mut args = Vec::new();
                let mut look = |expr: &Expr| {
                    if let ExprKind::Arg(index) = expr.kind
                        && !args.contains(&index)
                    {
                        args.push(index);
                    }
                };
                for item in event.items.iter().filter(|item| item.when == When::Return) {
                    item.source.walk(&mut look);
                }
                for predicate in event.predicates.iter().filter(|p| p.when == When::Return) {
                    predicate.cond.walk(&mut look);
                }
                args.sort_unstable();
                let entry = event.items.iter().any(|item| item.when == When::Entry)
                    || event
                        .predicates
                        .iter()
                        .any(|predicate| predicate.when == When::Entry);
                (entry || !args.is_empty()).then_some(Plan { args })
            }
        }
    }
}

fn reads_memory(source: &Source) -> bool {
    match source {
        Source::Value(expr) => expr_reads(expr),
        Source::Memory(place) => place_reads(place),
        Source::Comm => false,
    }
}

fn expr_reads(expr: &Expr) -> bool {
    let mut reads = false;
    expr.walk(&mut |inner| {
        reads |= match &inner.kind {
            ExprKind::Load(place) => place_reads(place),
            ExprKind::StrCompare { .. } => true,
            _ => false,
        };
    });
    reads
}

fn place_reads(place: &Place) -> bool {
    match place.base {
        Base::Pointer { .. } => true,
        Base::Arg(_) | Base::Return => false,
    }
}

/// The program at entry and the one at return. `exit` is the beginning of the latter.
pub(super) fn pair(mut exit: Lower<'_>, event: &Event, layout: RecordLayout, plan: &Plan) -> Vec<Lowered> {
    let kind = match exit.kind {
        ProgramKind::Fexit => ProgramKind::Fentry,
        _ => ProgramKind::Kprobe,
    };
    let mut entry = Lower::new(exit.query, exit.types, exit.target, kind, exit.id);
    // Kept arguments lie behind the image of the record.
    let mut size = layout.size;
    let mut saved_args = Vec::new();
    for index in &plan.args {
        let ty = exit.query.probe.func().params[*index].ty;
        let words = (exit.types.size_of(ty).unwrap_or(8) as u32)
            .next_multiple_of(8)
            .max(8);
        saved_args.push((*index, size, words));
        exit.arg_locations[*index] = abi::Location::Saved(size);
        size += words;
    }
    let keep = Keep::new(exit.id.event, size);
    let at_entry: Vec<usize> = (0..event.items.len())
        .filter(|index| event.items[*index].when == When::Entry)
        .collect();
    let at_return: Vec<usize> = (0..event.items.len())
        .filter(|index| event.items[*index].when == When::Return)
        .collect();

    entry.filter();
    entry.predicates(event, |predicate| predicate.when == When::Entry);
    let place = entry.make_place(&keep);
    entry.record = Some(place);
    entry.items(&event.items, &layout.items, &at_entry);
    for (index, offset, size) in saved_args {
        entry.save_arg(index, place, offset, size);
    }
    let end = entry.end;
    entry.b.jump(end, &[]);

    // Fault numbers go on counting, so that one list of steps serves both.
    exit.steps = std::mem::take(&mut entry.steps);
    let (key, place) = exit.find_place(&keep);
    exit.saved = Some(place);
    let forget = exit.b.block("forget what was kept");
    let end = std::mem::replace(&mut exit.end, forget);
    exit.predicates(event, |predicate| predicate.when == When::Return);
    let record = exit.reserve(layout.size);
    exit.header(record);
    exit.b.at(None, "what was kept at entry");
    for index in at_entry {
        let item = &layout.items[index];
        exit.copy_kept(place, record, item.offset, item.value.item_size());
    }
    exit.items(&event.items, &layout.items, &at_return);
    exit.submit(record);
    exit.b.switch_to(forget);
    exit.delete_place(&keep, key);
    exit.b.jump(end, &[]);
    exit.end = end;

    let mut layout = layout;
    layout.set_steps(&exit.steps);
    vec![
        Lowered {
            kind: entry.kind,
            func: entry.finish(),
            layout: None,
        },
        Lowered {
            kind: exit.kind,
            func: exit.finish(),
            layout: Some(layout),
        },
    ]
}

/// The maps that values are kept in.
struct Keep {
    kept: MapData,
    /// An empty value, to make a place from.
    empty: MapData,
}

impl Keep {
    fn new(event: u32, size: u32) -> Keep {
        Keep {
            kept: MapData {
                name: format!("kept_{event}"),
                kind: MapKind::LruHash,
                key_size: 16,
                value_size: size,
                max_entries: (MEMORY / size).clamp(256, 8192),
            },
            empty: MapData {
                name: format!("empty_{event}"),
                kind: MapKind::Array,
                key_size: 4,
                value_size: size,
                max_entries: 1,
            },
        }
    }
}

impl Lower<'_> {
    /// A map's value, or the end of the program.
    fn look_up(&mut self, map: MapData, key: Slot) -> Value {
        let map = self.b.map(map);
        let map = self.b.map_addr(map);
        let key = self.b.slot_addr(key);
        let found = self.call(Helper::MapLookupElem, &[map.into(), key.into()]);
        let there = self.b.block("");
        let end = self.end;
        self.b.branch(CmpOp::Eq, Bits::W64, found, 0, end, there);
        self.b.switch_to(there);
        self.b.as_ptr(Space::MapValue, found)
    }

    /// The empty value, which is at the same address all the time.
    fn empty(&mut self, keep: &Keep) -> Value {
        self.b.at(None, "the empty value");
        let zero = self.scratch();
        let at = self.b.slot_addr(zero);
        self.b.store(Width::B8, at, 0, 0);
        self.look_up(keep.empty.clone(), zero)
    }

    /// The key of this call: the thread, and where its stack frame is.
    fn call_key(&mut self, empty: Value) -> Slot {
        let key = self.b.slot(16);
        self.b.at(None, "the thread");
        let thread = self.word(Helper::GetCurrentPidTgid);
        let at = self.b.slot_addr(key);
        self.b.store(Width::B8, at, 0, thread);
        self.b.note("the call's frame");
        let ctx = self.ctx;
        let frame = match self.kind {
            ProgramKind::Kprobe => self.b.load(Type::Int, Width::B8, ctx, abi::SP),
            ProgramKind::Kretprobe => {
                // The return address has been popped by then.
                let sp = self.b.load(Type::Int, Width::B8, ctx, abi::SP);
                self.b.add(sp, -8)
            }
            ProgramKind::Fentry | ProgramKind::Fexit | ProgramKind::TpBtf | ProgramKind::RawTp => {
                // Both programs of a trampoline get the same context, which lies in its frame. Its distance from something
                // that stays where it is tells calls apart, and is a number, as which 5.10's verifier lets it be a key.
                let here = self.b.cast(Type::Int, ctx);
                let there = self.b.cast(Type::Int, empty);
                self.b.binary(BinaryOp::Sub, Bits::W64, here, there)
            }
        };
        let at = self.b.slot_addr(key);
        self.b.store(Width::B8, at, 8, frame);
        key
    }

    /// Makes a place for this call, to be written in.
    fn make_place(&mut self, keep: &Keep) -> Value {
        let empty = self.empty(keep);
        let key = self.call_key(empty);
        self.b.at(None, "a place to keep values in");
        let map = self.b.map(keep.kept.clone());
        let map = self.b.map_addr(map);
        let at = self.b.slot_addr(key);
        self.call(
            Helper::MapUpdateElem,
            &[map.into(), at.into(), empty.into(), Operand::Imm(0)],
        );
        // Without a place the event can't be made at the return, where nobody would know that it is missing.
        let lost = self.b.block("no place: count it as lost");
        let end = std::mem::replace(&mut self.end, lost);
        let place = self.look_up(keep.kept.clone(), key);
        self.end = end;
        let go_on = self.b.block("a place");
        self.b.jump(go_on, &[]);
        self.b.switch_to(lost);
        self.count(0);
        self.b.jump(end, &[]);
        self.b.switch_to(go_on);
        place
    }

    /// The place of this call; a call that has none ends the program.
    fn find_place(&mut self, keep: &Keep) -> (Slot, Value) {
        let empty = self.empty(keep);
        let key = self.call_key(empty);
        self.b.at(None, "what this call's entry kept");
        let place = self.look_up(keep.kept.clone(), key);
        (key, place)
    }

    fn delete_place(&mut self, keep: &Keep, key: Slot) {
        self.b.at(None, "forget");
        let map = self.b.map(keep.kept.clone());
        let map = self.b.map_addr(map);
        let at = self.b.slot_addr(key);
        self.call(Helper::MapDeleteElem, &[map.into(), at.into()]);
    }

    /// Keeps an argument's words as they are.
    fn save_arg(&mut self, index: usize, place: Value, offset: u32, size: u32) {
        self.b.at(None, format!("keep argument {index}"));
        let to = self.b.add(place, offset as i32);
        match self.arg_locations[index].clone() {
            abi::Location::Words(words) => {
                for (number, word) in words.iter().enumerate() {
                    let ctx = self.ctx;
                    let value = self.b.load(Type::Int, Width::B8, ctx, *word);
                    self.b.store(Width::B8, to, number as i16 * 8, value);
                }
            }
            abi::Location::Stack(at) => {
                let from = self.stack_word(at);
                self.probe(to, size, from, crate::typed::Memory::Kernel);
            }
            abi::Location::Saved(_) | abi::Location::Unknown => {
                unreachable!("bug in ksnoop-jit: at entry every argument is somewhere")
            }
        }
    }

    /// Copies an item from where it was kept into the record.
    fn copy_kept(&mut self, place: Value, record: Value, offset: u32, size: u32) {
        let from = self.b.add(place, offset as i32);
        let to = self.b.add(record, offset as i32);
        if size <= 64 {
            self.copy_small(from, 0, to, 0, size);
        } else {
            let from = self.b.as_ptr(Space::Kernel, from);
            self.probe(to, size, from, crate::typed::Memory::Kernel);
        }
    }
}
