//! Aggregations run: programs of random queries count over made-up memory, hit after hit and CPU after CPU, and what their maps hold in
//! the end, put together as display does it, is what the reference counts with mathematical integers.

use std::collections::BTreeMap;

use ksnoop_jit::display::{AggregatePrinter, Layout, Measured, Options, RawRow};
use ksnoop_jit::ir::MapKind;
use ksnoop_jit::ir::generate::Rng;
use ksnoop_jit::parser;
use ksnoop_jit::parser::ast::Query;
use ksnoop_jit::types::{Func, Types};
use ksnoop_jit::wire::{self, AggregateLayout};
use ksnoop_jit::{codegen, lower};

use super::exec::{WAYS, forgiving};
use super::machine::{Machine, Map, number};
use super::made::{Generator, moment, random_types};
use super::reference::{Counted, Hit, World};
use super::running::{Built, build_with, context};

/// What came of all runs.
#[derive(Debug, Default)]
struct Tally {
    queries: usize,
    refused: usize,
    counted: usize,
    unreadable: usize,
    full: usize,
    rows: usize,
}

/// A measure of the reference's.
#[derive(Clone, Debug, PartialEq)]
enum Sum {
    Number(i128),
    Average(i128, u64),
    /// Which values are in which bucket: from, below, how many.
    Buckets(Vec<(Option<i128>, Option<i128>, u64)>),
}

/// A random query that aggregates, with few different keys.
fn query(generator: &mut Generator<'_>) -> String {
    let mut items = vec!["count()".to_string()];
    for _ in 0..1 + generator.rng.below(4) {
        let depth = generator.rng.below(3);
        let value = generator.number(depth);
        items.push(match generator.rng.below(7) {
            0 => format!("sum({value})"),
            1 => format!("avg({value})"),
            2 => format!("min({value})"),
            3 => format!("max({value})"),
            4 | 5 => format!("hist({value})"),
            // Signed, so that any bounds are right.
            _ => format!("lhist((long)({value}), -100, 400, 50)"),
        });
    }
    let keys: Vec<String> = (0..generator.rng.below(3))
        .map(|_| match generator.rng.below(3) {
            0 => format!("k = {} & 3", generator.scalar(1)),
            1 => format!("(u8){}:x", generator.scalar(0)),
            _ => generator.scalar(1),
        })
        .collect();
    if !keys.is_empty() {
        items.push(format!("by({})", keys.join(", ")));
    }
    if generator.rng.below(3) == 0 {
        items.push(generator.condition(1));
    }
    format!("probe_me({})", items.join(", "))
}

/// The bucket that a value belongs to, from what LANGUAGE.md says of histograms.
fn bucket(call: &str, value: i128) -> (Option<i128>, Option<i128>) {
    if call == "lhist" {
        return match value {
            ..-100 => (None, Some(-100)),
            400.. => (Some(400), None),
            _ => {
                let from = (value + 100).div_euclid(50) * 50 - 100;
                (Some(from), Some(from + 50))
            }
        };
    }
    let power = |value: i128| {
        let mut low = 1i128;
        while low * 2 <= value {
            low *= 2;
        }
        low
    };
    match value {
        0 => (Some(0), Some(1)),
        1.. => (Some(power(value)), Some(2 * power(value))),
        // From -7 to -4 is as far from 0 as from 4 to 7.
        _ => (Some(1 - 2 * power(-value)), Some(1 - power(-value))),
    }
}

/// What the hits of one key come to.
fn sums(calls: &[String], hits: &[Hit]) -> Vec<Sum> {
    let count = hits.len() as u64;
    let all = |index: usize| hits.iter().map(move |hit| hit.values[index]);
    let sum = |index: usize| all(index).sum::<i128>();
    calls
        .iter()
        .enumerate()
        .map(|(index, call)| match call.as_str() {
            "count" => Sum::Number(i128::from(count)),
            "sum" => Sum::Number(sum(index)),
            "avg" => Sum::Average(sum(index), count),
            "min" => Sum::Number(all(index).min().unwrap_or(0)),
            "max" => Sum::Number(all(index).max().unwrap_or(0)),
            _ => {
                let mut buckets: Vec<(Option<i128>, Option<i128>, u64)> = Vec::new();
                let mut values: Vec<i128> = all(index).collect();
                values.sort_unstable();
                for value in values {
                    let (from, below) = bucket(call, value);
                    match buckets.last_mut() {
                        Some(last) if (last.0, last.1) == (from, below) => last.2 += 1,
                        Some(_) | None => buckets.push((from, below, 1)),
                    }
                }
                Sum::Buckets(buckets)
            }
        })
        .collect()
}

