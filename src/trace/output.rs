//! Where events go. In: records from the ring buffer. Out: their text on stdout or in a file, in the order of their times, until a
//! signal, the end of the command, a count or a time ends the run.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Context;
use ksnoop_jit::display::{Clock, Header, Layout, Notice, Options, Printer, Stamp, Thread};
use ksnoop_jit::types::Types;
use ksnoop_jit::wire::RecordLayout;
use ksnoop_jit_runtime as runtime;
use runtime::{Child, Events, Signals, clock};

use super::aggregate::{Aggregates, Missing};
use super::number::number;
use super::order::{Order, WINDOW};
use super::status::{self, Status};
use super::symbols::Known;
use super::wait::Wait;
use super::{CHILD, SIGNAL};
use crate::Failure;
use crate::cli::{self, Cli};

/// Where events go.
pub(super) struct Output<'a> {
    page: Page<'a>,
    order: Order,
    status: Status,
    /// When the clocks, the losses and the status line are to be looked at again.
    tick: Instant,
    /// Losses that have been told in the output.
    lost: Vec<u64>,
    options: Options,
    aggregates: Option<Aggregates<'a>>,
    /// How often what is aggregated has been printed.
    intervals: u64,
}

/// What may end a run.
pub(super) struct Until<'u> {
    pub(super) signals: &'u Signals,
    pub(super) child: Option<&'u mut Child>,
    pub(super) end: Option<Instant>,
    pub(super) modules: &'u mut Wait,
}

/// What outlives a change of what is traced.
pub(super) struct Carried {
    order: Order,
    status: Status,
    tick: Instant,
    lost: Vec<u64>,
    intervals: u64,
    text: String,
    sink: Box<dyn Write>,
    symbols: Known,
    threads: Option<BTreeSet<(u32, u32, u32)>>,
    start: u64,
    bytes: u64,
    count: u64,
    wanted: Option<u64>,
}

/// What has been written, and what is about to be.
struct Page<'a> {
    printer: Printer<'a>,
    /// Text that has not been written yet.
    text: String,
    sink: Box<dyn Write>,
    symbols: Known,
    /// There are stacks of processes, which may be gone when they are printed.
    users: bool,
    /// Threads that a trace has the names of; `None` where nobody asks for them.
    threads: Option<BTreeSet<(u32, u32, u32)>>,
    /// When tracing began, by the monotonic clock.
    start: u64,
    bytes: u64,
    count: u64,
    wanted: Option<u64>,
    failed: Option<std::io::Error>,
}

/// Bytes of text that are written at once.
const WRITE: usize = 1 << 16;
/// Records after which those that are old enough are handed out.
const BATCH: usize = 4096;
/// How often clocks and losses are looked at.
const TICK: Duration = Duration::from_secs(1);
/// How long what processes map may wait for being heard.
const LISTEN: Duration = Duration::from_millis(100);

