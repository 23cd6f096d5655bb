//! Strings: reading one into memory of ours, and comparing one with a text, eight bytes at a time. In: typed text. Out:
//! bytes and a length, or a branch. Never loops, and never needs more of the stack than one piece of a string, however long it
//! is.

use super::expr::width;
use super::program::Lower;
use crate::ir::build::call;
use crate::ir::{Bits, Block, CmpOp, Helper, Operand, Slot, Space, Type, Value, Width};
use crate::span::Span;
use crate::typed::{Base, Memory, Place, StrTest, Text};

/// How much of a string is read at once, in bytes.
pub(super) const PIECE: u32 = 64;

/// What is to be read from an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A string up to its NUL.
    String,
    /// All bytes.
    Bytes,
}

/// A string whose pointer has been followed.
pub(super) enum Opened {
    Comm,
    /// It ends at its NUL.
    Pointer {
        value: Value,
        memory: Memory,
        step: Span,
    },
    /// An array in memory.
    Array {
        address: Value,
        memory: Memory,
        /// The pointer that leads there, and its text.
        base: Value,
        step: Span,
    },
    /// An array in a struct that was passed by value.
    Own {
        base: Value,
        offset: i16,
    },
}

impl Lower<'_> {
    /// Memory at an address that kernel or user may own, into memory of ours. Gives what the helper does: of a string the bytes
    /// written, its NUL counted, of bytes 0; or a negative error.
    pub(super) fn read(
        &mut self,
        what: Read,
        to: Value,
        size: Operand,
        pointer: Value,
        memory: Memory,
    ) -> Value {
        let memory = if let Type::Ptr(Space::User) = self.b.type_of(pointer) {
            Memory::User
        } else {
            memory
        };
        let helper = |space: Space| match (what, space) {
            (Read::String, Space::User) => Helper::ProbeReadUserStr,
            (Read::String, _) => Helper::ProbeReadKernelStr,
            (Read::Bytes, Space::User) => Helper::ProbeReadUser,
            (Read::Bytes, _) => Helper::ProbeReadKernel,
        };
        match memory {
            Memory::Kernel | Memory::User => {
                let space = self.space_of(memory);
                let from = self.b.as_ptr(space, pointer);
                self.call(helper(space), &[to.into(), size, from.into()])
            }
            Memory::Unknown => {
                // The two halves of the address space tell kernel from user memory on x86-64 and aarch64.
                let kernel = self.b.block("kernel memory");
                let user = self.b.block("user memory");
                let (join, params) = self.b.block_with("", &[Type::Int]);
                let number = self.as_int(pointer);
                self.b.branch(CmpOp::Slt, Bits::W64, number, 0, kernel, user);
                for (block, space) in [(kernel, Space::Kernel), (user, Space::User)] {
                    self.b.switch_to(block);
                    let from = self.b.as_ptr(space, number);
                    let status = self.call(helper(space), &[to.into(), size, from.into()]);
                    self.b.jump(join, &[status]);
                }
                self.b.switch_to(join);
                params[0]
            }
        }
    }

    /// Branches on whether a string passes a test.
    pub(super) fn compare_text(&mut self, text: &Text, test: &StrTest, span: Span, yes: Block, no: Block) {
        let opened = self.open_text(text, span);
        let room = room(text);
        match test {
            StrTest::Is(literal) => self.text_is(&opened, room, literal, span, yes, no),
            StrTest::Matches(pattern) => self.text_matches(&opened, room, pattern, span, yes, no),
        }
    }

    fn open_text(&mut self, text: &Text, span: Span) -> Opened {
        let opened = match text {
            Text::Comm => Opened::Comm,
            Text::Pointer { pointer, memory, .. } => Opened::Pointer {
                value: self.value(pointer),
                memory: *memory,
                step: pointer.span,
            },
            Text::Array { place, .. } => match &place.base {
                Base::Pointer { pointer, memory } => {
                    let base = self.value(pointer);
                    Opened::Array {
                        address: self.place_address(place, base, *memory),
                        memory: *memory,
                        base,
                        step: pointer.span,
                    }
                }
                Base::Arg(_) | Base::Return => {
                    let slot = self.by_value(&place.base);
                    Opened::Own {
                        base: self.b.slot_addr(slot),
                        offset: place.offset as i16,
                    }
                }
            },
        };
        self.at(span, "the string");
        opened
    }

    /// Reads so many bytes of a string, from that byte on, to the start of the piece. What is behind a NUL is undefined.
    pub(super) fn read_piece(&mut self, opened: &Opened, at: u32, size: u32) -> Slot {
        let slot = self.piece();
        let to = self.b.slot_addr(slot);
        match opened {
            Opened::Comm => {
                self.call(Helper::GetCurrentComm, &[to.into(), Operand::Imm(16)]);
            }
            Opened::Pointer { value, memory, step } => {
                let from = self.further(*value, *memory, at);
                // The helper puts a NUL behind what it reads.
                let length = self.read(Read::String, to, Operand::Imm(size as i32 + 1), from, *memory);
                let (good, bad) = self.fault_blocks(*step, *value);
                self.b
                    .branch_with(CmpOp::Slt, Bits::W64, length, 0, bad, call(good, &[]));
                self.b.switch_to(good);
            }
            Opened::Array {
                address,
                memory,
                base,
                step,
            } => {
                let from = self.further(*address, *memory, at);
                let status = self.probe(to, size, from, *memory);
                let (good, bad) = self.fault_blocks(*step, *base);
                self.b
                    .branch_with(CmpOp::Ne, Bits::W64, status, 0, bad, call(good, &[]));
                self.b.switch_to(good);
            }
            Opened::Own { base, offset } => {
                for byte in 0..size as i16 {
                    let value = self.load_own(*base, offset + at as i16 + byte, 1);
                    let to = self.b.slot_addr(slot);
                    self.b.store(Width::B1, to, byte, value);
                }
            }
        }
        slot
    }

    fn further(&mut self, base: Value, memory: Memory, by: u32) -> Value {
        if by == 0 {
            return base;
        }
        let space = self.space_of(memory);
        let base = self.loose(base, space);
        self.b.add(base, by as i32)
    }

    /// Where pieces of strings are read to: a piece, and its NUL.
    fn piece(&mut self) -> Slot {
        match self.piece {
            Some(slot) => slot,
            None => *self.piece.insert(self.b.slot(PIECE + 8)),
        }
    }

    fn text_is(
        &mut self,
        opened: &Opened,
        room: Option<u32>,
        literal: &[u8],
        span: Span,
        yes: Block,
        no: Block,
    ) {
        let mut wanted = literal.to_vec();
        // A string without a NUL of its own ends where its array does.
        let fits = match room {
            Some(room) if wanted.len() >= room as usize => {
                let fits = wanted.len() == room as usize;
                wanted.truncate(room as usize);
                fits
            }
            Some(_) | None => {
                wanted.push(0);
                true
            }
        };
        for (number, part) in wanted.chunks(PIECE as usize).enumerate() {
            let slot = self.read_piece(opened, number as u32 * PIECE, part.len() as u32);
            self.at(span, "compare the string");
            self.compare_slot(slot, part, no);
        }
        // Even what can't be equal has been read: a bad address is a fault, and not unequal.
        self.b.jump(if fits { yes } else { no }, &[]);
    }

    /// Goes on only where the slot holds these bytes.
    pub(super) fn compare_slot(&mut self, slot: Slot, wanted: &[u8], no: Block) {
        let mut at = 0;
        while at < wanted.len() {
            let left = wanted.len() - at;
            let step = [8usize, 4, 2, 1]
                .into_iter()
                .find(|step| *step <= left)
                .unwrap_or(1);
            let from = self.b.slot_addr(slot);
            let value = self.b.load(Type::Int, width(step as u32), from, at as i16);
            self.compare_word(value, &wanted[at..at + step], no);
            at += step;
        }
    }

    /// Goes on only where a number of at most 8 bytes, zero-extended, has these bytes.
    fn compare_word(&mut self, value: Value, wanted: &[u8], no: Block) {
        let mut word = [0u8; 8];
        word[..wanted.len()].copy_from_slice(wanted);
        let constant = i64::from_le_bytes(word);
        let go_on = self.b.block("");
        let rhs = match i32::try_from(constant) {
            Ok(imm) => Operand::Imm(imm),
            Err(_) => self.b.iconst(constant).into(),
        };
        self.b.branch(CmpOp::Ne, Bits::W64, value, rhs, no, go_on);
        self.b.switch_to(go_on);
    }

    /// Branches on whether memory holds these bytes.
    pub(super) fn compare_memory(&mut self, place: &Place, bytes: &[u8], span: Span, yes: Block, no: Block) {
        match &place.base {
            Base::Pointer { pointer, memory } => {
                let base = self.value(pointer);
                let address = self.place_address(place, base, *memory);
                self.at(span, "read what is compared");
                let slot = self.piece();
                let to = self.b.slot_addr(slot);
                let status = self.probe(to, bytes.len() as u32, address, *memory);
                let (good, bad) = self.fault_blocks(pointer.span, base);
                self.b
                    .branch_with(CmpOp::Ne, Bits::W64, status, 0, bad, call(good, &[]));
                self.b.switch_to(good);
                self.at(span, "compare");
                self.compare_slot(slot, bytes, no);
            }
            Base::Arg(_) | Base::Return => {
                let slot = self.by_value(&place.base);
                let base = self.b.slot_addr(slot);
                self.at(span, "compare");
                let mut at = 0;
                for word in bytes.chunks(8) {
                    let mut value = None;
                    for (number, byte) in word.chunks(2).enumerate() {
                        let offset = place.offset as i16 + at as i16 + 2 * number as i16;
                        let part = self.load_own(base, offset, byte.len() as u32);
                        value = Some(match value {
                            None => part,
                            Some(below) => {
                                let part = self.b.binary(
                                    crate::ir::BinaryOp::Shl,
                                    Bits::W64,
                                    part,
                                    16 * number as i32,
                                );
                                self.b.binary(crate::ir::BinaryOp::Or, Bits::W64, below, part)
                            }
                        });
                    }
                    if let Some(value) = value {
                        self.compare_word(value, word, no);
                    }
                    at += word.len();
                }
            }
        }
        self.b.jump(yes, &[]);
    }
}

/// How many characters a string has at most, if it is known.
fn room(text: &Text) -> Option<u32> {
    match text {
        // TASK_COMM_LEN, with the NUL.
        Text::Comm => Some(15),
        Text::Pointer { limit, .. } => *limit,
        Text::Array { len, .. } => Some(*len),
    }
}
