//! Tests on the kernel's own functions, with traffic of our own making.
//!
//! In: nothing. Out: cases whose workloads say what they did: sizes sent, ports used, inode numbers from
//! `stat`. They never assume that nobody else opens a file or sends a packet, unless nobody does.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::case::{Case, Scope, Work};
use crate::guest::{self, Guest, Need};
use crate::output;
use crate::tool::Tool;
use crate::want::{Is, Want};

/// 127.0.0.1 as a big-endian number read on a little-endian machine.
const LOOPBACK: i128 = 0x0100_007f;
/// IPv4's and UDP's headers.
const HEADERS: usize = 20 + 8;
const AT_FDCWD: i128 = -100;

const IP_RCV: &str = "ip_rcv(skb->len > 0xff, skb)";
const IP_SEND: &str = "ip_send_skb(skb->sk)";
const VFS_OPEN: &str = "vfs_open(path->dentry->d_parent->d_inode->i_ino)";
const TCP_SEND: &str = "tcp_sendmsg(sk->__sk_common.skc_daddr, size >= 1)";
const OPENAT2: &str = "do_sys_openat2";
const SAVED: &str = "do_sys_openat2(dfd == -100, return < 0)";
const MOVED: &str = "vfs_read(entry(*pos) != exit(*pos), moved=exit(*pos) - entry(*pos)) if count == 33";
const SWITCH: &str = "tp:sched_switch(prev->comm, next->pid, next->mm->owner->pid > 1)";

