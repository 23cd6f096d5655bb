//! Layouts as C text, for people: each member with its offset and size, as pahole shows them. In: a struct, union or
//! enum, seen through typedefs and modifiers. Never longer than `LINES_MAX` lines, whatever the BTF.

use super::{Composite, Enum, Member, Type, TypeId, Types};

impl Types {
    /// The type's definition as C, with `/* offset size */` comments (`/* offset:bit width */` for a bitfield), holes
    /// noted. A type without a body gives one line: its name and its size.
    pub fn layout_c(&self, id: TypeId) -> String {
        let stripped = self.strip(id);
        let whole = self.complete(stripped);
        let mut text = Text {
            types: self,
            lines: Vec::new(),
            open: Vec::new(),
        };
        // A typedef of an anonymous type is written as C declares it; a typedef of a named type shows that type.
        let typedef = self.strip_mods(id);
        let alias = if typedef != stripped && self.name(stripped).is_empty() {
            self.name(typedef)
        } else {
            String::new()
        };
        let before = if alias.is_empty() { "" } else { "typedef " };
        let after = if alias.is_empty() {
            ";".to_string()
        } else {
            format!(" {alias};")
        };
        match self.get(whole) {
            Type::Struct(composite) => text.composite(whole, &composite, Place::top(before, after)),
            Type::Union(composite) => text.composite(whole, &composite, Place::top(before, after)),
            Type::Enum(e) => text.enumeration(&e, before, &after),
            Type::Fwd { .. } => text.line(
                0,
                format!(
                    "{}; /* not defined in the BTF that was read */",
                    self.c_name(whole)
                ),
            ),
            Type::Void
            | Type::Int(_)
            | Type::Float { .. }
            | Type::Ptr(_)
            | Type::Array { .. }
            | Type::Typedef(_)
            | Type::Const(_)
            | Type::Volatile(_)
            | Type::Restrict(_)
            | Type::TypeTag { .. }
            | Type::Func { .. }
            | Type::FuncProto { .. }
            | Type::Other => {
                let line = match self.size_of(id) {
                    Some(size) if self.name(typedef).is_empty() => {
                        format!("{}; /* size: {size} */", self.c_name(id))
                    }
                    Some(size) => {
                        let name = self.name(typedef);
                        let target = self.c_decl(stripped, &name);
                        if typedef == stripped {
                            format!("{name}; /* size: {size} */")
                        } else {
                            format!("typedef {target}; /* size: {size} */")
                        }
                    }
                    None => format!("{};", self.c_name(id)),
                };
                text.line(0, line);
            }
        }
        text.lines.join("\n") + "\n"
    }
}

/// `struct` bodies may be nested only so deep, and a text may have only so many lines.
const DEPTH_MAX: usize = 16;
const LINES_MAX: usize = 4000;

/// Column of the comments.
const COMMENT: usize = 56;

struct Text<'a> {
    types: &'a Types,
    lines: Vec<String>,
    /// Anonymous bodies that are being written, to stop at one that contains itself.
    open: Vec<TypeId>,
}

/// Where a body is written, and what stands around it.
struct Place<'a> {
    depth: usize,
    base_bits: u64,
    before: &'a str,
    after: String,
    comment: String,
}

impl Place<'_> {
    fn top(before: &str, after: String) -> Place<'_> {
        Place {
            depth: 0,
            base_bits: 0,
            before,
            after,
            comment: String::new(),
        }
    }
}

