//! Tests on how functions are chosen and hooked: large sets, what `features` says, names with several owners, filters, tasks that
//! move while they are in a call.
//!
//! In: nothing. Out: cases on the kernel's own functions. They never count on a number of functions that only one kernel
//! has: of a set it is known that it is large, and which of its functions are called.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::case::{Case, Work};
use crate::guest::{Guest, Need};
use crate::output::{self, Event};
use crate::tool::{Ended, Tool};

/// Each kernel has more functions than this whose names and arguments fit.
const LARGE: usize = 100;
/// Where the kernel lists what is hooked, and by what.
const KPROBES: &str = "/sys/kernel/debug/kprobes/list";
const TRAMPOLINES: &str = "/sys/kernel/tracing/enabled_functions";

/// More functions than a thousand on each kernel, however they are called, counted by their names.
const THOUSANDS: &str =
    "tcp_*,udp_*,inet*,ip_*,ip6*,sock_*,sk_*,skb_*,dev_*,net*,__tcp*,__ip*,__sk*(count(), by(func))";

pub(crate) fn cases() -> Vec<Case> {
    let own = |name: &str, query: &str, work| Case::new(&format!("attaching.{name}"), query, Work::Own(work));
    let ends = |name: &str, query: &str, says| {
        let name = format!("attaching.{name}");
        Case::new(&name, query, Work::Ends { status: 1, says })
    };
    vec![
        own("large_set", "tcp_*(sk)", large_set),
        own("large_set.kprobe", "tcp_*(sk)", large_set_by_kprobes),
        own(
            "by_name",
            "__x64_sys_sched_yield,__x64_sys_getppid(count(), by(func))",
            by_name,
        ),
        own("thousands", THOUSANDS, thousands).needs(Need::KprobeMulti),
        own("features", "", features),
        own("alias", "__x64_sys_getegid()", alias),
        own("list_of_any", "__x64_sys_getegid,vfs_open()", list_of_any),
        own("cpu", "do_sys_openat2()", one_cpu),
        own("for", "do_sys_openat2()", ends_in_time),
        own(
            "symbols",
            "do_sys_openat2(a=@linux_banner:u32, b=@linux_banner+6:u8, d=str(kaddr(\"linux_banner\"), 13))",
            symbols,
        ),
        own(
            "this_cpu",
            "do_sys_openat2(cpu, run=((struct rq *)this_cpu_ptr(kaddr(\"runqueues\")))->cpu, \
             runs=((struct rq *)this_cpu_ptr(kaddr(\"runqueues\")))->curr->pid, me=task->pid)",
            this_cpu,
        ),
        own(
            "fetch.registers",
            "do_sys_openat2(a=%di:s32, b=+0(%si):ustring, c=%si, d=$arg2:x, e=+0(%dx):b2@0/64, f=+4(%dx):b1@0/8, \
             g=\\-5:s64, h=\\\"a text\", i=%ip:symbol)",
            registers,
        ),
        own(
            "fetch.strings",
            "__x64_sys_execve(a=+u0(+104(%di)):ustring[2], b=+0(+112(%di)):ustring)",
            strings,
        ),
        own("stack.long", "vfs_open()", long_stack),
        own("migrate", MIGRATES, migrates),
        own("migrate.kprobe", MIGRATES, migrates_by_kprobes),
        ends(
            "refused.kprobe_multi",
            "vfs_open(file)",
            vec!["can't trace `vfs_open`: kprobe.multi: this kernel has no"],
        )
        .options(&["--attach", "kprobe-multi"])
        .needs(Need::OldProbes),
        ends(
            "refused.fsession",
            "vfs_open(file)",
            vec!["can't trace `vfs_open`: fsession: this kernel has no BPF_TRACE_FSESSION"],
        )
        .options(&["--attach", "fsession"])
        .needs(Need::OldProbes),
        ends(
            "refused.init",
            "start_kernel()",
            vec!["`start_kernel` ran while the kernel started"],
        )
        .options(&["--attach", "kprobe"]),
        own("refused.init_copy", "()", init_copy),
        Case::new(
            "attaching.group",
            "tp:nosuchgroup:sched_switch()",
            Work::Ends {
                status: 2,
                says: vec![
                    "there is no tracepoint `sched_switch` in a group `nosuchgroup`",
                    "write `tp:sched:sched_switch`",
                ],
            },
        ),
        own("reasons", "do_sys_openat2(dfd, *how, return < 0)", reasons).needs(Need::OldProbes),
    ]
}

