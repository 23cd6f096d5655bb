//! Diagnostics as data, and their one renderer. A diagnostic is about the user's query: it has a stable code, a span,
//! a message, labels, notes and help. Never prints, never ends the program.
