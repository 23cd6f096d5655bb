//! The rungs of the attach ladder, one for each sort of probe: which of them there are for a query and in which order, what the
//! kernel calls them, and what has to be attached where. In: a family of functions and its programs. Out: specs for the
//! runtime. Never attaches anything.

use ksnoop_jit::compile::{Artifact, Way};
use ksnoop_jit::ir::Helper;
use ksnoop_jit::lower::{self, ProgramKind};
use ksnoop_jit::typed::{self, Probe};
use ksnoop_jit::types::{NameKind, Type, Types};
use ksnoop_jit::wire::Phase;
use ksnoop_jit_runtime as runtime;
use runtime::{AttachTarget, Failed, Moment, ProgramSpec, Site};

use super::targets::{Family, Place};
use crate::cli::{self, Cli};

/// A sort of probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rung {
    /// BPF trampolines, entry and return in one program (7.2).
    Fsession,
    /// BPF trampolines; typed tracepoints.
    Fentry,
    /// One program at many functions' trampolines, entry and return in one (7.2).
    FsessionMulti,
    /// One program at many functions' trampolines (7.2).
    FentryMulti,
    /// fprobe, entry and return in one program (6.10).
    KprobeSession,
    /// fprobe (5.18).
    KprobeMulti,
    /// Breakpoints and ftrace; raw tracepoints.
    Kprobe,
    /// One program at many places of a file, entry and return in one (6.13).
    UprobeSession,
    /// One program at many places of a file (6.6).
    UprobeMulti,
    /// Places of files, one by one.
    Uprobe,
}

