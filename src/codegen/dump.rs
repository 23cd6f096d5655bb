//! BTF as text for `--dump-btf`, in the manner of `bpftool btf dump format raw`. In: BTF bytes. Out: one line for each type
//! and member. Total: what is broken is said to be.

use std::fmt::Write as _;

use super::Object;

/// The local types of an object, then the slice of the kernel's that it is relocated against.
pub fn dump_btf(object: &Object) -> String {
    format!(
        "local BTF ({} bytes):\n{}\ntarget BTF ({} bytes):\n{}",
        object.local_btf.len(),
        dump(&object.local_btf),
        object.target_btf.len(),
        dump(&object.target_btf)
    )
}

/// One BTF object.
fn dump(btf: &[u8]) -> String {
    let mut out = String::new();
    if Reader::new(btf)
        .and_then(|reader| reader.types(&mut out))
        .is_none()
    {
        out.push_str("(broken)\n");
    }
    out
}

/// The name of a type in a finished BTF object; `None` where there is none such.
pub(super) fn name_of(btf: &[u8], id: u32) -> Option<String> {
    let reader = Reader::new(btf)?;
    let mut at = 0;
    for current in 1..=id {
        let head = reader.head(at)?;
        if current == id {
            return Some(reader.string(head.name).to_string());
        }
        at += 12 + head.tail()?;
    }
    None
}

struct Reader<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

#[derive(Clone, Copy)]
struct Head {
    name: u32,
    info: u32,
    size_or_type: u32,
}

impl Head {
    fn kind(self) -> u32 {
        (self.info >> 24) & 0x1f
    }

    fn vlen(self) -> usize {
        (self.info & 0xffff) as usize
    }

    fn flag(self) -> bool {
        self.info >> 31 == 1
    }

    /// Bytes that follow the head.
    fn tail(self) -> Option<usize> {
        match self.kind() {
            1 | 14 | 17 => Some(4),
            3 => Some(12),
            4 | 5 | 15 | 19 => Some(12 * self.vlen()),
            6 | 13 => Some(8 * self.vlen()),
            2 | 7..=12 | 16 | 18 => Some(0),
            _ => None,
        }
    }
}

impl<'a> Reader<'a> {
    fn new(btf: &'a [u8]) -> Option<Reader<'a>> {
        let header = usize::try_from(word(btf, 4)?).ok()?;
        let part = |offset: usize, length: usize| {
            let start = header.checked_add(word(btf, offset)? as usize)?;
            btf.get(start..start.checked_add(word(btf, length)? as usize)?)
        };
        Some(Reader {
            types: part(8, 12)?,
            strings: part(16, 20)?,
        })
    }

    fn head(&self, at: usize) -> Option<Head> {
        Some(Head {
            name: word(self.types, at)?,
            info: word(self.types, at + 4)?,
            size_or_type: word(self.types, at + 8)?,
        })
    }

    fn string(&self, offset: u32) -> &'a str {
        let bytes = self.strings.get(offset as usize..).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        std::str::from_utf8(&bytes[..end]).unwrap_or("(not UTF-8)")
    }

