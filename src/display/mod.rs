//! Events as text. In: layouts, the kernel's types, and records: bytes as the ring buffer gave them. Out: text appended to
//! a string. Never does I/O, never panics, whatever the bytes are; the same bytes give the same text.
//!
//! A walk through a record (`walk`) decides what is shown and tells it to a sink (`sink`), one for each output format,
//! which decides how it is written.

mod aggregate;
mod bytes;
mod chrome;
mod compact;
mod digits;
mod escape;
pub mod json;
mod leaf;
mod lines;
mod notice;
mod number;
mod paint;
mod shape;
mod sink;
mod stack;
mod text;
mod time;
mod walk;
mod width;

#[cfg(test)]
mod tests;

pub use aggregate::{AggregatePrinter, Bucket, Measured, RawRow, Row, rename};

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::types::Types;
use crate::wire::{self, Phase, RecordLayout, ValueLayout};

use bytes::{u32_at, u64_at};
use chrome::Calls;
use compact::CompactSink;
use lines::{Form, JsonSink};
use paint::Paint;
use shape::{Shapes, name_hint};
use sink::{Event, Label, Leaf, Sink};
use text::TextSink;
use time::Stamper;
use walk::{ItemPlan, Walker};

pub use notice::{Notice, Uncounted};
pub use time::{Clock, Stamp};

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As ksnoop does: a line for each member.
    Text,
    /// One line an event.
    Compact,
    /// One JSON object a line; `json::SCHEMA` describes it.
    Json,
    /// The Trace Event Format that Chrome's tracing and Perfetto read.
    Chrome,
}

/// What is shown, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How events are written.
    pub format: Layout,
    /// Structs inside each other that are shown; deeper ones are `{...}`. Anonymous ones don't count.
    pub depth: u32,
    /// Bytes of a string that are shown.
    pub max_string: u32,
    /// Elements of an array that are shown; a folded run counts as one.
    pub max_array: u32,
    /// Show members that are zero, and the zeros at the end of arrays.
    pub zeros: bool,
    /// Write escape sequences for colour. Never in JSON.
    pub color: bool,
    /// Which time is shown. A Chrome trace has its own.
    pub stamp: Stamp,
    /// Columns that a line of the compact format may take; 0 for any number.
    pub columns: u32,
}

impl Options {
    /// What is usual for a format: everything in ksnoop's layout and in JSON, what fits a line in the compact one.
    pub fn new(format: Layout) -> Options {
        let (depth, max_string, max_array) = match format {
            Layout::Text | Layout::Json => (32, 4096, 256),
            Layout::Compact => (1, 64, 8),
            // What is looked at by clicking on it.
            Layout::Chrome => (4, 256, 16),
        };
        Options {
            format,
            depth,
            max_string,
            max_array,
            zeros: false,
            color: false,
            stamp: Stamp::Monotonic,
            columns: 0,
        }
    }
}

/// Gives kernel addresses names.
pub trait Symbols {
    /// The symbol that an address lies in, if one is known.
    fn resolve(&self, address: u64) -> Option<Symbol<'_>>;

    /// Where an address of a process lies.
    fn resolve_user(&self, _pid: u32, _address: u64) -> Place<'_> {
        Place::Unknown
    }
}

/// Where an address of code lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<'s> {
    /// In a function.
    Symbol(Symbol<'s>),
    /// In a file that a process has mapped, where no symbol is known.
    Mapped {
        /// The file's name.
        file: Cow<'s, str>,
        /// Bytes from its start.
        offset: u64,
    },
    /// Nobody knows.
    Unknown,
    /// Nobody knows any more: the process had ended before it could be looked at.
    Gone,
}

/// Where an address lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol<'s> {
    /// The symbol.
    pub name: Cow<'s, str>,
    /// Bytes from its start.
    pub offset: u64,
    /// The module it is in, if it is in one.
    pub module: Option<Cow<'s, str>>,
}

/// Knows no symbol: addresses stay numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSymbols;

impl Symbols for NoSymbols {
    fn resolve(&self, _address: u64) -> Option<Symbol<'_>> {
        None
    }
}

/// Turns records into text.
pub struct Printer<'a> {
    layouts: &'a [RecordLayout],
    /// One for each layout.
    plans: Vec<Plan>,
    /// Event numbers with their layouts' indices, in order.
    by_event: Vec<(u32, usize)>,
    shapes: Shapes<'a>,
    options: Options,
    stamper: Stamper,
    /// The time of the event that is being written; kept so that it need not be made anew for each.
    stamp: String,
    /// What a Chrome trace has open.
    calls: Calls,
}

/// What is worked out once for each layout.
struct Plan {
    names: Vec<Box<str>>,
    items: Vec<ItemPlan>,
    /// It tells of the return of a function that has nothing to show.
    bare_return: Option<Label>,
    /// Which of its values is how long the call took.
    duration: Option<usize>,
}

