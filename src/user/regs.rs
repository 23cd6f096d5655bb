//! Registers as a probe finds them: where `struct pt_regs` keeps each, and which of them carry arguments and return
//! values. In: a machine and a register's name. Out: offsets. An architecture is a table here and a syntax in
//! `recipe`. Never reads anything.
//!
//! Sources: `arch/x86/include/asm/ptrace.h`, `arch/arm64/include/uapi/asm/ptrace.h` (`user_pt_regs`, which begins
//! `pt_regs`), the x86-64 psABI 3.2.3, AAPCS64 6.8.

/// A machine that programs are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arch {
    /// `EM_X86_64`.
    X86_64,
    /// `EM_AARCH64`.
    Aarch64,
}

/// A register, or the part of one that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register {
    /// Bytes from the start of `struct pt_regs`.
    pub offset: i16,
    /// How many bytes the name stands for: 1, 2, 4 or 8.
    pub size: u8,
}

impl Register {
    const fn whole(offset: i16) -> Register {
        Register { offset, size: 8 }
    }
}

/// Where a function finds an argument, or its caller the return value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Passed {
    /// In a register.
    Register(Register),
    /// On the stack, so many bytes above the stack pointer at entry.
    Stack(i16),
}

/// How the registers of x86-64 are called in 8, 4, 2 and 1 bytes, and where they are.
const X86_64: [([&str; 4], i16); 17] = [
    (["rax", "eax", "ax", "al"], 80),
    (["rbx", "ebx", "bx", "bl"], 40),
    (["rcx", "ecx", "cx", "cl"], 88),
    (["rdx", "edx", "dx", "dl"], 96),
    (["rsi", "esi", "si", "sil"], 104),
    (["rdi", "edi", "di", "dil"], 112),
    (["rbp", "ebp", "bp", "bpl"], 32),
    (["rsp", "esp", "sp", "spl"], 152),
    (["r8", "r8d", "r8w", "r8b"], 72),
    (["r9", "r9d", "r9w", "r9b"], 64),
    (["r10", "r10d", "r10w", "r10b"], 56),
    (["r11", "r11d", "r11w", "r11b"], 48),
    (["r12", "r12d", "r12w", "r12b"], 24),
    (["r13", "r13d", "r13w", "r13b"], 16),
    (["r14", "r14d", "r14w", "r14b"], 8),
    (["r15", "r15d", "r15w", "r15b"], 0),
    // Where the probe is; there is no name for a single byte of it.
    (["rip", "eip", "ip", "ip"], 128),
];

/// The second bytes of the first four, which have names of their own.
const X86_64_HIGH: [(&str, i16); 4] = [("ah", 81), ("bh", 41), ("ch", 89), ("dh", 97)];

/// The registers of x86-64 by the kernel's names, which are the fields of `struct pt_regs`.
const X86_64_PROBE: [(&str, i16); 21] = [
    ("ax", 80),
    ("bx", 40),
    ("cx", 88),
    ("dx", 96),
    ("si", 104),
    ("di", 112),
    ("bp", 32),
    ("sp", 152),
    ("r8", 72),
    ("r9", 64),
    ("r10", 56),
    ("r11", 48),
    ("r12", 24),
    ("r13", 16),
    ("r14", 8),
    ("r15", 0),
    ("ip", 128),
    ("orig_ax", 120),
    ("cs", 136),
    ("flags", 144),
    ("ss", 160),
];

