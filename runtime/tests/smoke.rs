//! The way from an object to events, on whatever kernel this runs on. What the kernel or the privileges don't allow
//! says `SKIP: reason` and passes.

mod common;

use std::ops::ControlFlow;
use std::time::Duration;

use common::{COUNTER, EVENTS, PROGRAM, elf_object, target_btf, tgid_offset};
use ksnoop_jit_runtime::{
    AttachTarget, Attached, Capabilities, Events, LoadCause, LogLevel, Maps, ObjectSpec, ProgramKind,
    ProgramSpec, RawProgram, Relocated, RuntimeError, Signals, btf, load_raw, relocate,
};

/// Skips, or gives back what the test needs.
fn or_skip<T>(result: Result<T, RuntimeError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(e @ (RuntimeError::NotPrivileged { .. } | RuntimeError::NoBtf { .. })) => {
            eprintln!("SKIP: {e}");
            None
        }
        Err(RuntimeError::Load(e)) if e.cause != LoadCause::Verifier => {
            eprintln!("SKIP: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn spec(kind: ProgramKind, attach: AttachTarget) -> ProgramSpec {
    ProgramSpec {
        name: PROGRAM.to_owned(),
        kind,
        attach,
        cookie: None,
    }
}

fn object(section: &str, cookie: bool, ret: i32, tgid: u32) -> ObjectSpec {
    ObjectSpec {
        elf: elf_object(section, cookie, ret),
        target_btf: target_btf(tgid),
        ..Default::default()
    }
}

/// Runs `act` and counts the events that this process caused.
fn own_events(maps: &Maps, act: impl Fn()) -> (u64, Vec<u64>) {
    let mut events = Events::open(maps, EVENTS).expect("it is a ring buffer");
    for _ in 0..3 {
        act();
    }
    let mut own = 0;
    let mut cookies = vec![];
    for _ in 0..20 {
        let wake = events
            .poll(Some(Duration::from_millis(50)), |bytes| {
                let word =
                    |i: usize| u64::from_ne_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("two words"));
                assert_eq!(bytes.len(), 16);
                if word(0) as u32 == std::process::id() {
                    own += 1;
                    cookies.push(word(1));
                }
                ControlFlow::Continue(())
            })
            .expect("a ring buffer can be waited for");
        if wake.events == 0 {
            break;
        }
    }
    (own, cookies)
}

#[test]
fn relocation_needs_no_privileges_and_no_kernel() {
    let programs =
        relocate(&elf_object("raw_tp/sched_switch", false, 0), &target_btf(0x123)).expect("it relocates");
    assert_eq!(programs.len(), 1);
    let p = &programs[0];
    let imm =
        |slot: usize| i32::from_le_bytes(p.insns[slot * 8 + 4..slot * 8 + 8].try_into().expect("4 bytes"));
    // Instruction 6 adds the offset of `tgid`.
    assert_eq!(imm(6), 0x123);
    let maps: Vec<_> = p.map_refs.iter().map(|r| (r.map.as_str(), imm(r.slot))).collect();
    assert_eq!(maps, [(EVENTS, 0), (COUNTER, 0)]);
    assert_eq!(p.func_info.len(), 8);
}

#[test]
fn a_missing_field_poisons_and_a_bad_target_is_an_error() {
    let elf = elf_object("raw_tp/sched_switch", false, 0);
    let mut other = common::BtfWriter::new();
    other.int("int", 4);
    assert!(relocate(&elf, &other.bytes()).is_ok());
    assert!(matches!(
        relocate(&elf, b"no BTF"),
        Err(RuntimeError::BadObject { .. })
    ));
}

#[test]
fn a_raw_tracepoint_sends_events_and_counts() {
    let Some(types) = or_skip(btf::open_vmlinux(None)) else {
        return;
    };
    let tgid = tgid_offset(&types).expect("every kernel has task_struct.tgid");
    let Some(relocated) = or_skip(Relocated::new(&object("raw_tp/sched_switch", false, 0, tgid))) else {
        return;
    };
    let target = AttachTarget::RawTracepoint("sched_switch".to_owned());
    let loaded = or_skip(relocated.load(&[spec(ProgramKind::RawTp, target)], LogLevel::Stats));
    let Some(loaded) = loaded else { return };
    let stats = loaded.stats().expect("a loaded program has statistics");
    assert!(stats[0].log.contains("processed"), "{:?}", stats[0].log);
    let Some(attached) = or_skip(loaded.attach()) else {
        return;
    };
    let (own, _) = own_events(attached.maps(), || std::thread::sleep(Duration::from_millis(5)));
    assert!(own >= 3, "{own} switches of this process");
    let count: u64 = attached
        .percpu_u64(COUNTER, 0)
        .expect("a per-CPU array of u64")
        .iter()
        .sum();
    assert!(count >= own);
    let mut steps = vec![];
    let loaded = attached.detach_all(|done, total| steps.push((done, total)));
    assert_eq!(steps, [(1, 1)]);
    let before: u64 = loaded
        .maps()
        .percpu_u64(COUNTER, 0)
        .expect("still there")
        .iter()
        .sum();
    std::thread::sleep(Duration::from_millis(20));
    let after: u64 = loaded
        .maps()
        .percpu_u64(COUNTER, 0)
        .expect("still there")
        .iter()
        .sum();
    assert_eq!(before, after, "detached");
}

#[test]
fn a_test_run_gives_the_return_value() {
    let Some(relocated) = or_skip(Relocated::new(&object("raw_tp/sched_switch", false, 42, 0))) else {
        return;
    };
    let loaded = or_skip(relocated.load(&[spec(ProgramKind::RawTp, AttachTarget::Nothing)], LogLevel::Off));
    let Some(loaded) = loaded else { return };
    assert_eq!(
        loaded
            .test_run(PROGRAM, &[1, 2])
            .expect("raw tracepoint programs can be run"),
        42
    );
    assert!(matches!(
        loaded.test_run("other", &[]),
        Err(RuntimeError::NoSuch { .. })
    ));
}

#[test]
fn arguments_of_a_test_run_arrive() {
    let mut asm = common::Asm::default();
    asm.insn(0x79, 0, 1, 8, 0);
    asm.exit();
    let program = RawProgram {
        prog_type: 17,
        insns: &asm.0,
        ..Default::default()
    };
    let Some(loaded) = or_skip(load_raw(&program, LogLevel::Off)) else {
        return;
    };
    assert_eq!(loaded.test_run(&[5, 77]).expect("it runs"), 77);
}

#[test]
fn what_the_verifier_refuses_is_told_with_its_log() {
    let mut asm = common::Asm::default();
    asm.insn(0x79, 0, 2, 0, 0);
    asm.exit();
    let program = RawProgram {
        prog_type: 17,
        insns: &asm.0,
        ..Default::default()
    };
    match load_raw(&program, LogLevel::Off) {
        Err(RuntimeError::Load(e)) if e.cause == LoadCause::Verifier => {
            assert!(
                e.to_string().contains("R2 !read_ok") && e.to_string().contains("bug in ksnoop-jit"),
                "{e}"
            );
        }
        other => {
            or_skip(other.map(|_| panic!("it reads a register that holds nothing")));
        }
    }
}

#[test]
fn a_typed_tracepoint_attaches() {
    let Some(types) = or_skip(btf::open_vmlinux(None)) else {
        return;
    };
    let tgid = tgid_offset(&types).expect("every kernel has task_struct.tgid");
    let ids = types
        .resolve_ids_by_name("btf_trace_sched_switch")
        .expect("names can be looked up");
    let Some(relocated) = or_skip(Relocated::new(&object("tp_btf/sched_switch", false, 0, tgid))) else {
        return;
    };
    let target = AttachTarget::Btf {
        id: ids[0],
        module: None,
        name: "sched_switch".to_owned(),
    };
    let attached = relocated
        .load(&[spec(ProgramKind::TpBtf, target)], LogLevel::Off)
        .and_then(|l| l.attach());
    let Some(attached) = or_skip(attached) else { return };
    let (own, _) = own_events(attached.maps(), || std::thread::sleep(Duration::from_millis(5)));
    assert!(own >= 3, "{own} switches of this process");
}

/// The probed function: never inlined, and with a body of its own.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn ksj_smoke_probe_target(x: u64) -> u64 {
    std::hint::black_box(x) + 1
}

