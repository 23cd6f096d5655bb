//! The attach ladder: a query is compiled for the best way to hook its functions, loaded and attached; what the kernel refuses
//! is tried in the next way. In: what was asked for. Out: running programs and the layouts of their records. Never
//! guesses what a kernel can do: each rung is tried.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use ksnoop_jit::compile::{self, Artifact, CompileError, Job};
use ksnoop_jit::ctype::CType;
use ksnoop_jit::lower::Target;
use ksnoop_jit::typed::{self, Probe};
use ksnoop_jit::types::{Type, Types};
use ksnoop_jit::wire::{AggregateLayout, Format, RecordLayout, ValueLayout};
use ksnoop_jit_runtime as runtime;
use runtime::{Attached, Loaded, LogLevel, Relocated};

use super::explain::{explanation, no_trampoline};
use super::number::number;
use super::rungs::{self, Kernel, Rung};
use super::targets::{Asked, Family, Place};
use super::user;
use crate::cli::Cli;
use crate::{Failure, complain};

/// One query in the kernel.
pub(super) struct Running {
    pub(super) attached: Vec<Attached>,
    pub(super) layouts: Vec<RecordLayout>,
    pub(super) aggregates: Vec<AggregateLayout>,
    /// The numbers of the events that are aggregated, by which maps are called.
    pub(super) aggregated: Vec<u32>,
    /// By what, each once, and at how many functions.
    pub(super) how: Vec<(&'static str, usize)>,
    /// How long attaching took.
    pub(super) took: Duration,
}

impl Running {
    /// Whether there may be addresses in what is shown that have symbols: pointers to functions, in structs too.
    pub(super) fn shows_addresses(&self, types: &Types) -> bool {
        let mut shown = self.layouts.iter().flat_map(|layout| &layout.items);
        shown.any(|item| match item.value {
            ValueLayout::Pointee { .. } | ValueLayout::Bytes { .. } => true,
            ValueLayout::Scalar => {
                item.format == Some(Format::Symbol)
                    || matches!(item.ty, CType::Btf(id) if matches!(types.get_stripped(id), Type::Ptr(_)))
            }
            ValueLayout::String { .. }
            | ValueLayout::Name
            | ValueLayout::Buffer { .. }
            | ValueLayout::Stack { .. } => false,
        })
    }

    /// Whether there are stacks of processes in what it tells.
    pub(super) fn has_user_stacks(&self) -> bool {
        let shown = self.layouts.iter().flat_map(|layout| &layout.items);
        let keys = self.aggregates.iter().flat_map(|layout| &layout.keys);
        shown
            .chain(keys)
            .any(|item| matches!(item.value, ValueLayout::Stack { user: true, .. }))
    }
}

/// What all queries of a run have in common, and what earlier ones have found out.
pub(super) struct Ladder<'a> {
    cli: &'a Cli,
    types: &'a Types,
    target: &'a Target,
    queries: usize,
    kernel: Kernel<'a>,
    found: Found,
}

/// What earlier queries have left for later ones.
#[derive(Default)]
pub(super) struct Found {
    /// The maps of what has been attached, which the others use too.
    shared: Option<runtime::Maps>,
    next_event: u32,
    /// Rungs that this kernel doesn't have, and why.
    missing: BTreeMap<Rung, String>,
}

/// What came of trying a rung.
enum Tried {
    /// The verifier takes it; nothing more was asked for.
    Checked,
    /// It runs.
    Attached(Box<Made>),
    /// Not so, and why: other functions may fare better.
    Refused(String),
    /// The kernel does not have it, and why.
    Absent(String),
}

/// What runs after a rung was climbed.
struct Made {
    attached: Attached,
    artifact: Artifact,
    how: &'static str,
    /// Places where it could not be attached, by index, and why.
    failed: Vec<(usize, String)>,
}

