//! ksnoop-jit: a query becomes a BPF program. In: text, the kernel's types, what is known of its kernel. Out: an object
//! that can be loaded, and the layout of its events; and events as text. Never opens a file, asks for the time or the
//! environment, starts a process or makes a system call: that is for the binary and `ksnoop-jit-runtime`. `clippy.toml`
//! lists what would break this.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
// Who adds a variant is shown every place.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod codegen;
pub mod compile;
pub mod ctype;
pub mod diag;
pub mod display;
pub mod errno;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod glob;
pub mod ir;
pub mod lower;
pub mod parser;
pub mod search;
pub mod select;
pub mod sema;
pub mod span;
pub mod suggest;
#[cfg(any(test, feature = "fuzzing"))]
pub mod sweep;
pub mod typed;
pub mod types;
pub mod user;
pub mod wire;
