//! Programs for user space: which places of a probe share a program, and how arguments are fetched by their recipes. In: a
//! probe with its places. Out: values. A recipe is compiled, not interpreted: what a place's argument costs is the loads
//! and additions that its recipe needs, and only for arguments that the query reads.
//!
//! Places whose recipes for the used arguments are the same form a group. A few groups get a program each. With more, a
//! program serves many groups, and tells them apart by the cookie that each place is attached with, or, where the kernel
//! has none, by the low bits of the instruction pointer, which loading a file elsewhere does not change.

use super::abi::Location;
use super::expr::width;
use super::program::{Key, Lower};
use super::{ProgramKind, Target};
use crate::ir::{BinaryOp, Bits, CmpOp, Helper, Operand as IrOperand, Space, Type, Value, Width};
use crate::sema::used_arguments;
use crate::span::Span;
use crate::typed::{Event, Memory, UserProbe};
use crate::user::{Address, Index, Operand, Recipe, Register};

/// So many groups have programs of their own.
const PROGRAMS_MAX: usize = 4;
/// What of an instruction pointer stays the same wherever a file is loaded: files are loaded in pages.
const IN_PAGE: u64 = 0xfff;

/// A place that a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its index in the probe's list.
    pub site: usize,
    /// The cookie that it has to be attached with, if the program asks for one.
    pub cookie: Option<u64>,
}

/// The places of one program, by group.
#[derive(Clone, Debug, Default)]
pub(super) struct Dispatch {
    groups: Vec<Vec<usize>>,
    /// For each group, the keys that mean it: cookies or low bits of the instruction pointer.
    keys: Vec<Vec<i32>>,
    by_cookie: bool,
}

impl Dispatch {
    /// A program for all places, whose recipes are the same.
    pub(super) fn of_all(probe: &UserProbe) -> Dispatch {
        Dispatch {
            groups: vec![(0..probe.sites.len()).collect()],
            keys: vec![Vec::new()],
            by_cookie: false,
        }
    }

    /// The places and what they are attached with.
    pub(super) fn served(&self) -> Vec<Served> {
        let numbered = self.groups.iter().enumerate();
        numbered
            .flat_map(|(group, sites)| {
                sites.iter().map(move |site| Served {
                    site: *site,
                    cookie: (self.by_cookie && self.groups.len() > 1).then_some(group as u64),
                })
            })
            .collect()
    }
}

