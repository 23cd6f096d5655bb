//! Strings, patterns, addresses and lengths: programs run over made-up memory, and what they decide and copy is compared with
//! what a few lines of plain code say. Patterns and texts are random with a fixed seed.

use ksnoop_jit::compile;
use ksnoop_jit::display::{Layout as Style, NoSymbols, Options, Printer};
use ksnoop_jit::ir::generate::Rng;
use ksnoop_jit::sema::Limits;
use ksnoop_jit::types::Types;
use ksnoop_jit::types::testing::{Builder, Layout, types_of};
use ksnoop_jit::wire::{self, RecordLayout};

use super::exec::{USER, WAYS, kernel_base};
use super::machine::{Machine, Region, number};
use super::made::moment;
use super::running::{Built, Way, build, context};

/// What a program did.
struct Ran {
    record: Option<Vec<u8>>,
    faults: u64,
    layout: RecordLayout,
}

impl Ran {
    /// The bytes that were copied of an item, or its fault.
    fn copied(&self, index: usize) -> Result<&[u8], u32> {
        let Some(record) = &self.record else {
            panic!("there is no record");
        };
        let item = &record[self.layout.items[index].offset as usize..];
        match number(&item[..4]) as u32 {
            0 => {
                let length = (number(&item[4..8]) as u32 & !wire::CUT) as usize;
                let room = item.len() - wire::VALUE as usize;
                Ok(&item[wire::VALUE as usize..][..length.min(room)])
            }
            fault => Err(fault),
        }
    }

    fn text(&self, types: &Types) -> String {
        let layouts = std::slice::from_ref(&self.layout);
        let mut out = String::new();
        if let Some(record) = &self.record {
            Printer::new(types, layouts, Options::new(Style::Compact)).event(record, &mut out, &NoSymbols);
        }
        out
    }
}

/// `look(struct thing *t, char *s, struct in6 to, long n)`.
fn types() -> Types {
    let mut b = Builder::new();
    let (char, byte, int) = (b.ty("char"), b.ty("u8"), b.ty("int"));
    let octets = b.array(byte, 16);
    let words = b.array(b.ty("u32"), 4);
    let inner = Layout::union()
        .field("u6_addr8", octets)
        .field("u6_addr32", words);
    let inner = b.composite("", inner);
    let in6 = b.composite("in6", Layout::structure().field("in6_u", inner));
    let mac = b.array(byte, 6);
    let name = b.array(char, 16);
    let full = b.array(char, 4);
    let long = b.array(char, 300);
    let string = b.const_ptr(char);
    let bytes = b.ptr(byte);
    let in6_ptr = b.ptr(in6);
    let thing = Layout::structure()
        .field("id", int)
        .field("name", name)
        .field("full", full)
        .field("from", in6)
        .field("mac", mac)
        .field("raw", octets)
        .field("string", string)
        .field("bytes", bytes)
        .field("far", in6_ptr)
        .field("long_name", long)
        .field("count", int);
    let thing = b.composite("thing", thing);
    let thing = b.ptr(thing);
    let string = b.ptr(char);
    let long = b.ty("long int");
    let params = [("t", thing), ("s", string), ("to", in6), ("n", long)];
    b.func("look", int, &params);
    types_of(&b.writer)
}

/// Where things are.
fn thing() -> u64 {
    kernel_base(0)
}
fn text() -> u64 {
    kernel_base(1)
}

/// Members of the thing by name.
fn put(types: &Types, thing: &mut [u8], member: &str, bytes: &[u8]) {
    let id = types.find(ksnoop_jit::types::NameKind::Struct, "thing")[0];
    let Ok(found) = types.member(id, member) else {
        panic!("no member {member}");
    };
    thing[found.bit_offset as usize / 8..][..bytes.len()].copy_from_slice(bytes);
}

struct World {
    types: Types,
    thing: Vec<u8>,
    text: Vec<u8>,
    args: Vec<u64>,
    comm: [u8; 16],
}

