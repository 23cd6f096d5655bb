//! From btf-rs's types to ours: the only file besides `mod` and `lookup` that sees btf-rs. Resolves both encodings of
//! bitfields, numbers types by (module, id), and turns whatever is malformed into `Type::Void`. Never caches.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kinds of types are btf-rs's, and may become more"
)]

use btf_rs::BtfType;

use super::{Composite, Enum, Func, Int, Member, Object, Param, Type, TypeId, Types, sign};

impl Types {
    /// The type's own name: tag, typedef name, function name; empty for pointers and anonymous types.
    pub fn name(&self, id: TypeId) -> String {
        if id.is_void() {
            return "void".to_string();
        }
        if let Some((name, _)) = Types::integer(id) {
            return name.to_string();
        }
        let Some((object, raw)) = self.raw(id) else {
            return String::new();
        };
        raw.as_btf_type()
            .map_or(String::new(), |named| object.text(named))
    }

    /// The function of this id with its parameters; `None` if it is none, or has no prototype.
    pub fn func(&self, id: TypeId) -> Option<Func> {
        let Type::Func { proto } = self.get(id) else {
            return None;
        };
        let Type::FuncProto {
            ret,
            params,
            variadic,
        } = self.get(proto)
        else {
            return None;
        };
        Some(Func {
            id,
            name: self.name(id),
            params: params.to_vec(),
            ret,
            variadic,
        })
    }

    /// The prototype of a function, which BTF has once for all functions that are declared alike; void for anything else.
    pub fn proto_of(&self, id: TypeId) -> TypeId {
        if let Type::Func { proto } = self.get(id) {
            proto
        } else {
            TypeId::VOID
        }
    }

    pub(super) fn decode(&self, id: TypeId) -> Type {
        if let Some((_, integer)) = Types::integer(id) {
            return integer;
        }
        if let Some(array) = Types::integer_array(id) {
            return array;
        }
        let Some((object, raw)) = self.raw(id) else {
            return Type::Void;
        };
        let at = |target: u32| object.id(id.module, target);
        let link = |target: Option<u32>| target.map_or(TypeId::VOID, at);
        match &raw {
            btf_rs::Type::Int(int) => {
                let name = object.text(int);
                match float_named(&name) {
                    Some(Named::Real) => Type::Float {
                        size: clamp(int.size()),
                    },
                    Some(Named::Complex) => Type::Other,
                    None => Type::Int(decode_int(int, &name)),
                }
            }
            btf_rs::Type::Float(float) => Type::Float {
                size: clamp(float.size()),
            },
            btf_rs::Type::Ptr(ptr) => Type::Ptr(link(ptr.get_type_id())),
            btf_rs::Type::Array(array) => Type::Array {
                elem: link(array.get_type_id()),
                len: clamp(array.len()),
            },
            btf_rs::Type::Struct(composite) => Type::Struct(self.decode_composite(object, id, composite)),
            btf_rs::Type::Union(composite) => Type::Union(self.decode_composite(object, id, composite)),
            btf_rs::Type::Enum(e) => {
                let (size, raw) = (clamp(e.size()), e.members.iter().map(|m| m.val()));
                let signed = e.is_signed() || (sign::guess(size, raw) && !self.tells_signs(id.module));
                let value = |raw: u32| {
                    if signed {
                        i128::from(raw as i32)
                    } else {
                        i128::from(raw)
                    }
                };
                Type::Enum(Enum {
                    name: object.text(e).into(),
                    size,
                    signed,
                    values: e
                        .members
                        .iter()
                        .map(|m| (object.text(m), value(m.val())))
                        .collect(),
                })
            }
            btf_rs::Type::Enum64(e) => {
                let signed = e.is_signed();
                let value = |raw: u64| {
                    if signed {
                        i128::from(raw as i64)
                    } else {
                        i128::from(raw)
                    }
                };
                Type::Enum(Enum {
                    name: object.text(e).into(),
                    size: clamp(e.size()),
                    signed,
                    values: e
                        .members
                        .iter()
                        .map(|m| (object.text(m), value(m.val())))
                        .collect(),
                })
            }
            btf_rs::Type::Fwd(fwd) => Type::Fwd {
                is_union: fwd.is_union(),
            },
            btf_rs::Type::Typedef(typedef) => Type::Typedef(link(typedef.get_type_id())),
            btf_rs::Type::Const(modifier) => Type::Const(link(modifier.get_type_id())),
            btf_rs::Type::Volatile(modifier) => Type::Volatile(link(modifier.get_type_id())),
            btf_rs::Type::Restrict(modifier) => Type::Restrict(link(modifier.get_type_id())),
            btf_rs::Type::TypeTag(tag) => Type::TypeTag {
                tag: object.text(tag).into(),
                ty: link(tag.get_type_id()),
            },
            btf_rs::Type::Func(func) => Type::Func {
                proto: link(func.get_type_id()),
            },
            btf_rs::Type::FuncProto(proto) => {
                let variadic = proto.parameters.last().is_some_and(|last| last.is_variadic());
                let named = proto.parameters.len() - usize::from(variadic);
                Type::FuncProto {
                    ret: at(proto.return_type_id()),
                    params: proto.parameters[..named]
                        .iter()
                        .map(|param| Param {
                            name: object.text(param),
                            ty: link(param.get_type_id()),
                        })
                        .collect(),
                    variadic,
                }
            }
            btf_rs::Type::Void => Type::Void,
            // Variables, sections and declaration tags, and any kind that a later btf-rs adds.
            _ => Type::Other,
        }
    }

