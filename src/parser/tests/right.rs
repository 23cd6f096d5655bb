//! Queries that are right: what they parse to, and how they are printed.

use crate::parser::{dump, generate, parse};

/// Parses and prints.
fn printed(src: &str) -> String {
    generate::check(src);
    match parse(src) {
        Ok(query) => query.to_string(),
        Err(why) => panic!("{src}: {why} {:?}", why.first()),
    }
}

/// The expression, fully parenthesized as the dump nests it, on one line and without spans.
fn shape(expr: &str) -> String {
    let text = dump(&parse(&format!("f({expr})")).unwrap_or_else(|why| panic!("{expr}: {why}")));
    let lines: Vec<(usize, &str)> = text
        .lines()
        .skip_while(|line| !line.starts_with("  item"))
        .skip(1)
        .map(|line| {
            (
                line.len() - line.trim_start().len(),
                line.trim_start().rsplit_once(" @").unwrap().0,
            )
        })
        .collect();
    let mut out = String::new();
    let mut open: Vec<usize> = Vec::new();
    for (n, (indent, line)) in lines.iter().enumerate() {
        while open.last().is_some_and(|last| last >= indent) {
            out.push(')');
            open.pop();
        }
        let parent = lines.get(n + 1).is_some_and(|(next, _)| next > indent);
        let word = line
            .strip_prefix("name ")
            .or(line.strip_prefix("int "))
            .unwrap_or(line);
        out.push_str(if n == 0 { "" } else { " " });
        out.push_str(if parent { "(" } else { "" });
        out.push_str(word);
        if parent {
            open.push(*indent);
        }
    }
    out.push_str(&")".repeat(open.len()));
    out
}

#[test]
fn canonical_texts() {
    for same in [
        "tcp_sendmsg",
        "f()",
        "nf_tables:nft_do_chain(pkt)",
        "tcp_grow_window.isra.0(sk)",
        "tcp_[rs]*(sk)",
        "*",
        "tp:sched_switch(prev->comm, next->pid, next->mm->owner->pid > 1)",
        "tp:sched:sched_switch",
        "uprobe:/usr/lib/x86_64-linux-gnu/libc.so.6:malloc($arg1)",
        "uprobe:./a-b+c@d:0x401000",
        "uprobe:\"./a b:c\":main(arg0 == \"x\")",
        "uprobe:./a:\"demo::Widget::put(int)\"(arg1)",
        "usdt:\"./a b:c\":p:n",
        "usdt:/usr/bin/python3.11:python:function__entry($arg*)",
        "ip_rcv(skb->len > 0xff, skb)",
        "f(size=skb->len:x, return:errno) if skb->len > 1 && comm == \"sshd\"",
        "f if if == 1",
        "f(if) if x",
        "f(100ull, 0x10u, 1l, 0b101, 017, 0)",
        "f((u32)x, (struct tcp_sock *)sk, (enum e)x, (union u *)p, (long unsigned int)x, (foo_t **)p)",
        "f((size_t)(x + 1), (pid_t)-1, (u32)*p, (u32)&x, (foo_t)x, (foo_t)(-x), (foo_t)(if))",
        "f(container_of(p, struct x, m), offsetof(struct sk_buff, a.b[3]), container_of(p, foo *, m))",
        "f(sizeof(struct sk_buff), sizeof(u32), sizeof(skb->len) + 1, sizeof(x), (sizeof(x))->y)",
        "f(- -x, + +x, & &x, -(-x + 1), !!x, **p, -+x, a - -b, a & &b)",
        "f(a ? b : c ? d : e, (a ? b : c) ? d : e, a ? b ? c : d : e, a ? b : c:x)",
        "f(x= ~y, x=*p, x=&y, x=!y, x=-1, x=y =~ \"eth*\")",
        "f('a', '\\'', '\"', '\\n', '\\x00', '\\xff', \"\\\"'\\\\\\x1b\u{e9}\")",
        "f((1).x, 1->x, \"a\"[0], a.b->c[d].e, (*a)[1], (-a).b, ((struct s *)a)->b)",
        "f(by(comm, pid), count(), lhist(x, 0, 100, 10))",
        "f(count(), by(proto=sk->sk_protocol, sk->saddr:ip, x=a ? b : c:x, by(y), z= ~y))",
        "f($retval, $comm, $stack0, $arg1 * 2)",
    ] {
        assert_eq!(printed(same), same);
    }
}

