//! Tries every way to attach on the kernel that it runs on, and tells which really fire.
//!
//! In: nothing. Out: one line per way, `yes` with the number of hits and the cookie, or `no` with the reason; status
//! 1 if a way that attached stayed silent. For guests: build it with `-C target-feature=+crt-static`.

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::Read;
use std::net::UdpSocket;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use btf_rs::{Btf, Type};
use common::{COUNTER, EVENTS, PROGRAM, elf_object, target_btf, tgid_offset};
use ksnoop_jit_runtime::{
    AttachTarget, Capabilities, Events, LogLevel, Moment, ObjectSpec, ProgramKind, ProgramSpec, Relocated,
    Result, Site, btf, symbols,
};

const COOKIE: u64 = 0xc00c1e;

struct Smoke {
    types: Btf,
    tgid: u32,
    silent: bool,
}

/// One way to attach.
struct Way<'a> {
    label: &'a str,
    section: &'a str,
    kind: ProgramKind,
    attach: AttachTarget,
    cookie: Option<u64>,
}

fn reads() {
    let mut buffer = [0u8; 8];
    for _ in 0..3 {
        let _ = std::fs::File::open("/dev/zero").and_then(|mut f| f.read(&mut buffer));
    }
}

impl Smoke {
    fn object(&self, section: &str, cookie: bool) -> ObjectSpec {
        let elf = elf_object(section, cookie, 0);
        ObjectSpec {
            elf,
            target_btf: target_btf(self.tgid),
            ..Default::default()
        }
    }

    fn attempt(&self, way: &Way<'_>, act: fn()) -> Result<String> {
        let with_cookie = way.cookie.is_some();
        // Targets of many places carry a cookie for each.
        let many = matches!(
            way.attach,
            AttachTarget::Addresses(_) | AttachTarget::BtfIds { .. }
        );
        let cookie = way.cookie.filter(|_| !many);
        let spec = ProgramSpec {
            name: PROGRAM.to_owned(),
            kind: way.kind.clone(),
            attach: way.attach.clone(),
            cookie,
        };
        let start = Instant::now();
        let loaded = Relocated::new(&self.object(way.section, with_cookie))?.load(&[spec], LogLevel::Off)?;
        let load = start.elapsed();
        let start = Instant::now();
        let attached = loaded.attach()?;
        let attach = start.elapsed();
        let mut events = Events::open(attached.maps(), EVENTS)?;
        act();
        let (mut own, mut all, mut wrong) = (0u64, 0u64, 0u64);
        loop {
            let wake = events.poll(Some(Duration::from_millis(30)), |bytes| {
                let word = |i: usize| {
                    bytes
                        .get(i * 8..i * 8 + 8)
                        .and_then(|b| b.try_into().ok())
                        .map(u64::from_ne_bytes)
                };
                all += 1;
                if word(0).map(|w| w as u32) == Some(std::process::id()) {
                    own += 1;
                    wrong += u64::from(word(1) != Some(way.cookie.unwrap_or(0)));
                }
                ControlFlow::Continue(())
            })?;
            if wake.events == 0 || all > 10_000 {
                break;
            }
        }
        let count: u64 = attached.percpu_u64(COUNTER, 0)?.iter().sum();
        let verified = attached.stats()?.first().map_or(0, |s| s.verified_insns);
        let start = Instant::now();
        attached.detach_all(|_, _| {});
        let verdict = if own == 0 || wrong > 0 { "SILENT" } else { "yes" };
        Ok(format!(
            "{verdict} own={own} all={all} counted={count} wrong-cookies={wrong} verified={verified} load={load:.1?} \
             attach={attach:.1?} detach={:.1?}",
            start.elapsed()
        ))
    }

    fn show(&mut self, way: &Way<'_>, act: fn()) {
        match self.attempt(way, act) {
            Ok(text) => {
                // Where 5.10 attaches to that one at all, nothing here calls it.
                self.silent |= text.starts_with("SILENT") && way.label != "fentry notrace";
                println!("{:32} {text}", way.label);
            }
            Err(e) => println!("{:32} no: {e} [{}]", way.label, e.another_kind_may_work()),
        }
    }

    fn id(types: &Btf, name: &str, function: bool) -> Option<u32> {
        types
            .resolve_ids_by_name(name)
            .ok()?
            .into_iter()
            .find(|id| match types.resolve_type_by_id(*id) {
                Ok(Type::Func(_)) => function,
                Ok(Type::Typedef(_)) => !function,
                _ => false,
            })
    }

