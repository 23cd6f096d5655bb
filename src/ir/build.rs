//! Builds a function instruction by instruction. In: what lowering wants to happen. Out: a [`Func`]. Types of results
//! follow from the instruction; never checks more than that every block has an end — [`super::verify`] does the rest.

use std::fmt;

use super::inst::{
    BinaryOp, Bits, BlockCall, CmpOp, Helper, InstData, Offset, Operand, Space, Terminator, Type, Width,
};
use super::{Block, BlockData, Func, MapData, MapRef, Origin, Reloc, RelocData, Slot, SlotData, Value};
use crate::span::Span;

/// A function in the making.
pub struct Builder {
    func: Func,
    current: Option<Block>,
    origin: Origin,
}

/// A block without an end, or one that was made and never switched to but is jumped to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The blocks.
    pub blocks: Vec<Block>,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.blocks.iter().map(ToString::to_string).collect();
        write!(f, "blocks without an end: {}", names.join(", "))
    }
}

impl Builder {
    /// Starts a function; see [`Func::name`] and [`Func::section`].
    pub fn new(name: impl Into<String>, section: impl Into<String>) -> Builder {
        Builder {
            func: Func::new(name.into(), section.into()),
            current: None,
            origin: Origin::default(),
        }
    }

    /// Makes a block without parameters. It gets its place when it is switched to.
    pub fn block(&mut self, note: impl Into<String>) -> Block {
        self.func.blocks.push(BlockData {
            note: note.into(),
            ..BlockData::default()
        })
    }

    /// Makes a block with parameters.
    pub fn block_with(&mut self, note: impl Into<String>, params: &[Type]) -> (Block, Vec<Value>) {
        let block = self.block(note);
        let values = params.iter().map(|ty| self.param(block, *ty)).collect();
        (block, values)
    }

    /// Gives a block one more parameter.
    pub fn param(&mut self, block: Block, ty: Type) -> Value {
        let value = self.func.values.push(ty);
        self.func.blocks[block].params.push(value);
        value
    }

    /// What follows goes to the end of this block. The first time it is switched to, a block takes its place behind all
    /// others in the order of emission.
    pub fn switch_to(&mut self, block: Block) {
        if !self.func.layout.contains(&block) {
            self.func.layout.push(block);
        }
        self.current = Some(block);
    }

    /// The block that instructions go to; `None` before the first and after a terminator.
    pub fn current(&self) -> Option<Block> {
        self.current
    }

    /// What follows is there because of this part of the query; the note says what it does.
    pub fn at(&mut self, span: impl Into<Option<Span>>, note: impl Into<String>) {
        self.origin = Origin {
            span: span.into(),
            note: note.into(),
        };
    }

    /// Changes the note only.
    pub fn note(&mut self, note: impl Into<String>) {
        self.origin.note = note.into();
    }

    /// The function so far.
    pub fn func(&self) -> &Func {
        &self.func
    }

    /// The type of a value.
    pub fn type_of(&self, value: Value) -> Type {
        self.func.values[value]
    }

    /// A new stack slot.
    pub fn slot(&mut self, size: u32) -> Slot {
        self.func.slots.push(SlotData { size })
    }

    /// A relocation; the same one again if there is an equal one.
    pub fn reloc(&mut self, data: RelocData) -> Reloc {
        if let Some((known, _)) = self.func.relocs.iter().find(|(_, known)| **known == data) {
            return known;
        }
        self.func.relocs.push(data)
    }

    /// A map; the same one again if there is an equal one.
    pub fn map(&mut self, data: MapData) -> MapRef {
        if let Some((known, _)) = self.func.maps.iter().find(|(_, known)| **known == data) {
            return known;
        }
        self.func.maps.push(data)
    }

    /// Appends any instruction; `ty` is the type of its result, if it has one. With no current block (after a
    /// terminator) it goes to a new block that nothing reaches.
    pub fn ins(&mut self, data: InstData, ty: Option<Type>) -> Option<Value> {
        let block = self.reachable_or_new();
        let inst = self.func.insts.push(data);
        let result = ty.map(|ty| self.func.values.push(ty));
        self.func.results[inst] = result;
        self.func.origins[inst] = self.origin.clone();
        self.func.blocks[block].insts.push(inst);
        result
    }

    /// The program's context. Must be the first instruction.
    pub fn ctx(&mut self) -> Value {
        self.def(InstData::Ctx)
    }

    /// A constant.
    pub fn iconst(&mut self, value: i64) -> Value {
        self.def(InstData::Iconst(value))
    }

    /// Arithmetic.
    pub fn binary(&mut self, op: BinaryOp, bits: Bits, lhs: Value, rhs: impl Into<Operand>) -> Value {
        let rhs = rhs.into();
        self.def(InstData::Binary { op, bits, lhs, rhs })
    }

    /// 64-bit addition, also of a number to a pointer.
    pub fn add(&mut self, lhs: Value, rhs: impl Into<Operand>) -> Value {
        self.binary(BinaryOp::Add, Bits::W64, lhs, rhs)
    }

    /// Negation.
    pub fn neg(&mut self, bits: Bits, src: Value) -> Value {
        self.def(InstData::Neg { bits, src })
    }

    /// Sign- or zero-extension of the low bytes.
    pub fn extend(&mut self, from: Width, signed: bool, src: Value) -> Value {
        self.def(InstData::Extend { from, signed, src })
    }

    /// Reversal of the low bytes.
    pub fn bswap(&mut self, width: Width, src: Value) -> Value {
        self.def(InstData::Bswap { width, src })
    }

    /// A load at a byte offset.
    pub fn load(&mut self, ty: Type, width: Width, base: Value, offset: i16) -> Value {
        let offset = Offset::Bytes(offset);
        self.def(InstData::Load {
            ty,
            width,
            base,
            offset,
        })
    }

