//! Which bucket of a histogram a number belongs to. In: the number. Out: instructions that give the bucket's index, without a branch for
//! powers of two. Never touches memory.

use super::program::Lower;
use crate::ir::{BinaryOp, Bits, CmpOp, Operand, Type, Value};
use crate::wire::{HIST_ZERO, MeasureLayout};

impl Lower<'_> {
    /// 0 for 0, else one more than the number of the highest bit that is set: a binary search without branches.
    pub(super) fn log(&mut self, number: Value) -> Value {
        let mut left = number;
        let mut sum: Option<Value> = None;
        for shift in [5, 4, 3, 2, 1, 0] {
            // Whether anything is left above the lower half, as 0 or 1, and from that how far to shift.
            let high = self.b.binary(BinaryOp::Lshr, Bits::W64, left, 1 << shift);
            let is_set = self.one_if_set(high);
            let by = match shift {
                0 => is_set,
                _ => self.b.binary(BinaryOp::Shl, Bits::W64, is_set, shift),
            };
            left = self.b.binary(BinaryOp::Lshr, Bits::W64, left, by);
            sum = Some(match sum {
                Some(sum) => self.b.add(sum, by),
                None => by,
            });
        }
        // What is left is 1, or 0 if there was nothing.
        match sum {
            Some(sum) => self.b.add(sum, left),
            None => left,
        }
    }

    /// 1 if the number, which is less than 2^63, is not 0.
    fn one_if_set(&mut self, number: Value) -> Value {
        let negative = self.b.neg(Bits::W64, number);
        self.b.binary(BinaryOp::Lshr, Bits::W64, negative, 63)
    }

    /// The same of the magnitude, in both directions from [`HIST_ZERO`].
    pub(super) fn signed_log(&mut self, number: Value) -> Value {
        let sign = self.b.binary(BinaryOp::Ashr, Bits::W64, number, 63);
        let magnitude = self.magnitude(number, sign);
        let log = self.log(magnitude);
        let signed = self.magnitude(log, sign);
        self.b.add(signed, HIST_ZERO as i32)
    }

    /// The bucket of a linear histogram.
    pub(super) fn linear(
        &mut self,
        measure: &MeasureLayout,
        number: Value,
        (lo, hi, step): (i64, i64, i64),
    ) -> Value {
        let (less, not_less) = if measure.signed {
            (CmpOp::Slt, CmpOp::Sge)
        } else {
            (CmpOp::Ult, CmpOp::Uge)
        };
        let last = i64::from(measure.measure.words(measure.signed)) - 1;
        let (found, bucket) = self.b.block_with("", &[Type::Int]);
        let below = self.b.block("below all buckets");
        let above = self.b.block("above all buckets");
        let upper = self.b.block("");
        let inside = self.b.block("in a bucket");
        let bound = self.wide(lo);
        self.b.branch(less, Bits::W64, number, bound, below, upper);
        self.b.switch_to(upper);
        let bound = self.wide(hi);
        self.b.branch(not_less, Bits::W64, number, bound, above, inside);
        self.b.switch_to(inside);
        let distance = match lo {
            0 => number,
            lo => {
                let bound = self.wide(lo);
                self.b.binary(BinaryOp::Sub, Bits::W64, number, bound)
            }
        };
        let step = self.wide(step);
        let steps = self.b.binary(BinaryOp::Udiv, Bits::W64, distance, step);
        let steps = self.b.add(steps, 1);
        self.b.jump(found, &[steps]);
        for (block, constant) in [(below, 0), (above, last)] {
            self.b.switch_to(block);
            let constant = self.b.iconst(constant);
            self.b.jump(found, &[constant]);
        }
        self.b.switch_to(found);
        bucket[0]
    }

    /// A constant as an operand.
    pub(super) fn wide(&mut self, constant: i64) -> Operand {
        match i32::try_from(constant) {
            Ok(imm) => Operand::Imm(imm),
            Err(_) => self.b.iconst(constant).into(),
        }
    }
}
