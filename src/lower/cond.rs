//! Conditions: branches, not numbers. `!` is pushed inward to the comparisons, operands are read only when they are needed, and
//! a comparison in which a fault happens is false, also under a `!`.

use super::expr::Shape;
use super::program::{Handler, Lower};
use crate::ir::{Bits, Block, CmpOp};
use crate::typed::{Arith, Expr, ExprKind, Relation, Text};

impl Lower<'_> {
    /// Goes to `yes` if the condition (or with `negate` its opposite) holds, else to `no`. What is known afterwards is known
    /// where `yes` begins.
    pub(super) fn condition(&mut self, cond: &Expr, negate: bool, yes: Block, no: Block) {
        match &cond.kind {
            ExprKind::Not(inner) => self.condition(inner, !negate, yes, no),
            ExprKind::And(a, b) if !negate => self.all(a, b, false, yes, no),
            ExprKind::Or(a, b) if negate => self.all(a, b, true, yes, no),
            ExprKind::And(a, b) | ExprKind::Or(a, b) => self.any(a, b, negate, yes, no),
            ExprKind::Const(_)
            | ExprKind::Arg(_)
            | ExprKind::Return
            | ExprKind::Builtin(_)
            | ExprKind::Load(_)
            | ExprKind::AddrOf(_)
            | ExprKind::Neg(_)
            | ExprKind::BitNot(_)
            | ExprKind::Arith { .. }
            | ExprKind::Convert(_)
            | ExprKind::Compare { .. }
            | ExprKind::Cond(..)
            | ExprKind::StrCompare { .. }
            | ExprKind::BytesCompare { .. }
            | ExprKind::Layout { .. }
            | ExprKind::Checked { .. }
            | ExprKind::Swap(_)
            | ExprKind::IsErr(_)
            | ExprKind::AsUser(_)
            | ExprKind::AtEntry(_) => self.leaf(cond, negate, yes, no),
        }
    }

    /// A condition inside a value: a fault is the whole value's.
    pub(super) fn condition_in_value(&mut self, cond: &Expr, yes: Block, no: Block) {
        let known = self.known.len();
        self.decide(cond, false, yes, no);
        self.known.truncate(known);
    }

    fn all(&mut self, a: &Expr, b: &Expr, negate: bool, yes: Block, no: Block) {
        let both = self.b.block("and");
        self.condition(a, negate, both, no);
        self.b.switch_to(both);
        self.condition(b, negate, yes, no);
    }

    fn any(&mut self, a: &Expr, b: &Expr, negate: bool, yes: Block, no: Block) {
        let known = self.known.len();
        let other = self.b.block("or");
        self.condition(a, negate, yes, other);
        // Neither the second operand nor what follows is reached by way of the first one alone.
        self.known.truncate(known);
        self.b.switch_to(other);
        self.condition(b, negate, yes, no);
        self.known.truncate(known);
    }

    fn leaf(&mut self, cond: &Expr, negate: bool, yes: Block, no: Block) {
        self.handlers
            .push(Handler::Plain(None, "a fault: the comparison is false"));
        self.decide(cond, negate, yes, no);
        let Some(Handler::Plain(faulted, _)) = self.handlers.pop() else {
            unreachable!("bug in ksnoop-jit: handlers are nested");
        };
        if let Some(faulted) = faulted {
            let known = self.known.len();
            self.b.switch_to(faulted);
            self.at(cond.span, "count the fault");
            self.count(1);
            self.b.jump(no, &[]);
            self.known.truncate(known);
        }
    }

    /// Branches on a condition with the handler that is there. What is known afterwards is known where `yes` begins.
    fn decide(&mut self, cond: &Expr, negate: bool, yes: Block, no: Block) {
        let (yes, no) = if negate { (no, yes) } else { (yes, no) };
        match &cond.kind {
            ExprKind::Compare { op, lhs, rhs } => {
                // The constant, if there is one, goes to the right, where instructions take it.
                let (op, lhs, rhs) = if lhs.constant().is_some() {
                    (mirrored(*op), rhs, lhs)
                } else {
                    (*op, lhs, rhs)
                };
                let signed = matches!(self.shape(&lhs.ty), Shape::Int(_, true));
                let bits = self.bits(&lhs.ty);
                let (a, b) = self.operands(lhs, rhs, bits);
                self.at(cond.span, "compare");
                self.b.branch(relation(op, signed), bits, a, b, yes, no);
            }
            ExprKind::Not(inner) => {
                // What is known then is known on the other way.
                let known = self.known.len();
                self.decide(inner, false, no, yes);
                self.known.truncate(known);
            }
            ExprKind::And(a, b) => {
                let both = self.b.block("and");
                self.decide(a, false, both, no);
                self.b.switch_to(both);
                self.decide(b, false, yes, no);
            }
            ExprKind::Or(a, b) => {
                let known = self.known.len();
                let other = self.b.block("or");
                self.decide(a, false, yes, other);
                self.known.truncate(known);
                self.b.switch_to(other);
                self.decide(b, false, yes, no);
                self.known.truncate(known);
            }
            ExprKind::IsErr(inner) => {
                let bits = self.bits(&inner.ty);
                let value = self.number(inner);
                self.at(cond.span, "an error code?");
                // MAX_ERRNO, include/linux/err.h
                self.b.branch(CmpOp::Uge, bits, value, -4095, yes, no);
            }
            ExprKind::StrCompare { text, equal, test } => {
                let (yes, no) = if *equal { (yes, no) } else { (no, yes) };
                self.compare_text(text, test, cond.span, yes, no);
            }
            ExprKind::BytesCompare { place, equal, bytes } => {
                let (yes, no) = if *equal { (yes, no) } else { (no, yes) };
                self.compare_memory(place, bytes, cond.span, yes, no);
            }
            ExprKind::Const(constant) => {
                self.b.jump(if *constant != 0 { yes } else { no }, &[]);
            }
            ExprKind::Arg(_)
            | ExprKind::Return
            | ExprKind::Builtin(_)
            | ExprKind::Load(_)
            | ExprKind::AddrOf(_)
            | ExprKind::Neg(_)
            | ExprKind::BitNot(_)
            | ExprKind::Arith { .. }
            | ExprKind::Convert(_)
            | ExprKind::Cond(..)
            | ExprKind::Checked { .. }
            | ExprKind::Layout { .. }
            | ExprKind::Swap(_)
            | ExprKind::AsUser(_)
            | ExprKind::AtEntry(_) => {
                let value = self.number(cond);
                self.at(cond.span, "not 0?");
                self.b.branch(CmpOp::Ne, Bits::W64, value, 0, yes, no);
            }
        }
    }
}

