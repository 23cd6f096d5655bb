//! Random structs that point to each other, memory with such structs in it, and queries about them, which `queries` writes. In: a
//! random number generator. Out: types, regions, texts. Nothing is run here.

mod queries;

use ksnoop_jit::ir::generate::Rng;
use ksnoop_jit::types::testing::{Builder, Layout, types_of};
use ksnoop_jit::types::{NameKind, Type, TypeId, Types};

use super::exec::{USER, kernel_base};
use super::machine::{Moment, Region};

/// Mapped memory around objects, so that pointers that are a little off stay inside.
const SLACK: usize = 4096;
const OBJECTS: usize = 3;

/// Random types, memory and queries.
pub(super) struct Generator<'a> {
    pub(super) rng: Rng,
    types: &'a Types,
    structs: Vec<TypeId>,
    /// Addresses that nothing is at may be in kernel memory; plain loads can't tell those.
    wild: bool,
}

const SCALARS: [&str; 16] = [
    "int",
    "char",
    "signed char",
    "unsigned char",
    "short int",
    "short unsigned int",
    "unsigned int",
    "long int",
    "long unsigned int",
    "bool",
    "u8",
    "u16",
    "u32",
    "u64",
    "s32",
    "s64",
];

fn one_of<T: Copy>(rng: &mut Rng, list: &[T]) -> T {
    list[rng.below(list.len())]
}

/// Random structs `s0` to `s3` that point to each other and hold each other, and a function `probe_me` of all of them.
pub(super) fn random_types(rng: &mut Rng) -> Types {
    let mut b = Builder::new();
    let mut names = 0;
    let mut name = move || -> &'static str {
        names += 1;
        Box::leak(format!("m{names}").into_boxed_str())
    };
    let kind = b.enum_("kind", &[("KIND_ONE", 1), ("KIND_BIG", 0x8000_0000)]);
    let level = b.enum_("level", &[("LEVEL_LOW", -3), ("LEVEL_HIGH", 7)]);
    let string = b.const_ptr(b.ty("char"));
    let pointers: Vec<u32> = (0..4).map(|_| b.ptr_later()).collect();
    let mut made: Vec<u32> = Vec::new();
    let mut rest = rng.clone();
    *rng = Rng::new(rest.bits());
    for index in 0..4usize {
        let mut layout = Layout::structure();
        for _ in 0..3 + rest.below(8) {
            layout = random_field(
                &mut b,
                &mut rest,
                layout,
                &mut name,
                &pointers,
                &made,
                [kind, level, string],
            );
            if rest.below(6) == 0 {
                let mut inner = if rest.below(2) == 0 {
                    Layout::structure()
                } else {
                    Layout::union()
                };
                for _ in 0..2 + rest.below(3) {
                    inner = random_field(
                        &mut b,
                        &mut rest,
                        inner,
                        &mut name,
                        &pointers,
                        &made,
                        [kind, level, string],
                    );
                }
                let inner = b.composite("", inner);
                // Anonymous, or a member of its own.
                let called = if rest.below(3) == 0 { name() } else { "" };
                layout = layout.field(called, inner);
            }
        }
        let id = b.composite(&format!("s{index}"), layout);
        b.aim(pointers[index], id);
        made.push(id);
    }
    let params = [
        ("p", pointers[3]),
        ("q", pointers[1]),
        ("a", b.ty("int")),
        ("b", b.ty("u8")),
        ("c", b.ty("s64")),
        ("d", b.ty("unsigned int")),
        ("e", b.ty("short int")),
        ("h", b.ty("bool")),
    ];
    let int = b.ty("int");
    b.func("probe_me", int, &params);
    types_of(&b.writer)
}

fn random_field(
    b: &mut Builder,
    rng: &mut Rng,
    layout: Layout,
    name: &mut dyn FnMut() -> &'static str,
    pointers: &[u32],
    made: &[u32],
    [kind, level, string]: [u32; 3],
) -> Layout {
    let scalar = b.ty(one_of(rng, &SCALARS));
    match rng.below(20) {
        0..6 => layout.field(name(), scalar),
        6..10 => {
            let (ty, bits) = one_of(
                rng,
                &[
                    ("int", 32),
                    ("unsigned int", 32),
                    ("u8", 8),
                    ("u16", 16),
                    ("short int", 16),
                    ("u64", 64),
                    ("long int", 64),
                    ("signed char", 8),
                ],
            );
            let width = 1 + rng.below(bits) as u8;
            let ty = b.ty(ty);
            layout.bits(name(), ty, width)
        }
        10 => layout.bits(name(), b.ty("bool"), 1),
        11 => layout.field(name(), if rng.below(2) == 0 { kind } else { level }),
        12 | 13 => {
            let array = b.array(scalar, 2 + rng.below(4) as u32);
            layout.field(name(), array)
        }
        14 => {
            let array = b.array(b.ty("char"), 8);
            layout.field(name(), array)
        }
        15 => layout.field(name(), string),
        16 if !made.is_empty() => layout.field(name(), one_of(rng, made)),
        17 if !made.is_empty() => {
            let array = b.array(one_of(rng, made), 2);
            layout.field(name(), array)
        }
        18 => {
            let to = b.ptr(scalar);
            layout.field(name(), to)
        }
        _ => layout.field(name(), one_of(rng, pointers)),
    }
}

