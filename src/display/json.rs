//! Values as JSON. In: what the walker finds, and pieces of text, numbers and bytes. Out: JSON appended to a string, always
//! valid, in one line. Never decides what is shown, and never writes a character that a terminal would act on.
//!
//! `JSON.md` describes the form for readers of the output, `schema.json` for programs; both change with this file.

use super::digits::{push_bytes, push_hex, push_i128, push_u128};
use super::escape;
use super::leaf;
use super::sink::{Brackets, Cut, Leaf, Mark, Tail};
use super::{Place, Symbol};

/// The version of the form, which each run's first object carries. It changes when a reader of the old form would misread
/// the new one; new members of objects do not count.
pub const VERSION: u32 = 1;

/// JSON Schema of one line.
pub const SCHEMA: &str = include_str!("schema.json");

/// Numbers up to this size are exact in every reader: JavaScript, and many others, have only `f64`.
const EXACT: u128 = (1 << 53) - 1;

/// Appends a number: as a JSON number if every reader gets it exactly, else as a string of its digits.
pub fn unsigned(out: &mut String, value: u128) {
    if value <= EXACT {
        push_u128(out, value);
    } else {
        out.push('"');
        push_u128(out, value);
        out.push('"');
    }
}

/// [`unsigned`] for numbers with a sign.
pub fn signed(out: &mut String, value: i128) {
    if value.unsigned_abs() <= EXACT {
        push_i128(out, value);
    } else {
        out.push('"');
        push_i128(out, value);
        out.push('"');
    }
}

/// Appends an address as a string.
pub fn address(out: &mut String, address: u64) {
    out.push('"');
    push_hex(out, u128::from(address));
    out.push('"');
}

/// Appends text as a string.
pub fn string(out: &mut String, text: &str) {
    out.push('"');
    escape::json(out, text);
    out.push('"');
}

/// Appends bytes that should be text: a string if they are UTF-8, else an object with the text as far as it goes, and all
/// bytes.
pub fn text(out: &mut String, bytes: &[u8]) {
    bytes_of_text(out, bytes, Tail::Whole);
}

/// Writes values; part of each sink that writes JSON.
pub(super) struct Values<'o> {
    pub(super) out: &'o mut String,
    /// Nothing is in the innermost open object or array yet.
    pub(super) empty: bool,
    /// One bit for each open level, the innermost lowest: it is written into the object around it, as C reads it.
    flat: u128,
    /// One for each: that something of it was cut off has been told.
    told: u128,
    /// One for each: it is an array.
    square: u128,
    /// A member without a name has begun, and its value has not.
    unnamed: bool,
    /// An object with the address in it has been opened for what follows.
    after_pointer: bool,
    /// The value has been written, or begun.
    valued: bool,
    /// The record ended too early.
    pub(super) truncated: bool,
}

