//! Running queries: compile each, attach it in the best way that this kernel lets, print events until the end, and tell what was
//! lost. In: the command line's queries. Out: events on stdout, everything else on stderr.

use std::io::{BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use ksnoop_jit::compile::{self, Artifact, CompileError, Job};
use ksnoop_jit::display::{Layout, Options, Printer, Symbol, Symbols};
use ksnoop_jit::lower::{self, Filter, ProgramKind, Target};
use ksnoop_jit::parser;
use ksnoop_jit::parser::ast::TargetKind;
use ksnoop_jit::sema::Limits;
use ksnoop_jit::typed::{self, Probe};
use ksnoop_jit::types::Types;
use ksnoop_jit::wire::RecordLayout;
use ksnoop_jit_runtime as runtime;
use runtime::{
    AttachTarget, Attached, Capabilities, Child, Events, Loaded, LogLevel, ProgramSpec, Relocated, Signals,
};

use crate::cli::{self, Cli};
use crate::{Failure, add_module, add_owners, complain, dump, open_types, tell};

/// Tokens of what the event loop waits for beside events.
const SIGNAL: u8 = 0;
const CHILD: u8 = 1;

/// The `trace` command.
pub(crate) fn run(cli: &Cli, texts: &[String]) -> Result<(), Failure> {
    if cli.dump_ast {
        let mut out = std::io::stdout().lock();
        for text in texts {
            let query = parser::parse(text).map_err(|diags| refuse(cli, text, &diags.into_vec()))?;
            write!(out, "{}", parser::dump(&query))?;
        }
        if !(cli.dump_ir || cli.dump_insns || cli.dump_btf || cli.emit_obj.is_some()) {
            return Ok(());
        }
    }
    let mut types = None;
    let queries = understand(cli, texts, &mut types)?;
    let Some(types) = types else {
        return Err(anyhow!("no query").into());
    };
    let caps = Capabilities::detect();
    let target = Target {
        reads: match cli.reads {
            cli::Reads::Auto => lower::Reads::Auto,
            cli::Reads::Probe => lower::Reads::Probe,
        },
        // Asked for by trying, and only if a query needs it.
        current_task_btf: cli.btf.is_some()
            || !queries.iter().any(mentions_task)
            || caps.current_task_btf().is_yes(),
        ring_bytes: cli
            .pages
            .map_or(lower::RING_BYTES, runtime::object::ring_bytes_of_pages),
        filter: Filter {
            pid: cli.pid,
            tid: cli.tid,
            uid: cli.uid,
            cpu: cli.cpu,
        },
    };
    if dump::wanted(cli) {
        return dump_all(cli, &queries, &types, &target);
    }
    if let runtime::Answer::No(why) = caps.privileged() {
        return Err(anyhow!("{why}: run it as root, or give it CAP_BPF and CAP_PERFMON").into());
    }
    session(cli, &queries, &types, target)
}

/// Tells what is wrong with a query.
fn refuse(cli: &Cli, text: &str, diags: &[ksnoop_jit::diag::Diagnostic]) -> Failure {
    tell(text, diags, cli.color);
    Failure::Query
}

/// Gives all queries their meaning; every mistake in every query is told.
fn understand(cli: &Cli, texts: &[String], types: &mut Option<Types>) -> Result<Vec<typed::Query>, Failure> {
    let mut parsed = Vec::new();
    let mut wrong = false;
    for text in texts {
        match parser::parse(text) {
            Ok(query) => parsed.push(query),
            Err(diags) => {
                tell(text, &diags.into_vec(), cli.color);
                wrong = true;
            }
        }
    }
    if wrong {
        return Err(Failure::Query);
    }
    let types = types.insert(open_types(cli)?);
    if cli.btf.is_none() {
        let mut unknown = Vec::new();
        for query in &parsed {
            let TargetKind::Function { module, name } = &query.target.kind else {
                continue;
            };
            match module {
                Some(module) => {
                    add_module(types, &module.node)?;
                }
                None => {
                    let stem = runtime::symbols::stem_of(&name.node);
                    if types.functions_named(stem).is_empty() {
                        unknown.push(stem.to_string());
                    }
                }
            }
        }
        add_owners(types, &unknown)?;
    }
    let limits = Limits::default();
    let limits = Limits {
        bytes: cli.max_bytes.unwrap_or(limits.bytes),
        string: cli
            .max_string
            .map_or(limits.string, |bytes| bytes.clamp(2, 1 << 14)),
    };
    let mut queries = Vec::new();
    for text in texts {
        match compile::understand(text, types, limits) {
            Ok(resolved) => {
                tell(text, &resolved.warnings, cli.color);
                queries.push(resolved.query);
            }
            Err(diags) => {
                tell(text, &diags, cli.color);
                wrong = true;
            }
        }
    }
    if wrong { Err(Failure::Query) } else { Ok(queries) }
}

fn mentions_task(query: &typed::Query) -> bool {
    let mut found = false;
    for event in &query.events {
        let mut look = |expr: &typed::Expr| {
            found |= expr.kind == typed::ExprKind::Builtin(typed::Builtin::Task);
        };
        for item in &event.items {
            item.source.walk(&mut look);
        }
        for predicate in &event.predicates {
            predicate.cond.walk(&mut look);
        }
    }
    found
}

fn dump_all(cli: &Cli, queries: &[typed::Query], types: &Types, target: &Target) -> Result<(), Failure> {
    let mut first_event = 0;
    for (index, query) in queries.iter().enumerate() {
        let mut last = None;
        for typed in ways(cli).iter().copied() {
            let job = Job {
                first_event,
                query: index,
                queries: queries.len(),
                typed,
            };
            match compile::generate(query, types, target, job) {
                Ok(artifact) => {
                    dump::artifact(cli, &query.text, &artifact)?;
                    first_event += artifact.programs.len() as u32;
                    last = None;
                    break;
                }
                Err(error @ CompileError::Unsupported(_)) => last = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(error) = last {
            return Err(error.into());
        }
    }
    Ok(())
}

/// The ways to attach, best first: by type or not.
fn ways(cli: &Cli) -> &'static [bool] {
    match cli.attach {
        cli::Attach::Auto => [true, false].as_slice(),
        cli::Attach::Fentry => [true].as_slice(),
        cli::Attach::Kprobe => [false].as_slice(),
    }
}

/// One query in the kernel.
struct Running {
    attached: Attached,
    layouts: Vec<RecordLayout>,
    how: &'static str,
}

fn session(cli: &Cli, queries: &[typed::Query], types: &Types, target: Target) -> Result<(), Failure> {
    // From here on a signal ends the run in order.
    let signals = Signals::catch()?;
    let mut target = target;
    let mut child = match &cli.command {
        Some(command) => {
            let child = Child::hold(&runtime::run_child::words(command))?;
            target.filter.pid.get_or_insert(child.pid());
            Some(child)
        }
        None => None,
    };
    let mut running: Vec<Running> = Vec::new();
    let mut first_event = 0;
    for (index, query) in queries.iter().enumerate() {
        let job = Job {
            first_event,
            query: index,
            queries: queries.len(),
            typed: true,
        };
        let shared = running.first().map(|first| first.attached.maps().clone());
        let Some(one) = attach(cli, query, types, &target, job, shared)? else {
            continue;
        };
        first_event += one.layouts.len() as u32;
        running.push(one);
    }
    let Some(first) = running.first() else {
        // Only `--check` attaches nothing.
        return Ok(());
    };
    let maps = first.attached.maps().clone();
    let mut events = Events::open(&maps, lower::EVENTS)?;
    events.watch(signals.as_fd(), SIGNAL)?;
    if cli.verbose > 0 {
        for (query, one) in queries.iter().zip(&running) {
            let links = one.attached.links();
            let places = if links == 1 { "place" } else { "places" };
            complain(&format!(
                "attached: {} by {} at {links} {places}",
                query.probe.func().name,
                one.how
            ));
        }
    }
    if let Some(child) = &mut child {
        events.watch(child.as_fd(), CHILD)?;
        child.go()?;
    }
    let layouts: Vec<RecordLayout> = running.iter().flat_map(|one| one.layouts.clone()).collect();
    let mut output = Output::open(cli, types, &layouts)?;
    let printed = output.pump(cli, &mut events, &signals, child.as_mut());
    finish(cli, queries, running, events, output, printed, signals)
}

/// Detaches, prints what is still in the buffer, and tells losses and faults.
fn finish(
    cli: &Cli,
    queries: &[typed::Query],
    running: Vec<Running>,
    mut events: Events,
    mut output: Output<'_>,
    printed: Result<(), Failure>,
    signals: Signals,
) -> Result<(), Failure> {
    // A second Ctrl-C while detaching takes its time kills.
    drop(signals);
    let mut loaded: Vec<Loaded> = Vec::new();
    for one in running {
        if cli.verbose > 0 {
            for stats in one.attached.stats()? {
                complain(&format!(
                    "{}: id {}, {} instructions verified, {} bytes of machine code",
                    stats.name, stats.id, stats.verified_insns, stats.jited_bytes
                ));
            }
        }
        loaded.push(one.attached.detach_all(|_, _| {}));
    }
    printed?;
    events.drain_all(|record| output.record(cli, record));
    output.flush()?;
    if let Some(error) = output.failed.take() {
        return Err(error.into());
    }
    let Some(first) = loaded.first() else {
        return Ok(());
    };
    for (index, query) in queries.iter().enumerate() {
        let counter = |which: u32| -> Result<u64, Failure> {
            match first.maps().percpu_u64(lower::COUNTS, 2 * index as u32 + which) {
                Ok(all) => Ok(all.iter().sum()),
                Err(runtime::RuntimeError::NoSuch { .. }) => Ok(0),
                Err(error) => Err(error.into()),
            }
        };
        let (lost, faults) = (counter(0)?, counter(1)?);
        let name = &query.probe.func().name;
        if lost > 0 {
            complain(&format!(
                "{name}: {lost} events lost, the buffer was full (-P makes it larger)"
            ));
        }
        if faults > 0 {
            complain(&format!(
                "{name}: in {faults} predicates a pointer was bad, so they did not hold"
            ));
        }
    }
    if cli.verbose > 0 {
        complain(&format!("{} events", output.count));
    }
    Ok(())
}

/// Compiles, loads and attaches one query in the first way that works. `None`: only checked.
fn attach(
    cli: &Cli,
    query: &typed::Query,
    types: &Types,
    target: &Target,
    job: Job,
    shared: Option<runtime::Maps>,
) -> Result<Option<Running>, Failure> {
    let name = &query.probe.func().name;
    let mut refused: Vec<String> = Vec::new();
    for typed in ways(cli).iter().copied() {
        let artifact = match compile::generate(query, types, target, Job { typed, ..job }) {
            Ok(artifact) => artifact,
            Err(CompileError::Unsupported(why)) => {
                refused.push(why);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let how = how(&artifact);
        if typed && let Some(why) = takes_another(query, types) {
            refused.push(format!("{how}: {why}"));
            continue;
        }
        let loaded = match load(cli, query, types, &artifact, shared.clone()) {
            Ok(loaded) => loaded,
            Err(error) if error.another_kind_may_work() => {
                refused.push(format!("{how}: {error}"));
                continue;
            }
            Err(error) => return Err(explained(query, error)),
        };
        if cli.check {
            for stats in loaded.stats()? {
                println(&format!(
                    "{}: the verifier accepts it as {how}: {} instructions, {} verified",
                    query.text,
                    stats.translated_bytes / 8,
                    stats.verified_insns
                ))?;
                if cli.verbose > 1 {
                    println(&stats.log)?;
                }
            }
            return Ok(None);
        }
        match loaded.attach() {
            Ok(attached) => {
                for why in refused.iter().filter(|_| cli.verbose > 0) {
                    complain(&format!("{name}: not by {why}"));
                }
                let layouts = artifact
                    .programs
                    .into_iter()
                    .filter_map(|lowered| lowered.layout)
                    .collect();
                return Ok(Some(Running {
                    attached,
                    layouts,
                    how,
                }));
            }
            Err(error) if error.another_kind_may_work() => {
                let why = explanation(query).map_or(String::new(), |why| format!(" ({why})"));
                refused.push(format!("{how}: {error}{why}"));
            }
            Err(error) => return Err(explained(query, error)),
        }
    }
    match refused.as_slice() {
        [only] => Err(anyhow!("can't trace `{name}`: {only}").into()),
        all => Err(anyhow!("can't trace `{name}`:\n  {}", all.join("\n  ")).into()),
    }
}

/// Why a trampoline on a module's function would end up on another function: before 6.3 the kernel looks for its name
/// among all symbols and takes the first (31bf1dbccfb0, "bpf: Fix attaching fentry/fexit/fmod_ret/lsm to modules").
fn takes_another(query: &typed::Query, types: &Types) -> Option<String> {
    let func = query.probe.func();
    if func.id.module == 0 || Capabilities::detect().version() >= (6, 3) {
        return None;
    }
    let found = runtime::symbols::Symbols::new().lookup(&[&func.name]).ok()?;
    let own = types.module_name(func.id.module);
    let other = found
        .iter()
        .find(|symbol| symbol.name == func.name && symbol.module.as_deref() != Some(own))?;
    let place = other.module.as_deref().unwrap_or("the kernel");
    Some(format!(
        "this kernel can't tell `{}` in {own} from the one in {place}",
        func.name
    ))
}

fn println(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout().lock(), "{text}")?;
    Ok(())
}

/// Adds to an attach error what the kernel's lists say about the function.
fn explained(query: &typed::Query, error: runtime::RuntimeError) -> Failure {
    match (&error, explanation(query)) {
        (runtime::RuntimeError::Attach(_), Some(why)) => {
            Failure::Host(anyhow::Error::new(error).context(why))
        }
        _ => error.into(),
    }
}

/// Why a function can't be hooked, if the kernel's symbols and lists tell.
fn explanation(query: &typed::Query) -> Option<String> {
    let Probe::Function(func) = &query.probe else {
        return None;
    };
    let name = &func.name;
    let found = runtime::symbols::Symbols::new().lookup(&[name]).ok()?;
    match found.iter().find(|symbol| symbol.name == *name) {
        None if found.is_empty() => Some(format!(
            "`{name}` is in BTF but not among the kernel's symbols: it is inlined everywhere"
        )),
        None => {
            let names: Vec<&str> = found.iter().map(|symbol| symbol.name.as_str()).collect();
            Some(format!(
                "the compiler made copies of `{name}`: {}; name one of them",
                names.join(", ")
            ))
        }
        Some(symbol) => match runtime::symbols::explain(symbol) {
            runtime::symbols::Traceable::Yes | runtime::symbols::Traceable::Unknown(_) => None,
            runtime::symbols::Traceable::NoSymbol => Some(format!("`{name}` has no symbol")),
            runtime::symbols::Traceable::DenyListed => Some(format!(
                "`{name}` is on the kernel's list of functions that must not be probed"
            )),
            runtime::symbols::Traceable::NoFtraceSite => Some(format!(
                "`{name}` is `notrace`: the kernel has no place to hook it"
            )),
        },
    }
}

fn load(
    cli: &Cli,
    query: &typed::Query,
    types: &Types,
    artifact: &Artifact,
    shared: Option<runtime::Maps>,
) -> runtime::Result<Loaded> {
    let relocated = Relocated::new(&runtime::ObjectSpec {
        elf: artifact.object.elf.clone(),
        target_btf: artifact.object.target_btf.clone(),
        map_sizes: Vec::new(),
        shared,
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
    let specs: Vec<ProgramSpec> = artifact
        .programs
        .iter()
        .map(|lowered| ProgramSpec {
            name: lowered.func.name.clone(),
            kind: kind(lowered.kind),
            attach: attach_target(query, types, lowered.kind),
            cookie: None,
        })
        .collect();
    let log = if cli.verbose > 1 {
        LogLevel::Full
    } else {
        LogLevel::Off
    };
    relocated.load(&specs, log)
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

fn kind(kind: ProgramKind) -> runtime::ProgramKind {
    match kind {
        ProgramKind::Fentry => runtime::ProgramKind::Fentry,
        ProgramKind::Fexit => runtime::ProgramKind::Fexit,
        ProgramKind::TpBtf => runtime::ProgramKind::TpBtf,
        ProgramKind::RawTp => runtime::ProgramKind::RawTp,
        ProgramKind::Kprobe => runtime::ProgramKind::Kprobe,
        ProgramKind::Kretprobe => runtime::ProgramKind::Kretprobe,
    }
}

fn attach_target(query: &typed::Query, types: &Types, kind: ProgramKind) -> AttachTarget {
    let func = query.probe.func();
    let module = match func.id.module {
        0 => None,
        number => Some(types.module_name(number).to_string()),
    };
    match kind {
        ProgramKind::Fentry | ProgramKind::Fexit | ProgramKind::TpBtf => AttachTarget::Btf {
            id: func.id.id,
            module,
            name: func.name.clone(),
        },
        ProgramKind::RawTp => AttachTarget::RawTracepoint(func.name.clone()),
        ProgramKind::Kprobe | ProgramKind::Kretprobe => AttachTarget::Symbol {
            name: func.name.clone(),
            module,
            offset: 0,
        },
    }
}

fn how(artifact: &Artifact) -> &'static str {
    let has = |kind| artifact.programs.iter().any(|lowered| lowered.kind == kind);
    match () {
        () if has(ProgramKind::Fentry) && has(ProgramKind::Fexit) => "fentry and fexit",
        () if has(ProgramKind::Fentry) => "fentry",
        () if has(ProgramKind::Fexit) => "fexit",
        () if has(ProgramKind::Kprobe) && has(ProgramKind::Kretprobe) => "kprobe and kretprobe",
        () if has(ProgramKind::Kprobe) => "kprobe",
        () if has(ProgramKind::Kretprobe) => "kretprobe",
        () if has(ProgramKind::TpBtf) => "typed tracepoint",
        () => "raw tracepoint",
    }
}

/// Where events go.
struct Output<'a> {
    printer: Printer<'a>,
    writer: BufWriter<Box<dyn Write>>,
    line: String,
    symbols: Kallsyms,
    count: u64,
    failed: Option<std::io::Error>,
}

impl<'a> Output<'a> {
    fn open(cli: &Cli, types: &'a Types, layouts: &'a [RecordLayout]) -> Result<Output<'a>, Failure> {
        let format = match cli.format {
            cli::Format::Text => Layout::Text,
            cli::Format::Compact => Layout::Compact,
        };
        let mut options = Options::new(format);
        options.depth = cli.depth.unwrap_or(options.depth);
        options.max_array = cli.max_array.unwrap_or(options.max_array).max(1);
        options.max_string = cli.max_string.unwrap_or(options.max_string);
        options.zeros = cli.zeros;
        options.color = match cli.color {
            cli::When::Always => true,
            cli::When::Never => false,
            cli::When::Auto => {
                cli.output.is_none()
                    && std::io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none()
            }
        };
        let sink: Box<dyn Write> = match &cli.output {
            Some(path) => Box::new(
                std::fs::File::create(path).with_context(|| format!("can't write {}", path.display()))?,
            ),
            None => Box::new(std::io::stdout()),
        };
        let printer = Printer::new(types, layouts, options);
        let mut writer = BufWriter::with_capacity(1 << 16, sink);
        if cli.format == cli::Format::Text {
            writer.write_all(printer.header().as_bytes())?;
            writer.flush()?;
        }
        let symbols = Kallsyms(runtime::symbols::Symbols::new());
        Ok(Output {
            printer,
            writer,
            line: String::new(),
            symbols,
            count: 0,
            failed: None,
        })
    }

    /// Prints events until something ends the run.
    fn pump(
        &mut self,
        cli: &Cli,
        events: &mut Events,
        signals: &Signals,
        mut child: Option<&mut Child>,
    ) -> Result<(), Failure> {
        let end = cli.duration.map(|duration| Instant::now() + duration);
        if cli.count == Some(0) {
            return Ok(());
        }
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
            let wake = events.poll(left, |record| self.record(cli, record))?;
            // What has come is shown at once; while more keeps coming, writes stay large.
            self.flush()?;
            if let Some(error) = self.failed.take() {
                return Err(error.into());
            }
            if wake.stopped || (wake.is_ready(SIGNAL) && signals.take().is_some()) {
                return Ok(());
            }
            if wake.is_ready(CHILD)
                && let Some(child) = &mut child
                && child.try_wait()?.is_some()
            {
                return Ok(());
            }
        }
    }

    /// One event; breaks off when there are enough, or nobody reads on.
    fn record(&mut self, cli: &Cli, record: &[u8]) -> ControlFlow<()> {
        if cli.count.is_some_and(|count| self.count >= count) {
            return ControlFlow::Break(());
        }
        self.line.clear();
        self.printer.event(record, &mut self.line, &self.symbols);
        if let Err(error) = self.writer.write_all(self.line.as_bytes()) {
            self.failed = Some(error);
            return ControlFlow::Break(());
        }
        self.count += 1;
        if cli.count.is_some_and(|count| self.count >= count) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.writer.flush()?)
    }
}

/// The running kernel's symbols, for display.
struct Kallsyms(runtime::symbols::Symbols);

impl Symbols for Kallsyms {
    fn resolve(&self, address: u64) -> Option<Symbol<'_>> {
        let (symbol, offset) = self.0.resolve_addr(address)?;
        Some(Symbol {
            name: symbol.name.into(),
            offset,
            module: symbol.module.map(Into::into),
        })
    }
}
