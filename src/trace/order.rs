//! Events in the order of their times. In: records in the order in which the ring buffer gives them. Out: the same records,
//! each once, sorted. Never holds one longer than the window.
//!
//! The ring buffer is shared by all CPUs and gives records in the order in which programs reserved them. A program takes the
//! time just after that, so between two CPUs (or a program and one that interrupts it) the later reservation may carry the earlier
//! time. How far they are apart is how long a program can be held up between two instructions: nanoseconds as a rule, milliseconds
//! where a virtual CPU is taken away. Records are held back for a window of time that is longer than that; what comes
//! later still is handed out at once, and counted.

use std::ops::ControlFlow;

/// How long records are held back, in nanoseconds.
pub(super) const WINDOW: u64 = 10_000_000;

/// Held bytes at which the older half is handed out early.
const HELD_MAX: usize = 32 << 20;

/// Puts records in order.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The bytes of all held records, in the order in which they came.
    bytes: Vec<u8>,
    /// Where they are moved to when most have been handed out; kept so that its memory is.
    spare: Vec<u8>,
    /// The records, sorted by time; those before `next` have been handed out.
    held: Vec<Held>,
    next: usize,
    /// The time of the last one that was handed out.
    last: u64,
    /// Records that came after a later one had been handed out.
    pub(super) late: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    time: u64,
    start: usize,
    len: usize,
}

impl Order {
    /// Takes a record of that time.
    pub(super) fn push(&mut self, time: u64, record: &[u8]) {
        self.late += u64::from(time < self.last);
        let held = Held {
            time,
            start: self.bytes.len(),
            len: record.len(),
        };
        self.bytes.extend_from_slice(record);
        match self.held.last() {
            Some(last) if last.time > time => {
                let waiting = self.held.get(self.next..).unwrap_or(&[]);
                // Behind its equals: those of one time keep the order in which they came.
                let at = self.next + waiting.partition_point(|other| other.time <= time);
                self.held.insert(at, held);
            }
            Some(_) | None => self.held.push(held),
        }
    }

    /// How many records are held.
    pub(super) fn len(&self) -> usize {
        self.held.len() - self.next
    }

    /// Hands out the records that are not younger than `until`. Those that `each` has broken off at, and all after it,
    /// are held on.
    pub(super) fn release(
        &mut self,
        until: u64,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let until = self.until(until);
        let mut flow = ControlFlow::Continue(());
        while let Some(held) = self.held.get(self.next)
            && held.time <= until
            && flow.is_continue()
        {
            self.next += 1;
            self.last = self.last.max(held.time);
            let record = self.bytes.get(held.start..held.start + held.len);
            flow = each(record.unwrap_or(&[]));
        }
        self.tidy();
        flow
    }

    /// The time up to which records go out: later than asked for if there are too many.
    fn until(&self, until: u64) -> u64 {
        if self.bytes.len() < HELD_MAX {
            return until;
        }
        let middle = self.held.get(self.next + self.len() / 2);
        middle.map_or(until, |middle| middle.time.max(until))
    }

    fn tidy(&mut self) {
        if self.next == self.held.len() {
            self.held.clear();
            self.bytes.clear();
            self.next = 0;
        } else if self.next > self.held.len() / 2 {
            // What is left moves to the front, so that no byte is moved more often than it was handed in.
            self.spare.clear();
            self.held.drain(..self.next);
            self.next = 0;
            for held in &mut self.held {
                let start = self.spare.len();
                let record = self.bytes.get(held.start..held.start + held.len);
                self.spare.extend_from_slice(record.unwrap_or(&[]));
                held.start = start;
            }
            std::mem::swap(&mut self.bytes, &mut self.spare);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(order: &mut Order, until: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let _ = order.release(until, |record| {
            out.extend_from_slice(record);
            ControlFlow::Continue(())
        });
        out
    }

    #[test]
    fn records_come_out_sorted_and_only_when_they_are_old_enough() {
        let mut order = Order::default();
        for (time, byte) in [(5, b'b'), (3, b'a'), (9, b'd'), (5, b'c'), (12, b'e')] {
            order.push(time, &[byte]);
        }
        assert_eq!(taken(&mut order, 2), b"");
        assert_eq!(taken(&mut order, 5), b"abc");
        assert_eq!(order.len(), 2);
        order.push(7, b"x");
        assert_eq!(order.late, 0);
        assert_eq!(taken(&mut order, 9), b"xd");
        order.push(8, b"y");
        assert_eq!(order.late, 1);
        assert_eq!(taken(&mut order, u64::MAX), b"ye");
        assert_eq!(order.len(), 0);
    }

    #[test]
    fn breaking_off_keeps_the_rest() {
        let mut order = Order::default();
        for time in 0..10u8 {
            order.push(u64::from(time), &[time]);
        }
        let mut seen = 0;
        let flow = order.release(u64::MAX, |_| {
            seen += 1;
            if seen == 3 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert!(flow.is_break());
        assert_eq!(taken(&mut order, u64::MAX), (3..10).collect::<Vec<u8>>());
    }

    #[test]
    fn a_long_shuffled_stream_loses_nothing() {
        let mut order = Order::default();
        let mut out = Vec::new();
        let mut random = 1u64;
        for number in 0..50_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let time = number * 10 + (random >> 33) % 200;
            order.push(time, &time.to_le_bytes());
            if number % 97 == 0 {
                out.extend(taken(&mut order, (number * 10).saturating_sub(200)));
            }
        }
        out.extend(taken(&mut order, u64::MAX));
        let times: Vec<u64> = out
            .as_chunks::<8>()
            .0
            .iter()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .collect();
        assert_eq!(times.len(), 50_000);
        assert!(times.is_sorted());
        assert_eq!(order.late, 0);
    }

    #[test]
    fn too_much_is_handed_out_early() {
        let mut order = Order::default();
        let record = vec![0; 1 << 20];
        for time in 0..40 {
            order.push(time, &record);
        }
        let _ = order.release(0, |_| ControlFlow::Continue(()));
        assert!(order.len() < 30, "{}", order.len());
    }
}
