//! Running queries: compile each, attach it in the best way that this kernel lets, print events until the end, and tell what was
//! lost. In: the command line's queries. Out: events on stdout, everything else on stderr.

mod aggregate;
mod choose;
mod emit;
mod explain;
mod fitting;
mod forgotten;
mod instances;
mod ladder;
mod number;
mod order;
mod output;
mod rungs;
mod sets;
mod status;
mod symbols;
mod targets;
mod user;
mod wait;
mod whose;

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Instant;

use anyhow::anyhow;
use ksnoop_jit::lower::chain::Chain;
use ksnoop_jit::lower::{self, Target};
use ksnoop_jit::parser;
use ksnoop_jit::typed;
use ksnoop_jit::types::Types;
use ksnoop_jit::wire::RecordLayout;
use ksnoop_jit_runtime as runtime;
use runtime::{Capabilities, Child, Events, Loaded, Signals};

pub(crate) use choose::{REGISTER_ARGS, described, in_kernel, why_unknown};
pub(crate) use instances::{NOT_CALLED, by_address, is_called, is_in, unfaithful};
pub(crate) use rungs::attach_type;

use aggregate::Aggregates;
use ladder::{Found, Ladder, Progress, Running};
use number::number;
use output::{Carried, Output, Until};
use targets::Asked;
use wait::Wait;

use crate::cli::{self, Cli};
use crate::{Failure, complain, dump, open_types, tell};

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
    let mut types = open_types(cli)?;
    let asked = targets::understand(cli, texts, &mut types)?;
    fitting::check(cli, &asked)?;
    let caps = Capabilities::detect();
    let target = Target {
        reads: match cli.reads {
            cli::Reads::Auto => lower::Reads::Auto,
            cli::Reads::Probe => lower::Reads::Probe,
        },
        // Asked for by trying, and only if a query needs it.
        current_task_btf: cli.btf.is_some()
            || !asked.iter().any(|one| {
                let mut families = one.families.iter();
                one.families.is_empty() || families.any(|family| mentions_task(&family.query))
            })
            || caps.current_task_btf().is_yes(),
        int_pointers: cli.btf.is_some() || caps.int_pointers().is_yes(),
        cookies: cli.btf.is_some() || !asked.iter().any(Asked::in_program) || caps.bpf_cookie().is_yes(),
        ring_bytes: cli
            .pages
            .map_or(lower::RING_BYTES, runtime::object::ring_bytes_of_pages),
        filter: whose::filter(cli, &types)?,
        chain: chain(cli, &asked)?,
        tight: false,
        keys: cli.max_keys,
    };
    if dump::wanted(cli) {
        return emit::all(cli, &asked, &types, &target);
    }
    if let runtime::Answer::No(why) = caps.privileged() {
        return Err(anyhow!("{why}: run it as root, or give it CAP_BPF and CAP_PERFMON").into());
    }
    session(cli, asked, types, target)
}

/// In stack mode, the functions that are to call one another.
fn chain(cli: &Cli, asked: &[Asked]) -> Result<Option<Chain>, Failure> {
    if !cli.stack {
        return Ok(None);
    }
    let levels: Vec<Vec<&typed::Query>> = asked
        .iter()
        .map(|one| one.families.iter().map(|family| &family.query).collect())
        .collect();
    let names = |family: &targets::Family| -> Vec<String> {
        let places = family.places.iter();
        places.map(|place| place.func.name.clone()).collect()
    };
    let functions = asked
        .iter()
        .map(|one| one.families.iter().flat_map(names).collect());
    match Chain::new(&levels, functions.collect()) {
        Ok(chain) => Ok(Some(chain)),
        Err(why) => {
            complain(&format!("ksnoop-jit: {why}"));
            Err(Failure::Query)
        }
    }
}

/// Tells what is wrong with a query.
fn refuse(cli: &Cli, text: &str, diags: &[ksnoop_jit::diag::Diagnostic]) -> Failure {
    tell(cli, text, diags);
    Failure::Query
}

fn mentions_task(query: &typed::Query) -> bool {
    let task = typed::ExprKind::Builtin(typed::Builtin::Task);
    query.events.iter().any(|event| event.mentions(&task))
}

