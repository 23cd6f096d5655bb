//! What follows the target: items and the condition. In: tokens; out: those, and a diagnostic for each item that is
//! wrong: after a mistake it goes on at the next comma. Never gives up on the first error, nor tells one twice.

use nom::Parser;
use nom::combinator::opt;

use super::MAX_ITEMS;
use super::ast::{BinaryOp, Expr, Ident, Item};
use super::cursor::{Parsed, Problem, Tokens, fail, punct};
use super::errors::{self, Inside};
use super::expr::expr;
use super::fetch;
use super::token::{Punct, Tok};
use super::types::is_type_word;
use crate::diag::{Code, Diagnostic};
use crate::span::Span;

/// How many mistakes are told of one query: whoever makes more will mend these first, and each is drawn over the whole text.
const MOST_TOLD: usize = 32;

/// `[(items)] [if expr]`, to the end of the text. Errors are pushed; what comes back is of use only without any.
pub(super) fn body(i: Tokens<'_>, told: &mut Vec<Diagnostic>) -> (Option<Vec<Item>>, Option<Expr>) {
    let (i, after, items) = match opt(punct(Punct::LParen)).parse(i) {
        Ok((rest, Some(open))) => match items(rest, open, told) {
            (Some(rest), items) => (rest, "the items", Some(items)),
            (None, items) => return (Some(items), None),
        },
        Ok((_, None)) | Err(_) => (i, "the target", None),
    };
    if i.name() == "if" {
        return match condition(i) {
            Ok((_, cond)) => (items, Some(cond)),
            Err(problem) => {
                tell(problem, i, told);
                (items, None)
            }
        };
    }
    if *i.kind() != Tok::End {
        told.push(errors::trailing(i, after));
    }
    (items, None)
}

/// Items up to the closing parenthesis, and the place after that, if there is one.
fn items<'a>(mut i: Tokens<'a>, open: Span, told: &mut Vec<Diagnostic>) -> (Option<Tokens<'a>>, Vec<Item>) {
    let mut items = Vec::new();
    if i.is(Punct::RParen) {
        return (Some(i.after()), items);
    }
    for count in 0.. {
        if count == MAX_ITEMS {
            let message = format!("a query has at most {MAX_ITEMS} items");
            told.push(Diagnostic::error(Code::TooManyItems, i.span(), message).label("one too many"));
            return (None, items);
        }
        let end = match item(i, open) {
            Ok((end, item)) => {
                items.push(item);
                Some(end)
            }
            Err(problem) => {
                tell(problem, i, told);
                end_of_item(i)
            }
        };
        if told.len() == MOST_TOLD {
            break;
        }
        match end {
            Some(end) if end.is(Punct::Comma) => i = end.after(),
            Some(end) => return (Some(end.after()), items),
            None => break,
        }
    }
    (None, items)
}