    /// The object that defines the type, and btf-rs's view of it.
    pub(super) fn raw(&self, id: TypeId) -> Option<(&Object, btf_rs::Type)> {
        let object = self.object(id.module)?;
        if id.id < object.first || id.id >= object.end {
            return None;
        }
        object.btf.resolve_type_by_id(id.id).ok().map(|raw| (object, raw))
    }

    fn decode_composite(&self, object: &Object, id: TypeId, raw: &btf_rs::Struct) -> Composite {
        let members = raw
            .members
            .iter()
            .map(|member| {
                let ty = member
                    .get_type_id()
                    .map_or(TypeId::VOID, |target| object.id(id.module, target));
                let (bit_offset, bitfield) = match member.bitfield_size() {
                    Some(0) => (member.bit_offset(), None),
                    Some(width) => (member.bit_offset(), Some(width.min(64) as u8)),
                    None => self.old_bitfield(ty, member.bit_offset()),
                };
                Member {
                    name: object.text(member),
                    ty,
                    bit_offset,
                    bitfield,
                }
            })
            .collect();
        Composite {
            name: object.text(raw).into(),
            size: clamp(raw.size()),
            members,
        }
    }

    /// Without the kind flag a bitfield's width, and what is to be added to its offset, are in its integer type.
    fn old_bitfield(&self, ty: TypeId, bit_offset: u32) -> (u32, Option<u8>) {
        let mut id = ty;
        for _ in 0..super::CHAIN_MAX {
            // Looked at without decoding: the chain may come back to the very struct that is being decoded.
            let Some((object, raw)) = self.raw(id) else {
                return (bit_offset, None);
            };
            let next = match &raw {
                btf_rs::Type::Int(int) => {
                    let int = decode_int(int, "");
                    if int.bit_offset == 0 && u32::from(int.bits) == int.size.saturating_mul(8) {
                        return (bit_offset, None);
                    }
                    let start = bit_offset.saturating_add(u32::from(int.bit_offset));
                    return (start, Some(int.bits.clamp(1, 64)));
                }
                btf_rs::Type::Typedef(link) => link.get_type_id(),
                btf_rs::Type::Const(link) | btf_rs::Type::Volatile(link) => link.get_type_id(),
                _ => return (bit_offset, None),
            };
            id = next.map_or(TypeId::VOID, |target| object.id(id.module, target));
        }
        (bit_offset, None)
    }
}

impl Object {
    /// A type's or member's name; empty if it has none or it can't be read.
    pub(super) fn text(&self, named: &dyn BtfType) -> String {
        self.btf.resolve_name(named).unwrap_or_default()
    }

    /// An id as this object, which is module `module`, writes it.
    pub(super) fn id(&self, module: u16, id: u32) -> TypeId {
        if id == 0 {
            TypeId::VOID
        } else if id < self.first {
            TypeId { module: 0, id }
        } else {
            TypeId { module, id }
        }
    }
}

fn decode_int(int: &btf_rs::Int, name: &str) -> Int {
    let size = clamp(int.size());
    let full = u8::try_from(size.saturating_mul(8)).unwrap_or(u8::MAX);
    let (bits, bit_offset) = int_encoding(int).unwrap_or((full, 0));
    Int {
        size,
        signed: int.is_signed(),
        is_bool: int.is_bool(),
        is_char: size == 1 && is_char(int.is_char(), name),
        bits,
        bit_offset,
    }
}

/// What has the name of a floating-point type.
enum Named {
    Real,
    Complex,
}

/// pahole writes floating-point types as integers unless it is told otherwise (`--btf_gen_floats`), so that the name has to tell.
fn float_named(name: &str) -> Option<Named> {
    let has = |what: &str| name.split(' ').any(|word| word == what);
    let real = has("float") || has("double") || name.starts_with("_Float") || name.starts_with("__float");
    match real {
        true if has("complex") || has("_Complex") => Some(Named::Complex),
        true => Some(Named::Real),
        false => None,
    }
}

/// Whether an integer of one byte is a character by its encoding and its name. pahole encodes no characters, so that the name has to
/// tell; gcc's `-gbtf` encodes `unsigned char` and `signed char` as characters too, of which C makes small numbers.
fn is_char(encoded: bool, name: &str) -> bool {
    name == "char" || (encoded && !matches!(name, "unsigned char" | "signed char"))
}

/// Bits and offset of an integer's encoding word. btf-rs 2.0 keeps the word private, so it is taken from the debug
/// output, which has it under the name `data`; should that change, every integer counts as a whole one.
fn int_encoding(int: &btf_rs::Int) -> Option<(u8, u8)> {
    let shown = format!("{int:?}");
    let (_, after) = shown.rsplit_once("data: ")?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    let word: u32 = digits.parse().ok()?;
    Some((word as u8, (word >> 16) as u8))
}

fn clamp(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}
