//! What can go wrong, as data: what was being done, what the kernel answered, and what the user can do about it.
//!
//! In: errors of the other modules. Out: `Display` texts that name the problem and, after a semicolon or on the
//! next line, the remedy. Never decides what to try next; `LoadCause` and `AttachCause` say enough for the caller
//! to walk down its attach ladder.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Anything that this crate can fail with.
#[derive(Debug)]
pub enum RuntimeError {
    /// Not root, and without the capabilities that BPF tracing needs.
    NotPrivileged {
        /// What was being done, as "load a program".
        doing: &'static str,
    },
    /// There is no type information at the place where it was looked for.
    NoBtf {
        /// The file.
        path: PathBuf,
        /// What opening it said.
        source: io::Error,
    },
    /// There is something, but it isn't BTF that can be used.
    BadBtf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A module has no BTF, or isn't loaded.
    NoModuleBtf {
        /// The module's name.
        module: String,
        /// What the search for it said.
        why: String,
    },
    /// An object that doesn't parse or relocate: the compiler and this crate disagree.
    BadObject {
        /// What was being done to it.
        stage: &'static str,
        /// The message of the library that refused.
        why: String,
    },
    /// The kernel refused the object's own type information.
    BtfRefused {
        /// What the system call said.
        source: io::Error,
        /// The end of the kernel's log.
        log: String,
    },
    /// A map couldn't be made, found, read or written.
    Map {
        /// The map's name.
        map: String,
        /// What was being done to it.
        doing: &'static str,
        /// What failed.
        source: io::Error,
    },
    /// A program didn't load.
    Load(Box<LoadError>),
    /// A program didn't attach.
    Attach(Box<AttachError>),
    /// A kernel file couldn't be read.
    File {
        /// The file.
        path: PathBuf,
        /// What reading it said.
        source: io::Error,
        /// What to do about it; may be empty.
        remedy: &'static str,
    },
    /// A system call failed that normally doesn't.
    Sys {
        /// What was being done.
        doing: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The command of `-c` couldn't be started.
    Child {
        /// The command.
        command: String,
        /// What starting it said.
        source: io::Error,
    },
    /// The caller named a program or map that the object doesn't have.
    NoSuch {
        /// "program" or "map".
        what: &'static str,
        /// The name.
        name: String,
    },
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, RuntimeError>;

/// Why a program was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadCause {
    /// Missing privileges.
    NotPrivileged,
    /// Privileged, and still EPERM: this kernel's policy refuses the whole probe kind (lockdown, a security module,
    /// or a build without it). Another kind may work.
    KindRefused,
    /// This kernel doesn't know the program type, the attach type, or an attribute it needs. Another kind may work.
    KindUnknown,
    /// The kind works, but not on this target; holds the kernel's sentence. Another kind may work.
    TargetRefused(String),
    /// The code calls a helper or kernel function that this kernel, or this program type, lacks; holds the kernel's
    /// sentence. Other code, or another kind, may work.
    HelperMissing(String),
    /// The verifier rejected the code, which is a bug in ksnoop-jit.
    Verifier,
    /// Out of memory, or over a limit.
    Memory,
    /// Anything else.
    Other,
}

/// A program didn't load.
#[derive(Debug)]
pub struct LoadError {
    /// The program's name.
    pub program: String,
    /// The kind, as users call it ("fentry", "kprobe.multi").
    pub kind: &'static str,
    /// Why, as far as it can be told.
    pub cause: LoadCause,
    /// What the system call said.
    pub source: io::Error,
    /// The verifier's log, whole; the message shows its last lines.
    pub log: String,
}

/// Why a program couldn't be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachCause {
    /// Missing privileges.
    NotPrivileged,
    /// Privileged, and still refused: another kind may work.
    KindRefused,
    /// This kernel has no such kind of probe: another kind may work.
    KindUnknown,
    /// There is no such function, tracepoint or offset.
    NoSuchTarget,
    /// Several functions have this name; the address, or a module, chooses.
    Ambiguous,
    /// The function exists and can't be probed this way (inlined, `notrace`, deny-listed, not at a function's start).
    NotTraceable,
    /// Too many programs or probes on it already, or another tracer holds it.
    Busy,
    /// Anything else.
    Other,
}

/// A program didn't attach.
#[derive(Debug)]
pub struct AttachError {
    /// The program's name.
    pub program: String,
    /// The kind, as users call it.
    pub kind: &'static str,
    /// What it was to be attached to, for the message.
    pub target: String,
    /// Why, as far as it can be told.
    pub cause: AttachCause,
    /// What the system call said.
    pub source: io::Error,
}

