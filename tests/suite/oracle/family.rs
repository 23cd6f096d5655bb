//! Random types: structs and unions that hold each other and point to each other, and the arguments of the probe. In: random
//! numbers. Out: the types as C declares them, and, once a C compiler has told their layout, as BTF has them. How C lays
//! anything out is never decided here.

use std::fmt::Write;

use ksnoop_jit::ir::generate::Rng;
use ksnoop_jit::types::Types;
use ksnoop_jit::types::testing::{Builder, types_of};
use ksnoop_jit::types::write::Field;

/// C's integer types and the kernel's names for them: spelling, bytes, sign, and whether strings are made of it.
pub(crate) const INTS: [(&str, u32, bool, bool); 19] = [
    ("int", 4, true, false),
    ("unsigned int", 4, false, false),
    ("long int", 8, true, false),
    ("long unsigned int", 8, false, false),
    ("char", 1, true, true),
    ("signed char", 1, true, true),
    ("unsigned char", 1, false, true),
    ("short int", 2, true, false),
    ("short unsigned int", 2, false, false),
    ("long long int", 8, true, false),
    ("long long unsigned int", 8, false, false),
    ("u8", 1, false, false),
    ("u16", 2, false, false),
    ("u32", 4, false, false),
    ("u64", 8, false, false),
    ("s8", 1, true, false),
    ("s16", 2, true, false),
    ("s32", 4, true, false),
    ("s64", 8, true, false),
];
const CHAR: usize = 4;
const U8: usize = 11;

pub(crate) const INT: Ty = Ty::Int(0);
pub(crate) const UINT: Ty = Ty::Int(1);
pub(crate) const LONG: Ty = Ty::Int(2);
pub(crate) const ULONG: Ty = Ty::Int(3);

/// An enum: its name, bytes as C lays it out, sign, whether packed, constants.
type Enumeration = (&'static str, u32, bool, bool, &'static [(&'static str, i128)]);

pub(crate) const ENUMS: [Enumeration; 5] = [
    (
        "kind",
        4,
        false,
        false,
        &[("KIND_ONE", 1), ("KIND_BIG", 0x8000_0000)],
    ),
    ("level", 4, true, false, &[("LEVEL_LOW", -3), ("LEVEL_HIGH", 7)]),
    ("tiny", 1, false, true, &[("TINY_A", 0), ("TINY_B", 200)]),
    (
        "wide",
        8,
        false,
        false,
        &[("WIDE_ONE", 1), ("WIDE_MID", 0x8000_0000), ("WIDE_TOP", 1 << 40)],
    ),
    (
        "deep",
        8,
        true,
        false,
        &[
            ("DEEP_LOW", -(1 << 40)),
            ("DEEP_MID", 0xffff_ffff),
            ("DEEP_TOP", 5),
        ],
    ),
];

/// A C type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ty {
    Void,
    /// By its place in [`INTS`].
    Int(usize),
    Bool,
    /// By its place in [`ENUMS`].
    Enum(usize),
    Ptr(Box<Ty>),
    Array(Box<Ty>, u32),
    /// By its place in [`Family::composites`].
    Comp(usize),
}

impl Ty {
    pub(crate) fn ptr(self) -> Ty {
        Ty::Ptr(Box::new(self))
    }

    /// Bytes and sign of what arithmetic works on.
    pub(crate) fn number(&self) -> Option<(u32, bool)> {
        match self {
            Ty::Int(index) => Some((INTS[*index].1, INTS[*index].2)),
            Ty::Bool => Some((1, false)),
            Ty::Enum(index) => Some((ENUMS[*index].1, ENUMS[*index].2)),
            Ty::Void | Ty::Ptr(_) | Ty::Array(..) | Ty::Comp(_) => None,
        }
    }

    fn points_to_char(&self) -> bool {
        matches!(self, Ty::Ptr(to) if to.is_char())
    }

    pub(crate) fn is_char(&self) -> bool {
        matches!(self, Ty::Int(index) if INTS[*index].3)
    }
}

/// A member of a struct or union.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Empty for an anonymous struct or union.
    pub(crate) name: String,
    pub(crate) ty: Ty,
    /// The width of a bitfield.
    pub(crate) bits: Option<u32>,
    /// `__attribute__((aligned(…)))`, if it has one.
    aligned: Option<u32>,
}

/// A struct or union.
#[derive(Clone, Debug)]
pub(crate) struct Composite {
    /// Its tag. An anonymous one's is used for asking its layout only.
    pub(crate) tag: String,
    pub(crate) anonymous: bool,
    pub(crate) union: bool,
    packed: bool,
    pub(crate) members: Vec<Member>,
}

/// A member as a path names it: through anonymous structs and unions.
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) ty: Ty,
    pub(crate) bits: Option<u32>,
}

