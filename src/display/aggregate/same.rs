//! Keys that look the same made the same. In: the bytes of a key, by its layout and types. Out: the same bytes, zero where nothing is
//! shown of them: the padding of structs, and what is behind the NUL of a text. The kernel compares all bytes, and what lies in those is
//! chance. Never looks at numbers, never trusts a type: what is too deep or too much stays as it is.

use crate::wire::{self, ItemLayout, ValueLayout};

use super::super::bytes::u32_at;
use super::super::shape::{Shape, ShapeKind, Shapes};

/// Structs and arrays inside each other.
const DEPTH: u32 = 64;
/// Members and elements of one key.
const BUDGET: u32 = 1 << 12;

/// Clears what is not shown of one part of a key. `zeros` is whether all bytes of texts are shown.
pub(super) fn clear_unseen(
    shapes: &mut Shapes<'_>,
    shape: &Shape,
    layout: &ItemLayout,
    zeros: bool,
    key: &mut [u8],
) {
    let length = u32_at(key, layout.offset.saturating_add(wire::LENGTH)).unwrap_or(0) & !wire::CUT;
    let start = (layout.offset as usize).saturating_add(wire::VALUE as usize);
    let end = (layout.offset as usize).saturating_add(layout.value.item_size() as usize);
    let Some(value) = key.get_mut(start..end) else {
        return;
    };
    match layout.value {
        ValueLayout::String { .. } => {
            let text = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
            clear_behind(value, text.min(length as usize));
        }
        ValueLayout::Buffer { .. } => clear_behind(value, length as usize),
        // With a format it is shown as a whole, or number by number.
        ValueLayout::Bytes { copied, .. } if layout.format.is_none() => {
            let mut seen = vec![0; (copied as usize).min(value.len())];
            let bytes = value.get(..seen.len()).unwrap_or(&[]);
            let mut cover = Cover {
                shapes,
                zeros,
                budget: BUDGET,
            };
            if cover.value(shape, bytes, &mut seen, 0).is_some() {
                value.iter_mut().zip(&seen).for_each(|(byte, seen)| *byte &= seen);
            }
        }
        ValueLayout::Bytes { .. }
        | ValueLayout::Scalar
        | ValueLayout::Name
        | ValueLayout::Pointee { .. }
        | ValueLayout::Stack { .. } => {}
    }
}

fn clear_behind(value: &mut [u8], length: usize) {
    value.iter_mut().skip(length).for_each(|byte| *byte = 0);
}

/// Finds the bits that are shown.
struct Cover<'s, 'a> {
    shapes: &'s mut Shapes<'a>,
    zeros: bool,
    budget: u32,
}

impl Cover<'_, '_> {
    /// Sets the bits of `seen`, which is as long as `bytes`, that are shown of a value. `None` if that is not known.
    fn value(&mut self, shape: &Shape, bytes: &[u8], seen: &mut [u8], depth: u32) -> Option<()> {
        self.budget = self.budget.checked_sub(1)?;
        if depth > DEPTH {
            return None;
        }
        match &shape.kind {
            ShapeKind::Composite { members, .. } => {
                for member in members {
                    if let Some(width) = member.bitfield {
                        bits(seen, member.bit_offset, width);
                        continue;
                    }
                    let start = (member.bit_offset / 8) as usize;
                    let end = start.saturating_add(member.size as usize).min(bytes.len());
                    if let (Some(bytes), Some(seen)) = (bytes.get(start..end), seen.get_mut(start..end)) {
                        let inner = self.shapes.of(member.ty);
                        self.value(&inner, bytes, seen, depth + 1)?;
                    }
                }
            }
            ShapeKind::Array {
                elem,
                elem_size,
                len,
                text,
            } => {
                let size = *elem_size as usize;
                let length = size.saturating_mul(*len as usize).min(bytes.len());
                if *text && !self.zeros {
                    let bytes = bytes.get(..length).unwrap_or(bytes);
                    let text = bytes.iter().position(|byte| *byte == 0);
                    fill(seen, text.unwrap_or(length));
                } else if *text {
                    fill(seen, length);
                } else if size > 0 {
                    let elem = self.shapes.of(*elem);
                    let all = bytes.chunks(size).zip(seen.chunks_mut(size));
                    for (bytes, seen) in all.take(*len as usize) {
                        self.value(&elem, bytes, seen, depth + 1)?;
                    }
                }
            }
            ShapeKind::Void
            | ShapeKind::Int { .. }
            | ShapeKind::Bool
            | ShapeKind::Char { .. }
            | ShapeKind::Float
            | ShapeKind::Pointer { .. }
            | ShapeKind::Enum(_)
            | ShapeKind::Opaque => fill(seen, shape.size as usize),
        }
        Some(())
    }
}

fn fill(seen: &mut [u8], length: usize) {
    seen.iter_mut().take(length).for_each(|byte| *byte = 0xff);
}

fn bits(seen: &mut [u8], offset: u32, width: u8) {
    for bit in (0..u32::from(width)).map(|bit| offset.saturating_add(bit)) {
        if let Some(byte) = seen.get_mut((bit / 8) as usize) {
            *byte |= 1 << (bit % 8);
        }
    }
}
