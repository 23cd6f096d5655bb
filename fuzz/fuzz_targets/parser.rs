//! Any text into `ksnoop_jit::fuzzing::parser`, which tells the laws. Never decides anything itself.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| ksnoop_jit::fuzzing::parser(text));
