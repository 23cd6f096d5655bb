//! Reading ELF: 64-bit little-endian programs and shared libraries of the machines that `regs` knows. In: the file's bytes, or
//! what reads them on demand. Out: an [`Image`]. A section that can't be read is a trouble of the image, not the end of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use object::{LittleEndian, ReadRef, SymbolIndex};

use super::image::{CallSite, Function, Image, Probe, Segment};
use super::notes::{Note, notes};
use super::recipe::{Recipe, located, recipes};
use super::regs::Arch;

/// Why a file is no image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElfError {
    /// It is no ELF file, or a damaged one.
    NotElf(String),
    /// It is for a machine that this does not know, by its number (`e_machine`) and word size.
    Machine(String),
    /// It is neither a program nor a shared library.
    NotLinked,
}

impl fmt::Display for ElfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElfError::NotElf(why) => write!(f, "it is not a program: {why}"),
            ElfError::Machine(which) => write!(f, "it is for {which}; known are x86-64 and aarch64"),
            ElfError::NotLinked => f.write_str("it is an object file, which nothing runs"),
        }
    }
}

type File = FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// Reads a file.
///
/// # Errors
/// [`ElfError`] if it is no program or library.
pub fn read<'data, R: ReadRef<'data>>(data: R) -> Result<Image, ElfError> {
    read_with(data, &BTreeSet::new())
}

/// The same, with the addresses of these symbols too.
///
/// # Errors
/// [`ElfError`] if it is no program or library.
pub fn read_with<'data, R: ReadRef<'data>>(data: R, asked: &BTreeSet<String>) -> Result<Image, ElfError> {
    let not_elf = |error: object::read::Error| ElfError::NotElf(error.to_string());
    let ident = data
        .read_bytes_at(0, 6)
        .map_err(|()| ElfError::NotElf("it is too short".to_string()))?;
    if !ident.starts_with(&elf::ELFMAG) {
        return Err(ElfError::NotElf("it is no ELF file".to_string()));
    }
    if (ident[4], ident[5]) != (elf::ELFCLASS64, elf::ELFDATA2LSB) {
        return Err(ElfError::Machine("a 32-bit or big-endian machine".to_string()));
    }
    let header = File::parse(data).map_err(not_elf)?;
    let arch = match header.e_machine(LE) {
        elf::EM_X86_64 => Arch::X86_64,
        elf::EM_AARCH64 => Arch::Aarch64,
        other => return Err(ElfError::Machine(format!("machine {other}"))),
    };
    if !matches!(header.e_type(LE), elf::ET_EXEC | elf::ET_DYN) {
        return Err(ElfError::NotLinked);
    }
    let mut image = Image {
        path: std::path::PathBuf::new(),
        arch,
        segments: segments(header, data).map_err(not_elf)?,
        functions: Vec::new(),
        probes: Vec::new(),
        troubles: Vec::new(),
        btf: None,
        debugdata: None,
        debug_link: None,
        addresses: BTreeMap::new(),
        build_id: None,
    };
    let sections = match header.sections(LE, data) {
        Ok(sections) => sections,
        Err(error) => {
            image
                .troubles
                .push(format!("its sections can't be read: {error}"));
            return Ok(image);
        }
    };
    Reader {
        data,
        sections,
        image: &mut image,
    }
    .everything(asked);
    Ok(image)
}

fn segments<'data, R: ReadRef<'data>>(header: &File, data: R) -> object::read::Result<Vec<Segment>> {
    let all = header.program_headers(LE, data)?;
    let loaded = all.iter().filter(|segment| segment.p_type(LE) == elf::PT_LOAD);
    Ok(loaded
        .map(|segment| Segment {
            address: segment.p_vaddr(LE),
            offset: segment.p_offset(LE),
            size: segment.p_filesz(LE),
            memory: segment.p_memsz(LE).max(segment.p_filesz(LE)),
            executable: segment.p_flags(LE) & elf::PF_X != 0,
        })
        .collect())
}

struct Reader<'data, 'image, R: ReadRef<'data>> {
    data: R,
    sections: SectionTable<'data, File, R>,
    image: &'image mut Image,
}

impl<'data, R: ReadRef<'data>> Reader<'data, '_, R> {
    fn everything(mut self, asked: &BTreeSet<String>) {
        self.image.btf = self.section(".BTF").map(<[u8]>::to_vec);
        self.image.debugdata = self.section(".gnu_debugdata").map(<[u8]>::to_vec);
        self.image.debug_link = self.section(".gnu_debuglink").and_then(debug_link);
        self.image.build_id = self.section(".note.gnu.build-id").and_then(build_id);
        let notes = self.call_sites();
        let arch = self.image.arch;
        let mut wanted = asked.clone();
        for note in &notes {
            let recipes = recipes(&note.arguments, arch);
            let symbols = recipes.iter().flatten().filter_map(Recipe::symbol);
            wanted.extend(symbols.map(str::to_string));
        }
        self.symbols(&wanted);
        self.probes(notes);
    }

