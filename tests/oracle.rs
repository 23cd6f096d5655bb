//! A long run of C as the oracle: see `suite/oracle`. In: options. Out: how many expressions were compared, in which time, and
//! with which seed; status 1 at the first difference. Run as `cargo xtask oracle`.

#[path = "suite/machine.rs"]
#[expect(dead_code, reason = "only the tests ask it everything")]
mod machine;
#[path = "suite/oracle/mod.rs"]
mod oracle;
#[path = "suite/running.rs"]
mod running;

use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Instant;

use clap::Parser;
use oracle::{Kernel, Round, Tally};

/// Expressions in one C program.
const ROUND: usize = 1500;

/// Compares random expressions with what a C compiler makes of them.
#[derive(Parser)]
#[command(name = "oracle")]
struct Options {
    /// How many expressions.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    count: usize,
    /// Where the rounds' seeds begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Err(why) = oracle::compiler() {
        eprintln!("oracle: {why}");
        return ExitCode::FAILURE;
    }
    let mut kernel = match Kernel::open() {
        Ok(kernel) => Some(kernel),
        Err(why) => {
            eprintln!("oracle: only in the interpreter: {why}");
            None
        }
    };
    let started = Instant::now();
    let mut tally = Tally::default();
    let (rounds, next) = mpsc::sync_channel(1);
    // The next round is compiled while this one runs.
    let first = options.seed;
    std::thread::spawn(move || {
        for number in 0.. {
            if rounds
                .send(Round::new(first.wrapping_add(number), ROUND))
                .is_err()
            {
                return;
            }
        }
    });
    let mut done = 0u64;
    while tally.expressions < options.count {
        let Ok(round) = next.recv() else {
            eprintln!("oracle: no round can be made");
            return ExitCode::FAILURE;
        };
        if let Err(why) = round.run(kernel.as_mut(), &mut tally) {
            println!("{why}");
            println!("{tally:?}");
            return ExitCode::FAILURE;
        }
        done += 1;
        if done.is_multiple_of(20) {
            eprintln!("{:.0} s: {tally:?}", started.elapsed().as_secs_f32());
        }
    }
    println!(
        "{} expressions and no difference, in {:.0} s; rounds of {ROUND} with seeds {first} to {}",
        tally.expressions,
        started.elapsed().as_secs_f32(),
        first.wrapping_add(done - 1)
    );
    println!("{tally:?}");
    ExitCode::SUCCESS
}
