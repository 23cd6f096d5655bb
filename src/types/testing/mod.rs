//! Types for tests and fuzzing that depend on no kernel: a small made-up kernel (`mini_kernel`), and the builder that it
//! is made with, which lays structs out as a C compiler for x86-64 does. Never part of a release build.

mod kernel;
mod special;

pub use kernel::{mini_kernel, mini_kernel_bytes, mini_kernel_with_module, mini_module_bytes};

use std::collections::BTreeMap;

use super::Types;
use super::write::{BtfWriter, FUNC_STATIC, Field, INT_BOOL, INT_SIGNED};

/// `Types` over what the writer holds.
///
/// # Panics
/// If the writer's output is no readable BTF.
pub fn types_of(writer: &BtfWriter) -> Types {
    Types::new(btf_rs::Btf::from_bytes(&writer.finish()).expect("the writer makes readable BTF"))
}

/// `Types` over a base and one module (number 1) of this name.
///
/// # Panics
/// If either is no readable BTF.
pub fn types_with_module(base: &BtfWriter, name: &str, module: &BtfWriter) -> Types {
    let base = btf_rs::Btf::from_bytes(&base.finish()).expect("the writer makes readable BTF");
    let split =
        btf_rs::Btf::from_split_bytes(&module.finish(), &base).expect("the writer makes readable split BTF");
    let mut types = Types::new(base);
    types.add_module(name, split);
    types
}

/// Builds BTF by C's rules: knows the size and alignment of every type made with it.
pub struct Builder {
    /// What has been written so far.
    pub writer: BtfWriter,
    shapes: BTreeMap<u32, Shape>,
    /// Integers and typedefs by name, so that `ty` can give them.
    names: BTreeMap<String, u32>,
}

#[derive(Clone, Copy)]
struct Shape {
    size: u32,
    align: u32,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// Starts with C's integers and the kernel's usual typedefs of them.
    pub fn new() -> Builder {
        let mut builder = Builder {
            writer: BtfWriter::new(),
            shapes: BTreeMap::new(),
            names: BTreeMap::from([("void".into(), 0)]),
        };
        for (name, size, encoding) in [
            ("int", 4, INT_SIGNED),
            ("char", 1, INT_SIGNED),
            ("signed char", 1, INT_SIGNED),
            ("unsigned char", 1, 0),
            ("short int", 2, INT_SIGNED),
            ("short unsigned int", 2, 0),
            ("unsigned int", 4, 0),
            ("long int", 8, INT_SIGNED),
            ("long unsigned int", 8, 0),
            ("long long int", 8, INT_SIGNED),
            ("long long unsigned int", 8, 0),
            ("_Bool", 1, INT_BOOL),
        ] {
            let id = builder.writer.int(name, size, encoding);
            builder.shape(id, size, size);
            builder.names.insert(name.into(), id);
        }
        for (name, of) in [
            ("bool", "_Bool"),
            ("__u8", "unsigned char"),
            ("__u16", "short unsigned int"),
            ("__u32", "unsigned int"),
            ("__u64", "long long unsigned int"),
            ("__s32", "int"),
            ("__s64", "long long int"),
            ("u8", "__u8"),
            ("u16", "__u16"),
            ("u32", "__u32"),
            ("u64", "__u64"),
            ("s32", "__s32"),
            ("s64", "__s64"),
            ("__be16", "__u16"),
            ("__be32", "__u32"),
            ("__kernel_size_t", "long unsigned int"),
            ("size_t", "__kernel_size_t"),
            ("ssize_t", "long int"),
            ("loff_t", "long long int"),
            ("pid_t", "int"),
            ("uid_t", "unsigned int"),
            ("gid_t", "unsigned int"),
            ("umode_t", "short unsigned int"),
            ("dev_t", "u32"),
            ("gfp_t", "unsigned int"),
            ("fmode_t", "unsigned int"),
        ] {
            let of = builder.ty(of);
            builder.typedef(name, of);
        }
        builder
    }

    /// An integer or typedef by name.
    ///
    /// # Panics
    /// If it has not been made.
    pub fn ty(&self, name: &str) -> u32 {
        *self
            .names
            .get(name)
            .unwrap_or_else(|| panic!("no type {name} in the fixture"))
    }

    /// A pointer.
    pub fn ptr(&mut self, to: u32) -> u32 {
        let id = self.writer.ptr(to);
        self.shape(id, 8, 8);
        id
    }

    /// `const T *`.
    pub fn const_ptr(&mut self, to: u32) -> u32 {
        let target = self.writer.const_(to);
        self.ptr(target)
    }

    /// `T __user *`.
    pub fn user_ptr(&mut self, to: u32) -> u32 {
        let target = self.writer.type_tag("user", to);
        self.ptr(target)
    }

    /// A pointer to a struct that is yet to be made; see `aim`.
    pub fn ptr_later(&mut self) -> u32 {
        self.ptr(0)
    }

