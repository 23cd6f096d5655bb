//! Tests of the compiler as a whole, from text to bytes. They need no privileges and no kernel: the types are those of the
//! made-up kernel in `types::testing`.

mod suite;
