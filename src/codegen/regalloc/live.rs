//! When each virtual register holds a value that is still needed. In: the function being cut. Out: sorted ranges over
//! points: instruction `i` reads at point `2i` and writes at `2i + 1`; a block's head and end count as instructions.
//! One pass from the end suffices, because every jump goes forward.

use cranelift_entity::EntityRef;

use super::super::mach::{MInst, Role, VReg};
use super::{Home, WInst, Work};

/// Ranges of all virtual registers.
pub(super) struct Ranges {
    /// By virtual register: half-open, sorted, never touching.
    pub(super) of: Vec<Vec<(u32, u32)>>,
    /// How often each is read or written.
    pub(super) mentions: Vec<u32>,
    /// Whether each is read at all.
    pub(super) read: Vec<bool>,
    /// The points at which calls destroy R0 to R5, sorted, and what they return.
    pub(super) calls: Vec<(u32, Option<VReg>)>,
    /// For each block the number of its head.
    pub(super) heads: Vec<u32>,
}

impl Ranges {
    /// Whether the value is needed after a call that it existed before.
    pub(super) fn crosses_call(&self, vreg: VReg) -> bool {
        self.of[vreg.index()].iter().any(|(start, end)| {
            let first = self.calls.partition_point(|(point, _)| point < start);
            self.calls[first..]
                .iter()
                .take_while(|(point, _)| point < end)
                .any(|(point, ret)| !(*ret == Some(vreg) && point == start))
        })
    }
}

pub(super) fn ranges(work: &Work) -> Ranges {
    let count = work.stages.len();
    let mut heads = Vec::new();
    let mut next = 0;
    for block in &work.blocks {
        heads.push(next);
        next += block.insts.len() as u32 + 2;
    }
    let mut scan = Scan {
        of: vec![Vec::new(); count],
        ends: vec![0; count],
        mentions: vec![0; count],
        read: vec![false; count],
        calls: Vec::new(),
    };
    let mut live_in: Vec<Vec<VReg>> = vec![Vec::new(); work.blocks.len()];
    for (at, block) in work.blocks.iter().enumerate().rev() {
        let end = heads[at] + block.insts.len() as u32 + 1;
        let mut live: Vec<VReg> = Vec::new();
        for target in block.end.targets() {
            for vreg in &live_in[target] {
                if scan.ends[vreg.index()] == 0 {
                    scan.ends[vreg.index()] = 2 * end + 2;
                    live.push(*vreg);
                }
            }
        }
        let mut block_end = block.end.clone();
        block_end.for_each_mut(|vreg, _| scan.read(*vreg, 2 * end + 1, &mut live));
        for (offset, (inst, _)) in block.insts.iter().enumerate().rev() {
            let number = heads[at] + 1 + offset as u32;
            scan.inst(inst, number, &mut live);
        }
        for param in &block.params {
            scan.define(*param, 2 * heads[at]);
        }
        live.retain(|vreg| scan.ends[vreg.index()] != 0);
        live.sort_unstable();
        live.dedup();
        for vreg in &live {
            let end = std::mem::take(&mut scan.ends[vreg.index()]);
            scan.of[vreg.index()].push((2 * heads[at], end));
        }
        live_in[at] = live;
    }
    for list in &mut scan.of {
        list.reverse();
        list.dedup_by(|later, earlier| {
            let touches = earlier.1 == later.0;
            if touches {
                earlier.1 = later.1;
            }
            touches
        });
    }
    scan.calls.reverse();
    Ranges {
        of: scan.of,
        mentions: scan.mentions,
        read: scan.read,
        calls: scan.calls,
        heads,
    }
}

struct Scan {
    of: Vec<Vec<(u32, u32)>>,
    /// Where the range that is open in the current block ends; 0 if none is.
    ends: Vec<u32>,
    mentions: Vec<u32>,
    read: Vec<bool>,
    calls: Vec<(u32, Option<VReg>)>,
}

impl Scan {
    fn inst(&mut self, inst: &WInst, number: u32, live: &mut Vec<VReg>) {
        let point = 2 * number;
        match inst {
            WInst::Op(op) => {
                if let MInst::Call { ret, .. } = op {
                    self.calls.push((point + 1, *ret));
                }
                op.for_each(|vreg, role| {
                    if role == Role::Def {
                        self.define(vreg, point + 1);
                    }
                });
                op.for_each(|vreg, role| match role {
                    Role::Use | Role::Any => self.read(vreg, point + 1, live),
                    Role::LateUse => self.read(vreg, point + 2, live),
                    Role::Def => {}
                });
            }
            WInst::Reload { dst, from } => {
                self.define(*dst, point + 1);
                match from {
                    Home::Stack(from) => self.read(*from, point + 1, live),
                    Home::Const(_) => {}
                }
            }
            WInst::Save { src, to } => {
                self.define(*to, point + 1);
                self.read(*src, point + 1, live);
            }
        }
    }

    fn define(&mut self, vreg: VReg, start: u32) {
        let end = std::mem::take(&mut self.ends[vreg.index()]);
        // A result that nobody reads still occupies its register for the moment of being written.
        self.of[vreg.index()].push((start, end.max(start + 1)));
        self.mentions[vreg.index()] += 1;
    }

    fn read(&mut self, vreg: VReg, end: u32, live: &mut Vec<VReg>) {
        let open = &mut self.ends[vreg.index()];
        if *open == 0 {
            live.push(vreg);
        }
        *open = (*open).max(end);
        self.mentions[vreg.index()] += 1;
        self.read[vreg.index()] = true;
    }
}