fn start(guest: &Guest, words: &[&str]) -> Result<Tool> {
    let args: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let mut tool = Tool::start(&guest.tool, &args)?;
    tool.wait_attached()?;
    Ok(tool)
}

fn ended(mut tool: Tool) -> Result<(Vec<Event>, Ended)> {
    tool.interrupt()?;
    let ended = tool.finish()?;
    ensure!(
        ended.status.success(),
        "it ended with {}\n{}",
        ended.status,
        ended.stderr
    );
    Ok((output::events(&ended.stdout, false)?, ended))
}

/// The first event of a process.
fn event_of<'e>(events: &'e [Event], pid: u32, ended: &Ended) -> Result<&'e Event> {
    let mut own = events.iter().filter(|event| event.pid == pid);
    own.next()
        .with_context(|| format!("no event of {pid}\n{}", ended.stderr))
}

/// The number before these words on stderr.
fn number_before(text: &str, words: &str) -> Option<usize> {
    let (before, _) = text.split_once(words)?;
    before.split_whitespace().next_back()?.parse().ok()
}

fn large_set(guest: &Guest, query: &str) -> Result<()> {
    set_of_hundreds(guest, &["-v", query])
}

fn large_set_by_kprobes(guest: &Guest, query: &str) -> Result<()> {
    set_of_hundreds(guest, &["-v", "--attach", "kprobe", query])
}

/// What several functions count by their names is one table, through one program or through several.
fn by_name(guest: &Guest, query: &str) -> Result<()> {
    for attach in ["auto", "kprobe"] {
        let pid = std::process::id().to_string();
        let mut tool = start(
            guest,
            &["-v", "--format", "json", "--attach", attach, "-p", &pid, query],
        )?;
        for _ in 0..3 {
            std::thread::yield_now();
        }
        let _ = std::os::unix::process::parent_id();
        tool.interrupt()?;
        let ended = tool.finish()?;
        let rows: Vec<&str> = ended
            .stdout
            .lines()
            .filter_map(|line| line.split_once("\"keys\":"))
            .map(|(_, rest)| rest)
            .collect();
        ensure!(
            rows == [
                r#"{"func":"__x64_sys_sched_yield"},"values":{"count()":3}}"#,
                r#"{"func":"__x64_sys_getppid"},"values":{"count()":1}}"#,
            ],
            "by {attach}:\n{}\n{}",
            ended.stdout,
            ended.stderr
        );
    }
    Ok(())
}

