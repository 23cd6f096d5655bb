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
/// The original does not say when it is attached: its kprobes appear here, two for each function.
const KPROBES: &str = "/sys/kernel/debug/kprobes/list";
/// How long it may take for that, in tenths of a second.
const PATIENCE: usize = 300;

/// A question to both.
struct Question {
    /// Options and queries, which both take.
    words: &'static [&'static str],
    /// About this thread, which the original calls a process.
    of_this_thread: bool,
}

const fn ask(words: &'static [&'static str]) -> Question {
    Question {
        words,
        of_this_thread: false,
    }
}

/// Questions whose answers the original has right: not 0 and NULL, which it leaves out, no strings, no negative numbers
/// in predicates, no more than five arguments. Functions that wait while it attaches make it hang, as `tcp_recvmsg` does.
const QUESTIONS: &[Question] = &[
    // A member, alone and with predicates: more, less, a range, equal, not equal.
    ask(&["ip_send_skb(skb->len)"]),
    ask(&["ip_send_skb(skb->len > 128)"]),
    ask(&["ip_rcv(skb->len >= 100, skb->len < 300)"]),
    ask(&["ip_rcv(skb->len == 128)"]),
    ask(&["ip_rcv(dev->ifindex)"]),
    ask(&["ip_rcv(skb->mac_len != 0, skb->len > 0xff)"]),
    // Scalars, of several sizes; two predicates on two arguments.
    ask(&["tcp_sendmsg(size)"]),
    ask(&["tcp_sendmsg(size > 76)"]),
    ask(&["tcp_sendmsg(size > 75, size < 79)"]),
    ask(&["tcp_sendmsg(sk->sk_rcvbuf)"]),
    ask(&["tcp_sendmsg(sk->sk_rcvbuf > 1, size == 77)"]),
    ask(&["ip_queue_xmit(skb->len > 100)"]),
    ask(&["vfs_read(count == 77)"]),
    ask(&["vfs_open(file->f_flags > 1)"]),
    ask(&["do_unlinkat(dfd)"]),
    // Returns alone; entry and return apart; one event of both.
    ask(&["vfs_read(return == 33)"]),
    ask(&["vfs_write(return == 1000)"]),
    ask(&["do_sys_openat2(return > 0)"]),
    ask(&["tcp_sendmsg(size, return)"]),
    ask(&["tcp_sendmsg(size == 78, return > 0)"]),
    ask(&["vfs_write(count > 900, return)"]),
    // A bool, a whole struct.
    ask(&["tcp_schedule_loss_probe(advancing_rto == 1)"]),
    ask(&["vfs_open(path)"]),
    // Several queries, one process, stack mode.
    ask(&["tcp_sendmsg(size == 77)", "vfs_read(count == 77)"]),
    Question {
        words: &["vfs_read(count)"],
        of_this_thread: true,
    },
    ask(&["-s", "tcp_sendmsg(size)", "tcp_sendmsg_locked(size)"]),
];

/// Asks every query of both. Whether all agree.
pub(crate) fn run(ours: &Path) -> Result<bool> {
    ensure!(
        Path::new(ORIGINAL).exists(),
        "there is no {ORIGINAL} in this guest"
    );
    let (mut compared, mut agree) = (0, true);
    for question in QUESTIONS {
        let shown = question.words.join(" ");
        match compare(ours, question) {
            Ok(values) => {
                println!("ok {shown}: {values} values agree");
                compared += values;
            }
            Err(error) => {
                println!("FAIL {shown}: {error:#}");
                agree = false;
            }
        }
    }
    println!("end: {compared} values of {} questions", QUESTIONS.len());
    Ok(agree && compared > 0)
}

fn compare(ours: &Path, question: &Question) -> Result<usize> {
    let words = |thread: &str, others: &[&str]| -> Vec<String> {
        let mut all: Vec<String> = others.iter().map(|word| (*word).to_owned()).collect();
        if question.of_this_thread {
            all.extend([thread.to_owned(), std::process::id().to_string()]);
        }
        all.extend(question.words.iter().map(|word| (*word).to_owned()));
        all
    };
    let queries = question
        .words
        .iter()
        .filter(|word| !word.starts_with('-'))
        .count();
    let before = kprobes()?;
    // Its records are so large that its own buffer holds fewer than the traffic makes, and what is lost it does not tell.
    let original = Tool::start(Path::new(ORIGINAL), &words("-p", &["-P", "256"]))?;
    let attached = |_: &usize| kprobes().is_ok_and(|now| now >= before + 2 * queries);
    let waited = (0..PATIENCE)
        .inspect(|_| std::thread::sleep(Duration::from_millis(100)))
        .find(attached);
    ensure!(waited.is_some(), "the original does not attach");
    let mut own = Tool::start(ours, &words("-t", &["-v"]))?;
    for _ in 0..queries {
        own.wait_attached()?;
    }
    // Waiting has read files, which the one saw and the other may not have seen.
    let begin = now()?;
    std::thread::sleep(Duration::from_millis(50));
    traffic()?;
    std::thread::sleep(Duration::from_millis(500));
    let events = |mut tool: Tool| -> Result<(Vec<Event>, Ended)> {
        tool.interrupt()?;
        let ended = tool.finish()?;
        let mut events = output::events(&ended.stdout, false)?;
        events.retain(|event| event.pid == std::process::id() && event.time > begin);
        // The original shows a value once for each predicate about it.
        for event in &mut events {
            event.values.dedup();
            for value in &mut event.values {
                value.text = plain(&value.text);
            }
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
        if (&a.function, &a.values) != (&b.function, &b.values) {
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

/// How many kprobes there are.
fn kprobes() -> Result<usize> {
    Ok(std::fs::read_to_string(KPROBES).context(KPROBES)?.lines().count())
}

/// The time since the kernel started, in nanoseconds and as exact as a few hundredths of a second: later than this was.
fn now() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/uptime")?;
    let seconds: f64 = text.split(' ').next().context("no uptime")?.parse()?;
    Ok(((seconds + 0.02) * 1e9) as u64)
}

/// The same value in the original's words, which are always decimal, also for flags and truths.
fn plain(text: &str) -> String {
    let (ty, value) = match text.rsplit_once(')') {
        Some((ty, value)) => (format!("{ty})"), value),
        None => (String::new(), text),
    };
    let number = match value {
        "true" => Some(1),
        "false" => Some(0),
        _ => value
            .strip_prefix("0x")
            .and_then(|digits| u64::from_str_radix(digits, 16).ok()),
    };
    match number {
        Some(number) => format!("{ty}{number}"),
        None => text.to_owned(),
    }
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
