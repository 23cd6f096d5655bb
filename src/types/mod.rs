//! The kernel's types as the compiler sees them. In: BTF objects that somebody else has opened. Out: decoded types,
//! layouts, member paths, functions, C spellings; and the BTF that goes into a program (`write`, `ext`, `mini`).
//! Never does I/O, and never trusts BTF: a bad id decodes to `void`, every chain and every recursion is bounded.

pub mod ext;
pub mod mini;
pub mod write;

mod cname;
mod decode;
mod layout;
mod lookup;
mod member;
mod model;
mod program;
mod sign;

#[cfg(any(test, feature = "fuzzing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use model::{
    Composite, Enum, Func, Int, Member, MemberError, MemberErrorKind, MemberPath, NameKind, Param, Type,
    TypeId,
};

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How many typedefs, modifiers and array dimensions may follow each other. The kernel's own limit is 32.
const CHAIN_MAX: usize = 64;

/// The types of a kernel: vmlinux and any number of modules; and those of programs, which only their own queries see.
pub struct Types {
    objects: Vec<Object>,
    programs: Vec<Object>,
    /// Types that were asked for by id. Whole-object scans go past it, so it stays as small as the query.
    decoded: RefCell<BTreeMap<TypeId, Type>>,
    /// Results of look-ups by name: one costs about a millisecond on a mapped vmlinux.
    named: RefCell<BTreeMap<NameKey, Rc<[u32]>>>,
    /// Results of look-ups of enum constants, each of which reads every enum of an object.
    constants: RefCell<BTreeMap<NameKey, Constants>>,
    /// How often a whole object was read, which tests hold down.
    scans: Cell<usize>,
    /// Where symbols of the running kernel are, as far as queries ask for them.
    addresses: BTreeMap<String, u64>,
    /// They are another kernel's types than the running one's.
    elsewhere: bool,
}

impl Types {
    /// Starts with the BTF of vmlinux.
    pub fn new(base: btf_rs::Btf) -> Types {
        Types {
            objects: vec![Object::new("vmlinux", base)],
            programs: Vec::new(),
            decoded: RefCell::default(),
            named: RefCell::default(),
            constants: RefCell::default(),
            scans: Cell::new(0),
            addresses: BTreeMap::new(),
            elsewhere: false,
        }
    }

    /// Tells where a symbol of the running kernel is. BTF does not say.
    pub fn set_address(&mut self, symbol: &str, address: u64) {
        self.addresses.insert(symbol.to_string(), address);
    }

    /// Says that they are another kernel's types, of whose addresses nothing is known.
    pub fn set_elsewhere(&mut self) {
        self.elsewhere = true;
    }

    /// Whether they are another kernel's types.
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Where a symbol is, if that was told.
    pub fn address(&self, symbol: &str) -> Option<u64> {
        self.addresses.get(symbol).copied()
    }

    /// Adds a module's split BTF, which must have been read over the base given to `new`. Returns the module's number.
    pub fn add_module(&mut self, name: &str, btf: btf_rs::Btf) -> u16 {
        let number = u16::try_from(self.objects.len()).unwrap_or(u16::MAX);
        if usize::from(number) == self.objects.len() {
            self.objects.push(Object::new(name, btf));
        }
        number
    }

    /// The BTF of vmlinux, over which those of modules have to be read.
    pub fn base(&self) -> &btf_rs::Btf {
        &self.objects[0].btf
    }

    /// How many BTF objects there are, vmlinux included.
    pub fn module_count(&self) -> u16 {
        self.objects.len() as u16
    }

    /// `vmlinux` for 0, else the module's name; empty for a number that is not in use.
    pub fn module_name(&self, module: u16) -> &str {
        self.object(module).map_or("", |object| &object.name)
    }

    /// The number of a loaded module.
    pub fn module_named(&self, name: &str) -> Option<u16> {
        self.objects
            .iter()
            .position(|object| object.name == name)
            .map(|index| index as u16)
    }

    /// Decodes a type. An id that is out of range, or whose data is malformed, gives `Type::Void`.
    pub fn get(&self, id: TypeId) -> Type {
        if id.is_void() {
            return Type::Void;
        }
        if let Some(known) = self.decoded.borrow().get(&id) {
            return known.clone();
        }
        let decoded = self.decode(id);
        self.decoded.borrow_mut().insert(id, decoded.clone());
        decoded
    }

    /// The type without typedefs, `const`, `volatile`, `restrict` and type tags. A chain without an end gives void.
    pub fn strip(&self, id: TypeId) -> TypeId {
        self.follow(id, |ty| match ty {
            Type::Typedef(to) => Some(*to),
            other @ (Type::Void
            | Type::Int(_)
            | Type::Float { .. }
            | Type::Ptr(_)
            | Type::Array { .. }
            | Type::Struct(_)
            | Type::Union(_)
            | Type::Enum(_)
            | Type::Fwd { .. }
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other) => modifier_target(other),
        })
    }

