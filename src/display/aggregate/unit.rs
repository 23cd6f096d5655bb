//! Numbers with units. In: numbers and what they count. Out: short text: times in ns, us, ms or s, sizes in bytes up to EiB.
//! All arithmetic is on integers, so that the text is the same everywhere.

use std::fmt::Write;

use crate::wire::{Format, MeasureLayout, Unit};

use super::Measured;

/// Digits of a number that has a unit.
const DIGITS: u32 = 4;
/// Digits of a bound of a bucket, which must be told from the next one.
const BOUND_DIGITS: u32 = 7;
/// Decimal places of an average without a unit.
const PLACES: u32 = 2;

/// What a measure says, if it is no histogram.
pub(super) fn measured(measured: &Measured, layout: &MeasureLayout) -> String {
    match measured {
        Measured::Number(number) => match layout.format {
            Some(format) => formatted(*number, format),
            None => scaled(*number, 1, layout.unit, DIGITS),
        },
        Measured::Average(sum, count) => match layout.format {
            Some(format) => formatted(sum / i128::from(*count).max(1), format),
            None => scaled(*sum, i128::from(*count).max(1), layout.unit, DIGITS),
        },
        Measured::Histogram(_) => String::new(),
    }
}

/// An average as a decimal number.
pub(super) fn decimal(sum: i128, count: u64) -> String {
    quotient(sum, i128::from(count).max(1), 6)
}

/// The bound of a bucket. Powers of two are short: `4Ki`.
pub(super) fn bound(number: i128, unit: Unit, power_of_two: bool) -> String {
    match unit {
        Unit::None if power_of_two => {
            let magnitude = number.unsigned_abs();
            let scale = (1..=6)
                .rev()
                .find(|scale| magnitude != 0 && magnitude.is_multiple_of(1 << (10 * scale)));
            match scale {
                Some(scale) => {
                    let sign = if number < 0 { "-" } else { "" };
                    format!("{sign}{}{}", magnitude >> (10 * scale), BINARY[scale as usize])
                }
                None => number.to_string(),
            }
        }
        Unit::None | Unit::Nanoseconds | Unit::Bytes => {
            let digits = if power_of_two { DIGITS - 1 } else { BOUND_DIGITS };
            scaled(number, 1, unit, digits)
        }
    }
}

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

fn formatted(number: i128, format: Format) -> String {
    // Negative numbers are shown as the 64 bits that they are. Sums can have more.
    let bits = u128::try_from(number).unwrap_or(u128::from(number as u64));
    match format {
        Format::Hex => format!("{bits:#x}"),
        Format::Octal if bits == 0 => "0".to_string(),
        Format::Octal => format!("0{bits:o}"),
        Format::Binary => format!("{bits:#b}"),
        Format::Signed
        | Format::Unsigned
        | Format::Char
        | Format::String
        | Format::Ip
        | Format::Mac
        | Format::Symbol
        | Format::Errno
        | Format::Dump
        | Format::BigEndian => number.to_string(),
    }
}

/// The quotient of two numbers in a unit that makes it short.
fn scaled(number: i128, by: i128, unit: Unit, digits: u32) -> String {
    let steps: &[(i128, &str)] = match unit {
        Unit::None => return quotient(number, by, PLACES),
        Unit::Nanoseconds => &[
            (1, " ns"),
            (1_000, " us"),
            (1_000_000, " ms"),
            (1_000_000_000, " s"),
        ],
        Unit::Bytes => &[
            (1, " B"),
            (1 << 10, " KiB"),
            (1 << 20, " MiB"),
            (1 << 30, " GiB"),
            (1 << 40, " TiB"),
            (1 << 50, " PiB"),
            (1 << 60, " EiB"),
        ],
    };
    let (scale, name) = steps
        .iter()
        .rev()
        .find(|(scale, _)| (number / by).unsigned_abs() >= scale.unsigned_abs())
        .unwrap_or(&steps[0]);
    let whole = (number / by / scale).unsigned_abs();
    let before = whole.checked_ilog10().map_or(1, |log| log + 1);
    let places = if *scale == 1 && by == 1 {
        0
    } else {
        digits.saturating_sub(before)
    };
    quotient(number, by.saturating_mul(*scale), places) + name
}

/// A quotient with at most so many decimal places, rounded to the nearest, without zeros at the end.
fn quotient(number: i128, by: i128, places: u32) -> String {
    let power = 10i128.pow(places);
    let (magnitude, by) = (number.unsigned_abs(), by.unsigned_abs().max(1));
    let (whole, rest) = (magnitude / by, magnitude % by);
    let fraction = (rest.saturating_mul(power.unsigned_abs()) + by / 2) / by;
    let (whole, fraction) = if fraction >= power.unsigned_abs() {
        (whole + 1, 0)
    } else {
        (whole, fraction)
    };
    let mut text = String::new();
    if number < 0 && (whole, fraction) != (0, 0) {
        text.push('-');
    }
    // Writing to a string can't fail.
    let _ = write!(text, "{whole}");
    if fraction > 0 {
        let digits = format!("{fraction:0places$}", places = places as usize);
        text.push('.');
        text.push_str(digits.trim_end_matches('0'));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_short() {
        let time = |n| scaled(n, 1, Unit::Nanoseconds, DIGITS);
        assert_eq!(time(0), "0 ns");
        assert_eq!(time(999), "999 ns");
        assert_eq!(time(1_000), "1 us");
        assert_eq!(time(1_234_567), "1.235 ms");
        assert_eq!(time(-1_500), "-1.5 us");
        assert_eq!(time(90_000_000_000), "90 s");
        let size = |n| scaled(n, 1, Unit::Bytes, DIGITS);
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(i128::from(u64::MAX)), "16 EiB");
    }

    #[test]
    fn averages_are_rounded_to_the_nearest() {
        let average = |sum, n| scaled(sum, n, Unit::None, DIGITS);
        assert_eq!(average(10, 4), "2.5");
        assert_eq!(average(-10, 4), "-2.5");
        assert_eq!(average(2, 3), "0.67");
        assert_eq!(average(-1, 1000), "0");
        assert_eq!(average(1999, 1000), "2");
        assert_eq!(average(6, 3), "2");
        assert_eq!(scaled(10_000, 3, Unit::Nanoseconds, DIGITS), "3.333 us");
    }

    #[test]
    fn bounds_tell_one_from_the_next() {
        assert_eq!(bound(4096, Unit::None, true), "4Ki");
        assert_eq!(bound(-2048, Unit::None, true), "-2Ki");
        assert_eq!(bound(-2047, Unit::None, true), "-2047");
        assert_eq!(bound(512, Unit::None, true), "512");
        assert_eq!(bound(1 << 63, Unit::None, true), "8Ei");
        assert_eq!(bound(4096, Unit::Bytes, true), "4 KiB");
        assert_eq!(bound(4096, Unit::Nanoseconds, true), "4.1 us");
        assert_eq!(bound(1_001_000, Unit::Nanoseconds, false), "1.001 ms");
        assert_eq!(bound(4096, Unit::None, false), "4096");
    }
}
