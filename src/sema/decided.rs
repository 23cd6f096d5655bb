//! Comparisons whose result is known before anything is read: each side's possible values follow from its types and
//! operators. In: typed expressions. Out: warnings, since such a query runs but can hardly be meant.

use super::Sema;
use super::ctypes::{Class, class, spell};
use crate::diag::{Code, Diagnostic};
use crate::span::Span;
use crate::typed::{Arith, Base, Expr, ExprKind, Relation};

/// The lowest and the highest value that something can have.
type Range = (i128, i128);

impl Sema<'_> {
    /// Of two numbers, both already in their common type: tells if the relation always or never holds. `a` and `b` are as they
    /// were written, for the message.
    pub(super) fn warn_decided(
        &mut self,
        op: Relation,
        a: &Expr,
        b: &Expr,
        typed: (&Expr, &Expr),
        span: Span,
    ) {
        // Two constants are computed, not read: `1 == 1` is a way to write "always".
        if a.constant().is_some() && b.constant().is_some() {
            return;
        }
        let (Some(x), Some(y)) = (self.range(typed.0), self.range(typed.1)) else {
            return;
        };
        if let Some(always) = decided(op, x, y) {
            let (what, (min, max)) = if a.constant().is_some() {
                (self.described(b), y)
            } else {
                (self.described(a), x)
            };
            let other = match (a.constant(), b.constant()) {
                (None, None) => format!(", the other side between {} and {}", y.0, y.1),
                _ => String::new(),
            };
            let mut diag = Diagnostic::warning(
                Code::DecidedComparison,
                span,
                format!("this comparison is always {always}"),
            )
            .label(format!("{what} is between {min} and {max}{other}"));
            for (written, typed) in [(a, typed.0), (b, typed.1)] {
                if let Some(note) = self.converted(written, typed) {
                    diag = diag.note(note);
                }
            }
            if let Some(help) = self.chained(a, span).or_else(|| self.error_test(op, a, b)) {
                diag = diag.help(help);
            }
            self.warn(diag);
        } else if a == b && reads(a) && self.at_one_time() {
            let always = matches!(op, Relation::Eq | Relation::Le | Relation::Ge);
            self.warn(
                Diagnostic::warning(
                    Code::DecidedComparison,
                    span,
                    format!("this comparison is always {always}"),
                )
                .label("both sides are the same"),
            );
        }
    }

    /// The same of pointers: they are never negative, and what lies in a struct is never at NULL.
    /// Gives whether it did.
    pub(super) fn warn_decided_pointer(&mut self, op: Relation, a: &Expr, b: &Expr, span: Span) -> bool {
        let warn = |this: &mut Self, always: bool, label: &str, help: Option<String>| {
            let mut diag = Diagnostic::warning(
                Code::DecidedComparison,
                span,
                format!("this comparison is always {always}"),
            )
            .label(label);
            diag.help.extend(help);
            this.warn(diag);
            true
        };
        let (pointer, number, op) = match (a.constant(), b.constant()) {
            (None, Some(number)) => (a, number, op),
            (Some(number), None) => (b, number, flipped(op)),
            _ if a == b && reads(a) && self.at_one_time() => {
                let always = matches!(op, Relation::Eq | Relation::Le | Relation::Ge);
                return warn(self, always, "both sides are the same", None);
            }
            _ => return false,
        };
        if number == 0 && matches!(op, Relation::Lt | Relation::Ge) {
            let help = self.error_test(op, pointer, b);
            warn(self, op == Relation::Ge, "an address is not negative", help)
        } else if number == 0 && matches!(op, Relation::Eq | Relation::Ne) && self.never_null(pointer) {
            warn(
                self,
                op == Relation::Ne,
                "this is where something is in memory, not a pointer that is read",
                None,
            )
        } else {
            false
        }
    }

    /// `1 < x < 10`, which compares a truth value.
    fn chained(&self, a: &Expr, span: Span) -> Option<String> {
        let ExprKind::Compare { rhs, .. } = &a.kind else {
            return None;
        };
        let rest = self.text.get(a.span.end as usize..span.end as usize)?;
        // In parentheses it is meant.
        (!rest.trim_start().starts_with(')')).then(|| {
            format!(
                "both hold if they are joined: `{} && {}{rest}`",
                a.span.text(self.text),
                rhs.span.text(self.text)
            )
        })
    }

    /// What asks whether an address, or a number that is as long, is an error: it is never below zero.
    fn error_test(&self, op: Relation, value: &Expr, bound: &Expr) -> Option<String> {
        let not = match op {
            Relation::Lt => "",
            Relation::Ge => "!",
            Relation::Eq | Relation::Ne | Relation::Le | Relation::Gt => return None,
        };
        let long = match class(self.types, &value.ty) {
            Class::Ptr(_) => true,
            Class::Int { bytes, signed } => bytes == 8 && !signed,
            Class::Void
            | Class::Bool
            | Class::Float
            | Class::Composite(_)
            | Class::Array { .. }
            | Class::Func
            | Class::Opaque => false,
        };
        let text = value.span.text(self.text);
        (long && bound.constant() == Some(0)).then(|| {
            format!(
                "`{not}is_err({text})` is whether it is {}an error",
                if not.is_empty() { "" } else { "not " }
            )
        })
    }

    /// Whether nothing says that parts are read at different times.
    fn at_one_time(&self) -> bool {
        self.marks.as_ref().is_none_or(Vec::is_empty)
    }

    /// A condition that is always the same: `if skb->cb`, where `cb` is an array.
    pub(super) fn warn_decided_condition(&mut self, cond: &Expr) {
        if self.never_null(cond) {
            self.warn(
                Diagnostic::warning(Code::DecidedCondition, cond.span, "this condition always holds")
                    .label("this is where something is in memory, not a pointer that is read"),
            );
        }
    }

    /// The address of something in a struct, at an offset that is not 0 for every pointer.
    fn never_null(&self, pointer: &Expr) -> bool {
        if let ExprKind::AddrOf(place) = &pointer.kind {
            match &place.base {
                Base::Pointer { pointer, .. } => {
                    // The way through a program's own structs is only a number.
                    let member = match class(self.types, &pointer.ty) {
                        Class::Ptr(to) => {
                            matches!(class(self.types, &to), Class::Composite(_)) && place.ty != to
                        }
                        Class::Void
                        | Class::Int { .. }
                        | Class::Bool
                        | Class::Float
                        | Class::Composite(_)
                        | Class::Array { .. }
                        | Class::Func
                        | Class::Opaque => false,
                    };
                    (place.path.is_some() || member) && reads(pointer)
                }
                Base::Arg(_) | Base::Return => true,
            }
        } else {
            false
        }
    }

    /// What the usual conversions make of a side, if it isn't seen.
    fn converted(&self, written: &Expr, typed: &Expr) -> Option<String> {
        let (before, after) = (self.range(written)?, self.range(typed)?);
        let (text, ty) = (written.span.text(self.text), spell(self.types, &typed.ty));
        match written.constant() {
            Some(_) => (text != after.0.to_string()).then(|| {
                format!(
                    "`{text}` is {} as `{ty}`, in which the sides are compared",
                    after.0
                )
            }),
            None => (before != after).then(|| format!("`{text}` is converted to `{ty}`, as C does it")),
        }
    }

    fn described(&self, value: &Expr) -> String {
        if let ExprKind::Load(place) = &value.kind
            && let Some(bits) = place.bits
        {
            return match bits.width {
                1 => "a bitfield of one bit".to_string(),
                width => format!("a bitfield of {width} bits"),
            };
        }
        if matches!(
            value.kind,
            ExprKind::Load(_) | ExprKind::Arg(_) | ExprKind::Return
        ) {
            return format!("a value of type `{}`", spell(self.types, &value.ty));
        }
        "this value".to_string()
    }

    /// What a number can be.
    fn range(&self, expr: &Expr) -> Option<Range> {
        let (bytes, signed) = match class(self.types, &expr.ty) {
            Class::Bool => return Some((0, 1)),
            Class::Int { bytes, signed } => (bytes, signed),
            Class::Void
            | Class::Float
            | Class::Ptr(_)
            | Class::Composite(_)
            | Class::Array { .. }
            | Class::Func
            | Class::Opaque => return None,
        };
        let whole = of_bits(u32::from(bytes) * 8, signed);
        let inner = match &expr.kind {
            ExprKind::Const(value) => {
                let value = if signed {
                    i128::from(*value)
                } else {
                    i128::from(*value as u64)
                };
                Some((value, value))
            }
            ExprKind::Load(place) => place
                .bits
                .map(|bits| of_bits(u32::from(bits.width).min(u32::from(bytes) * 8), signed)),
            // A value that fits keeps its range; one that doesn't may become anything.
            ExprKind::Convert(inner) | ExprKind::AtEntry(inner) => self.range(inner),
            ExprKind::Compare { .. }
            | ExprKind::Not(_)
            | ExprKind::And(..)
            | ExprKind::Or(..)
            | ExprKind::StrCompare { .. }
            | ExprKind::BytesCompare { .. }
            | ExprKind::IsErr(_) => Some((0, 1)),
            ExprKind::Cond(_, a, b) => self
                .range(a)
                .zip(self.range(b))
                .map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))),
            ExprKind::Checked { index, bound } => self
                .range(index)
                .map(|(min, max)| (min.max(0), max.min(i128::from(*bound) - 1))),
            ExprKind::Arith { op, lhs, rhs } => self
                .range(lhs)
                .zip(self.range(rhs))
                .and_then(|(a, b)| arithmetic(*op, a, b)),
            ExprKind::Neg(inner) => self.range(inner).map(|(min, max)| (-max, -min)),
            ExprKind::BitNot(inner) if signed => self.range(inner).map(|(min, max)| (-max - 1, -min - 1)),
            ExprKind::Arg(_)
            | ExprKind::Return
            | ExprKind::Builtin(_)
            | ExprKind::AddrOf(_)
            | ExprKind::BitNot(_)
            | ExprKind::Layout { .. }
            | ExprKind::Swap(_)
            | ExprKind::AsUser(_) => None,
        };
        match inner {
            Some((min, max)) if whole.0 <= min && max <= whole.1 => Some((min, max)),
            Some(_) | None => Some(whole),
        }
    }
}