impl<'a> Printer<'a> {
    /// A printer for the records of these layouts.
    pub fn new(types: &'a Types, layouts: &'a [RecordLayout], options: Options) -> Printer<'a> {
        let mut shapes = Shapes::new(types);
        let plans = layouts
            .iter()
            .map(|layout| Plan::new(layout, &mut shapes))
            .collect();
        let mut by_event: Vec<(u32, usize)> = layouts
            .iter()
            .enumerate()
            .map(|(index, layout)| (layout.event, index))
            .collect();
        by_event.sort_unstable();
        Printer {
            layouts,
            plans,
            by_event,
            shapes,
            stamper: Stamper::new(options.stamp),
            stamp: String::new(),
            calls: Calls::new(layouts),
            options,
        }
    }

    /// How clocks stand to each other from now on. Without it all are the kernel's monotonic one.
    pub fn set_clock(&mut self, clock: Clock) {
        self.stamper.set(clock);
    }

    /// Appends what comes before all events: a line of column titles, an object that tells what follows (of these queries),
    /// or the beginning of a trace.
    pub fn begin(&mut self, queries: &[&str], out: &mut String) {
        match self.options.format {
            Layout::Text => out.push_str(&text::header(self.stamper.width())),
            Layout::Compact => {}
            Layout::Json => notice::start(queries, self.layouts, &mut self.shapes, self.options.stamp, out),
            Layout::Chrome => self.calls.begin(out),
        }
    }

    /// Goes on where another printer, of other layouts, has left off, instead of [`Printer::begin`].
    pub fn go_on(&mut self) {
        self.calls.go_on();
    }

    /// Appends one record as text. Text and JSON end in a newline.
    pub fn event(&mut self, record: &[u8], out: &mut String, symbols: &dyn Symbols) {
        let paint = Paint::new(self.options.color);
        match self.options.format {
            Layout::Text => self.show(record, TextSink::new(out, paint), symbols),
            Layout::Compact => {
                let sink = CompactSink::new(out, paint, self.options.columns as usize);
                self.show(record, sink, symbols);
            }
            Layout::Json => self.show(record, JsonSink::new(out, Form::Lines), symbols),
            Layout::Chrome => {
                let call = u32_at(record, wire::EVENT).and_then(|number| self.layout_of(number));
                let took = call.and_then(|(layout, _)| self.took(layout, record));
                let slice = self.calls.slice(record, call, took, self.layouts, out);
                self.show(record, JsonSink::new(out, Form::Chrome(slice)), symbols);
            }
        }
    }

    /// Appends what is to be told besides events. The text formats leave that to whoever calls, and append nothing.
    pub fn notice(&mut self, notice: &Notice<'_>, out: &mut String) {
        match self.options.format {
            Layout::Text | Layout::Compact => {}
            Layout::Json => notice.json(out),
            Layout::Chrome => self.calls.notice(notice, out),
        }
    }

    /// Appends what stands before all that is aggregated up to a time of the monotonic clock, in nanoseconds, where that is printed several
    /// times: a line of text with the number of this time, from 1. JSON has it behind the rows.
    pub fn begin_interval(&mut self, number: u64, time: u64, out: &mut String) {
        match self.options.format {
            Layout::Text | Layout::Compact => {
                self.stamp.clear();
                self.stamper.text(&mut self.stamp, time);
                out.push_str(&format!("--- {number}: {} ---\n", self.stamp.trim_start()));
            }
            Layout::Json | Layout::Chrome => {}
        }
    }

    /// Appends what stands behind all that is aggregated up to a time: an object with its number, from 1. Text has none.
    pub fn end_interval(&mut self, number: u64, time: u64, out: &mut String) {
        match self.options.format {
            Layout::Json => {
                self.stamp.clear();
                self.stamper.json(&mut self.stamp, time);
                notice::interval(number, &self.stamp, out);
            }
            Layout::Text | Layout::Compact | Layout::Chrome => {}
        }
    }

    /// Appends what a thread and its process are called, in a trace. The other formats have no place for it.
    pub fn thread(&mut self, thread: &Thread<'_>, out: &mut String) {
        match self.options.format {
            Layout::Text | Layout::Compact | Layout::Json => {}
            Layout::Chrome => self.calls.thread(thread, out),
        }
    }

    /// Appends what comes after all events.
    pub fn end(&mut self, out: &mut String) {
        match self.options.format {
            Layout::Text | Layout::Compact | Layout::Json => {}
            Layout::Chrome => self.calls.end(out),
        }
    }

    /// The layout of an event's number, and which of its functions it is.
    fn layout_of(&self, number: u32) -> Option<(usize, usize)> {
        // The last layout that begins at or before the number.
        let last = self.by_event.partition_point(|(event, _)| *event <= number);
        let (event, index) = self.by_event.get(last.checked_sub(1)?)?;
        Some((*index, (number - event) as usize))
    }

    /// How long the call took that a record tells of.
    fn took(&self, layout: usize, record: &[u8]) -> Option<u64> {
        let index = self.plans.get(layout)?.duration?;
        let item = self.layouts.get(layout)?.items.get(index)?;
        let fault = u32_at(record, item.offset.checked_add(wire::FAULT)?)?;
        let nanos = u64_at(record, item.offset.checked_add(wire::VALUE)?)?;
        (fault == 0).then_some(nanos)
    }

    fn show<S: Sink>(&mut self, record: &[u8], mut sink: S, symbols: &dyn Symbols) {
        let Some(number) = u32_at(record, wire::EVENT) else {
            return sink.no_event();
        };
        let found = self.layout_of(number).and_then(|(index, function)| {
            let plan = self.plans.get(index)?;
            Some((self.layouts.get(index)?, plan, plan.names.get(function)?))
        });
        let Some((layout, plan, name)) = found else {
            return sink.unknown_event(number);
        };
        let Some(event) = Header::of(record) else {
            return sink.no_event();
        };
        self.stamp.clear();
        match self.options.format {
            Layout::Text | Layout::Compact => self.stamper.text(&mut self.stamp, event.time),
            Layout::Json => self.stamper.json(&mut self.stamp, event.time),
            Layout::Chrome => {}
        }
        sink.begin_event(&Event {
            stamp: &self.stamp,
            time: event.time,
            cpu: event.cpu,
            pid: event.pid,
            tid: event.tid,
            name,
            phase: layout.phase,
            query: layout.query,
        });
        if let Some(label) = &plan.bare_return {
            sink.begin_item(label);
            sink.leaf(None, if layout.returns { Leaf::Unread } else { Leaf::Void });
            sink.end_item();
        }
        let mut walker = Walker {
            shapes: &mut self.shapes,
            options: &self.options,
            names: &layout.names,
            symbols,
            pid: Some(event.pid),
            sink,
            format: None,
            budget: 0,
        };
        // A slice is as long as the call took.
        let drawn = match self.options.format {
            Layout::Chrome => plan.duration,
            Layout::Text | Layout::Compact | Layout::Json => None,
        };
        for (index, (item, plan)) in layout.items.iter().zip(&plan.items).enumerate() {
            if drawn == Some(index) {
                continue;
            }
            if !walker.item(plan, item, record) {
                break;
            }
        }
        walker.sink.end_event();
    }
}

