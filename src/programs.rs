//! The programs and libraries that queries name: found, read, and their types made known. In: parsed queries and the command
//! line. Out: images for the compiler. What can't be read is kept as the reason, for the compiler to tell at its
//! place in the query.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use anyhow::Context;
use ksnoop_jit::parser::ast::{Query, TargetKind};
use ksnoop_jit::types::Types;
use ksnoop_jit::user::{self, Image, Images, is_pattern};
use ksnoop_jit_runtime as runtime;
use object::ReadCache;

use crate::Failure;
use crate::cli::Cli;

/// Whether there is a process or thread of that number.
pub(crate) fn is_there(id: u32) -> bool {
    Path::new(&format!("/proc/{id}")).exists()
}

/// Reads what the targets of these queries name.
pub(crate) fn open<'q>(
    cli: &Cli,
    queries: impl Iterator<Item = &'q Query>,
    types: &mut Types,
) -> Result<Images, Failure> {
    let mut images = Images::new();
    let mut unmapped: BTreeSet<String> = BTreeSet::new();
    for query in queries {
        let binary = match &query.target.kind {
            TargetKind::Uprobe { binary, .. } | TargetKind::Usdt { binary, .. } => &binary.node,
            TargetKind::Function { .. } | TargetKind::Tracepoint { .. } => continue,
        };
        if let Some(pid) = cli.pid
            && !is_there(pid)
        {
            crate::complain(&format!("ksnoop-jit: -p {pid}: there is no process {pid}"));
            return Err(Failure::Query);
        }
        let image = images
            .entry(binary.clone())
            .or_insert_with(|| open_one(binary, cli.pid));
        let Ok(image) = image else {
            continue;
        };
        let more = match &query.target.kind {
            TargetKind::Uprobe { symbol, .. } => {
                is_pattern(&symbol.node) || needs_symbols(image, &symbol.node)
            }
            TargetKind::Usdt { provider, name, .. } => !image.lacking(&provider.node, &name.node).is_empty(),
            TargetKind::Function { .. } | TargetKind::Tracepoint { .. } => false,
        };
        if more {
            add_symbols(image);
        }
        if let Some(pid) = cli.pid
            && runtime::binaries::is_mapped(pid, &image.path) == Some(false)
            && unmapped.insert(binary.clone())
        {
            crate::complain(&format!(
                "ksnoop-jit: process {pid} has not mapped {}: nothing is seen of it there until it does",
                binary.escape_debug()
            ));
        }
        add_types(cli, binary, image, types)?;
    }
    Ok(images)
}

/// Finds and reads a program or library.
pub(crate) fn open_one(name: &str, pid: Option<u32>) -> Result<Image, String> {
    let path = runtime::binaries::locate(name, pid)?;
    let mut image = read(&path, &BTreeSet::new())?;
    image.path = path;
    Ok(image)
}

fn read(path: &Path, symbols: &BTreeSet<String>) -> Result<Image, String> {
    let file = File::open(path).map_err(|error| format!("it can't be opened: {error}"))?;
    let cache = ReadCache::new(file);
    user::read_with(&cache, symbols).map_err(|error| error.to_string())
}

fn needs_symbols(image: &Image, symbol: &str) -> bool {
    // An offset in the file or an address needs none, and a name that is there neither.
    let by_name = !symbol.starts_with(|c: char| c.is_ascii_digit() || c == '+');
    let name = symbol.split('+').next().unwrap_or(symbol);
    by_name && image.functions_named(name).is_empty()
}

/// A file with the symbols that were stripped from it; `None` if there are no more than it has itself.
pub(crate) fn with_stripped_symbols(path: &Path) -> Option<Image> {
    let mut image = read(path, &BTreeSet::new()).ok()?;
    image.path = path.to_owned();
    let own = image.functions.len();
    add_symbols(&mut image);
    (image.functions.len() > own).then_some(image)
}

/// Adds the symbols that were stripped from a file, where they can be found.
pub(crate) fn add_symbols(image: &mut Image) {
    let lacking = image.lacking("*", "*");
    if let Some(packed) = image.debugdata.take() {
        match user::decompress(&packed) {
            Ok(bytes) => match user::read_with(bytes.as_slice(), &lacking) {
                Ok(debug) => image.learn_from(debug),
                Err(error) => image.troubles.push(format!(".gnu_debugdata: {error}")),
            },
            Err(why) => image.troubles.push(why),
        }
    }
    let link = image.debug_link.clone();
    let files = runtime::binaries::debug_files(
        &image.path,
        image.build_id.as_deref(),
        link.as_ref().map(|(name, _)| name.as_str()),
    );
    for file in files {
        let Ok(debug) = read(&file, &lacking) else {
            continue;
        };
        // A debug file of another build would put probes into the middle of instructions.
        let same = match (&image.build_id, &link) {
            (Some(id), _) => debug.build_id.as_ref() == Some(id),
            (None, Some((_, checksum))) => {
                std::fs::read(&file).is_ok_and(|bytes| crc32fast::hash(&bytes) == *checksum)
            }
            (None, None) => false,
        };
        if same {
            image.learn_from(debug);
            return;
        }
    }
}

/// Makes a program's own types known, once.
fn add_types(cli: &Cli, name: &str, image: &Image, types: &mut Types) -> Result<(), Failure> {
    if types.program_named(name).is_some() {
        return Ok(());
    }
    let units = match (&cli.types, &image.btf) {
        (Some(file), _) => {
            File::open(file).with_context(|| format!("--types {}", file.display()))?;
            runtime::btf::open_file_units(file)?
        }
        (None, Some(bytes)) => match runtime::btf::open_units(bytes, &image.path) {
            Ok(units) => units,
            Err(error) => {
                crate::complain(&format!("ksnoop-jit: its types are not used: {error}"));
                return Ok(());
            }
        },
        (None, None) => return Ok(()),
    };
    for unit in units {
        types.add_program(name, unit);
    }
    Ok(())
}
