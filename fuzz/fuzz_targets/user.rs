//! Any bytes into `ksnoop_jit::fuzzing::user`, which tells the laws. Never decides anything itself.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ksnoop_jit::fuzzing::user(bytes));
