//! The function-tracing tests, run as root inside a guest.
//!
//! In: `guest-tests [--list] [-x] [FILTER]`, with the `ksnoop-jit` binary and a `modules` folder beside this
//! one. Out: a line for each test (`ok NAME (seconds)`, `FAIL NAME: why`, `skip NAME: why`, details indented
//! by four columns), and a last line `end: N passed, M failed, K skipped`; status 1 when any failed. It never
//! runs two tests at once: what one attaches, another must not see. `--list` works anywhere.

mod attaching;
mod case;
mod fixture;
mod guest;
mod kernel;
mod ksnoop;
mod output;
mod side;
mod table;
mod tool;
mod user;
mod want;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use crate::case::Case;
use crate::guest::Guest;
use crate::table::{Row, Verdict};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("guest-tests: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool> {
    let (mut list, mut stop, mut quick, mut filter) = (false, false, false, String::new());
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--list" => list = true,
            "--side-by-side" => return side::run(&std::env::current_exe()?.with_file_name("ksnoop-jit")),
            // For work on one fault: no further tests after a failure.
            "-x" => stop = true,
            "--quick" => quick = true,
            _ => filter = arg,
        }
    }
    let all = all(quick);
    let cases: Vec<&Case> = all
        .iter()
        .filter(|case| case.name.contains(&filter) || Row::wants(&filter, case))
        .collect();
    if list {
        for case in &cases {
            println!(
                "{}: {} {}",
                case.name,
                case.options.join(" "),
                case.queries.join(" ")
            );
        }
        return Ok(true);
    }

    let guest = Guest::new()?;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let mut left = Vec::new();
    let mut fared: BTreeMap<&str, bool> = BTreeMap::new();
    for case in cases.iter().copied() {
        match case.never.or(case.needs.and_then(|need| guest.lacks(need))) {
            Some(why) => {
                println!("skip {}: {why}", case.name);
                skipped += 1;
            }
            None => left.push(case),
        }
    }
    for batch in batches(left) {
        let started = Instant::now();
        let together = if batch.len() > 1 {
            Case::run_all(&batch, &guest)
        } else {
            None
        };
        let mut results = together.into_iter().flatten();
        for case in &batch {
            let result = results.next().unwrap_or_else(|| case.run(&guest));
            fared.insert(&case.name, result.is_ok());
            match result {
                Ok(()) => {
                    println!("ok {} ({:.2} s)", case.name, started.elapsed().as_secs_f32());
                    passed += 1;
                }
                Err(error) => {
                    // The innermost reason first: it is what the table's reader wants.
                    let mut reasons: Vec<String> = error.chain().map(ToString::to_string).collect();
                    reasons.reverse();
                    let reason = reasons.join("\n").trim_end().replace('\n', "\n    ");
                    println!("FAIL {}: {reason}", case.name);
                    println!("    query: {} {}", case.options.join(" "), case.queries.join(" "));
                    failed += 1;
                    if stop {
                        break;
                    }
                }
            }
        }
        if stop && failed > 0 {
            break;
        }
    }
    for row in table::ROWS {
        let name = row.name;
        match row.verdict(&all, &cases, guest.version(), &fared) {
            Some(Ok(Verdict::Shown(_))) => {
                println!("ok {name} (0 s)");
                passed += 1;
            }
            Some(Ok(Verdict::Since(major, minor))) => {
                println!("skip {name}: of the matrix, kernels from {major}.{minor} on have it");
                skipped += 1;
            }
            Some(Err(why)) => {
                println!("FAIL {name}: {why}");
                failed += 1;
            }
            None => {}
        }
    }
    println!("end: {passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0)
}

/// Every case, in the order in which they are run.
fn all(quick: bool) -> Vec<Case> {
    let mut all = kernel::cases();
    all.extend(fixture::cases(quick));
    all.extend(attaching::cases());
    all.extend(table::cases());
    all.extend(ksnoop::cases());
    all.extend(user::cases());
    all
}

/// As few runs of the tool as can be: starting it, and detaching, is what takes the time under emulation.
fn batches(cases: Vec<&Case>) -> Vec<Vec<&Case>> {
    /// More programs than this take longer to detach than starting the tool again does, or to attach than a test waits.
    const LARGEST: usize = 16;
    let mut batches: Vec<Vec<&Case>> = Vec::new();
    for case in cases {
        let fits = |batch: &&mut Vec<&Case>| {
            batch.len() < LARGEST && batch.iter().all(|other| case.goes_with(other))
        };
        match batches.iter_mut().find(fits) {
            Some(batch) => batch.push(case),
            None => batches.push(vec![case]),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::all;

    /// The table of public bug reports names cases here.
    const REPORTS: &str = include_str!("../../../../suite/cases.rs");

    #[test]
    fn each_report_names_cases_that_are_there() {
        let all = all(false);
        let mut named = 0;
        for text in REPORTS.split('"').skip(1).step_by(2) {
            let group = ["fixture.", "kernel.", "names."]
                .iter()
                .find(|group| text.starts_with(**group));
            let Some(group) = group else {
                continue;
            };
            if text == *group || text.contains('{') {
                continue;
            }
            let there = all.iter().any(|case| {
                let rest = case.name.strip_prefix(text);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
            });
            assert!(there, "no case is called {text}");
            named += 1;
        }
        assert!(named > 30, "{named} names only");
    }
}
