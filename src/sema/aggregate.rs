//! Queries that aggregate: `count() sum(e) avg(e) min(e) max(e) hist(e) lhist(e, lo, hi, step)` and `by(e, …)`. In: the items of
//! such a query. Out: one event whose items are the keys and what is measured, and what is done with them. Such a query
//! shows nothing else: an item that is neither an aggregation nor a predicate is a mistake.

use super::ctypes::{Class, class, spell};
use super::items::is_condition;
use super::phases::together;
use super::{R, Reported, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, Arg, ExprKind as Ast};
use crate::span::Span;
use crate::typed::{
    Aggregate, Arith, Builtin, Event, Expr, ExprKind, Item, Measure, Predicate, Source, When,
};
use crate::types::{Type, TypeId, Types};
use crate::wire::{self, Format, Phase, Unit, ValueLayout};

/// Every aggregation with how it is called.
pub(super) const FUNCTIONS: [(&str, &str); 8] = [
    ("count", "count()"),
    ("sum", "sum(x)"),
    ("avg", "avg(x)"),
    ("min", "min(x)"),
    ("max", "max(x)"),
    ("hist", "hist(x)"),
    ("lhist", "lhist(x, lo, hi, step)"),
    ("by", "by(x, ...)"),
];

/// The most steps of a linear histogram.
const STEPS_MAX: i128 = 1000;
/// Typedefs that say that a number counts bytes, and those that say that it is a time.
const BYTES: [&str; 6] = [
    "size_t",
    "ssize_t",
    "loff_t",
    "__kernel_size_t",
    "__kernel_ssize_t",
    "__kernel_loff_t",
];
const TIMES: [&str; 1] = ["ktime_t"];

/// Whether a name is that of an aggregation, or `by`.
pub(super) fn is_function(name: &str) -> bool {
    FUNCTIONS.iter().any(|(known, _)| *known == name)
}

/// Whether a query aggregates.
pub(super) fn is_wanted(query: &ast::Query) -> bool {
    let items = query.items.iter().flatten();
    items.into_iter().any(|item| call_of(&item.expr).is_some())
}

/// The call of an aggregation or of `by`.
fn call_of(expr: &ast::Expr) -> Option<(&ast::Ident, &[Arg])> {
    match &expr.kind {
        Ast::Call { func, args } if is_function(&func.node) => Some((func, args)),
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
        | Ast::Call { .. } => None,
    }
}

/// The parts of a query that aggregates.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) keys: Vec<Item>,
    /// Which of them are stacks of as many frames as there is room for.
    pub(super) stacks: Vec<usize>,
    values: Vec<Item>,
    /// The index of a measure's value counts in `values`.
    measures: Vec<Measure>,
    predicates: Vec<Predicate>,
    /// Where `by` is.
    pub(super) by: Option<Span>,
    /// Which items and predicates the query itself gives their moment, by their spans.
    pub(super) forced: Vec<Span>,
}

