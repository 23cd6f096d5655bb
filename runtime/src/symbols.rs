//! The kernel's symbols: from names to addresses, from addresses to names, and why a function can't be traced.
//!
//! In: `/proc/kallsyms` and, only to explain a refusal, tracefs. Out: symbols. Never reads anything when a name is
//! exact and works: making the text of kallsyms takes the kernel 30 ms and more. The search keeps only what it
//! finds; the table for [`Symbols::resolve_addr`] is made at the first address.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::{Result, RuntimeError};
use crate::perf::{self, Pmu};
use crate::sys;

/// What a symbol is, by nm's letters as kallsyms prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolKind {
    /// A function, `t` or `T`.
    Function,
    /// A weak function, `w` or `W`.
    Weak,
    /// Data, constants, absolute values.
    Other,
}

/// A symbol of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its whole name, with the compiler's suffix.
    pub name: String,
    /// The module it is in; `bpf` and `__builtin__ftrace` are what kallsyms calls generated code.
    pub module: Option<String>,
    /// Its address; 0 where the kernel hides addresses (`kernel.kptr_restrict`, or no CAP_SYSLOG).
    pub addr: u64,
    /// What it is.
    pub kind: SymbolKind,
}

/// Where an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'s> {
    /// The symbol.
    pub name: &'s str,
    /// The module it is in.
    pub module: Option<&'s str>,
    /// Bytes from its start.
    pub offset: u64,
}

/// Why a function can't be probed, as far as the kernel's lists tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traceable {
    /// Nothing speaks against it.
    Yes,
    /// There is no symbol: no such function, or inlined wherever it is called.
    NoSymbol,
    /// On the deny list of kprobes (`NOKPROBE_SYMBOL`, entry code).
    DenyListed,
    /// No ftrace site at its start: `notrace`, or assembly. fentry and kprobe.multi can't, a kprobe may.
    NoFtraceSite,
    /// Code that was freed after boot (`__init`): it is in the list of symbols still, and a kprobe there is refused
    /// (`check_kprobe_address_safe`, kernel/kprobes.c).
    Freed,
    /// The lists can't be read.
    Unknown(String),
}

/// The kernel's symbols.
#[derive(Debug)]
pub struct Symbols {
    kallsyms: PathBuf,
    table: OnceLock<Option<Table>>,
}

/// Functions and data sorted by address; names in one string.
#[derive(Debug)]
struct Table {
    addrs: Vec<u64>,
    /// Start of the name, length, and number of the module plus one.
    names: Vec<(u32, u16, u16)>,
    text: String,
    modules: Vec<String>,
}

impl Default for Symbols {
    fn default() -> Symbols {
        Symbols::new()
    }
}

impl Symbols {
    /// The running kernel's. Reads nothing yet.
    pub fn new() -> Symbols {
        Symbols::from_file("/proc/kallsyms")
    }

    /// Those of a file of kallsyms' form.
    pub fn from_file(path: impl Into<PathBuf>) -> Symbols {
        Symbols {
            kallsyms: path.into(),
            table: OnceLock::new(),
        }
    }

    /// Every symbol called one of `names`, or one of them with a suffix that compilers add (`.isra.0`, `.constprop.0`,
    /// `.part.0`, `.cold`, `.llvm.123`). One pass over the file, whatever the number of names.
    ///
    /// # Errors
    /// [`RuntimeError::File`] if kallsyms can't be read.
    pub fn lookup<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<Symbol>> {
        let wanted: std::collections::HashSet<&[u8]> = names.iter().map(|n| n.as_ref().as_bytes()).collect();
        // Nearly every line is one that isn't wanted: its first byte tells most of them without hashing.
        let mut first = [false; 256];
        for byte in wanted.iter().filter_map(|n| n.first()) {
            first[usize::from(*byte)] = true;
        }
        let mut out = vec![];
        self.each(|line| {
            if !line.name.first().is_some_and(|b| first[usize::from(*b)]) {
                return;
            }
            if wanted.contains(line.name) || wanted.contains(stem(line.name)) {
                out.push(line.symbol());
            }
        })?;
        Ok(out)
    }

