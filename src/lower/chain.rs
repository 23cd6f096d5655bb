//! Stack mode: events only where the queries' functions call one another, in one task, directly or through others. In: a query
//! and its level in the chain. Out: a program for its entry, which steps down one level, and one for its return, which
//! ends it. Entries are held in the task's state until the innermost function is reached.
//!
//! The state belongs to a task and to the stack that it runs on, as interrupts have stacks of their own. It says for each level
//! where the call's stack frame is. A frame that does not lie above the one of the call at hand is gone, even if nobody
//! saw its return; of calls that recurse the outermost one counts. The state ends with the return of the outermost function,
//! and the map forgets those of tasks that have ended in the middle.

use super::plan::Plan;
use super::program::{Lower, layout, sees};
use super::stash::{self, Keep};
use super::user::Dispatch;
use super::{Id, Lowered, ProgramKind, Target};
use crate::compile::Way;
use crate::ir::{
    BinaryOp, Bits, Block, CmpOp, Helper, MapData, MapKind, Operand, RelocData, RelocKind, Slot, Space, Type,
    Value, Width,
};
use crate::typed::{self, Event, When};
use crate::types::{NameKind, Types};
use crate::wire::{Phase, RecordLayout};

/// So many functions a chain can have: more than are on a kernel stack of 16 KiB at once. Each level adds to every program, and the
/// innermost one's has to stay within the reach of a jump.
pub const LEVELS_MAX: usize = 256;
/// How far apart the frames of one stack of the kernel can be (`THREAD_SIZE`, arch/x86/include/asm/page_64_types.h, which KASAN
/// doubles).
const STACK_SIZE: i32 = 32 << 10;
/// The same for a program's, which `ulimit -s` or the program itself may make as large as it likes.
const USER_STACK_SIZE: i32 = 1 << 30;
/// The most memory that all states take, in bytes, before there are fewer.
const MEMORY: u32 = 8 << 20;
/// Bytes of the state's key: the task; 0, or on a CPU's own stack the CPU's number from 1.
const KEY: u32 = 16;

/// A level whose entry waits to be shown, or that has no entry to show but waits all the same.
const HELD: i32 = 1;
/// A level that has been shown.
const SHOWN: i32 = 2;

/// The functions of a stack-mode run, outermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// For each level the size of its entry's record; 0 if it shows none.
    entries: Vec<u32>,
    /// For each level the functions that may stand there.
    functions: Vec<Vec<String>>,
}

impl Chain {
    /// The chain of these levels, outermost first; each has at least one query, and `functions` are all those that may stand
    /// there. An error is a sentence: why they can't be one.
    pub fn new(levels: &[Vec<&typed::Query>], functions: Vec<Vec<String>>) -> Result<Chain, String> {
        if levels.len() < 2 {
            return Err("stack mode takes at least two functions, the caller first".to_string());
        }
        if levels.len() > LEVELS_MAX {
            return Err(format!("stack mode takes at most {LEVELS_MAX} functions"));
        }
        let id = Id {
            event: 0,
            query: 0,
            queries: 1,
            shared: false,
            keepers: 1,
        };
        let mut all = levels.iter().flatten();
        let in_program = |query: &&&typed::Query| query.probe.user().is_some();
        let first = all.next().is_some_and(|query| in_program(&query));
        if all.any(|query| in_program(&query) != first) {
            return Err(
                "stack mode takes functions of the kernel or of programs, not of both: they run on different stacks"
                    .to_string(),
            );
        }
        let mut entries = Vec::new();
        for queries in levels {
            let mut most = 0;
            for query in queries {
                if query.aggregate.is_some() {
                    return Err("stack mode shows single calls, which an aggregation does not".to_string());
                }
                if query.events.iter().any(|event| event.phase == Phase::Hit) {
                    return Err(format!(
                        "stack mode takes functions only: `{}` calls nothing",
                        query.probe.func().name
                    ));
                }
                let entry = query.events.iter().find(|event| event.phase == Phase::Entry);
                most = most.max(entry.map_or(0, |event| layout(event, "", id).size));
            }
            entries.push(most);
        }
        Ok(Chain { entries, functions })
    }

    fn levels(&self) -> usize {
        self.entries.len()
    }

    /// Where the state has the frame of a level; the innermost one needs none.
    fn frame(level: usize) -> i16 {
        8 * level as i16
    }

