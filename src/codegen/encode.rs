//! Allocated machine form to instructions. In: operations over registers, the frame, the local values of relocations.
//! Out: instruction slots with what each is about. Branches become distances here and nowhere earlier. Never emits a
//! write to R10.

use super::CodegenError;
use super::insn::{
    ARSH, ATOMIC_ADD, CALL, CLASS_ALU, CLASS_ALU64, CLASS_LDX, CLASS_ST, CLASS_STX, EXIT, Insn, InsnIndex,
    JA, LDDW, LSH, MODE_ATOMIC, MODE_MEM, MOV, NEG, PSEUDO_KFUNC_CALL, PSEUDO_MAP_FD, SRC_REG, SlotOffset,
    TO_BE, alu_class, alu_op, inverse, jmp_class, jmp_op, size_bits,
};
use super::mach::{Base, Const, MEnd, MFunc, MInst, Reg, Rhs, commutes};
use super::regalloc::{AInst, Allocated, Loc, Source};
use crate::ir::{BinaryOp, Bits, Block, CmpOp, Func, MapRef, Offset, Origin, Reloc, Slot};

/// What the kernel gives a program, in bytes.
pub(crate) const STACK: u32 = 512;

/// An encoded program.
pub(crate) struct Encoded {
    pub(crate) insns: Vec<Emitted>,
}

/// One instruction with what belongs to it.
pub(crate) struct Emitted {
    pub(crate) insn: Insn,
    /// The second slot of a 64-bit immediate.
    pub(crate) high: Option<i32>,
    pub(crate) origin: Origin,
    /// The block that begins here; blocks that became empty begin where the next one does.
    pub(crate) blocks: Vec<Block>,
    pub(crate) reloc: Option<Reloc>,
    pub(crate) map: Option<MapRef>,
}

/// Encodes. `local` gives the value that each relocation has in the local types, `far` whether a value is too big for
/// a load's offset.
pub(crate) fn encode(
    func: &Func,
    machine: &MFunc,
    allocated: &Allocated,
    local: &dyn Fn(Reloc) -> u64,
) -> Result<Encoded, CodegenError> {
    let frame = Frame::new(func, allocated.spills)?;
    let mut encoder = Encoder {
        frame,
        local,
        out: Vec::new(),
        origin: Origin::default(),
        blocks: Vec::new(),
        jumps: Vec::new(),
    };
    let threads = threads(allocated);
    let count = allocated.blocks.len();
    let mut starts = vec![InsnIndex(0); count];
    let used = used(allocated, &threads);
    for at in 0..count {
        starts[at] = InsnIndex(encoder.out.len());
        if !used[at] {
            continue;
        }
        encoder.blocks.extend(machine.blocks[at].ir);
        let original = &machine.blocks[at];
        for inst in &allocated.blocks[at].insts {
            let (AInst::Op { orig, .. } | AInst::Move { orig, .. }) = inst;
            encoder.origin = match original.insts.get(*orig) {
                Some((_, origin)) => origin.clone(),
                None => original.end_origin.clone(),
            };
            match inst {
                AInst::Op { inst, .. } => encoder.op(inst),
                AInst::Move { copy, .. } => encoder.copy(copy.dst, copy.src),
            }
        }
        encoder.origin = original.end_origin.clone();
        let next = (at + 1..count).find(|next| used[*next]);
        encoder.end(&allocated.blocks[at].end, &threads, next);
    }
    encoder.patch(&starts)?;
    Ok(Encoded { insns: encoder.out })
}

/// Where everything is below the frame pointer.
struct Frame {
    slots: Vec<i16>,
    spills: i16,
}

impl Frame {
    fn new(func: &Func, spills: u32) -> Result<Frame, CodegenError> {
        let mut bottom = 0u64;
        let mut offsets = Vec::new();
        for slot in func.slots.values() {
            bottom += u64::from(slot.size.next_multiple_of(8));
            offsets.push(bottom);
        }
        let total = bottom + 8 * u64::from(spills);
        if total > u64::from(STACK) {
            return Err(CodegenError::StackExhausted {
                program: func.name.clone(),
                slots: bottom,
                spills: 8 * u64::from(spills),
            });
        }
        // Everything is at most 512 here.
        Ok(Frame {
            slots: offsets.iter().map(|offset| -(*offset as i16)).collect(),
            spills: -(bottom as i16),
        })
    }