    /// Every function for whose name `matches` is true, for globs.
    ///
    /// # Errors
    /// [`RuntimeError::File`] if kallsyms can't be read.
    pub fn functions(&self, mut matches: impl FnMut(&str) -> bool) -> Result<Vec<Symbol>> {
        let mut out = vec![];
        self.each(|line| {
            let function = match line.kind() {
                SymbolKind::Function | SymbolKind::Weak => true,
                SymbolKind::Other => false,
            };
            if function && std::str::from_utf8(line.name).is_ok_and(&mut matches) {
                out.push(line.symbol());
            }
        })?;
        Ok(out)
    }

    /// Whether an address is in the code that is needed while the kernel starts only. `false` where the kernel hides addresses.
    fn is_initial(&self, addr: u64) -> bool {
        const BOUNDS: [&str; 2] = ["_sinittext", "_einittext"];
        let Ok(found) = self.lookup(&BOUNDS) else {
            return false;
        };
        let bound = |name: &str| {
            found
                .iter()
                .find(|symbol| symbol.name == name)
                .map(|symbol| symbol.addr)
        };
        match (bound(BOUNDS[0]), bound(BOUNDS[1])) {
            (Some(start), Some(end)) => addr != 0 && (start..end).contains(&addr),
            _ => false,
        }
    }

    /// Every symbol of a function at exactly this address: a function may have several names.
    ///
    /// # Errors
    /// [`RuntimeError::File`] if kallsyms can't be read.
    pub fn at(&self, addr: u64) -> Result<Vec<Symbol>> {
        let mut out = vec![];
        self.each(|line| {
            if line.kind() != SymbolKind::Other && line.addr() == addr {
                out.push(line.symbol());
            }
        })?;
        Ok(out)
    }

    /// The function or variable that `addr` lies in; `None` if it lies in none, or addresses are hidden. Reads all of kallsyms
    /// the first time (some MB are kept). Kernels built without `CONFIG_KALLSYMS_ALL` list no variables.
    pub fn resolve_addr(&self, addr: u64) -> Option<Place<'_>> {
        let table = self.table.get_or_init(|| self.table().ok()).as_ref()?;
        // Symbols have no size here. Nothing in the kernel is as long as this, so what is further away is elsewhere.
        const FAR: u64 = 1 << 20;
        let i = table.addrs.partition_point(|a| *a <= addr).checked_sub(1)?;
        let start = table.addrs[i];
        let offset = addr - start;
        if start == 0 || offset >= FAR {
            return None;
        }
        // Of several names for one address, the first in kallsyms' order.
        let i = table.addrs.partition_point(|a| *a < start);
        let (at, len, module) = *table.names.get(i)?;
        let name = table.text.get(at as usize..at as usize + usize::from(len))?;
        let module = module
            .checked_sub(1)
            .and_then(|m| table.modules.get(usize::from(m)))
            .map(String::as_str);
        Some(Place { name, module, offset })
    }

    fn table(&self) -> Result<Table> {
        let mut rows: Vec<(u64, (u32, u16, u16))> = vec![];
        let mut table = Table {
            addrs: vec![],
            names: vec![],
            text: String::new(),
            modules: vec![],
        };
        let mut known: HashMap<Vec<u8>, u16> = HashMap::new();
        self.each(|line| {
            if !line.has_place() {
                return;
            }
            let (Ok(name), Ok(len)) = (std::str::from_utf8(line.name), u16::try_from(line.name.len())) else {
                return;
            };
            let module = line.module.map_or(0, |m| match known.get(m) {
                Some(n) => *n,
                None => {
                    table.modules.push(String::from_utf8_lossy(m).into_owned());
                    let n = u16::try_from(table.modules.len()).unwrap_or(0);
                    known.insert(m.to_vec(), n);
                    n
                }
            });
            rows.push((line.addr(), (table.text.len() as u32, len, module)));
            table.text.push_str(name);
        })?;
        rows.sort_by_key(|(addr, _)| *addr);
        table.addrs = rows.iter().map(|(addr, _)| *addr).collect();
        table.names = rows.into_iter().map(|(_, name)| name).collect();
        Ok(table)
    }

    fn each(&self, mut f: impl FnMut(&Line<'_>)) -> Result<()> {
        let fail = |source| RuntimeError::File {
            path: self.kallsyms.clone(),
            source,
            remedy: "the kernel must be built with CONFIG_KALLSYMS=y, and /proc be mounted",
        };
        let file = File::open(&self.kallsyms).map_err(fail)?;
        each_line(file, |line| {
            if let Some(line) = Line::parse(line) {
                f(&line);
            }
        })
        .map_err(fail)
    }
}