    /// A member of the running kernel's `enum bpf_attach_type`.
    fn attach_type(&self, name: &str) -> Option<u32> {
        for ty in self.types.resolve_types_by_name("bpf_attach_type").ok()? {
            let Type::Enum(e) = ty else { continue };
            for member in &e.members {
                if self.types.resolve_name(member).is_ok_and(|n| n == name) {
                    return Some(member.val());
                }
            }
        }
        None
    }

    fn tracing(&mut self) {
        let function = Self::id(&self.types, "vfs_read", true);
        let typedef = Self::id(&self.types, "btf_trace_sys_enter", false);
        let target = |id: Option<u32>, name: &str| AttachTarget::Btf {
            id: id.unwrap_or(0),
            module: None,
            name: name.to_owned(),
        };
        let session = self.attach_type("BPF_TRACE_FSESSION").unwrap_or(4000);
        for (label, section, kind, attach, cookie) in [
            (
                "fentry",
                "fentry/x",
                ProgramKind::Fentry,
                target(function, "vfs_read"),
                None,
            ),
            (
                "fexit",
                "fexit/x",
                ProgramKind::Fexit,
                target(function, "vfs_read"),
                None,
            ),
            (
                "fentry cookie",
                "fentry/x",
                ProgramKind::Fentry,
                target(function, "vfs_read"),
                Some(COOKIE),
            ),
            (
                "fexit cookie",
                "fexit/x",
                ProgramKind::Fexit,
                target(function, "vfs_read"),
                Some(COOKIE),
            ),
            (
                "fsession",
                "fentry/x",
                ProgramKind::Fsession { attach_type: session },
                target(function, "vfs_read"),
                None,
            ),
            (
                "tp_btf",
                "tp_btf/x",
                ProgramKind::TpBtf,
                target(typedef, "sys_enter"),
                None,
            ),
            (
                "tp_btf cookie",
                "tp_btf/x",
                ProgramKind::TpBtf,
                target(typedef, "sys_enter"),
                Some(COOKIE),
            ),
            (
                "raw_tp",
                "raw_tp/x",
                ProgramKind::RawTp,
                AttachTarget::RawTracepoint("sys_enter".into()),
                None,
            ),
            (
                "raw_tp cookie",
                "raw_tp/x",
                ProgramKind::RawTp,
                AttachTarget::RawTracepoint("sys_enter".into()),
                Some(COOKIE),
            ),
            (
                "no such raw_tp",
                "raw_tp/x",
                ProgramKind::RawTp,
                AttachTarget::RawTracepoint("nosuch".into()),
                None,
            ),
            (
                "tracepoint",
                "tracepoint/x",
                ProgramKind::Tracepoint,
                AttachTarget::Tracepoint {
                    group: "syscalls".into(),
                    event: "sys_enter_read".into(),
                },
                None,
            ),
            (
                "fentry notrace",
                "fentry/x",
                ProgramKind::Fentry,
                target(Self::id(&self.types, "ktime_get_mono_fast_ns", true), "notrace"),
                None,
            ),
            (
                "fentry bad id",
                "fentry/x",
                ProgramKind::Fentry,
                target(Some(1), "type 1"),
                None,
            ),
        ] {
            self.show(
                &Way {
                    label,
                    section,
                    kind,
                    attach,
                    cookie,
                },
                reads,
            );
        }
        let mut sites = vec![];
        for name in ["vfs_write", "vfs_read", "ksys_read"] {
            sites.extend(Self::id(&self.types, name, true).map(|id| Site {
                at: u64::from(id),
                cookie: COOKIE,
                ref_ctr: 0,
            }));
        }
        for (label, number, at) in [
            ("fentry_multi cookie", "BPF_TRACE_FENTRY_MULTI", Moment::Entry),
            ("fexit_multi cookie", "BPF_TRACE_FEXIT_MULTI", Moment::Return),
            ("fsession_multi cookie", "BPF_TRACE_FSESSION_MULTI", Moment::Both),
        ] {
            let Some(attach_type) = self.attach_type(number) else {
                println!("{label:32} no: this kernel's enum bpf_attach_type lacks {number}");
                continue;
            };
            println!(
                "{label:32} {}",
                Capabilities::detect().tracing_kind(attach_type, 0)
            );
            let attach = AttachTarget::BtfIds {
                sites: sites.clone(),
                module: None,
            };
            let kind = ProgramKind::TracingMulti { attach_type, at };
            self.show(
                &Way {
                    label,
                    section: "fentry/x",
                    kind,
                    attach,
                    cookie: Some(COOKIE),
                },
                reads,
            );
        }
    }

