//! The target: what comes before the parentheses. In: the whole query; out: the target and where it ends, or what is
//! wrong with it. Works on characters, since paths and globs aren't made of the tokens of expressions. Never looks
//! whether a function or file exists.

use nom::Parser;
use nom::branch::alt;
use nom::bytes::complete::{take_till, take_while};
use nom::character::complete::{char, multispace0};
use nom::combinator::recognize;
use nom::multi::separated_list1;
use nom::sequence::preceded;

use super::ast::{Ident, Target, TargetKind};
use crate::diag::{Code, Diagnostic};
use crate::select;
use crate::span::Span;

/// Reads the target at the beginning of `src`.
pub(super) fn target(src: &str) -> Result<(Target, usize), Box<Diagnostic>> {
    let (rest, text) = match quoted_end(src)? {
        Some((start, end)) => (&src[end..], &src[start..end]),
        None => begin_of(
            src,
            preceded(multispace0, take_till(|c: char| c.is_whitespace() || c == '(')),
        ),
    };
    let end = src.len() - rest.len();
    let span = Span::new(end - text.len(), end);
    if src.trim().is_empty() {
        return error(
            Code::EmptyQuery,
            Span::new(0, src.len()),
            "the query is empty",
            "nothing to trace",
            EXAMPLE,
        );
    }
    if text.is_empty() || text == "if" {
        let found = if text.is_empty() {
            Span::new(end, end + 1)
        } else {
            span
        };
        let message = format!("no target before `{}`", found.text(src));
        return error(
            Code::MissingTargetPart,
            found,
            &message,
            "expected what to trace before this",
            EXAMPLE,
        );
    }
    let parts = parts(text, span);
    let kind = match parts.as_slice() {
        [tp, rest @ ..] if tp.node == "tp" && !rest.is_empty() => tracepoint(&parts, span)?,
        [uprobe, rest @ ..] if uprobe.node == "uprobe" && !rest.is_empty() => uprobe_kind(&parts, span)?,
        [usdt, rest @ ..] if usdt.node == "usdt" && !rest.is_empty() => usdt_kind(&parts, span)?,
        _ => function(&parts, span)?,
    };
    Ok((Target { kind, span }, end))
}

const EXAMPLE: &str = "a query begins with the name of a function, as in `tcp_sendmsg(sk, size)`";

/// What a part may be made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Function,
    Module,
    Tracepoint,
    Binary,
    Symbol,
    /// A name as C++ and Rust have it.
    Demangled,
    Usdt,
}

impl Class {
    fn what(self) -> &'static str {
        match self {
            Class::Function => "function",
            Class::Module => "module",
            Class::Tracepoint => "tracepoint",
            Class::Binary => "binary",
            Class::Symbol | Class::Demangled => "symbol",
            Class::Usdt => "USDT probe",
        }
    }

    /// Globs may be in each name that is looked up in a list.
    fn has(self, c: char) -> bool {
        let glob = matches!(c, '*' | '?' | '[' | ']');
        match self {
            Class::Function => c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '@' | ',') || glob,
            Class::Module => c.is_ascii_alphanumeric() || matches!(c, '_' | '-'),
            Class::Tracepoint => c.is_ascii_alphanumeric() || matches!(c, '_' | '-') || glob,
            Class::Demangled => !c.is_control() && !matches!(c, ')' | ';' | '"' | '\''),
            Class::Binary | Class::Symbol | Class::Usdt => {
                !c.is_control() && !matches!(c, ')' | ',' | ';' | '"' | '\'' | '<' | '>' | '|')
            }
        }
    }
}