#[test]
fn other_spellings() {
    for (src, canonical) in [
        (" f ( a , b ) if ( c ) ", "f(a, b) if c"),
        ("f\n(\ta\r\n)\n", "f(a)"),
        ("f(a)if b", "f(a) if b"),
        ("f((((a))))", "f(a)"),
        (
            "f((a*b)+c, a*(b+c), (a+b)+c, a+(b+c))",
            "f(a * b + c, a * (b + c), a + b + c, a + (b + c))",
        ),
        (
            "f(100ULL, 0X1FuL, 1Lu, 1LLu, 0B11, 1lL)",
            "f(100ull, 0x1ful, 1ul, 1ull, 0b11, 1ll)",
        ),
        ("f(00, 0777)", "f(00, 0777)"),
        (
            "f((unsigned)x, (int unsigned long)x, (long)x, (long long)x)",
            "f((unsigned int)x, (long unsigned int)x, (long int)x, (long long int)x)",
        ),
        (
            "f((signed)x, (signed int)x, (short)x, (unsigned short)x, (char signed)x, (long int unsigned long)x)",
            "f((int)x, (int)x, (short int)x, (short unsigned int)x, (signed char)x, (long long unsigned int)x)",
        ),
        (
            "f((const char *)p, (char const * const *)p, (volatile u32)x, (const struct s volatile*)p)",
            "f((char *)p, (char **)p, (u32)x, (struct s *)p)",
        ),
        (
            "f((const foo_t)-x, sizeof(const foo_t), g(const foo_t))",
            "f((foo_t)(-x), sizeof(foo_t), g(foo_t))",
        ),
        (
            "f((a)-b, (a)*b, (a)&b, (a)+b, (a) == b)",
            "f(a - b, a * b, a & b, a + b, a == b)",
        ),
        (
            "f((u32)-b, (u32)*b, (u32)&b, (u32)+b)",
            "f((u32)-b, (u32)*b, (u32)&b, (u32)+b)",
        ),
        (
            "f((a)b, (a)1, (a)'c', (a)(b), (a)~b, (a)!b, (a)$b, (a)!~b)",
            "f((a)b, (a)1, (a)'c', (a)b, (a)~b, (a)!b, (a)$b, (a)!~b)",
        ),
        (
            "f(sizeof x, sizeof u32, sizeof -x, sizeof (a)->b)",
            "f(sizeof(x), sizeof(u32), sizeof(-x), sizeof(a->b))",
        ),
        ("f(a?b:c:x, l=a?b:c)", "f(a ? b : c:x, l=a ? b : c)"),
        // A label before what begins with `~`, unless a pattern follows or the two are parted.
        (
            "f(x=~y, x=~0UL, x=~(y), x=~$pid)",
            "f(x= ~y, x= ~0ul, x= ~y, x= ~$pid)",
        ),
        (
            "f(x=~\"y\", x =~ y, x=~ y, p->x=~y)",
            "f(x =~ \"y\", x =~ y, x =~ y, p->x =~ y)",
        ),
        (
            "f(a<-1, a- -1, a&&!b, a|~b)",
            "f(a < -1, a - -1, a && !b, a | ~b)",
        ),
        (
            "f('\\101', '\\0', '\\e', \"\\x414\", \"\\a\\b\\?\", '\\377')",
            "f('A', '\\x00', '\\x1b', \"A4\", \"\\x07\\x08?\", '\\xff')",
        ),
        ("f(len = 3)", "f(len=3)"),
        ("f(entry(a)->b)", "f(entry(a)->b)"),
    ] {
        assert_eq!(printed(src), canonical, "{src}");
    }
}

#[test]
fn precedence_is_that_of_c() {
    for (expr, nested) in [
        ("a * b + c", "(binary + (binary * a b) c)"),
        ("a + b * c", "(binary + a (binary * b c))"),
        ("a - b - c", "(binary - (binary - a b) c)"),
        ("a << b + c", "(binary << a (binary + b c))"),
        ("a < b << c", "(binary < a (binary << b c))"),
        ("a == b < c", "(binary == a (binary < b c))"),
        ("a & b == c", "(binary & a (binary == b c))"),
        ("a ^ b & c", "(binary ^ a (binary & b c))"),
        ("a | b ^ c", "(binary | a (binary ^ b c))"),
        ("a && b | c", "(binary && a (binary | b c))"),
        ("a || b && c", "(binary || a (binary && b c))"),
        ("a && b || c", "(binary || (binary && a b) c)"),
        ("a =~ b == c", "(binary == (binary =~ a b) c)"),
        ("a ? b : c ? d : e", "(conditional a b (conditional c d e))"),
        ("a || b ? c : d", "(conditional (binary || a b) c d)"),
        ("a % b / c >> d", "(binary >> (binary / (binary % a b) c) d)"),
        ("-a * !b", "(binary * (unary - a) (unary ! b))"),
        ("*a->b", "(unary * (member ->b a))"),
        ("&a[1].b", "(unary & (member .b (index a 1)))"),
        ("(u32)a->b + 1", "(binary + (cast u32 (member ->b a)) 1)"),
        ("sizeof a + 1", "(binary + (call sizeof a) 1)"),
        ("sizeof(u32) * 2", "(binary * sizeof u32 2)"),
        ("- sizeof x->y", "(unary - (call sizeof (member ->y x)))"),
    ] {
        assert_eq!(shape(expr), nested, "{expr}");
    }
}

#[test]
fn literals() {
    for (expr, nested) in [
        ("0xdeadbeef", "0xdeadbeef"),
        ("18446744073709551615", "18446744073709551615"),
        ("0x4444444412345678", "0x4444444412345678"),
        ("100ULL", "100ull"),
        ("'c'", "char 'c'"),
        ("\"eth*\"", "string \"eth*\""),
        ("$arg*", "builtin arg*"),
    ] {
        assert_eq!(shape(expr), nested, "{expr}");
    }
}

#[test]
fn dump_is_stable() {
    let text = dump(&parse("m:f(l=(a + b)->c:x, str(p, struct s *)) if !'c'").unwrap());
    let expected = "\
query @0..47
  function @0..3
    module m @0..1
    name f @2..3
  item @4..18
    label l @4..5
    member ->c @6..16
      binary + @7..12
        name a @7..8
        name b @11..12
    format x @17..18
  item @20..38
    call str @20..38
      name p @24..25
      type struct s * @27..37
  if @43..47
    unary ! @43..47
      char 'c' @44..47
";
    assert_eq!(text, expected, "\n{text}");
    assert_eq!(
        dump(&parse("f").unwrap()),
        "query @0..1\n  function all items @0..1\n    name f @0..1\n"
    );
    assert_eq!(
        dump(&parse("f()").unwrap()),
        "query @0..3\n  function no items @0..1\n    name f @0..1\n"
    );
}
