//! The kernel itself can print a value of any of its types, by `bpf_snprintf_btf`, which libbpf's dumper is made after. Types
//! sampled over the running kernel's BTF, with bytes of all kinds, are printed by the kernel and by us: the same members with the
//! same values. Needs a kernel with BTF and the privilege to load a program; says so where it can't run.

use std::collections::BTreeMap;

use ksnoop_jit::ctype::CType;
use ksnoop_jit::display::{Layout, NoSymbols, Options, Printer};
use ksnoop_jit::span::Span;
use ksnoop_jit::types::{Type, TypeId, Types};
use ksnoop_jit::wire::{self, ItemLayout, Phase, RecordLayout, ValueLayout};
use ksnoop_jit_runtime::{LogLevel, MapRef, Maps, RawLoaded, RawProgram, RuntimeError, btf, load_raw};
use serde_json::Value;

/// How many types are compared, of each of the kinds below.
const TYPES: usize = 300;
/// Bytes of the largest type that is compared.
const DATA: usize = 1 << 14;
/// Room for the kernel's text.
const TEXT: usize = 1 << 20;
/// In the map: type id and flags, then what is printed, then the text.
const HEAD: usize = 16;
/// `BTF_F_COMPACT | BTF_F_PTR_RAW | BTF_F_ZERO` (include/uapi/linux/bpf.h).
const FLAGS: u64 = 1 | 4 | 8;

/// A program that prints what is in the map into the map.
struct Dumper {
    program: RawLoaded,
    maps: Maps,
}

impl Dumper {
    fn new() -> Result<Dumper, RuntimeError> {
        let maps = Maps::array("work", (HEAD + DATA + TEXT) as u32)?;
        let mut code = Vec::new();
        let mut insn = |op: u8, dst: u8, src: u8, off: i16, imm: i32| {
            code.extend([op, dst | src << 4]);
            code.extend(off.to_le_bytes());
            code.extend(imm.to_le_bytes());
        };
        // r6 = the map's value (BPF_PSEUDO_MAP_VALUE)
        insn(0x18, 6, 2, 0, 0);
        insn(0, 0, 0, 0, 0);
        // struct btf_ptr { void *ptr; u32 type_id; u32 flags; } at fp - 16
        insn(0x61, 1, 6, 0, 0);
        insn(0x63, 10, 1, -8, 0);
        insn(0x62, 10, 0, -4, 0);
        insn(0xbf, 1, 6, 0, 0);
        insn(0x07, 1, 0, 0, HEAD as i32);
        insn(0x7b, 10, 1, -16, 0);
        // bpf_snprintf_btf(text, TEXT, &btf_ptr, 16, flags)
        insn(0x79, 5, 6, 8, 0);
        insn(0x07, 1, 0, 0, DATA as i32);
        insn(0xb7, 2, 0, 0, TEXT as i32);
        insn(0xbf, 3, 10, 0, 0);
        insn(0x07, 3, 0, 0, -16);
        insn(0xb7, 4, 0, 0, 16);
        insn(0x85, 0, 0, 0, 149);
        insn(0x7b, 6, 0, 8, 0);
        insn(0xb7, 0, 0, 0, 0);
        insn(0x95, 0, 0, 0, 0);
        let map_refs = [MapRef {
            slot: 0,
            map: "work".to_string(),
        }];
        let program = load_raw(
            &RawProgram {
                // BPF_PROG_TYPE_RAW_TRACEPOINT, which can be run without being attached.
                prog_type: 17,
                insns: &code,
                maps: Some(&maps),
                map_refs: &map_refs,
                ..Default::default()
            },
            LogLevel::Off,
        )?;
        Ok(Dumper { program, maps })
    }

    /// The kernel's text for the bytes; `None` if the kernel prints no value of that type.
    fn print(&self, id: u32, bytes: &[u8]) -> Option<String> {
        let key = 0u32.to_ne_bytes();
        let mut value = vec![0u8; HEAD + DATA + TEXT];
        value[..4].copy_from_slice(&id.to_ne_bytes());
        value[8..16].copy_from_slice(&FLAGS.to_ne_bytes());
        value[HEAD..HEAD + bytes.len()].copy_from_slice(bytes);
        self.maps.update("work", &key, &value).expect("the map is ours");
        self.program.test_run(&[]).expect("it runs");
        let value = self.maps.lookup("work", &key).expect("it is there")?;
        let length = u64::from_ne_bytes(value.get(8..16)?.try_into().ok()?) as i64;
        let length = usize::try_from(length).ok().filter(|length| *length < TEXT)?;
        let text = value.get(HEAD + DATA..HEAD + DATA + length)?;
        // What the kernel takes for printable is Latin-1 (lib/ctype.c).
        Some(text.iter().map(|byte| char::from(*byte)).collect())
    }
}

