//! Ties a loaded program to its target, and holds the tie.
//!
//! In: a program's descriptor, its kind, a target, a cookie. Out: a `Link`, which detaches when dropped, or the
//! cause why not. Never loads anything; tries a second way only where old and new kernels do the same thing by
//! different calls.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use crate::attach::{AttachTarget, Site};
use crate::caps;
use crate::error::AttachCause;
use crate::perf::{self, Place, Pmu};
use crate::program::ProgramKind;
use crate::sys::{self, attach_type, cmd};

/// `BPF_F_KPROBE_MULTI_RETURN` and `BPF_F_UPROBE_MULTI_RETURN`.
const MULTI_RETURN: u32 = 1;

/// A program at its target. Dropping it detaches.
#[derive(Debug)]
pub(crate) struct Link {
    // Dropped in this order: first the program lets go of the event, then the event goes.
    link: Option<OwnedFd>,
    _event: Option<OwnedFd>,
    probe: Option<perf::Named>,
}

/// Why a link wasn't made.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) cause: AttachCause,
    pub(crate) source: io::Error,
}

/// Makes a link; `Ok(None)` for a target of [`AttachTarget::Nothing`].
pub(crate) fn attach(
    prog: &OwnedFd,
    kind: &ProgramKind,
    target: &AttachTarget,
    cookie: Option<u64>,
) -> Result<Option<Link>, Refusal> {
    let fd = prog.as_fd();
    let made = match target {
        AttachTarget::Nothing => return Ok(None),
        AttachTarget::Btf { .. } => tracing(fd, kind, cookie).map(Link::of),
        AttachTarget::BtfIds { sites, .. } => tracing_multi(fd, kind, sites).map(Link::of),
        AttachTarget::RawTracepoint(name) => c_string(name.as_ref())
            .and_then(|name| sys::raw_tracepoint_open(fd, Some(&name), cookie))
            .map(Link::of),
        AttachTarget::Tracepoint { group, event } => {
            perf::open_tracepoint(group, event).and_then(|e| on_event(fd, e, cookie))
        }
        AttachTarget::Symbol { name, module, offset } => {
            let full = match module {
                Some(m) => format!("{m}:{name}"),
                None => name.clone(),
            };
            match kind.maxactive() {
                Some(calls) => return_probe(fd, &full, calls, cookie),
                None => c_string(full.as_ref())
                    .and_then(|s| Pmu::Kprobe.open(&Place::Symbol(&s, *offset), kind.at_return()))
                    .and_then(|e| on_event(fd, e, cookie)),
            }
        }
        AttachTarget::Address { address, .. } => match kind.maxactive() {
            Some(calls) => return_probe(fd, &format!("{address:#x}"), calls, cookie),
            None => Pmu::Kprobe
                .open(&Place::Address(*address), kind.at_return())
                .and_then(|e| on_event(fd, e, cookie)),
        },
        AttachTarget::Addresses(sites) => kprobe_multi(fd, kind, sites).map(Link::of),
        AttachTarget::File {
            path,
            offset,
            ref_ctr,
            pid,
        } => c_string(path.as_os_str())
            .and_then(|path| {
                let place = Place::File {
                    path: &path,
                    offset: *offset,
                    ref_ctr: *ref_ctr,
                    pid: *pid,
                };
                Pmu::Uprobe.open(&place, kind.at_return())
            })
            .and_then(|e| on_event(fd, e, cookie)),
        AttachTarget::FileSites { path, sites, pid } => {
            uprobe_multi(fd, kind, path.as_os_str(), sites, *pid).map(Link::of)
        }
    };
    made.map(Some).map_err(|source| {
        let mut cause = cause(target, &source);
        // EINVAL is also what a kernel says that doesn't know the kind: only then it is asked.
        if cause == AttachCause::NotTraceable
            && let Some(multi) = Multi::of(target)
            && multi_exists(fd, kind.attach_type(), multi).is_err()
        {
            cause = AttachCause::KindUnknown;
        }
        Refusal { cause, source }
    })
}

