//! How fast events become text. In: records such as the programs of a few queries write, 10000 of each, no two alike. Out:
//! criterion's report in events a second of processor time on one core, for each output format, and for a whole struct.
//! Processor time, so that other work on the machine does not count. Never writes anything anywhere.

use std::hint::black_box;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ksnoop_jit::compile::{self, Job, Way};
use ksnoop_jit::display::{Layout, NoSymbols, Options, Printer, Stamp};
use ksnoop_jit::lower::Target;
use ksnoop_jit::sema::Limits;
use ksnoop_jit::types::Types;
use ksnoop_jit::types::testing::mini_kernel;
use ksnoop_jit::wire::{self, RecordLayout, ValueLayout};

const QUERIES: [(&str, &str); 3] = [
    ("small", "tp:sched_switch(prev->pid, next->pid)"),
    ("string", "tp:sched_switch(prev->comm, next->pid)"),
    ("struct", "ip_rcv(skb)"),
];

const RECORDS: u64 = 10_000;

fn layouts(text: &str, types: &Types) -> Vec<RecordLayout> {
    let resolved = compile::understand(text, types, Limits::default())
        .unwrap_or_else(|diags| panic!("{text} is refused: {diags:?}"));
    let job = Job::alone(Way::Trampoline);
    let artifact = compile::generate(&resolved.query, types, &Target::default(), job)
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    let programs = artifact.programs.into_iter();
    programs.filter_map(|lowered| lowered.layout).collect()
}

/// A record as a busy machine makes it: times that rise, numbers that vary.
fn record(layout: &RecordLayout, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; layout.size as usize];
    let mut put = |at: u32, data: &[u8]| {
        let at = at as usize;
        bytes[at..at + data.len()].copy_from_slice(data);
    };
    put(wire::EVENT, &layout.event.to_le_bytes());
    put(wire::CPU, &((number % 8) as u32).to_le_bytes());
    put(wire::TIME, &(11_593_744_010_203 + number * 917).to_le_bytes());
    put(wire::TID, &(4000 + (number % 300) as u32).to_le_bytes());
    put(wire::PID, &(4000 + (number % 100) as u32).to_le_bytes());
    for item in &layout.items {
        let at = item.offset + wire::VALUE;
        match &item.value {
            ValueLayout::Scalar => put(at, &(number * 31 % 40_000).to_le_bytes()),
            ValueLayout::Pointee { copied, .. } => {
                put(at, &(0xffff_8880_0443_2700 + number * 256).to_le_bytes());
                let memory: Vec<u8> = (0..*copied)
                    .map(|at| {
                        if at % 4 == 0 {
                            (number + u64::from(at)) as u8
                        } else {
                            0
                        }
                    })
                    .collect();
                put(at + 8, &memory);
            }
            ValueLayout::Bytes { copied, .. } => {
                let mut comm = format!("kworker/{}:{}", number % 8, number % 31).into_bytes();
                comm.resize(*copied as usize, 0);
                put(at, &comm);
            }
            ValueLayout::Name => put(at, &0u64.to_le_bytes()),
            ValueLayout::Stack { .. } => {
                put(item.offset + wire::LENGTH, &8u32.to_le_bytes());
                put(at, &(0xffff_ffff_8100_0000 + number % 64).to_le_bytes());
            }
            ValueLayout::String { .. } | ValueLayout::Buffer { .. } => {
                put(item.offset + wire::LENGTH, &9u32.to_le_bytes());
                put(at, b"/dev/null");
            }
        }
    }
    bytes
}

/// The processor time of this thread.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = u64;
    type Value = u64;

    fn start(&self) -> u64 {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is live, and every Linux has the clock.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    fn end(&self, start: u64) -> u64 {
        self.start() - start
    }

    fn add(&self, one: &u64, other: &u64) -> u64 {
        one + other
    }

    fn zero(&self) -> u64 {
        0
    }

    fn to_f64(&self, nanos: &u64) -> f64 {
        *nanos as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn display(criterion: &mut Criterion<CpuTime>) {
    let types = mini_kernel();
    for (name, query) in QUERIES {
        let layouts = layouts(query, &types);
        let records: Vec<Vec<u8>> = (0..RECORDS).map(|number| record(&layouts[0], number)).collect();
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(RECORDS));
        for (format, stamp) in [
            (Layout::Text, Stamp::Monotonic),
            (Layout::Compact, Stamp::Monotonic),
            (Layout::Compact, Stamp::Wall),
            (Layout::Json, Stamp::Monotonic),
            (Layout::Chrome, Stamp::Monotonic),
        ] {
            let options = Options {
                stamp,
                ..Options::new(format)
            };
            let mut printer = Printer::new(&types, &layouts, options);
            let mut out = String::new();
            group.bench_function(
                BenchmarkId::new(format!("{format:?}"), format!("{stamp:?}")),
                |bencher| {
                    bencher.iter(|| {
                        for record in &records {
                            // As the tool does: written in pieces, from memory that is used again.
                            if out.len() > 1 << 16 {
                                out.clear();
                            }
                            printer.event(black_box(record), &mut out, &NoSymbols);
                        }
                        black_box(out.len())
                    });
                },
            );
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime).sample_size(20);
    targets = display
}
criterion_main!(benches);
