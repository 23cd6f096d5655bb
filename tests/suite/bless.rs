//! Files that hold what is expected. With `KSJ_BLESS=1` they are written instead of compared.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A file or directory under `tests/golden`.
pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// Reads a file of the suite.
pub(crate) fn read(path: &Path) -> String {
    match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// Compares with the file, or writes it. What differs is added to `differences`.
pub(crate) fn compare(path: &Path, got: &str, differences: &mut String) {
    let want = std::fs::read_to_string(path).unwrap_or_default();
    if want == got {
        return;
    }
    if std::env::var_os("KSJ_BLESS").is_some_and(|value| value == "1") {
        if let Err(error) = std::fs::write(path, got) {
            panic!("{}: {error}", path.display());
        }
        return;
    }
    let line = want
        .lines()
        .zip(got.lines())
        .take_while(|(want, got)| want == got)
        .count();
    let at = |text: &str| -> String {
        let lines: Vec<&str> = text.lines().skip(line).take(6).collect();
        lines.join("\n    ")
    };
    let _ = writeln!(
        differences,
        "{}:{} differs\n  expected:\n    {}\n  got:\n    {}",
        path.display(),
        line + 1,
        at(&want),
        at(got)
    );
}

/// Fails if anything differed.
pub(crate) fn finish(differences: &str) {
    assert!(
        differences.is_empty(),
        "{differences}\nif that is right, run the test once with KSJ_BLESS=1 and read the difference"
    );
}
