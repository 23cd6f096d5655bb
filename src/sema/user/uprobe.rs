//! Functions of programs, and instructions in them: by symbol, address or place in the file, with what their arguments are. In: a
//! target, a program. Out: probes with their places: functions of different names, or of different arguments, are different probes.

use std::collections::{BTreeMap, BTreeSet};

use super::convention::{by_prototype, by_registers};
use super::{Meant, Refused, did_you_mean, image};
use crate::diag::{Code, Diagnostic};
use crate::parser::ast;
use crate::span::Span;
use crate::suggest::nearest;
use crate::typed::{Probe, Site, UserProbe};
use crate::types::{Func, TypeId, Types};
use crate::user::{Function, Image, Images, copied, demangled, is_pattern};

/// Functions of a program, by symbol, address or place in the file.
pub(super) fn probes(
    binary: &ast::Ident,
    symbol: &ast::Ident,
    types: &Types,
    images: &Images,
) -> Result<Meant, Refused> {
    let image = image(binary, images)?;
    let mut meant = Meant::default();
    let places = places(image, symbol, &mut meant)?;
    let pattern = is_pattern(&symbol.node);
    let prototypes = Prototypes::new(types, &binary.node, &places, pattern);
    let mut probes: Vec<UserProbe> = Vec::new();
    let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut doubted: BTreeSet<String> = BTreeSet::new();
    for place in places {
        let Some(offset) = image.code_offset(place.address) else {
            if pattern {
                continue;
            }
            return Err(Box::new(
                Diagnostic::error(
                    Code::UnknownSymbol,
                    symbol.span,
                    format!("`{}` is not in code of `{}`", symbol.node, binary.node),
                )
                .label(format!("nothing executable is loaded at {:#x}", place.address)),
            ));
        };
        let prototype = match place.function.as_ref().map(|function| prototypes.of(function)) {
            None | Some([]) => None,
            Some([only]) => Some(only),
            Some(_) => None,
        };
        if let Some(function) = &place.function
            && doubted.insert(function.name.clone())
        {
            let doubt = prototypes.doubt(types, image, function, symbol.span);
            meant.doubts.extend(doubt);
        }
        let signature = match prototype {
            Some(prototype) => by_prototype(types, prototype, image.arch),
            None => by_registers(image.arch),
        };
        let site = Site {
            address: place.address,
            offset,
            semaphore: 0,
            args: signature.args,
        };
        let module = prototype.map_or(prototypes.module, |prototype| prototype.id.module);
        let func = Func {
            id: TypeId { module, id: 0 },
            name: place.name,
            params: signature.params,
            ret: signature.ret,
            variadic: false,
        };
        let near = by_name.entry(func.name.clone()).or_default();
        let same = near.iter().copied().find(|index| {
            let other = &probes[*index];
            other.func == func
                && other.returns != place.inside
                && other.sites.first().is_some_and(|first| first.args == site.args)
        });
        match same {
            Some(index) => probes[index].sites.push(site),
            None => {
                near.push(probes.len());
                probes.push(UserProbe {
                    func,
                    binary: binary.node.clone(),
                    path: image.path.clone(),
                    arch: image.arch,
                    returns: !place.inside,
                    described: prototype.is_some(),
                    reasons: signature.reasons,
                    sites: vec![site],
                });
            }
        }
    }
    if probes.is_empty() {
        return Err(unknown_symbol(image, symbol, &symbol.node, false));
    }
    meant.probes = probes.into_iter().map(Probe::Uprobe).collect();
    Ok(meant)
}

/// What a program's types say of the functions that are meant.
struct Prototypes {
    by_name: BTreeMap<String, Vec<Func>>,
    /// Of the first object with the program's types.
    module: u16,
    /// Whether copies that the compiler made have the prototype of what they were made from.
    copies: bool,
}

impl Prototypes {
    fn new(types: &Types, binary: &str, places: &[Place], pattern: bool) -> Prototypes {
        let module = types.program_named(binary).unwrap_or(Types::no_program());
        let functions = places.iter().filter_map(|place| place.function.as_ref());
        let names: BTreeSet<&str> = functions.map(|function| origin(&function.name)).collect();
        Prototypes {
            by_name: types.prototypes_in_program(module, &names),
            module,
            // Who names one is told that its arguments may be others; of a pattern's that would be too many words.
            copies: !pattern,
        }
    }

