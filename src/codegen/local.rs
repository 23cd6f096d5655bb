//! The local types of an artifact: what the loader compares with the kernel's. In: the relocations of all programs. Out:
//! local structs with only the members that are touched, at offsets that are deliberately not the kernel's; for each
//! relocation its access string and the value that belongs in the instruction before relocation; the slice of the
//! kernel's types to relocate against. Never leaves a kernel offset in an instruction.

use std::collections::BTreeMap;

use super::CodegenError;
use crate::ir::{RelocData, RelocKind};
use crate::types::mini::{MiniTarget, mini_target};
use crate::types::write::{BtfWriter, Field, INT_BOOL, INT_CHAR, INT_SIGNED};
use crate::types::{Composite, Member, Type, TypeId, Types};

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

/// One step below the root of a relocation.
#[derive(Clone, Debug)]
enum Step {
    /// A member, through any anonymous ones.
    Member(String),
    /// An array element.
    Index(u32),
}

/// What is known of a struct or union of the kernel's.
#[derive(Default)]
struct Shape {
    is_union: bool,
    name: String,
    members: Vec<Touched>,
    /// Its size is asked for, or it is copied as a whole: the local one gets the kernel's size.
    whole: Option<u32>,
}

/// A member that some relocation mentions. Anonymous levels are flattened away: the loader goes by name through them.
struct Touched {
    name: String,
    ty: TypeId,
    bitfield: Option<u8>,
    kernel_bits: u32,
    /// For each array dimension of its type that is indexed, how many elements there must be.
    lengths: Vec<u32>,
}

struct Shapes<'a> {
    types: &'a Types,
    of: BTreeMap<TypeId, Shape>,
}

impl Shapes<'_> {
    /// Notes what a relocation mentions, and gives its steps by name.
    fn touch(&mut self, root: TypeId, reloc: &RelocData) -> Result<Vec<Step>, CodegenError> {
        let bad = |reason: &str| CodegenError::BadRelocation {
            text: reloc.text.clone(),
            reason: reason.to_string(),
        };
        let mut steps = Vec::new();
        if let Some(composite) = composite(self.types, root) {
            self.shape(root, &composite);
        }
        if reloc.kind == RelocKind::TypeSize {
            return Ok(steps);
        }
        let mut at = root;
        let mut rest = reloc.access.get(1..).unwrap_or_default().iter();
        // The member whose array dimensions are being walked, and how many of them have been.
        let mut array: Option<(TypeId, String, usize)> = None;
        let mut bitfield = false;
        while let Some(index) = rest.next() {
            if bitfield {
                return Err(bad("it goes on after a bitfield"));
            }
            if let Type::Array { elem, .. } = self.types.get(at) {
                let Some((owner, name, depth)) = &mut array else {
                    return Err(bad("its root is an array"));
                };
                self.lengthen(*owner, name, *depth, index.saturating_add(1));
                *depth += 1;
                steps.push(Step::Index(*index));
                at = self.types.complete(elem);
                continue;
            }
            let owner = at;
            let top =
                composite(self.types, owner).ok_or_else(|| bad("it goes into a type without members"))?;
            let mut level = top.clone();
            let mut index = *index;
            let mut bits = 0u32;
            let member = loop {
                let member = level
                    .members
                    .get(index as usize)
                    .ok_or_else(|| bad("it has no such member"))?;
                bits = bits
                    .checked_add(member.bit_offset)
                    .ok_or_else(|| bad("its offset is too big"))?;
                if !member.name.is_empty() {
                    break member.clone();
                }
                level = composite(self.types, self.types.complete(member.ty))
                    .ok_or_else(|| bad("it goes into an anonymous member without members"))?;
                index = match rest.next() {
                    Some(index) => *index,
                    // The anonymous member itself is meant. It has no name, so one of its members at the same place
                    // stands for it; only its offset can be asked for then.
                    None if reloc.kind == RelocKind::FieldByteOffset => level
                        .members
                        .iter()
                        .position(|member| member.bit_offset == 0 && member.bitfield.is_none())
                        .ok_or_else(|| bad("an anonymous member has nothing at its start"))?
                        as u32,
                    None => return Err(bad("an anonymous member has only an offset")),
                };
            };
            if first_named(self.types, &top, &member.name, 0) != Some(bits) {
                return Err(bad("another member of the same name comes first"));
            }
            self.member(owner, &top, &member, bits);
            bitfield = member.bitfield.is_some();
            array = Some((owner, member.name.clone(), 0));
            steps.push(Step::Member(member.name.clone()));
            at = self.types.complete(member.ty);
        }
        // What is meant as a whole has its kernel size here too: loaders compare sizes.
        match self.types.get(at) {
            Type::Struct(composite) | Type::Union(composite) => {
                self.shape(at, &composite).whole = Some(composite.size);
            }
            Type::Array { .. } => {
                if let Some((owner, name, depth)) = array {
                    let mut depth = depth;
                    while let Type::Array { elem, len } = self.types.get(at) {
                        self.lengthen(owner, &name, depth, len.max(1));
                        depth += 1;
                        at = self.types.complete(elem);
                    }
                    if let Some(composite) = composite(self.types, at) {
                        self.shape(at, &composite).whole = Some(composite.size);
                    }
                }
            }
            Type::Void
            | Type::Int(_)
            | Type::Float { .. }
            | Type::Ptr(_)
            | Type::Enum(_)
            | Type::Fwd { .. }
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => {}
        }
        Ok(steps)
    }

    fn shape(&mut self, id: TypeId, composite: &Composite) -> &mut Shape {
        let is_union = matches!(self.types.get(id), Type::Union(_));
        self.of.entry(id).or_insert_with(|| Shape {
            is_union,
            name: composite.name.to_string(),
            ..Shape::default()
        })
    }

    fn member(&mut self, owner: TypeId, composite: &Composite, member: &Member, bits: u32) {
        let shape = self.shape(owner, composite);
        if !shape.members.iter().any(|known| known.name == member.name) {
            shape.members.push(Touched {
                name: member.name.clone(),
                ty: member.ty,
                bitfield: member.bitfield,
                kernel_bits: bits,
                lengths: Vec::new(),
            });
        }
        // A struct that is held by value needs a shape, even if nothing in it is mentioned.
        let mut inner = self.types.complete(member.ty);
        while let Type::Array { elem, .. } = self.types.get(inner) {
            inner = self.types.complete(elem);
        }
        if let Some(composite) = self::composite(self.types, inner) {
            self.shape(inner, &composite);
        }
    }

    fn lengthen(&mut self, owner: TypeId, name: &str, depth: usize, length: u32) {
        let Some(shape) = self.of.get_mut(&owner) else {
            return;
        };
        if let Some(member) = shape.members.iter_mut().find(|member| member.name == name) {
            if member.lengths.len() <= depth {
                member.lengths.resize(depth + 1, 1);
            }
            member.lengths[depth] = member.lengths[depth].max(length);
        }
    }
}

