//! What the running kernel can do, found out by trying and only when asked.
//!
//! In: questions. Out: [`Answer`]s, each with its reason when it is no. Never guesses from a version number, never
//! attaches anything: where only linking shows (kprobe.multi), the link is asked for with a bad pointer, which a
//! kernel that has the feature answers with EFAULT and any other with something else.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use crate::error::{LoadCause, RuntimeError};
use crate::links::{self, Multi};
use crate::perf::Pmu;
use crate::program::LogLevel;
use crate::sys::{self, attach_type, cmd, prog_type};
use crate::verify::{RawLoaded, RawProgram, load_raw};

/// Yes, or no and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel can.
    Yes,
    /// It can't, because of this.
    No(String),
}

impl Answer {
    /// True for [`Answer::Yes`].
    pub fn is_yes(&self) -> bool {
        match self {
            Answer::Yes => true,
            Answer::No(_) => false,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Yes => f.write_str("yes"),
            Answer::No(why) => write!(f, "no: {why}"),
        }
    }
}

/// Helpers by number (`enum bpf_func_id`), as far as this crate asks about them by name.
pub mod helper {
    /// `bpf_probe_read_kernel`, 5.5.
    pub const PROBE_READ_KERNEL: u32 = 113;
    /// `bpf_ringbuf_reserve`, 5.8.
    pub const RINGBUF_RESERVE: u32 = 131;
    /// `bpf_get_current_task_btf`, 5.11.
    pub const GET_CURRENT_TASK_BTF: u32 = 158;
    /// `bpf_get_func_ip`, 5.15.
    pub const GET_FUNC_IP: u32 = 173;
    /// `bpf_get_attach_cookie`, 5.15; in tracing programs 5.19.
    pub const GET_ATTACH_COOKIE: u32 = 174;
    /// `bpf_loop`, 5.17.
    pub const LOOP: u32 = 181;
    /// `bpf_get_func_arg`, 5.17; tracing programs only.
    pub const GET_FUNC_ARG: u32 = 183;
    /// `bpf_get_func_ret`, 5.17; tracing programs only.
    pub const GET_FUNC_RET: u32 = 184;
    /// `bpf_get_func_arg_cnt`, 5.17; tracing programs only.
    pub const GET_FUNC_ARG_CNT: u32 = 185;
    /// `bpf_get_stack`, 4.18.
    pub const GET_STACK: u32 = 67;
}

/// The kernel's abilities. Making one costs nothing; each question costs one or two system calls the first time.
#[derive(Debug, Default)]
pub struct Capabilities {
    release: OnceLock<String>,
    helpers: std::sync::Mutex<HashMap<(u32, u32), Answer>>,
    known: std::sync::Mutex<HashMap<&'static str, Answer>>,
}

/// Whether this process may load tracing programs: CAP_SYS_ADMIN, or CAP_BPF and CAP_PERFMON.
pub fn privileged() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let caps = std::fs::read_to_string("/proc/self/status")
            .ok()
            .and_then(|text| {
                let line = text.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
                u64::from_str_radix(line.trim(), 16).ok()
            });
        // Capability numbers: include/uapi/linux/capability.h.
        let has = |bit: u32| caps.is_some_and(|c| c >> bit & 1 == 1);
        has(21) || (has(38) && has(39))
    })
}

impl Capabilities {
    /// Nothing is asked yet.
    pub fn detect() -> Capabilities {
        Capabilities::default()
    }

    /// `uname -r`.
    pub fn release(&self) -> &str {
        self.release.get_or_init(sys::kernel_release)
    }

    /// Major and minor version; (0, 0) if the release doesn't begin with them. For messages only.
    pub fn version(&self) -> (u32, u32) {
        sys::kernel_version(self.release())
    }

    /// May this process load tracing programs?
    pub fn privileged(&self) -> Answer {
        if privileged() {
            return Answer::Yes;
        }
        Answer::No("not root, and without CAP_BPF and CAP_PERFMON".to_owned())
    }

    /// fentry and fexit, tried by loading an empty program for the function of this BTF id in vmlinux.
    pub fn fentry(&self, btf_id: u32) -> Answer {
        self.once("fentry", || {
            load(prog_type::TRACING, attach_type::TRACE_FENTRY, btf_id, &RETURN_0)
        })
    }

