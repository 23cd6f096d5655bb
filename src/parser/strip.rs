//! Trees without their places, to compare what two texts say and not how they are laid out. In: a tree; out: the same
//! with every span empty. Never changes anything else.

use super::ast::{Arg, Expr, ExprKind, Ident, Item, Query, TargetKind, TypeBase, TypeName};
use crate::span::Span;

impl Query {
    /// The same query with every span `0..0`.
    #[must_use]
    pub fn strip_spans(mut self) -> Query {
        self.span = Span::default();
        self.target.span = Span::default();
        match &mut self.target.kind {
            TargetKind::Function { module, name } => idents(module.as_mut().into_iter().chain([name])),
            TargetKind::Tracepoint { group, event } => idents(group.as_mut().into_iter().chain([event])),
            TargetKind::Uprobe { binary, symbol } => idents([binary, symbol]),
            TargetKind::Usdt {
                binary,
                provider,
                name,
            } => idents([binary, provider, name]),
        }
        self.items.iter_mut().flatten().for_each(item);
        self.cond.iter_mut().for_each(expr);
        self
    }
}

fn idents<'a>(all: impl IntoIterator<Item = &'a mut Ident>) {
    all.into_iter().for_each(|ident| ident.span = Span::default());
}

fn item(item: &mut Item) {
    item.span = Span::default();
    idents(item.label.iter_mut().chain(&mut item.format));
    expr(&mut item.expr);
}

fn expr(e: &mut Expr) {
    e.span = Span::default();
    match &mut e.kind {
        ExprKind::Int(_) | ExprKind::Char(_) | ExprKind::Str(_) => {}
        ExprKind::Name(_) | ExprKind::Builtin(_) => {}
        ExprKind::Member {
            base,
            arrow: _,
            field,
        } => {
            idents([field]);
            expr(base);
        }
        ExprKind::Index { base, index } => [base, index].into_iter().for_each(|e| expr(e)),
        ExprKind::Unary { op, operand } => {
            op.span = Span::default();
            expr(operand);
        }
        ExprKind::Binary { op, lhs, rhs } => {
            op.span = Span::default();
            [lhs, rhs].into_iter().for_each(|e| expr(e));
        }
        ExprKind::Cond {
            cond,
            then,
            otherwise,
        } => [cond, then, otherwise].into_iter().for_each(|e| expr(e)),
        ExprKind::Cast { ty, operand } => {
            type_name(ty);
            expr(operand);
        }
        ExprKind::SizeofType(ty) => type_name(ty),
        ExprKind::Call { func, args } => {
            idents([func]);
            for arg in args {
                match arg {
                    Arg::Expr(e) => expr(e),
                    Arg::Type(ty) => type_name(ty),
                    Arg::Key(key) => item(key),
                }
            }
        }
    }
}

fn type_name(ty: &mut TypeName) {
    ty.span = Span::default();
    match &mut ty.base {
        TypeBase::Struct(name) | TypeBase::Union(name) | TypeBase::Enum(name) | TypeBase::Named(name) => {
            name.span = Span::default();
        }
        TypeBase::Words(words) => words.span = Span::default(),
    }
}
