//! Query text in, syntax tree out, or every mistake in it with its place. Prints trees back, too. Total: it never
//! panics, recurses without bound, or looks at a kernel.
//!
//! ```text
//! src ─target→ Target, where it ends ─token→ tokens ─query, expr, types→ items, condition
//! ```
//!
//! Where the grammar leaves a choice:
//! - `FUNC`, paths and globs are cut out of the text up to the first blank or `(`; the rest is tokens.
//! - `name=` at the beginning of an item is a label, so `len = 3` shows 3; any other `=` is an error.
//! - `if` is an ordinary name within parentheses, since arguments may be called so.
//! - A comma after the last item is an error.
//! - Casts of unknown names: see `types`.

pub mod ast;
mod cursor;
mod dump;
mod errors;
mod expr;
mod fetch;
#[cfg(any(test, feature = "fuzzing"))]
pub mod generate;
mod literal;
mod print;
mod query;
mod strip;
mod target;
mod token;
mod types;

#[cfg(test)]
mod tests;

pub use dump::dump;
pub use fetch::symbols;
pub(crate) use fetch::{ADDRESS_OF, IMMEDIATE, PER_CPU_OFFSETS, REGISTER, THIS_CPU_PTR, THIS_CPU_READ};

use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::span::Span;

/// The longest query, in bytes.
pub const MAX_LENGTH: usize = 64 * 1024;

/// The most items in a query.
pub const MAX_ITEMS: usize = 256;

/// The highest tree of an expression, and the most brackets in brackets.
pub const MAX_DEPTH: u16 = 200;

/// Reads a query. Each item that is wrong is told, and so is a wrong condition; a wrong target alone.
pub fn parse(src: &str) -> Result<ast::Query, Diagnostics> {
    if src.len() > MAX_LENGTH {
        let span = Span::new(src.floor_char_boundary(MAX_LENGTH), src.len());
        let message = format!("the query is longer than {} KiB", MAX_LENGTH / 1024);
        return Err(Diagnostic::error(Code::TooLong, span, message)
            .label("too much")
            .into());
    }
    let (target, end) = target::target(src).map_err(|diagnostic| Diagnostics::from(*diagnostic))?;
    let tokens = token::tokenize(src, end);
    let mut told = Vec::new();
    let (items, cond) = query::body(cursor::Tokens::new(src, &tokens), &mut told);
    match Diagnostics::new(told) {
        Some(diagnostics) => Err(diagnostics),
        None => {
            let span = Span::new(target.span.start as usize, src.trim_end().len());
            Ok(ast::Query {
                target,
                items,
                cond,
                span,
            })
        }
    }
}
