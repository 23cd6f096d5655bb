//! What the original ksnoop does wrong, each impossible here; and the options that its users asked for.
//!
//! In: nothing. Out: cases. They never need the original.
//!
//! | fault of the original | tests |
//! |---|---|
//! | 1 `info`: more than 5 arguments, function pointers, pointers to pointers, `const` | `ksnoop.fault_01.*` |
//! | 2 no event without arguments, for void, NULL and ERR_PTR returns | `ksnoop.fault_02.*`, `fixture.returns.ptr`, `.node` |
//! | 3 comparisons are unsigned and of 64 bits | `ksnoop.fault_03.*`, `fixture.returns.int_lt_0`, `kernel.openat2.return_lt_0` |
//! | 4 a fault lets the event pass, or compares as 0 | `ksnoop.fault_04.*` |
//! | 5 junk is taken for a predicate or for none | `ksnoop.fault_05.*`, `tests/golden/wrong.txt` |
//! | 6 bitfields by bytes, large offsets cut, structs by value | `fixture.bits.*`, `fixture.structs.*` |
//! | 7 the stash by CPU and function | `fixture.time.sleep_saved`, `.recursion_saved`, `fixture.duration.*` |
//! | 8 stacks of tasks are never freed, missed returns | `ksnoop.fault_08.*`, `fixture.stack.*` |
//! | 9 the first symbol wins, no modules, no suffixes | `fixture.names.*` |
//! | 10 `-p` is a thread id, junk is no filter | `ksnoop.fault_10.*` |
//! | 11 silent where functions begin with `endbr` | every `@kprobe` case from 6.12 on |
//! | 12 `void *` and `char *` | `ksnoop.fault_12.*`, `fixture.returns.str` |

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::case::{Case, Scope, Work};
use crate::guest::{self, Guest, Need};
use crate::output;
use crate::tool::Tool;
use crate::want::{Is, Want};

