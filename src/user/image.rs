//! A program or library as plain data, and the way from its addresses to its bytes. Never reads a file's format.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::elf::tidy;
use super::recipe::{Problem, Recipe, RecipeError, located};
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
    /// The addresses of the symbols that recipes of arguments need, or that were asked for; `None` for one that several things have.
    pub addresses: BTreeMap<String, Option<u64>>,
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
    /// How much there is in memory: what is not in the file is zero at first.
    pub memory: u64,
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

    /// Where in the file the data at an address is; `None` if no data is loaded there. For what is only in memory (`.bss`) it is where
    /// the file would have it, by which the kernel finds it in memory all the same.
    pub fn data_offset(&self, address: u64) -> Option<u64> {
        self.offset(address, false)
    }

    fn offset(&self, address: u64, executable: bool) -> Option<u64> {
        self.segments
            .iter()
            .filter(|segment| segment.executable == executable)
            .find_map(|segment| {
                let within = address.checked_sub(segment.address)?;
                let size = if executable { segment.size } else { segment.memory };
                (within < size)
                    .then(|| segment.offset.checked_add(within))
                    .flatten()
            })
    }

    /// Whether data at an offset of the file is not in the file but cleared when it is loaded.
    pub fn is_cleared(&self, offset: u64) -> bool {
        let mut data = self.segments.iter().filter(|segment| !segment.executable);
        data.any(|segment| {
            let within = offset.checked_sub(segment.offset);
            within.is_some_and(|within| (segment.size..segment.memory).contains(&within))
        })
    }

    /// The symbols that recipes of a probe need and that the file lacks: a debug file may have them.
    pub fn lacking(&self, provider: &str, name: &str) -> BTreeSet<String> {
        let probes = self.probes_named(provider, name).into_iter();
        probes
            .flat_map(|probe| &probe.sites)
            .flat_map(|site| &site.recipes)
            .filter_map(|recipe| match recipe {
                Err(RecipeError {
                    problem: Problem::UnknownSymbol(symbol),
                    ..
                }) => Some(symbol.clone()),
                Ok(_) | Err(_) => None,
            })
            .collect()
    }

    /// Reads again the recipes whose symbols are known now.
    fn locate(&mut self, addresses: &BTreeMap<String, Option<u64>>) {
        let arch = self.arch;
        for site in self.probes.iter_mut().flat_map(|probe| &mut probe.sites) {
            let lacks = |recipe: &Result<Recipe, RecipeError>| matches!(recipe, Err(error) if matches!(&error.problem, Problem::UnknownSymbol(symbol) if addresses.contains_key(symbol)));
            if site.recipes.iter().any(lacks) {
                site.recipes = located(&site.arguments, addresses, site.address, arch);
            }
        }
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
        self.locate(&debug.addresses);
        self.functions.extend(debug.functions);
        tidy(&mut self.functions);
        if self.btf.is_none() {
            self.btf = debug.btf;
        }
    }
}
