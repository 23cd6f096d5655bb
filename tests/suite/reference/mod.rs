//! What a query means, worked out from its syntax tree by C's rules on LP64 and the page that describes the language, over
//! made-up memory. Written apart from sema and lowering: it computes with mathematical integers and cuts them to their type,
//! and shares with the compiler only the parser and the reader of types.

mod typing;
mod values;

use ksnoop_jit::parser::ast::{Arg, BinaryOp, Expr, ExprKind, Item, Query, UnaryOp};
use ksnoop_jit::types::{Func, TypeId, Types};

use super::machine::{Machine, Moment, number};
use typing::call_type;
use values::{
    Fault, INT, LONG, Place, Rvalue, Ty, ULONG, common, convert, cut, literal, place, plain, pointee, promote,
};

enum Thing {
    Value(Rvalue),
    Place(Place),
    Text,
    Comm,
}

/// What is shown of one expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shown {
    /// A number, extended to 64 bits.
    Scalar(u64),
    /// A pointer, and what it points to if that can be read (`None`), or nothing is to follow.
    Pointer(u64, Option<u32>),
    /// Memory of that size at an address.
    Memory(u64, u32),
    /// The string at an address.
    String(u64),
    /// The task's name.
    Comm,
    /// It can't be computed.
    Fault,
}

/// The world in which a query is judged.
pub(crate) struct World<'a> {
    pub(crate) types: &'a Types,
    pub(crate) func: &'a Func,
    /// Raw argument registers and stack words.
    pub(crate) args: &'a [u64],
    pub(crate) machine: &'a Machine,
    pub(crate) moment: &'a Moment,
}

/// What a hit adds to an aggregation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hit {
    /// Its keys, as 64 bits each.
    pub(crate) key: Vec<u64>,
    /// What is measured, in the order of the query; 0 for what is only counted.
    pub(crate) values: Vec<i128>,
}

/// What becomes of a hit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Counted {
    /// A predicate does not hold.
    Filtered,
    /// A key or value can't be read.
    Unreadable,
    /// It counts.
    Hit(Hit),
}

/// Calls that aggregate.
const AGGREGATIONS: [&str; 7] = ["count", "sum", "avg", "min", "max", "hist", "lhist"];

/// What a query should do.
pub(crate) struct Verdict {
    pub(crate) passes: bool,
    /// The text of each expression that is shown, with its value; constants may be left out.
    pub(crate) shown: Vec<(String, Shown)>,
}