impl Arch {
    /// The register of that name, without the `%` that assemblers of x86-64 put before it.
    pub fn register(self, name: &str) -> Option<Register> {
        match self {
            Arch::X86_64 => {
                let whole = X86_64.iter().find_map(|(names, offset)| {
                    let at = names.iter().position(|known| *known == name)?;
                    Some(Register {
                        offset: *offset,
                        size: 8 >> at,
                    })
                });
                let high = || {
                    let (_, offset) = X86_64_HIGH.iter().find(|(known, _)| *known == name)?;
                    Some(Register {
                        offset: *offset,
                        size: 1,
                    })
                };
                whole.or_else(high)
            }
            Arch::Aarch64 => match name {
                "sp" => Some(self.stack_pointer()),
                "wsp" => Some(Register {
                    size: 4,
                    ..self.stack_pointer()
                }),
                "fp" => Some(Register::whole(29 * 8)),
                "lr" => Some(Register::whole(30 * 8)),
                _ => {
                    let (size, digits) = match name.split_at_checked(1)? {
                        ("x", digits) => (8, digits),
                        ("w", digits) => (4, digits),
                        _ => return None,
                    };
                    let number: i16 = digits.parse().ok()?;
                    let canonical = (0..=30).contains(&number) && number.to_string() == digits;
                    canonical.then_some(Register {
                        offset: number * 8,
                        size,
                    })
                }
            },
        }
    }

    /// The register that the kernel's probe events call so behind their `%` (`regs_query_register_offset`,
    /// `arch/x86/kernel/ptrace.c`, `arch/arm64/kernel/ptrace.c`): always all of it.
    pub fn probe_register(self, name: &str) -> Option<Register> {
        match self {
            Arch::X86_64 => X86_64_PROBE
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, offset)| Register::whole(*offset)),
            Arch::Aarch64 => match name {
                "pc" => Some(self.instruction_pointer()),
                "pstate" => Some(Register::whole(264)),
                // Parts of registers, and the frame pointer, have no names there.
                "wsp" | "fp" => None,
                name if name.starts_with('w') => None,
                name => self.register(name),
            },
        }
    }

    /// What the registers are called there, for suggestions.
    pub fn probe_registers(self) -> Vec<String> {
        match self {
            Arch::X86_64 => X86_64_PROBE.iter().map(|(name, _)| name.to_string()).collect(),
            Arch::Aarch64 => (0..=30)
                .map(|number| format!("x{number}"))
                .chain(["lr", "sp", "pc", "pstate"].map(str::to_string))
                .collect(),
        }
    }

    /// The address of the instruction that the probe is at.
    pub fn instruction_pointer(self) -> Register {
        match self {
            Arch::X86_64 => Register::whole(128),
            Arch::Aarch64 => Register::whole(256),
        }
    }

    /// The stack pointer.
    pub fn stack_pointer(self) -> Register {
        match self {
            Arch::X86_64 => Register::whole(152),
            Arch::Aarch64 => Register::whole(248),
        }
    }

    /// Where a function finds its `index`th integer or pointer argument, when it is at its first instruction.
    pub fn argument(self, index: usize) -> Option<Passed> {
        const X86_64: [i16; 6] = [112, 104, 96, 88, 72, 64];
        match self {
            Arch::X86_64 => match X86_64.get(index) {
                Some(offset) => Some(Passed::Register(Register::whole(*offset))),
                // Above the return address.
                None => Some(Passed::Stack(i16::try_from(8 + (index - X86_64.len()) * 8).ok()?)),
            },
            Arch::Aarch64 if index < 8 => Some(Passed::Register(Register::whole(index as i16 * 8))),
            Arch::Aarch64 => Some(Passed::Stack(i16::try_from((index - 8) * 8).ok()?)),
        }
    }

    /// Where a caller finds an integer or pointer that was returned.
    pub fn returned(self) -> Register {
        match self {
            Arch::X86_64 => Register::whole(80),
            Arch::Aarch64 => Register::whole(0),
        }
    }

    /// How the stack pointer at a function's return differs from that at its entry: `ret` of x86-64 pops the return
    /// address.
    pub fn popped(self) -> i32 {
        match self {
            Arch::X86_64 => 8,
            Arch::Aarch64 => 0,
        }
    }

    /// As the kernel and the tools call it.
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86-64",
            Arch::Aarch64 => "aarch64",
        }
    }
}
