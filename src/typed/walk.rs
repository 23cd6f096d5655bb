//! What is asked of typed expressions: whether two are the same wherever they stand, what is in them, and whether they are known
//! beforehand. In: typed expressions. Out: answers. It never changes one.

use std::hash::{Hash, Hasher};

use super::{Base, Event, Expr, ExprKind, Place, Source, Text};
use crate::span::Span;

impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        let Expr { kind, ty, span: _ } = self;
        *kind == other.kind && *ty == other.ty
    }
}

impl Eq for Expr {}

impl Hash for Expr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Expr { kind, ty, span: _ } = self;
        (kind, ty).hash(state);
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        let Place {
            base,
            path,
            offset,
            bits,
            ty,
            span: _,
        } = self;
        *base == other.base
            && *path == other.path
            && *offset == other.offset
            && *bits == other.bits
            && *ty == other.ty
    }
}

impl Eq for Place {}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Place {
            base,
            path,
            offset,
            bits,
            ty,
            span: _,
        } = self;
        (base, path, offset, bits, ty).hash(state);
    }
}

impl Expr {
    /// Calls `visit` for this expression and everything in it, also inside places.
    pub fn walk(&self, visit: &mut dyn FnMut(&Expr)) {
        self.descend(&mut |expr| {
            visit(expr);
            true
        });
    }

    /// The same, but for what is in an expression for which `visit` says that it need not go on.
    pub fn descend(&self, visit: &mut dyn FnMut(&Expr) -> bool) {
        if !visit(self) {
            return;
        }
        match &self.kind {
            ExprKind::Const(_)
            | ExprKind::Arg(_)
            | ExprKind::Return
            | ExprKind::Builtin(_)
            | ExprKind::Layout { .. } => {}
            ExprKind::Load(place) | ExprKind::AddrOf(place) | ExprKind::BytesCompare { place, .. } => {
                place.descend(visit);
            }
            ExprKind::Neg(e)
            | ExprKind::BitNot(e)
            | ExprKind::Convert(e)
            | ExprKind::Not(e)
            | ExprKind::Swap(e)
            | ExprKind::IsErr(e)
            | ExprKind::AsUser(e)
            | ExprKind::AtEntry(e)
            | ExprKind::Checked { index: e, .. } => e.descend(visit),
            ExprKind::Arith { lhs, rhs, .. }
            | ExprKind::Compare { lhs, rhs, .. }
            | ExprKind::And(lhs, rhs)
            | ExprKind::Or(lhs, rhs) => {
                lhs.descend(visit);
                rhs.descend(visit);
            }
            ExprKind::Cond(c, a, b) => {
                c.descend(visit);
                a.descend(visit);
                b.descend(visit);
            }
            ExprKind::StrCompare { text, .. } => match text.as_ref() {
                Text::Pointer { pointer, .. } => pointer.descend(visit),
                Text::Array { place, .. } => place.descend(visit),
                Text::Comm => {}
            },
        }
    }

    /// Lets `change` change the expressions that this one is made of, those inside places too, but not what is in those.
    pub fn change_parts(&mut self, change: &mut dyn FnMut(&mut Expr)) {
        match &mut self.kind {
            ExprKind::Const(_)
            | ExprKind::Arg(_)
            | ExprKind::Return
            | ExprKind::Builtin(_)
            | ExprKind::Layout { .. } => {}
            ExprKind::Load(place) | ExprKind::AddrOf(place) | ExprKind::BytesCompare { place, .. } => {
                place.change_parts(change);
            }
            ExprKind::Neg(e)
            | ExprKind::BitNot(e)
            | ExprKind::Convert(e)
            | ExprKind::Not(e)
            | ExprKind::Swap(e)
            | ExprKind::IsErr(e)
            | ExprKind::AsUser(e)
            | ExprKind::AtEntry(e)
            | ExprKind::Checked { index: e, .. } => change(e),
            ExprKind::Arith { lhs, rhs, .. }
            | ExprKind::Compare { lhs, rhs, .. }
            | ExprKind::And(lhs, rhs)
            | ExprKind::Or(lhs, rhs) => {
                change(lhs);
                change(rhs);
            }
            ExprKind::Cond(c, a, b) => {
                change(c);
                change(a);
                change(b);
            }
            ExprKind::StrCompare { text, .. } => match text.as_mut() {
                Text::Pointer { pointer, .. } => change(pointer),
                Text::Array { place, .. } => place.change_parts(change),
                Text::Comm => {}
            },
        }
    }

