//! What public bug reports about other tracers are about, on functions of the kernel's own that every kernel has: small types by
//! value, errors of 32 bits, a returned pointer beside another value, more arguments than registers.
//!
//! In: nothing. Out: cases, whose values are what was asked of the kernel. Which report is tested where is told by the table in
//! `tests/suite/cases.rs`.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use anyhow::{Context, Result, ensure};

use super::traffic::{datagrams, open_three, tcp_send};
use crate::case::{Case, Scope, Work};
use crate::want::{Is, Want};

/// The owner of a file that nobody else looks at.
const OWNER: u32 = 12345;
/// Bytes of a segment that nobody else sends.
const SEGMENT: usize = 1234;

const WINDOW: &str =
    "tcp_select_initial_window(sk->__sk_common.skc_state == 2, wscale_ok, exit(*rcv_wscale), init_rcv_wnd)";

pub(super) fn reported(cases: &mut Vec<Case>) {
    let mut add = |name: &str, query: &str, work| {
        let case = Case::new(&format!("kernel.reported.{name}"), query, Work::Call(work));
        cases.extend(case.scope(Scope::Mine).both());
    };
    add(
        "sockptr",
        "tcp_setsockopt(level == 6, optname, optval.is_kernel, optlen)",
        sets_nodelay,
    );
    add(
        "sockptr_filtered",
        "tcp_setsockopt(optval.is_kernel == 0, optname == 1)",
        sets_nodelay_filtered,
    );
    add(
        "kuid",
        "from_kuid_munged(kuid.val == 12345, return)",
        looks_at_owner,
    );
    add("is_err", "inet_bind(is_err(return), addr_len == 16)", binds_twice);
    add(
        "returned_pointer",
        "skb_clone(skb->len == 1234, return, len=return->len)",
        clones,
    );
    add("eight_arguments", WINDOW, connects);
    add(
        "user_string",
        "do_sys_openat2(filename == \"/etc/hosts\", filename, user(filename)[5])",
        opens_by_name,
    );
    add(
        "headers",
        "ip_rcv(skb->len == 1262, skb->head[skb->network_header], ((struct iphdr *)skb->data)->version == 4, \
         ((struct iphdr *)skb->data)->ihl, ntohs(((struct iphdr *)skb->data)->tot_len), \
         ((struct iphdr *)skb->data)->daddr == ip(\"127.0.0.1\"))",
        headers,
    );
}

/// The name is in this process's memory.
fn opens_by_name() -> Result<Vec<Want>> {
    open_three()?;
    let name = ["(char *)".to_owned(), "\"/etc/hosts\"".to_owned()];
    Ok(vec![
        Want::new("do_sys_openat2")
            .with("filename", Is::Has(name.to_vec()))
            .int("user(filename)[5]", "char", i128::from(b'h')),
    ])
}

/// A datagram that is received is an IPv4 header of 20 bytes, the UDP header, and what was sent.
fn headers() -> Result<Vec<Want>> {
    datagrams(&[100, SEGMENT])?;
    Ok(vec![
        Want::new("ip_rcv")
            .int("skb->len", "unsigned int", 1262)
            .int("skb->head[skb->network_header]", "unsigned char", 0x45)
            .int("((struct iphdr *)skb->data)->version", "__u8", 4)
            .int("((struct iphdr *)skb->data)->ihl", "__u8", 5)
            .int(
                "ntohs(((struct iphdr *)skb->data)->tot_len)",
                "short unsigned int",
                1262,
            )
            .with(
                "((struct iphdr *)skb->data)->daddr",
                Is::Has(vec!["127.0.0.1".to_owned()]),
            ),
    ])
}

fn nodelay() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    Ok(client.set_nodelay(true)?)
}

/// `TCP_NODELAY` is 1, and its value an `int` in this process's memory.
fn sets_nodelay() -> Result<Vec<Want>> {
    nodelay()?;
    Ok(vec![
        Want::new("tcp_setsockopt")
            .int("level", "int", 6)
            .int("optname", "int", 1)
            .int("optval.is_kernel", "bool", 0)
            .int("optlen", "unsigned int", 4),
    ])
}

fn sets_nodelay_filtered() -> Result<Vec<Want>> {
    nodelay()?;
    Ok(vec![
        Want::new("tcp_setsockopt")
            .int("optval.is_kernel", "bool", 0)
            .int("optname", "int", 1),
    ])
}

/// Has a file of an owner of its own, and others, looked at.
fn looks_at_owner() -> Result<Vec<Want>> {
    let path = "/tmp/guest-tests-owned";
    std::fs::write(path, "")?;
    std::os::unix::fs::chown(path, Some(OWNER), None)?;
    std::fs::metadata("/etc/hosts")?;
    std::fs::metadata(path)?;
    std::fs::remove_file(path)?;
    Ok(vec![
        Want::new("from_kuid_munged")
            .int("kuid.val", "uid_t", i128::from(OWNER))
            .int("return", "uid_t", i128::from(OWNER)),
    ])
}

/// The second socket of an address is refused it.
fn binds_twice() -> Result<Vec<Want>> {
    let first = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let second = UdpSocket::bind(first.local_addr()?);
    ensure!(second.is_err(), "two sockets have one address");
    let want = |number| {
        Want::new("inet_bind")
            .int("is_err(return)", "int", number)
            .int("addr_len", "int", 16)
    };
    Ok([0, 1].map(want).to_vec())
}

/// What is sent is cloned, so that it can be sent again.
fn clones() -> Result<Vec<Want>> {
    tcp_send(&[100, SEGMENT])?;
    let clone = [
        "*(0x".to_owned(),
        "(struct sk_buff){".to_owned(),
        format!(".len = (unsigned int){SEGMENT}"),
    ];
    let len = SEGMENT as i128;
    Ok(vec![
        Want::new("skb_clone")
            .int("skb->len", "unsigned int", len)
            .with("return", Is::Has(clone.to_vec()))
            .int("len", "unsigned int", len),
    ])
}

/// Where the kernel is told how windows may grow.
const SCALING: &str = "/proc/sys/net/ipv4/tcp_window_scaling";
const TCP_MEMORY: &str = "/proc/sys/net/ipv4/tcp_rmem";
const MEMORY: &str = "/proc/sys/net/core/rmem_max";

/// Connects with windows that grow and with such that don't, and leaves all as it was.
fn connects() -> Result<Vec<Want>> {
    let before: Vec<(&str, String)> = [SCALING, TCP_MEMORY, MEMORY]
        .into_iter()
        .map(|path| Ok((path, std::fs::read_to_string(path).context(path)?)))
        .collect::<Result<_>>()?;
    // The largest window of 2^20 bytes is told in units of 2^5, as 2^15 of them are what a header has room for.
    std::fs::write(TCP_MEMORY, "4096 131072 1048576")?;
    std::fs::write(MEMORY, "212992")?;
    let connected = (|| -> Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let to: SocketAddr = listener.local_addr()?;
        for scaling in ["1", "0"] {
            std::fs::write(SCALING, scaling)?;
            drop(TcpStream::connect(to)?);
        }
        Ok(())
    })();
    for (path, text) in before {
        std::fs::write(path, text.trim())?;
    }
    connected?;
    let want = |scaling, scale| {
        Want::new("tcp_select_initial_window")
            .int("sk->__sk_common.skc_state", "unsigned char", 2)
            .int("wscale_ok", "int", scaling)
            .int("*rcv_wscale", "__u8", scale)
            .int("init_rcv_wnd", "__u32", 0)
    };
    Ok(vec![want(1, 5), want(0, 0)])
}
