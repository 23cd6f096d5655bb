//! Lets the running kernel's verifier judge a query on every function, or tracepoint, that its BTF has, and reports. In: options.
//! Out: counts, reasons with an example of each, rates and extremes; status 1 if the kernel refused anything or the compiler failed.
//! Run as `cargo xtask verifier-sweep`.

#[path = "suite/judge.rs"]
mod judge;
#[path = "suite/report.rs"]
mod report;

use std::process::ExitCode;
use std::time::Instant;

use judge::Judge;
use ksnoop_jit::sweep::{self, Random, Subject};
use report::Report;

struct Options {
    kind: String,
    sample: Option<usize>,
    seed: u64,
    logs: bool,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("verifier-sweep: {why}");
            return ExitCode::from(2);
        }
    };
    let mut judge = match Judge::open() {
        Ok(judge) => judge,
        Err(why) => {
            eprintln!("verifier-sweep: {why}");
            return ExitCode::FAILURE;
        }
    };
    let (subject, typed) = match options.kind.as_str() {
        "kprobe" => (Subject::Entry, false),
        "kretprobe" => (Subject::Return, false),
        "tp_btf" => (Subject::Tracepoint, true),
        "raw_tp" => (Subject::Tracepoint, false),
        other => {
            eprintln!("verifier-sweep: no kind `{other}`: kprobe, kretprobe, tp_btf, raw_tp");
            return ExitCode::from(2);
        }
    };
    let mut names = judge.names(subject);
    let all = names.len();
    if let Some(sample) = options.sample {
        let mut random = Random::new(options.seed);
        for at in 0..sample.min(all) {
            let other = at + random.below(all - at);
            names.swap(at, other);
        }
        names.truncate(sample);
    }
    println!(
        "{}: {} of {all}, seed {}",
        options.kind,
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

fn options() -> Result<Options, String> {
    let mut options = Options {
        kind: "kprobe".to_string(),
        sample: Some(500),
        seed: 1,
        logs: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = |what: &str| -> Result<u64, String> {
            let word = args.next().ok_or(format!("{what} wants a number"))?;
            word.parse().map_err(|_| format!("{what}: `{word}` is no number"))
        };
        match arg.as_str() {
            "--sample" => options.sample = Some(number("--sample")? as usize),
            "--seed" => options.seed = number("--seed")?,
            "--every" => options.sample = None,
            "--logs" => options.logs = true,
            "--kind" => options.kind = args.next().ok_or("--kind wants a kind")?,
            other => return Err(format!("no option `{other}`")),
        }
    }
    Ok(options)
}
