//! Members by name. In: a struct or union, seen through typedefs, modifiers and forward declarations. Out: where the
//! member is, through any depth of anonymous nesting as in C. Never visits a struct twice in one look-up, so that a
//! struct which contains itself can't keep it busy.

use std::collections::BTreeSet;

use super::{Composite, MemberError, MemberErrorKind, MemberPath, Type, TypeId, Types};
use crate::suggest::nearest;

impl Types {
    /// Finds a member by name, also inside anonymous structs and unions.
    pub fn member(&self, composite: TypeId, name: &str) -> Result<MemberPath, MemberError> {
        let root = self.complete(composite);
        if let Some(top) = self.composite(root) {
            let mut seen = BTreeSet::from([root]);
            let mut indices = Vec::new();
            if !name.is_empty()
                && let Some(path) = self.search(root, &top, name, 0, &mut indices, &mut seen)
            {
                return Ok(path);
            }
            let names = self.member_names(root);
            let near = nearest(name, names.iter().map(String::as_str));
            let candidates = near.into_iter().map(str::to_string).collect();
            return Err(MemberError {
                kind: MemberErrorKind::NoSuchMember,
                candidates,
            });
        }
        let kind = match self.get(root) {
            Type::Fwd { .. } => MemberErrorKind::Incomplete,
            Type::Void
            | Type::Int(_)
            | Type::Float { .. }
            | Type::Ptr(_)
            | Type::Array { .. }
            | Type::Struct(_)
            | Type::Union(_)
            | Type::Enum(_)
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => MemberErrorKind::NotComposite,
        };
        Err(MemberError {
            kind,
            candidates: Vec::new(),
        })
    }

    /// The names of all members, those inside anonymous structs and unions in their place; empty if there are none.
    pub fn member_names(&self, composite: TypeId) -> Vec<String> {
        let root = self.complete(composite);
        let mut names = Vec::new();
        if let Some(top) = self.composite(root) {
            self.collect(&top, &mut names, &mut BTreeSet::from([root]), 0);
        }
        names
    }

    /// Where a member lies that C finds by a macro only, as `sk_state` of `struct sock` is `__sk_common.skc_state`: in a named struct
    /// of the struct, under the same name or one with another prefix. The first one, from the outside in.
    pub fn inner_member(&self, composite: TypeId, name: &str) -> Option<String> {
        /// How deep a macro reaches: `inet_dport` of `struct inet_sock` is `sk.__sk_common.skc_dport`.
        const DEPTH: usize = 3;
        let tail = |name: &str| name.split_once('_').map(|(_, tail)| tail.to_string());
        let wanted = tail(name).filter(|tail| tail.len() > 2);
        let mut level = vec![(String::new(), self.complete(composite))];
        for depth in 0..DEPTH {
            let mut below = Vec::new();
            for (path, id) in level {
                for inner in self.member_names(id) {
                    let known = inner == name || (wanted.is_some() && tail(&inner) == wanted);
                    if depth > 0 && known {
                        return Some(format!("{path}{inner}"));
                    }
                    if let Ok(found) = self.member(id, &inner)
                        && self.composite(found.ty).is_some()
                    {
                        below.push((format!("{path}{inner}."), self.complete(found.ty)));
                    }
                }
            }
            level = below;
        }
        None
    }

    /// The struct or union behind typedefs, modifiers and a forward declaration.
    pub fn composite(&self, id: TypeId) -> Option<Composite> {
        match self.get(self.complete(id)) {
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

    fn search(
        &self,
        root: TypeId,
        composite: &Composite,
        name: &str,
        base: u32,
        indices: &mut Vec<u32>,
        seen: &mut BTreeSet<TypeId>,
    ) -> Option<MemberPath> {
        if let Some((index, member)) = composite.members.iter().enumerate().find(|(_, m)| m.name == name) {
            let mut indices = indices.clone();
            indices.push(index as u32);
            let bit_offset = base.checked_add(member.bit_offset)?;
            return Some(MemberPath {
                root,
                indices,
                bit_offset,
                ty: member.ty,
                bitfield: member.bitfield,
            });
        }
        if indices.len() >= NESTING_MAX {
            return None;
        }
        for (index, member) in composite
            .members
            .iter()
            .enumerate()
            .filter(|(_, m)| m.name.is_empty())
        {
            let inner = self.strip(member.ty);
            // Without a name it is inlined whether or not its type has one: the kernel also uses that extension.
            if let Some(nested) = self.composite(inner)
                && seen.insert(inner)
                && let Some(base) = base.checked_add(member.bit_offset)
            {
                indices.push(index as u32);
                let found = self.search(root, &nested, name, base, indices, seen);
                indices.pop();
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    fn collect(
        &self,
        composite: &Composite,
        names: &mut Vec<String>,
        seen: &mut BTreeSet<TypeId>,
        depth: usize,
    ) {
        for member in composite.members.iter() {
            if !member.name.is_empty() {
                names.push(member.name.clone());
                continue;
            }
            let inner = self.strip(member.ty);
            if depth < NESTING_MAX
                && let Some(nested) = self.composite(inner)
                && seen.insert(inner)
            {
                self.collect(&nested, names, seen, depth + 1);
            }
        }
    }
}

/// libbpf and aya stop at 64 steps of an access string.
const NESTING_MAX: usize = 32;
