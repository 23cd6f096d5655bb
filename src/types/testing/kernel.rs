//! The made-up kernel: real names and real shapes, cut down to what tests talk about, plus a few types that put one
//! difficulty each. Offsets are those of C, but not those of any real kernel.

use super::{Builder, Layout, special};
use crate::types::Types;
use crate::types::write::{BtfWriter, FUNC_STATIC, Field};

/// The made-up kernel without modules.
pub fn mini_kernel() -> Types {
    super::types_of(&build().writer)
}

/// The same with module `kvm` as number 1: it defines `struct x86_emulate_ctxt`, which vmlinux only declares, and the
/// function `x86_emulate_insn`.
pub fn mini_kernel_with_module() -> Types {
    let base = build();
    let module = build_module(&base);
    super::types_with_module(&base.writer, "kvm", &module)
}

/// The made-up kernel's BTF.
pub fn mini_kernel_bytes() -> Vec<u8> {
    build().writer.finish()
}

/// The split BTF of its module `kvm`.
pub fn mini_module_bytes() -> Vec<u8> {
    build_module(&build()).finish()
}

fn build() -> Builder {
    let mut b = Builder::new();
    let files = file_types(&mut b);
    let tasks = task_types(&mut b, &files);
    let net = net_types(&mut b);
    special::types(&mut b);
    file_functions(&mut b, &files);
    net_functions(&mut b, &net);
    special::functions(&mut b, &tasks);
    tracepoints(&mut b, &tasks, &net);
    b
}

struct Files {
    path: u32,
    file: u32,
}

fn file_types(b: &mut Builder) -> Files {
    let kuid = Layout::structure().field("val", b.ty("uid_t"));
    b.typedef_struct("kuid_t", kuid);
    let kgid = Layout::structure().field("val", b.ty("gid_t"));
    b.typedef_struct("kgid_t", kgid);
    let counter = Layout::structure().field("counter", b.ty("int"));
    b.typedef_struct("atomic_t", counter);
    let counter = Layout::structure().field("counter", b.ty("s64"));
    b.typedef_struct("atomic64_t", counter);
    let long = b.ty("atomic64_t");
    b.typedef("atomic_long_t", long);

    let string = b.const_ptr(b.ty("char"));
    let fs_type = Layout::structure()
        .field("name", string)
        .field("fs_flags", b.ty("int"));
    let fs_type = b.composite("file_system_type", fs_type);
    let fs_type = b.ptr(fs_type);
    let id = b.array(b.ty("char"), 32);
    let super_block = Layout::structure()
        .field("s_dev", b.ty("dev_t"))
        .field("s_type", fs_type)
        .field("s_id", id);
    let super_block = b.composite("super_block", super_block);
    let sb_ptr = b.ptr(super_block);

    let nlink = b.ty("unsigned int");
    let nlink = Layout::union().field("i_nlink", nlink).field("__i_nlink", nlink);
    let nlink = b.composite("", nlink);
    let inode = Layout::structure()
        .field("i_mode", b.ty("umode_t"))
        .field("i_uid", b.ty("kuid_t"))
        .field("i_gid", b.ty("kgid_t"))
        .field("i_sb", sb_ptr)
        .field("i_ino", b.ty("long unsigned int"))
        .field("", nlink)
        .field("i_size", b.ty("loff_t"));
    let inode = b.composite("inode", inode);
    let inode_ptr = b.ptr(inode);

    let hash = Layout::structure()
        .field("hash", b.ty("u32"))
        .field("len", b.ty("u32"));
    let hash = b.composite("", hash);
    let hash_len = Layout::union().field("", hash).field("hash_len", b.ty("u64"));
    let hash_len = b.composite("", hash_len);
    let bytes = b.const_ptr(b.ty("unsigned char"));
    let qstr = Layout::structure().field("", hash_len).field("name", bytes);
    let qstr = b.composite("qstr", qstr);
    let iname = b.array(b.ty("unsigned char"), 32);
    let dentry_ptr = b.ptr_later();
    let dentry = Layout::structure()
        .field("d_flags", b.ty("unsigned int"))
        .field("d_parent", dentry_ptr)
        .field("d_name", qstr)
        .field("d_inode", inode_ptr)
        .field("d_iname", iname)
        .field("d_sb", sb_ptr);
    let dentry = b.composite("dentry", dentry);
    b.aim(dentry_ptr, dentry);
    let mount = Layout::structure()
        .field("mnt_root", dentry_ptr)
        .field("mnt_sb", sb_ptr);
    let mount = b.composite("vfsmount", mount);
    let mount = b.ptr(mount);
    let path = Layout::structure()
        .field("mnt", mount)
        .field("dentry", dentry_ptr);
    let path = b.composite("path", path);
    let void_ptr = b.ptr(0);
    let file = Layout::structure()
        .field("f_mode", b.ty("fmode_t"))
        .field("f_flags", b.ty("unsigned int"))
        .field("f_path", path)
        .field("f_inode", inode_ptr)
        .field("f_pos", b.ty("loff_t"))
        .field("private_data", void_ptr);
    let file = b.composite("file", file);
    Files { path, file }
}

