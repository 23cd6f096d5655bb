//! Functions of running programs, by addresses in their memory. In: a process and an address. Out: the function and how far
//! into it, or the mapped file, or that the process had ended. blazesym reads the files; its types stay here.
//!
//! What is asked for once is kept by process and address. A process may end before anybody looks at where it was:
//! [`UserSymbols::watch`] lets the kernel tell what processes map, and [`UserSymbols::see`] reads what one has mapped already; both open
//! those files. Never names an address by a file that merely has the same name.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::map_log::{MapLog, Told};
use crate::proc_maps::{Line, undeleted};
use blazesym::symbolize::source::{Elf, Process as ProcessSource, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

/// Where an address of a process lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserPlace {
    /// In a function.
    Symbol {
        /// The function, demangled.
        name: Rc<str>,
        /// Bytes from its start.
        offset: u64,
        /// The file that it is in, without its folder, unless it is the program itself.
        file: Option<Rc<str>>,
    },
    /// In a file, where no symbol is.
    Mapped {
        /// The file, without its folder.
        file: Rc<str>,
        /// Bytes from the file's start.
        offset: u64,
        /// It is the program itself.
        main: bool,
        /// A path that means this very file until the next question, if it could be opened.
        path: Option<PathBuf>,
    },
    /// Nowhere that is known: code that was made at run time, or what was mapped only for a while.
    Unknown,
    /// The process had ended before it could be looked at.
    Gone,
}

/// The symbols of processes.
pub struct UserSymbols {
    state: RefCell<State>,
}

struct State {
    symbolizer: Symbolizer,
    /// Files by what `/proc/PID/maps` says of device and inode. Open, so that no other file gets the same inode.
    files: Files,
    processes: HashMap<u32, Process>,
    log: Option<MapLog>,
}

type Files = HashMap<(String, u64), Rc<MappedFile>>;

struct MappedFile {
    /// A path that means this very file for as long as it is open.
    path: PathBuf,
    _open: File,
}

struct Process {
    /// Its `/proc/PID/maps`, which belongs to the address space that the process had when it was opened: once that is gone, because
    /// the process ended or runs another program, there is nothing to be read any more (fs/proc/task_mmu.c, `m_start`).
    maps: Option<File>,
    /// When it was last looked at whether it is still there, and when what it has mapped was read.
    looked: Instant,
    read: Instant,
    /// The program's file.
    main: Option<PathBuf>,
    mappings: Vec<Mapping>,
    places: HashMap<u64, Place>,
}

#[derive(Clone)]
struct Mapping {
    start: u64,
    end: u64,
    /// Where in the file it begins.
    offset: u64,
    /// The file's name without its folder; none for memory without a file.
    name: Option<Rc<str>>,
    /// It is the program itself.
    main: bool,
    file: Option<Rc<MappedFile>>,
}

/// What was found, and when, if it is worth another look.
struct Place {
    place: UserPlace,
    until: Option<Instant>,
}

/// How long a process is taken for the same without a look.
const LOOK: Duration = Duration::from_millis(1);
/// How long what a process has mapped is taken for the same: libraries are loaded while it runs.
const REREAD: Duration = Duration::from_millis(100);
/// How long nothing is looked for where nothing was found: code may be made at run time, and named later.
const RETRY: Duration = Duration::from_secs(1);
/// Processes, open descriptors of such, open files, and addresses of a process that are kept at once.
const PROCESSES: usize = 4096;
const OPEN: usize = 128;
const FILES: usize = 256;
const PLACES: usize = 1 << 16;

impl std::fmt::Debug for UserSymbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserSymbols").finish_non_exhaustive()
    }
}

impl Default for UserSymbols {
    fn default() -> UserSymbols {
        UserSymbols::new()
    }
}

impl UserSymbols {
    /// Knows no process yet.
    pub fn new() -> UserSymbols {
        let state = State {
            symbolizer: symbolizer(),
            files: HashMap::new(),
            processes: HashMap::new(),
            log: None,
        };
        UserSymbols {
            state: RefCell::new(state),
        }
    }

    /// From now on lets the kernel tell what processes map to run. Without that, or where the kernel does not let, only
    /// those are known that live when they are asked for.
    pub fn watch(&self) {
        let state = &mut *self.state.borrow_mut();
        if state.log.is_none() {
            state.log = MapLog::open();
        }
    }

    /// Takes what the kernel has told meanwhile; it keeps no more than a buffer full.
    pub fn listen(&self) {
        self.state.borrow_mut().listen(Instant::now());
    }

