//! Generated functions run in an interpreter of BPF and in the IR's own; both must see the same world.

use std::cell::RefCell;

use crate::codegen::insn::CLASS_LDX;
use crate::codegen::{Program, asm, program};
use crate::ir::interp::{self, Memory, World};
use crate::ir::{Func, Helper, Reloc, generate, print, verify};

/// How helpers behave, and what was asked of them.
#[derive(Default)]
struct Model {
    trace: Vec<(i32, u64)>,
    /// Where the map's value and the record are for this side.
    map_value: u64,
    record: u64,
}

fn mix(value: u64) -> u64 {
    generate::Rng::new(value).bits()
}

fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(17, |sum, byte| mix(sum ^ u64::from(*byte)))
}

impl Model {
    fn act(&mut self, number: i32, args: [u64; 5], memory: &mut dyn Memory) -> u64 {
        let Some(helper) = Helper::ALL.into_iter().find(|helper| helper.number() == number) else {
            panic!("helper {number} is not one of ours");
        };
        let mut seen = 0;
        let result = match helper {
            Helper::MapLookupElem => {
                let mut key = [0; 8];
                memory.read(args[1], &mut key);
                seen = digest(&key) ^ args[0];
                if key[0] & 1 == 1 { 0 } else { self.map_value }
            }
            Helper::RingbufQuery => {
                seen = args[1] ^ args[0];
                mix(args[1])
            }
            Helper::RingbufReserve => {
                seen = args[1] ^ args[0];
                if args[2] == 1 { 0 } else { self.record }
            }
            Helper::RingbufSubmit | Helper::RingbufDiscard => {
                assert_eq!(args[0], self.record, "the record that was reserved");
                let mut bytes = [0; generate::RECORD as usize];
                memory.read(args[0], &mut bytes);
                seen = digest(&bytes);
                0
            }
            Helper::ProbeReadKernel => {
                seen = args[2];
                let size = (args[1] as usize).min(generate::SLOT as usize);
                let bytes: Vec<u8> = (0..size as u64)
                    .map(|at| mix(args[2].wrapping_add(at)) as u8)
                    .collect();
                memory.write(args[0], &bytes);
                if mix(args[2]).is_multiple_of(4) {
                    -14i64 as u64
                } else {
                    0
                }
            }
            _ => mix(self.trace.len() as u64 ^ number as u64),
        };
        self.trace.push((number, seen));
        result
    }
}

impl World for Model {
    fn call(&mut self, helper: Helper, args: [u64; 5], memory: &mut dyn Memory) -> u64 {
        self.act(helper.number(), args, memory)
    }
}

/// The test's own memory by real addresses, which is what rbpf's programs use.
struct Raw;

impl Memory for Raw {
    fn read(&self, address: u64, bytes: &mut [u8]) {
        // SAFETY: programs come from verified functions, so the address is in rbpf's stack or in one of the test's
        // buffers, and the kernel's rules about sizes were checked.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), bytes.len()) }
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) }
    }
}

thread_local! {
    /// rbpf's helpers are plain functions, so their world is here.
    static WORLD: RefCell<Model> = RefCell::default();
}

fn helper<const NUMBER: i32>(a: u64, b: u64, c: u64, d: u64, e: u64) -> u64 {
    WORLD.with_borrow_mut(|world| world.act(NUMBER, [a, b, c, d, e], &mut Raw))
}

/// What a loader would do: relocated values and numbers for maps.
pub(super) fn relocate(program: &Program, func: &Func) -> Vec<u8> {
    let mut insns = program.insns.clone();
    for reloc in &program.relocs {
        let insn = &mut insns[reloc.insn];
        if insn.code & 7 == CLASS_LDX {
            insn.off = reloc.kernel as i16;
        } else {
            insn.imm = reloc.kernel as i32;
        }
    }
    for (slot, name) in &program.map_refs {
        let number = func
            .maps
            .values()
            .position(|map| map.name == *name)
            .expect("the map is the function's");
        insns[*slot].imm = number as i32 + 1;
    }
    insns.iter().flat_map(|insn| insn.to_bytes()).collect()
}

fn run_both(seed: u64, size: usize) -> usize {
    let func = generate::function_without_atomics(seed, size);
    if let Err(errors) = verify(&func) {
        panic!("seed {seed}: {errors:?}\n{}", print(&func));
    }
    let compiled = match program(&func, &|_: Reloc| 5) {
        Ok(compiled) => compiled,
        Err(error) => panic!("seed {seed}: {error}\n{}", print(&func)),
    };
    let bytes = relocate(&compiled, &func);
    compiled
        .check_relocated(&bytes)
        .expect("relocation puts in what it should");

    let mut rng = generate::Rng::new(!seed);
    for _ in 0..4 {
        let mut context: Vec<u8> = (0..generate::CONTEXT).map(|_| rng.bits() as u8).collect();
        for word in context.chunks_mut(8) {
            match rng.below(4) {
                0 => word[1..].fill(0),
                1 => word[2..].fill(0xff),
                _ => {}
            }
        }
        let mut expected = Model {
            map_value: interp::MAP_VALUE + (2 << 16),
            record: interp::RECORD,
            ..Model::default()
        };
        let code = interp::run(&func, &context, &mut expected).expect("verified functions can be run");

        let mut map_value = vec![0u8; generate::MAP_VALUE as usize];
        let mut record = vec![0u8; generate::RECORD as usize];
        WORLD.set(Model {
            map_value: map_value.as_mut_ptr() as u64,
            record: record.as_mut_ptr() as u64,
            trace: Vec::new(),
        });
        let mut vm = rbpf::EbpfVmRaw::new(Some(&bytes)).expect("rbpf takes the program");
        for buffer in [&map_value, &record] {
            let start = buffer.as_ptr() as u64;
            vm.register_allowed_memory(start..start + buffer.len() as u64);
        }
        let helpers: [(Helper, rbpf::Helper); 10] = [
            (Helper::MapLookupElem, helper::<1>),
            (Helper::KtimeGetNs, helper::<5>),
            (Helper::GetSmpProcessorId, helper::<8>),
            (Helper::GetCurrentPidTgid, helper::<14>),
            (Helper::GetCurrentUidGid, helper::<15>),
            (Helper::ProbeReadKernel, helper::<113>),
            (Helper::RingbufReserve, helper::<131>),
            (Helper::RingbufSubmit, helper::<132>),
            (Helper::RingbufDiscard, helper::<133>),
            (Helper::RingbufQuery, helper::<134>),
        ];
        for (helper, function) in helpers {
            vm.register_helper(helper.number() as u32, function)
                .expect("rbpf takes the helper");
        }
        let returned = vm.execute_program(&mut context);
        let seen = WORLD.take();
        let show = || {
            format!(
                "seed {seed}\n{}\n{}",
                print(&func),
                asm::listing(&compiled, "", Some(&bytes))
            )
        };
        match returned {
            Ok(returned) => assert_eq!(returned as i32, code, "{}", show()),
            Err(error) => panic!("{error}\n{}", show()),
        }
        assert_eq!(seen.trace, expected.trace, "{}", show());
    }
    compiled.insns.len()
}

#[test]
fn small_functions_run_the_same() {
    for seed in 0..400 {
        run_both(seed, 12);
    }
}

#[test]
fn large_functions_run_the_same() {
    let longest = (1000..1025).map(|seed| run_both(seed, 400)).max();
    assert!(longest > Some(500), "the functions are not large: {longest:?}");
}
