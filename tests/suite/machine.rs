//! A machine that runs BPF as the kernel does (Documentation/bpf/standardization/instruction-set.rst), in an address space of
//! its own: nothing in it is memory of this process, so a wild pointer is just an address that nothing is at. The helpers
//! are those that generated code calls. It is written from that document and shares no code with the compiler.

use std::collections::BTreeMap;

use ksnoop_jit::ir::Helper;

/// A piece of the address space.
pub(crate) struct Region {
    pub(crate) base: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Where the program's own things are.
const STACK: u64 = 0xffff_c900_0000_0000;
const CONTEXT: u64 = 0xffff_c900_0001_0000;
const COUNTS: u64 = 0xffff_c900_0002_0000;
const RECORD: u64 = 0xffff_c900_0003_0000;
/// What stands for the maps in 64-bit immediate loads.
pub(crate) const EVENTS_MAP: u64 = 0x1001;
pub(crate) const COUNTS_MAP: u64 = 0x1002;
/// What stands for the maps of an aggregation: this and its index in the artifact.
pub(crate) const FIRST_MAP: u64 = 0x2000;
/// Where the values of those maps are.
const VALUES: u64 = 0xffff_c910_0000_0000;
/// Where the tasks are; nothing can be read of them.
const TASKS: u64 = 0xffff_8881_0000_0000;
/// The word that a session keeps for a call.
const CALL_WORD: u64 = 0xffff_c900_0004_0000;
/// As many CPUs as moments tell of.
pub(crate) const CPUS: usize = 64;
/// What record memory holds before the program writes to it: a byte that shows in a comparison.
const STALE: u8 = 0xa5;
const EFAULT: u64 = -14i64 as u64;
const ENOENT: u64 = -2i64 as u64;
const E2BIG: u64 = -7i64 as u64;
const EEXIST: u64 = -17i64 as u64;
/// `BPF_NOEXIST`.
const NOEXIST: u64 = 1;

/// A map that is kept from run to run. A per-CPU one has a value for each CPU.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) key_size: usize,
    pub(crate) value_size: usize,
    pub(crate) max_entries: usize,
    pub(crate) per_cpu: bool,
    /// Keys come and go; else they are numbers from 0 on, and all are there.
    pub(crate) hash: bool,
    /// By key, where the value of CPU 0 is in `bytes`; those of the others follow.
    pub(crate) entries: BTreeMap<Vec<u8>, usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Map {
    fn cpus(&self) -> usize {
        if self.per_cpu { CPUS } else { 1 }
    }

    /// The value's place on that CPU.
    fn find(&self, key: &[u8], cpu: usize) -> Option<usize> {
        let at = if self.hash {
            *self.entries.get(key)?
        } else {
            let index = number(key) as usize;
            (index < self.max_entries).then_some(index * self.cpus() * self.value_size)?
        };
        Some(at + if self.per_cpu { cpu * self.value_size } else { 0 })
    }
}

/// What helpers say about the moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) pid_tgid: u64,
    pub(crate) uid_gid: u64,
    pub(crate) cpu: u32,
    pub(crate) ktime: u64,
    pub(crate) comm: [u8; 16],
}

/// The machine.
pub(crate) struct Machine {
    pub(crate) memory: Vec<Region>,
    own: Vec<Region>,
    moment: Moment,
    /// The records that were handed over.
    pub(crate) records: Vec<Vec<u8>>,
    reserved: bool,
    /// A plain load from where nothing is gives 0, as with a pointer that the verifier trusts; else it ends the test.
    pub(crate) forgiving: bool,
    /// What the program was attached with.
    pub(crate) cookie: u64,
    /// What a session's program is told of where it runs: whether at the return, and the call's own word.
    pub(crate) returning: bool,
    pub(crate) call_word: u64,
    /// How many words the context holds before what the function returned.
    pub(crate) arguments: u64,
    /// Where the context is; a trampoline's lies in the frame of its call.
    pub(crate) context: u64,
    /// The maps of an aggregation, or of what entries keep for returns.
    pub(crate) maps: Vec<Map>,
    /// Maps of which each has one value: what stands for the map, and where the value is.
    pub(crate) values: Vec<(u64, u64)>,
    /// How many instructions the last run executed.
    pub(crate) executed: u64,
}

