//! Types and records for the tests of display. In: what a test wants to see. Out: a printer's text. The types are made
//! with the BTF writer, so that every kind is there.

use crate::ctype::CType;
use crate::display::{Layout, Options, Printer, Symbol, Symbols};
use crate::span::Span;
use crate::types::write::{BtfWriter, Field, INT_BOOL, INT_CHAR, INT_SIGNED};
use crate::types::{TypeId, Types};
use crate::wire::{self, Format, ItemLayout, Phase, RecordLayout, ValueLayout};

/// BTF with the plain types that most tests need.
pub(super) struct Fixture {
    pub(super) btf: BtfWriter,
    pub(super) int: u32,
    pub(super) uint: u32,
    pub(super) long: u32,
    pub(super) ulong: u32,
    pub(super) short: u32,
    pub(super) u8_: u32,
    pub(super) char_: u32,
    pub(super) bool_: u32,
    pub(super) float: u32,
    pub(super) double: u32,
    pub(super) void_ptr: u32,
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        let mut btf = BtfWriter::new();
        Fixture {
            int: btf.int("int", 4, INT_SIGNED),
            uint: btf.int("unsigned int", 4, 0),
            long: btf.int("long int", 8, INT_SIGNED),
            ulong: btf.int("long unsigned int", 8, 0),
            short: btf.int("short int", 2, INT_SIGNED),
            u8_: btf.int("unsigned char", 1, 0),
            char_: btf.int("char", 1, INT_SIGNED | INT_CHAR),
            bool_: btf.int("_Bool", 1, INT_BOOL),
            float: btf.float("float", 4),
            double: btf.float("double", 8),
            void_ptr: btf.ptr(0),
            btf,
        }
    }

    pub(super) fn array(&mut self, elem: u32, len: u32) -> u32 {
        let index = self.uint;
        self.btf.array(elem, index, len)
    }

    /// `struct list_head`, `typedef refcount_t` and a `struct sk_buff` much like the kernel's.
    pub(super) fn sk_buff(&mut self) -> u32 {
        let list_head = self.btf.fwd("list_head_target", false);
        let list_ptr = self.btf.ptr(list_head);
        let list = self.btf.struct_(
            "list_head",
            16,
            &[Field::at("next", list_ptr, 0), Field::at("prev", list_ptr, 8)],
        );
        let int = self.int;
        let atomic = self.btf.struct_("", 4, &[Field::at("counter", int, 0)]);
        let atomic_t = self.btf.typedef("atomic_t", atomic);
        let refs = self
            .btf
            .struct_("refcount_struct", 4, &[Field::at("refs", atomic_t, 0)]);
        let refcount_t = self.btf.typedef("refcount_t", refs);
        let inner = self
            .btf
            .struct_("", 8, &[Field::at("_skb_refdst", self.ulong, 0)]);
        let views = self.btf.union_(
            "",
            16,
            &[
                Field::at("", inner, 0),
                Field::at("tcp_tsorted_anchor", list, 0),
                Field::at("_sk_redir", self.ulong, 0),
            ],
        );
        let cb = self.array(self.char_, 8);
        let const_uchar = self.btf.const_(self.u8_);
        let data = self.btf.ptr(const_uchar);
        self.btf.struct_(
            "sk_buff",
            56,
            &[
                Field::at("cb", cb, 0),
                Field::at("", views, 8),
                Field::at("len", self.uint, 24),
                Field::at("data_len", self.uint, 28),
                Field::at("mac_len", self.short, 32),
                Field::at("data", data, 40),
                Field::at("users", refcount_t, 48),
            ],
        )
    }

    pub(super) fn types(&self) -> Types {
        Types::new(btf_rs::Btf::from_bytes(&self.btf.finish()).expect("the writer makes readable BTF"))
    }
}

pub(super) fn id(id: u32) -> TypeId {
    TypeId { module: 0, id }
}

pub(super) fn item(label: &str, value: ValueLayout, ty: CType) -> ItemLayout {
    ItemLayout {
        label: label.to_string(),
        offset: 0,
        value,
        ty,
        format: None,
        span: Span::default(),
        steps: vec![label.to_string()],
    }
}

/// A layout of these values, one after the other.
pub(super) fn layout(phase: Phase, items: Vec<ItemLayout>) -> RecordLayout {
    let mut size = wire::HEADER;
    let items = items
        .into_iter()
        .map(|item| {
            let offset = size;
            size += item.value.item_size();
            ItemLayout { offset, ..item }
        })
        .collect();
    RecordLayout {
        event: 7,
        size,
        names: vec!["ip_rcv".to_string()],
        query: 0,
        phase,
        items,
        returns: false,
    }
}

