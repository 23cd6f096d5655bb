//! The examples in LANGUAGE.md and README.md are queries that mean something. In: what stands in backquotes there. Out: nothing; it
//! is typed against this kernel's BTF, and the test says so where there is none. Nothing is attached.

use std::path::Path;

use ksnoop_jit::compile;
use ksnoop_jit::parser;
use ksnoop_jit::sema::Limits;
use ksnoop_jit::types::Types;
use ksnoop_jit_runtime as runtime;

use super::bless;

/// Where items that stand alone in the text could be, by the arguments that they need.
const TARGETS: [&str; 7] = [
    "tcp_connect",
    "ip_rcv",
    "vfs_open",
    "vfs_read",
    "tcp_sendmsg",
    "do_sys_openat2",
    "tp:sched_switch",
];

/// What stands in backquotes, outside of blocks.
fn quoted(text: &str) -> Vec<&str> {
    let mut outside = Vec::new();
    for (index, part) in text.split("```").enumerate() {
        if index % 2 == 0 {
            outside.extend(part.split('`').skip(1).step_by(2));
        }
    }
    outside
}

/// Whether the example is about kernel types, with names that are real ones: `skb->len`, not `a->b` or `next->pdi`.
fn is_real(example: &str) -> bool {
    let names = [
        "skb",
        "sk->",
        "path->",
        "prev->",
        "next->",
        "how->",
        "filename",
        "vfs_read(",
        "do_sys_openat2",
    ];
    names.iter().any(|name| example.contains(name)) && !example.contains('…') && !example.contains("...")
}

#[test]
fn examples_in_the_documentation_are_right() {
    let types = match runtime::btf::open_vmlinux(None) {
        Ok(btf) => Types::new(btf),
        Err(why) => {
            eprintln!("SKIP: {why}");
            return;
        }
    };
    let understood = |query: &str| {
        parser::parse(query).is_ok() && compile::understand(query, &types, Limits::default()).is_ok()
    };
    let mut seen = 0;
    let mut wrong = Vec::new();
    for file in ["LANGUAGE.md", "README.md"] {
        let text = bless::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
        // In a table a bar has a backslash before it.
        for example in quoted(&text).into_iter().filter(|example| is_real(example)) {
            let example = example.replace("\\|", "|");
            let alone = |target: &&str| {
                understood(&format!("{target}({example})"))
                    || understood(&format!("{target}(count(), {example})"))
            };
            let target = example.split('(').next().unwrap_or_default();
            let whole = !target.contains("->") && parser::parse(&example).is_ok();
            seen += 1;
            let right = (whole && understood(&example)) || TARGETS.iter().any(alone);
            if !right {
                wrong.push(format!("{file}: {example}"));
            }
        }
        // Queries in blocks: what a shell is given in quotes.
        for line in text
            .lines()
            .filter(|line| line.starts_with("# ksnoop-jit") || line.starts_with("$ ksnoop-jit"))
        {
            // All but the title, and the one that shows what a mistake looks like.
            let Some(query) = line.split('\'').nth(1).filter(|query| !query.contains("pdi")) else {
                continue;
            };
            seen += 1;
            if !understood(query) {
                wrong.push(format!("{file}: {line}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(seen > 15, "only {seen} examples");
}
