//! Bitfields in arrays of packed structs: every size of an element, place and width of the field, and several elements beside each
//! other. Programs run over random bytes; what they show is compared with the bits themselves.

use ksnoop_jit::ir::generate::Rng;
use ksnoop_jit::types::Types;
use ksnoop_jit::types::testing::{Builder, types_of};
use ksnoop_jit::types::write::Field;
use ksnoop_jit::wire;

use super::exec::{WAYS, kernel_base};
use super::machine::{Machine, Moment, Region, number};
use super::running::{build, context};

const ELEMENTS: u32 = 4;

/// An element of so many bytes with a field of so many bits.
#[derive(Clone, Copy, Debug)]
struct Packed {
    size: u32,
    first: u32,
    width: u32,
    /// What the type of the field takes.
    unit: u32,
    /// Where the array begins.
    start: u32,
}

impl Packed {
    /// `look(struct holder *p)`, with `struct { … f : width; } items[]` in it.
    fn types(self) -> Types {
        let mut b = Builder::new();
        let unsigned = b.ty(match self.unit {
            4 => "unsigned int",
            _ => "long unsigned int",
        });
        let field = [Field::bits("f", unsigned, self.first, self.width as u8)];
        let item = b.writer.struct_("item", self.size, &field);
        let items = b.array(item, ELEMENTS);
        let whole = self.start + ELEMENTS * self.size;
        let holder = b
            .writer
            .struct_("holder", whole, &[Field::at("items", items, self.start)]);
        let pointer = b.ptr(holder);
        let int = b.ty("int");
        b.func("look", int, &[("p", pointer)]);
        types_of(&b.writer)
    }

    fn value(self, bytes: &[u8], index: u32) -> u64 {
        let first = 8 * (self.start + index * self.size) + self.first;
        (0..self.width)
            .map(|bit| {
                let at = first + bit;
                u64::from(bytes[at as usize / 8] >> (at % 8) & 1) << bit
            })
            .sum()
    }

    fn check(self, rng: &mut Rng) {
        let types = self.types();
        // The integer that contains the last field may end behind the struct.
        let mut bytes = vec![0; (self.start + ELEMENTS * self.size + 8) as usize];
        bytes.fill_with(|| rng.bits() as u8);
        let shown: Vec<String> = (0..ELEMENTS)
            .map(|index| format!("p->items[{index}].f"))
            .collect();
        // An element as a whole: so the program's own type of it gets the kernel's size.
        let text = format!("look({}, (u64)&p->items[1])", shown.join(", "));
        for way in WAYS {
            let built = match build(&text, &types, way) {
                Ok(built) => built,
                Err(spans) => panic!("{self:?}: refused at {spans:?}"),
            };
            let (bytes_of_context, caller) = context(way, &[kernel_base(0)]);
            let memory = vec![
                Region {
                    base: kernel_base(0),
                    bytes: bytes.clone(),
                },
                caller,
            ];
            let mut machine = Machine::new(memory, Moment::default());
            if let Err(why) = machine.run(&built.code, &bytes_of_context) {
                panic!("{self:?}, {way:?}: {why}");
            }
            let record = machine.records.first().map(Vec::as_slice).unwrap_or_default();
            let Some(layout) = &built.artifact.programs[0].layout else {
                panic!("{self:?}: nothing is shown");
            };
            let mut wanted: Vec<u64> = (0..ELEMENTS).map(|index| self.value(&bytes, index)).collect();
            wanted.push(kernel_base(0) + u64::from(self.start + self.size));
            let shown: Vec<u64> = layout
                .items
                .iter()
                .map(|item| number(&record[(item.offset + wire::VALUE) as usize..][..8]))
                .collect();
            assert_eq!(shown, wanted, "{self:?}, {way:?}");
        }
    }
}

#[test]
fn bitfields_in_packed_elements() {
    let mut rng = Rng::new(17);
    for unit in [4, 8] {
        for size in [4, 5, 6, 7, 9, 10, 11, 13] {
            for width in [1, 7, 17, 22, 31, 33, 57] {
                let room = 8 * size;
                if width > 8 * unit || width > room {
                    continue;
                }
                for _ in 0..3 {
                    let first = rng.below((room - width + 1) as usize) as u32;
                    let start = rng.below(4) as u32;
                    Packed {
                        size,
                        first,
                        width,
                        unit,
                        start,
                    }
                    .check(&mut rng);
                }
            }
        }
    }
}