    /// Typed tracepoints, tried with the BTF id of one's `btf_trace_NAME` typedef.
    pub fn tp_btf(&self, btf_id: u32) -> Answer {
        self.once("tp_btf", || {
            load(prog_type::TRACING, attach_type::TRACE_RAW_TP, btf_id, &RETURN_0)
        })
    }

    /// One of the newer tracing kinds, by the running kernel's own number: `BPF_TRACE_FSESSION` with a function's
    /// BTF id, or a `…_MULTI` with id 0 (then the link is tried as well).
    pub fn tracing_kind(&self, attach_type: u32, btf_id: u32) -> Answer {
        if btf_id != 0 {
            return load(prog_type::TRACING, attach_type, btf_id, &RETURN_0);
        }
        multi(prog_type::TRACING, attach_type, Multi::Tracing)
    }

    /// Kprobes through the perf subsystem.
    pub fn kprobe(&self) -> Answer {
        pmu(Pmu::Kprobe, "CONFIG_KPROBE_EVENTS")
    }

    /// Uprobes through the perf subsystem.
    pub fn uprobe(&self) -> Answer {
        pmu(Pmu::Uprobe, "CONFIG_UPROBE_EVENTS")
    }

    /// Ring buffers (5.8).
    pub fn ringbuf(&self) -> Answer {
        self.once("ringbuf", || {
            let mut attr = sys::MapCreate {
                map_type: aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_RINGBUF as u32,
                max_entries: crate::object::ring_bytes(0),
                ..Default::default()
            };
            match sys::with_memlock(|| sys::bpf_fd(cmd::MAP_CREATE, &mut attr)) {
                Ok(_) => Answer::Yes,
                Err(e) => Answer::No(format!("making one: {e}")),
            }
        })
    }

    /// A helper in kprobe programs, by number. A helper that exists and dislikes how it was called counts as yes.
    pub fn helper(&self, id: u32) -> Answer {
        self.helper_in(prog_type::KPROBE, 0, 0, id)
    }

    /// A helper in fentry programs, tried on the function of this BTF id in vmlinux.
    pub fn fentry_helper(&self, id: u32, btf_id: u32) -> Answer {
        self.helper_in(prog_type::TRACING, attach_type::TRACE_FENTRY, btf_id, id)
    }

    /// Cookies on kprobes and uprobes (5.15).
    pub fn bpf_cookie(&self) -> Answer {
        self.helper(helper::GET_ATTACH_COOKIE)
    }

    /// `bpf_get_func_ip` in kprobe programs (5.15).
    pub fn get_func_ip(&self) -> Answer {
        self.helper(helper::GET_FUNC_IP)
    }

    /// `bpf_get_current_task_btf` in kprobe programs (5.11).
    pub fn current_task_btf(&self) -> Answer {
        self.helper(helper::GET_CURRENT_TASK_BTF)
    }

    /// Pointers to integers as arguments that typed programs may load: commit bb6728d75611 of 5.17, which has no mark of its own.
    /// `bpf_loop` came with the same release, and is what is asked for.
    pub fn int_pointers(&self) -> Answer {
        self.helper(helper::LOOP)
    }

    /// kprobe.multi (5.18, and only with CONFIG_FPROBE).
    pub fn kprobe_multi(&self) -> Answer {
        self.once("kprobe_multi", || {
            multi(prog_type::KPROBE, attach_type::TRACE_KPROBE_MULTI, Multi::Kprobe)
        })
    }

    /// kprobe.session (6.10).
    pub fn kprobe_session(&self) -> Answer {
        self.once("kprobe_session", || {
            multi(
                prog_type::KPROBE,
                attach_type::TRACE_KPROBE_SESSION,
                Multi::Kprobe,
            )
        })
    }

    /// uprobe.multi (6.6).
    pub fn uprobe_multi(&self) -> Answer {
        self.once("uprobe_multi", || {
            multi(prog_type::KPROBE, attach_type::TRACE_UPROBE_MULTI, Multi::Uprobe)
        })
    }

    /// uprobe.session (6.13).
    pub fn uprobe_session(&self) -> Answer {
        self.once("uprobe_session", || {
            multi(
                prog_type::KPROBE,
                attach_type::TRACE_UPROBE_SESSION,
                Multi::Uprobe,
            )
        })
    }

