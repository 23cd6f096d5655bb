//! Expressions. In: tokens; out: `Expr`. C's operators with C's precedence; casts as told in `types`. Never resolves a
//! name, and never recurses or builds a tree deeper than `MAX_DEPTH`, so that no later walk over a tree can overflow
//! the stack.

use nom::Parser;

use super::MAX_DEPTH;
use super::ast::{Arg, BinaryOp, Expr, ExprKind, Ident, Item, TypeBase, TypeName, UnaryOp};
use super::cursor::{Parsed, Problem, Tokens, fail, too_deep};
use super::errors::{self, Inside, close};
use super::fetch;
use super::query;
use super::token::{Punct, Tok};
use super::types::{self, Ahead};
use crate::span::{Span, Spanned};

/// A whole expression: `binary`, or `binary ? expr : expr`.
pub(super) fn expr(i: Tokens<'_>) -> Parsed<'_, Tree> {
    let (i, cond) = binary(i)?;
    if i.is(Punct::Question) {
        branches(i, cond)
    } else {
        Ok((i, cond))
    }
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
    /// In a box from the first, since trees are handed through every level of the recursion.
    pub(super) expr: Box<Expr>,
    /// Its place with the parentheses around it, so that `(a) + b` begins at the parenthesis.
    outer: Span,
    /// Levels of the tree.
    height: u16,
}

impl Tree {
    fn leaf(kind: ExprKind, span: Span) -> Tree {
        Tree {
            expr: Box::new(Expr { kind, span }),
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
}

/// `? expr : expr`. Both branches are a level further in, so that a chain of them is bounded too.
fn branches<'a>(i: Tokens<'a>, cond: Tree) -> Parsed<'a, Tree> {
    let question = i.span();
    let (rest, then) = expr(i.after().deeper()?)?;
    let (rest, _) = close(Punct::Colon, Inside::Branch(question)).parse(rest)?;
    let (rest, otherwise) = expr(rest)?;
    let height = cond.height.max(then.height).max(otherwise.height);
    let span = cond.outer.to(otherwise.outer);
    let kind = ExprKind::Cond {
        cond: cond.expr,
        then: then.expr,
        otherwise: otherwise.expr,
    };
    Ok((rest.as_deep_as(i), Tree::above(height, kind, span, question)?))
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
            lhs: left.expr,
            rhs: right.expr,
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
    while let (rest, Some(found)) = prefix(i)? {
        prefixes.push((found, i.span()));
        i = rest;
    }
    let (i, tree) = postfix(i)?;
    Ok((i, prefixed(prefixes, tree)?))
}

fn prefixed(prefixes: Vec<(Prefix, Span)>, mut tree: Tree) -> Result<Tree, nom::Err<Problem>> {
    for (prefix, span) in prefixes.into_iter().rev() {
        let (height, whole) = (tree.height, span.to(tree.outer));
        let kind = match prefix {
            Prefix::Op(op) => ExprKind::Unary {
                op: Spanned { node: op, span },
                operand: tree.expr,
            },
            Prefix::Cast(ty) => ExprKind::Cast {
                ty,
                operand: tree.expr,
            },
            Prefix::Sizeof => sizeof(span, *tree.expr),
        };
        tree = Tree::above(height, kind, whole, span)?;
    }
    Ok(tree)
}

fn prefix(i: Tokens<'_>) -> Parsed<'_, Option<Prefix>> {
    if fetch::ahead(i) {
        return Ok((i, None));
    }
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
        kind @ (ExprKind::Int(_)
        | ExprKind::Char(_)
        | ExprKind::Str(_)
        | ExprKind::Name(_)
        | ExprKind::Builtin(_)
        | ExprKind::Member { .. }
        | ExprKind::Index { .. }
        | ExprKind::Unary { .. }
        | ExprKind::Binary { .. }
        | ExprKind::Cond { .. }
        | ExprKind::Cast { .. }
        | ExprKind::SizeofType(_)
        | ExprKind::Call { .. }) => {
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
        (i, base) = match i.kind() {
            Tok::Punct(Punct::Dot | Punct::Arrow) => member(i, base)?,
            Tok::Punct(Punct::LBracket) => indexed(i, base)?,
            Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) => return Ok((i, base)),
            Tok::Punct(_) | Tok::Bad(_) | Tok::End => return Ok((i, base)),
        };
    }
}

fn member<'a>(i: Tokens<'a>, base: Tree) -> Parsed<'a, Tree> {
    let name = i.after();
    if name.name().is_empty() {
        return fail(errors::missing_member(name));
    }
    let field = ident(name);
    let span = base.outer.to(field.span);
    let kind = ExprKind::Member {
        base: base.expr,
        arrow: i.is(Punct::Arrow),
        field,
    };
    Ok((name.after(), Tree::above(base.height, kind, span, i.span())?))
}

