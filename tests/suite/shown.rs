//! What is shown of values whose bytes are known, through the tool itself: types and addresses of a program that gcc builds, the
//! options that limit what is shown, clocks, JSON against its schema. On the running kernel. Each test says why it is skipped
//! where it can't be.

use serde_json::Value;

use super::json::wrong;
use super::user_host::{Folder, gcc, skipped, tool, trace, unable};

/// A struct with known bytes, and what of it limits would cut.
const PROGRAM: &str = r#"
#include <string.h>
#include <unistd.h>
struct inner { int deep; };
struct middle { struct inner inner; int n; };
struct sample {
    unsigned char mac[6];
    signed char small[4];
    char text[16];
    int numbers[8];
    struct middle middle;
    unsigned char *bytes;
    const char *string;
    int (*call)(int);
    int zero;
    struct sample *self;
};
__attribute__((noinline)) int helper(int x) { return x + 1; }
__attribute__((noinline)) int look(struct sample *s, const char *text, int n) {
    __asm__ volatile("" : : "r"(s), "r"(text), "r"(n) : "memory");
    return s->numbers[0] + n;
}
int main(int argc, char **argv) {
    static struct sample s = {
        .mac = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55},
        .small = {65, -1, 66, 1},
        .text = "fifteen letters",
        .numbers = {1, 2, 3, 4, 5, 6, 7, 8},
        .middle = {.inner = {.deep = 9}, .n = 10},
        .string = "0123456789",
        .call = helper,
    };
    static const char text[] = "abcdefghijklmnopqrst";
    s.bytes = s.mac;
    // A probe sees no page that was never looked at.
    int touched = *(volatile const char *)s.string + *(volatile const char *)text;
    for (int i = 0; i < 3; i++) {
        look(&s, text, i);
        usleep(1000);
    }
    return helper(touched) == 0;
}
"#;

/// The program with its types, or why there is none.
fn program(folder: &Folder) -> Option<String> {
    if skipped(unable()) {
        return None;
    }
    let path = gcc(&folder.0, PROGRAM, "sample", &["-O1", "-gbtf"]);
    // gcc knows the option from version 12 on, and ignores nothing silently; a program without types shows nothing here.
    let out = tool(&["info", &format!("uprobe:{}:look", path.display())]);
    if !String::from_utf8_lossy(&out.stdout).contains("struct sample *") {
        skipped(Some("gcc makes no BTF here".to_string()));
        return None;
    }
    Some(path.display().to_string())
}

/// The first event, in the compact format.
fn first(folder: &Folder, program: &str, options: &[&str], items: &str) -> String {
    let query = format!("uprobe:{program}:look({items})");
    let mut all = vec!["-n", "1"];
    all.extend(options);
    all.push(&query);
    let traced = trace(&folder.0, program, &all);
    traced
        .events
        .first()
        .unwrap_or_else(|| panic!("{items}: {}", traced.stderr))
        .clone()
}