/// The same from what display makes of a row.
fn shown(measured: &Measured) -> Sum {
    match measured {
        Measured::Number(number) => Sum::Number(*number),
        Measured::Average(sum, count) => Sum::Average(*sum, *count),
        Measured::Histogram(buckets) => Sum::Buckets(
            buckets
                .iter()
                .filter(|bucket| bucket.count > 0)
                .map(|bucket| (bucket.from, bucket.below, bucket.count))
                .collect(),
        ),
    }
}

fn maps(built: &Built, machine: &mut Machine) {
    for map in &built.artifact.object.maps {
        let (per_cpu, hash) = match map.kind {
            MapKind::PercpuHash => (true, true),
            MapKind::Hash | MapKind::LruHash => (false, true),
            MapKind::PercpuArray => (true, false),
            MapKind::Array => (false, false),
            MapKind::StackTrace | MapKind::CgroupArray | MapKind::Ringbuf => {
                panic!("a map of kind {:?} in `{}`", map.kind, built.text)
            }
        };
        machine.add_map(Map {
            key_size: map.key_size as usize,
            value_size: map.value_size as usize,
            max_entries: map.max_entries as usize,
            per_cpu,
            hash,
            entries: BTreeMap::new(),
            bytes: Vec::new(),
        });
    }
}

/// The counters of what was not counted: no room, unreadable.
fn missed(built: &Built, machine: &Machine) -> [u64; 2] {
    let index = built
        .artifact
        .object
        .maps
        .iter()
        .position(|map| map.name == lower::MISSED);
    let Some(map) = index.map(|index| &machine.maps[index]) else {
        return [0, 0];
    };
    let row = map.bytes.len() / map.max_entries;
    [0, 1].map(|which| {
        map.bytes[which * row..(which + 1) * row]
            .chunks_exact(8)
            .map(number)
            .sum()
    })
}

struct Round<'a> {
    types: &'a Types,
    func: &'a Func,
    wild: bool,
}

