//! From syntax to meaning: names become arguments, members and types, C's typing rules are applied, items become
//! predicates and shown values, and events are made of them. In: a syntax tree, the kernel's types. Out: a typed query
//! with nothing unresolved, or diagnostics. Never decides how something is read: that is lowering's.

mod address;
mod aggregate;
mod arith;
mod array;
mod call;
mod compare;
mod compatible;
mod ctypes;
mod decided;
mod duration;
mod expr;
mod fetched;
mod foreign;
mod format;
mod items;
mod keys;
mod layout;
mod name;
mod percpu;
mod phases;
mod place;
mod pointer;
mod scope;
mod show;
mod sized;
mod stack;
mod strings;
mod target;
#[cfg(test)]
mod tests;
mod typename;
mod user;

pub use target::unknown_function;
pub use user::{All, Meant, probes, resolve_all, used_arguments};

use crate::diag::{Diagnostic, Severity};
use crate::parser::ast::{self, TargetKind};
use crate::typed;
use crate::types::{Param, TypeId, Types};
use crate::user::{Arch, Images};

/// What bounds the size of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a struct, union or array that are copied.
    pub bytes: u32,
    /// Bytes of a string, its NUL included.
    pub string: u32,
    /// Stacks that come with each event.
    pub stacks: Stacks,
    /// Events that tell of a whole call also tell how long it took, in an item called [`crate::wire::DURATION`].
    pub durations: bool,
}

/// Which call stacks come with each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// The kernel's.
    pub kernel: bool,
    /// The process's.
    pub user: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bytes: 4096,
            string: 512,
            stacks: Stacks::default(),
            durations: false,
        }
    }
}

/// A typed query and what is odd about it.
#[derive(Debug)]
pub struct Resolved {
    /// The query.
    pub query: typed::Query,
    /// Warnings only.
    pub warnings: Vec<Diagnostic>,
    /// What it computes depends on the name of what is traced.
    pub by_name: bool,
}

/// Gives a query its meaning. `text` is what it was parsed from, `images` are the programs that targets in user space name. On failure all
/// mistakes are told, and warnings with them. Of several functions or probes in programs the first is meant.
pub fn resolve(
    text: &str,
    query: &ast::Query,
    types: &Types,
    images: &Images,
    limits: Limits,
) -> Result<Resolved, Vec<Diagnostic>> {
    let probe = match &query.target.kind {
        TargetKind::Function { module, name } => {
            target::function(module.as_ref(), name, types).map(typed::Probe::Function)
        }
        TargetKind::Tracepoint { group: _, event } => {
            target::tracepoint(event, types).map(typed::Probe::Tracepoint)
        }
        TargetKind::Uprobe { .. } | TargetKind::Usdt { .. } => {
            let mut all = resolve_all(text, query, types, images, limits)?;
            let mut first = all.resolved.swap_remove(0);
            first.warnings.splice(0..0, all.warnings);
            return Ok(first);
        }
    };
    let probe = probe.map_err(|diag| vec![*diag])?;
    resolve_for(text, query, types, limits, probe)
}

/// The same for a target that has been resolved already, whatever the query's own says: one of many functions, or one that
/// was chosen by more than a name.
pub fn resolve_for(
    text: &str,
    query: &ast::Query,
    types: &Types,
    limits: Limits,
    probe: typed::Probe,
) -> Result<Resolved, Vec<Diagnostic>> {
    type_for(text, query, types, limits, probe, true, Among::One)
}

/// The same for one of many functions, where it is no mistake that the query does not fit: nothing is suggested, as what is near
/// is looked for among all names that there are.
pub fn fit(
    text: &str,
    query: &ast::Query,
    types: &Types,
    limits: Limits,
    probe: typed::Probe,
) -> Result<Resolved, Vec<Diagnostic>> {
    type_for(text, query, types, limits, probe, false, Among::Many)
}

/// Whether a query's target stands for several functions or probes, of which this is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Among {
    One,
    Many,
}