    fn kprobes(&mut self) {
        let sym = |name: &str, module: Option<&str>| AttachTarget::Symbol {
            name: name.to_owned(),
            module: module.map(str::to_owned),
            offset: 0,
        };
        let start = Instant::now();
        let found = symbols::Symbols::new()
            .lookup(&["vfs_read", "ksys_read", "vfs_write"])
            .unwrap_or_default();
        println!(
            "{:32} {} found in {:.1?}",
            "kallsyms",
            found.len(),
            start.elapsed()
        );
        let address = found.iter().find(|s| s.name == "vfs_read").map_or(0, |s| s.addr);
        let at = AttachTarget::Address {
            address,
            name: "vfs_read".to_owned(),
        };
        let sites: Vec<Site> = found
            .iter()
            .filter(|s| ["vfs_read", "ksys_read", "vfs_write"].contains(&s.name.as_str()))
            .map(|s| Site {
                at: s.addr,
                cookie: COOKIE,
                ref_ctr: 0,
            })
            .collect();
        let many = AttachTarget::Addresses(sites);
        let multi = |session, ret| ProgramKind::KprobeMulti { session, ret };
        for (label, kind, attach, cookie) in [
            ("kprobe", ProgramKind::Kprobe, sym("vfs_read", None), None),
            ("kretprobe", ProgramKind::Kretprobe, sym("vfs_read", None), None),
            (
                "kprobe cookie",
                ProgramKind::Kprobe,
                sym("vfs_read", None),
                Some(COOKIE),
            ),
            (
                "kretprobe cookie",
                ProgramKind::Kretprobe,
                sym("vfs_read", None),
                Some(COOKIE),
            ),
            ("kprobe address", ProgramKind::Kprobe, at.clone(), None),
            (
                "kretprobe address cookie",
                ProgramKind::Kretprobe,
                at,
                Some(COOKIE),
            ),
            (
                "kprobe.multi cookie",
                multi(false, false),
                many.clone(),
                Some(COOKIE),
            ),
            (
                "kretprobe.multi cookie",
                multi(false, true),
                many.clone(),
                Some(COOKIE),
            ),
            ("kprobe.session cookie", multi(true, false), many, Some(COOKIE)),
            (
                "kprobe no such function",
                ProgramKind::Kprobe,
                sym("no_such_function", None),
                None,
            ),
            (
                "kprobe deny-listed",
                ProgramKind::Kprobe,
                sym("asm_exc_int3", None),
                None,
            ),
        ] {
            let section = "kprobe/x";
            self.show(
                &Way {
                    label,
                    section,
                    kind,
                    attach,
                    cookie,
                },
                reads,
            );
        }
        if let Ok(found) = symbols::Symbols::new().lookup(&["asm_exc_int3", "vfs_read"]) {
            for s in found {
                println!("{:32} {} {:?}", "explain", s.name, symbols::explain(&s));
            }
        }
        let start = Instant::now();
        let table = symbols::Symbols::new();
        let named = table
            .resolve_addr(address + 4)
            .map(|place| format!("{}+{:#x}", place.name, place.offset));
        println!("{:32} {named:?} in {:.1?}", "resolve_addr", start.elapsed());
    }

    fn module(&mut self) {
        let send = || {
            if let Ok(socket) = UdpSocket::bind("0.0.0.0:0") {
                let _ = socket.set_broadcast(true);
                for _ in 0..3 {
                    let _ = socket.send_to(b"x", "10.99.0.255:9");
                }
            }
        };
        for command in [
            "modprobe dummy numdummies=1",
            "ip link set dummy0 up",
            "ip addr add 10.99.0.1/24 dev dummy0",
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            let _ = std::process::Command::new(words[0]).args(&words[1..]).status();
        }
        println!(
            "{:32} {:?}",
            "modules with BTF",
            btf::module_names().map(|m| m.len())
        );
        let module = Some("dummy".to_owned());
        let opened = btf::open_module("dummy", &self.types);
        let id = match &opened {
            Ok(m) => Self::id(m, "dummy_xmit", true).unwrap_or(0),
            Err(e) => {
                println!("{:32} no: {e}", "module BTF");
                0
            }
        };
        let name = "dummy_xmit".to_owned();
        let typed = AttachTarget::Btf {
            id,
            module: module.clone(),
            name: name.clone(),
        };
        for (label, section, kind, attach) in [
            ("fentry module", "fentry/x", ProgramKind::Fentry, typed.clone()),
            ("fexit module", "fexit/x", ProgramKind::Fexit, typed),
            (
                "kprobe module",
                "kprobe/x",
                ProgramKind::Kprobe,
                AttachTarget::Symbol {
                    name,
                    module,
                    offset: 0,
                },
            ),
        ] {
            self.show(
                &Way {
                    label,
                    section,
                    kind,
                    attach,
                    cookie: None,
                },
                send,
            );
        }
    }

