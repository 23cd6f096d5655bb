//! Which functions and probes a name means: exact, of a version, demangled, or a pattern; or an address. In: an image and
//! what the query says. Out: places. Never says how a mistake is told.

use super::image::{Function, Image, Probe};
use crate::glob::Pattern;

/// The name of a mangled symbol as its language has it, without the hash that Rust adds; `None` for one that is not
/// mangled.
pub fn demangled(symbol: &str) -> Option<String> {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return Some(format!("{rust:#}"));
    }
    if !symbol.starts_with("_Z") {
        return None;
    }
    cpp_demangle::Symbol::new(symbol).ok()?.demangle().ok()
}

/// A demangled name without parameters: the part that a query can hold.
fn bare(demangled: &str) -> &str {
    let mut depth = 0u32;
    for (at, c) in demangled.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 && at > 0 && !demangled[at..].starts_with("(anonymous namespace)") => {
                return &demangled[..at];
            }
            _ => {}
        }
    }
    demangled
}

impl Image {
    /// The functions that a query means: those of exactly this name, `name@VERSION` for one version; else those whose
    /// demangled name it is, with or without parameters; for a pattern all that match, by either name.
    pub fn functions_named(&self, wanted: &str) -> Vec<&Function> {
        let (name, version) = match wanted.split_once('@') {
            Some((name, version)) => (name, Some(version.trim_start_matches('@'))),
            None => (wanted, None),
        };
        let of_version =
            |function: &&Function| version.is_none_or(|v| function.version.as_deref() == Some(v));
        if is_pattern(name) {
            let Ok(pattern) = Pattern::parse(name.as_bytes()) else {
                return Vec::new();
            };
            let fits = |text: &str| pattern.matches(text.as_bytes());
            return self
                .functions
                .iter()
                .filter(of_version)
                .filter(|function| {
                    fits(&function.name)
                        || demangled(&function.name).is_some_and(|long| fits(&long) || fits(bare(&long)))
                })
                .collect();
        }
        let from = self
            .functions
            .partition_point(|function| function.name.as_str() < name);
        let exact: Vec<&Function> = self.functions[from..]
            .iter()
            .take_while(|function| function.name == name)
            .filter(of_version)
            .collect();
        if !exact.is_empty() {
            return exact;
        }
        let mangled = self
            .functions
            .iter()
            .filter(of_version)
            .filter(|function| function.name.starts_with('_'));
        mangled
            .filter(|function| {
                demangled(&function.name).is_some_and(|long| long == name || bare(&long) == name)
            })
            .collect()
    }

    /// The probes that a query means; each part may be a pattern.
    pub fn probes_named(&self, provider: &str, name: &str) -> Vec<&Probe> {
        let fits = |pattern: &str, text: &str| {
            if is_pattern(pattern) {
                glob(pattern, text)
            } else {
                pattern == text
            }
        };
        self.probes
            .iter()
            .filter(|probe| fits(provider, &probe.provider) && fits(name, &probe.name))
            .collect()
    }

    /// The function that an address is in.
    pub fn function_at(&self, address: u64) -> Option<&Function> {
        self.functions
            .iter()
            .filter(|function| {
                function.address <= address
                    && (address - function.address < function.size || address == function.address)
            })
            .min_by_key(|function| function.size)
    }
}

/// Whether a pattern fits the whole text; what is no pattern fits nothing.
pub fn glob(pattern: &str, text: &str) -> bool {
    Pattern::parse(pattern.as_bytes()).is_ok_and(|pattern| pattern.matches(text.as_bytes()))
}

/// Whether a name is a pattern.
pub fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?']) || (name.contains('[') && name.contains(']'))
}