fn type_for(
    text: &str,
    query: &ast::Query,
    types: &Types,
    limits: Limits,
    probe: typed::Probe,
    suggests: bool,
    among: Among,
) -> Result<Resolved, Vec<Diagnostic>> {
    let func = probe.func();
    let ret = probe.ret();
    let mut sema = Sema {
        types,
        text,
        limits,
        params: &func.params,
        numbered: match &probe {
            // The number of arguments is none of them.
            typed::Probe::Usdt(_) => func.params.iter().filter(|param| param.name != "argc").count(),
            typed::Probe::Function(_) | typed::Probe::Tracepoint(_) | typed::Probe::Uprobe(_) => {
                func.params.len()
            }
        },
        ret,
        subject: func.name.clone(),
        module: func.id.module,
        user: probe.user().is_some(),
        arch: probe.user().map_or(Arch::X86_64, |probe| probe.arch),
        described: match &probe {
            typed::Probe::Function(func) => func.id != TypeId::VOID,
            typed::Probe::Tracepoint(_) => true,
            typed::Probe::Uprobe(probe) | typed::Probe::Usdt(probe) => probe.described,
        },
        suggests,
        missing: probe.user().map_or(Vec::new(), user::missing),
        marks: None,
        alone: among == Among::One,
        unevaluated: 0,
        by_name: false,
        diags: Vec::new(),
    };
    let events = if aggregate::is_wanted(query) {
        sema.without_stacks(query.target.span)
            .and_then(|()| sema.aggregation(query))
            .map(|(event, aggregate)| (vec![event], Some(aggregate)))
    } else {
        sema.events(query).map(|mut events| {
            stack::add(&mut events, limits.stacks, query.target.span);
            if limits.durations {
                duration::add(&mut events, query.target.span);
            }
            (events, None)
        })
    };
    let failed = sema.diags.iter().any(|diag| diag.severity == Severity::Error);
    let mut diags = sema.diags;
    diags.sort_by_key(|diag| diag.span);
    match events {
        Ok((events, aggregate)) if !failed => Ok(Resolved {
            query: typed::Query {
                text: text.to_string(),
                probe: probe.clone(),
                events,
                aggregate,
            },
            warnings: diags,
            by_name: sema.by_name,
        }),
        Ok(_) | Err(Reported) => Err(diags),
    }
}

/// An error has been reported already; whoever sees this just gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reported;

/// What typing gives.
type R<T> = Result<T, Reported>;

/// The state of one query's typing.
struct Sema<'a> {
    types: &'a Types,
    text: &'a str,
    limits: Limits,
    params: &'a [Param],
    /// How many of them have numbers.
    numbered: usize,
    /// What the function returns; `None` where there is no call.
    ret: Option<TypeId>,
    /// The name of what is traced, for messages.
    subject: String,
    /// The module that it belongs to, or the program.
    module: u16,
    /// Whether it is in a program, whose pointers point into its own memory.
    user: bool,
    /// The machine that it runs on.
    arch: Arch,
    /// Whether it is known which arguments there are; else they are what registers hold.
    described: bool,
    /// For each argument of a program, why it can be fetched nowhere, if so; empty if it is at none of the places.
    missing: Vec<Option<String>>,
    /// Whether mistakes are told, so that what is near is worth looking for.
    suggests: bool,
    /// Where `entry` and `exit` occur in what is typed; `None` where they can't.
    marks: Option<Vec<phases::Mark>>,
    /// Whether it is the only function, or all are of one name.
    alone: bool,
    /// In how many expressions this one is of which only the type counts, or nothing.
    unevaluated: u32,
    /// Whether the name of what is traced has become a constant.
    by_name: bool,
    diags: Vec<Diagnostic>,
}

impl Sema<'_> {
    fn warn(&mut self, diag: Diagnostic) {
        if !self.diags.contains(&diag) {
            self.diags.push(diag);
        }
    }
}
