//! `cargo matrix`: the guest tests on several kernels, as one table.
//!
//! In: which kernels, which tests. Out: pass or fail for each test on each kernel, with the reason for every
//! failure and every skip; the exit status says whether all is well. It never leaves a kernel out silently:
//! one that cannot be fetched, booted or got to the end of its tests is a failure.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::{host, vm};

/// Seconds that one kernel's tests may take under emulation on a busy machine.
const LIMIT: &str = "2400";

/// The table's row for what is not any one test's.
const WHOLE_RUN: &str = "(fetched, booted, ran to the end)";

/// How many things went which way; what `cargo xtask ci` adds up.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

struct Options {
    kernels: Vec<String>,
    filter: Option<String>,
    jobs: usize,
    keep: bool,
    verbose: bool,
    /// Of the cases that run through every rung, one in eleven by the other rungs.
    quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Pass,
    Fail,
    Skip,
}

struct TestResult {
    name: String,
    verdict: Verdict,
    /// The reason of a skip, what is wrong in a failure: all lines.
    detail: String,
}

/// What one kernel's guest said.
struct Outcome {
    kernel: String,
    tests: Vec<TestResult>,
    /// Why the run as a whole counts as failed, apart from any test.
    trouble: Option<String>,
    output: String,
    seconds: f32,
}

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let tally = matrix(&parse(args)?)?;
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The default matrix, for continuous integration.
pub(crate) fn standard() -> Result<Tally> {
    matrix(&parse(&["--quick".to_owned()])?)
}

fn parse(args: &[String]) -> Result<Options> {
    let list = |of: &[&str]| of.iter().map(|&kernel| kernel.to_owned()).collect::<Vec<_>>();
    let mut options = Options {
        kernels: list(vm::DEFAULT),
        filter: None,
        jobs: 2,
        keep: false,
        verbose: false,
        quick: false,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--kernels" => {
                let names = args.next().context("--kernels wants a list, as in 6.1,6.12")?;
                options.kernels = names.split(',').map(str::to_owned).collect();
            }
            "--all" => options.kernels = list(vm::ALL),
            "-j" => options.jobs = args.next().context("-j wants a number")?.parse()?,
            "--keep" => options.keep = true,
            "--quick" => options.quick = true,
            "-v" => options.verbose = true,
            flag if flag.starts_with('-') => bail!("matrix has no option {flag}"),
            name if options.filter.is_none() => options.filter = Some(name.to_owned()),
            name => bail!("one filter only, not `{name}` too"),
        }
    }
    for kernel in &options.kernels {
        ensure!(
            vm::ALL.contains(&kernel.as_str()),
            "kernel `{kernel}` is not one of {}",
            vm::ALL.join(", ")
        );
    }
    ensure!(options.jobs > 0, "-j wants at least 1");
    Ok(options)
}

fn matrix(options: &Options) -> Result<Tally> {
    host::need_vm_tools(&[host::BPFTOOL])?;
    let stage = host::stage("matrix")?;
    let binaries = [
        host::static_binary("ksnoop-jit", "ksnoop-jit")?,
        host::static_binary("xtask", "guest-tests")?,
    ];
    vm::prepare()?;

    let queue = Mutex::new(options.kernels.iter().collect::<VecDeque<_>>());
    let done = Mutex::new(Vec::new());
    // Downloads and module builds take turns: they share apt's folders and a compiler.
    let preparing = Mutex::new(());
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                while let Some(kernel) = take(&queue) {
                    let outcome = one(kernel, options, &stage.join(kernel), &binaries, &preparing);
                    announce(&outcome, options.verbose);
                    locked(&done).push(outcome);
                }
            });
        }
    });
    let mut outcomes = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|outcome| vm::ALL.iter().position(|&kernel| kernel == outcome.kernel));

    for outcome in &outcomes {
        failures(outcome);
    }
    table(&outcomes);
    skips(&outcomes);
    if options.keep {
        println!("logs: {}", stage.display());
    }
    println!(
        "{} kernels in {:.0} s",
        outcomes.len(),
        started.elapsed().as_secs_f32()
    );
    Ok(outcomes.iter().fold(Tally::default(), |sum, outcome| Tally {
        passed: sum.passed + outcome.count(Verdict::Pass),
        failed: sum.failed + outcome.count(Verdict::Fail) + usize::from(outcome.trouble.is_some()),
    }))
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A worker that panicked takes nothing with it that the others need.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take<'a>(queue: &Mutex<VecDeque<&'a String>>) -> Option<&'a str> {
    locked(queue).pop_front().map(String::as_str)
}

