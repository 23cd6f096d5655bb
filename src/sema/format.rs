//! Formats: the words after the colon, what they mean, and which values they can show. ftrace's names say how many bytes too: a
//! number is converted to them as C does, an array's elements have to have them already.

use super::ctypes::{Class, class, size_of, spell};
use super::expr::{Operand, value};
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast;
use crate::suggest::nearest;
use crate::typed::{Base, ExprKind, Item, Memory, Source};
use crate::wire::{Format, ValueLayout};

/// A format as it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    name: &'static str,
    pub(super) format: Format,
    /// ftrace's types: size in bytes and sign.
    pub(super) number: Option<(u8, bool)>,
    /// It reads user memory.
    user: bool,
}

const fn plain(name: &'static str, format: Format) -> Word {
    Word {
        name,
        format,
        number: None,
        user: false,
    }
}

const fn typed(name: &'static str, format: Format, bytes: u8, signed: bool) -> Word {
    Word {
        name,
        format,
        number: Some((bytes, signed)),
        user: false,
    }
}

const fn user(name: &'static str) -> Word {
    Word {
        name,
        format: Format::String,
        number: None,
        user: true,
    }
}

/// All of them. Those that only ftrace's users write come last.
const WORDS: [Word; 31] = [
    plain("d", Format::Signed),
    plain("u", Format::Unsigned),
    plain("x", Format::Hex),
    plain("o", Format::Octal),
    plain("b", Format::Binary),
    plain("c", Format::Char),
    plain("s", Format::String),
    user("us"),
    plain("ip", Format::Ip),
    plain("mac", Format::Mac),
    plain("sym", Format::Symbol),
    plain("errno", Format::Errno),
    plain("hex", Format::Dump),
    plain("be", Format::BigEndian),
    typed("char", Format::Char, 1, true),
    plain("string", Format::String),
    user("ustring"),
    plain("symbol", Format::Symbol),
    plain("symstr", Format::Symbol),
    typed("u8", Format::Unsigned, 1, false),
    typed("u16", Format::Unsigned, 2, false),
    typed("u32", Format::Unsigned, 4, false),
    typed("u64", Format::Unsigned, 8, false),
    typed("s8", Format::Signed, 1, true),
    typed("s16", Format::Signed, 2, true),
    typed("s32", Format::Signed, 4, true),
    typed("s64", Format::Signed, 8, true),
    typed("x8", Format::Hex, 1, false),
    typed("x16", Format::Hex, 2, false),
    typed("x32", Format::Hex, 4, false),
    typed("x64", Format::Hex, 8, false),
];

/// The words of our own, for suggestions.
const OWN: usize = 14;

