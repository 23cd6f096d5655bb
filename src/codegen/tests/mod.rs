//! Tests of code generation as a whole.

mod alloc;
mod exec;
mod kernel;
mod moves;
mod object;