impl Rung {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rung::Fsession => "fsession",
            Rung::Fentry => "fentry",
            Rung::FsessionMulti => "fsession_multi",
            Rung::FentryMulti => "fentry_multi",
            Rung::KprobeSession => "kprobe.session",
            Rung::KprobeMulti => "kprobe.multi",
            Rung::Kprobe => "kprobe",
            Rung::UprobeSession => "uprobe.session",
            Rung::UprobeMulti => "uprobe.multi",
            Rung::Uprobe => "uprobe",
        }
    }

    /// Which code it needs.
    pub(crate) fn way(self) -> Way {
        match self {
            Rung::Fsession => Way::Session,
            Rung::Fentry => Way::Trampoline,
            Rung::FsessionMulti => Way::SessionMulti,
            Rung::FentryMulti => Way::TrampolineMulti,
            Rung::KprobeSession => Way::KprobeSession,
            Rung::KprobeMulti | Rung::Kprobe => Way::Kprobe,
            Rung::UprobeSession => Way::UprobeSession,
            Rung::UprobeMulti | Rung::Uprobe => Way::Uprobe,
        }
    }

    /// What `enum bpf_attach_type` calls it, for those that came after BTF.
    fn attach_type(self) -> Option<&'static str> {
        match self {
            Rung::Fsession => Some("BPF_TRACE_FSESSION"),
            Rung::FsessionMulti => Some("BPF_TRACE_FSESSION_MULTI"),
            Rung::FentryMulti => Some("BPF_TRACE_FENTRY_MULTI"),
            Rung::KprobeSession => Some("BPF_TRACE_KPROBE_SESSION"),
            Rung::KprobeMulti => Some("BPF_TRACE_KPROBE_MULTI"),
            Rung::UprobeSession => Some("BPF_TRACE_UPROBE_SESSION"),
            Rung::UprobeMulti => Some("BPF_TRACE_UPROBE_MULTI"),
            Rung::Fentry | Rung::Kprobe | Rung::Uprobe => None,
        }
    }

    /// Whether a kernel of these types has heard of it. An error is why not.
    pub(super) fn known_to(self, types: &Types) -> Result<(), String> {
        match self.attach_type() {
            Some(name) => attach_type(types, name).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Whether functions are named by BTF id, and found by the kernel by the name in BTF.
    pub(crate) fn by_type(self) -> bool {
        match self {
            Rung::Fsession | Rung::Fentry | Rung::FsessionMulti | Rung::FentryMulti => true,
            Rung::KprobeSession
            | Rung::KprobeMulti
            | Rung::Kprobe
            | Rung::UprobeSession
            | Rung::UprobeMulti
            | Rung::Uprobe => false,
        }
    }

    /// Whether it is for programs.
    pub(super) fn in_program(self) -> bool {
        match self {
            Rung::UprobeSession | Rung::UprobeMulti | Rung::Uprobe => true,
            Rung::Fsession
            | Rung::Fentry
            | Rung::FsessionMulti
            | Rung::FentryMulti
            | Rung::KprobeSession
            | Rung::KprobeMulti
            | Rung::Kprobe => false,
        }
    }

    /// Whether one link takes many functions.
    fn multi(self) -> bool {
        match self {
            Rung::FsessionMulti
            | Rung::FentryMulti
            | Rung::KprobeSession
            | Rung::KprobeMulti
            | Rung::UprobeSession
            | Rung::UprobeMulti => true,
            Rung::Fsession | Rung::Fentry | Rung::Kprobe | Rung::Uprobe => false,
        }
    }

    /// Whether one program runs at entry and return.
    pub(crate) fn session(self) -> bool {
        match self {
            Rung::Fsession | Rung::FsessionMulti | Rung::KprobeSession | Rung::UprobeSession => true,
            Rung::Fentry
            | Rung::FentryMulti
            | Rung::KprobeMulti
            | Rung::Kprobe
            | Rung::UprobeMulti
            | Rung::Uprobe => false,
        }
    }

    /// What its programs are called together.
    pub(crate) fn how(self, artifact: &Artifact) -> &'static str {
        let has = |kind| artifact.programs.iter().any(|lowered| lowered.kind == kind);
        let entry = has(ProgramKind::Fentry) || has(ProgramKind::FentryMulti) || has(ProgramKind::Kprobe);
        let exit = has(ProgramKind::Fexit) || has(ProgramKind::FexitMulti) || has(ProgramKind::Kretprobe);
        let entry = entry || has(ProgramKind::Uprobe);
        let exit = exit || has(ProgramKind::Uretprobe);
        match (self, entry, exit) {
            (Rung::UprobeMulti, true, true) => "uprobe.multi and uretprobe.multi",
            (Rung::UprobeMulti, false, true) => "uretprobe.multi",
            (Rung::Uprobe, true, true) => "uprobe and uretprobe",
            (Rung::Uprobe, false, true) => "uretprobe",
            (Rung::Fentry, _, _) if has(ProgramKind::TpBtf) => "typed tracepoint",
            (Rung::Kprobe, _, _) if has(ProgramKind::RawTp) => "raw tracepoint",
            (Rung::Fentry, true, true) => "fentry and fexit",
            (Rung::Fentry, false, true) => "fexit",
            (Rung::FentryMulti, true, true) => "fentry_multi and fexit_multi",
            (Rung::FentryMulti, false, true) => "fexit_multi",
            (Rung::KprobeMulti, true, true) => "kprobe.multi and kretprobe.multi",
            (Rung::KprobeMulti, false, true) => "kretprobe.multi",
            (Rung::Kprobe, true, true) => "kprobe and kretprobe",
            (Rung::Kprobe, false, true) => "kretprobe",
            (
                Rung::Fsession
                | Rung::Fentry
                | Rung::FsessionMulti
                | Rung::FentryMulti
                | Rung::KprobeSession
                | Rung::KprobeMulti
                | Rung::Kprobe
                | Rung::UprobeSession
                | Rung::UprobeMulti
                | Rung::Uprobe,
                _,
                _,
            ) => self.name(),
        }
    }
}

/// What is to be attached for `--follow`: raw tracepoints, which every kernel has.
pub(super) fn following(artifact: &Artifact) -> Specs {
    let names = ["sched_process_fork", "sched_process_free"];
    let programs: Vec<ProgramSpec> = artifact
        .programs
        .iter()
        .zip(names)
        .map(|(lowered, name)| ProgramSpec {
            name: lowered.func.name.clone(),
            kind: runtime::ProgramKind::RawTp,
            attach: AttachTarget::RawTracepoint(name.to_string()),
            cookie: None,
        })
        .collect();
    Specs {
        places: vec![None; programs.len()],
        programs,
        sites: Vec::new(),
        kernel_functions: Vec::new(),
    }
}

/// Whether an event of the query needs something from the entry at the return.
fn two_sided(query: &typed::Query, at_return: ProgramKind) -> bool {
    query
        .events
        .iter()
        .any(|event| event.phase == Phase::Both && lower::keeps(event, at_return))
}