    fn of(&self, function: &Function) -> &[Func] {
        if !self.copies && copied(&function.name).is_some() {
            return &[];
        }
        self.by_name
            .get(origin(&function.name))
            .map_or(&[], Vec::as_slice)
    }

    /// What is not certain of a function's arguments.
    fn doubt(&self, types: &Types, image: &Image, function: &Function, span: Span) -> Option<Diagnostic> {
        let name = &function.name;
        let found = self.of(function);
        let mut places: Vec<u64> = image
            .functions_named(name)
            .into_iter()
            .filter(|other| other.name == *name)
            .map(|other| other.address)
            .collect();
        places.sort_unstable();
        places.dedup();
        if self.copies && copied(name).is_some() {
            let diag = Diagnostic::warning(
                Code::CompilerCopy,
                span,
                format!("`{name}` is a copy that the compiler made for itself"),
            );
            return Some(match found {
                [] => diag.label("its arguments may not be those in the source"),
                [_, ..] => diag.label("its arguments may not be those of the prototype"),
            });
        }
        match found {
            [] => None,
            [only] if places.len() > 1 && function.version.is_none() => Some(
                Diagnostic::warning(
                    Code::AmbiguousFunction,
                    span,
                    format!("`{name}` is the name of {} functions", places.len()),
                )
                .label("the program's types have one prototype, which is taken for all of them")
                .note(format!("taken: {}", types.prototype(only)))
                .help(format!("an address chooses one: {}", listed(&places))),
            ),
            [_] => None,
            several => {
                let mut diag = Diagnostic::warning(
                    Code::AmbiguousFunction,
                    span,
                    format!(
                        "the program's types have {} prototypes of `{name}`, and do not say which is this one's",
                        several.len()
                    ),
                )
                .label("so its arguments are what registers hold, as is what it returns");
                for prototype in several {
                    diag = diag.note(types.prototype(prototype));
                }
                if places.len() > 1 {
                    diag = diag.help(format!("an address chooses one: {}", listed(&places)));
                }
                Some(diag.help("a cast gives an argument a type, such as `((struct foo *)arg0)->x`"))
            }
        }
    }
}

/// The name of what a copy was made from.
fn origin(name: &str) -> &str {
    copied(name).unwrap_or(name)
}

fn listed(places: &[u64]) -> String {
    const SHOWN: usize = 8;
    let mut listed: Vec<String> = places
        .iter()
        .take(SHOWN)
        .map(|place| format!("`{place:#x}`"))
        .collect();
    if places.len() > SHOWN {
        listed.push(format!("{} more", places.len() - SHOWN));
    }
    listed.join(", ")
}

/// What a symbol or an address means.
struct Place {
    address: u64,
    /// What to call it.
    name: String,
    /// The function, if it is the beginning of one.
    function: Option<Function>,
    /// Whether it is somewhere inside of a function, where nothing returns from.
    inside: bool,
}

fn places(image: &Image, symbol: &ast::Ident, meant: &mut Meant) -> Result<Vec<Place>, Refused> {
    let wanted = symbol.node.as_str();
    let bad_number = || {
        Box::new(
            Diagnostic::error(
                Code::BadTarget,
                symbol.span,
                format!("`{wanted}` is not a place in a program"),
            )
            .label("not a number")
            .help("places are written `SYMBOL`, `SYMBOL+0x10`, `0x401000` (an address) or `+0x1000` (bytes into the file)"),
        )
    };
    if let Some(offset) = wanted.strip_prefix('+') {
        let offset = number(offset).ok_or_else(bad_number)?;
        let Some(address) = image.code_address(offset) else {
            return Err(Box::new(
                Diagnostic::error(
                    Code::UnknownSymbol,
                    symbol.span,
                    "there is no code at this place of the file",
                )
                .label("nothing executable is loaded from there"),
            ));
        };
        return Ok(vec![at(image, address)]);
    }
    if wanted.starts_with(|c: char| c.is_ascii_digit()) {
        let address = number(wanted).ok_or_else(bad_number)?;
        return Ok(vec![at(image, address)]);
    }
    // C++'s `operator+` has a plus too: only digits make it an offset.
    let (name, offset) = match wanted.rsplit_once('+') {
        Some((name, digits)) if digits.starts_with(|c: char| c.is_ascii_digit()) => {
            (name, number(digits).ok_or_else(bad_number)?)
        }
        Some(_) | None => (wanted, 0),
    };
    let mut found = image.functions_named(name);
    if found.is_empty() && !is_pattern(name) {
        found = only_copy(image, symbol, name)?;
    }
    let (indirect, mut functions): (Vec<&Function>, Vec<&Function>) =
        found.into_iter().partition(|function| function.indirect);
    if functions.is_empty() {
        return Err(unknown_symbol(image, symbol, name, !indirect.is_empty()));
    }
    meant.warnings.extend(chosen_when_loaded(&indirect, symbol.span));
    // Of the names that one function has, the shortest is its own: others have prefixes.
    functions.sort_by_key(|function| (function.address, function.name.len(), &function.name));
    functions.dedup_by_key(|function| function.address);
    functions.sort_by_key(|function| (&function.name, function.address));
    let place = |function: &Function| {
        let shown = demangled(&function.name).unwrap_or_else(|| function.name.clone());
        let inside = offset != 0;
        Place {
            address: function.address.wrapping_add(offset),
            name: if inside {
                format!("{shown}+{offset:#x}")
            } else {
                shown
            },
            function: (!inside).then(|| function.clone()),
            inside,
        }
    };
    Ok(functions.into_iter().map(place).collect())
}

