//! The built-in functions: what arguments they take and what they give.

use super::aggregate;
use super::ctypes::{Class, class, spell};
use super::expr::{Operand, value};
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, Arg};
use crate::parser::{ADDRESS_OF, IMMEDIATE, REGISTER, THIS_CPU_PTR, THIS_CPU_READ};
use crate::span::Span;
use crate::suggest::nearest;
use crate::typed::ExprKind;

/// Every built-in function with how it is called.
const FUNCTIONS: [(&str, &str); 24] = [
    ("sizeof", "sizeof(x)"),
    ("offsetof", "offsetof(type, member)"),
    ("container_of", "container_of(pointer, type, member)"),
    ("user", "user(pointer)"),
    ("str", "str(pointer)` or `str(pointer, length)"),
    ("ustr", "ustr(pointer)` or `ustr(pointer, length)"),
    ("buf", "buf(pointer, length)"),
    ("ksym", "ksym(address)"),
    (ADDRESS_OF, "kaddr(\"jiffies\")"),
    (REGISTER, "reg(\"si\")"),
    (IMMEDIATE, "imm(5)` or `imm(\"text\")"),
    ("ip", "ip(\"10.0.0.1\")` or `ip(\"fe80::1\")"),
    ("mac", "mac(\"02:00:5e:10:00:01\")"),
    ("is_err", "is_err(pointer)"),
    (THIS_CPU_PTR, "this_cpu_ptr(pointer)"),
    (THIS_CPU_READ, "this_cpu_read(pointer)"),
    ("entry", "entry(x)"),
    ("exit", "exit(x)"),
    ("ntohs", "ntohs(x)"),
    ("htons", "htons(x)"),
    ("ntohl", "ntohl(x)"),
    ("htonl", "htonl(x)"),
    ("ntohll", "ntohll(x)"),
    ("htonll", "htonll(x)"),
];

/// The call stacks, which are no expressions.
const STACKS: [(&str, &str); 2] = [("kstack", "kstack()"), ("ustack", "ustack()")];

/// How a function of this name is called.
pub(super) fn form_of(name: &str) -> Option<&'static str> {
    let known = FUNCTIONS.iter().chain(&aggregate::FUNCTIONS).chain(&STACKS);
    let mut forms = known.filter(|(known, _)| *known == name).map(|(_, form)| *form);
    forms.next()
}

