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

use judge::{Judge, Verdict};
use ksnoop_jit::sweep::{self, Random, Subject};
use report::Report;

/// A kind of program, and what it asks about.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    typed: bool,
    subjects: &'static [Subject],
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "kprobe",
        typed: false,
        subjects: &[Subject::Entry, Subject::Entry, Subject::Return, Subject::Both],
    },
    Kind {
        name: "raw_tp",
        typed: false,
        subjects: &[Subject::Tracepoint],
    },
    Kind {
        name: "tp_btf",
        typed: true,
        subjects: &[Subject::Tracepoint],
    },
    Kind {
        name: "fentry",
        typed: true,
        subjects: &[Subject::Entry, Subject::Entry, Subject::Return, Subject::Both],
    },
];

struct Options {
    kinds: Vec<Kind>,
    count: usize,
    seed: u64,
    logs: bool,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("random-queries: {why}");
            return ExitCode::from(2);
        }
    };
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
    let mut names = judge.names(kind.subjects[0]);
    // A trampoline is only for what ftrace knows, and the kernel says so itself.
    if kind.name == "fentry" {
        let known = traceable();
        names.retain(|name| known.contains(name));
    }
    if names.is_empty() {
        println!("{}: there is nothing to ask about", kind.name);
        return 1;
    }
    println!(
        "{}: {} accepted queries on {} names, seed {}",
        kind.name,
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
        let subject = kind.subjects[random.below(kind.subjects.len())];
        let Some(func) = judge.prototype(name, subject) else {
            report.add("no prototype", name.clone(), name, None);
            continue;
        };
        let text = sweep::whole(&judge.types, &func, subject, random.next_u64());
        match judge.judge(&text, kind.typed) {
            // Which functions may have a trampoline is not the compiler's to know.
            Verdict::Refused(why, log) if kind.name == "fentry" && !log.lines().any(is_instruction) => {
                report.add("the target is refused", why, &text, Some(log));
            }
            verdict => report.take(verdict, &text),
        }
        if asked.is_multiple_of(2000) {
            eprintln!(
                "{}: {asked} asked, {:.0} s",
                kind.name,
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

fn options() -> Result<Options, String> {
    let mut options = Options {
        kinds: KINDS[..3].to_vec(),
        count: 1000,
        seed: 1,
        logs: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut word = || args.next().ok_or(format!("{arg} wants a value"));
        match arg.as_str() {
            "--count" => options.count = word()?.parse().map_err(|_| "--count wants a number")?,
            "--seed" => options.seed = word()?.parse().map_err(|_| "--seed wants a number")?,
            "--logs" => options.logs = true,
            "--kinds" => {
                let wanted = word()?;
                options.kinds = wanted
                    .split(',')
                    .map(|name| {
                        KINDS
                            .into_iter()
                            .find(|kind| kind.name == name)
                            .ok_or(format!("no kind `{name}`: kprobe, raw_tp, tp_btf, fentry"))
                    })
                    .collect::<Result<_, _>>()?;
            }
            other => return Err(format!("no option `{other}`")),
        }
    }
    Ok(options)
}