/// All of several conditions and of the `&&` in them, in the order in which they are best tested: cheapest first. Those of one
/// `&&` that read memory stay in the order in which they were written, since one may guard the next; what reads nothing can
/// go before any.
pub(super) fn cheapest_first<'e>(conds: impl Iterator<Item = &'e Expr>) -> Vec<&'e Expr> {
    let mut parts: Vec<(u32, &Expr)> = Vec::new();
    for cond in conds {
        let mut conjuncts = Vec::new();
        split(cond, &mut conjuncts);
        let first = conjuncts
            .iter()
            .find(|part| can_fault(part))
            .map_or(0, |part| cost(part));
        for part in conjuncts {
            parts.push((if can_fault(part) { first } else { cost(part) }, part));
        }
    }
    // A sort that keeps the order of equals, so that the program is the same every time.
    parts.sort_by_key(|(cost, _)| *cost);
    parts.into_iter().map(|(_, part)| part).collect()
}

fn split<'e>(cond: &'e Expr, out: &mut Vec<&'e Expr>) {
    if let ExprKind::And(a, b) = &cond.kind {
        split(a, out);
        split(b, out);
    } else {
        out.push(cond);
    }
}

/// Whether a fault is possible in it: it reads memory, divides or indexes.
fn can_fault(cond: &Expr) -> bool {
    let mut can = false;
    cond.walk(&mut |expr| {
        can |= match &expr.kind {
            ExprKind::Load(_) | ExprKind::BytesCompare { .. } | ExprKind::Checked { .. } => true,
            ExprKind::StrCompare { text, .. } => !matches!(**text, Text::Comm),
            ExprKind::Arith {
                op: Arith::Div | Arith::Rem,
                rhs,
                ..
            } => rhs.constant().is_none(),
            ExprKind::Const(_)
            | ExprKind::Arg(_)
            | ExprKind::Return
            | ExprKind::Builtin(_)
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
            | ExprKind::Swap(_)
            | ExprKind::IsErr(_)
            | ExprKind::AsUser(_)
            | ExprKind::AtEntry(_) => false,
        };
    });
    can
}

/// How much work a condition is, roughly in instructions: reads cost most.
fn cost(cond: &Expr) -> u32 {
    let mut sum = 0;
    cond.descend(&mut |expr| {
        sum += match &expr.kind {
            ExprKind::Const(_) => 0,
            // It has been computed by then.
            ExprKind::AtEntry(_) => {
                sum += 2;
                return false;
            }
            ExprKind::Load(_) => 20,
            ExprKind::Builtin(_) => 8,
            ExprKind::StrCompare { text, .. } => match text.as_ref() {
                Text::Comm => 30,
                Text::Pointer { .. } | Text::Array { .. } => 60,
            },
            ExprKind::Arg(_)
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
            | ExprKind::BytesCompare { .. }
            | ExprKind::Layout { .. }
            | ExprKind::Checked { .. }
            | ExprKind::Swap(_)
            | ExprKind::IsErr(_)
            | ExprKind::AsUser(_) => 1,
        };
        true
    });
    sum
}

fn relation(op: Relation, signed: bool) -> CmpOp {
    match (op, signed) {
        (Relation::Eq, _) => CmpOp::Eq,
        (Relation::Ne, _) => CmpOp::Ne,
        (Relation::Lt, true) => CmpOp::Slt,
        (Relation::Lt, false) => CmpOp::Ult,
        (Relation::Le, true) => CmpOp::Sle,
        (Relation::Le, false) => CmpOp::Ule,
        (Relation::Gt, true) => CmpOp::Sgt,
        (Relation::Gt, false) => CmpOp::Ugt,
        (Relation::Ge, true) => CmpOp::Sge,
        (Relation::Ge, false) => CmpOp::Uge,
    }
}

fn mirrored(op: Relation) -> Relation {
    match op {
        Relation::Eq => Relation::Eq,
        Relation::Ne => Relation::Ne,
        Relation::Lt => Relation::Gt,
        Relation::Le => Relation::Ge,
        Relation::Gt => Relation::Lt,
        Relation::Ge => Relation::Le,
    }
}
