//! Expressions. In: tokens; out: `Expr`. C's operators with C's precedence; casts as told in `types`. Never resolves a
//! name, and never recurses or builds a tree deeper than `MAX_DEPTH`, so that no later walk over a tree can overflow
//! the stack.

use nom::Parser;
use nom::combinator::opt;

use super::MAX_DEPTH;
use super::ast::{Arg, BinaryOp, Expr, ExprKind, Ident, TypeBase, TypeName, UnaryOp};
use super::cursor::{Parsed, Problem, Tokens, fail, punct, too_deep};
use super::errors::{self, Inside, close};
use super::token::{Punct, Tok};
use super::types::{self, Ahead};
use crate::span::{Span, Spanned};

/// A whole expression: `binary`, or `binary ? expr : expr`.
pub(super) fn expr(i: Tokens<'_>) -> Parsed<'_, Tree> {
    let outer = i;
    let (i, cond) = binary(i)?;
    let (i, Some(question)) = opt(punct(Punct::Question)).parse(i)? else {
        return Ok((i, cond));
    };
    let (i, then) = expr(i.deeper()?)?;
    let (i, _) = close(Punct::Colon, Inside::Branch(question)).parse(i)?;
    let (i, otherwise) = expr(i)?;
    let height = cond.height.max(then.height).max(otherwise.height);
    let span = cond.outer.to(otherwise.outer);
    let (cond, then, otherwise) = (cond.boxed(), then.boxed(), otherwise.boxed());
    let tree = Tree::above(
        height,
        ExprKind::Cond {
            cond,
            then,
            otherwise,
        },
        span,
        question,
    )?;
    Ok((i.as_deep_as(outer), tree))
}

/// How tightly an infix operator binds; higher is tighter. The printer goes by it too.
pub(super) fn precedence(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem => 10,
        BinaryOp::Add | BinaryOp::Sub => 9,
        BinaryOp::Shl | BinaryOp::Shr => 8,
        BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => 7,
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Match => 6,
        BinaryOp::And => 5,
        BinaryOp::Xor => 4,
        BinaryOp::Or => 3,
        BinaryOp::LogAnd => 2,
        BinaryOp::LogOr => 1,
    }
}

/// An expression that is being built.
pub(super) struct Tree {
    pub(super) expr: Expr,
    /// Its place with the parentheses around it, so that `(a) + b` begins at the parenthesis.
    outer: Span,
    /// Levels of the tree.
    height: u16,
}

impl Tree {
    fn leaf(kind: ExprKind, span: Span) -> Tree {
        Tree {
            expr: Expr { kind, span },
            outer: span,
            height: 1,
        }
    }

    /// A node one level above its highest child; `blame` is where to point if that is too high.
    fn above(height: u16, kind: ExprKind, span: Span, blame: Span) -> Result<Tree, nom::Err<Problem>> {
        if height >= MAX_DEPTH {
            return fail(too_deep(blame));
        }
        Ok(Tree {
            height: height + 1,
            ..Tree::leaf(kind, span)
        })
    }

    fn boxed(self) -> Box<Expr> {
        Box::new(self.expr)
    }
}