/// The sorts of links that cover many places.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Multi {
    Kprobe,
    Uprobe,
    Tracing,
}

impl Multi {
    fn of(target: &AttachTarget) -> Option<Multi> {
        match target {
            AttachTarget::Addresses(_) => Some(Multi::Kprobe),
            AttachTarget::FileSites { .. } => Some(Multi::Uprobe),
            AttachTarget::BtfIds { .. } => Some(Multi::Tracing),
            AttachTarget::Btf { .. }
            | AttachTarget::RawTracepoint(_)
            | AttachTarget::Tracepoint { .. }
            | AttachTarget::Symbol { .. }
            | AttachTarget::Address { .. }
            | AttachTarget::File { .. }
            | AttachTarget::Nothing => None,
        }
    }
}

/// Whether programs of a multi kind can be linked, found out without linking: the link is asked for with a pointer
/// that can't be read, which a kernel that has the kind answers with EFAULT. Any other answer is the error.
pub(crate) fn multi_exists(prog: BorrowedFd<'_>, attach_type: u32, kind: Multi) -> io::Result<()> {
    /// In the first page, which no process has.
    const BAD_POINTER: u64 = 8;
    let prog_fd = sys::raw(&prog) as u32;
    let answer = match kind {
        Multi::Kprobe => {
            let syms = BAD_POINTER;
            let mut attr = sys::LinkCreateKprobeMulti {
                prog_fd,
                attach_type,
                cnt: 1,
                syms,
                ..Default::default()
            };
            sys::bpf_fd(cmd::LINK_CREATE, &mut attr)
        }
        Multi::Uprobe => {
            let (path, offsets) = (BAD_POINTER, BAD_POINTER);
            let mut attr = sys::LinkCreateUprobeMulti {
                prog_fd,
                attach_type,
                cnt: 1,
                path,
                offsets,
                ..Default::default()
            };
            sys::bpf_fd(cmd::LINK_CREATE, &mut attr)
        }
        Multi::Tracing => {
            let ids = BAD_POINTER;
            let mut attr = sys::LinkCreateTracingMulti {
                prog_fd,
                attach_type,
                cnt: 1,
                ids,
                ..Default::default()
            };
            sys::bpf_fd(cmd::LINK_CREATE, &mut attr)
        }
    };
    match answer {
        Err(e) if e.raw_os_error() == Some(libc::EFAULT) => Ok(()),
        Err(e) => Err(e),
        Ok(_) => Err(io::Error::other("the kernel made a link to nowhere")),
    }
}

impl Link {
    fn of(fd: OwnedFd) -> Link {
        Link {
            link: Some(fd),
            _event: None,
            probe: None,
        }
    }

    /// How many calls its probes have missed, as far as the kernel tells: at returns those for which there was no room.
    pub(crate) fn missed(&self) -> u64 {
        let told = self.link.as_ref().and_then(|link| sys::link_missed(link.as_fd()));
        told.or_else(|| self.probe.as_ref()?.missed()).unwrap_or(0)
    }
}

/// fentry, fexit, fsession and typed tracepoints: the program already knows its target.
fn tracing(prog: BorrowedFd<'_>, kind: &ProgramKind, cookie: Option<u64>) -> io::Result<OwnedFd> {
    let Some(cookie) = cookie else {
        // Every kernel takes this call; 5.10 has no other for fentry (LINK_CREATE fails there).
        return sys::raw_tracepoint_open(prog, None, None);
    };
    let mut attr = sys::LinkCreateTracing {
        prog_fd: sys::raw(&prog) as u32,
        attach_type: kind.attach_type(),
        cookie,
        ..Default::default()
    };
    sys::bpf_fd(cmd::LINK_CREATE, &mut attr)
}

