//! Argument recipes of USDT probes: the strings in which an assembler wrote down where a call site has its arguments. In:
//! such a string and the machine. Out: a recipe or the reason why there is none, for each argument by itself. Never
//! looks at memory, never panics whatever the string is.
//!
//! A recipe is `[-]SIZE@OPERAND`: SIZE bytes, signed with a minus, at an operand in the machine's assembler syntax.

use std::collections::BTreeMap;
use std::fmt;

use super::regs::{Arch, Register};

/// The most arguments that `<sys/sdt.h>` lets a probe have.
pub const ARGS_MAX: usize = 12;

/// Where an argument is and how large.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recipe {
    /// Bytes that are read: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether they have a sign.
    pub signed: bool,
    /// Where they are.
    pub operand: Operand,
}

/// An operand of an instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The value itself.
    Constant(i64),
    /// In a register.
    Register(Register),
    /// In the program's memory.
    Memory(Address),
    /// The address itself is the value: a symbol as a constant.
    AddressOf(Address),
}

/// An address in the program's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address {
    /// A register that is added.
    pub base: Option<Register>,
    /// A scaled register that is added.
    pub index: Option<Index>,
    /// A number that is added.
    pub offset: i64,
    /// A symbol whose address is added. Who knows the program's symbols replaces it by a distance from the instruction
    /// pointer.
    pub symbol: Option<String>,
    /// Of the symbol's address only the low twelve bits are added: its page is in the base register.
    pub low: bool,
}

/// A scaled register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Index {
    /// The register.
    pub register: Register,
    /// What it is multiplied with: 1, 2, 4, 8 or 16.
    pub scale: u8,
    /// Whether a part of a register is extended with its sign.
    pub signed: bool,
}

/// An argument that can't be fetched, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecipeError {
    /// The recipe as the file has it.
    pub text: String,
    /// What is wrong.
    pub problem: Problem,
}

/// Why an argument can't be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Problem {
    /// There is no `SIZE@` before the operand.
    NoSize,
    /// Another number of bytes than 1, 2, 4 or 8.
    BadSize,
    /// A floating point number, which has no type here; or a vector register, which the kernel does not hand to probes.
    Float,
    /// Thread-local memory, whose base is not among the registers.
    ThreadLocal,
    /// The operand has a register that the machine lacks.
    UnknownRegister(String),
    /// The operand has a symbol that the file lacks.
    UnknownSymbol(String),
    /// The operand has a symbol that is the name of several things in the file.
    AmbiguousSymbol(String),
    /// The operand is none of the machine's.
    BadOperand,
    /// A number that takes more than 64 bits.
    TooLarge,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::NoSize => f.write_str("it does not say how large it is"),
            Problem::BadSize => f.write_str("only 1, 2, 4 and 8 bytes can be fetched"),
            Problem::Float => f.write_str("floating point numbers are not fetched"),
            Problem::ThreadLocal => f.write_str("it is thread-local"),
            Problem::UnknownRegister(name) => write!(f, "there is no register {name}"),
            Problem::UnknownSymbol(name) => write!(f, "there is no symbol {name}"),
            Problem::AmbiguousSymbol(name) => write!(f, "there is more than one symbol {name}"),
            Problem::BadOperand => f.write_str("the operand is not understood"),
            Problem::TooLarge => f.write_str("it has a number of more than 64 bits"),
        }
    }
}

impl fmt::Display for RecipeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.text, self.problem)
    }
}

/// Reads the argument string of a call site: one result for each argument.
pub fn recipes(text: &str, arch: Arch) -> Vec<Result<Recipe, RecipeError>> {
    split(text)
        .into_iter()
        .map(|text| {
            recipe(text, arch).map_err(|problem| RecipeError {
                text: text.to_string(),
                problem,
            })
        })
        .collect()
}

impl Recipe {
    /// What a constant of so many bytes and that sign is in 64 bits.
    pub fn cut(&self, value: i64) -> i64 {
        match (self.size, self.signed) {
            (1, true) => i64::from(value as i8),
            (1, false) => i64::from(value as u8),
            (2, true) => i64::from(value as i16),
            (2, false) => i64::from(value as u16),
            (4, true) => i64::from(value as i32),
            (4, false) => i64::from(value as u32),
            (_, _) => value,
        }
    }