impl Machine {
    pub(crate) fn new(memory: Vec<Region>, moment: Moment) -> Machine {
        Machine {
            memory,
            own: Vec::new(),
            moment,
            records: Vec::new(),
            reserved: false,
            forgiving: false,
            cookie: 0,
            returning: false,
            call_word: 0,
            arguments: 0,
            context: CONTEXT,
            maps: Vec::new(),
            values: Vec::new(),
            executed: 0,
        }
    }

    /// Another moment, on maybe another CPU.
    pub(crate) fn at(&mut self, moment: Moment) {
        self.moment = moment;
    }

    /// Adds a map, whose number in the program is [`FIRST_MAP`] and how many there were before.
    pub(crate) fn add_map(&mut self, mut map: Map) {
        if !map.hash {
            map.bytes = vec![0; map.max_entries * map.cpus() * map.value_size];
        }
        self.maps.push(map);
    }

    /// Where the memory of a map begins.
    fn map_base(index: usize) -> u64 {
        VALUES + ((index as u64) << 32)
    }

    /// The bytes at an address, if all of them are there.
    pub(crate) fn bytes(&self, address: u64, size: usize) -> Option<&[u8]> {
        let plain = self
            .own
            .iter()
            .chain(&self.memory)
            .map(|region| (region.base, &region.bytes));
        let maps = self
            .maps
            .iter()
            .enumerate()
            .map(|(index, map)| (Machine::map_base(index), &map.bytes));
        plain.chain(maps).find_map(|(base, bytes)| {
            let at = usize::try_from(address.checked_sub(base)?).ok()?;
            bytes.get(at..at.checked_add(size)?)
        })
    }

    /// How many predicates the last run says have faulted.
    pub(crate) fn faults(&self) -> u64 {
        self.bytes(COUNTS + 8, 8).map_or(0, number)
    }

    fn own_mut(&mut self, address: u64, size: usize) -> Result<&mut [u8], String> {
        let plain = self.own.iter_mut().map(|region| (region.base, &mut region.bytes));
        let maps = self
            .maps
            .iter_mut()
            .enumerate()
            .map(|(index, map)| (Machine::map_base(index), &mut map.bytes));
        plain
            .chain(maps)
            .find_map(|(base, bytes)| {
                let at = usize::try_from(address.checked_sub(base)?).ok()?;
                bytes.get_mut(at..at.checked_add(size)?)
            })
            .ok_or_else(|| format!("a store of {size} bytes at {address:#x}, which is not the program's"))
    }

