//! What processes map to run, told by the kernel as it happens: a process that is gone before anybody looks at it has left word of where
//! its code was. In: nothing. Out: mappings, forks and new programs in the order in which they came about on each CPU. Never waits;
//! what nobody takes in time is lost, and the kernel keeps no more than a buffer full.
//!
//! The kernel's perf events have such records (include/uapi/linux/perf_event.h, `PERF_RECORD_MMAP2` and others); the event itself is the
//! one that never happens (`PERF_COUNT_SW_DUMMY`).

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::perf;

/// Something that a process did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It mapped memory to run.
    Mapped {
        pid: u32,
        start: u64,
        end: u64,
        /// Where in the file it begins.
        offset: u64,
        /// As `/proc/PID/maps` writes it.
        device: String,
        inode: u64,
        path: Vec<u8>,
    },
    /// It runs another program from now on.
    Exec { pid: u32 },
    /// It has a child, which has mapped the same.
    Fork { pid: u32, child: u32 },
    /// It is gone.
    Exit { pid: u32 },
}

/// The log of all CPUs.
#[derive(Debug)]
pub(crate) struct MapLog {
    rings: Vec<Ring>,
}

/// That of one CPU.
#[derive(Debug)]
struct Ring {
    here: *mut u8,
    _event: OwnedFd,
}

/// Pages of a ring, a power of two, behind the page that tells where its ends are.
const PAGES: usize = 32;
const PAGE: usize = 4096;
const SIZE: usize = PAGES * PAGE;
/// Where in the first page the ends are: `data_head`, `data_tail` of `struct perf_event_mmap_page`.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

const RECORD_COMM: u32 = 3;
const RECORD_EXIT: u32 = 4;
const RECORD_FORK: u32 = 7;
const RECORD_MMAP2: u32 = 10;
/// `PERF_RECORD_MISC_COMM_EXEC`.
const COMM_EXEC: u16 = 1 << 13;

impl MapLog {
    /// Begins to listen. `None` where the kernel lets nobody: then what processes have mapped has to be read while they live.
    pub(crate) fn open() -> Option<MapLog> {
        let cpus = aya::util::nr_cpus().ok()?;
        // CPUs that are off have no events.
        let rings: Vec<Ring> = (0..cpus as i32).filter_map(Ring::open).collect();
        (!rings.is_empty()).then_some(MapLog { rings })
    }

    /// Gives what has come since the last time.
    pub(crate) fn take(&mut self, mut each: impl FnMut(Told)) {
        for ring in &mut self.rings {
            ring.take(&mut each);
        }
    }
}

impl Ring {
    fn open(cpu: i32) -> Option<Ring> {
        let event = perf::open_map_log(cpu).ok()?;
        // SAFETY: a new mapping at a place of the kernel's choice; nothing else is there.
        let here = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE + SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        (here != libc::MAP_FAILED).then(|| Ring {
            here: here.cast(),
            _event: event,
        })
    }

    fn end(&self, at: usize) -> &AtomicU64 {
        // SAFETY: both ends are aligned `u64`s in the first page, which is mapped for as long as `self` lives, and which the kernel
        // changes only as a whole.
        unsafe { AtomicU64::from_ptr(self.here.add(at).cast()) }
    }

    fn take(&mut self, each: &mut impl FnMut(Told)) {
        let head = self.end(HEAD).load(Ordering::Acquire);
        let mut tail = self.end(TAIL).load(Ordering::Relaxed);
        let mut bytes = Vec::new();
        while tail < head {
            self.copy(tail, 8, &mut bytes);
            let (kind, misc, size) = match bytes[..] {
                [a, b, c, d, e, f, g, h] => (
                    u32::from_le_bytes([a, b, c, d]),
                    u16::from_le_bytes([e, f]),
                    u64::from(u16::from_le_bytes([g, h])),
                ),
                _ => break,
            };
            if size < 8 || tail + size > head {
                break;
            }
            self.copy(tail + 8, size as usize - 8, &mut bytes);
            if let Some(told) = told(kind, misc, &bytes) {
                each(told);
            }
            tail += size;
        }
        self.end(TAIL).store(head, Ordering::Release);
    }

    /// Bytes from the ring, which begins anew at its end.
    fn copy(&self, from: u64, length: usize, to: &mut Vec<u8>) {
        to.clear();
        let from = from as usize % SIZE;
        let first = length.min(SIZE - from);
        for (at, length) in [(from, first), (0, length - first)] {
            // SAFETY: within the pages behind the first one. The kernel writes nowhere between tail and head, which is where this is.
            to.extend_from_slice(unsafe { std::slice::from_raw_parts(self.here.add(PAGE + at), length) });
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this size, and nothing borrows it any more.
        unsafe { libc::munmap(self.here.cast(), PAGE + SIZE) };
    }
}

/// What a record says, if it is one of those that matter.
fn told(kind: u32, misc: u16, record: &[u8]) -> Option<Told> {
    let word = |at: usize| Some(u32::from_le_bytes(*record.get(at..)?.first_chunk()?));
    let long = |at: usize| Some(u64::from_le_bytes(*record.get(at..)?.first_chunk()?));
    let pid = word(0)?;
    match kind {
        RECORD_MMAP2 => {
            let start = long(8)?;
            let path = record.get(64..)?;
            let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
            Some(Told::Mapped {
                pid,
                start,
                end: start.checked_add(long(16)?)?,
                offset: long(24)?,
                device: format!("{:02x}:{:02x}", word(32)?, word(36)?),
                inode: long(40)?,
                path: path[..end].to_vec(),
            })
        }
        RECORD_COMM if misc & COMM_EXEC != 0 => Some(Told::Exec { pid }),
        // Of threads, both numbers are the process's.
        RECORD_FORK if word(4)? != pid => Some(Told::Fork {
            pid: word(4)?,
            child: pid,
        }),
        // A thread's end has its process's number too, but another thread's.
        RECORD_EXIT if word(8)? == pid => Some(Told::Exit { pid }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_the_kernel_lays_them_out() {
        let mut record = vec![0u8; 64];
        for (at, value) in [(0, 7u64), (8, 0x1000), (16, 0x500), (24, 0x2000), (40, 99)] {
            record[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        record[32..40].copy_from_slice(&[0xfe, 0, 0, 0, 1, 0, 0, 0]);
        record.extend(b"/bin/x\0\0");
        let mapped = Told::Mapped {
            pid: 7,
            start: 0x1000,
            end: 0x1500,
            offset: 0x2000,
            device: "fe:01".to_owned(),
            inode: 99,
            path: b"/bin/x".to_vec(),
        };
        assert_eq!(told(RECORD_MMAP2, 0, &record), Some(mapped));
        let pair = |a: u32, b: u32| [a.to_le_bytes(), b.to_le_bytes()].concat();
        assert_eq!(
            told(RECORD_COMM, COMM_EXEC, &pair(7, 7)),
            Some(Told::Exec { pid: 7 })
        );
        assert_eq!(told(RECORD_COMM, 0, &pair(7, 7)), None);
        let fork = [pair(8, 7), pair(8, 7)].concat();
        assert_eq!(told(RECORD_FORK, 0, &fork), Some(Told::Fork { pid: 7, child: 8 }));
        assert_eq!(told(RECORD_FORK, 0, &[pair(7, 7), pair(9, 7)].concat()), None);
        assert_eq!(told(RECORD_MMAP2, 0, &record[..40]), None);
        assert_eq!(told(0, 0, b""), None);
    }
}