fn indexed<'a>(i: Tokens<'a>, base: Tree) -> Parsed<'a, Tree> {
    let (rest, index) = expr(i.after().deeper()?)?;
    let (rest, end) = close(Punct::RBracket, Inside::Index(i.span())).parse(rest)?;
    let (height, span) = (base.height.max(index.height), base.outer.to(end));
    let kind = ExprKind::Index {
        base: base.expr,
        index: index.expr,
    };
    Ok((rest.as_deep_as(i), Tree::above(height, kind, span, i.span())?))
}

fn primary(i: Tokens<'_>) -> Parsed<'_, Tree> {
    // Functions of their own, so that what they need takes no room in every level of the recursion.
    if fetch::ahead(i) {
        return fetched(i);
    }
    match i.kind() {
        Tok::Punct(Punct::At) => at_symbol(i),
        Tok::Punct(Punct::Backslash) => immediate(i),
        Tok::Punct(Punct::Op(BinaryOp::Rem)) => register(i),
        Tok::Punct(Punct::LParen) => parenthesized(i),
        Tok::Name
            if i.after().is(Punct::LParen) && i.text() != "sizeof" && !types::is_type_word(i.text()) =>
        {
            call(i)
        }
        Tok::Name | Tok::Builtin | Tok::Int(_) | Tok::Char(_) | Tok::Str(_) => leaf(i),
        Tok::Punct(_) | Tok::Bad(_) | Tok::End => leaf(i),
    }
}

/// `+8(e)` and its like.
fn fetched(i: Tokens<'_>) -> Parsed<'_, Tree> {
    let Some((open, offset)) = fetch::offset(i) else {
        return fail(errors::missing_operand(i));
    };
    let (rest, base) = parenthesized(open)?;
    let span = i.span().to(rest.before().span());
    // A dereference, a cast, a call, a sum, a cast, of which one is counted there.
    let (height, blame) = (base.height + 4, i.span());
    let kind = fetch::at_offset(offset, *base.expr, span);
    Ok((rest, Tree::above(height, kind, span, blame)?))
}

/// `@NAME` and its like.
fn at_symbol(i: Tokens<'_>) -> Parsed<'_, Tree> {
    match fetch::symbol(i) {
        // A dereference, a cast, a sum, a cast, a call, a name.
        Some((rest, kind, span)) => Ok((rest, Tree::above(5, kind, span, i.span())?)),
        None => fail(errors::missing_symbol(i)),
    }
}

/// `%NAME`: a call, and what it is of.
fn register(i: Tokens<'_>) -> Parsed<'_, Tree> {
    match fetch::register(i) {
        Some((rest, kind, span)) => Ok((rest, Tree::above(1, kind, span, i.span())?)),
        None => fail(errors::missing_operand(i)),
    }
}

/// `\5` and its like: a call, a sign, a constant.
fn immediate(i: Tokens<'_>) -> Parsed<'_, Tree> {
    match fetch::immediate(i) {
        Some((rest, kind, span)) => Ok((rest, Tree::above(2, kind, span, i.span())?)),
        None => fail(errors::missing_immediate(i)),
    }
}

/// One token, or `sizeof(type)`.
fn leaf(i: Tokens<'_>) -> Parsed<'_, Tree> {
    let kind = match i.kind() {
        Tok::Int(literal) => ExprKind::Int(*literal),
        Tok::Char(byte) => ExprKind::Char(*byte),
        Tok::Str(bytes) => ExprKind::Str(bytes.clone()),
        Tok::Builtin => ExprKind::Builtin(i.text()[1..].to_owned()),
        Tok::Name if i.text() == "sizeof" => return sizeof_type(i),
        Tok::Name if types::is_type_word(i.text()) => return fail(errors::missing_operand(i)),
        Tok::Name => ExprKind::Name(i.text().to_owned()),
        Tok::Punct(_) | Tok::Bad(_) | Tok::End => return fail(errors::missing_operand(i)),
    };
    Ok((i.after(), Tree::leaf(kind, i.span())))
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
        base @ (TypeBase::Struct(_)
        | TypeBase::Union(_)
        | TypeBase::Enum(_)
        | TypeBase::Named(_)
        | TypeBase::Words(_)) => ExprKind::SizeofType(TypeName { base, ..ty }),
    };
    Ok((rest, Tree::leaf(kind, i.span().to(rest.before().span()))))
}

/// `name(args)`, the place being before the name.
fn call(i: Tokens<'_>) -> Parsed<'_, Tree> {
    let open = i.after();
    let (mut args, mut height) = (Vec::new(), 0);
    let mut rest = open.after().deeper()?;
    // Keys are shown like items, so they have labels and formats like those.
    let keys = i.text() == KEYS;
    while !(args.is_empty() && rest.is(Punct::RParen)) {
        rest = match keys {
            true => key(rest, &mut args, &mut height)?,
            false => argument(rest, &mut args, &mut height)?,
        };
        if !rest.is(Punct::Comma) {
            break;
        }
        rest = rest.after();
    }
    let (rest, end) = close(Punct::RParen, Inside::Arguments(open.span())).parse(rest)?;
    let kind = ExprKind::Call { func: ident(i), args };
    Ok((
        rest.as_deep_as(i),
        Tree::above(height, kind, i.span().to(end), open.span())?,
    ))
}

/// Reads an argument into `args`, and makes `height` the height of the highest one.
fn argument<'a>(
    i: Tokens<'a>,
    args: &mut Vec<Arg>,
    height: &mut u16,
) -> Result<Tokens<'a>, nom::Err<Problem>> {
    if types::ahead(i) == Ahead::Type {
        return type_argument(i, args, height);
    }
    let (i, tree) = expr(i)?;
    *height = tree.height.max(*height);
    args.push(Arg::Expr(*tree.expr));
    Ok(i)
}

/// The call whose arguments are keys.
pub(super) const KEYS: &str = "by";

/// The same for a key. Without a label and a format it is an argument like any other.
fn key<'a>(i: Tokens<'a>, args: &mut Vec<Arg>, height: &mut u16) -> Result<Tokens<'a>, nom::Err<Problem>> {
    let start = i.span();
    let (rest, label) = query::label(i)?;
    let rest = argument(rest, args, height)?;
    let (rest, format) = query::formatted(rest)?;
    if label.is_none() && format.is_none() {
        return Ok(rest);
    }
    let span = start.to(rest.before().span());
    match args.pop() {
        Some(Arg::Expr(expr)) => {
            let (expr, format) = query::named(expr, format);
            args.push(Arg::Key(Box::new(Item {
                label,
                expr,
                format,
                span,
            })));
        }
        // A type is no key, which is told where it is asked what it means.
        Some(other) => args.push(other),
        None => {}
    }
    Ok(rest)
}

fn type_argument<'a>(
    i: Tokens<'a>,
    args: &mut Vec<Arg>,
    height: &mut u16,
) -> Result<Tokens<'a>, nom::Err<Problem>> {
    let (i, ty) = types::type_name(i)?;
    *height = 1.max(*height);
    args.push(match ty.base {
        // Without its `const`, a lone name is an expression again.
        TypeBase::Named(name) if ty.pointers == 0 && !types::is_type_word(&name.node) => Arg::Expr(Expr {
            kind: ExprKind::Name(name.node),
            span: name.span,
        }),
        base @ (TypeBase::Struct(_)
        | TypeBase::Union(_)
        | TypeBase::Enum(_)
        | TypeBase::Named(_)
        | TypeBase::Words(_)) => Arg::Type(TypeName { base, ..ty }),
    });
    Ok(i)
}

fn ident(i: Tokens<'_>) -> Ident {
    Ident {
        node: i.text().to_owned(),
        span: i.span(),
    }
}
