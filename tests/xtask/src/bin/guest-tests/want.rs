//! What an event must be, and whether it is.
//!
//! In: wanted events and those that were read. Out: the differences, in words. Values are compared exactly;
//! only the notation of numbers is free (`'A'` or 65, `true` or 1, an enumerator or its value). It never takes
//! a missing or an additional event or value for right.

use std::collections::BTreeMap;
use std::fmt;

use crate::output::{Event, normal};

/// Where the fixture's objects are: the contents of its `ptrs` file.
pub(crate) type Addresses = BTreeMap<String, u64>;

/// One event that the workload must have caused.
#[derive(Debug, Clone)]
pub(crate) struct Want {
    pub(crate) function: String,
    pub(crate) values: Vec<(String, Is)>,
}

/// What the text of a value must be.
#[derive(Debug, Clone)]
pub(crate) enum Is {
    /// A number of this type.
    Int(&'static str, i128),
    /// A number, of a type whose name differs between kernels.
    Num(i128),
    /// A number of this type from the one to the other.
    Between(&'static str, i128, i128),
    /// An enumerator, by name or by value.
    Enum(&'static str, &'static str, i128),
    /// Any truth that is not false: what C makes of a `bool` byte that is neither 0 nor 1.
    True,
    /// Exactly this.
    Text(String),
    /// Anything that has all of these in it.
    Has(Vec<String>),
    /// A pointer to this object of the fixture.
    At(&'static str),
    /// A pointer with this value.
    Ptr(u64),
    /// Exactly this fault.
    Fault(&'static str),
    /// A fault in this step, for whatever reason.
    FaultAt(&'static str),
    /// There, whatever it is.
    Any,
}

impl Want {
    pub(crate) fn new(function: &str) -> Self {
        Self {
            function: function.to_owned(),
            values: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, label: &str, is: Is) -> Self {
        self.values.push((label.to_owned(), is));
        self
    }

    pub(crate) fn int(self, label: &str, of: &'static str, number: i128) -> Self {
        self.with(label, Is::Int(of, number))
    }

    /// Why the event is not the wanted one, or nothing when it is.
    pub(crate) fn differs(&self, event: &Event, addresses: &Addresses) -> Option<String> {
        if self.function != event.function {
            return Some(format!("it is an event of {}", event.function));
        }
        // A value that two items ask for may be shown for each of them.
        let mut seen = Vec::new();
        for value in &event.values {
            if !seen.contains(&value) {
                seen.push(value);
            }
        }
        let labels = seen.iter().map(|value| value.label.as_str());
        if !labels
            .clone()
            .eq(self.values.iter().map(|(label, _)| label.as_str()))
        {
            return Some(format!("it shows {}", labels.collect::<Vec<_>>().join(", ")));
        }
        let pairs = seen.iter().zip(&self.values);
        pairs
            .filter(|(value, (_, is))| !is.met(&value.text, addresses))
            .map(|(value, _)| shown(value))
            .next()
    }
}

fn shown(value: &crate::output::Value) -> String {
    format!("{} is {}", value.label, value.text)
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.function)?;
        for (index, (label, is)) in self.values.iter().enumerate() {
            write!(f, "{}{label} = {is:?}", if index == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}

impl Is {
    fn met(&self, text: &str, addresses: &Addresses) -> bool {
        match self {
            Self::Int(of, wanted) => {
                let (cast, rest) = split_cast(text);
                cast.map(bare).as_deref() == Some(*of) && number(rest) == Some(*wanted)
            }
            Self::Between(of, least, most) => {
                let (cast, rest) = split_cast(text);
                cast.map(bare).as_deref() == Some(*of)
                    && number(rest).is_some_and(|number| (*least..=*most).contains(&number))
            }
            Self::Num(wanted) => number(split_cast(text).1) == Some(*wanted),
            Self::Enum(of, name, wanted) => {
                let (cast, rest) = split_cast(text);
                cast.map(bare).as_deref() == Some(*of) && (rest == *name || number(rest) == Some(*wanted))
            }
            Self::True => number(split_cast(text).1).is_some_and(|number| number != 0),
            Self::Text(wanted) => normal(wanted) == text,
            Self::Has(parts) => parts.iter().all(|part| text.contains(part.as_str())),
            Self::At(name) => addresses
                .get(*name)
                .is_some_and(|&address| pointer(text) == Some(address)),
            Self::Ptr(address) => pointer(text) == Some(*address),
            Self::Fault(what) => {
                text.strip_prefix("<fault: ")
                    .and_then(|rest| rest.strip_suffix('>'))
                    == Some(*what)
            }
            Self::FaultAt(step) => {
                // A pointer that leads nowhere itself is shown before that.
                let pointer = text.strip_prefix("*(").and_then(|rest| rest.split_once(") "));
                let fault = pointer.map_or(text, |(_, fault)| fault);
                let what = fault
                    .strip_prefix("<fault: ")
                    .and_then(|rest| rest.strip_suffix('>'));
                what.and_then(|what| what.strip_prefix(step))
                    .is_some_and(|rest| rest.starts_with(' '))
            }
            Self::Any => true,
        }
    }
}

/// `(type)rest`; a type may have parentheses of its own.
fn split_cast(text: &str) -> (Option<&str>, &str) {
    if !text.starts_with('(') {
        return (None, text);
    }
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return (Some(&text[1..at]), text[at + 1..].trim_start()),
            ')' => depth -= 1,
            _ => {}
        }
    }
    (None, text)
}

/// A type's name without qualifiers.
fn bare(of: &str) -> String {
    let words = of
        .split_whitespace()
        .filter(|word| !matches!(*word, "const" | "volatile"));
    words.collect::<Vec<_>>().join(" ")
}

/// A number in any notation that C has for it.
fn number(text: &str) -> Option<i128> {
    match text {
        "true" => return Some(1),
        "false" => return Some(0),
        _ => {}
    }
    if let Some(quoted) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return character(quoted);
    }
    match text.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn character(quoted: &str) -> Option<i128> {
    let byte = match quoted {
        "\\n" => b'\n',
        "\\t" => b'\t',
        "\\r" => b'\r',
        "\\0" => 0,
        "\\'" => b'\'',
        "\\\\" => b'\\',
        _ => match quoted.strip_prefix("\\x") {
            Some(hex) => u8::from_str_radix(hex, 16).ok()?,
            None => <[u8; 1]>::try_from(quoted.as_bytes()).ok()?[0],
        },
    };
    Some(crate::guest::char_of(byte))
}

/// The first address in a value: of `*(0x1234) …` and of `(void *)0x1234`.
fn pointer(text: &str) -> Option<u64> {
    let rest = text.strip_prefix("*(").unwrap_or_else(|| split_cast(text).1);
    if rest.starts_with("NULL") {
        return Some(0);
    }
    let digits = rest.strip_prefix("0x")?;
    let end = digits
        .find(|c: char| !c.is_ascii_hexdigit())
        .unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(is: &Is, text: &str) -> bool {
        is.met(text, &Addresses::from([("hello".to_owned(), 0xffff_0000)]))
    }

    #[test]
    fn numbers_are_exact_and_their_notation_is_free() {
        assert!(met(&Is::Int("u8", 255), "(u8)255"));
        assert!(met(&Is::Int("u8", 255), "(const u8)0xff"));
        assert!(!met(&Is::Int("u8", 255), "(s8)255"));
        assert!(!met(&Is::Int("u8", 255), "(u8)-1"));
        assert!(!met(&Is::Int("u8", 255), "255"));
        assert!(met(&Is::Int("char", 65), "(char)'A'"));
        assert!(met(
            &Is::Int("char", crate::guest::char_of(0xe9)),
            "(char)'\\xe9'"
        ));
        assert!(met(&Is::Int("bool", 1), "(bool)true"));
        assert!(met(&Is::Enum("enum c", "RED", 5), "(enum c)RED"));
        assert!(met(&Is::Enum("enum c", "RED", 5), "(enum c)5"));
        assert!(!met(&Is::Enum("enum c", "RED", 5), "(enum c)BLUE"));
    }

    #[test]
    fn pointers_and_faults() {
        assert!(met(&Is::At("hello"), "*(0xffff0000) (struct x){ }"));
        assert!(met(&Is::At("hello"), "(char *)0xffff0000"));
        assert!(!met(&Is::At("hello"), "*(0xffff0001)"));
        assert!(met(&Is::Ptr(0), "(void *)NULL"));
        assert!(met(&Is::Fault("a->b is NULL"), "<fault: a->b is NULL>"));
        assert!(met(&Is::FaultAt("a->b"), "<fault: a->b is an error pointer>"));
        assert!(!met(&Is::FaultAt("a"), "<fault: a->b is NULL>"));
        assert!(met(
            &Is::FaultAt("p + 1"),
            "*(0x11) <fault: p + 1 is a bad address 0x11>"
        ));
    }
}
