//! Whether the queries and how they are to be shown fit together. In: options and typed queries. Out: a refusal that says what to
//! write instead, before anything is attached.

use ksnoop_jit::typed;
use ksnoop_jit::wire::{Measure, ValueLayout};

use super::targets::Asked;
use crate::cli::{Cli, Format, Time};
use crate::{Failure, complain};

/// Refuses options that the queries leave nothing to do for.
pub(super) fn check(cli: &Cli, asked: &[Asked]) -> Result<(), Failure> {
    let refuse = |why: &str| {
        complain(&format!("ksnoop-jit: {why}"));
        Err(Failure::Query)
    };
    if cli.format == Format::Chrome && cli.time != Time::Monotonic {
        return refuse("a trace has a clock of its own: leave `--time` away with `--format chrome`");
    }
    // A query that waits for its module has no meaning yet.
    if asked.iter().any(|one| one.families.is_empty()) {
        return Ok(());
    }
    let queries = || {
        asked
            .iter()
            .flat_map(|one| &one.families)
            .map(|family| &family.query)
    };
    let aggregates = |query: &typed::Query| query.aggregate.is_some();
    if cli.format == Format::Chrome && queries().any(aggregates) {
        return refuse(
            "a trace is made of events, and a query that aggregates sends none: take `--format text` or `--format json`",
        );
    }
    if cli.interval.is_some() && !queries().any(aggregates) {
        return refuse("nothing is aggregated that `--interval` could print: ask for `count()` or its like");
    }
    if cli.folded && cli.format != Format::Text {
        return refuse("`--folded` is a format of its own: leave `--format` away");
    }
    if cli.folded && !queries().all(counts_by_stack) {
        return refuse(
            "`--folded` writes what is counted by stacks: ask for `count(), by(kstack())` or `by(ustack())`",
        );
    }
    if cli.folded && !queries().all(measures_one_number) {
        return refuse(
            "a line of `--folded` has one number: ask for one of `count()`, `sum(x)`, `avg(x)`, `min(x)` and `max(x)`, and no histogram",
        );
    }
    if cli.folded && cli.interval.is_some() {
        return refuse(
            "`--folded` and `--interval` do not go together: what makes flame graphs adds up all lines, and each print counts from the start on; leave `--interval` away",
        );
    }
    if cli.count.is_some() && queries().all(aggregates) {
        return refuse(
            "`-n` counts events, and a query that aggregates sends none: end the run with `--for SECONDS` or Ctrl-C",
        );
    }
    Ok(())
}

/// Whether there is one number for each key.
fn measures_one_number(query: &typed::Query) -> bool {
    let Some(aggregate) = &query.aggregate else {
        return false;
    };
    match aggregate.measures.as_slice() {
        [one] => match one.measure {
            Measure::Count | Measure::Sum | Measure::Avg | Measure::Min | Measure::Max => true,
            Measure::Hist | Measure::Lhist { .. } => false,
        },
        [] | [_, ..] => false,
    }
}

fn counts_by_stack(query: &typed::Query) -> bool {
    let Some(aggregate) = &query.aggregate else {
        return false;
    };
    let items = query
        .events
        .iter()
        .flat_map(|event| event.items.iter().take(aggregate.keys));
    items
        .into_iter()
        .any(|key| matches!(key.value, ValueLayout::Stack { .. }))
}
