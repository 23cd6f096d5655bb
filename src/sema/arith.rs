//! The typing of arithmetic: numbers by the usual conversions, pointers in elements, shifts by the left side's type.
//! Constants are folded as C computes them.

use super::ctypes::{Class, class, common, size_of, spell};
use super::expr::{Operand, both, value};
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast;
use crate::span::Span;
use crate::typed::{Arith, Expr, ExprKind};

impl Sema<'_> {
    pub(super) fn arithmetic(
        &mut self,
        op: Arith,
        op_span: Span,
        lhs: &ast::Expr,
        rhs: &ast::Expr,
        span: Span,
    ) -> R<Operand> {
        let (a, b) = both(self.scalar(lhs), self.scalar(rhs))?;
        let (ca, cb) = (class(self.types, &a.ty), class(self.types, &b.ty));
        match (op, &ca, &cb) {
            (Arith::Add, Class::Ptr(to), _) if cb.is_arithmetic() => {
                self.offset(a, to.clone(), b, false, span)
            }
            (Arith::Add, _, Class::Ptr(to)) if ca.is_arithmetic() => {
                self.offset(b, to.clone(), a, false, span)
            }
            (Arith::Sub, Class::Ptr(to), _) if cb.is_arithmetic() => {
                self.offset(a, to.clone(), b, true, span)
            }
            (Arith::Sub, Class::Ptr(to), Class::Ptr(other)) => {
                let (x, y) = (to.clone(), other.clone());
                self.distance(a, x, b, y, op_span, span)
            }
            // Masking an address is so common in the kernel that it is taken as arithmetic on its number.
            (Arith::And, Class::Ptr(_), _) if cb.is_arithmetic() => {
                let a = self.convert(a, CType::ULONG);
                self.numbers(op, op_span, a, b, span)
            }
            (_, Class::Ptr(_), _) | (_, _, Class::Ptr(_)) => {
                let pointer = if matches!(ca, Class::Ptr(_)) { &a } else { &b };
                let name = spell(self.types, &pointer.ty);
                let at = pointer.span;
                self.report(
                    Diagnostic::error(
                        Code::TypeClash,
                        op_span,
                        "this operator does not work on a pointer",
                    )
                    .label("needs numbers")
                    .secondary(at, format!("its type is `{name}`"))
                    .help("cast it to a number first: `(u64)p`"),
                )
            }
            _ => self.numbers(op, op_span, a, b, span),
        }
    }

    fn numbers(&mut self, op: Arith, op_span: Span, a: Expr, b: Expr, span: Span) -> R<Operand> {
        let (a, b) = both(self.promoted(a, "arithmetic"), self.promoted(b, "arithmetic"))?;
        let (a, b, ty) = match op {
            Arith::Shl | Arith::Shr => {
                let ty = a.ty.clone();
                let bits = size_of(self.types, &ty).unwrap_or(8) as i64 * 8;
                if let Some(by) = b.constant()
                    && !(0..bits).contains(&by)
                {
                    if self.unevaluated > 0 {
                        return Ok(value(ExprKind::Const(0), ty, span));
                    }
                    let name = spell(self.types, &ty);
                    return self.report(
                        Diagnostic::error(Code::BadShift, b.span, format!("type `{name}` has {bits} bits"))
                            .label(format!("a shift by {by} is undefined")),
                    );
                }
                (a, b, ty)
            }
            Arith::Add
            | Arith::Sub
            | Arith::Mul
            | Arith::Div
            | Arith::Rem
            | Arith::And
            | Arith::Or
            | Arith::Xor => {
                let ty = common(&a.ty, &b.ty);
                (self.convert(a, ty.clone()), self.convert(b, ty.clone()), ty)
            }
        };
        if matches!(op, Arith::Div | Arith::Rem) && b.constant() == Some(0) {
            if self.unevaluated > 0 {
                return Ok(value(ExprKind::Const(0), ty, span));
            }
            return self.report(
                Diagnostic::error(Code::DivisionByZero, b.span, "division by zero")
                    .label("this is 0")
                    .secondary(op_span, "by this operator"),
            );
        }
        let kind = match (a.constant(), b.constant()) {
            (Some(x), Some(y)) => {
                let CType::Int { bytes, signed } = ty else {
                    unreachable!("bug in ksnoop-jit: arithmetic in a type that is not promoted");
                };
                ExprKind::Const(self.wrap(fold(op, bytes, signed, x, y), &ty))
            }
            _ => ExprKind::Arith {
                op,
                lhs: Box::new(a),
                rhs: Box::new(b),
            },
        };
        Ok(value(kind, ty, span))
    }

    /// A pointer plus or minus a number of elements.
    pub(super) fn offset(
        &mut self,
        pointer: Expr,
        to: CType,
        count: Expr,
        minus: bool,
        span: Span,
    ) -> R<Operand> {
        let Some(size) = size_of(self.types, &to) else {
            let name = spell(self.types, &to);
            return self.report(
                Diagnostic::error(
                    Code::Incomplete,
                    pointer.span,
                    format!("the size of `{name}` is not known"),
                )
                .label("so nothing can be added to this pointer"),
            );
        };
        let count = self.promoted(count, "pointer arithmetic")?;
        let count = self.convert(count, CType::LONG);
        let ty = pointer.ty.clone();
        let bytes = self.scaled(count, &to, size, minus);
        if bytes.constant() == Some(0) {
            return Ok(Operand::Value(Expr { span, ..pointer }));
        }
        let kind = ExprKind::Arith {
            op: Arith::Add,
            lhs: Box::new(pointer),
            rhs: Box::new(bytes),
        };
        Ok(value(kind, ty, span))
    }

    /// A `long` times an element size, negated for a subtraction.
    fn scaled(&self, count: Expr, to: &CType, size: u64, minus: bool) -> Expr {
        let span = count.span;
        let long = |kind| Expr {
            kind,
            ty: CType::LONG,
            span,
        };
        let negated = |expr: Expr| match expr.constant() {
            Some(value) => long(ExprKind::Const(value.wrapping_neg())),
            None => long(ExprKind::Neg(Box::new(expr))),
        };
        let each = match self.size(to, span) {
            Some(each) => self.convert(each, CType::LONG),
            None => long(ExprKind::Const(size as i64)),
        };
        let bytes = match (count.constant(), each.constant()) {
            (Some(0), _) | (_, Some(0)) => return long(ExprKind::Const(0)),
            (Some(count), Some(each)) => long(ExprKind::Const(count.wrapping_mul(each))),
            (_, Some(1)) => count,
            (Some(1), None) => each,
            // The constant goes to the right, where instructions take it.
            (Some(_), None) => long(times(each, count)),
            (None, _) => long(times(count, each)),
        };
        if minus { negated(bytes) } else { bytes }
    }

    fn distance(&mut self, a: Expr, x: CType, b: Expr, y: CType, op_span: Span, span: Span) -> R<Operand> {
        let size = size_of(self.types, &x).filter(|size| *size > 0);
        let (Some(size), true) = (size, self.compatible(&x, &y)) else {
            let (nx, ny) = (spell(self.types, &x), spell(self.types, &y));
            return self.report(
                Diagnostic::error(
                    Code::TypeClash,
                    op_span,
                    "pointers to different types have no distance",
                )
                .label("can't subtract")
                .secondary(a.span, format!("points to `{nx}`"))
                .secondary(b.span, format!("points to `{ny}`")),
            );
        };
        let (a, b) = (self.convert(a, CType::LONG), self.convert(b, CType::LONG));
        let bytes = Expr {
            kind: ExprKind::Arith {
                op: Arith::Sub,
                lhs: Box::new(a),
                rhs: Box::new(b),
            },
            ty: CType::LONG,
            span,
        };
        if size == 1 {
            return Ok(Operand::Value(bytes));
        }
        let Some(each) = self.size(&x, span) else {
            unreachable!("bug in ksnoop-jit: a size that was known");
        };
        let each = self.convert(each, CType::LONG);
        let kind = ExprKind::Arith {
            op: Arith::Div,
            lhs: Box::new(bytes),
            rhs: Box::new(each),
        };
        Ok(value(kind, CType::LONG, span))
    }
}

