//! C as the oracle. Random structs, contents and expressions; gcc compiles them and says what each expression comes to; the
//! compiler's programs run over the same bytes, in the interpreter and, where this process may load programs, in the kernel.
//! Any difference is a bug of the compiler, and is told with everything that is needed to see it again.

mod cc;
mod expr;
mod family;
mod image;
mod ours;

use std::panic::AssertUnwindSafe;

use ksnoop_jit::ir::generate::Rng;

use cc::Program;
pub(crate) use cc::compiler;
use expr::{Expressions, Pair};
use family::{Family, Places};
use image::Image;
pub(crate) use ours::Kernel;
use ours::{Query, Shot, Ways};

/// Where memory begins for the interpreter.
const KERNEL_BASE: u64 = 0xffff_8880_0000_0000;
const USER_BASE: u64 = 0x7f12_3400_0000;
/// Contents that each expression is computed over, in the interpreter and in the kernel.
const IMAGES: usize = 2;
/// Values in one query.
const ITEMS: usize = 12;

/// What came of everything so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Expressions that were compared at least once.
    pub(crate) expressions: usize,
    /// Comparisons, in the interpreter and in the kernel.
    pub(crate) interpreted: usize,
    pub(crate) in_kernel: usize,
    /// How many of them were faults.
    pub(crate) faults: usize,
    /// Expressions that are refused, and rightly, or follow only addresses that decide nothing.
    pub(crate) left: usize,
    /// Predicates among the expressions.
    pub(crate) predicates: usize,
}

/// A round before it is run: everything that is the C compiler's.
pub(crate) struct Round {
    seed: u64,
    family: Family,
    places: Places,
    items: Vec<Pair>,
    predicates: Vec<Pair>,
    program: Program,
}

impl Round {
    /// Makes so many expressions over new types, and lets gcc compile them.
    pub(crate) fn new(seed: u64, expressions: usize) -> Round {
        let mut rng = Rng::new(seed);
        let family = Family::random(&mut rng);
        let mut maker = Expressions::new(rng.bits(), &family);
        // A query can have one condition, and its items are seen only where that holds.
        let conditions = expressions / (4 * ITEMS);
        let items: Vec<Pair> = (conditions..expressions).map(|_| maker.item()).collect();
        let predicates: Vec<Pair> = (0..conditions).map(|_| maker.predicate()).collect();
        let all: Vec<Pair> = items.iter().chain(&predicates).cloned().collect();
        let dir = std::env::temp_dir().join(format!("ksnoop-jit-oracle-{}-{seed}", std::process::id()));
        let program = Program::new(&cc::source(&family, &all), dir);
        let places = program.places(&family);
        Round {
            seed,
            family,
            places,
            items,
            predicates,
            program,
        }
    }

    /// Runs all queries of the round and compares.
    ///
    /// # Errors
    /// The first difference, told in full.
    pub(crate) fn run(&self, kernel: Option<&mut Kernel>, tally: &mut Tally) -> Result<(), String> {
        let types = self.family.types(&self.places);
        let mut rng = Rng::new(self.seed ^ 0x5eed);
        let seeds: Vec<u64> = (0..IMAGES).map(|_| rng.bits()).collect();
        let image = |seed: &u64, kernel_base, user_base| {
            Image::random(*seed, &self.family, &self.places, kernel_base, user_base)
        };
        let mut images: Vec<Image> = seeds
            .iter()
            .map(|seed| image(seed, KERNEL_BASE, USER_BASE))
            .collect();
        if let Some(kernel) = &kernel {
            let (kernel_base, user_base) = kernel.bases();
            images.extend(seeds.iter().map(|seed| image(seed, kernel_base, user_base)));
        }
        let answers = self
            .program
            .answers(&images, self.items.len() + self.predicates.len());
        let mut ways = Ways::new(
            &types,
            &images[..IMAGES],
            kernel.map(|kernel| (kernel, &images[IMAGES..])),
        );
        let queries = self.items.chunks(ITEMS).enumerate();
        for (number, chunk) in queries {
            let items = chunk
                .iter()
                .enumerate()
                .map(|(at, pair)| Shot {
                    pair,
                    index: number * ITEMS + at,
                })
                .collect();
            // Every fourth query has a condition.
            let cond = (number % 4 == 0)
                .then(|| self.predicates.get(number / 4))
                .flatten()
                .map(|pair| Shot {
                    pair,
                    index: self.items.len() + number / 4,
                });
            // Also a panic of the compiler is to be told with the types.
            let query = || ways.query(Query { items, cond }, number, &answers, tally);
            std::panic::catch_unwind(AssertUnwindSafe(query))
                .unwrap_or_else(|_| Err("the compiler panicked".to_string()))
                .map_err(|why| self.told(&why))?;
        }
        Ok(())
    }

    fn told(&self, why: &str) -> String {
        format!(
            "seed {}:\n{why}\n\nThe types:\n{}",
            self.seed,
            self.family.declarations()
        )
    }
}
