//! The words for what is wrong. In: the place where the parser can't go on, and what it is in; out: a diagnostic that
//! says what was found, what was expected, and, where a guess is safe, what to write. Never decides whether something
//! is wrong.

use nom::Parser;

use super::ast::BinaryOp;
use super::cursor::{Tokens, fail, punct};
use super::token::{Punct, Tok};
use super::types::is_type_word;
use crate::diag::{Code, Diagnostic};
use crate::span::Span;

/// What is not finished yet where something unexpected comes; with the place where it began.
#[derive(Clone, Copy)]
pub(super) enum Inside {
    /// The parentheses around the items.
    Items(Span),
    /// Parentheses around an expression.
    Parentheses(Span),
    /// The parentheses of a call.
    Arguments(Span),
    /// The parentheses of a type.
    Type(Span),
    /// The brackets of an index.
    Index(Span),
    /// From `?` to `:`.
    Branch(Span),
    /// The condition after `if`, to the end of the text.
    Condition(Span),
}

/// The token that ends `inside`, or the error that says why it isn't here.
pub(super) fn close<'a>(
    want: Punct,
    inside: Inside,
) -> impl Parser<Tokens<'a>, Output = Span, Error = super::cursor::Problem> {
    move |i: Tokens<'a>| match punct(want).parse(i) {
        Ok(closed) => Ok(closed),
        Err(_) => fail(unexpected(i, inside)),
    }
}

/// An operand should be here.
pub(super) fn missing_operand(i: Tokens<'_>) -> Diagnostic {
    let before = i.before();
    let (found, span) = (describe(i), i.span());
    match i.kind() {
        Tok::Bad(diagnostic) => return (**diagnostic).clone(),
        Tok::Name if is_type_word(i.text()) => {
            let message = format!("`{}` begins a type, but a value is needed here", i.text());
            return Diagnostic::error(Code::TypeAsValue, span, message)
                .label("not a value")
                .help("an argument is named without its type; a cast is written `(struct sock *)arg1`");
        }
        Tok::Punct(Punct::Assign) => {
            if let Some(diagnostic) = split_operator(before) {
                return diagnostic;
            }
        }
        Tok::Punct(Punct::Dot) if before.is(Punct::Op(BinaryOp::Sub)) => {
            let (message, whole) = ("`-.` is not an operator", before.span().to(span));
            return Diagnostic::error(Code::LoneHyphen, whole, message)
                .label("a hyphen without its `>`")
                .help("write `->` to follow a pointer, `.` for a member of a struct");
        }
        Tok::Punct(Punct::Op(BinaryOp::Gt)) if before.is(Punct::Op(BinaryOp::Sub)) => {
            let (message, whole) = ("`- >` is not `->`", before.span().to(span));
            return Diagnostic::error(Code::LoneHyphen, whole, message)
                .label("a space in between")
                .help("write `->` without a space");
        }
        Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) | Tok::Punct(_) | Tok::End => {}
    }
    let begins = match before.kind() {
        Tok::Punct(Punct::LParen | Punct::LBracket | Punct::Comma) => true,
        Tok::Name => before.name() == "if",
        Tok::Punct(_) => false,
        Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) | Tok::Bad(_) | Tok::End => false,
    };
    match i.kind() {
        Tok::Punct(Punct::Dot) if matches!(i.after().kind(), Tok::Int(_)) => {
            let whole = span.to(i.after().span());
            return Diagnostic::error(
                Code::FloatLiteral,
                whole,
                "there are no floating point numbers in the kernel",
            )
            .label("not an integer")
            .help("write an integer");
        }
        Tok::Punct(Punct::Op(_)) if begins => {
            return Diagnostic::error(Code::MissingOperand, span, format!("nothing precedes {found}"))
                .label("expected a value before this")
                .help(format!("{found} needs a value on each side"));
        }
        Tok::Punct(Punct::Question) if begins => {
            return Diagnostic::error(Code::MissingOperand, span, "nothing precedes `?`")
                .label("expected a condition before this")
                .help("write `condition ? value : other`");
        }
        // Nothing between a query's own parentheses is allowed, so these only lack their end.
        Tok::End if before.is(Punct::LParen) => {
            return Diagnostic::error(Code::UnclosedParenthesis, span, "this `(` is not closed")
                .label(format!("expected a value or `)`, found {found}"))
                .secondary(before.span(), "opened here");
        }
        Tok::Punct(Punct::Arrow | Punct::Dot) if begins => {
            return Diagnostic::error(Code::MissingOperand, span, format!("nothing precedes {found}"))
                .label("expected a value before this")
                .help("a member needs a value to its left, as in `sk->sk_state`");
        }
        Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) | Tok::Punct(_) => {}
        Tok::Bad(_) | Tok::End => {}
    }
    let message = match before.kind() {
        Tok::Punct(Punct::LParen) if i.is(Punct::RParen) => "nothing between these parentheses".to_owned(),
        Tok::Punct(Punct::LBracket) => "an index is missing".to_owned(),
        Tok::Punct(Punct::RParen) => "this cast has nothing to cast".to_owned(),
        Tok::Punct(_) | Tok::Name => format!("nothing follows {}", describe(before)),
        Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) | Tok::Bad(_) | Tok::End => {
            "a value is missing".to_owned()
        }
    };
    let diagnostic = Diagnostic::error(Code::MissingOperand, span, message)
        .label(format!("expected a value, found {found}"))
        .secondary(before.span(), "needs a value after it");
    match i.kind() {
        Tok::Punct(Punct::Op(op)) => diagnostic.help(format!("`{op}` needs a value on each side")),
        Tok::Punct(Punct::Colon) if before.is(Punct::Question) => {
            diagnostic.help("C has no `?:` without a middle: write `a ? a : b`")
        }
        Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) | Tok::Punct(_) => diagnostic,
        Tok::Bad(_) | Tok::End => diagnostic,
    }
}

