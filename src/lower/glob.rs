//! Glob patterns. What comes before the first `*` is compared byte for byte. The rest is a machine with a state for each of its
//! characters, all of which are the bits of one register: bit N is set if the text so far can be matched by the first N. Each
//! byte of the text moves all of them at once, without a branch that depends on them, so that the verifier follows one way
//! only. In: a pattern and a string. Out: a branch. Never loops: one step for each byte that a string may have.

use super::program::Lower;
use super::text::{Opened, PIECE};
use crate::glob::{Pattern, Set};
use crate::ir::{BinaryOp, Bits, Block, CmpOp, Operand, Slot, Terminator, Type, Value, Width};
use crate::span::Span;

/// How far a string is looked at, in bytes: a file's name (NAME_MAX, include/uapi/linux/limits.h) fits with its NUL.
const REACH: u32 = 256;

impl Lower<'_> {
    /// Branches on whether a string matches a pattern.
    pub(super) fn text_matches(
        &mut self,
        opened: &Opened,
        room: Option<u32>,
        pattern: &Pattern,
        span: Span,
        yes: Block,
        no: Block,
    ) {
        let sets = pattern.sets();
        let prefix = pattern.prefix();
        let reach = room.unwrap_or(REACH).min(REACH);
        // One byte more than what is matched tells whether the string ends there.
        let open = sets.len() == prefix && pattern.has_star();
        let first = if open {
            prefix as u32
        } else if pattern.has_star() {
            PIECE
        } else {
            prefix as u32 + 1
        };
        let slot = self.read_piece(opened, 0, first.clamp(1, reach.min(PIECE)));
        self.at(span, "compare the string");
        if sets.len() > reach as usize {
            // It is too short for the pattern; but a bad address is a fault all the same.
            return self.b.jump(no, &[]);
        }
        let same = sets[..prefix].iter().take_while(|set| set.single().is_some());
        let literal: Vec<u8> = same.filter_map(Set::single).collect();
        self.compare_slot(slot, &literal, no);
        for (at, set) in sets.iter().enumerate().take(prefix).skip(literal.len()) {
            let byte = self.byte(slot, at as u32);
            self.compare_set(byte, set, no);
        }
        if open {
            return self.b.jump(yes, &[]);
        }
        if pattern.has_star() {
            return self.machine(opened, room, pattern, slot, span, yes, no);
        }
        if room.is_none_or(|room| prefix < room as usize) {
            let byte = self.byte(slot, prefix as u32);
            self.b.branch(CmpOp::Eq, Bits::W64, byte, 0, yes, no);
        } else {
            self.b.jump(yes, &[]);
        }
    }

    fn byte(&mut self, slot: Slot, at: u32) -> Value {
        let from = self.b.slot_addr(slot);
        self.b.load(Type::Int, Width::B1, from, (at % PIECE) as i16)
    }

    /// Goes on only where the byte is in the set.
    fn compare_set(&mut self, byte: Value, set: &Set, no: Block) {
        let go_on = self.b.block("");
        let (ranges, inside, outside) = match set.ranges() {
            ranges if ranges.len() > 1 && set.complement().ranges().len() < ranges.len() => {
                // The NUL is in neither, and ends the text.
                let text = self.b.block("");
                self.b.branch(CmpOp::Eq, Bits::W64, byte, 0, no, text);
                self.b.switch_to(text);
                (set.complement().ranges().to_vec(), no, go_on)
            }
            ranges => (ranges.to_vec(), go_on, no),
        };
        for (number, (first, last)) in ranges.iter().enumerate() {
            let next = if number + 1 == ranges.len() {
                outside
            } else {
                self.b.block("")
            };
            let (first, last) = (i32::from(*first), i32::from(*last));
            if first == last {
                self.b.branch(CmpOp::Eq, Bits::W64, byte, first, inside, next);
            } else {
                let from = self.b.binary(BinaryOp::Sub, Bits::W32, byte, first);
                self.b
                    .branch(CmpOp::Ule, Bits::W32, from, last - first, inside, next);
            }
            if next != outside {
                self.b.switch_to(next);
            }
        }
        self.b.switch_to(go_on);
    }

    /// What follows the first `*`.
    #[expect(clippy::too_many_arguments, reason = "a string, a pattern, and where to go")]
    fn machine(
        &mut self,
        opened: &Opened,
        room: Option<u32>,
        pattern: &Pattern,
        slot: Slot,
        span: Span,
        yes: Block,
        no: Block,
    ) {
        let prefix = pattern.prefix();
        let steps = Steps::new(pattern, prefix);
        let (ended, params) = self.b.block_with("the string has ended", &[Type::Int]);
        let mut states = self.b.iconst(1);
        let reach = room.unwrap_or(REACH).min(REACH);
        for at in prefix as u32..reach {
            if at > 0 && at % PIECE == 0 {
                self.read_piece(opened, at, PIECE.min(reach - at));
            }
            self.at(span, format!("byte {at}"));
            let byte = self.byte(slot, at);
            let text = self.b.block("");
            self.b.branch_with(
                CmpOp::Eq,
                Bits::W64,
                byte,
                0,
                crate::ir::build::call(ended, &[states]),
                crate::ir::build::call(text, &[]),
            );
            self.b.switch_to(text);
            states = self.step(&steps, states, byte);
            if steps.open {
                let go_on = self.b.block("");
                self.accept(&steps, states, yes, go_on);
                self.b.switch_to(go_on);
            }
        }
        if room.is_some_and(|room| room <= REACH) {
            self.b.jump(ended, &[states]);
        } else {
            self.too_long(opened, span);
        }
        self.b.switch_to(ended);
        self.at(span, "matched to its end?");
        self.accept(&steps, params[0], yes, no);
    }

    /// A string that goes on where nobody looks: it can't be said whether it matches, so that is a fault.
    fn too_long(&mut self, opened: &Opened, span: Span) {
        let (step, value) = match opened {
            Opened::Pointer { value, step, .. } => (*step, *value),
            Opened::Array { address, step, .. } => (*step, *address),
            Opened::Comm | Opened::Own { .. } => (span, self.b.iconst(0)),
        };
        let (_, bad) = self.fault_named(step, " is too long", value);
        self.b.end(Terminator::Jump(bad));
    }

    fn accept(&mut self, steps: &Steps, states: Value, yes: Block, no: Block) {
        match i32::try_from(1u64 << steps.count) {
            Ok(bit) => self.b.branch(CmpOp::Set, Bits::W64, states, bit, yes, no),
            Err(_) => {
                let last = self
                    .b
                    .binary(BinaryOp::Lshr, Bits::W64, states, steps.count as i32);
                self.b.branch(CmpOp::Ne, Bits::W64, last, 0, yes, no);
            }
        }
    }

    /// The states after one more byte.
    fn step(&mut self, steps: &Steps, states: Value, byte: Value) -> Value {
        let mut moving = (steps.any != 0).then(|| self.mask(steps.any));
        for (set, bits) in &steps.sets {
            let hit = self.is_in(set, byte);
            // 1 times the bits, or 0.
            let part = match self.mask(*bits) {
                Operand::Imm(imm) => self.b.binary(BinaryOp::Mul, Bits::W64, hit, imm),
                mask => {
                    let all = self.b.neg(Bits::W64, hit);
                    self.b.binary(BinaryOp::And, Bits::W64, all, mask)
                }
            };
            moving = Some(match moving {
                None => part.into(),
                Some(others) => self.b.binary(BinaryOp::Or, Bits::W64, part, others).into(),
            });
        }
        let kept = self.mask(steps.stars);
        let kept = self.b.binary(BinaryOp::And, Bits::W64, states, kept);
        let Some(moving) = moving else {
            return kept;
        };
        let moved = self.b.binary(BinaryOp::And, Bits::W64, states, moving);
        let moved = self.b.binary(BinaryOp::Shl, Bits::W64, moved, 1);
        self.b.binary(BinaryOp::Or, Bits::W64, moved, kept)
    }

    fn mask(&mut self, bits: u64) -> Operand {
        match i32::try_from(bits) {
            Ok(imm) => Operand::Imm(imm),
            Err(_) => self.b.iconst(bits as i64).into(),
        }
    }

    /// 1 if the byte, which is not NUL, is in the set, else 0.
    fn is_in(&mut self, set: &Set, byte: Value) -> Value {
        let rest = set.complement();
        let inverse = rest.ranges().len() < set.ranges().len();
        let ranges = if inverse { rest } else { set.clone() };
        let mut outside: Option<Value> = None;
        for (first, last) in ranges.ranges() {
            let out = self.is_outside(*first, *last, byte);
            outside = Some(match outside {
                None => out,
                Some(others) => self.b.binary(BinaryOp::And, Bits::W64, others, out),
            });
        }
        match (outside, inverse) {
            (Some(outside), true) => outside,
            (Some(outside), false) => self.b.binary(BinaryOp::Xor, Bits::W64, outside, 1),
            // A complement of nothing.
            (None, inverse) => self.b.iconst(i64::from(inverse)),
        }
    }

    /// 1 if the byte is below the first or above the last: a difference is negative then.
    fn is_outside(&mut self, first: u8, last: u8, byte: Value) -> Value {
        let mut sign: Option<Value> = None;
        if first == last {
            let difference = self.b.binary(BinaryOp::Xor, Bits::W64, byte, i32::from(first));
            let negated = self.b.neg(Bits::W64, difference);
            sign = Some(negated);
        } else {
            if first > 1 {
                sign = Some(self.b.binary(BinaryOp::Sub, Bits::W64, byte, i32::from(first)));
            }
            if last < u8::MAX {
                let negated = self.b.neg(Bits::W64, byte);
                let above = self.b.add(negated, i32::from(last));
                sign = Some(match sign {
                    None => above,
                    Some(below) => self.b.binary(BinaryOp::Or, Bits::W64, below, above),
                });
            }
        }
        match sign {
            Some(sign) => self.b.binary(BinaryOp::Lshr, Bits::W64, sign, 63),
            None => self.b.iconst(0),
        }
    }
}

/// What each byte does to the states.
struct Steps {
    /// How many characters there are: the state of that number is the end.
    count: u32,
    /// Sets, each with the states that it leads on from.
    sets: Vec<(Set, u64)>,
    /// States that any character leads on from.
    any: u64,
    /// States that stay.
    stars: u64,
    /// Any text may follow the last.
    open: bool,
}

impl Steps {
    fn new(pattern: &Pattern, prefix: usize) -> Steps {
        let mut steps = Steps {
            count: (pattern.sets().len() - prefix) as u32,
            sets: Vec::new(),
            any: 0,
            stars: 0,
            open: pattern.star(pattern.sets().len()),
        };
        for (number, set) in pattern.sets()[prefix..].iter().enumerate() {
            let bit = 1u64 << number;
            if set.is_any() {
                steps.any |= bit;
                continue;
            }
            match steps.sets.iter_mut().find(|(known, _)| known == set) {
                Some((_, bits)) => *bits |= bit,
                None => steps.sets.push((set.clone(), bit)),
            }
        }
        for number in 0..=steps.count {
            if pattern.star(prefix + number as usize) {
                steps.stars |= 1 << number;
            }
        }
        steps
    }
}