/// One item; the place that comes back is before a comma or the closing parenthesis.
fn item(i: Tokens<'_>, open: Span) -> Parsed<'_, Item> {
    if i.is(Punct::Comma) || i.is(Punct::RParen) {
        return fail(missing_item(i));
    }
    let start = i.span();
    let (i, label) = label(i)?;
    let (i, tree) = expr(i)?;
    let (i, format) = formatted(i)?;
    let (expr, format) = named(*tree.expr, format);
    if !i.is(Punct::Comma) && !i.is(Punct::RParen) {
        return fail(errors::unexpected(i, Inside::Items(open)));
    }
    let span = start.to(i.before().span());
    Ok((
        i,
        Item {
            label,
            expr,
            format,
            span,
        },
    ))
}

/// `LABEL=`. The words that begin types or have a meaning in C can't be labels, so that `return = 3` is told.
pub(super) fn label(i: Tokens<'_>) -> Parsed<'_, Option<Ident>> {
    let equals = i.after();
    if i.is(Punct::Assign) {
        let message = "a label is missing before `=`";
        let diagnostic =
            Diagnostic::error(Code::MissingLabel, i.span(), message).label("expected a name before this");
        return fail(diagnostic.help("write `label=value` to name a value, `value == 3` to compare"));
    }
    let reserved = is_type_word(i.name()) || matches!(i.name(), "return" | "sizeof");
    if i.name().is_empty() || !equals.is(Punct::Assign) || reserved {
        return Ok((i, None));
    }
    Ok((
        equals.after(),
        Some(Ident {
            node: i.text().to_owned(),
            span: i.span(),
        }),
    ))
}

/// `:FORMAT`, if it is there.
pub(super) fn formatted(i: Tokens<'_>) -> Parsed<'_, Option<Ident>> {
    let (i, colon) = opt(punct(Punct::Colon)).parse(i)?;
    match colon {
        Some(colon) => {
            let (i, format) = format(i, colon)?;
            Ok((i, Some(format)))
        }
        None => Ok((i, None)),
    }
}

/// The format's name after `:`.
fn format(i: Tokens<'_>, colon: Span) -> Parsed<'_, Ident> {
    match i.kind() {
        Tok::Name if is_bitfield(i) => bitfield_format(i),
        Tok::Name if i.after().is(Punct::LBracket) => array_format(i, i.text().to_owned(), i.after()),
        // The kernel writes these two with the sign that `printk` has for them.
        Tok::Punct(Punct::Op(BinaryOp::Rem)) if matches!(i.after().text(), DENTRY | FILE) => {
            let span = i.span().to(i.after().span());
            let node = format!("%{}", i.after().text());
            Ok((i.after().after(), Ident { node, span }))
        }
        Tok::Name => Ok((
            i.after(),
            Ident {
                node: i.text().to_owned(),
                span: i.span(),
            },
        )),
        Tok::Bad(diagnostic) => fail((**diagnostic).clone()),
        Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) | Tok::Punct(_) | Tok::End => fail(
            Diagnostic::error(Code::MissingFormat, i.span(), "a format is missing after `:`")
                .label(format!("expected a format's name, found {}", errors::describe(i)))
                .secondary(colon, "this begins a format")
                .help("for example `:x`, `:ip` or `:s`"),
        ),
    }
}

/// `%pd`, the name of a `struct dentry`, and `%pD`, that of a `struct file`.
const DENTRY: &str = "pd";
const FILE: &str = "pD";

/// What a format that names a struct shows of it: that is an expression, and a string.
pub(super) fn named(expr: Expr, format: Option<Ident>) -> (Expr, Option<Ident>) {
    match format {
        Some(Ident { node, span }) if node.starts_with('%') => {
            let shown = fetch::name_of(expr, node.ends_with(FILE));
            let node = "string".to_owned();
            (shown, Some(Ident { node, span }))
        }
        Some(_) | None => (expr, format),
    }
}

/// Whether the kernel's format for a part of a number begins here: `b4@2/32`.
fn is_bitfield(name: Tokens<'_>) -> bool {
    let digits = name.text().strip_prefix('b').unwrap_or("");
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && name.after().is(Punct::At)
}

/// `bWIDTH@OFFSET/CONTAINER`, in bits; or so many of them.
fn bitfield_format(name: Tokens<'_>) -> Parsed<'_, Ident> {
    let offset = name.after().after();
    let container = offset.after().after();
    let slash = offset.after().is(Punct::Op(BinaryOp::Div));
    let (Tok::Int(first), true, Tok::Int(bits)) = (offset.kind(), slash, container.kind()) else {
        let wrong = match (matches!(offset.kind(), Tok::Int(_)), slash) {
            (true, true) => container,
            (true, false) => offset.after(),
            (false, _) => offset,
        };
        return fail(
            Diagnostic::error(
                Code::MissingFormat,
                wrong.span(),
                "this format of a bitfield is not complete",
            )
            .label(format!("not expected: {}", errors::describe(wrong)))
            .secondary(name.span(), "so many bits")
            .help(
                "it is written `b<width>@<offset>/<container>`: `b4@2/32` is four bits from bit 2 on, of 32",
            ),
        );
    };
    let node = format!("{}@{}/{}", name.text(), first.value, bits.value);
    if container.after().is(Punct::LBracket) {
        return array_format(name, node, container.after());
    }
    let span = name.span().to(container.span());
    Ok((container.after(), Ident { node, span }))
}

/// A format of many: `u8[4]`. `each` is the format of one.
fn array_format<'a>(name: Tokens<'a>, each: String, open: Tokens<'a>) -> Parsed<'a, Ident> {
    let number = open.after();
    let Tok::Int(count) = number.kind() else {
        return fail(
            Diagnostic::error(
                Code::MissingFormat,
                number.span(),
                "how many there are is missing after `[`",
            )
            .label(format!("expected a number, found {}", errors::describe(number)))
            .secondary(name.span(), "the format of each")
            .help("for example `:u8[4]`"),
        );
    };
    let close = number.after();
    if !close.is(Punct::RBracket) {
        return fail(
            Diagnostic::error(Code::UnclosedBracket, close.span(), "`]` is missing")
                .label(format!("expected `]`, found {}", errors::describe(close)))
                .secondary(open.span(), "this bracket is open"),
        );
    }
    let ident = Ident {
        node: format!("{each}[{}]", count.value),
        span: name.span().to(close.span()),
    };
    Ok((close.after(), ident))
}

/// `if expr` to the end of the text.
fn condition(i: Tokens<'_>) -> Parsed<'_, Expr> {
    let word = i.span();
    if *i.after().kind() == Tok::End {
        return fail(
            Diagnostic::error(Code::MissingCondition, word, "`if` without a condition")
                .label("nothing follows")
                .help("write a condition, as in `if size > 100`"),
        );
    }
    let (i, tree) = expr(i.after())?;
    if *i.kind() != Tok::End {
        return fail(errors::unexpected(i, Inside::Condition(word)));
    }
    Ok((i, *tree.expr))
}

fn missing_item(i: Tokens<'_>) -> Diagnostic {
    // A comma too many at the end is pointed at itself; otherwise at the comma that has nothing before it.
    let comma = if i.is(Punct::RParen) { i.before() } else { i };
    let (message, label) = match i.is(Punct::RParen) {
        true => ("nothing follows the last `,`", "no item after this"),
        false => ("an item is missing before `,`", "no item before this"),
    };
    Diagnostic::error(Code::MissingItem, comma.span(), message)
        .label(label)
        .help("delete the `,`")
}

/// The comma or parenthesis that ends the item which begins here, whatever is in it.
fn end_of_item(mut i: Tokens<'_>) -> Option<Tokens<'_>> {
    let mut open = 0;
    while *i.kind() != Tok::End {
        match i.kind() {
            Tok::Punct(Punct::LParen | Punct::LBracket) => open += 1,
            Tok::Punct(Punct::RParen | Punct::Comma) if open == 0 => return Some(i),
            Tok::Punct(Punct::RParen | Punct::RBracket) if open > 0 => open -= 1,
            Tok::Punct(_) | Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) => {}
            Tok::Bad(_) | Tok::End => {}
        }
        i = i.after();
    }
    None
}

fn tell(problem: nom::Err<Problem>, at: Tokens<'_>, told: &mut Vec<Diagnostic>) {
    told.push(match problem {
        nom::Err::Failure(Problem::Told(diagnostic)) | nom::Err::Error(Problem::Told(diagnostic)) => {
            *diagnostic
        }
        // Nothing returns these; if something did, the place would still be right.
        nom::Err::Error(Problem::Absent) | nom::Err::Failure(Problem::Absent) | nom::Err::Incomplete(_) => {
            errors::missing_operand(at)
        }
    });
}
