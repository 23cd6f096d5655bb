//! Neighbours: members of one struct that shown values need, close to each other, are read by one probe read and picked out of the
//! copy. In: the values of a group and the pointer that they share. Out: copies on the stack, which loads are then taken
//! from. Every access still carries its relocation, and on a kernel where the members lie otherwise the copy is a fault,
//! never a wrong value. Plain loads are cheaper still, so that nothing is copied where those are possible.

use super::bits::container;
use super::program::{Key, Lower};
use crate::ir::build::call;
use crate::ir::{BinaryOp, Bits, CmpOp, Operand, Slot, Space, Type, Value};
use crate::typed::{Base, Expr, ExprKind, Item, Memory, Place, Source};

/// The most bytes that are read together: copying them takes less time than another call of the helper.
const WINDOW: u64 = 64;
/// So many copies are on the stack at a time, at most.
const WINDOWS: usize = 2;

/// A copy of a piece of a struct.
pub(super) struct Window {
    /// The pointer to the struct.
    base: Value,
    memory: Memory,
    /// Offset and size of the members that it was made for. Others may lie in it askew, or elsewhere in another kernel.
    members: Vec<(u64, u64)>,
    /// The address at which the struct would begin if all of it were there.
    image: Value,
    slot: Slot,
}

/// A member that is to be read.
struct Member<'e> {
    place: &'e Place,
    offset: u64,
    size: u64,
}

impl Lower<'_> {
    /// Reads what all these items need of the struct that the pointer leads to, as far as it lies together. Gives how many copies
    /// there were before.
    pub(super) fn read_together(&mut self, items: &[&Item], pointer: &Expr, base: Value) -> usize {
        let before = self.windows.len();
        if self.b.type_of(base) == Type::Ptr(Space::Btf) {
            return before;
        }
        let mut members = Vec::new();
        for item in items {
            loads(&item.source, &mut |expr| {
                let ExprKind::Load(place) = &expr.kind else {
                    return;
                };
                if let Base::Pointer { pointer: of, .. } = &place.base
                    && **of == *pointer
                    && self.find(&Key::Expr(expr.clone())).is_none()
                {
                    members.extend(self.member(place));
                }
            });
        }
        members.sort_by_key(|member| (member.offset, member.size));
        members.dedup_by_key(|member| (member.offset, member.size));
        while !members.is_empty() && self.windows.len() < WINDOWS {
            // The first bytes of the copy are left out, so that all lies as aligned as in the struct.
            let start = members[0].offset;
            let reach = start / 8 * 8 + WINDOW;
            let count = members
                .iter()
                .take_while(|member| member.offset + member.size <= reach)
                .count();
            let rest = members.split_off(count.max(1));
            if members.len() > 1 {
                self.copy_window(&members, pointer, base);
            }
            members = rest;
        }
        before
    }

    /// Forgets copies; their places on the stack are used again.
    pub(super) fn forget_windows(&mut self, before: usize) {
        for window in self.windows.drain(before..) {
            self.free_windows.push(window.slot);
        }
    }

    /// Where to load a member from instead: an address that its offset is to be added to. A member that lies askew is not to be
    /// had there, even between others that do not.
    pub(super) fn in_window(&self, base: Value, memory: Memory, offset: u64, size: u32) -> Option<Value> {
        self.windows
            .iter()
            .find(|window| {
                window.base == base
                    && window.memory == memory
                    && window.members.contains(&(offset, u64::from(size)))
            })
            .map(|window| window.image)
    }

    fn member<'e>(&self, place: &'e Place) -> Option<Member<'e>> {
        let path = place.path.as_ref()?;
        let (offset, size) = match place.bits {
            // It is read from its element on.
            Some(bits) if self.uneven_element(path, bits.unit).is_some() => return None,
            Some(bits) => {
                let (size, offset) = container(bits)?;
                (offset, u64::from(size))
            }
            None => (place.offset, u64::from(self.scalar_size(&place.ty))),
        };
        // The verifier lets nobody read the stack askew.
        offset
            .is_multiple_of(size)
            .then_some(Member { place, offset, size })
    }

    fn copy_window(&mut self, members: &[Member<'_>], pointer: &Expr, base: Value) {
        let Some(first) = members.first() else {
            return;
        };
        let Base::Pointer { memory, .. } = first.place.base else {
            return;
        };
        let start = first.offset;
        let end = members
            .iter()
            .map(|member| member.offset + member.size)
            .max()
            .unwrap_or(start);
        let slot = match self.free_windows.pop() {
            Some(slot) => slot,
            None => self.b.slot(WINDOW as u32),
        };
        let whole = Place {
            offset: start,
            bits: None,
            ..first.place.clone()
        };
        let from = self.place_address(&whole, base, memory);
        self.at(pointer.span, format!("{} members at once", members.len()));
        let to = self.b.slot_addr(slot);
        let to = self.b.add(to, (start % 8) as i32);
        let status = self.probe(to, (end - start) as u32, from, memory);
        let (good, bad) = self.fault_blocks(pointer.span, base);
        self.b
            .branch_with(CmpOp::Ne, Bits::W64, status, 0, bad, call(good, &[]));
        self.b.switch_to(good);
        let Some(path) = &first.place.path else {
            unreachable!("bug in ksnoop-jit: a member without a path");
        };
        let begin = self.offset_reloc(path, start);
        // Known before the program runs, so that the verifier takes the tests out.
        for member in &members[1..] {
            let Some(path) = &member.place.path else {
                unreachable!("bug in ksnoop-jit: a member without a path");
            };
            self.at(member.place.span, "is it in what was read?");
            let at = self.offset_reloc(path, member.offset);
            let at = self.b.reloc_const(at);
            let from = self.b.reloc_const(begin);
            let distance = self.b.binary(BinaryOp::Sub, Bits::W64, at, from);
            let most = (end - start - member.size) as i32;
            let (good, bad) = self.fault_named(pointer.span, " is laid out differently here", base);
            self.b.branch_with(
                CmpOp::Ugt,
                Bits::W64,
                distance,
                Operand::Imm(most),
                bad,
                call(good, &[]),
            );
            self.b.switch_to(good);
        }
        self.at(pointer.span, "the copy");
        let to = self.b.slot_addr(slot);
        let to = self.b.add(to, (start % 8) as i32);
        // Nothing may be subtracted from an address on the stack (`adjust_ptr_min_max_vals`, kernel/bpf/verifier.c), and 5.10's
        // verifier does not know what a negation of a constant gives.
        let from = self.b.reloc_const(begin);
        let zero = self.b.iconst(0);
        let back = self.b.binary(BinaryOp::Sub, Bits::W64, zero, from);
        let image = self.b.add(to, back);
        self.windows.push(Window {
            base,
            memory,
            members: members
                .iter()
                .map(|member| (member.offset, member.size))
                .collect(),
            image,
            slot,
        });
    }
}

