//! Call stacks: which frames are shown. In: return addresses as the kernel gave them, and symbols. Out: frames. What the kernel
//! ran to get at the stack, at its inner end, is left out: it is about the tracer and not about what is traced.

use super::bytes::u64_at;
use super::sink::Frame;
use super::{Place, Symbols};
use crate::wire::OWN_FRAMES;

/// The frames of a value of which `length` bytes are frames, and whether all of those bytes are there. `None` if not even the
/// process is.
pub(super) fn item<'s>(
    value: &[u8],
    length: u32,
    depth: u32,
    user: bool,
    symbols: &'s dyn Symbols,
) -> Option<(Vec<Frame<'s>>, bool)> {
    let (owner, bytes) = match user {
        true => (Owner::Process(u64_at(value, 0)? as u32), value.get(8..)?),
        false => (Owner::Kernel, value),
    };
    let wanted = length as usize;
    let inside = bytes.get(..wanted).unwrap_or(bytes);
    Some((frames(inside, owner, depth, symbols), inside.len() == wanted))
}

/// Where a stack comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The kernel.
    Kernel,
    /// This process.
    Process(u32),
}

/// The frames in these bytes, innermost first.
fn frames<'s>(bytes: &[u8], owner: Owner, depth: u32, symbols: &'s dyn Symbols) -> Vec<Frame<'s>> {
    let addresses = (0u32..)
        .step_by(8)
        .map_while(|at| u64_at(bytes, at))
        .take_while(|address| *address != 0);
    let place = |address: u64| match owner {
        Owner::Kernel => symbols.resolve(address).map_or(Place::Unknown, Place::Symbol),
        Owner::Process(pid) => symbols.resolve_user(pid, address),
    };
    let frames: Vec<Frame<'s>> = addresses
        .enumerate()
        .map(|(index, address)| Frame {
            address,
            place: returned_to(index, address, &place),
        })
        .collect();
    let mut frames = match owner {
        Owner::Kernel => outside(frames),
        Owner::Process(_) => frames,
    };
    frames.truncate(depth as usize);
    frames
}

/// Where a frame lies. All but the innermost hold where a call returns to: behind the last instruction of a function, if what it
/// calls never returns, and that is where the next function begins.
fn returned_to<'s>(index: usize, address: u64, place: &impl Fn(u64) -> Place<'s>) -> Place<'s> {
    let found = place(address);
    let begins = matches!(&found, Place::Symbol(symbol) if symbol.offset == 0);
    if index == 0 || !begins {
        return found;
    }
    match place(address - 1) {
        Place::Symbol(mut symbol) => {
            symbol.offset += 1;
            Place::Symbol(symbol)
        }
        Place::Mapped { .. } | Place::Unknown | Place::Gone => found,
    }
}

/// Drops the frames of the tracer: up to the last of the first few that belongs to it.
fn outside(mut frames: Vec<Frame<'_>>) -> Vec<Frame<'_>> {
    let own = frames.iter().take(OWN_FRAMES as usize).rposition(is_tracers);
    if let Some(own) = own {
        frames.drain(..=own);
    }
    frames
}

/// Whether a frame is of generated code or of what calls it: a trampoline (kernel/bpf/trampoline.c), a tracepoint's probe
/// (kernel/trace/bpf_trace.c, include/linux/tracepoint.h).
fn is_tracers(frame: &Frame<'_>) -> bool {
    let Place::Symbol(symbol) = &frame.place else {
        return false;
    };
    symbol.module.as_deref() == Some("bpf")
        || [
            "bpf_get_stack",
            "bpf_prog_",
            "bpf_trampoline_",
            "bpf_trace_run",
            "__bpf_trace_",
            "__traceiter_",
            "__bpf_prog_",
        ]
        .iter()
        .any(|prefix| symbol.name.starts_with(prefix))
}