/// What the kernel printed.
#[derive(Debug)]
enum Tree {
    Leaf(String),
    /// Members with their names, elements and members of anonymous types without.
    Parts(Vec<(String, Tree)>),
}

/// Reads `(cast){.name = (cast)value,...}` and `(cast)[...]`.
struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn tree(&mut self) -> Tree {
        // A cast; that of a function pointer has parentheses in it.
        let mut array = false;
        if self.rest.starts_with('(') {
            let mut depth = 0;
            let end = self.rest.find(|c| {
                depth += match c {
                    '(' => 1,
                    ')' => -1,
                    _ => 0,
                };
                depth == 0
            });
            let end = end.expect("a cast ends");
            array = self.rest[..end].ends_with("[]");
            self.skip(end + 1);
        }
        let close = match self.rest.chars().next() {
            Some('{') => '}',
            Some('[') => ']',
            // Of an array of pointers, the kernel does not print the opening bracket.
            _ if array => ']',
            _ => {
                // A character may be a comma.
                let quoted = self.rest.starts_with('\'');
                let from = self.rest.char_indices().nth(if quoted { 3 } else { 0 });
                let from = from.map_or(0, |(at, _)| at);
                let end = self.rest[from..]
                    .find([',', '}', ']'])
                    .map_or(self.rest.len(), |end| from + end);
                let leaf = self.rest[..end].to_string();
                let near = || self.rest.chars().take(80).collect::<String>();
                assert!(
                    !leaf.is_empty(),
                    "the kernel's text has no value before `{}`",
                    near()
                );
                self.skip(end);
                return Tree::Leaf(leaf);
            }
        };
        if self.rest.starts_with(['{', '[']) {
            self.skip(1);
        }
        let mut parts = Vec::new();
        while !self.rest.starts_with(close) {
            assert!(!self.rest.is_empty(), "the text ends within a value");
            let mut name = String::new();
            if self.rest.starts_with('.') {
                let (found, rest) = self.rest[1..].split_once(" = ").expect("a member has a value");
                name = found.to_string();
                self.rest = rest;
            }
            parts.push((name, self.tree()));
            if self.rest.starts_with(',') {
                self.skip(1);
            }
        }
        self.skip(1);
        Tree::Parts(parts)
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }
}

/// What we print, as JSON with all members.
fn ours(types: &Types, id: TypeId, bytes: &[u8]) -> Value {
    let size = bytes.len() as u32;
    let layouts = [RecordLayout {
        event: 0,
        size: wire::HEADER + wire::VALUE + size.max(8),
        names: vec!["f".to_string()],
        query: 0,
        returns: false,
        phase: Phase::Hit,
        items: vec![ItemLayout {
            label: "x".to_string(),
            offset: wire::HEADER,
            value: ValueLayout::Bytes {
                copied: size,
                full: size,
            },
            ty: CType::Btf(id),
            format: None,
            span: Span::default(),
            steps: vec![],
        }],
    }];
    let mut record = vec![0; (wire::HEADER + wire::VALUE) as usize];
    record.extend(bytes);
    let options = Options {
        zeros: true,
        max_array: u32::MAX,
        max_string: u32::MAX,
        depth: u32::MAX,
        ..Options::new(Layout::Json)
    };
    let mut out = String::new();
    Printer::new(types, &layouts, options).event(&record, &mut out, &NoSymbols);
    let mut value: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    value["values"]["x"].take()
}

/// Compares both; adds what differs.
struct Comparison<'a> {
    types: &'a Types,
    differences: Vec<String>,
    leaves: usize,
}

