//! Targets in programs: which functions and USDT probes are meant, and how their arguments are typed. In: a target, the
//! programs that were read. Out: a probe with its places. A place whose arguments can't be fetched is left out, and
//! told; it is an error only if no place remains.

use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, TargetKind};
use crate::span::Span;
use crate::suggest::nearest;
use crate::typed::{Event, Expr, ExprKind, Probe, Site, UserProbe};
use crate::types::{Func, Param, Type, TypeId, Types};
use crate::user::recipe::ARGS_MAX;
use crate::user::{
    Address, Arch, CallSite, Function, Image, Images, Operand, Passed, Recipe, RecipeError, demangled,
    is_pattern,
};

type Refused = Box<Diagnostic>;

/// The targets that a target with patterns stands for: one for each function or probe. Others stand for themselves.
pub fn expand(query: &ast::Query, images: &Images) -> Vec<ast::Query> {
    let with = |kind: TargetKind| {
        let mut one = query.clone();
        one.target.kind = kind;
        one
    };
    let named = |ident: &ast::Ident, name: &str| ast::Ident {
        node: name.to_string(),
        span: ident.span,
    };
    let found: Vec<ast::Query> = match &query.target.kind {
        TargetKind::Uprobe { binary, symbol } if is_pattern(&symbol.node) => {
            let Some(Ok(image)) = images.get(&binary.node) else {
                return vec![query.clone()];
            };
            let mut found: Vec<(u64, usize, &str)> = image
                .functions_named(&symbol.node)
                .into_iter()
                .filter(|function| !function.indirect && image.code_offset(function.address).is_some())
                .map(|function| (function.address, function.name.len(), function.name.as_str()))
                .collect();
            // Of the names that one function has, the shortest is its own: others have prefixes.
            found.sort_unstable();
            found.dedup_by_key(|(address, _, _)| *address);
            let mut names: Vec<&str> = found.into_iter().map(|(_, _, name)| name).collect();
            names.sort_unstable();
            names.dedup();
            names
                .into_iter()
                .map(|name| {
                    with(TargetKind::Uprobe {
                        binary: binary.clone(),
                        symbol: named(symbol, name),
                    })
                })
                .collect()
        }
        TargetKind::Usdt {
            binary,
            provider,
            name,
        } if is_pattern(&provider.node) || is_pattern(&name.node) => {
            let Some(Ok(image)) = images.get(&binary.node) else {
                return vec![query.clone()];
            };
            image
                .probes_named(&provider.node, &name.node)
                .into_iter()
                .map(|probe| {
                    with(TargetKind::Usdt {
                        binary: binary.clone(),
                        provider: named(provider, &probe.provider),
                        name: named(name, &probe.name),
                    })
                })
                .collect()
        }
        TargetKind::Uprobe { .. }
        | TargetKind::Usdt { .. }
        | TargetKind::Function { .. }
        | TargetKind::Tracepoint { .. } => return vec![query.clone()],
    };
    // Nothing matches: who resolves the pattern as a name says so.
    if found.is_empty() {
        vec![query.clone()]
    } else {
        found
    }
}

/// The image of a binary.
fn image<'i>(binary: &ast::Ident, images: &'i Images) -> Result<&'i Image, Refused> {
    let why = match images.get(&binary.node) {
        Some(Ok(image)) => return Ok(image),
        Some(Err(why)) => why.clone(),
        None => "it has not been read".to_string(),
    };
    Err(Box::new(
        Diagnostic::error(
            Code::UnknownBinary,
            binary.span,
            format!("`{}` can't be traced", binary.node),
        )
        .label(why)
        .help("write a path, or the name of a program on PATH or of a library, such as `libc`"),
    ))
}