/// How many functions have a name, as far as the kernel can tell without a search of kallsyms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// None.
    None,
    /// One.
    One,
    /// Several, some of them maybe in modules.
    Several,
    /// This kernel doesn't tell.
    Unknown,
}

/// Asks how many functions are called `name`, in `module` if one is given. Since 6.6 a kprobe on a name that is not the only one
/// is refused (kernel/trace/trace_kprobe.c, `create_local_trace_kprobe`), and that before it is looked at whether
/// there may be a probe: so a return probe is asked for where none can be, behind the function's first byte, and the error
/// tells. Nothing is probed.
pub fn count_named(name: &str, module: Option<&str>) -> Count {
    if sys::kernel_version(&sys::kernel_release()) < (6, 6) {
        return Count::Unknown;
    }
    let full = match module {
        Some(module) => format!("{module}:{name}"),
        None => name.to_owned(),
    };
    let Ok(full) = std::ffi::CString::new(full) else {
        return Count::Unknown;
    };
    let place = perf::Place::Symbol(&full, 1);
    match Pmu::Kprobe.exists().and_then(|()| Pmu::Kprobe.open(&place, true)) {
        Err(e) => match e.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) => Count::Several,
            Some(libc::ENOENT) => Count::None,
            Some(libc::EINVAL) => Count::One,
            Some(_) | None => Count::Unknown,
        },
        Ok(_) => Count::Unknown,
    }
}

/// Why `symbol` can't be probed. For error messages only: it reads lists that take the kernel long to write.
pub fn explain(symbol: &Symbol) -> Traceable {
    let listed = in_list(&["/sys/kernel/debug/kprobes/blacklist"], |line| {
        // "0xffffffff81000000-0xffffffff81000010\tname", and " [module]" behind it.
        let mut words = line.split(|b| *b == b'\t' || *b == b' ');
        words.nth(1) == Some(symbol.name.as_bytes())
    });
    if listed.as_ref().is_ok_and(|found| *found) {
        return Traceable::DenyListed;
    }
    if symbol.module.is_none() && Symbols::new().is_initial(symbol.addr) {
        return Traceable::Freed;
    }
    match in_list(&FTRACE_LISTS, |line| {
        let mut words = line.split(|b| *b == b' ');
        words.next() == Some(symbol.name.as_bytes())
            && words.next().map(unbracket) == symbol.module.as_ref().map(|m| m.as_bytes())
    }) {
        Ok(true) => Traceable::Yes,
        Ok(false) => Traceable::NoFtraceSite,
        Err(e) => Traceable::Unknown(format!(
            "{e}; mount tracefs (mount -t tracefs tracefs /sys/kernel/tracing)"
        )),
    }
}

/// Where the kernel lists the functions that ftrace, and with it fprobe and trampolines, can hook.
const FTRACE_LISTS: [&str; 2] = [
    "/sys/kernel/tracing/available_filter_functions",
    "/sys/kernel/debug/tracing/available_filter_functions",
];

