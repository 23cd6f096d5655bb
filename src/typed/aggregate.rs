//! What a query aggregates. Such a query has one event, whose items are never shown: the first are the keys, the others what
//! is measured. Plain data.

use crate::span::Span;
use crate::wire::{self, Format, Unit};

/// What is aggregated.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// How many of the event's items are keys.
    pub keys: usize,
    /// What is measured, in the order it is shown.
    pub measures: Vec<Measure>,
}

/// One aggregation.
#[derive(Clone, Debug)]
pub struct Measure {
    /// What it is called.
    pub label: String,
    /// What is done with the values.
    pub measure: wire::Measure,
    /// Which of the event's items it is about: a scalar of type `long` or `unsigned long`. `count()` is about none.
    pub item: Option<usize>,
    /// Whether the values have a sign.
    pub signed: bool,
    /// What they count.
    pub unit: Unit,
    /// How they are written, if the query says.
    pub format: Option<Format>,
    /// Where in the query it is.
    pub span: Span,
}