/// The offset in this program's file of an address in it.
fn file_offset(address: u64) -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        if address >= start && address < u64::from_str_radix(end, 16).ok()? {
            let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
            return Some(address - start + offset);
        }
    }
    None
}

fn uprobe(kind: ProgramKind, multi: bool, cookie: Option<u64>) {
    let caps = Capabilities::detect();
    let can = if multi { caps.uprobe_multi() } else { caps.uprobe() };
    if !can.is_yes() {
        eprintln!("SKIP: {can}");
        return;
    }
    let Some(types) = or_skip(btf::open_vmlinux(None)) else {
        return;
    };
    let tgid = tgid_offset(&types).expect("every kernel has task_struct.tgid");
    let offset =
        file_offset(ksj_smoke_probe_target as *const () as u64).expect("the function is in this program");
    let path = std::env::current_exe().expect("this program has a path");
    let attach = if multi {
        let site = ksnoop_jit_runtime::Site {
            at: offset,
            cookie: cookie.unwrap_or(0),
            ref_ctr: 0,
        };
        AttachTarget::FileSites {
            path,
            sites: vec![site],
            pid: None,
        }
    } else {
        AttachTarget::File {
            path,
            offset,
            ref_ctr: 0,
            pid: Some(std::process::id()),
        }
    };
    let Some(relocated) = or_skip(Relocated::new(&object("uprobe/x", cookie.is_some(), 0, tgid))) else {
        return;
    };
    let specs = [ProgramSpec {
        name: PROGRAM.to_owned(),
        kind,
        attach,
        cookie: cookie.filter(|_| !multi),
    }];
    let attached = relocated.load(&specs, LogLevel::Off).and_then(|l| l.attach());
    let Some(attached): Option<Attached> = or_skip(attached) else {
        return;
    };
    let (own, cookies) = own_events(attached.maps(), || {
        std::hint::black_box(ksj_smoke_probe_target(1));
    });
    // Other tests of this program run at the same time and call it as well.
    assert!(
        own >= 3 && cookies.iter().all(|c| *c == cookie.unwrap_or(0)),
        "{own} calls, {cookies:?}"
    );
}

