//! The typestate of a run: [`Relocated`] → [`Loaded`] → [`Attached`].
//!
//! In: an object and what to do with its programs. Out: programs in the kernel, at their targets. Each step consumes
//! the one before; dropping `Attached` detaches, dropping `Loaded` unloads. Never falls back from one probe kind to
//! another: kinds need different code, so the caller walks the ladder and the errors tell whether to go on.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use crate::attach::AttachTarget;
use crate::btf;
use crate::error::{AttachCause, AttachError, Result, RuntimeError};
use crate::links::{self, Link};
use crate::maps::Maps;
use crate::object::{self, INSN_SIZE, ObjectSpec, RelocatedProgram};
use crate::program::{LogLevel, ProgramKind, ProgramSpec};
use crate::sys;
use crate::verify::{Request, load_btf, load_program};

/// An object whose programs fit the running kernel and whose maps exist.
#[derive(Debug)]
pub struct Relocated {
    programs: BTreeMap<String, RelocatedProgram>,
    maps: Maps,
    btf: Option<OwnedFd>,
    license: CString,
}

/// Programs in the kernel, at no target yet.
#[derive(Debug)]
pub struct Loaded {
    programs: Vec<LoadedProgram>,
    maps: Maps,
}

#[derive(Debug)]
struct LoadedProgram {
    spec: ProgramSpec,
    fd: Arc<OwnedFd>,
    log: Arc<str>,
}

/// Programs at their targets. Dropping this detaches them.
#[derive(Debug)]
pub struct Attached {
    // Detached before the programs are let go of. With each, whether it is at a return.
    links: Vec<(Link, bool)>,
    loaded: Loaded,
}

/// What the kernel says of a loaded program.
#[derive(Clone, Debug)]
pub struct ProgramStats {
    /// Its name in the object.
    pub name: String,
    /// Its id in the kernel, as `bpftool prog` shows it.
    pub id: u32,
    /// Instructions that the verifier walked through; 0 before 5.16, which doesn't tell.
    pub verified_insns: u32,
    /// Size in bytes after the verifier's rewriting.
    pub translated_bytes: u32,
    /// Size in bytes of the machine code.
    pub jited_bytes: u32,
    /// Runs and nanoseconds, counted only while `kernel.bpf_stats_enabled` is on.
    pub runs: u64,
    /// See `runs`.
    pub run_ns: u64,
    /// How often it was not run because it, or another program, was at work on the same CPU (5.12; 0 before).
    pub missed: u64,
    /// The verifier's log, empty with [`LogLevel::Off`].
    pub log: String,
}

impl Relocated {
    /// Relocates an object and makes its maps.
    ///
    /// # Errors
    /// [`RuntimeError::BadObject`] as [`object::relocate`]; [`RuntimeError::NotPrivileged`],
    /// [`RuntimeError::BtfRefused`] and [`RuntimeError::Map`] from the kernel.
    pub fn new(spec: &ObjectSpec) -> Result<Relocated> {
        let mut parts = object::parts(&spec.elf, &spec.target_btf)?;
        let btf = match &parts.btf {
            Some(bytes) => Some(load_btf(bytes, parts.old_btf.as_deref())?),
            None => None,
        };
        let maps = Maps::create(
            parts.maps,
            &spec.map_sizes,
            spec.shared.as_ref(),
            btf.as_ref().map(|b| b.as_fd()),
        )?;
        for program in parts.programs.values_mut() {
            for map_ref in &program.map_refs {
                let fd = maps.fd(&map_ref.map)?.as_raw_fd();
                let at = map_ref.slot * INSN_SIZE + 4;
                if let Some(imm) = program.insns.get_mut(at..at + 4) {
                    imm.copy_from_slice(&fd.to_le_bytes());
                }
            }
        }
        Ok(Relocated {
            programs: parts.programs,
            maps,
            btf,
            license: parts.license,
        })
    }

    /// Puts the BTF ids of kernel functions where calls have place-holders: each is a place-holder and the id in vmlinux's BTF.
    pub fn set_kernel_functions(&mut self, ids: &[(i32, u32)]) {
        for insn in self
            .programs
            .values_mut()
            .flat_map(|program| program.insns.chunks_exact_mut(INSN_SIZE))
        {
            // BPF_JMP | BPF_CALL, and BPF_PSEUDO_KFUNC_CALL as the source register.
            if insn[0] != 0x85 || insn[1] >> 4 != 2 {
                continue;
            }
            let imm = i32::from_le_bytes([insn[4], insn[5], insn[6], insn[7]]);
            if let Some((_, id)) = ids.iter().find(|(holder, _)| *holder == imm) {
                insn[4..8].copy_from_slice(&id.to_le_bytes());
            }
        }
    }

    /// The maps, to set values before anything runs, or to share with another object.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The programs, with map descriptors in place.
    pub fn programs(&self) -> impl Iterator<Item = &RelocatedProgram> {
        self.programs.values()
    }