/// A function of a program, by symbol, address or place in the file.
pub(super) fn uprobe(
    binary: &ast::Ident,
    symbol: &ast::Ident,
    types: &Types,
    images: &Images,
) -> Result<Probe, Refused> {
    let image = image(binary, images)?;
    let wanted = symbol.node.as_str();
    let Places {
        addresses,
        name,
        function,
        inside,
    } = places(image, symbol)?;
    let arch = image.arch;
    let module = types.program_named(&binary.node).unwrap_or(Types::no_program());
    let prototype = function
        .as_ref()
        .and_then(|function| types.function_in_program(module, &function.name));
    let (params, args, ret) = match &prototype {
        Some(prototype) => by_prototype(types, prototype, arch),
        None => by_registers(arch),
    };
    let mut sites = Vec::new();
    for address in addresses {
        let Some(offset) = image.code_offset(address) else {
            return Err(Box::new(
                Diagnostic::error(
                    Code::UnknownSymbol,
                    symbol.span,
                    format!("`{wanted}` is not in code of `{}`", binary.node),
                )
                .label(format!("nothing executable is loaded at {address:#x}")),
            ));
        };
        if sites.iter().any(|site: &Site| site.offset == offset) {
            continue;
        }
        sites.push(Site {
            address,
            offset,
            semaphore: 0,
            args: args.clone(),
        });
    }
    let func = Func {
        id: TypeId { module, id: 0 },
        name,
        params,
        ret,
        variadic: false,
    };
    Ok(Probe::Uprobe(UserProbe {
        func,
        binary: binary.node.clone(),
        path: image.path.clone(),
        arch,
        returns: !inside,
        sites,
    }))
}

/// What a symbol or an address means.
struct Places {
    addresses: Vec<u64>,
    /// What to call them.
    name: String,
    /// The function, if it is the beginning of one.
    function: Option<Function>,
    /// Whether they are somewhere inside of functions, where nothing returns from.
    inside: bool,
}

fn places(image: &Image, symbol: &ast::Ident) -> Result<Places, Refused> {
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
        return Ok(at(image, address));
    }
    if wanted.starts_with(|c: char| c.is_ascii_digit()) {
        let address = number(wanted).ok_or_else(bad_number)?;
        return Ok(at(image, address));
    }
    // C++'s `operator+` has a plus too: only digits make it an offset.
    let (name, offset) = match wanted.rsplit_once('+') {
        Some((name, digits)) if digits.starts_with(|c: char| c.is_ascii_digit()) => {
            (name, number(digits).ok_or_else(bad_number)?)
        }
        Some(_) | None => (wanted, 0),
    };
    let found = image.functions_named(name);
    let (indirect, functions): (Vec<&Function>, Vec<&Function>) =
        found.into_iter().partition(|function| function.indirect);
    let Some(first) = functions.first() else {
        return Err(unknown_symbol(image, symbol, name, !indirect.is_empty()));
    };
    let shown = match demangled(&first.name) {
        Some(long) => long,
        None => first.name.clone(),
    };
    let addresses = functions
        .iter()
        .map(|function| function.address.wrapping_add(offset))
        .collect();
    let inside = offset != 0;
    Ok(Places {
        addresses,
        name: if inside {
            format!("{shown}+{offset:#x}")
        } else {
            shown
        },
        function: (!inside).then(|| (*first).clone()),
        inside,
    })
}

