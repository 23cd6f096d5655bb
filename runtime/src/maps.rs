//! The maps of an object: made from their definitions, read and written by name.
//!
//! In: map definitions as `object` found them. Out: plain bytes and `u64`s. Never knows what a value means, never
//! keeps a copy: each read asks the kernel.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, OnceLock};

use aya::maps::{MapData, MapError};
use aya_obj::generated::bpf_map_type;

use crate::error::{Result, RuntimeError};
use crate::object::ring_bytes;
use crate::sys::{self, MapBatch, MapElem, cmd};

/// A set of maps by name. Cloning shares the maps; they live as long as anything holds them.
#[derive(Clone, Default)]
pub struct Maps {
    by_name: BTreeMap<String, Arc<Map>>,
}

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// How many pairs are asked for at once.
const BATCH: usize = 256;

struct Map {
    data: MapData,
    kind: u32,
    key_size: usize,
    value_size: usize,
    max_entries: u32,
}

impl std::fmt::Debug for Maps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Maps {
    /// Whether there is such a map.
    pub fn contains(&self, map: &str) -> bool {
        self.by_name.contains_key(map)
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Adds the maps of `other` whose names are not there yet.
    pub fn extend(&mut self, other: &Maps) {
        for (name, map) in &other.by_name {
            self.by_name
                .entry(name.clone())
                .or_insert_with(|| Arc::clone(map));
        }
    }

    /// Size in bytes of a key, of a value (per CPU, rounded up to 8 for per-CPU maps), and number of entries.
    ///
    /// # Errors
    /// [`RuntimeError::NoSuch`] if there is no such map.
    pub fn shape(&self, map: &str) -> Result<(usize, usize, u32)> {
        let m = self.get(map)?;
        Ok((m.key_size, m.stride(), m.max_entries))
    }

    /// One element of a per-CPU array of `u64`s: its value on each possible CPU. Sum them for a counter.
    ///
    /// # Errors
    /// [`RuntimeError::NoSuch`] for an unknown map, [`RuntimeError::Map`] if it can't be read or its values aren't
    /// 8 bytes.
    pub fn percpu_u64(&self, map: &str, index: u32) -> Result<Vec<u64>> {
        let bytes = self
            .lookup(map, &index.to_ne_bytes())?
            .ok_or_else(|| missing(map))?;
        if self.get(map)?.value_size != 8 {
            return Err(failed(map, "read", io::Error::from(io::ErrorKind::InvalidData)));
        }
        Ok(bytes
            .chunks_exact(8)
            .map(|c| u64::from_ne_bytes(c.try_into().unwrap_or_default()))
            .collect())
    }

    /// The value under `key`, `None` if there is none. For per-CPU maps, each possible CPU's value one after the
    /// other, rounded up to 8 bytes.
    ///
    /// # Errors
    /// As [`Maps::percpu_u64`]; a key of the wrong size is `InvalidInput`.
    pub fn lookup(&self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let m = self.get(map)?;
        m.check_key(map, key)?;
        let mut value = vec![0u8; m.value_len()?];
        let mut attr = m.elem(key, value.as_mut_ptr() as u64, 0);
        match sys::bpf(cmd::MAP_LOOKUP_ELEM, &mut attr) {
            Ok(_) => Ok(Some(value)),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(failed(map, "read", e)),
        }
    }

    /// Sets the value under `key`: a configuration word before attaching, a counter back to zero.
    ///
    /// # Errors
    /// As [`Maps::lookup`]; a value of the wrong size is `InvalidInput`.
    pub fn update(&self, map: &str, key: &[u8], value: &[u8]) -> Result<()> {
        let m = self.get(map)?;
        m.check_key(map, key)?;
        if value.len() != m.value_len()? {
            return Err(failed(map, "write", io::Error::from(io::ErrorKind::InvalidInput)));
        }
        let mut attr = m.elem(key, value.as_ptr() as u64, 0);
        sys::bpf(cmd::MAP_UPDATE_ELEM, &mut attr).map_err(|e| failed(map, "write", e))?;
        Ok(())
    }

    /// Sets one element of an array of `u64`s.
    ///
    /// # Errors
    /// As [`Maps::update`].
    pub fn set_u64(&self, map: &str, index: u32, value: u64) -> Result<()> {
        self.update(map, &index.to_ne_bytes(), &value.to_ne_bytes())
    }

    /// Deletes the value under `key`; false if there was none.
    ///
    /// # Errors
    /// As [`Maps::lookup`].
    pub fn delete(&self, map: &str, key: &[u8]) -> Result<bool> {
        let m = self.get(map)?;
        m.check_key(map, key)?;
        match sys::bpf(cmd::MAP_DELETE_ELEM, &mut m.elem(key, 0, 0)) {
            Ok(_) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(failed(map, "delete from", e)),
        }
    }

    /// All pairs: key and value as [`Maps::lookup`] gives it. Programs may add and delete meanwhile: a pair may then be
    /// missed, and is never given twice unless it was deleted and added again. Many are read with one system call
    /// where the kernel can do that with this kind of map (hash maps since 5.6).
    ///
    /// # Errors
    /// As [`Maps::lookup`].
    pub fn entries(&self, map: &str) -> Result<Vec<Pair>> {
        match self.batches(map)? {
            Some(pairs) => Ok(pairs),
            None => self.walk(map),
        }
    }

    /// All pairs, many with each system call; `None` if the kernel can't.
    fn batches(&self, map: &str) -> Result<Option<Vec<Pair>>> {
        /// `ENOTSUPP`, which the kernel lets out here (kernel/bpf/syscall.c, `bpf_map_do_batch`), and libc does not name.
        const ENOTSUPP: i32 = 524;
        let m = self.get(map)?;
        let value_len = m.value_len()?;
        let mut out = vec![];
        let mut room = BATCH;
        // Where the next batch begins: the kernel's own note, of at most a key's size.
        let mut position = vec![0u8; m.key_size.max(8)];
        let mut after = position.clone();
        let mut started = false;
        let mut seen = std::collections::HashSet::new();
        // A walk over a map that programs write to meanwhile must still end.
        let mut left = m.max_entries as usize * 2 + 2;
        loop {
            let mut keys = vec![0u8; room * m.key_size];
            let mut values = vec![0u8; room * value_len];
            let mut attr = MapBatch {
                in_batch: if started { position.as_ptr() as u64 } else { 0 },
                out_batch: after.as_mut_ptr() as u64,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: room as u32,
                map_fd: m.fd() as u32,
                ..Default::default()
            };
            let done = match sys::bpf(cmd::MAP_LOOKUP_BATCH, &mut attr) {
                Ok(_) => false,
                Err(e) => match e.raw_os_error() {
                    // The end; what was left of the map is there.
                    Some(libc::ENOENT) => true,
                    // One bucket of the map has more pairs than there was room for.
                    Some(libc::ENOSPC) if room < 1 << 20 => {
                        room *= 4;
                        continue;
                    }
                    Some(libc::EINVAL | ENOTSUPP | libc::EOPNOTSUPP) if !started => return Ok(None),
                    _ => return Err(failed(map, "read", e)),
                },
            };
            let count = (attr.count as usize).min(room);
            let pairs = keys.chunks_exact(m.key_size).zip(values.chunks_exact(value_len));
            for (key, value) in pairs.take(count) {
                if seen.insert(key.to_vec()) {
                    out.push((key.to_vec(), value.to_vec()));
                }
            }
            left = left.saturating_sub(count.max(1));
            if done || left == 0 {
                return Ok(Some(out));
            }
            std::mem::swap(&mut position, &mut after);
            started = true;
        }
    }

    /// All pairs, one system call for each and one to get to it.
    fn walk(&self, map: &str) -> Result<Vec<Pair>> {
        let m = self.get(map)?;
        let mut out = vec![];
        let mut key: Option<Vec<u8>> = None;
        let mut next = vec![0u8; m.key_size];
        // Deleting the key that the walk stands on starts it over (kernel/bpf/hashtab.c), so the walk is bounded.
        let mut left = m.max_entries as usize * 2 + 1;
        let mut seen = std::collections::HashSet::new();
        loop {
            let at = key.as_ref().map_or(0, |k| k.as_ptr() as u64);
            let mut attr = MapElem {
                map_fd: m.fd() as u32,
                key: at,
                value: next.as_mut_ptr() as u64,
                ..Default::default()
            };
            match sys::bpf(cmd::MAP_GET_NEXT_KEY, &mut attr) {
                Ok(_) => {}
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(out),
                Err(e) => return Err(failed(map, "walk", e)),
            }
            if seen.insert(next.clone())
                && let Some(value) = self.lookup(map, &next)?
            {
                out.push((next.clone(), value));
            }
            key = Some(next.clone());
            left -= 1;
            if left == 0 {
                return Ok(out);
            }
        }
    }

    /// One array of one value, for programs without an object (`load_raw`).
    ///
    /// # Errors
    /// [`RuntimeError::NotPrivileged`], [`RuntimeError::Map`].
    pub fn array(name: &str, value_size: u32) -> Result<Maps> {
        let kind = bpf_map_type::BPF_MAP_TYPE_ARRAY as u32;
        let def = aya_obj::Map::new_from_params(kind, 4, value_size, 1, 0);
        Maps::create(BTreeMap::from([(name.to_owned(), def)]), &[], None, None)
    }

    pub(crate) fn fd(&self, map: &str) -> Result<BorrowedFd<'_>> {
        Ok(self.get(map)?.data.fd().as_fd())
    }