/// Pointers that functions and tracepoints take.
pub(super) struct Tasks {
    pub(super) task_ptr: u32,
    regs_ptr: u32,
}

fn task_types(b: &mut Builder, files: &Files) -> Tasks {
    let task_ptr = b.ptr_later();
    let pgd = Layout::structure().field("pgd", b.ty("long unsigned int"));
    let pgd = b.typedef_struct("pgd_t", pgd);
    let pgd = b.ptr(pgd);
    let file_ptr = b.ptr(files.file);
    let inner = Layout::structure()
        .field("mm_users", b.ty("atomic_t"))
        .field("pgd", pgd)
        .field("total_vm", b.ty("long unsigned int"))
        .field("owner", task_ptr)
        .field("exe_file", file_ptr);
    let inner = b.composite("", inner);
    let bitmap = b.array(b.ty("long unsigned int"), 0);
    let mm = Layout::structure().field("", inner).field("cpu_bitmap", bitmap);
    let mm = b.composite("mm_struct", mm);
    let mm = b.ptr(mm);
    let cred = Layout::structure()
        .field("usage", b.ty("atomic_long_t"))
        .field("uid", b.ty("kuid_t"))
        .field("gid", b.ty("kgid_t"));
    let cred = b.composite("cred", cred);
    let cred = b.const_ptr(cred);
    let comm = b.array(b.ty("char"), 16);
    let void_ptr = b.ptr(0);
    let task = Layout::structure()
        .field("__state", b.ty("unsigned int"))
        .field("stack", void_ptr)
        .field("flags", b.ty("unsigned int"))
        .field("prio", b.ty("int"))
        .field("mm", mm)
        .field("exit_code", b.ty("int"))
        .bits("in_execve", b.ty("unsigned int"), 1)
        .bits("in_iowait", b.ty("unsigned int"), 1)
        .field("pid", b.ty("pid_t"))
        .field("tgid", b.ty("pid_t"))
        .field("real_parent", task_ptr)
        .field("parent", task_ptr)
        .field("start_time", b.ty("u64"))
        .field("cred", cred)
        .field("comm", comm);
    let task = b.composite("task_struct", task);
    b.aim(task_ptr, task);

    let mut regs = Layout::structure();
    for name in [
        "r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di",
        "orig_ax", "ip", "cs", "flags", "sp", "ss",
    ] {
        regs = regs.field(name, b.ty("long unsigned int"));
    }
    let regs = b.composite("pt_regs", regs);
    let regs_ptr = b.ptr(regs);
    Tasks { task_ptr, regs_ptr }
}

struct Net {
    skb_ptr: u32,
    sock_ptr: u32,
    dev_ptr: u32,
    drop_reason: u32,
}

