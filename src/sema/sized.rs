//! What is read in a length that the query gives: `str(p, n)`, `ustr(p, n)`, `buf(p, n)`; and `ksym(p)`, whose text is made when it
//! is shown. A constant length is checked here, a computed one is bounded when the program runs.

use super::ctypes::{Class, class, size_of, spell};
use super::expr::{Operand, both, value};
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast;
use crate::span::Span;
use crate::typed::{Expr, ExprKind, Memory, Source};
use crate::types::NameKind;
use crate::wire::ValueLayout;

/// Memory in a given length.
#[derive(Clone, Debug)]
pub(super) struct Sized {
    /// Where it begins.
    pub(super) pointer: Expr,
    pub(super) memory: Memory,
    /// How many bytes; a `long` or `unsigned long`.
    pub(super) length: Expr,
    /// It is a string, which may end before.
    pub(super) text: bool,
    pub(super) span: Span,
}

impl Sema<'_> {
    /// `str(p)`, `str(p, n)` and the same of user memory.
    pub(super) fn string_call(
        &mut self,
        pointer: &ast::Expr,
        length: Option<&ast::Expr>,
        user: bool,
        span: Span,
    ) -> R<Operand> {
        let pointer = self.string_pointer(pointer, user, span);
        let length = length.map(|length| self.length(length)).transpose();
        let (pointer, length) = both(pointer, length)?;
        let Some(length) = length else {
            return Ok(Operand::Value(pointer));
        };
        let memory = self.string_memory(&pointer);
        Ok(Operand::Sized(Box::new(Sized {
            pointer,
            memory,
            length,
            text: true,
            span,
        })))
    }

    /// `buf(p, n)`.
    pub(super) fn buffer_call(&mut self, pointer: &ast::Expr, length: &ast::Expr, span: Span) -> R<Operand> {
        let at = pointer.span;
        let (pointer, length) = both(self.scalar(pointer), self.length(length))?;
        let memory = match class(self.types, &pointer.ty) {
            Class::Ptr(to) => match self.memory_of(&pointer, &to) {
                Memory::User => Memory::User,
                // Where types have no tags, the address tells.
                Memory::Kernel | Memory::Unknown => self.string_memory(&pointer),
            },
            Class::Int { bytes: 8, .. } => self.string_memory(&pointer),
            Class::Void
            | Class::Int { .. }
            | Class::Bool
            | Class::Float
            | Class::Composite(_)
            | Class::Array { .. }
            | Class::Func
            | Class::Opaque => {
                let name = spell(self.types, &pointer.ty);
                return self.report(
                    Diagnostic::error(Code::NotPointer, at, "a buffer is at an address")
                        .label(format!("its type is `{name}`")),
                );
            }
        };
        let pointer = if let Class::Ptr(_) = class(self.types, &pointer.ty) {
            pointer
        } else {
            self.convert(pointer, CType::Ptr(Box::new(CType::Void)))
        };
        Ok(Operand::Sized(Box::new(Sized {
            pointer,
            memory,
            length,
            text: false,
            span,
        })))
    }

    /// `ksym(p)`.
    pub(super) fn symbol_call(&mut self, address: &ast::Expr, span: Span) -> R<Operand> {
        let at = address.span;
        let address = self.scalar(address)?;
        if let Class::Ptr(_) | Class::Int { bytes: 8, .. } = class(self.types, &address.ty) {
            let mut address = self.convert(address, CType::Ptr(Box::new(CType::Void)));
            address.span = span;
            Ok(Operand::Symbol(address))
        } else {
            let name = spell(self.types, &address.ty);
            self.report(
                Diagnostic::error(Code::NotPointer, at, "a symbol is at an address")
                    .label(format!("its type is `{name}`"))
                    .help("cast a number to an address first: `ksym((void *)n)`"),
            )
        }
    }

    /// Where a string is, as a `char *`: any pointer or number is taken for its address.
    fn string_pointer(&mut self, expr: &ast::Expr, user: bool, span: Span) -> R<Expr> {
        let operand = self.operand(expr)?;
        if let Operand::Place(place) = &operand
            && let Class::Array { elem, .. } = class(self.types, &place.ty)
            && size_of(self.types, &CType::Btf(elem)) != Some(1)
        {
            let name = spell(self.types, &place.ty);
            return self.report(
                Diagnostic::error(
                    Code::StringOperand,
                    expr.span,
                    "a string is made of bytes, one a character",
                )
                .label(format!("its type is `{name}`")),
            );
        }
        let pointer = self.rvalue(operand)?;
        if !matches!(
            class(self.types, &pointer.ty),
            Class::Ptr(_) | Class::Int { bytes: 8, .. }
        ) {
            let name = spell(self.types, &pointer.ty);
            return self.report(
                Diagnostic::error(Code::NotPointer, expr.span, "a string is at an address")
                    .label(format!("its type is `{name}`")),
            );
        }
        let to = if let Class::Ptr(to) = class(self.types, &pointer.ty) {
            to
        } else {
            self.char_type()
        };
        let already_user = self.memory_of(&pointer, &to) == Memory::User;
        let ty = CType::Ptr(Box::new(self.char_type()));
        let mut pointer = self.convert(pointer, ty.clone());
        pointer.span = span;
        if !user && !already_user {
            return Ok(pointer);
        }
        Ok(Expr {
            kind: ExprKind::AsUser(Box::new(pointer)),
            ty,
            span,
        })
    }

    /// Which memory a string pointer points into.
    fn string_memory(&self, pointer: &Expr) -> Memory {
        let ty = self.char_type();
        self.memory_of(pointer, &ty)
    }

    /// A length: a number, converted to 64 bits by its sign.
    fn length(&mut self, length: &ast::Expr) -> R<Expr> {
        let at = length.span;
        let length = self.scalar(length)?;
        let length = self.promoted(length, "a length")?;
        let signed = matches!(class(self.types, &length.ty), Class::Int { signed: true, .. });
        let length = self.convert(length, if signed { CType::LONG } else { CType::ULONG });
        let max = i64::from(self.limits.bytes);
        if let Some(bytes) = length.constant()
            && !(1..=max).contains(&bytes)
        {
            let mut diag =
                Diagnostic::error(Code::BadLength, at, format!("a length is from 1 to {max} bytes")).label(
                    if bytes > max || (bytes < 0 && !signed) {
                        "too many bytes"
                    } else {
                        "nothing to read"
                    },
                );
            if bytes > max {
                diag = diag.help(format!("`--max-bytes {bytes}` makes room for it"));
            }
            return self.report(diag);
        }
        Ok(length)
    }

    /// How a value of a given length is shown.
    pub(super) fn sized_source(&self, sized: Sized) -> (CType, Source, ValueLayout) {
        let most = if sized.text {
            self.limits.string.saturating_sub(1)
        } else {
            self.limits.bytes
        };
        let room = match sized.length.constant() {
            Some(bytes) => u32::try_from(bytes).unwrap_or(most),
            None => most,
        };
        let value = if sized.text {
            ValueLayout::String { capacity: room + 1 }
        } else {
            ValueLayout::Buffer { capacity: room }
        };
        let ty = sized.pointer.ty.clone();
        let source = Source::Sized {
            pointer: sized.pointer,
            memory: sized.memory,
            length: sized.length,
        };
        (ty, source, value)
    }

    /// Why a symbol can't be computed with.
    pub(super) fn symbol_value<T>(&mut self, span: Span) -> R<T> {
        self.report(
            Diagnostic::error(
                Code::StringOperand,
                span,
                "the name of a symbol is looked up when it is shown",
            )
            .label("can't be computed with")
            .help("compare the address itself"),
        )
    }

    /// Why a buffer can't be computed with.
    pub(super) fn sized_value<T>(&mut self, sized: &Sized) -> R<T> {
        let (title, help) = if sized.text {
            (
                "a string can only be shown and compared",
                "strings compare with `==`, `!=` and, as a glob pattern, `=~`",
            )
        } else {
            (
                "a buffer can only be shown",
                "`str(p, n)` reads the same as a string, which can be compared; `*(u32 *)p` reads a number",
            )
        };
        self.report(
            Diagnostic::error(Code::StringOperand, sized.span, title)
                .label("not possible here")
                .help(help),
        )
    }

    fn char_type(&self) -> CType {
        match self.types_named(NameKind::Int, "char").first() {
            Some(id) => CType::Btf(*id),
            None => CType::Int {
                bytes: 1,
                signed: true,
            },
        }
    }

    /// A constant of type `unsigned long`.
    pub(super) fn ulong(bytes: u64, span: Span) -> Expr {
        if let Operand::Value(expr) = value(ExprKind::Const(bytes as i64), CType::ULONG, span) {
            expr
        } else {
            unreachable!("bug in ksnoop-jit: `value` makes values")
        }
    }
}