impl<'a> Output<'a> {
    /// Opens the output and writes what comes before events. `users` says that there will be stacks of processes.
    pub(super) fn open(
        cli: &Cli,
        types: &'a Types,
        layouts: &'a [RecordLayout],
        queries: &[&str],
        start: u64,
        users: bool,
    ) -> Result<Output<'a>, Failure> {
        let to_terminal = cli.output.is_none() && std::io::stdout().is_terminal();
        let sink: Box<dyn Write> = match &cli.output {
            Some(path) => Box::new(
                std::fs::File::create(path).with_context(|| format!("can't write {}", path.display()))?,
            ),
            None => Box::new(std::io::stdout()),
        };
        let options = options(cli, to_terminal);
        let printer = Printer::new(types, layouts, options.clone());
        let threads = match cli.format {
            cli::Format::Chrome => Some(BTreeSet::new()),
            cli::Format::Text | cli::Format::Compact | cli::Format::Json => None,
        };
        let mut page = Page {
            printer,
            text: String::with_capacity(2 * WRITE),
            sink,
            symbols: Known::default(),
            users,
            threads,
            start,
            bytes: 0,
            count: 0,
            wanted: cli.count,
            failed: None,
        };
        page.set_clock();
        page.watch();
        // Without events there is nothing below a line of titles.
        if cli.format != cli::Format::Text || !layouts.is_empty() {
            page.printer.begin(queries, &mut page.text);
        }
        let mut output = Output {
            page,
            order: Order::default(),
            status: Status::new(to_terminal),
            tick: Instant::now() + TICK,
            lost: vec![0; queries.len()],
            options,
            aggregates: None,
            intervals: 0,
        };
        output.flush()?;
        Ok(output)
    }

    /// Lets go of the types and layouts, to go on with more of them.
    pub(super) fn carry(self) -> Carried {
        let Output {
            page,
            order,
            status,
            tick,
            lost,
            options: _,
            aggregates: _,
            intervals,
        } = self;
        Carried {
            order,
            status,
            tick,
            lost,
            intervals,
            text: page.text,
            sink: page.sink,
            symbols: page.symbols,
            threads: page.threads,
            start: page.start,
            bytes: page.bytes,
            count: page.count,
            wanted: page.wanted,
        }
    }

    /// Goes on with other types and layouts. Symbols are read anew too: there may be more.
    pub(super) fn resume(
        cli: &Cli,
        types: &'a Types,
        layouts: &'a [RecordLayout],
        carried: Carried,
        users: bool,
    ) -> Output<'a> {
        let to_terminal = cli.output.is_none() && std::io::stdout().is_terminal();
        let options = options(cli, to_terminal);
        let mut page = Page {
            printer: Printer::new(types, layouts, options.clone()),
            text: carried.text,
            sink: carried.sink,
            symbols: carried.symbols.anew(),
            users,
            threads: carried.threads,
            start: carried.start,
            bytes: carried.bytes,
            count: carried.count,
            wanted: carried.wanted,
            failed: None,
        };
        page.printer.go_on();
        page.set_clock();
        page.watch();
        Output {
            page,
            order: carried.order,
            status: carried.status,
            tick: carried.tick,
            lost: carried.lost,
            options,
            aggregates: None,
            intervals: carried.intervals,
        }
    }

    /// What is to be printed of aggregations.
    pub(super) fn aggregates(&mut self, aggregates: Aggregates<'a>) {
        self.aggregates = Some(aggregates);
    }

    /// Takes the status line away: from here on others write to stderr.
    pub(super) fn end_status(&mut self) {
        self.status.end();
    }

    /// Prints events until something ends the run, or modules have been loaded that are waited for, which is true then. `lost`
    /// counts the events of each query that found the buffer full.
    pub(super) fn pump(
        &mut self,
        cli: &Cli,
        events: &mut Events,
        until: Until<'_>,
        lost: impl Fn() -> Result<Vec<(String, u64)>, Failure>,
    ) -> Result<bool, Failure> {
        let Until {
            signals,
            mut child,
            end,
            modules,
        } = until;
        if cli.count == Some(0) {
            return Ok(false);
        }
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
            // What is held back is to be shown in time, whether or not more comes.
            let soon = (self.order.len() > 0).then_some(Duration::from_nanos(WINDOW));
            let tick = self.wants_ticks(cli).then_some(TICK);
            let listen = self.page.users.then_some(LISTEN);
            let due = self.aggregates.as_ref().and_then(Aggregates::due);
            let wait = [left, soon, tick, listen, due, modules.interval()]
                .into_iter()
                .flatten()
                .min();
            let before = clock::monotonic();
            let wake = events.poll(wait, |record| self.record(record))?;
            if self.page.users {
                self.page.symbols.listen();
            }
            // What was stamped before the buffer was looked at has come, if it was not held up for longer than the window.
            let flow = self.release(before.saturating_sub(WINDOW));
            if self.aggregates.as_mut().is_some_and(Aggregates::tick) {
                self.print_aggregates()?;
            }
            // What has come is shown at once; while more keeps coming, writes stay large.
            self.flush()?;
            if flow.is_break() || wake.stopped || (wake.is_ready(SIGNAL) && signals.take().is_some()) {
                return Ok(false);
            }
            if modules.arrived() {
                return Ok(true);
            }
            if wake.is_ready(CHILD)
                && let Some(child) = &mut child
                && child.try_wait()?.is_some()
            {
                return Ok(false);
            }
            if self.wants_ticks(cli) && Instant::now() >= self.tick {
                self.tick = Instant::now() + TICK;
                self.page.set_clock();
                let lost = lost()?;
                self.tell_losses(&lost);
                if self.status.is_on() {
                    let lost = lost.iter().map(|(_, count)| count).sum();
                    self.status.tick(self.page.count, self.hits()?, lost);
                }
            }
        }
    }

    /// One record; breaks off when there are enough, or nobody reads on.
    pub(super) fn record(&mut self, record: &[u8]) -> ControlFlow<()> {
        let header = Header::of(record);
        if self.page.users
            && let Some(header) = &header
        {
            self.page.symbols.see(header.pid);
        }
        // A record without a time is no event of ours, and says so in its place.
        let time = header.map_or(0, |header| header.time);
        self.order.push(time, record);
        if self.order.len().is_multiple_of(BATCH) {
            return self.release(clock::monotonic().saturating_sub(WINDOW));
        }
        ControlFlow::Continue(())
    }

    /// The end of the run: nothing more comes, so nothing is held back.
    pub(super) fn finish(
        &mut self,
        lost: &[(String, u64)],
        faults: &[(String, u64)],
        uncounted: &[Missing],
    ) -> Result<Summary, Failure> {
        let _ = self.release(u64::MAX);
        self.print_aggregates()?;
        self.tell_losses(lost);
        let hits = self.hits()?;
        for missing in uncounted {
            let notice = Notice::Uncounted {
                name: &missing.name,
                query: missing.query,
                count: missing.count,
                reason: missing.reason,
            };
            self.page.printer.notice(&notice, &mut self.page.text);
        }
        let page = &mut self.page;
        for (query, (name, count)) in faults.iter().enumerate().filter(|(_, (_, count))| *count > 0) {
            let count = *count;
            page.printer
                .notice(&Notice::Faults { name, query, count }, &mut page.text);
        }
        let lost: u64 = lost.iter().map(|(_, count)| count).sum();
        let notice = Notice::End {
            events: page.count,
            lost,
            late: self.order.late,
        };
        page.printer.notice(&notice, &mut page.text);
        page.printer.end(&mut page.text);
        self.flush()?;
        Ok(Summary {
            events: self.page.count,
            hits,
            bytes: self.page.bytes,
            lost,
            faults: faults.iter().map(|(_, count)| count).sum(),
            late: self.order.late,
            nanos: clock::monotonic().saturating_sub(self.page.start),
        })
    }

    /// What is aggregated, as it is now.
    fn print_aggregates(&mut self) -> Result<(), Failure> {
        /// What text in files and pipes is usually made for.
        const COLUMNS: usize = 80;
        let columns = match self.options.columns {
            0 => COLUMNS,
            columns => columns as usize,
        };
        let page = &mut self.page;
        let Some(aggregates) = self.aggregates.as_ref().filter(|all| !all.is_empty()) else {
            return Ok(());
        };
        self.intervals += 1;
        let (number, now) = (self.intervals, clock::monotonic());
        if aggregates.is_repeated() {
            page.printer.begin_interval(number, now, &mut page.text);
        }
        aggregates.print(&self.options, columns, &mut page.text, &page.symbols)?;
        page.printer.end_interval(number, now, &mut page.text);
        Ok(())
    }

    /// What was not aggregated.
    pub(super) fn uncounted(&self) -> Result<Vec<Missing>, Failure> {
        match &self.aggregates {
            Some(aggregates) => aggregates.uncounted(),
            None => Ok(Vec::new()),
        }
    }

    /// How many hits are in what is aggregated; `None` if nothing is.
    fn hits(&self) -> Result<Option<u64>, Failure> {
        match self.aggregates.as_ref().filter(|all| !all.is_empty()) {
            Some(aggregates) => aggregates.hits().map(Some),
            None => Ok(None),
        }
    }

    fn release(&mut self, until: u64) -> ControlFlow<()> {
        let page = &mut self.page;
        let status = &self.status;
        self.order.release(until, |record| page.print(record, status))
    }

    /// Whether anything is to be done now and then: a line to keep up, losses to tell in the output, a clock to follow.
    fn wants_ticks(&self, cli: &Cli) -> bool {
        self.status.is_on()
            || matches!(cli.format, cli::Format::Json | cli::Format::Chrome)
            || matches!(cli.time, cli::Time::Wall | cli::Time::Boot)
    }

    fn tell_losses(&mut self, lost: &[(String, u64)]) {
        for (query, ((name, count), told)) in lost.iter().zip(&mut self.lost).enumerate() {
            if *count > *told {
                *told = *count;
                let count = *count;
                let page = &mut self.page;
                page.printer
                    .notice(&Notice::Lost { name, query, count }, &mut page.text);
            }
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.page.write(&self.status);
        if let Some(error) = self.page.failed.take() {
            return Err(error.into());
        }
        Ok(())
    }
}