impl Round<'_> {
    fn check(&self, built: &Built, rng: &mut Rng, tally: &mut Tally) {
        let text = &built.text;
        let fail = |why: &str| -> ! {
            let program = &built.artifact.object.programs[0];
            panic!(
                "{text}\n{:?}\n{why}\n{}",
                built.way,
                codegen::listing(program, text, Some(&built.code))
            )
        };
        let query: Query = parser::parse(text).unwrap_or_else(|diags| panic!("{text}: {diags}"));
        let Some(layout) = built.artifact.programs[0].aggregate.clone() else {
            fail("it aggregates nothing");
        };
        let mut machine = Machine::new(Vec::new(), moment(rng));
        machine.forgiving = forgiving(built.way);
        maps(built, &mut machine);
        let mut hits: BTreeMap<Vec<u64>, Vec<Hit>> = BTreeMap::new();
        let (mut full, mut unreadable) = (0, 0);
        for _ in 0..40 {
            let contents = rng.bits();
            let args = Generator::new(rng.bits(), self.types, self.wild).args();
            let (context, caller) = context(built.way, &args);
            machine.memory = Generator::new(contents, self.types, self.wild).memory();
            machine.memory.push(caller);
            let now = moment(rng);
            machine.at(now.clone());
            if let Err(error) = machine.run(&built.code, &context) {
                fail(&error);
            }
            let world = World {
                types: self.types,
                func: self.func,
                args: &args,
                machine: &machine,
                moment: &now,
            };
            match world.count(&query) {
                Counted::Filtered => {}
                Counted::Unreadable => unreadable += 1,
                Counted::Hit(hit) => {
                    let room = self.room(&layout, built);
                    if hits.contains_key(&hit.key) || hits.len() < room {
                        hits.entry(hit.key.clone()).or_default().push(hit);
                    } else {
                        full += 1;
                    }
                }
            }
            if !machine.records.is_empty() {
                fail("an event was sent");
            }
        }
        tally.queries += 1;
        tally.counted += hits.values().map(Vec::len).sum::<usize>();
        tally.unreadable += unreadable as usize;
        tally.full += full as usize;
        tally.rows += hits.len();
        if missed(built, &machine) != [full, unreadable] {
            fail(&format!(
                "{:?} are missed, not {:?}",
                missed(built, &machine),
                [full, unreadable]
            ));
        }
        self.compare(built, &layout, &query, &machine, &hits)
            .unwrap_or_else(|why| fail(&why));
    }

    /// How many keys there is room for.
    fn room(&self, layout: &AggregateLayout, built: &Built) -> usize {
        let map = built
            .artifact
            .object
            .maps
            .iter()
            .find(|map| map.name == layout.map);
        map.map_or(0, |map| map.max_entries as usize)
    }

    fn compare(
        &self,
        built: &Built,
        layout: &AggregateLayout,
        query: &Query,
        machine: &Machine,
        hits: &BTreeMap<Vec<u64>, Vec<Hit>>,
    ) -> Result<(), String> {
        let index = built
            .artifact
            .object
            .maps
            .iter()
            .position(|map| map.name == layout.map);
        let map = &machine.maps[index.ok_or("no map")?];
        let size = map.bytes.len() / map.entries.len().max(1);
        let raw: Vec<RawRow> = map
            .entries
            .iter()
            .map(|(key, at)| RawRow {
                key: key.clone(),
                values: map.bytes[*at..at + size].to_vec(),
            })
            .collect();
        let rows = AggregatePrinter::new(self.types, layout, Options::new(Layout::Json)).rows(&raw);
        if rows.len() != hits.len() {
            return Err(format!("{} keys, not {}", rows.len(), hits.len()));
        }
        let calls: Vec<String> = query
            .items
            .iter()
            .flatten()
            .filter_map(|item| match &item.expr.kind {
                parser::ast::ExprKind::Call { func, .. } if func.node != "by" => Some(func.node.clone()),
                _ => None,
            })
            .filter(|name| ["count", "sum", "avg", "min", "max", "hist", "lhist"].contains(&name.as_str()))
            .collect();
        for row in &rows {
            let key: Vec<u64> = layout
                .keys
                .iter()
                .map(|key| {
                    let at = (key.offset + wire::VALUE) as usize;
                    number(&row.key[at..at + 8])
                })
                .collect();
            let hits = hits
                .get(&key)
                .ok_or_else(|| format!("a key {key:x?} that nothing has"))?;
            if row.hits != hits.len() as u64 {
                return Err(format!("{key:x?}: {} hits, not {}", row.hits, hits.len()));
            }
            for ((call, want), got) in calls.iter().zip(sums(&calls, hits)).zip(&row.measures) {
                let got = shown(got);
                if want != got {
                    return Err(format!("{key:x?}: {call} is {got:?}, not {want:?}"));
                }
            }
        }
        Ok(())
    }
}

#[test]
fn random_aggregations_count_what_the_reference_counts() {
    let rounds: u64 = std::env::var("KSJ_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(12);
    let mut tally = Tally::default();
    for seed in 0..rounds {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let types = random_types(&mut rng);
        let func = types.functions_named("probe_me")[0].clone();
        for number in 0..12 {
            let way = WAYS[number % WAYS.len()];
            let wild = !forgiving(way);
            let text = query(&mut Generator::new(rng.bits(), &types, wild));
            // Now and then there is room for few keys.
            let keys = (number % 4 == 3).then_some(5);
            let Ok(built) = build_with(&text, &types, way, keys) else {
                tally.refused += 1;
                continue;
            };
            let round = Round {
                types: &types,
                func: &func,
                wild,
            };
            round.check(&built, &mut rng, &mut tally);
        }
    }
    eprintln!("{rounds} rounds: {tally:?}");
    // The generator must not have lost its teeth.
    let expected = rounds as usize * 12;
    assert!(tally.queries > expected / 10 * 8, "{tally:?}");
    assert!(tally.counted > expected * 8, "{tally:?}");
    assert!(tally.unreadable > expected, "{tally:?}");
    assert!(tally.rows > expected, "{tally:?}");
    assert!(tally.full > expected / 8, "{tally:?}");
}
