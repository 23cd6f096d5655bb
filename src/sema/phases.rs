//! `entry(e)` and `exit(e)`: when an expression is read. In: expressions with such calls, around all of them or inside. Out: the
//! expression inside, and when the whole is computed; its parts that are read earlier than that are marked. Never reads anything at a
//! time that the query doesn't say.

use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, Arg, BinaryOp, ExprKind as Ast};
use crate::span::Span;
use crate::typed::{Builtin, Expr, ExprKind, Predicate, Source, Text, When};

/// A call of `entry` or `exit` inside an expression: when what is in it is read, and where it stands.
pub(super) type Mark = (When, Span);

impl Sema<'_> {
    /// `entry(e)` and `exit(e)`.
    pub(super) fn phase_call<'e>(&mut self, expr: &'e ast::Expr) -> R<(&'e ast::Expr, Option<When>)> {
        let Ast::Call { func, args } = &expr.kind else {
            return Ok((expr, None));
        };
        let Some(when) = phase_named(&func.node) else {
            return Ok((expr, None));
        };
        let inner = self.phase(func, args, when, expr.span)?;
        Ok((inner, Some(when)))
    }

    /// What is in such a call.
    fn phase<'e>(&mut self, func: &ast::Ident, args: &'e [Arg], when: When, span: Span) -> R<&'e ast::Expr> {
        // An argument called so would be no function, and nothing else could be meant.
        let [Arg::Expr(inner)] = args else {
            return self.report(
                Diagnostic::error(
                    Code::BadArguments,
                    span,
                    format!("`{}` takes one expression", func.node),
                )
                .label("wrong arguments"),
            );
        };
        if self.ret.is_none() {
            return self.report(
                Diagnostic::error(
                    Code::NoReturn,
                    func.span,
                    format!("`{}` does not return", self.subject),
                )
                .label("a tracepoint has no entry and exit"),
            );
        }
        if when == When::Entry
            && let Some(at) = self.named_in(inner, &["return", "retval"])
        {
            return self.report(
                Diagnostic::error(Code::NoReturn, at, "at entry nobody knows what will be returned")
                    .label("known only at return")
                    .secondary(func.span, "this asks for a value at entry"),
            );
        }
        if let Some(at) = self.named_in(inner, &["entry", "exit"]) {
            return self.report(
                Diagnostic::error(Code::MisplacedCall, at, "a value is read at one moment")
                    .label("asks for another one")
                    .secondary(func.span, "this asks for one already"),
            );
        }
        Ok(inner)
    }

    /// Where an expression mentions one of these built-ins, or calls one of these functions.
    fn named_in(&self, expr: &ast::Expr, names: &[&str]) -> Option<Span> {
        let inside = |arg: &Arg| match arg {
            Arg::Expr(expr) => self.named_in(expr, names),
            Arg::Key(key) => self.named_in(&key.expr, names),
            Arg::Type(_) => None,
        };
        let of = |expr| self.named_in(expr, names);
        match &expr.kind {
            Ast::Name(name) => {
                let argument = self.params.iter().any(|param| param.name == *name);
                (names.contains(&name.as_str()) && !argument).then_some(expr.span)
            }
            Ast::Builtin(name) => names.contains(&name.as_str()).then_some(expr.span),
            Ast::Member { base, .. } => of(base),
            Ast::Index { base, index } => of(base).or_else(|| of(index)),
            Ast::Unary { operand, .. } | Ast::Cast { operand, .. } => of(operand),
            Ast::Binary { lhs, rhs, .. } => of(lhs).or_else(|| of(rhs)),
            Ast::Cond {
                cond,
                then,
                otherwise,
            } => of(cond).or_else(|| of(then)).or_else(|| of(otherwise)),
            Ast::Call { func, .. } if names.contains(&func.node.as_str()) => Some(expr.span),
            Ast::Call { args, .. } => args.iter().find_map(inside),
            Ast::Int(_) | Ast::Char(_) | Ast::Str(_) | Ast::SizeofType(_) => None,
        }
    }

    /// What all has to hold for the condition to hold, if not all of it is known at one moment: then each is judged as early as can be.
    pub(super) fn conjuncts<'e>(&self, cond: &'e ast::Expr) -> Vec<&'e ast::Expr> {
        let late = |part| says(part) || self.named_in(part, &["return", "retval", "duration"]).is_some();
        match &cond.kind {
            Ast::Binary { op, lhs, rhs } if op.node == BinaryOp::LogAnd && (late(lhs) || late(rhs)) => {
                let mut all = self.conjuncts(lhs);
                all.extend(self.conjuncts(rhs));
                all
            }
            Ast::Binary { .. }
            | Ast::Int(_)
            | Ast::Char(_)
            | Ast::Str(_)
            | Ast::Name(_)
            | Ast::Builtin(_)
            | Ast::Member { .. }
            | Ast::Index { .. }
            | Ast::Unary { .. }
            | Ast::Cond { .. }
            | Ast::Cast { .. }
            | Ast::SizeofType(_)
            | Ast::Call { .. } => vec![cond],
        }
    }

    /// What a call brings is not there yet at its entry.
    pub(super) fn check_forced(&mut self, natural: When, forced: When, span: Span) -> R<()> {
        match (natural, forced) {
            (When::Return, When::Entry) => self.report(
                Diagnostic::error(Code::NoReturn, span, "this is known at the return only")
                    .label("it mentions what the call returns, or how long it takes")
                    .help("leave `entry()` away"),
            ),
            (When::Entry, When::Entry | When::Return) | (When::Return, When::Return) => Ok(()),
        }
    }

    /// Types something in which `entry` and `exit` may occur, and gives where they do.
    pub(super) fn marked<T>(&mut self, typing: impl FnOnce(&mut Self) -> R<T>) -> R<(T, Vec<Mark>)> {
        let outer = self.marks.replace(Vec::new());
        let typed = typing(self);
        let marks = std::mem::replace(&mut self.marks, outer).unwrap_or_default();
        Ok((typed?, marks))
    }

    /// Such a call inside an expression.
    pub(super) fn inner_phase(
        &mut self,
        func: &ast::Ident,
        args: &[Arg],
        span: Span,
    ) -> R<super::expr::Operand> {
        let (Some(when), Some(mut marks)) = (phase_named(&func.node), self.marks.take()) else {
            return self.report(
                Diagnostic::error(
                    Code::MisplacedCall,
                    span,
                    format!(
                        "`{}` goes around a value, a side of a comparison or a whole item",
                        func.node
                    ),
                )
                .label("not here"),
            );
        };
        // Without a place for marks there are no such calls inside of it.
        let inner = self
            .phase(func, args, when, span)
            .and_then(|inner| self.operand(inner));
        marks.push((when, span));
        self.marks = Some(marks);
        inner
    }

    /// A condition, and when it is judged.
    pub(super) fn judged(&mut self, expr: &ast::Expr, forced: Option<When>) -> R<Judged> {
        let (mut cond, marks) = match forced {
            Some(_) => (self.condition(expr)?, Vec::new()),
            None => self.marked(|this| this.condition(expr))?,
        };
        let natural = self.when(|visit| cond.walk(visit));
        let when = match forced {
            Some(forced) => {
                self.check_forced(natural, forced, expr.span)?;
                forced
            }
            None => {
                let moments = Moments::new(&marks, natural);
                moments.keep_in_condition(&mut cond);
                moments.when
            }
        };
        let exits = marks.iter().any(|(when, _)| *when == When::Return);
        Ok(Judged {
            predicate: Predicate { cond, when },
            said: forced.is_some() || !marks.is_empty(),
            late: forced.is_none() && when == When::Return && !exits,
        })
    }

    /// When a shown value is read in which parts are marked, and which by itself is read at `natural`; those of its parts that are read
    /// earlier say so from here on.
    pub(super) fn settled(&self, marks: &[Mark], natural: When, source: &mut Source) -> When {
        let moments = Moments::new(marks, natural);
        source.change_parts(&mut |part| moments.keep_in(part));
        moments.when
    }
}