fn net_types(b: &mut Builder) -> Net {
    let name = b.array(b.ty("char"), 16);
    let dev = Layout::structure()
        .field("name", name)
        .field("ifindex", b.ty("int"))
        .field("mtu", b.ty("unsigned int"))
        .field("flags", b.ty("unsigned int"));
    let dev = b.composite("net_device", dev);
    let dev_ptr = b.ptr(dev);
    let common = sock_common(b);
    let sock = Layout::structure()
        .field("__sk_common", common)
        .field("sk_rcvbuf", b.ty("int"))
        .field("sk_sndbuf", b.ty("int"))
        .field("sk_mark", b.ty("__u32"))
        .bits("sk_kern_sock", b.ty("u8"), 1)
        .bits("sk_no_check_tx", b.ty("u8"), 1)
        .bits("sk_userlocks", b.ty("u8"), 4)
        .field("sk_type", b.ty("u16"))
        .field("sk_protocol", b.ty("u16"))
        .field("sk_uid", b.ty("kuid_t"));
    let sock = b.composite("sock", sock);
    let sock_ptr = b.ptr(sock);

    let skb_ptr = b.ptr_later();
    let chain = Layout::structure()
        .field("next", skb_ptr)
        .field("prev", skb_ptr)
        .field("dev", dev_ptr);
    let chain = b.composite("", chain);
    let list_ptr = b.ptr_later();
    let list = Layout::structure()
        .field("next", list_ptr)
        .field("prev", list_ptr);
    let list = b.composite("list_head", list);
    b.aim(list_ptr, list);
    let front = Layout::union().field("", chain).field("list", list);
    let front = b.composite("", front);
    let cb = b.array(b.ty("char"), 48);
    let data = b.ptr(b.ty("unsigned char"));
    let skb = Layout::structure()
        .field("", front)
        .field("sk", sock_ptr)
        .field("cb", cb)
        .field("len", b.ty("unsigned int"))
        .field("data_len", b.ty("unsigned int"))
        .field("mac_len", b.ty("__u16"))
        .field("hdr_len", b.ty("__u16"))
        .bits("pkt_type", b.ty("__u8"), 3)
        .bits("ignore_df", b.ty("__u8"), 1)
        .bits("ip_summed", b.ty("__u8"), 2)
        .field("priority", b.ty("__u32"))
        .field("mark", b.ty("__u32"))
        .field("protocol", b.ty("__be16"))
        .field("head", data)
        .field("data", data);
    let skb = b.composite("sk_buff", skb);
    b.aim(skb_ptr, skb);

    let addresses = Layout::structure()
        .field("saddr", b.ty("__be32"))
        .field("daddr", b.ty("__be32"));
    let addresses = b.composite("", addresses);
    let pair = Layout::structure()
        .field("saddr", b.ty("__be32"))
        .field("daddr", b.ty("__be32"));
    let pair = b.composite("", pair);
    let addresses = Layout::union().field("", addresses).field("addrs", pair);
    let addresses = b.composite("", addresses);
    let iphdr = Layout::structure()
        .bits("ihl", b.ty("__u8"), 4)
        .bits("version", b.ty("__u8"), 4)
        .field("tos", b.ty("__u8"))
        .field("tot_len", b.ty("__be16"))
        .field("id", b.ty("__be16"))
        .field("frag_off", b.ty("__be16"))
        .field("ttl", b.ty("__u8"))
        .field("protocol", b.ty("__u8"))
        .field("check", b.ty("__be16"))
        .field("", addresses);
    b.composite("iphdr", iphdr);
    b.enum_(
        "",
        &[
            ("TCP_ESTABLISHED", 1),
            ("TCP_SYN_SENT", 2),
            ("TCP_CLOSE", 7),
            ("TCP_LISTEN", 10),
        ],
    );
    let reasons = [
        ("SKB_NOT_DROPPED_YET", 0),
        ("SKB_CONSUMED", 1),
        ("SKB_DROP_REASON_NOT_SPECIFIED", 2),
        ("SKB_DROP_REASON_NO_SOCKET", 3),
    ];
    let drop_reason = b.enum_("skb_drop_reason", &reasons);
    Net {
        skb_ptr,
        sock_ptr,
        dev_ptr,
        drop_reason,
    }
}

