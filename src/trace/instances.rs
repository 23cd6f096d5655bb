//! Which function of the running kernel a name stands for. BTF has prototypes by name, without suffixes, without addresses, and
//! one for several functions that are declared alike; symbols have all that and no types. In: what BTF says. Out: the places
//! that are meant, or a diagnostic that says what the choice is. Never attaches anything.

use std::cell::RefCell;
use std::collections::BTreeMap;

use ksnoop_jit::diag::{Code, Diagnostic};
use ksnoop_jit::parser::ast;
use ksnoop_jit::select;
use ksnoop_jit::span::Span;
use ksnoop_jit::types::{Func, Types};
use ksnoop_jit_runtime as runtime;
use runtime::symbols::{Count, Symbol, SymbolKind, Symbols, count_named};

use super::targets::Place;
use crate::Failure;

/// Copies of a function whose arguments are as its prototype says: a name that link-time optimization made unique.
const FAITHFUL: &str = ".llvm.";
/// Parts that are jumped into and never called.
pub(crate) const NOT_CALLED: &str = ".cold";

/// What is known of a function that BTF has and the symbols have not. An `__exit` function of built-in code is in BTF, and gone; so is
/// an `__init` function of a module that has started.
pub(super) const NO_SYMBOL: &str = "it is inlined wherever it is called, or was dropped: when the kernel was linked, or when its module had started";

/// What is known of a name that neither has.
pub(super) const NOWHERE: &str = "nor is it among the kernel's symbols; nothing is left of a function that is inlined wherever it is called";

/// Looks functions up among the kernel's symbols, which takes it long to write: never when it can be told otherwise that a name
/// is the only one.
pub(super) struct Instances {
    /// Every name that will be asked for, so that one pass is enough.
    stems: Vec<String>,
    found: RefCell<Option<BTreeMap<String, Vec<Symbol>>>>,
    at: RefCell<BTreeMap<u64, Vec<Symbol>>>,
    all: bool,
}

impl Instances {
    /// `all`: every function of a name is meant.
    pub(super) fn new(stems: Vec<String>, all: bool) -> Instances {
        Instances {
            stems,
            found: RefCell::new(None),
            at: RefCell::default(),
            all,
        }
    }

    /// Every name of the function that begins at an address.
    pub(super) fn at(&self, address: u64) -> Result<Vec<Symbol>, Failure> {
        if let Some(known) = self.at.borrow().get(&address) {
            return Ok(known.clone());
        }
        let found = Symbols::new().at(address)?;
        self.at.borrow_mut().insert(address, found.clone());
        Ok(found)
    }

    /// Functions called so, or copies of functions called so, in any module.
    pub(super) fn named(&self, stem: &str) -> Result<Vec<Symbol>, Failure> {
        let mut found = self.found.borrow_mut();
        if found.as_ref().is_none_or(|found| !found.contains_key(stem)) {
            let mut stems = self.stems.clone();
            stems.push(stem.to_string());
            let mut by_stem: BTreeMap<String, Vec<Symbol>> =
                stems.iter().map(|stem| (stem.clone(), Vec::new())).collect();
            for symbol in Symbols::new().lookup(&stems)? {
                if symbol.kind == SymbolKind::Other || symbol.name.contains(NOT_CALLED) {
                    continue;
                }
                if let Some(near) = by_stem.get_mut(select::stem(&symbol.name)) {
                    near.push(symbol);
                }
            }
            *found = Some(by_stem);
        }
        Ok(found
            .as_ref()
            .and_then(|found| found.get(stem))
            .cloned()
            .unwrap_or_default())
    }

    /// Whether a symbol is the only one of its name in its module.
    fn alone(&self, symbol: &Symbol) -> Result<bool, Failure> {
        match count_named(&symbol.name, symbol.module.as_deref()) {
            Count::One => Ok(true),
            Count::Several => Ok(false),
            Count::None | Count::Unknown => {
                let near = self.named(select::stem(&symbol.name))?;
                Ok(near.iter().all(|other| {
                    other.name != symbol.name || other.module != symbol.module || other.addr == symbol.addr
                }))
            }
        }
    }

    /// A function that BTF describes under the name of one symbol, hooked at another one of the same address, or at that one.
    pub(super) fn at_symbol(
        &self,
        func: Func,
        described: &Symbol,
        hooked: &Symbol,
        shown: &str,
    ) -> Result<Place, Failure> {
        Ok(Place {
            shown: shown.to_string(),
            by_type: select::stem(&described.name) == described.name && self.alone(described)?,
            func,
            symbol: Some(hooked.clone()),
            rival: self.has_rival(&described.name, described.module.as_deref())?,
            user: None,
        })
    }

    /// Whether a function elsewhere has the same name.
    fn has_rival(&self, name: &str, module: Option<&str>) -> Result<bool, Failure> {
        let all = self.named(select::stem(name))?;
        Ok(all
            .iter()
            .any(|other| other.name == name && other.module.as_deref() != module))
    }