impl<'a> Ladder<'a> {
    pub(super) fn new(
        cli: &'a Cli,
        types: &'a Types,
        target: &'a Target,
        queries: usize,
        found: Found,
    ) -> Ladder<'a> {
        Ladder {
            cli,
            types,
            target,
            queries,
            kernel: Kernel::new(types, cli),
            found,
        }
    }

    /// What is left for later.
    pub(super) fn found(self) -> Found {
        self.found
    }

    /// The maps of everything that has been attached.
    pub(super) fn maps(&self) -> Option<&runtime::Maps> {
        self.found.shared.as_ref()
    }

    /// Attaches the programs that keep the set of followed processes.
    pub(super) fn follow(&mut self) -> Result<Attached, Failure> {
        let artifact = compile::follow(self.types)?;
        let specs = rungs::following(&artifact);
        let attached = self.load(&artifact, &specs)?.attach()?;
        self.share(attached.maps());
        Ok(attached)
    }

    /// What comes later uses these maps too.
    fn share(&mut self, maps: &runtime::Maps) {
        match &mut self.found.shared {
            Some(all) => all.extend(maps),
            None => self.found.shared = Some(maps.clone()),
        }
    }

    /// Compiles, loads and attaches one query in the first way that works. `None`: only checked.
    pub(super) fn attach(&mut self, query: usize, asked: &Asked) -> Result<Option<Running>, Failure> {
        let started = Instant::now();
        let mut running = Running {
            attached: Vec::new(),
            layouts: Vec::new(),
            aggregates: Vec::new(),
            aggregated: Vec::new(),
            how: Vec::new(),
            took: Duration::ZERO,
        };
        let set = asked.places() > 1;
        let keepers = asked.families.len() as u32;
        let mut failed: Vec<(String, String)> = Vec::new();
        for family in &asked.families {
            let job = Job {
                first_event: 0,
                query,
                queries: self.queries,
                keepers,
                ..Job::alone(compile::Way::Trampoline)
            };
            // A USDT probe's places are told apart by their recipes, and only then by what is probed.
            if let Probe::Usdt(usdt) = &family.query.probe
                && set
            {
                if let Err(refused) = self.climb(job, family, &mut running)? {
                    failed.push((usdt.func.name.clone(), refused.join("; ")));
                }
            } else if set {
                self.many(job, family, &mut running, &mut failed)?;
            } else {
                self.alone(job, family, &mut running)?;
            }
        }
        if self.cli.check {
            return Ok(None);
        }
        if running.attached.is_empty() {
            let why = failed.first().map_or("", |(_, why)| why);
            return Err(anyhow!("can't trace any of `{}`: {why}", asked.name).into());
        }
        if !failed.is_empty() {
            complain(&format!(
                "{}: {} can't be traced",
                asked.name,
                number(failed.len() as u64, "function")
            ));
            for (name, why) in failed.iter().filter(|_| self.cli.verbose > 0) {
                complain(&format!("  {name}: {why}"));
            }
        }
        running.took = started.elapsed();
        Ok(Some(running))
    }

    /// A single function or tracepoint.
    fn alone(&mut self, job: Job, family: &Family, running: &mut Running) -> Result<(), Failure> {
        let name = &family.query.probe.func().name;
        match self.climb(job, family, running)? {
            Ok(refused) => {
                for why in refused.iter().filter(|_| self.cli.verbose > 0) {
                    complain(&format!("{name}: not by {why}"));
                }
                Ok(())
            }
            Err(refused) => {
                let why = self
                    .explanation(family)
                    .map_or(String::new(), |why| format!("\n{why}"));
                match refused.as_slice() {
                    [only] => Err(anyhow!("can't trace `{name}`: {only}{why}").into()),
                    all => Err(anyhow!("can't trace `{name}`:\n  {}{why}", all.join("\n  ")).into()),
                }
            }
        }
    }

    /// Tries the rungs for one function, best first. What comes back are the refusals, after a success or without one.
    fn climb(
        &mut self,
        job: Job,
        family: &Family,
        running: &mut Running,
    ) -> Result<Result<Vec<String>, Vec<String>>, Failure> {
        let mut refused: Vec<String> = Vec::new();
        for rung in rungs::for_one(self.cli, &family.query) {
            if rung.by_type()
                && let Probe::Function(_) = &family.query.probe
                && let Some(why) = family
                    .places
                    .iter()
                    .find_map(|place| no_trampoline(place, self.types, self.cli.force))
            {
                refused.push(format!("{}: {why}", rung.name()));
                continue;
            }
            match self.attempt(Job { members: None, ..job }, family, rung)? {
                Tried::Checked => return Ok(Ok(refused)),
                Tried::Attached(made) => {
                    self.keep(*made, family, running);
                    return Ok(Ok(refused));
                }
                Tried::Refused(why) | Tried::Absent(why) => refused.push(why),
            }
        }
        Ok(Err(refused))
    }

    /// Many functions: with one program for all of them where the kernel lets that, else one by one.
    fn many(
        &mut self,
        job: Job,
        family: &Family,
        running: &mut Running,
        failed: &mut Vec<(String, String)>,
    ) -> Result<(), Failure> {
        let name_of = |index: usize| family.places.get(index).map_or("", |place| &place.shown);
        let members = Some(family.places.len() as u32);
        for rung in rungs::for_many(self.cli, &family.query) {
            let unfit = |place: &Place| no_trampoline(place, self.types, self.cli.force).is_some();
            if self.found.missing.contains_key(&rung) || (rung.by_type() && family.places.iter().any(unfit)) {
                continue;
            }
            match self.attempt(Job { members, ..job }, family, rung)? {
                Tried::Checked => return Ok(()),
                Tried::Attached(mut made) => {
                    for (index, why) in std::mem::take(&mut made.failed) {
                        failed.push((name_of(index).to_string(), why));
                    }
                    self.keep(*made, family, running);
                    return Ok(());
                }
                Tried::Refused(why) => self.tell_refused(&why),
                Tried::Absent(why) => {
                    self.tell_refused(&why);
                    self.found.missing.insert(rung, why);
                }
            }
        }
        let mut progress = Progress::new("attached");
        for (index, place) in family.places.iter().enumerate() {
            let alone = family.alone_at(place);
            match self.climb(job, &alone, running)? {
                Ok(_) => {}
                Err(refused) => failed.push((place.shown.clone(), refused.join("; "))),
            }
            progress.tell(index + 1, family.places.len());
        }
        Ok(())
    }

    /// Why the kernel refuses, from its symbols and lists; another kernel's functions are not among them.
    fn explanation(&self, family: &Family) -> Option<String> {
        if self.cli.btf.is_some() {
            return None;
        }
        let chosen = family.places.first().and_then(|place| place.symbol.as_ref());
        explanation(&family.query, chosen)
    }

    /// Adds that to an attach error.
    fn explained(&self, family: &Family, error: runtime::RuntimeError) -> Failure {
        match (&error, self.explanation(family)) {
            (runtime::RuntimeError::Attach(_), Some(why)) => {
                Failure::Host(anyhow::Error::new(error).context(why))
            }
            _ => error.into(),
        }
    }

    fn tell_refused(&self, why: &str) {
        if self.cli.verbose > 0 {
            complain(&format!("not by {why}"));
        }
    }

    /// Takes over what runs.
    fn keep(&mut self, made: Made, family: &Family, running: &mut Running) {
        let Made {
            attached,
            artifact,
            how,
            failed,
        } = made;
        let places = user::sites(family).unwrap_or(family.places.len()) - failed.len();
        match running.how.iter_mut().find(|(name, _)| *name == how) {
            Some((_, count)) => *count += places,
            None => running.how.push((how, places)),
        }
        self.share(attached.maps());
        if family.query.aggregate.is_some() {
            running
                .aggregated
                .extend(self.found.next_event..artifact.next_event);
        }
        self.found.next_event = artifact.next_event;
        let names: Vec<String> = family.places.iter().map(|place| place.shown.clone()).collect();
        for lowered in artifact.programs {
            if let Some(layout) = lowered.layout {
                running.layouts.push(RecordLayout {
                    names: names.clone(),
                    ..layout
                });
            }
            if let Some(aggregate) = lowered.aggregate {
                running.aggregates.push(AggregateLayout {
                    names: names.clone(),
                    ..aggregate
                });
            }
        }
        running.attached.push(attached);
    }

    /// Tries one rung for all places of a family.
    fn attempt(&mut self, job: Job, family: &Family, rung: Rung) -> Result<Tried, Failure> {
        let query = &family.query;
        if let Err(why) = self.kernel.has(rung) {
            return Ok(Tried::Absent(format!("{}: {why}", rung.name())));
        }
        let job = Job {
            first_event: self.found.next_event,
            way: rung.way(),
            ..job
        };
        let artifact = match compile::generate(query, self.types, self.target, job) {
            Ok(artifact) => artifact,
            Err(CompileError::Unsupported(why)) => return Ok(Tried::Refused(why)),
            Err(error) => return Err(error.into()),
        };
        let how = rung.how(&artifact);
        let specs = match self.specs(family, &artifact, rung, job.members.is_some()) {
            Ok(specs) => specs,
            Err(why) => return Ok(Tried::Refused(format!("{how}: {why}"))),
        };
        let loaded = match self.load(&artifact, &specs) {
            Ok(loaded) => loaded,
            Err(error) if error.kind_is_missing() => {
                return Ok(Tried::Absent(format!("{how}: {error}")));
            }
            Err(error) if error.another_kind_may_work() => {
                return Ok(Tried::Refused(format!("{how}: {error}")));
            }
            Err(error) => return Err(self.explained(family, error)),
        };
        if self.cli.check {
            self.tell_check(query, &loaded, how)?;
            return Ok(Tried::Checked);
        }
        let (attached, failed) = if rung == Rung::Uprobe && job.members.is_none() {
            match user::attach_each(loaded, &query.probe.func().name) {
                Ok(attached) => (attached, Vec::new()),
                Err(error) => return Ok(Tried::Refused(format!("{how}: {error}"))),
            }
        } else if job.members.is_some() {
            let mut progress = Progress::new("attached");
            match loaded.attach_lenient(|done, all| progress.tell(done, all)) {
                Ok(done) => done,
                Err(error) => return Ok(Tried::Absent(format!("{how}: {error}"))),
            }
        } else {
            match loaded.attach() {
                Ok(attached) => (attached, Vec::new()),
                Err(error) if error.another_kind_may_work() || rung.in_program() => {
                    return Ok(Tried::Refused(format!("{how}: {error}")));
                }
                Err(error) => return Err(self.explained(family, error)),
            }
        };
        let mut places: BTreeMap<usize, String> = BTreeMap::new();
        for failed in failed {
            if let Some(place) = specs.place_of(&failed) {
                places.entry(place).or_insert(failed.error.to_string());
            }
        }
        if places.len() == family.places.len() {
            let why = places.values().next().map_or("", String::as_str);
            return Ok(Tried::Refused(format!("{how}: {why}")));
        }
        Ok(Tried::Attached(Box::new(Made {
            attached,
            artifact,
            how,
            failed: places.into_iter().collect(),
        })))
    }

    fn specs(
        &self,
        family: &Family,
        artifact: &Artifact,
        rung: Rung,
        shared: bool,
    ) -> Result<rungs::Specs, String> {
        if !rung.in_program() {
            return self.kernel.specs(family, artifact, rung, shared);
        }
        let mut specs = user::specs(family, artifact, rung, shared, self.target.filter.pid);
        if rung.session() {
            specs.kernel_functions = self.kernel.kernel_functions()?;
        }
        Ok(specs)
    }

    fn load(&self, artifact: &Artifact, specs: &rungs::Specs) -> runtime::Result<Loaded> {
        let mut relocated = Relocated::new(&runtime::ObjectSpec {
            elf: artifact.object.elf.clone(),
            target_btf: artifact.object.target_btf.clone(),
            map_sizes: Vec::new(),
            shared: self.found.shared.clone(),
        })?;
        for (program, after) in artifact.object.programs.iter().filter_map(|program| {
            Some((
                program,
                relocated.programs().find(|after| after.name == program.name)?,
            ))
        }) {
            // A wrong offset would show garbage as a value: better no value at all.
            assert!(
                program.check_relocated(&without_maps(after)).is_ok(),
                "bug in ksnoop-jit: relocation of {} disagrees with the type reader",
                program.name
            );
        }
        relocated.set_kernel_functions(&specs.kernel_functions);
        let log = if self.cli.verbose > 1 {
            LogLevel::Full
        } else {
            LogLevel::Off
        };
        relocated.load(&specs.programs, log)
    }

    fn tell_check(&self, query: &typed::Query, loaded: &Loaded, how: &str) -> Result<(), Failure> {
        for stats in loaded.stats()? {
            println(&format!(
                "{}: the verifier accepts it as {how}: {} instructions, {} verified",
                query.text,
                stats.translated_bytes / 8,
                stats.verified_insns
            ))?;
            if self.cli.verbose > 1 {
                println(&stats.log)?;
            }
        }
        Ok(())
    }
}

/// Tells how far something slow is, if it is slow.
pub(super) struct Progress {
    what: &'static str,
    last: Instant,
}

impl Progress {
    pub(super) fn new(what: &'static str) -> Progress {
        Progress {
            what,
            last: Instant::now(),
        }
    }

    pub(super) fn tell(&mut self, done: usize, all: usize) {
        if done < all && self.last.elapsed() > Duration::from_secs(2) {
            complain(&format!("{} of {all} {}", done, self.what));
            self.last = Instant::now();
        }
    }
}

/// The instructions with map descriptors taken out again, which only this run has.
fn without_maps(program: &runtime::RelocatedProgram) -> Vec<u8> {
    let mut insns = program.insns.clone();
    for map_ref in &program.map_refs {
        let at = map_ref.slot * runtime::object::INSN_SIZE + 4;
        insns[at..at + 4].fill(0);
    }
    insns
}

fn println(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout().lock(), "{text}")?;
    Ok(())
}