    /// Makes a pointer point to the struct that was yet to be made.
    pub fn aim(&mut self, ptr: u32, to: u32) {
        self.writer.set_target(ptr, to);
    }

    /// An array.
    pub fn array(&mut self, elem: u32, len: u32) -> u32 {
        let index = self.ty("int");
        let id = self.writer.array(elem, index, len);
        let Shape { size, align } = self.shape_of(elem);
        self.shape(id, size * len, align);
        id
    }

    /// A typedef, which `ty` then knows.
    pub fn typedef(&mut self, name: &str, to: u32) -> u32 {
        let id = self.writer.typedef(name, to);
        let Shape { size, align } = self.shape_of(to);
        self.shape(id, size, align);
        self.names.insert(name.into(), id);
        id
    }

    /// A typedef of an anonymous struct.
    pub fn typedef_struct(&mut self, name: &str, layout: Layout) -> u32 {
        let id = self.composite("", layout);
        self.typedef(name, id)
    }

    /// A qualified type.
    pub fn volatile(&mut self, of: u32) -> u32 {
        let id = self.writer.volatile(of);
        let Shape { size, align } = self.shape_of(of);
        self.shape(id, size, align);
        id
    }

    /// A 4-byte enum, or 8-byte if a value needs it.
    pub fn enum_(&mut self, name: &str, values: &[(&str, i128)]) -> u32 {
        let signed = values.iter().any(|(_, value)| *value < 0);
        let wide = values.iter().any(|(_, value)| *value > i128::from(u32::MAX));
        let size = if wide { 8 } else { 4 };
        let id = self.writer.enum_(name, size, signed, values);
        self.shape(id, size, size);
        id
    }

    /// Finishes a struct or union.
    pub fn composite(&mut self, name: &str, layout: Layout) -> u32 {
        let mut bits = 0u32;
        let mut size = 0u32;
        let mut align = 1u32;
        let mut fields = Vec::new();
        for (field, ty, width) in &layout.fields {
            let shape = self.shape_of(*ty);
            align = align.max(shape.align);
            if layout.is_union {
                bits = 0;
            }
            let unit = shape.size * 8;
            let len = match width {
                // A bitfield may not cross a boundary of its own type.
                Some(width) if bits / unit != (bits + u32::from(*width) - 1) / unit => {
                    bits = bits.next_multiple_of(unit);
                    u32::from(*width)
                }
                Some(width) => u32::from(*width),
                None => {
                    bits = bits.next_multiple_of(shape.align * 8);
                    unit
                }
            };
            fields.push(Field {
                name: field,
                ty: *ty,
                bit_offset: bits,
                width: width.unwrap_or(0),
            });
            bits += len;
            size = size.max(bits.div_ceil(8));
        }
        let size = size.next_multiple_of(align);
        let id = self.writer.composite(layout.is_union, name, size, &fields);
        self.shape(id, size, align);
        id
    }

    /// A function with its prototype.
    pub fn func(&mut self, name: &str, ret: u32, params: &[(&str, u32)]) -> u32 {
        let proto = self.writer.func_proto(ret, params, false);
        self.writer.func(name, proto, FUNC_STATIC)
    }

    /// A tracepoint: the typedef, and a function `prefix` + `event` that has the names.
    pub fn tracepoint(&mut self, event: &str, prefix: &str, params: &[(&str, u32)]) {
        let void_ptr = self.ptr(0);
        let mut all = vec![("__data", void_ptr)];
        all.extend(params);
        let unnamed: Vec<(&str, u32)> = all.iter().map(|(_, ty)| ("", *ty)).collect();
        let proto = self.writer.func_proto(0, &unnamed, false);
        let ptr = self.ptr(proto);
        self.typedef(&format!("btf_trace_{event}"), ptr);
        let int = self.ty("int");
        let ret = if prefix == "__traceiter_" { int } else { 0 };
        self.func(&format!("{prefix}{event}"), ret, &all);
    }

    fn shape(&mut self, id: u32, size: u32, align: u32) {
        self.shapes.insert(id, Shape { size, align });
    }

    fn shape_of(&self, id: u32) -> Shape {
        self.shapes
            .get(&id)
            .copied()
            .unwrap_or(Shape { size: 0, align: 1 })
    }
}

/// The members of a struct or union in the making.
#[derive(Default)]
pub struct Layout {
    is_union: bool,
    fields: Vec<(&'static str, u32, Option<u8>)>,
}

impl Layout {
    /// An empty struct.
    pub fn structure() -> Layout {
        Layout::default()
    }

    /// An empty union.
    pub fn union() -> Layout {
        Layout {
            is_union: true,
            fields: Vec::new(),
        }
    }

    /// Adds a member.
    pub fn field(mut self, name: &'static str, ty: u32) -> Layout {
        self.fields.push((name, ty, None));
        self
    }

    /// Adds a bitfield.
    pub fn bits(mut self, name: &'static str, ty: u32, width: u8) -> Layout {
        self.fields.push((name, ty, Some(width)));
        self
    }
}
