//! The typestate of a run: [`Relocated`] → [`Loaded`] → [`Attached`].
//!
//! In: an object and what to do with its programs. Out: programs in the kernel, at their targets. Each step consumes
//! the one before; dropping `Attached` detaches, dropping `Loaded` unloads. Never falls back from one probe kind to
//! another: kinds need different code, so the caller walks the ladder and the errors tell whether to go on.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use crate::attach::AttachTarget;
use crate::btf;
use crate::caps;
use crate::error::{AttachError, LoadCause, LoadError, Result, RuntimeError};
use crate::links::{self, Link};
use crate::maps::{Maps, kernel_name};
use crate::object::{self, INSN_SIZE, ObjectSpec, RelocatedProgram};
use crate::sys::{self, attach_type, prog_type};

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

impl ProgramKind {
    /// As users call it.
    pub fn name(&self) -> &'static str {
        match self {
            ProgramKind::Fentry => "fentry",
            ProgramKind::Fexit => "fexit",
            ProgramKind::Fsession { .. } => "fsession",
            ProgramKind::TracingMulti { .. } => "fentry multi",
            ProgramKind::TpBtf => "typed tracepoint",
            ProgramKind::RawTp => "raw tracepoint",
            ProgramKind::Tracepoint => "tracepoint",
            ProgramKind::Kprobe => "kprobe",
            ProgramKind::Kretprobe => "kretprobe",
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
            ProgramKind::Fsession { attach_type } | ProgramKind::TracingMulti { attach_type } => *attach_type,
            ProgramKind::TpBtf => attach_type::TRACE_RAW_TP,
            ProgramKind::KprobeMulti { session: true, .. } => attach_type::TRACE_KPROBE_SESSION,
            ProgramKind::KprobeMulti { session: false, .. } => attach_type::TRACE_KPROBE_MULTI,
            ProgramKind::UprobeMulti { session: true, .. } => attach_type::TRACE_UPROBE_SESSION,
            ProgramKind::UprobeMulti { session: false, .. } => attach_type::TRACE_UPROBE_MULTI,
            ProgramKind::RawTp
            | ProgramKind::Tracepoint
            | ProgramKind::Kprobe
            | ProgramKind::Kretprobe
            | ProgramKind::Uprobe
            | ProgramKind::Uretprobe => 0,
        }
    }

    pub(crate) fn at_return(&self) -> bool {
        match self {
            ProgramKind::Kretprobe
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
    fn bits(self) -> u32 {
        match self {
            LogLevel::Off => 0,
            LogLevel::Stats => 4,
            LogLevel::Full => 1 | 4,
        }
    }
}

/// An object whose programs fit the running kernel and whose maps exist.
#[derive(Debug)]
pub struct Relocated {
    programs: BTreeMap<String, RelocatedProgram>,
    maps: Maps,
    btf: Option<OwnedFd>,
    license: CString,
}

/// Programs in the kernel, at no target yet.
#[derive(Debug)]
pub struct Loaded {
    programs: Vec<LoadedProgram>,
    maps: Maps,
}

#[derive(Debug)]
struct LoadedProgram {
    spec: ProgramSpec,
    fd: Arc<OwnedFd>,
    log: Arc<str>,
}

/// Programs at their targets. Dropping this detaches them.
#[derive(Debug)]
pub struct Attached {
    // Detached before the programs are let go of.
    links: Vec<Link>,
    loaded: Loaded,
}

/// What the kernel says of a loaded program.
#[derive(Clone, Debug)]
pub struct ProgramStats {
    /// Its name in the object.
    pub name: String,
    /// Its id in the kernel, as `bpftool prog` shows it.
    pub id: u32,
    /// Instructions that the verifier walked through; 0 before 5.16, which doesn't tell.
    pub verified_insns: u32,
    /// Size in bytes after the verifier's rewriting.
    pub translated_bytes: u32,
    /// Size in bytes of the machine code.
    pub jited_bytes: u32,
    /// Runs and nanoseconds, counted only while `kernel.bpf_stats_enabled` is on.
    pub runs: u64,
    /// See `runs`.
    pub run_ns: u64,
    /// The verifier's log, empty with [`LogLevel::Off`].
    pub log: String,
}

impl Relocated {
    /// Relocates an object and makes its maps.
    ///
    /// # Errors
    /// [`RuntimeError::BadObject`] as [`object::relocate`]; [`RuntimeError::NotPrivileged`],
    /// [`RuntimeError::BtfRefused`] and [`RuntimeError::Map`] from the kernel.
    pub fn new(spec: &ObjectSpec) -> Result<Relocated> {
        let mut parts = object::parts(&spec.elf, &spec.target_btf)?;
        let btf = match &parts.btf {
            Some(bytes) => Some(load_btf(bytes, parts.old_btf.as_deref())?),
            None => None,
        };
        let maps = Maps::create(
            parts.maps,
            &spec.map_sizes,
            spec.shared.as_ref(),
            btf.as_ref().map(|b| b.as_fd()),
        )?;
        for program in parts.programs.values_mut() {
            for map_ref in &program.map_refs {
                let fd = maps.fd(&map_ref.map)?.as_raw_fd();
                let at = map_ref.slot * INSN_SIZE + 4;
                if let Some(imm) = program.insns.get_mut(at..at + 4) {
                    imm.copy_from_slice(&fd.to_le_bytes());
                }
            }
        }
        Ok(Relocated {
            programs: parts.programs,
            maps,
            btf,
            license: parts.license,
        })
    }

    /// The maps, to set values before anything runs, or to share with another object.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The programs, with map descriptors in place.
    pub fn programs(&self) -> impl Iterator<Item = &RelocatedProgram> {
        self.programs.values()
    }

    /// Lets the verifier judge and loads what it accepts.
    ///
    /// # Errors
    /// [`RuntimeError::Load`] for the first program that is refused; [`RuntimeError::NoModuleBtf`] for a target in a
    /// module whose BTF can't be had; [`RuntimeError::NoSuch`] for a program the object doesn't have.
    pub fn load(self, specs: &[ProgramSpec], log: LogLevel) -> Result<Loaded> {
        let mut programs: Vec<LoadedProgram> = vec![];
        let mut done: HashMap<(String, ProgramKind, u32, Option<String>), usize> = HashMap::new();
        let mut modules: HashMap<String, OwnedFd> = HashMap::new();
        for spec in specs {
            let Some(program) = self.programs.get(&spec.name) else {
                return Err(RuntimeError::NoSuch {
                    what: "program",
                    name: spec.name.clone(),
                });
            };
            let (btf_id, module) = match &spec.attach {
                AttachTarget::Btf { id, module, .. } => (*id, module.clone()),
                AttachTarget::BtfIds { module, .. } => (0, module.clone()),
                AttachTarget::RawTracepoint(_)
                | AttachTarget::Tracepoint { .. }
                | AttachTarget::Symbol { .. }
                | AttachTarget::Address { .. }
                | AttachTarget::Addresses(_)
                | AttachTarget::File { .. }
                | AttachTarget::FileSites { .. }
                | AttachTarget::Nothing => (0, None),
            };
            if let Some(m) = &module
                && !modules.contains_key(m)
            {
                modules.insert(m.clone(), btf::object_fd(m)?);
            }
            // A return probe runs the same loaded program as an entry probe does, but the pair (name, kind) keeps
            // them apart all the same, since their code differs.
            let key = (spec.name.clone(), spec.kind.clone(), btf_id, module.clone());
            if let Some(LoadedProgram { fd, log, .. }) = done.get(&key).and_then(|i| programs.get(*i)) {
                let (fd, log) = (Arc::clone(fd), Arc::clone(log));
                programs.push(LoadedProgram {
                    spec: spec.clone(),
                    fd,
                    log,
                });
                continue;
            }
            let request = Request {
                name: &spec.name,
                kind_name: spec.kind.name(),
                prog_type: spec.kind.prog_type(),
                attach_type: spec.kind.attach_type(),
                btf_id,
                btf_obj: module.as_ref().and_then(|m| modules.get(m)),
                insns: &program.insns,
                license: &self.license,
                btf: self.btf.as_ref(),
                func_info: &program.func_info,
                line_info: &program.line_info,
            };
            let (fd, text) = load_program(&request, log)?;
            done.insert(key, programs.len());
            programs.push(LoadedProgram {
                spec: spec.clone(),
                fd: Arc::new(fd),
                log: text.into(),
            });
        }
        Ok(Loaded {
            programs,
            maps: self.maps,
        })
    }
}

impl Loaded {
    /// The maps.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// What the kernel says of each program, in the order of the specs, shared ones once.
    ///
    /// # Errors
    /// [`RuntimeError::Sys`] if the kernel doesn't say.
    pub fn stats(&self) -> Result<Vec<ProgramStats>> {
        let mut out: Vec<ProgramStats> = vec![];
        for p in &self.programs {
            let info = sys::prog_info(p.fd.as_fd()).map_err(|source| RuntimeError::Sys {
                doing: "ask about a loaded program",
                source,
            })?;
            if out.iter().any(|s| s.id == info.id) {
                continue;
            }
            out.push(ProgramStats {
                name: p.spec.name.clone(),
                id: info.id,
                verified_insns: info.verified_insns,
                translated_bytes: info.xlated_prog_len,
                jited_bytes: info.jited_prog_len,
                runs: info.run_cnt,
                run_ns: info.run_time_ns,
                log: p.log.to_string(),
            });
        }
        Ok(out)
    }

    /// Runs a raw tracepoint program once, here and now, with these arguments; its return value (`r0`).
    ///
    /// # Errors
    /// [`RuntimeError::NoSuch`] for an unknown program, [`RuntimeError::Sys`] if the kernel refuses (only raw
    /// tracepoint programs can be run like this).
    pub fn test_run(&self, program: &str, args: &[u64]) -> Result<u32> {
        let Some(p) = self.programs.iter().find(|p| p.spec.name == program) else {
            return Err(RuntimeError::NoSuch {
                what: "program",
                name: program.to_owned(),
            });
        };
        sys::test_run(p.fd.as_fd(), args).map_err(|source| RuntimeError::Sys {
            doing: "test-run a program",
            source,
        })
    }

    /// Attaches every program.
    ///
    /// # Errors
    /// [`RuntimeError::Attach`] for the first that can't be; those before it are detached again.
    pub fn attach(self) -> Result<Attached> {
        let mut links = Vec::with_capacity(self.programs.len());
        for p in &self.programs {
            links.extend(p.attach()?);
        }
        Ok(Attached { links, loaded: self })
    }

    /// Attaches every program that can be, for globs where one bad function mustn't spoil the rest. The index of
    /// each failure is that of its spec. `progress` is called with how many were tried and how many there are.
    pub fn attach_lenient(
        self,
        mut progress: impl FnMut(usize, usize),
    ) -> (Attached, Vec<(usize, AttachError)>) {
        let mut links = vec![];
        let mut failed = vec![];
        for (i, p) in self.programs.iter().enumerate() {
            match p.attach() {
                Ok(link) => links.extend(link),
                Err(e) => failed.push((i, e)),
            }
            progress(i + 1, self.programs.len());
        }
        (Attached { links, loaded: self }, failed)
    }
}

impl LoadedProgram {
    fn attach(&self) -> std::result::Result<Option<Link>, AttachError> {
        let ProgramSpec {
            name,
            kind,
            attach,
            cookie,
        } = &self.spec;
        links::attach(&self.fd, kind, attach, *cookie).map_err(|r| AttachError {
            program: name.clone(),
            kind: kind.name(),
            target: attach.to_string(),
            cause: r.cause,
            source: r.source,
        })
    }
}

impl Attached {
    /// The maps.
    pub fn maps(&self) -> &Maps {
        &self.loaded.maps
    }

    /// See [`Maps::percpu_u64`].
    ///
    /// # Errors
    /// As there.
    pub fn percpu_u64(&self, map: &str, index: u32) -> Result<Vec<u64>> {
        self.loaded.maps.percpu_u64(map, index)
    }

    /// See [`Loaded::stats`].
    ///
    /// # Errors
    /// As there.
    pub fn stats(&self) -> Result<Vec<ProgramStats>> {
        self.loaded.stats()
    }

    /// Number of links: programs at single targets, and multi links.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Detaches one after the other and tells how far it is: on 6.1 to 6.18 each fentry takes an RCU grace period,
    /// so that some hundreds take many seconds. The maps, with the last events, stay readable through the `Loaded`
    /// that comes back.
    pub fn detach_all(self, mut progress: impl FnMut(usize, usize)) -> Loaded {
        let Attached { links, loaded } = self;
        let total = links.len();
        for (i, link) in links.into_iter().enumerate() {
            drop(link);
            progress(i + 1, total);
        }
        loaded
    }
}

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
/// [`RuntimeError::Load`], with the verifier's log; [`RuntimeError::NoModuleBtf`].
pub fn load_raw(program: &RawProgram<'_>, log: LogLevel) -> Result<RawLoaded> {
    let obj = program.module.map(btf::object_fd).transpose()?;
    let request = Request {
        name: "raw",
        kind_name: "raw",
        prog_type: program.prog_type,
        attach_type: program.attach_type,
        btf_id: program.btf_id,
        btf_obj: obj.as_ref(),
        insns: program.insns,
        license: c"GPL",
        btf: None,
        func_info: &[],
        line_info: &[],
    };
    let (fd, log) = load_program(&request, log)?;
    Ok(RawLoaded { fd, log })
}

struct Request<'a> {
    name: &'a str,
    kind_name: &'static str,
    prog_type: u32,
    attach_type: u32,
    btf_id: u32,
    btf_obj: Option<&'a OwnedFd>,
    insns: &'a [u8],
    license: &'a std::ffi::CStr,
    btf: Option<&'a OwnedFd>,
    func_info: &'a [u8],
    line_info: &'a [u8],
}

/// Room for a log at first; twice as much each time it doesn't fit, up to the kernel's own limit's neighbourhood.
const FIRST_LOG: usize = 1 << 16;
const LAST_LOG: usize = 1 << 24;

fn load_program(r: &Request<'_>, level: LogLevel) -> std::result::Result<(OwnedFd, String), LoadError> {
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
            // Kernels before 6.4 fail a load whose log doesn't fit (kernel commit 1216640938035).
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
        _ if !said.is_empty() => LoadCause::Verifier,
        _ => LoadCause::Other,
    }
}

/// Whether a line of the verifier's log shows an instruction, a register state, or a source line.
fn is_code(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_digit() || c == ';' || c == 'R')
        || line.starts_with("func#")
        || line.starts_with("from ")
}

fn load_btf(bytes: &[u8], old: Option<&[u8]>) -> Result<OwnedFd> {
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
