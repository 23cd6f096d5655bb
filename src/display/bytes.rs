//! Reading numbers out of little endian memory. In: bytes and where to look. Out: numbers, or `None` where there are not
//! enough bytes. Never panics.

/// The 32-bit number at an offset.
pub(super) fn u32_at(bytes: &[u8], offset: u32) -> Option<u32> {
    let chunk = bytes.get(offset as usize..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*chunk))
}

/// The 64-bit number at an offset.
pub(super) fn u64_at(bytes: &[u8], offset: u32) -> Option<u64> {
    let chunk = bytes.get(offset as usize..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*chunk))
}

/// The number that at most 16 bytes make; later ones are ignored.
pub(super) fn read_le(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .take(16)
        .rev()
        .fold(0, |sum, byte| (sum << 8) | u128::from(*byte))
}

/// The bitfield of `width` bits, 1 to 64, that begins at a bit. It may lie in nine bytes.
pub(super) fn bits(bytes: &[u8], bit_offset: u32, width: u8) -> Option<u128> {
    let width = u32::from(width.clamp(1, 64));
    let shift = bit_offset % 8;
    let start = (bit_offset / 8) as usize;
    let needed = (shift + width).div_ceil(8) as usize;
    let covering = bytes.get(start..start.checked_add(needed)?)?;
    Some((read_le(covering) >> shift) & ((1 << width) - 1))
}

/// The number of `width` bits as a signed one.
pub(super) fn sign_extend(raw: u128, width: u32) -> i128 {
    let unused = 128 - width.clamp(1, 128);
    ((raw << unused) as i128) >> unused
}

/// Whether all bytes are zero.
pub(super) fn all_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<8>();
    chunks.iter().all(|chunk| u64::from_ne_bytes(*chunk) == 0) && rest.iter().all(|byte| *byte == 0)
}

/// What comes before the first NUL, else all.
pub(super) fn c_string(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.get(..end).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitfields_of_every_place_and_width() {
        // A pattern in which no two neighbouring windows are alike.
        let bytes: Vec<u8> = (0..24u32).map(|i| (i * 0x9d + 0x35) as u8).collect();
        for offset in 0..100u32 {
            for width in 1..=64u8 {
                let mut wanted = 0u128;
                for bit in 0..u32::from(width) {
                    let at = offset + bit;
                    let set = (bytes[(at / 8) as usize] >> (at % 8)) & 1;
                    wanted |= u128::from(set) << bit;
                }
                assert_eq!(bits(&bytes, offset, width), Some(wanted), "{offset} {width}");
            }
        }
        assert_eq!(bits(&[0; 8], 1, 64), None);
        assert_eq!(bits(&[0; 8], u32::MAX, 64), None);
    }

    #[test]
    fn numbers() {
        assert_eq!(sign_extend(0b111, 3), -1);
        assert_eq!(sign_extend(0b011, 3), 3);
        assert_eq!(sign_extend(u128::MAX, 128), -1);
        assert_eq!(sign_extend(0, 0), 0);
        assert_eq!(u32_at(&[1, 0, 0], 0), None);
        assert_eq!(u64_at(&[1, 0, 0, 0, 0, 0, 0, 0], 0), Some(1));
        assert_eq!(u64_at(&[0; 8], u32::MAX), None);
        assert!(all_zero(&[0; 17]));
        assert!(!all_zero(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]));
        assert_eq!(c_string(b"ab\0cd"), b"ab");
        assert_eq!(c_string(b"ab"), b"ab");
    }
}
