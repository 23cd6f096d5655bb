//! The fetch expressions of the kernel's probe events (Documentation/trace/kprobetrace.rst), in terms of C: `+8(p)` is what lies
//! 8 bytes behind `p`, `+u8(p)` the same in user memory, `@NAME`, `@NAME+8` and `@ADDRESS` what lies at a symbol or an
//! address, `%NAME` a register; all are 64-bit numbers, which a cast or a format makes smaller. `\5` and `\"text"` are constants. In:
//! tokens. Out: `Expr`, as if C had been written. Never knows what a symbol's address is, nor which registers there are.

use super::ast::{Arg, BinaryOp, Expr, ExprKind, Ident, IntLit, Query, Radix, TypeBase, TypeName, UnaryOp};
use super::cursor::Tokens;
use super::token::{Punct, Tok};
use crate::span::{Span, Spanned};

/// The function that stands for a symbol's address.
pub(crate) const ADDRESS_OF: &str = "kaddr";
/// The function that stands for a register.
pub(crate) const REGISTER: &str = "reg";
/// The function that stands for a constant to be shown.
pub(crate) const IMMEDIATE: &str = "imm";

/// The functions for data of this CPU, and the kernel's array of where that is: its address is asked for with each of them.
pub(crate) const THIS_CPU_PTR: &str = "this_cpu_ptr";
pub(crate) const THIS_CPU_READ: &str = "this_cpu_read";
pub(crate) const PER_CPU_OFFSETS: &str = "__per_cpu_offset";

/// A distance before a parenthesis.
pub(super) struct Offset {
    sign: BinaryOp,
    distance: IntLit,
    user: bool,
    span: Span,
}

/// Whether a fetch expression with a distance begins here.
pub(super) fn ahead(i: Tokens<'_>) -> bool {
    offset(i).is_some()
}

/// `+8(`, `-8(`, `+u8(`: the distance, and the place of the parenthesis.
pub(super) fn offset(i: Tokens<'_>) -> Option<(Tokens<'_>, Offset)> {
    let sign = match i.kind() {
        Tok::Punct(Punct::Op(op @ (BinaryOp::Add | BinaryOp::Sub))) => *op,
        Tok::Punct(_) | Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) => return None,
        Tok::Bad(_) | Tok::End => return None,
    };
    let number = i.after();
    let (distance, user) = match number.kind() {
        Tok::Int(literal) => (*literal, false),
        Tok::Name => (decimal(number.text().strip_prefix('u')?)?, true),
        Tok::Punct(_) | Tok::Builtin | Tok::Char(_) | Tok::Str(_) => return None,
        Tok::Bad(_) | Tok::End => return None,
    };
    let open = number.after();
    open.is(Punct::LParen).then_some((
        open,
        Offset {
            sign,
            distance,
            user,
            span: i.span().to(number.span()),
        },
    ))
}

/// What lies so far from the address `base`; `span` is all of it.
pub(super) fn at_offset(offset: Offset, base: Expr, span: Span) -> ExprKind {
    let bytes = cast("char", base, span);
    let moved = Expr {
        kind: ExprKind::Binary {
            op: Spanned {
                node: offset.sign,
                span: offset.span,
            },
            lhs: Box::new(bytes),
            rhs: Box::new(Expr {
                kind: ExprKind::Int(offset.distance),
                span: offset.span,
            }),
        },
        span,
    };
    let moved = if offset.user {
        call("user", moved, span)
    } else {
        moved
    };
    deref(cast("u64", moved, span), span)
}

/// `@NAME`, `@NAME+8` (without blanks) or `@ADDRESS`: what is there, and the place behind it. `None` if it is none of these.
pub(super) fn symbol(i: Tokens<'_>) -> Option<(Tokens<'_>, ExprKind, Span)> {
    let what = i.after();
    let mut rest = what.after();
    let mut span = i.span().to(what.span());
    let address = match what.kind() {
        Tok::Name => {
            let name = Expr {
                kind: ExprKind::Str(what.text().as_bytes().to_vec()),
                span: what.span(),
            };
            let mut address = cast("char", call(ADDRESS_OF, name, what.span()), what.span());
            if let Some((after, op, literal)) = distance(rest, span) {
                span = i.span().to(after.before().span());
                address = Expr {
                    kind: ExprKind::Binary {
                        op,
                        lhs: Box::new(address),
                        rhs: Box::new(literal),
                    },
                    span,
                };
                rest = after;
            }
            address
        }
        Tok::Int(literal) => {
            let number = Expr {
                kind: ExprKind::Int(*literal),
                span: what.span(),
            };
            cast("char", number, what.span())
        }
        Tok::Punct(_) | Tok::Builtin | Tok::Char(_) | Tok::Str(_) => return None,
        Tok::Bad(_) | Tok::End => return None,
    };
    Some((rest, deref(cast("u64", address, span), span), span))
}

/// `+8` or `-8` right behind what ends at `before`.
fn distance(i: Tokens<'_>, before: Span) -> Option<(Tokens<'_>, Spanned<BinaryOp>, Expr)> {
    let Tok::Punct(Punct::Op(op @ (BinaryOp::Add | BinaryOp::Sub))) = i.kind() else {
        return None;
    };
    let number = i.after();
    let Tok::Int(literal) = number.kind() else {
        return None;
    };
    let close = i.span().start == before.end && number.span().start == i.span().end;
    close.then_some((
        number.after(),
        Spanned {
            node: *op,
            span: i.span(),
        },
        Expr {
            kind: ExprKind::Int(*literal),
            span: number.span(),
        },
    ))
}