    /// A second handle on the map, for Aya's readers, which own what they read.
    pub(crate) fn duplicate(&self, map: &str) -> Result<MapData> {
        let fd = self
            .fd(map)?
            .try_clone_to_owned()
            .map_err(|source| failed(map, "duplicate", source))?;
        MapData::from_fd(fd).map_err(|e| failed(map, "ask about", io_of(e)))
    }

    fn get(&self, map: &str) -> Result<&Map> {
        match self.by_name.get(map) {
            Some(m) => Ok(m),
            None => Err(RuntimeError::NoSuch {
                what: "map",
                name: map.to_owned(),
            }),
        }
    }

    /// Makes the maps that `shared` doesn't have; one of the same name but other sizes is another map.
    pub(crate) fn create(
        defs: BTreeMap<String, aya_obj::Map>,
        sizes: &[(String, u32)],
        shared: Option<&Maps>,
        btf: Option<BorrowedFd<'_>>,
    ) -> Result<Maps> {
        let mut by_name = BTreeMap::new();
        for (name, mut def) in defs {
            let sizes_of = (def.key_size() as usize, def.value_size() as usize);
            if let Some(map) = shared
                .and_then(|s| s.by_name.get(&name))
                .filter(|map| (map.key_size, map.value_size) == sizes_of)
            {
                by_name.insert(name, Arc::clone(map));
                continue;
            }
            if let Some((_, size)) = sizes.iter().find(|(n, _)| *n == name) {
                def.set_max_entries(*size);
            }
            let kind = def.map_type();
            if kind == bpf_map_type::BPF_MAP_TYPE_RINGBUF as u32 {
                def.set_max_entries(ring_bytes(def.max_entries()));
            }
            let (key_size, value_size, max_entries) = (
                def.key_size() as usize,
                def.value_size() as usize,
                def.max_entries(),
            );
            let kernel_name = kernel_name(&name);
            let data = sys::with_memlock(|| MapData::create(def.clone(), &kernel_name, btf).map_err(io_of))
                .map_err(|e| match e.raw_os_error() {
                Some(libc::EPERM) => RuntimeError::NotPrivileged {
                    doing: "make a BPF map",
                },
                _ => failed(&name, "make", e),
            })?;
            by_name.insert(
                name,
                Arc::new(Map {
                    data,
                    kind,
                    key_size,
                    value_size,
                    max_entries,
                }),
            );
        }
        Ok(Maps { by_name })
    }
}

