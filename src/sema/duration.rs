//! How long calls took, where whoever shows events has to know although the query does not ask: a trace draws a call from its
//! entry to its return. In: a query's events. Out: the same with an item more. Never makes two events of one, or one of two.

use crate::ctype::CType;
use crate::span::Span;
use crate::typed::{Builtin, Event, Expr, ExprKind, Item, Source, When};
use crate::wire::{DURATION, Phase, ValueLayout};

/// Adds an item called [`DURATION`] to each event that tells of a whole call: one with values of the entry and of the return, or one at
/// the return for which the time of the entry is kept anyway.
pub(super) fn add(events: &mut [Event], span: Span) {
    let duration = ExprKind::Builtin(Builtin::Duration);
    for event in events {
        let wanted = match event.phase {
            Phase::Both => true,
            Phase::Return => event.mentions(&duration),
            Phase::Entry | Phase::Hit => false,
        };
        if wanted {
            event.items.push(Item {
                label: DURATION.to_string(),
                source: Source::Value(Expr {
                    kind: duration.clone(),
                    ty: CType::ULONG,
                    span,
                }),
                ty: CType::ULONG,
                value: ValueLayout::Scalar,
                format: None,
                when: When::Return,
                span,
            });
        }
    }
}
