//! The typing of comparisons: numbers by the usual conversions, pointers as numbers; strings and address literals have files of
//! their own. Tells of those that the types alone decide (`decided`).

use std::collections::BTreeSet;

use super::address::Address;
use super::ctypes::{Class, class, common, size_of, spell};
use super::expr::{Operand, both, value};
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::BinaryOp;
use crate::span::Span;
use crate::typed::{Expr, ExprKind, Relation};
use crate::types::TypeId;

/// Below it neither a program nor the kernel has anything (`CONFIG_DEFAULT_MMAP_MIN_ADDR`, mm/Kconfig).
const LOWEST_ADDRESS: i64 = 4096;

impl Sema<'_> {
    pub(super) fn compare(
        &mut self,
        op: BinaryOp,
        op_span: Span,
        a: Operand,
        b: Operand,
        span: Span,
    ) -> R<Operand> {
        if is_text(&a) || is_text(&b) || self.are_strings(&a, &b) {
            return self.compare_strings(op, op_span, a, b, span);
        }
        if let (Operand::Address(_), Operand::Address(_)) = (&a, &b) {
            return self.report(
                Diagnostic::error(
                    Code::BadArguments,
                    op_span,
                    "an address literal is compared with something that is read",
                )
                .label("both sides are literals"),
            );
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
                if !self.warn_decided_pointer(relation, &a, &b, span) {
                    self.warn_mixed_pointer(relation, op_span, &a, &b);
                }
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
        address.number().is_some() && self.is_number(other)
    }

    /// A struct or union as a whole: where it is, its type and its first member.
    fn aggregate_name(&self, operand: &Operand) -> Option<(Span, TypeId, String)> {
        let Operand::Place(place) = operand else {
            return None;
        };
        let Class::Composite(id) = class(self.types, &place.ty) else {
            return None;
        };
        Some((place.span, id, spell(self.types, &place.ty)))
    }

    fn compare_structs<T>(
        &mut self,
        op_span: Span,
        (a_span, a_id, a): (Span, TypeId, String),
        (b_span, b_id, b): (Span, TypeId, String),
    ) -> R<T> {
        let mut diag = Diagnostic::error(Code::NotScalar, op_span, "C has no comparison of whole structs")
            .label("compares numbers, pointers and strings")
            .secondary(a_span, format!("its type is `{a}`"))
            .secondary(b_span, format!("its type is `{b}`"));
        if a_id == b_id
            && let Some(member) = self.scalar_member(a_id)
        {
            let (a, op, b) = (
                self.member_text(a_span, &member),
                op_span.text(self.text),
                self.member_text(b_span, &member),
            );
            diag = diag.help(format!("compare their members: `{a} {op} {b}`"));
        }
        self.report(diag)
    }

    /// The first member that is a number or a pointer, in the structs inside too: `thread_info.flags`.
    pub(super) fn scalar_member(&self, composite: TypeId) -> Option<String> {
        self.scalar_within(composite, &mut BTreeSet::new())
    }

    /// `seen` has those that were looked through in vain.
    fn scalar_within(&self, composite: TypeId, seen: &mut BTreeSet<TypeId>) -> Option<String> {
        if !seen.insert(composite) {
            return None;
        }
        for name in self.types.member_names(composite) {
            let Ok(member) = self.types.member(composite, &name) else {
                continue;
            };
            match class(self.types, &CType::Btf(member.ty)) {
                Class::Int { .. } | Class::Bool | Class::Ptr(_) => return Some(name),
                Class::Composite(inner) => {
                    if let Some(rest) = self.scalar_within(inner, seen) {
                        return Some(format!("{name}.{rest}"));
                    }
                }
                Class::Void | Class::Float | Class::Array { .. } | Class::Func | Class::Opaque => {}
            }
        }
        None
    }

    /// How a member of what is written there is written.
    pub(super) fn member_text(&self, outer: Span, member: &str) -> String {
        let outer = outer.text(self.text);
        let Some(pointer) = outer.strip_prefix('*') else {
            return format!("{outer}.{member}");
        };
        let pointer = pointer.trim_start();
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '.' | '-' | '>');
        if pointer.chars().all(word) {
            format!("{pointer}->{member}")
        } else {
            format!("({outer}).{member}")
        }
    }

    /// Whether both sides are where letters are, and one of them an array: who writes `dev->name == name` means the strings, and the
    /// address of an array is one that no other pointer holds.
    fn are_strings(&self, a: &Operand, b: &Operand) -> bool {
        match (self.is_letters(a), self.is_letters(b)) {
            (true, true) => true,
            (true, false) => self.is_letter_pointer(b),
            (false, true) => self.is_letter_pointer(a),
            (false, false) => false,
        }
    }

    /// Whether it is a string by itself, or can be compared with one.
    pub(super) fn is_text_like(&self, operand: &Operand) -> bool {
        is_text(operand) || self.is_letters(operand) || self.is_letter_pointer(operand)
    }

    fn is_letter_pointer(&self, operand: &Operand) -> bool {
        let points = |ty| matches!(class(self.types, ty), Class::Ptr(to) if self.is_char(&to));
        operand.ty().is_some_and(points)
    }

    /// Whether it is an array of letters.
    fn is_letters(&self, operand: &Operand) -> bool {
        let Operand::Place(place) = operand else {
            return false;
        };
        matches!(class(self.types, &place.ty), Class::Array { elem, .. } if self.is_char(&CType::Btf(elem)))
    }

    /// Addresses that are compared with what is none, or with those of something else: C compilers warn of them.
    fn warn_mixed_pointer(&mut self, relation: Relation, op_span: Span, a: &Expr, b: &Expr) {
        let (x, y) = (spell(self.types, &a.ty), spell(self.types, &b.ty));
        let clash = |title: &str| {
            Diagnostic::warning(Code::TypeClash, op_span, title)
                .label("these are compared as numbers")
                .secondary(a.span, format!("its type is `{x}`"))
                .secondary(b.span, format!("its type is `{y}`"))
        };
        let (pointer, number) = match (class(self.types, &a.ty), class(self.types, &b.ty)) {
            (Class::Ptr(to), Class::Ptr(other)) => {
                if !self.points_alike(&to, &other) {
                    self.warn(
                        clash("pointers to different types are compared")
                            .help("a cast tells that it is meant: `(void *)p`"),
                    );
                }
                return;
            }
            (Class::Ptr(_), _) => (a, b),
            _ => (b, a),
        };
        let odd = match number.constant() {
            // Nothing is at NULL, nor near it: `mmap_min_addr` keeps programs away. Errors are above all addresses.
            Some(constant) => {
                (1..LOWEST_ADDRESS).contains(&constant) && matches!(relation, Relation::Eq | Relation::Ne)
            }
            None => size_of(self.types, &number.ty) != Some(8),
        };
        if odd {
            let mut diag = clash("an address is compared with a number that is none");
            if let ExprKind::AddrOf(_) = &pointer.kind {
                let array = pointer.span.text(self.text);
                diag = diag.help(format!("to compare an element, index it: `{array}[0]`"));
            }
            self.warn(diag);
        }
    }

    /// Whether two pointers point to the same kind of thing, or one of them to anything.
    fn points_alike(&self, a: &CType, b: &CType) -> bool {
        match (class(self.types, a), class(self.types, b)) {
            (Class::Void, _) | (_, Class::Void) => true,
            (Class::Int { bytes: x, .. }, Class::Int { bytes: y, .. }) => x == y,
            (Class::Ptr(x), Class::Ptr(y)) => self.points_alike(&x, &y),
            _ => self.bare_name(a) == self.bare_name(b),
        }
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
