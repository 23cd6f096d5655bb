//! The typing of expressions: syntax in, typed expressions out, by C's rules on LP64. A mistake is reported once, where it
//! is; what depends on it is not reported again ([`Reported`] travels up instead).

use super::address::Address;
use super::ctypes::{Class, class, common, promote, spell, wrap};
use super::sized::Sized;
use super::{R, Reported, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, BinaryOp, ExprKind as Ast, UnaryOp};
use crate::span::Span;
use crate::typed::{Arith, Expr, ExprKind, Place};
use crate::types::TypeId;

/// What an expression denotes before C's conversions of lvalues, arrays and strings.
#[derive(Clone, Debug)]
pub(super) enum Operand {
    /// A scalar value.
    Value(Expr),
    /// Something in memory.
    Place(Place),
    /// A string literal.
    Str(Vec<u8>, Span),
    /// The name of the current task.
    Comm(Span),
    /// The name of what is traced.
    Func(Span),
    /// An IP or MAC address.
    Address(Address),
    /// Memory in a length that the query gives.
    Sized(Box<Sized>),
    /// An address that is shown as the symbol it is in.
    Symbol(Expr),
}

impl Operand {
    pub(super) fn span(&self) -> Span {
        match self {
            Operand::Value(expr) | Operand::Symbol(expr) => expr.span,
            Operand::Place(place) => place.span,
            Operand::Str(_, span) | Operand::Comm(span) | Operand::Func(span) => *span,
            Operand::Address(address) => address.span,
            Operand::Sized(sized) => sized.span,
        }
    }

    /// The C type of a value or a place; the others have none of their own.
    pub(super) fn ty(&self) -> Option<&CType> {
        match self {
            Operand::Value(expr) => Some(&expr.ty),
            Operand::Place(place) => Some(&place.ty),
            Operand::Str(..)
            | Operand::Comm(_)
            | Operand::Func(_)
            | Operand::Address(_)
            | Operand::Sized(_)
            | Operand::Symbol(_) => None,
        }
    }

    /// Whether it is the same at every event.
    pub(super) fn is_fixed(&self) -> bool {
        match self {
            Operand::Value(expr) => expr.is_fixed(),
            Operand::Str(..) | Operand::Func(_) | Operand::Address(_) => true,
            Operand::Place(_) | Operand::Comm(_) | Operand::Sized(_) | Operand::Symbol(_) => false,
        }
    }
}

