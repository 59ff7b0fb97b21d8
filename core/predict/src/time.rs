//! Virtual time: whole attoseconds in 128 bits.
//!
//! Sums and comparisons of whole numbers are the same on every machine and exact, so that causes of loss can sum to the
//! run time without rest, and a million iterations of a closed form come out to the last digit. An attosecond, because a
//! message's time is rounded once, and 0.5e-18 s in a microsecond is below what a `double` shows.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// Attoseconds in a second.
const PER_SECOND: f64 = 1e18;

/// A point of virtual time or a span of it, in attoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(i128);

impl Time {
    /// The beginning.
    pub const ZERO: Self = Self(0);
    /// The longest span that a number of seconds, however large, becomes: 10^20 s, so that sums of many do not overflow.
    pub const LONGEST: Self = Self(100_000_000_000_000_000_000_000_000_000_000_000_000);

    /// From whole attoseconds.
    #[must_use]
    pub const fn from_attoseconds(attoseconds: i128) -> Self {
        Self(attoseconds)
    }

    /// In attoseconds.
    #[must_use]
    pub const fn attoseconds(self) -> i128 {
        self.0
    }

    /// The nearest to a number of seconds; 0 for a negative one and for no number, [`Self::LONGEST`] beyond that.
    #[must_use]
    pub fn from_seconds(seconds: f64) -> Self {
        Self::of(seconds * PER_SECOND)
    }

    /// As [`Self::from_seconds`], from nanoseconds.
    #[must_use]
    pub fn from_ns(ns: f64) -> Self {
        Self::of(ns * 1e9)
    }

    /// As [`Self::from_seconds`], from microseconds: exact for decimal fractions of them.
    #[must_use]
    pub fn from_us(us: f64) -> Self {
        Self::of(us * 1e12)
    }

    #[expect(clippy::cast_possible_truncation, reason = "bounds are looked at")]
    fn of(attoseconds: f64) -> Self {
        // The usual case without 128-bit conversion. A half is added where the fraction still has a place.
        if attoseconds < 4e15 {
            return Self(i128::from((attoseconds + 0.5).max(0.0) as i64));
        }
        if attoseconds.is_nan() {
            return Self::ZERO;
        }
        Self((attoseconds as i128).min(Self::LONGEST.0))
    }

    /// In seconds, rounded to a `double`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "that is what it is for")]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / PER_SECOND
    }

    /// The part of it that `share` (0 to 1) is.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share is no exact number")]
    pub fn scaled(self, share: f64) -> Self {
        Self::of(self.0 as f64 * share)
    }

    /// Not less than nothing.
    #[must_use]
    pub fn or_zero(self) -> Self {
        self.max(Self::ZERO)
    }
}

impl Add for Time {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Time {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Time {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_microseconds_are_exact() {
        assert_eq!(Time::from_us(12.3).attoseconds(), 12_300_000_000_000);
        assert_eq!(Time::from_seconds(1000.0 / 100e6).attoseconds(), 10_000_000_000_000);
        assert_eq!(Time::from_ns(0.001).attoseconds(), 1_000_000);
    }

    #[test]
    fn what_is_no_time_becomes_one() {
        assert_eq!(Time::from_seconds(-1.0), Time::ZERO);
        assert_eq!(Time::from_seconds(f64::NAN), Time::ZERO);
        assert_eq!(Time::from_seconds(f64::INFINITY), Time::LONGEST);
        assert_eq!(Time::LONGEST + Time::LONGEST - Time::LONGEST, Time::from_attoseconds(i128::MAX) - Time::LONGEST);
    }

    #[test]
    fn seconds_come_back() {
        for s in [1e-9, 0.1, 1.0, 86_400.0, 1e9] {
            assert!((Time::from_seconds(s).seconds() / s - 1.0).abs() < 1e-9);
        }
    }
}
