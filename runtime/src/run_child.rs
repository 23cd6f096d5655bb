//! The command of `-c`: started, held before its first instruction of its own, let go once everything is attached.
//!
//! In: words. Out: its process id at once, then how it ended. The held process is a copy of this one that waits on a
//! pipe and then becomes the command, so that the very `execve` is traced too. If this process dies first, the copy
//! sees the pipe close and ends without running anything.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::ExitStatus;

use crate::error::{Result, RuntimeError};
use crate::signals;

/// A command that is held, runs, or has ended.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    command: String,
    /// Dropped or written to: the command is given up or let go.
    hold: Option<OwnedFd>,
    /// Tells why `execvp` failed; closes when it succeeds.
    exec_error: OwnedFd,
    exited: OwnedFd,
    status: Option<ExitStatus>,
}

/// A shell command as words, when it uses nothing but words and quotes; else as work for `/bin/sh`, which becomes the command where
/// it is a single one.
///
/// The difference matters because the process traced is the one started here: a shell that starts the command would
/// take its place.
pub fn words(command: &str) -> Vec<String> {
    let exec = if is_single(command) { EXEC } else { "" };
    let shell = || vec!["/bin/sh".to_owned(), "-c".to_owned(), format!("{exec}{command}")];
    let mut words = vec![];
    let mut word: Option<String> = None;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let w = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => w.push(c),
                        None => return shell(),
                    }
                }
            }
            '"' => {
                let w = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('$' | '`' | '\\') | None => return shell(),
                        Some(c) => w.push(c),
                    }
                }
            }
            '|' | '&' | ';' | '<' | '>' | '(' | ')' | '$' | '`' | '\\' | '*' | '?' | '[' | '#' | '~'
            | '=' | '%' | '!' | '{' => return shell(),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if words.is_empty() { shell() } else { words }
}

const EXEC: &str = "exec ";

/// Whether these words are a shell that starts what was asked for, in processes of its own.
pub fn starts_others(words: &[String]) -> bool {
    matches!(words, [shell, option, script] if shell == "/bin/sh" && option == "-c" && !script.starts_with(EXEC))
}

/// Whether a shell command is one program, with whatever words and redirections: its first word is no assignment and nothing that
/// only a shell knows.
fn is_single(command: &str) -> bool {
    const INSIDE: [&str; 20] = [
        "!", ".", ":", "[", "alias", "cd", "eval", "exec", "exit", "export", "false", "if", "for", "read",
        "set", "true", "ulimit", "umask", "until", "while",
    ];
    let first = command.split_ascii_whitespace().next().unwrap_or_default();
    let operators = ['|', '&', ';', '(', ')', '`', '{', '}', '#', '\n'];
    !first.is_empty() && !first.contains('=') && !INSIDE.contains(&first) && !command.contains(operators)
}

