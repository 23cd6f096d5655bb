//! The places in maps where calls keep values until they return: made, found and given back. In: what is kept, and the key of a call.
//! Out: code for that. What was made and what was given back is counted, so that whoever looks at the map afterwards
//! knows how many places the kernel has taken away in between: calls that are missing although nothing said so.

use super::KEPT;
use super::program::Lower;
use super::stash::{KEY, Keep};
use crate::ir::{Bits, CmpOp, Helper, MapKind, Operand, Slot, Value, Width};

/// `BPF_NOEXIST`: only a key that is not there yet.
const NOEXIST: i32 = 1;
/// Which of a query's two counters in [`KEPT`].
const MADE: u32 = 0;
const GIVEN_BACK: u32 = 1;

impl Lower<'_> {
    /// Makes a place for this call, to be written in.
    pub(super) fn make_place(&mut self, keep: &Keep, key: Slot) -> Value {
        let empty = self.empty(keep);
        self.call_key(key);
        self.b.at(None, "a place to keep values in");
        if forgets(keep) {
            let made = self.update_place(keep, key, empty, NOEXIST);
            let (new, older) = (self.b.block("a new one"), self.b.block("one that was left over"));
            let ready = self.b.block("");
            self.b.branch(CmpOp::Eq, Bits::W64, made, 0, new, older);
            self.b.switch_to(older);
            self.update_place(keep, key, empty, 0);
            self.b.jump(ready, &[]);
            self.b.switch_to(new);
            self.bump(KEPT, 2 * self.id.query as u32 + MADE);
            self.b.jump(ready, &[]);
            self.b.switch_to(ready);
        } else {
            self.update_place(keep, key, empty, 0);
        }
        // Without a place the event can't be made at the return, where nobody would know that it is missing.
        let lost = self.b.block("no place: count it as lost");
        let end = std::mem::replace(&mut self.end, lost);
        let place = self.look_up(keep.kept.clone(), key);
        self.end = end;
        let go_on = self.b.block("a place");
        self.b.jump(go_on, &[]);
        self.b.switch_to(lost);
        self.count(0);
        self.b.jump(end, &[]);
        self.b.switch_to(go_on);
        place
    }

    /// The place of this call; a call that has none ends the program.
    pub(super) fn find_place(&mut self, keep: &Keep) -> (Slot, Value) {
        let key = self.b.slot(KEY);
        self.call_key(key);
        self.b.at(None, "what this call's entry kept");
        let place = self.look_up(keep.kept.clone(), key);
        (key, place)
    }

    /// Gives the place back, if there is one.
    pub(super) fn delete_place(&mut self, keep: &Keep, key: Slot) {
        self.b.at(None, "forget");
        let map = self.b.map(keep.kept.clone());
        let map = self.b.map_addr(map);
        let at = self.b.slot_addr(key);
        let none = self.call(Helper::MapDeleteElem, &[map.into(), at.into()]);
        if forgets(keep) {
            let (there, done) = (self.b.block("it was there"), self.b.block(""));
            self.b.branch(CmpOp::Eq, Bits::W64, none, 0, there, done);
            self.b.switch_to(there);
            self.bump(KEPT, 2 * self.id.query as u32 + GIVEN_BACK);
            self.b.jump(done, &[]);
            self.b.switch_to(done);
        }
    }

    fn update_place(&mut self, keep: &Keep, key: Slot, value: Value, flags: i32) -> Value {
        let map = self.b.map(keep.kept.clone());
        let map = self.b.map_addr(map);
        let at = self.b.slot_addr(key);
        self.call(
            Helper::MapUpdateElem,
            &[map.into(), at.into(), value.into(), Operand::Imm(flags)],
        )
    }

    /// The empty value.
    fn empty(&mut self, keep: &Keep) -> Value {
        self.b.at(None, "the empty value");
        let zero = self.scratch();
        let at = self.b.slot_addr(zero);
        self.b.store(Width::B8, at, 0, 0);
        self.look_up(keep.empty.clone(), zero)
    }
}

/// Whether the kernel takes places away where there are too few.
fn forgets(keep: &Keep) -> bool {
    match keep.kept.kind {
        MapKind::LruHash => true,
        MapKind::Ringbuf
        | MapKind::StackTrace
        | MapKind::CgroupArray
        | MapKind::Array
        | MapKind::PercpuArray
        | MapKind::Hash
        | MapKind::PercpuHash => false,
    }
}
