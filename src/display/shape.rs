//! Types made ready for printing. In: `Types` and a type. Out: a [`Shape`]: the text of its cast, its size, and what is
//! to be done with its bytes, worked out once and kept. Never looks at a record, and never follows a by-value member
//! into its type, so that types that contain themselves do no harm here.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::ctype::CType;
use crate::types::{self, Type, TypeId, Types};

use super::escape;

/// A type, ready for printing.
#[derive(Debug)]
pub(super) struct Shape {
    /// What stands in the parentheses of a cast: `unsigned int`, `struct sk_buff *`, `union`.
    pub(super) cast: Box<str>,
    /// Bytes; 0 if it has no size.
    pub(super) size: u32,
    /// What its name says about how its numbers are read.
    pub(super) hint: Hint,
    /// What its bytes are.
    pub(super) kind: ShapeKind,
}

/// How unsigned numbers are shown if the query does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// Decimal.
    None,
    /// Hexadecimal: a set of flags.
    Hex,
    /// Octal: a file mode.
    Octal,
    /// Hexadecimal if it is an unsigned word of the machine: an address, a bit map.
    Word,
}

/// What the bytes of a type are.
#[derive(Debug)]
pub(super) enum ShapeKind {
    /// `void`.
    Void,
    /// A number.
    Int {
        /// Has a sign.
        signed: bool,
    },
    /// A boolean.
    Bool,
    /// A character.
    Char {
        /// Has a sign.
        signed: bool,
    },
    /// A floating point number.
    Float,
    /// A pointer.
    Pointer {
        /// To a function.
        function: bool,
    },
    /// An enum.
    Enum(Enum),
    /// An array.
    Array {
        /// Its elements.
        elem: TypeId,
        /// Bytes of one.
        elem_size: u32,
        /// How many.
        len: u32,
        /// They are characters.
        text: bool,
    },
    /// A struct or union.
    Composite {
        /// Its members.
        members: Box<[Member]>,
        /// It is `struct list_head`, which has a form of its own.
        list_head: bool,
        /// It is machinery that a line is enough for: locks, counters, links.
        short: bool,
    },
    /// What has no value: a function, an undefined struct.
    Opaque,
}

/// A member of a struct or union.
#[derive(Debug)]
pub(super) struct Member {
    /// Empty if it is anonymous.
    pub(super) name: Box<str>,
    /// Its type.
    pub(super) ty: TypeId,
    /// Bits from the start.
    pub(super) bit_offset: u32,
    /// Width in bits of a bitfield.
    pub(super) bitfield: Option<u8>,
    /// Bytes; 0 if it has no size.
    pub(super) size: u32,
    /// What its name says about how its numbers are read.
    pub(super) hint: Hint,
}

/// An enum's constants, in order of their values; the first name of a value counts.
#[derive(Debug)]
pub(super) struct Enum {
    /// Values and names.
    values: Box<[(i128, Box<str>)]>,
    /// Its values have a sign.
    pub(super) signed: bool,
    /// Its values are bits, and sets of them, so that sums mean sets.
    pub(super) flags: bool,
}

impl Enum {
    /// The constant of this value.
    pub(super) fn name(&self, value: i128) -> Option<&str> {
        let index = self
            .values
            .binary_search_by_key(&value, |(known, _)| *known)
            .ok()?;
        self.values.get(index).map(|(_, name)| &**name)
    }
}

/// All shapes that were needed so far.
pub(super) struct Shapes<'a> {
    types: &'a Types,
    known: BTreeMap<TypeId, Rc<Shape>>,
}

