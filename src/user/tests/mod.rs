//! Tests of what is read from programs.

mod files;
mod named;
mod recipes;
