//! Call sites of USDT probes: what is listed of them, those that can't be read, and semaphores, which go up and down with whoever
//! watches, however that ends. Each says why it is skipped where it can't be.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::user_host::{Folder, Running, gcc, list, refused, run, skipped, tool, trace, traced, unable};
use ksnoop_jit::user::testing::{BASE, Made, TEXT};

/// Three places of one probe: a floating point number, an integer, and both with another number of arguments.
const REAL: &str = r#"
#include <sys/sdt.h>
volatile double half = 0.5; volatile int seven = 7;
int main(void) {
    DTRACE_PROBE2(demo, mixed, half, seven);
    DTRACE_PROBE2(demo, mixed, seven, -1);
    DTRACE_PROBE3(demo, mixed, seven + 1, -2, 3L);
    DTRACE_PROBE(demo, bare);
    return 0;
}
"#;

#[test]
fn a_site_that_cant_be_read_is_told_and_left_out() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("mixed");
    let path = gcc(&folder.0, REAL, "mixed", &["-O0"]).display().to_string();
    let all = list(&format!("usdt:{path}"));
    let float = all.lines().any(|line| line.contains("f@"));
    if !float {
        eprintln!("SKIP: this <sys/sdt.h> does not tell floating point numbers");
        return;
    }
    // Both arguments of the first place are there, the first can't be fetched.
    let probes: Vec<&str> = all.lines().filter(|line| line.starts_with("usdt:")).collect();
    assert_eq!(
        probes,
        [
            format!("usdt:{path}:demo:bare"),
            format!("usdt:{path}:demo:mixed")
        ]
    );
    assert_eq!(
        all.lines().filter(|line| line.contains(" in main+0x")).count(),
        4,
        "{all}"
    );
    assert_eq!(
        all.lines()
            .filter(|line| line.contains("can't be fetched"))
            .count(),
        1,
        "{all}"
    );
    assert!(all.contains("floating point numbers are not fetched"), "{all}");
    assert!(all.lines().any(|line| line.ends_with("-4@$-1")), "{all}");

    let traced = trace(&folder.0, &path, &[&format!("usdt:{path}:demo:mixed(arg0)")]);
    assert_eq!(traced.events, ["demo:mixed(arg0=7)", "demo:mixed(arg0=8)"]);
    assert!(traced.stderr.contains("is left out"), "{}", traced.stderr);
    assert!(
        traced.stderr.contains("by uprobe") && traced.stderr.contains("at 2 places"),
        "{}",
        traced.stderr
    );
    // Who does not ask for it has all places.
    let traced = trace(
        &folder.0,
        &path,
        &[&format!("usdt:{path}:demo:mixed(arg1, argc)")],
    );
    assert_eq!(
        traced.events,
        [
            "demo:mixed(arg1=7, argc=2)",
            "demo:mixed(arg1=-1, argc=2)",
            "demo:mixed(arg1=-2, argc=3)"
        ]
    );
    // Who asks for what there is gets of each place what it has.
    let traced = trace(&folder.0, &path, &[&format!("usdt:{path}:demo:mixed")]);
    assert_eq!(
        traced.events,
        [
            "demo:mixed(arg1=7)",
            "demo:mixed(arg0=7, arg1=-1)",
            "demo:mixed(arg0=8, arg1=-2, arg2=3)"
        ]
    );
    assert!(
        traced.stderr.contains("not all of `demo:mixed` is shown")
            && traced.stderr.contains("floating point numbers are not fetched"),
        "{}",
        traced.stderr
    );
    // Of many probes those that the query fits.
    let traced = trace(&folder.0, &path, &[&format!("usdt:{path}:demo:*(arg1)")]);
    assert_eq!(traced.events.len(), 3);
    assert!(
        traced
            .stderr
            .contains("1 probe; left out: 1 the query does not fit"),
        "{}",
        traced.stderr
    );
    let traced = trace(&folder.0, &path, &[&format!("usdt:{path}:demo:mixed(arg2)")]);
    assert_eq!(traced.events, ["demo:mixed(arg2=3)"]);
    let traced = trace(&folder.0, &path, &[&format!("usdt:{path}:*:b*")]);
    assert_eq!(traced.events, ["demo:bare()"]);
    for (query, why) in [
        ("demo:mixed(arg3)", "there are 3 arguments"),
        ("demo:mixd(arg0)", "did you mean `demo:mixed`"),
        ("dem*:x*", "no USDT probe matches"),
        ("demo:bare(arg0)", "there are no arguments"),
        ("demo:mixed(return)", "does not return"),
    ] {
        let said = refused(&[&format!("usdt:{path}:{query}")]);
        assert!(said.contains(why), "{query}: {said}");
    }
}

