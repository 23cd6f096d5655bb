//! What a query is about: one function or tracepoint, or all functions of a list or pattern. In: the command line's texts. Out:
//! typed queries, each with the functions that it is for. Everything that is wrong with a query is told here; never
//! attaches anything.

use ksnoop_jit::compile;
use ksnoop_jit::diag::{Code, Diagnostic};
use ksnoop_jit::parser;
use ksnoop_jit::parser::ast::{self, TargetKind};
use ksnoop_jit::select::{self, Names};
use ksnoop_jit::sema::Limits;
use ksnoop_jit::typed;
use ksnoop_jit::types::{Func, Types};
use ksnoop_jit_runtime as runtime;
use runtime::symbols::{Symbol, SymbolKind, Symbols};

use crate::cli::Cli;
use crate::{Failure, add_module, add_owners, complain, open_types, tell};

/// More functions than this are only traced with `--force`.
pub(super) const LIMIT: usize = 2000;

/// A query and what it is about.
pub(super) struct Asked {
    pub(super) text: String,
    /// What messages call it: the function, or the pattern.
    pub(super) name: String,
    /// Functions that can share programs; one for a single function.
    pub(super) families: Vec<Family>,
}

/// Functions that can share programs, and the query for them.
pub(super) struct Family {
    pub(super) query: typed::Query,
    pub(super) places: Vec<Place>,
}

/// One function, or tracepoint.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) func: Func,
    /// What events call it.
    pub(super) shown: String,
    /// Its symbol, where it had to be looked up.
    pub(super) symbol: Option<Symbol>,
}

impl Family {
    /// A query of its own, for one place.
    fn alone(query: typed::Query) -> Family {
        let func = query.probe.func().clone();
        let places = vec![Place {
            shown: func.name.clone(),
            func,
            symbol: None,
        }];
        Family { query, places }
    }

    /// The same for one of the places alone.
    pub(super) fn alone_at(&self, place: &Place) -> Family {
        Family {
            query: typed::Query {
                probe: typed::Probe::Function(place.func.clone()),
                ..self.query.clone()
            },
            places: vec![place.clone()],
        }
    }
}

impl Asked {
    /// How many functions it is about.
    pub(super) fn places(&self) -> usize {
        self.families.iter().map(|family| family.places.len()).sum()
    }
}

/// Gives all queries their meaning; every mistake in every query is told.
pub(super) fn understand(
    cli: &Cli,
    texts: &[String],
    types: &mut Option<Types>,
) -> Result<Vec<Asked>, Failure> {
    let mut parsed = Vec::new();
    let mut wrong = false;
    for text in texts {
        match parser::parse(text) {
            Ok(query) => parsed.push((text.as_str(), query)),
            Err(diags) => {
                tell(cli, text, &diags.into_vec());
                wrong = true;
            }
        }
    }
    if wrong {
        return Err(Failure::Query);
    }
    let types = types.insert(open_types(cli)?);
    if cli.btf.is_none() {
        for (_, query) in &parsed {
            load_types(types, query)?;
        }
    }
    let limits = Limits::default();
    let limits = Limits {
        bytes: cli.max_bytes.unwrap_or(limits.bytes),
        string: cli
            .max_string
            .map_or(limits.string, |bytes| bytes.clamp(2, 1 << 14)),
    };
    let mut asked = Vec::new();
    for (text, query) in &parsed {
        let many = match &query.target.kind {
            TargetKind::Function { module, name } => match select::names(&name.node) {
                Names::Many(patterns) => Some((module, name, patterns)),
                Names::One { .. } => None,
            },
            TargetKind::Tracepoint { .. } | TargetKind::Uprobe { .. } | TargetKind::Usdt { .. } => None,
        };
        let made = match many {
            Some((module, name, patterns)) => {
                self::many(cli, text, query, module.as_ref(), name, &patterns, types, limits)?
            }
            None => compile::understand(text, types, limits).map(|resolved| {
                tell(cli, text, &resolved.warnings);
                Asked {
                    text: (*text).to_string(),
                    name: resolved.query.probe.func().name.clone(),
                    families: vec![Family::alone(resolved.query)],
                }
            }),
        };
        match made {
            Ok(one) => asked.push(one),
            Err(diags) => {
                tell(cli, text, &diags);
                wrong = true;
            }
        }
    }
    if wrong { Err(Failure::Query) } else { Ok(asked) }
}

/// Adds the types of the modules that a query names, or whose functions it may be about.
fn load_types(types: &mut Types, query: &ast::Query) -> Result<(), Failure> {
    let TargetKind::Function { module, name } = &query.target.kind else {
        return Ok(());
    };
    match (module, select::names(&name.node)) {
        (Some(module), _) => {
            add_module(types, &module.node)?;
        }
        (None, Names::One { name, .. }) => {
            let stem = select::stem(name);
            if types.functions_named(stem).is_empty() {
                add_owners(types, &[stem.to_string()])?;
            }
        }
        (None, Names::Many(_)) => {
            for module in runtime::btf::module_names()? {
                add_module(types, &module)?;
            }
        }
    }
    Ok(())
}

