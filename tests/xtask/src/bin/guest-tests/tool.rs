//! Runs ksnoop-jit around a workload.
//!
//! In: its arguments, and what to do once it is attached. Out: its exit status and all it wrote. It never
//! waits for ever: every wait has an end, after which the tool is killed and the test has failed.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// What the tool writes to stderr, at a line's start, when everything is attached (with `-v`).
const ATTACHED: &str = "attached";
/// Emulated kernels are slow, above all at detaching fentry programs one by one.
const ATTACH_LIMIT: Duration = Duration::from_secs(40);
/// Without a word of how far it is.
const EXIT_LIMIT: Duration = Duration::from_secs(40);
/// How long events may take from the workload to the terminal.
const EVENTS_LIMIT: Duration = Duration::from_secs(4);
/// What comes in this time after the last wanted event is one too many.
const QUIET: Duration = Duration::from_millis(60);
const POLL: Duration = Duration::from_millis(10);

/// A tool that has been started.
pub(crate) struct Tool {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
    attached: mpsc::Receiver<()>,
    readers: Vec<JoinHandle<()>>,
}

/// A tool that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

fn text(of: &Mutex<String>) -> String {
    of.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn add(to: &Mutex<String>, text: &str) {
    to.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
}

impl Tool {
    pub(crate) fn start(binary: &Path, args: &[String]) -> Result<Self> {
        let mut child = Command::new(binary)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let (mut out, err) = (
            child.stdout.take().context("no stdout")?,
            child.stderr.take().context("no stderr")?,
        );
        let (stdout, stderr) = (
            Arc::new(Mutex::new(String::new())),
            Arc::new(Mutex::new(String::new())),
        );
        let (tell, attached) = mpsc::channel();
        let to = Arc::clone(&stdout);
        let out_reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = out.read(&mut buffer) {
                add(&to, &String::from_utf8_lossy(&buffer[..n]));
            }
        });
        let to = Arc::clone(&stderr);
        let err_reader = std::thread::spawn(move || {
            let mut lines = BufReader::new(err);
            let mut line = Vec::new();
            while let Ok(1..) = lines.read_until(b'\n', &mut line) {
                let said = String::from_utf8_lossy(&line);
                add(&to, &said);
                if said.starts_with(ATTACHED) {
                    // Nobody listens when the tool is not run for its events.
                    let _ = tell.send(());
                }
                line.clear();
            }
        });
        Ok(Self {
            child,
            stdout,
            stderr,
            attached,
            readers: vec![out_reader, err_reader],
        })
    }

    /// Until every probe is attached.
    pub(crate) fn wait_attached(&mut self) -> Result<()> {
        match self.attached.recv_timeout(ATTACH_LIMIT) {
            Ok(()) => Ok(()),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                bail!(
                    "not attached after {} s\n{}",
                    ATTACH_LIMIT.as_secs(),
                    text(&self.stderr)
                )
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                bail!(
                    "it ended before it was attached ({status})\n{}",
                    text(&self.stderr)
                )
            }
        }
    }

    /// Until `enough` holds for what was printed, and a moment longer, in case there is more than that.
    pub(crate) fn wait_output(&mut self, mut enough: impl FnMut(&str) -> bool) {
        let end = Instant::now() + EVENTS_LIMIT;
        while Instant::now() < end && !enough(&text(&self.stdout)) {
            std::thread::sleep(POLL);
        }
        std::thread::sleep(QUIET);
    }

    /// Ctrl-C, unless it has ended by itself.
    pub(crate) fn interrupt(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            // The guest's kill(1): a signal is all there is to send, and this needs no unsafe code.
            let status = Command::new("kill")
                .args(["-INT", &self.child.id().to_string()])
                .status()?;
            ensure!(status.success(), "kill failed ({status})");
        }
        Ok(())
    }

    /// Until it has ended.
    pub(crate) fn finish(mut self) -> Result<Ended> {
        let (mut end, mut told) = (Instant::now() + EXIT_LIMIT, 0);
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            // While it says that it gets on, as it does when it detaches hundreds of functions, it does not hang.
            let tells = text(&self.stderr).len();
            if tells > told {
                (end, told) = (Instant::now() + EXIT_LIMIT, tells);
            }
            ensure!(
                Instant::now() < end,
                "it said nothing for {} s, and did not end\n{}",
                EXIT_LIMIT.as_secs(),
                text(&self.stderr)
            );
            std::thread::sleep(POLL);
        };
        for reader in std::mem::take(&mut self.readers) {
            // A reader that panicked has left what it had read.
            let _ = reader.join();
        }
        Ok(Ended {
            status,
            stdout: text(&self.stdout),
            stderr: text(&self.stderr),
        })
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // After an error nothing may be left attached: it would disturb the next test.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
