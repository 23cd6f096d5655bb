//! The values of expressions. Each is a 64-bit register that holds the value extended by its C type, so that a wider use needs
//! no further step. A part that faults goes to the innermost handler; what is known stays known where the fault did not
//! pass.

use super::program::{Handler, Key, Lower};
use crate::ctype::CType;
use crate::ir::build::call;
use crate::ir::{
    BinaryOp, Bits, Block, BlockCall, CmpOp, Operand, RelocData, RelocKind, Space, Type, Value, Width,
};
use crate::span::Span;
use crate::typed::{Arith, Base, Expr, ExprKind, Fact, Memory};
use crate::types;

/// What decides how an integer is extended, or that it is an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Int(Width, bool),
    Bool,
    Ptr,
}

impl Lower<'_> {
    pub(super) fn shape(&self, ty: &CType) -> Shape {
        match ty {
            CType::Int { bytes, signed } => Shape::Int(width(u32::from(*bytes)), *signed),
            CType::Bool => Shape::Bool,
            CType::Ptr(_) => Shape::Ptr,
            CType::Btf(id) => match self.types.get_stripped(*id) {
                types::Type::Int(int) if int.is_bool => Shape::Bool,
                types::Type::Int(int) => Shape::Int(width(int.size), int.signed),
                types::Type::Enum(e) => Shape::Int(width(e.size), e.signed),
                types::Type::Ptr(_) => Shape::Ptr,
                other @ (types::Type::Void
                | types::Type::Float { .. }
                | types::Type::Array { .. }
                | types::Type::Struct(_)
                | types::Type::Union(_)
                | types::Type::Fwd { .. }
                | types::Type::Typedef(_)
                | types::Type::Const(_)
                | types::Type::Volatile(_)
                | types::Type::Restrict(_)
                | types::Type::TypeTag { .. }
                | types::Type::Func { .. }
                | types::Type::FuncProto { .. }
                | types::Type::Other) => panic!("bug in ksnoop-jit: {other:?} as a scalar"),
            },
            CType::Void => panic!("bug in ksnoop-jit: void as a scalar"),
        }
    }

    /// The value of an expression.
    pub(super) fn value(&mut self, expr: &Expr) -> Value {
        let key = Key::Expr(expr.clone());
        if let Some(value) = self.find(&key) {
            return value;
        }
        let value = self.compute(expr);
        // Constants cost nothing to make again and would only sit in registers.
        if expr.constant().is_none() && !matches!(expr.kind, ExprKind::Layout { .. }) {
            self.learn(key, value);
        }
        value
    }

    /// An operand of an instruction: a constant that fits one is put into it.
    pub(super) fn operand(&mut self, expr: &Expr, bits: Bits) -> Operand {
        if let Some(constant) = expr.constant() {
            // A 32-bit operation looks at the low half only, so its sign does not matter.
            let fits = match bits {
                Bits::W32 => Some(constant as i32),
                Bits::W64 => i32::try_from(constant).ok(),
            };
            if let Some(imm) = fits {
                return Operand::Imm(imm);
            }
        }
        Operand::Value(self.value(expr))
    }

    fn compute(&mut self, expr: &Expr) -> Value {
        match &expr.kind {
            ExprKind::Const(constant) => {
                self.at(expr.span, "constant");
                let value = self.b.iconst(*constant);
                match self.shape(&expr.ty) {
                    Shape::Ptr => self.b.as_ptr(Space::Kernel, value),
                    Shape::Int(..) | Shape::Bool => value,
                }
            }
            ExprKind::Arg(index) => self.arg(*index, expr),
            ExprKind::Return => self.returned(expr),
            ExprKind::Builtin(builtin) => {
                self.at(expr.span, "");
                let value = self.builtin(*builtin);
                match (self.shape(&expr.ty), self.b.type_of(value)) {
                    (Shape::Int(Width::B4, true), _) => self.b.extend(Width::B4, true, value),
                    _ => value,
                }
            }
            ExprKind::Load(place) => self.load(place),
            ExprKind::AddrOf(place) => self.address(place),
            ExprKind::Neg(inner) | ExprKind::BitNot(inner) => {
                let value = self.value(inner);
                self.at(expr.span, "");
                let bits = self.bits(&expr.ty);
                let raw = if let ExprKind::Neg(_) = &expr.kind {
                    self.b.neg(bits, value)
                } else {
                    self.b.binary(BinaryOp::Xor, bits, value, -1)
                };
                self.normalize(raw, &expr.ty)
            }
            ExprKind::Arith { op, lhs, rhs } => self.arith(*op, lhs, rhs, expr),
            ExprKind::Convert(inner) => self.converted(inner, expr),
            ExprKind::Compare { .. }
            | ExprKind::Not(_)
            | ExprKind::And(..)
            | ExprKind::Or(..)
            | ExprKind::StrCompare { .. }
            | ExprKind::BytesCompare { .. }
            | ExprKind::IsErr(_) => self.truth(expr),
            ExprKind::Layout { fact, value } => {
                self.at(expr.span, "");
                let reloc = layout_reloc(self.types, fact, *value);
                let reloc = self.b.reloc(reloc);
                self.b.reloc_const(reloc)
            }
            ExprKind::Cond(cond, then, otherwise) => self.choice(cond, then, otherwise, expr),
            ExprKind::Checked { index, bound } => {
                let value = self.value(index);
                self.at(expr.span, format!("below {bound}?"));
                let bounds = format!(" is out of bounds (0 to {})", bound.saturating_sub(1));
                let (good, bad) = self.fault_named(index.span, &bounds, value);
                self.b.branch_with(
                    CmpOp::Uge,
                    Bits::W64,
                    value,
                    Operand::Imm(*bound as i32),
                    bad,
                    call(good, &[]),
                );
                self.b.switch_to(good);
                value
            }
            ExprKind::Swap(inner) => {
                let value = self.value(inner);
                self.at(expr.span, "byte order");
                let width = match self.shape(&expr.ty) {
                    Shape::Int(width, _) => width,
                    Shape::Bool | Shape::Ptr => Width::B8,
                };
                self.b.bswap(width, value)
            }
            ExprKind::AsUser(inner) => {
                let value = self.value(inner);
                self.freed(value, Space::User)
            }
            ExprKind::AtEntry(inner) => self.kept_value(inner),
        }
    }

    /// Whether 64 or 32 bits of a type are computed with.
    pub(super) fn bits(&self, ty: &CType) -> Bits {
        match self.shape(ty) {
            Shape::Int(Width::B8, _) | Shape::Ptr => Bits::W64,
            Shape::Int(Width::B1 | Width::B2 | Width::B4, _) | Shape::Bool => Bits::W32,
        }
    }

    /// Extends the result of an operation in the width of its type.
    fn normalize(&mut self, raw: Value, ty: &CType) -> Value {
        match self.shape(ty) {
            // A 32-bit operation has zero-extended it already.
            Shape::Int(Width::B4, false) | Shape::Int(Width::B8, _) | Shape::Bool | Shape::Ptr => raw,
            Shape::Int(from, signed) => self.b.extend(from, signed, raw),
        }
    }

    /// Takes the low bytes of a register or of memory for a value of the type.
    pub(super) fn extended(&mut self, raw: Value, ty: &CType) -> Value {
        match self.shape(ty) {
            Shape::Int(Width::B8, _) | Shape::Ptr => raw,
            Shape::Int(from, signed) => self.b.extend(from, signed, raw),
            // The ABI defines the low 8 bits of a bool only.
            Shape::Bool => self.b.extend(Width::B1, false, raw),
        }
    }

    fn arith(&mut self, op: Arith, lhs: &Expr, rhs: &Expr, whole: &Expr) -> Value {
        if self.shape(&whole.ty) == Shape::Ptr {
            return self.moved(op, lhs, rhs, whole.span);
        }
        let Shape::Int(width, signed) = self.shape(&whole.ty) else {
            panic!("bug in ksnoop-jit: arithmetic in a type that is not promoted");
        };
        let bits = self.bits(&whole.ty);
        let binary = match op {
            Arith::Add => BinaryOp::Add,
            Arith::Sub => BinaryOp::Sub,
            Arith::Mul => BinaryOp::Mul,
            Arith::And => BinaryOp::And,
            Arith::Or => BinaryOp::Or,
            Arith::Xor => BinaryOp::Xor,
            Arith::Shl => BinaryOp::Shl,
            Arith::Shr if signed => BinaryOp::Ashr,
            Arith::Shr => BinaryOp::Lshr,
            Arith::Div | Arith::Rem => return self.divide(op, lhs, rhs, whole, width, signed),
        };
        let (a, b) = self.operands(lhs, rhs, bits);
        self.at(whole.span, "");
        let raw = self.b.binary(binary, bits, a, b);
        self.normalize(raw, &whole.ty)
    }

    /// A pointer some bytes on. The verifier no longer knows what it points to.
    fn moved(&mut self, op: Arith, pointer: &Expr, bytes: &Expr, span: Span) -> Value {
        let base = self.value(pointer);
        let base = match self.b.type_of(base) {
            Type::Ptr(Space::User) => base,
            // Not even a good one may be moved by a number without bounds (check_reg_sane_offset, kernel/bpf/verifier.c).
            Type::Int | Type::Ptr(_) | Type::Map => self.freed(base, Space::Kernel),
        };
        let by = self.operand(bytes, Bits::W64);
        self.at(span, "");
        let op = if op == Arith::Sub {
            BinaryOp::Sub
        } else {
            BinaryOp::Add
        };
        self.b.binary(op, Bits::W64, base, by)
    }

    fn divide(
        &mut self,
        op: Arith,
        lhs: &Expr,
        rhs: &Expr,
        whole: &Expr,
        width: Width,
        signed: bool,
    ) -> Value {
        if let Some(divisor) = rhs.constant() {
            let a = self.number(lhs);
            return self.divide_by(op, a, divisor, whole, width, signed);
        }
        let (a, b) = match self.operands(lhs, rhs, Bits::W64) {
            (a, Operand::Value(b)) => (a, b),
            (a, Operand::Imm(_)) => (a, self.number(rhs)),
        };
        self.at(whole.span, "divisor is 0?");
        if !matches!(rhs.kind, ExprKind::Layout { .. }) {
            let (good, bad) = self.fault_named(rhs.span, " is zero", b);
            self.b
                .branch_with(CmpOp::Eq, Bits::W64, b, 0, bad, call(good, &[]));
            self.b.switch_to(good);
        }
        let binary = if op == Arith::Div {
            BinaryOp::Udiv
        } else {
            BinaryOp::Urem
        };
        if !signed {
            self.at(whole.span, "");
            return self.b.binary(binary, Bits::W64, a, b);
        }
        // BPF divides unsigned: divide the magnitudes, then give the result its sign. Both are extended to 64 bits, so that
        // even the smallest int has a magnitude.
        self.at(whole.span, "signed division");
        let sign_a = self.b.binary(BinaryOp::Ashr, Bits::W64, a, 63);
        let magnitude_a = self.magnitude(a, sign_a);
        let sign_b = self.b.binary(BinaryOp::Ashr, Bits::W64, b, 63);
        let magnitude_b = self.magnitude(b, sign_b);
        let result = self.b.binary(binary, Bits::W64, magnitude_a, magnitude_b);
        let sign = if op == Arith::Div {
            self.b.binary(BinaryOp::Xor, Bits::W64, sign_a, sign_b)
        } else {
            sign_a
        };
        let result = self.magnitude(result, sign);
        if width == Width::B8 {
            result
        } else {
            self.b.extend(width, true, result)
        }
    }

    /// Division by a constant, which is not 0: of a power of two only its bits are needed.
    fn divide_by(
        &mut self,
        op: Arith,
        a: Value,
        divisor: i64,
        whole: &Expr,
        width: Width,
        signed: bool,
    ) -> Value {
        self.at(whole.span, "");
        if !signed {
            return self.unsigned_by(op, a, divisor as u64);
        }
        // As in `divide`, of magnitudes; but the divisor's sign is known.
        let sign = self.b.binary(BinaryOp::Ashr, Bits::W64, a, 63);
        let magnitude = self.magnitude(a, sign);
        let result = self.unsigned_by(op, magnitude, divisor.unsigned_abs());
        let mut result = self.magnitude(result, sign);
        if op == Arith::Div && divisor < 0 {
            result = self.b.neg(Bits::W64, result);
        }
        if width == Width::B8 {
            result
        } else {
            self.b.extend(width, true, result)
        }
    }

    fn unsigned_by(&mut self, op: Arith, a: Value, divisor: u64) -> Value {
        let mask = divisor.wrapping_sub(1);
        let (binary, constant) = match (op, divisor.is_power_of_two()) {
            (Arith::Div, true) => (BinaryOp::Lshr, u64::from(divisor.trailing_zeros())),
            (Arith::Div, false) => (BinaryOp::Udiv, divisor),
            (_, true) => (BinaryOp::And, mask),
            (_, false) => (BinaryOp::Urem, divisor),
        };
        let rhs = match i32::try_from(constant) {
            Ok(imm) => Operand::Imm(imm),
            Err(_) => self.b.iconst(constant as i64).into(),
        };
        self.b.binary(binary, Bits::W64, a, rhs)
    }

    /// The number with its sign changed if `sign` is all ones, itself if it is 0.
    pub(super) fn magnitude(&mut self, number: Value, sign: Value) -> Value {
        let flipped = self.b.binary(BinaryOp::Xor, Bits::W64, number, sign);
        self.b.binary(BinaryOp::Sub, Bits::W64, flipped, sign)
    }

    /// The value as a number, an address too.
    pub(super) fn number(&mut self, expr: &Expr) -> Value {
        let value = self.value(expr);
        self.as_int(value)
    }

    /// The value as a number that can be computed with.
    pub(super) fn free_number(&mut self, value: Value) -> Value {
        let number = self.as_int(value);
        match self.b.type_of(value) {
            Type::Ptr(Space::Btf) => self.washed(number),
            Type::Int | Type::Ptr(_) | Type::Map => number,
        }
    }

    pub(super) fn as_int(&mut self, value: Value) -> Value {
        match self.b.type_of(value) {
            Type::Int => value,
            Type::Ptr(_) | Type::Map => self.b.cast(Type::Int, value),
        }
    }

    fn converted(&mut self, inner: &Expr, whole: &Expr) -> Value {
        if self.shape(&whole.ty) == Shape::Bool && self.shape(&inner.ty) != Shape::Bool {
            return self.truth(inner);
        }
        let value = self.value(inner);
        self.at(whole.span, "");
        match self.shape(&whole.ty) {
            Shape::Ptr => match self.b.type_of(value) {
                Type::Ptr(Space::Kernel | Space::User) => value,
                // What a cast says is not what the verifier knows.
                Type::Ptr(_) | Type::Int | Type::Map => self.freed(value, Space::Kernel),
            },
            Shape::Int(Width::B8, _) => self.free_number(value),
            Shape::Int(from, signed) => {
                let value = self.free_number(value);
                // A value that fits already is the same after the conversion.
                match self.shape(&inner.ty) {
                    Shape::Int(inner_width, false) if inner_width < from => value,
                    Shape::Int(inner_width, true) if inner_width <= from && signed => value,
                    Shape::Int(inner_width, false) if inner_width == from && !signed => value,
                    Shape::Bool => value,
                    Shape::Int(..) | Shape::Ptr => self.b.extend(from, signed, value),
                }
            }
            Shape::Bool => self.as_int(value),
        }
    }

    /// A condition as the number 0 or 1.
    fn truth(&mut self, cond: &Expr) -> Value {
        let holds = self.b.block("it holds");
        let fails = self.b.block("it fails");
        let (join, params) = self.b.block_with("", &[Type::Int]);
        let known = self.known.len();
        self.condition_in_value(cond, holds, fails);
        self.b.switch_to(holds);
        let one = self.b.iconst(1);
        self.b.jump(join, &[one]);
        self.b.switch_to(fails);
        let zero = self.b.iconst(0);
        self.b.jump(join, &[zero]);
        self.b.switch_to(join);
        self.known.truncate(known);
        params[0]
    }

    fn choice(&mut self, cond: &Expr, then: &Expr, otherwise: &Expr, whole: &Expr) -> Value {
        let ty = match self.shape(&whole.ty) {
            Shape::Ptr => Type::Ptr(Space::Kernel),
            Shape::Int(..) | Shape::Bool => Type::Int,
        };
        let yes = self.b.block("chosen if it holds");
        let no = self.b.block("chosen if not");
        let (join, params) = self.b.block_with("", &[ty]);
        let known = self.known.len();
        self.condition_in_value(cond, yes, no);
        for (block, expr) in [(yes, then), (no, otherwise)] {
            self.b.switch_to(block);
            self.known.truncate(known);
            let value = self.value(expr);
            let value = match ty {
                Type::Ptr(space) => self.freed(value, space),
                Type::Int | Type::Map => self.free_number(value),
            };
            self.b.jump(join, &[value]);
        }
        self.b.switch_to(join);
        self.known.truncate(known);
        params[0]
    }

    /// Two ways on: a new block, and the fault of that pointer, whose value is kept for display.
    pub(super) fn fault_blocks(&mut self, step: Span, offender: Value) -> (Block, BlockCall) {
        self.fault_named(step, "", offender)
    }

    /// The same for a fault that is no bad pointer: `what` goes behind the text of the step and says what it is.
    pub(super) fn fault_named(&mut self, step: Span, what: &str, offender: Value) -> (Block, BlockCall) {
        let text = step
            .text(&self.query.text)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            + what;
        self.fault_numbered(offender, |this| {
            let number = match this.steps.iter().position(|known| *known == text) {
                Some(index) => index + 1,
                None => {
                    this.steps.push(text);
                    this.steps.len()
                }
            };
            this.b.iconst(number as i64)
        })
    }

    /// The same, where something else tells the number of the step.
    pub(super) fn fault_numbered(
        &mut self,
        offender: Value,
        number: impl FnOnce(&mut Self) -> Value,
    ) -> (Block, BlockCall) {
        let to = match self.handlers.last_mut() {
            Some(Handler::Plain(block, says)) => {
                let block = match block {
                    Some(block) => *block,
                    None => *block.insert(self.b.block(*says)),
                };
                call(block, &[])
            }
            Some(Handler::Step(block)) => {
                let block = *block;
                let number = number(self);
                let offender = self.as_int(offender);
                call(block, &[number, offender])
            }
            None => unreachable!("bug in ksnoop-jit: an expression outside of a predicate and a shown value"),
        };
        (self.b.block(""), to)
    }

    /// The address space that a pointer's value has in the IR.
    pub(super) fn space_of(&self, memory: Memory) -> Space {
        match memory {
            Memory::User => Space::User,
            Memory::Kernel | Memory::Unknown => Space::Kernel,
        }
    }

    /// The pointers that an expression follows whatever its conditions turn out to be, outermost last.
    pub(super) fn chain<'e>(expr: &'e Expr, out: &mut Vec<&'e Expr>) {
        match &expr.kind {
            ExprKind::Load(place) => {
                if let Base::Pointer { pointer, .. } = &place.base {
                    Self::chain(pointer, out);
                    out.push(pointer);
                }
            }
            ExprKind::AddrOf(place) => {
                if let Base::Pointer { pointer, .. } = &place.base {
                    Self::chain(pointer, out);
                }
            }
            ExprKind::Neg(e)
            | ExprKind::BitNot(e)
            | ExprKind::Convert(e)
            | ExprKind::Swap(e)
            | ExprKind::AsUser(e)
            | ExprKind::Checked { index: e, .. } => Self::chain(e, out),
            ExprKind::Arith { lhs, rhs, .. } => {
                Self::chain(lhs, out);
                Self::chain(rhs, out);
            }
            ExprKind::Const(_)
            | ExprKind::Arg(_)
            | ExprKind::Return
            | ExprKind::Builtin(_)
            | ExprKind::Compare { .. }
            | ExprKind::Not(_)
            | ExprKind::And(..)
            | ExprKind::Or(..)
            | ExprKind::Cond(..)
            | ExprKind::StrCompare { .. }
            | ExprKind::BytesCompare { .. }
            | ExprKind::Layout { .. }
            | ExprKind::IsErr(_)
            | ExprKind::AtEntry(_) => {}
        }
    }
}

/// The relocation that answers a question about types.
fn layout_reloc(types: &types::Types, fact: &Fact, value: u64) -> RelocData {
    let (kind, root, access, text) = match fact {
        Fact::SizeOf(id) => (
            RelocKind::TypeSize,
            *id,
            vec![0],
            format!("sizeof({})", types.c_name(*id)),
        ),
        Fact::SizeOfField(path) => (
            RelocKind::FieldByteSize,
            path.root,
            path.access.clone(),
            format!("sizeof({})", path.text),
        ),
        Fact::OffsetOf(path) => (
            RelocKind::FieldByteOffset,
            path.root,
            path.access.clone(),
            format!("offsetof({})", path.text),
        ),
    };
    RelocData {
        kind,
        root,
        access,
        text,
        kernel: value,
    }
}

/// The width of so many bytes.
pub(super) fn width(bytes: u32) -> Width {
    match bytes {
        1 => Width::B1,
        2 => Width::B2,
        4 => Width::B4,
        8 => Width::B8,
        other => panic!("bug in ksnoop-jit: a scalar of {other} bytes"),
    }
}
