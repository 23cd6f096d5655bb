//! Chooses registers. In: the function being cut and its ranges. Out: a register for each range, or the losers. Goes by
//! start of range, prefers registers that save a move, and evicts whoever weighs less when none is free. Never gives two
//! overlapping ranges one register.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use cranelift_entity::EntityRef;

use super::super::mach::{MEnd, MInst, Reg, Rhs, Src, VReg, commutes};
use super::live::Ranges;
use super::{Stage, WInst, Work};

/// Who got what.
pub(super) struct Assignment {
    /// By virtual register; `None` for those on the stack.
    pub(super) regs: Vec<Option<Reg>>,
    /// Who got nothing.
    pub(super) failed: Vec<VReg>,
    /// Who is in each register when: start to (end, virtual register).
    occupied: [BTreeMap<u32, (u32, VReg)>; 10],
}

impl Assignment {
    /// Whether a register holds something both before and after a point.
    pub(super) fn holds_through(&self, reg: Reg, point: u32) -> bool {
        self.occupied[reg as usize]
            .range(..point)
            .next_back()
            .is_some_and(|(_, (end, _))| *end > point)
    }
}

pub(super) fn assign(work: &Work, ranges: &Ranges) -> Assignment {
    let hints = Hints::gather(work);
    let mut assigner = Assigner {
        work,
        ranges,
        hints,
        out: Assignment {
            regs: vec![None; work.stages.len()],
            failed: Vec::new(),
            occupied: Default::default(),
        },
        queue: BinaryHeap::new(),
    };
    for (index, ranges) in ranges.of.iter().enumerate() {
        let in_register = match work.stages[index] {
            Stage::Whole(_) | Stage::Piece | Stage::Single => true,
            Stage::Stack | Stage::Gone => false,
        };
        if let (true, Some((start, _))) = (in_register, ranges.first()) {
            assigner.queue.push(Reverse((*start, VReg::new(index))));
        }
    }
    while let Some(Reverse((_, vreg))) = assigner.queue.pop() {
        assigner.place(vreg);
    }
    assigner.out.failed.sort_unstable();
    assigner.out
}

struct Assigner<'a> {
    work: &'a Work,
    ranges: &'a Ranges,
    hints: Hints,
    out: Assignment,
    queue: BinaryHeap<Reverse<(u32, VReg)>>,
}

impl Assigner<'_> {
    fn place(&mut self, vreg: VReg) {
        let crosses = self.ranges.crosses_call(vreg);
        let scores = self.hints.scores(vreg, &self.out.regs);
        // Ties go to the registers that calls destroy: the others are for values that need them.
        let mut candidates: Vec<Reg> = Reg::ALL
            .into_iter()
            .filter(|reg| !crosses || reg.survives_calls())
            .collect();
        candidates.sort_by_key(|reg| {
            (
                Reverse(scores[*reg as usize]),
                *reg == Reg::R0 || reg.survives_calls(),
                *reg,
            )
        });
        let mut cheapest: Option<(u64, Reg, Vec<VReg>)> = None;
        for reg in candidates {
            let rivals = self.rivals(vreg, reg);
            if rivals.is_empty() {
                self.take(vreg, reg);
                return;
            }
            let weight = rivals.iter().map(|rival| self.weight(*rival)).max().unwrap_or(0);
            if cheapest.as_ref().is_none_or(|(least, ..)| weight < *least) {
                cheapest = Some((weight, reg, rivals));
            }
        }
        if let Some((weight, reg, rivals)) = cheapest
            && weight < self.weight(vreg)
        {
            for rival in rivals {
                self.evict(rival, reg);
            }
            self.take(vreg, reg);
        } else {
            self.out.failed.push(vreg);
        }
    }

    fn rivals(&self, vreg: VReg, reg: Reg) -> Vec<VReg> {
        let mut rivals = Vec::new();
        for (start, end) in &self.ranges.of[vreg.index()] {
            let before = self.out.occupied[reg as usize].range(..end);
            rivals.extend(
                before
                    .rev()
                    .take_while(|(_, (until, _))| until > start)
                    .map(|(_, (_, who))| *who),
            );
        }
        rivals.sort_unstable();
        rivals.dedup();
        rivals
    }

    fn take(&mut self, vreg: VReg, reg: Reg) {
        self.out.regs[vreg.index()] = Some(reg);
        for (start, end) in &self.ranges.of[vreg.index()] {
            self.out.occupied[reg as usize].insert(*start, (*end, vreg));
        }
    }

    fn evict(&mut self, vreg: VReg, reg: Reg) {
        self.out.regs[vreg.index()] = None;
        for (start, _) in &self.ranges.of[vreg.index()] {
            self.out.occupied[reg as usize].remove(start);
        }
        let start = self.ranges.of[vreg.index()]
            .first()
            .map_or(0, |(start, _)| *start);
        self.queue.push(Reverse((start, vreg)));
    }

    /// How much it would cost to do without a register: mentions for each unit of length. Constants cost half.
    fn weight(&self, vreg: VReg) -> u64 {
        let scale = match self.work.stages[vreg.index()] {
            Stage::Single => return u64::MAX,
            Stage::Whole(Some(_)) => 1 << 15,
            Stage::Whole(None) | Stage::Piece | Stage::Stack | Stage::Gone => 1 << 16,
        };
        let length: u32 = self.ranges.of[vreg.index()]
            .iter()
            .map(|(start, end)| end - start)
            .sum();
        u64::from(self.ranges.mentions[vreg.index()]) * scale / u64::from(length + 8)
    }
}