fn json(program: &str, options: &[&str], query: &str) -> Vec<Value> {
    let out = tool(&[&["-c", program, "--format", "json"], options, &[query]].concat());
    let (text, stderr) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(out.status.success(), "{query}\n{stderr}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn small_numbers_are_no_characters_and_bytes_no_strings() {
    let folder = Folder::new("small");
    let Some(program) = program(&folder) else {
        return;
    };
    let show = |items: &str| first(&folder, &program, &[], items);
    assert_eq!(
        show("s->mac, s->small"),
        "look(s->mac=[0, 17, 34, 51, 68, 85], s->small=[65, -1, 66, 1])"
    );
    assert_eq!(show("s->text"), "look(s->text=\"fifteen letters\")");
    assert_eq!(
        show("s->string, text"),
        "look(s->string=\"0123456789\", text=\"abcdefghijklmnopqrst\")"
    );
    // What an `unsigned char *` leads to are bytes; a string is made of them, up to the first NUL, where one is asked for.
    let bytes = show("s->bytes");
    assert!(
        bytes.starts_with("look(s->bytes=0x") && bytes.ends_with(" 0)"),
        "{bytes}"
    );
    assert_eq!(
        show("mac(\"00:11:22:33:44:55\") == s->bytes"),
        "look(s->bytes=00:11:22:33:44:55)"
    );
    assert_eq!(
        show("s->bytes + 1:s"),
        "look(s->bytes + 1=\"\\x11\\\"3DUA\\xffB\\x01fifteen letters\")"
    );
}

#[test]
fn functions_of_a_program_have_their_names() {
    let folder = Folder::new("functions");
    let Some(program) = program(&folder) else {
        return;
    };
    // Also if the program has ended before they are shown: the three events are printed when it is gone.
    let show = |items: &str| first(&folder, &program, &[], items);
    assert_eq!(show("s->call"), "look(s->call=helper)");
    assert_eq!(
        show("s->call:sym, ((long)s->call + 1):sym"),
        "look(s->call=helper, (long)s->call + 1=helper+0x1)"
    );
    assert!(show("*s").contains(".call=helper"), "{}", show("*s"));
    let query = format!("uprobe:{program}:look(s->call, s->self)");
    let values = json(&program, &[], &query)[1]["values"].clone();
    assert_eq!(values["s->call"]["$symbol"], "helper", "{values}");
    assert_eq!(values["s->self"], Value::Null);
    // What is no function stays a number.
    let number = show("(void *)8:sym");
    assert_eq!(number, "look((void *)8=0x8)");
}

#[test]
fn options_limit_what_is_shown_and_the_rest_is_told() {
    let folder = Folder::new("limits");
    let Some(program) = program(&folder) else {
        return;
    };
    let show = |options: &[&str], items: &str| first(&folder, &program, options, items);
    // A string is cut after so many bytes, wherever it comes from. Of one that is read no further nobody knows the length.
    for (most, shown) in [
        (
            "3",
            "look(text=\"abc\"..., str(text, 5)=\"abc\"..., s->text=\"fif\"... /* 3 of 15 bytes */)",
        ),
        (
            "0",
            "look(text=\"\"..., str(text, 5)=\"\"..., s->text=\"\"... /* 0 of 15 bytes */)",
        ),
    ] {
        assert_eq!(
            show(&["--max-string", most], "text, str(text, 5), s->text"),
            shown
        );
    }
    // One that just fits is whole.
    assert_eq!(
        show(&["--max-string", "10"], "s->string, str(s->string, 10)"),
        "look(s->string=\"0123456789\", str(s->string, 10)=\"0123456789\"...)"
    );
    assert_eq!(
        show(&["--max-array", "2"], "s->numbers"),
        "look(s->numbers=[1, 2, ... /* 2 of 8 elements */])"
    );
    assert_eq!(
        show(&["--max-bytes", "8"], "s->numbers"),
        "look(s->numbers=[1, 2, ... /* 8 of 32 bytes */])"
    );
    assert_eq!(
        show(&["--depth", "1"], "s->middle"),
        "look(s->middle={.inner={...}, .n=10})"
    );
    assert_eq!(
        show(&["--depth", "2"], "s->middle"),
        "look(s->middle={.inner={.deep=9}, .n=10})"
    );
    let whole = |options: &[&str]| show(&[&["--depth", "1"], options].concat(), "*s");
    assert!(
        !whole(&[]).contains(".zero=") && !whole(&[]).contains(".self="),
        "{}",
        whole(&[])
    );
    assert!(
        whole(&["--zeros"]).contains(".zero=0, .self=NULL"),
        "{}",
        whole(&["--zeros"])
    );
    // As JSON, of which no reader takes 3 bytes for all.
    let query = format!("uprobe:{program}:look(text, s->text)");
    let values = json(&program, &["--max-string", "3", "-n", "1"], &query)[1]["values"].clone();
    assert_eq!(
        values["text"].to_string(),
        r#"{"$cut":{"reason":"bytes","shown":3},"$text":"abc"}"#
    );
    assert_eq!(
        values["s->text"].to_string(),
        r#"{"$cut":{"of":15,"reason":"bytes","shown":3},"$text":"fif"}"#
    );
}

/// The lines of one type.
fn of_type<'v>(lines: &'v [Value], kind: &str) -> Vec<&'v Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

