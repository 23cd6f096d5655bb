//! What comes out on a terminal: a status line that leaves nothing behind, colours, lines that fit. The tool runs behind a terminal that
//! util-linux' `script` makes; what it writes is put on a screen here, and the screen is judged.

use std::process::Command;

use super::user_host::{Folder, skipped};
use super::watched::{build, output, unable};

fn no_terminal() -> Option<String> {
    unable().or_else(|| match Command::new("script").arg("--version").output() {
        Ok(_) => None,
        Err(_) => Some("there is no `script` (util-linux)".to_string()),
    })
}

/// All bytes that the tool writes to a terminal of so many columns.
fn on_terminal(columns: u32, variables: &[(&str, &str)], arguments: &str) -> String {
    let (text, status) = ended_on_terminal(columns, variables, arguments);
    assert_eq!(status, Some(0), "{arguments}\n{text}");
    text
}

/// The same, and what it ended with.
fn ended_on_terminal(columns: u32, variables: &[(&str, &str)], arguments: &str) -> (String, Option<i32>) {
    let tool = env!("CARGO_BIN_EXE_ksnoop-jit");
    let out = Command::new("script")
        .args([
            "-q",
            "-e",
            "-c",
            &format!("stty cols {columns}; exec {tool} {arguments}"),
            "/dev/null",
        ])
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .envs(variables.iter().copied())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("script runs");
    (
        String::from_utf8_lossy(&out.stdout).into_owned(),
        out.status.code(),
    )
}

/// What stands on the screen in the end, line by line: carriage returns overwrite, `ESC [ K` wipes, colours are nothing to see.
fn screen(bytes: &str) -> Vec<String> {
    let (mut lines, mut line, mut at) = (Vec::new(), Vec::<char>::new(), 0usize);
    let mut chars = bytes.chars();
    while let Some(c) = chars.next() {
        match c {
            '\n' => {
                lines.push(line.iter().collect::<String>().trim_end().to_string());
                line.clear();
                at = 0;
            }
            '\r' => at = 0,
            '\u{1b}' => {
                let mut sequence = String::new();
                for c in chars.by_ref() {
                    sequence.push(c);
                    if c.is_ascii_alphabetic() {
                        break;
                    }
                }
                if sequence == "[K" {
                    line.truncate(at);
                }
            }
            c => {
                line.resize(line.len().max(at + 1), ' ');
                line[at] = c;
                at += 1;
            }
        }
    }
    lines.push(line.iter().collect());
    lines
}

#[test]
fn the_status_line_leaves_no_trace_among_events() {
    if skipped(no_terminal()) {
        return;
    }
    let folder = Folder::new("status");
    let program = build(&folder).display().to_string();
    // Three seconds of an event each ten milliseconds.
    let bytes = on_terminal(
        80,
        &[],
        &format!("--format compact -c '{program} 300 10000' 'uprobe:{program}:inner(arg0:d)'"),
    );
    assert!(
        bytes.contains(" events, ") && bytes.contains("/s\u{1b}[K"),
        "a run so long has a status line: {bytes}"
    );
    let lines = screen(&bytes);
    let events: Vec<&String> = lines.iter().filter(|line| line.contains("inner(")).collect();
    assert_eq!(events.len(), 300, "{lines:?}");
    for (number, line) in events.iter().enumerate() {
        assert!(
            line.ends_with(&format!("inner(arg0={number})")) && !line.contains("/s"),
            "{line}"
        );
    }
    let rest: Vec<&String> = lines
        .iter()
        .filter(|line| !line.contains("inner(") && !line.is_empty())
        .collect();
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn the_status_line_counts_what_is_aggregated() {
    if skipped(no_terminal()) {
        return;
    }
    let folder = Folder::new("status-aggregated");
    let program = build(&folder).display().to_string();
    let bytes = on_terminal(
        80,
        &[],
        &format!("-c '{program} 300 10000' 'uprobe:{program}:inner(count(), max(arg0))'"),
    );
    let counts: Vec<u64> = bytes
        .split('\r')
        .filter_map(|line| line.split_once(" hits, "))
        .filter_map(|(count, _)| count.trim().parse().ok())
        .collect();
    assert!(
        counts.iter().any(|count| (1..=300).contains(count)) && counts.is_sorted(),
        "hits are told while they are counted: {bytes:?}"
    );
    let lines = screen(&bytes);
    assert!(
        !lines.iter().any(|line| line.contains("/s")),
        "the status line is gone in the end: {lines:?}"
    );
    assert!(lines.iter().any(|line| line.contains("300")), "{lines:?}");
}

#[test]
fn errors_have_colours_by_the_same_rules() {
    if skipped(no_terminal()) {
        return;
    }
    for (variables, options, coloured) in [
        (&[][..], "", true),
        (&[("NO_COLOR", "")], "", true),
        (&[("NO_COLOR", "1")], "", false),
        (&[("NO_COLOR", "1")], "--color always", true),
        (&[], "--color never", false),
    ] {
        let (text, status) = ended_on_terminal(80, variables, &format!("{options} 'vfs_read(nosuch)'"));
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains("nosuch"), "{text}");
        assert_eq!(
            text.contains('\u{1b}'),
            coloured,
            "{variables:?} {options}: {text:?}"
        );
    }
}

