//! How a value without parts is spelled, the same in every text format. In: a [`Leaf`], or a fault. Out: text on one line
//! with nothing around it. Never emits a control character.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::errno;

use super::digits::{push_hex, push_i128, push_u128};
use super::escape;
use super::shape::Enum;
use super::sink::{Brackets, Cut, Frame, Leaf, Tail};
use super::{Place, Symbol};

/// Appends the value.
pub(super) fn write(out: &mut String, leaf: &Leaf<'_>) {
    // Writing to a string can't fail, so the results are of no interest, here and below.
    let _ = match leaf {
        Leaf::Void => out.write_str("void"),
        Leaf::Unread => out.write_str("?"),
        Leaf::Signed(value) => {
            push_i128(out, *value);
            Ok(())
        }
        Leaf::Unsigned(value) => {
            push_u128(out, *value);
            Ok(())
        }
        Leaf::Hex(value) => {
            push_hex(out, *value);
            Ok(())
        }
        Leaf::Octal(0) => out.write_str("0"),
        Leaf::Octal(value) => write!(out, "0{value:o}"),
        Leaf::Binary(value) => write!(out, "{value:#b}"),
        Leaf::Bool(value) => write!(out, "{value}"),
        Leaf::Char(byte) => {
            out.push('\'');
            escape::character(out, *byte);
            out.write_str("'")
        }
        Leaf::Byte(value) => {
            match u8::try_from(*value) {
                Ok(byte @ b' '..=b'~') => write(out, &Leaf::Char(byte)),
                Ok(_) | Err(_) => push_i128(out, *value),
            }
            Ok(())
        }
        Leaf::Name(name) => out.write_str(name),
        Leaf::Flags(e, value) => {
            flags(out, e, *value, String::push_str);
            Ok(())
        }
        Leaf::Float(value) => write!(out, "{value}"),
        Leaf::Double(value) => write!(out, "{value}"),
        Leaf::Null => out.write_str("NULL"),
        Leaf::ErrPtr(number) => match errno::name(*number) {
            Some(name) => write!(out, "ERR_PTR(-{name})"),
            None => write!(out, "ERR_PTR(-{number})"),
        },
        Leaf::Pointer(address) => {
            push_hex(out, u128::from(*address));
            Ok(())
        }
        Leaf::Located(address, at) => {
            push_hex(out, u128::from(*address));
            out.push_str(" <");
            let _ = symbol(out, at);
            out.write_str(">")
        }
        Leaf::Symbol(_, Some(at)) => symbol(out, at),
        Leaf::Symbol(address, None) => {
            push_hex(out, u128::from(*address));
            Ok(())
        }
        Leaf::Errno(value) => match errno_name(*value) {
            Some(name) => write!(out, "-{name}"),
            None => write!(out, "{value}"),
        },
        Leaf::Text(bytes, tail) => {
            out.push('"');
            escape::quoted(out, bytes);
            out.push('"');
            rest(out, bytes, *tail)
        }
        Leaf::Raw(bytes, tail) => {
            out.push('"');
            escape::quoted_ascii(out, bytes);
            out.push('"');
            rest(out, bytes, *tail)
        }
        Leaf::Dump(bytes, tail) => {
            for (index, byte) in bytes.iter().enumerate() {
                let gap = if index == 0 { "" } else { " " };
                let _ = write!(out, "{gap}{byte:02x}");
            }
            rest(out, bytes, *tail)
        }
        Leaf::Ip4(bytes) => write!(out, "{}", Ipv4Addr::from(*bytes)),
        Leaf::Ip6(bytes) => write!(out, "{}", Ipv6Addr::from(*bytes)),
        Leaf::Stack([]) => out.write_str(NO_STACK),
        Leaf::Stack(frames) => {
            for (index, at) in frames.iter().enumerate() {
                if index > 0 {
                    out.push_str(" < ");
                }
                frame(out, at);
            }
            Ok(())
        }
        Leaf::Mac([a, b, c, d, e, f]) => write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"),
        Leaf::List(next, prev) => {
            list_link(out, "{.next=", *next);
            list_link(out, ", .prev=", *prev);
            out.write_str("}")
        }
        Leaf::Elided(Brackets::Curly) => out.write_str("{...}"),
        Leaf::Elided(Brackets::Square) => out.write_str("[...]"),
        Leaf::Cut(what) => cut(out, *what),
    };
}

/// Appends what stands for a value that could not be read: `<fault: a->b is NULL>`. A step that is no pointer says itself
/// what is wrong with it (`n is zero`, `i is out of bounds (0 to 2)`), which no C expression does, and has no address but a value.
pub(super) fn fault(out: &mut String, step: &str, address: u64) {
    out.push_str("<fault: ");
    escape::plain(out, step);
    fault_cause(out, step, address);
    out.push('>');
}