impl RuntimeError {
    /// Whether the kernel does not have this kind of probe at all, or not for us: no other function will do either.
    pub fn kind_is_missing(&self) -> bool {
        match self {
            RuntimeError::Load(e) => match e.cause {
                LoadCause::KindRefused | LoadCause::KindUnknown | LoadCause::HelperMissing(_) => true,
                LoadCause::TargetRefused(_)
                | LoadCause::NotPrivileged
                | LoadCause::Verifier
                | LoadCause::Memory
                | LoadCause::Other => false,
            },
            RuntimeError::Attach(e) => match e.cause {
                AttachCause::KindRefused | AttachCause::KindUnknown => true,
                AttachCause::NotTraceable
                | AttachCause::Busy
                | AttachCause::NotPrivileged
                | AttachCause::NoSuchTarget
                | AttachCause::Ambiguous
                | AttachCause::Other => false,
            },
            RuntimeError::NoModuleBtf { .. }
            | RuntimeError::NotPrivileged { .. }
            | RuntimeError::NoBtf { .. }
            | RuntimeError::BadBtf { .. }
            | RuntimeError::BadObject { .. }
            | RuntimeError::BtfRefused { .. }
            | RuntimeError::Map { .. }
            | RuntimeError::File { .. }
            | RuntimeError::Sys { .. }
            | RuntimeError::Child { .. }
            | RuntimeError::NoSuch { .. } => false,
        }
    }

    /// Whether another rung of the attach ladder may succeed where this one failed.
    pub fn another_kind_may_work(&self) -> bool {
        match self {
            RuntimeError::Load(e) => match e.cause {
                LoadCause::KindRefused
                | LoadCause::KindUnknown
                | LoadCause::TargetRefused(_)
                | LoadCause::HelperMissing(_) => true,
                LoadCause::NotPrivileged | LoadCause::Verifier | LoadCause::Memory | LoadCause::Other => {
                    false
                }
            },
            RuntimeError::Attach(e) => match e.cause {
                AttachCause::KindRefused
                | AttachCause::KindUnknown
                | AttachCause::NotTraceable
                | AttachCause::Busy => true,
                AttachCause::NotPrivileged
                | AttachCause::NoSuchTarget
                | AttachCause::Ambiguous
                | AttachCause::Other => false,
            },
            RuntimeError::NoModuleBtf { .. } => true,
            RuntimeError::NotPrivileged { .. }
            | RuntimeError::NoBtf { .. }
            | RuntimeError::BadBtf { .. }
            | RuntimeError::BadObject { .. }
            | RuntimeError::BtfRefused { .. }
            | RuntimeError::Map { .. }
            | RuntimeError::File { .. }
            | RuntimeError::Sys { .. }
            | RuntimeError::Child { .. }
            | RuntimeError::NoSuch { .. } => false,
        }
    }
}

/// The last `n` lines of a log that aren't the verifier's closing statistics.
pub fn log_tail(log: &str, n: usize) -> String {
    let lines: Vec<&str> = log
        .lines()
        .filter(|l| !l.trim().is_empty() && !is_statistics(l))
        .collect();
    lines[lines.len().saturating_sub(n)..].join("\n")
}

/// Whether a log line only counts what the verifier did (kernel/bpf/verifier.c, `print_verification_stats`).
fn is_statistics(line: &str) -> bool {
    ["processed ", "verification time ", "stack depth "]
        .iter()
        .any(|p| line.starts_with(p))
}

