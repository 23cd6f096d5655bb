//! The rules about reserved records: given back once on every path, and not touched afterwards. In: a function whose
//! types are looked at elsewhere. Follows sets of states through the blocks; where paths meet, a record may be in any of
//! the states that they bring.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;

use super::{Place, Rule, Verifier};
use crate::ir::inst::{CmpOp, InstData, Operand, Space, Terminator, Type};
use crate::ir::{ArgKind, Block, Helper, Value};

/// What a record may be at a point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum State {
    /// Reserved (or the reservation failed, and nobody has looked yet).
    Held,
    /// Given back, or NULL.
    Gone,
}

/// States by the value that the reservation gave.
type States = BTreeMap<Value, BTreeSet<State>>;

impl Verifier<'_> {
    pub(super) fn records(&mut self) {
        let func = self.func;
        let origins = self.record_origins();
        if origins.is_empty() {
            return;
        }
        let mut entries: SecondaryMap<Block, Option<States>> = SecondaryMap::new();
        for block in &func.layout {
            let mut states = entries[*block].take().unwrap_or_default();
            let data = &func.blocks[*block];
            let place = |at| Place {
                block: Some(*block),
                at,
            };
            for (at, inst) in data.insts.iter().enumerate() {
                let data = &func.insts[*inst];
                // A cast and a sum are only names; what counts is access.
                if !matches!(data, InstData::Cast { .. } | InstData::Binary { .. }) {
                    let mut used = Vec::new();
                    data.for_each_use(|value| used.push(value));
                    for value in used {
                        self.use_of(value, &origins, &states, place(Some(at)));
                    }
                }
                if let InstData::Call { helper, args } = data {
                    for (arg, kind) in args.iter().zip(helper.params()) {
                        if let (ArgKind::Record, Some(value)) = (kind, arg.value()) {
                            for origin in origins.get(&value).into_iter().flatten() {
                                states.insert(*origin, BTreeSet::from([State::Gone]));
                            }
                        }
                    }
                    if let (Helper::RingbufReserve, Some(result)) = (helper, func.results[*inst]) {
                        states.insert(result, BTreeSet::from([State::Held]));
                    }
                }
            }
            let Some(end) = &data.end else {
                continue;
            };
            if self.reachable[*block] && matches!(end, Terminator::Return(_)) {
                for (record, _) in states.iter().filter(|(_, states)| states.contains(&State::Held)) {
                    let detail = format!("{record} is neither submitted nor discarded");
                    self.error(Rule::RecordLeak, place(None), detail);
                }
            }
            for (index, target) in end.targets().into_iter().enumerate() {
                let mut after = states.clone();
                if let Some(record) = null_on(end, index) {
                    for origin in origins.get(&record).into_iter().flatten() {
                        after.insert(*origin, BTreeSet::from([State::Gone]));
                    }
                }
                let entry = entries[target.block].get_or_insert_default();
                for (record, states) in after {
                    entry.entry(record).or_default().extend(states);
                }
            }
        }
    }

    fn use_of(
        &mut self,
        value: Value,
        origins: &BTreeMap<Value, BTreeSet<Value>>,
        states: &States,
        place: Place,
    ) {
        for origin in origins.get(&value).into_iter().flatten() {
            if states
                .get(origin)
                .is_some_and(|states| states.contains(&State::Gone))
            {
                let detail = format!("{value} is used when the record may have been given back");
                self.error(Rule::UseAfterRelease, place, detail);
                return;
            }
        }
    }

    /// For each value that points into a record, the reservations that it may come from.
    fn record_origins(&self) -> BTreeMap<Value, BTreeSet<Value>> {
        let func = self.func;
        let mut origins: BTreeMap<Value, BTreeSet<Value>> = BTreeMap::new();
        for block in &func.layout {
            for inst in &func.blocks[*block].insts {
                let Some(result) = func.results[*inst] else {
                    continue;
                };
                let data = &func.insts[*inst];
                if let InstData::Call {
                    helper: Helper::RingbufReserve,
                    ..
                } = data
                {
                    origins.insert(result, BTreeSet::from([result]));
                }
                // A record cast to a number is no address any more.
                if let InstData::Cast {
                    ty: Type::Ptr(Space::Record),
                    src: from,
                }
                | InstData::Binary { lhs: from, .. } = data
                    && let Some(known) = origins.get(from).cloned()
                {
                    origins.insert(result, known);
                }
            }
            let targets = func.blocks[*block].end.iter().flat_map(Terminator::targets);
            for target in targets {
                for (param, arg) in func.blocks[target.block].params.iter().zip(&target.args) {
                    if let Some(known) = origins.get(arg).cloned() {
                        origins.entry(*param).or_default().extend(known);
                    }
                }
            }
        }
        origins
    }
}

/// The value that is 0 if this way out of the block is taken.
fn null_on(end: &Terminator, way: usize) -> Option<Value> {
    match end {
        Terminator::Branch {
            op: CmpOp::Eq,
            lhs,
            rhs: Operand::Imm(0),
            ..
        } if way == 0 => Some(*lhs),
        Terminator::Branch {
            op: CmpOp::Ne,
            lhs,
            rhs: Operand::Imm(0),
            ..
        } if way == 1 => Some(*lhs),
        Terminator::Branch { .. } | Terminator::Jump(_) | Terminator::Return(_) => None,
    }
}