impl Plan {
    fn new(layout: &RecordLayout, shapes: &mut Shapes<'_>) -> Plan {
        let at_return = match layout.phase {
            Phase::Return | Phase::Both => true,
            Phase::Entry | Phase::Hit => false,
        };
        let mut keys = BTreeSet::new();
        let items: Vec<ItemPlan> = layout
            .items
            .iter()
            .map(|item| ItemPlan {
                label: Label::new(&item.label, at_return, &mut keys),
                shape: shapes.of_ctype(&item.ty),
                pointee: match item.value {
                    ValueLayout::Pointee { pointee, .. } => Some(shapes.of(pointee)),
                    ValueLayout::Scalar
                    | ValueLayout::Bytes { .. }
                    | ValueLayout::String { .. }
                    | ValueLayout::Name
                    | ValueLayout::Buffer { .. }
                    | ValueLayout::Stack { .. } => None,
                },
                hint: name_hint(&item.label),
            })
            .collect();
        let bare = layout.phase == Phase::Return && items.is_empty();
        Plan {
            names: layout
                .names
                .iter()
                .map(|name| escape::plain_string(name).into())
                .collect(),
            duration: layout.items.iter().position(|item| item.label == wire::DURATION),
            bare_return: bare.then(|| Label::new("return", true, &mut keys)),
            items,
        }
    }
}

impl Label {
    /// A label that is not like one of `keys`, to which it is added: `a->b`, then `a->b#2`.
    fn new(label: &str, at_return: bool, keys: &mut BTreeSet<String>) -> Label {
        let mut key = label.to_string();
        let mut number = 1;
        while !keys.insert(key.clone()) {
            number += 1;
            key = format!("{label}#{number}");
        }
        let mut json = String::new();
        json::string(&mut json, &key);
        json.push(':');
        Label {
            text: escape::plain_string(label).into(),
            key: json.into(),
            is_return: at_return && matches!(label, "return" | "$retval"),
        }
    }
}

/// A thread and its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread<'x> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU: thread 0 is another on each.
    pub cpu: u32,
    /// What the process is called, if that is known.
    pub process: Option<&'x str>,
    /// What the thread is called, if that is known.
    pub name: Option<&'x str>,
}

/// What every record begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Nanoseconds of the kernel's monotonic clock.
    pub time: u64,
    /// The CPU.
    pub cpu: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
}

impl Header {
    /// That of a record; `None` if it is too short to have one.
    pub fn of(record: &[u8]) -> Option<Header> {
        Some(Header {
            time: u64_at(record, wire::TIME)?,
            cpu: u32_at(record, wire::CPU)?,
            pid: u32_at(record, wire::PID)?,
            tid: u32_at(record, wire::TID)?,
        })
    }
}
