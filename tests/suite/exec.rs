//! Programs run, as the loader would leave them, over made-up structs, and what they write is compared with what the
//! reference says. Types, memory and queries are random with fixed seeds; a few queries are written by hand for what is rare.

use ksnoop_jit::ir::generate::Rng;
use ksnoop_jit::lower::Reads;
use ksnoop_jit::sema::Limits;
use ksnoop_jit::types::testing::mini_kernel;
use ksnoop_jit::types::{Func, Types};
use ksnoop_jit::wire::{self, ItemLayout, ValueLayout};
use ksnoop_jit::{codegen, parser};

use super::machine::{Machine, Moment, Region, number};
use super::made::{Generator, moment, random_types};
use super::reference::{Shown, Verdict, World};
use super::running::{Built, Way, build, context};

/// How programs are run.
pub(super) const WAYS: [Way; 5] = [
    way(false, Reads::Auto, false),
    way(true, Reads::Auto, false),
    way(true, Reads::Probe, false),
    way(false, Reads::Auto, true),
    way(true, Reads::Auto, true),
];

const fn way(typed: bool, reads: Reads, tight: bool) -> Way {
    Way { typed, reads, tight }
}

/// Whether typed pointers are read by plain loads, which give 0 where nothing is.
pub(super) fn forgiving(way: Way) -> bool {
    way.typed && way.reads == Reads::Auto
}

/// Where user strings are.
pub(super) const USER: u64 = 0x7f00_0000_0000;

pub(super) fn kernel_base(index: usize) -> u64 {
    0xffff_8880_0000_0000 + ((index as u64) << 24)
}

/// What is the same for all queries of a round.
struct Stage<'a> {
    types: &'a Types,
    func: Func,
    memory: &'a dyn Fn() -> Vec<Region>,
    args: Vec<u64>,
    moment: Moment,
}

/// What came of all runs.
#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    passed: usize,
    faults: usize,
    refused: usize,
}

impl Stage<'_> {
    /// Runs a program and compares.
    fn check(&self, built: &Built, tally: &mut Tally) {
        let Built {
            text,
            way,
            artifact,
            code,
        } = built;
        let query = match parser::parse(text) {
            Ok(query) => query,
            Err(diags) => panic!("{text}: {diags}"),
        };
        let way = *way;
        let (context, caller) = context(way, &self.args);
        let mut memory = (self.memory)();
        memory.push(caller);
        let mut machine = Machine::new(memory, self.moment.clone());
        machine.forgiving = forgiving(way);
        let fail = |why: &str| -> ! {
            let program = &artifact.object.programs[0];
            panic!(
                "{text}\n{way:?}, arguments {:#x?}\n{why}\n{}",
                self.args,
                codegen::listing(program, text, Some(code))
            )
        };
        if let Err(error) = machine.run(code, &context) {
            fail(&error);
        }
        let world = World {
            types: self.types,
            func: &self.func,
            args: &self.args,
            machine: &machine,
            moment: &self.moment,
        };
        let verdict = world.judge(text, &query);
        tally.runs += 1;
        if verdict.passes != (machine.records.len() == 1) {
            fail(&format!(
                "{} records, but the reference says {}",
                machine.records.len(),
                verdict.passes
            ));
        }
        let Some(record) = machine.records.first() else {
            return;
        };
        tally.passed += 1;
        let Some(layout) = &artifact.programs[0].layout else {
            fail("no layout");
        };
        if record.len() != layout.size as usize {
            fail("the record has another size than its layout");
        }
        if let Err(why) = self.header(record) {
            fail(&why);
        }
        for item in &layout.items {
            match self.item(&world, &verdict, item, record) {
                Ok(fault) => tally.faults += usize::from(fault),
                Err(why) => fail(&format!("`{}`: {why}", item.label)),
            }
        }
        for (label, _) in &verdict.shown {
            // `sizeof` makes a constant of anything.
            let mentions = label.contains("->") && !label.contains("sizeof");
            if mentions && !layout.items.iter().any(|item| item.label == *label) {
                fail(&format!("`{label}` is not shown"));
            }
        }
    }

    fn header(&self, record: &[u8]) -> Result<(), String> {
        let word = |at: u32, size: usize| number(&record[at as usize..at as usize + size]);
        let got = [
            word(wire::CPU, 4),
            word(wire::TIME, 8),
            word(wire::TID, 4),
            word(wire::PID, 4),
        ];
        let want = [
            u64::from(self.moment.cpu),
            self.moment.ktime,
            self.moment.pid_tgid & 0xffff_ffff,
            self.moment.pid_tgid >> 32,
        ];
        if got == want {
            Ok(())
        } else {
            Err(format!("the header is {got:x?}, not {want:x?}"))
        }
    }

    /// Compares one item; says whether it is a fault.
    fn item(
        &self,
        world: &World<'_>,
        verdict: &Verdict,
        item: &ItemLayout,
        record: &[u8],
    ) -> Result<bool, String> {
        let Some((_, shown)) = verdict.shown.iter().find(|(label, _)| *label == item.label) else {
            return Err("the reference shows no such thing".to_string());
        };
        let at = item.offset as usize;
        let fault = number(&record[at..at + 4]) as u32;
        let length = (number(&record[at + 4..at + 8]) as u32 & !wire::CUT) as usize;
        let value = &record[at + 8..];
        let word = number(&value[..8]);
        let own_fault = fault >> 31 == 1;
        let step = fault != 0 && !own_fault;
        if step && fault as usize > item.steps.len() {
            return Err(format!("fault {fault} names no step"));
        }
        let told = format!("{shown:x?}, but the record has fault {fault:#x}, {word:#x}");
        let right = match (shown, &item.value) {
            (Shown::Fault, _) => step,
            (Shown::Scalar(want), ValueLayout::Scalar)
            | (Shown::Pointer(want, None), ValueLayout::Scalar) => fault == 0 && word == *want,
            (Shown::Pointer(want, Some(size)), ValueLayout::Pointee { copied, .. }) => {
                let size = (*size).min(Limits::default().bytes);
                let found = world.kernel(*want, size as usize);
                *copied == size
                    && word == *want
                    && match found {
                        Ok(bytes) => fault == 0 && value[8..8 + bytes.len()] == *bytes,
                        Err(_) => own_fault,
                    }
            }
            (Shown::Memory(address, size), ValueLayout::Bytes { copied, .. }) => {
                let size = (*size).min(Limits::default().bytes);
                *copied == size
                    && match world.kernel(*address, size as usize) {
                        Ok(bytes) => fault == 0 && value[..bytes.len()] == *bytes,
                        Err(_) => fault != 0,
                    }
            }
            (Shown::String(address), ValueLayout::String { capacity }) => {
                match string(world, *address, *capacity as usize) {
                    Some(bytes) => fault == 0 && length == bytes.len() && value[..length] == bytes[..],
                    None => own_fault && word == *address,
                }
            }
            (Shown::Comm, ValueLayout::String { capacity: 16 }) => {
                fault == 0 && value[..16] == self.moment.comm[..]
            }
            (
                Shown::Scalar(_) | Shown::Pointer(..) | Shown::Memory(..) | Shown::String(_) | Shown::Comm,
                _,
            ) => {
                return Err(format!("{told}, of {:?} as {:?}", item.ty, item.value));
            }
        };
        if right { Ok(fault != 0) } else { Err(told) }
    }
}

