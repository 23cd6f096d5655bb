//! The object file and the local types, over a made-up kernel.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget};

use crate::codegen::{CodegenError, asm, compile, dump_btf};
use crate::ir::{Builder, Func, Helper, MapData, MapKind, Operand, RelocData, RelocKind, Space, Type, Width};
use crate::span::Span;
use crate::types::write::{BtfWriter, Field, INT_SIGNED};
use crate::types::{TypeId, Types};

/// Two structs called `node`, with a bitfield, an array of arrays, an anonymous union and an enum between them.
struct Made {
    types: Types,
    first: TypeId,
    second: TypeId,
    twice: TypeId,
}

fn made() -> Made {
    let mut w = BtfWriter::new();
    let int = w.int("int", 4, INT_SIGNED);
    let byte = w.int("unsigned char", 1, 0);
    let pointer = w.ptr(0);
    let row = w.array(int, int, 3);
    let table = w.array(row, int, 2);
    let color = w.enum_("color", 4, false, &[("RED", 0), ("BLUE", 1)]);
    let union = w.union_("", 8, &[Field::at("id", int, 0), Field::at("next", pointer, 0)]);
    let first = w.struct_(
        "node",
        48,
        &[
            Field::at("", union, 0),
            Field::at("color", color, 8),
            Field::bits("low", int, 96, 3),
            Field::bits("high", int, 99, 9),
            Field::at("table", table, 16),
            Field::at("byte", byte, 40),
        ],
    );
    let flexible = w.array(byte, int, 0);
    let second = w.struct_(
        "node",
        40008,
        &[
            Field::at("inner", first, 0),
            Field::at("far", int, 40000),
            Field::at("tail", flexible, 40004),
        ],
    );
    let twice = w.struct_("twice", 16, &[Field::at("", union, 0), Field::at("id", int, 8)]);
    let id = |id| TypeId { module: 0, id };
    Made {
        types: Types::new(btf_rs::Btf::from_bytes(&w.finish()).expect("the writer's BTF can be read")),
        first: id(first),
        second: id(second),
        twice: id(twice),
    }
}

fn reloc(root: TypeId, access: &[u32], kind: RelocKind, kernel: u64) -> RelocData {
    RelocData {
        kind,
        root,
        access: access.to_vec(),
        text: format!("struct node {access:?}"),
        kernel,
    }
}

fn program(name: &str, section: &str, relocs: &[RelocData]) -> Func {
    let mut b = Builder::new(name, section);
    let entry = b.block("entry");
    b.switch_to(entry);
    b.at(Span::new(2, 4), "the whole of it");
    let task = b.call(Helper::GetCurrentTaskBtf, &[]).expect("it has a result");
    let slot = b.slot(8);
    let slot = b.slot_addr(slot);
    for data in relocs {
        let number = b.reloc(data.clone());
        if data.kind == RelocKind::FieldByteOffset {
            let value = b.load_field(Type::Int, Width::B4, task, number);
            b.store(Width::B8, slot, 0, value);
        } else {
            let value = b.reloc_const(number);
            b.store(Width::B8, slot, 0, value);
        }
    }
    let map = b.map(MapData {
        name: "events".to_string(),
        kind: MapKind::Ringbuf,
        key_size: 0,
        value_size: 0,
        max_entries: 4096,
    });
    let map = b.map_addr(map);
    b.call(Helper::RingbufQuery, &[map.into(), Operand::Imm(0)]);
    b.ret(0);
    b.finish().expect("it is finished")
}

