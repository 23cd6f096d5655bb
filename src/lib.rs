//! ksnoop-jit: a query becomes a BPF program.
pub mod diag;
pub mod parser;
pub mod span;
pub mod types;
