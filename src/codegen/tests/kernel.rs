//! The object is loaded by libbpf, which must put in the same values as we say.

use std::path::Path;
use std::process::Command;

use crate::codegen::{Program, compile};
use crate::ir::{
    Bits, Builder, CmpOp, Func, Helper, MapData, MapKind, Operand, RelocData, RelocKind, Space, Type, Width,
};
use crate::span::Span;
use crate::types::{NameKind, Types};

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// The running kernel's types, or why the test can't run.
fn kernel_types() -> Option<Types> {
    match btf_rs::Btf::from_file(VMLINUX) {
        Ok(btf) => Some(Types::new(btf)),
        Err(error) => {
            eprintln!("SKIP: {VMLINUX}: {error}");
            None
        }
    }
}

/// A relocation of a member path such as `__sk_common.skc_daddr`, the way lowering makes it.
pub(super) fn field(types: &Types, kind: RelocKind, root: &str, path: &str) -> RelocData {
    let id = types.find(NameKind::Struct, root)[0];
    let mut access = vec![0];
    let mut at = id;
    let mut bits = 0;
    let mut width = None;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        if let Ok(index) = name.parse::<u32>() {
            let crate::types::Type::Array { elem, .. } = types.get_stripped(at) else {
                panic!("{path} indexes what is no array");
            };
            access.push(index);
            bits += index * 8 * types.size_of(elem).unwrap_or(0) as u32;
            at = elem;
            continue;
        }
        let member = types
            .member(at, name)
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        access.extend(&member.indices);
        bits += member.bit_offset;
        width = member.bitfield;
        at = member.ty;
    }
    let size = types.size_of(at).unwrap_or(0);
    let offset = match width {
        Some(_) => u64::from(bits) / 8 / size * size,
        None => u64::from(bits) / 8,
    };
    let kernel = match kind {
        RelocKind::FieldByteOffset => offset,
        RelocKind::FieldByteSize => size,
        RelocKind::FieldLshiftU64 => 64 - (u64::from(bits) + u64::from(width.unwrap_or(0)) - 8 * offset),
        RelocKind::FieldRshiftU64 => 64 - u64::from(width.unwrap_or(0)),
        RelocKind::TypeSize => types.size_of(id).unwrap_or(0),
    };
    RelocData {
        kind,
        root: id,
        access: if kind == RelocKind::TypeSize {
            vec![0]
        } else {
            access
        },
        text: format!("struct {root}.{path}"),
        kernel,
    }
}

/// A raw tracepoint program that reads fields of its first argument and of the current task.
fn sample(types: &Types) -> Func {
    let mut b = Builder::new("sample", "raw_tracepoint/netif_rx");
    let events = b.map(MapData {
        name: "events".to_string(),
        kind: MapKind::Ringbuf,
        key_size: 0,
        value_size: 0,
        max_entries: 65536,
    });
    let counts = b.map(MapData {
        name: "counts".to_string(),
        kind: MapKind::PercpuArray,
        key_size: 4,
        value_size: 8,
        max_entries: 4,
    });
    let entry = b.block("entry");
    let (lost, body, fault, done) = (
        b.block("lost"),
        b.block("record"),
        b.block("fault"),
        b.block("done"),
    );
    let count = b.block("count");
    let (write, params) = b.block_with("write", &[Type::Int]);
    b.switch_to(entry);
    b.at(Span::new(0, 8), "context");
    let ctx = b.ctx();
    b.at(Span::new(9, 12), "argument 1");
    let skb = b.load(Type::Int, Width::B8, ctx, 0);
    let map = b.map_addr(events);
    let reserved = b
        .call(
            Helper::RingbufReserve,
            &[map.into(), Operand::Imm(64), Operand::Imm(0)],
        )
        .expect("it has a result");
    b.branch(CmpOp::Eq, Bits::W64, reserved, 0, lost, body);

    b.switch_to(body);
    let record = b.as_ptr(Space::Record, reserved);
    let len = b.reloc(field(types, RelocKind::FieldByteOffset, "sk_buff", "len"));
    let skb = b.as_ptr(Space::Kernel, skb);
    b.at(Span::new(9, 17), "address of len");
    let address = b.field_addr(skb, len);
    let dst = b.add(record, 24);
    let code = b
        .call(
            Helper::ProbeReadKernel,
            &[dst.into(), Operand::Imm(4), address.into()],
        )
        .expect("it has a result");
    b.at(Span::new(9, 17), "fault?");
    let zero = b.iconst(0);
    b.branch_with(
        CmpOp::Ne,
        Bits::W64,
        code,
        0,
        crate::ir::build::call(fault, &[]),
        crate::ir::build::call(write, &[zero]),
    );

    b.switch_to(fault);
    let one = b.iconst(0x1_2345_6789);
    b.jump(write, &[one]);

    b.switch_to(write);
    b.store(Width::B8, record, 0, params[0]);
    b.at(Span::new(18, 22), "task");
    let task = b.call(Helper::GetCurrentTaskBtf, &[]).expect("it has a result");
    for (index, (name, width)) in [
        ("pid", Width::B4),
        ("comm.3", Width::B1),
        ("mm", Width::B8),
        ("se.vruntime", Width::B8),
        ("thread_info.flags", Width::B8),
    ]
    .into_iter()
    .enumerate()
    {
        let reloc = b.reloc(field(types, RelocKind::FieldByteOffset, "task_struct", name));
        b.note(format!("task->{name}"));
        let value = b.load_field(Type::Int, width, task, reloc);
        b.store(Width::B8, record, 24 + 8 * index as i16, value);
    }
    let offset = b.reloc(field(
        types,
        RelocKind::FieldByteOffset,
        "task_struct",
        "sched_remote_wakeup",
    ));
    let left = b.reloc(field(
        types,
        RelocKind::FieldLshiftU64,
        "task_struct",
        "sched_remote_wakeup",
    ));
    let right = b.reloc(field(
        types,
        RelocKind::FieldRshiftU64,
        "task_struct",
        "sched_remote_wakeup",
    ));
    let bits = b.load_field(Type::Int, Width::B4, task, offset);
    let bits = b.reloc_shift(crate::ir::BinaryOp::Shl, bits, left);
    let bits = b.reloc_shift(crate::ir::BinaryOp::Lshr, bits, right);
    b.store(Width::B4, record, 8, bits);
    let size = b.reloc(field(types, RelocKind::TypeSize, "sk_buff", ""));
    let size = b.reloc_const(size);
    b.store(Width::B4, record, 12, size);
    b.at(None, "submit");
    b.call(Helper::RingbufSubmit, &[record.into(), Operand::Imm(0)]);
    b.jump(done, &[]);

    b.switch_to(lost);
    b.at(None, "count the loss");
    let key = b.slot(4);
    let key = b.slot_addr(key);
    b.store(Width::B4, key, 0, 2);
    let map = b.map_addr(counts);
    let counter = b
        .call(Helper::MapLookupElem, &[map.into(), key.into()])
        .expect("it has a result");
    b.branch(CmpOp::Eq, Bits::W64, counter, 0, done, count);
    b.switch_to(count);
    let counter = b.as_ptr(Space::MapValue, counter);
    let old = b.load(Type::Int, Width::B8, counter, 0);
    let new = b.add(old, 1);
    b.store(Width::B8, counter, 0, new);
    b.jump(done, &[]);
    b.switch_to(done);
    b.ret(0);
    b.finish().expect("every block has an end")
}