fn of_bits(bits: u32, signed: bool) -> Range {
    if signed {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

/// The range of a result, in whole numbers. `None` where it is not worth working out.
fn arithmetic(op: Arith, a: Range, b: Range) -> Option<Range> {
    let positive = a.0 >= 0 && b.0 >= 0;
    match op {
        Arith::Add => Some((a.0 + b.0, a.1 + b.1)),
        Arith::Sub => Some((a.0 - b.1, a.1 - b.0)),
        Arith::Mul if positive => Some((a.0.checked_mul(b.0)?, a.1.checked_mul(b.1)?)),
        Arith::And if b.0 >= 0 => Some((0, if a.0 >= 0 { a.1.min(b.1) } else { b.1 })),
        Arith::And if a.0 >= 0 => Some((0, a.1)),
        Arith::Or | Arith::Xor if positive => {
            let bits = 128 - a.1.max(b.1).leading_zeros();
            let low = if op == Arith::Or { a.0.max(b.0) } else { 0 };
            Some((low, (1i128 << bits) - 1))
        }
        Arith::Div if positive && b.0 > 0 => Some((a.0 / b.1, a.1 / b.0)),
        Arith::Rem if positive && b.1 > 0 => Some((0, a.1.min(b.1 - 1))),
        Arith::Shr if a.0 >= 0 && b.0 == b.1 && (0..64).contains(&b.0) => Some((a.0 >> b.0, a.1 >> b.0)),
        Arith::Mul
        | Arith::And
        | Arith::Or
        | Arith::Xor
        | Arith::Div
        | Arith::Rem
        | Arith::Shl
        | Arith::Shr => None,
    }
}

/// Whether the relation holds for all values of two ranges, or for none.
fn decided(op: Relation, a: Range, b: Range) -> Option<bool> {
    let apart = a.1 < b.0 || b.1 < a.0;
    match op {
        Relation::Eq => apart.then_some(false),
        Relation::Ne => apart.then_some(true),
        Relation::Lt if a.1 < b.0 => Some(true),
        Relation::Lt if a.0 >= b.1 => Some(false),
        Relation::Le if a.1 <= b.0 => Some(true),
        Relation::Le if a.0 > b.1 => Some(false),
        Relation::Gt if a.0 > b.1 => Some(true),
        Relation::Gt if a.1 <= b.0 => Some(false),
        Relation::Ge if a.0 >= b.1 => Some(true),
        Relation::Ge if a.1 < b.0 => Some(false),
        Relation::Lt | Relation::Le | Relation::Gt | Relation::Ge => None,
    }
}

/// Whether anything is read for it.
fn reads(expr: &Expr) -> bool {
    !expr.is_fixed()
}

fn flipped(op: Relation) -> Relation {
    match op {
        Relation::Eq => Relation::Eq,
        Relation::Ne => Relation::Ne,
        Relation::Lt => Relation::Gt,
        Relation::Le => Relation::Ge,
        Relation::Gt => Relation::Lt,
        Relation::Ge => Relation::Le,
    }
}