const NEST: &str = "ksj_fixture:ksj_c(v)";

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let ends = |name: &str, query: &str, status, says: &[&'static str]| {
        let says = says.to_vec();
        Case::new(&format!("ksnoop.{name}"), query, Work::Ends { status, says })
    };
    let info =
        |name: &str, function: &str, says: &[&'static str]| ends(name, "info", 0, says).query(function);
    cases.extend([
        info(
            "fault_01.many_arguments",
            "__ip_append_data",
            &["struct sock *sk, struct flowi4 *fl4", "unsigned int flags);"],
        ),
        info(
            "fault_01.function_pointer",
            "kthread_create_on_node",
            &["int (*threadfn)(void *), void *data, int node", "...);"],
        ),
        info(
            "fault_01.pointer_to_pointer",
            "get_user_pages_fast",
            &["struct page **pages"],
        ),
        info(
            "fault_01.const",
            "vfs_open",
            &["const struct path *path, struct file *file);"],
        ),
        ends(
            "fault_05.no_operator",
            "vfs_open(file=3)",
            2,
            &["did you mean `==`?"],
        ),
        ends("fault_05.junk_behind", "vfs_open(file==3foo)", 2, &["3foo"]),
        ends("fault_05.unclosed", "vfs_open(file", 2, &["E0136"]),
        ends(
            "fault_05.overflow",
            "vfs_open(file==0x1ffffffffffffffff)",
            2,
            &["E0116"],
        ),
        ends("fault_10.junk", "vfs_open(file)", 2, &["junk"]).options(&["-p", "junk"]),
        ends("fault_10.no_function", "-p", 2, &["QUERY"]).query("1"),
    ]);

    // Its options and commands, under its own names; a command may be cut short.
    let version = Work::Ends {
        status: 0,
        says: vec!["ksnoop-jit "],
    };
    cases.push(Case::new("ksnoop.option.version", "-V", version));
    cases.push(info("command.info_cut", "vfs_open", &["int vfs_open("]));
    for case in cases
        .iter_mut()
        .filter(|case| case.name == "ksnoop.command.info_cut")
    {
        case.queries[0] = "inf".to_owned();
    }
    cases.extend([
        ends("command.help", "help", 0, &["--pages", "trace", "info", "list"]),
        ends("command.no_function", "info", 2, &["no_such_function"]).query("no_such_function"),
        ends("command.misspelt_function", "info", 2, &["did you mean vfs_open"]).query("vfs_opeen"),
        ends("command.info_tracepoint", "info", 0, &["sched_switch("]).query("tp:sched_switch"),
        ends(
            "command.info_varargs",
            "info",
            0,
            &["void seq_printf(struct seq_file *m, const char *f, ...);"],
        )
        .query("seq_printf"),
        ends("command.list", "list", 0, &["int vfs_open("]).query("vfs_op*"),
        ends("command.list_module", "list", 0, &["int vfs_open("]).query("vmlinux:vfs_op*"),
        ends("command.info_pattern", "info", 2, &["ksnoop-jit list 'vfs_*'"]).query("vfs_*"),
        ends(
            "command.info_module",
            "info",
            2,
            &["no module no_such_module is loaded"],
        )
        .query("no_such_module:f"),
        ends(
            "command.type_pointer",
            "type",
            0,
            &["struct path {", "struct dentry *dentry;"],
        )
        .query("struct path *"),
        ends("command.features_cut", "feat", 0, &["kprobe.multi "]),
        ends(
            "command.type",
            "type",
            0,
            &["struct path {", "struct dentry *dentry;"],
        )
        .query("struct path"),
        ends(
            "command.features",
            "features",
            0,
            &["kprobes ", "uprobe.session ", "fsession_multi ", "kprobe.multi "],
        ),
    ]);
    for (name, options) in [
        ("debug", &["-d"][..]),
        ("pages", &["-P", "16"]),
        ("pid", &["-p", "SELF"]),
        ("trace_cut", &[]),
    ] {
        let mut case = Case::new(
            &format!("ksnoop.option.{name}"),
            "do_sys_openat2(return == -2)",
            Work::Call(missing_file),
        )
        .options(options)
        .scope(Scope::Mine);
        for option in case.options.iter_mut().filter(|option| *option == "SELF") {
            *option = std::process::id().to_string();
        }
        if name == "trace_cut" {
            case.options.push("tr".to_owned());
        }
        if name == "debug" {
            case = case.tells("instructions verified");
        }
        cases.push(case);
    }

    let fixture = |name: &str, query: &str, work| {
        Case::new(&format!("ksnoop.{name}"), query, work)
            .needs(Need::Fixture)
            .fentry_too()
    };
    let groups = |groups: &'static [&'static str], wants| Work::Groups(groups, wants);
    let v = |number| Want::new("ksj_c").int("v", "int", number);
    let empty = || Want::new("fx_run_hot");
    cases.extend(fixture(
        "fault_02.no_values",
        "ksj_fixture:fx_run_hot()",
        groups(&["hot"], vec![empty()]),
    ));
    let null = || vec![Want::new("ksj_ret_ptr").with("return", Is::Ptr(0))];
    // A function of any number of arguments has those of its prototype.
    let formatted = Want::new("ksj_varargs").with("fmt", Is::Text("(char *)\"%d %s\"".to_owned()));
    cases.extend(
        Case::new(
            "ksnoop.varargs",
            "ksj_fixture:ksj_varargs(fmt)",
            groups(&["names"], vec![formatted.clone()]),
        )
        .needs(Need::Fixture)
        .both(),
    );
    let formatted = formatted.int("return", "int", 2);
    cases.extend(
        Case::new(
            "ksnoop.varargs.both",
            "ksj_fixture:ksj_varargs(fmt, return == 2)",
            groups(&["names"], vec![formatted]),
        )
        .needs(Need::Fixture)
        .both(),
    );
    cases.extend(fixture(
        "fault_02.null",
        "ksj_fixture:ksj_ret_ptr(return == 0)",
        groups(&["returns"], null()),
    ));
    let negative = |n| Want::new("ksj_ret_s8").int("return", "s8", n);
    cases.extend(fixture(
        "fault_03.minus_100",
        "ksj_fixture:ksj_ret_s8(return == -100)",
        groups(&["returns"], vec![negative(-100)]),
    ));
    // Whatever is behind NULL, an error pointer or a bad address decides nothing.
    cases.extend(fixture(
        "fault_04.member",
        "ksj_fixture:ksj_ret_node(return->id != 7)",
        groups(&["returns"], vec![]),
    ));
    cases.extend(fixture(
        "fault_04.as_zero",
        "ksj_fixture:ksj_ret_node(return->id == 0)",
        groups(&["returns"], vec![]),
    ));
    cases.extend(fixture(
        "fault_12.char_pointer",
        "ksj_fixture:ksj_ret_str(return)",
        groups(
            &["returns"],
            vec![Want::new("ksj_ret_str").with("return", Is::Text("(char *)\"hello\"".to_owned()))],
        ),
    ));
    cases.extend(
        fixture("option.comm", NEST, groups(&["nest"], vec![v(4)]))
            .map(|case| case.options(&["--comm", "gu*t-test*"])),
    );
    cases.extend(
        fixture("option.other_comm", NEST, groups(&["nest"], vec![]))
            .map(|case| case.options(&["--comm", "*x"])),
    );
    cases.extend(
        fixture("option.uid", NEST, groups(&["nest"], vec![v(4)])).map(|case| case.options(&["--uid", "0"])),
    );
    cases.extend(
        fixture("option.other_uid", NEST, groups(&["nest"], vec![]))
            .map(|case| case.options(&["--uid", "1"])),
    );
    let own = |name: &str, query: &str, work| {
        Case::new(&format!("ksnoop.{name}"), query, Work::Own(work)).needs(Need::Fixture)
    };
    cases.extend([
        own("fault_08.many_tasks", "ksj_fixture:ksj_c(v)", many_tasks),
        own("fault_10.process", NEST, process_of_thread),
        own("option.cgroup", NEST, cgroup),
        own("option.follow", NEST, follow),
    ]);

    // Kernel functions too, for kernels that know nothing of modules.
    let chain = Case::new("ksnoop.stack", "do_sys_openat2(dfd)", Work::Call(opened)).query("vfs_open()");
    cases.extend(chain.options(&["-s"]).scope(Scope::Mine).both());
    let timed = Case::new(
        "ksnoop.duration",
        "do_sys_openat2(dfd == -100, duration > 0)",
        Work::Call(timed),
    );
    cases.extend(timed.scope(Scope::Mine).both());
    let fetched = Case::new(
        "ksnoop.fetch",
        "do_sys_openat2(fd=$arg1:s32, path=+u0($arg2):ustring, from=$stack0:symbol)",
        Work::Call(fetched),
    );
    cases.push(fetched.scope(Scope::Mine).options(&["--attach", "kprobe"]));
    cases
}

