//! Finds and opens the kernel's type information.
//!
//! In: `/sys/kernel/btf`, or a file that the user names (raw BTF, or an ELF file with a `.BTF` section). Out:
//! `btf_rs::Btf` over mapped memory, and descriptors of the kernel's BTF objects. Never interprets a type.
//!
//! The header is checked here because btf-rs computes with its fields unchecked.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use btf_rs::{Backend, Btf};

use crate::error::{Result, RuntimeError};
use crate::sys;

/// Where the kernel shows its types.
pub const SYS_BTF: &str = "/sys/kernel/btf";
/// Where the kernel shows its modules, and what of the kernel itself could be one and has parameters.
const SYS_MODULE: &str = "/sys/module";

/// Whether a file has the running kernel's types, as `/sys/kernel/btf/vmlinux` or a copy of it does. A file that can't be read or is no BTF
/// is left to [`open_vmlinux`], which says what is wrong with it.
pub fn is_running(path: &Path) -> bool {
    let own = std::fs::read(Path::new(SYS_BTF).join("vmlinux"));
    match (own, std::fs::read(path)) {
        (Ok(own), Ok(bytes)) if bytes.starts_with(b"\x7fELF") => {
            elf_btf(&bytes).map_or(true, |btf| btf == own)
        }
        (Ok(own), Ok(bytes)) => own == bytes || check(&bytes).is_err(),
        (_, Err(_)) | (Err(_), Ok(_)) => true,
    }
}

/// Opens the running kernel's type information, or that of a file: raw BTF, or ELF with a `.BTF` section.
///
/// The kernel's file is mapped where it can be (since about 6.16; kernel/bpf/sysfs_btf.c); otherwise, and for
/// users' files, which might be cut short under a mapping, the bytes are copied into anonymous memory and that is
/// mapped (4 to 10 ms).
///
/// # Errors
/// [`RuntimeError::NoBtf`] if there is nothing, [`RuntimeError::BadBtf`] if it isn't BTF.
pub fn open_vmlinux(path: Option<&Path>) -> Result<Btf> {
    let own = Path::new(SYS_BTF).join("vmlinux");
    let path = path.unwrap_or(&own);
    let mut file = open(path)?;
    let no_btf = |source| RuntimeError::NoBtf {
        path: path.to_owned(),
        source,
    };
    let mut head = [0u8; HEADER];
    let bad = |why: String| RuntimeError::BadBtf {
        path: path.to_owned(),
        why,
    };
    file.read_exact(&mut head)
        .map_err(|e| bad(format!("too short ({e})")))?;
    if path == own {
        let length = file.metadata().map_err(no_btf)?.len();
        // sysfs states the size of a mappable attribute; on older kernels it is right as well.
        check_header(&head, length).map_err(bad)?;
        if let Ok(btf) = Btf::from_file_with_backend(path, Backend::Mmap) {
            return Ok(btf);
        }
    }
    let mut bytes = head.to_vec();
    file.read_to_end(&mut bytes).map_err(no_btf)?;
    let btf = if bytes.starts_with(b"\x7fELF") {
        elf_btf(&bytes).map_err(bad)?
    } else {
        &bytes[..]
    };
    check(btf).map_err(bad)?;
    from_memory(btf).map_err(|e| bad(e.to_string()))
}

/// Opens type information that is in memory; `path` is for messages. Linkers put the sections of several compilation units one after
/// another, each with its own header: then there are several.
///
/// # Errors
/// [`RuntimeError::BadBtf`] if the first isn't BTF. What comes after one that is, and isn't, is left.
pub fn open_units(bytes: &[u8], path: &Path) -> Result<Vec<Btf>> {
    let bad = |why: String| RuntimeError::BadBtf {
        path: path.to_owned(),
        why,
    };
    let mut units = vec![];
    let mut rest = bytes;
    loop {
        let length = match check(rest) {
            Ok(()) => unit_length(rest).min(rest.len()),
            Err(_) if !units.is_empty() => return Ok(units),
            Err(why) => return Err(bad(why)),
        };
        let (unit, after) = rest.split_at(length);
        units.push(from_memory(unit).map_err(|e| bad(e.to_string()))?);
        // Sections may be aligned.
        let padding = after.iter().position(|byte| *byte != 0);
        match padding {
            Some(padding) => rest = &after[padding..],
            None => return Ok(units),
        }
    }
}

/// The same from a file: raw BTF, or ELF with a `.BTF` section.
///
/// # Errors
/// [`RuntimeError::NoBtf`] if the file can't be read, [`RuntimeError::BadBtf`] if it isn't BTF.
pub fn open_file_units(path: &Path) -> Result<Vec<Btf>> {
    let bytes = std::fs::read(path).map_err(|source| RuntimeError::NoBtf {
        path: path.to_owned(),
        source,
    })?;
    let btf = if bytes.starts_with(b"\x7fELF") {
        elf_btf(&bytes).map_err(|why| RuntimeError::BadBtf {
            path: path.to_owned(),
            why,
        })?
    } else {
        &bytes[..]
    };
    open_units(btf, path)
}