#[test]
fn the_object_has_what_loaders_look_for() {
    let made = made();
    let relocs = [
        reloc(made.first, &[0, 1], RelocKind::FieldByteOffset, 8),
        reloc(made.second, &[0, 1], RelocKind::FieldByteOffset, 40000),
    ];
    let funcs = [
        program("one", "fentry/a", &relocs[..1]),
        program("two", "fentry/a", &relocs),
        program("three", "kprobe/b", &relocs[1..]),
    ];
    let queries = ["a(color)".to_string()];
    let compiled = compile(&funcs, &queries, &made.types).expect("it compiles");
    let file = object::File::parse(&*compiled.elf).expect("it is an ELF file");
    let names: Vec<&str> = file
        .sections()
        .filter_map(|section| section.name().ok())
        .collect();
    for name in ["fentry/a", "kprobe/b", ".maps", "license", ".BTF", ".BTF.ext"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let section = |name: &str| file.section_by_name(name).expect("it is there");
    assert_eq!(section("license").data().expect("it has data"), b"GPL\0");
    assert_eq!(section(".BTF").data().expect("it has data"), compiled.local_btf);
    let both = [compiled.programs[0].bytes(), compiled.programs[1].bytes()].concat();
    assert_eq!(section("fentry/a").data().expect("it has data"), both);
    let events = file.symbol_by_name("events").expect("the map has a symbol");
    assert_eq!((events.address(), events.size()), (0, 16));
    let two = file.symbol_by_name("two").expect("the program has a symbol");
    assert_eq!(two.address(), compiled.programs[0].bytes().len() as u64);
    let mut count = 0;
    for name in ["fentry/a", "kprobe/b"] {
        for (_, relocation) in section(name).relocations() {
            assert_eq!(relocation.target(), RelocationTarget::Symbol(events.index()));
            assert_eq!(relocation.addend(), 0);
            count += 1;
        }
    }
    assert_eq!(count, 3);
    assert_eq!(compiled.maps.len(), 1);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let compiled = || {
        let made = made();
        let relocs = [reloc(
            made.second,
            &[0, 0, 4, 1, 2],
            RelocKind::FieldByteOffset,
            36,
        )];
        let func = program("same", "fentry/a", &relocs);
        compile(&[func], &["x".to_string()], &made.types)
            .expect("it compiles")
            .elf
    };
    assert_eq!(compiled(), compiled());
}

#[test]
fn local_types_hold_only_what_is_touched() {
    let made = made();
    let relocs = [
        reloc(made.first, &[0, 0, 1], RelocKind::FieldByteOffset, 0),
        reloc(made.first, &[0, 1], RelocKind::FieldByteOffset, 8),
        reloc(made.first, &[0, 3], RelocKind::FieldByteOffset, 12),
        reloc(made.first, &[0, 3], RelocKind::FieldLshiftU64, 52),
        reloc(made.first, &[0, 3], RelocKind::FieldRshiftU64, 55),
        reloc(made.first, &[0, 4, 1, 2], RelocKind::FieldByteOffset, 36),
        reloc(made.second, &[0, 0, 5], RelocKind::FieldByteOffset, 40),
        reloc(made.second, &[0, 2, 7], RelocKind::FieldByteOffset, 40011),
        reloc(made.second, &[0], RelocKind::TypeSize, 40008),
        reloc(made.first, &[2, 1], RelocKind::FieldByteOffset, 104),
    ];
    let func = program("touch", "fentry/a", &relocs);
    let compiled = compile(&[func], &["x".to_string()], &made.types).expect("it compiles");
    let dump = dump_btf(&compiled);
    let local = dump.split("target BTF").next().unwrap_or("");
    for line in [
        // The anonymous union is flattened away, the second struct of the name has another.
        "STRUCT 'node' size=56 vlen=5",
        "\t'next' type_id=1 bits_offset=64",
        "\t'color' type_id=2 bits_offset=128",
        "\t'high' type_id=3 bits_offset=160 bitfield_size=9",
        "nr_elems=3",
        "nr_elems=2",
        "nr_elems=8",
        "STRUCT 'node__2'",
    ] {
        assert!(local.contains(line), "{line}\n{local}");
    }
    assert!(
        !local.contains("'low'") && !local.contains("'id'") && !local.contains("'far'"),
        "{local}"
    );
    let locals: Vec<u64> = compiled.programs[0]
        .relocs
        .iter()
        .map(|reloc| reloc.local)
        .collect();
    assert_eq!(locals, [8, 16, 20, 55, 55, 44, 56, 71, 72, 128], "{local}");
}

#[test]
fn far_fields_are_reached_by_addition() {
    let made = made();
    let relocs = [reloc(made.second, &[0, 1], RelocKind::FieldByteOffset, 40000)];
    let func = program("far", "fentry/a", &relocs);
    let compiled = compile(&[func], &["x".to_string()], &made.types).expect("it compiles");
    let listing = asm::listing(&compiled.programs[0], "x", None);
    assert!(listing.contains("r0 += 0 "), "{listing}");
    assert!(listing.contains("r1 = *(u32 *)(r0 +0)"), "{listing}");
    let mut bytes = compiled.programs[0].bytes();
    let at = compiled.programs[0].relocs[0].insn * 8;
    assert!(
        compiled.programs[0].check_relocated(&bytes).is_err(),
        "it is not relocated yet"
    );
    bytes[at + 4..at + 8].copy_from_slice(&40000i32.to_le_bytes());
    assert_eq!(compiled.programs[0].check_relocated(&bytes), Ok(()));
    bytes[at + 8] ^= 1;
    assert!(
        compiled.programs[0].check_relocated(&bytes).is_err(),
        "another instruction changed"
    );
}

#[test]
fn what_loaders_cannot_find_is_refused() {
    let made = made();
    for (root, access, kind) in [
        (made.first, &[0, 9][..], RelocKind::FieldByteOffset),
        (made.first, &[0, 1, 0], RelocKind::FieldByteOffset),
        (made.first, &[0, 2, 0], RelocKind::FieldByteOffset),
        (made.first, &[0, 0], RelocKind::FieldByteSize),
        // `id` is found in the anonymous union first.
        (made.twice, &[0, 1], RelocKind::FieldByteOffset),
    ] {
        let func = program("bad", "fentry/a", &[reloc(root, access, kind, 0)]);
        match compile(&[func], &["x".to_string()], &made.types) {
            Err(CodegenError::BadRelocation { .. }) => {}
            other => panic!("{access:?}: {other:?}"),
        }
    }
    // Without a name, a member at the same place stands for it.
    let func = program(
        "good",
        "fentry/a",
        &[reloc(made.first, &[0, 0], RelocKind::FieldByteOffset, 0)],
    );
    compile(&[func], &["x".to_string()], &made.types).expect("it compiles");
}

#[test]
fn broken_functions_and_maps_are_refused() {
    let made = made();
    let mut b = Builder::new("bad", "fentry/a");
    let entry = b.block("");
    b.switch_to(entry);
    let number = b.iconst(1);
    let address = b.as_ptr(Space::Kernel, number);
    b.load(Type::Int, Width::B8, address, 0);
    b.ret(0);
    let func = b.finish().expect("it is finished");
    let error = compile(&[func], &[], &made.types).expect_err("a kernel address is loaded from");
    assert!(matches!(error, CodegenError::Ir { .. }), "{error}");
    let one = program("one", "fentry/a", &[]);
    let mut two = program("two", "fentry/a", &[]);
    for map in two.maps.values_mut() {
        map.max_entries = 8192;
    }
    let error = compile(&[one, two], &[], &made.types).expect_err("the maps differ");
    assert_eq!(
        error,
        CodegenError::MapConflict {
            name: "events".to_string()
        }
    );
}

#[test]
fn the_listing_reads_well() {
    let made = made();
    let relocs = [reloc(made.first, &[0, 1], RelocKind::FieldByteOffset, 8)];
    let func = program("list", "fentry/a", &relocs);
    let compiled = compile(&[func], &["a(color)".to_string()], &made.types).expect("it compiles");
    let expected = "\
list (fentry/a): 9 instructions, 1 relocation
block0:  ; entry
    0: call bpf_get_current_task_btf#158     ; `co` the whole of it
    8: r1 = *(u32 *)(r0 +0)                  ; field_offset struct node [0, 1]: 0 -> 8
   16: *(u64 *)(r10 -8) = r1
   24: r1 = map[events] ll
   40: r2 = 0
   48: call bpf_ringbuf_query#134
   56: r0 = 0
   64: exit
";
    assert_eq!(asm::listing(&compiled.programs[0], "a(color)", None), expected);
    let mut bytes = compiled.programs[0].bytes();
    bytes[8 + 2] = 8;
    let relocated = asm::listing(&compiled.programs[0], "a(color)", Some(&bytes));
    assert!(relocated.contains("r1 = *(u32 *)(r0 +8) "), "{relocated}");
}
