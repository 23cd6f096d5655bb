//! What only the kernel's probe events have: registers by name, constants that are shown, bitfields and several strings as formats
//! (Documentation/trace/kprobetrace.rst). In: calls that the parser made of them, and formats. Out: operands and items.

use super::ctypes::{Class, class, size_of, spell};
use super::expr::{Operand, value};
use super::items::fetched_from;
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, ExprKind as Ast};
use crate::parser::{IMMEDIATE, REGISTER};
use crate::span::Span;
use crate::suggest::nearest;
use crate::typed::{Arith, Base, Builtin, Expr, ExprKind, Item, Memory, Place, Source, When};
use crate::types::TypeId;
use crate::wire::{Format, ValueLayout};

/// A format that makes several items of one: each string, and each bitfield, is a value of its own.
pub(super) struct Several {
    /// The format of one.
    each: ast::Ident,
    /// How many, as it was written.
    count: String,
    format: ast::Ident,
}

impl Several {
    /// What this format makes, if it is such a one.
    pub(super) fn of(format: &ast::Ident) -> Option<Several> {
        let (each, count) = format.node.split_once('[')?;
        let start = format.span.start as usize;
        let each = ast::Ident {
            node: each.to_string(),
            span: Span::new(start, start + each.len()),
        };
        let several = matches!(each.node.as_str(), "string" | "ustring") || is_bitfield(&each);
        several.then(|| Several {
            each,
            count: count.to_string(),
            format: format.clone(),
        })
    }
}

/// Whether a format is a bitfield's, `b<width>@<offset>/<container>`. Of such a text the parser has made sure.
pub(super) fn is_bitfield(format: &ast::Ident) -> bool {
    format.node.contains('@') && !format.node.ends_with(']')
}

/// How the kernel shows what has no type of its own: in hexadecimal.
pub(super) fn default_format(expr: &ast::Expr) -> Option<Format> {
    let number = match &expr.kind {
        Ast::Call { func, args } => match (func.node.as_str(), args.as_slice()) {
            (REGISTER, _) => true,
            (IMMEDIATE, [ast::Arg::Expr(constant)]) => !matches!(constant.kind, Ast::Str(_)),
            _ => false,
        },
        Ast::Unary { .. } => fetched_from(expr).is_some(),
        Ast::Builtin(name) => name
            .strip_prefix("stack")
            .is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit())),
        Ast::Int(_)
        | Ast::Char(_)
        | Ast::Str(_)
        | Ast::Name(_)
        | Ast::Member { .. }
        | Ast::Index { .. }
        | Ast::Binary { .. }
        | Ast::Cond { .. }
        | Ast::Cast { .. }
        | Ast::SizeofType(_) => false,
    };
    number.then_some(Format::Hex)
}

/// Whether it is a constant that is meant to be shown.
pub(super) fn is_immediate(expr: &ast::Expr) -> bool {
    matches!(&expr.kind, Ast::Call { func, .. } if func.node == IMMEDIATE)
}

/// A text that is shown as it is.
pub(super) fn text(text: Vec<u8>, label: String, format: Option<Format>, span: Span) -> Item {
    // With its NUL, and one more: it is not cut off.
    let capacity = u32::try_from(text.len()).unwrap_or(u32::MAX).saturating_add(2);
    Item {
        label,
        source: Source::Literal(text),
        ty: CType::Ptr(Box::new(CHAR)),
        value: ValueLayout::String { capacity },
        format,
        when: When::Entry,
        span,
    }
}

const CHAR: CType = CType::Int {
    bytes: 1,
    signed: true,
};

