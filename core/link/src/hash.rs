//! A hasher for keys that are random already.

use core::hash::{BuildHasher, Hasher};

/// Hashes one random 64-bit id, mixed with a multiplication so that ids an opponent chose spread as
/// well.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct IdHash;

/// See [`IdHash`].
pub(crate) struct IdHasher(u64);

impl BuildHasher for IdHash {
    type Hasher = IdHasher;
    fn build_hasher(&self) -> IdHasher {
        IdHasher(0)
    }
}

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u64(&mut self, x: u64) {
        let y = (self.0 ^ x).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = y ^ (y >> 32);
    }
}