    /// Lets the verifier judge and loads what it accepts.
    ///
    /// # Errors
    /// [`RuntimeError::Load`] for the first program that is refused; [`RuntimeError::NoModuleBtf`] for a target in a
    /// module whose BTF can't be had; [`RuntimeError::NoSuch`] for a program the object doesn't have.
    pub fn load(self, specs: &[ProgramSpec], log: LogLevel) -> Result<Loaded> {
        let mut programs: Vec<LoadedProgram> = vec![];
        let mut done: HashMap<(String, ProgramKind, u32, Option<String>), usize> = HashMap::new();
        let mut modules: HashMap<String, OwnedFd> = HashMap::new();
        for spec in specs {
            let Some(program) = self.programs.get(&spec.name) else {
                return Err(RuntimeError::NoSuch {
                    what: "program",
                    name: spec.name.clone(),
                });
            };
            let (btf_id, module) = match &spec.attach {
                AttachTarget::Btf { id, module, .. } => (*id, module.clone()),
                AttachTarget::BtfIds { module, .. } => (0, module.clone()),
                AttachTarget::RawTracepoint(_)
                | AttachTarget::Tracepoint { .. }
                | AttachTarget::Symbol { .. }
                | AttachTarget::Address { .. }
                | AttachTarget::Addresses(_)
                | AttachTarget::File { .. }
                | AttachTarget::FileSites { .. }
                | AttachTarget::Nothing => (0, None),
            };
            if let Some(m) = &module
                && !modules.contains_key(m)
            {
                modules.insert(m.clone(), btf::object_fd(m)?);
            }
            // A return probe runs the same loaded program as an entry probe does, but the pair (name, kind) keeps
            // them apart all the same, since their code differs.
            let key = (spec.name.clone(), spec.kind.clone(), btf_id, module.clone());
            if let Some(LoadedProgram { fd, log, .. }) = done.get(&key).and_then(|i| programs.get(*i)) {
                let (fd, log) = (Arc::clone(fd), Arc::clone(log));
                programs.push(LoadedProgram {
                    spec: spec.clone(),
                    fd,
                    log,
                });
                continue;
            }
            let request = Request {
                name: &spec.name,
                kind_name: spec.kind.name(),
                prog_type: spec.kind.prog_type(),
                attach_type: spec.kind.attach_type(),
                btf_id,
                btf_obj: module.as_ref().and_then(|m| modules.get(m)),
                insns: &program.insns,
                license: &self.license,
                btf: self.btf.as_ref(),
                func_info: &program.func_info,
                line_info: &program.line_info,
            };
            let (fd, text) = load_program(&request, log)?;
            done.insert(key, programs.len());
            programs.push(LoadedProgram {
                spec: spec.clone(),
                fd: Arc::new(fd),
                log: text.into(),
            });
        }
        Ok(Loaded {
            programs,
            maps: self.maps,
        })
    }
}

impl Loaded {
    /// The maps.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// What the kernel says of each program, in the order of the specs, shared ones once.
    ///
    /// # Errors
    /// [`RuntimeError::Sys`] if the kernel doesn't say.
    pub fn stats(&self) -> Result<Vec<ProgramStats>> {
        let mut out: Vec<ProgramStats> = vec![];
        for p in &self.programs {
            let info = sys::prog_info(p.fd.as_fd()).map_err(|source| RuntimeError::Sys {
                doing: "ask about a loaded program",
                source,
            })?;
            if out.iter().any(|s| s.id == info.id) {
                continue;
            }
            out.push(ProgramStats {
                name: p.spec.name.clone(),
                id: info.id,
                verified_insns: info.verified_insns,
                translated_bytes: info.xlated_prog_len,
                jited_bytes: info.jited_prog_len,
                runs: info.run_cnt,
                run_ns: info.run_time_ns,
                missed: info.recursion_misses,
                log: p.log.to_string(),
            });
        }
        Ok(out)
    }

    /// Runs a raw tracepoint program once, here and now, with these arguments; its return value (`r0`).
    ///
    /// # Errors
    /// [`RuntimeError::NoSuch`] for an unknown program, [`RuntimeError::Sys`] if the kernel refuses (only raw
    /// tracepoint programs can be run like this).
    pub fn test_run(&self, program: &str, args: &[u64]) -> Result<u32> {
        let Some(p) = self.programs.iter().find(|p| p.spec.name == program) else {
            return Err(RuntimeError::NoSuch {
                what: "program",
                name: program.to_owned(),
            });
        };
        sys::test_run(p.fd.as_fd(), args).map_err(|source| RuntimeError::Sys {
            doing: "test-run a program",
            source,
        })
    }

    /// Attaches every program, those at returns first.
    ///
    /// # Errors
    /// [`RuntimeError::Attach`] for the first that can't be; those before it are detached again.
    pub fn attach(self) -> Result<Attached> {
        let mut links = Vec::with_capacity(self.programs.len());
        for i in self.order() {
            let at_return = self.programs[i].spec.kind.at_return();
            links.extend(self.programs[i].attach()?.map(|link| (link, at_return)));
        }
        Ok(Attached { links, loaded: self })
    }

