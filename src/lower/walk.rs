//! What the kernel's verifier finds at an offset of a struct when a program loads from there through a typed pointer: a second
//! telling of `btf_struct_walk` (kernel/bpf/btf.c), in the strictest of its versions. In: a struct, an offset, a size.
//! Out: a number, a pointer and to what, or that it refuses. It knows no names: of a union it takes the first member that covers the
//! offset, whichever was meant, and a load that crosses a member's end is refused.

use crate::types::{Type, TypeId, Types};

/// What a plain load gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A number.
    Number,
    /// A pointer to this struct, which stays typed.
    Pointer(TypeId),
    /// A pointer to anything else: since 6.17 one to memory that may only be read (`btf_struct_walk`, kernel/bpf/btf.c), before
    /// that a number.
    Address,
    /// The program is refused.
    Refused,
}

/// How many structs may lie in one another.
const NESTING_MAX: usize = 32;

/// What the verifier makes of a load of `size` bytes at `offset` of `root`.
pub(super) fn plain_load(types: &Types, root: TypeId, offset: u64, size: u64) -> Seen {
    let mut at = root;
    let mut offset = offset;
    for _ in 0..NESTING_MAX {
        match step(types, at, offset, size) {
            Ok(seen) => return seen,
            Err((inner, rest)) => (at, offset) = (inner, rest),
        }
    }
    Seen::Refused
}

