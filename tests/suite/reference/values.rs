//! C's values on LP64: types, conversions, promotions. In: values as mathematical integers. Out: the same, cut to their type. It
//! knows nothing of queries and memory.

use ksnoop_jit::parser::ast::{IntLit, Radix};
use ksnoop_jit::types::TypeId;

/// A C type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ty {
    Int {
        bytes: u32,
        signed: bool,
    },
    Bool,
    Ptr(Box<Ty>),
    Array(Box<Ty>, u32),
    Aggregate(TypeId),
    Void,
    /// What strings are made of.
    Char {
        signed: bool,
    },
}

pub(super) const INT: Ty = Ty::Int {
    bytes: 4,
    signed: true,
};

pub(super) const ULONG: Ty = Ty::Int {
    bytes: 8,
    signed: false,
};

pub(super) const LONG: Ty = Ty::Int {
    bytes: 8,
    signed: true,
};

/// A step through a bad pointer, or a division by zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fault;

/// A value, and its width if it was a bitfield (its promotion depends on it).
#[derive(Clone, Debug)]
pub(super) struct Rvalue {
    pub(super) ty: Ty,
    pub(super) value: i128,
    pub(super) width: Option<u32>,
}

/// Something in memory.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) address: u64,
    /// First bit from the address, and width.
    pub(super) bits: Option<(u32, u32)>,
    pub(super) ty: Ty,
}

pub(super) fn plain(ty: Ty, value: i128) -> Rvalue {
    Rvalue {
        ty,
        value,
        width: None,
    }
}

pub(super) fn place(address: u64, ty: Ty) -> Place {
    Place {
        address,
        bits: None,
        ty,
    }
}

pub(super) fn pointee(ty: &Ty) -> Option<&Ty> {
    match ty {
        Ty::Ptr(to) => Some(to),
        Ty::Int { .. } | Ty::Bool | Ty::Array(..) | Ty::Aggregate(_) | Ty::Void | Ty::Char { .. } => None,
    }
}

/// The value that a type gives these bits.
pub(super) fn cut(value: i128, ty: &Ty) -> i128 {
    let (bits, signed) = match ty {
        Ty::Int { bytes, signed } => (bytes * 8, *signed),
        Ty::Char { signed } => (8, *signed),
        Ty::Bool => return i128::from(value != 0),
        Ty::Ptr(_) => (64, false),
        Ty::Array(..) | Ty::Aggregate(_) | Ty::Void => panic!("no scalar"),
    };
    let low = value & ((1 << bits) - 1);
    if signed && low >> (bits - 1) == 1 {
        low - (1 << bits)
    } else {
        low
    }
}

pub(super) fn convert(value: &Rvalue, ty: Ty) -> Rvalue {
    if value.ty == ty {
        return plain(ty, value.value);
    }
    let cut = cut(value.value, &ty);
    plain(ty, cut)
}

/// C17 6.3.1.1. A bitfield of 32 bits or fewer becomes an `int`, or an `unsigned int` if that can't hold it, whatever type
/// it is declared with, as gcc and clang have it.
pub(super) fn promote(value: &Rvalue) -> Ty {
    match (&value.ty, value.width) {
        (Ty::Int { signed, .. }, Some(width)) if width < 32 || (width == 32 && *signed) => INT,
        (Ty::Int { .. }, Some(32)) => Ty::Int {
            bytes: 4,
            signed: false,
        },
        (Ty::Int { bytes: 1 | 2, .. } | Ty::Bool | Ty::Char { .. }, _) => INT,
        (Ty::Int { .. }, _) => value.ty.clone(),
        (Ty::Ptr(_) | Ty::Array(..) | Ty::Aggregate(_) | Ty::Void, _) => panic!("no number"),
    }
}

/// C17 6.3.1.8.
pub(super) fn common(a: &Ty, b: &Ty) -> Ty {
    let (Ty::Int { bytes: x, signed: sx }, Ty::Int { bytes: y, signed: sy }) = (a, b) else {
        panic!("not promoted");
    };
    if x == y {
        Ty::Int {
            bytes: *x,
            signed: *sx && *sy,
        }
    } else if x > y {
        a.clone()
    } else {
        b.clone()
    }
}

/// C17 6.4.4.1.
pub(super) fn literal(lit: &IntLit) -> Rvalue {
    let value = i128::from(lit.value);
    let candidates = [(4, true), (4, false), (8, true), (8, false)];
    for (bytes, signed) in candidates {
        let ty = Ty::Int { bytes, signed };
        let allowed = (signed || lit.unsigned || lit.radix != Radix::Decimal || lit.value > i64::MAX as u64)
            && !(signed && lit.unsigned)
            && !(bytes == 4 && lit.longs > 0);
        if allowed && cut(value, &ty) == value {
            return plain(ty, value);
        }
    }
    plain(ULONG, value)
}