fn sock_common(b: &mut Builder) -> u32 {
    let addrpair = b.typedef("__addrpair", b.ty("__u64"));
    let portpair = b.typedef("__portpair", b.ty("__u32"));
    let addresses = Layout::structure()
        .field("skc_daddr", b.ty("__be32"))
        .field("skc_rcv_saddr", b.ty("__be32"));
    let addresses = b.composite("", addresses);
    let addresses = Layout::union()
        .field("skc_addrpair", addrpair)
        .field("", addresses);
    let addresses = b.composite("", addresses);
    let hashes = b.array(b.ty("__u16"), 2);
    let hash = Layout::union()
        .field("skc_hash", b.ty("unsigned int"))
        .field("skc_u16hashes", hashes);
    let hash = b.composite("", hash);
    let ports = Layout::structure()
        .field("skc_dport", b.ty("__be16"))
        .field("skc_num", b.ty("__u16"));
    let ports = b.composite("", ports);
    let ports = Layout::union().field("skc_portpair", portpair).field("", ports);
    let ports = b.composite("", ports);
    let state = b.volatile(b.ty("unsigned char"));
    let proto = b.writer.fwd("proto", false);
    let proto = b.ptr(proto);
    let common = Layout::structure()
        .field("", addresses)
        .field("", hash)
        .field("", ports)
        .field("skc_family", b.ty("short unsigned int"))
        .field("skc_state", state)
        .bits("skc_reuse", b.ty("unsigned char"), 4)
        .bits("skc_reuseport", b.ty("unsigned char"), 1)
        .bits("skc_ipv6only", b.ty("unsigned char"), 1)
        .field("skc_bound_dev_if", b.ty("int"))
        .field("skc_prot", proto);
    b.composite("sock_common", common)
}

fn file_functions(b: &mut Builder, files: &Files) {
    let int = b.ty("int");
    let file_ptr = b.ptr(files.file);
    let path_ptr = b.const_ptr(files.path);
    let how = Layout::structure()
        .field("flags", b.ty("__u64"))
        .field("mode", b.ty("__u64"))
        .field("resolve", b.ty("__u64"));
    let how = b.composite("open_how", how);
    let how_ptr = b.ptr(how);
    let constant = b.writer.const_(b.ty("char"));
    let user_string = b.user_ptr(constant);
    let user_buf = b.user_ptr(b.ty("char"));
    let pos = b.ptr(b.ty("loff_t"));
    b.func("vfs_open", int, &[("path", path_ptr), ("file", file_ptr)]);
    b.func(
        "do_sys_openat2",
        b.ty("long int"),
        &[("dfd", int), ("filename", user_string), ("how", how_ptr)],
    );
    let io = |buf| {
        [
            ("file", file_ptr),
            ("buf", buf),
            ("count", b.ty("size_t")),
            ("pos", pos),
        ]
    };
    let (read, write) = (io(user_buf), io(user_string));
    b.func("vfs_read", b.ty("ssize_t"), &read);
    b.func("vfs_write", b.ty("ssize_t"), &write);
    let filename = b.writer.fwd("filename", false);
    let filename = b.ptr(filename);
    let flags = b.writer.fwd("open_flags", false);
    let flags = b.const_ptr(flags);
    b.func(
        "do_filp_open",
        file_ptr,
        &[("dfd", int), ("pathname", filename), ("op", flags)],
    );
    b.func("takes_big", int, &[("how", how), ("after", int)]);
}

