//! Sets of functions: which functions of a list or pattern are traced. In: a parsed query, the kernel's types, symbols and list of
//! places to hook. Out: the typed queries, each with the functions that share its programs; what is left out is counted and told.
//! Never attaches anything.

use std::collections::{BTreeMap, BTreeSet};

use ksnoop_jit::compile;
use ksnoop_jit::diag::{Code, Diagnostic};
use ksnoop_jit::glob::Patterns;
use ksnoop_jit::parser::ast;
use ksnoop_jit::select::{self, Families};
use ksnoop_jit::sema;
use ksnoop_jit::span::Span;
use ksnoop_jit::types::{Func, TypeId, Types};
use ksnoop_jit_runtime as runtime;
use runtime::symbols::{Symbol, SymbolKind, Symbols, ftrace_sites};

use super::choose::{Chooser, Wrong, known_module};
use super::explain::{denied, no_trampoline};
use super::instances::{NOT_CALLED, copy_warning, prototypes, unfaithful};
use super::number::number;
use super::targets::{Asked, Family, Place};
use crate::{Failure, complain, tell};

/// More functions than this are only traced with `--force`.
const LIMIT: usize = 2000;
/// From so many functions on the kernel's list of places to hook is read before: it takes the kernel a while to write, but so
/// does every function that it refuses.
const WORTH_READING: usize = 16;

