//! Tests of sema.