impl<'a> Shapes<'a> {
    pub(super) fn new(types: &'a Types) -> Shapes<'a> {
        Shapes {
            types,
            known: BTreeMap::new(),
        }
    }

    /// The shape of a type of BTF.
    pub(super) fn of(&mut self, id: TypeId) -> Rc<Shape> {
        if let Some(known) = self.known.get(&id) {
            return Rc::clone(known);
        }
        let shape = Rc::new(self.make(id));
        self.known.insert(id, Rc::clone(&shape));
        shape
    }

    /// The shape of a type of the language.
    pub(super) fn of_ctype(&mut self, ty: &CType) -> Rc<Shape> {
        let (size, kind) = match ty {
            CType::Btf(id) => return self.of(*id),
            CType::Void => (0, ShapeKind::Void),
            CType::Bool => (1, ShapeKind::Bool),
            // C's `char` is the language's one-byte signed type: kernel memory is read as such by `str()`.
            CType::Int {
                bytes: 1,
                signed: true,
            } => (1, ShapeKind::Char { signed: true }),
            CType::Int { bytes, signed } => (u32::from(*bytes).min(8), ShapeKind::Int { signed: *signed }),
            CType::Ptr(to) => {
                let function = match &**to {
                    CType::Btf(id) => self.is_function(*id),
                    CType::Void | CType::Int { .. } | CType::Bool | CType::Ptr(_) => false,
                };
                (8, ShapeKind::Pointer { function })
            }
        };
        Rc::new(Shape {
            cast: self.ctype_name(ty, 0).into(),
            size,
            hint: Hint::None,
            kind,
        })
    }

    fn make(&self, id: TypeId) -> Shape {
        let stripped = self.types.strip(id);
        let kind = match self.types.get(stripped) {
            Type::Void => ShapeKind::Void,
            Type::Int(int) if int.is_bool => ShapeKind::Bool,
            Type::Int(int) if int.is_char && int.size == 1 => ShapeKind::Char { signed: int.signed },
            Type::Int(int) => ShapeKind::Int { signed: int.signed },
            Type::Float { .. } => ShapeKind::Float,
            Type::Ptr(to) => ShapeKind::Pointer {
                function: self.is_function(to),
            },
            Type::Array { elem, len } => ShapeKind::Array {
                elem,
                elem_size: self.size(elem),
                len,
                text: matches!(self.types.get_stripped(elem), Type::Int(int) if int.is_char && int.size == 1),
            },
            Type::Struct(composite) | Type::Union(composite) => {
                let short = is_machinery(&composite.name) || self.typedef_is_machinery(id);
                self.composite(&composite, short)
            }
            Type::Enum(e) => ShapeKind::Enum(make_enum(&e)),
            // `strip` leaves no typedef or modifier; the rest is no type of a value.
            Type::Fwd { .. }
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => ShapeKind::Opaque,
        };
        Shape {
            cast: self.cast(id).into(),
            size: self.size(id),
            hint: self.typedef_hint(id),
            kind,
        }
    }

    fn composite(&self, composite: &types::Composite, short: bool) -> ShapeKind {
        let members: Box<[Member]> = composite
            .members
            .iter()
            .map(|member| Member {
                name: escape::plain_string(&member.name).into(),
                ty: member.ty,
                bit_offset: member.bit_offset,
                bitfield: member.bitfield,
                size: self.size(member.ty),
                hint: name_hint(&member.name),
            })
            .collect();
        let pointer_at = |index: usize, offset: u32| {
            members
                .get(index)
                .is_some_and(|m| m.bit_offset == offset && m.size == 8 && m.bitfield.is_none())
        };
        let list_head = &*composite.name == "list_head"
            && composite.size == 16
            && members.len() == 2
            && pointer_at(0, 0)
            && pointer_at(1, 64);
        ShapeKind::Composite {
            members,
            list_head,
            short,
        }
    }

    fn size(&self, id: TypeId) -> u32 {
        self.types
            .size_of(id)
            .and_then(|size| u32::try_from(size).ok())
            .unwrap_or(0)
    }

    fn is_function(&self, id: TypeId) -> bool {
        matches!(
            self.types.get_stripped(id),
            Type::FuncProto { .. } | Type::Func { .. }
        )
    }

    /// The C spelling without `const`, `volatile` and `restrict`, and without the bodies of anonymous types: they say
    /// nothing about a value, and ksnoop leaves them out too.
    fn cast(&self, id: TypeId) -> String {
        let spelled = self.types.c_name(id).replace(" {...}", "");
        escape::plain_string(&without_qualifiers(&spelled))
    }

    fn ctype_name(&self, ty: &CType, depth: u32) -> String {
        match ty {
            CType::Void => "void".to_string(),
            CType::Bool => "bool".to_string(),
            CType::Btf(id) => self.cast(*id),
            CType::Int { bytes, signed } => match (bytes, signed) {
                (1, true) => "char",
                (1, false) => "unsigned char",
                (2, true) => "short int",
                (2, false) => "short unsigned int",
                (4, true) => "int",
                (4, false) => "unsigned int",
                (_, true) => "long int",
                (_, false) => "long unsigned int",
            }
            .to_string(),
            CType::Ptr(_) if depth > 8 => "...".to_string(),
            CType::Ptr(to) => {
                let to = self.ctype_name(to, depth + 1);
                // C puts the star of a pointer to an array or a function in the middle.
                if to.ends_with('*') {
                    format!("{to}*")
                } else if let Some((elem, bounds)) = to.split_once('[') {
                    format!("{elem} (*)[{bounds}")
                } else if let Some((ret, params)) = to.split_once(" (") {
                    format!("{ret} (*)({params}")
                } else {
                    format!("{to} *")
                }
            }
        }
    }

    /// The first typedef that has something to say decides.
    fn typedef_hint(&self, id: TypeId) -> Hint {
        let said = self.typedef(id, |name| match typedef_name_hint(name) {
            Hint::None => None,
            hint @ (Hint::Hex | Hint::Octal | Hint::Word) => Some(hint),
        });
        said.unwrap_or(Hint::None)
    }

    fn typedef_is_machinery(&self, id: TypeId) -> bool {
        self.typedef(id, |name| is_machinery(name).then_some(()))
            .is_some()
    }

    /// What the first typedef says that has something to say.
    fn typedef<T>(&self, id: TypeId, says: impl Fn(&str) -> Option<T>) -> Option<T> {
        let mut id = id;
        for _ in 0..MAX_TYPEDEFS {
            id = match self.types.get(id) {
                Type::Typedef(to) => {
                    if let Some(said) = says(&self.types.name(id)) {
                        return Some(said);
                    }
                    to
                }
                Type::Const(to) | Type::Volatile(to) | Type::Restrict(to) => to,
                Type::TypeTag { ty, .. } => ty,
                Type::Void
                | Type::Int(_)
                | Type::Float { .. }
                | Type::Ptr(_)
                | Type::Array { .. }
                | Type::Struct(_)
                | Type::Union(_)
                | Type::Enum(_)
                | Type::Fwd { .. }
                | Type::Func { .. }
                | Type::FuncProto { .. }
                | Type::Other => return None,
            };
        }
        None
    }
}

/// The kernel's links, locks and counters (include/linux/types.h, spinlock_types.h, mutex_types.h and their like), by struct
/// tag or typedef. What is in them matters little and would take many lines.
fn is_machinery(name: &str) -> bool {
    matches!(
        name,
        "hlist_head"
            | "hlist_node"
            | "hlist_nulls_head"
            | "hlist_nulls_node"
            | "hlist_bl_head"
            | "hlist_bl_node"
            | "llist_head"
            | "llist_node"
            | "plist_node"
            | "rb_node"
            | "rb_root"
            | "rb_root_cached"
            | "callback_head"
            | "rcu_head"
            | "atomic_t"
            | "atomic64_t"
            | "atomic_long_t"
            | "refcount_t"
            | "refcount_struct"
            | "kref"
            | "percpu_ref"
            | "lockref"
            | "spinlock"
            | "spinlock_t"
            | "raw_spinlock"
            | "raw_spinlock_t"
            | "rwlock_t"
            | "local_lock_t"
            | "seqcount"
            | "seqcount_t"
            | "seqcount_spinlock"
            | "seqlock_t"
            | "mutex"
            | "rw_semaphore"
            | "percpu_rw_semaphore"
            | "semaphore"
            | "completion"
            | "wait_queue_head"
            | "wait_queue_head_t"
            | "swait_queue_head"
            | "lockdep_map"
    )
}

/// What the name of a member or a value says: anything that is called flags or a mask is a set of bits, and words of the machine
/// can be told to be bit maps and addresses.
pub(super) fn name_hint(name: &str) -> Hint {
    // Of `mm->start_code` and `bits[0]` the member's name.
    let last = name.rsplit(['.', '>']).next().unwrap_or(name);
    let last = last.split('[').next().unwrap_or(last);
    if name.contains("flags") || last.ends_with("mask") || last.ends_with("canary") {
        Hint::Hex
    } else if is_address(last) {
        Hint::Word
    } else {
        Hint::None
    }
}

/// Whether an `unsigned long` of this name is an address or a bit map: `struct mm_struct`'s and `vm_area_struct`'s bounds
/// (include/linux/mm_types.h), stacks and segments of tasks, `struct cpumask.bits`, `sigset_t.sig`.
fn is_address(name: &str) -> bool {
    let bounds = ["code", "data", "brk", "stack", "arg", "env", "vm"];
    let bound = |edge: &str| {
        name.split_once(edge).is_some_and(|(a, b)| {
            bounds.contains(&a.trim_end_matches('_')) || bounds.contains(&b.trim_start_matches('_'))
        })
    };
    bound("start")
        || bound("end")
        || (name.starts_with("mmap") && name.ends_with("_base"))
        || name.ends_with("addr")
        || name.ends_with("address")
        || name.ends_with("_sp")
        || name.ends_with("_ip")
        || matches!(
            name,
            "sp" | "ip" | "sp0" | "brk" | "fsbase" | "gsbase" | "cr2" | "cr3" | "pgd" | "bits" | "sig"
        )
}

/// Typedefs and modifiers that a hint looks through.
const MAX_TYPEDEFS: usize = 64;

/// The kernel's types for sets of flags and for file modes that do not say so by the word `flags`.
fn typedef_name_hint(name: &str) -> Hint {
    match name {
        "gfp_t" | "fmode_t" | "blk_opf_t" | "netdev_features_t" | "vm_fault_t" | "__poll_t"
        | "fop_flags_t" => Hint::Hex,
        "umode_t" | "mode_t" | "__kernel_mode_t" => Hint::Octal,
        name => name_hint(name),
    }
}

fn make_enum(e: &types::Enum) -> Enum {
    let mut values: Vec<(i128, Box<str>)> = e
        .values
        .iter()
        .map(|(name, value)| (*value, escape::plain_string(name).into()))
        .collect();
    // Stable, so that of several names of one value the first declared stays.
    values.sort_by_key(|(value, _)| *value);
    values.dedup_by_key(|(value, _)| *value);
    let flags = are_flags(&values);
    Enum {
        values: values.into(),
        signed: e.signed,
        flags,
    }
}

/// Whether the values of an enum, each there once, are bits and sets of them, and not just numbers.
fn are_flags(values: &[(i128, Box<str>)]) -> bool {
    let is_bit = |value: i128| value > 0 && value.count_ones() == 1;
    let bits = values.iter().filter(|(value, _)| is_bit(*value));
    let (count, known) = bits.fold((0, 0), |(count, known), (bit, _)| (count + 1, known | *bit));
    let sets = values
        .iter()
        .filter(|(value, _)| *value != 0 && !is_bit(*value))
        .count();
    let made_of_bits = values.iter().all(|(value, _)| *value >= 0 && value & !known == 0);
    let positive = values.iter().filter(|(value, _)| *value > 0).count() as i128;
    let numbered = values.last().is_some_and(|(last, _)| *last == positive);
    // Fewer than three bits could as well be the numbers 0, 1 and 2, and an enum that names many sets counts.
    made_of_bits && count >= 3 && 2 * sets <= count && !numbered
}

fn without_qualifiers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if matches!(word, "const" | "volatile" | "restrict") {
            // One of the spaces around it goes with it.
            rest = match after.strip_prefix(' ') {
                Some(after) => after,
                None => {
                    out.truncate(out.trim_end().len());
                    after
                }
            };
            continue;
        }
        out.push_str(word);
        let gap = after.find(is_word).unwrap_or(after.len());
        let (between, next) = after.split_at(gap);
        out.push_str(between);
        rest = next;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualifiers_are_left_out_of_casts() {
        for (given, wanted) in [
            ("const struct x *", "struct x *"),
            ("struct x *const", "struct x *"),
            ("const char *const *", "char **"),
            ("volatile const int", "int"),
            (
                "int (*const)(const char *, constant)",
                "int (*)(char *, constant)",
            ),
            ("struct const_x", "struct const_x"),
            ("char *restrict", "char *"),
            ("const", ""),
        ] {
            assert_eq!(without_qualifiers(given), wanted, "{given}");
        }
    }

