//! Writes BTF, little endian. In: types one after the other, each naming others by the ids it was given. Out: the bytes.
//! Ids are dense in order of creation and strings are shared, so the same calls give the same bytes. Never checks that an
//! id exists: tests build broken BTF with it on purpose.

use std::collections::BTreeMap;

/// `BtfWriter::int`: sign-extends.
pub const INT_SIGNED: u32 = 1;
/// `BtfWriter::int`: a character.
pub const INT_CHAR: u32 = 2;
/// `BtfWriter::int`: a boolean.
pub const INT_BOOL: u32 = 4;

/// `BtfWriter::func`: a static function.
pub const FUNC_STATIC: u32 = 0;
/// `BtfWriter::func`: a global function.
pub const FUNC_GLOBAL: u32 = 1;
/// `BtfWriter::func`: a function defined elsewhere, such as a kfunc.
pub const FUNC_EXTERN: u32 = 2;

/// One member for `BtfWriter::composite`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field<'a> {
    /// Empty for an anonymous struct or union.
    pub name: &'a str,
    /// Its type.
    pub ty: u32,
    /// Bits from the start.
    pub bit_offset: u32,
    /// Width in bits of a bitfield, else 0.
    pub width: u8,
}

impl<'a> Field<'a> {
    /// A member at a byte offset.
    pub fn at(name: &'a str, ty: u32, byte: u32) -> Field<'a> {
        Field {
            name,
            ty,
            bit_offset: byte * 8,
            width: 0,
        }
    }

    /// A bitfield.
    pub fn bits(name: &'a str, ty: u32, bit_offset: u32, width: u8) -> Field<'a> {
        Field {
            name,
            ty,
            bit_offset,
            width,
        }
    }
}

/// Builds one BTF object.
#[derive(Clone, Debug)]
pub struct BtfWriter {
    types: Words,
    strings: Vec<u8>,
    interned: BTreeMap<String, u32>,
    /// Where in `types` each own type begins.
    starts: Vec<usize>,
    /// For split BTF: how many types (with void) and string bytes the base has.
    first_id: u32,
    first_string: u32,
}

impl Default for BtfWriter {
    fn default() -> BtfWriter {
        BtfWriter::new()
    }
}

impl BtfWriter {
    /// An object that stands alone.
    pub fn new() -> BtfWriter {
        BtfWriter {
            types: Words::default(),
            strings: vec![0],
            interned: BTreeMap::from([(String::new(), 0)]),
            starts: Vec::new(),
            first_id: 1,
            first_string: 0,
        }
    }

    /// Split BTF over a finished base: ids and string offsets go on where the base's end.
    pub fn over(base: &BtfWriter) -> BtfWriter {
        BtfWriter {
            types: Words::default(),
            strings: vec![0],
            interned: BTreeMap::from([(String::new(), 0)]),
            starts: Vec::new(),
            first_id: base.next_id(),
            first_string: base.first_string + base.strings.len() as u32,
        }
    }

    /// The id that the next type will get.
    pub fn next_id(&self) -> u32 {
        self.first_id + self.starts.len() as u32
    }

    /// The offset of a string, which is added if it is new. Bytes after a NUL are dropped: BTF can't hold them.
    pub fn intern_str(&mut self, text: &str) -> u32 {
        let text = text.split('\0').next().unwrap_or("");
        if let Some(offset) = self.interned.get(text) {
            return *offset;
        }
        let offset = self.first_string + self.strings.len() as u32;
        self.strings.extend(text.as_bytes());
        self.strings.push(0);
        self.interned.insert(text.to_string(), offset);
        offset
    }

    /// An integer; `encoding` is a combination of the `INT_` constants.
    pub fn int(&mut self, name: &str, size: u32, encoding: u32) -> u32 {
        self.int_bits(name, size, encoding, 0, size.saturating_mul(8).min(255) as u8)
    }

    /// An integer with its own width and bit offset: how bitfields were encoded before structs had the kind flag.
    pub fn int_bits(&mut self, name: &str, size: u32, encoding: u32, bit_offset: u8, bits: u8) -> u32 {
        let id = self.header(name, Kind::Int, 0, false, size);
        self.types
            .word((encoding << 24) | (u32::from(bit_offset) << 16) | u32::from(bits));
        id
    }

    /// A floating point number.
    pub fn float(&mut self, name: &str, size: u32) -> u32 {
        self.header(name, Kind::Float, 0, false, size)
    }

    /// A pointer.
    pub fn ptr(&mut self, to: u32) -> u32 {
        self.header("", Kind::Ptr, 0, false, to)
    }

    /// A forward declaration.
    pub fn fwd(&mut self, name: &str, is_union: bool) -> u32 {
        self.header(name, Kind::Fwd, 0, is_union, 0)
    }

    /// An array of `len` elements.
    pub fn array(&mut self, elem: u32, index: u32, len: u32) -> u32 {
        let id = self.header("", Kind::Array, 0, false, 0);
        self.types.word(elem);
        self.types.word(index);
        self.types.word(len);
        id
    }

    /// A struct.
    pub fn struct_(&mut self, name: &str, size: u32, fields: &[Field<'_>]) -> u32 {
        self.composite(false, name, size, fields)
    }

    /// A union.
    pub fn union_(&mut self, name: &str, size: u32, fields: &[Field<'_>]) -> u32 {
        self.composite(true, name, size, fields)
    }

    /// A struct or union. The kind flag is set if there is a bitfield; offsets then have 24 bits.
    pub fn composite(&mut self, is_union: bool, name: &str, size: u32, fields: &[Field<'_>]) -> u32 {
        let flagged = fields.iter().any(|field| field.width != 0);
        let kind = if is_union { Kind::Union } else { Kind::Struct };
        let fields = &fields[..fields.len().min(VLEN_MAX)];
        let id = self.header(name, kind, fields.len(), flagged, size);
        for field in fields {
            let name = self.intern_str(field.name);
            self.types.word(name);
            self.types.word(field.ty);
            self.types.word(if flagged {
                (u32::from(field.width) << 24) | (field.bit_offset & 0xff_ffff)
            } else {
                field.bit_offset
            });
        }
        id
    }

    /// An enum: `ENUM64` if a value needs it, else `ENUM`.
    pub fn enum_(&mut self, name: &str, size: u32, signed: bool, values: &[(&str, i128)]) -> u32 {
        let fits = |value: i128| {
            if signed {
                i32::try_from(value).is_ok()
            } else {
                u32::try_from(value).is_ok()
            }
        };
        let wide = values.iter().any(|(_, value)| !fits(*value));
        let kind = if wide { Kind::Enum64 } else { Kind::Enum };
        let values = &values[..values.len().min(VLEN_MAX)];
        let id = self.header(name, kind, values.len(), signed, size);
        for (name, value) in values {
            let name = self.intern_str(name);
            self.types.word(name);
            self.types.word(*value as u32);
            if wide {
                self.types.word((*value >> 32) as u32);
            }
        }
        id
    }

    /// A function's type.
    pub fn func_proto(&mut self, ret: u32, params: &[(&str, u32)], variadic: bool) -> u32 {
        let params = &params[..params.len().min(VLEN_MAX - 1)];
        let id = self.header(
            "",
            Kind::FuncProto,
            params.len() + usize::from(variadic),
            false,
            ret,
        );
        for (name, ty) in params {
            let name = self.intern_str(name);
            self.types.word(name);
            self.types.word(*ty);
        }
        if variadic {
            self.types.word(0);
            self.types.word(0);
        }
        id
    }

    /// A function; `linkage` is one of the `FUNC_` constants.
    pub fn func(&mut self, name: &str, proto: u32, linkage: u32) -> u32 {
        self.header(name, Kind::Func, linkage as usize, false, proto)
    }

    /// A variable; linkage 0 is static, 1 global, 2 extern.
    pub fn var(&mut self, name: &str, ty: u32, linkage: u32) -> u32 {
        let id = self.header(name, Kind::Var, 0, false, ty);
        self.types.word(linkage);
        id
    }

    /// A section of variables: each with its type, offset and size.
    pub fn datasec(&mut self, name: &str, size: u32, variables: &[(u32, u32, u32)]) -> u32 {
        let variables = &variables[..variables.len().min(VLEN_MAX)];
        let id = self.header(name, Kind::Datasec, variables.len(), false, size);
        for (ty, offset, size) in variables {
            self.types.word(*ty);
            self.types.word(*offset);
            self.types.word(*size);
        }
        id
    }

    /// Another name for a type.
    pub fn typedef(&mut self, name: &str, to: u32) -> u32 {
        self.header(name, Kind::Typedef, 0, false, to)
    }

    /// `const`.
    pub fn const_(&mut self, to: u32) -> u32 {
        self.header("", Kind::Const, 0, false, to)
    }

    /// `volatile`.
    pub fn volatile(&mut self, to: u32) -> u32 {
        self.header("", Kind::Volatile, 0, false, to)
    }

    /// `restrict`.
    pub fn restrict(&mut self, to: u32) -> u32 {
        self.header("", Kind::Restrict, 0, false, to)
    }

    /// A type tag, such as `user`.
    pub fn type_tag(&mut self, tag: &str, to: u32) -> u32 {
        self.header(tag, Kind::TypeTag, 0, false, to)
    }

    /// A tag on a declaration, or on its member or parameter if `component` is not negative.
    pub fn decl_tag(&mut self, tag: &str, to: u32, component: i32) -> u32 {
        let id = self.header(tag, Kind::DeclTag, 0, false, to);
        self.types.word(component as u32);
        id
    }

    /// Changes what a pointer, typedef, modifier or function refers to: for types that refer to each other.
    pub fn set_target(&mut self, id: u32, to: u32) {
        if let Some(start) = id
            .checked_sub(self.first_id)
            .and_then(|index| self.starts.get(index as usize))
        {
            self.types.patch(start + 8, to);
        }
    }

    /// The object's bytes: a 24-byte header, the types, the strings.
    pub fn finish(&self) -> Vec<u8> {
        let types = self.types.as_bytes();
        let mut out = Words::default();
        out.bytes(&[0x9f, 0xeb, 1, 0]);
        for word in [
            24,
            0,
            types.len() as u32,
            types.len() as u32,
            self.strings.len() as u32,
        ] {
            out.word(word);
        }
        out.bytes(types);
        out.bytes(&self.strings);
        out.into_bytes()
    }

    fn header(&mut self, name: &str, kind: Kind, vlen: usize, flag: bool, size_or_type: u32) -> u32 {
        let id = self.next_id();
        let name = self.intern_str(name);
        self.starts.push(self.types.as_bytes().len());
        self.types.word(name);
        self.types
            .word((u32::from(flag) << 31) | ((kind as u32) << 24) | (vlen as u32 & 0xffff));
        self.types.word(size_or_type);
        id
    }
}

/// Bytes of little endian words.
#[derive(Clone, Default, Debug)]
pub(super) struct Words(Vec<u8>);

impl Words {
    pub(super) fn word(&mut self, word: u32) {
        self.0.extend(word.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn patch(&mut self, at: usize, word: u32) {
        if let Some(place) = self.0.get_mut(at..at + 4) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// What the 16 bits of a type's length field can count.
const VLEN_MAX: usize = 0xffff;

/// BTF's kinds by their numbers.
#[derive(Clone, Copy)]
enum Kind {
    Int = 1,
    Ptr = 2,
    Array = 3,
    Struct = 4,
    Union = 5,
    Enum = 6,
    Fwd = 7,
    Typedef = 8,
    Volatile = 9,
    Const = 10,
    Restrict = 11,
    Func = 12,
    FuncProto = 13,
    Var = 14,
    Datasec = 15,
    Float = 16,
    DeclTag = 17,
    TypeTag = 18,
    Enum64 = 19,
}