/// A complete operand is followed by something that neither goes on with it nor ends `inside`.
pub(super) fn unexpected(i: Tokens<'_>, inside: Inside) -> Diagnostic {
    if let Tok::Bad(diagnostic) = i.kind() {
        return (**diagnostic).clone();
    }
    if let Inside::Type(open) = inside {
        return in_type(i, open);
    }
    match i.kind() {
        Tok::Punct(Punct::Assign | Punct::Bang | Punct::Tilde) => not_infix(i),
        Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) => not_joined(i, inside),
        Tok::Punct(Punct::Colon) => misplaced_format(i, inside),
        Tok::Punct(Punct::Comma) => comma(i, inside),
        Tok::Punct(Punct::LParen) => Diagnostic::error(
            Code::NotCallable,
            i.span(),
            "only a function's name can be called",
        )
        .label("not after this")
        .help("the built-in functions are called by name: `str(p)`, `ntohs(x)`"),
        Tok::Punct(Punct::RParen | Punct::RBracket) | Tok::End => not_closed(i, inside),
        // Infix operators and what follows a value always go on with it; only a format or a type can't be gone on with.
        Tok::Punct(_) | Tok::Bad(_) => {
            let message = format!("{} can't be here", describe(i));
            Diagnostic::error(Code::TrailingText, i.span(), message).label("expected `,` or `)`")
        }
    }
}

/// The target, the items or the whole query are complete, and this follows.
pub(super) fn trailing(i: Tokens<'_>, after: &str) -> Diagnostic {
    let (text, rest) = (i.text(), i.rest());
    let junk =
        |message: String| Diagnostic::error(Code::TrailingText, rest, message).label("not part of the query");
    match i.kind() {
        Tok::Bad(diagnostic) => (**diagnostic).clone(),
        Tok::Punct(Punct::RParen) => {
            Diagnostic::error(Code::UnmatchedBracket, i.span(), "no `(` belongs to this `)`")
                .label("one too many")
                .help("delete it, or add a `(` further left")
        }
        Tok::Name
            if matches!(
                text,
                "where" | "when" | "unless" | "filter" | "and" | "or" | "iff" | "IF"
            ) =>
        {
            Diagnostic::error(
                Code::TrailingText,
                i.span(),
                format!("`{text}` is not a word of the language"),
            )
            .label("expected `if`")
            .help("a condition begins with `if`")
        }
        Tok::Punct(Punct::Op(_) | Punct::Bang | Punct::Assign | Punct::Question) => {
            junk(format!("{} after {after}", describe(i)))
                .help("a condition begins with `if`: `FUNC(…) if size > 1`")
        }
        Tok::Punct(Punct::Arrow | Punct::Dot) => junk(format!("{} after {after}", describe(i)))
            .help("members go between the parentheses: `FUNC(arg->member)`"),
        Tok::Punct(Punct::LParen) => {
            junk(format!("a second `(` after {after}")).help("put all items between one pair of parentheses")
        }
        Tok::Punct(Punct::Comma) => junk(format!("`,` after {after}"))
            .help("write each query as an argument of its own, or move the `)` to the end of the items"),
        Tok::Name | Tok::Builtin if after == "the target" => junk(format!("unexpected text after {after}"))
            .help("what to show goes between parentheses: `FUNC(arg)`"),
        Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) | Tok::Punct(_) | Tok::End => {
            junk(format!("unexpected text after {after}"))
        }
    }
}

