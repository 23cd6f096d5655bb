//! What literals mean. In: the text of one, as the tokeniser cut it; out: its value, or a diagnostic whose spans count
//! from the beginning of that text. Never looks at what is around it.

use super::ast::{IntLit, Radix};
use crate::diag::{Code, Diagnostic};
use crate::span::Span;

/// The value of a number: C's integers with C's suffixes in any case and order, and `0b…`.
pub(super) fn integer(text: &str) -> Result<IntLit, Box<Diagnostic>> {
    let bytes = text.as_bytes();
    let (radix, skip) = match bytes {
        [b'0', b'x' | b'X', ..] => (Radix::Hex, 2),
        [b'0', b'b' | b'B', ..] => (Radix::Binary, 2),
        [b'0', b'0'..=b'9' | b'_', ..] => (Radix::Octal, 1),
        _ => (Radix::Decimal, 0),
    };
    let (base, article) = match radix {
        Radix::Hex => (16, "a hexadecimal"),
        Radix::Binary => (2, "a binary"),
        Radix::Octal => (8, "an octal"),
        Radix::Decimal => (10, "a decimal"),
    };
    if radix != Radix::Hex && is_float(text) || text.contains('.') {
        let message = "there are no floating point numbers in the kernel";
        return error(
            Code::FloatLiteral,
            0..text.len(),
            message,
            "not an integer",
            "write an integer",
        );
    }
    if let Some(at) = text.find('_') {
        let plain = text.replace('_', "");
        return error(
            Code::BadSuffix,
            at..at + 1,
            "numbers have no `_` in C",
            "not a digit",
            &format!("write `{plain}`"),
        );
    }
    if let [b'0', b'o' | b'O', digits @ ..] = bytes
        && digits.first().is_some_and(u8::is_ascii_digit)
    {
        let help = format!("C writes octal numbers with a leading zero: `0{}`", &text[2..]);
        return error(Code::BadSuffix, 1..2, "`0o` is not C", "not a base", &help);
    }

    // Digits that a smaller base hasn't are taken along, so that they are told as digits and not as a suffix.
    let is_digit = |b: &u8| {
        if base == 16 {
            b.is_ascii_hexdigit()
        } else {
            b.is_ascii_digit()
        }
    };
    let count = bytes[skip..].iter().take_while(|b| is_digit(b)).count();
    let (digits, suffix) = (&text[skip..skip + count], &text[skip + count..]);
    if let Some(at) = digits.bytes().position(|b| !(b as char).is_digit(base)) {
        let at = skip + at;
        let message = format!("`{}` is not a digit of {article} number", &text[at..=at]);
        let help = match radix {
            Radix::Octal => {
                format!(
                    "a leading zero means octal; write `{}` for decimal",
                    text.trim_start_matches('0')
                )
            }
            Radix::Binary | Radix::Decimal | Radix::Hex => {
                "binary numbers have the digits 0 and 1".to_owned()
            }
        };
        return error(Code::BadDigit, at..at + 1, &message, "not a digit here", &help);
    }
    if digits.is_empty() && radix != Radix::Octal {
        let message = format!("{article} number without digits");
        let help = format!("write at least one digit after `{}`", &text[..skip]);
        return error(Code::BadDigit, 0..text.len(), &message, "no digit here", &help);
    }

    // C's own words, so that `Ul` and `LLU` are right and `lul` is not. It also forbids `lL`; that is let through.
    let (unsigned, longs) = match suffix.to_ascii_lowercase().as_str() {
        "" => (false, 0),
        "u" => (true, 0),
        "l" => (false, 1),
        "ll" => (false, 2),
        "ul" | "lu" => (true, 1),
        "ull" | "llu" => (true, 2),
        _ => {
            let at = skip + count;
            let hex = suffix.bytes().all(|b| b.is_ascii_hexdigit());
            let message = format!("`{suffix}` is not a suffix of an integer");
            let help = match hex {
                true => format!("a hexadecimal number begins with `0x`: `0x{digits}{suffix}`"),
                false => "C's suffixes are `u`, `l`, `ll`, `ul` and `ull`".to_owned(),
            };
            return error(Code::BadSuffix, at..text.len(), &message, "not a suffix", &help);
        }
    };
    match u64::from_str_radix(if digits.is_empty() { "0" } else { digits }, base) {
        Ok(value) => Ok(IntLit {
            value,
            radix,
            unsigned,
            longs,
        }),
        Err(_) => error(
            Code::IntegerTooLarge,
            0..text.len(),
            "this integer needs more than 64 bits",
            "too large",
            "the largest is `0xffffffffffffffff`",
        ),
    }
}

