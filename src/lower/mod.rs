//! From the typed query to IR: which program reads what, in which order, and where it puts it. In: one event of a query and
//! how it will be attached. Out: the program and the layout of its records. It can't fail for a user's mistake: sema has
//! refused those.
//!
//! A program filters first (options, then predicates, short-circuiting), reserves a record only when everything holds, and
//! writes values straight into it. Values that several items read through are read once: items are grouped by
//! the pointers they share, and a bad pointer marks all items behind it as faulty at once.

mod abi;
mod aggregate;
mod bits;
pub mod chain;
mod cond;
mod expr;
mod filter;
pub mod follow;
mod glob;
mod histogram;
mod items;
mod kept;
mod key;
mod memory;
mod neighbours;
mod plan;
mod program;
mod stack;
mod stash;
mod text;
mod tight;
mod user;
mod walk;
mod words;

pub use abi::{Placement, placement};
pub use filter::{CGROUP, FOLLOWED, Filter};
pub use plan::keeps;
pub use program::{Id, lower};
pub use stash::kept_map;
pub use user::Served;

use crate::ir;
use crate::wire::{AggregateLayout, RecordLayout};

/// How a program is run, which decides where its arguments are and what it may read plainly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProgramKind {
    /// A BPF trampoline at a function's entry.
    Fentry,
    /// A BPF trampoline at its return; it has the arguments too.
    Fexit,
    /// A typed tracepoint.
    TpBtf,
    /// A raw tracepoint, which knows no types.
    RawTp,
    /// A kprobe at a function's entry.
    Kprobe,
    /// A kretprobe.
    Kretprobe,
    /// Entry and return of one function through a BPF trampoline, in one program (7.2).
    Fsession,
    /// A BPF trampoline at the entries of many functions (7.2), so that nobody knows their types.
    FentryMulti,
    /// The same at their returns.
    FexitMulti,
    /// The same at both, in one program.
    FsessionMulti,
    /// Entry and return by fprobe, in one program (6.10).
    KprobeSession,
    /// A place in a program.
    Uprobe,
    /// A program's function at its return.
    Uretprobe,
    /// A program's function at its entry and return, in one program (6.13).
    UprobeSession,
}

impl ProgramKind {
    /// All of them.
    pub const ALL: [ProgramKind; 14] = [
        ProgramKind::Fentry,
        ProgramKind::Fexit,
        ProgramKind::TpBtf,
        ProgramKind::RawTp,
        ProgramKind::Kprobe,
        ProgramKind::Kretprobe,
        ProgramKind::Fsession,
        ProgramKind::FentryMulti,
        ProgramKind::FexitMulti,
        ProgramKind::FsessionMulti,
        ProgramKind::KprobeSession,
        ProgramKind::Uprobe,
        ProgramKind::Uretprobe,
        ProgramKind::UprobeSession,
    ];

    /// What a program that runs at entry and at return is at each of the two; `None` for one that runs at one of them only.
    pub(crate) fn halves(self) -> Option<(ProgramKind, ProgramKind)> {
        match self {
            ProgramKind::Fsession => Some((ProgramKind::Fentry, ProgramKind::Fexit)),
            ProgramKind::FsessionMulti => Some((ProgramKind::FentryMulti, ProgramKind::FexitMulti)),
            ProgramKind::KprobeSession => Some((ProgramKind::Kprobe, ProgramKind::Kretprobe)),
            ProgramKind::UprobeSession => Some((ProgramKind::Uprobe, ProgramKind::Uretprobe)),
            ProgramKind::Fentry
            | ProgramKind::Fexit
            | ProgramKind::TpBtf
            | ProgramKind::RawTp
            | ProgramKind::Kprobe
            | ProgramKind::Kretprobe
            | ProgramKind::FentryMulti
            | ProgramKind::FexitMulti
            | ProgramKind::Uprobe
            | ProgramKind::Uretprobe => None,
        }
    }

    /// The program that runs at the entry, for one that runs at the return and needs what was there.
    pub(crate) fn entry(self) -> ProgramKind {
        match self {
            ProgramKind::Fexit => ProgramKind::Fentry,
            ProgramKind::FexitMulti => ProgramKind::FentryMulti,
            ProgramKind::Kretprobe => ProgramKind::Kprobe,
            ProgramKind::Uretprobe => ProgramKind::Uprobe,
            ProgramKind::Fentry
            | ProgramKind::TpBtf
            | ProgramKind::RawTp
            | ProgramKind::Kprobe
            | ProgramKind::Fsession
            | ProgramKind::FentryMulti
            | ProgramKind::FsessionMulti
            | ProgramKind::KprobeSession
            | ProgramKind::Uprobe
            | ProgramKind::UprobeSession => self,
        }
    }

    /// Whether it runs in a BPF trampoline of a kernel function.
    fn trampoline(self) -> bool {
        match self {
            ProgramKind::Fentry
            | ProgramKind::Fexit
            | ProgramKind::Fsession
            | ProgramKind::FentryMulti
            | ProgramKind::FexitMulti
            | ProgramKind::FsessionMulti => true,
            ProgramKind::TpBtf
            | ProgramKind::RawTp
            | ProgramKind::Kprobe
            | ProgramKind::Kretprobe
            | ProgramKind::KprobeSession
            | ProgramKind::Uprobe
            | ProgramKind::Uretprobe
            | ProgramKind::UprobeSession => false,
        }
    }

