//! `cargo demo`: trace functions of a real kernel on any machine, in a VM that this sets up itself.
//!
//! In: a query (or none), a kernel version. Out: what ksnoop-jit prints, and its exit status. It never
//! needs a kernel with function probes on the host.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::{host, vm};

const QUERY: &str = "ip_rcv(skb->len > 0xff, skb)";

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let mut kernel = vm::DEMO.to_owned();
    let mut count = "10".to_owned();
    let mut words = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--kernel" => kernel = args.next().context("--kernel wants a version")?.clone(),
            "-n" => count = args.next().context("-n wants a number")?.clone(),
            word => words.push(word.to_owned()),
        }
    }
    // Everything else is ksnoop-jit's, so that its own options can be tried here too.
    if words.is_empty() {
        words.push(QUERY.to_owned());
    }

    host::need_vm_tools(&[])?;
    let binary = host::static_binary("ksnoop-jit", "ksnoop-jit")?;
    vm::fetch(&kernel)?;
    let stage = host::stage("demo")?;
    host::copy_into(&binary, &stage)?;
    host::copy_into(&host::root().join("tests/vm/demo-guest"), &stage)?;

    eprintln!(
        "xtask: booting Linux {kernel}; in it: ksnoop-jit -n {count} {}",
        words.join(" ")
    );
    let status = vm::vm_run()
        .arg("-s")
        .arg(format!("{}:/demo", stage.display()))
        .args([
            "-t",
            "120",
            "-w",
            "/demo",
            &kernel,
            "--",
            "/bin/bash",
            "/demo/demo-guest",
            "-n",
            &count,
        ])
        .args(&words)
        .status()
        .context("cannot start vm-run")?;
    ensure!(status.code().is_some(), "vm-run ended with {status}");
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
