//! What queries are about: one function or tracepoint, or all functions of a list or pattern. In: the command line's texts. Out:
//! typed queries, each with the functions that it is for. Which functions those are is `choose`'s part; everything that is wrong
//! with a query is told here. Never attaches anything.

use ksnoop_jit::parser;
use ksnoop_jit::parser::ast::{self, TargetKind};
use ksnoop_jit::select::{self, Names};
use ksnoop_jit::sema::{Limits, Stacks};
use ksnoop_jit::typed;
use ksnoop_jit::types::{Func, Types};
use ksnoop_jit_runtime as runtime;
use runtime::symbols::{Symbol, Symbols};

use super::choose::Chooser;
use super::instances::Instances;
use crate::cli::Cli;
use crate::{Failure, add_module, programs, tell};

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
    pub(super) fn alone(query: typed::Query) -> Family {
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
    // The others are understood all the same: all mistakes are told at once.
    if parsed.is_empty() {
        return Err(Failure::Query);
    }
    let stems = parsed.iter().filter_map(|(_, query)| stem_of(query)).collect();
    let instances = Instances::new(stems, cli.all_instances);
    if cli.btf.is_none() {
        for (_, query) in &parsed {
            load_types(cli, types, query, &instances)?;
        }
    }
    match cli.btf.is_some() {
        true => types.set_elsewhere(),
        false => add_addresses(types, parsed.iter().map(|(_, query)| query)),
    }
    let limits = Limits::default();
    let limits = Limits {
        bytes: cli.max_bytes.unwrap_or(limits.bytes),
        // With its NUL, and a character more: only so it is seen whether a string ends where it is cut.
        string: cli
            .max_string
            .map_or(limits.string, |bytes| bytes.saturating_add(2).clamp(2, 1 << 14)),
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
        // Another kernel's functions have no symbols here, and what is only looked at needs no place. A check says what tracing
        // would.
        live: cli.btf.is_none() && !crate::dump::wanted(cli),
    };
    let mut asked = Vec::new();
    for (text, query) in &parsed {
        match chooser.choose(text, query)? {
            Ok(one) => asked.push(one),
            Err(diags) if chooser.may_come(query, &diags) => asked.push(Asked {
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