impl Sema<'_> {
    pub(super) fn call(&mut self, func: &ast::Ident, args: &[Arg], span: Span) -> R<Operand> {
        match func.node.as_str() {
            "sizeof" => match args {
                [Arg::Type(ty)] => {
                    let of = self.type_name(ty)?;
                    self.sizeof(&of, ty.span, span)
                }
                [Arg::Expr(expr)] => self.sizeof_expr(expr, span),
                _ => self.wrong_arguments(func, args, span),
            },
            "offsetof" => match args {
                [ty, Arg::Expr(member)] => self.offsetof(ty, member, span),
                _ => self.wrong_arguments(func, args, span),
            },
            "container_of" => match args {
                [Arg::Expr(pointer), ty, Arg::Expr(member)] => self.container_of(pointer, ty, member, span),
                _ => self.wrong_arguments(func, args, span),
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
                _ => self.wrong_arguments(func, args, span),
            },
            "str" | "ustr" => {
                let user = func.node == "ustr";
                match args {
                    [Arg::Expr(pointer)] => self.string_call(pointer, None, user, span),
                    [Arg::Expr(pointer), Arg::Expr(length)] => {
                        self.string_call(pointer, Some(length), user, span)
                    }
                    _ => self.wrong_arguments(func, args, span),
                }
            }
            "buf" => match args {
                [Arg::Expr(pointer), Arg::Expr(length)] => self.buffer_call(pointer, length, span),
                _ => self.wrong_arguments(func, args, span),
            },
            "ksym" => match args {
                [Arg::Expr(address)] => self.symbol_call(address, span),
                _ => self.wrong_arguments(func, args, span),
            },
            ADDRESS_OF => match args {
                [Arg::Expr(name)] => self.address_of_symbol(name, span),
                _ => self.wrong_arguments(func, args, span),
            },
            REGISTER => match args {
                [Arg::Expr(name)] => self.register(name, span),
                _ => self.wrong_arguments(func, args, span),
            },
            IMMEDIATE => match args {
                [Arg::Expr(constant)] => self.immediate(constant, span),
                _ => self.wrong_arguments(func, args, span),
            },
            THIS_CPU_PTR => match args {
                [Arg::Expr(pointer)] => Ok(Operand::Value(self.this_cpu_ptr(pointer, span)?)),
                _ => self.wrong_arguments(func, args, span),
            },
            THIS_CPU_READ => match args {
                [Arg::Expr(pointer)] => self.this_cpu_read(pointer, span),
                _ => self.wrong_arguments(func, args, span),
            },
            "ip" | "mac" => self.address_call(func, args, span),
            "is_err" => match args {
                [Arg::Expr(expr)] => {
                    let inner = self.scalar(expr)?;
                    if let Class::Ptr(_) | Class::Int { bytes: 4 | 8, .. } = class(self.types, &inner.ty) {
                        Ok(value(ExprKind::IsErr(Box::new(inner)), CType::INT, span))
                    } else {
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
                _ => self.wrong_arguments(func, args, span),
            },
            "ntohs" | "htons" => self.swap(func, args, 2, span),
            "ntohl" | "htonl" => self.swap(func, args, 4, span),
            "ntohll" | "htonll" => self.swap(func, args, 8, span),
            "entry" | "exit" => self.inner_phase(func, args, span),
            name if super::stack::is_stack(name).is_some() => self.report(
                Diagnostic::error(
                    Code::MisplacedCall,
                    span,
                    format!("`{name}` is an item or a key of its own"),
                )
                .label("not inside an expression"),
            ),
            name if aggregate::is_function(name) => self.report(
                Diagnostic::error(
                    Code::MisplacedCall,
                    span,
                    format!("`{name}` is an item of its own: it tells of many events, not of one"),
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
                if let Some(instead) = super::foreign::function(name) {
                    return self.report(diag.help(instead));
                }
                let known = FUNCTIONS.iter().chain(&aggregate::FUNCTIONS).chain(&STACKS);
                let near = nearest(name, known.map(|(name, _)| *name));
                if let Some(near) = near.first() {
                    diag = diag.help(format!("did you mean `{near}`?"));
                } else {
                    let names = |all: &[(&'static str, &'static str)]| {
                        all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
                    };
                    diag = diag
                        .note(format!("built-in functions are {}", names(&FUNCTIONS)))
                        .note(format!(
                            "items of their own are {}, {}",
                            names(&STACKS),
                            names(&aggregate::FUNCTIONS)
                        ));
                }
                self.report(diag)
            }
        }
    }

    /// Tells how a function is called.
    pub(super) fn wrong_arguments<T>(&mut self, func: &ast::Ident, args: &[Arg], span: Span) -> R<T> {
        let usage = FUNCTIONS
            .iter()
            .find(|(name, _)| *name == func.node)
            .map_or("", |(_, usage)| *usage);
        let given = match args.len() {
            1 => "with one argument".to_string(),
            n => format!("with {n} arguments"),
        };
        self.report(
            Diagnostic::error(
                Code::BadArguments,
                span,
                format!("these are not the arguments of `{}`", func.node),
            )
            .label(format!("called {given}"))
            .help(format!("write `{usage}`")),
        )
    }

    fn swap(&mut self, func: &ast::Ident, args: &[Arg], bytes: u8, span: Span) -> R<Operand> {
        let [Arg::Expr(expr)] = args else {
            return self.wrong_arguments(func, args, span);
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