/// More than a thousand functions through one link: each call of this process is counted where it belongs.
fn thousands(guest: &Guest, query: &str) -> Result<()> {
    const WRITES: usize = 7;
    let pid = std::process::id().to_string();
    let mut tool = start(guest, &["-v", "--format", "json", "--force", "-p", &pid, query])?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut from = TcpStream::connect(listener.local_addr()?)?;
    let (mut to, _) = listener.accept()?;
    for _ in 0..WRITES {
        from.write_all(b"four")?;
        to.read_exact(&mut [0; 4])?;
    }
    tool.interrupt()?;
    let ended = tool.finish()?;
    let said = &ended.stderr;
    ensure!(ended.status.success(), "it ended with {}\n{said}", ended.status);
    let attached = said.lines().find(|line| line.starts_with("attached: "));
    // By trampolines or fprobes, and by kprobes for those that these don't take.
    let parts = attached.into_iter().flat_map(|line| line.split(" at ").skip(1));
    let functions: usize = parts
        .filter_map(|part| part.split(' ').next()?.parse::<usize>().ok())
        .sum();
    ensure!(functions > 1000, "only {functions} functions\n{said}");
    for (function, calls) in [
        ("tcp_sendmsg", WRITES),
        ("tcp_recvmsg", WRITES),
        ("tcp_v4_connect", 1),
        ("inet_listen", 1),
    ] {
        let row = format!(r#""keys":{{"func":"{function}"}},"values":{{"count()":{calls}}}"#);
        ensure!(
            ended.stdout.matches(&row).count() == 1,
            "no row {row} in\n{}\n{said}",
            ended.stdout
        );
    }
    Ok(())
}

/// Hundreds of functions are hooked, seen, and left as they were.
fn set_of_hundreds(guest: &Guest, words: &[&str]) -> Result<()> {
    let tool = start(guest, words)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut from = TcpStream::connect(listener.local_addr()?)?;
    let (mut to, _) = listener.accept()?;
    from.write_all(b"four")?;
    to.read_exact(&mut [0; 4])?;
    let mut tool = tool;
    tool.wait_output(|text| text.contains("tcp_sendmsg(") && text.contains("tcp_recvmsg("));
    let (events, ended) = ended(tool)?;
    let said = &ended.stderr;
    for function in ["tcp_sendmsg", "tcp_recvmsg", "tcp_v4_connect"] {
        ensure!(
            events
                .iter()
                .any(|event| event.function == function && event.pid == std::process::id()),
            "no event of {function}\n{said}"
        );
    }
    let count = number_before(said, " functions; left out").context("it does not say how many there are")?;
    ensure!(count >= LARGE, "only {count} functions\n{said}");
    ensure!(
        said.contains("the query does not fit"),
        "what is left out is not told\n{said}"
    );
    let took = said
        .lines()
        .find(|line| line.starts_with("attached: "))
        .and_then(|line| number_text(line, " in ", " ms"))
        .context("how long attaching took is not told")?;
    ensure!(took > 0.0, "attaching took no time\n{said}");
    ensure!(said.contains("detached "), "detaching is not told\n{said}");
    for list in [KPROBES, TRAMPOLINES] {
        let left = std::fs::read_to_string(list).with_context(|| format!("there is no {list}"))?;
        ensure!(
            !left.lines().any(|line| line.contains("tcp_")),
            "{list} still has some:\n{left}"
        );
    }
    Ok(())
}

/// The number between two texts.
fn number_text(line: &str, before: &str, after: &str) -> Option<f64> {
    let (_, rest) = line.rsplit_once(before)?;
    rest.split_once(after)?.0.parse().ok()
}

/// From which version on `features` has to say yes, on the kernels of the matrix.
const FEATURES: [(&str, (u32, u32)); 24] = [
    ("privileges", (0, 0)),
    ("fsession", (7, 2)),
    ("fentry and fexit", (5, 5)),
    ("fentry and fexit cookies", (5, 19)),
    ("fentry_multi", (7, 2)),
    ("fexit_multi", (7, 2)),
    ("fsession_multi", (7, 2)),
    ("kprobe.session", (6, 10)),
    // 5.18, but Debian's 6.1 is built without fprobe.
    ("kprobe.multi", (6, 2)),
    ("kprobes", (0, 0)),
    ("typed tracepoints", (5, 5)),
    ("uprobe.session", (6, 13)),
    ("uprobe.multi", (6, 6)),
    ("uprobes", (0, 0)),
    ("ring buffer", (5, 8)),
    ("bpf_get_attach_cookie", (5, 15)),
    ("bpf_get_stack", (4, 18)),
    ("bpf_get_func_ip", (5, 15)),
    ("bpf_get_func_arg", (5, 17)),
    ("bpf_get_func_arg_cnt", (5, 17)),
    ("bpf_get_func_ret", (5, 17)),
    ("bpf_loop", (5, 17)),
    ("bpf_get_current_task_btf", (5, 11)),
    ("typed integer pointers", (5, 17)),
];

/// Each answer is what is known of a kernel of that version.
fn features(guest: &Guest, _: &str) -> Result<()> {
    let ended = Tool::start(&guest.tool, &["features".to_owned()])?.finish()?;
    ensure!(ended.status.success(), "it ended with {}", ended.status);
    let mut wrong = String::new();
    for (name, since) in FEATURES {
        let line = ended.stdout.lines().find_map(|line| {
            let answer = line.trim_start().strip_prefix(name)?;
            answer.starts_with("  ").then(|| answer.trim().to_owned())
        });
        let right = if guest.version() >= since { "yes" } else { "no: " };
        match line {
            Some(answer) if answer.starts_with(right) => {}
            other => wrong.push_str(&format!("{name}: {other:?}, and not {right}\n")),
        }
    }
    ensure!(wrong.is_empty(), "{wrong}{}", ended.stdout);
    Ok(())
}

/// Runs `id -g`, which asks for the group; its process id.
fn asks_for_group() -> Result<u32> {
    let mut child = Command::new("id").arg("-g").spawn()?;
    let pid = child.id();
    ensure!(child.wait()?.success(), "id(1) failed");
    Ok(pid)
}

fn has(text: &str, pid: u32) -> bool {
    output::events(text, true).is_ok_and(|events| events.iter().any(|event| event.pid == pid))
}

/// A system call's function has several names, of which BTF knows another.
fn alias(guest: &Guest, query: &str) -> Result<()> {
    let mut tool = start(guest, &["-v", query])?;
    let pid = asks_for_group()?;
    tool.wait_output(|text| has(text, pid));
    let (events, ended) = ended(tool)?;
    ensure!(
        events
            .iter()
            .any(|event| event.pid == pid && event.function == "__x64_sys_getegid"),
        "{events:?}\n{}",
        ended.stderr
    );
    Ok(())
}

/// In a list each name is what it is by itself.
fn list_of_any(guest: &Guest, query: &str) -> Result<()> {
    let mut tool = start(guest, &["-v", query])?;
    let pid = asks_for_group()?;
    tool.wait_output(|text| has(text, pid) && text.contains("__x64_sys_getegid("));
    let (events, ended) = ended(tool)?;
    for function in ["__x64_sys_getegid", "vfs_open"] {
        ensure!(
            events
                .iter()
                .any(|event| event.pid == pid && event.function == function),
            "no event of {function}\n{}",
            ended.stderr
        );
    }
    Ok(())
}

/// A process that opens files on one CPU.
fn opens_on(cpu: &str) -> Result<u32> {
    let mut child = Command::new("taskset")
        .args(["-c", cpu, "cat", "/etc/hosts"])
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let pid = child.id();
    ensure!(child.wait()?.success(), "cat(1) on CPU {cpu} failed");
    Ok(pid)
}

fn one_cpu(guest: &Guest, query: &str) -> Result<()> {
    let mut tool = start(guest, &["-v", "--cpu", "1", query])?;
    let (other, own) = (opens_on("0")?, opens_on("1")?);
    tool.wait_output(|text| has(text, own));
    let (_, ended) = ended(tool)?;
    let file = "/etc/hosts";
    // The columns of an event are time, CPU and process.
    let on: Vec<(&str, &str)> = ended
        .stdout
        .lines()
        .filter(|line| line.contains("do_sys_openat2("))
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            Some((words.next()?, words.next()?))
        })
        .collect();
    ensure!(
        on.iter().any(|(_, pid)| *pid == own.to_string()),
        "{file} opened on CPU 1 is not shown\n{}",
        ended.stdout
    );
    ensure!(
        on.iter().all(|(cpu, _)| *cpu == "1"),
        "events of other CPUs, and {other} was on 0\n{}",
        ended.stdout
    );
    Ok(())
}