/// An `@` that is not followed by a symbol or an address.
pub(super) fn missing_symbol(at: Tokens<'_>) -> Diagnostic {
    Diagnostic::error(
        Code::MissingOperand,
        at.span(),
        "`@` without a symbol or an address",
    )
    .label("expected the name of one of the kernel's symbols after this")
    .help("for example `@jiffies`, or `@init_task+8`")
}

/// A `\` that is not followed by a constant.
pub(super) fn missing_immediate(at: Tokens<'_>) -> Diagnostic {
    let what = at.after();
    if let Tok::Bad(diagnostic) = what.kind() {
        return (**diagnostic).clone();
    }
    Diagnostic::error(Code::MissingOperand, at.span(), "`\\` without a constant")
        .label(format!(
            "expected a number or a text in double quotes after this, found {}",
            describe(what)
        ))
        .help("for example `\\5` or `\\\"text\"`, which are shown as they are")
}

/// A member's name should be here, after `.` or `->`.
pub(super) fn missing_member(i: Tokens<'_>) -> Diagnostic {
    let step = i.before();
    let found = describe(i);
    let diagnostic = match i.kind() {
        Tok::Bad(diagnostic) => return (**diagnostic).clone(),
        Tok::Int(_) => Diagnostic::error(
            Code::MissingMember,
            i.span(),
            format!("{found} can't be the name of a member"),
        )
        .help("an element of an array is `a[0]`"),
        Tok::Name | Tok::Builtin | Tok::Char(_) | Tok::Str(_) | Tok::Punct(_) | Tok::End => {
            let message = format!("the name of a member is missing after `{}`", step.text());
            Diagnostic::error(Code::MissingMember, i.span(), message)
        }
    };
    diagnostic.label(format!("expected a member's name, found {found}"))
}

/// A type goes wrong here.
pub(super) fn bad_type(i: Tokens<'_>, message: &str) -> Diagnostic {
    match i.kind() {
        Tok::Bad(diagnostic) => (**diagnostic).clone(),
        Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) | Tok::Punct(_) | Tok::End => {
            Diagnostic::error(Code::BadType, i.span(), message)
                .label(format!("expected a name, found {}", describe(i)))
        }
    }
}

/// What a word of another language is in C.
pub(super) fn word_operator(word: &str) -> Option<&'static str> {
    Some(match word {
        "and" | "AND" => "&&",
        "or" | "OR" => "||",
        "not" | "NOT" => "!",
        "xor" => "^",
        "eq" | "is" => "==",
        "ne" => "!=",
        "lt" => "<",
        "le" => "<=",
        "gt" => ">",
        "ge" => ">=",
        "mod" => "%",
        "like" | "matches" => "=~",
        _ => return None,
    })
}

/// A token as it is named in a sentence.
pub(super) fn describe(i: Tokens<'_>) -> String {
    match i.kind() {
        Tok::End => "the end of the query".to_owned(),
        Tok::Str(_) => "a string".to_owned(),
        Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Punct(_) | Tok::Bad(_) => {
            format!("`{}`", i.text())
        }
    }
}

/// `=`, `!` or `~` between two values.
fn not_infix(i: Tokens<'_>) -> Diagnostic {
    if let Some(diagnostic) = split_operator(i) {
        return diagnostic;
    }
    if i.is(Punct::Assign) {
        return Diagnostic::error(Code::AssignForEqual, i.span(), "`=` does not compare")
            .label("nothing can be assigned in a query")
            .help("write `==` to compare");
    }
    let glob = i.is(Punct::Tilde) || i.after().is(Punct::Tilde);
    let whole = if glob && i.after().is(Punct::Tilde) {
        i.span().to(i.after().span())
    } else {
        i.span()
    };
    let help = match (glob, i.is(Punct::Tilde)) {
        (true, true) => "a glob is matched by `=~`",
        (true, false) => "write `!(a =~ \"glob\")`",
        (false, _) => "\"not equal\" is `!=`; `!` negates what follows it",
    };
    Diagnostic::error(
        Code::NotAnOperator,
        whole,
        format!("{} can't be between two values", describe(i)),
    )
    .label("not an infix operator")
    .help(help)
}

