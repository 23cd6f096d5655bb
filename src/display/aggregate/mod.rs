//! Aggregations as text. In: layouts, the kernel's types, and rows: keys and values as the kernel's map has them. Out: tables
//! and histograms, sorted, so that the same rows give the same text in whatever order they come. Never does I/O, never
//! panics, whatever the bytes are.

mod folded;
mod histogram;
mod json;
mod merge;
mod same;
mod unit;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::types::Types;
use crate::wire::{self, AggregateLayout, ItemLayout, Measure, MeasureLayout, ValueLayout};

use super::bytes::{c_string, u32_at, u64_at};
use super::compact::CompactSink;
use super::paint::Paint;
use super::shape::{Shapes, name_hint};
use super::sink::{Frame, Label};
use super::walk::{ItemPlan, Walker};
use super::{Layout, Options, Symbols, escape};
use super::{leaf, stack};

pub use merge::{Bucket, Measured, Row};

/// One key of a map, and its value on each CPU, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRow {
    /// The key.
    pub key: Vec<u8>,
    /// The values, [`AggregateLayout::value_size`] bytes each.
    pub values: Vec<u8>,
}

/// Turns rows into text.
pub struct AggregatePrinter<'a> {
    layout: &'a AggregateLayout,
    keys: Vec<ItemPlan>,
    shapes: Shapes<'a>,
    options: Options,
}

/// A key as text.
enum KeyText {
    /// On one line.
    Word(String),
    /// A stack: its frames, innermost first.
    Stack(Vec<String>),
}

impl KeyText {
    /// What stands in a line; a stack is too long for one.
    fn word(&self) -> &str {
        match self {
            KeyText::Word(word) => word,
            KeyText::Stack(_) => "",
        }
    }
}

/// Columns before a row of a table.
const INDENT: &str = "  ";