    /// Where it has whether the level is held or shown.
    fn state(&self, level: usize) -> i16 {
        8 * (self.levels() - 1 + level) as i16
    }

    /// Where it has the record of a held entry.
    fn image(&self, level: usize) -> u32 {
        16 * (self.levels() - 1) as u32 + self.entries[..level].iter().sum::<u32>()
    }

    fn map(&self) -> MapData {
        let size = self.image(self.levels() - 1);
        MapData {
            name: "chain".to_string(),
            kind: MapKind::LruHash,
            key_size: KEY,
            value_size: size,
            max_entries: (MEMORY / size).clamp(256, 8192),
        }
    }

    /// An empty state, to make others from.
    fn empty(&self) -> MapData {
        MapData {
            name: "chain_empty".to_string(),
            kind: MapKind::Array,
            key_size: 4,
            max_entries: 1,
            ..self.map()
        }
    }
}

/// The programs of the query at `id.query`, which is its level; `id.event` is the number of its first event, and each of its two
/// events takes `members` numbers. An error is a sentence: what can't be done in this way of attaching.
pub fn lower(
    query: &typed::Query,
    types: &Types,
    target: &Target,
    chain: &Chain,
    way: Way,
    id: Id,
    members: u32,
) -> Result<Vec<Lowered>, String> {
    let (entry_kind, exit_kind) = match way {
        Way::Trampoline => (ProgramKind::Fentry, ProgramKind::Fexit),
        Way::TrampolineMulti => (ProgramKind::FentryMulti, ProgramKind::FexitMulti),
        Way::Kprobe => (ProgramKind::Kprobe, ProgramKind::Kretprobe),
        Way::Uprobe => (ProgramKind::Uprobe, ProgramKind::Uretprobe),
        Way::Session | Way::SessionMulti | Way::KprobeSession | Way::UprobeSession => {
            return Err("stack mode has one program at entries and another at returns".to_string());
        }
    };
    let at = |phase| query.events.iter().find(|event| event.phase == phase);
    let entry_event = at(Phase::Entry);
    let exit_event = at(Phase::Return).or(at(Phase::Both));
    let exit_id = Id {
        event: id.event + entry_event.map_or(0, |_| members),
        ..id
    };
    let mut entry = Lower::new(query, types, target, entry_kind, id);
    let mut exit = Lower::new(query, types, target, exit_kind, exit_id);
    let name = &query.probe.func().name;
    let mut entry_layout = entry_event.map(|event| layout(event, name, id));
    let mut exit_layout = exit_event.map(|event| layout(event, name, exit_id));
    if let Some(event) = entry_event {
        sees(&entry, event, entry_kind)?;
    }
    if let Some(event) = exit_event {
        sees(&exit, event, exit_kind)?;
    }
    let step = Step {
        chain,
        level: id.query,
    };
    let shown = entry_event.zip(entry_layout.as_ref());
    let at_return = exit_event.zip(exit_layout.as_ref());
    let keep = at_return.and_then(|(event, layout)| {
        let plan = Plan::of(event, exit_kind)?;
        Some((event, layout, Keep::new(&exit, layout, &plan)))
    });

    entry.filter_task();
    match &keep {
        Some((event, layout, keep)) => {
            let key = entry.b.slot(stash::KEY);
            entry.else_forget(keep, key, |entry| step.down(entry, shown, exit_event));
            entry.keep(event, layout, keep, key);
        }
        None => step.down(&mut entry, shown, exit_event),
    }
    let end = entry.end;
    entry.b.jump(end, &[]);
    if keep.is_some() {
        // Fault numbers go on counting, so that one list of steps serves both.
        exit.steps = entry.steps.clone();
    }

    let recalled = keep.as_ref().map(|(_, _, keep)| exit.recall(keep));
    step.up(&mut exit);
    match (at_return, &recalled) {
        (Some((event, layout)), Some(recalled)) => {
            exit.predicates(event, |predicate| predicate.when == When::Return);
            exit.show_with_kept(event, layout, recalled);
        }
        (Some((event, layout)), None) => exit.show(event, layout),
        (None, _) => {
            let end = exit.end;
            exit.b.jump(end, &[]);
        }
    }
    if let (Some((_, _, keep)), Some(recalled)) = (&keep, recalled) {
        exit.forget(keep, recalled);
    }

    drop(keep);
    if let Some(layout) = &mut entry_layout {
        layout.set_steps(&entry.steps);
    }
    if let Some(layout) = &mut exit_layout {
        layout.set_steps(&exit.steps);
    }
    // All places of a function of a program have their arguments in the same registers.
    let sites = query
        .probe
        .user()
        .map_or_else(Vec::new, |probe| Dispatch::of_all(probe).served());
    // The return of the innermost function ends nothing: it has no place in the state.
    let returns = exit_event.is_some() || !step.innermost();
    let mut made = vec![Lowered {
        kind: entry_kind,
        func: entry.finish(),
        layout: entry_layout,
        aggregate: None,
        sites: sites.clone(),
    }];
    if returns {
        made.push(Lowered {
            kind: exit_kind,
            func: exit.finish(),
            layout: exit_layout,
            aggregate: None,
            sites,
        });
    }
    Ok(made)
}

