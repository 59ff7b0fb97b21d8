//! The only source of randomness: PCG streams derived from one seed.
//!
//! Each link, host and generator owns a stream of its own, so that one more packet here does not
//! change the luck of packets there. Only raw words are taken from the generator; ranges are made
//! here, so that a new release of a library cannot change what a seed means.

use rand_core::Rng as _;
use rand_pcg::Pcg32;
use weir_net::below;

/// Probabilities are parts per million: exact in text, equal on every machine.
pub type Ppm = u32;

/// One million.
pub const MILLION: u32 = 1_000_000;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(Pcg32);

impl Rng {
    /// The stream `stream` of `seed`. Different streams are independent.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        // PCG keeps streams apart by their increment, but streams of one state start alike: mix
        // both into the state.
        Rng(Pcg32::new(mix(seed ^ mix(stream)), stream))
    }

    /// The generator itself, for a pipe.
    pub(crate) fn into_inner(self) -> Pcg32 {
        self.0
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..n` (0 if `n` is 0).
    pub fn below(&mut self, n: u64) -> u64 {
        below(&mut self.0, n)
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// Roughly uniform in the logarithm: each doubling between `low` and `high` is as likely as any
    /// other.
    pub fn log_between(&mut self, low: u64, high: u64) -> u64 {
        let low = low.max(1);
        let doublings = u64::from((high / low).max(1).ilog2());
        let base = low << self.below(doublings + 1);
        self.between(base, base.saturating_mul(2) - 1).clamp(low, high.max(low))
    }

    /// True with probability `ppm` / 10^6. Takes no random number when the answer is certain.
    pub fn chance(&mut self, ppm: Ppm) -> bool {
        ppm > 0 && (ppm >= MILLION || self.below(u64::from(MILLION)) < u64::from(ppm))
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// A bijection of 64 bits in which every input bit moves about half of the output bits
/// (SplitMix64's finaliser).
#[must_use]
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| {
            let mut r = Rng::new(seed, stream);
            [r.word(), r.word(), r.word()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn ranges_hold() {
        let mut r = Rng::new(7, 7);
        for _ in 0..10_000 {
            assert!((5..=9).contains(&r.between(5, 9)));
            assert!((3..=1000).contains(&r.log_between(3, 1000)));
        }
        let hits = (0..100_000).filter(|_| r.chance(10_000)).count();
        assert!((900..1100).contains(&hits), "1 % of 100000 gave {hits}");
    }
}
