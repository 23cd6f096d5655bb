//! Queries that use the whole language: a prototype and a seed in, the text of a query out. Expressions of every operator, casts,
//! computed indices, bitfields, strings, user memory, `container_of`, formats, labels, `entry()` and `exit()`, several items and
//! predicates. Each is well typed as far as the types say: what is refused is told by the sweep, and should be rare.
//!
//! To let it use something new, add an arm to [`Maker::number`] or [`Maker::condition`], or to what `items` makes.

mod items;
mod places;

use super::{Random, Subject, spelling};
use crate::types::{Func, Type, TypeId, Types};

/// How often another member is tried where one does not lead to what is looked for.
const TRIES: usize = 12;
const ERRNOS: [&str; 4] = ["-ENOMEM", "EAGAIN", "-EINVAL", "-ENOENT"];
const TEXTS: [&str; 6] = [
    "eth0",
    "bash",
    "",
    "a longer text than most",
    "\\xff\\x01",
    "0123456789abcdef",
];
const PATTERNS: [&str; 8] = [
    "eth*",
    "*",
    "kworker/*",
    "*sh",
    "*o*e*",
    "?[a-f]*",
    "[!a-z]*[0-9]",
    "systemd-*-?d",
];
const NUMBERS: [&str; 12] = [
    "s8",
    "u8",
    "s16",
    "u16",
    "int",
    "u32",
    "s64",
    "u64",
    "long",
    "unsigned long",
    "bool",
    "unsigned char",
];

/// What a place or an expression is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A number of so many bytes.
    Number(u32),
    /// A pointer to the type.
    Pointer(TypeId),
    Composite(TypeId),
    Array(TypeId, u32),
    /// Nothing that an expression can use.
    Other,
}

/// An expression, in parentheses where it needs them.
#[derive(Clone, Debug)]
struct Made {
    text: String,
    kind: Kind,
    bitfield: bool,
    /// It is something in memory, and not in a register.
    place: bool,
}

struct Maker<'a> {
    types: &'a Types,
    random: Random,
    /// Arguments and what is returned.
    starts: Vec<Made>,
}

