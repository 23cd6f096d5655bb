//! The syntax tree of one query: what was written, with spans; nothing is resolved here. Goes in: nothing;
//! comes out: plain data. Never knows a kernel type.

use crate::span::{Span, Spanned};

/// A name and where it was written.
pub type Ident = Spanned<String>;

/// A whole query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// What to trace.
    pub target: Target,
    /// `None`: no parentheses at all (everything is shown). `Some(vec![])`: `f()`, nothing is shown.
    pub items: Option<Vec<Item>>,
    /// The condition after `if`.
    pub cond: Option<Expr>,
    /// All of it.
    pub span: Span,
}

/// What to trace, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which kind of probe.
    pub kind: TargetKind,
    /// All of it.
    pub span: Span,
}

/// The kinds of target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// `FUNC`, `MODULE:FUNC`; the name may be a glob and may carry a compiler suffix.
    Function {
        /// The module before the colon.
        module: Option<Ident>,
        /// The function.
        name: Ident,
    },
    /// `tp:EVENT`, `tp:GROUP:EVENT`.
    Tracepoint {
        /// The group (subsystem), if given.
        group: Option<Ident>,
        /// The event.
        event: Ident,
    },
    /// `uprobe:BINARY:SYMBOL` or `uprobe:BINARY:0xADDRESS`.
    Uprobe {
        /// Path or library name.
        binary: Ident,
        /// Symbol, or an address as written.
        symbol: Ident,
    },
    /// `usdt:BINARY:PROVIDER:NAME`.
    Usdt {
        /// Path or library name.
        binary: Ident,
        /// The provider.
        provider: Ident,
        /// The probe.
        name: Ident,
    },
}

/// One thing between the parentheses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// `LABEL=`.
    pub label: Option<Ident>,
    /// The expression.
    pub expr: Expr,
    /// `:FORMAT`.
    pub format: Option<Ident>,
    /// All of it.
    pub span: Span,
}

/// An expression and where it was written (parentheses around it included in neither).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it is.
    pub span: Span,
}

/// The kinds of expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExprKind {
    /// An integer literal.
    Int(IntLit),
    /// A character literal, its value (0 to 255).
    Char(u8),
    /// A string literal, unescaped.
    Str(Vec<u8>),
    /// A plain name: an argument, a built-in, an enum constant, an errno; `return` too.
    Name(String),
    /// `$name`: always the built-in (without the dollar).
    Builtin(String),
    /// `base.field` or `base->field`.
    Member {
        /// What is to the left.
        base: Box<Expr>,
        /// `->` rather than `.`.
        arrow: bool,
        /// The member.
        field: Ident,
    },
    /// `base[index]`.
    Index {
        /// What is indexed.
        base: Box<Expr>,
        /// The index.
        index: Box<Expr>,
    },
    /// A prefix operator; the span of the operator itself is kept.
    Unary {
        /// The operator.
        op: Spanned<UnaryOp>,
        /// Its operand.
        operand: Box<Expr>,
    },
    /// An infix operator.
    Binary {
        /// The operator.
        op: Spanned<BinaryOp>,
        /// To its left.
        lhs: Box<Expr>,
        /// To its right.
        rhs: Box<Expr>,
    },
    /// `cond ? then : otherwise`.
    Cond {
        /// The condition.
        cond: Box<Expr>,
        /// If it is not zero.
        then: Box<Expr>,
        /// If it is zero.
        otherwise: Box<Expr>,
    },
    /// `(type)operand`.
    Cast {
        /// The type.
        ty: TypeName,
        /// What is cast.
        operand: Box<Expr>,
    },
    /// `sizeof(type)`; with an expression it is `Call` to `sizeof`.
    SizeofType(TypeName),
    /// `name(args…)`: a built-in function. `sizeof expr` is a call too. An argument may be a type (`container_of`).
    Call {
        /// The function.
        func: Ident,
        /// Its arguments.
        args: Vec<Arg>,
    },
}

/// An argument of a built-in function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// An expression.
    Expr(Expr),
    /// A type that can't be an expression: it begins with `struct`, `union`, `enum` or one of C's own types, or has a
    /// `*` at its end (`offsetof(struct sk_buff, len)`, `container_of(p, struct x, m)`); a lone name is an expression.
    Type(TypeName),
    /// A key with a label, a format or both: `by(proto = sk->sk_protocol, sk->saddr:ip)`. Only `by` has such arguments.
    Key(Box<Item>),
}

/// An integer literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntLit {
    /// Its value; one that needs more than 64 bits is a parse error.
    pub value: u64,
    /// How it was written.
    pub radix: Radix,
    /// `u` in the suffix.
    pub unsigned: bool,
    /// Number of `l` in the suffix, 0 to 2.
    pub longs: u8,
}

/// How an integer was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Radix {
    /// `0b101`.
    Binary,
    /// `017`.
    Octal,
    /// `15`.
    Decimal,
    /// `0xf`.
    Hex,
}

/// A type as written: `struct tcp_sock *`, `u32`, `unsigned long`, `enum foo`, `const char **`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeName {
    /// What the pointers, if any, point to.
    pub base: TypeBase,
    /// Number of `*`.
    pub pointers: u8,
    /// All of it.
    pub span: Span,
}

/// The part of a type before its `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeBase {
    /// `struct NAME`.
    Struct(Ident),
    /// `union NAME`.
    Union(Ident),
    /// `enum NAME`.
    Enum(Ident),
    /// A typedef or one-word type: `u32`, `int`, `size_t`, `void`.
    Named(Ident),
    /// More than one C keyword, in canonical order as BTF has it: `unsigned int`, `long unsigned int`, …; see the parser.
    Words(Spanned<String>),
}

/// Prefix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    /// `*p`.
    Deref,
    /// `&x`.
    Addr,
    /// `!x`.
    Not,
    /// `~x`.
    BitNot,
    /// `-x`.
    Neg,
    /// `+x`.
    Plus,
}

/// Infix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `<<`
    Shl,
    /// `>>`
    Shr,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `=~` (glob)
    Match,
    /// `&`
    And,
    /// `^`
    Xor,
    /// `|`
    Or,
    /// `&&`
    LogAnd,
    /// `||`
    LogOr,
}

impl Arg {
    /// Where it is.
    pub fn span(&self) -> Span {
        match self {
            Arg::Expr(expr) => expr.span,
            Arg::Type(ty) => ty.span,
            Arg::Key(key) => key.span,
        }
    }
}