fn function(parts: &[Ident], span: Span) -> Result<TargetKind, Box<Diagnostic>> {
    if let [kind, ..] = parts
        && parts.len() > 1
        && let Some(help) = foreign_kind(&kind.node, parts.last().map_or("", |name| name.node.as_str()))
    {
        let message = format!("`{}:` is not a kind of target", kind.node);
        return error(
            Code::UnknownProbeKind,
            kind.span,
            &message,
            "not known here",
            &help,
        );
    }
    match parts {
        [name] => {
            check(name, Class::Function)?;
            Ok(TargetKind::Function {
                module: None,
                name: name.clone(),
            })
        }
        [module, name] => {
            check(module, Class::Module)?;
            check(name, Class::Function)?;
            Ok(TargetKind::Function {
                module: Some(module.clone()),
                name: name.clone(),
            })
        }
        _ => too_many(parts, 2, "MODULE:FUNC", span),
    }
}

fn tracepoint(parts: &[Ident], span: Span) -> Result<TargetKind, Box<Diagnostic>> {
    let (group, event) = match parts {
        [_, event] => (None, event),
        [_, group, event] => (Some(group), event),
        _ => return too_many(parts, 3, "tp:GROUP:EVENT", span),
    };
    if let Some(group) = group {
        check(group, Class::Tracepoint)?;
    }
    check(event, Class::Tracepoint)?;
    Ok(TargetKind::Tracepoint {
        group: group.cloned(),
        event: event.clone(),
    })
}

fn uprobe_kind(parts: &[Ident], span: Span) -> Result<TargetKind, Box<Diagnostic>> {
    match parts {
        [_, binary, symbol] if unquoted(symbol).is_some() => Ok(TargetKind::Uprobe {
            binary: name(binary, Class::Binary)?,
            symbol: name(symbol, Class::Symbol)?,
        }),
        // Names of C++ and Rust have colons of their own.
        [_, binary, first, .., last] if text_of(&parts[2..]).contains("::") => {
            let binary = name(binary, Class::Binary)?;
            let symbol = Ident {
                node: text_of(&parts[2..]),
                span: Span {
                    start: first.span.start,
                    end: last.span.end,
                },
            };
            check(&symbol, Class::Demangled)?;
            Ok(TargetKind::Uprobe { binary, symbol })
        }
        [_, binary, symbol] => {
            let binary = name(binary, Class::Binary)?;
            check(symbol, Class::Symbol)?;
            check_address(symbol)?;
            Ok(TargetKind::Uprobe {
                binary,
                symbol: symbol.clone(),
            })
        }
        [_, binary] => {
            name(binary, Class::Binary)?;
            too_few(binary, "a symbol or an address", "uprobe:BINARY:SYMBOL")
        }
        _ => too_many(parts, 3, "uprobe:BINARY:SYMBOL", span),
    }
}

fn usdt_kind(parts: &[Ident], span: Span) -> Result<TargetKind, Box<Diagnostic>> {
    const FORM: &str = "usdt:BINARY:PROVIDER:NAME";
    match parts {
        [_, binary, provider, probe] => {
            let binary = name(binary, Class::Binary)?;
            check(provider, Class::Usdt)?;
            check(probe, Class::Usdt)?;
            Ok(TargetKind::Usdt {
                binary,
                provider: provider.clone(),
                name: probe.clone(),
            })
        }
        [_, binary] => {
            name(binary, Class::Binary)?;
            too_few(binary, "a provider and a name", FORM)
        }
        [_, binary, provider] => {
            name(binary, Class::Binary)?;
            check(provider, Class::Usdt)?;
            too_few(provider, "a name", FORM)
        }
        _ => too_many(parts, 4, FORM, span),
    }
}

/// Pieces with the colons between them.
fn text_of(parts: &[Ident]) -> String {
    let pieces: Vec<&str> = parts.iter().map(|part| part.node.as_str()).collect();
    pieces.join(":")
}

/// The pieces between the colons.
fn parts(text: &str, span: Span) -> Vec<Ident> {
    let (_, pieces) = if in_program(text) {
        let quoted = recognize((
            char('"'),
            take_while(|c| c != '"'),
            char('"'),
            take_while(|c| c != ':'),
        ));
        begin_of(
            text,
            separated_list1(char(':'), alt((quoted, take_while(|c| c != ':')))),
        )
    } else {
        begin_of(text, separated_list1(char(':'), take_while(|c| c != ':')))
    };
    let mut at = span.start as usize;
    let place = |piece: &str| {
        let start = at;
        at += piece.len() + 1;
        Ident {
            node: piece.to_owned(),
            span: Span::new(start, start + piece.len()),
        }
    };
    pieces.into_iter().map(place).collect()
}