fn opened() -> Result<Vec<Want>> {
    drop(std::fs::File::open("/etc/hosts")?);
    let entered = Want::new("do_sys_openat2").int("dfd", "int", -100);
    Ok(vec![entered, Want::new("vfs_open")])
}

fn missing_file() -> Result<Vec<Want>> {
    ensure!(
        std::fs::File::open("/tmp/there is no such file").is_err(),
        "a file that should not be there is"
    );
    Ok(vec![Want::new("do_sys_openat2").with("return", Is::Num(-2))])
}

fn timed() -> Result<Vec<Want>> {
    drop(std::fs::File::open("/etc/hosts")?);
    let took = Is::Between("long unsigned int", 1, 10_000_000_000);
    Ok(vec![
        Want::new("do_sys_openat2")
            .int("dfd", "int", -100)
            .with("duration", took),
    ])
}

fn fetched() -> Result<Vec<Want>> {
    drop(std::fs::File::open("/etc/hosts")?);
    Ok(vec![
        Want::new("do_sys_openat2")
            .with("fd", Is::Num(-100))
            .with("path", Is::Has(vec!["\"/etc/hosts\"".to_owned()]))
            .with("from", Is::Has(vec!["sys_open".to_owned()])),
    ])
}

/// Runs the tool with these options while `work` is done; how many events of the function there are.
fn events(guest: &Guest, options: &[&str], query: &str, work: impl FnOnce() -> Result<()>) -> Result<usize> {
    let args = options.iter().copied().chain(["-v", query]).map(str::to_owned);
    let mut tool = Tool::start(&guest.tool, &args.collect::<Vec<_>>())?;
    tool.wait_attached()?;
    work()?;
    tool.wait_output(|_| true);
    tool.interrupt()?;
    let ended = tool.finish()?;
    ensure!(
        ended.status.code() == Some(0),
        "it ended with {}: {}",
        ended.status,
        ended.stderr
    );
    Ok(output::events(&ended.stdout, false)?.len())
}

