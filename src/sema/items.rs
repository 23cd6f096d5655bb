//! Items become predicates and shown values, and those become events: which are made at entry, which at return, and
//! which at return with what entry saved.

use super::expr::{Operand, both};
use super::fetched::{self, Several};
use super::phases::{phase_of, together};
use super::{R, Reported, Sema};
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, BinaryOp, ExprKind as Ast, UnaryOp};
use crate::span::Span;
use crate::typed::{Builtin, Event, ExprKind, Item, Predicate, When};
use crate::wire::{Format, Phase};

/// When the operands of a predicate are read.
#[derive(Clone, Copy)]
struct Moment {
    /// The query says so.
    forced: Option<When>,
    /// The predicate is judged at return; an operand is what it was compared with.
    late: bool,
}

/// What items amount to before they are dealt out to events.
#[derive(Default)]
struct Parts {
    predicates: Vec<Predicate>,
    items: Vec<Item>,
}

impl Parts {
    /// Whether a predicate has shown this value already.
    fn judged(&self, shown: &Item) -> bool {
        let by_predicate = |item: &Item| {
            let mut conditions = self.predicates.iter().map(|predicate| predicate.cond.span);
            conditions.any(|span| span.covers(item.span))
        };
        self.items
            .iter()
            .any(|item| item.label == shown.label && item.when == shown.when && by_predicate(item))
    }
}

