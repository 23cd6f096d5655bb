//! Goes through the bytes of a record by its layout and its types, and tells a [`Sink`] what it finds. Decides what is
//! shown: zero members and the zero ends of arrays are left out, runs folded, depth and length limited, bytes that are
//! missing noticed. Never spells anything, never trusts a record or a type: what does not fit is told as missing, and
//! the number of values that one item may have is bounded.

use std::rc::Rc;

use crate::wire::{self, Format, ItemLayout, ValueLayout};

use super::bytes::{all_zero, bits, c_string, read_le, u32_at, u64_at};
use super::leaf::err_ptr;
use super::shape::{Hint, Member, Shape, ShapeKind, Shapes};
use super::sink::{Brackets, Cut, Label, Leaf, Sink, Tail};
use super::stack;
use super::{Options, Symbols};

/// What is worked out once for each value of a layout.
pub(super) struct ItemPlan {
    /// What it is called.
    pub(super) label: Label,
    /// The shape of its type.
    pub(super) shape: Rc<Shape>,
    /// The shape of what it points to.
    pub(super) pointee: Option<Rc<Shape>>,
    /// What its name says about how its numbers are read.
    pub(super) hint: Hint,
}

/// One walk through one record.
pub(super) struct Walker<'w, 'a, S> {
    /// Where shapes come from.
    pub(super) shapes: &'w mut Shapes<'a>,
    /// What limits what is shown.
    pub(super) options: &'w Options,
    /// What may have been hit, for [`ValueLayout::Name`].
    pub(super) names: &'w [String],
    /// Where symbols come from.
    pub(super) symbols: &'w dyn Symbols,
    /// The process that a record is of, where its addresses can have symbols too.
    pub(super) pid: Option<u32>,
    /// Who is told.
    pub(super) sink: S,
    /// The format of the item that is shown now.
    pub(super) format: Option<Format>,
    /// How many members and elements the item may still have.
    pub(super) budget: u32,
}

/// Members and elements of one item. Types that contain themselves, which only broken BTF has, would never end.
const BUDGET: u32 = 1 << 16;

/// Structs and arrays inside each other, whatever the options say: each takes a frame of the stack.
const DEPTH_MAX: u32 = 64;

/// This many equal elements of an array are folded.
const FOLD: usize = 4;

/// Where a value stands.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Structs, unions and arrays around it.
    pub(super) depth: u32,
    /// Structs and unions around it that have a name: what `--depth` counts.
    level: u32,
    /// In an array: the array's cast has told the type.
    in_array: bool,
    /// What the names around it say about its numbers.
    pub(super) hint: Hint,
    /// How many bytes of how many are there, if not all are. Only at depth 0.
    cut: Option<Cut>,
}

impl<'w, 'a, S: Sink> Walker<'w, 'a, S> {
    /// Shows one value of a record. `false` if the record has no room for it: the rest is not there either.
    pub(super) fn item(&mut self, plan: &ItemPlan, layout: &ItemLayout, record: &[u8]) -> bool {
        let header = usize::try_from(layout.offset)
            .ok()
            .and_then(|offset| record.get(offset..));
        let parts = header.and_then(|item| {
            let value = item.get(wire::VALUE as usize..)?;
            Some((u32_at(item, wire::FAULT)?, u32_at(item, wire::LENGTH)?, value))
        });
        let Some((fault, length, value)) = parts else {
            self.sink.truncated();
            return false;
        };
        self.format = layout.format;
        self.budget = BUDGET;
        self.sink.begin_item(&plan.label);
        let complete = if fault != 0 {
            self.faulted(plan, layout, fault, value)
        } else {
            self.item_value(plan, layout, length, value)
        };
        if complete.is_none() {
            self.sink.truncated();
        }
        self.sink.end_item();
        complete.is_some()
    }

    /// `None` if bytes are missing, here and below.
    fn faulted(&mut self, plan: &ItemPlan, layout: &ItemLayout, fault: u32, value: &[u8]) -> Option<()> {
        let address = u64_at(value, 0)?;
        // A negative number is the error code of reading through the shown pointer itself.
        let own = (fault as i32) < 0;
        let step = match layout.steps.get((fault as usize).wrapping_sub(1)) {
            Some(step) if !own => step.as_str(),
            Some(_) | None => &*layout.label,
        };
        // The pointer itself was read, it is what it points to that was not.
        if own && !self.pointer_of_item(plan, address) {
            return Some(());
        }
        self.sink.fault(step, address);
        Some(())
    }

