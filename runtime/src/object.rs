//! From an ELF object to instructions for the running kernel.
//!
//! In: the object's bytes and the bytes of the type information to relocate it against (a slice of the kernel's
//! BTF, a few KB). Out: each program's instructions with every CO-RE record applied and its subprograms appended,
//! the places where maps go, and the definitions of those maps. Pure: no system call happens here, so `--dump-insns`
//! works without privileges; making the maps and writing their descriptors into the instructions is `load`'s part.

use std::collections::{BTreeMap, HashSet};

use aya_obj::btf::{Btf, BtfFeatures};
use aya_obj::generated::bpf_insn;

use crate::error::{Result, RuntimeError};
use crate::maps::Maps;

/// An instruction's size in bytes; a 64-bit immediate load takes two.
pub const INSN_SIZE: usize = 8;

/// `BPF_LD | BPF_IMM | BPF_DW`, the 64-bit immediate load.
const LD_IMM64: u8 = 0x18;
/// `BPF_PSEUDO_MAP_FD`: the immediate of such a load is a map's descriptor.
const PSEUDO_MAP_FD: u8 = 1;

/// What to make programs from.
#[derive(Clone, Debug, Default)]
pub struct ObjectSpec {
    /// The object: ELF, EM_BPF, with `.BTF` and `.BTF.ext`.
    pub elf: Vec<u8>,
    /// The BTF to relocate against: the kernel's, or the slice of it that holds the types the object names.
    pub target_btf: Vec<u8>,
    /// Number of entries (for ring buffers: bytes, rounded up to what the kernel takes) of maps whose size is known
    /// only now, by name.
    pub map_sizes: Vec<(String, u32)>,
    /// Maps that exist already, from another object, and are used instead of new ones of the same name.
    pub shared: Option<Maps>,
}

/// Where an instruction takes a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRef {
    /// Index of the 8-byte slot of the 64-bit immediate load.
    pub slot: usize,
    /// The map's name.
    pub map: String,
}

/// A program after relocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelocatedProgram {
    /// Its symbol's name.
    pub name: String,
    /// Instructions, little endian, 8 bytes each; map descriptors are left 0 (see `map_refs`).
    pub insns: Vec<u8>,
    /// Where map descriptors go.
    pub map_refs: Vec<MapRef>,
    /// Records of `struct bpf_func_info`, 8 bytes each.
    pub func_info: Vec<u8>,
    /// Records of `struct bpf_line_info`, 16 bytes each.
    pub line_info: Vec<u8>,
}

/// Everything that loading needs, still without a system call.
pub(crate) struct Parts {
    pub(crate) programs: BTreeMap<String, RelocatedProgram>,
    pub(crate) maps: BTreeMap<String, aya_obj::Map>,
    /// The object's own BTF with all kinds it uses.
    pub(crate) btf: Option<Vec<u8>>,
    /// The same with only the kinds that 5.10 knows; `None` if nothing differs.
    pub(crate) old_btf: Option<Vec<u8>>,
    pub(crate) license: std::ffi::CString,
}

/// Relocates an object without touching the kernel: for tests and for `--dump-insns`.
///
/// # Errors
/// [`RuntimeError::BadObject`] if the object or the target BTF doesn't parse, or a relocation can't be resolved.
/// A field that the target lacks is no error: its instruction becomes a call of an impossible helper, as libbpf
/// does, so guard such reads with an existence relocation.
pub fn relocate(elf: &[u8], target_btf: &[u8]) -> Result<Vec<RelocatedProgram>> {
    Ok(parts(elf, target_btf)?.programs.into_values().collect())
}

/// A ring buffer's size in bytes for a wish: a power of two, and whole pages (kernel/bpf/ringbuf.c,
/// `ringbuf_map_alloc`), and at least one page.
pub fn ring_bytes(wish: u32) -> u32 {
    wish.max(page_size())
        .checked_next_power_of_two()
        .unwrap_or(1 << 31)
}

/// A ring buffer's size in bytes for a number of pages.
pub fn ring_bytes_of_pages(pages: u32) -> u32 {
    ring_bytes(pages.max(1).saturating_mul(page_size()))
}

/// The most pages of a ring buffer: BTF describes its size as that of an array of `int`, which has to be less than 4 GiB
/// (`btf_array_resolve`, kernel/bpf/btf.c).
pub fn pages_max() -> u32 {
    (1 << 29) / page_size()
}

fn page_size() -> u32 {
    // SAFETY: sysconf takes no pointer and has no precondition.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u32::try_from(size).unwrap_or(4096)
}

fn bad<E: std::fmt::Display>(stage: &'static str) -> impl FnOnce(E) -> RuntimeError {
    move |e| RuntimeError::BadObject {
        stage,
        why: e.to_string(),
    }
}

