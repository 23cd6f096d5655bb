//! What the running kernel's verifier says of a query: compiles it, relocates and loads it, and attaches nothing. In: the
//! text of a query. Out: a verdict. Shared by the test and the sweep over the whole kernel.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;

use ksnoop_jit::compile::{self, CompileError, Job, Way};
use ksnoop_jit::lower::{ProgramKind, Target};
use ksnoop_jit::sema::Limits;
use ksnoop_jit::sweep::Subject;
use ksnoop_jit::types::{Func, Types};
use ksnoop_jit_runtime as runtime;
use runtime::{AttachTarget, LogLevel, Maps, ObjectSpec, ProgramSpec, Relocated, RuntimeError};

/// What became of a query.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Every program of it is accepted: instructions in the longest, and the most that the verifier walked through.
    Accepted { insns: u32, verified: u32 },
    /// Its meaning is refused: the first diagnostic.
    Wrong(String),
    /// This kind of program can't do it.
    Unsupported(String),
    /// The compiler failed.
    Bug(String),
    /// The compiler panicked.
    Panic(String),
    /// The kernel refused it: the reason in one line, and its log.
    Refused(String, String),
}

/// Judges queries one after the other; they share one set of maps.
pub(crate) struct Judge {
    pub(crate) types: Types,
    target: Target,
    maps: Option<Maps>,
    /// The types are another kernel's: only the compiler judges.
    foreign: bool,
}

/// Where the last panic was, which a caught one no longer tells.
static PANIC: Mutex<String> = Mutex::new(String::new());

impl Judge {
    /// Opens the running kernel, or with `KSJ_BTF` a file with another kernel's types, whose programs are only compiled; an error
    /// says why nothing can be judged here.
    pub(crate) fn open() -> Result<Judge, String> {
        let path = std::env::var_os("KSJ_BTF").map(std::path::PathBuf::from);
        let foreign = path.is_some();
        let capabilities = runtime::Capabilities::detect();
        if let runtime::Answer::No(why) = capabilities.privileged()
            && !foreign
        {
            return Err(why.to_string());
        }
        let btf = runtime::btf::open_vmlinux(path.as_deref()).map_err(|error| error.to_string())?;
        let target = Target {
            ring_bytes: 1 << 16,
            current_task_btf: capabilities.current_task_btf().is_yes(),
            int_pointers: capabilities.int_pointers().is_yes(),
            ..Target::default()
        };
        Ok(Judge {
            types: Types::new(btf),
            target,
            maps: None,
            foreign,
        })
    }

    /// The prototype of a function or tracepoint; the first of several functions of one name.
    pub(crate) fn prototype(&self, name: &str, subject: Subject) -> Option<Func> {
        match subject {
            Subject::Entry | Subject::Return | Subject::Both => {
                self.types.functions_named(name).into_iter().next()
            }
            Subject::Tracepoint => self.types.tracepoint_proto(name),
        }
    }

    /// All there is to ask about, in order.
    pub(crate) fn names(&self, subject: Subject) -> Vec<String> {
        let mut names: Vec<String> = match subject {
            Subject::Entry | Subject::Return | Subject::Both => {
                let functions = self.types.functions(0).into_iter();
                functions.map(|(_, name)| name).collect()
            }
            Subject::Tracepoint => self.types.tracepoints(),
        };
        names.sort();
        names.dedup();
        names
    }

