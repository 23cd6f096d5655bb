//! The command `info`: what functions, tracepoints and probes take and return. In: targets as queries have them. Out: prototypes on
//! stdout; what there is not, and what the name could mean beside it, on stderr. Never attaches anything.

use std::io::Write;

use ksnoop_jit::parser;
use ksnoop_jit::parser::ast::{Ident, TargetKind};
use ksnoop_jit::select::{self, Names};
use ksnoop_jit::types::{Func, Types};
use ksnoop_jit_runtime as runtime;
use runtime::symbols::{Symbol, Symbols};

use super::not_found;
use crate::cli::Cli;
use crate::trace::{self, NOT_CALLED};
use crate::{Failure, add_module, add_owners, complain, list_programs, open_types, tell};

/// Prints prototypes.
pub(crate) fn info(cli: &Cli, words: &[String]) -> Result<(), Failure> {
    let mut types = open_types(cli)?;
    let mut wrong = false;
    for word in words {
        let query = match parser::parse(word) {
            Ok(query) => query,
            Err(diags) => {
                tell(cli, word, &diags.into_vec());
                wrong = true;
                continue;
            }
        };
        let lines = match &query.target.kind {
            TargetKind::Function { module, name } => Asked {
                live: cli.btf.is_none(),
                module: module.as_ref(),
                name,
            }
            .prototypes(&mut types)?,
            TargetKind::Tracepoint { event, .. } => match types.tracepoint_proto(&event.node) {
                Some(func) => vec![format!("{};", types.prototype(&func))],
                None => {
                    not_found(&types, &event.node, true);
                    Vec::new()
                }
            },
            TargetKind::Uprobe { .. } | TargetKind::Usdt { .. } => {
                wrong |= !list_programs::info(cli, word, &query, &mut types)?;
                continue;
            }
        };
        wrong |= lines.is_empty();
        for line in lines {
            writeln!(std::io::stdout(), "{line}")?;
        }
    }
    if wrong { Err(Failure::Query) } else { Ok(()) }
}

/// A function of the kernel that is asked about.
struct Asked<'a> {
    /// The running kernel's symbols count.
    live: bool,
    module: Option<&'a Ident>,
    name: &'a Ident,
}

