//! Where events go. In: records from the ring buffer. Out: their text on stdout or in a file, until a signal, the end of the
//! command, a count or a time ends the run.

use std::io::{BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::Context;
use ksnoop_jit::display::{Layout, Options, Printer, Symbol, Symbols};
use ksnoop_jit::types::Types;
use ksnoop_jit::wire::RecordLayout;
use ksnoop_jit_runtime as runtime;
use runtime::{Child, Events, Signals};

use super::{CHILD, SIGNAL};
use crate::Failure;
use crate::cli::{self, Cli};

/// Where events go.
pub(super) struct Output<'a> {
    printer: Printer<'a>,
    writer: BufWriter<Box<dyn Write>>,
    line: String,
    symbols: Kallsyms,
    pub(super) count: u64,
    pub(super) failed: Option<std::io::Error>,
}

impl<'a> Output<'a> {
    pub(super) fn open(
        cli: &Cli,
        types: &'a Types,
        layouts: &'a [RecordLayout],
    ) -> Result<Output<'a>, Failure> {
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
    pub(super) fn pump(
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
    pub(super) fn record(&mut self, cli: &Cli, record: &[u8]) -> ControlFlow<()> {
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

    pub(super) fn flush(&mut self) -> Result<(), Failure> {
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
