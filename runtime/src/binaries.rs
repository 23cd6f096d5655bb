//! Finds the file that a user means by a program's or library's name, as the shell and the loader would, also from the point
//! of view of another process; and the files that hold what was stripped from it.
//!
//! In: a name, maybe a process. Out: paths. Never reads more of a file than its first bytes, the loader's cache excepted.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::proc_maps::undeleted;

/// The file that is meant: a path if the name has a slash; else, with a process, a file that it has mapped; else a program
/// on PATH; else a library where the loader looks, `libc` for `libc.so.6`.
///
/// With a process in another root directory (a container), all names are those of that root, and the path leads through
/// `/proc/PID/root`.
///
/// # Errors
/// A sentence for the user: nothing of that name, or something that is no program.
pub fn locate(name: &str, pid: Option<u32>) -> Result<PathBuf, String> {
    let root = match pid {
        Some(pid) => root_of(pid)?,
        None => PathBuf::from("/"),
    };
    if name.contains('/') {
        // Who writes the way through another process's root means what is there, seen from here.
        let path = match through_root(name) {
            true => PathBuf::from(name),
            false => inside(&root, Path::new(name)),
        };
        return match kind_of(&path) {
            Kind::Elf | Kind::Other => Ok(path),
            Kind::Script => Err("it is a script: trace the interpreter that runs it".to_owned()),
            Kind::Missing(why) => Err(format!("it can't be read: {why}")),
        };
    }
    if let Some(found) = pid.and_then(|pid| mapped(pid, name, &root)) {
        return Ok(found);
    }
    let mut script = None;
    for folder in folders("PATH") {
        let path = inside(&root, &folder).join(name);
        match kind_of(&path) {
            Kind::Elf => return Ok(path),
            Kind::Script => script = Some(path),
            Kind::Other | Kind::Missing(_) => {}
        }
    }
    if let Some(found) = library(name, &root) {
        return Ok(found);
    }
    match script {
        Some(path) => Err(format!(
            "{} is a script: trace the interpreter that runs it",
            path.display()
        )),
        None => Err("no program on PATH and no library of that name".to_owned()),
    }
}

/// Whether a process has mapped a file; `None` if that can't be seen.
pub fn is_mapped(pid: u32, path: &Path) -> Option<bool> {
    let mut seen = false;
    for entry in std::fs::read_dir(format!("/proc/{pid}/map_files")).ok()? {
        // What can't be followed is not known to be another file.
        let file = entry.ok()?.path();
        file.metadata().ok()?;
        seen = true;
        if same(&file, path) {
            return Some(true);
        }
    }
    seen.then_some(false)
}

/// Whether a path is `/proc/PID/root/...`.
fn through_root(name: &str) -> bool {
    let mut parts = name.strip_prefix("/proc/").unwrap_or("").splitn(3, '/');
    let pid = parts
        .next()
        .is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|c| c.is_ascii_digit()));
    pid && parts.next() == Some("root") && parts.next().is_some()
}

/// Where files with debug information of a file may be, the likeliest first: by build id, and by the name that its debug link
/// has.
pub fn debug_files(file: &Path, build_id: Option<&[u8]>, link: Option<&str>) -> Vec<PathBuf> {
    const STORE: &str = "/usr/lib/debug";
    let mut found = vec![];
    if let Some((first, rest)) = build_id.and_then(<[u8]>::split_first)
        && !rest.is_empty()
    {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        found.push(PathBuf::from(format!(
            "{STORE}/.build-id/{first:02x}/{rest}.debug"
        )));
    }
    // A link is a file's name, not a way to other folders.
    if let Some(link) = link.filter(|link| !link.contains('/'))
        && let Ok(real) = file.canonicalize()
        && let Some(folder) = real.parent()
    {
        found.push(folder.join(link));
        found.push(folder.join(".debug").join(link));
        found.push(inside(Path::new(STORE), folder).join(link));
    }
    found.retain(|path| path.is_file() && !same(path, file));
    found
}

