//! USDT probes: their places, and of what types their arguments are. In: a target, a program. Out: a probe with its places. A
//! place whose arguments can't be fetched is left out, and told; it is an error only if no place remains.

use super::{Meant, Refused, did_you_mean, image, used_arguments};
use crate::diag::{Code, Diagnostic};
use crate::parser::ast;
use crate::span::Span;
use crate::suggest::nearest;
use crate::typed::{Event, Probe, Site, UserProbe};
use crate::types::{Func, Param, TypeId, Types};
use crate::user::recipe::ARGS_MAX;
use crate::user::{CallSite, Image, Images, Operand, Problem, Recipe, RecipeError, is_pattern};

/// The USDT probes that a target means, each with all its places. `everything`: the query has no items, so that what there is to show
/// differs from place to place; those that have the same arguments are then a probe of their own.
pub(super) fn probes(
    binary: &ast::Ident,
    provider: &ast::Ident,
    name: &ast::Ident,
    types: &Types,
    images: &Images,
    everything: bool,
) -> Result<Meant, Refused> {
    let image = image(binary, images)?;
    let found = image.probes_named(&provider.node, &name.node);
    if found.is_empty() {
        return Err(unknown_probe(image, provider, name));
    }
    let module = types.program_named(&binary.node).unwrap_or(Types::no_program());
    let mut meant = Meant::default();
    for probe in found {
        let mut parts: Vec<Vec<&CallSite>> = Vec::new();
        for site in &probe.sites {
            let same = |part: &&mut Vec<&CallSite>| !everything || shown(part[0]) == shown(site);
            match parts.iter_mut().find(same) {
                Some(part) => part.push(site),
                None => parts.push(vec![site]),
            }
        }
        let called = format!("{}:{}", probe.provider, probe.name);
        let cleared = |site: &CallSite| site.semaphore != 0 && image.is_cleared(site.semaphore);
        if probe.sites.iter().any(cleared) {
            meant.warnings.push(
                Diagnostic::warning(
                    Code::UnreadableSite,
                    name.span,
                    format!("the semaphore of `{called}` is cleared when a program starts"),
                )
                .label("so only programs that run already see that it is watched")
                .help("it should be in a section of the file, as `.probes` is"),
            );
        }
        for part in parts {
            let probe = of_sites(&called, &part, module, binary, image);
            meant.probes.push(Probe::Usdt(probe));
        }
    }
    Ok(meant)
}

/// Which arguments a place has, and whether they can be fetched.
fn shown(site: &CallSite) -> Vec<bool> {
    site.recipes.iter().map(Result::is_ok).collect()
}

fn of_sites(called: &str, calls: &[&CallSite], module: u16, binary: &ast::Ident, image: &Image) -> UserProbe {
    let count = calls.iter().map(|site| site.recipes.len()).max().unwrap_or(0);
    let mut params: Vec<Param> = (0..count.min(ARGS_MAX))
        .map(|index| Param {
            name: format!("arg{index}"),
            ty: widest(calls, index),
        })
        .collect();
    let mut reasons: Vec<String> = (0..params.len())
        .map(|index| {
            let mut wrong = calls.iter().filter_map(|site| {
                let why = site.recipes.get(index)?.as_ref().err()?;
                Some(format!("at {:#x}: {why}", site.address))
            });
            wrong.next().unwrap_or_default()
        })
        .collect();
    // Where places differ in how many arguments there are, that is an argument itself.
    let counts_differ = calls.iter().any(|site| site.recipes.len() != count);
    if counts_differ {
        params.push(Param {
            name: "argc".to_string(),
            ty: TypeId::integer(4, true),
        });
        reasons.push(String::new());
    }
    let sites = calls
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
    UserProbe {
        func: Func {
            id: TypeId { module, id: 0 },
            name: called.to_string(),
            params,
            ret: TypeId::VOID,
            variadic: false,
        },
        binary: binary.node.clone(),
        path: image.path.clone(),
        arch: image.arch,
        returns: false,
        described: true,
        reasons,
        sites,
    }
}

/// The type that holds what an argument can be at any place; void if it can be fetched at none.
fn widest(sites: &[&CallSite], index: usize) -> TypeId {
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

/// Leaves out the places at which an argument that the events use can't be fetched. Out: what is odd, as warnings: one for each
/// cause.
pub(in crate::sema) fn leave_out(
    probe: &mut UserProbe,
    events: &[Event],
    target: Span,
    images: &Images,
) -> Result<Vec<Diagnostic>, Refused> {
    let used = used_arguments(events);
    let all = probe.sites.len();
    let mut causes: Vec<Cause> = Vec::new();
    probe.sites.retain(|site| {
        let Some(index) = used
            .iter()
            .find(|index| site.args.get(**index).is_none_or(Option::is_none))
        else {
            return true;
        };
        let (problem, why) = match recipe_at(images, &probe.binary, site, *index) {
            Some(Err(error)) => (Some(error.problem.clone()), error.to_string()),
            Some(Ok(_)) | None => (None, format!("there is no arg{index}")),
        };
        let same = |cause: &&mut Cause| cause.problem == problem && (problem.is_some() || cause.why == why);
        match causes.iter_mut().find(same) {
            Some(cause) => cause.places.push(site.address),
            None => causes.push(Cause {
                problem,
                why,
                places: vec![site.address],
            }),
        }
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
        for cause in causes.iter().take(4) {
            diag = diag.note(format!("{}: {}", cause.left_out(), cause.why));
        }
        return Err(Box::new(diag));
    }
    Ok(causes
        .iter()
        .map(|cause| {
            Diagnostic::warning(Code::UnreadableSite, target, cause.left_out()).label(cause.why.clone())
        })
        .collect())
}

/// Why some places are left out.
struct Cause {
    /// What is wrong with the recipe; `None` if there is none.
    problem: Option<Problem>,
    /// The same in words, of the first of the places.
    why: String,
    places: Vec<u64>,
}

impl Cause {
    fn left_out(&self) -> String {
        const SHOWN: usize = 4;
        match self.places.as_slice() {
            [place] => format!("the call at {place:#x} is left out"),
            places => {
                let mut at: Vec<String> = places
                    .iter()
                    .take(SHOWN)
                    .map(|place| format!("{place:#x}"))
                    .collect();
                if places.len() > SHOWN {
                    at.push(format!("{} more places", places.len() - SHOWN));
                }
                let last = at.pop().unwrap_or_default();
                format!(
                    "the {} calls at {} and {last} are left out",
                    places.len(),
                    at.join(", ")
                )
            }
        }
    }
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