impl Child {
    /// Starts the command and holds it.
    ///
    /// # Errors
    /// [`RuntimeError::Child`] if there is no word, a word has a NUL in it, or no process can be made. That the command
    /// doesn't exist shows only at [`Child::go`].
    pub fn hold(argv: &[String]) -> Result<Child> {
        let command = argv.join(" ");
        let fail = |source| RuntimeError::Child {
            command: command.clone(),
            source,
        };
        let args: Vec<CString> = argv
            .iter()
            .map(|a| CString::new(a.as_bytes()))
            .collect::<std::result::Result<_, _>>()
            .map_err(|e| fail(e.into()))?;
        let mut pointers: Vec<*const libc::c_char> = args.iter().map(|a| a.as_ptr()).collect();
        let Some(program) = pointers.first().copied() else {
            return Err(fail(io::Error::from(io::ErrorKind::InvalidInput)));
        };
        pointers.push(std::ptr::null());
        let (held, hold) = pipe().map_err(fail)?;
        let (exec_error, report) = pipe().map_err(fail)?;
        let none = signals::empty();
        // SAFETY: the child calls only functions that may be called after fork, and uses only memory made before.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(fail(io::Error::last_os_error()));
        }
        if pid == 0 {
            // SAFETY: as above; every pointer is to memory made before the fork. The parent's end of the pipe has to
            // be closed here, or the child would keep its own wait from ever ending.
            unsafe {
                libc::close(hold.as_raw_fd());
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                let mut go = 0u8;
                loop {
                    let n = libc::read(held.as_raw_fd(), (&raw mut go).cast(), 1);
                    if n == 1 {
                        break;
                    }
                    if n == 0 || *libc::__errno_location() != libc::EINTR {
                        libc::_exit(127);
                    }
                }
                libc::execvp(program, pointers.as_ptr());
                let e = *libc::__errno_location();
                libc::write(report.as_raw_fd(), (&raw const e).cast(), size_of::<i32>());
                libc::_exit(127);
            }
        }
        // SAFETY: takes no pointer; the process is our child and not yet waited for, so the id is its own.
        let exited = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if exited < 0 {
            let e = io::Error::last_os_error();
            drop(hold);
            let mut status = 0;
            // SAFETY: `status` is live; the child ends because its pipe closed.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            return Err(fail(e));
        }
        // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
        let exited = unsafe { OwnedFd::from_raw_fd(exited as i32) };
        Ok(Child {
            pid,
            command,
            hold: Some(hold),
            exec_error,
            exited,
            status: None,
        })
    }

    /// Its process id, which stays the same when it becomes the command.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Lets it go, and waits until it has become the command.
    ///
    /// # Errors
    /// [`RuntimeError::Child`] if it can't: not found, not executable.
    pub fn go(&mut self) -> Result<()> {
        let Some(hold) = self.hold.take() else {
            return Ok(());
        };
        // SAFETY: writes one byte from a live array.
        unsafe { libc::write(hold.as_raw_fd(), [1u8].as_ptr().cast(), 1) };
        drop(hold);
        let mut code = 0i32;
        loop {
            // SAFETY: `code` has room for what is read.
            let n = unsafe {
                libc::read(
                    self.exec_error.as_raw_fd(),
                    (&raw mut code).cast(),
                    size_of::<i32>(),
                )
            };
            if n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            if n == size_of::<i32>() as isize {
                let source = io::Error::from_raw_os_error(code);
                return Err(RuntimeError::Child {
                    command: self.command.clone(),
                    source,
                });
            }
            return Ok(());
        }
    }

    /// How it ended, or `None` while it runs. Its descriptor ([`AsFd`]) becomes readable when it has ended.
    ///
    /// # Errors
    /// [`RuntimeError::Sys`] if it can't be waited for.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        use std::os::unix::process::ExitStatusExt;
        if self.status.is_some() {
            return Ok(self.status);
        }
        let mut status = 0;
        // SAFETY: `status` is live.
        match unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG) } {
            0 => Ok(None),
            n if n == self.pid => {
                self.status = Some(ExitStatus::from_raw(status));
                Ok(self.status)
            }
            _ => Err(RuntimeError::Sys {
                doing: "wait for the command",
                source: io::Error::last_os_error(),
            }),
        }
    }
}

impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exited.as_fd()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A command still held never ran: it ends by itself and only has to be collected. One that runs is the user's.
        if self.hold.take().is_some() {
            let mut status = 0;
            // SAFETY: `status` is live.
            unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        }
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0i32; 2];
    // SAFETY: `fds` has room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made these descriptors for us; nobody else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &str) -> Result<ExitStatus> {
        let mut child = Child::hold(&words(command))?;
        assert_eq!(child.try_wait()?, None, "held");
        child.go()?;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn words_and_quotes() {
        assert_eq!(words("a  'b c' \"d\"e ''"), ["a", "b c", "de", ""]);
        for shell in ["a | b", "A=1 b", "", "a; b $x", "cd $x", "! a $x", "a `b`"] {
            let words = words(shell);
            assert_eq!(words, ["/bin/sh", "-c", shell]);
            assert!(starts_others(&words));
        }
        // The shell becomes the one command that it is to run.
        for single in ["echo $x", "./a <b >c", "ls *.rs", "echo \"$x\"", "'open"] {
            let words = words(single);
            assert_eq!(words, ["/bin/sh", "-c", &format!("exec {single}")]);
            assert!(!starts_others(&words));
        }
        assert!(!starts_others(&words("a b")));
    }

    #[test]
    fn a_command_runs_when_let_go_and_tells_how_it_ended() {
        assert_eq!(run("sh -c 'exit 7'").expect("sh runs").code(), Some(7));
        assert!(run("true").expect("true runs").success());
        assert!(matches!(run("/no/such/program"), Err(RuntimeError::Child { .. })));
    }

    #[test]
    fn a_command_given_up_never_runs() {
        let path = std::env::temp_dir().join(format!("ksj-child-{}", std::process::id()));
        let child =
            Child::hold(&["touch".to_owned(), path.display().to_string()]).expect("a process can be made");
        drop(child);
        assert!(!path.exists());
    }
}
