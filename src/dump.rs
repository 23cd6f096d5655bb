//! What the `--dump` options and `--emit-obj` print and write. In: compiled queries. Out: text on stdout. Never needs
//! privileges.

use std::io::Write;
use std::path::{Path, PathBuf};

use ksnoop_jit::codegen;
use ksnoop_jit::compile::Artifact;
use ksnoop_jit::ir;
use ksnoop_jit_runtime as runtime;

use crate::cli::Cli;
use crate::{Failure, complain};

/// Whether the command line asks for anything of this.
pub(crate) fn wanted(cli: &Cli) -> bool {
    cli.dump_ast || cli.dump_ir || cli.dump_insns || cli.dump_btf || cli.emit_obj.is_some()
}

/// Prints what is asked for of one compiled query. Of a run that makes several objects, `number` is which this is, from 0.
pub(crate) fn artifact(cli: &Cli, text: &str, artifact: &Artifact, number: usize) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if cli.dump_ir {
        for lowered in &artifact.programs {
            write!(out, "{}", ir::print(&lowered.func))?;
        }
    }
    if cli.dump_insns {
        let relocated = runtime::object::relocate(&artifact.object.elf, &artifact.object.target_btf)?;
        for program in &artifact.object.programs {
            let after = relocated.iter().find(|after| after.name == program.name);
            if let Some(after) = after {
                check(program, &after.insns)?;
            }
            let insns = after.map(|after| after.insns.as_slice());
            write!(out, "{}", codegen::listing(program, text, insns))?;
        }
    }
    if cli.dump_btf {
        write!(out, "{}", codegen::dump_btf(&artifact.object))?;
    }
    if let Some(path) = &cli.emit_obj {
        let path = numbered(path, number);
        std::fs::write(&path, &artifact.object.elf)
            .map_err(|error| anyhow::anyhow!("can't write {}: {error}", path.display()))?;
        if number > 0 {
            complain(&format!("{text}: {}", path.display()));
        }
    }
    Ok(())
}

/// `probe.o` for the first object, `probe.1.o` for the next.
fn numbered(path: &Path, number: usize) -> PathBuf {
    match (number, path.extension()) {
        (0, _) => path.to_path_buf(),
        (_, Some(extension)) => path.with_extension(format!("{number}.{}", extension.display())),
        (_, None) => path.with_extension(number.to_string()),
    }
}

/// What the loader put into the instructions must be what the type reader says.
pub(crate) fn check(program: &codegen::Program, relocated: &[u8]) -> Result<(), Failure> {
    program
        .check_relocated(relocated)
        .map_err(|why| anyhow::anyhow!("bug in ksnoop-jit: {}: {why}", program.name).into())
}