impl Comparison<'_> {
    fn value(&mut self, path: &str, id: TypeId, kernel: &Tree, ours: &Value) {
        let id = self.types.strip(id);
        match (self.types.get(id), kernel) {
            (Type::Struct(composite) | Type::Union(composite), Tree::Parts(parts)) => {
                // Members of anonymous types come in order, one of ours for each.
                let mut parts = parts.iter();
                for member in composite.members.iter() {
                    let path = format!("{path}.{}", member.name);
                    let Some((name, tree)) = parts.next() else {
                        self.differ(&path, "the kernel has no such member", ours);
                        return;
                    };
                    if *name != member.name {
                        self.differ(&path, &format!("the kernel has `{name}` here"), ours);
                        return;
                    }
                    if member.name.is_empty() {
                        self.value(&path, member.ty, tree, ours);
                        continue;
                    }
                    match ours.get(name) {
                        Some(value) if member.bitfield.is_some() => {
                            self.leaf(&path, member.ty, tree, value, member.bitfield)
                        }
                        Some(value) => self.value(&path, member.ty, tree, value),
                        // Nothing is shown of what has no size.
                        None if self.types.size_of(member.ty).unwrap_or(0) == 0 => {}
                        None => self.differ(&path, "we do not show it", ours),
                    }
                }
            }
            (Type::Array { elem, .. }, Tree::Parts(parts)) => self.array(path, elem, parts, ours),
            (_, tree) => self.leaf(path, id, tree, ours, None),
        }
    }

    fn array(&mut self, path: &str, elem: TypeId, parts: &[(String, Tree)], ours: &Value) {
        let byte = matches!(self.types.get_stripped(elem), Type::Int(int) if int.size == 1);
        let text = text_bytes(ours);
        // Of an array of pointers the kernel (6.18) prints the first again and again.
        let pointers = matches!(self.types.get_stripped(elem), Type::Ptr(_));
        let compared = if pointers { 1 } else { parts.len() };
        for (index, (_, tree)) in parts.iter().enumerate().take(compared) {
            let path = format!("{path}[{index}]");
            match (&text, ours.get(index)) {
                (Some(bytes), _) => match bytes.get(index) {
                    Some(byte) => self.leaf(&path, elem, tree, &Value::from(*byte as i8), None),
                    None => self.differ(&path, "our string is shorter", ours),
                },
                (None, Some(value)) => self.value(&path, elem, tree, value),
                (None, None) => self.differ(&path, "our array is shorter", ours),
            }
        }
        // The kernel takes any array of bytes for a string, and ends it at the NUL.
        let count = text.map_or_else(|| ours.as_array().map_or(0, Vec::len), |bytes| bytes.len());
        if !byte && count != parts.len() {
            self.differ(path, &format!("the kernel has {} elements", parts.len()), ours);
        }
    }

    fn leaf(&mut self, path: &str, id: TypeId, tree: &Tree, ours: &Value, bits: Option<u8>) {
        self.leaves += 1;
        let ty = self.types.get_stripped(id);
        let Tree::Leaf(kernel) = tree else {
            self.differ(path, "the kernel has parts here", ours);
            return;
        };
        let size = match &ty {
            // The kernel prints none.
            Type::Float { .. } => return,
            Type::Int(int) => int.size,
            Type::Enum(e) => e.size,
            _ => 8,
        };
        let width = bits.map_or(size * 8, u32::from);
        // Both as the bits they are made of.
        let mask = |value: i128| (value as u128) & (u128::MAX >> (128 - width.clamp(1, 128)));
        let theirs = match kernel.strip_prefix("0x") {
            Some(digits) => u128::from_str_radix(digits, 16).ok(),
            None => kernel.parse::<i128>().ok().map(mask).or_else(|| {
                let quoted = kernel.strip_prefix('\'')?.chars().next()?;
                Some(quoted as u128)
            }),
        };
        let own = match (ours, &ty) {
            (Value::Null, _) => Some(0),
            (Value::Bool(value), Type::Int(int)) if int.is_bool => {
                return self.expect(path, theirs.map(|n| n != 0) == Some(*value), kernel, ours);
            }
            (Value::Number(number), _) => number.as_i128().map(mask),
            (Value::String(name), Type::Enum(e)) => {
                if name == kernel {
                    return;
                }
                set_of(e, name).map(mask)
            }
            (Value::String(text), _) => match text.strip_prefix("0x") {
                Some(digits) => u128::from_str_radix(digits, 16).ok(),
                None => text.parse::<i128>().ok().map(mask).or_else(|| text.parse().ok()),
            },
            (Value::Object(map), _) => match (map.get("$errno"), map.get("$address")) {
                (Some(number), _) => number.as_i64().map(|number| mask(-i128::from(number))),
                (None, Some(at)) => at
                    .as_str()
                    .and_then(|at| u128::from_str_radix(at.trim_start_matches("0x"), 16).ok()),
                (None, None) => None,
            },
            (_, _) => None,
        };
        // A name of the kernel's that we have not: names of one value are many.
        let theirs = theirs.or_else(|| match &ty {
            Type::Enum(e) => set_of(e, kernel).map(mask),
            _ => None,
        });
        // Sign-extension is a matter of who prints.
        let same = theirs.is_some() && theirs.map(|n| mask(n as i128)) == own.map(|n| mask(n as i128));
        self.expect(path, same, kernel, ours);
    }

    fn expect(&mut self, path: &str, holds: bool, kernel: &str, ours: &Value) {
        if !holds {
            self.differ(path, &format!("the kernel says {kernel}"), ours);
        }
    }

    fn differ(&mut self, path: &str, why: &str, ours: &Value) {
        let mut ours = ours.to_string();
        ours.truncate(200);
        self.differences.push(format!("{path}: {why}, we {ours}"));
    }
}

