//! USDT probes: their places, and of what types their arguments are. In: a target, a program. Out: a probe with its places. A
//! place whose arguments can't be fetched is left out, and told; it is an error only if no place remains.

use super::{Refused, did_you_mean, image, used_arguments};
use crate::diag::{Code, Diagnostic};
use crate::parser::ast;
use crate::span::Span;
use crate::suggest::nearest;
use crate::typed::{Event, Probe, Site, UserProbe};
use crate::types::{Func, Param, TypeId, Types};
use crate::user::recipe::ARGS_MAX;
use crate::user::{CallSite, Image, Images, Operand, Recipe, RecipeError, is_pattern};

/// A USDT probe, with all its places.
pub(in crate::sema) fn usdt(
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
pub(in crate::sema) fn leave_out(
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
