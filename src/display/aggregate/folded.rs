//! Rows as flame graphs are made of. In: rows. Out: a line for each way from the outermost frame to the innermost, `outer;inner 12`, where
//! other keys than stacks stand before the frames, and the number is the first that is measured. What differs only in where a function
//! was is one line if the numbers are such as add up. Rows without a number are left out.

use std::collections::BTreeMap;

use crate::wire::Measure;

use super::super::{Symbols, leaf};
use super::{AggregatePrinter, KeyText, Measured, RawRow, frames};

pub(super) fn print(
    printer: &mut AggregatePrinter<'_>,
    raw: &[RawRow],
    out: &mut String,
    symbols: &dyn Symbols,
) {
    let mut lines: Vec<(String, i128)> = Vec::new();
    // Where in `lines` each way is.
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let shown = printer.shown(raw, symbols);
    let rows = printer.rows(&shown);
    for row in &rows {
        let measures = row.measures.iter().zip(&printer.layout.measures);
        let number = measures
            .into_iter()
            .find_map(|(measured, layout)| match measured {
                Measured::Number(number) => Some((*number, adds_up(layout.measure))),
                Measured::Average(sum, count) => Some((sum / i128::from(*count).max(1), false)),
                Measured::Histogram(_) => None,
            });
        let Some((number, adds_up)) = number else {
            continue;
        };
        let mut way: Vec<String> = Vec::new();
        for (key, layout) in printer
            .key_texts(row, symbols)
            .into_iter()
            .zip(&printer.layout.keys)
        {
            match key {
                KeyText::Word(word) => way.push(unquoted(&word).to_string()),
                KeyText::Stack(_) => {
                    way.extend(frames(layout, &row.key, symbols).iter().rev().map(|frame| {
                        let mut name = String::new();
                        leaf::frame_name(&mut name, frame);
                        name
                    }));
                }
            }
        }
        // What separates frames, and them from the number, can't be in one.
        let clean = |frame: String| frame.replace([';', ' '], "_");
        let way = way.into_iter().map(clean).collect::<Vec<String>>().join(";");
        match known
            .get(&way)
            .and_then(|at| lines.get_mut(*at))
            .filter(|_| adds_up)
        {
            Some((_, sum)) => *sum = sum.saturating_add(number),
            None => {
                known.insert(way.clone(), lines.len());
                lines.push((way, number));
            }
        }
    }
    lines.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    for (way, number) in lines {
        out.push_str(&format!("{way} {number}\n"));
    }
}

/// A string without its quotes; those that are part of it are escaped, and stay.
fn unquoted(word: &str) -> &str {
    let inside = word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inside.unwrap_or(word)
}

fn adds_up(measure: Measure) -> bool {
    match measure {
        Measure::Count | Measure::Sum => true,
        Measure::Avg | Measure::Min | Measure::Max | Measure::Hist | Measure::Lhist { .. } => false,
    }
}
