//! Small ELF files made to order, for tests and fuzzing. In: notes and symbols. Out: a file's bytes, with code at
//! [`TEXT`] and data at [`DATA`]. Never a file that could run.

use object::elf;

/// The address of the code, of 4 KiB.
pub const TEXT: u64 = 0x40_1000;
/// Where it is in the file.
pub const TEXT_OFFSET: u64 = 0x200;
/// The address of the data, of 256 bytes.
pub const DATA: u64 = 0x40_5000;
/// Where it is in the file.
pub const DATA_OFFSET: u64 = 0x1200;
/// Where `.stapsdt.base` is.
pub const BASE: u64 = 0x40_3000;

/// What a file has.
#[derive(Clone, Debug, Default)]
pub struct Made {
    notes: Vec<u8>,
    symbols: Vec<(String, u64, u64, u8)>,
    machine: u16,
}

impl Made {
    /// A file for x86-64 with nothing in it.
    pub fn x86_64() -> Made {
        Made {
            machine: elf::EM_X86_64,
            ..Made::default()
        }
    }

    /// A file for aarch64 with nothing in it.
    pub fn aarch64() -> Made {
        Made {
            machine: elf::EM_AARCH64,
            ..Made::default()
        }
    }

    /// Adds a function of 16 bytes.
    pub fn function(mut self, name: &str, address: u64) -> Made {
        self.symbols.push((name.to_string(), address, 16, elf::STT_FUNC));
        self
    }

    /// Adds a symbol of that type.
    pub fn symbol(mut self, name: &str, address: u64, kind: u8) -> Made {
        self.symbols.push((name.to_string(), address, 8, kind));
        self
    }

    /// Adds a call site as the file was linked; `base` is where it took `.stapsdt.base` to be.
    pub fn site(mut self, at: [u64; 3], provider: &str, name: &str, arguments: &str) -> Made {
        let mut content = Vec::new();
        for address in at {
            content.extend(address.to_le_bytes());
        }
        for text in [provider, name, arguments] {
            content.extend(text.as_bytes());
            content.push(0);
        }
        for word in [8, content.len() as u32, 3] {
            self.notes.extend(word.to_le_bytes());
        }
        self.notes.extend(b"stapsdt\0");
        self.notes.extend(content);
        self.notes.resize(self.notes.len().next_multiple_of(4), 0);
        self
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut strings = vec![0u8];
        let mut symbols = vec![0u8; 24];
        for (name, address, size, kind) in &self.symbols {
            symbols.extend((strings.len() as u32).to_le_bytes());
            symbols.extend([elf::STB_GLOBAL << 4 | kind, 0, 1, 0]);
            symbols.extend(address.to_le_bytes());
            symbols.extend(size.to_le_bytes());
            strings.extend(name.as_bytes());
            strings.push(0);
        }
        let names = b"\0.text\0.note.stapsdt\0.stapsdt.base\0.symtab\0.strtab\0.shstrtab\0";
        let mut file = vec![0u8; (DATA_OFFSET + 0x100) as usize];
        let mut headers: Vec<[u64; 8]> = vec![[0; 8]];
        // name, type, address, offset, size, link, entry size, info
        headers.push([
            1,
            u64::from(elf::SHT_PROGBITS),
            TEXT,
            TEXT_OFFSET,
            0x1000,
            0,
            0,
            0,
        ]);
        for (name, kind, address, bytes, link, each) in [
            (7, elf::SHT_NOTE, 0, self.notes.as_slice(), 0, 0),
            (21, elf::SHT_PROGBITS, BASE, [0u8].as_slice(), 0, 0),
            (35, elf::SHT_SYMTAB, 0, symbols.as_slice(), 5, 24),
            (43, elf::SHT_STRTAB, 0, strings.as_slice(), 0, 0),
            (51, elf::SHT_STRTAB, 0, names.as_slice(), 0, 0),
        ] {
            file.resize(file.len().next_multiple_of(8), 0);
            let (offset, size) = (file.len() as u64, bytes.len() as u64);
            headers.push([name, u64::from(kind), address, offset, size, link, each, 0]);
            file.extend(bytes);
        }
        file.resize(file.len().next_multiple_of(8), 0);
        let sections = file.len() as u64;
        for [name, kind, address, offset, size, link, each, info] in &headers {
            file.extend((*name as u32).to_le_bytes());
            file.extend((*kind as u32).to_le_bytes());
            for word in [0, *address, *offset, *size] {
                file.extend(word.to_le_bytes());
            }
            file.extend((*link as u32).to_le_bytes());
            file.extend((*info as u32).to_le_bytes());
            for word in [4, *each] {
                file.extend(word.to_le_bytes());
            }
        }
        let mut start = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        for half in [elf::ET_EXEC, self.machine] {
            start.extend(half.to_le_bytes());
        }
        start.extend(1u32.to_le_bytes());
        for word in [TEXT, 64, sections] {
            start.extend(word.to_le_bytes());
        }
        start.extend(0u32.to_le_bytes());
        for half in [64, 56, 2, 64, headers.len() as u16, 6] {
            start.extend(half.to_le_bytes());
        }
        for (flags, offset, address, size) in [
            (elf::PF_R | elf::PF_X, TEXT_OFFSET, TEXT, 0x1000u64),
            (elf::PF_R | elf::PF_W, DATA_OFFSET, DATA, 0x100),
        ] {
            start.extend(elf::PT_LOAD.to_le_bytes());
            start.extend(flags.to_le_bytes());
            for word in [offset, address, address, size, size, 0x1000] {
                start.extend(word.to_le_bytes());
            }
        }
        file[..start.len()].copy_from_slice(&start);
        file
    }
}

/// A file with everything that the reader knows, to be damaged.
pub fn sample() -> Vec<u8> {
    Made::x86_64()
        .function("work", TEXT + 0x10)
        .function("_ZN4demo6Widget4pokeEi", TEXT + 0x40)
        .symbol("counter", DATA + 8, elf::STT_OBJECT)
        .site(
            [TEXT + 0x20, BASE, DATA],
            "demo",
            "work",
            "-4@%edi 8@-8(%rbp) 1@%ah",
        )
        .site(
            [TEXT + 0x30, BASE, 0],
            "demo",
            "work",
            "-4@$5 8@8(%rax,%rbx,4) 2@counter(%rip)",
        )
        .site([TEXT + 0x38, BASE, 0], "demo", "other", "")
        .bytes()
}