    fn slot(&self, slot: Slot) -> i16 {
        self.slots
            .get(cranelift_entity::EntityRef::index(slot))
            .copied()
            .unwrap_or(0)
    }

    fn spill(&self, number: u32) -> i16 {
        self.spills - 8 * (number as i16 + 1)
    }
}

/// Blocks without anything in them stand for where they jump to.
fn threads(allocated: &Allocated) -> Vec<usize> {
    let count = allocated.blocks.len();
    let mut threads: Vec<usize> = (0..count).collect();
    for at in (0..count).rev() {
        let block = &allocated.blocks[at];
        if let (true, MEnd::Jump { to, .. }) = (block.insts.is_empty(), &block.end) {
            threads[at] = threads[*to];
        }
    }
    threads
}

fn used(allocated: &Allocated, threads: &[usize]) -> Vec<bool> {
    let mut used = vec![false; threads.len()];
    if let Some(first) = threads.first() {
        used[*first] = true;
    }
    for at in 0..threads.len() {
        if used[at] {
            for target in allocated.blocks[at].end.targets() {
                used[threads[target]] = true;
            }
        }
    }
    used
}

const FRAME_POINTER: u8 = 10;

struct Encoder<'a> {
    frame: Frame,
    local: &'a dyn Fn(Reloc) -> u64,
    out: Vec<Emitted>,
    origin: Origin,
    /// Blocks that begin at the next instruction.
    blocks: Vec<Block>,
    /// Jumps and the machine blocks they go to.
    jumps: Vec<(InsnIndex, usize)>,
}

