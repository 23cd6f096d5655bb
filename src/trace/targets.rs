//! What a query is about: one function or tracepoint, or all functions of a list or pattern. In: the command line's texts. Out:
//! typed queries, each with the functions that it is for. Everything that is wrong with a query is told here; never
//! attaches anything.

use ksnoop_jit::compile;
use ksnoop_jit::diag::{Code, Diagnostic};
use ksnoop_jit::glob::Patterns;
use ksnoop_jit::parser;
use ksnoop_jit::parser::ast::{self, TargetKind};
use ksnoop_jit::select::{self, Names};
use ksnoop_jit::sema::{self, Limits, Stacks};
use ksnoop_jit::span::Span;
use ksnoop_jit::typed;
use ksnoop_jit::types::{Func, Types};
use ksnoop_jit::user::Images;
use ksnoop_jit_runtime as runtime;
use runtime::symbols::{Count, Symbol, SymbolKind, Symbols, count_named};

use super::explain::denied;
use super::instances::{Instances, copy_warning, unfaithful};
use super::user;
use crate::cli::Cli;
use crate::{Failure, add_module, complain, programs, tell};

/// More functions than this are only traced with `--force`.
pub(super) const LIMIT: usize = 2000;

/// A query and what it is about.
pub(super) struct Asked {
    pub(super) text: String,
    /// What messages call it: the function, or the pattern.
    pub(super) name: String,
    /// Functions that can share programs; one for a single function, none while it waits for a module.
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
    /// The kernel finds this very function by its BTF id.
    pub(super) by_type: bool,
    /// A function elsewhere has the same name.
    pub(super) rival: bool,
    /// In a program: where it is.
    pub(super) user: Option<typed::UserProbe>,
}

impl Family {
    /// A query of its own, for one place.
    fn alone(query: typed::Query) -> Family {
        let func = query.probe.func().clone();
        let places = vec![Place {
            shown: func.name.clone(),
            func,
            symbol: None,
            by_type: true,
            rival: false,
            user: None,
        }];
        Family { query, places }
    }

    /// The same for one of the places alone.
    pub(super) fn alone_at(&self, place: &Place) -> Family {
        Family {
            query: typed::Query {
                probe: match &place.user {
                    Some(user) => typed::Probe::Uprobe(user.clone()),
                    None => typed::Probe::Function(place.func.clone()),
                },
                ..self.query.clone()
            },
            places: vec![place.clone()],
        }
    }
}

impl Place {
    /// A function that BTF describes under the name of one symbol, hooked at another one of the same address, or at that one.
    fn at_symbol(func: Func, described: &Symbol, hooked: &Symbol, shown: &str) -> Place {
        Place {
            shown: shown.to_string(),
            by_type: select::stem(&described.name) == described.name
                && count_named(&described.name, described.module.as_deref()) == Count::One,
            func,
            symbol: Some(hooked.clone()),
            rival: false,
            user: None,
        }
    }
}

impl Asked {
    /// Whether it is about a program.
    pub(super) fn in_program(&self) -> bool {
        self.families
            .iter()
            .any(|family| family.query.probe.user().is_some())
    }

    /// How many functions it is about.
    pub(super) fn places(&self) -> usize {
        self.families.iter().map(|family| family.places.len()).sum()
    }
}

/// Gives all queries their meaning; every mistake in every query is told.
pub(super) fn understand(cli: &Cli, texts: &[String], types: &mut Types) -> Result<Vec<Asked>, Failure> {
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
    let stems = parsed.iter().filter_map(|(_, query)| stem_of(query)).collect();
    let instances = Instances::new(stems, cli.all_instances);
    if cli.btf.is_none() {
        for (_, query) in &parsed {
            load_types(cli, types, query, &instances)?;
        }
    }
    add_addresses(types, parsed.iter().map(|(_, query)| query));
    let limits = Limits::default();
    let limits = Limits {
        bytes: cli.max_bytes.unwrap_or(limits.bytes),
        string: cli
            .max_string
            .map_or(limits.string, |bytes| bytes.clamp(2, 1 << 14)),
        stacks: Stacks {
            kernel: cli.kernel_stack,
            user: cli.user_stack,
        },
        // A trace draws calls as long as they took.
        durations: cli.format == crate::cli::Format::Chrome,
    };
    let images = programs::open(cli, parsed.iter().map(|(_, query)| query), types)?;
    let chooser = Chooser {
        cli,
        types,
        images,
        limits,
        instances,
        // Another kernel's functions have no symbols here, and what is only looked at needs no place.
        live: cli.btf.is_none() && !cli.check && !crate::dump::wanted(cli),
    };
    let mut asked = Vec::new();
    for (text, query) in &parsed {
        match chooser.choose(text, query)? {
            Ok(one) => asked.push(one),
            Err(diags) if chooser.may_come(&diags) => asked.push(Asked {
                text: (*text).to_string(),
                name: query.target.span.text(text).to_string(),
                families: Vec::new(),
            }),
            Err(diags) => {
                tell(cli, text, &diags);
                wrong = true;
            }
        }
    }
    if wrong { Err(Failure::Query) } else { Ok(asked) }
}

