//! What a random query shows or counts: items with labels and formats, memory with a length, aggregations and their keys. In: a
//! [`Maker`], which makes what they are of. Out: texts. Whether a format fits is decided here, by the type.

use super::{Kind, Maker, Subject, TRIES};

impl Maker<'_> {
    /// An item with what may be around it.
    pub(super) fn item(&mut self) -> String {
        let item = match self.below(10) {
            0 | 1 => return self.condition(3),
            2 => self.number(3),
            3 => match self.string(1) {
                Some(text) => text,
                None => "comm".to_string(),
            },
            4 => match self.starts.get(self.random.below(self.starts.len())) {
                Some(made) => made.text.clone(),
                None => "task".to_string(),
            },
            5 => self.special(),
            _ => return self.shown(),
        };
        if self.below(3) == 0 {
            format!("label{} = {item}", self.below(100))
        } else {
            item
        }
    }

    /// What is kept in the kernel for keys, with predicates.
    pub(super) fn aggregations(&mut self, subject: Subject) -> Vec<String> {
        let mut items = Vec::new();
        for _ in 0..1 + self.below(3) {
            let of = match subject {
                Subject::Both if self.below(2) == 0 => "duration".to_string(),
                Subject::Entry | Subject::Return | Subject::Both | Subject::Tracepoint => self.number(2),
            };
            items.push(match self.below(7) {
                0 => "count()".to_string(),
                1 => format!("sum({of})"),
                2 => format!("avg({of})"),
                3 => format!("min({of})"),
                4 => format!("largest = max({of})"),
                5 => format!("hist({of})"),
                _ => {
                    let from = self.below(1000);
                    format!("lhist({of}, {from}, {}, 10)", from + 10 * (1 + self.below(40)))
                }
            });
        }
        if self.below(3) > 0 {
            let keys: Vec<String> = (0..1 + self.below(3)).map(|_| self.key()).collect();
            items.push(format!("by({})", keys.join(", ")));
        }
        if self.below(2) == 0 {
            items.push(self.condition(2));
        }
        items
    }

    fn key(&mut self) -> String {
        match self.below(8) {
            0 => "comm".to_string(),
            1 => self
                .pick(&["func", "kstack()", "kstack(3)", "ustack(5)"])
                .to_string(),
            2 => self.string(1).unwrap_or("comm".to_string()),
            3 => self.scalar(2).text,
            4 => self.condition(1),
            _ => self.number(2),
        }
    }

    /// Memory as bytes or text with a length, stacks, addresses as symbols: what only an item can be.
    fn special(&mut self) -> String {
        let length = match self.below(3) {
            0 => (1 + self.below(64)).to_string(),
            _ => self.runtime_number(1),
        };
        match (self.below(5), self.base_pointer()) {
            (0, Some(made)) => format!("buf({}, {length})", made.text),
            (1, Some(made)) => format!("{}({}, {length})", self.pick(&["str", "ustr"]), made.text),
            (2, Some(made)) => format!("ksym({})", made.text),
            (3, _) => "func".to_string(),
            (_, _) => self.pick(&["kstack()", "ustack()", "kstack(4)"]).to_string(),
        }
    }

    /// A place with a format that fits it.
    fn shown(&mut self) -> String {
        let made = (0..TRIES).find_map(|_| self.place(2));
        let Some(made) = made else {
            return "cpu".to_string();
        };
        if self.below(2) == 0 {
            return made.text;
        }
        let format = match made.kind {
            Kind::Number(4) if !made.bitfield => self.pick(&[
                "x", "d", "u", "o", "b", "ip", "errno", "be", "hex", "u32", "s8", "x64",
            ]),
            Kind::Number(8) if !made.bitfield => self.pick(&["x", "d", "sym", "be", "hex", "x64", "symbol"]),
            Kind::Number(_) => self.pick(&["x", "d", "u", "o", "b", "hex"]),
            Kind::Pointer(_) => self.pick(&["x", "sym", "hex", "u64"]),
            Kind::Array(..) => self.pick(&["hex", "x"]),
            Kind::Composite(_) | Kind::Other => self.pick(&["hex"]),
        };
        format!("{}:{format}", made.text)
    }
}
