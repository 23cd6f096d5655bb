//! The tokens of the part after the target. In: query text and where to begin; out: tokens with their spans, the last
//! of them `End`. Text that is no token becomes a `Bad` token that carries its diagnostic, so this never fails and the
//! parser tells it only if it gets there.

use nom::Parser;
use nom::branch::alt;
use nom::bytes::complete::{tag, take_while, take_while1};
use nom::character::complete::{anychar, char, digit1, satisfy};
use nom::combinator::{map, opt, recognize, value};
use nom::sequence::{pair, preceded};

use super::ast::{BinaryOp, IntLit};
use super::literal;
use crate::diag::{Code, Diagnostic};
use crate::span::Span;

/// Splits `src` from the byte `from` on.
pub(super) fn tokenize(src: &str, from: usize) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = src[from..].trim_start();
    while !rest.is_empty() {
        let start = src.len() - rest.len();
        let (after, mut kind) = token(rest).expect("`stray` takes any character");
        let end = src.len() - after.len();
        if let Tok::Bad(diagnostic) = &mut kind {
            shift(diagnostic, start as u32);
        }
        let label_ends = tokens.as_slice().last_chunk().is_some_and(|last| {
            kind == Tok::Punct(Punct::Op(BinaryOp::Match)) && is_label(last, start) && !is_pattern(after)
        });
        if label_ends {
            tokens.push(Token {
                kind: Tok::Punct(Punct::Assign),
                span: Span::new(start, start + 1),
            });
            tokens.push(Token {
                kind: Tok::Punct(Punct::Tilde),
                span: Span::new(start + 1, end),
            });
        } else {
            tokens.push(Token {
                kind,
                span: Span::new(start, end),
            });
        }
        rest = after.trim_start();
    }
    let end = src.trim_end().len().max(from);
    tokens.push(Token {
        kind: Tok::End,
        span: Span::new(end, end),
    });
    tokens
}

/// Whether an item begins with these two tokens of which the second can be a label, as it ends just before `at`.
fn is_label([before, name]: &[Token; 2], at: usize) -> bool {
    let begins = matches!(before.kind, Tok::Punct(Punct::LParen | Punct::Comma));
    begins && name.kind == Tok::Name && name.span.end as usize == at
}

/// Whether what follows `=~` may be meant as a pattern: one in quotes, or what stands apart. `a=~0` gives a label.
fn is_pattern(after: &str) -> bool {
    !after.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '(' | '*' | '-' | '~'))
}

/// A token and where it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Tok,
    pub(super) span: Span,
}

/// The kinds of token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tok {
    /// Letters, digits and `_`; its text is its span's.
    Name,
    /// `$` and a name.
    Builtin,
    Int(IntLit),
    Char(u8),
    Str(Vec<u8>),
    Punct(Punct),
    /// What is no token, and why; its spans are already those of the query.
    Bad(Box<Diagnostic>),
    /// The end of the text.
    End,
}

/// Operators and brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Punct {
    LParen,
    RParen,
    LBracket,
    RBracket,
    Comma,
    Colon,
    Question,
    Dot,
    Arrow,
    /// A lone `=`.
    Assign,
    Bang,
    Tilde,
    At,
    /// `\`, before a constant.
    Backslash,
    /// An infix operator; five of them are prefix operators too.
    Op(BinaryOp),
}

/// The longest first, so that the first that fits is the right one. A text that C or another language has and this
/// one hasn't is in [`FOREIGN`].
const PUNCTUATION: &[(&str, Punct)] = &[
    ("->", Punct::Arrow),
    ("<<", Punct::Op(BinaryOp::Shl)),
    (">>", Punct::Op(BinaryOp::Shr)),
    ("<=", Punct::Op(BinaryOp::Le)),
    (">=", Punct::Op(BinaryOp::Ge)),
    ("==", Punct::Op(BinaryOp::Eq)),
    ("!=", Punct::Op(BinaryOp::Ne)),
    ("=~", Punct::Op(BinaryOp::Match)),
    ("&&", Punct::Op(BinaryOp::LogAnd)),
    ("||", Punct::Op(BinaryOp::LogOr)),
    ("(", Punct::LParen),
    (")", Punct::RParen),
    ("[", Punct::LBracket),
    ("]", Punct::RBracket),
    (",", Punct::Comma),
    (":", Punct::Colon),
    ("?", Punct::Question),
    (".", Punct::Dot),
    ("=", Punct::Assign),
    ("!", Punct::Bang),
    ("~", Punct::Tilde),
    ("@", Punct::At),
    ("\\", Punct::Backslash),
    ("*", Punct::Op(BinaryOp::Mul)),
    ("/", Punct::Op(BinaryOp::Div)),
    ("%", Punct::Op(BinaryOp::Rem)),
    ("+", Punct::Op(BinaryOp::Add)),
    ("-", Punct::Op(BinaryOp::Sub)),
    ("<", Punct::Op(BinaryOp::Lt)),
    (">", Punct::Op(BinaryOp::Gt)),
    ("&", Punct::Op(BinaryOp::And)),
    ("^", Punct::Op(BinaryOp::Xor)),
    ("|", Punct::Op(BinaryOp::Or)),
];