pub(crate) fn parts(elf: &[u8], target_btf: &[u8]) -> Result<Parts> {
    let mut object = aya_obj::Object::parse(elf).map_err(bad("parse the object"))?;

    // Kernels differ in the BTF kinds they know. Probing each costs a system call; instead both forms are kept and
    // loading takes the old one only if the new one is refused. Nothing is probed on a kernel that knows them all.
    let btf = sanitized(&mut object.clone(), &ALL_KINDS)?;
    let old_btf = sanitized(&mut object.clone(), &OLD_KINDS)?.filter(|old| Some(old) != btf.as_ref());

    if object.has_btf_relocations() {
        let target =
            Btf::parse(target_btf, object.endianness).map_err(bad("read the target's type information"))?;
        object
            .relocate_btf(&target)
            .map_err(|e| RuntimeError::BadObject {
                stage: "relocate the object's field accesses",
                why: chain(&e),
            })?;
    }

    // Each map stands in as a number, so that the instructions that take it can be told apart afterwards.
    let maps: BTreeMap<String, aya_obj::Map> = std::mem::take(&mut object.maps).into_iter().collect();
    let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    object
        .relocate_maps(
            maps.iter()
                .zip(1..)
                .map(|((name, map), n)| (name.as_str(), n, map)),
            &text,
        )
        .map_err(|e| RuntimeError::BadObject {
            stage: "relocate the object's maps",
            why: chain(&e),
        })?;
    object
        .relocate_calls(&text)
        .map_err(|e| RuntimeError::BadObject {
            stage: "relocate the object's calls",
            why: chain(&e),
        })?;

    let names: Vec<&String> = maps.keys().collect();
    let mut programs = BTreeMap::new();
    for (name, program) in &object.programs {
        let Some(function) = object.functions.get(&program.function_key()) else {
            return Err(RuntimeError::BadObject {
                stage: "find the code of a program",
                why: name.clone(),
            });
        };
        let mut insns = Vec::with_capacity(function.instructions.len() * INSN_SIZE);
        let mut map_refs = vec![];
        let mut second_half = false;
        for (slot, insn) in function.instructions.iter().enumerate() {
            let mut imm = insn.imm;
            if !std::mem::replace(&mut second_half, false) && insn.code == LD_IMM64 {
                second_half = true;
                if insn.src_reg() == PSEUDO_MAP_FD {
                    let map = usize::try_from(imm)
                        .ok()
                        .and_then(|n| names.get(n.checked_sub(1)?));
                    let Some(map) = map else {
                        let why = format!("instruction {slot} of {name} loads a map without a relocation");
                        return Err(RuntimeError::BadObject {
                            stage: "relocate the object's maps",
                            why,
                        });
                    };
                    map_refs.push(MapRef {
                        slot,
                        map: (*map).clone(),
                    });
                    imm = 0;
                }
            }
            insns.extend(encode(insn, imm));
        }
        programs.insert(
            name.clone(),
            RelocatedProgram {
                name: name.clone(),
                insns,
                map_refs,
                func_info: function.func_info.func_info_bytes(),
                line_info: function.line_info.line_info_bytes(),
            },
        );
    }
    Ok(Parts {
        programs,
        maps,
        btf,
        old_btf,
        license: object.license,
    })
}

/// Every kind of BTF that aya-obj knows how to take away.
const ALL_KINDS: BtfFeatures = BtfFeatures::new(true, true, true, true, true, true, true, true);
/// The same without empty DATASECs (5.12), FLOAT (5.13), DECL_TAG (5.16), TYPE_TAG (5.17) and ENUM64 (6.0).
const OLD_KINDS: BtfFeatures = BtfFeatures::new(true, true, true, false, false, false, false, false);

fn sanitized(object: &mut aya_obj::Object, kinds: &BtfFeatures) -> Result<Option<Vec<u8>>> {
    let btf = object
        .fixup_and_sanitize_btf(kinds)
        .map_err(bad("read the object's type information"))?;
    Ok(btf.map(|b| b.to_bytes()))
}

fn encode(insn: &bpf_insn, imm: i32) -> [u8; INSN_SIZE] {
    let off = insn.off.to_le_bytes();
    let imm = imm.to_le_bytes();
    [
        insn.code,
        insn.dst_reg() | insn.src_reg() << 4,
        off[0],
        off[1],
        imm[0],
        imm[1],
        imm[2],
        imm[3],
    ]
}

/// An error and what caused it, in one line; aya-obj's messages tell the reason only in their sources.
fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut at = e.source();
    while let Some(e) = at {
        text.push_str(": ");
        text.push_str(&e.to_string());
        at = e.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_sizes_are_what_the_kernel_takes() {
        assert_eq!(ring_bytes(0), page_size());
        assert_eq!(ring_bytes(page_size() + 1), page_size() * 2);
        assert_eq!(ring_bytes_of_pages(3), page_size() * 4);
        assert_eq!(ring_bytes(u32::MAX), 1 << 31);
        assert_eq!(ring_bytes_of_pages(u32::MAX), 1 << 31);
    }

    #[test]
    fn garbage_is_an_error_and_not_a_panic() {
        for bytes in [&b""[..], b"\x7fELF", &[0u8; 64]] {
            assert!(matches!(
                relocate(bytes, &[]),
                Err(RuntimeError::BadObject { .. })
            ));
        }
    }
}