    fn abilities(&self) {
        let caps = Capabilities::detect();
        let function = Self::id(&self.types, "vfs_read", true).unwrap_or(0);
        let cast = Self::id(&self.types, "bpf_rdonly_cast", true).unwrap_or(0);
        let task = self
            .types
            .resolve_ids_by_name("task_struct")
            .ok()
            .and_then(|v| v.first().copied())
            .unwrap_or(0);
        for (name, answer) in [
            ("fentry", caps.fentry(function)),
            ("ringbuf", caps.ringbuf()),
            ("kprobe", caps.kprobe()),
            ("uprobe", caps.uprobe()),
            ("kprobe.multi", caps.kprobe_multi()),
            ("kprobe.session", caps.kprobe_session()),
            ("uprobe.multi", caps.uprobe_multi()),
            ("uprobe.session", caps.uprobe_session()),
            ("bpf_cookie", caps.bpf_cookie()),
            (
                "fentry cookie",
                caps.fentry_helper(ksnoop_jit_runtime::caps::helper::GET_ATTACH_COOKIE, function),
            ),
            ("get_func_ip", caps.get_func_ip()),
            ("current_task_btf", caps.current_task_btf()),
            ("rdonly_cast", caps.rdonly_cast(cast, task)),
            ("loop", caps.helper(ksnoop_jit_runtime::caps::helper::LOOP)),
        ] {
            println!("can {name:28} {answer}");
        }
    }

    /// Attaching many, one by one and at once, and the time that takes.
    fn many(&self) {
        let names = [
            "vfs_read",
            "vfs_write",
            "vfs_open",
            "ip_rcv",
            "ip_output",
            "tcp_sendmsg",
            "udp_sendmsg",
            "inet_bind",
            "do_exit",
            "path_openat",
            "mmput",
            "ksys_read",
            "filp_close",
            "iterate_dir",
            "tcp_close",
            "do_sys_openat2",
        ];
        let specs: Vec<ProgramSpec> = names
            .iter()
            .filter_map(|n| Some((n, Self::id(&self.types, n, true)?)))
            .map(|(n, id)| ProgramSpec {
                name: PROGRAM.to_owned(),
                kind: ProgramKind::Fentry,
                attach: AttachTarget::Btf {
                    id,
                    module: None,
                    name: (*n).to_owned(),
                },
                cookie: None,
            })
            .collect();
        let run = || -> Result<()> {
            let loaded = Relocated::new(&self.object("fentry/x", false))?.load(&specs, LogLevel::Off)?;
            let start = Instant::now();
            let (attached, failed) = loaded.attach_lenient(|_, _| {})?;
            let attach = start.elapsed();
            let n = attached.links();
            let start = Instant::now();
            attached.detach_all(|_, _| {});
            println!(
                "{:32} {n} in {attach:.1?}, failed {}, detached in {:.1?}",
                "many fentries",
                failed.len(),
                start.elapsed()
            );
            for failed in failed {
                println!("  {}: {}", names[failed.spec], failed.error);
            }
            Ok(())
        };
        if let Err(e) = run() {
            println!("{:32} no: {e}", "many fentries");
        }
    }
}

fn main() {
    println!("kernel {}", Capabilities::detect().release());
    let start = Instant::now();
    let types = match btf::open_vmlinux(None) {
        Ok(types) => types,
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(1);
        }
    };
    println!("{:32} opened in {:.1?}", "vmlinux BTF", start.elapsed());
    let tgid = tgid_offset(&types).unwrap_or(0);
    let mut smoke = Smoke {
        types,
        tgid,
        silent: false,
    };
    smoke.abilities();
    smoke.tracing();
    smoke.kprobes();
    smoke.module();
    smoke.many();
    std::process::exit(i32::from(smoke.silent));
}
