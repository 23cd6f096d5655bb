//! Keys of aggregations over a program's values: rows are the values that events show, each as often as events show it, whatever type and
//! format they have; and what a key can't be is told. Each says why it is skipped where it can't be.

use std::collections::BTreeMap;

use serde_json::Value;

use super::user_host::{Folder, gcc, refused, skipped, tool, unable};
use super::user_types::no_types;

/// Values that are different only in their later bytes, behind a zero; then some that differ only in what nobody sees.
const PROGRAM: &str = r#"
#include <string.h>
struct point { char x; short y; };
struct key {
    char text[8]; unsigned char mac[6]; signed char low[3]; _Bool flag;
    char tag; int number; char name[8];
    unsigned narrow : 3; unsigned wide : 9;
    struct point points[3];
    union { char c; struct { char d; int e; } in; } either;
    unsigned char address[4]; void *to; short many[20];
};
struct key K[6];
__attribute__((noinline)) int look(struct key *k, int n) { asm volatile("" : : "r"(k) : "memory"); return n; }
static void fill(struct key *k, int n) {
    k->text[0] = 0; k->text[1] = n; k->mac[0] = 0; k->mac[1] = 9; k->mac[5] = n; k->low[0] = 0; k->low[2] = -n;
    k->flag = 1; k->tag = 't'; k->number = n; strcpy(k->name, "ab"); k->narrow = n; k->wide = 300;
    for (int i = 0; i < 3; i++) { k->points[i].x = 'p'; k->points[i].y = i * n; }
    k->either.in.d = 'd'; k->either.in.e = n; k->address[0] = 0; k->address[3] = n; k->to = 0;
    memset(k->many, 0, sizeof k->many); k->many[1] = n; memset(k->mac + 2, 0, 3); k->address[1] = k->address[2] = 0;
    k->low[1] = 0; memset(k->text + 2, 0, 6);
}
int main(void) {
    for (int i = 0; i < 6; i++) { memset(&K[i], 17 * i, sizeof K[i]); fill(&K[i], 1 + i / 3); }
    for (int i = 0; i < 6; i++) look(&K[i], i);
    return 0;
}
"#;

/// What is shown, and how many different values of it there are.
const SHOWN: [(&str, usize); 36] = [
    ("k->text", 1),
    ("k->text:s", 1),
    ("k->text:x", 2),
    ("k->text:d", 2),
    ("k->text:hex", 2),
    ("k->text:be", 2),
    ("k->mac", 2),
    ("k->mac:mac", 2),
    ("k->mac:x", 2),
    ("k->mac:hex", 2),
    ("k->mac:s", 1),
    ("k->mac:u8[6]", 2),
    ("k->low", 2),
    ("k->low:d", 2),
    ("k->low:hex", 2),
    ("k->flag", 1),
    ("k->tag:x", 1),
    ("k->number", 2),
    ("k->number:hex", 2),
    ("k->name", 1),
    ("k->name:hex", 6),
    ("k->narrow", 2),
    ("k->wide:x", 1),
    ("k->points", 2),
    ("k->points[1]", 2),
    ("k->points[0]", 1),
    ("k->points:hex", 6),
    ("k->either.in", 2),
    ("k->either.c", 1),
    ("k->address:ip", 2),
    ("k->address", 2),
    ("k->many", 2),
    ("k->many:x", 2),
    ("*(struct point *)&k->points[2]", 2),
    ("buf(k->mac, 6)", 2),
    ("buf(k->mac, 6):mac", 2),
];

fn lines(arguments: &[&str]) -> Vec<Value> {
    let out = tool(arguments);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && told.is_empty(), "{arguments:?}\n{told}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn program(folder: &Folder) -> String {
    gcc(&folder.0, PROGRAM, "keys", &["-O1", "-gbtf"])
        .display()
        .to_string()
}

#[test]
fn rows_are_the_values_that_events_show() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("keys");
    if skipped(no_types(&folder)) {
        return;
    }
    let path = program(&folder);
    for zeros in [false, true] {
        for (shown, different) in SHOWN {
            let options = ["--zeros", "--format", "json", "-c", &path];
            let options = &options[usize::from(!zeros)..];
            let item = format!("uprobe:{path}:look({shown})");
            let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
            for event in lines(&[options, &[item.as_str()]].concat()) {
                if event["type"] == "event" {
                    *wanted.entry(event["values"].to_string()).or_default() += 1;
                }
            }
            let key = format!("uprobe:{path}:look(count(), by({shown}))");
            let mut rows: Vec<(String, u64)> = Vec::new();
            for row in lines(&[options, &[key.as_str()]].concat()) {
                if row["type"] == "aggregate" {
                    let count = row["values"]["count()"].as_u64().unwrap_or(0);
                    rows.push((row["keys"].to_string(), count));
                }
            }
            rows.sort();
            // What is behind the NUL of a text is no part of it where it is a key by itself.
            if zeros && ["k->name", "k->text"].contains(&shown) {
                assert_eq!(rows.len(), different, "{shown}");
                continue;
            }
            assert_eq!(rows, wanted.into_iter().collect::<Vec<_>>(), "{shown}, {zeros}");
            assert_eq!(rows.len(), different, "{shown}, {zeros}");
        }
    }
}

