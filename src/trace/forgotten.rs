//! Calls whose values the kernel forgot before they returned: maps of what entries keep have room for so many calls, and the oldest
//! go when there are more. In: what ran, and its maps after everything is detached. Out: a number for each query. Never
//! reads what was kept.

use ksnoop_jit::lower;
use ksnoop_jit_runtime as runtime;

use super::ladder::Running;
use crate::Failure;

/// Calls of one query that are missing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Forgotten {
    /// How many.
    pub(super) calls: u64,
    /// For how many there is room at a time, by the smallest of its maps.
    pub(super) room: u32,
}

/// The maps that a query's programs keep values in, which are known while it runs.
pub(super) fn maps_of(running: &Running, maps: &runtime::Maps) -> Vec<String> {
    let numbers = running.layouts.iter().map(|layout| layout.event);
    let aggregated = running.aggregated.iter().copied();
    let mut names: Vec<String> = numbers
        .chain(aggregated)
        .map(lower::kept_map)
        .filter(|name| maps.contains(name))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// How many calls of query number `query` were forgotten; `kept` are its maps. Nothing may run any more.
pub(super) fn count(query: usize, kept: &[String], maps: &runtime::Maps) -> Result<Forgotten, Failure> {
    let mut found = Forgotten::default();
    if kept.is_empty() {
        return Ok(found);
    }
    let sum = |which: u32| -> Result<u64, Failure> {
        let all = maps.percpu_u64(lower::KEPT, 2 * query as u32 + which)?;
        Ok(all.iter().fold(0, |sum, one| sum.wrapping_add(*one)))
    };
    let mut there = 0;
    for name in kept {
        there += maps.entries(name)?.len() as u64;
        let (_, _, room) = maps.shape(name)?;
        found.room = if found.room == 0 {
            room
        } else {
            room.min(found.room)
        };
    }
    let (made, given_back) = (sum(0)?, sum(1)?);
    found.calls = made.saturating_sub(given_back).saturating_sub(there);
    Ok(found)
}
