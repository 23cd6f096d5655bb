//! Random expressions, each twice: as a query has it, with as few parentheses as C's precedence allows (and a few more), and
//! as C has it, with all of them. In: a family of types and random numbers. Out: pairs of texts. The types that are followed
//! here only make the expressions well typed; what they come to is for the C compiler to say.
//!
//! In C, kernel and user memory lie elsewhere, so each step through a pointer is a macro of the prelude (`cc`): `K` and `U`
//! give the place for an address, `AT_K` and `AT_U` the address of a place.

use ksnoop_jit::ir::generate::Rng;

use super::family::{ENUMS, Family, INT, INTS, LONG, Named, Ty, UINT, ULONG};

/// An address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum World {
    Kernel,
    User,
}

impl World {
    fn place(self) -> &'static str {
        match self {
            World::Kernel => "K",
            World::User => "U",
        }
    }

    /// What a pointer points to, as an lvalue to read and one to take the address of.
    fn pointed(self, declared: &str, pointer: &str) -> (String, String) {
        let place = self.place();
        (
            format!("(*{place}({declared}, {pointer}))"),
            format!("(*{place}_FREE({declared}, {pointer}))"),
        )
    }

    fn address(self) -> &'static str {
        match self {
            World::Kernel => "AT_K",
            World::User => "AT_U",
        }
    }
}

/// What the outermost operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Top {
    Logical,
    Relation,
    Other,
}

/// An expression.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// As a query has it, without parentheses around it.
    pub(crate) query: String,
    level: u8,
    /// As C has it, in parentheses where it needs them.
    pub(crate) c: String,
    ty: Ty,
    top: Top,
    /// Nothing in it is read at run time.
    constant: bool,
    /// It is a bitfield, whose type C can't name.
    pub(crate) bitfield: bool,
}

/// Something in memory.
#[derive(Clone, Debug)]
struct Place {
    query: String,
    level: u8,
    /// An lvalue.
    c: String,
    /// The same where only its address is asked for, which nothing need be at.
    free: String,
    ty: Ty,
    bits: Option<u32>,
    world: World,
}

/// Precedence, C17 6.5, the loosest lowest.
mod level {
    pub(super) const COND: u8 = 4;
    pub(super) const OR: u8 = 5;
    pub(super) const AND: u8 = 6;
    pub(super) const BIT_OR: u8 = 7;
    pub(super) const XOR: u8 = 8;
    pub(super) const BIT_AND: u8 = 9;
    pub(super) const EQUAL: u8 = 10;
    pub(super) const LESS: u8 = 11;
    pub(super) const SHIFT: u8 = 12;
    pub(super) const ADD: u8 = 13;
    pub(super) const MUL: u8 = 14;
    pub(super) const UNARY: u8 = 15;
    pub(super) const POSTFIX: u8 = 16;
}

const RELATIONS: [(&str, u8); 6] = [
    ("==", level::EQUAL),
    ("!=", level::EQUAL),
    ("<", level::LESS),
    ("<=", level::LESS),
    (">", level::LESS),
    (">=", level::LESS),
];
const ARITHMETIC: [(&str, u8); 8] = [
    ("+", level::ADD),
    ("-", level::ADD),
    ("*", level::MUL),
    ("&", level::BIT_AND),
    ("|", level::BIT_OR),
    ("^", level::XOR),
    ("/", level::MUL),
    ("%", level::MUL),
];
const TEXTS: [&str; 7] = ["eth0", "lo", "user", "", "abcdefg", "eth", "abcdefgh"];
const PATTERNS: [&str; 5] = ["eth*", "*", "abcdefg*", "lo", "e*"];

/// Makes expressions over one family.
pub(crate) struct Expressions<'f> {
    rng: Rng,
    family: &'f Family,
    members: Vec<Vec<Named>>,
}

