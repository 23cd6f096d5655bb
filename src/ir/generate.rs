//! Makes random functions that keep the IR's rules, for tests and fuzzing. In: a seed and a size. Out: always the same
//! function. They hold many values at once, across calls and branches, and jump with arguments. They never divide a
//! remainder on 32 bits by a value, nor compare 64 bits with a negative constant: the interpreter that tests compare with
//! gets these wrong.

use super::build::call;
use super::inst::{BinaryOp, Bits, CmpOp, Helper, Operand, Space, Type, Width};
use super::{Block, Builder, Func, MapData, MapKind, MapRef, RelocData, RelocKind, Slot, Value};
use crate::types::TypeId;

/// Bytes of context that generated functions read.
pub const CONTEXT: usize = 64;
/// Bytes of the value of the generated map.
pub const MAP_VALUE: u32 = 32;
/// Bytes of a generated record.
pub const RECORD: i32 = 64;
/// Bytes of each stack slot.
pub const SLOT: u32 = 16;

/// Small random numbers, the same on every machine (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts a sequence.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A function of about `size` statements.
pub fn function(seed: u64, size: usize) -> Func {
    generated(seed, size, true)
}

/// The same without atomic additions, which not every interpreter knows.
pub fn function_without_atomics(seed: u64, size: usize) -> Func {
    generated(seed, size, false)
}

fn generated(seed: u64, size: usize, atomics: bool) -> Func {
    let mut b = Builder::new("generated", "raw_tracepoint/generated");
    let events = b.map(MapData {
        name: "events".to_string(),
        kind: MapKind::Ringbuf,
        key_size: 0,
        value_size: 0,
        max_entries: 4096,
    });
    let values = b.map(MapData {
        name: "values".to_string(),
        kind: MapKind::Hash,
        key_size: 8,
        value_size: MAP_VALUE,
        max_entries: 16,
    });
    let slots = [b.slot(SLOT), b.slot(SLOT)];
    let entry = b.block("entry");
    let (exit, params) = b.block_with("exit", &[Type::Int]);
    b.switch_to(entry);
    let ctx = b.ctx();
    let mut generator = Generator {
        b,
        rng: Rng::new(seed),
        events,
        values,
        slots,
        ints: Vec::new(),
        exits: vec![exit],
        record: None,
        atomics,
        budget: size,
    };
    for slot in slots {
        let address = generator.b.slot_addr(slot);
        generator.b.store(Width::B8, address, 0, 0);
        generator.b.store(Width::B8, address, 8, 0);
    }
    for at in 0..3 + generator.rng.below(10) {
        let offset = (at * 8 % CONTEXT) as i16;
        let value = generator.b.load(Type::Int, Width::B8, ctx, offset);
        generator.ints.push(value);
    }
    generator.region(0, usize::MAX);
    // Everything that is left is looked at, so that it had to be kept until here.
    let left = generator.ints.clone();
    for value in left {
        generator.observe(value);
    }
    let last = generator.int();
    generator.b.jump(exit, &[last]);
    generator.b.switch_to(exit);
    generator.observe(params[0]);
    generator.b.ret(7);
    match generator.b.finish() {
        Ok(func) => func,
        Err(unfinished) => unreachable!("{unfinished}"),
    }
}

struct Generator {
    b: Builder,
    rng: Rng,
    events: MapRef,
    values: MapRef,
    slots: [Slot; 2],
    /// Numbers that can be used here.
    ints: Vec<Value>,
    /// Blocks with one parameter that can be jumped to from here.
    exits: Vec<Block>,
    /// A record that is held.
    record: Option<Value>,
    /// Whether there may be atomic additions.
    atomics: bool,
    budget: usize,
}

/// More values than this at once would not fit on the stack.
const LIVE_MAX: usize = 34;

