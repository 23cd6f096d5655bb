//! Writes `.BTF.ext`: which function, which source line and which CO-RE relocation belongs to which instruction.
//! In: section names and texts as offsets into the string table of the accompanying `BtfWriter`. Never checks them.

use super::write::Words;

/// Collects the records of `.BTF.ext`. Instruction offsets are in bytes. Sections appear in order of first mention, their
/// records in order of offset.
#[derive(Default, Clone, Debug)]
pub struct BtfExt {
    func: Vec<(u32, Vec<[u32; 2]>)>,
    line: Vec<(u32, Vec<[u32; 4]>)>,
    relo: Vec<(u32, Vec<[u32; 4]>)>,
}

/// Size of the header, which names all three parts.
const HEADER: u32 = 32;

impl BtfExt {
    /// Nothing yet.
    pub fn new() -> BtfExt {
        BtfExt::default()
    }

    /// A function of type `type_id` (a `FUNC`) begins at the offset.
    pub fn func_info(&mut self, section: u32, offset: u32, type_id: u32) {
        push(&mut self.func, section, [offset, type_id]);
    }

    /// The instruction comes from this line and column (from 1) of a file; `text` is the line itself.
    pub fn line_info(&mut self, section: u32, offset: u32, file: u32, text: u32, line: u32, column: u32) {
        // The format has 22 bits for the line and 10 for the column.
        let place = (line.min(0x3f_ffff) << 10) | column.min(0x3ff);
        push(&mut self.line, section, [offset, file, text, place]);
    }

    /// The instruction is to be relocated: `access` is the access string, `kind` one of libbpf's `bpf_core_relo_kind`.
    pub fn core_relo(&mut self, section: u32, offset: u32, type_id: u32, access: u32, kind: u32) {
        push(&mut self.relo, section, [offset, type_id, access, kind]);
    }

    /// The section's bytes.
    pub fn finish(&self) -> Vec<u8> {
        let func = part(&self.func);
        let line = part(&self.line);
        let relo = part(&self.relo);
        let mut out = Words::default();
        out.bytes(&[0x9f, 0xeb, 1, 0]);
        out.word(HEADER);
        let mut offset = 0;
        for part in [&func, &line, &relo] {
            out.word(offset);
            out.word(part.len() as u32);
            offset += part.len() as u32;
        }
        for part in [&func, &line, &relo] {
            out.bytes(part);
        }
        out.into_bytes()
    }
}

fn push<const N: usize>(list: &mut Vec<(u32, Vec<[u32; N]>)>, section: u32, record: [u32; N]) {
    match list.iter_mut().find(|(name, _)| *name == section) {
        Some((_, records)) => records.push(record),
        None => list.push((section, vec![record])),
    }
}

fn part<const N: usize>(list: &[(u32, Vec<[u32; N]>)]) -> Vec<u8> {
    let mut out = Words::default();
    if list.is_empty() {
        return out.into_bytes();
    }
    out.word((N * 4) as u32);
    for (section, records) in list {
        let mut records = records.clone();
        records.sort_by_key(|record| record[0]);
        out.word(*section);
        out.word(records.len() as u32);
        for word in records.iter().flatten() {
            out.word(*word);
        }
    }
    out.into_bytes()
}
