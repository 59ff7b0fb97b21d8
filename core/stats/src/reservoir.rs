//! A uniform choice of at most k items from a stream of unknown length (Algorithm L; Li, ACM TOMS
//! 20(4), 1994).

use rand::RngExt;
use rand_distr::{Distribution as _, Gamma};

use crate::random::{Random, choose_front, open_unit};

/// Says for each item of a stream whether and where in a reservoir it goes. Costs one comparison an
/// item, and a few logarithms for each one taken after the reservoir is full, of which there are k
/// ln(n / k).
#[derive(Debug, Clone)]
pub struct Slots {
    capacity: usize,
    seen: u64,
    /// Number of the next item that is taken, counted from 0.
    next: u64,
    /// The greatest of the k least keys, if every item had a uniform key.
    threshold: f64,
}

impl Slots {
    /// For a reservoir of `capacity` items.
    pub fn new(capacity: usize, random: &mut Random) -> Self {
        let mut slots = Self { capacity, seen: 0, next: 0, threshold: 1.0 };
        slots.lower_threshold(random);
        slots
    }

    /// Items the reservoir holds at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Items offered.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Offers the next item: its place in the reservoir, or none. The first `capacity` places come
    /// in order.
    #[inline]
    pub fn offer(&mut self, random: &mut Random) -> Option<usize> {
        let number = self.seen;
        self.seen += 1;
        if number < self.next {
            return None;
        }
        self.take(number, random)
    }

    fn take(&mut self, number: u64, random: &mut Random) -> Option<usize> {
        let capacity = self.capacity as u64;
        if number + 1 < capacity {
            self.next = number + 1;
            return Some(number as usize);
        }
        let filling = number < capacity;
        if !filling {
            self.lower_threshold(random);
        }
        self.skip(number, random);
        if capacity == 0 {
            return None;
        }
        Some(if filling { number as usize } else { random.random_range(0..capacity) as usize })
    }

    fn lower_threshold(&mut self, random: &mut Random) {
        self.threshold *= (open_unit(random).ln() / self.capacity.max(1) as f64).exp();
    }

    fn skip(&mut self, number: u64, random: &mut Random) {
        // ln(1 - w) by ln_1p: w becomes tiny in long streams.
        let skipped = (open_unit(random).ln() / (-self.threshold).ln_1p()).floor();
        self.next = number.saturating_add(1).saturating_add(skipped as u64); // saturates for a threshold of 0
    }

    /// Makes of our reservoir and another one of the same capacity a uniform choice of both
    /// streams.
    pub(crate) fn merge<T: Copy>(&mut self, ours: &mut Vec<T>, other: &Self, theirs: &[T], random: &mut Random) {
        let total = self.seen + other.seen;
        if self.seen as usize == ours.len() && other.seen as usize == theirs.len() && total <= self.capacity as u64 {
            ours.extend_from_slice(theirs);
        } else {
            *ours = merged(ours, self.seen, theirs, other.seen, self.capacity, random);
        }
        self.seen = total;
        self.next = total;
        if total >= self.capacity as u64 {
            self.threshold = kth_least_key(self.capacity, total, random);
            self.skip(total.wrapping_sub(1), random);
        }
    }
}

/// The k-th least of n uniform keys: Beta(k, n - k + 1), as a ratio of gamma variables.
fn kth_least_key(k: usize, n: u64, random: &mut Random) -> f64 {
    let draw = |shape: f64, random: &mut Random| Gamma::new(shape, 1.0).map_or(shape, |g| g.sample(random));
    let low = draw(k.max(1) as f64, random);
    let high = draw((n - k as u64 + 1) as f64, random);
    low / (low + high)
}

/// `limit` items drawn without replacement from two streams, of which uniform choices are at hand:
/// each draw falls on a stream with the probability of what is left of it.
fn merged<T: Copy>(a: &[T], seen_a: u64, b: &[T], seen_b: u64, limit: usize, random: &mut Random) -> Vec<T> {
    let (mut a, mut b) = (a.to_vec(), b.to_vec());
    let (mut left_a, mut left_b) = (seen_a, seen_b);
    let (mut from_a, mut from_b) = (0, 0);
    while from_a + from_b < limit && left_a + left_b > 0 {
        let use_a = random.random_range(0..left_a + left_b) < left_a;
        // Neither reservoir runs out: each holds `limit` items or its whole stream.
        if use_a {
            (from_a, left_a) = (from_a + 1, left_a - 1);
        } else {
            (from_b, left_b) = (from_b + 1, left_b - 1);
        }
    }
    (from_a, from_b) = (from_a.min(a.len()), from_b.min(b.len()));
    choose_front(&mut a, from_a, random);
    choose_front(&mut b, from_b, random);
    a.truncate(from_a);
    a.extend_from_slice(&b[..from_b]);
    a
}