/// What the kernel's verifier is strictest about, and the older the stricter: strings and patterns byte for byte, lengths that are
/// computed, copies of neighbouring members, addresses, layouts that are relocated.
const LANGUAGE: [(&str, &str); 14] = [
    (
        "glob.pointer",
        "vfs_open(path->dentry->d_name.name =~ \"*a*[0-9].so\")",
    ),
    (
        "glob.many",
        "vfs_open(path->dentry->d_name.name =~ \"*abcdefghijklmnopqrstuvwxyz*\" || comm =~ \"?[!x]*y\")",
    ),
    (
        "glob.array",
        "ip_rcv(dev->name =~ \"*[!l]o*\", dev->name =~ \"eth?\", skb->len)",
    ),
    ("glob.shown", "ip_rcv(x=(int)(dev->name =~ \"v*h[0-9]*\"))"),
    (
        "string.long",
        "vfs_open(path->dentry->d_name.name != \"0123456789012345678901234567890123456789012345678901234567890123456789\")",
    ),
    (
        "address",
        "ip_rcv(dev->dev_addr != mac(\"02:00:5e:10:00:01\"), skb->sk->__sk_common.skc_v6_daddr != ip(\"fe80::1\"))",
    ),
    (
        "buffer",
        "ip_rcv(buf(skb->data, 20), buf(skb->data, skb->len), buf(skb->head, skb->len - 20):hex)",
    ),
    (
        "string.sized",
        "ip_rcv(str(skb->data, skb->len), str(skb->data, 9) == \"GET / HTT\", func)",
    ),
    (
        "neighbours",
        "ip_rcv(skb->len, skb->data_len, skb->mac_len, skb->hdr_len, skb->protocol, skb->dev->ifindex)",
    ),
    (
        "neighbours.nested",
        "vfs_open(file->f_flags, file->f_mode, path->dentry->d_inode->i_mode, path->dentry->d_inode->i_ino, path->dentry->d_sb->s_dev)",
    ),
    (
        "layout",
        "ip_rcv(skb[skb->len & 1].len, container_of(skb, struct sk_buff, cb)->len, sizeof(struct sk_buff) * 2)",
    ),
    (
        "divide",
        "ip_rcv((int)skb->len / -8, skb->len / 10 % 4, skb->len / skb->data_len)",
    ),
    (
        "tp",
        "tp:sched_switch(prev->comm =~ \"*w*k\", next->comm == \"bash\", ksym(prev->stack), (next - prev) / 2)",
    ),
    (
        "tp.buffer",
        "tp:sched_switch(buf(prev->comm, 16), buf(prev, prev->pid), str(prev->comm, next->pid))",
    ),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut both = |case: Case| cases.extend(case.both());
    let call = |name: &str, query: &str, work| Case::new(name, query, Work::Call(work));

    both(call("kernel.ip_rcv", IP_RCV, large_datagram));
    both(call(
        "kernel.ip_rcv.range",
        "ip_rcv(skb->len >= 100, skb->len < 200)",
        range_of_datagrams,
    ));
    both(call(
        "kernel.ip_rcv.bitfield",
        "ip_rcv(skb->pkt_type == 0, skb->len == 1028)",
        host_datagram,
    ));
    both(call(
        "kernel.ip_rcv.array",
        "ip_rcv(skb->dev->name[0], skb->dev->name[1], skb->len)",
        device,
    ));
    both(call("kernel.ip_send_skb", IP_SEND, sending_socket));
    // On 5.10, which has no cookies, each has a program of its own.
    both(call("kernel.set", "udp_sendmsg,udp_recvmsg(len)", set_entries));
    both(call(
        "kernel.set_saved",
        "udp_sendmsg,udp_recvmsg(len, return > 0)",
        set_saved,
    ));
    both(call("kernel.vfs_open", VFS_OPEN, opens).scope(Scope::Mine));
    both(call("kernel.tcp_sendmsg", TCP_SEND, tcp_sizes).scope(Scope::Mine));
    both(call("kernel.large", &large(), ancestors).scope(Scope::Mine));
    both(call("kernel.large.judged", &large_judged(), ancestors_judged).scope(Scope::Mine));
    both(call("kernel.openat2", OPENAT2, openat2_all).scope(Scope::Mine));
    both(
        call(
            "kernel.openat2.return_lt_0",
            "do_sys_openat2(return < 0)",
            openat2_fails,
        )
        .scope(Scope::Mine),
    );
    both(
        call(
            "kernel.openat2.return_eq",
            "do_sys_openat2(return == -2)",
            openat2_fails,
        )
        .scope(Scope::Mine),
    );
    both(call("kernel.openat2.saved_entry", SAVED, openat2_saved).scope(Scope::Mine));
    both(call("kernel.both_moments", MOVED, reads_on).scope(Scope::Mine));
    both(
        call("kernel.two_queries", "vfs_open(file != 0)", open_and_send)
            .query("tcp_sendmsg(size == 77)")
            .scope(Scope::Mine),
    );
    // Where there is no bpf_get_current_task_btf, the older helper does.
    both(
        call(
            "kernel.newer_helper",
            "do_sys_openat2(task->pid, return == -2)",
            openat2_of_this_task,
        )
        .scope(Scope::Mine),
    );
    both(
        call("kernel.count", "ip_rcv(skb->len)", three_datagrams)
            .options(&["-n", "3"])
            .ends_itself(),
    );
    both(
        Case::new(
            "kernel.check",
            IP_RCV,
            Work::Ends {
                status: 0,
                says: vec![],
            },
        )
        .options(&["--check"]),
    );

    for (name, query) in LANGUAGE {
        let ends = Work::Ends {
            status: 0,
            says: vec![],
        };
        let case = Case::new(&format!("kernel.language.{name}"), query, ends).options(&["--check"]);
        if query.starts_with("tp:") {
            cases.push(case);
        } else {
            cases.extend(case.both());
        }
    }
    // A kretprobe has room for ten calls by itself here: the other returns would be lost.
    cases.push(Case::new(
        "kernel.maxactive",
        "hrtimer_nanosleep(return)",
        Work::Own(many_sleep),
    ));
    // By itself it tells how many it has lost, where the kernel says so.
    cases.push(
        Case::new(
            "kernel.lost_returns",
            "hrtimer_nanosleep(return)",
            Work::Own(lost_returns),
        )
        .needs(Need::TellsMissed),
    );
    cases.push(Case::new(
        "kernel.lost_returns.own_room",
        "hrtimer_nanosleep(return)",
        Work::Own(lost_with_own_room),
    ));
    cases.push(Case::new(
        "kernel.limit",
        "*()",
        Work::Ends {
            status: 2,
            says: vec!["more than 2000 are not traced at once", "--force"],
        },
    ));
    // What tracing itself needs gets a breakpoint, never a trampoline.
    cases.push(
        Case::new(
            "kernel.deny_list",
            "_raw_spin_lock_irqsave(lock)",
            Work::Ends {
                status: 1,
                says: vec!["tracing itself needs `_raw_spin_lock_irqsave`"],
            },
        )
        .options(&["--attach", "fentry"]),
    );

    // A tracepoint has no kprobe form.
    cases.push(
        call(
            "kernel.tp.process_exit",
            "tp:sched_process_exit(p->pid, p->tgid)",
            child_exits,
        )
        .scope(Scope::Among),
    );
    cases.push(
        call(
            "kernel.tp.sched_switch",
            "tp:sched_switch(next->pid, next->mm->owner->pid > 1)",
            child_runs,
        )
        .scope(Scope::Among),
    );
    let mut relocates = |name: &str, query, work| {
        let name = format!("kernel.libbpf_relocates.{name}");
        cases.push(Case::new(&name, query, Work::Own(work)).needs(Need::Bpftool));
    };
    relocates("ip_rcv", IP_RCV, libbpf_relocates);
    relocates("ip_send_skb", IP_SEND, libbpf_relocates);
    relocates("vfs_open", VFS_OPEN, libbpf_relocates);
    relocates("tcp_sendmsg", TCP_SEND, libbpf_relocates);
    relocates("openat2", OPENAT2, libbpf_relocates);
    relocates("openat2.saved", SAVED, libbpf_relocates);
    relocates("tp", SWITCH, libbpf_relocates);
    relocates("vfs_open.kprobe", VFS_OPEN, libbpf_relocates_kprobe);
    relocates("openat2.saved.kprobe", SAVED, libbpf_relocates_kprobe);
    let refused = |name: &str, query: &str, says: &'static str| {
        Case::new(
            &format!("kernel.wrong.{name}"),
            query,
            Work::Ends {
                status: 2,
                says: vec![says, "^"],
            },
        )
    };
    cases.push(refused("function", "ip_rcvv(skb)", "ip_rcv"));
    cases.push(refused("argument", "ip_rcv(skbb)", "skb"));
    cases.push(refused("member", "ip_rcv(skb->lenn)", "len"));
    cases.push(refused("syntax", "ip_rcv(skb->len ~ 3)", "~"));
    cases
}

