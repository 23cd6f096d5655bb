//! `cargo xtask ci`: every check there is, in order, with a summary.
//!
//! In: nothing, or the names of the steps to run. Out: each step's own output, a table of the steps, and `N passed, M failed` as the last line,
//! alone; the exit status says the same. A step that fails does not keep the later ones from running, so
//! that one run tells everything.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::matrix::Tally;
use crate::{host, matrix};

type Step = (&'static str, fn() -> Result<Tally>);

const STEPS: &[Step] = &[
    ("format", format),
    ("clippy", clippy),
    ("library alone", library_alone),
    ("tests", tests),
    ("kernel matrix", matrix::standard),
    ("licences, bans, sources", deny),
];

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    if let Some(arg) = args.iter().find(|arg| !STEPS.iter().any(|(name, _)| name == arg)) {
        let names: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        bail!("ci has no step `{arg}`; it has: {}", names.join("; "));
    }
    let mut sum = Tally::default();
    let mut lines = Vec::new();
    let wanted = |name: &str| args.is_empty() || args.iter().any(|arg| arg == name);
    for (name, step) in STEPS.iter().filter(|(name, _)| wanted(name)) {
        println!("=== {name}");
        let started = Instant::now();
        let (tally, note) = match step() {
            Ok(tally) => (tally, String::new()),
            Err(error) => (Tally { passed: 0, failed: 1 }, format!(": {error:#}")),
        };
        let verdict = if tally.failed == 0 { "ok" } else { "FAIL" };
        let line = format!(
            "{verdict:4} {name} ({} passed, {} failed, {:.0} s){note}",
            tally.passed,
            tally.failed,
            started.elapsed().as_secs_f32()
        );
        println!("--- {line}");
        lines.push(line);
        sum = Tally {
            passed: sum.passed + tally.passed,
            failed: sum.failed + tally.failed,
        };
    }
    println!("\n=== summary");
    for line in lines {
        println!("{line}");
    }
    println!("{} passed, {} failed", sum.passed, sum.failed);
    Ok(if sum.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A step that is one command.
fn command(command: &mut Command) -> Result<Tally> {
    println!("$ {}", host::shown(command));
    host::must(command.stdin(Stdio::null()))?;
    Ok(Tally { passed: 1, failed: 0 })
}

fn format() -> Result<Tally> {
    command(host::cargo().args(["fmt", "--all", "--check"]))
}

fn clippy() -> Result<Tally> {
    command(host::cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// The compiler is a pure library: whoever uses it alone must not get the loader with it.
fn library_alone() -> Result<Tally> {
    command(host::cargo().args(["build", "--package", "ksnoop-jit", "--no-default-features"]))?;
    let mut tree = host::cargo();
    tree.args([
        "tree",
        "--package",
        "ksnoop-jit",
        "--no-default-features",
        "--edges",
        "normal",
    ]);
    tree.args(["--prefix", "none", "--format", "{p}"]);
    println!("$ {}", host::shown(&tree));
    let out = tree.stderr(Stdio::inherit()).output()?;
    ensure!(out.status.success(), "`cargo tree` failed");
    let text = String::from_utf8(out.stdout)?;
    ensure!(
        text.starts_with("ksnoop-jit "),
        "`cargo tree` does not show the library"
    );
    for line in text.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        ensure!(
            !(name == "aya" || name.starts_with("aya-") || name == "ksnoop-jit-runtime"),
            "the library alone depends on {name}"
        );
    }
    Ok(Tally { passed: 2, failed: 0 })
}

/// `cargo test`, with its numbers taken from what it prints.
fn tests() -> Result<Tally> {
    let mut test = host::cargo();
    test.args(["test", "--workspace", "--no-fail-fast"]);
    println!("$ {}", host::shown(&test));
    let mut child = test
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    let mut tally = Tally::default();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        if let Some(result) = line.strip_prefix("test result: ") {
            tally.passed += number_before(result, " passed");
            tally.failed += number_before(result, " failed");
        }
    }
    let status = child.wait()?;
    if !status.success() && tally.failed == 0 {
        // It did not compile, or a test binary died before it could count.
        tally.failed = 1;
    }
    Ok(tally)
}

fn number_before(text: &str, what: &str) -> usize {
    let Some((before, _)) = text.split_once(what) else {
        return 0;
    };
    before
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

/// The advisory database is left out: it is a separate download, which not every machine can make.
fn deny() -> Result<Tally> {
    let present = host::cargo()
        .args(["deny", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !present {
        command(host::cargo().args(["install", "--locked", "cargo-deny"]))?;
    }
    command(host::cargo().args(["deny", "check", "licenses", "bans", "sources"]))
}
