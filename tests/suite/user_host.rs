//! What tests of programs on this host share: folders for their files, programs that gcc builds and that run for a while, and
//! the tool's events. In: sources, queries. Out: events without what differs from run to run. Says why nothing
//! can be traced here, if so.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Functions and a probe that are called with known values.
pub(crate) const CALLS: &str = include_str!("calls.c");

/// Where a test's files are; removed with it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ksj-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for temporary files");
        // Programs of other users read from here too.
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, all).expect("permissions");
        Folder(path)
    }

    /// A path in it, as text.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Why nothing can be traced here, if so.
pub(crate) fn unable() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !status.lines().any(|line| line.starts_with("Uid:\t0\t")) {
        return Some("only root may trace".to_string());
    }
    if !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        return Some("this kernel has no uprobes".to_string());
    }
    if Command::new("gcc").arg("--version").output().is_err() {
        return Some("there is no gcc".to_string());
    }
    let header = |folder: &&str| Path::new(folder).join("sys/sdt.h").exists();
    if !["/usr/include", "/usr/include/x86_64-linux-gnu"]
        .iter()
        .any(header)
    {
        return Some("there is no <sys/sdt.h> (systemtap-sdt-dev)".to_string());
    }
    None
}

pub(crate) fn skipped(why: Option<String>) -> bool {
    if let Some(why) = &why {
        eprintln!("SKIP: {why}");
    }
    why.is_some()
}

/// Runs something that has to succeed, in a folder. Out: what it printed.
pub(crate) fn run(folder: &Folder, program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program)
        .args(arguments)
        .current_dir(&folder.0)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        done.status.success(),
        "{program} {arguments:?}\n{}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).into_owned()
}

pub(crate) fn gcc(folder: &Path, source: &str, output: &str, options: &[&str]) -> PathBuf {
    let (from, to) = (folder.join(format!("{output}.c")), folder.join(output));
    std::fs::write(&from, source).expect("a source file");
    let done = Command::new("gcc")
        .args(options)
        .arg("-o")
        .arg(&to)
        .arg(&from)
        .args(
            options
                .iter()
                .filter(|option| option.starts_with("-l") || option.starts_with("-L")),
        )
        .output()
        .expect("gcc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    to
}

/// The tool, run to its end.
pub(crate) fn tool(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ksnoop-jit"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the tool runs")
}

/// What `list` prints.
pub(crate) fn list(what: &str) -> String {
    String::from_utf8_lossy(&tool(&["list", what]).stdout).into_owned()
}

/// What the tool says of a wrong query, which it must not trace.
pub(crate) fn refused(arguments: &[&str]) -> String {
    // One that is taken for right ends by itself.
    let out = tool(&[&["--for", "1"], arguments].concat());
    assert_eq!(out.status.code(), Some(2), "{arguments:?}");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// What came of tracing.
pub(crate) struct Traced {
    /// The events without their columns.
    pub(crate) events: Vec<String>,
    /// The processes that they are of.
    pub(crate) pids: Vec<u32>,
    /// What the tool wrote to its file.
    pub(crate) text: String,
    /// What the command printed.
    pub(crate) printed: Vec<String>,
    pub(crate) stderr: String,
}

/// Traces a command, to its end.
pub(crate) fn trace(folder: &Path, command: &str, arguments: &[&str]) -> Traced {
    traced(folder, &[&["-c", command], arguments].concat())
}

/// Traces as the arguments say.
pub(crate) fn traced(folder: &Path, arguments: &[&str]) -> Traced {
    let file = folder.join("events");
    let name = file.display().to_string();
    let all = [
        &["--format", "compact", "--width", "0", "-v", "-o", &name],
        arguments,
    ]
    .concat();
    let out = tool(&all);
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{arguments:?}\n{stderr}");
    let text = String::from_utf8_lossy(&std::fs::read(&file).expect("its output")).into_owned();
    let (mut events, mut pids) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let Some(open) = line.find('(') else {
            continue;
        };
        // Time, CPU and process stand before the name.
        let start = line[..open].rfind(' ').map_or(0, |at| at + 1);
        events.push(line[start..].to_string());
        pids.extend(
            line[..start]
                .split_whitespace()
                .last()
                .and_then(|pid| pid.parse::<u32>().ok()),
        );
    }
    Traced {
        events,
        pids,
        text,
        printed: String::from_utf8_lossy(&out.stdout)
            .lines()
            .map(str::to_string)
            .collect(),
        stderr,
    }
}

/// A program that runs until this is dropped.
pub(crate) struct Running(Child);

impl Running {
    /// Starts it, and waits until it says that it has begun.
    pub(crate) fn start(command: &mut Command) -> Running {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut running = Running(child);
        running.say();
        running
    }

    /// Waits until it prints the next character.
    pub(crate) fn say(&mut self) {
        let mut first = [0u8; 1];
        let out = self.0.stdout.as_mut().expect("its output");
        std::io::Read::read_exact(out, &mut first).expect("it goes on");
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> std::process::ExitStatus {
        self.0.wait().expect("it ends")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