/// The name without a suffix of the one function that a query is about.
fn stem_of(query: &ast::Query) -> Option<String> {
    let TargetKind::Function { name, .. } = &query.target.kind else {
        return None;
    };
    match select::names(&name.node) {
        Names::One { name, .. } if !name.is_empty() => Some(select::stem(name).to_string()),
        Names::One { .. } | Names::Many(_) => None,
    }
}

/// Adds the types of the modules that a query names, or whose functions it may be about.
fn load_types(
    cli: &Cli,
    types: &mut Types,
    query: &ast::Query,
    instances: &Instances,
) -> Result<(), Failure> {
    let TargetKind::Function { module, name } = &query.target.kind else {
        return Ok(());
    };
    match (module, select::names(&name.node)) {
        (Some(module), _) => {
            add_module(types, &module.node)?;
        }
        (
            None,
            Names::One {
                address: Some(address),
                ..
            },
        ) => {
            for symbol in instances.at(address)? {
                add_symbol_module(types, &symbol)?;
            }
        }
        (None, Names::One { name, .. }) => {
            let stem = select::stem(name);
            if cli.all_instances || types.functions_named(stem).is_empty() {
                // Without symbols only what vmlinux has can be found, which the query's diagnostics then tell.
                for symbol in instances.named(stem).unwrap_or_default() {
                    add_symbol_module(types, &symbol)?;
                }
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

fn add_symbol_module(types: &mut Types, symbol: &Symbol) -> Result<(), Failure> {
    if let Some(module) = &symbol.module {
        add_module(types, module)?;
    }
    Ok(())
}

/// What is wrong with a query.
type Wrong = Vec<Diagnostic>;

/// Chooses functions for queries.
struct Chooser<'a> {
    cli: &'a Cli,
    types: &'a Types,
    images: Images,
    limits: Limits,
    instances: Instances,
    /// Functions are to be attached to, so their symbols count.
    live: bool,
}

impl Chooser<'_> {
    /// Whether a module that is loaded later may put right what is wrong.
    fn may_come(&self, diags: &[Diagnostic]) -> bool {
        self.cli.wait
            && self.live
            && diags
                .iter()
                .all(|diag| matches!(diag.code, Code::UnknownModule | Code::UnknownFunction))
    }

    fn choose(&self, text: &str, query: &ast::Query) -> Result<Result<Asked, Wrong>, Failure> {
        let (module, name) = match &query.target.kind {
            TargetKind::Function { module, name } => (module, name),
            TargetKind::Tracepoint { .. } => return Ok(self.plainly(text)),
            TargetKind::Uprobe { symbol: name, .. } | TargetKind::Usdt { name, .. } => {
                let asked = user::understand(self.cli, text, query, self.types, &self.images, self.limits);
                return Ok(asked.and_then(|asked| self.limited(asked, name.span)));
            }
        };
        match select::names(&name.node) {
            Names::Many(patterns) => self.many(text, query, module.as_ref(), name, &patterns),
            Names::One {
                name: wanted,
                address: Some(address),
            } => self.at_address(text, query, module.as_ref(), name, wanted, address),
            Names::One { .. } if self.cli.all_instances => {
                self.all_instances(text, query, module.as_ref(), name)
            }
            Names::One { .. } => self.one(text, query, module.as_ref(), name),
        }
    }

    /// What is in BTF by that name.
    fn plainly(&self, text: &str) -> Result<Asked, Wrong> {
        let resolved = compile::understand(text, self.types, self.limits)?;
        tell(self.cli, text, &resolved.warnings);
        Ok(Asked {
            text: text.to_string(),
            name: resolved.query.probe.func().name.clone(),
            families: vec![Family::alone(resolved.query)],
        })
    }

    /// One function by its name.
    fn one(
        &self,
        text: &str,
        query: &ast::Query,
        module: Option<&ast::Ident>,
        name: &ast::Ident,
    ) -> Result<Result<Asked, Wrong>, Failure> {
        let mut asked = match self.plainly(text) {
            Ok(asked) => asked,
            Err(diags) if self.live && diags.iter().any(|diag| diag.code == Code::UnknownFunction) => {
                return self.without_prototype(text, query, module, name, diags);
            }
            Err(diags) => return Ok(Err(known_module(diags, module))),
        };
        if !self.live {
            return Ok(Ok(asked));
        }
        let [family] = asked.families.as_mut_slice() else {
            return Ok(Ok(asked));
        };
        let func = family.query.probe.func().clone();
        match self.instances.places(&func, self.types, name.span)? {
            Ok(places) => {
                self.warn_of_copies(text, name.span, &places);
                family.places = places;
                Ok(Ok(asked))
            }
            Err(diag) => Ok(Err(vec![diag])),
        }
    }

    fn warn_of_copies(&self, text: &str, span: Span, places: &[Place]) {
        for place in places {
            if let Some(symbol) = &place.symbol
                && unfaithful(&symbol.name)
            {
                tell(self.cli, text, &[copy_warning(span, &symbol.name)]);
            }
        }
    }

    /// A name that BTF doesn't have: it may be another name of a function that it has.
    fn without_prototype(
        &self,
        text: &str,
        query: &ast::Query,
        module: Option<&ast::Ident>,
        name: &ast::Ident,
        diags: Wrong,
    ) -> Result<Result<Asked, Wrong>, Failure> {
        let found = match self.instances.named(select::stem(&name.node)) {
            Ok(found) => found,
            // What is wrong with the query is known anyway.
            Err(_) => return Ok(Err(diags)),
        };
        let found: Vec<Symbol> = found
            .into_iter()
            .filter(|symbol| module.is_none_or(|module| symbol.module.as_ref() == Some(&module.node)))
            .collect();
        for symbol in &found {
            for alias in self.instances.at(symbol.addr)? {
                if let Some(func) = self.described(&alias) {
                    let place = Place::at_symbol(func, &alias, symbol, &name.node);
                    return Ok(self.at_place(text, query, name, place));
                }
            }
        }
        let Some(symbol) = found.first() else {
            return Ok(Err(diags));
        };
        let place = symbol.module.as_deref().unwrap_or("the kernel");
        let diags = diags.into_iter().map(|mut diag| {
            diag.help.clear();
            diag.note(format!(
                "there is a function `{}` in {place}, at {:#x}, but BTF does not describe it",
                symbol.name, symbol.addr
            ))
        });
        Ok(Err(diags.collect()))
    }

    /// What BTF says of a symbol's function.
    fn described(&self, symbol: &Symbol) -> Option<Func> {
        let number = match &symbol.module {
            None => 0,
            Some(module) => self.types.module_named(module)?,
        };
        let mut found = self.types.functions_named(select::stem(&symbol.name));
        found.retain(|func| func.id.module == number);
        let func = found.into_iter().next()?;
        Some(Func {
            name: symbol.name.clone(),
            ..func
        })
    }

    /// The query for one place.
    fn at_place(
        &self,
        text: &str,
        query: &ast::Query,
        name: &ast::Ident,
        place: Place,
    ) -> Result<Asked, Wrong> {
        let probe = typed::Probe::Function(place.func.clone());
        let resolved = sema::resolve_for(text, query, self.types, self.limits, probe)?;
        tell(self.cli, text, &resolved.warnings);
        self.warn_of_copies(text, name.span, std::slice::from_ref(&place));
        Ok(Asked {
            text: text.to_string(),
            name: name.node.clone(),
            families: vec![Family {
                query: resolved.query,
                places: vec![place],
            }],
        })
    }

    /// The function that begins at an address.
    fn at_address(
        &self,
        text: &str,
        query: &ast::Query,
        module: Option<&ast::Ident>,
        name: &ast::Ident,
        wanted: &str,
        address: u64,
    ) -> Result<Result<Asked, Wrong>, Failure> {
        let here: Vec<Symbol> = self
            .instances
            .at(address)?
            .into_iter()
            .filter(|symbol| {
                (wanted.is_empty() || symbol.name == wanted || select::stem(&symbol.name) == wanted)
                    && module.is_none_or(|module| symbol.module.as_ref() == Some(&module.node))
            })
            .collect();
        let described = here
            .iter()
            .find_map(|symbol| Some((symbol, self.described(symbol)?)));
        if let Some((symbol, func)) = described {
            let place = Place::at_symbol(func, symbol, symbol, &symbol.name);
            return Ok(self.at_place(text, query, name, place));
        }
        let what = if wanted.is_empty() {
            "function".to_string()
        } else {
            format!("function `{wanted}`")
        };
        let mut diag = Diagnostic::error(
            Code::UnknownFunction,
            name.span,
            format!("no {what} begins at {address:#x}"),
        )
        .label("no such place");
        if let Some(symbol) = here.first() {
            diag = diag.note(format!("`{}` does, but BTF does not describe it", symbol.name));
        } else if let Some(place) = Symbols::new().resolve_addr(address) {
            diag = diag.note(format!("it is {:#x} bytes into `{}`", place.offset, place.name));
        }
        Ok(Err(vec![diag]))
    }

    /// Every function of a name, in every module.
    fn all_instances(
        &self,
        text: &str,
        query: &ast::Query,
        module: Option<&ast::Ident>,
        name: &ast::Ident,
    ) -> Result<Result<Asked, Wrong>, Failure> {
        let mut found: Vec<Func> = Vec::new();
        for func in self.types.functions_named(select::stem(&name.node)) {
            let own = module.is_none_or(|module| self.types.module_name(func.id.module) == module.node);
            // What BTF has twice in one place are prototypes of one function.
            if own && found.iter().all(|other| other.id.module != func.id.module) {
                found.push(Func {
                    name: name.node.clone(),
                    ..func
                });
            }
        }
        if found.is_empty() {
            return self.one(text, query, module, name);
        }
        let several = found.len() > 1;
        let mut asked = Asked {
            text: text.to_string(),
            name: name.node.clone(),
            families: Vec::new(),
        };
        let mut wrong: Option<Wrong> = None;
        for func in found {
            let probe = typed::Probe::Function(func.clone());
            let resolved = match sema::resolve_for(text, query, self.types, self.limits, probe) {
                Ok(resolved) => resolved,
                Err(diags) => {
                    let place = self.types.module_name(func.id.module);
                    complain(&format!(
                        "{}: the query does not fit the one in {place}",
                        func.name
                    ));
                    wrong.get_or_insert(diags);
                    continue;
                }
            };
            tell(self.cli, text, &resolved.warnings);
            let mut family = Family::alone(resolved.query);
            if self.live {
                match self.instances.places(&func, self.types, name.span)? {
                    Ok(places) => family.places = places,
                    Err(diag) => {
                        wrong.get_or_insert(vec![diag]);
                        continue;
                    }
                }
            }
            if several && func.id.module != 0 {
                let module = self.types.module_name(func.id.module);
                for place in &mut family.places {
                    place.shown = format!("{module}:{}", place.shown);
                }
            }
            self.warn_of_copies(text, name.span, &family.places);
            asked.families.push(family);
        }
        match wrong {
            Some(diags) if asked.families.is_empty() => Ok(Err(diags)),
            Some(_) | None => Ok(Ok(asked)),
        }
    }

    /// Every function of a list or pattern.
    fn many(
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
                    return Ok(Err(known_module(diags.unwrap_or_default(), module)));
                }
            },
            None => (0..self.types.module_count()).collect(),
        };
        let mut described: Vec<Func> = Vec::new();
        for number in modules {
            let found = select::functions(self.types, number, patterns);
            described.extend(found.into_iter().filter_map(|(id, _)| self.types.func(id)));
        }
        let plain = |pattern: &&&str| !pattern.contains(['*', '?', '[']);
        for wanted in patterns.iter().filter(plain) {
            if described.iter().all(|func| func.name != **wanted) {
                let diag = Diagnostic::error(
                    Code::UnknownFunction,
                    name.span,
                    format!("there is no function `{wanted}`"),
                )
                .label("in this list");
                return Ok(Err(vec![diag]));
            }
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
        let fits = match select::families(text, query, self.types, self.limits, described) {
            Ok(made) => made,
            Err(diags) => return Ok(Err(diags)),
        };
        tell(self.cli, text, &fits.warnings);
        let mut out = LeftOut {
            unfit: fits.unfit,
            ..LeftOut::default()
        };
        let symbols = self.live.then(|| by_name(self.types, patterns)).transpose()?;
        let mut asked = Asked {
            text: text.to_string(),
            name: name.node.clone(),
            families: Vec::new(),
        };
        for family in fits.families {
            let places = self.places_of(&family.members, symbols.as_ref(), &mut out);
            // Those that BTF does not tell apart are attached by address, which is another sort of link.
            let (by_type, by_address): (Vec<Place>, Vec<Place>) =
                places.into_iter().partition(|place| place.by_type);
            for places in [by_type, by_address] {
                if let Some(first) = places.first() {
                    asked.families.push(Family {
                        query: family.query_of(&first.func),
                        places,
                    });
                }
            }
        }
        let count = asked.places();
        if let Some(what) = out.told() {
            complain(&format!("{}: {count} functions; left out: {what}", name.node));
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
    fn limited(&self, asked: Asked, span: Span) -> Result<Asked, Wrong> {
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
                out.denied += 1;
                continue;
            }
            let place = |symbol: Option<Symbol>| Place {
                func: func.clone(),
                shown: func.name.clone(),
                symbol,
                by_type: true,
                rival: false,
                user: None,
            };
            let Some(symbols) = symbols else {
                places.push(place(None));
                continue;
            };
            match symbols
                .get(&(func.id.module, func.name.clone()))
                .map(Vec::as_slice)
            {
                None | Some([]) => out.inlined += 1,
                Some([symbol]) => places.push(place(Some(symbol.clone()))),
                Some(found) if self.cli.all_instances => {
                    places.extend(found.iter().map(|symbol| Place {
                        shown: format!("{}@{:#x}", symbol.name, symbol.addr),
                        by_type: false,
                        ..place(Some(symbol.clone()))
                    }));
                }
                Some(_) => out.ambiguous += 1,
            }
        }
        places
    }
}

