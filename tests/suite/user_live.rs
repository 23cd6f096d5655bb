//! Programs that gcc builds, traced on the running kernel: the values that a program says it passed are those that events
//! show, exactly; and software that others built. Each says why it is skipped where it can't be.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Says what it passes.
const PROGRAM: &str = include_str!("demo.c");

/// Plain numbers, whatever is usual for ones that look like addresses.
const SHOWN: &str = "arg0:d, arg1:u, arg2:d, arg3:u, arg4:d, arg5:u, arg6:d, arg7:u";

/// Where this test's files are; removed with it.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ksj-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for temporary files");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Why nothing can be traced here, if so.
fn unable() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !status.lines().any(|line| line.starts_with("Uid:\t0\t")) {
        return Some("only root may trace".to_string());
    }
    if !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        return Some("this kernel has no uprobes".to_string());
    }
    if Command::new("gcc").arg("--version").output().is_err() {
        return Some("there is no gcc".to_string());
    }
    let header = |folder: &&str| Path::new(folder).join("sys/sdt.h").exists();
    if !["/usr/include", "/usr/include/x86_64-linux-gnu"]
        .iter()
        .any(header)
    {
        return Some("there is no <sys/sdt.h> (systemtap-sdt-dev)".to_string());
    }
    None
}

pub(super) fn skipped(why: Option<String>) -> bool {
    if let Some(why) = &why {
        eprintln!("SKIP: {why}");
    }
    why.is_some()
}

pub(super) fn gcc(folder: &Path, source: &str, output: &str, options: &[&str]) -> PathBuf {
    let (from, to) = (folder.join(format!("{output}.c")), folder.join(output));
    std::fs::write(&from, source).expect("a source file");
    let done = Command::new("gcc")
        .args(options)
        .arg("-o")
        .arg(&to)
        .arg(&from)
        .args(
            options
                .iter()
                .filter(|option| option.starts_with("-l") || option.starts_with("-L")),
        )
        .output()
        .expect("gcc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    to
}

/// What came of tracing a command.
struct Traced {
    /// The events without their columns.
    events: Vec<String>,
    /// What the command printed.
    printed: Vec<String>,
    stderr: String,
}

fn trace(folder: &Path, command: &str, arguments: &[&str]) -> Traced {
    let file = folder.join("events");
    let out = Command::new(env!("CARGO_BIN_EXE_ksnoop-jit"))
        .args(["--format", "compact", "-v", "-c", command, "-o"])
        .arg(&file)
        .args(arguments)
        .output()
        .expect("the tool runs");
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{arguments:?}\n{stderr}");
    let lines = |bytes: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(bytes)
            .lines()
            .map(str::to_string)
            .collect()
    };
    let events = lines(&std::fs::read(&file).expect("its output"))
        .iter()
        .filter(|line| line.contains('('))
        .map(|line| {
            line.splitn(4, char::is_whitespace)
                .last()
                .unwrap_or("")
                .to_string()
        })
        .map(|line| {
            // Time, CPU and process stand before the name.
            let open = line.find('(').unwrap_or(0);
            let start = line[..open].rfind(' ').map_or(0, |at| at + 1);
            line[start..].to_string()
        })
        .collect();
    Traced {
        events,
        printed: lines(&out.stdout),
        stderr,
    }
}

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
    let query = format!("usdt:{path}:d*:*(arg0 < -100, arg7:u)");
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

/// Software that others built: glibc's `setjmp` probe, and Python's.
#[test]
fn probes_of_other_software() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("others");
    let source = "#include <setjmp.h>\nstatic jmp_buf b; int main(void) { volatile int n = 0; while (setjmp(b) < 3) longjmp(b, ++n); return 0; }";
    let program = gcc(&folder.0, source, "jumps", &["-O1"]);
    let list = |what: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_ksnoop-jit"))
            .args(["list", what])
            .output()
            .expect("the tool runs");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    if list("usdt:libc:libc:*jmp*").contains("usdt:libc:libc:longjmp") {
        let query = "usdt:libc:libc:longjmp((int)arg1)";
        let traced = trace(&folder.0, &program.display().to_string(), &[query]);
        let wanted: Vec<String> = (1..4).map(|n| format!("libc:longjmp((int)arg1={n})")).collect();
        assert_eq!(traced.events, wanted, "{}", traced.stderr);
    } else {
        eprintln!("SKIP: this libc has no probe longjmp");
    }
    let python = "/usr/bin/python3";
    if list(&format!("usdt:{python}:python:gc__start")).is_empty() {
        eprintln!("SKIP: {python} is not there, or has no probe gc__start");
    } else {
        let script = folder.0.join("script.py");
        let collects = "import gc\ngc.disable()\nfor n in range(3):\n    gc.collect(1)\n";
        std::fs::write(&script, collects).expect("a script");
        let query = format!("usdt:{python}:python:gc__start if arg0 == 1");
        let traced = trace(
            &folder.0,
            &format!("{python} -I -S {}", script.display()),
            &[&query],
        );
        // The interpreter may have collected before the script began.
        let wanted = ["python:gc__start(arg0=1)"; 3].map(str::to_string);
        assert!(
            traced.events.ends_with(&wanted),
            "{:?}\n{}",
            traced.events,
            traced.stderr
        );
    }
    let throws = "#include <stdexcept>\nint main() { for (int n = 0; n < 3; n++) try { throw n; } catch (int) {} return 0; }";
    if Command::new("g++").arg("--version").output().is_err()
        || list("usdt:libstdc++:libstdcxx:throw").is_empty()
    {
        eprintln!("SKIP: there is no g++, or its library has no probe throw");
    } else {
        let program = gcc(&folder.0, throws, "throws", &["-O1", "-x", "c++", "-lstdc++"]);
        let traced = trace(
            &folder.0,
            &program.display().to_string(),
            &["usdt:libstdc++:libstdcxx:throw()"],
        );
        assert_eq!(traced.events, ["libstdcxx:throw()"; 3], "{}", traced.stderr);
    }
    let traced = trace(&folder.0, "/bin/true", &["uprobe:libc:exit((int)arg0)"]);
    assert_eq!(traced.events, ["exit((int)arg0=0)"], "{}", traced.stderr);
}
