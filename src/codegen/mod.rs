//! Code generation. In: verified IR functions and the kernel's types. Out: an ELF object with BPF programs, and all that
//! is known about each instruction. The stages are `select` (operations), `regalloc` (registers; proved by its checker
//! in debug builds), `encode` (bytes), `local` (relocations) and `elf`. A pure function: never does I/O, and the same input
//! gives the same bytes.

mod asm;
mod disasm;
mod dump;
mod elf;
mod encode;
mod insn;
mod local;
mod mach;
mod regalloc;
mod select;

pub use asm::listing;
pub use dump::dump_btf;
pub use insn::Insn;

#[cfg(test)]
mod tests;

use std::fmt;

use crate::ir::{Func, IrError, MapData, Reloc, RelocKind, verify};
use crate::span::Span;
use crate::types::Types;

/// What comes out: everything that a loader needs, and what people want to see.
#[derive(Clone, Debug)]
pub struct Object {
    /// The ELF file.
    pub elf: Vec<u8>,
    /// The slice of the kernel's types that the programs are relocated against.
    pub target_btf: Vec<u8>,
    /// The `.BTF` section of the ELF file.
    pub local_btf: Vec<u8>,
    /// The programs, in the order of the functions.
    pub programs: Vec<Program>,
    /// The maps, in order of first mention.
    pub maps: Vec<MapData>,
}

/// A program before relocation.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its ELF section.
    pub section: String,
    /// Its instruction slots.
    pub insns: Vec<Insn>,
    /// What each slot is about; the second slot of a 64-bit immediate has an empty one.
    pub notes: Vec<InsnNote>,
    /// Its relocations, in order.
    pub relocs: Vec<ProgramReloc>,
    /// Which slots refer to which maps.
    pub map_refs: Vec<(usize, String)>,
}

/// What an instruction is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InsnNote {
    /// Where in the query.
    pub span: Option<Span>,
    /// A remark.
    pub note: String,
    /// The IR blocks that begin here, and what each is for.
    pub blocks: Vec<(String, String)>,
}

/// A relocation in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramReloc {
    /// The slot.
    pub insn: usize,
    /// What it asks for.
    pub kind: RelocKind,
    /// Of what, for people.
    pub text: String,
    /// What the instruction holds before relocation.
    pub local: u64,
    /// What it must hold afterwards.
    pub kernel: u64,
    /// Which relocation of the function it is.
    index: usize,
}

/// Why there is no object. Only [`CodegenError::StackExhausted`] and [`CodegenError::TooLong`] depend on the query's size; the
/// others mean that the IR was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodegenError {
    /// Slots and spilled values do not fit into the BPF stack.
    StackExhausted {
        /// The program.
        program: String,
        /// Bytes of stack slots.
        slots: u64,
        /// Bytes of spilled values.
        spills: u64,
    },
    /// A jump would go further than an instruction can say.
    TooLong {
        /// Length of the program in slots.
        slots: usize,
    },
    /// A relocation that no loader can follow.
    BadRelocation {
        /// What it is of.
        text: String,
        /// What is wrong.
        reason: String,
    },
    /// A function breaks the IR's rules.
    Ir {
        /// The program.
        program: String,
        /// All violations.
        errors: Vec<IrError>,
    },
    /// Two different maps of one name.
    MapConflict {
        /// The name.
        name: String,
    },
    /// The ELF writer refused.
    Elf(String),
    /// A bug in here.
    Internal {
        /// The program.
        program: String,
        /// What happened.
        reason: String,
    },
}

impl fmt::Display for CodegenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodegenError::StackExhausted {
                program,
                slots,
                spills,
            } => write!(
                f,
                "program {program} needs {} bytes of stack ({slots} for slots, {spills} for values), BPF has {}",
                slots + spills,
                encode::STACK
            ),
            CodegenError::TooLong { slots } => {
                write!(
                    f,
                    "the query makes a program of {slots} instructions, in which jumps go too far: ask for fewer values or patterns"
                )
            }
            CodegenError::BadRelocation { text, reason } => write!(f, "relocation of {text}: {reason}"),
            CodegenError::Ir { program, errors } => {
                write!(f, "bug in ksnoop-jit: its own IR is wrong in program {program}:")?;
                errors.iter().try_for_each(|error| write!(f, " {error};"))
            }
            CodegenError::MapConflict { name } => write!(f, "two different maps are called {name}"),
            CodegenError::Elf(reason) => write!(f, "ELF: {reason}"),
            CodegenError::Internal { program, reason } => {
                write!(f, "bug in ksnoop-jit: program {program}: {reason}")
            }
        }
    }
}

impl std::error::Error for CodegenError {}