/// Where everything is, as the C compiler has it.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Bytes of each composite.
    pub(crate) sizes: Vec<u32>,
    /// Bits from the start to each of its members.
    pub(crate) offsets: Vec<Vec<u32>>,
}

/// The types of a round.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    /// Only those before it are inside one.
    pub(crate) composites: Vec<Composite>,
    /// Those that are not anonymous.
    pub(crate) named: Vec<usize>,
    /// Names and types of the arguments.
    pub(crate) params: Vec<(&'static str, Ty)>,
}

impl Family {
    pub(crate) fn random(rng: &mut Rng) -> Family {
        let mut family = Family {
            composites: Vec::new(),
            named: Vec::new(),
            params: Vec::new(),
        };
        let mut maker = Maker { rng, names: 0 };
        for index in 0..STRUCTS {
            let union = maker.rng.below(8) == 0;
            let made = maker.composite(&mut family, format!("s{index}"), union, None);
            family.named.push(made);
        }
        let named = family.named.clone();
        for composite in &mut family.composites {
            for member in &mut composite.members {
                if let Ty::Ptr(to) = &mut member.ty
                    && let Ty::Comp(later) = **to
                {
                    **to = Ty::Comp(named[later - LATER]);
                }
            }
        }
        let named = |index: usize| Ty::Comp(named[index]);
        family.params = vec![
            ("p", named(STRUCTS - 1).ptr()),
            ("q", named(1).ptr()),
            ("a", INT),
            ("b", Ty::Int(U8)),
            ("c", Ty::Int(18)),
            ("d", UINT),
            ("e", Ty::Int(7)),
            ("h", Ty::Bool),
            ("k", Ty::Enum(1)),
            ("u", named(2).ptr()),
            ("s", Ty::Int(CHAR).ptr()),
            ("pp", named(0).ptr().ptr()),
        ];
        family
    }

    /// What members a path can name.
    pub(crate) fn members(&self, index: usize) -> Vec<Named> {
        let mut out = Vec::new();
        for member in &self.composites[index].members {
            match member.ty {
                Ty::Comp(inner) if member.name.is_empty() => out.extend(self.members(inner)),
                Ty::Void | Ty::Int(_) | Ty::Bool | Ty::Enum(_) | Ty::Ptr(_) | Ty::Array(..) | Ty::Comp(_) => {
                    out.push(Named {
                        name: member.name.clone(),
                        ty: member.ty.clone(),
                        bits: member.bits,
                    })
                }
            }
        }
        out
    }

    /// A declaration of `name`, or the type alone if that is empty.
    pub(crate) fn declare(&self, ty: &Ty, name: &str) -> String {
        let (base, inner) = match ty {
            Ty::Void => ("void".to_string(), name.to_string()),
            Ty::Int(index) => (INTS[*index].0.to_string(), name.to_string()),
            Ty::Bool => ("_Bool".to_string(), name.to_string()),
            Ty::Enum(index) => (format!("enum {}", ENUMS[*index].0), name.to_string()),
            Ty::Ptr(to) => {
                let inner = match **to {
                    Ty::Array(..) => format!("(*{name})"),
                    Ty::Void | Ty::Int(_) | Ty::Bool | Ty::Enum(_) | Ty::Ptr(_) | Ty::Comp(_) => {
                        format!("*{name}")
                    }
                };
                return self.declare(to, &inner);
            }
            Ty::Array(elem, len) => return self.declare(elem, &format!("{name}[{len}]")),
            Ty::Comp(index) => (self.keyword(*index), name.to_string()),
        };
        if inner.is_empty() {
            base
        } else {
            format!("{base} {inner}")
        }
    }

    fn keyword(&self, index: usize) -> String {
        let composite = &self.composites[index];
        let keyword = if composite.union { "union" } else { "struct" };
        format!("{keyword} {}", composite.tag)
    }

    /// Every enum, struct and union as C text. Those without a tag are there once more with one, for casts and questions.
    pub(crate) fn declarations(&self) -> String {
        let mut out = String::new();
        for (name, _, _, packed, values) in ENUMS {
            let values: Vec<String> = values
                .iter()
                .map(|(name, value)| format!("{name} = {value}LL"))
                .collect();
            let packed = if packed { " __attribute__((packed))" } else { "" };
            let _ = writeln!(out, "enum{packed} {name} {{ {} }};", values.join(", "));
        }
        for index in 0..self.composites.len() {
            let _ = writeln!(out, "{};", self.keyword(index));
        }
        for index in 0..self.composites.len() {
            let _ = writeln!(out, "{} {};", self.keyword(index), self.body(index));
        }
        out
    }