/// Infix operators, all of them left associative: operands wait on a stack until an operator that binds no tighter
/// comes. Recursion would do, but would cost a level of it for each level of precedence.
fn binary(i: Tokens<'_>) -> Parsed<'_, Tree> {
    let mut waiting: Vec<(Tree, Spanned<BinaryOp>)> = Vec::new();
    let (mut i, mut right) = unary(i)?;
    while let Tok::Punct(Punct::Op(op)) = *i.kind() {
        while let Some((left, earlier)) = waiting.pop_if(|(_, e)| precedence(e.node) >= precedence(op)) {
            right = joined(left, earlier, right)?;
        }
        waiting.push((
            right,
            Spanned {
                node: op,
                span: i.span(),
            },
        ));
        (i, right) = unary(i.after())?;
    }
    while let Some((left, op)) = waiting.pop() {
        right = joined(left, op, right)?;
    }
    Ok((i, right))
}

fn joined(left: Tree, op: Spanned<BinaryOp>, right: Tree) -> Result<Tree, nom::Err<Problem>> {
    let (height, span, blame) = (left.height.max(right.height), left.outer.to(right.outer), op.span);
    Tree::above(
        height,
        ExprKind::Binary {
            op,
            lhs: left.boxed(),
            rhs: right.boxed(),
        },
        span,
        blame,
    )
}

/// What stands before an operand.
enum Prefix {
    Op(UnaryOp),
    Cast(TypeName),
    Sizeof,
}

/// Prefix operators and casts, gathered first and applied from the inside out.
fn unary(mut i: Tokens<'_>) -> Parsed<'_, Tree> {
    let mut prefixes = Vec::new();
    let (i, mut tree) = loop {
        let span = i.span();
        let (rest, found) = prefix(i)?;
        match found {
            Some(found) => prefixes.push((found, span)),
            None => break postfix(i)?,
        }
        i = rest;
    };
    for (prefix, span) in prefixes.into_iter().rev() {
        let (height, whole) = (tree.height, span.to(tree.outer));
        let kind = match prefix {
            Prefix::Op(op) => ExprKind::Unary {
                op: Spanned { node: op, span },
                operand: tree.boxed(),
            },
            Prefix::Cast(ty) => ExprKind::Cast {
                ty,
                operand: tree.boxed(),
            },
            Prefix::Sizeof => sizeof(span, tree.expr),
        };
        tree = Tree::above(height, kind, whole, span)?;
    }
    Ok((i, tree))
}

fn prefix(i: Tokens<'_>) -> Parsed<'_, Option<Prefix>> {
    let op = match i.kind() {
        Tok::Punct(Punct::LParen) => {
            let (i, ty) = types::cast(i)?;
            return Ok((i, ty.map(Prefix::Cast)));
        }
        Tok::Name if i.text() == "sizeof" => {
            // `sizeof(type)` is an operand, not a prefix.
            let (_, ty) = if i.after().is(Punct::LParen) {
                types::of_sizeof(i.after())?
            } else {
                (i, None)
            };
            return Ok((i.after(), ty.is_none().then_some(Prefix::Sizeof)));
        }
        Tok::Punct(Punct::Op(BinaryOp::Mul)) => UnaryOp::Deref,
        Tok::Punct(Punct::Op(BinaryOp::And)) => UnaryOp::Addr,
        Tok::Punct(Punct::Op(BinaryOp::Sub)) => UnaryOp::Neg,
        Tok::Punct(Punct::Op(BinaryOp::Add)) => UnaryOp::Plus,
        Tok::Punct(Punct::Bang) => UnaryOp::Not,
        Tok::Punct(Punct::Tilde) => UnaryOp::BitNot,
        Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) => return Ok((i, None)),
        Tok::Punct(_) | Tok::Bad(_) | Tok::End => return Ok((i, None)),
    };
    Ok((i.after(), Some(Prefix::Op(op))))
}

/// `sizeof expr`; a type that everybody knows needs no parentheses.
fn sizeof(word: Span, operand: Expr) -> ExprKind {
    match operand.kind {
        ExprKind::Name(node) if types::is_well_known(&node) => {
            let span = operand.span;
            ExprKind::SizeofType(TypeName {
                base: TypeBase::Named(Ident { node, span }),
                pointers: 0,
                span,
            })
        }
        kind => {
            let func = Ident {
                node: "sizeof".to_owned(),
                span: word,
            };
            ExprKind::Call {
                func,
                args: vec![Arg::Expr(Expr { kind, ..operand })],
            }
        }
    }
}

/// Members and indices after a primary expression.
fn postfix(i: Tokens<'_>) -> Parsed<'_, Tree> {
    let (mut i, mut base) = primary(i)?;
    loop {
        let (height, outer, step) = (base.height, base.outer, i.span());
        let arrow = i.is(Punct::Arrow);
        if arrow || i.is(Punct::Dot) {
            let name = i.after();
            if name.name().is_empty() {
                return fail(errors::missing_member(name));
            }
            let field = ident(name);
            let span = outer.to(field.span);
            base = Tree::above(
                height,
                ExprKind::Member {
                    base: base.boxed(),
                    arrow,
                    field,
                },
                span,
                step,
            )?;
            i = name.after();
        } else if i.is(Punct::LBracket) {
            let (rest, index) = expr(i.after().deeper()?)?;
            let (rest, end) = close(Punct::RBracket, Inside::Index(step)).parse(rest)?;
            let height = height.max(index.height);
            let kind = ExprKind::Index {
                base: base.boxed(),
                index: index.boxed(),
            };
            base = Tree::above(height, kind, outer.to(end), step)?;
            i = rest.as_deep_as(i);
        } else {
            return Ok((i, base));
        }
    }
}

fn primary(i: Tokens<'_>) -> Parsed<'_, Tree> {
    let leaf = |kind| Ok((i.after(), Tree::leaf(kind, i.span())));
    match i.kind() {
        Tok::Int(literal) => leaf(ExprKind::Int(*literal)),
        Tok::Char(byte) => leaf(ExprKind::Char(*byte)),
        Tok::Str(bytes) => leaf(ExprKind::Str(bytes.clone())),
        Tok::Builtin => leaf(ExprKind::Builtin(i.text()[1..].to_owned())),
        Tok::Name if i.text() == "sizeof" => sizeof_type(i),
        Tok::Name if types::is_type_word(i.text()) => fail(errors::missing_operand(i)),
        Tok::Name if i.after().is(Punct::LParen) => call(i),
        Tok::Name => leaf(ExprKind::Name(i.text().to_owned())),
        Tok::Punct(Punct::LParen) => parenthesized(i),
        Tok::Punct(_) | Tok::Bad(_) | Tok::End => fail(errors::missing_operand(i)),
    }
}

/// The value keeps its own span; what is built from it covers the parentheses too.
fn parenthesized(i: Tokens<'_>) -> Parsed<'_, Tree> {
    let open = i.span();
    let (rest, tree) = expr(i.after().deeper()?)?;
    let (rest, end) = close(Punct::RParen, Inside::Parentheses(open)).parse(rest)?;
    Ok((
        rest.as_deep_as(i),
        Tree {
            outer: open.to(end),
            ..tree
        },
    ))
}

/// `sizeof(type)`; `prefix` has made sure of it.
fn sizeof_type(i: Tokens<'_>) -> Parsed<'_, Tree> {
    let (rest, Some(ty)) = types::of_sizeof(i.after())? else {
        return fail(errors::missing_operand(i.after()));
    };
    let kind = match ty.base {
        // Without its `const`, a lone name may be a value again.
        TypeBase::Named(name) if ty.pointers == 0 => sizeof(
            i.span(),
            Expr {
                kind: ExprKind::Name(name.node),
                span: name.span,
            },
        ),
        base => ExprKind::SizeofType(TypeName { base, ..ty }),
    };
    Ok((rest, Tree::leaf(kind, i.span().to(rest.before().span()))))
}

/// `name(args)`, the place being before the name.
fn call(i: Tokens<'_>) -> Parsed<'_, Tree> {
    let (func, open) = (ident(i), i.after().span());
    let mut rest = i.after().after().deeper()?;
    let (mut args, mut height) = (Vec::new(), 0);
    let end = loop {
        if args.is_empty() && rest.is(Punct::RParen) {
            break rest.span();
        }
        let (after, (arg, levels)) = argument(rest)?;
        args.push(arg);
        height = height.max(levels);
        if after.is(Punct::Comma) {
            rest = after.after();
        } else {
            let (after, end) = close(Punct::RParen, Inside::Arguments(open)).parse(after)?;
            rest = after.before();
            break end;
        }
    };
    let tree = Tree::above(height, ExprKind::Call { func, args }, i.span().to(end), open)?;
    Ok((rest.after().as_deep_as(i), tree))
}

/// An argument and the height of its tree.
fn argument(i: Tokens<'_>) -> Parsed<'_, (Arg, u16)> {
    if types::ahead(i) != Ahead::Type {
        let (i, tree) = expr(i)?;
        return Ok((i, (Arg::Expr(tree.expr), tree.height)));
    }
    let (i, ty) = types::type_name(i)?;
    let arg = match ty.base {
        // Without its `const`, a lone name is an expression again.
        TypeBase::Named(name) if ty.pointers == 0 && !types::is_type_word(&name.node) => Arg::Expr(Expr {
            kind: ExprKind::Name(name.node),
            span: name.span,
        }),
        base => Arg::Type(TypeName { base, ..ty }),
    };
    Ok((i, (arg, 1)))
}

fn ident(i: Tokens<'_>) -> Ident {
    Ident {
        node: i.text().to_owned(),
        span: i.span(),
    }
}
