//! Running queries: compile each, attach it in the best way that this kernel lets, print events until the end, and tell what was
//! lost. In: the command line's queries. Out: events on stdout, everything else on stderr.

mod explain;
mod ladder;
mod output;

use std::io::Write;
use std::os::fd::AsFd;

use anyhow::anyhow;
use ksnoop_jit::compile::{self, CompileError, Job};
use ksnoop_jit::lower::{self, Filter, Target};
use ksnoop_jit::parser;
use ksnoop_jit::parser::ast::TargetKind;
use ksnoop_jit::sema::Limits;
use ksnoop_jit::typed;
use ksnoop_jit::types::Types;
use ksnoop_jit::wire::RecordLayout;
use ksnoop_jit_runtime as runtime;
use runtime::{Capabilities, Child, Events, Loaded, Signals};

use ladder::{Running, attach, ways};
use output::Output;

use crate::cli::{self, Cli};
use crate::{Failure, add_module, add_owners, complain, dump, open_types, tell};

/// Tokens of what the event loop waits for beside events.
const SIGNAL: u8 = 0;
const CHILD: u8 = 1;

/// The `trace` command.
pub(crate) fn run(cli: &Cli, texts: &[String]) -> Result<(), Failure> {
    if cli.dump_ast {
        let mut out = std::io::stdout().lock();
        for text in texts {
            let query = parser::parse(text).map_err(|diags| refuse(cli, text, &diags.into_vec()))?;
            write!(out, "{}", parser::dump(&query))?;
        }
        if !(cli.dump_ir || cli.dump_insns || cli.dump_btf || cli.emit_obj.is_some()) {
            return Ok(());
        }
    }
    let mut types = None;
    let queries = understand(cli, texts, &mut types)?;
    let Some(types) = types else {
        return Err(anyhow!("no query").into());
    };
    let caps = Capabilities::detect();
    let target = Target {
        reads: match cli.reads {
            cli::Reads::Auto => lower::Reads::Auto,
            cli::Reads::Probe => lower::Reads::Probe,
        },
        // Asked for by trying, and only if a query needs it.
        current_task_btf: cli.btf.is_some()
            || !queries.iter().any(mentions_task)
            || caps.current_task_btf().is_yes(),
        ring_bytes: cli
            .pages
            .map_or(lower::RING_BYTES, runtime::object::ring_bytes_of_pages),
        filter: Filter {
            pid: cli.pid,
            tid: cli.tid,
            uid: cli.uid,
            cpu: cli.cpu,
        },
    };
    if dump::wanted(cli) {
        return dump_all(cli, &queries, &types, &target);
    }
    if let runtime::Answer::No(why) = caps.privileged() {
        return Err(anyhow!("{why}: run it as root, or give it CAP_BPF and CAP_PERFMON").into());
    }
    session(cli, &queries, &types, target)
}

/// Tells what is wrong with a query.
fn refuse(cli: &Cli, text: &str, diags: &[ksnoop_jit::diag::Diagnostic]) -> Failure {
    tell(text, diags, cli.color);
    Failure::Query
}

/// Gives all queries their meaning; every mistake in every query is told.
fn understand(cli: &Cli, texts: &[String], types: &mut Option<Types>) -> Result<Vec<typed::Query>, Failure> {
    let mut parsed = Vec::new();
    let mut wrong = false;
    for text in texts {
        match parser::parse(text) {
            Ok(query) => parsed.push(query),
            Err(diags) => {
                tell(text, &diags.into_vec(), cli.color);
                wrong = true;
            }
        }
    }
    if wrong {
        return Err(Failure::Query);
    }
    let types = types.insert(open_types(cli)?);
    if cli.btf.is_none() {
        let mut unknown = Vec::new();
        for query in &parsed {
            let TargetKind::Function { module, name } = &query.target.kind else {
                continue;
            };
            match module {
                Some(module) => {
                    add_module(types, &module.node)?;
                }
                None => {
                    let stem = runtime::symbols::stem_of(&name.node);
                    if types.functions_named(stem).is_empty() {
                        unknown.push(stem.to_string());
                    }
                }
            }
        }
        add_owners(types, &unknown)?;
    }
    let limits = Limits::default();
    let limits = Limits {
        bytes: cli.max_bytes.unwrap_or(limits.bytes),
        string: cli
            .max_string
            .map_or(limits.string, |bytes| bytes.clamp(2, 1 << 14)),
    };
    let mut queries = Vec::new();
    for text in texts {
        match compile::understand(text, types, limits) {
            Ok(resolved) => {
                tell(text, &resolved.warnings, cli.color);
                queries.push(resolved.query);
            }
            Err(diags) => {
                tell(text, &diags, cli.color);
                wrong = true;
            }
        }
    }
    if wrong { Err(Failure::Query) } else { Ok(queries) }
}