/// Operators of other languages, the longest first, each with what to write here.
const FOREIGN: &[(&str, &str)] = &[
    ("<<=", ASSIGNS),
    (">>=", ASSIGNS),
    ("===", "write `==`"),
    ("!==", "write `!=`"),
    ("<=>", "write one of `<`, `==` and `>`"),
    (
        "++",
        "nothing can be changed by a query; for a sum of signed values write `+ +`",
    ),
    (
        "--",
        "nothing can be changed by a query; to subtract a negative value write `- -`",
    ),
    ("+=", ASSIGNS),
    ("-=", ASSIGNS),
    ("*=", ASSIGNS),
    ("/=", ASSIGNS),
    ("%=", ASSIGNS),
    ("&=", ASSIGNS),
    ("|=", ASSIGNS),
    ("^=", ASSIGNS),
    ("~=", "write `=~` to match a glob, or `!=` for \"not equal\""),
    ("=>", "write `>=` for \"at least\", or `->` for a member"),
    ("=<", "write `<=`"),
    ("<>", "write `!=`"),
    ("^^", "there is no logical exclusive or; write `!a != !b`"),
];

const ASSIGNS: &str = "nothing can be changed by a query; to compare, write `==`";

/// Characters that editors and keyboards put in place of ASCII ones.
const LOOKALIKES: &[(char, &str)] = &[
    ('\u{201c}', "\""),
    ('\u{201d}', "\""),
    ('\u{201e}', "\""),
    ('\u{ab}', "\""),
    ('\u{bb}', "\""),
    ('\u{2018}', "'"),
    ('\u{2019}', "'"),
    ('\u{201a}', "'"),
    ('\u{b4}', "'"),
    ('\u{2010}', "-"),
    ('\u{2011}', "-"),
    ('\u{2012}', "-"),
    ('\u{2013}', "-"),
    ('\u{2014}', "-"),
    ('\u{2212}', "-"),
    ('\u{d7}', "*"),
    ('\u{f7}', "/"),
    ('\u{2192}', "->"),
    ('\u{2260}', "!="),
    ('\u{2264}', "<="),
    ('\u{2265}', ">="),
    ('\u{ac}', "!"),
    ('\u{2227}', "&&"),
    ('\u{2228}', "||"),
    ('\u{ff08}', "("),
    ('\u{ff09}', ")"),
    ('\u{ff0c}', ","),
    ('\u{ff1a}', ":"),
    ('\u{ff1d}', "="),
    ('\u{200b}', ""),
    ('\u{feff}', ""),
];

type Lexed<'a> = nom::IResult<&'a str, Tok>;

fn token(i: &str) -> Lexed<'_> {
    alt((
        name,
        builtin,
        number,
        string,
        character,
        foreign,
        punctuation,
        stray,
    ))
    .parse(i)
}

/// The text of a name at the beginning of `i`.
fn word(i: &str) -> nom::IResult<&str, &str> {
    recognize(pair(
        satisfy(|c| c.is_ascii_alphabetic() || c == '_'),
        take_while(|c: char| c.is_ascii_alphanumeric() || c == '_'),
    ))
    .parse(i)
}

fn name(i: &str) -> Lexed<'_> {
    value(Tok::Name, word).parse(i)
}

/// `$name`, or `$arg*`, the only one with a star.
fn builtin(i: &str) -> Lexed<'_> {
    let (rest, found) = preceded(char('$'), opt(alt((tag("arg*"), word)))).parse(i)?;
    let bare = || {
        let message = "`$` without a name";
        bad(
            Diagnostic::error(Code::MissingBuiltinName, Span::new(0, 1), message)
                .label("expected the name of a built-in after this")
                .help("for example `$retval`, `$comm` or `$arg1`"),
        )
    };
    Ok((rest, found.map_or_else(bare, |_| Tok::Builtin)))
}

