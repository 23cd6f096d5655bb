//! Programs that look at more values than the stack has room for. In: an event whose program would not fit otherwise. Out: the
//! same program with another order of work: the record is there first, what a predicate has judged is written into it at once, and
//! a record whose predicates do not hold is given back. Filtered events cost more that way, so that it is the second choice.

use super::program::Lower;
use crate::ir::{Bits, Helper, Operand, Value};
use crate::typed::{Event, Expr, When};
use crate::wire::RecordLayout;

/// How many values are remembered to be used again. What was read earlier is read again.
pub(super) const REMEMBERED: usize = 12;

impl Lower<'_> {
    /// The event, if its predicates hold; at a return, those about the return, with what was kept at the entry.
    pub(super) fn show_tight(&mut self, event: &Event, layout: &RecordLayout, kept: Option<Value>) {
        let record = self.reserve(layout.size);
        let discard = self.b.block("not this event: give the record back");
        let end = std::mem::replace(&mut self.end, discard);
        self.write_judged(
            event,
            layout,
            |when| kept.is_none() || when == When::Return,
            record,
        );
        self.end = end;
        if let Some(place) = kept {
            self.copy_all_kept(event, layout, place, record);
        }
        self.header(record);
        self.submit(record);
        if self.b.is_target(discard) {
            self.b.switch_to(discard);
            self.b.at(None, "give the record back");
            self.b
                .call(Helper::RingbufDiscard, &[record.into(), Operand::Imm(0)]);
            self.b.jump(end, &[]);
        }
    }

    /// Goes on only where the predicates of that moment hold, and writes the items of that moment.
    pub(super) fn write_judged(
        &mut self,
        event: &Event,
        layout: &RecordLayout,
        moment: impl Fn(When) -> bool,
        record: Value,
    ) {
        let outer = self.record.replace(record);
        let mut left: Vec<usize> = (0..event.items.len())
            .filter(|index| moment(event.items[*index].when))
            .collect();
        let predicates = event.predicates.iter().filter(|predicate| moment(predicate.when));
        for cond in super::cond::cheapest_first(predicates.map(|predicate| &predicate.cond)) {
            self.go_on_if(cond);
            let (judged, rest) = left
                .into_iter()
                .partition(|index| cond.span.covers(event.items[*index].span));
            left = rest;
            self.items(&event.items, &layout.items, &judged);
        }
        self.items(&event.items, &layout.items, &left);
        self.record = outer;
    }

    /// Both operands as numbers; where there is little room, the one first that takes more of it.
    pub(super) fn operands(&mut self, lhs: &Expr, rhs: &Expr, bits: Bits) -> (Value, Operand) {
        if self.target.tight && size(rhs) > size(lhs) {
            let b = self.number_operand(rhs, bits);
            return (self.number(lhs), b);
        }
        let a = self.number(lhs);
        (a, self.number_operand(rhs, bits))
    }

    fn number_operand(&mut self, expr: &Expr, bits: Bits) -> Operand {
        match self.operand(expr, bits) {
            Operand::Value(value) => Operand::Value(self.as_int(value)),
            Operand::Imm(imm) => Operand::Imm(imm),
        }
    }
}

/// Of how many parts it is.
fn size(expr: &Expr) -> usize {
    let mut parts = 0;
    expr.walk(&mut |_| parts += 1);
    parts
}