/// Processes that sleep in one function at once.
const SLEEPERS: usize = 30;

/// Has them sleep, and waits for all; their process ids.
fn sleepers() -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for _ in 0..SLEEPERS {
        children.push(Command::new("sleep").arg("2").spawn()?);
    }
    let pids = children.iter().map(std::process::Child::id).collect();
    for mut child in children {
        ensure!(child.wait()?.success(), "sleep(1) failed");
    }
    Ok(pids)
}

fn lost_returns(guest: &Guest, query: &str) -> Result<()> {
    lost(guest, &["--attach", "kprobe", query])
}

fn lost_with_own_room(guest: &Guest, query: &str) -> Result<()> {
    lost(guest, &["--attach", "kprobe", "--maxactive", "5", query])
}

/// What is shown and what is told to be lost are all there was.
fn lost(guest: &Guest, words: &[&str]) -> Result<()> {
    let args = ["-v"].iter().chain(words).map(|word| (*word).to_owned());
    let mut tool = Tool::start(&guest.tool, &args.collect::<Vec<_>>())?;
    tool.wait_attached()?;
    let pids = sleepers()?;
    tool.wait_output(|_| true);
    tool.interrupt()?;
    let ended = tool.finish()?;
    let events = output::events(&ended.stdout, false)?;
    let shown = events.iter().filter(|event| pids.contains(&event.pid)).count();
    let told: usize = ended
        .stderr
        .lines()
        .find(|line| line.contains(" returns missed, more calls were under way"))
        .and_then(|line| line.split_whitespace().find_map(|word| word.parse().ok()))
        .unwrap_or(0);
    // Others may sleep too, so that more can be lost than is missing here.
    ensure!(
        shown < SLEEPERS && shown + told >= SLEEPERS,
        "{shown} shown, {told} told to be missed, of {SLEEPERS}\n{}",
        ended.stderr
    );
    Ok(())
}

