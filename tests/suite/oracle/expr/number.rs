//! Numbers: literals, arguments, operators, calls, and what pointers give.

use super::super::family::{ENUMS, INT, INTS, LONG, Ty, UINT, ULONG};
use super::{ARITHMETIC, Expressions, Pair, World, common, constant, level, promoted};

impl Expressions<'_> {
    pub(super) fn literal(&mut self) -> Pair {
        let value = self.word();
        match self.below(12) {
            0 => {
                let (_, _, _, _, values) = ENUMS[self.rng.below(ENUMS.len())];
                let (name, value) = values[self.rng.below(values.len())];
                let wide = if i32::try_from(value).is_ok() { INT } else { ULONG };
                Pair {
                    ty: wide,
                    ..constant(name)
                }
            }
            1 => {
                let (name, value) =
                    self.pick(&[("true", "1"), ("false", "0"), ("ENOMEM", "12"), ("EAGAIN", "11")]);
                Pair {
                    c: value.to_string(),
                    ..constant(name)
                }
            }
            2 => constant(self.pick(&["'x'", "'\\0'", "'\\xff'", "'\\n'", "'\\''"])),
            3 => constant(&format!("{:#x}", value as u32)),
            4 => Pair {
                ty: ULONG,
                ..constant(&format!("{value:#x}"))
            },
            5 => {
                let suffix = self.pick(&["u", "U", "ul", "LL", "ull", "L"]);
                let ty = if suffix.len() == 1 && suffix != "L" {
                    UINT
                } else {
                    ULONG
                };
                Pair {
                    ty,
                    ..constant(&format!("{}{suffix}", value as u32))
                }
            }
            6 => constant(&format!("{:#b}", value as u16)),
            7 => constant(&format!("0{:o}", value as u16)),
            8 => Pair {
                ty: LONG,
                ..constant(&(value >> 1).to_string())
            },
            9 => {
                let text = format!("-{}", value as u16);
                Pair {
                    level: level::UNARY,
                    c: format!("({text})"),
                    ..constant(&text)
                }
            }
            _ => constant(&(value & 0x1ff).to_string()),
        }
    }

    /// Bits that are often at an edge.
    pub(super) fn word(&mut self) -> u64 {
        let bits = self.rng.bits();
        match self.below(4) {
            0 => bits,
            1 => bits >> 32,
            2 => self.pick(&[
                0,
                1,
                0x7f,
                0x80,
                0xff,
                0x7fff,
                0x8000,
                0xffff,
                0x7fff_ffff,
                0x8000_0000,
                0xffff_ffff,
                1 << 63,
                u64::MAX,
            ]),
            _ => bits & 0xff,
        }
    }

    /// A number of any type.
    pub(super) fn number(&mut self, depth: usize) -> Pair {
        if depth == 0 {
            return match self.below(6) {
                0 | 1 => self.literal(),
                2 | 3 => self.scalar_param(),
                _ => self.scalar(0),
            };
        }
        let d = depth - 1;
        match self.below(20) {
            0..5 => {
                let (op, level) = self.pick(&ARITHMETIC);
                self.arithmetic(op, level, d)
            }
            5 | 6 => self.shift(d),
            7 => {
                let inner = self.number(d);
                let op = self.pick(&["-", "~", "+"]);
                let mut text = self.at(&inner, level::UNARY);
                if text.starts_with(op) {
                    text = format!("({text})");
                }
                Pair {
                    constant: inner.constant,
                    ..Self::new_pair(
                        format!("{op}{text}"),
                        level::UNARY,
                        format!("({op}{})", inner.c),
                        promoted(&inner.ty),
                    )
                }
            }
            8 | 9 => {
                let inner = if self.below(4) == 0 {
                    self.number(d)
                } else {
                    self.scalar(d)
                };
                let to = match self.below(8) {
                    0 => Ty::Bool,
                    1 => Ty::Enum(self.rng.below(ENUMS.len())),
                    _ => Ty::Int(self.rng.below(INTS.len())),
                };
                self.cast(&inner, to)
            }
            10 | 11 => self.condition(d),
            12 | 13 => {
                let (cond, a, b) = (self.condition(d), self.number(d), self.number(d));
                let ty = common(&a.ty, &b.ty);
                self.conditional(&cond, &a, &b, ty)
            }
            14 => self.call(d),
            15 => self.of_pointers(d),
            16 => self.scalar_param(),
            _ => self.scalar(d),
        }
    }

    pub(super) fn scalar_param(&mut self) -> Pair {
        let name = self.pick(&["a", "b", "c", "d", "e", "h", "k"]);
        let (name, ty) = self.param(name);
        let query = if self.below(12) == 0 {
            let index = self
                .family
                .params
                .iter()
                .position(|(param, _)| *param == name)
                .unwrap_or(0);
            match self.below(2) {
                0 => format!("arg{index}"),
                _ => format!("$arg{}", index + 1),
            }
        } else {
            name.to_string()
        };
        Self::new_pair(query, level::POSTFIX, name.to_string(), ty)
    }

    /// A number that is in memory; a pointer is made one.
    pub(super) fn scalar(&mut self, depth: usize) -> Pair {
        let place = self.scalar_place(depth);
        let read = self.read(&place);
        match read.ty {
            Ty::Ptr(_) => self.cast(&read, ULONG),
            Ty::Void | Ty::Int(_) | Ty::Bool | Ty::Enum(_) | Ty::Array(..) | Ty::Comp(_) => read,
        }
    }

    pub(super) fn arithmetic(&mut self, op: &str, level: u8, depth: usize) -> Pair {
        let (a, mut b) = (self.number(depth), self.number(depth));
        let divides = matches!(op, "/" | "%");
        // Dividing by a constant 0 is refused, so a constant divisor has to be told to be another.
        if divides && b.constant {
            b = constant(&(1 + self.below(9)).to_string());
        }
        let c = match op {
            "/" => format!("DIV({}, {})", a.c, b.c),
            "%" => format!("REM({}, {})", a.c, b.c),
            op => format!("({} {op} {})", a.c, b.c),
        };
        let ty = common(&a.ty, &b.ty);
        Pair {
            constant: a.constant && b.constant,
            ..Self::new_pair(self.infix(&a, op, &b, level), level, c, ty)
        }
    }

    /// By less than the left side has bits: more is undefined in C.
    pub(super) fn shift(&mut self, depth: usize) -> Pair {
        let a = self.number(depth);
        let op = self.pick(&["<<", ">>"]);
        let ty = promoted(&a.ty);
        // Of a bitfield that is declared wider than it is, an `int` is made.
        let bits = if ty == INT || ty == UINT || self.below(3) > 0 {
            32
        } else {
            64
        };
        let by = if self.below(2) == 0 {
            constant(&self.below(bits).to_string())
        } else {
            let by = self.number(depth);
            let query = format!("{} & {}", self.at(&by, level::BIT_AND), 31);
            Pair {
                constant: by.constant,
                ..Self::new_pair(
                    query,
                    level::BIT_AND,
                    format!("({} & 31)", by.c),
                    promoted(&by.ty),
                )
            }
        };
        // Only a cast makes sure that it has 64 bits.
        let a = if bits == 64 { self.cast(&a, ty.clone()) } else { a };
        Pair {
            constant: a.constant && by.constant,
            ..Self::new_pair(
                self.infix(&a, op, &by, level::SHIFT),
                level::SHIFT,
                format!("({} {op} {})", a.c, by.c),
                ty,
            )
        }
    }

    pub(super) fn call(&mut self, depth: usize) -> Pair {
        match self.below(6) {
            0 => {
                let index = self.rng.below(self.family.named.len());
                let index = self.family.named[index];
                let named = self.family.declare(&Ty::Comp(index), "");
                let member = self.offset_member(index);
                let text = format!("offsetof({named}, {member})");
                Pair {
                    ty: ULONG,
                    ..constant(&text)
                }
            }
            1 => {
                let of = match self.below(3) {
                    0 => Ty::Int(self.rng.below(INTS.len())),
                    1 => Ty::Enum(self.rng.below(ENUMS.len())),
                    _ => Ty::Comp(self.family.named[self.rng.below(self.family.named.len())]),
                };
                let of = self.family.declare(&of, "");
                Pair {
                    ty: ULONG,
                    ..constant(&format!("sizeof({of})"))
                }
            }
            2 => {
                let place = self.place(depth);
                let (query, c) = if place.bits.is_some() {
                    // A bitfield has no size.
                    let mut read = self.number(depth);
                    while read.bitfield {
                        read = self.number(depth);
                    }
                    (read.query, read.c)
                } else {
                    (place.query, place.c)
                };
                Pair {
                    constant: true,
                    ..Self::new_pair(
                        format!("sizeof({query})"),
                        level::POSTFIX,
                        format!("sizeof({c})"),
                        ULONG,
                    )
                }
            }
            3 => {
                let base = self.pointer(depth, World::Kernel);
                Self::new_pair(
                    format!("is_err({})", base.query),
                    level::POSTFIX,
                    format!("IS_ERR({})", base.c),
                    INT,
                )
            }
            _ => {
                let (name, ty) = self.pick(&[
                    ("ntohs", 12),
                    ("htons", 12),
                    ("ntohl", 13),
                    ("htonl", 13),
                    ("ntohll", 14),
                    ("htonll", 14),
                ]);
                let inner = self.number(depth);
                Pair {
                    constant: inner.constant,
                    ..Self::new_pair(
                        format!("{name}({})", inner.query),
                        level::POSTFIX,
                        format!("{name}_({})", inner.c),
                        Ty::Int(ty),
                    )
                }
            }
        }
    }

    /// Numbers that pointers give.
    pub(super) fn of_pointers(&mut self, depth: usize) -> Pair {
        let a = self.pointer(depth, World::Kernel);
        match self.below(4) {
            0 => {
                let to = Ty::Int(self.rng.below(INTS.len()));
                self.cast(&a, to)
            }
            1 => {
                let mask = self.number(0);
                let query = self.infix(&a, "&", &mask, level::BIT_AND);
                Self::new_pair(
                    query,
                    level::BIT_AND,
                    format!("((u64){} & {})", a.c, mask.c),
                    ULONG,
                )
            }
            _ => {
                // C leaves the distance undefined where it is no whole number of elements.
                let Ty::Ptr(to) = &a.ty else {
                    unreachable!("a pointer")
                };
                let declared = self.family.declare(to, "");
                let by = self.below(4);
                let moved = Pair {
                    query: format!("{} + {by}", self.at(&a, level::ADD)),
                    level: level::ADD,
                    c: format!("({} + {by})", a.c),
                    ..a.clone()
                };
                // What has no name can't be cast to.
                let named = matches!(**to, Ty::Comp(index) if !self.family.composites[index].anonymous);
                let b = match self.below(2) {
                    1 if named => {
                        let other = self.pointer(depth, World::Kernel);
                        self.cast(&other, a.ty.clone())
                    }
                    _ => moved,
                };
                let query = self.infix(&a, "-", &b, level::ADD);
                let c = format!("(((long){} - (long){}) / (long)sizeof({declared}))", a.c, b.c);
                Self::new_pair(query, level::ADD, c, LONG)
            }
        }
    }
}