/// Whether a target is in a program: names of files and of C++ may have anything in them.
fn in_program(text: &str) -> bool {
    text.starts_with("uprobe:") || text.starts_with("usdt:")
}

/// Where a target with names in double quotes begins and ends, in which blanks, colons and parentheses are as good as any character.
fn quoted_end(src: &str) -> Result<Option<(usize, usize)>, Box<Diagnostic>> {
    let start = src.len() - src.trim_start().len();
    if !in_program(&src[start..]) {
        return Ok(None);
    }
    let mut open = None;
    // Only the beginning of a name opens a quote, as one may stand in an item or a condition.
    let mut before = ' ';
    for (at, c) in src[start..].char_indices() {
        match (c, open) {
            ('"', Some(_)) => open = None,
            (_, Some(_)) => {}
            ('"', None) if before == ':' => open = Some(start + at),
            (c, None) if c.is_whitespace() || c == '(' => return Ok(Some((start, start + at))),
            (_, None) => {}
        }
        before = c;
    }
    match open {
        Some(at) => error(
            Code::BadTarget,
            Span::new(at, at + 1),
            "this quote is not closed",
            "no `\"` after it",
            "write the name as `\"name\"`",
        ),
        None => Ok(Some((start, src.len()))),
    }
}

/// What is between the quotes of a name that has some.
fn unquoted(part: &Ident) -> Option<Ident> {
    let inner = part.node.strip_prefix('"')?.strip_suffix('"')?;
    let fits = !inner.is_empty() && !inner.contains(|c: char| c == '"' || c.is_control());
    fits.then(|| Ident {
        node: inner.to_string(),
        span: Span {
            start: part.span.start + 1,
            end: part.span.end - 1,
        },
    })
}

/// A name in a program as a query has it: in quotes if it could not stand there without.
pub(super) fn written(name: &str, symbol: bool) -> String {
    let class = match symbol {
        true if name.contains("::") => Class::Demangled,
        true => Class::Symbol,
        false => Class::Binary,
    };
    let colons = symbol && name.contains("::");
    let characters = |c: char| class.has(c) && !c.is_whitespace() && c != '(' && (c != ':' || colons);
    let digits = symbol && name.starts_with(|c: char| c.is_ascii_digit());
    let plain = name.chars().all(characters) && !name.contains('[') && (!digits || is_address(name));
    if plain || name.contains('"') {
        name.to_string()
    } else {
        format!("\"{name}\"")
    }
}

/// A name of a program or in it, that is maybe in quotes.
fn name(part: &Ident, class: Class) -> Result<Ident, Box<Diagnostic>> {
    match unquoted(part) {
        Some(name) => Ok(name),
        None => {
            check_control(part)?;
            check(part, class)?;
            Ok(part.clone())
        }
    }
}

/// In quotes anything is part of a name but what moves the cursor of a terminal.
fn check_control(part: &Ident) -> Result<(), Box<Diagnostic>> {
    let quoted = part.node.len() > 1 && part.node.starts_with('"') && part.node.ends_with('"');
    match part.node.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, c)) if quoted => {
            let start = part.span.start as usize + at;
            error(
                Code::BadTarget,
                Span::new(start, start + c.len_utf8()),
                &format!(
                    "the control character `{}` can't be in a name",
                    c.escape_default()
                ),
                "not expected here",
                "name the file by a link to it, or the function by its address",
            )
        }
        Some(_) | None => Ok(()),
    }
}

/// Runs a parser that takes anything, nothing included.
fn begin_of<'a, O>(
    text: &'a str,
    mut parser: impl Parser<&'a str, Output = O, Error = nom::error::Error<&'a str>>,
) -> (&'a str, O) {
    parser
        .parse(text)
        .expect("a parser that takes nothing too can't fail")
}