impl Sema<'_> {
    /// `%si`: what a register holds where the probe is.
    pub(super) fn register(&mut self, name: &ast::Expr, span: Span) -> R<Operand> {
        let Ast::Str(bytes) = &name.kind else {
            return self.report(
                Diagnostic::error(Code::StringOperand, name.span, "`reg` takes a register's name")
                    .label("not a text in double quotes")
                    .help("write `reg(\"si\")`, or `%si`"),
            );
        };
        let name_text = String::from_utf8_lossy(bytes);
        let Some(register) = self.arch.probe_register(&name_text) else {
            let known = self.arch.probe_registers();
            let mut diag = Diagnostic::error(
                Code::UnknownName,
                name.span,
                format!("there is no register `%{}`", name_text.escape_default()),
            )
            .label(format!("not a name that the kernel has on {}", self.arch.name()));
            // What assemblers call `%rsi` is a part of the name there.
            let whole = self.arch.register(&name_text).map(|part| part.offset);
            let same = known.iter().find(|known| {
                let offset = self.arch.probe_register(known).map(|known| known.offset);
                whole.is_some() && offset == whole
            });
            let near = same.map(String::as_str).or_else(|| {
                nearest(&name_text, known.iter().map(String::as_str))
                    .first()
                    .copied()
            });
            if let Some(near) = near {
                diag = diag.help(format!("did you mean `%{near}`?"));
            }
            return self.report(diag.note(format!("registers are {}", known.join(" "))));
        };
        if self.ret.is_none() && !self.user {
            return self.report(
                Diagnostic::error(
                    Code::NoReturn,
                    span,
                    format!("`{}` is a tracepoint, where no registers are kept", self.subject),
                )
                .label("only functions have them")
                .help("its arguments have names and types: `ksnoop-jit info` shows them"),
            );
        }
        let register = ExprKind::Builtin(Builtin::Register(register));
        Ok(value(register, CType::ULONG, span))
    }

    /// `\5`, `\"text"`: a constant that is shown, of 64 bits if it is a number.
    pub(super) fn immediate(&mut self, constant: &ast::Expr, span: Span) -> R<Operand> {
        if let Ast::Str(text) = &constant.kind {
            return Ok(Operand::Str(text.clone(), span));
        }
        let number = self.scalar(constant)?;
        match (number.constant(), class(self.types, &number.ty)) {
            (Some(number), Class::Int { .. } | Class::Bool) => {
                Ok(value(ExprKind::Const(number), CType::ULONG, span))
            }
            _ => self.report(
                Diagnostic::error(Code::BadArguments, constant.span, "this is not a constant")
                    .label("read when the event happens")
                    .help("a value is shown as it is, without a `\\`"),
            ),
        }
    }

    /// `E:b4@2/32`: four bits of `E` from the second on, of which 32 count.
    pub(super) fn bits_of(&mut self, operand: Operand, format: &ast::Ident) -> R<Operand> {
        let (width, offset, container) = self.bitfield(format)?;
        let span = operand.span();
        let ty = operand.ty().cloned();
        let number = ty.as_ref().is_some_and(|ty| {
            matches!(
                class(self.types, ty),
                Class::Int { .. } | Class::Bool | Class::Ptr(_)
            )
        });
        if !number {
            let what = ty.map_or("no number".to_string(), |ty| {
                format!("of type `{}`", spell(self.types, &ty))
            });
            return self.report(
                Diagnostic::error(Code::BadFormat, format.span, "a bitfield is a part of a number")
                    .label("can't show it so")
                    .secondary(span, format!("this is {what}")),
            );
        }
        let whole = self.rvalue(operand)?;
        let whole = self.convert(
            whole,
            CType::Int {
                bytes: container,
                signed: false,
            },
        );
        let mut shown = self.convert(whole, CType::ULONG);
        if offset > 0 {
            shown = arith(Arith::Shr, shown, u64::from(offset), span);
        }
        if width < 64 {
            shown = arith(Arith::And, shown, (1 << width) - 1, span);
        }
        shown.span = span;
        Ok(Operand::Value(shown))
    }

    /// Width, offset and container of a bitfield's format, the last in bytes.
    fn bitfield(&mut self, format: &ast::Ident) -> R<(u8, u8, u8)> {
        let numbers: Vec<u64> = format.node[1..]
            .split(['@', '/'])
            .filter_map(|number| number.parse().ok())
            .collect();
        let label = match numbers.as_slice() {
            [_, _, container] if !matches!(container, 8 | 16 | 32 | 64) => {
                "a container has 8, 16, 32 or 64 bits"
            }
            [0, _, _] => "no bit is nothing",
            [width, offset, container] if width.saturating_add(*offset) <= *container => {
                return Ok((*width as u8, *offset as u8, (*container / 8) as u8));
            }
            _ => "more than the container has",
        };
        self.report(
            Diagnostic::error(
                Code::BadFormat,
                format.span,
                format!("`{}` is no bitfield", format.node),
            )
            .label(label)
            .help("`b4@2/32` is four bits from bit 2 on, of 32"),
        )
    }

    /// `E:string[4]`: the strings that four pointers point to which lie where `E` is, or at the address that it holds. Each is an
    /// item, since each may be a fault; and so with bitfields.
    pub(super) fn several(&mut self, expr: &ast::Expr, item: &ast::Item, several: &Several) -> R<Vec<Item>> {
        let operand = self.operand(expr)?;
        let format = &several.format;
        let bits = is_bitfield(&several.each);
        let bytes = match bits {
            true => self.bitfield(&several.each)?.2,
            false => 8,
        };
        let count = self.count_of(&several.count, format)?;
        let ty = CType::Btf(TypeId::integers(bytes, false, count));
        let size = u64::from(bytes) * u64::from(count);
        let all = match self.first_string(&operand) {
            Some(first) if !bits => Place { ty, ..first },
            Some(_) | None => self.array_place(operand, ty, size, format)?,
        };
        let each = match bits {
            true => CType::Int { bytes, signed: false },
            false => CType::Ptr(Box::new(CHAR)),
        };
        let label = match &item.label {
            Some(label) => label.node.clone(),
            None => self.label(expr),
        };
        (0..u64::from(count))
            .map(|n| {
                let element = Operand::Place(element(&all, each.clone(), n * u64::from(bytes)));
                let (operand, shape) = match bits {
                    true => (self.bits_of(element, &several.each)?, Format::Unsigned),
                    false => {
                        let word = self.format(&several.each)?;
                        (self.as_formatted(element, word, &several.each)?, word.format)
                    }
                };
                self.show(operand, format!("{label}[{n}]"), Some(shape), item.span)
            })
            .collect()
    }

    /// A `char *` in memory. It does not point to pointers, so it is the first of those that are meant.
    fn first_string(&self, operand: &Operand) -> Option<Place> {
        let Operand::Place(place) = operand else {
            return None;
        };
        let pointer = match class(self.types, &place.ty) {
            Class::Ptr(to) => size_of(self.types, &to) == Some(1),
            Class::Void
            | Class::Int { .. }
            | Class::Bool
            | Class::Float
            | Class::Composite(_)
            | Class::Array { .. }
            | Class::Func
            | Class::Opaque => false,
        };
        let in_memory = place.bits.is_none() && matches!(place.base, Base::Pointer { .. });
        (pointer && in_memory).then(|| place.clone())
    }
}

/// What lies so many bytes from the start of an array.
fn element(all: &Place, ty: CType, offset: u64) -> Place {
    if all.path.is_none() {
        return Place {
            ty,
            offset: all.offset + offset,
            ..all.clone()
        };
    }
    // The way to the array is relocated, what comes after that is not.
    let memory = match &all.base {
        Base::Pointer { memory, .. } => *memory,
        Base::Arg(_) | Base::Return => Memory::Kernel,
    };
    let pointer = Expr {
        kind: ExprKind::AddrOf(Box::new(all.clone())),
        ty: CType::Ptr(Box::new(ty.clone())),
        span: all.span,
    };
    Place {
        base: Base::Pointer {
            pointer: Box::new(pointer),
            memory,
        },
        path: None,
        offset,
        bits: None,
        ty,
        span: all.span,
    }
}

/// An operation on an `unsigned long` and a constant.
fn arith(op: Arith, lhs: Expr, rhs: u64, span: Span) -> Expr {
    Expr {
        kind: ExprKind::Arith {
            op,
            lhs: Box::new(lhs),
            rhs: Box::new(Sema::ulong(rhs, span)),
        },
        ty: CType::ULONG,
        span,
    }
}
