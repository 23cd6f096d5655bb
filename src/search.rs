//! Searching functions by name and by what they take: `tcp_*`, `nf_*:*`, `*(struct sk_buff *)`, `vfs_*(file, size_t)`,
//! `tp:*(struct task_struct *)`. In: patterns, prototypes. Out: whether they fit. Never reads anything itself.

use crate::glob::Patterns;
use crate::types::{Func, Types};

/// One thing that is searched for.
#[derive(Clone, Debug)]
pub struct Search {
    name: Patterns,
    /// The module that it is in, if that is asked for.
    module: Option<String>,
    /// As it was written, without the module.
    text: String,
    /// Each must be a parameter's type or name; no two may be the same parameter.
    params: Vec<String>,
    tracepoints: bool,
}

impl Search {
    /// Reads `[MODULE:]GLOB[(TYPE or NAME, …)]`, or the same with `tp:`. An error is a sentence.
    pub fn parse(text: &str) -> Result<Search, String> {
        let (tracepoints, rest) = match text.trim().strip_prefix("tp:") {
            Some(rest) => (true, rest),
            None => (false, text.trim()),
        };
        let (name, params) = match rest.split_once('(') {
            None => (rest, Vec::new()),
            Some((name, list)) => {
                let Some(list) = list.trim_end().strip_suffix(')') else {
                    return Err(format!("`{}` has no `)` at its end", text.escape_default()));
                };
                (name, parameters(list))
            }
        };
        let (module, name) = match name.split_once(':') {
            Some((module, name)) => (Some(module.trim().to_string()), name),
            None => (None, name),
        };
        // A search by type alone means any name.
        let name = match name.trim() {
            "" => "*",
            name => name,
        };
        Ok(Search {
            name: Patterns::new(&[name]),
            module,
            text: name.to_string(),
            params: params.iter().map(|param| normal(param)).collect(),
            tracepoints,
        })
    }

    /// Whether it is about tracepoints.
    pub fn tracepoints(&self) -> bool {
        self.tracepoints
    }

    /// Whether it looks into this module; `vmlinux` is the kernel itself. A tracepoint's group is only for people.
    pub fn in_module(&self, name: &str) -> bool {
        self.module
            .as_ref()
            .is_none_or(|module| Patterns::new(&[module.as_str()]).any(name))
    }

    /// The module that it is about, if that is one and no pattern.
    pub fn module(&self) -> Option<&str> {
        self.module
            .as_deref()
            .filter(|module| !self.tracepoints && !module.contains(['*', '?', '[', ',']))
    }

    /// The first of the types asked for that is a struct or union by itself, which functions hardly ever take: a pointer to it is
    /// what is meant.
    pub fn lacks_star(&self) -> Option<&str> {
        let mut all = self.params.iter().map(String::as_str);
        all.find(|param| {
            let composite = param.starts_with("struct ") || param.starts_with("union ");
            composite && !param.ends_with('*')
        })
    }

    /// Whether the name fits. This is cheap, and comes first.
    pub fn names(&self, name: &str) -> bool {
        let begins_open = self.text.starts_with(['*', '?', '[']);
        self.name.any(name) && !(begins_open && is_glue(name))
    }

    /// The name that is searched for, if it is one and no pattern.
    pub fn name(&self) -> Option<&str> {
        (!self.text.contains(['*', '?', '[', ','])).then_some(self.text.as_str())
    }

    /// Whether the parameters fit.
    pub fn takes(&self, types: &Types, func: &Func) -> bool {
        let mut left: Vec<(String, &str)> = func
            .params
            .iter()
            .map(|param| (normal(&types.c_name(param.ty)), param.name.as_str()))
            .collect();
        self.params.iter().all(|wanted| {
            let found = left.iter().position(|(ty, name)| ty == wanted || name == wanted);
            found.map(|at| left.remove(at)).is_some()
        })
    }
}

