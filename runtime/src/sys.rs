//! The system calls: `bpf(2)`, the few file descriptors it hands out, and nothing else.
//!
//! In: attribute structs laid out as the kernel's `union bpf_attr` (include/uapi/linux/bpf.h). Out: file
//! descriptors and `io::Error`s as the kernel gave them. Never interprets an error, never retries with other
//! arguments, never keeps state; the one exception is `EAGAIN` from a program load, which only means that a
//! signal came in between.
//!
//! The structs are our own and hold just the fields that are used: the kernel takes a shorter attribute as one
//! whose other fields are zero, and refuses a longer one only if what it doesn't know is not zero. They have no
//! padding, since the kernel also refuses padding that isn't zero.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Commands, `enum bpf_cmd`.
pub(crate) mod cmd {
    pub(crate) const MAP_CREATE: u32 = 0;
    pub(crate) const MAP_LOOKUP_ELEM: u32 = 1;
    pub(crate) const MAP_UPDATE_ELEM: u32 = 2;
    pub(crate) const MAP_DELETE_ELEM: u32 = 3;
    pub(crate) const MAP_GET_NEXT_KEY: u32 = 4;
    pub(crate) const PROG_LOAD: u32 = 5;
    pub(crate) const PROG_TEST_RUN: u32 = 10;
    pub(crate) const OBJ_GET_INFO_BY_FD: u32 = 15;
    pub(crate) const RAW_TRACEPOINT_OPEN: u32 = 17;
    pub(crate) const BTF_LOAD: u32 = 18;
    pub(crate) const BTF_GET_FD_BY_ID: u32 = 19;
    pub(crate) const BTF_GET_NEXT_ID: u32 = 23;
    pub(crate) const MAP_LOOKUP_BATCH: u32 = 24;
    pub(crate) const LINK_CREATE: u32 = 28;
}

/// Program types, `enum bpf_prog_type`.
pub(crate) mod prog_type {
    pub(crate) const KPROBE: u32 = 2;
    pub(crate) const TRACEPOINT: u32 = 5;
    pub(crate) const RAW_TRACEPOINT: u32 = 17;
    pub(crate) const TRACING: u32 = 26;
}

/// Attach types, `enum bpf_attach_type`; those past `TRACE_KPROBE_SESSION` are read from the kernel's own BTF by
/// the caller, since distributions differ in which of them they have.
pub(crate) mod attach_type {
    pub(crate) const TRACE_RAW_TP: u32 = 23;
    pub(crate) const TRACE_FENTRY: u32 = 24;
    pub(crate) const TRACE_FEXIT: u32 = 25;
    pub(crate) const PERF_EVENT: u32 = 41;
    pub(crate) const TRACE_KPROBE_MULTI: u32 = 42;
    pub(crate) const TRACE_UPROBE_MULTI: u32 = 48;
    pub(crate) const TRACE_KPROBE_SESSION: u32 = 56;
    pub(crate) const TRACE_UPROBE_SESSION: u32 = 57;
}

/// A struct that may be handed to `bpf(2)`.
///
/// # Safety
/// The type is `repr(C)`, has no padding, and follows the layout of a member of `union bpf_attr`.
pub(crate) unsafe trait Attr: Copy {}

