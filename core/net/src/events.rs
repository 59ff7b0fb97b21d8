//! Things to come: strictly by time, those of one time in the order they were given.

use alloc::collections::BinaryHeap;
use core::cmp::{Ordering, Reverse};

use crate::TimeNs;

#[derive(Clone, Debug)]
struct Entry<T> {
    at_ns: TimeNs,
    number: u64,
    item: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (TimeNs, u64) {
        (self.at_ns, self.number)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// Items, each due at a time. O(log n) for each.
#[derive(Clone, Debug)]
pub struct Events<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    given: u64,
}

impl<T> Default for Events<T> {
    fn default() -> Self {
        Events { heap: BinaryHeap::new(), given: 0 }
    }
}

impl<T> Events<T> {
    /// Adds an item.
    pub fn push(&mut self, at_ns: TimeNs, item: T) {
        self.given += 1;
        self.heap.push(Reverse(Entry { at_ns, number: self.given, item }));
    }

    /// When the next item is due.
    #[must_use]
    pub fn next_ns(&self) -> Option<TimeNs> {
        self.heap.peek().map(|Reverse(e)| e.at_ns)
    }

    /// The next item, if it is due at `now_ns`, with the time it was due.
    pub fn pop(&mut self, now_ns: TimeNs) -> Option<(TimeNs, T)> {
        self.next_ns().filter(|at_ns| *at_ns <= now_ns)?;
        self.heap.pop().map(|Reverse(e)| (e.at_ns, e.item))
    }

    /// How many are to come.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none is to come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Takes out all, in no order.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.heap.drain().map(|Reverse(e)| e.item)
    }
}

impl<T> FromIterator<(TimeNs, T)> for Events<T> {
    fn from_iter<I: IntoIterator<Item = (TimeNs, T)>>(items: I) -> Self {
        let mut events = Events::default();
        items.into_iter().for_each(|(at_ns, item)| events.push(at_ns, item));
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_time_and_those_of_one_time_in_their_order() {
        let mut events = Events::from_iter([(30, 'c'), (10, 'a'), (30, 'd'), (20, 'b')]);
        assert_eq!(events.pop(9), None);
        assert_eq!(events.pop(20), Some((10, 'a')));
        assert_eq!(events.pop(20), Some((20, 'b')));
        assert_eq!(events.pop(20), None);
        assert_eq!((events.next_ns(), events.len()), (Some(30), 2));
        assert_eq!((events.pop(99), events.pop(99), events.pop(99)), (Some((30, 'c')), Some((30, 'd')), None));
    }
}
