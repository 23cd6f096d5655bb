//! Tests of user space: a program that says what it passes to its probes, traced by each way that the kernel has.
//!
//! In: the guest. Out: cases. Never needs a module or a kernel function.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::case::{Case, Work};
use crate::guest::{Guest, Need};

const SHOWN: &str = "arg0:d, arg1:u, arg2:d, arg3:u, arg4:d, arg5:u, arg6:d, arg7:u";

pub(crate) fn cases() -> Vec<Case> {
    let own = |name: &str, need, work| Case::new(name, "", Work::Own(work)).needs(need);
    vec![
        own("user.usdt.values", Need::Program, |guest, _| {
            values(guest, "demo", "auto").map(|_| ())
        }),
        own("user.usdt.single", Need::Program, |guest, _| {
            values(guest, "demo", "kprobe").map(|_| ())
        }),
        own("user.usdt.multi", Need::UprobeMulti, |guest, _| {
            values(guest, "demo", "multi").map(|_| ())
        }),
        own("user.usdt.semaphores", Need::Program, |guest, _| {
            semaphores(guest)
        }),
        own("user.uprobe.values", Need::Program, |guest, _| {
            functions(guest, "auto")
        }),
        own("user.uprobe.single", Need::Program, |guest, _| {
            functions(guest, "kprobe")
        }),
        own("user.uprobe.glob", Need::Program, |guest, _| glob(guest)),
        own("user.attach", Need::Program, |guest, _| attach(guest)),
        own("user.uprobe.multi", Need::UprobeMulti, |guest, _| {
            functions(guest, "kprobe-multi")
        }),
        own("user.uprobe.session", Need::UprobeSession, |guest, _| {
            session(guest)
        }),
        own("user.usdt.pages", Need::Program, |guest, _| pages(guest)),
        own("user.usdt.dispatch", Need::Program, |guest, _| dispatch(guest)),
    ]
}

/// What came of tracing a program.
struct Traced {
    /// The events, from the name on.
    events: Vec<String>,
    printed: Vec<String>,
    stderr: String,
}

fn trace(guest: &Guest, program: &str, arguments: &[&str]) -> Result<Traced> {
    let file = "/tmp/user-events";
    let command = format!("/tests/{program}");
    let out = Command::new(&guest.tool)
        .args(["--format", "compact", "-v", "-c", &command, "-o", file])
        .args(arguments)
        .output()
        .context("cannot start the tool")?;
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(
        out.status.success(),
        "{arguments:?} ended with {}\n{stderr}",
        out.status
    );
    let text = std::fs::read_to_string(file).context("no events")?;
    let events = text
        .lines()
        .filter_map(|line| {
            let open = line.find('(')?;
            let start = line[..open].rfind(' ').map_or(0, |at| at + 1);
            Some(line[start..].to_owned())
        })
        .collect();
    let printed = String::from_utf8_lossy(&out.stdout)
        .lines()
        .map(str::to_owned)
        .collect();
    Ok(Traced {
        events,
        printed,
        stderr,
    })
}

/// The events are exactly what the program printed.
fn values(guest: &Guest, program: &str, way: &str) -> Result<Traced> {
    let query = format!("usdt:/tests/{program}:demo:sizes({SHOWN})");
    let traced = trace(guest, program, &["--attach", way, &query])?;
    let wanted: Vec<String> = traced
        .printed
        .iter()
        .map(|line| format!("demo:sizes({line})"))
        .collect();
    ensure!(wanted.len() > 15, "the program printed {} lines", wanted.len());
    ensure!(
        traced.events == wanted,
        "wanted:\n{}\nfound:\n{}\n{}",
        wanted.join("\n"),
        traced.events.join("\n"),
        traced.stderr
    );
    Ok(traced)
}

fn semaphores(guest: &Guest) -> Result<()> {
    for way in ["auto", "kprobe"] {
        let traced = values(guest, "demo-watched", way)?;
        ensure!(
            traced.stderr.contains("watchers ") && !traced.stderr.contains("watchers 0\n"),
            "{way}: nobody watches\n{}",
            traced.stderr
        );
    }
    let alone = Command::new("/tests/demo-watched").output()?;
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    ensure!(
        said.contains("watchers 0\n"),
        "somebody watches after detaching: {said}"
    );
    Ok(())
}

