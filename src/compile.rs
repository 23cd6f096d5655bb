//! The pipeline as two functions: text to typed query, typed query to object. Pure: the same text, types and target give
//! the same bytes.

use crate::codegen::{self, CodegenError, Object};
use crate::diag::Diagnostic;
use crate::ir;
use crate::lower::{self, Id, Lowered, ProgramKind, Target};
use crate::parser;
use crate::sema::{self, Limits, Resolved};
use crate::typed;
use crate::types::Types;
use crate::wire::Phase;

/// Text to typed query: syntax, names and types. On failure everything that is wrong is told.
pub fn understand(text: &str, types: &Types, limits: Limits) -> Result<Resolved, Vec<Diagnostic>> {
    let query = parser::parse(text).map_err(|diags| diags.into_vec())?;
    sema::resolve(text, &query, types, limits)
}

/// The programs of one query and what is known about them.
#[derive(Debug)]
pub struct Artifact {
    /// The object and its listing.
    pub object: Object,
    /// The programs in the object's order: IR, how each is run, what it writes.
    pub programs: Vec<Lowered>,
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
    /// Functions by trampolines and tracepoints by BTF type, else by kprobes and raw tracepoints.
    pub typed: bool,
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
    let mut programs = Vec::new();
    for event in &query.events {
        let id = Id {
            event: job.first_event + programs.len() as u32,
            query: job.query,
            queries: job.queries,
        };
        let made = lower::lower(query, event, types, target, kinds(event.phase, job.typed), id)
            .map_err(CompileError::Unsupported)?;
        programs.extend(made);
    }
    let funcs: Vec<ir::Func> = programs.iter().map(|lowered| lowered.func.clone()).collect();
    let object =
        codegen::compile(&funcs, std::slice::from_ref(&query.text), types).map_err(CompileError::Codegen)?;
    Ok(Artifact { object, programs })
}

/// How the programs for an event are run; the first is at the entry where there are two.
fn kinds(phase: Phase, typed: bool) -> ProgramKind {
    match (phase, typed) {
        (Phase::Entry, true) => ProgramKind::Fentry,
        (Phase::Entry, false) => ProgramKind::Kprobe,
        (Phase::Return | Phase::Both, true) => ProgramKind::Fexit,
        (Phase::Return | Phase::Both, false) => ProgramKind::Kretprobe,
        (Phase::Hit, true) => ProgramKind::TpBtf,
        (Phase::Hit, false) => ProgramKind::RawTp,
    }
}