/// A program for each kind of place that a field can be in.
fn places(types: &Types) -> Func {
    let mut b = Builder::new("places", "raw_tracepoint/netif_rx");
    let entry = b.block("entry");
    b.switch_to(entry);
    let slot = b.slot(8);
    let slot = b.slot_addr(slot);
    let task = b.call(Helper::GetCurrentTaskBtf, &[]).expect("it has a result");
    for (root, path) in [
        // Plain, in an embedded struct, an array, an array of structs, a union, an anonymous struct in a union.
        ("task_struct", "pid"),
        ("task_struct", "se.load.weight"),
        ("task_struct", "comm.5"),
        ("task_struct", "comm"),
        ("task_struct", "se"),
        ("task_struct", "thread.tls_array.2"),
        ("task_struct", "thread_info.flags"),
        ("sk_buff", "next"),
        ("sk_buff", "protocol"),
        ("sk_buff", "cb.47"),
        ("sock", "__sk_common.skc_daddr"),
        ("sock", "__sk_common.skc_v6_daddr.in6_u.u6_addr32.1"),
        ("sock", "sk_family"),
        ("page", "lru.next"),
        ("inode", "i_mode"),
        ("kmem_cache", "name"),
        // More than a load's offset can say.
        ("pglist_data", "node_id"),
        ("pglist_data", "nr_zones"),
        ("pglist_data", "node_zones.1.zone_pgdat"),
    ] {
        if types.find(NameKind::Struct, root).is_empty() || !exists(types, root, path) {
            eprintln!("not in this kernel: struct {root}.{path}");
            continue;
        }
        let reloc = b.reloc(field(types, RelocKind::FieldByteOffset, root, path));
        let kernel = b.as_ptr(Space::Kernel, task);
        let address = b.field_addr(kernel, reloc);
        b.call(
            Helper::ProbeReadKernel,
            &[slot.into(), Operand::Imm(1), address.into()],
        );
        let size = b.reloc(field(types, RelocKind::FieldByteSize, root, path));
        let size = b.reloc_const(size);
        b.store(Width::B8, slot, 0, size);
        if root == "task_struct" && !["comm", "se"].contains(&path) {
            let value = b.load_field(Type::Int, Width::B1, task, reloc);
            b.store(Width::B8, slot, 0, value);
        }
    }
    for (root, path) in [
        ("task_struct", "in_execve"),
        ("task_struct", "sched_contributes_to_load"),
        ("sk_buff", "ip_summed"),
        ("sk_buff", "csum_level"),
        ("sock", "sk_kern_sock"),
    ] {
        if !exists(types, root, path) {
            continue;
        }
        let mut value = b.load(Type::Int, Width::B8, slot, 0);
        for (kind, op) in [
            (RelocKind::FieldLshiftU64, crate::ir::BinaryOp::Shl),
            (RelocKind::FieldRshiftU64, crate::ir::BinaryOp::Ashr),
        ] {
            let reloc = b.reloc(field(types, kind, root, path));
            value = b.reloc_shift(op, value, reloc);
        }
        let reloc = b.reloc(field(types, RelocKind::FieldByteOffset, root, path));
        let offset = b.reloc_const(reloc);
        let sum = b.add(value, offset);
        b.store(Width::B8, slot, 0, sum);
    }
    for root in ["task_struct", "list_head", "sk_buff"] {
        let reloc = b.reloc(field(types, RelocKind::TypeSize, root, ""));
        let size = b.reloc_const(reloc);
        b.store(Width::B4, slot, 0, size);
    }
    b.ret(0);
    b.finish().expect("every block has an end")
}

