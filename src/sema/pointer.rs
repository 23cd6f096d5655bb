//! Addresses and what they lead to: `&place`, `*pointer`, and into whose memory a pointer points. In: typed expressions. Out:
//! typed expressions and places, or a report. It never decides how memory is read.

use super::ctypes::{Class, class, spell};
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::span::Span;
use crate::typed::{Base, Builtin, Expr, ExprKind, Memory, Place};
use crate::types::Type;

impl Sema<'_> {
    /// `&place`, which an argument in a register and a bitfield don't have.
    pub(super) fn address_of(&mut self, place: Place, ty: CType, span: Span) -> R<Expr> {
        if place.bits.is_some() {
            return self.report(
                Diagnostic::error(Code::BitfieldAddress, place.span, "a bitfield has no address")
                    .label("this is a bitfield")
                    .help("its value can be shown without the `&`"),
            );
        }
        match place.base {
            Base::Pointer { .. } => Ok(Expr {
                kind: ExprKind::AddrOf(Box::new(place)),
                ty,
                span,
            }),
            Base::Arg(_) | Base::Return => self.report(
                Diagnostic::error(
                    Code::NoAddress,
                    place.span,
                    "this is passed in registers and has no address",
                )
                .label("passed by value")
                .help("its value can be shown without the `&`"),
            ),
        }
    }

    /// The place that a pointer points to.
    pub(super) fn deref(&mut self, pointer: Expr, span: Span) -> R<Place> {
        let Class::Ptr(to) = class(self.types, &pointer.ty) else {
            let name = spell(self.types, &pointer.ty);
            return self.report(
                Diagnostic::error(Code::NotPointer, pointer.span, "only a pointer can be followed")
                    .label(format!("its type is `{name}`"))
                    .help("cast it to a pointer first, such as `(struct sk_buff *)x`"),
            );
        };
        let memory = self.memory_of(&pointer, &to);
        let pointee = class(self.types, &to);
        match pointee {
            Class::Void => {
                return self.report(
                    Diagnostic::error(
                        Code::Incomplete,
                        span,
                        "a `void *` says nothing about what it points to",
                    )
                    .label("points to `void`")
                    .help("cast it first, such as `(struct sk_buff *)x`"),
                );
            }
            Class::Func => {
                return self.report(
                    Diagnostic::error(Code::Incomplete, span, "a function can't be read")
                        .label("points to a function"),
                );
            }
            Class::Opaque => {
                let name = spell(self.types, &to);
                let mut diag = Diagnostic::error(Code::Incomplete, span, format!("`{name}` can't be read"))
                    .label(self.why_opaque(&to));
                if matches!(&to, CType::Btf(id) if !id.is_program()) {
                    diag =
                        diag.note("a struct that only a module defines is known when the module is loaded");
                }
                return self.report(diag);
            }
            Class::Int { .. }
            | Class::Bool
            | Class::Float
            | Class::Ptr(_)
            | Class::Composite(_)
            | Class::Array { .. } => {}
        }
        let path = if let Class::Composite(root) = pointee {
            self.path_from(root)
        } else {
            None
        };
        let base = Base::Pointer {
            pointer: Box::new(pointer),
            memory,
        };
        Ok(Place {
            base,
            path,
            offset: 0,
            bits: None,
            ty: to,
            span,
        })
    }

    /// Which address space a pointer to `to` points into.
    pub(super) fn memory_of(&self, pointer: &Expr, to: &CType) -> Memory {
        if let CType::Btf(id) = pointer.ty
            && self.types.has_type_tag(id, "user")
        {
            return Memory::User;
        }
        match &pointer.kind {
            ExprKind::AsUser(_) => Memory::User,
            // What user memory holds as an address is a user address.
            ExprKind::Load(place) | ExprKind::AddrOf(place) => match &place.base {
                Base::Pointer {
                    memory: Memory::User, ..
                } => Memory::User,
                Base::Pointer { .. } => self.untagged(to),
                Base::Arg(_) | Base::Return => self.own(to),
            },
            ExprKind::Convert(inner) | ExprKind::Arith { lhs: inner, .. } | ExprKind::AtEntry(inner) => {
                self.memory_of(inner, to)
            }
            ExprKind::Cond(_, then, _) if self.user => self.memory_of(then, to),
            ExprKind::Builtin(Builtin::Register(_)) => self.own(to),
            ExprKind::Builtin(_) => self.untagged(to),
            ExprKind::Const(_)
            | ExprKind::Arg(_)
            | ExprKind::Return
            | ExprKind::Neg(_)
            | ExprKind::BitNot(_)
            | ExprKind::Compare { .. }
            | ExprKind::Not(_)
            | ExprKind::And(..)
            | ExprKind::Or(..)
            | ExprKind::Cond(..)
            | ExprKind::StrCompare { .. }
            | ExprKind::BytesCompare { .. }
            | ExprKind::Layout { .. }
            | ExprKind::Checked { .. }
            | ExprKind::Swap(_)
            | ExprKind::IsErr(_) => self.own(to),
        }
    }

    /// Where the pointers point to that what is traced has for itself: a program's into its own memory.
    fn own(&self, to: &CType) -> Memory {
        if self.user {
            Memory::User
        } else {
            self.untagged(to)
        }
    }

    /// Kernels that gcc built have no `__user` tags, so a string's address itself has to tell.
    fn untagged(&self, to: &CType) -> Memory {
        if self.is_char(to) {
            Memory::Unknown
        } else {
            Memory::Kernel
        }
    }

    /// Whether a pointer to it is shown as the string that lies there. That is what `char *` means; an `unsigned char *` leads
    /// to bytes of any kind (`skb->data`, `dev->dev_addr`), unless what holds it is a name (`struct qstr.name`).
    pub(super) fn is_shown_as_text(&self, pointer: &Expr, to: &CType) -> bool {
        match to {
            CType::Btf(id) => match self.types.get(self.types.strip_mods(*id)) {
                Type::Int(int) => int.is_char || (self.is_char(to) && self.is_name(pointer)),
                Type::Typedef(_) => self.is_char(to),
                Type::Void
                | Type::Float { .. }
                | Type::Ptr(_)
                | Type::Array { .. }
                | Type::Struct(_)
                | Type::Union(_)
                | Type::Enum(_)
                | Type::Fwd { .. }
                | Type::Const(_)
                | Type::Volatile(_)
                | Type::Restrict(_)
                | Type::TypeTag { .. }
                | Type::Func { .. }
                | Type::FuncProto { .. }
                | Type::Other => false,
            },
            CType::Int { bytes, signed } => *bytes == 1 && *signed,
            CType::Void | CType::Bool | CType::Ptr(_) => false,
        }
    }

    /// Whether the member or argument that is read is called a name.
    fn is_name(&self, pointer: &Expr) -> bool {
        match &pointer.kind {
            ExprKind::AsUser(inner) | ExprKind::AtEntry(inner) => self.is_name(inner),
            ExprKind::Load(place) => place
                .path
                .as_ref()
                .is_some_and(|path| path.text.ends_with("name")),
            ExprKind::Arg(index) => self
                .params
                .get(*index)
                .is_some_and(|param| param.name.ends_with("name")),
            ExprKind::Return
            | ExprKind::Builtin(_)
            | ExprKind::Convert(_)
            | ExprKind::Arith { .. }
            | ExprKind::AddrOf(_)
            | ExprKind::Const(_)
            | ExprKind::Neg(_)
            | ExprKind::BitNot(_)
            | ExprKind::Compare { .. }
            | ExprKind::Not(_)
            | ExprKind::And(..)
            | ExprKind::Or(..)
            | ExprKind::Cond(..)
            | ExprKind::StrCompare { .. }
            | ExprKind::BytesCompare { .. }
            | ExprKind::Layout { .. }
            | ExprKind::Checked { .. }
            | ExprKind::Swap(_)
            | ExprKind::IsErr(_) => false,
        }
    }

    /// Whether it can be taken for a string: `char` of either sign, also `unsigned char` if it is called so (file names are
    /// made of that); a `u8` is a number.
    pub(super) fn is_char(&self, ty: &CType) -> bool {
        match ty {
            CType::Btf(id) => match self.types.get(self.types.strip_mods(*id)) {
                Type::Int(int) => int.size == 1 && !int.is_bool,
                Type::Typedef(to) => {
                    matches!(self.types.get_stripped(to), Type::Int(int) if int.size == 1 && int.is_char)
                }
                Type::Void
                | Type::Float { .. }
                | Type::Ptr(_)
                | Type::Array { .. }
                | Type::Struct(_)
                | Type::Union(_)
                | Type::Enum(_)
                | Type::Fwd { .. }
                | Type::Const(_)
                | Type::Volatile(_)
                | Type::Restrict(_)
                | Type::TypeTag { .. }
                | Type::Func { .. }
                | Type::FuncProto { .. }
                | Type::Other => false,
            },
            CType::Int { bytes, .. } => *bytes == 1,
            CType::Void | CType::Bool | CType::Ptr(_) => false,
        }
    }
}
