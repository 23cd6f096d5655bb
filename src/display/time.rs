//! When an event happened, as people and programs read it. In: nanoseconds of the kernel's monotonic clock, which is what
//! records carry, and how other clocks stand to it. Out: a stamp as text. Never asks a clock: the caller says how they stand.

use jiff::tz::Offset;
use jiff::{Timestamp, civil};

use super::digits::{padded, push_u128};

/// Which time is shown with an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamp {
    /// Nanoseconds of the kernel's monotonic clock, as ksnoop shows them: since boot, without the time in suspend.
    #[default]
    Monotonic,
    /// Seconds since boot, with the time in suspend.
    Boot,
    /// The time of day where the machine is.
    Wall,
    /// Seconds since tracing began.
    Relative,
    /// Seconds since the event before, which is 0 for the first.
    Delta,
}

/// How other clocks stand to the monotonic one, by which records tell the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// What is to be added for nanoseconds since the Unix epoch.
    pub wall: i64,
    /// What is to be added for nanoseconds since boot with the time in suspend.
    pub boot: i64,
    /// Seconds that local time is ahead of UTC.
    pub zone: i32,
    /// When tracing began, in nanoseconds of the monotonic clock.
    pub start: u64,
}

/// Writes stamps, and keeps what neighbours share.
#[derive(Debug)]
pub(super) struct Stamper {
    stamp: Stamp,
    clock: Clock,
    /// The event before.
    last: Option<u64>,
    /// A second of the Unix epoch and how it is written: dates are not worked out for each event.
    second: Option<i64>,
    date: String,
}

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

impl Stamper {
    pub(super) fn new(stamp: Stamp) -> Stamper {
        Stamper {
            stamp,
            clock: Clock::default(),
            last: None,
            second: None,
            date: String::new(),
        }
    }

    /// From now on clocks stand so.
    pub(super) fn set(&mut self, clock: Clock) {
        self.clock = clock;
        self.second = None;
    }

    /// Columns that a stamp takes.
    pub(super) fn width(&self) -> usize {
        match self.stamp {
            Stamp::Monotonic | Stamp::Boot | Stamp::Relative | Stamp::Delta => 16,
            Stamp::Wall => "23:59:59.999999999".len(),
        }
    }

    /// Appends a stamp, right-aligned.
    pub(super) fn text(&mut self, out: &mut String, time: u64) {
        match self.stamp {
            Stamp::Monotonic => padded(out, time, 16),
            Stamp::Boot | Stamp::Relative | Stamp::Delta => {
                let (negative, nanos) = self.nanos(time);
                let whole: usize = 16 - 1 - 9;
                if negative {
                    // Only a clock that was set wrongly gets here; right-aligned all the same.
                    let digits = (nanos / SECOND).checked_ilog10().unwrap_or(0) as usize + 1;
                    out.extend(std::iter::repeat_n(' ', whole.saturating_sub(digits + 1)));
                    out.push('-');
                    push_u128(out, u128::from(nanos / SECOND));
                } else {
                    padded(out, nanos / SECOND, whole);
                }
                fraction(out, nanos % SECOND);
            }
            Stamp::Wall => {
                let nanos = self.date(time);
                // The date is left out: a trace is mostly of one day.
                out.push_str(self.date.get(11..19).unwrap_or(&self.date));
                fraction(out, nanos);
            }
        }
        self.last = Some(time);
    }

    /// Appends a stamp as JSON: a number of nanoseconds, or the time of day as RFC 3339 has it.
    pub(super) fn json(&mut self, out: &mut String, time: u64) {
        match self.stamp {
            Stamp::Monotonic => super::json::unsigned(out, u128::from(time)),
            Stamp::Boot | Stamp::Relative | Stamp::Delta => {
                let (negative, nanos) = self.nanos(time);
                let nanos = i128::from(nanos);
                super::json::signed(out, if negative { -nanos } else { nanos });
            }
            Stamp::Wall => {
                let nanos = self.date(time);
                out.push('"');
                out.push_str(self.date.get(..19).unwrap_or(&self.date));
                fraction(out, nanos);
                out.push_str(self.date.get(19..).unwrap_or(""));
                out.push('"');
            }
        }
        self.last = Some(time);
    }

    /// The time in nanoseconds by a clock that is neither the wall's nor the kernel's own, and whether it is negative.
    fn nanos(&self, time: u64) -> (bool, u64) {
        let (from, to) = match self.stamp {
            Stamp::Boot => {
                let to = i128::from(time) + i128::from(self.clock.boot);
                (0, to)
            }
            Stamp::Relative => (i128::from(self.clock.start), i128::from(time)),
            Stamp::Delta => (i128::from(self.last.unwrap_or(time)), i128::from(time)),
            Stamp::Monotonic | Stamp::Wall => (0, i128::from(time)),
        };
        let nanos = to - from;
        (nanos < 0, u64::try_from(nanos.unsigned_abs()).unwrap_or(u64::MAX))
    }

