//! Types that are not the kernel's: those of a program's own BTF, and C's integers for arguments that only a calling
//! convention or a USDT recipe describes. In: BTF objects, sizes. Out: ids like any other. Look-ups for the kernel never
//! see them: whoever means a program's types names its number.

use std::collections::{BTreeMap, BTreeSet};

use super::{Func, Int, NameKind, Object, Type, TypeId, Types};

/// Numbers of programs' objects start here; those of the kernel's modules stay below.
const FIRST: u16 = 0x8000;
/// The number of the object that C's integers are in.
const ABI: u16 = 0xffff;

/// C's integers on LP64, by id.
const INTS: [(&str, u32, bool); 9] = [
    ("", 0, false),
    ("unsigned char", 1, false),
    ("signed char", 1, true),
    ("short unsigned int", 2, false),
    ("short int", 2, true),
    ("unsigned int", 4, false),
    ("int", 4, true),
    ("long unsigned int", 8, false),
    ("long int", 8, true),
];

/// Above these bits of an id in that object is the length, for arrays of them.
const ARRAY_SHIFT: u32 = 8;

impl TypeId {
    /// C's integer of so many bytes: 1, 2, 4 or 8. Any other number gives the largest.
    pub fn integer(bytes: u8, signed: bool) -> TypeId {
        let at = INTS
            .iter()
            .position(|(_, size, sign)| *size == u32::from(bytes) && *sign == signed)
            .unwrap_or(INTS.len() - 2 + usize::from(signed));
        TypeId {
            module: ABI,
            id: at as u32,
        }
    }

    /// An array of `len` of C's integers, 1 to 65535 of them: what a format such as `u8[4]` makes of memory.
    pub fn integers(bytes: u8, signed: bool, len: u16) -> TypeId {
        let elem = TypeId::integer(bytes, signed);
        TypeId {
            id: elem.id | u32::from(len) << ARRAY_SHIFT,
            ..elem
        }
    }

    /// Whether it is a type of a program, not of the kernel.
    pub fn is_program(self) -> bool {
        self.module >= FIRST
    }
}

impl Types {
    /// Adds a program's own types, of a BTF that has no base. Returns the number of its object, which types of it have as
    /// their module. A program may have several.
    pub fn add_program(&mut self, name: &str, btf: btf_rs::Btf) -> u16 {
        let number = u16::try_from(self.programs.len()).map_or(ABI, |count| FIRST.saturating_add(count));
        if number < ABI {
            self.programs.push(Object::new(name, btf));
        }
        number
    }

    /// The number of the first object that was added under this name.
    pub fn program_named(&self, name: &str) -> Option<u16> {
        let at = self.programs.iter().position(|object| object.name == name)?;
        Some(FIRST + at as u16)
    }

    /// The number that means "no types of its own".
    pub fn no_program() -> u16 {
        ABI
    }

    /// Whether the number is that of a program with types of its own.
    pub fn has_program(&self, number: u16) -> bool {
        number >= FIRST && self.object(number).is_some()
    }

    /// The numbers of all objects of the program that this one is of, this one first: each of a program's compilation units may
    /// have types of its own.
    pub fn units(&self, number: u16) -> Vec<u16> {
        let mut units = vec![number];
        if number >= FIRST
            && let Some(own) = self.object(number)
        {
            let others = self.programs.iter().zip(FIRST..);
            units.extend(
                others.filter_map(|(object, other)| {
                    (other != number && object.name == own.name).then_some(other)
                }),
            );
        }
        units
    }

    /// All types of this name and kind in one program, those of this unit first.
    pub fn find_in_program(&self, number: u16, kind: NameKind, name: &str) -> Vec<TypeId> {
        let mut found: Vec<TypeId> = Vec::new();
        if name.is_empty() || number < FIRST {
            return found;
        }
        for unit in self.units(number) {
            self.scan(unit, |object, id, raw| {
                if raw.as_btf_type().is_some_and(|named| object.text(named) == name) {
                    found.push(id);
                }
            });
        }
        self.of_kind(found, kind)
    }

    /// The prototypes of a program's functions, by name; those that are spelled the same are one.
    pub fn prototypes_in_program(&self, number: u16, names: &BTreeSet<&str>) -> BTreeMap<String, Vec<Func>> {
        let mut found: BTreeMap<String, Vec<Func>> = BTreeMap::new();
        if number < FIRST {
            return found;
        }
        for unit in self.units(number) {
            for (id, name) in self.functions(unit) {
                if names.contains(name.as_str())
                    && let Some(func) = self.func(id)
                {
                    let known = found.entry(name).or_default();
                    let spelled = self.prototype(&func);
                    if known.iter().all(|other| self.prototype(other) != spelled) {
                        known.push(func);
                    }
                }
            }
        }
        found
    }

    /// The object of a number.
    pub(super) fn object(&self, number: u16) -> Option<&Object> {
        if number >= FIRST {
            self.programs.get(usize::from(number - FIRST))
        } else {
            self.objects.get(usize::from(number))
        }
    }

    /// An array of C's integers.
    pub(super) fn integer_array(id: TypeId) -> Option<Type> {
        let len = id.id >> ARRAY_SHIFT;
        let elem = TypeId {
            id: id.id & ((1 << ARRAY_SHIFT) - 1),
            ..id
        };
        (id.module == ABI && len > 0 && Types::integer(elem).is_some()).then_some(Type::Array { elem, len })
    }

    /// One of C's integers.
    pub(super) fn integer(id: TypeId) -> Option<(&'static str, Type)> {
        let (name, size, signed) = INTS.get(id.id as usize).filter(|_| id.module == ABI)?;
        let int = Int {
            size: *size,
            signed: *signed,
            is_bool: false,
            is_char: false,
            bits: (*size * 8) as u8,
            bit_offset: 0,
        };
        (*size > 0).then_some((name, Type::Int(int)))
    }
}
