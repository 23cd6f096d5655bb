//! What the test binary is made of.

mod bless;
mod exec;
mod golden;
mod machine;
mod reference;
