//! A tree as `--dump-ast` shows it: one node a line, its children indented, each with its span as `@start..end`.
//! In: a tree; out: text whose form is stable. Never changes with anything but the tree.

use std::fmt::Write;

use super::ast::{Arg, Expr, ExprKind, Ident, Item, Query, TargetKind};
use crate::span::Span;

/// The tree as text, with a newline at the end.
pub fn dump(query: &Query) -> String {
    let mut out = Dump {
        text: String::new(),
        indent: 0,
    };
    out.line("query", "", query.span, |out| {
        out.target(query);
        match &query.items {
            None => {}
            Some(items) => items.iter().for_each(|item| out.item(item)),
        }
        if let Some(cond) = &query.cond {
            out.line("if", "", cond.span, |out| out.expr(cond));
        }
    });
    out.text
}

struct Dump {
    text: String,
    indent: usize,
}

impl Dump {
    fn line(&mut self, kind: &str, detail: &str, span: Span, children: impl FnOnce(&mut Dump)) {
        let separator = if detail.is_empty() { "" } else { " " };
        let indent = self.indent * 2;
        writeln!(self.text, "{:indent$}{kind}{separator}{detail} @{span:?}", "")
            .expect("a string takes any text");
        self.indent += 1;
        children(self);
        self.indent -= 1;
    }

    fn leaf(&mut self, kind: &str, detail: &str, span: Span) {
        self.line(kind, detail, span, |_| {});
    }

    fn ident(&mut self, kind: &str, ident: &Ident) {
        self.leaf(kind, &ident.node, ident.span);
    }

    /// No items at all, which shows everything, and empty parentheses, which show nothing, are told apart here.
    fn target(&mut self, query: &Query) {
        let kind = match &query.target.kind {
            TargetKind::Function { .. } => "function",
            TargetKind::Tracepoint { .. } => "tracepoint",
            TargetKind::Uprobe { .. } => "uprobe",
            TargetKind::Usdt { .. } => "usdt",
        };
        let items = match &query.items {
            None => "all items",
            Some(items) if items.is_empty() => "no items",
            Some(_) => "",
        };
        self.line(kind, items, query.target.span, |out| match &query.target.kind {
            TargetKind::Function { module, name } => {
                module.iter().for_each(|module| out.ident("module", module));
                out.ident("name", name);
            }
            TargetKind::Tracepoint { group, event } => {
                group.iter().for_each(|group| out.ident("group", group));
                out.ident("event", event);
            }
            TargetKind::Uprobe { binary, symbol } => {
                out.ident("binary", binary);
                out.ident("symbol", symbol);
            }
            TargetKind::Usdt {
                binary,
                provider,
                name,
            } => {
                out.ident("binary", binary);
                out.ident("provider", provider);
                out.ident("name", name);
            }
        });
    }

    fn item(&mut self, item: &Item) {
        self.line("item", "", item.span, |out| {
            item.label.iter().for_each(|label| out.ident("label", label));
            out.expr(&item.expr);
            item.format.iter().for_each(|format| out.ident("format", format));
        });
    }

    fn expr(&mut self, expr: &Expr) {
        let span = expr.span;
        match &expr.kind {
            ExprKind::Int(literal) => self.leaf("int", &literal.to_string(), span),
            // The printer knows how to write them.
            ExprKind::Char(_) => self.leaf("char", &expr.to_string(), span),
            ExprKind::Str(_) => self.leaf("string", &expr.to_string(), span),
            ExprKind::Name(name) => self.leaf("name", name, span),
            ExprKind::Builtin(name) => self.leaf("builtin", name, span),
            ExprKind::Member { base, arrow, field } => {
                let detail = format!("{}{}", if *arrow { "->" } else { "." }, field.node);
                self.line("member", &detail, span, |out| out.expr(base));
            }
            ExprKind::Index { base, index } => self.line("index", "", span, |out| {
                out.expr(base);
                out.expr(index);
            }),
            ExprKind::Unary { op, operand } => {
                self.line("unary", &op.node.to_string(), span, |out| out.expr(operand));
            }
            ExprKind::Binary { op, lhs, rhs } => self.line("binary", &op.node.to_string(), span, |out| {
                out.expr(lhs);
                out.expr(rhs);
            }),
            ExprKind::Cond {
                cond,
                then,
                otherwise,
            } => self.line("conditional", "", span, |out| {
                out.expr(cond);
                out.expr(then);
                out.expr(otherwise);
            }),
            ExprKind::Cast { ty, operand } => {
                self.line("cast", &ty.to_string(), span, |out| out.expr(operand));
            }
            ExprKind::SizeofType(ty) => self.leaf("sizeof", &ty.to_string(), span),
            ExprKind::Call { func, args } => self.line("call", &func.node, span, |out| {
                for arg in args {
                    match arg {
                        Arg::Expr(expr) => out.expr(expr),
                        Arg::Type(ty) => out.leaf("type", &ty.to_string(), ty.span),
                        Arg::Key(key) => out.item(key),
                    }
                }
            }),
        }
    }
}
