//! Placeholder until the type reader lands.

/// Identifies a type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TypeId {
    /// Which BTF object.
    pub module: u16,
    /// The id there.
    pub id: u32,
}
