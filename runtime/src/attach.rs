//! What programs are attached to, as data.
//!
//! In: nothing but the caller's choice. Out: targets, and their names for messages. Never touches the kernel; making
//! the links is `links`' part.

use std::fmt;
use std::path::PathBuf;

/// One place of a link that covers many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// What it is depends on the target: a kernel address, a BTF id, or an offset in a file.
    pub at: u64,
    /// What `bpf_get_attach_cookie` gives there.
    pub cookie: u64,
    /// Offset in the file of the semaphore to count up while attached (USDT), or 0.
    pub ref_ctr: u64,
}

/// What a program is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachTarget {
    /// A function or a tracepoint's typedef (`btf_trace_NAME`) by BTF id: fentry, fexit, fsession, typed tracepoints.
    Btf {
        /// The id, in the BTF of `module` or else in vmlinux's.
        id: u32,
        /// The module whose BTF the id is in.
        module: Option<String>,
        /// The name, for messages.
        name: String,
    },
    /// Functions by BTF id, for one program: `fentry_multi` and its kin (7.2).
    BtfIds {
        /// Ids; the kernel wants them sorted, which is done here.
        sites: Vec<Site>,
        /// The module whose BTF the ids are in.
        module: Option<String>,
    },
    /// A raw tracepoint by name.
    RawTracepoint(String),
    /// A tracepoint of tracefs.
    Tracepoint {
        /// Its directory, as `sched`.
        group: String,
        /// Its name, as `sched_switch`.
        event: String,
    },
    /// A kernel function by name: kprobe, kretprobe.
    Symbol {
        /// The symbol, with its compiler suffix.
        name: String,
        /// The module it is in, when the name alone doesn't say.
        module: Option<String>,
        /// Bytes from its start; 0 is the entry, also where functions begin with `endbr64`.
        offset: u64,
    },
    /// A kernel function by the address of its symbol: kprobe, kretprobe. For names that several functions have.
    Address {
        /// The address, as kallsyms gives it.
        address: u64,
        /// The name, for messages.
        name: String,
    },
    /// Kernel functions by the addresses of their symbols: kprobe.multi and kprobe.session.
    Addresses(Vec<Site>),
    /// A place in a file: uprobe, uretprobe.
    File {
        /// The program or library.
        path: PathBuf,
        /// Offset in the file (not the virtual address).
        offset: u64,
        /// Offset of the semaphore, or 0.
        ref_ctr: u64,
        /// Only this process.
        pid: Option<u32>,
    },
    /// Places in one file: uprobe.multi.
    FileSites {
        /// The program or library.
        path: PathBuf,
        /// Offsets in the file.
        sites: Vec<Site>,
        /// Only this process.
        pid: Option<u32>,
    },
    /// Nothing: the program is only loaded, for `--check` and for test runs.
    Nothing,
}

impl AttachTarget {
    /// The places of a link that covers many; none for any other.
    pub(crate) fn sites(&self) -> &[Site] {
        match self {
            AttachTarget::BtfIds { sites, .. }
            | AttachTarget::Addresses(sites)
            | AttachTarget::FileSites { sites, .. } => sites,
            AttachTarget::Btf { .. }
            | AttachTarget::RawTracepoint(_)
            | AttachTarget::Tracepoint { .. }
            | AttachTarget::Symbol { .. }
            | AttachTarget::Address { .. }
            | AttachTarget::File { .. }
            | AttachTarget::Nothing => &[],
        }
    }

    /// How many places it covers.
    pub(crate) fn places(&self) -> usize {
        self.sites().len().max(1)
    }

    /// The same in two parts; `None` for what can't be parted.
    pub(crate) fn halves(&self) -> Option<(AttachTarget, AttachTarget)> {
        let (first, second) = self.sites().split_at(self.sites().len() / 2);
        if first.is_empty() {
            return None;
        }
        let with = |part: &[Site]| {
            let mut target = self.clone();
            match &mut target {
                AttachTarget::BtfIds { sites, .. }
                | AttachTarget::Addresses(sites)
                | AttachTarget::FileSites { sites, .. } => *sites = part.to_vec(),
                AttachTarget::Btf { .. }
                | AttachTarget::RawTracepoint(_)
                | AttachTarget::Tracepoint { .. }
                | AttachTarget::Symbol { .. }
                | AttachTarget::Address { .. }
                | AttachTarget::File { .. }
                | AttachTarget::Nothing => {}
            }
            target
        };
        Some((with(first), with(second)))
    }
}

impl fmt::Display for AttachTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachTarget::Btf {
                name,
                module: Some(m),
                ..
            }
            | AttachTarget::Symbol {
                name,
                module: Some(m),
                offset: 0,
            } => write!(f, "{m}:{name}"),
            AttachTarget::Btf {
                name, module: None, ..
            }
            | AttachTarget::Symbol {
                name,
                module: None,
                offset: 0,
            } => {
                write!(f, "{name}")
            }
            AttachTarget::Symbol {
                name,
                module: Some(m),
                offset,
            } => write!(f, "{m}:{name}+{offset:#x}"),
            AttachTarget::Symbol {
                name,
                module: None,
                offset,
            } => write!(f, "{name}+{offset:#x}"),
            AttachTarget::BtfIds { sites, .. } | AttachTarget::Addresses(sites) => {
                write!(f, "{} functions", sites.len())
            }
            AttachTarget::RawTracepoint(name) => write!(f, "tracepoint {name}"),
            AttachTarget::Tracepoint { group, event } => write!(f, "tracepoint {group}:{event}"),
            AttachTarget::Address { address, name } => write!(f, "{name} at {address:#x}"),
            AttachTarget::File { path, offset, .. } => write!(f, "{}+{offset:#x}", path.display()),
            AttachTarget::FileSites { path, sites, .. } => {
                write!(f, "{} places in {}", sites.len(), path.display())
            }
            AttachTarget::Nothing => f.write_str("nothing"),
        }
    }
}