/// The rungs for one function or tracepoint, best first.
pub(crate) fn for_one(cli: &Cli, query: &typed::Query) -> Vec<Rung> {
    match &query.probe {
        Probe::Uprobe(_) | Probe::Usdt(_) => in_program(cli, query),
        Probe::Tracepoint(_) => match cli.attach {
            cli::Attach::Auto => vec![Rung::Fentry, Rung::Kprobe],
            cli::Attach::Fentry
            | cli::Attach::Fsession
            | cli::Attach::FentryMulti
            | cli::Attach::FsessionMulti => {
                vec![Rung::Fentry]
            }
            cli::Attach::Kprobe | cli::Attach::KprobeMulti | cli::Attach::KprobeSession => vec![Rung::Kprobe],
            cli::Attach::Multi => vec![Rung::Fentry, Rung::Kprobe],
        },
        Probe::Function(_) => match forced(cli, query) {
            Some(rungs) => rungs,
            None => {
                let mut rungs = Vec::new();
                // Only where it saves a program: asking for it takes a look at the kernel's own enum.
                if two_sided(query, ProgramKind::Fexit) {
                    rungs.push(Rung::Fsession);
                }
                rungs.push(Rung::Fentry);
                if two_sided(query, ProgramKind::Kretprobe) {
                    rungs.push(Rung::KprobeSession);
                }
                rungs.push(Rung::Kprobe);
                rungs
            }
        },
    }
}

/// The rungs that take many functions at once, best first; after them comes one function at a time.
pub(crate) fn for_many(cli: &Cli, query: &typed::Query) -> Vec<Rung> {
    if query.probe.user().is_some() {
        return in_program(cli, query);
    }
    match forced(cli, query) {
        // One by one.
        Some(rungs) => rungs
            .into_iter()
            .filter(|rung| rung.multi() || *rung == Rung::Kprobe)
            .collect(),
        None => {
            let mut rungs = multi(query);
            rungs.push(Rung::Kprobe);
            rungs
        }
    }
}

/// The rungs for places in programs. What names another sort of probe means the one that is most like it.
fn in_program(cli: &Cli, query: &typed::Query) -> Vec<Rung> {
    match cli.attach {
        cli::Attach::Auto | cli::Attach::Multi | cli::Attach::Fentry => {
            let mut rungs = Vec::new();
            if two_sided(query, ProgramKind::Uretprobe) {
                rungs.push(Rung::UprobeSession);
            }
            rungs.push(Rung::UprobeMulti);
            rungs.push(Rung::Uprobe);
            rungs
        }
        cli::Attach::FentryMulti | cli::Attach::KprobeMulti => vec![Rung::UprobeMulti],
        cli::Attach::Fsession | cli::Attach::FsessionMulti | cli::Attach::KprobeSession => {
            vec![Rung::UprobeSession]
        }
        cli::Attach::Kprobe => vec![Rung::Uprobe],
    }
}

fn multi(query: &typed::Query) -> Vec<Rung> {
    let mut rungs = Vec::new();
    if two_sided(query, ProgramKind::FexitMulti) {
        rungs.push(Rung::FsessionMulti);
    }
    rungs.push(Rung::FentryMulti);
    if two_sided(query, ProgramKind::Kretprobe) {
        rungs.push(Rung::KprobeSession);
    }
    rungs.push(Rung::KprobeMulti);
    rungs
}

fn forced(cli: &Cli, query: &typed::Query) -> Option<Vec<Rung>> {
    Some(match cli.attach {
        cli::Attach::Auto => return None,
        cli::Attach::Fentry => vec![Rung::Fentry],
        cli::Attach::Fsession => vec![Rung::Fsession],
        cli::Attach::FentryMulti => vec![Rung::FentryMulti],
        cli::Attach::FsessionMulti => vec![Rung::FsessionMulti],
        cli::Attach::Multi => multi(query),
        cli::Attach::KprobeMulti => vec![Rung::KprobeMulti],
        cli::Attach::KprobeSession => vec![Rung::KprobeSession],
        cli::Attach::Kprobe => vec![Rung::Kprobe],
    })
}

/// How many calls there is room for, per two CPUs, where the kernel wants to be told.
const CALLS_AT_ONCE: usize = 256;

/// What the running kernel calls things, looked up when needed.
pub(super) struct Kernel<'a> {
    types: &'a Types,
    /// Calls at once that kretprobes are to have room for.
    maxactive: Option<u32>,
    /// Nothing will be attached, so that nobody has to know where.
    check: bool,
}

/// What is to be loaded and attached.
#[derive(Default)]
pub(super) struct Specs {
    pub(super) programs: Vec<ProgramSpec>,
    /// For each spec, the place it is for, where it is for one.
    places: Vec<Option<usize>>,
    /// What stands for places in links of many.
    sites: Vec<(u64, usize)>,
    /// Place-holders of kernel functions, and their BTF ids.
    pub(super) kernel_functions: Vec<(i32, u32)>,
}

