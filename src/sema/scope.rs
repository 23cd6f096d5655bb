//! Which types and constants a query sees: those of the traced program first, if it is about one, then the kernel's. In: names.
//! Out: types. Never says how a mistake is told, but for where was looked.

use super::Sema;
use crate::ctype::CType;
use crate::types::{Enum, Int, NameKind, Type, TypeId};

impl Sema<'_> {
    /// All types of this name and kind; the program's first.
    pub(super) fn types_named(&self, kind: NameKind, name: &str) -> Vec<TypeId> {
        let mut found = self.types.find_in_program(self.module, kind, name);
        found.extend(self.types.find(kind, name));
        found
    }

    /// Enum constants of this name. What the program calls so is meant, whatever the kernel calls so.
    pub(super) fn enum_constant(&self, name: &str) -> Vec<(TypeId, i128)> {
        if self.user {
            let units = self.types.units(self.module).into_iter();
            let own: Vec<(TypeId, i128)> = units
                .flat_map(|unit| self.types.enum_constant_of(unit, name))
                .collect();
            if !own.is_empty() {
                return own;
            }
        }
        self.types.enum_constant(name)
    }

    /// The names of all enum constants, for suggestions.
    pub(super) fn enum_constants(&self) -> Vec<String> {
        if !self.suggests {
            return Vec::new();
        }
        let mut names = self.types.enum_constants();
        if self.user {
            for unit in self.types.units(self.module) {
                names.extend(self.types.enum_constants_of(unit));
            }
        }
        names
    }

    /// The names of all types of a kind, for suggestions.
    pub(super) fn names_of(&self, kind: NameKind) -> Vec<String> {
        if !self.suggests {
            return Vec::new();
        }
        let mut names = self.types.names_of(kind);
        if self.user {
            for unit in self.types.units(self.module) {
                names.extend(self.types.names_in(unit, kind));
            }
            names.sort();
            names.dedup();
        }
        names
    }

    /// Why there is nothing to compute with in a value of that type.
    pub(super) fn why_opaque(&self, ty: &CType) -> String {
        let CType::Btf(id) = ty else {
            return "it is no value".to_string();
        };
        let id = self.types.complete(*id);
        match self.types.get(id) {
            Type::Int(Int { size, .. }) | Type::Enum(Enum { size, .. }) => {
                format!("a number of {size} bytes is only shown, with the struct that it is in")
            }
            Type::Fwd { .. } if id.is_program() => "its definition is not in the program's BTF".to_string(),
            Type::Fwd { .. } => "its definition is not in the kernel's BTF".to_string(),
            Type::Func { .. } | Type::FuncProto { .. } => "a function".to_string(),
            Type::Void
            | Type::Float { .. }
            | Type::Ptr(_)
            | Type::Array { .. }
            | Type::Struct(_)
            | Type::Union(_)
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Other => "it is no value".to_string(),
        }
    }

    /// Where a name was looked for.
    pub(super) fn not_in_btf(&self) -> &'static str {
        match (self.user, self.types.has_program(self.module)) {
            (false, _) => "not in the kernel's BTF",
            (true, true) => "neither in the program's BTF nor in the kernel's",
            (true, false) => {
                "not in the kernel's BTF; the program has none, and `--types FILE` gives it some"
            }
        }
    }
}
