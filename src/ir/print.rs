//! A function as text. In: a function. Out: the syntax that [`super::parse`] reads; spans and notes are comments. Prints any
//! function, also one that breaks the rules. Types are left out where they follow from the instruction.

use std::fmt::{self, Write as _};

use super::inst::{
    BinaryOp, Bits, BlockCall, CmpOp, InstData, Offset, Operand, Space, Terminator, Type, Width,
};
use super::{Func, MapKind, Origin, RelocKind, Value};

/// The text of a function.
pub fn print(func: &Func) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = Printer {
        func,
        out: &mut out,
        defined: cranelift_entity::SecondaryMap::new(),
    }
    .func();
    out
}

impl fmt::Display for Func {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self))
    }
}

/// Where comments begin.
const COMMENT_COLUMN: usize = 52;

struct Printer<'a> {
    func: &'a Func,
    out: &'a mut String,
    /// Values whose definition has been printed: the parser knows their types.
    defined: cranelift_entity::SecondaryMap<Value, bool>,
}

impl Printer<'_> {
    fn func(&mut self) -> fmt::Result {
        let func = self.func;
        writeln!(
            self.out,
            "func {} section {} {{",
            quoted(&func.name),
            quoted(&func.section)
        )?;
        for (slot, data) in &func.slots {
            writeln!(self.out, "  {slot} = bytes {}", data.size)?;
        }
        for (reloc, data) in &func.relocs {
            let access: Vec<String> = data.access.iter().map(ToString::to_string).collect();
            writeln!(
                self.out,
                "  {reloc} = {} {}:{} [{}] {} kernel {}",
                reloc_kind(data.kind),
                data.root.module,
                data.root.id,
                access.join(", "),
                quoted(&data.text),
                data.kernel
            )?;
        }
        for (map, data) in &func.maps {
            writeln!(
                self.out,
                "  {map} = {} {} key {} value {} entries {}",
                map_kind(data.kind),
                quoted(&data.name),
                data.key_size,
                data.value_size,
                data.max_entries
            )?;
        }
        for block in &func.layout {
            let Some(data) = func.blocks.get(*block) else {
                continue;
            };
            write!(self.out, "\n{block}")?;
            if !data.params.is_empty() {
                let params: Vec<String> = data.params.iter().map(|param| self.param(*param)).collect();
                write!(self.out, "({})", params.join(", "))?;
            }
            match data.note.as_str() {
                "" => writeln!(self.out, ":")?,
                note => writeln!(self.out, ": ; {}", one_line(note))?,
            }
            for inst in &data.insts {
                let Some(inst_data) = func.insts.get(*inst) else {
                    continue;
                };
                let text = self.inst(inst_data);
                let line = match func.results[*inst] {
                    None => text,
                    Some(result) => {
                        let inferred = inst_data
                            .result_type(|value| self.known(value))
                            .unwrap_or(Type::Int);
                        let actual = self.actual(result);
                        self.defined[result] = true;
                        if inferred == actual {
                            format!("{result} = {text}")
                        } else {
                            format!("{result}: {} = {text}", type_name(actual))
                        }
                    }
                };
                self.line(&line, &func.origins[*inst])?;
            }
            if let Some(end) = &data.end {
                let text = self.end(end);
                self.line(&text, &data.end_origin)?;
            }
        }
        writeln!(self.out, "}}")
    }

    fn line(&mut self, text: &str, origin: &Origin) -> fmt::Result {
        let mut comment = String::new();
        if let Some(span) = origin.span {
            write!(comment, "{}..{}", span.start, span.end)?;
        }
        if !origin.note.is_empty() {
            let gap = if comment.is_empty() { "" } else { " " };
            write!(comment, "{gap}{}", one_line(&origin.note))?;
        }
        if comment.is_empty() {
            writeln!(self.out, "  {text}")
        } else {
            writeln!(self.out, "  {text:COMMENT_COLUMN$} ; {comment}")
        }
    }

    fn param(&mut self, param: Value) -> String {
        self.defined[param] = true;
        format!("{param}: {}", type_name(self.actual(param)))
    }

    fn actual(&self, value: Value) -> Type {
        self.func.values.get(value).copied().unwrap_or(Type::Int)
    }

    /// The type as far as a reader of the text so far knows it.
    fn known(&self, value: Value) -> Type {
        if self.defined[value] {
            self.actual(value)
        } else {
            Type::Int
        }
    }

    fn inst(&self, data: &InstData) -> String {
        match data {
            InstData::Ctx => "ctx".to_string(),
            InstData::Iconst(value) => format!("iconst {value}"),
            InstData::Binary { op, bits, lhs, rhs } => {
                format!(
                    "{}{} {lhs}, {}",
                    binary_name(*op),
                    bits_suffix(*bits),
                    operand(*rhs)
                )
            }
            InstData::Neg { bits, src } => format!("neg{} {src}", bits_suffix(*bits)),
            InstData::Extend { from, signed, src } => {
                format!(
                    "{}.{} {src}",
                    if *signed { "sext" } else { "zext" },
                    width_name(*from)
                )
            }
            InstData::Bswap { width, src } => format!("bswap.{} {src}", width_name(*width)),
            InstData::Load {
                ty,
                width,
                base,
                offset,
            } => {
                let ty = match ty {
                    Type::Int => String::new(),
                    other @ (Type::Ptr(_) | Type::Map) => format!(".{}", type_name(*other)),
                };
                let offset = match offset {
                    Offset::Bytes(offset) => format!("{offset:+}"),
                    Offset::Reloc(reloc) => format!("+{reloc}"),
                };
                format!("load.{}{ty} {base}{offset}", width_name(*width))
            }
            InstData::Store {
                width,
                base,
                offset,
                value,
            } => format!(
                "store.{} {base}{offset:+}, {}",
                width_name(*width),
                operand(*value)
            ),
            InstData::AtomicAdd {
                width,
                base,
                offset,
                value,
            } => format!("atomic_add.{} {base}{offset:+}, {value}", width_name(*width)),
            InstData::FieldAddr { base, reloc } => format!("field_addr {base}+{reloc}"),
            InstData::RelocConst(reloc) => format!("reloc_const {reloc}"),
            InstData::RelocShift { op, src, reloc } => {
                format!("reloc_shift.{} {src}, {reloc}", binary_name(*op))
            }
            InstData::SlotAddr(slot) => format!("slot_addr {slot}"),
            InstData::MapAddr(map) => format!("map_addr {map}"),
            InstData::Call { helper, args } => {
                let args: Vec<String> = args.iter().map(|arg| operand(*arg)).collect();
                format!("call {}({})", helper.name(), args.join(", "))
            }
            InstData::Cast { ty, src } => format!("cast.{} {src}", type_name(*ty)),
        }
    }

    fn end(&self, end: &Terminator) -> String {
        match end {
            Terminator::Jump(to) => format!("jump {}", block_call(to)),
            Terminator::Branch {
                op,
                bits,
                lhs,
                rhs,
                then,
                otherwise,
            } => format!(
                "branch.{}{} {lhs}, {}, {}, {}",
                cmp_name(*op),
                bits_suffix(*bits),
                operand(*rhs),
                block_call(then),
                block_call(otherwise)
            ),
            Terminator::Return(code) => format!("return {code}"),
        }
    }
}

