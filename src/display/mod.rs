//! Events as text. In: layouts, the kernel's types, and records: bytes as the ring buffer gave them. Out: text appended to
//! a string. Never does I/O, never panics, whatever the bytes are; the same bytes give the same text.
//!
//! A walk through a record (`walk`) decides what is shown and tells it to a sink (`sink`), one for each output format,
//! which decides how it is written.

mod bytes;
mod compact;
mod escape;
mod leaf;
mod number;
mod paint;
mod shape;
mod sink;
mod text;
mod walk;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use crate::types::Types;
use crate::wire::{self, Phase, RecordLayout, ValueLayout};

use bytes::{u32_at, u64_at};
use compact::CompactSink;
use paint::Paint;
use shape::{Shapes, name_hint};
use sink::{Event, Leaf, Sink};
use text::TextSink;
use walk::{ItemPlan, Walker};

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As ksnoop does: a line for each member.
    Text,
    /// One line an event.
    Compact,
}

/// What is shown, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How events are written.
    pub format: Layout,
    /// Structs inside each other that are shown, at least 1; deeper ones are `{...}`. Anonymous ones don't count.
    pub depth: u32,
    /// Bytes of a string that are shown.
    pub max_string: u32,
    /// Elements of an array that are shown, at least 1; a folded run counts as one.
    pub max_array: u32,
    /// Show members that are zero, and the zeros at the end of arrays.
    pub zeros: bool,
    /// Write escape sequences for colour.
    pub color: bool,
}

impl Options {
    /// What is usual for a format: everything in ksnoop's layout, what fits a line in the compact one.
    pub fn new(format: Layout) -> Options {
        let (depth, max_string, max_array) = match format {
            Layout::Text => (32, 4096, 256),
            Layout::Compact => (1, 64, 8),
        };
        Options {
            format,
            depth,
            max_string,
            max_array,
            zeros: false,
            color: false,
        }
    }
}

/// Gives kernel addresses names.
pub trait Symbols {
    /// The symbol that an address lies in, if one is known.
    fn resolve(&self, address: u64) -> Option<Symbol<'_>>;
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
}

/// What is worked out once for each layout.
struct Plan {
    names: Vec<Box<str>>,
    items: Vec<ItemPlan>,
    /// It tells of the return of a function that has nothing to show.
    bare_return: bool,
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
            options,
        }
    }

    /// The line above all events, with its newline.
    pub fn header(&self) -> String {
        text::header()
    }

    /// Appends one record as text that ends in a newline.
    pub fn event(&mut self, record: &[u8], out: &mut String, symbols: &dyn Symbols) {
        let paint = Paint::new(self.options.color);
        match self.options.format {
            Layout::Text => self.show(record, TextSink::new(out, paint), symbols),
            Layout::Compact => self.show(record, CompactSink::new(out, paint), symbols),
        }
    }

    fn show<S: Sink>(&mut self, record: &[u8], mut sink: S, symbols: &dyn Symbols) {
        let Some(number) = u32_at(record, wire::EVENT) else {
            return sink.no_event();
        };
        // The last layout that begins at or before the number.
        let last = self.by_event.partition_point(|(event, _)| *event <= number);
        let index = last.checked_sub(1).and_then(|at| self.by_event.get(at));
        let found = index.and_then(|(event, index)| {
            let plan = self.plans.get(*index)?;
            let name = plan.names.get((number - event) as usize)?;
            Some((self.layouts.get(*index)?, plan, name))
        });
        let Some((layout, plan, name)) = found else {
            return sink.unknown_event(number);
        };
        let (Some(cpu), Some(time), Some(pid)) = (
            u32_at(record, wire::CPU),
            u64_at(record, wire::TIME),
            u32_at(record, wire::PID),
        ) else {
            return sink.no_event();
        };
        sink.begin_event(&Event { time, cpu, pid, name });
        if plan.bare_return {
            sink.begin_item("return", true);
            sink.leaf(None, Leaf::Void);
            sink.end_item();
        }
        let mut walker = Walker {
            shapes: &mut self.shapes,
            options: &self.options,
            symbols,
            sink,
            format: None,
            budget: 0,
        };
        for (item, plan) in layout.items.iter().zip(&plan.items) {
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
        let items: Vec<ItemPlan> = layout
            .items
            .iter()
            .map(|item| ItemPlan {
                label: escape::plain_string(&item.label).into(),
                is_return: at_return && matches!(&*item.label, "return" | "$retval"),
                shape: shapes.of_ctype(&item.ty),
                pointee: match item.value {
                    ValueLayout::Pointee { pointee, .. } => Some(shapes.of(pointee)),
                    ValueLayout::Scalar
                    | ValueLayout::Bytes { .. }
                    | ValueLayout::String { .. }
                    | ValueLayout::Buffer { .. } => None,
                },
                hint: name_hint(&item.label),
            })
            .collect();
        Plan {
            names: layout
                .names
                .iter()
                .map(|name| escape::plain_string(name).into())
                .collect(),
            bare_return: layout.phase == Phase::Return && items.is_empty(),
            items,
        }
    }
}
