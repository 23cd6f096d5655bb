//! What the commands need of the machine they run on: where the workspace is, Debian packages, child
//! processes, the static binaries.
//!
//! In: names of packages and binaries. Out: paths, or an error that says what to do. It never installs
//! anything unless it is root and the machine has `apt-get`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// A program that must be there, and the Debian package that has it.
pub(crate) struct Tool {
    pub(crate) path: &'static [&'static str],
    package: &'static str,
}

/// Everything a guest needs. Each is looked for by file, so that a machine that has them all is left alone.
const VM_TOOLS: &[Tool] = &[
    Tool {
        path: &["/usr/bin/qemu-system-x86_64"],
        package: "qemu-system-x86",
    },
    Tool {
        path: &[
            "/usr/share/seabios/bios-256k.bin",
            "/usr/share/qemu/bios-256k.bin",
        ],
        package: "seabios",
    },
    Tool {
        path: &["/bin/busybox", "/usr/bin/busybox"],
        package: "busybox-static",
    },
    Tool {
        path: &["/usr/bin/cpio", "/bin/cpio"],
        package: "cpio",
    },
    Tool {
        path: &["/sbin/mke2fs", "/usr/sbin/mke2fs"],
        package: "e2fsprogs",
    },
    Tool {
        path: &["/bin/kmod", "/usr/bin/kmod"],
        package: "kmod",
    },
    Tool {
        path: &["/usr/bin/zstd"],
        package: "zstd",
    },
    Tool {
        path: &["/usr/bin/lz4"],
        package: "lz4",
    },
    Tool {
        path: &["/usr/bin/xz"],
        package: "xz-utils",
    },
];

/// What the guest tests load objects with, apart from us.
pub(crate) const BPFTOOL: Tool = Tool {
    path: &["/usr/sbin/bpftool"],
    package: "bpftool",
};

/// The workspace's top folder.
pub(crate) fn root() -> PathBuf {
    // Cargo says at run time where the package is; a binary started by hand falls back on where it was built.
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package
        .ancestors()
        .nth(2)
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Where this workspace's build output goes, whatever sets it.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let out = cargo()
        .args(["metadata", "--no-deps", "--format-version=1"])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(out.status.success(), "`cargo metadata` failed");
    let text = String::from_utf8(out.stdout)?;
    let (_, rest) = text
        .split_once("\"target_directory\":\"")
        .context("no target_directory in cargo's metadata")?;
    let (dir, _) = rest.split_once('"').context("cargo's metadata is cut off")?;
    Ok(PathBuf::from(dir))
}

/// Runs a command to its end, failing when it does.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    ensure!(status.success(), "{} failed ({status})", shown(command));
    Ok(())
}

pub(crate) fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    if let Some((_, name)) = text.rsplit_once('/') {
        text = name.to_owned();
    }
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}

/// Installs what guests need, or says which packages are to be installed by whom.
pub(crate) fn need_vm_tools(more: &[Tool]) -> Result<()> {
    ensure!(
        cfg!(all(target_arch = "x86_64", target_os = "linux")),
        "the guests are x86-64 Linux, built and booted on x86-64 Linux only"
    );
    let missing: Vec<&str> = VM_TOOLS
        .iter()
        .chain(more)
        .filter(|tool| !tool.path.iter().any(|path| Path::new(path).exists()))
        .map(|tool| tool.package)
        .collect();
    let has_apt = Path::new("/usr/bin/apt-get").exists();
    ensure!(
        has_apt,
        "the guests boot Debian's kernel packages, which are fetched with apt-get and dpkg-deb. This machine \
         has none: run this on Debian (a container will do) with {}",
        packages()
    );
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root()? {
        bail!(
            "these Debian packages are needed: run `sudo apt-get install {}` and try again",
            missing.join(" ")
        );
    }
    eprintln!("xtask: installing {}", missing.join(" "));
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        // What apt prints goes to stderr: stdout is the traced output alone.
        command
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(std::io::stderr());
        must(&mut command)
    };
    apt(&["-qq", "update"])?;
    let mut install = vec!["-qq", "-y", "--no-install-recommends", "install"];
    install.extend(&missing);
    apt(&install)
}

fn packages() -> String {
    VM_TOOLS
        .iter()
        .map(|tool| tool.package)
        .collect::<Vec<_>>()
        .join(" ")
}

fn is_root() -> Result<bool> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let uids = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .context("no Uid in /proc/self/status")?;
    Ok(uids.split_whitespace().nth(1) == Some("0"))
}

/// Builds one binary so that it runs in any guest: optimised, and with nothing linked dynamically.
pub(crate) fn static_binary(package: &str, bin: &str) -> Result<PathBuf> {
    static_build(package, "--bin", bin)?;
    built(&["release", bin])
}

/// The same with an example.
pub(crate) fn static_example(package: &str, example: &str) -> Result<PathBuf> {
    static_build(package, "--example", example)?;
    built(&["release", "examples", example])
}

fn static_build(package: &str, what: &str, name: &str) -> Result<()> {
    eprintln!("xtask: building {name} (release, static)");
    let mut build = cargo();
    build
        .args([
            "build",
            "--quiet",
            "--release",
            "--target",
            TRIPLE,
            "--package",
            package,
            what,
            name,
        ])
        // The target is named so that these flags do not reach build scripts and procedural macros.
        .env("RUSTFLAGS", "-C target-feature=+crt-static");
    must(&mut build)
}

fn built(parts: &[&str]) -> Result<PathBuf> {
    let mut path = target_dir()?.join(TRIPLE);
    path.extend(parts);
    ensure!(path.exists(), "cargo built no {}", path.display());
    Ok(path)
}

/// An empty folder of that name for files that a guest is to see, kept until the next run.
pub(crate) fn stage(name: &str) -> Result<PathBuf> {
    let dir = target_dir()?.join("vm").join(name);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

pub(crate) fn copy_into(file: &Path, dir: &Path) -> Result<()> {
    let name = file.file_name().context("a file to copy has no name")?;
    std::fs::copy(file, dir.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(())
}

/// Builds the program that tests of user space trace, static, with semaphores and without.
pub(crate) fn traced_program(into: &Path) -> Result<()> {
    let source = root().join("tests/suite/demo.c");
    for (name, options) in [
        ("demo", [].as_slice()),
        ("demo-watched", ["-DSEMAPHORES"].as_slice()),
    ] {
        must(
            Command::new("gcc")
                .args(["-O2", "-static", "-fno-ipa-cp", "-fno-ipa-sra"])
                .args(options)
                .arg("-o")
                .arg(into.join(name))
                .arg(&source),
        )?;
    }
    Ok(())
}
