//! What the test binary is made of.

mod aggregated;
mod bless;
mod c_oracle;
mod cases;
mod classes;
mod diagnostics;
mod exec;
mod golden;
mod json;
mod judge;
mod kernel_dump;
mod machine;
mod oracle;
mod packed;
mod probe_events;
mod reference;
mod running;
mod strings;
mod terminal;
mod user_live;
mod user_recipes;
mod verifier;
mod watched;
