//! Calls under way at once, more than there is room for: of a kretprobe, and in the map where entries keep values.
//!
//! In: nothing. Out: cases with many tasks asleep in one function. What is shown and what is told to be missing must be all there was.

use std::collections::BTreeMap;
use std::process::Command;
use std::thread::Builder;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use crate::case::{Case, Work};
use crate::guest::{Guest, Need};
use crate::output;
use crate::tool::Tool;

pub(super) fn calls_under_way(cases: &mut Vec<Case>) {
    // A kretprobe has room for ten calls by itself here: the other returns would be lost.
    cases.push(Case::new(
        "kernel.maxactive",
        "hrtimer_nanosleep(return)",
        Work::Own(many_sleep),
    ));
    // By itself it tells how many it has lost, where the kernel says so.
    cases.push(
        Case::new(
            "kernel.lost_returns",
            "hrtimer_nanosleep(return)",
            Work::Own(lost_returns),
        )
        .needs(Need::TellsMissed),
    );
    cases.push(Case::new(
        "kernel.lost_returns.own_room",
        "hrtimer_nanosleep(return)",
        Work::Own(lost_with_own_room),
    ));
    // What entries keep is forgotten where there is too much of it.
    for (name, work) in [
        ("@auto", forgotten as fn(&Guest, &str) -> Result<()>),
        ("@kprobe", forgotten_by_kprobes),
    ] {
        cases.push(Case::new(
            &format!("kernel.kept.forgotten{name}"),
            FORGOTTEN,
            Work::Own(work),
        ));
    }
}

/// Processes that sleep in one function at once.
const SLEEPERS: usize = 30;

/// Has them sleep, and waits for all; their process ids.
fn sleepers() -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for _ in 0..SLEEPERS {
        children.push(Command::new("sleep").arg("2").spawn()?);
    }
    let pids = children.iter().map(std::process::Child::id).collect();
    for mut child in children {
        ensure!(child.wait()?.success(), "sleep(1) failed");
    }
    Ok(pids)
}

fn lost_returns(guest: &Guest, query: &str) -> Result<()> {
    lost(guest, &["--attach", "kprobe", query])
}

fn lost_with_own_room(guest: &Guest, query: &str) -> Result<()> {
    lost(guest, &["--attach", "kprobe", "--maxactive", "5", query])
}

/// What is shown and what is told to be lost are all there was.
fn lost(guest: &Guest, words: &[&str]) -> Result<()> {
    let args = ["-v"].iter().chain(words).map(|word| (*word).to_owned());
    let mut tool = Tool::start(&guest.tool, &args.collect::<Vec<_>>())?;
    tool.wait_attached()?;
    let pids = sleepers()?;
    tool.wait_output(|_| true);
    tool.interrupt()?;
    let ended = tool.finish()?;
    let events = output::events(&ended.stdout, false)?;
    let shown = events.iter().filter(|event| pids.contains(&event.pid)).count();
    let told: usize = ended
        .stderr
        .lines()
        .find(|line| line.contains(" missed, more calls were under way"))
        .and_then(|line| line.split_whitespace().find_map(|word| word.parse().ok()))
        .unwrap_or(0);
    // Others may sleep too, so that more can be lost than is missing here.
    ensure!(
        shown < SLEEPERS && shown + told >= SLEEPERS,
        "{shown} shown, {told} told to be missed, of {SLEEPERS}\n{}",
        ended.stderr
    );
    Ok(())
}

/// Thirty processes sleep in one function at once, and each of their returns is shown.
fn many_sleep(guest: &Guest, query: &str) -> Result<()> {
    let args = ["-v", "--attach", "kprobe", "--maxactive", "64", query].map(str::to_owned);
    let mut tool = Tool::start(&guest.tool, &args)?;
    tool.wait_attached()?;
    let pids = sleepers()?;
    let missing = |text: &str| -> Option<u32> {
        let events = output::events(text, true).ok()?;
        let seen = |pid: &u32| events.iter().any(|event| event.pid == *pid);
        pids.iter().copied().find(|pid| !seen(pid))
    };
    tool.wait_output(|text| missing(text).is_none());
    tool.interrupt()?;
    let ended = tool.finish()?;
    if let Some(pid) = missing(&ended.stdout) {
        anyhow::bail!("the return of process {pid} is missing\n{}", ended.stderr);
    }
    let left = std::fs::read_to_string("/sys/kernel/tracing/kprobe_events")?;
    ensure!(!left.contains("ksnoop_jit"), "a probe is left in tracefs: {left}");
    Ok(())
}