fn exists(types: &Types, root: &str, path: &str) -> bool {
    let mut at = types.find(NameKind::Struct, root)[0];
    for name in path.split('.') {
        if let crate::types::Type::Array { elem, .. } = types.get_stripped(at) {
            at = elem;
            continue;
        }
        match types.member(at, name) {
            Ok(member) => at = member.ty,
            Err(_) => return false,
        }
    }
    true
}

#[test]
fn libbpf_relocates_as_we_say() {
    let Some(types) = kernel_types() else { return };
    let query = "netif_rx(skb->len, task)".to_string();
    for func in [sample(&types), places(&types)] {
        let name = func.name.clone();
        let object = compile(&[func], std::slice::from_ref(&query), &types).expect("it compiles");
        let Some(log) = load_with_bpftool(&name, &object.elf) else {
            return;
        };
        compare(&object.programs[0], &log);
    }
}

/// Loads an object with bpftool and gives what libbpf says about it.
fn load_with_bpftool(name: &str, elf: &[u8]) -> Option<String> {
    let pin = format!("/sys/fs/bpf/ksnoop_jit_test_{name}_{}", std::process::id());
    if !Path::new("/sys/fs/bpf").is_dir() {
        eprintln!("SKIP: no BPF file system");
        return None;
    }
    let dir = std::env::temp_dir().join(format!("ksnoop-jit-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary directory can be made");
    let file = dir.join("object.o");
    std::fs::write(&file, elf).expect("the object can be written");
    let run = |args: &[&str]| Command::new("bpftool").args(args).output();
    let path = |path: &Path| path.display().to_string();
    let loaded = match run(&["--debug", "prog", "load", &path(&file), &pin]) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("SKIP: bpftool: {error}");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&loaded.stderr).into_owned();
    if errors.contains("Operation not permitted") {
        eprintln!("SKIP: not allowed to load programs");
        return None;
    }
    assert!(loaded.status.success(), "bpftool prog load: {errors}");
    let _ = std::fs::remove_file(&pin);
    let _ = std::fs::remove_dir_all(&dir);
    Some(errors)
}

/// libbpf says what it patched: `patched insn #9 (ALU/ALU64) imm 0 -> 112`.
fn compare(program: &Program, log: &str) {
    let mut patched = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("patched insn #") {
            let numbers = rest
                .split(|c: char| !c.is_ascii_digit())
                .filter(|part| !part.is_empty());
            // The class in parentheses has a number too.
            let numbers: Vec<u64> = numbers.filter_map(|number| number.parse().ok()).collect();
            let [insn, .., before, after] = numbers[..] else {
                panic!("{line}");
            };
            patched.push((insn as usize, before, after));
        }
    }
    let ours: Vec<(usize, u64, u64)> = program
        .relocs
        .iter()
        .map(|reloc| (reloc.insn, reloc.local, reloc.kernel))
        .collect();
    assert_eq!(patched, ours, "{log}");
    let moved = ours.iter().filter(|(_, local, kernel)| local != kernel).count();
    assert!(2 * moved > ours.len(), "most relocations change something");
}

#[test]
fn the_kernel_takes_spilled_values() {
    for seed in 0..12 {
        let func = crate::ir::generate::function(seed, 60 + 20 * seed as usize);
        let compiled = crate::codegen::program(&func, &|_| 5).expect("it compiles");
        let local = crate::codegen::local::Local {
            writer: crate::types::write::BtfWriter::new(),
            relocs: vec![Vec::new()],
            target: crate::types::mini::MiniTarget {
                bytes: Vec::new(),
                map: Default::default(),
                names: Default::default(),
            },
        };
        let maps: Vec<MapData> = func.maps.values().cloned().collect();
        let elf =
            crate::codegen::elf::write(&[compiled], &["generated"], local, &maps).expect("it is written");
        if load_with_bpftool(&format!("generated{seed}"), &elf.bytes).is_none() {
            return;
        }
    }
}
