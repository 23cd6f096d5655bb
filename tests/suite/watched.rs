//! What a person sees of programs that gcc builds and that say what they do: call stacks by name, calls as slices of a trace, numbers
//! counted in the kernel. On the running kernel, exactly. Each test says why it is skipped where it can't be.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::user_host::{Folder, gcc, skipped};

/// Calls through a library, through functions of its own, and makes the system call `getppid` at the end without help of libc, so that every
/// frame is known. With the argument "loop" it does that often, moving between CPUs.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int through(int (*f)(int), int x);
__attribute__((noinline)) int inner(int x) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(SYS_getppid) : "rcx", "r11", "memory");
    return x;
}
__attribute__((noinline)) int middle(int x) { return inner(x) + 1; }
__attribute__((noinline)) static int back(int x) { return middle(x) + 1; }
__attribute__((noinline)) int outer(int x) { return through(back, x) + 1; }
int main(int argc, char **argv) {
    prctl(PR_SET_NAME, "fifteen-chars-x");
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    int rest = argc > 2 ? atoi(argv[2]) : 0;
    for (int i = 0; i < rounds; i++) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(i % 2, &set);
        sched_setaffinity(0, sizeof set, &set);
        outer(i);
        usleep(rest);
    }
    return 0;
}
"#;
const LIBRARY: &str = "int through(int (*f)(int), int x) { return f(x) + 1; }";

/// Frame pointers and no optimization: what is called is what is seen.
const PLAIN: [&str; 2] = ["-O0", "-fno-omit-frame-pointer"];

/// Frames of `inner` up to `main`, innermost first.
const FRAMES: [&str; 6] = [
    "inner",
    "middle",
    "back",
    "through [libthrough.so]",
    "outer",
    "main",
];

pub(super) fn unable() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !status.lines().any(|line| line.starts_with("Uid:\t0\t")) {
        return Some("only root may trace".to_string());
    }
    if !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        return Some("this kernel has no uprobes".to_string());
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Some("this kernel has no BTF".to_string());
    }
    match Command::new("gcc").arg("--version").output() {
        Ok(_) => None,
        Err(_) => Some("there is no gcc".to_string()),
    }
}

/// The program and its library, built in the folder.
pub(super) fn build(folder: &Folder) -> PathBuf {
    gcc(
        &folder.0,
        LIBRARY,
        "libthrough.so",
        &[PLAIN[0], PLAIN[1], "-fPIC", "-shared"],
    );
    let place = format!("-L{}", folder.0.display());
    let rpath = format!("-Wl,-rpath,{}", folder.0.display());
    gcc(
        &folder.0,
        PROGRAM,
        "prog",
        &[PLAIN[0], PLAIN[1], &place, &rpath, "-lthrough"],
    )
}

fn tool(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ksnoop-jit"))
        .args(arguments)
        .output()
        .expect("the tool runs")
}