/// Appends what is wrong with a step, to stand behind it: ` is NULL`. ASCII without quotes.
pub(super) fn fault_cause(out: &mut String, step: &str, address: u64) {
    if step.contains(" is ") {
        if step.contains(" is out of bounds") {
            let _ = write!(out, ": {}", address as i64);
        }
        return;
    }
    out.push_str(" is ");
    let _ = match (address, err_ptr(address)) {
        (0, _) => out.write_str("NULL"),
        (1..PAGE, _) => write!(out, "a bad address {address:#x} (NULL plus an offset)"),
        (PAGE..USER_END, _) => write!(out, "a bad address {address:#x} (in user memory)"),
        (_, Some(number)) => {
            write(out, &Leaf::ErrPtr(number));
            Ok(())
        }
        (_, None) => write!(out, "a bad address {address:#x}"),
    };
}

/// The name of the error that a negative number is.
pub(super) fn errno_name(value: i128) -> Option<&'static str> {
    value
        .checked_neg()
        .and_then(|n| i32::try_from(n).ok())
        .and_then(errno::name)
}

/// Appends the remark for what is missing.
pub(super) fn cut(out: &mut String, cut: Cut) -> std::fmt::Result {
    match cut {
        Cut::Bytes(shown, full) => write!(out, "... /* {shown} of {full} bytes */"),
        Cut::Budget => out.write_str("... /* too much to show */"),
        Cut::Elements(shown, full) => write!(out, "... /* {shown} of {full} elements */"),
    }
}

/// The error number in a pointer that `ERR_PTR` made.
pub(super) fn err_ptr(address: u64) -> Option<i32> {
    let number = address.wrapping_neg();
    if (1..PAGE).contains(&number) {
        i32::try_from(number).ok()
    } else {
        None
    }
}

/// What stands for the rest of a record that ended too early.
pub(super) const TRUNCATED: &str = "<truncated record>";

/// Addresses below this are members of NULL; numbers up to it are errors (the kernel's `MAX_ERRNO` is 4095).
const PAGE: u64 = 4096;
/// Where the addresses of processes end (TASK_SIZE_MAX, arch/x86/include/asm/page_64.h; elsewhere they go on a bit).
const USER_END: u64 = 1 << 47;

/// Appends what comes after the bytes that are shown.
pub(super) fn rest(out: &mut String, shown: &[u8], tail: Tail) -> std::fmt::Result {
    match tail {
        Tail::Whole => Ok(()),
        Tail::Of(full) => cut(out, Cut::Bytes(shown.len() as u32, full)),
        Tail::Maybe => out.write_str("..."),
    }
}

fn list_link(out: &mut String, label: &str, address: u64) {
    out.push_str(label);
    let link = if address == 0 {
        Leaf::Null
    } else {
        Leaf::Pointer(address)
    };
    write(out, &link);
}

fn symbol(out: &mut String, at: &Symbol<'_>) -> std::fmt::Result {
    escape::plain(out, &at.name);
    if at.offset != 0 {
        write!(out, "+{:#x}", at.offset)?;
    }
    if let Some(module) = &at.module {
        out.push_str(" [");
        escape::plain(out, module);
        out.push(']');
    }
    Ok(())
}

/// `A|B|0x8`: the names of the bits that have one, from the lowest, then the rest. Names go through `escape`.
pub(super) fn flags(out: &mut String, e: &Enum, value: u128, escape: fn(&mut String, &str)) {
    let mut unnamed = 0;
    let mut left = value;
    let mut first = true;
    let mut separate = |out: &mut String| {
        if !std::mem::take(&mut first) {
            out.push('|');
        }
    };
    while left != 0 {
        let bit = left & left.wrapping_neg();
        left ^= bit;
        match i128::try_from(bit).ok().and_then(|bit| e.name(bit)) {
            Some(name) => {
                separate(out);
                escape(out, name);
            }
            None => unnamed |= bit,
        }
    }
    if unnamed != 0 || value == 0 {
        separate(out);
        push_hex(out, unnamed);
    }
}

/// What stands for a stack without frames: a kernel thread has none of the user's.
pub(super) const NO_STACK: &str = "<no stack>";

/// Appends a frame: `vfs_read+0x1c`, or its address and what is known of it.
pub(super) fn frame(out: &mut String, frame: &Frame<'_>) {
    // Writing to a string can't fail.
    let _ = match &frame.place {
        Place::Symbol(at) => symbol(out, at),
        Place::Mapped { file, offset } => {
            let _ = write!(out, "{:#x} [", frame.address);
            escape::plain(out, file);
            write!(out, "+{offset:#x}]")
        }
        Place::Unknown => write!(out, "{:#x}", frame.address),
        Place::Gone => write!(out, "{:#x} [process ended]", frame.address),
    };
}

/// Appends a frame as a flame graph has it, with nothing in it by which two runs of one program differ.
pub(super) fn frame_name(out: &mut String, frame: &Frame<'_>) {
    match &frame.place {
        Place::Symbol(at) => {
            let _ = symbol(
                out,
                &Symbol {
                    offset: 0,
                    ..at.clone()
                },
            );
        }
        Place::Mapped { file, .. } => {
            out.push('[');
            escape::plain(out, file);
            out.push(']');
        }
        Place::Unknown => out.push_str("[unknown]"),
        Place::Gone => out.push_str("[process ended]"),
    }
}
