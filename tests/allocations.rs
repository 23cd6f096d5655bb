//! Showing events takes no memory: neither for a member nor for an event, once there is room for the text. In: a struct with
//! everything in it, in every format. Out: the number of allocations, counted by an allocator that stands before the system's. A
//! test binary of its own, for that allocator is everybody's.

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;

use ksnoop_jit::compile::{self, Job, Way};
use ksnoop_jit::display::{Layout, Options, Printer, Stamp, Symbol, Symbols};
use ksnoop_jit::lower::Target;
use ksnoop_jit::sema::Limits;
use ksnoop_jit::types::testing::mini_kernel;
use ksnoop_jit::wire::{self, RecordLayout};

/// Counts, and leaves the work to the system.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    COUNT.with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are the system's.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, at: *mut u8, memory: Memory) {
        // SAFETY: the caller's promises are the system's.
        unsafe { System.dealloc(at, memory) }
    }

    unsafe fn realloc(&self, at: *mut u8, memory: Memory, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are the system's.
        unsafe { System.realloc(at, memory, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Every address has a symbol.
struct Everywhere;

impl Symbols for Everywhere {
    fn resolve(&self, address: u64) -> Option<Symbol<'_>> {
        Some(Symbol {
            name: "somewhere".into(),
            offset: address % 4096,
            module: Some("ext4".into()),
        })
    }
}

/// A record full of bytes that are not zero, so that every member is shown.
fn record(layout: &RecordLayout, number: u8) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..layout.size).map(|at| (at as u8 ^ number) | 1).collect();
    let mut put = |at: u32, data: &[u8]| {
        let at = at as usize;
        bytes[at..at + data.len()].copy_from_slice(data);
    };
    put(wire::EVENT, &layout.event.to_le_bytes());
    put(wire::TIME, &(1_000_000 + u64::from(number)).to_le_bytes());
    put(wire::TID, &77u32.to_le_bytes());
    for item in &layout.items {
        put(item.offset + wire::FAULT, &0u32.to_le_bytes());
        put(item.offset + wire::LENGTH, &4u32.to_le_bytes());
        put(item.offset + wire::VALUE, &0xffff_ffff_8100_0000u64.to_le_bytes());
    }
    bytes
}

#[test]
fn showing_a_struct_takes_no_memory() {
    let types = mini_kernel();
    let query = "ip_rcv(skb->len > 0xff, skb, skb->sk)";
    let resolved = match compile::understand(query, &types, Limits::default()) {
        Ok(resolved) => resolved,
        Err(diags) => panic!("{query}: {diags:?}"),
    };
    let job = Job::alone(Way::Trampoline);
    let artifact = compile::generate(&resolved.query, &types, &Target::default(), job)
        .unwrap_or_else(|error| panic!("{query}: {error}"));
    let layouts: Vec<RecordLayout> = artifact
        .programs
        .into_iter()
        .filter_map(|lowered| lowered.layout)
        .collect();
    let records: Vec<Vec<u8>> = (0..64).map(|number| record(&layouts[0], number)).collect();
    for format in [Layout::Text, Layout::Compact, Layout::Json, Layout::Chrome] {
        for stamp in [Stamp::Monotonic, Stamp::Wall, Stamp::Delta] {
            let options = Options {
                stamp,
                depth: 32,
                ..Options::new(format)
            };
            let mut printer = Printer::new(&types, &layouts, options);
            let mut out = String::with_capacity(1 << 20);
            printer.event(&records[0], &mut out, &Everywhere);
            let shown = out.len();
            let before = COUNT.with(Cell::get);
            for record in &records[1..] {
                out.clear();
                printer.event(record, &mut out, &Everywhere);
            }
            let taken = COUNT.with(Cell::get) - before;
            assert!(shown > 500, "{format:?} shows only {shown} bytes");
            assert_eq!(taken, 0, "{format:?} {stamp:?}: allocations for 63 events");
        }
    }
    // The counter does count.
    let before = COUNT.with(Cell::get);
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(COUNT.with(Cell::get) - before, 1);
}
