//! `cargo xtask bench-attach`: how long it takes to attach to sets of functions and to detach again, on each kernel its own best way.
//!
//! In: kernels (`--kernels 6.12,7.3`; all that the matrix has). Out: a line for each set: how many functions, by what, and the
//! milliseconds that the tool tells, with those for one function. Guests are emulated, so that only ratios mean something.

use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::{host, vm};

/// Sets of about 1, 10, 100, 600 and 2000 functions; the last is more than are traced without being told to.
const SETS: [&str; 5] = [
    "vfs_open()",
    "vfs_r*()",
    "vfs_*,tcp_s*()",
    "tcp_*,udp_*,ip_*()",
    "[s-t]*()",
];

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let kernels: Vec<&str> = match args {
        [] => vm::DEFAULT.to_vec(),
        [option, names] if option == "--kernels" => names.split(',').collect(),
        _ => bail!("bench-attach takes `--kernels K,...` only"),
    };
    if let Some(unknown) = kernels.iter().find(|kernel| !vm::ALL.contains(kernel)) {
        bail!("kernel `{unknown}` is not one of {}", vm::ALL.join(", "));
    }
    host::need_vm_tools(&[])?;
    let binary = host::static_binary("ksnoop-jit", "ksnoop-jit")?;
    vm::prepare()?;
    let stage = host::stage("bench-attach")?;
    host::copy_into(&binary, &stage)?;
    let script: String = SETS
        .iter()
        .map(|set| format!("/bench/ksnoop-jit --force -v -c true '{set}' 2>&1 >/dev/null | grep -E '^(attached|detached)'; "))
        .collect();
    for kernel in kernels {
        vm::fetch(kernel)?;
        println!("=== {kernel}");
        let out = vm::vm_run()
            .arg("-s")
            .arg(format!("{}:/bench", stage.display()))
            .args(["-t", "1200", "-w", "/bench", kernel, "--", "/bin/sh", "-c"])
            .arg(&script)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start vm-run")?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let told: Vec<&str> = text.lines().map(str::trim).collect();
        for line in told.iter().filter(|line| line.contains("tached")) {
            println!("{line}{}", each(line));
        }
        if told.len() < SETS.len() {
            bail!("{kernel}: {}\n{text}", out.status);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The time for one function, of `attached: … at N functions in M ms` or `detached N links in M ms`.
fn each(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let count = words.windows(2).find_map(|pair| {
        let counted = pair[1].starts_with("function") || pair[1].starts_with("link");
        counted.then(|| pair[0].parse::<f64>().ok()).flatten()
    });
    let time = words.windows(2).find_map(|pair| {
        let timed = pair[1] == "ms";
        timed.then(|| pair[0].parse::<f64>().ok()).flatten()
    });
    match (count, time) {
        (Some(count), Some(time)) if count > 1.0 => format!(" ({:.0} us each)", time * 1000.0 / count),
        _ => String::new(),
    }
}