    /// The places that a function of BTF, called `func.name` in the query, stands for.
    pub(super) fn places(
        &self,
        func: &Func,
        types: &Types,
        span: Span,
    ) -> Result<Result<Vec<Place>, Diagnostic>, Failure> {
        let module = match func.id.module {
            0 => None,
            number => Some(types.module_name(number)),
        };
        let stem = select::stem(&func.name);
        let plain = stem == func.name;
        if !self.all && count_named(&func.name, module) == Count::One {
            return Ok(Ok(vec![Place {
                shown: func.name.clone(),
                func: func.clone(),
                symbol: None,
                by_type: plain,
                rival: false,
                user: None,
            }]));
        }
        let all = self.named(stem)?;
        let rival = self.has_rival(&func.name, module)?;
        let mut own: Vec<Symbol> = Vec::new();
        for symbol in all {
            if symbol.module.as_deref() == module && own.iter().all(|other| other.addr != symbol.addr) {
                own.push(symbol);
            }
        }
        let exact: Vec<Symbol> = own
            .iter()
            .filter(|symbol| symbol.name == func.name)
            .cloned()
            .collect();
        let (mut chosen, copies) = match (exact.is_empty(), plain) {
            (false, _) => (exact, false),
            (true, true) => (own.clone(), true),
            (true, false) => (Vec::new(), false),
        };
        if chosen.is_empty() {
            return Ok(Err(missing(func, span, &own)));
        }
        if chosen.len() > 1 && !self.all {
            return Ok(Err(choice(&func.name, span, &chosen)));
        }
        let one = chosen.len() == 1;
        let places = chosen.drain(..).map(|symbol| Place {
            shown: if one {
                func.name.clone()
            } else {
                format!("{}@{:#x}", symbol.name, symbol.addr)
            },
            func: func.clone(),
            // A trampoline is attached by the name in BTF, which must then mean this very function.
            by_type: one && !copies && plain,
            rival,
            symbol: Some(symbol),
            user: None,
        });
        Ok(Ok(places.collect()))
    }
}

/// Whether the compiler may have changed what a function is passed when it made the copy of this name.
pub(crate) fn unfaithful(name: &str) -> bool {
    select::stem(name) != name && !name.contains(FAITHFUL)
}

/// The different prototypes that BTF has under one name in one module, where it has several: it does not say whose each is.
pub(super) fn prototypes(types: &Types, func: &Func) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for other in types.functions_named(select::stem(&func.name)) {
        let prototype = types.prototype(&other);
        if other.id.module == func.id.module && !found.contains(&prototype) {
            found.push(prototype);
        }
    }
    found
}

/// What to say of values that one of several prototypes makes, if there are several.
pub(super) fn prototype_warning(types: &Types, func: &Func, span: Span) -> Option<Diagnostic> {
    let found = prototypes(types, func);
    let (first, others) = found.split_first()?;
    if others.is_empty() {
        return None;
    }
    let mut diag = Diagnostic::warning(
        Code::AmbiguousFunction,
        span,
        format!(
            "BTF has {} prototypes of `{}`, and does not say which is this one's",
            found.len(),
            select::stem(&func.name)
        ),
    )
    .label("its arguments may be others")
    .note(format!("taken: {first}"));
    for other in others {
        diag = diag.note(format!("or: {other}"));
    }
    Some(diag)
}

/// What to say of values from such a copy.
pub(super) fn copy_warning(span: Span, name: &str) -> Diagnostic {
    Diagnostic::warning(
        Code::CompilerCopy,
        span,
        format!("`{name}` is a copy that the compiler made for itself"),
    )
    .label("its arguments may not be those of the prototype")
}

/// Nothing is called so.
fn missing(func: &Func, span: Span, own: &[Symbol]) -> Diagnostic {
    let name = &func.name;
    let diag = Diagnostic::error(
        Code::Untraceable,
        span,
        format!("there is no place where `{name}` could be probed"),
    );
    if own.is_empty() {
        return diag
            .label("in BTF, but not among the kernel's symbols")
            .note(NO_SYMBOL);
    }
    let names: Vec<String> = own.iter().map(|symbol| format!("`{}`", symbol.name)).collect();
    diag.label("no such copy")
        .help(format!("what there is: {}", names.join(", ")))
}

/// Whether a symbol is in the module that a query names, if it names one.
pub(crate) fn is_in(symbol: &Symbol, module: Option<&ast::Ident>) -> bool {
    module.is_none_or(|module| symbol.module.as_ref() == Some(&module.node))
}

/// Whether a symbol is a function of that very name, in the module that a query names, if it names one.
pub(crate) fn is_called(symbol: &Symbol, name: &str, module: Option<&ast::Ident>) -> bool {
    symbol.name == name && symbol.kind != SymbolKind::Other && is_in(symbol, module)
}

/// How a query names the function of one symbol among others of its name.
pub(crate) fn by_address(symbol: &Symbol) -> String {
    let place = symbol
        .module
        .as_ref()
        .map_or(String::new(), |module| format!("{module}:"));
    format!("{place}{}@{:#x}", symbol.name, symbol.addr)
}

/// The name means several.
pub(super) fn choice(name: &str, span: Span, found: &[Symbol]) -> Diagnostic {
    let mut diag = Diagnostic::error(
        Code::AmbiguousFunction,
        span,
        format!("`{name}` is the name of {} functions", found.len()),
    )
    .label("which one is meant?");
    for symbol in found {
        diag = diag.note(format!("`{}`", by_address(symbol)));
    }
    diag.help("one of these names chooses, `--all-instances` takes them all")
}
