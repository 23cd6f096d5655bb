//! Stack mode for functions of programs: events only where one calls the other, directly or through others. Each says why it is
//! skipped where it can't be.

use super::user_host::{Folder, gcc, skipped, tool, trace, unable};

/// `inner` is reached through `outer` and `middle`, through `middle` alone, and alone; `outer` calls itself.
const CHAIN: &str = r#"
#define FUNCTION __attribute__((noinline, noclone))
FUNCTION int inner(int n) { char far[100000]; __asm__ volatile("" :: "r"(far) : "memory"); return n + 1; }
FUNCTION int middle(int n) { char far[100000]; __asm__ volatile("" :: "r"(far) : "memory"); return inner(n) + 1; }
FUNCTION int outer(int n) { __asm__ volatile("" ::: "memory"); return (n > 90 ? outer(n - 50) : middle(n)) + 1; }
FUNCTION int other(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
int main(void) {
    inner(1); middle(2); outer(3); outer(4); other(5); outer(99); inner(6);
    return 0;
}
"#;

#[test]
fn stack_mode_sees_who_calls_whom_in_a_program() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("chain");
    let path = gcc(&folder.0, CHAIN, "chain", &["-O1", "-w"])
        .display()
        .to_string();
    let target = |rest: &str| format!("uprobe:{path}:{rest}");
    for way in ["auto", "multi", "kprobe"] {
        let shown = |queries: &[&str]| {
            let targets: Vec<String> = queries.iter().map(|query| target(query)).collect();
            let mut arguments = vec!["-s", "--attach", way];
            arguments.extend(targets.iter().map(String::as_str));
            trace(&folder.0, &path, &arguments).events
        };
        assert_eq!(
            shown(&["outer((int)arg0)", "inner((int)arg0)"]),
            [
                "outer((int)arg0=3)",
                "inner((int)arg0=3)",
                "outer((int)arg0=4)",
                "inner((int)arg0=4)",
                "outer((int)arg0=99)",
                "inner((int)arg0=49)"
            ],
            "{way}"
        );
        // Predicates at entry decide which calls are meant, and returns come as they come.
        assert_eq!(
            shown(&[
                "outer((int)return) if (int)arg0 == 4",
                "middle()",
                "inner((int)return)"
            ]),
            ["middle()", "inner((int)return=5)", "outer((int)return=7)"],
            "{way}"
        );
        assert_eq!(shown(&["other()", "inner()"]), Vec::<String>::new(), "{way}");
    }
}

#[test]
fn a_chain_does_not_lead_from_programs_into_the_kernel() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("chains");
    let path = gcc(&folder.0, CHAIN, "chain", &["-O1", "-w"])
        .display()
        .to_string();
    let out = tool(&[
        "-s",
        "--for",
        "1",
        &format!("uprobe:{path}:outer()"),
        "vfs_read()",
    ]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("not of both"), "{said}");
}
