//! Which types C takes together: compatible types (C17 6.2.7, with integers by size and sign), and what a conditional
//! expression of two pointers is; and whether enums are the same, of which it tells where they are not. In: types. Out: whether, which
//! type, warnings.

use super::Sema;
use super::ctypes::{Class, class, spell};
use super::expr::Operand;
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast;
use crate::span::Span;
use crate::typed::Expr;
use crate::types::{Type, TypeId};

/// How far pointers to pointers and arrays of arrays are followed: BTF that is made by hand may have one that leads to itself.
const DEPTH: u32 = 16;

impl Sema<'_> {
    /// The type of `cond ? a : b` where `a` points to `x` and `b` to `y` (C17 6.5.15): that of the other side beside `NULL`, the
    /// common one of compatible types, `void *` if one is that. `None` where C has none.
    pub(super) fn either_pointer(&self, a: &Expr, x: &CType, b: &Expr, y: &CType) -> Option<CType> {
        let void = |to: &CType| class(self.types, to) == Class::Void;
        let null = |side: &Expr, to: &CType| void(to) && side.constant() == Some(0);
        if null(a, x) {
            Some(b.ty.clone())
        } else if null(b, y) || self.compatible(x, y) || void(x) {
            Some(a.ty.clone())
        } else if void(y) {
            Some(b.ty.clone())
        } else {
            None
        }
    }

    /// Whether two types are compatible but for their qualifiers. Integers are if they have one size and sign, whatever they are
    /// called: BTF doesn't keep `long` and `long long` apart everywhere. Inside of pointers qualifiers don't count either, as casts
    /// here have none.
    pub(super) fn compatible(&self, a: &CType, b: &CType) -> bool {
        self.compatible_to(a, b, DEPTH)
    }

    fn compatible_to(&self, a: &CType, b: &CType, depth: u32) -> bool {
        if depth == 0 {
            return false;
        }
        match (class(self.types, a), class(self.types, b)) {
            (Class::Int { .. }, Class::Int { .. }) if self.different_enums(a, b) => false,
            (Class::Ptr(x), Class::Ptr(y)) => self.compatible_to(&x, &y, depth - 1),
            (Class::Array { elem: x, len: m }, Class::Array { elem: y, len: n }) => {
                (m == n || m == 0 || n == 0) && self.compatible_to(&CType::Btf(x), &CType::Btf(y), depth - 1)
            }
            (Class::Composite(x), Class::Composite(y)) => x == y || self.same_tag(x, y),
            (Class::Func, Class::Func) | (Class::Float, Class::Float) | (Class::Opaque, Class::Opaque) => {
                self.bare_name(a) == self.bare_name(b)
            }
            (x, y) => x == y,
        }
    }

    /// Tells of a constant or value of one enum beside one of another, as C compilers do.
    pub(super) fn warn_mixed_enums(
        &mut self,
        op_span: Span,
        (lhs, a): (&ast::Expr, &Operand),
        (rhs, b): (&ast::Expr, &Operand),
    ) {
        let (x, y) = (self.enums_of(lhs, a), self.enums_of(rhs, b));
        let (Some(first), Some(second)) = (x.first(), y.first()) else {
            return;
        };
        // The kernel and its modules may define a constant more than once.
        let same = |a: &TypeId, b: &TypeId| a == b || self.same_tag(*a, *b);
        if x.iter().any(|a| y.iter().any(|b| same(a, b))) {
            return;
        }
        let (x, y) = (self.types.c_name(*first), self.types.c_name(*second));
        self.warn(
            Diagnostic::warning(Code::TypeClash, op_span, "enums of different types are compared")
                .label("these are compared as numbers")
                .secondary(a.span(), format!("its type is `{x}`"))
                .secondary(b.span(), format!("its type is `{y}`"))
                .help("a cast tells that it is meant: `(int)x`"),
        );
    }

    /// A number as people write it beside one in network order: nearly always its bytes are to be swapped.
    pub(super) fn warn_byte_order(
        &mut self,
        op_span: Span,
        (lhs, a): (&ast::Expr, &Operand),
        (rhs, b): (&ast::Expr, &Operand),
    ) {
        for (number, literal) in [(a, rhs), (b, lhs)] {
            let ast::ExprKind::Int(written) = &literal.kind else {
                continue;
            };
            let Some(ty) = number.ty() else {
                continue;
            };
            let name = spell(self.types, ty);
            let value = written.value;
            let (swap, swapped) = match (name.as_str(), u16::try_from(value), u32::try_from(value)) {
                ("__be16", Ok(value), _) => ("htons", u64::from(value.swap_bytes())),
                ("__be32", _, Ok(value)) => ("htonl", u64::from(value.swap_bytes())),
                ("__be64", _, _) => ("htonll", value.swap_bytes()),
                _ => continue,
            };
            if swapped != value {
                let text = literal.span.text(self.text);
                self.warn(
                    Diagnostic::warning(
                        Code::TypeClash,
                        op_span,
                        format!("a `{name}` is in network order"),
                    )
                    .label("compared with a number as it is")
                    .secondary(number.span(), "its bytes lie the other way round")
                    .help(format!(
                        "to compare with what {text} is on the wire, write `{swap}({text})`"
                    )),
                );
            }
        }
    }

    /// The enums that something may be of; a constant's own type is `int`.
    fn enums_of(&self, written: &ast::Expr, operand: &Operand) -> Vec<TypeId> {
        if let (Operand::Value(expr), ast::ExprKind::Name(name)) = (operand, &written.kind)
            && expr.constant().is_some()
        {
            let constants = self.enum_constant(name).into_iter();
            return constants.map(|(id, _)| self.types.complete(id)).collect();
        }
        operand.ty().and_then(|ty| self.enum_of(ty)).into_iter().collect()
    }

    /// Whether both are enums, and not one and the same.
    pub(super) fn different_enums(&self, a: &CType, b: &CType) -> bool {
        match (self.enum_of(a), self.enum_of(b)) {
            (Some(x), Some(y)) => x != y && !self.same_tag(x, y),
            (_, _) => false,
        }
    }

    /// The enum that a type is, behind its typedefs.
    fn enum_of(&self, ty: &CType) -> Option<TypeId> {
        let CType::Btf(id) = ty else {
            return None;
        };
        let id = self.types.complete(*id);
        matches!(self.types.get(id), Type::Enum(_)).then_some(id)
    }

    /// A module and the kernel, or two units of a program, have a type of one name each for themselves. Types without a name
    /// differ.
    fn same_tag(&self, a: TypeId, b: TypeId) -> bool {
        !self.types.name(a).is_empty() && self.types.c_name(a) == self.types.c_name(b)
    }

    /// A type's name without typedefs and modifiers.
    pub(super) fn bare_name(&self, ty: &CType) -> String {
        match ty {
            CType::Btf(id) => spell(self.types, &CType::Btf(self.types.complete(*id))),
            CType::Void | CType::Bool | CType::Int { .. } | CType::Ptr(_) => spell(self.types, ty),
        }
    }
}