impl<'a> Generator<'a> {
    pub(super) fn new(seed: u64, types: &'a Types, wild: bool) -> Generator<'a> {
        let structs = (0..4)
            .map(|index| types.find(NameKind::Struct, &format!("s{index}"))[0])
            .collect();
        Generator {
            rng: Rng::new(seed),
            types,
            structs,
            wild,
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.rng.below(end)
    }

    fn pick<'s>(&mut self, list: &[&'s str]) -> &'s str {
        list[self.rng.below(list.len())]
    }

    /// Memory with objects of each struct, and user strings.
    pub(super) fn memory(&mut self) -> Vec<Region> {
        let mut regions = Vec::new();
        for (index, id) in self.structs.clone().into_iter().enumerate() {
            let size = self.types.size_of(id).unwrap_or(0) as usize;
            let mut bytes = vec![0x5a; 2 * SLACK + OBJECTS * size];
            for object in 0..OBJECTS {
                self.fill(&mut bytes, SLACK + object * size, id);
            }
            regions.push(Region {
                base: kernel_base(index),
                bytes,
            });
        }
        regions.push(Region {
            base: USER,
            bytes: b"user\0text\0".repeat(200),
        });
        regions
    }

    fn fill(&mut self, bytes: &mut [u8], at: usize, ty: TypeId) {
        let put = |bytes: &mut [u8], value: u64, size: usize| {
            bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        };
        match self.types.get_stripped(ty) {
            Type::Struct(composite) | Type::Union(composite) => {
                for member in composite.members.iter() {
                    // Bitfields get what their neighbours get.
                    if member.bitfield.is_none() {
                        self.fill(bytes, at + member.bit_offset as usize / 8, member.ty);
                    } else {
                        let byte = at + member.bit_offset as usize / 8;
                        bytes[byte] = self.rng.bits() as u8;
                    }
                }
            }
            Type::Array { elem, len } => {
                let size = self.types.size_of(elem).unwrap_or(0) as usize;
                for index in 0..len as usize {
                    self.fill(bytes, at + index * size, elem);
                }
                let is_char = matches!(self.types.get_stripped(elem), Type::Int(int) if int.is_char);
                if is_char && self.below(3) > 0 && len == 8 {
                    let text = self.pick(&["eth0", "lo", "", "wlan0\u{ff}", "abcdefg"]);
                    bytes[at..at + 8].fill(0);
                    let text = &text.as_bytes()[..text.len().min(8)];
                    bytes[at..at + text.len()].copy_from_slice(text);
                }
            }
            Type::Ptr(to) => {
                let address = self.address(to);
                put(bytes, address, 8);
            }
            Type::Int(int) if int.is_bool => {
                let value = u64::from(self.below(2) == 0);
                put(bytes, value, 1);
            }
            Type::Int(_) | Type::Enum(_) => {
                let value = self.word();
                let size = self.types.size_of(ty).unwrap_or(1) as usize;
                put(bytes, value, size);
            }
            Type::Void
            | Type::Float { .. }
            | Type::Fwd { .. }
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => {}
        }
    }

    /// A pointer to something of that type, or a bad one.
    fn address(&mut self, to: TypeId) -> u64 {
        let to = self.types.complete(to);
        let is_char = matches!(self.types.get(to), Type::Int(int) if int.is_char);
        match self.below(8) {
            0 => 0,
            1 => one_of(&mut self.rng, &[-22i64 as u64, 0x1000, 0x00de_ad00_0000_0100]),
            2 if self.wild => 0xffff_9999_0000_0000 + self.rng.bits() % 4096,
            3 if is_char => USER + self.rng.bits() % 100,
            _ => {
                let index = self.structs.iter().position(|id| *id == to);
                let index = index.unwrap_or_else(|| self.rng.below(4));
                let size = self.types.size_of(self.structs[index]).unwrap_or(0);
                kernel_base(index) + SLACK as u64 + size * self.rng.below(OBJECTS) as u64
            }
        }
    }

    /// A number as programs meet them.
    fn word(&mut self) -> u64 {
        match self.below(6) {
            0 => self.rng.below(4) as u64,
            1 => (self.rng.below(40) as i64 - 20) as u64,
            2 => one_of(
                &mut self.rng,
                &[
                    0x7f,
                    0x80,
                    0xff,
                    0x7fff,
                    0x8000,
                    0xffff,
                    0x7fff_ffff,
                    0x8000_0000,
                    0xffff_ffff,
                    i64::MAX as u64,
                    1 << 63,
                    u64::MAX,
                ],
            ),
            _ => self.rng.bits() >> self.rng.below(64),
        }
    }

    pub(super) fn args(&mut self) -> Vec<u64> {
        let (p, q) = (self.structs[3], self.structs[1]);
        let good = self.below(4) > 0;
        let mut pointer = |id: TypeId| {
            if good {
                let index = self.structs.iter().position(|s| *s == id).unwrap_or(0);
                kernel_base(index) + SLACK as u64
            } else {
                self.address(id)
            }
        };
        let mut args = vec![pointer(p), pointer(q)];
        // What is above a narrow argument in its register is nobody's business.
        args.extend((0..5).map(|_| self.word()));
        args.push(self.rng.bits() << 8 | u64::from(self.below(2) == 0));
        args
    }
}

pub(super) fn moment(rng: &mut Rng) -> Moment {
    Moment {
        pid_tgid: rng.bits(),
        uid_gid: rng.bits(),
        cpu: rng.below(64) as u32,
        ktime: rng.bits() >> 1,
        comm: *b"kworker/0:1\0\0\0\0\0",
    }
}
