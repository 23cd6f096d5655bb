//! `cargo xtask bench-usdt`: what a hit of a USDT probe with three arguments costs, by this tool, by bpftrace, and by libbpf.
//!
//! In: numbers of rounds and hits; as root on a kernel with uprobes. Out: a table on stdout, with medians and ratios, all from one run. All
//! three test the same condition, which never holds, so that what is measured is the fetching of arguments. What
//! can't be had (bpftrace, clang with libbpf's headers) is told and left out. It never judges.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::host;

/// The same for all.
const CONDITION: &str = "arg0 + arg1 + arg2 == 123456789";
const LIBBPF: &str = include_str!("../../suite/libbpf_usdt.bpf.c");
const TARGET: &str = include_str!("../usdt/target.c");
const LOADER: &str = include_str!("../usdt/libbpf.c");
/// Makes the kernel count runs of programs and their time.
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let (mut rounds, mut hits) = (7usize, 200_000u64);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || -> Result<u64> {
            let text = args.next().with_context(|| format!("{arg} wants a number"))?;
            text.parse().with_context(|| format!("`{text}` is not a number"))
        };
        match arg.as_str() {
            "--rounds" => rounds = number()? as usize,
            "--hits" => hits = number()?,
            other => bail!("bench-usdt has no option `{other}`"),
        }
    }
    ensure!(rounds > 0 && hits > 0, "numbers above 0 are wanted");
    host::must(host::cargo().args(["build", "--quiet", "--package", "ksnoop-jit"]))?;
    let folder = host::target_dir()?.join("bench-usdt");
    std::fs::create_dir_all(&folder)?;
    let target = compile(&folder, "target", TARGET, "gcc", &["-O2"])?;
    let tracers = tracers(&folder, &target)?;
    let before = std::fs::read_to_string(STATS).with_context(|| format!("{STATS} can't be read"))?;
    std::fs::write(STATS, "1").with_context(|| format!("{STATS} can't be written; root may"))?;
    let measured = measure(&tracers, &target, rounds, hits);
    std::fs::write(STATS, before.trim())?;
    report(&tracers, measured?, rounds, hits);
    instructions()?;
    Ok(ExitCode::SUCCESS)
}

/// How one of them is started.
struct Tracer {
    name: &'static str,
    command: Vec<String>,
}

/// Those that can be had here, ours first.
fn tracers(folder: &Path, target: &Path) -> Result<Vec<Tracer>> {
    let path = target.display();
    let own = host::target_dir()?.join("debug/ksnoop-jit").display().to_string();
    let mut found = vec![Tracer {
        name: "ksnoop-jit",
        command: vec![own, format!("usdt:{path}:bench:hit({CONDITION})")],
    }];
    if Command::new("bpftrace").arg("--version").output().is_ok() {
        let script = format!("usdt:{path}:bench:hit /{CONDITION}/ {{ printf(\"hit\\n\"); }}");
        found.push(Tracer {
            name: "bpftrace",
            command: ["bpftrace", "-e", &script].map(str::to_owned).to_vec(),
        });
    } else {
        println!("bpftrace is left out: it is not installed");
    }
    let options = ["-O2", "-g", "-target", "bpf", "-D__TARGET_ARCH_x86"];
    let include = ["-I/usr/include/x86_64-linux-gnu", "-c"];
    let object = compile(
        folder,
        "libbpf.o",
        LIBBPF,
        "clang",
        &[options.as_slice(), &include].concat(),
    );
    match object.and_then(|object| {
        Ok((
            object,
            compile(folder, "libbpf", LOADER, "gcc", &["-O2", "-lbpf"])?,
        ))
    }) {
        Ok((object, loader)) => found.push(Tracer {
            name: "libbpf",
            command: [&loader, &object, target]
                .map(|path| path.display().to_string())
                .to_vec(),
        }),
        Err(why) => println!("libbpf is left out (it takes clang and libbpf-dev): {why:#}"),
    }
    Ok(found)
}

fn compile(folder: &Path, name: &str, source: &str, compiler: &str, options: &[&str]) -> Result<PathBuf> {
    let (from, to) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&from, source)?;
    let mut command = Command::new(compiler);
    command.args(options.iter().filter(|option| !option.starts_with("-l")));
    command.arg("-o").arg(&to).arg(&from);
    command.args(options.iter().filter(|option| option.starts_with("-l")));
    let out = command
        .output()
        .with_context(|| format!("cannot start {compiler}"))?;
    ensure!(
        out.status.success(),
        "{}: {}",
        host::shown(&command),
        String::from_utf8_lossy(&out.stderr).lines().next().unwrap_or("")
    );
    Ok(to)
}

