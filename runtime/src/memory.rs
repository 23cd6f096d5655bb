//! Kernel memory that this process sees too, so that programs can be run over known bytes.
//!
//! In: a size. Out: the bytes, to read and write here, and the address at which programs find them. Never attaches
//! anything; the memory lives as long as its owner.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::{Result, RuntimeError};
use crate::program::LogLevel;
use crate::sys::{self, MapCreate, cmd, prog_type};
use crate::verify::{RawProgram, load_raw};

/// `BPF_MAP_TYPE_ARRAY`.
const ARRAY: u32 = 2;
/// `BPF_F_MMAPABLE`: the array's values begin on a page of their own (5.5, kernel/bpf/arraymap.c).
const MMAPABLE: u32 = 0x400;
const PAGE: usize = 4096;

/// The one value of an array map, mapped into this process.
#[derive(Debug)]
pub struct KernelMemory {
    here: *mut u8,
    size: usize,
    address: u64,
    map: OwnedFd,
}

impl KernelMemory {
    /// Makes memory of so many bytes, rounded up to whole pages; it is all zeroes.
    ///
    /// # Errors
    /// [`RuntimeError::Map`] if the map can't be made or mapped, [`RuntimeError::Load`] or [`RuntimeError::Sys`] if the
    /// program that tells its address can't be loaded or run.
    pub fn new(size: usize) -> Result<KernelMemory> {
        let failed = |doing, source| RuntimeError::Map {
            map: "memory".to_owned(),
            doing,
            source,
        };
        let size = size.next_multiple_of(PAGE);
        let map = sys::with_memlock(|| {
            let mut attr = MapCreate {
                map_type: ARRAY,
                key_size: 4,
                value_size: size as u32,
                max_entries: 1,
                map_flags: MMAPABLE,
                ..Default::default()
            };
            sys::bpf_fd(cmd::MAP_CREATE, &mut attr)
        })
        .map_err(|e| failed("make", e))?;
        // SAFETY: a new mapping at a place of the kernel's choice; nothing else is there.
        let here = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if here == libc::MAP_FAILED {
            return Err(failed("map", io::Error::last_os_error()));
        }
        let mut memory = KernelMemory {
            here: here.cast(),
            size,
            address: 0,
            map,
        };
        memory.ask_address()?;
        Ok(memory)
    }

    /// Where programs find the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is as long as this, is ours alone while `self` is borrowed, and bytes have no other state.
        unsafe { std::slice::from_raw_parts_mut(self.here, self.size) }
    }

    /// Lets a program write the address down in the memory itself.
    fn ask_address(&mut self) -> Result<()> {
        let fd = self.map.as_raw_fd().to_le_bytes();
        let insns: [[u8; 8]; 5] = [
            // r1 = the value's address (BPF_PSEUDO_MAP_VALUE)
            [0x18, 0x21, 0, 0, fd[0], fd[1], fd[2], fd[3]],
            [0; 8],
            // *(u64 *)(r1 + 0) = r1
            [0x7b, 0x11, 0, 0, 0, 0, 0, 0],
            // r0 = 0; exit
            [0xb7, 0, 0, 0, 0, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        let program = RawProgram {
            prog_type: prog_type::RAW_TRACEPOINT,
            insns: insns.as_flattened(),
            ..Default::default()
        };
        load_raw(&program, LogLevel::Off)?
            .test_run(&[])
            .map_err(|source| RuntimeError::Sys {
                doing: "test-run a program",
                source,
            })?;
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes()[..8]);
        self.bytes()[..8].fill(0);
        self.address = u64::from_le_bytes(word);
        Ok(())
    }
}

impl Drop for KernelMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size, and nothing borrows it any more.
        unsafe { libc::munmap(self.here.cast(), self.size) };
    }
}
