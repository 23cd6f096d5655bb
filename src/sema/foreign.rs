//! Words of other tracers, and of the kernel's sources, that mean nothing here: what is written instead. In: a name as it was written. Out:
//! a sentence. Never decides whether the name is known.

use super::Sema;
use crate::parser::ast::{self, ExprKind as Ast};
use crate::suggest::edits;

/// What to write instead of a name of a value.
pub(super) fn value(name: &str) -> Option<&'static str> {
    Some(match name {
        "current" | "curtask" => "the running task is `task`: `task->comm`",
        "nsecs" | "timestamp" => "the time is `ktime`, in nanoseconds since boot",
        "elapsed" | "latency" | "delta" => "how long the call took is `duration`",
        "probe" => "what is traced is `func`",
        _ => return None,
    })
}

/// What to write instead of calling a function of that name.
pub(super) fn function(name: &str) -> Option<&'static str> {
    Some(match name {
        "PTR_ERR" | "ERR_PTR" => {
            "an error pointer is shown as its error's name; `is_err(p)` is whether it is one, and `(long)p == -ENOMEM` whether that"
        }
        "IS_ERR" | "IS_ERR_OR_NULL" | "IS_ERR_VALUE" => "`is_err(p)` is whether it is an error pointer",
        "strcmp" | "strncmp" => "`==` compares strings: `comm == \"sh\"`",
        "strstr" | "strcontains" => "`=~` compares a string with a pattern: `comm =~ \"*ssh*\"`",
        "be16_to_cpu" | "__be16_to_cpu" | "cpu_to_be16" => "`ntohs(x)` and `htons(x)` change the byte order",
        "be32_to_cpu" | "__be32_to_cpu" | "cpu_to_be32" => "`ntohl(x)` and `htonl(x)` change the byte order",
        "be64_to_cpu" | "__be64_to_cpu" | "cpu_to_be64" => {
            "`ntohll(x)` and `htonll(x)` change the byte order"
        }
        "bswap" => "`ntohs(x)`, `ntohl(x)` and `ntohll(x)` change the byte order",
        "printf" | "print" => {
            "values are shown by naming them between the parentheses: `FUNC(arg, arg->member)`"
        }
        "raw_cpu_ptr" => "`this_cpu_ptr(p)` is where that is for this CPU",
        _ => return None,
    })
}

/// Whether it looks like the name of a macro, which BTF has not.
pub(super) fn is_macro(name: &str) -> bool {
    let spelled = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.len() > 2 && name.chars().all(spelled) && name.contains(|c: char| c.is_ascii_uppercase())
}

/// Whether a constant may have been meant by the name of a macro: all is alike but a letter, or it is the beginning.
pub(super) fn nearly(name: &str, constant: &str) -> bool {
    constant.starts_with(name) || edits(name, constant, 1).is_some()
}

impl Sema<'_> {
    /// `prev_comm`, as tracepoints' formats have it: the member of the argument that it may be.
    pub(super) fn field_of_format(&self, name: &str) -> Option<String> {
        self.params.iter().find_map(|param| {
            let member = name.strip_prefix(param.name.as_str())?.strip_prefix('_')?;
            self.argument_member(param, member)
        })
    }

    /// A word beside a string is a text without its quotes: adds that to what is said of the word.
    pub(super) fn help_with_quotes(&mut self, word: &ast::Expr) {
        let Ast::Name(name) = &word.kind else {
            return;
        };
        if let Some(diag) = self.diags.last_mut()
            && diag.span == word.span
        {
            diag.help
                .insert(0, format!("a text stands in double quotes: `\"{name}\"`"));
        }
    }

    /// `(struct file)file->f_pos`, where the kernel's probe events mean `file`: what that is in C.
    pub(super) fn help_with_cast(&self, name: &str, operand: &ast::Expr) -> Option<String> {
        let mut inner = operand;
        while let Ast::Member { base, .. } | Ast::Index { base, .. } = &inner.kind {
            inner = base;
        }
        if inner.span == operand.span {
            return None;
        }
        let text = self
            .text
            .get(inner.span.end as usize..operand.span.end as usize)?;
        let first = inner.span.text(self.text);
        Some(format!(
            "a cast is of all that follows; of `{first}` alone it is `(({name} *){first}){text}`"
        ))
    }
}