/// Thirty processes sleep in one function at once, and each of their returns is shown.
fn many_sleep(guest: &Guest, query: &str) -> Result<()> {
    let args = ["-v", "--attach", "kprobe", "--maxactive", "64", query].map(str::to_owned);
    let mut tool = Tool::start(&guest.tool, &args)?;
    tool.wait_attached()?;
    let pids = sleepers()?;
    let missing = |text: &str| -> Option<u32> {
        let events = output::events(text, true).ok()?;
        let seen = |pid: &u32| events.iter().any(|event| event.pid == *pid);
        pids.iter().copied().find(|pid| !seen(pid))
    };
    tool.wait_output(|text| missing(text).is_none());
    tool.interrupt()?;
    let ended = tool.finish()?;
    if let Some(pid) = missing(&ended.stdout) {
        anyhow::bail!("the return of process {pid} is missing\n{}", ended.stderr);
    }
    let left = std::fs::read_to_string("/sys/kernel/tracing/kprobe_events")?;
    ensure!(!left.contains("ksnoop_jit"), "a probe is left in tracefs: {left}");
    Ok(())
}

/// A UDP socket pair on the loopback interface; nobody else sends anything in a guest.
struct Udp {
    from: UdpSocket,
    to: UdpSocket,
}

impl Udp {
    fn new() -> Result<Self> {
        let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let to = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        from.connect(to.local_addr()?)?;
        Ok(Self { from, to })
    }

    fn send(&self, payload: usize) -> Result<()> {
        ensure!(
            self.from.send(&vec![b'x'; payload])? == payload,
            "a datagram was cut"
        );
        let mut buffer = vec![0; payload + 1];
        // Only when it is received has ip_rcv() surely been called.
        ensure!(self.to.recv(&mut buffer)? == payload, "a datagram arrived cut");
        Ok(())
    }
}

fn length(payload: usize) -> i128 {
    // Sizes here are a few thousand at most.
    i128::try_from(payload + HEADERS).unwrap_or(i128::MAX)
}

fn large_datagram() -> Result<Vec<Want>> {
    let udp = Udp::new()?;
    for payload in [10, 1000, 227, 228] {
        udp.send(payload)?;
    }
    // 227 + 28 is 0xff, which is not more than 0xff.
    let want = |payload| {
        let parts = [
            "*(0x".to_owned(),
            "(struct sk_buff){".to_owned(),
            format!(".len = (unsigned int){}", length(payload)),
        ];
        Want::new("ip_rcv")
            .int("skb->len", "unsigned int", length(payload))
            .with("skb", Is::Has(parts.to_vec()))
    };
    Ok(vec![want(1000), want(228)])
}

fn range_of_datagrams() -> Result<Vec<Want>> {
    let udp = Udp::new()?;
    for payload in [71, 72, 171, 172, 1000] {
        udp.send(payload)?;
    }
    Ok([100, 199]
        .map(|len| Want::new("ip_rcv").int("skb->len", "unsigned int", len))
        .to_vec())
}

fn host_datagram() -> Result<Vec<Want>> {
    Udp::new()?.send(1000)?;
    Ok(vec![Want::new("ip_rcv").int("skb->pkt_type", "__u8", 0).int(
        "skb->len",
        "unsigned int",
        1028,
    )])
}