impl World<'_> {
    pub(crate) fn judge(&self, text: &str, query: &Query) -> Verdict {
        let mut passes = true;
        let mut shown = Vec::new();
        for Item { expr, .. } in query.items.iter().flatten() {
            if is_predicate(expr) {
                passes &= self.holds(expr, false);
                self.leaves(text, expr, &mut shown);
            } else {
                shown.push((expr.span.text(text).to_string(), self.show(expr)));
            }
        }
        if let Some(cond) = &query.cond {
            passes &= self.holds(cond, false);
        }
        Verdict { passes, shown }
    }

    /// What a query that aggregates does with this hit.
    pub(crate) fn count(&self, query: &Query) -> Counted {
        let mut hit = Hit::default();
        let mut bad = false;
        for Item { expr, .. } in query.items.iter().flatten() {
            match &expr.kind {
                ExprKind::Call { func, args } if func.node == "by" => {
                    for arg in args {
                        let key = match arg {
                            Arg::Expr(expr) => expr,
                            Arg::Key(key) => &key.expr,
                            Arg::Type(_) => panic!("a type is no key"),
                        };
                        match self.show(key) {
                            Shown::Scalar(bits) => hit.key.push(bits),
                            Shown::Fault => bad = true,
                            other => panic!("{other:?} is no key of the reference's"),
                        }
                    }
                }
                ExprKind::Call { func, args } if AGGREGATIONS.contains(&func.node.as_str()) => {
                    let value = match args.first() {
                        Some(Arg::Expr(value)) => self.rvalue(value),
                        Some(Arg::Key(_) | Arg::Type(_)) | None => Ok(plain(INT, 0)),
                    };
                    match value {
                        Ok(value) => hit.values.push(value.value),
                        Err(Fault) => bad = true,
                    }
                }
                _ if !self.holds(expr, false) => return Counted::Filtered,
                _ => {}
            }
        }
        match (&query.cond, bad) {
            (Some(cond), _) if !self.holds(cond, false) => Counted::Filtered,
            (_, true) => Counted::Unreadable,
            (_, false) => Counted::Hit(hit),
        }
    }

    fn leaves(&self, text: &str, expr: &Expr, shown: &mut Vec<(String, Shown)>) {
        match &expr.kind {
            ExprKind::Binary { op, lhs, rhs } if is_logical(op.node) || is_relation(op.node) => {
                self.leaves(text, lhs, shown);
                self.leaves(text, rhs, shown);
            }
            ExprKind::Unary { op, operand } if op.node == UnaryOp::Not => self.leaves(text, operand, shown),
            ExprKind::Str(_) => {}
            _ => shown.push((expr.span.text(text).to_string(), self.show(expr))),
        }
    }

    /// Conditions: `!` goes inward, and a comparison in which a fault happens is false.
    fn holds(&self, expr: &Expr, negate: bool) -> bool {
        match &expr.kind {
            ExprKind::Unary { op, operand } if op.node == UnaryOp::Not => self.holds(operand, !negate),
            ExprKind::Binary { op, lhs, rhs } if is_logical(op.node) => {
                // De Morgan.
                if (op.node == BinaryOp::LogAnd) != negate {
                    self.holds(lhs, negate) && self.holds(rhs, negate)
                } else {
                    self.holds(lhs, negate) || self.holds(rhs, negate)
                }
            }
            _ => self.truth(expr).is_ok_and(|truth| truth != negate),
        }
    }

    fn truth(&self, expr: &Expr) -> Result<bool, Fault> {
        Ok(self.rvalue(expr)?.value != 0)
    }

    fn show(&self, expr: &Expr) -> Shown {
        let Ok(thing) = self.thing(expr) else {
            return Shown::Fault;
        };
        let value = match thing {
            Thing::Place(place) => match &place.ty {
                Ty::Aggregate(_) | Ty::Array(..) => {
                    return Shown::Memory(place.address, self.size(&place.ty));
                }
                Ty::Int { .. } | Ty::Bool | Ty::Ptr(_) | Ty::Void | Ty::Char { .. } => {
                    match self.load(&place) {
                        Ok(value) => value,
                        Err(Fault) => return Shown::Fault,
                    }
                }
            },
            Thing::Value(value) => value,
            Thing::Text => panic!("a text is not shown"),
            Thing::Comm => return Shown::Comm,
        };
        let bits = value.value as u64;
        match &value.ty {
            Ty::Ptr(to) => match **to {
                Ty::Char { .. } => Shown::String(bits),
                Ty::Void | Ty::Ptr(_) => Shown::Pointer(bits, None),
                Ty::Int { .. } | Ty::Bool | Ty::Array(..) | Ty::Aggregate(_) => {
                    Shown::Pointer(bits, Some(self.size(to)))
                }
            },
            Ty::Int { .. } | Ty::Bool | Ty::Char { .. } => Shown::Scalar(bits),
            Ty::Array(..) | Ty::Aggregate(_) | Ty::Void => panic!("no such value"),
        }
    }

    fn rvalue(&self, expr: &Expr) -> Result<Rvalue, Fault> {
        match self.thing(expr)? {
            Thing::Value(value) => Ok(value),
            Thing::Place(place) => match place.ty {
                Ty::Array(elem, _) => Ok(plain(Ty::Ptr(elem), i128::from(place.address))),
                Ty::Int { .. } | Ty::Bool | Ty::Ptr(_) | Ty::Aggregate(_) | Ty::Void | Ty::Char { .. } => {
                    self.load(&place)
                }
            },
            Thing::Text | Thing::Comm => panic!("a string is no number"),
        }
    }

    fn thing(&self, expr: &Expr) -> Result<Thing, Fault> {
        Ok(match &expr.kind {
            ExprKind::Int(lit) => Thing::Value(literal(lit)),
            ExprKind::Char(c) => Thing::Value(plain(INT, i128::from(*c as i8))),
            ExprKind::Str(_) => Thing::Text,
            ExprKind::Name(name) => self.name(name),
            ExprKind::Builtin(name) => self.builtin(name),
            ExprKind::Member { base, field, .. } => {
                let (address, outer) = match self.thing(base)? {
                    Thing::Place(Place {
                        address,
                        ty: Ty::Aggregate(id),
                        ..
                    }) => (address, id),
                    Thing::Place(_) | Thing::Value(_) => {
                        let pointer = self.rvalue(base)?;
                        match pointer.ty {
                            Ty::Ptr(to) => match *to {
                                Ty::Aggregate(id) => (pointer.value as u64, id),
                                _ => panic!("a member of no struct"),
                            },
                            _ => panic!("a member of no pointer"),
                        }
                    }
                    Thing::Text | Thing::Comm => panic!("a member of a string"),
                };
                Thing::Place(self.member(address, outer, &field.node))
            }
            ExprKind::Index { base, index } => {
                let len = match self.thing(base)? {
                    Thing::Place(Place {
                        ty: Ty::Array(_, len),
                        ..
                    }) => Some(len).filter(|len| *len > 1),
                    Thing::Place(_) | Thing::Value(_) | Thing::Text | Thing::Comm => None,
                };
                let pointer = self.rvalue(base)?;
                let index = self.rvalue(index)?.value;
                // The index is a `long` before it is compared.
                let index = cut(
                    index,
                    &Ty::Int {
                        bytes: 8,
                        signed: true,
                    },
                );
                if len.is_some_and(|len| index < 0 || index >= i128::from(len)) {
                    return Err(Fault);
                }
                self.pointed(&pointer, index)
            }
            ExprKind::Unary { op, operand } => self.unary(op.node, operand)?,
            ExprKind::Binary { op, lhs, rhs } => Thing::Value(self.binary(op.node, lhs, rhs)?),
            ExprKind::Cond {
                cond,
                then,
                otherwise,
            } => {
                // Both sides give the type, but only one is read: the other's faults don't count.
                let (a, b) = (self.type_of(then), self.type_of(otherwise));
                let ty = match (&a.ty, &b.ty) {
                    (Ty::Ptr(_), _) | (_, Ty::Ptr(_)) => a.ty.clone(),
                    _ => common(&promote(&a), &promote(&b)),
                };
                let chosen = if self.truth(cond)? {
                    self.rvalue(then)?
                } else {
                    self.rvalue(otherwise)?
                };
                Thing::Value(convert(&chosen, ty))
            }
            ExprKind::Cast { ty, operand } => {
                let ty = self.type_name(ty);
                Thing::Value(convert(&self.rvalue(operand)?, ty))
            }
            ExprKind::SizeofType(ty) => {
                let ty = self.type_name(ty);
                Thing::Value(plain(ULONG, i128::from(self.size(&ty))))
            }
            ExprKind::Call { func, args } => Thing::Value(self.call(&func.node, args)?),
        })
    }

    fn name(&self, name: &str) -> Thing {
        if let Some(index) = self.func.params.iter().position(|param| param.name == name) {
            let ty = self.resolve(self.func.params[index].ty);
            // Nothing is promised of what is above the value in its register.
            let raw = i128::from(self.args[index]) & ((1 << (8 * self.size(&ty))) - 1);
            let value = if ty == Ty::Bool { raw } else { cut(raw, &ty) };
            return Thing::Value(plain(ty, value));
        }
        match name {
            "NULL" => return Thing::Value(plain(Ty::Ptr(Box::new(Ty::Void)), 0)),
            "true" => return Thing::Value(plain(INT, 1)),
            "false" => return Thing::Value(plain(INT, 0)),
            "ENOMEM" => return Thing::Value(plain(INT, 12)),
            _ => {}
        }
        if let Some((of, value)) = self.types.enum_constant(name).first() {
            // GNU C: an `int` if that holds it, else what the enum is.
            let ty = if cut(*value, &INT) == *value {
                INT
            } else {
                self.resolve(*of)
            };
            return Thing::Value(plain(ty, *value));
        }
        self.builtin(name)
    }

    fn builtin(&self, name: &str) -> Thing {
        let uint = Ty::Int {
            bytes: 4,
            signed: false,
        };
        Thing::Value(match name {
            "comm" => return Thing::Comm,
            "pid" => plain(INT, i128::from((self.moment.pid_tgid >> 32) as i32)),
            "tid" => plain(INT, i128::from(self.moment.pid_tgid as i32)),
            "uid" => plain(uint, i128::from(self.moment.uid_gid as u32)),
            "gid" => plain(uint, i128::from((self.moment.uid_gid >> 32) as u32)),
            "cpu" => plain(INT, i128::from(self.moment.cpu)),
            "ktime" => plain(ULONG, i128::from(self.moment.ktime)),
            _ => panic!("`{name}` is not known to the reference"),
        })
    }

    fn member(&self, address: u64, outer: TypeId, name: &str) -> Place {
        let Ok(found) = self.types.member(outer, name) else {
            panic!("no member {name}");
        };
        let ty = self.resolve(found.ty);
        match found.bitfield {
            Some(width) => Place {
                address,
                bits: Some((found.bit_offset, u32::from(width))),
                ty,
            },
            None => place(address.wrapping_add(u64::from(found.bit_offset / 8)), ty),
        }
    }

    fn load(&self, place: &Place) -> Result<Rvalue, Fault> {
        let size = self.size(&place.ty) as usize;
        let (value, width) = match place.bits {
            Some((first, width)) => {
                let at = place.address.wrapping_add(u64::from(first / 8));
                let bytes = (first % 8 + width).div_ceil(8) as usize;
                let bytes = self.kernel(at, bytes)?;
                let whole = bytes
                    .iter()
                    .rev()
                    .fold(0i128, |value, byte| value << 8 | i128::from(*byte));
                let value = whole >> (first % 8) & ((1i128 << width) - 1);
                let negative = matches!(place.ty, Ty::Int { signed: true, .. } | Ty::Char { signed: true })
                    && value >> (width - 1) & 1 == 1;
                (if negative { value - (1 << width) } else { value }, Some(width))
            }
            None => {
                let bytes = self.kernel(place.address, size)?;
                (i128::from(number(bytes)), None)
            }
        };
        let value = match place.ty {
            // A `bool` that holds neither 0 nor 1 is undefined in C; it is shown as it is.
            Ty::Bool => value,
            Ty::Int { .. } | Ty::Char { .. } | Ty::Ptr(_) => cut(value, &place.ty),
            Ty::Array(..) | Ty::Aggregate(_) | Ty::Void => panic!("a load of no scalar"),
        };
        Ok(Rvalue {
            ty: place.ty.clone(),
            value,
            width,
        })
    }

    /// Kernel memory: a user address is a fault there.
    pub(crate) fn kernel(&self, address: u64, size: usize) -> Result<&[u8], Fault> {
        match self.machine.bytes(address, size) {
            Some(bytes) if address >> 63 == 1 => Ok(bytes),
            Some(_) | None => Err(Fault),
        }
    }

    /// The place that a pointer points to, so many elements further.
    fn pointed(&self, pointer: &Rvalue, index: i128) -> Thing {
        let Ty::Ptr(to) = &pointer.ty else {
            panic!("no pointer");
        };
        let address = pointer.value + index * i128::from(self.size(to));
        Thing::Place(place(cut(address, &ULONG) as u64, (**to).clone()))
    }

    fn unary(&self, op: UnaryOp, operand: &Expr) -> Result<Thing, Fault> {
        Ok(match op {
            UnaryOp::Deref => {
                let pointer = self.rvalue(operand)?;
                self.pointed(&pointer, 0)
            }
            UnaryOp::Addr => match self.thing(operand)? {
                Thing::Place(place) => {
                    Thing::Value(plain(Ty::Ptr(Box::new(place.ty)), i128::from(place.address)))
                }
                Thing::Value(_) | Thing::Text | Thing::Comm => panic!("no address"),
            },
            UnaryOp::Not => Thing::Value(plain(INT, i128::from(!self.truth(operand)?))),
            UnaryOp::BitNot | UnaryOp::Neg | UnaryOp::Plus => {
                let inner = self.rvalue(operand)?;
                let ty = promote(&inner);
                let value = cut(inner.value, &ty);
                let value = match op {
                    UnaryOp::BitNot => -value - 1,
                    UnaryOp::Neg => -value,
                    UnaryOp::Plus | UnaryOp::Deref | UnaryOp::Addr | UnaryOp::Not => value,
                };
                Thing::Value(plain(ty.clone(), cut(value, &ty)))
            }
        })
    }

    fn binary(&self, op: BinaryOp, lhs: &Expr, rhs: &Expr) -> Result<Rvalue, Fault> {
        if is_logical(op) {
            let first = self.truth(lhs)?;
            let decided = first == (op == BinaryOp::LogOr);
            return Ok(plain(
                INT,
                i128::from(if decided { first } else { self.truth(rhs)? }),
            ));
        }
        if let Some(equal) = self.strings(op, lhs, rhs)? {
            return Ok(plain(INT, i128::from(equal)));
        }
        let (a, b) = (self.rvalue(lhs)?, self.rvalue(rhs)?);
        if matches!(op, BinaryOp::Shl | BinaryOp::Shr) {
            let ty = promote(&a);
            let value = cut(a.value, &ty);
            let Ty::Int { bytes, .. } = ty else {
                panic!("a shift of no integer");
            };
            // What C leaves undefined is what the processor does: the count is cut to the width.
            let by = (cut(b.value, &promote(&b)) & i128::from(bytes * 8 - 1)) as u32;
            let value = if op == BinaryOp::Shl {
                value << by
            } else {
                value >> by
            };
            return Ok(plain(ty.clone(), cut(value, &ty)));
        }
        let pointers = (pointee(&a.ty), pointee(&b.ty));
        if is_relation(op) {
            let ty = match pointers {
                (None, None) => common(&promote(&a), &promote(&b)),
                _ => ULONG,
            };
            let (x, y) = (cut(a.value, &ty), cut(b.value, &ty));
            let holds = match op {
                BinaryOp::Eq => x == y,
                BinaryOp::Ne => x != y,
                BinaryOp::Lt => x < y,
                BinaryOp::Le => x <= y,
                BinaryOp::Gt => x > y,
                BinaryOp::Ge => x >= y,
                _ => panic!("no relation"),
            };
            return Ok(plain(INT, i128::from(holds)));
        }
        match (pointers, op) {
            ((Some(to), None), BinaryOp::Add | BinaryOp::Sub) => {
                let by = cut(b.value, &LONG) * i128::from(self.size(to));
                let value = if op == BinaryOp::Add {
                    a.value + by
                } else {
                    a.value - by
                };
                return Ok(plain(a.ty.clone(), cut(value, &ULONG)));
            }
            ((None, Some(to)), BinaryOp::Add) => {
                let value = b.value + cut(a.value, &LONG) * i128::from(self.size(to));
                return Ok(plain(b.ty.clone(), cut(value, &ULONG)));
            }
            ((Some(to), Some(_)), BinaryOp::Sub) => {
                let bytes = cut(a.value - b.value, &LONG);
                return Ok(plain(LONG, bytes / i128::from(self.size(to))));
            }
            _ => {}
        }
        let a = if pointers.0.is_some() {
            convert(&a, ULONG)
        } else {
            a
        };
        let ty = common(&promote(&a), &promote(&b));
        let (x, y) = (cut(a.value, &ty), cut(b.value, &ty));
        let value = match op {
            // The low 64 bits of a product of two large unsigned numbers are right even where 128 are too few.
            BinaryOp::Mul => x.wrapping_mul(y),
            BinaryOp::Div | BinaryOp::Rem if y == 0 => return Err(Fault),
            BinaryOp::Div => x / y,
            BinaryOp::Rem => x % y,
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
            BinaryOp::And => x & y,
            BinaryOp::Or => x | y,
            BinaryOp::Xor => x ^ y,
            _ => panic!("no arithmetic"),
        };
        Ok(plain(ty.clone(), cut(value, &ty)))
    }

    /// A comparison of a string with a literal, if it is one.
    fn strings(&self, op: BinaryOp, lhs: &Expr, rhs: &Expr) -> Result<Option<bool>, Fault> {
        let (text, literal) = match (&lhs.kind, &rhs.kind) {
            (_, ExprKind::Str(literal)) => (lhs, literal),
            (ExprKind::Str(literal), _) => (rhs, literal),
            _ => return Ok(None),
        };
        // One byte more than the literal tells whether the string goes on.
        let enough = literal.len() + 1;
        let bytes = match self.thing(text)? {
            Thing::Comm => self.moment.comm.to_vec(),
            Thing::Place(Place {
                address,
                ty: Ty::Array(_, len),
                ..
            }) => {
                let len = (len as usize).min(enough);
                self.kernel(address, len)?.to_vec()
            }
            Thing::Place(_) | Thing::Value(_) => {
                let pointer = self.rvalue(text)?.value as u64;
                let mut bytes = Vec::new();
                while bytes.len() < enough && bytes.last() != Some(&0) {
                    let at = pointer.wrapping_add(bytes.len() as u64);
                    bytes.push(self.machine.bytes(at, 1).ok_or(Fault)?[0]);
                }
                bytes
            }
            Thing::Text => panic!("two literals"),
        };
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let equal = bytes[..end] == literal[..];
        Ok(Some(equal == (op == BinaryOp::Eq)))
    }

    fn call(&self, func: &str, args: &[Arg]) -> Result<Rvalue, Fault> {
        let [Arg::Expr(arg)] = args else {
            panic!("{func} with other arguments");
        };
        if func == "sizeof" {
            let size = match self.thing(arg) {
                Ok(Thing::Place(place)) => self.size(&place.ty),
                Ok(_) | Err(Fault) => self.size(&self.type_of(arg).ty),
            };
            return Ok(plain(ULONG, i128::from(size)));
        }
        let inner = self.rvalue(arg)?;
        let ty = call_type(func);
        let value = match func {
            "ntohs" | "htons" => i128::from((inner.value as u16).swap_bytes()),
            "ntohl" | "htonl" => i128::from((inner.value as u32).swap_bytes()),
            "ntohll" | "htonll" => i128::from((inner.value as u64).swap_bytes()),
            "is_err" => {
                let bits = self.size(&inner.ty) * 8;
                let unsigned = inner.value & ((1 << bits) - 1);
                i128::from(unsigned >= (1 << bits) - 4095)
            }
            _ => panic!("{func} is not known to the reference"),
        };
        Ok(plain(ty, value))
    }
}

fn is_relation(op: BinaryOp) -> bool {
    matches!(
        op,
        BinaryOp::Lt
            | BinaryOp::Le
            | BinaryOp::Gt
            | BinaryOp::Ge
            | BinaryOp::Eq
            | BinaryOp::Ne
            | BinaryOp::Match
    )
}

fn is_logical(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::LogAnd | BinaryOp::LogOr)
}

fn is_predicate(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Binary { op, .. } => is_logical(op.node) || is_relation(op.node),
        ExprKind::Unary { op, .. } => op.node == UnaryOp::Not,
        _ => false,
    }
}
