//! Things to do at given times, in order, without a clock.

use super::TimeNs;

/// A list of items, each due at a time. Items due at the same time keep the order in which they were given.
#[derive(Debug)]
pub struct Schedule<T> {
    /// Latest first, so that the next is at the end.
    items: Vec<(TimeNs, T)>,
}

impl<T> Schedule<T> {
    /// A schedule of these items.
    pub fn new(items: impl IntoIterator<Item = (TimeNs, T)>) -> Self {
        let mut items: Vec<_> = items.into_iter().collect();
        items.sort_by_key(|item| item.0); // stable, then reversed: equal times keep their order when popped
        items.reverse();
        Schedule { items }
    }

    /// When the next item is due.
    pub fn next_ns(&self) -> Option<TimeNs> {
        self.items.last().map(|item| item.0)
    }

    /// The next item if it is due at `now_ns`, with the time it was due.
    pub fn pop(&mut self, now_ns: TimeNs) -> Option<(TimeNs, T)> {
        self.next_ns().filter(|at_ns| *at_ns <= now_ns).and_then(|_| self.items.pop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_order_and_in_time() {
        let mut schedule = Schedule::new([(30, 'c'), (10, 'a'), (30, 'd'), (20, 'b')]);
        assert_eq!(schedule.pop(9), None);
        assert_eq!(schedule.pop(20), Some((10, 'a')));
        assert_eq!(schedule.pop(20), Some((20, 'b')));
        assert_eq!(schedule.pop(20), None);
        assert_eq!(schedule.next_ns(), Some(30));
        assert_eq!((schedule.pop(99), schedule.pop(99), schedule.pop(99)), (Some((30, 'c')), Some((30, 'd')), None));
    }
}
