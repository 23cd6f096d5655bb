//! The running kernel's verifier accepts what the compiler makes: queries on a fixed sample of its functions, as kprobe
//! programs, and on tracepoints, typed and raw. The whole kernel is `cargo xtask verifier-sweep --every`.

use super::judge::{Judge, Verdict};
use ksnoop_jit::sweep::{self, Random, Subject};

/// The kernel to ask, or a line that says why there is none.
fn kernel() -> Option<Judge> {
    match Judge::open() {
        Ok(judge) => Some(judge),
        Err(why) => {
            eprintln!("SKIP: {why}");
            None
        }
    }
}

/// So many of the names, always the same of the same kernel.
fn sample(mut names: Vec<String>, count: usize) -> Vec<String> {
    names.sort();
    names.dedup();
    let mut random = Random::new(1);
    for at in 0..count.min(names.len()) {
        let other = at + random.below(names.len() - at);
        names.swap(at, other);
    }
    names.truncate(count);
    names
}

/// Judges a query on each; every refusal and every failure of the compiler is told, and then the test fails.
fn all_accepted(judge: &mut Judge, names: &[String], subject: Subject, typed: bool) {
    let mut accepted = 0;
    let mut wrong = Vec::new();
    for name in names {
        let func = match subject {
            Subject::Entry | Subject::Return => judge.types.functions_named(name).into_iter().next(),
            Subject::Tracepoint => judge.types.tracepoint_proto(name),
        };
        let Some(func) = func else {
            continue;
        };
        let text = sweep::query(&judge.types, &func, subject, 1);
        match judge.judge(&text, typed) {
            Verdict::Accepted { insns, verified } => {
                assert!(
                    insns > 0 && verified > 0,
                    "{text}: an accepted program has instructions"
                );
                accepted += 1;
            }
            // What the types of this kernel hide is no failure, as long as it is rare.
            Verdict::Wrong(why) | Verdict::Unsupported(why) => assert!(!why.is_empty(), "{text}: no reason"),
            Verdict::Bug(why) | Verdict::Panic(why) => wrong.push(format!("{text}: {why}")),
            Verdict::Refused(why, log) => wrong.push(format!("{text}: {why}\n{log}")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        names.len(),
        wrong.join("\n")
    );
    assert!(
        accepted * 10 >= names.len() * 9,
        "only {accepted} of {} queries became programs",
        names.len()
    );
}

#[test]
fn functions_as_kprobes() {
    let Some(mut judge) = kernel() else { return };
    let names = judge
        .types
        .functions(0)
        .into_iter()
        .map(|(_, name)| name)
        .collect();
    all_accepted(&mut judge, &sample(names, 500), Subject::Entry, false);
}

#[test]
fn functions_as_kretprobes() {
    let Some(mut judge) = kernel() else { return };
    let names = judge
        .types
        .functions(0)
        .into_iter()
        .map(|(_, name)| name)
        .collect();
    all_accepted(&mut judge, &sample(names, 100), Subject::Return, false);
}

#[test]
fn tracepoints_by_type() {
    let Some(mut judge) = kernel() else { return };
    let names = sample(judge.types.tracepoints(), 60);
    all_accepted(&mut judge, &names, Subject::Tracepoint, true);
}

#[test]
fn raw_tracepoints() {
    let Some(mut judge) = kernel() else { return };
    let names = sample(judge.types.tracepoints(), 60);
    all_accepted(&mut judge, &names, Subject::Tracepoint, false);
}

/// The most that a query should be able to ask for: 64 ways of eight steps.
#[test]
fn many_long_ways() {
    let Some(mut judge) = kernel() else { return };
    for (name, subject, typed) in [
        ("tcp_sendmsg", Subject::Entry, false),
        ("vfs_open", Subject::Entry, false),
        ("sched_switch", Subject::Tracepoint, true),
        ("sched_switch", Subject::Tracepoint, false),
    ] {
        let func = match subject {
            Subject::Entry | Subject::Return => judge.types.functions_named(name).into_iter().next(),
            Subject::Tracepoint => judge.types.tracepoint_proto(name),
        };
        let Some(func) = func else { continue };
        for seed in 0..3 {
            let text = sweep::large(&judge.types, &func, subject, 64, 8, seed);
            let verdict = judge.judge(&text, typed);
            assert!(matches!(verdict, Verdict::Accepted { .. }), "{text}: {verdict:?}");
        }
    }
}
