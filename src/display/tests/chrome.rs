//! Chrome traces, held to the Trace Event Format's documentation ("Trace Event Format", Google 2016): which members each kind of
//! event must have, what they may be, and that slices of one row nest.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fixture::*;
use crate::ctype::CType;
use crate::display::{Layout, NoSymbols, Notice, Options, Printer, Thread};
use crate::wire::{self, Phase, RecordLayout, ValueLayout};

/// The entry and the return of a function, and a tracepoint.
fn layouts() -> Vec<RecordLayout> {
    let mut all = Vec::new();
    for (event, phase, name) in [
        (0, Phase::Entry, "outer"),
        (1, Phase::Return, "outer"),
        (2, Phase::Entry, "inner"),
        (3, Phase::Return, "inner"),
        (4, Phase::Hit, "tick"),
        (5, Phase::Both, "failed"),
        (6, Phase::Entry, "only_entered"),
        (7, Phase::Both, "timed"),
    ] {
        let label = match phase {
            Phase::Return => "return",
            Phase::Entry | Phase::Both | Phase::Hit => "x",
        };
        let mut items = vec![item(label, ValueLayout::Scalar, CType::INT)];
        if name == "timed" {
            items.push(item(wire::DURATION, ValueLayout::Scalar, CType::ULONG));
        }
        let mut one = layout(phase, items);
        one.event = event;
        one.names = vec![name.to_string()];
        all.push(one);
    }
    all
}

struct Trace {
    events: Vec<(u32, u32, u32, u64)>,
}

impl Trace {
    /// The trace as text: event number, thread, CPU and time of each event.
    fn text(&self) -> String {
        let types = Fixture::new().types();
        let layouts = layouts();
        let mut printer = Printer::new(&types, &layouts, Options::new(Layout::Chrome));
        let mut out = String::new();
        printer.begin(&[], &mut out);
        let thread = Thread {
            pid: 366,
            tid: 5,
            cpu: 0,
            process: Some("a\u{1b}[2J\u{202e}\"b"),
            name: Some("worker"),
        };
        printer.thread(&thread, &mut out);
        for (event, tid, cpu, time) in &self.events {
            let layout = &layouts[*event as usize];
            let seven = 7u64.to_le_bytes();
            // The call with a length took 400 ns.
            let took = 400u64.to_le_bytes();
            let values: &[(u32, u32, &[u8])] = &[(0, 0, &seven), (0, 0, &took)];
            let mut bytes = record(layout, &values[..layout.items.len()]);
            for (at, value) in [(wire::TID, tid), (wire::CPU, cpu)] {
                bytes[at as usize..at as usize + 4].copy_from_slice(&value.to_le_bytes());
            }
            bytes[wire::TIME as usize..wire::TIME as usize + 8].copy_from_slice(&time.to_le_bytes());
            printer.event(&bytes, &mut out, &NoSymbols);
        }
        let lost = Notice::Lost {
            name: "outer",
            query: 0,
            count: 3,
        };
        printer.notice(&lost, &mut out);
        printer.end(&mut out);
        out
    }

    /// Each event as `PH name row time`.
    fn shown(&self) -> Vec<String> {
        let text = self.text();
        let events: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        validate(&events);
        events
            .iter()
            .filter(|event| event["ph"] != "M" && event["s"] != "g")
            .map(|event| {
                let field = |name: &str| event[name].to_string().replace('"', "");
                format!(
                    "{} {} {} {}",
                    field("ph"),
                    field("name"),
                    field("tid"),
                    field("ts")
                )
            })
            .collect()
    }
}

/// What the format's documentation asks for.
fn validate(events: &[Value]) {
    let mut open: BTreeMap<(u64, u64), Vec<(String, f64)>> = BTreeMap::new();
    let mut slices: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for event in events {
        let number = |name: &str| {
            event[name]
                .as_u64()
                .unwrap_or_else(|| panic!("{name} of {event}"))
        };
        let name = event["name"]
            .as_str()
            .unwrap_or_else(|| panic!("no name: {event}"));
        let row = (number("pid"), number("tid"));
        assert!(event["args"].is_object(), "{event}");
        if event["ph"] == "M" {
            assert!(matches!(name, "process_name" | "thread_name"), "{event}");
            assert!(event["args"]["name"].is_string(), "{event}");
            continue;
        }
        // In microseconds, with a fraction.
        let time = event["ts"].as_f64().unwrap_or_else(|| panic!("no time: {event}"));
        assert!(event["cat"].is_string() || event["ph"] == "E", "{event}");
        let stack = open.entry(row).or_default();
        match event["ph"].as_str() {
            Some("B") => stack.push((name.to_string(), time)),
            Some("E") => {
                let (began, start) = stack.pop().unwrap_or_else(|| panic!("nothing is open: {event}"));
                assert_eq!(began, name, "slices nest");
                assert!(time >= start, "{event}");
                slices.entry(row).or_default().push((start, time));
            }
            Some("X") => {
                let length = event["dur"]
                    .as_f64()
                    .unwrap_or_else(|| panic!("no length: {event}"));
                assert!(length >= 0.0 && time >= 0.0, "{event}");
                slices.entry(row).or_default().push((time, time + length));
            }
            Some("i") => assert!(matches!(event["s"].as_str(), Some("t" | "p" | "g")), "{event}"),
            other => panic!("no such phase: {other:?}"),
        }
    }
    for slices in slices.values() {
        for (start, end) in slices {
            let crossed = slices
                .iter()
                .any(|(from, to)| start < from && from < end && end < to);
            assert!(!crossed, "slices of one row nest: {slices:?}");
        }
    }
}

