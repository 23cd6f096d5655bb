//! One line an event: `TIME CPU PID name(label=value, ...) = ret`, structs as `{.a=1, .b=2}`, without types. In: what the
//! walker finds. Out: text appended to a string, cut to the columns there are. Never decides what is shown.

use std::fmt::Write;

use super::digits::push_hex;
use super::leaf::{self, TRUNCATED};
use super::paint::{Paint, Style};
use super::sink::{Brackets, Cut, Event, Label, Leaf, Mark, Sink};
use super::text::head;
use super::width;

/// Writes events one a line.
pub(super) struct CompactSink<'o> {
    out: &'o mut String,
    paint: Paint,
    /// What is open, or the event's parentheses, has nothing in it yet.
    empty: bool,
    /// The parentheses are closed: the return value has been reached.
    closed: bool,
    /// A pointer was written, and what it points to follows.
    after_pointer: bool,
    /// Columns that a line may take; 0 for any number.
    columns: usize,
    /// Where the line begins, and where what comes after the parentheses does.
    begin: usize,
    result: Option<usize>,
    /// Values come without their labels.
    bare: bool,
}

impl<'o> CompactSink<'o> {
    /// A sink that appends to `out`.
    pub(super) fn new(out: &'o mut String, paint: Paint, columns: usize) -> CompactSink<'o> {
        CompactSink {
            begin: out.len(),
            result: None,
            columns,
            out,
            paint,
            empty: true,
            closed: false,
            after_pointer: false,
            bare: false,
        }
    }

    /// A sink for values alone, without labels.
    pub(super) fn bare(out: &'o mut String, paint: Paint) -> CompactSink<'o> {
        CompactSink {
            bare: true,
            ..CompactSink::new(out, paint, 0)
        }
    }

    fn separate(&mut self) {
        if !self.empty {
            self.out.push_str(", ");
        }
        self.empty = false;
    }

    fn before_value(&mut self) {
        if self.after_pointer {
            self.after_pointer = false;
            self.out.push(' ');
        }
    }
}

impl Sink for CompactSink<'_> {
    const FOLDS: bool = true;

    fn no_event(&mut self) {
        self.out.push_str(TRUNCATED);
        self.out.push('\n');
    }

    fn unknown_event(&mut self, event: u32) {
        let _ = writeln!(self.out, "<unknown event {event}>");
    }

    fn begin_event(&mut self, event: &Event<'_>) {
        head(self.out, event);
        self.paint.start(self.out, Style::Bold);
        self.out.push_str(event.name);
        self.paint.end(self.out);
        self.out.push('(');
    }

    fn end_event(&mut self) {
        if !self.closed {
            self.out.push(')');
        }
        if self.columns > 0 {
            width::fit(self.out, self.begin, self.result, self.columns);
        }
        self.out.push('\n');
    }

    fn begin_item(&mut self, label: &Label) {
        self.after_pointer = false;
        if self.bare {
            self.separate();
        } else if label.is_return && !self.closed {
            self.closed = true;
            self.result = Some(self.out.len());
            self.out.push_str(") = ");
        } else {
            self.separate();
            // Values that were asked for after the return value stay outside of the parentheses.
            self.paint.start(self.out, Style::Dim);
            self.out.push_str(&label.text);
            self.out.push('=');
            self.paint.end(self.out);
        }
        self.empty = true;
    }

    fn pointer(&mut self, address: u64) {
        push_hex(self.out, u128::from(address));
        self.after_pointer = true;
    }

    fn no_pointer(&mut self, _cast: &str, leaf: Leaf<'_>) {
        leaf::write(self.out, &leaf);
    }

    fn fault(&mut self, step: &str, address: u64) {
        self.before_value();
        self.paint.start(self.out, Style::Red);
        leaf::fault(self.out, step, address);
        self.paint.end(self.out);
    }

    fn end_item(&mut self) {
        self.empty = false;
    }

    fn truncated(&mut self) {
        if !self.empty {
            self.out.push(' ');
        }
        self.empty = false;
        self.paint.start(self.out, Style::Red);
        self.out.push_str(TRUNCATED);
        self.paint.end(self.out);
    }

    fn leaf(&mut self, _cast: Option<&str>, leaf: Leaf<'_>) {
        self.before_value();
        leaf::write(self.out, &leaf);
        self.empty = false;
    }

    fn open(&mut self, _cast: Option<&str>, brackets: Brackets, _short: bool) {
        self.before_value();
        self.out.push(brackets.open());
        self.empty = true;
    }

    fn begin_member(&mut self, name: Option<&str>) {
        self.separate();
        if let Some(name) = name
            && !name.is_empty()
        {
            self.out.push('.');
            self.out.push_str(name);
            self.out.push('=');
        }
    }

    fn end_member(&mut self, repeats: u32) {
        if repeats > 1 {
            let _ = write!(self.out, " <repeats {repeats} times>");
        }
        self.empty = false;
    }

    fn cut(&mut self, cut: Cut) {
        self.separate();
        let _ = leaf::cut(self.out, cut);
    }

    fn close(&mut self, brackets: Brackets) {
        self.out.push(brackets.close());
        self.empty = false;
    }

    fn mark(&self) -> Mark {
        Mark {
            len: self.out.len(),
            empty: self.empty,
        }
    }

    fn rewind(&mut self, mark: Mark) {
        self.out.truncate(mark.len);
        self.empty = mark.empty;
    }
}
