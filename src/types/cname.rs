//! How C spells a type: names, declarators, prototypes. Exact for whatever C can say, `const`, `__user` and function
//! pointers included. Never longer than a few kilobytes, whatever the BTF: what goes beyond is cut with an ellipsis.

use super::{CHAIN_MAX, Func, Param, Type, TypeId, Types};

impl Types {
    /// The type without an identifier: `struct sk_buff *`, `int (*)(int)`, `char[16]`.
    pub fn c_name(&self, id: TypeId) -> String {
        self.c_decl(id, "")
    }

    /// A declaration of `ident`: `struct sk_buff *skb`, `int (*cb)(void *, int)`, `char name[16]`.
    pub fn c_decl(&self, id: TypeId, ident: &str) -> String {
        let mut budget = BUDGET;
        self.declare(id, ident.to_string(), 0, &mut budget)
    }

    /// A function's declaration without the semicolon: `int ip_rcv(struct sk_buff *skb, struct net_device *dev)`.
    pub fn prototype(&self, func: &Func) -> String {
        let mut budget = BUDGET;
        let params = self.parameters(&func.params, func.variadic, 0, &mut budget);
        self.declare(func.ret, format!("{}({params})", func.name), 0, &mut budget)
    }

    /// Builds the declarator from the inside out: what C writes around the identifier is what BTF chains outwards.
    fn declare(&self, id: TypeId, inner: String, depth: usize, budget: &mut usize) -> String {
        let mut id = id;
        let mut inner = inner;
        // Modifiers found since the last pointer; they belong to whatever comes next.
        let mut modifiers: Vec<String> = Vec::new();
        for _ in 0..CHAIN_MAX {
            let Some(left) = budget.checked_sub(1) else {
                return ellipsis(&inner);
            };
            *budget = left;
            match self.get(id) {
                Type::Const(to) => {
                    note(&mut modifiers, "const");
                    id = to;
                }
                Type::Volatile(to) => {
                    note(&mut modifiers, "volatile");
                    id = to;
                }
                Type::Restrict(to) => {
                    note(&mut modifiers, "restrict");
                    id = to;
                }
                Type::TypeTag { tag, ty } => {
                    note(&mut modifiers, &format!("__{tag}"));
                    id = ty;
                }
                Type::Ptr(to) => {
                    // Tags are written before the star they qualify, as the kernel's sources do: `char __user *`.
                    let (tags, words): (Vec<String>, Vec<String>) = std::mem::take(&mut modifiers)
                        .into_iter()
                        .partition(|word| word.starts_with("__"));
                    let words: Vec<String> = tags.into_iter().chain(words).collect();
                    let gap = if words.is_empty() || inner.is_empty() || inner.starts_with('[') {
                        ""
                    } else {
                        " "
                    };
                    inner = format!("*{}{gap}{inner}", words.join(" "));
                    id = to;
                }
                Type::Array { elem, len } => {
                    // Qualifiers of an array are those of its elements, so they stay pending.
                    inner = if inner.starts_with('*') {
                        format!("({inner})[{len}]")
                    } else {
                        format!("{inner}[{len}]")
                    };
                    id = elem;
                }
                Type::FuncProto {
                    ret,
                    params,
                    variadic,
                } => {
                    modifiers.clear();
                    let params = self.parameters(&params, variadic, depth + 1, budget);
                    inner = if inner.starts_with('*') {
                        format!("({inner})({params})")
                    } else {
                        format!("{inner}({params})")
                    };
                    id = ret;
                }
                Type::Func { proto } => id = proto,
                Type::Void
                | Type::Int(_)
                | Type::Float { .. }
                | Type::Struct(_)
                | Type::Union(_)
                | Type::Enum(_)
                | Type::Fwd { .. }
                | Type::Typedef(_)
                | Type::Other => return self.finish(id, modifiers, &inner),
            }
        }
        ellipsis(&inner)
    }

    fn finish(&self, id: TypeId, modifiers: Vec<String>, inner: &str) -> String {
        let (tags, words): (Vec<String>, Vec<String>) =
            modifiers.into_iter().partition(|word| word.starts_with("__"));
        let mut all = words;
        all.push(self.specifier(id));
        all.extend(tags);
        let base = all.join(" ");
        if inner.is_empty() || inner.starts_with('[') {
            format!("{base}{inner}")
        } else {
            format!("{base} {inner}")
        }
    }

    /// `struct x`, `unsigned int`, `u32`; an anonymous one has no spelling but its body, which is left out.
    fn specifier(&self, id: TypeId) -> String {
        let name = self.name(id);
        let tagged = |keyword: &str| {
            if name.is_empty() {
                format!("{keyword} {{...}}")
            } else {
                format!("{keyword} {name}")
            }
        };
        match self.get(id) {
            Type::Struct(_) | Type::Fwd { is_union: false } => tagged("struct"),
            Type::Union(_) | Type::Fwd { is_union: true } => tagged("union"),
            Type::Enum(_) => tagged("enum"),
            Type::Void => "void".to_string(),
            Type::Int(_)
            | Type::Float { .. }
            | Type::Ptr(_)
            | Type::Array { .. }
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => name,
        }
    }

    fn parameters(&self, params: &[Param], variadic: bool, depth: usize, budget: &mut usize) -> String {
        if depth > DEPTH_MAX {
            return "...".to_string();
        }
        let mut list: Vec<String> = Vec::new();
        for param in params {
            if *budget == 0 {
                list.push("...".to_string());
                return list.join(", ");
            }
            list.push(self.declare(param.ty, param.name.clone(), depth, budget));
        }
        if variadic {
            list.push("...".to_string());
        }
        if list.is_empty() {
            "void".to_string()
        } else {
            list.join(", ")
        }
    }
}

/// Links that one spelling may follow in all; real ones need a few dozen.
const BUDGET: usize = 2000;

/// Function pointers as parameters of function pointers; the kernel has three levels.
const DEPTH_MAX: usize = 12;

fn note(modifiers: &mut Vec<String>, word: &str) {
    if !modifiers.iter().any(|known| known == word) {
        modifiers.push(word.to_string());
    }
}

fn ellipsis(inner: &str) -> String {
    if inner.is_empty() {
        "...".to_string()
    } else {
        format!("... {inner}")
    }
}
