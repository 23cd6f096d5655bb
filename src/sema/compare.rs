//! The typing of comparisons: numbers by the usual conversions, addresses as numbers, strings with a literal. Tells of those that
//! the types alone decide.

use super::ctypes::{Class, class, common, promote, spell, wrap};
use super::expr::{Operand, both, value};
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::BinaryOp;
use crate::span::Span;
use crate::typed::{Expr, ExprKind, Memory, Relation, Text};

impl Sema<'_> {
    pub(super) fn compare(
        &mut self,
        op: BinaryOp,
        op_span: Span,
        a: Operand,
        b: Operand,
        span: Span,
    ) -> R<Operand> {
        if let (Operand::Str(..) | Operand::Comm(_), _) | (_, Operand::Str(..) | Operand::Comm(_)) = (&a, &b)
        {
            return self.compare_strings(op, op_span, a, b, span);
        }
        let (a, b) = both(self.rvalue(a), self.rvalue(b))?;
        let relation = match op {
            BinaryOp::Eq => Relation::Eq,
            BinaryOp::Ne => Relation::Ne,
            BinaryOp::Lt => Relation::Lt,
            BinaryOp::Le => Relation::Le,
            BinaryOp::Gt => Relation::Gt,
            BinaryOp::Ge => Relation::Ge,
            _ => {
                return self.report(
                    Diagnostic::error(
                        Code::StringOperand,
                        op_span,
                        "`=~` compares a string with a glob pattern",
                    )
                    .label("neither side is a string literal")
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
                (self.convert(a, CType::ULONG), self.convert(b, CType::ULONG))
            }
            _ if ca.is_arithmetic() && cb.is_arithmetic() => {
                self.warn_decided(relation, &a, &b, span);
                let a = self.promoted(a, "a comparison")?;
                let b = self.promoted(b, "a comparison")?;
                let ty = common(&a.ty, &b.ty);
                (self.convert(a, ty.clone()), self.convert(b, ty))
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

    /// A comparison whose result the types alone decide is a mistake more often than not.
    fn warn_decided(&mut self, op: Relation, a: &Expr, b: &Expr, span: Span) {
        let (value, constant, op) = match (a.constant(), b.constant()) {
            (None, Some(_)) => (a, b, op),
            (Some(_), None) => (b, a, flipped(op)),
            _ => return,
        };
        let width = match &value.kind {
            ExprKind::Load(place) => place.bits.map(|bits| bits.width),
            _ => None,
        };
        let value_class = class(self.types, &value.ty);
        let (min, max) = match value_class {
            Class::Bool => (0, 1),
            Class::Int { bytes, signed } => {
                let bits = u32::from(width.unwrap_or(bytes * 8).min(bytes * 8));
                if signed {
                    (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
                } else {
                    (0, (1i128 << bits) - 1)
                }
            }
            _ => return,
        };
        let constant_class = class(self.types, &constant.ty);
        let (Some(x), Some(y)) = (promote(&value_class, width), promote(&constant_class, None)) else {
            return;
        };
        let ty = common(&x, &y);
        let CType::Int { bytes, signed } = ty else {
            return;
        };
        // A negative value becomes a large one there: `int_x == 0xffffffff` holds for -1, as in C.
        if !signed && min < 0 {
            return;
        }
        let c = wrap(constant.constant().unwrap_or(0), bytes, signed);
        let c = if signed {
            i128::from(c)
        } else {
            i128::from(c as u64)
        };
        let always = match op {
            Relation::Eq => (c < min || c > max).then_some(false),
            Relation::Ne => (c < min || c > max).then_some(true),
            Relation::Lt if c <= min => Some(false),
            Relation::Lt if c > max => Some(true),
            Relation::Le if c < min => Some(false),
            Relation::Le if c >= max => Some(true),
            Relation::Gt if c >= max => Some(false),
            Relation::Gt if c < min => Some(true),
            Relation::Ge if c > max => Some(false),
            Relation::Ge if c <= min => Some(true),
            Relation::Lt | Relation::Le | Relation::Gt | Relation::Ge => None,
        };
        if let Some(always) = always {
            let name = spell(self.types, &value.ty);
            let what = match width {
                Some(width) => format!("a bitfield of {width} bits"),
                None => format!("a value of type `{name}`"),
            };
            self.warn(
                Diagnostic::warning(
                    Code::DecidedComparison,
                    span,
                    format!("this comparison is always {always}"),
                )
                .label(format!("{what} is between {min} and {max}")),
            );
        }
    }

    fn compare_strings(
        &mut self,
        op: BinaryOp,
        op_span: Span,
        a: Operand,
        b: Operand,
        span: Span,
    ) -> R<Operand> {
        let (equal, glob) = match op {
            BinaryOp::Eq => (true, false),
            BinaryOp::Ne => (false, false),
            BinaryOp::Match => (true, true),
            _ => {
                return self.report(
                    Diagnostic::error(Code::StringOperand, op_span, "strings have no order here")
                        .label("not possible with a string")
                        .help("strings compare with `==`, `!=` and, as a glob pattern, `=~`"),
                );
            }
        };
        let (text, literal) = match (a, b) {
            (text, Operand::Str(literal, _)) => (text, literal),
            (Operand::Str(literal, _), text) if !glob => (text, literal),
            (a, b) => {
                return self.report(
                    Diagnostic::error(
                        Code::StringOperand,
                        a.span().to(b.span()),
                        "a string is compared with a literal",
                    )
                    .label("one side has to be a text in double quotes"),
                );
            }
        };
        if literal.contains(&0) {
            return self.report(
                Diagnostic::error(Code::StringOperand, span, "a C string ends at its first NUL")
                    .label("this literal contains one"),
            );
        }
        let fixed = literal.strip_suffix(b"*").unwrap_or(&literal);
        if glob && fixed.iter().any(|c| b"*?[".contains(c)) {
            return self.report(
                Diagnostic::error(
                    Code::StringOperand,
                    span,
                    "a pattern can have one `*`, at its end",
                )
                .label("other patterns are not compiled yet")
                .help("compare the beginning: `dev->name =~ \"eth*\"`"),
            );
        }
        let text = self.text(text)?;
        let kind = ExprKind::StrCompare {
            text: Box::new(text),
            equal,
            literal,
            glob,
        };
        Ok(value(kind, CType::INT, span))
    }

    /// Something to read a string from.
    pub(super) fn text(&mut self, operand: Operand) -> R<Text> {
        let refuse = |this: &mut Self, span: Span, ty: &CType| {
            let name = spell(this.types, ty);
            this.report(
                Diagnostic::error(Code::StringOperand, span, "this is not a string")
                    .label(format!("its type is `{name}`"))
                    .help("a `char *` or a `char` array is one; `str(p)` takes any pointer for one"),
            )
        };
        match operand {
            Operand::Comm(_) => Ok(Text::Comm),
            Operand::Str(_, span) => self.report(
                Diagnostic::error(
                    Code::StringOperand,
                    span,
                    "a literal is compared with something that is read",
                )
                .label("this is a literal, as the other side is"),
            ),
            Operand::Value(pointer) => match class(self.types, &pointer.ty) {
                Class::Ptr(to) if self.is_char(&to) => {
                    let memory = self.memory_of(&pointer, &to);
                    Ok(Text::Pointer { pointer, memory })
                }
                _ => refuse(self, pointer.span, &pointer.ty),
            },
            Operand::Place(place) => match class(self.types, &place.ty) {
                Class::Array { elem, len } if self.is_char(&CType::Btf(elem)) && len > 0 => {
                    Ok(Text::Array { place, len })
                }
                Class::Array { elem, .. } if self.is_char(&CType::Btf(elem)) => {
                    // A flexible array: as long as its string.
                    let pointer = self.rvalue(Operand::Place(place))?;
                    Ok(Text::Pointer {
                        pointer,
                        memory: Memory::Kernel,
                    })
                }
                Class::Ptr(_) => {
                    let pointer = self.rvalue(Operand::Place(place))?;
                    self.text(Operand::Value(pointer))
                }
                _ => refuse(self, place.span, &place.ty),
            },
        }
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
