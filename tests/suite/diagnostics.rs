//! Wrong queries and what is said about them: `tests/golden/wrong.txt` holds each query, what the carets must be under (by
//! hand), and the text (blessed).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ksnoop_jit::compile;
use ksnoop_jit::diag::{self, Code, Diagnostic, Severity};
use ksnoop_jit::sema::Limits;
use ksnoop_jit::types::testing::{Builder, Layout, mini_kernel, types_of};

use super::bless;

#[test]
fn wrong_queries_are_told_what_is_wrong() {
    let types = mini_kernel();
    let path = bless::golden("wrong.txt");
    let text = bless::read(&path);
    let (mut out, mut wrong, mut queries) = (String::new(), String::new(), BTreeSet::new());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(query) = line.strip_prefix('>') else {
            // What is below a query is made anew.
            if line.starts_with('#') {
                let first = out.is_empty() || out.ends_with("#\n");
                let _ = writeln!(out, "{}{line}", if first { "" } else { "\n" });
                while let Some(more) = lines.next_if(|more| more.starts_with('#')) {
                    let _ = writeln!(out, "{more}");
                }
            }
            continue;
        };
        let query = query.strip_prefix(' ').unwrap_or(query);
        if !queries.insert(query) {
            let _ = writeln!(wrong, "`{query}` is there twice");
        }
        let mut marks = Vec::new();
        while let Some(mark) = lines.next_if(|line| line.starts_with('!')) {
            marks.push(mark);
        }
        let diags = match compile::understand(query, &types, Limits::default()) {
            Ok(resolved) => resolved.warnings,
            Err(diags) => diags,
        };
        let got: Vec<String> = diags.iter().map(|diag| mark(query, diag)).collect();
        if got != marks {
            let _ = writeln!(wrong, "> {query}\n  marked {marks:?}\n  but is {got:?}");
        }
        let _ = writeln!(out, "\n>{}{query}", if query.is_empty() { "" } else { " " });
        for mark in &marks {
            let _ = writeln!(out, "{mark}");
        }
        for diag in &diags {
            if diag.label.is_empty() {
                let _ = writeln!(wrong, "> {query}\n  has no label: {diag}");
            }
            let _ = writeln!(out, "{}", diag::render(query, diag, false));
        }
    }
    assert!(queries.len() >= 150, "only {} queries", queries.len());
    let mut differences = String::new();
    bless::compare(&path, &out, &mut differences);
    bless::finish(&(wrong + &differences));
}

/// The code and the characters that the carets are under.
fn mark(query: &str, diag: &Diagnostic) -> String {
    format!("! {} {}", diag.code.as_str(), diag.span.text(query))
        .trim_end()
        .to_string()
}

#[test]
fn warnings_stop_nothing() {
    let types = mini_kernel();
    match compile::understand("ip_rcv(skb->len < 0)", &types, Limits::default()) {
        Ok(resolved) => {
            let [warning] = resolved.warnings.as_slice() else {
                panic!("{:?}", resolved.warnings);
            };
            assert_eq!(warning.severity, Severity::Warning);
        }
        Err(diags) => panic!("{diags:?}"),
    }
}

#[test]
fn constants_that_nobody_knows_by_heart_have_labels() {
    let types = mini_kernel();
    for item in [
        "n=sizeof(*skb)",
        "n=sizeof(struct sk_buff)",
        "at=offsetof(struct sk_buff, len)",
        "n=(int)sizeof(*skb) * 2",
        "n=argc",
    ] {
        let query = format!("ip_rcv({item})");
        match compile::understand(&query, &types, Limits::default()) {
            Ok(resolved) => assert!(resolved.warnings.is_empty(), "{query}: {:?}", resolved.warnings),
            Err(diags) => panic!("{query}: {diags:?}"),
        }
    }
}

#[test]
fn user_strings_are_where_strings_are() {
    let mut b = Builder::new();
    let row = b.array(b.ty("char"), 3);
    let rows = b.array(row, 4);
    let letters = b.ptr(b.ty("char"));
    let numbers = b.array(b.ty("int"), 4);
    let made = Layout::structure()
        .field("rows", rows)
        .field("text", row)
        .field("letters", letters)
        .field("numbers", numbers);
    let made = b.composite("made", made);
    let pointer = b.ptr(made);
    b.func("f", b.ty("int"), &[("p", pointer)]);
    let types = types_of(&b.writer);
    for (value, fits) in [
        ("text", true),
        ("rows[1]", true),
        ("letters", true),
        ("rows", false),
        ("numbers", false),
    ] {
        for format in ["s", "us"] {
            let query = format!("f(user(p)->{value}:{format})");
            let codes: Vec<Code> = match compile::understand(&query, &types, Limits::default()) {
                Ok(_) => Vec::new(),
                Err(diags) => diags.iter().map(|diag| diag.code).collect(),
            };
            let expected: &[Code] = if fits { &[] } else { &[Code::BadFormat] };
            assert_eq!(codes, expected, "{query}");
        }
    }
}