    /// Runs a program to its end.
    pub(crate) fn run(&mut self, code: &[u8], context: &[u8]) -> Result<u64, String> {
        self.own = vec![
            region(STACK, &[STALE; 512]),
            region(self.context, context),
            region(COUNTS, &[0; 16]),
            region(CALL_WORD, &self.call_word.to_le_bytes()),
        ];
        self.records.clear();
        self.reserved = false;
        self.executed = 0;
        let mut callers: Vec<(usize, [u64; 5])> = Vec::new();
        let code: Vec<Insn> = code.chunks_exact(8).map(Insn::new).collect();
        let mut r = [0u64; 11];
        r[1] = self.context;
        r[10] = STACK + 512;
        let mut pc = 0usize;
        for _ in 0..100_000 {
            let insn = *code.get(pc).ok_or("control left the program")?;
            pc += 1;
            self.executed += 1;
            let (dst, src) = (insn.dst, insn.src);
            match insn.code & 7 {
                // BPF_LD: the only one is the 64-bit immediate.
                0 => {
                    let high = code.get(pc).ok_or("half an instruction")?.imm;
                    r[dst] = u64::from(insn.imm as u32) | u64::from(high as u32) << 32;
                    pc += 1;
                }
                1 => r[dst] = self.load(insn, r[src].wrapping_add(insn.off as u64))?,
                2 | 3 => {
                    let value = if insn.code & 7 == 2 {
                        insn.imm as u64
                    } else {
                        r[src]
                    };
                    let size = insn.size();
                    // BPF_ATOMIC, of which only the addition without a result is used.
                    if insn.code & 0xe7 == 0xc3 && insn.imm == 0 && size >= 4 {
                        let to = self.own_mut(r[dst].wrapping_add(insn.off as u64), size)?;
                        let sum = number(to).wrapping_add(value);
                        to.copy_from_slice(&sum.to_le_bytes()[..size]);
                        continue;
                    }
                    if insn.code & 0xe0 != 0x60 {
                        return Err(format!("a store of mode {:#x}", insn.code & 0xe0));
                    }
                    let to = self.own_mut(r[dst].wrapping_add(insn.off as u64), size)?;
                    to.copy_from_slice(&value.to_le_bytes()[..size]);
                }
                class @ (4 | 7) => r[dst] = alu(insn, class == 7, r[dst], insn.operand(&r))?,
                class @ (5 | 6) => match insn.code >> 4 {
                    0 if class == 5 => pc = jump(pc, i64::from(insn.off)),
                    0 => pc = jump(pc, insn.imm),
                    // BPF_PSEUDO_CALL: a function of the program's own, which has a stack frame of its own.
                    8 if src == 1 => {
                        callers.push((pc, [r[6], r[7], r[8], r[9], r[10]]));
                        r[10] -= 512;
                        self.own.push(region(r[10] - 512, &[STALE; 512]));
                        pc = jump(pc, insn.imm);
                    }
                    8 => {
                        r[0] = self.helper(insn.imm as i32, [r[1], r[2], r[3], r[4], r[5]])?;
                        // The kernel's calling convention: nobody may rely on these.
                        for (n, register) in r.iter_mut().enumerate().skip(1).take(5) {
                            *register = 0xdead_0000_0000_0000 | n as u64;
                        }
                    }
                    9 if !callers.is_empty() => {
                        let (back, kept) = callers.pop().ok_or("nobody called")?;
                        self.own.retain(|region| region.base != r[10] - 512);
                        pc = back;
                        r[6..].copy_from_slice(&kept);
                    }
                    9 => {
                        if self.reserved {
                            return Err("the program keeps a reserved record".to_string());
                        }
                        self.call_word = self.bytes(CALL_WORD, 8).map_or(0, number);
                        return Ok(r[0]);
                    }
                    _ => {
                        if taken(insn, class == 5, r[dst], insn.operand(&r))? {
                            pc = jump(pc, i64::from(insn.off));
                        }
                    }
                },
                _ => unreachable!("three bits"),
            }
        }
        Err("the program does not end".to_string())
    }

    fn load(&self, insn: Insn, address: u64) -> Result<u64, String> {
        let size = insn.size();
        let value = match self.bytes(address, size) {
            Some(bytes) => number(bytes),
            None if self.forgiving && address >= 0xff00_0000_0000_0000 => 0,
            None => {
                return Err(format!(
                    "a load of {size} bytes at {address:#x}, where nothing is"
                ));
            }
        };
        match insn.code & 0xe0 {
            0x60 => Ok(value),
            0x80 => {
                let unused = 64 - 8 * size as u32;
                Ok((((value << unused) as i64) >> unused) as u64)
            }
            mode => Err(format!("a load of mode {mode:#x}")),
        }
    }

