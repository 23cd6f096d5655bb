//! Unit tests of the type reader and the BTF writer, over BTF that they build themselves.

mod hostile;
mod reading;
mod spelling;
mod writing;

use super::{NameKind, TypeId, Types};

/// The only struct of this name.
fn structure(types: &Types, name: &str) -> TypeId {
    let found = types.find(NameKind::Struct, name);
    assert_eq!(found.len(), 1, "struct {name}");
    found[0]
}

/// (indices, bit offset, bitfield width, C spelling) of a member.
fn place(types: &Types, composite: TypeId, name: &str) -> (Vec<u32>, u32, Option<u8>, String) {
    let path = types
        .member(composite, name)
        .unwrap_or_else(|error| panic!("{name}: {error:?}"));
    (
        path.indices,
        path.bit_offset,
        path.bitfield,
        types.c_name(path.ty),
    )
}