fn ends_in_time(guest: &Guest, query: &str) -> Result<()> {
    let tool = start(guest, &["-v", "--for", "1", query])?;
    let attached = Instant::now();
    let ended = tool.finish()?;
    ensure!(ended.status.success(), "it ended with {}", ended.status);
    // From before attaching on, so that less may be left now; detaching takes its time.
    ensure!(attached.elapsed() < Duration::from_secs(20), "it took too long");
    ensure!(ended.stderr.contains("detached "), "{}", ended.stderr);
    Ok(())
}

/// "Linux version" is where `linux_banner` is.
fn symbols(guest: &Guest, query: &str) -> Result<()> {
    let mut tool = start(guest, &["-v", query])?;
    let pid = opens_on("0")?;
    tool.wait_output(|text| has(text, pid));
    let (events, ended) = ended(tool)?;
    let event = event_of(&events, pid, &ended)?;
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0u64, |word, byte| word << 8 | u64::from(*byte))
    };
    let wants = [
        ("a", word(b"Linu").to_string()),
        ("b", u64::from(b'v').to_string()),
        // There may be more where its length ends.
        ("d", "\"Linux version\"...".to_owned()),
    ];
    for (label, want) in wants {
        let value = event.values.iter().find(|value| value.label == label);
        ensure!(
            value.is_some_and(|value| value.text.ends_with(&want)),
            "{label} is {value:?}, not {want}"
        );
    }
    Ok(())
}

