//! The local types of an artifact: what the loader compares with the kernel's. In: the relocations of all programs. Out:
//! local structs with only the members that are touched, at offsets that are deliberately not the kernel's; for each
//! relocation its access string and the value that belongs in the instruction before relocation; the slice of the
//! kernel's types to relocate against. Never leaves a kernel offset in an instruction.

mod field;
mod shape;

use std::collections::BTreeMap;

use self::field::FieldPlace;
use self::shape::{Shape, Shapes, Step};
use super::CodegenError;
use crate::ir::{RelocData, RelocKind};
use crate::types::mini::{MiniTarget, mini_target};
use crate::types::write::{BtfWriter, Field, INT_BOOL, INT_CHAR, INT_SIGNED};
use crate::types::{Type, TypeId, Types};

/// Everything about one relocation that depends on the local types.
#[derive(Clone, Debug)]
pub(crate) struct LocalReloc {
    /// The local root.
    pub(crate) type_id: u32,
    /// The access string.
    pub(crate) access: String,
    /// `enum bpf_core_relo_kind`.
    pub(crate) kind: u32,
    /// What the loader computes from the local types and so wants to find in the instruction.
    pub(crate) value: u64,
}

/// The local types of an artifact.
pub(crate) struct Local {
    /// With the local types in it; the program's own go behind them.
    pub(crate) writer: BtfWriter,
    /// By function and relocation.
    pub(crate) relocs: Vec<Vec<LocalReloc>>,
    /// What to relocate against.
    pub(crate) target: MiniTarget,
}

/// Builds them.
pub(crate) fn build<'a>(
    types: &Types,
    relocs: impl Iterator<Item = Vec<&'a RelocData>> + Clone,
) -> Result<Local, CodegenError> {
    let mut shapes = Shapes {
        types,
        of: BTreeMap::new(),
    };
    let mut roots: Vec<TypeId> = Vec::new();
    let mut paths = Vec::new();
    for func in relocs.clone() {
        let mut list = Vec::new();
        for reloc in func {
            let root = types.complete(reloc.root);
            if !roots.contains(&root) {
                roots.push(root);
            }
            list.push(shapes.touch(root, reloc)?);
        }
        paths.push(list);
    }
    let wanted: Vec<(TypeId, Option<String>)> = roots.iter().map(|root| (*root, None)).collect();
    let target = mini_target(types, &wanted);
    for shape in shapes.of.values_mut() {
        shape.members.sort_by_key(|member| member.kernel_bits);
    }
    let mut layouts = Layouts {
        types,
        shapes: &shapes.of,
        target: &target,
        writer: BtfWriter::new(),
        done: BTreeMap::new(),
        leaves: BTreeMap::new(),
        pointer: None,
        index: None,
    };
    let mut result = Vec::new();
    for (func, paths) in relocs.zip(&paths) {
        let mut list = Vec::new();
        for (reloc, path) in func.into_iter().zip(paths) {
            list.push(layouts.reloc(types.complete(reloc.root), reloc, path)?);
        }
        result.push(list);
    }
    Ok(Local {
        writer: layouts.writer,
        relocs: result,
        target,
    })
}

/// A local type as it is laid out.
#[derive(Clone, Copy)]
struct Placed {
    id: u32,
    size: u32,
    align: u32,
}

/// A local struct with where its members are.
struct Laid {
    placed: Placed,
    /// By local index: bit offset and type.
    members: Vec<(u32, Placed)>,
}

struct Layouts<'a> {
    types: &'a Types,
    shapes: &'a BTreeMap<TypeId, Shape>,
    target: &'a MiniTarget,
    writer: BtfWriter,
    done: BTreeMap<TypeId, Laid>,
    leaves: BTreeMap<TypeId, Placed>,
    pointer: Option<u32>,
    index: Option<u32>,
}