/// The string at an address, as far as there is room for it and its NUL.
fn string(world: &World<'_>, address: u64, capacity: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let at = address.wrapping_add(bytes.len() as u64);
        let byte = world.machine.bytes(at, 1)?[0];
        if byte == 0 {
            return Some(bytes);
        }
        bytes.push(byte);
        if bytes.len() == capacity {
            bytes.pop();
            return Some(bytes);
        }
    }
}

/// Rounds of random types, each with so many queries over so many contents.
fn random_round(seed: u64, queries: usize, tally: &mut Tally) {
    let mut rng = Rng::new(seed);
    let types = random_types(&mut rng);
    let func = types.functions_named("probe_me")[0].clone();
    for number in 0..queries {
        let way = WAYS[number % WAYS.len()];
        let wild = !forgiving(way);
        let text = Generator::new(rng.bits(), &types, wild).query();
        let Ok(built) = build(&text, &types, way) else {
            tally.refused += 1;
            continue;
        };
        for _ in 0..3 {
            let contents = rng.bits();
            let stage = Stage {
                types: &types,
                func: func.clone(),
                memory: &|| Generator::new(contents, &types, wild).memory(),
                args: Generator::new(rng.bits(), &types, wild).args(),
                moment: moment(&mut rng),
            };
            stage.check(&built, tally);
        }
    }
}

#[test]
fn random_queries_mean_what_the_reference_says() {
    // `KSJ_ROUNDS=10000` looks further than the test does.
    let rounds = std::env::var("KSJ_ROUNDS").ok().and_then(|n| n.parse().ok());
    let rounds = rounds.unwrap_or(27);
    let mut tally = Tally::default();
    for seed in 0..rounds {
        random_round(seed, 20, &mut tally);
    }
    eprintln!("{rounds} rounds: {tally:?}");
    // The generator must not have lost its teeth.
    let expected = rounds as usize * 60;
    assert!(tally.runs > expected / 10 * 9, "{tally:?}");
    assert!(tally.passed > expected / 3, "{tally:?}");
    assert!(tally.faults > expected / 8, "{tally:?}");
}

