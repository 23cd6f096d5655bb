//! Counts verdicts: accepted, refused and why, with examples, and the extremes. In: verdicts. Out: text.

use std::collections::BTreeMap;

use super::judge::Verdict;

/// How many texts are kept for each reason.
const EXAMPLES: usize = 3;

/// One reason and what had it.
#[derive(Default)]
struct Class {
    count: usize,
    examples: Vec<String>,
    log: Option<String>,
}

/// What became of many queries.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) accepted: usize,
    pub(crate) failed: usize,
    classes: BTreeMap<(&'static str, String), Class>,
    longest: (u32, String),
    hardest: (u32, String),
    programs: usize,
}

impl Report {
    pub(crate) fn take(&mut self, verdict: Verdict, text: &str) {
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

    pub(crate) fn add(&mut self, what: &'static str, why: String, text: &str, log: Option<String>) {
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

    pub(crate) fn print(&self, seconds: f64, logs: bool) {
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
