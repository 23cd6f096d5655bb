//! The commands that only look: `info`, `type`, `list`, `features`. In: names. Out: C on stdout. Never attaches
//! anything.

mod info;

use std::io::Write;

use clap::CommandFactory;
use ksnoop_jit::search::Search;
use ksnoop_jit::suggest::{nearest, nearest_function};
use ksnoop_jit::types::{NameKind, Types};
use ksnoop_jit_runtime as runtime;
use runtime::caps::helper;

use crate::cli::Cli;
use crate::trace;
use crate::{Failure, add_module, complain, list_programs, open_types};

pub(crate) use info::info;

fn not_found(types: &Types, name: &str, tracepoint: bool) {
    let (what, all) = if tracepoint {
        ("tracepoint", types.tracepoints())
    } else {
        let functions = (0..types.module_count()).flat_map(|module| types.functions(module));
        ("function", functions.map(|(_, name)| name).collect())
    };
    let near = match tracepoint {
        true => nearest(name, all.iter().map(String::as_str)),
        false => nearest_function(name, &all),
    };
    let mut hint = meant(&near);
    if !tracepoint && types.tracepoint_proto(name).is_some() {
        hint.push_str(&format!("; there is a tracepoint: `tp:{name}`"));
    }
    complain(&format!(
        "ksnoop-jit: there is no {what} `{}`{hint}",
        name.escape_default()
    ));
}

/// What was meant, behind what is said.
fn meant(near: &[&str]) -> String {
    match near.is_empty() {
        true => String::new(),
        false => format!("; did you mean {}?", near.join(" or ")),
    }
}

/// Layouts of types.
pub(crate) fn layout(cli: &Cli, words: &[String]) -> Result<(), Failure> {
    let mut types = open_types(cli)?;
    let mut modules = cli.btf.is_some();
    let mut out = std::io::stdout().lock();
    let mut wrong = false;
    // `type struct sk_buff` and `type 'struct sk_buff'` are the same.
    let all = words.join(" ");
    // A pointer's layout is that of what it points to.
    let mut rest = all.split([' ', '\t', '\n', '*']).filter(|word| !word.is_empty());
    while let Some(word) = rest.next() {
        let kind = match word {
            "struct" => NameKind::Struct,
            "union" => NameKind::Union,
            "enum" => NameKind::Enum,
            _ => NameKind::Any,
        };
        let name = if kind == NameKind::Any {
            word
        } else {
            rest.next().unwrap_or("")
        };
        let mut found = types.find(kind, name);
        // Modules have types of their own, which take a while to read.
        if found.is_empty() && !modules {
            modules = true;
            for module in runtime::btf::module_names()? {
                add_module(&mut types, &module)?;
            }
            found = types.find(kind, name);
        }
        if found.is_empty() {
            wrong = true;
            let names = types.names_of(kind);
            let hint = meant(&nearest(name, names.iter().map(String::as_str)));
            complain(&format!(
                "ksnoop-jit: there is no type `{}`{hint}",
                name.escape_default()
            ));
        }
        for id in found {
            writeln!(out, "{}", types.layout_c(id))?;
        }
    }
    if wrong { Err(Failure::Query) } else { Ok(()) }
}

/// Functions and tracepoints that are searched for by name and by what they take.
pub(crate) fn list(cli: &Cli, words: &[String]) -> Result<(), Failure> {
    let (programs, words): (Vec<&String>, Vec<&String>) = words
        .iter()
        .partition(|word| list_programs::is_about_program(word));
    for word in &programs {
        list_programs::list(cli, word)?;
    }
    if words.is_empty() {
        return Ok(());
    }
    let mut searches = Vec::new();
    for word in words {
        match Search::parse(word) {
            Ok(search) => searches.push(search),
            Err(why) => {
                complain(&format!("ksnoop-jit: {why}"));
                return Err(Failure::Query);
            }
        }
    }
    let mut types = open_types(cli)?;
    let (events, functions): (Vec<&Search>, Vec<&Search>) =
        searches.iter().partition(|search| search.tracepoints());
    if cli.btf.is_none() && !functions.is_empty() {
        for module in runtime::btf::module_names()? {
            add_module(&mut types, &module)?;
        }
    }
    let mut out = std::io::stdout().lock();
    let mut found = false;
    for number in 0..types.module_count() {
        let module = types.module_name(number);
        let place = if number == 0 {
            String::new()
        } else {
            format!(" /* {module} */")
        };
        let own: Vec<&&Search> = functions
            .iter()
            .filter(|search| search.in_module(module))
            .collect();
        for (id, name) in types.functions(number) {
            let named: Vec<&&Search> = own.iter().filter(|search| search.names(&name)).copied().collect();
            if named.is_empty() {
                continue;
            }
            if let Some(func) = types.func(id)
                && named.iter().any(|search| search.takes(&types, &func))
            {
                found = true;
                writeln!(out, "{};{place}", types.prototype(&func))?;
            }
        }
    }
    if !events.is_empty() {
        for name in types.tracepoints() {
            let named: Vec<&&Search> = events.iter().filter(|search| search.names(&name)).collect();
            if named.is_empty() {
                continue;
            }
            if let Some(func) = types.tracepoint_proto(&name)
                && named.iter().any(|search| search.takes(&types, &func))
            {
                found = true;
                let prototype = types.prototype(&func);
                // What is hit returns nothing; `tp:` is how a query names it.
                let prototype = prototype.strip_prefix("void ").unwrap_or(&prototype);
                writeln!(out, "tp:{prototype};")?;
            }
        }
    }
    if found {
        return Ok(());
    }
    for search in &searches {
        let unknown = search
            .module()
            .filter(|module| types.module_named(module).is_none());
        match (unknown, search.name(), search.lacks_star()) {
            (Some(module), _, _) => complain(&format!(
                "ksnoop-jit: there is no BTF of a module `{}`",
                module.escape_default()
            )),
            (None, _, Some(composite)) => {
                complain(&format!(
                    "ksnoop-jit: nothing matches; did you mean `{composite} *`?"
                ));
            }
            (None, Some(name), None) => not_found(&types, name, search.tracepoints()),
            (None, None, None) => complain("ksnoop-jit: nothing matches"),
        }
    }
    Err(Failure::Query)
}