    fn body(&self, index: usize) -> String {
        let mut out = "{".to_string();
        for member in &self.composites[index].members {
            let text = match (&member.ty, member.bits) {
                (Ty::Comp(inner), _) if self.composites[*inner].anonymous => {
                    let keyword = if self.composites[*inner].union {
                        "union"
                    } else {
                        "struct"
                    };
                    format!("{keyword} {} {}", self.body(*inner), member.name)
                }
                (ty, Some(width)) => format!("{}:{width}", self.declare(ty, &member.name)),
                (ty, None) => self.declare(ty, &member.name),
            };
            let aligned = member.aligned.map_or(String::new(), |bytes| {
                format!(" __attribute__((aligned({bytes})))")
            });
            let _ = write!(out, " {text}{aligned};");
        }
        out.push_str(" }");
        if self.composites[index].packed {
            out.push_str(" __attribute__((packed))");
        }
        out
    }

    /// Statements that print `size INDEX BYTES` and `at INDEX MEMBER BITS` for everything.
    pub(crate) fn questions(&self) -> String {
        let mut out = String::new();
        for index in 0..self.composites.len() {
            let keyword = self.keyword(index);
            let _ = writeln!(out, "printf(\"size {index} %zu\\n\", sizeof({keyword}));");
            for (number, member) in self.composites[index].members.iter().enumerate() {
                let leaf = self.first_leaf(member);
                let _ = writeln!(
                    out,
                    "printf(\"at {index} {number} %d\\n\", LOWEST({keyword}, {leaf}));"
                );
            }
        }
        out
    }

    /// The scalar with which a member begins, and which begins where the member does.
    fn first_leaf(&self, member: &Member) -> String {
        let mut path = member.name.clone();
        let mut ty = &member.ty;
        while let Ty::Array(elem, _) = ty {
            path.push_str("[0]");
            ty = elem;
        }
        if let Ty::Comp(inner) = ty {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&self.first_leaf(&self.composites[*inner].members[0]));
        }
        path
    }

    /// The same as BTF, with the function and the tracepoint `probe_me`.
    pub(crate) fn types(&self, places: &Places) -> Types {
        let mut writer = Btf {
            family: self,
            b: Builder::new(),
            known: Vec::new(),
            later: Vec::new(),
            composites: Vec::new(),
        };
        for (name, of) in [("s8", "signed char"), ("s16", "short int")] {
            let of = writer.b.ty(of);
            writer.b.typedef(name, of);
        }
        for (index, (name, size, signed, _, values)) in ENUMS.iter().enumerate() {
            let id = writer.b.writer.enum_(name, *size, *signed, values);
            writer.known.push((Ty::Enum(index), id));
        }
        for (index, composite) in self.composites.iter().enumerate() {
            let types: Vec<u32> = composite
                .members
                .iter()
                .map(|member| writer.id(&member.ty))
                .collect();
            let fields: Vec<Field<'_>> = composite
                .members
                .iter()
                .zip(&types)
                .zip(&places.offsets[index])
                .map(|((member, ty), offset)| Field {
                    name: &member.name,
                    ty: *ty,
                    bit_offset: *offset,
                    width: member.bits.unwrap_or(0) as u8,
                })
                .collect();
            let name = if composite.anonymous { "" } else { &composite.tag };
            let id = writer
                .b
                .writer
                .composite(composite.union, name, places.sizes[index], &fields);
            writer.composites.push(id);
        }
        let params: Vec<(&str, u32)> = self
            .params
            .iter()
            .map(|(name, ty)| (*name, writer.id(ty)))
            .collect();
        for (pointer, index) in std::mem::take(&mut writer.later) {
            let target = writer.composites[index];
            writer.b.aim(pointer, target);
        }
        let int = writer.b.ty("int");
        writer.b.func("probe_me", int, &params);
        writer.b.tracepoint("probe_me", "__bpf_trace_", &params);
        types_of(&writer.b.writer)
    }
}

struct Btf<'f> {
    family: &'f Family,
    b: Builder,
    known: Vec<(Ty, u32)>,
    /// Pointers to composites that are not written yet.
    later: Vec<(u32, usize)>,
    composites: Vec<u32>,
}