#[test]
fn every_line_of_a_run_is_as_the_schema_says() {
    let folder = Folder::new("lines");
    let Some(program) = program(&folder) else {
        return;
    };
    let look = |items: &str| format!("uprobe:{program}:look({items})");
    let runs: [(&[&str], String, &[&str]); 5] = [
        (
            &["--zeros", "--time", "wall", "-U"],
            look("s, text, ((struct sample *)8)->zero, n"),
            &["event"],
        ),
        (
            &["--max-string", "2", "--max-array", "1", "--depth", "0"],
            look("*s, s->numbers, str(text, n + 1), return, duration"),
            &["event"],
        ),
        (&[], look("((struct sample *)8)->zero > 1"), &["faults"]),
        (
            &["--max-keys", "1", "--interval", "0.001"],
            look(
                "count(), avg(n), hist(n), lhist(n, 0, 2, 1), min(n), by(n, s->text, ustack(), low = n & 1:x)",
            ),
            &["aggregate", "interval", "uncounted"],
        ),
        (
            &["--time", "relative"],
            look("sum(((struct sample *)8)->zero)"),
            &["interval", "uncounted"],
        ),
    ];
    for (options, query, kinds) in runs {
        let lines = json(&program, options, &query);
        for line in &lines {
            assert_eq!(wrong(line), None, "{query}: {line}");
        }
        for kind in ["start", "end"].iter().chain(kinds) {
            assert!(
                !of_type(&lines, kind).is_empty(),
                "{query}: no {kind} in {lines:?}"
            );
        }
    }
    let out = tool(&["--format", "json", &look("s->nothing")]);
    let line: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
    assert_eq!(
        (wrong(&line), &line["code"]),
        (None, &Value::from("E0303")),
        "{line}"
    );
}

#[test]
fn what_is_not_counted_and_where_a_print_ends_are_in_the_output() {
    let folder = Folder::new("uncounted");
    let Some(program) = program(&folder) else {
        return;
    };
    let query = format!("uprobe:{program}:look(count(), by(n))");
    let lines = json(&program, &["--max-keys", "1"], &query);
    let uncounted = of_type(&lines, "uncounted");
    let counted = of_type(&lines, "aggregate");
    assert_eq!((uncounted.len(), counted.len()), (1, 1), "{lines:?}");
    assert_eq!(uncounted[0]["reason"], "keys");
    let both = uncounted[0]["count"]
        .as_u64()
        .zip(counted[0]["values"]["count()"].as_u64());
    assert_eq!(both, Some((2, 1)));
    let query = format!("uprobe:{program}:look(count(), by(((struct sample *)8)->zero))");
    let lines = json(&program, &[], &query);
    let uncounted = of_type(&lines, "uncounted");
    assert_eq!(uncounted.len(), 1, "{lines:?}");
    assert_eq!(
        (&uncounted[0]["reason"], &uncounted[0]["count"]),
        (&Value::from("fault"), &Value::from(3))
    );

    // Several prints: each ends with its number, and none is without rows before the last.
    let query = format!("uprobe:{program}:look(count())");
    let lines = json(&program, &["--interval", "0.001"], &query);
    let numbers: Vec<u64> = of_type(&lines, "interval")
        .iter()
        .filter_map(|line| line["number"].as_u64())
        .collect();
    assert!(numbers.len() >= 2, "{lines:?}");
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<u64>>());
    let times: Vec<u64> = of_type(&lines, "interval")
        .iter()
        .filter_map(|line| line["time"].as_u64())
        .collect();
    assert!(times.len() == numbers.len() && times.is_sorted(), "{times:?}");
    let out = tool(&["-c", &program, "--interval", "0.001", &query]);
    let text = String::from_utf8_lossy(&out.stdout);
    let heads = text.lines().filter(|line| line.starts_with("--- ")).count();
    assert!(heads >= 2 && text.starts_with("--- 1: "), "{text}");
    // Without an interval there is one print, which needs no number.
    let out = tool(&["-v", "-c", &program, &query]);
    assert!(!String::from_utf8_lossy(&out.stdout).contains("---"));
    // The summary counts what the kernel did, as no event is sent.
    let summary = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        summary.contains("\n3 hits in ") && summary.contains("0 lost, 0 faults"),
        "{summary}"
    );
    let query = format!("uprobe:{program}:look(n)");
    let out = tool(&["-v", "-c", &program, &query]);
    let summary = String::from_utf8_lossy(&out.stderr).into_owned();
    let bytes = format!(" {} bytes written", out.stdout.len());
    assert!(
        summary.contains("\n3 events in ") && summary.contains(&bytes),
        "{summary}"
    );

    let out = tool(&["--interval", "0", "tp:sched_switch(count())"]);
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn names_in_folded_stacks_keep_their_quotes() {
    let folder = Folder::new("folded");
    if skipped(unable()) {
        return;
    }
    // A name with a quote at its end, and with what folded lines are made of.
    for (name, shown) in [
        ("ab\"", "ab\\\""),
        ("\"", "\\\""),
        ("a;b c", "a_b_c"),
        ("plain", "plain"),
    ] {
        let source = format!(
            "#include <sys/prctl.h>\nint main(void) {{ prctl(PR_SET_NAME, \"{}\"); return look(); }}\n",
            name.replace('"', "\\\"")
        );
        let source = format!(
            "__attribute__((noinline)) int look(void) {{ __asm__ volatile(\"\"); return 0; }}\n{source}"
        );
        let program = gcc(&folder.0, &source, "named", &["-O1"]).display().to_string();
        let query = format!("uprobe:{program}:look(count(), by(comm, ustack(1)))");
        let out = tool(&["-c", &program, "--folded", &query]);
        assert_eq!(
            String::from_utf8_lossy(&out.stdout),
            format!("{shown};look 1\n"),
            "{name}"
        );
    }
}

