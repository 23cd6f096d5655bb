//! Cuts up those who got no register. In: the losers of a round. Out: the same function with them on the stack, and
//! short-lived pieces that bring their values back where they are needed. Never cuts a single use.

use cranelift_entity::EntityRef;

use super::super::mach::{MInst, Role, Src, VReg};
use super::{Home, Stage, WInst, Work};

pub(super) fn split(work: &mut Work, losers: &[VReg]) {
    for vreg in losers {
        match work.stages[vreg.index()] {
            Stage::Whole(Some(value)) => {
                work.stages[vreg.index()] = Stage::Gone;
                cut(work, *vreg, Home::Const(value), Stage::Single);
            }
            Stage::Whole(None) => {
                // The name stays, for the place on the stack.
                work.stages[vreg.index()] = Stage::Stack;
                cut(work, *vreg, Home::Stack(*vreg), Stage::Piece);
            }
            Stage::Piece => {
                if let Some(home) = work.homes[vreg.index()] {
                    work.stages[vreg.index()] = Stage::Gone;
                    cut(work, *vreg, home, Stage::Single);
                }
            }
            Stage::Stack | Stage::Single | Stage::Gone => {}
        }
    }
}

/// Replaces `old` by new registers of the given stage that are loaded from its home: for `Piece` one for all uses
/// between two calls of a block, for `Single` one for each use.
fn cut(work: &mut Work, old: VReg, home: Home, stage: Stage) {
    for at in 0..work.blocks.len() {
        if !mentions(work, at, old) {
            continue;
        }
        let mut current: Option<VReg> = None;
        let insts = std::mem::take(&mut work.blocks[at].insts);
        let mut out = Vec::with_capacity(insts.len() + 4);
        for (mut inst, orig) in insts {
            match &mut inst {
                WInst::Op(MInst::Const { dst, .. }) if *dst == old => continue,
                WInst::Op(op) => {
                    let (reads, writes) = roles(op, old);
                    if reads {
                        let piece = match current {
                            Some(piece) => piece,
                            None => {
                                let piece = work.fresh(stage, home);
                                out.push((
                                    WInst::Reload {
                                        dst: piece,
                                        from: home,
                                    },
                                    orig,
                                ));
                                piece
                            }
                        };
                        current = (stage == Stage::Piece).then_some(piece);
                        rename(op, old, piece, false);
                    }
                    place_args(op, old, current, home);
                    if matches!(op, MInst::Call { .. }) {
                        current = None;
                    }
                    if writes {
                        let piece = work.fresh(stage, home);
                        rename(op, old, piece, true);
                        current = (stage == Stage::Piece).then_some(piece);
                        out.push((inst, orig));
                        // A piece that is written already has its save behind it, which is renamed below.
                        if let Home::Stack(to) = home
                            && to == old
                        {
                            out.push((WInst::Save { src: piece, to }, orig));
                        } else {
                            current = Some(piece);
                        }
                        continue;
                    }
                }
                WInst::Reload { dst, .. } if *dst == old => continue,
                WInst::Save { src, .. } if *src == old => {
                    if let Some(piece) = current {
                        *src = piece;
                    }
                    if stage == Stage::Single {
                        current = None;
                    }
                }
                WInst::Reload { .. } | WInst::Save { .. } => {}
            }
            out.push((inst, orig));
        }
        work.blocks[at].insts = out;
        let mut end = work.blocks[at].end.clone();
        let mut reload = None;
        end.for_each_mut(|vreg, role| {
            if *vreg != old {
                return;
            }
            match role {
                Role::Use | Role::LateUse => {
                    let piece = match current.or(reload) {
                        Some(piece) => piece,
                        None => *reload.insert(work.fresh(stage, home)),
                    };
                    *vreg = piece;
                }
                Role::Any | Role::Def => {
                    if let Some(piece) = current {
                        *vreg = piece;
                    }
                }
            }
        });
        if let super::MEnd::Jump { args, .. } = &mut end {
            for arg in args {
                settle(arg, old, home);
            }
        }
        let block = &mut work.blocks[at];
        block.end = end;
        if let Some(dst) = reload {
            let orig = block.insts.last().map_or(0, |(_, orig)| orig + 1);
            block.insts.push((WInst::Reload { dst, from: home }, orig));
        }
    }
}

fn mentions(work: &Work, at: usize, vreg: VReg) -> bool {
    let block = &work.blocks[at];
    let mut found = false;
    let mut end = block.end.clone();
    end.for_each_mut(|other, _| found |= *other == vreg);
    found
        || block.insts.iter().any(|(inst, _)| match inst {
            WInst::Op(op) => {
                let mut found = false;
                op.for_each(|other, _| found |= other == vreg);
                found
            }
            WInst::Reload { dst, .. } => *dst == vreg,
            WInst::Save { src, .. } => *src == vreg,
        })
}

/// Whether it is read in a register, and whether it is written.
fn roles(op: &MInst<VReg>, vreg: VReg) -> (bool, bool) {
    let (mut reads, mut writes) = (false, false);
    op.for_each(|other, role| {
        if other == vreg {
            match role {
                Role::Use | Role::LateUse => reads = true,
                Role::Def => writes = true,
                Role::Any => {}
            }
        }
    });
    (reads, writes)
}

fn rename(op: &mut MInst<VReg>, old: VReg, new: VReg, defs: bool) {
    op.for_each_mut(|vreg, role| {
        let hit = match role {
            Role::Use | Role::LateUse => !defs,
            Role::Def => defs,
            Role::Any => false,
        };
        if hit && *vreg == old {
            *vreg = new;
        }
    });
}

/// Arguments of calls come from the piece if there is one, else right from the home.
fn place_args(op: &mut MInst<VReg>, old: VReg, current: Option<VReg>, home: Home) {
    if let MInst::Call { args, .. } = op {
        for arg in args {
            if let (Src::Reg(vreg), Some(piece)) = (&mut *arg, current)
                && *vreg == old
            {
                *vreg = piece;
            }
            settle(arg, old, home);
        }
    }
}

fn settle(arg: &mut Src<VReg>, old: VReg, home: Home) {
    if *arg == Src::Reg(old) {
        *arg = match home {
            Home::Stack(place) => Src::Reg(place),
            Home::Const(value) => Src::Const(value),
        };
    }
}
