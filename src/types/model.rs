//! Type information as plain data: what `Types` hands out and the rest of the compiler matches on. Nothing of btf-rs
//! shows here, and nothing here reads BTF.

use std::rc::Rc;

/// Identifies a type: which BTF object (0 = vmlinux, else a module) and its id there. Void is id 0 of module 0.
/// Ids that belong to the base are normalised to module 0, so equal ids mean the same definition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TypeId {
    /// 0 for vmlinux, else what `Types::add_module` returned.
    pub module: u16,
    /// The id in that object; a module's own ids follow those of the base.
    pub id: u32,
}

impl TypeId {
    /// The type `void`.
    pub const VOID: TypeId = TypeId { module: 0, id: 0 };

    /// Whether this is `void` itself (a typedef of it is not).
    pub fn is_void(self) -> bool {
        self == TypeId::VOID
    }
}

/// A decoded type. Cloning is cheap: everything long is shared. The name of any type is `Types::name`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Type {
    /// `void`; also what a bad id decodes to.
    Void,
    /// An integer, `bool` or `char`.
    Int(Int),
    /// A floating point number.
    Float {
        /// Bytes.
        size: u32,
    },
    /// A pointer to the type named.
    Ptr(TypeId),
    /// An array. A flexible one has length 0.
    Array {
        /// Element type.
        elem: TypeId,
        /// Number of elements.
        len: u32,
    },
    /// A struct with its members.
    Struct(Composite),
    /// A union with its members.
    Union(Composite),
    /// An enum with its constants.
    Enum(Enum),
    /// `struct x;` or `union x;` without a definition; see `Types::complete`.
    Fwd {
        /// A union, else a struct.
        is_union: bool,
    },
    /// Another name for the type.
    Typedef(TypeId),
    /// `const`.
    Const(TypeId),
    /// `volatile`.
    Volatile(TypeId),
    /// `restrict`.
    Restrict(TypeId),
    /// `btf_type_tag`, such as `user`, `rcu` or `percpu`.
    TypeTag {
        /// The tag, without underscores.
        tag: Rc<str>,
        /// What it is put on.
        ty: TypeId,
    },
    /// A function; `Types::func` gives it with its parameters.
    Func {
        /// Its `FuncProto`.
        proto: TypeId,
    },
    /// A function's type.
    FuncProto {
        /// What it returns.
        ret: TypeId,
        /// Parameters, without the one that stands for `...`.
        params: Rc<[Param]>,
        /// Ends in `...`.
        variadic: bool,
    },
    /// A variable, a data section or a declaration tag: never the type of a value.
    Other,
}

/// An integer type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Int {
    /// Bytes that it takes in memory.
    pub size: u32,
    /// Sign-extends.
    pub signed: bool,
    /// `_Bool`.
    pub is_bool: bool,
    /// A character: has the encoding bit, or is called `char` (pahole leaves the bit out).
    pub is_char: bool,
    /// Significant bits; fewer than `size * 8` only in the old bitfield encoding, which `Member` already resolves.
    pub bits: u8,
    /// Bits to skip before them; not 0 only in the old bitfield encoding.
    pub bit_offset: u8,
}

/// A struct or a union.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Composite {
    /// Its tag, empty if anonymous.
    pub name: Rc<str>,
    /// Bytes.
    pub size: u32,
    /// Members in BTF's order: an index here is an index of a CO-RE access string.
    pub members: Rc<[Member]>,
}

/// One member of a struct or union.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Empty for an anonymous struct or union.
    pub name: String,
    /// Its type.
    pub ty: TypeId,
    /// Bits from the start of the composite.
    pub bit_offset: u32,
    /// Width in bits, 1 to 64, if it is a bitfield. Both of BTF's encodings come out as this.
    pub bitfield: Option<u8>,
}

/// An enum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Enum {
    /// Its tag, empty if anonymous.
    pub name: Rc<str>,
    /// Bytes.
    pub size: u32,
    /// Whether its values are signed.
    pub signed: bool,
    /// Constants in order of declaration.
    pub values: Rc<[(String, i128)]>,
}

/// One parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Param {
    /// Its name, may be empty.
    pub name: String,
    /// Its type.
    pub ty: TypeId,
}

/// A function (or a tracepoint seen as one) with its prototype.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Func {
    /// The `FUNC`; for a tracepoint, its `btf_trace_` typedef.
    pub id: TypeId,
    /// Its name; for a tracepoint, the event's.
    pub name: String,
    /// Parameters, without the one that stands for `...`.
    pub params: Vec<Param>,
    /// What it returns.
    pub ret: TypeId,
    /// Ends in `...`.
    pub variadic: bool,
}

/// Where a member is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberPath {
    /// The struct or union that `indices` start from: typedefs and modifiers removed, a forward declaration replaced
    /// by its definition.
    pub root: TypeId,
    /// The member's index at each level of anonymous nesting: the CO-RE access string below the root.
    pub indices: Vec<u32>,
    /// Bits from the root's start, all levels added.
    pub bit_offset: u32,
    /// The member's type.
    pub ty: TypeId,
    /// Width in bits if it is a bitfield.
    pub bitfield: Option<u8>,
}

/// Why a member was not found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberError {
    /// What went wrong.
    pub kind: MemberErrorKind,
    /// Names of members that are spelled nearly like it, best first; may be empty.
    pub candidates: Vec<String>,
}

/// The kinds of failed member look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberErrorKind {
    /// The type is no struct or union.
    NotComposite,
    /// The type is only forward-declared in every loaded BTF object.
    Incomplete,
    /// It has no member of that name.
    NoSuchMember,
}

/// What kind of type a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameKind {
    /// `struct x`.
    Struct,
    /// `union x`.
    Union,
    /// `enum x`.
    Enum,
    /// A typedef.
    Typedef,
    /// An integer or floating point type's own name.
    Int,
    /// Any of these.
    Any,
}
