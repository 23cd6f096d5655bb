//! Names for addresses: what the runtime knows of the kernel and of processes, as display asks for it. In: addresses. Out: symbols.
//! Never looks anything up that display has not asked for.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use ksnoop_jit::display::{Place, Symbol, Symbols};
use ksnoop_jit::user::{Image, demangled};
use ksnoop_jit_runtime as runtime;
use runtime::{UserPlace, UserSymbols};

use crate::programs;

/// The symbols that are known in a run.
#[derive(Debug, Default)]
pub(super) struct Known {
    kernel: runtime::symbols::Symbols,
    users: UserSymbols,
    stripped: Stripped,
}

/// Functions whose symbols were stripped from the files that processes map, as far as they are kept elsewhere.
#[derive(Debug, Default)]
struct Stripped {
    /// By device and inode; `None` where there is nothing more to know.
    files: RefCell<BTreeMap<(u64, u64), Option<Image>>>,
    found: RefCell<BTreeMap<(u64, u64, u64), Found>>,
}

/// A function and how far into it.
type Found = Option<(Rc<str>, u64)>;

/// Files and places that are kept at once.
const FILES: usize = 64;
const PLACES: usize = 1 << 16;

impl Stripped {
    /// The function at an offset of the file.
    fn find(&self, path: &Path, offset: u64) -> Found {
        let file = path.metadata().ok()?;
        let key = (file.dev(), file.ino());
        let place = (key.0, key.1, offset);
        if let Some(known) = self.found.borrow().get(&place) {
            return known.clone();
        }
        let mut files = self.files.borrow_mut();
        let mut all = self.found.borrow_mut();
        if files.len() >= FILES || all.len() >= PLACES {
            files.clear();
            all.clear();
        }
        let image = files
            .entry(key)
            .or_insert_with(|| programs::with_stripped_symbols(path));
        let found = image.as_ref().and_then(|image| {
            let address = image.code_address(offset)?;
            let function = image.function_at(address)?;
            let name = demangled(&function.name).unwrap_or_else(|| function.name.clone());
            Some((name.into(), address - function.address))
        });
        all.insert(place, found.clone());
        found
    }
}

impl Known {
    /// Notes what a process has mapped, to be asked for later.
    pub(super) fn see(&self, pid: u32) {
        // This one will still be there, and looking makes system calls of its own, which may be what is traced.
        if pid != std::process::id() {
            self.users.see(pid);
        }
    }

    /// Lets the kernel tell what processes map from now on.
    pub(super) fn watch(&self) {
        self.users.watch();
    }

    /// Takes what it has told.
    pub(super) fn listen(&self) {
        self.users.listen();
    }

    /// The same, with more modules in the kernel than before.
    pub(super) fn anew(self) -> Known {
        Known {
            kernel: runtime::symbols::Symbols::new(),
            users: self.users,
            stripped: self.stripped,
        }
    }
}

impl Symbols for Known {
    fn resolve(&self, address: u64) -> Option<Symbol<'_>> {
        let place = self.kernel.resolve_addr(address)?;
        Some(Symbol {
            name: place.name.into(),
            offset: place.offset,
            module: place.module.map(Into::into),
        })
    }

    fn resolve_user(&self, pid: u32, address: u64) -> Place<'_> {
        match self.users.resolve(pid, address) {
            UserPlace::Symbol { name, offset, file } => Place::Symbol(Symbol {
                name: name.to_string().into(),
                offset,
                module: file.map(|file| file.to_string().into()),
            }),
            UserPlace::Mapped {
                file,
                offset,
                main,
                path,
            } => match path.and_then(|path| self.stripped.find(&path, offset)) {
                Some((name, offset)) => Place::Symbol(Symbol {
                    name: name.to_string().into(),
                    offset,
                    module: (!main).then(|| file.to_string().into()),
                }),
                None => Place::Mapped {
                    file: file.to_string().into(),
                    offset,
                },
            },
            UserPlace::Unknown => Place::Unknown,
            UserPlace::Gone => Place::Gone,
        }
    }
}
