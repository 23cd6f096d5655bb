//! Queries about programs: which families of places they are about, and what is attached where. In: parsed queries and the
//! programs that they name. Out: families for the ladder, specs for the runtime. A place that can't be probed is told,
//! and is an error only if it is the only one.

use ksnoop_jit::compile::{self, Artifact};
use ksnoop_jit::diag::{Code, Diagnostic};
use ksnoop_jit::lower::ProgramKind;
use ksnoop_jit::parser::ast::{Query, TargetKind};
use ksnoop_jit::sema::Limits;
use ksnoop_jit::typed::{self, Probe, UserProbe};
use ksnoop_jit::types::Types;
use ksnoop_jit::user::{Arch, Images};
use ksnoop_jit_runtime as runtime;
use runtime::{AttachTarget, Attached, Loaded, ProgramSpec, Site};

use super::number::number;
use super::rungs::{Rung, Specs};
use super::targets::{Asked, Family, Place};
use crate::cli::Cli;
use crate::{complain, tell};

/// Gives a query about a program its meaning. Functions whose arguments are of the same types share programs; a USDT probe's
/// programs depend on its own recipes.
pub(super) fn understand(
    cli: &Cli,
    text: &str,
    query: &Query,
    types: &Types,
    images: &Images,
    limits: Limits,
) -> Result<Asked, Vec<Diagnostic>> {
    let name = match &query.target.kind {
        TargetKind::Uprobe { symbol, .. } => symbol.node.clone(),
        TargetKind::Usdt { provider, name, .. } => format!("{}:{}", provider.node, name.node),
        TargetKind::Function { name, .. } => name.node.clone(),
        TargetKind::Tracepoint { event, .. } => event.node.clone(),
    };
    let mut families: Vec<Family> = Vec::new();
    let all = compile::understand_all(text, types, images, limits)?;
    let mut warnings = all.warnings;
    for resolved in all.resolved {
        for warning in resolved.warnings {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        let place = place(&resolved.query);
        let shares = |family: &&mut Family| match (&family.query.probe, &resolved.query.probe) {
            (Probe::Uprobe(a), Probe::Uprobe(b)) => {
                let args = |probe: &UserProbe| probe.sites.first().map(|site| site.args.clone());
                a.path == b.path
                    && a.returns == b.returns
                    && a.func.params == b.func.params
                    && a.func.ret == b.func.ret
                    && args(a) == args(b)
                    && family.query.events == resolved.query.events
            }
            (_, _) => false,
        };
        match families.iter_mut().find(shares) {
            Some(family) => family.places.push(place),
            None => families.push(Family {
                query: resolved.query,
                places: vec![place],
            }),
        }
    }
    tell_some(cli, text, &warnings);
    if all.unfit > 0 {
        let what = match &query.target.kind {
            TargetKind::Usdt { .. } => "probe",
            TargetKind::Uprobe { .. } | TargetKind::Function { .. } | TargetKind::Tracepoint { .. } => {
                "function"
            }
        };
        let count: usize = families.iter().map(|family| family.places.len()).sum();
        complain(&format!(
            "{name}: {}; left out: {} the query does not fit",
            number(count as u64, what),
            all.unfit
        ));
    }
    Ok(Asked {
        text: text.to_string(),
        name,
        families,
    })
}

/// Refuses a program for another machine: the kernel would put probes into it all the same, and nothing would run there.
pub(super) fn of_this_machine(asked: Asked, query: &Query) -> Result<Asked, Vec<Diagnostic>> {
    let binary = match &query.target.kind {
        TargetKind::Uprobe { binary, .. } | TargetKind::Usdt { binary, .. } => binary,
        TargetKind::Function { name, .. } => name,
        TargetKind::Tracepoint { event, .. } => event,
    };
    let own = if cfg!(target_arch = "aarch64") {
        Arch::Aarch64
    } else {
        Arch::X86_64
    };
    let probes = asked
        .families
        .iter()
        .filter_map(|family| family.query.probe.user());
    let foreign = probes.map(|probe| probe.arch).find(|arch| *arch != own);
    match foreign {
        None => Ok(asked),
        Some(arch) => Err(vec![
            Diagnostic::error(
                Code::UnknownBinary,
                binary.span,
                format!("`{}` can't be traced here", binary.node),
            )
            .label(format!(
                "it is for {}, this machine is {}",
                arch.name(),
                own.name()
            ))
            .help("`--emit-obj` and the dumps show what would be run there"),
        ]),
    }
}

/// Tells what is odd; of much only the beginning, unless more is asked for.
fn tell_some(cli: &Cli, text: &str, warnings: &[Diagnostic]) {
    const ENOUGH: usize = 4;
    let shown = if cli.verbose > 0 || warnings.len() <= ENOUGH + 1 {
        warnings.len()
    } else {
        ENOUGH
    };
    tell(cli, text, &warnings[..shown]);
    if shown < warnings.len() {
        complain(&format!(
            "{} of this query, which -v shows",
            number((warnings.len() - shown) as u64, "more warning")
        ));
    }
}

fn place(query: &typed::Query) -> Place {
    let func = query.probe.func().clone();
    Place {
        shown: func.name.clone(),
        func,
        symbol: None,
        by_type: false,
        rival: false,
        user: query.probe.user().cloned(),
    }
}

/// What is to be attached where. With shared programs each place is told by its cookie.
pub(super) fn specs(
    family: &Family,
    artifact: &Artifact,
    rung: Rung,
    shared: bool,
    pid: Option<u32>,
) -> Specs {
    let mut specs = Specs::default();
    for lowered in &artifact.programs {
        let kind = kind(lowered.kind, rung);
        let name = lowered.func.name.clone();
        // The probe's path is the same for all of a family.
        let mut sites: Vec<(usize, Site)> = Vec::new();
        for (index, place) in family.places.iter().enumerate() {
            let Some(probe) = &place.user else {
                continue;
            };
            for (at, site) in probe.sites.iter().enumerate() {
                let cookie = if shared {
                    Some(index as u64)
                } else {
                    match lowered.sites.iter().find(|served| served.site == at) {
                        Some(served) => served.cookie,
                        None => continue,
                    }
                };
                let site = Site {
                    at: site.offset,
                    cookie: cookie.unwrap_or(0),
                    ref_ctr: site.semaphore,
                };
                if rung == Rung::Uprobe {
                    specs.add(
                        Some(index),
                        ProgramSpec {
                            name: name.clone(),
                            kind: kind.clone(),
                            attach: AttachTarget::File {
                                path: probe.path.clone(),
                                offset: site.at,
                                ref_ctr: site.ref_ctr,
                                pid,
                            },
                            cookie,
                        },
                    );
                } else {
                    sites.push((index, site));
                }
            }
        }
        if rung == Rung::Uprobe {
            continue;
        }
        for (index, site) in &sites {
            specs.add_site(site.at, *index);
        }
        let path = family
            .places
            .first()
            .and_then(|place| place.user.as_ref())
            .map_or_else(std::path::PathBuf::new, |probe| probe.path.clone());
        specs.add(
            None,
            ProgramSpec {
                name,
                kind,
                attach: AttachTarget::FileSites {
                    path,
                    sites: sites.into_iter().map(|(_, site)| site).collect(),
                    pid,
                },
                cookie: None,
            },
        );
    }
    specs
}

fn kind(kind: ProgramKind, rung: Rung) -> runtime::ProgramKind {
    let ret = kind == ProgramKind::Uretprobe;
    match rung {
        Rung::Uprobe if ret => runtime::ProgramKind::Uretprobe,
        Rung::Uprobe => runtime::ProgramKind::Uprobe,
        Rung::UprobeSession if kind == ProgramKind::UprobeSession => runtime::ProgramKind::UprobeMulti {
            session: true,
            ret: false,
        },
        Rung::UprobeMulti
        | Rung::UprobeSession
        | Rung::Fsession
        | Rung::Fentry
        | Rung::FsessionMulti
        | Rung::FentryMulti
        | Rung::KprobeSession
        | Rung::KprobeMulti
        | Rung::Kprobe => runtime::ProgramKind::UprobeMulti { session: false, ret },
    }
}

/// Attaches each place by a probe of its own, as far as that can be done.
pub(super) fn attach_each(loaded: Loaded, name: &str) -> Result<Attached, String> {
    let (attached, failed) = loaded
        .attach_lenient(|_, _| {})
        .map_err(|error| error.to_string())?;
    if attached.links() == 0 {
        return Err(failed
            .first()
            .map_or("there is no place".to_string(), |failed| failed.error.to_string()));
    }
    for failed in &failed {
        complain(&format!("{name}: left out: {}", failed.error));
    }
    Ok(attached)
}

/// How many places a family has.
pub(super) fn sites(family: &Family) -> Option<usize> {
    family
        .places
        .iter()
        .map(|place| Some(place.user.as_ref()?.sites.len()))
        .sum()
}
