//! Which type an expression has, worked out without its value: for `sizeof`, and for what is not evaluated. In: syntax, the
//! kernel's types. Out: C's types. It reads no memory.

use ksnoop_jit::parser::ast::{BinaryOp, Expr, ExprKind, TypeBase, TypeName, UnaryOp};
use ksnoop_jit::types::{NameKind, Type, TypeId};

use super::values::{Fault, INT, Place, Rvalue, Ty, ULONG, common, place, plain, promote};
use super::{Thing, World, is_logical, is_relation};

impl World<'_> {
    /// The type of an expression. Evaluation gives it, but for faults: then the same in a world without faults is asked.
    pub(super) fn type_of(&self, expr: &Expr) -> Rvalue {
        match self.rvalue(expr) {
            Ok(value) => value,
            Err(Fault) => self.imagine(expr),
        }
    }

    /// A value of the expression's type, where evaluating it is a fault.
    pub(super) fn imagine(&self, expr: &Expr) -> Rvalue {
        let of_place = |place: Place| match place.ty {
            Ty::Array(elem, _) => plain(Ty::Ptr(elem), 0),
            ty => Rvalue {
                ty,
                value: 0,
                width: place.bits.map(|bits| bits.1),
            },
        };
        match &expr.kind {
            ExprKind::Member { .. } | ExprKind::Index { .. } => of_place(self.imagine_place(expr)),
            ExprKind::Unary { op, operand } => match op.node {
                UnaryOp::Deref => of_place(self.imagine_place(expr)),
                UnaryOp::Addr => plain(Ty::Ptr(Box::new(self.imagine_place(operand).ty)), 0),
                UnaryOp::Not => plain(INT, 0),
                UnaryOp::BitNot | UnaryOp::Neg | UnaryOp::Plus => plain(promote(&self.type_of(operand)), 0),
            },
            ExprKind::Binary { op, lhs, rhs } => match op.node {
                op if is_relation(op) || is_logical(op) => plain(INT, 0),
                BinaryOp::Shl | BinaryOp::Shr => plain(promote(&self.type_of(lhs)), 0),
                op => {
                    let (a, b) = (self.type_of(lhs), self.type_of(rhs));
                    match (&a.ty, &b.ty) {
                        (Ty::Ptr(_), Ty::Ptr(_)) => plain(
                            Ty::Int {
                                bytes: 8,
                                signed: true,
                            },
                            0,
                        ),
                        (Ty::Ptr(_), _) if op == BinaryOp::And => plain(ULONG, 0),
                        (Ty::Ptr(_), _) => plain(a.ty, 0),
                        (_, Ty::Ptr(_)) => plain(b.ty, 0),
                        _ => plain(common(&promote(&a), &promote(&b)), 0),
                    }
                }
            },
            ExprKind::Cond { then, otherwise, .. } => {
                let (a, b) = (self.type_of(then), self.type_of(otherwise));
                match &a.ty {
                    Ty::Ptr(_) => a,
                    _ => plain(common(&promote(&a), &promote(&b)), 0),
                }
            }
            ExprKind::Cast { ty, .. } => plain(self.type_name(ty), 0),
            ExprKind::Call { func, .. } => plain(call_type(&func.node), 0),
            ExprKind::Int(_)
            | ExprKind::Char(_)
            | ExprKind::Str(_)
            | ExprKind::Name(_)
            | ExprKind::Builtin(_)
            | ExprKind::SizeofType(_) => panic!("this can't be a fault"),
        }
    }

    pub(super) fn imagine_place(&self, expr: &Expr) -> Place {
        if let Ok(Thing::Place(place)) = self.thing(expr) {
            return place;
        }
        match &expr.kind {
            ExprKind::Member { base, arrow, field } => {
                let outer = if *arrow {
                    self.type_of(base).ty
                } else {
                    self.imagine_place(base).ty
                };
                match outer {
                    Ty::Aggregate(id) => self.member(0, id, &field.node),
                    Ty::Ptr(to) => match *to {
                        Ty::Aggregate(id) => self.member(0, id, &field.node),
                        _ => panic!("a member of no struct"),
                    },
                    _ => panic!("a member of no struct"),
                }
            }
            ExprKind::Index { base, .. } => match self.type_of(base).ty {
                Ty::Ptr(to) => place(0, *to),
                _ => panic!("an index of no pointer"),
            },
            ExprKind::Unary { operand, .. } => match self.type_of(operand).ty {
                Ty::Ptr(to) => place(0, *to),
                _ => panic!("no pointer"),
            },
            _ => panic!("no place"),
        }
    }

    pub(super) fn type_name(&self, name: &TypeName) -> Ty {
        let by_name = |kind: NameKind, name: &str| match self.types.find(kind, name).first() {
            Some(id) => self.resolve(*id),
            None => panic!("no type {name}"),
        };
        let mut ty = match &name.base {
            TypeBase::Struct(name) => by_name(NameKind::Struct, &name.node),
            TypeBase::Union(name) => by_name(NameKind::Union, &name.node),
            TypeBase::Enum(name) => by_name(NameKind::Enum, &name.node),
            TypeBase::Named(name) if name.node == "void" => Ty::Void,
            TypeBase::Named(name) if !self.types.find(NameKind::Typedef, &name.node).is_empty() => {
                by_name(NameKind::Typedef, &name.node)
            }
            TypeBase::Named(name) => c_type(&name.node),
            TypeBase::Words(words) => c_type(&words.node),
        };
        for _ in 0..name.pointers {
            ty = Ty::Ptr(Box::new(ty));
        }
        ty
    }

    /// A type of the kernel's as C sees it.
    pub(super) fn resolve(&self, id: TypeId) -> Ty {
        let named = matches!(self.types.get(self.types.strip_mods(id)), Type::Int(_));
        let id = self.types.complete(id);
        match self.types.get(id) {
            Type::Void | Type::FuncProto { .. } | Type::Func { .. } | Type::Fwd { .. } => Ty::Void,
            Type::Int(int) if int.is_bool => Ty::Bool,
            // `char` of any sign makes strings; a number's typedef, such as `u8`, does not.
            Type::Int(int) if int.size == 1 && (int.is_char || named) => Ty::Char { signed: int.signed },
            Type::Int(int) => Ty::Int {
                bytes: int.size,
                signed: int.signed,
            },
            Type::Enum(e) => Ty::Int {
                bytes: e.size,
                signed: e.signed,
            },
            Type::Ptr(to) => Ty::Ptr(Box::new(self.resolve(to))),
            Type::Array { elem, len } => Ty::Array(Box::new(self.resolve(elem)), len),
            Type::Struct(_) | Type::Union(_) => Ty::Aggregate(id),
            Type::Float { .. }
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Other => panic!("a type that the reference does not know"),
        }
    }

    pub(super) fn size(&self, ty: &Ty) -> u32 {
        match ty {
            Ty::Int { bytes, .. } => *bytes,
            Ty::Bool | Ty::Char { .. } | Ty::Void => 1,
            Ty::Ptr(_) => 8,
            Ty::Array(elem, len) => self.size(elem) * len,
            Ty::Aggregate(id) => self.types.composite(*id).map_or(0, |composite| composite.size),
        }
    }
}

pub(super) fn c_type(name: &str) -> Ty {
    let (bytes, signed) = match name {
        "bool" | "_Bool" => return Ty::Bool,
        "char" => return Ty::Char { signed: true },
        "signed char" | "s8" => (1, true),
        "unsigned char" | "u8" => (1, false),
        "short int" | "short" | "s16" => (2, true),
        "short unsigned int" | "u16" => (2, false),
        "int" | "s32" => (4, true),
        "unsigned int" | "u32" => (4, false),
        "long int" | "long" | "s64" | "long long int" => (8, true),
        "long unsigned int" | "u64" | "long long unsigned int" => (8, false),
        _ => panic!("`{name}` is not known to the reference"),
    };
    Ty::Int { bytes, signed }
}

pub(super) fn call_type(func: &str) -> Ty {
    let bytes = match func {
        "ntohs" | "htons" => 2,
        "ntohl" | "htonl" => 4,
        "ntohll" | "htonll" | "sizeof" => 8,
        _ => return INT,
    };
    Ty::Int { bytes, signed: false }
}
