//! Where in programs probes can be put, and whose: processes and what they have mapped, containers, symbols of every sort,
//! addresses, versions, symbols that were stripped. Each says why it is skipped where it can't be.

use std::process::Command;

use super::user_host::{CALLS, Folder, Running, gcc, list, refused, run, skipped, trace, traced, unable};

/// Where a place is does not depend on the way, which is told to the kernel in two forms: one link for all, or one each. Each test
/// has both once.
fn ways(number: usize) -> &'static [&'static str] {
    if number == 0 {
        &["multi", "kprobe"]
    } else {
        &["auto"]
    }
}

/// Which number a program's function was called with last, by the events.
fn numbers(events: &[String], name: &str) -> Vec<i64> {
    events
        .iter()
        .map(|event| {
            let inner = event.strip_prefix(name).and_then(|rest| rest.strip_suffix(')'));
            let number = inner.and_then(|rest| rest.split('=').nth(1)?.parse().ok());
            number.unwrap_or_else(|| panic!("{event} is not of {name}"))
        })
        .collect()
}

/// Of two processes of one program only the one that is meant counts, and it may run already.
#[test]
fn only_the_process_that_is_named_counts() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("pid");
    let program = gcc(&folder.0, CALLS, "calls", &["-O1"]);
    let start = || Running::start(Command::new(&program).args(["100000", "2"]));
    let (meant, other) = (start(), start());
    let pid = meant.pid().to_string();
    // By path, and by the name of a file that the process has mapped.
    for (number, (name, target)) in [
        (
            "work((int)arg0=",
            format!("uprobe:{}:work((int)arg0)", program.display()),
        ),
        ("work((int)arg0=", "uprobe:calls:work((int)arg0)".to_string()),
        ("hidden((int)arg0=", "uprobe:calls:hidden((int)arg0)".to_string()),
        ("calls:work(arg0=", "usdt:calls:calls:work(arg0)".to_string()),
    ]
    .into_iter()
    .enumerate()
    {
        for way in ways(number) {
            let traced = traced(&folder.0, &["-p", &pid, "-n", "20", "--attach", way, &target]);
            assert_eq!(traced.pids, [meant.pid(); 20], "{target} {way}");
            let name = name.split('=').next().expect("a name");
            let numbers = numbers(&traced.events, name);
            assert!(
                numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
                "{target} {way}: {numbers:?}"
            );
        }
    }
    // Without it both count.
    let both = traced(
        &folder.0,
        &["-n", "200", &format!("uprobe:{}:hidden()", program.display())],
    );
    assert!(both.pids.contains(&meant.pid()) && both.pids.contains(&other.pid()));
    drop(meant);
    let why = refused(&["-p", "4194305", "uprobe:calls:work()"]);
    assert!(why.contains("there is no process 4194305"), "{why}");
}

/// A library is the one that the process has, wherever that is, and still is when it has been replaced.
#[test]
fn a_library_is_that_of_the_process() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("mapped");
    let library = |step: i32| {
        format!("int step(int n) {{ __asm__ volatile(\"\" ::: \"memory\"); return n + {step}; }}")
    };
    for (place, step) in [("here", 5), ("there", 7)] {
        std::fs::create_dir_all(folder.0.join(place)).expect("a folder");
        gcc(
            &folder.0,
            &library(step),
            &format!("{place}/libsteps.so"),
            &["-O1", "-fPIC", "-shared"],
        );
    }
    let main = "#include <stdio.h>\n#include <unistd.h>\nint step(int n); int main(void) { putchar('b'); fflush(stdout); int n = 0; for (;;) { n = step(n); usleep(2000); } }";
    let from = format!("-L{}", folder.path("here"));
    let program = gcc(&folder.0, main, "steps", &["-O1", &from, "-lsteps"]);
    let start =
        |place: &str| Running::start(Command::new(&program).env("LD_LIBRARY_PATH", folder.path(place)));
    let (here, there) = (start("here"), start("there"));
    let check = |running: &Running, step: i64| {
        let pid = running.pid().to_string();
        for (number, name) in ["libsteps", "libsteps.so"].into_iter().enumerate() {
            for way in ways(number) {
                let target = format!("uprobe:{name}:step((int)arg0)");
                let traced = traced(&folder.0, &["-p", &pid, "-n", "5", "--attach", way, &target]);
                let numbers = numbers(&traced.events, "step((int)arg0");
                assert_eq!(traced.pids, [running.pid(); 5]);
                assert!(
                    numbers.windows(2).all(|pair| pair[1] == pair[0] + step),
                    "{way} {numbers:?}"
                );
            }
        }
    };
    check(&here, 5);
    check(&there, 7);
    // An upgrade puts another file where the library was; the process goes on with the old one.
    std::fs::remove_file(folder.0.join("there/libsteps.so")).expect("it is there");
    std::fs::copy(
        folder.0.join("here/libsteps.so"),
        folder.0.join("there/libsteps.so"),
    )
    .expect("a copy");
    check(&there, 7);
}

