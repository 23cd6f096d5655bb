//! What of the attach ladder works on which kernel, and which cases show it: the one table of that.
//!
//! In: all cases, the guest, and how those fared that were run. Out: for each row a verdict. On a kernel that must have what a row is
//! about, none of its cases may be skipped; on one that has it not, none may run. It never takes a case that was not run for one
//! that passed.

use std::collections::BTreeMap;

use crate::case::{Case, Scope, Work};
use crate::fixture::rungs::RUNGS;
use crate::guest::{Need, Version, lacks};
use crate::kernel::traffic::open_three;
use crate::want::{Is, Want};

/// Something that kernels can do.
#[derive(Debug)]
pub(crate) struct Row {
    /// The name of its verdict.
    pub(crate) name: &'static str,
    /// The first version of the matrix's kernels that has it, as Debian builds them.
    since: Version,
    /// The cases that show it: a name, or with a dot at its end what names begin with.
    shown_by: &'static [&'static str],
}

const fn row(name: &'static str, since: Version, shown_by: &'static [&'static str]) -> Row {
    Row {
        name,
        since,
        shown_by,
    }
}

/// Every kernel of the matrix, 5.10 on.
const ALL: Version = (5, 10);

/// The rungs for functions first. `rung.` are cases of a function of the kernel, `fixture.rung.` of a module's, `fixture.set.` of
/// four functions in one program, which a cookie tells apart.
pub(crate) const ROWS: &[Row] = &[
    row("table.fentry_fexit", ALL, &["rung.fentry."]),
    row("table.fentry_fexit.cookie", (5, 15), &["fixture.set.fentry."]),
    row(
        "table.fentry_fexit.module",
        (5, 11),
        &[
            "fixture.rung.fentry.",
            "fixture.names.two_modules",
            "fixture.names.second_enum@auto",
        ],
    ),
    row(
        "table.fsession",
        (7, 2),
        &[
            "rung.fsession.",
            "fixture.rung.fsession.",
            "fixture.set.fsession.",
        ],
    ),
    row(
        "table.fentry_multi",
        (7, 2),
        &[
            "rung.fentry-multi.",
            "fixture.rung.fentry-multi.",
            "fixture.set.fentry-multi.",
        ],
    ),
    row(
        "table.fsession_multi",
        (7, 2),
        &[
            "rung.fsession-multi.",
            "fixture.rung.fsession-multi.",
            "fixture.set.fsession-multi.",
        ],
    ),
    row(
        "table.kprobe_kretprobe",
        ALL,
        // The second is through tracefs.
        &["rung.kprobe.", "kernel.maxactive"],
    ),
    row(
        "table.kprobe_kretprobe.cookie",
        (5, 15),
        &[
            "fixture.set.kprobe.entry",
            "fixture.set.kprobe.return",
            "fixture.set.kprobe.both",
        ],
    ),
    row(
        "table.kprobe_kretprobe.module",
        (5, 11),
        &["fixture.rung.kprobe."],
    ),
    row(
        "table.kprobe_multi",
        (6, 12),
        &[
            "rung.kprobe-multi.",
            "fixture.rung.kprobe-multi.",
            "fixture.set.kprobe-multi.",
        ],
    ),
    row(
        "table.kprobe_session",
        (6, 12),
        &[
            "rung.kprobe-session.",
            "fixture.rung.kprobe-session.",
            "fixture.set.kprobe-session.",
        ],
    ),
    row("table.typed_tracepoint", ALL, &["kernel.tp."]),
    row(
        "table.uprobe_uretprobe",
        ALL,
        &["user.uprobe.single", "user.usdt.single", "user.usdt.semaphores"],
    ),
    row(
        "table.uprobe_multi",
        (6, 6),
        &["user.uprobe.multi", "user.usdt.multi"],
    ),
    row("table.uprobe_session", (6, 13), &["user.uprobe.session"]),
    // The ring buffer is in every case; what helpers there are is among what `features` says.
    row("table.current_task", ALL, &["kernel.newer_helper@"]),
    row("table.helpers", ALL, &["attaching.features"]),
];

/// Cases of one function of the kernel through each rung by name: at entry, at return, and at both with a value that is kept.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for rung in RUNGS {
        let mut add = |name: &str, query: &str, how: &str, work| {
            let name = format!("rung.{}.{name}", rung.option);
            let case = Case::new(&name, query, Work::Call(work))
                .options(&["--attach", rung.option])
                .tells(&format!("by {how} at 1 function in "))
                .scope(Scope::Mine);
            cases.push(match rung.need {
                // The kernel's own functions are there without modules.
                Need::Fixture => case,
                need => case.needs(need),
            });
        };
        add("entry", "do_sys_openat2(dfd, how->flags)", rung.entry, || {
            let results = open_three()?;
            Ok(results.map(|_| entered()).to_vec())
        });
        add("return", "do_sys_openat2(return)", rung.exit, || {
            Ok(open_three()?
                .map(|result| returned(Want::new(FUNCTION), result))
                .to_vec())
        });
        add(
            "both",
            "do_sys_openat2(dfd, how->flags, return == -2)",
            rung.both,
            || {
                let results = open_three()?;
                Ok(vec![returned(entered(), results[2])])
            },
        );
    }
    cases
}

