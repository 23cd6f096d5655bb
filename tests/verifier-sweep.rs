//! Lets the running kernel's verifier judge a query on every function, or tracepoint, that its BTF has, and reports. In: options.
//! Out: counts, reasons with an example of each, rates and extremes; status 1 if the kernel refused anything or the compiler failed.
//! Run as `cargo xtask verifier-sweep`.

#[path = "suite/judge.rs"]
mod judge;
#[path = "suite/report.rs"]
mod report;

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use judge::Judge;
use ksnoop_jit::sweep::{self, Random, Subject};
use report::Report;

/// Lets the running kernel's verifier judge a query on each function or tracepoint; attaches nothing.
#[derive(Parser)]
#[command(name = "verifier-sweep")]
struct Options {
    /// What the programs are.
    #[arg(long, value_enum, default_value = "kprobe")]
    kind: Kind,
    /// So many functions, chosen at random.
    #[arg(long, value_name = "N", default_value_t = 500)]
    sample: usize,
    /// All functions.
    #[arg(long, conflicts_with = "sample")]
    every: bool,
    /// Other queries.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Show the verifier's logs.
    #[arg(long)]
    logs: bool,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Kind {
    Kprobe,
    Kretprobe,
    TpBtf,
    RawTp,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut judge = match Judge::open() {
        Ok(judge) => judge,
        Err(why) => {
            eprintln!("verifier-sweep: {why}");
            return ExitCode::FAILURE;
        }
    };
    let (subject, typed) = match options.kind {
        Kind::Kprobe => (Subject::Entry, false),
        Kind::Kretprobe => (Subject::Return, false),
        Kind::TpBtf => (Subject::Tracepoint, true),
        Kind::RawTp => (Subject::Tracepoint, false),
    };
    let mut names = judge.names(subject);
    let all = names.len();
    if !options.every {
        let sample = options.sample;
        let mut random = Random::new(options.seed);
        for at in 0..sample.min(all) {
            let other = at + random.below(all - at);
            names.swap(at, other);
        }
        names.truncate(sample);
    }
    println!(
        "{}: {} of {all}, seed {}",
        options
            .kind
            .to_possible_value()
            .map_or(String::new(), |kind| kind.get_name().to_string()),
        names.len(),
        options.seed
    );
    let mut report = Report::default();
    let started = Instant::now();
    for (done, name) in names.iter().enumerate() {
        let Some(func) = judge.prototype(name, subject) else {
            report.add("no prototype", name.clone(), name, None);
            continue;
        };
        let text = sweep::query(&judge.types, &func, subject, options.seed);
        let verdict = judge.judge(&text, typed);
        report.take(verdict, &text);
        if (done + 1) % 2000 == 0 {
            eprintln!(
                "{} of {}, {:.0} s",
                done + 1,
                names.len(),
                started.elapsed().as_secs_f32()
            );
        }
    }
    report.print(started.elapsed().as_secs_f64(), options.logs);
    if report.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