impl World {
    fn new() -> World {
        let types = types();
        let id = types.find(ksnoop_jit::types::NameKind::Struct, "thing")[0];
        let size = types.size_of(id).unwrap_or(0) as usize;
        let mut world = World {
            thing: vec![0; size + 64],
            types,
            text: vec![0; 8],
            args: vec![thing(), text(), 0x1122_3344, 0x5566_7788 << 32, 0],
            comm: *b"bash\0\0\0\0\0\0\0\0\0\0\0\0",
        };
        world.put("string", &text().to_le_bytes());
        world.put("bytes", &text().to_le_bytes());
        world
    }

    fn put(&mut self, member: &str, bytes: &[u8]) {
        put(&self.types, &mut self.thing, member, bytes);
    }

    /// The query's fate in every way of running it, which must be the same.
    fn run(&self, query: &str) -> Ran {
        let mut all: Vec<Ran> = WAYS
            .into_iter()
            .map(|way| self.run_in(query, way, |_| ()).1)
            .collect();
        for ran in &all {
            assert_eq!(ran.record.is_some(), all[0].record.is_some(), "{query}");
            assert_eq!(ran.faults, all[0].faults, "{query}");
        }
        all.swap_remove(0)
    }

    /// Runs a query, and again with each other memory that `more` gives.
    fn run_in<T>(
        &self,
        query: &str,
        way: Way,
        more: impl FnOnce(&mut dyn FnMut(&World) -> Ran) -> T,
    ) -> (T, Ran) {
        let Ok(built) = build(query, &self.types, way) else {
            panic!("{query} is refused");
        };
        let mut again = |world: &World| world.run_built(query, way, &built);
        let rest = more(&mut again);
        (rest, again(self))
    }

    fn run_built(&self, query: &str, way: Way, built: &Built) -> Ran {
        let (context, caller) = context(way, &self.args);
        let memory = [
            (thing(), self.thing.clone()),
            (text(), self.text.clone()),
            (USER, b"user text\0".repeat(50)),
        ];
        let mut memory: Vec<Region> = memory
            .into_iter()
            .map(|(base, bytes)| Region { base, bytes })
            .collect();
        memory.push(caller);
        let mut now = moment(&mut Rng::new(1));
        now.comm = self.comm;
        let mut machine = Machine::new(memory, now);
        if let Err(error) = machine.run(&built.code, &context) {
            panic!("{query}: {error}");
        }
        let faults = machine.faults();
        let Some(layout) = built.artifact.programs[0].layout.clone() else {
            panic!("{query}: no layout");
        };
        Ran {
            record: machine.records.into_iter().next(),
            faults,
            layout,
        }
    }

    fn passes(&self, query: &str) -> bool {
        self.run(query).record.is_some()
    }
}

/// What a pattern means, the slow way: `*` takes nothing, or a byte and goes on.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => matches(rest, text) || (!text.is_empty() && matches(pattern, &text[1..])),
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|c| *c == b']') else {
                panic!("a set without an end");
            };
            let (set, rest) = (&rest[..end], &rest[end + 1..]);
            let (not, set) = match set {
                [b'!', set @ ..] => (true, set),
                set => (false, set),
            };
            let Some((first, text)) = text.split_first() else {
                return false;
            };
            let mut inside = false;
            let mut at = 0;
            while at < set.len() {
                if at + 2 < set.len() && set[at + 1] == b'-' {
                    inside |= (set[at]..=set[at + 2]).contains(first);
                    at += 3;
                } else {
                    inside |= set[at] == *first;
                    at += 1;
                }
            }
            inside != not && matches(rest, text)
        }
        [b'?', rest @ ..] => !text.is_empty() && matches(rest, &text[1..]),
        [c, rest @ ..] => text.first() == Some(c) && matches(rest, &text[1..]),
    }
}