/// A query about every function of a list or pattern.
#[expect(clippy::too_many_arguments, reason = "the parts of one target")]
fn many(
    cli: &Cli,
    text: &str,
    query: &ast::Query,
    module: Option<&ast::Ident>,
    name: &ast::Ident,
    patterns: &[&str],
    types: &Types,
    limits: Limits,
) -> Result<Result<Asked, Vec<Diagnostic>>, Failure> {
    let modules: Vec<u16> = match module {
        Some(module) => types.module_named(&module.node).into_iter().collect(),
        None => (0..types.module_count()).collect(),
    };
    let mut described: Vec<Func> = Vec::new();
    for module in modules {
        let found = select::functions(types, module, patterns);
        described.extend(found.into_iter().filter_map(|(id, _)| types.func(id)));
    }
    if described.is_empty() {
        let diag = Diagnostic::error(
            Code::UnknownFunction,
            name.span,
            format!("no function matches `{}`", name.node),
        )
        .label("none in BTF")
        .help("`ksnoop-jit list '*PART*'` searches by a part of the name");
        return Ok(Err(vec![diag]));
    }
    let fits = match select::families(text, query, types, limits, described) {
        Ok(made) => made,
        Err(diags) => return Ok(Err(diags)),
    };
    tell(cli, text, &fits.warnings);
    let mut asked = Asked {
        text: text.to_string(),
        name: name.node.clone(),
        families: Vec::new(),
    };
    let mut out = LeftOut {
        unfit: fits.unfit,
        ..LeftOut::default()
    };
    // Another kernel's functions have no symbols here.
    let symbols = if cli.btf.is_some() || crate::dump::wanted(cli) {
        None
    } else {
        Some(by_name(types, patterns)?)
    };
    for family in fits.families {
        let mut places = Vec::new();
        for func in &family.members {
            let symbol = match &symbols {
                None => None,
                Some(symbols) => match symbols.get(&(func.id.module, func.name.clone())) {
                    None => {
                        out.inlined += 1;
                        continue;
                    }
                    Some(found) if found.len() > 1 => {
                        out.ambiguous += 1;
                        continue;
                    }
                    Some(found) => found.first().cloned(),
                },
            };
            places.push(Place {
                func: func.clone(),
                shown: func.name.clone(),
                symbol,
            });
        }
        if let Some(first) = places.first() {
            asked.families.push(Family {
                query: family.query_of(&first.func),
                places,
            });
        }
    }
    let count = asked.places();
    if let Some(what) = out.told() {
        complain(&format!("{}: {count} functions; left out: {what}", name.node));
    }
    if count == 0 {
        let diag = Diagnostic::error(
            Code::UnknownFunction,
            name.span,
            "none of the functions that match can be traced",
        )
        .label("see above");
        return Ok(Err(vec![diag]));
    }
    if count > LIMIT && !cli.force {
        let diag = Diagnostic::error(
            Code::UnsupportedTarget,
            name.span,
            format!("that are {count} functions; more than {LIMIT} are not traced at once"),
        )
        .label("too many")
        .help("make the pattern narrower, or insist with `--force`");
        return Ok(Err(vec![diag]));
    }
    Ok(Ok(asked))
}

/// Functions that a pattern matches and that are not traced, by why.
#[derive(Default)]
struct LeftOut {
    unfit: usize,
    inlined: usize,
    ambiguous: usize,
}

impl LeftOut {
    fn told(&self) -> Option<String> {
        let parts: Vec<String> = [
            (self.unfit, "the query does not fit"),
            (self.inlined, "inlined everywhere"),
            (self.ambiguous, "names of several functions"),
        ]
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| format!("{count} {why}"))
        .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

type ByName = std::collections::BTreeMap<(u16, String), Vec<Symbol>>;

/// The symbols of functions that match, by the module that their BTF would be in and their name.
fn by_name(types: &Types, patterns: &[&str]) -> Result<ByName, Failure> {
    let mut found = ByName::new();
    let all = Symbols::new().functions(|name| patterns.iter().any(|pattern| select::glob(pattern, name)))?;
    for symbol in all {
        let number = match &symbol.module {
            None => Some(0),
            Some(module) => types.module_named(module),
        };
        if let Some(number) = number
            && symbol.kind != SymbolKind::Other
        {
            let near = found.entry((number, symbol.name.clone())).or_default();
            if near.iter().all(|other: &Symbol| other.addr != symbol.addr) {
                near.push(symbol);
            }
        }
    }
    Ok(found)
}