impl<'a> AggregatePrinter<'a> {
    /// A printer for the rows of this layout.
    pub fn new(types: &'a Types, layout: &'a AggregateLayout, options: Options) -> AggregatePrinter<'a> {
        let mut shapes = Shapes::new(types);
        let mut names = BTreeSet::new();
        let keys = layout
            .keys
            .iter()
            .map(|key| ItemPlan {
                label: Label::new(&key.label, false, &mut names),
                shape: shapes.of_ctype(&key.ty),
                pointee: None,
                hint: name_hint(&key.label),
            })
            .collect();
        AggregatePrinter {
            layout,
            keys,
            shapes,
            options,
        }
    }

    /// The rows with the CPUs' values put together, in the order in which they are shown: by the first measure, the greatest
    /// first, and by keys where that is the same; by keys if the first measure is a histogram.
    pub fn rows(&self, raw: &[RawRow]) -> Vec<Row> {
        let mut rows: Vec<Row> = raw
            .iter()
            .filter_map(|row| merge::merge(self.layout, row))
            .collect();
        rows.sort_by(|a, b| {
            let by_value = match (a.measures.first(), b.measures.first()) {
                (Some(a), Some(b)) => merge::order(b, a),
                (_, _) => Ordering::Equal,
            };
            by_value.then_with(|| compare_keys(self.layout, &a.key, &b.key))
        });
        rows
    }

    /// Appends all rows: as JSON, one object a line; else as text that is at most `width` columns wide, if keys and numbers leave
    /// room for it, and ends in an empty line. A Chrome trace has no place for them.
    pub fn print(&mut self, raw: &[RawRow], width: usize, out: &mut String, symbols: &dyn Symbols) {
        let shown = self.shown(raw, symbols);
        let rows = self.rows(&shown);
        match self.options.format {
            Layout::Text | Layout::Compact => self.text(&rows, width, out, symbols),
            Layout::Json => {
                for row in &rows {
                    json::print(self, row, out, symbols);
                }
            }
            Layout::Chrome => {}
        }
    }

    /// The rows with their keys as they are shown. What differs only in what is not is one row: the tracer's own frames and those behind
    /// the last one of a stack, the padding of structs, what is behind the NUL of a text.
    fn shown(&mut self, raw: &[RawRow], symbols: &dyn Symbols) -> Vec<RawRow> {
        let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for row in raw {
            let mut key = row.key.clone();
            for (plan, layout) in self.keys.iter().zip(&self.layout.keys) {
                same::clear_unseen(
                    &mut self.shapes,
                    &plan.shape,
                    layout,
                    self.options.zeros,
                    &mut key,
                );
                if let ValueLayout::Stack { user, .. } = layout.value {
                    let frames = frames(layout, &row.key, symbols);
                    let addresses: Vec<u8> = frames.iter().flat_map(|f| f.address.to_le_bytes()).collect();
                    let value = layout.offset + wire::VALUE + if user { 8 } else { 0 };
                    let end = layout.offset + layout.value.item_size();
                    if let Some(part) = key.get_mut(value as usize..end as usize) {
                        part.fill(0);
                        let length = addresses.len().min(part.len());
                        part[..length].copy_from_slice(&addresses[..length]);
                    }
                    let at = (layout.offset + wire::LENGTH) as usize;
                    if let Some(part) = key.get_mut(at..at + 4) {
                        part.copy_from_slice(&(addresses.len() as u32).to_le_bytes());
                    }
                }
            }
            rows.entry(key).or_default().extend_from_slice(&row.values);
        }
        rows.into_iter()
            .map(|(key, values)| RawRow { key, values })
            .collect()
    }

    /// Appends rows as flame graphs are made of: `outer;inner 12`.
    pub fn folded(&mut self, raw: &[RawRow], out: &mut String, symbols: &dyn Symbols) {
        folded::print(self, raw, out, symbols);
    }

    fn text(&mut self, rows: &[Row], width: usize, out: &mut String, symbols: &dyn Symbols) {
        let keys: Vec<Vec<KeyText>> = rows.iter().map(|row| self.key_texts(row, symbols)).collect();
        escape::plain(out, &self.names());
        out.push('\n');
        if rows.is_empty() {
            out.push_str(INDENT);
            out.push_str("nothing was counted\n\n");
            return;
        }
        if self.layout.keys.iter().any(is_stack) {
            for (row, keys) in rows.iter().zip(&keys) {
                self.block(row, keys, width, out);
            }
        } else {
            self.table(rows, &keys, out);
            for (index, measure) in self.layout.measures.iter().enumerate() {
                for (row, keys) in rows.iter().zip(&keys) {
                    if let Some(Measured::Histogram(buckets)) = row.measures.get(index) {
                        out.push_str(INDENT);
                        escape::plain(out, &measure.label);
                        self.key_line(keys, out);
                        out.push('\n');
                        histogram::print(buckets, row.hits, measure, width, out);
                    }
                }
            }
        }
        out.push('\n');
    }

    /// A row whose key is a stack: its numbers on a line, then a line for each frame, then its histograms.
    fn block(&self, row: &Row, keys: &[KeyText], width: usize, out: &mut String) {
        let mut gap = "";
        out.push_str(INDENT);
        for (measure, measured) in self.layout.measures.iter().zip(&row.measures) {
            if !is_histogram(measure.measure) {
                out.push_str(gap);
                escape::plain(out, &measure.label);
                out.push_str(" = ");
                out.push_str(&unit::measured(measured, measure));
                gap = ", ";
            }
        }
        for (plan, key) in self.keys.iter().zip(keys) {
            if let KeyText::Word(word) = key {
                out.push_str(gap);
                out.push_str(&plan.label.text);
                out.push_str(" = ");
                out.push_str(word);
                gap = ", ";
            }
        }
        out.push('\n');
        for (plan, key) in self.keys.iter().zip(keys) {
            if let KeyText::Stack(frames) = key {
                out.push_str(INDENT);
                out.push_str(&plan.label.text);
                out.push_str(if frames.is_empty() { " <no stack>\n" } else { "\n" });
                for frame in frames {
                    out.push_str(INDENT);
                    out.push_str(INDENT);
                    out.push_str(frame);
                    out.push('\n');
                }
            }
        }
        for (measure, measured) in self.layout.measures.iter().zip(&row.measures) {
            if let Measured::Histogram(buckets) = measured {
                out.push_str(INDENT);
                escape::plain(out, &measure.label);
                out.push('\n');
                histogram::print(buckets, row.hits, measure, width, out);
            }
        }
    }

    /// What was hit; of very many, the first ones.
    fn names(&self) -> String {
        const NAMES: usize = 3;
        let names = &self.layout.names;
        let first: Vec<&str> = names.iter().take(NAMES).map(String::as_str).collect();
        match names.len().checked_sub(NAMES) {
            Some(more @ 1..) => format!("{} and {more} more", first.join(", ")),
            Some(0) | None => first.join(", "),
        }
    }

    /// Each key of a row as text.
    fn key_texts(&mut self, row: &Row, symbols: &dyn Symbols) -> Vec<KeyText> {
        let mut texts = Vec::with_capacity(self.keys.len());
        for (plan, layout) in self.keys.iter().zip(&self.layout.keys) {
            if is_stack(layout) {
                let frames = frames(layout, &row.key, symbols);
                let text = |frame: &Frame<'_>| {
                    let mut text = String::new();
                    leaf::frame(&mut text, frame);
                    text
                };
                texts.push(KeyText::Stack(frames.iter().map(text).collect()));
                continue;
            }
            let mut text = String::new();
            let mut walker = Walker {
                shapes: &mut self.shapes,
                options: &self.options,
                names: &self.layout.names,
                symbols,
                pid: None,
                sink: CompactSink::bare(&mut text, Paint::new(false)),
                format: None,
                budget: 0,
            };
            walker.item(plan, layout, &row.key);
            texts.push(KeyText::Word(text));
        }
        texts
    }

    /// `, comm = "cat", pid = 1`.
    fn key_line(&self, keys: &[KeyText], out: &mut String) {
        for (plan, key) in self.keys.iter().zip(keys) {
            out.push_str(", ");
            out.push_str(&plan.label.text);
            out.push_str(" = ");
            out.push_str(key.word());
        }
    }

    /// What is no histogram: a column for each key and each measure.
    fn table(&self, rows: &[Row], keys: &[Vec<KeyText>], out: &mut String) {
        let numbers: Vec<(usize, &MeasureLayout)> = self
            .layout
            .measures
            .iter()
            .enumerate()
            .filter(|(_, measure)| !is_histogram(measure.measure))
            .collect();
        if numbers.is_empty() {
            return;
        }
        let mut lines: Vec<Vec<String>> = vec![
            self.keys
                .iter()
                .map(|plan| plan.label.text.to_string())
                .chain(numbers.iter().map(|(_, m)| escape::plain_string(&m.label)))
                .collect(),
        ];
        for (row, keys) in rows.iter().zip(keys) {
            let cells = numbers
                .iter()
                .map(|(index, measure)| match row.measures.get(*index) {
                    Some(measured) => unit::measured(measured, measure),
                    None => String::new(),
                });
            lines.push(
                keys.iter()
                    .map(|key| key.word().to_string())
                    .chain(cells)
                    .collect(),
            );
        }
        let columns = self.keys.len() + numbers.len();
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = lines.iter().filter_map(|line| line.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for line in &lines {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                out.push_str(INDENT);
                let pad = width.saturating_sub(cell.chars().count());
                // Keys are words, measures numbers.
                let number = column >= self.keys.len();
                if number {
                    spaces(out, pad);
                }
                out.push_str(cell);
                if !number && column + 1 < columns {
                    spaces(out, pad);
                }
            }
            out.push('\n');
        }
    }
}

