//! Reads events as they come, and waits for whatever ends the waiting: events, a signal, the traced command's end,
//! time.
//!
//! In: a ring buffer map. Out: each event's bytes, in the order in which programs reserved them, to a callback.
//! Never copies an event, never drops one; the bytes are gone when the callback returns.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use aya::maps::{Map, MapData, RingBuf};

use crate::error::{Result, RuntimeError};
use crate::maps::Maps;

/// A reader of one ring buffer.
pub struct Events {
    /// Without one, only what is watched ends a wait.
    ring: Option<RingBuf<MapData>>,
    epoll: OwnedFd,
}

/// Why [`Events::poll`] came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// Number of events that the callback was given.
    pub events: u64,
    /// The callback wanted no more.
    pub stopped: bool,
    /// Tokens below 64 of the watched descriptors that are ready, one bit each.
    pub ready: u64,
}

impl Wake {
    /// Whether the descriptor watched under `token` is ready.
    pub fn is_ready(&self, token: u8) -> bool {
        token < TOKENS && self.ready >> token & 1 == 1
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// How many descriptors can be watched.
const TOKENS: u8 = 64;
/// The ring buffer's own token.
const RING: u64 = u64::MAX;

impl Events {
    /// Opens the ring buffer called `map`. If there is none, nothing is ever read, as with programs that only count.
    ///
    /// # Errors
    /// [`RuntimeError::Map`] if it is no ring buffer or can't be mapped.
    pub fn open(maps: &Maps, map: &str) -> Result<Events> {
        let fail = |source| RuntimeError::Map {
            map: map.to_owned(),
            doing: "open ring buffer",
            source,
        };
        let ring = match maps.contains(map) {
            true => Some(
                RingBuf::try_from(Map::RingBuf(maps.duplicate(map)?))
                    .map_err(|e| fail(io::Error::other(e.to_string())))?,
            ),
            false => None,
        };
        // SAFETY: takes no pointer and has no precondition.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(fail(io::Error::last_os_error()));
        }
        // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let events = Events { ring, epoll };
        if let Some(ring) = &events.ring {
            events.add(ring.as_raw_fd(), RING)?;
        }
        Ok(events)
    }

    /// Also wakes up when `fd` becomes readable, which [`Wake::is_ready`] then tells under `token` (below 64).
    ///
    /// # Errors
    /// [`RuntimeError::Sys`] if it can't be watched.
    pub fn watch(&self, fd: BorrowedFd<'_>, token: u8) -> Result<()> {
        if token >= TOKENS {
            let source = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(RuntimeError::Sys {
                doing: "watch a descriptor",
                source,
            });
        }
        self.add(fd.as_raw_fd(), u64::from(token))
    }

    /// Gives what is there to `each` at once; if there was nothing, waits for something, at most `timeout` (`None`:
    /// for ever), and gives that. `each` may end it with `ControlFlow::Break`; events after that one stay in the
    /// buffer. A caught signal that isn't watched ends the wait early, with an empty [`Wake`].
    ///
    /// Watched descriptors are looked at also when events come without a pause, so that Ctrl-C always gets through.
    ///
    /// # Errors
    /// [`RuntimeError::Sys`] if waiting fails.
    pub fn poll(
        &mut self,
        timeout: Option<Duration>,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Wake> {
        let mut wake = Wake::default();
        self.drain(&mut wake, &mut each);
        if wake.stopped {
            return Ok(wake);
        }
        // With events in hand the caller is waiting for nothing: only look.
        let wait = if wake.events > 0 {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        let ring_ready = self.wait(wait, &mut wake)?;
        if ring_ready && wake.events == 0 {
            self.drain(&mut wake, &mut each);
        }
        Ok(wake)
    }

    /// Gives what is in the buffer and doesn't wait: for the end of a run, after detaching.
    pub fn drain_all(&mut self, mut each: impl FnMut(&[u8]) -> ControlFlow<()>) -> Wake {
        let mut wake = Wake::default();
        self.drain(&mut wake, &mut each);
        wake
    }

    fn drain(&mut self, wake: &mut Wake, each: &mut impl FnMut(&[u8]) -> ControlFlow<()>) {
        // Programs may write as fast as this reads: after this time the caller gets a look at its clock and signals.
        const TURN: Duration = Duration::from_millis(100);
        let mut until = None;
        let Some(ring) = &mut self.ring else {
            return;
        };
        while let Some(event) = ring.next() {
            wake.events += 1;
            if each(&event).is_break() {
                wake.stopped = true;
                return;
            }
            if wake.events.is_multiple_of(256)
                && Instant::now() > *until.get_or_insert_with(|| Instant::now() + TURN)
            {
                return;
            }
        }
    }

    fn add(&self, fd: i32, token: u64) -> Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: token,
        };
        // SAFETY: `event` is live; both descriptors are open, as their owners are borrowed.
        let r = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if r < 0 {
            let source = io::Error::last_os_error();
            return Err(RuntimeError::Sys {
                doing: "watch a descriptor",
                source,
            });
        }
        Ok(())
    }

    fn wait(&self, timeout: Option<Duration>, wake: &mut Wake) -> Result<bool> {
        // Rounded up: waking before the time would make the caller's loop spin.
        let millis = match timeout {
            None => -1,
            Some(t) => i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX),
        };
        let mut ready = [libc::epoll_event { events: 0, u64: 0 }; 8];
        // SAFETY: `ready` is live and as long as stated.
        let n = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                ready.as_mut_ptr(),
                ready.len() as i32,
                millis,
            )
        };
        if n < 0 {
            let source = io::Error::last_os_error();
            if source.kind() == io::ErrorKind::Interrupted {
                return Ok(false);
            }
            return Err(RuntimeError::Sys {
                doing: "wait for events",
                source,
            });
        }
        let mut ring = false;
        for event in ready.iter().take(n as usize) {
            let token = event.u64;
            if token == RING {
                ring = true;
            } else {
                wake.ready |= 1 << token;
            }
        }
        Ok(ring)
    }
}