/// One query over the made-up kernel, with `walk(struct node *node)` and a chain of two nodes.
fn over_nodes(text: &str, comm: &str, name: &[u8]) {
    let types = mini_kernel();
    let func = types.functions_named("walk")[0].clone();
    let mut node = vec![0u8; 24 * 2];
    let base = kernel_base(0);
    let string = kernel_base(1);
    node[0..8].copy_from_slice(&0x8000_0000_0000_0001u64.to_le_bytes());
    node[8..16].copy_from_slice(&(base + 24).to_le_bytes());
    node[16..24].copy_from_slice(&string.to_le_bytes());
    let memory = || {
        vec![
            Region {
                base,
                bytes: node.clone(),
            },
            Region {
                base: string,
                bytes: [name, &[0; 64]].concat(),
            },
        ]
    };
    let mut padded = [0; 16];
    padded[..comm.len()].copy_from_slice(comm.as_bytes());
    let stage = Stage {
        types: &types,
        func,
        memory: &memory,
        args: vec![base],
        moment: Moment {
            comm: padded,
            ..moment(&mut Rng::new(1))
        },
    };
    let mut tally = Tally::default();
    for way in WAYS {
        match build(text, stage.types, way) {
            Ok(built) => stage.check(&built, &mut tally),
            Err(_) => panic!("{text} is refused"),
        }
    }
    assert_eq!(tally.runs, WAYS.len());
}

#[test]
fn chosen_queries_mean_what_the_reference_says() {
    for (name, literal) in [
        (&b"eth0"[..], "eth0"),
        (b"eth\xff", "eth\\xff"),
        (
            b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\xf7",
            "\\xff\\xfe\\xfd\\xfc\\xfb\\xfa\\xf9\\xf8\\xf7",
        ),
        (b"eth01", "eth0"),
        (b"eth", "eth0"),
        (b"", ""),
        (b"x", ""),
        (b"0123456789abcdef0", "0123456789abcdef0"),
        (b"0123456789abcdef1", "0123456789abcdef0"),
    ] {
        over_nodes(&format!("walk(node->name == \"{literal}\")"), "x", name);
        over_nodes(&format!("walk(node->name != \"{literal}\", node->id)"), "x", name);
    }
    for comm in ["bash", "bas", "bash2", "fifteen letters"] {
        over_nodes("walk(comm == \"bash\", node->id)", comm, b"");
        over_nodes("walk(comm != \"fifteen letters\")", comm, b"");
    }
    for text in [
        "walk(node->next->next->id)",
        "walk(!(node->next->next->id == 3))",
        "walk(node->next->next->id == 3 || node->id)",
        "walk(node->id / (node->next->id))",
        "walk((long)node->id / -1, (long)node->id % -1, -(long)node->id)",
        "walk(node->id >> 63, (long)node->id >> 63, (int)node->id)",
        "walk(node->next ? node->next->id : node->next->next->id)",
        "walk(node, node->next, node->next->next, &node->next->id)",
        "walk(*node, *node->next, *node->next->next)",
        "walk(node->name, node->next->name)",
        "walk(is_err(node), is_err((struct node *)-4095), is_err(-4096L))",
        "walk() if node->next->next",
        "walk() if !node->next->next",
        "walk() if !(node->next->next->next == NULL)",
    ] {
        over_nodes(text, "x", b"name");
    }
}

/// What `E:T[N]` copies, by what is in memory: at the place that a value has, or at the address that a pointer holds.
#[test]
fn arrays_by_format_are_the_bytes_that_are_there() {
    let types = mini_kernel();
    let base = kernel_base(0);
    let mut bytes: Vec<u8> = (1..=48).collect();
    bytes[8..16].copy_from_slice(&(base + 24).to_le_bytes());
    for (item, at, size) in [
        ("node:u8[4]", 0, 4),
        ("$arg1:x16[3]", 0, 6),
        ("(u64)node:s8[5]", 0, 5),
        ("node->id:s8[8]", 0, 8),
        ("+8($arg1):u64[2]", 8, 16),
        ("node->next:x32[2]", 24, 8),
        ("*node:u32[6]", 0, 24),
        ("node->next->id:char[3]", 24, 3),
        ("node->next:symbol[1]", 24, 8),
    ] {
        for way in WAYS {
            let text = format!("walk({item})");
            let Ok(built) = build(&text, &types, way) else {
                panic!("{text} is refused");
            };
            let (context, caller) = context(way, &[base]);
            let region = Region {
                base,
                bytes: bytes.clone(),
            };
            let mut machine = Machine::new(vec![region, caller], moment(&mut Rng::new(1)));
            machine.forgiving = forgiving(way);
            if let Err(error) = machine.run(&built.code, &context) {
                panic!("{text}, {way:?}: {error}");
            }
            let Some(layout) = &built.artifact.programs[0].layout else {
                panic!("{text} has no layout");
            };
            let value = (layout.items[0].offset + wire::VALUE) as usize;
            assert_eq!(
                machine.records[0][value..value + size],
                bytes[at..at + size],
                "{text}, {way:?}"
            );
        }
    }
}