/// Where the type information that begins here ends; its header has been checked.
fn unit_length(bytes: &[u8]) -> usize {
    let word = |i: usize| match bytes.get(i..).and_then(|b| b.first_chunk::<4>()) {
        Some(word) => u32::from_le_bytes(*word) as usize,
        None => 0,
    };
    let (header, type_off, type_len, str_off, str_len) = (word(4), word(8), word(12), word(16), word(20));
    header + (type_off + type_len).max(str_off + str_len)
}

/// Opens a module's type information over that of vmlinux.
///
/// # Errors
/// [`RuntimeError::NoModuleBtf`] if the module isn't loaded or has none, [`RuntimeError::BadBtf`] if it doesn't parse.
pub fn open_module(name: &str, base: &Btf) -> Result<Btf> {
    let none = |why: String| RuntimeError::NoModuleBtf {
        module: name.to_owned(),
        why,
    };
    if name.is_empty() || name == "vmlinux" || name.contains(['/', '\0']) {
        return Err(none("that isn't a module's name".to_owned()));
    }
    let path = Path::new(SYS_BTF).join(name);
    let bytes = std::fs::read(&path).map_err(|e| none(e.to_string()))?;
    let bad = |why: String| RuntimeError::BadBtf {
        path: path.clone(),
        why,
    };
    check(&bytes).map_err(bad)?;
    Btf::from_split_bytes(&bytes, base).map_err(|e| bad(e.to_string()))
}

/// The loaded modules that have type information, sorted.
///
/// # Errors
/// [`RuntimeError::NoBtf`] if the kernel has no BTF at all.
pub fn module_names() -> Result<Vec<String>> {
    let none = |source| RuntimeError::NoBtf {
        path: PathBuf::from(SYS_BTF),
        source,
    };
    let mut names = vec![];
    for entry in std::fs::read_dir(SYS_BTF).map_err(none)? {
        if let Ok(name) = entry.map_err(none)?.file_name().into_string()
            && name != "vmlinux"
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Where a module is that is asked for by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleState {
    /// Loaded, with type information or without.
    Loaded,
    /// Part of the running kernel, as its build has noted beside its modules, or as its parameters show.
    BuiltIn,
    /// Nowhere, as far as is known.
    Absent,
}

/// Where a module is. Dashes in its name are underscores to the kernel.
pub fn module_state(name: &str) -> ModuleState {
    if name.is_empty() || name.contains(['/', '.']) {
        return ModuleState::Absent;
    }
    let own = Path::new(SYS_MODULE).join(name);
    if own.join("initstate").exists() {
        return ModuleState::Loaded;
    }
    let list = Path::new("/lib/modules")
        .join(sys::kernel_release())
        .join("modules.builtin");
    let noted = || {
        std::fs::read_to_string(list).is_ok_and(|list| {
            list.lines().any(|line| {
                let file = line.rsplit('/').next().unwrap_or(line);
                let stem = file.split('.').next().unwrap_or(file);
                stem.replace('-', "_") == name
            })
        })
    };
    match own.exists() || noted() {
        true => ModuleState::BuiltIn,
        false => ModuleState::Absent,
    }
}

/// Whether a module has been initialized: before that nothing can be attached to it.
pub fn module_is_live(name: &str) -> bool {
    std::fs::read_to_string(Path::new(SYS_MODULE).join(name).join("initstate"))
        .is_ok_and(|state| state.trim() == "live")
}

/// The kernel's BTF object of a module (or of `vmlinux`), which a program on a module's function is loaded with.
///
/// # Errors
/// [`RuntimeError::NoModuleBtf`] if there is none; on kernels before 5.11, which don't name them, always.
pub fn object_fd(name: &str) -> Result<OwnedFd> {
    let none = |why: String| RuntimeError::NoModuleBtf {
        module: name.to_owned(),
        why,
    };
    match sys::kernel_btf_fd(name) {
        Ok(Some(fd)) => Ok(fd),
        Ok(None) => Err(none("the kernel has no BTF object of that name".to_owned())),
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => Err(RuntimeError::NotPrivileged {
            doing: "look for a module's type information (needs CAP_SYS_ADMIN)",
        }),
        Err(e) if matches!(e.raw_os_error(), Some(libc::E2BIG | libc::EINVAL)) => {
            Err(none(format!("kernels before 5.11 have none ({e})")))
        }
        Err(e) => Err(none(e.to_string())),
    }
}

/// Bytes of a BTF header, `struct btf_header` (include/uapi/linux/btf.h); later versions append to it.
const HEADER: usize = 24;

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|source| RuntimeError::NoBtf {
        path: path.to_owned(),
        source,
    })
}