    /// A load at a relocated offset.
    pub fn load_field(&mut self, ty: Type, width: Width, base: Value, reloc: Reloc) -> Value {
        let offset = Offset::Reloc(reloc);
        self.def(InstData::Load {
            ty,
            width,
            base,
            offset,
        })
    }

    /// A store.
    pub fn store(&mut self, width: Width, base: Value, offset: i16, value: impl Into<Operand>) {
        let value = value.into();
        self.ins(
            InstData::Store {
                width,
                base,
                offset,
                value,
            },
            None,
        );
    }

    /// An addition to memory that nothing can come between.
    pub fn atomic_add(&mut self, width: Width, base: Value, offset: i16, value: Value) {
        self.ins(
            InstData::AtomicAdd {
                width,
                base,
                offset,
                value,
            },
            None,
        );
    }

    /// The address of a field.
    pub fn field_addr(&mut self, base: Value, reloc: Reloc) -> Value {
        self.def(InstData::FieldAddr { base, reloc })
    }

    /// A relocated constant.
    pub fn reloc_const(&mut self, reloc: Reloc) -> Value {
        self.def(InstData::RelocConst(reloc))
    }

    /// A shift by a relocated number of bits.
    pub fn reloc_shift(&mut self, op: BinaryOp, src: Value, reloc: Reloc) -> Value {
        self.def(InstData::RelocShift { op, src, reloc })
    }

    /// The address of a stack slot.
    pub fn slot_addr(&mut self, slot: Slot) -> Value {
        self.def(InstData::SlotAddr(slot))
    }

    /// A map, for a helper.
    pub fn map_addr(&mut self, map: MapRef) -> Value {
        self.def(InstData::MapAddr(map))
    }

    /// A helper call; the result, unless the helper has none.
    pub fn call(&mut self, helper: Helper, args: &[Operand]) -> Option<Value> {
        let args = args.to_vec();
        self.ins(InstData::Call { helper, args }, helper.result())
    }

    /// The same bits as another type.
    pub fn cast(&mut self, ty: Type, src: Value) -> Value {
        self.def(InstData::Cast { ty, src })
    }

    /// The same bits as an address.
    pub fn as_ptr(&mut self, space: Space, src: Value) -> Value {
        self.cast(Type::Ptr(space), src)
    }

    /// Whether any block that has ended may go to this one.
    pub fn is_target(&self, block: Block) -> bool {
        let ends = self.func.blocks.values().filter_map(|data| data.end.as_ref());
        ends.flat_map(Terminator::targets).any(|to| to.block == block)
    }

    /// Ends the block: go on there.
    pub fn jump(&mut self, block: Block, args: &[Value]) {
        self.end(Terminator::Jump(call(block, args)));
    }

    /// Ends the block: if the comparison holds to one block, else to the other, neither of which has parameters.
    pub fn branch(
        &mut self,
        op: CmpOp,
        bits: Bits,
        lhs: Value,
        rhs: impl Into<Operand>,
        then: Block,
        otherwise: Block,
    ) {
        self.branch_with(op, bits, lhs, rhs, call(then, &[]), call(otherwise, &[]));
    }

    /// Ends the block: if the comparison holds to one block, else to the other, with arguments.
    pub fn branch_with(
        &mut self,
        op: CmpOp,
        bits: Bits,
        lhs: Value,
        rhs: impl Into<Operand>,
        then: BlockCall,
        otherwise: BlockCall,
    ) {
        self.end(Terminator::Branch {
            op,
            bits,
            lhs,
            rhs: rhs.into(),
            then,
            otherwise,
        });
    }

    /// Ends the block and the program.
    pub fn ret(&mut self, code: i32) {
        self.end(Terminator::Return(code));
    }

    /// Ends the block with any terminator.
    pub fn end(&mut self, terminator: Terminator) {
        let block = self.reachable_or_new();
        let origin = self.origin.clone();
        let data = &mut self.func.blocks[block];
        data.end = Some(terminator);
        data.end_origin = origin;
        self.current = None;
    }

    /// The function, if every block that was placed or is jumped to has an end.
    pub fn finish(self) -> Result<Func, Unfinished> {
        let mut blocks: Vec<Block> = Vec::new();
        for block in &self.func.layout {
            match &self.func.blocks[*block].end {
                None => blocks.push(*block),
                Some(end) => {
                    let missing = |to: &&BlockCall| !self.func.layout.contains(&to.block);
                    blocks.extend(end.targets().into_iter().filter(missing).map(|to| to.block));
                }
            }
        }
        blocks.sort_unstable();
        blocks.dedup();
        if blocks.is_empty() {
            Ok(self.func)
        } else {
            Err(Unfinished { blocks })
        }
    }

    fn reachable_or_new(&mut self) -> Block {
        match self.current {
            Some(block) => block,
            None => {
                let block = self.block("not reached");
                self.switch_to(block);
                block
            }
        }
    }

    /// An instruction that always has a result.
    fn def(&mut self, data: InstData) -> Value {
        let ty = data.result_type(|value| self.func.values[value]);
        match self.ins(data, Some(ty.unwrap_or(Type::Int))) {
            Some(value) => value,
            None => unreachable!("a type was given, so there is a value"),
        }
    }
}

/// A jump's target with its arguments.
pub fn call(block: Block, args: &[Value]) -> BlockCall {
    BlockCall {
        block,
        args: args.to_vec(),
    }
}

impl From<Value> for Operand {
    fn from(value: Value) -> Operand {
        Operand::Value(value)
    }
}

impl From<i32> for Operand {
    fn from(value: i32) -> Operand {
        Operand::Imm(value)
    }
}