/// Compiles functions into one object. `queries` are the texts that spans refer to: one for each function, or a single one
/// for all.
pub fn compile(funcs: &[Func], queries: &[String], types: &Types) -> Result<Object, CodegenError> {
    for func in funcs {
        verify(func).map_err(|errors| CodegenError::Ir {
            program: func.name.clone(),
            errors,
        })?;
    }
    let relocs = funcs.iter().map(|func| func.relocs.values().collect());
    let local = local::build(types, relocs)?;
    let mut programs = Vec::new();
    for (func, relocs) in funcs.iter().zip(&local.relocs) {
        programs.push(program(func, &|reloc: Reloc| {
            let index = cranelift_entity::EntityRef::index(reloc);
            relocs.get(index).map_or(0, |reloc| reloc.value)
        })?);
    }
    let mut maps: Vec<MapData> = Vec::new();
    for map in funcs.iter().flat_map(|func| func.maps.values()) {
        match maps.iter().find(|known| known.name == map.name) {
            Some(known) if known == map => {}
            Some(_) => {
                return Err(CodegenError::MapConflict {
                    name: map.name.clone(),
                });
            }
            None => maps.push(map.clone()),
        }
    }
    let texts: Vec<&str> = (0..funcs.len())
        .map(|at| queries.get(at).or(queries.first()).map_or("", String::as_str))
        .collect();
    let target_btf = local.target.bytes.clone();
    let elf = elf::write(&programs, &texts, local, &maps)?;
    Ok(Object {
        elf: elf.bytes,
        target_btf,
        local_btf: elf.btf,
        programs,
        maps,
    })
}

/// Compiles one function.
fn program(func: &Func, local: &dyn Fn(Reloc) -> u64) -> Result<Program, CodegenError> {
    let internal = |reason: String| CodegenError::Internal {
        program: func.name.clone(),
        reason,
    };
    let far = |reloc: Reloc| {
        let kernel = func.relocs.get(reloc).map_or(0, |data| data.kernel);
        kernel.max(local(reloc)) > i16::MAX as u64
    };
    let machine = select::select(func, &far);
    let allocated = regalloc::allocate(&machine).map_err(internal)?;
    if cfg!(debug_assertions) {
        regalloc::check::check(&machine, &allocated).map_err(internal)?;
    }
    let encoded = encode::encode(func, &machine, &allocated, local)?;
    let mut program = Program {
        name: func.name.clone(),
        section: func.section.clone(),
        insns: Vec::new(),
        notes: Vec::new(),
        relocs: Vec::new(),
        map_refs: Vec::new(),
    };
    for emitted in encoded.insns {
        let slot = program.insns.len();
        program.insns.push(emitted.insn);
        program.notes.push(InsnNote {
            span: emitted.origin.span,
            note: emitted.origin.note,
            blocks: emitted
                .blocks
                .iter()
                .map(|block| (block.to_string(), func.blocks[*block].note.clone()))
                .collect(),
        });
        if let Some(high) = emitted.high {
            program.insns.push(Insn {
                imm: high,
                ..Insn::default()
            });
            program.notes.push(InsnNote::default());
        }
        if let Some(map) = emitted.map
            && let Some(data) = func.maps.get(map)
        {
            program.map_refs.push((slot, data.name.clone()));
        }
        if let Some(reloc) = emitted.reloc
            && let Some(data) = func.relocs.get(reloc)
        {
            program.relocs.push(ProgramReloc {
                insn: slot,
                kind: data.kind,
                text: data.text.clone(),
                local: local(reloc),
                kernel: data.kernel,
                index: cranelift_entity::EntityRef::index(reloc),
            });
        }
    }
    Ok(program)
}

impl Program {
    /// The instructions' bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.insns.iter().flat_map(|insn| insn.to_bytes()).collect()
    }

    /// Compares the instructions after relocation with what the type reader said. `insns` are the program's bytes as the
    /// loader made them: everything but the relocated values and the numbers of maps must still be the same.
    pub fn check_relocated(&self, insns: &[u8]) -> Result<(), String> {
        let relocated = slots(insns);
        if relocated.len() != self.insns.len() {
            return Err(format!(
                "the program has {} instructions after relocation, {} before",
                relocated.len(),
                self.insns.len()
            ));
        }
        for (slot, (before, after)) in self.insns.iter().zip(&relocated).enumerate() {
            let mut expected = *before;
            let reloc = self.relocs.iter().find(|reloc| reloc.insn == slot);
            if let Some(reloc) = reloc {
                // Only loads carry a relocated distance; everything else an immediate.
                if before.code & 7 == insn::CLASS_LDX {
                    expected.off = reloc.kernel as i16;
                } else {
                    expected.imm = reloc.kernel as i32;
                }
            }
            if self.map_refs.iter().any(|(at, _)| *at == slot) {
                expected.imm = after.imm;
            }
            if *after != expected {
                let what = reloc.map_or("not relocated", |reloc| reloc.text.as_str());
                return Err(format!(
                    "instruction {slot} ({what}) is {after:?} after relocation, should be {expected:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Bytes as instruction slots; a rest of less than 8 bytes is dropped.
fn slots(bytes: &[u8]) -> Vec<Insn> {
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| Insn::from_bytes(*bytes))
        .collect()
}