/// Whether the kernel makes a function of this name for each tracepoint (include/trace/bpf_probe.h, perf.h, trace_events.h,
/// include/linux/tracepoint.h): who searches by a part of a name or by types means none of them.
fn is_glue(name: &str) -> bool {
    let glue = [
        "__bpf_trace_",
        "__traceiter_",
        "__probestub_",
        "__perf_trace_",
        "perf_trace_",
        "trace_event_raw_event_",
        "do_trace_event_raw_event_",
        "trace_raw_output_",
    ];
    glue.iter().any(|prefix| name.starts_with(prefix))
}

/// The parts between commas that are in no parentheses of their own, as a function pointer's are.
fn parameters(list: &str) -> Vec<&str> {
    let (mut depth, mut from) = (0usize, 0);
    let mut parts = Vec::new();
    for (at, c) in list.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[from..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// A type's spelling without qualifiers, with one blank between words and none at stars. C's words for an integer type come
/// in any order, so they are sorted.
fn normal(text: &str) -> String {
    let spaced = text.replace('*', " * ");
    let mut words: Vec<&str> = spaced
        .split_whitespace()
        .filter(|word| {
            !matches!(
                *word,
                "const" | "volatile" | "restrict" | "__user" | "__rcu" | "__percpu"
            )
        })
        .collect();
    let stars = words.iter().filter(|word| **word == "*").count();
    words.retain(|word| *word != "*");
    let integer = ["unsigned", "signed", "long", "short", "int", "char"];
    if words.iter().all(|word| integer.contains(word)) {
        if words.len() > 1 {
            words.retain(|word| *word != "int" && *word != "signed");
        }
        words.sort_unstable();
    }
    format!("{}{}", words.join(" "), "*".repeat(stars))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::testing::mini_kernel;

    fn found(text: &str) -> Vec<String> {
        let types = mini_kernel();
        let search = Search::parse(text).unwrap_or_else(|why| panic!("{why}"));
        let mut names: Vec<String> = types
            .functions(0)
            .into_iter()
            .filter(|(_, name)| search.in_module("vmlinux") && search.names(name))
            .filter(|(id, _)| types.func(*id).is_some_and(|func| search.takes(&types, &func)))
            .map(|(_, name)| name)
            .filter(|name| !name.starts_with("__"))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn functions_are_found_by_name_type_and_parameter() {
        assert_eq!(found("tcp_c*"), ["tcp_close", "tcp_connect"]);
        assert_eq!(found("*(struct sk_buff *)"), ["ip_rcv", "ip_send_skb"]);
        assert_eq!(found("(struct sk_buff*)"), ["ip_rcv", "ip_send_skb"]);
        assert_eq!(found("*(struct net_device *, struct net_device *)"), ["ip_rcv"]);
        assert_eq!(found("vfs_*(file, size_t)"), ["vfs_read", "vfs_write"]);
        assert_eq!(found("tcp_*(long)"), ["tcp_close"]);
        assert_eq!(found("*(struct path *)"), ["vfs_open"]);
        assert_eq!(found("*(struct sk_buff)"), Vec::<String>::new());
        assert_eq!(found("vmlinux:tcp_c*"), ["tcp_close", "tcp_connect"]);
        assert_eq!(found("vm*:(struct path *)"), ["vfs_open"]);
        assert_eq!(found("ext4:*"), Vec::<String>::new());
    }

    #[test]
    fn spellings_of_a_type_are_one() {
        for (a, b) in [
            ("unsigned long", "long unsigned int"),
            ("const char *", "char*"),
            ("struct  sk_buff *", "struct sk_buff*"),
            ("long int", "long"),
        ] {
            assert_eq!(normal(a), normal(b));
        }
        assert_ne!(normal("char *"), normal("char **"));
        assert!(Search::parse("a(b").is_err());
        assert_eq!(parameters("int (*)(void *, int), void *").len(), 2);
    }
}
