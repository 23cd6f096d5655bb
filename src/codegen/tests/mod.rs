//! Tests of code generation as a whole.

mod kernel;
