//! What is told besides events. In: losses, faults, errors, the beginning and the end of a run. Out: for JSON, one object a
//! line; for other formats it is plain data. Never counts anything itself.

use std::collections::BTreeSet;

use crate::span::Span;
use crate::wire::{Phase, RecordLayout, ValueLayout};

use super::json;
use super::shape::Shapes;
use super::sink::Label;
use super::time::Stamp;

/// Something to be told besides events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'x> {
    /// So many events of a function or tracepoint, all in all, found the buffer full.
    Lost {
        /// The function or tracepoint.
        name: &'x str,
        /// Which of the queries it belongs to.
        query: usize,
        /// How many.
        count: u64,
    },
    /// In so many predicates, all in all, a pointer was bad, so that they did not hold.
    Faults {
        /// The function or tracepoint.
        name: &'x str,
        /// Which of the queries it belongs to.
        query: usize,
        /// How many.
        count: u64,
    },
    /// So many hits of a query that aggregates, all in all, were counted nowhere.
    Uncounted {
        /// The function or tracepoint.
        name: &'x str,
        /// Which of the queries it belongs to.
        query: usize,
        /// How many.
        count: u64,
        /// Why.
        reason: Uncounted,
    },
    /// Something went wrong.
    Error {
        /// The stable code of a mistake in a query.
        code: Option<&'x str>,
        /// In words.
        message: &'x str,
        /// The query, and what is meant in it.
        place: Option<(&'x str, Span)>,
    },
    /// The run is over.
    End {
        /// Events that were written.
        events: u64,
        /// Events that were lost.
        lost: u64,
        /// Events that came too late to be put in order.
        late: u64,
    },
}

/// Why a hit was not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncounted {
    /// There was no room for its key.
    Keys,
    /// A key or a value could not be read: a bad pointer, a division by zero, an index out of bounds.
    Fault,
}

impl Notice<'_> {
    /// Appends the notice as a line of JSON.
    pub fn json(&self, out: &mut String) {
        match self {
            Notice::Lost { name, query, count } => counted(out, "lost", name, *query, *count),
            Notice::Faults { name, query, count } => counted(out, "faults", name, *query, *count),
            Notice::Uncounted {
                name,
                query,
                count,
                reason,
            } => {
                counted(out, "uncounted", name, *query, *count);
                out.push_str(match reason {
                    Uncounted::Keys => ",\"reason\":\"keys\"",
                    Uncounted::Fault => ",\"reason\":\"fault\"",
                });
            }
            Notice::Error { code, message, place } => {
                out.push_str("{\"type\":\"error\",\"message\":");
                json::string(out, message);
                if let Some(code) = code {
                    out.push_str(",\"code\":");
                    json::string(out, code);
                }
                if let Some((query, span)) = place {
                    out.push_str(",\"query\":");
                    json::string(out, query);
                    field(out, "start", u64::from(span.start));
                    field(out, "end", u64::from(span.end));
                }
            }
            Notice::End { events, lost, late } => {
                out.push_str("{\"type\":\"end\"");
                field(out, "events", *events);
                field(out, "lost", *lost);
                field(out, "late", *late);
            }
        }
        out.push_str("}\n");
    }
}

fn counted(out: &mut String, what: &str, name: &str, query: usize, count: u64) {
    out.push_str("{\"type\":\"");
    out.push_str(what);
    out.push_str("\",\"name\":");
    json::string(out, name);
    field(out, "query", query as u64);
    field(out, "count", count);
}

/// A member that is a number, after others.
pub(super) fn field(out: &mut String, name: &str, value: u64) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":");
    json::unsigned(out, u128::from(value));
}

/// Appends the first object of a run: the version of the form, the queries, and what the values of each event are in C.
pub(super) fn start(
    queries: &[&str],
    layouts: &[RecordLayout],
    shapes: &mut Shapes<'_>,
    stamp: Stamp,
    out: &mut String,
) {
    out.push_str("{\"type\":\"start\"");
    field(out, "schema", u64::from(json::VERSION));
    out.push_str(",\"clock\":\"");
    out.push_str(match stamp {
        Stamp::Monotonic => "monotonic",
        Stamp::Boot => "boot",
        Stamp::Wall => "wall",
        Stamp::Relative => "relative",
        Stamp::Delta => "delta",
    });
    out.push_str("\",\"queries\":[");
    for (index, query) in queries.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        json::string(out, query);
    }
    out.push_str("],\"events\":[");
    let functions = layouts
        .iter()
        .flat_map(|layout| layout.names.iter().map(move |name| (layout, name)));
    for (index, (layout, name)) in functions.enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str("{\"name\":");
        json::string(out, name);
        out.push_str(",\"phase\":\"");
        out.push_str(phase(layout.phase));
        out.push('"');
        field(out, "query", layout.query as u64);
        out.push_str(",\"values\":[");
        let mut names = BTreeSet::new();
        for (index, item) in layout.items.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            // As the events call them, without the colon.
            let key = Label::new(&item.label, false, &mut names).key;
            out.push_str("{\"name\":");
            out.push_str(key.strip_suffix(':').unwrap_or(&key));
            out.push_str(",\"type\":");
            match item.value {
                // No type of C.
                ValueLayout::Stack { user: false, .. } => json::string(out, "kernel stack"),
                ValueLayout::Stack { user: true, .. } => json::string(out, "user stack"),
                ValueLayout::Scalar
                | ValueLayout::Pointee { .. }
                | ValueLayout::Bytes { .. }
                | ValueLayout::String { .. }
                | ValueLayout::Name
                | ValueLayout::Buffer { .. } => json::string(out, &shapes.of_ctype(&item.ty).cast),
            }
            out.push('}');
        }
        out.push_str("]}");
    }
    out.push_str("]}\n");
}

/// Appends the object that ends what was aggregated up to a time, which is JSON already.
pub(super) fn interval(number: u64, stamp: &str, out: &mut String) {
    out.push_str("{\"type\":\"interval\"");
    field(out, "number", number);
    out.push_str(",\"time\":");
    out.push_str(stamp);
    out.push_str("}\n");
}

/// What JSON calls the time of a call at which an event is made.
pub(super) fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Entry => "entry",
        Phase::Return => "return",
        Phase::Both => "call",
        Phase::Hit => "hit",
    }
}
