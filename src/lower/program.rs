//! The frame of a program: filters, predicates, the record, its header, the end.

use super::user::{self, Dispatch};
use super::{COUNTS, EVENTS, Lowered, ProgramKind, Target, abi};
use crate::ir::{Bits, Block, Builder, CmpOp, Helper, MapData, MapKind, Operand, Slot, Space, Value, Width};
use crate::span::Span;
use crate::typed::{self, Builtin};
use crate::types::Types;
use crate::wire::{self, AggregateLayout, ItemLayout, RecordLayout};

/// What identifies a program among those of one artifact.
#[derive(Clone, Copy, Debug)]
pub struct Id {
    /// The number of the record layout.
    pub event: u32,
    /// Which query it is of.
    pub query: usize,
    /// How many queries there are.
    pub queries: usize,
    /// The program serves many functions, and the attach cookie is which of them it is, from 0.
    pub shared: bool,
    /// How many programs that keep values share the memory for that.
    pub keepers: u32,
}

/// Makes the programs for one event of a query, run as `kind`: one, or two if something has to be kept from the entry to the
/// return. An error is a sentence: what this kind of program can't see.
pub fn lower(
    query: &typed::Query,
    event: &typed::Event,
    types: &Types,
    target: &Target,
    kind: ProgramKind,
    id: Id,
) -> Result<Vec<Lowered>, String> {
    if let Some(probe) = query.probe.user() {
        let mut made = Vec::new();
        for (number, dispatch) in user::programs(probe, event, target, query.aggregate.is_some())
            .into_iter()
            .enumerate()
        {
            let id = Id {
                event: id.event + number as u32,
                ..id
            };
            let served = dispatch.served();
            let mut lower = Lower::new(query, types, target, kind, id);
            lower.dispatch = dispatch;
            made.extend(programs(lower, event)?.into_iter().map(|lowered| Lowered {
                sites: served.clone(),
                ..lowered
            }));
        }
        return Ok(made);
    }
    programs(Lower::new(query, types, target, kind, id), event)
}

/// The programs for the places that one set of programs serves.
fn programs(mut lower: Lower<'_>, event: &typed::Event) -> Result<Vec<Lowered>, String> {
    let (query, kind) = (lower.query, lower.kind);
    let layout = RecordLayout {
        returns: query
            .probe
            .ret()
            .is_some_and(|ret| !lower.types.strip(ret).is_void()),
        ..layout(event, &query.probe.func().name, lower.id)
    };
    let (entry, exit) = kind.halves().unwrap_or((kind, kind));
    lower.turn(exit);
    sees(&lower, event, kind)?;
    let plan = super::plan::Plan::of(event, exit);
    if kind.halves().is_some() {
        return Ok(vec![super::stash::session(
            lower, entry, exit, event, layout, plan,
        )]);
    }
    match plan {
        Some(plan) => Ok(super::stash::pair(lower, event, layout, &plan)),
        None => Ok(vec![single(lower, event, layout)]),
    }
}

/// Whether such a program can see all that an event is about. An error is a sentence.
pub(super) fn sees(lower: &Lower<'_>, event: &typed::Event, kind: ProgramKind) -> Result<(), String> {
    let (types, func) = (lower.types, lower.query.probe.func());
    if lower.return_location == abi::Location::Unknown && event.mentions(&typed::ExprKind::Return) {
        return Err(format!(
            "a {} does not see what `{}` returns: a {} is more than one register",
            kind.what(),
            func.name,
            types.c_name(func.ret),
        ));
    }
    let registers =
        matches!(kind, ProgramKind::Kprobe | ProgramKind::Kretprobe) || lower.query.probe.user().is_some();
    if !registers && event.mentions(&typed::ExprKind::Builtin(Builtin::Stack)) {
        return Err(format!("a {} does not see the stack pointer", kind.what()));
    }
    if !registers && mentions_register(event) {
        return Err(format!("a {} does not see the registers", kind.what()));
    }
    if kind.trampoline()
        && let Some(index) = abi::misread(types, func)
    {
        return Err(format!(
            "a {} sees wrong arguments of `{}` from `{}` on: a packed struct is passed on the stack",
            kind.what(),
            func.name,
            func.params[index].name,
        ));
    }
    Ok(())
}

