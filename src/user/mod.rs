//! Programs and shared libraries as the compiler sees them: functions, USDT probes with the recipes of their arguments, and
//! what turns an address into an offset of the file, which is what the kernel attaches to. In: the bytes of an ELF
//! file. Out: an [`Image`]. Never opens a file, and never trusts one: whatever the bytes are, it gives an error or less
//! than there is, but no panic.

mod debugdata;
mod elf;
mod image;
mod names;
mod notes;
pub mod recipe;
pub mod regs;

#[cfg(any(test, feature = "fuzzing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use debugdata::decompress;
pub use elf::{ElfError, read, read_with};
pub use image::{CallSite, Function, Image, Probe, Segment};
pub use names::{copied, demangled, glob, is_pattern};
pub use notes::{Note, notes};
pub use recipe::{Address, Index, Operand, Problem, Recipe, RecipeError};
pub use regs::{Arch, Passed, Register};

use std::collections::BTreeMap;

/// The files that the targets of queries name, by the name that is used there, or why one can't be had.
pub type Images = BTreeMap<String, Result<Image, String>>;
