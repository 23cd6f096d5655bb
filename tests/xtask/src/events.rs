//! `cargo xtask bench-events`: the same events by ksnoop-jit and by bpftrace's printf, one after the other, on this machine.
//!
//! In: how many system calls to watch, how often, and maybe a built tool. Out: a table on stdout: events that were shown and lost, the tool's processor
//! time, and events a second of that. The source is `dd` with blocks of one byte, two system calls each, which is held until the tool
//! has attached. It never judges: other work on the machine shows in it, so the best of several rounds counts.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::host;

/// What came of one run.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    shown: u64,
    lost: u64,
    /// Of the tool, all its threads.
    processor: Duration,
    /// From the first system call to the last.
    elapsed: Duration,
}

impl Outcome {
    fn per_second(self) -> f64 {
        self.shown as f64 / self.processor.as_secs_f64().max(1e-9)
    }
}

/// How a tool is started, and how its output is read.
struct Contestant {
    name: &'static str,
    /// Given our tool, the process to watch and the file to write.
    start: fn(&Path, u32, &Path) -> Command,
    /// What a line of an event has in it.
    mark: &'static str,
}

const CONTESTANTS: [Contestant; 4] = [
    Contestant {
        name: "ksnoop-jit --format compact",
        start: |tool, pid, file| ours(tool, pid, file, "compact"),
        mark: "sys_enter(",
    },
    Contestant {
        name: "ksnoop-jit --format text",
        start: |tool, pid, file| ours(tool, pid, file, "text"),
        mark: "sys_enter(",
    },
    Contestant {
        name: "ksnoop-jit --format json",
        start: |tool, pid, file| ours(tool, pid, file, "json"),
        mark: "\"type\":\"event\"",
    },
    Contestant {
        name: "bpftrace printf",
        start: theirs,
        mark: "sys_enter(",
    },
];

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let (mut calls, mut rounds) = (1_000_000u64, 3u32);
    let mut tool = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || -> Result<u64> {
            let word = args.next().with_context(|| format!("{arg} wants a number"))?;
            word.parse().with_context(|| format!("`{word}` is no number"))
        };
        match arg.as_str() {
            "--calls" => calls = number()?,
            "--rounds" => rounds = number()? as u32,
            "--tool" => tool = Some(PathBuf::from(args.next().context("--tool wants a path")?)),
            other => anyhow::bail!("bench-events has no option `{other}`"),
        }
    }
    ensure!(rounds > 0 && calls > 1, "there is nothing to measure");
    let tool = match tool {
        Some(tool) => tool,
        None => {
            host::must(host::cargo().args(["build", "--quiet", "--release", "--package", "ksnoop-jit"]))?;
            host::target_dir()?.join("release/ksnoop-jit")
        }
    };
    let has_bpftrace = Command::new("bpftrace").arg("--version").output().is_ok();
    if !has_bpftrace {
        println!("bpftrace is not installed (Debian: bpftrace), so there is nothing to compare with");
    }
    println!(
        "{calls} system calls of one process, {rounds} rounds; of each the best one by events a second of processor time"
    );
    println!(
        "{:<30} {:>9} {:>8} {:>11} {:>12} {:>9}",
        "", "shown", "lost", "processor", "events/s", "elapsed"
    );
    for contestant in CONTESTANTS
        .iter()
        .filter(|one| has_bpftrace || !one.name.starts_with("bpftrace"))
    {
        let mut outcomes = Vec::new();
        for _ in 0..rounds {
            outcomes.push(one(contestant, &tool, calls)?);
        }
        let lost: u64 = outcomes.iter().map(|outcome| outcome.lost).sum();
        let best = outcomes
            .iter()
            .max_by(|a, b| a.per_second().total_cmp(&b.per_second()));
        let best = best.context("no round")?;
        println!(
            "{:<30} {:>9} {:>8} {:>9} ms {:>12.0} {:>6} ms   {lost} lost in all rounds",
            contestant.name,
            best.shown,
            best.lost,
            best.processor.as_millis(),
            best.per_second(),
            best.elapsed.as_millis()
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn ours(tool: &Path, pid: u32, file: &Path, format: &str) -> Command {
    let mut command = Command::new(tool);
    command
        .args(["-v", "--format", format, "-p", &pid.to_string(), "-o"])
        .arg(file)
        .arg("tp:sys_enter(id)");
    command
}

/// The same values: time, CPU, process, event, number of the call. It finds tracepoints in tracefs, which it gets in a mount namespace of
/// its own where nobody has mounted it.
fn theirs(_: &Path, pid: u32, file: &Path) -> Command {
    const START: &str = "test -d /sys/kernel/tracing/events || mount -t tracefs tracefs /sys/kernel/tracing; exec bpftrace \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", START, "sh", "-o"])
        .arg(file)
        .arg("-e")
        .arg(format!(
            "tracepoint:raw_syscalls:sys_enter /pid == {pid}/ \
         {{ printf(\"%llu %d %d sys_enter(%ld)\\n\", nsecs, cpu, pid, args->id); }}"
        ));
    command
}

