//! A tiny object, assembled by hand, for the tests and the example: it counts, and sends who ran it.
//!
//! In: a program's section, whether it asks for its cookie. Out: an ELF object with two maps and one CO-RE
//! relocation, and the slice of the kernel's BTF that it is relocated against. Never uses the compiler: what is
//! proved here is the runtime alone.

use std::collections::HashMap;

use object::write::{Object, Relocation, SectionId, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};

/// The name of the object's only program.
pub(crate) const PROGRAM: &str = "smoke";
/// The ring buffer: two `u64`s per event, the process id as read from the task, and the cookie.
pub(crate) const EVENTS: &str = "events";
/// A per-CPU counter of runs.
pub(crate) const COUNTER: &str = "counter";

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;

/// Writes BTF: types as words, names in one string.
pub(crate) struct BtfWriter {
    types: Vec<u8>,
    strings: Vec<u8>,
    known: HashMap<String, u32>,
    last: u32,
}

impl BtfWriter {
    pub(crate) fn new() -> BtfWriter {
        BtfWriter {
            types: vec![],
            strings: vec![0],
            known: HashMap::new(),
            last: 0,
        }
    }

    pub(crate) fn string(&mut self, s: &str) -> u32 {
        if s.is_empty() {
            return 0;
        }
        if let Some(at) = self.known.get(s) {
            return *at;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(s.as_bytes());
        self.strings.push(0);
        self.known.insert(s.to_owned(), at);
        at
    }

    fn entry(&mut self, name: &str, kind: u32, len: u32, size: u32, rest: &[u32]) -> u32 {
        let name = self.string(name);
        for word in [name, kind << 24 | len, size].iter().chain(rest) {
            self.types.extend(word.to_le_bytes());
        }
        self.last += 1;
        self.last
    }

    pub(crate) fn int(&mut self, name: &str, bytes: u32) -> u32 {
        self.entry(name, INT, 0, bytes, &[(1 << 24) | (bytes * 8)])
    }

    pub(crate) fn pointer(&mut self, to: u32) -> u32 {
        self.entry("", PTR, 0, to, &[])
    }

    /// `int (*)[n]`, which is how a map's definition writes the number `n`.
    fn number(&mut self, int: u32, n: u32) -> u32 {
        let array = self.entry("", ARRAY, 0, 0, &[int, int, n]);
        self.pointer(array)
    }

    /// Members: name, type, offset in bytes.
    pub(crate) fn structure(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let words: Vec<u32> = members
            .iter()
            .flat_map(|(n, t, o)| [self.string(n), *t, o * 8])
            .collect();
        self.entry(name, STRUCT, members.len() as u32, size, &words)
    }

    /// A map's definition; what it takes in `.maps`, and its variable's type.
    fn map(&mut self, int: u32, name: &str, numbers: &[(&str, u32)]) -> (u32, u32) {
        let members: Vec<(&str, u32, u32)> = numbers
            .iter()
            .zip(0..)
            .map(|((n, v), i)| (*n, self.number(int, *v), i * 8))
            .collect();
        let size = members.len() as u32 * 8;
        let definition = self.structure("", size, &members);
        (self.entry(name, VAR, 0, definition, &[1]), size)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (t, s) = (self.types.len() as u32, self.strings.len() as u32);
        let mut out = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, t, t, s] {
            out.extend(u32::to_le_bytes(word));
        }
        [out, self.types.clone(), self.strings.clone()].concat()
    }
}

/// `.BTF.ext` with one function and one relocation of one section.
fn btf_ext(section: u32, function: u32, relocation: [u32; 4]) -> Vec<u8> {
    let functions = [8, section, 1, 0, function];
    let relocations = [&[16, section, 1][..], &relocation].concat();
    let (f, r) = (functions.len() as u32 * 4, relocations.len() as u32 * 4);
    let mut out = vec![0x9f, 0xeb, 1, 0];
    for word in [32, 0, f, f, 0, f, r]
        .iter()
        .chain(&functions)
        .chain(&relocations)
    {
        out.extend(u32::to_le_bytes(*word));
    }
    out
}

/// Instructions; each method appends one and gives its offset in bytes.
#[derive(Default)]
pub(crate) struct Asm(pub(crate) Vec<u8>);

impl Asm {
    pub(crate) fn insn(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend([code, dst | src << 4]);
        self.0.extend(off.to_le_bytes());
        self.0.extend(imm.to_le_bytes());
        at
    }
    pub(crate) fn mov(&mut self, dst: u8, src: u8) -> u32 {
        self.insn(0xbf, dst, src, 0, 0)
    }
    pub(crate) fn mov_imm(&mut self, dst: u8, imm: i32) -> u32 {
        self.insn(0xb7, dst, 0, 0, imm)
    }
    pub(crate) fn add_imm(&mut self, dst: u8, imm: i32) -> u32 {
        self.insn(0x07, dst, 0, 0, imm)
    }
    pub(crate) fn call(&mut self, helper: i32) -> u32 {
        self.insn(0x85, 0, 0, 0, helper)
    }
    pub(crate) fn exit(&mut self) -> u32 {
        self.insn(0x95, 0, 0, 0, 0)
    }
    fn map(&mut self, dst: u8) -> u32 {
        let at = self.insn(0x18, dst, 0, 0, 0);
        self.insn(0, 0, 0, 0, 0);
        at
    }
}

/// The offset of `task_struct.tgid` that the code is written with, far from any real one.
const MADE_UP: u32 = 0x7000;