    /// The bytes of a section that has some.
    fn section(&mut self, name: &str) -> Option<&'data [u8]> {
        let (_, section) = self.sections.section_by_name(LE, name.as_bytes())?;
        match section.data(LE, self.data) {
            Ok([]) => None,
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.trouble(format!("{name} can't be read: {error}"));
                None
            }
        }
    }

    fn trouble(&mut self, text: String) {
        self.image.troubles.push(text);
    }

    /// The notes of USDT probes, moved to where they are now.
    fn call_sites(&mut self) -> Vec<Note> {
        let Some(bytes) = self.section(".note.stapsdt") else {
            return Vec::new();
        };
        let (mut notes, trouble) = notes(bytes);
        self.image.troubles.extend(trouble);
        let base = self
            .sections
            .section_by_name(LE, b".stapsdt.base")
            .map(|(_, section)| section.sh_addr(LE));
        for note in &mut notes {
            // prelink moves a file and adjusts all but notes. A base of 0 says that there was none.
            if let Some(base) = base
                && note.base != 0
            {
                note.location = note.location.wrapping_add(base.wrapping_sub(note.base));
            }
        }
        notes
    }

    /// Collects functions, and the addresses of the symbols that are wanted.
    fn symbols(&mut self, wanted: &BTreeSet<String>) {
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let table = match self.sections.symbols(LE, self.data, kind) {
                Ok(table) => table,
                Err(error) => {
                    self.trouble(format!("its symbols can't be read: {error}"));
                    continue;
                }
            };
            let versions = match kind {
                elf::SHT_DYNSYM => self.sections.versions(LE, self.data).ok().flatten(),
                _ => None,
            };
            let version = |index: SymbolIndex| -> Option<String> {
                let versions = versions.as_ref()?;
                let index = versions.version_index(LE, index);
                let version = versions.version(index).ok()??;
                Some(String::from_utf8_lossy(version.name()).into_owned())
            };
            self.table(&table, version, wanted);
        }
        tidy(&mut self.image.functions);
    }

    fn table(
        &mut self,
        table: &SymbolTable<'data, File, R>,
        version: impl Fn(SymbolIndex) -> Option<String>,
        wanted: &BTreeSet<String>,
    ) {
        for (index, symbol) in table.enumerate() {
            if symbol.st_shndx(LE) == elf::SHN_UNDEF || symbol.st_shndx(LE) == elf::SHN_ABS {
                continue;
            }
            let kind = symbol.st_type();
            let function = matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC);
            if !function && (wanted.is_empty() || !matches!(kind, elf::STT_OBJECT | elf::STT_NOTYPE)) {
                continue;
            }
            let Ok(name) = table.symbol_name(LE, symbol) else {
                continue;
            };
            let name = String::from_utf8_lossy(name).into_owned();
            let address = symbol.st_value(LE);
            if wanted.contains(&name) {
                self.image
                    .addresses
                    .entry(name.clone())
                    .and_modify(|known| {
                        if *known != Some(address) {
                            *known = None;
                        }
                    })
                    .or_insert(Some(address));
            }
            if !function || name.is_empty() {
                continue;
            }
            // Assemblers write versions into the names of the static table.
            let (name, version) = match name.split_once('@') {
                Some((name, version)) => {
                    let version = version.trim_start_matches('@').to_string();
                    (name.to_string(), Some(version))
                }
                None => (name, version(index)),
            };
            self.image.functions.push(Function {
                name,
                version,
                address,
                size: symbol.st_size(LE),
                indirect: kind == elf::STT_GNU_IFUNC,
            });
        }
    }

    /// Puts call sites together to probes.
    fn probes(&mut self, notes: Vec<Note>) {
        let mut probes: BTreeMap<(String, String), Vec<CallSite>> = BTreeMap::new();
        for note in notes {
            let place = format!("{}:{} at {:#x}", note.provider, note.name, note.location);
            let Some(offset) = self.image.code_offset(note.location) else {
                self.trouble(format!("{place} is not in code that is loaded"));
                continue;
            };
            let semaphore = match note.semaphore {
                0 => 0,
                address => match self.image.data_offset(address) {
                    Some(offset) => offset,
                    None => {
                        self.trouble(format!(
                            "the semaphore of {place}, {address:#x}, is not in data that is loaded"
                        ));
                        continue;
                    }
                },
            };
            let recipes = located(
                &note.arguments,
                &self.image.addresses,
                note.location,
                self.image.arch,
            );
            let site = CallSite {
                address: note.location,
                offset,
                semaphore,
                arguments: note.arguments,
                recipes,
            };
            let sites = probes.entry((note.provider, note.name)).or_default();
            // A template or an inlined function in several objects may leave the same note twice.
            if !sites.contains(&site) {
                sites.push(site);
            }
        }
        self.image.probes = probes
            .into_iter()
            .map(|((provider, name), sites)| Probe {
                provider,
                name,
                sites,
            })
            .collect();
    }
}

/// Sorts functions. What several tables have is one function; if one of them knows its version, or versions, those are
/// kept.
pub(super) fn tidy(functions: &mut Vec<Function>) {
    functions.sort();
    functions.dedup_by(|b, a| {
        let same = a.name == b.name && a.address == b.address && a.indirect == b.indirect;
        // One without a version sorts before those with one.
        if same && a.version.is_none() {
            std::mem::swap(a, b);
            return true;
        }
        same && a.version == b.version
    });
}

/// A file's name, padding to four bytes, and a checksum.
fn debug_link(bytes: &[u8]) -> Option<(String, u32)> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(&bytes[..end]).ok()?;
    let checksum = bytes.get((end + 1).next_multiple_of(4)..)?.first_chunk::<4>()?;
    (!name.is_empty()).then(|| (name.to_string(), u32::from_le_bytes(*checksum)))
}

/// The content of the note `GNU` of type 3.
fn build_id(bytes: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?));
    let (owner, content, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
    if kind != elf::NT_GNU_BUILD_ID {
        return None;
    }
    let start = owner.checked_next_multiple_of(4)?.checked_add(12)?;
    bytes.get(start..start.checked_add(content)?).map(<[u8]>::to_vec)
}
