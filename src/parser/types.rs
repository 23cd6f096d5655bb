//! Type names: `struct sk_buff *`, `u32`, `unsigned long`. In: tokens; out: a `TypeName`, with C's integer keywords in
//! the order that BTF has them. Also decides whether a parenthesis holds a type. Never knows which types exist.
//!
//! C can't tell `(name) - x` from a cast without knowing what `name` is, and neither can this parser, so:
//! - `(struct …)`, `(int)` and everything else with a keyword of C, and `(name *)` are casts;
//! - `(name)` before a name, a literal, `$`, `(`, `~` or `!` is a cast, since nothing else could be meant;
//! - `(name)` before `-`, `+`, `*` or `&` is a value in parentheses and the operator is infix, unless `name` is one of
//!   the integer types that everybody knows (`u32`, `size_t`, `pid_t`, …; see [`is_well_known`]).

use nom::Parser;
use nom::combinator::opt;

use super::ast::{BinaryOp, Ident, TypeBase, TypeName};
use super::cursor::{Parsed, Tokens, fail, punct};
use super::errors::{self, Inside};
use super::token::{Punct, Tok};
use crate::diag::{Code, Diagnostic};
use crate::span::{Span, Spanned};

/// What may begin here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ahead {
    /// Certainly a type.
    Type,
    /// A name and then the closing bracket or a comma.
    LoneName,
    /// Certainly a value, or a mistake.
    Value,
}

/// Looks ahead, as far as the first bracket or comma at most.
pub(super) fn ahead(i: Tokens<'_>) -> Ahead {
    if is_type_word(i.name()) {
        return Ahead::Type;
    }
    if i.name().is_empty() {
        return Ahead::Value;
    }
    let mut end = i.after();
    while end.is(STAR) || is_qualifier(end.name()) {
        end = end.after();
    }
    let lone = end.span() == i.after().span();
    match end.kind() {
        Tok::Punct(Punct::RParen | Punct::Comma) if lone => Ahead::LoneName,
        Tok::Punct(Punct::RParen | Punct::Comma) => Ahead::Type,
        // An array type, which is told as such.
        Tok::Punct(Punct::LBracket) if is_well_known(i.name()) => Ahead::Type,
        Tok::Name
        | Tok::Builtin
        | Tok::Int(_)
        | Tok::Char(_)
        | Tok::Str(_)
        | Tok::Punct(_)
        | Tok::Bad(_)
        | Tok::End => Ahead::Value,
    }
}

