//! Call stacks: `kstack([n])` and `ustack([n])`, which are items or keys of their own, and the stacks that the command line asks
//! for with each event.

use super::{R, Sema, Stacks};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, Arg, ExprKind as Ast};
use crate::span::Span;
use crate::typed::{Event, Item, Source, When};
use crate::wire::{Phase, ValueLayout};

/// Frames of a stack, if nothing else is said: as many as the kernel itself collects (`kernel.perf_event_max_stack`).
const FRAMES: u32 = 127;
/// Frames of a stack in a key, if nothing else is said: a key has no room for many more.
const KEY_FRAMES: u32 = 40;
/// The most frames that can be asked for.
const FRAMES_MAX: u32 = 1024;

/// Whether a call asks for a stack, and for the user's.
pub(super) fn is_stack(name: &str) -> Option<bool> {
    match name {
        "kstack" => Some(false),
        "ustack" => Some(true),
        _ => None,
    }
}

impl Sema<'_> {
    /// The stack that an expression asks for, if it is such a call.
    pub(super) fn call_stack(&mut self, expr: &ast::Expr, key: bool, label: String) -> Option<R<Item>> {
        let Ast::Call { func, args } = &expr.kind else {
            return None;
        };
        let user = is_stack(&func.node)?;
        Some(
            self.frames(func, args, key, expr.span)
                .map(|depth| item(user, depth, label, When::Entry, expr.span)),
        )
    }

    /// A query that aggregates sends no events that stacks could come with.
    pub(super) fn without_stacks(&mut self, span: Span) -> R<()> {
        let (option, key) = match (self.limits.stacks.kernel, self.limits.stacks.user) {
            (false, false) => return Ok(()),
            (true, false) => ("-k", "kstack()"),
            (false, true) => ("-U", "ustack()"),
            (true, true) => ("-k and -U", "kstack(), ustack()"),
        };
        self.report(
            Diagnostic::error(
                Code::MixedAggregation,
                span,
                format!("{option} shows stacks with events, and a query that aggregates sends none"),
            )
            .label("its hits are only counted")
            .help(format!("count by stacks: `by({key})`")),
        )
    }

    fn frames(&mut self, func: &ast::Ident, args: &[Arg], key: bool, span: Span) -> R<u32> {
        let number = match args {
            [] => return Ok(if key { KEY_FRAMES } else { FRAMES }),
            [Arg::Expr(number)] => number,
            _ => {
                return self.report(
                    Diagnostic::error(
                        Code::BadArguments,
                        span,
                        format!("`{}` is not called so", func.node),
                    )
                    .label("wrong arguments")
                    .help(format!("write `{0}()` or `{0}(frames)`", func.node)),
                );
            }
        };
        let typed = self.scalar(number)?;
        let frames = typed.constant().and_then(|frames| u32::try_from(frames).ok());
        match frames {
            Some(frames @ 1..=FRAMES_MAX) => Ok(frames),
            Some(_) | None => self.report(
                Diagnostic::error(
                    Code::BadArguments,
                    number.span,
                    format!("a stack has a constant number of frames, from 1 to {FRAMES_MAX}"),
                )
                .label("not such a number"),
            ),
        }
    }
}

/// Adds the stacks that are wanted with each event.
pub(super) fn add(events: &mut [Event], stacks: Stacks, span: Span) {
    for event in events {
        let when = match event.phase {
            Phase::Entry | Phase::Hit => When::Entry,
            Phase::Return | Phase::Both => When::Return,
        };
        for (wanted, user, label) in [(stacks.kernel, false, "kstack"), (stacks.user, true, "ustack")] {
            if wanted {
                event
                    .items
                    .push(item(user, FRAMES, label.to_string(), when, span));
            }
        }
    }
}

fn item(user: bool, depth: u32, label: String, when: When, span: Span) -> Item {
    Item {
        label,
        source: Source::Stack { user },
        ty: CType::Ptr(Box::new(CType::Void)),
        value: ValueLayout::Stack { depth, user },
        format: None,
        when,
        span,
    }
}