/// A condition that was understood.
pub(super) struct Judged {
    pub(super) predicate: Predicate,
    /// `entry` or `exit` say when it is judged.
    pub(super) said: bool,
    /// It is judged at return since it mentions what is known only then, and so is what it compares that with.
    pub(super) late: bool,
}

/// At which moments the parts of an expression are read.
struct Moments<'a> {
    marks: &'a [Mark],
    /// When the whole is computed.
    when: When,
}

impl<'a> Moments<'a> {
    fn new(marks: &'a [Mark], natural: When) -> Moments<'a> {
        let exits = marks.iter().any(|(when, _)| *when == When::Return);
        Moments {
            marks,
            when: if exits { When::Return } else { natural },
        }
    }

    /// Of a condition each comparison is kept by itself: where one of them faults, that one is false and not the whole.
    fn keep_in_condition(&self, cond: &mut Expr) {
        if let ExprKind::And(..) | ExprKind::Or(..) | ExprKind::Not(_) = cond.kind {
            cond.change_parts(&mut |part| self.keep_in_condition(part));
        } else {
            self.keep_in(cond);
        }
    }

    /// Marks the largest parts of what is computed at return that are known at entry and may be another thing by then.
    fn keep_in(&self, expr: &mut Expr) {
        if self.marks.is_empty() || self.when == When::Entry {
            return;
        }
        let (mut early, mut late) = (false, false);
        expr.walk(&mut |part| match self.read(part) {
            Some(When::Entry) => early = true,
            Some(When::Return) => late = true,
            None => {}
        });
        match (early, late) {
            (false, _) => {}
            (true, true) => expr.change_parts(&mut |part| self.keep_in(part)),
            // The value itself may be shown, and is kept once then.
            (true, false) if matches!(expr.kind, ExprKind::Convert(_)) => {
                expr.change_parts(&mut |part| self.keep_in(part));
            }
            (true, false) => {
                let (ty, span) = (expr.ty.clone(), expr.span);
                let inner = Box::new(std::mem::replace(
                    expr,
                    Expr {
                        kind: ExprKind::Const(0),
                        ty: ty.clone(),
                        span,
                    },
                ));
                expr.kind = ExprKind::AtEntry(inner);
            }
        }
    }

    /// If an expression by itself is what may be another thing at the return, or is there no earlier, when it is read.
    fn read(&self, expr: &Expr) -> Option<When> {
        if is_returned(expr) {
            return Some(When::Return);
        }
        let span = expr.read_at()?;
        if let Some((when, _)) = self.marks.iter().find(|(_, mark)| mark.covers(span)) {
            return Some(*when);
        }
        // The name of a task stands nowhere by itself, but with what it is compared with.
        if let ExprKind::StrCompare { text, .. } = &expr.kind
            && **text == Text::Comm
            && let Some((when, _)) = self.marks.iter().find(|(_, mark)| span.covers(*mark))
        {
            return Some(*when);
        }
        let mut exits = self
            .marks
            .iter()
            .filter(|(when, _)| *when == When::Return)
            .peekable();
        // What nothing is said of is read at entry, unless it is there at return only, or all is computed at return since it is not
        // there earlier.
        let told = exits.peek().is_some();
        let needs_exit = exits.any(|(_, mark)| span.covers(*mark));
        let mut needs_return = false;
        expr.walk(&mut |part| needs_return |= is_returned(part));
        Some(if told && !needs_exit && !needs_return {
            When::Entry
        } else {
            When::Return
        })
    }
}

/// What is there at the return only.
fn is_returned(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Return | ExprKind::Builtin(Builtin::Duration))
}

