//! Puts programs before the kernel's verifier, and makes sense of its verdicts.
//!
//! In: instructions and what they are for. Out: the loaded program's descriptor and the log, or the cause of the
//! refusal. Never changes a program, never tries another kind.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::btf;
use crate::caps;
use crate::error::{LoadCause, LoadError, Result, RuntimeError};
use crate::maps::{Maps, kernel_name};
use crate::object::{INSN_SIZE, MapRef};
use crate::program::LogLevel;
use crate::sys::{self, prog_type};

/// A program without an object around it, for sweeps over the verifier and for probing.
#[derive(Clone, Debug, Default)]
pub struct RawProgram<'a> {
    /// `enum bpf_prog_type`.
    pub prog_type: u32,
    /// `enum bpf_attach_type`.
    pub attach_type: u32,
    /// Instructions, little endian, 8 bytes each.
    pub insns: &'a [u8],
    /// The BTF id of the target, for tracing programs.
    pub btf_id: u32,
    /// The module that the id is in.
    pub module: Option<&'a str>,
    /// The maps that `map_refs` name.
    pub maps: Option<&'a Maps>,
    /// Where descriptors of maps belong.
    pub map_refs: &'a [MapRef],
}

/// A program loaded by [`load_raw`]; dropping it unloads it.
#[derive(Debug)]
pub struct RawLoaded {
    fd: OwnedFd,
    /// The verifier's log.
    pub log: String,
}

impl RawLoaded {
    /// See [`Loaded::test_run`].
    ///
    /// # Errors
    /// What the system call said.
    pub fn test_run(&self, args: &[u64]) -> io::Result<u32> {
        sys::test_run(self.fd.as_fd(), args)
    }

    /// Number of instructions that the verifier walked through; 0 before 5.16.
    ///
    /// # Errors
    /// What the system call said.
    pub fn verified_insns(&self) -> io::Result<u32> {
        Ok(sys::prog_info(self.fd.as_fd())?.verified_insns)
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

/// Loads a program of any type from bare instructions, under the GPL.
///
/// # Errors
/// [`RuntimeError::Load`], with the verifier's log; [`RuntimeError::NoModuleBtf`]; [`RuntimeError::NoSuch`] for a map.
pub fn load_raw(program: &RawProgram<'_>, log: LogLevel) -> Result<RawLoaded> {
    let obj = program.module.map(btf::object_fd).transpose()?;
    let mut insns = program.insns.to_vec();
    for map_ref in program.map_refs {
        let none = Maps::default();
        let fd = program.maps.unwrap_or(&none).fd(&map_ref.map)?.as_raw_fd();
        let at = map_ref.slot * INSN_SIZE + 4;
        if let Some(imm) = insns.get_mut(at..at + 4) {
            imm.copy_from_slice(&fd.to_le_bytes());
        }
    }
    let request = Request {
        name: "raw",
        kind_name: "raw",
        prog_type: program.prog_type,
        attach_type: program.attach_type,
        btf_id: program.btf_id,
        btf_obj: obj.as_ref(),
        insns: &insns,
        license: c"GPL",
        btf: None,
        func_info: &[],
        line_info: &[],
    };
    let (fd, log) = load_program(&request, log)?;
    Ok(RawLoaded { fd, log })
}

/// Everything that the kernel is told about a program.
pub(crate) struct Request<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind_name: &'static str,
    pub(crate) prog_type: u32,
    pub(crate) attach_type: u32,
    pub(crate) btf_id: u32,
    pub(crate) btf_obj: Option<&'a OwnedFd>,
    pub(crate) insns: &'a [u8],
    pub(crate) license: &'a std::ffi::CStr,
    pub(crate) btf: Option<&'a OwnedFd>,
    pub(crate) func_info: &'a [u8],
    pub(crate) line_info: &'a [u8],
}

/// Room for a log at first; twice as much each time it doesn't fit, up to the kernel's own limit's neighbourhood.
const FIRST_LOG: usize = 1 << 16;
const LAST_LOG: usize = 1 << 24;

/// Loads a program; its log is empty unless it was asked for.
pub(crate) fn load_program(
    r: &Request<'_>,
    level: LogLevel,
) -> std::result::Result<(OwnedFd, String), LoadError> {
    let mut name = [0u8; 16];
    for (to, from) in name.iter_mut().zip(kernel_name(r.name).bytes()) {
        *to = from;
    }
    let mut attr = sys::ProgLoad {
        prog_type: r.prog_type,
        insn_cnt: (r.insns.len() / INSN_SIZE) as u32,
        insns: r.insns.as_ptr() as u64,
        license: r.license.as_ptr() as u64,
        prog_name: name,
        expected_attach_type: r.attach_type,
        attach_btf_id: r.btf_id,
        attach_btf_obj_fd: r.btf_obj.map_or(0, |fd| fd.as_raw_fd() as u32),
        ..Default::default()
    };
    if let Some(btf) = r.btf
        && !r.func_info.is_empty()
    {
        attr.prog_btf_fd = btf.as_raw_fd() as u32;
        attr.func_info_rec_size = 8;
        attr.func_info = r.func_info.as_ptr() as u64;
        attr.func_info_cnt = (r.func_info.len() / 8) as u32;
        attr.line_info_rec_size = 16;
        attr.line_info = r.line_info.as_ptr() as u64;
        attr.line_info_cnt = (r.line_info.len() / 16) as u32;
    }
    let mut bits = level.bits();
    let mut log = vec![];
    loop {
        if bits != 0 && log.is_empty() {
            log = vec![0u8; FIRST_LOG];
        }
        attr.log_level = bits;
        attr.log_buf = if bits == 0 { 0 } else { log.as_mut_ptr() as u64 };
        attr.log_size = log.len() as u32;
        let error = match sys::with_memlock(|| sys::prog_load(&mut attr)) {
            Ok(fd) => return Ok((fd, text(&log))),
            Err(e) => e,
        };
        let code = error.raw_os_error().unwrap_or(0);
        if bits != 0 && code == libc::ENOSPC && log.len() < LAST_LOG {
            // Kernels before 6.4 fail a load whose log doesn't fit (kernel/bpf/log.c).
            log = vec![0u8; log.len() * 4];
            continue;
        }
        if bits & 1 == 0 {
            // Refused without a log: once more, to hear why.
            bits = LogLevel::Full.bits();
            continue;
        }
        let log = text(&log);
        let cause = load_cause(r.prog_type, code, &log);
        return Err(LoadError {
            program: r.name.to_owned(),
            kind: r.kind_name,
            cause,
            source: error,
            log,
        });
    }
}

fn text(log: &[u8]) -> String {
    let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).into_owned()
}