/// One struct: what is seen, or which struct to look into, and where.
fn step(types: &Types, at: TypeId, offset: u64, size: u64) -> Result<Seen, (TypeId, u64)> {
    let Some(composite) = types.composite(at) else {
        return Ok(Seen::Refused);
    };
    if offset + size > u64::from(composite.size) {
        // Only what follows a flexible array's start may lie behind the end.
        let Some(last) = composite.members.last() else {
            return Ok(Seen::Refused);
        };
        let from = u64::from(last.bit_offset / 8);
        let Type::Array { elem, len: 0 } = types.get_stripped(last.ty) else {
            return Ok(Seen::Refused);
        };
        if offset < from {
            return Ok(Seen::Refused);
        }
        return match types.get_stripped(elem) {
            // Before 6.5, only structs are looked into there.
            Type::Struct(inner) | Type::Union(inner) if inner.size > 0 => {
                Err((types.strip(elem), (offset - from) % u64::from(inner.size)))
            }
            Type::Void
            | Type::Int(_)
            | Type::Float { .. }
            | Type::Ptr(_)
            | Type::Array { .. }
            | Type::Struct(_)
            | Type::Union(_)
            | Type::Enum(_)
            | Type::Fwd { .. }
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => Ok(Seen::Refused),
        };
    }
    for member in composite.members.iter() {
        let from = u64::from(member.bit_offset / 8);
        if offset + size <= from {
            break;
        }
        if let Some(width) = member.bitfield {
            let end = (u64::from(member.bit_offset) + u64::from(width)).div_ceil(8);
            if offset <= from && end <= offset + size {
                return Ok(Seen::Number);
            }
            continue;
        }
        if offset < from {
            break;
        }
        let Some(whole) = types.size_of(member.ty) else {
            return Ok(Seen::Refused);
        };
        let end = from + whole;
        if offset >= end {
            continue;
        }
        let (mut from, mut ty) = (from, types.strip(member.ty));
        let (mut is_array, mut is_renamed) = (false, false);
        while let Type::Array { elem, .. } = types.get(ty) {
            ty = types.strip(elem);
            is_array = true;
            is_renamed = ty != elem;
        }
        let each = types.size_of(ty).unwrap_or(0);
        if is_array && each > 0 {
            from += (offset - from) / each * each;
        }
        return match types.get(ty) {
            // At the very start of an element, older kernels look into the typedef, and find that it is no struct.
            Type::Struct(_) | Type::Union(_) if is_renamed && offset == from => Ok(Seen::Refused),
            Type::Struct(_) | Type::Union(_) => Err((ty, offset - from)),
            Type::Ptr(_) if offset != from || size != each => Ok(Seen::Refused),
            Type::Ptr(to) if matches!(types.get_stripped(to), Type::Struct(_) | Type::Union(_)) => {
                Ok(Seen::Pointer(types.complete(to)))
            }
            Type::Ptr(_) => Ok(Seen::Address),
            _ if offset + size > end => Ok(Seen::Refused),
            Type::Void
            | Type::Int(_)
            | Type::Float { .. }
            | Type::Array { .. }
            | Type::Enum(_)
            | Type::Fwd { .. }
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => Ok(Seen::Number),
        };
    }
    Ok(Seen::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::NameKind;
    use crate::types::testing::{Builder, Layout, types_of};

    fn seen(types: &Types, offset: u64, size: u64) -> Seen {
        let root = types.find(NameKind::Struct, "outer")[0];
        plain_load(types, root, offset, size)
    }

    #[test]
    fn unions_are_seen_by_their_first_member() {
        let mut b = Builder::new();
        let (int, long, char) = (b.ty("int"), b.ty("u64"), b.ty("char"));
        let small = b.composite("small", Layout::structure().field("parent", int));
        let list = b.ptr_later();
        let node = b.composite("node", Layout::structure().field("next", list));
        b.aim(list, node);
        let first = b.composite("", Layout::union().field("tree", small).field("wide", long));
        let second = b.composite("", Layout::union().field("list", node).field("count", int));
        let letters = b.array(char, 8);
        let callback = b.ptr(0);
        let outer = Layout::structure()
            .field("first", first)
            .field("second", second)
            .field("next", list)
            .field("letters", letters)
            .field("small", char)
            .bits("bits", int, 4)
            .field("callback", callback);
        b.composite("outer", outer);
        let types = types_of(&b.writer);
        // `wide`, behind a struct that is too small for it.
        assert_eq!(seen(&types, 0, 8), Seen::Refused);
        assert_eq!(seen(&types, 0, 4), Seen::Number);
        // `count`, where a pointer is seen.
        assert_eq!(seen(&types, 8, 4), Seen::Refused);
        let struct_named = |name| types.find(NameKind::Struct, name)[0];
        assert_eq!(seen(&types, 8, 8), Seen::Pointer(struct_named("node")));
        assert_eq!(seen(&types, 16, 8), Seen::Pointer(struct_named("node")));
        // Letters may be read several at once, up to the end of the array.
        assert_eq!(seen(&types, 26, 4), Seen::Number);
        assert_eq!(seen(&types, 28, 8), Seen::Refused);
        // A bitfield in the integer of its type, which another member begins.
        assert_eq!(seen(&types, 32, 4), Seen::Refused);
        // A pointer to no struct, whole or not at all.
        assert_eq!(seen(&types, 40, 8), Seen::Address);
        assert_eq!(seen(&types, 40, 4), Seen::Refused);
        // Behind the end.
        assert_eq!(seen(&types, 48, 4), Seen::Refused);
    }

    #[test]
    fn what_lies_behind_a_struct_is_seen_as_its_flexible_array() {
        let mut b = Builder::new();
        let long = b.ty("u64");
        let node = b.composite("node", Layout::structure().field("value", long));
        let other = b.composite("other", Layout::structure().field("value", long));
        let (node, other) = (b.ptr(node), b.ptr(other));
        let level = b.composite("level", Layout::structure().field("node", node).field("ra", long));
        let levels = b.array(level, 0);
        let outer = Layout::structure()
            .field("other", other)
            .field("count", long)
            .field("levels", levels);
        b.composite("outer", outer);
        let types = types_of(&b.writer);
        let node = types.find(NameKind::Struct, "node")[0];
        let other = types.find(NameKind::Struct, "other")[0];
        assert_eq!(seen(&types, 0, 8), Seen::Pointer(other));
        // `outer[1].other`, which is `outer->levels[0].node` to the verifier, and `outer[1].count`.
        assert_eq!(seen(&types, 16, 8), Seen::Pointer(node));
        assert_eq!(seen(&types, 24, 8), Seen::Number);
    }
}
