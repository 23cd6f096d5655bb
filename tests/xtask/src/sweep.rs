//! The long runs: `oracle`, `verifier-sweep` and `random-queries`. Each is an example of that name, which is built fast and with
//! every check, and run on this machine: it loads programs into its kernel and attaches none. `random-queries --kernel K` is
//! run in guests instead.

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::{host, vm};

/// Seconds that a guest may take, under emulation and on a busy machine.
const LIMIT: &str = "7200";

pub(crate) fn run(example: &str, args: &[String]) -> Result<ExitCode> {
    let status = Command::new("cargo")
        .current_dir(host::root())
        .args(["run", "--quiet", "--profile", "sweep", "--example", example, "--"])
        .args(args)
        .status()
        .context("cannot start cargo")?;
    Ok(code(status.code()))
}

/// Here, or in a guest for each kernel that is named.
pub(crate) fn random_queries(args: &[String]) -> Result<ExitCode> {
    let Some(at) = args.iter().position(|arg| arg == "--kernel") else {
        return run("random-queries", args);
    };
    let kernels: Vec<&str> = match args.get(at + 1).map(String::as_str) {
        Some("all") => vm::DEFAULT.to_vec(),
        Some(names) => names.split(',').collect(),
        None => bail!("--kernel wants a list, as in 6.1,6.12, or `all`"),
    };
    if let Some(unknown) = kernels.iter().find(|kernel| !vm::ALL.contains(kernel)) {
        bail!("kernel `{unknown}` is not one of {}", vm::ALL.join(", "));
    }
    let mut rest = [&args[..at], &args[at + 2..]].concat();
    if !rest.iter().any(|arg| arg == "--kinds") {
        rest.extend(["--kinds".to_owned(), "kprobe,fentry".to_owned()]);
    }
    host::need_vm_tools(&[])?;
    let binary = host::static_example("ksnoop-jit", "random-queries")?;
    vm::prepare()?;
    let stage = host::stage("random-queries")?;
    host::copy_into(&binary, &stage)?;
    let mut worst = ExitCode::SUCCESS;
    for kernel in kernels {
        vm::fetch(kernel)?;
        println!("=== {kernel}");
        let mut guest = vm::vm_run();
        guest.arg("-s").arg(format!("{}:/tests", stage.display()));
        guest.args(["-t", LIMIT, "-w", "/tests", kernel, "--", "/tests/random-queries"]);
        let status = guest
            .args(&rest)
            .stdin(Stdio::null())
            .status()
            .context("cannot start vm-run")?;
        if !status.success() {
            println!("{kernel}: {status}");
            worst = ExitCode::FAILURE;
        }
    }
    Ok(worst)
}

fn code(status: Option<i32>) -> ExitCode {
    match status {
        Some(0) => ExitCode::SUCCESS,
        Some(2) => ExitCode::from(2),
        Some(_) | None => ExitCode::FAILURE,
    }
}
