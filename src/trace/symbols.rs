//! Names for addresses: what the runtime knows of the kernel and of processes, as display asks for it. In: addresses. Out: symbols.
//! Never looks anything up that display has not asked for.

use ksnoop_jit::display::{Place, Symbol, Symbols};
use ksnoop_jit_runtime as runtime;
use runtime::{UserPlace, UserSymbols};

/// The symbols that are known in a run.
#[derive(Debug, Default)]
pub(super) struct Known {
    kernel: runtime::symbols::Symbols,
    users: UserSymbols,
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
            UserPlace::Mapped { file, offset } => Place::Mapped {
                file: file.to_string().into(),
                offset,
            },
            UserPlace::Unknown => Place::Unknown,
            UserPlace::Gone => Place::Gone,
        }
    }
}
