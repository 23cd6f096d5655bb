//! A slice of the kernel's BTF with just the types on a query's path, taken by id, for CO-RE relocation against it.
//! In: the roots. Out: a small BTF object, and which of its types stands for which of the kernel's. Types that a root
//! holds by value are copied whole; pointers become `void *`; typedefs and modifiers vanish. Never has two structs that a
//! relocation could confuse.

use std::collections::{BTreeMap, BTreeSet};

use super::write::{BtfWriter, Field, INT_BOOL, INT_CHAR, INT_SIGNED};
use super::{CHAIN_MAX, Composite, Enum, Int, Type, TypeId, Types};

/// What `mini_target` makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MiniTarget {
    /// The BTF object.
    pub bytes: Vec<u8>,
    /// The id in `bytes` of each root (as it was given, and without typedefs and modifiers) and of all that was copied
    /// with them.
    pub map: BTreeMap<TypeId, u32>,
    /// The name that each root has there. It is the kernel's, unless that was taken, has no name, or a CO-RE loader
    /// would read a flavour into it; the local BTF must use this name.
    pub names: BTreeMap<TypeId, String>,
}

/// Copies the roots, each of which may ask for a name other than the kernel's.
pub fn mini_target(types: &Types, roots: &[(TypeId, Option<String>)]) -> MiniTarget {
    let mut copier = Copier {
        types,
        writer: BtfWriter::new(),
        map: BTreeMap::new(),
        open: BTreeSet::new(),
        root_names: BTreeMap::new(),
        taken: BTreeSet::new(),
        void_ptr: None,
        index: None,
    };
    // All roots get their names before anything is copied, so that a copy nested in one can't take another's.
    let mut names = BTreeMap::new();
    for (id, wanted) in roots {
        let root = types.complete(*id);
        if !copier.root_names.contains_key(&root) {
            let wanted = wanted.clone().unwrap_or_else(|| types.name(root));
            let name = copier.claim(&wanted);
            copier.root_names.insert(root, name);
        }
        names.insert(*id, copier.root_names[&root].clone());
        names.insert(root, copier.root_names[&root].clone());
    }
    for (id, _) in roots {
        let copied = copier.copy(types.complete(*id), 0);
        copier.map.insert(*id, copied);
    }
    MiniTarget {
        bytes: copier.writer.finish(),
        map: copier.map,
        names,
    }
}

/// The kernel nests structs by value about ten deep.
const DEPTH_MAX: usize = 48;

struct Copier<'a> {
    types: &'a Types,
    writer: BtfWriter,
    map: BTreeMap<TypeId, u32>,
    /// Composites whose members are being copied; meeting one again means that the BTF is broken.
    open: BTreeSet<TypeId>,
    root_names: BTreeMap<TypeId, String>,
    taken: BTreeSet<String>,
    void_ptr: Option<u32>,
    index: Option<u32>,
}

impl Copier<'_> {
    fn copy(&mut self, id: TypeId, depth: usize) -> u32 {
        let id = self.types.strip(id);
        if id.is_void() {
            return 0;
        }
        if let Some(known) = self.map.get(&id) {
            return *known;
        }
        if depth > DEPTH_MAX || self.open.contains(&id) {
            return self.pointer();
        }
        let copied = match self.types.get(id) {
            Type::Ptr(_) => self.pointer(),
            Type::Int(int) => self.int(id, &int),
            Type::Float { size } => {
                let name = self.types.name(id);
                self.writer.float(&name, size)
            }
            Type::Array { elem, len } => self.array(id, elem, len, depth),
            Type::Struct(composite) => self.composite(id, false, &composite, depth),
            Type::Union(composite) => self.composite(id, true, &composite, depth),
            Type::Enum(e) => self.enumeration(id, &e),
            Type::Fwd { is_union } => {
                let name = self.name_of(id, &self.types.name(id));
                self.writer.fwd(&name, is_union)
            }
            // Only a pointer can lead to a function, and `strip` has removed the rest.
            Type::Void
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => return self.pointer(),
        };
        self.map.insert(id, copied);
        copied
    }

    fn composite(&mut self, id: TypeId, is_union: bool, composite: &Composite, depth: usize) -> u32 {
        self.open.insert(id);
        let tys: Vec<u32> = composite
            .members
            .iter()
            .map(|member| self.copy(member.ty, depth + 1))
            .collect();
        self.open.remove(&id);
        let fields: Vec<Field<'_>> = composite
            .members
            .iter()
            .zip(tys)
            .map(|(member, ty)| Field {
                name: &member.name,
                ty,
                bit_offset: member.bit_offset,
                width: member.bitfield.unwrap_or(0),
            })
            .collect();
        let name = self.name_of(id, &composite.name);
        self.writer.composite(is_union, &name, composite.size, &fields)
    }

    fn array(&mut self, id: TypeId, elem: TypeId, len: u32, depth: usize) -> u32 {
        if depth + 1 > CHAIN_MAX {
            return self.pointer();
        }
        self.open.insert(id);
        let elem = self.copy(elem, depth + 1);
        self.open.remove(&id);
        let index = match self.index {
            Some(index) => index,
            None => *self.index.insert(self.writer.int("__ARRAY_SIZE_TYPE__", 4, 0)),
        };
        self.writer.array(elem, index, len)
    }

    fn enumeration(&mut self, id: TypeId, e: &Enum) -> u32 {
        // A loader compares the names of enums, also of those that are only a member's type: so a nested one keeps its
        // name, unless that is a root's, of which there may be only one.
        let root_has_it = self.root_names.values().any(|name| **name == *e.name);
        let name = if self.root_names.contains_key(&id) || root_has_it {
            self.name_of(id, &e.name)
        } else {
            e.name.to_string()
        };
        let values: Vec<(&str, i128)> = e
            .values
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
            .collect();
        self.writer.enum_(&name, e.size, e.signed, &values)
    }

    fn int(&mut self, id: TypeId, int: &Int) -> u32 {
        // The kernel takes one of these bits only (kernel/bpf/btf.c, `btf_int_check_meta`).
        let encoding = match (int.is_bool, int.signed, int.is_char) {
            (true, _, _) => INT_BOOL,
            (false, true, _) => INT_SIGNED,
            (false, false, true) => INT_CHAR,
            (false, false, false) => 0,
        };
        let name = self.types.name(id);
        // Old bitfields have become members with a width of their own, so that every integer here is a whole one.
        self.writer.int(&name, int.size, encoding)
    }

    fn pointer(&mut self) -> u32 {
        match self.void_ptr {
            Some(pointer) => pointer,
            None => *self.void_ptr.insert(self.writer.ptr(0)),
        }
    }

    /// A root's name, or a name that is no root's.
    fn name_of(&mut self, id: TypeId, own: &str) -> String {
        if let Some(name) = self.root_names.get(&id) {
            return name.clone();
        }
        if own.is_empty() {
            String::new()
        } else {
            self.claim(own)
        }
    }

    /// The name, or one like it that nothing else has. Three underscores in a row would be read as a flavour.
    fn claim(&mut self, wanted: &str) -> String {
        let mut plain = if wanted.is_empty() {
            "anonymous".to_string()
        } else {
            wanted.to_string()
        };
        while plain.contains("___") {
            plain = plain.replace("___", "__");
        }
        let mut name = plain.clone();
        let mut number = 2;
        while !self.taken.insert(name.clone()) {
            name = format!("{plain}__{number}");
            number += 1;
        }
        name
    }
}
