//! Reads ksnoop-jit's text output: the one place that knows how it is laid out.
//!
//! In: everything the tool wrote to stdout. Out: the events, in order. It is tolerant about white space and
//! about where lines are broken, and about nothing else: a line that belongs nowhere is an error, never
//! skipped.
//!
//! ```text
//!             TIME  CPU      PID FUNCTION/ARGS
//!      45161385520    0      366 ip_rcv(
//!                                    skb->len =
//!                                     (unsigned int)628,
//!                                    skb = *(0xffff888004432700)
//!                                     (struct sk_buff){
//!                                      .len = (unsigned int)628,
//!                                     }
//!                                );
//! ```

use anyhow::{Context, Result, bail, ensure};

/// The column at which a value's label begins; what follows of the value is further to the right.
const LABEL_COLUMN: usize = 35;

/// One event as printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// Nanoseconds of the kernel's monotonic clock.
    pub(crate) time: u64,
    pub(crate) pid: u32,
    /// Without a module's or probe kind's name before it.
    pub(crate) function: String,
    pub(crate) values: Vec<Value>,
}

/// One value of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value {
    /// The item's source text.
    pub(crate) label: String,
    /// What is printed for it, as [`normal`] leaves it.
    pub(crate) text: String,
}

/// All events that are there to their end. An unfinished last one is left out when `running`, and otherwise
/// an error.
pub(crate) fn events(text: &str, running: bool) -> Result<Vec<Event>> {
    // While the tool runs, its last line may still be growing.
    let whole = if running {
        text.rfind('\n').map_or("", |end| &text[..end])
    } else {
        text
    };
    let mut events = Vec::new();
    let mut open: Option<Event> = None;
    for line in whole.lines() {
        let body = line.trim();
        if body.is_empty() || body.starts_with("TIME ") {
            continue;
        }
        match &mut open {
            None => {
                let (event, closed) =
                    start(body).with_context(|| format!("no event starts with `{line}`"))?;
                if closed {
                    events.push(event);
                } else {
                    open = Some(event);
                }
            }
            Some(event) if body == ");" => {
                for value in &mut event.values {
                    value.text = normal(&value.text);
                }
                events.extend(open.take());
            }
            Some(event) => part(event, line, body)?,
        }
    }
    ensure!(running || open.is_none(), "the last event is cut off: {open:?}");
    Ok(events)
}

/// `TIME CPU PID NAME(`; an event without values may close on the same line.
fn start(line: &str) -> Option<(Event, bool)> {
    let mut words = line.split_whitespace();
    let time = words.next()?.parse().ok()?;
    let _cpu: u32 = words.next()?.parse().ok()?;
    let pid = words.next()?.parse().ok()?;
    let name = words.next()?;
    let (name, closed) = match name.strip_suffix("();") {
        Some(name) => (name, true),
        None => (name.strip_suffix('(')?, false),
    };
    if words.next().is_some() {
        return None;
    }
    let function = name.rsplit(':').next().unwrap_or(name).to_owned();
    Some((
        Event {
            time,
            pid,
            function,
            values: Vec::new(),
        },
        closed,
    ))
}

/// A line within an event: a new value, or more of the last one.
fn part(event: &mut Event, line: &str, body: &str) -> Result<()> {
    let column = line.len() - line.trim_start().len();
    if column <= LABEL_COLUMN
        && let Some((label, text)) = label(body)
    {
        event.values.push(Value {
            label: label.to_owned(),
            text: text.to_owned(),
        });
    } else if let Some(value) = event.values.last_mut() {
        value.text.push(' ');
        value.text.push_str(body);
    } else {
        bail!("`{line}` is neither a value nor the end of an event");
    }
    Ok(())
}

fn label(body: &str) -> Option<(&str, &str)> {
    body.split_once(" = ")
        .or_else(|| body.strip_suffix(" =").map(|label| (label, "")))
}

/// One space where there is white space, none next to brackets' insides, no comma before a bracket closes or
/// at the end: what two ways of laying out the same value have in common.
pub(crate) fn normal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if word.starts_with(['}', ']']) && out.ends_with(',') {
            out.pop();
        }
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    if out.ends_with(',') {
        out.pop();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
            TIME  CPU      PID FUNCTION/ARGS
     45161385520    0      366 ip_rcv(
                                   skb->len = 
                                    (unsigned int)628,
                                   skb = *(0xffff888004432700)
                                    (struct sk_buff){
                                     .cb = (char[48])[
                                      -126,
                                      2,
                                     ],
                                     .len = (unsigned int)628,
                                    }
                               );

     45161385521    0      366 ksj_args0(
                               );

";

    #[test]
    fn reads_events() {
        let events = events(TEXT, false).expect("the text is well formed");
        assert_eq!(events.len(), 2);
        assert_eq!((events[0].pid, events[0].function.as_str()), (366, "ip_rcv"));
        assert_eq!(events[0].values[0].label, "skb->len");
        assert_eq!(events[0].values[0].text, "(unsigned int)628");
        assert_eq!(
            events[0].values[1].text,
            "*(0xffff888004432700) (struct sk_buff){ .cb = (char[48])[ -126, 2 ], .len = (unsigned int)628 }"
        );
        assert!(events[1].values.is_empty());
    }

    #[test]
    fn an_unfinished_event_is_not_yet_one_while_running() {
        let cut = &TEXT[..TEXT.find("ksj_args0").expect("it is there") + 10];
        assert_eq!(events(cut, true).expect("running").len(), 1);
        assert!(events(cut, false).is_err());
    }

    #[test]
    fn a_stray_line_is_an_error() {
        assert!(events("hello\n", false).is_err());
    }
}
