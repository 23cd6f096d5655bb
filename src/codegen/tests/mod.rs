//! Tests of code generation as a whole.

mod exec;
mod kernel;
