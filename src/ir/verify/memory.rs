//! The rule about ranges: an access stays inside the memory that its address points into, as far as that is known here.
//! In: a function whose types are looked at elsewhere.

use cranelift_entity::SecondaryMap;

use super::{Place, Rule, Verifier};
use crate::ir::inst::{BinaryOp, InstData, Offset, Operand};
use crate::ir::{ArgKind, Helper, MapRef, Value};

/// Where an address points.
#[derive(Clone, Copy)]
struct Target {
    /// Bytes from the start of the memory; `None` if it depends on values.
    offset: Option<i64>,
    /// How big the memory is.
    size: Option<i64>,
}

impl Verifier<'_> {
    pub(super) fn memory(&mut self) {
        let func = self.func;
        let mut targets: SecondaryMap<Value, Option<Target>> = SecondaryMap::new();
        let mut constants: SecondaryMap<Value, Option<i64>> = SecondaryMap::new();
        for block in &func.layout {
            for (at, inst) in func.blocks[*block].insts.iter().enumerate() {
                let place = Place {
                    block: Some(*block),
                    at: Some(at),
                };
                let data = &func.insts[*inst];
                let number = |operand: Operand| match operand {
                    Operand::Imm(imm) => Some(i64::from(imm)),
                    Operand::Value(value) => constants[value],
                };
                match data {
                    InstData::Load {
                        width,
                        base,
                        offset: Offset::Bytes(offset),
                        ..
                    } => self.access(
                        targets[*base],
                        i64::from(*offset),
                        i64::from(width.bytes()),
                        place,
                    ),
                    InstData::Store {
                        width, base, offset, ..
                    }
                    | InstData::AtomicAdd {
                        width, base, offset, ..
                    } => self.access(
                        targets[*base],
                        i64::from(*offset),
                        i64::from(width.bytes()),
                        place,
                    ),
                    InstData::Call { helper, args } => {
                        for (index, kind) in helper.params().iter().enumerate() {
                            let Some(base) = args.get(index).and_then(|arg| arg.value()) else {
                                continue;
                            };
                            let size = match kind {
                                ArgKind::Memory => args.get(index + 1).and_then(|size| number(*size)),
                                ArgKind::Key => {
                                    self.map_of(args).map(|map| i64::from(func.maps[map].key_size))
                                }
                                ArgKind::MapValue => {
                                    self.map_of(args).map(|map| i64::from(func.maps[map].value_size))
                                }
                                ArgKind::Word => Some(8),
                                // Only the start of a record can be given back.
                                ArgKind::Record if targets[base].is_some_and(|t| t.offset != Some(0)) => {
                                    self.error(
                                        Rule::Range,
                                        place,
                                        format!("{base} is not the start of a record"),
                                    );
                                    None
                                }
                                ArgKind::Record
                                | ArgKind::Ctx
                                | ArgKind::Map
                                | ArgKind::Size
                                | ArgKind::Number
                                | ArgKind::Kernel
                                | ArgKind::User => None,
                            };
                            if let Some(size) = size {
                                self.access(targets[base], 0, size, place);
                            }
                        }
                    }
                    InstData::Ctx
                    | InstData::Iconst(_)
                    | InstData::Binary { .. }
                    | InstData::Neg { .. }
                    | InstData::Extend { .. }
                    | InstData::Bswap { .. }
                    | InstData::Load {
                        offset: Offset::Reloc(_),
                        ..
                    }
                    | InstData::FieldAddr { .. }
                    | InstData::RelocConst(_)
                    | InstData::RelocShift { .. }
                    | InstData::SlotAddr(_)
                    | InstData::MapAddr(_)
                    | InstData::Cast { .. } => {}
                }
                let Some(result) = func.results[*inst] else {
                    continue;
                };
                targets[result] = match data {
                    InstData::Ctx => Some(Target {
                        offset: Some(0),
                        size: None,
                    }),
                    InstData::SlotAddr(slot) => Some(Target {
                        offset: Some(0),
                        size: Some(i64::from(func.slots[*slot].size)),
                    }),
                    InstData::Call {
                        helper: Helper::MapLookupElem,
                        args,
                    } => Some(Target {
                        offset: Some(0),
                        size: self.map_of(args).map(|map| i64::from(func.maps[map].value_size)),
                    }),
                    InstData::Call {
                        helper: Helper::RingbufReserve,
                        args,
                    } => Some(Target {
                        offset: Some(0),
                        size: args.get(1).and_then(|size| number(*size)),
                    }),
                    InstData::Call {
                        helper: Helper::SessionCookie,
                        ..
                    } => Some(Target {
                        offset: Some(0),
                        size: Some(8),
                    }),
                    InstData::Cast { src, .. } => targets[*src],
                    InstData::Binary { op, lhs, rhs, .. } => targets[*lhs].map(|target| {
                        let step = match op {
                            BinaryOp::Add => number(*rhs),
                            BinaryOp::Sub => number(*rhs).and_then(i64::checked_neg),
                            BinaryOp::Mul
                            | BinaryOp::Udiv
                            | BinaryOp::Urem
                            | BinaryOp::And
                            | BinaryOp::Or
                            | BinaryOp::Xor
                            | BinaryOp::Shl
                            | BinaryOp::Lshr
                            | BinaryOp::Ashr => None,
                        };
                        let offset = target.offset.zip(step);
                        Target {
                            offset: offset.and_then(|(offset, step)| offset.checked_add(step)),
                            size: target.size,
                        }
                    }),
                    InstData::FieldAddr { base, .. } => targets[*base].map(|target| Target {
                        offset: None,
                        size: target.size,
                    }),
                    InstData::Iconst(_)
                    | InstData::Neg { .. }
                    | InstData::Extend { .. }
                    | InstData::Bswap { .. }
                    | InstData::Load { .. }
                    | InstData::Store { .. }
                    | InstData::AtomicAdd { .. }
                    | InstData::RelocConst(_)
                    | InstData::RelocShift { .. }
                    | InstData::MapAddr(_)
                    | InstData::Call { .. } => None,
                };
                if let InstData::Iconst(value) = data {
                    constants[result] = Some(*value);
                }
            }
        }
    }

    fn access(&mut self, target: Option<Target>, offset: i64, bytes: i64, place: Place) {
        let Some(Target {
            offset: Some(start),
            size,
        }) = target
        else {
            return;
        };
        let start = start.saturating_add(offset);
        let end = start.saturating_add(bytes);
        if start < 0 || size.is_some_and(|size| end > size) {
            let size = size.map_or("?".to_string(), |size| size.to_string());
            let detail = format!("bytes {start} to {end} of memory of {size} bytes");
            self.error(Rule::Range, place, detail);
        }
    }

    pub(super) fn map_of(&self, args: &[Operand]) -> Option<MapRef> {
        let values = args.iter().filter_map(|arg| arg.value());
        values.into_iter().find_map(|value| self.inst_of(value)?.map())
    }
}