/// How the tool is used.
pub(crate) fn help() -> Result<(), Failure> {
    write!(std::io::stdout().lock(), "{}", Cli::command().render_long_help())?;
    Ok(())
}

/// What the running kernel can do.
pub(crate) fn features(cli: &Cli) -> Result<(), Failure> {
    let types = open_types(cli)?;
    let caps = runtime::Capabilities::detect();
    let id_of = |name: &str| types.functions_named(name).first().map_or(0, |func| func.id.id);
    let tracepoint = types
        .tracepoint_proto("sched_switch")
        .map_or(0, |func| func.id.id);
    let mut out = std::io::stdout().lock();
    writeln!(out, "kernel {}", caps.release())?;
    // The newest kinds have other numbers in other kernels, so the kernel's own enum is asked for them.
    let kind = |name: &str, id: u32| match trace::attach_type(&types, name) {
        Ok(number) => caps.tracing_kind(number, id),
        Err(why) => runtime::Answer::No(why),
    };
    let rows = [
        ("privileges", caps.privileged()),
        ("fsession", kind("BPF_TRACE_FSESSION", id_of("vfs_open"))),
        ("fentry and fexit", caps.fentry(id_of("vfs_open"))),
        (
            "fentry and fexit cookies",
            caps.fentry_helper(helper::GET_ATTACH_COOKIE, id_of("vfs_open")),
        ),
        ("fentry_multi", kind("BPF_TRACE_FENTRY_MULTI", 0)),
        ("fexit_multi", kind("BPF_TRACE_FEXIT_MULTI", 0)),
        ("fsession_multi", kind("BPF_TRACE_FSESSION_MULTI", 0)),
        ("kprobe.session", caps.kprobe_session()),
        ("kprobe.multi", caps.kprobe_multi()),
        ("kprobes", caps.kprobe()),
        ("bpf_get_attach_cookie", caps.bpf_cookie()),
        ("typed tracepoints", caps.tp_btf(tracepoint)),
        ("uprobe.session", caps.uprobe_session()),
        ("uprobe.multi", caps.uprobe_multi()),
        ("uprobes", caps.uprobe()),
        ("ring buffer", caps.ringbuf()),
        ("bpf_get_stack", caps.helper(helper::GET_STACK)),
        ("bpf_get_func_ip", caps.get_func_ip()),
        (
            "bpf_get_func_arg",
            caps.fentry_helper(helper::GET_FUNC_ARG, id_of("vfs_open")),
        ),
        (
            "bpf_get_func_arg_cnt",
            caps.fentry_helper(helper::GET_FUNC_ARG_CNT, id_of("vfs_open")),
        ),
        (
            "bpf_get_func_ret",
            caps.fentry_helper(helper::GET_FUNC_RET, id_of("vfs_open")),
        ),
        ("bpf_loop", caps.helper(helper::LOOP)),
        ("bpf_get_current_task_btf", caps.current_task_btf()),
        ("typed integer pointers", caps.int_pointers()),
    ];
    for (name, answer) in rows {
        match answer {
            runtime::Answer::Yes => writeln!(out, "  {name:26} yes")?,
            runtime::Answer::No(why) => writeln!(out, "  {name:26} no: {why}")?,
        }
    }
    Ok(())
}
