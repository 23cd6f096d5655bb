//! The frame of a Chrome trace: which events are slices, which threads there are, and commas. In: records and layouts.
//! Out: text appended to a string; events themselves are written by `lines`. Never lets an end stand without its beginning:
//! a viewer would close another call with it.
//!
//! The form is the Trace Event Format's JSON array, which may end anywhere, so that a run that is killed leaves a trace.

use std::collections::{BTreeMap, BTreeSet};

use crate::wire::{Phase, RecordLayout};

use super::digits::push_u128;
use super::lines::{Slice, micros, row};
use super::{Header, Notice, Thread, json};

/// What has been begun in a trace.
pub(super) struct Calls {
    /// For each layout and each of its functions: another layout tells the other end of its calls.
    paired: Vec<Vec<bool>>,
    /// For each row, the calls that are open, the innermost last.
    open: BTreeMap<u32, Vec<Open>>,
    /// Nothing has been written yet.
    first: bool,
    /// The latest time that was seen.
    last: u64,
}

/// A call that has begun.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// The layout of its beginning, and which of its functions it is.
    layout: usize,
    function: usize,
    pid: u32,
}

/// Calls inside each other that are kept of one thread: more are recursion that has lost its ends.
const OPEN_MAX: usize = 1024;

impl Calls {
    pub(super) fn new(layouts: &[RecordLayout]) -> Calls {
        let ends: BTreeSet<(usize, &str, bool)> = layouts
            .iter()
            .filter_map(|layout| Some((layout, is_return(layout.phase)?)))
            .flat_map(|(layout, is_return)| {
                let names = layout.names.iter();
                names.map(move |name| (layout.query, name.as_str(), is_return))
            })
            .collect();
        let paired = |layout: &RecordLayout| {
            let is_return = is_return(layout.phase);
            let names = layout.names.iter();
            names
                .map(|name| is_return.is_some_and(|is| ends.contains(&(layout.query, name.as_str(), !is))))
                .collect()
        };
        Calls {
            paired: layouts.iter().map(paired).collect(),
            open: BTreeMap::new(),
            first: true,
            last: 0,
        }
    }

    pub(super) fn begin(&mut self, out: &mut String) {
        out.push('[');
    }

    /// The trace has events already. Calls that are open in it end as if they had begun before tracing did.
    pub(super) fn go_on(&mut self) {
        self.first = false;
    }

    pub(super) fn end(&mut self, out: &mut String) {
        // What is still open when the run ends has no end; viewers draw it to the end of the trace.
        out.push_str("\n]\n");
    }

    /// What a record of that layout and function is; `took` is how long the call was, if it tells that. Calls that it shows to have
    /// ended unseen are ended first.
    pub(super) fn slice(
        &mut self,
        record: &[u8],
        call: Option<(usize, usize)>,
        took: Option<u64>,
        layouts: &[RecordLayout],
        out: &mut String,
    ) -> Slice {
        let slice = match (call, Header::of(record)) {
            (Some((layout, function)), Some(header)) => {
                self.last = self.last.max(header.time);
                match self.call(layout, function, &header, layouts, out) {
                    // Nothing else tells of its beginning.
                    Slice::Instant => took.map_or(Slice::Instant, Slice::Whole),
                    slice @ (Slice::Begin | Slice::End | Slice::Whole(_)) => slice,
                }
            }
            (_, _) => Slice::Instant,
        };
        self.separate(out);
        slice
    }

    fn call(
        &mut self,
        layout: usize,
        function: usize,
        header: &Header,
        layouts: &[RecordLayout],
        out: &mut String,
    ) -> Slice {
        let paired = self.paired.get(layout).and_then(|all| all.get(function));
        let returns = layouts.get(layout).and_then(|layout| is_return(layout.phase));
        let row = row(header.tid, header.cpu);
        match (paired, returns) {
            (Some(true), Some(true)) => self.end_call(layout, function, row, header.time, layouts, out),
            (Some(true), Some(false)) => {
                let open = self.open.entry(row).or_default();
                if open.len() >= OPEN_MAX {
                    return Slice::Instant;
                }
                open.push(Open {
                    layout,
                    function,
                    pid: header.pid,
                });
                Slice::Begin
            }
            (Some(true), None) | (Some(false) | None, _) => Slice::Instant,
        }
    }

