//! The typing of what is in memory: members and elements. It extends a place's CO-RE path along with its byte offset, so
//! that both are always about the same field.

use super::ctypes::{Class, class, size_of, spell};
use super::expr::{Operand, both};
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast;
use crate::span::Span;
use crate::typed::{Base, BitRange, Expr, ExprKind, Path, Place};
use crate::types::{MemberErrorKind, Type, TypeId};

impl Sema<'_> {
    /// The way that starts at a struct or union of the kernel. What is in a program is where its own types say.
    pub(super) fn path_from(&self, root: TypeId) -> Option<Path> {
        (!root.is_program()).then(|| Path {
            root,
            access: vec![0],
            through_union: false,
            text: self.types.c_name(root),
        })
    }

    pub(super) fn member(
        &mut self,
        base: &ast::Expr,
        arrow: bool,
        field: &ast::Ident,
        span: Span,
    ) -> R<Operand> {
        let operand = self.operand(base)?;
        let operator = Span {
            start: base.span.end,
            end: field.span.start,
        };
        let outer = self.aggregate(operand, arrow, operator, field)?;
        Ok(Operand::Place(self.field(
            outer,
            &field.node,
            field.span,
            span,
        )?))
    }

    /// The struct that `.` or `->` is applied to.
    fn aggregate(&mut self, operand: Operand, arrow: bool, operator: Span, field: &ast::Ident) -> R<Place> {
        let at = operand.span();
        let ty = match &operand {
            Operand::Value(expr) => expr.ty.clone(),
            Operand::Place(place) => place.ty.clone(),
            Operand::Str(..)
            | Operand::Comm(_)
            | Operand::Func(_)
            | Operand::Sized(_)
            | Operand::Symbol(_)
            | Operand::Address(_) => {
                let what = if let Operand::Address(_) = operand {
                    "an address"
                } else {
                    "a string"
                };
                return self.report(
                    Diagnostic::error(Code::NotComposite, at, format!("{what} has no members"))
                        .label(format!("this is {what}")),
                );
            }
        };
        match (class(self.types, &ty), operand) {
            (Class::Composite(_), Operand::Place(place)) if !arrow => Ok(place),
            (Class::Composite(_), _) => {
                let name = spell(self.types, &ty);
                self.report(
                    Diagnostic::error(Code::ArrowForDot, operator, format!("`{name}` is not a pointer"))
                        .label("`->` needs a pointer")
                        .secondary(at, format!("this is a `{name}` itself"))
                        .help(format!("use a dot: `.{}`", field.node)),
                )
            }
            (Class::Ptr(to), operand) => {
                let inner = class(self.types, &to);
                if !arrow && matches!(inner, Class::Composite(_)) {
                    let name = spell(self.types, &ty);
                    return self.report(
                        Diagnostic::error(Code::DotForArrow, operator, format!("`{name}` is a pointer"))
                            .label("`.` needs the struct itself")
                            .secondary(at, format!("its type is `{name}`"))
                            .help(format!("use an arrow: `->{}`", field.node)),
                    );
                }
                if matches!(inner, Class::Composite(_) | Class::Void | Class::Opaque) {
                    let pointer = self.rvalue(operand)?;
                    return self.deref(pointer, at);
                }
                self.not_composite(at, &ty, field)
            }
            // C lets an array decay here too.
            (Class::Array { elem, .. }, operand) if arrow => {
                if let Class::Composite(_) = class(self.types, &CType::Btf(elem)) {
                    let pointer = self.rvalue(operand)?;
                    return self.deref(pointer, at);
                }
                self.not_composite(at, &ty, field)
            }
            (Class::Opaque, _) => {
                let name = spell(self.types, &ty);
                self.report(
                    Diagnostic::error(
                        Code::Incomplete,
                        at,
                        format!("the members of `{name}` are not known"),
                    )
                    .label(self.why_opaque(&ty)),
                )
            }
            (
                Class::Void
                | Class::Int { .. }
                | Class::Bool
                | Class::Float
                | Class::Array { .. }
                | Class::Func,
                _,
            ) => self.not_composite(at, &ty, field),
        }
    }

    fn not_composite<T>(&mut self, at: Span, ty: &CType, field: &ast::Ident) -> R<T> {
        let name = spell(self.types, ty);
        self.report(
            Diagnostic::error(Code::NotComposite, at, format!("`{name}` has no members"))
                .label(format!("`{name}` is neither a struct nor a pointer to one"))
                .secondary(field.span, "so this names nothing"),
        )
    }

    /// Goes on to a member of a struct or union.
    pub(super) fn field(&mut self, outer: Place, name: &str, at: Span, span: Span) -> R<Place> {
        let CType::Btf(id) = outer.ty else {
            unreachable!("bug in ksnoop-jit: a struct type that BTF doesn't describe");
        };
        let found = match self.types.member(id, name) {
            Ok(found) => found,
            Err(error) => {
                let outer_name = spell(self.types, &outer.ty);
                let mut diag = match error.kind {
                    MemberErrorKind::NoSuchMember => Diagnostic::error(
                        Code::UnknownMember,
                        at,
                        format!("`{outer_name}` has no member `{name}`"),
                    )
                    .label("no such member"),
                    MemberErrorKind::NotComposite | MemberErrorKind::Incomplete => Diagnostic::error(
                        Code::Incomplete,
                        at,
                        format!("the members of `{outer_name}` are not known"),
                    )
                    .label(self.why_opaque(&outer.ty)),
                };
                if error.kind == MemberErrorKind::NoSuchMember
                    && let Some(inner) = self.types.inner_member(id, name)
                {
                    diag = diag.help(format!("`{inner}` is a member"));
                }
                if !error.candidates.is_empty() {
                    let names: Vec<String> = error.candidates.iter().map(|c| format!("`{c}`")).collect();
                    diag = diag.help(format!("did you mean {}?", names.join(" or ")));
                } else if error.kind == MemberErrorKind::NoSuchMember {
                    let names = self.types.member_names(id);
                    if !names.is_empty() && names.len() <= 12 {
                        diag = diag.note(format!("its members are {}", names.join(", ")));
                    }
                }
                return self.report(diag);
            }
        };
        let bit = outer.offset * 8 + u64::from(found.bit_offset);
        let path = outer.path.map(|mut path| {
            let mut at = self.types.complete(id);
            for index in &found.indices {
                path.through_union |= matches!(self.types.get(at), Type::Union(_));
                if let Some(member) = self
                    .types
                    .composite(at)
                    .and_then(|c| c.members.get(*index as usize).cloned())
                {
                    at = self.types.complete(member.ty);
                }
            }
            path.access.extend(&found.indices);
            path.text = format!("{}.{name}", path.text);
            path
        });
        let ty = CType::Btf(found.ty);
        let bits = found.bitfield.map(|width| BitRange {
            first: bit,
            width,
            unit: size_of(self.types, &ty).unwrap_or(8) as u8,
        });
        Ok(Place {
            base: outer.base,
            path,
            offset: bit / 8,
            bits,
            ty,
            span,
        })
    }

    pub(super) fn index(&mut self, base: &ast::Expr, index: &ast::Expr, span: Span) -> R<Operand> {
        let (operand, index) = both(self.operand(base), self.scalar(index))?;
        let at = operand.span();
        let index = self.promoted(index, "an index")?;
        let ty = match &operand {
            Operand::Value(expr) => expr.ty.clone(),
            Operand::Place(place) => place.ty.clone(),
            Operand::Str(..)
            | Operand::Comm(_)
            | Operand::Func(_)
            | Operand::Sized(_)
            | Operand::Symbol(_)
            | Operand::Address(_) => {
                let mut diag = Diagnostic::error(Code::NotIndexable, at, "this string can't be indexed")
                    .label("not an array in memory");
                if matches!(operand, Operand::Comm(_)) {
                    diag = diag.help("the same name is an array in `task->comm`");
                }
                return self.report(diag);
            }
        };
        match (class(self.types, &ty), operand) {
            (Class::Array { elem, len }, Operand::Place(place)) => {
                self.element(place, elem, len, index, span)
            }
            (Class::Ptr(to), operand) => {
                let pointer = self.rvalue(operand)?;
                if let (Some(n), Class::Composite(root)) = (index.constant(), class(self.types, &to))
                    && let Some(size) = size_of(self.types, &to)
                    && let Ok(n32) = u32::try_from(n)
                    && let Some(offset) = u64::from(n32).checked_mul(size).filter(|o| *o < 1 << 28)
                {
                    // A constant index stays in the access path: the relocation scales it by the real size.
                    let memory = self.memory_of(&pointer, &to);
                    let path = self.path_from(root).map(|mut path| {
                        path.access[0] = n32;
                        path.text = format!("{}[{n}]", path.text);
                        path
                    });
                    let base = Base::Pointer {
                        pointer: Box::new(pointer),
                        memory,
                    };
                    return Ok(Operand::Place(Place {
                        base,
                        path,
                        offset,
                        bits: None,
                        ty: to,
                        span,
                    }));
                }
                if matches!(class(self.types, &to), Class::Void) {
                    return self.deref(pointer, at).map(Operand::Place);
                }
                let moved = self.offset(pointer, to, index, false, span)?;
                let moved = self.rvalue(moved)?;
                Ok(Operand::Place(self.deref(moved, span)?))
            }
            (_, _) => {
                let name = spell(self.types, &ty);
                let mut diag = Diagnostic::error(
                    Code::NotIndexable,
                    at,
                    "only an array or a pointer can be indexed",
                )
                .label(format!("its type is `{name}`"));
                if let ast::ExprKind::Index { base: array, .. } = &base.kind
                    && let Operand::Place(array) = self.operand(array)?
                    && let Class::Array { .. } = class(self.types, &array.ty)
                {
                    // pahole multiplies the dimensions (`array_type__nelems` in its btf_encoder.c).
                    diag = diag
                        .note("pahole, which makes the kernel's BTF, writes an array of several dimensions as one of all its elements")
                        .help("of an `a[2][3]` the element `a[1][2]` is `a[1 * 3 + 2]` then");
                }
                self.report(diag)
            }
        }
    }

    /// An element of an array. A constant index is checked here, a computed one when the program runs.
    pub(super) fn element(
        &mut self,
        array: Place,
        elem: TypeId,
        len: u32,
        index: Expr,
        span: Span,
    ) -> R<Operand> {
        let elem_ty = CType::Btf(elem);
        let Some(size) = size_of(self.types, &elem_ty) else {
            return self.report(
                Diagnostic::error(
                    Code::Incomplete,
                    array.span,
                    "the size of its elements is not known",
                )
                .label("can't be indexed"),
            );
        };
        // `x[]`, and the `x[1]` at a struct's end that older code writes for it, have no bound that BTF knows.
        let bound = if len <= 1 { None } else { Some(len) };
        if let Some(n) = index.constant() {
            let inside = n >= 0 && bound.is_none_or(|bound| n < i64::from(bound));
            let offset = u64::try_from(n)
                .ok()
                .and_then(|n| n.checked_mul(size))
                .filter(|o| *o < 1 << 28);
            let (true, Some(offset)) = (inside, offset) else {
                let name = spell(self.types, &array.ty);
                return self.report(
                    Diagnostic::error(
                        Code::OutOfBounds,
                        index.span,
                        format!("index {n} is out of bounds"),
                    )
                    .label(if bound.is_some() {
                        format!("the array has {len} elements, 0 to {}", len - 1)
                    } else {
                        "not a usable index".to_string()
                    })
                    .secondary(array.span, format!("its type is `{name}`")),
                );
            };
            let path = array.path.map(|mut path| {
                path.access.push(n as u32);
                path.text = format!("{}[{n}]", path.text);
                path
            });
            let offset = array.offset + offset;
            return Ok(Operand::Place(Place {
                base: array.base,
                path,
                offset,
                bits: None,
                ty: elem_ty,
                span,
            }));
        }
        let index = self.convert(index, CType::LONG);
        let index = match bound {
            Some(bound) => {
                let span = index.span;
                Expr {
                    kind: ExprKind::Checked {
                        index: Box::new(index),
                        bound,
                    },
                    ty: CType::LONG,
                    span,
                }
            }
            None => index,
        };
        let pointer_ty = CType::Ptr(Box::new(elem_ty.clone()));
        let array_span = array.span;
        let first = self.address_of(array, pointer_ty, array_span)?;
        let moved = self.offset(first, elem_ty, index, false, span)?;
        let moved = self.rvalue(moved)?;
        Ok(Operand::Place(self.deref(moved, span)?))
    }
}