/// A record of the layout: for each value its fault, its length and its bytes.
pub(super) fn record(layout: &RecordLayout, values: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; layout.size as usize];
    let mut put = |at: u32, data: &[u8]| {
        bytes[at as usize..at as usize + data.len()].copy_from_slice(data);
    };
    put(wire::EVENT, &layout.event.to_le_bytes());
    put(wire::CPU, &1u32.to_le_bytes());
    put(wire::TIME, &45_161_385_520u64.to_le_bytes());
    put(wire::TID, &999u32.to_le_bytes());
    put(wire::PID, &366u32.to_le_bytes());
    for (item, (fault, length, data)) in layout.items.iter().zip(values) {
        put(item.offset + wire::FAULT, &fault.to_le_bytes());
        put(item.offset + wire::LENGTH, &length.to_le_bytes());
        put(item.offset + wire::VALUE, data);
    }
    bytes
}

/// Knows one function and one variable.
pub(super) struct TwoSymbols;

impl Symbols for TwoSymbols {
    fn resolve(&self, address: u64) -> Option<Symbol<'_>> {
        let (name, start, module) = match address {
            0xffff_ffff_8100_0000..0xffff_ffff_8100_1000 => ("ip_rcv", 0xffff_ffff_8100_0000, None),
            0xffff_ffff_c000_0000.. => ("ops", 0xffff_ffff_c000_0000, Some("ext4".into())),
            _ => return None,
        };
        Some(Symbol {
            name: name.into(),
            offset: address - start,
            module,
        })
    }
}

pub(super) fn print(types: &Types, options: Options, layout: &RecordLayout, record: &[u8]) -> String {
    let layouts = [layout.clone()];
    let mut out = String::new();
    let chrome = options.format == Layout::Chrome;
    let mut printer = Printer::new(types, &layouts, options);
    if chrome {
        // Only with its brackets is a trace JSON.
        printer.begin(&[], &mut out);
    }
    printer.event(record, &mut out, &TwoSymbols);
    printer.end(&mut out);
    out
}

/// The text of one value, without the event around it: its lines, less the indent of values.
pub(super) fn value_text(
    types: &Types,
    options: Options,
    item: ItemLayout,
    value: (u32, u32, &[u8]),
) -> String {
    let layout = layout(Phase::Entry, vec![item]);
    let text = print(types, options, &layout, &record(&layout, &[value]));
    let lines: Vec<&str> = text.lines().collect();
    let inner = lines.get(1..lines.len().saturating_sub(2)).unwrap_or(&[]);
    let trimmed: Vec<&str> = inner
        .iter()
        .map(|line| {
            let indent = line.len() - line.trim_start().len();
            &line[indent.min(36)..]
        })
        .collect();
    trimmed.join("\n")
}

/// The text of a scalar of the type, after its label.
pub(super) fn scalar(types: &Types, ty: CType, format: Option<Format>, raw: u64) -> String {
    let item = ItemLayout {
        format,
        ..item("x", ValueLayout::Scalar, ty)
    };
    let text = value_text(
        types,
        Options::new(Layout::Text),
        item,
        (0, 0, &raw.to_le_bytes()),
    );
    text.strip_prefix("x = \n").expect("a label").to_string()
}

/// The text of a whole struct, union or array, after its label.
pub(super) fn memory(
    types: &Types,
    options: Options,
    ty: u32,
    format: Option<Format>,
    bytes: &[u8],
) -> String {
    let size = bytes.len() as u32;
    let full = types.size_of(id(ty)).expect("a size") as u32;
    let value = ValueLayout::Bytes { copied: size, full };
    let item = ItemLayout {
        format,
        ..item("x", value, CType::Btf(id(ty)))
    };
    let frame = match options.format {
        Layout::Text => None,
        Layout::Compact => Some(("(x=", ")\n")),
        Layout::Json => Some(("\"values\":{\"x\":", "}}\n")),
        Layout::Chrome => Some((",\"x\":", "}}\n]\n")),
    };
    if let Some((before, behind)) = frame {
        let layout = layout(Phase::Entry, vec![item]);
        let text = print(types, options, &layout, &record(&layout, &[(0, 0, bytes)]));
        let (_, text) = text.split_once(before).expect("a label");
        return text.strip_suffix(behind).expect("an end").to_string();
    }
    let text = value_text(types, options, item, (0, 0, bytes));
    text.strip_prefix("x = \n").expect("a label").to_string()
}
