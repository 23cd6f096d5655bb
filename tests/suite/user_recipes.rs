//! Recipes of USDT probes, compiled and run: whatever registers and memory hold, the values in the record are those that the
//! recipe means. On both machines, by the way the file's notes lead to them, with one call site and with many.

use ksnoop_jit::compile::{self, Artifact, Job, Way};
use ksnoop_jit::lower::{Lowered, Target};
use ksnoop_jit::sema::Limits;
use ksnoop_jit::types::Types;
use ksnoop_jit::types::testing::mini_kernel;
use ksnoop_jit::user::testing::{BASE, DATA, Made, TEXT};
use ksnoop_jit::user::{self, Arch, Image, Images};
use ksnoop_jit::wire;

use super::machine::{COUNTS_MAP, EVENTS_MAP, Machine, Moment, Region, number};

thread_local! {
    pub(crate) static KERNEL: Types = mini_kernel();
}

/// Where the traced program's memory is; half a page, and nothing behind it.
pub(crate) const MEMORY: u64 = 0x7f00_0000_0800;
/// How far the file was moved when it was loaded.
const MOVED: u64 = 0x5555_0000_0000;

/// One byte of the program's memory, each different from its neighbours.
fn byte(at: u64) -> u8 {
    (at as u8).wrapping_mul(37).wrapping_add(0x81)
}

pub(crate) fn memory() -> Vec<Region> {
    let bytes = |from: u64, len: u64| (from..from + len).map(byte).collect();
    vec![
        Region {
            base: MEMORY,
            bytes: bytes(MEMORY, 0x800),
        },
        Region {
            base: MOVED + DATA,
            bytes: bytes(MOVED + DATA, 0x100),
        },
    ]
}

/// What `size` bytes there are as a number of that sign.
fn at(address: u64, size: usize, signed: bool) -> u64 {
    let bytes: Vec<u8> = (address..address + size as u64).map(byte).collect();
    extend(number(&bytes), size, signed)
}

fn extend(value: u64, size: usize, signed: bool) -> u64 {
    let unused = 64 - 8 * size as u32;
    if signed {
        (((value << unused) as i64) >> unused) as u64
    } else {
        value << unused >> unused
    }
}

/// The registers of a stopped program, by name.
pub(crate) struct Registers {
    arch: Arch,
    pub(crate) bytes: Vec<u8>,
}

impl Registers {
    /// Every byte of every register is set.
    pub(crate) fn new(arch: Arch, site: u64) -> Registers {
        let size = match arch {
            Arch::X86_64 => 168,
            Arch::Aarch64 => 272,
        };
        let bytes = (0..size).map(|at| (at as u8).wrapping_mul(29) | 0x80).collect();
        let mut made = Registers { arch, bytes };
        made.put(arch.instruction_pointer().offset, MOVED + site);
        made
    }