impl Sema<'_> {
    /// The one event of a query that aggregates.
    pub(super) fn aggregation(&mut self, query: &ast::Query) -> R<(Event, Aggregate)> {
        let mut parts = Parts::default();
        let mut failed = false;
        for item in query.items.iter().flatten() {
            failed |= self.aggregate_item(item, &mut parts).is_err();
        }
        if let Some(cond) = &query.cond {
            failed |= self.filter_by(cond, &mut parts).is_err();
        }
        if failed {
            return Err(Reported);
        }
        if let (true, Some(by)) = (parts.measures.is_empty(), parts.by) {
            return self.report(
                Diagnostic::error(
                    Code::NothingAggregated,
                    by,
                    "`by` gives keys, but nothing is counted by them",
                )
                .label("needs an aggregation beside it")
                .help("for example `count(), by(comm)`"),
            );
        }
        self.fit_keys(&mut parts, query.span)?;
        let words: u32 = parts
            .measures
            .iter()
            .map(|measure| measure.measure.words(measure.signed))
            .fold(0, u32::saturating_add);
        if words.saturating_mul(8) > wire::VALUE_MAX - wire::VALUE_HEADER {
            return self.report(
                Diagnostic::error(
                    Code::BadBounds,
                    query.span,
                    "these histograms take more memory than the kernel allows for one key",
                )
                .label("too many buckets together")
                .help("ask for some of them in a query of their own"),
            );
        }
        Ok(self.one_event(parts))
    }

    fn aggregate_item(&mut self, item: &ast::Item, parts: &mut Parts) -> R<()> {
        let Some((func, args)) = call_of(&item.expr) else {
            if is_condition(&item.expr) {
                self.only_judged(item)?;
                return self.filter_by(&item.expr, parts);
            }
            let (inner, _) = self.phase_call(&item.expr)?;
            if is_condition(inner) {
                self.only_judged(item)?;
                return self.filter_by(&item.expr, parts);
            }
            self.operand(inner)?;
            let text = self.label(&item.expr);
            return self.report(
                Diagnostic::error(
                    Code::MixedAggregation,
                    item.span,
                    "a query that aggregates sends no events, so this would be seen nowhere",
                )
                .label("neither an aggregation nor a predicate")
                .help(format!("make it a key: `by({text})`"))
                .help("or ask for it in a query of its own"),
            );
        };
        if func.node == "by" {
            return self.by(item, func, args, parts);
        }
        let measure = match func.node.as_str() {
            "count" => wire::Measure::Count,
            "sum" => wire::Measure::Sum,
            "avg" => wire::Measure::Avg,
            "min" => wire::Measure::Min,
            "max" => wire::Measure::Max,
            "hist" => wire::Measure::Hist,
            _ => wire::Measure::Lhist {
                lo: 0,
                hi: 0,
                step: 0,
            },
        };
        let (value, bounds) = match (measure, args) {
            (wire::Measure::Count, []) => (None, args),
            (wire::Measure::Lhist { .. }, [Arg::Expr(value), bounds @ ..]) if bounds.len() == 3 => {
                (Some(value), bounds)
            }
            (
                wire::Measure::Sum
                | wire::Measure::Avg
                | wire::Measure::Min
                | wire::Measure::Max
                | wire::Measure::Hist,
                [Arg::Expr(value)],
            ) => (Some(value), &[] as &[Arg]),
            _ => return self.wrong_aggregation(func, item.expr.span),
        };
        let mut signed = false;
        let mut unit = Unit::None;
        let value = match value {
            Some(value) => {
                let (expr, when) = self.phase_call(value)?;
                let (typed, marks) = match when {
                    Some(_) => (self.measured(func, expr)?, Vec::new()),
                    None => self.marked(|this| this.measured(func, expr))?,
                };
                unit = unit_of(self.types, &typed);
                signed = matches!(class(self.types, &typed.ty), Class::Int { signed: true, .. });
                let ty = if signed { CType::LONG } else { CType::ULONG };
                let span = typed.span;
                let shown = typed.ty.clone();
                let typed = self.convert(typed, ty);
                let mut source = Source::Value(typed);
                if when.is_some() || !marks.is_empty() {
                    parts.forced.push(span);
                }
                let natural = self.when(|visit| source.walk(visit));
                let natural = self.settled(&marks, natural, &mut source);
                parts.values.push(Item {
                    label: self.label(expr),
                    source,
                    ty: shown,
                    value: ValueLayout::Scalar,
                    format: None,
                    when: when.unwrap_or(natural),
                    span,
                });
                Some(parts.values.len() - 1)
            }
            None => None,
        };
        let measure = match measure {
            wire::Measure::Lhist { .. } => self.bounds(bounds, signed, item.expr.span)?,
            other @ (wire::Measure::Count
            | wire::Measure::Sum
            | wire::Measure::Avg
            | wire::Measure::Min
            | wire::Measure::Max
            | wire::Measure::Hist) => other,
        };
        let (format, unit) = match &item.format {
            Some(format) => self.measure_format(format, measure, unit)?,
            None => (None, unit),
        };
        let label = match &item.label {
            Some(label) => label.node.clone(),
            None => self.label(&item.expr),
        };
        parts.measures.push(Measure {
            label,
            measure,
            item: value,
            signed,
            unit,
            format,
            span: item.span,
        });
        Ok(())
    }

    /// A condition filters and shows nothing.
    fn filter_by(&mut self, expr: &ast::Expr, parts: &mut Parts) -> R<()> {
        let (expr, forced) = self.phase_call(expr)?;
        let mut all = Vec::new();
        for conjunct in self.conjuncts(expr) {
            all.push(self.judged(conjunct, forced)?);
        }
        for judged in together(all) {
            if judged.said {
                parts.forced.push(judged.predicate.cond.span);
            }
            parts.predicates.push(judged.predicate);
        }
        Ok(())
    }

    /// What is measured: a number.
    fn measured(&mut self, func: &ast::Ident, expr: &ast::Expr) -> R<Expr> {
        let typed = self.scalar(expr)?;
        if class(self.types, &typed.ty).is_arithmetic() {
            return Ok(typed);
        }
        let name = spell(self.types, &typed.ty);
        self.report(
            Diagnostic::error(
                Code::TypeClash,
                typed.span,
                format!("`{}` takes a number", func.node),
            )
            .label(format!("its type is `{name}`"))
            .help("name a member, or count by it: `count(), by(x)`"),
        )
    }

    pub(super) fn wrong_aggregation(&mut self, func: &ast::Ident, span: Span) -> R<()> {
        let usage = FUNCTIONS
            .iter()
            .find(|(name, _)| *name == func.node)
            .map_or("", |(_, usage)| *usage);
        self.report(
            Diagnostic::error(
                Code::BadArguments,
                span,
                format!("`{}` is not called so", func.node),
            )
            .label("wrong arguments")
            .help(format!("write `{usage}`")),
        )
    }

    /// The bounds of a linear histogram: constants that make at least one step.
    fn bounds(&mut self, args: &[Arg], signed: bool, span: Span) -> R<wire::Measure> {
        let mut numbers = [0i64; 3];
        for (number, arg) in numbers.iter_mut().zip(args) {
            let expr = match arg {
                Arg::Expr(expr) => self.scalar(expr)?,
                Arg::Type(_) | Arg::Key(_) => {
                    return self.report(
                        Diagnostic::error(Code::BadBounds, arg.span(), "a number has to be here")
                            .label("this is a type"),
                    );
                }
            };
            let constant = expr
                .constant()
                .filter(|_| class(self.types, &expr.ty).is_arithmetic());
            let Some(constant) = constant else {
                return self.report(
                    Diagnostic::error(
                        Code::BadBounds,
                        expr.span,
                        "the bounds of a histogram are constant integers",
                    )
                    .label("not constant"),
                );
            };
            *number = constant;
        }
        let [lo, hi, step] = numbers;
        let width = i128::from(hi) - i128::from(lo);
        let wrong = match () {
            () if step <= 0 => Some(format!("a step of {step} leads nowhere")),
            () if width <= 0 => Some(format!("there is nothing from {lo} up to {hi}")),
            () if !signed && lo < 0 => Some("an unsigned number is never negative".to_string()),
            () if width % i128::from(step) != 0 => Some(format!("{width} is no multiple of the step {step}")),
            () if width / i128::from(step) > STEPS_MAX => Some(format!(
                "{} steps are more than {STEPS_MAX}",
                width / i128::from(step)
            )),
            () => None,
        };
        match wrong {
            None => Ok(wire::Measure::Lhist { lo, hi, step }),
            Some(why) => self.report(
                Diagnostic::error(Code::BadBounds, span, "these bounds make no histogram")
                    .label(why)
                    .help("write `lhist(x, lo, hi, step)`: values from lo up to hi, not included, each step a bucket"),
            ),
        }
    }

    /// The format of an aggregation is a unit, or that of a number.
    fn measure_format(
        &mut self,
        format: &ast::Ident,
        measure: wire::Measure,
        unit: Unit,
    ) -> R<(Option<Format>, Unit)> {
        let named = match format.node.as_str() {
            "ns" => Some(Unit::Nanoseconds),
            "bytes" => Some(Unit::Bytes),
            _ => None,
        };
        let chosen = match named {
            Some(_) => None,
            None => Some(self.format(format)?.format),
        };
        let plain = match measure {
            wire::Measure::Sum | wire::Measure::Avg | wire::Measure::Min | wire::Measure::Max => true,
            wire::Measure::Count | wire::Measure::Hist | wire::Measure::Lhist { .. } => false,
        };
        let found = match (named, chosen) {
            (Some(named), _) if measure != wire::Measure::Count => Some((None, named)),
            // A plain number has no unit.
            (_, Some(Format::Signed | Format::Unsigned)) if unit != Unit::None || plain => {
                Some((None, Unit::None))
            }
            (_, Some(chosen @ (Format::Hex | Format::Octal | Format::Binary))) if plain => {
                Some((Some(chosen), Unit::None))
            }
            (_, Some(_) | None) => None,
        };
        match found {
            Some(found) => Ok(found),
            None => self.report(
                Diagnostic::error(
                    Code::BadFormat,
                    format.span,
                    format!("format `{}` does not fit this aggregation", format.node),
                )
                .label("can't show it so")
                .note("numbers take d u x o b, and all but counts the units ns and bytes"),
            ),
        }
    }

    /// Puts keys and values into one event. What is the same at entry and at return is read where the rest is, so that nothing
    /// has to be kept from one to the other for its sake.
    fn one_event(&self, parts: Parts) -> (Event, Aggregate) {
        let Parts {
            keys,
            stacks: _,
            values,
            measures,
            mut predicates,
            by: _,
            forced,
        } = parts;
        let aggregate = Aggregate {
            keys: keys.len(),
            measures: measures
                .into_iter()
                .map(|measure| Measure {
                    item: measure.item.map(|value| keys.len() + value),
                    ..measure
                })
                .collect(),
        };
        let mut items: Vec<Item> = keys.into_iter().chain(values).collect();
        let at = |items: &[Item], predicates: &[Predicate], when| {
            items.iter().any(|item| item.when == when) || predicates.iter().any(|p| p.when == when)
        };
        let phase = if self.ret.is_none() {
            Phase::Hit
        } else if at(&items, &predicates, When::Return) {
            for item in &mut items {
                if !forced.contains(&item.span) && is_timeless(|visit| item.source.walk(visit)) {
                    item.when = When::Return;
                }
            }
            for predicate in &mut predicates {
                if !forced.contains(&predicate.cond.span) && is_timeless(|visit| predicate.cond.walk(visit)) {
                    predicate.when = When::Return;
                }
            }
            if at(&items, &predicates, When::Entry) {
                Phase::Both
            } else {
                Phase::Return
            }
        } else {
            Phase::Entry
        };
        let event = Event {
            phase,
            predicates,
            items,
        };
        (event, aggregate)
    }
}

