//! Trees and texts for tests and fuzzing. In: a seed or a text; out: a tree that the parser could have made, a text
//! that it may or may not take, or a panic when it breaks one of its laws. The same seed always gives the same. Never
//! part of a build that users run.

use super::ast::{
    Arg, BinaryOp, Expr, ExprKind, Ident, IntLit, Item, Query, Radix, Target, TargetKind, TypeBase, TypeName,
    UnaryOp,
};
use super::{parse, types};
use crate::diag::render;
use crate::span::{Span, Spanned};

/// A tree that the parser could have made, all its spans empty.
pub fn query(seed: u64) -> Query {
    Generator { random: Random(seed) }.query()
}

/// The text with one to four small changes at random places: bytes dropped, doubled, swapped or put in.
pub fn mutated(src: &str, seed: u64) -> String {
    let mut random = Random(seed);
    let mut bytes = src.as_bytes().to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + 1 + random.below(4)).min(bytes.len());
        match random.below(5) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            2 if at < bytes.len() => {
                let other = random.below(bytes.len());
                bytes.swap(at, other);
            }
            3 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => drop(bytes.splice(at..at, random.pick(SCRAPS).bytes())),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Tokens, words and rubbish in any order, after `f(`.
pub fn soup(seed: u64) -> String {
    let mut random = Random(seed);
    let mut text = String::from("f(");
    for _ in 0..random.below(16) {
        text.push_str(random.pick(SCRAPS));
        if random.chance(3) {
            text.push(' ');
        }
    }
    text
}

/// Parses any text and panics if a law of the parser doesn't hold: what it takes, it prints, and takes again as the
/// same; what it refuses, it points at, within the text and between characters; and that can be drawn.
pub fn check(src: &str) {
    match parse(src) {
        Ok(query) => {
            assert_eq!(
                super::dump(&query),
                super::dump(&parse(src).expect("it was taken before"))
            );
            let printed = query.to_string();
            let again =
                parse(&printed).unwrap_or_else(|why| panic!("{src:?} is printed as {printed:?}: {why}"));
            assert_eq!(again.to_string(), printed, "printed from {src:?}");
            assert_eq!(
                again.strip_spans(),
                query.strip_spans(),
                "{src:?} is printed as {printed:?}"
            );
        }
        Err(diagnostics) => {
            for diagnostic in &diagnostics {
                let spans = diagnostic.secondary.iter().map(|(span, _)| span);
                for span in spans.chain([&diagnostic.span]) {
                    assert!(
                        src.get(span.range()).is_some(),
                        "{span:?} isn't in {src:?}: {diagnostic}"
                    );
                }
                assert!(!diagnostic.label.is_empty(), "no label for {src:?}: {diagnostic}");
                render(src, diagnostic, false);
            }
        }
    }
}

const SCRAPS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    ",",
    ":",
    "?",
    "=",
    "!",
    "~",
    "->",
    ".",
    "-",
    "*",
    "&",
    "\"",
    "'",
    "\\",
    "0x",
    "08",
    "$",
    " if ",
    "struct ",
    "sizeof",
    " ",
    "\n",
    "\0",
    "é",
    "\u{201c}",
    "1.5",
    "(u32)",
    "9",
    "a",
    ";",
    "and ",
    "\u{1b}",
    "const ",
    "== ",
    "b",
    "(a *)",
    "(a)",
    "unsigned ",
    "if(",
    "x(",
    "'c'",
    "$arg*",
    "<",
    "+",
    "|",
    "union ",
    "void",
];

/// SplitMix64: small, and good enough for this.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const NAMES: &[&str] = &[
    "skb",
    "sk",
    "len",
    "return",
    "if",
    "and",
    "not",
    "is",
    "comm",
    "pid",
    "NULL",
    "x",
    "_",
    "u32x",
    "EAGAIN",
    "fn",
    "size",
    "count",
    "a1",
    "TCP_ESTABLISHED",
];

const TYPES: &[&str] = &[
    "u32", "s8", "size_t", "pid_t", "int", "void", "char", "_Bool", "foo_t", "bar", "bool",
];

const WORDS: &[&str] = &[
    "signed char",
    "unsigned char",
    "short int",
    "short unsigned int",
    "unsigned int",
    "long int",
    "long unsigned int",
    "long long int",
    "long long unsigned int",
];

const UNARY: &[UnaryOp] = &[
    UnaryOp::Deref,
    UnaryOp::Addr,
    UnaryOp::Not,
    UnaryOp::BitNot,
    UnaryOp::Neg,
    UnaryOp::Plus,
];