/// What the tool writes, which ends well.
pub(super) fn output(arguments: &[&str]) -> (String, String) {
    let out = tool(arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{arguments:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

fn lines_of_json(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

/// `inner+0x14` as `inner`.
fn name(frame: &str) -> String {
    match frame.split_once("+0x") {
        Some((name, rest)) => {
            let module = rest.find(" [").map_or("", |at| &rest[at..]);
            format!("{name}{module}")
        }
        None => frame.to_string(),
    }
}

/// The query that shows the stack at each `getppid`.
const STACK: &str = "tp:sys_enter(id == 110, ustack())";

#[test]
fn frames_of_a_program_that_is_gone_have_their_names_in_order() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("frames");
    let program = build(&folder).display().to_string();
    let (text, stderr) = output(&["-v", "-c", &program, STACK]);
    assert!(stderr.contains("3 events in "), "-v sums up at the end: {stderr}");
    let stacks: Vec<Vec<String>> = text
        .split("ustack() = ")
        .skip(1)
        .map(|stack| {
            stack
                .lines()
                .map(|line| name(line.trim()))
                .filter(|line| !line.is_empty())
                .take(6)
                .collect()
        })
        .collect();
    assert_eq!(stacks.len(), 3, "{text}\n{stderr}");
    for stack in stacks {
        assert_eq!(stack, FRAMES, "{text}");
    }
    // In JSON with the distance from the function's start.
    let (text, _) = output(&["-c", &program, "--format", "json", STACK]);
    let events: Vec<Value> = lines_of_json(&text)
        .into_iter()
        .filter(|line| line["type"] == "event")
        .collect();
    assert_eq!(events.len(), 3, "{text}");
    let frame = &events[0]["values"]["ustack()"][0];
    assert_eq!(frame["$symbol"], "inner", "{text}");
    assert!(
        frame["$offset"]
            .as_u64()
            .is_some_and(|offset| offset > 0 && offset < 64),
        "{frame}"
    );
    assert!(
        frame.get("$module").is_none(),
        "the program itself needs no name: {frame}"
    );
    assert_eq!(
        events[0]["values"]["ustack()"][3]["$module"], "libthrough.so",
        "{text}"
    );
    // And for flame graphs, outermost first.
    let (text, _) = output(&[
        "-c",
        &program,
        "--folded",
        "tp:sys_enter(id == 110, count(), by(comm, ustack(6)))",
    ]);
    let wanted = "fifteen-chars-x;main;outer;through_[libthrough.so];back;middle;inner 3\n";
    assert_eq!(text, wanted);
    // With nothing said about how deep, both stacks find room in a key.
    let (text, _) = output(&[
        "-c",
        &program,
        "--folded",
        "tp:sys_enter(id == 110, count(), by(ustack(), kstack()))",
    ]);
    assert!(
        text.contains(";main;outer;through_[libthrough.so];back;middle;inner"),
        "{text}"
    );
}

#[test]
fn frames_without_symbols_name_their_file_and_demangled_ones_read_well() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("stripped");
    let program = build(&folder);
    let stripped = Command::new("strip").arg(&program).status().expect("strip runs");
    assert!(stripped.success());
    let (text, stderr) = output(&["-c", &program.display().to_string(), STACK]);
    let at_prog = text.lines().filter(|line| line.contains(" [prog+0x")).count();
    assert!(
        at_prog >= 15,
        "three stacks of five such frames each:\n{text}\n{stderr}"
    );
    assert_eq!(
        text.matches("through+0x").count(),
        3,
        "libraries keep their dynamic symbols:\n{text}"
    );

    let source = r#"
        #include <sys/syscall.h>
        namespace shop { struct Till { __attribute__((noinline)) long pay(int x) {
            long r; __asm__ volatile("syscall" : "=a"(r) : "a"(SYS_getppid) : "rcx", "r11", "memory"); return r + x; } }; }
        int main() { shop::Till till; return till.pay(1) < 0; }
    "#;
    let (from, to) = (folder.0.join("till.cc"), folder.0.join("till"));
    std::fs::write(&from, source).expect("a source file");
    match Command::new("g++")
        .args(PLAIN)
        .arg("-o")
        .arg(&to)
        .arg(&from)
        .status()
    {
        Ok(status) if status.success() => {}
        Ok(_) | Err(_) => {
            eprintln!("SKIP: there is no g++");
            return;
        }
    }
    let (text, stderr) = output(&["-c", &to.display().to_string(), STACK]);
    assert!(text.contains("shop::Till::pay(int)+0x"), "{text}\n{stderr}");
}

/// Slices of one row neither overlap in part nor have a negative length.
fn nested(events: &[Value], name: &str) -> Vec<(f64, f64)> {
    let number =
        |event: &Value, key: &str| event[key].as_f64().unwrap_or_else(|| panic!("no {key}: {event}"));
    let mut spans: Vec<(f64, f64, String)> = events
        .iter()
        .filter(|event| event["ph"] == "X")
        .map(|event| {
            let (start, length) = (number(event, "ts"), number(event, "dur"));
            assert!(
                length >= 0.0 && event["pid"].is_u64() && event["tid"].is_u64(),
                "{event}"
            );
            (
                start,
                start + length,
                event["name"].as_str().unwrap_or("").to_string(),
            )
        })
        .collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut open: Vec<f64> = Vec::new();
    for (start, end, _) in &spans {
        while open.last().is_some_and(|last| *last <= *start) {
            open.pop();
        }
        assert!(
            open.last().is_none_or(|last| end <= last),
            "slices cross: {spans:?}"
        );
        open.push(*end);
    }
    let of_name = spans.iter().filter(|(_, _, called)| called == name);
    of_name.map(|(start, end, _)| (*start, *end)).collect()
}

#[test]
fn calls_with_values_of_both_ends_are_slices_of_a_trace() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("slices");
    let program = build(&folder).display().to_string();
    let (text, stderr) = output(&[
        "-c",
        &program,
        "--format",
        "chrome",
        &format!("uprobe:{program}:outer(arg0:d, return >= 0)"),
        &format!("uprobe:{program}:inner(arg0:d, return >= 0)"),
        &format!("uprobe:{program}:middle(arg0:d, return:d)"),
        &format!("uprobe:{program}:back(arg0:d)"),
    ]);
    let events: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{stderr}"));
    let (outer, inner) = (nested(&events, "outer"), nested(&events, "inner"));
    assert_eq!((outer.len(), inner.len()), (3, 3), "{text}");
    for ((start, end), (from, to)) in outer.iter().zip(&inner) {
        assert!(
            start < from && to <= end,
            "an inner call is inside of the outer one: {text}"
        );
    }
    let count = |ph: &str, name: &str| {
        let all = events
            .iter()
            .filter(|event| event["ph"] == ph && event["name"] == name);
        all.count()
    };
    assert_eq!((count("B", "middle"), count("E", "middle")), (3, 3), "{text}");
    assert_eq!(count("i", "back"), 3, "{text}");
    let args: Vec<&Value> = events
        .iter()
        .filter(|event| event["name"] == "outer" && event["ph"] == "X")
        .map(|event| &event["args"]["arg0"])
        .collect();
    assert_eq!(args, [0, 1, 2]);
    assert!(
        events
            .iter()
            .all(|event| event["args"].get("$duration").is_none()),
        "{text}"
    );
}

/// The `aggregate` lines of a run.
fn aggregates(program: &str, query: &str) -> Vec<Value> {
    let (text, stderr) = output(&["-c", program, "--format", "json", query]);
    let rows: Vec<Value> = lines_of_json(&text)
        .into_iter()
        .filter(|line| line["type"] == "aggregate")
        .collect();
    assert!(!rows.is_empty(), "{query}\n{text}\n{stderr}");
    rows
}

#[test]
fn what_is_counted_is_exact() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("counted");
    let program = build(&folder).display().to_string();
    let command = format!("{program} 1000");
    // All CPUs together, by a key with a name of fifteen characters, which is all there.
    let rows = aggregates(
        &command,
        "tp:sys_enter(id == 110, n=count(), by(who = comm, pid))",
    );
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["keys"]["who"], "fifteen-chars-x");
    assert_eq!(rows[0]["values"]["n"], 1000);
    // 0 to 999 in powers of two, in steps, and as numbers.
    let query = format!(
        "uprobe:{program}:inner(count(), sum(arg0), min(arg0), max(arg0), avg(arg0), hist(arg0), lhist(arg0, 100, 900, 200))"
    );
    let rows = aggregates(&command, &query);
    let values = &rows[0]["values"];
    assert_eq!(values["count()"], 1000, "{values}");
    assert_eq!(values["sum(arg0)"], 499_500);
    assert_eq!(
        (&values["min(arg0)"], &values["max(arg0)"]),
        (&Value::from(0), &Value::from(999))
    );
    assert_eq!(values["avg(arg0)"].as_f64(), Some(499.5));
    let buckets = |label: &str| -> Vec<(Option<i64>, Option<i64>, i64)> {
        let all = values[label].as_array().unwrap_or_else(|| panic!("{values}"));
        all.iter()
            .map(|bucket| {
                (
                    bucket["from"].as_i64(),
                    bucket["below"].as_i64(),
                    bucket["count"].as_i64().unwrap_or(-1),
                )
            })
            .collect()
    };
    let mut wanted = vec![(Some(0), Some(1), 1)];
    wanted.extend((0..9).map(|bit| (Some(1 << bit), Some(2 << bit), 1 << bit)));
    wanted.push((Some(512), Some(1024), 1000 - 512));
    assert_eq!(buckets("hist(arg0)"), wanted);
    let steps = [
        (None, Some(100), 100),
        (Some(100), Some(300), 200),
        (Some(300), Some(500), 200),
        (Some(500), Some(700), 200),
        (Some(700), Some(900), 200),
        (Some(900), None, 100),
    ];
    assert_eq!(buckets("lhist(arg0, 100, 900, 200)"), steps);
    // Keys with labels and formats, sorted by their counts.
    let query = format!("uprobe:{program}:inner(count(), by(third = arg0 % 3:x, (u32)0x0100007f:ip))");
    let rows = aggregates(&command, &query);
    let counts: Vec<_> = rows
        .iter()
        .map(|row| (&row["keys"]["third"], &row["values"]["count()"]))
        .collect();
    let number = Value::from;
    assert_eq!(
        counts,
        [
            (&number(0), &number(334)),
            (&number(1), &number(333)),
            (&number(2), &number(333))
        ]
    );
    assert_eq!(rows[0]["keys"]["(u32)0x0100007f"], "127.0.0.1", "{rows:?}");
}

