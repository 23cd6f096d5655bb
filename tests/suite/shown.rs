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
            "look(text=\"abc\"..., str(text, 5)=\"abc\"..., s->text=\"fif\"... /* 3 bytes of 15 */)",
        ),
        (
            "0",
            "look(text=\"\"..., str(text, 5)=\"\"..., s->text=\"\"... /* 0 bytes of 15 */)",
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
        "look(s->numbers=[1, 2, ... /* 2 elements of 8 */])"
    );
    assert_eq!(
        show(&["--max-bytes", "8"], "s->numbers"),
        "look(s->numbers=[1, 2, ... /* 8 bytes of 32 */])"
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