/// The only copy that the compiler made of a function, where it left none of the name itself.
fn only_copy<'i>(image: &'i Image, symbol: &ast::Ident, name: &str) -> Result<Vec<&'i Function>, Refused> {
    let mut copies: Vec<&Function> = image
        .functions
        .iter()
        .filter(|function| copied(&function.name) == Some(name))
        .collect();
    copies.dedup_by_key(|function| function.address);
    if copies.len() > 1 {
        let names: Vec<String> = copies
            .iter()
            .map(|function| format!("`{}`", function.name))
            .collect();
        return Err(Box::new(
            Diagnostic::error(
                Code::UnknownSymbol,
                symbol.span,
                format!("the compiler left only copies of `{name}`"),
            )
            .label("which one is meant?")
            .help(format!("the copies are {}", names.join(", "))),
        ));
    }
    Ok(copies)
}

/// Tells of functions of the name that are not among those that are traced, as nobody knows yet where they are.
fn chosen_when_loaded(indirect: &[&Function], span: Span) -> Option<Diagnostic> {
    let message = match indirect {
        [] => return None,
        [one] => {
            let version = one.version.as_ref().map_or(String::new(), |v| format!("@{v}"));
            format!("`{}{version}` is left out", one.name)
        }
        several => format!("{} functions are left out", several.len()),
    };
    let help = match indirect {
        [one] => format!(
            "`ksnoop-jit list 'uprobe:LIBRARY:*{}*'` shows the variants, if the library has symbols for them",
            one.name
        ),
        _ => "the variants can be traced, if the library has symbols for them".to_string(),
    };
    Some(
        Diagnostic::warning(Code::Untraceable, span, message)
            .label("which function it is, is chosen when the library is loaded (ifunc)")
            .help(help),
    )
}

/// A place by its address.
fn at(image: &Image, address: u64) -> Place {
    let containing = image.function_at(address);
    let (name, inside) = match containing {
        Some(function) => {
            let shown = demangled(&function.name).unwrap_or_else(|| function.name.clone());
            match address - function.address {
                0 => (shown, false),
                offset => (format!("{shown}+{offset:#x}"), true),
            }
        }
        // Who gives an address in a stripped file knows what is there.
        None => (format!("{address:#x}"), false),
    };
    Place {
        address,
        name,
        function: containing.filter(|_| !inside).cloned(),
        inside,
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn unknown_symbol(image: &Image, symbol: &ast::Ident, name: &str, indirect: bool) -> Refused {
    if indirect {
        return Box::new(
            Diagnostic::error(
                Code::UnknownSymbol,
                symbol.span,
                format!("`{name}` has no code of its own"),
            )
            .label("which function it is, is chosen when the library is loaded (ifunc)")
            .help(format!("`ksnoop-jit list 'uprobe:LIBRARY:*{name}*'` shows the variants, if the library has symbols for them")),
        );
    }
    let diag = Diagnostic::error(
        Code::UnknownSymbol,
        symbol.span,
        if is_pattern(name) {
            format!("no function matches `{name}`")
        } else {
            format!("there is no function `{name}` in it")
        },
    )
    .label(if image.functions.is_empty() {
        "it has no symbols: it was stripped"
    } else {
        "not among its symbols"
    });
    let near = nearest(
        name,
        image.functions.iter().map(|function| function.name.as_str()),
    );
    Box::new(did_you_mean(diag, &near))
}
