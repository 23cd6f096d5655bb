//! Runs a function as its instructions are documented, for tests and fuzzing. In: a function, the context's bytes, and the
//! world that helpers see. Out: what happened, as the world saw it. Knows nothing of code generation, so that the two can be
//! compared.

use cranelift_entity::{EntityRef, SecondaryMap};

use super::inst::{BinaryOp, Bits, CmpOp, Helper, InstData, Offset, Operand, Terminator, Width};
use super::{Func, Value};

/// Memory that helpers can be handed.
pub trait Memory {
    /// Copies bytes out.
    fn read(&self, address: u64, bytes: &mut [u8]);
    /// Copies bytes in.
    fn write(&mut self, address: u64, bytes: &[u8]);
}

/// What helpers do.
pub trait World {
    /// Calls one. `args` has five; maps are their number, from 1.
    fn call(&mut self, helper: Helper, args: [u64; 5], memory: &mut dyn Memory) -> u64;
}

/// Where the context begins.
pub const CONTEXT: u64 = 1 << 40;
/// Where the value of a map begins: `MAP_VALUE + (number << 16)`.
pub const MAP_VALUE: u64 = 3 << 40;
/// Where a record begins.
pub const RECORD: u64 = 4 << 40;
const STACK: u64 = 2 << 40;

/// Bytes by address.
#[derive(Default)]
struct Regions(Vec<(u64, Vec<u8>)>);

impl Regions {
    fn find(&mut self, address: u64, length: usize) -> Option<&mut [u8]> {
        for (start, bytes) in &mut self.0 {
            if let Some(at) = address.checked_sub(*start)
                && let Some(end) = (at as usize).checked_add(length)
                && end <= bytes.len()
            {
                return bytes.get_mut(at as usize..end);
            }
        }
        None
    }
}

