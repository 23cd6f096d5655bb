//! ksnoop's layout: a line for each member, one space a level. In: what the walker finds. Out: text appended to a
//! string. Never decides what is shown.

use std::fmt::Write;

use super::digits::{padded, push_hex, spaces};
use super::leaf::{self, TRUNCATED};
use super::paint::{Paint, Style};
use super::sink::{Brackets, Cut, Event, Frame, Label, Leaf, Mark, Sink, Tail};

/// Columns before a value's label.
const LABEL_INDENT: usize = 35;
/// Columns before a value.
const VALUE_INDENT: usize = 36;
/// Columns before the parenthesis that closes an event.
const CLOSE_INDENT: usize = 31;
/// Bytes on a line of a hex dump.
const DUMP_LINE: usize = 16;

/// Writes events as ksnoop does.
pub(super) struct TextSink<'o> {
    out: &'o mut String,
    paint: Paint,
    /// Structs, unions and arrays that are open.
    level: usize,
    /// The innermost of them has nothing in it yet.
    empty: bool,
    /// How many of them are in one that takes no lines of its own, itself counted.
    short: usize,
    /// The event has nothing in it yet.
    first: bool,
}

impl<'o> TextSink<'o> {
    /// A sink that appends to `out`.
    pub(super) fn new(out: &'o mut String, paint: Paint) -> TextSink<'o> {
        TextSink {
            out,
            paint,
            level: 0,
            empty: true,
            short: 0,
            first: true,
        }
    }

    fn line(&mut self, columns: usize) {
        self.out.push('\n');
        spaces(self.out, columns);
    }

    fn cast(&mut self, cast: Option<&str>) {
        if let Some(cast) = cast {
            self.paint.start(self.out, Style::Dim);
            self.out.push('(');
            self.out.push_str(cast);
            self.out.push(')');
            self.paint.end(self.out);
        }
    }

    /// A line of its own among the members.
    fn inner_line(&mut self) {
        if self.empty {
            self.empty = false;
            self.out.push('\n');
        }
        spaces(self.out, VALUE_INDENT + self.level);
    }

    /// A line for each frame.
    fn stack(&mut self, frames: &[Frame<'_>]) {
        if frames.is_empty() {
            self.out.push_str(leaf::NO_STACK);
        }
        for (index, frame) in frames.iter().enumerate() {
            if index > 0 {
                self.line(VALUE_INDENT + self.level);
            }
            leaf::frame(self.out, frame);
        }
    }

    fn dump(&mut self, bytes: &[u8], tail: Tail) {
        for (index, line) in bytes.chunks(DUMP_LINE).enumerate() {
            self.line(VALUE_INDENT + self.level + 1);
            let _ = write!(self.out, "{:04x}:", index * DUMP_LINE);
            for column in 0..DUMP_LINE {
                let _ = match line.get(column) {
                    Some(byte) => write!(self.out, " {byte:02x}"),
                    None => self.out.write_str("   "),
                };
            }
            self.out.push_str("  |");
            for byte in line {
                let shown = if (b' '..=b'~').contains(byte) { *byte } else { b'.' };
                self.out.push(char::from(shown));
            }
            self.out.push('|');
        }
        if tail != Tail::Whole {
            self.line(VALUE_INDENT + self.level + 1);
            let _ = leaf::rest(self.out, bytes, tail);
        }
    }
}

impl Sink for TextSink<'_> {
    const FOLDS: bool = true;

    fn no_event(&mut self) {
        self.out.push_str(TRUNCATED);
        self.out.push_str("\n\n");
    }

    fn unknown_event(&mut self, event: u32) {
        let _ = write!(self.out, "<unknown event {event}>\n\n");
    }

    fn begin_event(&mut self, event: &Event<'_>) {
        head(self.out, event);
        self.paint.start(self.out, Style::Bold);
        self.out.push_str(event.name);
        self.paint.end(self.out);
        self.out.push_str("(\n");
    }

    fn end_event(&mut self) {
        if !self.first {
            self.out.push('\n');
        }
        spaces(self.out, CLOSE_INDENT);
        self.out.push_str(");\n\n");
    }

    fn begin_item(&mut self, label: &Label) {
        if !self.first {
            self.out.push_str(",\n");
        }
        self.first = false;
        spaces(self.out, LABEL_INDENT);
        self.paint.start(self.out, Style::Bold);
        self.out.push_str(&label.text);
        self.paint.end(self.out);
        self.out.push_str(" = ");
        self.level = 0;
        self.short = 0;
        self.empty = true;
    }

    fn pointer(&mut self, address: u64) {
        self.out.push_str("*(");
        push_hex(self.out, u128::from(address));
        self.out.push(')');
    }

    fn no_pointer(&mut self, _cast: &str, leaf: Leaf<'_>) {
        leaf::write(self.out, &leaf);
    }

    fn fault(&mut self, step: &str, address: u64) {
        self.line(VALUE_INDENT);
        self.paint.start(self.out, Style::Red);
        leaf::fault(self.out, step, address);
        self.paint.end(self.out);
    }

    fn end_item(&mut self) {}

    fn truncated(&mut self) {
        if self.first {
            self.first = false;
            spaces(self.out, LABEL_INDENT);
        } else {
            self.line(LABEL_INDENT);
        }
        self.paint.start(self.out, Style::Red);
        self.out.push_str(TRUNCATED);
        self.paint.end(self.out);
    }

    fn leaf(&mut self, cast: Option<&str>, leaf: Leaf<'_>) {
        if self.level == 0 {
            self.line(VALUE_INDENT);
        }
        if self.short > 0 {
            // One line in which types would be most of the text.
            return leaf::write(self.out, &leaf);
        }
        self.cast(cast);
        match leaf {
            Leaf::Void => self.out.push_str("(void)"),
            Leaf::Stack(frames) => self.stack(frames),
            Leaf::Dump(bytes, tail) => self.dump(bytes, tail),
            Leaf::Signed(_)
            | Leaf::Unsigned(_)
            | Leaf::Hex(_)
            | Leaf::Octal(_)
            | Leaf::Binary(_)
            | Leaf::Bool(_)
            | Leaf::Char(_)
            | Leaf::Byte(_)
            | Leaf::Name(_)
            | Leaf::Flags(..)
            | Leaf::Float(_)
            | Leaf::Double(_)
            | Leaf::Unread
            | Leaf::Null
            | Leaf::ErrPtr(_)
            | Leaf::Pointer(_)
            | Leaf::Located(..)
            | Leaf::Symbol(..)
            | Leaf::Errno(_)
            | Leaf::Text(..)
            | Leaf::Raw(..)
            | Leaf::Ip4(_)
            | Leaf::Ip6(_)
            | Leaf::Mac(_)
            | Leaf::List(..)
            | Leaf::Elided(_)
            | Leaf::Cut(_) => leaf::write(self.out, &leaf),
        }
    }

    fn open(&mut self, cast: Option<&str>, brackets: Brackets, short: bool) {
        if self.level == 0 {
            self.line(VALUE_INDENT);
        }
        if self.short == 0 {
            self.cast(cast);
        }
        if short || self.short > 0 {
            self.short += 1;
        }
        self.out.push(brackets.open());
        self.level += 1;
        self.empty = true;
    }

    fn begin_member(&mut self, name: Option<&str>) {
        if self.short > 0 {
            if !self.empty {
                self.out.push_str(", ");
            }
            self.empty = false;
            if let Some(name) = name
                && !name.is_empty()
            {
                self.out.push('.');
                self.out.push_str(name);
                self.out.push('=');
            }
            return;
        }
        self.inner_line();
        if let Some(name) = name
            && !name.is_empty()
        {
            self.out.push('.');
            self.out.push_str(name);
            self.out.push_str(" = ");
        }
    }

    fn end_member(&mut self, repeats: u32) {
        if repeats > 1 {
            let _ = write!(self.out, " <repeats {repeats} times>");
        }
        self.empty = false;
        if self.short == 0 {
            self.out.push_str(",\n");
        }
    }

    fn cut(&mut self, cut: Cut) {
        if self.short > 0 {
            if !self.empty {
                self.out.push_str(", ");
            }
            self.empty = false;
            let _ = leaf::cut(self.out, cut);
            return;
        }
        self.inner_line();
        let _ = leaf::cut(self.out, cut);
        self.out.push('\n');
    }

    fn close(&mut self, brackets: Brackets) {
        self.level = self.level.saturating_sub(1);
        if self.short > 0 {
            self.short -= 1;
        } else if self.empty {
            // ksnoop closes an empty struct on a line of its own only where the struct is the whole value.
            if self.level == 0 {
                self.line(VALUE_INDENT);
            }
        } else {
            spaces(self.out, VALUE_INDENT + self.level);
        }
        self.empty = false;
        self.out.push(brackets.close());
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

/// The header line, ksnoop's, with so many columns for the time.
pub(super) fn header(time: usize) -> String {
    format!(
        "{:>time$} {:>4} {:>8} {}\n",
        "TIME", "CPU", "PID", "FUNCTION/ARGS"
    )
}

/// Time, CPU and process, as both text formats begin.
pub(super) fn head(out: &mut String, event: &Event<'_>) {
    out.push_str(event.stamp);
    out.push(' ');
    padded(out, u64::from(event.cpu), 4);
    out.push(' ');
    padded(out, u64::from(event.pid), 8);
    out.push(' ');
}