fn session(cli: &Cli, asked: Vec<Asked>, types: Types, target: Target) -> Result<(), Failure> {
    let start = runtime::clock::monotonic();
    let end = cli.duration.map(|duration| Instant::now() + duration);
    // From here on a signal ends the run in order.
    let signals = Signals::catch()?;
    let (mut asked, mut types, mut target) = (asked, types, target);
    let mut child = match &cli.command {
        Some(command) => {
            let words = runtime::run_child::words(command);
            let child = Child::hold(&words)?;
            if !cli.follow {
                if runtime::run_child::starts_others(&words) && cli.pid.is_none() {
                    complain(
                        "a shell runs this command, and only the shell is traced: `--follow` traces what it starts as well",
                    );
                }
                target.filter.pid.get_or_insert(child.pid());
            }
            Some(child)
        }
        None => None,
    };
    let mut modules = Wait::new(&asked);
    let mut found = Found::default();
    let mut running: Vec<(usize, Running)> = Vec::new();
    let mut following: Option<runtime::Attached> = None;
    let mut told = 0;
    let mut events: Option<Events> = None;
    let mut carried: Option<Carried> = None;
    let mut ready: Vec<usize> = (0..asked.len())
        .filter(|index| !asked[*index].families.is_empty())
        .collect();
    // Once, but for queries that wait for modules.
    loop {
        let mut ladder = Ladder::new(cli, &types, &target, asked.len(), found);
        // What a followed process starts must be known before its first event.
        if cli.follow && !cli.check && following.is_none() {
            following = Some(ladder.follow()?);
        }
        for index in ready.drain(..) {
            if let Some(one) = ladder.attach(index, &asked[index])? {
                running.push((index, one));
            }
        }
        let maps = ladder.maps().filter(|_| !running.is_empty()).cloned();
        found = ladder.found();
        let Some(maps) = maps else {
            // Only `--check` attaches nothing.
            if modules.interval().is_none() || !modules.sleep(&signals, end) {
                return Ok(());
            }
            ready = modules.again(cli, &mut asked, &mut types)?;
            continue;
        };
        whose::admit(cli, child.as_ref().map(Child::pid), &maps)?;
        let stream = match &mut events {
            Some(stream) => stream,
            None => {
                let stream = Events::open(&maps, lower::EVENTS)?;
                stream.watch(signals.as_fd(), SIGNAL)?;
                events.insert(stream)
            }
        };
        for (index, one) in running.iter().skip(told).filter(|_| cli.verbose > 0) {
            tell_attached(&asked[*index], one);
        }
        told = running.len();
        let layouts: Vec<RecordLayout> = running.iter().flat_map(|(_, one)| one.layouts.clone()).collect();
        let users = running.iter().any(|(index, one)| {
            one.has_user_stacks() || (asked[*index].in_program() && one.shows_addresses(&types))
        });
        let mut output = match carried.take() {
            Some(carried) => Output::resume(cli, &types, &layouts, carried, users),
            None => {
                let texts: Vec<&str> = asked.iter().map(|query| query.text.as_str()).collect();
                let output = Output::open(cli, &types, &layouts, &texts, start, users)?;
                if let Some(child) = &mut child {
                    stream.watch(child.as_fd(), CHILD)?;
                    child.go()?;
                }
                output
            }
        };
        output.aggregates(Aggregates::of(
            cli,
            &types,
            running.iter().map(|(_, one)| one),
            &maps,
        ));
        let lost = || counters(&maps, &asked, LOST);
        let until = Until {
            signals: &signals,
            child: child.as_mut(),
            end,
            modules: &mut modules,
        };
        let printed = output.pump(cli, stream, until, lost);
        if let Ok(true) = printed {
            carried = Some(output.carry());
            ready = modules.again(cli, &mut asked, &mut types)?;
            continue;
        }
        output.end_status();
        drop(following);
        return finish(
            cli,
            &asked,
            running,
            &maps,
            stream,
            output,
            printed.map(|_| ()),
            signals,
        );
    }
}

/// By what it is attached, and at how many functions.
fn tell_attached(query: &Asked, one: &Running) {
    let mut parts: Vec<String> = Vec::new();
    for (how, places) in &one.how {
        let what = if query.in_program() { "place" } else { "function" };
        parts.push(format!("by {how} at {}", number(*places as u64, what)));
    }
    complain(&format!(
        "attached: {} {} in {:.1} ms",
        query.name,
        parts.join(", "),
        one.took.as_secs_f64() * 1e3
    ));
}

