//! Each kind of type, and each format.

use super::fixture::*;
use crate::ctype::CType;
use crate::display::{Layout, Options};
use crate::types::write::{Field, INT_SIGNED};
use crate::wire::{Format, ItemLayout, ValueLayout};

fn text() -> Options {
    Options::new(Layout::Text)
}

fn compact() -> Options {
    Options {
        depth: 9,
        ..Options::new(Layout::Compact)
    }
}

#[test]
fn scalars_by_type() {
    let mut f = Fixture::new();
    let gfp = f.btf.typedef("gfp_t", f.uint);
    let mode = f.btf.typedef("umode_t", f.uint);
    let wide = f.btf.int("__int128", 16, INT_SIGNED);
    let color = f
        .btf
        .enum_("color", 4, false, &[("RED", 0), ("GREEN", 1), ("BLUE", 7)]);
    let bits = f.btf.enum_("bits", 4, false, &[("A", 1), ("B", 2), ("C", 4)]);
    let signed = f.btf.enum_("", 4, true, &[("MINUS", -1), ("PLUS", 1)]);
    let big = f.btf.enum_("big", 8, false, &[("HUGE", 1 << 40)]);
    let proto = f.btf.func_proto(f.int, &[("", f.void_ptr), ("", f.int)], false);
    let func = f.btf.ptr(proto);
    let ops = f.btf.struct_("ops", 8, &[Field::at("call", func, 0)]);
    let const_ops = f.btf.const_(ops);
    let ops_ptr = f.btf.ptr(const_ops);
    let types = f.types();
    let b = |ty: u32| CType::Btf(id(ty));
    let kernel = 0xffff_ffff_8100_0000u64;
    let cases: Vec<(CType, u64, &str)> = vec![
        (b(f.uint), 1028, "(unsigned int)1028"),
        (b(f.int), -11i64 as u64, "(int)-11"),
        (b(f.uint), 0xffff_ffff, "(unsigned int)4294967295"),
        (b(f.short), 0xffff_ffff_ffff_8000, "(short int)-32768"),
        (b(f.long), u64::MAX, "(long int)-1"),
        (b(f.ulong), 1 << 40, "(long unsigned int)1099511627776"),
        (
            b(f.ulong),
            0xffff_8881_0000_0000,
            "(long unsigned int)0xffff888100000000",
        ),
        (b(f.u8_), 200, "(unsigned char)200"),
        (b(f.char_), u64::from(b'a'), "(char)'a'"),
        (b(f.char_), u64::from(b'\''), "(char)'\\''"),
        (b(f.char_), -126i64 as u64, "(char)-126"),
        (b(f.char_), 27, "(char)27"),
        (b(f.bool_), 1, "(_Bool)true"),
        (b(f.bool_), 256, "(_Bool)true"),
        (b(f.bool_), 0, "(_Bool)false"),
        (b(f.float), u64::from(1.5f32.to_bits()), "(float)1.5"),
        (b(f.double), (-0.25f64).to_bits(), "(double)-0.25"),
        (b(wide), 5, "(__int128)5"),
        (b(gfp), 0xcc0, "(gfp_t)0xcc0"),
        (b(mode), 0o100_644, "(umode_t)0100644"),
        (b(mode), 0, "(umode_t)0"),
        (b(color), 7, "(enum color)BLUE"),
        (b(color), 0, "(enum color)RED"),
        (b(color), 3, "(enum color)3"),
        (b(bits), 5, "(enum bits)A|C"),
        (b(bits), 0x1a, "(enum bits)B|0x18"),
        (b(bits), 0x18, "(enum bits)0x18"),
        (b(bits), 0, "(enum bits)0"),
        (b(signed), u64::MAX, "(enum)MINUS"),
        (b(signed), -2i64 as u64, "(enum)-2"),
        (b(big), 1 << 40, "(enum big)HUGE"),
        (b(f.void_ptr), 0, "(void *)NULL"),
        (b(f.void_ptr), 0xffff_8880_0000_0010, "(void *)0xffff888000000010"),
        (b(f.void_ptr), -4095i64 as u64, "(void *)ERR_PTR(-4095)"),
        (b(f.void_ptr), -4096i64 as u64, "(void *)0xfffffffffffff000"),
        (
            b(f.void_ptr),
            kernel + 16,
            "(void *)0xffffffff81000010 <ip_rcv+0x10>",
        ),
        (b(func), kernel, "(int (*)(void *, int))ip_rcv"),
        (b(func), kernel + 16, "(int (*)(void *, int))ip_rcv+0x10"),
        (
            b(func),
            0xffff_ffff_c000_0008,
            "(int (*)(void *, int))ops+0x8 [ext4]",
        ),
        (b(func), 0x1000, "(int (*)(void *, int))0x1000"),
        (
            b(ops_ptr),
            0xffff_ffff_c000_0000,
            "(struct ops *)0xffffffffc0000000 <ops [ext4]>",
        ),
        // A struct that fits a register.
        (
            b(ops),
            kernel,
            "(struct ops){\n .call = (int (*)(void *, int))ip_rcv,\n}",
        ),
        (CType::Void, 1, "(void)"),
        (CType::Bool, 1, "(bool)true"),
        (CType::INT, u64::MAX, "(int)-1"),
        (CType::ULONG, 12, "(long unsigned int)12"),
        (CType::Ptr(Box::new(CType::Void)), 0, "(void *)NULL"),
        (CType::Ptr(Box::new(b(ops))), 0x10000, "(struct ops *)0x10000"),
        (
            CType::Ptr(Box::new(b(ops_ptr))),
            0x10000,
            "(struct ops **)0x10000",
        ),
        (
            CType::Ptr(Box::new(b(proto))),
            kernel,
            "(int (*)(void *, int))ip_rcv",
        ),
        // An id that no type has.
        (CType::Btf(id(9999)), 5, "(void)"),
    ];
    for (ty, raw, wanted) in cases {
        assert_eq!(scalar(&types, ty.clone(), None, raw), wanted, "{ty:?} {raw:#x}");
    }
}