macro_rules! attrs {
    ($($(#[$m:meta])* $name:ident, $size:literal { $($field:ident: $ty:ty),* $(,)? })*) => {$(
        $(#[$m])*
        #[repr(C)]
        #[derive(Clone, Copy, Default)]
        pub(crate) struct $name { $(pub(crate) $field: $ty),* }
        const _: () = assert!(size_of::<$name>() == $size && $size == 0 $(+ size_of::<$ty>())*);
        // SAFETY: repr(C), and the assertion above says that the fields fill the struct without gaps.
        unsafe impl Attr for $name {}
    )*};
}

attrs! {
    MapElem, 32 { map_fd: u32, pad: u32, key: u64, value: u64, flags: u64 }
    /// `batch`: the commands on many elements (5.6).
    MapBatch, 56 { in_batch: u64, out_batch: u64, keys: u64, values: u64, count: u32, map_fd: u32, elem_flags: u64,
        flags: u64 }
    MapCreate, 48 { map_type: u32, key_size: u32, value_size: u32, max_entries: u32, map_flags: u32, inner_map_fd: u32,
        numa_node: u32, name: [u8; 16], ifindex: u32 }
    ProgLoad, 120 { prog_type: u32, insn_cnt: u32, insns: u64, license: u64, log_level: u32, log_size: u32,
        log_buf: u64, kern_version: u32, prog_flags: u32, prog_name: [u8; 16], prog_ifindex: u32,
        expected_attach_type: u32, prog_btf_fd: u32, func_info_rec_size: u32, func_info: u64, func_info_cnt: u32,
        line_info_rec_size: u32, line_info: u64, line_info_cnt: u32, attach_btf_id: u32, attach_btf_obj_fd: u32,
        core_relo_cnt: u32 }
    TestRun, 64 { prog_fd: u32, retval: u32, data_size_in: u32, data_size_out: u32, data_in: u64, data_out: u64,
        repeat: u32, duration: u32, ctx_size_in: u32, ctx_size_out: u32, ctx_in: u64, ctx_out: u64 }
    ObjInfo, 16 { fd: u32, info_len: u32, info: u64 }
    RawTracepoint, 24 { name: u64, prog_fd: u32, pad: u32, cookie: u64 }
    RawTracepointOld, 16 { name: u64, prog_fd: u32, pad: u32 }
    BtfLoad, 32 { btf: u64, log_buf: u64, size: u32, log_size: u32, log_level: u32, pad: u32 }
    GetId, 12 { id: u32, next_id: u32, open_flags: u32 }
    LinkCreate, 16 { prog_fd: u32, target_fd: u32, attach_type: u32, flags: u32 }
    LinkCreatePerf, 24 { prog_fd: u32, target_fd: u32, attach_type: u32, flags: u32, cookie: u64 }
    LinkCreateTracing, 32 { prog_fd: u32, target_fd: u32, attach_type: u32, flags: u32, target_btf_id: u32, pad: u32,
        cookie: u64 }
    LinkCreateKprobeMulti, 48 { prog_fd: u32, target_fd: u32, attach_type: u32, flags: u32, multi_flags: u32, cnt: u32,
        syms: u64, addrs: u64, cookies: u64 }
    LinkCreateUprobeMulti, 64 { prog_fd: u32, target_fd: u32, attach_type: u32, flags: u32, path: u64, offsets: u64,
        ref_ctr_offsets: u64, cookies: u64, cnt: u32, multi_flags: u32, pid: u32, pad: u32 }
    /// 7.2 and later: `link_create.tracing_multi`.
    LinkCreateTracingMulti, 40 { prog_fd: u32, target_fd: u32, attach_type: u32, flags: u32, ids: u64, cookies: u64,
        cnt: u32, pad: u32 }
    /// What `OBJ_GET_INFO_BY_FD` fills in for BTF, `struct bpf_btf_info`, with the fields of 5.11.
    BtfInfo, 32 { btf: u64, btf_size: u32, id: u32, name: u64, name_len: u32, kernel_btf: u32 }
}

/// Calls `bpf(2)`.
pub(crate) fn bpf<A: Attr>(cmd: u32, attr: &mut A) -> io::Result<i32> {
    // SAFETY: `attr` is a live, writable struct of the size given; the pointers inside it are kept alive by the
    // callers in this module and in `load`, `attach` and `maps` for the time of the call.
    let r = unsafe { libc::syscall(libc::SYS_bpf, cmd, std::ptr::from_mut(attr), size_of::<A>()) };
    if r < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(r as i32)
    }
}

/// Calls `bpf(2)` for a command that answers with a file descriptor.
pub(crate) fn bpf_fd<A: Attr>(cmd: u32, attr: &mut A) -> io::Result<OwnedFd> {
    let fd = bpf(cmd, attr)?;
    // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Loads a program. `EAGAIN` (a signal interrupted the verifier) is tried again a few times, as libbpf does.
pub(crate) fn prog_load(attr: &mut ProgLoad) -> io::Result<OwnedFd> {
    let mut tries = 5;
    loop {
        match bpf_fd(cmd::PROG_LOAD, attr) {
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && tries > 0 => tries -= 1,
            other => return other,
        }
    }
}

/// Loads BTF; `log` may be empty.
pub(crate) fn btf_load(btf: &[u8], log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attr = BtfLoad {
        btf: btf.as_ptr() as u64,
        size: btf.len() as u32,
        ..Default::default()
    };
    if !log.is_empty() {
        attr.log_buf = log.as_mut_ptr() as u64;
        attr.log_size = log.len() as u32;
        attr.log_level = 1;
    }
    bpf_fd(cmd::BTF_LOAD, &mut attr)
}

/// The file descriptor of the kernel's own BTF object called `name` (`vmlinux` or a module), `None` if there is
/// none. Needs 5.11 for names (kernel/bpf/btf.c, `btf_get_info_by_fd`) and CAP_SYS_ADMIN.
pub(crate) fn kernel_btf_fd(name: &str) -> io::Result<Option<OwnedFd>> {
    let mut at = GetId::default();
    loop {
        match bpf(cmd::BTF_GET_NEXT_ID, &mut at) {
            Ok(_) => at.id = at.next_id,
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            Err(e) => return Err(e),
        }
        let fd = match bpf_fd(
            cmd::BTF_GET_FD_BY_ID,
            &mut GetId {
                id: at.id,
                ..Default::default()
            },
        ) {
            Ok(fd) => fd,
            // It went away between the two calls.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => continue,
            Err(e) => return Err(e),
        };
        let mut buf = [0u8; 128];
        let mut info = BtfInfo {
            name: buf.as_mut_ptr() as u64,
            name_len: buf.len() as u32,
            ..Default::default()
        };
        let len = size_of::<BtfInfo>() as u32;
        let mut get = ObjInfo {
            fd: fd.as_raw_fd() as u32,
            info_len: len,
            info: &raw mut info as u64,
        };
        bpf(cmd::OBJ_GET_INFO_BY_FD, &mut get)?;
        let found = CStr::from_bytes_until_nul(&buf).unwrap_or_default().to_bytes();
        if info.kernel_btf != 0 && found == name.as_bytes() {
            return Ok(Some(fd));
        }
    }
}

/// `enum bpf_link_type`, as far as it is used.
mod link_type {
    pub(super) const PERF_EVENT: u32 = 7;
    pub(super) const KPROBE_MULTI: u32 = 8;
}

/// `enum bpf_perf_event_type`, as far as it is used.
mod perf_event_type {
    pub(super) const KPROBE: u32 = 3;
    pub(super) const KRETPROBE: u32 = 4;
}

/// What the kernel tells about a loaded program.
pub(crate) fn prog_info(fd: BorrowedFd<'_>) -> io::Result<aya_obj::generated::bpf_prog_info> {
    // SAFETY: a C struct of integers, for which all zeroes is a value.
    let mut info: aya_obj::generated::bpf_prog_info = unsafe { std::mem::zeroed() };
    let len = size_of::<aya_obj::generated::bpf_prog_info>() as u32;
    let mut get = ObjInfo {
        fd: fd.as_raw_fd() as u32,
        info_len: len,
        info: &raw mut info as u64,
    };
    bpf(cmd::OBJ_GET_INFO_BY_FD, &mut get)?;
    Ok(info)
}

/// How many calls a link's probes have missed (6.7; include/uapi/linux/bpf.h, `struct bpf_link_info`); `None` where the kernel
/// does not tell, and for links of other kinds.
pub(crate) fn link_missed(fd: BorrowedFd<'_>) -> Option<u64> {
    // As far as `perf_event.kprobe.missed`, in words: type and id, program id, then what depends on the type.
    let mut info = [0u64; 8];
    let mut get = ObjInfo {
        fd: fd.as_raw_fd() as u32,
        info_len: size_of_val(&info) as u32,
        info: info.as_mut_ptr() as u64,
    };
    bpf(cmd::OBJ_GET_INFO_BY_FD, &mut get).ok()?;
    let kind = info[0] as u32;
    let event = info[2] as u32;
    match (kind, event) {
        (link_type::KPROBE_MULTI, _) => Some(info[4]),
        (link_type::PERF_EVENT, perf_event_type::KPROBE | perf_event_type::KRETPROBE) => Some(info[6]),
        _ => None,
    }
}

/// Runs a raw tracepoint program once with `args` as its context (5.10, kernel/trace/bpf_trace.c); its return value.
pub(crate) fn test_run(fd: BorrowedFd<'_>, args: &[u64]) -> io::Result<u32> {
    let mut attr = TestRun {
        prog_fd: fd.as_raw_fd() as u32,
        ctx_size_in: size_of_val(args) as u32,
        ctx_in: if args.is_empty() { 0 } else { args.as_ptr() as u64 },
        ..Default::default()
    };
    bpf(cmd::PROG_TEST_RUN, &mut attr)?;
    Ok(attr.retval)
}

/// Attaches a raw or typed tracepoint program, or on kernels before 5.15 an fentry/fexit program (no name then).
/// A cookie needs 6.10 (kernel/bpf/syscall.c, `bpf_raw_tp_link_attach`).
pub(crate) fn raw_tracepoint_open(
    prog: BorrowedFd<'_>,
    name: Option<&CStr>,
    cookie: Option<u64>,
) -> io::Result<OwnedFd> {
    let name = name.map_or(0, |n| n.as_ptr() as u64);
    let prog_fd = prog.as_raw_fd() as u32;
    match cookie {
        Some(cookie) => bpf_fd(
            cmd::RAW_TRACEPOINT_OPEN,
            &mut RawTracepoint {
                name,
                prog_fd,
                pad: 0,
                cookie,
            },
        ),
        None => bpf_fd(
            cmd::RAW_TRACEPOINT_OPEN,
            &mut RawTracepointOld {
                name,
                prog_fd,
                pad: 0,
            },
        ),
    }
}

/// The running kernel's version, major and minor; (0, 0) if the release can't be parsed.
pub(crate) fn kernel_version(release: &str) -> (u32, u32) {
    let mut parts = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|p| p.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// `uname -r`.
pub(crate) fn kernel_release() -> String {
    // SAFETY: a C struct of byte arrays, for which all zeroes is a value.
    let mut u: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `u` is a live, writable utsname.
    if unsafe { libc::uname(&raw mut u) } != 0 {
        return String::new();
    }
    let bytes: Vec<u8> = u
        .release
        .iter()
        .map(|c| *c as u8)
        .take_while(|c| *c != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Lifts RLIMIT_MEMLOCK, to which kernels before 5.11 charge BPF memory (and answer EPERM when it is used up).
/// True if it was lifted now; false where it isn't the reason (newer kernel, already lifted, not allowed).
pub(crate) fn lift_memlock() -> bool {
    use std::sync::atomic::{AtomicBool, Ordering};
    static LIFTED: AtomicBool = AtomicBool::new(false);
    if kernel_version(&kernel_release()) >= (5, 11) || LIFTED.swap(true, Ordering::Relaxed) {
        return false;
    }
    let all = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `all` is a live rlimit.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const all) == 0 }
}

/// Runs `call` and, when it fails with EPERM because of RLIMIT_MEMLOCK, once more with the limit lifted.
pub(crate) fn with_memlock<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match call() {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) && lift_memlock() => call(),
        other => other,
    }
}

/// Reads a descriptor's number for an attribute.
pub(crate) fn raw(fd: &impl AsRawFd) -> RawFd {
    fd.as_raw_fd()
}
