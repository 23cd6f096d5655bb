//! Signals as something to wait for, without code that runs inside of a handler.
//!
//! In: SIGINT, SIGTERM and SIGHUP, blocked for this thread and those it starts. Out: a descriptor for
//! [`crate::Events::watch`] and the signal that came. Never ends the process. SIGPIPE is Rust's default, ignored, so
//! that a closed pipe is a write error; [`is_broken_pipe`] tells it from real ones.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{Result, RuntimeError};

/// The signals that end a run.
const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Catches the signals that end a run. Dropping it gives them their usual meaning again, so that a second Ctrl-C
/// during a slow detach kills.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// Starts to catch. Call it before threads are started, and before attaching, or a signal may come in between.
    ///
    /// # Errors
    /// [`RuntimeError::Sys`] if the kernel refuses.
    pub fn catch() -> Result<Signals> {
        let fail = |source| RuntimeError::Sys {
            doing: "catch signals",
            source,
        };
        let set = ending();
        let mut before = empty();
        // SAFETY: both sets are live and initialized.
        let r = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) };
        if r != 0 {
            return Err(fail(io::Error::from_raw_os_error(r)));
        }
        // SAFETY: `set` is live and initialized.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(fail(io::Error::last_os_error()));
        }
        // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Signals { fd, before })
    }

    /// The signal that came, if one did; each is told once.
    pub fn take(&self) -> Option<i32> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: `info` has room for `size` bytes.
        let n = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if n != size as isize {
            return None;
        }
        // SAFETY: the kernel filled all of it.
        Some(unsafe { info.assume_init() }.ssi_signo as i32)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by the call that blocked the signals.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// Whether a write failed because the reader went away, which is a reason to end and not to complain.
pub fn is_broken_pipe(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::BrokenPipe
}

/// A set without signals.
pub(crate) fn empty() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initializes the set that it is given.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn ending() -> libc::sigset_t {
    let mut set = empty();
    for signal in ENDING {
        // SAFETY: `set` is live and initialized; the signal numbers are valid.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}
