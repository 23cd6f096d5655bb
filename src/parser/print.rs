//! Trees back to text, canonically: one spelling for each tree, with as few parentheses as it takes. In: a tree that
//! the parser made (or could have); out: text that parses to the same tree but for the spans. Never keeps what the
//! user's spacing was.

use std::fmt::{self, Display, Formatter, Write};

use super::ast::{
    Arg, BinaryOp, Expr, ExprKind, Ident, IntLit, Item, Query, Radix, Target, TargetKind, TypeBase, TypeName,
    UnaryOp,
};
use super::expr::precedence;
use super::target::written;
use super::types;

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.target)?;
        if let Some(items) = &self.items {
            f.write_char('(')?;
            separated(f, items)?;
            f.write_char(')')?;
        }
        match &self.cond {
            Some(cond) => write!(f, " if {cond}"),
            None => Ok(()),
        }
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = |ident: &Option<Ident>| {
            ident
                .as_ref()
                .map_or(String::new(), |ident| format!("{}:", ident.node))
        };
        match &self.kind {
            TargetKind::Function { module, name } => write!(f, "{}{}", text(module), name.node),
            TargetKind::Tracepoint { group, event } => write!(f, "tp:{}{}", text(group), event.node),
            TargetKind::Uprobe { binary, symbol } => write!(
                f,
                "uprobe:{}:{}",
                written(&binary.node, false),
                written(&symbol.node, true)
            ),
            TargetKind::Usdt {
                binary,
                provider,
                name,
            } => {
                let binary = written(&binary.node, false);
                write!(f, "usdt:{binary}:{}:{}", provider.node, name.node)
            }
        }
    }
}

impl Display for Item {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let expr = self.expr.to_string();
        if let Some(label) = &self.label {
            // `=~` would be one token where a pattern follows.
            let space = if expr.starts_with('~') { " " } else { "" };
            write!(f, "{}={space}", label.node)?;
        }
        f.write_str(&expr)?;
        match &self.format {
            Some(format) => write!(f, ":{}", format.node),
            None => Ok(()),
        }
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ExprKind::Int(literal) => write!(f, "{literal}"),
            ExprKind::Char(byte) => write!(f, "'{}'", escaped(&[*byte], '\'')),
            ExprKind::Str(bytes) => write!(f, "\"{}\"", escaped(bytes, '"')),
            ExprKind::Name(name) => f.write_str(name),
            ExprKind::Builtin(name) => write!(f, "${name}"),
            ExprKind::Member { base, arrow, field } => {
                // `1.x` would be one number.
                let number = !arrow && matches!(base.kind, ExprKind::Int(_));
                within(f, base, if number { LEVEL_NEVER } else { LEVEL_POSTFIX })?;
                write!(f, "{}{}", if *arrow { "->" } else { "." }, field.node)
            }
            ExprKind::Index { base, index } => {
                within(f, base, LEVEL_POSTFIX)?;
                write!(f, "[{index}]")
            }
            ExprKind::Unary { op, operand } => {
                write!(f, "{}", op.node)?;
                let operand = text_within(operand, LEVEL_UNARY);
                // `--`, `++` and `&&` would be one token.
                let sign = sign(op.node);
                if matches!(sign, '-' | '+' | '&') && operand.starts_with(sign) {
                    f.write_char(' ')?;
                }
                f.write_str(&operand)
            }
            ExprKind::Binary { op, lhs, rhs } => {
                within(f, lhs, precedence(op.node))?;
                write!(f, " {} ", op.node)?;
                within(f, rhs, precedence(op.node) + 1)
            }
            ExprKind::Cond {
                cond,
                then,
                otherwise,
            } => {
                within(f, cond, LEVEL_COND + 1)?;
                write!(f, " ? {then} : {otherwise}")
            }
            ExprKind::Cast { ty, operand } => {
                let operand = text_within(operand, LEVEL_UNARY);
                if reads_as_cast(ty, &operand) {
                    write!(f, "({ty}){operand}")
                } else {
                    write!(f, "({ty})({operand})")
                }
            }
            ExprKind::SizeofType(ty) => write!(f, "sizeof({ty})"),
            ExprKind::Call { func, args } => {
                write!(f, "{}(", func.node)?;
                separated(f, args)?;
                f.write_char(')')
            }
        }
    }
}

impl Display for Arg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Arg::Expr(expr) => write!(f, "{expr}"),
            Arg::Type(ty) => write!(f, "{ty}"),
            Arg::Key(key) => write!(f, "{key}"),
        }
    }
}