/// Changes a key of one map so that it goes with those of others: `among` is for each of the layout's names which of the names of all
/// it is.
pub fn rename(key: &mut [u8], layout: &AggregateLayout, among: &[usize]) {
    for item in &layout.keys {
        if item.value != ValueLayout::Name {
            continue;
        }
        let at = item.offset.saturating_add(wire::VALUE);
        let new = u64_at(key, at)
            .and_then(|which| among.get(usize::try_from(which).ok()?))
            .map(|which| (*which as u64).to_le_bytes());
        if let (Some(new), Some(place)) = (new, key.get_mut(at as usize..at as usize + 8)) {
            place.copy_from_slice(&new);
        }
    }
}

/// The frames of a stack in a key.
fn frames<'s>(layout: &ItemLayout, key: &[u8], symbols: &'s dyn Symbols) -> Vec<Frame<'s>> {
    let ValueLayout::Stack { depth, user } = layout.value else {
        return Vec::new();
    };
    let at = (layout.offset + wire::VALUE) as usize;
    let value = key.get(at..).unwrap_or(&[]);
    let length = u32_at(key, layout.offset + wire::LENGTH).unwrap_or(0);
    stack::item(value, length, depth, user, symbols).map_or(Vec::new(), |(frames, _)| frames)
}

fn is_stack(key: &ItemLayout) -> bool {
    matches!(key.value, ValueLayout::Stack { .. })
}

fn is_histogram(measure: Measure) -> bool {
    match measure {
        Measure::Hist | Measure::Lhist { .. } => true,
        Measure::Count | Measure::Sum | Measure::Avg | Measure::Min | Measure::Max => false,
    }
}

/// Which key comes first: numbers by value, strings by their bytes.
fn compare_keys(whole: &AggregateLayout, a: &[u8], b: &[u8]) -> Ordering {
    for layout in &whole.keys {
        let value = (layout.offset + wire::VALUE) as usize;
        let part = |key: &[u8]| -> Vec<u8> {
            let end = (layout.offset + layout.value.item_size()) as usize;
            key.get(value..end).unwrap_or(&[]).to_vec()
        };
        let (a, b) = (part(a), part(b));
        let order = match layout.value {
            ValueLayout::Scalar => {
                let number = |bytes: &[u8]| u64_at(bytes, 0).map(|word| word as i64);
                number(&a).cmp(&number(&b))
            }
            ValueLayout::Name => {
                let name = |bytes: &[u8]| whole.names.get(usize::try_from(u64_at(bytes, 0)?).ok()?);
                name(&a).cmp(&name(&b))
            }
            ValueLayout::String { .. } => c_string(&a).cmp(c_string(&b)),
            ValueLayout::Pointee { .. }
            | ValueLayout::Bytes { .. }
            | ValueLayout::Buffer { .. }
            | ValueLayout::Stack { .. } => a.cmp(&b),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

fn spaces(out: &mut String, count: usize) {
    out.extend(std::iter::repeat_n(' ', count));
}
