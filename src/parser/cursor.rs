//! What the parsers of this module walk over: tokens with a place in them, and how a parser says that it failed.
//! In: tokens; out: nom's inputs and errors. Copying it is cheap, which is how parsers look ahead. Never owns text.

use nom::error::{ErrorKind, ParseError};
use nom::{IResult, Parser};

use super::MAX_DEPTH;
use super::token::{Punct, Tok, Token};
use crate::diag::{Code, Diagnostic};
use crate::span::Span;

/// A place between two tokens. The last token is `End`, which is never passed.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    src: &'a str,
    all: &'a [Token],
    at: usize,
    depth: u16,
}

/// What a parser returns.
pub(super) type Parsed<'a, T> = IResult<Tokens<'a>, T, Problem>;

/// Why a parser failed.
#[derive(Debug)]
pub(super) enum Problem {
    /// What it looks for isn't here; another parser may know what is. Only ever recoverable.
    Absent,
    /// The query is wrong. Only ever final.
    Told(Box<Diagnostic>),
}

/// The token that is wanted, or `Absent`.
pub(super) fn punct<'a>(want: Punct) -> impl Parser<Tokens<'a>, Output = Span, Error = Problem> {
    move |i: Tokens<'a>| {
        if i.is(want) {
            Ok((i.after(), i.span()))
        } else {
            Err(nom::Err::Error(Problem::Absent))
        }
    }
}

/// Ends the parsing with this diagnostic.
pub(super) fn fail<T>(diagnostic: Diagnostic) -> Result<T, nom::Err<Problem>> {
    Err(nom::Err::Failure(Problem::Told(Box::new(diagnostic))))
}

impl<'a> Tokens<'a> {
    pub(super) fn new(src: &'a str, all: &'a [Token]) -> Tokens<'a> {
        Tokens {
            src,
            all,
            at: 0,
            depth: 0,
        }
    }

    /// The next token.
    pub(super) fn kind(self) -> &'a Tok {
        &self.all[self.at].kind
    }

    /// Where the next token is.
    pub(super) fn span(self) -> Span {
        self.all[self.at].span
    }

    /// The text of the next token.
    pub(super) fn text(self) -> &'a str {
        self.span().text(self.src)
    }

    /// Its text if it is a name; otherwise the empty string, which is no name.
    pub(super) fn name(self) -> &'a str {
        match self.kind() {
            Tok::Name => self.text(),
            Tok::Builtin
            | Tok::Int(_)
            | Tok::Char(_)
            | Tok::Str(_)
            | Tok::Punct(_)
            | Tok::Bad(_)
            | Tok::End => "",
        }
    }

    /// Whether it is this operator or bracket.
    pub(super) fn is(self, punct: Punct) -> bool {
        *self.kind() == Tok::Punct(punct)
    }

    /// The place after the next token.
    pub(super) fn after(self) -> Tokens<'a> {
        Tokens {
            at: (self.at + 1).min(self.all.len() - 1),
            ..self
        }
    }

    /// The place before the last token that was passed; this one at the beginning.
    pub(super) fn before(self) -> Tokens<'a> {
        Tokens {
            at: self.at.saturating_sub(1),
            ..self
        }
    }

    /// From the next token to the end of the text.
    pub(super) fn rest(self) -> Span {
        self.span().to(self.all[self.all.len() - 1].span)
    }

    /// The same place one bracket or branch further in: recursion is bounded here.
    pub(super) fn deeper(self) -> Result<Tokens<'a>, nom::Err<Problem>> {
        if self.depth == MAX_DEPTH {
            return fail(too_deep(self.span()));
        }
        Ok(Tokens {
            depth: self.depth + 1,
            ..self
        })
    }

    /// The same place as deep as `outer` is.
    pub(super) fn as_deep_as(self, outer: Tokens<'_>) -> Tokens<'a> {
        Tokens {
            depth: outer.depth,
            ..self
        }
    }
}

/// Too many levels of brackets, or of operators in operators.
pub(super) fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::error(
        Code::TooDeep,
        span,
        format!("nested more than {MAX_DEPTH} levels deep"),
    )
    .label("one level too many")
    .note("each operator, step and bracket within another is a level")
}

impl<'a> ParseError<Tokens<'a>> for Problem {
    fn from_error_kind(_: Tokens<'a>, _: ErrorKind) -> Problem {
        Problem::Absent
    }

    fn append(_: Tokens<'a>, _: ErrorKind, other: Problem) -> Problem {
        other
    }
}
