//! Look-up of receives and messages by what they agree in: a chained hash table of bins.
//!
//! A bin holds the receives of one pattern in posting order. Bins of the pattern that looks at a
//! tag's stream bits only also hold the messages it accepts. Chains run through a slab, so a bin
//! that comes and goes allocates nothing and leaves no tombstone.

use crate::slab::{List, NIL, Place, Slab};
use crate::types::{Class, Pattern, Source};
use alloc::vec::Vec;

/// What all members of a bin agree in. Bits of the tag that are ignored are 0.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Key {
    pub tag: u64,
    pub ignore: u64,
    pub peer: u32,
    pub any: bool,
    pub class: Class,
}

impl Key {
    /// The bin of a receive. Tags of untagged receives do not count.
    #[inline]
    pub fn of_receive(p: &Pattern) -> Key {
        let (peer, any) = match p.source {
            Source::Any => (0, true),
            Source::Peer(peer) => (peer, false),
        };
        match p.class {
            Class::Tagged => Key { tag: p.tag & !p.ignore, ignore: p.ignore, peer, any, class: p.class },
            Class::Untagged => Key { tag: 0, ignore: 0, peer, any, class: p.class },
        }
    }

    /// The pattern again.
    #[inline]
    pub fn pattern(&self) -> Pattern {
        let source = if self.any { Source::Any } else { Source::Peer(self.peer) };
        Pattern { class: self.class, source, tag: self.tag, ignore: self.ignore }
    }

