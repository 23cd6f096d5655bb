//! The guest as the tests see it: its kernel, the fixture modules, what it has not got.
//!
//! In: `/proc`, `/sys`, the folder this binary is in. Out: answers. It never concludes from a failure that a
//! kernel lacks something: what may be lacking where is a table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::want::Addresses;

const FIXTURE: &str = "/sys/kernel/debug/ksj/run";
const FIXTURE2: &str = "/sys/kernel/debug/ksj2/run";
const BPFTOOL: &str = "/usr/sbin/bpftool";

/// What a test needs of the kernel or the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The fixture modules, with BTF.
    Fixture,
    /// The fixture's function that returns 24 bytes, in BTF.
    Ret24Btf,
    /// The fixture modules, built with the kernel's own headers.
    OwnHeaders,
    /// The fixture modules, with one dimension in BTF for arrays of arrays.
    FlatArrays,
    /// The fixture modules, with all dimensions.
    NestedArrays,
    /// The fixture modules, and compiler's copies of functions in their BTF.
    Copies,
    /// The fixture modules, and in their BTF each prototype of functions of one name.
    AllPrototypes,
    /// The fixture modules, and in their BTF a function whose name two have.
    Twins,
    /// The fixture modules, and in their BTF a copy that does only a part.
    PartialCopy,
    /// The fixture modules, and not in their BTF: a function with an argument of 128 bits.
    Undescribed128,
    /// The fixture modules, and cookies at kprobes and trampolines.
    Cookies,
    /// The fixture modules, and kprobe.multi and kprobe.session.
    KprobeMulti,
    /// The fixture modules, and fsession and the trampolines of many functions.
    TracingMulti,
    /// A kernel without fsession, kprobe.multi and their like.
    OldProbes,
    /// A kernel that says how many calls a probe has missed.
    TellsMissed,
    /// bpftool, put there by whoever built the guest.
    Bpftool,
    /// A program with USDT probes.
    Program,
    /// uprobe.multi.
    UprobeMulti,
    /// uprobe.session.
    UprobeSession,
}

/// A kernel's major and minor number.
pub(crate) type Version = (u32, u32);

/// What kernels lack: from the first version to the last, and why.
const LACKS: &[(Need, Version, Version, &str)] = &[
    (Need::Fixture, (0, 0), (5, 10), "modules have no BTF before 5.11"),
    (Need::Ret24Btf, (0, 0), (5, 10), "modules have no BTF before 5.11"),
    (
        Need::OwnHeaders,
        (0, 0),
        (5, 10),
        "modules have no BTF before 5.11",
    ),
    (
        Need::OwnHeaders,
        (6, 18),
        (6, 18),
        "its own headers are gone: the fixture has another kernel's `struct task_struct` and tables for unwinding",
    ),
    (
        Need::FlatArrays,
        (0, 0),
        (5, 10),
        "modules have no BTF before 5.11",
    ),
    (
        Need::FlatArrays,
        (6, 18),
        (7, 2),
        "pahole keeps all dimensions of an array",
    ),
    (
        Need::NestedArrays,
        (0, 0),
        (6, 17),
        "pahole makes one dimension of an array's",
    ),
    (
        Need::NestedArrays,
        (7, 3),
        (u32::MAX, 0),
        "pahole makes one dimension of an array's",
    ),
    (
        Need::Copies,
        (0, 0),
        (6, 1),
        "pahole leaves functions out of BTF that have a suffix",
    ),
    (
        Need::AllPrototypes,
        (0, 0),
        (5, 10),
        "modules have no BTF before 5.11",
    ),
    (
        Need::AllPrototypes,
        (6, 2),
        (u32::MAX, 0),
        "pahole leaves functions out of BTF that it can't tell apart",
    ),
    (Need::Twins, (0, 0), (5, 10), "modules have no BTF before 5.11"),
    (
        Need::PartialCopy,
        (0, 0),
        (6, 1),
        "pahole leaves functions out of BTF that have a suffix",
    ),
    (
        Need::Undescribed128,
        (0, 0),
        (5, 10),
        "modules have no BTF before 5.11",
    ),
    (Need::Cookies, (0, 0), (5, 10), "cookies begin with 5.15"),
    (
        Need::TellsMissed,
        (0, 0),
        (6, 6),
        "links tell of missed calls since 6.7",
    ),
    (Need::UprobeMulti, (0, 0), (6, 5), "uprobe.multi begins with 6.6"),
    (
        Need::UprobeSession,
        (0, 0),
        (6, 12),
        "uprobe.session begins with 6.13",
    ),
    // 6.1 could have kprobe.multi; Debian's lacks CONFIG_FPROBE.
    (Need::KprobeMulti, (0, 0), (6, 1), "this kernel has no fprobe"),
    (
        Need::TracingMulti,
        (0, 0),
        (6, 18),
        "fsession and the multi kinds begin with 7.2",
    ),
    (
        Need::OldProbes,
        (6, 2),
        (u32::MAX, 0),
        "this kernel has kprobe.multi",
    ),
    (
        Need::Ret24Btf,
        (6, 12),
        (u32::MAX, 0),
        "pahole leaves a function that returns 24 bytes out of BTF",
    ),
];

/// What a module's BTF has to describe, or must not, and why it is otherwise: that depends on the pahole that made it.
const DESCRIBED: &[(Need, &str, &str, bool, &str)] = &[
    (
        Need::Twins,
        "ksj_fixture2",
        "ksj_twin",
        true,
        "pahole leaves a name out of BTF that several functions have",
    ),
    (
        Need::PartialCopy,
        "ksj_fixture2",
        "ksj_part",
        true,
        "pahole leaves copies out of BTF that do only a part",
    ),
    (
        Need::Undescribed128,
        "ksj_fixture",
        "ksj_u128",
        false,
        "pahole describes arguments of 128 bits",
    ),
];

