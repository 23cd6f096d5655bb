//! The integration tests, one binary.

#[path = "suite/verifier.rs"]
mod verifier;
