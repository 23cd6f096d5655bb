//! The register allocator under pressure, and its checker against allocations that were made wrong.

use crate::codegen::mach::{MEnd, MFunc, Reg, Role};
use crate::codegen::regalloc::{AInst, Allocated, Loc, Source, allocate, check};
use crate::codegen::select::select;
use crate::codegen::{CodegenError, program};
use crate::ir::{Bits, Builder, CmpOp, Helper, Operand, Reloc, Space, Type, Width, generate};

fn allocated(seed: u64, size: usize) -> (MFunc, Allocated) {
    let machine = select(&generate::function(seed, size), &|_| false);
    let allocated = allocate(&machine).expect("an allocation is always found");
    check::check(&machine, &allocated).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    (machine, allocated)
}

#[test]
fn pressure_is_survived() {
    let mut spills = 0;
    for seed in 0..100 {
        let (_, allocated) = allocated(seed, 20 + (seed as usize % 10) * 25);
        spills = spills.max(allocated.spills);
    }
    assert!(spills >= 8, "nothing was under pressure: {spills}");
}

/// Changes one instruction at a time in each of nine ways; the checker must notice most of them. Not all: now and then
/// another register happens to hold the same value, and reading that one is no mistake.
fn mutants(seed: u64, mutate: impl Fn(&mut AInst, usize) -> bool) {
    let (machine, allocated) = allocated(seed, 40);
    let mut places = 0;
    for block in 0..allocated.blocks.len() {
        for at in 0..allocated.blocks[block].insts.len() {
            let mut caught = 0;
            let mut changed = false;
            for way in 1..10 {
                let mut wrong = allocated.clone();
                changed = mutate(&mut wrong.blocks[block].insts[at], way);
                caught += usize::from(changed && check::check(&machine, &wrong).is_err());
            }
            places += usize::from(changed);
            let inst = &allocated.blocks[block].insts[at];
            assert!(
                !changed || caught >= 7,
                "seed {seed}: {caught} of 9 changes to {inst:?} were noticed"
            );
        }
    }
    assert!(places > 10, "nothing was changed");
}

fn other(reg: Reg, way: usize) -> Reg {
    Reg::ALL[(usize::from(reg.number()) + way) % 10]
}

#[test]
fn the_checker_notices_wrong_operands() {
    for seed in 0..2 {
        mutants(seed, |inst, way| match inst {
            AInst::Op { inst, .. } => {
                let mut changed = false;
                inst.for_each_mut(|reg, role| {
                    if !changed && role != Role::Def {
                        *reg = other(*reg, way);
                        changed = true;
                    }
                });
                changed
            }
            AInst::Move { .. } => false,
        });
    }
}

#[test]
fn the_checker_notices_wrong_and_missing_moves() {
    for seed in 0..2 {
        mutants(seed, |inst, way| match inst {
            AInst::Move { copy, .. } => {
                if let Source::Loc(Loc::Reg(reg)) = &mut copy.src {
                    *reg = other(*reg, way);
                } else {
                    copy.dst = Loc::Spill(1000);
                }
                true
            }
            AInst::Op { .. } => false,
        });
    }
}

#[test]
fn the_checker_notices_lost_operations_and_branches() {
    let (machine, allocated) = allocated(3, 60);
    let mut wrong = allocated.clone();
    let block = wrong
        .blocks
        .iter_mut()
        .find(|block| block.insts.iter().any(|inst| matches!(inst, AInst::Op { .. })));
    block
        .expect("there are operations")
        .insts
        .retain(|inst| matches!(inst, AInst::Move { .. }));
    assert!(check::check(&machine, &wrong).is_err());
    let mut wrong = allocated.clone();
    for block in &mut wrong.blocks {
        if let MEnd::Branch { then, otherwise, .. } = &mut block.end {
            std::mem::swap(then, otherwise);
        }
    }
    assert!(check::check(&machine, &wrong).is_err());
}

#[test]
fn a_call_destroys_what_is_in_its_registers() {
    let mut b = Builder::new("calls", "raw_tracepoint/x");
    let entry = b.block("");
    b.switch_to(entry);
    let kept: Vec<_> = (0..8).filter_map(|_| b.call(Helper::KtimeGetNs, &[])).collect();
    let slot = b.slot(64);
    let slot = b.slot_addr(slot);
    for (at, value) in kept.iter().enumerate() {
        b.store(Width::B8, slot, 8 * at as i16, *value);
    }
    b.ret(0);
    let func = b.finish().expect("it is finished");
    let machine = select(&func, &|_| false);
    let allocated = allocate(&machine).expect("an allocation is found");
    check::check(&machine, &allocated).expect("it is right");
    assert!(
        allocated.spills > 0 && allocated.spills <= 4,
        "four survive in registers: {}",
        allocated.spills
    );
}