    /// Notes what a process has mapped now, if that was not just done: its addresses can be asked for when it is gone.
    pub fn see(&self, pid: u32) {
        let state = &mut *self.state.borrow_mut();
        let now = Instant::now();
        let reread = |process: &Process| now.duration_since(process.read) >= REREAD;
        if state
            .processes
            .get(&pid)
            .is_some_and(|process| now.duration_since(process.looked) < LOOK && !reread(process))
        {
            return;
        }
        state.listen(now);
        state.look(pid, now);
        if let Some(process) = state.processes.get_mut(&pid)
            && reread(process)
        {
            process.reread(pid, now, &mut state.files);
        }
    }

    /// Where an address of a process lies, as far as is known now.
    pub fn resolve(&self, pid: u32, address: u64) -> UserPlace {
        self.state.borrow_mut().resolve(pid, address)
    }
}

fn symbolizer() -> Symbolizer {
    // A path of ours means the same file for ever; what a function was called before inlining takes DWARF, which is not read.
    Symbolizer::builder()
        .enable_auto_reload(false)
        .enable_code_info(false)
        .enable_inlined_fns(false)
        .enable_demangling(true)
        .build()
}

impl State {
    /// Sees to it that what is kept of a process is of the one that has the number now, if one has.
    fn look(&mut self, pid: u32, now: Instant) {
        if let Some(process) = self.processes.get_mut(&pid) {
            if now.duration_since(process.looked) < LOOK {
                return;
            }
            process.looked = now;
            if process.is_there() {
                return;
            }
            // Files and places stay: until another process has the number, questions are about the one that was.
            process.maps = None;
        }
        self.make_room();
        if let Some(fresh) = Process::open(pid, now, &mut self.files) {
            self.processes.insert(pid, fresh);
        }
    }

    /// Takes in what the kernel tells.
    fn listen(&mut self, now: Instant) {
        let Some(mut log) = self.log.take() else {
            return;
        };
        log.take(|told| match told {
            Told::Exec { pid } => {
                self.make_room();
                self.processes.insert(pid, Process::new(now));
            }
            Told::Fork { pid, child } => {
                self.make_room();
                if let Some(parent) = self.processes.get(&pid) {
                    let same = parent.copy(now);
                    self.processes.insert(child, same);
                }
            }
            Told::Exit { pid } => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.maps = None;
                }
            }
            Told::Mapped {
                pid,
                start,
                end,
                offset,
                device,
                inode,
                path,
            } => {
                let line = Line {
                    start,
                    end,
                    offset,
                    device: &device,
                    inode,
                    path: Path::new(undeleted(&path)),
                };
                let process = self.processes.entry(pid).or_insert_with(|| Process::new(now));
                process.add(pid, &line, &mut self.files);
            }
        });
        self.log = Some(log);
    }

    /// Forgets what is too much. Whoever opens files does this before: a file is closed only when nothing of it is known any more, for its
    /// path would mean another one then.
    fn make_room(&mut self) {
        while self.processes.len() >= PROCESSES {
            let last = self
                .processes
                .iter()
                .min_by_key(|(pid, process)| (process.looked, **pid));
            match last.map(|(pid, _)| *pid) {
                Some(pid) => self.processes.remove(&pid),
                None => break,
            };
        }
        let open = || self.processes.values().filter(|process| process.maps.is_some());
        if open().count() >= OPEN {
            // They are opened again when they are asked for.
            self.processes
                .values_mut()
                .for_each(|process| process.maps = None);
        }
        if self.files.len() >= FILES {
            // All at once: blazesym keeps what it has read for as long as it lives.
            self.files.clear();
            self.processes.clear();
            self.symbolizer = symbolizer();
        }
    }

    fn resolve(&mut self, pid: u32, address: u64) -> UserPlace {
        let now = Instant::now();
        self.look(pid, now);
        let known = self
            .processes
            .get(&pid)
            .and_then(|process| process.places.get(&address));
        if let Some(known) = known
            && known.until.is_none_or(|until| now < until)
        {
            return known.place.clone();
        }
        self.listen(now);
        let Some(process) = self
            .processes
            .get_mut(&pid)
            .filter(|process| !process.mappings.is_empty())
        else {
            return UserPlace::Gone;
        };
        if process.mapping(address).is_none() && now.duration_since(process.read) >= LOOK {
            process.reread(pid, now, &mut self.files);
        }
        let place = match process.mapping(address) {
            Some(mapping) => mapping.place(&self.symbolizer, pid, process.maps.is_some(), address),
            None => UserPlace::Unknown,
        };
        if process.places.len() >= PLACES {
            process.places.clear();
        }
        let until = match &place {
            UserPlace::Symbol { .. } | UserPlace::Mapped { .. } => None,
            UserPlace::Unknown | UserPlace::Gone => Some(now + RETRY),
        };
        process.places.insert(
            address,
            Place {
                place: place.clone(),
                until,
            },
        );
        place
    }
}