    /// The helpers, by their numbers in include/uapi/linux/bpf.h.
    fn helper(&mut self, helper: i32, a: [u64; 5]) -> Result<u64, String> {
        match helper {
            1..=3 if a[0] >= FIRST_MAP => self.map_helper(helper, a),
            // map_lookup_elem
            1 => {
                if let Some((_, value)) = self.values.iter().find(|(map, _)| *map == a[0]) {
                    return Ok(*value);
                }
                let key = number(self.bytes(a[1], 4).ok_or("a key that is nowhere")?);
                match (a[0], key) {
                    (COUNTS_MAP, 0 | 1) => Ok(COUNTS + 8 * key),
                    (COUNTS_MAP, _) => Ok(0),
                    _ => Err(format!("a look-up in map {:#x}", a[0])),
                }
            }
            5 => Ok(self.moment.ktime),
            8 => Ok(u64::from(self.moment.cpu)),
            14 => Ok(self.moment.pid_tgid),
            15 => Ok(self.moment.uid_gid),
            // get_current_comm
            16 => {
                let size = (a[1] as usize).min(16);
                let comm = self.moment.comm;
                self.own_mut(a[0], size)?.copy_from_slice(&comm[..size]);
                Ok(0)
            }
            // probe_read_user, probe_read_kernel
            112 | 113 => self.probe(helper == 113, a[0], a[1] as usize, a[2]),
            // probe_read_user_str, probe_read_kernel_str
            114 | 115 => self.probe_str(helper == 115, a[0], a[1] as usize, a[2]),
            // ringbuf_reserve
            131 => {
                if self.reserved || a[0] != EVENTS_MAP || a[2] != 0 {
                    return Err("a record can't be reserved so".to_string());
                }
                self.reserved = true;
                self.own.push(region(RECORD, &vec![STALE; a[1] as usize]));
                Ok(RECORD)
            }
            // ringbuf_submit, ringbuf_discard
            132 | 133 => {
                if !self.reserved || a[0] != RECORD {
                    return Err("a record that was not reserved".to_string());
                }
                self.reserved = false;
                let record = self.own.pop().ok_or("no record")?;
                if helper == 132 {
                    self.records.push(record.bytes);
                }
                Ok(0)
            }
            // get_current_task
            35 => Ok(TASKS + 0x4000 * (self.moment.pid_tgid & 0xffff_ffff)),
            // get_attach_cookie
            174 => Ok(self.cookie),
            // get_func_arg, get_func_ret
            183 | 184 => {
                let (word, to) = if helper == 183 {
                    (a[1], a[2])
                } else {
                    (self.arguments, a[1])
                };
                let value = self.bytes(a[0] + 8 * word, 8).ok_or("no such argument")?.to_vec();
                self.own_mut(to, 8)?.copy_from_slice(&value);
                Ok(0)
            }
            // Of a `bool` only the low byte is defined.
            _ if helper == Helper::SessionIsReturn.number() => {
                Ok(0xdead_beef_cafe_ff00 | u64::from(self.returning))
            }
            _ if helper == Helper::SessionCookie.number() => Ok(CALL_WORD),
            _ => Err(format!("helper {helper} is not known here")),
        }
    }

    /// map_lookup_elem, map_update_elem, map_delete_elem.
    fn map_helper(&mut self, helper: i32, a: [u64; 5]) -> Result<u64, String> {
        let index = (a[0] - FIRST_MAP) as usize;
        let cpu = self.moment.cpu as usize;
        let map = self.maps.get(index).ok_or("a map that is not there")?;
        let key = self
            .bytes(a[1], map.key_size)
            .ok_or("a key that is nowhere")?
            .to_vec();
        let found = map.find(&key, cpu);
        match helper {
            1 => Ok(found.map_or(0, |at| Machine::map_base(index) + at as u64)),
            2 if a[3] == NOEXIST && found.is_some() => Ok(EEXIST),
            2 => {
                let (size, cpus) = (map.value_size, map.cpus());
                let value = self.bytes(a[2], size).ok_or("a value that is nowhere")?.to_vec();
                let map = &mut self.maps[index];
                let at = match found {
                    Some(at) => at,
                    None if !map.hash || map.entries.len() >= map.max_entries => return Ok(E2BIG),
                    None => {
                        let at = map.bytes.len();
                        // What the other CPUs have is zero (kernel/bpf/hashtab.c, `pcpu_init_value`).
                        map.bytes.resize(at + cpus * size, 0);
                        map.entries.insert(key, at);
                        at + if map.per_cpu { cpu * size } else { 0 }
                    }
                };
                map.bytes[at..at + size].copy_from_slice(&value);
                Ok(0)
            }
            _ => match self.maps[index].entries.remove(&key) {
                Some(_) => Ok(0),
                None => Ok(ENOENT),
            },
        }
    }

    /// What a fault leaves behind is zeros (kernel/trace/bpf_trace.c, `bpf_probe_read_kernel_common`).
    fn probe(&mut self, kernel: bool, to: u64, size: usize, from: u64) -> Result<u64, String> {
        let found = match self.bytes(from, size) {
            Some(bytes) if is_kernel(from) == kernel => Some(bytes.to_vec()),
            Some(_) | None => None,
        };
        let target = self.own_mut(to, size)?;
        match found {
            Some(bytes) => {
                target.copy_from_slice(&bytes);
                Ok(0)
            }
            None => {
                target.fill(0);
                Ok(EFAULT)
            }
        }
    }

