//! Random queries about what the generator has made: places, numbers, conditions, and what asks for them. In: its types. Out: texts
//! that the language accepts. Never looks at memory.

use ksnoop_jit::types::{Type, TypeId};

use super::Generator;

impl Generator<'_> {
    /// A place behind a pointer to a struct: its text, type and whether it is a bitfield.
    fn place(&mut self, depth: usize) -> (String, TypeId, bool) {
        let (pointer, id) = self.pointer(depth);
        let mut text = pointer;
        let mut step = "->";
        let mut outer = id;
        loop {
            let names = self.types.member_names(outer);
            let name = &names[self.below(names.len())];
            let Ok(found) = self.types.member(outer, name) else {
                panic!("a member that is there");
            };
            text = format!("{text}{step}{name}");
            if found.bitfield.is_some() {
                return (text, found.ty, true);
            }
            let mut ty = found.ty;
            while let Type::Array { elem, len } = self.types.get_stripped(ty) {
                if self.below(8) == 0 {
                    return (text, ty, false);
                }
                let index = match self.below(3) {
                    0 if depth > 0 => self.number(depth - 1),
                    1 if depth > 0 => format!("({} & 3)", self.number(depth - 1)),
                    _ => self.below(len as usize).to_string(),
                };
                // A constant that is out of bounds is refused, and rightly.
                let index = if index.contains("->") && !index.contains("sizeof") {
                    index
                } else {
                    self.below(len as usize).to_string()
                };
                text = format!("{text}[{index}]");
                ty = elem;
            }
            match self.types.get_stripped(ty) {
                Type::Struct(_) | Type::Union(_) => {
                    if self.below(8) == 0 {
                        return (text, ty, false);
                    }
                    outer = self.types.complete(ty);
                    step = ".";
                }
                Type::Ptr(to) if self.structs.contains(&self.types.complete(to)) && self.below(2) == 0 => {
                    outer = self.types.complete(to);
                    step = "->";
                }
                _ => return (text, ty, false),
            }
        }
    }

    /// A pointer to a struct.
    fn pointer(&mut self, depth: usize) -> (String, TypeId) {
        let name = |this: &mut Self| {
            if this.below(2) == 0 {
                ("p".to_string(), this.structs[3])
            } else {
                ("q".to_string(), this.structs[1])
            }
        };
        if depth == 0 {
            return name(self);
        }
        match self.below(8) {
            0 => {
                let (text, id) = self.pointer(depth - 1);
                let by = self.below(4) as i64 - 1;
                (format!("({text} + {by})").replace("+ -", "- "), id)
            }
            1 => {
                let (text, _) = self.pointer(depth - 1);
                let index = self.below(4);
                (format!("((struct s{index} *){text})"), self.structs[index])
            }
            2 | 3 => {
                for _ in 0..10 {
                    let (text, ty, bits) = self.place(depth - 1);
                    let known = self.types.complete(ty);
                    if self.structs.contains(&known) && !bits {
                        return (format!("(&{text})"), known);
                    }
                    if let Type::Ptr(to) = self.types.get_stripped(ty)
                        && self.structs.contains(&self.types.complete(to))
                    {
                        return (text, self.types.complete(to));
                    }
                }
                name(self)
            }
            _ => name(self),
        }
    }

    /// A scalar that is in memory.
    pub(in crate::suite) fn scalar(&mut self, depth: usize) -> String {
        for _ in 0..20 {
            let (text, ty, _) = self.place(depth);
            match self.types.get_stripped(ty) {
                Type::Int(_) | Type::Enum(_) => return text,
                Type::Ptr(to) if matches!(self.types.get_stripped(to), Type::Int(_)) => {
                    return match self.below(3) {
                        0 => format!("(*{text})"),
                        1 => format!("{text}[{}]", self.below(3)),
                        _ => format!("((unsigned long){text})"),
                    };
                }
                _ => {}
            }
        }
        "a".to_string()
    }

    fn literal(&mut self) -> String {
        let value = self.word();
        match self.below(8) {
            0 => self
                .pick(&[
                    "KIND_ONE",
                    "KIND_BIG",
                    "LEVEL_LOW",
                    "LEVEL_HIGH",
                    "true",
                    "'x'",
                    "-ENOMEM",
                ])
                .to_string(),
            1 => format!("{:#x}", value as u32),
            2 => format!("{value:#x}"),
            3 => format!("{}u", value as u32),
            4 => format!("{}L", value >> 1),
            5 => format!("-{}", value as u16),
            _ => (value as u16 & 0x1ff).to_string(),
        }
    }

    /// A number of any type, in parentheses where it needs them.
    pub(in crate::suite) fn number(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.below(6) {
                0 | 1 => self.literal(),
                2 => self.pick(&["a", "b", "c", "d", "e", "h"]).to_string(),
                3 => self
                    .pick(&["pid", "tid", "uid", "gid", "cpu", "ktime"])
                    .to_string(),
                _ => self.scalar(0),
            };
        }
        let d = depth - 1;
        match self.below(16) {
            0..4 => {
                let op = self.pick(&["+", "-", "*", "&", "|", "^", "/", "%"]);
                format!("({} {op} {})", self.number(d), self.number(d))
            }
            4 => {
                let op = self.pick(&["<<", ">>"]);
                match self.below(2) {
                    0 => format!("({} {op} ({} & 31))", self.number(d), self.number(d)),
                    _ => format!("({} {op} {})", self.number(d), self.below(32)),
                }
            }
            5 => {
                let op = self.pick(&["-", "~"]);
                format!("({op}({}))", self.number(d))
            }
            6 | 7 => {
                let to = self.pick(&[
                    "u8",
                    "s8",
                    "u16",
                    "s16",
                    "int",
                    "u32",
                    "s64",
                    "u64",
                    "long",
                    "bool",
                    "unsigned char",
                    "enum kind",
                ]);
                format!("(({to}){})", self.scalar(d))
            }
            8 => format!("({})", self.condition(d)),
            9 => format!(
                "({} ? {} : {})",
                self.condition_of_names(d),
                self.number(d),
                self.number(d)
            ),
            10 => {
                let call = self.pick(&["ntohs", "htonl", "ntohll", "sizeof"]);
                // C has no size of a bitfield: a promoted one is a value like others.
                let sign = if call == "sizeof" { "+" } else { "" };
                format!("{call}({sign}{})", self.scalar(d))
            }
            11 => {
                let (a, id) = self.pointer(d);
                match self.below(3) {
                    0 => format!("is_err({a})"),
                    1 => format!("((u64){a})"),
                    _ => {
                        let _ = id;
                        format!("({a} - {a})")
                    }
                }
            }
            12 => self.pick(&["a", "b", "c", "d", "e", "h"]).to_string(),
            _ => self.scalar(d),
        }
    }

    /// A condition that no constant decides.
    fn condition_of_names(&mut self, depth: usize) -> String {
        let op = self.pick(&["==", "!=", "<", ">="]);
        format!("{} {op} {}", self.scalar(depth), self.literal())
    }

    /// A condition, without parentheses around it.
    pub(in crate::suite) fn condition(&mut self, depth: usize) -> String {
        let d = depth.saturating_sub(1);
        match self.below(10) {
            0 if depth > 0 => format!("({}) && ({})", self.condition(d), self.condition(d)),
            1 if depth > 0 => format!("({}) || ({})", self.condition(d), self.condition(d)),
            2 if depth > 0 => format!("!({})", self.condition(d)),
            3 => {
                let (a, _) = self.pointer(depth);
                let op = self.pick(&["==", "!=", "<", ">"]);
                match self.below(2) {
                    0 => format!("{a} {op} NULL"),
                    _ => format!("{a} {op} {}", self.pointer(depth).0),
                }
            }
            4 => match self.text(depth) {
                Some(text) => {
                    let op = self.pick(&["==", "!="]);
                    let literal = self.pick(&["eth0", "lo", "user", "", "abcdefg", "eth"]);
                    format!("{text} {op} \"{literal}\"")
                }
                None => self.condition_of_names(d),
            },
            5 => {
                let op = self.pick(&["==", "!=", "<", "<=", ">", ">="]);
                format!("{} {op} {}", self.number(depth), self.scalar(d))
            }
            6 => self.scalar(depth).to_string() + " != 0",
            _ => {
                let op = self.pick(&["==", "!=", "<", "<=", ">", ">="]);
                format!("{} {op} {}", self.scalar(d), self.number(d))
            }
        }
    }

    /// A string.
    fn text(&mut self, depth: usize) -> Option<String> {
        for _ in 0..10 {
            let (text, ty, _) = self.place(depth);
            let of = match self.types.get_stripped(ty) {
                Type::Ptr(to) => to,
                Type::Array { elem, .. } => elem,
                _ => continue,
            };
            if matches!(self.types.get_stripped(of), Type::Int(int) if int.is_char) {
                return Some(text);
            }
        }
        None
    }

    pub(in crate::suite) fn query(&mut self) -> String {
        let mut items = Vec::new();
        for _ in 0..1 + self.below(4) {
            let depth = self.below(4);
            items.push(match self.below(10) {
                0 | 1 => self.condition(depth),
                2 => self.pointer(depth).0,
                3 => self.place(depth.min(2)).0,
                4 => self.text(1).unwrap_or_else(|| "comm".to_string()),
                5..8 => self.number(depth),
                _ => self.scalar(depth),
            });
        }
        let cond = match self.below(4) {
            0 => format!(" if {}", self.condition(2)),
            _ => String::new(),
        };
        format!("probe_me({}){cond}", items.join(", "))
    }
}