/// Deals the places of a probe out to programs.
pub(super) fn programs(probe: &UserProbe, event: &Event, target: &Target, aggregated: bool) -> Vec<Dispatch> {
    let used = used_arguments(std::slice::from_ref(event));
    let recipes = |site: usize| -> Vec<Option<&Recipe>> {
        used.iter()
            .map(|index| probe.sites[site].args.get(*index).and_then(Option::as_ref))
            .collect()
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for site in 0..probe.sites.len() {
        match groups.iter_mut().find(|group| recipes(group[0]) == recipes(site)) {
            Some(group) => group.push(site),
            None => groups.push(vec![site]),
        }
    }
    // What is aggregated is kept in one map, which is a program's own.
    let most = if aggregated { 1 } else { PROGRAMS_MAX };
    if groups.len() <= most {
        let alone = |group: Vec<usize>| Dispatch {
            keys: vec![Vec::new()],
            groups: vec![group],
            by_cookie: target.cookies,
        };
        return groups.into_iter().map(alone).collect();
    }
    if target.cookies {
        let keys = (0..groups.len()).map(|group| vec![group as i32]).collect();
        return vec![Dispatch {
            groups,
            keys,
            by_cookie: true,
        }];
    }
    let mut programs: Vec<Dispatch> = Vec::new();
    for group in groups {
        let keys: Vec<i32> = group
            .iter()
            .map(|site| (probe.sites[*site].address & IN_PAGE) as i32)
            .collect();
        // Two groups whose places lie at the same distance from a page's start can't share a program.
        let free = programs
            .iter_mut()
            .find(|program| !program.keys.iter().flatten().any(|key| keys.contains(key)));
        match free {
            Some(program) => {
                program.groups.push(group);
                program.keys.push(keys);
            }
            None => programs.push(Dispatch {
                groups: vec![group],
                keys: vec![keys],
                by_cookie: false,
            }),
        }
    }
    programs
}

/// Where the arguments are for a program of these places.
pub(super) fn arguments(probe: &UserProbe, dispatch: &Dispatch) -> Vec<Location> {
    (0..probe.func.params.len())
        .map(|index| {
            let recipes: Option<Vec<Recipe>> = dispatch
                .groups
                .iter()
                .map(|group| probe.sites.get(*group.first()?)?.args.get(index)?.clone())
                .collect();
            recipes.map_or(Location::Unknown, Location::User)
        })
        .collect()
}

/// Where a caller finds the return value.
pub(super) fn returned(probe: &UserProbe, size: u64) -> Location {
    match size {
        1..=8 => Location::User(vec![Recipe {
            size: 8,
            signed: false,
            operand: Operand::Register(probe.arch.returned()),
        }]),
        _ => Location::Unknown,
    }
}

impl Lower<'_> {
    /// An argument whose recipe depends on the group. With a step, memory that can't be read is its fault; without one it
    /// gives 0.
    pub(super) fn by_recipes(&mut self, recipes: &[Recipe], step: Option<Span>) -> Value {
        let mut kinds: Vec<(&Recipe, Vec<i32>)> = Vec::new();
        for (group, recipe) in recipes.iter().enumerate() {
            let keys = self.dispatch.keys.get(group).cloned().unwrap_or_default();
            match kinds.iter_mut().find(|(known, _)| *known == recipe) {
                Some((_, all)) => all.extend(keys),
                None => kinds.push((recipe, keys)),
            }
        }
        let Some(((last, _), others)) = kinds.split_last() else {
            unreachable!("bug in ksnoop-jit: an argument without a recipe");
        };
        if others.is_empty() {
            return self.fetch(last, step);
        }
        let which = self.place();
        let (join, params) = self.b.block_with("the argument", &[Type::Int]);
        let known = self.known.len();
        for (recipe, keys) in others {
            let here = self.b.block("fetched so");
            let mut next = here;
            for key in keys {
                next = self.b.block("");
                self.b.branch(CmpOp::Eq, Bits::W64, which, *key, here, next);
                self.b.switch_to(next);
            }
            self.b.switch_to(here);
            let value = self.fetch(recipe, step);
            self.known.truncate(known);
            self.b.jump(join, &[value]);
            self.b.switch_to(next);
        }
        let value = self.fetch(last, step);
        self.known.truncate(known);
        self.b.jump(join, &[value]);
        self.b.switch_to(join);
        params[0]
    }

    /// What tells the groups apart.
    fn place(&mut self) -> Value {
        let key = Key::Word(Helper::GetAttachCookie);
        if let Some(value) = self.find(&key) {
            return value;
        }
        let ctx = self.ctx;
        let value = if self.dispatch.by_cookie {
            self.b.note("which place?");
            self.call(Helper::GetAttachCookie, &[ctx.into()])
        } else {
            self.b.note("which place? where in its page");
            let ip = self.register(self.instruction_pointer());
            self.b.binary(BinaryOp::And, Bits::W64, ip, IN_PAGE as i32)
        };
        self.learn(key, value);
        value
    }

    fn instruction_pointer(&self) -> Register {
        match self.query.probe.user() {
            Some(probe) => probe.arch.instruction_pointer(),
            None => unreachable!("bug in ksnoop-jit: a program's place in a kernel probe"),
        }
    }

    /// One argument, extended to 64 bits by its recipe.
    fn fetch(&mut self, recipe: &Recipe, step: Option<Span>) -> Value {
        let (raw, size) = match &recipe.operand {
            Operand::Constant(value) => return self.b.iconst(recipe.cut(*value)),
            Operand::Register(register) => {
                let part = Register {
                    size: register.size.min(recipe.size),
                    ..*register
                };
                (self.register(part), part.size)
            }
            Operand::Memory(address) => {
                let address = self.recipe_address(address);
                let step = step.map(|span| (span, address));
                let slot = self.scratch();
                let to = self.b.as_ptr(Space::User, address);
                let raw = self.probe_into(slot, u32::from(recipe.size), to, Memory::User, step);
                (raw, recipe.size)
            }
            Operand::AddressOf(address) => {
                let raw = self.recipe_address(address);
                if recipe.size < 8 {
                    return self.b.extend(width(u32::from(recipe.size)), recipe.signed, raw);
                }
                (raw, 8)
            }
        };
        // Loads zero-extend.
        if recipe.signed && size < 8 {
            self.b.extend(width(u32::from(size)), true, raw)
        } else {
            raw
        }
    }

    /// A register or a part of one, zero-extended. The context may be loaded from in parts (`kprobe_prog_is_valid_access`,
    /// kernel/trace/bpf_trace.c).
    pub(super) fn register(&mut self, register: Register) -> Value {
        let ctx = self.ctx;
        self.b
            .load(Type::Int, width(u32::from(register.size)), ctx, register.offset)
    }

    /// An address as a number.
    fn recipe_address(&mut self, address: &Address) -> Value {
        let base = address.base.map(|register| self.register(register));
        let index = address.index.map(|index| self.scaled(index));
        let sum = match (base, index) {
            (Some(base), Some(index)) => Some(self.b.binary(BinaryOp::Add, Bits::W64, base, index)),
            (base, index) => base.or(index),
        };
        match (sum, address.offset) {
            (Some(sum), 0) => sum,
            (Some(sum), offset) => {
                let offset = match i32::try_from(offset) {
                    Ok(offset) => IrOperand::Imm(offset),
                    Err(_) => self.b.iconst(offset).into(),
                };
                self.b.binary(BinaryOp::Add, Bits::W64, sum, offset)
            }
            (None, offset) => self.b.iconst(offset),
        }
    }

    fn scaled(&mut self, index: Index) -> Value {
        let value = self.register(index.register);
        let value = if index.signed && index.register.size < 8 {
            self.b.extend(width(u32::from(index.register.size)), true, value)
        } else {
            value
        };
        match index.scale.trailing_zeros() {
            0 => value,
            by => self.b.binary(BinaryOp::Shl, Bits::W64, value, by as i32),
        }
    }

    /// The stack pointer as it was at the function's entry.
    pub(super) fn user_frame(&mut self) -> Value {
        let Some(probe) = self.query.probe.user() else {
            unreachable!("bug in ksnoop-jit: a program's stack in a kernel probe");
        };
        let arch = probe.arch;
        let ctx = self.ctx;
        let sp = self
            .b
            .load(Type::Int, Width::B8, ctx, arch.stack_pointer().offset);
        match (self.kind, arch.popped()) {
            (ProgramKind::Uretprobe, popped @ 1..) => self.b.add(sp, -popped),
            (_, _) => sp,
        }
    }
}
