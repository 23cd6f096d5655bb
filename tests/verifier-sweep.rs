//! Lets the running kernel's verifier judge a query on every function, or tracepoint, that its BTF has, and reports. In: options.
//! Out: counts, reasons with an example of each, rates and extremes; status 1 if the kernel refused anything or the compiler failed.
//! Run as `cargo xtask verifier-sweep`.

#[path = "suite/judge.rs"]
mod judge;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use judge::{Judge, Verdict};
use ksnoop_jit::sweep::{self, Random, Subject};

/// How many texts are kept for each reason.
const EXAMPLES: usize = 3;

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
    let mut names: Vec<String> = match subject {
        Subject::Entry | Subject::Return => judge
            .types
            .functions(0)
            .into_iter()
            .map(|(_, name)| name)
            .collect(),
        Subject::Tracepoint => judge.types.tracepoints(),
    };
    names.sort();
    names.dedup();
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
        let func = match subject {
            Subject::Entry | Subject::Return => judge.types.functions_named(name).into_iter().next(),
            Subject::Tracepoint => judge.types.tracepoint_proto(name),
        };
        let Some(func) = func else {
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

/// One reason and what had it.
#[derive(Default)]
struct Class {
    count: usize,
    examples: Vec<String>,
    log: Option<String>,
}

#[derive(Default)]
struct Report {
    accepted: usize,
    failed: usize,
    classes: BTreeMap<(&'static str, String), Class>,
    longest: (u32, String),
    hardest: (u32, String),
    programs: usize,
}

impl Report {
    fn take(&mut self, verdict: Verdict, text: &str) {
        match verdict {
            Verdict::Accepted { insns, verified } => {
                self.accepted += 1;
                self.programs += 1;
                if insns > self.longest.0 {
                    self.longest = (insns, text.to_string());
                }
                if verified > self.hardest.0 {
                    self.hardest = (verified, text.to_string());
                }
            }
            Verdict::Wrong(why) => self.add("refused by sema", why, text, None),
            Verdict::Unsupported(why) => self.add("unsupported", why, text, None),
            Verdict::Bug(why) => {
                self.failed += 1;
                self.add("COMPILER FAILED", why, text, None);
            }
            Verdict::Panic(why) => {
                self.failed += 1;
                self.add("PANIC", why, text, None);
            }
            Verdict::Refused(why, log) => {
                self.failed += 1;
                self.programs += 1;
                self.add("REFUSED BY THE KERNEL", why, text, Some(log));
            }
        }
    }

    fn add(&mut self, what: &'static str, why: String, text: &str, log: Option<String>) {
        let class = self.classes.entry((what, general(&why))).or_default();
        class.count += 1;
        if class.examples.len() < EXAMPLES {
            class
                .examples
                .push(format!("{text}   [{}]", why.replace('\n', " ")));
        }
        if class.log.is_none() {
            class.log = log;
        }
    }

    fn print(&self, seconds: f64, logs: bool) {
        println!("accepted: {}", self.accepted);
        for ((what, why), class) in &self.classes {
            println!("{what}: {} times: {why}", class.count);
            for example in &class.examples {
                println!("    {example}");
            }
            if logs && let Some(log) = &class.log {
                for line in log.lines() {
                    println!("        {line}");
                }
            }
        }
        println!(
            "{} programs in {seconds:.1} s, {:.0} each second",
            self.programs,
            self.programs as f64 / seconds
        );
        println!("longest: {} instructions: {}", self.longest.0, self.longest.1);
        println!("hardest: {} verified: {}", self.hardest.0, self.hardest.1);
    }
}

/// A reason without its names and numbers, so that equal ones are counted together.
fn general(why: &str) -> String {
    let mut out = String::new();
    let mut quoted = false;
    let mut digits = false;
    for c in why.chars() {
        match c {
            '`' => {
                quoted = !quoted;
                out.push(c);
            }
            _ if quoted => {}
            '0'..='9' => {
                if !digits {
                    out.push('N');
                }
                digits = true;
                continue;
            }
            '\n' => out.push(' '),
            c => out.push(c),
        }
        digits = false;
    }
    out
}