/// The object. Its program returns `ret`.
pub(crate) fn elf_object(section: &str, cookie: bool, ret: i32) -> Vec<u8> {
    let mut asm = Asm::default();
    asm.mov(6, 1);
    if cookie {
        asm.call(174);
        asm.mov(7, 0);
    } else {
        asm.mov_imm(7, 0);
    }
    asm.insn(0x7a, 10, 0, -16, 0);
    asm.insn(0x7b, 10, 7, -8, 0);
    // bpf_probe_read_kernel(fp - 16, 4, bpf_get_current_task() + offsetof(task_struct, tgid))
    asm.call(35);
    asm.mov(3, 0);
    let relocated = asm.add_imm(3, MADE_UP as i32);
    asm.mov(1, 10);
    asm.add_imm(1, -16);
    asm.mov_imm(2, 4);
    asm.call(113);
    // bpf_ringbuf_output(&events, fp - 16, 16, 0)
    let events = asm.map(1);
    asm.mov(2, 10);
    asm.add_imm(2, -16);
    asm.mov_imm(3, 16);
    asm.mov_imm(4, 0);
    asm.call(130);
    // counter[0]++
    asm.insn(0x62, 10, 0, -16, 0);
    let counter = asm.map(1);
    asm.mov(2, 10);
    asm.add_imm(2, -16);
    asm.call(1);
    asm.insn(0x15, 0, 0, 3, 0);
    asm.insn(0x79, 1, 0, 0, 0);
    asm.add_imm(1, 1);
    asm.insn(0x7b, 0, 1, 0, 0);
    asm.mov_imm(0, ret);
    asm.exit();

    let mut btf = BtfWriter::new();
    let int = btf.int("int", 4);
    let (ring, ring_size) = btf.map(int, EVENTS, &[("type", 27), ("max_entries", 1 << 16)]);
    let numbers = [
        ("type", 6),
        ("key_size", 4),
        ("value_size", 8),
        ("max_entries", 1),
    ];
    let (count, count_size) = btf.map(int, COUNTER, &numbers);
    let placed = [ring, 0, ring_size, count, ring_size, count_size];
    btf.entry(".maps", DATASEC, 2, ring_size + count_size, &placed);
    let task = btf.structure("task_struct", MADE_UP + 8, &[("tgid", int, MADE_UP)]);
    let context = btf.pointer(0);
    let (name, path, at) = (btf.string("ctx"), btf.string("0:0"), btf.string(section));
    let prototype = btf.entry("", FUNC_PROTO, 1, int, &[name, context]);
    let function = btf.entry(PROGRAM, FUNC, 1, prototype, &[]);
    let ext = btf_ext(at, function, [relocated, task, path, 0]);

    let mut obj = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let maps = obj.add_section(vec![], b".maps".to_vec(), SectionKind::Data);
    obj.set_section_data(maps, vec![0u8; (ring_size + count_size) as usize], 8);
    let ring = symbol(&mut obj, maps, EVENTS, 0, u64::from(ring_size), SymbolKind::Data);
    let count = symbol(
        &mut obj,
        maps,
        COUNTER,
        u64::from(ring_size),
        u64::from(count_size),
        SymbolKind::Data,
    );
    let text = obj.add_section(vec![], section.as_bytes().to_vec(), SectionKind::Text);
    let size = asm.0.len() as u64;
    obj.set_section_data(text, asm.0, 8);
    symbol(&mut obj, text, PROGRAM, 0, size, SymbolKind::Text);
    for (offset, symbol) in [(events, ring), (counter, count)] {
        let flags = RelocationFlags::Elf {
            r_type: elf::R_BPF_64_64,
        };
        let relocation = Relocation {
            offset: u64::from(offset),
            symbol,
            addend: 0,
            flags,
        };
        obj.add_relocation(text, relocation)
            .expect("BPF objects have relocations");
    }
    for (name, data, kind) in [
        ("license", b"GPL\0".to_vec(), SectionKind::Data),
        (".BTF", btf.bytes(), SectionKind::Other),
        (".BTF.ext", ext, SectionKind::Other),
    ] {
        let id = obj.add_section(vec![], name.as_bytes().to_vec(), kind);
        obj.set_section_data(id, data, 4);
    }
    obj.write().expect("an object can be written to memory")
}

/// BTF with `task_struct.tgid` at `offset` and nothing else.
pub(crate) fn target_btf(offset: u32) -> Vec<u8> {
    let mut btf = BtfWriter::new();
    let int = btf.int("int", 4);
    btf.structure("task_struct", offset + 4, &[("tgid", int, offset)]);
    btf.bytes()
}

/// Where `task_struct.tgid` is in these types.
pub(crate) fn tgid_offset(btf: &btf_rs::Btf) -> Option<u32> {
    for ty in btf.resolve_types_by_name("task_struct").ok()? {
        let btf_rs::Type::Struct(s) = ty else { continue };
        for member in &s.members {
            if btf.resolve_name(member).is_ok_and(|n| n == "tgid") {
                return Some(member.bit_offset() / 8);
            }
        }
    }
    None
}

fn symbol(
    obj: &mut Object<'_>,
    section: SectionId,
    name: &str,
    value: u64,
    size: u64,
    kind: SymbolKind,
) -> object::write::SymbolId {
    obj.add_symbol(Symbol {
        name: name.as_bytes().to_vec(),
        value,
        size,
        kind,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    })
}
