//! `sizeof`, `offsetof` and `container_of`, and the sizes that pointer arithmetic goes by. What a struct's layout decides is
//! no constant here: a relocation makes it right on another kernel.

use super::ctypes::{Class, class, size_of, spell};
use super::expr::{Operand, both};
use super::{R, Reported, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, Arg};
use crate::span::Span;
use crate::typed::{Arith, Expr, ExprKind, Fact, Path, Place};
use crate::types::NameKind;

impl Sema<'_> {
    /// The size of a type as an `unsigned long`, if it is known.
    pub(super) fn size(&self, ty: &CType, span: Span) -> Option<Expr> {
        let size = size_of(self.types, ty)?;
        let fact = match class(self.types, ty) {
            // No loader finds a struct without a name.
            Class::Composite(id) if !self.types.name(id).is_empty() => Fact::SizeOf(id),
            Class::Void
            | Class::Int { .. }
            | Class::Bool
            | Class::Float
            | Class::Ptr(_)
            | Class::Composite(_)
            | Class::Array { .. }
            | Class::Func
            | Class::Opaque => return Some(Self::ulong(size, span)),
        };
        Some(Expr {
            kind: ExprKind::Layout { fact, value: size },
            ty: CType::ULONG,
            span,
        })
    }

    pub(super) fn sizeof(&mut self, ty: &CType, at: Span, span: Span) -> R<Operand> {
        match self.size(ty, span) {
            Some(size) => Ok(Operand::Value(size)),
            None => {
                let name = spell(self.types, ty);
                self.report(
                    Diagnostic::error(Code::Incomplete, at, format!("the size of `{name}` is not known"))
                        .label(self.why_opaque(ty)),
                )
            }
        }
    }

    pub(super) fn sizeof_expr(&mut self, expr: &ast::Expr, span: Span) -> R<Operand> {
        // A lone name may be a type; an argument of that name wins, as everywhere.
        if let ast::ExprKind::Name(name) = &expr.kind
            && !self.params.iter().any(|p| p.name == *name)
            && let Some(ty) = self.try_type(name)
        {
            return self.sizeof(&ty, expr.span, span);
        }
        let constant = |bytes: u64| Ok(Operand::Value(Self::ulong(bytes, span)));
        let operand = self.evaluated(false, |this| this.operand(expr));
        if let (Err(Reported), ast::ExprKind::Name(name)) = (&operand, &expr.kind) {
            let keywords = self.keywords_of(name);
            if let Some(diag) = self.diags.last_mut() {
                let help = keywords
                    .iter()
                    .map(|keyword| format!("did you mean `{keyword} {name}`?"));
                diag.help.extend(help);
            }
        }
        let place = match operand? {
            Operand::Value(inner) | Operand::Symbol(inner) => return self.sizeof(&inner.ty, expr.span, span),
            Operand::Place(place) => place,
            Operand::Str(text, _) => return constant(text.len() as u64 + 1),
            Operand::Func(_) => {
                self.by_name = true;
                return constant(self.subject.len() as u64 + 1);
            }
            Operand::Address(address) => return constant(address.bytes.len() as u64),
            // TASK_COMM_LEN
            Operand::Comm(_) => return constant(16),
            Operand::Sized(sized) => return self.sized_value(&sized),
        };
        if place.bits.is_some() {
            let ty = spell(self.types, &place.ty);
            return self.report(
                Diagnostic::error(
                    Code::BitfieldAddress,
                    expr.span,
                    "a bitfield has no size in bytes",
                )
                .label("this is a bitfield")
                .help(format!("its declared type has one: `sizeof({ty})`")),
            );
        }
        // Of an array of arrays, aya counts the innermost elements only (`Btf::type_size`, aya-obj's btf.rs).
        let array = matches!(
            class(self.types, &place.ty),
            Class::Array { elem, .. } if !matches!(class(self.types, &CType::Btf(elem)), Class::Array { .. })
        );
        match (place.path, size_of(self.types, &place.ty)) {
            // How long an array is differs from kernel to kernel.
            (Some(path), Some(bytes)) if array && bytes > 0 && path.access.len() > 1 => {
                Ok(Operand::Value(fact(Fact::SizeOfField(path), bytes, span)))
            }
            _ => self.sizeof(&place.ty, expr.span, span),
        }
    }

    pub(super) fn offsetof(&mut self, ty: &Arg, member: &ast::Expr, span: Span) -> R<Operand> {
        let place = self.member_of(ty, member, span)?;
        Ok(Operand::Value(match place.path {
            Some(path) => fact(Fact::OffsetOf(path), place.offset, span),
            None => Self::ulong(place.offset, span),
        }))
    }

    pub(super) fn container_of(
        &mut self,
        pointer: &ast::Expr,
        ty: &Arg,
        member: &ast::Expr,
        span: Span,
    ) -> R<Operand> {
        let (pointer, outer) = both(self.scalar(pointer), self.type_arg(ty))?;
        let place = self.member_of(ty, member, span)?;
        if !matches!(class(self.types, &pointer.ty), Class::Ptr(_)) {
            let name = spell(self.types, &pointer.ty);
            return self.report(
                Diagnostic::error(Code::NotPointer, pointer.span, "`container_of` takes a pointer")
                    .label(format!("its type is `{name}`")),
            );
        }
        let ty = pointer.ty.clone();
        // The layout of a program's own types is what its BTF says: there is nothing to relocate.
        let back = match place.path {
            Some(path) => fact(Fact::OffsetOf(path), place.offset, span),
            None => Self::ulong(place.offset, span),
        };
        let back = self.convert(back, CType::LONG);
        let kind = ExprKind::Arith {
            op: Arith::Sub,
            lhs: Box::new(pointer),
            rhs: Box::new(back),
        };
        let mut moved = self.convert(Expr { kind, ty, span }, CType::Ptr(Box::new(outer)));
        moved.span = span;
        Ok(Operand::Value(moved))
    }

    /// A type that is written as a lone name.
    fn try_type(&self, name: &str) -> Option<CType> {
        let known = [NameKind::Typedef, NameKind::Int]
            .into_iter()
            .find_map(|kind| self.types_named(kind, name).first().map(|id| CType::Btf(*id)));
        let (bytes, signed) = match name {
            "u8" | "s8" => (1, name == "s8"),
            "u16" | "s16" => (2, name == "s16"),
            "u32" | "s32" => (4, name == "s32"),
            "u64" | "s64" => (8, name == "s64"),
            _ => return known,
        };
        known.or(Some(CType::Int { bytes, signed }))
    }

    fn type_arg(&mut self, arg: &Arg) -> R<CType> {
        match arg {
            Arg::Type(ty) => self.type_name(ty),
            Arg::Expr(ast::Expr {
                kind: ast::ExprKind::Name(name),
                span,
            }) => match self.try_type(name) {
                Some(ty) => Ok(ty),
                None => {
                    let mut diag =
                        Diagnostic::error(Code::UnknownType, *span, format!("there is no type `{name}`"))
                            .label(self.not_in_btf());
                    for keyword in self.keywords_of(name) {
                        diag = diag.help(format!("did you mean `{keyword} {name}`?"));
                    }
                    self.report(diag)
                }
            },
            Arg::Expr(_) | Arg::Key(_) => self.report(
                Diagnostic::error(Code::BadArguments, arg.span(), "a type has to be here")
                    .label("this is an expression"),
            ),
        }
    }

    /// The member of a type, written as in `offsetof`: `a.b[2].c`.
    fn member_of(&mut self, ty: &Arg, member: &ast::Expr, span: Span) -> R<Place> {
        let outer = self.type_arg(ty)?;
        let Some(place) = self.imaginary(&outer, span) else {
            let name = spell(self.types, &outer);
            return self.report(
                Diagnostic::error(Code::NotComposite, ty.span(), format!("`{name}` has no members"))
                    .label("has to be a struct or union"),
            );
        };
        let place = self.designator(place, member)?;
        if place.bits.is_some() {
            return self.report(
                Diagnostic::error(
                    Code::BitfieldAddress,
                    member.span,
                    "a bitfield has no byte offset",
                )
                .label("this is a bitfield"),
            );
        }
        Ok(place)
    }

    fn designator(&mut self, outer: Place, member: &ast::Expr) -> R<Place> {
        match &member.kind {
            ast::ExprKind::Name(name) => self.field(outer, name, member.span, member.span),
            ast::ExprKind::Member {
                base,
                arrow: false,
                field,
            } => {
                let inner = self.designator(outer, base)?;
                if !matches!(class(self.types, &inner.ty), Class::Composite(_)) {
                    let name = spell(self.types, &inner.ty);
                    return self.report(
                        Diagnostic::error(Code::NotComposite, base.span, format!("`{name}` has no members"))
                            .label("not a struct"),
                    );
                }
                self.field(inner, &field.node, field.span, member.span)
            }
            ast::ExprKind::Index { base, index } => {
                let inner = self.designator(outer, base)?;
                let at = index.span;
                let index = self.scalar(index)?;
                let index = self.promoted(index, "an index")?;
                let Class::Array { elem, len } = class(self.types, &inner.ty) else {
                    let name = spell(self.types, &inner.ty);
                    return self.report(
                        Diagnostic::error(Code::NotIndexable, base.span, "only an array can be indexed here")
                            .label(format!("its type is `{name}`")),
                    );
                };
                if index.constant().is_none() {
                    return self.report(
                        Diagnostic::error(Code::NotIndexable, at, "the index has to be a constant here")
                            .label("known only when the program runs")
                            .note("nothing is read: the place of a member is asked for"),
                    );
                }
                if let Operand::Place(place) = self.element(inner, elem, len, index, member.span)? {
                    Ok(place)
                } else {
                    unreachable!("bug in ksnoop-jit: an element is a place")
                }
            }
            ast::ExprKind::Int(_)
            | ast::ExprKind::Char(_)
            | ast::ExprKind::Str(_)
            | ast::ExprKind::Builtin(_)
            | ast::ExprKind::Member { .. }
            | ast::ExprKind::Unary { .. }
            | ast::ExprKind::Binary { .. }
            | ast::ExprKind::Cond { .. }
            | ast::ExprKind::Cast { .. }
            | ast::ExprKind::SizeofType(_)
            | ast::ExprKind::Call { .. } => self.report(
                Diagnostic::error(Code::BadArguments, member.span, "a member has to be here")
                    .label("not a member's name"),
            ),
        }
    }
}

fn fact(fact: Fact, bytes: u64, span: Span) -> Expr {
    // The way to the first byte of a struct needs no relocation.
    let nothing = match &fact {
        Fact::OffsetOf(Path { access, .. }) => access.as_slice() == [0],
        Fact::SizeOf(_) | Fact::SizeOfField(_) => false,
    };
    let kind = if nothing {
        ExprKind::Const(bytes as i64)
    } else {
        ExprKind::Layout { fact, value: bytes }
    };
    Expr {
        kind,
        ty: CType::ULONG,
        span,
    }
}