/// Conditions of one `&&`, put together again as far as they are judged at one moment: one may guard the next, so that they stay in
/// their order.
pub(super) fn together(conjuncts: Vec<Judged>) -> Vec<Judged> {
    let mut all: Vec<Judged> = Vec::new();
    for next in conjuncts {
        let Some(same) = all
            .iter_mut()
            .find(|judged| judged.predicate.when == next.predicate.when && judged.said == next.said)
        else {
            all.push(next);
            continue;
        };
        let span = same.predicate.cond.span.to(next.predicate.cond.span);
        let none = Expr {
            kind: ExprKind::Const(0),
            ty: CType::INT,
            span,
        };
        let first = std::mem::replace(&mut same.predicate.cond, none);
        let second = next.predicate.cond;
        same.predicate.cond.kind = match (first.constant(), second.constant()) {
            (Some(0), _) => ExprKind::Const(0),
            (Some(_), Some(second)) => ExprKind::Const(i64::from(second != 0)),
            (_, _) => ExprKind::And(Box::new(first), Box::new(second)),
        };
        same.late |= next.late;
    }
    all
}

/// What is in a call of `entry` or `exit`.
pub(super) fn phase_of(expr: &ast::Expr) -> Option<&ast::Expr> {
    let Ast::Call { func, args } = &expr.kind else {
        return None;
    };
    let [Arg::Expr(inner)] = args.as_slice() else {
        return None;
    };
    phase_named(&func.node).map(|_| inner)
}

fn phase_named(func: &str) -> Option<When> {
    match func {
        "entry" => Some(When::Entry),
        "exit" => Some(When::Return),
        _ => None,
    }
}

/// Whether `entry` or `exit` is called in it.
fn says(expr: &ast::Expr) -> bool {
    let inside = |arg: &Arg| match arg {
        Arg::Expr(expr) => says(expr),
        Arg::Key(key) => says(&key.expr),
        Arg::Type(_) => false,
    };
    match &expr.kind {
        Ast::Member { base, .. } => says(base),
        Ast::Index { base, index } => says(base) || says(index),
        Ast::Unary { operand, .. } | Ast::Cast { operand, .. } => says(operand),
        Ast::Binary { lhs, rhs, .. } => says(lhs) || says(rhs),
        Ast::Cond {
            cond,
            then,
            otherwise,
        } => says(cond) || says(then) || says(otherwise),
        Ast::Call { func, args } => phase_named(&func.node).is_some() || args.iter().any(inside),
        Ast::Int(_) | Ast::Char(_) | Ast::Str(_) | Ast::Name(_) | Ast::Builtin(_) | Ast::SizeofType(_) => {
            false
        }
    }
}
