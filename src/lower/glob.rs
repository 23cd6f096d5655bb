//! Glob patterns. What comes before the first `*` is compared byte for byte. The rest is a machine with a state for each of its
//! characters, all of which are the bits of one register: bit N is set if the text so far can be matched by the first N. Each
//! byte of the text moves all of them at once, without a branch that depends on them, so that the verifier follows one way
//! only. In: a pattern and a string. Out: a branch. Never loops: one step for each byte that a string may have, so that
//! strings without a bound are looked at only so far.

use std::ops::Range;

use super::program::Lower;
use super::text::{Opened, PIECE};
use crate::glob::{Pattern, Set};
use crate::ir::{BinaryOp, Bits, Block, CmpOp, Operand, Slot, Terminator, Type, Value, Width};
use crate::span::Span;
use crate::typed::{self, ExprKind, StrTest, Text};

/// How far a string is looked at, in bytes: a file's name (NAME_MAX, include/uapi/linux/limits.h) fits with its NUL.
const REACH: u32 = 256;
/// How many instructions all patterns of a program may take together, about: a jump reaches 32767.
const BUDGET: u32 = 24_000;
/// So many different characters are told apart one by one; more are, by the bits that they are made of.
const FEW: usize = 8;

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
        let steps = Steps::new(pattern, prefix);
        let reach = room.unwrap_or(REACH).min(self.reach(&steps, prefix));
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
            let ends = room == Some(reach);
            return self.machine(opened, (prefix as u32..reach, ends), &steps, slot, span, yes, no);
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
        (bytes, ends): (Range<u32>, bool),
        steps: &Steps,
        slot: Slot,
        span: Span,
        yes: Block,
        no: Block,
    ) {
        let (ended, params) = self.b.block_with("the string has ended", &[Type::Int]);
        let mut states = self.b.iconst(1);
        let end = bytes.end;
        for at in bytes {
            if at > 0 && at % PIECE == 0 {
                self.read_piece(opened, at, PIECE.min(end - at));
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
            states = self.step(steps, states, byte);
            if steps.open {
                let go_on = self.b.block("");
                self.accept(steps, states, yes, go_on);
                self.b.switch_to(go_on);
            }
        }
        if ends {
            self.b.jump(ended, &[states]);
        } else {
            self.too_long(opened, span);
        }
        self.b.switch_to(ended);
        self.at(span, "matched to its end?");
        self.accept(steps, params[0], yes, no);
    }

    /// How far strings without a bound are looked at.
    fn reach(&self, steps: &Steps, prefix: usize) -> u32 {
        let all = self.long_patterns.max(1) * steps.cost();
        // What comes before the first `*` is always looked at, and more.
        (BUDGET / all / 8 * 8).clamp(prefix as u32 / 8 * 8 + 16, REACH)
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
        if !steps.planes.is_empty() {
            let hits = self.by_bits(steps, byte);
            moving = Some(match moving {
                None => hits.into(),
                Some(others) => self.b.binary(BinaryOp::Or, Bits::W64, hits, others).into(),
            });
        }
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

    /// The states whose character the byte is, among those that are told apart by their bits: a state is out as soon as one of
    /// the bits differs.
    fn by_bits(&mut self, steps: &Steps, byte: Value) -> Value {
        let mut differs: Option<Value> = None;
        for (bit, plane) in steps.planes.iter().enumerate() {
            let top = self.b.binary(BinaryOp::Shl, Bits::W64, byte, 63 - bit as i32);
            let all = self.b.binary(BinaryOp::Ashr, Bits::W64, top, 63);
            let plane = self.mask(*plane);
            let other = self.b.binary(BinaryOp::Xor, Bits::W64, all, plane);
            differs = Some(match differs {
                None => other,
                Some(others) => self.b.binary(BinaryOp::Or, Bits::W64, others, other),
            });
        }
        let differs = match differs {
            Some(differs) => differs,
            None => self.b.iconst(-1),
        };
        let same = self.b.binary(BinaryOp::Xor, Bits::W64, differs, -1);
        let mask = self.mask(steps.singles);
        self.b.binary(BinaryOp::And, Bits::W64, same, mask)
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
    /// States that one character leads on from, if those are told apart by their bits.
    singles: u64,
    /// For each bit of a character, those of these states whose character has it.
    planes: Vec<u64>,
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
            singles: 0,
            planes: Vec::new(),
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
        let single = |(set, _): &(Set, u64)| set.single().is_some();
        if steps.sets.iter().filter(|known| single(known)).count() > FEW {
            steps.planes = vec![0; 8];
            for (set, bits) in steps.sets.iter().filter(|known| single(known)) {
                steps.singles |= bits;
                let byte = set.single().unwrap_or(0);
                for (bit, plane) in steps.planes.iter_mut().enumerate() {
                    if byte >> bit & 1 == 1 {
                        *plane |= bits;
                    }
                }
            }
            steps.sets.retain(|known| !single(known));
        }
        for number in 0..=steps.count {
            if pattern.star(prefix + number as usize) {
                steps.stars |= 1 << number;
            }
        }
        steps
    }

    /// How many instructions a byte takes, about.
    fn cost(&self) -> u32 {
        // A mask of more than 31 bits takes an instruction of its own, in two slots.
        let mask = if self.count > 30 { 3 } else { 1 };
        let ranges: usize = self
            .sets
            .iter()
            .map(|(set, _)| 4 * set.ranges().len().min(set.complement().ranges().len().max(1)) + 4)
            .sum();
        let planes = self.planes.len() as u32 * (4 + mask);
        10 + 3 * mask + ranges as u32 + self.sets.len() as u32 * mask + planes
    }
}

/// How many patterns of a query may have to go far: those of strings whose length nothing bounds.
pub(super) fn long_patterns(query: &typed::Query) -> u32 {
    let mut count = 0;
    let mut look = |expr: &typed::Expr| {
        if let ExprKind::StrCompare {
            text,
            test: StrTest::Matches(pattern),
            ..
        } = &expr.kind
        {
            let long = match text.as_ref() {
                Text::Comm => false,
                Text::Pointer { limit, .. } => limit.is_none_or(|limit| limit > PIECE),
                Text::Array { len, .. } => *len > PIECE,
            };
            count += u32::from(long && pattern.prefix() < pattern.sets().len());
        }
    };
    for event in &query.events {
        event
            .predicates
            .iter()
            .for_each(|predicate| predicate.cond.walk(&mut look));
        event.items.iter().for_each(|item| item.source.walk(&mut look));
    }
    count
}
