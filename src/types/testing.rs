//! A small made-up kernel for tests and fuzzing.