/// The functions that the kernel can hook, those that `wanted` says, each with the module it is in.
///
/// # Errors
/// Those of reading the list, which needs tracefs and root.
pub fn ftrace_sites(mut wanted: impl FnMut(&str) -> bool) -> io::Result<BTreeSet<(Option<String>, String)>> {
    let mut found = BTreeSet::new();
    in_list(&FTRACE_LISTS, |line| {
        let mut words = line.split(|b| *b == b' ');
        let name = words.next().map(std::str::from_utf8);
        let module = words.next().map(|word| std::str::from_utf8(unbracket(word)));
        if let Some(Ok(name)) = name
            && wanted(name)
        {
            match module {
                None => found.insert((None, name.to_owned())),
                Some(Ok(module)) => found.insert((Some(module.to_owned()), name.to_owned())),
                Some(Err(_)) => false,
            };
        }
        false
    })?;
    Ok(found)
}

/// The groups in which tracefs has an event of that name: one, but for names that are there twice. `None` where tracefs is not
/// mounted, or not to be read.
pub fn groups_of(event: &str) -> Option<Vec<String>> {
    const EVENTS: [&str; 2] = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];
    // What a name in a query can hold is no way to elsewhere, but for this.
    if event.is_empty() || event.contains(['/', '.']) {
        return None;
    }
    let (events, groups) = EVENTS
        .iter()
        .find_map(|path| Some((Path::new(path), std::fs::read_dir(path).ok()?)))?;
    let mut found: Vec<String> = groups
        .filter_map(|group| group.ok()?.file_name().into_string().ok())
        .filter(|group| events.join(group).join(event).join("format").exists())
        .collect();
    found.sort();
    Some(found)
}

/// A name without what compilers append to the copies that they make of a function.
pub fn stem_of(name: &str) -> &str {
    // The suffix begins at an ASCII dot, so what is left is valid.
    std::str::from_utf8(stem(name.as_bytes())).unwrap_or(name)
}

fn stem(name: &[u8]) -> &[u8] {
    // Not the first byte: section symbols such as `.text` begin with a dot.
    match name.iter().skip(1).position(|b| *b == b'.') {
        Some(dot) => &name[..dot + 1],
        None => name,
    }
}

/// A line of kallsyms: `address letter name`, then for modules a tab and `[module]`.
struct Line<'a> {
    addr: &'a [u8],
    letter: u8,
    name: &'a [u8],
    module: Option<&'a [u8]>,
}

/// A module's name without the brackets that the kernel's lists put around it.
fn unbracket(module: &[u8]) -> &[u8] {
    let m = module.trim_ascii();
    m.strip_prefix(b"[")
        .and_then(|m| m.strip_suffix(b"]"))
        .unwrap_or(m)
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        // Addresses are 16 digits on 64-bit kernels; anything else is searched for.
        let space = match line.get(16) {
            Some(b' ') => 16,
            _ => line.iter().position(|b| *b == b' ')?,
        };
        let (&letter, rest) = line.get(space + 1..)?.split_first()?;
        let rest = rest.strip_prefix(b" ")?;
        let (name, module) = match rest.iter().position(|b| *b == b'\t') {
            Some(tab) => (&rest[..tab], Some(unbracket(&rest[tab + 1..]))),
            None => (rest, None),
        };
        Some(Line {
            addr: &line[..space],
            letter,
            name,
            module,
        })
    }

    fn addr(&self) -> u64 {
        let text = std::str::from_utf8(self.addr).unwrap_or_default();
        u64::from_str_radix(text, 16).unwrap_or(0)
    }

    fn kind(&self) -> SymbolKind {
        match self.letter {
            b't' | b'T' => SymbolKind::Function,
            b'w' | b'W' => SymbolKind::Weak,
            _ => SymbolKind::Other,
        }
    }

    /// Whether the symbol is of something that has an address of its own, and not of a number that the linker made.
    fn has_place(&self) -> bool {
        match self.kind() {
            SymbolKind::Function | SymbolKind::Weak => true,
            SymbolKind::Other => matches!(self.letter.to_ascii_lowercase(), b'b' | b'd' | b'r' | b'v'),
        }
    }

    fn symbol(&self) -> Symbol {
        Symbol {
            name: String::from_utf8_lossy(self.name).into_owned(),
            module: self.module.map(|m| String::from_utf8_lossy(m).into_owned()),
            addr: self.addr(),
            kind: self.kind(),
        }
    }
}

