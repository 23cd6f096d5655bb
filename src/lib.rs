//! ksnoop-jit: a query becomes a BPF program.
pub mod ctype;
pub mod diag;
pub mod errno;
pub mod ir;
pub mod parser;
pub mod sema;
pub mod span;
pub mod typed;
pub mod types;
pub mod wire;