#[test]
fn names_in_the_first_line_are_those_of_the_events() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("names");
    if skipped(no_types(&folder)) {
        return;
    }
    let path = program(&folder);
    let query = format!("uprobe:{path}:look(k->mac, k->mac:mac, n, k->mac:x, m = n)");
    let all = lines(&["--format", "json", "-c", &path, &query]);
    let names: Vec<&str> = all[0]["events"][0]["values"]
        .as_array()
        .expect("values")
        .iter()
        .filter_map(|value| value["name"].as_str())
        .collect();
    assert_eq!(names, ["k->mac", "k->mac#2", "n", "k->mac#3", "m"]);
    let event = all[1]["values"].as_object().expect("an event");
    assert!(
        names.iter().all(|name| event.contains_key(*name)) && event.len() == names.len(),
        "{event:?}"
    );
}

#[test]
fn sums_have_more_than_64_bits() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("sums");
    if skipped(no_types(&folder)) {
        return;
    }
    let path = program(&folder);
    // Six hits, n from 0 to 5.
    let query = format!(
        "uprobe:{path}:look(a=sum(~0UL - n), b=avg(~0UL), c=sum(n - (1L << 63)), d=avg(-(long)n), e=sum(-n), f=sum(n))"
    );
    let all = lines(&["--format", "json", "-c", &path, &query]);
    let row = all
        .iter()
        .find(|line| line["type"] == "aggregate")
        .expect("a row");
    let all = 6 * i128::from(u64::MAX) - 15;
    let least = 15 + 6 * i128::from(i64::MIN);
    let text = row["values"].to_string();
    assert!(text.contains(&format!(r#""a":"{all}""#)), "{text}");
    assert!(
        text.contains(&format!(r#""c":"{least}","d":-2.5,"e":-15,"f":15"#)),
        "{text}"
    );
    assert!(
        (row["values"]["b"].as_f64().unwrap_or(0.0) - u64::MAX as f64).abs() < 1.0,
        "{text}"
    );
    let hex = format!("uprobe:{path}:look(sum(~0UL):x)");
    let out = tool(&["-c", &path, &hex]);
    assert!(
        String::from_utf8_lossy(&out.stdout).contains("0x5fffffffffffffffa"),
        "{out:?}"
    );
}

#[test]
fn what_a_key_can_not_be_is_told() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("no-key");
    if skipped(no_types(&folder)) {
        return;
    }
    let path = program(&folder);
    let said = |options: &[&str], keys: &str| {
        let query = format!("uprobe:{path}:look(count(), by({keys}))");
        refused(&[options, &[query.as_str()]].concat())
    };
    let address = said(&[], "k->to:sym");
    assert!(
        address.contains("has no symbol") && address.contains("leave the format away"),
        "{address}"
    );
    // The advice is about what is there, and helps.
    let long = said(&[], "buf(k->mac, n + 6)");
    assert!(
        long.contains("E0423") && long.contains("--max-bytes 64") && !long.contains("--max-string"),
        "{long}"
    );
    let text = said(&[], "str(k->to), str(k->to), str(k->to), str(k->to)");
    assert!(
        text.contains("E0423") && text.contains("--max-string 32") && !text.contains("--max-bytes"),
        "{text}"
    );
    for (options, keys) in [
        (["--max-bytes", "64"], "buf(k->mac, n + 6)"),
        (
            ["--max-string", "32"],
            "str(k->name), str(k->name), str(k->name), str(k->name)",
        ),
    ] {
        let query = format!("uprobe:{path}:look(count(), by({keys}))");
        let all = lines(&[&options[..], &["--format", "json", "-c", &path, &query]].concat());
        assert!(all.iter().any(|line| line["type"] == "aggregate"), "{keys}");
    }
    let query = format!("uprobe:{path}:look(sum(n / (n - n)))");
    let out = tool(&["-c", &path, &query]);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        told.contains("6 hits") && told.contains("a division by zero"),
        "{told}"
    );
}