fn check(bytes: &[u8]) -> std::result::Result<(), String> {
    let head = bytes.first_chunk::<HEADER>().ok_or("shorter than a header")?;
    let strings = check_header(head, bytes.len() as u64)?;
    let strings = bytes.get(strings).ok_or("its strings lie outside of it")?;
    // Names are read up to their NUL: the last one must have one.
    if strings.last() != Some(&0) {
        Err("its strings have no end".to_owned())
    } else {
        Ok(())
    }
}

/// Checks what btf-rs relies on; where the strings are.
fn check_header(head: &[u8; HEADER], length: u64) -> std::result::Result<std::ops::Range<usize>, String> {
    let word = |i: usize| {
        u64::from(u32::from_le_bytes([
            head[i],
            head[i + 1],
            head[i + 2],
            head[i + 3],
        ]))
    };
    match (head[0], head[1]) {
        (0x9f, 0xeb) => {}
        (0xeb, 0x9f) => return Err("it is of a big-endian machine".to_owned()),
        _ => return Err("it doesn't begin with BTF's magic number".to_owned()),
    }
    if head[2] != 1 {
        return Err(format!("its version {} isn't known", head[2]));
    }
    if head[3] != 0 {
        return Err(format!("its flags {:#x} aren't known", head[3]));
    }
    let (header, type_off, type_len, str_off, str_len) = (word(4), word(8), word(12), word(16), word(20));
    if header < HEADER as u64 {
        return Err("its header is too short".to_owned());
    }
    // btf-rs adds these as 32-bit numbers.
    let ends = [header + type_off + type_len, header + str_off + str_len];
    if ends.iter().any(|e| *e > length || *e > i32::MAX as u64) {
        return Err("its sections don't fit into it: it was cut short, or isn't BTF".to_owned());
    }
    if str_len == 0 {
        return Err("it has no strings".to_owned());
    }
    Ok((header + str_off) as usize..(header + str_off + str_len) as usize)
}

/// Puts bytes where btf-rs can map them: its other backend takes 120 ms and 40 MB for a vmlinux.
fn from_memory(bytes: &[u8]) -> std::result::Result<Btf, Box<dyn std::error::Error>> {
    // SAFETY: the name is a C string; the call has no other precondition.
    let fd = unsafe { libc::memfd_create(c"btf".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(bytes)?;
    Ok(Btf::from_file_with_backend(
        format!("/proc/self/fd/{}", file.as_raw_fd()),
        Backend::Mmap,
    )?)
}

fn elf_btf(elf: &[u8]) -> std::result::Result<&[u8], String> {
    use object::read::elf::ElfFile64;
    use object::{Object, ObjectSection};
    let file = ElfFile64::<object::Endianness>::parse(elf).map_err(|e| e.to_string())?;
    let section = file
        .section_by_name(".BTF")
        .ok_or("it is an ELF file without a .BTF section")?;
    section.data().map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(flags: u8, type_len: u32, str_len: u32) -> Vec<u8> {
        let mut h = vec![0x9f, 0xeb, 1, flags];
        for x in [24u32, 0, type_len, type_len, str_len] {
            h.extend(x.to_le_bytes());
        }
        h
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let mut good = header(0, 0, 1);
        good.push(0);
        assert_eq!(check(&good), Ok(()));
        for (bytes, why) in [
            (vec![], "shorter"),
            (header(1, 0, 1), "flags"),
            (header(0, 0, 1), "cut short"),
            (header(0, u32::MAX, 1), "cut short"),
            (header(0, 0, 0), "no strings"),
            ([header(0, 0, 1), vec![b'x']].concat(), "no end"),
            (b"\xeb\x9f\x01\0aaaaaaaaaaaaaaaaaaaaaaaa".to_vec(), "big-endian"),
        ] {
            assert!(check(&bytes).is_err_and(|e| e.contains(why)), "{why}");
        }
    }

    #[test]
    fn module_names_stay_inside_their_folder() {
        let path = std::env::temp_dir().join(format!("ksj-btf-{}", std::process::id()));
        let mut bytes = header(0, 12, 1);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0]);
        std::fs::write(&path, &bytes).expect("a temporary file can be written");
        let base = open_vmlinux(Some(&path)).map_err(|e| e.to_string());
        std::fs::remove_file(&path).expect("it can be removed");
        let base = base.expect("a pointer to void is BTF");
        for name in ["", "../btf/vmlinux", "vmlinux", "a/b"] {
            assert!(
                matches!(open_module(name, &base), Err(RuntimeError::NoModuleBtf { .. })),
                "{name}"
            );
        }
    }
}
