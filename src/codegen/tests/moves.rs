//! Parallel moves: whatever they are, and however little room there is, afterwards everything is where it should be.

use std::collections::BTreeMap;

use crate::codegen::mach::{Const, Reg};
use crate::codegen::regalloc::moves::{Scratch, sequence};
use crate::codegen::regalloc::{Loc, Move, Source};
use crate::ir::generate::Rng;

const FIRST_SPILL: u32 = 100;

fn random_loc(rng: &mut Rng) -> Loc {
    if rng.below(2) == 0 {
        Loc::Reg(Reg::ALL[rng.below(10)])
    } else {
        Loc::Spill(rng.below(6) as u32)
    }
}

fn get(state: &BTreeMap<Loc, i64>, source: Source) -> i64 {
    match source {
        Source::Loc(loc) => state.get(&loc).copied().unwrap_or(-1),
        Source::Const(Const::Int(value)) => value,
        Source::Const(other) => panic!("{other:?} is not used here"),
    }
}

#[test]
fn everything_arrives() {
    let mut rng = Rng::new(7);
    let mut borrowed = 0;
    let mut cycles_through_the_stack = 0;
    for round in 0..20000 {
        let mut moves: Vec<Move> = Vec::new();
        for _ in 0..1 + rng.below(12) {
            let dst = random_loc(&mut rng);
            let src = match rng.below(8) {
                0 => Source::Const(Const::Int(1000 + rng.below(9) as i64)),
                1 => Source::Const(Const::Int(1 << 40)),
                _ => Source::Loc(random_loc(&mut rng)),
            };
            if moves.iter().all(|copy| copy.dst != dst) {
                moves.push(Move { dst, src });
            }
        }
        // What is not free and no destination must survive.
        let free: Vec<Reg> = Reg::ALL
            .into_iter()
            .filter(|_| round % 3 != 0 && rng.below(4) == 0)
            .collect();
        let before: BTreeMap<Loc, i64> = Reg::ALL
            .into_iter()
            .map(|reg| (Loc::Reg(reg), i64::from(reg.number())))
            .chain((0..6).map(|number| (Loc::Spill(number), 50 + i64::from(number))))
            .collect();
        let mut scratch = Scratch {
            free: free.clone(),
            first_spill: FIRST_SPILL,
            spills_used: 0,
        };
        let order = sequence(&moves, &mut scratch);
        let mut state = before.clone();
        for copy in &order {
            let possible = match (copy.dst, copy.src) {
                (Loc::Spill(_), Source::Loc(Loc::Spill(_))) => false,
                (Loc::Spill(_), Source::Const(Const::Int(value))) => i32::try_from(value).is_ok(),
                (Loc::Reg(_), _) | (Loc::Spill(_), _) => true,
            };
            assert!(possible, "{copy:?} is no instruction");
            let value = get(&state, copy.src);
            state.insert(copy.dst, value);
        }
        for (loc, old) in &before {
            let wanted = match moves.iter().find(|copy| copy.dst == *loc) {
                Some(copy) => get(&before, copy.src),
                None => *old,
            };
            let scratched = matches!(loc, Loc::Reg(reg) if free.contains(reg));
            let moved = moves.iter().any(|copy| copy.dst == *loc);
            if moved || !scratched {
                assert_eq!(
                    state[loc], wanted,
                    "{loc:?} in {moves:?} with {free:?}: {order:?}"
                );
            }
        }
        borrowed += usize::from(scratch.spills_used == 2);
        cycles_through_the_stack += usize::from(scratch.spills_used == 1);
    }
    assert!(
        borrowed > 100 && cycles_through_the_stack > 10,
        "{borrowed} {cycles_through_the_stack}"
    );
}
