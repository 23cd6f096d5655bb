//! Untrusted text made safe for a terminal. In: bytes from the kernel, from user memory or from BTF. Out: printable
//! text, where every byte that could move a cursor, reverse the reading direction or hide something is spelled out.
//! Never drops a byte without a trace, and never emits a control character.

use std::fmt::Write;

/// The content of a quoted string: what is printable in UTF-8 stays, quotes and backslashes get a backslash, control
/// characters become `\n` or `\x1b`, invisible and direction-changing ones `\u{202e}`, bytes that are no UTF-8 `\xff`.
pub(super) fn quoted(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        // Nearly all text is plain, and copying it whole is several times as fast as looking at each character.
        if valid.bytes().all(is_plain) {
            out.push_str(valid);
        } else {
            for c in valid.chars() {
                quoted_char(out, c);
            }
        }
        for byte in chunk.invalid() {
            hex_byte(out, *byte);
        }
    }
}

/// The content of a quoted string of raw memory: like [`quoted`], but every byte outside ASCII is spelled out, for
/// in binary data what looks like UTF-8 does so by chance.
pub(super) fn quoted_ascii(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        if byte.is_ascii() {
            quoted_char(out, char::from(*byte));
        } else {
            hex_byte(out, *byte);
        }
    }
}

/// The content of a JSON string: quotes, backslashes and everything that [`quoted`] would spell out become JSON's own escapes,
/// so that the reader gets the text as it was and a terminal nothing to act on.
pub(super) fn json(out: &mut String, text: &str) {
    if text.bytes().all(is_plain) {
        out.push_str(text);
        return;
    }
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_unsafe(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string can't fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
}

/// Text that stands outside quotes: names from BTF, labels, symbols. Quotes and backslashes stay.
pub(super) fn plain(out: &mut String, text: &str) {
    if text.bytes().all(|byte| (b' '..0x7f).contains(&byte)) {
        out.push_str(text);
        return;
    }
    for c in text.chars() {
        if is_unsafe(c) {
            escaped_char(out, c);
        } else {
            out.push(c);
        }
    }
}

/// [`plain`] as a string of its own.
pub(super) fn plain_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    plain(&mut out, text);
    out
}

/// The content of a character literal.
pub(super) fn character(out: &mut String, byte: u8) {
    match byte {
        b'\'' => out.push_str("\\'"),
        b'"' => out.push('"'),
        byte if byte.is_ascii() => quoted_char(out, char::from(byte)),
        byte => hex_byte(out, byte),
    }
}

/// How many bytes of `bytes` a string may show so that it shows at most `max` and cuts no UTF-8 sequence in two.
pub(super) fn cut_at(bytes: &[u8], max: usize) -> usize {
    if bytes.len() <= max {
        return bytes.len();
    }
    // A UTF-8 sequence has at most three continuation bytes; more of them is no UTF-8 and may be cut anywhere.
    let back = (0..=3)
        .take_while(|back| *back <= max)
        .find(|back| bytes.get(max - back).is_some_and(|byte| byte & 0xc0 != 0x80));
    match back {
        Some(back) if back < max => max - back,
        Some(_) | None => max,
    }
}

fn is_plain(byte: u8) -> bool {
    (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\'
}

fn quoted_char(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        c if is_unsafe(c) => escaped_char(out, c),
        c => out.push(c),
    }
}

fn escaped_char(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c => match u8::try_from(c) {
            Ok(byte) if byte < 0x80 => hex_byte(out, byte),
            Ok(_) | Err(_) => {
                // Writing to a string can't fail.
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
        },
    }
}

fn hex_byte(out: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push_str("\\x");
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// Control characters, and the characters that have no shape of their own but change how their neighbours are shown:
/// direction marks, joiners, separators of lines, variation selectors, tags, private use, and what is unassigned for
/// good.
fn is_unsafe(c: char) -> bool {
    if c.is_control() {
        return true;
    }
    matches!(u32::from(c),
        0xad | 0x34f | 0x61c | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180f
        | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0x3164
        | 0xe000..=0xf8ff | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfffb | 0xfffe..=0xffff
        | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff | 0xf0000..=0x10ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(bytes: &[u8]) -> String {
        let mut out = String::new();
        quoted(&mut out, bytes);
        out
    }

    #[test]
    fn what_is_printable_stays() {
        assert_eq!(q(b"eth0"), "eth0");
        assert_eq!(q("Grüße 日本 🙂".as_bytes()), "Grüße 日本 🙂");
    }

    #[test]
    fn what_could_fool_a_terminal_is_spelled_out() {
        assert_eq!(q(b"\x1b[31m\x07\x00\x7f"), "\\x1b[31m\\x07\\x00\\x7f");
        assert_eq!(
            q("a\u{202e}b\u{200b}\u{9b}".as_bytes()),
            "a\\u{202e}b\\u{200b}\\u{9b}"
        );
        assert_eq!(q(b"a\nb\tc\rd"), "a\\nb\\tc\\rd");
        assert_eq!(q(b"say \"hi\" \\o/"), "say \\\"hi\\\" \\\\o/");
    }

    #[test]
    fn what_is_no_utf8_is_hexadecimal() {
        assert_eq!(q(b"\xff\xc3("), "\\xff\\xc3(");
        let mut out = String::new();
        quoted_ascii(&mut out, "é\u{1}x\"".as_bytes());
        assert_eq!(out, "\\xc3\\xa9\\x01x\\\"");
    }

    #[test]
    fn every_byte_and_every_character_come_out_printable() {
        let every: Vec<u8> = (0..=255u8).collect();
        for text in [q(&every), plain_string(&String::from_utf8_lossy(&every))] {
            assert!(text.chars().all(|c| !is_unsafe(c)), "{text}");
        }
        for c in char::MIN..=char::MAX {
            let mut buffer = [0; 4];
            let one: &str = c.encode_utf8(&mut buffer);
            let text = q(one.as_bytes());
            assert!(text.chars().all(|c| !is_unsafe(c)), "{text}");
            let mut string = "\"".to_string();
            json(&mut string, one);
            string.push('"');
            assert!(string.chars().all(|c| !is_unsafe(c)), "{string}");
            let back: String = serde_json::from_str(&string).expect(&string);
            assert_eq!(back, one);
        }
    }

    #[test]
    fn a_cut_keeps_sequences_whole() {
        assert_eq!(cut_at(b"abc", 5), 3);
        assert_eq!(cut_at(b"abcdef", 3), 3);
        assert_eq!(cut_at("aé".as_bytes(), 2), 1);
        assert_eq!(cut_at("é".as_bytes(), 1), 1);
        assert_eq!(cut_at(&[0x80; 9], 6), 6);
    }
}
