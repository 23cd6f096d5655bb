//! What is in memory and how to get there: pointers of every origin, steps through members, arrays and other pointers, and what
//! is read at the end.

use super::super::family::{LONG, Named, Ty, ULONG};
use super::{Expressions, Pair, Place, World, constant, level};

impl Expressions<'_> {
    /// Something in memory, of any type.
    pub(super) fn place(&mut self, depth: usize) -> Place {
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
    pub(super) fn step(&mut self, place: Place, from: &str, arrow: &str) -> Place {
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
    pub(super) fn further(&mut self, mut place: Place, depth: usize) -> Place {
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

    pub(super) fn element(&mut self, place: Place, elem: &Ty, len: u32, depth: usize) -> Place {
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
    pub(super) fn scalar_place(&mut self, depth: usize) -> Place {
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
    pub(super) fn read(&mut self, place: &Place) -> Pair {
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
    pub(super) fn pointer(&mut self, depth: usize, world: World) -> Pair {
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
                    // What user memory holds is an address in user memory, also as a number.
                    0 => loop {
                        let number = self.number(0);
                        if !number.query.contains("user(") {
                            break number;
                        }
                    },
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
    pub(super) fn container(&mut self, depth: usize) -> Pair {
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
    pub(super) fn offset_member(&mut self, index: usize) -> String {
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
}
