//! How the clocks of this machine stand to each other. In: nothing. Out: nanoseconds. Never keeps what it has read: clocks
//! are set, and machines sleep.

/// Nanoseconds of the monotonic clock, by which `bpf_ktime_get_ns` stamps events.
pub fn monotonic() -> u64 {
    u64::try_from(read(libc::CLOCK_MONOTONIC)).unwrap_or(0)
}

/// What other clocks show beyond the monotonic one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// Nanoseconds to be added for those since the Unix epoch.
    pub wall: i64,
    /// Nanoseconds to be added for those since boot with the time in suspend.
    pub boot: i64,
    /// Seconds that local time is ahead of UTC, now.
    pub zone: i32,
}

/// How the clocks stand now. Between two readings the process may be interrupted: of three tries the quickest counts.
pub fn offsets() -> Offsets {
    let difference = |clock: libc::clockid_t| {
        let tries = (0..3).map(|_| {
            let before = read(libc::CLOCK_MONOTONIC);
            let other = read(clock);
            let took = read(libc::CLOCK_MONOTONIC) - before;
            (took, other - before - took / 2)
        });
        tries.min().map_or(0, |(_, difference)| difference)
    };
    Offsets {
        wall: difference(libc::CLOCK_REALTIME),
        // It never is behind; only the time between two readings can make it seem so.
        boot: difference(libc::CLOCK_BOOTTIME).max(0),
        zone: zone(),
    }
}

/// Nanoseconds of a clock.
fn read(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is live; the clocks that are asked for exist on every Linux that has BPF, so that it can't fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec)
}

/// Seconds that local time (`TZ`, /etc/localtime) is ahead of UTC.
fn zone() -> i32 {
    let now = read(libc::CLOCK_REALTIME) / 1_000_000_000;
    // SAFETY: all zeros is a valid `tm`: numbers, and a pointer that may be null.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are live, and `localtime_r` keeps neither.
    let found = unsafe { libc::localtime_r(&raw const now, &raw mut local) };
    if found.is_null() {
        return 0;
    }
    i32::try_from(local.tm_gmtoff).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_agree_with_the_standard_library() {
        let now = || {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .expect("after 1970")
                .as_nanos() as i128
        };
        // The process may be kept waiting between any two readings, so that the first and the last are the bounds.
        let before = now();
        let ours = i128::from(monotonic()) + i128::from(offsets().wall);
        let after = now();
        let slack = 1_000_000_000;
        assert!(
            (before - slack..=after + slack).contains(&ours),
            "{before} {ours} {after}"
        );
        assert!(offsets().boot >= 0);
        assert!(offsets().zone.abs() <= 15 * 3600);
    }
}
