//! The part of ksnoop-jit that owns the kernel.
