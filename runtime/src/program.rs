//! Programs as data: how one hooks in, and what is to be done with it.
//!
//! In: the caller's choice. Out: the kernel's numbers for it. Never touches the kernel.

use crate::attach::AttachTarget;
use crate::sys::{attach_type, prog_type};

/// How a program hooks into the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProgramKind {
    /// A function's entry through a trampoline, arguments typed by BTF.
    Fentry,
    /// A function's return through a trampoline; the arguments are still there.
    Fexit,
    /// Both in one program (7.2); the number comes from the running kernel's `enum bpf_attach_type`.
    Fsession {
        /// `BPF_TRACE_FSESSION` of the running kernel.
        attach_type: u32,
    },
    /// `fentry_multi`, `fexit_multi`, `fsession_multi` (7.2); the number comes from the running kernel.
    TracingMulti {
        /// Its `BPF_TRACE_…_MULTI`.
        attach_type: u32,
        /// Which of the three it is.
        at: Moment,
    },
    /// A tracepoint with arguments typed by BTF.
    TpBtf,
    /// A tracepoint with raw arguments.
    RawTp,
    /// A tracepoint of tracefs, with its record as context.
    Tracepoint,
    /// A function's entry through a breakpoint or ftrace.
    Kprobe,
    /// A function's return.
    Kretprobe,
    /// The same with room for more calls at once than the kernel gives by itself, which is ten, or two for each CPU.
    KretprobeWith {
        /// How many calls; at most 4096 (`KRETPROBE_MAXACTIVE_MAX`, kernel/trace/trace_probe.h).
        maxactive: u32,
    },
    /// Many functions with one program and a cookie each (fprobe).
    KprobeMulti {
        /// Entry and return in one program (6.10).
        session: bool,
        /// The return; not with `session`.
        ret: bool,
    },
    /// A place in a program.
    Uprobe,
    /// A program function's return.
    Uretprobe,
    /// Many places of one file with a cookie each (6.6).
    UprobeMulti {
        /// Entry and return in one program (6.13).
        session: bool,
        /// The return; not with `session`.
        ret: bool,
    },
}

/// When in a call a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moment {
    /// At the entry.
    Entry,
    /// At the return.
    Return,
    /// At both.
    Both,
}