    /// Whether it runs in a program, on the program's behalf.
    pub(crate) fn in_program(self) -> bool {
        match self {
            ProgramKind::Uprobe | ProgramKind::Uretprobe | ProgramKind::UprobeSession => true,
            ProgramKind::Fentry
            | ProgramKind::Fexit
            | ProgramKind::TpBtf
            | ProgramKind::RawTp
            | ProgramKind::Kprobe
            | ProgramKind::Kretprobe
            | ProgramKind::Fsession
            | ProgramKind::FentryMulti
            | ProgramKind::FexitMulti
            | ProgramKind::FsessionMulti
            | ProgramKind::KprobeSession => false,
        }
    }

    /// Whether the kernel's verifier knows the types of its arguments.
    fn typed(self) -> bool {
        match self {
            ProgramKind::Fentry | ProgramKind::Fexit | ProgramKind::Fsession | ProgramKind::TpBtf => true,
            ProgramKind::RawTp
            | ProgramKind::Kprobe
            | ProgramKind::Kretprobe
            | ProgramKind::FentryMulti
            | ProgramKind::FexitMulti
            | ProgramKind::FsessionMulti
            | ProgramKind::KprobeSession
            | ProgramKind::Uprobe
            | ProgramKind::Uretprobe
            | ProgramKind::UprobeSession => false,
        }
    }

    /// The section prefix that libbpf and aya know it by, or know the nearest kind by.
    fn section(self) -> &'static str {
        match self {
            ProgramKind::Fentry
            | ProgramKind::Fsession
            | ProgramKind::FentryMulti
            | ProgramKind::FsessionMulti => "fentry",
            ProgramKind::Fexit | ProgramKind::FexitMulti => "fexit",
            ProgramKind::TpBtf => "tp_btf",
            ProgramKind::RawTp => "raw_tp",
            ProgramKind::Kprobe | ProgramKind::KprobeSession => "kprobe",
            ProgramKind::Kretprobe => "kretprobe",
            ProgramKind::Uprobe | ProgramKind::UprobeSession => "uprobe",
            ProgramKind::Uretprobe => "uretprobe",
        }
    }

    /// How messages call it.
    fn what(self) -> &'static str {
        match self {
            ProgramKind::Fentry => "fentry",
            ProgramKind::Fexit => "fexit",
            ProgramKind::TpBtf => "tp_btf",
            ProgramKind::RawTp => "raw_tp",
            ProgramKind::Kprobe => "kprobe",
            ProgramKind::Kretprobe => "kretprobe",
            ProgramKind::Fsession => "fsession",
            ProgramKind::FentryMulti => "fentry_multi",
            ProgramKind::FexitMulti => "fexit_multi",
            ProgramKind::FsessionMulti => "fsession_multi",
            ProgramKind::KprobeSession => "kprobe.session",
            ProgramKind::Uprobe => "uprobe",
            ProgramKind::Uretprobe => "uretprobe",
            ProgramKind::UprobeSession => "uprobe.session",
        }
    }
}

/// How kernel memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reads {
    /// Plain loads where the verifier knows the type, probe reads elsewhere.
    #[default]
    Auto,
    /// Probe reads everywhere: they see every bad address.
    Probe,
}

/// What is known about the kernel that will run the program, and what the user wants of every program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// How kernel memory is read.
    pub reads: Reads,
    /// Whether there is `bpf_get_current_task_btf` (5.11).
    pub current_task_btf: bool,
    /// Whether typed programs may load arguments that are pointers to integers (5.17).
    pub int_pointers: bool,
    /// Whether probes in programs are attached with cookies that they can ask for (5.15).
    pub cookies: bool,
    /// Size of the ring buffer in bytes.
    pub ring_bytes: u32,
    /// Whose events count.
    pub filter: Filter,
    /// In stack mode, the functions that call each other.
    pub chain: Option<chain::Chain>,
    /// The stack has no room for all that programs would remember: they remember little, and write values into the record, which
    /// has to be there first, as soon as they are judged.
    pub tight: bool,
    /// How many keys an aggregation has room for; else as many as fit a megabyte.
    pub keys: Option<u32>,
}

/// The size of ring buffer that is used if nothing else is said, in bytes.
pub const RING_BYTES: u32 = 1 << 22;

impl Default for Target {
    fn default() -> Target {
        Target {
            reads: Reads::Auto,
            current_task_btf: true,
            int_pointers: true,
            cookies: true,
            ring_bytes: RING_BYTES,
            filter: Filter::default(),
            chain: None,
            tight: false,
            keys: None,
        }
    }
}

/// One program and what it writes.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The program.
    pub func: ir::Func,
    /// How it is run.
    pub kind: ProgramKind,
    /// The layout of its records; `None` for a program that only saves values for another.
    pub layout: Option<RecordLayout>,
    /// The layout of what it aggregates.
    pub aggregate: Option<AggregateLayout>,
    /// In a program: the places that it is for. None for others.
    pub sites: Vec<Served>,
}

/// Name of the ring buffer.
pub const EVENTS: &str = "events";
/// Name of the per-CPU counters: for query N, entry 2N counts lost events and 2N + 1 predicates that faulted.
pub const COUNTS: &str = "counts";
/// Name of the per-CPU counters of aggregations: for query N, entry 2N counts hits whose key found no room in the map, and
/// 2N + 1 those whose key or value could not be read.
pub const MISSED: &str = "missed";
/// Name of the per-CPU counters of what entries keep for returns: for query N, entry 2N counts places that were made in maps of the name
/// [`kept_map`], and 2N + 1 those that were given back. What is neither given back nor there any more was forgotten.
pub const KEPT: &str = "kept";