impl Btf<'_> {
    fn id(&mut self, ty: &Ty) -> u32 {
        if let Some((_, id)) = self.known.iter().find(|(known, _)| known == ty) {
            return *id;
        }
        let id = match ty {
            Ty::Void => return 0,
            Ty::Int(index) => return self.b.ty(INTS[*index].0),
            Ty::Bool => return self.b.ty("bool"),
            Ty::Enum(_) => unreachable!("written before"),
            Ty::Comp(index) => return self.composites[*index],
            Ty::Ptr(to) => match **to {
                Ty::Comp(index) => {
                    assert!(!self.family.composites[index].anonymous, "nothing points to it");
                    let id = self.b.ptr_later();
                    self.later.push((id, index));
                    id
                }
                Ty::Void | Ty::Int(_) | Ty::Bool | Ty::Enum(_) | Ty::Ptr(_) | Ty::Array(..) => {
                    let id = self.id(to);
                    // The kernel's strings are constant, which must change nothing.
                    if ty.points_to_char() {
                        self.b.const_ptr(id)
                    } else {
                        self.b.ptr(id)
                    }
                }
            },
            Ty::Array(elem, len) => {
                let elem = self.id(elem);
                self.b.array(elem, *len)
            }
        };
        self.known.push((ty.clone(), id));
        id
    }
}

/// How many structs and unions have a name.
const STRUCTS: usize = 5;

struct Maker<'r> {
    rng: &'r mut Rng,
    names: usize,
}

impl Maker<'_> {
    fn name(&mut self) -> String {
        self.names += 1;
        format!("m{}", self.names)
    }

    /// Makes a composite and, before it, those inside it.
    fn composite(&mut self, family: &mut Family, tag: String, union: bool, inside: Option<usize>) -> usize {
        let (least, more, deeper) = match inside {
            Some(depth) => (2, 3, depth),
            None => (3, 9, 2),
        };
        let mut members = Vec::new();
        for _ in 0..least + self.rng.below(more) {
            members.push(self.member(family));
            // So that every struct that can be named has a member with an address.
            if inside.is_none() {
                members[0].bits = None;
            }
            if deeper > 0 && self.rng.below(5) == 0 {
                let tag = format!("{tag}_{}", members.len());
                let union = self.rng.below(2) == 0;
                let index = self.composite(family, tag, union, Some(deeper - 1));
                let nameless = self.rng.below(3) > 0;
                members.push(Member {
                    name: if nameless { String::new() } else { self.name() },
                    ty: Ty::Comp(index),
                    bits: None,
                    aligned: None,
                });
            }
        }
        family.composites.push(Composite {
            tag,
            anonymous: inside.is_some(),
            union,
            packed: self.rng.below(5) == 0,
            members,
        });
        family.composites.len() - 1
    }

    fn member(&mut self, family: &Family) -> Member {
        let mut bits = None;
        let int = self.rng.below(INTS.len());
        let scalar = Ty::Int(int);
        let made = family.named.len();
        let named = |rng: &mut Rng| Ty::Comp(family.named[rng.below(made)]);
        let ty = match self.rng.below(22) {
            0..5 => scalar,
            5..10 => {
                let size = INTS[int].1;
                bits = Some(1 + self.rng.below(8 * size as usize) as u32);
                scalar
            }
            10 => {
                bits = Some(1);
                Ty::Bool
            }
            11 => Ty::Bool,
            12 => Ty::Enum(self.rng.below(ENUMS.len())),
            13 => {
                bits = Some(1 + self.rng.below(32) as u32);
                Ty::Enum(self.rng.below(2))
            }
            14 => Ty::Array(Box::new(scalar), 1 + self.rng.below(5) as u32),
            15 => Ty::Array(Box::new(Ty::Array(Box::new(scalar), 3)), 2),
            16 => Ty::Array(Box::new(Ty::Int(CHAR)), 8),
            17 => Ty::Int(CHAR).ptr(),
            18 if made > 0 => named(self.rng),
            19 if made > 0 => Ty::Array(Box::new(named(self.rng)), 2),
            20 => [scalar.ptr(), Ty::Void.ptr(), Ty::Int(0).ptr().ptr()][self.rng.below(3)].clone(),
            // Also to those that are made later.
            _ => Ty::Comp(LATER + self.rng.below(STRUCTS)).ptr(),
        };
        Member {
            name: self.name(),
            ty,
            bits,
            aligned: (bits.is_none() && self.rng.below(16) == 0).then(|| [2, 4, 8, 16][self.rng.below(4)]),
        }
    }
}

/// Where the numbers of named composites begin that pointers use until all are made.
const LATER: usize = 1_000_000;