    /// Whether an integer of so many bytes and that sign holds all its values.
    pub fn fits(&self, bytes: u32, signed: bool) -> bool {
        let own = u32::from(self.size);
        (own == bytes && self.signed == signed) || (own < bytes && (signed || !self.signed))
    }

    /// The symbol that its address needs.
    pub fn symbol(&self) -> Option<&str> {
        match &self.operand {
            Operand::Memory(address) | Operand::AddressOf(address) => address.symbol.as_deref(),
            Operand::Constant(_) | Operand::Register(_) => None,
        }
    }

    /// The same with the symbol's place told as a distance from the probe's own, at `site`: where a file is loaded moves both.
    pub fn resolved(mut self, symbol: u64, site: u64, arch: Arch) -> Option<Recipe> {
        match &mut self.operand {
            Operand::Memory(address) | Operand::AddressOf(address) if address.low => {
                // Files are loaded in whole pages.
                let within = symbol.wrapping_add_signed(address.offset) & 0xfff;
                *address = Address {
                    symbol: None,
                    low: false,
                    offset: within as i64,
                    ..*address
                };
            }
            Operand::Memory(address) | Operand::AddressOf(address) => {
                let distance = symbol.wrapping_sub(site) as i64;
                // `sym(%rbx)` has a base of its own, so that there is no place for another.
                if address.base.is_some() {
                    return None;
                }
                address.symbol = None;
                address.base = Some(arch.instruction_pointer());
                address.offset = address.offset.checked_add(distance)?;
            }
            Operand::Constant(_) | Operand::Register(_) => {}
        }
        Some(self)
    }
}

/// The same with the symbols in them replaced by where they are, as seen from the call site at `site`. `addresses` has `None` for a
/// symbol that several things have.
pub(super) fn located(
    text: &str,
    addresses: &BTreeMap<String, Option<u64>>,
    site: u64,
    arch: Arch,
) -> Vec<Result<Recipe, RecipeError>> {
    let place = |recipe: Recipe| match recipe.symbol() {
        None => Ok(recipe),
        Some(name) => match addresses.get(name) {
            Some(Some(address)) => recipe.resolved(*address, site, arch).ok_or(Problem::BadOperand),
            Some(None) => Err(Problem::AmbiguousSymbol(name.to_string())),
            None => Err(Problem::UnknownSymbol(name.to_string())),
        },
    };
    split(text)
        .into_iter()
        .map(|text| {
            recipe(text, arch).and_then(place).map_err(|problem| RecipeError {
                text: text.to_string(),
                problem,
            })
        })
        .collect()
}

/// The arguments of a string: blanks part them, but not those in brackets.
pub(super) fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = None;
    let mut open = 0u32;
    for (at, c) in text.char_indices() {
        match c {
            '[' | '(' => open += 1,
            ']' | ')' => open = open.saturating_sub(1),
            _ => {}
        }
        let parting = c.is_ascii_whitespace() && open == 0;
        match (parting, start) {
            (true, Some(from)) => {
                parts.push(&text[from..at]);
                start = None;
            }
            (false, None) => start = Some(at),
            (true, None) | (false, Some(_)) => {}
        }
    }
    if let Some(from) = start {
        parts.push(&text[from..]);
    }
    parts
}

fn recipe(text: &str, arch: Arch) -> Result<Recipe, Problem> {
    let (kind, operand) = text.split_once('@').ok_or(Problem::NoSize)?;
    let (signed, size) = match kind.strip_prefix('-') {
        Some(size) => (true, size),
        None => (false, kind),
    };
    if size
        .strip_suffix('f')
        .is_some_and(|size| size.parse::<u8>().is_ok())
    {
        return Err(Problem::Float);
    }
    if size.is_empty() || !size.bytes().all(|c| c.is_ascii_digit()) {
        return Err(Problem::NoSize);
    }
    let size = match size {
        "1" => 1,
        "2" => 2,
        "4" => 4,
        "8" => 8,
        _ => return Err(Problem::BadSize),
    };
    let operand = match arch {
        Arch::X86_64 => x86_64(operand)?,
        Arch::Aarch64 => aarch64(operand)?,
    };
    Ok(Recipe {
        size,
        signed,
        operand,
    })
}

