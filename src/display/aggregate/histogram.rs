//! Histograms as bars. In: buckets. Out: a line for each bucket from the first to the last that has something in it (long gaps
//! between them are one line), and a line with percentiles. Never wider than it is told, unless the numbers alone are.

use std::fmt::Write;

use crate::wire::{Measure, MeasureLayout};

use super::{Bucket, spaces, unit};

/// Columns before a line.
const INDENT: usize = 4;
/// A bar is never shorter than this, where it is full.
const BAR_MIN: usize = 10;
/// Nor longer: more would say nothing more.
const BAR_MAX: usize = 80;

/// This many empty buckets, one after the other, are one line.
const EMPTY: usize = 4;

/// Appends a histogram of so many values.
pub(super) fn print(buckets: &[Bucket], hits: u64, measure: &MeasureLayout, width: usize, out: &mut String) {
    let first = buckets.iter().position(|bucket| bucket.count > 0);
    let last = buckets.iter().rposition(|bucket| bucket.count > 0);
    let (Some(first), Some(last)) = (first, last) else {
        return;
    };
    let shown = buckets.get(first..=last).unwrap_or(&[]);
    let names: Vec<String> = shown.iter().map(|bucket| name(bucket, measure)).collect();
    let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let most = shown.iter().map(|bucket| bucket.count).max().unwrap_or(1).max(1);
    let count_width = most.to_string().len();
    let around = INDENT + name_width + 1 + count_width + 3;
    let bar_width = width.saturating_sub(around).clamp(BAR_MIN, BAR_MAX);
    let mut index = 0;
    while let (Some(bucket), Some(name)) = (shown.get(index), names.get(index)) {
        let empty = shown
            .iter()
            .skip(index)
            .take_while(|bucket| bucket.count == 0)
            .count();
        if empty >= EMPTY {
            spaces(out, INDENT);
            out.push_str("...\n");
            index += empty;
            continue;
        }
        index += 1;
        spaces(out, INDENT);
        out.push_str(name);
        spaces(out, name_width - name.chars().count() + 1);
        // Writing to a string can't fail, here and below.
        let _ = write!(out, "{:>count_width$} |", bucket.count);
        let full = bar(bucket.count, most, bar_width);
        out.extend(std::iter::repeat_n('@', full));
        spaces(out, bar_width - full);
        out.push_str("|\n");
    }
    spaces(out, INDENT);
    let _ = write!(out, "{hits} values");
    for percent in [50, 90, 99] {
        if let Some(bucket) = percentile(buckets, percent) {
            let _ = write!(out, ", p{percent} in {}", self::name(bucket, measure));
        }
    }
    out.push('\n');
}

/// The length of a bar: in proportion, but never nothing for something.
fn bar(count: u64, most: u64, width: usize) -> usize {
    let length = u128::from(count) * width as u128 / u128::from(most);
    match (count, length) {
        (0, _) => 0,
        (_, 0) => 1,
        (_, length) => usize::try_from(length).unwrap_or(width).min(width),
    }
}

/// The bucket that has the value which so many percent of all are not greater than.
fn percentile(buckets: &[Bucket], percent: u64) -> Option<&Bucket> {
    let all: u128 = buckets.iter().map(|bucket| u128::from(bucket.count)).sum();
    // The rank, rounded up: of one value, each percentile is that value.
    let rank = (all * u128::from(percent)).div_ceil(100).max(1);
    let mut below = 0u128;
    buckets.iter().find(|bucket| {
        below += u128::from(bucket.count);
        below >= rank
    })
}

/// A bucket's values, as mathematicians write intervals: `[4, 8)`.
fn name(bucket: &Bucket, measure: &MeasureLayout) -> String {
    let power_of_two = match measure.measure {
        Measure::Hist => true,
        Measure::Lhist { .. }
        | Measure::Count
        | Measure::Sum
        | Measure::Avg
        | Measure::Min
        | Measure::Max => false,
    };
    let bound = |number| unit::bound(number, measure.unit, power_of_two);
    match (bucket.from, bucket.below) {
        (Some(from), Some(below)) if from + 1 == below => format!("[{}]", bound(from)),
        // The bounds of negative buckets are powers of two at the other end.
        (Some(from), Some(below)) if power_of_two && below <= 0 => {
            format!("({}, {}]", bound(from - 1), bound(below - 1))
        }
        (Some(from), Some(below)) => format!("[{}, {})", bound(from), bound(below)),
        (None, Some(below)) => format!("(..., {})", bound(below)),
        (Some(from), None) => format!("[{}, ...)", bound(from)),
        (None, None) => "all".to_string(),
    }
}