/// A part must be there, hold no wrong character, and close its brackets.
fn check(part: &Ident, class: Class) -> Result<(), Box<Diagnostic>> {
    let what = class.what();
    if part.node.is_empty() {
        let message = format!("the name of the {what} is missing");
        let help = match class {
            Class::Tracepoint => "write `tp:GROUP:EVENT` or `tp:EVENT`, without a space",
            Class::Function | Class::Module => "write `MODULE:FUNC`, without a space, or the function alone",
            Class::Binary | Class::Symbol | Class::Demangled => {
                "write `uprobe:BINARY:SYMBOL`, without a space"
            }
            Class::Usdt => "write `usdt:BINARY:PROVIDER:NAME`, without a space",
        };
        return error(
            Code::MissingTargetPart,
            part.span,
            &message,
            &format!("expected a {what} here"),
            help,
        );
    }
    let mut open = None;
    for (at, c) in part.node.char_indices() {
        let place = Span::new(
            part.span.start as usize + at,
            part.span.start as usize + at + c.len_utf8(),
        );
        match (c, open) {
            // Anything may be in brackets; `^` and `!` negate, `-` makes a range.
            (']', Some(_)) => open = None,
            (_, Some(_)) => {}
            ('[', None) if class.has('[') => open = Some(place),
            _ if class.has(c) => {}
            _ => return Err(Box::new(bad_character(c, &part.node[at..], place, what))),
        }
    }
    if let Some(open) = open {
        let message = "this `[` of the glob is not closed";
        return error(
            Code::UnclosedGlob,
            open,
            message,
            "no `]` after it",
            "add a `]`, as in `tcp_[rs]*`",
        );
    }
    if class == Class::Function {
        check_names(part)?;
    }
    Ok(())
}

/// A list of functions: each a name or pattern, or one alone by its address, `0xADDRESS` or `FUNC@0xADDRESS`.
fn check_names(part: &Ident) -> Result<(), Box<Diagnostic>> {
    let mut at = part.span.start as usize;
    let alone = !part.node.contains(',');
    for name in part.node.split(',') {
        let span = Span::new(at, at + name.len());
        at += name.len() + 1;
        if name.is_empty() {
            let help = "write a list as `vfs_read,vfs_write(file)`, without spaces";
            return error(
                Code::MissingTargetPart,
                Span::new(span.start as usize, span.start as usize),
                "a name is missing in this list",
                "expected a function here",
                help,
            );
        }
        let (before, address) = match name.split_once('@') {
            Some((before, address)) => (before, Some(address)),
            None if name.starts_with("0x") || name.starts_with("0X") => ("", Some(name)),
            None => (name, None),
        };
        if let Some(address) = address
            && (select::address(address).is_none() || !alone)
        {
            let help = if alone {
                "an address is written as kallsyms has it, with `0x` before it: `FUNC@0xffffffff81234560`"
            } else {
                "give a function by its address in a query of its own"
            };
            return error(
                Code::BadTarget,
                span,
                "this is no address of a function",
                "not an address here",
                help,
            );
        }
        if before.starts_with(|c: char| c.is_ascii_digit()) {
            return error(
                Code::BadTarget,
                Span::new(span.start as usize, span.start as usize + 1),
                "the name of a function can't begin with a digit",
                "a digit",
                "to trace a kernel function, give its name, or its address with `0x` before it",
            );
        }
    }
    Ok(())
}

/// A symbol that begins with a digit is an address.
fn check_address(symbol: &Ident) -> Result<(), Box<Diagnostic>> {
    if !symbol.node.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(());
    }
    if !is_address(&symbol.node) {
        let message = format!("`{}` is neither a symbol nor an address", symbol.node);
        let help = "an address is written like `0x401000`";
        return error(Code::BadTarget, symbol.span, &message, "not an address", help);
    }
    Ok(())
}

