//! What is done while the kernel's functions are traced: datagrams, TCP connections, opened files, processes.
//!
//! In: nothing. Out: the events that it makes, by what was sent or opened. Never does anything whose event it can't foretell.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::want::{Is, Want};

/// 127.0.0.1 as a big-endian number read on a little-endian machine.
const LOOPBACK: i128 = 0x0100_007f;
/// IPv4's and UDP's headers.
const HEADERS: usize = 20 + 8;
const AT_FDCWD: i128 = -100;

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

/// Datagrams with so many bytes each, sent and received.
pub(super) fn datagrams(payloads: &[usize]) -> Result<()> {
    let udp = Udp::new()?;
    payloads.iter().try_for_each(|payload| udp.send(*payload))
}

fn length(payload: usize) -> i128 {
    // Sizes here are a few thousand at most.
    i128::try_from(payload + HEADERS).unwrap_or(i128::MAX)
}

pub(super) fn large_datagram() -> Result<Vec<Want>> {
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

pub(super) fn range_of_datagrams() -> Result<Vec<Want>> {
    let udp = Udp::new()?;
    for payload in [71, 72, 171, 172, 1000] {
        udp.send(payload)?;
    }
    Ok([100, 199]
        .map(|len| Want::new("ip_rcv").int("skb->len", "unsigned int", len))
        .to_vec())
}

pub(super) fn host_datagram() -> Result<Vec<Want>> {
    Udp::new()?.send(1000)?;
    Ok(vec![Want::new("ip_rcv").int("skb->pkt_type", "__u8", 0).int(
        "skb->len",
        "unsigned int",
        1028,
    )])
}

pub(super) fn device() -> Result<Vec<Want>> {
    Udp::new()?.send(1)?;
    Ok(vec![
        Want::new("ip_rcv")
            .int("skb->dev->name[0]", "char", i128::from(b'l'))
            .int("skb->dev->name[1]", "char", i128::from(b'o'))
            .int("skb->len", "unsigned int", length(1)),
    ])
}

/// What is sent and what there is room for to receive it.
pub(super) fn set_entries() -> Result<Vec<Want>> {
    Udp::new()?.send(100)?;
    Ok([("udp_sendmsg", 100), ("udp_recvmsg", 101)]
        .map(|(function, len)| Want::new(function).int("len", "size_t", len))
        .to_vec())
}

pub(super) fn set_saved() -> Result<Vec<Want>> {
    let wants = set_entries()?;
    Ok(wants
        .into_iter()
        .map(|want| want.int("return", "int", 100))
        .collect())
}

pub(super) fn three_datagrams() -> Result<Vec<Want>> {
    let udp = Udp::new()?;
    let payloads = [1, 2, 3];
    for payload in payloads {
        udp.send(payload)?;
    }
    Ok(payloads
        .map(|payload| Want::new("ip_rcv").int("skb->len", "unsigned int", length(payload)))
        .to_vec())
}

pub(super) fn sending_socket() -> Result<Vec<Want>> {
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

pub(super) fn opens() -> Result<Vec<Want>> {
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
pub(super) fn large() -> String {
    let items: Vec<String> = (0..64)
        .map(|number| format!("p{number}={}", way_up(number)))
        .collect();
    format!("vfs_open({})", items.join(", "))
}

/// The same as predicates, whose values are shown at the return.
pub(super) fn large_judged() -> String {
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
pub(super) fn ancestors() -> Result<Vec<Want>> {
    ups(|number| format!("p{number}"))
}

pub(super) fn ancestors_judged() -> Result<Vec<Want>> {
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
pub(super) fn tcp_send(sizes: &[usize]) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    for &size in sizes {
        ensure!(client.write(&vec![b't'; size])? == size, "a write was cut");
        server.read_exact(&mut vec![0; size])?;
    }
    Ok(())
}

pub(super) fn tcp_sizes() -> Result<Vec<Want>> {
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

/// Two good opens and one of a file that is not there, which is the only one to fail; what the kernel returns for each.
pub(crate) fn open_three() -> Result<[i128; 3]> {
    let first = std::fs::File::open("/etc/hosts")?;
    let second = std::fs::File::open("/etc/passwd")?;
    let missing = std::fs::File::open("/tmp/there is no such file");
    ensure!(missing.is_err(), "a file that should not be there is");
    Ok([first.as_raw_fd(), second.as_raw_fd(), -2].map(i128::from))
}

pub(super) fn openat2_all() -> Result<Vec<Want>> {
    let mut wants = Vec::new();
    for result in open_three()? {
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

pub(super) fn openat2_fails() -> Result<Vec<Want>> {
    open_three()?;
    Ok(vec![Want::new("do_sys_openat2").with("return", Is::Num(-2))])
}

pub(super) fn openat2_of_this_task() -> Result<Vec<Want>> {
    open_three()?;
    // The first thread's id is that of the process; tests run in it.
    Ok(vec![
        Want::new("do_sys_openat2")
            .int("task->pid", "pid_t", i128::from(std::process::id()))
            .with("return", Is::Num(-2)),
    ])
}

pub(super) fn openat2_saved() -> Result<Vec<Want>> {
    open_three()?;
    Ok(vec![
        Want::new("do_sys_openat2")
            .int("dfd", "int", AT_FDCWD)
            .with("return", Is::Num(-2)),
    ])
}

/// Three reads, of which the last one finds nothing more.
pub(super) fn reads_on() -> Result<Vec<Want>> {
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

pub(super) fn open_and_send() -> Result<Vec<Want>> {
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

pub(super) fn child_exits() -> Result<Vec<Want>> {
    let pid = child()?;
    Ok(vec![
        Want::new("sched_process_exit")
            .int("p->pid", "pid_t", pid)
            .int("p->tgid", "pid_t", pid),
    ])
}

pub(super) fn child_runs() -> Result<Vec<Want>> {
    let pid = child()?;
    Ok(vec![
        Want::new("sched_switch")
            .int("next->pid", "pid_t", pid)
            .int("next->mm->owner->pid", "pid_t", pid),
    ])
}
