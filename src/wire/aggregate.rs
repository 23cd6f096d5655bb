//! The contract for aggregations: how the keys and values of the map that the kernel keeps lie in memory. Lowering makes an
//! [`AggregateLayout`], display reads by it. Plain data; never touches bytes itself.
//!
//! A key is laid out like the values of a record, one after the other, each with its header; its fault words are always 0, for
//! what can't be read is not counted. Unused bytes of strings are zero, so that equal strings are equal keys. A value
//! belongs to one CPU: a `u64`, the number of hits on that CPU, then what each measure needs.

use super::{Format, ItemLayout, Phase};
use crate::ctype::CType;
use crate::span::Span;

/// In a value: byte offset of the number of hits on its CPU (`u64`). While it is 0, nothing else in the value means anything.
pub const HITS: u32 = 0;
/// Size of what every value begins with, in bytes.
pub const VALUE_HEADER: u32 = 8;

/// The most bytes that a key may have: `htab_map_alloc_check` of 5.10 (kernel/bpf/hashtab.c) allows no more than the BPF
/// stack has.
pub const KEY_MAX: u32 = 512;
/// The most bytes that a value may have: the smallest unit of per-CPU memory (`PCPU_MIN_UNIT_SIZE`, include/linux/percpu.h).
pub const VALUE_MAX: u32 = 32 << 10;

/// What one query aggregates.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateLayout {
    /// The name of the per-CPU hash map.
    pub map: String,
    /// What was hit: the function or tracepoint, or several, all of which count together.
    pub names: Vec<String>,
    /// Which of the query texts of the run this belongs to.
    pub query: usize,
    /// When it is counted.
    pub phase: Phase,
    /// Size of a key in the map, in bytes. Without keys it is 8 zero bytes.
    pub key_size: u32,
    /// The keys. Offsets are from the start of the key.
    pub keys: Vec<ItemLayout>,
    /// Size of one CPU's value in bytes, a multiple of 8.
    pub value_size: u32,
    /// What is measured, in the order it is shown.
    pub measures: Vec<MeasureLayout>,
}

impl AggregateLayout {
    /// Whether keys and values of the other mean the same: those of one query, of functions with the same types.
    pub fn goes_with(&self, other: &AggregateLayout) -> bool {
        let keys = |layout: &AggregateLayout| -> Vec<_> {
            let parts = layout.keys.iter();
            parts
                .map(|key| (key.offset, key.value.clone(), key.ty.clone()))
                .collect()
        };
        self.query == other.query
            && self.phase == other.phase
            && self.key_size == other.key_size
            && keys(self) == keys(other)
            && self.measures == other.measures
    }
}

/// One measured number, or one histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasureLayout {
    /// What it is called: its label, else the call as written.
    pub label: String,
    /// What it is.
    pub measure: Measure,
    /// Byte offset from the value's start.
    pub offset: u32,
    /// Whether what is measured has a sign.
    pub signed: bool,
    /// The C type of what is measured.
    pub ty: CType,
    /// What the numbers count.
    pub unit: Unit,
    /// How the numbers are written, if the query says.
    pub format: Option<Format>,
    /// Where in the query it is.
    pub span: Span,
}

/// What is done with the values. What a measure keeps is one `u64` if nothing else is said; what is measured is extended to
/// 64 bits by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The number of hits: keeps nothing of its own.
    Count,
    /// The sum, exact up to 2^32 hits on one CPU: keeps a `u64` for the sum of the values' low 32 bits, and one for that of the others,
    /// which are signed as the values are.
    Sum,
    /// The average: keeps the sum in the same way.
    Avg,
    /// The least value, kept as [`extreme_mask`] says.
    Min,
    /// The greatest value, kept as [`extreme_mask`] says.
    Max,
    /// How many values lie between powers of two: a `u64` for each bucket. Unsigned: bucket 0 is for 0, bucket N for 2^(N-1)
    /// up to 2^N - 1. Signed: the same in both directions from the bucket [`HIST_ZERO`].
    Hist,
    /// How many values lie in each step: a `u64` for each bucket. Bucket 0 is for what is less than `lo`, the last one for
    /// what is `hi` or more.
    Lhist {
        /// The least value of bucket 1.
        lo: i64,
        /// The first value that is too great.
        hi: i64,
        /// How many values a bucket has.
        step: i64,
    },
}

/// The bucket for 0 in the histogram of a signed number.
pub const HIST_ZERO: u32 = 64;

impl Measure {
    /// How many `u64`s it keeps.
    pub fn words(self, signed: bool) -> u32 {
        match self {
            Measure::Count => 0,
            Measure::Min | Measure::Max => 1,
            Measure::Sum | Measure::Avg => 2,
            Measure::Hist if signed => 2 * HIST_ZERO + 1,
            Measure::Hist => HIST_ZERO + 1,
            Measure::Lhist { lo, hi, step } => {
                let steps = (i128::from(hi) - i128::from(lo)) / i128::from(step.max(1));
                u32::try_from(steps).unwrap_or(u32::MAX).saturating_add(2)
            }
        }
    }
}

/// What the values of [`Measure::Min`] and [`Measure::Max`] are combined with by exclusive or before the greatest of them, as an
/// unsigned number, is kept. So 0, which every value begins with, is less than or the same as anything.
pub fn extreme_mask(measure: Measure, signed: bool) -> u64 {
    let order = if signed { 1 << 63 } else { 0 };
    match measure {
        Measure::Min => !order,
        Measure::Max
        | Measure::Count
        | Measure::Sum
        | Measure::Avg
        | Measure::Hist
        | Measure::Lhist { .. } => order,
    }
}

/// What a number counts, which decides how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nothing in particular.
    None,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
}