#[test]
fn clocks_are_those_that_were_asked_for() {
    let folder = Folder::new("clocks");
    let Some(program) = program(&folder) else {
        return;
    };
    let query = format!("uprobe:{program}:look(n)");
    let now = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    };
    let times = |clock: &str| -> (Vec<Value>, Value) {
        let lines = json(&program, &["--time", clock], &query);
        let times = of_type(&lines, "event")
            .iter()
            .map(|line| line["time"].clone())
            .collect();
        (times, lines[0]["clock"].clone())
    };
    let boot = |times: &[Value]| -> Vec<f64> { times.iter().filter_map(Value::as_f64).collect() };
    let uptime = || -> f64 {
        let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
        text.split(' ')
            .next()
            .and_then(|first| first.parse().ok())
            .unwrap_or(0.0)
            * 1e9
    };
    for clock in ["monotonic", "boot", "relative", "delta", "wall"] {
        let (before, from) = (uptime(), now());
        let (stamps, told) = times(clock);
        let (after, to) = (uptime(), now());
        assert_eq!((told, stamps.len()), (Value::from(clock), 3), "{stamps:?}");
        let numbers = boot(&stamps);
        match clock {
            "boot" => {
                // The uptime has two digits behind the point.
                let all = numbers.iter().all(|at| (before - 2e7..=after + 2e7).contains(at));
                assert!(all && numbers.is_sorted(), "{numbers:?} in {before}..{after}");
            }
            "monotonic" => assert!(numbers.iter().all(|at| *at > 0.0 && *at <= after + 2e7)),
            // Three calls, a millisecond or more between them.
            "relative" => {
                let apart = numbers.windows(2).all(|two| two[1] - two[0] >= 1e6);
                assert!(
                    apart && numbers.iter().all(|at| *at < after - before + 4e7),
                    "{numbers:?}"
                );
            }
            "delta" => {
                assert!(
                    numbers[0] == 0.0 && numbers[1] >= 1e6 && numbers[2] >= 1e6,
                    "{numbers:?}"
                );
            }
            _ => {
                let seconds: Vec<u64> = stamps
                    .iter()
                    .map(|stamp| {
                        let stamp: jiff::Timestamp =
                            stamp.as_str().unwrap_or_default().parse().expect("RFC 3339");
                        stamp.as_second() as u64
                    })
                    .collect();
                assert!(seconds.iter().all(|at| (from..=to).contains(at)), "{seconds:?}");
            }
        }
    }
}

/// Whichever way of attaching is asked for, a set is compiled, and each function of it.
#[test]
fn a_set_is_dumped_in_each_way() {
    if skipped(unable()) {
        return;
    }
    for (attach, programs) in [
        ("auto", 1),
        ("fentry", 2),
        ("fsession", 2),
        ("fentry-multi", 1),
        ("fsession-multi", 1),
        ("kprobe", 1),
        ("kprobe-multi", 1),
        ("kprobe-session", 1),
    ] {
        let out = tool(&["--attach", attach, "--dump-insns", "vfs_read,vfs_write()"]);
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{attach}: {out:?}");
        let listed = text.lines().filter(|line| line.starts_with("ksj_")).count();
        assert_eq!(listed, programs, "{attach}: {text}");
    }
}

