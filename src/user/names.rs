//! Which functions and probes a name means: exact, of a version, demangled, or a pattern; or an address. In: an image and
//! what the query says. Out: places. Never says how a mistake is told.

use cpp_demangle::DemangleOptions;

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

/// Whether a query may call a mangled symbol so: by its name as its language has it, with or without what it returns, with
/// or without its parameters, with or without the arguments of templates.
fn called(symbol: &str, fits: impl Fn(&str) -> bool) -> bool {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        let long = format!("{rust:#}");
        return fits(&long) || fits(&without_templates(&long));
    }
    if !symbol.starts_with("_Z") {
        return false;
    }
    let Ok(parsed) = cpp_demangle::Symbol::new(symbol) else {
        return false;
    };
    let spelled = |options: DemangleOptions| parsed.demangle_with_options(&options).unwrap_or_default();
    let long = spelled(DemangleOptions::new());
    let unreturned = spelled(DemangleOptions::new().no_return_type());
    let bare = spelled(DemangleOptions::new().no_return_type().no_params());
    fits(&long) || fits(&unreturned) || fits(&bare) || fits(&without_templates(&bare))
}

/// `demo::Box<int>::put` without `<int>`; operators are not brackets.
fn without_templates(name: &str) -> String {
    const OPERATOR: &str = "operator";
    let mut out = String::with_capacity(name.len());
    let mut depth = 0u32;
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if depth == 0 && rest.starts_with(OPERATOR) {
            let signs = rest[OPERATOR.len()..]
                .find(|c| !matches!(c, '<' | '>' | '=' | '-'))
                .map_or(rest.len(), |at| OPERATOR.len() + at);
            // `operator< <int>` has a blank before what follows it.
            out.push_str(rest[..signs].trim_end());
            rest = &rest[signs..];
            continue;
        }
        match c {
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// The name of the function that the compiler made a copy of for itself, if this is the name of such a copy: what the copy is
/// passed may be other than what the source says.
pub fn copied(symbol: &str) -> Option<&str> {
    let first = [".constprop.", ".isra.", ".part."]
        .iter()
        .filter_map(|suffix| {
            let at = symbol.find(suffix)?;
            let number = symbol[at + suffix.len()..].starts_with(|c: char| c.is_ascii_digit());
            (at > 0 && number && !symbol.contains(".cold")).then_some(at)
        })
        .min()?;
    Some(&symbol[..first])
}

impl Image {
    /// The functions that a query means: those of exactly this name, `name@VERSION` for one version; else those whose
    /// demangled name it is, with or without parameters, template arguments and what is returned; for a pattern all that match, by
    /// any of these.
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
                .filter(|function| fits(&function.name) || called(&function.name, fits))
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
            .filter(|function| called(&function.name, |text| text == name))
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
