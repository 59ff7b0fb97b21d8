//! Sets of numbers as sorted disjoint ranges, made for what arrives almost in order.

use smallvec::SmallVec;

/// Sorted, disjoint, non-adjacent half-open ranges. In-order growth of the last range is O(1) and
/// one range needs no heap.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    r: SmallVec<[(u64, u64); 1]>,
}

impl RangeSet {
    /// No numbers.
    #[must_use]
    pub fn new() -> Self {
        RangeSet { r: SmallVec::new() }
    }

    /// Number of ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.r.len()
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.r.is_empty()
    }

    /// The ranges, lowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.r.iter().copied()
    }

    /// The range, if there is but one.
    #[must_use]
    #[inline]
    pub fn only(&self) -> Option<(u64, u64)> {
        if let [only] = self.r.as_slice() { Some(*only) } else { None }
    }

    /// One past the largest number, 0 if empty.
    pub fn end(&self) -> u64 {
        self.r.last().map_or(0, |x| x.1)
    }

    /// End of the range that starts at 0: how much of a prefix is complete.
    pub fn prefix(&self) -> u64 {
        match self.r.first() {
            Some(&(0, e)) => e,
            _ => 0,
        }
    }

    /// Index of the first range whose end is above `x`.
    fn find(&self, x: u64) -> usize {
        match self.r.last() {
            None => 0,
            Some(l) if x >= l.1 => self.r.len(),
            Some(l) if x >= l.0 => self.r.len() - 1,
            _ => self.r.partition_point(|e| e.1 <= x),
        }
    }

    /// Whether it holds `x`.
    #[must_use]
    pub fn contains(&self, x: u64) -> bool {
        self.r.get(self.find(x)).is_some_and(|e| e.0 <= x)
    }

    /// Calls `f` for each part of `[lo, hi)` that is absent, ascending, until it returns false.
    pub fn gaps(&self, lo: u64, hi: u64, mut f: impl FnMut(u64, u64) -> bool) {
        let mut at = lo;
        let mut i = self.find(lo);
        while at < hi {
            match self.r.get(i) {
                Some(&(s, e)) if s < hi => {
                    if at < s && !f(at, s) {
                        return;
                    }
                    at = e;
                    i += 1;
                }
                _ => {
                    f(at, hi);
                    return;
                }
            }
        }
    }

    /// First absent part of `[lo, hi)`.
    pub fn first_gap(&self, lo: u64, hi: u64) -> Option<(u64, u64)> {
        let mut found = None;
        self.gaps(lo, hi, |a, b| {
            found = Some((a, b));
            false
        });
        found
    }

    /// Adds `[lo, hi)` if it follows on what is there, which is one range from 0 on. Nothing else
    /// is done, and much faster than by [`RangeSet::insert`].
    #[inline]
    pub fn extend_prefix(&mut self, lo: u64, hi: u64) -> bool {
        match self.r.as_mut_slice() {
            [(0, end)] if *end == lo && lo < hi => {
                *end = hi;
                true
            }
            _ => false,
        }
    }

    /// Adds `[lo, hi)`; `f` gets each part that was absent, ascending. Returns how many numbers are
    /// new.
    pub fn insert(&mut self, lo: u64, hi: u64, mut f: impl FnMut(u64, u64)) -> u64 {
        if lo >= hi {
            return 0;
        }
        // In order: at the end of the last range, or beyond it.
        match self.r.last_mut() {
            None => {
                self.r.push((lo, hi));
                f(lo, hi);
                return hi - lo;
            }
            Some(l) if lo == l.1 => {
                l.1 = hi;
                f(lo, hi);
                return hi - lo;
            }
            Some(l) if lo > l.1 => {
                self.r.push((lo, hi));
                f(lo, hi);
                return hi - lo;
            }
            _ => {}
        }
        let mut fresh = 0;
        self.gaps(lo, hi, |a, b| {
            fresh += b - a;
            f(a, b);
            true
        });
        if fresh == 0 {
            return 0;
        }
        // Ranges touching [lo, hi] merge into one.
        let first = self.r.partition_point(|e| e.1 < lo);
        let last = self.r.partition_point(|e| e.0 <= hi);
        if first == last {
            self.r.insert(first, (lo, hi));
        } else {
            self.r[first].0 = self.r[first].0.min(lo);
            self.r[first].1 = self.r[last - 1].1.max(hi);
            if last - first > 1 {
                self.r.drain(first + 1..last);
            }
        }
        fresh
    }

    /// Removes every number below `x`.
    pub fn remove_below(&mut self, x: u64) {
        match self.r.first() {
            Some(f) if f.0 < x => {}
            _ => return,
        }
        let n = self.r.partition_point(|e| e.1 <= x);
        if n > 0 {
            self.r.drain(..n);
        }
        if let Some(f) = self.r.first_mut() {
            f.0 = f.0.max(x);
        }
        self.shrink();
    }

    /// Drops the lowest range; returns its end.
    pub fn pop_lowest(&mut self) -> Option<u64> {
        if self.r.is_empty() {
            return None;
        }
        let e = self.r.remove(0).1;
        Some(e)
    }

    /// Gives back heap memory after a disturbance has passed.
    fn shrink(&mut self) {
        if self.r.spilled() && self.r.len() <= 1 {
            self.r.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(ops in proptest::collection::vec((0u64..200, 1u64..40, 0u8..8), 1..80)) {
            let (mut s, mut plain) = (RangeSet::new(), BTreeSet::new());
            let mut floor = 0;
            for (lo, n, kind) in ops {
                if kind == 0 {
                    floor = floor.max(lo);
                    s.remove_below(floor);
                    plain = plain.split_off(&floor);
                } else {
                    let mut new = Vec::new();
                    let c = s.insert(lo, lo + n, |a, b| new.extend(a..b));
                    let want: Vec<u64> = (lo..lo + n).filter(|x| plain.insert(*x)).collect();
                    prop_assert_eq!(&new, &want);
                    prop_assert_eq!(c, want.len() as u64);
                }
                let all: Vec<u64> = s.iter().flat_map(|(a, b)| a..b).collect();
                prop_assert_eq!(all, plain.iter().copied().collect::<Vec<_>>());
                let r: Vec<_> = s.iter().collect();
                prop_assert!(r.windows(2).all(|w| w[0].1 < w[1].0));
                for x in 0..250 {
                    prop_assert_eq!(s.contains(x), plain.contains(&x));
                    let g = s.first_gap(x, x + 9).map(|g| g.0);
                    prop_assert_eq!(g, (x..x + 9).find(|y| !plain.contains(y)));
                }
                prop_assert_eq!(s.end(), plain.iter().next_back().map_or(0, |x| x + 1));
            }
        }
    }
}