/// `= =` and the like: an operator with a space in it, or its two characters in the wrong order.
fn split_operator(i: Tokens<'_>) -> Option<Diagnostic> {
    let (first, second) = (i.text(), i.after().text());
    let right = match (first, second) {
        ("=", "=") | ("==", "=") => "==",
        ("!", "=") | ("=", "!") | ("!", "==") => "!=",
        ("<", "=") | ("=", "<") => "<=",
        (">", "=") | ("=", ">") => ">=",
        ("=", "~") => "=~",
        _ => return None,
    };
    let span = i.span().to(i.after().span());
    let message = format!("`{first} {second}` is not an operator");
    let code = if right == "==" {
        Code::AssignForEqual
    } else {
        Code::NotAnOperator
    };
    Some(
        Diagnostic::error(code, span, message)
            .label("two operators")
            .help(format!("write `{right}`")),
    )
}

/// Two values with nothing between them, or a word where an operator should be.
fn not_joined(i: Tokens<'_>, inside: Inside) -> Diagnostic {
    let (before, word) = (i.before(), i.name());
    if before.name() == "not" || before.name() == "NOT" {
        let message = format!("`{}` is not an operator", before.text());
        return Diagnostic::error(Code::NotAnOperator, before.span(), message)
            .label("only a name here")
            .help("write `!`");
    }
    if let Some(right) = word_operator(word) {
        let message = format!("`{word}` is not an operator");
        let diagnostic = Diagnostic::error(Code::NotAnOperator, i.span(), message);
        return match (right, inside) {
            ("!", _) => diagnostic
                .label("only a name here")
                .help("write `!` before a value, `!=` between two"),
            ("&&", Inside::Items(_)) => diagnostic
                .label("only a name here")
                .help("write `&&`, or `,` between two items"),
            _ => diagnostic
                .label("only a name here")
                .help(format!("write `{right}`")),
        };
    }
    if word == "if" {
        return match inside {
            Inside::Condition(first) => {
                Diagnostic::error(Code::SecondCondition, i.span(), "a query has at most one `if`")
                    .label("a second one")
                    .secondary(first, "the first one")
                    .help("join the conditions with `&&`")
            }
            Inside::Items(open)
            | Inside::Parentheses(open)
            | Inside::Arguments(open)
            | Inside::Type(open)
            | Inside::Index(open)
            | Inside::Branch(open) => Diagnostic::error(
                Code::MisplacedIf,
                i.span(),
                "`if` can't be between the parentheses",
            )
            .label("expected `)` before this")
            .secondary(open, "not closed yet")
            .help("the condition goes after the closing `)`: `FUNC(…) if …`"),
        };
    }
    let message = match before.kind() {
        Tok::Punct(_) | Tok::Bad(_) | Tok::End => format!("no operator before {}", describe(i)),
        Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) => {
            format!("no operator between {} and {}", describe(before), describe(i))
        }
    };
    let diagnostic = Diagnostic::error(Code::MissingOperator, i.span(), message)
        .label(format!("expected {}", wanted(inside)));
    match inside {
        Inside::Items(_) if is_type_word(before.name()) || super::types::is_well_known(before.name()) => {
            diagnostic.help("arguments are named without their type")
        }
        Inside::Items(_) | Inside::Arguments(_) => diagnostic.help("separate two values with `,`"),
        Inside::Condition(_) => diagnostic.help("join two conditions with `&&`"),
        Inside::Parentheses(_) | Inside::Type(_) | Inside::Index(_) | Inside::Branch(_) => diagnostic,
    }
}

fn wanted(inside: Inside) -> &'static str {
    match inside {
        Inside::Items(_) => "an operator, `,`, `:` or `)`",
        Inside::Arguments(_) => "an operator, `,` or `)`",
        Inside::Parentheses(_) | Inside::Type(_) => "an operator or `)`",
        Inside::Index(_) => "an operator or `]`",
        Inside::Branch(_) => "an operator or `:`",
        Inside::Condition(_) => "an operator or the end of the query",
    }
}

fn misplaced_format(i: Tokens<'_>, inside: Inside) -> Diagnostic {
    let (message, help) = match inside {
        Inside::Items(_) => ("an item has at most one format", "delete one of them"),
        Inside::Condition(_) => (
            "a condition has no format, since it is not shown",
            "to show a value, put it between the parentheses",
        ),
        Inside::Parentheses(_)
        | Inside::Arguments(_)
        | Inside::Type(_)
        | Inside::Index(_)
        | Inside::Branch(_) => (
            "a format can't be within an expression",
            "it goes at the end of the item: `FUNC(a->b + 1:x)`",
        ),
    };
    Diagnostic::error(Code::MisplacedFormat, i.span(), message)
        .label("not expected here")
        .help(help)
}

