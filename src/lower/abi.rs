//! Where arguments and return values are when a probe runs: in `struct pt_regs` by the System V x86-64 calling convention,
//! or in the array of 64-bit slots that BPF trampolines and raw tracepoints pass. In: a prototype. Out: locations.
//! Never emits anything.
//!
//! Sources: `arch/x86/include/uapi/asm/ptrace.h` (offsets), the x86-64 psABI 3.2.3 (classification; only the INTEGER
//! class occurs in the kernel), `arch/x86/net/bpf_jit_comp.c` (trampoline slots).

use crate::typed::{Event, Expr, ExprKind};
use crate::types::{Func, Type, TypeId, Types};
use crate::user::Recipe;

/// Byte offsets in `struct pt_regs` of the six argument registers, in order.
const ARG_REGS: [i16; 6] = [112, 104, 96, 88, 72, 64];
/// `ax` and `dx`, which carry return values.
const RETURN_REGS: [i16; 2] = [80, 96];
/// `sp`.
pub(super) const SP: i16 = 152;

/// Where a value is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Location {
    /// In these 8-byte words of the context, in this order.
    Words(Vec<i16>),
    /// In what the entry kept for the return, at this byte offset.
    Saved(u32),
    /// On the stack, so many bytes above the stack pointer at entry (where the return address is).
    Stack(i16),
    /// In memory, at the address that this word of the context holds.
    Behind(i16),
    /// What `bpf_get_func_ret` gives.
    Result,
    /// In a program: where these recipes say, one for each group of places.
    User(Vec<Recipe>),
    /// Nowhere that can be told.
    Unknown,
}

/// Where programs that serve many functions find what a query mentions. Functions with an equal one, and equal events, can
/// share a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    args: Vec<(usize, Location, Location)>,
    ret: Option<(Location, Location)>,
    /// A trampoline passes some of its arguments wrongly.
    misread: bool,
}

