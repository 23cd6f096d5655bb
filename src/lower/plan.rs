//! What a call's entry has to keep for its return. In: an event, and the kind of the program that makes it. Out: what that program
//! needs and does not find at its own moment. It writes no instruction.

use super::ProgramKind;
use crate::typed::{Builtin, Event, Expr, ExprKind, Source, When};
use crate::wire::{Phase, ValueLayout};

/// Whether a program of that kind needs another at the entry, which keeps something for it.
pub fn keeps(event: &Event, kind: ProgramKind) -> bool {
    Plan::of(event, kind).is_some()
}

/// What has to be kept.
pub(super) struct Plan {
    /// Arguments that the return needs and does not have, by index.
    pub(super) args: Vec<usize>,
    /// Whether the return asks how long the call took.
    pub(super) stamp: bool,
    /// What the return computes with as it was at entry ([`ExprKind::AtEntry`]); and the item that is kept anyway, if one is just
    /// that.
    pub(super) values: Vec<(Expr, Option<usize>)>,
}

impl Plan {
    /// `None` if the program at `kind` sees all that the event needs by itself, and for an event that is made at the entry.
    pub(super) fn of(event: &Event, kind: ProgramKind) -> Option<Plan> {
        match event.phase {
            // A session is asked with what it is at the return, whichever moment the event belongs to.
            Phase::Entry | Phase::Hit => return None,
            Phase::Return | Phase::Both => {}
        }
        let stamp = event.mentions(&ExprKind::Builtin(Builtin::Duration));
        let mut values = Vec::new();
        event.walk(&mut |expr| {
            if let ExprKind::AtEntry(inner) = &expr.kind
                && !values.iter().any(|(known, _)| *known == **inner)
            {
                values.push(((**inner).clone(), kept_anyway(event, inner)));
            }
        });
        match kind {
            ProgramKind::Fentry
            | ProgramKind::FentryMulti
            | ProgramKind::Kprobe
            | ProgramKind::TpBtf
            | ProgramKind::RawTp
            | ProgramKind::Fsession
            | ProgramKind::FsessionMulti
            | ProgramKind::KprobeSession
            | ProgramKind::Uprobe
            | ProgramKind::UprobeSession => None,
            ProgramKind::Fexit | ProgramKind::FexitMulti => {
                // A trampoline still has the arguments at return, but not the memory as it was at entry, nor where and as whom
                // the task ran then.
                let reads = event.items.iter().any(|item| {
                    item.when == When::Entry
                        && (item.source.may_change()
                            || !matches!(item.value, ValueLayout::Scalar | ValueLayout::Name))
                }) || event
                    .predicates
                    .iter()
                    .any(|predicate| predicate.when == When::Entry && predicate.cond.may_change());
                (reads || stamp || !values.is_empty()).then(|| Plan {
                    args: Vec::new(),
                    stamp,
                    values,
                })
            }
            ProgramKind::Kretprobe | ProgramKind::Uretprobe => {
                let mut args = Vec::new();
                let mut look = |expr: &Expr| {
                    if let ExprKind::Arg(index) = expr.kind
                        && !args.contains(&index)
                    {
                        args.push(index);
                    }
                    // What the entry has worked out needs its arguments no more.
                    !matches!(expr.kind, ExprKind::AtEntry(_))
                };
                for item in event.items.iter().filter(|item| item.when == When::Return) {
                    item.source.descend(&mut look);
                }
                for predicate in event.predicates.iter().filter(|p| p.when == When::Return) {
                    predicate.cond.descend(&mut look);
                }
                args.sort_unstable();
                let entry = event.items.iter().any(|item| item.when == When::Entry)
                    || event
                        .predicates
                        .iter()
                        .any(|predicate| predicate.when == When::Entry);
                (entry || stamp || !args.is_empty() || !values.is_empty()).then_some(Plan {
                    args,
                    stamp,
                    values,
                })
            }
        }
    }
}

/// The item that shows this value as it is at entry.
fn kept_anyway(event: &Event, expr: &Expr) -> Option<usize> {
    event.items.iter().position(|item| {
        item.when == When::Entry
            && item.value == ValueLayout::Scalar
            && matches!(&item.source, Source::Value(shown) if shown == expr)
    })
}
