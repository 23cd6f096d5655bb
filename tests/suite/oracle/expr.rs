//! Random expressions, each twice: as a query has it, with as few parentheses as C's precedence allows (and a few more), and
//! as C has it, with all of them. In: a family of types and random numbers. Out: pairs of texts. The types that are followed
//! here only make the expressions well typed; what they come to is for the C compiler to say.
//!
//! In C, kernel and user memory lie elsewhere, so each step through a pointer is a macro of the prelude (`cc`): `K` and `U`
//! give the place for an address, `AT_K` and `AT_U` the address of a place.

mod number;
mod place;

use ksnoop_jit::ir::generate::Rng;

use super::family::{Family, INT, LONG, Named, Ty, UINT, ULONG};

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
    /// Nothing in it may be left to be read at run time.
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
/// For arrays, which are seen to their end.
const MORE_PATTERNS: [&str; 10] = [
    "*0", "e?h*", "[a-f]*g", "*[0-9]", "?", "w*[!z]?", "??", "*h*", "*e*e*", "[!a-z]*",
];

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
        // A condition that is known leaves one of the two.
        let constant = cond.constant && (then.constant || otherwise.constant);
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
                // The left side may decide alone.
                Pair {
                    top: Top::Logical,
                    constant: a.constant,
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
                2 if limit < u32::MAX => ("=~", level::EQUAL, self.pick(&MORE_PATTERNS), "glob"),
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
