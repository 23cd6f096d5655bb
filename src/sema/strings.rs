//! The typing of comparisons of strings: `==` and `!=` with a text, `=~` with a glob pattern. Tells of those whose result is known
//! without the string.

use super::ctypes::{Class, class, spell};
use super::expr::{Operand, value};
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::glob::{GlobErrorKind, Pattern};
use crate::parser::ast::BinaryOp;
use crate::span::Span;
use crate::typed::{ExprKind, Memory, PATTERN_MAX, StrTest, Text};

/// The name of a task has room for so many characters (`TASK_COMM_LEN`, include/linux/sched.h).
const COMM_MAX: u32 = 15;

impl Sema<'_> {
    pub(super) fn compare_strings(
        &mut self,
        op: BinaryOp,
        op_span: Span,
        a: Operand,
        b: Operand,
        span: Span,
    ) -> R<Operand> {
        let (equal, glob) = if op == BinaryOp::Eq {
            (true, false)
        } else if op == BinaryOp::Ne {
            (false, false)
        } else if op == BinaryOp::Match {
            (true, true)
        } else {
            return self.report(
                Diagnostic::error(Code::StringOperand, op_span, "strings have no order here")
                    .label("not possible with a string")
                    .help("strings compare with `==`, `!=` and, as a glob pattern, `=~`"),
            );
        };
        let (text, literal, at) = match (a, b) {
            (text, Operand::Str(literal, at)) => (text, literal, at),
            (Operand::Str(_, at), text) if glob => {
                let right = text.span();
                let (a, b) = (at.text(self.text), right.text(self.text));
                let help = format!("write `{b} =~ {a}`");
                return self.report(
                    Diagnostic::error(
                        Code::StringOperand,
                        at,
                        "the pattern of `=~` stands on its right side",
                    )
                    .label("this is on the left")
                    .help(help),
                );
            }
            (Operand::Str(literal, at), text) => (text, literal, at),
            (a, b) => return self.no_text(op_span, glob, &a, &b),
        };
        if self.is_number(&text)
            && literal.len() > 1
            && let Ok(name) = std::str::from_utf8(&literal)
            && !self.enum_constant(name).is_empty()
        {
            return self.report(
                Diagnostic::error(Code::StringOperand, at, "a number is compared with a text")
                    .label("a text")
                    .secondary(text.span(), "a number")
                    .help(format!("the constant is written without quotes: `{name}`")),
            );
        }
        let test = self.string_test(literal.clone(), glob, at)?;
        if let Operand::Func(_) = text {
            self.by_name = true;
            let name = self.subject.as_bytes();
            let holds = match &test {
                StrTest::Is(literal) => name == literal.as_slice(),
                StrTest::Matches(pattern) => pattern.matches(name),
            };
            // Among several functions it chooses.
            if self.alone {
                self.warn(
                    Diagnostic::warning(
                        Code::DecidedComparison,
                        span,
                        format!("this comparison is always {}", holds == equal),
                    )
                    .label(format!("`func` is `{}` at every event", self.subject)),
                );
            }
            return Ok(value(
                ExprKind::Const(i64::from(holds == equal)),
                CType::INT,
                span,
            ));
        }
        if let ([letter], StrTest::Is(_)) = (literal.as_slice(), &test)
            && self.is_number(&text)
        {
            let written = (*letter as char).escape_default();
            return self.report(
                Diagnostic::error(Code::StringOperand, text.span(), "this is a number, not a string")
                    .label("can't be compared with a text")
                    .secondary(at, "a string of one character")
                    .help(format!("a character has single quotes: `'{written}'`")),
            );
        }
        let text = self.text(text)?;
        self.warn_decided_string(&text, &test, equal, span, at);
        let kind = ExprKind::StrCompare {
            text: Box::new(text),
            equal,
            test,
        };
        Ok(value(kind, CType::INT, span))
    }

    /// Tells that neither side of a comparison of strings is a literal.
    fn no_text(&mut self, op_span: Span, glob: bool, a: &Operand, b: &Operand) -> R<Operand> {
        if glob {
            let text = a.span().text(self.text);
            let help = format!("write the pattern in double quotes: `{text} =~ \"eth*\"`");
            return self.report(
                Diagnostic::error(
                    Code::StringOperand,
                    op_span,
                    "`=~` compares a string with a glob pattern",
                )
                .label("neither side is a text in double quotes")
                .help(help),
            );
        }
        let mut diag = Diagnostic::error(
            Code::StringOperand,
            op_span,
            "a string is compared with a text in double quotes only",
        )
        .label("neither side is one");
        for side in [a, b] {
            diag = diag.secondary(
                side.span(),
                match side.is_fixed() {
                    true => "this is no text",
                    false => "this is read when the program runs",
                },
            );
        }
        let read = |side: &Operand| matches!(side, Operand::Value(_) | Operand::Place(_)) && !side.is_fixed();
        if read(a) && read(b) {
            diag = diag.help("two addresses are compared if one side is cast: `(void *)p`");
        }
        self.report(diag)
    }

    pub(super) fn is_number(&self, operand: &Operand) -> bool {
        operand
            .ty()
            .is_some_and(|ty| class(self.types, ty).is_arithmetic())
    }

    /// What a string is compared with.
    fn string_test(&mut self, literal: Vec<u8>, glob: bool, at: Span) -> R<StrTest> {
        if literal.contains(&0) {
            return self.report(
                Diagnostic::error(Code::StringOperand, at, "a C string ends at its first NUL")
                    .label("this one goes on behind it, so nothing equals it"),
            );
        }
        if !glob {
            return Ok(StrTest::Is(literal));
        }
        // Without escapes, each byte of the pattern is one of the query.
        let plain = at.end - at.start == literal.len() as u32 + 2;
        let part = |start: usize, end: usize| {
            if plain {
                Span {
                    start: at.start + 1 + start as u32,
                    end: at.start + 1 + end as u32,
                }
            } else {
                at
            }
        };
        let pattern = match Pattern::parse(&literal) {
            Ok(pattern) => pattern,
            Err(error) => {
                let (title, label) = match error.kind {
                    GlobErrorKind::Unclosed => ("this `[` of the pattern is not closed", "no `]` follows"),
                    GlobErrorKind::Backwards => (
                        "a range of characters goes from low to high",
                        "ends before it begins",
                    ),
                    GlobErrorKind::Empty => ("this set holds no character", "nothing can match it"),
                    GlobErrorKind::Backslash => {
                        ("a backslash means the next character as itself", "none follows")
                    }
                };
                let mut diag =
                    Diagnostic::error(Code::BadPattern, part(error.start, error.end), title).label(label);
                if error.kind == GlobErrorKind::Unclosed {
                    diag = diag.help("to mean the character itself, write `[[]`");
                }
                return self.report(diag);
            }
        };
        let length = pattern.sets().len();
        if length > PATTERN_MAX {
            return self.report(
                Diagnostic::error(
                    Code::BadPattern,
                    at,
                    format!("a pattern matches at most {PATTERN_MAX} characters, not counting `*`"),
                )
                .label(format!("this one has {length}"))
                .help("an exact comparison, with `==`, may be of any length"),
            );
        }
        Ok(StrTest::Matches(pattern))
    }

    /// A string that can't be as long as what it is compared with, and the pattern that everything matches.
    fn warn_decided_string(&mut self, text: &Text, test: &StrTest, equal: bool, span: Span, at: Span) {
        let room = match text {
            Text::Comm => Some((COMM_MAX, "the name of a task".to_string())),
            Text::Array { len, .. } => Some((*len, "this array".to_string())),
            Text::Pointer {
                limit: Some(limit), ..
            } => Some((*limit, "this string".to_string())),
            Text::Pointer { limit: None, .. } => None,
        };
        let needed = match test {
            StrTest::Is(literal) => literal.len(),
            StrTest::Matches(pattern) => pattern.sets().len(),
        };
        if let Some((room, what)) = room
            && needed > room as usize
        {
            self.warn(
                Diagnostic::warning(
                    Code::DecidedComparison,
                    span,
                    format!("this comparison is always {}", !equal),
                )
                .label(format!("{what} has at most {room} characters"))
                .secondary(at, format!("this takes {needed}")),
            );
        } else if let StrTest::Matches(pattern) = test
            && pattern.sets().is_empty()
            && pattern.has_star()
        {
            self.warn(
                Diagnostic::warning(Code::DecidedComparison, span, "every string matches this pattern")
                    .label("holds for every string that can be read"),
            );
        }
    }

    /// Something to read a string from.
    fn text(&mut self, operand: Operand) -> R<Text> {
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
            Operand::Sized(sized) if !sized.text => self.sized_value(&sized),
            Operand::Sized(sized) => match sized.length.constant() {
                Some(bytes) => Ok(Text::Pointer {
                    pointer: sized.pointer,
                    memory: sized.memory,
                    limit: Some(u32::try_from(bytes).unwrap_or(u32::MAX)),
                }),
                None => self.report(
                    Diagnostic::error(
                        Code::BadLength,
                        sized.length.span,
                        "the length of a string that is compared has to be a constant",
                    )
                    .label("known only when the program runs"),
                ),
            },
            Operand::Symbol(address) => self.symbol_value(address.span),
            Operand::Func(_) | Operand::Address(_) => {
                let span = operand.span();
                self.report(
                    Diagnostic::error(Code::StringOperand, span, "this is not a string")
                        .label("can't be compared with a text"),
                )
            }
            Operand::Value(pointer) => match class(self.types, &pointer.ty) {
                Class::Ptr(to) if self.is_char(&to) => {
                    let memory = self.memory_of(&pointer, &to);
                    Ok(Text::Pointer {
                        pointer,
                        memory,
                        limit: None,
                    })
                }
                Class::Void
                | Class::Int { .. }
                | Class::Bool
                | Class::Float
                | Class::Ptr(_)
                | Class::Composite(_)
                | Class::Array { .. }
                | Class::Func
                | Class::Opaque => refuse(self, pointer.span, &pointer.ty),
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
                        limit: None,
                    })
                }
                Class::Ptr(_) => {
                    let pointer = self.rvalue(Operand::Place(place))?;
                    self.text(Operand::Value(pointer))
                }
                Class::Void
                | Class::Int { .. }
                | Class::Bool
                | Class::Float
                | Class::Composite(_)
                | Class::Array { .. }
                | Class::Func
                | Class::Opaque => refuse(self, place.span, &place.ty),
            },
        }
    }
}
