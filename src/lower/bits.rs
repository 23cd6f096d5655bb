//! Bitfields: the integer that contains one is read, and its bits are cut out by relocated shifts. In: a place with a bit range. Out:
//! its value, extended by its sign. A field in nine bytes has no relocation and is put together by hand.

use super::expr::{Shape, width};
use super::program::Lower;
use super::walk::Seen;
use crate::ctype::CType;
use crate::ir::build::call;
use crate::ir::{BinaryOp, Bits, CmpOp, RelocData, RelocKind, Type, Value, Width};
use crate::span::Span;
use crate::typed::{BitRange, Memory, Path, Place};
use crate::types::{self, TypeId};

/// An element of an array, on the way to a bitfield in it.
pub(super) struct Element {
    ty: TypeId,
    /// How many steps of the path lead to it.
    steps: usize,
    /// How many bytes from where the path starts.
    start: u64,
}

impl Lower<'_> {
    /// A bitfield in kernel or user memory.
    pub(super) fn load_bits(
        &mut self,
        place: &Place,
        bits: BitRange,
        base: Value,
        step: Span,
        memory: Memory,
    ) -> Value {
        if let Some(path) = &place.path
            && let Some(element) = self.uneven_element(path, bits.unit)
        {
            let (inner, moved, bits) = self.inside(place, path, &element, bits, base, memory);
            return self.load_bits_at(&inner, bits, moved, (step, base), memory);
        }
        self.load_bits_at(place, bits, base, (step, base), memory)
    }

    /// The last element of an array on the way that must be a base of its own. One is `root[n]`: aya takes a root's index for bits,
    /// not bytes, where it computes a bitfield's local place (`AccessSpec::new`, aya-obj's relocation.rs), and refuses what then
    /// seems to lie in nine bytes. The other is a packed struct whose size is no multiple of the bitfield's unit: as the local
    /// struct is of the same size, one of its elements may lay the field across nine bytes where the kernel's does not.
    pub(super) fn uneven_element(&self, path: &Path, unit: u8) -> Option<Element> {
        let size = |id| self.types.size_of(id).unwrap_or(0);
        let mut at = self.types.complete(path.root);
        let mut start = u64::from(path.access[0]) * size(at);
        let mut found = (start != 0).then_some(Element {
            ty: at,
            steps: 1,
            start,
        });
        for (step, index) in path.access.iter().enumerate().skip(1) {
            if let types::Type::Array { elem, .. } = self.types.get(at) {
                at = self.types.complete(elem);
                start += u64::from(*index) * size(at);
                if self.types.composite(at).is_some() && !size(at).is_multiple_of(u64::from(unit)) {
                    found = Some(Element {
                        ty: at,
                        steps: step + 1,
                        start,
                    });
                }
            } else {
                let composite = self.types.composite(at)?;
                let member = composite.members.get(*index as usize)?;
                start += u64::from(member.bit_offset / 8);
                at = self.types.complete(member.ty);
            }
        }
        found
    }

    /// The address of an element, and the place and its bits from there.
    fn inside(
        &mut self,
        place: &Place,
        path: &Path,
        element: &Element,
        bits: BitRange,
        base: Value,
        memory: Memory,
    ) -> (Place, Value, BitRange) {
        let (to, after) = path.access.split_at(element.steps);
        let whole = Path {
            access: to.to_vec(),
            ..path.clone()
        };
        let space = self.space_of(memory);
        self.at(place.span, path.text.clone());
        let reloc = self.offset_reloc(&whole, element.start);
        let base = self.loose(base, space);
        let moved = self.b.field_addr(base, reloc);
        let inside = Path {
            root: element.ty,
            access: [&[0], after].concat(),
            ..path.clone()
        };
        let bits = BitRange {
            first: bits.first - 8 * element.start,
            ..bits
        };
        let place = Place {
            path: Some(inside),
            offset: place.offset - element.start,
            bits: Some(bits),
            ..place.clone()
        };
        (place, moved, bits)
    }

    /// As `load_bits`, where the step that can be a fault is not from the base itself.
    fn load_bits_at(
        &mut self,
        place: &Place,
        bits: BitRange,
        base: Value,
        (step, from): (Span, Value),
        memory: Memory,
    ) -> Value {
        let Some((size, offset)) = container(bits) else {
            return self.load_wide_bits(place, bits, base, (step, from), memory);
        };
        let image = self.in_window(base, memory, offset, size);
        let raw = match self.plainly(place, base, offset, size) {
            _ if let (Some(image), Some(path)) = (image, &place.path) => {
                let reloc = self.offset_reloc(path, offset);
                self.at(place.span, path.text.clone());
                self.b.load_field(Type::Int, width(size), image, reloc)
            }
            Some((path, Seen::Number)) => {
                self.good(base, step);
                let reloc = self.offset_reloc(path, offset);
                self.at(place.span, path.text.clone());
                self.b.load_field(Type::Int, width(size), base, reloc)
            }
            Some(_) | None => {
                let whole = Place {
                    offset,
                    bits: None,
                    ..place.clone()
                };
                let address = self.place_address(&whole, base, memory);
                self.at(place.span, "the integer with the bitfield");
                let slot = self.scratch();
                self.probe_into(slot, size, address, memory, Some((step, from)))
            }
        };
        let up = 64 - (bits.first + u64::from(bits.width) - offset * 8);
        let down = 64 - u64::from(bits.width);
        let Some(path) = &place.path else {
            return self.cut(
                raw,
                BitRange {
                    first: bits.first - offset * 8,
                    ..bits
                },
                &place.ty,
            );
        };
        let shift = |kind, kernel| RelocData {
            kind,
            root: path.root,
            access: path.access.clone(),
            text: path.text.clone(),
            kernel,
        };
        let (left, right) = (
            shift(RelocKind::FieldLshiftU64, up),
            shift(RelocKind::FieldRshiftU64, down),
        );
        self.at(place.span, path.text.clone());
        let left = self.b.reloc(left);
        let raw = self.b.reloc_shift(BinaryOp::Shl, raw, left);
        let right = self.b.reloc(right);
        let op = if self.is_signed(&place.ty) {
            BinaryOp::Ashr
        } else {
            BinaryOp::Lshr
        };
        self.b.reloc_shift(op, raw, right)
    }

    /// A packed bitfield in nine bytes: no relocation describes one, so the way to its bytes is the compiling side's.
    fn load_wide_bits(
        &mut self,
        place: &Place,
        bits: BitRange,
        base: Value,
        (step, from): (Span, Value),
        memory: Memory,
    ) -> Value {
        let first = bits.first / 8;
        let space = self.space_of(memory);
        let start = self.loose(base, space);
        self.at(place.span, "the nine bytes with the bitfield");
        let address = self.b.add(start, first as i32);
        let slot = self.b.slot(16);
        let to = self.b.slot_addr(slot);
        let status = self.probe(to, 9, address, memory);
        let (good, bad) = self.fault_blocks(step, from);
        self.b
            .branch_with(CmpOp::Ne, Bits::W64, status, 0, bad, call(good, &[]));
        self.b.switch_to(good);
        let from = self.b.slot_addr(slot);
        let bits = BitRange {
            first: bits.first - first * 8,
            ..bits
        };
        let raw = self.gather(from, bits);
        self.cut(raw, bits, &place.ty)
    }

    /// The bits of a bitfield that lies in readable memory of ours: what is above them is not cleared if they fit 8 bytes.
    pub(super) fn gather(&mut self, base: Value, bits: BitRange) -> Value {
        match container(bits) {
            Some((size, offset)) => self.load_own(base, offset as i16, size),
            None => {
                let byte = (bits.first / 8) as i16;
                let by = (bits.first % 8) as i32;
                let low = self.b.load(Type::Int, Width::B8, base, byte);
                let high = self.b.load(Type::Int, Width::B1, base, byte + 8);
                let low = self.b.binary(BinaryOp::Lshr, Bits::W64, low, by);
                let high = self.b.binary(BinaryOp::Shl, Bits::W64, high, 64 - by);
                self.b.binary(BinaryOp::Or, Bits::W64, low, high)
            }
        }
    }

    /// Cuts a bitfield out of the integer that contains it, without relocations.
    pub(super) fn cut(&mut self, raw: Value, bits: BitRange, ty: &CType) -> Value {
        let first = match container(bits) {
            Some((_, offset)) => bits.first - offset * 8,
            None => 0,
        };
        self.cut_at(raw, first, bits.width, ty)
    }

    fn cut_at(&mut self, raw: Value, first: u64, bit_width: u8, ty: &CType) -> Value {
        let up = 64 - (first as i32 + i32::from(bit_width));
        let down = 64 - i32::from(bit_width);
        let raw = if up == 0 {
            raw
        } else {
            self.b.binary(BinaryOp::Shl, Bits::W64, raw, up)
        };
        let op = if self.is_signed(ty) {
            BinaryOp::Ashr
        } else {
            BinaryOp::Lshr
        };
        if down == 0 {
            raw
        } else {
            self.b.binary(op, Bits::W64, raw, down)
        }
    }

    fn is_signed(&self, ty: &CType) -> bool {
        matches!(self.shape(ty), Shape::Int(_, true))
    }
}

/// The integer that libbpf and aya read a bitfield from: its size and byte offset. It is aligned to the declared
/// type's size, and grows while the field does not fit; `None` if more than 8 bytes would be needed.
pub(super) fn container(bits: BitRange) -> Option<(u32, u64)> {
    let mut size = u64::from(bits.unit);
    loop {
        let offset = bits.first / 8 / size * size;
        if bits.first + u64::from(bits.width) - offset * 8 <= size * 8 {
            return Some((size as u32, offset));
        }
        if size >= 8 {
            return None;
        }
        size *= 2;
    }
}