fn is_address(text: &str) -> bool {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).is_ok(),
        None => text.parse::<u64>().is_ok(),
    }
}

fn bad_character(c: char, from: &str, place: Span, what: &str) -> Diagnostic {
    let code = if c == ')' {
        Code::UnmatchedBracket
    } else {
        Code::BadTarget
    };
    let message = format!("`{c}` can't be in the name of a {what}");
    let diagnostic = Diagnostic::error(code, place, message).label("not expected here");
    match c {
        ')' => diagnostic.help("there is no `(` before it"),
        '-' if from.starts_with("->") => {
            diagnostic.help("members go between parentheses: `FUNC(arg->member)`")
        }
        '-' | '+' => {
            diagnostic.help("a query traces the entry or the return of a function, not an offset in it")
        }
        '"' | '\'' | '\u{201c}' | '\u{201d}' | '\u{2018}' | '\u{2019}' | '`' => {
            diagnostic.help("leave the quotes out, or put them around the whole name of a file or of a function in it; those that the shell needs go around the whole query")
        }
        ',' | ';' => diagnostic.help("write each query as an argument of its own"),
        '|' | '{' if lists(from) => {
            diagnostic.help("several functions are a list: `tcp_sendmsg,tcp_recvmsg(sk)`, or a pattern: `tcp_*(sk)`")
        }
        '%' => diagnostic.help("a function's return is asked for by what is shown: `FUNC(return)`"),
        '=' | '<' | '>' | '!' | '&' | '|' => {
            diagnostic.help("a condition goes after the target: `FUNC if arg == 1`")
        }
        '/' => {
            diagnostic.help("a function of a program is `uprobe:BINARY:SYMBOL`; a condition goes after `if`")
        }
        '{' => diagnostic.help("what to show goes between parentheses: `FUNC(arg, arg->member)`"),
        _ => diagnostic,
    }
}

/// Whether this is how shells and regular expressions write several names.
fn lists(from: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match from.strip_prefix('{') {
        Some(inside) => inside
            .split_once('}')
            .is_some_and(|(names, _)| names.contains(',') && names.chars().all(|c| word(c) || c == ',')),
        None => from[1..].starts_with(word),
    }
}

fn too_few<T>(last: &Ident, missing: &str, form: &str) -> Result<T, Box<Diagnostic>> {
    let end = last.span.end as usize;
    let message = format!("the target lacks {missing}");
    let label = format!("expected `:` and {missing} here");
    error(
        Code::MissingTargetPart,
        Span::new(end, end),
        &message,
        &label,
        &format!("write `{form}`"),
    )
}

fn too_many<T>(parts: &[Ident], most: usize, form: &str, span: Span) -> Result<T, Box<Diagnostic>> {
    let from = parts[most - 1].span.end;
    let message = format!("this target has more than {most} parts");
    let help = format!("write `{form}`");
    error(
        Code::ExtraTargetPart,
        Span {
            start: from,
            end: span.end,
        },
        &message,
        "too much",
        &help,
    )
}

/// What other tracers write before a colon. No kernel module has one of these names.
fn foreign_kind(word: &str, rest: &str) -> Option<String> {
    Some(match word {
        "k" | "kprobe" | "kr" | "kretprobe" | "fentry" | "fexit" | "kfunc" | "kretfunc" | "p" | "r" | "f" => {
            format!("name the function alone: `{rest}`; its return is seen by `{rest}(return)`")
        }
        "t" | "tracepoint" | "rawtracepoint" | "raw_tracepoint" | "rt" => {
            "write `tp:GROUP:EVENT` or `tp:EVENT`".to_owned()
        }
        "u" | "ur" | "uretprobe" => {
            "write `uprobe:BINARY:SYMBOL`; show `return` to see its return".to_owned()
        }
        _ => return None,
    })
}

fn error<T>(code: Code, span: Span, message: &str, label: &str, help: &str) -> Result<T, Box<Diagnostic>> {
    Err(Box::new(
        Diagnostic::error(code, span, message).label(label).help(help),
    ))
}