    /// Gives the length with the NUL, which is always written.
    fn probe_str(&mut self, kernel: bool, to: u64, size: usize, from: u64) -> Result<u64, String> {
        let mut text = Vec::new();
        while text.len() < size {
            let at = from.wrapping_add(text.len() as u64);
            match self.bytes(at, 1) {
                Some(byte) if is_kernel(at) == kernel => text.push(byte[0]),
                Some(_) | None => {
                    self.own_mut(to, size)?.fill(0);
                    return Ok(EFAULT);
                }
            }
            if text.last() == Some(&0) {
                break;
            }
        }
        if let Some(last) = text.last_mut() {
            *last = 0;
        }
        self.own_mut(to, text.len())?.copy_from_slice(&text);
        Ok(text.len() as u64)
    }
}

fn is_kernel(address: u64) -> bool {
    address >> 63 == 1
}

fn region(base: u64, bytes: &[u8]) -> Region {
    Region {
        base,
        bytes: bytes.to_vec(),
    }
}

/// Little-endian bytes as a number.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn jump(pc: usize, by: i64) -> usize {
    (pc as i64 + by) as usize
}

/// An instruction, its immediate and offset sign-extended.
#[derive(Clone, Copy)]
struct Insn {
    code: u8,
    dst: usize,
    src: usize,
    off: i16,
    imm: i64,
}

impl Insn {
    fn new(bytes: &[u8]) -> Insn {
        Insn {
            code: bytes[0],
            dst: usize::from(bytes[1] & 15),
            src: usize::from(bytes[1] >> 4),
            off: i16::from_le_bytes([bytes[2], bytes[3]]),
            imm: i64::from(i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])),
        }
    }

    /// Bytes of a load or store.
    fn size(self) -> usize {
        match self.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }

    fn operand(self, r: &[u64; 11]) -> u64 {
        if self.code & 8 == 0 {
            self.imm as u64
        } else {
            r[self.src]
        }
    }
}

fn alu(insn: Insn, wide: bool, a: u64, b: u64) -> Result<u64, String> {
    let bits: u32 = if wide { 64 } else { 32 };
    let cut = |value: u64| if wide { value } else { u64::from(value as u32) };
    let signed = |value: u64| {
        if wide {
            value as i64
        } else {
            i64::from(value as i32)
        }
    };
    let (x, y) = (cut(a), cut(b));
    let shift = (b as u32) & (bits - 1);
    let value = match (insn.code >> 4, insn.off) {
        (0, 0) => x.wrapping_add(y),
        (1, 0) => x.wrapping_sub(y),
        (2, 0) => x.wrapping_mul(y),
        (3, 0) => x.checked_div(y).unwrap_or(0),
        (4, 0) => x | y,
        (5, 0) => x & y,
        (6, 0) => x << shift,
        (7, 0) => x >> shift,
        (8, 0) => x.wrapping_neg(),
        (9, 0) => x.checked_rem(y).unwrap_or(x),
        (10, 0) => x ^ y,
        (11, 0) => y,
        (12, 0) => (signed(a) >> shift) as u64,
        (13, 0) => {
            let swap = wide || insn.code & 8 != 0;
            match (insn.imm, swap) {
                (16, true) => u64::from((a as u16).swap_bytes()),
                (32, true) => u64::from((a as u32).swap_bytes()),
                (64, true) => a.swap_bytes(),
                (16, false) => u64::from(a as u16),
                (32, false) => u64::from(a as u32),
                (64, false) => a,
                (imm, _) => return Err(format!("a byte swap of {imm} bits")),
            }
        }
        (op, off) => return Err(format!("arithmetic {op:#x} with offset {off}")),
    };
    // A byte swap is of its own width, whatever its class.
    Ok(if insn.code >> 4 == 13 { value } else { cut(value) })
}

fn taken(insn: Insn, wide: bool, a: u64, b: u64) -> Result<bool, String> {
    let ((x, y), (sx, sy)) = if wide {
        ((a, b), (a as i64, b as i64))
    } else {
        (
            (u64::from(a as u32), u64::from(b as u32)),
            (i64::from(a as i32), i64::from(b as i32)),
        )
    };
    Ok(match insn.code >> 4 {
        1 => x == y,
        2 => x > y,
        3 => x >= y,
        4 => x & y != 0,
        5 => x != y,
        6 => sx > sy,
        7 => sx >= sy,
        10 => x < y,
        11 => x <= y,
        12 => sx < sy,
        13 => sx <= sy,
        op => return Err(format!("a jump {op:#x}")),
    })
}
