//! Virtual time: whole yoctoseconds (10^-24 s) in 128 bits.
//!
//! Sums and comparisons of whole numbers are the same on every machine and exact, so that causes of
//! loss can sum to the run time without rest, and a million iterations of a closed form come out to
//! the last digit of a `double`: a message's time is rounded once, by at most 0.5e-24 s, which
//! stays below 1e-15 of a sum of any number of messages of a nanosecond.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// Units in a second: 10^24 = 5^24 x 2^24.
const PER_SECOND: f64 = 1e24;
const FIVES: u128 = 5u128.pow(24);
const TWOS: i32 = 24;
/// When the clock of a run of one process ends, in units: 4 x 10^13 s. Sums over all processes must
/// have room, too.
const CLOCK_END: i128 = 40_000_000_000_000_000_000_000_000_000_000_000_000;

/// A point of virtual time or a span of it, in yoctoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(i128);

impl Time {
    /// The beginning.
    pub const ZERO: Self = Self(0);
    /// The longest span that a number of seconds, however large, becomes: 10^14 s, beyond the end
    /// of every clock.
    pub const LONGEST: Self = Self(100_000_000_000_000_000_000_000_000_000_000_000_000);

    /// From whole yoctoseconds.
    #[must_use]
    pub const fn from_yoctoseconds(yoctoseconds: i128) -> Self {
        Self(yoctoseconds)
    }

    /// In yoctoseconds.
    #[must_use]
    pub const fn yoctoseconds(self) -> i128 {
        self.0
    }

    /// When the clock of a run ends: 4 x 10^13 s divided by the number of processes, so that the
    /// time of all of them has room.
    #[must_use]
    pub fn clock_end(numprocs: u32) -> Self {
        Self(CLOCK_END / i128::from(numprocs.max(1)))
    }

    /// The nearest to a number of seconds; 0 for a negative one and for no number,
    /// [`Self::LONGEST`] beyond that.
    #[must_use]
    pub fn from_seconds(seconds: f64) -> Self {
        Self::of(seconds * PER_SECOND)
    }

    /// As [`Self::from_seconds`], from nanoseconds.
    #[must_use]
    pub fn from_ns(ns: f64) -> Self {
        Self::of(ns * 1e15)
    }

    /// As [`Self::from_seconds`], from a unit of so many nanoseconds, a power of 10: rounded as a
    /// `double` once.
    #[must_use]
    pub fn from_units(value: f64, unit_ns: f64) -> Self {
        Self::of(value * (unit_ns * 1e15))
    }

    /// As [`Self::from_seconds`], from microseconds: exact for decimal fractions of them.
    #[must_use]
    pub fn from_us(us: f64) -> Self {
        Self::of(us * 1e18)
    }

    /// The nearest to `bytes` / `bytes_per_s`, divided as whole numbers: no rounding comes before
    /// that to a unit. 0 at no, or an infinite, rate.
    #[must_use]
    #[expect(clippy::cast_possible_wrap, reason = "bounds are looked at")]
    pub fn of_bytes(bytes: u64, bytes_per_s: f64) -> Self {
        if bytes == 0 || bytes_per_s <= 0.0 || !bytes_per_s.is_finite() {
            return Self::ZERO;
        }
        // The rate is `mantissa` x 2^`exponent`, so the time is bytes x 5^24 x 2^(24 - exponent) /
        // mantissa.
        let bits = bytes_per_s.to_bits();
        let (fraction, raised) = (bits & ((1 << 52) - 1), (bits >> 52) as i32);
        let (mantissa, exponent) =
            if raised == 0 { (u128::from(fraction), -1074) } else { (u128::from(fraction | 1 << 52), raised - 1075) };
        let dividend = u128::from(bytes) * FIVES;
        let mut shift = TWOS - exponent;
        if shift < -70 {
            return Self::ZERO;
        }
        let divisor = if shift < 0 { mantissa << -shift } else { mantissa };
        let (mut whole, mut rest) = divided(dividend, divisor);
        while shift > 0 {
            let step = shift.min(64) as u32;
            if whole.leading_zeros() <= step {
                return Self::LONGEST;
            }
            let (more, left) = divided(rest << step, divisor);
            (whole, rest) = ((whole << step) + more, left);
            shift -= step as i32;
        }
        whole += u128::from(rest >= divisor - rest);
        Self(whole.min(Self::LONGEST.0 as u128) as i128)
    }

    #[expect(clippy::cast_possible_truncation, reason = "bounds are looked at")]
    fn of(units: f64) -> Self {
        // The usual cases without 128-bit conversion. A half is added where the fraction still has
        // a place.
        if units < 4e15 {
            return Self(i128::from((units + 0.5).max(0.0) as i64));
        }
        if units < 9e18 {
            return Self(i128::from(units as i64));
        }
        if units.is_nan() {
            return Self::ZERO;
        }
        Self((units as i128).min(Self::LONGEST.0))
    }

