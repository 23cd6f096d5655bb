//! Bytes and types that nobody would make by accident: nothing panics, nothing runs away, nothing unprintable comes out.

use super::fixture::*;
use crate::ctype::CType;
use crate::display::{Layout, Options, Stamp};
use crate::types::write::{Field, INT_BOOL, INT_CHAR, INT_SIGNED};
use crate::wire::{Format, ItemLayout, Phase, ValueLayout};

/// A small generator of numbers that look random.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u32) -> u32 {
        (self.next() % u64::from(end.max(1))) as u32
    }

    /// A number that is often at the edge of something.
    fn odd(&mut self) -> u32 {
        match self.below(8) {
            0 => 0,
            1 => u32::MAX - self.below(4),
            2 => self.next() as u32,
            _ => self.below(80),
        }
    }

    fn byte(&mut self) -> u8 {
        if self.below(3) == 0 { 0 } else { self.next() as u8 }
    }
}

const FORMATS: [Option<Format>; 14] = [
    None,
    Some(Format::Signed),
    Some(Format::Unsigned),
    Some(Format::Hex),
    Some(Format::Octal),
    Some(Format::Binary),
    Some(Format::Char),
    Some(Format::String),
    Some(Format::Ip),
    Some(Format::Mac),
    Some(Format::Symbol),
    Some(Format::Errno),
    Some(Format::Dump),
    Some(Format::BigEndian),
];

const STAMPS: [Stamp; 5] = [
    Stamp::Monotonic,
    Stamp::Boot,
    Stamp::Wall,
    Stamp::Relative,
    Stamp::Delta,
];

/// Types that refer to each other, to themselves and to nothing, with sizes and offsets of all kinds.
fn random_types(random: &mut Random, count: u32) -> Fixture {
    let mut f = Fixture::new();
    for number in 0..count {
        // May be the type itself, or one that comes later.
        let any = |random: &mut Random| random.below(count + 16);
        let ty = any(random);
        let name = format!("t{number}");
        match random.below(12) {
            0 => f.btf.int_bits(
                &name,
                random.odd() % 40,
                [0, INT_SIGNED, INT_CHAR, INT_BOOL][random.below(4) as usize],
                random.below(9) as u8,
                random.below(140) as u8,
            ),
            1 => f.btf.float(&name, random.odd() % 20),
            2 => f.btf.array(ty, 1, random.odd() % 3000),
            3 | 4 => {
                let fields: Vec<(String, u32, u32, u8)> = (0..random.below(6))
                    .map(|i| {
                        (
                            format!("m{i}"),
                            any(random),
                            random.below(500),
                            random.below(70) as u8,
                        )
                    })
                    .collect();
                let fields: Vec<Field<'_>> = fields
                    .iter()
                    .map(|(name, ty, offset, width)| {
                        let name = if *offset % 5 == 0 { "" } else { name };
                        Field::bits(name, *ty, *offset, *width)
                    })
                    .collect();
                f.btf
                    .composite(number % 2 == 0, &name, random.odd() % 400, &fields)
            }
            5 => f.btf.enum_(
                &name,
                random.odd() % 17,
                number % 2 == 0,
                &[("A", 1), ("B", 2), ("C", 4), ("D", i128::from(random.odd()))],
            ),
            6 => f.btf.typedef(&name, ty),
            7 => f.btf.const_(ty),
            8 => f.btf.ptr(ty),
            9 => f.btf.func_proto(ty, &[("", ty)], true),
            10 => f.btf.fwd(&name, false),
            _ => f.btf.type_tag("user", ty),
        };
    }
    f
}

#[test]
fn random_records_of_random_layouts_of_random_types() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..300 {
        let types = random_types(&mut random, 20).types();
        for _ in 0..10 {
            let items = (0..random.below(4))
                .map(|_| {
                    let (copied, full) = (random.odd(), random.odd());
                    let value = match random.below(5) {
                        0 => ValueLayout::Scalar,
                        1 => ValueLayout::Pointee {
                            pointee: id(random.below(40)),
                            copied,
                            full,
                        },
                        2 => ValueLayout::Bytes { copied, full },
                        3 => ValueLayout::String { capacity: copied },
                        _ => ValueLayout::Buffer { capacity: copied },
                    };
                    let mut ty = match random.below(6) {
                        0 => CType::Void,
                        1 => CType::Bool,
                        2 => CType::Int {
                            bytes: random.next() as u8,
                            signed: random.below(2) == 0,
                        },
                        _ => CType::Btf(id(random.below(40))),
                    };
                    for _ in 0..random.below(12) / 4 {
                        ty = CType::Ptr(Box::new(ty));
                    }
                    ItemLayout {
                        offset: random.odd(),
                        format: FORMATS[random.below(14) as usize],
                        steps: (0..random.below(3)).map(|i| format!("s{i}\u{7}")).collect(),
                        ..item("x\u{1b}", value, ty)
                    }
                })
                .collect::<Vec<ItemLayout>>();
            // Not `layout`: the offsets are to be wrong.
            let mut layout = layout(Phase::Both, vec![]);
            layout.items = items;
            let mut bytes: Vec<u8> = (0..random.below(300)).map(|_| random.byte()).collect();
            if bytes.len() >= 4 && random.below(10) != 0 {
                bytes[..4].copy_from_slice(&layout.event.to_le_bytes());
            }
            for format in [Layout::Text, Layout::Compact, Layout::Json, Layout::Chrome] {
                let options = Options {
                    format,
                    depth: random.odd(),
                    max_string: random.odd(),
                    max_array: random.odd(),
                    zeros: random.below(2) == 0,
                    color: false,
                    stamp: STAMPS[random.below(5) as usize],
                    columns: random.below(3) * 40,
                };
                let shown = print(&types, options.clone(), &layout, &bytes);
                if matches!(format, Layout::Json | Layout::Chrome) {
                    let read = serde_json::from_str::<serde_json::Value>(&shown);
                    assert!(read.is_ok(), "round {round}: {read:?}: {shown}");
                }
                assert!(shown.ends_with('\n'));
                assert!(
                    shown.chars().all(|c| c == '\n' || !c.is_control()),
                    "round {round}: {shown}"
                );
                let lines = shown.matches('\n').count();
                assert!(!matches!(format, Layout::Compact | Layout::Json) || lines == 1);
                assert_eq!(shown, print(&types, options, &layout, &bytes), "the same again");
            }
        }
    }
}

#[test]
fn a_struct_that_contains_itself_twice_ends() {
    let mut f = Fixture::new();
    let own = f.btf.next_id();
    let s = f.btf.struct_(
        "s",
        8,
        &[
            Field::at("a", own, 0),
            Field::at("b", own, 0),
            Field::at("n", f.long, 0),
        ],
    );
    assert_eq!(s, own);
    let types = f.types();
    for format in [Layout::Text, Layout::Compact, Layout::Json] {
        let options = Options {
            depth: u32::MAX,
            ..Options::new(format)
        };
        let shown = memory(&types, options, s, None, &[1; 8]);
        assert!(shown.contains(match format {
            Layout::Text | Layout::Compact => "too much to show",
            Layout::Json | Layout::Chrome => "\"reason\":\"size\"",
        }));
        assert!(shown.len() < 10_000_000, "{}", shown.len());
    }
}
