//! What `--format json` writes: each line is JSON, as its schema says, and the examples in JSON.md give what they say. In: a
//! few queries, records that their programs could have made, and losses and mistakes. Out: tests/golden/events.jsonl, which
//! the examples run over. Where there is no jq, the examples are skipped, and the test says so.

use std::process::Command;

use ksnoop_jit::compile::{self, Job, Way};
use ksnoop_jit::display::{Layout, NoSymbols, Notice, Options, Printer, Uncounted, json};
use ksnoop_jit::lower::Target;
use ksnoop_jit::sema::Limits;
use ksnoop_jit::span::Span;
use ksnoop_jit::types::testing::mini_kernel;
use ksnoop_jit::wire::RecordLayout;
use serde_json::{Map, Value};

use super::bless;
use super::golden::made_up;

const QUERIES: [&str; 4] = [
    "ip_rcv(skb->len > 0xff, skb)",
    "vfs_open(name=str(path->dentry->d_iname), return < 0)",
    "tcp_set_state(sk->__sk_common.skc_daddr:ip, state)",
    "tp:sched_switch(prev->comm, next->pid)",
];

/// A run of all queries, in which everything happens once.
fn run() -> String {
    let types = mini_kernel();
    let mut layouts: Vec<RecordLayout> = Vec::new();
    for (index, text) in QUERIES.iter().enumerate() {
        let resolved = match compile::understand(text, &types, Limits::default()) {
            Ok(resolved) => resolved,
            Err(diags) => panic!("{text}: {diags:?}"),
        };
        let job = Job {
            first_event: layouts.len() as u32,
            query: index,
            queries: QUERIES.len(),
            ..Job::alone(Way::Trampoline)
        };
        match compile::generate(&resolved.query, &types, &Target::default(), job) {
            Ok(artifact) => {
                let programs = artifact.programs.into_iter();
                layouts.extend(programs.filter_map(|lowered| lowered.layout));
            }
            Err(error) => panic!("{text}: {error}"),
        }
    }
    let mut out = String::new();
    let mut printer = Printer::new(&types, &layouts, Options::new(Layout::Json));
    printer.begin(&QUERIES, &mut out);
    for layout in &layouts {
        for faulty in [false, true] {
            printer.event(&made_up(layout, faulty), &mut out, &NoSymbols);
        }
    }
    let short = layouts.first().map(|layout| made_up(layout, false));
    printer.event(&short.unwrap_or_default()[..40], &mut out, &NoSymbols);
    printer.event(&[], &mut out, &NoSymbols);
    printer.event(&[9; 64], &mut out, &NoSymbols);
    let notices = [
        Notice::Lost {
            name: "ip_rcv",
            query: 0,
            count: 12,
        },
        Notice::Faults {
            name: "vfs_open",
            query: 1,
            count: u64::MAX,
        },
        Notice::Uncounted {
            name: "ip_rcv",
            query: 0,
            count: 3,
            reason: Uncounted::Keys,
        },
        Notice::Uncounted {
            name: "ip_rcv",
            query: 0,
            count: 1 << 53,
            reason: Uncounted::Fault,
        },
        Notice::Error {
            code: Some("E0303"),
            message: "`struct sk_buff` has no member `\u{1b}[2J`",
            place: Some(("ip_rcv(skb->\u{202e})", Span::new(12, 15))),
        },
        Notice::End {
            events: 8,
            lost: 12,
            late: 0,
        },
    ];
    for notice in &notices {
        printer.notice(notice, &mut out);
    }
    printer.end(&mut out);
    out
}

#[test]
fn each_line_is_as_the_schema_says() {
    let schema: Value = serde_json::from_str(json::SCHEMA).expect("the schema is JSON");
    let written = run();
    let mut kinds = Vec::new();
    for line in written.lines() {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let wrong = check(&schema, &schema, &value);
        assert_eq!(wrong, None, "{line}");
        kinds.push(value["type"].as_str().unwrap_or_default().to_string());
    }
    for kind in ["start", "event", "lost", "faults", "uncounted", "error", "end"] {
        assert!(kinds.iter().any(|seen| seen == kind), "no {kind}");
    }
    // The checker itself refuses what the schema does.
    for wrong in [
        r#"{"type":"event"}"#,
        r#"{"type":"what"}"#,
        r#"{"type":"end","events":9007199254740993,"lost":0,"late":0}"#,
        r#"{"type":"lost","name":"f","query":0,"count":"12"}"#,
    ] {
        let value = serde_json::from_str(wrong).expect("JSON");
        assert!(check(&schema, &schema, &value).is_some(), "{wrong}");
    }
    let mut differences = String::new();
    bless::compare(&bless::golden("events.jsonl"), &written, &mut differences);
    bless::finish(&differences);
}