/// Arguments at entry, a return value, and an out-parameter at the return.
fn functions(guest: &Guest, way: &str) -> Result<()> {
    let entry = "uprobe:/tests/demo:work((int)arg0, str(arg1), (unsigned char)arg2)";
    let traced = trace(guest, "demo", &["--attach", way, entry])?;
    let wanted: Vec<String> = (1..4)
        .map(|n| {
            format!(
                "work((int)arg0={}, str(arg1)=\"some text\", (unsigned char)arg2={})",
                -10 * n,
                200 + n
            )
        })
        .collect();
    ensure!(traced.events == wanted, "{:?}\n{}", traced.events, traced.stderr);
    let both = "uprobe:/tests/demo:work((int)arg0 < -10, (long)return, exit(*(long *)arg3))";
    let traced = trace(guest, "demo", &["--attach", way, both])?;
    let wanted: Vec<String> = (2..4)
        .map(|n| {
            format!(
                "work((int)arg0={}, (long)return={}, *(long *)arg3={})",
                -10 * n,
                -10 * n - (200 + n),
                -20 * n
            )
        })
        .collect();
    ensure!(traced.events == wanted, "{:?}\n{}", traced.events, traced.stderr);
    Ok(())
}

/// Several functions, each by its name.
fn glob(guest: &Guest) -> Result<()> {
    let traced = trace(guest, "demo", &["uprobe:/tests/demo:[wh]*[kn]()"])?;
    let of = |name: &str| traced.events.iter().filter(|event| **event == name).count();
    ensure!(
        of("work()") == 3 && of("hidden()") == 3,
        "{:?}\n{}",
        traced.events,
        traced.stderr
    );
    Ok(())
}

/// The best way that this kernel has is taken by itself.
fn attach(guest: &Guest) -> Result<()> {
    let multi = guest.lacks(Need::UprobeMulti).is_none();
    let session = guest.lacks(Need::UprobeSession).is_none();
    let entry = if multi { "uprobe.multi" } else { "uprobe" };
    let both = match (session, multi) {
        (true, _) => "uprobe.session",
        (false, true) => "uprobe.multi and uretprobe.multi",
        (false, false) => "uprobe and uretprobe",
    };
    for (items, way) in [("(int)arg0", entry), ("(int)arg0 < 0, (long)return", both)] {
        let traced = trace(guest, "demo", &[&format!("uprobe:/tests/demo:work({items})")])?;
        ensure!(
            traced
                .stderr
                .contains(&format!("attached: work by {way} at 1 place")),
            "{items}: not by {way}\n{}",
            traced.stderr
        );
        ensure!(traced.events.len() == 3, "{:?}", traced.events);
    }
    Ok(())
}

/// Entry and return in one program, with the time between them and what the entry saved.
fn session(guest: &Guest) -> Result<()> {
    functions(guest, "kprobe-session")?;
    let query = "uprobe:/tests/demo:work((int)arg0 < 0, duration > 0, (long)return)";
    let traced = trace(guest, "demo", &["--attach", "kprobe-session", query])?;
    ensure!(
        traced.stderr.contains("by uprobe.session at 1 place") && traced.events.len() == 3,
        "{:?}\n{}",
        traced.events,
        traced.stderr
    );
    Ok(())
}

/// Places at the same distance from where their pages begin are told apart, also where only the instruction pointer can; and
/// what is counted at them counts together.
fn pages(guest: &Guest) -> Result<()> {
    let ways: &[&str] = match guest.lacks(Need::UprobeMulti) {
        Some(_) => &["auto", "kprobe"],
        None => &["auto", "kprobe", "multi"],
    };
    for way in ways {
        let traced = trace(
            guest,
            "demo",
            &["--attach", way, "usdt:/tests/demo:demo:far(arg0)"],
        )?;
        let wanted = [1, 10, 2, 20, 3, 30].map(|n| format!("demo:far(arg0={n})"));
        ensure!(
            traced.events == wanted,
            "{way}: {:?}\n{}",
            traced.events,
            traced.stderr
        );
        let query = "usdt:/tests/demo:demo:far(count(), sum(arg0), max(arg0))";
        let traced = trace(guest, "demo", &["--attach", way, query])?;
        let text = std::fs::read_to_string("/tmp/user-events")?;
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|words| !words.is_empty() && words.iter().all(|word| word.parse::<u64>().is_ok()))
            .collect();
        ensure!(
            rows == [["6", "66", "30"]] && text.matches("demo:far").count() == 1,
            "{way}: {text}\n{}",
            traced.stderr
        );
    }
    Ok(())
}

/// With more recipes than programs, cookies tell places apart, and where there are none the instruction pointer.
fn dispatch(guest: &Guest) -> Result<()> {
    let out = Command::new(&guest.tool)
        .args(["--dump-ir", &format!("usdt:/tests/demo:demo:sizes({SHOWN})")])
        .output()
        .context("cannot start the tool")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let by_cookie = text.contains("which place?") && !text.contains("where in its page");
    let by_address = text.contains("where in its page");
    let cookies = guest.lacks(Need::Cookies).is_none();
    ensure!(
        (by_cookie, by_address) == (cookies, !cookies),
        "by cookie {by_cookie}, by address {by_address}\n{text}"
    );
    Ok(())
}
