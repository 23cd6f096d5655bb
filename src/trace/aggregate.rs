//! What the kernel aggregates, read and printed: every so many seconds, and at the end. In: layouts and maps. Out: text to where
//! events go, and what was not counted on stderr.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::time::{Duration, Instant};

use ksnoop_jit::display::{self, AggregatePrinter, Options, RawRow, Symbols, Uncounted};
use ksnoop_jit::lower;
use ksnoop_jit::types::Types;
use ksnoop_jit::wire::{self, AggregateLayout};
use ksnoop_jit_runtime as runtime;
use runtime::Maps;

use super::ladder::Running;
use super::number::number;
use crate::cli::Cli;
use crate::{Failure, complain};

/// What all queries of a run aggregate.
pub(super) struct Aggregates<'a> {
    types: &'a Types,
    layouts: Vec<AggregateLayout>,
    maps: Maps,
    interval: Option<Duration>,
    folded: bool,
    /// When the next print is due.
    next: Option<Instant>,
}

impl<'a> Aggregates<'a> {
    /// Those of the running queries.
    pub(super) fn of<'r>(
        cli: &Cli,
        types: &'a Types,
        running: impl Iterator<Item = &'r Running>,
        maps: &Maps,
    ) -> Aggregates<'a> {
        let layouts: Vec<AggregateLayout> = running.flat_map(|one| one.aggregates.clone()).collect();
        let interval = cli.interval.filter(|_| !layouts.is_empty());
        Aggregates {
            types,
            layouts,
            maps: maps.clone(),
            interval,
            folded: cli.folded,
            next: interval.map(|interval| Instant::now() + interval),
        }
    }

    /// How long until the next print.
    pub(super) fn due(&self) -> Option<Duration> {
        Some(self.next?.saturating_duration_since(Instant::now()))
    }

    /// Whether it is time to print.
    pub(super) fn tick(&mut self) -> bool {
        let (Some(next), Some(interval)) = (self.next, self.interval) else {
            return false;
        };
        let now = Instant::now();
        if now < next {
            return false;
        }
        // Prints that came too late are not made up for.
        let mut next = next;
        while next <= now {
            next += interval;
        }
        self.next = Some(next);
        true
    }

    /// Appends all that was counted up to now.
    pub(super) fn print(
        &self,
        options: &Options,
        columns: usize,
        out: &mut String,
        symbols: &dyn Symbols,
    ) -> Result<(), Failure> {
        let mut left: Vec<&AggregateLayout> = self.layouts.iter().collect();
        while !left.is_empty() {
            let first = left.remove(0);
            // What a query counts at several functions counts together, where the keys are the same.
            let (same, others) = left.into_iter().partition(|other| first.goes_with(other));
            left = others;
            let mut whole = AggregateLayout {
                names: Vec::new(),
                ..first.clone()
            };
            let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
            let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            for one in iter::once(first).chain(same) {
                // Two programs may serve places of one probe, and two places may have one name.
                let mut among = Vec::with_capacity(one.names.len());
                for name in &one.names {
                    among.push(*numbers.entry(name).or_insert_with(|| {
                        whole.names.push(name.clone());
                        whole.names.len() - 1
                    }));
                }
                self.read(one, &among, &mut rows)?;
            }
            let rows: Vec<RawRow> = rows
                .into_iter()
                .map(|(key, values)| RawRow { key, values })
                .collect();
            let mut printer = AggregatePrinter::new(self.types, &whole, options.clone());
            if self.folded {
                printer.folded(&rows, out, symbols);
            } else {
                printer.print(&rows, columns, out, symbols);
            }
        }
        Ok(())
    }

    /// Adds what one map has: to its key, as the values of so many CPUs more. `among` is which of all names each of the layout's is.
    fn read(
        &self,
        layout: &AggregateLayout,
        among: &[usize],
        rows: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<(), Failure> {
        for (mut key, values) in self.maps.entries(&layout.map)? {
            display::rename(&mut key, layout, among);
            rows.entry(key).or_default().extend_from_slice(&values);
        }
        Ok(())
    }

    /// Whether there is anything to be printed.
    pub(super) fn is_empty(&self) -> bool {
        self.layouts.is_empty()
    }

    /// Whether it is printed before the end as well.
    pub(super) fn is_repeated(&self) -> bool {
        self.interval.is_some() && !self.folded
    }

    /// How many hits have been counted up to now.
    pub(super) fn hits(&self) -> Result<u64, Failure> {
        let mut hits = 0u64;
        for layout in &self.layouts {
            let at = wire::HITS as usize;
            for (_, values) in self.maps.entries(&layout.map)? {
                let counted = values
                    .chunks(layout.value_size.max(8) as usize)
                    .filter_map(|value| value.get(at..)?.first_chunk())
                    .map(|word| u64::from_ne_bytes(*word));
                hits = counted.fold(hits, u64::saturating_add);
            }
        }
        Ok(hits)
    }

    /// What was not counted, by query and reason.
    pub(super) fn uncounted(&self) -> Result<Vec<Missing>, Failure> {
        let mut told = BTreeSet::new();
        let mut all = Vec::new();
        for layout in self.layouts.iter().filter(|layout| told.insert(layout.query)) {
            for (which, reason) in [(0, Uncounted::Keys), (1, Uncounted::Fault)] {
                let counter = 2 * layout.query as u32 + which;
                let count = match self.maps.percpu_u64(lower::MISSED, counter) {
                    Ok(all) => all.iter().sum(),
                    Err(runtime::RuntimeError::NoSuch { .. }) => 0,
                    Err(error) => return Err(error.into()),
                };
                if count > 0 {
                    let (_, _, keys) = self.maps.shape(&layout.map)?;
                    all.push(Missing {
                        name: layout.names.first().cloned().unwrap_or_default(),
                        query: layout.query,
                        count,
                        reason,
                        keys,
                    });
                }
            }
        }
        Ok(all)
    }
}

/// Hits that were not counted.
pub(super) struct Missing {
    /// The function or tracepoint.
    pub(super) name: String,
    /// Which of the queries.
    pub(super) query: usize,
    /// How many.
    pub(super) count: u64,
    /// Why.
    pub(super) reason: Uncounted,
    /// How many keys there is room for.
    keys: u32,
}

impl Missing {
    /// Tells it on stderr.
    pub(super) fn complain(&self) {
        let Missing { name, count, .. } = self;
        let why = match self.reason {
            Uncounted::Keys => {
                let keys = number(u64::from(self.keys), "key");
                format!("there is room for {keys} (--max-keys makes more)")
            }
            Uncounted::Fault => {
                "a key or value could not be read, because of a bad pointer, a division by zero or the like"
                    .to_string()
            }
        };
        complain(&format!("{name}: {} not counted, {why}", number(*count, "hit")));
    }
}
