//! One instruction as text, in the style of the kernel's verifier log and `bpftool prog dump xlated`. In: an instruction
//! slot and the next one. Out: the mnemonic. Total: what it does not know it shows as numbers.

use super::insn::{
    ATOMIC_ADD, CALL, CLASS_ALU, CLASS_ALU64, CLASS_JMP, CLASS_JMP32, CLASS_LDX, CLASS_ST, CLASS_STX, EXIT,
    Insn, JA, LDDW, MODE_ATOMIC, PSEUDO_MAP_FD, SRC_REG, TO_BE,
};
use crate::ir::Helper;

/// The text of an instruction. `high` is the immediate of its second slot, `map` the map that it refers to.
pub(crate) fn mnemonic(insn: Insn, high: i32, map: Option<&str>) -> String {
    let Insn {
        code,
        dst,
        src,
        off,
        imm,
    } = insn;
    match code {
        LDDW => {
            let value = (i64::from(high) << 32) | i64::from(imm as u32);
            return match (map, src) {
                (Some(map), _) => format!("r{dst} = map[{map}] ll"),
                (None, PSEUDO_MAP_FD) => format!("r{dst} = map[fd:{imm}] ll"),
                (None, 0) => format!("r{dst} = {value:#x} ll"),
                (None, _) => format!("r{dst} = {value:#x} ll, pseudo {src}"),
            };
        }
        CALL => return call(src, imm),
        EXIT => return "exit".to_string(),
        JA => return format!("goto {off:+}"),
        TO_BE => return format!("r{dst} = be{imm} r{dst}"),
        _ => {}
    }
    let by_register = code & SRC_REG != 0;
    match code & 7 {
        class @ (CLASS_ALU | CLASS_ALU64) => {
            let r = if class == CLASS_ALU { 'w' } else { 'r' };
            let right = if by_register {
                format!("{r}{src}")
            } else {
                imm.to_string()
            };
            let op = match code & 0xf0 {
                0x00 => "+=",
                0x10 => "-=",
                0x20 => "*=",
                0x30 => "/=",
                0x40 => "|=",
                0x50 => "&=",
                0x60 => "<<=",
                0x70 => ">>=",
                0x80 => return format!("{r}{dst} = -{r}{dst}"),
                0x90 => "%=",
                0xa0 => "^=",
                0xb0 => "=",
                0xc0 => "s>>=",
                _ => return raw(insn),
            };
            format!("{r}{dst} {op} {right}")
        }
        class @ (CLASS_JMP | CLASS_JMP32) => {
            let r = if class == CLASS_JMP32 { 'w' } else { 'r' };
            let right = if by_register {
                format!("{r}{src}")
            } else {
                format!("{imm:#x}")
            };
            let op = match code & 0xf0 {
                0x10 => "==",
                0x20 => ">",
                0x30 => ">=",
                0x40 => "&",
                0x50 => "!=",
                0x60 => "s>",
                0x70 => "s>=",
                0xa0 => "<",
                0xb0 => "<=",
                0xc0 => "s<",
                0xd0 => "s<=",
                _ => return raw(insn),
            };
            format!("if {r}{dst} {op} {right} goto {off:+}")
        }
        CLASS_LDX => format!("r{dst} = *({} *)(r{src} {off:+})", size(code)),
        CLASS_ST => format!("*({} *)(r{dst} {off:+}) = {imm}", size(code)),
        CLASS_STX if code & 0xe0 == MODE_ATOMIC => match imm {
            ATOMIC_ADD => format!("lock *({} *)(r{dst} {off:+}) += r{src}", size(code)),
            _ => raw(insn),
        },
        CLASS_STX => format!("*({} *)(r{dst} {off:+}) = r{src}", size(code)),
        _ => raw(insn),
    }
}

fn call(src: u8, imm: i32) -> String {
    let known = Helper::ALL.into_iter().find(|helper| helper.number() == imm);
    match (src, known) {
        (2, Some(helper)) => format!("call kernel-function bpf_{}", helper.name()),
        (0, Some(helper)) => format!("call bpf_{}#{imm}", helper.name()),
        (0, None) => format!("call helper#{imm}"),
        (1, _) => format!("call pc{imm:+}"),
        (2, _) => format!("call kernel-function#{imm}"),
        (_, _) => format!("call {src}:{imm}"),
    }
}

fn size(code: u8) -> &'static str {
    match code & 0x18 {
        0x00 => "u32",
        0x08 => "u16",
        0x10 => "u8",
        _ => "u64",
    }
}

fn raw(insn: Insn) -> String {
    let Insn {
        code,
        dst,
        src,
        off,
        imm,
    } = insn;
    format!("(code {code:#04x}) r{dst}, r{src}, {off:+}, {imm}")
}
