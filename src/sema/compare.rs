//! The typing of comparisons: numbers by the usual conversions, pointers as numbers; strings and address literals have files of
//! their own. Tells of those that the types alone decide (`decided`).

use super::address::Address;
use super::ctypes::{Class, class, common, spell};
use super::expr::{Operand, both, value};
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::BinaryOp;
use crate::span::Span;
use crate::typed::{Expr, ExprKind, Relation};

impl Sema<'_> {
    pub(super) fn compare(
        &mut self,
        op: BinaryOp,
        op_span: Span,
        a: Operand,
        b: Operand,
        span: Span,
    ) -> R<Operand> {
        if is_text(&a) || is_text(&b) {
            return self.compare_strings(op, op_span, a, b, span);
        }
        let (a, b) = match (a, b) {
            (Operand::Address(address), other) if !self.as_number(&address, &other) => {
                return self.compare_address(op, op_span, other, address, span);
            }
            (other, Operand::Address(address)) if !self.as_number(&address, &other) => {
                return self.compare_address(op, op_span, other, address, span);
            }
            numbers => numbers,
        };
        if let (Some(a), Some(b)) = (self.aggregate_name(&a), self.aggregate_name(&b)) {
            return self.compare_structs(op_span, a, b);
        }
        let (a, b) = both(self.rvalue(a), self.rvalue(b))?;
        let relation = match op {
            BinaryOp::Eq => Relation::Eq,
            BinaryOp::Ne => Relation::Ne,
            BinaryOp::Lt => Relation::Lt,
            BinaryOp::Le => Relation::Le,
            BinaryOp::Gt => Relation::Gt,
            BinaryOp::Ge => Relation::Ge,
            BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::Rem
            | BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Shl
            | BinaryOp::Shr
            | BinaryOp::Match
            | BinaryOp::And
            | BinaryOp::Xor
            | BinaryOp::Or
            | BinaryOp::LogAnd
            | BinaryOp::LogOr => {
                return self.report(
                    Diagnostic::error(
                        Code::StringOperand,
                        op_span,
                        "`=~` compares a string with a glob pattern",
                    )
                    .label("neither side is a text in double quotes")
                    .help("write the pattern in double quotes: `dev->name =~ \"eth*\"`"),
                );
            }
        };
        let (ca, cb) = (class(self.types, &a.ty), class(self.types, &b.ty));
        let (a, b) = match (&ca, &cb) {
            // Addresses are compared as numbers, with each other and with numbers.
            (Class::Ptr(_), _) | (_, Class::Ptr(_)) => {
                for (expr, class) in [(&a, &ca), (&b, &cb)] {
                    if !matches!(class, Class::Ptr(_) | Class::Int { .. } | Class::Bool) {
                        return self.clash(expr.span, op_span, &a, &b);
                    }
                }
                self.warn_decided_pointer(relation, &a, &b, span);
                (self.convert(a, CType::ULONG), self.convert(b, CType::ULONG))
            }
            _ if ca.is_arithmetic() && cb.is_arithmetic() => {
                let x = self.promoted(a.clone(), "a comparison")?;
                let y = self.promoted(b.clone(), "a comparison")?;
                let ty = common(&x.ty, &y.ty);
                let (x, y) = (self.convert(x, ty.clone()), self.convert(y, ty));
                self.warn_decided(relation, &a, &b, (&x, &y), span);
                (x, y)
            }
            _ => return self.clash(a.span, op_span, &a, &b),
        };
        if let (Some(x), Some(y)) = (a.constant(), b.constant()) {
            let signed = matches!(class(self.types, &a.ty), Class::Int { signed: true, .. });
            let holds = holds(relation, signed, x, y);
            return Ok(value(ExprKind::Const(i64::from(holds)), CType::INT, span));
        }
        let kind = ExprKind::Compare {
            op: relation,
            lhs: Box::new(a),
            rhs: Box::new(b),
        };
        Ok(value(kind, CType::INT, span))
    }

    /// Whether an address literal is compared as a number: IPv4, with a number.
    fn as_number(&self, address: &Address, other: &Operand) -> bool {
        let ty = match other {
            Operand::Value(expr) => &expr.ty,
            Operand::Place(place) => &place.ty,
            Operand::Address(other) => return address.number().is_some() && other.number().is_some(),
            Operand::Str(..)
            | Operand::Comm(_)
            | Operand::Func(_)
            | Operand::Sized(_)
            | Operand::Symbol(_) => return false,
        };
        address.number().is_some() && class(self.types, ty).is_arithmetic()
    }

    /// A struct or union as a whole: where it is, its type and its first member.
    fn aggregate_name(&self, operand: &Operand) -> Option<(Span, String, Option<String>)> {
        let Operand::Place(place) = operand else {
            return None;
        };
        let Class::Composite(id) = class(self.types, &place.ty) else {
            return None;
        };
        let first = self.types.member_names(id).into_iter().next();
        Some((place.span, spell(self.types, &place.ty), first))
    }

    fn compare_structs<T>(
        &mut self,
        op_span: Span,
        (a_span, a, first): (Span, String, Option<String>),
        (b_span, b, _): (Span, String, Option<String>),
    ) -> R<T> {
        let mut diag = Diagnostic::error(Code::NotScalar, op_span, "C has no comparison of whole structs")
            .label("compares numbers, pointers and strings")
            .secondary(a_span, format!("its type is `{a}`"))
            .secondary(b_span, format!("its type is `{b}`"));
        if let (true, Some(member)) = (a == b, first) {
            let (a, op, b) = (
                a_span.text(self.text),
                op_span.text(self.text),
                b_span.text(self.text),
            );
            diag = diag.help(format!("compare their members: `{a}.{member} {op} {b}.{member}`"));
        }
        self.report(diag)
    }

    pub(super) fn clash<T>(&mut self, at: Span, op: Span, a: &Expr, b: &Expr) -> R<T> {
        let (x, y) = (spell(self.types, &a.ty), spell(self.types, &b.ty));
        self.report(
            Diagnostic::error(
                Code::TypeClash,
                at,
                format!("`{x}` and `{y}` can't be combined so"),
            )
            .label(format!("its type is `{x}`"))
            .secondary(op, "by this operator")
            .secondary(b.span, format!("its type is `{y}`")),
        )
    }
}

fn is_text(operand: &Operand) -> bool {
    match operand {
        Operand::Str(..) | Operand::Comm(_) | Operand::Func(_) | Operand::Symbol(_) => true,
        Operand::Sized(sized) => sized.text,
        Operand::Value(_) | Operand::Place(_) | Operand::Address(_) => false,
    }
}

/// Whether the relation holds between two constants.
pub(super) fn holds(op: Relation, signed: bool, a: i64, b: i64) -> bool {
    let order = if signed {
        a.cmp(&b)
    } else {
        (a as u64).cmp(&(b as u64))
    };
    match op {
        Relation::Eq => order.is_eq(),
        Relation::Ne => order.is_ne(),
        Relation::Lt => order.is_lt(),
        Relation::Le => order.is_le(),
        Relation::Gt => order.is_gt(),
        Relation::Ge => order.is_ge(),
    }
}
