//! Tests on the kernel's own functions, with traffic of our own making.
//!
//! In: nothing. Out: cases whose workloads say what they did: sizes sent, ports used, inode numbers from
//! `stat`. They never assume that nobody else opens a file or sends a packet, unless nobody does.

mod libbpf;
mod reported;
mod room;
pub(crate) mod traffic;

use traffic::{
    ancestors, ancestors_judged, child_exits, child_runs, device, host_datagram, large, large_datagram,
    large_judged, open_and_send, openat2_all, openat2_fails, openat2_of_this_task, openat2_saved, opens,
    range_of_datagrams, reads_on, sending_socket, set_entries, set_saved, tcp_sizes, three_datagrams,
};

use crate::case::{Case, Scope, Work};

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
    room::calls_under_way(&mut cases);
    reported::reported(&mut cases);
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
    libbpf::relocations(&mut cases);
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