/// An operand in AT&T's syntax.
fn x86_64(text: &str) -> Result<Operand, Problem> {
    if let Some(constant) = text.strip_prefix('$') {
        let sum = sum(constant)?;
        return Ok(match sum.symbol {
            None => Operand::Constant(sum.offset),
            Some(_) => Operand::AddressOf(sum),
        });
    }
    if text.starts_with("%fs:") || text.starts_with("%gs:") {
        return Err(Problem::ThreadLocal);
    }
    if let Some(name) = text.strip_prefix('%') {
        return Ok(Operand::Register(x86_64_register(name)?));
    }
    let Some((displacement, rest)) = text.split_once('(') else {
        // What is in memory at a symbol, or at an absolute address.
        return sum(text).map(Operand::Memory);
    };
    let inner = rest.strip_suffix(')').ok_or(Problem::BadOperand)?;
    let mut address = match displacement {
        "" => Address::default(),
        text => sum(text)?,
    };
    let mut parts = inner.split(',').map(str::trim);
    let (base, index, scale) = (parts.next().unwrap_or(""), parts.next(), parts.next());
    if parts.next().is_some() {
        return Err(Problem::BadOperand);
    }
    let named = |text: &str| match text.strip_prefix('%') {
        Some(name) => Ok(name.to_string()),
        None => Err(Problem::BadOperand),
    };
    match base {
        "" => {}
        "%rip" | "%eip" if index.is_some() => return Err(Problem::BadOperand),
        // With a symbol it is a way to write the symbol's address.
        "%rip" | "%eip" if address.symbol.is_some() => {}
        base => address.base = Some(address_register(x86_64_register(&named(base)?)?)?),
    }
    match index {
        None | Some("" | "%riz" | "%eiz") => {}
        Some(index) => {
            let scale = match scale {
                None | Some("" | "1") => 1,
                Some("2") => 2,
                Some("4") => 4,
                Some("8") => 8,
                Some(_) => return Err(Problem::BadOperand),
            };
            address.index = Some(Index {
                register: address_register(x86_64_register(&named(index)?)?)?,
                scale,
                signed: false,
            });
        }
    }
    if address.base.is_none() && address.index.is_none() && address.symbol.is_none() {
        return Err(Problem::BadOperand);
    }
    Ok(Operand::Memory(address))
}

fn x86_64_register(name: &str) -> Result<Register, Problem> {
    let vector = ["xmm", "ymm", "zmm", "st", "mm"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    if vector {
        return Err(Problem::Float);
    }
    Arch::X86_64
        .register(name)
        .ok_or_else(|| Problem::UnknownRegister(format!("%{name}")))
}

/// Only whole registers and their lower halves can be in an address.
fn address_register(register: Register) -> Result<Register, Problem> {
    if register.size >= 4 {
        Ok(register)
    } else {
        Err(Problem::BadOperand)
    }
}

/// Numbers and at most one symbol, added: `-8+16`, `table+4`.
fn sum(text: &str) -> Result<Address, Problem> {
    let mut address = Address::default();
    let mut rest = text;
    let mut first = true;
    while !rest.is_empty() || first {
        let (negative, term) = match rest.split_at_checked(1) {
            Some(("-", term)) => (true, term),
            Some(("+", term)) if !first => (false, term),
            Some(_) if first => (false, rest),
            Some(_) | None => return Err(Problem::BadOperand),
        };
        first = false;
        let end = term.find(['+', '-']).unwrap_or(term.len());
        let (term, after) = term.split_at(end);
        rest = after;
        if term.starts_with(|c: char| c.is_ascii_digit()) {
            let value = number(term)?;
            let sum = if negative {
                i128::from(address.offset) - value
            } else {
                i128::from(address.offset) + value
            };
            address.offset = in_64_bits(sum)?;
        } else if is_symbol(term) && !negative && address.symbol.is_none() {
            address.symbol = Some(term.to_string());
        } else if term.contains('@') || term.contains(':') {
            // Through a table of the linker's, or thread-local: `@tpoff`, `@GOTPCREL`.
            return Err(if term.contains("@tpoff") || term.contains("@dtpoff") {
                Problem::ThreadLocal
            } else {
                Problem::BadOperand
            });
        } else {
            return Err(Problem::BadOperand);
        }
    }
    Ok(address)
}

fn is_symbol(term: &str) -> bool {
    !term.is_empty()
        && term
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '$'))
}

