//! The command line: options in, plain data out. Never opens anything.

use std::path::PathBuf;

use clap::{ArgAction, Parser, ValueEnum};

/// Trace kernel functions and tracepoints with queries that are compiled to BPF.
#[derive(Parser, Debug)]
#[command(
    name = "ksnoop-jit",
    version,
    about = "Trace the kernel: each query is compiled straight to a BPF program",
    override_usage = "ksnoop-jit [OPTIONS] QUERY...\n       ksnoop-jit info FUNC|tp:EVENT|uprobe:PROGRAM:FUNC...\n       ksnoop-jit type 'struct sk_buff'...\n       ksnoop-jit list GLOB...\n       ksnoop-jit features",
    group(clap::ArgGroup::new("root").args(["pid", "command"]).multiple(true)),
    after_help = "A query:  ip_rcv(skb->len > 0xff, skb)     tp:sched_switch(prev->comm, next->pid)     do_sys_openat2"
)]
pub(crate) struct Cli {
    /// A command (trace, info, type, list, features) and its words; without one, queries
    #[arg(value_name = "QUERY", required_unless_present = "schema", num_args = 1..)]
    pub(crate) words: Vec<String>,

    /// Only this process
    #[arg(short = 'p', long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Only this thread
    #[arg(short = 't', long, value_name = "TID")]
    pub(crate) tid: Option<u32>,
    /// Only this user
    #[arg(long, value_name = "UID")]
    pub(crate) uid: Option<u32>,
    /// Only this CPU
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<u32>,
    /// Only tasks whose name matches this pattern
    #[arg(long, value_name = "GLOB", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) comm: Option<String>,
    /// Only tasks in this cgroup (version 2), or below it
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,
    /// With -c or -p: the processes that it starts too, and those that they start
    #[arg(long, requires = "root")]
    pub(crate) follow: bool,
    /// Only where the functions call one another, the first one the second, and so on
    #[arg(short = 's', long)]
    pub(crate) stack: bool,
    /// End after so many events
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) count: Option<u64>,
    /// End after so many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) duration: Option<std::time::Duration>,
    /// Trace while this command runs
    #[arg(short = 'c', long, value_name = "CMD")]
    pub(crate) command: Option<String>,
    /// Print what is aggregated so far after every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds)]
    pub(crate) interval: Option<std::time::Duration>,
    /// Keys that an aggregation has room for [default: 10240]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) max_keys: Option<u32>,
    /// Show the kernel's call stack with each event
    #[arg(short = 'k', long)]
    pub(crate) kernel_stack: bool,
    /// Write aggregated stacks as flame graphs want them: `outer;inner 12`
    #[arg(long)]
    pub(crate) folded: bool,
    /// Show the process's call stack with each event
    #[arg(short = 'U', long)]
    pub(crate) user_stack: bool,
    /// Size of the ring buffer in pages [default: 1024, which are 4 MiB]
    #[arg(short = 'P', long, value_name = "PAGES", value_parser = pages)]
    pub(crate) pages: Option<u32>,

    /// How events are written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Print the JSON Schema of what `--format json` writes, and exit
    #[arg(long)]
    pub(crate) schema: bool,
    /// Which time is shown with an event
    #[arg(long, value_enum, value_name = "CLOCK", default_value_t = Time::Monotonic)]
    pub(crate) time: Time,
    /// Columns of a line of the compact format, 0 for any number [default: the terminal's]
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) width: Option<u32>,
    /// Write to a file
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Colours
    #[arg(long, value_enum, default_value_t = When::Auto)]
    pub(crate) color: When,
    /// Structs inside each other that are shown [default: 32; compact 1, chrome 4]
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<u32>,
    /// Bytes of a string that are shown [default: 511; compact 64, chrome 256]
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_string: Option<u32>,
    /// Elements of an array that are shown [default: 256; compact 8, chrome 16]
    #[arg(long, value_name = "N")]
    pub(crate) max_array: Option<u32>,
    /// Bytes of a struct that are read [default: 4096]
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_bytes: Option<u32>,
    /// Show members that are zero
    #[arg(long)]
    pub(crate) zeros: bool,

    /// How functions and tracepoints are hooked
    #[arg(long, value_enum, default_value_t = Attach::Auto)]
    pub(crate) attach: Attach,
    /// Where a name is that of several functions, trace all of them
    #[arg(long)]
    pub(crate) all_instances: bool,
    /// Calls at once that a kretprobe has room for, if more than the kernel gives (at most 4096); others' returns are lost
    #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) maxactive: Option<u32>,
    /// Wait for modules that are not loaded yet
    #[arg(long)]
    pub(crate) wait: bool,
    /// Trace more functions at once than is sensible, and those that tracing itself needs
    #[arg(long)]
    pub(crate) force: bool,
    /// How kernel memory is read
    #[arg(long, value_enum, default_value_t = Reads::Auto)]
    pub(crate) reads: Reads,
    /// Take types from this BTF (or an ELF with one) instead of the running kernel's
    #[arg(long, value_name = "FILE")]
    pub(crate) btf: Option<PathBuf>,

    /// Take the types of traced programs from this BTF (or an ELF with one) instead of the program's own
    #[arg(long, value_name = "FILE")]
    pub(crate) types: Option<PathBuf>,

    /// Load, let the verifier judge, attach nothing
    #[arg(long)]
    pub(crate) check: bool,
    /// Print the syntax tree and exit
    #[arg(long)]
    pub(crate) dump_ast: bool,
    /// Print the intermediate representation and exit
    #[arg(long)]
    pub(crate) dump_ir: bool,
    /// Print the program, instruction by instruction, and exit
    #[arg(long)]
    pub(crate) dump_insns: bool,
    /// Print the program's own types and the slice of the kernel's, and exit
    #[arg(long)]
    pub(crate) dump_btf: bool,
    /// Write an object that libbpf loads, and exit
    #[arg(long, value_name = "FILE")]
    pub(crate) emit_obj: Option<PathBuf>,

    /// Tell what is attached and how, what the verifier says, faults and losses
    #[arg(short = 'v', short_alias = 'd', long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// ksnoop's layout
    Text,
    /// One line an event
    Compact,
    /// One JSON object a line; see --schema
    Json,
    /// A trace for Perfetto and chrome://tracing
    Chrome,
}