impl Specs {
    /// Which place a failure is about.
    pub(super) fn place_of(&self, failed: &Failed) -> Option<usize> {
        match failed.at {
            Some(at) => self
                .sites
                .iter()
                .find(|(site, _)| *site == at)
                .map(|(_, place)| *place),
            None => self.places.get(failed.spec).copied().flatten(),
        }
    }
}

impl Specs {
    /// Adds a program, for one place or for many.
    pub(super) fn add(&mut self, place: Option<usize>, program: ProgramSpec) {
        self.places.push(place);
        self.programs.push(program);
    }

    /// Says which place something in a link of many stands for.
    pub(super) fn add_site(&mut self, at: u64, place: usize) {
        self.sites.push((at, place));
    }
}

impl<'a> Kernel<'a> {
    pub(super) fn new(types: &'a Types, cli: &Cli) -> Kernel<'a> {
        Kernel {
            types,
            maxactive: cli.maxactive,
            check: cli.check,
        }
    }

    /// Whether the kernel can have programs of that sort. An error is why not.
    pub(super) fn has(&self, rung: Rung) -> Result<(), String> {
        rung.known_to(self.types)?;
        if rung.session() {
            self.kernel_functions()?;
        }
        Ok(())
    }

    /// A constant of `enum bpf_attach_type`: distributions differ in which they have and what they are.
    fn attach_type(&self, name: &str) -> Result<u32, String> {
        attach_type(self.types, name)
    }

    /// What is to be attached where. An error is why this can't be.
    pub(super) fn specs(
        &self,
        family: &Family,
        artifact: &Artifact,
        rung: Rung,
        shared: bool,
    ) -> Result<Specs, String> {
        let mut specs = Specs {
            programs: Vec::new(),
            places: Vec::new(),
            sites: Vec::new(),
            kernel_functions: Vec::new(),
        };
        if rung.multi() && (rung.by_type() || !self.check) {
            for (index, place) in family.places.iter().enumerate() {
                specs.add_site(self.site(place, rung)?, index);
            }
        }
        for lowered in &artifact.programs {
            let kind = self.kind(lowered.kind, rung)?;
            let name = lowered.func.name.clone();
            if rung.multi() {
                specs.places.push(None);
                specs.programs.push(ProgramSpec {
                    name,
                    kind,
                    attach: self.many(family, rung, &specs.sites),
                    cookie: None,
                });
                continue;
            }
            for (index, place) in family.places.iter().enumerate() {
                specs.places.push(Some(index));
                specs.programs.push(ProgramSpec {
                    name: name.clone(),
                    kind: kind.clone(),
                    attach: self.one(place, lowered.kind),
                    cookie: shared.then_some(index as u64),
                });
            }
        }
        if rung.session() {
            specs.kernel_functions = self.kernel_functions()?;
        }
        Ok(specs)
    }

    /// The kernel functions that generated code may call.
    pub(super) fn kernel_functions(&self) -> Result<Vec<(i32, u32)>, String> {
        let named = Helper::ALL
            .into_iter()
            .filter_map(|helper| Some((helper, helper.kfunc()?)));
        named
            .map(|(helper, name)| match self.types.functions_named(name).first() {
                Some(func) => Ok((helper.number(), func.id.id)),
                None => Err(format!("this kernel has no {name}")),
            })
            .collect()
    }

    fn kind(&self, kind: ProgramKind, rung: Rung) -> Result<runtime::ProgramKind, String> {
        let multi = |name, at| {
            let attach_type = self.attach_type(name)?;
            Ok(runtime::ProgramKind::TracingMulti { attach_type, at })
        };
        match kind {
            ProgramKind::Fentry => Ok(runtime::ProgramKind::Fentry),
            ProgramKind::Fexit => Ok(runtime::ProgramKind::Fexit),
            ProgramKind::TpBtf => Ok(runtime::ProgramKind::TpBtf),
            ProgramKind::RawTp => Ok(runtime::ProgramKind::RawTp),
            ProgramKind::Kprobe if rung == Rung::KprobeMulti => Ok(runtime::ProgramKind::KprobeMulti {
                session: false,
                ret: false,
            }),
            ProgramKind::Kretprobe if rung == Rung::KprobeMulti => Ok(runtime::ProgramKind::KprobeMulti {
                session: false,
                ret: true,
            }),
            ProgramKind::Kprobe => Ok(runtime::ProgramKind::Kprobe),
            ProgramKind::Kretprobe => Ok(match self.maxactive {
                Some(maxactive) => runtime::ProgramKind::KretprobeWith { maxactive },
                None => runtime::ProgramKind::Kretprobe,
            }),
            ProgramKind::KprobeSession => Ok(runtime::ProgramKind::KprobeMulti {
                session: true,
                ret: false,
            }),
            ProgramKind::Fsession => Ok(runtime::ProgramKind::Fsession {
                attach_type: self.attach_type("BPF_TRACE_FSESSION")?,
            }),
            ProgramKind::Uprobe | ProgramKind::Uretprobe | ProgramKind::UprobeSession => {
                Err("a place in a program is no kernel function".to_string())
            }
            ProgramKind::FentryMulti => multi("BPF_TRACE_FENTRY_MULTI", Moment::Entry),
            ProgramKind::FexitMulti => multi("BPF_TRACE_FEXIT_MULTI", Moment::Return),
            ProgramKind::FsessionMulti => multi("BPF_TRACE_FSESSION_MULTI", Moment::Both),
        }
    }

    /// The module of a place, as the runtime wants it.
    fn module(&self, place: &Place) -> Option<String> {
        match place.func.id.module {
            0 => None,
            number => Some(self.types.module_name(number).to_string()),
        }
    }

    /// Where a program is attached that has a link for each function.
    fn one(&self, place: &Place, kind: ProgramKind) -> AttachTarget {
        let module = self.module(place);
        let name = place.func.name.clone();
        match kind {
            ProgramKind::RawTp => AttachTarget::RawTracepoint(name),
            ProgramKind::Kprobe | ProgramKind::Kretprobe => match &place.symbol {
                Some(symbol) if symbol.addr != 0 => AttachTarget::Address {
                    address: symbol.addr,
                    name,
                },
                Some(symbol) => AttachTarget::Symbol {
                    name: symbol.name.clone(),
                    module: symbol.module.clone(),
                    offset: 0,
                },
                None => AttachTarget::Symbol {
                    name,
                    module,
                    offset: 0,
                },
            },
            ProgramKind::Fentry
            | ProgramKind::Fexit
            | ProgramKind::TpBtf
            | ProgramKind::Fsession
            | ProgramKind::FentryMulti
            | ProgramKind::FexitMulti
            | ProgramKind::FsessionMulti
            | ProgramKind::KprobeSession
            | ProgramKind::Uprobe
            | ProgramKind::Uretprobe
            | ProgramKind::UprobeSession => AttachTarget::Btf {
                id: place.func.id.id,
                module,
                name,
            },
        }
    }

    /// What stands for a place in a link of many.
    fn site(&self, place: &Place, rung: Rung) -> Result<u64, String> {
        if rung.by_type() {
            return Ok(u64::from(place.func.id.id));
        }
        let address = match &place.symbol {
            Some(symbol) => symbol.addr,
            None => runtime::symbols::Symbols::new()
                .lookup(&[&place.func.name])
                .map_err(|error| error.to_string())?
                .iter()
                .find(|symbol| symbol.name == place.func.name && symbol.module == self.module(place))
                .map(|symbol| symbol.addr)
                .ok_or_else(|| format!("`{}` is not among the kernel's symbols", place.func.name))?,
        };
        if address == 0 {
            return Err("the kernel hides addresses: sysctl kernel.kptr_restrict".to_string());
        }
        Ok(address)
    }

    fn many(&self, family: &Family, rung: Rung, sites: &[(u64, usize)]) -> AttachTarget {
        // Before 6.14 fprobe has room for twice as many calls at once as there are functions in the link and CPUs, and returns
        // of others are lost (kernel/trace/fprobe.c, `fprobe_init_rethook`). Functions may be named repeatedly.
        let times = if rung.by_type() || runtime::Capabilities::detect().version() >= (6, 14) {
            1
        } else {
            CALLS_AT_ONCE.div_ceil(sites.len().max(1))
        };
        let sites = sites
            .iter()
            .flat_map(|(at, place)| {
                let site = Site {
                    at: *at,
                    cookie: *place as u64,
                    ref_ctr: 0,
                };
                std::iter::repeat_n(site, times)
            })
            .collect();
        if rung.by_type() {
            let module = family.places.first().and_then(|place| self.module(place));
            AttachTarget::BtfIds { sites, module }
        } else {
            AttachTarget::Addresses(sites)
        }
    }
}

/// See [`Kernel::attach_type`].
pub(crate) fn attach_type(types: &Types, name: &str) -> Result<u32, String> {
    for id in types.find(NameKind::Enum, "bpf_attach_type") {
        if let Type::Enum(found) = types.get(id)
            && let Some((_, value)) = found.values.iter().find(|(constant, _)| constant == name)
        {
            return u32::try_from(*value).map_err(|_| format!("{name} is {value}"));
        }
    }
    Err(format!("this kernel has no {name}"))
}
