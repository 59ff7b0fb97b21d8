//! Randomness is an argument: one generator, seeded by the caller, the same numbers on every
//! machine.

use rand::{Rng, RngExt, SeedableRng};

/// The generator used all over this crate: PCG XSL RR 128/64 (O'Neill 2014), whose sequence is
/// fixed by its definition.
pub type Random = rand_pcg::Pcg64;

/// A generator for `seed`.
pub fn seeded(seed: u64) -> Random {
    Random::seed_from_u64(seed)
}

/// Uniform in the open interval 0..1: safe to take a logarithm or a quantile of.
pub fn open_unit<R: Rng + ?Sized>(random: &mut R) -> f64 {
    (((random.next_u64() >> 12) as f64) + 0.5) * (1.0 / (1u64 << 52) as f64)
}

/// Uniform in `0..limit`; 0 when `limit` is 0.
pub(crate) fn below<R: Rng + ?Sized>(random: &mut R, limit: usize) -> usize {
    if limit == 0 { 0 } else { random.random_range(0..limit as u64) as usize }
}

/// Moves `count` items, chosen at random, to the front (a partial Fisher-Yates shuffle).
pub(crate) fn choose_front<T>(items: &mut [T], count: usize, random: &mut Random) {
    let n = items.len();
    for place in 0..count.min(n) {
        let other = place + below(random, n - place);
        items.swap(place, other);
    }
}
