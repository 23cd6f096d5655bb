//! Address literals, `ip("10.0.0.1")`, `ip("::1")` and `mac("02:00:00:00:00:01")`: their bytes as they lie in memory, and their
//! comparison with what lies there.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::ctypes::{Class, class, size_of, spell};
use super::expr::{Operand, value};
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast::{self, Arg, BinaryOp};
use crate::span::Span;
use crate::typed::{Base, ExprKind, Memory, Place};
use crate::wire::Format;

/// An address as it lies in memory.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// 4, 6 or 16 of them.
    pub(super) bytes: Vec<u8>,
    /// Where it was written.
    pub(super) span: Span,
}

impl Address {
    fn what(&self) -> &'static str {
        match self.bytes.len() {
            4 => "an IPv4 address",
            6 => "a MAC address",
            _ => "an IPv6 address",
        }
    }

    /// How a value that is compared with it is best shown.
    pub(super) fn format(&self) -> Format {
        if self.bytes.len() == 6 {
            Format::Mac
        } else {
            Format::Ip
        }
    }

    /// An IPv4 address is a number too, as a `__be32` has it.
    pub(super) fn number(&self) -> Option<i64> {
        let four = <[u8; 4]>::try_from(self.bytes.as_slice()).ok()?;
        Some(i64::from(u32::from_ne_bytes(four)))
    }
}

impl Sema<'_> {
    /// `ip("…")` and `mac("…")`.
    pub(super) fn address_call(&mut self, func: &ast::Ident, args: &[Arg], span: Span) -> R<Operand> {
        let [
            Arg::Expr(ast::Expr {
                kind: ast::ExprKind::Str(text),
                span: at,
            }),
        ] = args
        else {
            return self.wrong_arguments(func, args, span);
        };
        let text = String::from_utf8_lossy(text);
        let (bytes, title, label) = if func.node == "mac" {
            (
                mac_bytes(&text),
                "not a MAC address",
                "expected six bytes in hexadecimal, such as 02:00:5e:10:00:01",
            )
        } else {
            let v4 = text.parse::<Ipv4Addr>().map(|v4| v4.octets().to_vec());
            let any = v4.or_else(|_| text.parse::<Ipv6Addr>().map(|v6| v6.octets().to_vec()));
            let label = if text.contains(':') {
                "expected an IPv6 address, such as fe80::1"
            } else {
                "expected four numbers up to 255, such as 10.0.0.1"
            };
            (any.ok(), "not an IP address", label)
        };
        match bytes {
            Some(bytes) => Ok(Operand::Address(Address { bytes, span })),
            None => self.report(Diagnostic::error(Code::BadArguments, *at, title).label(label)),
        }
    }

    /// Why an address that is no number can't be computed with.
    pub(super) fn address_value<T>(&mut self, address: &Address) -> R<T> {
        self.report(
            Diagnostic::error(
                Code::TypeClash,
                address.span,
                format!("{} is not a number", address.what()),
            )
            .label("it can only be compared with what is in memory")
            .help(
                "compare with `==` or `!=`: `sk->sk_v6_daddr == ip(\"::1\")`, `dev->dev_addr == mac(\"…\")`",
            ),
        )
    }

    /// A comparison with an address.
    pub(super) fn compare_address(
        &mut self,
        op: BinaryOp,
        op_span: Span,
        other: Operand,
        address: Address,
        span: Span,
    ) -> R<Operand> {
        let equal = if op == BinaryOp::Eq {
            true
        } else if op == BinaryOp::Ne {
            false
        } else {
            return self.report(
                Diagnostic::error(Code::TypeClash, op_span, "addresses are only equal or not")
                    .label("no order between addresses")
                    .secondary(address.span, format!("this is {}", address.what()))
                    .help("compare with `==` or `!=`"),
            );
        };
        let at = other.span();
        let place = self.bytes_of(other, &address)?;
        let kind = ExprKind::BytesCompare {
            place: Box::new(Place { span: at, ..place }),
            equal,
            bytes: address.bytes,
        };
        Ok(value(kind, CType::INT, span))
    }

    /// The memory that is compared with an address: a struct or array of its size, or what a pointer points to.
    fn bytes_of(&mut self, other: Operand, address: &Address) -> R<Place> {
        let at = other.span();
        let wanted = address.bytes.len() as u64;
        let ty = match &other {
            Operand::Place(place) => place.ty.clone(),
            Operand::Value(expr) => expr.ty.clone(),
            Operand::Address(other) => {
                return self.report(
                    Diagnostic::error(Code::TypeClash, address.span, "both sides are constants")
                        .label(format!("this is {}", address.what()))
                        .secondary(other.span, format!("and this is {}", other.what())),
                );
            }
            Operand::Str(..)
            | Operand::Comm(_)
            | Operand::Func(_)
            | Operand::Sized(_)
            | Operand::Symbol(_) => {
                return self.report(
                    Diagnostic::error(Code::TypeClash, at, "a string is no address")
                        .label("this is a string")
                        .secondary(address.span, format!("this is {}", address.what())),
                );
            }
        };
        let mut size = size_of(self.types, &ty);
        match class(self.types, &ty) {
            Class::Composite(_) | Class::Array { .. } if size == Some(wanted) => {
                if let Operand::Place(place) = other {
                    return Ok(place);
                }
            }
            Class::Ptr(to) => {
                let inner = class(self.types, &to);
                size = size_of(self.types, &to);
                // The address of an array's first byte is how C passes these around.
                let loose = matches!(inner, Class::Void) || size == Some(1);
                if loose || size == Some(wanted) {
                    let pointer = self.rvalue(other)?;
                    if !loose {
                        return self.deref(pointer, at);
                    }
                    let memory = match self.memory_of(&pointer, &to) {
                        Memory::User => Memory::User,
                        Memory::Kernel | Memory::Unknown => Memory::Kernel,
                    };
                    return Ok(Place {
                        base: Base::Pointer {
                            pointer: Box::new(pointer),
                            memory,
                        },
                        path: None,
                        offset: 0,
                        bits: None,
                        ty: to,
                        span: at,
                    });
                }
            }
            Class::Composite(_)
            | Class::Array { .. }
            | Class::Int { .. }
            | Class::Bool
            | Class::Void
            | Class::Float
            | Class::Func
            | Class::Opaque => {}
        }
        let name = spell(self.types, &ty);
        let bytes = match size {
            Some(size) => format!("this has {size} bytes: its type is `{name}`"),
            None => format!("its type is `{name}`"),
        };
        let mut diag = Diagnostic::error(
            Code::TypeClash,
            address.span,
            format!("{} has {wanted} bytes", address.what()),
        )
        .label("can't be compared with that")
        .secondary(at, bytes);
        if let (Some(v4), Some(16)) = (address.number(), size) {
            let v4 = Ipv4Addr::from((v4 as u32).to_ne_bytes());
            diag = diag.help(format!("as an IPv6 address it is `ip(\"::ffff:{v4}\")`"));
        }
        self.report(diag)
    }
}

fn mac_bytes(text: &str) -> Option<Vec<u8>> {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Option<Vec<u8>> = text
        .split(separator)
        .map(|part| match part.as_bytes() {
            [a] | [a, _] if a.is_ascii_hexdigit() => u8::from_str_radix(part, 16).ok(),
            _ => None,
        })
        .collect();
    parts.filter(|bytes| bytes.len() == 6)
}