/// Says `b`, waits until somebody watches and then until nobody does, and ends well if both came.
const WATCHED: &str = r#"
#define _SDT_HAS_SEMAPHORES 1
#include <stdio.h>
#include <unistd.h>
#include <sys/sdt.h>
unsigned short demo_watched_semaphore __attribute__((section(".probes")));
static int wait_for(int wanted) {
    volatile unsigned short *now = &demo_watched_semaphore;
    for (int n = 0; n < 3000; n++) { if ((*now > 0) == wanted) return 1; usleep(10000); }
    return 0;
}
int main(void) {
    putchar('b'); fflush(stdout);
    if (!wait_for(1)) return 1;
    putchar('w'); fflush(stdout);
    if (!wait_for(0)) return 2;
    DTRACE_PROBE1(demo, watched, 1);
    return 0;
}
"#;

#[test]
fn semaphores_fall_when_the_tracer_is_killed() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("watched");
    let program = gcc(&folder.0, WATCHED, "watched", &["-O1"]);
    assert!(list(&format!("usdt:{}", program.display())).contains("  semaphore at 0x"));
    for way in ["auto", "kprobe", "multi"] {
        let mut watched = Command::new(&program);
        let mut running = Running::start(&mut watched);
        let mut tracer = Command::new(env!("CARGO_BIN_EXE_ksnoop-jit"))
            .args([
                "--attach",
                way,
                &format!("usdt:{}:demo:watched(arg0)", program.display()),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the tool runs");
        // It says that it is watched.
        running.say();
        tracer.kill().expect("it runs");
        tracer.wait().expect("it ended");
        let started = Instant::now();
        let status = running.end();
        assert!(status.success(), "{way}: {status} after {:?}", started.elapsed());
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}

/// Two places of one probe, in two objects that have a semaphore each.
#[test]
fn places_have_semaphores_of_their_own() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("two");
    let part = |name: &str| {
        format!(
            "#define _SDT_HAS_SEMAPHORES 1\n#include <sys/sdt.h>\nstatic unsigned short demo_two_semaphore __attribute__((section(\".probes\"), used));\nint {name}(int n) {{ DTRACE_PROBE1(demo, two, n); return ((volatile unsigned short *)&demo_two_semaphore)[0]; }}\n"
        )
    };
    for name in ["first", "second"] {
        std::fs::write(folder.0.join(format!("{name}.c")), part(name)).expect("a source file");
    }
    let main = "#include <stdio.h>\nint first(int), second(int); int main(void) { int a = first(1), b = second(2); printf(\"%d %d\\n\", a, b); return 0; }";
    std::fs::write(folder.0.join("main.c"), main).expect("a source file");
    run(
        &folder,
        "gcc",
        &["-O1", "-o", "two", "main.c", "first.c", "second.c"],
    );
    let path = folder.path("two");
    let all = list(&format!("usdt:{path}"));
    let mut semaphores: Vec<&str> = all
        .lines()
        .filter_map(|line| line.split("semaphore at ").nth(1))
        .collect();
    semaphores.dedup();
    assert_eq!(semaphores.len(), 2, "{all}");
    for way in ["auto", "kprobe"] {
        let traced = trace(
            &folder.0,
            &path,
            &["--attach", way, &format!("usdt:{path}:demo:two(arg0)")],
        );
        assert_eq!(
            traced.events,
            ["demo:two(arg0=1)", "demo:two(arg0=2)"],
            "{}",
            traced.stderr
        );
        assert_eq!(traced.printed, ["1 1"], "{way}: one of them is not watched");
    }
    assert_eq!(run(&folder, &path, &[]).trim(), "0 0");
}

/// What runs on another machine never runs here; it can still be looked at.
#[test]
fn a_program_for_another_machine_is_refused() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("foreign");
    let own = cfg!(target_arch = "aarch64");
    let (made, recipe) = if own {
        (Made::x86_64(), "8@%rdi")
    } else {
        (Made::aarch64(), "8@x0")
    };
    let made = made
        .function("work", TEXT + 16)
        .site([TEXT, BASE, 0], "p", "n", recipe);
    let path = folder.path("foreign");
    std::fs::write(&path, made.bytes()).expect("a file");
    for query in [
        format!("usdt:{path}:p:n(arg0)"),
        format!("uprobe:{path}:work()"),
        format!("uprobe:{path}:w*"),
    ] {
        let said = refused(&[&query]);
        assert!(said.contains("this machine is"), "{query}: {said}");
        let out = tool(&["--dump-insns", &query]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

/// A semaphore may lie where the file has nothing, and a symbol in a recipe may be among those that were stripped.
#[test]
fn semaphores_in_bss_and_symbols_that_were_stripped() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("bss");
    let source = r#"
#define _SDT_HAS_SEMAPHORES 1
#include <stdio.h>
#include <unistd.h>
#include <sys/sdt.h>
unsigned short demo_watched_semaphore;
int main(void) {
    volatile unsigned short *now = &demo_watched_semaphore;
    putchar('b'); fflush(stdout);
    for (int n = 0; n < 3000 && !*now; n++) usleep(10000);
    DTRACE_PROBE1(demo, watched, *now);
    return 0;
}
"#;
    let path = gcc(&folder.0, source, "watched", &["-O1"]).display().to_string();
    let running = Running::start(&mut Command::new(&path));
    let pid = running.pid().to_string();
    let query = format!("usdt:{path}:demo:watched(arg0)");
    let traced = traced(&folder.0, &["-p", &pid, "-n", "1", "--for", "20", &query]);
    assert_eq!(traced.events, ["demo:watched(arg0=1)"], "{}", traced.stderr);
    // Who starts later clears it, which is told.
    assert!(
        traced.stderr.contains("cleared when a program starts"),
        "{}",
        traced.stderr
    );
    let source = r#"
#include <sys/sdt.h>
static int counter;
int main(void) {
    __asm__ volatile("" ::: "memory");
    counter = 41;
    __asm__ volatile(
        "990: nop\n.pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n.4byte 992f-991f,994f-993f,3\n"
        "991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 990b,_.stapsdt.base,0\n"
        ".asciz \"demo\"\n.asciz \"glob\"\n.asciz \"-4@counter(%%rip)\"\n994: .balign 4\n.popsection\n" ::: "memory");
    DTRACE_PROBE(demo, other);
    return counter - 41;
}
"#;
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let path = gcc(&folder.0, source, "symbols", &["-O0"]).display().to_string();
    let query = format!("usdt:{path}:demo:glob(arg0)");
    assert_eq!(trace(&folder.0, &path, &[&query]).events, ["demo:glob(arg0=41)"]);
    run(
        &folder,
        "objcopy",
        &["--only-keep-debug", "symbols", "symbols.debug"],
    );
    run(&folder, "strip", &["symbols"]);
    let said = refused(&[&query]);
    assert!(
        said.contains("there is no symbol counter") && said.contains("can't be fetched"),
        "{said}"
    );
    run(
        &folder,
        "objcopy",
        &["--add-gnu-debuglink=symbols.debug", "symbols"],
    );
    assert_eq!(trace(&folder.0, &path, &[&query]).events, ["demo:glob(arg0=41)"]);
    let all = list(&format!("usdt:{path}"));
    assert!(!all.contains("can't be fetched"), "{all}");
}