#[test]
fn formats() {
    let mut f = Fixture::new();
    let be32 = f.btf.typedef("__be32", f.uint);
    let be16 = f.btf.int("short unsigned int", 2, 0);
    let mac = f.array(f.u8_, 6);
    let ip6 = f.array(f.u8_, 16);
    let name = f.array(f.char_, 8);
    let pair = f
        .btf
        .struct_("pair", 8, &[Field::at("a", f.int, 0), Field::at("b", f.uint, 4)]);
    let types = f.types();
    let b = |ty: u32| CType::Btf(id(ty));
    let cases: Vec<(u32, Format, u64, &str)> = vec![
        (f.uint, Format::Signed, 0xffff_ffff, "(unsigned int)-1"),
        (f.int, Format::Unsigned, u64::MAX, "(int)4294967295"),
        (f.int, Format::Hex, u64::MAX, "(int)0xffffffff"),
        (f.int, Format::Octal, 0o755, "(int)0755"),
        (f.int, Format::Binary, 5, "(int)0b101"),
        (f.int, Format::Char, 65, "(int)'A'"),
        (f.int, Format::Char, 10, "(int)'\\n'"),
        (be32, Format::Ip, 0x0100_007f, "(__be32)127.0.0.1"),
        (be32, Format::BigEndian, 0x0100_0000, "(__be32)1"),
        (be16, Format::BigEndian, 0x5000, "(short unsigned int)80"),
        (f.long, Format::BigEndian, 0xfeff_ffff_ffff_ffff, "(long int)-2"),
        (
            f.ulong,
            Format::Mac,
            0x6655_4433_2211,
            "(long unsigned int)11:22:33:44:55:66",
        ),
        (
            f.ulong,
            Format::Symbol,
            0xffff_ffff_8100_0004,
            "(long unsigned int)ip_rcv+0x4",
        ),
        (f.ulong, Format::Symbol, 4, "(long unsigned int)0x4"),
        (f.int, Format::Errno, -12i64 as u64, "(int)-ENOMEM"),
        (f.int, Format::Errno, 3, "(int)3"),
        (f.long, Format::Errno, -600i64 as u64, "(long int)-600"),
        (f.uint, Format::String, 0x0041_4243, "(unsigned int)\"CBA\""),
        (f.double, Format::Hex, 1.0f64.to_bits(), "(double)1"),
        (f.void_ptr, Format::Unsigned, 99, "(void *)99"),
    ];
    for (ty, format, raw, wanted) in cases {
        assert_eq!(
            scalar(&types, b(ty), Some(format), raw),
            wanted,
            "{format:?} {raw:#x}"
        );
    }
    let show = |ty: u32, format: Format, bytes: &[u8]| memory(&types, compact(), ty, Some(format), bytes);
    assert_eq!(
        show(mac, Format::Mac, &[0, 0x1b, 2, 3, 4, 255]),
        "00:1b:02:03:04:ff"
    );
    let mut loopback = [0; 16];
    loopback[15] = 1;
    assert_eq!(show(ip6, Format::Ip, &loopback), "::1");
    assert_eq!(show(mac, Format::String, b"abc\0de"), "\"abc\"");
    assert_eq!(show(mac, Format::Dump, b"abc\0de"), "61 62 63 00 64 65");
    assert_eq!(show(name, Format::Mac, b"abcdef\0\0"), "61:62:63:64:65:66");
    assert_eq!(show(name, Format::Hex, b"ab\0\0\0\0\0\0"), "[0x61, 0x62]");
    assert_eq!(
        show(name, Format::Dump, b"ab\0\0\0\0\0\0"),
        "61 62 00 00 00 00 00 00"
    );
    assert_eq!(show(name, Format::Ip, b"ab\0\0\0\0\0\0"), "\"ab\"");
    assert_eq!(
        show(pair, Format::Hex, &[255, 255, 255, 255, 1, 0, 0, 0]),
        "{.a=0xffffffff, .b=0x1}"
    );
}

