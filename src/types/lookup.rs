//! From names to types: functions, structs, enum constants, tracepoints, in every loaded BTF object. An exact name costs
//! one pass over the names of each object, and only once; nothing is scanned unless the caller asks for a list.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kinds of types are btf-rs's, and may become more"
)]

use std::rc::Rc;

use btf_rs::BtfType;

use super::{Func, NameKind, Object, Param, Type, TypeId, Types};

impl Types {
    /// Functions of exactly this name, in vmlinux first and then in modules as they were added.
    pub fn functions_named(&self, name: &str) -> Vec<Func> {
        self.ids_named(name)
            .into_iter()
            .filter_map(|id| self.func(id))
            .collect()
    }

    /// Every function of one module, by id. Scans the module: for globs and suggestions.
    pub fn functions(&self, module: u16) -> Vec<(TypeId, String)> {
        let mut found = Vec::new();
        self.scan(module, |object, id, raw| {
            if let btf_rs::Type::Func(func) = raw {
                found.push((id, object.text(func)));
            }
        });
        found
    }

    /// All types of this name and kind. Definitions come first, forward declarations last; each group by id.
    pub fn find(&self, kind: NameKind, name: &str) -> Vec<TypeId> {
        if name.is_empty() {
            return Vec::new();
        }
        self.of_kind(self.ids_named(name), kind)
    }

    /// Those of the types that are of this kind, definitions first.
    pub(super) fn of_kind(&self, ids: Vec<TypeId>, kind: NameKind) -> Vec<TypeId> {
        let mut definitions = Vec::new();
        let mut forwards = Vec::new();
        for id in ids {
            let found = match self.get(id) {
                Type::Struct(_) => NameKind::Struct,
                Type::Union(_) => NameKind::Union,
                Type::Enum(_) => NameKind::Enum,
                Type::Typedef(_) => NameKind::Typedef,
                Type::Int(_) | Type::Float { .. } => NameKind::Int,
                Type::Fwd { is_union } => {
                    let forward = if is_union {
                        NameKind::Union
                    } else {
                        NameKind::Struct
                    };
                    if kind == forward || kind == NameKind::Any {
                        forwards.push(id);
                    }
                    continue;
                }
                Type::Void
                | Type::Ptr(_)
                | Type::Array { .. }
                | Type::Const(_)
                | Type::Volatile(_)
                | Type::Restrict(_)
                | Type::TypeTag { .. }
                | Type::Func { .. }
                | Type::FuncProto { .. }
                | Type::Other => continue,
            };
            if kind == found || kind == NameKind::Any {
                definitions.push(id);
            }
        }
        definitions.extend(forwards);
        definitions
    }

    /// `strip`, and then, for a forward declaration, its definition: from the same object if it has one, else from the
    /// first that does. Where there is none the forward declaration itself comes back.
    pub fn complete(&self, id: TypeId) -> TypeId {
        let id = self.strip(id);
        let Type::Fwd { is_union } = self.get(id) else {
            return id;
        };
        let kind = if is_union {
            NameKind::Union
        } else {
            NameKind::Struct
        };
        let candidates = if id.is_program() {
            self.find_in_program(id.module, kind, &self.name(id))
        } else {
            self.find(kind, &self.name(id))
        };
        let defined = |candidate: &&TypeId| !matches!(self.get(**candidate), Type::Fwd { .. });
        let own = candidates
            .iter()
            .filter(defined)
            .find(|candidate| candidate.module == id.module);
        own.or_else(|| candidates.iter().find(defined))
            .copied()
            .unwrap_or(id)
    }

    /// Enum constants of this name and their values. Scans every enum of every object, once for each name.
    pub fn enum_constant(&self, name: &str) -> Vec<(TypeId, i128)> {
        (0..self.module_count())
            .flat_map(|module| self.enum_constant_of(module, name))
            .collect()
    }

    /// The same in one object, which may be a program's.
    pub fn enum_constant_of(&self, module: u16, name: &str) -> Vec<(TypeId, i128)> {
        if name.is_empty() {
            return Vec::new();
        }
        let key = (module, name.to_string());
        if let Some(known) = self.constants.borrow().get(&key) {
            return known.to_vec();
        }
        let found = self.read_constants(module, name);
        self.constants.borrow_mut().insert(key, found.as_slice().into());
        found
    }

    fn read_constants(&self, module: u16, name: &str) -> Vec<(TypeId, i128)> {
        let mut enums = Vec::new();
        self.scan(module, |object, id, raw| {
            let hit = match raw {
                btf_rs::Type::Enum(e) => e.members.iter().any(|member| object.text(member) == name),
                btf_rs::Type::Enum64(e) => e.members.iter().any(|member| object.text(member) == name),
                _ => false,
            };
            if hit {
                enums.push(id);
            }
        });
        let mut found = Vec::new();
        for id in enums {
            if let Type::Enum(e) = self.get(id)
                && let Some((_, value)) = e.values.iter().find(|(constant, _)| constant == name)
            {
                found.push((id, *value));
            }
        }
        found
    }

    /// The names of all enum constants, for suggestions. Reads every enum of every object.
    pub fn enum_constants(&self) -> Vec<String> {
        (0..self.module_count())
            .flat_map(|module| self.enum_constants_of(module))
            .collect()
    }

    /// The same in one object, which may be a program's.
    pub fn enum_constants_of(&self, module: u16) -> Vec<String> {
        let mut names = Vec::new();
        self.scan(module, |object, _, raw| match raw {
            btf_rs::Type::Enum(e) => names.extend(e.members.iter().map(|m| object.text(m).to_string())),
            btf_rs::Type::Enum64(e) => names.extend(e.members.iter().map(|m| object.text(m).to_string())),
            _ => {}
        });
        names
    }

