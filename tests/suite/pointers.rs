//! Which pointers C subtracts from each other and takes as the two sides of `?:`: gcc is asked about each pair of many types, and
//! the same is asked here, over the types that gcc writes of its program.

use std::collections::BTreeSet;
use std::process::Command;

use ksnoop_jit::compile;
use ksnoop_jit::sema::Limits;
use ksnoop_jit::types::Types;

use super::oracle;
use super::user_host::{Folder, run, skipped};
use super::user_types::no_types;

/// Members of every kind of pointer, by name. `long` and `long long`, `char` and `signed char`, and qualifiers behind the second
/// star are left out: what differs in no more than that is taken together here.
const MEMBERS: [(&str, &str); 26] = [
    ("letters", "char *letters"),
    ("text", "const char *text"),
    ("port", "volatile char *port"),
    ("own", "char own[16]"),
    ("bytes", "unsigned char *bytes"),
    ("flag", "bool *flag"),
    ("shorts", "short *shorts"),
    ("ints", "int *ints"),
    ("numbers", "number *numbers"),
    ("fixed", "const number *fixed"),
    ("pids", "pid *pids"),
    ("counts", "unsigned int *counts"),
    ("longs", "long *longs"),
    ("sizes", "size *sizes"),
    ("any", "void *any"),
    ("anything", "const void *anything"),
    ("node", "struct node *node"),
    ("leaf", "const struct node *leaf"),
    ("frozen", "frozen *frozen"),
    ("other", "struct other *other"),
    ("colour", "enum colour *colour"),
    ("mood", "enum mood *mood"),
    ("where", "int **where"),
    ("there", "number **there"),
    ("anywhere", "void **anywhere"),
    ("rows", "int (*rows)[3]"),
];

/// Members whose addresses are subtracted, those with qualifiers of their own among them.
const PLACES: [(&str, &str); 9] = [
    ("whole", "int whole"),
    ("held", "const int held"),
    ("moving", "volatile number moving"),
    ("word", "unsigned int word"),
    ("hue", "enum colour hue"),
    ("temper", "const enum mood temper"),
    ("inner", "struct node inner"),
    ("set", "frozen set"),
    ("pair", "int pair[2]"),
];

/// Members beside which the constants of two enums are written.
const NUMBERS: [&str; 8] = [
    "p->hue == RED",
    "p->hue == SAD",
    "GLAD != p->hue",
    "p->hue < p->temper",
    "p->temper == GLAD",
    "p->whole == RED",
    "p->hue == 2",
    "p->hue == (enum mood)p->whole",
];

#[test]
fn pointers_go_together_as_they_do_in_c() {
    let folder = Folder::new("pointers");
    if skipped(oracle::compiler().err().or_else(|| no_types(&folder))) {
        return;
    }
    let mut expressions = Vec::new();
    for (a, _) in MEMBERS {
        expressions.push(format!("(c ? NULL : p->{a}) - p->{a}"));
        expressions.push(format!("(c ? p->{a} : 0) - p->{a}"));
        for (b, _) in MEMBERS {
            expressions.push(format!("p->{a} - p->{b}"));
            expressions.push(format!("c ? p->{a} : p->{b}"));
            expressions.push(format!("(c ? p->{a} : p->{b}) - p->{a}"));
        }
    }
    for (a, _) in PLACES {
        for (b, _) in PLACES {
            expressions.push(format!("&p->{a} - &p->{b}"));
            expressions.push(format!("c ? &p->{a} : &p->{b}"));
        }
    }
    let mut source = String::from(
        "typedef _Bool bool; typedef int number; typedef number pid; typedef unsigned long size;\n\
         struct node { int x; }; struct other { int y; }; typedef const struct node frozen;\n\
         enum colour { RED = -1, BLUE = 2 }; enum mood { SAD = -2, GLAD };\n\
         #define NULL ((void *)0)\nstruct all {\n",
    );
    for (_, declared) in MEMBERS.into_iter().chain(PLACES) {
        source.push_str(&format!("{declared};\n"));
    }
    source.push_str("};\n");
    let gcc = |name: &str, source: &str, options: &[&str]| {
        std::fs::write(folder.0.join(name), source).expect("a source file");
        Command::new("gcc")
            .current_dir(&folder.0)
            .args(options)
            .arg(name)
            .output()
            .expect("gcc runs")
    };
    let typed = format!("{source}int f(struct all *p, int c) {{ return c + p->own[0]; }}\n");
    assert!(gcc("t.c", &typed, &["-gbtf", "-c", "-o", "t.o"]).status.success());
    run(&folder, "objcopy", &["--dump-section", ".BTF=raw.btf", "t.o"]);
    let raw = std::fs::read(folder.0.join("raw.btf")).expect("gcc's BTF");
    let types = Types::new(btf_rs::Btf::from_bytes(&raw).expect("BTF that can be read"));

    let lines = source.lines().count();
    let mut asked = format!("{source}void f(struct all *p, int c) {{\n");
    for expression in &expressions {
        asked.push_str(&format!("(void)({expression});\n"));
    }
    asked.push_str("}\n");
    let options = ["-fsyntax-only", "-Werror", "-Wno-pointer-arith", "-fmax-errors=0"];
    let told = gcc("q.c", &asked, &options);
    let not_c = refused(&told.stderr, lines);
    assert!(
        (200..expressions.len() - 200).contains(&not_c.len()),
        "gcc refuses {} of {}",
        not_c.len(),
        expressions.len()
    );
    let mut wrong = Vec::new();
    for (index, expression) in expressions.iter().enumerate() {
        let query = format!("f({expression})");
        let ours = compile::understand(&query, &types, Limits::default());
        if ours.is_ok() == not_c.contains(&index) {
            wrong.push(format!("{expression}: {:?}", ours.err()));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));

    let mut asked = format!("{source}void f(struct all *p, int c) {{\n");
    for expression in NUMBERS {
        asked.push_str(&format!("(void)({expression});\n"));
    }
    asked.push_str("}\n");
    let told = gcc(
        "e.c",
        &asked,
        &["-fsyntax-only", "-Werror=enum-compare", "-Wno-sign-compare"],
    );
    let warned = refused(&told.stderr, lines);
    assert_eq!(warned.len(), 4, "{}", String::from_utf8_lossy(&told.stderr));
    for (index, expression) in NUMBERS.iter().enumerate() {
        match compile::understand(&format!("f({expression})"), &types, Limits::default()) {
            Ok(ours) => assert_eq!(!ours.warnings.is_empty(), warned.contains(&index), "{expression}"),
            Err(diags) => panic!("{expression}: {diags:?}"),
        }
    }
}

/// The expressions, by number, that gcc says something of, where the first stands two lines below so many.
fn refused(stderr: &[u8], lines: usize) -> BTreeSet<usize> {
    String::from_utf8_lossy(stderr)
        .lines()
        .filter(|line| line.contains("error:"))
        .filter_map(|line| line.split(':').nth(1)?.parse::<usize>().ok())
        .map(|line| line - lines - 2)
        .collect()
}
