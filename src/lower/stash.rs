//! One event from two programs: what a call's entry reads is kept until its return. In: an event whose values belong to both
//! moments. Out: a program for each. What is kept belongs to the task and the call: its key is the thread and the
//! address of the call's own stack frame, so that sleep, migration, preemption and recursion never mix two calls.
//!
//! The place is made in the map before it is written, so there is no buffer that a preempting task could overwrite. The map
//! forgets the oldest entries when it is full, which `kept` counts.

use super::plan::Plan;
use super::program::{Handler, Lower};
use super::{Lowered, ProgramKind, abi};
use crate::ir::build::call;
use crate::ir::{BinaryOp, Bits, Block, CmpOp, Helper, MapData, MapKind, Slot, Space, Type, Value, Width};
use crate::typed::{Event, Expr, When};
use crate::wire::{self, Phase, RecordLayout, ValueLayout};

/// The most memory that kept values of one event take, in bytes, before the map gets fewer entries.
const MEMORY: u32 = 8 << 20;

/// The name of the map that an event's values are kept in. `event` is the number of its layout.
pub fn kept_map(event: u32) -> String {
    format!("kept_{event}")
}

/// The program at entry and the one at return. `exit` is the beginning of the latter.
pub(super) fn pair(mut exit: Lower<'_>, event: &Event, layout: RecordLayout, plan: &Plan) -> Vec<Lowered> {
    let mut entry = Lower::new(exit.query, exit.types, exit.target, exit.kind.entry(), exit.id);
    let keep = Keep::new(&exit, &layout, plan);
    entry.keep_at_entry(event, &layout, &keep);
    // Fault numbers go on counting, so that one list of steps serves both.
    exit.steps = std::mem::take(&mut entry.steps);
    let layout = exit.show_at_return(event, layout, &keep);
    let kind = exit.kind;
    vec![
        Lowered {
            kind: entry.kind,
            func: entry.finish(),
            layout: None,
            aggregate: None,
            sites: Vec::new(),
        },
        exit.lowered(kind, layout),
    ]
}

/// One program that runs at entry, as `entry`, and at return, as `exit`.
pub(super) fn session(
    mut lower: Lower<'_>,
    entry: ProgramKind,
    exit: ProgramKind,
    event: &Event,
    layout: RecordLayout,
    plan: Option<Plan>,
) -> Lowered {
    let kind = match entry {
        ProgramKind::Fentry => ProgramKind::Fsession,
        ProgramKind::FentryMulti => ProgramKind::FsessionMulti,
        ProgramKind::Uprobe => ProgramKind::UprobeSession,
        ProgramKind::Fexit
        | ProgramKind::TpBtf
        | ProgramKind::RawTp
        | ProgramKind::Kprobe
        | ProgramKind::Kretprobe
        | ProgramKind::Fsession
        | ProgramKind::FexitMulti
        | ProgramKind::FsessionMulti
        | ProgramKind::KprobeSession
        | ProgramKind::Uretprobe
        | ProgramKind::UprobeSession => ProgramKind::KprobeSession,
    };
    lower.b.at(None, "entry or return?");
    let ctx = lower.ctx;
    let returning = lower.call(Helper::SessionIsReturn, &[ctx.into()]);
    // Of a `bool` that a kernel function returns only the low byte is defined.
    let returning = lower.b.extend(Width::B1, false, returning);
    let at_entry = lower.b.block("at entry");
    let at_return = lower.b.block("at return");
    lower
        .b
        .branch(CmpOp::Ne, Bits::W64, returning, 0, at_return, at_entry);
    let done = lower.end;
    // What fprobe gets from the entry decides whether it comes back for the return (kernel/trace/bpf_trace.c,
    // `kprobe_multi_link_handler`, `uprobe_multi_link_handler`); a trampoline always does.
    let skip = if let ProgramKind::Kprobe | ProgramKind::Uprobe = entry {
        lower.b.block("nothing to do at the return")
    } else {
        done
    };
    lower.b.switch_to(at_entry);
    lower.turn(entry);
    let mut layout = layout;
    let keep = plan.as_ref().map(|plan| Keep::new(&lower, &layout, plan));
    match (&keep, event.phase) {
        (Some(keep), _) => {
            lower.end = skip;
            let kept = lower.b.block("kept");
            lower.keep_then(event, &layout, keep, kept);
            lower.b.switch_to(kept);
            lower.b.jump(done, &[]);
        }
        (None, Phase::Entry | Phase::Hit) => {
            lower.end = skip;
            layout = lower.whole(event, layout);
        }
        (None, Phase::Return | Phase::Both) => lower.b.jump(done, &[]),
    }
    lower.b.switch_to(at_return);
    lower.turn(exit);
    lower.end = done;
    lower.record = None;
    layout = match (&keep, event.phase) {
        (Some(keep), _) => lower.show_at_return(event, layout, keep),
        (None, Phase::Entry | Phase::Hit) => {
            lower.b.jump(done, &[]);
            layout
        }
        (None, Phase::Return | Phase::Both) => lower.whole(event, layout),
    };
    if skip != done {
        lower.b.at(None, "");
        lower.b.switch_to(skip);
        lower.b.ret(1);
    }
    lower.lowered(kind, layout)
}

