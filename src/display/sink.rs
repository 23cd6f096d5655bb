//! The line between what a value is and how it is written. The walker goes through a record and tells a [`Sink`] what
//! it finds; each output format is one sink. Plain data and one trait; never decides what is shown.

use crate::wire::Phase;

use super::shape::Enum;
use super::{Place, Symbol};

/// One output format.
pub(super) trait Sink {
    /// Whether neighbouring elements of an array that are equal may be told as one that repeats.
    const FOLDS: bool;

    /// A record is too short to tell what it is. Nothing follows.
    fn no_event(&mut self);
    /// A record of a number that no layout has. Nothing follows.
    fn unknown_event(&mut self, event: u32);
    /// An event begins.
    fn begin_event(&mut self, event: &Event<'_>);
    /// It ends.
    fn end_event(&mut self);
    /// A value of the event begins; then come, at most once each and in this order, `pointer`, and one of `fault`, `no_pointer`,
    /// `leaf` and `open`.
    fn begin_item(&mut self, label: &Label);
    /// The value is a pointer, and what it points to follows.
    fn pointer(&mut self, address: u64);
    /// The value is a pointer to nothing that could be shown: NULL or an error. Nothing follows.
    fn no_pointer(&mut self, cast: &str, leaf: Leaf<'_>);
    /// The value could not be read.
    fn fault(&mut self, step: &str, address: u64);
    /// The value ends.
    fn end_item(&mut self);
    /// The record ended too early. Inside and outside of values; nothing but `close`, `end_item` and `end_event` follow.
    fn truncated(&mut self);
    /// A value without parts. No cast: the type is clear.
    fn leaf(&mut self, cast: Option<&str>, leaf: Leaf<'_>);
    /// A struct, union or array begins. A short one, with all that is in it, need not take lines of its own.
    fn open(&mut self, cast: Option<&str>, brackets: Brackets, short: bool);
    /// A member begins; an element if there is no name, a member of an anonymous type if the name is empty.
    fn begin_member(&mut self, name: Option<&str>);
    /// It ends. It stands for so many equal elements.
    fn end_member(&mut self, repeats: u32);
    /// The rest of the struct, union or array was cut off.
    fn cut(&mut self, cut: Cut);
    /// It ends.
    fn close(&mut self, brackets: Brackets);
    /// Where the output is, to come back to.
    fn mark(&self) -> Mark;
    /// Forgets everything since the mark, which was taken between two members of what is open now.
    fn rewind(&mut self, mark: Mark);
}

/// What every event has.
pub(super) struct Event<'x> {
    /// The time as it is to be shown: aligned text, or a value of JSON.
    pub(super) stamp: &'x str,
    /// Nanoseconds of the monotonic clock.
    pub(super) time: u64,
    pub(super) cpu: u32,
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// The function or tracepoint.
    pub(super) name: &'x str,
    pub(super) phase: Phase,
    /// Which of the queries it belongs to.
    pub(super) query: usize,
}

/// What a value is called.
#[derive(Debug)]
pub(super) struct Label {
    /// As text, safe to print.
    pub(super) text: Box<str>,
    /// As a key of a JSON object, with its quotes and the colon. No two values of an event have the same.
    pub(super) key: Box<str>,
    /// It is the function's return value.
    pub(super) is_return: bool,
}

/// What a struct, union or array stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brackets {
    /// `{}`
    Curly,
    /// `[]`
    Square,
}

impl Brackets {
    /// The left one.
    pub(super) fn open(self) -> char {
        match self {
            Brackets::Curly => '{',
            Brackets::Square => '[',
        }
    }

    /// The right one.
    pub(super) fn close(self) -> char {
        match self {
            Brackets::Curly => '}',
            Brackets::Square => ']',
        }
    }
}

/// How much was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// So many bytes of so many are there.
    Bytes(u32, u32),
    /// So many elements of so many are shown.
    Elements(u32, u32),
    /// More than one value may take.
    Budget,
}

/// What comes after the bytes of a string or of raw memory that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing: they are all.
    Whole,
    /// They are of so many.
    Of(u32),
    /// They fill the room there was for them, so there may be more.
    Maybe,
}

/// A place in the output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Bytes of the output.
    pub(super) len: usize,
    /// Whether nothing was in the open struct, union or array.
    pub(super) empty: bool,
}

/// One frame of a call stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame<'x> {
    /// Where it goes on when what it called returns.
    pub(super) address: u64,
    /// Where that lies.
    pub(super) place: Place<'x>,
}

/// A value without parts.
pub(super) enum Leaf<'x> {
    /// No value.
    Void,
    /// A value that is not in the record.
    Unread,
    /// Decimal, signed.
    Signed(i128),
    /// Decimal.
    Unsigned(u128),
    /// Hexadecimal.
    Hex(u128),
    /// Octal.
    Octal(u128),
    /// Binary.
    Binary(u128),
    /// A boolean.
    Bool(bool),
    /// What was asked for as a character.
    Char(u8),
    /// A value of a character type: the character, if it is a printable one.
    Byte(i128),
    /// An enum's value that has a name.
    Name(&'x str),
    /// A value of an enum that is a set of bits, and has no name of its own.
    Flags(&'x Enum, u128),
    /// A floating point number of four bytes.
    Float(f32),
    /// One of eight.
    Double(f64),
    /// A null pointer.
    Null,
    /// A pointer that carries this error number, which is positive.
    ErrPtr(i32),
    /// A pointer.
    Pointer(u64),
    /// A pointer to something that has a symbol.
    Located(u64, Symbol<'x>),
    /// An address of code, or one that is to be shown by its symbol, if it has one.
    Symbol(u64, Option<Symbol<'x>>),
    /// A number that is an error's if it is negative.
    Errno(i128),
    /// A string.
    Text(&'x [u8], Tail),
    /// Raw memory as a string.
    Raw(&'x [u8], Tail),
    /// Raw memory as a hex dump.
    Dump(&'x [u8], Tail),
    /// An IPv4 address.
    Ip4([u8; 4]),
    /// An IPv6 address.
    Ip6([u8; 16]),
    /// A MAC address.
    Mac([u8; 6]),
    /// A call stack, innermost frame first.
    Stack(&'x [Frame<'x>]),
    /// A `struct list_head`: next and previous.
    List(u64, u64),
    /// A struct, union or array that lies deeper than is to be shown.
    Elided(Brackets),
    /// A value that was cut off.
    Cut(Cut),
}