/// Which time is shown with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Time {
    /// Nanoseconds since boot without the time in suspend, as ksnoop shows them
    Monotonic,
    /// Seconds since boot with the time in suspend
    Boot,
    /// The local time of day
    Wall,
    /// Seconds since tracing began
    Relative,
    /// Seconds since the event before
    Delta,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR is set and not empty
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// How functions and tracepoints are hooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attach {
    /// The best that works
    Auto,
    /// BPF trampolines, typed tracepoints
    Fentry,
    /// BPF trampolines, entry and return in one program (7.2)
    Fsession,
    /// One program at the BPF trampolines of many functions (7.2)
    FentryMulti,
    /// The same, entry and return in one (7.2)
    FsessionMulti,
    /// The best that takes many functions at once
    Multi,
    /// fprobe (5.18)
    KprobeMulti,
    /// fprobe, entry and return in one program (6.10)
    KprobeSession,
    /// kprobes, raw tracepoints
    Kprobe,
}

/// How kernel memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reads {
    /// Plain loads where the kernel knows the type
    Auto,
    /// Probe reads everywhere: slower, and sees every bad address
    Probe,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Run queries.
    Trace,
    /// Print prototypes.
    Info,
    /// Print layouts.
    Type,
    /// Search functions.
    List,
    /// Tell what the kernel can do.
    Features,
    /// Tell how the tool is used.
    Help,
}

impl When {
    /// Whether there are colours in what goes to a terminal, or elsewhere.
    pub(crate) fn applies(self, to_terminal: bool) -> bool {
        match self {
            When::Always => true,
            When::Never => false,
            // NO_COLOR counts if it is there and not empty (no-color.org).
            When::Auto => to_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }
}

impl Cli {
    /// The command and its words. As in ksnoop a command may be cut short, and no command means to trace.
    pub(crate) fn command_words(&self) -> (Command, &[String]) {
        let Some((first, rest)) = self.words.split_first() else {
            return (Command::Trace, &[]);
        };
        // With nothing after it only the whole word is a command, as a part of one could be a function.
        let meant = |name: &str| match rest {
            [] => name == first,
            [_, ..] => !first.is_empty() && name.starts_with(first.as_str()),
        };
        match COMMANDS.iter().find(|(name, _)| meant(name)) {
            Some((_, command)) => (*command, rest),
            None => (Command::Trace, &self.words),
        }
    }