/// What is kept, and the maps that it is kept in.
pub(super) struct Keep {
    pub(super) kept: MapData,
    /// An empty value, to make a place from.
    pub(super) empty: MapData,
    /// Arguments by index, each with where it lies in the value and how many bytes it takes: behind the image of the record.
    args: Vec<(usize, u32, u32)>,
    /// Where the time of entry lies, if it is wanted.
    stamp: Option<u32>,
    /// What the return computes with as it was at entry.
    values: Vec<Early>,
}

/// A value of the entry that the return computes with. It lies there as a scalar item does ([`wire::FAULT`], [`wire::VALUE`]).
#[derive(Clone)]
pub(super) struct Early {
    expr: Expr,
    at: u32,
    /// It is an item, which is kept anyway.
    shown: bool,
}

/// Bytes of the key of what a call keeps: the thread, and where its stack frame is.
pub(super) const KEY: u32 = 16;

/// What a program at return has found, and has to forget.
pub(super) struct Recalled {
    place: Value,
    key: Slot,
    /// Where it goes on to that end.
    forget: Block,
    /// The end of the program.
    end: Block,
}

impl Keep {
    pub(super) fn new(lower: &Lower<'_>, layout: &RecordLayout, plan: &Plan) -> Keep {
        let mut size = layout.size;
        let mut args = Vec::new();
        for index in &plan.args {
            let ty = lower.query.probe.func().params[*index].ty;
            let bytes = (lower.types.size_of(ty).unwrap_or(8) as u32)
                .next_multiple_of(8)
                .max(8);
            args.push((*index, size, bytes));
            size += bytes;
        }
        let stamp = plan.stamp.then_some(size);
        if plan.stamp {
            size += 8;
        }
        let mut values = Vec::new();
        for (expr, item) in &plan.values {
            values.push(Early {
                expr: expr.clone(),
                at: item.map_or(size, |item| layout.items[item].offset),
                shown: item.is_some(),
            });
            if item.is_none() {
                size += ValueLayout::Scalar.item_size();
            }
        }
        let event = lower.id.event;
        let entries = MEMORY / lower.id.keepers.max(1) / size;
        Keep {
            kept: MapData {
                name: kept_map(event),
                kind: MapKind::LruHash,
                key_size: KEY,
                value_size: size,
                max_entries: entries.clamp(256, 8192),
            },
            empty: MapData {
                name: format!("empty_{event}"),
                kind: MapKind::Array,
                key_size: 4,
                value_size: size,
                max_entries: 1,
            },
            args,
            stamp,
            values,
        }
    }

    /// For memory that a call needs only until its program ends, so that there are never more places than programs that run.
    pub(super) fn own(event: u32, size: u32) -> Keep {
        Keep {
            kept: MapData {
                name: format!("own_{event}"),
                kind: MapKind::Hash,
                key_size: KEY,
                value_size: size,
                max_entries: 1024,
            },
            empty: MapData {
                name: format!("blank_{event}"),
                kind: MapKind::Array,
                key_size: 4,
                value_size: size,
                max_entries: 1,
            },
            args: Vec::new(),
            stamp: None,
            values: Vec::new(),
        }
    }
}

