//! The IR: one function for each BPF program, in SSA form with block parameters, without loops. Lowering makes it, code
//! generation reads it. It prints to a text and parses back from it. Never knows the query's syntax.

pub mod build;
mod entities;
#[cfg(any(test, feature = "fuzzing"))]
pub mod generate;
mod helper;
mod inst;
#[cfg(any(test, feature = "fuzzing"))]
pub mod interp;
pub mod parse;
pub mod print;
#[cfg(test)]
mod tests;
pub mod verify;
mod visit;

pub use build::Builder;
pub use entities::{Block, Inst, MapRef, Reloc, Slot, Value};
pub use helper::ArgKind;
pub use inst::{
    BinaryOp, Bits, BlockCall, CmpOp, Helper, InstData, Offset, Operand, Space, Terminator, Type, Width,
};
pub use parse::parse;
pub use print::print;
pub use verify::{IrError, Rule, verify};

use cranelift_entity::{PrimaryMap, SecondaryMap};

use crate::span::Span;
use crate::types::TypeId;

/// One program.
#[derive(Clone, Debug)]
pub struct Func {
    /// The program's name: a C identifier of at most 15 bytes.
    pub name: String,
    /// The ELF section it goes to, which names the program type for loaders: `fentry/ip_rcv`.
    pub section: String,
    /// All blocks.
    pub blocks: PrimaryMap<Block, BlockData>,
    /// The blocks in the order they are emitted; the first is the entry, every jump goes to a later one.
    pub layout: Vec<Block>,
    /// All instructions.
    pub insts: PrimaryMap<Inst, InstData>,
    /// The value that an instruction defines, if any.
    pub results: SecondaryMap<Inst, Option<Value>>,
    /// Why an instruction is there: where in the query, and a remark for the listing.
    pub origins: SecondaryMap<Inst, Origin>,
    /// The type of each value.
    pub values: PrimaryMap<Value, Type>,
    /// The stack slots.
    pub slots: PrimaryMap<Slot, SlotData>,
    /// The relocations.
    pub relocs: PrimaryMap<Reloc, RelocData>,
    /// The maps.
    pub maps: PrimaryMap<MapRef, MapData>,
}

impl Func {
    /// A function without blocks.
    pub fn new(name: String, section: String) -> Func {
        Func {
            name,
            section,
            blocks: PrimaryMap::new(),
            layout: Vec::new(),
            insts: PrimaryMap::new(),
            results: SecondaryMap::new(),
            origins: SecondaryMap::new(),
            values: PrimaryMap::new(),
            slots: PrimaryMap::new(),
            relocs: PrimaryMap::new(),
            maps: PrimaryMap::new(),
        }
    }
}

/// A block.
#[derive(Clone, Debug, Default)]
pub struct BlockData {
    /// Values that the jumps to this block give.
    pub params: Vec<Value>,
    /// Its instructions.
    pub insts: Vec<Inst>,
    /// How it ends; `None` only while it is being built.
    pub end: Option<Terminator>,
    /// Why it ends so.
    pub end_origin: Origin,
    /// A remark for listings: what the block is for.
    pub note: String,
}

/// Why an instruction is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Which query text (index) and where in it.
    pub span: Option<Span>,
    /// A short remark.
    pub note: String,
}

/// A piece of the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotData {
    /// Bytes; the alignment is always 8.
    pub size: u32,
}

/// A CO-RE relocation (`enum bpf_core_relo_kind`, `include/uapi/linux/bpf.h`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelocData {
    /// What the loader is to put in.
    pub kind: RelocKind,
    /// The kernel type it starts from.
    pub root: TypeId,
    /// The way from there: first the index of a `root[]` element, then member indices (through anonymous ones too) and
    /// array indices, all as the kernel's BTF counts them.
    pub access: Vec<u32>,
    /// For people: `struct sk_buff.len`.
    pub text: String,
    /// What it will be on the kernel that this was compiled for; the loader's result is compared with it.
    pub kernel: u64,
}

/// What a relocation asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelocKind {
    /// Byte offset of a field; of a bitfield, of the integer that contains it.
    FieldByteOffset,
    /// Size of a field in bytes.
    FieldByteSize,
    /// Bits to shift a bitfield left in 64, to lose what is above it.
    FieldLshiftU64,
    /// Bits to shift it right after that.
    FieldRshiftU64,
    /// Size of a type in bytes.
    TypeSize,
}

/// A map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapData {
    /// Its name: a C identifier of at most 15 bytes. Programs of one artifact share maps by name.
    pub name: String,
    /// What it is.
    pub kind: MapKind,
    /// Key size in bytes (0 for a ring buffer).
    pub key_size: u32,
    /// Value size in bytes (0 for a ring buffer).
    pub value_size: u32,
    /// Entries, or the size of a ring buffer in bytes.
    pub max_entries: u32,
}

/// The kinds of map (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// `BPF_MAP_TYPE_HASH`.
    Hash,
    /// `BPF_MAP_TYPE_ARRAY`.
    Array,
    /// `BPF_MAP_TYPE_PERCPU_HASH`.
    PercpuHash,
    /// `BPF_MAP_TYPE_PERCPU_ARRAY`.
    PercpuArray,
    /// `BPF_MAP_TYPE_LRU_HASH`.
    LruHash,
    /// `BPF_MAP_TYPE_STACK_TRACE`.
    StackTrace,
    /// `BPF_MAP_TYPE_CGROUP_ARRAY`.
    CgroupArray,
    /// `BPF_MAP_TYPE_RINGBUF`.
    Ringbuf,
}