impl Text<'_> {
    fn composite(&mut self, id: TypeId, composite: &Composite, place: Place<'_>) {
        let is_union = matches!(self.types.get(id), Type::Union(_));
        let keyword = if is_union { "union" } else { "struct" };
        let name = if composite.name.is_empty() {
            String::new()
        } else {
            format!(" {}", composite.name)
        };
        self.line(place.depth, format!("{}{keyword}{name} {{", place.before));
        self.open.push(id);
        let mut end = 0u64;
        for member in composite.members.iter() {
            if self.lines.len() >= LINES_MAX {
                self.lines.push("/* cut here */".to_string());
                break;
            }
            let start = u64::from(member.bit_offset);
            if !is_union && start > end {
                self.hole(place.depth + 1, end, start);
            }
            self.member(member, place.depth + 1, place.base_bits);
            end = end.max(start.saturating_add(self.bits(member)));
        }
        self.open.pop();
        let size = u64::from(composite.size).saturating_mul(8);
        if !is_union && size > end {
            self.hole(place.depth + 1, end, size);
        }
        if place.depth == 0 {
            self.line(
                place.depth,
                format!("}}{} /* size: {} */", place.after, composite.size),
            );
        } else {
            self.commented(place.depth, format!("}}{}", place.after), &place.comment);
        }
    }

    fn member(&mut self, member: &Member, depth: usize, base_bits: u64) {
        let start = base_bits.saturating_add(u64::from(member.bit_offset));
        let comment = match member.bitfield {
            Some(width) => format!("/* {:5}:{} {width:3} bits */", start / 8, start % 8),
            None => {
                let size = self
                    .types
                    .size_of(member.ty)
                    .map_or("?".to_string(), |size| size.to_string());
                format!("/* {:5} {size:>5} */", start / 8)
            }
        };
        if let Some((id, nested, suffix)) = self.body(member)
            && depth < DEPTH_MAX
            && !self.open.contains(&id)
        {
            let gap = if member.name.is_empty() && suffix.is_empty() {
                ""
            } else {
                " "
            };
            let after = format!("{gap}{}{suffix};", member.name);
            self.composite(
                id,
                &nested,
                Place {
                    depth,
                    base_bits: start,
                    before: "",
                    after,
                    comment,
                },
            );
            return;
        }
        let mut declaration = self.types.c_decl(member.ty, &member.name);
        if let Some(width) = member.bitfield {
            declaration.push_str(&format!(":{width}"));
        }
        self.commented(depth, format!("{declaration};"), &comment);
    }

    /// The anonymous struct or union that a member is, or is an array of (which the suffix then says).
    fn body(&self, member: &Member) -> Option<(TypeId, Composite, String)> {
        let mut id = self.types.strip_mods(member.ty);
        let mut suffix = String::new();
        for _ in 0..super::CHAIN_MAX {
            match self.types.get(id) {
                Type::Struct(composite) | Type::Union(composite) if composite.name.is_empty() => {
                    return Some((id, composite, suffix));
                }
                Type::Array { elem, len } => {
                    suffix.push_str(&format!("[{len}]"));
                    id = self.types.strip_mods(elem);
                }
                Type::Void
                | Type::Int(_)
                | Type::Float { .. }
                | Type::Ptr(_)
                | Type::Struct(_)
                | Type::Union(_)
                | Type::Enum(_)
                | Type::Fwd { .. }
                | Type::Typedef(_)
                | Type::Const(_)
                | Type::Volatile(_)
                | Type::Restrict(_)
                | Type::TypeTag { .. }
                | Type::Func { .. }
                | Type::FuncProto { .. }
                | Type::Other => return None,
            }
        }
        None
    }

    fn enumeration(&mut self, e: &Enum, before: &str, after: &str) {
        let name = if e.name.is_empty() {
            String::new()
        } else {
            format!(" {}", e.name)
        };
        self.line(0, format!("{before}enum{name} {{"));
        for (constant, value) in e.values.iter().take(LINES_MAX) {
            self.line(1, format!("{constant} = {value},"));
        }
        if e.values.len() > LINES_MAX {
            self.line(1, "/* cut here */".to_string());
        }
        self.line(0, format!("}}{after} /* size: {} */", e.size));
    }

    fn bits(&self, member: &Member) -> u64 {
        match member.bitfield {
            Some(width) => u64::from(width),
            None => self.types.size_of(member.ty).unwrap_or(0).saturating_mul(8),
        }
    }

    fn hole(&mut self, depth: usize, from: u64, to: u64) {
        let bits = to - from;
        let (bytes, rest) = (bits / 8, bits % 8);
        let size = match (bytes, rest) {
            (_, 0) => counted(bytes, "byte"),
            (0, _) => counted(rest, "bit"),
            (_, _) => format!("{}, {}", counted(bytes, "byte"), counted(rest, "bit")),
        };
        self.line(depth, format!("/* hole: {size} */"));
    }

    fn commented(&mut self, depth: usize, code: String, comment: &str) {
        let width = COMMENT.saturating_sub(depth * 8);
        self.line(depth, format!("{code:<width$} {comment}"));
    }

    fn line(&mut self, depth: usize, text: String) {
        self.lines.push(format!("{}{text}", "\t".repeat(depth)));
    }
}

fn counted(number: u64, unit: &str) -> String {
    if number == 1 {
        format!("1 {unit}")
    } else {
        format!("{number} {unit}s")
    }
}
