//! What the name of a type means: C's own first, then those of the program or module that is traced, then the kernel's. In: a type as it is
//! written. Out: the type; for a wrong name a report with what is near.

use super::ctypes::{Class, class};
use super::{R, Sema};
use crate::ctype::CType;
use crate::diag::{Code, Diagnostic};
use crate::parser::ast;
use crate::span::Span;
use crate::suggest::nearest;
use crate::typed::{Base, Expr, ExprKind, Place};
use crate::types::NameKind;

/// Type names that mean the same on every kernel, for suggestions.
const C_TYPES: [&str; 13] = [
    "char", "short", "int", "long", "bool", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64",
];

impl Sema<'_> {
    /// A type as written.
    pub(super) fn type_name(&mut self, ty: &ast::TypeName) -> R<CType> {
        let mut found = match &ty.base {
            ast::TypeBase::Struct(name) => self.tagged(NameKind::Struct, "struct", name)?,
            ast::TypeBase::Union(name) => self.tagged(NameKind::Union, "union", name)?,
            ast::TypeBase::Enum(name) => self.tagged(NameKind::Enum, "enum", name)?,
            ast::TypeBase::Words(words) => self.named_type(&words.node, words.span)?,
            ast::TypeBase::Named(name) => self.named_type(&name.node, name.span)?,
        };
        for _ in 0..ty.pointers {
            found = CType::Ptr(Box::new(found));
        }
        Ok(found)
    }

    fn tagged(&mut self, kind: NameKind, keyword: &str, name: &ast::Ident) -> R<CType> {
        let found = self.types_named(kind, &name.node);
        // A struct that the function's own module defines is meant before one of the same name elsewhere.
        let own = found.iter().find(|id| id.module == self.module);
        if let Some(id) = own.or(found.first()) {
            return Ok(CType::Btf(*id));
        }
        let names = self.names_of(kind);
        let near = nearest(&name.node, names.iter().map(String::as_str));
        let mut diag = Diagnostic::error(
            Code::UnknownType,
            name.span,
            format!("there is no `{keyword} {}`", name.node),
        )
        .label(self.not_in_btf());
        let others = self.keywords_of(&name.node);
        for other in &others {
            diag = diag.help(format!("did you mean `{other} {}`?", name.node));
        }
        if !near.is_empty() && others.is_empty() {
            let near: Vec<String> = near.iter().map(|n| format!("`{keyword} {n}`")).collect();
            diag = diag.help(format!("did you mean {}?", near.join(" or ")));
        }
        self.report(diag)
    }

    fn named_type(&mut self, name: &str, span: Span) -> R<CType> {
        // C's own types need no BTF, and mean the same everywhere.
        let own = match name {
            "void" => Some(CType::Void),
            "_Bool" | "bool" => Some(CType::Bool),
            "char" | "signed char" => Some(CType::Int {
                bytes: 1,
                signed: true,
            }),
            "unsigned char" | "u8" | "__u8" => Some(CType::Int {
                bytes: 1,
                signed: false,
            }),
            "s8" | "__s8" => Some(CType::Int {
                bytes: 1,
                signed: true,
            }),
            "short int" | "short" | "s16" | "__s16" => Some(CType::Int {
                bytes: 2,
                signed: true,
            }),
            "short unsigned int" | "unsigned short" | "u16" | "__u16" => Some(CType::Int {
                bytes: 2,
                signed: false,
            }),
            "int" | "s32" | "__s32" => Some(CType::INT),
            "unsigned int" | "u32" | "__u32" => Some(CType::UINT),
            "long int" | "long" | "long long int" | "s64" | "__s64" => Some(CType::LONG),
            "long unsigned int" | "unsigned long" | "long long unsigned int" | "u64" | "__u64" => {
                Some(CType::ULONG)
            }
            _ => None,
        };
        // BTF's `char` is kept where there is one: it makes strings of pointers to it.
        if name == "char"
            && let Some(id) = self.types_named(NameKind::Int, "char").first()
        {
            return Ok(CType::Btf(*id));
        }
        if let Some(own) = own {
            return Ok(own);
        }
        let mut found = self.types_named(NameKind::Typedef, name);
        if found.is_empty() {
            found = self.types_named(NameKind::Int, name);
        }
        if let Some(id) = found.first() {
            return Ok(CType::Btf(*id));
        }
        let mut diag = Diagnostic::error(Code::UnknownType, span, format!("there is no type `{name}`"))
            .label(self.not_in_btf());
        let keywords = self.keywords_of(name);
        for keyword in &keywords {
            diag = diag.help(format!("did you mean `{keyword} {name}`?"));
        }
        if keywords.is_empty() {
            let typedefs = self.names_of(NameKind::Typedef);
            let known = C_TYPES.into_iter().chain(typedefs.iter().map(String::as_str));
            let near = nearest(name, known);
            if !near.is_empty() {
                let near: Vec<String> = near.iter().map(|n| format!("`{n}`")).collect();
                diag = diag.help(format!("did you mean {}?", near.join(" or ")));
            }
        }
        self.report(diag)
    }

    /// The keywords with which the name is a type.
    pub(super) fn keywords_of(&self, name: &str) -> Vec<&'static str> {
        [
            (NameKind::Struct, "struct"),
            (NameKind::Union, "union"),
            (NameKind::Enum, "enum"),
        ]
        .into_iter()
        .filter(|(kind, _)| !self.types_named(*kind, name).is_empty())
        .map(|(_, keyword)| keyword)
        .collect()
    }

    /// A place for the typed members of `offsetof` and `container_of`: never read.
    pub(super) fn imaginary(&self, ty: &CType, span: Span) -> Option<Place> {
        let Class::Composite(root) = class(self.types, ty) else {
            return None;
        };
        let pointer = Expr {
            kind: ExprKind::Const(0),
            ty: CType::Ptr(Box::new(ty.clone())),
            span,
        };
        let base = Base::Pointer {
            pointer: Box::new(pointer),
            memory: crate::typed::Memory::Kernel,
        };
        Some(Place {
            base,
            path: self.path_from(root),
            offset: 0,
            bits: None,
            ty: ty.clone(),
            span,
        })
    }
}