const BINARY: &[BinaryOp] = &[
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Rem,
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Shl,
    BinaryOp::Shr,
    BinaryOp::Lt,
    BinaryOp::Le,
    BinaryOp::Gt,
    BinaryOp::Ge,
    BinaryOp::Eq,
    BinaryOp::Ne,
    BinaryOp::Match,
    BinaryOp::And,
    BinaryOp::Xor,
    BinaryOp::Or,
    BinaryOp::LogAnd,
    BinaryOp::LogOr,
];

struct Generator {
    random: Random,
}

impl Generator {
    fn query(&mut self) -> Query {
        let target = Target {
            kind: self.target(),
            span: Span::default(),
        };
        let items =
            (!self.random.chance(6)).then(|| (0..self.random.below(5)).map(|_| self.item()).collect());
        let cond = self.random.chance(3).then(|| self.expr(6));
        Query {
            target,
            items,
            cond,
            span: Span::default(),
        }
    }

    fn target(&mut self) -> TargetKind {
        let functions = [
            "tcp_sendmsg",
            "tcp_*",
            "f.isra.0",
            "vfs_[rw]*",
            "__x64_sys_?",
            "tp",
            "a.constprop.0.cold",
        ];
        let binaries = [
            "/usr/bin/bash",
            "libc",
            "./a-b.out+c@1",
            "./a b:c(d)",
            "/lib/x86_64-linux-gnu/libstdc++.so.6",
        ];
        match self.random.below(8) {
            0 => TargetKind::Function {
                module: Some(ident("snd-hda")),
                name: self.one_of(&functions),
            },
            1 => TargetKind::Tracepoint {
                group: None,
                event: self.one_of(&["sched_switch", "sys_*"]),
            },
            2 => TargetKind::Tracepoint {
                group: Some(ident("9p")),
                event: self.one_of(&["x", "y[0-9]"]),
            },
            3 => {
                let symbol = self.one_of(&[
                    "main",
                    "0x401000",
                    "_ZN4core3fmtE",
                    "memcpy@GLIBC_2.14",
                    "a::b(int, c)",
                ]);
                TargetKind::Uprobe {
                    binary: self.one_of(&binaries),
                    symbol,
                }
            }
            4 => {
                let (provider, name) = (
                    self.one_of(&["libc", "py-thon"]),
                    self.one_of(&["setjmp", "gc__start"]),
                );
                TargetKind::Usdt {
                    binary: self.one_of(&binaries),
                    provider,
                    name,
                }
            }
            _ => TargetKind::Function {
                module: None,
                name: self.one_of(&functions),
            },
        }
    }

    fn item(&mut self) -> Item {
        let label = self
            .random
            .chance(4)
            .then(|| self.one_of(&["size", "x1", "if", "and", "_"]));
        let format = self
            .random
            .chance(4)
            .then(|| self.one_of(&["x", "s", "ip", "u8", "if", "int", "u8[4]"]));
        let height = self.random.below(7);
        Item {
            label,
            expr: self.expr(height),
            format,
            span: Span::default(),
        }
    }

    fn expr(&mut self, height: usize) -> Expr {
        let kind = if height == 0 {
            self.leaf()
        } else {
            self.node(height - 1)
        };
        Expr {
            kind,
            span: Span::default(),
        }
    }

    fn leaf(&mut self) -> ExprKind {
        match self.random.below(8) {
            0 => ExprKind::Char(self.random.next() as u8),
            1 => ExprKind::Str(self.string()),
            2 => ExprKind::Builtin(
                self.random
                    .pick(&["retval", "arg1", "arg*", "comm", "stack0"])
                    .to_owned(),
            ),
            3 | 4 => ExprKind::Int(self.int()),
            _ => ExprKind::Name(self.random.pick(NAMES).to_owned()),
        }
    }

    fn int(&mut self) -> IntLit {
        let radix = self
            .random
            .pick(&[Radix::Binary, Radix::Octal, Radix::Decimal, Radix::Hex]);
        let value = self.random.next() >> self.random.below(64);
        IntLit {
            value,
            radix,
            unsigned: self.random.chance(2),
            longs: self.random.below(3) as u8,
        }
    }

    /// Text, quotes, control characters and bytes that are no text.
    fn string(&mut self) -> Vec<u8> {
        let scraps: &[&[u8]] = &[
            b"eth*",
            b"\"",
            b"'",
            b"\\",
            b"\n",
            b"\0",
            b"7f",
            b"\x1b",
            b"\xff",
            "é".as_bytes(),
            b"??",
            b" ",
        ];
        (0..self.random.below(5))
            .flat_map(|_| self.random.pick(scraps).to_vec())
            .collect()
    }