/// Calls `f` with each line, without its newline and without keeping any.
fn each_line(file: File, mut f: impl FnMut(&[u8])) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut line = Vec::with_capacity(256);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        f(line.strip_suffix(b"\n").unwrap_or(&line));
    }
}

/// Whether a line of the first of `paths` that exists satisfies `is`.
fn in_list(paths: &[&str], mut is: impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for path in paths {
        match File::open(Path::new(path)) {
            Ok(file) => {
                let mut found = false;
                each_line(file, |line| found = found || is(line))?;
                return Ok(found);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffffffff81000000 T _stext\nffffffff81000000 T startup_64\nffffffff81000100 t foo.isra.0\n\
        ffffffff81000200 t foo\nffffffff81000300 t foobar\nffffffff81000400 d foo_data\nffffffff81000500 W weak\n\
        ffffffffc0000000 t foo\t[mod_a]\nffffffffc0000100 t bar.llvm.123\t[mod_a]\nbroken\n";

    fn symbols(test: &str) -> (Symbols, PathBuf) {
        let path = std::env::temp_dir().join(format!("ksj-kallsyms-{test}-{}", std::process::id()));
        std::fs::write(&path, TEXT).expect("a temporary file can be written");
        (Symbols::from_file(&path), path)
    }

    #[test]
    fn finds_all_of_a_name_with_suffixes_and_modules() {
        let (symbols, path) = symbols("lookup");
        let found = symbols.lookup(&["foo", "bar"]).expect("the file can be read");
        let names: Vec<_> = found
            .iter()
            .map(|s| (s.name.as_str(), s.module.as_deref(), s.addr & 0xfff))
            .collect();
        assert_eq!(
            names,
            [
                ("foo.isra.0", None, 0x100),
                ("foo", None, 0x200),
                ("foo", Some("mod_a"), 0),
                ("bar.llvm.123", Some("mod_a"), 0x100)
            ]
        );
        assert_eq!(symbols.lookup(&["foo.isra.0"]).expect("readable").len(), 1);
        assert_eq!(
            symbols
                .functions(|n| n.starts_with("foo"))
                .expect("readable")
                .len(),
            4
        );
        std::fs::remove_file(path).expect("it can be removed");
    }

    #[test]
    fn resolves_addresses_to_the_function_around_them() {
        let (symbols, path) = symbols("resolve");
        let at = |a| symbols.resolve_addr(a).map(|p| (p.name, p.module, p.offset));
        assert_eq!(at(0xffffffff81000005), Some(("_stext", None, 5)));
        assert_eq!(at(0xffffffff810002ff), Some(("foo", None, 0xff)));
        assert_eq!(at(0xffffffff81000408), Some(("foo_data", None, 8)));
        assert_eq!(at(0xffffffffc0000010), Some(("foo", Some("mod_a"), 0x10)));
        assert_eq!(at(0x1000), None);
        assert_eq!(at(u64::MAX), None);
        std::fs::remove_file(path).expect("it can be removed");
    }

    #[test]
    fn stems() {
        assert_eq!(stem_of("foo.constprop.0.isra.1"), "foo");
        assert_eq!(stem_of(".text"), ".text");
        assert_eq!(stem_of("plain"), "plain");
    }
}