/// The scheduler's data of a CPU say which it is and what runs there.
fn this_cpu(guest: &Guest, query: &str) -> Result<()> {
    for attach in ["auto", "kprobe"] {
        for cpu in ["0", "1"] {
            let mut tool = start(guest, &["-v", "--attach", attach, query])?;
            let pid = opens_on(cpu)?;
            tool.wait_output(|text| has(text, pid));
            let (events, ended) = ended(tool)?;
            let event = event_of(&events, pid, &ended)?;
            let value = |label: &str| {
                let found = event.values.iter().find(|value| value.label == label);
                found
                    .and_then(|value| value.text.rsplit(')').next())
                    .unwrap_or_default()
            };
            ensure!(
                value("run") == cpu && value("cpu") == cpu && value("runs") == value("me"),
                "by {attach} on CPU {cpu}: {:?}",
                event.values
            );
        }
    }
    Ok(())
}

/// The compiler's only copy of a function is what is meant by the function's name; if it can't be hooked, it is said why that copy can't.
fn init_copy(guest: &Guest, query: &str) -> Result<()> {
    let symbols = std::fs::read_to_string("/proc/kallsyms")?;
    let mut own: Vec<(u64, &str)> = Vec::new();
    for line in symbols.lines().filter(|line| !line.contains('[')) {
        let mut words = line.split_whitespace();
        if let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next()) {
            own.push((u64::from_str_radix(address, 16)?, name));
        }
    }
    let bound = |wanted: &str| {
        let found = own.iter().find(|(_, name)| *name == wanted);
        found
            .map(|(address, _)| *address)
            .with_context(|| format!("no {wanted}"))
    };
    let initial = bound("_sinittext")?..bound("_einittext")?;
    let stems = |name: &str| {
        own.iter()
            .filter(|(_, other)| other.split('.').next() == name.split('.').next())
            .count()
    };
    let mut tried = 0;
    for (_, copy) in own.iter().filter(|(address, name)| {
        initial.contains(address) && name.contains(".constprop.") && stems(name) == 1
    }) {
        let name = copy.split('.').next().unwrap_or(copy);
        let output = Command::new(&guest.tool)
            .args(["--attach", "kprobe", &format!("{name}{query}")])
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        // Others are not in BTF.
        if !said.contains("is a copy that the compiler made for itself") {
            continue;
        }
        tried += 1;
        ensure!(
            said.contains(&format!("`{copy}` ran while the kernel started")),
            "of {copy} it is not said why\n{said}"
        );
        ensure!(
            !said.contains("name one of them"),
            "bad advice about {copy}\n{said}"
        );
        if tried == 3 {
            break;
        }
    }
    // Not every kernel has one.
    eprintln!("{tried} copies");
    Ok(())
}

/// Registers, bitfields and constants as the kernel's probe events have them.
fn registers(guest: &Guest, query: &str) -> Result<()> {
    let mut tool = start(guest, &["-v", query])?;
    let pid = opens_on("0")?;
    tool.wait_output(|text| has(text, pid) && text.contains("/etc/hosts"));
    let (events, ended) = ended(tool)?;
    let event = events
        .iter()
        .find(|event| {
            let mut values = event.values.iter();
            event.pid == pid && values.any(|value| value.text.ends_with("\"/etc/hosts\""))
        })
        .with_context(|| format!("no event\n{}", ended.stderr))?;
    let text = |label: &str| {
        let mut values = event.values.iter();
        let value = values.find(|value| value.label == label);
        value.map_or("", |value| value.text.as_str())
    };
    let wants = [
        // `AT_FDCWD`.
        ("a", "-100".to_owned()),
        ("b", "\"/etc/hosts\"".to_owned()),
        // cat(1) opens for reading, and large files too (`O_LARGEFILE`, bit 15).
        ("e", "0".to_owned()),
        ("f", "0".to_owned()),
        ("g", "-5".to_owned()),
        ("h", "\"a text\"".to_owned()),
    ];
    for (label, want) in wants {
        ensure!(
            text(label).ends_with(&want),
            "{label} is {}, not {want}\n{}",
            text(label),
            ended.stdout
        );
    }
    let hex = text("c").rsplit("0x").next().unwrap_or("");
    ensure!(
        !hex.is_empty() && text("d").contains(hex),
        "{} is not {}",
        text("c"),
        text("d")
    );
    ensure!(text("i").contains("do_sys_openat2"), "%ip is {}", text("i"));
    Ok(())
}

