//! Targets in programs: which functions and USDT probes are meant. In: a target, the programs that were read. Out: probes with
//! their places; `uprobe` finds functions and `usdt` finds probes. Never reads a file.

mod convention;
mod uprobe;
mod usdt;

pub(super) use convention::in_one_register;

use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, TargetKind};
use crate::typed::{Event, Expr, ExprKind, Probe, UserProbe};
use crate::types::Types;
use crate::user::{Image, Images};

use super::{Among, Limits, Resolved};

type Refused = Box<Diagnostic>;

/// What a target in programs stands for.
#[derive(Debug, Default)]
pub struct Meant {
    /// Functions or USDT probes. Places of one name that take the same are one.
    pub probes: Vec<Probe>,
    /// What is odd.
    pub warnings: Vec<Diagnostic>,
    /// What is odd if a query reads arguments or what is returned.
    pub doubts: Vec<Diagnostic>,
}

/// A query about programs, with a meaning for everything that its target stands for.
#[derive(Debug)]
pub struct All {
    /// For each function or probe that it fits, at least one.
    pub resolved: Vec<Resolved>,
    /// What is odd about the target.
    pub warnings: Vec<Diagnostic>,
    /// How many functions or probes it does not fit: they have no such argument, or none that can be fetched.
    pub unfit: usize,
}

/// The probes that a target in programs means, whatever a query would read there.
///
/// # Errors
/// What is wrong with the target.
pub fn probes(query: &ast::Query, types: &Types, images: &Images) -> Result<Meant, Vec<Diagnostic>> {
    meant(query, types, images, false)
}

fn meant(
    query: &ast::Query,
    types: &Types,
    images: &Images,
    everything: bool,
) -> Result<Meant, Vec<Diagnostic>> {
    let meant = match &query.target.kind {
        TargetKind::Uprobe { binary, symbol } => uprobe::probes(binary, symbol, types, images),
        TargetKind::Usdt {
            binary,
            provider,
            name,
        } => usdt::probes(binary, provider, name, types, images, everything),
        TargetKind::Function { .. } | TargetKind::Tracepoint { .. } => {
            unreachable!("bug in ksnoop-jit: a target of the kernel looked for in programs")
        }
    };
    meant.map_err(|diag| vec![*diag])
}

/// Gives a query about programs its meaning, for each function or probe that its target stands for.
///
/// # Errors
/// What is wrong with the target, or with the query for the first of them if it fits none.
pub fn resolve_all(
    text: &str,
    query: &ast::Query,
    types: &Types,
    images: &Images,
    limits: Limits,
) -> Result<All, Vec<Diagnostic>> {
    let Meant {
        probes,
        warnings,
        doubts,
    } = meant(query, types, images, query.items.is_none())?;
    let mut all = All {
        resolved: Vec::new(),
        warnings,
        unfit: 0,
    };
    let mut first_error = None;
    let count = probes.len();
    let among = if count == 1 { Among::One } else { Among::Many };
    for probe in probes {
        let fitted =
            super::type_for(text, query, types, limits, probe, true, among).and_then(|mut resolved| {
                if let Probe::Usdt(usdt) = &mut resolved.query.probe {
                    let left = usdt::leave_out(usdt, &resolved.query.events, query.target.span, images)
                        .map_err(|diag| vec![*diag])?;
                    resolved.warnings.extend(left);
                }
                Ok(resolved)
            });
        match fitted {
            Ok(resolved) => all.resolved.push(resolved),
            Err(diags) => {
                all.unfit += 1;
                first_error.get_or_insert(diags);
            }
        }
    }
    if let Some(mut diags) = first_error.filter(|_| all.resolved.is_empty()) {
        diags.extend(all.warnings);
        diags.extend(doubts);
        return Err(diags);
    }
    assert!(
        count > 0,
        "bug in ksnoop-jit: a target that means nothing and is no mistake"
    );
    if all.resolved.iter().any(|one| reads_call(&one.query.events)) {
        all.warnings.extend(doubts);
    }
    Ok(all)
}

/// Whether events read an argument or what is returned.
fn reads_call(events: &[Event]) -> bool {
    let mut reads = false;
    for event in events {
        event.walk(&mut |expr| reads |= matches!(expr.kind, ExprKind::Arg(_) | ExprKind::Return));
    }
    reads
}

/// Why arguments can be fetched at no place.
pub(super) fn missing(probe: &UserProbe) -> Vec<Option<String>> {
    let fetched = |index: usize| {
        probe
            .sites
            .iter()
            .any(|site| site.args.get(index).is_some_and(Option::is_some))
    };
    (0..probe.func.params.len())
        .map(|index| (!fetched(index)).then(|| probe.reasons.get(index).cloned().unwrap_or_default()))
        .collect()
}

/// The arguments that events mention, by index, sorted.
pub fn used_arguments(events: &[Event]) -> Vec<usize> {
    let mut used = Vec::new();
    let mut look = |expr: &Expr| {
        if let ExprKind::Arg(index) = expr.kind
            && !used.contains(&index)
        {
            used.push(index);
        }
    };
    for event in events {
        event.walk(&mut look);
    }
    used.sort_unstable();
    used
}

/// The image of a binary.
fn image<'i>(binary: &ast::Ident, images: &'i Images) -> Result<&'i Image, Refused> {
    let why = match images.get(&binary.node) {
        Some(Ok(image)) => return Ok(image),
        Some(Err(why)) => why.clone(),
        None => "it has not been read".to_string(),
    };
    Err(Box::new(
        Diagnostic::error(
            Code::UnknownBinary,
            binary.span,
            format!("`{}` can't be traced", binary.node),
        )
        .label(why)
        .help("write a path, or the name of a program on PATH or of a library, such as `libc`"),
    ))
}

fn did_you_mean(diag: Diagnostic, near: &[&str]) -> Diagnostic {
    if near.is_empty() {
        return diag;
    }
    let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    diag.help(format!("did you mean {}?", near.join(" or ")))
}