    #[test]
    fn names_tell_how_the_kernel_writes_a_number() {
        for name in [
            "flags",
            "x_flags",
            "vm_flags_t",
            "cpus_mask",
            "rseq_event_mask",
            "stack_canary",
            "t->mask[2]",
        ] {
            assert_eq!(name_hint(name), Hint::Hex, "{name}");
        }
        for name in [
            "mm->start_code",
            "end_data",
            "start_stack",
            "start_brk",
            "arg_start",
            "env_end",
            "vm_start",
            "mmap_base",
            "mmap_compat_legacy_base",
            "sas_ss_sp",
            "skb->bits[0]",
            "sig",
            "dev_addr",
        ] {
            assert_eq!(name_hint(name), Hint::Word, "{name}");
        }
        for name in [
            "start_time",
            "end",
            "pending",
            "len",
            "i_blkbits",
            "restart",
            "pid",
            "base",
            "exec_start",
            "masked",
            "signal",
        ] {
            assert_eq!(name_hint(name), Hint::None, "{name}");
        }
    }

    #[test]
    fn flag_sets_need_three_bits_and_nothing_but_sets_of_them() {
        let e = |values: &[i128]| {
            make_enum(&types::Enum {
                name: "e".into(),
                size: 4,
                signed: false,
                values: values.iter().map(|value| (format!("V{value}"), *value)).collect(),
            })
            .flags
        };
        assert!(e(&[1, 2, 4]));
        assert!(e(&[0, 8, 1, 2, 8]));
        assert!(!e(&[0, 1, 2]));
        assert!(!e(&[0, 1, 2, 3]));
        assert!(!e(&[-1, 1, 2, 4]));
        // A mask for all of them changes nothing, and neither does a set that has a name.
        assert!(e(&[1, 2, 4, 7]));
        assert!(e(&[1, 2, 4, 8, 3, 12]));
        assert!(!e(&[1, 2, 4, 15]));
        assert!(!e(&[0, 1, 2, 3, 4]));
        assert!(!e(&[1, 2, 3, 4, 5, 6, 8]));
        assert!(!e(&[]));
    }
}
