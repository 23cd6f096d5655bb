//! Every form of recipe, on both machines, and what is wrong with others.

use crate::user::recipe::{Address, Index, Operand, Problem, Recipe, recipes};
use crate::user::{Arch, Register};

fn one(text: &str, arch: Arch) -> Result<Recipe, Problem> {
    let mut all = recipes(text, arch);
    assert_eq!(all.len(), 1, "{text:?}");
    all.remove(0).map_err(|error| {
        assert_eq!(error.text, text);
        error.problem
    })
}

fn register(arch: Arch, name: &str) -> Register {
    arch.register(name).expect("a register")
}

fn memory(base: Option<Register>, index: Option<Index>, offset: i64) -> Operand {
    Operand::Memory(Address {
        base,
        index,
        offset,
        symbol: None,
        low: false,
    })
}

#[test]
fn sizes_and_signs() {
    for (text, size, signed) in [
        ("1@%al", 1, false),
        ("-1@%al", 1, true),
        ("2@%ax", 2, false),
        ("-2@%ax", 2, true),
        ("4@%eax", 4, false),
        ("-4@%eax", 4, true),
        ("8@%rax", 8, false),
        ("-8@%rax", 8, true),
    ] {
        let recipe = one(text, Arch::X86_64).expect(text);
        assert_eq!((recipe.size, recipe.signed), (size, signed), "{text}");
    }
    for (text, problem) in [
        ("3@%al", Problem::BadSize),
        ("16@%xmm0", Problem::BadSize),
        ("8f@%xmm0", Problem::Float),
        ("-8f@-8(%rbp)", Problem::Float),
        ("%rax", Problem::NoSize),
        ("@%rax", Problem::NoSize),
        ("--4@%eax", Problem::NoSize),
        ("+4@%eax", Problem::NoSize),
        ("f@%eax", Problem::NoSize),
        ("4@", Problem::BadOperand),
    ] {
        assert_eq!(one(text, Arch::X86_64), Err(problem), "{text}");
    }
}

#[test]
fn constants_are_cut_to_their_size() {
    for (text, value) in [
        ("-4@$-5", -5),
        ("4@$-5", 0xffff_fffb),
        ("-1@$255", -1),
        ("1@$0x1ff", 0xff),
        ("2@$65535", 0xffff),
        ("-2@$65535", -1),
        ("8@$18446744073709551615", -1),
        ("-8@$-9223372036854775808", i64::MIN),
        ("-4@$0x10", 16),
        ("-4@$2+3", 5),
    ] {
        let recipe = one(text, Arch::X86_64).expect(text);
        let Operand::Constant(constant) = recipe.operand else {
            panic!("{text} is {recipe:?}");
        };
        assert_eq!(recipe.cut(constant), value, "{text}");
    }
    assert_eq!(
        one("8@$18446744073709551616", Arch::X86_64),
        Err(Problem::TooLarge)
    );
    assert_eq!(
        one("8@$-9223372036854775809", Arch::X86_64),
        Err(Problem::TooLarge)
    );
}

#[test]
fn registers_of_x86_64_by_all_their_names() {
    for (names, offset) in [
        (["rax", "eax", "ax", "al"], 80),
        (["rbx", "ebx", "bx", "bl"], 40),
        (["rsi", "esi", "si", "sil"], 104),
        (["rbp", "ebp", "bp", "bpl"], 32),
        (["r8", "r8d", "r8w", "r8b"], 72),
        (["r15", "r15d", "r15w", "r15b"], 0),
    ] {
        for (name, size) in names.iter().zip([8, 4, 2, 1]) {
            let recipe = one(&format!("8@%{name}"), Arch::X86_64).expect(name);
            assert_eq!(
                recipe.operand,
                Operand::Register(Register { offset, size }),
                "{name}"
            );
        }
    }
    for (name, offset) in [("ah", 81), ("bh", 41), ("ch", 89), ("dh", 97)] {
        let recipe = one(&format!("-1@%{name}"), Arch::X86_64).expect(name);
        assert_eq!(recipe.operand, Operand::Register(Register { offset, size: 1 }));
    }
    assert_eq!(one("8@%xmm3", Arch::X86_64), Err(Problem::Float));
    assert_eq!(
        one("8@%rzz", Arch::X86_64),
        Err(Problem::UnknownRegister("%rzz".to_string()))
    );
}