/// Whether an expression has the same value all through a call: it is about the task, or constant.
fn is_timeless(walk: impl FnOnce(&mut dyn FnMut(&Expr))) -> bool {
    let mut timeless = true;
    walk(&mut |expr| {
        timeless &= match &expr.kind {
            ExprKind::Builtin(
                Builtin::Pid | Builtin::Tid | Builtin::Uid | Builtin::Gid | Builtin::Cgroup | Builtin::Task,
            ) => true,
            ExprKind::Builtin(
                Builtin::Cpu | Builtin::Ktime | Builtin::Duration | Builtin::Stack | Builtin::Register(_),
            )
            | ExprKind::Arg(_)
            | ExprKind::Return
            | ExprKind::Load(_)
            | ExprKind::AddrOf(_) => false,
            // These are what their parts are, and the walk comes to those.
            ExprKind::Const(_)
            | ExprKind::Neg(_)
            | ExprKind::BitNot(_)
            | ExprKind::Arith { .. }
            | ExprKind::Convert(_)
            | ExprKind::Compare { .. }
            | ExprKind::Not(_)
            | ExprKind::And(..)
            | ExprKind::Or(..)
            | ExprKind::Cond(..)
            | ExprKind::StrCompare { .. }
            | ExprKind::BytesCompare { .. }
            | ExprKind::Layout { .. }
            | ExprKind::Checked { .. }
            | ExprKind::Swap(_)
            | ExprKind::IsErr(_)
            | ExprKind::AsUser(_)
            | ExprKind::AtEntry(_) => true,
        };
    });
    timeless
}