    fn item_value(&mut self, plan: &ItemPlan, layout: &ItemLayout, length: u32, value: &[u8]) -> Option<()> {
        let shape = &*plan.shape;
        match &layout.value {
            ValueLayout::Scalar => {
                let raw = u64_at(value, 0)?;
                self.scalar_item(plan, raw);
                Some(())
            }
            ValueLayout::Pointee {
                pointee,
                copied,
                full,
            } => {
                let address = u64_at(value, 0)?;
                if matches!(layout.format, Some(Format::Symbol | Format::Errno)) {
                    self.scalar_item(plan, address);
                    return Some(());
                }
                if !self.pointer_of_item(plan, address) {
                    return Some(());
                }
                let shape = match &plan.pointee {
                    Some(shape) => Rc::clone(shape),
                    None => self.shapes.of(*pointee),
                };
                self.memory(&shape, plan.hint, value.get(8..)?, *copied, *full)
            }
            ValueLayout::Bytes { copied, full } => self.memory(shape, plan.hint, value, *copied, *full),
            ValueLayout::String { capacity } => {
                let cut = length & wire::CUT != 0;
                let wanted = (length & !wire::CUT).min(*capacity);
                let bytes = clip(value, wanted);
                // A task's name comes in 16 bytes, of which a NUL ends the text.
                let text = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                let whole = bytes.len() == wanted as usize;
                let ended = text < bytes.len();
                let (bytes, wanted) = match ended {
                    true => (clip(bytes, text as u32), text as u32),
                    false => (bytes, wanted),
                };
                let cut = cut || wanted.saturating_add(1) >= *capacity;
                self.text_item(shape, bytes, wanted, !ended && cut);
                whole.then_some(())
            }
            ValueLayout::Name => {
                let name = usize::try_from(u64_at(value, 0)?)
                    .ok()
                    .and_then(|which| self.names.get(which))?;
                self.text_item(shape, name.as_bytes(), name.len() as u32, false);
                Some(())
            }
            ValueLayout::Stack { depth, user } => {
                let (frames, complete) = stack::item(value, length, *depth, *user, self.symbols)?;
                self.sink.leaf(None, Leaf::Stack(&frames));
                complete.then_some(())
            }
            ValueLayout::Buffer { capacity } => {
                let wanted = length.min(*capacity);
                let bytes = clip(value, wanted);
                let cast = value_cast(shape);
                // More was asked for than there was room for.
                let tail = if length > *capacity {
                    Tail::Of(length)
                } else {
                    Tail::Whole
                };
                if !self.formatted_bytes(cast, bytes, length) {
                    self.sink.leaf(cast, Leaf::Raw(bytes, tail));
                }
                (bytes.len() == wanted as usize).then_some(())
            }
        }
    }

    /// Shows a text as the item's format says.
    fn text_item(&mut self, shape: &Shape, bytes: &[u8], wanted: u32, cut: bool) {
        let leaf = match self.format {
            Some(Format::Dump) => Leaf::Dump(bytes, Tail::Whole),
            Some(
                Format::Signed
                | Format::Unsigned
                | Format::Hex
                | Format::Octal
                | Format::Binary
                | Format::Char
                | Format::String
                | Format::Ip
                | Format::Mac
                | Format::Symbol
                | Format::Errno
                | Format::BigEndian,
            )
            | None => self.text(bytes, wanted, cut),
        };
        self.sink.leaf(value_cast(shape), leaf);
    }

    /// Shows the pointer of an item. `false` if it points to nothing that could be shown.
    fn pointer_of_item(&mut self, plan: &ItemPlan, address: u64) -> bool {
        match (address, err_ptr(address)) {
            (0, _) => self.sink.no_pointer(&plan.shape.cast, Leaf::Null),
            (_, Some(number)) => self.sink.no_pointer(&plan.shape.cast, Leaf::ErrPtr(number)),
            (_, None) => {
                self.sink.pointer(address);
                return true;
            }
        }
        false
    }

    fn scalar_item(&mut self, plan: &ItemPlan, raw: u64) {
        let shape = &*plan.shape;
        let place = Place::top(plan.hint, None);
        match &shape.kind {
            ShapeKind::Composite { .. } | ShapeKind::Array { .. } => {
                // A struct small enough for a register.
                let bytes = raw.to_le_bytes();
                let _ = self.memory(shape, plan.hint, &bytes, shape.size.min(8), shape.size);
            }
            // Its type is one byte, but the value is not cut to it: any nonzero one is true.
            ShapeKind::Bool => self.number(shape, u128::from(raw), 64, place),
            ShapeKind::Void if self.format.is_none() => self.sink.leaf(None, Leaf::Void),
            ShapeKind::Void
            | ShapeKind::Int { .. }
            | ShapeKind::Char { .. }
            | ShapeKind::Float
            | ShapeKind::Pointer { .. }
            | ShapeKind::Enum(_)
            | ShapeKind::Opaque => {
                let width = match shape.size {
                    size @ 1..=7 => size * 8,
                    _ => 64,
                };
                self.number(shape, u128::from(raw) & mask(width), width, place);
            }
        }
    }