impl Encoder<'_> {
    fn emit(&mut self, insn: Insn) -> &mut Emitted {
        self.out.push(Emitted {
            insn,
            high: None,
            origin: self.origin.clone(),
            blocks: std::mem::take(&mut self.blocks),
            reloc: None,
            map: None,
        });
        let last = self.out.len() - 1;
        &mut self.out[last]
    }

    fn op(&mut self, inst: &MInst<Reg>) {
        match inst {
            // The context and a call's operands were moved into place by the allocator.
            MInst::Entry { .. } => {}
            MInst::Const { dst, value } => self.constant(*dst, *value),
            MInst::Alu {
                op,
                bits,
                dst,
                lhs,
                rhs,
            } => self.alu(*op, *bits, *dst, *lhs, *rhs),
            MInst::AluReloc { op, dst, lhs, reloc } => {
                self.mov(*dst, *lhs);
                let imm = (self.local)(*reloc) as i32;
                let code = alu_op(*op) | CLASS_ALU64;
                self.emit(reg_imm(code, *dst, imm)).reloc = Some(*reloc);
            }
            MInst::Neg { bits, dst, src } => {
                self.mov(*dst, *src);
                self.emit(reg_imm(NEG | alu_class(*bits), *dst, 0));
            }
            MInst::Bswap { width, dst, src } => {
                self.mov(*dst, *src);
                let bits = 8 * width.bytes() as i32;
                self.emit(reg_imm(TO_BE, *dst, bits));
            }
            MInst::Zext { dst, src } => {
                self.emit(reg_reg(MOV | SRC_REG | CLASS_ALU, *dst, *src));
            }
            MInst::Sext { from, dst, src } => {
                self.mov(*dst, *src);
                let shift = 64 - 8 * from.bytes() as i32;
                self.emit(reg_imm(LSH | CLASS_ALU64, *dst, shift));
                self.emit(reg_imm(ARSH | CLASS_ALU64, *dst, shift));
            }
            MInst::Load {
                width,
                dst,
                base,
                offset,
            } => {
                let (src, start) = self.base(*base);
                let (off, reloc) = match offset {
                    Offset::Bytes(offset) => (start + offset, None),
                    Offset::Reloc(reloc) => ((self.local)(*reloc) as i16, Some(*reloc)),
                };
                let code = CLASS_LDX | MODE_MEM | size_bits(*width);
                let dst = dst.number();
                self.emit(Insn {
                    code,
                    dst,
                    src,
                    off,
                    imm: 0,
                })
                .reloc = reloc;
            }
            MInst::Store {
                width,
                base,
                offset,
                value,
            } => {
                let (dst, start) = self.base(*base);
                let (class, src, imm) = match value {
                    Rhs::Reg(reg) => (CLASS_STX, reg.number(), 0),
                    Rhs::Imm(imm) => (CLASS_ST, 0, *imm),
                };
                self.emit(Insn {
                    code: class | MODE_MEM | size_bits(*width),
                    dst,
                    src,
                    off: start + offset,
                    imm,
                });
            }
            MInst::AtomicAdd {
                width,
                base,
                offset,
                value,
            } => {
                let (dst, start) = self.base(*base);
                self.emit(Insn {
                    code: CLASS_STX | MODE_ATOMIC | size_bits(*width),
                    dst,
                    src: value.number(),
                    off: start + offset,
                    imm: ATOMIC_ADD,
                });
            }
            MInst::Call { helper, .. } => {
                self.emit(Insn {
                    code: CALL,
                    src: if helper.kfunc().is_some() {
                        PSEUDO_KFUNC_CALL
                    } else {
                        0
                    },
                    imm: helper.number(),
                    ..Insn::default()
                });
            }
        }
    }

    fn alu(&mut self, op: BinaryOp, bits: Bits, dst: Reg, lhs: Reg, rhs: Rhs<Reg>) {
        let code = alu_op(op) | alu_class(bits);
        match rhs {
            Rhs::Imm(imm) => {
                self.mov(dst, lhs);
                self.emit(reg_imm(code, dst, imm));
            }
            // The allocator lets the two share a register only where their order makes no difference.
            Rhs::Reg(rhs) if rhs == dst && commutes(op) => {
                self.emit(reg_reg(code | SRC_REG, dst, lhs));
            }
            Rhs::Reg(rhs) => {
                self.mov(dst, lhs);
                self.emit(reg_reg(code | SRC_REG, dst, rhs));
            }
        }
    }

    fn mov(&mut self, dst: Reg, src: Reg) {
        if dst != src {
            self.emit(reg_reg(MOV | SRC_REG | CLASS_ALU64, dst, src));
        }
    }

    fn base(&self, base: Base<Reg>) -> (u8, i16) {
        match base {
            Base::Reg(reg) => (reg.number(), 0),
            Base::Slot(slot) => (FRAME_POINTER, self.frame.slot(slot)),
        }
    }

    fn constant(&mut self, dst: Reg, value: Const) {
        match value {
            Const::Int(value) => match i32::try_from(value) {
                Ok(imm) => {
                    self.emit(reg_imm(MOV | CLASS_ALU64, dst, imm));
                }
                // A 32-bit move clears the upper half, in one slot where the 64-bit load takes two.
                Err(_) if u32::try_from(value).is_ok() => {
                    self.emit(reg_imm(MOV | CLASS_ALU, dst, value as i32));
                }
                Err(_) => self.wide(dst, 0, value),
            },
            Const::Slot(slot, offset) => {
                let code = MOV | SRC_REG | CLASS_ALU64;
                self.emit(Insn {
                    code,
                    dst: dst.number(),
                    src: FRAME_POINTER,
                    ..Insn::default()
                });
                let distance = i32::from(self.frame.slot(slot)) + offset;
                self.emit(reg_imm(alu_op(BinaryOp::Add) | CLASS_ALU64, dst, distance));
            }
            Const::Map(map) => {
                self.wide(dst, PSEUDO_MAP_FD, 0);
                if let Some(last) = self.out.last_mut() {
                    last.map = Some(map);
                }
            }
            Const::Reloc(reloc) => {
                let imm = (self.local)(reloc) as i32;
                self.emit(reg_imm(MOV | CLASS_ALU64, dst, imm)).reloc = Some(reloc);
            }
        }
    }

    fn wide(&mut self, dst: Reg, src: u8, value: i64) {
        self.emit(Insn {
            code: LDDW,
            dst: dst.number(),
            src,
            off: 0,
            imm: value as i32,
        })
        .high = Some((value >> 32) as i32);
    }

    fn copy(&mut self, dst: Loc, src: Source) {
        let code = MODE_MEM | size_bits(crate::ir::Width::B8);
        match (dst, src) {
            (Loc::Reg(dst), Source::Loc(Loc::Reg(src))) => self.mov(dst, src),
            (Loc::Reg(dst), Source::Const(value)) => self.constant(dst, value),
            (Loc::Reg(dst), Source::Loc(Loc::Spill(number))) => {
                self.emit(Insn {
                    code: code | CLASS_LDX,
                    dst: dst.number(),
                    src: FRAME_POINTER,
                    off: self.frame.spill(number),
                    imm: 0,
                });
            }
            (Loc::Spill(number), Source::Loc(Loc::Reg(src))) => {
                self.emit(Insn {
                    code: code | CLASS_STX,
                    dst: FRAME_POINTER,
                    src: src.number(),
                    off: self.frame.spill(number),
                    imm: 0,
                });
            }
            (Loc::Spill(number), Source::Const(Const::Int(value))) => {
                self.emit(Insn {
                    code: code | CLASS_ST,
                    dst: FRAME_POINTER,
                    src: 0,
                    off: self.frame.spill(number),
                    // Moves of constants that don't fit go through a register.
                    imm: value as i32,
                });
            }
            (Loc::Spill(_), Source::Loc(Loc::Spill(_)) | Source::Const(_)) => {
                unreachable!("`moves::step` takes these through a register")
            }
        }
    }

    fn end(&mut self, end: &MEnd<Reg>, threads: &[usize], next: Option<usize>) {
        match end {
            MEnd::Return(code) => {
                self.emit(reg_imm(MOV | CLASS_ALU64, Reg::R0, *code));
                self.emit(Insn {
                    code: EXIT,
                    ..Insn::default()
                });
            }
            MEnd::Jump { to, .. } => self.jump(threads[*to], next),
            MEnd::Branch {
                op,
                bits,
                lhs,
                rhs,
                then,
                otherwise,
            } => {
                let (then, otherwise) = (threads[*then], threads[*otherwise]);
                if then == otherwise {
                    self.jump(then, next);
                } else if let (true, Some(inverse)) = (Some(then) == next, inverse(*op)) {
                    self.branch(inverse, *bits, *lhs, *rhs, otherwise);
                } else {
                    self.branch(*op, *bits, *lhs, *rhs, then);
                    self.jump(otherwise, next);
                }
            }
        }
    }

    fn jump(&mut self, to: usize, next: Option<usize>) {
        if Some(to) != next {
            self.jumps.push((InsnIndex(self.out.len()), to));
            self.emit(Insn {
                code: JA,
                ..Insn::default()
            });
        }
    }

    fn branch(&mut self, op: CmpOp, bits: Bits, lhs: Reg, rhs: Rhs<Reg>, to: usize) {
        self.jumps.push((InsnIndex(self.out.len()), to));
        let code = jmp_op(op) | jmp_class(bits);
        self.emit(match rhs {
            Rhs::Reg(rhs) => reg_reg(code | SRC_REG, lhs, rhs),
            Rhs::Imm(imm) => reg_imm(code, lhs, imm),
        });
    }

    /// Fills in the distances of jumps, which count slots, not instructions.
    fn patch(&mut self, starts: &[InsnIndex]) -> Result<(), CodegenError> {
        let mut slots = Vec::with_capacity(self.out.len() + 1);
        let mut next = SlotOffset(0);
        for emitted in &self.out {
            slots.push(next);
            next.0 += 1 + usize::from(emitted.high.is_some());
        }
        slots.push(next);
        for (at, to) in &self.jumps {
            let target = slots[starts[*to].0];
            let distance = target.0 as i64 - slots[at.0].0 as i64 - 1;
            self.out[at.0].insn.off =
                i16::try_from(distance).map_err(|_| CodegenError::TooLong { slots: next.0 })?;
        }
        Ok(())
    }
}

fn reg_imm(code: u8, dst: Reg, imm: i32) -> Insn {
    Insn {
        code,
        dst: dst.number(),
        src: 0,
        off: 0,
        imm,
    }
}

fn reg_reg(code: u8, dst: Reg, src: Reg) -> Insn {
    Insn {
        code,
        dst: dst.number(),
        src: src.number(),
        off: 0,
        imm: 0,
    }
}