fn same(a: &Path, b: &Path) -> bool {
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// The root directory of a process, by a path that works from here.
fn root_of(pid: u32) -> Result<PathBuf, String> {
    let theirs = PathBuf::from(format!("/proc/{pid}/root"));
    match theirs.metadata() {
        Ok(_) if same(&theirs, Path::new("/")) => Ok(PathBuf::from("/")),
        Ok(_) => Ok(theirs),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(format!("there is no process {pid}"))
        }
        Err(error) => Err(format!(
            "the root directory of process {pid} can't be seen: {error}"
        )),
    }
}

/// A path of that root, as a path from here.
fn inside(root: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix("/") {
        Ok(relative) => root.join(relative),
        Err(_) => path.to_owned(),
    }
}

enum Kind {
    Elf,
    Script,
    Other,
    Missing(String),
}

fn kind_of(path: &Path) -> Kind {
    let mut start = [0u8; 4];
    let read = File::open(path).and_then(|mut file| file.read(&mut start));
    match read {
        Ok(4) if start == *b"\x7fELF" => Kind::Elf,
        Ok(2..) if start.starts_with(b"#!") => Kind::Script,
        Ok(_) => Kind::Other,
        Err(error) => Kind::Missing(error.to_string()),
    }
}

fn folders(variable: &str) -> Vec<PathBuf> {
    let value = std::env::var_os(variable).unwrap_or_default();
    std::env::split_paths(&value)
        .filter(|folder| folder.is_absolute())
        .collect()
}

/// A file that a process has mapped and whose name fits.
fn mapped(pid: u32, name: &str, root: &Path) -> Option<PathBuf> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
    let mut best: Option<(u8, PathBuf, PathBuf)> = None;
    for line in maps.split(|byte| *byte == b'\n') {
        let Some(at) = line.iter().position(|byte| *byte == b'/') else {
            continue;
        };
        let path = Path::new(undeleted(&line[at..]));
        let Some(rank) = path.file_name().and_then(|file| fits(name, file)) else {
            continue;
        };
        if best.as_ref().is_some_and(|(known, _, _)| rank >= *known) {
            continue;
        }
        let range = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        let itself = Path::new(&format!("/proc/{pid}/map_files")).join(OsStr::from_bytes(range));
        best = Some((rank, path.to_owned(), itself));
    }
    let (_, path, itself) = best?;
    // The kernel tells the path as seen from here where there is one (a root directory that is a folder of ours), else as
    // seen from there; and a file that was deleted or replaced since, as an upgrade does, has no path at all.
    let names = [inside(root, &path), path];
    let found = names.iter().find(|path| same(path, &itself)).cloned();
    let found = found.unwrap_or_else(|| match itself.metadata() {
        Ok(_) => itself,
        Err(_) => names[0].clone(),
    });
    matches!(kind_of(&found), Kind::Elf).then_some(found)
}

/// How well a file's name fits what the user wrote, best 0: `libc.so.6` is `libc.so.6`, `libc`, and `c`.
fn fits(name: &str, file: &OsStr) -> Option<u8> {
    let file = file.to_str()?;
    if file == name {
        return Some(0);
    }
    let stem = match file.find(".so") {
        Some(at) if file[at + 3..].is_empty() || file[at + 3..].starts_with('.') => &file[..at],
        Some(_) | None => return None,
    };
    if stem == name || file[..].strip_suffix(".so") == Some(name) {
        return Some(1);
    }
    let short = stem.strip_prefix("lib")?;
    (short == name).then_some(2)
}

