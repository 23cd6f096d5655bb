//! Functions of programs, and instructions in them: by symbol, address or place in the file, with what their arguments are. In: a
//! target, a program. Out: a probe with its places.

use super::{Refused, did_you_mean, image};
use crate::diag::{Code, Diagnostic};
use crate::parser::ast;
use crate::suggest::nearest;
use crate::typed::{Probe, Site, UserProbe};
use crate::types::{Func, Param, Type, TypeId, Types};
use crate::user::{Address, Arch, Function, Image, Images, Operand, Passed, Recipe, demangled, is_pattern};

/// A function of a program, by symbol, address or place in the file.
pub(in crate::sema) fn uprobe(
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
        // Floats have registers of their own.
        if matches!(types.get_stripped(param.ty), Type::Float { size } if size <= 8) {
            args.push(None);
            continue;
        }
        let word = in_one_register(types, param.ty);
        let index = if word { next } else { None };
        next = index.map(|index| index + 1);
        args.push(index.and_then(|index| passed(types, param.ty, arch, index)));
    }
    let void = types.get_stripped(prototype.ret) == Type::Void;
    let ret = if void || in_one_register(types, prototype.ret) {
        prototype.ret
    } else {
        TypeId::VOID
    };
    (prototype.params.clone(), args, ret)
}

/// Whether a value of the type is passed and returned in one integer register.
fn in_one_register(types: &Types, ty: TypeId) -> bool {
    match types.get_stripped(ty) {
        Type::Int(int) => int.size <= 8,
        Type::Enum(_) | Type::Ptr(_) => true,
        Type::Void
        | Type::Float { .. }
        | Type::Array { .. }
        | Type::Struct(_)
        | Type::Union(_)
        | Type::Fwd { .. }
        | Type::Typedef(_)
        | Type::Const(_)
        | Type::Volatile(_)
        | Type::Restrict(_)
        | Type::TypeTag { .. }
        | Type::Func { .. }
        | Type::FuncProto { .. }
        | Type::Other => false,
    }
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
        Type::Void
        | Type::Float { .. }
        | Type::Ptr(_)
        | Type::Array { .. }
        | Type::Struct(_)
        | Type::Union(_)
        | Type::Fwd { .. }
        | Type::Typedef(_)
        | Type::Const(_)
        | Type::Volatile(_)
        | Type::Restrict(_)
        | Type::TypeTag { .. }
        | Type::Func { .. }
        | Type::FuncProto { .. }
        | Type::Other => (8, false),
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