impl Generator {
    fn region(&mut self, depth: usize, most: usize) {
        let mut done = 0;
        while self.budget > 0 && done < most {
            self.budget -= 1;
            done += 1;
            match self.rng.below(24) {
                0..=9 => self.arithmetic(),
                10..=11 => self.slot(),
                12..=13 => self.scalar_call(),
                14 => self.probe_read(),
                15 => self.relocated(),
                16 => self.record_access(),
                17..=18 if depth < 4 => self.diamond(depth),
                19 if depth < 4 => self.lookup(depth),
                20 if depth < 4 && self.record.is_none() => self.record_scope(depth),
                21..=22 => self.leave(),
                _ => {
                    let value = self.int();
                    self.observe(value);
                }
            }
            if self.ints.len() > LIVE_MAX {
                let at = self.rng.below(self.ints.len());
                self.ints.swap_remove(at);
            }
        }
    }

    fn int(&mut self) -> Value {
        if self.ints.is_empty() || self.rng.one_in(16) {
            let constant = self.constant();
            return self.b.iconst(constant);
        }
        let at = self.rng.below(self.ints.len());
        self.ints[at]
    }

    fn constant(&mut self) -> i64 {
        match self.rng.below(4) {
            0 => self.rng.below(16) as i64,
            1 => -(self.rng.below(300) as i64),
            2 => self.rng.bits() as i32 as i64,
            _ => (self.rng.bits() >> 1) as i64,
        }
    }

    fn operand_bits(&mut self) -> Bits {
        self.rng.pick(&[Bits::W32, Bits::W64])
    }

    fn arithmetic(&mut self) {
        let src = self.int();
        let bits = self.operand_bits();
        let value = match self.rng.below(10) {
            0 => self.b.neg(bits, src),
            1 => {
                let from = self.rng.pick(&[Width::B1, Width::B2, Width::B4]);
                let signed = self.rng.one_in(2);
                self.b.extend(from, signed, src)
            }
            2 => {
                let width = self.rng.pick(&[Width::B2, Width::B4, Width::B8]);
                self.b.bswap(width, src)
            }
            3 => {
                let ty = self.rng.pick(&[Space::Kernel, Space::User]);
                let address = self.b.as_ptr(ty, src);
                let address = self.b.add(address, 16);
                self.b.cast(Type::Int, address)
            }
            _ => {
                let op = self.rng.pick(&super::print::all::BINARY);
                let rhs = self.rhs(op, bits);
                self.b.binary(op, bits, src, rhs)
            }
        };
        self.ints.push(value);
    }

    fn rhs(&mut self, op: BinaryOp, bits: Bits) -> Operand {
        let by_value = self.rng.one_in(2);
        match op {
            BinaryOp::Shl | BinaryOp::Lshr | BinaryOp::Ashr if !by_value => {
                let width = match bits {
                    Bits::W32 => 32,
                    Bits::W64 => 64,
                };
                Operand::Imm(self.rng.below(width) as i32)
            }
            BinaryOp::Urem if bits == Bits::W32 => Operand::Imm(1 + self.rng.below(1000) as i32),
            BinaryOp::Udiv | BinaryOp::Urem if !by_value => Operand::Imm(1 + self.rng.below(1000) as i32),
            // The kernel refuses what can't be shifted so far, so values for it are cut.
            BinaryOp::Shl | BinaryOp::Lshr | BinaryOp::Ashr => {
                let value = self.int();
                let cut = self.b.binary(BinaryOp::And, Bits::W64, value, 31);
                Operand::Value(cut)
            }
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Udiv
            | BinaryOp::Urem
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor => {
                if by_value {
                    Operand::Value(self.int())
                } else {
                    Operand::Imm(self.rng.bits() as i32)
                }
            }
        }
    }

    fn slot(&mut self) {
        let slot = self.rng.pick(&self.slots.clone());
        let address = self.b.slot_addr(slot);
        let width = self.rng.pick(&super::print::all::WIDTHS);
        let most = (SLOT / width.bytes()) as usize;
        let offset = (self.rng.below(most) * width.bytes() as usize) as i16;
        if self.rng.one_in(2) {
            let value = self.int();
            self.b.store(width, address, offset, value);
        } else {
            let value = self.b.load(Type::Int, width, address, offset);
            self.ints.push(value);
        }
    }

    /// Hands a number to a helper, which the outside sees.
    fn observe(&mut self, value: Value) {
        let map = self.b.map_addr(self.events);
        self.b.call(Helper::RingbufQuery, &[map.into(), value.into()]);
    }

