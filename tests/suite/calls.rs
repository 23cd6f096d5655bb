//! Calls of functions, entered and left in any order, by every way of attaching: what is shown of them, and what is kept meanwhile.
//! In: queries for a made-up kernel. Out: verdicts. The machine runs the programs as they would be loaded; who calls what and
//! whose return nobody sees, a test says.

use std::collections::BTreeMap;

use ksnoop_jit::compile::{self, Artifact, Job, Way};
use ksnoop_jit::ir::{MapData, MapKind};
use ksnoop_jit::lower::chain::{Chain, LEVELS_MAX};
use ksnoop_jit::lower::{self, ProgramKind, Target};
use ksnoop_jit::sema::Limits;
use ksnoop_jit::typed;
use ksnoop_jit::types::Types;
use ksnoop_jit::types::testing::mini_kernel;
use ksnoop_jit::wire;

use super::machine::{CPUS, EVENTS_MAP, FIRST_MAP, Machine, Map, Moment, number};

/// Every way in which functions are attached.
const WAYS: [Way; 6] = [
    Way::Trampoline,
    Way::Session,
    Way::TrampolineMulti,
    Way::SessionMulti,
    Way::Kprobe,
    Way::KprobeSession,
];

/// How programs are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    /// As usual.
    Plain,
    /// As if the stack had no room for them otherwise.
    Tight,
    /// In stack mode.
    Stack,
}

/// Every way, with programs of both kinds.
pub(super) fn ways() -> impl Iterator<Item = (Way, Mode)> {
    [Mode::Plain, Mode::Tight]
        .into_iter()
        .flat_map(|mode| WAYS.map(|way| (way, mode)))
}

/// One call of a function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// Which of the queries' functions, and which of the functions that its programs serve.
    pub(super) level: usize,
    pub(super) which: u64,
    pub(super) args: [u64; 3],
    pub(super) result: u64,
    /// Where the stack pointer is when it is entered.
    pub(super) frame: u64,
    pub(super) thread: u32,
    /// What a session keeps for the call.
    pub(super) word: u64,
}

pub(super) const FRAME: u64 = 0xffff_c900_2000_8000;

pub(super) fn call(size: u64, result: u64) -> Call {
    Call {
        level: 0,
        which: 0,
        args: [0, 0, size],
        result,
        frame: FRAME,
        thread: 100,
        word: 0,
    }
}

/// A program that is attached.
struct Program {
    level: usize,
    kind: ProgramKind,
    code: Vec<u8>,
}

/// Queries that are attached.
pub(super) struct Running {
    pub(super) machine: Machine,
    /// The names of its maps.
    maps: Vec<String>,
    programs: Vec<Program>,
    layouts: Vec<wire::RecordLayout>,
    pub(super) now: u64,
    /// Tasks are on another CPU, another user's, and called `later`, when they return.
    pub(super) moves: bool,
}

/// An event: its number, and its values.
pub(super) type Event = (u32, Vec<u64>);

fn typed(text: &str, types: &Types) -> typed::Query {
    match compile::understand(text, types, Limits::default()) {
        Ok(resolved) => resolved.query,
        Err(diags) => panic!("{text}: {diags:?}"),
    }
}

impl Running {
    pub(super) fn new(texts: &[&str], way: Way, mode: Mode) -> Running {
        let types = mini_kernel();
        let queries: Vec<typed::Query> = texts.iter().map(|text| typed(text, &types)).collect();
        let levels: Vec<Vec<&typed::Query>> = queries.iter().map(|query| vec![query]).collect();
        let names = |query: &typed::Query| vec![query.probe.func().name.clone()];
        let names = || queries.iter().map(names).collect();
        let chain = (mode == Mode::Stack).then(|| match Chain::new(&levels, names()) {
            Ok(chain) => chain,
            Err(why) => panic!("{why}"),
        });
        let target = Target {
            chain,
            tight: mode == Mode::Tight,
            ..Target::default()
        };
        let mut running = Running {
            machine: Machine::new(Vec::new(), Moment::default()),
            maps: Vec::new(),
            programs: Vec::new(),
            layouts: Vec::new(),
            now: 1000,
            moves: false,
        };
        running.machine.arguments = 3;
        let mut first_event = 0;
        for (level, query) in queries.iter().enumerate() {
            let multi = matches!(way, Way::TrampolineMulti | Way::SessionMulti);
            let job = Job {
                first_event,
                query: level,
                queries: queries.len(),
                members: multi.then_some(2),
                ..Job::alone(way)
            };
            let artifact = match compile::generate(query, &types, &target, job) {
                Ok(artifact) => artifact,
                Err(error) => panic!("{}, {way:?}: {error}", query.text),
            };
            first_event = artifact.next_event;
            running.load(level, &artifact);
        }
        running
    }

