//! Events in order of time. A run of millions of processes has as many events at once, so that a
//! heap of them would miss the cache at each of its levels.
//!
//! This is a radix heap (Ahuja, Mehlhorn, Orlin and Tarjan, Faster algorithms for the shortest path
//! problem, 1990): what comes later lies in buckets by the highest bit in which its time differs
//! from the time that was reached. Buckets are only written at their ends and read from end to end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Event;
use crate::Time;

/// Bits of a time, which is not below zero.
const BITS: usize = 127;
/// A bucket of no more events is sorted as it is.
const FEW: usize = 32;

/// All events that are to come.
#[derive(Debug)]
pub(super) struct Queue {
    /// What comes next, the first last. None is later than `reached`.
    next: Vec<Event>,
    /// What came since, and is not later than `reached` either.
    since: BinaryHeap<Reverse<Event>>,
    reached: Time,
    /// What is later than `reached`, by the highest bit in which it differs.
    later: Vec<Vec<Event>>,
    /// Which of these hold something.
    holds: u128,
    /// An empty one, for its memory.
    spare: Vec<Event>,
    len: usize,
}

impl Queue {
    pub fn new() -> Self {
        Self {
            next: Vec::new(),
            since: BinaryHeap::new(),
            reached: Time::ZERO,
            later: vec![Vec::new(); BITS],
            holds: 0,
            spare: Vec::new(),
            len: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// In any order.
    pub fn iter(&self) -> impl Iterator<Item = &Event> {
        self.next.iter().chain(self.since.iter().map(|event| &event.0)).chain(self.later.iter().flatten())
    }

    pub fn push(&mut self, event: Event) {
        self.len += 1;
        if event.at <= self.reached {
            self.since.push(Reverse(event));
        } else {
            self.put(event);
        }
    }

    /// The first.
    pub fn peek(&mut self) -> Option<&Event> {
        if self.next.is_empty() && self.since.is_empty() {
            self.go_on();
        }
        match (self.next.last(), self.since.peek()) {
            (Some(one), Some(Reverse(other))) => Some(one.min(other)),
            (one, other) => one.or(other.map(|other| &other.0)),
        }
    }

    /// Takes the first.
    pub fn pop(&mut self) -> Option<Event> {
        if self.next.is_empty() && self.since.is_empty() {
            self.go_on();
        }
        let since = match (self.next.last(), self.since.peek()) {
            (Some(one), Some(Reverse(other))) => other < one,
            (one, _) => one.is_none(),
        };
        let first = if since { self.since.pop().map(|event| event.0) } else { self.next.pop() };
        self.len -= usize::from(first.is_some());
        first
    }

    /// All events take place so much later.
    pub fn shift(&mut self, by: Time) {
        let mut moved = Self::new();
        self.iter().for_each(|event| moved.push(Event { at: event.at + by, ..*event }));
        *self = moved;
    }

    /// An event that is later than what was reached.
    fn put(&mut self, event: Event) {
        let differs = event.at.yoctoseconds() ^ self.reached.yoctoseconds();
        let bit = BITS - differs.leading_zeros() as usize;
        self.later[bit].push(event);
        self.holds |= 1 << bit;
    }

    /// Nothing is left up to what was reached: goes on to the next.
    fn go_on(&mut self) {
        if self.holds == 0 {
            return;
        }
        let bit = self.holds.trailing_zeros() as usize;
        self.holds &= !(1 << bit);
        let mut bucket = std::mem::replace(&mut self.later[bit], std::mem::take(&mut self.spare));
        let times = || bucket.iter().map(|event| event.at);
        // Above this bit all times agree with what was reached before, so that the other buckets
        // stay what they are.
        let few = bucket.len() <= FEW;
        let reached = if few { times().max() } else { times().min() };
        self.reached = reached.unwrap_or(self.reached);
        for event in bucket.drain(..) {
            if event.at <= self.reached {
                self.next.push(event);
            } else {
                self.put(event);
            }
        }
        self.spare = bucket;
        // Events of one time often come in their order.
        self.next.reverse();
        self.next.sort_unstable_by(|a, b| b.cmp(a));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::What;
    use proptest::prelude::*;

    fn event(at: i128, key: u64) -> Event {
        Event { at: Time::from_yoctoseconds(at), key, what: What::Resume, id: 0 }
    }

    /// Times that agree in many bits, and some that do not.
    fn time() -> impl Strategy<Value = i128> {
        prop_oneof![0i128..4, 0i128..1000, (0i128..4, 0u32..120).prop_map(|(n, by)| n << by)]
    }

    proptest! {
        /// Also what is pushed before the time that was reached, as no run does.
        #[test]
        fn events_come_as_they_do_from_a_heap(
            rounds in proptest::collection::vec((proptest::collection::vec((time(), 0u64..4), 0..60), 0usize..60), 0..12),
            by in time(),
        ) {
            let (mut queue, mut heap) = (Queue::new(), BinaryHeap::new());
            let mut now = 0;
            for (number, (events, pops)) in rounds.into_iter().enumerate() {
                for (at, key) in events {
                    let from = if number % 3 == 2 { 0 } else { now };
                    queue.push(event(from + at, key));
                    heap.push(Reverse(event(from + at, key)));
                }
                for _ in 0..pops {
                    prop_assert_eq!(queue.peek().copied(), heap.peek().map(|event| event.0));
                    let first = queue.pop();
                    prop_assert_eq!(first, heap.pop().map(|event| event.0));
                    now = first.map_or(now, |event| event.at.yoctoseconds());
                }
                prop_assert_eq!((queue.len(), queue.iter().count()), (heap.len(), heap.len()));
                if number % 4 == 3 {
                    let by = Time::from_yoctoseconds(by);
                    queue.shift(by);
                    heap = heap.into_iter().map(|event| Reverse(Event { at: event.0.at + by, ..event.0 })).collect();
                    now += by.yoctoseconds();
                }
            }
        }
    }
}