#[test]
fn memory_of_x86_64() {
    let r = |name| register(Arch::X86_64, name);
    let index = |name, scale| {
        Some(Index {
            register: r(name),
            scale,
            signed: false,
        })
    };
    for (text, operand) in [
        ("8@(%rax)", memory(Some(r("rax")), None, 0)),
        ("8@(%rsp)", memory(Some(r("rsp")), None, 0)),
        ("-4@-20(%rbp)", memory(Some(r("rbp")), None, -20)),
        ("-4@0x10(%rbp)", memory(Some(r("rbp")), None, 16)),
        ("-4@-20+16(%rbp)", memory(Some(r("rbp")), None, -4)),
        ("8@(%r8,%r9)", memory(Some(r("r8")), index("r9", 1), 0)),
        ("8@(%r8,%r9,)", memory(Some(r("r8")), index("r9", 1), 0)),
        ("8@(%r8,%r9,4)", memory(Some(r("r8")), index("r9", 4), 0)),
        ("8@8(%r8,%r9,8)", memory(Some(r("r8")), index("r9", 8), 8)),
        ("8@-8(,%r9,2)", memory(None, index("r9", 2), -8)),
        ("8@(%r8,%riz,2)", memory(Some(r("r8")), None, 0)),
        ("8@(%eax)", memory(Some(r("eax")), None, 0)),
        ("8@ (%eax)", memory(Some(r("eax")), None, 0)),
    ] {
        if text.contains(' ') {
            continue;
        }
        assert_eq!(
            one(text, Arch::X86_64).map(|recipe| recipe.operand),
            Ok(operand),
            "{text}"
        );
    }
    for text in [
        "8@(%rax",
        "8@(%al)",
        "8@(rax)",
        "8@(%rax,%rbx,3)",
        "8@(%rax,%rbx,4,5)",
        "8@8(%rip,%rax)",
        "8@()",
        "8@8()",
        "8@-(%rax)",
        "8@8-(%rax)",
        "8@(,,4)",
        "8@x@GOTPCREL(%rip)",
        "8@%",
        "8@$",
        "8@$x+y",
        "8@$-x",
    ] {
        assert!(one(text, Arch::X86_64).is_err(), "{text}");
    }
    assert_eq!(one("4@%fs:8", Arch::X86_64), Err(Problem::ThreadLocal));
    assert_eq!(one("4@x@tpoff(%rax)", Arch::X86_64), Err(Problem::ThreadLocal));
}

#[test]
fn symbols_become_distances_from_the_call() {
    let symbol = |text| one(text, Arch::X86_64).expect(text);
    for (text, name, offset) in [
        ("4@counter(%rip)", "counter", 0),
        ("4@counter+8(%rip)", "counter", 8),
        ("4@8+counter.0(%rip)", "counter.0", 8),
        ("4@counter", "counter", 0),
        ("8@$table", "table", 0),
        ("8@$table-4", "table", -4),
    ] {
        let recipe = symbol(text);
        assert_eq!(recipe.symbol(), Some(name), "{text}");
        let resolved = recipe.resolved(0x40_0100, 0x40_0000, Arch::X86_64).expect(text);
        let (Operand::Memory(address) | Operand::AddressOf(address)) = resolved.operand else {
            panic!("{text}");
        };
        assert_eq!(address.base, Some(Arch::X86_64.instruction_pointer()), "{text}");
        assert_eq!((address.offset, address.symbol), (0x100 + offset, None), "{text}");
    }
    // Only one base can be added.
    assert_eq!(symbol("4@table(%rbx)").resolved(0, 0, Arch::X86_64), None);
}

/// What libbpf knows too: the instruction pointer as a register, and addresses that are numbers.
#[test]
fn the_instruction_pointer_and_absolute_addresses() {
    let ip = Arch::X86_64.instruction_pointer();
    assert_eq!(
        one("8@%rip", Arch::X86_64).expect("a register").operand,
        Operand::Register(ip)
    );
    for (text, base, offset) in [
        ("8@8(%rip)", Some(ip), 8),
        ("8@(%rip)", Some(ip), 0),
        ("8@0x601040", None, 0x60_1040),
        ("4@123", None, 123),
        ("-4@16+8", None, 24),
    ] {
        let recipe = one(text, Arch::X86_64).expect(text);
        let wanted = Address {
            base,
            offset,
            ..Address::default()
        };
        assert_eq!(recipe.operand, Operand::Memory(wanted), "{text}");
    }
}

