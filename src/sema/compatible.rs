//! Which pointers C takes together: compatible types (C17 6.2.7, with integers by size and sign), and what a conditional
//! expression of two pointers is. In: types. Out: whether, and which type. Never reports anything.

use super::Sema;
use super::ctypes::{Class, class, spell};
use crate::ctype::CType;
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