/// Says of a module that has no BTF whether it is there at all.
fn known_module(mut diags: Wrong, module: Option<&ast::Ident>) -> Wrong {
    let Some(module) = module else {
        return diags;
    };
    for diag in diags.iter_mut().filter(|diag| diag.code == Code::UnknownModule) {
        let name = &module.node;
        *diag = if runtime::btf::module_is_loaded(name) {
            diag.clone()
                .note(format!("the module {name} is loaded, but was built without BTF"))
        } else {
            diag.clone()
                .note(format!("no module {name} is loaded"))
                .help(format!("`modprobe {name}` loads it; `--wait` waits for that"))
        };
    }
    diags
}

/// Functions that a pattern matches and that are not traced, by why.
#[derive(Default)]
struct LeftOut {
    unfit: usize,
    inlined: usize,
    ambiguous: usize,
    denied: usize,
}

impl LeftOut {
    fn told(&self) -> Option<String> {
        let parts: Vec<String> = [
            (self.unfit, "the query does not fit"),
            (self.inlined, "inlined everywhere"),
            (
                self.ambiguous,
                "names of several functions (`--all-instances` takes them)",
            ),
            (self.denied, "that tracing itself needs"),
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
    let patterns = Patterns::new(patterns);
    let all = Symbols::new().functions(|name| patterns.any(name))?;
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

/// Looks up the symbols whose addresses queries ask for. One that is there more than once, or hidden, has no address.
fn add_addresses<'q>(types: &mut Types, queries: impl Iterator<Item = &'q ast::Query>) {
    let names: Vec<String> = queries.flat_map(parser::symbols).collect();
    if names.is_empty() {
        return;
    }
    let Ok(found) = Symbols::new().lookup(&names) else {
        return;
    };
    for name in names {
        let mut same = found.iter().filter(|symbol| symbol.name == name);
        if let (Some(symbol), None) = (same.next(), same.next())
            && symbol.addr != 0
        {
            types.set_address(&name, symbol.addr);
        }
    }
}
