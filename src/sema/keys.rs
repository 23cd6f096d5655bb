//! The keys of a query that aggregates: `by(e, …)`. In: the arguments of `by`, with labels and formats like items. Out: items that lie
//! in the key of a map. Never makes a key that the kernel does not take: one that is too long is a mistake, but for stacks of no
//! stated depth, which are made to fit.

use super::aggregate::Parts;
use super::ctypes::{Class, class, size_of, spell};
use super::{R, Reported, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, Arg, ExprKind as Ast};
use crate::span::Span;
use crate::typed::{Item, Source};
use crate::types::Type;
use crate::wire::{self, Format, ValueLayout};

/// Bytes of a string in a key, its NUL included, unless `--max-string` allows less.
const KEY_STRING: u32 = 128;

impl Sema<'_> {
    /// `by(e, …)`.
    pub(super) fn by(
        &mut self,
        item: &ast::Item,
        func: &ast::Ident,
        args: &[Arg],
        parts: &mut Parts,
    ) -> R<()> {
        if let Some(first) = parts.by {
            return self.report(
                Diagnostic::error(Code::BadArguments, func.span, "`by` is there twice")
                    .label("the second one")
                    .secondary(first, "the first one")
                    .help("write all keys into one: `by(a, b)`"),
            );
        }
        parts.by = Some(item.span);
        if let Some(format) = &item.format {
            return self.report(
                Diagnostic::error(Code::BadFormat, format.span, "`by` gives keys, not a number")
                    .label("so it has no format")
                    .help("a key has one: `by(x:ip)`"),
            );
        }
        if let Some(label) = &item.label {
            return self.report(
                Diagnostic::error(Code::BadArguments, label.span, "`by` has no label")
                    .label("a key has one of its own")
                    .help("write it before the key: `by(name = x)`"),
            );
        }
        if args.is_empty() {
            return self.wrong_aggregation(func, item.expr.span);
        }
        let mut failed = false;
        for arg in args {
            failed |= self.key(arg, parts).is_err();
        }
        if failed { Err(Reported) } else { Ok(()) }
    }

    fn key(&mut self, arg: &Arg, parts: &mut Parts) -> R<()> {
        let (expr, name, format, span) = match arg {
            Arg::Expr(expr) => (expr, None, None, expr.span),
            Arg::Key(key) => (&key.expr, key.label.as_ref(), key.format.as_ref(), key.span),
            Arg::Type(ty) => {
                return self.report(
                    Diagnostic::error(Code::BadArguments, ty.span, "a key is a value")
                        .label("this is a type"),
                );
            }
        };
        let (expr, forced) = self.phase_call(expr)?;
        let label = name.map_or_else(|| self.label(expr), |name| name.node.clone());
        if let Some(stack) = self.call_stack(expr, true, label) {
            let mut item = stack?;
            if let Some(format) = format {
                return self.report(
                    Diagnostic::error(Code::BadFormat, format.span, "a stack is shown as symbols")
                        .label("so it has no format"),
                );
            }
            if let Some(forced) = forced {
                item.when = forced;
                parts.forced.push(item.span);
            }
            if matches!(&expr.kind, Ast::Call { args, .. } if args.is_empty()) {
                parts.stacks.push(parts.keys.len());
            }
            parts.keys.push(item);
            return Ok(());
        }
        // A condition is a key as well: whether it holds.
        let (mut item, marks) = match forced {
            Some(_) => (self.labelled(expr, name, format, span)?, Vec::new()),
            None => self.marked(|this| this.labelled(expr, name, format, span))?,
        };
        item.when = self.settled(&marks, item.when, &mut item.source);
        if !marks.is_empty() {
            parts.forced.push(item.span);
        }
        if self.user && item.format == Some(Format::Symbol) {
            return self.report(
                Diagnostic::error(
                    Code::BadFormat,
                    format.map_or(expr.span, |format| format.span),
                    "an address in a key of a program has no symbol",
                )
                .label("whose address it is, a key does not tell")
                .help("leave the format away to count by the address; with events, or in `ustack()`, it has a symbol"),
            );
        }
        // No character more than is shown: rows that look the same are the same.
        let string = self.limits.string.saturating_sub(1).clamp(2, KEY_STRING);
        item.value = match (&item.source, item.value) {
            // What is written in the query is not cut.
            (Source::Literal(_), value) => value,
            (_, ValueLayout::Name) => ValueLayout::Name,
            (_, ValueLayout::String { capacity }) => ValueLayout::String {
                capacity: capacity.min(string),
            },
            // Equal pointers are equal keys, whatever they point to.
            (_, ValueLayout::Scalar | ValueLayout::Pointee { .. }) => ValueLayout::Scalar,
            // What follows the NUL of a string is no part of it; a byte more shows whether there is one.
            (Source::Memory(place), ValueLayout::Bytes { full, .. })
                if self.is_text(&place.ty, item.format) =>
            {
                ValueLayout::String {
                    capacity: full.saturating_add(1).min(string),
                }
            }
            (
                _,
                value @ (ValueLayout::Bytes { .. } | ValueLayout::Buffer { .. } | ValueLayout::Stack { .. }),
            ) => {
                if let ValueLayout::Bytes { copied, full } = value
                    && (copied < full || full > 64)
                {
                    let name = spell(self.types, &item.ty);
                    return self.report(
                        Diagnostic::error(
                            Code::KeyTooLong,
                            expr.span,
                            format!("`{name}` of {full} bytes is too long for a key"),
                        )
                        .label("at most 64 bytes can be compared as a whole")
                        .help(match class(self.types, &item.ty) {
                            Class::Array { .. } => {
                                "name its elements, or take a part of it: `buf(&x[0], 16)`"
                            }
                            Class::Void
                            | Class::Int { .. }
                            | Class::Bool
                            | Class::Float
                            | Class::Ptr(_)
                            | Class::Composite(_)
                            | Class::Func
                            | Class::Opaque => "name its members",
                        }),
                    );
                }
                value
            }
        };
        if let Some(forced) = forced {
            item.when = forced;
            parts.forced.push(item.span);
        }
        parts.keys.push(item);
        Ok(())
    }

    /// Whether it is an array that is shown as the text in it: of `char` if the format does not ask for its numbers, of any bytes if it
    /// asks for a string. In other arrays a zero ends nothing.
    fn is_text(&self, ty: &CType, format: Option<Format>) -> bool {
        let Class::Array { elem, .. } = class(self.types, ty) else {
            return false;
        };
        match format {
            Some(Format::String) => size_of(self.types, &CType::Btf(elem)) == Some(1),
            None | Some(Format::Char | Format::Errno) => {
                matches!(self.types.get_stripped(elem), Type::Int(int) if int.is_char && int.size == 1)
            }
            Some(
                Format::Signed
                | Format::Unsigned
                | Format::Hex
                | Format::Octal
                | Format::Binary
                | Format::Ip
                | Format::Mac
                | Format::Symbol
                | Format::Dump
                | Format::BigEndian,
            ) => false,
        }
    }

    /// Sees to it that the keys together are as short as the kernel wants them: stacks without a stated depth get fewer frames.
    pub(super) fn fit_keys(&mut self, parts: &mut Parts, span: Span) -> R<()> {
        let size = |parts: &Parts| -> u32 { parts.keys.iter().map(|key| key.value.item_size()).sum() };
        while size(parts) > wire::KEY_MAX {
            let mut shorter = false;
            for index in parts.stacks.clone() {
                if let Some(key) = parts.keys.get_mut(index)
                    && let ValueLayout::Stack { depth, user } = key.value
                    && depth > 1
                {
                    key.value = ValueLayout::Stack {
                        depth: depth - 1,
                        user,
                    };
                    shorter = true;
                }
            }
            if !shorter {
                return self.report(
                    Diagnostic::error(
                        Code::KeyTooLong,
                        parts.by.unwrap_or(span),
                        format!(
                            "these keys take {} bytes, and the kernel allows {}",
                            size(parts),
                            wire::KEY_MAX
                        ),
                    )
                    .label("too long together")
                    .help(shorter_by(&parts.keys)),
                );
            }
        }
        Ok(())
    }
}

/// What makes keys like these shorter.
fn shorter_by(keys: &[Item]) -> String {
    let mut ways: Vec<&str> = Vec::new();
    for key in keys {
        let way = match key.value {
            ValueLayout::String { .. } => "`--max-string 32` makes strings in keys shorter",
            ValueLayout::Buffer { .. } => "`--max-bytes 64` makes what `buf` reads shorter",
            ValueLayout::Stack { .. } => "`kstack(10)` or `ustack(10)` is a shorter stack",
            ValueLayout::Scalar
            | ValueLayout::Name
            | ValueLayout::Pointee { .. }
            | ValueLayout::Bytes { .. } => continue,
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    match ways.is_empty() {
        true => "count by fewer keys".to_string(),
        false => ways.join(", "),
    }
}
