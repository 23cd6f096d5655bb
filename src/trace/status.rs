//! The line at the bottom of the terminal that says how a long run goes. In: numbers. Out: a line on stderr that is wiped
//! before anything else is written there. Never written where stderr is no terminal.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ksnoop_jit_runtime as runtime;

/// The status line.
#[derive(Debug)]
pub(super) struct Status {
    on: bool,
    /// Events go to the same terminal, so that the line has to make way for them.
    shared: bool,
    /// It is there now.
    shown: Option<String>,
    started: Instant,
    /// Events, and when they had been counted.
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

    /// Shows how many events there are and how many were lost.
    pub(super) fn tick(&mut self, events: u64, lost: u64) {
        let now = Instant::now();
        if !self.on || now.duration_since(self.started) < QUIET {
            return;
        }
        let (events_before, then) = self.before;
        let rate = (events - events_before) as f64 / now.duration_since(then).as_secs_f64().max(0.001);
        self.before = (events, now);
        let columns = runtime::terminal::columns(std::io::stderr().as_fd()).map_or(80, usize::from);
        self.shown = Some(line(events, rate, lost, columns));
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

/// The line, which must not be wider than the terminal: the rest would stay in the next one.
fn line(events: u64, rate: f64, lost: u64, columns: usize) -> String {
    let mut text = format!("{events} events, {rate:.0}/s");
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
        assert_eq!(line(12, 3.4, 0, 80), "12 events, 3/s");
        assert_eq!(
            line(12, 3.4, 5, 80),
            "12 events, 3/s, 5 lost (-P makes the buffer larger)"
        );
        assert_eq!(line(12, 3.4, 5, 10), "12 events");
        assert_eq!(line(1, 0.0, 0, 0), "");
    }
}
