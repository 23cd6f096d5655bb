//! Queries for a whole kernel, for tests and fuzzing: a prototype and a seed in, the text of a query out that shows every
//! argument and follows a random way through the types. Pure, and the same for the same seed. Every text is meant to be
//! understood: a query that sema refuses says something about sema, or about what the types hide.

mod whole;

pub use whole::whole;

use crate::types::{Func, Type, TypeId, Types};

/// How many steps a random way takes, if the types let it.
const STEPS: usize = 3;
/// How often another member is tried where one leads nowhere.
const TRIES: usize = 6;

/// What the text is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A function's entry.
    Entry,
    /// A function's return.
    Return,
    /// A function's entry and return. [`query`] and [`large`] take it for the entry alone.
    Both,
    /// A tracepoint.
    Tracepoint,
}

/// SplitMix64: small, and good enough to choose members.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below the bound; 0 if there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        match bound {
            0 => 0,
            bound => (self.next_u64() % bound as u64) as usize,
        }
    }
}

/// The text of a query about a function or tracepoint.
pub fn query(types: &Types, func: &Func, subject: Subject, seed: u64) -> String {
    // Names alone would give functions with one prototype the same way.
    let own = func.name.bytes().fold(seed, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut random = Random::new(own);
    let mut items = Vec::new();
    let mut starts: Vec<(String, TypeId)> = Vec::new();
    match subject {
        Subject::Entry | Subject::Both | Subject::Tracepoint => {
            for (index, param) in func.params.iter().enumerate() {
                let name = spelling(func, index);
                items.push(name.clone());
                starts.push((name, param.ty));
            }
        }
        Subject::Return => {
            if !matches!(types.get_stripped(func.ret), Type::Void) {
                items.push("return".to_string());
                starts.push(("return".to_string(), func.ret));
            }
        }
    }
    if let Some(way) = way(types, &starts, &mut random) {
        items.push(way.shown(&mut random));
    }
    // Where several arguments lead on, pointers are shared and paths are many.
    if random.below(3) == 0
        && let Some(way) = self::way(types, &starts, &mut random)
    {
        items.push(way.shown(&mut random));
    }
    let mut text = match subject {
        Subject::Entry | Subject::Return | Subject::Both => format!("{}({})", func.name, items.join(", ")),
        Subject::Tracepoint => format!("tp:{}({})", func.name, items.join(", ")),
    };
    if random.below(4) == 0
        && let Some(way) = self::way(types, &starts, &mut random)
        && let Some(condition) = way.condition(&mut random)
    {
        text.push_str(" if ");
        text.push_str(&condition);
    }
    text
}

/// A query of so many items, each a way of so many steps as far as the types go: what a program can hold at most.
pub fn large(types: &Types, func: &Func, subject: Subject, items: usize, steps: usize, seed: u64) -> String {
    let mut random = Random::new(seed);
    let starts: Vec<(String, TypeId)> = func
        .params
        .iter()
        .enumerate()
        .map(|(index, param)| (spelling(func, index), param.ty))
        .collect();
    let mut found: Vec<String> = Vec::new();
    // Short ways are passed over while there is hope of longer ones.
    for attempt in 0..items * 400 {
        if found.len() == items {
            break;
        }
        let Some(way) = walk(types, &starts, steps, &mut random) else {
            break;
        };
        if (way.steps >= steps || attempt > items * 300)
            && way.kind == End::Scalar
            && !found.contains(&way.text)
        {
            found.push(way.text);
        }
    }
    let prefix = match subject {
        Subject::Entry | Subject::Return | Subject::Both => "",
        Subject::Tracepoint => "tp:",
    };
    format!("{prefix}{}({})", func.name, found.join(", "))
}

/// An argument's name, or its number where the name is missing, not the only one, or means something else.
fn spelling(func: &Func, index: usize) -> String {
    let name = &func.params[index].name;
    let alone = func.params.iter().filter(|param| param.name == *name).count() == 1;
    let plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.is_empty();
    let word = [
        "if", "int", "char", "short", "long", "struct", "sizeof", "signed", "unsigned",
    ];
    if alone && plain && !word.contains(&name.as_str()) {
        name.clone()
    } else {
        format!("$arg{}", index + 1)
    }
}

/// What a way ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Scalar,
    Pointer,
    Aggregate,
}

/// An expression that goes from an argument through members.
#[derive(Clone, Debug)]
struct Way {
    text: String,
    steps: usize,
    kind: End,
}

impl Way {
    /// As an item: mostly itself, sometimes with a predicate or in an expression.
    fn shown(&self, random: &mut Random) -> String {
        match (self.kind, random.below(8)) {
            (End::Scalar | End::Pointer, 0) => format!("{} != 0", self.text),
            (End::Scalar, 1) => format!("x = {} + 1", self.text),
            (End::Scalar, 2) => format!("x = {} / 3", self.text),
            (End::Scalar | End::Pointer, 3) => format!("x = {} ? 1 : 2", self.text),
            (End::Scalar | End::Pointer | End::Aggregate, _) => self.text.clone(),
        }
    }

