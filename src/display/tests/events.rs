//! Whole events, letter by letter: the layout is ksnoop's.

use super::fixture::*;
use crate::ctype::CType;
use crate::display::{Layout, NoSymbols, Options, Printer};
use crate::types::TypeId;
use crate::wire::{ItemLayout, Phase, ValueLayout};

const TEXT: Layout = Layout::Text;
/// The fault word of a pointer that leads nowhere: `-EFAULT`.
const EFAULT: u32 = -14i32 as u32;

fn skb_bytes() -> Vec<u8> {
    let mut bytes = vec![0u8; 56];
    bytes[0..2].copy_from_slice(&[0x82, 2]);
    bytes[8..16].copy_from_slice(&0xffff_8880_0554_8040u64.to_le_bytes());
    bytes[24..28].copy_from_slice(&628u32.to_le_bytes());
    bytes[32..34].copy_from_slice(&14u16.to_le_bytes());
    bytes[40..48].copy_from_slice(&0xffff_8880_0574_a410u64.to_le_bytes());
    bytes[48..52].copy_from_slice(&1u32.to_le_bytes());
    bytes
}

fn pointee(id: TypeId, copied: u32, full: u32) -> ValueLayout {
    ValueLayout::Pointee {
        pointee: id,
        copied,
        full,
    }
}

fn with_pointer(pointer: u64, bytes: &[u8]) -> Vec<u8> {
    [&pointer.to_le_bytes()[..], bytes].concat()
}

#[test]
fn an_event_looks_as_ksnoop_prints_it() {
    let mut f = Fixture::new();
    let skb = f.sk_buff();
    let skb_ptr = f.btf.ptr(skb);
    let uint = f.uint;
    let types = f.types();
    let layout = layout(
        Phase::Entry,
        vec![
            item("skb->len", ValueLayout::Scalar, CType::Btf(id(uint))),
            item("skb", pointee(id(skb), 56, 56), CType::Btf(id(skb_ptr))),
        ],
    );
    let skb = with_pointer(0xffff_8880_0443_2700, &skb_bytes());
    let record = record(&layout, &[(0, 0, &628u64.to_le_bytes()), (0, 0, &skb)]);
    let layouts = [layout];
    let mut printer = Printer::new(&types, &layouts, Options::new(TEXT));
    let mut out = String::new();
    printer.begin(&[], &mut out);
    printer.event(&record, &mut out, &NoSymbols);
    let wanted = r#"            TIME  CPU      PID FUNCTION/ARGS
     45161385520    1      366 ip_rcv(
                                   skb->len = 
                                    (unsigned int)628,
                                   skb = *(0xffff888004432700)
                                    (struct sk_buff){
                                     .cb = (char[8])"\x82\x02",
                                     (union){
                                      (struct){
                                       ._skb_refdst = (long unsigned int)0xffff888005548040,
                                      },
                                      .tcp_tsorted_anchor = (struct list_head){.next=0xffff888005548040, .prev=NULL},
                                      ._sk_redir = (long unsigned int)0xffff888005548040,
                                     },
                                     .len = (unsigned int)628,
                                     .mac_len = (short int)14,
                                     .data = (unsigned char *)0xffff88800574a410,
                                     .users = (refcount_t){.refs={.counter=1}},
                                    }
                               );

"#;
    assert_eq!(out, wanted);
}

#[test]
fn the_compact_format_is_one_line() {
    let mut f = Fixture::new();
    let skb = f.sk_buff();
    let skb_ptr = f.btf.ptr(skb);
    let (uint, int) = (f.uint, f.int);
    let types = f.types();
    let layout = layout(
        Phase::Both,
        vec![
            item("skb->len", ValueLayout::Scalar, CType::Btf(id(uint))),
            item("skb", pointee(id(skb), 56, 56), CType::Btf(id(skb_ptr))),
            item("return", ValueLayout::Scalar, CType::Btf(id(int))),
            item("x", ValueLayout::Scalar, CType::Bool),
        ],
    );
    let skb = with_pointer(0xffff_8880_0443_2700, &skb_bytes());
    let values: [(u32, u32, &[u8]); 4] = [
        (0, 0, &628u64.to_le_bytes()),
        (0, 0, &skb),
        (0, 0, &(-11i64).to_le_bytes()),
        (0, 0, &1u64.to_le_bytes()),
    ];
    let record = record(&layout, &values);
    assert_eq!(
        print(&types, Options::new(Layout::Compact), &layout, &record),
        "     45161385520    1      366 ip_rcv(skb->len=628, skb=0xffff888004432700 {.cb=\"\\x82\\x02\", \
         {{._skb_refdst=0xffff888005548040}, .tcp_tsorted_anchor={.next=0xffff888005548040, .prev=NULL}, \
         ._sk_redir=0xffff888005548040}, .len=628, .mac_len=14, .data=0xffff88800574a410, .users={...}}) = -11, x=true\n"
    );
}