impl Memory for Regions {
    fn read(&self, address: u64, bytes: &mut [u8]) {
        let length = bytes.len();
        for (start, region) in &self.0 {
            if let Some(at) = address.checked_sub(*start)
                && let Some(from) = region.get(at as usize..(at as usize).saturating_add(length))
            {
                bytes.copy_from_slice(from);
            }
        }
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        if let Some(to) = self.find(address, bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }
}

/// Runs it. `None` if it does something that a verified function can't.
pub fn run(func: &Func, context: &[u8], world: &mut dyn World) -> Option<i32> {
    let mut memory = Regions(vec![(CONTEXT, context.to_vec()), (RECORD, vec![0; 4096])]);
    for (slot, data) in &func.slots {
        memory
            .0
            .push((STACK + ((slot.index() as u64) << 16), vec![0; data.size as usize]));
    }
    for (map, data) in &func.maps {
        let start = MAP_VALUE + ((map.index() as u64 + 1) << 16);
        memory.0.push((start, vec![0; data.value_size as usize]));
    }
    let mut values: SecondaryMap<Value, u64> = SecondaryMap::new();
    let mut block = *func.layout.first()?;
    loop {
        let data = func.blocks.get(block)?;
        for inst in &data.insts {
            let result = step(func, func.insts.get(*inst)?, &values, &mut memory, world)?;
            if let Some(value) = func.results[*inst] {
                values[value] = result;
            }
        }
        let target = match data.end.as_ref()? {
            Terminator::Return(code) => return Some(*code),
            Terminator::Jump(to) => to,
            Terminator::Branch {
                op,
                bits,
                lhs,
                rhs,
                then,
                otherwise,
            } => {
                if compare(*op, *bits, values[*lhs], operand(*rhs, &values)) {
                    then
                } else {
                    otherwise
                }
            }
        };
        let args: Vec<u64> = target.args.iter().map(|arg| values[*arg]).collect();
        let params = &func.blocks.get(target.block)?.params;
        for (param, arg) in params.iter().zip(args) {
            values[*param] = arg;
        }
        block = target.block;
    }
}

fn operand(operand: Operand, values: &SecondaryMap<Value, u64>) -> u64 {
    match operand {
        Operand::Value(value) => values[value],
        Operand::Imm(imm) => i64::from(imm) as u64,
    }
}

fn step(
    func: &Func,
    data: &InstData,
    values: &SecondaryMap<Value, u64>,
    memory: &mut Regions,
    world: &mut dyn World,
) -> Option<u64> {
    Some(match data {
        InstData::Ctx => CONTEXT,
        InstData::Iconst(value) => *value as u64,
        InstData::Binary { op, bits, lhs, rhs } => binary(*op, *bits, values[*lhs], operand(*rhs, values)),
        InstData::Neg { bits, src } => binary(BinaryOp::Sub, *bits, 0, values[*src]),
        InstData::Extend { from, signed, src } => {
            let shift = 64 - 8 * from.bytes();
            let high = values[*src] << shift;
            if *signed {
                ((high as i64) >> shift) as u64
            } else {
                high >> shift
            }
        }
        InstData::Bswap { width, src } => values[*src].swap_bytes() >> (64 - 8 * width.bytes()),
        InstData::Load {
            width, base, offset, ..
        } => {
            let distance = match offset {
                Offset::Bytes(bytes) => i64::from(*bytes) as u64,
                Offset::Reloc(reloc) => func.relocs.get(*reloc)?.kernel,
            };
            load(memory, values[*base].wrapping_add(distance), *width)?
        }
        InstData::Store {
            width,
            base,
            offset,
            value,
        } => {
            let address = values[*base].wrapping_add(i64::from(*offset) as u64);
            let length = width.bytes() as usize;
            let bytes = operand(*value, values).to_le_bytes();
            memory.find(address, length)?.copy_from_slice(&bytes[..length]);
            0
        }
        InstData::AtomicAdd {
            width,
            base,
            offset,
            value,
        } => {
            let address = values[*base].wrapping_add(i64::from(*offset) as u64);
            let sum = load(memory, address, *width)?.wrapping_add(values[*value]);
            let length = width.bytes() as usize;
            memory
                .find(address, length)?
                .copy_from_slice(&sum.to_le_bytes()[..length]);
            0
        }
        InstData::FieldAddr { base, reloc } => values[*base].wrapping_add(func.relocs.get(*reloc)?.kernel),
        InstData::RelocConst(reloc) => func.relocs.get(*reloc)?.kernel,
        InstData::RelocShift { op, src, reloc } => {
            binary(*op, Bits::W64, values[*src], func.relocs.get(*reloc)?.kernel)
        }
        InstData::SlotAddr(slot) => STACK + ((slot.index() as u64) << 16),
        InstData::MapAddr(map) => map.index() as u64 + 1,
        InstData::Call { helper, args } => {
            let mut all = [0; 5];
            for (to, arg) in all.iter_mut().zip(args) {
                *to = operand(*arg, values);
            }
            world.call(*helper, all, memory)
        }
        InstData::Cast { src, .. } => values[*src],
    })
}

fn load(memory: &mut Regions, address: u64, width: Width) -> Option<u64> {
    let length = width.bytes() as usize;
    let mut bytes = [0; 8];
    bytes[..length].copy_from_slice(memory.find(address, length)?);
    Some(u64::from_le_bytes(bytes))
}

fn binary(op: BinaryOp, bits: Bits, lhs: u64, rhs: u64) -> u64 {
    match bits {
        Bits::W64 => match op {
            BinaryOp::Add => lhs.wrapping_add(rhs),
            BinaryOp::Sub => lhs.wrapping_sub(rhs),
            BinaryOp::Mul => lhs.wrapping_mul(rhs),
            BinaryOp::Udiv => lhs.checked_div(rhs).unwrap_or(0),
            BinaryOp::Urem => lhs.checked_rem(rhs).unwrap_or(lhs),
            BinaryOp::And => lhs & rhs,
            BinaryOp::Or => lhs | rhs,
            BinaryOp::Xor => lhs ^ rhs,
            BinaryOp::Shl => lhs.wrapping_shl(rhs as u32),
            BinaryOp::Lshr => lhs.wrapping_shr(rhs as u32),
            BinaryOp::Ashr => (lhs as i64).wrapping_shr(rhs as u32) as u64,
        },
        Bits::W32 => {
            let (lhs, rhs) = (lhs as u32, rhs as u32);
            u64::from(match op {
                BinaryOp::Add => lhs.wrapping_add(rhs),
                BinaryOp::Sub => lhs.wrapping_sub(rhs),
                BinaryOp::Mul => lhs.wrapping_mul(rhs),
                BinaryOp::Udiv => lhs.checked_div(rhs).unwrap_or(0),
                BinaryOp::Urem => lhs.checked_rem(rhs).unwrap_or(lhs),
                BinaryOp::And => lhs & rhs,
                BinaryOp::Or => lhs | rhs,
                BinaryOp::Xor => lhs ^ rhs,
                BinaryOp::Shl => lhs.wrapping_shl(rhs),
                BinaryOp::Lshr => lhs.wrapping_shr(rhs),
                BinaryOp::Ashr => (lhs as i32).wrapping_shr(rhs) as u32,
            })
        }
    }
}

fn compare(op: CmpOp, bits: Bits, lhs: u64, rhs: u64) -> bool {
    // Sign-extending both keeps either order.
    let (lhs, rhs) = match bits {
        Bits::W64 => (lhs, rhs),
        Bits::W32 => (lhs as i32 as i64 as u64, rhs as i32 as i64 as u64),
    };
    let (signed_lhs, signed_rhs) = (lhs as i64, rhs as i64);
    match op {
        CmpOp::Eq => lhs == rhs,
        CmpOp::Ne => lhs != rhs,
        CmpOp::Ult => lhs < rhs,
        CmpOp::Ule => lhs <= rhs,
        CmpOp::Ugt => lhs > rhs,
        CmpOp::Uge => lhs >= rhs,
        CmpOp::Slt => signed_lhs < signed_rhs,
        CmpOp::Sle => signed_lhs <= signed_rhs,
        CmpOp::Sgt => signed_lhs > signed_rhs,
        CmpOp::Sge => signed_lhs >= signed_rhs,
        CmpOp::Set => lhs & rhs != 0,
    }
}
