//! C's rules about types, on [`CType`]: what kind of type it is, integer promotion, the usual arithmetic conversions,
//! sizes, and how a type is spelled in a message. Never reports anything: it only answers.

use crate::ctype::CType;
use crate::types::{Type, TypeId, Types};

/// What kind of type it is, seen through typedefs and modifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// `void`.
    Void,
    /// An integer or an enum.
    Int { bytes: u8, signed: bool },
    /// `bool`.
    Bool,
    /// `float` or `double`: only shown.
    Float,
    /// A pointer.
    Ptr(CType),
    /// A struct or union, with its definition.
    Composite(TypeId),
    /// An array. A flexible one has length 0.
    Array { elem: TypeId, len: u32 },
    /// A function (behind a pointer).
    Func,
    /// A struct or union that is only declared, or an integer that is too wide.
    Opaque,
}

impl Class {
    /// Whether arithmetic works on it.
    pub(super) fn is_arithmetic(&self) -> bool {
        matches!(self, Class::Int { .. } | Class::Bool)
    }
}

/// The kind of a type.
pub(super) fn class(types: &Types, ty: &CType) -> Class {
    match ty {
        CType::Void => Class::Void,
        CType::Int { bytes, signed } => Class::Int {
            bytes: *bytes,
            signed: *signed,
        },
        CType::Bool => Class::Bool,
        CType::Ptr(to) => Class::Ptr((**to).clone()),
        CType::Btf(id) => class_of(types, *id),
    }
}

fn class_of(types: &Types, id: TypeId) -> Class {
    let id = types.complete(id);
    match types.get(id) {
        Type::Void => Class::Void,
        Type::Int(int) if int.is_bool && int.size == 1 => Class::Bool,
        Type::Int(int) if matches!(int.size, 1 | 2 | 4 | 8) => Class::Int {
            bytes: int.size as u8,
            signed: int.signed,
        },
        Type::Enum(e) if matches!(e.size, 1 | 2 | 4 | 8) => Class::Int {
            bytes: e.size as u8,
            signed: e.signed,
        },
        Type::Float { .. } => Class::Float,
        Type::Ptr(to) => Class::Ptr(CType::Btf(to)),
        Type::Array { elem, len } => Class::Array { elem, len },
        Type::Struct(_) | Type::Union(_) => Class::Composite(id),
        Type::Func { .. } | Type::FuncProto { .. } => Class::Func,
        // `complete` has gone through the modifiers, so these are ends of hostile chains; 128-bit integers
        // are opaque too.
        Type::Int(_)
        | Type::Enum(_)
        | Type::Fwd { .. }
        | Type::Typedef(_)
        | Type::Const(_)
        | Type::Volatile(_)
        | Type::Restrict(_)
        | Type::TypeTag { .. }
        | Type::Other => Class::Opaque,
    }
}

/// Size in bytes, if it has one. `void` counts as 1, as for pointer arithmetic in GNU C.
pub(super) fn size_of(types: &Types, ty: &CType) -> Option<u64> {
    match ty {
        CType::Void => Some(1),
        CType::Int { bytes, .. } => Some(u64::from(*bytes)),
        CType::Bool => Some(1),
        CType::Ptr(_) => Some(8),
        CType::Btf(id) => {
            let id = types.complete(*id);
            if id.is_void() { Some(1) } else { types.size_of(id) }
        }
    }
}

/// Integer promotion of a type (C17 6.3.1.1). `width` is that of a bitfield.
pub(super) fn promote(class: &Class, width: Option<u8>) -> Option<CType> {
    let Class::Int { bytes, signed } = class else {
        return (*class == Class::Bool).then_some(CType::INT);
    };
    // A bitfield all of whose values an `int` or `unsigned int` holds becomes one, whatever its declared type, as gcc and
    // clang do.
    match width {
        Some(..32) => return Some(CType::INT),
        Some(32) if *signed => return Some(CType::INT),
        Some(32) => return Some(CType::UINT),
        Some(_) | None => {}
    }
    Some(match bytes {
        1 | 2 => CType::INT,
        bytes => CType::Int {
            bytes: *bytes,
            signed: *signed,
        },
    })
}

/// The common type of two promoted operands (C17 6.3.1.8, on LP64).
pub(super) fn common(a: &CType, b: &CType) -> CType {
    let (
        CType::Int {
            bytes: ab,
            signed: asg,
        },
        CType::Int {
            bytes: bb,
            signed: bsg,
        },
    ) = (a, b)
    else {
        unreachable!("bug in ksnoop-jit: the usual conversions of types that are not promoted");
    };
    if ab == bb {
        CType::Int {
            bytes: *ab,
            signed: *asg && *bsg,
        }
    } else if ab > bb {
        // The wider type holds every value of the narrower one, so its sign decides.
        a.clone()
    } else {
        b.clone()
    }
}

/// A constant's bits as a value of an integer type, extended to 64 bits.
pub(super) fn wrap(value: i64, bytes: u8, signed: bool) -> i64 {
    match (bytes, signed) {
        (1, true) => i64::from(value as i8),
        (1, false) => i64::from(value as u8),
        (2, true) => i64::from(value as i16),
        (2, false) => i64::from(value as u16),
        (4, true) => i64::from(value as i32),
        (4, false) => i64::from(value as u32),
        (_, _) => value,
    }
}

/// How C writes the type, for messages.
pub(super) fn spell(types: &Types, ty: &CType) -> String {
    match ty {
        CType::Void => "void".into(),
        CType::Bool => "bool".into(),
        CType::Int { bytes, signed } => match (bytes, signed) {
            (1, true) => "signed char",
            (1, false) => "unsigned char",
            (2, true) => "short",
            (2, false) => "unsigned short",
            (4, true) => "int",
            (4, false) => "unsigned int",
            (_, true) => "long",
            (_, false) => "unsigned long",
        }
        .into(),
        CType::Btf(id) => types.c_name(*id),
        CType::Ptr(to) => {
            let inner = spell(types, to);
            if inner.ends_with('*') {
                format!("{inner}*")
            } else {
                format!("{inner} *")
            }
        }
    }
}
