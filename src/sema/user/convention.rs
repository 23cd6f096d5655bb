//! Where a function of a program finds its arguments when it is called. In: its prototype, or that there is none; a machine. Out: a
//! recipe for each argument, or why there is none. What can't be placed for certain is said to be unknown, never guessed.
//!
//! Sources: the x86-64 psABI 3.2.3, AAPCS64 6.8.2.

use crate::types::{Func, Param, Type, TypeId, Types};
use crate::user::{Address, Arch, Operand, Passed, Recipe};

/// What a function takes and returns.
pub(super) struct Signature {
    pub(super) params: Vec<Param>,
    /// How each is fetched.
    pub(super) args: Vec<Option<Recipe>>,
    /// Why one can't be, for those.
    pub(super) reasons: Vec<String>,
    pub(super) ret: TypeId,
}

/// Without a prototype: what the registers hold that can carry arguments, as unsigned long.
pub(super) fn by_registers(arch: Arch) -> Signature {
    let word = TypeId::integer(8, false);
    let mut params = Vec::new();
    let mut args = Vec::new();
    let mut index = 0;
    while let Some(Passed::Register(register)) = arch.argument(index) {
        params.push(Param {
            name: format!("arg{index}"),
            ty: word,
        });
        args.push(Some(Recipe {
            size: 8,
            signed: false,
            operand: Operand::Register(register),
        }));
        index += 1;
    }
    Signature {
        reasons: vec![String::new(); params.len()],
        params,
        args,
        ret: word,
    }
}

/// With a prototype: numbers and pointers are where the calling convention puts them. Where a struct is depends on what is in it, so
/// that nothing is said of what may follow it.
pub(super) fn by_prototype(types: &Types, prototype: &Func, arch: Arch) -> Signature {
    let mut cursor = Cursor::new(types, prototype.ret, arch);
    let mut args = Vec::new();
    let mut reasons = Vec::new();
    for param in &prototype.params {
        let (recipe, reason) = match cursor.next(types, param.ty) {
            Ok(recipe) => (Some(recipe), String::new()),
            Err(why) => (None, why),
        };
        args.push(recipe);
        reasons.push(reason);
    }
    Signature {
        params: prototype.params.clone(),
        args,
        reasons,
        ret: prototype.ret,
    }
}

/// Whether a value of the type is passed and returned in one integer register.
pub(in crate::sema) fn in_one_register(types: &Types, ty: TypeId) -> bool {
    match types.get_stripped(ty) {
        Type::Int(int) => int.size <= 8,
        Type::Enum(_) | Type::Ptr(_) => true,
        Type::Void
        | Type::Float { .. }
        | Type::Array { .. }
        | Type::Struct(_)
        | Type::Union(_)
        | Type::Fwd { .. }
        | Type::Typedef(_)
        | Type::Const(_)
        | Type::Volatile(_)
        | Type::Restrict(_)
        | Type::TypeTag { .. }
        | Type::Func { .. }
        | Type::FuncProto { .. }
        | Type::Other => false,
    }
}

/// How much of what carries arguments is taken. What is no longer known is `None`.
struct Cursor {
    arch: Arch,
    /// Registers for numbers and pointers.
    integers: Option<usize>,
    /// Registers for floating point numbers.
    floats: Option<usize>,
    /// Words on the stack.
    words: Option<usize>,
}

/// On both machines.
const FLOAT_REGISTERS: usize = 8;

impl Cursor {
    fn new(types: &Types, ret: TypeId, arch: Arch) -> Cursor {
        // A struct that is returned in memory takes the first register of x86-64; a small one may be in registers or, if
        // its members are not aligned, in memory. aarch64 has a register of its own for that.
        let integers = match (arch, types.composite(ret)) {
            (Arch::X86_64, Some(composite)) if composite.size > 16 => Some(1),
            (Arch::X86_64, Some(_)) => None,
            (Arch::X86_64, None) | (Arch::Aarch64, _) => Some(0),
        };
        Cursor {
            arch,
            integers,
            floats: Some(0),
            words: Some(0),
        }
    }