    /// Where an expression is written that by itself, without its parts, reads what may be another thing at the call's return.
    pub fn read_at(&self) -> Option<Span> {
        match &self.kind {
            ExprKind::Load(place) | ExprKind::BytesCompare { place, .. } => match place.base {
                Base::Pointer { .. } => Some(place.span),
                // What was passed by value stays as it was.
                Base::Arg(_) | Base::Return => None,
            },
            ExprKind::StrCompare { text, .. } => match text.as_ref() {
                Text::Pointer { pointer, .. } => Some(pointer.span),
                Text::Array { place, .. } => Some(place.span),
                Text::Comm => Some(self.span),
            },
            ExprKind::Builtin(builtin) => builtin.changes().then_some(self.span),
            ExprKind::Const(_)
            | ExprKind::Arg(_)
            | ExprKind::Return
            | ExprKind::AddrOf(_)
            | ExprKind::Neg(_)
            | ExprKind::BitNot(_)
            | ExprKind::Arith { .. }
            | ExprKind::Convert(_)
            | ExprKind::Compare { .. }
            | ExprKind::Not(_)
            | ExprKind::And(..)
            | ExprKind::Or(..)
            | ExprKind::Cond(..)
            | ExprKind::Layout { .. }
            | ExprKind::Checked { .. }
            | ExprKind::Swap(_)
            | ExprKind::IsErr(_)
            | ExprKind::AsUser(_)
            | ExprKind::AtEntry(_) => None,
        }
    }

    /// Whether anything in it may be another thing at the call's return.
    pub fn may_change(&self) -> bool {
        let mut may = false;
        self.walk(&mut |part| may |= part.read_at().is_some());
        may
    }

    /// Whether it is a constant, and which. What depends on the kernel's types is none.
    pub fn constant(&self) -> Option<i64> {
        if let ExprKind::Const(value) = self.kind {
            Some(value)
        } else {
            None
        }
    }

    /// Whether it is the same at every event: nothing is read for it.
    pub fn is_fixed(&self) -> bool {
        let mut fixed = true;
        self.walk(&mut |expr| {
            fixed &= !matches!(
                expr.kind,
                ExprKind::Arg(_)
                    | ExprKind::Return
                    | ExprKind::Builtin(_)
                    | ExprKind::Load(_)
                    | ExprKind::StrCompare { .. }
                    | ExprKind::BytesCompare { .. }
            );
        });
        fixed
    }
}

impl Place {
    /// As [`Expr::descend`], for every expression in it.
    fn descend(&self, visit: &mut dyn FnMut(&Expr) -> bool) {
        // What is passed or returned by value is no expression of its own; who asks what is mentioned sees it as one.
        let stand_in = match &self.base {
            Base::Pointer { pointer, .. } => return pointer.descend(visit),
            Base::Arg(index) => ExprKind::Arg(*index),
            Base::Return => ExprKind::Return,
        };
        visit(&self.stand_in(stand_in));
    }

    fn change_parts(&mut self, change: &mut dyn FnMut(&mut Expr)) {
        match &mut self.base {
            Base::Pointer { pointer, .. } => change(pointer),
            Base::Arg(_) | Base::Return => {}
        }
    }

    fn stand_in(&self, kind: ExprKind) -> Expr {
        Expr {
            kind,
            ty: self.ty.clone(),
            span: self.span,
        }
    }
}

impl Event {
    /// Calls `visit` for every expression of its items and predicates, and all in them.
    pub fn walk(&self, visit: &mut dyn FnMut(&Expr)) {
        for item in &self.items {
            item.source.walk(visit);
        }
        for predicate in &self.predicates {
            predicate.cond.walk(visit);
        }
    }

    /// Whether any part of it is such an expression.
    pub fn mentions(&self, kind: &ExprKind) -> bool {
        let mut found = false;
        self.walk(&mut |expr| found |= expr.kind == *kind);
        found
    }
}

impl Source {
    /// Calls `visit` for every expression in it.
    pub fn walk(&self, visit: &mut dyn FnMut(&Expr)) {
        self.descend(&mut |expr| {
            visit(expr);
            true
        });
    }

    /// As [`Expr::descend`], for every expression in it.
    pub fn descend(&self, visit: &mut dyn FnMut(&Expr) -> bool) {
        match self {
            Source::Value(expr) => expr.descend(visit),
            Source::Memory(place) => place.descend(visit),
            Source::Sized { pointer, length, .. } => {
                pointer.descend(visit);
                length.descend(visit);
            }
            Source::Comm | Source::Literal(_) | Source::Name | Source::Stack { .. } => {}
        }
    }

    /// Whether it may be another thing at the call's return.
    pub fn may_change(&self) -> bool {
        match self {
            Source::Value(expr) => expr.may_change(),
            Source::Memory(place) => match place.base {
                Base::Pointer { .. } => true,
                Base::Arg(_) | Base::Return => false,
            },
            Source::Sized { .. } | Source::Comm => true,
            Source::Literal(_) | Source::Name | Source::Stack { .. } => false,
        }
    }

    /// As [`Expr::change_parts`].
    pub fn change_parts(&mut self, change: &mut dyn FnMut(&mut Expr)) {
        match self {
            Source::Value(expr) => change(expr),
            Source::Memory(place) => place.change_parts(change),
            Source::Sized { pointer, length, .. } => {
                change(pointer);
                change(length);
            }
            Source::Comm | Source::Literal(_) | Source::Name | Source::Stack { .. } => {}
        }
    }
}