/// `(STRUCT,MEMBER)p`, as the kernel's probe events have it: what that is in C.
fn container(i: Tokens<'_>) -> Option<String> {
    let (outer, member) = (i.before(), i.after());
    let close = member.after();
    let pointer = close.after();
    let names = [outer.name(), member.name(), pointer.name()];
    (close.is(Punct::RParen) && names.iter().all(|name| !name.is_empty())).then(|| {
        format!(
            "what a member is in is `container_of({}, struct {}, {})`",
            names[2], names[0], names[1]
        )
    })
}

fn comma(i: Tokens<'_>, inside: Inside) -> Diagnostic {
    let error =
        |message| Diagnostic::error(Code::CommaOperator, i.span(), message).label("not expected here");
    match inside {
        Inside::Parentheses(open) if let Some(help) = container(i) => error("there is no comma operator")
            .secondary(open, "not closed yet")
            .help(help),
        Inside::Parentheses(open) => error("there is no comma operator")
            .secondary(open, "not closed yet")
            .help("each item is an expression of its own; maybe a `)` is missing before the comma"),
        Inside::Index(_) => error("an index is one value").help("a second dimension is `a[1][2]`"),
        Inside::Condition(_) => error("a condition is one expression").help("join conditions with `&&`"),
        Inside::Branch(question) => no_colon(i, question),
        Inside::Items(_) | Inside::Arguments(_) | Inside::Type(_) => {
            error("`,` can't be here").help("delete it")
        }
    }
}

fn no_colon(i: Tokens<'_>, question: Span) -> Diagnostic {
    Diagnostic::error(Code::MissingColon, i.span(), "`?` without its `:`")
        .label(format!("expected `:`, found {}", describe(i)))
        .secondary(question, "this needs a `:`")
        .help("write `condition ? value : other`")
}

/// `)`, `]` or the end of the text, and it isn't what ends `inside`.
fn not_closed(i: Tokens<'_>, inside: Inside) -> Diagnostic {
    let (code, open, opened, closer) = match inside {
        Inside::Branch(question) => return no_colon(i, question),
        Inside::Condition(_) => {
            let found = describe(i);
            return Diagnostic::error(
                Code::UnmatchedBracket,
                i.span(),
                format!("nothing belongs to this {found}"),
            )
            .label("one too many")
            .help("delete it");
        }
        Inside::Index(open) => (Code::UnclosedBracket, open, "[", "]"),
        Inside::Items(open) | Inside::Parentheses(open) | Inside::Arguments(open) | Inside::Type(open) => {
            (Code::UnclosedParenthesis, open, "(", ")")
        }
    };
    let diagnostic = if let Tok::Punct(Punct::RBracket) = i.kind() {
        Diagnostic::error(Code::UnmatchedBracket, i.span(), "no `[` belongs to this `]`")
    } else {
        Diagnostic::error(code, i.span(), format!("this `{opened}` is not closed"))
    };
    diagnostic
        .label(format!("expected `{closer}`, found {}", describe(i)))
        .secondary(open, "opened here")
}

/// A type in parentheses is followed by something else than `)`.
fn in_type(i: Tokens<'_>, open: Span) -> Diagnostic {
    let (message, help) = match i.kind() {
        Tok::End => return not_closed(i, Inside::Type(open)),
        Tok::Punct(Punct::LBracket) => (
            "no cast gives an array",
            "write a pointer: `(u8 *)p`, and index that",
        ),
        Tok::Punct(Punct::LParen) => (
            "types with parentheses are not known here",
            "write `void *` for a pointer to a function, a pointer to the elements for one to an array",
        ),
        Tok::Name if i.text().starts_with("__") => (
            "a type has no attributes here",
            "to read user memory, write `user(p)` around the value",
        ),
        Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) | Tok::Punct(_) | Tok::Bad(_) => {
            (
                "the type is not closed",
                "a type is written as in C: `(struct tcp_sock *)sk`",
            )
        }
    };
    Diagnostic::error(Code::BadType, i.span(), message)
        .label(format!("expected `)` or `*`, found {}", describe(i)))
        .secondary(open, "opened here")
        .help(help)
}