/// Whether an event asks for a register by its name.
fn mentions_register(event: &typed::Event) -> bool {
    let mut found = false;
    event.walk(&mut |expr| {
        found |= matches!(expr.kind, typed::ExprKind::Builtin(typed::Builtin::Register(_)));
    });
    found
}

/// A program that does everything at once.
fn single(mut lower: Lower<'_>, event: &typed::Event, layout: RecordLayout) -> Lowered {
    let layout = lower.whole(event, layout);
    let kind = lower.kind;
    lower.lowered(kind, layout)
}

/// Where the items of an event lie.
pub(super) fn layout(event: &typed::Event, name: &str, id: Id) -> RecordLayout {
    let mut offset = wire::HEADER;
    let items = event
        .items
        .iter()
        .map(|item| {
            let here = offset;
            offset += item.value.item_size();
            ItemLayout {
                label: item.label.clone(),
                offset: here,
                value: item.value.clone(),
                ty: item.ty.clone(),
                format: item.format,
                span: item.span,
                steps: Vec::new(),
            }
        })
        .collect();
    RecordLayout {
        event: id.event,
        size: offset,
        names: vec![name.to_string()],
        query: id.query,
        phase: event.phase,
        items,
        returns: false,
    }
}

/// A program in the making.
pub(super) struct Lower<'a> {
    pub(super) b: Builder,
    pub(super) types: &'a Types,
    pub(super) target: &'a Target,
    pub(super) kind: ProgramKind,
    pub(super) query: &'a typed::Query,
    pub(super) id: Id,
    pub(super) ctx: Value,
    pub(super) arg_locations: Vec<abi::Location>,
    pub(super) return_location: abi::Location,
    /// The program runs at entry and at return.
    pub(super) session: bool,
    /// Which places of a program it is for.
    pub(super) dispatch: Dispatch,
    /// What has been computed on every way to the current block.
    pub(super) known: Vec<Known>,
    /// Where faults go, innermost last.
    pub(super) handlers: Vec<Handler>,
    /// The steps that can fault in shown values, for the whole event.
    pub(super) steps: Vec<String>,
    /// Eight bytes that small probe reads go through.
    pub(super) scratch: Option<Slot>,
    /// What pieces of strings are read into.
    pub(super) piece: Option<Slot>,
    /// Copies of pieces of structs, and places for more.
    pub(super) windows: Vec<super::neighbours::Window>,
    pub(super) free_windows: Vec<Slot>,
    /// How many glob patterns share the room for them.
    pub(super) long_patterns: u32,
    /// The end of the program.
    pub(super) end: Block,
    /// What values are written to, once it is there: the record, or the place where an entry keeps them for its return.
    pub(super) record: Option<Value>,
    /// At a return, what its entry kept.
    pub(super) saved: Option<Value>,
    /// Where in that the time of the entry is.
    pub(super) stamp: Option<u32>,
    /// The values in that with which it computes as they were at entry.
    pub(super) early: Vec<super::stash::Early>,
    /// What it aggregates, once that is lowered: then it writes no records.
    pub(super) aggregated: Option<AggregateLayout>,
}

/// Something that need not be computed again.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) key: Key,
    pub(super) value: Value,
}

/// What was computed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Key {
    /// The value of an expression, wherever it is written.
    Expr(typed::Expr),
    /// This pointer has been read, and tested if it is typed, for a group of items.
    Visited(typed::Expr),
    /// This pointer has been found good.
    Good(Value),
    /// A struct passed or returned by value has been put on the stack.
    ByValue(typed::Base),
    /// A word that the kernel gives: process and thread id, or user and group id.
    Word(Helper),
    /// Which of the functions it is that a program serves.
    Which,
}