#[test]
fn the_schema_is_of_the_version_that_is_written() {
    let schema: Value = serde_json::from_str(json::SCHEMA).expect("the schema is JSON");
    let version = &schema["$defs"]["start"]["properties"]["schema"]["const"];
    assert_eq!(version.as_u64(), Some(u64::from(json::VERSION)));
}

#[test]
fn the_examples_in_the_documentation_are_right() {
    if Command::new("jq").arg("--version").output().is_err() {
        eprintln!("SKIP: there is no jq here");
        return;
    }
    let text = bless::read(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("JSON.md"));
    let mut examples = 0;
    for block in text.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        let Some((command, wanted)) = block.strip_prefix("$ jq ").and_then(|rest| rest.split_once('\n'))
        else {
            continue;
        };
        examples += 1;
        let ran = Command::new("sh")
            .arg("-c")
            .arg(format!("jq {command}"))
            .current_dir(bless::golden(""))
            .output()
            .expect("there is a shell");
        let got = String::from_utf8_lossy(&ran.stdout);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(got, wanted, "jq {command}\n{said}");
    }
    assert!(examples >= 4, "only {examples} examples");
}

/// What is wrong with a line, by the schema.
pub(super) fn wrong(line: &Value) -> Option<String> {
    let schema: Value = serde_json::from_str(json::SCHEMA).expect("the schema is JSON");
    check(&schema, &schema, line)
}

/// What is wrong with a value, by the keywords that the schema uses; a keyword that is not known here is a mistake as well.
fn check(root: &Value, schema: &Value, value: &Value) -> Option<String> {
    let Some(schema) = schema.as_object() else {
        return Some("a schema is an object".to_string());
    };
    for (keyword, rule) in schema {
        let wrong = match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" | "format" => None,
            "$ref" => reference(root, rule).and_then(|schema| check(root, schema, value)),
            "oneOf" => {
                let options = rule.as_array().map_or(&[][..], Vec::as_slice);
                let fits = options
                    .iter()
                    .filter(|one| check(root, one, value).is_none())
                    .count();
                (fits != 1).then(|| format!("{value} fits {fits} of {}", options.len()))
            }
            "const" => (rule != value).then(|| format!("{value} is not {rule}")),
            "enum" => {
                let known = rule.as_array().is_some_and(|all| all.contains(value));
                (!known).then(|| format!("{value} is none of {rule}"))
            }
            "type" => {
                let named = |name: &Value| is(name.as_str().unwrap_or_default(), value);
                let fits = rule
                    .as_array()
                    .map_or_else(|| named(rule), |all| all.iter().any(named));
                (!fits).then(|| format!("{value} is no {rule}"))
            }
            "minimum" => (value.as_i64() < rule.as_i64()).then(|| format!("{value} is less than {rule}")),
            "maximum" => (value.as_i64() > rule.as_i64()).then(|| format!("{value} is more than {rule}")),
            "pattern" => value
                .as_str()
                .and_then(|text| (!matches(rule, text)).then(|| format!("{text} is not like {rule}"))),
            "required" => rule.as_array().and_then(|names| {
                let missing = names
                    .iter()
                    .find(|name| value.get(name.as_str().unwrap_or_default()).is_none());
                missing.map(|name| format!("{value} has no {name}"))
            }),
            "properties" => rule.as_object().and_then(|rules| {
                rules
                    .iter()
                    .find_map(|(name, rule)| value.get(name).and_then(|value| check(root, rule, value)))
            }),
            "additionalProperties" => others(root, schema, rule, value),
            "items" => value
                .as_array()
                .and_then(|all| all.iter().find_map(|one| check(root, rule, one))),
            other => Some(format!("the schema uses `{other}`")),
        };
        if wrong.is_some() {
            return wrong;
        }
    }
    None
}

fn reference<'v>(root: &'v Value, rule: &Value) -> Option<&'v Value> {
    let path = rule.as_str()?.strip_prefix('#')?;
    let found = root.pointer(path);
    assert!(found.is_some(), "the schema has no {path}");
    found
}

fn others(root: &Value, schema: &Map<String, Value>, rule: &Value, value: &Value) -> Option<String> {
    let named = schema.get("properties").and_then(Value::as_object);
    value.as_object()?.iter().find_map(|(name, value)| {
        if named.is_some_and(|named| named.contains_key(name)) {
            return None;
        }
        check(root, rule, value)
    })
}

fn is(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("JSON has no {other}"),
    }
}

/// The patterns of the schema.
fn matches(pattern: &Value, text: &str) -> bool {
    let hex = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    match pattern.as_str().unwrap_or_default() {
        "^-?[0-9]{16,39}$" => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            (16..=39).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
        }
        "^0x[0-9a-f]{1,16}$" => text
            .strip_prefix("0x")
            .is_some_and(|digits| (1..=16).contains(&digits.len()) && hex(digits)),
        "^([0-9a-f]{2})*$" => text.len().is_multiple_of(2) && hex(text),
        other => panic!("the schema has the pattern {other}"),
    }
}