    /// Shows memory of a type, of which `copied` bytes of `full` should be in `value`.
    fn memory(&mut self, shape: &Shape, hint: Hint, value: &[u8], copied: u32, full: u32) -> Option<()> {
        let bytes = clip(value, copied);
        let cut = (bytes.len() < full as usize).then_some(Cut::Bytes(bytes.len() as u32, full));
        if !self.formatted_bytes(value_cast(shape), bytes, full) {
            self.value(shape, bytes, Place::top(hint, cut));
        }
        (bytes.len() == copied as usize).then_some(())
    }

    /// Shows a value of any type. `false` if it is a struct or union of which nothing was to be shown.
    fn value(&mut self, shape: &Shape, bytes: &[u8], place: Place) -> bool {
        let place = Place {
            hint: if shape.hint == Hint::None {
                place.hint
            } else {
                shape.hint
            },
            ..place
        };
        let cast = place.cast(shape);
        match &shape.kind {
            ShapeKind::Composite {
                members,
                list_head,
                short,
            } => {
                if *list_head && let (Some(next), Some(prev)) = (u64_at(bytes, 0), u64_at(bytes, 8)) {
                    self.sink.leaf(cast, Leaf::List(next, prev));
                    return true;
                }
                if place.level >= self.options.depth || place.depth >= DEPTH_MAX {
                    self.sink.leaf(cast, Leaf::Elided(Brackets::Curly));
                    return true;
                }
                self.sink.open(cast, Brackets::Curly, *short);
                let shown = self.members(members, bytes, place);
                if let Some(cut) = place.cut {
                    self.sink.cut(cut);
                }
                self.sink.close(Brackets::Curly);
                shown
            }
            ShapeKind::Array {
                elem,
                elem_size,
                len,
                text,
            } => {
                if *text && !self.wants_numbers() {
                    self.char_array(cast, bytes, *len);
                } else if place.depth >= DEPTH_MAX {
                    self.sink.leaf(cast, Leaf::Elided(Brackets::Square));
                } else {
                    self.sink.open(cast, Brackets::Square, false);
                    let elem = self.shapes.of(*elem);
                    self.elements(&elem, *elem_size as usize, *len, bytes, place);
                    if let Some(cut) = place.cut {
                        self.sink.cut(cut);
                    }
                    self.sink.close(Brackets::Square);
                }
                true
            }
            ShapeKind::Void
            | ShapeKind::Int { .. }
            | ShapeKind::Bool
            | ShapeKind::Char { .. }
            | ShapeKind::Float
            | ShapeKind::Pointer { .. }
            | ShapeKind::Enum(_)
            | ShapeKind::Opaque => {
                match bytes.get(..shape.size as usize) {
                    Some(bytes) if bytes.len() <= 16 => {
                        self.number(shape, read_le(bytes), bytes.len() as u32 * 8, place);
                    }
                    Some(bytes) => self.sink.leaf(cast, Leaf::Dump(bytes, Tail::Whole)),
                    None => self
                        .sink
                        .leaf(cast, Leaf::Cut(Cut::Bytes(bytes.len() as u32, shape.size))),
                }
                true
            }
        }
    }

    /// Shows members. `false` if there was nothing to show.
    fn members(&mut self, members: &[Member], bytes: &[u8], place: Place) -> bool {
        let zeros = self.options.zeros;
        let mut shown = false;
        for member in members {
            let Some(left) = self.budget.checked_sub(1) else {
                self.sink.cut(Cut::Budget);
                return true;
            };
            self.budget = left;
            let place = Place {
                depth: place.depth + 1,
                level: place.level + u32::from(!member.name.is_empty()),
                in_array: place.in_array,
                hint: member.hint,
                cut: None,
            };
            if let Some(width) = member.bitfield {
                let Some(raw) = bits(bytes, member.bit_offset, width) else {
                    continue;
                };
                if raw != 0 || zeros {
                    let shape = self.shapes.of(member.ty);
                    self.sink.begin_member(Some(&member.name));
                    self.number(&shape, raw, u32::from(width), place);
                    self.sink.end_member(1);
                    shown = true;
                }
                continue;
            }
            // What lies beyond the end was cut off, which is told once, for the whole value.
            let inside = bytes.get((member.bit_offset / 8) as usize..).unwrap_or(&[]);
            let inside = clip(inside, member.size);
            if inside.is_empty() || (!zeros && all_zero(inside)) {
                continue;
            }
            let shape = self.shapes.of(member.ty);
            let whole = inside.len() == member.size as usize;
            if !whole && !matches!(shape.kind, ShapeKind::Composite { .. } | ShapeKind::Array { .. }) {
                continue;
            }
            let mark = self.sink.mark();
            self.sink.begin_member(Some(&member.name));
            if self.value(&shape, inside, place) || zeros {
                self.sink.end_member(1);
                shown = true;
            } else {
                // All that was not zero in it was padding.
                self.sink.rewind(mark);
            }
        }
        shown
    }