/// Where a fault goes.
pub(super) enum Handler {
    /// To a block that knows all it needs: a predicate's. It is made when the first fault needs it; the text says what it does.
    Plain(Option<Block>, &'static str),
    /// To a block that takes the step and the address: shown values.
    Step(Block),
}

impl<'a> Lower<'a> {
    /// The beginning of a program.
    pub(super) fn new(
        query: &'a typed::Query,
        types: &'a Types,
        target: &'a Target,
        kind: ProgramKind,
        id: Id,
    ) -> Lower<'a> {
        let func = query.probe.func();
        let suffix = match kind {
            ProgramKind::Fentry | ProgramKind::FentryMulti | ProgramKind::Kprobe | ProgramKind::Uprobe => {
                "in"
            }
            ProgramKind::Fexit
            | ProgramKind::FexitMulti
            | ProgramKind::Kretprobe
            | ProgramKind::Uretprobe => "out",
            ProgramKind::Fsession
            | ProgramKind::FsessionMulti
            | ProgramKind::KprobeSession
            | ProgramKind::UprobeSession => "call",
            ProgramKind::TpBtf | ProgramKind::RawTp => "hit",
        };
        let name = format!("ksj_{}_{suffix}", id.event);
        // A program's names may be any text, which sections had better not be called.
        let section = match query.probe.user() {
            Some(_) => format!("{}/{name}", kind.section()),
            None => format!("{}/{}", kind.section(), func.name),
        };
        let mut b = Builder::new(name, section);
        let start = b.block("start");
        b.switch_to(start);
        b.at(None, "context");
        let ctx = b.ctx();
        let end = b.block("end");
        let mut lower = Lower {
            b,
            types,
            target,
            kind,
            query,
            id,
            ctx,
            arg_locations: Vec::new(),
            return_location: abi::Location::Unknown,
            session: kind.halves().is_some(),
            dispatch: query.probe.user().map_or(Dispatch::default(), Dispatch::of_all),
            known: Vec::new(),
            handlers: Vec::new(),
            steps: Vec::new(),
            scratch: None,
            piece: None,
            windows: Vec::new(),
            free_windows: Vec::new(),
            long_patterns: super::glob::long_patterns(query),
            end,
            record: None,
            saved: None,
            stamp: None,
            early: Vec::new(),
            aggregated: None,
        };
        lower.turn(kind);
        lower
    }

    /// What follows is a program of that kind: it decides where arguments are. Nothing is known yet on the way there.
    pub(super) fn turn(&mut self, kind: ProgramKind) {
        let (types, func) = (self.types, self.query.probe.func());
        self.kind = kind;
        self.known.clear();
        self.arg_locations = match kind {
            ProgramKind::Fentry
            | ProgramKind::Fexit
            | ProgramKind::FentryMulti
            | ProgramKind::FexitMulti
            | ProgramKind::TpBtf
            | ProgramKind::RawTp => abi::slots(types, func),
            ProgramKind::Kprobe => abi::entry(types, func),
            ProgramKind::Uprobe => match self.query.probe.user() {
                Some(probe) => user::arguments(probe, &self.dispatch),
                None => unreachable!("bug in ksnoop-jit: a kernel function by a uprobe"),
            },
            ProgramKind::Kretprobe
            | ProgramKind::Fsession
            | ProgramKind::FsessionMulti
            | ProgramKind::KprobeSession
            | ProgramKind::Uretprobe
            | ProgramKind::UprobeSession => func.params.iter().map(|_| abi::Location::Unknown).collect(),
        };
        self.return_location = match kind {
            ProgramKind::Fexit => abi::return_slot(types, func),
            ProgramKind::FexitMulti => abi::result(types, func),
            ProgramKind::Kretprobe => abi::at_return(types, func),
            ProgramKind::Uretprobe => match self.query.probe.user() {
                Some(probe) => user::returned(probe, types.size_of(func.ret).unwrap_or(0)),
                None => unreachable!("bug in ksnoop-jit: a kernel function by a uretprobe"),
            },
            ProgramKind::Uprobe
            | ProgramKind::UprobeSession
            | ProgramKind::Fentry
            | ProgramKind::FentryMulti
            | ProgramKind::TpBtf
            | ProgramKind::RawTp
            | ProgramKind::Kprobe
            | ProgramKind::Fsession
            | ProgramKind::FsessionMulti
            | ProgramKind::KprobeSession => abi::Location::Unknown,
        };
    }