/// A library where the loader looks: LD_LIBRARY_PATH, its cache, its own folders.
fn library(name: &str, root: &Path) -> Option<PathBuf> {
    let mut best: Option<(u8, PathBuf)> = None;
    let mut consider = |path: PathBuf| {
        let Some(rank) = path.file_name().and_then(|file| fits(name, file)) else {
            return;
        };
        let better = best.as_ref().is_none_or(|(known, _)| rank < *known);
        if better && of_this_machine(&path) {
            best = Some((rank, path));
        }
    };
    for folder in folders("LD_LIBRARY_PATH") {
        for path in files(&inside(root, &folder)) {
            consider(path);
        }
    }
    let cache = std::fs::read(root.join("etc/ld.so.cache")).unwrap_or_default();
    for path in cached(&cache) {
        consider(inside(root, &path));
    }
    let machine = std::env::consts::ARCH;
    let own = [
        format!("lib/{machine}-linux-gnu"),
        format!("usr/lib/{machine}-linux-gnu"),
        "lib64".to_owned(),
        "usr/lib64".to_owned(),
        "lib".to_owned(),
        "usr/lib".to_owned(),
    ];
    for folder in own {
        for path in files(&root.join(folder)) {
            consider(path);
        }
    }
    best.map(|(_, path)| path)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return vec![];
    };
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.sort();
    found
}

/// Whether it is ELF for the machine that this runs on: the loader's cache has 32-bit libraries too.
fn of_this_machine(path: &Path) -> bool {
    let mut start = [0u8; 20];
    let Ok(mut file) = File::open(path) else {
        return false;
    };
    let machine: [u8; 2] = if cfg!(target_arch = "aarch64") {
        [183, 0]
    } else {
        [62, 0]
    };
    file.read_exact(&mut start).is_ok() && start.starts_with(b"\x7fELF\x02\x01") && start[18..20] == machine
}

/// The libraries in the loader's cache, in its order: `struct cache_file_new` of glibc's `sysdeps/generic/dl-cache.h`.
fn cached(cache: &[u8]) -> Vec<PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    // Older systems have the table of an older format before it.
    let Some(start) = cache.windows(MAGIC.len()).position(|window| window == MAGIC) else {
        return vec![];
    };
    let table = &cache[start..];
    let word = |at: usize| {
        let bytes = table.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes) as usize)
    };
    let count = word(MAGIC.len()).unwrap_or(0).min(table.len() / ENTRY);
    (0..count)
        .filter_map(|index| {
            let value = word(HEADER + index * ENTRY + 8)?;
            let text = table.get(value..)?;
            let end = text.iter().position(|byte| *byte == 0)?;
            Some(PathBuf::from(OsStr::from_bytes(&text[..end])))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_as_people_call_libraries() {
        let fit = |name: &str, file: &str| fits(name, OsStr::new(file));
        assert_eq!(fit("libc.so.6", "libc.so.6"), Some(0));
        assert_eq!(fit("libc", "libc.so.6"), Some(1));
        assert_eq!(fit("c", "libc.so.6"), Some(2));
        assert_eq!(fit("libfoo-1.2", "libfoo-1.2.so"), Some(1));
        assert_eq!(fit("libc", "libcap.so.2"), None);
        assert_eq!(fit("libc", "libc.sock"), None);
    }

    #[test]
    fn the_way_through_a_root_is_told_from_other_paths() {
        assert!(through_root("/proc/12/root/usr/bin/prog"));
        for other in [
            "/proc/12/exe",
            "/proc/self/root/x",
            "/proc//root/x",
            "/usr/proc/12/root/x",
            "proc/12/root/x",
        ] {
            assert!(!through_root(other), "{other}");
        }
    }

    #[test]
    fn a_cache_of_garbage_has_no_libraries() {
        assert_eq!(cached(b""), Vec::<PathBuf>::new());
        let mut lying = b"glibc-ld.so.cache1.1".to_vec();
        lying.extend([0xff; 100]);
        assert_eq!(cached(&lying), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_missing_process_or_file_is_told() {
        assert!(locate("no-such-program-anywhere", None).is_err_and(|why| why.contains("PATH")));
        assert!(locate("/no/such/file", None).is_err_and(|why| why.contains("read")));
        assert!(locate("sh", Some(u32::MAX)).is_err_and(|why| why.contains("no process")));
    }
}