impl Sema<'_> {
    /// The events of a query.
    pub(super) fn events(&mut self, query: &ast::Query) -> R<Vec<Event>> {
        let mut parts = Parts::default();
        let mut failed = false;
        match &query.items {
            None => self.everything(&mut parts, query.target.span),
            Some(items) => {
                for item in items {
                    failed |= self.item(item, &mut parts).is_err();
                }
            }
        }
        if let Some(cond) = &query.cond {
            let mut all = Vec::new();
            for conjunct in self.conjuncts(cond) {
                failed |= self.decided_by_argc(conjunct).is_err();
                match self.judged(conjunct, None) {
                    Ok(judged) => all.push(judged),
                    Err(Reported) => failed = true,
                }
            }
            let all = together(all).into_iter().map(|judged| judged.predicate);
            parts.predicates.extend(all);
        }
        if failed {
            return Err(Reported);
        }
        Ok(self.deal(parts, query.items.is_none()))
    }

    /// Without parentheses: all arguments, and what is returned. What of a program's can't be fetched is told.
    fn everything(&mut self, parts: &mut Parts, span: Span) {
        let mut unread: Vec<(String, Diagnostic)> = Vec::new();
        for index in 0..self.numbered {
            let name = match self.params[index].name.as_str() {
                "" => format!("arg{index}"),
                name => name.to_string(),
            };
            // An argument that can't be read is left out here; who names it is told why.
            let before = self.diags.len();
            let shown = self
                .argument(index, span)
                .and_then(|operand| self.show(operand, name.clone(), None, span));
            let why = self.diags.split_off(before);
            // One that there is at no place is no loss.
            let absent = matches!(self.missing.get(index), Some(Some(why)) if why.is_empty());
            match shown {
                Ok(item) => parts.items.push(item),
                Err(Reported) if absent => {}
                Err(Reported) => unread.extend(why.into_iter().map(|diag| (format!("`{name}`"), diag))),
            }
        }
        if self.ret.is_some() {
            let before = self.diags.len();
            let shown = self
                .builtin("retval", span)
                .and_then(|operand| self.show(operand, "return".to_string(), None, span));
            let why = self.diags.split_off(before);
            match shown {
                Ok(item) => parts.items.push(item),
                Err(Reported) => unread.extend(
                    why.into_iter()
                        .filter(|diag| diag.code != Code::NoReturn)
                        .map(|diag| ("what it returns".to_string(), diag)),
                ),
            }
        }
        if self.user {
            self.not_shown(&unread, span);
        }
    }

    /// Tells what a query without items does not show, in one warning.
    fn not_shown(&mut self, unread: &[(String, Diagnostic)], span: Span) {
        if unread.is_empty() {
            return;
        }
        let mut causes: Vec<(Vec<&str>, String)> = Vec::new();
        for (what, diag) in unread {
            let why = match diag.notes.first() {
                Some(note) => note.clone(),
                None => diag.label.clone(),
            };
            match causes.iter_mut().find(|(_, known)| *known == why) {
                Some((all, _)) => all.push(what),
                None => causes.push((vec![what], why)),
            }
        }
        let mut diag = Diagnostic::warning(
            Code::Incomplete,
            span,
            format!("not all of `{}` is shown", self.subject),
        )
        .label("something can't be fetched");
        for (what, why) in causes {
            diag = diag.note(format!("{}: {why}", what.join(", ")));
        }
        self.warn(diag);
    }

    fn item(&mut self, item: &ast::Item, parts: &mut Parts) -> R<()> {
        let (expr, forced) = self.phase_call(&item.expr)?;
        if let Ast::Builtin(name) = &expr.kind
            && name == "arg*"
        {
            if let Some(format) = &item.format {
                return self.report(
                    Diagnostic::error(Code::BadFormat, format.span, "a format is for one value")
                        .label("`$arg*` stands for all arguments")
                        .help("name the argument that it is for"),
                );
            }
            if let Some(label) = &item.label {
                return self.report(
                    Diagnostic::error(Code::BadArguments, label.span, "a label is for one value")
                        .label("`$arg*` stands for all arguments, which have names of their own"),
                );
            }
            for index in 0..self.numbered {
                let operand = self.argument(index, expr.span)?;
                let name = self.params[index].name.clone();
                let shown = self.show(operand, name, None, expr.span)?;
                parts.items.push(shown);
            }
            return Ok(());
        }
        let name = match &item.label {
            Some(label) => label.node.clone(),
            None => self.label(expr),
        };
        if let Some(stack) = self.call_stack(expr, false, name) {
            let mut shown = stack?;
            if let Some(format) = &item.format {
                return self.report(
                    Diagnostic::error(Code::BadFormat, format.span, "a stack is shown as symbols")
                        .label("so it has no format"),
                );
            }
            if let Some(forced) = forced {
                shown.when = forced;
            }
            parts.items.push(shown);
            return Ok(());
        }
        if is_condition(expr) {
            self.only_judged(item)?;
            let mut all = Vec::new();
            for conjunct in self.conjuncts(expr) {
                self.decided_by_argc(conjunct)?;
                let judged = self.judged(conjunct, forced)?;
                let read = Moment {
                    forced,
                    late: judged.late,
                };
                self.operands(conjunct, parts, read, None)?;
                all.push(judged);
            }
            let all = together(all).into_iter().map(|judged| judged.predicate);
            parts.predicates.extend(all);
            return Ok(());
        }
        let (all, marks) = self.marked(|this| match item.format.as_ref().and_then(Several::of) {
            Some(several) => this.several(expr, item, &several),
            None => this
                .labelled(expr, item.label.as_ref(), item.format.as_ref(), item.span)
                .map(|shown| vec![shown]),
        })?;
        for mut shown in all {
            match forced {
                Some(forced) => {
                    self.check_forced(shown.when, forced, expr.span)?;
                    shown.when = forced;
                }
                None => shown.when = self.settled(&marks, shown.when, &mut shown.source),
            }
            let plain = item.label.is_none() && item.format.is_none();
            if !(plain && parts.judged(&shown)) {
                parts.items.push(shown);
            }
        }
        Ok(())
    }

    /// A predicate shows its operands under their own names.
    pub(super) fn only_judged(&mut self, item: &ast::Item) -> R<()> {
        let (code, span, what) = match (&item.label, &item.format) {
            (_, Some(format)) => (Code::BadFormat, format.span, "format"),
            (Some(label), None) => (Code::BadArguments, label.span, "label"),
            (None, None) => return Ok(()),
        };
        self.report(
            Diagnostic::error(code, span, "a predicate is judged, not shown")
                .label(format!("so it has no {what}"))
                .help("put parentheses around the value and cast it, such as `(int)(a == b)`"),
        )
    }

    /// A value as it is shown, with its label and format.
    pub(super) fn labelled(
        &mut self,
        expr: &ast::Expr,
        label: Option<&ast::Ident>,
        format: Option<&ast::Ident>,
        span: Span,
    ) -> R<Item> {
        // In the kernel's probe events a string is what lies at an address, not what a number there points to.
        let expr = match format {
            Some(format) if matches!(format.node.as_str(), "s" | "string" | "us" | "ustring") => {
                fetched_from(expr).unwrap_or(expr)
            }
            Some(_) | None => expr,
        };
        let operand = self.operand(expr);
        let bits = format.filter(|format| fetched::is_bitfield(format));
        let array = format.filter(|format| format.node.ends_with(']'));
        let word = format
            .filter(|_| array.is_none() && bits.is_none())
            .map(|name| Ok((self.format(name)?, name)))
            .transpose();
        let (operand, word) = both(operand, word)?;
        if let Some(label) = label {
            self.check_label(label, expr, &operand)?;
        }
        let (operand, shape) = match (array, bits, word) {
            (Some(name), _, _) => {
                let (operand, shape) = self.array_of(operand, name)?;
                (operand, Some(shape))
            }
            (None, Some(name), _) => (self.bits_of(operand, name)?, Some(Format::Unsigned)),
            (None, None, Some((word, name))) => (self.as_formatted(operand, word, name)?, Some(word.format)),
            (None, None, None) => (operand, fetched::default_format(expr)),
        };
        let label = match label {
            Some(label) => label.node.clone(),
            None => self.label(expr),
        };
        let shown = if let (Operand::Str(text, _), true) = (&operand, fetched::is_immediate(expr)) {
            // A text that is to be shown, not one that was forgotten to be compared with.
            fetched::text(text.clone(), label, shape, span)
        } else {
            self.show(operand, label, shape, span)?
        };
        if let Some(format) = format {
            self.check_format(&shown, format)?;
        }
        Ok(shown)
    }

    /// The operands of a predicate are shown, but for constants, each once. What is compared with a text or an
    /// address is shown as one.
    fn operands(
        &mut self,
        expr: &ast::Expr,
        parts: &mut Parts,
        read: Moment,
        format: Option<Format>,
    ) -> R<()> {
        match &expr.kind {
            Ast::Binary { op, lhs, rhs } if is_relation(op.node) || is_logical(op.node) => {
                let (of_lhs, of_rhs) = match is_relation(op.node) {
                    true => (self.format_beside(rhs), self.format_beside(lhs)),
                    false => (None, None),
                };
                let a = self.operands(lhs, parts, read, of_lhs);
                let b = self.operands(rhs, parts, read, of_rhs);
                both(a, b).map(|_| ())
            }
            Ast::Unary { op, operand } if op.node == UnaryOp::Not => {
                self.operands(operand, parts, read, None)
            }
            Ast::Int(_)
            | Ast::Char(_)
            | Ast::Str(_)
            | Ast::Name(_)
            | Ast::Builtin(_)
            | Ast::Member { .. }
            | Ast::Index { .. }
            | Ast::Unary { .. }
            | Ast::Binary { .. }
            | Ast::Cond { .. }
            | Ast::Cast { .. }
            | Ast::SizeofType(_)
            | Ast::Call { .. } => {
                if let (Some(inner), None) = (phase_of(expr), read.forced)
                    && is_condition(inner)
                {
                    let (inner, forced) = self.phase_call(expr)?;
                    let read = Moment { forced, ..read };
                    return self.operands(inner, parts, read, format);
                }
                let (operand, marks) = self.marked(|this| this.operand(expr))?;
                // How many arguments there are is a constant that nobody knows by heart.
                if operand.is_fixed() && !is_argc(expr) {
                    return Ok(());
                }
                let label = self.label(expr);
                let format = format.or_else(|| fetched::default_format(expr));
                let mut shown = self.show(operand, label, format, expr.span)?;
                shown.when = match read.forced {
                    Some(forced) => forced,
                    None => {
                        let late = read.late && shown.source.may_change();
                        let natural = if late { When::Return } else { shown.when };
                        self.settled(&marks, natural, &mut shown.source)
                    }
                };
                let again = |item: &Item| {
                    item.label == shown.label && item.when == shown.when && item.source == shown.source
                };
                if !parts.items.iter().any(again) {
                    parts.items.push(shown);
                }
                Ok(())
            }
        }
    }

    /// Tells of comparisons that the number of arguments of something in a program decides: it is a constant where it does not
    /// depend on the place. Of the kernel's functions such a comparison chooses among many.
    fn decided_by_argc(&mut self, expr: &ast::Expr) -> R<()> {
        let Ast::Binary { op, lhs, rhs } = &expr.kind else {
            return Ok(());
        };
        if !self.user {
            return Ok(());
        }
        if is_logical(op.node) {
            return both(self.decided_by_argc(lhs), self.decided_by_argc(rhs)).map(|_| ());
        }
        if !is_relation(op.node) || !(is_argc(lhs) || is_argc(rhs)) {
            return Ok(());
        }
        if let Some(result) = self.condition(expr)?.constant() {
            let always = result != 0;
            let count = self.numbered;
            self.warn(
                Diagnostic::warning(
                    Code::DecidedComparison,
                    expr.span,
                    format!("this comparison is always {always}"),
                )
                .label(format!("`argc` is {count} for `{}`", self.subject)),
            );
        }
        Ok(())
    }

    /// How the other side of a comparison with this is best shown, if this is a text or an address literal.
    fn format_beside(&mut self, expr: &ast::Expr) -> Option<Format> {
        if let Ast::Str(_) = &expr.kind {
            return Some(Format::String);
        }
        let Ast::Call { func, .. } = &expr.kind else {
            return None;
        };
        if !matches!(func.node.as_str(), "ip" | "mac") {
            return None;
        }
        match self.operand(expr) {
            Ok(Operand::Address(address)) => Some(address.format()),
            Ok(_) | Err(Reported) => None,
        }
    }

    /// The expression as written, with each run of blanks as one.
    pub(super) fn label(&self, expr: &ast::Expr) -> String {
        match &expr.kind {
            Ast::Name(name) if name == "retval" => "return".to_string(),
            Ast::Builtin(name) if name == "retval" => "return".to_string(),
            Ast::Int(_)
            | Ast::Char(_)
            | Ast::Str(_)
            | Ast::Name(_)
            | Ast::Builtin(_)
            | Ast::Member { .. }
            | Ast::Index { .. }
            | Ast::Unary { .. }
            | Ast::Binary { .. }
            | Ast::Cond { .. }
            | Ast::Cast { .. }
            | Ast::SizeofType(_)
            | Ast::Call { .. } => expr
                .span
                .text(self.text)
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
        }
    }

    /// When an expression is read, by what it mentions.
    pub(super) fn when(&self, walk: impl FnOnce(&mut dyn FnMut(&crate::typed::Expr))) -> When {
        let mut when = When::Entry;
        walk(&mut |expr| {
            if matches!(expr.kind, ExprKind::Return | ExprKind::Builtin(Builtin::Duration)) {
                when = When::Return;
            }
        });
        when
    }

    /// Which events there are.
    fn deal(&self, parts: Parts, everything: bool) -> Vec<Event> {
        let Parts { predicates, items } = parts;
        if self.ret.is_none() {
            return vec![Event {
                phase: Phase::Hit,
                predicates,
                items,
            }];
        }
        let at = |when| items.iter().any(|i| i.when == when) || predicates.iter().any(|p| p.when == when);
        let (entry, exit) = (at(When::Entry), at(When::Return));
        if everything && predicates.is_empty() {
            // A void function's return is an event too, with nothing in it.
            let (first, second) = items.into_iter().partition(|item| item.when == When::Entry);
            return vec![
                Event {
                    phase: Phase::Entry,
                    predicates: Vec::new(),
                    items: first,
                },
                Event {
                    phase: Phase::Return,
                    predicates: Vec::new(),
                    items: second,
                },
            ];
        }
        match (entry, exit) {
            (true, true) if !predicates.is_empty() => vec![Event {
                phase: Phase::Both,
                predicates,
                items,
            }],
            (true, true) => {
                let (first, second) = items.into_iter().partition(|item| item.when == When::Entry);
                vec![
                    Event {
                        phase: Phase::Entry,
                        predicates: Vec::new(),
                        items: first,
                    },
                    Event {
                        phase: Phase::Return,
                        predicates: Vec::new(),
                        items: second,
                    },
                ]
            }
            (false, true) => vec![Event {
                phase: Phase::Return,
                predicates,
                items,
            }],
            (_, false) => vec![Event {
                phase: Phase::Entry,
                predicates,
                items,
            }],
        }
    }
}