/// The indices of the items that are read at that moment.
fn items_at(event: &Event, when: When) -> Vec<usize> {
    (0..event.items.len())
        .filter(|index| event.items[*index].when == when)
        .collect()
}

impl Lower<'_> {
    /// A whole program at entry.
    fn keep_at_entry(&mut self, event: &Event, layout: &RecordLayout, keep: &Keep) {
        let end = self.end;
        self.keep_then(event, layout, keep, end);
    }

    /// Keeps what the return needs and goes on there; where there is nothing to keep, the program ends.
    fn keep_then(&mut self, event: &Event, layout: &RecordLayout, keep: &Keep, then: Block) {
        let key = self.b.slot(KEY);
        let mut early = None;
        self.filter_task();
        self.else_forget(keep, key, |this| {
            this.filter_moment();
            if this.target.tight {
                let place = this.make_place(keep, key);
                this.write_judged(event, layout, |when| when == When::Entry, place);
                early = Some(place);
            } else {
                this.predicates(event, |predicate| predicate.when == When::Entry);
            }
        });
        match early {
            Some(place) => self.keep_besides(keep, place),
            None => self.keep(event, layout, keep, key),
        }
        self.b.jump(then, &[]);
    }

    /// Goes on where the conditions let it. Where they don't, what an earlier call at the same place has kept is forgotten, if its
    /// return was missed: at this call's return it would be taken for this call's.
    pub(super) fn else_forget(&mut self, keep: &Keep, key: Slot, conditions: impl FnOnce(&mut Self)) {
        let stale = self.b.block("not this call: forget an older one");
        let end = std::mem::replace(&mut self.end, stale);
        let known = self.known.clone();
        conditions(self);
        self.end = end;
        if !self.b.is_target(stale) {
            return;
        }
        let go_on = self.b.block("this call");
        self.b.jump(go_on, &[]);
        let known = std::mem::replace(&mut self.known, known);
        self.b.switch_to(stale);
        self.call_key(key);
        self.delete_place(keep, key);
        self.b.jump(end, &[]);
        self.known = known;
        self.b.switch_to(go_on);
    }

    /// Keeps what the return needs.
    pub(super) fn keep(&mut self, event: &Event, layout: &RecordLayout, keep: &Keep, key: Slot) {
        let place = self.make_place(keep, key);
        let record = self.record.replace(place);
        self.items(&event.items, &layout.items, &items_at(event, When::Entry));
        self.record = record;
        self.keep_besides(keep, place);
    }

    /// Keeps what no item is: arguments and values that the return needs, and the time.
    fn keep_besides(&mut self, keep: &Keep, place: Value) {
        for (index, offset, size) in &keep.args {
            self.save_arg(*index, place, *offset, *size);
        }
        for early in keep.values.iter().filter(|early| !early.shown) {
            self.keep_value(&early.expr, place, early.at);
        }
        if let Some(at) = keep.stamp {
            self.b.at(None, "the time of entry");
            // Asked for last of all: what this program takes is not the call's.
            let now = self.call(Helper::KtimeGetNs, &[]);
            let to = self.b.add(place, at as i32);
            self.b.store(Width::B8, to, 0, now);
        }
    }

    /// The event, from what was kept and what is there now; what its records look like.
    fn show_at_return(&mut self, event: &Event, layout: RecordLayout, keep: &Keep) -> RecordLayout {
        let recalled = self.recall(keep);
        if self.target.tight && self.query.aggregate.is_none() {
            self.show_tight(event, &layout, Some(recalled.place));
        } else {
            self.predicates(event, |predicate| predicate.when == When::Return);
            self.show_with_kept(event, &layout, &recalled);
        }
        self.forget(keep, recalled);
        let mut layout = layout;
        layout.set_steps(&self.steps);
        layout
    }

    /// At return: finds what this call's entry kept; a call that kept nothing ends the program. From here on the end is to
    /// forget it.
    pub(super) fn recall(&mut self, keep: &Keep) -> Recalled {
        for (index, offset, _) in &keep.args {
            self.arg_locations[*index] = abi::Location::Saved(*offset);
        }
        self.stamp = keep.stamp;
        self.early.clone_from(&keep.values);
        if keep.stamp.is_some() {
            self.b.at(None, "the time of return");
            self.word(Helper::KtimeGetNs);
        }
        let (key, place) = self.find_place(keep);
        self.saved = Some(place);
        let forget = self.b.block("forget what was kept");
        let end = std::mem::replace(&mut self.end, forget);
        Recalled {
            place,
            key,
            forget,
            end,
        }
    }

    /// Makes the record from what was kept and what is read now, and ends.
    pub(super) fn show_with_kept(&mut self, event: &Event, layout: &RecordLayout, recalled: &Recalled) {
        if let Some(aggregate) = &self.query.aggregate {
            return self.aggregate(event, layout, aggregate, Some(recalled.place));
        }
        let record = self.reserve(layout.size);
        self.header(record);
        self.copy_all_kept(event, layout, recalled.place, record);
        self.items(&event.items, &layout.items, &items_at(event, When::Return));
        self.submit(record);
    }

    /// Copies what the entry kept into the record.
    pub(super) fn copy_all_kept(
        &mut self,
        event: &Event,
        layout: &RecordLayout,
        place: Value,
        record: Value,
    ) {
        self.b.at(None, "what was kept at entry");
        for index in items_at(event, When::Entry) {
            let item = &layout.items[index];
            self.copy_kept(place, record, item.offset, item.value.item_size());
        }
    }

    /// The end of a program that has found something kept.
    pub(super) fn forget(&mut self, keep: &Keep, recalled: Recalled) {
        self.b.switch_to(recalled.forget);
        self.delete_place(keep, recalled.key);
        self.b.jump(recalled.end, &[]);
        self.end = recalled.end;
    }

    /// A map's value, or the end of the program.
    pub(super) fn look_up(&mut self, map: MapData, key: Slot) -> Value {
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

    /// The key of this call: the thread, and where its stack frame is.
    pub(super) fn call_key(&mut self, key: Slot) {
        self.b.at(None, "the thread");
        let thread = self.word(Helper::GetCurrentPidTgid);
        let at = self.b.slot_addr(key);
        self.b.store(Width::B8, at, 0, thread);
        if self.id.shared {
            // Whose return was missed must not be taken for another function's call. The thread id alone tells the thread, so
            // the process id's place is free.
            self.b.note("which function");
            let which = self.which();
            let at = self.b.slot_addr(key);
            self.b.store(Width::B4, at, 4, which);
        }
        let frame = self.frame();
        let at = self.b.slot_addr(key);
        self.b.store(Width::B8, at, 8, frame);
    }

    /// Where this call's stack frame is, the same at its entry and its return; those of calls inside it lie lower.
    pub(super) fn frame(&mut self) -> Value {
        self.b.at(None, "the call's frame");
        let ctx = self.ctx;
        match self.kind {
            ProgramKind::Kprobe => {
                let frame = self.b.load(Type::Int, Width::B8, ctx, abi::SP);
                if self.session {
                    // At the return the registers need not tell where the frame was; the call's own word does.
                    let cookie = self.call(Helper::SessionCookie, &[ctx.into()]);
                    self.b.store(Width::B8, cookie, 0, frame);
                }
                frame
            }
            ProgramKind::Kretprobe if self.session => {
                let cookie = self.call(Helper::SessionCookie, &[ctx.into()]);
                self.b.load(Type::Int, Width::B8, cookie, 0)
            }
            ProgramKind::Kretprobe => {
                // The return address has been popped by then.
                let sp = self.b.load(Type::Int, Width::B8, ctx, abi::SP);
                self.b.add(sp, -8)
            }
            ProgramKind::Uprobe | ProgramKind::Uretprobe | ProgramKind::UprobeSession => self.user_frame(),
            ProgramKind::Fentry
            | ProgramKind::Fexit
            | ProgramKind::FentryMulti
            | ProgramKind::FexitMulti
            | ProgramKind::TpBtf
            | ProgramKind::RawTp
            | ProgramKind::Fsession
            | ProgramKind::FsessionMulti
            | ProgramKind::KprobeSession => {
                // Both programs of a trampoline get the same context, which lies in its frame. As a number, because 5.10's
                // verifier lets no pointer be in a key.
                let here = self.b.cast(Type::Int, ctx);
                self.washed(here)
            }
        }
    }

    /// Keeps an argument's words as they are.
    fn save_arg(&mut self, index: usize, place: Value, offset: u32, size: u32) {
        self.b.at(None, format!("keep argument {index}"));
        let to = self.b.add(place, offset as i32);
        match self.arg_locations[index].clone() {
            abi::Location::Words(words) => {
                for (number, word) in words.iter().enumerate() {
                    let value = self.context_word(Type::Int, *word);
                    self.b.store(Width::B8, to, number as i16 * 8, value);
                }
            }
            abi::Location::Stack(at) => {
                let from = self.stack_word(at);
                self.probe(to, size, from, crate::typed::Memory::Kernel);
            }
            abi::Location::User(recipes) => {
                let value = self.by_recipes(&recipes, None);
                self.b.store(Width::B8, to, 0, value);
            }
            abi::Location::Saved(_)
            | abi::Location::Behind(_)
            | abi::Location::Result
            | abi::Location::Unknown => {
                unreachable!("bug in ksnoop-jit: at entry every argument is somewhere")
            }
        }
    }

    /// Works out what the return computes with, and keeps it. Whether a fault matters is decided there.
    fn keep_value(&mut self, expr: &Expr, place: Value, offset: u32) {
        let (faulted, params) = self.b.block_with("a fault: keep which", &[Type::Int, Type::Int]);
        let kept = self.b.block("");
        let known = self.known.len();
        self.handlers.push(Handler::Step(faulted));
        let value = self.value(expr);
        let value = self.free_number(value);
        self.handlers.pop();
        self.known.truncate(known);
        self.at(expr.span, "keep the value of entry");
        let to = self.b.add(place, offset as i32);
        self.b.store(Width::B8, to, wire::VALUE as i16, value);
        self.b.jump(kept, &[]);
        self.b.switch_to(faulted);
        let to = self.b.add(place, offset as i32);
        self.b.store(Width::B4, to, wire::FAULT as i16, params[0]);
        self.b.store(Width::B8, to, wire::VALUE as i16, params[1]);
        self.b.jump(kept, &[]);
        self.b.switch_to(kept);
    }

    /// What the entry has kept of an [`ExprKind::AtEntry`](crate::typed::ExprKind::AtEntry), of that type.
    pub(super) fn kept_value(&mut self, inner: &Expr) -> Value {
        let Some(early) = self.early.iter().find(|early| early.expr == *inner) else {
            unreachable!("bug in ksnoop-jit: a value of the entry that it did not keep");
        };
        let at = early.at;
        self.at(inner.span, "the value of entry");
        let at = self.saved_at(at);
        let value = self.b.load(Type::Int, Width::B8, at, wire::VALUE as i16);
        let step = self.b.load(Type::Int, Width::B4, at, wire::FAULT as i16);
        let (good, bad) = self.fault_numbered(value, |_| step);
        self.b
            .branch_with(CmpOp::Ne, Bits::W64, step, 0, bad, call(good, &[]));
        self.b.switch_to(good);
        self.finished(value, &inner.ty)
    }

    /// Copies an item from where it was kept into the record.
    fn copy_kept(&mut self, place: Value, record: Value, offset: u32, size: u32) {
        let from = self.b.add(place, offset as i32);
        let to = self.b.add(record, offset as i32);
        self.copy_own(from, to, size);
    }

    /// Copies from a map's value into a record.
    pub(super) fn copy_own(&mut self, from: Value, to: Value, size: u32) {
        if size <= 64 {
            self.copy_small(from, 0, to, 0, size);
        } else {
            let from = self.b.as_ptr(Space::Kernel, from);
            self.probe(to, size, from, crate::typed::Memory::Kernel);
        }
    }

    /// Nanoseconds from the time of entry to now.
    pub(super) fn duration(&mut self) -> Value {
        let (Some(saved), Some(at)) = (self.saved, self.stamp) else {
            unreachable!("bug in ksnoop-jit: a duration without a time of entry");
        };
        let now = self.word(Helper::KtimeGetNs);
        let then = self.b.add(saved, at as i32);
        let then = self.b.load(Type::Int, Width::B8, then, 0);
        self.b.binary(BinaryOp::Sub, Bits::W64, now, then)
    }
}
