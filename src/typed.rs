//! The typed query: what sema makes and lowering reads. Every name is resolved, every conversion is explicit, every
//! operand of an operation has the type the operation works in. Nothing here can be a user's mistake any more.

mod aggregate;
mod walk;

pub use aggregate::{Aggregate, Measure};

use std::path::PathBuf;

use crate::ctype::CType;
use crate::glob::Pattern;
use crate::span::Span;
use crate::types::{Func, TypeId};
use crate::user::{Arch, Recipe, Register};
use crate::wire::{Format, Phase, ValueLayout};

/// A query with nothing left to resolve.
#[derive(Clone, Debug)]
pub struct Query {
    /// Its text, which all spans index.
    pub text: String,
    /// What is traced.
    pub probe: Probe,
    /// What is to happen: one event, or one at entry and one at return.
    pub events: Vec<Event>,
    /// What the kernel keeps instead of sending events: then there is one event, and its items are keys and values.
    pub aggregate: Option<Aggregate>,
}

/// What is traced.
#[derive(Clone, Debug)]
pub enum Probe {
    /// A kernel function.
    Function(Func),
    /// A kernel tracepoint, its arguments as a function's parameters.
    Tracepoint(Func),
    /// A function of a program or shared library, or an instruction in it.
    Uprobe(UserProbe),
    /// A USDT probe.
    Usdt(UserProbe),
}

/// What is traced in a program.
#[derive(Clone, Debug)]
pub struct UserProbe {
    /// Its name, its arguments as parameters, and what it returns.
    pub func: Func,
    /// The file, as the query names it.
    pub binary: String,
    /// The file itself.
    pub path: PathBuf,
    /// The machine that it is for.
    pub arch: Arch,
    /// Whether the places are the first instructions of functions, which return.
    pub returns: bool,
    /// Whether it is known which arguments there are; else they are what registers hold.
    pub described: bool,
    /// For each argument, why it can't be fetched at some place; empty where nothing is wrong.
    pub reasons: Vec<String>,
    /// Where it is.
    pub sites: Vec<Site>,
}

/// A place in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The address that the file gives it.
    pub address: u64,
    /// Where it is in the file.
    pub offset: u64,
    /// Where in the file the number is that counts who watches, or 0.
    pub semaphore: u64,
    /// How each argument is fetched here; `None` for one that can't be, which nothing mentions.
    pub args: Vec<Option<Recipe>>,
}

impl Probe {
    /// The prototype, whichever kind it is.
    pub fn func(&self) -> &Func {
        match self {
            Probe::Function(func) | Probe::Tracepoint(func) => func,
            Probe::Uprobe(probe) | Probe::Usdt(probe) => &probe.func,
        }
    }

    /// What it is in a program, if it is in one.
    pub fn user(&self) -> Option<&UserProbe> {
        match self {
            Probe::Function(_) | Probe::Tracepoint(_) => None,
            Probe::Uprobe(probe) | Probe::Usdt(probe) => Some(probe),
        }
    }

    /// What it returns; `None` where there is no call.
    pub fn ret(&self) -> Option<TypeId> {
        match self {
            Probe::Function(func) => Some(func.ret),
            Probe::Uprobe(probe) if probe.returns => Some(probe.func.ret),
            Probe::Tracepoint(_) | Probe::Uprobe(_) | Probe::Usdt(_) => None,
        }
    }
}

/// One kind of event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// When it is made.
    pub phase: Phase,
    /// All must hold; each is an expression that is used as a condition. In a [`Phase::Both`] event those that
    /// mention nothing of the return are judged at entry.
    pub predicates: Vec<Predicate>,
    /// What is shown.
    pub items: Vec<Item>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Predicate {
    /// The condition.
    pub cond: Expr,
    /// When it can be judged.
    pub when: When,
}

/// When an expression is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum When {
    /// At entry, or wherever the program runs.
    Entry,
    /// At return.
    Return,
}

/// A shown value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// What it is called.
    pub label: String,
    /// What is read.
    pub source: Source,
    /// Its C type.
    pub ty: CType,
    /// How its bytes lie in the record.
    pub value: ValueLayout,
    /// How it is shown, if the query says.
    pub format: Option<Format>,
    /// When it is read.
    pub when: When,
    /// Where in the query it is.
    pub span: Span,
}