fn wanted(what: &str, got: usize, want: usize) -> Result<()> {
    ensure!(got == want, "{what}: {got} events instead of {want}");
    Ok(())
}

fn shell(script: &str) -> Result<()> {
    let status = Command::new("/bin/bash").args(["-c", script]).status()?;
    ensure!(status.success(), "`{script}` ended with {status}");
    Ok(())
}

/// More tasks than the original has stacks for, one after the other, each in the chain.
fn many_tasks(guest: &Guest, query: &str) -> Result<()> {
    const TASKS: usize = 2500;
    let work = || -> Result<()> {
        for _ in 0..TASKS {
            let thread = std::thread::spawn(|| guest::run_group("nest"));
            thread.join().map_err(|_| anyhow::anyhow!("a thread died"))??;
        }
        Ok(())
    };
    let options = ["-s", "--attach", "kprobe", "ksj_fixture:ksj_a(v)"];
    wanted("chains", events(guest, &options, query, work)?, 2 * TASKS)
}

/// A thread that is not the process's first has the same process id, and another thread id.
fn process_of_thread(guest: &Guest, query: &str) -> Result<()> {
    let pid = std::process::id().to_string();
    let in_thread = || -> Result<()> {
        let thread = std::thread::spawn(|| guest::run_group("nest"));
        thread.join().map_err(|_| anyhow::anyhow!("a thread died"))?
    };
    wanted("-p", events(guest, &["-p", &pid], query, in_thread)?, 1)?;
    wanted("-t", events(guest, &["-t", &pid], query, in_thread)?, 0)
}

fn cgroup(guest: &Guest, query: &str) -> Result<()> {
    shell("mkdir -p /tmp/cg && (mountpoint -q /tmp/cg || mount -t cgroup2 none /tmp/cg) && mkdir -p /tmp/cg/a/b /tmp/cg/c")
        .context("no cgroups")?;
    let inside = |group: &str| {
        shell(&format!(
            "echo $$ > /tmp/cg/{group}/cgroup.procs && echo nest > /sys/kernel/debug/ksj/run"
        ))
    };
    let options = ["--cgroup", "/tmp/cg/a"];
    wanted("in it", events(guest, &options, query, || inside("a"))?, 1)?;
    wanted("below it", events(guest, &options, query, || inside("a/b"))?, 1)?;
    wanted("beside it", events(guest, &options, query, || inside("c"))?, 0)?;
    wanted(
        "above it",
        events(guest, &options, query, || guest::run_group("nest"))?,
        0,
    )
}

fn follow(guest: &Guest, query: &str) -> Result<()> {
    let command = "/bin/bash -c 'echo nest > /sys/kernel/debug/ksj/run; (echo nest > /sys/kernel/debug/ksj/run; /bin/bash -c \"echo nest > /sys/kernel/debug/ksj/run; true\"); true'";
    let run = |options: &[&str]| -> Result<usize> {
        let mut args: Vec<String> = ["-c", command, query].map(str::to_owned).into();
        args.extend(options.iter().map(|option| (*option).to_owned()));
        let ended = Tool::start(&guest.tool, &args)?.finish()?;
        ensure!(
            ended.status.code() == Some(0),
            "it ended with {}: {}",
            ended.status,
            ended.stderr
        );
        Ok(output::events(&ended.stdout, false)?.len())
    };
    wanted("-c", run(&[])?, 1)?;
    wanted("-c --follow", run(&["--follow"])?, 3)
}