/// Of a symbol whose page is in a register the rest is known before the file is loaded.
#[test]
fn low_bits_of_symbols_on_aarch64() {
    let x0 = register(Arch::Aarch64, "x0");
    for (text, offset) in [
        ("4@[x0, #:lo12:counter]", 0x234),
        ("4@[x0, :lo12:counter]", 0x234),
        ("4@[x0, #:lo12:counter+8]", 0x23c),
        ("4@[x0, #:lo12:counter+0xe00]", 0x034),
    ] {
        let recipe = one(text, Arch::Aarch64).expect(text);
        assert_eq!(recipe.symbol(), Some("counter"), "{text}");
        let resolved = recipe.resolved(0x41_1234, 0x40_0000, Arch::Aarch64).expect(text);
        let wanted = Address {
            base: Some(x0),
            offset,
            ..Address::default()
        };
        assert_eq!(resolved.operand, Operand::Memory(wanted), "{text}");
    }
    for text in [
        "4@[x0, #:lo12:counter, lsl 2]",
        "4@[x0, #:lo12:8]",
        "4@[x0, #:lo12:]",
        "4@[x0, #:got_lo12:counter]",
    ] {
        assert!(one(text, Arch::Aarch64).is_err(), "{text}");
    }
}

#[test]
fn operands_of_aarch64() {
    let r = |name| register(Arch::Aarch64, name);
    let index = |name, scale, signed| {
        Some(Index {
            register: r(name),
            scale,
            signed,
        })
    };
    for (text, operand) in [
        ("-4@5", Operand::Constant(5)),
        ("-4@-5", Operand::Constant(-5)),
        ("8@0x10", Operand::Constant(16)),
        ("8@#16", Operand::Constant(16)),
        ("8@xzr", Operand::Constant(0)),
        ("8@x0", Operand::Register(Register { offset: 0, size: 8 })),
        ("-4@w19", Operand::Register(Register { offset: 152, size: 4 })),
        ("8@x30", Operand::Register(Register { offset: 240, size: 8 })),
        ("8@sp", Operand::Register(Register { offset: 248, size: 8 })),
        ("8@[x0]", memory(Some(r("x0")), None, 0)),
        ("8@[x0, 8]", memory(Some(r("x0")), None, 8)),
        ("8@[x0,8]", memory(Some(r("x0")), None, 8)),
        ("8@[sp, -16]", memory(Some(r("sp")), None, -16)),
        ("8@[sp, #12]", memory(Some(r("sp")), None, 12)),
        ("8@[x0, x1]", memory(Some(r("x0")), index("x1", 1, false), 0)),
        (
            "8@[x0, x1, lsl 3]",
            memory(Some(r("x0")), index("x1", 8, false), 0),
        ),
        (
            "8@[x0, x1, lsl #2]",
            memory(Some(r("x0")), index("x1", 4, false), 0),
        ),
        (
            "8@[x0, w1, sxtw 2]",
            memory(Some(r("x0")), index("w1", 4, true), 0),
        ),
        (
            "8@[x0, w1, uxtw]",
            memory(Some(r("x0")), index("w1", 1, false), 0),
        ),
    ] {
        assert_eq!(
            one(text, Arch::Aarch64).map(|recipe| recipe.operand),
            Ok(operand),
            "{text}"
        );
    }
    for text in ["8@v0", "8@d0", "8@q31"] {
        assert_eq!(one(text, Arch::Aarch64), Err(Problem::Float), "{text}");
    }
    for text in [
        "8@x31",
        "8@x00",
        "8@[x0",
        "8@[w0]",
        "8@[x0, x1, x2]",
        "8@[x0, w1]",
        "8@[x0, 8, lsl 2]",
        "8@[x0, x1, lsl 9]",
        "8@[]",
        "8@[x0]!",
        "8@%rax",
        "8@[x0, x1, lsl 2 3]",
        "8@[x0, w1, lsl 2]",
    ] {
        assert!(one(text, Arch::Aarch64).is_err(), "{text}");
    }
}

#[test]
fn arguments_are_parted_by_blanks_outside_of_brackets() {
    let count = |text, arch| recipes(text, arch).len();
    assert_eq!(count("", Arch::X86_64), 0);
    assert_eq!(count("  ", Arch::X86_64), 0);
    assert_eq!(count("-4@%edi 8@%rsi  8@%rdx", Arch::X86_64), 3);
    assert_eq!(count("-4@[sp, 12] 8@[x0, x1, lsl 3] 4@w0", Arch::Aarch64), 3);
    // What can't be read is itself only.
    let all = recipes("8f@%xmm0 8@%rax", Arch::X86_64);
    assert!(all[0].is_err() && all[1].is_ok());
}
