//! The pipeline as two functions: text to typed query, typed query to object. Pure: the same text, types and target give
//! the same bytes.

use crate::codegen::{self, CodegenError, Object};
use crate::diag::Diagnostic;
use crate::ir;
use crate::lower::{self, Id, Lowered, ProgramKind, Target};
use crate::parser;
use crate::sema::{self, All, Limits, Resolved};
use crate::typed;
use crate::types::Types;
use crate::user::Images;
use crate::wire::Phase;

/// Text to typed query: syntax, names and types. On failure everything that is wrong is told.
pub fn understand(text: &str, types: &Types, limits: Limits) -> Result<Resolved, Vec<Diagnostic>> {
    let query = parser::parse(text).map_err(|diags| diags.into_vec())?;
    sema::resolve(text, &query, types, &Images::new(), limits)
}

/// The same for targets in programs, which may stand for several functions or probes.
pub fn understand_all(
    text: &str,
    types: &Types,
    images: &Images,
    limits: Limits,
) -> Result<All, Vec<Diagnostic>> {
    let query = parser::parse(text).map_err(|diags| diags.into_vec())?;
    sema::resolve_all(text, &query, types, images, limits)
}

/// The programs of one query and what is known about them.
#[derive(Debug)]
pub struct Artifact {
    /// The object and its listing.
    pub object: Object,
    /// The programs in the object's order: IR, how each is run, what it writes.
    pub programs: Vec<Lowered>,
    /// One past the last event number that is taken.
    pub next_event: u32,
}

/// Where a query stands among those of one run, and how its programs are attached.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The number of its first event.
    pub first_event: u32,
    /// Which query it is.
    pub query: usize,
    /// How many there are.
    pub queries: usize,
    /// How they are attached.
    pub way: Way,
    /// How many functions the programs serve, if not the one of the query alone: they get a cookie each, from 0.
    pub members: Option<u32>,
    /// How many jobs of the query share the memory in which values are kept from entries to returns.
    pub keepers: u32,
}

impl Job {
    /// The only query, of one function.
    pub fn alone(way: Way) -> Job {
        Job {
            first_event: 0,
            query: 0,
            queries: 1,
            way,
            members: None,
            keepers: 1,
        }
    }
}

/// How programs are attached, as far as their code depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Functions by BPF trampolines, tracepoints by BTF type.
    Trampoline,
    /// Functions by BPF trampolines, entry and return in one program.
    Session,
    /// Many functions by BPF trampolines.
    TrampolineMulti,
    /// Many functions by BPF trampolines, entry and return in one program.
    SessionMulti,
    /// Functions by kprobes, one or many; tracepoints untyped.
    Kprobe,
    /// Functions by kprobes, entry and return in one program.
    KprobeSession,
    /// Places in programs.
    Uprobe,
    /// Functions in programs, entry and return in one program.
    UprobeSession,
}

