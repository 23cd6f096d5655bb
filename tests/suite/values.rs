//! Values of rows of the table in `cases` that need memory of a certain form: programs run over a made-up struct, and what they
//! show is compared with what was put there.

use ksnoop_jit::display::{Layout as Style, NoSymbols, Options, Printer};
use ksnoop_jit::ir::generate::Rng;
use ksnoop_jit::types::testing::{Builder, Layout, types_of};
use ksnoop_jit::types::{NameKind, Types};

use super::exec::{USER, WAYS, kernel_base};
use super::machine::{Machine, Region};
use super::made::moment;
use super::running::{build, context};

/// `look(struct thing *t, char *name, struct opt opt, enum reason fn)`.
fn types() -> Types {
    let mut b = Builder::new();
    let (byte, int, long) = (b.ty("u8"), b.ty("int"), b.ty("long int"));
    let header = Layout::structure().bits("ihl", byte, 4).bits("version", byte, 4);
    let header = b.composite("header", header);
    b.enum_("item", &[("FREE", 0), ("ACTIVE", 1), ("MLOCK", 2)]);
    let reason = b.enum_(
        "reason",
        &[("NOT_DROPPED", 0), ("NO_SOCKET", 3), ("PKT_TOO_SMALL", 4)],
    );
    let (stat, three) = (b.array(long, 3), b.array(int, 3));
    let thing = Layout::structure()
        .field("hdr", header)
        .field("why", reason)
        .field("stat", stat)
        .field("x", three);
    let thing = b.composite("thing", thing);
    let thing = b.ptr(thing);
    let address = b.ptr(0);
    let opt = Layout::structure()
        .field("ptr", address)
        .bits("is_kernel", b.ty("bool"), 1);
    let opt = b.composite("opt", opt);
    let name = b.const_ptr(b.ty("char"));
    b.func(
        "look",
        int,
        &[("t", thing), ("name", name), ("opt", opt), ("fn", reason)],
    );
    types_of(&b.writer)
}

/// The struct that `t` points to.
fn thing(types: &Types) -> Vec<u8> {
    let id = types.find(NameKind::Struct, "thing")[0];
    let mut bytes = vec![0u8; types.size_of(id).unwrap_or(0) as usize + 64];
    let mut put = |member: &str, what: &[u8]| {
        let Ok(found) = types.member(id, member) else {
            panic!("no member {member}");
        };
        bytes[found.bit_offset as usize / 8..][..what.len()].copy_from_slice(what);
    };
    // As the first byte of an IPv4 packet without options.
    put("hdr", &[0x45]);
    put("why", &4u32.to_le_bytes());
    let stat: Vec<u8> = [11i64, -22, 33].iter().flat_map(|n| n.to_le_bytes()).collect();
    put("stat", &stat);
    let x: Vec<u8> = [-1i32, -2, 3].iter().flat_map(|n| n.to_le_bytes()).collect();
    put("x", &x);
    bytes
}

#[test]
fn what_was_put_there_is_shown_and_compared() {
    let types = types();
    let args = [kernel_base(0), USER, 0x1000, 1, 3];
    for (query, shown) in [
        (
            "look(t->hdr.version == 4, t->hdr.ihl)",
            Some("t->hdr.version=4, t->hdr.ihl=5"),
        ),
        ("look(t->hdr.version == 5)", None),
        (
            "look(t->stat[ACTIVE], t->stat[MLOCK] == 33)",
            Some("t->stat[ACTIVE]=-22, t->stat[MLOCK]=33"),
        ),
        ("look(t->stat[FREE] == 33)", None),
        ("look(t->x[0] == -1, t->x[2])", Some("t->x[0]=-1, t->x[2]=3")),
        ("look(t->why == PKT_TOO_SMALL)", Some("t->why=PKT_TOO_SMALL")),
        ("look(fn == NO_SOCKET)", Some("fn=NO_SOCKET")),
        ("look(fn == PKT_TOO_SMALL)", None),
        ("look(opt.is_kernel)", Some("opt.is_kernel=")),
        (
            "look(opt.is_kernel == 1, (int)opt.is_kernel)",
            Some("(int)opt.is_kernel=1"),
        ),
        ("look(opt.is_kernel == 0)", None),
        (
            "look(name:us) if name == \"/etc/passwd\"",
            Some("name=\"/etc/passwd\""),
        ),
        ("look(name) if name == \"/etc/passw\"", None),
    ] {
        for way in WAYS {
            let Ok(built) = build(query, &types, way) else {
                panic!("{query} is refused");
            };
            let (context, caller) = context(way, &args);
            let memory = vec![
                Region {
                    base: args[0],
                    bytes: thing(&types),
                },
                Region {
                    base: USER,
                    bytes: b"/etc/passwd\0".to_vec(),
                },
                caller,
            ];
            let mut machine = Machine::new(memory, moment(&mut Rng::new(1)));
            if let Err(error) = machine.run(&built.code, &context) {
                panic!("{query}: {error}");
            }
            let mut out = String::new();
            if let (Some(record), Some(layout)) =
                (machine.records.first(), &built.artifact.programs[0].layout)
            {
                let layouts = std::slice::from_ref(layout);
                Printer::new(&types, layouts, Options::new(Style::Compact))
                    .event(record, &mut out, &NoSymbols);
            }
            match shown {
                Some(shown) => assert!(out.contains(shown), "{query} {way:?}: {out}"),
                None => assert!(out.is_empty(), "{query} {way:?}: {out}"),
            }
        }
    }
}