impl Chooser<'_> {
    /// Every function of a list or pattern.
    pub(super) fn many(
        &self,
        text: &str,
        query: &ast::Query,
        module: Option<&ast::Ident>,
        name: &ast::Ident,
        patterns: &[&str],
    ) -> Result<Result<Asked, Wrong>, Failure> {
        let modules: Vec<u16> = match module {
            Some(wanted) => match self.types.module_named(&wanted.node) {
                Some(number) => vec![number],
                None => {
                    let diags = compile::understand(text, self.types, self.limits).err();
                    return Ok(Err(known_module(
                        diags.unwrap_or_default(),
                        module,
                        self.types,
                        patterns,
                    )));
                }
            },
            None => (0..self.types.module_count()).collect(),
        };
        let mut described: Vec<Func> = Vec::new();
        for number in modules {
            let found = select::functions(self.types, number, patterns);
            described.extend(found.into_iter().filter_map(|(id, _)| self.types.func(id)));
        }
        let symbols = self.live.then(|| by_name(self.types, patterns)).transpose()?;
        let suffixed = suffixed(self.types, symbols.as_ref(), module, patterns);
        let mut others: Vec<Asked> = Vec::new();
        let mut out = LeftOut::default();
        for wanted in patterns.iter().filter(|pattern| !is_glob(pattern)) {
            if described.iter().chain(&suffixed).any(|func| func.name == *wanted) {
                continue;
            }
            // As by itself: another name of a function, or one that BTF does not describe.
            let own = ast::Ident {
                node: (*wanted).to_string(),
                span: within(text, name, wanted),
            };
            // What is near is looked for among all names there are: only where it is told.
            let unknown = || vec![sema::unknown_function(module, &own, self.types)];
            if !self.live {
                return Ok(Err(unknown()));
            }
            match self.without_prototype(text, query, module, &own, unknown)? {
                Ok(one) => others.push(one),
                Err(diags) if diags.iter().any(|diag| is_about_target(diag.code)) => return Ok(Err(diags)),
                Err(_) => out.unfit.push((*wanted).to_string()),
            }
        }
        if let Some(first) = suffixed.first() {
            let mut warning = copy_warning(name.span, &first.name);
            if suffixed.len() > 1 {
                let more = suffixed.len() - 1;
                warning = warning.note(format!("and so on: {more} more"));
            }
            tell(self.cli, text, &[warning]);
        }
        described.extend(suffixed);
        if described.is_empty() && others.is_empty() {
            let diag = Diagnostic::error(
                Code::UnknownFunction,
                name.span,
                format!("no function matches `{}`", name.node),
            )
            .label("none in BTF")
            .help("`ksnoop-jit list '*PART*'` searches by a part of the name");
            return Ok(Err(vec![diag]));
        }
        // Only where there are others does it matter that the query fits none of these.
        let all = match others.is_empty() {
            true => Vec::new(),
            false => described.iter().map(|func| func.name.clone()).collect(),
        };
        let fits = match select::families(text, query, self.types, self.limits, described) {
            Ok(made) => made,
            Err(diags) if others.is_empty() => return Ok(Err(diags)),
            Err(_) => Families {
                families: Vec::new(),
                unfit: all,
                warnings: Vec::new(),
            },
        };
        tell(self.cli, text, &fits.warnings);
        out.unfit.extend(fits.unfit);
        let mut asked = Asked {
            text: text.to_string(),
            name: name.node.clone(),
            families: Vec::new(),
        };
        let members: usize = fits.families.iter().map(|family| family.members.len()).sum();
        let hooks = (self.live && members >= WORTH_READING)
            .then(|| Hooks::read(patterns))
            .flatten();
        for family in fits.families {
            let mut places = self.places_of(&family.members, symbols.as_ref(), &mut out);
            if let Some(hooks) = &hooks {
                places.retain(|place| {
                    let has = hooks.has(place);
                    if !has {
                        out.no_hook.push(place.shown.clone());
                    }
                    has
                });
            }
            // Those that no trampoline takes are attached by address, which is another sort of link. One of them would undo
            // the link of all.
            let (by_type, by_address): (Vec<Place>, Vec<Place>) = places
                .into_iter()
                .partition(|place| no_trampoline(place, self.types, self.cli.force).is_none());
            for places in [by_type, by_address] {
                if let Some(first) = places.first() {
                    asked.families.push(Family {
                        query: family.query_of(&first.func),
                        places,
                    });
                }
            }
        }
        for one in others {
            asked.families.extend(one.families);
        }
        let count = asked.places();
        if let Some(what) = out.told(patterns) {
            complain(&format!(
                "{}: {}; left out: {what}",
                name.node,
                number(count as u64, "function")
            ));
        }
        if count == 0 {
            let diag = Diagnostic::error(
                Code::Untraceable,
                name.span,
                "none of the functions that match can be traced",
            )
            .label("see above");
            return Ok(Err(vec![diag]));
        }
        Ok(self.limited(asked, name.span))
    }

    /// Refuses what is about too many functions, unless the user insists.
    pub(super) fn limited(&self, asked: Asked, span: Span) -> Result<Asked, Wrong> {
        let count = asked.places();
        if count <= LIMIT || self.cli.force {
            return Ok(asked);
        }
        let diag = Diagnostic::error(
            Code::TooManyFunctions,
            span,
            format!("{count} functions match; more than {LIMIT} are not traced at once"),
        )
        .label("too many")
        .help("make the pattern narrower, or insist with `--force`");
        Err(vec![diag])
    }

    /// Where functions that BTF describes are; what is left out is counted.
    fn places_of(&self, members: &[Func], symbols: Option<&ByName>, out: &mut LeftOut) -> Vec<Place> {
        let mut places = Vec::new();
        for func in members {
            if self.live && !self.cli.force && denied(&func.name) {
                out.denied.push(func.name.clone());
                continue;
            }
            let place = |symbol: Option<Symbol>| Place {
                func: func.clone(),
                shown: func.name.clone(),
                symbol,
                by_type: select::stem(&func.name) == func.name,
                rival: false,
                user: None,
            };
            let Some(symbols) = symbols else {
                places.push(place(None));
                continue;
            };
            let near = symbols
                .get(&(func.id.module, select::stem(&func.name).to_string()))
                .map_or(&[][..], Vec::as_slice);
            let (own, copies): (Vec<&Symbol>, Vec<&Symbol>) =
                near.iter().partition(|symbol| symbol.name == func.name);
            // Under another name, but with the arguments of the prototype.
            let renamed: Vec<&Symbol> = copies
                .iter()
                .copied()
                .filter(|symbol| !unfaithful(&symbol.name))
                .collect();
            let by_address = |symbol: &Symbol, shown: String| Place {
                shown,
                by_type: false,
                ..place(Some(symbol.clone()))
            };
            match (own.as_slice(), renamed.as_slice()) {
                ([symbol], _) => places.push(place(Some((*symbol).clone()))),
                ([], [symbol]) => places.push(by_address(symbol, func.name.clone())),
                ([], []) if copies.is_empty() => out.no_symbol.push(func.name.clone()),
                ([], []) => out.copies.push(func.name.clone()),
                ([], found) | (found, _)
                    if self.cli.all_instances && prototypes(self.types, func).len() == 1 =>
                {
                    places.extend(
                        found
                            .iter()
                            .map(|symbol| by_address(symbol, format!("{}@{:#x}", symbol.name, symbol.addr))),
                    );
                }
                (_, _) => out.ambiguous.push(func.name.clone()),
            }
        }
        places
    }
}

/// Functions that a pattern matches and that are not traced, by why.
#[derive(Default)]
struct LeftOut {
    unfit: Vec<String>,
    no_symbol: Vec<String>,
    copies: Vec<String>,
    no_hook: Vec<String>,
    ambiguous: Vec<String>,
    denied: Vec<String>,
}

impl LeftOut {
    /// How many and why, and which of them were asked for by their names.
    fn told(&self, patterns: &[&str]) -> Option<String> {
        let parts: Vec<String> = [
            (&self.unfit, "the query does not fit"),
            (
                &self.no_symbol,
                "without a symbol (inlined, or dropped when the kernel was linked)",
            ),
            (
                &self.copies,
                "only there as copies that the compiler made (their full names take them)",
            ),
            (&self.no_hook, "that the kernel has no place to hook in"),
            (
                &self.ambiguous,
                "by a name of several functions (`--all-instances` takes them)",
            ),
            (&self.denied, "that tracing itself needs"),
        ]
        .iter()
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, why)| {
            let named = names.iter().filter(|name| patterns.contains(&name.as_str()));
            let named: Vec<String> = named.map(|name| format!("`{name}`")).collect();
            match named.is_empty() {
                true => format!("{} {why}", names.len()),
                false => format!("{} {why}: {}", names.len(), named.join(", ")),
            }
        })
        .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Where in a list of names one of them stands.