    /// One query, run as typed programs or not.
    pub(crate) fn judge(&mut self, text: &str, typed: bool) -> Verdict {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(|info| {
            if let Ok(mut place) = PANIC.lock() {
                *place = info.to_string();
            }
        }));
        let verdict = std::panic::catch_unwind(AssertUnwindSafe(|| self.load(text, typed)));
        std::panic::set_hook(before);
        match verdict {
            Ok(verdict) => verdict,
            Err(_) => Verdict::Panic(PANIC.lock().map(|place| place.clone()).unwrap_or_default()),
        }
    }

    fn load(&mut self, text: &str, typed: bool) -> Verdict {
        // Whatever is generated is also a text for the law of the parser.
        ksnoop_jit::parser::generate::check(text);
        let resolved = match compile::understand(text, &self.types, Limits::default()) {
            Ok(resolved) => resolved,
            Err(diags) => {
                let first = diags
                    .iter()
                    .find(|diag| diag.severity == ksnoop_jit::diag::Severity::Error);
                return Verdict::Wrong(
                    first.map_or(String::new(), |diag| format!("{:?}: {}", diag.code, diag.message)),
                );
            }
        };
        let job = Job::alone(if typed { Way::Trampoline } else { Way::Kprobe });
        let artifact = match compile::generate(&resolved.query, &self.types, &self.target, job) {
            Ok(artifact) => artifact,
            Err(CompileError::Unsupported(why)) => return Verdict::Unsupported(why),
            Err(CompileError::Codegen(error)) => return Verdict::Bug(error.to_string()),
        };
        if self.foreign {
            return Verdict::Accepted {
                insns: 0,
                verified: 0,
            };
        }
        let spec = ObjectSpec {
            elf: artifact.object.elf.clone(),
            target_btf: artifact.object.target_btf.clone(),
            map_sizes: Vec::new(),
            shared: self.maps.clone(),
        };
        let relocated = match Relocated::new(&spec) {
            Ok(relocated) => relocated,
            Err(error) => return Verdict::Bug(error.to_string()),
        };
        // Of maps with other names, each query has its own, of its own size.
        let common = |maps: &Maps| maps.names().all(|name| matches!(name, "events" | "counts"));
        if self.maps.is_none() && common(relocated.maps()) {
            self.maps = Some(relocated.maps().clone());
        }
        for program in &artifact.object.programs {
            let Some(after) = relocated.programs().find(|after| after.name == program.name) else {
                return Verdict::Bug(format!("{} is lost", program.name));
            };
            let mut insns = after.insns.clone();
            for map_ref in &after.map_refs {
                let at = map_ref.slot * runtime::object::INSN_SIZE + 4;
                insns[at..at + 4].fill(0);
            }
            if let Err(why) = program.check_relocated(&insns) {
                return Verdict::Bug(why);
            }
        }
        let func = resolved.query.probe.func();
        let specs: Vec<ProgramSpec> = artifact
            .programs
            .iter()
            .map(|lowered| ProgramSpec {
                name: lowered.func.name.clone(),
                kind: kind(lowered.kind),
                attach: match lowered.kind {
                    ProgramKind::Fentry | ProgramKind::Fexit | ProgramKind::TpBtf => AttachTarget::Btf {
                        id: func.id.id,
                        module: None,
                        name: func.name.clone(),
                    },
                    ProgramKind::RawTp
                    | ProgramKind::Kprobe
                    | ProgramKind::Kretprobe
                    | ProgramKind::Fsession
                    | ProgramKind::FentryMulti
                    | ProgramKind::FexitMulti
                    | ProgramKind::FsessionMulti
                    | ProgramKind::KprobeSession
                    | ProgramKind::Uprobe
                    | ProgramKind::Uretprobe
                    | ProgramKind::UprobeSession => AttachTarget::Nothing,
                },
                cookie: None,
            })
            .collect();
        let loaded = match relocated.load(&specs, LogLevel::Off) {
            Ok(loaded) => loaded,
            Err(RuntimeError::Load(error)) => {
                return Verdict::Refused(reason(&error.log, &error.source), error.log);
            }
            Err(error) => return Verdict::Refused(error.to_string(), String::new()),
        };
        match loaded.stats() {
            Ok(stats) => Verdict::Accepted {
                insns: stats.iter().map(|s| s.translated_bytes / 8).max().unwrap_or(0),
                verified: stats.iter().map(|s| s.verified_insns).max().unwrap_or(0),
            },
            Err(error) => Verdict::Bug(error.to_string()),
        }
    }
}

fn kind(kind: ProgramKind) -> runtime::ProgramKind {
    match kind {
        ProgramKind::Fentry => runtime::ProgramKind::Fentry,
        ProgramKind::Fexit => runtime::ProgramKind::Fexit,
        ProgramKind::TpBtf => runtime::ProgramKind::TpBtf,
        ProgramKind::RawTp => runtime::ProgramKind::RawTp,
        ProgramKind::Kprobe => runtime::ProgramKind::Kprobe,
        ProgramKind::Kretprobe => runtime::ProgramKind::Kretprobe,
        ProgramKind::Uprobe => runtime::ProgramKind::Uprobe,
        ProgramKind::Uretprobe => runtime::ProgramKind::Uretprobe,
        ProgramKind::Fsession
        | ProgramKind::FentryMulti
        | ProgramKind::FexitMulti
        | ProgramKind::FsessionMulti
        | ProgramKind::KprobeSession
        | ProgramKind::UprobeSession => panic!("only the ways that every kernel has are judged here"),
    }
}

/// The verifier's last sentence, which is the refusal; its statistics come after.
fn reason(log: &str, source: &std::io::Error) -> String {
    log.lines()
        .rev()
        .find(|line| {
            !line.trim().is_empty()
                && !line.starts_with("processed ")
                && !line.starts_with("verification time")
                && !line.starts_with("stack depth")
                && !line.starts_with("mark_precise")
        })
        .map_or_else(|| source.to_string(), str::to_string)
}
