//! The protocol's clock.

use weir_link::Time;

/// Now, on the protocol's clock.
pub fn now() -> Time {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec to fill; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    Time(ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}