/// Several strings behind pointers in memory.
fn strings(guest: &Guest, query: &str) -> Result<()> {
    let mut tool = start(guest, &["-v", query])?;
    let mut child = Command::new("/bin/cat").arg("/etc/hosts").spawn()?;
    let pid = child.id();
    ensure!(child.wait()?.success(), "cat(1) failed");
    tool.wait_output(|text| has(text, pid));
    let (events, ended) = ended(tool)?;
    let event = event_of(&events, pid, &ended)?;
    for (label, want) in [("a[0]", "\"/bin/cat\""), ("a[1]", "\"/etc/hosts\"")] {
        let value = event.values.iter().find(|value| value.label == label);
        ensure!(
            value.is_some_and(|value| value.text.ends_with(want)),
            "{label} is {value:?}, not {want}\n{}",
            ended.stdout
        );
    }
    Ok(())
}

/// `--stack` is `-s`.
fn long_stack(guest: &Guest, query: &str) -> Result<()> {
    let mut tool = start(guest, &["-v", "--stack", "do_sys_openat2()", query])?;
    let pid = opens_on("0")?;
    tool.wait_output(|text| has(text, pid));
    let (events, ended) = ended(tool)?;
    let own: Vec<&str> = events
        .iter()
        .filter(|event| event.pid == pid)
        .map(|event| event.function.as_str())
        .take(2)
        .collect();
    ensure!(own == ["do_sys_openat2", "vfs_open"], "{own:?}\n{}", ended.stderr);
    Ok(())
}

const MIGRATES: &str = "hrtimer_nanosleep(before=entry(cpu), after=exit(cpu), who=entry(tid), return == 0)";

fn migrates(guest: &Guest, query: &str) -> Result<()> {
    moves(guest, &["-v", query])
}

fn migrates_by_kprobes(guest: &Guest, query: &str) -> Result<()> {
    // By itself a kretprobe has room for as many calls as there are CPUs, and others sleep too.
    moves(guest, &["-v", "--attach", "kprobe", "--maxactive", "64", query])
}

/// A task sleeps in a call on one CPU and returns on another: what its entry kept is its own.
fn moves(guest: &Guest, words: &[&str]) -> Result<()> {
    let mut tool = start(guest, words)?;
    let sleep =
        |cpu: &str| -> Result<Child> { Ok(Command::new("taskset").args(["-c", cpu, "sleep", "4"]).spawn()?) };
    // Each goes where the other was.
    let mut children = [sleep("0")?, sleep("1")?];
    for child in &children {
        asleep(child.id())?;
    }
    for (child, cpu) in children.iter().zip(["1", "0"]) {
        let moved = Command::new("taskset")
            .args(["-p", "-c", cpu, &child.id().to_string()])
            .stdout(std::process::Stdio::null())
            .status()?;
        ensure!(moved.success(), "taskset(1) failed");
    }
    let pids = [children[0].id(), children[1].id()];
    for child in &mut children {
        ensure!(child.wait()?.success(), "sleep(1) failed");
    }
    tool.wait_output(|text| pids.iter().all(|pid| has(text, *pid)));
    let (events, ended) = ended(tool)?;
    for (pid, before, after) in [(pids[0], 0, 1), (pids[1], 1, 0)] {
        let event = event_of(&events, pid, &ended)?;
        for (label, want) in [("before", before), ("after", after), ("who", pid)] {
            let value = event.values.iter().find(|value| value.label == label);
            ensure!(
                value.is_some_and(|value| value.text.ends_with(&format!("){want}"))),
                "{label} of {pid} is {value:?}, not {want}"
            );
        }
    }
    Ok(())
}

/// Waits until the task sleeps in its call.
fn asleep(pid: u32) -> Result<()> {
    for _ in 0..200 {
        // The name is another once it has been executed, and what it does then is to sleep.
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if status.contains("(sleep) S") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    anyhow::bail!("{pid} does not sleep")
}

/// Why a better way was not taken is told.
fn reasons(guest: &Guest, query: &str) -> Result<()> {
    let tool = start(guest, &["-v", query])?;
    let (_, ended) = ended(tool)?;
    ensure!(
        ended
            .stderr
            .contains("do_sys_openat2: not by fsession: this kernel has no BPF_TRACE_FSESSION"),
        "{}",
        ended.stderr
    );
    ensure!(
        ended.stderr.contains("by fentry and fexit at 1 function in "),
        "{}",
        ended.stderr
    );
    Ok(())
}