const FUNCTION: &str = "do_sys_openat2";

/// `AT_FDCWD`; `O_CLOEXEC`, and `O_LARGEFILE`, which the kernel adds.
fn entered() -> Want {
    Want::new(FUNCTION)
        .int("dfd", "int", -100)
        .int("how->flags", "__u64", 0x88000)
}

fn returned(want: Want, result: i128) -> Want {
    want.with("return", Is::Num(result))
}

impl Row {
    fn shows(&self, case: &Case) -> bool {
        self.shown_by.iter().any(|name| match name.ends_with(['.', '@']) {
            true => case.name.starts_with(name),
            false => case.name == *name,
        })
    }

    /// Whether a case is one of a row that the filter means: a part of a row's name, from the beginning on.
    pub(crate) fn wants(filter: &str, case: &Case) -> bool {
        let table = filter.starts_with("table");
        let mut meant = ROWS.iter().filter(|row| table && row.name.contains(filter));
        meant.any(|row| row.shows(case))
    }

    /// Whether a kernel of this version has it; why the cases do not say so.
    fn disagrees(&self, all: &[Case], version: Version) -> Option<String> {
        let has = version >= self.since;
        let (major, minor) = version;
        for name in self.shown_by {
            let only = Row {
                shown_by: std::slice::from_ref(name),
                ..*self
            };
            let mut cases = all.iter().filter(|case| only.shows(case)).peekable();
            if cases.peek().is_none() {
                return Some(format!("no case is called {name}"));
            }
            for case in cases {
                match case.never.or(case.needs.and_then(|need| lacks(need, version))) {
                    Some(why) if has => {
                        return Some(format!("{} is left out on {major}.{minor}: {why}", case.name));
                    }
                    None if !has => {
                        return Some(format!("{} is not left out on {major}.{minor}", case.name));
                    }
                    Some(_) | None => {}
                }
            }
        }
        None
    }

    /// The verdict; nothing where not all of its cases were to be run. `fared`: whether each case that was run has passed.
    pub(crate) fn verdict(
        &self,
        all: &[Case],
        selected: &[&Case],
        version: Version,
        fared: &BTreeMap<&str, bool>,
    ) -> Option<Result<Verdict, String>> {
        let mine = |case: &&Case| self.shows(case);
        let wanted = all.iter().filter(mine).count();
        if selected.iter().copied().filter(mine).count() < wanted {
            return None;
        }
        if let Some(why) = self.disagrees(all, version) {
            return Some(Err(why));
        }
        if version < self.since {
            let (major, minor) = self.since;
            return Some(Ok(Verdict::Since(major, minor)));
        }
        let bad = all
            .iter()
            .filter(mine)
            .find(|case| fared.get(case.name.as_str()) != Some(&true));
        Some(match bad {
            Some(case) => Err(format!("{} has not passed", case.name)),
            None => Ok(Verdict::Shown(wanted)),
        })
    }
}

/// What became of a row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// So many cases have shown it.
    Shown(usize),
    /// This kernel is older than the first that has it.
    Since(u32, u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels of the matrix.
    const KERNELS: [Version; 6] = [(5, 10), (6, 1), (6, 12), (6, 18), (7, 2), (7, 3)];

    #[test]
    fn no_kernel_skips_what_it_must_have() {
        for quick in [false, true] {
            let all = crate::all(quick);
            for row in ROWS {
                for version in KERNELS {
                    assert_eq!(row.disagrees(&all, version), None, "{}", row.name);
                }
            }
        }
    }

    #[test]
    fn a_row_is_what_its_cases_are() {
        let all = crate::all(false);
        let selected: Vec<&Case> = all.iter().collect();
        let Some(row) = ROWS.iter().find(|row| row.name == "table.kprobe_multi") else {
            panic!("no such row");
        };
        let mut fared: BTreeMap<&str, bool> = all.iter().map(|case| (case.name.as_str(), true)).collect();
        let shown = all.iter().filter(|case| row.shows(case)).count();
        assert!(shown > 10, "{shown}");
        let verdict = |version, fared: &BTreeMap<&str, bool>| row.verdict(&all, &selected, version, fared);
        assert_eq!(verdict((6, 12), &fared), Some(Ok(Verdict::Shown(shown))));
        assert_eq!(verdict((6, 1), &fared), Some(Ok(Verdict::Since(6, 12))));
        // One that failed, one that was not run, and a selection without one.
        fared.insert("rung.kprobe-multi.both", false);
        assert!(verdict((6, 12), &fared).is_some_and(|verdict| verdict.is_err()));
        fared.remove("rung.kprobe-multi.both");
        assert!(verdict((6, 12), &fared).is_some_and(|verdict| verdict.is_err()));
        assert_eq!(row.verdict(&all, &selected[1..1], (6, 12), &fared), None);
    }
}