/// Detaches, prints what is still in the buffer, and tells losses and faults.
#[expect(clippy::too_many_arguments, reason = "all that a run consists of")]
fn finish(
    cli: &Cli,
    asked: &[Asked],
    running: Vec<(usize, Running)>,
    maps: &runtime::Maps,
    events: &mut Events,
    mut output: Output<'_>,
    printed: Result<(), Failure>,
    signals: Signals,
) -> Result<(), Failure> {
    // A second Ctrl-C while detaching takes its time kills.
    drop(signals);
    let mut loaded: Vec<(usize, Loaded)> = Vec::new();
    let all: usize = running
        .iter()
        .flat_map(|(_, one)| &one.attached)
        .map(runtime::Attached::links)
        .sum();
    let mut unseen = vec![runtime::Missed::default(); asked.len()];
    let mut kept = vec![Vec::new(); asked.len()];
    for (index, one) in &running {
        kept[*index].extend(forgotten::maps_of(one, maps));
        for now in one.attached.iter().map(runtime::Attached::missed) {
            unseen[*index].entries += now.entries;
            unseen[*index].returns += now.returns;
        }
    }
    let started = Instant::now();
    let mut progress = Progress::new("detached; a second Ctrl-C leaves the rest to the kernel");
    let mut done = 0;
    for (index, one) in running {
        for attached in one.attached {
            let links = attached.links();
            let one = attached.detach_all(|now, _| progress.tell(done + now, all));
            loaded.push((index, one));
            done += links;
        }
    }
    if cli.verbose > 0 {
        complain(&format!(
            "detached {} in {:.1} ms",
            number(all as u64, "link"),
            started.elapsed().as_secs_f64() * 1e3
        ));
    }
    printed?;
    events.drain_all(|record| output.record(record));
    let missed = missed(cli, asked, &loaded)?;
    let lost = counters(maps, asked, LOST)?;
    let faults = counters(maps, asked, FAULTS)?;
    let uncounted = output.uncounted()?;
    let summary = output.finish(&lost, &faults, &uncounted)?;
    for (name, count) in lost.iter().filter(|(_, count)| *count > 0) {
        complain(&format!(
            "{name}: {} lost, the buffer was full (-P makes it larger)",
            number(*count, "event")
        ));
    }
    for (name, count) in missed.iter().filter(|(_, count)| *count > 0) {
        complain(&format!(
            "{name}: {} missed, the same program was at work on the CPU already",
            number(*count, "call")
        ));
    }
    for (index, query) in asked.iter().enumerate() {
        let forgotten = forgotten::count(index, &kept[index], maps)?;
        if forgotten.calls > 0 {
            complain(&format!(
                "{}: {} missing: what was kept at entry was forgotten, as there is room for {} at a time",
                query.name,
                number(forgotten.calls, "call"),
                number(u64::from(forgotten.room), "call")
            ));
        }
    }
    for (query, unseen) in asked.iter().zip(unseen) {
        let name = &query.name;
        if unseen.returns > 0 {
            complain(&format!(
                "{name}: {} missed, more calls were under way than there was room for (`--attach kprobe --maxactive N` makes it)",
                number(unseen.returns, "return")
            ));
        }
        if unseen.entries > 0 {
            complain(&format!(
                "{name}: {} missed, another probe was at work on the CPU already",
                number(unseen.entries, "call")
            ));
        }
    }
    for (name, count) in faults.iter().filter(|(_, count)| *count > 0) {
        complain(&format!(
            "{name}: {} of its predicates did not hold because of a fault, such as a bad pointer or a division by zero",
            number(*count, "comparison")
        ));
    }
    uncounted.iter().for_each(aggregate::Missing::complain);
    if cli.verbose > 0 {
        complain(&summary.to_string());
    }
    Ok(())
}

/// How often the kernel did not run a query's programs: they never run inside of each other on one CPU, not even where one was
/// preempted (`__bpf_prog_enter_recur`, kernel/bpf/trampoline.c).
fn missed(cli: &Cli, asked: &[Asked], loaded: &[(usize, Loaded)]) -> Result<Vec<(String, u64)>, Failure> {
    let mut missed: Vec<(String, u64)> = asked.iter().map(|query| (query.name.clone(), 0)).collect();
    for (index, one) in loaded {
        for stats in one.stats()? {
            missed[*index].1 += stats.missed;
            if cli.verbose > 0 {
                complain(&format!(
                    "{}: id {}, {} instructions verified, {} bytes of machine code",
                    stats.name, stats.id, stats.verified_insns, stats.jited_bytes
                ));
            }
        }
    }
    Ok(missed)
}

/// Which of a query's two counters (`lower::COUNTS`): events that found the buffer full, predicates with a bad pointer.
const LOST: u32 = 0;
const FAULTS: u32 = 1;

/// One counter of each query, with the name of what it traces.
fn counters(maps: &runtime::Maps, asked: &[Asked], which: u32) -> Result<Vec<(String, u64)>, Failure> {
    let mut counters = Vec::new();
    for (index, query) in asked.iter().enumerate() {
        let count = match maps.percpu_u64(lower::COUNTS, 2 * index as u32 + which) {
            Ok(all) => all.iter().sum(),
            Err(runtime::RuntimeError::NoSuch { .. }) => 0,
            Err(error) => return Err(error.into()),
        };
        counters.push((query.name.clone(), count));
    }
    Ok(counters)
}