fn mentions_task(query: &typed::Query) -> bool {
    let mut found = false;
    for event in &query.events {
        let mut look = |expr: &typed::Expr| {
            found |= expr.kind == typed::ExprKind::Builtin(typed::Builtin::Task);
        };
        for item in &event.items {
            item.source.walk(&mut look);
        }
        for predicate in &event.predicates {
            predicate.cond.walk(&mut look);
        }
    }
    found
}

fn dump_all(cli: &Cli, queries: &[typed::Query], types: &Types, target: &Target) -> Result<(), Failure> {
    let mut first_event = 0;
    for (index, query) in queries.iter().enumerate() {
        let mut last = None;
        for typed in ways(cli).iter().copied() {
            let job = Job {
                first_event,
                query: index,
                queries: queries.len(),
                typed,
            };
            match compile::generate(query, types, target, job) {
                Ok(artifact) => {
                    dump::artifact(cli, &query.text, &artifact)?;
                    first_event += artifact.programs.len() as u32;
                    last = None;
                    break;
                }
                Err(error @ CompileError::Unsupported(_)) => last = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(error) = last {
            return Err(error.into());
        }
    }
    Ok(())
}

fn session(cli: &Cli, queries: &[typed::Query], types: &Types, target: Target) -> Result<(), Failure> {
    // From here on a signal ends the run in order.
    let signals = Signals::catch()?;
    let mut target = target;
    let mut child = match &cli.command {
        Some(command) => {
            let child = Child::hold(&runtime::run_child::words(command))?;
            target.filter.pid.get_or_insert(child.pid());
            Some(child)
        }
        None => None,
    };
    let mut running: Vec<Running> = Vec::new();
    let mut first_event = 0;
    for (index, query) in queries.iter().enumerate() {
        let job = Job {
            first_event,
            query: index,
            queries: queries.len(),
            typed: true,
        };
        let shared = running.first().map(|first| first.attached.maps().clone());
        let Some(one) = attach(cli, query, types, &target, job, shared)? else {
            continue;
        };
        first_event += one.layouts.len() as u32;
        running.push(one);
    }
    let Some(first) = running.first() else {
        // Only `--check` attaches nothing.
        return Ok(());
    };
    let maps = first.attached.maps().clone();
    let mut events = Events::open(&maps, lower::EVENTS)?;
    events.watch(signals.as_fd(), SIGNAL)?;
    if cli.verbose > 0 {
        for (query, one) in queries.iter().zip(&running) {
            let links = one.attached.links();
            let places = if links == 1 { "place" } else { "places" };
            complain(&format!(
                "attached: {} by {} at {links} {places}",
                query.probe.func().name,
                one.how
            ));
        }
    }
    if let Some(child) = &mut child {
        events.watch(child.as_fd(), CHILD)?;
        child.go()?;
    }
    let layouts: Vec<RecordLayout> = running.iter().flat_map(|one| one.layouts.clone()).collect();
    let mut output = Output::open(cli, types, &layouts)?;
    let printed = output.pump(cli, &mut events, &signals, child.as_mut());
    finish(cli, queries, running, events, output, printed, signals)
}

/// Detaches, prints what is still in the buffer, and tells losses and faults.
fn finish(
    cli: &Cli,
    queries: &[typed::Query],
    running: Vec<Running>,
    mut events: Events,
    mut output: Output<'_>,
    printed: Result<(), Failure>,
    signals: Signals,
) -> Result<(), Failure> {
    // A second Ctrl-C while detaching takes its time kills.
    drop(signals);
    let mut loaded: Vec<Loaded> = Vec::new();
    for one in running {
        if cli.verbose > 0 {
            for stats in one.attached.stats()? {
                complain(&format!(
                    "{}: id {}, {} instructions verified, {} bytes of machine code",
                    stats.name, stats.id, stats.verified_insns, stats.jited_bytes
                ));
            }
        }
        loaded.push(one.attached.detach_all(|_, _| {}));
    }
    printed?;
    events.drain_all(|record| output.record(cli, record));
    output.flush()?;
    if let Some(error) = output.failed.take() {
        return Err(error.into());
    }
    let Some(first) = loaded.first() else {
        return Ok(());
    };
    for (index, query) in queries.iter().enumerate() {
        let counter = |which: u32| -> Result<u64, Failure> {
            match first.maps().percpu_u64(lower::COUNTS, 2 * index as u32 + which) {
                Ok(all) => Ok(all.iter().sum()),
                Err(runtime::RuntimeError::NoSuch { .. }) => Ok(0),
                Err(error) => Err(error.into()),
            }
        };
        let (lost, faults) = (counter(0)?, counter(1)?);
        let name = &query.probe.func().name;
        if lost > 0 {
            complain(&format!(
                "{name}: {lost} events lost, the buffer was full (-P makes it larger)"
            ));
        }
        if faults > 0 {
            complain(&format!(
                "{name}: in {faults} predicates a pointer was bad, so they did not hold"
            ));
        }
    }
    if cli.verbose > 0 {
        complain(&format!("{} events", output.count));
    }
    Ok(())
}