#[test]
fn random_patterns_match_what_they_mean() {
    let mut rng = Rng::new(7);
    let (mut hits, mut runs) = (0, 0);
    let pieces = [
        "a", "b", "ab", "*", "*", "?", "[ab]", "[!a]", "[a-c]", "[x-z0-9]", "c", "z",
    ];
    let sources = ["s", "t->string", "t->name", "comm", "str(t->bytes)", "str(s, 15)"];
    for round in 0..60 {
        let count = rng.below(7);
        let pattern: String = (0..count).map(|_| pieces[rng.below(pieces.len())]).collect();
        // Now and then one with more characters than are told apart one by one.
        let pattern = if round % 10 == 0 {
            format!("{pattern}*klmnopqrst[ab]*")
        } else {
            pattern
        };
        let worlds: Vec<(World, Vec<u8>)> = (0..20).map(|_| world_of_text(&mut rng, &pattern)).collect();
        // Mostly the short ones, which are quick to compile.
        let source = sources[if rng.below(3) == 0 {
            rng.below(6)
        } else {
            2 + rng.below(2)
        }];
        let query = format!("look({source} =~ \"{pattern}\")");
        let way = WAYS[rng.below(WAYS.len())];
        worlds[0].0.run_in(&query, way, |run| {
            for (world, text) in &worlds {
                let ran = run(world);
                let wanted = matches(pattern.as_bytes(), text);
                assert_eq!(ran.record.is_some(), wanted, "{query} on {text:?}");
                assert_eq!(ran.faults, 0, "{query}");
                runs += 1;
                hits += u32::from(wanted);
            }
        });
    }
    assert!(hits * 8 > runs, "only {hits} of {runs} matched");
}

/// A world in which a short text is everywhere.
fn world_of_text(rng: &mut Rng, pattern: &str) -> (World, Vec<u8>) {
    let mut world = World::new();
    let letters = b"aabbcxz9\xff";
    let mut text: Vec<u8> = Vec::new();
    if rng.below(2) == 0 {
        // One that matches, but for what is changed below.
        let mut pattern = pattern.bytes();
        while let Some(byte) = pattern.next() {
            match byte {
                b'*' => text.extend((0..rng.below(3)).map(|_| letters[rng.below(9)])),
                b'?' => text.push(letters[rng.below(9)]),
                b'[' => {
                    let set: Vec<u8> = pattern.by_ref().take_while(|c| *c != b']').collect();
                    text.push(if set[0] == b'!' { b'z' } else { set[0] });
                }
                byte => text.push(byte),
            }
        }
        if rng.below(3) == 0 && !text.is_empty() {
            let at = rng.below(text.len());
            text[at] = letters[rng.below(9)];
        }
    } else {
        text.extend((0..rng.below(12)).map(|_| letters[rng.below(9)]));
    }
    text.truncate(15);
    let mut padded = [0; 16];
    padded[..text.len()].copy_from_slice(&text);
    world.comm = padded;
    world.put("name", &padded);
    world.text = [&text[..], b"\0abab0123456789"].concat();
    (world, text)
}

#[test]
fn a_pattern_sees_so_much_of_a_long_string() {
    let mut world = World::new();
    for (length, seen) in [
        (63, true),
        (64, true),
        (65, true),
        (255, true),
        (256, false),
        (300, false),
    ] {
        world.text = [&vec![b'x'; length - 4][..], b".ko\0"].concat();
        world.text[0] = b'a';
        // The text ends with `.ko` and a NUL.
        let ran = world.run("look(s =~ \"a*.ko\")");
        assert_eq!(ran.record.is_some(), seen || length - 1 <= 255, "{length}");
        // What begins as it should needs no end.
        assert!(world.passes("look(s =~ \"a*x*\")"), "{length}");
    }
    // Too long is a fault: neither it nor its opposite holds.
    world.text = vec![b'x'; 400];
    for query in ["look(s =~ \"*y\")", "look(!(s =~ \"*y\"))"] {
        let ran = world.run(query);
        assert!(ran.record.is_none(), "{query}");
        assert_eq!(ran.faults, 1, "{query}");
    }
    let ran = world.run("look(x=(int)(s =~ \"*y\"))");
    assert!(
        ran.text(&world.types).contains("<fault: s is too long>"),
        "{}",
        ran.text(&world.types)
    );
    // An array may be as long as it is.
    let mut long = vec![b'y'; 300];
    long[299] = b'z';
    world.put("long_name", &long);
    assert_eq!(world.run("look(t->long_name =~ \"*z\")").faults, 1);
    assert!(world.passes("look(t->long_name =~ \"*yy*\")"));
}