impl Asked<'_> {
    /// A line for each prototype; none if there is no such function, which is told.
    fn prototypes(&self, types: &mut Types) -> Result<Vec<String>, Failure> {
        match select::names(&self.name.node) {
            Names::Many(_) => {
                self.complain(&format!(
                    "one function at a time: `ksnoop-jit list '{}'` shows those that match",
                    self.name.node
                ));
                Ok(Vec::new())
            }
            Names::One {
                name,
                address: Some(address),
            } => self.at_address(types, name, address),
            Names::One { address: None, .. } => self.by_name(types),
        }
    }

    fn complain(&self, what: &str) {
        complain(&format!("ksnoop-jit: {what}"));
    }

    /// What begins at an address.
    fn at_address(&self, types: &mut Types, name: &str, address: u64) -> Result<Vec<String>, Failure> {
        if !self.live {
            self.complain(&format!(
                "what begins at {address:#x} is not known: with `--btf`, addresses are another kernel's"
            ));
            return Ok(Vec::new());
        }
        let symbols = Symbols::new();
        let mut here = symbols.at(address)?;
        here.retain(|symbol| {
            (name.is_empty() || symbol.name == name || select::stem(&symbol.name) == name)
                && trace::is_in(symbol, self.module)
        });
        for symbol in &here {
            if let Some(module) = &symbol.module {
                add_module(types, module)?;
            }
        }
        let described = here
            .iter()
            .find_map(|symbol| Some((symbol, trace::described(types, symbol)?)));
        if let Some((symbol, func)) = described {
            let mut lines = vec![self.line(types, &func)];
            lines.extend(remark(&symbol.name));
            return Ok(lines);
        }
        if let Some(symbol) = here.first() {
            return Ok(vec![by_registers(&symbol.name)]);
        }
        let what = match name {
            "" => "function".to_string(),
            name => format!("function `{}`", name.escape_default()),
        };
        let inside = symbols.resolve_addr(address).map_or(String::new(), |place| {
            format!("; it is {:#x} bytes into `{}`", place.offset, place.name)
        });
        self.complain(&format!("no {what} begins at {address:#x}{inside}"));
        Ok(Vec::new())
    }

    fn by_name(&self, types: &mut Types) -> Result<Vec<String>, Failure> {
        let name = &self.name.node;
        let stem = select::stem(name);
        if let Some(module) = self.module {
            let known = match self.live {
                true => add_module(types, &module.node)?,
                false => types.module_named(&module.node).is_some(),
            };
            if !known {
                self.no_module(types, module);
                return Ok(Vec::new());
            }
        } else if self.live && types.functions_named(stem).is_empty() {
            add_owners(types, &[stem.to_string()])?;
        }
        let all = types.functions_named(stem);
        let mut found = all.clone();
        if let Some(module) = self.module {
            found.retain(|func| types.module_name(func.id.module) == module.node);
            if let ([], [elsewhere, ..]) = (found.as_slice(), all.as_slice()) {
                let own = place_of(types, elsewhere).unwrap_or("the kernel itself");
                self.complain(&format!(
                    "there is no function `{name}` in a module {}: it is in {own}",
                    module.node
                ));
                return Ok(Vec::new());
            }
        }
        let symbols = self.live.then(|| self.symbols(stem)).flatten();
        if stem != name && !self.has_copy(symbols.as_deref()) {
            return Ok(Vec::new());
        }
        let symbols = symbols.unwrap_or_default();
        let mut lines: Vec<String> = found
            .iter()
            .map(|func| {
                let called = Func {
                    name: name.clone(),
                    ..func.clone()
                };
                self.line(types, &called)
            })
            .collect();
        lines.dedup();
        let own: Vec<&Symbol> = symbols.iter().filter(|symbol| symbol.name == *name).collect();
        if lines.is_empty() {
            lines = of_aliases(types, name, &own)?;
        }
        if lines.is_empty() && !own.is_empty() {
            lines.push(by_registers(name));
        }
        if lines.is_empty() {
            not_found(types, name, false);
            return Ok(lines);
        }
        lines.extend(remark(name));
        // Where addresses are hidden, nothing tells them apart.
        if own.len() > 1 && own.iter().all(|symbol| symbol.addr != 0) {
            let places: Vec<String> = own.iter().map(|symbol| trace::by_address(symbol)).collect();
            lines.push(format!(
                "/* the name of {} functions: {} */",
                own.len(),
                places.join(", ")
            ));
        }
        Ok(lines)
    }

    /// The functions of this name and the copies of them that the kernel has, each once; `None` where it does not tell.
    fn symbols(&self, stem: &str) -> Option<Vec<Symbol>> {
        let mut found: Vec<Symbol> = Vec::new();
        for symbol in Symbols::new().lookup(&[stem]).ok()? {
            let called = trace::is_called(&symbol, &symbol.name, self.module);
            let new = |other: &Symbol| {
                (other.addr, &other.name, &other.module) != (symbol.addr, &symbol.name, &symbol.module)
            };
            if called && found.iter().all(new) {
                found.push(symbol);
            }
        }
        Some(found)
    }

    /// Whether there is a copy of that very name, which can be called; if not, that is told. Which are not known are believed in.
    fn has_copy(&self, symbols: Option<&[Symbol]>) -> bool {
        let name = &self.name.node;
        if name.contains(NOT_CALLED) {
            self.complain(&format!(
                "`{name}` is a part of `{}` that is jumped to and never called: it has no arguments",
                select::stem(name)
            ));
            return false;
        }
        let Some(symbols) = symbols else {
            return true;
        };
        if symbols.iter().any(|symbol| symbol.name == *name) {
            return true;
        }
        let names: Vec<String> = symbols
            .iter()
            .filter(|symbol| !symbol.name.contains(NOT_CALLED))
            .map(|symbol| format!("`{}`", symbol.name))
            .collect();
        let there = match names.is_empty() {
            true => String::new(),
            false => format!("; what there is: {}", names.join(", ")),
        };
        self.complain(&format!("there is no function `{name}`{there}"));
        false
    }

    /// That a module's types are not there, and why.
    fn no_module(&self, types: &Types, module: &Ident) {
        let (name, function) = (&module.node, &self.name.node);
        let here = match trace::in_kernel(types, function) {
            true => format!("; the kernel itself has `{function}`"),
            false => String::new(),
        };
        let why = match self.live {
            true => trace::why_unknown(name, runtime::btf::module_state(name)),
            false => format!("this BTF is not of a module {name}"),
        };
        self.complain(&format!("{why}{here}"));
    }

    fn line(&self, types: &Types, func: &Func) -> String {
        let place = place_of(types, func).map_or(String::new(), |module| format!(" /* {module} */"));
        format!("{};{place}", types.prototype(func))
    }
}

/// The module that a function is in, if it is in one.
fn place_of<'t>(types: &'t Types, func: &Func) -> Option<&'t str> {
    (func.id.module != 0).then(|| types.module_name(func.id.module))
}

/// What is to be known of a function by what it is called.
fn remark(name: &str) -> Option<String> {
    trace::unfaithful(name)
        .then(|| "/* a copy that the compiler made for itself: its arguments may be others */".to_string())
}

/// Prototypes of the functions that the kernel has under this name, and BTF under another.
fn of_aliases(types: &Types, name: &str, own: &[&Symbol]) -> Result<Vec<String>, Failure> {
    let symbols = Symbols::new();
    let mut found = Vec::new();
    for symbol in own.iter().filter(|symbol| symbol.addr != 0) {
        for alias in symbols.at(symbol.addr)? {
            if let Some(func) = trace::described(types, &alias) {
                let called = Func {
                    name: name.to_string(),
                    ..func
                };
                let line = format!(
                    "{}; /* in BTF as {} */",
                    types.prototype(&called),
                    select::stem(&alias.name)
                );
                if !found.contains(&line) {
                    found.push(line);
                }
            }
        }
    }
    Ok(found)
}

/// How a query sees a function that BTF does not describe.
fn by_registers(name: &str) -> String {
    let args: Vec<String> = (0..trace::REGISTER_ARGS)
        .map(|index| format!("long unsigned int arg{index}"))
        .collect();
    format!(
        "long unsigned int {name}({}); /* not in BTF: what registers hold */",
        args.join(", ")
    )
}