    /// The type without `const`, `volatile`, `restrict` and type tags; typedefs stay.
    pub fn strip_mods(&self, id: TypeId) -> TypeId {
        self.follow(id, modifier_target)
    }

    /// `get` of `strip`.
    pub fn get_stripped(&self, id: TypeId) -> Type {
        self.get(self.strip(id))
    }

    /// Size in bytes. `None` for void, functions, forward declarations, and arrays too big to count.
    pub fn size_of(&self, id: TypeId) -> Option<u64> {
        let mut id = id;
        let mut count = 1u64;
        for _ in 0..CHAIN_MAX {
            let unit = match self.get(id) {
                Type::Array { elem, len } => {
                    count = count.checked_mul(u64::from(len))?;
                    id = elem;
                    continue;
                }
                Type::Typedef(to) | Type::Const(to) | Type::Volatile(to) | Type::Restrict(to) => {
                    id = to;
                    continue;
                }
                Type::TypeTag { ty, .. } => {
                    id = ty;
                    continue;
                }
                Type::Int(int) => int.size,
                Type::Float { size } => size,
                Type::Ptr(_) => 8,
                Type::Struct(composite) | Type::Union(composite) => composite.size,
                Type::Enum(e) => e.size,
                Type::Void | Type::Fwd { .. } | Type::Func { .. } | Type::FuncProto { .. } | Type::Other => {
                    return None;
                }
            };
            return count.checked_mul(u64::from(unit));
        }
        None
    }

    /// Whether a pointer (seen through typedefs and modifiers) points to something tagged so: `__user` is the tag
    /// `user`. Tags are looked for between the pointer and the type it points to, and on the way to the pointer.
    pub fn has_type_tag(&self, id: TypeId, tag: &str) -> bool {
        let mut id = id;
        let mut seen_pointer = false;
        for _ in 0..CHAIN_MAX {
            id = match self.get(id) {
                Type::TypeTag { tag: found, .. } if &*found == tag => return true,
                Type::TypeTag { ty, .. } => ty,
                Type::Typedef(to) | Type::Const(to) | Type::Volatile(to) | Type::Restrict(to) => to,
                Type::Ptr(to) if !seen_pointer => {
                    seen_pointer = true;
                    to
                }
                Type::Ptr(_)
                | Type::Void
                | Type::Int(_)
                | Type::Float { .. }
                | Type::Array { .. }
                | Type::Struct(_)
                | Type::Union(_)
                | Type::Enum(_)
                | Type::Fwd { .. }
                | Type::Func { .. }
                | Type::FuncProto { .. }
                | Type::Other => return false,
            };
        }
        false
    }

    /// What a pointer points to, with its modifiers; `None` if the type is no pointer.
    pub fn pointee(&self, id: TypeId) -> Option<TypeId> {
        if let Type::Ptr(to) = self.get_stripped(id) {
            Some(to)
        } else {
            None
        }
    }

    /// Follows links until there is none; void if there is no end.
    fn follow(&self, id: TypeId, link: impl Fn(&Type) -> Option<TypeId>) -> TypeId {
        let mut id = id;
        for _ in 0..CHAIN_MAX {
            match link(&self.get(id)) {
                Some(to) => id = to,
                None => return id,
            }
        }
        TypeId::VOID
    }
}

/// Enum constants of one name: their enums and values.
type Constants = Rc<[(TypeId, i128)]>;

/// A module and a name.
type NameKey = (u16, String);

/// One BTF object and which ids are its own.
struct Object {
    name: String,
    btf: btf_rs::Btf,
    /// The first id that it defines itself; smaller ones are the base's.
    first: u32,
    /// One past its last id.
    end: u32,
    /// Whether its enums say if they are signed, once that was asked.
    signs: OnceCell<bool>,
}

impl Object {
    pub(super) fn new(name: &str, btf: btf_rs::Btf) -> Object {
        let (first, end) = match btf.split() {
            Some(own) => own.type_id_range(),
            None => btf.base().type_id_range(),
        };
        Object {
            name: name.to_string(),
            btf,
            first: first.max(1),
            end: end.saturating_add(1),
            signs: OnceCell::new(),
        }
    }
}

fn modifier_target(ty: &Type) -> Option<TypeId> {
    match ty {
        Type::Const(to) | Type::Volatile(to) | Type::Restrict(to) => Some(*to),
        Type::TypeTag { ty, .. } => Some(*ty),
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
        | Type::Func { .. }
        | Type::FuncProto { .. }
        | Type::Other => None,
    }
}
