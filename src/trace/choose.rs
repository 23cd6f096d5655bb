//! Which function one query means: by its name, another name of it, its address; and every function of a name. In: a parsed query and
//! the kernel's types and symbols. Out: the typed query with its functions, or what is wrong with it. Patterns and lists are
//! `sets`'s part. Never attaches anything.

use ksnoop_jit::compile;
use ksnoop_jit::diag::{Code, Diagnostic};
use ksnoop_jit::parser::ast::{self, TargetKind};
use ksnoop_jit::select::{self, Names};
use ksnoop_jit::sema::{self, Limits};
use ksnoop_jit::span::Span;
use ksnoop_jit::typed;
use ksnoop_jit::types::{Func, Param, TypeId, Types};
use ksnoop_jit::user::Images;
use ksnoop_jit_runtime as runtime;
use runtime::btf::ModuleState;
use runtime::symbols::{Symbol, Symbols};

use super::instances::{
    Instances, NOWHERE, by_address, choice, copy_warning, is_called, is_in, prototype_warning, unfaithful,
};
use super::targets::{Asked, Family, Place};
use super::user;
use crate::cli::Cli;
use crate::{Failure, complain, tell};

/// How many arguments the x86-64 calling convention passes in registers.
pub(crate) const REGISTER_ARGS: usize = 6;

/// What is wrong with a query.
pub(super) type Wrong = Vec<Diagnostic>;

/// Chooses functions for queries.
pub(super) struct Chooser<'a> {
    pub(super) cli: &'a Cli,
    pub(super) types: &'a Types,
    pub(super) images: Images,
    pub(super) limits: Limits,
    pub(super) instances: Instances,
    /// Functions are to be attached to, so their symbols count.
    pub(super) live: bool,
}