    fn load(&mut self, level: usize, artifact: &Artifact) {
        let object = &artifact.object;
        let relocated = match ksnoop_jit_runtime::object::relocate(&object.elf, &object.target_btf) {
            Ok(relocated) => relocated,
            Err(error) => panic!("{error}"),
        };
        for lowered in &artifact.programs {
            let Some(program) = relocated.iter().find(|program| program.name == lowered.func.name) else {
                panic!("{} is not in the object", lowered.func.name);
            };
            let mut code = program.insns.clone();
            for reference in &program.map_refs {
                let map = match object.maps.iter().find(|map| map.name == reference.map) {
                    Some(map) if map.name == "events" => EVENTS_MAP,
                    Some(map) => self.map(map),
                    None => panic!("there is no map {}", reference.map),
                };
                code[reference.slot * 8 + 4..][..4].copy_from_slice(&(map as u32).to_le_bytes());
            }
            self.programs.push(Program {
                level,
                kind: lowered.kind,
                code,
            });
            self.layouts.extend(lowered.layout.clone());
        }
    }

    /// What stands for a map in the code; programs share those of one name.
    fn map(&mut self, map: &MapData) -> u64 {
        let known = self.maps.iter().position(|name| *name == map.name);
        let index = known.unwrap_or_else(|| {
            let per_cpu = matches!(map.kind, MapKind::PercpuArray | MapKind::PercpuHash);
            let array = matches!(map.kind, MapKind::Array | MapKind::PercpuArray);
            self.machine.add_map(Map {
                key_size: map.key_size as usize,
                value_size: map.value_size as usize,
                max_entries: map.max_entries as usize,
                per_cpu,
                hash: !array,
                entries: BTreeMap::new(),
                bytes: Vec::new(),
            });
            self.maps.push(map.name.clone());
            self.maps.len() - 1
        });
        FIRST_MAP + index as u64
    }

    /// How many entries a map has; `None` if there is no such map.
    fn entries(&self, name: &str) -> Option<usize> {
        let index = self.maps.iter().position(|known| known == name)?;
        Some(self.machine.maps[index].entries.len())
    }

    /// Runs the programs that are at a function's entry or return. Gives the events, and whether the return is to be seen.
    fn hit(&mut self, call: &mut Call, returning: bool) -> (Vec<Event>, bool) {
        let (mut events, mut comes_back) = (Vec::new(), true);
        for program in &self.programs {
            let at_return = match program.kind {
                ProgramKind::Fentry | ProgramKind::FentryMulti | ProgramKind::Kprobe => Some(false),
                ProgramKind::Fexit | ProgramKind::FexitMulti | ProgramKind::Kretprobe => Some(true),
                ProgramKind::Fsession | ProgramKind::FsessionMulti | ProgramKind::KprobeSession => None,
                ProgramKind::TpBtf
                | ProgramKind::RawTp
                | ProgramKind::Uprobe
                | ProgramKind::Uretprobe
                | ProgramKind::UprobeSession => panic!("{:?} is not at a function", program.kind),
            };
            if program.level != call.level || at_return.is_some_and(|at| at != returning) {
                continue;
            }
            let kprobe = matches!(
                program.kind,
                ProgramKind::Kprobe | ProgramKind::Kretprobe | ProgramKind::KprobeSession
            );
            let context = if kprobe {
                // struct pt_regs (arch/x86/include/uapi/asm/ptrace.h); what is not set is anything.
                let mut regs = vec![0x5a; 168];
                let mut set = |at: usize, word: u64| regs[at..at + 8].copy_from_slice(&word.to_le_bytes());
                if returning {
                    set(80, call.result);
                    // The return address is no longer there. A session need not be told where the frame was.
                    set(
                        152,
                        if program.kind == ProgramKind::Kretprobe {
                            call.frame + 8
                        } else {
                            0
                        },
                    );
                } else {
                    for (at, word) in [112, 104, 96].into_iter().zip(call.args) {
                        set(at, word);
                    }
                    set(152, call.frame);
                }
                regs
            } else {
                let words = call.args.iter().chain(std::iter::once(&call.result));
                words.flat_map(|word| word.to_le_bytes()).collect()
            };
            self.now += 10;
            self.machine.at(Moment {
                pid_tgid: (50 << 32) | u64::from(call.thread),
                ktime: self.now,
                cpu: if returning && self.moves { 2 } else { 1 },
                uid_gid: if returning && self.moves { 0 } else { 1000 },
                comm: if returning && self.moves {
                    *b"later\0\0\0\0\0\0\0\0\0\0\0"
                } else {
                    *b"first\0\0\0\0\0\0\0\0\0\0\0"
                },
            });
            self.machine.cookie = call.which;
            self.machine.returning = returning;
            self.machine.call_word = call.word;
            self.machine.context = call.frame - 0x100;
            let ended = match self.machine.run(&program.code, &context) {
                Ok(ended) => ended,
                Err(why) => panic!("{:?}: {why}", program.kind),
            };
            call.word = self.machine.call_word;
            // Only fprobe takes the program's word for it (kernel/trace/bpf_trace.c, `kprobe_multi_link_handler`).
            comes_back &= returning || program.kind != ProgramKind::KprobeSession || ended == 0;
            let layouts = &self.layouts;
            events.extend(
                self.machine
                    .records
                    .drain(..)
                    .map(|record| event(layouts, &record)),
            );
        }
        (events, comes_back)
    }

