//! The line at the bottom of the terminal that says how a long run goes. In: numbers. Out: a line on stderr that is wiped
//! before anything else is written there. Never written where stderr is no terminal.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ksnoop_jit_runtime as runtime;

use super::number::number;

/// The status line.
#[derive(Debug)]
pub(super) struct Status {
    on: bool,
    /// Events go to the same terminal, so that the line has to make way for them.
    shared: bool,
    /// It is there now.
    shown: Option<String>,
    started: Instant,
    /// Events and hits, and when they had been counted.
    before: (u64, Instant),
}

/// How long a run has to last before it is told how it goes.
const QUIET: Duration = Duration::from_secs(2);

impl Status {
    /// For a run whose events go to a terminal, or not.
    pub(super) fn new(to_terminal: bool) -> Status {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let now = Instant::now();
        Status {
            on: std::io::stderr().is_terminal() && !dumb,
            shared: to_terminal,
            shown: None,
            started: now,
            before: (0, now),
        }
    }

    /// Whether [`Status::tick`] wants to be called.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Shows how many events there are, how many hits are in what is aggregated, if anything is, and how many events were lost.
    pub(super) fn tick(&mut self, events: u64, hits: Option<u64>, lost: u64) {
        let now = Instant::now();
        if !self.on || now.duration_since(self.started) < QUIET {
            return;
        }
        let (before, then) = self.before;
        let (what, number) = counted(events, hits);
        let rate = number.saturating_sub(before) as f64 / now.duration_since(then).as_secs_f64().max(0.001);
        self.before = (number, now);
        let columns = runtime::terminal::columns(std::io::stderr().as_fd()).map_or(80, usize::from);
        self.shown = Some(line(&what, rate, lost, columns));
        self.draw();
    }

    /// Something else is about to be written to the terminal of the events.
    pub(super) fn make_way(&self) {
        if self.shared && self.shown.is_some() {
            wipe();
        }
    }

    /// It has been written.
    pub(super) fn come_back(&self) {
        if self.shared {
            self.draw();
        }
    }

    /// The run is over.
    pub(super) fn end(&mut self) {
        if self.shown.take().is_some() {
            wipe();
        }
        self.on = false;
    }

    fn draw(&self) {
        if let Some(line) = &self.shown {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r{line}\x1b[K");
            let _ = err.flush();
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        self.end();
    }
}

fn wipe() {
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "\r\x1b[K");
    let _ = err.flush();
}

/// What there was, in words and as a number: events, hits of what is aggregated, or both.
pub(super) fn counted(events: u64, hits: Option<u64>) -> (String, u64) {
    match hits {
        None => (number(events, "event"), events),
        Some(hits) if events == 0 => (number(hits, "hit"), hits),
        Some(hits) => (
            format!("{}, {}", number(events, "event"), number(hits, "hit")),
            events.saturating_add(hits),
        ),
    }
}

/// The line, which must not be wider than the terminal: the rest would stay in the next one.
fn line(what: &str, rate: f64, lost: u64, columns: usize) -> String {
    let mut text = format!("{what}, {rate:.0}/s");
    if lost > 0 {
        text.push_str(&format!(", {lost} lost (-P makes the buffer larger)"));
    }
    text.truncate(columns.saturating_sub(1));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits() {
        assert_eq!(line("12 events", 3.4, 0, 80), "12 events, 3/s");
        assert_eq!(
            line("12 events", 3.4, 5, 80),
            "12 events, 3/s, 5 lost (-P makes the buffer larger)"
        );
        assert_eq!(line("12 events", 3.4, 5, 10), "12 events");
        assert_eq!(line("1 event", 0.0, 0, 0), "");
    }

    #[test]
    fn what_is_counted_in_the_kernel_is_told_too() {
        assert_eq!(counted(1, None), ("1 event".to_string(), 1));
        assert_eq!(counted(0, Some(12)), ("12 hits".to_string(), 12));
        assert_eq!(counted(0, Some(0)), ("0 hits".to_string(), 0));
        assert_eq!(counted(2, Some(1)), ("2 events, 1 hit".to_string(), 3));
    }
}
