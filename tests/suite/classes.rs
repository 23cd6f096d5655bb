//! One test for each kind of mistake that the comparison with C has found, on types that are made for it. The values are those
//! that C gives.

use ksnoop_jit::lower::Reads;
use ksnoop_jit::types::Types;
use ksnoop_jit::types::testing::{Builder, Layout, types_of};
use ksnoop_jit::types::write::Field;
use ksnoop_jit_runtime as runtime;
use runtime::{ObjectSpec, Relocated};

use super::machine::{Machine, Moment, Region, number};
use super::running::{Way, build, context};

const BASE: u64 = 0xffff_8880_0000_0000;

/// The values of a query's items, over bytes that the one argument points to; nothing for a fault.
fn values(types: &Types, text: &str, bytes: &[u8]) -> Vec<Option<u64>> {
    let way = Way {
        typed: true,
        reads: Reads::Probe,
        tight: false,
    };
    let Ok(built) = build(text, types, way) else {
        panic!("{text} is refused");
    };
    let (words, caller) = context(way, &[BASE]);
    let region = Region {
        base: BASE,
        bytes: bytes.to_vec(),
    };
    let mut machine = Machine::new(vec![region, caller], Moment::default());
    if let Err(why) = machine.run(&built.code, &words) {
        panic!("{text}: {why}");
    }
    let Some(layout) = &built.artifact.programs[0].layout else {
        panic!("{text} shows nothing");
    };
    let record = &machine.records[0];
    let word = |at: usize, size: usize| number(&record[at..at + size]);
    layout
        .items
        .iter()
        .map(|item| {
            let at = item.offset as usize;
            (word(at, 4) == 0).then(|| word(at + 8, 8))
        })
        .collect()
}

/// `struct thing` with these members, and `f(struct thing *p)`.
fn taking(make: impl FnOnce(&mut Builder) -> Layout) -> Types {
    let mut b = Builder::new();
    let layout = make(&mut b);
    let thing = b.composite("thing", layout);
    let pointer = b.ptr(thing);
    let int = b.ty("int");
    b.func("f", int, &[("p", pointer)]);
    types_of(&b.writer)
}

#[test]
fn an_enum_constant_that_no_int_holds_has_its_enums_type() {
    let types = taking(|b| {
        b.enum_("wide", &[("MID", 0x8000_0000), ("TOP", 1 << 40), ("ONE", 1)]);
        b.enum_("narrow", &[("BIG", 0x8000_0000)]);
        Layout::structure().field("zero", b.ty("int"))
    });
    let text = "f(a = -MID + p->zero, b = -BIG + p->zero, c = -ONE + p->zero)";
    assert_eq!(
        values(&types, text, &[0; 4]),
        [Some(0xffff_ffff_8000_0000), Some(0x8000_0000), Some(u64::MAX)]
    );
}

#[test]
fn a_cast_to_its_own_type_makes_a_plain_number_of_a_bitfield() {
    let types = taking(|b| Layout::structure().bits("five", b.ty("unsigned int"), 5));
    let text = "f(a = -p->five, b = -(unsigned int)p->five, c = -(unsigned int)(u64)p->five)";
    assert_eq!(
        values(&types, text, &[1, 0, 0, 0]),
        [Some(u64::MAX), Some(0xffff_ffff), Some(0xffff_ffff)]
    );
}

#[test]
fn a_bitfield_in_a_later_element_of_a_pointer() {
    let types = taking(|b| {
        Layout::structure()
            .bits("low", b.ty("unsigned int"), 19)
            .bits("high", b.ty("unsigned int"), 23)
            .bits("last", b.ty("u64"), 60)
    });
    let mut bytes = vec![0; 16 * 4];
    bytes[2 * 16 + 4] = 0x2a;
    bytes[3 * 16 + 8] = 0x77;
    assert_eq!(
        values(
            &types,
            "f(p[2].high, p[3].last, (p + 1)[2].last, p[1].low)",
            &bytes
        ),
        [Some(0x2a), Some(0x77), Some(0x77), Some(0)]
    );
}

#[test]
fn what_was_read_on_one_way_is_not_known_on_the_other() {
    let types = taking(|b| {
        Layout::structure()
            .field("x", b.ty("int"))
            .field("y", b.ty("int"))
    });
    let text = "f(a = !(p->x == 0 && p->y == 7) && p->y == 1 ? 5 : 6, b = !(p->x == 1 || p->y == 7) && p->y == 1 ? 5 : 6)";
    assert_eq!(
        values(&types, text, &[1, 0, 0, 0, 1, 0, 0, 0]),
        [Some(5), Some(6)]
    );
    assert_eq!(
        values(&types, text, &[0, 0, 0, 0, 1, 0, 0, 0]),
        [Some(5), Some(5)]
    );
}

#[test]
fn the_size_of_an_array_of_arrays() {
    let types = taking(|b| {
        let row = b.array(b.ty("u8"), 3);
        let grid = b.array(row, 2);
        Layout::structure().field("grid", grid)
    });
    assert_eq!(
        values(
            &types,
            "f(a = sizeof(p->grid) + p->grid[1][2], b = sizeof(p->grid[0]) + p->grid[0][0])",
            &[0; 6]
        ),
        [Some(6), Some(3)]
    );
}

#[test]
fn an_enum_of_one_byte_beside_a_bitfield_is_taken_by_the_kernel() {
    if let runtime::Answer::No(why) = runtime::Capabilities::detect().privileged() {
        eprintln!("SKIP: {why}");
        return;
    }
    let mut b = Builder::new();
    let byte = b.ty("u8");
    let tiny = b.writer.enum_("tiny", 1, false, &[("TINY", 200)]);
    let fields = [Field::bits("five", byte, 0, 5), Field::at("small", tiny, 1)];
    let thing = b.writer.struct_("thing", 2, &fields);
    let pointer = b.ptr(thing);
    let int = b.ty("int");
    b.func("f", int, &[("p", pointer)]);
    let types = types_of(&b.writer);
    let way = Way {
        typed: false,
        reads: Reads::Auto,
        tight: false,
    };
    let Ok(built) = build("f(p->five, p->small)", &types, way) else {
        panic!("it is refused");
    };
    let spec = ObjectSpec {
        elf: built.artifact.object.elf,
        target_btf: built.artifact.object.target_btf,
        ..ObjectSpec::default()
    };
    if let Err(why) = Relocated::new(&spec) {
        panic!("{why}");
    }
}
