//! Text that somebody else has chosen, in every place where there is such text and in every format: nothing comes out that a
//! terminal would act on, and JSON gives the text back as it was.

use serde_json::Value;

use super::fixture::*;
use crate::ctype::CType;
use crate::display::{Layout, Notice, Options, Printer, Stamp, Symbol, Symbols, Thread, Uncounted};
use crate::span::Span;
use crate::types::write::Field;
use crate::wire::{Format, ItemLayout, Phase, ValueLayout};

/// A title, a colour, a bell, a carriage return, a C1 control, marks that change the direction, an invisible tag, quotes.
const EVIL: &str = "\u{1b}]0;t\u{7}\u{1b}[31m\r\n\t\u{9b}2J\u{85}\u{202e}\u{2066}\u{200f}\u{2028}\u{feff}\u{e0041}\u{7f}'\"\\</script>";

/// Everything that a name says is evil.
struct EvilSymbols;

impl Symbols for EvilSymbols {
    fn resolve(&self, _address: u64) -> Option<Symbol<'_>> {
        Some(Symbol {
            name: EVIL.into(),
            offset: 1,
            module: Some(EVIL.into()),
        })
    }
}

fn harmless(text: &str) -> bool {
    let bad = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(u32::from(c), 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff | 0xe0000..=0xe0fff)
    };
    !text.chars().any(bad)
}

/// A run in which every text is evil, and some of it is no UTF-8 either.
fn run(format: Layout) -> String {
    let mut f = Fixture::new();
    let comm = f.array(f.char_, 96);
    let proto = f.btf.func_proto(f.int, &[], false);
    let call = f.btf.ptr(proto);
    let e = f.btf.enum_("e", 4, false, &[(EVIL, 1), ("B", 2), ("C", 4)]);
    let s = f.btf.struct_(
        EVIL,
        120,
        &[
            Field::at(EVIL, comm, 0),
            Field::at("call", call, 96),
            Field::at("e", e, 104),
            Field::at("flags", e, 108),
        ],
    );
    let types = f.types();
    let mut memory = vec![0; 120];
    memory[..EVIL.len()].copy_from_slice(EVIL.as_bytes());
    memory[96..104].copy_from_slice(&0xffff_ffff_8100_0000u64.to_le_bytes());
    memory[104] = 1;
    memory[108] = 5;
    let bad = [EVIL.as_bytes(), b"\xff\xc3\xed\xa0\x80"].concat();
    let string = ValueLayout::String { capacity: 128 };
    let buffer = ValueLayout::Buffer { capacity: 128 };
    let bytes = ValueLayout::Bytes {
        copied: 120,
        full: 120,
    };
    let mut layout = layout(
        Phase::Return,
        vec![
            item(EVIL, ValueLayout::Scalar, CType::Btf(id(call))),
            item(EVIL, string.clone(), CType::Void),
            item("bad", string, CType::Void),
            item("raw", buffer.clone(), CType::Void),
            ItemLayout {
                format: Some(Format::String),
                ..item("text", buffer, CType::Void)
            },
            item("s", bytes, CType::Btf(id(s))),
            ItemLayout {
                steps: vec![EVIL.to_string()],
                ..item("fault", ValueLayout::Scalar, CType::INT)
            },
        ],
    );
    layout.names = vec![EVIL.to_string()];
    let address = 0xffff_ffff_8100_0000u64.to_le_bytes();
    let record = record(
        &layout,
        &[
            (0, 0, &address),
            (0, EVIL.len() as u32, EVIL.as_bytes()),
            (0, bad.len() as u32, &bad),
            (0, bad.len() as u32, &bad),
            (0, bad.len() as u32, &bad),
            (0, 0, &memory),
            (1, 0, &[0; 8]),
        ],
    );
    let layouts = [layout];
    let options = Options {
        depth: 9,
        max_string: 1000,
        stamp: Stamp::Wall,
        ..Options::new(format)
    };
    let mut printer = Printer::new(&types, &layouts, options);
    let mut out = String::new();
    printer.begin(&[EVIL], &mut out);
    let thread = Thread {
        pid: 1,
        tid: 2,
        cpu: 0,
        process: Some(EVIL),
        name: Some(EVIL),
    };
    printer.thread(&thread, &mut out);
    printer.event(&record, &mut out, &EvilSymbols);
    let (name, query, count) = (EVIL, 0, 1);
    for notice in [
        Notice::Lost { name, query, count },
        Notice::Faults { name, query, count },
        Notice::Uncounted {
            name,
            query,
            count,
            reason: Uncounted::Fault,
        },
        Notice::Error {
            code: None,
            message: EVIL,
            place: Some((EVIL, Span::new(0, 1))),
        },
    ] {
        printer.notice(&notice, &mut out);
    }
    printer.end(&mut out);
    out
}

#[test]
fn no_format_lets_anything_through() {
    for format in [Layout::Text, Layout::Compact, Layout::Json, Layout::Chrome] {
        let out = run(format);
        assert!(harmless(&out), "{format:?}: {out:?}");
        assert!(out.len() > 500);
    }
}

#[test]
fn json_gives_it_back() {
    let out = run(Layout::Json);
    let lines: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let [start, event, lost, faults, uncounted, error] = lines.as_slice() else {
        panic!("{out}");
    };
    assert_eq!(start["queries"][0], EVIL);
    let values = &event["values"];
    assert_eq!(values[EVIL]["$symbol"], EVIL);
    assert_eq!(values[&format!("{EVIL}#2")], EVIL);
    let text = values["bad"]["$text"].as_str().expect("a string");
    assert!(text.starts_with(EVIL) && text.ends_with('\u{fffd}'));
    let hex = values["bad"]["$hex"].as_str().expect("bytes");
    assert!(hex.ends_with("ffc3eda080"));
    assert_eq!(values["bad"]["$hex"], values["raw"]["$hex"]);
    assert!(
        values["fault"]["$fault"]
            .as_str()
            .is_some_and(|why| why.contains(EVIL))
    );
    assert_eq!(lost["name"], EVIL);
    assert_eq!(faults["name"], EVIL);
    assert_eq!(uncounted["name"], EVIL);
    assert_eq!(error["message"], EVIL);
    // Nothing but the event's own names are keys.
    assert_eq!(values.as_object().map(|values| values.len()), Some(7));
}
