//! Probabilities, and random numbers of a range: exact, and the same on every machine.

use rand_core::Rng;

/// One million.
const MILLION: u32 = 1_000_000;

/// A probability, as the number of 64-bit words out of 2^64 for which the answer is yes; the
/// largest number stands for certainty.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Never.
    pub const NEVER: Chance = Chance(0);
    /// Always.
    pub const ALWAYS: Chance = Chance(u64::MAX);

    /// So many parts of a million; a million and more are certain.
    #[must_use]
    pub const fn ppm(parts: u32) -> Self {
        if parts >= MILLION {
            return Chance::ALWAYS;
        }
        // Rounded up, so that `word * 10^6 / 2^64 < parts` for exactly the words below it.
        Chance((((parts as u128) << 64).div_ceil(MILLION as u128)) as u64)
    }

    /// A fraction, to 53 bits; below 0, or not a number: never; 1 and more: always.
    #[must_use]
    pub fn of(fraction: f64) -> Self {
        const BITS: u32 = 53;
        if fraction >= 1.0 {
            return Chance::ALWAYS;
        }
        if fraction.is_nan() || fraction <= 0.0 {
            return Chance::NEVER;
        }
        let exact = fraction * (1u64 << BITS) as f64;
        let whole = exact as u64;
        Chance((whole + u64::from((whole as f64) < exact)) << (64 - BITS))
    }

    /// The probability as a fraction.
    #[must_use]
    pub fn fraction(self) -> f64 {
        if self == Chance::ALWAYS { 1.0 } else { self.0 as f64 / (1u128 << 64) as f64 }
    }

    /// Whether it happens. Takes no random number when the answer is certain.
    pub fn happens<R: Rng + ?Sized>(self, rng: &mut R) -> bool {
        match self {
            Chance::NEVER => false,
            Chance::ALWAYS => true,
            Chance(words) => rng.next_u64() < words,
        }
    }
}

/// Uniform in `0..n` (0 if `n` is 0); takes one random number.
pub fn below<R: Rng + ?Sized>(rng: &mut R, n: u64) -> u64 {
    // Multiply-shift; its bias of n / 2^64 is nothing here.
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::SeedableRng;

    #[test]
    fn a_chance_comes_as_often_as_it_says() {
        for chance in [Chance::ppm(10_000), Chance::of(0.01)] {
            let mut rng = Pcg64Mcg::seed_from_u64(1);
            let hits = (0..200_000).filter(|_| chance.happens(&mut rng)).count();
            assert!((1777..2223).contains(&hits), "five sigma around 2000: {hits}");
        }
    }

    #[test]
    fn the_ends_of_the_scale_are_exact_and_take_no_number() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let before = rng.clone();
        for never in [Chance::ppm(0), Chance::of(0.0), Chance::of(-1.0), Chance::of(f64::NAN)] {
            assert!(!never.happens(&mut rng));
        }
        for always in [Chance::ppm(MILLION), Chance::ppm(u32::MAX), Chance::of(1.0), Chance::of(f64::INFINITY)] {
            assert!(always.happens(&mut rng));
        }
        assert_eq!(rng, before);
    }

    #[test]
    fn both_ways_of_writing_a_chance_mean_the_same() {
        for ppm in [1, 3, 1000, 333_333, 999_999] {
            let (a, b) = (Chance::ppm(ppm), Chance::of(f64::from(ppm) / 1e6));
            assert!(a.0.abs_diff(b.0) <= 4096, "{ppm}: {a:?} {b:?}");
            assert!((a.fraction() - f64::from(ppm) / 1e6).abs() < 1e-15);
        }
        assert!(Chance::of(f64::MIN_POSITIVE) > Chance::NEVER);
        assert!(Chance::of(1.0 - f64::EPSILON) < Chance::ALWAYS);
    }

    #[test]
    fn numbers_below_stay_below() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        assert_eq!(below(&mut rng, 0), 0);
        assert!((0..1000).all(|_| below(&mut rng, 7) < 7));
    }
}