#[test]
fn strings_of_every_length_are_compared() {
    let mut world = World::new();
    for length in [0usize, 1, 7, 8, 9, 62, 63, 64, 65, 127, 128, 129, 200] {
        let text: Vec<u8> = (0..length).map(|at| b'a' + (at % 26) as u8).collect();
        let literal = String::from_utf8_lossy(&text).into_owned();
        for (bytes, same) in [
            ([&text[..], b"\0tail"].concat(), true),
            ([&text[..], b"x\0"].concat(), false),
            ([&text[..length.saturating_sub(1)], b"\0\0"].concat(), length == 0),
        ] {
            world.text = bytes;
            assert_eq!(
                world.passes(&format!("look(s == \"{literal}\")")),
                same,
                "{length}"
            );
            assert_eq!(
                world.passes(&format!("look(s != \"{literal}\")")),
                !same,
                "{length}"
            );
        }
    }
    // An array that is full has no NUL.
    world.put("full", b"abcd");
    assert!(world.passes("look(t->full == \"abcd\")"));
    assert!(!world.passes("look(t->full == \"abc\")"));
    assert!(!world.passes("look(t->full == \"abcdt\")"));
    assert!(world.passes("look(t->full =~ \"*d\")"));
    assert!(world.passes("look(t->full =~ \"abc?\")"));
    assert!(!world.passes("look(t->full =~ \"abcd?\")"));
    // A given length ends the string.
    world.text = b"abcdefgh\0".to_vec();
    for (query, holds) in [
        ("look(str(s, 4) == \"abcd\")", true),
        ("look(str(s, 4) == \"abcde\")", false),
        ("look(str(s, 4) == \"abc\")", false),
        ("look(str(s, 8) == \"abcdefgh\")", true),
        ("look(str(s, 9) == \"abcdefgh\")", true),
        ("look(str(s, 3) =~ \"*c\")", true),
        ("look(str(s, 3) =~ \"abcd\")", false),
        ("look(func == \"look\")", true),
        ("look(func != \"look\")", false),
        ("look(func =~ \"l??k\")", true),
        ("look(comm == \"bash\")", true),
    ] {
        assert_eq!(world.passes(query), holds, "{query}");
    }
    // Kernel or user: the address tells, or the query does.
    world.args[1] = USER;
    assert!(world.passes("look(s == \"user text\")"));
    assert!(world.passes("look(s =~ \"u*t\", ustr(s, 4) == \"user\")"));
}