    fn registers(&self) -> usize {
        let mut count = 0;
        while let Some(Passed::Register(_)) = self.arch.argument(count) {
            count += 1;
        }
        count
    }

    /// Takes so many words of the stack, from an even one on if it must be aligned. Out: the first.
    fn stack(&mut self, count: usize, aligned: bool) -> Option<usize> {
        let start = self.words?;
        let start = if aligned { start.next_multiple_of(2) } else { start };
        self.words = Some(start + count);
        Some(start)
    }

    fn next(&mut self, types: &Types, ty: TypeId) -> Result<Recipe, String> {
        let after = || "it comes after a struct, of which is not known what it takes".to_string();
        match types.get_stripped(ty) {
            Type::Float { size } => {
                self.float(size);
                Err("floating point numbers are not fetched".to_string())
            }
            Type::Int(int) if int.size > 8 => {
                self.pair();
                Err(format!("numbers of {} bytes are not fetched", int.size))
            }
            Type::Int(int) => self.word(int.size, int.signed).ok_or_else(after),
            Type::Enum(e) => self.word(e.size, e.signed).ok_or_else(after),
            Type::Ptr(_) => self.word(8, false).ok_or_else(after),
            Type::Struct(_) | Type::Union(_) => {
                let large = types.size_of(ty).is_some_and(|size| size > 16);
                // One of more than 16 bytes is on the stack of x86-64, as aligned as what is in it.
                if !(large && self.arch == Arch::X86_64) {
                    self.integers = None;
                    self.floats = None;
                }
                self.words = None;
                Err("where a struct is passed depends on what is in it".to_string())
            }
            Type::Void
            | Type::Array { .. }
            | Type::Fwd { .. }
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => {
                (self.integers, self.floats, self.words) = (None, None, None);
                Err("where one of its type is passed is not known".to_string())
            }
        }
    }

    fn float(&mut self, size: u32) {
        // x86-64 passes `long double` on the stack and `__float128` in a register, and BTF calls both so.
        if size > 8 && self.arch == Arch::X86_64 {
            self.floats = None;
            self.words = None;
            return;
        }
        match self.floats {
            Some(taken) if taken < FLOAT_REGISTERS => self.floats = Some(taken + 1),
            Some(_) => {
                self.stack(size.div_ceil(8).max(1) as usize, size > 8);
            }
            None => self.words = None,
        }
    }

    /// A number of 16 bytes takes two registers, on aarch64 from an even one on.
    fn pair(&mut self) {
        let all = self.registers();
        let Some(taken) = self.integers else {
            self.words = None;
            return;
        };
        let first = match self.arch {
            Arch::X86_64 => taken,
            Arch::Aarch64 => taken.next_multiple_of(2),
        };
        if first + 2 <= all {
            self.integers = Some(first + 2);
            return;
        }
        // What follows may still be in the last register of x86-64, but not of aarch64.
        if self.arch == Arch::Aarch64 {
            self.integers = Some(all);
        }
        self.stack(2, true);
    }

    fn word(&mut self, size: u32, signed: bool) -> Option<Recipe> {
        let Some(taken) = self.integers else {
            // It may be in a register or on the stack.
            self.words = None;
            return None;
        };
        let all = self.registers();
        let index = if taken < all {
            self.integers = Some(taken + 1);
            taken
        } else {
            all + self.stack(1, false)?
        };
        let operand = match self.arch.argument(index)? {
            Passed::Register(register) => Operand::Register(register),
            Passed::Stack(offset) => Operand::Memory(Address {
                base: Some(self.arch.stack_pointer()),
                offset: i64::from(offset),
                ..Address::default()
            }),
        };
        let size = u8::try_from(size)
            .ok()
            .filter(|size| matches!(size, 1 | 2 | 4 | 8))?;
        Some(Recipe {
            size,
            signed,
            operand,
        })
    }
}