#[test]
fn the_mistakes_of_all_queries_are_told() {
    if skipped(no_terminal()) {
        return;
    }
    let queries = "'tp:sched_switch(prev->pdi)' 'tp:sched_switch(' 'tp:sched_switch(nosuch)'";
    let (text, status) = ended_on_terminal(80, &[], &format!("--color never {queries}"));
    assert_eq!(status, Some(2), "{text}");
    for mistake in ["E0303", "E0136", "E0210"] {
        assert!(text.contains(mistake), "{mistake} is not told: {text}");
    }
}

#[test]
fn colours_are_for_terminals_and_lines_of_the_compact_format_fit() {
    if skipped(no_terminal()) {
        return;
    }
    let folder = Folder::new("colour");
    let program = build(&folder).display().to_string();
    let rest = format!("-c {program} 'uprobe:{program}:inner(arg0:d, comm, comm, pid, tid, arg0:x, comm)'");
    let coloured = |bytes: &str| bytes.contains("\u{1b}[") && bytes.contains('m');
    let compact = format!("--format compact {rest}");
    assert!(coloured(&on_terminal(60, &[], &compact)));
    assert!(
        coloured(&on_terminal(60, &[("NO_COLOR", "")], &compact)),
        "an empty NO_COLOR is none"
    );
    assert!(!coloured(&on_terminal(60, &[("NO_COLOR", "1")], &compact)));
    assert!(!coloured(&on_terminal(
        60,
        &[],
        &format!("--color never {compact}")
    )));
    assert!(coloured(&on_terminal(
        60,
        &[("NO_COLOR", "1")],
        &format!("--color always {compact}")
    )));
    assert!(
        !coloured(&on_terminal(60, &[], &format!("--format json {rest}"))),
        "never in JSON"
    );
    let query = format!("uprobe:{program}:inner(arg0:d)");
    let (piped, _) = output(&["--format", "compact", "-c", &program, &query]);
    assert!(!coloured(&piped), "{piped}");
    let (always, _) = output(&["--format", "compact", "--color", "always", "-c", &program, &query]);
    assert!(coloured(&always), "{always}");
    for columns in [40, 60, 100] {
        let lines = screen(&on_terminal(columns, &[], &compact));
        let events: Vec<&String> = lines.iter().filter(|line| line.contains("inner(")).collect();
        assert_eq!(events.len(), 3, "{lines:?}");
        for line in events {
            assert!(
                line.chars().count() <= columns as usize,
                "{columns} columns: {line}"
            );
        }
    }
}