fn device() -> Result<Vec<Want>> {
    Udp::new()?.send(1)?;
    Ok(vec![
        Want::new("ip_rcv")
            .int("skb->dev->name[0]", "char", i128::from(b'l'))
            .int("skb->dev->name[1]", "char", i128::from(b'o'))
            .int("skb->len", "unsigned int", length(1)),
    ])
}

/// What is sent and what there is room for to receive it.
fn set_entries() -> Result<Vec<Want>> {
    Udp::new()?.send(100)?;
    Ok([("udp_sendmsg", 100), ("udp_recvmsg", 101)]
        .map(|(function, len)| Want::new(function).int("len", "size_t", len))
        .to_vec())
}

fn set_saved() -> Result<Vec<Want>> {
    let wants = set_entries()?;
    Ok(wants
        .into_iter()
        .map(|want| want.int("return", "int", 100))
        .collect())
}

fn three_datagrams() -> Result<Vec<Want>> {
    let udp = Udp::new()?;
    let payloads = [1, 2, 3];
    for payload in payloads {
        udp.send(payload)?;
    }
    Ok(payloads
        .map(|payload| Want::new("ip_rcv").int("skb->len", "unsigned int", length(payload)))
        .to_vec())
}

fn sending_socket() -> Result<Vec<Want>> {
    let udp = Udp::new()?;
    udp.send(100)?;
    let port = udp.from.local_addr()?.port();
    let peer = udp.to.local_addr()?.port().to_be();
    let parts = [
        "*(0x".to_owned(),
        "(struct sock){".to_owned(),
        format!(".skc_num = (__u16){port}"),
        format!(".skc_dport = (__be16){peer}"),
        ".skc_family = (short unsigned int)2".to_owned(),
    ];
    Ok(vec![
        Want::new("ip_send_skb").with("skb->sk", Is::Has(parts.to_vec())),
    ])
}

fn opens() -> Result<Vec<Want>> {
    let mut wants = Vec::new();
    for name in ["a", "b", "c"] {
        let folder = Path::new("/tmp/guest-tests").join(name);
        // Neither mkdir nor stat is an open, and opening a folder is one that needs no file in it.
        let inside = folder.join("inside");
        std::fs::create_dir_all(&inside)?;
        drop(std::fs::File::open(&inside)?);
        // The type of i_ino is not the same in all kernels.
        let inode = Is::Num(i128::from(folder.metadata()?.ino()));
        wants.push(Want::new("vfs_open").with("path->dentry->d_parent->d_inode->i_ino", inode));
    }
    Ok(wants)
}

/// As large as a query may well be: 64 items of eight steps, no two the same way. Each step goes to the parent or stays, as
/// the bits of the item's number say.
fn large() -> String {
    let items: Vec<String> = (0..64)
        .map(|number| format!("p{number}={}", way_up(number)))
        .collect();
    format!("vfs_open({})", items.join(", "))
}

/// The same as predicates, whose values are shown at the return.
fn large_judged() -> String {
    let items: Vec<String> = (0..64).map(|number| format!("{} >= 0", way_up(number))).collect();
    format!("vfs_open({}, return <= 0)", items.join(", "))
}

fn way_up(number: u32) -> String {
    let steps: String = (0..6)
        .map(|bit| match number >> bit & 1 {
            0 => "->group_leader",
            _ => "->real_parent",
        })
        .collect();
    format!("task{steps}->group_leader->tgid")
}

/// Opens a file; each item is the process, or the ancestor that its parents lead to. The first task is its own parent.
fn ancestors() -> Result<Vec<Want>> {
    ups(|number| format!("p{number}"))
}

fn ancestors_judged() -> Result<Vec<Want>> {
    let wants = ups(way_up)?;
    Ok(wants
        .into_iter()
        .map(|want| want.int("return", "int", 0))
        .collect())
}

