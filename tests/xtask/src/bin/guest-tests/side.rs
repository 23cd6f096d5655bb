//! The original ksnoop and ours at the same queries and the same traffic, at the same time.
//!
//! In: `guest-tests --side-by-side`, with `/usr/sbin/ksnoop` in the guest. Out: a line for each query: how many values agree,
//! or the first that don't; status 1 when any disagree, or when nothing was compared. What both print is of the
//! same form, so one reader reads both. It never compares what the original is known to get wrong.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::output::{self, Event};
use crate::tool::{Ended, Tool};

const ORIGINAL: &str = "/usr/sbin/ksnoop";
/// The original does not say when it is attached.
const UNTIL_ATTACHED: Duration = Duration::from_secs(3);

/// Queries whose answers the original has right: not 0 and NULL, which it leaves out, no strings, no negative numbers
/// in predicates, no more than five arguments.
const QUERIES: &[&str] = &[
    "ip_send_skb(skb->len)",
    "ip_send_skb(skb->len > 128)",
    "ip_rcv(skb->len >= 100, skb->len < 300)",
    "ip_rcv(dev->ifindex)",
    "ip_rcv(skb->mac_len)",
    "ip_rcv(skb->len > 0xff)",
    "tcp_sendmsg(size)",
    "tcp_sendmsg(size > 76)",
    "tcp_sendmsg(sk->sk_rcvbuf)",
    "tcp_sendmsg(size, return)",
    "tcp_sendmsg(size == 78, return > 0)",
    "tcp_recvmsg(len)",
    "tcp_recvmsg(return > 0)",
    "udp_sendmsg(len)",
    "udp_sendmsg(len > 200, return)",
    "vfs_open(path)",
    "vfs_read(count == 77)",
    "vfs_read(return == 33)",
    "vfs_write(count > 900, return)",
    "do_sys_openat2(return > 0)",
];

/// Asks every query of both. Whether all agree.
pub(crate) fn run(ours: &Path) -> Result<bool> {
    ensure!(
        Path::new(ORIGINAL).exists(),
        "there is no {ORIGINAL} in this guest"
    );
    let (mut compared, mut agree) = (0, true);
    for query in QUERIES {
        match compare(ours, query) {
            Ok(values) => {
                println!("ok {query}: {values} values agree");
                compared += values;
            }
            Err(error) => {
                println!("FAIL {query}: {error:#}");
                agree = false;
            }
        }
    }
    println!("end: {compared} values of {} queries", QUERIES.len());
    Ok(agree && compared > 0)
}

fn compare(ours: &Path, query: &str) -> Result<usize> {
    let original = Tool::start(Path::new(ORIGINAL), &["trace".to_owned(), query.to_owned()])?;
    let mut own = Tool::start(ours, &["-v".to_owned(), query.to_owned()])?;
    own.wait_attached()?;
    std::thread::sleep(UNTIL_ATTACHED);
    traffic()?;
    std::thread::sleep(Duration::from_millis(500));
    let events = |mut tool: Tool| -> Result<(Vec<Event>, Ended)> {
        tool.interrupt()?;
        let ended = tool.finish()?;
        let mut events = output::events(&ended.stdout, false)?;
        events.retain(|event| event.pid == std::process::id());
        // The original shows a value once for each predicate about it.
        for event in &mut events {
            event.values.dedup();
        }
        Ok((events, ended))
    };
    let (theirs, said) = events(original).context("the original")?;
    let (mine, _) = events(own).context("ours")?;
    ensure!(
        !theirs.is_empty(),
        "the original shows nothing: {}",
        said.stderr.trim()
    );
    let mut values = 0;
    for (number, (a, b)) in theirs.iter().zip(&mine).enumerate() {
        if a != b {
            bail!("event {}: the original has {a:?}, ours {b:?}", number + 1);
        }
        values += a.values.len();
    }
    ensure!(
        theirs.len() == mine.len(),
        "{} events of the original, {} of ours",
        theirs.len(),
        mine.len()
    );
    Ok(values)
}

/// A little of everything that the queries are about, all by this process.
fn traffic() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    for size in [75, 76, 77, 78, 400] {
        client.write_all(&vec![b't'; size])?;
        server.read_exact(&mut vec![0; size])?;
    }
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    for size in [10, 100, 150, 250, 600] {
        socket.send_to(&vec![b'u'; size], socket.local_addr()?)?;
        socket.recv(&mut vec![0; size])?;
    }
    let path = std::env::temp_dir().join("side-by-side");
    std::fs::write(&path, [b'f'; 1000])?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let mut file = std::fs::File::open(&path)?;
    for size in [33, 77, 100] {
        file.read_exact(&mut vec![0; size])?;
    }
    std::fs::remove_file(&path)?;
    Ok(())
}
