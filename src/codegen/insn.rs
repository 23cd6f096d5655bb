//! BPF's encoded instructions and the numbers they are made of (`include/uapi/linux/bpf.h`). Plain data. Only
//! instructions that every kernel since 5.1 knows; never one of version 4.

use crate::ir::{BinaryOp, Bits, CmpOp, Width};

/// One 8-byte instruction slot. A 64-bit immediate load takes two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Insn {
    /// Operation.
    pub code: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register, or what kind of immediate it is.
    pub src: u8,
    /// Distance of a memory access or a jump.
    pub off: i16,
    /// Immediate.
    pub imm: i32,
}

/// Which slot of a program. Jump distances and relocations count slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct SlotOffset(pub(crate) usize);

/// Which instruction of a program, a two-slot one counted once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct InsnIndex(pub(crate) usize);

/// `BPF_PSEUDO_MAP_FD`: the immediate of a 64-bit load is a map's file descriptor.
pub(crate) const PSEUDO_MAP_FD: u8 = 1;
/// `BPF_PSEUDO_KFUNC_CALL`: the immediate of a call is the BTF id of a kernel function.
pub(crate) const PSEUDO_KFUNC_CALL: u8 = 2;

pub(crate) const LDDW: u8 = 0x18;
pub(crate) const CALL: u8 = 0x85;
pub(crate) const EXIT: u8 = 0x95;
pub(crate) const JA: u8 = 0x05;

pub(crate) const CLASS_LDX: u8 = 1;
pub(crate) const CLASS_ST: u8 = 2;
pub(crate) const CLASS_STX: u8 = 3;
pub(crate) const CLASS_ALU: u8 = 4;
pub(crate) const CLASS_JMP: u8 = 5;
pub(crate) const CLASS_JMP32: u8 = 6;
pub(crate) const CLASS_ALU64: u8 = 7;

pub(crate) const MODE_MEM: u8 = 0x60;
/// `BPF_ATOMIC`, which was called `BPF_XADD` before 5.12, when it could only add.
pub(crate) const MODE_ATOMIC: u8 = 0xc0;
/// The immediate of an atomic addition: `BPF_ADD`.
pub(crate) const ATOMIC_ADD: i32 = 0;
/// The right operand is a register.
pub(crate) const SRC_REG: u8 = 0x08;

pub(crate) const NEG: u8 = 0x80;
pub(crate) const MOV: u8 = 0xb0;
pub(crate) const ARSH: u8 = 0xc0;
pub(crate) const LSH: u8 = 0x60;
/// `BPF_END | BPF_TO_BE`: on little endian machines reverses the bytes.
pub(crate) const TO_BE: u8 = 0xdc;

impl Insn {
    /// Its 8 bytes, little endian.
    pub fn to_bytes(self) -> [u8; 8] {
        let off = self.off.to_le_bytes();
        let imm = self.imm.to_le_bytes();
        [
            self.code,
            (self.dst & 0xf) | (self.src << 4),
            off[0],
            off[1],
            imm[0],
            imm[1],
            imm[2],
            imm[3],
        ]
    }

    /// From its 8 bytes.
    pub fn from_bytes(bytes: [u8; 8]) -> Insn {
        let [code, regs, off0, off1, imm0, imm1, imm2, imm3] = bytes;
        Insn {
            code,
            dst: regs & 0xf,
            src: regs >> 4,
            off: i16::from_le_bytes([off0, off1]),
            imm: i32::from_le_bytes([imm0, imm1, imm2, imm3]),
        }
    }

    /// Whether the next slot belongs to it.
    pub fn is_wide(self) -> bool {
        self.code == LDDW
    }
}

pub(crate) fn size_bits(width: Width) -> u8 {
    match width {
        Width::B4 => 0x00,
        Width::B2 => 0x08,
        Width::B1 => 0x10,
        Width::B8 => 0x18,
    }
}

pub(crate) fn alu_class(bits: Bits) -> u8 {
    match bits {
        Bits::W32 => CLASS_ALU,
        Bits::W64 => CLASS_ALU64,
    }
}

pub(crate) fn alu_op(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::Add => 0x00,
        BinaryOp::Sub => 0x10,
        BinaryOp::Mul => 0x20,
        BinaryOp::Udiv => 0x30,
        BinaryOp::Or => 0x40,
        BinaryOp::And => 0x50,
        BinaryOp::Shl => LSH,
        BinaryOp::Lshr => 0x70,
        BinaryOp::Urem => 0x90,
        BinaryOp::Xor => 0xa0,
        BinaryOp::Ashr => ARSH,
    }
}

pub(crate) fn jmp_class(bits: Bits) -> u8 {
    match bits {
        Bits::W32 => CLASS_JMP32,
        Bits::W64 => CLASS_JMP,
    }
}

pub(crate) fn jmp_op(op: CmpOp) -> u8 {
    match op {
        CmpOp::Eq => 0x10,
        CmpOp::Ugt => 0x20,
        CmpOp::Uge => 0x30,
        CmpOp::Set => 0x40,
        CmpOp::Ne => 0x50,
        CmpOp::Sgt => 0x60,
        CmpOp::Sge => 0x70,
        CmpOp::Ult => 0xa0,
        CmpOp::Ule => 0xb0,
        CmpOp::Slt => 0xc0,
        CmpOp::Sle => 0xd0,
    }
}

/// The comparison that holds when this one does not; there is none for `Set`.
pub(crate) fn inverse(op: CmpOp) -> Option<CmpOp> {
    match op {
        CmpOp::Eq => Some(CmpOp::Ne),
        CmpOp::Ne => Some(CmpOp::Eq),
        CmpOp::Ult => Some(CmpOp::Uge),
        CmpOp::Ule => Some(CmpOp::Ugt),
        CmpOp::Ugt => Some(CmpOp::Ule),
        CmpOp::Uge => Some(CmpOp::Ult),
        CmpOp::Slt => Some(CmpOp::Sge),
        CmpOp::Sle => Some(CmpOp::Sgt),
        CmpOp::Sgt => Some(CmpOp::Sle),
        CmpOp::Sge => Some(CmpOp::Slt),
        CmpOp::Set => None,
    }
}