fn times(lhs: Expr, rhs: Expr) -> ExprKind {
    ExprKind::Arith {
        op: Arith::Mul,
        lhs: Box::new(lhs),
        rhs: Box::new(rhs),
    }
}

/// Arithmetic on constants that are already in the common type, which has 4 or 8 bytes. The divisor is not 0.
fn fold(op: Arith, bytes: u8, signed: bool, a: i64, b: i64) -> i64 {
    match op {
        Arith::Add => a.wrapping_add(b),
        Arith::Sub => a.wrapping_sub(b),
        Arith::Mul => a.wrapping_mul(b),
        Arith::Div if signed => a.wrapping_div(b),
        Arith::Div => (a as u64 / b as u64) as i64,
        Arith::Rem if signed => a.wrapping_rem(b),
        Arith::Rem => (a as u64 % b as u64) as i64,
        Arith::And => a & b,
        Arith::Or => a | b,
        Arith::Xor => a ^ b,
        Arith::Shl => a.wrapping_shl(b as u32),
        Arith::Shr if signed => a.wrapping_shr(b as u32),
        // A narrower unsigned value is zero-extended, so shifting all 64 bits is right for it too.
        Arith::Shr => {
            debug_assert!(bytes == 8 || a >= 0);
            ((a as u64).wrapping_shr(b as u32)) as i64
        }
    }
}