    fn name(&self, offset: u32) -> &'a str {
        match self.string(offset) {
            "" => "(anon)",
            name => name,
        }
    }

    fn types(&self, out: &mut String) -> Option<()> {
        let mut at = 0;
        let mut id = 1;
        while at < self.types.len() {
            let head = self.head(at)?;
            let tail = self.types.get(at + 12..at + 12 + head.tail()?)?;
            self.line(id, head, tail, out)?;
            at += 12 + tail.len();
            id += 1;
        }
        Some(())
    }

    fn line(&self, id: u32, head: Head, tail: &[u8], out: &mut String) -> Option<()> {
        let Head { size_or_type, .. } = head;
        let name = self.name(head.name);
        let _ = write!(out, "[{id}] ");
        let _ = match head.kind() {
            1 => {
                let data = word(tail, 0)?;
                let encoding = match data >> 24 {
                    0 => "(none)",
                    1 => "SIGNED",
                    2 => "CHAR",
                    4 => "BOOL",
                    _ => "(several)",
                };
                writeln!(
                    out,
                    "INT '{name}' size={size_or_type} bits_offset={} nr_bits={} encoding={encoding}",
                    (data >> 16) & 0xff,
                    data & 0xff
                )
            }
            2 => writeln!(out, "PTR '{name}' type_id={size_or_type}"),
            3 => writeln!(
                out,
                "ARRAY '{name}' type_id={} index_type_id={} nr_elems={}",
                word(tail, 0)?,
                word(tail, 4)?,
                word(tail, 8)?
            ),
            kind @ (4 | 5) => {
                let kind = if kind == 4 { "STRUCT" } else { "UNION" };
                let _ = writeln!(out, "{kind} '{name}' size={size_or_type} vlen={}", head.vlen());
                for member in tail.chunks_exact(12) {
                    let (name, ty, offset) = (word(member, 0)?, word(member, 4)?, word(member, 8)?);
                    let (bits, width) = if head.flag() {
                        (offset & 0xff_ffff, offset >> 24)
                    } else {
                        (offset, 0)
                    };
                    let name = self.name(name);
                    let _ = write!(out, "\t'{name}' type_id={ty} bits_offset={bits}");
                    let _ = match width {
                        0 => writeln!(out),
                        width => writeln!(out, " bitfield_size={width}"),
                    };
                }
                Ok(())
            }
            kind @ (6 | 19) => {
                let (text, step) = if kind == 6 { ("ENUM", 8) } else { ("ENUM64", 12) };
                let _ = writeln!(out, "{text} '{name}' size={size_or_type} vlen={}", head.vlen());
                for value in tail.chunks_exact(step) {
                    let low = word(value, 4)?;
                    let high = if step == 12 { word(value, 8)? } else { 0 };
                    let unsigned = u64::from(high) << 32 | u64::from(low);
                    let name = self.name(word(value, 0)?);
                    let _ = match (head.flag(), step) {
                        (true, 8) => writeln!(out, "\t'{name}' val={}", low as i32),
                        (true, _) => writeln!(out, "\t'{name}' val={}", unsigned as i64),
                        (false, _) => writeln!(out, "\t'{name}' val={unsigned}"),
                    };
                }
                Ok(())
            }
            7 => writeln!(
                out,
                "FWD '{name}' fwd_kind={}",
                if head.flag() { "union" } else { "struct" }
            ),
            8 => writeln!(out, "TYPEDEF '{name}' type_id={size_or_type}"),
            9 => writeln!(out, "VOLATILE '{name}' type_id={size_or_type}"),
            10 => writeln!(out, "CONST '{name}' type_id={size_or_type}"),
            11 => writeln!(out, "RESTRICT '{name}' type_id={size_or_type}"),
            12 => {
                let linkage = match head.vlen() {
                    0 => "static",
                    1 => "global",
                    2 => "extern",
                    _ => "(unknown)",
                };
                writeln!(out, "FUNC '{name}' type_id={size_or_type} linkage={linkage}")
            }
            13 => {
                let _ = writeln!(
                    out,
                    "FUNC_PROTO '{name}' ret_type_id={size_or_type} vlen={}",
                    head.vlen()
                );
                for param in tail.chunks_exact(8) {
                    let _ = writeln!(
                        out,
                        "\t'{}' type_id={}",
                        self.name(word(param, 0)?),
                        word(param, 4)?
                    );
                }
                Ok(())
            }
            14 => writeln!(
                out,
                "VAR '{name}' type_id={size_or_type}, linkage={}",
                word(tail, 0)?
            ),
            15 => {
                let _ = writeln!(out, "DATASEC '{name}' size={size_or_type} vlen={}", head.vlen());
                for var in tail.chunks_exact(12) {
                    let _ = writeln!(
                        out,
                        "\ttype_id={} offset={} size={}",
                        word(var, 0)?,
                        word(var, 4)?,
                        word(var, 8)?
                    );
                }
                Ok(())
            }
            16 => writeln!(out, "FLOAT '{name}' size={size_or_type}"),
            17 => writeln!(
                out,
                "DECL_TAG '{name}' type_id={size_or_type} component_idx={}",
                word(tail, 0)? as i32
            ),
            18 => writeln!(out, "TYPE_TAG '{name}' type_id={size_or_type}"),
            kind => writeln!(out, "kind {kind} '{name}'"),
        };
        Some(())
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*bytes))
}