/// A query of the whole language about a function or tracepoint.
pub fn whole(types: &Types, func: &Func, subject: Subject, seed: u64) -> String {
    let own = func.name.bytes().fold(seed, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut maker = Maker {
        types,
        random: Random::new(own),
        starts: Vec::new(),
    };
    let returns = !matches!(types.get_stripped(func.ret), Type::Void);
    if subject != Subject::Return {
        maker.starts = maker.arguments(func);
    }
    if subject == Subject::Return && returns {
        maker.starts.push(maker.start("return".to_string(), func.ret));
    }
    let mut items = Vec::new();
    let aggregated = maker.random.below(6) == 0;
    if aggregated {
        items = maker.aggregations(subject);
    } else {
        for _ in 0..1 + maker.random.below(6) {
            items.push(maker.item());
        }
    }
    if subject == Subject::Both && !aggregated {
        if maker.random.below(3) == 0 {
            items.push(
                maker
                    .pick(&["duration", "duration >= 1000", "took = duration"])
                    .to_string(),
            );
        }
        // What is shown of the return, and with a condition the two are one event.
        if returns && maker.random.below(3) > 0 {
            let returned = maker.start("return".to_string(), func.ret);
            let before = std::mem::replace(&mut maker.starts, vec![returned]);
            items.push(maker.item());
            maker.starts = before;
        } else {
            let shown = maker.scalar(2);
            items.push(format!("exit({})", shown.text));
        }
        if maker.random.below(3) == 0 {
            let shown = maker.number(2);
            items.push(format!("at_entry = entry({shown})"));
        }
        // Both moments in one.
        if maker.random.below(3) == 0 {
            let (early, late) = (maker.number(2), maker.number(2));
            items.push(match maker.random.below(3) {
                0 => format!("entry({early}) != exit({late})"),
                1 => format!("both = exit({late}) - entry({early})"),
                _ => format!("both = entry({early}) > 1 ? exit({late}) : {early}"),
            });
        }
    }
    let prefix = match subject {
        Subject::Entry | Subject::Return | Subject::Both => "",
        Subject::Tracepoint => "tp:",
    };
    let mut text = format!("{prefix}{}({})", func.name, items.join(", "));
    if maker.random.below(3) == 0 {
        text.push_str(" if ");
        text.push_str(&maker.condition(3));
    }
    text
}

impl Maker<'_> {
    fn arguments(&self, func: &Func) -> Vec<Made> {
        func.params
            .iter()
            .enumerate()
            .map(|(index, param)| self.start(spelling(func, index), param.ty))
            .filter(|made| made.kind != Kind::Other)
            .collect()
    }

    fn start(&self, text: String, ty: TypeId) -> Made {
        Made {
            text,
            kind: self.kind(ty),
            bitfield: false,
            place: false,
        }
    }

    fn kind(&self, ty: TypeId) -> Kind {
        match self.types.get_stripped(ty) {
            Type::Int(int) if int.size <= 8 => Kind::Number(int.size),
            Type::Enum(e) => Kind::Number(e.size),
            Type::Ptr(to) => Kind::Pointer(to),
            Type::Struct(_) | Type::Union(_) => Kind::Composite(self.types.complete(ty)),
            Type::Fwd { .. } => match self.types.composite(self.types.complete(ty)) {
                Some(_) => Kind::Composite(self.types.complete(ty)),
                None => Kind::Other,
            },
            Type::Array { elem, len } => Kind::Array(elem, len),
            Type::Void
            | Type::Int(_)
            | Type::Float { .. }
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => Kind::Other,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound)
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.random.below(list.len())]
    }

    /// A number or a pointer in memory, or an argument.
    fn scalar(&mut self, depth: usize) -> Made {
        for _ in 0..TRIES {
            if let Some(made) = self.place(depth)
                && matches!(made.kind, Kind::Number(_) | Kind::Pointer(_))
            {
                return made;
            }
        }
        Made {
            text: self.pick(&["pid", "cpu", "ktime"]).to_string(),
            kind: Kind::Number(4),
            bitfield: false,
            place: false,
        }
    }

    /// As a number that is not known before the program runs.
    fn runtime_number(&mut self, depth: usize) -> String {
        let made = self.scalar(depth);
        match made.kind {
            Kind::Number(_) => made.text,
            Kind::Pointer(_) | Kind::Composite(_) | Kind::Array(..) | Kind::Other => {
                format!("((u64){})", made.text)
            }
        }
    }

    /// A number of 64 bits, such as could be an address.
    fn word(&mut self, depth: usize) -> String {
        match self.base_pointer() {
            Some(made) if self.below(2) == 0 => made.text,
            _ => format!("((u64){})", self.number(depth)),
        }
    }

    fn literal(&mut self) -> String {
        match self.below(8) {
            0 => self.pick(&ERRNOS).to_string(),
            1 => format!("{:#x}", self.random.next_u64()),
            2 => format!("{:#x}", self.random.next_u64() as u32),
            3 => format!("-{}", self.below(1000)),
            4 => self
                .pick(&["true", "'x'", "0b101", "017", "1ULL << 40"])
                .to_string(),
            5 => format!("sizeof({})", self.pick(&["struct task_struct", "int", "u64"])),
            6 => match self.known_struct() {
                Some((name, id)) => match self.plain_member(id) {
                    Some(member) => format!("offsetof(struct {name}, {member})"),
                    None => "1".to_string(),
                },
                None => "2".to_string(),
            },
            _ => self.below(300).to_string(),
        }
    }

    /// Any number, in parentheses where it needs them.
    fn number(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.below(4) {
                0 => format!("({})", self.literal()),
                1 => self.builtin(),
                _ => self.runtime_number(0),
            };
        }
        let d = depth - 1;
        match self.below(16) {
            0..3 => {
                let op = self.pick(&["+", "-", "*", "&", "|", "^"]);
                format!("({} {op} {})", self.number(d), self.number(d))
            }
            3 => {
                let op = self.pick(&["/", "%"]);
                format!("({} {op} {})", self.number(d), self.runtime_number(d))
            }
            4 => {
                let op = self.pick(&["<<", ">>"]);
                let by = match self.below(2) {
                    0 => self.below(32).to_string(),
                    _ => format!("({} & 31)", self.runtime_number(d)),
                };
                format!("({} {op} {by})", self.number(d))
            }
            5 => {
                let op = self.pick(&["-", "~", "+"]);
                format!("({op}({}))", self.number(d))
            }
            6 => {
                let to = self.pick(&NUMBERS);
                format!("(({to}){})", self.number(d))
            }
            7 => format!("(int)({})", self.condition(d)),
            8 => format!(
                "({} ? {} : {})",
                self.condition(d),
                self.number(d),
                self.number(d)
            ),
            9 => {
                let call = self.pick(&["ntohs", "ntohl", "ntohll", "htons", "htonl", "htonll"]);
                format!("{call}({})", self.number(d))
            }
            10 => match self.base_pointer() {
                Some(made) => match self.below(4) {
                    0 => format!("is_err({})", made.text),
                    1 => format!("((u64){} >> 3)", made.text),
                    2 => format!("({} & 0xfff)", made.text),
                    _ => format!("((u32){})", made.text),
                },
                None => self.builtin(),
            },
            11 => match self.address(d) {
                Some(made) => format!("((u64){})", made.text),
                None => self.builtin(),
            },
            12 => self.builtin(),
            _ => self.runtime_number(d),
        }
    }

    fn builtin(&mut self) -> String {
        self.pick(&[
            "pid", "tid", "uid", "gid", "cpu", "ktime", "cgroup", "$pid", "argc",
        ])
        .to_string()
    }

    /// A condition, without parentheses around it where its operator binds loosely.
    fn condition(&mut self, depth: usize) -> String {
        let d = depth.saturating_sub(1);
        match self.below(12) {
            0 if depth > 0 => format!("({} && {})", self.condition(d), self.condition(d)),
            1 if depth > 0 => format!("({} || {})", self.condition(d), self.condition(d)),
            2 if depth > 0 => format!("!({})", self.condition(d)),
            3 => match self.base_pointer() {
                Some(made) => {
                    let op = self.pick(&["==", "!=", ">"]);
                    let other = self.scalar(d);
                    let other = match self.below(3) {
                        0 => "NULL".to_string(),
                        1 => self.literal(),
                        _ => other.text,
                    };
                    format!("{} {op} ({other})", made.text)
                }
                None => format!("{} != 0", self.number(d)),
            },
            4 | 5 => self.text_condition(d),
            6 => {
                let made = self.scalar(depth);
                format!("!{}", made.text)
            }
            7 => format!("{} == ip(\"10.1.2.3\")", self.runtime_number(d)),
            _ => {
                let op = self.pick(&["==", "!=", "<", "<=", ">", ">="]);
                let other = match self.below(2) {
                    0 => format!("({})", self.literal()),
                    _ => self.number(d),
                };
                format!("{} {op} {other}", self.runtime_number(depth))
            }
        }
    }

    fn text_condition(&mut self, depth: usize) -> String {
        let text = match self.string(depth) {
            Some(text) if self.below(3) > 0 => text,
            _ => "comm".to_string(),
        };
        match self.below(3) {
            0 => format!("{text} == \"{}\"", self.pick(&TEXTS)),
            1 => format!("{text} != \"{}\"", self.pick(&TEXTS)),
            _ => format!("{text} =~ \"{}\"", self.pick(&PATTERNS)),
        }
    }

    /// Something that strings are made of, or is taken for it.
    fn string(&mut self, depth: usize) -> Option<String> {
        for _ in 0..2 * TRIES {
            let made = self.place(depth)?;
            let of = match made.kind {
                Kind::Pointer(to) => to,
                Kind::Array(elem, len) if len > 0 => elem,
                Kind::Array(..) | Kind::Number(_) | Kind::Composite(_) | Kind::Other => continue,
            };
            if matches!(self.types.get_stripped(of), Type::Int(int) if int.is_char) {
                return Some(match self.below(3) {
                    0 => format!("str({})", made.text),
                    1 if !made.place => format!("ustr({})", made.text),
                    _ => made.text,
                });
            }
            if matches!(made.kind, Kind::Pointer(_)) && self.below(8) == 0 {
                let call = self.pick(&["str", "ustr"]);
                return Some(format!("{call}({})", made.text));
            }
        }
        None
    }
}
