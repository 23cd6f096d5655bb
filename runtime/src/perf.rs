//! Probes through `perf_event_open(2)`: kprobes, uprobes and tracepoints.
//!
//! In: a symbol, an address, a file offset or a tracepoint's id. Out: the event's descriptor, to which `links` ties
//! a program. Never attaches programs itself; writes to tracefs only for what there is no system call for.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// `PERF_TYPE_TRACEPOINT`.
const TYPE_TRACEPOINT: u32 = 2;
/// `PERF_FLAG_FD_CLOEXEC`.
const FD_CLOEXEC: u64 = 8;
/// `PERF_EVENT_IOC_ENABLE`, `_IO('$', 0)`.
const IOC_ENABLE: libc::Ioctl = 0x2400;
/// `PERF_EVENT_IOC_SET_BPF`, `_IOW('$', 8, __u32)`.
const IOC_SET_BPF: libc::Ioctl = 0x4004_2408;

/// The front part of `struct perf_event_attr` (its size in Linux 3.x, which every kernel takes).
#[repr(C)]
#[derive(Default)]
struct PerfAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    /// `kprobe_func`, `uprobe_path`.
    config1: u64,
    /// `kprobe_addr`, `probe_offset`.
    config2: u64,
}

/// A dynamic probe kind of the perf subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pmu {
    /// Kernel functions.
    Kprobe,
    /// Program functions.
    Uprobe,
}

/// Where its probe goes.
pub(crate) enum Place<'a> {
    /// `function` or `module:function`, and bytes from its start.
    Symbol(&'a CStr, u64),
    /// A kernel address.
    Address(u64),
    /// A file and the offset in it; the semaphore's offset or 0; one process or all.
    File {
        path: &'a CStr,
        offset: u64,
        ref_ctr: u64,
        pid: Option<u32>,
    },
}

impl Pmu {
    /// Its directory in sysfs; its absence is how a kernel says that it has no such probes.
    pub(crate) fn dir(self) -> &'static str {
        match self {
            Pmu::Kprobe => "/sys/bus/event_source/devices/kprobe",
            Pmu::Uprobe => "/sys/bus/event_source/devices/uprobe",
        }
    }

    /// The perf type number, and the bit of `config` that asks for the return instead of the entry. Read once:
    /// thousands of probes may be opened.
    fn numbers(self) -> io::Result<(u32, u64)> {
        static KPROBE: OnceLock<(u32, u64)> = OnceLock::new();
        static UPROBE: OnceLock<(u32, u64)> = OnceLock::new();
        let known = match self {
            Pmu::Kprobe => &KPROBE,
            Pmu::Uprobe => &UPROBE,
        };
        if let Some(numbers) = known.get() {
            return Ok(*numbers);
        }
        let kind = number(&std::fs::read_to_string(format!("{}/type", self.dir()))?)?;
        let text = std::fs::read_to_string(format!("{}/format/retprobe", self.dir()))?;
        let bit: u32 = number(text.trim().trim_start_matches("config:"))?;
        let bit = 1u64
            .checked_shl(bit)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(*known.get_or_init(|| (kind, bit)))
    }

    /// Whether the kernel has such probes.
    pub(crate) fn exists(self) -> io::Result<()> {
        self.numbers().map(|_| ())
    }

    /// Makes the probe, not yet enabled.
    pub(crate) fn open(self, place: &Place<'_>, at_return: bool) -> io::Result<OwnedFd> {
        let (kind, return_bit) = self.numbers()?;
        let mut attr = PerfAttr {
            kind,
            ..Default::default()
        };
        if at_return {
            attr.config |= return_bit;
        }
        let mut pid = -1;
        match place {
            Place::Symbol(name, offset) => {
                attr.config1 = name.as_ptr() as u64;
                attr.config2 = *offset;
            }
            Place::Address(address) => attr.config2 = *address,
            Place::File {
                path,
                offset,
                ref_ctr,
                pid: only,
            } => {
                attr.config1 = path.as_ptr() as u64;
                attr.config2 = *offset;
                // The semaphore's offset takes the upper half of `config` (kernel/events/core.c,
                // `PERF_UPROBE_REF_CTR_OFFSET_SHIFT`).
                attr.config |= ref_ctr << 32;
                if let Some(p) = only {
                    pid = i32::try_from(*p).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
                }
            }
        }
        event_open(&mut attr, pid)
    }
}

/// A return probe of tracefs, made by us. Dropping it takes it away, for which nothing may be attached to it any more.
#[derive(Debug)]
pub(crate) struct Named {
    list: &'static str,
    name: String,
}