#[test]
fn hex_dumps_have_lines_in_the_text_format() {
    let f = Fixture::new();
    let types = f.types();
    let bytes: Vec<u8> = (0x30..0x44).collect();
    let item = ItemLayout {
        format: Some(Format::Dump),
        ..item("b", ValueLayout::Buffer { capacity: 24 }, CType::Void)
    };
    assert_eq!(
        value_text(&types, text(), item, (0, 20, &bytes)),
        "b = \n\n 0000: 30 31 32 33 34 35 36 37 38 39 3a 3b 3c 3d 3e 3f  |0123456789:;<=>?|\n 0010: 40 41 42 43\
         \u{20}                                     |@ABC|"
    );
}

#[test]
fn words_that_are_addresses_are_hexadecimal_by_their_names() {
    let mut f = Fixture::new();
    let words = f.array(f.ulong, 2);
    let mm = f.btf.struct_(
        "mm",
        40,
        &[
            Field::at("start_code", f.ulong, 0),
            Field::at("total_vm", f.ulong, 8),
            Field::at("bits", words, 16),
            Field::at("addr", f.uint, 32),
            Field::at("mask", f.uint, 36),
        ],
    );
    let types = f.types();
    let mut bytes = Vec::new();
    for word in [0x40_1000u64, 100, 17, 3, 10 | 255 << 32] {
        bytes.extend(word.to_le_bytes());
    }
    assert_eq!(
        memory(&types, compact(), mm, None, &bytes),
        "{.start_code=0x401000, .total_vm=100, .bits=[0x11, 0x3], .addr=10, .mask=0xff}"
    );
    // Nothing is shown where nothing is asked for, and that is said.
    let nothing = Options {
        depth: 0,
        max_array: 0,
        ..compact()
    };
    assert_eq!(memory(&types, nothing.clone(), mm, None, &bytes), "{...}");
    let two = [7u64.to_le_bytes(), 8u64.to_le_bytes()].concat();
    assert_eq!(
        memory(&types, nothing, words, None, &two),
        "[... /* 0 of 2 elements */]"
    );
}

#[test]
fn strings_and_buffers() {
    let f = Fixture::new();
    let types = f.types();
    let char_ptr = CType::Ptr(Box::new(CType::Int {
        bytes: 1,
        signed: true,
    }));
    let string = |capacity: u32, length: u32, bytes: &[u8]| {
        let item = item("s", ValueLayout::String { capacity }, char_ptr.clone());
        value_text(&types, text(), item, (0, length, bytes))
    };
    assert_eq!(
        string(64, 11, b"/etc/passwd\0junk"),
        "s = \n(char *)\"/etc/passwd\""
    );
    assert_eq!(string(64, 3, b"a\x1b\"\0"), "s = \n(char *)\"a\\x1b\\\"\"");
    assert_eq!(string(64, 0, b"junk"), "s = \n(char *)\"\"");
    assert_eq!(string(8, 7, b"abcdefg\0"), "s = \n(char *)\"abcdefg\"...");
    let short = Options {
        max_string: 4,
        ..text()
    };
    let long = item("s", ValueLayout::String { capacity: 64 }, char_ptr.clone());
    assert_eq!(
        value_text(&types, short, long, (0, 6, b"abcdef")),
        "s = \n(char *)\"abcd\"... /* 4 of 6 bytes */"
    );
    let buffer = item("b", ValueLayout::Buffer { capacity: 8 }, CType::Void);
    assert_eq!(
        value_text(&types, text(), buffer, (0, 6, &[0, 1, b'A', 0xff, 0xc3, 0xa9])),
        "b = \n\"\\x00\\x01A\\xff\\xc3\\xa9\""
    );
}

