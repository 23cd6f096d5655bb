//! ksnoop-jit: a query becomes a BPF program.
pub mod codegen;
pub mod compile;
pub mod ctype;
pub mod diag;
pub mod display;
pub mod errno;
pub mod ir;
pub mod lower;
pub mod parser;
pub mod sema;
pub mod span;
#[cfg(any(test, feature = "fuzzing"))]
pub mod sweep;
pub mod typed;
pub mod types;
pub mod wire;