impl Named {
    /// How many returns it has missed, from tracefs's own list (Documentation/trace/kprobetrace.rst, "Event Profiling").
    pub(crate) fn missed(&self) -> Option<u64> {
        let list = self.list.strip_suffix("kprobe_events")?;
        let profile = std::fs::read_to_string(format!("{list}kprobe_profile")).ok()?;
        profile.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let [name, _, missed] = [words.next()?, words.next()?, words.next()?];
            (name == self.name).then(|| missed.parse().ok())?
        })
    }
}

/// The group of our return probes in tracefs.
const GROUP: &str = "ksnoop_jit";

/// Makes a return probe with room for so many calls at once, which `perf_event_open` has no word for: tracefs has
/// (Documentation/trace/kprobetrace.rst). `place` is a symbol, `module:symbol` or an address with `0x`.
pub(crate) fn open_return(place: &str, maxactive: u32) -> io::Result<(OwnedFd, Named)> {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("p{}_{number}", std::process::id());
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for list in [
        "/sys/kernel/tracing/kprobe_events",
        "/sys/kernel/debug/tracing/kprobe_events",
    ] {
        match append(list, &format!("r{maxactive}:{GROUP}/{name} {place}\n")) {
            Ok(()) => {
                let named = Named { list, name };
                let event = open_tracepoint(GROUP, &named.name)?;
                return Ok((event, named));
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn append(list: &str, line: &str) -> io::Result<()> {
    use std::io::Write;
    std::fs::OpenOptions::new()
        .append(true)
        .open(list)?
        .write_all(line.as_bytes())
}

impl Drop for Named {
    fn drop(&mut self) {
        // Nobody can be told, and what stays behind is a probe that nothing listens to.
        let _ = append(self.list, &format!("-:{GROUP}/{}\n", self.name));
    }
}

/// Opens the tracepoint `group`/`event`.
pub(crate) fn open_tracepoint(group: &str, event: &str) -> io::Result<OwnedFd> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for root in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        match std::fs::read_to_string(format!("{root}/events/{group}/{event}/id")) {
            Ok(text) => {
                let config = number(&text)?;
                let mut attr = PerfAttr {
                    kind: TYPE_TRACEPOINT,
                    config,
                    sample_period: 1,
                    wakeup: 1,
                    ..Default::default()
                };
                return event_open(&mut attr, -1);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Ties a program to an event through its own ioctl: kernels before 5.15, and without a cookie.
pub(crate) fn set_bpf(event: &OwnedFd, prog: i32) -> io::Result<()> {
    ioctl(event, IOC_SET_BPF, prog)
}

/// Lets an event fire.
pub(crate) fn enable(event: &OwnedFd) -> io::Result<()> {
    ioctl(event, IOC_ENABLE, 0)
}

fn ioctl(event: &OwnedFd, what: libc::Ioctl, arg: i32) -> io::Result<()> {
    // SAFETY: both requests take an integer argument by value; no memory is handed over.
    let r = unsafe { libc::ioctl(crate::sys::raw(event), what, arg) };
    if r < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Opens an event that never happens, whose buffer tells what processes of that CPU map to run, and of their beginnings and ends.
pub(crate) fn open_map_log(cpu: i32) -> io::Result<OwnedFd> {
    /// `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_DUMMY`.
    const TYPE_SOFTWARE: u32 = 1;
    const COUNT_DUMMY: u64 = 9;
    /// The bits of `struct perf_event_attr` called `mmap`, `comm`, `task`, `mmap2` and `comm_exec`.
    const FLAGS: u64 = 1 << 8 | 1 << 9 | 1 << 13 | 1 << 23 | 1 << 24;
    let mut attr = PerfAttr {
        kind: TYPE_SOFTWARE,
        config: COUNT_DUMMY,
        flags: FLAGS,
        ..Default::default()
    };
    event_open_on(&mut attr, -1, cpu)
}

fn event_open(attr: &mut PerfAttr, pid: i32) -> io::Result<OwnedFd> {
    // An event without a process has to name a CPU, yet the probe fires on all of them: the program is tied to the
    // probe, not to the event (kernel/trace/trace_kprobe.c, `kprobe_perf_func`).
    let cpu = if pid == -1 { 0 } else { -1 };
    event_open_on(attr, pid, cpu)
}

fn event_open_on(attr: &mut PerfAttr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    attr.size = size_of::<PerfAttr>() as u32;
    // SAFETY: `attr` is a live struct of the size it states, and its pointers live as long as the caller's place.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attr),
            pid,
            cpu,
            -1,
            FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.trim()
        .parse()
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}
