//! What the test binary is made of.

mod bless;
mod golden;
mod judge;
mod verifier;
