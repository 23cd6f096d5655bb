//! From a query to a program as the loader would leave it, and the contexts that the ways of attaching give it. In: text and
//! types. Out: code for [`super::machine`]. It judges nothing.

use ksnoop_jit::compile::{self, Artifact, Job};
use ksnoop_jit::diag::{self, Code};
use ksnoop_jit::lower::{Reads, Target};
use ksnoop_jit::sema::Limits;
use ksnoop_jit::span::Span;
use ksnoop_jit::types::Types;

use super::machine::{COUNTS_MAP, EVENTS_MAP, FIRST_MAP, Region};

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Way {
    pub(crate) typed: bool,
    pub(crate) reads: Reads,
    /// As a program that the stack has no room for otherwise.
    pub(crate) tight: bool,
}

/// Where the words above the stack pointer are at a kprobe.
const CALLER: u64 = 0xffff_c900_1000_0000;

/// The context of a program, and the memory that belongs to it.
pub(crate) fn context(way: Way, args: &[u64]) -> (Vec<u8>, Region) {
    let mut stack = vec![0; 8];
    stack.extend(args.iter().skip(6).flat_map(|word| word.to_le_bytes()));
    let bytes = if way.typed {
        args.iter().flat_map(|word| word.to_le_bytes()).collect()
    } else {
        // struct pt_regs: di, si, dx, cx, r8, r9 and sp (arch/x86/include/uapi/asm/ptrace.h).
        let mut regs = vec![0u8; 168];
        for (offset, word) in [112, 104, 96, 88, 72, 64].into_iter().zip(args) {
            regs[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
        }
        regs[152..160].copy_from_slice(&CALLER.to_le_bytes());
        regs
    };
    let caller = Region {
        base: CALLER,
        bytes: stack,
    };
    (bytes, caller)
}

/// A query, ready to run.
pub(crate) struct Built {
    pub(crate) text: String,
    pub(crate) way: Way,
    pub(crate) artifact: Artifact,
    pub(crate) code: Vec<u8>,
}

/// Compiles; where that is refused, and rightly, gives the places: divisions by a constant 0,
/// shifts that are too far, constants with a label.
pub(crate) fn build(text: &str, types: &Types, way: Way) -> Result<Built, Vec<Span>> {
    build_with(text, types, way, None)
}

/// The same with room for so many keys.
pub(crate) fn build_with(text: &str, types: &Types, way: Way, keys: Option<u32>) -> Result<Built, Vec<Span>> {
    // Whatever is generated is also a text for the law of the parser.
    ksnoop_jit::parser::generate::check(text);
    let resolved = match compile::understand(text, types, Limits::default()) {
        Ok(resolved) => resolved,
        Err(diags) => {
            let errors = || diags.iter().filter(|d| d.severity == diag::Severity::Error);
            let right = |code| matches!(code, Code::DivisionByZero | Code::BadShift | Code::AssignForEqual);
            if let Some(wrong) = errors().find(|d| !right(d.code)) {
                panic!("a right query is refused\n{}", diag::render(text, wrong, false));
            }
            return Err(errors().map(|d| d.span).collect());
        }
    };
    let target = Target {
        reads: way.reads,
        tight: way.tight,
        keys,
        ..Target::default()
    };
    let job = Job::alone(if way.typed {
        compile::Way::Trampoline
    } else {
        compile::Way::Kprobe
    });
    let artifact = match compile::generate(&resolved.query, types, &target, job) {
        Ok(artifact) => artifact,
        Err(error) => panic!("{text}: {error}"),
    };
    let code = relocated(text, &artifact);
    Ok(Built {
        text: text.to_string(),
        way,
        artifact,
        code,
    })
}

/// The code as it would be loaded.
fn relocated(text: &str, artifact: &Artifact) -> Vec<u8> {
    let object = &artifact.object;
    let programs = match ksnoop_jit_runtime::object::relocate(&object.elf, &object.target_btf) {
        Ok(programs) => programs,
        Err(error) => panic!("{text}: {error}"),
    };
    let [program] = programs.as_slice() else {
        panic!("{text}: {} programs", programs.len());
    };
    let mut code = program.insns.clone();
    if let Err(why) = object.programs[0].check_relocated(&code) {
        panic!("{text}: {why}");
    }
    for reference in &program.map_refs {
        let map = match reference.map.as_str() {
            "events" => EVENTS_MAP,
            "counts" => COUNTS_MAP,
            other => {
                let index = object.maps.iter().position(|map| map.name == other);
                FIRST_MAP + index.unwrap_or_else(|| panic!("{text}: no map {other}")) as u64
            }
        };
        code[reference.slot * 8 + 4..][..4].copy_from_slice(&(map as u32).to_le_bytes());
    }
    code
}
