//! USDT probes of software that others built: Python, PostgreSQL, the C++ library, glibc. What they were given to do is known, and
//! so are the values. Each says why it is skipped where the software is not there, or has no probes.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::user_host::{Folder, gcc, list, skipped, trace, unable};

#[test]
fn pythons_returns_have_file_function_and_line() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("python");
    let python = "/usr/bin/python3";
    if list(&format!("usdt:{python}:python:function__return")).is_empty() {
        eprintln!("SKIP: {python} is not there, or has no probe function__return");
        return;
    }
    let script = folder.path("script.py");
    let text = "import gc\ndef traced(n):\n    return n + 1\ngc.disable()\nfor n in range(3):\n    traced(n)\n    gc.collect(1)\n";
    std::fs::write(&script, text).expect("a script");
    let command = format!("{python} -I -S {script}");
    let query = format!("usdt:{python}:python:function__return(str(arg0), str(arg1) == \"traced\", arg2)");
    let traced = trace(&folder.0, &command, &[&query]);
    let wanted = format!("python:function__return(str(arg0)=\"{script}\", str(arg1)=\"traced\", arg2=3)");
    assert_eq!(traced.events, vec![wanted; 3], "{}", traced.stderr);
    let query = format!("usdt:{python}:python:gc__start if arg0 == 1");
    let traced = trace(&folder.0, &command, &[&query]);
    // The interpreter may have collected before the script began.
    let wanted = ["python:gc__start(arg0=1)"; 3].map(str::to_string);
    assert!(
        traced.events.ends_with(&wanted),
        "{:?}\n{}",
        traced.events,
        traced.stderr
    );
}

/// The newest installed server's programs.
fn postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("postgres").exists() && bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop()
}

#[test]
fn postgresqls_queries_are_those_that_it_was_given() {
    if skipped(unable()) {
        return;
    }
    let as_postgres = ["--reuid=postgres", "--regid=postgres", "--clear-groups"];
    let user = Command::new("setpriv").args(as_postgres).arg("true").output();
    let Some(bin) = postgres().filter(|_| user.is_ok_and(|out| out.status.success())) else {
        eprintln!("SKIP: there is no PostgreSQL, or no user of that name");
        return;
    };
    let server = bin.join("postgres").display().to_string();
    if list(&format!("usdt:{server}:postgresql:query__start")).is_empty() {
        eprintln!("SKIP: {server} has no probe query__start");
        return;
    }
    let folder = Folder::new("postgresql");
    let data = folder.0.join("data");
    std::fs::create_dir(&data).expect("a folder");
    let own = Command::new("chown").arg("postgres").arg(&data).status();
    assert!(own.is_ok_and(|status| status.success()), "chown");
    let made = Command::new("setpriv")
        .args(as_postgres)
        .arg(bin.join("initdb"))
        .args(["--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C", "-D"])
        .arg(&data)
        .output()
        .expect("initdb runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let queries = [
        "select 1+1;",
        "create table t(a int);",
        "insert into t values (1),(2);",
    ];
    std::fs::write(folder.0.join("queries"), format!("{}\n", queries.join("\n"))).expect("queries");
    let command = format!(
        "sh -c 'exec setpriv {} {server} --single -F -D {} postgres < {} > /dev/null 2>&1'",
        as_postgres.join(" "),
        data.display(),
        folder.path("queries"),
    );
    let traced = trace(
        &folder.0,
        &command,
        &[
            &format!("usdt:{server}:postgresql:query__start(str(arg0))"),
            &format!("usdt:{server}:postgresql:query__done(str(arg0) =~ \"insert*\")"),
        ],
    );
    let mut wanted: Vec<String> = queries
        .iter()
        .map(|query| format!("postgresql:query__start(str(arg0)=\"{query}\\n\")"))
        .collect();
    wanted.push(format!("postgresql:query__done(str(arg0)=\"{}\\n\")", queries[2]));
    assert_eq!(traced.events, wanted, "{}", traced.stderr);
}

#[test]
fn exceptions_of_cpp_have_their_object_and_type() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("throws");
    if Command::new("g++").arg("--version").output().is_err()
        || list("usdt:libstdc++:libstdcxx:throw").is_empty()
    {
        eprintln!("SKIP: there is no g++, or its library has no probe throw");
        return;
    }
    let source = "#include <cstdio>\n#include <typeinfo>\nint main() { for (int n = 0; n < 3; n++) try { throw n; } catch (int &e) { printf(\"arg0=%llu, arg1=%llu\\n\", (unsigned long long)&e, (unsigned long long)&typeid(int)); } return 0; }";
    let program = gcc(&folder.0, source, "throws", &["-O1", "-x", "c++", "-lstdc++"]);
    let traced = trace(
        &folder.0,
        &program.display().to_string(),
        &[
            "usdt:libstdc++:libstdcxx:throw(arg0:u, arg1:u)",
            "usdt:libstdc++:libstdcxx:catch(arg0:u, arg1:u)",
        ],
    );
    let wanted: Vec<String> = traced
        .printed
        .iter()
        .flat_map(|line| {
            [
                format!("libstdcxx:throw({line})"),
                format!("libstdcxx:catch({line})"),
            ]
        })
        .collect();
    assert_eq!(wanted.len(), 6);
    assert_eq!(traced.events, wanted, "{}", traced.stderr);
}

/// glibc's probes, where it was built with them, and one of its functions.
#[test]
fn glibc() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("glibc");
    let source = "#include <setjmp.h>\nstatic jmp_buf b; int main(void) { volatile int n = 0; while (setjmp(b) < 3) longjmp(b, ++n); return 0; }";
    let program = gcc(&folder.0, source, "jumps", &["-O1"]);
    if list("usdt:libc:libc:*jmp*").contains("usdt:libc:libc:longjmp") {
        let query = "usdt:libc:libc:longjmp((int)arg1)";
        let traced = trace(&folder.0, &program.display().to_string(), &[query]);
        let wanted: Vec<String> = (1..4).map(|n| format!("libc:longjmp((int)arg1={n})")).collect();
        assert_eq!(traced.events, wanted, "{}", traced.stderr);
    } else {
        eprintln!("SKIP: this libc has no probe longjmp");
    }
    assert!(Path::new("/bin/true").exists());
    let traced = trace(&folder.0, "/bin/true", &["uprobe:libc:exit((int)arg0)"]);
    assert_eq!(traced.events, ["exit((int)arg0=0)"], "{}", traced.stderr);
}