fn operand(operand: Operand) -> String {
    match operand {
        Operand::Value(value) => value.to_string(),
        Operand::Imm(imm) => imm.to_string(),
    }
}

fn block_call(call: &BlockCall) -> String {
    if call.args.is_empty() {
        return call.block.to_string();
    }
    let args: Vec<String> = call.args.iter().map(ToString::to_string).collect();
    format!("{}({})", call.block, args.join(", "))
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// A string in quotes; what can't stand there is escaped.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn bits_suffix(bits: Bits) -> &'static str {
    match bits {
        Bits::W32 => ".w32",
        Bits::W64 => "",
    }
}

pub(super) fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::Int => "int",
        Type::Map => "map",
        Type::Ptr(Space::Ctx) => "ctx",
        Type::Ptr(Space::Stack) => "stack",
        Type::Ptr(Space::MapValue) => "map_value",
        Type::Ptr(Space::MapValueOrNull) => "map_value_or_null",
        Type::Ptr(Space::Record) => "record",
        Type::Ptr(Space::RecordOrNull) => "record_or_null",
        Type::Ptr(Space::Kernel) => "kernel",
        Type::Ptr(Space::User) => "user",
        Type::Ptr(Space::Btf) => "btf",
    }
}

pub(super) fn width_name(width: Width) -> &'static str {
    match width {
        Width::B1 => "u8",
        Width::B2 => "u16",
        Width::B4 => "u32",
        Width::B8 => "u64",
    }
}