impl<'o> Values<'o> {
    /// Appends to `out`, into an object that is open and has nothing in it, or has.
    pub(super) fn new(out: &'o mut String, empty: bool) -> Values<'o> {
        Values {
            out,
            empty,
            flat: 0,
            told: 0,
            square: 0,
            unnamed: false,
            after_pointer: false,
            valued: false,
            truncated: false,
        }
    }

    pub(super) fn separate(&mut self) {
        if !self.empty {
            self.out.push(',');
        }
        self.empty = false;
    }

    /// A value begins; the key carries its quotes and the colon.
    pub(super) fn begin_item(&mut self, key: &str) {
        self.separate();
        self.out.push_str(key);
        self.flat = 0;
        self.told = 0;
        self.unnamed = false;
        self.after_pointer = false;
        self.valued = false;
    }

    pub(super) fn end_item(&mut self) {
        if self.after_pointer {
            self.after_pointer = false;
            self.out.push('}');
        } else if !self.valued {
            self.out.push_str("null");
        }
        self.empty = false;
    }

    pub(super) fn pointer(&mut self, at: u64) {
        self.out.push_str("{\"$address\":");
        address(self.out, at);
        self.after_pointer = true;
        self.valued = true;
    }

    pub(super) fn fault(&mut self, step: &str, at: u64) {
        self.out.push_str(if self.after_pointer { "," } else { "{" });
        self.out.push_str("\"$fault\":\"");
        escape::json(self.out, step);
        leaf::fault_cause(self.out, step, at);
        self.out.push_str("\"}");
        self.after_pointer = false;
        self.valued = true;
    }

    pub(super) fn leaf(&mut self, leaf: &Leaf<'_>) {
        if self.unnamed {
            // Only broken BTF has a member without a name that is no struct or union.
            self.unnamed = false;
            self.out.push_str("\"\":");
        }
        let behind_pointer = self.after_pointer;
        if behind_pointer {
            self.after_pointer = false;
            self.out.push_str(",\"$value\":");
        }
        write(self.out, leaf);
        if behind_pointer {
            self.out.push('}');
        }
        self.valued = true;
        self.empty = false;
    }

    pub(super) fn open(&mut self, brackets: Brackets) {
        self.valued = true;
        let flat = self.unnamed && brackets == Brackets::Curly;
        if self.unnamed && !flat {
            self.out.push_str("\"\":");
        }
        self.unnamed = false;
        self.flat = self.flat << 1 | u128::from(flat);
        self.square = self.square << 1 | u128::from(brackets == Brackets::Square);
        if flat {
            // What it had told counts for the object that both are.
            self.told = self.told << 1 | (self.told & 1);
            return;
        }
        self.told <<= 1;
        if self.after_pointer && brackets == Brackets::Curly {
            // Members stand beside the address, in the object that is open already.
            self.after_pointer = false;
            self.empty = false;
            return;
        }
        if self.after_pointer {
            self.out.push_str(",\"$value\":");
        }
        self.out.push(brackets.open());
        self.empty = true;
    }

    pub(super) fn close(&mut self, brackets: Brackets) {
        let flat = self.flat & 1 == 1;
        let told = self.told & 1;
        self.flat >>= 1;
        self.told >>= 1;
        self.square >>= 1;
        if flat {
            self.told |= told;
            return;
        }
        self.out.push(brackets.close());
        self.empty = false;
    }

    pub(super) fn begin_member(&mut self, name: Option<&str>) {
        match name {
            Some("") => self.unnamed = true,
            Some(name) => {
                self.separate();
                string(self.out, name);
                self.out.push(':');
            }
            None => self.separate(),
        }
    }

    pub(super) fn cut(&mut self, what: Cut) {
        if self.square & 1 == 1 {
            self.separate();
            self.out.push('{');
            cut_member(self.out, what);
            self.out.push('}');
        } else if self.told & 1 == 0 {
            self.told |= 1;
            self.separate();
            cut_member(self.out, what);
        }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            len: self.out.len(),
            empty: self.empty,
        }
    }

    pub(super) fn rewind(&mut self, mark: Mark) {
        self.out.truncate(mark.len);
        self.empty = mark.empty;
        self.unnamed = false;
    }
}

fn write(out: &mut String, leaf: &Leaf<'_>) {
    match leaf {
        Leaf::Void | Leaf::Unread | Leaf::Null => out.push_str("null"),
        Leaf::Signed(value) | Leaf::Byte(value) => signed(out, *value),
        Leaf::Unsigned(value) | Leaf::Hex(value) | Leaf::Octal(value) | Leaf::Binary(value) => {
            unsigned(out, *value);
        }
        Leaf::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Leaf::Char(byte) => bytes_of_text(out, &[*byte], Tail::Whole),
        Leaf::Name(name) => string(out, name),
        Leaf::Flags(e, value) => {
            out.push('"');
            leaf::flags(out, e, *value, escape::json);
            out.push('"');
        }
        Leaf::Float(value) => float(out, f64::from(*value), value),
        Leaf::Double(value) => float(out, *value, value),
        Leaf::ErrPtr(number) => {
            out.push_str("{\"$errno\":");
            push_u128(out, u128::from(number.unsigned_abs()));
            if let Some(name) = leaf::errno_name(-i128::from(*number)) {
                out.push_str(",\"$error\":");
                string(out, name);
            }
            out.push('}');
        }
        Leaf::Pointer(at) | Leaf::Symbol(at, None) => address(out, *at),
        Leaf::Located(at, symbol) | Leaf::Symbol(at, Some(symbol)) => located(out, *at, symbol),
        Leaf::Errno(value) => match leaf::errno_name(*value) {
            Some(name) => {
                out.push_str("\"-");
                escape::json(out, name);
                out.push('"');
            }
            None => signed(out, *value),
        },
        Leaf::Text(bytes, tail) => bytes_of_text(out, bytes, *tail),
        Leaf::Raw(bytes, tail) | Leaf::Dump(bytes, tail) => {
            out.push_str("{\"$hex\":\"");
            push_bytes(out, bytes);
            out.push('"');
            rest(out, bytes, *tail);
            out.push('}');
        }
        Leaf::Stack(frames) => {
            out.push('[');
            for (index, frame) in frames.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                match &frame.place {
                    Place::Symbol(symbol) => located(out, frame.address, symbol),
                    Place::Mapped { file, offset } => mapped(out, frame.address, file, *offset),
                    Place::Unknown => address(out, frame.address),
                    Place::Gone => {
                        out.push_str("{\"$address\":");
                        address(out, frame.address);
                        out.push_str(",\"$fault\":\"the process had ended\"}");
                    }
                }
            }
            out.push(']');
        }
        Leaf::Ip4(_) | Leaf::Ip6(_) | Leaf::Mac(_) => {
            out.push('"');
            leaf::write(out, leaf);
            out.push('"');
        }
        Leaf::List(next, prev) => {
            out.push_str("{\"next\":");
            link(out, *next);
            out.push_str(",\"prev\":");
            link(out, *prev);
            out.push('}');
        }
        Leaf::Elided(_) => out.push_str("{\"$cut\":{\"reason\":\"depth\"}}"),
        Leaf::Cut(what) => {
            out.push('{');
            cut_member(out, *what);
            out.push('}');
        }
    }
}

