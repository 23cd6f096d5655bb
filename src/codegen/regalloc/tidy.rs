//! Drops reloads of what is in a register already, and saves that nobody loads. In: the allocated function. Out: the same
//! with fewer moves. Looks along all paths; never changes anything but moves from and to spill slots.

use std::collections::BTreeSet;

use super::super::mach::{MInst, Reg, Role};
use super::{ABlock, AInst, Loc, Move, Source};

/// Which spill slot each register is known to be a copy of.
type Copies = [Option<u32>; 10];

pub(super) fn drop_reloads(blocks: &mut [ABlock]) {
    let mut entries: Vec<Option<Copies>> = vec![None; blocks.len()];
    for at in 0..blocks.len() {
        let mut copies = entries[at].unwrap_or_default();
        for inst in std::mem::take(&mut blocks[at].insts) {
            if let Some(kept) = keep(inst, &copies) {
                apply(&kept, &mut copies);
                blocks[at].insts.push(kept);
            }
        }
        for target in blocks[at].end.targets() {
            let entry = entries[target].get_or_insert(copies);
            for (known, copy) in entry.iter_mut().zip(copies) {
                if *known != copy {
                    *known = None;
                }
            }
        }
    }
}

pub(super) fn drop_saves(blocks: &mut [ABlock]) {
    // Which spill slots are loaded later, at the start of each block.
    let mut entries: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); blocks.len()];
    for at in (0..blocks.len()).rev() {
        let targets = blocks[at].end.targets();
        let mut loaded: BTreeSet<u32> = targets.into_iter().flat_map(|to| entries[to].clone()).collect();
        blocks[at].insts = retain_backwards(std::mem::take(&mut blocks[at].insts), |inst| {
            let AInst::Move { copy, .. } = inst else {
                return true;
            };
            if let Loc::Spill(slot) = copy.dst
                && !loaded.remove(&slot)
            {
                return false;
            }
            if let Source::Loc(Loc::Spill(slot)) = copy.src {
                loaded.insert(slot);
            }
            true
        });
        entries[at] = loaded;
    }
}

fn retain_backwards(insts: Vec<AInst>, mut keep: impl FnMut(&AInst) -> bool) -> Vec<AInst> {
    let mut kept: Vec<AInst> = insts.into_iter().rev().filter(|inst| keep(inst)).collect();
    kept.reverse();
    kept
}

/// The instruction, or a cheaper one that does the same, or nothing.
fn keep(inst: AInst, copies: &Copies) -> Option<AInst> {
    let AInst::Move {
        copy: Move {
            dst: Loc::Reg(dst),
            src: Source::Loc(Loc::Spill(slot)),
        },
        orig,
    } = inst
    else {
        return Some(inst);
    };
    if copies[dst as usize] == Some(slot) {
        return None;
    }
    let holder = Reg::ALL
        .into_iter()
        .find(|reg| copies[*reg as usize] == Some(slot));
    let Some(holder) = holder else {
        return Some(inst);
    };
    let copy = Move {
        dst: Loc::Reg(dst),
        src: Source::Loc(Loc::Reg(holder)),
    };
    Some(AInst::Move { copy, orig })
}

fn apply(inst: &AInst, copies: &mut Copies) {
    match inst {
        AInst::Op { inst, .. } => {
            if let MInst::Call { .. } = inst {
                for reg in Reg::ALL.into_iter().filter(|reg| !reg.survives_calls()) {
                    copies[reg as usize] = None;
                }
            }
            inst.for_each(|reg, role| {
                if role == Role::Def {
                    copies[reg as usize] = None;
                }
            });
        }
        AInst::Move { copy, .. } => match (copy.dst, copy.src) {
            (Loc::Reg(dst), Source::Loc(Loc::Spill(slot))) => copies[dst as usize] = Some(slot),
            (Loc::Reg(dst), Source::Loc(Loc::Reg(src))) => copies[dst as usize] = copies[src as usize],
            (Loc::Reg(dst), Source::Const(_)) => copies[dst as usize] = None,
            (Loc::Spill(slot), src) => {
                for known in copies.iter_mut().filter(|known| **known == Some(slot)) {
                    *known = None;
                }
                if let Source::Loc(Loc::Reg(src)) = src {
                    copies[src as usize] = Some(slot);
                }
            }
        },
    }
}