/// The placement of what the events mention, in a function that they were made for.
pub fn placement(types: &Types, func: &Func, events: &[Event]) -> Placement {
    let mut args: Vec<usize> = Vec::new();
    let mut ret = false;
    let mut look = |expr: &Expr| {
        ret |= expr.kind == ExprKind::Return;
        if let ExprKind::Arg(index) = expr.kind
            && !args.contains(&index)
        {
            args.push(index);
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
    args.sort_unstable();
    let (slots, entry) = (slots(types, func), entry(types, func));
    Placement {
        args: args
            .into_iter()
            .filter_map(|index| Some((index, slots.get(index)?.clone(), entry.get(index)?.clone())))
            .collect(),
        ret: ret.then(|| (result(types, func), at_return(types, func))),
        misread: misread(types, func).is_some(),
    }
}

/// The slots of a trampoline's or raw tracepoint's context: ⌈size/8⌉ for each argument, in order.
pub(super) fn slots(types: &Types, func: &Func) -> Vec<Location> {
    let mut next = 0i16;
    func.params
        .iter()
        .map(|param| {
            let words = words_of(types, param.ty);
            let location = Location::Words((0..words).map(|word| (next + word) * 8).collect());
            next += words;
            location
        })
        .collect()
}

/// The first argument that a trampoline of a kernel function passes wrongly, and all behind it: a struct with a
/// misaligned member is on the stack, but is taken from registers.
pub(super) fn misread(types: &Types, func: &Func) -> Option<usize> {
    func.params.iter().position(|param| {
        types
            .composite(param.ty)
            .is_some_and(|composite| composite.size <= 16)
            && !aligned(types, param.ty, 0, 0)
    })
}

/// So many words of a trampoline's context can a program load (`MAX_BPF_FUNC_ARGS`, include/linux/bpf.h).
const CONTEXT_WORDS: i16 = 12;

/// Where a trampoline puts the return value: behind the arguments.
pub(super) fn return_slot(types: &Types, func: &Func) -> Location {
    let used: i16 = func.params.iter().map(|param| words_of(types, param.ty)).sum();
    let words = words_of(types, func.ret);
    if words > 1 || used + words > CONTEXT_WORDS || in_memory(types, func.ret) {
        // A trampoline keeps one register of it only, and the verifier lets nobody look behind the last argument that
        // a function may have.
        return Location::Unknown;
    }
    Location::Words(vec![used * 8])
}

/// Where a program at the returns of many functions finds what they return: behind arguments whose number it does not know, so
/// that it has to ask.
pub(super) fn result(types: &Types, func: &Func) -> Location {
    match words_of(types, func.ret) {
        0 => Location::Words(Vec::new()),
        1 if !in_memory(types, func.ret) => Location::Result,
        _ => Location::Unknown,
    }
}

/// Where a function finds its arguments at entry.
pub(super) fn entry(types: &Types, func: &Func) -> Vec<Location> {
    // A struct that is returned in memory takes the first register for the address of where to.
    let hidden = in_memory(types, func.ret);
    let mut free = &ARG_REGS[usize::from(hidden)..];
    let mut stack = 8i16;
    func.params
        .iter()
        .map(|param| {
            let size = types.size_of(param.ty).unwrap_or(8);
            let words = words_of(types, param.ty) as usize;
            let in_memory = size > 16 || !aligned(types, param.ty, 0, 0);
            if size == 0 {
                Location::Words(Vec::new())
            } else if !in_memory && words <= free.len() {
                let (now, rest) = free.split_at(words);
                free = rest;
                Location::Words(now.to_vec())
            } else {
                let here = stack;
                stack = stack.saturating_add(words as i16 * 8);
                Location::Stack(here)
            }
        })
        .collect()
}

/// Where a caller finds the return value.
pub(super) fn at_return(types: &Types, func: &Func) -> Location {
    if in_memory(types, func.ret) {
        // Where the caller wanted it, and the function says again where that is.
        return Location::Behind(RETURN_REGS[0]);
    }
    match types.size_of(func.ret) {
        Some(0) => Location::Words(Vec::new()),
        Some(1..=8) => Location::Words(vec![RETURN_REGS[0]]),
        Some(_) => Location::Words(RETURN_REGS.to_vec()),
        None => Location::Unknown,
    }
}

fn words_of(types: &Types, ty: TypeId) -> i16 {
    let size = types.size_of(ty).unwrap_or(8).min(1 << 12);
    size.div_ceil(8) as i16
}

/// Whether a value of that type is passed and returned in memory (psABI 3.2.3: more than two words, or a member that is not aligned).
fn in_memory(types: &Types, ty: TypeId) -> bool {
    types
        .composite(ty)
        .is_some_and(|composite| composite.size > 16 || !aligned(types, ty, 0, 0))
}

/// Whether every member lies at a multiple of its size: a struct with one that doesn't is passed in memory.
fn aligned(types: &Types, ty: TypeId, offset: u64, depth: u32) -> bool {
    if depth > 16 {
        return false;
    }
    match types.get_stripped(ty) {
        Type::Struct(composite) | Type::Union(composite) => composite.members.iter().all(|member| {
            member.bitfield.is_some()
                || aligned(
                    types,
                    member.ty,
                    offset + u64::from(member.bit_offset / 8),
                    depth + 1,
                )
        }),
        Type::Array { elem, .. } => aligned(types, elem, offset, depth + 1),
        Type::Void
        | Type::Int(_)
        | Type::Float { .. }
        | Type::Ptr(_)
        | Type::Enum(_)
        | Type::Fwd { .. }
        | Type::Typedef(_)
        | Type::Const(_)
        | Type::Volatile(_)
        | Type::Restrict(_)
        | Type::TypeTag { .. }
        | Type::Func { .. }
        | Type::FuncProto { .. }
        | Type::Other => types
            .size_of(ty)
            .is_none_or(|size| size == 0 || offset.is_multiple_of(size)),
    }
}
