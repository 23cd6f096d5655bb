//! How a value is shown. In: an operand with its label and format. Out: an item: where it is read from, and its layout in the record,
//! which follows from its type. It does not say which event shows it.

use super::ctypes::{Class, class, size_of, spell};
use super::expr::Operand;
use super::fetched;
use super::items::asks;
use super::sized::Sized;
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast;
use crate::span::Span;
use crate::typed::{Expr, ExprKind, Item, Memory, Place, Source};
use crate::wire::{Format, ValueLayout};

impl Sema<'_> {
    /// How a value is shown: its layout in the record follows from its type.
    pub(super) fn show(
        &mut self,
        operand: Operand,
        label: String,
        format: Option<Format>,
        span: Span,
    ) -> R<Item> {
        let (ty, source, value) = match operand {
            Operand::Str(_, at) => {
                return self.report(
                    Diagnostic::error(Code::StringOperand, at, "a text by itself tells nothing")
                        .label("nothing to read"),
                );
            }
            Operand::Comm(_) => {
                let ty = CType::Ptr(Box::new(CType::Int {
                    bytes: 1,
                    signed: true,
                }));
                (ty, Source::Comm, ValueLayout::String { capacity: 16 })
            }
            Operand::Func(_) => {
                let ty = CType::Ptr(Box::new(CType::Int {
                    bytes: 1,
                    signed: true,
                }));
                (ty, Source::Name, ValueLayout::Name)
            }
            Operand::Address(address) => {
                return self.report(
                    Diagnostic::error(
                        Code::BadArguments,
                        address.span,
                        "an address by itself tells nothing",
                    )
                    .label("a constant")
                    .help("compare something with it, such as `skc_daddr == ip(\"10.0.0.1\")`"),
                );
            }
            Operand::Sized(sized) => self.sized_source(*sized),
            Operand::Symbol(address) => {
                let format = Some(format.unwrap_or(Format::Symbol));
                return self.show(Operand::Value(address), label, format, span);
            }
            Operand::Place(place) => return self.show_place(place, label, format, span),
            Operand::Value(expr) => match (class(self.types, &expr.ty), format) {
                // Six bytes, where the pointer's type says one or nothing.
                (Class::Ptr(to), Some(Format::Mac)) if size_of(self.types, &to) == Some(1) => {
                    let memory = self.memory_of(&expr, &to);
                    let at = expr.span;
                    self.sized_source(Sized {
                        pointer: expr,
                        memory,
                        length: Self::ulong(6, at),
                        text: false,
                        span: at,
                    })
                }
                _ => {
                    let value = self.pointee_layout(&expr, format);
                    let expr = self.pointing(expr, &value);
                    (expr.ty.clone(), Source::Value(expr), value)
                }
            },
        };
        let when = self.when(|visit| source.walk(visit));
        Ok(Item {
            label,
            source,
            ty,
            value,
            format,
            when,
            span,
        })
    }

    fn show_place(&mut self, place: Place, label: String, format: Option<Format>, span: Span) -> R<Item> {
        match class(self.types, &place.ty) {
            Class::Composite(_) | Class::Array { .. } | Class::Float => {
                let full = size_of(self.types, &place.ty).unwrap_or(0);
                if full == 0 {
                    let name = spell(self.types, &place.ty);
                    return self.report(
                        Diagnostic::error(
                            Code::Incomplete,
                            place.span,
                            format!("`{name}` has no size that is known"),
                        )
                        .label("nothing to copy")
                        .help("index it, or take it for a string with `str()`"),
                    );
                }
                let full = u32::try_from(full).unwrap_or(u32::MAX);
                let value = ValueLayout::Bytes {
                    copied: full.min(self.limits.bytes),
                    full,
                };
                let ty = place.ty.clone();
                let source = Source::Memory(place);
                let when = self.when(|visit| source.walk(visit));
                Ok(Item {
                    label,
                    source,
                    ty,
                    value,
                    format,
                    when,
                    span,
                })
            }
            Class::Int { .. } | Class::Bool | Class::Ptr(_) | Class::Void | Class::Func | Class::Opaque => {
                let expr = self.rvalue(Operand::Place(place))?;
                self.show(Operand::Value(expr), label, format, span)
            }
        }
    }

    /// A pointer whose target is shown, told to be a user's if it is one: its type alone may not tell.
    fn pointing(&self, expr: Expr, layout: &ValueLayout) -> Expr {
        let Class::Ptr(to) = class(self.types, &expr.ty) else {
            return expr;
        };
        let tagged = matches!(expr.ty, CType::Btf(id) if self.types.has_type_tag(id, "user"));
        let followed = match layout {
            ValueLayout::Pointee { .. } | ValueLayout::String { .. } => true,
            ValueLayout::Scalar
            | ValueLayout::Bytes { .. }
            | ValueLayout::Buffer { .. }
            | ValueLayout::Name
            | ValueLayout::Stack { .. } => false,
        };
        if !followed
            || tagged
            || matches!(expr.kind, ExprKind::AsUser(_))
            || self.memory_of(&expr, &to) != Memory::User
        {
            return expr;
        }
        Expr {
            ty: expr.ty.clone(),
            span: expr.span,
            kind: ExprKind::AsUser(Box::new(expr)),
        }
    }

    /// What follows a pointer in the record.
    fn pointee_layout(&self, pointer: &Expr, format: Option<Format>) -> ValueLayout {
        let Class::Ptr(to) = class(self.types, &pointer.ty) else {
            return ValueLayout::Scalar;
        };
        let capacity = self.limits.string;
        match format {
            Some(Format::String) => return ValueLayout::String { capacity },
            Some(Format::Ip) | Some(Format::Mac) | Some(Format::Dump) | None => {}
            Some(
                Format::Signed
                | Format::Unsigned
                | Format::Hex
                | Format::Octal
                | Format::Binary
                | Format::Char
                | Format::Symbol
                | Format::Errno
                | Format::BigEndian,
            ) => return ValueLayout::Scalar,
        }
        if self.is_shown_as_text(pointer, &to) {
            return ValueLayout::String { capacity };
        }
        let CType::Btf(pointee) = to else {
            return ValueLayout::Scalar;
        };
        match class(self.types, &to) {
            Class::Composite(_) | Class::Int { .. } | Class::Bool | Class::Array { .. } => {
                match size_of(self.types, &to).and_then(|size| u32::try_from(size).ok()) {
                    Some(full) if full > 0 => ValueLayout::Pointee {
                        pointee,
                        copied: full.min(self.limits.bytes),
                        full,
                    },
                    Some(_) | None => ValueLayout::Scalar,
                }
            }
            Class::Void | Class::Float | Class::Ptr(_) | Class::Func | Class::Opaque => ValueLayout::Scalar,
        }
    }

    /// `len = 3` is a labelled constant by the grammar, and a comparison in the mind of who wrote it.
    pub(super) fn check_label(&mut self, label: &ast::Ident, expr: &ast::Expr, operand: &Operand) -> R<()> {
        let shown = matches!(operand, Operand::Func(_)) || fetched::is_immediate(expr) || asks(expr);
        if !operand.is_fixed() || shown {
            return Ok(());
        }
        let between = Span {
            start: label.span.end,
            end: expr.span.start,
        };
        let at = between.text(self.text).find('=').unwrap_or(0) + between.start as usize;
        let value = expr.span.text(self.text).to_string();
        let mut diag = Diagnostic::error(
            Code::AssignForEqual,
            Span::new(at, at + 1),
            "`=` gives a label to what is shown, it does not compare",
        )
        .label("did you mean `==`?")
        .secondary(expr.span, "a constant is not worth showing");
        if let Some(meant) = self.meant_by(&label.node) {
            diag = diag.help(format!("to compare, write `{meant} == {value}`"));
        }
        let immediate = match operand {
            Operand::Str(..) => true,
            Operand::Value(constant) => class(self.types, &constant.ty).is_arithmetic(),
            Operand::Place(_)
            | Operand::Comm(_)
            | Operand::Func(_)
            | Operand::Address(_)
            | Operand::Sized(_)
            | Operand::Symbol(_) => false,
        };
        if immediate {
            diag = diag.help(format!(
                "to show it all the same, write `{}=imm({value})`",
                label.node
            ));
        }
        self.report(diag)
    }
}
