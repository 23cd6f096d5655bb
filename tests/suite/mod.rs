//! What the test binary is made of.

mod bless;
mod diagnostics;
mod exec;
mod golden;
mod json;
mod judge;
mod machine;
mod reference;
mod strings;
mod verifier;