fn ups(label: impl Fn(u32) -> String) -> Result<Vec<Want>> {
    let mut chain = vec![i128::from(std::process::id())];
    for _ in 0..6 {
        let last = chain[chain.len() - 1];
        chain.push(if last == 0 { 0 } else { parent(last)? });
    }
    drop(std::fs::File::open("/proc/version")?);
    let want = (0..64u32).fold(Want::new("vfs_open"), |want, number| {
        want.int(&label(number), "pid_t", chain[number.count_ones() as usize])
    });
    // The reading of the parents opened files, too.
    let opened = chain.iter().take_while(|pid| **pid != 0).count().min(6);
    Ok(vec![want; opened + 1])
}

fn parent(pid: i128) -> Result<i128> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    Ok(line.context("no PPid line")?.trim().parse()?)
}

/// Sends these sizes over a TCP connection, one write each.
fn tcp_send(sizes: &[usize]) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    for &size in sizes {
        ensure!(client.write(&vec![b't'; size])? == size, "a write was cut");
        server.read_exact(&mut vec![0; size])?;
    }
    Ok(())
}

fn tcp_sizes() -> Result<Vec<Want>> {
    let sizes = [1, 100, 5000];
    tcp_send(&sizes)?;
    let want = |size: usize| {
        let label = "sk->__sk_common.skc_daddr";
        Want::new("tcp_sendmsg")
            .int(label, "__be32", LOOPBACK)
            .int("size", "size_t", size as i128)
    };
    Ok(sizes.map(want).to_vec())
}

/// Two good opens and one of a file that is not there, which is the only one to fail.
fn open_three() -> Result<[i128; 2]> {
    let first = std::fs::File::open("/etc/hosts")?;
    let second = std::fs::File::open("/etc/passwd")?;
    let missing = std::fs::File::open("/tmp/there is no such file");
    ensure!(missing.is_err(), "a file that should not be there is");
    Ok([first.as_raw_fd(), second.as_raw_fd()].map(i128::from))
}

fn openat2_all() -> Result<Vec<Want>> {
    let descriptors = open_three()?;
    let mut wants = Vec::new();
    for result in [descriptors[0], descriptors[1], -2] {
        // O_CLOEXEC, and O_LARGEFILE, which the kernel adds.
        let how = ["*(0x", "(struct open_how){", ".flags = (__u64)0x88000"]
            .map(str::to_owned)
            .to_vec();
        wants.push(
            Want::new("do_sys_openat2")
                .int("dfd", "int", AT_FDCWD)
                .with("filename", Is::Any)
                .with("how", Is::Has(how)),
        );
        wants.push(Want::new("do_sys_openat2").with("return", Is::Num(result)));
    }
    Ok(wants)
}

fn openat2_fails() -> Result<Vec<Want>> {
    open_three()?;
    Ok(vec![Want::new("do_sys_openat2").with("return", Is::Num(-2))])
}

fn openat2_of_this_task() -> Result<Vec<Want>> {
    open_three()?;
    // The first thread's id is that of the process; tests run in it.
    Ok(vec![
        Want::new("do_sys_openat2")
            .int("task->pid", "pid_t", i128::from(std::process::id()))
            .with("return", Is::Num(-2)),
    ])
}

fn openat2_saved() -> Result<Vec<Want>> {
    open_three()?;
    Ok(vec![
        Want::new("do_sys_openat2")
            .int("dfd", "int", AT_FDCWD)
            .with("return", Is::Num(-2)),
    ])
}

/// Three reads, of which the last one finds nothing more.
fn reads_on() -> Result<Vec<Want>> {
    let path = std::env::temp_dir().join("reads_on");
    std::fs::write(&path, [b'x'; 50])?;
    let mut file = std::fs::File::open(&path)?;
    for want in [33, 17, 0] {
        let got = file.read(&mut [0; 33])?;
        ensure!(got == want, "read {got} bytes, not {want}");
    }
    std::fs::remove_file(&path)?;
    let moved = |before: i128, after: i128| {
        Want::new("vfs_read")
            .int("entry(*pos)", "loff_t", before)
            .int("exit(*pos)", "loff_t", after)
            .with("moved", Is::Num(after - before))
    };
    Ok(vec![moved(0, 33), moved(33, 50)])
}