/// The address of what a fetch expression reads, as a `char *`; the parser has made it a number of 64 bits.
pub(super) fn fetched_from(expr: &ast::Expr) -> Option<&ast::Expr> {
    let Ast::Unary { op, operand } = &expr.kind else {
        return None;
    };
    let Ast::Cast { operand: address, .. } = &operand.kind else {
        return None;
    };
    // Only a fetch expression has one span for all of it.
    (op.node == UnaryOp::Deref && op.span == expr.span && operand.span == expr.span).then_some(address)
}

fn is_relation(op: BinaryOp) -> bool {
    matches!(
        op,
        BinaryOp::Lt
            | BinaryOp::Le
            | BinaryOp::Gt
            | BinaryOp::Ge
            | BinaryOp::Eq
            | BinaryOp::Ne
            | BinaryOp::Match
    )
}

/// Whether a constant is one that nobody knows by heart: how large something is, where it lies, how many arguments there are.
pub(super) fn asks(expr: &ast::Expr) -> bool {
    match &expr.kind {
        Ast::SizeofType(_) => true,
        Ast::Call { func, args } => {
            matches!(func.node.as_str(), "sizeof" | "offsetof")
                || args
                    .iter()
                    .any(|arg| matches!(arg, ast::Arg::Expr(arg) if asks(arg)))
        }
        Ast::Unary { operand, .. } | Ast::Cast { operand, .. } => asks(operand),
        Ast::Binary { lhs, rhs, .. } => asks(lhs) || asks(rhs),
        Ast::Cond {
            cond,
            then,
            otherwise,
        } => asks(cond) || asks(then) || asks(otherwise),
        Ast::Index { base, index } => asks(base) || asks(index),
        Ast::Member { base, .. } => asks(base),
        Ast::Name(_) | Ast::Builtin(_) => is_argc(expr),
        Ast::Int(_) | Ast::Char(_) | Ast::Str(_) => false,
    }
}

fn is_argc(expr: &ast::Expr) -> bool {
    matches!(&expr.kind, Ast::Name(name) | Ast::Builtin(name) if name == "argc")
}

fn is_logical(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::LogAnd | BinaryOp::LogOr)
}

/// An item whose top operator is a comparison or logical is a predicate.
pub(super) fn is_condition(expr: &ast::Expr) -> bool {
    match &expr.kind {
        Ast::Binary { op, .. } => is_relation(op.node) || is_logical(op.node),
        Ast::Unary { op, .. } => op.node == UnaryOp::Not,
        Ast::Int(_)
        | Ast::Char(_)
        | Ast::Str(_)
        | Ast::Name(_)
        | Ast::Builtin(_)
        | Ast::Member { .. }
        | Ast::Index { .. }
        | Ast::Cond { .. }
        | Ast::Cast { .. }
        | Ast::SizeofType(_)
        | Ast::Call { .. } => false,
    }
}