#[test]
fn char_arrays_are_c_strings() {
    let mut f = Fixture::new();
    let name = f.array(f.char_, 8);
    let names = f.array(name, 2);
    let types = f.types();
    let show = |ty: u32, bytes: &[u8]| memory(&types, text(), ty, None, bytes);
    assert_eq!(show(name, b"eth0\0\0\0\0"), "(char[8])\"eth0\"");
    assert_eq!(show(name, b"eth0\0abc"), "(char[8])\"eth0\"");
    // What is behind the NUL is shown where zeros are.
    let all = Options {
        zeros: true,
        ..text()
    };
    let whole = |bytes: &[u8]| memory(&types, all.clone(), name, None, bytes);
    assert_eq!(whole(b"eth0\0abc"), "(char[8])\"eth0\\x00abc\"");
    assert_eq!(whole(b"eth0\0a\0\0"), "(char[8])\"eth0\\x00a\"");
    assert_eq!(whole(b"eth0\0\0\0\0"), "(char[8])\"eth0\"");
    assert_eq!(show(name, b"12345678"), "(char[8])\"12345678\"");
    assert_eq!(show(name, b"1234"), "(char[8])\"1234\"... /* 4 of 8 bytes */");
    assert_eq!(show(name, &[0; 8]), "(char[8])\"\"");
    assert_eq!(
        show(names, b"a\0\0\0\0\0\0\0bcd\0\0\0\0\0"),
        "(char[2][8])[\n \"a\",\n \"bcd\",\n]"
    );
}

#[test]
fn arrays() {
    let mut f = Fixture::new();
    let ints = f.array(f.int, 8);
    let pair = f
        .btf
        .struct_("pair", 8, &[Field::at("a", f.int, 0), Field::at("b", f.int, 4)]);
    let pairs = f.array(pair, 3);
    let grid = f.array(ints, 2);
    let types = f.types();
    let words = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let show = |ty: u32, values: &[i32]| memory(&types, compact(), ty, None, &words(values));
    assert_eq!(show(ints, &[-1, -1, -1, 0, 0, 0, 0, 0]), "[-1, -1, -1]");
    assert_eq!(show(ints, &[0, 0, 0, 0, 0, 0, 0, 5]), "[0 <repeats 7 times>, 5]");
    assert_eq!(show(ints, &[0; 8]), "[]");
    assert_eq!(show(ints, &[1, 2, 3]), "[1, 2, 3, ... /* 12 of 32 bytes */]");
    assert_eq!(show(pairs, &[1, 0, 0, 0, 0, 2]), "[{.a=1}, {}, {.b=2}]");
    let mut values = [0; 16];
    values[9] = 4;
    assert_eq!(show(grid, &values), "[[], [0, 4]]");
    assert_eq!(
        memory(&types, text(), ints, None, &words(&[7, 0, 0, 0, 0, 9, 0, 0])),
        "(int[8])[\n 7,\n 0 <repeats 4 times>,\n 9,\n]"
    );
    assert_eq!(
        memory(&types, text(), pairs, None, &words(&[1, 0, 0, 0, 0, 2])),
        "(struct pair[3])[\n {\n  .a = 1,\n },\n {},\n {\n  .b = 2,\n },\n]"
    );
    let few = Options {
        max_array: 2,
        ..compact()
    };
    assert_eq!(
        memory(&types, few, ints, None, &words(&[1, 2, 3, 4, 0, 0, 0, 0])),
        "[1, 2, ... /* 2 of 8 elements */]"
    );
    let zeros = Options {
        zeros: true,
        ..compact()
    };
    assert_eq!(
        memory(&types, zeros, ints, None, &words(&[1, 0, 0, 0, 0, 0, 0, 0])),
        "[1, 0 <repeats 7 times>]"
    );
}