    /// The end of a program: nothing may come after it.
    pub(super) fn finish(mut self) -> crate::ir::Func {
        let end = self.end;
        self.b.at(None, "");
        self.b.switch_to(end);
        self.b.ret(0);
        match self.b.finish() {
            Ok(func) => func,
            Err(unfinished) => panic!("bug in ksnoop-jit: {unfinished}"),
        }
    }
}

impl Lower<'_> {
    /// Which expression the following is about.
    pub(super) fn at(&mut self, span: Span, note: impl Into<String>) {
        self.b.at(span, note);
    }

    /// Everything of an event, here and now; what its records look like.
    pub(super) fn whole(&mut self, event: &typed::Event, layout: RecordLayout) -> RecordLayout {
        self.filter();
        self.show(event, &layout);
        let mut layout = layout;
        layout.set_steps(&self.steps);
        layout
    }

    /// The event, if its predicates hold.
    pub(super) fn show(&mut self, event: &typed::Event, layout: &RecordLayout) {
        if self.target.tight && self.query.aggregate.is_none() {
            return self.show_tight(event, layout, None);
        }
        self.predicates(event, |_| true);
        self.make_record(event, layout);
    }

    /// The event.
    pub(super) fn make_record(&mut self, event: &typed::Event, layout: &RecordLayout) {
        if let Some(aggregate) = &self.query.aggregate {
            return self.aggregate(event, layout, aggregate, None);
        }
        let all: Vec<usize> = (0..event.items.len()).collect();
        let record = self.reserve(layout.size);
        self.header(record);
        self.items(&event.items, &layout.items, &all);
        self.submit(record);
    }

    /// The finished program that sends records of that layout, or aggregates instead.
    pub(super) fn lowered(mut self, kind: ProgramKind, layout: RecordLayout) -> Lowered {
        let aggregate = self.aggregated.take();
        Lowered {
            kind,
            func: self.finish(),
            layout: aggregate.is_none().then_some(layout),
            aggregate,
            sites: Vec::new(),
        }
    }

    /// Does something whose faults end the program.
    pub(super) fn faults_end(&mut self, body: impl FnOnce(&mut Self)) {
        self.handlers
            .push(Handler::Plain(None, "a fault: the program ends"));
        body(self);
        let handler = self.handlers.pop();
        let end = self.end;
        self.b.jump(end, &[]);
        if let Some(Handler::Plain(Some(faulted), _)) = handler {
            self.b.switch_to(faulted);
            self.b.jump(end, &[]);
        }
    }

    /// Goes on only where the predicates of that kind hold.
    pub(super) fn predicates(&mut self, event: &typed::Event, which: impl Fn(&typed::Predicate) -> bool) {
        let chosen = event.predicates.iter().filter(|predicate| which(predicate));
        for cond in super::cond::cheapest_first(chosen.map(|predicate| &predicate.cond)) {
            self.go_on_if(cond);
        }
    }

    /// Goes on only where the condition holds.
    pub(super) fn go_on_if(&mut self, cond: &typed::Expr) {
        let end = self.end;
        let holds = self.b.block("it holds");
        self.condition(cond, false, holds, end);
        self.b.switch_to(holds);
    }

    /// Reserves a record; without room it counts the loss and ends.
    pub(super) fn reserve(&mut self, size: u32) -> Value {
        self.b.at(None, "reserve the record");
        let maybe = self.maybe_record(size);
        let lost = self.b.block("no room: count it as lost");
        let reserved = self.b.block("the record");
        self.b.branch(CmpOp::Eq, Bits::W64, maybe, 0, lost, reserved);
        self.b.switch_to(lost);
        self.count(0);
        let end = self.end;
        self.b.jump(end, &[]);
        self.b.switch_to(reserved);
        let record = self.b.as_ptr(Space::Record, maybe);
        self.record = Some(record);
        record
    }

    /// A record, or NULL where there is no room.
    pub(super) fn maybe_record(&mut self, size: u32) -> Value {
        let ring = self.b.map(MapData {
            name: EVENTS.to_string(),
            kind: MapKind::Ringbuf,
            key_size: 0,
            value_size: 0,
            max_entries: self.target.ring_bytes,
        });
        let map = self.b.map_addr(ring);
        let size = Operand::Imm(size as i32);
        self.call(Helper::RingbufReserve, &[map.into(), size, Operand::Imm(0)])
    }

    /// Hands the record over, and ends.
    pub(super) fn submit(&mut self, record: Value) {
        self.b.at(None, "hand it over");
        self.b
            .call(Helper::RingbufSubmit, &[record.into(), Operand::Imm(0)]);
        let end = self.end;
        self.b.jump(end, &[]);
    }

    pub(super) fn header(&mut self, record: Value) {
        self.b.at(None, "event");
        let event = self.id.event as i32;
        let event = if self.id.shared {
            let which = self.which();
            Operand::Value(self.b.add(which, event))
        } else {
            Operand::Imm(event)
        };
        self.b.store(Width::B4, record, wire::EVENT as i16, event);
        self.b.note("cpu");
        let cpu = self.builtin(Builtin::Cpu);
        self.b.store(Width::B4, record, wire::CPU as i16, cpu);
        self.b.note("time");
        // A program that has looked at the clock already shows that very moment, so that times and durations agree.
        let time = match self.find(&Key::Word(Helper::KtimeGetNs)) {
            Some(known) => known,
            None => self.call(Helper::KtimeGetNs, &[]),
        };
        self.b.store(Width::B8, record, wire::TIME as i16, time);
        self.b.note("pid, tid");
        let both = self.word(Helper::GetCurrentPidTgid);
        // The helper's low half is the thread id, so one store fills both fields.
        self.b.store(Width::B8, record, wire::TID as i16, both);
    }

    /// Adds 1 to one of the query's counters on this CPU.
    pub(super) fn count(&mut self, which: u32) {
        self.count_of(self.id.query, which);
    }

    /// Adds 1 to one of a query's counters on this CPU.
    pub(super) fn count_of(&mut self, query: usize, which: u32) {
        self.bump(COUNTS, 2 * query as u32 + which);
    }

    /// Adds 1 to a counter on this CPU; a map of them has two for each query.
    pub(super) fn bump(&mut self, map: &str, which: u32) {
        let map = self.b.map(MapData {
            name: map.to_string(),
            kind: MapKind::PercpuArray,
            key_size: 4,
            value_size: 8,
            max_entries: 2 * self.id.queries as u32,
        });
        let key = self.scratch();
        let key = self.b.slot_addr(key);
        self.b.store(Width::B4, key, 0, which as i32);
        let map = self.b.map_addr(map);
        let found = self.call(Helper::MapLookupElem, &[map.into(), key.into()]);
        let there = self.b.block("");
        let done = self.b.block("");
        self.b.branch(CmpOp::Eq, Bits::W64, found, 0, done, there);
        self.b.switch_to(there);
        let counter = self.b.as_ptr(Space::MapValue, found);
        // A program that interrupts this one on the same CPU may count too.
        let one = self.b.iconst(1);
        self.b.atomic_add(Width::B8, counter, 0, one);
        self.b.jump(done, &[]);
        self.b.switch_to(done);
    }

    /// A helper call that has a result.
    pub(super) fn call(&mut self, helper: Helper, args: &[Operand]) -> Value {
        match self.b.call(helper, args) {
            Some(value) => value,
            None => unreachable!("bug in ksnoop-jit: bpf_{} gives nothing back", helper.name()),
        }
    }

    /// The eight bytes that small reads go through.
    pub(super) fn scratch(&mut self) -> Slot {
        match self.scratch {
            Some(slot) => slot,
            None => {
                let slot = self.b.slot(8);
                self.scratch = Some(slot);
                slot
            }
        }
    }

    pub(super) fn find(&self, key: &Key) -> Option<Value> {
        let mut room = match self.target.tight {
            true => super::tight::REMEMBERED,
            false => usize::MAX,
        };
        for known in self.known.iter().rev() {
            // Of these there may be any number; the others are few, or only say that something was done.
            if let Key::Expr(_) | Key::Good(_) = known.key {
                if room == 0 {
                    continue;
                }
                room -= 1;
            }
            if known.key == *key {
                return Some(known.value);
            }
        }
        None
    }

    pub(super) fn learn(&mut self, key: Key, value: Value) {
        self.known.push(Known { key, value });
    }
}
