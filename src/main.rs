//! The composition root: the one place that knows both the compiler and the runtime. In: the command line. Out: an exit
//! status: 0 done, 1 this host is in the way, 2 the query is wrong. Never decides how a query is compiled or attached;
//! it only tries one way after the other.

mod cli;
mod dump;
mod explore;
mod list_programs;
mod programs;
mod trace;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use ksnoop_jit::diag::{self, Diagnostic, Severity};
use ksnoop_jit::display::{self, Notice};
use ksnoop_jit::types::Types;
use ksnoop_jit_runtime as runtime;

use cli::{Cli, Command};

/// Why a command ended early.
enum Failure {
    /// The query is wrong, which has been told.
    Query,
    /// Something else, still to be told.
    Host(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Host(error.into())
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no mistakes. A closed pipe is not worth a word.
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(2)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    if cli.schema {
        let _ = std::io::stdout().write_all(display::json::SCHEMA.as_bytes());
        return ExitCode::SUCCESS;
    }
    let (command, words) = match cli.cut_short() {
        // A part of a command could be a function, which comes first.
        Some(command) if !is_function(&cli, &cli.words[0]) => (command, &[][..]),
        Some(_) | None => cli.command_words(),
    };
    let lacking = match command {
        Command::Trace => "a query",
        Command::Info => "a function, or another target",
        Command::Type => "a type",
        Command::List => "a pattern",
        Command::Features | Command::Help => "",
    };
    if words.is_empty() && !lacking.is_empty() {
        let what = format!("`{}` wants {lacking}", cli.words.concat());
        let _ = Cli::command()
            .error(ErrorKind::MissingRequiredArgument, what)
            .print();
        return ExitCode::from(2);
    }
    if let Some(why) = useless(&cli, command, words) {
        complain(&format!("ksnoop-jit: {why}"));
        return ExitCode::from(2);
    }
    let done = match command {
        Command::Trace => trace::run(&cli, words),
        Command::Info => explore::info(&cli, words),
        Command::Type => explore::layout(&cli, words),
        Command::List => explore::list(&cli, words),
        Command::Features => explore::features(&cli),
        Command::Help => explore::help(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Query) => ExitCode::from(2),
        Err(Failure::Host(error)) => {
            if error
                .downcast_ref::<std::io::Error>()
                .is_some_and(runtime::signals::is_broken_pipe)
            {
                return ExitCode::SUCCESS;
            }
            let message = chain(&error);
            complain(&format!("ksnoop-jit: {message}"));
            report(
                &cli,
                &Notice::Error {
                    code: None,
                    message: &message,
                    place: None,
                },
            );
            ExitCode::FAILURE
        }
    }
}

/// Whether the kernel has a function of that name.
fn is_function(cli: &Cli, name: &str) -> bool {
    open_types(cli).is_ok_and(|types| !types.functions_named(name).is_empty())
}

/// What a command that only looks would leave aside.
fn useless(cli: &Cli, command: Command, words: &[String]) -> Option<&'static str> {
    match command {
        Command::Trace => return useless_check(cli),
        Command::Help => return None,
        Command::Features if !words.is_empty() => return Some("`features` takes no words"),
        Command::Features | Command::Info | Command::Type | Command::List => {}
    }
    let tracing = cli.count.is_some()
        || cli.duration.is_some()
        || cli.interval.is_some()
        || cli.command.is_some()
        || cli.format != cli::Format::Text
        || cli.stack
        || cli.kernel_stack
        || cli.user_stack
        || cli.folded;
    tracing.then_some("nothing is traced by this command: leave `-n`, `--for`, `--interval`, `-c`, `-s`, `-k`, `-U`, `--folded` and `--format` away")
}

/// Programs name the running kernel's functions by the numbers that these have in its own BTF.
fn useless_check(cli: &Cli) -> Option<&'static str> {
    let other = cli.check
        && cli
            .btf
            .as_deref()
            .is_some_and(|path| !runtime::btf::is_running(path));
    other.then_some("`--check` asks the running kernel, which the types of another one (`--btf`) say nothing about: leave one of them away")
}

/// An error and what is behind it. Most of ours say what the system call said themselves; that is not told twice.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    text
}

/// A line on stderr; if that is closed there is nobody to tell.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Tells all diagnostics of a query.
fn tell(cli: &Cli, text: &str, diags: &[Diagnostic]) {
    let color = cli.color.applies(std::io::stderr().is_terminal());
    for diag in diags {
        complain(&diag::render(text, diag, color));
        if diag.severity == Severity::Error {
            report(
                cli,
                &Notice::Error {
                    code: Some(diag.code.as_str()),
                    message: &diag.message,
                    place: Some((text, diag.span)),
                },
            );
        }
    }
}

/// Tells an error in the output as well, where that is for programs.
fn report(cli: &Cli, notice: &Notice<'_>) {
    if cli.format != cli::Format::Json {
        return;
    }
    let mut line = String::new();
    notice.json(&mut line);
    // Whoever reads the output has gone, or never was, if this fails; what went wrong is on stderr.
    let _ = match &cli.output {
        Some(path) => std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes())),
        None => std::io::stdout().lock().write_all(line.as_bytes()),
    };
}

/// The types that queries are compiled against, without any module's.
fn open_types(cli: &Cli) -> Result<Types, Failure> {
    Ok(Types::new(runtime::btf::open_vmlinux(cli.btf.as_deref())?))
}

/// Adds a module's types; whether there are any.
fn add_module(types: &mut Types, name: &str) -> Result<bool, Failure> {
    if types.module_named(name).is_some() {
        return Ok(true);
    }
    // Split BTF has to be read over the very same base, which `Types` has for itself.
    match runtime::btf::open_module(name, types.base()) {
        Ok(btf) => {
            types.add_module(name, btf);
            Ok(true)
        }
        Err(runtime::RuntimeError::NoModuleBtf { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Looks for the modules that functions of these names live in, and adds their types.
fn add_owners(types: &mut Types, names: &[String]) -> Result<(), Failure> {
    if names.is_empty() {
        return Ok(());
    }
    let symbols = match runtime::symbols::Symbols::new().lookup(names) {
        Ok(symbols) => symbols,
        // Without symbols only what vmlinux has can be found, which the query's diagnostics then tell.
        Err(_) => return Ok(()),
    };
    for symbol in symbols {
        if let Some(module) = &symbol.module {
            add_module(types, module)?;
        }
    }
    Ok(())
}