impl Sema<'_> {
    /// What a format's name means.
    pub(super) fn format(&mut self, format: &ast::Ident) -> R<Word> {
        if let Some(found) = WORDS.iter().find(|word| word.name == format.node) {
            return Ok(*found);
        }
        let mut diag = Diagnostic::error(
            Code::BadFormat,
            format.span,
            format!("there is no format `{}`", format.node),
        )
        .label("not known");
        let near = nearest(&format.node, WORDS.iter().map(|word| word.name));
        if let (true, Some(near)) = (format.node.len() > 2, near.first()) {
            diag = diag.help(format!("did you mean `{near}`?"));
        }
        self.report(diag.note(
            "formats are d u x o b c s us ip mac sym errno hex be, and ftrace's u8 to x64, char, string, ustring, symbol",
        ))
    }

    /// The value as the format wants it: converted to the type that it names, or taken for a user address.
    pub(super) fn as_formatted(&mut self, operand: Operand, word: Word, format: &ast::Ident) -> R<Operand> {
        if word.user {
            return self.as_user(operand, format);
        }
        let (Some((bytes, signed)), Some(ty)) = (word.number, type_of(&operand)) else {
            return Ok(operand);
        };
        let to = CType::Int { bytes, signed };
        match class(self.types, &ty) {
            Class::Int { .. } | Class::Bool | Class::Ptr(_) => {
                let span = operand.span();
                let inner = self.rvalue(operand)?;
                let mut shown = self.convert(inner, to);
                shown.span = span;
                Ok(Operand::Value(shown))
            }
            Class::Array { elem, .. } => {
                let each = size_of(self.types, &CType::Btf(elem));
                if each == Some(u64::from(bytes)) {
                    return Ok(operand);
                }
                let name = spell(self.types, &ty);
                self.report(
                    Diagnostic::error(
                        Code::BadFormat,
                        format.span,
                        format!("format `{}` is for numbers of {} bits", format.node, 8 * bytes),
                    )
                    .label("another size than the array's elements")
                    .secondary(operand.span(), format!("its type is `{name}`")),
                )
            }
            // Told by `check_format`.
            Class::Void | Class::Float | Class::Composite(_) | Class::Func | Class::Opaque => Ok(operand),
        }
    }

    fn as_user(&mut self, operand: Operand, format: &ast::Ident) -> R<Operand> {
        let at = operand.span();
        if let Operand::Place(place) = &operand
            && let (Class::Array { len, .. }, Base::Pointer { memory, .. }) =
                (class(self.types, &place.ty), &place.base)
        {
            // It is in user memory as it is; whether it is a string is seen as for `:s`.
            if *memory == Memory::User && len > 0 {
                return Ok(operand);
            }
            if *memory == Memory::User {
                return self.user_address(operand, format);
            }
            return self.report(
                Diagnostic::error(
                    Code::BadFormat,
                    format.span,
                    "this array is in kernel memory, not the user's",
                )
                .label("reads user memory")
                .secondary(at, "an array in a struct of the kernel's")
                .help("write `:s`"),
            );
        }
        if let Operand::Sized(sized) = operand {
            return Ok(Operand::Sized(Box::new(super::sized::Sized {
                memory: Memory::User,
                ..*sized
            })));
        }
        self.user_address(operand, format)
    }

    fn user_address(&mut self, operand: Operand, format: &ast::Ident) -> R<Operand> {
        let pointer = self.rvalue(operand)?;
        let (ty, span) = (pointer.ty.clone(), pointer.span);
        if !matches!(class(self.types, &ty), Class::Ptr(_)) {
            let name = spell(self.types, &ty);
            return self.report(
                Diagnostic::error(Code::BadFormat, format.span, "a user string is at an address")
                    .label("can't show it so")
                    .secondary(span, format!("its type is `{name}`"))
                    .help("`ustr(p)` takes any number of 8 bytes for one"),
            );
        }
        Ok(value(ExprKind::AsUser(Box::new(pointer)), ty, span))
    }

    /// Whether the format can show that kind of value; if not, tells which can.
    pub(super) fn check_format(&mut self, item: &Item, format: &ast::Ident) -> R<()> {
        let Some(chosen) = item.format else {
            return Ok(());
        };
        if self.fits(chosen, item) {
            return Ok(());
        }
        let (what, label) = match item.source {
            Source::Comm | Source::Literal(_) | Source::Name => {
                ("a string".to_string(), "this is a string".to_string())
            }
            Source::Stack { .. } => ("a stack".to_string(), "this is a stack".to_string()),
            Source::Value(_) | Source::Memory(_) | Source::Sized { .. } => {
                let name = spell(self.types, &item.ty);
                (format!("type `{name}`"), format!("its type is `{name}`"))
            }
        };
        // The colon and the format are no part of the value.
        let mut whole = item.span;
        whole.end = format.span.start.saturating_sub(1).max(whole.start);
        let mut diag = Diagnostic::error(
            Code::BadFormat,
            format.span,
            format!("format `{}` does not fit {what}", format.node),
        )
        .label("can't show it so")
        .secondary(whole, label);
        let fitting: Vec<&str> = WORDS[..OWN]
            .iter()
            .filter(|word| !word.user && self.fits(word.format, item))
            .map(|word| word.name)
            .collect();
        if !fitting.is_empty() {
            diag = diag.note(format!("formats that fit it: {}", fitting.join(" ")));
        }
        let text = whole.text(self.text).trim().to_string();
        let address = matches!(
            class(self.types, &item.ty),
            Class::Ptr(_) | Class::Int { bytes: 8, .. }
        );
        match chosen {
            Format::String if address => {
                diag = diag.help(format!("to take it for a string's address, write `str({text})`"));
            }
            Format::Dump if address => {
                diag = diag.help(format!(
                    "to dump what it points to, write `buf({text}, BYTES):hex`"
                ));
            }
            Format::Signed
            | Format::Unsigned
            | Format::Hex
            | Format::Octal
            | Format::Binary
            | Format::Char
            | Format::String
            | Format::Ip
            | Format::Mac
            | Format::Symbol
            | Format::Errno
            | Format::Dump
            | Format::BigEndian => {}
        }
        self.report(diag)
    }

    fn fits(&self, format: Format, item: &Item) -> bool {
        let kind = class(self.types, &item.ty);
        let size = size_of(self.types, &item.ty);
        match &item.source {
            Source::Comm | Source::Literal(_) | Source::Name => {
                return matches!(format, Format::String | Format::Dump);
            }
            Source::Stack { .. } => return false,
            Source::Sized { length, .. } => {
                let bytes = length.constant();
                return match (&item.value, format) {
                    (_, Format::String | Format::Dump) => true,
                    (ValueLayout::Buffer { .. }, Format::Ip) => matches!(bytes, Some(4 | 16)),
                    (ValueLayout::Buffer { .. }, Format::Mac) => bytes == Some(6),
                    _ => false,
                };
            }
            Source::Value(_) | Source::Memory(_) => {}
        }
        let bits = match &item.source {
            Source::Value(expr) => matches!(&expr.kind, ExprKind::Load(place) if place.bits.is_some()),
            Source::Memory(_)
            | Source::Sized { .. }
            | Source::Comm
            | Source::Literal(_)
            | Source::Name
            | Source::Stack { .. } => false,
        };
        match kind {
            Class::Int { bytes, .. } => match format {
                Format::Signed
                | Format::Unsigned
                | Format::Hex
                | Format::Octal
                | Format::Binary
                | Format::Char
                | Format::Errno
                | Format::Dump => true,
                Format::BigEndian => !bits,
                Format::Ip => bytes == 4 && !bits,
                Format::Symbol => bytes == 8 && !bits,
                Format::String | Format::Mac => false,
            },
            Class::Bool => matches!(
                format,
                Format::Signed
                    | Format::Unsigned
                    | Format::Hex
                    | Format::Octal
                    | Format::Binary
                    | Format::Dump
            ),
            Class::Float => format == Format::Dump,
            Class::Ptr(to) => {
                let inner = class(self.types, &to);
                let size = size_of(self.types, &to);
                let bytes = match inner {
                    Class::Void => true,
                    Class::Array { elem, .. } => size_of(self.types, &CType::Btf(elem)) == Some(1),
                    Class::Int { bytes, .. } => bytes == 1,
                    Class::Bool
                    | Class::Float
                    | Class::Ptr(_)
                    | Class::Composite(_)
                    | Class::Func
                    | Class::Opaque => false,
                };
                match format {
                    Format::Signed
                    | Format::Unsigned
                    | Format::Hex
                    | Format::Octal
                    | Format::Binary
                    | Format::Errno
                    | Format::Symbol => true,
                    Format::String => bytes,
                    Format::Mac => matches!(inner, Class::Void) || bytes || size == Some(6),
                    Format::Ip => matches!(size, Some(4 | 16)),
                    Format::Dump => matches!(
                        item.value,
                        ValueLayout::Pointee { .. } | ValueLayout::String { .. }
                    ),
                    Format::Char | Format::BigEndian => false,
                }
            }
            Class::Array { elem, .. } => {
                let elem = CType::Btf(elem);
                let inner = class(self.types, &elem);
                let each = size_of(self.types, &elem);
                match format {
                    Format::Signed
                    | Format::Unsigned
                    | Format::Hex
                    | Format::Octal
                    | Format::Binary
                    | Format::Char
                    | Format::Errno
                    | Format::BigEndian => inner.is_arithmetic(),
                    Format::String => each == Some(1),
                    Format::Ip => inner.is_arithmetic() && matches!(size, Some(4 | 16)),
                    Format::Mac => inner.is_arithmetic() && size == Some(6),
                    Format::Symbol => matches!(inner, Class::Ptr(_) | Class::Int { bytes: 8, .. }),
                    Format::Dump => true,
                }
            }
            Class::Composite(_) => match format {
                Format::Dump => true,
                Format::Ip => matches!(size, Some(4 | 16)),
                Format::Mac => size == Some(6),
                Format::Signed
                | Format::Unsigned
                | Format::Hex
                | Format::Octal
                | Format::Binary
                | Format::Char
                | Format::String
                | Format::Symbol
                | Format::Errno
                | Format::BigEndian => false,
            },
            Class::Void | Class::Func | Class::Opaque => false,
        }
    }
}

fn type_of(operand: &Operand) -> Option<CType> {
    match operand {
        Operand::Value(expr) | Operand::Symbol(expr) => Some(expr.ty.clone()),
        Operand::Place(place) => Some(place.ty.clone()),
        Operand::Str(..) | Operand::Comm(_) | Operand::Func(_) | Operand::Address(_) | Operand::Sized(_) => {
            None
        }
    }
}
