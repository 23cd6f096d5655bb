//! ksnoop-jit: a query becomes a BPF program.
