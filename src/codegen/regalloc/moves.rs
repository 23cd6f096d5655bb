//! Moves that happen at the same time, put in an order. In: destinations and sources. Out: single moves. Breaks cycles
//! through a free register, or through the stack when there is none. Never reads what it has already overwritten.

use super::super::mach::{Const, Reg};
use super::{Loc, Move, Source};

/// What the moves may use on the way.
pub(crate) struct Scratch {
    /// Registers that hold nothing which is needed afterwards.
    pub(crate) free: Vec<Reg>,
    /// The first spill slot number that is not in use anywhere.
    pub(crate) first_spill: u32,
    /// How many of the slots from there on were needed.
    pub(crate) spills_used: u32,
}

/// Orders the moves.
pub(crate) fn sequence(moves: &[Move], scratch: &mut Scratch) -> Vec<Move> {
    let mut out = Vec::new();
    let destinations: Vec<Loc> = moves.iter().map(|copy| copy.dst).collect();
    let stays = |copy: &&Move| copy.src != Source::Loc(copy.dst);
    let mut pending: Vec<Move> = moves.iter().filter(stays).copied().collect();
    // A value that stays where it is must not be overwritten by a scratch use either.
    let staying: Vec<Loc> = moves
        .iter()
        .filter(|copy| !stays(copy))
        .map(|copy| copy.dst)
        .collect();
    while !pending.is_empty() {
        let blocked = |copy: &Move| pending.iter().any(|other| other.src == Source::Loc(copy.dst));
        // Constants last: they keep their destination free as a scratch for the others.
        let ready = pending
            .iter()
            .position(|copy| matches!(copy.src, Source::Loc(_)) && !blocked(copy))
            .or_else(|| {
                let only_constants = pending.iter().all(|copy| matches!(copy.src, Source::Const(_)));
                only_constants.then_some(0)
            });
        if let Some(ready) = ready {
            let copy = pending.remove(ready);
            let busy = |reg: Reg| {
                let loc = Loc::Reg(reg);
                let written = destinations.contains(&loc) && !pending.iter().any(|other| other.dst == loc);
                written || staying.contains(&loc) || pending.iter().any(|other| other.src == Source::Loc(loc))
            };
            let temp = scratch.free.iter().copied().find(|reg| !busy(*reg));
            step(copy, temp, scratch, &mut out);
            continue;
        }
        // Only cycles are left (and constants). Take one source out of its cycle.
        let Some(at) = pending.iter().position(|copy| matches!(copy.src, Source::Loc(_))) else {
            continue;
        };
        let from = pending[at].src;
        let busy = |reg: Reg| {
            let loc = Loc::Reg(reg);
            destinations.contains(&loc) || pending.iter().any(|other| other.src == Source::Loc(loc))
        };
        let temp = match scratch.free.iter().copied().find(|reg| !busy(*reg)) {
            Some(reg) => Loc::Reg(reg),
            None => {
                scratch.spills_used = scratch.spills_used.max(1);
                Loc::Spill(scratch.first_spill)
            }
        };
        let written = |reg: &Reg| {
            let loc = Loc::Reg(*reg);
            destinations.contains(&loc) && !pending.iter().any(|other| other.dst == loc)
        };
        let read = |reg: &Reg| {
            pending
                .iter()
                .any(|other| other.src == Source::Loc(Loc::Reg(*reg)))
        };
        let through = scratch.free.iter().copied();
        let through = through
            .filter(|reg| !staying.contains(&Loc::Reg(*reg)))
            .find(|reg| !written(reg) && !read(reg));
        step(Move { dst: temp, src: from }, through, scratch, &mut out);
        for copy in &mut pending {
            if copy.src == from {
                copy.src = Source::Loc(temp);
            }
        }
    }
    out
}

/// One move; through a register if it is one that no instruction can do.
fn step(copy: Move, temp: Option<Reg>, scratch: &mut Scratch, out: &mut Vec<Move>) {
    let direct = match (copy.dst, copy.src) {
        (Loc::Reg(_), _) | (Loc::Spill(_), Source::Loc(Loc::Reg(_))) => true,
        (Loc::Spill(_), Source::Const(Const::Int(value))) => i32::try_from(value).is_ok(),
        (Loc::Spill(_), Source::Loc(Loc::Spill(_)) | Source::Const(_)) => false,
    };
    if direct {
        out.push(copy);
        return;
    }
    if let Some(temp) = temp {
        let through = Loc::Reg(temp);
        out.push(Move {
            dst: through,
            src: copy.src,
        });
        out.push(Move {
            dst: copy.dst,
            src: Source::Loc(through),
        });
        return;
    }
    // Every register is needed: borrow one and give it back.
    scratch.spills_used = 2;
    let parked = Loc::Spill(scratch.first_spill + 1);
    let borrowed = Loc::Reg(Reg::R9);
    for (dst, src) in [
        (parked, Source::Loc(borrowed)),
        (borrowed, copy.src),
        (copy.dst, Source::Loc(borrowed)),
        (borrowed, Source::Loc(parked)),
    ] {
        out.push(Move { dst, src });
    }
}