#[test]
fn whoever_looks_for_a_name_is_told_where_it_is() {
    if skipped(unable()) {
        return;
    }
    let said = |arguments: &[&str]| {
        let out = tool(arguments);
        assert_eq!(out.status.code(), Some(2), "{arguments:?}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    assert!(said(&["sched_switch(prev->comm)"]).contains("`tp:sched_switch`"));
    assert!(said(&["info", "sched_switch"]).contains("`tp:sched_switch`"));
    assert!(said(&["list", "tp:sched_swich"]).contains("did you mean sched_switch"));
    assert!(said(&["features", "x"]).contains("takes no words"));
    assert!(said(&["list", "*(struct sk_buff)"]).contains("did you mean `struct sk_buff *`?"));
    assert!(said(&["list", "no_such_module:*"]).contains("no BTF of a module `no_such_module`"));
    assert!(said(&["info", "vfs_*"]).contains("`ksnoop-jit list 'vfs_*'`"));
    assert!(said(&["info", "no_such_module:f"]).contains("no module no_such_module is loaded"));
    assert!(said(&["info", "vfs_open.cold"]).contains("a part of `vfs_open` that is jumped to"));
    assert!(said(&["no_such_module:f*()"]).contains("no module no_such_module is loaded"));
    assert!(said(&["vfs_read,vfs_opeen()"]).contains("did you mean `vfs_open`"));
    assert!(said(&["--format", "json", "info", "vfs_read"]).contains("nothing is traced"));
    assert!(said(&["-n", "1", "list", "vfs_read"]).contains("nothing is traced"));
    let found = |what: &str| String::from_utf8_lossy(&tool(&["list", what]).stdout).into_owned();
    let by_type = found("*(struct sk_buff *)");
    assert!(
        by_type.contains("ip_rcv(") && !by_type.contains("__bpf_trace_"),
        "{by_type}"
    );
    // Who names them gets them.
    assert!(found("__bpf_trace_sched_sw*").contains("__bpf_trace_sched_switch"));
    let help = tool(&["--help"]);
    let help = String::from_utf8_lossy(&help.stdout)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    use ksnoop_jit::display::{Layout, Options};
    let of = |format| Options::new(format);
    let (text, compact, chrome) = (of(Layout::Text), of(Layout::Compact), of(Layout::Chrome));
    for (what, values) in [
        ("shown", [text.depth, compact.depth, chrome.depth]),
        ("shown", [text.max_array, compact.max_array, chrome.max_array]),
    ] {
        let [text, compact, chrome] = values;
        let wanted = format!("{what} [default: {text}; compact {compact}, chrome {chrome}]");
        assert!(help.contains(&wanted), "{wanted}\n{help}");
    }
    let read = ksnoop_jit::sema::Limits::default();
    assert!(help.contains(&format!(
        "[default: {}; compact {}, chrome {}]",
        read.string - 1,
        compact.max_string,
        chrome.max_string
    )));
    assert!(help.contains(&format!("[default: {}]", read.bytes)));
    assert!(help.contains(&format!(
        "[default: {}, which are 4 MiB]",
        ksnoop_jit::lower::RING_BYTES / 4096
    )));
}

/// Where nothing could ever count, a trace would wait in vain.
#[test]
fn filters_that_nothing_can_pass_are_told() {
    if skipped(unable()) {
        return;
    }
    let query = "tp:sched_switch(prev->pid)";
    for (options, why) in [
        (["-p", "4194305"], "there is no process 4194305"),
        (["-t", "4194305"], "there is no thread 4194305"),
        (["--cpu", "99999"], "this machine has the CPUs 0 to"),
        (["-c", " "], "-c wants a command"),
    ] {
        let done = tool(&[options[0], options[1], query]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            done.status.code() == Some(2) && said.contains(why),
            "{options:?}: {said}"
        );
    }
    let done = tool(&["--comm", "this is longer than fifteen*", "--for", "0.1", query]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        done.status.success() && said.contains("the name of a task has at most 15 characters"),
        "{said}"
    );
}
