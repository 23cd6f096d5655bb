//! What is traced: a name in, a prototype out. A name that means nothing, or more than one thing, is told with what it
//! could mean.

use crate::diag::{Code, Diagnostic};
use crate::parser::ast;
use crate::select::{self, Names};
use crate::suggest::{nearest, nearest_function};
use crate::types::{Func, Types};

/// A tracepoint of the kernel.
pub(super) fn tracepoint(event: &ast::Ident, types: &Types) -> Result<Func, Box<Diagnostic>> {
    // The group is only for people: BTF knows events by their own name, which is unique.
    if let Some(func) = types.tracepoint_proto(&event.node) {
        return Ok(func);
    }
    let mut diag = Diagnostic::error(
        Code::UnknownTracepoint,
        event.span,
        format!("there is no tracepoint `{}`", event.node),
    )
    .label("not in the kernel's BTF");
    if event.node.contains(['*', '?', '[']) {
        return Err(Box::new(
            diag.note("patterns are for functions; each tracepoint is a query of its own")
                .help(format!(
                    "`ksnoop-jit list 'tp:{}'` shows those that match",
                    event.node
                )),
        ));
    }
    let all = types.tracepoints();
    diag = with_near(diag, &event.node, all.iter().map(String::as_str));
    if let Some(number) = shared_event(&event.node) {
        diag = diag.note(format!("system calls share one typed tracepoint: `tp:{number}`"));
    }
    Err(Box::new(diag))
}

/// A module whose functions can't be known.
fn unknown_module(module: &ast::Ident, stem: &str, types: &Types) -> Diagnostic {
    let diag = Diagnostic::error(
        Code::UnknownModule,
        module.span,
        format!("no BTF of a module `{}`", module.node),
    )
    .label("not loaded, or built without BTF");
    // As other tools write a system call.
    let call = format!("__x64_sys_{stem}");
    if matches!(module.node.as_str(), "syscall" | "syscalls" | "sys")
        && !types.functions_named(&call).is_empty()
    {
        return diag.help(format!("a system call is a function: `{call}`"));
    }
    // As other tools write a tracepoint.
    match shared_event(stem) {
        Some(number) => diag.help(format!("system calls share one tracepoint: `tp:{number}`")),
        None if types.tracepoint_proto(stem).is_some() => diag.help(format!(
            "there is a tracepoint of this name: `tp:{}:{stem}`",
            module.node
        )),
        None => diag,
    }
}

/// What stands for the events that each system call has of its own.
fn shared_event(event: &str) -> Option<&'static str> {
    if event.starts_with("sys_enter_") {
        Some("sys_enter(id)")
    } else if event.starts_with("sys_exit_") {
        Some("sys_exit(ret)")
    } else {
        None
    }
}

/// A function of the kernel.
pub(super) fn function(
    module: Option<&ast::Ident>,
    name: &ast::Ident,
    types: &Types,
) -> Result<Func, Box<Diagnostic>> {
    let wanted = name.node.as_str();
    let stem = select::stem(wanted);
    let number = match module {
        Some(module) => match types.module_named(&module.node) {
            Some(number) => Some(number),
            None => return Err(Box::new(unknown_module(module, stem, types))),
        },
        None => None,
    };
    match select::names(wanted) {
        Names::One { address: None, .. } => {}
        Names::One { .. } | Names::Many(_) => {
            return Err(Box::new(
                Diagnostic::error(
                    Code::UnsupportedTarget,
                    name.span,
                    "this target has to be looked up in the running kernel first",
                )
                .label("not a single name"),
            ));
        }
    }
    // The compiler's suffix is not in BTF: `tcp_grow_window.isra.0` has the prototype of `tcp_grow_window`.
    let mut found = types.functions_named(stem);
    if let Some(number) = number {
        found.retain(|func| func.id.module == number);
    } else if found.iter().any(|func| func.id.module == 0) {
        // Without a module's name, the kernel itself comes first.
        found.retain(|func| func.id.module == 0);
    }
    // What BTF has twice in one place, word for word, is one function.
    let mut prototypes: Vec<(u16, String)> = Vec::new();
    found.retain(|func| {
        let prototype = (func.id.module, types.prototype(func));
        let new = !prototypes.contains(&prototype);
        if new {
            prototypes.push(prototype);
        }
        new
    });
    if found.len() > 1 {
        let mut diag = Diagnostic::error(
            Code::AmbiguousFunction,
            name.span,
            format!("`{stem}` is the name of {} functions", found.len()),
        )
        .label("which one is meant?");
        for (module, prototype) in &prototypes {
            diag = diag.note(format!("in {}: {prototype}", types.module_name(*module)));
        }
        let first = found[0].id.module;
        let diag = if found.iter().all(|func| func.id.module == first) {
            diag.note("a module's name does not choose between them: they are in the same one")
        } else {
            diag.help("`MODULE:FUNC` chooses one, `--all-instances` takes them all")
        };
        return Err(Box::new(diag));
    }
    match found.into_iter().next() {
        Some(func) => Ok(Func {
            name: wanted.to_string(),
            ..func
        }),
        None => Err(Box::new(unknown_function(module, name, types))),
    }
}

/// That there is no function of a name, and what may have been meant.
pub fn unknown_function(module: Option<&ast::Ident>, name: &ast::Ident, types: &Types) -> Diagnostic {
    let stem = select::stem(&name.node);
    let place = match module {
        Some(module) => format!("module `{}`", module.node),
        None => "the kernel".to_string(),
    };
    let diag = Diagnostic::error(
        Code::UnknownFunction,
        name.span,
        format!("there is no function `{}` in {place}", name.node),
    )
    .label("not in BTF");
    let tracepoint = module.is_none() && types.tracepoint_proto(stem).is_some();
    let mut all = Vec::new();
    for number in 0..types.module_count() {
        all.extend(types.functions(number).into_iter().map(|(_, name)| name));
    }
    let mut diag = with_names(diag, &nearest_function(stem, &all));
    if tracepoint {
        diag = diag.help(format!("there is a tracepoint of this name: `tp:{stem}`"));
    }
    match diag.help.is_empty() {
        true => diag.help("`ksnoop-jit list '*PART*'` searches by a part of the name"),
        false => diag,
    }
}

fn with_near<'a>(diag: Diagnostic, name: &str, all: impl Iterator<Item = &'a str>) -> Diagnostic {
    with_names(diag, &nearest(name, all))
}

fn with_names(diag: Diagnostic, near: &[&str]) -> Diagnostic {
    if near.is_empty() {
        return diag;
    }
    let near: Vec<String> = near.iter().map(|n| format!("`{n}`")).collect();
    diag.help(format!("did you mean {}?", near.join(" or ")))
}
