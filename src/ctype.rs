//! C types as expressions have them: a type of the kernel's BTF, or one that C makes in passing (a literal's `int`, the
//! pointer that `&x` gives). Plain data; never looks into BTF.

use crate::types::TypeId;

/// A C type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CType {
    /// `void`.
    Void,
    /// An integer type of the language itself, of 1, 2, 4 or 8 bytes.
    Int {
        /// Size in bytes.
        bytes: u8,
        /// Whether it has a sign.
        signed: bool,
    },
    /// `bool`, as comparisons of the query language and `is_err()` give when shown.
    Bool,
    /// A type that BTF describes.
    Btf(TypeId),
    /// A pointer that BTF may not describe.
    Ptr(Box<CType>),
}

impl CType {
    /// `int`.
    pub const INT: CType = CType::Int {
        bytes: 4,
        signed: true,
    };
    /// `unsigned int`.
    pub const UINT: CType = CType::Int {
        bytes: 4,
        signed: false,
    };
    /// `long`.
    pub const LONG: CType = CType::Int {
        bytes: 8,
        signed: true,
    };
    /// `unsigned long`.
    pub const ULONG: CType = CType::Int {
        bytes: 8,
        signed: false,
    };
}