/// What the kernel's answer means. The verifier speaks through its log; whatever fails before it leaves that empty.
fn load_cause(kind: u32, code: i32, log: &str) -> LoadCause {
    let said = crate::error::log_tail(log, usize::MAX);
    match code {
        libc::EPERM if said.is_empty() => {
            if caps::privileged() {
                LoadCause::KindRefused
            } else {
                LoadCause::NotPrivileged
            }
        }
        libc::ENOMEM => LoadCause::Memory,
        libc::EINVAL | libc::E2BIG | libc::EOPNOTSUPP | libc::ENOENT if said.is_empty() => {
            LoadCause::KindUnknown
        }
        // The target is checked before the first instruction, in `bpf_check_attach_target`, so that a refusal of it
        // is a log of one sentence, without instructions.
        _ if kind == prog_type::TRACING && !said.is_empty() && !said.lines().any(is_code) => {
            LoadCause::TargetRefused(said)
        }
        _ if !said.is_empty() => match said.lines().find(|l| lacks_helper(l)) {
            Some(line) => LoadCause::HelperMissing(line.to_owned()),
            None => LoadCause::Verifier,
        },
        _ => LoadCause::Other,
    }
}

/// Whether a line says that a helper or kernel function isn't there (kernel/bpf/verifier.c, `check_helper_call`).
fn lacks_helper(line: &str) -> bool {
    // What aya-obj and libbpf put where a field doesn't exist: that is a bug of ours, not a missing helper.
    const POISON: &str = "#195896080";
    const SAID: [&str; 6] = [
        "invalid func ",
        "unknown func ",
        "program of this type cannot use helper ",
        "invalid kernel function call",
        "calling kernel function ",
        // 5.10, of a kfunc's call.
        "BPF_CALL uses reserved fields",
    ];
    SAID.iter().any(|s| line.contains(s)) && !line.contains(POISON)
}

/// Whether a line of the verifier's log shows an instruction, a register state, or a source line.
fn is_code(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_digit() || c == ';' || c == 'R')
        || line.starts_with("func#")
        || line.starts_with("from ")
}

/// Loads an object's BTF, in its old form where the kernel refuses the new one.
pub(crate) fn load_btf(bytes: &[u8], old: Option<&[u8]>) -> Result<OwnedFd> {
    let refused = |e: io::Error, bytes: &[u8]| match e.raw_os_error() {
        Some(libc::EPERM) => RuntimeError::NotPrivileged {
            doing: "load BPF programs",
        },
        _ => {
            let mut log = vec![0u8; FIRST_LOG];
            let _ = sys::btf_load(bytes, &mut log);
            RuntimeError::BtfRefused {
                source: e,
                log: text(&log),
            }
        }
    };
    match (sys::with_memlock(|| sys::btf_load(bytes, &mut [])), old) {
        (Ok(fd), _) => Ok(fd),
        (Err(e), Some(old)) if e.raw_os_error() != Some(libc::EPERM) => {
            sys::btf_load(old, &mut []).map_err(|e| refused(e, old))
        }
        (Err(e), _) => Err(refused(e, bytes)),
    }
}