    fn put(&mut self, offset: i16, value: u64) {
        self.bytes[offset as usize..][..8].copy_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn set(mut self, name: &str, value: u64) -> Registers {
        let register = self.arch.register(name).expect("a register");
        self.put(register.offset, value);
        self
    }

    fn get(&self, name: &str, size: usize, signed: bool) -> u64 {
        let register = self.arch.register(name).expect("a register");
        extend(
            number(&self.bytes[register.offset as usize..][..size]),
            size,
            signed,
        )
    }
}

pub(crate) fn moment() -> Moment {
    Moment {
        pid_tgid: 7 << 32 | 8,
        uid_gid: 0,
        cpu: 1,
        ktime: 12345,
        comm: *b"prog\0\0\0\0\0\0\0\0\0\0\0\0",
    }
}

pub(crate) fn images(made: &Made) -> Images {
    let image = user::read(made.bytes().as_slice()).expect("a file");
    let mut images = Images::new();
    images.insert("prog".to_string(), Ok(image));
    images
}

fn image(images: &Images) -> &Image {
    images["prog"].as_ref().expect("an image")
}

pub(crate) fn built(text: &str, types: &Types, images: &Images, cookies: bool) -> (Artifact, Vec<Vec<u8>>) {
    let mut all = match compile::understand_all(text, types, images, Limits::default()) {
        Ok(all) => all.resolved,
        Err(diags) => panic!("{text}: {diags:#?}"),
    };
    assert_eq!(all.len(), 1);
    let query = all.remove(0).query;
    let target = Target {
        cookies,
        ..Target::default()
    };
    let artifact = match compile::generate(&query, types, &target, Job::alone(Way::Uprobe)) {
        Ok(artifact) => artifact,
        Err(error) => panic!("{text}: {error}"),
    };
    let relocated = ksnoop_jit_runtime::object::relocate(&artifact.object.elf, &artifact.object.target_btf)
        .expect("an object");
    let codes = artifact
        .programs
        .iter()
        .map(|lowered| {
            let program = relocated
                .iter()
                .find(|program| program.name == lowered.func.name)
                .expect("its program");
            let mut code = program.insns.clone();
            for reference in &program.map_refs {
                let map = if reference.map == "events" {
                    EVENTS_MAP
                } else {
                    COUNTS_MAP
                };
                code[reference.slot * 8 + 4..][..4].copy_from_slice(&(map as u32).to_le_bytes());
            }
            code
        })
        .collect();
    (artifact, codes)
}

/// The values that a program shows; `Err` for one that could not be read.
fn run(lowered: &Lowered, code: &[u8], registers: &Registers, cookie: u64) -> Vec<Result<u64, ()>> {
    let mut machine = Machine::new(memory(), moment());
    machine.cookie = cookie;
    if let Err(why) = machine.run(code, &registers.bytes) {
        panic!("{why}\n{}", ksnoop_jit::ir::print(&lowered.func));
    }
    let record = &machine.records[0];
    let layout = lowered.layout.as_ref().expect("a layout");
    assert_eq!(number(&record[..4]) as u32, layout.event);
    layout
        .items
        .iter()
        .map(|item| {
            let word = |at: u32, size: usize| number(&record[(item.offset + at) as usize..][..size]);
            match word(wire::FAULT, 4) {
                0 => Ok(word(wire::VALUE, 8)),
                _ => Err(()),
            }
        })
        .collect()
}

/// One call site with one argument.
fn one(made: Made, arguments: &str, registers: &Registers) -> Result<u64, ()> {
    let images = images(&made.symbol("counter", DATA + 16, object::elf::STT_OBJECT).site(
        [TEXT + 0x20, BASE, 0],
        "p",
        "n",
        arguments,
    ));
    let (artifact, codes) = KERNEL.with(|types| built("usdt:prog:p:n(arg0)", types, &images, true));
    run(&artifact.programs[0], &codes[0], registers, 0)[0]
}

#[test]
fn registers_of_x86_64_in_all_sizes_and_signs() {
    let registers = Registers::new(Arch::X86_64, TEXT + 0x20);
    for whole in [
        "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
    ] {
        for (size, signed) in [
            (1, false),
            (1, true),
            (2, false),
            (2, true),
            (4, false),
            (4, true),
            (8, false),
            (8, true),
        ] {
            let sign = if signed { "-" } else { "" };
            let text = format!("{sign}{size}@%{whole}");
            let wanted = registers.get(whole, size, signed);
            assert_eq!(one(Made::x86_64(), &text, &registers), Ok(wanted), "{text}");
        }
    }
    for (name, text, size, signed) in [
        ("al", "-1@%al", 1, true),
        ("ah", "-1@%ah", 1, true),
        ("bh", "1@%bh", 1, false),
        ("r9d", "-4@%r9d", 4, true),
        ("si", "2@%si", 2, false),
        // A name is never taken for more than it stands for.
        ("cl", "4@%cl", 1, false),
        ("ch", "8@%ch", 1, false),
    ] {
        assert_eq!(
            one(Made::x86_64(), text, &registers),
            Ok(registers.get(name, size, signed)),
            "{text}"
        );
    }
}

#[test]
fn constants_of_all_sizes_and_signs() {
    let registers = Registers::new(Arch::X86_64, TEXT + 0x20);
    for (text, wanted) in [
        ("-4@$-5", -5i64 as u64),
        ("4@$-5", 0xffff_fffb),
        ("-1@$200", -56i64 as u64),
        ("1@$-1", 255),
        ("2@$-1", 65535),
        ("8@$0x123456789abcdef0", 0x1234_5678_9abc_def0),
        ("-8@$-9223372036854775808", 1 << 63),
    ] {
        assert_eq!(one(Made::x86_64(), text, &registers), Ok(wanted), "{text}");
    }
}

#[test]
fn memory_of_x86_64_in_every_form() {
    let registers = Registers::new(Arch::X86_64, TEXT + 0x20)
        .set("rbp", MEMORY + 0x200)
        .set("rsp", MEMORY + 0x100)
        .set("rax", MEMORY)
        .set("rbx", 5)
        .set("rcx", MEMORY / 8)
        .set("rdx", 3u64.wrapping_neg());
    for (operand, address) in [
        ("(%rax)", MEMORY),
        ("8(%rsp)", MEMORY + 0x108),
        ("-20(%rbp)", MEMORY + 0x1ec),
        ("0x10(%rbp)", MEMORY + 0x210),
        ("-20+4(%rbp)", MEMORY + 0x1f0),
        ("(%rax,%rbx)", MEMORY + 5),
        ("(%rax,%rbx,)", MEMORY + 5),
        ("(%rax,%rbx,2)", MEMORY + 10),
        ("(%rax,%rbx,4)", MEMORY + 20),
        ("-3(%rax,%rbx,8)", MEMORY + 37),
        ("16(,%rcx,8)", MEMORY + 16),
        ("8(%rax,%rdx)", MEMORY + 5),
        ("counter(%rip)", MOVED + DATA + 16),
        ("counter+4(%rip)", MOVED + DATA + 20),
        ("-4+counter(%rip)", MOVED + DATA + 12),
    ] {
        for (size, signed) in [
            (1, false),
            (1, true),
            (2, true),
            (4, false),
            (4, true),
            (8, false),
        ] {
            let sign = if signed { "-" } else { "" };
            let text = format!("{sign}{size}@{operand}");
            assert_eq!(
                one(Made::x86_64(), &text, &registers),
                Ok(at(address, size, signed)),
                "{text}"
            );
        }
    }
    assert_eq!(
        one(Made::x86_64(), "8@$counter", &registers),
        Ok(MOVED + DATA + 16)
    );
    assert_eq!(
        one(Made::x86_64(), "-4@$counter+1", &registers),
        Ok(extend(MOVED + DATA + 17, 4, true))
    );
}

/// Only as many bytes are read as the argument has: what lies behind the last page is not there.
#[test]
fn an_argument_at_the_end_of_memory_is_read_and_one_behind_it_is_a_fault() {
    let end = MEMORY + 0x800;
    for size in [1, 2, 4, 8u64] {
        let registers = Registers::new(Arch::X86_64, TEXT + 0x20).set("rax", end - size);
        let text = format!("{size}@(%rax)");
        assert_eq!(
            one(Made::x86_64(), &text, &registers),
            Ok(at(end - size, size as usize, false)),
            "{text}"
        );
        let text = format!("{size}@1(%rax)");
        assert_eq!(one(Made::x86_64(), &text, &registers), Err(()), "{text}");
    }
}

#[test]
fn operands_of_aarch64_in_every_form() {
    let made = Made::aarch64;
    let registers = Registers::new(Arch::Aarch64, TEXT + 0x20);
    for name in ["x0", "x7", "x19", "x29", "x30", "sp"] {
        assert_eq!(
            one(made(), &format!("8@{name}"), &registers),
            Ok(registers.get(name, 8, false)),
            "{name}"
        );
        let wanted = registers.get(name, 4, true);
        assert_eq!(
            one(made(), &format!("-4@{name}"), &registers),
            Ok(wanted),
            "{name}"
        );
    }
    for (text, wanted) in [
        ("-4@-7", -7i64 as u64),
        ("4@#-7", 0xffff_fff9),
        ("8@0x1f", 0x1f),
        ("-8@xzr", 0),
    ] {
        assert_eq!(one(made(), text, &registers), Ok(wanted), "{text}");
    }
    assert_eq!(
        one(made(), "-4@w19", &registers),
        Ok(registers.get("w19", 4, true))
    );
    let registers = registers
        .set("x0", MEMORY + 0x100)
        .set("sp", MEMORY + 0x80)
        .set("x1", 6)
        .set("x2", 0xffff_ffff_0000_0000 | u64::from(3u32.wrapping_neg()));
    for (operand, address) in [
        ("[x0]", MEMORY + 0x100),
        ("[x0, 8]", MEMORY + 0x108),
        ("[x0, #-8]", MEMORY + 0xf8),
        ("[sp, 12]", MEMORY + 0x8c),
        ("[x0, x1]", MEMORY + 0x106),
        ("[x0, x1, lsl 3]", MEMORY + 0x130),
        ("[x0, w1, uxtw 2]", MEMORY + 0x118),
        ("[x0, w2, sxtw 2]", MEMORY + 0x100 - 12),
        ("[x0, w2, sxtw]", MEMORY + 0x100 - 3),
    ] {
        for (size, signed) in [(1, true), (2, false), (4, true), (8, false)] {
            let sign = if signed { "-" } else { "" };
            let text = format!("{sign}{size}@{operand}");
            assert_eq!(
                one(made(), &text, &registers),
                Ok(at(address, size, signed)),
                "{text}"
            );
        }
    }
}

/// Many call sites with recipes of their own: each shows its own value, by cookie and without.
#[test]
fn call_sites_are_told_apart() {
    let names = ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11"];
    let mut made = Made::x86_64();
    for (number, name) in names.iter().enumerate() {
        // Two sites of each recipe, one of the pairs on another page.
        for page in [0, 0x800 + number as u64] {
            let address = TEXT + page + 16 * number as u64;
            made = made.site([address, BASE, 0], "p", "n", &format!("-4@%{name} 8@$7"));
        }
    }
    let types = mini_kernel();
    let images = images(&made);
    let probe = &image(&images).probes[0];
    assert_eq!(probe.sites.len(), 20);
    for cookies in [true, false] {
        let (artifact, codes) = built("usdt:prog:p:n(arg0, arg1)", &types, &images, cookies);
        assert!(artifact.programs.len() < names.len(), "they share programs");
        let mut seen = 0;
        for (lowered, code) in artifact.programs.iter().zip(&codes) {
            for served in &lowered.sites {
                let site = &probe.sites[served.site];
                assert_eq!(served.cookie.is_some(), cookies);
                let registers = Registers::new(Arch::X86_64, site.address);
                let name = &names[((site.address - TEXT) & 0x7ff) as usize / 16 % names.len()];
                let wanted = registers.get(
                    &site.arguments[4..site.arguments.find(' ').expect("two")],
                    4,
                    true,
                );
                let shown = run(lowered, code, &registers, served.cookie.unwrap_or(0));
                assert_eq!(shown, [Ok(wanted), Ok(7)], "{name} at {:#x}", site.address);
                seen += 1;
            }
        }
        assert_eq!(seen, 20, "each site is served once");
    }
    // What no argument depends on is the same program for all.
    let (artifact, _) = built("usdt:prog:p:n(arg1)", &types, &images, true);
    assert_eq!(artifact.programs.len(), 1);
    assert_eq!(artifact.programs[0].sites.len(), 20);
    // Without cookies, sites at the same place of their pages can't share one.
    let mut made = Made::x86_64();
    for (number, name) in names.iter().enumerate().take(6) {
        let address = TEXT + 16 * (number as u64 / 2);
        made = made.site([address, BASE, 0], "p", "n", &format!("8@%{name}"));
    }
    let crowded = self::images(&made);
    let (artifact, codes) = built("usdt:prog:p:n(arg0)", &types, &crowded, false);
    assert_eq!(artifact.programs.len(), 2);
    let probe = &image(&crowded).probes[0];
    for (lowered, code) in artifact.programs.iter().zip(&codes) {
        for served in &lowered.sites {
            let site = &probe.sites[served.site];
            let registers = Registers::new(Arch::X86_64, site.address);
            let wanted = registers.get(&site.arguments[3..], 8, false);
            assert_eq!(run(lowered, code, &registers, 0), [Ok(wanted)]);
        }
    }
}

/// Sites of one probe may differ in size, sign and number of arguments: the type holds what any of them has.
#[test]
fn types_hold_the_values_of_all_sites() {
    let made = Made::x86_64()
        .site([TEXT, BASE, 0], "p", "n", "-1@%al 4@%ebx")
        .site([TEXT + 16, BASE, 0], "p", "n", "4@%eax -8@%rbx 8@%rcx")
        .site([TEXT + 32, BASE, 0], "p", "n", "8f@%xmm0 -4@%ebx");
    let types = mini_kernel();
    let images = images(&made);
    let text = "usdt:prog:p:n(arg0, arg1, argc)";
    let all = compile::understand_all(text, &types, &images, Limits::default())
        .expect("a query")
        .resolved;
    // The third passes the first in a register that can't be read, which is told.
    assert_eq!(all[0].warnings.len(), 1);
    let (artifact, codes) = built(text, &types, &images, true);
    let mut shown = Vec::new();
    for (lowered, code) in artifact.programs.iter().zip(&codes) {
        for served in &lowered.sites {
            let site = &image(&images).probes[0].sites[served.site];
            let registers = Registers::new(Arch::X86_64, site.address);
            shown.push(run(lowered, code, &registers, served.cookie.unwrap_or(0)));
        }
    }
    let registers = Registers::new(Arch::X86_64, TEXT);
    let wanted = [
        [registers.get("al", 1, true), registers.get("ebx", 4, false), 2],
        [registers.get("eax", 4, false), registers.get("rbx", 8, true), 3],
    ];
    assert_eq!(shown, wanted.map(|values| values.map(Ok).to_vec()));
    // Who uses what only one site has gets that one.
    let all = compile::understand_all("usdt:prog:p:n(arg2)", &types, &images, Limits::default())
        .expect("a query")
        .resolved;
    assert_eq!(all[0].query.probe.user().expect("in a program").sites.len(), 1);
    // For the same cause, which is told once.
    assert_eq!(all[0].warnings.len(), 1);
}

/// As many arguments as `<sys/sdt.h>` lets a probe have, and their number.
#[test]
fn twelve_arguments() {
    let recipes =
        "-4@%edi 8@%rsi 2@%dx -1@%cl 8@$-12 -2@$-3 8@(%rax) 4@4(%rax) 1@8(%rax,%rbx,2) -8@%r15 1@%ah 4@$7";
    let registers = Registers::new(Arch::X86_64, TEXT)
        .set("rax", MEMORY)
        .set("rbx", 3);
    let minus = |n: u64| n.wrapping_neg();
    let wanted = [
        registers.get("edi", 4, true),
        registers.get("rsi", 8, false),
        registers.get("dx", 2, false),
        registers.get("cl", 1, true),
        minus(12),
        minus(3),
        at(MEMORY, 8, false),
        at(MEMORY + 4, 4, false),
        at(MEMORY + 14, 1, false),
        registers.get("r15", 8, true),
        registers.get("ah", 1, false),
        7,
    ];
    let types = mini_kernel();
    let one = images(&Made::x86_64().site([TEXT, BASE, 0], "p", "n", recipes));
    let all: Vec<String> = (0..12).map(|n| format!("arg{n}")).collect();
    for text in [
        format!("usdt:prog:p:n({}, argc)", all.join(", ")),
        "usdt:prog:p:n($arg*, argc)".to_string(),
    ] {
        let (artifact, codes) = built(&text, &types, &one, true);
        let shown = run(&artifact.programs[0], &codes[0], &registers, 0);
        let values: Vec<u64> = shown.into_iter().map(|value| value.expect("a value")).collect();
        assert_eq!(values, [&wanted[..], &[12]].concat(), "{text}");
    }
    let refused = |text: &str| compile::understand_all(text, &types, &one, Limits::default()).is_err();
    assert!(refused("usdt:prog:p:n(arg12)"));
    // What is beyond them in a file that no `<sys/sdt.h>` made is not there.
    let more = images(&Made::x86_64().site([TEXT, BASE, 0], "p", "n", &format!("{recipes} 8@%r14")));
    let (artifact, codes) = built("usdt:prog:p:n(arg11)", &types, &more, true);
    assert_eq!(run(&artifact.programs[0], &codes[0], &registers, 0), [Ok(7)]);
    assert!(compile::understand_all("usdt:prog:p:n(arg12)", &types, &more, Limits::default()).is_err());
}

/// What can't be fetched anywhere is an error that says why.
#[test]
fn a_probe_without_readable_sites_is_refused() {
    let made = Made::x86_64()
        .site([TEXT, BASE, 0], "p", "n", "8f@%xmm0 4@%eax")
        .site([TEXT, BASE, 0], "p", "m", "8f@%xmm0 4@%eax")
        .site([TEXT + 1, BASE, 0], "p", "m", "4@%eax 8f@%xmm0");
    let types = mini_kernel();
    let images = images(&made);
    for (text, code) in [
        ("usdt:prog:p:n(arg0)", Some("E0302")),
        ("usdt:prog:p:m(arg0)", None),
        ("usdt:prog:p:m(arg0, arg1)", Some("E0224")),
        ("usdt:prog:p:n(arg1)", None),
        ("usdt:prog:p:n", None),
        ("usdt:prog:p:n(arg2)", Some("E0210")),
        ("usdt:prog:p:nn", Some("E0223")),
        ("usdt:prog:q*:n", Some("E0223")),
        ("usdt:other:p:n", Some("E0221")),
        ("usdt:prog:p:n(return)", Some("E0212")),
    ] {
        let refused = compile::understand_all(text, &types, &images, Limits::default()).err();
        let told = refused.map(|diags| diags[0].code.as_str());
        assert_eq!(told, code, "{text}");
    }
}