    /// `bpf_rdonly_cast` in kprobe programs (6.2), by the BTF ids of the kfunc and of any struct in vmlinux.
    pub fn rdonly_cast(&self, kfunc_id: u32, struct_id: u32) -> Answer {
        self.once("rdonly_cast", || {
            let kfunc = kfunc_id as i32;
            let code = [
                insn(0xb7, 1, 0, 0, 0),
                insn(0xb7, 2, 0, 0, struct_id as i32),
                insn(0x85, 0, 2, 0, kfunc),
                RETURN_0[0],
                RETURN_0[1],
            ];
            load(prog_type::KPROBE, 0, 0, &code)
        })
    }

    fn helper_in(&self, prog_type: u32, attach_type: u32, btf_id: u32, id: u32) -> Answer {
        let key = (prog_type, id);
        if let Some(known) = lock(&self.helpers).get(&key) {
            return known.clone();
        }
        let code = [insn(0x85, 0, 0, 0, id as i32), RETURN_0[0], RETURN_0[1]];
        let answer = match try_load(prog_type, attach_type, btf_id, &code) {
            Ok(_) => Answer::Yes,
            Err(RuntimeError::Load(e)) => match e.cause {
                LoadCause::HelperMissing(why) => Answer::No(why),
                // It exists, and only dislikes its arguments.
                LoadCause::Verifier => Answer::Yes,
                LoadCause::NotPrivileged
                | LoadCause::KindRefused
                | LoadCause::KindUnknown
                | LoadCause::TargetRefused(_)
                | LoadCause::Memory
                | LoadCause::Other => Answer::No(reason(&RuntimeError::Load(e))),
            },
            Err(e) => Answer::No(e.to_string()),
        };
        lock(&self.helpers).insert(key, answer.clone());
        answer
    }

    fn once(&self, what: &'static str, ask: impl FnOnce() -> Answer) -> Answer {
        if let Some(known) = lock(&self.known).get(what) {
            return known.clone();
        }
        let answer = ask();
        lock(&self.known).insert(what, answer.clone());
        answer
    }
}

/// `r0 = 0; exit`.
const RETURN_0: [[u8; 8]; 2] = [insn(0xb7, 0, 0, 0, 0), insn(0x95, 0, 0, 0, 0)];

const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> [u8; 8] {
    let (off, imm) = (off.to_le_bytes(), imm.to_le_bytes());
    [
        code,
        dst | src << 4,
        off[0],
        off[1],
        imm[0],
        imm[1],
        imm[2],
        imm[3],
    ]
}

fn lock<T>(m: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What a panicking thread left behind is still a cache of true answers.
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn try_load(
    prog_type: u32,
    attach_type: u32,
    btf_id: u32,
    code: &[[u8; 8]],
) -> Result<RawLoaded, RuntimeError> {
    let insns = code.as_flattened();
    load_raw(
        &RawProgram {
            prog_type,
            attach_type,
            insns,
            btf_id,
            ..Default::default()
        },
        LogLevel::Off,
    )
}

fn load(prog_type: u32, attach_type: u32, btf_id: u32, code: &[[u8; 8]]) -> Answer {
    match try_load(prog_type, attach_type, btf_id, code) {
        Ok(_) => Answer::Yes,
        Err(e) => Answer::No(reason(&e)),
    }
}

fn reason(e: &RuntimeError) -> String {
    let RuntimeError::Load(e) = e else {
        return e.to_string();
    };
    match &e.cause {
        LoadCause::NotPrivileged => "missing privileges".to_owned(),
        LoadCause::KindRefused => format!("refused by this kernel's policy ({})", e.source),
        LoadCause::KindUnknown => format!("this kernel doesn't have it ({})", e.source),
        LoadCause::TargetRefused(why) | LoadCause::HelperMissing(why) => why.clone(),
        LoadCause::Verifier => crate::error::log_tail(&e.log, 1),
        LoadCause::Memory | LoadCause::Other => e.source.to_string(),
    }
}

fn pmu(pmu: Pmu, config: &str) -> Answer {
    match pmu.exists() {
        Ok(()) => Answer::Yes,
        Err(e) => Answer::No(format!("{}: {e}; the kernel lacks {config}", pmu.dir())),
    }
}

/// Loads an empty program of a multi kind and asks whether such programs can be linked.
fn multi(prog_type: u32, attach_type: u32, kind: Multi) -> Answer {
    let program = match try_load(prog_type, attach_type, 0, &RETURN_0) {
        Ok(p) => p,
        Err(e) => return Answer::No(reason(&e)),
    };
    match links::multi_exists(program.fd().as_fd(), attach_type, kind) {
        Ok(()) => Answer::Yes,
        Err(e) => Answer::No(format!("the program loads, but not the link: {e}")),
    }
}
