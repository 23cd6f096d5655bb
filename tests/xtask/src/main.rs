//! Developer commands, run as `cargo xtask COMMAND`.
//!
//! In: a command and its options. Out: the command's own output and exit status. It never needs a tool
//! that it does not name when the tool is missing. The benches attach to this machine's
//! kernel and the sweeps load into it; what the others trace is always a guest's.

mod attach;
mod ci;
mod demo;
mod events;
mod host;
mod matrix;
mod side;
mod startup;
mod sweep;
mod usdt;
mod vm;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  demo [--kernel K] [-n N] [QUERY]  trace real traffic with QUERY in a VM of its own (also: cargo demo)
  matrix [OPTIONS] [FILTER]         run the guest tests on several kernels (also: cargo matrix)
      --kernels 6.1,6.12            these kernels      --all    every kernel that is supported
      -j N                          N guests at a time (default 2)
      --quick                       other rungs for one case in eleven, as ci does
      --keep                        keep the logs      -v       show every guest's whole output
      FILTER                        only the tests whose name contains it
  side-by-side [KERNEL]             the original ksnoop and ours, at the same queries and traffic in a guest (6.1)
  bench-startup [--runs N] [QUERY]  time from exec to attached, peak memory, numbers of instructions (as root)
  bench-attach [--kernels K,...]    how long it takes to attach to 1 to 2000 functions, in guests
  bench-usdt [--rounds N] [--hits N]  what a hit of a USDT probe costs: this tool, bpftrace, libbpf (as root)
  bench-events [OPTIONS]            events shown, lost and the processor time they take, beside bpftrace (as root)
      --calls N  --rounds N         so many system calls (default 1000000), so often (3)
      --tool PATH                   this ksnoop-jit instead of one built now
  verifier-sweep [OPTIONS]          let this kernel's verifier judge a query on each of many functions; attaches nothing
      --kind KIND                   kprobe (the default), kretprobe, tp_btf or raw_tp
      --every                       all that its BTF has       --sample N   so many (default 500)
      --seed S                      other queries              --logs       show the verifier's logs
  random-queries [OPTIONS]          let the verifier judge random queries that use the whole language; attaches nothing
      --count N                     until N of each kind were accepted (default 1000)      --seed S   other queries
      --kinds KIND,...              kprobe, raw_tp, tp_btf (the default) and fentry        --logs     show logs
      --kernel 6.1,6.12 | all       in guests with these kernels (default kinds: kprobe, fentry)
  oracle [--count N] [--seed S]     compare N random expressions with what gcc makes of them (default 20000)
  ci [STEP...]                      every check, as .ci/run does it, or these steps of it
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    if rest.iter().any(|arg| arg == "-h" || arg == "--help") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let done = match command {
        "demo" => demo::run(rest),
        "matrix" => matrix::run(rest),
        "bench-startup" => startup::run(rest),
        "bench-attach" => attach::run(rest),
        "bench-usdt" => usdt::run(rest),
        "bench-events" => events::run(rest),
        "ci" => ci::run(rest),
        "side-by-side" => side::run(rest),
        "verifier-sweep" => sweep::run("verifier-sweep", rest),
        "random-queries" => sweep::random_queries(rest),
        "oracle" => sweep::run("oracle", rest),
        "help" | "-h" | "--help" => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        other => {
            eprint!("xtask: no command named `{other}`\n\n{HELP}");
            Ok(ExitCode::from(2))
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}
