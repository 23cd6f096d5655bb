//! Programs that gcc builds, traced on the running kernel: the values that a program says it passed are those that events
//! show, exactly. Each says why it is skipped where it can't be.

use std::process::Command;

use super::user_host::{Folder, Traced, gcc, skipped, trace, unable};

/// Says what it passes.
const PROGRAM: &str = include_str!("demo.c");

/// Plain numbers, whatever is usual for ones that look like addresses.
const SHOWN: &str = "arg0:d, arg1:u, arg2:d, arg3:u, arg4:d, arg5:u, arg6:d, arg7:u";

/// The events of the probe are exactly what the program printed.
fn same_values(traced: &Traced, what: &str) {
    let wanted: Vec<String> = traced
        .printed
        .iter()
        .map(|line| format!("demo:sizes({line})"))
        .collect();
    assert!(
        wanted.len() > 15,
        "{what}: the program printed {} lines",
        wanted.len()
    );
    assert_eq!(traced.events, wanted, "{what}\n{}", traced.stderr);
}

#[test]
fn values_of_every_size_and_sign_from_every_sort_of_operand() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("usdt");
    for level in ["-O0", "-O1", "-O2"] {
        for position in ["-pie", "-no-pie"] {
            for semaphores in [false, true] {
                let mut options = vec![level, position, "-g0"];
                if position == "-pie" {
                    options.push("-fpie");
                }
                if semaphores {
                    options.push("-DSEMAPHORES");
                }
                let what = options.join(" ");
                let program = gcc(&folder.0, PROGRAM, "demo", &options);
                let path = program.display().to_string();
                let query = format!("usdt:{path}:demo:sizes({SHOWN})");
                for way in ["auto", "kprobe"] {
                    let traced = trace(&folder.0, &path, &["--attach", way, &query]);
                    same_values(&traced, &format!("{what} {way}"));
                    if semaphores {
                        assert!(
                            !traced.stderr.contains("watchers 0\n"),
                            "{what} {way}: {}",
                            traced.stderr
                        );
                    }
                }
                let alone = Command::new(&program).output().expect("it runs");
                let said = String::from_utf8_lossy(&alone.stderr).into_owned();
                assert_eq!(
                    said.contains("watchers 0\n"),
                    semaphores,
                    "{what}: after detaching"
                );
            }
        }
    }
}

#[test]
fn probes_in_a_shared_library() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("library");
    let library = gcc(
        &folder.0,
        PROGRAM,
        "libdemo.so",
        &["-O2", "-fPIC", "-shared", "-DLIBRARY", "-DSEMAPHORES"],
    );
    let place = format!("-L{}", folder.0.display());
    let rpath = format!("-Wl,-rpath,{}", folder.0.display());
    let main = "int run(void); int main(void) { return run(); }";
    let program = gcc(&folder.0, main, "main", &["-O2", &place, &rpath, "-ldemo"]);
    let query = format!("usdt:{}:demo:sizes({SHOWN})", library.display());
    let traced = trace(&folder.0, &program.display().to_string(), &[&query]);
    same_values(&traced, "a shared library");
    assert!(!traced.stderr.contains("watchers 0\n"), "{}", traced.stderr);
}

#[test]
fn predicates_strings_and_globs() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("queries");
    let program = gcc(&folder.0, PROGRAM, "demo", &["-O2"]);
    let path = program.display().to_string();
    let query = format!("usdt:{path}:d*:si*(arg0 < -100, arg7:u)");
    let traced = trace(&folder.0, &path, &[&query]);
    let wanted: Vec<String> = traced
        .printed
        .iter()
        .filter_map(|line| {
            let value = |name: &str| line.split(", ").find_map(|part| part.strip_prefix(name));
            let first: i64 = value("arg0=")?.parse().ok()?;
            (first < -100).then(|| format!("demo:sizes(arg0={first}, arg7={})", value("arg7=").unwrap_or("")))
        })
        .collect();
    assert!(!wanted.is_empty());
    assert_eq!(traced.events, wanted);
}

#[test]
fn functions_with_arguments_and_returns() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("uprobe");
    let program = gcc(
        &folder.0,
        PROGRAM,
        "demo",
        &["-O2", "-fno-ipa-cp", "-fno-ipa-sra"],
    );
    let path = program.display().to_string();
    for way in ["auto", "kprobe", "multi"] {
        let entry = format!("uprobe:{path}:work((int)arg0, str(arg1), (unsigned char)arg2)");
        let traced = trace(&folder.0, &path, &["--attach", way, &entry]);
        let wanted: Vec<String> = (1..4)
            .map(|n| {
                format!(
                    "work((int)arg0={}, str(arg1)=\"some text\", (unsigned char)arg2={})",
                    -10 * n,
                    200 + n
                )
            })
            .collect();
        assert_eq!(traced.events, wanted, "{way}\n{}", traced.stderr);
        // The out-parameter is what the function put there, with the argument that led to it.
        let both = format!("uprobe:{path}:work((int)arg0 < -10, (long)return, exit(*(long *)arg3))");
        let traced = trace(&folder.0, &path, &["--attach", way, &both]);
        assert_eq!(
            traced.events.len(),
            2,
            "{way}\n{:?}\n{}",
            traced.events,
            traced.stderr
        );
        for (event, n) in traced.events.iter().zip(2..) {
            assert!(event.contains(&format!("(int)arg0={}", -10 * n)), "{event}");
            assert!(
                event.contains(&format!("return={},", -10 * n - (200 + n))),
                "{event}"
            );
            assert!(event.contains(&format!("{}", -20 * n)), "{event}");
        }
    }
    // Static, mangled, and by its demangled name.
    for (symbol, shown) in [
        ("hidden", "hidden"),
        ("_ZN4demo6Widget4pokeEi", "demo::Widget::poke(int)"),
        ("demo::Widget::poke", "demo::Widget::poke(int)"),
    ] {
        let query = format!("uprobe:{path}:{symbol}()");
        let traced = trace(&folder.0, &path, &[&query]);
        assert_eq!(traced.events.len(), 3, "{symbol}\n{}", traced.stderr);
        assert!(traced.stderr.contains("3 events"), "{}", traced.stderr);
        let _ = shown;
    }
}
