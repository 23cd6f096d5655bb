//! Events as JSON, in two forms: one object a line, and the events of a Chrome trace. In: what the walker finds. Out: text
//! appended to a string. Never decides what is shown; how values are written is `json`'s.

use crate::wire::Phase;

use super::digits::push_u128;
use super::json::{self, Values};
use super::notice::phase;
use super::sink::{Brackets, Cut, Event, Label, Leaf, Mark, Sink};

/// Writes events as JSON.
pub(super) struct JsonSink<'o> {
    values: Values<'o>,
    form: Form,
}

/// What is around the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One object a line.
    Lines,
    /// An event of a Chrome trace.
    Chrome(Slice),
}

/// What an event is in a Chrome trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    /// A call begins.
    Begin,
    /// It ends.
    End,
    /// A call that took so many nanoseconds has just ended.
    Whole(u64),
    /// Something happened, and nothing is known of how long it took.
    Instant,
}

impl<'o> JsonSink<'o> {
    /// A sink that appends to `out`.
    pub(super) fn new(out: &'o mut String, form: Form) -> JsonSink<'o> {
        JsonSink {
            values: Values::new(out, true),
            form,
        }
    }

    fn begin_line(&mut self, event: &Event<'_>) {
        let out = &mut *self.values.out;
        out.push_str("{\"type\":\"event\",\"name\":");
        json::string(out, event.name);
        out.push_str(",\"phase\":\"");
        out.push_str(phase(event.phase));
        out.push_str("\",\"query\":");
        push_u128(out, event.query as u128);
        out.push_str(",\"time\":");
        out.push_str(event.stamp);
        number(out, ",\"cpu\":", event.cpu);
        number(out, ",\"pid\":", event.pid);
        number(out, ",\"tid\":", event.tid);
        out.push_str(",\"values\":{");
        self.values.empty = true;
    }

    fn begin_slice(&mut self, event: &Event<'_>, slice: Slice) {
        let out = &mut *self.values.out;
        let letter = match slice {
            Slice::Begin => "B",
            Slice::End => "E",
            Slice::Whole(_) => "X",
            // Shown in the thread's own row.
            Slice::Instant => "i\",\"s\":\"t",
        };
        out.push_str("{\"ph\":\"");
        out.push_str(letter);
        out.push_str("\",\"name\":");
        json::string(out, event.name);
        out.push_str(",\"cat\":\"");
        out.push_str(match event.phase {
            Phase::Entry | Phase::Return | Phase::Both => "function",
            Phase::Hit => "tracepoint",
        });
        out.push_str("\",\"ts\":");
        match slice {
            Slice::Whole(took) => {
                // A record that says otherwise is wrong: no call began before the clock did.
                let took = took.min(event.time);
                micros(out, event.time - took);
                out.push_str(",\"dur\":");
                micros(out, took);
            }
            Slice::Begin | Slice::End | Slice::Instant => micros(out, event.time),
        }
        number(out, ",\"pid\":", event.pid);
        number(out, ",\"tid\":", row(event.tid, event.cpu));
        number(out, ",\"args\":{\"$cpu\":", event.cpu);
        self.values.empty = false;
    }
}

impl Sink for JsonSink<'_> {
    const FOLDS: bool = false;

    fn no_event(&mut self) {
        self.values.out.push_str(match self.form {
            Form::Lines => "{\"type\":\"error\",\"message\":\"a record is too short to tell what it is\"}\n",
            Form::Chrome(_) => "{\"ph\":\"M\",\"name\":\"truncated record\",\"pid\":0,\"args\":{}}",
        });
    }

    fn unknown_event(&mut self, event: u32) {
        let out = &mut *self.values.out;
        match self.form {
            Form::Lines => {
                number(
                    out,
                    "{\"type\":\"error\",\"message\":\"no event has the number ",
                    event,
                );
                out.push_str("\"}\n");
            }
            Form::Chrome(_) => {
                number(out, "{\"ph\":\"M\",\"name\":\"unknown event ", event);
                out.push_str("\",\"pid\":0,\"args\":{}}");
            }
        }
    }

    fn begin_event(&mut self, event: &Event<'_>) {
        match self.form {
            Form::Lines => self.begin_line(event),
            Form::Chrome(slice) => self.begin_slice(event, slice),
        }
    }

    fn end_event(&mut self) {
        let truncated = self.values.truncated;
        let out = &mut *self.values.out;
        match self.form {
            Form::Lines => out.push_str(if truncated {
                "},\"truncated\":true}\n"
            } else {
                "}}\n"
            }),
            Form::Chrome(_) => out.push_str(if truncated { ",\"$truncated\":true}}" } else { "}}" }),
        }
    }

    fn begin_item(&mut self, label: &Label) {
        self.values.begin_item(&label.key);
    }

    fn pointer(&mut self, address: u64) {
        self.values.pointer(address);
    }

    fn no_pointer(&mut self, _cast: &str, leaf: Leaf<'_>) {
        self.values.leaf(&leaf);
    }

    fn fault(&mut self, step: &str, address: u64) {
        self.values.fault(step, address);
    }

    fn end_item(&mut self) {
        self.values.end_item();
    }

    fn truncated(&mut self) {
        self.values.truncated = true;
    }

    fn leaf(&mut self, _cast: Option<&str>, leaf: Leaf<'_>) {
        self.values.leaf(&leaf);
    }

    fn open(&mut self, _cast: Option<&str>, brackets: Brackets, _short: bool) {
        self.values.open(brackets);
    }

    fn begin_member(&mut self, name: Option<&str>) {
        self.values.begin_member(name);
    }

    fn end_member(&mut self, _repeats: u32) {}

    fn cut(&mut self, cut: Cut) {
        self.values.cut(cut);
    }

    fn close(&mut self, brackets: Brackets) {
        self.values.close(brackets);
    }

    fn mark(&self) -> Mark {
        self.values.mark()
    }

    fn rewind(&mut self, mark: Mark) {
        self.values.rewind(mark);
    }
}

/// The row of a trace that a thread's events go to. Thread 0 is every CPU's idle task, and each has a row of its own; Linux
/// gives no thread an id of 2^22 or more (`PID_MAX_LIMIT`, include/linux/threads.h).
pub(super) fn row(tid: u32, cpu: u32) -> u32 {
    if tid == 0 {
        (1u32 << 22).saturating_add(cpu)
    } else {
        tid
    }
}

/// Appends nanoseconds as the microseconds that a trace counts in.
pub(super) fn micros(out: &mut String, nanos: u64) {
    push_u128(out, u128::from(nanos / 1000));
    let rest = nanos % 1000;
    for digit in [
        b'.',
        b'0' + (rest / 100) as u8,
        b'0' + (rest / 10 % 10) as u8,
        b'0' + (rest % 10) as u8,
    ] {
        out.push(char::from(digit));
    }
}

fn number(out: &mut String, before: &str, value: u32) {
    out.push_str(before);
    push_u128(out, u128::from(value));
}