/// A tracer that is attached; ended when dropped.
struct Attached(Child);

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Attached {
    fn start(tracer: &Tracer, target: &Path) -> Result<Attached> {
        let child = Command::new(&tracer.command[0])
            .args(&tracer.command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", tracer.command[0]))?;
        let mut attached = Attached(child);
        let started = Instant::now();
        // Each says something else, or nothing, when it has attached; that its program runs is what counts.
        while attached.runs().0 == 0 {
            hit(target, 1)?;
            if let Some(status) = attached.0.try_wait()? {
                bail!("{} ended with {status}", tracer.name);
            }
            ensure!(
                started.elapsed() < Duration::from_secs(60),
                "{} does not attach",
                tracer.name
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(attached)
    }

    /// How often its programs ran, and for how many nanoseconds (`bpf_prog_show_fdinfo`, kernel/bpf/syscall.c).
    fn runs(&self) -> (u64, u64) {
        let mut known: Vec<u64> = Vec::new();
        let (mut count, mut time) = (0, 0);
        let files = std::fs::read_dir(format!("/proc/{}/fdinfo", self.0.id()));
        for file in files.into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(file.path()).unwrap_or_default();
            let value = |name: &str| {
                let line = text
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                line.and_then(|value| value.trim().parse::<u64>().ok())
            };
            if let (Some(_), Some(id), Some(runs), Some(nanoseconds)) = (
                value("prog_type"),
                value("prog_id"),
                value("run_cnt"),
                value("run_time_ns"),
            ) && !known.contains(&id)
            {
                known.push(id);
                count += runs;
                time += nanoseconds;
            }
        }
        (count, time)
    }
}

/// Hits the probe. Out: how many nanoseconds that took, for the program itself.
fn hit(target: &Path, times: u64) -> Result<u64> {
    let out = Command::new(target).arg(times.to_string()).output()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.trim()
        .parse()
        .with_context(|| format!("the traced program says {text:?}"))
}

/// Nanoseconds a hit: of the traced program's time, and in the BPF program.
#[derive(Clone, Copy, Default)]
struct Cost {
    whole: f64,
    inside: f64,
}

/// For each tracer, and last for none, what each round cost. Rounds alternate between them, so that what else the machine does
/// meets all alike.
fn measure(tracers: &[Tracer], target: &Path, rounds: usize, hits: u64) -> Result<Vec<Vec<Cost>>> {
    let mut costs = vec![Vec::new(); tracers.len() + 1];
    for _ in 0..rounds {
        for (tracer, costs) in tracers.iter().zip(&mut costs) {
            let attached = Attached::start(tracer, target)?;
            let (runs, time) = attached.runs();
            let whole = hit(target, hits)?;
            let (runs_after, time_after) = attached.runs();
            ensure!(
                runs_after - runs == hits,
                "{} ran {} times at {hits} hits",
                tracer.name,
                runs_after - runs
            );
            costs.push(Cost {
                whole: whole as f64 / hits as f64,
                inside: (time_after - time) as f64 / hits as f64,
            });
        }
        if let Some(none) = costs.last_mut() {
            none.push(Cost {
                whole: hit(target, hits)? as f64 / hits as f64,
                inside: 0.0,
            });
        }
    }
    Ok(costs)
}

fn report(tracers: &[Tracer], costs: Vec<Vec<Cost>>, rounds: usize, hits: u64) {
    let median = |costs: &[Cost], of: fn(&Cost) -> f64| {
        let mut values: Vec<f64> = costs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let medians: Vec<Cost> = costs
        .iter()
        .map(|costs| Cost {
            whole: median(costs, |cost| cost.whole),
            inside: median(costs, |cost| cost.inside),
        })
        .collect();
    println!("a hit of a USDT probe with three arguments: medians of {rounds} rounds of {hits} hits");
    println!(
        "              ns for the traced program   ns in the BPF program (the kernel's count of it included)"
    );
    let names = tracers.iter().map(|tracer| tracer.name).chain(["not traced"]);
    for (name, cost) in names.zip(&medians) {
        println!("  {name:10}  {:>25.1}   {:>21.1}", cost.whole, cost.inside);
    }
    let own = medians[0];
    for (tracer, cost) in tracers.iter().zip(&medians).skip(1) {
        println!(
            "  ksnoop-jit / {}: {:.2} of the program's time, {:.2} in the BPF program",
            tracer.name,
            own.whole / cost.whole,
            own.inside / cost.inside
        );
    }
}

/// Counted by a machine that runs both programs, which is a test of the suite.
fn instructions() -> Result<()> {
    let mut test = host::cargo();
    test.args([
        "test",
        "--quiet",
        "--package",
        "ksnoop-jit",
        "--test",
        "suite",
        "user_instructions",
    ]);
    let out = test.args(["--", "--nocapture"]).output()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    println!("instructions executed at a hit:");
    for line in text.lines() {
        // The first line of a test shares it with the dots of those before.
        if let Some((_, counts)) = line.split_once("instructions a hit: ksnoop-jit ") {
            println!("  ksnoop-jit {counts}");
        }
    }
    ensure!(
        out.status.success(),
        "`{}` ended with {}",
        host::shown(&test),
        out.status
    );
    Ok(())
}
