//! Sets of functions. In: what a target names (globs, lists, an address) and the functions of the loaded BTF. Out: which functions
//! those are, and queries that are typed for them: one for all functions whose programs would be the same. Never asks
//! the kernel which of them can be probed.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use crate::diag::Diagnostic;
use crate::glob;
use crate::lower::{self, Placement};
use crate::parser::ast;
use crate::sema::{self, Limits};
use crate::typed::{self, Probe};
use crate::types::{Func, TypeId, Types};

/// What the name in a target says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names<'a> {
    /// One function.
    One {
        /// Its name, maybe with a compiler's suffix; empty if only the address is given.
        name: &'a str,
        /// Its address, if that chooses between several of the name.
        address: Option<u64>,
    },
    /// Every function whose name is in the list, or matches a pattern that is.
    Many(Vec<&'a str>),
}

/// Takes the name in a target apart: `tcp_*`, `vfs_read,vfs_write`, `FUNC@0xADDRESS`, `0xADDRESS`.
pub fn names(text: &str) -> Names<'_> {
    if let Some(address) = address(text) {
        return Names::One {
            name: "",
            address: Some(address),
        };
    }
    if let Some((name, at)) = text.split_once('@')
        && let Some(address) = address(at)
    {
        return Names::One {
            name,
            address: Some(address),
        };
    }
    if text.contains([',', '*', '?', '[']) {
        return Names::Many(text.split(',').filter(|part| !part.is_empty()).collect());
    }
    Names::One {
        name: text,
        address: None,
    }
}

/// A hexadecimal address with its `0x`.
pub fn address(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X"))?;
    u64::from_str_radix(digits, 16).ok()
}

/// A name without what compilers append to the copies that they make of a function: `tcp_ack.isra.0` is in BTF as `tcp_ack`.
pub fn stem(name: &str) -> &str {
    // Not the first byte: a name may begin with a dot.
    match name.bytes().skip(1).position(|byte| byte == b'.') {
        Some(dot) => &name[..dot + 1],
        None => name,
    }
}

/// The functions of a module that a list of names and patterns means, in the module's order. Looks at every function of it.
pub fn functions(types: &Types, module: u16, patterns: &[&str]) -> Vec<(TypeId, String)> {
    let mut found = types.functions(module);
    let patterns = glob::Patterns::new(patterns);
    found.retain(|(_, name)| patterns.any(name));
    found
}

/// Functions that can share programs.
#[derive(Clone, Debug)]
pub struct Family {
    /// The query, typed for the first of them. Its events are the same for all.
    pub query: typed::Query,
    /// All of them.
    pub members: Vec<Func>,
}

impl Family {
    /// The query of one member alone.
    pub fn query_of(&self, member: &Func) -> typed::Query {
        typed::Query {
            probe: Probe::Function(member.clone()),
            ..self.query.clone()
        }
    }
}

/// What became of a query about many functions.
#[derive(Debug)]
pub struct Families {
    /// Those that it fits.
    pub families: Vec<Family>,
    /// The names of those that it does not fit: they have no such argument, or one of another type.
    pub unfit: Vec<String>,
    /// Warnings, each once.
    pub warnings: Vec<Diagnostic>,
}