/// In a container the same paths are other files: its own.
#[test]
fn a_process_in_a_container_has_its_own_files() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("container");
    let root = folder.0.join("root");
    // The same path inside and outside, with other values.
    let outside = gcc(&folder.0, CALLS, "prog", &["-O1"]);
    let inside = root.join(outside.strip_prefix("/").expect("an absolute path"));
    std::fs::create_dir_all(inside.parent().expect("its folder")).expect("a folder");
    gcc(&folder.0, CALLS, "other", &["-O1", "-DSTEP=1000"]);
    std::fs::copy(folder.0.join("other"), &inside).expect("a copy");
    // What it needs, in places of its own.
    let needed = run(&folder, "ldd", &[&folder.path("other")]);
    for library in needed.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(&library[1..]);
        std::fs::create_dir_all(to.parent().expect("its folder")).expect("a folder");
        std::fs::copy(library, to).expect("a copy");
    }
    let contained = |command: &mut Command| {
        let ok = command
            .args(["--mount", "--pid", "--fork", "chroot"])
            .arg(&root)
            .arg("/bin/none")
            .output();
        // 127: `chroot` came so far as to look for the program.
        ok.is_ok_and(|out| out.status.code() == Some(127))
    };
    if !contained(&mut Command::new("unshare")) {
        eprintln!("SKIP: no mount and process namespaces here");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "chroot"]);
    let running = Running::start(command.arg(&root).arg(&outside).args(["100000", "2"]));
    // `unshare` waits for the process whose root that is.
    let parent = running.pid();
    let children =
        std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).expect("children");
    let pid = children.trim().to_string();
    let path = outside.display().to_string();
    let targets = [
        format!("uprobe:{path}:work((int)arg0)"),
        "uprobe:prog:work((int)arg0)".to_string(),
        "usdt:prog:calls:work(arg0)".to_string(),
        // The way to it from outside is one too.
        format!("uprobe:/proc/{pid}/root{path}:work((int)arg0)"),
    ];
    for (number, target) in targets.into_iter().enumerate() {
        for way in ways(number) {
            let traced = traced(&folder.0, &["-p", &pid, "-n", "5", "--attach", way, &target]);
            assert_eq!(traced.pids.len(), 5, "{target} {way}");
            let name = traced.events[0].split('=').next().expect("a name").to_string();
            let numbers = numbers(&traced.events, &name);
            assert!(
                numbers.windows(2).all(|pair| pair[1] == pair[0] + 1000),
                "{target} {way}: {numbers:?}"
            );
        }
    }
    // Its libc is a copy, which nobody else has.
    let traced = traced(
        &folder.0,
        &["-p", &pid, "-n", "3", "uprobe:libc:usleep((int)arg0)"],
    );
    assert_eq!(traced.events, ["usleep((int)arg0=2000)"; 3]);
    let shown = String::from_utf8_lossy(&super::user_host::tool(&["-p", &pid, "list", "usdt:prog"]).stdout)
        .into_owned();
    assert!(shown.contains("usdt:prog:calls:work\n"), "{shown}");
}