/// Each call keeps two texts of up to [`TEXT`] bytes.
const FORGOTTEN: &str = "hrtimer_nanosleep(rqtp >= 8000000000, who=entry(tid), name=str((char *)task->comm), \
                         leader=str((char *)task->group_leader->comm), return == 0)";
const TEXT: &str = "16000";
/// Threads that are in one call at once: more than there are places of 8 MiB in all.
const THREADS: u64 = 600;
/// How long the first of them sleeps, in nanoseconds; each of the others, one more than the one before.
const SLEEP: u64 = 8_000_000_000;

fn forgotten(guest: &Guest, query: &str) -> Result<()> {
    forgets(guest, &[], query)
}

fn forgotten_by_kprobes(guest: &Guest, query: &str) -> Result<()> {
    forgets(guest, &["--attach", "kprobe", "--maxactive", "1000"], query)
}

/// Has more threads sleep at once than there are places: how many calls were forgotten is told, and every other is shown with what is
/// its own.
fn forgets(guest: &Guest, options: &[&str], query: &str) -> Result<()> {
    let own = std::process::id();
    let pid = own.to_string();
    let words = ["-v", "--max-string", TEXT, "-P", "8192", "-p", &pid];
    let words = words.iter().chain(options).chain([&query]);
    let mut tool = Tool::start(
        &guest.tool,
        &words.map(|word| (*word).to_owned()).collect::<Vec<_>>(),
    )?;
    tool.wait_attached()?;
    let slept = many_threads()?;
    // All have returned, so that all there is has been sent.
    tool.wait_output(|_| true);
    tool.interrupt()?;
    let ended = tool.finish()?;
    let mut left: BTreeMap<u32, u64> = slept.into_iter().collect();
    let events = output::events(&ended.stdout, false)?;
    let leader = std::fs::read_to_string("/proc/self/comm")?;
    for event in &events {
        let value = |label: &str| -> Result<&str> {
            let value = event.values.iter().find(|value| value.label == label);
            Ok(&value.with_context(|| format!("no {label} in {event:?}"))?.text)
        };
        let number = |label: &str| -> Result<u64> {
            let (_, number) = value(label)?.rsplit_once(')').context("no number")?;
            Ok(number.parse()?)
        };
        let nth = number("rqtp")?.wrapping_sub(SLEEP);
        let tid = u32::try_from(number("who")?)?;
        let thread = left.remove(&tid);
        ensure!(
            thread == Some(nth)
                && event.pid == own
                && number("return")? == 0
                && value("name")? == format!("(char *)\"sleeper {nth}\"")
                && value("leader")? == format!("(char *)\"{}\"", leader.trim()),
            "not what thread {thread:?} kept, or not for the first time: {event:?}"
        );
    }
    let line = ended
        .stderr
        .lines()
        .find(|line| line.contains("what was kept at entry was forgotten"));
    let told = line
        .and_then(|line| {
            line.split_whitespace()
                .find_map(|word| word.parse::<usize>().ok())
        })
        .unwrap_or(0);
    // A call whose program was at work on the CPU already, once at its entry or at its return, is told with those.
    let missed = ended
        .stderr
        .lines()
        .filter(|line| line.contains("the same program was at work"))
        .filter_map(|line| {
            line.split_whitespace()
                .find_map(|word| word.parse::<usize>().ok())
        })
        .sum::<usize>();
    let known = events.len() + told;
    ensure!(
        told > 0
            && !events.is_empty()
            && (THREADS as usize - missed.min(THREADS as usize)..=THREADS as usize).contains(&known),
        "{} shown, {told} told to be forgotten, {missed} to be missed, of {THREADS}\n{}",
        events.len(),
        ended.stderr
    );
    Ok(())
}

/// Lets threads sleep, and waits for all: their ids, and how many nanoseconds longer than the first each has slept.
fn many_threads() -> Result<Vec<(u32, u64)>> {
    let sleeper = |nth: u64| {
        let sleep = move || -> Result<(u32, u64)> {
            let own = std::fs::read_link("/proc/thread-self")?;
            std::thread::sleep(Duration::from_nanos(SLEEP + nth));
            let tid = own
                .file_name()
                .and_then(|name| name.to_str())
                .context("no thread's id")?;
            Ok((tid.parse()?, nth))
        };
        let builder = Builder::new().name(format!("sleeper {nth}")).stack_size(1 << 16);
        builder.spawn(sleep).context("no more threads")
    };
    let threads = (0..THREADS).map(sleeper).collect::<Result<Vec<_>>>()?;
    threads
        .into_iter()
        .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
        .collect()
}
