//! Arrays by format, as in the kernel's probe events: `E:u8[4]` is four bytes at the place that `E` is, or at the address that it
//! holds. In: an operand and a format with a number. Out: a place of an array type, to be shown like any other.

use super::ctypes::{Class, class, size_of, spell};
use super::expr::Operand;
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast;
use crate::span::Span;
use crate::typed::{Base, Expr, Memory, Place};
use crate::types::TypeId;
use crate::wire::Format;

/// The kernel's own limit (`MAX_ARRAY_LEN`, kernel/trace/trace_probe.h).
const MAX: u16 = 64;

impl Sema<'_> {
    /// What `E:T[N]` shows, and the format of each of its elements.
    pub(super) fn array_of(&mut self, operand: Operand, format: &ast::Ident) -> R<(Operand, Format)> {
        let (name, count) = format.node.split_once('[').unwrap_or((&format.node, ""));
        let each = ast::Ident {
            node: name.to_string(),
            span: Span::new(
                format.span.start as usize,
                format.span.start as usize + name.len(),
            ),
        };
        let word = self.format(&each)?;
        let (bytes, signed) = match (word.number, word.format) {
            (Some(number), _) => number,
            (None, Format::Symbol) => (8, false),
            (None, Format::String) => {
                return self.report(
                    Diagnostic::error(
                        Code::BadFormat,
                        format.span,
                        format!("`{}` is several values", format.node),
                    )
                    .label("one is needed here")
                    .help("name one of them: `str(p[0])`"),
                );
            }
            (None, _) => {
                return self.report(
                    Diagnostic::error(
                        Code::BadFormat,
                        format.span,
                        format!("there is no array of `{name}`"),
                    )
                    .label("says nothing about how long one is")
                    .note(
                        "arrays are of u8 to u64, s8 to s64, x8 to x64, char, symbol, string and bitfields",
                    ),
                );
            }
        };
        let count = self.count_of(count, format)?;
        let ty = CType::Btf(TypeId::integers(bytes, signed, count));
        let place = self.array_place(operand, ty, u64::from(bytes) * u64::from(count), format)?;
        Ok((Operand::Place(place), word.format))
    }

    /// How many there are; `count` is what follows the bracket.
    pub(super) fn count_of(&mut self, count: &str, format: &ast::Ident) -> R<u16> {
        match count.trim_end_matches(']').parse::<u16>() {
            Ok(count) if (1..=MAX).contains(&count) => Ok(count),
            Ok(_) | Err(_) => self.report(
                Diagnostic::error(
                    Code::OutOfBounds,
                    format.span,
                    format!("such an array has 1 to {MAX} elements"),
                )
                .label("not that many")
                .help("`buf(p, n)` shows more bytes"),
            ),
        }
    }

    /// So many bytes at the place that an operand is, or at the address that it holds, as an array of type `ty`.
    pub(super) fn array_place(
        &mut self,
        operand: Operand,
        ty: CType,
        size: u64,
        format: &ast::Ident,
    ) -> R<Place> {
        let span = operand.span();
        if let Operand::Place(place) = &operand
            && let Base::Pointer { .. } = place.base
            && place.bits.is_none()
            && !matches!(class(self.types, &place.ty), Class::Ptr(_))
        {
            // Beyond a whole array or struct lies something else; a single number may be the first of many.
            let whole = match class(self.types, &place.ty) {
                Class::Array { .. } | Class::Composite(_) => {
                    size_of(self.types, &place.ty).filter(|all| *all > 0)
                }
                Class::Void
                | Class::Int { .. }
                | Class::Bool
                | Class::Float
                | Class::Ptr(_)
                | Class::Func
                | Class::Opaque => None,
            };
            if let Some(all) = whole
                && size > all
            {
                let name = spell(self.types, &place.ty);
                return self.report(
                    Diagnostic::error(
                        Code::OutOfBounds,
                        format.span,
                        format!("{size} bytes are more than there are"),
                    )
                    .label(format!("`{name}` has {all}"))
                    .secondary(span, "this"),
                );
            }
            return Ok(Place { ty, ..place.clone() });
        }
        let pointer = self.rvalue(operand)?;
        let memory = match class(self.types, &pointer.ty) {
            Class::Ptr(to) => self.memory_of(&pointer, &to),
            Class::Int { bytes: 8, .. } => self.memory_of(&pointer, &CType::Void),
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
                    Diagnostic::error(
                        Code::NotPointer,
                        format.span,
                        "an array is in memory, or at an address",
                    )
                    .label("can't show it so")
                    .secondary(span, format!("its type is `{name}`")),
                );
            }
        };
        let pointer = Expr {
            span,
            ..self.convert(pointer, CType::Ptr(Box::new(ty.clone())))
        };
        // Where types have no tags, the kernel's memory is meant, as with any pointer.
        let memory = match memory {
            Memory::Unknown => self.memory_of(&pointer, &ty),
            Memory::Kernel | Memory::User => memory,
        };
        Ok(Place {
            base: Base::Pointer {
                pointer: Box::new(pointer),
                memory,
            },
            path: None,
            offset: 0,
            bits: None,
            ty,
            span,
        })
    }
}