impl Display for IntLit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.radix {
            Radix::Binary => write!(f, "0b{:b}", self.value)?,
            Radix::Octal => write!(f, "0{:o}", self.value)?,
            Radix::Decimal => write!(f, "{}", self.value)?,
            Radix::Hex => write!(f, "0x{:x}", self.value)?,
        }
        f.write_str(if self.unsigned { "u" } else { "" })?;
        f.write_str(["", "l", "ll"][usize::from(self.longs.min(2))])
    }
}

impl Display for TypeName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.base {
            TypeBase::Struct(name) => write!(f, "struct {}", name.node)?,
            TypeBase::Union(name) => write!(f, "union {}", name.node)?,
            TypeBase::Enum(name) => write!(f, "enum {}", name.node)?,
            TypeBase::Named(name) => f.write_str(&name.node)?,
            TypeBase::Words(words) => f.write_str(&words.node)?,
        }
        if self.pointers > 0 {
            write!(f, " {}", "*".repeat(self.pointers.into()))?;
        }
        Ok(())
    }
}

impl Display for UnaryOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char(sign(*self))
    }
}

impl Display for BinaryOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Rem => "%",
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Shl => "<<",
            BinaryOp::Shr => ">>",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Match => "=~",
            BinaryOp::And => "&",
            BinaryOp::Xor => "^",
            BinaryOp::Or => "|",
            BinaryOp::LogAnd => "&&",
            BinaryOp::LogOr => "||",
        })
    }
}

// How tightly each kind of expression holds together; infix operators, 1 to 10, are in between.
const LEVEL_COND: u8 = 0;
const LEVEL_UNARY: u8 = 11;
const LEVEL_POSTFIX: u8 = 12;
const LEVEL_NEVER: u8 = 13;

fn level(expr: &Expr) -> u8 {
    match &expr.kind {
        ExprKind::Cond { .. } => LEVEL_COND,
        ExprKind::Binary { op, .. } => precedence(op.node),
        ExprKind::Unary { .. } | ExprKind::Cast { .. } | ExprKind::SizeofType(_) => LEVEL_UNARY,
        // `sizeof(a)->b` is the size of `(a)->b`.
        ExprKind::Call { func, .. } if func.node == "sizeof" => LEVEL_UNARY,
        ExprKind::Call { .. } | ExprKind::Member { .. } | ExprKind::Index { .. } => LEVEL_POSTFIX,
        ExprKind::Int(_) | ExprKind::Char(_) | ExprKind::Str(_) => LEVEL_POSTFIX,
        ExprKind::Name(_) | ExprKind::Builtin(_) => LEVEL_POSTFIX,
    }
}

/// Writes `expr` where something that holds together at least as tightly as `least` must be.
fn within(f: &mut impl Write, expr: &Expr, least: u8) -> fmt::Result {
    if level(expr) < least {
        write!(f, "({expr})")
    } else {
        write!(f, "{expr}")
    }
}

fn text_within(expr: &Expr, least: u8) -> String {
    let mut text = String::new();
    within(&mut text, expr, least).expect("a string takes any text");
    text
}

/// Whether the parser takes `(ty)operand` for a cast; see `types`.
fn reads_as_cast(ty: &TypeName, operand: &str) -> bool {
    match &ty.base {
        TypeBase::Named(name) if ty.pointers == 0 && !types::is_well_known(&name.node) => {
            let end = operand
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(operand.len());
            !operand.starts_with(['-', '+', '*', '&']) && !types::is_operator_word(&operand[..end])
        }
        TypeBase::Named(_) | TypeBase::Words(_) => true,
        TypeBase::Struct(_) | TypeBase::Union(_) | TypeBase::Enum(_) => true,
    }
}

fn separated<T: Display>(f: &mut Formatter<'_>, all: &[T]) -> fmt::Result {
    for (n, one) in all.iter().enumerate() {
        write!(f, "{}{one}", if n == 0 { "" } else { ", " })?;
    }
    Ok(())
}

fn sign(op: UnaryOp) -> char {
    match op {
        UnaryOp::Deref => '*',
        UnaryOp::Addr => '&',
        UnaryOp::Not => '!',
        UnaryOp::BitNot => '~',
        UnaryOp::Neg => '-',
        UnaryOp::Plus => '+',
    }
}

/// The inside of a literal. Letters of any language stay; bytes that are no text, and what can't be seen, become `\x`
/// and two digits.
fn escaped(bytes: &[u8], quote: char) -> String {
    let mut out = String::new();
    let hex = |out: &mut String, bytes: &[u8]| {
        bytes
            .iter()
            .for_each(|byte| out.push_str(&format!("\\x{byte:02x}")))
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\0' => out.push_str("\\x00"),
                '\\' => out.push_str("\\\\"),
                c if c == quote => out.extend(['\\', c]),
                ' '..='~' => out.push(c),
                c if c.is_alphanumeric() => out.push(c),
                c => hex(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        hex(&mut out, chunk.invalid());
    }
    out
}