/// An instruction behind a symbol, at an address, at an offset of the file; and what is none.
#[test]
fn addresses_and_offsets_are_places() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("places");
    // In one of these addresses and offsets are different numbers.
    for position in ["-no-pie", "-pie"] {
        let options = [
            "-O1",
            position,
            if position == "-pie" { "-fpie" } else { "-fno-pie" },
        ];
        let program = gcc(&folder.0, CALLS, "calls", &options);
        let path = program.display().to_string();
        let symbols = run(&folder, "nm", &[&path]);
        let address = |name: &str| {
            let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}")));
            u64::from_str_radix(line.expect("a symbol").split(' ').next().expect("an address"), 16)
                .expect("an address")
        };
        let hidden = address("hidden");
        let segment = if position == "-pie" { 0 } else { 0x40_0000 };
        let offset = hidden - segment;
        // The second instruction, so that nothing is put into the middle of one.
        let code = run(
            &folder,
            "objdump",
            &["-d", "--no-show-raw-insn", "--disassemble=hidden", &path],
        );
        let mut instructions = code.lines().filter_map(|line| {
            let (address, _) = line.trim_start().split_once(":\t")?;
            u64::from_str_radix(address, 16).ok()
        });
        assert_eq!(instructions.next(), Some(hidden));
        let later = instructions.next().expect("a second instruction") - hidden;
        let places = [
            ("hidden".to_string(), "hidden".to_string()),
            (format!("{hidden:#x}"), "hidden".to_string()),
            (format!("{hidden}"), "hidden".to_string()),
            (format!("+{offset:#x}"), "hidden".to_string()),
            (format!("hidden+{later}"), format!("hidden+{later:#x}")),
            (format!("hidden+{later:#x}"), format!("hidden+{later:#x}")),
            (format!("{:#x}", hidden + later), format!("hidden+{later:#x}")),
            (format!("+{:#x}", offset + later), format!("hidden+{later:#x}")),
        ];
        for (number, (place, shown)) in places.into_iter().enumerate() {
            // Where addresses are offsets there is less to mistake.
            if position == "-pie" && !place.starts_with(['+', '0']) {
                continue;
            }
            for way in ways(number) {
                let target = format!("uprobe:{path}:{place}()");
                let traced = trace(&folder.0, &path, &["--attach", way, &target]);
                assert_eq!(traced.events, vec![format!("{shown}()"); 3], "{target}");
            }
        }
        // At the beginning of a function arguments and returns are what they are by its name; inside there is neither.
        let target = format!("uprobe:{path}:{hidden:#x}((int)arg0 > 1, (int)return)");
        let traced = trace(&folder.0, &path, &[&target]);
        assert_eq!(
            traced.events,
            [
                "hidden((int)arg0=2, (int)return=3)",
                "hidden((int)arg0=3, (int)return=4)"
            ]
        );
        let stack = format!("uprobe:{path}:hidden+{later}($stack0 != 0)");
        assert_eq!(trace(&folder.0, &path, &[&stack]).events.len(), 3);
        if position == "-pie" {
            continue;
        }
        for (place, why) in [
            (format!("hidden+{later}(return)"), "does not return"),
            ("hidden+x()".to_string(), "no function"),
            ("hidden+0x100000()".to_string(), "not in code"),
            ("0x10()".to_string(), "not in code"),
            ("+0()".to_string(), "no code at this place"),
            ("+0xffffffffffff()".to_string(), "no code at this place"),
            ("+99999999999999999999()".to_string(), "not a number"),
            ("0x()".to_string(), "neither a symbol nor an address"),
            ("hiden()".to_string(), "did you mean `hidden`"),
        ] {
            let said = refused(&[&format!("uprobe:{path}:{place}")]);
            assert!(said.contains(why), "{place}: {said}");
        }
    }
}

/// Two functions that have one name in two versions; one function with two versions.
#[test]
fn versions_choose_between_symbols() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("versions");
    let source = r#"
#define KEPT __attribute__((noinline))
KEPT int f_old(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
KEPT int f_new(int n) { __asm__ volatile("" ::: "memory"); return n + 2; }
KEPT int both_old(int n) { __asm__ volatile("" ::: "memory"); return n + 3; }
extern int both_new(int n) __attribute__((alias("both_old")));
__asm__(".symver f_old,f@V_1"); __asm__(".symver f_new,f@@V_2");
__asm__(".symver both_old,both@V_1"); __asm__(".symver both_new,both@@V_2");
"#;
    std::fs::write(
        folder.0.join("map"),
        "V_1 { global: f; both; local: *; }; V_2 { global: f; both; } V_1;",
    )
    .expect("a version script");
    let script = format!("-Wl,--version-script={}", folder.path("map"));
    let library = gcc(
        &folder.0,
        source,
        "libver.so",
        &["-O1", "-shared", "-fPIC", &script],
    );
    let main = "int f(int); int old(int); int both(int); __asm__(\".symver old,f@V_1\"); int main(void) { int s = 0; for (int i = 0; i < 2; i++) s += f(i) + old(10 + i) + both(20 + i); return s == 0; }";
    let (from, rpath) = (
        format!("-L{}", folder.0.display()),
        format!("-Wl,-rpath,{}", folder.0.display()),
    );
    let program = gcc(&folder.0, main, "main", &["-O1", &from, &rpath, "-lver"]);
    let (path, command) = (library.display().to_string(), program.display().to_string());
    // With the table that the linker strips, and without.
    for stripped in [false, true] {
        if stripped {
            run(&folder, "strip", &[&path]);
        }
        for (symbol, values) in [
            ("f", &[0, 10, 1, 11][..]),
            ("f@V_1", &[10, 11]),
            ("f@V_2", &[0, 1]),
            ("f@@V_2", &[0, 1]),
            ("f*@V_1", &[10, 11]),
            ("both", &[20, 21]),
            ("both@V_1", &[20, 21]),
            ("both@V_2", &[20, 21]),
        ] {
            if stripped && !symbol.ends_with("@V_1") {
                continue;
            }
            let traced = trace(
                &folder.0,
                &command,
                &[&format!("uprobe:{path}:{symbol}((int)arg0)")],
            );
            let name = symbol.split(['@', '*']).next().expect("a name");
            let wanted: Vec<String> = values.iter().map(|n| format!("{name}((int)arg0={n})")).collect();
            assert_eq!(traced.events, wanted, "{symbol} {stripped}");
        }
        refused(&[&format!("uprobe:{path}:f@V_3()")]);
        let all = list(&format!("uprobe:{path}"));
        for version in ["f@V_1", "f@V_2", "both@V_1", "both@V_2"] {
            let line = format!("uprobe:{path}:{version}");
            // What is listed can be asked for as it is written there.
            assert!(all.contains(&format!("{line}  0x")), "{version}\n{all}");
            assert!(list(&line).starts_with(&line), "{version}");
        }
    }
}