    /// The command that a single word may be the beginning of, if it is not a function's name.
    pub(crate) fn cut_short(&self) -> Option<Command> {
        let [word] = self.words.as_slice() else {
            return None;
        };
        let mut meant = COMMANDS
            .iter()
            .filter(|(name, _)| !word.is_empty() && *name != word && name.starts_with(word.as_str()));
        meant.next().map(|(_, command)| *command)
    }
}

/// What the commands are called. Of those that begin in the same way the first is meant.
const COMMANDS: [(&str, Command); 6] = [
    ("trace", Command::Trace),
    ("info", Command::Info),
    ("type", Command::Type),
    ("list", Command::List),
    ("features", Command::Features),
    ("help", Command::Help),
];

/// Pages of a ring buffer.
fn pages(text: &str) -> Result<u32, String> {
    let most = ksnoop_jit_runtime::object::pages_max();
    match text.parse() {
        Ok(pages) if (1..=most).contains(&pages) => Ok(pages),
        Ok(_) | Err(_) => Err(format!("expected a number of pages from 1 to {most}")),
    }
}

fn seconds(text: &str) -> Result<std::time::Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "expected a number of seconds".to_string())?;
    std::time::Duration::try_from_secs_f64(seconds).map_err(|_| "not a usable time".to_string())
}

/// A time in which something can happen.
fn some_seconds(text: &str) -> Result<std::time::Duration, String> {
    match seconds(text)? {
        std::time::Duration::ZERO => Err("expected more than 0 seconds".to_string()),
        some => Ok(some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(line: &[&str]) -> (Command, Vec<String>) {
        let line = ["ksnoop-jit"].iter().chain(line);
        let cli = Cli::try_parse_from(line).expect("it is a command line");
        let (command, words) = cli.command_words();
        (command, words.to_vec())
    }

    /// As in ksnoop a command is meant by any beginning of its name.
    #[test]
    fn commands_are_cut_short_to_one_letter() {
        for (name, command) in [
            ("trace", Command::Trace),
            ("info", Command::Info),
            ("list", Command::List),
        ] {
            for length in 1..=name.len() {
                let (got, words) = taken(&[&name[..length], "vfs_open"]);
                assert_eq!(got, command, "{}", &name[..length]);
                assert_eq!(words, ["vfs_open"]);
            }
        }
        assert_eq!(taken(&["ty", "file"]).0, Command::Type);
        assert_eq!(taken(&["-v", "i", "vfs_open"]).0, Command::Info);
    }

    #[test]
    fn a_command_alone_is_no_function() {
        for (name, command) in [
            ("info", Command::Info),
            ("type", Command::Type),
            ("list", Command::List),
            ("trace", Command::Trace),
        ] {
            assert_eq!(taken(&[name]), (command, Vec::new()));
        }
        assert_eq!(taken(&["features"]).0, Command::Features);
        assert_eq!(taken(&["inf"]), (Command::Trace, vec!["inf".to_string()]));
        let cut_short = |words: &[&str]| {
            let line = ["ksnoop-jit"].iter().chain(words);
            Cli::try_parse_from(line)
                .expect("it is a command line")
                .cut_short()
        };
        assert_eq!(cut_short(&["feat"]), Some(Command::Features));
        assert_eq!(cut_short(&["h"]), Some(Command::Help));
        assert_eq!(cut_short(&["vfs_open"]), None);
        assert_eq!(cut_short(&["feat", "vfs_open"]), None);
        assert_eq!(
            taken(&["vfs_open", "vfs_read"]),
            (
                Command::Trace,
                vec!["vfs_open".to_string(), "vfs_read".to_string()]
            )
        );
    }
}