/// Where the bytes of a shown value come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A scalar or pointer expression; for [`ValueLayout::Pointee`] and [`ValueLayout::String`] what it points to follows.
    Value(Expr),
    /// Memory: a struct, union or array.
    Memory(Place),
    /// The name of the current task.
    Comm,
    /// So many bytes behind a pointer, or a string of at most so many; how many is worked out when it is read.
    Sized {
        /// The pointer.
        pointer: Expr,
        /// Which address space.
        memory: Memory,
        /// How many, a `long` or an `unsigned long`.
        length: Expr,
    },
    /// The call stack.
    Stack {
        /// Of the process, else of the kernel.
        user: bool,
    },
    /// A text that is known already.
    Literal(Vec<u8>),
    /// The name of what was hit, of those that the layout lists.
    Name,
}

/// An expression with its type. Two are equal if they mean the same, wherever they were written: lowering reads once what
/// occurs twice.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Its C type: an integer, `bool`, an enum or a pointer; never a struct or an array.
    pub ty: CType,
    /// Where it was written.
    pub span: Span,
}

/// The kinds of expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExprKind {
    /// A constant, extended to 64 bits by its type.
    Const(i64),
    /// A scalar argument, by its index; what is above its type is ignored.
    Arg(usize),
    /// The return value.
    Return,
    /// Something about the moment of the event.
    Builtin(Builtin),
    /// What is in memory there: a scalar, a pointer, a bitfield.
    Load(Box<Place>),
    /// The address of something in memory.
    AddrOf(Box<Place>),
    /// `-x`.
    Neg(Box<Expr>),
    /// `~x`.
    BitNot(Box<Expr>),
    /// Arithmetic; both sides already have the result's type (but for shifts: there the right side has its own), or, for
    /// [`Arith::Add`] and [`Arith::Sub`] on a pointer, the right side is a `long` in bytes.
    Arith {
        /// The operation.
        op: Arith,
        /// Left side.
        lhs: Box<Expr>,
        /// Right side.
        rhs: Box<Expr>,
    },
    /// Conversion to the expression's own type.
    Convert(Box<Expr>),
    /// A comparison of two values of one type; the result is an `int`, 0 or 1.
    Compare {
        /// The comparison.
        op: Relation,
        /// Left side.
        lhs: Box<Expr>,
        /// Right side.
        rhs: Box<Expr>,
    },
    /// `!x`.
    Not(Box<Expr>),
    /// `a && b`.
    And(Box<Expr>, Box<Expr>),
    /// `a || b`.
    Or(Box<Expr>, Box<Expr>),
    /// `c ? a : b`; both of the result's type.
    Cond(Box<Expr>, Box<Expr>, Box<Expr>),
    /// A string against a literal.
    StrCompare {
        /// What is compared.
        text: Box<Text>,
        /// Whether the test has to hold, else its opposite.
        equal: bool,
        /// With what.
        test: StrTest,
    },
    /// Memory of a known size against bytes, as many of them.
    BytesCompare {
        /// What is compared.
        place: Box<Place>,
        /// Whether equality is asked for, else inequality.
        equal: bool,
        /// The bytes: at least one, at most [`BYTES_MAX`].
        bytes: Vec<u8>,
    },
    /// What the kernel's types say: on another kernel it is another number.
    Layout {
        /// What is asked.
        fact: Fact,
        /// The answer of this kernel.
        value: u64,
    },
    /// The value, which must be an index below the bound; else it is a fault.
    Checked {
        /// The index, a `long`.
        index: Box<Expr>,
        /// The first value that is out of bounds.
        bound: u32,
    },
    /// The bytes of a number of 2, 4 or 8 bytes in the other order.
    Swap(Box<Expr>),
    /// Whether a pointer, or a number of 32 or 64 bits, is in the range of error codes.
    IsErr(Box<Expr>),
    /// The same pointer, known to point into user memory.
    AsUser(Box<Expr>),
    /// The value as it was at the call's entry, in something that is computed at its return.
    AtEntry(Box<Expr>),
}

/// The most bytes that [`ExprKind::BytesCompare`] compares.
pub const BYTES_MAX: usize = 16;

