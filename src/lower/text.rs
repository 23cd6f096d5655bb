//! Strings: reading one into memory of ours, and comparing one with a literal, eight bytes at a time. In: typed text. Out:
//! bytes and a length, or a branch. Never loops: a literal's length decides how much is read.

use super::expr::width;
use super::program::Lower;
use crate::ir::build::call;
use crate::ir::{Bits, Block, CmpOp, Helper, Operand, Slot, Space, Type, Value, Width};
use crate::span::Span;
use crate::typed::{Base, Memory, Text};

impl Lower<'_> {
    /// A NUL-terminated string into memory of ours. Gives the bytes written, the NUL counted, or a negative error.
    pub(super) fn read_string(&mut self, to: Value, capacity: u32, pointer: Value, memory: Memory) -> Value {
        let size = Operand::Imm(capacity as i32);
        let memory = match self.b.type_of(pointer) {
            Type::Ptr(Space::User) => Memory::User,
            _ => memory,
        };
        match memory {
            Memory::Kernel | Memory::User => {
                let (helper, space) = match memory {
                    Memory::User => (Helper::ProbeReadUserStr, Space::User),
                    Memory::Kernel | Memory::Unknown => (Helper::ProbeReadKernelStr, Space::Kernel),
                };
                let from = self.b.as_ptr(space, pointer);
                self.call(helper, &[to.into(), size, from.into()])
            }
            Memory::Unknown => {
                // The two halves of the address space tell kernel from user memory on x86-64 and aarch64.
                let kernel = self.b.block("a kernel string");
                let user = self.b.block("a user string");
                let (join, params) = self.b.block_with("", &[Type::Int]);
                let number = self.as_int(pointer);
                self.b.branch(CmpOp::Slt, Bits::W64, number, 0, kernel, user);
                for (block, helper, space) in [
                    (kernel, Helper::ProbeReadKernelStr, Space::Kernel),
                    (user, Helper::ProbeReadUserStr, Space::User),
                ] {
                    self.b.switch_to(block);
                    let from = self.b.as_ptr(space, number);
                    let length = self.call(helper, &[to.into(), size, from.into()]);
                    self.b.jump(join, &[length]);
                }
                self.b.switch_to(join);
                params[0]
            }
        }
    }

    /// Branches on whether a string equals a literal or matches a pattern.
    pub(super) fn compare_text(
        &mut self,
        text: &Text,
        literal: &[u8],
        glob: bool,
        span: Span,
        yes: Block,
        no: Block,
    ) {
        // `eth*` compares the first bytes only; sema lets no other pattern through.
        let (bytes, whole) = match literal.strip_suffix(b"*") {
            Some(prefix) if glob => (prefix, false),
            Some(_) | None => (literal, true),
        };
        // One byte more than the text tells whether the string goes on; a read of a string ends with a NUL of its own.
        let needed = bytes.len() as u32 + 1;
        let size = (needed + 1).next_multiple_of(8);
        let slot = self.b.slot(size);
        self.at(span, "the string");
        let to = self.b.slot_addr(slot);
        for word in 0..size / 8 {
            self.b.store(Width::B8, to, word as i16 * 8, 0);
        }
        match text {
            Text::Comm => {
                let slot = self.b.slot(16.max(size));
                return self.compare_comm(slot, bytes, whole, yes, no);
            }
            Text::Pointer { pointer, memory } => {
                let value = self.value(pointer);
                self.at(span, "the string");
                let to = self.b.slot_addr(slot);
                let length = self.read_string(to, needed + 1, value, *memory);
                let (good, bad) = self.fault_blocks(pointer.span, value);
                self.b
                    .branch_with(CmpOp::Slt, Bits::W64, length, 0, bad, call(good, &[]));
                self.b.switch_to(good);
            }
            Text::Array { place, len } => {
                let read = needed.min(*len);
                match &place.base {
                    Base::Pointer { pointer, memory } => {
                        let base = self.value(pointer);
                        let address = self.place_address(place, base, *memory);
                        self.at(span, "the string");
                        let to = self.b.slot_addr(slot);
                        let status = self.probe(to, read, address, *memory);
                        let (good, bad) = self.fault_blocks(pointer.span, base);
                        self.b
                            .branch_with(CmpOp::Ne, Bits::W64, status, 0, bad, call(good, &[]));
                        self.b.switch_to(good);
                    }
                    Base::Arg(_) | Base::Return => {
                        let from = self.by_value(&place.base);
                        let from = self.b.slot_addr(from);
                        let to = self.b.slot_addr(slot);
                        for byte in 0..read as i16 {
                            let value = self
                                .b
                                .load(Type::Int, Width::B1, from, place.offset as i16 + byte);
                            self.b.store(Width::B1, to, byte, value);
                        }
                    }
                }
            }
        }
        self.compare_bytes(slot, bytes, whole, yes, no);
    }

    fn compare_comm(&mut self, slot: Slot, bytes: &[u8], whole: bool, yes: Block, no: Block) {
        if bytes.len() > 15 {
            // TASK_COMM_LEN is 16 with the NUL, so no task is called so.
            self.b.jump(no, &[]);
            return;
        }
        let to = self.b.slot_addr(slot);
        self.call(Helper::GetCurrentComm, &[to.into(), Operand::Imm(16)]);
        self.compare_bytes(slot, bytes, whole, yes, no);
    }

    /// Branches on whether the slot holds these bytes, and, if `whole`, a NUL behind them.
    fn compare_bytes(&mut self, slot: Slot, bytes: &[u8], whole: bool, yes: Block, no: Block) {
        let mut wanted = bytes.to_vec();
        if whole {
            wanted.push(0);
        }
        let mut at = 0;
        while at < wanted.len() {
            let left = wanted.len() - at;
            let step = [8usize, 4, 2, 1]
                .into_iter()
                .find(|step| *step <= left)
                .unwrap_or(1);
            let mut word = [0u8; 8];
            word[..step].copy_from_slice(&wanted[at..at + step]);
            let constant = i64::from_le_bytes(word);
            let from = self.b.slot_addr(slot);
            let value = self.b.load(Type::Int, width(step as u32), from, at as i16);
            let go_on = self.b.block("");
            let rhs = match i32::try_from(constant) {
                Ok(imm) => Operand::Imm(imm),
                Err(_) => self.b.iconst(constant).into(),
            };
            self.b.branch(CmpOp::Ne, Bits::W64, value, rhs, no, go_on);
            self.b.switch_to(go_on);
            at += step;
        }
        self.b.jump(yes, &[]);
    }
}
