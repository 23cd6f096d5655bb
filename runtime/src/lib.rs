//! The part of ksnoop-jit that owns the kernel: reading its type information and symbols, loading and attaching
//! programs, reading events and maps, signals, the traced command.
//!
//! In: an ELF object, a slice of the kernel's BTF to relocate it against, and where to attach what. Out: bytes of
//! events, values of maps, and errors that name the problem and its remedy. It never knows about queries, never
//! prints, and Aya's types never leave it.
//!
//! The way through: [`ObjectSpec`] → [`Relocated`] → [`Loaded`] → [`Attached`], each consumed by the next; dropping
//! any of them undoes it. `KERNEL-FACTS.md` tells which kernel can do what.

pub mod binaries;
pub mod btf;
pub mod caps;
pub mod clock;
pub mod error;
pub mod load;
pub mod maps;
pub mod memory;
pub mod object;
pub mod ring;
pub mod run_child;
pub mod signals;
pub mod symbols;
pub mod terminal;
pub mod user_symbols;

mod attach;
mod links;
mod map_log;
mod perf;
mod proc_maps;
mod program;
mod sys;
mod verify;

pub use attach::{AttachTarget, Site};
pub use caps::{Answer, Capabilities};
pub use error::{AttachCause, AttachError, LoadCause, LoadError, Result, RuntimeError};
pub use load::{Attached, Failed, Loaded, Missed, ProgramStats, Relocated};
pub use maps::Maps;
pub use memory::KernelMemory;
pub use object::{MapRef, ObjectSpec, RelocatedProgram, relocate};
pub use program::{LogLevel, Moment, ProgramKind, ProgramSpec};
pub use ring::{Events, Wake};
pub use run_child::Child;
pub use signals::Signals;
pub use user_symbols::{UserPlace, UserSymbols};
pub use verify::{RawLoaded, RawProgram, load_raw};
