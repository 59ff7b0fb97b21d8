//! Time as the protocol sees it: nanoseconds handed in by the caller, never read from a clock.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// Nanoseconds of an arbitrary monotonic clock.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// The clock's origin.
    pub const ZERO: Time = Time(0);
    /// Later than anything: "never".
    pub const MAX: Time = Time(u64::MAX);

    /// Nanoseconds since `earlier`, 0 if `earlier` is later.
    #[must_use]
    pub fn since_ns(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Duration since `earlier`, zero if `earlier` is later.
    #[must_use]
    pub fn saturating_sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.since_ns(earlier))
    }

    /// This time plus `ns` nanoseconds, saturating.
    #[must_use]
    pub fn plus_ns(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, rhs: Duration) -> Time {
        self.plus_ns(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Time> for Time {
    type Output = Duration;
    fn sub(self, rhs: Time) -> Duration {
        self.saturating_sub(rhs)
    }
}
