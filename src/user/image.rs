//! A program or library as plain data, and the way from its addresses to its bytes. Never reads a file's format.

use std::path::PathBuf;

use super::elf::tidy;
use super::recipe::{Recipe, RecipeError};
use super::regs::Arch;

/// What is known of an ELF file.
#[derive(Clone, Debug)]
pub struct Image {
    /// Where it is, for who attaches to it: the reader leaves this empty.
    pub path: PathBuf,
    /// The machine it is for.
    pub arch: Arch,
    /// What is loaded of it.
    pub segments: Vec<Segment>,
    /// Its functions, sorted by name.
    pub functions: Vec<Function>,
    /// Its USDT probes, sorted by provider and name.
    pub probes: Vec<Probe>,
    /// What of it could not be read, in words.
    pub troubles: Vec<String>,
    /// Its own BTF, as it is in the file.
    pub btf: Option<Vec<u8>>,
    /// A compressed ELF file with the symbols that were stripped from it: for [`super::decompress`].
    pub debugdata: Option<Vec<u8>>,
    /// The name of a file with what was stripped from it, and the checksum of that file.
    pub debug_link: Option<(String, u32)>,
    /// What identifies it.
    pub build_id: Option<Vec<u8>>,
}

/// A part of the file that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its address.
    pub address: u64,
    /// Where it is in the file.
    pub offset: u64,
    /// How much of it is in the file.
    pub size: u64,
    /// Whether it is code.
    pub executable: bool,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// Its symbol.
    pub name: String,
    /// Where it is, as symbols tell it.
    pub address: u64,
    /// The version of its symbol, in a shared library. A function with two versions is here twice.
    pub version: Option<String>,
    /// How long it is, or 0.
    pub size: u64,
    /// The symbol is that of a function which chooses the real one when the program is loaded (`STT_GNU_IFUNC`).
    pub indirect: bool,
}

/// A USDT probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Who defines it.
    pub provider: String,
    /// What it is called.
    pub name: String,
    /// Where it is.
    pub sites: Vec<CallSite>,
}

/// One place of a USDT probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// Its address in the file.
    pub address: u64,
    /// Where it is in the file.
    pub offset: u64,
    /// Where in the file the number is that tells whether anybody watches; 0 if there is none.
    pub semaphore: u64,
    /// The recipes as the file has them.
    pub arguments: String,
    /// The recipes.
    pub recipes: Vec<Result<Recipe, RecipeError>>,
}

impl Image {
    /// Where in the file the instruction at an address is; `None` if no code is loaded there.
    pub fn code_offset(&self, address: u64) -> Option<u64> {
        self.offset(address, true)
    }

    /// Where in the file the data at an address is; `None` if no data is loaded there.
    pub fn data_offset(&self, address: u64) -> Option<u64> {
        self.offset(address, false)
    }

    fn offset(&self, address: u64, executable: bool) -> Option<u64> {
        self.segments
            .iter()
            .filter(|segment| segment.executable == executable)
            .find_map(|segment| {
                let within = address.checked_sub(segment.address)?;
                (within < segment.size)
                    .then(|| segment.offset.checked_add(within))
                    .flatten()
            })
    }

    /// The address of the code at an offset of the file.
    pub fn code_address(&self, offset: u64) -> Option<u64> {
        self.segments
            .iter()
            .filter(|segment| segment.executable)
            .find_map(|segment| {
                let within = offset.checked_sub(segment.offset)?;
                (within < segment.size)
                    .then(|| segment.address.checked_add(within))
                    .flatten()
            })
    }

    /// Takes over the functions, types and whatever else a file with debug information knows better.
    pub fn learn_from(&mut self, debug: Image) {
        self.functions.extend(debug.functions);
        tidy(&mut self.functions);
        if self.btf.is_none() {
            self.btf = debug.btf;
        }
    }
}
