//! Something in memory, for a random query: from an argument or a known struct by members, pointers and indices. In: a [`Maker`]. Out:
//! texts, each with what it is. Nothing is made that the types don't have.

use super::{Kind, Made, Maker, TRIES};
use crate::types::{NameKind, TypeId};

/// Structs that most kernels have, to cast to and to find the container of a member in.
const STRUCTS: [&str; 8] = [
    "task_struct",
    "sk_buff",
    "sock",
    "inode",
    "dentry",
    "file",
    "page",
    "mm_struct",
];

impl Maker<'_> {
    /// The struct or union that can be looked into from there.
    pub(super) fn inside(&self, kind: Kind) -> Option<TypeId> {
        let id = match kind {
            Kind::Composite(id) => id,
            Kind::Pointer(to) => self.types.complete(to),
            Kind::Number(_) | Kind::Array(..) | Kind::Other => return None,
        };
        let composite = self.types.composite(id)?;
        (!composite.members.is_empty()).then_some(id)
    }

    /// A pointer to a struct with members, or a struct that was passed by value.
    pub(super) fn base(&mut self, depth: usize) -> Made {
        let task = |this: &Self| {
            let id = this.types.find(NameKind::Struct, "task_struct");
            Made {
                text: "task".to_string(),
                kind: id.first().map_or(Kind::Other, |id| Kind::Pointer(*id)),
                bitfield: false,
                place: false,
            }
        };
        let good: Vec<Made> = self
            .starts
            .iter()
            .filter(|made| self.inside(made.kind).is_some())
            .cloned()
            .collect();
        let plain = match good.get(self.random.below(good.len() + 1)) {
            Some(made) => made.clone(),
            None => task(self),
        };
        let Kind::Pointer(to) = plain.kind else {
            return plain;
        };
        if depth == 0 {
            return plain;
        }
        match self.below(14) {
            0 => {
                let by = self.below(3);
                let op = self.pick(&["+", "-"]);
                Made {
                    text: format!("({} {op} {by})", plain.text),
                    ..plain
                }
            }
            1 => match self.known_struct() {
                Some((name, id)) => {
                    let from = self.word(depth - 1);
                    Made {
                        text: format!("((struct {name} *){from})"),
                        kind: Kind::Pointer(id),
                        bitfield: false,
                        place: false,
                    }
                }
                None => plain,
            },
            2 => {
                let cond = self.condition(depth - 1);
                let other = match self.below(2) {
                    0 => "NULL".to_string(),
                    _ => format!("{} + 1", plain.text),
                };
                Made {
                    text: format!("({cond} ? {} : {other})", plain.text),
                    kind: Kind::Pointer(to),
                    bitfield: false,
                    place: false,
                }
            }
            3 => Made {
                text: format!("user({})", plain.text),
                ..plain
            },
            4 => self.container(depth).unwrap_or(plain),
            5 => Made {
                text: format!("({}[{}])", plain.text, self.number(depth - 1)),
                kind: Kind::Composite(self.types.complete(to)),
                bitfield: false,
                place: true,
            },
            6 => Made {
                text: format!("(*{})", plain.text),
                kind: Kind::Composite(self.types.complete(to)),
                bitfield: false,
                place: true,
            },
            _ => plain,
        }
    }

    /// A struct that this kernel has, by name.
    pub(super) fn known_struct(&mut self) -> Option<(&'static str, TypeId)> {
        let name = self.pick(&STRUCTS);
        let id = self.types.find(NameKind::Struct, name).first().copied()?;
        self.types.composite(id).map(|_| (name, id))
    }

    /// What a member is in, from the address of something.
    pub(super) fn container(&mut self, depth: usize) -> Option<Made> {
        let (name, id) = self.known_struct()?;
        let member = self.plain_member(id)?;
        let of = match self.below(2) {
            0 => self.address(depth - 1)?.text,
            _ => self.base_pointer()?.text,
        };
        Some(Made {
            text: format!("container_of({of}, struct {name}, {member})"),
            kind: Kind::Pointer(id),
            bitfield: false,
            place: false,
        })
    }

    /// The name of a member that has a byte offset.
    pub(super) fn plain_member(&mut self, id: TypeId) -> Option<String> {
        let names = self.types.member_names(id);
        for _ in 0..TRIES {
            let name = names.get(self.random.below(names.len()))?;
            if self
                .types
                .member(id, name)
                .is_ok_and(|found| found.bitfield.is_none())
            {
                return Some(name.clone());
            }
        }
        None
    }

    pub(super) fn base_pointer(&mut self) -> Option<Made> {
        let pointers: Vec<Made> = self
            .starts
            .iter()
            .filter(|made| matches!(made.kind, Kind::Pointer(_)))
            .cloned()
            .collect();
        pointers.get(self.random.below(pointers.len())).cloned()
    }

    /// The address of something in memory.
    pub(super) fn address(&mut self, depth: usize) -> Option<Made> {
        for _ in 0..TRIES {
            let made = self.place(depth)?;
            if !made.bitfield && made.place {
                return Some(Made {
                    text: format!("(&{})", made.text),
                    kind: Kind::Other,
                    bitfield: false,
                    place: false,
                });
            }
        }
        None
    }

    /// Something that is reached by at least one step.
    pub(super) fn place(&mut self, depth: usize) -> Option<Made> {
        let mut at = self.base(depth);
        let steps = 1 + self.below(4);
        for _ in 0..steps {
            let Some(id) = self.inside(at.kind) else {
                break;
            };
            at = self.step(&at, id)?;
            at = self.elements(at, depth)?;
        }
        Some(at)
    }

    pub(super) fn step(&mut self, at: &Made, id: TypeId) -> Option<Made> {
        let names = self.types.member_names(id);
        for _ in 0..TRIES {
            let name = names.get(self.random.below(names.len()))?;
            let Ok(found) = self.types.member(id, name) else {
                continue;
            };
            let kind = self.kind(found.ty);
            let sized = self.types.size_of(found.ty).is_some_and(|size| size > 0);
            if kind == Kind::Other || !sized {
                continue;
            }
            let through = matches!(at.kind, Kind::Pointer(_));
            let arrow = if through { "->" } else { "." };
            return Some(Made {
                text: format!("{}{arrow}{name}", at.text),
                kind,
                bitfield: found.bitfield.is_some(),
                place: at.place || through,
            });
        }
        None
    }

    /// Through the dimensions of an array, by constants and computed numbers.
    pub(super) fn elements(&mut self, mut at: Made, depth: usize) -> Option<Made> {
        while let Kind::Array(elem, len) = at.kind {
            if len == 0 || !at.place {
                return None;
            }
            if self.below(10) == 0 {
                break;
            }
            let index = match self.below(3) {
                0 if depth > 0 => self.runtime_number(depth - 1),
                _ => self.below(len.min(1 << 16) as usize).to_string(),
            };
            at.text = format!("{}[{index}]", at.text);
            at.kind = self.kind(elem);
        }
        Some(at)
    }
}