impl Layouts<'_> {
    fn reloc(&mut self, root: TypeId, reloc: &RelocData, path: &[Step]) -> Result<LocalReloc, CodegenError> {
        let bad = |reason: &str| CodegenError::BadRelocation {
            text: reloc.text.clone(),
            reason: reason.to_string(),
        };
        let top = self
            .place(root, &[], 0)
            .ok_or_else(|| bad("a type contains itself"))?;
        let first = reloc.access.first().copied().unwrap_or(0);
        let mut access = match reloc.kind {
            RelocKind::TypeSize => "0".to_string(),
            RelocKind::FieldByteOffset
            | RelocKind::FieldByteSize
            | RelocKind::FieldLshiftU64
            | RelocKind::FieldRshiftU64 => first.to_string(),
        };
        let mut bits = u64::from(first) * u64::from(top.size) * 8;
        let mut at = root;
        let mut placed = top;
        let mut width = None;
        let mut lengths: &[u32] = &[];
        for step in path {
            match step {
                Step::Member(name) => {
                    let shape = &self.shapes.get(&at).ok_or_else(|| bad("a struct was lost"))?;
                    let found = shape.members.iter().position(|member| member.name == *name);
                    let index = found.ok_or_else(|| bad("a member was lost"))?;
                    let member = &shape.members[index];
                    let laid = self.done.get(&at).ok_or_else(|| bad("a struct was lost"))?;
                    let (offset, member_placed) = laid.members[index];
                    bits += u64::from(offset);
                    placed = member_placed;
                    width = member.bitfield;
                    lengths = &member.lengths;
                    access.push_str(&format!(":{index}"));
                    at = self.types.complete(member.ty);
                }
                Step::Index(index) => {
                    let Type::Array { elem, .. } = self.types.get(at) else {
                        return Err(bad("an array was lost"));
                    };
                    at = self.types.complete(elem);
                    lengths = lengths.split_first().map_or(lengths, |(_, rest)| rest);
                    let size = self.size(at, lengths);
                    bits += u64::from(*index) * u64::from(size) * 8;
                    placed.size = size;
                    access.push_str(&format!(":{index}"));
                }
            }
        }
        let field = FieldPlace::new(bits, placed.size, width).ok_or_else(|| bad("a bitfield is too wide"))?;
        let (kind, value) = match reloc.kind {
            RelocKind::FieldByteOffset => (0, field.byte_offset),
            RelocKind::FieldByteSize => (1, field.byte_size),
            RelocKind::FieldLshiftU64 => (4, field.lshift()),
            RelocKind::FieldRshiftU64 => (5, field.rshift()),
            RelocKind::TypeSize => (9, u64::from(top.size)),
        };
        if value > i32::MAX as u64 {
            return Err(bad("its local value does not fit into an instruction"));
        }
        Ok(LocalReloc {
            type_id: top.id,
            access,
            kind,
            value,
        })
    }

    /// Size of a type that has been placed with these array lengths.
    fn size(&self, id: TypeId, lengths: &[u32]) -> u32 {
        if let Type::Array { elem, .. } = self.types.get(id) {
            let (length, rest) = split_lengths(lengths);
            return self.size(self.types.complete(elem), rest).saturating_mul(length);
        }
        match self.done.get(&id) {
            Some(laid) => laid.placed.size,
            None => self.leaves.get(&id).map_or(0, |leaf| leaf.size),
        }
    }

    /// Writes a type and everything in it. `None` for a type that contains itself.
    fn place(&mut self, id: TypeId, lengths: &[u32], depth: usize) -> Option<Placed> {
        if depth > 64 {
            return None;
        }
        if let Some(laid) = self.done.get(&id) {
            return Some(laid.placed);
        }
        if let Some(shape) = self.shapes.get(&id) {
            return self.struct_(id, shape, depth);
        }
        if let Type::Array { elem, .. } = self.types.get(id) {
            let (length, rest) = split_lengths(lengths);
            let elem = self.place(self.types.complete(elem), rest, depth + 1)?;
            let index = match self.index {
                Some(index) => index,
                None => *self.index.insert(self.writer.int("__ARRAY_SIZE_TYPE__", 4, 0)),
            };
            return Some(Placed {
                id: self.writer.array(elem.id, index, length),
                size: elem.size.checked_mul(length)?,
                align: elem.align,
            });
        }
        if let Some(leaf) = self.leaves.get(&id) {
            return Some(*leaf);
        }
        let leaf = self.leaf(id);
        self.leaves.insert(id, leaf);
        Some(leaf)
    }

    fn struct_(&mut self, id: TypeId, shape: &Shape, depth: usize) -> Option<Placed> {
        let mut members: Vec<(u32, Placed)> = Vec::new();
        let mut end = 0u32;
        let mut align = 1;
        for member in &shape.members {
            let placed = self.place(self.types.complete(member.ty), &member.lengths, depth + 1)?;
            align = align.max(placed.align);
            let mut offset = end.checked_next_multiple_of(placed.align)?;
            if shape.is_union {
                offset = 0;
            } else if shape.whole.is_none() && offset.checked_mul(8)? == member.kernel_bits {
                // Nothing may work by accident of the local and the kernel's offset being the same.
                offset = offset.checked_add(placed.align)?;
            }
            // Beside a bitfield, the kernel takes any enum for an `int` when it looks whether the struct holds it
            // (kernel/bpf/btf.c, `btf_enum_check_kflag_member`).
            let is_enum = matches!(self.types.get(self.types.complete(member.ty)), Type::Enum(_));
            let room = if is_enum { placed.size.max(4) } else { placed.size };
            end = end.max(offset.checked_add(room)?);
            members.push((offset.checked_mul(8)?, placed));
        }
        let mut size = end.max(1).checked_next_multiple_of(align)?;
        if let Some(whole) = shape.whole {
            size = size.max(whole);
        }
        let fields: Vec<Field<'_>> = shape
            .members
            .iter()
            .zip(&members)
            .map(|(member, (bits, placed))| Field {
                name: &member.name,
                ty: placed.id,
                bit_offset: *bits,
                width: member.bitfield.unwrap_or(0),
            })
            .collect();
        let name = self.target.names.get(&id).unwrap_or(&shape.name);
        let placed = Placed {
            id: self.writer.composite(shape.is_union, name, size, &fields),
            size,
            align,
        };
        self.done.insert(id, Laid { placed, members });
        Some(placed)
    }

    fn leaf(&mut self, id: TypeId) -> Placed {
        let name = match self.target.names.get(&id) {
            Some(name) => name.clone(),
            None => self.types.name(id),
        };
        let sized = |id, size: u32| Placed {
            id,
            size,
            align: size.clamp(1, 8).next_power_of_two(),
        };
        match self.types.get(id) {
            Type::Int(int) => {
                // The kernel takes one of these bits only (kernel/bpf/btf.c, `btf_int_check_meta`).
                let encoding = match (int.is_bool, int.signed, int.is_char) {
                    (true, _, _) => INT_BOOL,
                    (false, true, _) => INT_SIGNED,
                    (false, false, true) => INT_CHAR,
                    (false, false, false) => 0,
                };
                sized(self.writer.int(&name, int.size, encoding), int.size)
            }
            Type::Float { size } => sized(self.writer.float(&name, size), size),
            // Constants are not compared. The name is, and in the slice it is another one if two enums share it.
            Type::Enum(e) => {
                let name = self.target.map.get(&id);
                let name = name.and_then(|id| super::dump::name_of(&self.target.bytes, *id));
                sized(
                    self.writer.enum_(&name.unwrap_or_default(), e.size, false, &[]),
                    e.size,
                )
            }
            Type::Void
            | Type::Ptr(_)
            | Type::Array { .. }
            | Type::Struct(_)
            | Type::Union(_)
            | Type::Fwd { .. }
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => {
                let pointer = match self.pointer {
                    Some(pointer) => pointer,
                    None => *self.pointer.insert(self.writer.ptr(0)),
                };
                sized(pointer, 8)
            }
        }
    }
}

/// How long an array is, and what is left for the dimensions inside it. One that nobody indexes has one element.
fn split_lengths(lengths: &[u32]) -> (u32, &[u32]) {
    match lengths.split_first() {
        Some((length, rest)) => (*length, rest),
        None => (1, lengths),
    }
}