fn one(
    kernel: &str,
    options: &Options,
    stage: &Path,
    binaries: &[PathBuf],
    preparing: &Mutex<()>,
) -> Outcome {
    let started = Instant::now();
    let mut outcome = boot(kernel, options, stage, binaries, preparing).unwrap_or_else(|error| Outcome {
        kernel: kernel.to_owned(),
        tests: Vec::new(),
        trouble: Some(format!("{error:#}")),
        output: String::new(),
        seconds: 0.0,
    });
    outcome.seconds = started.elapsed().as_secs_f32();
    outcome
}

fn boot(
    kernel: &str,
    options: &Options,
    stage: &Path,
    binaries: &[PathBuf],
    preparing: &Mutex<()>,
) -> Result<Outcome> {
    let share = stage.join("share");
    let modules = share.join("modules");
    std::fs::create_dir_all(&modules).with_context(|| format!("cannot make {}", modules.display()))?;
    {
        let _turn = locked(preparing);
        vm::fetch(kernel)?;
        match vm::build_modules(kernel, &modules)? {
            vm::Modules::Built => {}
            vm::Modules::None(why) => eprintln!("xtask: {kernel}: no fixture modules: {why}"),
        }
    }
    for binary in binaries {
        host::copy_into(binary, &share)?;
    }
    if let Err(error) = host::traced_program(&share) {
        eprintln!("xtask: {kernel}: no program to trace: {error:#}");
    }
    let mut run = vm::vm_run();
    run.arg("-s").arg(format!("{}:/tests", share.display()));
    run.arg("-l").arg(stage.join("console.log"));
    run.args(["-t", LIMIT, "-w", "/tests", kernel, "--", "/tests/guest-tests"]);
    if options.quick {
        run.arg("--quick");
    }
    if let Some(filter) = &options.filter {
        run.arg(filter);
    }
    let out = run.output().context("cannot start vm-run")?;
    let stdout = String::from_utf8_lossy(&out.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    if options.keep {
        std::fs::write(stage.join("stdout.log"), &stdout)?;
        std::fs::write(stage.join("stderr.log"), &stderr)?;
    }
    let (tests, complete) = read(&stdout);
    let failed = tests.iter().any(|test| test.verdict == Verdict::Fail);
    let trouble = match out.status.code() {
        Some(0) if complete && tests.is_empty() => Some("no test has that name".to_owned()),
        Some(0) if complete => None,
        // The tests themselves say what is wrong.
        Some(1) if complete && failed => None,
        Some(124) => Some(format!("not done after {LIMIT} s\n{stderr}")),
        Some(code) => Some(format!("the guest ended with status {code}\n{stderr}")),
        None => Some(format!("vm-run ended with {}\n{stderr}", out.status)),
    };
    let output = format!("{stdout}{stderr}");
    Ok(Outcome {
        kernel: kernel.to_owned(),
        tests,
        trouble,
        output,
        seconds: 0.0,
    })
}

/// Reads what guest-tests prints: a line for each test, its details indented below, and a last line that
/// shows it got to its end.
fn read(stdout: &str) -> (Vec<TestResult>, bool) {
    let mut tests: Vec<TestResult> = Vec::new();
    let mut complete = false;
    for line in stdout.lines().map(str::trim_end) {
        let verdict = match line.split_once(' ') {
            Some(("ok", rest)) => Some((Verdict::Pass, rest)),
            Some(("FAIL", rest)) => Some((Verdict::Fail, rest)),
            Some(("skip", rest)) => Some((Verdict::Skip, rest)),
            Some(("end:", _)) => {
                complete = true;
                None
            }
            Some(_) | None => None,
        };
        if let Some((verdict, rest)) = verdict {
            let (name, detail) = rest.split_once(": ").unwrap_or((rest, ""));
            // A passed test has its time in brackets.
            let name = name.split(" (").next().unwrap_or(name).to_owned();
            tests.push(TestResult {
                name,
                verdict,
                detail: detail.to_owned(),
            });
        } else if let (Some(test), Some(detail)) = (tests.last_mut(), line.strip_prefix("    ")) {
            test.detail.push('\n');
            test.detail.push_str(detail);
        }
    }
    (tests, complete)
}

impl Outcome {
    fn count(&self, verdict: Verdict) -> usize {
        self.tests.iter().filter(|test| test.verdict == verdict).count()
    }
}

fn announce(outcome: &Outcome, verbose: bool) {
    if verbose {
        for line in outcome.output.lines() {
            eprintln!("[{}] {line}", outcome.kernel);
        }
    }
    eprintln!(
        "xtask: {}: {} passed, {} failed, {} skipped in {:.0} s{}",
        outcome.kernel,
        outcome.count(Verdict::Pass),
        outcome.count(Verdict::Fail),
        outcome.count(Verdict::Skip),
        outcome.seconds,
        if outcome.trouble.is_some() {
            ", AND THE RUN ITSELF FAILED"
        } else {
            ""
        }
    );
}

fn failures(outcome: &Outcome) {
    if let Some(trouble) = &outcome.trouble {
        println!("\n{}: {}", outcome.kernel, indented(trouble));
    }
    for test in outcome.tests.iter().filter(|test| test.verdict == Verdict::Fail) {
        println!("\n{}: {}: {}", outcome.kernel, test.name, indented(&test.detail));
    }
}

fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

fn table(outcomes: &[Outcome]) {
    // In the order in which the first kernel that has them ran them.
    let mut names: Vec<&str> = Vec::new();
    for test in outcomes.iter().flat_map(|outcome| &outcome.tests) {
        if !names.contains(&test.name.as_str()) {
            names.push(&test.name);
        }
    }
    let width = names
        .iter()
        .map(|name| name.len())
        .max()
        .unwrap_or(0)
        .max(WHOLE_RUN.len());
    let row = |name: &str, cells: &mut dyn Iterator<Item = &str>| {
        let mut line = format!("{name:width$}");
        for cell in cells {
            line.push_str(&format!("  {cell:>5}"));
        }
        println!("{line}");
    };
    println!();
    row(
        "kernel",
        &mut outcomes.iter().map(|outcome| outcome.kernel.as_str()),
    );
    for name in names {
        let mut cells = outcomes.iter().map(|outcome| {
            match outcome
                .tests
                .iter()
                .find(|test| test.name == name)
                .map(|test| test.verdict)
            {
                Some(Verdict::Pass) => "ok",
                Some(Verdict::Fail) => "FAIL",
                Some(Verdict::Skip) => "skip",
                None => "-",
            }
        });
        row(name, &mut cells);
    }
    let mut ran = outcomes
        .iter()
        .map(|outcome| if outcome.trouble.is_some() { "FAIL" } else { "ok" });
    row(WHOLE_RUN, &mut ran);
    println!();
}

fn skips(outcomes: &[Outcome]) {
    let mut reasons: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for outcome in outcomes {
        for test in outcome.tests.iter().filter(|test| test.verdict == Verdict::Skip) {
            *reasons
                .entry(&test.detail)
                .or_default()
                .entry(&outcome.kernel)
                .or_default() += 1;
        }
    }
    for (reason, kernels) in reasons {
        let counts: Vec<String> = kernels
            .iter()
            .map(|(kernel, count)| format!("{count} on {kernel}"))
            .collect();
        println!("skipped: {}: {reason}", counts.join(", "));
    }
}