/// What a number counts, as far as its type or the way it is made tells.
fn unit_of(types: &Types, expr: &Expr) -> Unit {
    if let CType::Btf(id) = &expr.ty
        && let Some(unit) = unit_of_type(types, *id)
    {
        return unit;
    }
    match &expr.kind {
        ExprKind::Builtin(Builtin::Ktime | Builtin::Duration) => Unit::Nanoseconds,
        ExprKind::Convert(inner) | ExprKind::Neg(inner) | ExprKind::AtEntry(inner) => unit_of(types, inner),
        ExprKind::Arith {
            op: Arith::Add | Arith::Sub,
            lhs,
            rhs,
        } => match (unit_of(types, lhs), unit_of(types, rhs)) {
            (Unit::None, other) | (other, Unit::None) => other,
            (one, other) if one == other => one,
            (_, _) => Unit::None,
        },
        ExprKind::Cond(_, one, other) if unit_of(types, one) == unit_of(types, other) => unit_of(types, one),
        ExprKind::Const(_)
        | ExprKind::Arg(_)
        | ExprKind::Return
        | ExprKind::Builtin(_)
        | ExprKind::Load(_)
        | ExprKind::AddrOf(_)
        | ExprKind::BitNot(_)
        | ExprKind::Arith { .. }
        | ExprKind::Compare { .. }
        | ExprKind::Not(_)
        | ExprKind::And(..)
        | ExprKind::Or(..)
        | ExprKind::Cond(..)
        | ExprKind::StrCompare { .. }
        | ExprKind::BytesCompare { .. }
        | ExprKind::Layout { .. }
        | ExprKind::Checked { .. }
        | ExprKind::Swap(_)
        | ExprKind::IsErr(_)
        | ExprKind::AsUser(_) => Unit::None,
    }
}

fn unit_of_type(types: &Types, id: TypeId) -> Option<Unit> {
    let mut id = id;
    // As many as `Types` follows itself.
    for _ in 0..64 {
        id = match types.get(id) {
            Type::Typedef(to) => {
                let name = types.c_name(id);
                if BYTES.contains(&name.as_str()) {
                    return Some(Unit::Bytes);
                }
                if TIMES.contains(&name.as_str()) {
                    return Some(Unit::Nanoseconds);
                }
                to
            }
            Type::Const(to) | Type::Volatile(to) | Type::Restrict(to) => to,
            Type::Void
            | Type::Int(_)
            | Type::Float { .. }
            | Type::Ptr(_)
            | Type::Array { .. }
            | Type::Struct(_)
            | Type::Union(_)
            | Type::Enum(_)
            | Type::Fwd { .. }
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => return None,
        };
    }
    None
}
