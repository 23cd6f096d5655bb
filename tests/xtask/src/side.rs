//! `cargo xtask side-by-side`: the original ksnoop and ours in one guest, at the same queries and traffic.
//!
//! In: nothing, or a kernel version; the original as Debian packages it (libbpf-tools), which has to be installed on the host.
//! Out: what the comparison says, and its status. It never compares anything itself.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::{host, vm};

/// The newest kernel on which Debian 12's ksnoop prints anything: later ones have `endbr64` where functions begin.
const KERNEL: &str = "6.1";
const ORIGINAL: &str = "/usr/sbin/ksnoop";

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let kernel = args.first().map_or(KERNEL, String::as_str);
    ensure!(
        Path::new(ORIGINAL).exists(),
        "there is no {ORIGINAL}: install Debian's libbpf-tools"
    );
    host::need_vm_tools(&[])?;
    let binary = host::static_binary("ksnoop-jit", "ksnoop-jit")?;
    let tests = host::static_binary("xtask", "guest-tests")?;
    vm::fetch(kernel)?;
    let stage = host::stage("side-by-side")?;
    host::copy_into(&binary, &stage)?;
    host::copy_into(&tests, &stage)?;
    let status = vm::vm_run()
        .env("VM_BINS_EXTRA", ORIGINAL)
        .arg("-s")
        .arg(format!("{}:/side", stage.display()))
        .args(["-t", "400", "-w", "/side", kernel, "--"])
        .args(["/side/guest-tests", "--side-by-side"])
        .status()
        .context("cannot start vm-run")?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