/// The most characters that a pattern of [`StrTest::Matches`] has, not counting `*`: one bit of a register for each, and one
/// for the beginning.
pub const PATTERN_MAX: usize = 63;

/// What a string is tested for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StrTest {
    /// To be this text, which holds no NUL.
    Is(Vec<u8>),
    /// To match this pattern.
    Matches(Pattern),
}

/// A question about the layout of types.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fact {
    /// Size of a struct or union in bytes.
    SizeOf(TypeId),
    /// Size of a member in bytes.
    SizeOfField(Path),
    /// Bytes from a struct's start to a member.
    OffsetOf(Path),
}

/// A string in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Text {
    /// A NUL-terminated string that a pointer points to.
    Pointer {
        /// The pointer.
        pointer: Expr,
        /// Which address space.
        memory: Memory,
        /// It ends there at the latest.
        limit: Option<u32>,
    },
    /// A `char` array of so many bytes.
    Array {
        /// The array.
        place: Place,
        /// Its size.
        len: u32,
    },
    /// The name of the current task.
    Comm,
}

/// Which address space a pointer points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Kernel memory.
    Kernel,
    /// User memory: the type is tagged so, or `user()` says so.
    User,
    /// Not told by the type: strings decide by the address itself, everything else takes it for kernel memory.
    Unknown,
}

/// Arithmetic. Division and remainder, right shifts are signed if the result's type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arith {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`; by zero is a fault.
    Div,
    /// `%`; by zero is a fault.
    Rem,
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `<<`
    Shl,
    /// `>>`
    Shr,
}

/// Comparisons; signed if the operands' type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// Values about the moment of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// Process id.
    Pid,
    /// Thread id.
    Tid,
    /// User id.
    Uid,
    /// Group id.
    Gid,
    /// CPU number.
    Cpu,
    /// Nanoseconds since boot.
    Ktime,
    /// Id of the cgroup.
    Cgroup,
    /// The current task, a `struct task_struct *`.
    Task,
    /// Nanoseconds from the call's entry to its return. Only at return.
    Duration,
    /// The stack pointer where the probe is.
    Stack,
    /// A register where the probe is.
    Register(Register),
}

impl Builtin {
    /// Whether it may be another at the return of a call than at its entry.
    pub fn changes(self) -> bool {
        match self {
            Builtin::Cpu
            | Builtin::Ktime
            | Builtin::Uid
            | Builtin::Gid
            | Builtin::Cgroup
            | Builtin::Stack
            | Builtin::Register(_) => true,
            Builtin::Pid | Builtin::Tid | Builtin::Task | Builtin::Duration => false,
        }
    }
}

/// Something in memory, and the way to it from a base. Two are equal if they mean the same, as with [`Expr`].
#[derive(Clone, Debug)]
pub struct Place {
    /// Where it starts.
    pub base: Base,
    /// The way through kernel structs, if there is one: then the access carries a relocation.
    pub path: Option<Path>,
    /// Bytes from the base to it (of a bitfield, to the first byte that has a bit of it), as the compiling side's BTF has it.
    pub offset: u64,
    /// If it is a bitfield.
    pub bits: Option<BitRange>,
    /// Its type.
    pub ty: CType,
    /// Where it was written.
    pub span: Span,
}

/// Where a place starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// What a pointer points to.
    Pointer {
        /// The pointer.
        pointer: Box<Expr>,
        /// Which address space.
        memory: Memory,
    },
    /// A struct or union that was passed by value.
    Arg(usize),
    /// A struct or union that was returned by value.
    Return,
}

/// A CO-RE access path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The struct or union it starts from.
    pub root: TypeId,
    /// Index of a `root[]` element, then member and array indices.
    pub access: Vec<u32>,
    /// The way leads through a union: the kernel's verifier may take what is loaded for another member's type.
    pub through_union: bool,
    /// `struct sk_buff.len`, for people.
    pub text: String,
}

/// Which bits of memory a bitfield is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BitRange {
    /// Bits from the base's start to its lowest bit.
    pub first: u64,
    /// Its width.
    pub width: u8,
    /// Size of its declared type in bytes.
    pub unit: u8,
}