fn composite(types: &Types, id: TypeId) -> Option<Composite> {
    match types.get(id) {
        Type::Struct(composite) | Type::Union(composite) => Some(composite),
        Type::Void
        | Type::Int(_)
        | Type::Float { .. }
        | Type::Ptr(_)
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
        | Type::Other => None,
    }
}

/// Anonymous members nest this deep at most; deeper is broken BTF.
const NESTING_MAX: usize = 32;

/// Where a loader finds a name: in order of declaration, into anonymous members as they come.
fn first_named(types: &Types, composite: &Composite, name: &str, depth: usize) -> Option<u32> {
    for member in composite.members.iter() {
        if member.name == name {
            return Some(member.bit_offset);
        }
        if member.name.is_empty()
            && depth < NESTING_MAX
            && let Some(inner) = self::composite(types, types.complete(member.ty))
            && let Some(bits) = first_named(types, &inner, name, depth + 1)
        {
            return member.bit_offset.checked_add(bits);
        }
    }
    None
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
            end = end.max(offset.checked_add(placed.size)?);
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
                let mut encoding = 0;
                if int.signed {
                    encoding |= INT_SIGNED;
                }
                if int.is_bool {
                    encoding |= INT_BOOL;
                } else if int.is_char {
                    encoding |= INT_CHAR;
                }
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

/// Where a field is, the way loaders compute it.
struct FieldPlace {
    byte_offset: u64,
    byte_size: u64,
    bit_offset: u64,
    bit_size: u64,
}

impl FieldPlace {
    /// For a bitfield the unit is its declared type's size, aligned, and grows until the field fits; `None` if that
    /// would be more than 8 bytes.
    fn new(bits: u64, size: u32, width: Option<u8>) -> Option<FieldPlace> {
        let mut byte_size = u64::from(size);
        let Some(width) = width else {
            return Some(FieldPlace {
                byte_offset: bits / 8,
                byte_size,
                bit_offset: bits,
                bit_size: 8 * byte_size,
            });
        };
        let width = u64::from(width);
        byte_size = byte_size.max(1);
        let mut byte_offset = bits / 8 / byte_size * byte_size;
        while bits + width - 8 * byte_offset > 8 * byte_size {
            if byte_size >= 8 {
                return None;
            }
            byte_size *= 2;
            byte_offset = bits / 8 / byte_size * byte_size;
        }
        Some(FieldPlace {
            byte_offset,
            byte_size,
            bit_offset: bits,
            bit_size: width,
        })
    }

    fn lshift(&self) -> u64 {
        let used = self.bit_offset + self.bit_size - 8 * self.byte_offset;
        64u64.saturating_sub(used)
    }

    fn rshift(&self) -> u64 {
        64u64.saturating_sub(self.bit_size)
    }
}