/// The bytes between quotes. `whole` begins with the opening one, `i` follows it; also says what is left after the
/// closing one. `\x` takes one or two hexadecimal digits, so that the text after it can begin with a letter.
pub(super) fn quoted<'a>(
    whole: &str,
    i: &'a str,
    quote: char,
) -> (&'a str, Result<Vec<u8>, Box<Diagnostic>>) {
    let mut bytes = Vec::new();
    let mut wrong = None;
    let mut rest = i;
    loop {
        let at = whole.len() - rest.len();
        let mut chars = rest.chars();
        match chars.next() {
            None => return ("", unterminated(whole, quote)),
            Some(c) if c == quote => return (chars.as_str(), wrong.map_or(Ok(bytes), Err)),
            Some('\\') => match escape(chars.as_str()) {
                Some((byte, used)) => {
                    bytes.push(byte);
                    rest = &rest[1 + used..];
                }
                None => {
                    let after = chars.next().map_or(0, char::len_utf8);
                    wrong.get_or_insert_with(|| bad_escape(&whole[at..at + 1 + after], at));
                    rest = chars.as_str();
                }
            },
            Some(c) => {
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest = chars.as_str();
            }
        }
    }
}

/// The one byte of a character literal, whose whole text is `text`.
pub(super) fn only_byte(text: &str, bytes: &[u8]) -> Result<u8, Box<Diagnostic>> {
    match bytes {
        [byte] => Ok(*byte),
        [] => error(
            Code::BadCharLiteral,
            0..text.len(),
            "an empty character literal",
            "no character between the quotes",
            "write `'\\0'` for the NUL character",
        ),
        _ => error(
            Code::BadCharLiteral,
            0..text.len(),
            "a character literal holds one byte",
            &format!("holds {}", bytes.len()),
            &format!("a text has double quotes: \"{}\"", &text[1..text.len() - 1]),
        ),
    }
}

/// The escape after a backslash: its value and how many bytes it took.
fn escape(i: &str) -> Option<(u8, usize)> {
    let digits = |i: &str, base, most| {
        let count = i.chars().take(most).take_while(|c| c.is_digit(base)).count();
        u8::from_str_radix(&i[..count], base)
            .ok()
            .map(|byte| (byte, count))
    };
    Some(match i.as_bytes().first()? {
        b'n' => (b'\n', 1),
        b't' => (b'\t', 1),
        b'r' => (b'\r', 1),
        b'a' => (7, 1),
        b'b' => (8, 1),
        b'f' => (12, 1),
        b'v' => (11, 1),
        b'e' => (27, 1),
        quoted @ (b'\\' | b'\'' | b'"' | b'?') => (*quoted, 1),
        b'0'..=b'7' => digits(i, 8, 3)?,
        b'x' => digits(&i[1..], 16, 2).map(|(byte, count)| (byte, count + 1))?,
        _ => return None,
    })
}

fn bad_escape(text: &str, at: usize) -> Box<Diagnostic> {
    let (message, help) = match text.as_bytes().get(1) {
        Some(b'x') => (
            "`\\x` without a hexadecimal digit".to_owned(),
            "write two digits, as in `\\x1b`",
        ),
        Some(b'0'..=b'7') => (
            "an octal escape above `\\377`".to_owned(),
            "a byte has at most the value `\\377`",
        ),
        _ => (
            format!("`{text}` is not an escape of C"),
            "write `\\\\` for a backslash",
        ),
    };
    let span = Span::new(at, at + text.len());
    Box::new(
        Diagnostic::error(Code::BadEscape, span, message)
            .label("not an escape")
            .help(help),
    )
}

fn unterminated<T>(whole: &str, quote: char) -> Result<T, Box<Diagnostic>> {
    let (code, what) = match quote {
        '"' => (Code::UnterminatedString, "string"),
        _ => (Code::UnterminatedChar, "character literal"),
    };
    let message = format!("this {what} is not closed");
    let help = format!("add a `{quote}`");
    error(
        code,
        0..whole.trim_end().len(),
        &message,
        &format!("no `{quote}` at the end"),
        &help,
    )
}

/// Digits with a dot or an exponent.
fn is_float(text: &str) -> bool {
    let mantissa = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    mantissa.strip_prefix(['e', 'E']).is_some_and(|power| {
        power
            .trim_start_matches(['+', '-'])
            .starts_with(|c: char| c.is_ascii_digit())
    })
}

fn error<T>(
    code: Code,
    at: std::ops::Range<usize>,
    message: &str,
    label: &str,
    help: &str,
) -> Result<T, Box<Diagnostic>> {
    let span = Span::new(at.start, at.end);
    Err(Box::new(
        Diagnostic::error(code, span, message).label(label).help(help),
    ))
}
