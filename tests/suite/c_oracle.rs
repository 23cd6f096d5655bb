//! C as the oracle, in small: a fixed sample of expressions, in the interpreter, and in the kernel where programs may be loaded.
//! The long run is `cargo xtask oracle`.

use super::oracle::{self, Kernel, Round, Tally};

/// Expressions in all, and in each of the C programs.
const SAMPLE: usize = 2000;
const ROUND: usize = 500;

#[test]
fn expressions_mean_what_c_says() {
    if let Err(why) = oracle::compiler() {
        eprintln!("SKIP: {why}");
        return;
    }
    let mut kernel = match Kernel::open() {
        Ok(kernel) => Some(kernel),
        Err(why) => {
            eprintln!("SKIP: not in the kernel: {why}");
            None
        }
    };
    let mut tally = Tally::default();
    let mut seed = 0;
    while tally.expressions < SAMPLE {
        seed += 1;
        if let Err(why) = Round::new(seed, ROUND).run(kernel.as_mut(), &mut tally) {
            panic!("{why}");
        }
    }
    eprintln!("{tally:?}");
    // The generator must not have lost its teeth.
    assert!(tally.faults > SAMPLE / 4, "{tally:?}");
    assert!(tally.predicates > 20, "{tally:?}");
    assert!(tally.left < SAMPLE, "{tally:?}");
    assert!(kernel.is_none() || tally.in_kernel > SAMPLE, "{tally:?}");
}