    fn end_call(
        &mut self,
        layout: usize,
        function: usize,
        row: u32,
        time: u64,
        layouts: &[RecordLayout],
        out: &mut String,
    ) -> Slice {
        let name = |layout: usize, function: usize| {
            let layout = layouts.get(layout)?;
            Some((layout.query, layout.names.get(function)?.as_str()))
        };
        let ended = name(layout, function);
        let open = self.open.entry(row).or_default();
        let begun = open
            .iter()
            .rposition(|open| name(open.layout, open.function) == ended);
        let Some(begun) = begun else {
            // It began before tracing did, or its beginning was lost.
            return Slice::Instant;
        };
        let unseen = open.split_off(begun);
        for call in unseen.iter().skip(1).rev() {
            self.separate(out);
            out.push_str("{\"ph\":\"E\",\"name\":");
            json::string(out, name(call.layout, call.function).map_or("", |(_, name)| name));
            out.push_str(",\"ts\":");
            micros(out, time);
            ids(out, call.pid, row);
            out.push_str(",\"args\":{\"$cut\":{\"reason\":\"no return was seen\"}}}");
        }
        Slice::End
    }

    pub(super) fn thread(&mut self, thread: &Thread<'_>, out: &mut String) {
        let row = row(thread.tid, thread.cpu);
        if let Some(process) = thread.process {
            self.metadata("process_name", process, thread.pid, row, out);
        }
        if let Some(name) = thread.name {
            self.metadata("thread_name", name, thread.pid, row, out);
        }
    }

    fn metadata(&mut self, what: &str, name: &str, pid: u32, row: u32, out: &mut String) {
        self.separate(out);
        out.push_str("{\"ph\":\"M\",\"name\":\"");
        out.push_str(what);
        out.push('"');
        ids(out, pid, row);
        out.push_str(",\"args\":{\"name\":");
        json::string(out, name);
        out.push_str("}}");
    }

    /// A notice is an event of its own, seen by everybody, at the end of what has been seen so far.
    pub(super) fn notice(&mut self, notice: &Notice<'_>, out: &mut String) {
        let (title, count) = match notice {
            Notice::Lost { name, count, .. } => (format!("{name}: events lost"), Some(*count)),
            Notice::Faults { name, count, .. } => (format!("{name}: faults in predicates"), Some(*count)),
            Notice::Error { message, .. } => (format!("error: {message}"), None),
            // A trace has no place for what is aggregated.
            Notice::Uncounted { .. } | Notice::End { .. } => return,
        };
        self.separate(out);
        out.push_str("{\"ph\":\"i\",\"s\":\"g\",\"name\":");
        json::string(out, &title);
        out.push_str(",\"cat\":\"notice\",\"ts\":");
        micros(out, self.last);
        ids(out, 0, 0);
        out.push_str(",\"args\":{");
        if let Some(count) = count {
            out.push_str("\"count\":");
            json::unsigned(out, u128::from(count));
        }
        out.push_str("}}");
    }

    fn separate(&mut self, out: &mut String) {
        out.push_str(if self.first { "\n" } else { ",\n" });
        self.first = false;
    }
}

/// Whether events of the phase end a call, or begin one; `None` if neither.
fn is_return(phase: Phase) -> Option<bool> {
    match phase {
        Phase::Entry => Some(false),
        Phase::Return => Some(true),
        Phase::Both | Phase::Hit => None,
    }
}

fn ids(out: &mut String, pid: u32, row: u32) {
    out.push_str(",\"pid\":");
    push_u128(out, u128::from(pid));
    out.push_str(",\"tid\":");
    push_u128(out, u128::from(row));
}
