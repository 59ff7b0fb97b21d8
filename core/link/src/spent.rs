//! Nonces of associations that were forgotten, for as long as a recorded CONFIRM of theirs could
//! make them anew (spec 9, P-9.11).

use core::mem::take;

use hashbrown::HashSet;
use weir_wire::handshake::NONCE_LEN;

use crate::hash::IdHash;

/// A cookie is good in the epoch in which it was made and in the next. One more: not all clock
/// readings come here in their order.
const EPOCHS: usize = 3;

/// What is left of those that were forgotten: 17 bytes each, in tables of powers of two.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    /// The cookie epoch of the first set.
    epoch: u64,
    /// Endpoint id and half of the nonce, by the epoch in which it was forgotten, the latest first.
    /// (Half is enough: who shares both has drawn them for itself.)
    sets: [HashSet<(u64, u64), IdHash>; EPOCHS],
}

fn key(opener_id: u64, nonce: &[u8; NONCE_LEN]) -> (u64, u64) {
    let half = nonce.first_chunk().map_or(0, |half| u64::from_le_bytes(*half));
    (opener_id, half)
}

impl Spent {
    /// It is this epoch, or was a later one already.
    fn advance(&mut self, epoch: u64) {
        for _ in 0..epoch.saturating_sub(self.epoch).min(EPOCHS as u64) {
            self.sets.rotate_right(1);
            drop(take(&mut self.sets[0]));
        }
        self.epoch = self.epoch.max(epoch);
    }

    /// The association that this opener made with this nonce is forgotten.
    pub(crate) fn add(&mut self, epoch: u64, opener_id: u64, nonce: &[u8; NONCE_LEN]) {
        self.advance(epoch);
        self.sets[0].insert(key(opener_id, nonce));
    }

    /// Whether there was such an association of late.
    pub(crate) fn has(&mut self, epoch: u64, opener_id: u64, nonce: &[u8; NONCE_LEN]) -> bool {
        self.advance(epoch);
        self.sets.iter().any(|set| set.contains(&key(opener_id, nonce)))
    }

    /// How many are kept.
    pub(crate) fn len(&self) -> usize {
        self.sets.iter().map(HashSet::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    // spec: P-9.11
    #[test]
    fn a_nonce_is_known_as_long_as_a_cookie_is_good_and_then_costs_nothing() {
        let mut spent = Spent::default();
        spent.add(7, 1, &[1; NONCE_LEN]);
        // A clock reading of before changes nothing.
        for epoch in [7, 8, 6, 9] {
            assert!(spent.has(epoch, 1, &[1; NONCE_LEN]), "{epoch}");
            assert!(!spent.has(epoch, 2, &[1; NONCE_LEN]) && !spent.has(epoch, 1, &[2; NONCE_LEN]));
        }
        spent.add(9, 2, &[2; NONCE_LEN]);
        assert_eq!(spent.len(), 2);
        assert!(!spent.has(10, 1, &[1; NONCE_LEN]) && spent.has(10, 2, &[2; NONCE_LEN]));
        assert!(!spent.has(u64::MAX, 2, &[2; NONCE_LEN]));
        assert!(spent.len() == 0 && spent.sets.iter().all(|set| set.capacity() == 0));
    }

    proptest::proptest! {
        /// Against a list of all that was ever added, with clock readings in any order.
        // spec: P-9.11
        #[test]
        fn what_is_kept_is_what_was_forgotten_of_late(steps in proptest::collection::vec((0..4u8, 0..12u64, 0..3u64, 0..3u8), 0..200)) {
            let (mut spent, mut all, mut latest) = (Spent::default(), Vec::new(), 0);
            for (what, epoch, opener, nonce) in steps {
                latest = latest.max(epoch);
                let own = (opener, [nonce; NONCE_LEN]);
                if what == 0 {
                    spent.add(epoch, own.0, &own.1);
                    all.push((latest, own));
                } else {
                    let kept = all.iter().any(|(then, one)| latest - then < EPOCHS as u64 && *one == own);
                    proptest::prop_assert_eq!(spent.has(epoch, own.0, &own.1), kept);
                }
                let mut kept: Vec<_> = all.iter().filter(|(then, _)| latest - then < EPOCHS as u64).collect();
                kept.sort_unstable();
                kept.dedup();
                proptest::prop_assert_eq!(spent.len(), kept.len());
            }
        }
    }
}
