//! The built-in functions: what arguments they take and what they give.

use super::ctypes::{Class, class, size_of, spell};
use super::expr::{Operand, value};
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, Arg};
use crate::span::Span;
use crate::typed::{Expr, ExprKind, Place};
use crate::types::closest;

/// Every built-in function with how it is called.
const FUNCTIONS: [(&str, &str); 16] = [
    ("sizeof", "sizeof(x)"),
    ("offsetof", "offsetof(type, member)"),
    ("container_of", "container_of(pointer, type, member)"),
    ("user", "user(pointer)"),
    ("str", "str(pointer)"),
    ("ustr", "ustr(pointer)"),
    ("ip", "ip(\"10.0.0.1\")"),
    ("is_err", "is_err(pointer)"),
    ("entry", "entry(x)"),
    ("exit", "exit(x)"),
    ("ntohs", "ntohs(x)"),
    ("htons", "htons(x)"),
    ("ntohl", "ntohl(x)"),
    ("htonl", "htonl(x)"),
    ("ntohll", "ntohll(x)"),
    ("htonll", "htonll(x)"),
];

impl Sema<'_> {
    pub(super) fn call(&mut self, func: &ast::Ident, args: &[Arg], span: Span) -> R<Operand> {
        match func.node.as_str() {
            "sizeof" => match args {
                [Arg::Type(ty)] => {
                    let of = self.type_name(ty)?;
                    self.sizeof(&of, ty.span, span)
                }
                [Arg::Expr(expr)] => self.sizeof_expr(expr, span),
                _ => self.wrong_count(func, span),
            },
            "offsetof" => match args {
                [ty, Arg::Expr(member)] => {
                    let place = self.member_of(ty, member, span)?;
                    Ok(value(ExprKind::Const(place.offset as i64), CType::ULONG, span))
                }
                _ => self.wrong_count(func, span),
            },
            "container_of" => match args {
                [Arg::Expr(pointer), ty, Arg::Expr(member)] => {
                    let pointer = self.scalar(pointer)?;
                    let outer = self.type_arg(ty)?;
                    let place = self.member_of(ty, member, span)?;
                    if !matches!(class(self.types, &pointer.ty), Class::Ptr(_)) {
                        let name = spell(self.types, &pointer.ty);
                        return self.report(
                            Diagnostic::error(
                                Code::NotPointer,
                                pointer.span,
                                "`container_of` takes a pointer",
                            )
                            .label(format!("its type is `{name}`")),
                        );
                    }
                    let back = (place.offset as i64).wrapping_neg();
                    let by = Expr {
                        kind: ExprKind::Const(back),
                        ty: CType::LONG,
                        span,
                    };
                    let moved = if back == 0 {
                        pointer
                    } else {
                        let ty = pointer.ty.clone();
                        let kind = ExprKind::Arith {
                            op: crate::typed::Arith::Add,
                            lhs: Box::new(pointer),
                            rhs: Box::new(by),
                        };
                        Expr { kind, ty, span }
                    };
                    let mut moved = self.convert(moved, CType::Ptr(Box::new(outer)));
                    moved.span = span;
                    Ok(Operand::Value(moved))
                }
                _ => self.wrong_count(func, span),
            },
            "user" => match args {
                [Arg::Expr(pointer)] => {
                    let pointer = self.scalar(pointer)?;
                    if !matches!(class(self.types, &pointer.ty), Class::Ptr(_)) {
                        let name = spell(self.types, &pointer.ty);
                        return self.report(
                            Diagnostic::error(Code::NotPointer, pointer.span, "`user` takes a pointer")
                                .label(format!("its type is `{name}`"))
                                .help("cast a number first: `user((struct x *)n)`"),
                        );
                    }
                    let ty = pointer.ty.clone();
                    Ok(value(ExprKind::AsUser(Box::new(pointer)), ty, span))
                }
                _ => self.wrong_count(func, span),
            },
            "str" | "ustr" => match args {
                [Arg::Expr(pointer)] => {
                    let user = func.node == "ustr";
                    self.string_pointer(pointer, user, span)
                }
                _ => self.wrong_count(func, span),
            },
            "ip" => match args {
                [
                    Arg::Expr(ast::Expr {
                        kind: ast::ExprKind::Str(text),
                        span: at,
                    }),
                ] => self.address_literal(text, *at, span),
                _ => self.wrong_count(func, span),
            },
            "is_err" => match args {
                [Arg::Expr(expr)] => {
                    let inner = self.scalar(expr)?;
                    match class(self.types, &inner.ty) {
                        Class::Ptr(_) | Class::Int { bytes: 4 | 8, .. } => {
                            Ok(value(ExprKind::IsErr(Box::new(inner)), CType::INT, span))
                        }
                        _ => {
                            let name = spell(self.types, &inner.ty);
                            self.report(
                                Diagnostic::error(
                                    Code::TypeClash,
                                    expr.span,
                                    "`is_err` takes a pointer or a number of 4 or 8 bytes",
                                )
                                .label(format!("its type is `{name}`")),
                            )
                        }
                    }
                }
                _ => self.wrong_count(func, span),
            },
            "ntohs" | "htons" => self.swap(func, args, 2, span),
            "ntohl" | "htonl" => self.swap(func, args, 4, span),
            "ntohll" | "htonll" => self.swap(func, args, 8, span),
            "entry" | "exit" => self.report(
                Diagnostic::error(
                    Code::MisplacedCall,
                    span,
                    format!("`{}` goes around a whole item", func.node),
                )
                .label("not inside an expression"),
            ),
            name => {
                let mut diag = Diagnostic::error(
                    Code::UnknownName,
                    func.span,
                    format!("there is no function `{name}`"),
                )
                .label("a query can't call functions of the kernel, and this is no built-in one");
                let near = closest(name, FUNCTIONS.iter().map(|(name, _)| name.to_string()));
                if let Some(near) = near.first() {
                    diag = diag.help(format!("did you mean `{near}`?"));
                } else {
                    let all: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
                    diag = diag.note(format!("built-in functions are {}", all.join(", ")));
                }
                self.report(diag)
            }
        }
    }

    fn wrong_count(&mut self, func: &ast::Ident, span: Span) -> R<Operand> {
        let usage = FUNCTIONS
            .iter()
            .find(|(name, _)| *name == func.node)
            .map_or("", |(_, usage)| *usage);
        self.report(
            Diagnostic::error(
                Code::BadArguments,
                span,
                format!("`{}` is not called so", func.node),
            )
            .label("wrong arguments")
            .help(format!("write `{usage}`")),
        )
    }

    fn sizeof_expr(&mut self, expr: &ast::Expr, span: Span) -> R<Operand> {
        // A lone name may be a type; an argument of that name wins, as everywhere.
        if let ast::ExprKind::Name(name) = &expr.kind
            && !self.params.iter().any(|p| p.name == *name)
            && let Some(ty) = self.try_type(name)
        {
            return self.sizeof(&ty, expr.span, span);
        }
        let ty = match self.operand(expr)? {
            Operand::Value(inner) => inner.ty,
            Operand::Place(place) => place.ty,
            Operand::Str(text, _) => {
                return Ok(value(ExprKind::Const(text.len() as i64 + 1), CType::ULONG, span));
            }
            // TASK_COMM_LEN
            Operand::Comm(_) => return Ok(value(ExprKind::Const(16), CType::ULONG, span)),
        };
        self.sizeof(&ty, expr.span, span)
    }

    fn try_type(&mut self, name: &str) -> Option<CType> {
        use crate::types::NameKind;
        let known = [NameKind::Typedef, NameKind::Int]
            .into_iter()
            .find_map(|kind| self.types.find(kind, name).first().map(|id| CType::Btf(*id)));
        known.or(match name {
            "u8" | "s8" => Some(CType::Int {
                bytes: 1,
                signed: name == "s8",
            }),
            "u16" | "s16" => Some(CType::Int {
                bytes: 2,
                signed: name == "s16",
            }),
            "u32" | "s32" => Some(CType::Int {
                bytes: 4,
                signed: name == "s32",
            }),
            "u64" | "s64" => Some(CType::Int {
                bytes: 8,
                signed: name == "s64",
            }),
            _ => None,
        })
    }

    fn type_arg(&mut self, arg: &Arg) -> R<CType> {
        match arg {
            Arg::Type(ty) => self.type_name(ty),
            Arg::Expr(ast::Expr {
                kind: ast::ExprKind::Name(name),
                span,
            }) => match self.try_type(name) {
                Some(ty) => Ok(ty),
                None => self.report(
                    Diagnostic::error(Code::UnknownType, *span, format!("there is no type `{name}`"))
                        .label("not in the kernel's BTF")
                        .help(format!("for a struct write `struct {name}`")),
                ),
            },
            Arg::Expr(other) => self.report(
                Diagnostic::error(Code::BadArguments, other.span, "a type has to be here")
                    .label("this is an expression"),
            ),
        }
    }

    /// The member of a type, written as in `offsetof`: `a.b[2].c`.
    fn member_of(&mut self, ty: &Arg, member: &ast::Expr, span: Span) -> R<Place> {
        let outer = self.type_arg(ty)?;
        let Some(place) = self.imaginary(&outer, span) else {
            let name = spell(self.types, &outer);
            return self.report(
                Diagnostic::error(Code::NotComposite, span, format!("`{name}` has no members"))
                    .label("needs a struct or union"),
            );
        };
        let place = self.designator(place, member)?;
        if place.bits.is_some() {
            return self.report(
                Diagnostic::error(
                    Code::BitfieldAddress,
                    member.span,
                    "a bitfield has no byte offset",
                )
                .label("this is a bitfield"),
            );
        }
        Ok(place)
    }

    fn designator(&mut self, outer: Place, member: &ast::Expr) -> R<Place> {
        match &member.kind {
            ast::ExprKind::Name(name) => self.field(outer, name, member.span, member.span),
            ast::ExprKind::Member {
                base,
                arrow: false,
                field,
            } => {
                let inner = self.designator(outer, base)?;
                if !matches!(class(self.types, &inner.ty), Class::Composite(_)) {
                    let name = spell(self.types, &inner.ty);
                    return self.report(
                        Diagnostic::error(Code::NotComposite, base.span, format!("`{name}` has no members"))
                            .label("not a struct"),
                    );
                }
                self.field(inner, &field.node, field.span, member.span)
            }
            ast::ExprKind::Index { base, index } => {
                let inner = self.designator(outer, base)?;
                let index = self.scalar(index)?;
                let (Class::Array { elem, .. }, Some(n)) = (class(self.types, &inner.ty), index.constant())
                else {
                    return self.report(
                        Diagnostic::error(
                            Code::NotIndexable,
                            member.span,
                            "only an array, and by a constant",
                        )
                        .label("can't be indexed here"),
                    );
                };
                let ty = CType::Btf(elem);
                let size = size_of(self.types, &ty).unwrap_or(0);
                let offset = inner.offset.wrapping_add((n as u64).wrapping_mul(size));
                Ok(Place {
                    offset,
                    ty,
                    span: member.span,
                    ..inner
                })
            }
            _ => self.report(
                Diagnostic::error(Code::BadArguments, member.span, "a member has to be here")
                    .label("not a member's name"),
            ),
        }
    }

    /// `str(p)`: any pointer or number taken as a string's address.
    fn string_pointer(&mut self, expr: &ast::Expr, user: bool, span: Span) -> R<Operand> {
        let operand = self.operand(expr)?;
        if let Operand::Place(place) = &operand
            && let Class::Array { elem, .. } = class(self.types, &place.ty)
            && size_of(self.types, &CType::Btf(elem)) != Some(1)
        {
            let name = spell(self.types, &place.ty);
            return self.report(
                Diagnostic::error(Code::StringOperand, expr.span, "this is no string")
                    .label(format!("its type is `{name}`")),
            );
        }
        let pointer = self.rvalue(operand)?;
        if !matches!(
            class(self.types, &pointer.ty),
            Class::Ptr(_) | Class::Int { bytes: 8, .. }
        ) {
            let name = spell(self.types, &pointer.ty);
            return self.report(
                Diagnostic::error(Code::NotPointer, expr.span, "a string is at an address")
                    .label(format!("its type is `{name}`")),
            );
        }
        let already_user = match class(self.types, &pointer.ty) {
            Class::Ptr(to) => self.memory_of(&pointer, &to) == crate::typed::Memory::User,
            _ => false,
        };
        let CType::Btf(char_id) = self.char_type() else {
            let mut pointer = self.convert(pointer, CType::Ptr(Box::new(self.char_type())));
            pointer.span = span;
            return Ok(Operand::Value(pointer));
        };
        let ty = CType::Ptr(Box::new(CType::Btf(char_id)));
        let mut pointer = self.convert(pointer, ty.clone());
        pointer.span = expr.span;
        if user || already_user {
            return Ok(value(ExprKind::AsUser(Box::new(pointer)), ty, span));
        }
        Ok(Operand::Value(pointer))
    }

    fn char_type(&self) -> CType {
        match self.types.find(crate::types::NameKind::Int, "char").first() {
            Some(id) => CType::Btf(*id),
            None => CType::Int {
                bytes: 1,
                signed: true,
            },
        }
    }

    /// `ip("10.0.0.1")`: the address as it lies in memory, so that it equals a `__be32`.
    fn address_literal(&mut self, text: &[u8], at: Span, span: Span) -> R<Operand> {
        let text = String::from_utf8_lossy(text);
        if let Ok(v4) = text.parse::<std::net::Ipv4Addr>() {
            let number = i64::from(u32::from_ne_bytes(v4.octets()));
            return Ok(value(ExprKind::Const(number), CType::UINT, span));
        }
        let v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
        self.report(
            Diagnostic::error(
                Code::BadArguments,
                at,
                if v6 {
                    "an IPv6 address does not fit a number"
                } else {
                    "not an IP address"
                },
            )
            .label(if v6 {
                "128 bits can't be compared yet"
            } else {
                "expected four numbers, such as 10.0.0.1"
            }),
        )
    }

    fn swap(&mut self, func: &ast::Ident, args: &[Arg], bytes: u8, span: Span) -> R<Operand> {
        let [Arg::Expr(expr)] = args else {
            return self.wrong_count(func, span);
        };
        let inner = self.scalar(expr)?;
        let inner = self.promoted(inner, "a change of byte order")?;
        let ty = CType::Int { bytes, signed: false };
        let inner = self.convert(inner, ty.clone());
        if let Some(c) = inner.constant() {
            let swapped = match bytes {
                2 => i64::from((c as u16).swap_bytes()),
                4 => i64::from((c as u32).swap_bytes()),
                _ => c.swap_bytes(),
            };
            return Ok(value(ExprKind::Const(swapped), ty, span));
        }
        Ok(value(ExprKind::Swap(Box::new(inner)), ty, span))
    }
}
