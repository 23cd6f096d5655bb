//! Lets the running kernel's verifier judge random queries that use the whole language, each on a random function or tracepoint.
//! In: options. Out: as `verifier-sweep`, whose larger sibling it is; status 1 if the kernel refused anything, or the compiler
//! failed. It attaches nothing. Run as `cargo xtask random-queries`, here or in a guest.

#[path = "suite/judge.rs"]
mod judge;
#[path = "suite/report.rs"]
mod report;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use judge::{Judge, Verdict};
use ksnoop_jit::sweep::{self, Random, Subject};
use report::Report;

/// Lets the running kernel's verifier judge random queries that use the whole language; attaches nothing.
#[derive(Parser)]
#[command(name = "random-queries")]
struct Options {
    /// What the programs are.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["kprobe", "raw_tp", "tp_btf"])]
    kinds: Vec<Kind>,
    /// Until so many of each kind were accepted.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    count: usize,
    /// Other queries.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Show the verifier's logs.
    #[arg(long)]
    logs: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Kind {
    Kprobe,
    RawTp,
    TpBtf,
    Fentry,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Kprobe => "kprobe",
            Kind::RawTp => "raw_tp",
            Kind::TpBtf => "tp_btf",
            Kind::Fentry => "fentry",
        }
    }

    /// Whether its arguments have types for the verifier.
    fn typed(self) -> bool {
        match self {
            Kind::Kprobe | Kind::RawTp => false,
            Kind::TpBtf | Kind::Fentry => true,
        }
    }

    /// What it can ask about.
    fn subjects(self) -> &'static [Subject] {
        match self {
            Kind::Kprobe | Kind::Fentry => &[Subject::Entry, Subject::Entry, Subject::Return, Subject::Both],
            Kind::RawTp | Kind::TpBtf => &[Subject::Tracepoint],
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut judge = match Judge::open() {
        Ok(judge) => judge,
        Err(why) => {
            eprintln!("random-queries: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = 0;
    for kind in &options.kinds {
        failed += sweep(&mut judge, *kind, &options);
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Goes on until so many queries of a kind were accepted; gives how many were refused.
fn sweep(judge: &mut Judge, kind: Kind, options: &Options) -> usize {
    let mut names = judge.names(kind.subjects()[0]);
    // A trampoline is only for what ftrace knows, and the kernel says so itself.
    if kind == Kind::Fentry {
        let known = traceable();
        names.retain(|name| known.contains(name));
    }
    if names.is_empty() {
        println!("{}: there is nothing to ask about", kind.name());
        return 1;
    }
    println!(
        "{}: {} accepted queries on {} names, seed {}",
        kind.name(),
        options.count,
        names.len(),
        options.seed
    );
    let mut random = Random::new(options.seed);
    let mut report = Report::default();
    let started = Instant::now();
    let mut asked = 0usize;
    while report.accepted < options.count && asked < 3 * options.count + 100 {
        asked += 1;
        let name = &names[random.below(names.len())];
        let subject = kind.subjects()[random.below(kind.subjects().len())];
        let Some(func) = judge.prototype(name, subject) else {
            report.add("no prototype", name.clone(), name, None);
            continue;
        };
        let text = sweep::whole(&judge.types, &func, subject, random.next_u64());
        match judge.judge(&text, kind.typed()) {
            // Which functions may have a trampoline is not the compiler's to know.
            Verdict::Refused(why, log) if kind == Kind::Fentry && !log.lines().any(is_instruction) => {
                report.add("the target is refused", why, &text, Some(log));
            }
            verdict => report.take(verdict, &text),
        }
        if asked.is_multiple_of(2000) {
            eprintln!(
                "{}: {asked} asked, {:.0} s",
                kind.name(),
                started.elapsed().as_secs_f32()
            );
        }
    }
    report.print(started.elapsed().as_secs_f64(), options.logs);
    report.failed + usize::from(report.accepted < options.count)
}

/// A line of the verifier's log about an instruction begins with its number.
fn is_instruction(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_digit())
}

/// What ftrace can trace; nothing where it does not tell.
fn traceable() -> BTreeSet<String> {
    let text = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .iter()
        .find_map(|dir| std::fs::read_to_string(format!("{dir}/available_filter_functions")).ok())
        .unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_string)
        .collect()
}
