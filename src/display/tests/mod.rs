//! Tests of display: whole events against ksnoop's own layout, each kind of type, faults, formats, and hostile bytes.

mod chrome;
mod events;
mod fixture;
mod hostile;
mod untrusted;
mod values;