fn open_and_send() -> Result<Vec<Want>> {
    drop(std::fs::File::open("/etc/hosts")?);
    tcp_send(&[76, 77, 78])?;
    let file = Is::Has(vec!["*(0x".to_owned(), "(struct file){".to_owned()]);
    Ok(vec![
        Want::new("vfs_open").with("file", file),
        Want::new("tcp_sendmsg").int("size", "size_t", 77),
    ])
}

/// Starts a process, waits for its end and says which one it was.
fn child() -> Result<i128> {
    // It sleeps, so that it is switched to again when it is a program with memory of its own: until exec it shares its parent's.
    let mut child = Command::new("sleep").arg("0.1").spawn()?;
    let pid = child.id();
    ensure!(child.wait()?.success(), "sleep(1) failed");
    Ok(i128::from(pid))
}

fn child_exits() -> Result<Vec<Want>> {
    let pid = child()?;
    Ok(vec![
        Want::new("sched_process_exit")
            .int("p->pid", "pid_t", pid)
            .int("p->tgid", "pid_t", pid),
    ])
}

fn child_runs() -> Result<Vec<Want>> {
    let pid = child()?;
    Ok(vec![
        Want::new("sched_switch")
            .int("next->pid", "pid_t", pid)
            .int("next->mm->owner->pid", "pid_t", pid),
    ])
}

/// What `--emit-obj` writes, libbpf loads as it is, and its relocations give the instructions that ours give.
fn libbpf_relocates(guest: &Guest, query: &str) -> Result<()> {
    libbpf_relocates_by(guest, "auto", query)
}

/// The same for programs with probe reads, whose relocations are in other instructions.
fn libbpf_relocates_kprobe(guest: &Guest, query: &str) -> Result<()> {
    libbpf_relocates_by(guest, "kprobe", query)
}

fn libbpf_relocates_by(guest: &Guest, way: &str, query: &str) -> Result<()> {
    let (object, pin) = ("/tmp/emitted.o", "/sys/fs/bpf/emitted");
    let out = Command::new(&guest.tool)
        .args(["--attach", way, "--emit-obj", object, query])
        .output()?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(out.status.success(), "--emit-obj failed ({})\n{said}", out.status);

    let args = ["-v", "--attach", way, query].map(str::to_owned);
    let mut tool = Tool::start(&guest.tool, &args)?;
    tool.wait_attached()?;
    guest::bpftool(&["prog", "loadall", object, pin])?;
    let shown = guest::bpftool(&["prog", "show"]);
    std::fs::remove_dir_all(pin).context("nothing is pinned")?;
    tool.interrupt()?;
    tool.finish()?;

    let shown = shown?;
    let tags = tags(&shown);
    ensure!(!tags.is_empty(), "no program of ours is loaded:\n{shown}");
    for (name, tags) in tags {
        ensure!(
            tags.len() == 2,
            "{name} is there {} times, not once by us and once by libbpf:\n{shown}",
            tags.len()
        );
        ensure!(
            tags[0] == tags[1],
            "{name}: libbpf's relocation gives other instructions than ours:\n{shown}"
        );
    }
    Ok(())
}

/// Our programs that are in the kernel, with the digests of their instructions. The kernel makes those of what it is given, without
/// the descriptors of maps (`bpf_prog_calc_tag`): equal digests, equal instructions.
fn tags(shown: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut tags = BTreeMap::<&str, Vec<&str>>::new();
    for line in shown.lines() {
        let mut words = line.split_whitespace();
        let mut after = |key| words.find(|word| *word == key).and_then(|_| words.next());
        if let Some(name) = after("name")
            && name.starts_with("ksj_")
            && let Some(tag) = after("tag")
        {
            tags.entry(name).or_default().push(tag);
        }
    }
    tags
}
