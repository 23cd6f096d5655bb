//! What `--emit-obj` writes, loaded by libbpf.
//!
//! In: the queries of the parent module. Out: cases that compare libbpf's relocations with ours, by the digests that the kernel makes of
//! programs. They trace nothing.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{IP_RCV, IP_SEND, OPENAT2, SAVED, SWITCH, TCP_SEND, VFS_OPEN};
use crate::case::{Case, Work};
use crate::guest::{self, Guest, Need};
use crate::tool::Tool;

pub(super) fn relocations(cases: &mut Vec<Case>) {
    let mut relocates = |name: &str, query, work| {
        let name = format!("kernel.libbpf_relocates.{name}");
        cases.push(Case::new(&name, query, Work::Own(work)).needs(Need::Bpftool));
    };
    relocates("ip_rcv", IP_RCV, libbpf_relocates);
    relocates("ip_send_skb", IP_SEND, libbpf_relocates);
    relocates("vfs_open", VFS_OPEN, libbpf_relocates);
    relocates("tcp_sendmsg", TCP_SEND, libbpf_relocates);
    relocates("openat2", OPENAT2, libbpf_relocates);
    relocates("openat2.saved", SAVED, libbpf_relocates);
    relocates("tp", SWITCH, libbpf_relocates);
    relocates("vfs_open.kprobe", VFS_OPEN, libbpf_relocates_kprobe);
    relocates("openat2.saved.kprobe", SAVED, libbpf_relocates_kprobe);
}

/// What `--emit-obj` writes, libbpf loads as it is, and its relocations give the instructions that ours give.
fn libbpf_relocates(guest: &Guest, query: &str) -> Result<()> {
    libbpf_relocates_by(guest, "auto", query)
}

/// The same for programs with probe reads, whose relocations are in other instructions.
fn libbpf_relocates_kprobe(guest: &Guest, query: &str) -> Result<()> {
    libbpf_relocates_by(guest, "kprobe", query)
}

fn libbpf_relocates_by(guest: &Guest, way: &str, query: &str) -> Result<()> {
    let (object, pin) = ("/tmp/emitted.o", "/sys/fs/bpf/emitted");
    let out = Command::new(&guest.tool)
        .args(["--attach", way, "--emit-obj", object, query])
        .output()?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(out.status.success(), "--emit-obj failed ({})\n{said}", out.status);

    let args = ["-v", "--attach", way, query].map(str::to_owned);
    let mut tool = Tool::start(&guest.tool, &args)?;
    tool.wait_attached()?;
    guest::bpftool(&["prog", "loadall", object, pin])?;
    let shown = guest::bpftool(&["prog", "show"]);
    std::fs::remove_dir_all(pin).context("nothing is pinned")?;
    tool.interrupt()?;
    tool.finish()?;

    let shown = shown?;
    let tags = tags(&shown);
    ensure!(!tags.is_empty(), "no program of ours is loaded:\n{shown}");
    for (name, tags) in tags {
        ensure!(
            tags.len() == 2,
            "{name} is there {} times, not once by us and once by libbpf:\n{shown}",
            tags.len()
        );
        ensure!(
            tags[0] == tags[1],
            "{name}: libbpf's relocation gives other instructions than ours:\n{shown}"
        );
    }
    Ok(())
}

/// Our programs that are in the kernel, with the digests of their instructions. The kernel makes those of what it is given, without
/// the descriptors of maps (`bpf_prog_calc_tag`): equal digests, equal instructions.
fn tags(shown: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut tags = BTreeMap::<&str, Vec<&str>>::new();
    for line in shown.lines() {
        let mut words = line.split_whitespace();
        let mut after = |key| words.find(|word| *word == key).and_then(|_| words.next());
        if let Some(name) = after("name")
            && name.starts_with("ksj_")
            && let Some(tag) = after("tag")
        {
            tags.entry(name).or_default().push(tag);
        }
    }
    tags
}