    /// Makes `date` that of the time, to the second, with the zone behind it; gives the nanoseconds that are over.
    fn date(&mut self, time: u64) -> u64 {
        let unix = i128::from(time) + i128::from(self.clock.wall);
        let second = i64::try_from(unix.div_euclid(i128::from(SECOND))).unwrap_or(i64::MAX);
        let nanos = unix.rem_euclid(i128::from(SECOND)) as u64;
        if self.second != Some(second) {
            self.second = Some(second);
            let date = local(second, self.clock.zone);
            self.date.clear();
            use std::fmt::Write;
            // Writing to a string can't fail.
            let _ = match date {
                Some((date, offset)) => write!(self.date, "{}{}", date.strftime("%Y-%m-%dT%H:%M:%S"), offset),
                // Further away than the calendar goes: only a broken record has such a time.
                None => write!(self.date, "9999-12-31T23:59:59Z"),
            };
        }
        nanos
    }
}

/// The date of a second of the Unix epoch, and the zone as RFC 3339 writes it.
fn local(second: i64, zone: i32) -> Option<(civil::DateTime, String)> {
    let offset = Offset::from_seconds(zone).ok()?;
    let date = offset.to_datetime(Timestamp::from_second(second).ok()?);
    let minutes = zone / 60;
    let sign = if minutes < 0 { '-' } else { '+' };
    let (hours, minutes) = (minutes.unsigned_abs() / 60, minutes.unsigned_abs() % 60);
    Some((date, format!("{sign}{hours:02}:{minutes:02}")))
}

/// A point and nine digits.
fn fraction(out: &mut String, nanos: u64) {
    let mut digits = *b".000000000";
    let mut left = nanos;
    for digit in digits.iter_mut().skip(1).rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    out.push_str(std::str::from_utf8(&digits).unwrap_or(".000000000"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(stamp: Stamp, clock: Clock, times: &[u64]) -> (Vec<String>, Vec<String>) {
        let each = |write: fn(&mut Stamper, &mut String, u64)| {
            let mut stamper = Stamper::new(stamp);
            stamper.set(clock);
            times
                .iter()
                .map(|time| {
                    let mut out = String::new();
                    write(&mut stamper, &mut out, *time);
                    out
                })
                .collect()
        };
        (each(Stamper::text), each(Stamper::json))
    }

    #[test]
    fn each_clock() {
        let clock = Clock {
            wall: 1_700_000_000 * SECOND as i64,
            boot: 3 * SECOND as i64,
            zone: 2 * 3600 + 1800,
            start: 4 * SECOND,
        };
        let times = [5_000_000_001, 7_250_000_000];
        let show = |stamp| stamps(stamp, clock, &times);
        let both = |text: [&str; 2], json: [&str; 2]| {
            (
                text.map(str::to_string).to_vec(),
                json.map(str::to_string).to_vec(),
            )
        };
        assert_eq!(
            show(Stamp::Monotonic),
            both(
                ["      5000000001", "      7250000000"],
                ["5000000001", "7250000000"]
            )
        );
        assert_eq!(
            show(Stamp::Boot),
            both(
                ["     8.000000001", "    10.250000000"],
                ["8000000001", "10250000000"]
            )
        );
        assert_eq!(
            show(Stamp::Relative),
            both(
                ["     1.000000001", "     3.250000000"],
                ["1000000001", "3250000000"]
            )
        );
        assert_eq!(
            show(Stamp::Delta),
            both(["     0.000000000", "     2.249999999"], ["0", "2249999999"])
        );
        assert_eq!(
            show(Stamp::Wall),
            both(
                ["00:43:25.000000001", "00:43:27.250000000"],
                [
                    "\"2023-11-15T00:43:25.000000001+02:30\"",
                    "\"2023-11-15T00:43:27.250000000+02:30\""
                ]
            )
        );
    }

    #[test]
    fn times_that_no_clock_shows() {
        let odd = [
            Clock::default(),
            Clock {
                wall: i64::MIN,
                boot: i64::MIN,
                zone: i32::MIN,
                start: u64::MAX,
            },
            Clock {
                wall: i64::MAX,
                boot: i64::MAX,
                zone: -3600 * 7,
                start: 1,
            },
        ];
        for clock in odd {
            for stamp in [
                Stamp::Monotonic,
                Stamp::Boot,
                Stamp::Wall,
                Stamp::Relative,
                Stamp::Delta,
            ] {
                let (text, json) = stamps(stamp, clock, &[u64::MAX, 0, 1 << 62]);
                for one in text {
                    assert!(one.len() >= 16, "{one}");
                }
                for one in json {
                    let value: serde_json::Value = serde_json::from_str(&one).expect(&one);
                    assert!(value.is_number() || value.is_string());
                }
            }
        }
        let behind = Clock {
            start: 2 * SECOND,
            ..Clock::default()
        };
        assert_eq!(
            stamps(Stamp::Relative, behind, &[500_000_000]).0,
            ["    -1.500000000"]
        );
    }
}