impl Chooser<'_> {
    /// Whether a module that is loaded later may put right what is wrong.
    pub(super) fn may_come(&self, query: &ast::Query, diags: &[Diagnostic]) -> bool {
        let built_in = match &query.target.kind {
            TargetKind::Function { module, .. } => module
                .as_ref()
                .is_some_and(|module| runtime::btf::module_state(&module.node) == ModuleState::BuiltIn),
            TargetKind::Tracepoint { .. } | TargetKind::Uprobe { .. } | TargetKind::Usdt { .. } => false,
        };
        self.cli.wait
            && !self.cli.check
            && self.live
            && !built_in
            && diags
                .iter()
                .all(|diag| matches!(diag.code, Code::UnknownModule | Code::UnknownFunction))
    }

    /// Nothing is attached to.
    fn only_looked_at(&self) -> bool {
        self.cli.check || crate::dump::wanted(self.cli)
    }

    pub(super) fn choose(&self, text: &str, query: &ast::Query) -> Result<Result<Asked, Wrong>, Failure> {
        let (module, name) = match &query.target.kind {
            TargetKind::Function { module, name } => (module, name),
            TargetKind::Tracepoint { group, event } => {
                let asked = self.plainly(text);
                return Ok(
                    match group.as_ref().and_then(|group| self.wrong_group(group, event)) {
                        Some(diag) => asked.and(Err(vec![diag])),
                        None => asked,
                    },
                );
            }
            TargetKind::Uprobe { symbol: name, .. } | TargetKind::Usdt { name, .. } => {
                let asked = user::understand(self.cli, text, query, self.types, &self.images, self.limits);
                return Ok(asked
                    .and_then(|asked| match self.only_looked_at() {
                        true => Ok(asked),
                        false => user::of_this_machine(asked, query),
                    })
                    .and_then(|asked| self.limited(asked, name.span)));
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

    /// BTF knows no groups of tracepoints; tracefs does, where it is.
    fn wrong_group(&self, group: &ast::Ident, event: &ast::Ident) -> Option<Diagnostic> {
        if !self.live {
            return None;
        }
        let groups = runtime::symbols::groups_of(&event.node)?;
        if groups.contains(&group.node) {
            return None;
        }
        let diag = Diagnostic::error(
            Code::UnknownTracepoint,
            group.span,
            format!(
                "there is no tracepoint `{}` in a group `{}`",
                event.node, group.node
            ),
        );
        Some(match groups.as_slice() {
            [] => diag
                .label("it is in no group: tracefs does not list it")
                .help(format!("write `tp:{}`", event.node)),
            all => {
                let names: Vec<String> = all
                    .iter()
                    .map(|group| format!("`tp:{group}:{}`", event.node))
                    .collect();
                diag.label("not its group")
                    .help(format!("write {}", names.join(" or ")))
            }
        })
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
            Err(diags)
                if self.live
                    && diags
                        .iter()
                        .any(|diag| matches!(diag.code, Code::UnknownFunction | Code::UnknownModule)) =>
            {
                return self.without_prototype(text, query, module, name, || diags);
            }
            Err(diags) => {
                let diags = self.with_addresses(diags, module, name);
                return Ok(Err(known_module(diags, module, self.types, &[&name.node])));
            }
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

    /// Where functions of one name have different prototypes, only addresses choose.
    fn with_addresses(&self, mut diags: Wrong, module: Option<&ast::Ident>, name: &ast::Ident) -> Wrong {
        if !self.live {
            return diags;
        }
        let symbols = self.instances.named(&name.node).unwrap_or_default();
        let own = symbols
            .iter()
            .filter(|symbol| is_called(symbol, &name.node, module));
        let choices: Vec<String> = own.map(|symbol| format!("`{}`", by_address(symbol))).collect();
        for diag in &mut diags {
            if diag.code == Code::AmbiguousFunction && diag.help.is_empty() && !choices.is_empty() {
                diag.help
                    .push(format!("an address chooses: {}", choices.join(", ")));
                diag.help.push("`--all-instances` takes them all".to_string());
            }
        }
        diags
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

    fn warn_of_prototypes(&self, text: &str, span: Span, func: &Func) {
        if let Some(warning) = prototype_warning(self.types, func, span) {
            tell(self.cli, text, &[warning]);
        }
    }

    /// A name that BTF doesn't have: it may be another name of a function that it has. `unknown` is what is wrong if nothing has it.
    pub(super) fn without_prototype(
        &self,
        text: &str,
        query: &ast::Query,
        module: Option<&ast::Ident>,
        name: &ast::Ident,
        unknown: impl FnOnce() -> Wrong,
    ) -> Result<Result<Asked, Wrong>, Failure> {
        let found = match self.instances.named(select::stem(&name.node)) {
            Ok(found) => found,
            // What is wrong with the query is known anyway.
            Err(_) => return Ok(Err(known_module(unknown(), module, self.types, &[&name.node]))),
        };
        let found: Vec<Symbol> = found.into_iter().filter(|symbol| is_in(symbol, module)).collect();
        for symbol in &found {
            for alias in self.instances.at(symbol.addr)? {
                if let Some(func) = described(self.types, &alias) {
                    let place = self.instances.at_symbol(func, &alias, symbol, &name.node)?;
                    return Ok(self.at_place(text, query, name, place));
                }
            }
        }
        let mut own: Vec<Symbol> = Vec::new();
        for symbol in &found {
            if symbol.name == name.node && own.iter().all(|other| other.addr != symbol.addr) {
                own.push(symbol.clone());
            }
        }
        if own.is_empty() {
            let copies = found.iter().map(|symbol| format!("`{}`", symbol.name));
            let copies: Vec<String> = copies.collect();
            let told = unknown().into_iter().map(|mut diag| {
                if !copies.is_empty() {
                    diag.help.clear();
                    diag = diag
                        .note("the compiler left only copies of it, which BTF does not describe")
                        .help(format!(
                            "{} can be traced by what registers hold",
                            copies.join(", ")
                        ));
                } else if diag.code == Code::UnknownFunction {
                    diag = diag.note(NOWHERE);
                }
                diag
            });
            return Ok(Err(known_module(
                told.collect(),
                module,
                self.types,
                &[&name.node],
            )));
        }
        if own.len() > 1 && !self.cli.all_instances {
            return Ok(Err(vec![choice(&name.node, name.span, &own)]));
        }
        Ok(self.by_registers(text, query, name, &own))
    }

    /// The query for functions whose prototype nobody knows: their arguments are what the registers for arguments hold.
    fn by_registers(
        &self,
        text: &str,
        query: &ast::Query,
        name: &ast::Ident,
        symbols: &[Symbol],
    ) -> Result<Asked, Wrong> {
        let called = symbols
            .first()
            .map_or(name.node.as_str(), |symbol| symbol.name.as_str());
        let word = TypeId::integer(8, false);
        let params = (0..REGISTER_ARGS).map(|index| Param {
            name: format!("arg{index}"),
            ty: word,
        });
        let func = Func {
            id: TypeId::VOID,
            name: called.to_string(),
            params: params.collect(),
            ret: word,
            variadic: false,
        };
        let probe = typed::Probe::Function(func.clone());
        let resolved = sema::resolve_for(text, query, self.types, self.limits, probe).map_err(|diags| {
            let told = format!(
                "BTF does not describe `{called}`: its arguments are `arg0` to `arg5`, what registers hold"
            );
            diags
                .into_iter()
                .map(|diag| diag.note(told.clone()))
                .collect::<Vec<_>>()
        })?;
        tell(self.cli, text, &resolved.warnings);
        let warning = Diagnostic::warning(
            Code::NoPrototype,
            name.span,
            format!("BTF does not describe `{called}`"),
        )
        .label("so its arguments are what registers hold, as is what it returns")
        .help("a cast gives them a type, such as `((struct sk_buff *)arg0)->len`");
        tell(self.cli, text, &[warning]);
        let one = symbols.len() == 1;
        let places = symbols.iter().map(|symbol| Place {
            func: func.clone(),
            shown: if one {
                symbol.name.clone()
            } else {
                format!("{}@{:#x}", symbol.name, symbol.addr)
            },
            symbol: Some(symbol.clone()),
            by_type: false,
            rival: false,
            user: None,
        });
        Ok(Asked {
            text: text.to_string(),
            name: name.node.clone(),
            families: vec![Family {
                query: resolved.query,
                places: places.collect(),
            }],
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
        self.warn_of_prototypes(text, name.span, &place.func);
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
        if self.cli.btf.is_some() {
            return Ok(Err(vec![elsewhere(wanted, address, name.span)]));
        }
        let here: Vec<Symbol> = self
            .instances
            .at(address)?
            .into_iter()
            .filter(|symbol| {
                (wanted.is_empty() || symbol.name == wanted || select::stem(&symbol.name) == wanted)
                    && is_in(symbol, module)
            })
            .collect();
        let described = here
            .iter()
            .find_map(|symbol| Some((symbol, described(self.types, symbol)?)));
        if let Some((symbol, func)) = described {
            let place = self.instances.at_symbol(func, symbol, symbol, &symbol.name)?;
            return Ok(self.at_place(text, query, name, place));
        }
        if let Some(symbol) = here.first() {
            return Ok(self.by_registers(text, query, name, std::slice::from_ref(symbol)));
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
        if let Some(place) = Symbols::new().resolve_addr(address) {
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
            // What BTF has twice in one place may be anyone's, which is told.
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
            self.warn_of_prototypes(text, name.span, &func);
            asked.families.push(family);
        }
        match wrong {
            Some(diags) if asked.families.is_empty() => Ok(Err(diags)),
            Some(_) | None => Ok(Ok(asked)),
        }
    }
}

/// What BTF says of a symbol's function, which is called as the symbol is.
pub(crate) fn described(types: &Types, symbol: &Symbol) -> Option<Func> {
    let number = match &symbol.module {
        None => 0,
        Some(module) => types.module_named(module)?,
    };
    let mut found = types.functions_named(select::stem(&symbol.name)).into_iter();
    let func = found.find(|func| func.id.module == number)?;
    Some(Func {
        name: symbol.name.clone(),
        ..func
    })
}

/// Whether the kernel itself has a function of that name, with a compiler's suffix or without.
pub(crate) fn in_kernel(types: &Types, name: &str) -> bool {
    let mut all = types.functions_named(select::stem(name)).into_iter();
    all.any(|func| func.id.module == 0)
}

/// Why the running kernel has no types of a module.
pub(crate) fn why_unknown(module: &str, state: ModuleState) -> String {
    match state {
        ModuleState::Loaded => format!("the module {module} is loaded, but was built without BTF"),
        ModuleState::BuiltIn => format!("{module} is no module here: it is built into the kernel"),
        ModuleState::Absent => format!("no module {module} is loaded"),
    }
}

/// An address in another kernel than the running one says nothing.
fn elsewhere(wanted: &str, address: u64, span: Span) -> Diagnostic {
    let diag = Diagnostic::error(
        Code::UnknownFunction,
        span,
        format!("what begins at {address:#x} is not known: with `--btf`, addresses are another kernel's"),
    )
    .label("only that kernel's symbols could tell");
    match wanted {
        "" => diag.help("name the function"),
        name => diag.help(format!("`{name}` alone takes the prototype of that name")),
    }
}

/// Says of a module that has no BTF whether it is there at all, or what is asked for is in the kernel itself.
pub(super) fn known_module(
    mut diags: Wrong,
    module: Option<&ast::Ident>,
    types: &Types,
    patterns: &[&str],
) -> Wrong {
    let Some(module) = module else {
        return diags;
    };
    let (name, target) = (&module.node, patterns.join(","));
    for diag in diags
        .iter_mut()
        .filter(|diag| diag.code == Code::UnknownModule && diag.help.is_empty())
    {
        let state = runtime::btf::module_state(name);
        let mut why = why_unknown(name, state);
        match state {
            ModuleState::Loaded => {}
            ModuleState::BuiltIn => diag.help.push(format!("write `{target}`")),
            // A pattern may match anything.
            ModuleState::Absent if patterns.iter().all(|name| in_kernel(types, name)) => {
                why.push_str(&format!(", but the kernel itself has `{target}`"));
                diag.help.push(format!("write `{target}` for that"));
                diag.help.push(format!(
                    "`modprobe {name}` loads the module; `--wait` waits for that"
                ));
            }
            ModuleState::Absent => {
                diag.help
                    .push(format!("`modprobe {name}` loads it; `--wait` waits for that"));
            }
        }
        diag.notes.push(why);
    }
    diags
}
