//! Random contents: objects of every struct, in kernel and in user memory, that point to each other, to nothing and to nowhere;
//! and the arguments. In: the types with their layout, and where memory begins. Out: bytes.

use ksnoop_jit::ir::generate::Rng;

use super::expr::World;
use super::family::{Family, Places, Ty};

/// Bytes of kernel memory, and of user memory.
pub(crate) const ARENA: usize = 256 << 10;
/// At both ends nothing is: what is a little off an object is still inside.
pub(crate) const MARGIN: usize = 32 << 10;
/// Objects of each struct.
const OBJECTS: usize = 3;

/// What an expression is computed over.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) kernel_base: u64,
    pub(crate) user_base: u64,
    pub(crate) kernel: Vec<u8>,
    pub(crate) user: Vec<u8>,
    /// Words as registers have them: above a narrow argument there is anything.
    pub(crate) args: Vec<u64>,
}

struct Painter<'a> {
    rng: Rng,
    family: &'a Family,
    places: &'a Places,
    /// Where the objects of each composite are in the arena; 0 for those that have none.
    objects: Vec<usize>,
    bases: [u64; 2],
}

impl Image {
    pub(crate) fn random(
        seed: u64,
        family: &Family,
        places: &Places,
        kernel_base: u64,
        user_base: u64,
    ) -> Image {
        let mut objects = vec![0; family.composites.len()];
        let mut at = 2 * MARGIN;
        for index in &family.named {
            objects[*index] = at;
            // Not aligned better than C asks for, but to be told apart.
            at += (OBJECTS * places.sizes[*index] as usize).next_multiple_of(64) + 64;
        }
        assert!(at + 2 * MARGIN < ARENA, "the structs are too large for the arena");
        let mut painter = Painter {
            rng: Rng::new(seed),
            family,
            places,
            objects,
            bases: [kernel_base, user_base],
        };
        let kernel = painter.arena(World::Kernel);
        let user = painter.arena(World::User);
        let args = family
            .params
            .iter()
            .map(|(name, ty)| painter.arg(name, ty))
            .collect();
        Image {
            kernel_base,
            user_base,
            kernel,
            user,
            args,
        }
    }
}

impl Painter<'_> {
    fn arena(&mut self, world: World) -> Vec<u8> {
        let mut bytes = vec![0x5a; ARENA];
        for index in self.family.named.clone() {
            for object in 0..OBJECTS {
                let at = self.objects[index] + object * self.places.sizes[index] as usize;
                self.fill(&mut bytes, at, &Ty::Comp(index), world);
            }
        }
        bytes
    }

    fn fill(&mut self, bytes: &mut [u8], at: usize, ty: &Ty, world: World) {
        match ty {
            Ty::Comp(index) => {
                for (number, member) in self.family.composites[*index].members.iter().enumerate() {
                    let bits = self.places.offsets[*index][number] as usize;
                    match member.bits {
                        // Bit by bit: its neighbours share its bytes.
                        Some(width) => {
                            let value = self.word();
                            for bit in 0..width as usize {
                                let place = 8 * at + bits + bit;
                                let mask = 1 << (place % 8);
                                bytes[place / 8] &= !mask;
                                if value >> bit & 1 == 1 {
                                    bytes[place / 8] |= mask;
                                }
                            }
                        }
                        None => self.fill(bytes, at + bits / 8, &member.ty, world),
                    }
                }
            }
            Ty::Array(elem, len) => {
                let size = self.size(elem);
                if elem.is_char() && *len == 8 && self.rng.below(3) > 0 {
                    let texts = ["eth0", "lo", "", "user", "wlan0", "abcdefg", "abcdefgh", "eth"];
                    let text = texts[self.rng.below(texts.len())];
                    bytes[at..at + 8].fill(0);
                    bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
                    return;
                }
                for index in 0..*len as usize {
                    self.fill(bytes, at + index * size, elem, world);
                }
            }
            Ty::Ptr(to) => {
                let address = self.address(to, world);
                bytes[at..at + 8].copy_from_slice(&address.to_le_bytes());
            }
            Ty::Bool => bytes[at] = self.rng.below(2) as u8,
            Ty::Int(_) | Ty::Enum(_) => {
                let size = self.size(ty);
                bytes[at..at + size].copy_from_slice(&self.word().to_le_bytes()[..size]);
            }
            Ty::Void => {}
        }
    }

    fn size(&self, ty: &Ty) -> usize {
        match ty {
            Ty::Comp(index) => self.places.sizes[*index] as usize,
            Ty::Array(elem, len) => *len as usize * self.size(elem),
            Ty::Ptr(_) => 8,
            Ty::Void | Ty::Int(_) | Ty::Bool | Ty::Enum(_) => {
                ty.number().map_or(1, |(bytes, _)| bytes as usize)
            }
        }
    }

    /// An address in a world, mostly of an object of the type.
    fn address(&mut self, to: &Ty, world: World) -> u64 {
        match self.rng.below(10) {
            0 => return 0,
            1 => {
                let bad = [
                    // An error pointer, the page that is never mapped, poison, one of the other world, and one that may be
                    // somebody's.
                    -22i64 as u64,
                    0x10,
                    0xdead_0000_0000_0100,
                    self.bases[usize::from(world == World::Kernel)] + 2 * MARGIN as u64,
                    self.rng.bits(),
                ];
                return bad[self.rng.below(bad.len())];
            }
            _ => {}
        }
        let index = match to {
            Ty::Comp(index) if self.objects[*index] > 0 => *index,
            Ty::Void | Ty::Int(_) | Ty::Bool | Ty::Enum(_) | Ty::Ptr(_) | Ty::Array(..) | Ty::Comp(_) => {
                self.family.named[self.rng.below(self.family.named.len())]
            }
        };
        let at = self.objects[index] + self.rng.below(OBJECTS) * self.places.sizes[index] as usize;
        self.bases[usize::from(world == World::User)] + at as u64
    }

    /// A number as programs meet them.
    fn word(&mut self) -> u64 {
        const EDGES: [u64; 12] = [
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
        ];
        match self.rng.below(6) {
            0 => self.rng.below(4) as u64,
            1 => (self.rng.below(40) as i64 - 20) as u64,
            2 => EDGES[self.rng.below(EDGES.len())],
            _ => self.rng.bits() >> self.rng.below(64),
        }
    }

    fn arg(&mut self, name: &str, ty: &Ty) -> u64 {
        match ty {
            Ty::Ptr(to) => {
                let world = if name == "u" { World::User } else { World::Kernel };
                self.address(to, world)
            }
            Ty::Bool => self.rng.bits() << 8 | self.rng.below(2) as u64,
            Ty::Int(_) | Ty::Enum(_) => {
                let size = 8 * self.size(ty) as u32;
                // The value, and noise above it.
                let noise = self.rng.bits().checked_shl(size).unwrap_or(0);
                noise | self.word() & (u64::MAX >> (64 - size))
            }
            Ty::Void | Ty::Array(..) | Ty::Comp(_) => unreachable!("no argument is one"),
        }
    }
}