    fn scalar_call(&mut self) {
        let helper = self.rng.pick(&[
            Helper::KtimeGetNs,
            Helper::GetSmpProcessorId,
            Helper::GetCurrentPidTgid,
            Helper::GetCurrentUidGid,
        ]);
        let value = self.b.call(helper, &[]);
        self.ints.extend(value);
    }

    fn probe_read(&mut self) {
        let slot = self.slots[self.rng.below(2)];
        let src = self.int();
        let address = self.b.as_ptr(Space::Kernel, src);
        let dst = self.b.slot_addr(slot);
        let args = [dst.into(), Operand::Imm(SLOT as i32), address.into()];
        let code = self.b.call(Helper::ProbeReadKernel, &args);
        self.ints.extend(code);
        let read = self.b.load(Type::Int, Width::B8, dst, 8);
        self.ints.push(read);
    }

    fn relocated(&mut self) {
        let kind = self.rng.pick(&super::print::all::RELOCS);
        let kernel = match kind {
            RelocKind::FieldLshiftU64 | RelocKind::FieldRshiftU64 => self.rng.below(64),
            RelocKind::FieldByteOffset | RelocKind::FieldByteSize | RelocKind::TypeSize => {
                self.rng.below(5000)
            }
        };
        let reloc = self.b.reloc(RelocData {
            kind,
            root: TypeId { module: 0, id: 1 },
            access: vec![0, self.rng.below(9) as u32],
            text: "struct made_up.member".to_string(),
            kernel: kernel as u64,
        });
        let src = self.int();
        let value = match kind {
            RelocKind::FieldLshiftU64 => self.b.reloc_shift(BinaryOp::Shl, src, reloc),
            RelocKind::FieldRshiftU64 => {
                let op = self.rng.pick(&[BinaryOp::Lshr, BinaryOp::Ashr]);
                self.b.reloc_shift(op, src, reloc)
            }
            RelocKind::FieldByteOffset => {
                let base = self.b.as_ptr(Space::Kernel, src);
                let address = self.b.field_addr(base, reloc);
                self.b.cast(Type::Int, address)
            }
            RelocKind::FieldByteSize | RelocKind::TypeSize => self.b.reloc_const(reloc),
        };
        self.ints.push(value);
    }

    fn record_access(&mut self) {
        let Some(record) = self.record else {
            return;
        };
        let base = if self.rng.one_in(2) {
            self.b.add(record, 8)
        } else {
            record
        };
        let offset = 8 * self.rng.below(7) as i16;
        let value = self.int();
        self.b.store(Width::B8, base, offset, value);
        if self.atomics && self.rng.one_in(2) {
            let by = self.int();
            self.b.atomic_add(Width::B8, base, offset, by);
        }
        if self.rng.one_in(3) {
            let value = self.b.load(Type::Int, Width::B2, base, offset);
            self.ints.push(value);
        }
    }

    fn comparison(&mut self) -> (CmpOp, Bits, Value, Operand) {
        let op = self.rng.pick(&super::print::all::CMP);
        let bits = self.operand_bits();
        let lhs = self.int();
        let rhs = if self.rng.one_in(2) {
            Operand::Value(self.fitting())
        } else {
            Operand::Imm((self.rng.bits() >> 33) as i32)
        };
        (op, bits, lhs, rhs)
    }

    /// A number that no constant folding turns into a negative immediate.
    fn fitting(&mut self) -> Value {
        match self.ints.len() {
            0 => self.b.iconst(1 << 40),
            count => {
                let at = self.rng.below(count);
                self.ints[at]
            }
        }
    }

    fn diamond(&mut self, depth: usize) {
        let count = self.rng.below(4);
        let then = self.b.block("then");
        let otherwise = self.b.block("else");
        let (join, params) = self.b.block_with("join", &vec![Type::Int; count]);
        let (op, bits, lhs, rhs) = self.comparison();
        let outer = self.ints.clone();
        let direct: Vec<Value> = (0..count).map(|_| self.int()).collect();
        // Sometimes the edge goes right to the meeting point, with arguments.
        if self.rng.one_in(3) {
            self.b
                .branch_with(op, bits, lhs, rhs, call(then, &[]), call(join, &direct));
        } else {
            self.b.branch(op, bits, lhs, rhs, then, otherwise);
            self.b.switch_to(otherwise);
            self.arm(depth, &outer, join, count);
        }
        self.b.switch_to(then);
        self.arm(depth, &outer, join, count);
        self.b.switch_to(join);
        self.ints = outer;
        self.ints.extend(params);
    }