/// What C's preprocessor calls a number: letters, dots and exponents are taken with the digits, so that `08` or
/// `12abc` or `1.5e-3` is one mistake and not several.
fn number(i: &str) -> Lexed<'_> {
    let (mut rest, _) = digit1(i)?;
    let hex = i.starts_with("0x") || i.starts_with("0X");
    loop {
        let tail: nom::IResult<&str, &str> = alt((
            recognize((
                satisfy(|c| !hex && matches!(c, 'e' | 'E')),
                satisfy(|c| matches!(c, '+' | '-')),
                digit1,
            )),
            take_while1(|c: char| c.is_ascii_digit() || c == '_' || c == '.'),
            recognize(satisfy(|c| c.is_ascii_alphabetic())),
        ))
        .parse(rest);
        match tail {
            Ok((after, _)) => rest = after,
            Err(_) => break,
        }
    }
    let text = &i[..i.len() - rest.len()];
    Ok((rest, literal::integer(text).map_or_else(Tok::Bad, Tok::Int)))
}

fn string(i: &str) -> Lexed<'_> {
    let (rest, _) = char('"').parse(i)?;
    let (rest, bytes) = literal::quoted(i, rest, '"');
    Ok((rest, bytes.map_or_else(Tok::Bad, Tok::Str)))
}

fn character(i: &str) -> Lexed<'_> {
    let (rest, _) = char('\'').parse(i)?;
    let (rest, bytes) = literal::quoted(i, rest, '\'');
    let text = &i[..i.len() - rest.len()];
    let one = bytes.and_then(|bytes| literal::only_byte(text, &bytes));
    Ok((rest, one.map_or_else(Tok::Bad, Tok::Char)))
}

fn punctuation(i: &str) -> Lexed<'_> {
    match PUNCTUATION.iter().find(|(text, _)| i.starts_with(text)) {
        Some((text, punct)) => value(Tok::Punct(*punct), tag(*text)).parse(i),
        None => none(i),
    }
}

/// An operator that this language hasn't. `**`, `=*` and the like are not among them: they are two tokens, because
/// `**p` and `label=*p` are right.
fn foreign(i: &str) -> Lexed<'_> {
    let Some((text, help)) = FOREIGN.iter().find(|(text, _)| i.starts_with(text)) else {
        return none(i);
    };
    map(tag(*text), |text: &str| {
        let message = format!("`{text}` is not an operator of the query language");
        bad(
            Diagnostic::error(Code::NotAnOperator, Span::new(0, text.len()), message)
                .label("not an operator here")
                .help(*help),
        )
    })
    .parse(i)
}

/// Any other character.
fn stray(i: &str) -> Lexed<'_> {
    map(anychar, |c| {
        let span = Span::new(0, c.len_utf8());
        let lookalike = LOOKALIKES.iter().find(|(like, _)| *like == c);
        bad(match lookalike {
            Some((_, "")) => {
                let message = format!("invisible character U+{:04X}", c as u32);
                Diagnostic::error(Code::Lookalike, span, message)
                    .label("here")
                    .help("delete it")
            }
            None if c == '`' => Diagnostic::error(Code::Lookalike, span, "a backtick quotes nothing here")
                .label("a backtick")
                .help("write a text in double quotes, a character in single ones"),
            Some((_, right)) => {
                let message = format!("`{c}` (U+{:04X}) is not `{right}`", c as u32);
                Diagnostic::error(Code::Lookalike, span, message)
                    .label("only looks like it")
                    .help(format!("write `{right}`"))
            }
            None if c == ';' => Diagnostic::error(Code::UnknownCharacter, span, "a query has no `;`")
                .label("not expected")
                .help("separate items with `,`; write each query as an argument of its own"),
            None => {
                let message = format!("unknown character `{c}`");
                Diagnostic::error(Code::UnknownCharacter, span, message).label("means nothing in a query")
            }
        })
    })
    .parse(i)
}

fn bad(diagnostic: Diagnostic) -> Tok {
    Tok::Bad(Box::new(diagnostic))
}

fn none(i: &str) -> Lexed<'_> {
    Err(nom::Err::Error(nom::error::Error::new(
        i,
        nom::error::ErrorKind::Alt,
    )))
}

/// Turns spans within the token into spans of the query.
fn shift(diagnostic: &mut Diagnostic, by: u32) {
    let spans = diagnostic.secondary.iter_mut().map(|(span, _)| span);
    for span in spans.chain([&mut diagnostic.span]) {
        span.start += by;
        span.end += by;
    }
}