/// One level of the chain.
struct Step<'c> {
    chain: &'c Chain,
    level: usize,
}

impl Step<'_> {
    fn innermost(&self) -> bool {
        self.level + 1 == self.chain.levels()
    }

    /// At entry: goes on only where the levels above have been entered and not left, and the predicates hold; then this call
    /// is the chain's.
    fn down(&self, lower: &mut Lower<'_>, shown: Option<(&Event, &RecordLayout)>, at_return: Option<&Event>) {
        let frame = lower.frame();
        let key = lower.chain_key(frame);
        let mut state = None;
        if self.level == 0 {
            // The outermost call makes the state; one of an earlier call may still be there.
            let (older, none) = (lower.b.block("a state"), lower.b.block("no state that counts"));
            lower.b.at(None, "the task's state");
            let map = lower.b.map(self.chain.map());
            let map = lower.b.map_addr(map);
            let at = lower.b.slot_addr(key);
            let found = lower.call(Helper::MapLookupElem, &[map.into(), at.into()]);
            lower.b.branch(CmpOp::Eq, Bits::W64, found, 0, none, older);
            lower.b.switch_to(older);
            let older = lower.b.as_ptr(Space::MapValue, found);
            self.unless_recursing(lower, older, frame);
            self.clear(lower, older);
            lower.b.jump(none, &[]);
            lower.b.switch_to(none);
        } else {
            lower.b.at(None, "the task's state");
            let found = lower.look_up(self.chain.map(), key);
            lower.b.at(None, "have the callers been entered?");
            for level in 0..self.level {
                self.only_inside(lower, found, level, frame);
            }
            if !self.innermost() {
                self.unless_recursing(lower, found, frame);
                self.clear(lower, found);
            }
            state = Some(found);
        }
        lower.filter_moment();
        for event in shown.map(|(event, _)| event).into_iter().chain(at_return) {
            lower.predicates(event, |predicate| predicate.when == When::Entry);
        }
        let state = match state {
            Some(state) => state,
            None => self.make(lower, key),
        };
        if self.innermost() {
            for level in 0..self.level {
                self.show_held(lower, state, level);
            }
            if let Some((event, layout)) = shown {
                // Its predicates have been judged.
                let after = lower.b.block("");
                let end = std::mem::replace(&mut lower.end, after);
                lower.make_record(event, layout);
                lower.end = end;
                lower.b.switch_to(after);
            }
            return;
        }
        if let Some((event, layout)) = shown {
            lower.b.at(None, "hold the entry");
            let image = lower.b.add(state, self.chain.image(self.level) as i32);
            lower.header(image);
            let all: Vec<usize> = (0..event.items.len()).collect();
            let record = lower.record.replace(image);
            lower.items(&event.items, &layout.items, &all);
            lower.record = record;
        }
        lower.b.at(None, "one level down");
        lower
            .b
            .store(Width::B8, state, self.chain.state(self.level), HELD);
        lower.b.store(Width::B8, state, Chain::frame(self.level), frame);
    }

    /// At return: goes on only where this call is the chain's and has been shown.
    fn up(&self, lower: &mut Lower<'_>) {
        let frame = lower.frame();
        let key = lower.chain_key(frame);
        let end = lower.end;
        lower.b.at(None, "the task's state");
        let state = lower.look_up(self.chain.map(), key);
        if self.innermost() {
            lower.b.at(None, "are the callers still there, and shown?");
            for level in 0..self.level {
                self.only_inside(lower, state, level, frame);
            }
            self.only_shown(lower, state, self.level - 1);
            return;
        }
        lower.b.at(None, "is it the chain's call?");
        let own = lower
            .b
            .load(Type::Int, Width::B8, state, Chain::frame(self.level));
        let ours = lower.b.block("");
        lower.b.branch(CmpOp::Ne, Bits::W64, own, frame, end, ours);
        lower.b.switch_to(ours);
        lower.b.at(None, "it ends");
        let shown = lower
            .b
            .load(Type::Int, Width::B8, state, self.chain.state(self.level));
        if self.level == 0 {
            let map = lower.b.map(self.chain.map());
            let map = lower.b.map_addr(map);
            let at = lower.b.slot_addr(key);
            lower.call(Helper::MapDeleteElem, &[map.into(), at.into()]);
        } else {
            self.clear(lower, state);
        }
        let go_on = lower.b.block("it was shown");
        lower.b.branch(CmpOp::Ne, Bits::W64, shown, SHOWN, end, go_on);
        lower.b.switch_to(go_on);
    }

    fn only_shown(&self, lower: &mut Lower<'_>, state: Value, level: usize) {
        let shown = lower.b.load(Type::Int, Width::B8, state, self.chain.state(level));
        let (go_on, end) = (lower.b.block(""), lower.end);
        lower.b.branch(CmpOp::Ne, Bits::W64, shown, SHOWN, end, go_on);
        lower.b.switch_to(go_on);
    }

    /// How far above a frame that of a level lies; a huge number if it is below, on another stack, or there is none.
    fn distance(&self, lower: &mut Lower<'_>, state: Value, level: usize, frame: Value) -> Value {
        let other = lower.b.load(Type::Int, Width::B8, state, Chain::frame(level));
        lower.b.binary(BinaryOp::Sub, Bits::W64, other, frame)
    }

    /// Ends the program for a call that is not inside the one of a level above.
    fn only_inside(&self, lower: &mut Lower<'_>, state: Value, level: usize, frame: Value) {
        let above = self.distance(lower, state, level, frame);
        let (go_on, end) = (lower.b.block(""), lower.end);
        // A function that is called last of all, by a jump, has its frame where the caller's was. But the same function there
        // is the same call.
        let same = self.chain.functions[level]
            .iter()
            .any(|name| self.chain.functions[self.level].contains(name));
        let (above, limit) = if same {
            (lower.b.add(above, -1), lower.stack_size() - 1)
        } else {
            (above, lower.stack_size())
        };
        lower.b.branch(CmpOp::Uge, Bits::W64, above, limit, end, go_on);
        lower.b.switch_to(go_on);
    }

    /// Ends the program for a call inside another one of the same level.
    fn unless_recursing(&self, lower: &mut Lower<'_>, state: Value, frame: Value) {
        lower.b.at(None, "inside another call of it?");
        let above = self.distance(lower, state, self.level, frame);
        // At the very same place the other one can't be there any more.
        let above = lower.b.add(above, -1);
        let (go_on, end, size) = (lower.b.block(""), lower.end, lower.stack_size());
        lower.b.branch(CmpOp::Ult, Bits::W64, above, size - 1, end, go_on);
        lower.b.switch_to(go_on);
    }

    /// Forgets this level and those below.
    fn clear(&self, lower: &mut Lower<'_>, state: Value) {
        for level in self.level..self.chain.levels() - 1 {
            lower.b.store(Width::B8, state, Chain::frame(level), 0);
            lower.b.store(Width::B8, state, self.chain.state(level), 0);
        }
    }

    /// A new state for the task.
    fn make(&self, lower: &mut Lower<'_>, key: Slot) -> Value {
        lower.b.at(None, "an empty state");
        let zero = lower.scratch();
        let at = lower.b.slot_addr(zero);
        lower.b.store(Width::B8, at, 0, 0);
        let empty = lower.look_up(self.chain.empty(), zero);
        let map = lower.b.map(self.chain.map());
        let map = lower.b.map_addr(map);
        let at = lower.b.slot_addr(key);
        lower.call(
            Helper::MapUpdateElem,
            &[map.into(), at.into(), empty.into(), Operand::Imm(0)],
        );
        let lost = lower.b.block("no room: count it as lost");
        let end = std::mem::replace(&mut lower.end, lost);
        let state = lower.look_up(self.chain.map(), key);
        lower.end = end;
        let go_on = lower.b.block("the state");
        lower.b.jump(go_on, &[]);
        lower.b.switch_to(lost);
        lower.count(0);
        lower.b.jump(end, &[]);
        lower.b.switch_to(go_on);
        state
    }

    /// Shows the entry of a level, if it waits.
    fn show_held(&self, lower: &mut Lower<'_>, state: Value, level: usize) {
        let at = self.chain.state(level);
        let waits = lower.b.load(Type::Int, Width::B8, state, at);
        let (show, next) = (lower.b.block("it waits"), lower.b.block(""));
        lower.b.branch(CmpOp::Ne, Bits::W64, waits, HELD, next, show);
        lower.b.switch_to(show);
        lower.b.at(None, "show the held entry");
        lower.b.store(Width::B8, state, at, SHOWN);
        let size = self.chain.entries[level];
        if size > 0 {
            self.copy_out(lower, state, level, size, next);
        }
        lower.b.jump(next, &[]);
        lower.b.switch_to(next);
    }

    fn copy_out(&self, lower: &mut Lower<'_>, state: Value, level: usize, size: u32, next: Block) {
        let maybe = lower.maybe_record(size);
        let (lost, room) = (
            lower.b.block("no room: count it as lost"),
            lower.b.block("the record"),
        );
        lower.b.branch(CmpOp::Eq, Bits::W64, maybe, 0, lost, room);
        lower.b.switch_to(lost);
        lower.count_of(level, 0);
        lower.b.jump(next, &[]);
        lower.b.switch_to(room);
        let record = lower.b.as_ptr(Space::Record, maybe);
        let image = lower.b.add(state, self.chain.image(level) as i32);
        lower.copy_own(image, record, size);
        lower
            .b
            .call(Helper::RingbufSubmit, &[record.into(), Operand::Imm(0)]);
    }
}

