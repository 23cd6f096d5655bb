//! Queries about modules that are not loaded yet. In: which queries wait. Out: when modules have come, and what the queries are
//! about then. Never attaches anything.

use std::time::{Duration, Instant};

use ksnoop_jit::types::Types;
use ksnoop_jit_runtime as runtime;
use runtime::Signals;

use super::targets::{self, Asked};
use crate::cli::Cli;
use crate::{Failure, complain};

/// How often it is looked whether modules have been loaded: nobody tells.
const INTERVAL: Duration = Duration::from_millis(50);

/// The queries that wait.
pub(super) struct Wait {
    queries: Vec<usize>,
    /// The modules with type information when it was last looked.
    known: Vec<String>,
}

impl Wait {
    /// Those of the queries that are about nothing yet.
    pub(super) fn new(asked: &[Asked]) -> Wait {
        let queries: Vec<usize> = (0..asked.len())
            .filter(|index| asked[*index].families.is_empty())
            .collect();
        for index in &queries {
            complain(&format!("{}: waiting for its module", asked[*index].name));
        }
        let known = if queries.is_empty() { Vec::new() } else { loaded() };
        Wait { queries, known }
    }

    /// How often to ask; `None` if nothing waits.
    pub(super) fn interval(&self) -> Option<Duration> {
        (!self.queries.is_empty()).then_some(INTERVAL)
    }

    /// Whether modules have been loaded since this was last true. One that is still initializing can't be attached to, and has
    /// not come yet.
    pub(super) fn arrived(&mut self) -> bool {
        if self.queries.is_empty() {
            return false;
        }
        let now = loaded();
        let new = now.iter().any(|name| !self.known.contains(name));
        self.known = now;
        new
    }

    /// Waits while nothing else is to be done; false if a signal or the end of the time comes first.
    pub(super) fn sleep(&mut self, signals: &Signals, end: Option<Instant>) -> bool {
        loop {
            if signals.take().is_some() || end.is_some_and(|end| Instant::now() >= end) {
                return false;
            }
            if self.arrived() {
                return true;
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Asks again what the waiting queries are about; which of them know now.
    pub(super) fn again(
        &mut self,
        cli: &Cli,
        asked: &mut [Asked],
        types: &mut Types,
    ) -> Result<Vec<usize>, Failure> {
        let mut ready = Vec::new();
        for index in std::mem::take(&mut self.queries) {
            let texts = [asked[index].text.clone()];
            let mut known = targets::understand(cli, &texts, types)?;
            match known.pop() {
                Some(one) if !one.families.is_empty() => {
                    asked[index] = one;
                    ready.push(index);
                }
                Some(_) | None => self.queries.push(index),
            }
        }
        Ok(ready)
    }
}

/// The modules with type information that have been initialized.
fn loaded() -> Vec<String> {
    let mut names = runtime::btf::module_names().unwrap_or_default();
    names.retain(|name| runtime::btf::module_is_live(name));
    names
}