    /// In seconds, rounded once to the nearest `double`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "that is what it is for")]
    pub fn seconds(self) -> f64 {
        let magnitude = self.0.unsigned_abs();
        if magnitude == 0 {
            return 0.0;
        }
        // The quotient has at least 72 digits; that it is not exact goes into the last, far below
        // where it is rounded.
        let shift = magnitude.leading_zeros();
        let scaled = magnitude << shift;
        let quotient = (scaled / FIVES) | u128::from(!scaled.is_multiple_of(FIVES));
        let seconds = quotient as f64 * power_of_two(-(shift as i32) - TWOS);
        if self.0 < 0 { -seconds } else { seconds }
    }

    /// The part of it that `share` (0 to 1) is.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share is no exact number")]
    pub fn scaled(self, share: f64) -> Self {
        Self::of(self.0 as f64 * share)
    }

    /// `times` / `parts` of it, rounded once where there is room for the product.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "only where there is no room for better")]
    pub fn fraction(self, times: u128, parts: u128) -> Self {
        let exact = || {
            let (whole, rest) = divided(u128::try_from(self.0).ok()?.checked_mul(times)?, parts);
            i128::try_from(whole + u128::from(rest >= parts - rest)).ok()
        };
        exact().map_or_else(
            || Self::of(self.0 as f64 * (times as f64 / parts as f64)),
            |whole| Self(whole.min(Self::LONGEST.0)),
        )
    }

    /// So many times.
    #[must_use]
    pub fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(i128::from(n)))
    }

    /// Not less than nothing.
    #[must_use]
    pub fn or_zero(self) -> Self {
        self.max(Self::ZERO)
    }
}

/// Quotient and rest. One division: that of 128 bits is a call, and the compiler makes two of `/`
/// and `%`.
fn divided(dividend: u128, divisor: u128) -> (u128, u128) {
    let quotient = dividend / divisor;
    (quotient, dividend - quotient * divisor)
}

/// 2^`n`, n from -1022 to 1023.
fn power_of_two(n: i32) -> f64 {
    f64::from_bits(u64::from((1023 + n).unsigned_abs()) << 52)
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
        assert_eq!(Time::from_us(12.3).yoctoseconds(), 12_300_000_000_000_000_000);
        assert_eq!(Time::from_ns(0.001).yoctoseconds(), 1_000_000_000_000);
    }

    #[test]
    fn what_is_no_time_becomes_one() {
        assert_eq!(Time::from_seconds(-1.0), Time::ZERO);
        assert_eq!(Time::from_seconds(f64::NAN), Time::ZERO);
        assert_eq!(Time::from_seconds(f64::INFINITY), Time::LONGEST);
        assert!(Time::clock_end(1) + Time::LONGEST < Time::from_yoctoseconds(i128::MAX));
    }

    #[test]
    fn fractions_are_rounded_once() {
        let t = |n: i128| Time::from_yoctoseconds(n);
        assert_eq!(t(10).fraction(3, 1), t(30));
        assert_eq!(t(10).fraction(1, 3), t(3));
        assert_eq!(t(11).fraction(1, 3), t(4));
        assert_eq!(t(10).fraction(5, 8), t(6));
        // 10^26 units, and a ratio without a short form: no room, and near all the same.
        let long = t(10i128.pow(26)).fraction(u128::from(u64::MAX), 1 << 63);
        assert!((long.seconds() - 200.0).abs() < 1e-12, "{long}");
        assert_eq!(Time::LONGEST.fraction(9, 1), Time::LONGEST);
    }

    /// The decimal digits of a fraction, cut at 40 places, as the nearest `double`.
    fn nearest(mut numerator: u128, denominator: u128) -> f64 {
        let mut text = format!("{}.", numerator / denominator);
        for _ in 0..40 {
            numerator = numerator % denominator * 10;
            text.push(char::from(b'0' + (numerator / denominator) as u8));
        }
        text.parse().unwrap()
    }

    #[test]
    fn seconds_are_the_nearest_double() {
        let mut units = 1u128;
        while units < 1 << 120 {
            let time = Time::from_yoctoseconds(units as i128);
            assert_eq!(time.seconds(), nearest(units, 10u128.pow(24)), "{units}");
            assert_eq!((Time::ZERO - time).seconds(), -time.seconds());
            units = units * 7 / 3 + 1;
        }
    }

    #[test]
    fn bytes_are_divided_without_a_rounding_before_the_last() {
        for rate in [1u64, 3, 7, 117_300_000, 999_999_999_989, 1 << 52] {
            for bytes in [1u64, 8, 1000, 65_537, 1 << 33] {
                let exact = u128::from(bytes) * 10u128.pow(24);
                let nearest = (exact + u128::from(rate) / 2) / u128::from(rate);
                assert_eq!(Time::of_bytes(bytes, rate as f64).yoctoseconds(), nearest as i128, "{bytes} at {rate}");
            }
        }
        assert_eq!(Time::of_bytes(1, 0.25), Time::from_yoctoseconds(4 * 10i128.pow(24)));
        assert_eq!(Time::of_bytes(u64::MAX, f64::MIN_POSITIVE / 8.0), Time::LONGEST);
        assert_eq!(Time::of_bytes(u64::MAX, f64::MAX), Time::ZERO);
        for none in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Time::of_bytes(5, none), Time::ZERO);
        }
    }
}