    /// Two multiplications whose halves are folded together: every bit of the tag reaches every bit
    /// of the result, so strided tags and tags that differ in high bits only spread like random
    /// ones. No seed: the tags come from our own application, and a run must be repeatable.
    #[inline]
    fn hash(&self) -> u32 {
        let who = u64::from(self.peer) << 2 | u64::from(self.any) << 1 | u64::from(self.class == Class::Tagged);
        let h = fold(self.tag ^ 0x243f_6a88_85a3_08d3, who ^ 0x1319_8a2e_0370_7344);
        let h = fold(h ^ self.ignore, 0xa409_3822_299f_31d1);
        (h >> 32) as u32 ^ h as u32
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

/// One bin.
#[derive(Copy, Clone, Debug)]
pub struct Bin {
    pub key: Key,
    hash: u32,
    chain: u32,
    /// Receives in posting order.
    pub receives: List,
    /// Messages: of one peer in the order of their numbers, or of any peer in the order of arrival.
    pub messages: List,
    live: bool,
}

impl Place for Bin {
    #[inline]
    fn is_live(&self) -> bool {
        self.live
    }
    #[inline]
    fn vacate(&mut self) {
        self.live = false;
    }
}

/// The table of bins that are not empty.
#[derive(Debug)]
pub struct Bins {
    /// First bin of each chain; a power of two of them, at least as many as bins.
    chains: Vec<u32>,
    slab: Slab<Bin>,
}

const MIN_CHAINS: usize = 16;

impl Bins {
    pub fn new() -> Self {
        Bins { chains: Vec::new(), slab: Slab::new() }
    }

    /// Bins in use.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    #[inline]
    pub fn get(&self, ix: u32) -> &Bin {
        self.slab.get(ix)
    }

    #[inline]
    pub fn get_mut(&mut self, ix: u32) -> &mut Bin {
        self.slab.get_mut(ix)
    }

    /// The bin of a key, or `NIL`.
    #[inline]
    pub fn find(&self, key: &Key) -> u32 {
        self.find_hashed(key, key.hash())
    }

    #[inline]
    fn find_hashed(&self, key: &Key, hash: u32) -> u32 {
        if self.chains.is_empty() {
            return NIL;
        }
        let mut at = self.chains[hash as usize & (self.chains.len() - 1)];
        while at != NIL {
            let bin = self.slab.get(at);
            if bin.hash == hash && bin.key == *key {
                return at;
            }
            at = bin.chain;
        }
        NIL
    }

    /// The bin of a key, made if there is none. The caller puts something into it.
    #[inline]
    pub fn find_or_make(&mut self, key: &Key) -> u32 {
        let hash = key.hash();
        match self.find_hashed(key, hash) {
            NIL => self.make(key, hash),
            ix => ix,
        }
    }

    fn make(&mut self, key: &Key, hash: u32) -> u32 {
        if self.slab.len() >= self.chains.len() {
            self.rehash();
        }
        let chain = hash as usize & (self.chains.len() - 1);
        let bin = Bin {
            key: *key,
            hash,
            chain: self.chains[chain],
            receives: List::EMPTY,
            messages: List::EMPTY,
            live: true,
        };
        let ix = self.slab.insert(bin);
        self.chains[chain] = ix;
        ix
    }

    /// Removes the bin if nothing is in it.
    #[inline]
    pub fn release(&mut self, ix: u32) {
        let bin = self.slab.get(ix);
        if !(bin.receives.is_empty() && bin.messages.is_empty()) {
            return;
        }
        let (hash, next) = (bin.hash as usize, bin.chain);
        let head = hash & (self.chains.len() - 1);
        if self.chains[head] == ix {
            self.chains[head] = next;
        } else {
            let mut at = self.chains[head];
            while self.slab.get(at).chain != ix {
                at = self.slab.get(at).chain;
            }
            self.slab.get_mut(at).chain = next;
        }
        if self.slab.remove(ix) {
            self.rehash();
        }
    }

    /// Makes room for twice the bins there are; also used to shrink.
    #[cold]
    fn rehash(&mut self) {
        let chains = (2 * self.slab.len()).next_power_of_two().max(MIN_CHAINS);
        self.chains.clear();
        self.chains.shrink_to(chains);
        self.chains.resize(chains, NIL);
        let live: Vec<(u32, u32)> = self.slab.iter().map(|(ix, bin)| (ix, bin.hash)).collect();
        for (ix, hash) in live {
            let chain = hash as usize & (chains - 1);
            self.slab.get_mut(ix).chain = core::mem::replace(&mut self.chains[chain], ix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(peer: u32, tag: u64) -> Key {
        Key { tag, ignore: 0, peer, any: false, class: Class::Tagged }
    }

    /// Longest chain relative to what random hashing gives, for tags as MPI libraries make them.
    #[test]
    fn tags_of_mpi_layouts_spread() {
        type Layout = (&'static str, fn(u64) -> u64);
        let layouts: [Layout; 6] = [
            ("consecutive", |i| i),
            ("stride 4096", |i| i << 12),
            ("high bits only", |i| i << 48),
            ("MPICH context", |i| ((i % 64) << 31) | (i / 64)),
            ("Open MPI communicator", |i| ((i % 64) << 34) | (i / 64)),
            ("Fibonacci stride", |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        ];
        for (name, tag) in layouts {
            let mut load = [0u32; 4096];
            for i in 0..4096 {
                load[key(3, tag(i)).hash() as usize % 4096] += 1;
            }
            // 4096 balls into 4096 bins: the fullest has 6 or 7, and more than 9 once in 10^5
            // tries.
            let fullest = load.iter().max().unwrap();
            assert!(*fullest <= 9, "{name}: {fullest}");
        }
    }

    #[test]
    fn peers_spread() {
        let mut load = [0u32; 4096];
        for peer in 0..4096 {
            load[key(peer, 1).hash() as usize % 4096] += 1;
        }
        assert!(*load.iter().max().unwrap() <= 9);
    }

    #[test]
    fn bins_come_and_go() {
        let mut bins = Bins::new();
        let made: Vec<u32> = (0..1000).map(|t| bins.find_or_make(&key(1, t))).collect();
        assert_eq!(bins.find(&key(2, 5)), NIL);
        for (t, ix) in made.iter().enumerate() {
            assert_eq!(bins.find(&key(1, t as u64)), *ix);
        }
        for (t, ix) in made.iter().enumerate().step_by(2) {
            bins.release(*ix);
            assert_eq!(bins.find(&key(1, t as u64)), NIL);
        }
        assert_eq!(bins.len(), 500);
        for (t, ix) in made.iter().enumerate().skip(1).step_by(2) {
            assert_eq!(bins.find(&key(1, t as u64)), *ix);
        }
    }
}
