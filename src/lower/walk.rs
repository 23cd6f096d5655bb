//! Which plain loads through a typed pointer the kernel's verifier lets pass: its `btf_struct_walk` (kernel/bpf/btf.c)
//! retold. In: a struct, an offset, a size. Out: yes or no; where kernels differ, no, since a probe read does as well.

use crate::types::{Type, TypeId, Types};

/// Whether `size` bytes at `offset` of that struct or union may be loaded. The verifier goes by the first member that lies there,
/// so that what follows it in a packed struct, or is larger in a union, is out of its reach.
pub(super) fn allows(types: &Types, root: TypeId, offset: u64, size: u64) -> bool {
    let (Type::Struct(composite) | Type::Union(composite)) = types.get_stripped(root) else {
        return false;
    };
    let end = offset + size;
    if end > u64::from(composite.size) {
        return false;
    }
    for member in composite.members.iter() {
        let bit = u64::from(member.bit_offset);
        let start = bit / 8;
        if end <= start {
            return false;
        }
        if let Some(width) = member.bitfield {
            if offset <= start && (bit + u64::from(width)).div_ceil(8) <= end {
                return true;
            }
            continue;
        }
        if offset < start {
            return false;
        }
        let whole = types.size_of(member.ty).unwrap_or(0);
        if offset >= start + whole {
            continue;
        }
        let (ty, inside, each) = element(types, member.ty, offset - start, whole);
        return match types.get_stripped(ty) {
            Type::Struct(_) | Type::Union(_) => allows(types, ty, inside, size),
            Type::Ptr(_) => inside == 0 && size == each,
            Type::Int(_) | Type::Enum(_) => end <= start + whole,
            Type::Void
            | Type::Float { .. }
            | Type::Array { .. }
            | Type::Fwd { .. }
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => false,
        };
    }
    false
}

/// The element of an array, of all its dimensions, in which an offset lies: its type, the offset in it, its size.
fn element(types: &Types, ty: TypeId, offset: u64, size: u64) -> (TypeId, u64, u64) {
    let (mut ty, mut offset, mut size) = (ty, offset, size);
    while let Type::Array { elem, .. } = types.get_stripped(ty) {
        size = types.size_of(elem).unwrap_or(0);
        offset = offset.checked_rem(size).unwrap_or(0);
        ty = elem;
    }
    (ty, offset, size)
}