    /// A typed tracepoint as a function: the arguments that the event passes, without the leading `void *__data`.
    /// Types come from the `btf_trace_` typedef, which all events have; parameter names, which it lacks, from the
    /// functions that the tracepoint macros make.
    pub fn tracepoint_proto(&self, event: &str) -> Option<Func> {
        let typedef = self
            .find(NameKind::Typedef, &format!("{TRACEPOINT_PREFIX}{event}"))
            .into_iter()
            .find_map(|id| self.tracepoint_params(id).map(|proto| (id, proto)));
        let (id, (ret, mut params, variadic)) = typedef?;
        if params.iter().any(|param| param.name.is_empty())
            && let Some(named) = self.tracepoint_names(event, params.len())
        {
            for (param, name) in params.iter_mut().zip(named) {
                if param.name.is_empty() {
                    param.name = name;
                }
            }
        }
        Some(Func {
            id,
            name: event.to_string(),
            params,
            ret,
            variadic,
        })
    }

    /// Every typed tracepoint, sorted. Scans all objects.
    pub fn tracepoints(&self) -> Vec<String> {
        let mut found = Vec::new();
        for module in 0..self.module_count() {
            self.scan(module, |object, _, raw| {
                if let btf_rs::Type::Typedef(typedef) = raw
                    && let Some(event) = object.text(typedef).strip_prefix(TRACEPOINT_PREFIX)
                {
                    found.push(event.to_string());
                }
            });
        }
        found.sort();
        found.dedup();
        found
    }

    /// Names of all types of a kind, sorted. Scans all objects: for suggestions.
    pub fn names_of(&self, kind: NameKind) -> Vec<String> {
        let mut found: Vec<String> = (0..self.module_count())
            .flat_map(|module| self.names_in(module, kind))
            .collect();
        found.sort();
        found.dedup();
        found
    }

    /// The same in one object, which may be a program's, in the order in which it has them.
    pub fn names_in(&self, module: u16, kind: NameKind) -> Vec<String> {
        let mut found = Vec::new();
        let wants = |candidate: NameKind| kind == candidate || kind == NameKind::Any;
        self.scan(module, |object, _, raw| {
            let named: Option<&dyn BtfType> = match raw {
                btf_rs::Type::Struct(named) if wants(NameKind::Struct) => Some(named),
                btf_rs::Type::Union(named) if wants(NameKind::Union) => Some(named),
                btf_rs::Type::Enum(named) if wants(NameKind::Enum) => Some(named),
                btf_rs::Type::Enum64(named) if wants(NameKind::Enum) => Some(named),
                btf_rs::Type::Typedef(named) if wants(NameKind::Typedef) => Some(named),
                btf_rs::Type::Int(named) if wants(NameKind::Int) => Some(named),
                btf_rs::Type::Float(named) if wants(NameKind::Int) => Some(named),
                _ => None,
            };
            found.extend(
                named
                    .map(|named| object.text(named))
                    .filter(|name| !name.is_empty()),
            );
        });
        found
    }

    /// Return type, parameters and `...` of a `btf_trace_` typedef, if it is what that should be.
    fn tracepoint_params(&self, id: TypeId) -> Option<(TypeId, Vec<Param>, bool)> {
        let Type::FuncProto {
            ret,
            params,
            variadic,
        } = self.get_stripped(self.pointee(id)?)
        else {
            return None;
        };
        Some((ret, params.get(1..)?.to_vec(), variadic))
    }

    /// Names from `__traceiter_EVENT`, which is made for each event, or from `__bpf_trace_EVENT`, which newer kernels
    /// make only once for a class of events.
    fn tracepoint_names(&self, event: &str, count: usize) -> Option<Vec<String>> {
        ["__traceiter_", "__bpf_trace_"].iter().find_map(|prefix| {
            self.functions_named(&format!("{prefix}{event}"))
                .into_iter()
                .find_map(|func| {
                    let names: Vec<String> =
                        func.params.into_iter().skip(1).map(|param| param.name).collect();
                    (names.len() == count).then_some(names)
                })
        })
    }

    fn ids_named(&self, name: &str) -> Vec<TypeId> {
        let mut found = Vec::new();
        for (module, object) in self.objects.iter().enumerate() {
            let module = module as u16;
            let key = (module, name.to_string());
            let known = self.named.borrow().get(&key).cloned();
            let ids: Rc<[u32]> = known.unwrap_or_else(|| {
                let own = object.btf.split().unwrap_or(object.btf.base());
                let mut ids = own.resolve_ids_by_name(name).unwrap_or_default();
                ids.sort_unstable();
                let ids: Rc<[u32]> = ids.into();
                self.named.borrow_mut().insert(key, ids.clone());
                ids
            });
            found.extend(ids.iter().map(|id| TypeId { module, id: *id }));
        }
        found
    }

    /// How often a whole object was read so far.
    #[cfg(test)]
    pub(crate) fn scans(&self) -> usize {
        self.scans.get()
    }

    /// Calls `visit` for each type that the module defines itself, without filling the cache.
    pub(super) fn scan(&self, module: u16, mut visit: impl FnMut(&Object, TypeId, &btf_rs::Type)) {
        let Some(object) = self.object(module) else {
            return;
        };
        self.scans.set(self.scans.get() + 1);
        for id in object.first..object.end {
            if let Ok(raw) = object.btf.resolve_type_by_id(id) {
                visit(object, TypeId { module, id }, &raw);
            }
        }
    }
}

const TRACEPOINT_PREFIX: &str = "btf_trace_";