#[test]
fn bitfields() {
    let mut f = Fixture::new();
    let color = f.btf.enum_("color", 4, false, &[("RED", 0), ("GREEN", 1)]);
    let s = f.btf.struct_(
        "attr",
        24,
        &[
            Field::bits("disabled", f.ulong, 0, 1),
            Field::bits("precise_ip", f.ulong, 15, 2),
            Field::bits("minus", f.int, 17, 3),
            Field::bits("yes", f.bool_, 20, 1),
            Field::bits("color", color, 21, 2),
            Field::bits("nine_bytes", f.ulong, 31, 64),
            Field::bits("wide", f.long, 96, 63),
            Field::bits("last", f.uint, 159, 33),
        ],
    );
    let types = f.types();
    let mut bits: Vec<bool> = vec![false; 192];
    let mut set = |offset: usize, width: usize, value: u64| {
        for bit in 0..width {
            bits[offset + bit] = (value >> bit) & 1 == 1;
        }
    };
    set(0, 1, 1);
    set(15, 2, 2);
    set(17, 3, 0b111);
    set(20, 1, 1);
    set(21, 2, 1);
    set(31, 64, 0x0123_4567_89ab_cdef);
    set(96, 63, -5i64 as u64);
    set(159, 33, 1 << 32);
    let bytes: Vec<u8> = bits
        .chunks(8)
        .map(|chunk| {
            chunk
                .iter()
                .enumerate()
                .fold(0, |sum, (i, set)| sum | (u8::from(*set) << i))
        })
        .collect();
    let wanted = "{.disabled=1, .precise_ip=2, .minus=-1, .yes=true, .color=GREEN, .nine_bytes=81985529216486895, \
                  .wide=-5, .last=4294967296";
    assert_eq!(memory(&types, compact(), s, None, &bytes), format!("{wanted}}}"));
    // A bitfield of which a byte is missing is not shown.
    let cut = memory(&types, compact(), s, None, &bytes[..11]);
    assert_eq!(
        cut,
        "{.disabled=1, .precise_ip=2, .minus=-1, .yes=true, .color=GREEN, ... /* 11 of 24 bytes */}"
    );
}

#[test]
fn structs() {
    let mut f = Fixture::new();
    let inner = f
        .btf
        .struct_("inner", 8, &[Field::at("x", f.u8_, 0), Field::at("y", f.int, 4)]);
    let fwd = f.btf.fwd("hidden", false);
    let flexible = f.array(f.int, 0);
    let outer = f.btf.struct_(
        "outer",
        24,
        &[
            Field::at("flags", f.uint, 0),
            Field::at("inner", inner, 4),
            Field::at("on", f.bool_, 12),
            Field::at("hidden", fwd, 16),
            Field::at("p", f.void_ptr, 16),
            Field::at("tail", flexible, 24),
        ],
    );
    let types = f.types();
    let mut bytes = vec![0u8; 24];
    bytes[0] = 0x12;
    // Padding that is not zero shows nothing.
    bytes[5] = 0xff;
    assert_eq!(memory(&types, compact(), outer, None, &bytes), "{.flags=0x12}");
    bytes[8] = 3;
    bytes[12] = 2;
    assert_eq!(
        memory(&types, text(), outer, None, &bytes),
        "(struct outer){\n .flags = (unsigned int)0x12,\n .inner = (struct inner){\n  .y = (int)3,\n },\n .on = (_Bool)true,\n}"
    );
    let zeros = Options {
        zeros: true,
        ..compact()
    };
    assert_eq!(
        memory(&types, zeros, outer, None, &bytes),
        "{.flags=0x12, .inner={.x=0, .y=3}, .on=true, .p=NULL}"
    );
    let flat = Options {
        depth: 1,
        ..compact()
    };
    assert_eq!(
        memory(&types, flat, outer, None, &bytes),
        "{.flags=0x12, .inner={...}, .on=true}"
    );
    assert_eq!(
        memory(&types, text(), outer, None, &[0; 24]),
        "(struct outer){\n}"
    );
    assert_eq!(memory(&types, compact(), outer, None, &[0; 24]), "{}");
}

#[test]
fn names_from_btf_are_escaped() {
    let mut f = Fixture::new();
    let s = f
        .btf
        .struct_("a\x1b[2J", 4, &[Field::at("b\u{202e}\n", f.int, 0)]);
    let types = f.types();
    assert_eq!(
        memory(&types, text(), s, None, &[1, 0, 0, 0]),
        "(struct a\\x1b[2J){\n .b\\u{202e}\\n = (int)1,\n}"
    );
}