/// What a run was, for `-v`.
pub(super) struct Summary {
    events: u64,
    /// What was aggregated, if anything was to be.
    hits: Option<u64>,
    bytes: u64,
    lost: u64,
    faults: u64,
    late: u64,
    nanos: u64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.nanos as f64 / 1e9;
        let (what, all) = status::counted(self.events, self.hits);
        let rate = all as f64 / seconds.max(0.001);
        write!(
            f,
            "{what} in {seconds:.1} s ({rate:.0}/s), {} written, {} lost, {} in predicates",
            number(self.bytes, "byte"),
            self.lost,
            number(self.faults, "fault")
        )?;
        if self.late > 0 {
            write!(
                f,
                ", {} out of order by more than {} ms",
                self.late,
                WINDOW / 1_000_000
            )?;
        }
        Ok(())
    }
}

impl Page<'_> {
    /// One event; breaks off when there are enough, or nobody reads on.
    fn print(&mut self, record: &[u8], status: &Status) -> ControlFlow<()> {
        let enough = |count: u64| self.wanted.is_some_and(|wanted| count >= wanted);
        if enough(self.count) {
            return ControlFlow::Break(());
        }
        self.count += 1;
        let done = enough(self.count);
        if self.threads.is_some() {
            self.introduce(record);
        }
        self.printer.event(record, &mut self.text, &self.symbols);
        if self.text.len() >= WRITE {
            self.write(status);
        }
        if done || self.failed.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Writes what there is to write.
    fn write(&mut self, status: &Status) {
        if self.text.is_empty() {
            return;
        }
        status.make_way();
        let written = self
            .sink
            .write_all(self.text.as_bytes())
            .and_then(|()| self.sink.flush());
        status.come_back();
        self.bytes += self.text.len() as u64;
        self.text.clear();
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }

    /// Tells a thread's names before its first event.
    fn introduce(&mut self, record: &[u8]) {
        let (Some(header), Some(known)) = (Header::of(record), &mut self.threads) else {
            return;
        };
        // Thread 0 is the idle task, another on each CPU.
        let idle = header.tid == 0;
        let cpu = if idle { header.cpu } else { 0 };
        if !known.insert((header.pid, header.tid, cpu)) {
            return;
        }
        let (pid, tid) = (header.pid, header.tid);
        let read = |path: String| {
            std::fs::read(path)
                .ok()
                .map(|name| String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
        };
        let process = if idle {
            Some("idle".to_string())
        } else {
            read(format!("/proc/{pid}/comm"))
        };
        let name = if idle {
            Some(format!("swapper/{cpu}"))
        } else {
            read(format!("/proc/{pid}/task/{tid}/comm"))
        };
        let thread = Thread {
            pid,
            tid,
            cpu: header.cpu,
            process: process.as_deref(),
            name: name.as_deref(),
        };
        self.printer.thread(&thread, &mut self.text);
    }

    /// Whoever is on a stack may be gone before the stack is printed.
    fn watch(&self) {
        if self.users {
            self.symbols.watch();
        }
    }

    fn set_clock(&mut self) {
        let offsets = clock::offsets();
        self.printer.set_clock(Clock {
            wall: offsets.wall,
            boot: offsets.boot,
            zone: offsets.zone,
            start: self.start,
        });
    }
}

/// What the command line says about how events are written.
fn options(cli: &Cli, to_terminal: bool) -> Options {
    let mut options = Options::new(match cli.format {
        cli::Format::Text => Layout::Text,
        cli::Format::Compact => Layout::Compact,
        cli::Format::Json => Layout::Json,
        cli::Format::Chrome => Layout::Chrome,
    });
    options.depth = cli.depth.unwrap_or(options.depth);
    options.max_array = cli.max_array.unwrap_or(options.max_array);
    options.max_string = cli.max_string.unwrap_or(options.max_string);
    options.zeros = cli.zeros;
    options.stamp = match cli.time {
        cli::Time::Monotonic => Stamp::Monotonic,
        cli::Time::Boot => Stamp::Boot,
        cli::Time::Wall => Stamp::Wall,
        cli::Time::Relative => Stamp::Relative,
        cli::Time::Delta => Stamp::Delta,
    };
    options.color = cli.color.applies(to_terminal);
    let terminal =
        to_terminal.then(|| runtime::terminal::columns(std::io::stdout().as_fd()).map_or(80, u32::from));
    options.columns = cli.width.or(terminal).unwrap_or(0);
    options
}