fn tracing_multi(prog: BorrowedFd<'_>, kind: &ProgramKind, sites: &[Site]) -> io::Result<OwnedFd> {
    let mut sites = sites.to_vec();
    sites.sort_by_key(|s| s.at);
    let ids: Vec<u32> = sites.iter().map(|s| s.at as u32).collect();
    let cookies: Vec<u64> = sites.iter().map(|s| s.cookie).collect();
    let mut attr = sys::LinkCreateTracingMulti {
        prog_fd: sys::raw(&prog) as u32,
        attach_type: kind.attach_type(),
        ids: ids.as_ptr() as u64,
        cookies: cookies.as_ptr() as u64,
        cnt: ids.len() as u32,
        ..Default::default()
    };
    sys::bpf_fd(cmd::LINK_CREATE, &mut attr)
}

fn kprobe_multi(prog: BorrowedFd<'_>, kind: &ProgramKind, sites: &[Site]) -> io::Result<OwnedFd> {
    let addrs: Vec<u64> = sites.iter().map(|s| s.at).collect();
    let cookies: Vec<u64> = sites.iter().map(|s| s.cookie).collect();
    let mut attr = sys::LinkCreateKprobeMulti {
        prog_fd: sys::raw(&prog) as u32,
        attach_type: kind.attach_type(),
        multi_flags: if kind.at_return() { MULTI_RETURN } else { 0 },
        cnt: addrs.len() as u32,
        addrs: addrs.as_ptr() as u64,
        cookies: cookies.as_ptr() as u64,
        ..Default::default()
    };
    sys::bpf_fd(cmd::LINK_CREATE, &mut attr)
}

fn uprobe_multi(
    prog: BorrowedFd<'_>,
    kind: &ProgramKind,
    path: &OsStr,
    sites: &[Site],
    pid: Option<u32>,
) -> io::Result<OwnedFd> {
    let path = c_string(path)?;
    let offsets: Vec<u64> = sites.iter().map(|s| s.at).collect();
    let cookies: Vec<u64> = sites.iter().map(|s| s.cookie).collect();
    let refs: Vec<u64> = sites.iter().map(|s| s.ref_ctr).collect();
    let mut attr = sys::LinkCreateUprobeMulti {
        prog_fd: sys::raw(&prog) as u32,
        attach_type: kind.attach_type(),
        path: path.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        ref_ctr_offsets: if refs.iter().all(|r| *r == 0) {
            0
        } else {
            refs.as_ptr() as u64
        },
        cookies: cookies.as_ptr() as u64,
        cnt: offsets.len() as u32,
        multi_flags: if kind.at_return() { MULTI_RETURN } else { 0 },
        pid: pid.unwrap_or(0),
        ..Default::default()
    };
    sys::bpf_fd(cmd::LINK_CREATE, &mut attr)
}

/// Ties a program to a perf event: through a link where the kernel has those (5.15; kernel/bpf/syscall.c, `bpf_perf_link_attach`),
/// which is what carries a cookie, else through the event's ioctl.
fn on_event(prog: BorrowedFd<'_>, event: OwnedFd, cookie: Option<u64>) -> io::Result<Link> {
    let mut attr = sys::LinkCreatePerf {
        prog_fd: sys::raw(&prog) as u32,
        target_fd: sys::raw(&event) as u32,
        attach_type: attach_type::PERF_EVENT,
        flags: 0,
        cookie: cookie.unwrap_or(0),
    };
    let link = match sys::bpf_fd(cmd::LINK_CREATE, &mut attr) {
        Ok(fd) => Some(fd),
        Err(e) if cookie.is_none() && e.raw_os_error() == Some(libc::EINVAL) => {
            perf::set_bpf(&event, sys::raw(&prog))?;
            None
        }
        Err(e) => return Err(e),
    };
    perf::enable(&event)?;
    Ok(Link {
        link,
        _event: Some(event),
        probe: None,
    })
}