    pub(super) fn enter(&mut self, call: &mut Call) -> Vec<Event> {
        self.hit(call, false).0
    }

    pub(super) fn leave(&mut self, call: &mut Call) -> Vec<Event> {
        self.hit(call, true).0
    }

    /// How many places for a call's values were made and not given back, as the programs count.
    fn counted(&self) -> u64 {
        self.counter(lower::KEPT, 0) - self.counter(lower::KEPT, 1)
    }

    /// How many conditions faulted.
    pub(super) fn faults(&self) -> u64 {
        self.counter(lower::COUNTS, 1)
    }

    /// The sum of a counter over all CPUs.
    fn counter(&self, map: &str, counter: usize) -> u64 {
        let Some(index) = self.maps.iter().position(|name| name == map) else {
            return 0;
        };
        let all = self.machine.maps[index].bytes.chunks(8);
        all.skip(counter * CPUS).take(CPUS).map(number).sum()
    }

    /// The kernel's map is full: it forgets what one of the calls has kept.
    fn forget_one(&mut self) {
        for (name, map) in self.maps.iter().zip(&mut self.machine.maps) {
            if name.starts_with("kept_") {
                map.entries.pop_first();
            }
        }
    }

    /// How many calls' values are kept.
    pub(super) fn kept(&self) -> usize {
        (0..8)
            .filter_map(|event| self.entries(&format!("kept_{event}")))
            .sum()
    }
}

fn event(layouts: &[wire::RecordLayout], record: &[u8]) -> Event {
    let id = number(&record[..4]) as u32;
    let layout = layouts.iter().find(|layout| {
        (layout.event..layout.event + 2).contains(&id) && record.len() == layout.size as usize
    });
    let Some(layout) = layout else {
        panic!("event {id} of {} bytes", record.len());
    };
    let values = layout.items.iter().map(|item| {
        let at = (item.offset + wire::VALUE) as usize;
        number(&record[at..at + 8])
    });
    (id, values.collect())
}

/// Ways that keep something for this query, which asks how long a call took.
const BOTH: &str = "tcp_sendmsg(size > 5, return > 0) if duration > 0";

#[test]
fn a_call_is_shown_at_its_return_with_what_its_entry_kept() {
    for (way, mode) in ways() {
        let mut running = Running::new(&[BOTH], way, mode);
        let mut one = call(7, 70);
        assert_eq!(running.enter(&mut one), [], "{way:?}");
        assert_eq!(running.kept(), 1, "{way:?}");
        assert_eq!(running.leave(&mut one), [(0, vec![7, 70])], "{way:?}");
        assert_eq!(running.kept(), 0, "{way:?}");
        // What the return's predicate drops is forgotten too.
        let mut one = call(7, 0);
        assert_eq!(running.enter(&mut one), [], "{way:?}");
        assert_eq!(running.leave(&mut one), [], "{way:?}");
        assert_eq!(running.kept(), 0, "{way:?}");
        // A call that was entered before the tool was there.
        assert_eq!(running.leave(&mut call(7, 70)), [], "{way:?}");
    }
}

#[test]
fn calls_that_the_map_forgets_are_counted() {
    for (way, mode) in ways() {
        let mut running = Running::new(&[BOTH], way, mode);
        let mut calls: Vec<Call> = (0..5)
            .map(|thread| Call {
                thread: 100 + thread,
                ..call(7, 70)
            })
            .collect();
        for call in &mut calls {
            running.enter(call);
        }
        // One whose return was missed makes no second place.
        running.enter(&mut Call { ..calls[4] });
        assert_eq!((running.counted(), running.kept()), (5, 5), "{way:?}");
        running.forget_one();
        running.forget_one();
        let mut shown = 0;
        for call in &mut calls[..4] {
            shown += running.leave(call).len();
        }
        // Four have returned, of which two are missing; one is under way.
        assert_eq!(shown, 2, "{way:?}");
        assert_eq!(running.kept(), 1, "{way:?}");
        assert_eq!(running.counted() - running.kept() as u64, 2, "{way:?}");
    }
}

