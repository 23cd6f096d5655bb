//! The listing of a program for people (`--dump-insns`). In: a program, the query, and the instructions after relocation if
//! there are any. Out: text, one instruction a line with what it is about, block labels on lines of their own. Never
//! changes what it shows.

use std::fmt::Write as _;

use super::disasm::mnemonic;
use super::insn::{CALL, CLASS_JMP, CLASS_JMP32, EXIT, Insn};
use super::{InsnNote, Program, ProgramReloc, slots};
use crate::ir::RelocKind;

/// Where comments begin. Wider instructions push theirs to the right.
const COMMENT_COLUMN: usize = 44;

/// Lists a program. `relocated` are its bytes as the loader made them; without them the local values are shown.
pub fn listing(program: &Program, query: &str, relocated: Option<&[u8]>) -> String {
    let relocated = relocated
        .map(slots)
        .filter(|after| after.len() == program.insns.len());
    let insns: &[Insn] = relocated.as_deref().unwrap_or(&program.insns);
    let labels = labels(program);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{} ({}): {}, {}{}",
        program.name,
        program.section,
        count(insns.len(), "instruction"),
        count(program.relocs.len(), "relocation"),
        if relocated.is_some() { ", relocated" } else { "" }
    );
    let default = InsnNote::default();
    let mut wide = false;
    // A span or note is said once for a run of instructions, not on each.
    let mut said: Option<(&str, &str)> = None;
    for (slot, insn) in insns.iter().enumerate() {
        if std::mem::take(&mut wide) {
            continue;
        }
        wide = insn.is_wide();
        let note = program.notes.get(slot).unwrap_or(&default);
        for (label, about) in &note.blocks {
            let _ = match about.as_str() {
                "" => writeln!(out, "{label}:"),
                about => writeln!(out, "{label}:  ; {about}"),
            };
            said = None;
        }
        let high = insns.get(slot + 1).filter(|_| wide).map_or(0, |next| next.imm);
        let map = program.map_refs.iter().find(|(at, _)| *at == slot);
        let mut text = mnemonic(*insn, high, map.map(|(_, name)| name.as_str()));
        if let Some(target) = target(slot, *insn)
            && let Some(label) = labels.iter().find(|(at, _)| *at == target)
        {
            let _ = write!(text, " <{}>", label.1);
        }
        let span = note.span.map_or("", |span| span.text(query));
        let mut comments: Vec<String> = Vec::new();
        if said != Some((span, &note.note)) {
            said = Some((span, &note.note));
            match (span, note.note.as_str()) {
                ("", "") => {}
                ("", remark) => comments.push(remark.to_string()),
                (span, "") => comments.push(format!("`{span}`")),
                (span, remark) => comments.push(format!("`{span}` {remark}")),
            }
        }
        if let Some(reloc) = program.relocs.iter().find(|reloc| reloc.insn == slot) {
            comments.push(relocation(reloc));
        }
        let line = format!("{:5}: {text}", 8 * slot);
        if comments.is_empty() {
            let _ = writeln!(out, "{line}");
        } else {
            let _ = writeln!(out, "{line:COMMENT_COLUMN$} ; {}", comments.join("; "));
        }
    }
    out
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

fn relocation(reloc: &ProgramReloc) -> String {
    let kind = match reloc.kind {
        RelocKind::FieldByteOffset => "field_offset",
        RelocKind::FieldByteSize => "field_size",
        RelocKind::FieldLshiftU64 => "field_lshift",
        RelocKind::FieldRshiftU64 => "field_rshift",
        RelocKind::TypeSize => "type_size",
    };
    format!("{kind} {}: {} -> {}", reloc.text, reloc.local, reloc.kernel)
}

/// The slot that a jump goes to.
fn target(slot: usize, insn: Insn) -> Option<usize> {
    let class = insn.code & 7;
    let jumps = (class == CLASS_JMP || class == CLASS_JMP32) && insn.code != CALL && insn.code != EXIT;
    if jumps {
        (slot + 1).checked_add_signed(isize::from(insn.off))
    } else {
        None
    }
}

/// What to call the places that are jumped to: the remark on the block if it is short, else its name.
fn labels(program: &Program) -> Vec<(usize, &str)> {
    let blocks = program.notes.iter().enumerate().filter_map(|(slot, note)| {
        let (name, about) = note.blocks.last()?;
        let short = !about.is_empty() && about.len() <= 24;
        Some((slot, if short { about.as_str() } else { name.as_str() }))
    });
    blocks.collect()
}
