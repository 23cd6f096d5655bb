//! `cargo xtask verifier-sweep`: builds the example of that name, fast and with every check, and runs it. It loads programs into
//! this machine's kernel and attaches none.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::host;

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let status = Command::new("cargo")
        .current_dir(host::root())
        .args([
            "run",
            "--quiet",
            "--profile",
            "sweep",
            "--example",
            "verifier-sweep",
            "--",
        ])
        .args(args)
        .status()
        .context("cannot start cargo")?;
    Ok(match status.code() {
        Some(0) => ExitCode::SUCCESS,
        Some(2) => ExitCode::from(2),
        Some(_) | None => ExitCode::FAILURE,
    })
}