impl Sema<'_> {
    /// Types any expression.
    pub(super) fn operand(&mut self, expr: &ast::Expr) -> R<Operand> {
        let span = expr.span;
        match &expr.kind {
            Ast::Int(lit) => Ok(value(ExprKind::Const(lit.value as i64), int_literal(lit), span)),
            Ast::Char(c) => Ok(value(ExprKind::Const(i64::from(*c as i8)), CType::INT, span)),
            Ast::Str(text) => Ok(Operand::Str(text.clone(), span)),
            Ast::Name(name) => self.name(name, span),
            Ast::Builtin(name) => self.builtin(name, span),
            Ast::Member { base, arrow, field } => self.member(base, *arrow, field, span),
            Ast::Index { base, index } => self.index(base, index, span),
            Ast::Unary { op, operand } => self.unary(op.node, op.span, operand, span),
            Ast::Binary { op, lhs, rhs } => self.binary(op.node, op.span, lhs, rhs, span),
            Ast::Cond {
                cond,
                then,
                otherwise,
            } => self.conditional(cond, then, otherwise, span),
            Ast::Cast { ty, operand } => self.cast(ty, operand, span),
            Ast::SizeofType(ty) => {
                let of = self.type_name(ty)?;
                self.sizeof(&of, ty.span, span)
            }
            Ast::Call { func, args } => self.call(func, args, span),
        }
    }

    /// Types an expression that must be a scalar, without promoting it.
    pub(super) fn scalar(&mut self, expr: &ast::Expr) -> R<Expr> {
        let operand = self.operand(expr)?;
        self.rvalue(operand)
    }

    /// Reads a place, decays an array, refuses what is no scalar.
    pub(super) fn rvalue(&mut self, operand: Operand) -> R<Expr> {
        match operand {
            Operand::Value(expr) => Ok(expr),
            Operand::Place(place) => match class(self.types, &place.ty) {
                Class::Int { .. } | Class::Bool | Class::Ptr(_) => {
                    let (ty, span) = (place.ty.clone(), place.span);
                    Ok(Expr {
                        kind: ExprKind::Load(Box::new(place)),
                        ty,
                        span,
                    })
                }
                Class::Array { elem, .. } => {
                    let span = place.span;
                    let ty = CType::Ptr(Box::new(CType::Btf(elem)));
                    self.address_of(place, ty, span)
                }
                Class::Composite(_) => {
                    let name = spell(self.types, &place.ty);
                    let mut diag = Diagnostic::error(
                        Code::NotScalar,
                        place.span,
                        format!("`{name}` is not a value to compute with"),
                    )
                    .label(format!("its type is `{name}`"));
                    if let CType::Btf(id) = place.ty
                        && let Some(first) = self.scalar_member(id)
                    {
                        let member = self.member_text(place.span, &first);
                        diag = diag.help(format!("name one of its members, such as `{member}`"));
                    }
                    self.report(diag)
                }
                Class::Float => self.report(
                    Diagnostic::error(
                        Code::NotScalar,
                        place.span,
                        "BPF has no floating point arithmetic",
                    )
                    .label("a floating point number can only be shown"),
                ),
                Class::Void | Class::Func | Class::Opaque => {
                    let name = spell(self.types, &place.ty);
                    self.report(
                        Diagnostic::error(Code::Incomplete, place.span, format!("`{name}` has no value"))
                            .label(self.why_opaque(&place.ty)),
                    )
                }
            },
            Operand::Str(_, span) => self.report(
                Diagnostic::error(Code::StringOperand, span, "a string can only be compared")
                    .label("not possible here")
                    .help("strings compare with `==`, `!=` and, as a glob pattern, `=~`"),
            ),
            Operand::Comm(span) | Operand::Func(span) => {
                let name = span.text(self.text).to_string();
                self.report(
                    Diagnostic::error(
                        Code::StringOperand,
                        span,
                        format!("`{name}` is a string: it can be shown and compared"),
                    )
                    .label("not possible here")
                    .help("strings compare with `==`, `!=` and, as a glob pattern, `=~`"),
                )
            }
            Operand::Address(address) => match address.number() {
                Some(number) => Ok(Expr {
                    kind: ExprKind::Const(number),
                    ty: CType::UINT,
                    span: address.span,
                }),
                None => self.address_value(&address),
            },
            Operand::Sized(sized) => self.sized_value(&sized),
            Operand::Symbol(address) => self.symbol_value(address.span),
        }
    }

    /// A value that arithmetic works on, promoted.
    pub(super) fn promoted(&mut self, expr: Expr, what: &str) -> R<Expr> {
        let width = if let ExprKind::Load(place) = &expr.kind {
            place.bits.map(|bits| bits.width)
        } else {
            None
        };
        match promote(&class(self.types, &expr.ty), width) {
            Some(ty) => Ok(self.convert(expr, ty)),
            None => {
                let name = spell(self.types, &expr.ty);
                self.report(
                    Diagnostic::error(Code::TypeClash, expr.span, format!("{what} needs a number"))
                        .label(format!("its type is `{name}`")),
                )
            }
        }
    }

    /// Converts between scalar types; constants at once.
    pub(super) fn convert(&self, expr: Expr, ty: CType) -> Expr {
        if expr.ty == ty {
            return expr;
        }
        let span = expr.span;
        let to = class(self.types, &ty);
        if let (ExprKind::Const(value), Class::Int { bytes, signed }) = (&expr.kind, &to) {
            return Expr {
                kind: ExprKind::Const(wrap(*value, *bytes, *signed)),
                ty,
                span,
            };
        }
        if let (ExprKind::Const(value), Class::Bool) = (&expr.kind, &to) {
            return Expr {
                kind: ExprKind::Const(i64::from(*value != 0)),
                ty,
                span,
            };
        }
        if let (ExprKind::Layout { .. }, Class::Int { bytes: 8, .. }) = (&expr.kind, &to) {
            return Expr { ty, ..expr };
        }
        // A second conversion to something no wider makes the first one pointless.
        let inner = if let ExprKind::Convert(ref inner) = expr.kind
            && to != Class::Bool
            && self.covers(&expr.ty, &ty)
        {
            (**inner).clone()
        } else {
            expr
        };
        if inner.ty == ty {
            return inner;
        }
        Expr {
            kind: ExprKind::Convert(Box::new(inner)),
            ty,
            span,
        }
    }

    /// Whether converting to `outer` after `inner` looks only at bits that converting to `inner` kept.
    fn covers(&self, inner: &CType, outer: &CType) -> bool {
        match (class(self.types, inner), class(self.types, outer)) {
            (Class::Int { bytes: a, .. }, Class::Int { bytes: b, .. }) => b <= a,
            (Class::Ptr(_), Class::Int { .. } | Class::Ptr(_)) => true,
            (Class::Int { bytes: 8, .. }, Class::Ptr(_)) => true,
            _ => false,
        }
    }

    fn unary(&mut self, op: UnaryOp, op_span: Span, operand: &ast::Expr, span: Span) -> R<Operand> {
        match op {
            UnaryOp::Deref => {
                let pointer = self.scalar(operand)?;
                Ok(Operand::Place(self.deref(pointer, span)?))
            }
            UnaryOp::Addr => match self.operand(operand)? {
                Operand::Place(place) => {
                    let ty = CType::Ptr(Box::new(place.ty.clone()));
                    Ok(Operand::Value(self.address_of(place, ty, span)?))
                }
                Operand::Value(_)
                | Operand::Str(..)
                | Operand::Comm(_)
                | Operand::Func(_)
                | Operand::Address(_)
                | Operand::Sized(_)
                | Operand::Symbol(_) => self.report(
                    Diagnostic::error(
                        Code::NoAddress,
                        operand.span,
                        "only something in memory has an address",
                    )
                    .label("this is a value"),
                ),
            },
            UnaryOp::Not => {
                let inner = self.condition(operand)?;
                let kind = if let ExprKind::Const(c) = inner.kind {
                    ExprKind::Const(i64::from(c == 0))
                } else {
                    ExprKind::Not(Box::new(inner))
                };
                Ok(value(kind, CType::INT, span))
            }
            UnaryOp::BitNot | UnaryOp::Neg | UnaryOp::Plus => {
                let inner = self.scalar(operand)?;
                let mut inner = self.promoted(inner, op_name(op))?;
                let ty = inner.ty.clone();
                if let Some(c) = inner.constant() {
                    let c = match op {
                        UnaryOp::BitNot => !c,
                        UnaryOp::Neg => c.wrapping_neg(),
                        UnaryOp::Plus | UnaryOp::Deref | UnaryOp::Addr | UnaryOp::Not => c,
                    };
                    return Ok(value(ExprKind::Const(self.wrap(c, &ty)), ty, span));
                }
                inner.span = inner.span.to(op_span);
                let kind = match op {
                    UnaryOp::BitNot => ExprKind::BitNot(Box::new(inner)),
                    UnaryOp::Neg => ExprKind::Neg(Box::new(inner)),
                    UnaryOp::Plus | UnaryOp::Deref | UnaryOp::Addr | UnaryOp::Not => {
                        return Ok(Operand::Value(inner));
                    }
                };
                Ok(value(kind, ty, span))
            }
        }
    }

    /// An expression used as a truth value.
    pub(super) fn condition(&mut self, expr: &ast::Expr) -> R<Expr> {
        let scalar = self.scalar(expr)?;
        if let Class::Int { .. } | Class::Bool | Class::Ptr(_) = class(self.types, &scalar.ty) {
            self.warn_decided_condition(&scalar);
            Ok(scalar)
        } else {
            let name = spell(self.types, &scalar.ty);
            self.report(
                Diagnostic::error(Code::TypeClash, expr.span, "a condition is a number or a pointer")
                    .label(format!("its type is `{name}`")),
            )
        }
    }

    fn binary(
        &mut self,
        op: BinaryOp,
        op_span: Span,
        lhs: &ast::Expr,
        rhs: &ast::Expr,
        span: Span,
    ) -> R<Operand> {
        if matches!(op, BinaryOp::And | BinaryOp::Xor | BinaryOp::Or) {
            self.warn_precedence(op_span, lhs, rhs);
        }
        match op {
            BinaryOp::LogAnd | BinaryOp::LogOr => {
                let or = op == BinaryOp::LogOr;
                let a = self.condition(lhs);
                let decided = a
                    .as_ref()
                    .is_ok_and(|a| a.constant().is_some_and(|a| (a != 0) == or));
                let b = self.evaluated(!decided, |this| this.condition(rhs));
                let (a, b) = both(a, b)?;
                // What decides comes first or is not there: a side that is read may fault, and then counts as false.
                let kind = match (a.constant(), b.constant()) {
                    (Some(a), Some(b)) => {
                        ExprKind::Const(i64::from(if or { a != 0 || b != 0 } else { a != 0 && b != 0 }))
                    }
                    (Some(a), None) if (a != 0) == or => ExprKind::Const(i64::from(or)),
                    _ if or => ExprKind::Or(Box::new(a), Box::new(b)),
                    _ => ExprKind::And(Box::new(a), Box::new(b)),
                };
                Ok(value(kind, CType::INT, span))
            }
            BinaryOp::Eq
            | BinaryOp::Ne
            | BinaryOp::Lt
            | BinaryOp::Le
            | BinaryOp::Gt
            | BinaryOp::Ge
            | BinaryOp::Match => {
                let (a, b) = (self.operand(lhs), self.operand(rhs));
                if let (Ok(text), Err(Reported)) = (&a, &b)
                    && self.is_text_like(text)
                {
                    self.help_with_quotes(rhs);
                }
                let (a, b) = both(a, b)?;
                if is_string_call(lhs) || is_string_call(rhs) {
                    return self.compare_strings(op, op_span, a, b, span);
                }
                self.warn_mixed_enums(op_span, (lhs, &a), (rhs, &b));
                self.warn_byte_order(op_span, (lhs, &a), (rhs, &b));
                self.compare(op, op_span, a, b, span)
            }
            BinaryOp::Mul => self.arithmetic(Arith::Mul, op_span, lhs, rhs, span),
            BinaryOp::Div => self.arithmetic(Arith::Div, op_span, lhs, rhs, span),
            BinaryOp::Rem => self.arithmetic(Arith::Rem, op_span, lhs, rhs, span),
            BinaryOp::Add => self.arithmetic(Arith::Add, op_span, lhs, rhs, span),
            BinaryOp::Sub => self.arithmetic(Arith::Sub, op_span, lhs, rhs, span),
            BinaryOp::Shl => self.arithmetic(Arith::Shl, op_span, lhs, rhs, span),
            BinaryOp::Shr => self.arithmetic(Arith::Shr, op_span, lhs, rhs, span),
            BinaryOp::And => self.arithmetic(Arith::And, op_span, lhs, rhs, span),
            BinaryOp::Xor => self.arithmetic(Arith::Xor, op_span, lhs, rhs, span),
            BinaryOp::Or => self.arithmetic(Arith::Or, op_span, lhs, rhs, span),
        }
    }

    /// C compilers warn of `flags & 2 == 2`, which means `flags & (2 == 2)`.
    fn warn_precedence(&mut self, op_span: Span, lhs: &ast::Expr, rhs: &ast::Expr) {
        let bare = |side: &ast::Expr, from: u32, to: u32| {
            let Ast::Binary { op, .. } = &side.kind else {
                return None;
            };
            let relation = matches!(
                op.node,
                BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge
            );
            // What is in parentheses has a span without them.
            let between = Span { start: from, end: to };
            (relation && !between.text(self.text).contains(['(', ')'])).then_some((op.span, side.span))
        };
        let found = bare(lhs, lhs.span.end, op_span.start).or_else(|| bare(rhs, op_span.end, rhs.span.start));
        let Some((relation, side)) = found else {
            return;
        };
        let (op, relation_text) = (op_span.text(self.text), relation.text(self.text));
        let meant = side.text(self.text);
        self.warn(
            Diagnostic::warning(
                Code::Precedence,
                op_span,
                format!("`{relation_text}` binds more tightly than `{op}`"),
            )
            .label(format!("combines with the result of `{meant}`"))
            .secondary(relation, "is computed first")
            .help(format!("put the operands of `{op}` in parentheses")),
        );
    }

    /// Types what the kernel never computes where `really` is false: constants that C leaves undefined are no mistakes there.
    pub(super) fn evaluated<T>(&mut self, really: bool, typing: impl FnOnce(&mut Self) -> R<T>) -> R<T> {
        self.unevaluated += u32::from(!really);
        let typed = typing(self);
        self.unevaluated -= u32::from(!really);
        typed
    }

    fn conditional(
        &mut self,
        cond: &ast::Expr,
        then: &ast::Expr,
        otherwise: &ast::Expr,
        span: Span,
    ) -> R<Operand> {
        let cond = self.condition(cond);
        let known = cond.as_ref().ok().and_then(Expr::constant);
        let (a, b) = (
            self.evaluated(known != Some(0), |this| this.scalar(then)),
            self.evaluated(known.is_none_or(|c| c == 0), |this| this.scalar(otherwise)),
        );
        let (cond, (a, b)) = both(cond, both(a, b))?;
        let (ca, cb) = (class(self.types, &a.ty), class(self.types, &b.ty));
        let (a, b, ty) = if ca.is_arithmetic() && cb.is_arithmetic() {
            let (a, b) = (self.promoted(a, "`?:`")?, self.promoted(b, "`?:`")?);
            let ty = common(&a.ty, &b.ty);
            (self.convert(a, ty.clone()), self.convert(b, ty.clone()), ty)
        } else {
            match (&ca, &cb) {
                (Class::Ptr(x), Class::Ptr(y)) => {
                    let Some(ty) = self.either_pointer(&a, x, &b, y) else {
                        return self.clash(a.span, span, &a, &b);
                    };
                    (self.convert(a, ty.clone()), self.convert(b, ty.clone()), ty)
                }
                (Class::Ptr(_), _) if b.constant() == Some(0) => {
                    let ty = a.ty.clone();
                    let b = self.convert(b, ty.clone());
                    (a, b, ty)
                }
                (_, Class::Ptr(_)) if a.constant() == Some(0) => {
                    let ty = b.ty.clone();
                    (self.convert(a, ty.clone()), b, ty)
                }
                _ => return self.clash(a.span, span, &a, &b),
            }
        };
        if let Some(c) = cond.constant() {
            return Ok(Operand::Value(if c != 0 { a } else { b }));
        }
        Ok(value(
            ExprKind::Cond(Box::new(cond), Box::new(a), Box::new(b)),
            ty,
            span,
        ))
    }

    fn cast(&mut self, ty: &ast::TypeName, operand: &ast::Expr, span: Span) -> R<Operand> {
        let to = self.type_name(ty);
        if to.is_err()
            && let ast::TypeBase::Named(name) = &ty.base
            && ty.pointers == 0
            && self.keywords_of(&name.node).contains(&"struct")
            && let Some(help) = self.help_with_cast(&format!("struct {}", name.node), operand)
            && let Some(diag) = self.diags.last_mut()
        {
            diag.help = vec![help];
        }
        let inner = self.scalar(operand);
        let (to, inner) = (to?, inner?);
        match class(self.types, &to) {
            Class::Int { .. } | Class::Bool | Class::Ptr(_) => {
                let mut expr = self.convert(inner, to);
                // A cast to its own type still makes a plain number of a bitfield: its width no longer decides the promotion.
                if matches!(&expr.kind, ExprKind::Load(place) if place.bits.is_some()) {
                    let ty = expr.ty.clone();
                    expr = Expr {
                        kind: ExprKind::Convert(Box::new(expr)),
                        ty,
                        span,
                    };
                }
                expr.span = span;
                Ok(Operand::Value(expr))
            }
            Class::Composite(_) | Class::Opaque => {
                let name = spell(self.types, &to);
                self.report(
                    Diagnostic::error(
                        Code::BadCast,
                        ty.span,
                        format!("nothing can be cast to `{name}` itself"),
                    )
                    .label("not a scalar type")
                    .help(
                        self.help_with_cast(&name, operand)
                            .unwrap_or_else(|| format!("cast to a pointer: `({name} *)`")),
                    ),
                )
            }
            Class::Void | Class::Float | Class::Array { .. } | Class::Func => {
                let name = spell(self.types, &to);
                self.report(
                    Diagnostic::error(
                        Code::BadCast,
                        ty.span,
                        format!("a value can't be cast to `{name}`"),
                    )
                    .label("neither an integer nor a pointer type"),
                )
            }
        }
    }

    /// A constant's bits as a value of that type.
    pub(super) fn wrap(&self, value: i64, ty: &CType) -> i64 {
        match class(self.types, ty) {
            Class::Int { bytes, signed } => wrap(value, bytes, signed),
            Class::Bool => i64::from(value != 0),
            Class::Void
            | Class::Float
            | Class::Ptr(_)
            | Class::Composite(_)
            | Class::Array { .. }
            | Class::Func
            | Class::Opaque => value,
        }
    }

    /// Reports and gives what stands for "reported already".
    pub(super) fn report<T>(&mut self, diag: Diagnostic) -> R<T> {
        self.diags.push(diag);
        Err(Reported)
    }
}

