//! The references of the IR: small numbers with a name, which is also how the text syntax writes them. Never
//! anything else.

use cranelift_entity::entity_impl;

/// A basic block: `block3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(u32);
entity_impl!(Block, "block");

/// A value, defined once: `v7`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(u32);
entity_impl!(Value, "v");

/// An instruction: `inst9`. Not part of the text syntax.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inst(u32);
entity_impl!(Inst, "inst");

/// A piece of the BPF stack: `slot0`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u32);
entity_impl!(Slot, "slot");

/// A CO-RE relocation: `reloc2`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reloc(u32);
entity_impl!(Reloc, "reloc");

/// A map: `map1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MapRef(u32);
entity_impl!(MapRef, "map");