/// A failure of the compiler itself, never the user's mistake, but for a query that needs more than a program can hold.
#[derive(Debug)]
pub enum CompileError {
    /// This way of attaching can't see something that the query asks for.
    Unsupported(String),
    /// Code generation gave up, or lowering made IR that the IR verifier refuses.
    Codegen(CodegenError),
}

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CompileError::Unsupported(why) => f.write_str(why),
            CompileError::Codegen(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for CompileError {}

/// Typed query to object.
pub fn generate(
    query: &typed::Query,
    types: &Types,
    target: &Target,
    job: Job,
) -> Result<Artifact, CompileError> {
    match generate_with(query, types, target, job) {
        Err(CompileError::Codegen(CodegenError::StackExhausted { .. })) => {
            let tight = Target {
                tight: true,
                ..target.clone()
            };
            generate_with(query, types, &tight, job)
        }
        made => made,
    }
}

fn generate_with(
    query: &typed::Query,
    types: &Types,
    target: &Target,
    job: Job,
) -> Result<Artifact, CompileError> {
    let mut programs: Vec<Lowered> = Vec::new();
    let id = |event| Id {
        event,
        query: job.query,
        queries: job.queries,
        shared: job.members.is_some(),
        keepers: job.keepers,
    };
    let mut next_event = job.first_event;
    if let Some(chain) = &target.chain {
        let members = job.members.unwrap_or(1);
        programs = lower::chain::lower(query, types, target, chain, job.way, id(next_event), members)
            .map_err(CompileError::Unsupported)?;
        // Each program is named after its event's number.
        next_event += 2 * members;
    } else {
        for event in &query.events {
            let kind = kinds(event.phase, job.way);
            let made = lower::lower(query, event, types, target, kind, id(next_event))
                .map_err(CompileError::Unsupported)?;
            // Each program is named after its event's number, and there may be two for one.
            next_event += (made.len() as u32).max(job.members.unwrap_or(1));
            programs.extend(made);
        }
    }
    object_of(programs, &query.text, types, next_event)
}

/// The programs that keep the set of followed processes ([`lower::FOLLOWED`]). An error says what of that these types don't have.
pub fn follow(types: &Types) -> Result<Artifact, CompileError> {
    let understood = |text| {
        understand(text, types, Limits::default()).map_err(|diags| {
            let why: Vec<&str> = diags.iter().map(|diag| diag.message.as_str()).collect();
            CompileError::Unsupported(format!("children can't be followed: {}", why.join("; ")))
        })
    };
    let (fork, free) = (understood(lower::follow::FORK)?, understood(lower::follow::FREE)?);
    let target = Target::default();
    let programs = lower::follow::lower(&fork.query, &free.query, types, &target);
    object_of(programs, lower::follow::FORK, types, 0)
}

/// What `--comm` asks for.
pub struct CommFilter {
    /// The condition on the task's name.
    pub cond: typed::Expr,
    /// What diagnostics are about.
    pub text: String,
    /// What may not be meant, such as a pattern that no name can match.
    pub warnings: Vec<Diagnostic>,
}

/// What `--comm` asks for, as a condition on the task's name. An error is what is wrong, after the text that it is about.
pub fn comm_filter(pattern: &str, types: &Types) -> Result<CommFilter, (String, Vec<Diagnostic>)> {
    let mut literal = String::new();
    for c in pattern.chars() {
        if matches!(c, '"' | '\\') {
            literal.push('\\');
        }
        literal.push(c);
    }
    // Any target will do, as the condition is about none.
    let text = format!("tp:sched_switch() if comm =~ \"{literal}\"");
    let resolved = match understand(&text, types, Limits::default()) {
        Ok(resolved) => resolved,
        Err(diags) => return Err((text, diags)),
    };
    let mut predicates = resolved
        .query
        .events
        .into_iter()
        .flat_map(|event| event.predicates);
    match predicates.next() {
        Some(predicate) => Ok(CommFilter {
            cond: predicate.cond,
            text,
            warnings: resolved.warnings,
        }),
        None => unreachable!("bug in ksnoop-jit: the condition is a predicate"),
    }
}

fn object_of(
    programs: Vec<Lowered>,
    text: &str,
    types: &Types,
    next_event: u32,
) -> Result<Artifact, CompileError> {
    let funcs: Vec<ir::Func> = programs.iter().map(|lowered| lowered.func.clone()).collect();
    let object = codegen::compile(&funcs, &[text.to_string()], types).map_err(CompileError::Codegen)?;
    Ok(Artifact {
        object,
        programs,
        next_event,
    })
}

/// How the programs for an event are run; the last is the one that makes it, where there are two.
fn kinds(phase: Phase, way: Way) -> ProgramKind {
    match (way, phase) {
        (Way::Trampoline, Phase::Entry) => ProgramKind::Fentry,
        (Way::Trampoline, Phase::Return | Phase::Both) => ProgramKind::Fexit,
        (Way::TrampolineMulti, Phase::Entry) => ProgramKind::FentryMulti,
        (Way::TrampolineMulti, Phase::Return | Phase::Both) => ProgramKind::FexitMulti,
        (Way::Session, Phase::Entry | Phase::Return | Phase::Both) => ProgramKind::Fsession,
        (Way::SessionMulti, Phase::Entry | Phase::Return | Phase::Both) => ProgramKind::FsessionMulti,
        (Way::Kprobe, Phase::Entry) => ProgramKind::Kprobe,
        (Way::Kprobe, Phase::Return | Phase::Both) => ProgramKind::Kretprobe,
        (Way::KprobeSession, Phase::Entry | Phase::Return | Phase::Both) => ProgramKind::KprobeSession,
        (Way::Trampoline | Way::Session | Way::TrampolineMulti | Way::SessionMulti, Phase::Hit) => {
            ProgramKind::TpBtf
        }
        (Way::Kprobe | Way::KprobeSession, Phase::Hit) => ProgramKind::RawTp,
        (Way::Uprobe, Phase::Entry) | (Way::Uprobe | Way::UprobeSession, Phase::Hit) => ProgramKind::Uprobe,
        (Way::Uprobe, Phase::Return | Phase::Both) => ProgramKind::Uretprobe,
        (Way::UprobeSession, Phase::Entry | Phase::Return | Phase::Both) => ProgramKind::UprobeSession,
    }
}
