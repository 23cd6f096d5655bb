//! Queries that are wrong. Each is told with its code at exactly these characters.

use crate::parser::{generate, parse};

/// Each query, and for each of its errors a line to put below it: `^` under the characters, or `|` where the place is
/// between two, and the code.
#[rustfmt::skip]
const WRONG: &[(&str, &[&str])] = &[
    (r#""#, &[r#"| E0102"#]),
    (r#"  "#, &[r#"^^ E0102"#]),
    (r#"(a)"#, &[r#"^ E0104"#]),
    (r#"if a"#, &[r#"^^ E0104"#]),
    (r#"f(a"#, &[r#"   | E0136"#]),
    (r#"f((a)"#, &[r#"     | E0136"#]),
    (r#"f((a + b, c)"#, &[r#"        ^ E0139"#]),
    (r#"f(g(a, b)"#, &[r#"         | E0136"#]),
    (r#"f(a]"#, &[r#"   ^ E0158"#]),
    (r#"f((a])"#, &[r#"    ^ E0158"#]),
    (r#"f(a[1)"#, &[r#"     ^ E0137"#]),
    (r#"f(a[1"#, &[r#"     | E0137"#]),
    (r#"f(a))"#, &[r#"    ^ E0158"#]),
    (r#"f)"#, &[r#" ^ E0158"#]),
    (r#"f(a[])"#, &[r#"    ^ E0130"#]),
    (r#"f(a ==)"#, &[r#"      ^ E0130"#]),
    (r#"f(a == )"#, &[r#"       ^ E0130"#]),
    (r#"f(== 3)"#, &[r#"  ^^ E0130"#]),
    (r#"f(a == == b)"#, &[r#"       ^^ E0130"#]),
    (r#"f(a = = b)"#, &[r#"    ^^^ E0132"#]),
    (r#"f(a->b = 3)"#, &[r#"       ^ E0132"#]),
    (r#"f(x == 1 && y = 2)"#, &[r#"              ^ E0132"#]),
    (r#"f(a =! b, a->b =! 3)"#, &[r#"               ^^ E0133"#]),
    (r#"f(return = 3)"#, &[r#"         ^ E0132"#]),
    (r#"f(a === b)"#, &[r#"    ^^^ E0133"#]),
    (r#"f(a !== b)"#, &[r#"    ^^^ E0133"#]),
    (r#"f(a => b)"#, &[r#"    ^^ E0133"#]),
    (r#"f(a =< b)"#, &[r#"    ^^ E0133"#]),
    (r#"f(a <> b)"#, &[r#"    ^^ E0133"#]),
    (r#"f(a <=> b)"#, &[r#"    ^^^ E0133"#]),
    (r#"f(a < = b)"#, &[r#"    ^^^ E0133"#]),
    (r#"f(a ! = b)"#, &[r#"    ^^^ E0133"#]),
    (r#"f(a++)"#, &[r#"   ^^ E0133"#]),
    (r#"f(--a)"#, &[r#"  ^^ E0133"#]),
    (r#"f(a--1)"#, &[r#"   ^^ E0133"#]),
    (r#"f(a += 1)"#, &[r#"    ^^ E0133"#]),
    (r#"f(a <<= 1)"#, &[r#"    ^^^ E0133"#]),
    (r#"f(a ^^ b)"#, &[r#"    ^^ E0133"#]),
    (r#"f(a ~= "x")"#, &[r#"    ^^ E0133"#]),
    (r#"f(a !~ "x")"#, &[r#"    ^^ E0133"#]),
    (r#"f(a ~ "x")"#, &[r#"    ^ E0133"#]),
    (r#"f(a ! b)"#, &[r#"    ^ E0133"#]),
    (r#"f(a and b)"#, &[r#"    ^^^ E0133"#]),
    (r#"f(a or b)"#, &[r#"    ^^ E0133"#]),
    (r#"f(not a)"#, &[r#"  ^^^ E0133"#]),
    (r#"f(a) if a and b"#, &[r#"          ^^^ E0133"#]),
    (r#"f(a eq b)"#, &[r#"    ^^ E0133"#]),
    (r#"f(a is NULL)"#, &[r#"    ^^ E0133"#]),
    (r#"f(file-.foo)"#, &[r#"      ^^ E0135"#]),
    (r#"f(file- >foo)"#, &[r#"      ^^^ E0135"#]),
    (r#"f(a->)"#, &[r#"     ^ E0134"#]),
    (r#"f(a->5)"#, &[r#"     ^ E0134"#]),
    (r#"f(a.0)"#, &[r#"    ^ E0134"#]),
    (r#"f(a. == 3)"#, &[r#"     ^^ E0134"#]),
    (r#"f(a..b)"#, &[r#"    ^ E0134"#]),
    (r#"f(->b)"#, &[r#"  ^^ E0130"#]),
    (r#"f(a @ b)"#, &[r#"    ^ E0157"#]),
    (r#"f(@)"#, &[r#"  ^ E0130"#]),
    (r#"f(a # b)"#, &[r#"    ^ E0110"#]),
    (r#"f(a;)"#, &[r#"   ^ E0110"#]),
    (r#"f(a); g(b)"#, &[r#"    ^ E0110"#]),
    (r#"f(“a”)"#, &[r#"  ^ E0111"#]),
    (r#"f(a – b)"#, &[r#"    ^ E0111"#]),
    (r#"f(a ≥ b)"#, &[r#"    ^ E0111"#]),
    (r#"f(a{b})"#, &[r#"   ^ E0110"#]),
    (r#"f("abc)"#, &[r#"  ^^^^^ E0112"#]),
    (r#"f('a)"#, &[r#"  ^^^ E0113"#]),
    (r#"f('')"#, &[r#"  ^^ E0114"#]),
    (r#"f('ab')"#, &[r#"  ^^^^ E0114"#]),
    (r#"f('é')"#, &[r#"  ^^^ E0114"#]),
    (r#"f("a\qb")"#, &[r#"    ^^ E0115"#]),
    (r#"f("a\x")"#, &[r#"    ^^ E0115"#]),
    (r#"f("\400")"#, &[r#"   ^^ E0115"#]),
    (r#"f(18446744073709551616)"#, &[r#"  ^^^^^^^^^^^^^^^^^^^^ E0116"#]),
    (r#"f(0x1ffffffffffffffff)"#, &[r#"  ^^^^^^^^^^^^^^^^^^^ E0116"#]),
    (r#"f(12abc)"#, &[r#"    ^^^ E0117"#]),
    (r#"f(12xyz)"#, &[r#"    ^^^ E0117"#]),
    (r#"f(1uu)"#, &[r#"   ^^ E0117"#]),
    (r#"f(1lul)"#, &[r#"   ^^^ E0117"#]),
    (r#"f(08)"#, &[r#"   ^ E0118"#]),
    (r#"f(0b12)"#, &[r#"     ^ E0118"#]),
    (r#"f(0x)"#, &[r#"  ^^ E0118"#]),
    (r#"f(0b)"#, &[r#"  ^^ E0118"#]),
    (r#"f(0xg)"#, &[r#"  ^^^ E0118"#]),
    (r#"f(1_000)"#, &[r#"   ^ E0117"#]),
    (r#"f(0o17)"#, &[r#"   ^ E0117"#]),
    (r#"f(1.5)"#, &[r#"  ^^^ E0119"#]),
    (r#"f(1e5)"#, &[r#"  ^^^ E0119"#]),
    (r#"f(1.5e-3 + a)"#, &[r#"  ^^^^^^ E0119"#]),
    (r#"f(.5)"#, &[r#"  ^^ E0119"#]),
    (r#"f($)"#, &[r#"  ^ E0120"#]),
    (r#"f($ a)"#, &[r#"  ^ E0120"#]),
    (r#"f(a b)"#, &[r#"    ^ E0131"#]),
    (r#"f(a 3)"#, &[r#"    ^ E0131"#]),
    (r#"f("a" "b")"#, &[r#"      ^^^ E0131"#]),
    (r#"f(u32 x)"#, &[r#"      ^ E0131"#]),
    (r#"f(struct sk_buff *skb)"#, &[r#"  ^^^^^^ E0140"#]),
    (r#"f(int x)"#, &[r#"  ^^^ E0140"#]),
    (r#"f((struct sk_buff)"#, &[r#"                  | E0130"#]),
    (r#"f((struct)x)"#, &[r#"         ^ E0141"#]),
    (r#"f((struct sk_buff *x)"#, &[r#"                   ^ E0141"#]),
    (r#"f((struct sk_buff * __user)x)"#, &[r#"                    ^^^^^^ E0141"#]),
    (r#"f((u8[4])x)"#, &[r#"     ^ E0141"#]),
    (r#"f((int (*)(void))x)"#, &[r#"       ^ E0141"#]),
    (r#"f((long char)x)"#, &[r#"   ^^^^^^^^^ E0141"#]),
    (r#"f((double)x)"#, &[r#"   ^^^^^^ E0141"#]),
    (r#"f((unsigned signed)x)"#, &[r#"   ^^^^^^^^^^^^^^^ E0141"#]),
    (r#"f((u32))"#, &[r#"       ^ E0130"#]),
    (r#"f((u32) == 3)"#, &[r#"        ^^ E0130"#]),
    (r#"f((char ************)x)"#, &[r#"                ^ E0141"#]),
    (r#"f(a->b(c))"#, &[r#"      ^ E0142"#]),
    (r#"f(a, )"#, &[r#"   ^ E0150"#]),
    (r#"f(, a)"#, &[r#"  ^ E0150"#]),
    (r#"f(a,,b)"#, &[r#"    ^ E0150"#]),
    (r#"f(=3)"#, &[r#"  ^ E0151"#]),
    (r#"f(a=)"#, &[r#"    ^ E0130"#]),
    (r#"f(a:)"#, &[r#"    ^ E0152"#]),
    (r#"f(a:3)"#, &[r#"    ^ E0152"#]),
    (r#"f(a:x:y)"#, &[r#"     ^ E0159"#]),
    (r#"f((a:x))"#, &[r#"    ^ E0159"#]),
    (r#"f(g(a:x))"#, &[r#"     ^ E0159"#]),
    (r#"f(a:"x")"#, &[r#"    ^^^ E0152"#]),
    (r#"f(a ? b)"#, &[r#"       ^ E0138"#]),
    (r#"f(a ? b : )"#, &[r#"          ^ E0130"#]),
    (r#"f(a ? : c)"#, &[r#"      ^ E0130"#]),
    (r#"f(a ?)"#, &[r#"     ^ E0130"#]),
    (r#"f(a ? b, c)"#, &[r#"       ^ E0138"#]),
    (r#"f((a, b))"#, &[r#"    ^ E0139"#]),
    (r#"f(a[1, 2])"#, &[r#"     ^ E0139"#]),
    (r#"f(a if b)"#, &[r#"    ^^ E0160"#]),
    (r#"f(a if b == 1)"#, &[r#"    ^^ E0160"#]),
    (r#"f(a) if"#, &[r#"     ^^ E0155"#]),
    (r#"f if"#, &[r#"  ^^ E0155"#]),
    (r#"f(a) if a if b"#, &[r#"          ^^ E0156"#]),
    (r#"f(a) if a:x"#, &[r#"         ^ E0159"#]),
    (r#"f(a) if a, b"#, &[r#"         ^ E0139"#]),
    (r#"f(a) if a)"#, &[r#"         ^ E0158"#]),
    (r#"f(a) if (a"#, &[r#"          | E0136"#]),
    (r#"f(a) if a = 1"#, &[r#"          ^ E0132"#]),
    (r#"f(a) where b"#, &[r#"     ^^^^^ E0157"#]),
    (r#"f(a) && b"#, &[r#"     ^^^^ E0157"#]),
    (r#"f(a)->b"#, &[r#"    ^^^ E0157"#]),
    (r#"f(a)(b)"#, &[r#"    ^^^ E0157"#]),
    (r#"f(a), b"#, &[r#"    ^^^ E0157"#]),
    (r#"f(a) junk here"#, &[r#"     ^^^^^^^^^ E0157"#]),
    (r#"f == 3"#, &[r#"  ^^^^ E0157"#]),
    (r#"f a"#, &[r#"  ^ E0157"#]),
    (r#"f->a"#, &[r#" ^ E0103"#]),
    (r#"f=3"#, &[r#" ^ E0103"#]),
    (r#""f(a)""#, &[r#"^ E0103"#]),
    (r#"f-1(a)"#, &[r#" ^ E0103"#]),
    (r#"f+0x10"#, &[r#" ^ E0103"#]),
    (r#"f;g"#, &[r#" ^ E0103"#]),
    (r#"f,0x10"#, &[r#"  ^^^^ E0103"#]),
    (r#"f@g(a)"#, &[r#"^^^ E0103"#]),
    (r#"f,3g"#, &[r#"  ^ E0103"#]),
    (r#"f/a/"#, &[r#" ^ E0103"#]),
    (r#"3f"#, &[r#"^ E0103"#]),
    (r#"m:"#, &[r#"  | E0104"#]),
    (r#":f"#, &[r#"| E0104"#]),
    (r#"m:f:g"#, &[r#"   ^^ E0105"#]),
    (r#"m: f"#, &[r#"  | E0104"#]),
    (r#"kprobe:f"#, &[r#"^^^^^^ E0106"#]),
    (r#"tracepoint:sched:sched_switch"#, &[r#"^^^^^^^^^^ E0106"#]),
    (r#"tp:"#, &[r#"   | E0104"#]),
    (r#"tp::e"#, &[r#"   | E0104"#]),
    (r#"tp:g:"#, &[r#"     | E0104"#]),
    (r#"tp:a:b:c"#, &[r#"      ^^ E0105"#]),
    (r#"uprobe:"#, &[r#"       | E0104"#]),
    (r#"uprobe:/bin/sh"#, &[r#"              | E0104"#]),
    (r#"uprobe:/bin/sh:"#, &[r#"               | E0104"#]),
    (r#"uprobe::main"#, &[r#"       | E0104"#]),
    (r#"uprobe:/bin/sh:a:b"#, &[r#"                ^^ E0105"#]),
    (r#"uprobe:/bin/sh:0xzz"#, &[r#"               ^^^^ E0103"#]),
    (r#"uprobe:"/bin/sh:main"#, &[r#"       ^ E0103"#]),
    (r#"uprobe:"":main"#, &[r#"       ^ E0103"#]),
    (r#"usdt:/bin/sh"#, &[r#"            | E0104"#]),
    (r#"usdt:/bin/sh:p"#, &[r#"              | E0104"#]),
    (r#"usdt:/bin/sh:p:"#, &[r#"               | E0104"#]),
    (r#"usdt:/bin/sh:p:n:x"#, &[r#"                ^^ E0105"#]),
    (r#"tcp_[ab"#, &[r#"    ^ E0107"#]),
    (r#"f&g"#, &[r#" ^ E0103"#]),
    (r#"f(a == , b ==, c)"#, &[r#"       ^ E0130"#, r#"             ^ E0130"#]),
    (r#"f(a = = 1, b->, 08) if c and d"#, &[r#"    ^^^ E0132"#, r#"              ^ E0134"#, r#"                 ^ E0118"#, r#"                         ^^^ E0133"#]),
    (r#"f(&&a)"#, &[r#"  ^^ E0130"#]),
    (r#"f(a &&)"#, &[r#"      ^ E0130"#]),
    (r#"f(*)"#, &[r#"   ^ E0130"#]),
    (r#"f(a + * )"#, &[r#"        ^ E0130"#]),
    (r#"f(sizeof)"#, &[r#"        ^ E0130"#]),
    (r#"f(sizeof())"#, &[r#"         ^ E0130"#]),
    (r#"f(g(,a))"#, &[r#"    ^ E0130"#]),
    (r#"f(g(a,))"#, &[r#"      ^ E0130"#]),
    (r#"f(a ? b : c : d : e)"#, &[r#"                ^ E0159"#]),
    (r#"f(a::x)"#, &[r#"    ^ E0152"#]),
    (r#"f(`a`)"#, &[r#"  ^ E0111"#]),
    (r#"f(a `b`)"#, &[r#"    ^ E0111"#]),
    (r#"f(l=m=n)"#, &[r#"     ^ E0132"#]),
    (r#"f(a.b=c)"#, &[r#"     ^ E0132"#]),
    (r#"f(struct)"#, &[r#"  ^^^^^^ E0140"#]),
    (r#"f((const)x)"#, &[r#"        ^ E0141"#]),
    (r#"f(a == b:)"#, &[r#"         ^ E0152"#]),
    (r#"f({a})"#, &[r#"  ^ E0110"#]),
    (r#"f(!)"#, &[r#"   ^ E0130"#]),
    (r#"f(a b c, d e)"#, &[r#"    ^ E0131"#, r#"           ^ E0131"#]),
    (r#"f(sizeof(u32[4]))"#, &[r#"            ^ E0141"#]),
    (r#"f(a) if == 3"#, &[r#"        ^^ E0130"#]),
    (r#"f(1) if (u32[2])x"#, &[r#"            ^ E0141"#]),
    (r#"f(a == 1, (b, c), d.)"#, &[r#"            ^ E0139"#, r#"                    ^ E0134"#]),
    (r#"f(a ? b : c ? d)"#, &[r#"               ^ E0138"#]),
    (r#"f(a)b"#, &[r#"    ^ E0157"#]),
    (r#"f(x y:u8)"#, &[r#"    ^ E0131"#]),
    (r#"f(a and not b)"#, &[r#"    ^^^ E0133"#]),
    (r#"f(a \ b)"#, &[r#"    ^ E0157"#]),
    (r#"f(a × b)"#, &[r#"    ^ E0111"#]),
    (r#"f(g(a b))"#, &[r#"      ^ E0131"#]),
    (r#"f(a[b c])"#, &[r#"      ^ E0131"#]),
    (r#"f(a ? b c)"#, &[r#"        ^ E0131"#]),
    (r#"f((a b))"#, &[r#"     ^ E0131"#]),
    (r#"f(container_of(p, struct, m))"#, &[r#"                        ^ E0141"#]),
];

#[test]
fn each_mistake_is_told_at_its_characters() {
    let mut failed = String::new();
    for (src, expected) in WRONG {
        generate::check(src);
        let found: Vec<String> = match parse(src) {
            Ok(query) => vec![format!("taken as {query}")],
            Err(why) => why
                .iter()
                .map(|one| format!("{} {}", carets(src, one.span.range()), one.code))
                .collect(),
        };
        if found != *expected {
            failed.push_str(&format!("{src}\n{}\n", found.join("\n")));
        }
    }
    assert!(failed.is_empty(), "\n{failed}");
}

/// Places in a text of several lines count on from the first.
#[test]
fn a_mistake_on_a_later_line() {
    let why = parse("f(a,\n  b = = 1)").unwrap_err();
    assert_eq!(
        (why.first().code.as_str(), why.first().span.range()),
        ("E0132", 9..12)
    );
}

/// What a user sees, once in full for each form: labels at two places, help, several errors.
#[test]
fn drawn() {
    let draw = |src: &str| {
        let drawn: Vec<String> = parse(src)
            .unwrap_err()
            .iter()
            .map(|one| crate::diag::render(src, one, false))
            .collect();
        drawn.join("\n")
    };
    let drawn = draw("f(a, g(b");
    assert_eq!(
        drawn,
        "\
error[E0136]: this `(` is not closed
 --> query:1:9
  |
1 | f(a, g(b
  |       - ^ expected `)`, found the end of the query
  |       |
  |       opened here"
    );
    let drawn = draw("f(a = = 1, b->)");
    assert_eq!(
        drawn,
        "\
error[E0132]: `= =` is not an operator
 --> query:1:5
  |
1 | f(a = = 1, b->)
  |     ^^^ two operators
  |
  = help: write `==`
error[E0134]: the name of a member is missing after `->`
 --> query:1:15
  |
1 | f(a = = 1, b->)
  |               ^ expected a member's name, found `)`"
    );
}

/// The line of carets.
fn carets(src: &str, span: std::ops::Range<usize>) -> String {
    let before = " ".repeat(src[..span.start].chars().count());
    let under = "^".repeat(src[span.clone()].chars().count());
    before + if span.is_empty() { "|" } else { &under }
}