fn net_functions(b: &mut Builder, net: &Net) {
    let int = b.ty("int");
    let packet_type = b.writer.fwd("packet_type", false);
    let packet_type = b.ptr(packet_type);
    let net_ns = b.writer.fwd("net", false);
    let net_ns = b.ptr(net_ns);
    let msghdr = Layout::structure()
        .field("msg_namelen", int)
        .field("msg_flags", b.ty("unsigned int"));
    let msghdr = b.composite("msghdr", msghdr);
    let msghdr = b.ptr(msghdr);
    let (skb, sk) = (("skb", net.skb_ptr), ("sk", net.sock_ptr));
    b.func(
        "ip_rcv",
        int,
        &[
            skb,
            ("dev", net.dev_ptr),
            ("pt", packet_type),
            ("orig_dev", net.dev_ptr),
        ],
    );
    b.func("ip_send_skb", int, &[("net", net_ns), skb]);
    b.func(
        "tcp_sendmsg",
        int,
        &[sk, ("msg", msghdr), ("size", b.ty("size_t"))],
    );
    b.func("tcp_connect", int, &[sk]);
    b.func("tcp_close", 0, &[sk, ("timeout", b.ty("long int"))]);
    b.func("tcp_set_state", 0, &[sk, ("state", int)]);
    let optval = ("optval", b.ty("sockptr_t"));
    let params = [
        sk,
        ("level", int),
        ("optname", int),
        optval,
        ("optlen", b.ty("unsigned int")),
    ];
    b.func("do_tcp_setsockopt", int, &params);
    let common = b
        .writer
        .struct_("skb_frag", 4, &[Field::at("len", b.ty("u32"), 0)]);
    let frag = b.const_ptr(common);
    b.func("skb_frag_size", b.ty("unsigned int"), &[("frag", frag)]);
}

fn tracepoints(b: &mut Builder, tasks: &Tasks, net: &Net) {
    let task = tasks.task_ptr;
    let long = b.ty("long int");
    let switch = [
        ("preempt", b.ty("bool")),
        ("prev", task),
        ("next", task),
        ("prev_state", b.ty("unsigned int")),
    ];
    b.tracepoint("sched_switch", "__bpf_trace_", &switch);
    b.tracepoint("sched_wakeup", "__traceiter_", &[("p", task)]);
    let void_ptr = b.ptr(0);
    let dropped = [
        ("skb", net.skb_ptr),
        ("location", void_ptr),
        ("reason", net.drop_reason),
    ];
    b.tracepoint("kfree_skb", "__traceiter_", &dropped);
    b.tracepoint(
        "sys_enter",
        "__bpf_trace_",
        &[("regs", tasks.regs_ptr), ("id", long)],
    );
    b.tracepoint(
        "sys_exit",
        "__bpf_trace_",
        &[("regs", tasks.regs_ptr), ("ret", long)],
    );
}

fn build_module(base: &Builder) -> BtfWriter {
    let mut w = BtfWriter::over(&base.writer);
    let int = base.ty("int");
    let mode = w.enum_(
        "x86emul_mode",
        4,
        false,
        &[("X86EMUL_MODE_REAL", 0), ("X86EMUL_MODE_PROT64", 8)],
    );
    let fields = [
        Field::at("vcpu", base.ty("u64"), 0),
        Field::at("eflags", base.ty("long unsigned int"), 8),
        Field::at("eip", base.ty("long unsigned int"), 16),
        Field::at("mode", mode, 24),
    ];
    let ctxt = w.struct_("x86_emulate_ctxt", 32, &fields);
    let ctxt = w.ptr(ctxt);
    let proto = w.func_proto(int, &[("ctxt", ctxt)], false);
    w.func("x86_emulate_insn", proto, FUNC_STATIC);
    // A function that vmlinux has too.
    let proto = w.func_proto(0, &[("timeout", int)], false);
    w.func("nothing", proto, FUNC_STATIC);
    w
}