    fn node(&mut self, height: usize) -> ExprKind {
        match self.random.below(12) {
            0 | 1 => {
                let (base, field) = (self.boxed(height), self.one_of(NAMES));
                ExprKind::Member {
                    base,
                    arrow: self.random.chance(2),
                    field,
                }
            }
            2 => ExprKind::Index {
                base: self.boxed(height),
                index: self.boxed(height),
            },
            3 | 4 => ExprKind::Unary {
                op: self.spanned(UNARY),
                operand: self.boxed(height),
            },
            5..=7 => ExprKind::Binary {
                op: self.spanned(BINARY),
                lhs: self.boxed(height),
                rhs: self.boxed(height),
            },
            8 => {
                let (cond, then, otherwise) = (self.boxed(height), self.boxed(height), self.boxed(height));
                ExprKind::Cond {
                    cond,
                    then,
                    otherwise,
                }
            }
            9 => ExprKind::Cast {
                ty: self.type_name(),
                operand: self.boxed(height),
            },
            10 => self.call(height),
            _ => self.sizeof(height),
        }
    }

    fn call(&mut self, height: usize) -> ExprKind {
        if self.random.chance(8) {
            return self.keys(height);
        }
        let args = (0..self.random.below(4)).map(|_| self.arg(height)).collect();
        ExprKind::Call {
            func: self.one_of(NAMES),
            args,
        }
    }

    /// `by(…)`, whose arguments are like items.
    fn keys(&mut self, height: usize) -> ExprKind {
        let args = (0..1 + self.random.below(3))
            .map(|_| {
                let item = Item {
                    expr: self.expr(height),
                    ..self.item()
                };
                match (&item.label, &item.format) {
                    (None, None) => Arg::Expr(item.expr),
                    (Some(_), _) | (None, Some(_)) => Arg::Key(Box::new(item)),
                }
            })
            .collect();
        ExprKind::Call {
            func: ident(super::expr::KEYS),
            args,
        }
    }

    fn arg(&mut self, height: usize) -> Arg {
        if self.random.chance(4) {
            let ty = self.type_name();
            if !is_lone_name(&ty, types::is_type_word) {
                return Arg::Type(ty);
            }
        }
        Arg::Expr(self.expr(height))
    }

    fn sizeof(&mut self, height: usize) -> ExprKind {
        let ty = self.type_name();
        if self.random.chance(2) && !is_lone_name(&ty, types::is_well_known) {
            return ExprKind::SizeofType(ty);
        }
        ExprKind::Call {
            func: ident("sizeof"),
            args: vec![Arg::Expr(self.expr(height))],
        }
    }

    fn type_name(&mut self) -> TypeName {
        let base = match self.random.below(6) {
            0 => TypeBase::Struct(ident("sk_buff")),
            1 => TypeBase::Union(ident("if")),
            2 => TypeBase::Enum(ident("tcp_state")),
            3 => TypeBase::Words(Spanned {
                node: self.random.pick(WORDS).to_owned(),
                span: Span::default(),
            }),
            _ => TypeBase::Named(self.one_of(TYPES)),
        };
        let pointers = if self.random.chance(2) {
            0
        } else {
            self.random.below(3) as u8
        };
        TypeName {
            base,
            pointers,
            span: Span::default(),
        }
    }

    fn boxed(&mut self, height: usize) -> Box<Expr> {
        // One side is often small, so that trees are deep without being large.
        let height = if self.random.chance(2) { height } else { height / 2 };
        Box::new(self.expr(height))
    }

    fn spanned<T: Copy>(&mut self, all: &[T]) -> Spanned<T> {
        Spanned {
            node: self.random.pick(all),
            span: Span::default(),
        }
    }

    fn one_of(&mut self, all: &[&str]) -> Ident {
        ident(self.random.pick(all))
    }
}

fn ident(name: &str) -> Ident {
    Ident {
        node: name.to_owned(),
        span: Span::default(),
    }
}

/// Whether it is a name alone that isn't one of `known`: the parser takes such a type for a value.
fn is_lone_name(ty: &TypeName, known: impl Fn(&str) -> bool) -> bool {
    match &ty.base {
        TypeBase::Named(name) => ty.pointers == 0 && !known(&name.node),
        TypeBase::Words(_) | TypeBase::Struct(_) | TypeBase::Union(_) | TypeBase::Enum(_) => false,
    }
}