/// Ties a program to a return probe with room for so many calls at once.
fn return_probe(prog: BorrowedFd<'_>, place: &str, maxactive: u32, cookie: Option<u64>) -> io::Result<Link> {
    let (event, probe) = perf::open_return(place, maxactive)?;
    let mut link = on_event(prog, event, cookie)?;
    link.probe = Some(probe);
    Ok(link)
}

fn c_string(s: &OsStr) -> io::Result<CString> {
    CString::new(s.as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// What the kernel's answer means for this sort of target. The same number means different things in different
/// subsystems, so each is judged by itself.
fn cause(target: &AttachTarget, e: &io::Error) -> AttachCause {
    let code = e.raw_os_error().unwrap_or(0);
    /// The kernel's own ENOTSUPP, which libc doesn't name.
    const ENOTSUPP: i32 = 524;
    if matches!(code, libc::EPERM | libc::EACCES) {
        return if caps::privileged() {
            AttachCause::KindRefused
        } else {
            AttachCause::NotPrivileged
        };
    }
    if matches!(code, libc::EOPNOTSUPP | ENOTSUPP | libc::ENOSYS) {
        return AttachCause::KindUnknown;
    }
    match target {
        AttachTarget::Symbol { .. } | AttachTarget::Address { .. } => match code {
            libc::ENOENT if !std::path::Path::new(Pmu::Kprobe.dir()).exists() => AttachCause::KindUnknown,
            libc::ENOENT => AttachCause::NoSuchTarget,
            // Since 6.6 a name that several functions have is refused (kernel/trace/trace_kprobe.c, `validate_probe_symbol`).
            libc::EADDRNOTAVAIL => AttachCause::Ambiguous,
            libc::EINVAL | libc::EILSEQ => AttachCause::NotTraceable,
            libc::EBUSY => AttachCause::Busy,
            _ => AttachCause::Other,
        },
        AttachTarget::Btf { .. } => match code {
            // EBUSY: the bytes at the function's start aren't the no-op that a trampoline replaces, since it is
            // `notrace` (arch/x86/net/bpf_jit_comp.c, `__bpf_arch_text_poke`).
            libc::EBUSY | libc::EINVAL | libc::ENODEV | libc::ENOENT => AttachCause::NotTraceable,
            // More than BPF_MAX_TRAMP_LINKS programs.
            libc::E2BIG => AttachCause::Busy,
            _ => AttachCause::Other,
        },
        AttachTarget::Addresses(_) => match code {
            // An address that isn't an ftrace site, or an attach type that this kernel doesn't know: both EINVAL.
            libc::EINVAL => AttachCause::NotTraceable,
            libc::ESRCH | libc::ENOENT => AttachCause::NoSuchTarget,
            libc::EBUSY => AttachCause::Busy,
            _ => AttachCause::Other,
        },
        AttachTarget::BtfIds { .. } => match code {
            libc::EINVAL => AttachCause::NotTraceable,
            libc::ENOENT => AttachCause::NoSuchTarget,
            libc::EBUSY | libc::E2BIG => AttachCause::Busy,
            _ => AttachCause::Other,
        },
        AttachTarget::RawTracepoint(_) | AttachTarget::Tracepoint { .. } => match code {
            libc::ENOENT => AttachCause::NoSuchTarget,
            _ => AttachCause::Other,
        },
        AttachTarget::File { .. } => match code {
            libc::ENOENT if !std::path::Path::new(Pmu::Uprobe.dir()).exists() => AttachCause::KindUnknown,
            libc::ENOENT => AttachCause::NoSuchTarget,
            libc::EINVAL | libc::EILSEQ => AttachCause::NotTraceable,
            _ => AttachCause::Other,
        },
        AttachTarget::FileSites { .. } => match code {
            libc::ENOENT | libc::ESRCH => AttachCause::NoSuchTarget,
            libc::EINVAL => AttachCause::NotTraceable,
            _ => AttachCause::Other,
        },
        AttachTarget::Nothing => AttachCause::Other,
    }
}