impl<'f> Expressions<'f> {
    pub(crate) fn new(seed: u64, family: &'f Family) -> Expressions<'f> {
        Expressions {
            rng: Rng::new(seed),
            family,
            members: (0..family.composites.len())
                .map(|index| family.members(index))
                .collect(),
        }
    }

    /// An expression that is shown, not judged.
    pub(crate) fn item(&mut self) -> Pair {
        let depth = self.below(5);
        let pair = match self.below(12) {
            0 => self.pointer(depth, World::Kernel),
            1 => {
                let place = self.scalar_place(depth.min(2));
                self.read(&place)
            }
            _ => self.number(depth),
        };
        // A constant is not worth showing, the language says.
        if pair.constant && pair.top == Top::Other {
            return Self::new_pair(
                format!("{} + (a & 0)", self.at(&pair, level::ADD)),
                level::ADD,
                format!("({} + (a & 0))", pair.c),
                common(&pair.ty, &INT),
            );
        }
        // A comparison would be a predicate, and a string would be shown as one.
        if pair.top != Top::Other || matches!(&pair.ty, Ty::Ptr(to) if to.is_char()) {
            let to = if matches!(pair.ty, Ty::Ptr(_)) { ULONG } else { INT };
            return self.cast(&pair, to);
        }
        pair
    }

    /// A predicate: its operators are in C what the language makes of them, each comparison with a fault being false.
    pub(crate) fn predicate(&mut self) -> Pair {
        self.judged(3, false)
    }

    fn judged(&mut self, depth: usize, negate: bool) -> Pair {
        match self.below(6) {
            choice @ (0 | 1) if depth > 0 => {
                let both = choice == 0;
                let (a, b) = (self.judged(depth - 1, negate), self.judged(depth - 1, negate));
                let (op, level) = if both {
                    ("&&", level::AND)
                } else {
                    ("||", level::OR)
                };
                let c = if both != negate { "&&" } else { "||" };
                Pair {
                    query: self.infix(&a, op, &b, level),
                    level,
                    c: format!("({} {c} {})", a.c, b.c),
                    ty: INT,
                    top: Top::Logical,
                    constant: false,
                    bitfield: false,
                }
            }
            2 if depth > 0 => {
                let inner = self.judged(depth - 1, !negate);
                Pair {
                    query: format!("!{}", self.at(&inner, level::UNARY)),
                    level: level::UNARY,
                    ..inner
                }
            }
            _ => {
                let mut leaf = self.condition(depth);
                while leaf.top == Top::Logical {
                    leaf = self.condition(0);
                }
                leaf.c = format!("LEAF({}{})", if negate { "!" } else { "" }, leaf.c);
                leaf
            }
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.rng.below(end)
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.rng.below(list.len())]
    }

    /// The query's text where a level is needed, sometimes in parentheses where none are.
    fn at(&mut self, pair: &Pair, least: u8) -> String {
        self.wrapped(&pair.query, pair.level, least)
    }

    fn wrapped(&mut self, text: &str, level: u8, least: u8) -> String {
        if level < least || self.below(12) == 0 {
            format!("({text})")
        } else {
            text.to_string()
        }
    }

    /// Operators of one level group from the left.
    fn infix(&mut self, a: &Pair, op: &str, b: &Pair, level: u8) -> String {
        let (a, b) = (self.at(a, level), self.at(b, level + 1));
        format!("{a} {op} {b}")
    }

    fn new_pair(query: String, level: u8, c: String, ty: Ty) -> Pair {
        Pair {
            query,
            level,
            c,
            ty,
            top: Top::Other,
            constant: false,
            bitfield: false,
        }
    }

    /// Something in memory, of any type.
    fn place(&mut self, depth: usize) -> Place {
        let world = if self.below(6) == 0 {
            World::User
        } else {
            World::Kernel
        };
        let base = self.pointer(depth.saturating_sub(1), world);
        let Ty::Ptr(to) = base.ty.clone() else {
            unreachable!("a pointer")
        };
        let declared = self.family.declare(&to, "");
        let by = self.below(4) as i64 - 1;
        let (query, level, pointer) = match self.below(10) {
            0 => (
                format!("*{}", self.at(&base, level::UNARY)),
                level::UNARY,
                base.c.clone(),
            ),
            1 => (
                format!("{}[{by}]", self.at(&base, level::POSTFIX)),
                level::POSTFIX,
                format!("{} + {by}L", base.c),
            ),
            _ => (String::new(), level::POSTFIX, base.c.clone()),
        };
        let (c, free) = world.pointed(&declared, &pointer);
        let start = Place {
            query,
            level,
            c,
            free,
            ty: *to,
            bits: None,
            world,
        };
        if start.query.is_empty() {
            // The first step is an arrow.
            let from = self.at(&base, level::POSTFIX);
            let stepped = self.step(start, &from, "->");
            return self.further(stepped, depth);
        }
        self.further(start, depth)
    }

    /// One member further.
    fn step(&mut self, place: Place, from: &str, arrow: &str) -> Place {
        let Ty::Comp(index) = place.ty else {
            unreachable!("a composite")
        };
        let number = self.rng.below(self.members[index].len());
        let member = &self.members[index][number];
        Place {
            query: format!("{from}{arrow}{}", member.name),
            level: level::POSTFIX,
            c: format!("{}.{}", place.c, member.name),
            free: format!("{}.{}", place.free, member.name),
            ty: member.ty.clone(),
            bits: member.bits,
            world: place.world,
        }
    }

    /// Through arrays, structs and sometimes pointers, until something small is reached or not.
    fn further(&mut self, mut place: Place, depth: usize) -> Place {
        loop {
            match place.ty.clone() {
                Ty::Array(elem, len) => {
                    if self.below(8) == 0 {
                        return place;
                    }
                    place = self.element(place, &elem, len, depth);
                }
                Ty::Comp(_) => {
                    if self.below(8) == 0 {
                        return place;
                    }
                    let from = self.wrapped(&place.query, place.level, level::POSTFIX);
                    place = self.step(place, &from, ".");
                }
                Ty::Ptr(to) if matches!(*to, Ty::Comp(_)) && self.below(2) == 0 => {
                    let declared = self.family.declare(&to, "");
                    let (c, free) = place.world.pointed(&declared, &place.c);
                    let through = Place {
                        c,
                        free,
                        ty: *to,
                        bits: None,
                        query: String::new(),
                        ..place
                    };
                    let from = self.wrapped(&place.query, place.level, level::POSTFIX);
                    place = self.step(through, &from, "->");
                }
                Ty::Void | Ty::Int(_) | Ty::Bool | Ty::Enum(_) | Ty::Ptr(_) => return place,
            }
        }
    }

    fn element(&mut self, place: Place, elem: &Ty, len: u32, depth: usize) -> Place {
        // A constant index that is out of bounds is refused, and one element is taken for a flexible array's.
        let index = if depth > 0 && len > 1 && self.below(3) > 0 {
            self.number(depth - 1)
        } else {
            let index = self.below(len as usize);
            constant(&index.to_string())
        };
        let index = if index.constant {
            constant(&self.below(len as usize).to_string())
        } else {
            index
        };
        Place {
            query: format!(
                "{}[{}]",
                self.wrapped(&place.query, place.level, level::POSTFIX),
                index.query
            ),
            level: level::POSTFIX,
            c: format!("{}[bound({}, {len})]", place.c, index.c),
            free: format!("{}[bound({}, {len})]", place.free, index.c),
            ty: elem.clone(),
            bits: None,
            world: place.world,
        }
    }

    /// A number or pointer in memory.
    fn scalar_place(&mut self, depth: usize) -> Place {
        loop {
            let place = self.place(depth);
            match &place.ty {
                Ty::Int(_) | Ty::Bool | Ty::Enum(_) => return place,
                // A number behind a pointer.
                Ty::Ptr(to) if to.number().is_some() && self.below(2) == 0 => {
                    let declared = self.family.declare(to, "");
                    let (query, index, level) = match self.below(2) {
                        0 => (
                            format!("*{}", self.wrapped(&place.query, place.level, level::UNARY)),
                            0,
                            level::UNARY,
                        ),
                        _ => {
                            let index = self.below(3);
                            let base = self.wrapped(&place.query, place.level, level::POSTFIX);
                            (format!("{base}[{index}]"), index, level::POSTFIX)
                        }
                    };
                    let (c, free) = place.world.pointed(&declared, &format!("{} + {index}", place.c));
                    return Place {
                        query,
                        level,
                        c,
                        free,
                        ty: (**to).clone(),
                        ..place
                    };
                }
                Ty::Ptr(_) if self.below(8) == 0 => return place,
                Ty::Void | Ty::Ptr(_) | Ty::Array(..) | Ty::Comp(_) => {}
            }
        }
    }

    /// The value of what is in memory. For C, a `bool` is read as the byte that it is, which it may share with others; a
    /// bitfield that is wider than an `int` has its declared type, as clang has it and the language, where gcc makes a type of
    /// that many bits.
    fn read(&mut self, place: &Place) -> Pair {
        let declared = self.family.declare(&place.ty, "");
        let c = match (&place.ty, place.bits) {
            (Ty::Array(elem, _), _) => {
                let to = self.family.declare(&elem.clone().ptr(), "");
                return Self::new_pair(
                    place.query.clone(),
                    place.level,
                    format!("(({to}){}({}))", place.world.address(), place.free),
                    elem.clone().ptr(),
                );
            }
            (Ty::Bool, None) => format!("bool_at(&{})", place.c),
            (_, Some(33..)) => format!("(({declared}){})", place.c),
            (Ty::Void | Ty::Int(_) | Ty::Bool | Ty::Enum(_) | Ty::Ptr(_) | Ty::Comp(_), _) => {
                format!("({})", place.c)
            }
        };
        Pair {
            bitfield: place.bits.is_some(),
            ..Self::new_pair(place.query.clone(), place.level, c, place.ty.clone())
        }
    }

    /// A pointer to a named struct or union, or to something else with members.
    fn pointer(&mut self, depth: usize, world: World) -> Pair {
        if world == World::User {
            // What follows `user()` is user memory, and what that points to.
            let (inner, ty) = match self.below(4) {
                0 => {
                    let index = self.rng.below(self.family.named.len());
                    let ty = Ty::Comp(self.family.named[index]).ptr();
                    let to = self.family.declare(&ty, "");
                    (format!("({to})u"), ty)
                }
                _ => ("u".to_string(), self.param("u").1),
            };
            let to = self.family.declare(&ty, "");
            return Self::new_pair(format!("user({inner})"), level::POSTFIX, format!("(({to})u)"), ty);
        }
        let plain = |this: &mut Self| {
            let name = this.pick(&["p", "p", "q"]);
            let (name, ty) = this.param(name);
            Self::new_pair(name.to_string(), level::POSTFIX, name.to_string(), ty)
        };
        if depth == 0 {
            return plain(self);
        }
        match self.below(12) {
            0 => {
                let base = self.pointer(depth - 1, world);
                let by = self.below(4);
                let op = self.pick(&["+", "-"]);
                let query = format!("{} {op} {by}", self.at(&base, level::ADD));
                let c = format!("({} {op} {by})", base.c);
                Self::new_pair(query, level::ADD, c, base.ty)
            }
            1 => {
                let base = self.pointer(depth - 1, world);
                let index = self.rng.below(self.family.named.len());
                self.cast(&base, Ty::Comp(self.family.named[index]).ptr())
            }
            2 => {
                // Numbers become addresses, sometimes good ones.
                let base = self.pointer(depth - 1, world);
                let number = match self.below(3) {
                    0 => self.number(0),
                    1 => self.cast(&base, ULONG),
                    _ => {
                        let number = self.cast(&base, LONG);
                        let by = self.pick(&["8", "16", "1"]);
                        let query = format!("{} + {by}", self.at(&number, level::ADD));
                        Self::new_pair(query, level::ADD, format!("({} + {by})", number.c), LONG)
                    }
                };
                let index = self.rng.below(self.family.named.len());
                self.cast(&number, Ty::Comp(self.family.named[index]).ptr())
            }
            3 => {
                let base = self.pointer(depth - 1, world);
                let other = if self.below(3) == 0 {
                    Self::new_pair(
                        "NULL".to_string(),
                        level::POSTFIX,
                        "((void *)0)".to_string(),
                        base.ty.clone(),
                    )
                } else {
                    base.clone()
                };
                let mut other = other;
                if other.query != "NULL" {
                    other.query = format!("{} + 1", self.at(&base, level::ADD));
                    other.level = level::ADD;
                    other.c = format!("({} + 1)", base.c);
                }
                let cond = self.condition(depth - 1);
                let ty = base.ty.clone();
                self.conditional(&cond, &base, &other, ty)
            }
            4 => self.container(depth),
            5 => {
                // `pp` points to pointers.
                let (_, ty) = self.param("pp");
                let Ty::Ptr(to) = ty else {
                    unreachable!("a pointer")
                };
                let declared = self.family.declare(&to, "");
                let index = self.below(3);
                let (query, level) = match index {
                    0 => ("*pp".to_string(), level::UNARY),
                    index => (format!("pp[{index}]"), level::POSTFIX),
                };
                Self::new_pair(query, level, format!("(*K({declared}, pp + {index}))"), *to)
            }
            6..9 => {
                for _ in 0..10 {
                    let place = self.place(depth - 1);
                    if place.world != world {
                        continue;
                    }
                    match &place.ty {
                        Ty::Comp(_) if place.bits.is_none() => {
                            let query = format!("&{}", self.wrapped(&place.query, place.level, level::UNARY));
                            let ty = place.ty.clone().ptr();
                            let to = self.family.declare(&ty, "");
                            return Self::new_pair(
                                query,
                                level::UNARY,
                                format!("(({to})AT_K(&{}))", place.free),
                                ty,
                            );
                        }
                        Ty::Ptr(to) if matches!(**to, Ty::Comp(_)) => return self.read(&place),
                        Ty::Void
                        | Ty::Int(_)
                        | Ty::Bool
                        | Ty::Enum(_)
                        | Ty::Ptr(_)
                        | Ty::Array(..)
                        | Ty::Comp(_) => {}
                    }
                }
                plain(self)
            }
            _ => plain(self),
        }
    }

    /// `container_of` of the address of a member.
    fn container(&mut self, depth: usize) -> Pair {
        let index = self.rng.below(self.family.named.len());
        let outer = Ty::Comp(self.family.named[index]);
        let member = self.offset_member(self.family.named[index]);
        let base = self.pointer(depth - 1, World::Kernel);
        let named = self.family.declare(&outer, "");
        let to = self.family.declare(&outer.clone().ptr(), "");
        Self::new_pair(
            format!("container_of({}, {named}, {member})", base.query),
            level::POSTFIX,
            format!("(({to})((char *){} - offsetof({named}, {member})))", base.c),
            outer.ptr(),
        )
    }

    /// A member that has a byte offset, as `offsetof` takes it.
    fn offset_member(&mut self, index: usize) -> String {
        let plain: Vec<&Named> = self.members[index]
            .iter()
            .filter(|member| member.bits.is_none())
            .collect();
        let member = plain[self.rng.below(plain.len())];
        match &member.ty {
            Ty::Array(_, len) => format!("{}[{}]", member.name, len - 1),
            Ty::Comp(inner) if self.members[*inner].iter().any(|member| member.bits.is_none()) => {
                let (name, inner) = (member.name.clone(), *inner);
                format!("{name}.{}", self.offset_member(inner))
            }
            Ty::Void | Ty::Int(_) | Ty::Bool | Ty::Enum(_) | Ty::Ptr(_) | Ty::Comp(_) => member.name.clone(),
        }
    }

    fn param(&self, name: &str) -> (&'static str, Ty) {
        let found = self.family.params.iter().find(|(param, _)| *param == name);
        found.cloned().expect("there is such an argument")
    }

    fn cast(&mut self, pair: &Pair, to: Ty) -> Pair {
        let declared = self.family.declare(&to, "");
        let named = if to == Ty::Bool { "bool" } else { declared.as_str() };
        let query = format!("({named}){}", self.at(pair, level::UNARY));
        // See `read`: what is shown of a `bool` is its byte.
        let c = if to == Ty::Bool && pair.ty == Ty::Bool && !pair.bitfield {
            pair.c.clone()
        } else {
            format!("(({declared}){})", pair.c)
        };
        Pair {
            constant: pair.constant,
            ..Self::new_pair(query, level::UNARY, c, to)
        }
    }

    fn conditional(&mut self, cond: &Pair, then: &Pair, otherwise: &Pair, ty: Ty) -> Pair {
        let query = format!(
            "{} ? {} : {}",
            self.at(cond, level::OR),
            self.at(then, level::COND),
            self.at(otherwise, level::COND)
        );
        let constant = cond.constant && then.constant && otherwise.constant;
        Pair {
            constant,
            ..Self::new_pair(
                query,
                level::COND,
                format!("({} ? {} : {})", cond.c, then.c, otherwise.c),
                ty,
            )
        }
    }

    fn literal(&mut self) -> Pair {
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
    fn word(&mut self) -> u64 {
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
    fn number(&mut self, depth: usize) -> Pair {
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

    fn scalar_param(&mut self) -> Pair {
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
    fn scalar(&mut self, depth: usize) -> Pair {
        let place = self.scalar_place(depth);
        let read = self.read(&place);
        match read.ty {
            Ty::Ptr(_) => self.cast(&read, ULONG),
            Ty::Void | Ty::Int(_) | Ty::Bool | Ty::Enum(_) | Ty::Array(..) | Ty::Comp(_) => read,
        }
    }

    fn arithmetic(&mut self, op: &str, level: u8, depth: usize) -> Pair {
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
    fn shift(&mut self, depth: usize) -> Pair {
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

    fn call(&mut self, depth: usize) -> Pair {
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
    fn of_pointers(&mut self, depth: usize) -> Pair {
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

    /// Something that is true or false.
    fn condition(&mut self, depth: usize) -> Pair {
        let d = depth.saturating_sub(1);
        match self.below(12) {
            choice @ (0 | 1) if depth > 0 => {
                let (a, b) = (self.condition(d), self.condition(d));
                let (op, level) = if choice == 0 {
                    ("&&", level::AND)
                } else {
                    ("||", level::OR)
                };
                Pair {
                    top: Top::Logical,
                    constant: a.constant && b.constant,
                    ..Self::new_pair(
                        self.infix(&a, op, &b, level),
                        level,
                        format!("({} {op} {})", a.c, b.c),
                        INT,
                    )
                }
            }
            2 if depth > 0 => {
                let inner = match self.below(3) {
                    0 => self.pointer(d, World::Kernel),
                    1 => self.number(d),
                    _ => self.condition(d),
                };
                Pair {
                    top: Top::Logical,
                    constant: inner.constant,
                    ..Self::new_pair(
                        format!("!{}", self.at(&inner, level::UNARY)),
                        level::UNARY,
                        format!("(!{})", inner.c),
                        INT,
                    )
                }
            }
            3 => {
                let a = self.pointer(depth, World::Kernel);
                let b = match self.below(3) {
                    0 => Self::new_pair(
                        "NULL".to_string(),
                        level::POSTFIX,
                        "((void *)0)".to_string(),
                        a.ty.clone(),
                    ),
                    1 => self.number(0),
                    _ => self.pointer(depth, World::Kernel),
                };
                let (op, level) = self.pick(&RELATIONS);
                Pair {
                    top: Top::Relation,
                    ..Self::new_pair(
                        self.infix(&a, op, &b, level),
                        level,
                        format!("((u64){} {op} (u64){})", a.c, b.c),
                        INT,
                    )
                }
            }
            4 => match self.text(depth) {
                Some(pair) => pair,
                None => self.comparison(d),
            },
            5 => self.scalar(depth),
            _ => self.comparison(d),
        }
    }

    fn comparison(&mut self, depth: usize) -> Pair {
        let (a, b) = match self.below(3) {
            0 => (self.number(depth), self.scalar(depth)),
            1 => (self.scalar(depth), self.literal()),
            _ => (self.scalar(depth), self.number(depth)),
        };
        let (op, level) = self.pick(&RELATIONS);
        Pair {
            top: Top::Relation,
            constant: a.constant && b.constant,
            ..Self::new_pair(
                self.infix(&a, op, &b, level),
                level,
                format!("({} {op} {})", a.c, b.c),
                INT,
            )
        }
    }

    /// A string compared with a literal.
    fn text(&mut self, depth: usize) -> Option<Pair> {
        for _ in 0..20 {
            let place = self.place(depth);
            let (query, level, address, limit) = match &place.ty {
                _ if self.below(8) == 0 => {
                    ("s".to_string(), level::POSTFIX, "0, (u64)s".to_string(), u32::MAX)
                }
                Ty::Ptr(to) if to.is_char() => {
                    // The address of a string in user memory is one of user memory; any other tells by itself.
                    let user = u8::from(place.world == World::User);
                    (
                        place.query,
                        place.level,
                        format!("{user}, (u64){}", place.c),
                        u32::MAX,
                    )
                }
                Ty::Array(elem, len) if elem.is_char() => {
                    let address = format!("0, {}({})", place.world.address(), place.c);
                    (place.query, place.level, address, *len)
                }
                Ty::Void | Ty::Int(_) | Ty::Bool | Ty::Enum(_) | Ty::Ptr(_) | Ty::Array(..) | Ty::Comp(_) => {
                    continue;
                }
            };
            let text = self.wrapped(&query, level, level::EQUAL + 1);
            let (op, level, literal, call) = match self.below(4) {
                0 => ("==", level::EQUAL, self.pick(&TEXTS), "same"),
                1 => ("!=", level::EQUAL, self.pick(&TEXTS), "!same"),
                _ => ("=~", level::EQUAL, self.pick(&PATTERNS), "glob"),
            };
            let query = format!("{text} {op} \"{literal}\"");
            let c = format!("({call}({address}, {limit}u, \"{literal}\"))");
            return Some(Pair {
                top: Top::Relation,
                ..Self::new_pair(query, level, c, INT)
            });
        }
        None
    }
}

fn constant(text: &str) -> Pair {
    Pair {
        constant: true,
        ..Expressions::new_pair(text.to_string(), level::POSTFIX, text.to_string(), INT)
    }
}

fn promoted(ty: &Ty) -> Ty {
    match ty.number() {
        Some((8, true)) => LONG,
        Some((8, false)) => ULONG,
        Some((4, false)) => UINT,
        Some(_) | None => INT,
    }
}

fn common(a: &Ty, b: &Ty) -> Ty {
    let (a, b) = (promoted(a), promoted(b));
    // Of two that are as wide, the unsigned one; and the wider one is later in this list.
    [INT, UINT, LONG, ULONG]
        .into_iter()
        .rfind(|ty| *ty == a || *ty == b)
        .unwrap_or(INT)
}
