//! `cargo xtask bench-startup`: how long from exec to attached, how much memory, how many instructions.
//!
//! In: a number of runs, a query to attach on this machine (a tracepoint, which every kernel with BTF has). Out: a table
//! on stdout. It never judges: the budget is printed beside the numbers, and other load makes them worse.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::host;

const QUERY: &str = "tp:sched_switch(prev->comm, next->pid, next->mm->owner->pid > 1)";

/// What instructions are counted of: the queries that `benches/compile.rs` times.
const QUERIES: [&str; 5] = [
    "ip_rcv(skb->len > 0xff, skb)",
    "ip_send_skb(skb->sk)",
    "vfs_open(path->dentry->d_parent->d_inode->i_ino)",
    "tcp_sendmsg(sk->__sk_common.skc_daddr, size >= 1)",
    "do_sys_openat2",
];

/// The budget, in milliseconds and KiB.
const BUDGET: (f64, u64) = (15.0, 12 << 10);

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let mut runs = 30usize;
    let mut query = QUERY.to_owned();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--runs" => {
                let number = args.next().context("--runs wants a number")?;
                runs = number
                    .parse()
                    .with_context(|| format!("`{number}` is not a number"))?;
            }
            word => query = word.to_owned(),
        }
    }
    ensure!(runs > 0, "--runs wants a number above 0");
    host::must(host::cargo().args(["build", "--quiet", "--release", "--package", "ksnoop-jit"]))?;
    let binary = host::target_dir()?.join("release/ksnoop-jit");

    let mut times = Vec::with_capacity(runs);
    let mut memory = 0;
    for _ in 0..runs {
        let (milliseconds, kib) = start(&mut Command::new(&binary), &query)?;
        times.push(milliseconds);
        memory = memory.max(kib);
    }
    times.sort_by(f64::total_cmp);
    println!("{query}: exec to attached, {runs} runs");
    println!(
        "  fastest {:.1} ms, median {:.1} ms, slowest {:.1} ms (budget {:.0} ms)",
        times[0],
        times[runs / 2],
        times[runs - 1],
        BUDGET.0
    );
    println!("  peak memory {memory} KiB (budget {} KiB)", BUDGET.1);
    println!("instructions:");
    for query in QUERIES.iter().copied().chain([QUERY]) {
        println!(
            "  {:>4}  {query}",
            instructions(&mut Command::new(&binary), query)?
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// One run: milliseconds until it says that it has attached, and its peak memory in KiB by then.
fn start(tool: &mut Command, query: &str) -> Result<(f64, u64)> {
    let started = Instant::now();
    let mut child = tool
        .args(["-v", "--for", "0.5", query])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start ksnoop-jit")?;
    let mut lines = BufReader::new(child.stderr.take().context("it has no stderr")?).lines();
    let mut told = String::new();
    let attached = loop {
        let Some(line) = lines.next().transpose()? else {
            bail!("ksnoop-jit did not attach:\n{told}");
        };
        if line.starts_with("attached: ") {
            break started.elapsed();
        }
        told += &line;
        told += "\n";
    };
    // It waits for events now, so its peak can still be read.
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .context("the kernel does not tell the peak memory")?;
    lines.for_each(drop);
    let status = child.wait()?;
    ensure!(status.success(), "ksnoop-jit ended with {status}");
    Ok((attached.as_secs_f64() * 1000.0, kib))
}

/// The instructions of all programs of a query, as the listing's headings tell them.
fn instructions(tool: &mut Command, query: &str) -> Result<usize> {
    let out = tool
        .args(["--dump-insns", query])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(
        out.status.success(),
        "`--dump-insns` of {query} ended with {}",
        out.status
    );
    let text = String::from_utf8(out.stdout)?;
    let counts = text.lines().filter_map(|line| {
        let (_, rest) = line.strip_prefix("ksj_")?.split_once("): ")?;
        rest.split_once(" instructions")?.0.parse::<usize>().ok()
    });
    Ok(counts.sum())
}
