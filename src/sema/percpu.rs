//! Per-CPU data: `this_cpu_ptr(p)` and `this_cpu_read(p)` of the kernel and of its probe events. In: a pointer into the per-CPU area, or
//! a symbol of it as `@NAME`. Out: where that is for the CPU that the event is on (`SHIFT_PERCPU_PTR`, include/linux/percpu-defs.h:
//! the distance of each CPU's area is in an array of the kernel). Never looks at another CPU's.

use super::ctypes::{Class, class, spell};
use super::expr::Operand;
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::{PER_CPU_OFFSETS, ast};
use crate::span::Span;
use crate::typed::{Arith, Base, Builtin, Expr, ExprKind, Memory, Place};

impl Sema<'_> {
    /// `this_cpu_ptr(p)`, of the type of `p`.
    pub(super) fn this_cpu_ptr(&mut self, pointer: &ast::Expr, span: Span) -> R<Expr> {
        if self.user {
            return self.report(
                Diagnostic::error(Code::BadArguments, span, "programs have no data of each CPU")
                    .label("it is the kernel's"),
            );
        }
        let pointer = self.per_cpu_pointer(pointer)?;
        if !matches!(class(self.types, &pointer.ty), Class::Ptr(_)) {
            let name = spell(self.types, &pointer.ty);
            return self.report(
                Diagnostic::error(
                    Code::NotPointer,
                    pointer.span,
                    "per-CPU data is found by a pointer",
                )
                .label(format!("its type is `{name}`"))
                .help("with `&` before it, if it is a variable itself"),
            );
        }
        let distance = self.distance_of_cpu(span)?;
        let ty = pointer.ty.clone();
        let kind = ExprKind::Arith {
            op: Arith::Add,
            lhs: Box::new(pointer),
            rhs: Box::new(distance),
        };
        Ok(Expr { kind, ty, span })
    }

    /// `this_cpu_read(p)`: what is there; behind a `void *`, 64 bits.
    pub(super) fn this_cpu_read(&mut self, pointer: &ast::Expr, span: Span) -> R<Operand> {
        let mut here = self.this_cpu_ptr(pointer, span)?;
        if let Class::Ptr(to) = class(self.types, &here.ty)
            && let Class::Void = class(self.types, &to)
        {
            here.ty = CType::Ptr(Box::new(CType::ULONG));
        }
        Ok(Operand::Place(self.deref(here, span)?))
    }

    /// In `@NAME` it is the symbol that is meant, not what lies there.
    fn per_cpu_pointer(&mut self, pointer: &ast::Expr) -> R<Expr> {
        let symbol = pointer.span.text(self.text).starts_with('@');
        let operand = self.operand(pointer)?;
        if symbol && let Operand::Place(place) = operand {
            let ty = CType::Ptr(Box::new(place.ty.clone()));
            return self.address_of(place, ty, pointer.span);
        }
        self.rvalue(operand)
    }

    /// How far this CPU's area is from where per-CPU pointers point, in bytes.
    fn distance_of_cpu(&mut self, span: Span) -> R<Expr> {
        let long = |kind| Expr {
            kind,
            ty: CType::LONG,
            span,
        };
        let Some(offsets) = self.types.address(PER_CPU_OFFSETS) else {
            return self.report(
                Diagnostic::error(
                    Code::UnknownName,
                    span,
                    "it is not known where the data of this CPU is",
                )
                .label(format!("no address of `{PER_CPU_OFFSETS}`"))
                .note(match self.types.is_elsewhere() {
                    true => "with `--btf`, addresses are another kernel's",
                    false => {
                        "the running kernel hides its symbols, or was built without CONFIG_KALLSYMS_ALL or for one CPU"
                    }
                }),
            );
        };
        let cpu = Expr {
            kind: ExprKind::Builtin(Builtin::Cpu),
            ty: CType::Int {
                bytes: 4,
                signed: false,
            },
            span,
        };
        let index = long(ExprKind::Arith {
            op: Arith::Mul,
            lhs: Box::new(self.convert(cpu, CType::LONG)),
            rhs: Box::new(long(ExprKind::Const(8))),
        });
        let ty = CType::Ptr(Box::new(CType::ULONG));
        let array = Expr {
            kind: ExprKind::Const(offsets as i64),
            ty: ty.clone(),
            span,
        };
        let element = Expr {
            kind: ExprKind::Arith {
                op: Arith::Add,
                lhs: Box::new(array),
                rhs: Box::new(index),
            },
            ty,
            span,
        };
        let distance = Expr {
            kind: ExprKind::Load(Box::new(Place {
                base: Base::Pointer {
                    pointer: Box::new(element),
                    memory: Memory::Kernel,
                },
                path: None,
                offset: 0,
                bits: None,
                ty: CType::ULONG,
                span,
            })),
            ty: CType::ULONG,
            span,
        };
        Ok(self.convert(distance, CType::LONG))
    }
}
