//! Instructions executed at a hit of a USDT probe with three arguments, by a compiled query and by libbpf's `bpf_usdt_arg`, which
//! interprets. Both programs run in [`super::machine`] as their compilers left them, with the same registers and
//! memory. libbpf's is built by clang from Debian's headers; says so where that can't be done.

use std::process::Command;

use ksnoop_jit::user::testing::{BASE, Made, TEXT};
use ksnoop_jit::user::{Arch, Operand, Recipe, recipe};
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Rel, SectionHeader, Sym};

use super::machine::{Machine, Region};
use super::user_host::{Folder, skipped};
use super::user_recipes::{KERNEL, MEMORY, Registers, built, images, memory, moment};

/// What `<sys/sdt.h>` makes of a number in a register, a pointer in another, and a variable on the stack.
const ARGUMENTS: [&str; 3] = [
    "-4@%edi 8@%rsi -4@-20(%rbp)",
    "-4@%edi 8@%rsi 8@%rdx",
    "-4@$7 8@-16(%rbp) -4@-20(%rbp)",
];
const SOURCE: &str = include_str!("libbpf_usdt.bpf.c");
const SPECS_MAP: u64 = 0x1003;
const SPECS: u64 = 0xffff_c900_0100_0000;
const HAS_COOKIE: u64 = 0xffff_c900_0200_0000;

/// libbpf's program and its function, linked as libbpf does it (`bpf_object__relocate_calls`, tools/lib/bpf/libbpf.c).
fn linked(file: &[u8]) -> Vec<u8> {
    let header = FileHeader64::<LE>::parse(file).expect("an object");
    let sections = header.sections(LE, file).expect("sections");
    let symbols = sections.symbols(LE, file, elf::SHT_SYMTAB).expect("symbols");
    let section = |name: &str| {
        let (index, section) = sections.section_by_name(LE, name.as_bytes()).expect(name);
        (index, section.data(LE, file).expect("its bytes"))
    };
    let (text_index, text) = section(".text");
    let (main_index, main) = section("usdt");
    let mut code = [main, text].concat();
    for (_, relocations) in sections.enumerate() {
        let Ok(Some((entries, _))) = relocations.rel(LE, file) else {
            continue;
        };
        let start = match relocations.sh_info(LE) as usize {
            index if index == main_index.0 => 0,
            index if index == text_index.0 => main.len(),
            _ => continue,
        };
        for entry in entries {
            let at = start + entry.r_offset(LE) as usize;
            let symbol = symbols
                .symbol(object::SymbolIndex(entry.r_sym(LE) as usize))
                .expect("a symbol");
            let name = symbols.symbol_name(LE, symbol).unwrap_or_default();
            let word = match (entry.r_type(LE), name) {
                // A call: from the instruction behind it, in instructions.
                (elf::R_BPF_64_32, _) => {
                    ((main.len() as u64 + symbol.st_value(LE)) as i64 - at as i64) / 8 - 1
                }
                (_, b"__bpf_usdt_specs") => SPECS_MAP as i64,
                (_, b"LINUX_HAS_BPF_COOKIE") => {
                    code[at + 12..at + 16].copy_from_slice(&((HAS_COOKIE >> 32) as u32).to_le_bytes());
                    HAS_COOKIE as i64
                }
                // The text of what never happens, and the map for kernels without cookies.
                (_, _) => 0,
            };
            code[at + 4..at + 8].copy_from_slice(&(word as u32).to_le_bytes());
        }
    }
    code
}

/// `struct __bpf_usdt_spec` (usdt.bpf.h) of a call site: what libbpf makes of its argument string.
fn spec(arguments: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let all = recipe::recipes(arguments, Arch::X86_64);
    for argument in &all {
        let Recipe {
            size,
            signed,
            operand,
        } = argument.clone().expect("a recipe");
        let (kind, value, register) = match operand {
            Operand::Constant(value) => (0u32, value, 0),
            Operand::Register(register) => (1, 0, register.offset),
            Operand::Memory(address) => (2, address.offset, address.base.expect("a base").offset),
            Operand::AddressOf(_) => unreachable!("no symbols here"),
        };
        bytes.extend(value.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(register.to_le_bytes());
        bytes.extend([u8::from(signed), 64 - 8 * size]);
    }
    bytes.resize(16 * 12 + 8, 0);
    bytes.extend((all.len() as u16).to_le_bytes());
    bytes.resize(16 * 13 + 8, 0);
    bytes
}

fn registers() -> Registers {
    Registers::new(Arch::X86_64, TEXT + 0x20)
        .set("rbp", MEMORY + 0x200)
        .set("rdi", 5)
}

/// Instructions of a run; nothing is handed over, since the condition does not hold.
fn executed(machine: &mut Machine, code: &[u8]) -> u64 {
    if let Err(why) = machine.run(code, &registers().bytes) {
        panic!("{why}");
    }
    assert!(machine.records.is_empty());
    machine.executed
}

fn ours(arguments: &str) -> u64 {
    let images = images(&Made::x86_64().site([TEXT + 0x20, BASE, 0], "p", "n", arguments));
    let query = "usdt:prog:p:n(arg0 + arg1 + arg2 == 123456789)";
    let (_, codes) = KERNEL.with(|types| built(query, types, &images, true));
    executed(&mut Machine::new(memory(), moment()), &codes[0])
}

fn theirs(code: &[u8], arguments: &str) -> u64 {
    let mut all = memory();
    all.push(Region {
        base: SPECS,
        bytes: spec(arguments),
    });
    all.push(Region {
        base: HAS_COOKIE,
        bytes: vec![1],
    });
    let mut machine = Machine::new(all, moment());
    machine.values = vec![(SPECS_MAP, SPECS)];
    // `bpf_probe_read_kernel` reads the registers from the context.
    executed(&mut machine, code)
}

/// How much a hit may cost without anybody noticing: what is fetched is a load or two.
#[test]
fn three_arguments_cost_few_instructions() {
    for (arguments, most) in ARGUMENTS.into_iter().zip([24, 14, 36]) {
        let count = ours(arguments);
        println!("instructions a hit: {count} ({arguments})");
        assert!(count <= most, "{arguments}: {count}");
    }
}

#[test]
fn libbpf_executes_at_least_twice_as_many() {
    let folder = Folder::new("libbpf");
    let object = folder.0.join("usdt.o");
    let source = folder.0.join("usdt.bpf.c");
    std::fs::write(&source, SOURCE).expect("a source file");
    let built = Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", "-D__TARGET_ARCH_x86"])
        .args(["-I/usr/include/x86_64-linux-gnu", "-c", "-o"])
        .arg(&object)
        .arg(&source)
        .output();
    let why = match built {
        Err(_) => Some("there is no clang".to_string()),
        Ok(out) if !out.status.success() => Some(format!(
            "clang can't build libbpf's program (libbpf-dev): {}",
            String::from_utf8_lossy(&out.stderr).lines().next().unwrap_or("")
        )),
        Ok(_) => None,
    };
    if skipped(why) {
        return;
    }
    let code = linked(&std::fs::read(&object).expect("an object"));
    for arguments in ARGUMENTS {
        let (own, other) = (ours(arguments), theirs(&code, arguments));
        println!("instructions a hit: ksnoop-jit {own}, libbpf {other} ({arguments})");
        assert!(2 * own <= other, "{arguments}: {own} against {other}");
    }
}