/// Types a query for each of the functions. Where it fits none of them, what is wrong with the first is told.
pub fn families(
    text: &str,
    query: &ast::Query,
    types: &Types,
    limits: Limits,
    functions: Vec<Func>,
) -> Result<Families, Vec<Diagnostic>> {
    let mut made = Families {
        families: Vec::new(),
        unfit: Vec::new(),
        warnings: Vec::new(),
    };
    let mut first_unfit = None;
    let mut placements: Vec<Placement> = Vec::new();
    // By a number that equal families have in common, so that few have to be compared.
    let mut near: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    // Functions of one prototype, which BTF has once only, are typed once.
    let mut by_proto: BTreeMap<(u16, TypeId), Option<usize>> = BTreeMap::new();
    // Where it depends on their names, too, they are typed one by one.
    let mut by_name = false;
    // For each warning whose it is, and how many prototypes more it is about.
    let mut more: Vec<(String, usize)> = Vec::new();
    for func in functions {
        let module = func.id.module;
        let proto = (module, types.proto_of(func.id));
        if let Some(known) = by_proto.get(&proto)
            && !by_name
        {
            match known {
                Some(family) => made.families[*family].members.push(func),
                None => made.unfit.push(func.name),
            }
            continue;
        }
        let probe = Probe::Function(func.clone());
        let resolved = match sema::fit(text, query, types, limits, probe.clone()) {
            Ok(resolved) => resolved,
            Err(_) => {
                first_unfit.get_or_insert(probe);
                made.unfit.push(func.name);
                by_proto.insert(proto, None);
                continue;
            }
        };
        by_name |= resolved.by_name;
        for warning in resolved.warnings {
            // The same of several prototypes is told once: only their types differ.
            let place = (warning.code, warning.span);
            match made
                .warnings
                .iter()
                .position(|other| (other.code, other.span) == place)
            {
                Some(index) => more[index].1 += 1,
                None => {
                    more.push((func.name.clone(), 0));
                    made.warnings.push(warning);
                }
            }
        }
        let typed = resolved.query;
        let placement = lower::placement(types, &func, &typed.events);
        let mut hasher = DefaultHasher::new();
        (module, &placement, &typed.events).hash(&mut hasher);
        let near = near.entry(hasher.finish()).or_default();
        let same = near.iter().copied().find(|index| {
            let family: &Family = &made.families[*index];
            placements[*index] == placement
                && family.query.probe.func().id.module == module
                && family.query.events == typed.events
        });
        let family = match same {
            Some(index) => {
                made.families[index].members.push(func);
                index
            }
            None => {
                let index = made.families.len();
                near.push(index);
                placements.push(placement);
                made.families.push(Family {
                    query: typed,
                    members: vec![func],
                });
                index
            }
        };
        by_proto.insert(proto, Some(family));
    }
    let several = by_proto.len() > 1;
    for (warning, (name, others)) in made.warnings.iter_mut().zip(more).filter(|_| several) {
        let others = match others {
            0 => String::new(),
            1 => ", and one more prototype".to_string(),
            n => format!(", and {n} more prototypes"),
        };
        warning.notes.push(format!("that is `{name}`{others}"));
    }
    match first_unfit {
        Some(probe) if made.families.is_empty() => {
            match sema::resolve_for(text, query, types, limits, probe) {
                Err(diags) => Err(diags),
                Ok(_) => {
                    unreachable!("bug in ksnoop-jit: what suggestions are made changes what is a mistake")
                }
            }
        }
        Some(_) | None => Ok(made),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser;
    use crate::types::testing::mini_kernel;

    #[test]
    fn names_are_taken_apart() {
        let one = |name, address| Names::One { name, address };
        assert_eq!(names("vfs_read"), one("vfs_read", None));
        assert_eq!(
            names("s_next@0xffffffff81234560"),
            one("s_next", Some(0xffff_ffff_8123_4560))
        );
        assert_eq!(names("0xffff800000000000"), one("", Some(0xffff_8000_0000_0000)));
        assert_eq!(names("tcp_*"), Names::Many(vec!["tcp_*"]));
        assert_eq!(names("a,b_[xy]"), Names::Many(vec!["a", "b_[xy]"]));
        assert_eq!(names("odd@name"), one("odd@name", None));
    }

    #[test]
    fn functions_of_one_shape_are_a_family() {
        let types = mini_kernel();
        let all: Vec<Func> = functions(&types, 0, &["*"])
            .into_iter()
            .filter_map(|(id, _)| types.func(id))
            .collect();
        let total = all.len();
        let text = "*()";
        let query = parser::parse(text).expect("it parses");
        let made = families(text, &query, &types, Limits::default(), all.clone()).expect("nothing is asked");
        // Nothing of the functions is looked at, so one program does for all of them.
        assert_eq!(made.families.len(), 1);
        assert_eq!(made.families[0].members.len(), total);
        assert_eq!(made.unfit, Vec::<String>::new());

        // Nor is their name, which each event has a number for; where it decides something, it is.
        let count = |text: &str| {
            let query = parser::parse(text).expect("it parses");
            let made = families(text, &query, &types, Limits::default(), all.clone());
            made.expect("nothing is asked").families.len()
        };
        assert_eq!(count("*(func, name=$func)"), 1);
        assert_eq!(count("*(count(), by(func))"), 1);
        assert_eq!(count("*() if func != \"ip_rcv\""), 2);
        assert!(count("*(n=sizeof(func) + pid)") > 2);

        let text = "*(skb)";
        let query = parser::parse(text).expect("it parses");
        let made = families(text, &query, &types, Limits::default(), all.clone()).expect("some have it");
        let fit: usize = made.families.iter().map(|family| family.members.len()).sum();
        assert!(fit > 0 && !made.unfit.is_empty());
        assert_eq!(fit + made.unfit.len(), total);
        for family in &made.families {
            for member in &family.members {
                assert!(member.params.iter().any(|param| param.name == "skb"));
            }
        }

        let text = "*(no_such_argument)";
        let query = parser::parse(text).expect("it parses");
        assert!(families(text, &query, &types, Limits::default(), all).is_err());
    }

    /// What is odd about several prototypes is told once, with whose it is.
    #[test]
    fn one_warning_is_told_once() {
        let types = mini_kernel();
        let all: Vec<Func> = functions(&types, 0, &["*"])
            .into_iter()
            .filter_map(|(id, _)| types.func(id))
            .collect();
        let text = "*(return < 0 || func == \"vfs_open\")";
        let query = parser::parse(text).expect("it parses");
        let made = families(text, &query, &types, Limits::default(), all).expect("some return something");
        let [warning] = made.warnings.as_slice() else {
            panic!("{:?}", made.warnings);
        };
        let [note] = warning.notes.as_slice() else {
            panic!("{:?}", warning.notes);
        };
        assert!(
            note.starts_with("that is `") && note.ends_with(" more prototypes"),
            "{note}"
        );
    }

    /// What a query does not fit costs no look at all names: nobody reads the suggestions.
    #[test]
    fn what_is_unfit_scans_nothing() {
        let all = |types: &Types| -> Vec<Func> {
            functions(types, 0, &["*"])
                .into_iter()
                .filter_map(|(id, _)| types.func(id))
                .collect()
        };
        // Each of them looks among the enum constants, the last two among all names of types too.
        for (text, unfit) in [
            ("*(skb)", true),
            ("*(skb->len == NO_SUCH_CONSTANT || skb)", false),
            ("*(((struct no_such *)arg0)->x)", false),
            ("*((no_such_t)arg0)", false),
        ] {
            let types = mini_kernel();
            let all = all(&types);
            let query = parser::parse(text).expect("it parses");
            let few: Vec<Func> = all.iter().take(1).cloned().collect();
            // One function: what it costs if the mistakes are told.
            let before = types.scans();
            let _ = families(text, &query, &types, Limits::default(), few);
            let one = types.scans() - before;
            let before = types.scans();
            let made = families(text, &query, &types, Limits::default(), all);
            assert_eq!(made.is_ok(), unfit, "{text}");
            assert!(
                types.scans() - before <= one,
                "{text}: {} scans for all, {one} for one",
                types.scans() - before
            );
        }
    }
}