impl Lower<'_> {
    /// How far apart the frames of one stack can be.
    fn stack_size(&self) -> i32 {
        match self.query.probe.user() {
            Some(_) => USER_STACK_SIZE,
            None => STACK_SIZE,
        }
    }

    /// The key of the state of this task on this stack.
    fn chain_key(&mut self, frame: Value) -> Slot {
        let key = self.b.slot(KEY);
        // By its address: the idle tasks, one for each CPU, have one id between them.
        self.b.at(None, "the task");
        let task = self.call(Helper::GetCurrentTask, &[]);
        let at = self.b.slot_addr(key);
        self.b.store(Width::B8, at, 0, task);
        if self.query.probe.user().is_some() {
            let own = self.b.iconst(0);
            self.b.store(Width::B8, at, 8, own);
            return key;
        }
        // Interrupts run on stacks of the CPU's.
        self.b.at(None, "on the task's own stack?");
        let (own, other) = (self.b.block("its own"), self.b.block("the CPU's"));
        let (join, which) = self.b.block_with("", &[Type::Int]);
        let distance = match self.task_stack(task) {
            Some(stack) => self.b.binary(BinaryOp::Sub, Bits::W64, frame, stack),
            // Types without `struct task_struct` are no kernel's.
            None => self.b.iconst(0),
        };
        self.b
            .branch(CmpOp::Ult, Bits::W64, distance, STACK_SIZE, own, other);
        self.b.switch_to(own);
        let zero = self.b.iconst(0);
        self.b.jump(join, &[zero]);
        self.b.switch_to(other);
        let cpu = self.call(Helper::GetSmpProcessorId, &[]);
        let cpu = self.b.add(cpu, 1);
        self.b.jump(join, &[cpu]);
        self.b.switch_to(join);
        let at = self.b.slot_addr(key);
        self.b.store(Width::B8, at, 8, which[0]);
        key
    }

    /// Where the task's own stack begins: `task_struct.stack`.
    fn task_stack(&mut self, task: Value) -> Option<Value> {
        let root = self
            .types
            .find(NameKind::Struct, "task_struct")
            .first()
            .copied()?;
        let member = self.types.member(root, "stack").ok()?;
        let mut access = vec![0];
        access.extend(member.indices);
        let reloc = self.b.reloc(RelocData {
            kind: RelocKind::FieldByteOffset,
            root: member.root,
            access,
            text: "struct task_struct.stack".to_string(),
            kernel: u64::from(member.bit_offset / 8),
        });
        let address = self.b.field_addr(task, reloc);
        let slot = self.scratch();
        Some(self.probe_into(slot, 8, address, typed::Memory::Kernel, None))
    }
}