    fn arm(&mut self, depth: usize, outer: &[Value], join: Block, count: usize) {
        self.ints = outer.to_vec();
        let most = self.rng.below(8);
        self.region(depth + 1, most);
        let args: Vec<Value> = (0..count).map(|_| self.int()).collect();
        self.b.jump(join, &args);
    }

    fn lookup(&mut self, depth: usize) {
        let slot = self.slots[self.rng.below(2)];
        let key = self.b.slot_addr(slot);
        let map = self.b.map_addr(self.values);
        let Some(value) = self.b.call(Helper::MapLookupElem, &[map.into(), key.into()]) else {
            return;
        };
        let found = self.b.block("found");
        let join = self.b.block("after lookup");
        let outer = self.ints.clone();
        self.b.branch(CmpOp::Ne, Bits::W64, value, 0, found, join);
        self.b.switch_to(found);
        let value = self.b.as_ptr(Space::MapValue, value);
        let old = self.b.load(Type::Int, Width::B8, value, 8);
        self.ints.push(old);
        let most = self.rng.below(6);
        self.region(depth + 1, most);
        let new = self.int();
        self.b.store(Width::B4, value, 12, new);
        self.b.store(Width::B8, value, 16, -3);
        if self.atomics {
            let width = self.rng.pick(&[Width::B4, Width::B8]);
            let by = self.int();
            self.b.atomic_add(width, value, 24, by);
            let sum = self.b.load(Type::Int, width, value, 24);
            self.observe(sum);
        }
        self.b.jump(join, &[]);
        self.b.switch_to(join);
        self.ints = outer;
    }

    fn record_scope(&mut self, depth: usize) {
        let map = self.b.map_addr(self.events);
        let flags = self.rng.below(2) as i32;
        let args = [map.into(), Operand::Imm(RECORD), Operand::Imm(flags)];
        let Some(reserved) = self.b.call(Helper::RingbufReserve, &args) else {
            return;
        };
        let body = self.b.block("record");
        let (dropped, dropped_params) = self.b.block_with("drop", &[Type::Int]);
        let (join, params) = self.b.block_with("after record", &[Type::Int]);
        let outer = self.ints.clone();
        let lost = self.int();
        self.b.branch_with(
            CmpOp::Eq,
            Bits::W64,
            reserved,
            0,
            call(join, &[lost]),
            call(body, &[]),
        );
        self.b.switch_to(body);
        let record = self.b.as_ptr(Space::Record, reserved);
        for at in 0..RECORD / 8 {
            self.b.store(Width::B8, record, 8 * at as i16, at);
        }
        self.record = Some(record);
        self.exits.push(dropped);
        let most = 2 + self.rng.below(16);
        self.region(depth + 1, most);
        self.exits.pop();
        self.record = None;
        let result = self.int();
        self.b
            .call(Helper::RingbufSubmit, &[record.into(), Operand::Imm(0)]);
        self.b.jump(join, &[result]);
        self.b.switch_to(dropped);
        self.b
            .call(Helper::RingbufDiscard, &[record.into(), Operand::Imm(0)]);
        self.b.jump(join, &dropped_params);
        self.b.switch_to(join);
        self.ints = outer;
        self.ints.extend(params);
    }

    /// Perhaps goes to the nearest exit.
    fn leave(&mut self) {
        let Some(exit) = self.exits.last().copied() else {
            return;
        };
        let stay = self.b.block("stay");
        let (op, bits, lhs, rhs) = self.comparison();
        let value = self.int();
        self.b
            .branch_with(op, bits, lhs, rhs, call(exit, &[value]), call(stay, &[]));
        self.b.switch_to(stay);
    }
}