/// Symbols that were stripped are found where distributions leave them.
#[test]
fn stripped_symbols_are_found_elsewhere() {
    if skipped(unable()) {
        return;
    }
    let tools = ["objcopy", "strip", "xz"];
    if let Some(missing) = tools
        .iter()
        .find(|tool| Command::new(tool).arg("--version").output().is_err())
    {
        eprintln!("SKIP: there is no {missing}");
        return;
    }
    let folder = Folder::new("stripped");
    let found = |name: &str| {
        let path = folder.path(name);
        let query = format!("uprobe:{path}:hidden((int)arg0)");
        let wanted: Vec<String> = (1..4).map(|n| format!("hidden((int)arg0={n})")).collect();
        assert_eq!(trace(&folder.0, &path, &[&query]).events, wanted, "{name}");
        let pattern = format!("uprobe:{path}:hidd*((int)arg0)");
        assert_eq!(trace(&folder.0, &path, &[&pattern]).events, wanted, "{name}");
        assert!(list(&format!("uprobe:{path}")).contains(&format!("uprobe:{path}:hidden  0x")));
    };
    let lost = |name: &str| {
        let said = refused(&[&format!("uprobe:{}:hidden((int)arg0)", folder.path(name))]);
        assert!(said.contains("no function `hidden`"), "{said}");
    };
    let build = |name: &str, id: &str| {
        gcc(&folder.0, CALLS, name, &["-O1", id]);
        let debug = format!("{name}.debug");
        run(&folder, "objcopy", &["--only-keep-debug", name, &debug]);
        run(&folder, "strip", &["-s", name]);
        debug
    };

    // `.gnu_debugdata`: the symbols, compressed, in the file itself.
    let debug = build("mini", "-Wl,--build-id");
    lost("mini");
    run(
        &folder,
        "objcopy",
        &["-S", "--keep-symbol=hidden", &debug, "symbols"],
    );
    run(&folder, "xz", &["symbols"]);
    run(
        &folder,
        "objcopy",
        &["--add-section", ".gnu_debugdata=symbols.xz", "mini"],
    );
    std::fs::remove_file(folder.0.join(&debug)).expect("it is there");
    found("mini");

    // A debug link, next to the file and in `.debug`, of the same build.
    let debug = build("linked", "-Wl,--build-id");
    run(
        &folder,
        "objcopy",
        &["--add-gnu-debuglink=linked.debug", "linked"],
    );
    found("linked");
    std::fs::create_dir(folder.0.join(".debug")).expect("a folder");
    std::fs::rename(folder.0.join(&debug), folder.0.join(".debug").join(&debug)).expect("a move");
    found("linked");
    gcc(&folder.0, CALLS, "stranger", &["-O0"]);
    std::fs::copy(folder.0.join("stranger"), folder.0.join(".debug").join(&debug)).expect("a copy");
    lost("linked");

    // Without a build id the link's checksum says whether it is the same build.
    let debug = build("unnamed", "-Wl,--build-id=none");
    run(
        &folder,
        "objcopy",
        &["--add-gnu-debuglink=unnamed.debug", "unnamed"],
    );
    found("unnamed");
    std::fs::copy(folder.0.join("stranger"), folder.0.join(&debug)).expect("a copy");
    lost("unnamed");

    // What is no compressed file is told, and the rest of the program can be traced.
    let debug = build("garbage", "-Wl,--build-id");
    std::fs::remove_file(folder.0.join(&debug)).expect("it is there");
    std::fs::write(folder.0.join("noise"), [0xfd, b'7', b'z', b'X', b'Z', 0, 9, 9]).expect("a file");
    run(
        &folder,
        "objcopy",
        &["--add-section", ".gnu_debugdata=noise", "garbage"],
    );
    lost("garbage");
    let path = folder.path("garbage");
    assert_eq!(
        trace(&folder.0, &path, &[&format!("usdt:{path}:calls:work()")])
            .events
            .len(),
        3
    );
}
