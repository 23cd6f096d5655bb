//! Rows as JSON. In: rows in their order. Out: one object a line; `JSON.md` and `schema.json` describe it.

use std::collections::BTreeSet;

use super::super::json;
use super::super::lines::{Form, JsonSink};
use super::super::notice::field;
use super::super::sink::Label;
use super::super::{Symbols, Walker};
use super::{AggregatePrinter, Bucket, Measured, Row, unit};

/// Appends a row.
pub(super) fn print(printer: &mut AggregatePrinter<'_>, row: &Row, out: &mut String, symbols: &dyn Symbols) {
    let layout = printer.layout;
    out.push_str("{\"type\":\"aggregate\",\"name\":");
    json::string(out, &printer.names());
    field(out, "query", layout.query as u64);
    out.push_str(",\"keys\":{");
    let mut walker = Walker {
        shapes: &mut printer.shapes,
        options: &printer.options,
        names: &layout.names,
        symbols,
        pid: None,
        sink: JsonSink::new(out, Form::Lines),
        format: None,
        budget: 0,
    };
    for (plan, item) in printer.keys.iter().zip(&layout.keys) {
        walker.item(plan, item, &row.key);
    }
    out.push_str("},\"values\":{");
    let mut names = BTreeSet::new();
    for (index, (measure, measured)) in layout.measures.iter().zip(&row.measures).enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(&Label::new(&measure.label, false, &mut names).key);
        match measured {
            Measured::Number(number) => json::signed(out, *number),
            Measured::Average(sum, count) => out.push_str(&unit::decimal(*sum, *count)),
            Measured::Histogram(buckets) => histogram(buckets, out),
        }
    }
    out.push_str("}}\n");
}

/// The buckets that have something in them.
fn histogram(buckets: &[Bucket], out: &mut String) {
    out.push('[');
    for (index, bucket) in buckets.iter().filter(|bucket| bucket.count > 0).enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str("{\"from\":");
        bound(bucket.from, out);
        out.push_str(",\"below\":");
        bound(bucket.below, out);
        field(out, "count", bucket.count);
        out.push('}');
    }
    out.push(']');
}

fn bound(bound: Option<i128>, out: &mut String) {
    match bound {
        Some(number) => json::signed(out, number),
        None => out.push_str("null"),
    }
}