impl Process {
    /// One of which nothing is known yet.
    fn new(now: Instant) -> Process {
        Process {
            maps: None,
            looked: now,
            read: now,
            main: None,
            mappings: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// Another one that has mapped the same.
    fn copy(&self, now: Instant) -> Process {
        Process {
            main: self.main.clone(),
            mappings: self.mappings.clone(),
            ..Process::new(now)
        }
    }

    /// `None` if there is no such process, or it has no memory of its own any more.
    fn open(pid: u32, now: Instant, files: &mut Files) -> Option<Process> {
        let mut process = Process {
            maps: Some(File::open(format!("/proc/{pid}/maps")).ok()?),
            ..Process::new(now)
        };
        process.reread(pid, now, files);
        (!process.mappings.is_empty()).then_some(process)
    }

    fn is_there(&self) -> bool {
        let mut byte = [0];
        self.maps
            .as_ref()
            .is_some_and(|maps| matches!(maps.read_at(&mut byte, 0), Ok(1)))
    }

    fn mapping(&self, address: u64) -> Option<&Mapping> {
        let at = self.mappings.partition_point(|mapping| mapping.start <= address);
        let mapping = self.mappings.get(at.checked_sub(1)?)?;
        (address < mapping.end).then_some(mapping)
    }

    /// Reads what is mapped. What was there and is not any more is kept: where it was is still asked for.
    fn reread(&mut self, pid: u32, now: Instant, files: &mut Files) {
        self.read = now;
        let mut text = Vec::new();
        let Some(maps) = &mut self.maps else {
            return;
        };
        // From the start, whatever was read before.
        if maps.rewind().is_err() || maps.read_to_end(&mut text).is_err() {
            return;
        }
        if let Ok(main) = std::fs::read_link(format!("/proc/{pid}/exe")) {
            self.main = Some(undeleted(main.as_os_str().as_bytes()).into());
        }
        for line in text.split(|byte| *byte == b'\n').filter_map(Line::parse) {
            self.add(pid, &line, files);
        }
    }

    /// Adds what is mapped, in place of what was there.
    fn add(&mut self, pid: u32, line: &Line<'_>, files: &mut Files) {
        let key = (line.device.to_owned(), line.inode);
        let file = match (line.inode, files.get(&key)) {
            (0, _) => None,
            (_, Some(known)) => Some(Rc::clone(known)),
            (_, None) => MappedFile::open(pid, line).map(|file| {
                let file = Rc::new(file);
                files.insert(key, Rc::clone(&file));
                file
            }),
        };
        // What a program begins with is itself.
        let main = self.main.get_or_insert_with(|| line.path.to_owned());
        let mapping = Mapping {
            start: line.start,
            end: line.end,
            offset: line.offset,
            name: line.name(),
            main: main == line.path,
            file,
        };
        if self.mappings.iter().any(|known| known.is_same(&mapping)) {
            return;
        }
        self.mappings
            .retain(|known| known.end <= mapping.start || mapping.end <= known.start);
        let at = self.mappings.partition_point(|known| known.start < mapping.start);
        self.mappings.insert(at, mapping);
        // Something else may be where something was.
        self.places.clear();
    }
}

impl Mapping {
    fn is_same(&self, other: &Mapping) -> bool {
        let file = |mapping: &Mapping| mapping.file.as_ref().map(Rc::as_ptr);
        (self.start, self.end, self.offset) == (other.start, other.end, other.offset)
            && self.name == other.name
            && file(self) == file(other)
    }

    fn place(&self, symbolizer: &Symbolizer, pid: u32, there: bool, address: u64) -> UserPlace {
        let offset = address - self.start + self.offset;
        let found = match &self.file {
            Some(file) => {
                let mut elf = Elf::new(&file.path);
                elf.debug_syms = false;
                symbolizer.symbolize_single(&Source::Elf(elf), Input::FileOffset(offset))
            }
            // The vDSO, and code made at run time that `/tmp/perf-PID.map` tells of, are found by way of the process.
            None if there => {
                let process = ProcessSource::new(pid.into());
                symbolizer.symbolize_single(&Source::Process(process), Input::AbsAddr(address))
            }
            None => return self.nameless(offset),
        };
        match found {
            Ok(Symbolized::Sym(symbol)) => UserPlace::Symbol {
                name: symbol.name.as_ref().into(),
                offset: symbol.offset as u64,
                file: self.name.clone().filter(|_| !self.main),
            },
            Ok(Symbolized::Unknown(_)) | Err(_) => self.nameless(offset),
        }
    }

    fn nameless(&self, offset: u64) -> UserPlace {
        match &self.name {
            Some(name) => UserPlace::Mapped {
                file: name.clone(),
                offset,
                main: self.main,
                path: self.file.as_ref().map(|file| file.path.clone()),
            },
            None => UserPlace::Unknown,
        }
    }
}

impl MappedFile {
    /// The file behind a mapping. `map_files` leads to it by whatever path it is or was; it takes CAP_SYS_ADMIN or
    /// CAP_CHECKPOINT_RESTORE. Else the path, if what is there is the same file.
    fn open(pid: u32, line: &Line<'_>) -> Option<MappedFile> {
        let direct = format!("/proc/{pid}/map_files/{:x}-{:x}", line.start, line.end);
        let relative = line.path.strip_prefix("/").ok()?;
        let named = [
            Path::new(&format!("/proc/{pid}/root")).join(relative),
            line.path.to_owned(),
        ];
        let by_name = || {
            named.iter().find_map(|path| {
                let file = File::open(path).ok()?;
                (file.metadata().ok()?.ino() == line.inode).then_some(file)
            })
        };
        let open = File::open(direct).ok().or_else(by_name)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        Some(MappedFile { path, _open: open })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn somewhere() -> u64 {
        somewhere as *const () as u64
    }

    fn name(place: &UserPlace) -> &str {
        match place {
            UserPlace::Symbol { name, .. } => name,
            UserPlace::Mapped { .. } | UserPlace::Unknown | UserPlace::Gone => "",
        }
    }

    #[test]
    fn functions_of_the_program_and_of_a_library() {
        let (symbols, pid) = (UserSymbols::new(), std::process::id());
        let ours = symbols.resolve(pid, somewhere());
        assert!(name(&ours).ends_with("tests::somewhere"), "{ours:?}");
        assert!(
            matches!(
                ours,
                UserPlace::Symbol {
                    offset: 0,
                    file: None,
                    ..
                }
            ),
            "{ours:?}"
        );
        let theirs = symbols.resolve(pid, libc::getppid as *const () as u64 + 3);
        assert_eq!(name(&theirs), "getppid");
        let in_libc = matches!(&theirs, UserPlace::Symbol { offset: 3, file: Some(file), .. } if file.starts_with("libc"));
        assert!(in_libc, "{theirs:?}");
        // The second answer is the first one.
        assert_eq!(symbols.resolve(pid, somewhere()), ours);
        assert_eq!(symbols.resolve(pid, 1), UserPlace::Unknown);
    }

    #[test]
    fn a_process_that_was_seen_is_known_when_it_is_gone_and_others_are_not() {
        let symbols = UserSymbols::new();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep runs");
        let pid = child.id();
        let exe = || std::fs::read_link(format!("/proc/{pid}/exe"));
        // Until it is `sleep`, and not a copy of this program any more, and has its code.
        let code = loop {
            let maps = std::fs::read(format!("/proc/{pid}/maps")).expect("its maps");
            let first = maps
                .split(|byte| *byte == b'\n')
                .filter_map(Line::parse)
                .next()
                .map(|line| line.start);
            match first {
                Some(start)
                    if exe().is_ok_and(|exe| exe.ends_with("sleep") || exe.ends_with("coreutils")) =>
                {
                    break start;
                }
                Some(_) | None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        symbols.see(pid);
        let inside = code + 8;
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        let place = symbols.resolve(pid, inside);
        assert!(
            matches!(place, UserPlace::Symbol { .. } | UserPlace::Mapped { .. }),
            "{place:?}"
        );
        assert_eq!(UserSymbols::new().resolve(pid, inside), UserPlace::Gone);
        assert_eq!(symbols.resolve(u32::MAX, inside), UserPlace::Gone);
    }
}