const PRIVILEGES: &str = "run as root, or with CAP_BPF and CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8)";
const BUG: &str = "this is a bug in ksnoop-jit, please report it with the query and the kernel version";

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuntimeError::NotPrivileged { doing } => write!(f, "not allowed to {doing}; {PRIVILEGES}"),
            RuntimeError::NoBtf { path, source } => write!(
                f,
                "no kernel type information (BTF) at {}: {source}; the kernel must be built with \
                 CONFIG_DEBUG_INFO_BTF=y, or give a file with --btf",
                path.display()
            ),
            RuntimeError::BadBtf { path, why } => write!(f, "{} isn't usable BTF: {why}", path.display()),
            RuntimeError::NoModuleBtf { module, why } => write!(
                f,
                "no type information for module {module}: {why}; is it loaded (modprobe {module}), and the kernel \
                 built with CONFIG_DEBUG_INFO_BTF_MODULES=y?"
            ),
            RuntimeError::BadObject { stage, why } => write!(f, "cannot {stage}: {why}; {BUG}"),
            RuntimeError::BtfRefused { source, log } => {
                write!(
                    f,
                    "the kernel refused the program's type information: {source}; {BUG}"
                )?;
                if log.is_empty() {
                    Ok(())
                } else {
                    write!(f, "\n{}", log_tail(log, 8))
                }
            }
            RuntimeError::Map { map, doing, source } => write!(f, "cannot {doing} map {map}: {source}"),
            RuntimeError::Load(e) => e.fmt(f),
            RuntimeError::Attach(e) => e.fmt(f),
            RuntimeError::File { path, source, remedy } => {
                write!(f, "cannot read {}: {source}", path.display())?;
                if remedy.is_empty() {
                    Ok(())
                } else {
                    write!(f, "; {remedy}")
                }
            }
            RuntimeError::Sys { doing, source } => write!(f, "cannot {doing}: {source}"),
            RuntimeError::Child { command, source } => write!(f, "cannot run `{command}`: {source}"),
            RuntimeError::NoSuch { what, name } => write!(f, "the object has no {what} {name}; {BUG}"),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadError {
            program,
            kind,
            cause,
            source,
            log,
        } = self;
        match cause {
            LoadCause::NotPrivileged => write!(f, "not allowed to load a {kind} program; {PRIVILEGES}"),
            LoadCause::KindRefused => write!(
                f,
                "this kernel refuses {kind} programs ({source}) although the privileges are there: a lockdown or \
                 security policy; another --attach kind may work"
            ),
            LoadCause::KindUnknown => {
                write!(
                    f,
                    "this kernel has no {kind} programs ({source}); another --attach kind may work"
                )
            }
            LoadCause::TargetRefused(why) => write!(f, "the kernel can't attach {kind} here: {why}"),
            LoadCause::HelperMissing(why) => {
                write!(
                    f,
                    "this kernel lacks a helper that the {kind} program needs: {why}"
                )
            }
            LoadCause::Verifier => write!(
                f,
                "the kernel's verifier refused {kind} program {program} ({source}); {BUG}\n{}",
                log_tail(log, 12)
            ),
            LoadCause::Memory => write!(
                f,
                "no memory for {kind} program {program} ({source}); on kernels before 5.11 raise RLIMIT_MEMLOCK \
                 (ulimit -l unlimited)"
            ),
            LoadCause::Other => {
                write!(f, "cannot load {kind} program {program}: {source}")?;
                if log.is_empty() {
                    Ok(())
                } else {
                    write!(f, "\n{}", log_tail(log, 8))
                }
            }
        }
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AttachError {
            program: _,
            kind,
            target,
            cause,
            source,
        } = self;
        match cause {
            AttachCause::NotPrivileged => write!(f, "not allowed to attach {kind} to {target}; {PRIVILEGES}"),
            AttachCause::KindRefused => {
                write!(
                    f,
                    "this kernel refuses to attach {kind} ({source}); another --attach kind may work"
                )
            }
            AttachCause::KindUnknown => {
                write!(
                    f,
                    "this kernel has no {kind} ({source}); another --attach kind may work"
                )
            }
            AttachCause::NoSuchTarget => write!(f, "cannot attach {kind}: there is no {target} ({source})"),
            AttachCause::Ambiguous => {
                write!(
                    f,
                    "several functions are called {target}: choose one by module, suffix or address"
                )
            }
            AttachCause::NotTraceable => write!(
                f,
                "{target} can't be traced with {kind} ({source}): inlined everywhere, `notrace`, or deny-listed"
            ),
            AttachCause::Busy => write!(
                f,
                "{target} can't take another {kind} ({source}): too many programs on it, or another tracer holds it"
            ),
            AttachCause::Other => write!(f, "cannot attach {kind} to {target}: {source}"),
        }
    }
}

impl std::error::Error for RuntimeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RuntimeError::NoBtf { source, .. }
            | RuntimeError::BtfRefused { source, .. }
            | RuntimeError::Map { source, .. }
            | RuntimeError::File { source, .. }
            | RuntimeError::Sys { source, .. }
            | RuntimeError::Child { source, .. } => Some(source),
            RuntimeError::Load(e) => Some(&e.source),
            RuntimeError::Attach(e) => Some(&e.source),
            RuntimeError::NotPrivileged { .. }
            | RuntimeError::BadBtf { .. }
            | RuntimeError::NoModuleBtf { .. }
            | RuntimeError::BadObject { .. }
            | RuntimeError::NoSuch { .. } => None,
        }
    }
}

impl From<LoadError> for RuntimeError {
    fn from(e: LoadError) -> RuntimeError {
        RuntimeError::Load(Box::new(e))
    }
}

impl From<AttachError> for RuntimeError {
    fn from(e: AttachError) -> RuntimeError {
        RuntimeError::Attach(Box::new(e))
    }
}