impl Map {
    fn fd(&self) -> i32 {
        self.data.fd().as_fd().as_raw_fd()
    }

    fn per_cpu(&self) -> bool {
        [
            bpf_map_type::BPF_MAP_TYPE_PERCPU_ARRAY,
            bpf_map_type::BPF_MAP_TYPE_PERCPU_HASH,
            bpf_map_type::BPF_MAP_TYPE_LRU_PERCPU_HASH,
        ]
        .iter()
        .any(|k| *k as u32 == self.kind)
    }

    fn stride(&self) -> usize {
        if self.per_cpu() {
            self.value_size.next_multiple_of(8)
        } else {
            self.value_size
        }
    }

    fn value_len(&self) -> Result<usize> {
        Ok(if self.per_cpu() {
            self.stride() * possible_cpus()?
        } else {
            self.value_size
        })
    }

    fn check_key(&self, map: &str, key: &[u8]) -> Result<()> {
        if key.len() == self.key_size {
            return Ok(());
        }
        Err(failed(
            map,
            "use a key of the wrong size in",
            io::Error::from(io::ErrorKind::InvalidInput),
        ))
    }

    fn elem(&self, key: &[u8], value: u64, flags: u64) -> MapElem {
        MapElem {
            map_fd: self.fd() as u32,
            pad: 0,
            key: key.as_ptr() as u64,
            value,
            flags,
        }
    }
}

/// Number of CPUs that this kernel could ever have, which is how many values a per-CPU map holds.
///
/// # Errors
/// [`RuntimeError::Sys`] if sysfs does not say.
pub fn possible_cpus() -> Result<usize> {
    static CPUS: OnceLock<usize> = OnceLock::new();
    if let Some(n) = CPUS.get() {
        return Ok(*n);
    }
    let n = aya::util::nr_cpus().map_err(|(_, source)| RuntimeError::Sys {
        doing: "count the possible CPUs",
        source,
    })?;
    Ok(*CPUS.get_or_init(|| n))
}

/// A name as the kernel takes them: 15 letters, digits, dots and underscores (kernel/bpf/syscall.c,
/// `bpf_obj_name_cpy`).
pub(crate) fn kernel_name(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '_'
            }
        })
        .take(15)
        .collect()
}

fn io_of(e: MapError) -> io::Error {
    match e {
        MapError::CreateError { io_error, .. } | MapError::IoError(io_error) => io_error,
        MapError::SyscallError(e) => e.io_error,
        other => io::Error::other(other.to_string()),
    }
}

fn failed(map: &str, doing: &'static str, source: io::Error) -> RuntimeError {
    RuntimeError::Map {
        map: map.to_owned(),
        doing,
        source,
    }
}

fn missing(map: &str) -> RuntimeError {
    failed(map, "read", io::Error::from(io::ErrorKind::NotFound))
}
