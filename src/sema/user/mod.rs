//! Targets in programs: which functions and USDT probes are meant. In: a target, the programs that were read. Out: probes with
//! their places; `uprobe` finds functions and `usdt` finds probes. Never reads a file.

mod uprobe;
mod usdt;

pub(super) use uprobe::uprobe;
pub(super) use usdt::{leave_out, usdt};

use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, TargetKind};
use crate::typed::{Event, Expr, ExprKind, Probe, UserProbe};
use crate::types::Types;
use crate::user::{Function, Image, Images, is_pattern};

type Refused = Box<Diagnostic>;

/// The targets that a target with patterns stands for: one for each function or probe. Others stand for themselves.
pub fn expand(query: &ast::Query, images: &Images) -> Vec<ast::Query> {
    let with = |kind: TargetKind| {
        let mut one = query.clone();
        one.target.kind = kind;
        one
    };
    let named = |ident: &ast::Ident, name: &str| ast::Ident {
        node: name.to_string(),
        span: ident.span,
    };
    let found: Vec<ast::Query> = match &query.target.kind {
        TargetKind::Uprobe { binary, symbol } if is_pattern(&symbol.node) => {
            let Some(Ok(image)) = images.get(&binary.node) else {
                return vec![query.clone()];
            };
            // Of a version that is asked for only that one is meant.
            let with_version = symbol.node.contains('@');
            let name = |function: &Function| match &function.version {
                Some(version) if with_version => format!("{}@{version}", function.name),
                Some(_) | None => function.name.clone(),
            };
            let mut found: Vec<(u64, usize, String)> = image
                .functions_named(&symbol.node)
                .into_iter()
                .filter(|function| !function.indirect && image.code_offset(function.address).is_some())
                .map(|function| (function.address, function.name.len(), name(function)))
                .collect();
            // Of the names that one function has, the shortest is its own: others have prefixes.
            found.sort_unstable();
            found.dedup_by_key(|(address, _, _)| *address);
            let mut names: Vec<String> = found.into_iter().map(|(_, _, name)| name).collect();
            names.sort_unstable();
            names.dedup();
            names
                .into_iter()
                .map(|name| {
                    with(TargetKind::Uprobe {
                        binary: binary.clone(),
                        symbol: named(symbol, &name),
                    })
                })
                .collect()
        }
        TargetKind::Usdt {
            binary,
            provider,
            name,
        } if is_pattern(&provider.node) || is_pattern(&name.node) => {
            let Some(Ok(image)) = images.get(&binary.node) else {
                return vec![query.clone()];
            };
            image
                .probes_named(&provider.node, &name.node)
                .into_iter()
                .map(|probe| {
                    with(TargetKind::Usdt {
                        binary: binary.clone(),
                        provider: named(provider, &probe.provider),
                        name: named(name, &probe.name),
                    })
                })
                .collect()
        }
        TargetKind::Uprobe { .. }
        | TargetKind::Usdt { .. }
        | TargetKind::Function { .. }
        | TargetKind::Tracepoint { .. } => return vec![query.clone()],
    };
    // Nothing matches: who resolves the pattern as a name says so.
    if found.is_empty() {
        vec![query.clone()]
    } else {
        found
    }
}

/// The probes that a target in programs means, whatever a query would read there.
///
/// # Errors
/// What is wrong with the target.
pub fn probes(query: &ast::Query, types: &Types, images: &Images) -> Result<Vec<Probe>, Vec<Diagnostic>> {
    expand(query, images)
        .iter()
        .map(|one| super::target::resolve(&one.target, types, images).map_err(|diag| vec![*diag]))
        .collect()
}

/// Which arguments can be fetched at no place.
pub(super) fn missing(probe: &UserProbe) -> Vec<bool> {
    let fetched = |index: usize| {
        probe
            .sites
            .iter()
            .any(|site| site.args.get(index).is_some_and(Option::is_some))
    };
    (0..probe.func.params.len())
        .map(|index| !fetched(index))
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
        for item in &event.items {
            item.source.walk(&mut look);
        }
        for predicate in &event.predicates {
            predicate.cond.walk(&mut look);
        }
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
