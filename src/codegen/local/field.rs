//! The arithmetic of CO-RE field relocations, as libbpf does it. In: where a field is, in bits. Out: what loaders put into
//! instructions.

/// Where a field is, the way loaders compute it.
pub(super) struct FieldPlace {
    pub(super) byte_offset: u64,
    pub(super) byte_size: u64,
    bit_offset: u64,
    bit_size: u64,
}

impl FieldPlace {
    /// For a bitfield the unit is its declared type's size, aligned, and grows until the field fits; `None` if that
    /// would be more than 8 bytes.
    pub(super) fn new(bits: u64, size: u32, width: Option<u8>) -> Option<FieldPlace> {
        let mut byte_size = u64::from(size);
        let Some(width) = width else {
            return Some(FieldPlace {
                byte_offset: bits / 8,
                byte_size,
                bit_offset: bits,
                bit_size: 8 * byte_size,
            });
        };
        let width = u64::from(width);
        byte_size = byte_size.max(1);
        let mut byte_offset = bits / 8 / byte_size * byte_size;
        while bits + width - 8 * byte_offset > 8 * byte_size {
            if byte_size >= 8 {
                return None;
            }
            byte_size *= 2;
            byte_offset = bits / 8 / byte_size * byte_size;
        }
        Some(FieldPlace {
            byte_offset,
            byte_size,
            bit_offset: bits,
            bit_size: width,
        })
    }

    pub(super) fn lshift(&self) -> u64 {
        let used = self.bit_offset + self.bit_size - 8 * self.byte_offset;
        64u64.saturating_sub(used)
    }

    pub(super) fn rshift(&self) -> u64 {
        64u64.saturating_sub(self.bit_size)
    }
}
