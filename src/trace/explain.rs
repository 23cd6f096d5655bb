//! Why a function can't be hooked. In: a query and an error of the kernel's. Out: the reason in words, from the kernel's symbols
//! and lists.

use std::sync::LazyLock;

use ksnoop_jit::glob::Patterns;
use ksnoop_jit::select;
use ksnoop_jit::typed::{self, Probe};
use ksnoop_jit::types::{Func, TypeId, Types};
use ksnoop_jit_runtime as runtime;
use runtime::Capabilities;
use runtime::symbols::{Symbol, Traceable};

use super::instances::NO_SYMBOL;
use super::targets::Place;

/// Functions that the programs themselves, or the trampolines around them, run through: a program there could run inside of
/// itself, or wait for a lock that the same CPU holds. Kernels protect themselves from some of these only (`btf_id_deny`,
/// kernel/bpf/verifier.c). kprobes are safe there: no kprobe program runs while another does on the same CPU
/// (`bpf_prog_active`, kernel/trace/bpf_trace.c).
const DENIED: &[&str] = &[
    // Locks that maps and the ring buffer take.
    "*queued_spin_lock_slowpath",
    "queued_read_lock_slowpath",
    "queued_write_lock_slowpath",
    "pv_*spin*",
    "__pv_*spin*",
    "_raw_spin_*",
    "_raw_read_*",
    "_raw_write_*",
    "do_raw_spin_*",
    "rqspinlock_*",
    "lock_acquire",
    "lock_release",
    // Around every program.
    "__bpf_prog_enter*",
    "__bpf_prog_exit*",
    "__bpf_tramp_enter",
    "__bpf_tramp_exit",
    "migrate_disable",
    "migrate_enable",
    "preempt_count_add",
    "preempt_count_sub",
    "__rcu_read_lock",
    "__rcu_read_unlock",
    "rcu_read_unlock_strict",
    "rcu_read_unlock_special",
    // Helpers and maps.
    "bpf_*",
    "____bpf_*",
    "__bpf_*",
    "htab_*",
    "__htab_*",
    "alloc_htab_elem",
    "free_htab_elem",
    "array_map_*",
    "percpu_array_*",
    "pcpu_freelist_*",
    "__pcpu_freelist_*",
    "stack_map_*",
    "copy_from_kernel_nofault*",
    "copy_from_user_nofault",
    "strncpy_from_kernel_nofault",
    "strncpy_from_user_nofault",
    "irq_work_queue",
    "__irq_work_queue_local",
    "ktime_get_mono_fast_ns",
];

/// Whether a function is one that programs themselves run through.
pub(super) fn denied(name: &str) -> bool {
    static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| Patterns::new(DENIED));
    PATTERNS.any(name)
}

/// What the kernel has no trampoline for (`btf_distill_func_proto`, kernel/bpf/btf.c).
fn unsupported(func: &Func, types: &Types) -> Option<String> {
    /// `MAX_BPF_FUNC_ARGS`, include/linux/bpf.h
    const ARGS: usize = 12;
    /// The largest struct that is passed in registers.
    const BYTES: u64 = 16;
    let what = if func.variadic {
        "takes any number of arguments".to_string()
    } else if func.params.len() > ARGS {
        format!("takes more than {ARGS} arguments")
    } else if types.composite(func.ret).is_some() {
        "returns a struct".to_string()
    } else if func
        .params
        .iter()
        .any(|param| types.size_of(param.ty).is_some_and(|size| size > BYTES))
    {
        format!("takes a struct of more than {BYTES} bytes")
    } else {
        return None;
    };
    Some(format!(
        "`{}` {what}, which trampolines do not support",
        func.name
    ))
}

/// Why a BPF trampoline must not be put there.
pub(super) fn no_trampoline(place: &Place, types: &Types, force: bool) -> Option<String> {
    if place.func.id == TypeId::VOID {
        return Some(format!("BTF does not describe `{}`", place.func.name));
    }
    if !place.by_type {
        return Some(format!(
            "BTF does not tell which of the functions `{}` stands for",
            select::stem(&place.func.name)
        ));
    }
    if let Some(why) = unsupported(&place.func, types) {
        return Some(why);
    }
    if denied(&place.func.name) && !force {
        return Some(format!(
            "tracing itself needs `{}`, so that it could deadlock there (`--force` insists)",
            place.func.name
        ));
    }
    // Before 6.3 the kernel looks for the name among all symbols and takes the first (31bf1dbccfb0, "bpf: Fix attaching
    // fentry/fexit/fmod_ret/lsm to modules").
    if place.rival && place.func.id.module != 0 && Capabilities::detect().version() < (6, 3) {
        return Some(format!(
            "this kernel can't tell `{}` in {} from others of the name",
            place.func.name,
            types.module_name(place.func.id.module)
        ));
    }
    None
}

/// Why a function can't be hooked, if the kernel's symbols and lists tell. `chosen` is the symbol that was tried, if it had to be
/// looked up: it may be a copy of the function that is named.
pub(super) fn explanation(query: &typed::Query, chosen: Option<&Symbol>) -> Option<String> {
    let Probe::Function(func) = &query.probe else {
        return None;
    };
    if let Some(symbol) = chosen {
        return of_symbol(symbol);
    }
    let name = &func.name;
    let found = runtime::symbols::Symbols::new().lookup(&[name]).ok()?;
    match found.iter().find(|symbol| symbol.name == *name) {
        None if found.is_empty() => Some(format!(
            "`{name}` is in BTF but not among the kernel's symbols: {NO_SYMBOL}"
        )),
        None => {
            let names: Vec<&str> = found.iter().map(|symbol| symbol.name.as_str()).collect();
            Some(format!(
                "the compiler made copies of `{name}`: {}; name one of them",
                names.join(", ")
            ))
        }
        Some(symbol) => of_symbol(symbol),
    }
}

/// Why one function can't be hooked.
fn of_symbol(symbol: &Symbol) -> Option<String> {
    let name = &symbol.name;
    match runtime::symbols::explain(symbol) {
        Traceable::Yes | Traceable::Unknown(_) => None,
        Traceable::NoSymbol => Some(format!("`{name}` has no symbol")),
        Traceable::DenyListed => Some(format!(
            "`{name}` is on the kernel's list of functions that must not be probed"
        )),
        Traceable::Freed => Some(format!(
            "`{name}` ran while the kernel started (`__init`): its code is gone"
        )),
        Traceable::NoFtraceSite => Some(format!(
            "`{name}` is `notrace`: the kernel has no place to hook it"
        )),
    }
}
