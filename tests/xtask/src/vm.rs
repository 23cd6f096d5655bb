//! The Rust side of `tests/vm/vm-run` and `tests/vm/build-module`.
//!
//! In: a kernel version, folders, a command. Out: the command's status and output. It never boots a guest
//! itself: how that is done is the scripts' business alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::host;

/// Every kernel that is supported, oldest first; `vm-run` takes the newest package of each.
pub(crate) const ALL: &[&str] = &["5.10", "6.1", "6.12", "6.18", "7.2", "7.3"];
/// What is tested by default, and in continuous integration.
pub(crate) const DEFAULT: &[&str] = &["5.10", "6.1", "6.12", "7.3"];
/// The kernel of the demo.
pub(crate) const DEMO: &str = "6.12";

/// Kernels without BTF in modules: nothing can be said about a module's types there.
const NO_MODULE_BTF: &[&str] = &["5.10"];

/// Kernels whose headers may be gone from the archive before the kernel is, and a neighbour whose headers do.
const DONORS: &[(&str, &str)] = &[("6.18", "7.2")];

fn script(name: &str) -> PathBuf {
    host::root().join("tests/vm").join(name)
}

pub(crate) fn vm_run() -> Command {
    let mut command = Command::new(script("vm-run"));
    // Part of every base image where it is installed, so that the demo and the matrix share one.
    if let Some(path) = host::BPFTOOL.path.iter().find(|path| Path::new(path).exists()) {
        command.env("VM_BINS_EXTRA", path);
    }
    command
}

/// Downloads a kernel, or does nothing when it is in the cache.
pub(crate) fn fetch(kernel: &str) -> Result<()> {
    host::must(vm_run().args(["--fetch", kernel])).with_context(|| format!("kernel {kernel} cannot be had"))
}

/// Makes what all guests share, before several of them start at once.
pub(crate) fn prepare() -> Result<()> {
    host::must(vm_run().arg("--rootfs").stdout(std::process::Stdio::null()))
}

/// What became of a kernel's fixture modules.
pub(crate) enum Modules {
    /// They are in the folder.
    Built,
    /// This kernel cannot have them, and why.
    None(&'static str),
}

/// Builds the fixture modules for a kernel that was fetched.
pub(crate) fn build_modules(kernel: &str, out: &Path) -> Result<Modules> {
    if NO_MODULE_BTF.contains(&kernel) {
        return Ok(Modules::None("this kernel has no module BTF"));
    }
    let own: &[Option<&str>] = &[None];
    let donors = DONORS
        .iter()
        .filter(|(of, _)| *of == kernel)
        .map(|(_, donor)| Some(*donor));
    for donor in own.iter().copied().chain(donors) {
        let mut build = Command::new(script("build-module"));
        if let Some(donor) = donor {
            fetch(donor)?;
            build.args(["-b", donor]);
        }
        let status = build
            .arg(kernel)
            .arg(out)
            .status()
            .context("cannot start build-module")?;
        match status.code() {
            Some(0) => return Ok(Modules::Built),
            // The headers are not in the archive (or do not fit): the next donor may do.
            Some(3) => {}
            Some(_) | None => bail!("the fixture modules for {kernel} cannot be built ({status})"),
        }
    }
    bail!("the fixture modules for {kernel} cannot be built: no headers for it can be had")
}