#[test]
fn a_missed_return_is_never_taken_for_a_later_calls() {
    for (way, mode) in ways() {
        let mut running = Running::new(&[BOTH], way, mode);
        running.enter(&mut call(7, 70));
        // At the same place of the stack, but its entry drops it.
        let mut dropped = call(3, 30);
        assert_eq!(running.enter(&mut dropped), [], "{way:?}");
        assert_eq!(
            running.kept(),
            0,
            "{way:?}: what the missed call has kept is still there"
        );
        assert_eq!(running.leave(&mut dropped), [], "{way:?}");
        // One that is wanted has its own values.
        running.enter(&mut call(7, 70));
        let mut wanted = call(9, 90);
        running.enter(&mut wanted);
        assert_eq!(running.kept(), 1, "{way:?}");
        assert_eq!(running.leave(&mut wanted), [(0, vec![9, 90])], "{way:?}");
        assert_eq!(running.kept(), 0, "{way:?}");
    }
}

#[test]
fn calls_inside_each_other_and_of_several_tasks_are_not_mixed() {
    for (way, mode) in ways() {
        let mut running = Running::new(&[BOTH], way, mode);
        let mut outer = call(7, 70);
        let mut inner = Call {
            frame: FRAME - 0x200,
            ..call(8, 80)
        };
        let mut other = Call {
            thread: 101,
            ..call(9, 90)
        };
        for call in [&mut outer, &mut inner, &mut other] {
            running.enter(call);
        }
        assert_eq!(running.kept(), 3, "{way:?}");
        assert_eq!(running.leave(&mut inner), [(0, vec![8, 80])], "{way:?}");
        assert_eq!(running.leave(&mut outer), [(0, vec![7, 70])], "{way:?}");
        assert_eq!(running.leave(&mut other), [(0, vec![9, 90])], "{way:?}");
        assert_eq!(running.kept(), 0, "{way:?}");
    }
}

#[test]
fn functions_that_share_a_program_are_not_mixed() {
    for way in [Way::TrampolineMulti, Way::SessionMulti] {
        let mut running = Running::new(&[BOTH], way, Mode::Plain);
        running.enter(&mut call(7, 70));
        // Its return is missed; another function is called at the same place of the stack.
        let mut second = Call {
            which: 1,
            ..call(9, 90)
        };
        running.enter(&mut second);
        assert_eq!(running.leave(&mut second), [(1, vec![9, 90])], "{way:?}");
    }
}

#[test]
fn what_belongs_to_the_entry_is_shown_there_by_every_way() {
    // Of a scalar, of memory, of nothing at all; with a predicate and without.
    for text in [
        "tcp_sendmsg(size)",
        "tcp_sendmsg(size > 5)",
        "tcp_sendmsg(size, sk->__sk_common.skc_daddr)",
        "tcp_sendmsg()",
        "tcp_sendmsg(msg)",
    ] {
        for (way, mode) in ways() {
            let mut running = Running::new(&[text], way, mode);
            let mut one = call(7, 70);
            let (events, comes_back) = running.hit(&mut one, false);
            assert_eq!(events.len(), 1, "{text}, {way:?}");
            if way == Way::KprobeSession {
                assert!(
                    !comes_back,
                    "{text}: fprobe is not told that nothing is to be done at the return"
                );
            }
            assert_eq!(running.leave(&mut one), [], "{text}, {way:?}");
            assert_eq!(
                running.entries("kept_0"),
                None,
                "{text}, {way:?}: something is kept"
            );
        }
    }
}

#[test]
fn entry_and_return_without_a_predicate_are_an_event_each() {
    for (way, mode) in ways() {
        let mut running = Running::new(&["tcp_sendmsg(size, return)"], way, mode);
        let mut one = call(7, 70);
        let entered = running.enter(&mut one);
        let left = running.leave(&mut one);
        assert_eq!((entered.len(), left.len()), (1, 1), "{way:?}");
        assert_eq!(
            (&entered[0].1[..], &left[0].1[..]),
            (&[7][..], &[70][..]),
            "{way:?}"
        );
        assert_ne!(entered[0].0, left[0].0, "{way:?}");
    }
}