#[test]
fn too_much_for_the_stack_is_an_error() {
    let mut b = Builder::new("big", "raw_tracepoint/x");
    let entry = b.block("");
    b.switch_to(entry);
    let slot = b.slot(500);
    let slot = b.slot_addr(slot);
    let kept: Vec<_> = (0..12).filter_map(|_| b.call(Helper::KtimeGetNs, &[])).collect();
    for value in kept {
        b.store(Width::B8, slot, 0, value);
    }
    b.ret(0);
    let func = b.finish().expect("it is finished");
    match program(&func, &|_: Reloc| 0) {
        Err(CodegenError::StackExhausted { slots: 504, .. }) => {}
        other => panic!("{other:?}"),
    }
}

fn text(build: impl FnOnce(&mut Builder)) -> Vec<String> {
    let mut b = Builder::new("small", "raw_tracepoint/x");
    let entry = b.block("");
    b.switch_to(entry);
    build(&mut b);
    let func = b.finish().expect("it is finished");
    crate::ir::verify(&func).expect("it keeps the rules");
    let program = program(&func, &|_: Reloc| 0).expect("it compiles");
    let listing = crate::codegen::asm::listing(&program, "", None);
    let lines = listing.lines().skip(1).filter(|line| !line.starts_with("block"));
    lines
        .map(|line| line.split_once(": ").map_or(line, |(_, text)| text).to_string())
        .collect()
}

#[test]
fn nothing_is_moved_that_need_not_be() {
    let got = text(|b| {
        let ctx = b.ctx();
        let pointer = b.load(Type::Int, Width::B8, ctx, 8);
        let address = b.as_ptr(Space::Kernel, pointer);
        let address = b.add(address, 16);
        let slot = b.slot(8);
        let slot = b.slot_addr(slot);
        let args = [slot.into(), Operand::Imm(8), address.into()];
        b.call(Helper::ProbeReadKernel, &args);
        b.ret(0);
    });
    assert_eq!(
        got,
        [
            "r3 = *(u64 *)(r1 +8)",
            "r3 += 16",
            "r1 = r10",
            "r1 += -8",
            "r2 = 8",
            "call bpf_probe_read_kernel#113",
            "r0 = 0",
            "exit",
        ]
    );
}

#[test]
fn branches_fall_through_and_ends_are_shared() {
    let got = text(|b| {
        let ctx = b.ctx();
        let value = b.load(Type::Int, Width::B4, ctx, 0);
        let (wanted, unwanted, done) = (b.block(""), b.block(""), b.block(""));
        b.branch(CmpOp::Ugt, Bits::W32, value, 255, wanted, unwanted);
        b.switch_to(wanted);
        b.call(Helper::KtimeGetNs, &[]);
        b.jump(done, &[]);
        b.switch_to(unwanted);
        b.ret(0);
        b.switch_to(done);
        b.ret(0);
    });
    assert_eq!(
        got,
        [
            "r1 = *(u32 *)(r1 +0)",
            "if w1 <= 0xff goto +1 <block3>",
            "call bpf_ktime_get_ns#5",
            "r0 = 0",
            "exit",
        ]
    );
}

#[test]
fn constants_are_immediates_and_unread_loads_vanish() {
    let got = text(|b| {
        let ctx = b.ctx();
        b.load(Type::Int, Width::B8, ctx, 16);
        let value = b.load(Type::Int, Width::B4, ctx, 0);
        let same = b.extend(Width::B4, false, value);
        let low = b.extend(Width::B2, true, same);
        let five = b.iconst(5);
        let sum = b.add(five, low);
        let slot = b.slot(16);
        let slot = b.slot_addr(slot);
        let further = b.add(slot, 8);
        b.store(Width::B8, further, 0, sum);
        b.store(Width::B4, slot, 0, five);
        let wide = b.iconst(0x1234_5678_9abc);
        b.store(Width::B8, slot, 0, wide);
        b.ret(1);
    });
    assert_eq!(
        got,
        [
            "r1 = *(u32 *)(r1 +0)",
            "r1 <<= 48",
            "r1 s>>= 48",
            "r1 += 5",
            "*(u64 *)(r10 -8) = r1",
            "*(u32 *)(r10 -16) = 5",
            "r1 = 0x123456789abc ll",
            "*(u64 *)(r10 -16) = r1",
            "r0 = 1",
            "exit",
        ]
    );
}
