//! The one contract between generated code and display: how an event lies in the ring buffer. Lowering makes a
//! [`RecordLayout`] and stores by it, display reads by it. Goes in: nothing; comes out: plain data. Never
//! touches bytes itself.

use crate::ctype::CType;
use crate::span::Span;
use crate::types::TypeId;

mod aggregate;

pub use aggregate::{
    AggregateLayout, HIST_ZERO, HITS, KEY_MAX, Measure, MeasureLayout, Unit, VALUE_HEADER, VALUE_MAX,
    extreme_mask,
};

/// Byte offset of the event number (`u32`, the layout's [`RecordLayout::event`]).
pub const EVENT: u32 = 0;
/// Byte offset of the CPU (`u32`).
pub const CPU: u32 = 4;
/// Byte offset of the time (`u64`, nanoseconds of `bpf_ktime_get_ns`).
pub const TIME: u32 = 8;
/// Byte offset of the thread id (`u32`; `bpf_get_current_pid_tgid`'s low half).
pub const TID: u32 = 16;
/// Byte offset of the process id (`u32`; its high half).
pub const PID: u32 = 20;
/// Size of what every record begins with, in bytes.
pub const HEADER: u32 = 24;

/// In an item: byte offset of its fault (`u32`: 0 is none, N is the Nth of [`ItemLayout::steps`], from 1; with the top bit
/// set, as in a negative error code, it is the shown pointer itself that does not lead anywhere).
pub const FAULT: u32 = 0;
/// In an item: byte offset of its length (`u32`: bytes of a string or buffer that were copied, its NUL not counted; of a string
/// with [`CUT`]).
pub const LENGTH: u32 = 4;
/// In the length of a string: it was copied up to a length that was worked out, and may go on.
pub const CUT: u32 = 1 << 31;
/// In an item: byte offset of its value. After a fault, the address that could not be used lies here (`u64`).
pub const VALUE: u32 = 8;

/// Frames at the inner end of a kernel stack that may be the tracer's own: its program, and what runs that.
pub const OWN_FRAMES: u32 = 8;

/// The label of an item that nobody has asked for by this name: how long the call took, a [`ValueLayout::Scalar`] in nanoseconds,
/// of an event that tells of a whole call. The time of such an event less this is the time of the call's entry.
pub const DURATION: &str = "$duration";

/// When in a call an event is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// When the function is entered.
    Entry,
    /// When it returns.
    Return,
    /// At its return, with values that were read at its entry.
    Both,
    /// There is no call: a tracepoint, a USDT probe.
    Hit,
}

/// One kind of event: what generated code writes and display reads.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordLayout {
    /// The number in the record at [`EVENT`] for the first of [`RecordLayout::names`]; the others' follow it. Unique among
    /// the artifacts of one run.
    pub event: u32,
    /// Size of the whole record in bytes, a multiple of 8.
    pub size: u32,
    /// What was hit: the function or tracepoint. One program may serve many functions, and then each has its number.
    pub names: Vec<String>,
    /// Which of the query texts of the artifact this belongs to.
    pub query: usize,
    /// When it is made.
    pub phase: Phase,
    /// Its values, in the order they are shown.
    pub items: Vec<ItemLayout>,
    /// The function returns something; if it is not among the values, that is not because there is nothing.
    pub returns: bool,
}

/// One value of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemLayout {
    /// What it is called: its label, else the expression as written.
    pub label: String,
    /// Where it lies: byte offset of its fault word from the record's start, a multiple of 8.
    pub offset: u32,
    /// How the bytes at [`VALUE`] are laid out.
    pub value: ValueLayout,
    /// Its C type.
    pub ty: CType,
    /// How to show it, if the query says.
    pub format: Option<Format>,
    /// Where in the query it is.
    pub span: Span,
    /// The steps that can fault, as text (`a->b`): what a fault word of N names is `steps[N - 1]`.
    pub steps: Vec<String>,
}

/// How the bytes of one value are laid out, from [`VALUE`] on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ValueLayout {
    /// A `u64`: the value as C converts it, sign- or zero-extended from its type to 64 bits.
    Scalar,
    /// A `u64`, the pointer, then `copied` bytes of what it points to, which is `pointee` of `full` bytes. With the
    /// pointer's own fault the copy is undefined and the pointer alone is shown.
    Pointee {
        /// What it points to.
        pointee: TypeId,
        /// Bytes that are in the record.
        copied: u32,
        /// Its size.
        full: u32,
    },
    /// `copied` bytes of a struct, union or array of `full` bytes.
    Bytes {
        /// Bytes that are in the record.
        copied: u32,
        /// Its size.
        full: u32,
    },
    /// Up to `capacity` bytes of a NUL-terminated string; how many is at [`LENGTH`].
    String {
        /// Room in bytes.
        capacity: u32,
    },
    /// A call stack: return addresses, innermost first, `u64` each; how many bytes of them there are is at [`LENGTH`]. A user's
    /// has a `u64` before them: the process id. The kernel's has room for [`OWN_FRAMES`] more than `depth`.
    Stack {
        /// Frames that are shown.
        depth: u32,
        /// Of the process, else of the kernel.
        user: bool,
    },
    /// A `u64`: which of the layout's names is meant, from 0; a string to who sees it.
    Name,
    /// Raw memory (`buf(p, n)`): up to `capacity` bytes; how many is at [`LENGTH`].
    Buffer {
        /// Room in bytes.
        capacity: u32,
    },
}

/// How a value is to be shown, from `:FORMAT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Signed decimal.
    Signed,
    /// Unsigned decimal.
    Unsigned,
    /// Hexadecimal.
    Hex,
    /// Octal.
    Octal,
    /// Binary.
    Binary,
    /// A character.
    Char,
    /// A string.
    String,
    /// An IPv4 or IPv6 address, by the value's size.
    Ip,
    /// A MAC address.
    Mac,
    /// A kernel symbol.
    Symbol,
    /// An errno name.
    Errno,
    /// A hex dump.
    Dump,
    /// A big-endian number.
    BigEndian,
}

impl RecordLayout {
    /// One past the last of its event numbers.
    pub fn end(&self) -> u32 {
        self.event + self.names.len() as u32
    }

    /// Gives all items the steps that can fault in this event; fault words count in it.
    pub fn set_steps(&mut self, steps: &[String]) {
        for item in &mut self.items {
            item.steps = steps.to_vec();
        }
    }
}

impl ValueLayout {
    /// Bytes from the item's start to its end, header included, a multiple of 8.
    pub fn item_size(&self) -> u32 {
        let value = match self {
            ValueLayout::Scalar | ValueLayout::Name => 8,
            ValueLayout::Pointee { copied, .. } => 8 + copied,
            ValueLayout::Bytes { copied, .. } => *copied,
            ValueLayout::String { capacity } | ValueLayout::Buffer { capacity } => *capacity,
            ValueLayout::Stack { depth, user: true } => 8 * (1 + depth),
            ValueLayout::Stack { depth, user: false } => 8 * (depth + OWN_FRAMES),
        };
        // A fault stores an address, so there is always room for one.
        VALUE + value.max(8).next_multiple_of(8)
    }
}