#[test]
fn uprobes_attach_with_and_without_cookie() {
    uprobe(ProgramKind::Uprobe, false, None);
    uprobe(ProgramKind::Uretprobe, false, None);
    uprobe(ProgramKind::Uprobe, false, Some(0xc00c1e));
}

#[test]
fn uprobe_multi_attaches_with_a_cookie() {
    uprobe(
        ProgramKind::UprobeMulti {
            session: false,
            ret: false,
        },
        true,
        Some(0xc00c1e),
    );
}

#[test]
fn two_objects_share_a_ring_buffer() {
    let first = object("raw_tp/sched_switch", false, 0, 0);
    let Some(a) = or_skip(Relocated::new(&first)) else {
        return;
    };
    let second = ObjectSpec {
        shared: Some(a.maps().clone()),
        ..first
    };
    let Some(b) = or_skip(Relocated::new(&second)) else {
        return;
    };
    let fds = |r: &Relocated| {
        let p = r.programs().next().expect("one program");
        p.map_refs
            .iter()
            .map(|m| p.insns[m.slot * 8 + 4..m.slot * 8 + 8].to_vec())
            .collect::<Vec<_>>()
    };
    assert_eq!(fds(&a), fds(&b));
    assert_ne!(fds(&a)[0], [0; 4]);
}

#[test]
fn a_signal_ends_the_wait() {
    let Some(relocated) = or_skip(Relocated::new(&object("raw_tp/sched_switch", false, 0, 0))) else {
        return;
    };
    let signals = Signals::catch().expect("signals can be caught");
    let mut events = Events::open(relocated.maps(), EVENTS).expect("it is a ring buffer");
    events
        .watch(std::os::fd::AsFd::as_fd(&signals), 3)
        .expect("a signalfd can be watched");
    // SAFETY: sends a signal that this thread has blocked to this thread.
    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
    let wake = events
        .poll(None, |_| ControlFlow::Continue(()))
        .expect("waiting works");
    assert!(wake.is_ready(3) && !wake.is_ready(2));
    assert_eq!(signals.take(), Some(libc::SIGTERM));
    assert_eq!(signals.take(), None);
}

#[test]
fn answers_about_this_kernel_come_with_reasons() {
    let caps = Capabilities::detect();
    if !caps.privileged().is_yes() {
        eprintln!("SKIP: {}", caps.privileged());
        return;
    }
    assert!(caps.ringbuf().is_yes());
    assert!(
        caps.helper(ksnoop_jit_runtime::caps::helper::PROBE_READ_KERNEL)
            .is_yes()
    );
    assert!(!caps.helper(9999).is_yes());
    // A type that no kernel has.
    assert!(!caps.tracing_kind(4000, 0).is_yes());
    for answer in [
        caps.kprobe(),
        caps.kprobe_multi(),
        caps.kprobe_session(),
        caps.bpf_cookie(),
    ] {
        assert!(answer.is_yes() || answer.to_string().len() > "no: ".len());
    }
}