/// A place by its address.
fn at(image: &Image, address: u64) -> Places {
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
    Places {
        addresses: vec![address],
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

fn did_you_mean(diag: Diagnostic, near: &[&str]) -> Diagnostic {
    if near.is_empty() {
        return diag;
    }
    let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    diag.help(format!("did you mean {}?", near.join(" or ")))
}

type Typed = (Vec<Param>, Vec<Option<Recipe>>, TypeId);

/// Without a prototype: what the registers hold that can carry arguments, as unsigned long.
fn by_registers(arch: Arch) -> Typed {
    let word = TypeId::integer(8, false);
    let mut params = Vec::new();
    let mut args = Vec::new();
    let mut index = 0;
    while let Some(Passed::Register(register)) = arch.argument(index) {
        params.push(Param {
            name: format!("arg{index}"),
            ty: word,
        });
        args.push(Some(Recipe {
            size: 8,
            signed: false,
            operand: Operand::Register(register),
        }));
        index += 1;
    }
    (params, args, word)
}

/// With a prototype: numbers and pointers are where the calling convention puts them. Floating point arguments are in registers of
/// their own; where a struct is depends on what is in it, so that nothing is said of it and what follows it.
fn by_prototype(types: &Types, prototype: &Func, arch: Arch) -> Typed {
    let mut args = Vec::new();
    let mut next = Some(0);
    // A struct that is returned in memory takes the first register of x86-64.
    let returns_struct = types.composite(prototype.ret).is_some();
    if returns_struct {
        next = None;
    }
    for param in &prototype.params {
        let word = match types.get_stripped(param.ty) {
            Type::Int(int) => int.size <= 8,
            Type::Enum(_) | Type::Ptr(_) => true,
            Type::Float { size } if size <= 8 => {
                args.push(None);
                continue;
            }
            _ => false,
        };
        let index = if word { next } else { None };
        next = index.map(|index| index + 1);
        args.push(index.and_then(|index| passed(types, param.ty, arch, index)));
    }
    let ret = match types.get_stripped(prototype.ret) {
        Type::Int(int) if int.size <= 8 => prototype.ret,
        Type::Enum(_) | Type::Ptr(_) | Type::Void => prototype.ret,
        _ => TypeId::VOID,
    };
    (prototype.params.clone(), args, ret)
}

fn passed(types: &Types, ty: TypeId, arch: Arch, index: usize) -> Option<Recipe> {
    let operand = match arch.argument(index)? {
        Passed::Register(register) => Operand::Register(register),
        Passed::Stack(offset) => Operand::Memory(Address {
            base: Some(arch.stack_pointer()),
            offset: i64::from(offset),
            ..Address::default()
        }),
    };
    let (size, signed) = match types.get_stripped(ty) {
        Type::Int(int) => (int.size, int.signed),
        Type::Enum(e) => (e.size, e.signed),
        _ => (8, false),
    };
    let size = u8::try_from(size)
        .ok()
        .filter(|size| matches!(size, 1 | 2 | 4 | 8))?;
    Some(Recipe {
        size,
        signed,
        operand,
    })
}

/// A USDT probe, with all its places.
pub(super) fn usdt(
    binary: &ast::Ident,
    provider: &ast::Ident,
    name: &ast::Ident,
    types: &Types,
    images: &Images,
) -> Result<Probe, Refused> {
    let image = image(binary, images)?;
    let found = image.probes_named(&provider.node, &name.node);
    let Some(probe) = found.first() else {
        return Err(unknown_probe(image, provider, name));
    };
    let count = probe
        .sites
        .iter()
        .map(|site| site.recipes.len())
        .max()
        .unwrap_or(0);
    let mut params: Vec<Param> = (0..count.min(ARGS_MAX))
        .map(|index| Param {
            name: format!("arg{index}"),
            ty: widest(&probe.sites, index),
        })
        .collect();
    // Where places differ in how many arguments there are, that is an argument itself.
    let counts_differ = probe.sites.iter().any(|site| site.recipes.len() != count);
    if counts_differ {
        params.push(Param {
            name: "argc".to_string(),
            ty: TypeId::integer(4, true),
        });
    }
    let sites = probe
        .sites
        .iter()
        .map(|site| {
            let mut args: Vec<Option<Recipe>> = (0..count.min(ARGS_MAX))
                .map(|index| site.recipes.get(index).and_then(|recipe| recipe.clone().ok()))
                .collect();
            if counts_differ {
                args.push(Some(Recipe {
                    size: 4,
                    signed: true,
                    operand: Operand::Constant(site.recipes.len() as i64),
                }));
            }
            Site {
                address: site.address,
                offset: site.offset,
                semaphore: site.semaphore,
                args,
            }
        })
        .collect();
    let module = types.program_named(&binary.node).unwrap_or(Types::no_program());
    let func = Func {
        id: TypeId { module, id: 0 },
        name: format!("{}:{}", probe.provider, probe.name),
        params,
        ret: TypeId::VOID,
        variadic: false,
    };
    Ok(Probe::Usdt(UserProbe {
        func,
        binary: binary.node.clone(),
        path: image.path.clone(),
        arch: image.arch,
        returns: false,
        sites,
    }))
}

/// The type that holds what an argument can be at any place; void if it can be fetched at none.
fn widest(sites: &[CallSite], index: usize) -> TypeId {
    let mut size = 0;
    let (mut some_signed, mut some_unsigned) = (0, 0);
    for recipe in sites
        .iter()
        .filter_map(|site| site.recipes.get(index)?.as_ref().ok())
    {
        size = size.max(recipe.size);
        if recipe.signed {
            some_signed = some_signed.max(recipe.size);
        } else {
            some_unsigned = some_unsigned.max(recipe.size);
        }
    }
    match (some_signed, some_unsigned) {
        (0, 0) => TypeId::VOID,
        (0, _) => TypeId::integer(size, false),
        (_, 0) => TypeId::integer(size, true),
        // A signed type holds all unsigned values that are narrower.
        (signed, unsigned) if signed > unsigned => TypeId::integer(size, true),
        (_, _) => TypeId::integer(8, true),
    }
}

fn unknown_probe(image: &Image, provider: &ast::Ident, name: &ast::Ident) -> Refused {
    let span = Span {
        start: provider.span.start,
        end: name.span.end,
    };
    let wanted = format!("{}:{}", provider.node, name.node);
    let pattern = is_pattern(&wanted);
    let diag = Diagnostic::error(
        Code::UnknownProbe,
        span,
        if pattern {
            format!("no USDT probe matches `{wanted}`")
        } else {
            format!("there is no USDT probe `{wanted}` in it")
        },
    )
    .label(if image.probes.is_empty() {
        "it has no USDT probes"
    } else {
        "not among its notes"
    });
    let all: Vec<String> = image
        .probes
        .iter()
        .map(|probe| format!("{}:{}", probe.provider, probe.name))
        .collect();
    let near = nearest(&wanted, all.iter().map(String::as_str));
    let mut diag = did_you_mean(diag, &near);
    for trouble in image.troubles.iter().take(3) {
        diag = diag.note(trouble.clone());
    }
    Box::new(diag)
}

/// Leaves out the places at which an argument that the events use can't be fetched. Out: what is odd, as warnings.
pub(super) fn leave_out(
    probe: &mut UserProbe,
    events: &[Event],
    target: Span,
    images: &Images,
) -> Result<Vec<Diagnostic>, Refused> {
    let used = used_arguments(events);
    let all = probe.sites.len();
    let mut warnings = Vec::new();
    probe.sites.retain(|site| {
        let Some(index) = used
            .iter()
            .find(|index| site.args.get(**index).is_none_or(Option::is_none))
        else {
            return true;
        };
        let why = match recipe_at(images, &probe.binary, site, *index) {
            Some(Err(error)) => error.to_string(),
            Some(Ok(_)) | None => format!("there is no arg{index}"),
        };
        warnings.push(
            Diagnostic::warning(
                Code::UnreadableSite,
                target,
                format!("the call at {:#x} is left out", site.address),
            )
            .label(why),
        );
        false
    });
    if probe.sites.is_empty() && all > 0 {
        let mut diag = Diagnostic::error(
            Code::UnreadableSite,
            target,
            format!(
                "no call of `{}` has all arguments that the query reads",
                probe.func.name
            ),
        )
        .label(format!("{all} calls, none can be read"));
        for warning in warnings.iter().take(4) {
            diag = diag.note(format!("{}: {}", warning.message, warning.label));
        }
        return Err(Box::new(diag));
    }
    Ok(warnings)
}

fn recipe_at<'i>(
    images: &'i Images,
    binary: &str,
    site: &Site,
    index: usize,
) -> Option<&'i Result<Recipe, RecipeError>> {
    let image = images.get(binary)?.as_ref().ok()?;
    let call = image
        .probes
        .iter()
        .flat_map(|probe| &probe.sites)
        .find(|call| call.offset == site.offset)?;
    call.recipes.get(index)
}

/// Which arguments can be fetched at no place.
pub(super) fn missing(probe: &UserProbe) -> Vec<bool> {
    let fetched = |index: usize| {
        probe
            .sites
            .iter()
            .any(|site| site.args.get(index).is_some_and(Option::is_some))
    };
    (0..probe.func.params.len())
        .map(|index| !fetched(index))
        .collect()
}

/// The arguments that events mention, by index, sorted.
pub fn used_arguments(events: &[Event]) -> Vec<usize> {
    let mut used = Vec::new();
    let mut look = |expr: &Expr| {
        if let ExprKind::Arg(index) = expr.kind
            && !used.contains(&index)
        {
            used.push(index);
        }
    };
    for event in events {
        for item in &event.items {
            item.source.walk(&mut look);
        }
        for predicate in &event.predicates {
            predicate.cond.walk(&mut look);
        }
    }
    used.sort_unstable();
    used
}