/// JSON has no number for what is no number, or has no end.
fn float(out: &mut String, value: f64, shortest: impl std::fmt::Display) {
    use std::fmt::Write;
    let quote = if value.is_finite() { "" } else { "\"" };
    let _ = write!(out, "{quote}{shortest}{quote}");
}

fn link(out: &mut String, at: u64) {
    if at == 0 {
        out.push_str("null");
    } else {
        address(out, at);
    }
}

/// An address of a process in a file without symbols.
fn mapped(out: &mut String, at: u64, file: &str, offset: u64) {
    out.push_str("{\"$address\":");
    address(out, at);
    out.push_str(",\"$offset\":");
    unsigned(out, u128::from(offset));
    out.push_str(",\"$module\":");
    string(out, file);
    out.push('}');
}

/// An address with where it lies.
pub(super) fn located(out: &mut String, at: u64, symbol: &Symbol<'_>) {
    out.push_str("{\"$address\":");
    address(out, at);
    out.push_str(",\"$symbol\":");
    string(out, &symbol.name);
    out.push_str(",\"$offset\":");
    unsigned(out, u128::from(symbol.offset));
    if let Some(module) = &symbol.module {
        out.push_str(",\"$module\":");
        string(out, module);
    }
    out.push('}');
}

fn bytes_of_text(out: &mut String, bytes: &[u8], tail: Tail) {
    let valid = std::str::from_utf8(bytes);
    if let (Ok(text), Tail::Whole) = (&valid, tail) {
        return string(out, text);
    }
    out.push_str("{\"$text\":\"");
    for chunk in bytes.utf8_chunks() {
        escape::json(out, chunk.valid());
        if !chunk.invalid().is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
    out.push('"');
    if valid.is_err() {
        out.push_str(",\"$hex\":\"");
        push_bytes(out, bytes);
        out.push('"');
    }
    rest(out, bytes, tail);
    out.push('}');
}

fn rest(out: &mut String, shown: &[u8], tail: Tail) {
    let shown = shown.len() as u32;
    match tail {
        Tail::Whole => {}
        Tail::Of(full) => {
            out.push(',');
            cut_member(out, Cut::Bytes(shown, full));
        }
        Tail::Maybe => {
            out.push_str(",\"$cut\":{\"reason\":\"bytes\",\"shown\":");
            push_u128(out, u128::from(shown));
            out.push('}');
        }
    }
}

fn cut_member(out: &mut String, what: Cut) {
    let (reason, numbers) = match what {
        Cut::Bytes(shown, full) => ("bytes", Some((shown, full))),
        Cut::Elements(shown, full) => ("elements", Some((shown, full))),
        Cut::Budget => ("size", None),
    };
    out.push_str("\"$cut\":{\"reason\":\"");
    out.push_str(reason);
    out.push('"');
    if let Some((shown, full)) = numbers {
        out.push_str(",\"shown\":");
        push_u128(out, u128::from(shown));
        out.push_str(",\"of\":");
        push_u128(out, u128::from(full));
    }
    out.push('}');
}