#[test]
fn functions_that_share_a_level_are_told_apart() {
    let queries = ["ip_rcv(skb)", "tcp_sendmsg(size, return)"];
    let mut running = Running::new(&queries, Way::TrampolineMulti, Mode::Stack);
    let mut outer = Call {
        which: 1,
        ..call(0, 1)
    };
    let mut inner = Call {
        level: 1,
        which: 1,
        frame: FRAME - 0x200,
        ..call(7, 70)
    };
    assert_eq!(running.enter(&mut outer), []);
    let shown: Vec<u32> = running.enter(&mut inner).iter().map(|(id, _)| *id).collect();
    // Two numbers for the entries of each level, then two for its returns.
    assert_eq!(shown, [1, 5]);
    assert_eq!(running.leave(&mut inner), [(7, vec![70])]);
}

/// Stack mode; `ip_rcv` calls `tcp_sendmsg` here.
#[test]
fn a_chain_ends_with_frames_that_are_gone_though_nobody_saw_their_return() {
    for way in [Way::Trampoline, Way::TrampolineMulti, Way::Kprobe] {
        let outer = || call(0, 1);
        let inner = |frame: u64| Call {
            level: 1,
            frame,
            ..call(7, 70)
        };
        let queries = ["ip_rcv()", "tcp_sendmsg(size, return)"];
        let mut running = Running::new(&queries, way, Mode::Stack);
        running.enter(&mut outer());
        let mut second = inner(FRAME - 0x200);
        assert_eq!(running.enter(&mut second).len(), 2, "{way:?}");
        assert_eq!(running.leave(&mut second).len(), 1, "{way:?}");
        // The outer return is missed. What is called from further up the stack is not inside of that call.
        let mut beside = inner(FRAME + 0x400);
        assert_eq!(running.enter(&mut beside), [], "{way:?}");
        assert_eq!(running.leave(&mut beside), [], "{way:?}");
        // The next call of the outer function begins a chain of its own, and its return ends it.
        let mut next = outer();
        running.enter(&mut next);
        let mut second = inner(FRAME - 0x200);
        assert_eq!(running.enter(&mut second).len(), 2, "{way:?}");
        running.leave(&mut second);
        running.leave(&mut next);
        assert_eq!(running.enter(&mut inner(FRAME - 0x200)), [], "{way:?}");
        assert_eq!(running.entries("chain"), Some(0), "{way:?}");
    }
}

/// The innermost of the longest chain shows all: no program is longer.
fn innermost(texts: &[&str]) {
    let types = mini_kernel();
    let queries: Vec<typed::Query> = texts.iter().map(|text| typed(text, &types)).collect();
    let levels: Vec<Vec<&typed::Query>> = queries.iter().map(|query| vec![query]).collect();
    let names = queries.iter().map(|query| vec![query.probe.func().name.clone()]);
    let target = Target {
        chain: Chain::new(&levels, names.collect()).ok(),
        ..Target::default()
    };
    assert!(target.chain.is_some());
    for way in [Way::Trampoline, Way::TrampolineMulti, Way::Kprobe] {
        let job = Job {
            first_event: 2 * texts.len() as u32,
            query: texts.len() - 1,
            queries: texts.len(),
            ..Job::alone(way)
        };
        match compile::generate(&queries[texts.len() - 1], &types, &target, job) {
            Ok(artifact) => assert!(!artifact.programs.is_empty(), "{way:?}"),
            Err(error) => panic!("{way:?}: {error}"),
        }
    }
}

#[test]
fn a_chain_can_be_as_long_as_calls_are_deep() {
    let queries: Vec<&str> = ["ip_rcv()", "tcp_sendmsg(size)"]
        .into_iter()
        .cycle()
        .take(LEVELS_MAX)
        .collect();
    innermost(&queries);
    const LEVELS: usize = 64;
    for way in [Way::Trampoline, Way::Kprobe] {
        let mut running = Running::new(&queries[..LEVELS], way, Mode::Stack);
        for level in 0..LEVELS {
            let mut deeper = Call {
                level,
                frame: FRAME - 0x40 * level as u64,
                ..call(level as u64, 0)
            };
            let events = running.enter(&mut deeper);
            let last = level + 1 == LEVELS;
            assert_eq!(events.len(), if last { LEVELS } else { 0 }, "{way:?}, {level}");
            if last {
                let sizes: Vec<u64> = events.into_iter().flat_map(|(_, values)| values).collect();
                assert!(sizes.into_iter().eq((1..LEVELS as u64).step_by(2)), "{way:?}");
            }
        }
    }
}
