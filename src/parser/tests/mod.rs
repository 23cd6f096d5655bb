//! The parser's tests: what is right (here), what is wrong (`wrong`), and the laws (`laws`).

mod laws;
mod right;
mod wrong;