/// `(type)` where an operand may begin: `None`, and nothing taken, if it isn't that.
pub(super) fn cast(i: Tokens<'_>) -> Parsed<'_, Option<TypeName>> {
    let (inner, open) = punct(Punct::LParen).parse(i)?;
    let is_cast = match ahead(inner) {
        Ahead::Type => true,
        Ahead::LoneName => {
            let end = inner.after();
            let closes = end.is(Punct::RParen);
            closes && (is_well_known(inner.name()) || must_be_operand(end.after()))
        }
        Ahead::Value => false,
    };
    if is_cast {
        in_parentheses(inner, open).map(|(i, ty)| (i, Some(ty)))
    } else {
        Ok((i, None))
    }
}

/// `(type)` after `sizeof`. A lone name is a type only if everybody knows it.
pub(super) fn of_sizeof(i: Tokens<'_>) -> Parsed<'_, Option<TypeName>> {
    let (inner, open) = punct(Punct::LParen).parse(i)?;
    let is_type = match ahead(inner) {
        Ahead::Type => true,
        Ahead::LoneName => inner.after().is(Punct::RParen) && is_well_known(inner.name()),
        Ahead::Value => false,
    };
    if is_type {
        in_parentheses(inner, open).map(|(i, ty)| (i, Some(ty)))
    } else {
        Ok((i, None))
    }
}

/// A type. `const` and `volatile` may be anywhere in it and are dropped.
pub(super) fn type_name(i: Tokens<'_>) -> Parsed<'_, TypeName> {
    let start = i.span();
    let i = qualifiers(i);
    let (i, base) = match i.name() {
        "struct" => tagged(i, TypeBase::Struct)?,
        "union" => tagged(i, TypeBase::Union)?,
        "enum" => tagged(i, TypeBase::Enum)?,
        "" => return fail(errors::bad_type(i, "expected a type")),
        word if is_keyword(word) => keywords(i)?,
        _ => (i.after(), TypeBase::Named(ident(i))),
    };
    let mut i = qualifiers(i);
    let mut pointers = 0;
    while let (rest, Some(star)) = opt(punct(STAR)).parse(i)? {
        if pointers == MAX_POINTERS {
            let message = format!("a type with more than {MAX_POINTERS} `*`");
            return fail(Diagnostic::error(Code::BadType, star, message).label("one too many"));
        }
        pointers += 1;
        i = qualifiers(rest);
    }
    let span = start.to(i.before().span());
    Ok((i, TypeName { base, pointers, span }))
}

/// The integer types that everybody knows, whose names in parentheses are always casts. The printer uses it too, to
/// find out where an operand needs parentheses.
pub(super) fn is_well_known(name: &str) -> bool {
    is_keyword(name) || WELL_KNOWN.contains(&name)
}

/// Words with a meaning of their own, in C or in a query: names, but never labels, and not what a cast of an unknown
/// type is followed by, since `(a) and b` is a mistake better told as such.
pub(super) fn is_operator_word(name: &str) -> bool {
    name == "if" || errors::word_operator(name).is_some()
}

/// Words that begin a type.
pub(super) fn is_type_word(name: &str) -> bool {
    matches!(name, "struct" | "union" | "enum") || is_keyword(name) || is_qualifier(name)
}

const STAR: Punct = Punct::Op(BinaryOp::Mul);

const MAX_POINTERS: u8 = 8;

const WELL_KNOWN: &[&str] = &[
    "u8",
    "u16",
    "u32",
    "u64",
    "s8",
    "s16",
    "s32",
    "s64",
    "__u8",
    "__u16",
    "__u32",
    "__u64",
    "__s8",
    "__s16",
    "__s32",
    "__s64",
    "__le16",
    "__le32",
    "__le64",
    "__be16",
    "__be32",
    "__be64",
    "uint8_t",
    "uint16_t",
    "uint32_t",
    "uint64_t",
    "int8_t",
    "int16_t",
    "int32_t",
    "int64_t",
    "uintptr_t",
    "intptr_t",
    "ptrdiff_t",
    "size_t",
    "ssize_t",
    "bool",
    "uchar",
    "ushort",
    "uint",
    "ulong",
    "ullong",
    "pid_t",
    "uid_t",
    "gid_t",
    "loff_t",
    "off_t",
    "dev_t",
    "ino_t",
    "mode_t",
    "umode_t",
    "gfp_t",
    "fmode_t",
    "sector_t",
    "blkcnt_t",
    "pgoff_t",
    "phys_addr_t",
    "dma_addr_t",
    "resource_size_t",
    "ktime_t",
    "time64_t",
    "clock_t",
    "key_t",
    "nlink_t",
    "qid_t",
    "clockid_t",
    "timer_t",
    "vm_fault_t",
    "netdev_features_t",
    "blk_status_t",
    "cycles_t",
    "__sum16",
    "__wsum",
];

fn is_keyword(name: &str) -> bool {
    matches!(
        name,
        "char" | "short" | "int" | "long" | "signed" | "unsigned" | "_Bool" | "void" | "float" | "double"
    )
}

fn is_qualifier(name: &str) -> bool {
    matches!(name, "const" | "volatile")
}

/// Whether what is here can only be an operand: of the things that begin one, those that aren't infix operators too.
fn must_be_operand(i: Tokens<'_>) -> bool {
    match i.kind() {
        Tok::Name => !is_operator_word(i.text()),
        Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) => true,
        // `(name) ! = x` is a mistake, told later.
        Tok::Punct(Punct::Bang) => !i.after().is(Punct::Assign),
        Tok::Punct(punct) => matches!(punct, Punct::LParen | Punct::Tilde),
        Tok::Bad(_) | Tok::End => false,
    }
}

fn in_parentheses(i: Tokens<'_>, open: Span) -> Parsed<'_, TypeName> {
    let (i, ty) = type_name(i)?;
    let (i, _) = errors::close(Punct::RParen, Inside::Type(open)).parse(i)?;
    Ok((i, ty))
}

fn qualifiers(mut i: Tokens<'_>) -> Tokens<'_> {
    while is_qualifier(i.name()) {
        i = i.after();
    }
    i
}

fn ident(i: Tokens<'_>) -> Ident {
    Ident {
        node: i.text().to_owned(),
        span: i.span(),
    }
}

/// `struct NAME`.
fn tagged(i: Tokens<'_>, base: fn(Ident) -> TypeBase) -> Parsed<'_, TypeBase> {
    let name = i.after();
    if name.name().is_empty() || is_type_word(name.name()) {
        return fail(errors::bad_type(name, &format!("`{}` without a name", i.text())));
    }
    Ok((name.after(), base(ident(name))))
}

/// C's integer keywords, in any order.
fn keywords(mut i: Tokens<'_>) -> Parsed<'_, TypeBase> {
    let mut span = i.span();
    let mut words = Vec::new();
    while is_keyword(i.name()) || is_qualifier(i.name()) {
        if is_keyword(i.name()) {
            words.push(i.text());
            span = span.to(i.span());
        }
        i = i.after();
    }
    if let Some(word) = words.iter().find(|word| matches!(**word, "float" | "double")) {
        let message = format!("there is no `{word}` in the kernel");
        return fail(Diagnostic::error(Code::BadType, span, message).label("not an integer type"));
    }
    match canonical(&words) {
        Some(text) if text.contains(' ') => Ok((
            i,
            TypeBase::Words(Spanned {
                node: text.to_owned(),
                span,
            }),
        )),
        Some(text) => Ok((
            i,
            TypeBase::Named(Ident {
                node: text.to_owned(),
                span,
            }),
        )),
        None => {
            let message = format!("`{}` is not a type of C", words.join(" "));
            let diagnostic =
                Diagnostic::error(Code::BadType, span, message).label("these words don't go together");
            fail(diagnostic.help("for example `unsigned long` or `short`"))
        }
    }
}

/// The words in the order that pahole writes them in BTF.
fn canonical(words: &[&str]) -> Option<&'static str> {
    let count = |word| words.iter().filter(|other| **other == word).count();
    let sign = (count("signed"), count("unsigned"));
    let size = (count("char"), count("short"), count("long"));
    let alone = words.len() == 1;
    if count("int") > 1 || sign.0 + sign.1 > 1 {
        return None;
    }
    match (sign, size) {
        _ if count("void") > 0 => alone.then_some("void"),
        _ if count("_Bool") > 0 => alone.then_some("_Bool"),
        (_, (1, ..)) if count("int") > 0 => None,
        ((0, 0), (1, 0, 0)) => Some("char"),
        ((1, 0), (1, 0, 0)) => Some("signed char"),
        ((0, 1), (1, 0, 0)) => Some("unsigned char"),
        ((_, 0), (0, 1, 0)) => Some("short int"),
        ((_, 1), (0, 1, 0)) => Some("short unsigned int"),
        ((_, 0), (0, 0, 0)) => Some("int"),
        ((_, 1), (0, 0, 0)) => Some("unsigned int"),
        ((_, 0), (0, 0, 1)) => Some("long int"),
        ((_, 1), (0, 0, 1)) => Some("long unsigned int"),
        ((_, 0), (0, 0, 2)) => Some("long long int"),
        ((_, 1), (0, 0, 2)) => Some("long long unsigned int"),
        _ => None,
    }
}