/// Both results, or "reported already" if either failed; so that mistakes on both sides are told.
pub(super) fn both<A, B>(a: R<A>, b: R<B>) -> R<(A, B)> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(r), _) | (_, Err(r)) => Err(r),
    }
}

pub(super) fn value(kind: ExprKind, ty: CType, span: Span) -> Operand {
    Operand::Value(Expr { kind, ty, span })
}

/// A pointer to a type of the kernel's.
pub(super) fn pointer_to(id: TypeId) -> CType {
    CType::Ptr(Box::new(CType::Btf(id)))
}

/// The type of an integer literal (C17 6.4.4.1): the first of its list that holds it.
fn int_literal(lit: &ast::IntLit) -> CType {
    let value = lit.value;
    let decimal = lit.radix == ast::Radix::Decimal;
    let int = lit.longs == 0;
    if !lit.unsigned && int && value <= i32::MAX as u64 {
        CType::INT
    } else if int && value <= u64::from(u32::MAX) && (lit.unsigned || !decimal) {
        CType::UINT
    } else if !lit.unsigned && value <= i64::MAX as u64 {
        CType::LONG
    } else {
        // A decimal literal above LONG_MAX has no type in C; gcc takes it as unsigned.
        CType::ULONG
    }
}

/// Whether it is `str(p)` or the like, which gives a string though its value is a pointer.
fn is_string_call(expr: &ast::Expr) -> bool {
    matches!(&expr.kind, Ast::Call { func, .. } if matches!(func.node.as_str(), "str" | "ustr"))
}

fn op_name(op: UnaryOp) -> &'static str {
    match op {
        UnaryOp::Deref => "`*`",
        UnaryOp::Addr => "`&`",
        UnaryOp::Not => "`!`",
        UnaryOp::BitNot => "`~`",
        UnaryOp::Neg => "`-`",
        UnaryOp::Plus => "`+`",
    }
}