#[test]
fn a_table_names_its_keys_and_what_found_no_room_is_told() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("room");
    let program = build(&folder).display().to_string();
    let command = format!("{program} 100");
    let (text, stderr) = output(&[
        "-c",
        &command,
        "--max-keys",
        "8",
        &format!("uprobe:{program}:inner(count(), by(low = arg0 & 0xf:x, comm))"),
    ]);
    assert!(
        text.contains("low") && text.contains("\"fifteen-chars-x\"") && !text.contains("..."),
        "{text}"
    );
    assert!(text.contains("0x7"), "{text}");
    let told: u64 = stderr
        .lines()
        .find_map(|line| {
            line.split_once(" hits not counted")?
                .0
                .rsplit(' ')
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or_else(|| panic!("{stderr}"));
    let counted: u64 = text
        .lines()
        .filter(|line| line.contains("fifteen"))
        .filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok())
        .sum();
    assert_eq!(counted + told, 100, "{text}\n{stderr}");
    assert!(told > 0 && stderr.contains("--max-keys"), "{stderr}");
}

#[test]
fn an_interval_prints_what_there_is_by_then() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("interval");
    let program = build(&folder).display().to_string();
    // Half a second of rests.
    let command = format!("{program} 50 10000");
    let (text, stderr) = output(&[
        "-c",
        &command,
        "--interval",
        "0.1",
        "--format",
        "json",
        "tp:sys_enter(id == 110, count())",
    ]);
    let counts: Vec<u64> = lines_of_json(&text)
        .iter()
        .filter(|line| line["type"] == "aggregate")
        .filter_map(|line| line["values"]["count()"].as_u64())
        .collect();
    assert!(counts.len() >= 3, "{text}\n{stderr}");
    assert!(
        counts.is_sorted() && counts.first() < counts.last(),
        "from the start on: {counts:?}"
    );
    assert_eq!(counts.last(), Some(&50));
}