/// `%NAME` (without blanks): the register, and the place behind it. `None` if it is none.
pub(super) fn register(i: Tokens<'_>) -> Option<(Tokens<'_>, ExprKind, Span)> {
    let name = i.after();
    if name.name().is_empty() || name.span().start != i.span().end {
        return None;
    }
    let span = i.span().to(name.span());
    let text = Expr {
        kind: ExprKind::Str(name.text().as_bytes().to_vec()),
        span,
    };
    Some((name.after(), call(REGISTER, text, span).kind, span))
}

/// A backslash and a number, with or without a sign, or a text: the constant, and the place behind it. `None` if it is none.
pub(super) fn immediate(i: Tokens<'_>) -> Option<(Tokens<'_>, ExprKind, Span)> {
    let first = i.after();
    let (sign, constant) = match first.kind() {
        Tok::Punct(Punct::Op(BinaryOp::Sub)) => (Some(UnaryOp::Neg), first.after()),
        Tok::Punct(Punct::Op(BinaryOp::Add)) => (Some(UnaryOp::Plus), first.after()),
        Tok::Punct(_) | Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) => (None, first),
        Tok::Bad(_) | Tok::End => return None,
    };
    let kind = match constant.kind() {
        Tok::Int(literal) => ExprKind::Int(*literal),
        Tok::Str(text) if sign.is_none() => ExprKind::Str(text.clone()),
        Tok::Punct(_) | Tok::Name | Tok::Builtin | Tok::Char(_) | Tok::Str(_) => return None,
        Tok::Bad(_) | Tok::End => return None,
    };
    let mut value = Expr {
        kind,
        span: constant.span(),
    };
    if let Some(op) = sign {
        let span = first.span();
        value = Expr {
            kind: ExprKind::Unary {
                op: Spanned { node: op, span },
                operand: Box::new(value),
            },
            span: span.to(constant.span()),
        };
    }
    let span = i.span().to(constant.span());
    Some((constant.after(), call(IMMEDIATE, value, span).kind, span))
}

/// What the types `%pd` and `%pD` show of an address: the name of a `struct dentry`, and of a `struct file`'s one
/// (`traceprobe_expand_dentry_args`, kernel/trace/trace_probe.c).
pub(super) fn name_of(expr: Expr, file: bool) -> Expr {
    let span = expr.span;
    let pointer = Expr {
        kind: ExprKind::Cast {
            ty: TypeName {
                base: TypeBase::Struct(Ident {
                    node: if file { "file" } else { "dentry" }.to_owned(),
                    span,
                }),
                pointers: 1,
                span,
            },
            operand: Box::new(expr),
        },
        span,
    };
    let steps: &[(&str, bool)] = match file {
        true => &[
            ("f_path", true),
            ("dentry", false),
            ("d_name", true),
            ("name", false),
        ],
        false => &[("d_name", true), ("name", false)],
    };
    steps.iter().fold(pointer, |base, (field, arrow)| Expr {
        kind: ExprKind::Member {
            base: Box::new(base),
            arrow: *arrow,
            field: Ident {
                node: (*field).to_owned(),
                span,
            },
        },
        span,
    })
}

/// The names of all symbols whose addresses a query asks for.
pub fn symbols(query: &Query) -> Vec<String> {
    let mut names = Vec::new();
    let items = query.items.iter().flatten().map(|item| &item.expr);
    let mut left: Vec<&Expr> = items.chain(&query.cond).collect();
    while let Some(expr) = left.pop() {
        match &expr.kind {
            ExprKind::Call { func, args } => {
                if matches!(func.node.as_str(), THIS_CPU_PTR | THIS_CPU_READ) {
                    names.push(PER_CPU_OFFSETS.to_owned());
                }
                for arg in args {
                    match arg {
                        Arg::Expr(Expr {
                            kind: ExprKind::Str(name),
                            ..
                        }) if func.node == ADDRESS_OF => {
                            names.push(String::from_utf8_lossy(name).into_owned());
                        }
                        Arg::Expr(inner) => left.push(inner),
                        Arg::Type(_) => {}
                        Arg::Key(key) => left.push(&key.expr),
                    }
                }
            }
            ExprKind::Member { base, .. } => left.push(base),
            ExprKind::Index { base, index } => left.extend([&**base, &**index]),
            ExprKind::Unary { operand, .. } | ExprKind::Cast { operand, .. } => left.push(operand),
            ExprKind::Binary { lhs, rhs, .. } => left.extend([&**lhs, &**rhs]),
            ExprKind::Cond {
                cond,
                then,
                otherwise,
            } => left.extend([&**cond, &**then, &**otherwise]),
            ExprKind::Int(_)
            | ExprKind::Char(_)
            | ExprKind::Str(_)
            | ExprKind::Name(_)
            | ExprKind::Builtin(_)
            | ExprKind::SizeofType(_) => {}
        }
    }
    names.sort();
    names.dedup();
    names
}

fn decimal(digits: &str) -> Option<IntLit> {
    Some(IntLit {
        value: digits.parse().ok()?,
        radix: Radix::Decimal,
        unsigned: false,
        longs: 0,
    })
}

fn cast(to: &str, operand: Expr, span: Span) -> Expr {
    let base = TypeBase::Named(Ident {
        node: to.to_owned(),
        span,
    });
    Expr {
        kind: ExprKind::Cast {
            ty: TypeName {
                base,
                pointers: 1,
                span,
            },
            operand: Box::new(operand),
        },
        span,
    }
}

fn call(func: &str, arg: Expr, span: Span) -> Expr {
    Expr {
        kind: ExprKind::Call {
            func: Ident {
                node: func.to_owned(),
                span,
            },
            args: vec![Arg::Expr(arg)],
        },
        span,
    }
}

fn deref(operand: Expr, span: Span) -> ExprKind {
    ExprKind::Unary {
        op: Spanned {
            node: UnaryOp::Deref,
            span,
        },
        operand: Box::new(operand),
    }
}
