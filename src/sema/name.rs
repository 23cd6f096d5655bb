//! What a name means: an argument first, then a built-in, an errno, an enum constant. For a wrong one it says what is
//! near.

use super::ctypes::{Class, class};
use super::expr::{Operand, pointer_to, value};
use super::foreign;
use super::user::in_one_register;
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::errno;
use crate::parser::ast;
use crate::span::Span;
use crate::suggest::nearest;
use crate::typed::{Base, Builtin, Expr, ExprKind, Place};
use crate::types::{NameKind, Param, Type, TypeId, Types};

/// Every built-in value, for suggestions.
const BUILTINS: [&str; 13] = [
    "pid", "tid", "uid", "gid", "comm", "cpu", "ktime", "cgroup", "task", "func", "argc", "return",
    "duration",
];

impl Sema<'_> {
    pub(super) fn name(&mut self, name: &str, span: Span) -> R<Operand> {
        if let Some(index) = self.params.iter().position(|p| p.name == name) {
            return self.argument(index, span);
        }
        if let Some(found) = self.builtin_value(name, span) {
            return found;
        }
        match name {
            "NULL" => return Ok(value(ExprKind::Const(0), CType::Ptr(Box::new(CType::Void)), span)),
            "true" => return Ok(value(ExprKind::Const(1), CType::INT, span)),
            "false" => return Ok(value(ExprKind::Const(0), CType::INT, span)),
            _ => {}
        }
        if let Some(number) = errno::number(name) {
            return Ok(value(ExprKind::Const(i64::from(number)), CType::INT, span));
        }
        let constants = self.enum_constant(name);
        if let Some((_, first)) = constants.first() {
            if let Some((other, second)) = constants.iter().find(|(_, v)| v != first) {
                let (a, b) = (self.types.c_name(constants[0].0), self.types.c_name(*other));
                self.warn(
                    Diagnostic::warning(
                        Code::AmbiguousConstant,
                        span,
                        format!("`{name}` has more than one value"),
                    )
                    .label(format!("taken as {first}, from `{a}`"))
                    .note(format!("in `{b}` it is {second}")),
                );
            }
            let ty = constant_type(self.types, constants[0].0, *first);
            return Ok(value(ExprKind::Const(*first as i64), ty, span));
        }
        let mut diag = Diagnostic::error(Code::UnknownName, span, format!("`{name}` is not known here"))
            .label("neither an argument nor a built-in, an errno or an enum constant");
        if let Some(form) = super::call::form_of(name) {
            return self.report(diag.help(format!("it is called: `{form}`")));
        }
        // bpftrace's word for what a tracepoint passes.
        if name == "args" && !self.params.is_empty() {
            return self.report(
                diag.help("an argument is written by its name alone, without `args->`")
                    .note(self.arguments_note()),
            );
        }
        if let Some(instead) = foreign::value(name) {
            return self.report(diag.help(instead));
        }
        let known = self.params.iter().map(|p| p.name.as_str()).chain(BUILTINS);
        let mut near: Vec<String> = owned(nearest(name, known));
        if let Some(member) = self.field_of_format(name) {
            near = vec![member];
        }
        if near.is_empty() {
            near = self.members_named(name);
        }
        if near.is_empty() && foreign::is_macro(name) {
            let constants = self.enum_constants();
            let errnos = errno::all().map(|(name, _)| name);
            near = owned(nearest(name, constants.iter().map(String::as_str).chain(errnos)));
            near.retain(|constant| foreign::nearly(name, constant));
            if near.is_empty() {
                diag = diag.help("what a macro stands for is not in BTF: write the number");
            }
        }
        if !near.is_empty() {
            let near: Vec<String> = near.iter().map(|n| format!("`{n}`")).collect();
            diag = diag.help(format!("did you mean {}?", near.join(" or ")));
        }
        diag = diag.note(self.arguments_note());
        self.report(diag)
    }

    /// What is read where such a name is written, or was meant by it: an argument, a built-in, a member of an argument.
    pub(super) fn meant_by(&self, name: &str) -> Option<String> {
        let known = self.params.iter().map(|p| p.name.as_str()).chain(BUILTINS);
        if known.clone().any(|known| known == name) {
            return Some(name.to_string());
        }
        let mut near = self.members_named(name);
        near.extend(owned(nearest(name, known)));
        near.into_iter().next()
    }

    /// How the arguments that have such a member would be written with it.
    fn members_named(&self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        if !self.suggests {
            return found;
        }
        let all = self.params.iter();
        found.extend(all.filter_map(|param| self.argument_member(param, name)));
        found.truncate(3);
        found
    }

    /// How a member of an argument is written, if it has one of that name.
    pub(super) fn argument_member(&self, param: &Param, member: &str) -> Option<String> {
        let (arrow, outer) = match class(self.types, &CType::Btf(param.ty)) {
            Class::Ptr(to) => ("->", class(self.types, &to)),
            direct @ (Class::Void
            | Class::Int { .. }
            | Class::Bool
            | Class::Float
            | Class::Composite(_)
            | Class::Array { .. }
            | Class::Func
            | Class::Opaque) => (".", direct),
        };
        let Class::Composite(id) = outer else {
            return None;
        };
        let found = self.types.member(id, member).is_ok();
        found.then(|| format!("{}{arrow}{member}", param.name))
    }

    /// `$name`.
    pub(super) fn builtin(&mut self, name: &str, span: Span) -> R<Operand> {
        if name == "retval" {
            return self.return_value(span);
        }
        // Their name of the task.
        if name == "current"
            && let Some(found) = self.builtin_value("task", span)
        {
            return found;
        }
        // The kernel's probe events count arguments from 1 behind a dollar.
        if let Some(number) = name.strip_prefix("arg").and_then(|n| n.parse::<usize>().ok()) {
            return match number.checked_sub(1) {
                Some(index) if index < self.numbered => self.argument(index, span),
                Some(_) | None => self.no_such_argument(&format!("${name}"), span),
            };
        }
        if let Some(number) = name.strip_prefix("stack")
            && let Some(found) = self.stack(number, span)
        {
            return found;
        }
        match self.builtin_value(name, span) {
            Some(found) => found,
            None => {
                let mut diag =
                    Diagnostic::error(Code::UnknownName, span, format!("there is no built-in `${name}`"))
                        .label("not known");
                let names = BUILTINS.into_iter().chain(["retval", "stack"]);
                if let Some(near) = nearest(name, names).first() {
                    diag = diag.help(format!("did you mean `${near}`?"));
                }
                self.report(diag)
            }
        }
    }

    fn builtin_value(&mut self, name: &str, span: Span) -> Option<R<Operand>> {
        let (builtin, ty) = match name {
            "return" | "retval" => return Some(self.return_value(span)),
            "comm" => return Some(Ok(Operand::Comm(span))),
            "func" => return Some(Ok(Operand::Func(span))),
            "argc" if !self.described => {
                return Some(
                    self.report(
                        Diagnostic::error(
                            Code::UnknownName,
                            span,
                            format!("how many arguments `{}` has is not known", self.subject),
                        )
                        .label("nothing says what it is passed")
                        .note("without a prototype `arg0` and on are what the registers for arguments hold"),
                    ),
                );
            }
            "argc" => {
                let count = self.params.len() as i64;
                return Some(Ok(value(ExprKind::Const(count), CType::INT, span)));
            }
            "pid" => (Builtin::Pid, CType::INT),
            "tid" => (Builtin::Tid, CType::INT),
            "uid" => (Builtin::Uid, CType::UINT),
            "gid" => (Builtin::Gid, CType::UINT),
            "cpu" => (Builtin::Cpu, CType::INT),
            "ktime" => (Builtin::Ktime, CType::ULONG),
            "cgroup" => (Builtin::Cgroup, CType::ULONG),
            "duration" if self.ret.is_some() => (Builtin::Duration, CType::ULONG),
            "duration" => return Some(self.no_return(span)),
            "task" => {
                let task = self.types.find(NameKind::Struct, "task_struct");
                match task.first() {
                    Some(id) => (Builtin::Task, pointer_to(*id)),
                    None => {
                        return Some(
                            self.report(
                                Diagnostic::error(
                                    Code::UnknownType,
                                    span,
                                    "this BTF has no `struct task_struct`",
                                )
                                .label("so there is no type for it"),
                            ),
                        );
                    }
                }
            }
            _ => {
                let number = name.strip_prefix("arg").and_then(|n| n.parse::<usize>().ok())?;
                return Some(if number < self.numbered {
                    self.argument(number, span)
                } else {
                    self.no_such_argument(name, span)
                });
            }
        };
        Some(Ok(value(ExprKind::Builtin(builtin), ty, span)))
    }

    /// `kaddr("jiffies")`, which `@jiffies` reads at.
    pub(super) fn address_of_symbol(&mut self, name: &ast::Expr, span: Span) -> R<Operand> {
        let ast::ExprKind::Str(bytes) = &name.kind else {
            return self.report(
                Diagnostic::error(Code::StringOperand, name.span, "`kaddr` takes a symbol's name")
                    .label("not a text in double quotes")
                    .help("write `kaddr(\"jiffies\")`, or `@jiffies` for what is there"),
            );
        };
        let symbol = String::from_utf8_lossy(bytes).into_owned();
        let ty = CType::Ptr(Box::new(CType::Void));
        match self.types.address(&symbol) {
            Some(address) => Ok(value(ExprKind::Const(address as i64), ty, span)),
            None => {
                let diag = Diagnostic::error(
                    Code::UnknownName,
                    name.span,
                    format!("no address of a symbol `{}`", symbol.escape_default()),
                );
                self.report(if self.types.is_elsewhere() {
                    diag.label("it is where the kernel of these types has it, and can't be known here")
                        .help("where that kernel runs, `grep NAME /proc/kallsyms` shows it to root; `@0x...` takes a number")
                } else {
                    diag.label("not among the running kernel's symbols, or more than once, or hidden")
                        .help("`grep NAME /proc/kallsyms` shows them to root")
                })
            }
        }
    }

    /// `$stack`, `$stack0`, `$stack1`: the stack pointer where the probe is, and the words from there on.
    fn stack(&mut self, number: &str, span: Span) -> Option<R<Operand>> {
        let word: Option<u64> = match number {
            "" => None,
            number => Some(number.parse().ok()?),
        };
        // A program is always on its stack.
        if self.ret.is_none() && !self.user {
            return Some(
                self.report(
                    Diagnostic::error(Code::NoReturn, span, format!("`{}` is no function", self.subject))
                        .label("there is no call whose stack could be looked at"),
                ),
            );
        }
        let ty = CType::Ptr(Box::new(CType::ULONG));
        let pointer = Expr {
            kind: ExprKind::Builtin(Builtin::Stack),
            ty,
            span,
        };
        let Some(word) = word else {
            return Some(Ok(Operand::Value(pointer)));
        };
        // The kernel's own limit (PARAM_MAX_STACK, kernel/trace/trace_probe.h).
        if word >= 16384 / 8 {
            return Some(
                self.report(
                    Diagnostic::error(
                        Code::OutOfBounds,
                        span,
                        format!("`$stack{word}` is beyond any stack"),
                    )
                    .label("the last one is `$stack2047`"),
                ),
            );
        }
        Some(Ok(Operand::Place(Place {
            base: Base::Pointer {
                pointer: Box::new(pointer),
                memory: if self.user {
                    crate::typed::Memory::User
                } else {
                    crate::typed::Memory::Kernel
                },
            },
            path: None,
            offset: 8 * word,
            bits: None,
            ty: CType::ULONG,
            span,
        })))
    }

    fn no_such_argument(&mut self, name: &str, span: Span) -> R<Operand> {
        let note = match name.starts_with('$') {
            _ if self.numbered == 0 => self.arguments_note(),
            true => format!("{}; `$arg1` is the first", self.arguments_note()),
            false => format!("{}; `arg0` is the first", self.arguments_note()),
        };
        self.report(
            Diagnostic::error(Code::UnknownName, span, format!("there is no argument `{name}`"))
                .label(match self.numbered {
                    0 => "there are no arguments".to_string(),
                    1 => "there is only one argument".to_string(),
                    n => format!("there are {n} arguments"),
                })
                .note(note),
        )
    }

    fn arguments_note(&self) -> String {
        let names: Vec<&str> = self
            .params
            .iter()
            .map(|p| p.name.as_str())
            .filter(|name| !name.is_empty())
            .collect();
        if names.is_empty() {
            format!("`{}` has no named arguments", self.subject)
        } else {
            format!("the arguments of `{}` are {}", self.subject, names.join(", "))
        }
    }

    /// An argument by its index: a scalar is a value, a struct by value is a place.
    pub(super) fn argument(&mut self, index: usize, span: Span) -> R<Operand> {
        if let Some(Some(why)) = self.missing.get(index) {
            let diag = Diagnostic::error(
                Code::Incomplete,
                span,
                format!("the argument `{}` can't be fetched", self.params[index].name),
            );
            let diag = if self.params[index].ty.is_void() {
                diag.label("no call passes it in a form that a probe can fetch")
                    .note(why.clone())
            } else {
                diag.label(why.clone())
            };
            return self.report(diag);
        }
        let ty = CType::Btf(self.params[index].ty);
        match class(self.types, &ty) {
            Class::Composite(_) => Ok(Operand::Place(Place {
                base: Base::Arg(index),
                path: None,
                offset: 0,
                bits: None,
                ty,
                span,
            })),
            Class::Int { .. } | Class::Bool | Class::Ptr(_) => Ok(value(ExprKind::Arg(index), ty, span)),
            Class::Void | Class::Float | Class::Array { .. } | Class::Func | Class::Opaque => {
                let name = self.types.c_name(self.params[index].ty);
                self.report(
                    Diagnostic::error(
                        Code::Incomplete,
                        span,
                        format!("an argument of type `{name}` can't be read"),
                    )
                    .label("its size or its register is not known"),
                )
            }
        }
    }

    /// Where there is no call there is no return, and no time until then.
    fn no_return(&mut self, span: Span) -> R<Operand> {
        self.report(
            Diagnostic::error(
                Code::NoReturn,
                span,
                format!("`{}` does not return", self.subject),
            )
            .label(if self.user && !self.subject.contains(':') {
                "this is an instruction inside of a function"
            } else {
                "a tracepoint is hit, it is not called"
            })
            .help("trace the function that it is in to see what is returned"),
        )
    }

    fn return_value(&mut self, span: Span) -> R<Operand> {
        let Some(ret) = self.ret else {
            return self.no_return(span);
        };
        let ty = CType::Btf(ret);
        if !self.returns_in_register(ret) {
            let name = self.types.c_name(ret);
            return self.report(
                Diagnostic::error(
                    Code::Incomplete,
                    span,
                    format!("a return value of type `{name}` can't be fetched"),
                )
                .label("only numbers and pointers are, which come back in a register"),
            );
        }
        match class(self.types, &ty) {
            Class::Void => {
                let subject = self.subject.clone();
                self.report(
                    Diagnostic::error(Code::NoReturn, span, format!("`{subject}` returns nothing"))
                        .label("a `void` function has no return value")
                        .help(format!("`{subject}()` shows each call")),
                )
            }
            Class::Composite(_) => Ok(Operand::Place(Place {
                base: Base::Return,
                path: None,
                offset: 0,
                bits: None,
                ty,
                span,
            })),
            Class::Int { .. } | Class::Bool | Class::Ptr(_) => Ok(value(ExprKind::Return, ty, span)),
            Class::Float | Class::Array { .. } | Class::Func | Class::Opaque => {
                let name = self.types.c_name(ret);
                self.report(
                    Diagnostic::error(
                        Code::Incomplete,
                        span,
                        format!("a return value of type `{name}` can't be read"),
                    )
                    .label("its size or its register is not known"),
                )
            }
        }
    }

    /// Whether what a program's function returns can be fetched; of the kernel's functions lowering knows more.
    pub(super) fn returns_in_register(&self, ret: TypeId) -> bool {
        !self.user || class(self.types, &CType::Btf(ret)) == Class::Void || in_one_register(self.types, ret)
    }
}

fn owned(names: Vec<&str>) -> Vec<String> {
    names.into_iter().map(str::to_string).collect()
}

/// The type of an enum constant, as GNU C has it: `int` if that holds it, else its enum's (`finish_enum`, gcc/c/c-decl.cc).
fn constant_type(types: &Types, of: TypeId, value: i128) -> CType {
    match types.get_stripped(of) {
        Type::Enum(kind) if i32::try_from(value).is_err() => CType::Int {
            bytes: if kind.size > 4 { 8 } else { 4 },
            signed: kind.signed,
        },
        Type::Void
        | Type::Int(_)
        | Type::Float { .. }
        | Type::Ptr(_)
        | Type::Array { .. }
        | Type::Struct(_)
        | Type::Union(_)
        | Type::Enum(_)
        | Type::Fwd { .. }
        | Type::Typedef(_)
        | Type::Const(_)
        | Type::Volatile(_)
        | Type::Restrict(_)
        | Type::TypeTag { .. }
        | Type::Func { .. }
        | Type::FuncProto { .. }
        | Type::Other => CType::INT,
    }
}
