//! Why a function can't be hooked. In: a query and an error of the kernel's. Out: the reason in words, from the kernel's symbols
//! and lists.

use ksnoop_jit::typed::{self, Probe};
use ksnoop_jit::types::Types;
use ksnoop_jit_runtime as runtime;
use runtime::Capabilities;

use crate::Failure;

/// Why a trampoline on a module's function would end up on another function: before 6.3 the kernel looks for its name
/// among all symbols and takes the first (31bf1dbccfb0, "bpf: Fix attaching fentry/fexit/fmod_ret/lsm to modules").
pub(super) fn takes_another(query: &typed::Query, types: &Types) -> Option<String> {
    let Probe::Function(func) = &query.probe else {
        return None;
    };
    if func.id.module == 0 || Capabilities::detect().version() >= (6, 3) {
        return None;
    }
    let found = runtime::symbols::Symbols::new().lookup(&[&func.name]).ok()?;
    let own = types.module_name(func.id.module);
    let other = found
        .iter()
        .find(|symbol| symbol.name == func.name && symbol.module.as_deref() != Some(own))?;
    let place = other.module.as_deref().unwrap_or("the kernel");
    Some(format!(
        "this kernel can't tell `{}` in {own} from the one in {place}",
        func.name
    ))
}

/// Adds to an attach error what the kernel's lists say about the function.
pub(super) fn explained(query: &typed::Query, error: runtime::RuntimeError) -> Failure {
    match (&error, explanation(query)) {
        (runtime::RuntimeError::Attach(_), Some(why)) => {
            Failure::Host(anyhow::Error::new(error).context(why))
        }
        _ => error.into(),
    }
}

/// Why a function can't be hooked, if the kernel's symbols and lists tell.
pub(super) fn explanation(query: &typed::Query) -> Option<String> {
    let Probe::Function(func) = &query.probe else {
        return None;
    };
    let name = &func.name;
    let found = runtime::symbols::Symbols::new().lookup(&[name]).ok()?;
    match found.iter().find(|symbol| symbol.name == *name) {
        None if found.is_empty() => Some(format!(
            "`{name}` is in BTF but not among the kernel's symbols: it is inlined everywhere"
        )),
        None => {
            let names: Vec<&str> = found.iter().map(|symbol| symbol.name.as_str()).collect();
            Some(format!(
                "the compiler made copies of `{name}`: {}; name one of them",
                names.join(", ")
            ))
        }
        Some(symbol) => match runtime::symbols::explain(symbol) {
            runtime::symbols::Traceable::Yes | runtime::symbols::Traceable::Unknown(_) => None,
            runtime::symbols::Traceable::NoSymbol => Some(format!("`{name}` has no symbol")),
            runtime::symbols::Traceable::DenyListed => Some(format!(
                "`{name}` is on the kernel's list of functions that must not be probed"
            )),
            runtime::symbols::Traceable::NoFtraceSite => Some(format!(
                "`{name}` is `notrace`: the kernel has no place to hook it"
            )),
        },
    }
}
