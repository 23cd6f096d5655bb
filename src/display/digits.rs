//! Digits, appended to a string without going through the formatting machinery: an event is mostly numbers. In: integers.
//! Out: text. Never allocates but for the string's own growth.

/// Appends a number in decimal.
pub(super) fn push_u128(out: &mut String, value: u128) {
    let mut buffer = itoa::Buffer::new();
    // Numbers of more than 64 bits are rare, and dividing them takes much longer.
    out.push_str(match u64::try_from(value) {
        Ok(value) => buffer.format(value),
        Err(_) => buffer.format(value),
    });
}

/// Appends a signed number in decimal.
pub(super) fn push_i128(out: &mut String, value: i128) {
    let mut buffer = itoa::Buffer::new();
    out.push_str(match i64::try_from(value) {
        Ok(value) => buffer.format(value),
        Err(_) => buffer.format(value),
    });
}

/// Appends a number in hexadecimal, with `0x`.
pub(super) fn push_hex(out: &mut String, value: u128) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = 32 - (value.leading_zeros() / 4).min(31);
    out.push_str("0x");
    for place in (0..digits).rev() {
        let nibble = (value >> (place * 4)) & 15;
        out.push(char::from(DIGITS[nibble as usize]));
    }
}

/// Appends bytes in hexadecimal, two digits each and nothing between.
pub(super) fn push_bytes(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// Appends a number in decimal, right-aligned in so many columns.
pub(super) fn padded(out: &mut String, value: u64, columns: usize) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value);
    spaces(out, columns.saturating_sub(digits.len()));
    out.push_str(digits);
}

/// Appends so many spaces.
pub(super) fn spaces(out: &mut String, count: usize) {
    const SPACES: &str = "                                                                ";
    let mut left = count;
    while left > 0 {
        let now = left.min(SPACES.len());
        out.push_str(&SPACES[..now]);
        left -= now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_standard_library_writes_them() {
        let mut values: Vec<u128> = (0..128).map(|bit| 1u128 << bit).collect();
        values.extend([0, 9, 10, 15, 16, 255, u128::from(u64::MAX), u128::MAX]);
        for value in values {
            let mut out = String::new();
            push_u128(&mut out, value);
            out.push(' ');
            push_i128(&mut out, value as i128);
            out.push(' ');
            push_hex(&mut out, value);
            out.push(' ');
            padded(&mut out, value as u64, 9);
            push_bytes(&mut out, &[value as u8]);
            assert_eq!(
                out,
                format!(
                    "{value} {} {value:#x} {:9}{:02x}",
                    value as i128, value as u64, value as u8
                )
            );
        }
    }
}