#[test]
fn addresses_are_compared_byte_for_byte() {
    let mut world = World::new();
    let mut v6 = [0u8; 16];
    v6[15] = 1;
    world.put("from", &v6);
    world.put("raw", &v6);
    world.put("mac", &[2, 0, 0x5e, 0x10, 0, 1]);
    world.put("far", &(text() + 3).to_le_bytes());
    world.text = [&[2, 0, 0x5e][..], &v6, &[9; 16]].concat();
    let to: Vec<u8> = [world.args[2].to_le_bytes(), world.args[3].to_le_bytes()].concat();
    let to = std::net::Ipv6Addr::from(<[u8; 16]>::try_from(to.as_slice()).unwrap_or_default());
    for (query, holds) in [
        ("look(t->from == ip(\"::1\"))".to_string(), true),
        ("look(t->from != ip(\"::1\"))".to_string(), false),
        ("look(ip(\"::1\") == t->raw)".to_string(), true),
        ("look(t->raw == ip(\"::2\"))".to_string(), false),
        ("look(t->from == ip(\"1::1\"))".to_string(), false),
        (
            "look(t->far == ip(\"::1\"), *t->far == ip(\"::1\"))".to_string(),
            true,
        ),
        ("look(t->mac == mac(\"02:00:5e:10:00:01\"))".to_string(), true),
        ("look(t->mac == mac(\"02-00-5E-10-00-1\"))".to_string(), true),
        ("look(t->mac != mac(\"02:00:5e:10:00:02\"))".to_string(), true),
        ("look(t->bytes == mac(\"02:00:5e:00:00:00\"))".to_string(), true),
        (format!("look(to == ip(\"{to}\"))"), true),
        (format!("look(to.in6_u.u6_addr8 != ip(\"{to}\"))"), false),
        ("look(to.in6_u.u6_addr32[0] == 0x11223344)".to_string(), true),
    ] {
        assert_eq!(world.passes(&query), holds, "{query}");
    }
    // What is compared with an address is shown as one.
    let shown = world.run("look(t->from == ip(\"::1\"), t->mac == mac(\"02:00:5e:10:00:01\"), t->bytes:mac)");
    let shown = shown.text(&world.types);
    assert!(
        shown.contains("t->from=::1, t->mac=02:00:5e:10:00:01, t->bytes=02:00:5e:00:00:00"),
        "{shown}"
    );
    // A bad pointer is a fault, and neither equal nor unequal.
    world.put("far", &0u64.to_le_bytes());
    for query in ["look(t->far == ip(\"::1\"))", "look(t->far != ip(\"::1\"))"] {
        let ran = world.run(query);
        assert!(ran.record.is_none() && ran.faults == 1, "{query}");
    }
}

#[test]
fn as_many_bytes_as_the_query_says() {
    let mut world = World::new();
    world.text = (0..=255u8).cycle().take(6000).collect();
    let pattern = world.text.clone();
    let ran = world.run("look(buf(s, 5), str(t->bytes + 65, 3), buf(s, n), buf(t->bytes, t->count + 1))");
    assert_eq!(ran.copied(0), Ok(&pattern[..5]));
    assert_eq!(ran.copied(1), Ok(&b"ABC"[..]));
    assert_eq!(ran.copied(2), Ok(&pattern[..0]));
    assert_eq!(ran.copied(3), Ok(&pattern[..1]));
    assert!(
        ran.text(&world.types)
            .contains("buf(s, 5)=\"\\x00\\x01\\x02\\x03\\x04\""),
        "{}",
        ran.text(&world.types)
    );
    for length in [
        1u64,
        63,
        4095,
        4096,
        4097,
        5000,
        1 << 31,
        1 << 32,
        i64::MAX as u64,
    ] {
        world.args[4] = length;
        let ran = world.run("look(buf(s, n), str(t->bytes + 1, n))");
        let room = (length as usize).min(4096);
        let copied = ran.copied(0).map(|bytes| bytes.len().min(4096));
        assert_eq!(copied, Ok(room), "{length}");
        assert_eq!(ran.copied(0).map(|bytes| &bytes[..room]), Ok(&pattern[..room]));
        let text = (length as usize).min(255);
        assert_eq!(ran.copied(1), Ok(&pattern[1..][..text]), "{length}");
        let shown = ran.text(&world.types);
        assert_eq!(shown.contains("4096 of "), length > 4096, "{length}: {shown}");
    }
    // A negative length is a fault of the length, an address that is nowhere one of the pointer.
    world.args[4] = -11i64 as u64;
    let ran = world.run("look(buf(s, n), buf(s, (int)n), str(s, n), t->id)");
    let shown = ran.text(&world.types);
    assert!(
        shown.contains("<fault: n is negative>") && shown.contains("<fault: (int)n is negative>"),
        "{shown}"
    );
    world.args[1] = 0x1000;
    world.args[4] = 4;
    let ran = world.run("look(buf(s, n), buf(s, 4))");
    assert!(ran.copied(0).is_err() && ran.copied(1).is_err());
    let ran = world.run("look(buf(t->bytes, n), buf((void *)n, 3))");
    assert_eq!(ran.copied(0), Ok(&pattern[..4]));
    assert!(ran.copied(1).is_err());
    // User memory by its address, or because the query says so.
    world.args[1] = USER + 5;
    for query in [
        "look(buf(s, 4))",
        "look(buf(user(s), n))",
        "look(ustr(s, 4))",
        "look(s:us)",
    ] {
        let ran = world.run(query);
        assert_eq!(ran.copied(0), Ok(&b"text"[..]), "{query}");
    }
}

