//! Query text in, syntax tree out.
pub mod ast;