pub(crate) struct Guest {
    version: Version,
    /// Why the fixture is not there, when it ought to be.
    fixture: Result<(), String>,
    pub(crate) addresses: Addresses,
    pub(crate) tool: PathBuf,
}

impl Guest {
    pub(crate) fn new() -> Result<Self> {
        let here = std::env::current_exe()?
            .parent()
            .context("this program is nowhere")?
            .to_path_buf();
        let mut guest = Self {
            version: version()?,
            fixture: Ok(()),
            addresses: BTreeMap::new(),
            tool: here.join("ksnoop-jit"),
        };
        if guest.lacks(Need::Fixture).is_none() {
            match load(&here.join("modules")) {
                Ok(addresses) => guest.addresses = addresses,
                Err(error) => guest.fixture = Err(format!("{error:#}")),
            }
        }
        Ok(guest)
    }

    /// The kernel's major and minor number.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Why this kernel can't have what is needed: the reason of a skip.
    pub(crate) fn lacks(&self, need: Need) -> Option<&'static str> {
        lacks(need, self.version).or_else(|| {
            DESCRIBED
                .iter()
                .find(|(what, ..)| *what == need)
                .and_then(|(_, module, name, wanted, why)| {
                    describes(module, name)
                        .is_some_and(|is| is != *wanted)
                        .then_some(*why)
                })
        })
    }

    /// Whether what is needed is there; that it is not, on a kernel that could have it, is a failure.
    pub(crate) fn provides(&self, need: Need) -> Result<()> {
        match need {
            Need::Fixture
            | Need::OwnHeaders
            | Need::FlatArrays
            | Need::NestedArrays
            | Need::Copies
            | Need::AllPrototypes
            | Need::Twins
            | Need::PartialCopy
            | Need::Undescribed128
            | Need::Ret24Btf
            | Need::Cookies
            | Need::KprobeMulti
            | Need::TracingMulti => match &self.fixture {
                Ok(()) => Ok(()),
                Err(why) => anyhow::bail!("the fixture modules are not there: {why}"),
            },
            Need::OldProbes | Need::TellsMissed => Ok(()),
            Need::Program | Need::UprobeMulti | Need::UprobeSession => {
                ensure!(
                    Path::new("/tests/demo").exists(),
                    "there was no gcc or no <sys/sdt.h> where the guest was built"
                );
                Ok(())
            }
            Need::Bpftool => {
                ensure!(Path::new(BPFTOOL).exists(), "there is no {BPFTOOL} in this guest");
                Ok(())
            }
        }
    }
}

/// Whether a module's BTF has the name, if there is such BTF.
fn describes(module: &str, name: &str) -> Option<bool> {
    let btf = std::fs::read(Path::new("/sys/kernel/btf").join(module)).ok()?;
    let string = [b"\0", name.as_bytes(), b"\0"].concat();
    Some(btf.windows(string.len()).any(|window| window == string))
}

/// Why a kernel of this version can't have what is needed.
pub(crate) fn lacks(need: Need, version: Version) -> Option<&'static str> {
    LACKS
        .iter()
        .find(|(what, first, last, _)| *what == need && (*first..=*last).contains(&version))
        .map(|(_, _, _, why)| *why)
}

fn version() -> Result<Version> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").context("no kernel release")?;
    let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        anyhow::bail!("what release is {release}?");
    };
    Ok((major, minor))
}

/// What a byte is as this kernel's `char`: since 6.2 it is built with `-funsigned-char`.
pub(crate) fn char_of(byte: u8) -> i128 {
    if version().is_ok_and(|version| version >= (6, 2)) {
        i128::from(byte)
    } else {
        i128::from(byte.cast_signed())
    }
}

fn load(modules: &Path) -> Result<Addresses> {
    for name in ["ksj_fixture", "ksj_fixture2"] {
        if Path::new("/sys/module").join(name).exists() {
            continue;
        }
        let file = modules.join(name).with_extension("ko");
        let out = Command::new("insmod")
            .arg(&file)
            .output()
            .context("cannot start insmod")?;
        ensure!(
            out.status.success(),
            "insmod {}: {}",
            file.display(),
            String::from_utf8_lossy(&out.stderr).trim()
        );
        ensure!(
            Path::new("/sys/kernel/btf").join(name).exists(),
            "{name} is loaded, but without BTF"
        );
    }
    let text = std::fs::read_to_string("/sys/kernel/debug/ksj/ptrs").context("no ptrs in debugfs")?;
    let mut addresses = Addresses::new();
    for line in text.lines() {
        let (name, address) = line
            .split_once(" 0x")
            .with_context(|| format!("what is `{line}`?"))?;
        addresses.insert(name.to_owned(), u64::from_str_radix(address, 16)?);
    }
    Ok(addresses)
}

/// Has the fixture make the calls of one group, in this process.
pub(crate) fn run_group(group: &str) -> Result<()> {
    std::fs::write(FIXTURE, group).with_context(|| format!("the fixture does not run `{group}`"))
}

/// The same for the second module, which has one group only.
pub(crate) fn run_second() -> Result<()> {
    std::fs::write(FIXTURE2, "run").context("the second fixture module does not run")
}

/// Runs bpftool, which must succeed.
pub(crate) fn bpftool(args: &[&str]) -> Result<String> {
    let out = Command::new(BPFTOOL)
        .args(args)
        .output()
        .context("cannot start bpftool")?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(
        out.status.success(),
        "bpftool {}: {}",
        args.join(" "),
        said.trim()
    );
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