#[test]
fn calls_without_values() {
    let f = Fixture::new();
    let types = f.types();
    let entry = layout(Phase::Entry, vec![]);
    let bytes = record(&entry, &[]);
    assert_eq!(
        print(&types, Options::new(TEXT), &entry, &bytes),
        "     45161385520    1      366 ip_rcv(\n                               );\n\n"
    );
    assert_eq!(
        print(&types, Options::new(Layout::Compact), &entry, &bytes),
        "     45161385520    1      366 ip_rcv()\n"
    );
    let ret = layout(Phase::Return, vec![]);
    assert_eq!(
        print(&types, Options::new(TEXT), &ret, &bytes),
        "     45161385520    1      366 ip_rcv(\n                                   return = \n\
         \u{20}                                   (void)\n                               );\n\n"
    );
    assert_eq!(
        print(&types, Options::new(Layout::Compact), &ret, &bytes),
        "     45161385520    1      366 ip_rcv() = void\n"
    );
}

#[test]
fn bad_pointers_and_faults() {
    let mut f = Fixture::new();
    let skb = f.sk_buff();
    let skb_ptr = f.btf.ptr(skb);
    let types = f.types();
    let show = |format: Layout, fault: u32, pointer: u64| {
        let item = ItemLayout {
            steps: vec!["sk".to_string()],
            ..item("sk->skb", pointee(id(skb), 56, 56), CType::Btf(id(skb_ptr)))
        };
        let layout = layout(Phase::Entry, vec![item]);
        let value = with_pointer(pointer, &skb_bytes());
        let text = print(
            &types,
            Options::new(format),
            &layout,
            &record(&layout, &[(fault, 0, &value)]),
        );
        let text = text
            .replace("                                    ", " ")
            .replace("     45161385520    1      366 ip_rcv", "");
        text.replace("                               );\n\n", ")")
            .trim_start_matches("(\n")
            .trim_end()
            .to_string()
    };
    let own = "                                   sk->skb = ";
    // The pointer itself is NULL or an error: no fault, with or without one told.
    for fault in [0, EFAULT] {
        assert_eq!(show(TEXT, fault, 0), format!("{own}NULL\n)"));
        assert_eq!(
            show(TEXT, fault, -12i64 as u64),
            format!("{own}ERR_PTR(-ENOMEM)\n)")
        );
        assert_eq!(show(Layout::Compact, fault, 0), "(sk->skb=NULL)");
    }
    assert_eq!(
        show(TEXT, EFAULT, 0x5e_b300),
        format!("{own}*(0x5eb300)\n <fault: sk->skb is a bad address 0x5eb300 (in user memory)>\n)")
    );
    assert_eq!(
        show(Layout::Compact, EFAULT, 0x5e_b300),
        "(sk->skb=0x5eb300 <fault: sk->skb is a bad address 0x5eb300 (in user memory)>)"
    );
    // A step before it failed.
    assert_eq!(show(TEXT, 1, 0), format!("{own}\n <fault: sk is NULL>\n)"));
    assert_eq!(
        show(TEXT, 1, 0x10),
        format!("{own}\n <fault: sk is a bad address 0x10 (NULL plus an offset)>\n)")
    );
    assert_eq!(
        show(Layout::Compact, 1, -2i64 as u64),
        "(sk->skb=<fault: sk is ERR_PTR(-ENOENT)>)"
    );
    assert_eq!(
        show(Layout::Compact, 1, 0xdead_0000_0000_0100),
        "(sk->skb=<fault: sk is a bad address 0xdead000000000100>)"
    );
    // A step that is no pointer.
    let mut divided = String::new();
    crate::display::leaf::fault(&mut divided, "n is zero", 0);
    assert_eq!(divided, "<fault: n is zero>");
    let mut outside = String::new();
    crate::display::leaf::fault(&mut outside, "i + 1 is out of bounds (0 to 2)", -1i64 as u64);
    assert_eq!(outside, "<fault: i + 1 is out of bounds (0 to 2): -1>");
    // A step that the layout does not have.
    assert_eq!(show(Layout::Compact, 9, 0), "(sk->skb=<fault: sk->skb is NULL>)");
}