/// Which registers would save a move.
struct Hints {
    /// Registers that the machine prescribes.
    fixed: Vec<Vec<Reg>>,
    /// Virtual registers that had better be in the same one.
    partners: Vec<Vec<VReg>>,
}

impl Hints {
    fn gather(work: &Work) -> Hints {
        let mut hints = Hints {
            fixed: vec![Vec::new(); work.stages.len()],
            partners: vec![Vec::new(); work.stages.len()],
        };
        for block in &work.blocks {
            for (inst, _) in &block.insts {
                if let WInst::Op(op) = inst {
                    hints.op(op);
                }
            }
            if let MEnd::Jump { to, args } = &block.end {
                for (arg, param) in args.iter().zip(&work.blocks[*to].params) {
                    if let Src::Reg(arg) = arg {
                        hints.pair(*arg, *param);
                    }
                }
            }
        }
        hints
    }

    fn op(&mut self, op: &MInst<VReg>) {
        match op {
            MInst::Entry { dst } => self.fixed[dst.index()].push(Reg::R1),
            MInst::Call { args, ret, .. } => {
                for (arg, reg) in args.iter().zip(Reg::ARGS) {
                    if let Src::Reg(arg) = arg {
                        self.fixed[arg.index()].push(reg);
                    }
                }
                if let Some(ret) = ret {
                    self.fixed[ret.index()].push(Reg::R0);
                }
            }
            MInst::Alu {
                op, dst, lhs, rhs, ..
            } => {
                self.pair(*lhs, *dst);
                if let (true, Rhs::Reg(rhs)) = (commutes(*op), rhs) {
                    self.pair(*rhs, *dst);
                }
            }
            MInst::AluReloc { dst, lhs: src, .. }
            | MInst::Neg { dst, src, .. }
            | MInst::Bswap { dst, src, .. }
            | MInst::Sext { dst, src, .. } => self.pair(*src, *dst),
            // A 32-bit move is needed between the same registers too; a load writes any register as cheaply.
            MInst::Zext { .. }
            | MInst::Const { .. }
            | MInst::Load { .. }
            | MInst::Store { .. }
            | MInst::AtomicAdd { .. } => {}
        }
    }

    fn pair(&mut self, a: VReg, b: VReg) {
        self.partners[a.index()].push(b);
        self.partners[b.index()].push(a);
    }

    fn scores(&self, vreg: VReg, regs: &[Option<Reg>]) -> [u32; 10] {
        let mut scores = [0; 10];
        for reg in &self.fixed[vreg.index()] {
            scores[*reg as usize] += 4;
        }
        for partner in &self.partners[vreg.index()] {
            match regs[partner.index()] {
                Some(reg) => scores[reg as usize] += 4,
                None => {
                    for reg in &self.fixed[partner.index()] {
                        scores[*reg as usize] += 2;
                    }
                }
            }
        }
        scores
    }
}