    /// Attaches every program wherever that can be done, those at returns first: for globs, where one bad function mustn't
    /// spoil the rest. A link of many places that is refused is tried again in halves, until it is known which places are to
    /// blame. `progress` is called with how many places were tried and how many there are.
    ///
    /// # Errors
    /// [`RuntimeError::Attach`] where the kernel doesn't have the kind at all.
    pub fn attach_lenient(self, mut progress: impl FnMut(usize, usize)) -> Result<(Attached, Vec<Failed>)> {
        let total = self.programs.iter().map(|p| p.spec.attach.places()).sum();
        let mut links = vec![];
        let mut failed = vec![];
        let mut tried = 0;
        for i in self.order() {
            let p = &self.programs[i];
            let mut parts = vec![p.spec.attach.clone()];
            while let Some(part) = parts.pop() {
                let error = match p.attach_to(&part) {
                    Ok(link) => {
                        links.extend(link.map(|link| (link, p.spec.kind.at_return())));
                        tried += part.places();
                        progress(tried, total);
                        continue;
                    }
                    Err(e) => e,
                };
                match error.cause {
                    // What no part of it can change.
                    AttachCause::NotPrivileged | AttachCause::KindRefused | AttachCause::KindUnknown => {
                        return Err(error.into());
                    }
                    AttachCause::NoSuchTarget
                    | AttachCause::Ambiguous
                    | AttachCause::NotTraceable
                    | AttachCause::Busy
                    | AttachCause::Other => {}
                }
                match part.halves() {
                    Some((first, second)) => parts.extend([second, first]),
                    None => {
                        tried += 1;
                        failed.push(Failed {
                            spec: i,
                            at: part.sites().first().map(|site| site.at),
                            error,
                        });
                        progress(tried, total);
                    }
                }
            }
        }
        Ok((Attached { links, loaded: self }, failed))
    }

    /// The programs in the order in which they are attached.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.programs.len()).collect();
        order.sort_by_key(|i| !self.programs[*i].spec.kind.follows());
        order
    }
}

/// Calls that probes have missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Because another probe was at work on that CPU; of sessions those for whose return there was no room.
    pub entries: u64,
    /// Because more calls were under way than there was room for.
    pub returns: u64,
}

/// A place where a program couldn't be attached.
#[derive(Debug)]
pub struct Failed {
    /// The index of the spec.
    pub spec: usize,
    /// Which of its places, where it has many.
    pub at: Option<u64>,
    /// Why.
    pub error: AttachError,
}

impl LoadedProgram {
    fn attach(&self) -> std::result::Result<Option<Link>, AttachError> {
        self.attach_to(&self.spec.attach)
    }

    fn attach_to(&self, attach: &AttachTarget) -> std::result::Result<Option<Link>, AttachError> {
        let ProgramSpec {
            name,
            kind,
            attach: _,
            cookie,
        } = &self.spec;
        links::attach(&self.fd, kind, attach, *cookie).map_err(|r| AttachError {
            program: name.clone(),
            kind: kind.name(),
            target: attach.to_string(),
            cause: r.cause,
            source: r.source,
        })
    }
}

impl Attached {
    /// The maps.
    pub fn maps(&self) -> &Maps {
        &self.loaded.maps
    }

    /// See [`Maps::percpu_u64`].
    ///
    /// # Errors
    /// As there.
    pub fn percpu_u64(&self, map: &str, index: u32) -> Result<Vec<u64>> {
        self.loaded.maps.percpu_u64(map, index)
    }

    /// See [`Loaded::stats`].
    ///
    /// # Errors
    /// As there.
    pub fn stats(&self) -> Result<Vec<ProgramStats>> {
        self.loaded.stats()
    }

    /// How many calls the probes have missed so far, which the kernel tells of kprobes since 6.7, and of return probes with their own
    /// room for calls ([`ProgramKind::KretprobeWith`]) before that too.
    pub fn missed(&self) -> Missed {
        let mut missed = Missed::default();
        for (link, at_return) in &self.links {
            *if *at_return {
                &mut missed.returns
            } else {
                &mut missed.entries
            } += link.missed();
        }
        missed
    }

    /// Number of links: programs at single targets, and multi links.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Detaches one after the other, entries before returns, and tells how far it is: on 6.1 to 6.18 each fentry takes an RCU grace period,
    /// so that some hundreds take many seconds. The maps, with the last events, stay readable through the `Loaded`
    /// that comes back.
    pub fn detach_all(self, mut progress: impl FnMut(usize, usize)) -> Loaded {
        let Attached { links, loaded } = self;
        let total = links.len();
        for (i, link) in links.into_iter().rev().enumerate() {
            drop(link);
            progress(i + 1, total);
        }
        loaded
    }
}
