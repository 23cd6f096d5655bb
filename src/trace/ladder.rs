//! The attach ladder: a query is compiled for the best way to hook its target, loaded and attached; what the kernel refuses is
//! tried in the next way. In: a typed query. Out: running programs and the layouts of their records.

use std::io::Write;

use anyhow::anyhow;
use ksnoop_jit::compile::{self, Artifact, CompileError, Job};
use ksnoop_jit::lower::{ProgramKind, Target};
use ksnoop_jit::typed;
use ksnoop_jit::types::Types;
use ksnoop_jit::wire::RecordLayout;
use ksnoop_jit_runtime as runtime;
use runtime::{AttachTarget, Attached, Loaded, LogLevel, ProgramSpec, Relocated};

use super::explain::{explained, explanation, takes_another};
use crate::cli::{self, Cli};
use crate::{Failure, complain};

/// One query in the kernel.
pub(super) struct Running {
    pub(super) attached: Attached,
    pub(super) layouts: Vec<RecordLayout>,
    pub(super) how: &'static str,
}

/// Compiles, loads and attaches one query in the first way that works. `None`: only checked.
pub(super) fn attach(
    cli: &Cli,
    query: &typed::Query,
    types: &Types,
    target: &Target,
    job: Job,
    shared: Option<runtime::Maps>,
) -> Result<Option<Running>, Failure> {
    let name = &query.probe.func().name;
    let mut refused: Vec<String> = Vec::new();
    for typed in ways(cli).iter().copied() {
        let artifact = match compile::generate(query, types, target, Job { typed, ..job }) {
            Ok(artifact) => artifact,
            Err(CompileError::Unsupported(why)) => {
                refused.push(why);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let how = how(&artifact);
        if typed && let Some(why) = takes_another(query, types) {
            refused.push(format!("{how}: {why}"));
            continue;
        }
        let loaded = match load(cli, query, types, &artifact, shared.clone()) {
            Ok(loaded) => loaded,
            Err(error) if error.another_kind_may_work() => {
                refused.push(format!("{how}: {error}"));
                continue;
            }
            Err(error) => return Err(explained(query, error)),
        };
        if cli.check {
            for stats in loaded.stats()? {
                println(&format!(
                    "{}: the verifier accepts it as {how}: {} instructions, {} verified",
                    query.text,
                    stats.translated_bytes / 8,
                    stats.verified_insns
                ))?;
                if cli.verbose > 1 {
                    println(&stats.log)?;
                }
            }
            return Ok(None);
        }
        match loaded.attach() {
            Ok(attached) => {
                for why in refused.iter().filter(|_| cli.verbose > 0) {
                    complain(&format!("{name}: not by {why}"));
                }
                let layouts = artifact
                    .programs
                    .into_iter()
                    .filter_map(|lowered| lowered.layout)
                    .collect();
                return Ok(Some(Running {
                    attached,
                    layouts,
                    how,
                }));
            }
            Err(error) if error.another_kind_may_work() => {
                let why = explanation(query).map_or(String::new(), |why| format!(" ({why})"));
                refused.push(format!("{how}: {error}{why}"));
            }
            Err(error) => return Err(explained(query, error)),
        }
    }
    match refused.as_slice() {
        [only] => Err(anyhow!("can't trace `{name}`: {only}").into()),
        all => Err(anyhow!("can't trace `{name}`:\n  {}", all.join("\n  ")).into()),
    }
}

/// The ways to attach, best first: by type or not.
pub(super) fn ways(cli: &Cli) -> &'static [bool] {
    match cli.attach {
        cli::Attach::Auto => [true, false].as_slice(),
        cli::Attach::Fentry => [true].as_slice(),
        cli::Attach::Kprobe => [false].as_slice(),
    }
}

fn load(
    cli: &Cli,
    query: &typed::Query,
    types: &Types,
    artifact: &Artifact,
    shared: Option<runtime::Maps>,
) -> runtime::Result<Loaded> {
    let relocated = Relocated::new(&runtime::ObjectSpec {
        elf: artifact.object.elf.clone(),
        target_btf: artifact.object.target_btf.clone(),
        map_sizes: Vec::new(),
        shared,
    })?;
    for (program, after) in artifact.object.programs.iter().filter_map(|program| {
        Some((
            program,
            relocated.programs().find(|after| after.name == program.name)?,
        ))
    }) {
        // A wrong offset would show garbage as a value: better no value at all.
        assert!(
            program.check_relocated(&without_maps(after)).is_ok(),
            "bug in ksnoop-jit: relocation of {} disagrees with the type reader",
            program.name
        );
    }
    let specs: Vec<ProgramSpec> = artifact
        .programs
        .iter()
        .map(|lowered| ProgramSpec {
            name: lowered.func.name.clone(),
            kind: kind(lowered.kind),
            attach: attach_target(query, types, lowered.kind),
            cookie: None,
        })
        .collect();
    let log = if cli.verbose > 1 {
        LogLevel::Full
    } else {
        LogLevel::Off
    };
    relocated.load(&specs, log)
}

/// The instructions with map descriptors taken out again, which only this run has.
fn without_maps(program: &runtime::RelocatedProgram) -> Vec<u8> {
    let mut insns = program.insns.clone();
    for map_ref in &program.map_refs {
        let at = map_ref.slot * runtime::object::INSN_SIZE + 4;
        insns[at..at + 4].fill(0);
    }
    insns
}

fn kind(kind: ProgramKind) -> runtime::ProgramKind {
    match kind {
        ProgramKind::Fentry => runtime::ProgramKind::Fentry,
        ProgramKind::Fexit => runtime::ProgramKind::Fexit,
        ProgramKind::TpBtf => runtime::ProgramKind::TpBtf,
        ProgramKind::RawTp => runtime::ProgramKind::RawTp,
        ProgramKind::Kprobe => runtime::ProgramKind::Kprobe,
        ProgramKind::Kretprobe => runtime::ProgramKind::Kretprobe,
    }
}

fn attach_target(query: &typed::Query, types: &Types, kind: ProgramKind) -> AttachTarget {
    let func = query.probe.func();
    let module = match func.id.module {
        0 => None,
        number => Some(types.module_name(number).to_string()),
    };
    match kind {
        ProgramKind::Fentry | ProgramKind::Fexit | ProgramKind::TpBtf => AttachTarget::Btf {
            id: func.id.id,
            module,
            name: func.name.clone(),
        },
        ProgramKind::RawTp => AttachTarget::RawTracepoint(func.name.clone()),
        ProgramKind::Kprobe | ProgramKind::Kretprobe => AttachTarget::Symbol {
            name: func.name.clone(),
            module,
            offset: 0,
        },
    }
}

fn how(artifact: &Artifact) -> &'static str {
    let has = |kind| artifact.programs.iter().any(|lowered| lowered.kind == kind);
    match () {
        () if has(ProgramKind::Fentry) && has(ProgramKind::Fexit) => "fentry and fexit",
        () if has(ProgramKind::Fentry) => "fentry",
        () if has(ProgramKind::Fexit) => "fexit",
        () if has(ProgramKind::Kprobe) && has(ProgramKind::Kretprobe) => "kprobe and kretprobe",
        () if has(ProgramKind::Kprobe) => "kprobe",
        () if has(ProgramKind::Kretprobe) => "kretprobe",
        () if has(ProgramKind::TpBtf) => "typed tracepoint",
        () => "raw tracepoint",
    }
}

fn println(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout().lock(), "{text}")?;
    Ok(())
}