fn within(text: &str, list: &ast::Ident, name: &str) -> Span {
    let start = list.span.start as usize;
    let mut at = 0;
    for part in list.node.split(',') {
        // In quotes a list is written otherwise than it reads.
        if part == name && list.span.text(text) == list.node {
            return Span::new(start + at, start + at + part.len());
        }
        at += part.len() + 1;
    }
    list.span
}

fn is_glob(pattern: &str) -> bool {
    pattern.contains(['*', '?', '['])
}

/// Whether a mistake is about which function is meant, and not about what is asked of it.
fn is_about_target(code: Code) -> bool {
    matches!(
        code,
        Code::UnknownFunction | Code::UnknownModule | Code::AmbiguousFunction | Code::Untraceable
    )
}

/// The functions that patterns mean by names with a compiler's suffix, which only symbols have: what they are called, and the
/// prototype of the name without it. A pattern without a dot means none of them.
fn suffixed(
    types: &Types,
    symbols: Option<&ByName>,
    module: Option<&ast::Ident>,
    patterns: &[&str],
) -> Vec<Func> {
    let dotted: Vec<&str> = patterns
        .iter()
        .copied()
        .filter(|pattern| pattern.contains('.'))
        .collect();
    if dotted.is_empty() {
        return Vec::new();
    }
    let own = |number: u16| module.is_none_or(|module| types.module_name(number) == module.node);
    let mut wanted: BTreeSet<(u16, &str)> = BTreeSet::new();
    match symbols {
        Some(symbols) => {
            let meant = Patterns::new(&dotted);
            for ((number, _), near) in symbols.iter().filter(|((number, _), _)| own(*number)) {
                let names = near.iter().map(|symbol| symbol.name.as_str());
                wanted.extend(names.filter(|name| meant.any(name)).map(|name| (*number, name)));
            }
        }
        // Nobody knows which copies there are: those that are named are believed in.
        None => {
            let named = dotted.iter().filter(|pattern| !is_glob(pattern));
            let modules = || (0..types.module_count()).filter(|number| own(*number));
            wanted.extend(named.flat_map(|name| modules().map(|number| (number, *name))));
        }
    }
    wanted.retain(|(_, name)| select::stem(name) != *name);
    // One pass over each module's functions: there may be thousands of copies, and a look-up of one name is slow.
    let mut described: BTreeMap<(u16, String), TypeId> = BTreeMap::new();
    let numbers: BTreeSet<u16> = wanted.iter().map(|(number, _)| *number).collect();
    for number in numbers {
        for (id, name) in types.functions(number) {
            described.entry((number, name)).or_insert(id);
        }
    }
    let func = |(number, full): (u16, &str)| {
        let id = described.get(&(number, select::stem(full).to_string()))?;
        Some(Func {
            name: full.to_string(),
            ..types.func(*id)?
        })
    };
    wanted.into_iter().filter_map(func).collect()
}

type ByName = BTreeMap<(u16, String), Vec<Symbol>>;

/// The symbols of functions and of copies of functions that match, by the module that their BTF would be in and the function's name.
fn by_name(types: &Types, patterns: &[&str]) -> Result<ByName, Failure> {
    let mut found = ByName::new();
    let patterns = Patterns::new(patterns);
    let all = Symbols::new().functions(|name| patterns.any(select::stem(name)) || patterns.any(name))?;
    for symbol in all {
        let number = match &symbol.module {
            None => Some(0),
            Some(module) => types.module_named(module),
        };
        if let Some(number) = number
            && symbol.kind != SymbolKind::Other
            && !symbol.name.contains(NOT_CALLED)
        {
            let stem = select::stem(&symbol.name).to_string();
            let near = found.entry((number, stem)).or_default();
            if near.iter().all(|other: &Symbol| other.addr != symbol.addr) {
                near.push(symbol);
            }
        }
    }
    Ok(found)
}

/// The places where the kernel can hook functions, of those that match: what is not there is refused by every sort of probe
/// (kprobes too, as distributions leave `CONFIG_KPROBE_EVENTS_ON_NOTRACE` off).
struct Hooks(BTreeSet<(Option<String>, String)>);

impl Hooks {
    /// `None` if the kernel does not show its list: then each function is tried.
    fn read(patterns: &[&str]) -> Option<Hooks> {
        let patterns = Patterns::new(patterns);
        let found = ftrace_sites(|name| patterns.any(select::stem(name)) || patterns.any(name)).ok()?;
        (!found.is_empty()).then_some(Hooks(found))
    }

    fn has(&self, place: &Place) -> bool {
        place
            .symbol
            .as_ref()
            .is_none_or(|symbol| self.0.contains(&(symbol.module.clone(), symbol.name.clone())))
    }
}
