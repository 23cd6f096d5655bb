//! What of a program can be traced: `list uprobe:BINARY` and `list usdt:BINARY`, and with which arguments: `info`. In: words of the
//! command line. Out: text on stdout, in the form in which queries name things. Names from files are escaped.

use std::io::Write;

use anyhow::anyhow;
use ksnoop_jit::parser::ast::Query;
use ksnoop_jit::sema;
use ksnoop_jit::types::Types;
use ksnoop_jit::user::{CallSite, Image, demangled, glob};

use crate::cli::Cli;
use crate::programs;
use crate::{Failure, complain, tell};

/// Whether a word is about a program.
pub(crate) fn is_about_program(word: &str) -> bool {
    word.starts_with("uprobe:") || word.starts_with("usdt:")
}

/// Lists what the word names.
pub(crate) fn list(cli: &Cli, word: &str) -> Result<(), Failure> {
    let mut parts = word.split(':');
    let (kind, binary) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let rest: Vec<&str> = parts.collect();
    let mut image =
        programs::open_one(binary, cli.pid).map_err(|why| anyhow!("`{binary}` can't be read: {why}"))?;
    let found = if kind == "usdt" {
        let (provider, name) = match rest.as_slice() {
            [] => ("*", "*"),
            [provider] => (*provider, "*"),
            [provider, name, ..] => (*provider, *name),
        };
        if !image.lacking(provider, name).is_empty() {
            programs::add_symbols(&mut image);
        }
        probes(binary, &image, provider, name)?
    } else {
        programs::add_symbols(&mut image);
        let pattern = if rest.is_empty() {
            "*".to_string()
        } else {
            rest.join(":")
        };
        functions(binary, &image, &pattern)?
    };
    for trouble in &image.troubles {
        complain(&format!("ksnoop-jit: {}", plain(trouble)));
    }
    if found {
        return Ok(());
    }
    complain(&format!(
        "ksnoop-jit: `{}` has no such {}",
        plain(binary),
        if kind == "usdt" { "USDT probe" } else { "function" }
    ));
    Err(Failure::Query)
}

/// Prints the prototypes of what a target means, each with its places. Out: whether there was something.
pub(crate) fn info(cli: &Cli, word: &str, query: &Query, types: &mut Types) -> Result<bool, Failure> {
    let images = programs::open(cli, std::iter::once(query), types)?;
    let meant = match sema::probes(query, types, &images) {
        Ok(meant) => meant,
        Err(diags) => {
            tell(cli, word, &diags);
            return Ok(false);
        }
    };
    tell(cli, word, &meant.warnings);
    tell(cli, word, &meant.doubts);
    let mut out = std::io::stdout().lock();
    for probe in &meant.probes {
        let Some(user) = probe.user() else {
            unreachable!("bug in ksnoop-jit: a target in a program without a program");
        };
        let prototype = types.prototype(&user.func);
        // Only functions return; an instruction and a USDT probe are hit.
        let prototype = match user.returns {
            true => prototype.as_str(),
            false => prototype.strip_prefix("void ").unwrap_or(&prototype),
        };
        let places = match user.sites.as_slice() {
            [site] => format!("at {:#x}", site.address),
            sites => format!("at {} places", sites.len()),
        };
        writeln!(
            out,
            "{}; /* {} {places} */",
            plain(prototype),
            plain(&user.path.display().to_string())
        )?;
    }
    Ok(true)
}

fn probes(binary: &str, image: &Image, provider: &str, name: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    let mut found = false;
    for probe in &image.probes {
        if !glob(provider, &probe.provider) || !glob(name, &probe.name) {
            continue;
        }
        found = true;
        writeln!(
            out,
            "usdt:{}:{}:{}",
            plain(binary),
            plain(&probe.provider),
            plain(&probe.name)
        )?;
        for site in &probe.sites {
            writeln!(out, "    {}", call(image, site))?;
            for wrong in site.recipes.iter().filter_map(|recipe| recipe.as_ref().err()) {
                writeln!(out, "        can't be fetched: {}", plain(&wrong.to_string()))?;
            }
        }
    }
    Ok(found)
}

/// One call site in a line.
fn call(image: &Image, site: &CallSite) -> String {
    let mut line = format!("{:#x}", site.address);
    if let Some(function) = image.function_at(site.address) {
        let name = demangled(&function.name).unwrap_or_else(|| function.name.clone());
        line += &format!(" in {}+{:#x}", plain(&name), site.address - function.address);
    }
    if !site.arguments.is_empty() {
        line += &format!("  {}", plain(&site.arguments));
    }
    if site.semaphore != 0 {
        line += &format!("  semaphore at {:#x}", site.semaphore);
    }
    line
}

fn functions(binary: &str, image: &Image, pattern: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    let mut found = false;
    for function in image.functions_named(pattern) {
        let long = demangled(&function.name);
        if image.code_offset(function.address).is_none() {
            continue;
        }
        found = true;
        let mut line = format!("uprobe:{}:{}", plain(binary), plain(&function.name));
        if let Some(version) = &function.version {
            line += &format!("@{}", plain(version));
        }
        line += &format!("  {:#x}", function.address);
        if let Some(long) = long {
            line += &format!("  {}", plain(&long));
        }
        if function.indirect {
            line += "  (chosen when loaded)";
        }
        writeln!(out, "{line}")?;
    }
    Ok(found)
}

/// Text from a file, with nothing in it that a terminal obeys.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}