#[test]
fn the_name_of_what_is_traced() {
    let world = World::new();
    let ran = world.run("look(func, name=func, t->id)");
    assert!(
        ran.text(&world.types).contains("func=\"look\", name=\"look\""),
        "{}",
        ran.text(&world.types)
    );
}

#[test]
fn a_string_that_fills_its_length_may_go_on() {
    let mut world = World::new();
    world.text = b"hello\0".to_vec();
    for (length, shown) in [
        (1u64, "\"h\"..."),
        (4, "\"hell\"..."),
        (5, "\"hello\"..."),
        (6, "\"hello\""),
        (200, "\"hello\""),
        (1 << 40, "\"hello\""),
    ] {
        world.args[4] = length;
        let mut queries = vec![
            "look(str(s, n))".to_string(),
            "look(str(s, (int)n + 0))".to_string(),
        ];
        if length < 1000 {
            queries.push(format!("look(str(s, {length}))"));
        } else {
            queries.remove(1);
        }
        for query in queries {
            let text = world.run(&query).text(&world.types);
            assert!(text.contains(&format!("={shown})")), "{query}: {text}");
        }
    }
}

/// What lies at a per-CPU pointer is another thing on each CPU.
#[test]
fn data_of_this_cpu() {
    let mut world = World::new();
    let cpu = u64::from(moment(&mut Rng::new(1)).cpu);
    let distance: u64 = 0x7_3000;
    let data = 64 * 8;
    world.text = vec![0xee; data];
    world.text[8 * cpu as usize..][..8].copy_from_slice(&distance.to_le_bytes());
    world.text.extend(b"here\0and more");
    let pointer = (text() + data as u64).wrapping_sub(distance);
    world.args[1] = pointer;
    world.types.set_address("__per_cpu_offset", text());
    world.types.set_address("a_symbol", pointer);
    let ran = world.run(
        "look(str(this_cpu_ptr(s)), this_cpu_read(s), this_cpu_read(@a_symbol):u32, this_cpu_ptr(s)[5], this_cpu_read(@a_symbol+5):u8, \
         *(u32 *)this_cpu_ptr(kaddr(\"a_symbol\")))",
    );
    let shown = ran.text(&world.types);
    for part in [
        "str(this_cpu_ptr(s))=\"here\"",
        "this_cpu_read(s)='h'",
        "this_cpu_read(@a_symbol)=1701995880",
        "this_cpu_ptr(s)[5]='a'",
        "this_cpu_read(@a_symbol+5)=97",
        "*(u32 *)this_cpu_ptr(kaddr(\"a_symbol\"))=1701995880",
    ] {
        assert!(shown.contains(part), "no {part} in {shown}");
    }
    // The symbol without which nobody knows where that is.
    let types = types();
    let told = compile::understand("look(this_cpu_read(s))", &types, Limits::default());
    assert!(told.is_err_and(|diags| diags[0].message.contains("where the data of this CPU is")));
}
