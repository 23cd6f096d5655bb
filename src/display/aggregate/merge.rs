//! The values of all CPUs put together. In: a layout and the bytes of a row. Out: numbers. Never trusts the bytes: what is
//! missing counts as 0.

use std::cmp::Ordering;

use crate::wire::{AggregateLayout, HIST_ZERO, HITS, Measure, MeasureLayout, extreme_mask};

use super::super::bytes::u64_at;
use super::RawRow;

/// One key with what was measured for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key's bytes.
    pub key: Vec<u8>,
    /// How many hits there were.
    pub hits: u64,
    /// One for each measure.
    pub measures: Vec<Measured>,
}

/// What one measure says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measured {
    /// A number: count, sum, least, greatest.
    Number(i128),
    /// An average: the sum, and of how many.
    Average(i128, u64),
    /// A histogram: all its buckets, from the least values on.
    Histogram(Vec<Bucket>),
}

/// How many values lie between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The least value; `None` if there is no bound.
    pub from: Option<i128>,
    /// The first value that is too great; `None` if there is no bound.
    pub below: Option<i128>,
    /// How many.
    pub count: u64,
}

/// Puts the CPUs together. `None` if none was hit.
pub(super) fn merge(layout: &AggregateLayout, row: &RawRow) -> Option<Row> {
    let size = (layout.value_size as usize).max(8);
    // A CPU that was never hit has nothing to say.
    let cpus: Vec<&[u8]> = row
        .values
        .chunks(size)
        .filter(|value| u64_at(value, HITS).is_some_and(|hits| hits > 0))
        .collect();
    let hits = cpus
        .iter()
        .filter_map(|value| u64_at(value, HITS))
        .fold(0, u64::saturating_add);
    if hits == 0 {
        return None;
    }
    let measures = layout
        .measures
        .iter()
        .map(|measure| measured(measure, &cpus, hits))
        .collect();
    Some(Row {
        key: row.key.clone(),
        hits,
        measures,
    })
}

/// Which of two values of one measure is the greater; histograms are all the same.
pub(super) fn order(a: &Measured, b: &Measured) -> Ordering {
    match (a, b) {
        (Measured::Number(a), Measured::Number(b)) => a.cmp(b),
        (Measured::Average(a, n), Measured::Average(b, m)) => {
            let (left, right) = (a.saturating_mul(i128::from(*m)), b.saturating_mul(i128::from(*n)));
            left.cmp(&right)
        }
        (Measured::Number(_) | Measured::Average(..) | Measured::Histogram(_), _) => Ordering::Equal,
    }
}

fn measured(measure: &MeasureLayout, cpus: &[&[u8]], hits: u64) -> Measured {
    let word = |value: &&[u8], index: u32| {
        let at = measure.offset.saturating_add(index.saturating_mul(8));
        u64_at(value, at).unwrap_or(0)
    };
    let number = |word: u64| {
        if measure.signed {
            i128::from(word as i64)
        } else {
            i128::from(word)
        }
    };
    let sum = || {
        let each = cpus.iter().map(|value| {
            // Below 2^96 each, so that no number of CPUs is too many.
            i128::from(word(value, 0)) + (number(word(value, 1)) << 32)
        });
        each.sum()
    };
    match measure.measure {
        Measure::Count => Measured::Number(i128::from(hits)),
        Measure::Sum => Measured::Number(sum()),
        Measure::Avg => Measured::Average(sum(), hits),
        Measure::Min | Measure::Max => {
            let kept = cpus.iter().map(|value| word(value, 0)).max().unwrap_or(0);
            Measured::Number(number(kept ^ extreme_mask(measure.measure, measure.signed)))
        }
        Measure::Hist | Measure::Lhist { .. } => {
            // A layout of ours never has more.
            let words = measure.measure.words(measure.signed).min(1 << 16);
            let buckets = (0..words).map(|index| {
                let count = cpus
                    .iter()
                    .map(|value| word(value, index))
                    .fold(0, u64::saturating_add);
                let (from, below) = bounds(measure, index);
                Bucket { from, below, count }
            });
            Measured::Histogram(buckets.collect())
        }
    }
}

/// The bounds of a bucket.
fn bounds(measure: &MeasureLayout, index: u32) -> (Option<i128>, Option<i128>) {
    match measure.measure {
        Measure::Lhist { lo, hi, step } => {
            let (lo, hi, step) = (i128::from(lo), i128::from(hi), i128::from(step));
            let last = measure.measure.words(measure.signed) - 1;
            match index {
                0 => (None, Some(lo)),
                index if index == last => (Some(hi), None),
                index => {
                    let from = lo + i128::from(index - 1) * step;
                    (Some(from), Some(from + step))
                }
            }
        }
        Measure::Hist | Measure::Count | Measure::Sum | Measure::Avg | Measure::Min | Measure::Max => {
            let exponent = match measure.signed {
                true => i64::from(index) - i64::from(HIST_ZERO),
                false => i64::from(index),
            };
            let power = |exponent: i64| 1i128 << exponent.clamp(0, 100);
            match exponent {
                0 => (Some(0), Some(1)),
                1.. => (Some(power(exponent - 1)), Some(power(exponent))),
                // -3 and -2 are in one bucket as 2 and 3 are.
                _ => (Some(1 - power(-exponent)), Some(1 - power(-exponent - 1))),
            }
        }
    }
}
