//! Which members of which kernel types an artifact mentions. In: relocations by member index. Out: shapes, and the same
//! relocations by name. Refuses what no loader can find by name.

use std::collections::BTreeMap;

use super::CodegenError;
use crate::ir::{RelocData, RelocKind};
use crate::types::{Composite, Member, Type, TypeId, Types};

/// One step below the root of a relocation.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A member, through any anonymous ones.
    Member(String),
    /// An array element.
    Index(u32),
}

/// What is known of a struct or union of the kernel's.
#[derive(Default)]
pub(super) struct Shape {
    pub(super) is_union: bool,
    pub(super) name: String,
    pub(super) members: Vec<Touched>,
    /// Its size is asked for, or it is copied as a whole: the local one gets the kernel's size.
    pub(super) whole: Option<u32>,
}

/// A member that some relocation mentions. Anonymous levels are flattened away: the loader goes by name through them.
pub(super) struct Touched {
    pub(super) name: String,
    pub(super) ty: TypeId,
    pub(super) bitfield: Option<u8>,
    pub(super) kernel_bits: u32,
    /// For each array dimension of its type that is indexed, how many elements there must be.
    pub(super) lengths: Vec<u32>,
}

pub(super) struct Shapes<'a> {
    pub(super) types: &'a Types,
    pub(super) of: BTreeMap<TypeId, Shape>,
}

impl Shapes<'_> {
    /// Notes what a relocation mentions, and gives its steps by name.
    pub(super) fn touch(&mut self, root: TypeId, reloc: &RelocData) -> Result<Vec<Step>, CodegenError> {
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
