//! `entry(e)` and `exit(e)` inside predicates and expressions, in a program that gcc builds, traced on the running kernel. The
//! function changes what its arguments point to, so a value that is read at the wrong time is another one.

use super::user_host::{Folder, gcc, skipped, trace, unable};

const PROGRAM: &str = r#"
__attribute__((noinline)) long work(int a, long *out, int *state) {
    *out = a * 2L;
    *state += 1;
    __asm__ volatile("" ::: "memory");
    return a;
}
int main(void) {
    for (int n = 1; n < 4; n++) {
        long out = -1;
        int state = 10 * n;
        __asm__ volatile("" :: "r"(&out), "r"(&state) : "memory");
        work(n, &out, &state);
    }
    return 0;
}
"#;

#[test]
fn each_side_of_a_predicate_says_when_it_is_read() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("phases");
    let program = gcc(
        &folder.0,
        PROGRAM,
        "phases",
        &["-O2", "-fno-ipa-cp", "-fno-ipa-sra"],
    );
    let path = program.display().to_string();
    for (query, shown) in [
        (
            "(exit(*(long *)arg1) > 3)",
            &["exit(*(long *)arg1)=4", "exit(*(long *)arg1)=6"][..],
        ),
        (
            "(entry(*(int *)arg2) == 20 && exit(*(int *)arg2) == 21)",
            &["entry(*(int *)arg2)=20, exit(*(int *)arg2)=21"],
        ),
        // By itself it is read at entry, where nothing is in it yet.
        (
            "(*(long *)arg1 == -1 && exit(*(long *)arg1) == 6)",
            &["*(long *)arg1=-1, exit(*(long *)arg1)=6"],
        ),
        ("((int)arg0) if exit(*(long *)arg1) == 4", &["(int)arg0=2"]),
        (
            "((int)arg0) if !(exit(*(int *)arg2) == 21) && entry(*(int *)arg2) < 30",
            &["(int)arg0=1"],
        ),
        (
            "((int)arg0) if exit(*(long *)arg1) == 2 || exit(*(int *)arg2) == 31",
            &["(int)arg0=1", "(int)arg0=3"],
        ),
        (
            "(exit(*(long *)arg1) == return * 3 - (long)entry(arg0))",
            &[
                "exit(*(long *)arg1)=2, return * 3 - (long)entry(arg0)=2",
                "exit(*(long *)arg1)=4, return * 3 - (long)entry(arg0)=4",
                "exit(*(long *)arg1)=6, return * 3 - (long)entry(arg0)=6",
            ],
        ),
        (
            "(x = exit(*(long *)arg1) - exit(*(int *)arg2))",
            &["x=-9", "x=-17", "x=-25"],
        ),
        // Both moments together.
        (
            "(exit(*(int *)arg2) - entry(*(int *)arg2) == 1 && (int)arg0 == 2)",
            &["exit(*(int *)arg2) - entry(*(int *)arg2)=1, (int)arg0=2"],
        ),
        (
            "(entry(*(long *)arg1) < exit(*(int *)arg2) - 20)",
            &[
                "entry(*(long *)arg1)=-1, exit(*(int *)arg2) - 20=1",
                "entry(*(long *)arg1)=-1, exit(*(int *)arg2) - 20=11",
            ],
        ),
        ("((int)arg0) if *(int *)arg2 == exit(*(int *)arg2)", &[]),
    ] {
        let traced = trace(&folder.0, &path, &[&format!("uprobe:{path}:work{query}")]);
        let wanted: Vec<String> = shown.iter().map(|shown| format!("work({shown})")).collect();
        assert_eq!(traced.events, wanted, "{query}\n{}", traced.stderr);
    }
    let counted = trace(
        &folder.0,
        &path,
        &[&format!(
            "uprobe:{path}:work(count(), exit(*(long *)arg1) >= 4 && entry(*(int *)arg2) < 30)"
        )],
    );
    let grown = trace(
        &folder.0,
        &path,
        &[&format!(
            "uprobe:{path}:work(sum(exit(*(long *)arg1) - entry(*(long *)arg1)))"
        )],
    );
    // 3 + 5 + 7.
    assert!(
        grown.text.lines().any(|line| line.trim() == "15"),
        "{}\n{}",
        grown.text,
        grown.stderr
    );
    assert!(
        counted.text.lines().any(|line| line.trim() == "1"),
        "{}\n{}",
        counted.text,
        counted.stderr
    );
}