/// The bytes of what we show as a string.
fn text_bytes(ours: &Value) -> Option<Vec<u8>> {
    if let Some(text) = ours.as_str() {
        return Some(text.as_bytes().to_vec());
    }
    if let Some(digits) = ours.get("$hex").and_then(Value::as_str) {
        let pairs = digits.as_bytes().chunks(2);
        return pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
    }
    None
}

/// The number that names with `|` between stand for.
fn set_of(e: &ksnoop_jit::types::Enum, names: &str) -> Option<i128> {
    names
        .split('|')
        .map(|name| match name.strip_prefix("0x") {
            Some(digits) => i128::from_str_radix(digits, 16).ok(),
            None => e
                .values
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| *value),
        })
        .try_fold(0, |sum, value| Some(sum | value?))
}

/// Of structs in arrays the kernel (6.18) prints neither names nor opening braces, so that nothing could be compared by name.
fn has_structs_in_arrays(types: &Types, id: TypeId, in_array: bool) -> bool {
    match types.get_stripped(id) {
        Type::Array { elem, .. } => has_structs_in_arrays(types, elem, true),
        Type::Struct(composite) | Type::Union(composite) => {
            let mut members = composite.members.iter();
            in_array || members.any(|member| has_structs_in_arrays(types, member.ty, false))
        }
        _ => false,
    }
}

/// Bytes of which some are zero, some small, and some anything.
fn bytes(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(size + 8);
    while out.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = match state >> 61 {
            0..=2 => 0,
            3 => (state >> 8) & 7,
            4 => 1 << ((state >> 8) & 63),
            5 => 0x0062_6120_7e7c_2c41,
            _ => state,
        };
        out.extend(word.to_le_bytes());
    }
    out.truncate(size);
    out
}

#[test]
fn the_kernel_prints_the_same_members_and_values() {
    let (base, dumper) = match (btf::open_vmlinux(None), Dumper::new()) {
        (Ok(base), Ok(dumper)) => (base, dumper),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("SKIP: {error}");
            return;
        }
    };
    let types = Types::new(base);
    let (first, last) = types.base().base().type_id_range();
    // Kinds are sampled apart: nearly all types are functions and pointers.
    let mut kinds: BTreeMap<&str, Vec<TypeId>> = BTreeMap::new();
    for id in first.max(1)..=last {
        let id = TypeId { module: 0, id };
        let kind = match types.get(id) {
            Type::Struct(_) => "struct",
            Type::Union(_) => "union",
            Type::Enum(_) => "enum",
            Type::Typedef(_) => "typedef",
            Type::Array { .. } => "array",
            Type::Ptr(_) => "pointer",
            Type::Int(_) => "int",
            _ => continue,
        };
        let size = types.size_of(id).unwrap_or(0);
        if size > 0 && size <= DATA as u64 && !has_structs_in_arrays(&types, id, false) {
            kinds.entry(kind).or_default().push(id);
        }
    }
    let shares = BTreeMap::from([
        ("struct", TYPES / 2),
        ("union", TYPES / 10),
        ("enum", TYPES / 10),
        ("typedef", TYPES / 10),
        ("array", TYPES / 10),
        ("pointer", TYPES / 20),
        ("int", TYPES / 20),
    ]);
    let mut compared = 0;
    let mut all = Comparison {
        types: &types,
        differences: Vec::new(),
        leaves: 0,
    };
    for (kind, share) in shares {
        let ids = kinds.remove(kind).unwrap_or_default();
        let step = (ids.len() / share).max(1);
        for id in ids.into_iter().step_by(step).take(share) {
            let size = types.size_of(id).unwrap_or(0) as usize;
            let bytes = bytes(u64::from(id.id), size);
            let name = types.c_name(id);
            let Some(text) = dumper.print(id.id, &bytes) else {
                panic!("the kernel prints no {name}");
            };
            let tree = Reader { rest: &text }.tree();
            let before = all.differences.len();
            all.value(&name, id, &tree, &ours(&types, id, &bytes));
            if all.differences.len() > before && all.differences.len() < 20 {
                eprintln!(
                    "{name}: the kernel: {}",
                    text.chars().take(600).collect::<String>()
                );
            }
            compared += 1;
        }
    }
    assert!(
        all.differences.is_empty(),
        "{} of {} values in {compared} types differ:\n{}",
        all.differences.len(),
        all.leaves,
        all.differences
            .iter()
            .take(40)
            .cloned()
            .collect::<Vec<String>>()
            .join("\n")
    );
    assert!(compared >= TYPES * 9 / 10, "only {compared} types");
    println!("{compared} types with {} values", all.leaves);
}