fn one(contestant: &Contestant, tool: &Path, calls: u64) -> Result<Outcome> {
    let folder = std::env::temp_dir().join(format!("ksj-bench-events-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (events, messages) = (folder.join("events"), folder.join("messages"));
    // It stops itself before it becomes `dd`, and goes on when it is watched.
    let script = format!(
        "kill -STOP $$; exec dd if=/dev/zero of=/dev/null bs=1 count={} status=none",
        calls / 2
    );
    let mut source = Command::new("sh").args(["-c", &script]).spawn()?;
    let mut tool = (contestant.start)(tool, source.id(), &events)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&messages)?)
        .spawn()
        .with_context(|| format!("{} does not start", contestant.name))?;
    let outcome = watched(contestant, &mut source, &mut tool, &events, &messages);
    // Whatever happened, nothing of it stays.
    for child in [&mut source, &mut tool] {
        let _ = child.kill();
        let _ = child.wait();
    }
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

fn watched(
    contestant: &Contestant,
    source: &mut Child,
    tool: &mut Child,
    events: &Path,
    messages: &Path,
) -> Result<Outcome> {
    let says = |path: &Path, what: &str| std::fs::read_to_string(path).is_ok_and(|text| text.contains(what));
    let deadline = Instant::now() + Duration::from_secs(60);
    while !(says(messages, "attached: ") || says(events, "Attaching ")) {
        let ended = tool.try_wait()?.is_some();
        ensure!(
            !ended && Instant::now() < deadline,
            "{} does not attach: {}",
            contestant.name,
            std::fs::read_to_string(messages).unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    // bpftrace says so before it attaches (what it prints itself stays in its buffer for long), and attaching takes a moment.
    std::thread::sleep(Duration::from_secs(2));
    let before = processor(tool.id())?;
    let start = Instant::now();
    signal("-CONT", source.id())?;
    source.wait()?;
    let elapsed = start.elapsed();
    // Until all that was seen has been written.
    let mut last = processor(tool.id())?;
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = processor(tool.id())?;
        if now.saturating_sub(last) < Duration::from_millis(5) {
            last = now;
            break;
        }
        last = now;
    }
    signal("-INT", tool.id())?;
    tool.wait()?;
    let mut shown = 0;
    let mut lost = 0;
    for path in [events, messages] {
        for line in BufReader::new(File::open(path)?).lines() {
            let line = line?;
            shown += u64::from(path == events && line.contains(contestant.mark));
            lost += losses(&line);
        }
    }
    Ok(Outcome {
        shown,
        lost,
        processor: last.saturating_sub(before),
        elapsed,
    })
}

/// `sys_enter: 980 events lost, …` and bpftrace's `Lost 980 events`.
fn losses(line: &str) -> u64 {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ours = words
        .windows(3)
        .find(|three| three[1] == "events" && three[2].starts_with("lost"))
        .map(|three| three[0]);
    let theirs = words
        .windows(3)
        .find(|three| three[0] == "Lost" && three[2].starts_with("event"));
    let number = ours.or(theirs.map(|three| three[1]));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// What a process has run so far, all its threads: `/proc/PID/task/TID/schedstat` begins with nanoseconds.
fn processor(pid: u32) -> Result<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        nanos += text
            .split_whitespace()
            .next()
            .and_then(|n| n.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

fn signal(which: &str, pid: u32) -> Result<()> {
    host::must(Command::new("kill").args([which, &pid.to_string()]))
}
