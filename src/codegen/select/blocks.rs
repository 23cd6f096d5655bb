//! Which blocks and values matter, and in what order blocks are emitted. In: a function, or its blocks in machine form.
//! Never changes what an instruction does.

use cranelift_entity::{EntityRef, SecondaryMap};

use super::super::mach::{MBlock, MEnd, MInst, Role, VReg};
use crate::ir::{Block, Func, Origin, Terminator, Value};

/// Which blocks can be got to.
pub(super) fn reachable(func: &Func) -> SecondaryMap<Block, bool> {
    let mut reachable = SecondaryMap::new();
    if let Some(entry) = func.layout.first() {
        reachable[*entry] = true;
    }
    for block in &func.layout {
        if reachable[*block]
            && let Some(end) = &func.blocks[*block].end
        {
            for target in end.targets() {
                reachable[target.block] = true;
            }
        }
    }
    reachable
}

/// Empty blocks for which another one stands: the target of a block that only jumps on without values, and the last of
/// the blocks that only return the same.
pub(super) fn shared_ends(
    func: &Func,
    reachable: &SecondaryMap<Block, bool>,
) -> SecondaryMap<Block, Option<Block>> {
    let mut stands_for: SecondaryMap<Block, Option<Block>> = SecondaryMap::new();
    let mut returns: Vec<(i32, Block)> = Vec::new();
    for (position, block) in func.layout.iter().enumerate().rev() {
        let data = &func.blocks[*block];
        if !reachable[*block] || position == 0 || !data.insts.is_empty() || !data.params.is_empty() {
            continue;
        }
        match &data.end {
            Some(Terminator::Return(code)) => match returns.iter().find(|(known, _)| known == code) {
                Some((_, last)) => stands_for[*block] = Some(*last),
                None => returns.push((*code, *block)),
            },
            Some(Terminator::Jump(to)) if to.args.is_empty() => {
                stands_for[*block] = Some(stands_for[to.block].unwrap_or(to.block));
            }
            Some(Terminator::Jump(_) | Terminator::Branch { .. }) | None => {}
        }
    }
    stands_for
}

/// Values that an instruction reads which does something, directly or through other values.
pub(super) fn read_values(func: &Func) -> SecondaryMap<Value, bool> {
    let mut read: SecondaryMap<Value, bool> = SecondaryMap::new();
    // Every use is later in the layout than its definition, so one pass from the end sees it first.
    for block in func.layout.iter().rev() {
        let data = &func.blocks[*block];
        if let Some(end) = &data.end {
            if let Terminator::Branch { lhs, rhs, .. } = end {
                read[*lhs] = true;
                rhs.value().into_iter().for_each(|value| read[value] = true);
            }
            for target in end.targets() {
                for (arg, param) in target.args.iter().zip(&func.blocks[target.block].params) {
                    if read[*param] {
                        read[*arg] = true;
                    }
                }
            }
        }
        for inst in data.insts.iter().rev() {
            let result_read = func.results[*inst].is_some_and(|value| read[value]);
            if result_read || !func.insts[*inst].is_pure() {
                func.insts[*inst].for_each_use(|value| read[value] = true);
            }
        }
    }
    read
}

/// Drops operations whose result nobody reads any more because it was folded into other operations.
pub(super) fn drop_unread(blocks: &mut [MBlock], vregs: u32) {
    let mut read = vec![false; vregs as usize];
    for block in blocks.iter_mut().rev() {
        block.end.for_each_mut(|vreg, _| read[vreg.index()] = true);
        let mut kept: Vec<(MInst<VReg>, Origin)> = Vec::new();
        for (inst, origin) in std::mem::take(&mut block.insts).into_iter().rev() {
            let mut needed = matches!(
                inst,
                MInst::Store { .. } | MInst::AtomicAdd { .. } | MInst::Call { .. }
            );
            inst.for_each(|vreg, role| needed |= role == Role::Def && read[vreg.index()]);
            if needed {
                inst.for_each(|vreg, role| read[vreg.index()] |= role != Role::Def);
                kept.push((inst, origin));
            }
        }
        kept.reverse();
        block.insts = kept;
    }
    // A call's unread result needs no register.
    for (inst, _) in blocks.iter_mut().flat_map(|block| &mut block.insts) {
        if let MInst::Call { ret, .. } = inst
            && ret.is_some_and(|ret| !read[ret.index()])
        {
            *ret = None;
        }
    }
}

/// Puts edge blocks in their places and numbers all targets anew. The moves of a "then" edge go right before its
/// target unless something falls through into that; else, like those of the other edge, right after the branch.
pub(super) fn place(blocks: Vec<MBlock>, edges: Vec<(MBlock, bool)>) -> Vec<MBlock> {
    let count = blocks.len();
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (at, block) in blocks.iter().enumerate() {
        let MEnd::Branch { then, otherwise, .. } = block.end else {
            continue;
        };
        if otherwise >= count {
            after[at].push(otherwise);
        }
        if then >= count {
            let MEnd::Jump { to, .. } = edges[then - count].0.end else {
                continue;
            };
            let fallen_into = blocks[to - 1].end.targets().contains(&to);
            if fallen_into || !before[to].is_empty() {
                after[at].push(then);
            } else {
                before[to].push(then);
            }
        }
    }
    let mut order: Vec<usize> = Vec::new();
    for at in 0..count {
        order.extend(&before[at]);
        order.push(at);
        order.extend(&after[at]);
    }
    let mut position = vec![0; count + edges.len()];
    for (to, from) in order.iter().enumerate() {
        position[*from] = to;
    }
    let mut all: Vec<Option<MBlock>> = blocks
        .into_iter()
        .chain(edges.into_iter().map(|(block, _)| block))
        .map(Some)
        .collect();
    order
        .iter()
        .filter_map(|from| all[*from].take())
        .map(|mut block| {
            match &mut block.end {
                MEnd::Jump { to, .. } => *to = position[*to],
                MEnd::Branch { then, otherwise, .. } => {
                    *then = position[*then];
                    *otherwise = position[*otherwise];
                }
                MEnd::Return(_) => {}
            }
            block
        })
        .collect()
}