#[test]
fn what_was_not_copied_is_told() {
    let mut f = Fixture::new();
    let skb = f.sk_buff();
    let types = f.types();
    let bytes = skb_bytes();
    assert_eq!(
        memory(&types, Options::new(TEXT), skb, None, &bytes[..30]),
        "(struct sk_buff){\n .cb = (char[8])\"\\x82\\x02\",\n (union){\n  (struct){\n   ._skb_refdst = (long unsigned \
         int)0xffff888005548040,\n  },\n  .tcp_tsorted_anchor = (struct list_head){.next=0xffff888005548040, .prev=NULL},\n  \
         ._sk_redir = (long unsigned int)0xffff888005548040,\n },\n .len = (unsigned int)628,\n ... /* 30 of 56 bytes */\n}"
    );
    assert_eq!(
        memory(&types, Options::new(Layout::Compact), skb, None, &bytes[..8]),
        "{.cb=\"\\x82\\x02\", ... /* 8 of 56 bytes */}"
    );
    assert_eq!(
        memory(&types, Options::new(Layout::Compact), skb, None, &[]),
        "{... /* 0 of 56 bytes */}"
    );
}

#[test]
fn records_that_end_too_early() {
    let mut f = Fixture::new();
    let skb = f.sk_buff();
    let skb_ptr = f.btf.ptr(skb);
    let types = f.types();
    let layout = layout(
        Phase::Entry,
        vec![
            item("a", ValueLayout::Scalar, CType::INT),
            item("skb", pointee(id(skb), 56, 56), CType::Btf(id(skb_ptr))),
        ],
    );
    let skb = with_pointer(0xffff_8880_0443_2700, &skb_bytes());
    let record = record(&layout, &[(0, 0, &1u64.to_le_bytes()), (0, 0, &skb)]);
    let show = |len: usize| print(&types, Options::new(Layout::Compact), &layout, &record[..len]);
    let head = "     45161385520    1      366 ip_rcv(";
    for len in 0..24 {
        assert_eq!(show(len), "<truncated record>\n");
    }
    assert_eq!(show(24), format!("{head}<truncated record>)\n"));
    assert_eq!(show(36), format!("{head}a=<truncated record>)\n"));
    assert_eq!(show(40), format!("{head}a=1 <truncated record>)\n"));
    assert_eq!(
        show(48 + 8),
        format!("{head}a=1, skb=0xffff888004432700 {{... /* 0 of 56 bytes */}} <truncated record>)\n")
    );
    let text = print(&types, Options::new(TEXT), &layout, &record[..40]);
    assert!(text.ends_with(
        "(int)1\n                                   <truncated record>\n                               );\n\n"
    ));
    // No layout has this number.
    let mut other = record.clone();
    other[0] = 8;
    assert_eq!(
        print(&types, Options::new(TEXT), &layout, &other),
        "<unknown event 8>\n\n"
    );
}

#[test]
fn colour_only_adds_escape_sequences() {
    let mut f = Fixture::new();
    let skb = f.sk_buff();
    let skb_ptr = f.btf.ptr(skb);
    let types = f.types();
    let layout = layout(
        Phase::Entry,
        vec![item("skb", pointee(id(skb), 56, 56), CType::Btf(id(skb_ptr)))],
    );
    let skb = with_pointer(0xffff_8880_0443_2700, &skb_bytes());
    let record = record(&layout, &[(0, 0, &skb)]);
    for format in [TEXT, Layout::Compact] {
        let plain = print(&types, Options::new(format), &layout, &record);
        let colored = Options {
            color: true,
            ..Options::new(format)
        };
        let colored = print(&types, colored, &layout, &record);
        assert!(!plain.contains('\x1b'));
        assert!(colored.contains('\x1b'));
        let mut stripped = colored;
        for sequence in ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m"] {
            stripped = stripped.replace(sequence, "");
        }
        assert_eq!(stripped, plain);
    }
}
