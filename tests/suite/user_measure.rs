//! What is done with values of programs: predicates on both sides, times, aggregations, stacks, recursion, by each way that
//! the kernel has. Each says why it is skipped where it can't be.

use super::user_host::{CALLS, Folder, Traced, gcc, skipped, trace, unable};

/// The ways, and what they are called where entry and return belong together.
const WAYS: [(&str, &[&str]); 4] = [
    (
        "auto",
        &[
            "uprobe.session",
            "uprobe.multi and uretprobe.multi",
            "uprobe and uretprobe",
        ],
    ),
    ("kprobe", &["uprobe and uretprobe"]),
    ("kprobe-multi", &["uprobe.multi and uretprobe.multi"]),
    ("kprobe-session", &["uprobe.session"]),
];

struct Program {
    folder: Folder,
    path: String,
    ways: Vec<(&'static str, &'static [&'static str])>,
}

impl Program {
    fn new(name: &str) -> Option<Program> {
        if skipped(unable()) {
            return None;
        }
        let folder = Folder::new(name);
        let path = gcc(&folder.0, CALLS, "calls", &["-O1", "-fno-omit-frame-pointer"])
            .display()
            .to_string();
        let features = String::from_utf8_lossy(&super::user_host::tool(&["features"]).stdout).into_owned();
        let multi = features
            .lines()
            .any(|line| line.trim_start().starts_with("uprobe.multi") && line.ends_with("yes"));
        // What is newer than the oldest kernel with uprobe.multi is tried, and told when it is not there.
        let session = multi && {
            let query = format!("uprobe:{path}:hidden((int)arg0 > 0, return)");
            let out = super::user_host::tool(&["--check", "--attach", "kprobe-session", &query]);
            out.status.success()
        };
        let ways = WAYS
            .into_iter()
            .filter(|(way, _)| match *way {
                "kprobe-multi" => multi,
                "kprobe-session" => session,
                _ => true,
            })
            .collect::<Vec<_>>();
        if ways.len() < WAYS.len() {
            eprintln!("SKIP: only {ways:?} on this kernel");
        }
        Some(Program { folder, path, ways })
    }

    fn trace(&self, way: &str, what: &str) -> Traced {
        let query = what.replace('@', &self.path);
        trace(&self.folder.0, &self.path, &["--attach", way, &query])
    }
}

fn number(event: &str, name: &str) -> i64 {
    let value = event
        .split([',', '(', ')', ' '])
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {event}"))
}

/// A call that another call of the same function is in takes longer than that, and is told after it.
#[test]
fn durations_of_calls_in_each_other() {
    let Some(program) = Program::new("duration") else {
        return;
    };
    for (way, names) in &program.ways {
        let traced = program.trace(way, "uprobe:@:fact((int)arg0 > 0, duration, (int)return)");
        assert!(
            names
                .iter()
                .any(|name| traced.stderr.contains(&format!("by {name} at 1 place"))),
            "{way}: {}",
            traced.stderr
        );
        let wanted = [1, 2, 3, 4, 1, 2].repeat(3);
        let seen: Vec<i64> = traced.events.iter().map(|event| number(event, "arg0")).collect();
        assert_eq!(seen, wanted, "{way}\n{}", traced.stderr);
        for calls in traced.events.chunks(6) {
            for chain in [&calls[..4], &calls[4..]] {
                let times: Vec<i64> = chain.iter().map(|event| number(event, "duration")).collect();
                assert!(
                    times[0] > 0 && times.windows(2).all(|pair| pair[0] < pair[1]),
                    "{way} {times:?}"
                );
            }
        }
        for event in &traced.events {
            let n = number(event, "arg0");
            assert_eq!(number(event, "return"), (1..=n).product::<i64>(), "{way} {event}");
        }
    }
    // Without a predicate the two sides are events of their own.
    let traced = program.trace("auto", "uprobe:@:hidden((int)arg0, duration)");
    let entries = traced
        .events
        .iter()
        .filter(|event| event.contains("arg0="))
        .count();
    let returns = traced
        .events
        .iter()
        .filter(|event| event.contains("duration="))
        .count();
    assert_eq!((entries, returns), (3, 3), "{:?}", traced.events);
}

/// Predicates about the entry, about the return, and about both.
#[test]
fn predicates_on_both_sides() {
    let Some(program) = Program::new("sides") else {
        return;
    };
    for (way, _) in &program.ways {
        for (items, wanted) in [
            (
                "(int)arg0 == 3, (int)return",
                vec!["(int)arg0=3, (int)return=6"; 3],
            ),
            (
                "(int)arg0, (int)return == 24",
                vec!["(int)arg0=4, (int)return=24"; 3],
            ),
            (
                "(int)arg0 > 1, (int)return < 24",
                [
                    "(int)arg0=2, (int)return=2",
                    "(int)arg0=3, (int)return=6",
                    "(int)arg0=2, (int)return=2",
                ]
                .repeat(3),
            ),
            ("(int)arg0 == 1, (int)return == 2", vec![]),
            ("(int)return > 6", vec!["(int)return=24"; 3]),
        ] {
            // The first two have all that ways differ in.
            if *way != "auto" && !items.starts_with("(int)arg0 == 3") && !items.ends_with("== 24") {
                continue;
            }
            let traced = program.trace(way, &format!("uprobe:@:fact({items})"));
            let wanted: Vec<String> = wanted.iter().map(|event| format!("fact({event})")).collect();
            assert_eq!(traced.events, wanted, "{way} {items}\n{}", traced.stderr);
        }
    }
}

/// The rows of a table: words of the lines that begin with a number or a name that is asked for.
fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines()
        .map(|line| line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
        .filter(|words| !words.is_empty() && words.iter().all(|word| word.parse::<f64>().is_ok()))
        .collect()
}

#[test]
fn aggregations_of_functions_and_probes() {
    let Some(program) = Program::new("aggregations") else {
        return;
    };
    for (way, _) in &program.ways {
        if *way == "kprobe-session" {
            continue;
        }
        let traced = program.trace(way, "uprobe:@:fact(count(), by((int)arg0))");
        let mut counted = rows(&traced.text);
        counted.sort();
        assert_eq!(
            counted,
            [["1", "6"], ["2", "6"], ["3", "3"], ["4", "3"]],
            "{way}\n{}",
            traced.text
        );
        // The return knows what was at the entry.
        let traced = program.trace(way, "uprobe:@:fact(sum((int)return), by((int)arg0))");
        let mut summed = rows(&traced.text);
        summed.sort();
        assert_eq!(
            summed,
            [["1", "6"], ["2", "12"], ["3", "18"], ["4", "72"]],
            "{way}\n{}",
            traced.text
        );
        if *way != "auto" {
            continue;
        }
        let traced = program.trace(
            way,
            "uprobe:@:fact(sum((int)arg0), min((int)arg0), max((int)arg0), max((int)return))",
        );
        assert_eq!(
            rows(&traced.text),
            [["39", "1", "4", "24"]],
            "{way}\n{}",
            traced.text
        );
        let traced = program.trace(way, "uprobe:@:fact(hist((int)return))");
        for (bucket, count) in [
            ("[1]", 6),
            ("[2, 4)", 6),
            ("[4, 8)", 3),
            ("[8, 16)", 0),
            ("[16, 32)", 3),
        ] {
            let line = traced
                .text
                .lines()
                .find(|line| line.trim_start().starts_with(bucket));
            let line = line.unwrap_or_else(|| panic!("{way}: no {bucket}\n{}", traced.text));
            let after = line.trim_start()[bucket.len()..].split_whitespace().next();
            assert_eq!(
                after,
                Some(count.to_string().as_str()),
                "{way} {bucket}\n{}",
                traced.text
            );
        }
        let traced = program.trace(way, "uprobe:@:fact(count(), hist(duration))");
        assert!(
            traced.text.lines().any(|line| line.trim() == "18"),
            "{way}\n{}",
            traced.text
        );
        let traced = program.trace(way, "usdt:@:calls:work(count(), by(str(arg1)))");
        assert!(
            traced.text.contains("hello") && traced.text.split_whitespace().any(|word| word == "3"),
            "{way}\n{}",
            traced.text
        );
        let traced = program.trace(way, "usdt:@:calls:work(sum(arg0), by((int)arg0 > 1)) if arg0 < 3");
        let mut summed = rows(&traced.text);
        summed.sort();
        assert_eq!(summed, [["0", "1"], ["1", "2"]], "{way}\n{}", traced.text);
    }
}

/// A function that two others call has two call stacks; the kernel has none while the program runs.
#[test]
fn stacks_tell_callers_apart() {
    let Some(program) = Program::new("stacks") else {
        return;
    };
    for (way, _) in &program.ways {
        if !["auto", "kprobe"].contains(way) {
            continue;
        }
        let traced = program.trace(
            way,
            "uprobe:@:fact(sum((int)arg0), by(ustack(2))) if (int)arg0 == 4 || (int)arg0 == 2",
        );
        // 4 from `one`; 2 from `fact` itself, and from `other`.
        let sums: Vec<&str> = traced
            .text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("sum((int)arg0) = "))
            .collect();
        assert_eq!(sums, ["12", "6", "6"], "{way}\n{}", traced.text);
        let traced = program.trace(way, "uprobe:@:hidden((int)arg0, kstack())");
        assert_eq!(traced.events.len(), 3);
        assert!(
            traced
                .events
                .iter()
                .all(|event| event.contains("kstack()=<no stack>")),
            "{:?}",
            traced.events
        );
    }
    let query = format!("uprobe:{}:hidden((int)arg0)", program.path);
    let traced = trace(&program.folder.0, &program.path, &["-U", &query]);
    assert!(
        traced.events.len() == 3 && traced.events.iter().all(|event| event.contains("ustack=")),
        "{:?}",
        traced.events
    );
}