    fn elements(&mut self, elem: &Shape, size: usize, len: u32, bytes: &[u8], place: Place) {
        if size == 0 {
            return;
        }
        let place = Place {
            depth: place.depth + 1,
            level: place.level,
            in_array: true,
            hint: place.hint,
            cut: None,
        };
        let bytes = clip(bytes, u32::try_from(size).unwrap_or(0).saturating_mul(len));
        let end = if self.options.zeros {
            bytes.len() / size
        } else {
            // The last element that is not zero, if it is all there.
            let last = bytes.iter().rposition(|byte| *byte != 0);
            last.map_or(0, |last| last / size + 1).min(bytes.len() / size)
        };
        let element = |index: usize| bytes.get(index * size..(index + 1) * size).unwrap_or(&[]);
        let mut index = 0;
        let mut shown = 0;
        while index < end {
            if shown >= self.options.max_array {
                self.sink.cut(Cut::Elements(index as u32, len));
                return;
            }
            let Some(left) = self.budget.checked_sub(1) else {
                self.sink.cut(Cut::Budget);
                return;
            };
            self.budget = left;
            let this = element(index);
            let repeats = if S::FOLDS {
                let run = 1 + (index + 1..end).take_while(|next| element(*next) == this).count();
                if run >= FOLD { run } else { 1 }
            } else {
                1
            };
            self.sink.begin_member(None);
            self.value(elem, this, place);
            self.sink.end_member(repeats as u32);
            index += repeats;
            shown += 1;
        }
    }

    /// A C string: what comes after the NUL is no part of it, and is mostly what an earlier, longer string has left. Without a NUL,
    /// all of it. Where zeros are asked for, the NUL and what is behind it are shown, up to the last byte that is something.
    fn char_array(&mut self, cast: Option<&str>, bytes: &[u8], len: u32) {
        let bytes = clip(bytes, len);
        let leaf = if self.format == Some(Format::Dump) {
            let tail = if bytes.len() < len as usize {
                Tail::Of(len)
            } else {
                Tail::Whole
            };
            Leaf::Dump(bytes, tail)
        } else {
            let shown = match self.options.zeros {
                true => {
                    let last = bytes.iter().rposition(|byte| *byte != 0);
                    clip(bytes, last.map_or(0, |last| last as u32 + 1))
                }
                false => c_string(bytes),
            };
            let cut_off = shown.len() == bytes.len() && bytes.len() < len as usize;
            self.text(shown, if cut_off { len } else { shown.len() as u32 }, false)
        };
        self.sink.leaf(cast, leaf);
    }
}

impl Place {
    fn top(hint: Hint, cut: Option<Cut>) -> Place {
        Place {
            depth: 0,
            level: 0,
            in_array: false,
            hint,
            cut,
        }
    }

    pub(super) fn cast<'x>(&self, shape: &'x Shape) -> Option<&'x str> {
        if self.in_array { None } else { value_cast(shape) }
    }
}

/// `void` says nothing about a value.
fn value_cast(shape: &Shape) -> Option<&str> {
    match shape.kind {
        ShapeKind::Void => None,
        ShapeKind::Int { .. }
        | ShapeKind::Bool
        | ShapeKind::Char { .. }
        | ShapeKind::Float
        | ShapeKind::Pointer { .. }
        | ShapeKind::Enum(_)
        | ShapeKind::Array { .. }
        | ShapeKind::Composite { .. }
        | ShapeKind::Opaque => Some(&shape.cast),
    }
}

fn clip(bytes: &[u8], len: u32) -> &[u8] {
    bytes.get(..len as usize).unwrap_or(bytes)
}

fn mask(width: u32) -> u128 {
    (1u128 << width.min(127)) - 1
}