/// Calls `visit` for all that is loaded for a value whatever its conditions turn out to be.
fn loads<'e>(source: &'e Source, visit: &mut dyn FnMut(&'e Expr)) {
    match source {
        Source::Value(expr) => loads_of(expr, visit),
        Source::Memory(place) => loads_to(place, visit),
        Source::Sized { pointer, length, .. } => {
            loads_of(pointer, visit);
            loads_of(length, visit);
        }
        Source::Comm | Source::Literal(_) | Source::Name | Source::Stack { .. } => {}
    }
}

fn loads_to<'e>(place: &'e Place, visit: &mut dyn FnMut(&'e Expr)) {
    if let Base::Pointer { pointer, .. } = &place.base {
        loads_of(pointer, visit);
    }
}

fn loads_of<'e>(expr: &'e Expr, visit: &mut dyn FnMut(&'e Expr)) {
    match &expr.kind {
        ExprKind::Load(place) => {
            loads_to(place, visit);
            visit(expr);
        }
        ExprKind::AddrOf(place) => loads_to(place, visit),
        ExprKind::Neg(e)
        | ExprKind::BitNot(e)
        | ExprKind::Convert(e)
        | ExprKind::Swap(e)
        | ExprKind::AsUser(e)
        | ExprKind::Checked { index: e, .. } => loads_of(e, visit),
        ExprKind::Arith { lhs, rhs, .. } => {
            loads_of(lhs, visit);
            loads_of(rhs, visit);
        }
        ExprKind::Const(_)
        | ExprKind::Arg(_)
        | ExprKind::Return
        | ExprKind::Builtin(_)
        | ExprKind::Layout { .. }
        | ExprKind::Compare { .. }
        | ExprKind::Not(_)
        | ExprKind::And(..)
        | ExprKind::Or(..)
        | ExprKind::Cond(..)
        | ExprKind::StrCompare { .. }
        | ExprKind::BytesCompare { .. }
        | ExprKind::IsErr(_)
        | ExprKind::AtEntry(_) => {}
    }
}