pub(super) fn binary_name(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "add",
        BinaryOp::Sub => "sub",
        BinaryOp::Mul => "mul",
        BinaryOp::Udiv => "udiv",
        BinaryOp::Urem => "urem",
        BinaryOp::And => "and",
        BinaryOp::Or => "or",
        BinaryOp::Xor => "xor",
        BinaryOp::Shl => "shl",
        BinaryOp::Lshr => "lshr",
        BinaryOp::Ashr => "ashr",
    }
}

pub(super) fn cmp_name(op: CmpOp) -> &'static str {
    match op {
        CmpOp::Eq => "eq",
        CmpOp::Ne => "ne",
        CmpOp::Ult => "ult",
        CmpOp::Ule => "ule",
        CmpOp::Ugt => "ugt",
        CmpOp::Uge => "uge",
        CmpOp::Slt => "slt",
        CmpOp::Sle => "sle",
        CmpOp::Sgt => "sgt",
        CmpOp::Sge => "sge",
        CmpOp::Set => "set",
    }
}

pub(super) fn reloc_kind(kind: RelocKind) -> &'static str {
    match kind {
        RelocKind::FieldByteOffset => "field_offset",
        RelocKind::FieldByteSize => "field_size",
        RelocKind::FieldLshiftU64 => "field_lshift",
        RelocKind::FieldRshiftU64 => "field_rshift",
        RelocKind::TypeSize => "type_size",
    }
}

pub(super) fn map_kind(kind: MapKind) -> &'static str {
    match kind {
        MapKind::Hash => "hash",
        MapKind::Array => "array",
        MapKind::PercpuHash => "percpu_hash",
        MapKind::PercpuArray => "percpu_array",
        MapKind::LruHash => "lru_hash",
        MapKind::StackTrace => "stack_trace",
        MapKind::CgroupArray => "cgroup_array",
        MapKind::Ringbuf => "ringbuf",
    }
}

/// All of what the text has names for, for the parser.
pub(super) mod all {
    use super::{BinaryOp, CmpOp, MapKind, RelocKind, Space, Type, Width};

    pub(in crate::ir) const TYPES: [Type; 11] = [
        Type::Int,
        Type::Map,
        Type::Ptr(Space::Ctx),
        Type::Ptr(Space::Stack),
        Type::Ptr(Space::MapValue),
        Type::Ptr(Space::MapValueOrNull),
        Type::Ptr(Space::Record),
        Type::Ptr(Space::RecordOrNull),
        Type::Ptr(Space::Kernel),
        Type::Ptr(Space::User),
        Type::Ptr(Space::Btf),
    ];
    pub(in crate::ir) const WIDTHS: [Width; 4] = [Width::B1, Width::B2, Width::B4, Width::B8];
    pub(in crate::ir) const BINARY: [BinaryOp; 11] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Udiv,
        BinaryOp::Urem,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Xor,
        BinaryOp::Shl,
        BinaryOp::Lshr,
        BinaryOp::Ashr,
    ];
    pub(in crate::ir) const CMP: [CmpOp; 11] = [
        CmpOp::Eq,
        CmpOp::Ne,
        CmpOp::Ult,
        CmpOp::Ule,
        CmpOp::Ugt,
        CmpOp::Uge,
        CmpOp::Slt,
        CmpOp::Sle,
        CmpOp::Sgt,
        CmpOp::Sge,
        CmpOp::Set,
    ];
    pub(in crate::ir) const RELOCS: [RelocKind; 5] = [
        RelocKind::FieldByteOffset,
        RelocKind::FieldByteSize,
        RelocKind::FieldLshiftU64,
        RelocKind::FieldRshiftU64,
        RelocKind::TypeSize,
    ];
    pub(in crate::ir) const MAPS: [MapKind; 8] = [
        MapKind::Hash,
        MapKind::Array,
        MapKind::PercpuHash,
        MapKind::PercpuArray,
        MapKind::LruHash,
        MapKind::StackTrace,
        MapKind::CgroupArray,
        MapKind::Ringbuf,
    ];
}