#[test]
fn calls_are_slices_that_nest() {
    let trace = Trace {
        events: vec![
            (0, 5, 0, 1_000),
            (2, 5, 0, 1_500),
            (0, 6, 1, 1_600),
            (4, 5, 0, 1_700),
            (3, 5, 1, 2_000),
            (1, 5, 1, 2_001),
            (1, 6, 1, 3_000),
        ],
    };
    assert_eq!(
        trace.shown(),
        [
            "B outer 5 1.0",
            "B inner 5 1.5",
            "B outer 6 1.6",
            "i tick 5 1.7",
            "E inner 5 2.0",
            "E outer 5 2.001",
            "E outer 6 3.0"
        ]
    );
    let text = trace.text();
    assert!(text.contains(
        "{\"ph\":\"B\",\"name\":\"outer\",\"cat\":\"function\",\"ts\":1.000,\"pid\":366,\"tid\":5,\"args\":{\"$cpu\":0,\"x\":7}}"
    ));
    assert!(text.contains("\"args\":{\"$cpu\":1,\"return\":7}}"));
    assert!(text.contains("{\"name\":\"a\\u001b[2J\\u202e\\\"b\"}"), "{text}");
    // A run that is killed leaves what a viewer still reads: all but the end of the array.
    assert!(text.ends_with("}\n]\n"));
}

#[test]
fn ends_without_beginnings_and_beginnings_without_ends() {
    let trace = Trace {
        events: vec![
            // Began before tracing did.
            (1, 5, 0, 1_000),
            (0, 5, 0, 2_000),
            (2, 5, 0, 3_000),
            // The inner return was lost; it cannot have come later.
            (1, 5, 0, 4_000),
            (3, 5, 0, 5_000),
            // The run ends within a call.
            (0, 5, 0, 6_000),
        ],
    };
    assert_eq!(
        trace.shown(),
        [
            "i outer 5 1.0",
            "B outer 5 2.0",
            "B inner 5 3.0",
            "E inner 5 4.0",
            "E outer 5 4.0",
            "i inner 5 5.0",
            "B outer 5 6.0"
        ]
    );
}

#[test]
fn a_second_printer_goes_on_with_the_trace() {
    let types = Fixture::new().types();
    let layouts = layouts();
    let mut out = String::new();
    for turn in 0..2 {
        let mut printer = Printer::new(&types, &layouts, Options::new(Layout::Chrome));
        match turn {
            0 => printer.begin(&[], &mut out),
            _ => printer.go_on(),
        }
        printer.event(
            &record(&layouts[4], &[(0, 0, &7u64.to_le_bytes())]),
            &mut out,
            &NoSymbols,
        );
        if turn == 1 {
            printer.end(&mut out);
        }
    }
    let events: Vec<Value> = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
    assert_eq!(events.len(), 2);
}

#[test]
fn recursion_ends_as_often_as_it_began() {
    let mut events: Vec<(u32, u32, u32, u64)> = (0..1500).map(|time| (0, 5, 0, time)).collect();
    events.extend((0..1500).map(|time| (1, 5, 0, 10_000 + time)));
    let shown = Trace { events }.shown();
    let count = |what: &str| shown.iter().filter(|event| event.starts_with(what)).count();
    assert_eq!((count("B"), count("E"), count("i")), (1024, 1024, 2 * 476));
}

#[test]
fn each_cpu_s_idle_task_has_its_row_and_what_has_no_length_is_a_point() {
    let trace = Trace {
        events: vec![
            (0, 0, 0, 1_000),
            (0, 0, 1, 1_100),
            (1, 0, 0, 1_200),
            (5, 7, 0, 2_000),
            (6, 7, 0, 3_000),
        ],
    };
    assert_eq!(
        trace.shown(),
        [
            "B outer 4194304 1.0",
            "B outer 4194305 1.1",
            "E outer 4194304 1.2",
            "i failed 7 2.0",
            "i only_entered 7 3.0"
        ]
    );
}

#[test]
fn a_call_that_one_event_tells_of_is_a_slice_as_long_as_it_took() {
    let trace = Trace {
        events: vec![
            (0, 5, 0, 1_000),
            // From 1.1 to 1.5, and within it one from 1.2 to 1.6 of another thread.
            (7, 5, 0, 1_500),
            (7, 6, 0, 1_600),
            (1, 5, 0, 1_600),
            // It ended before the clock had gone so far: a record that lies.
            (7, 5, 0, 100),
        ],
    };
    assert_eq!(
        trace.shown(),
        [
            "B outer 5 1.0",
            "X timed 5 1.1",
            "X timed 6 1.2",
            "E outer 5 1.6",
            "X timed 5 0.0"
        ]
    );
    let text = trace.text();
    assert!(
        text.contains(
            "{\"ph\":\"X\",\"name\":\"timed\",\"cat\":\"function\",\"ts\":1.100,\"dur\":0.400,\"pid\":366,\"tid\":5,\"args\":{\"$cpu\":0,\"x\":7}}"
        ),
        "{text}"
    );
    assert!(!text.contains("$duration"), "{text}");
}