    fn condition(&self, random: &mut Random) -> Option<String> {
        let text = &self.text;
        match self.kind {
            End::Scalar => Some(match random.below(4) {
                0 => format!("{text} != 0"),
                1 => format!("{text} >= 17"),
                2 => format!("!({text} == 3)"),
                _ => format!("{text} == 1 || cpu < 5 && {text} > 6"),
            }),
            End::Pointer => Some(format!("{text} != NULL")),
            End::Aggregate => None,
        }
    }
}

fn way(types: &Types, starts: &[(String, TypeId)], random: &mut Random) -> Option<Way> {
    walk(types, starts, STEPS, random)
}

/// From a random start that leads anywhere.
fn walk(types: &Types, starts: &[(String, TypeId)], steps: usize, random: &mut Random) -> Option<Way> {
    let good: Vec<&(String, TypeId)> = starts
        .iter()
        .filter(|(_, ty)| inside(types, *ty).is_some())
        .collect();
    let (name, ty) = good.get(random.below(good.len()))?;
    let mut text = name.clone();
    let mut at = *ty;
    let mut taken = 0;
    let mut bitfield = false;
    while taken < steps {
        let Some((composite, through)) = inside(types, at) else {
            break;
        };
        let names = types.member_names(composite);
        let mut next = None;
        for attempt in 0..TRIES {
            let Some(name) = names.get(random.below(names.len())) else {
                break;
            };
            // Two members of one name, in unions of an anonymous kind, or a name that C doesn't have.
            let Ok(found) = types.member(composite, name) else {
                continue;
            };
            if !has_value(types, found.ty) {
                continue;
            }
            let open = element(types, found.ty).is_some_and(|ty| inside(types, ty).is_some());
            if taken + 1 == steps || open || attempt + 1 == TRIES {
                next = Some((name.clone(), found));
                break;
            }
        }
        let Some((name, found)) = next else {
            break;
        };
        text.push_str(if through { "->" } else { "." });
        text.push_str(&name);
        at = found.ty;
        bitfield = found.bitfield.is_some();
        taken += 1;
        while let Type::Array { elem, len } = types.get_stripped(at) {
            // A whole array is a fine end; a flexible one has no end of its own.
            if len == 0 || (taken == steps && random.below(2) == 0) {
                break;
            }
            text.push_str(&format!("[{}]", random.below(len.min(1 << 20) as usize)));
            at = elem;
        }
    }
    if taken == 0 {
        return None;
    }
    let kind = match types.get_stripped(at) {
        Type::Int(_) | Type::Enum(_) => End::Scalar,
        Type::Ptr(_) => End::Pointer,
        _ if bitfield => End::Scalar,
        Type::Void
        | Type::Float { .. }
        | Type::Array { .. }
        | Type::Struct(_)
        | Type::Union(_)
        | Type::Fwd { .. }
        | Type::Typedef(_)
        | Type::Const(_)
        | Type::Volatile(_)
        | Type::Restrict(_)
        | Type::TypeTag { .. }
        | Type::Func { .. }
        | Type::FuncProto { .. }
        | Type::Other => End::Aggregate,
    };
    Some(Way {
        text,
        steps: taken,
        kind,
    })
}

/// The struct or union that a type is, or that it points to; whether by a pointer.
fn inside(types: &Types, ty: TypeId) -> Option<(TypeId, bool)> {
    let (at, through) = match types.pointee(ty) {
        Some(to) => (to, true),
        None => (ty, false),
    };
    let complete = types.complete(at);
    types
        .composite(complete)
        .filter(|composite| !composite.members.is_empty())
        .map(|_| (complete, through))
}

/// Whether a member can be shown: not what has no size, as flexible arrays, nor a number of more than 64 bits.
fn has_value(types: &Types, ty: TypeId) -> bool {
    let wide =
        matches!(element(types, ty).map(|ty| types.get_stripped(ty)), Some(Type::Int(int)) if int.size > 8);
    types.size_of(ty).is_some_and(|size| size > 0) && !wide
}

/// The type of an array's elements, or the type itself; none for an array without elements.
fn element(types: &Types, ty: TypeId) -> Option<TypeId> {
    let mut at = ty;
    while let Type::Array { elem, len } = types.get_stripped(at) {
        if len == 0 {
            return None;
        }
        at = elem;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile;
    use crate::sema::Limits;
    use crate::types::testing::mini_kernel;

    #[test]
    fn queries_about_a_small_kernel_are_understood() {
        let types = mini_kernel();
        for (_, name) in types.functions(0) {
            let func = &types.functions_named(&name)[0];
            for seed in 0..50 {
                let text = query(&types, func, Subject::Entry, seed);
                assert_eq!(text, query(&types, func, Subject::Entry, seed));
                if let Err(diags) = compile::understand(&text, &types, Limits::default()) {
                    assert!(
                        diags.iter().all(|diag| diag.code == crate::diag::Code::Incomplete
                            // The generator is given one of two functions of a name, which a query can't name.
                            || diag.code == crate::diag::Code::AmbiguousFunction
                            || diag.code == crate::diag::Code::UnsupportedTarget
                            || diag.code == crate::diag::Code::NotScalar),
                        "{text}: {diags:?}"
                    );
                }
            }
        }
    }
}