fn number(text: &str) -> Result<i128, Problem> {
    let parsed = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) if digits.starts_with('+') => return Err(Problem::BadOperand),
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match parsed {
        Ok(value) => Ok(i128::from(value)),
        Err(error) => {
            if let std::num::IntErrorKind::PosOverflow = error.kind() {
                Err(Problem::TooLarge)
            } else {
                Err(Problem::BadOperand)
            }
        }
    }
}

/// Signed and unsigned numbers of 64 bits are the same bits.
fn in_64_bits(value: i128) -> Result<i64, Problem> {
    match i64::try_from(value) {
        Ok(value) => Ok(value),
        Err(_) => u64::try_from(value)
            .map(|value| value as i64)
            .map_err(|_| Problem::TooLarge),
    }
}

/// An operand in the syntax of aarch64's assembler.
fn aarch64(text: &str) -> Result<Operand, Problem> {
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or(Problem::BadOperand)?;
        return aarch64_memory(inner).map(Operand::Memory);
    }
    if let Some(value) = aarch64_number(text) {
        return value.map(Operand::Constant);
    }
    match text {
        "xzr" | "wzr" => Ok(Operand::Constant(0)),
        name => aarch64_register(name).map(Operand::Register),
    }
}

fn aarch64_memory(inner: &str) -> Result<Address, Problem> {
    let mut parts = inner.split(',').map(str::trim);
    let base = aarch64_register(parts.next().unwrap_or(""))?;
    if base.size != 8 {
        return Err(Problem::BadOperand);
    }
    let mut address = Address {
        base: Some(base),
        ..Address::default()
    };
    let Some(second) = parts.next() else {
        return Ok(address);
    };
    let extension = parts.next();
    if parts.next().is_some() {
        return Err(Problem::BadOperand);
    }
    if let Some(symbol) = second.trim_start_matches('#').strip_prefix(":lo12:") {
        let low = sum(symbol)?;
        if extension.is_some() || low.symbol.is_none() {
            return Err(Problem::BadOperand);
        }
        return Ok(Address {
            low: true,
            ..Address {
                base: Some(base),
                ..low
            }
        });
    }
    if let Some(value) = aarch64_number(second) {
        if extension.is_some() {
            return Err(Problem::BadOperand);
        }
        address.offset = value?;
        return Ok(address);
    }
    let register = aarch64_register(second)?;
    let (mut signed, mut shift) = (false, 0);
    if let Some(extension) = extension {
        let mut words = extension.split_ascii_whitespace();
        let size = match words.next() {
            Some("lsl") => 8,
            Some("sxtx") => 8,
            Some("uxtw") => 4,
            Some("sxtw") => {
                signed = true;
                4
            }
            Some(_) | None => return Err(Problem::BadOperand),
        };
        if register.size != size {
            return Err(Problem::BadOperand);
        }
        shift = match words.next() {
            None => 0,
            Some(amount) => match amount.trim_start_matches('#').parse::<u8>() {
                Ok(amount @ 0..=4) => amount,
                Ok(_) | Err(_) => return Err(Problem::BadOperand),
            },
        };
        if words.next().is_some() {
            return Err(Problem::BadOperand);
        }
    } else if register.size != 8 {
        return Err(Problem::BadOperand);
    }
    address.index = Some(Index {
        register,
        scale: 1 << shift,
        signed,
    });
    Ok(address)
}

/// A constant, if the text is meant for one.
fn aarch64_number(text: &str) -> Option<Result<i64, Problem>> {
    let text = text.strip_prefix('#').unwrap_or(text);
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let value =
        number(digits).and_then(|value| in_64_bits(if digits.len() < text.len() { -value } else { value }));
    Some(value)
}

fn aarch64_register(name: &str) -> Result<Register, Problem> {
    if let Some(register) = Arch::Aarch64.register(name) {
        return Ok(register);
    }
    let vector = name.len() > 1
        && name.starts_with(['v', 'q', 'd', 's', 'h', 'b', 'z'])
        && name[1..].starts_with(|c: char| c.is_ascii_digit());
    Err(if vector {
        Problem::Float
    } else if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
        Problem::BadOperand
    } else {
        Problem::UnknownRegister(name.to_string())
    })
}