impl ProgramKind {
    /// As users call it.
    pub fn name(&self) -> &'static str {
        match self {
            ProgramKind::Fentry => "fentry",
            ProgramKind::Fexit => "fexit",
            ProgramKind::Fsession { .. } => "fsession",
            ProgramKind::TracingMulti {
                at: Moment::Entry, ..
            } => "fentry_multi",
            ProgramKind::TracingMulti {
                at: Moment::Return, ..
            } => "fexit_multi",
            ProgramKind::TracingMulti { at: Moment::Both, .. } => "fsession_multi",
            ProgramKind::TpBtf => "typed tracepoint",
            ProgramKind::RawTp => "raw tracepoint",
            ProgramKind::Tracepoint => "tracepoint",
            ProgramKind::Kprobe => "kprobe",
            ProgramKind::Kretprobe | ProgramKind::KretprobeWith { .. } => "kretprobe",
            ProgramKind::KprobeMulti { session: true, .. } => "kprobe.session",
            ProgramKind::KprobeMulti {
                session: false,
                ret: true,
            } => "kretprobe.multi",
            ProgramKind::KprobeMulti {
                session: false,
                ret: false,
            } => "kprobe.multi",
            ProgramKind::Uprobe => "uprobe",
            ProgramKind::Uretprobe => "uretprobe",
            ProgramKind::UprobeMulti { session: true, .. } => "uprobe.session",
            ProgramKind::UprobeMulti {
                session: false,
                ret: true,
            } => "uretprobe.multi",
            ProgramKind::UprobeMulti {
                session: false,
                ret: false,
            } => "uprobe.multi",
        }
    }

    /// `enum bpf_prog_type`.
    pub fn prog_type(&self) -> u32 {
        match self {
            ProgramKind::Fentry
            | ProgramKind::Fexit
            | ProgramKind::Fsession { .. }
            | ProgramKind::TracingMulti { .. }
            | ProgramKind::TpBtf => prog_type::TRACING,
            ProgramKind::RawTp => prog_type::RAW_TRACEPOINT,
            ProgramKind::Tracepoint => prog_type::TRACEPOINT,
            ProgramKind::Kprobe
            | ProgramKind::Kretprobe
            | ProgramKind::KretprobeWith { .. }
            | ProgramKind::KprobeMulti { .. }
            | ProgramKind::Uprobe
            | ProgramKind::Uretprobe
            | ProgramKind::UprobeMulti { .. } => prog_type::KPROBE,
        }
    }

    /// `enum bpf_attach_type`; 0 where it plays no part.
    pub fn attach_type(&self) -> u32 {
        match self {
            ProgramKind::Fentry => attach_type::TRACE_FENTRY,
            ProgramKind::Fexit => attach_type::TRACE_FEXIT,
            ProgramKind::Fsession { attach_type } | ProgramKind::TracingMulti { attach_type, .. } => {
                *attach_type
            }
            ProgramKind::TpBtf => attach_type::TRACE_RAW_TP,
            ProgramKind::KprobeMulti { session: true, .. } => attach_type::TRACE_KPROBE_SESSION,
            ProgramKind::KprobeMulti { session: false, .. } => attach_type::TRACE_KPROBE_MULTI,
            ProgramKind::UprobeMulti { session: true, .. } => attach_type::TRACE_UPROBE_SESSION,
            ProgramKind::UprobeMulti { session: false, .. } => attach_type::TRACE_UPROBE_MULTI,
            ProgramKind::RawTp
            | ProgramKind::Tracepoint
            | ProgramKind::Kprobe
            | ProgramKind::Kretprobe
            | ProgramKind::KretprobeWith { .. }
            | ProgramKind::Uprobe
            | ProgramKind::Uretprobe => 0,
        }
    }

    /// Whether it runs at returns only. Such a program is attached before the one at the entry that it goes with, so that no
    /// entry is without its return.
    pub(crate) fn follows(&self) -> bool {
        match self {
            ProgramKind::Fexit
            | ProgramKind::TracingMulti {
                at: Moment::Return, ..
            } => true,
            ProgramKind::Fentry
            | ProgramKind::Fsession { .. }
            | ProgramKind::TracingMulti { .. }
            | ProgramKind::TpBtf
            | ProgramKind::RawTp
            | ProgramKind::Tracepoint
            | ProgramKind::Kprobe
            | ProgramKind::Kretprobe
            | ProgramKind::KretprobeWith { .. }
            | ProgramKind::KprobeMulti { .. }
            | ProgramKind::Uprobe
            | ProgramKind::Uretprobe
            | ProgramKind::UprobeMulti { .. } => self.at_return(),
        }
    }

    /// How many calls at once a return probe is to have room for, if that was asked for.
    pub(crate) fn maxactive(&self) -> Option<u32> {
        if let ProgramKind::KretprobeWith { maxactive } = self {
            Some(*maxactive)
        } else {
            None
        }
    }

    pub(crate) fn at_return(&self) -> bool {
        match self {
            ProgramKind::Kretprobe
            | ProgramKind::KretprobeWith { .. }
            | ProgramKind::Uretprobe
            | ProgramKind::KprobeMulti {
                session: false,
                ret: true,
            }
            | ProgramKind::UprobeMulti {
                session: false,
                ret: true,
            } => true,
            ProgramKind::Fentry
            | ProgramKind::Fexit
            | ProgramKind::Fsession { .. }
            | ProgramKind::TracingMulti { .. }
            | ProgramKind::TpBtf
            | ProgramKind::RawTp
            | ProgramKind::Tracepoint
            | ProgramKind::Kprobe
            | ProgramKind::Uprobe
            | ProgramKind::KprobeMulti { .. }
            | ProgramKind::UprobeMulti { .. } => false,
        }
    }
}

/// What to do with one program of the object. Several specs may name the same program: where kind and BTF target
/// allow it, it is loaded once and attached at each.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// The program's symbol in the object.
    pub name: String,
    /// How it hooks in.
    pub kind: ProgramKind,
    /// Where.
    pub attach: AttachTarget,
    /// What `bpf_get_attach_cookie` gives; targets with sites carry their own.
    pub cookie: Option<u64>,
}

/// How much the verifier tells of programs that it accepts. It always tells why it refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing.
    #[default]
    Off,
    /// Its closing statistics: instructions processed, states, stack depth.
    Stats,
    /// Each instruction and what is known of each register before it.
    Full,
}

impl LogLevel {
    /// `BPF_LOG_LEVEL1`, `BPF_LOG_STATS` (include/linux/bpf_verifier.h).
    pub(crate) fn bits(self) -> u32 {
        match self {
            LogLevel::Off => 0,
            LogLevel::Stats => 4,
            LogLevel::Full => 1 | 4,
        }
    }
}