#[test]
fn what_does_not_fit_together_is_refused_before_anything_is_attached() {
    if skipped(unable()) {
        return;
    }
    let count = "tp:sched_switch(count())";
    let by_stack = "tp:sched_switch(count(), by(kstack()))";
    for (arguments, says) in [
        (vec!["--format", "chrome", count], "a trace is made of events"),
        (
            vec!["--format", "chrome", "--time", "wall", "tp:sched_switch"],
            "a clock of its own",
        ),
        (vec!["-k", count], "by(kstack())"),
        (vec!["-U", count], "by(ustack())"),
        (vec!["-k", "-U", count], "by(kstack(), ustack())"),
        (vec!["--folded", count], "counted by stacks"),
        (
            vec!["--folded", "tp:sched_switch(prev->pid)"],
            "counted by stacks",
        ),
        (
            vec![
                "--folded",
                "--format",
                "json",
                "tp:sched_switch(count(), by(kstack()))",
            ],
            "a format of its own",
        ),
        (
            vec!["--interval", "1", "tp:sched_switch(prev->pid)"],
            "nothing is aggregated",
        ),
        (vec!["-n", "3", count], "`-n` counts events"),
        (vec!["-n", "3", count, "tp:sched_switch(max(prev->pid))"], "--for"),
        (
            vec!["--folded", "--interval", "1", by_stack],
            "each print counts from the start on",
        ),
        (
            vec![
                "--folded",
                "tp:sched_switch(count(), max(prev->pid), by(kstack()))",
            ],
            "has one number",
        ),
        (
            vec!["--folded", "tp:sched_switch(hist(prev->pid), by(kstack()))"],
            "has one number",
        ),
        (vec!["--folded", "tp:sched_switch(by(kstack()))"], "by"),
    ] {
        let out = tool(&arguments);
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{arguments:?}\n{told}");
        assert!(told.contains(says), "{arguments:?}\n{told}");
        assert!(out.stdout.is_empty(), "{arguments:?}");
    }
}
