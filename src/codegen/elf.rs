//! The ELF object. In: encoded programs, their maps, the local types. Out: the bytes of a relocatable file that libbpf
//! and aya load. Never holds a relocation with an addend: the writer would put it over the instruction.

use std::collections::BTreeMap;

use object::write::{Relocation, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope,
};

use super::local::{Local, LocalReloc};
use super::{CodegenError, Program};
use crate::ir::{MapData, MapKind};
use crate::types::ext::BtfExt;
use crate::types::write::{BtfWriter, FUNC_GLOBAL, Field, INT_SIGNED};

/// The object and the finished BTF that is in it.
pub(crate) struct Elf {
    pub(crate) bytes: Vec<u8>,
    pub(crate) btf: Vec<u8>,
}

/// Writes it. `queries[i]` is the text of `programs[i]`; `relocs` are those of the function that each came from.
pub(crate) fn write(
    programs: &[Program],
    queries: &[&str],
    local: Local,
    maps: &[MapData],
) -> Result<Elf, CodegenError> {
    let mut btf = local.writer;
    let mut object = object::write::Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let int = btf.int("int", 4, INT_SIGNED);
    let map_symbols = write_maps(&mut object, &mut btf, int, maps);

    let pointer = btf.ptr(0);
    let proto = btf.func_proto(int, &[("ctx", pointer)], false);
    let file = btf.intern_str("query");
    let mut ext = BtfExt::new();
    let mut sections: BTreeMap<&str, object::write::SectionId> = BTreeMap::new();
    for ((program, query), relocs) in programs.iter().zip(queries).zip(&local.relocs) {
        let name = program.section.as_str();
        // Programs with the same section name follow each other in one section.
        let section = *sections
            .entry(name)
            .or_insert_with(|| object.add_section(Vec::new(), name.into(), SectionKind::Text));
        let code = program.bytes();
        let start = object.append_section_data(section, &code, 8);
        object.add_symbol(Symbol {
            name: program.name.clone().into_bytes(),
            value: start,
            size: code.len() as u64,
            kind: SymbolKind::Text,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        });
        for (slot, map) in &program.map_refs {
            let Some(symbol) = map_symbols.get(map.as_str()) else {
                continue;
            };
            let added = object.add_relocation(
                section,
                Relocation {
                    offset: start + 8 * *slot as u64,
                    symbol: *symbol,
                    addend: 0,
                    flags: RelocationFlags::Elf {
                        r_type: object::elf::R_BPF_64_64,
                    },
                },
            );
            added.map_err(|error| CodegenError::Elf(error.to_string()))?;
        }
        let start = start as u32;
        let section = btf.intern_str(name);
        let func = btf.func(&program.name, proto, FUNC_GLOBAL);
        ext.func_info(section, start, func);
        lines(&mut ext, &mut btf, program, query, section, start, file);
        core_relos(&mut ext, &mut btf, program, relocs, section, start);
    }

    let license = object.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    object.set_section_data(license, b"GPL\0".to_vec(), 1);
    let btf = btf.finish();
    let section = object.add_section(Vec::new(), b".BTF".to_vec(), SectionKind::Other);
    object.set_section_data(section, btf.clone(), 4);
    let section = object.add_section(Vec::new(), b".BTF.ext".to_vec(), SectionKind::Other);
    object.set_section_data(section, ext.finish(), 4);
    let bytes = object
        .write()
        .map_err(|error| CodegenError::Elf(error.to_string()))?;
    Ok(Elf { bytes, btf })
}

/// Each map is a variable whose anonymous struct type says what it is: numbers are lengths of arrays.
fn write_maps(
    object: &mut object::write::Object<'_>,
    btf: &mut BtfWriter,
    int: u32,
    maps: &[MapData],
) -> BTreeMap<String, SymbolId> {
    let mut symbols = BTreeMap::new();
    if maps.is_empty() {
        return symbols;
    }
    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    let mut data = Vec::new();
    let mut variables = Vec::new();
    let section = object.add_section(Vec::new(), b".maps".to_vec(), SectionKind::Data);
    for map in maps {
        let mut fields: Vec<(&str, u32)> = vec![("type", map_type(map.kind))];
        if map.kind != MapKind::Ringbuf {
            fields.push(("key_size", map.key_size));
            fields.push(("value_size", map.value_size));
        }
        fields.push(("max_entries", map.max_entries));
        let mut members = Vec::new();
        for (name, number) in &fields {
            let ty = *numbers.entry(*number).or_insert_with(|| {
                let array = btf.array(int, int, *number);
                btf.ptr(array)
            });
            members.push(Field::at(name, ty, 8 * members.len() as u32));
        }
        let size = 8 * members.len() as u32;
        let ty = btf.struct_("", size, &members);
        let variable = btf.var(&map.name, ty, 1);
        let start = data.len() as u32;
        data.resize(data.len() + size as usize, 0);
        variables.push((variable, start, size));
        let symbol = object.add_symbol(Symbol {
            name: map.name.clone().into_bytes(),
            value: u64::from(start),
            size: u64::from(size),
            kind: SymbolKind::Data,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        });
        symbols.insert(map.name.clone(), symbol);
    }
    btf.datasec(".maps", data.len() as u32, &variables);
    object.set_section_data(section, data, 8);
    symbols
}

/// `enum bpf_map_type`.
fn map_type(kind: MapKind) -> u32 {
    match kind {
        MapKind::Hash => 1,
        MapKind::Array => 2,
        MapKind::PercpuHash => 5,
        MapKind::PercpuArray => 6,
        MapKind::StackTrace => 7,
        MapKind::CgroupArray => 8,
        MapKind::LruHash => 9,
        MapKind::Ringbuf => 27,
    }
}

/// The query as the program's source: one line, with the column of what an instruction is about. The first instruction
/// of a program must have an entry.
fn lines(
    ext: &mut BtfExt,
    btf: &mut BtfWriter,
    program: &Program,
    query: &str,
    section: u32,
    start: u32,
    file: u32,
) {
    let text = btf.intern_str(query);
    let mut last = None;
    for (slot, note) in program.notes.iter().enumerate() {
        if slot > 0 && program.insns[slot - 1].is_wide() {
            continue;
        }
        let column = note.span.map_or(1, |span| span.start.saturating_add(1));
        if last != Some(column) && (slot == 0 || note.span.is_some()) {
            ext.line_info(section, start + 8 * slot as u32, file, text, 1, column);
            last = Some(column);
        }
    }
}

fn core_relos(
    ext: &mut BtfExt,
    btf: &mut BtfWriter,
    program: &Program,
    relocs: &[LocalReloc],
    section: u32,
    start: u32,
) {
    for reloc in &program.relocs {
        if let Some(local) = relocs.get(reloc.index) {
            let access = btf.intern_str(&local.access);
            let offset = start + 8 * reloc.insn as u32;
            ext.core_relo(section, offset, local.type_id, access, local.kind);
        }
    }
}
