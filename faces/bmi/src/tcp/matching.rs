//! Receives that wait for messages and messages that wait for receives, of one peer, by tag
//! (spec/bmi.md B3).

use super::held::Held;
use crate::ops::OpKey;
use std::collections::{HashMap, VecDeque};
use weir_engine::Iov;

/// A receive.
#[derive(Debug)]
pub struct Posted {
    /// Its operation.
    pub key: OpKey,
    /// Its memory.
    pub pieces: Vec<Iov>,
    /// The most it takes, bytes.
    pub size: u64,
}

/// Both.
#[derive(Debug, Default)]
pub struct Matching {
    posted: HashMap<i32, VecDeque<Posted>>,
    /// Which tag a receive is posted for.
    tags: HashMap<OpKey, i32>,
    arrived: HashMap<i32, VecDeque<Vec<u8>>>,
}

impl Matching {
    /// A receive waits.
    pub fn post(&mut self, tag: i32, posted: Posted) {
        self.tags.insert(posted.key, tag);
        self.posted.entry(tag).or_default().push_back(posted);
    }

    /// The receive that takes the next message of this tag.
    pub fn take(&mut self, tag: i32) -> Option<Posted> {
        let queue = self.posted.get_mut(&tag)?;
        let posted = queue.pop_front()?;
        if queue.is_empty() {
            self.posted.remove(&tag);
        }
        self.tags.remove(&posted.key);
        Some(posted)
    }

    /// Whether any receive waits.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.tags.is_empty()
    }

    /// A receive waits no more; false when it did not.
    pub fn cancel(&mut self, key: OpKey) -> bool {
        let Some(tag) = self.tags.remove(&key) else { return false };
        if let Some(queue) = self.posted.get_mut(&tag) {
            queue.retain(|posted| posted.key != key);
            if queue.is_empty() {
                self.posted.remove(&tag);
            }
        }
        true
    }

    /// All receives wait no more.
    pub fn take_posted(&mut self) -> Vec<OpKey> {
        self.posted.clear();
        self.tags.drain().map(|(key, _)| key).collect()
    }

    /// A message that nobody posted for is here.
    pub fn arrived(&mut self, tag: i32, bytes: Vec<u8>) {
        self.arrived.entry(tag).or_default().push_back(bytes);
    }

    /// The oldest of this tag.
    pub fn take_arrived(&mut self, tag: i32) -> Option<Vec<u8>> {
        let queue = self.arrived.get_mut(&tag)?;
        let bytes = queue.pop_front();
        if queue.is_empty() {
            self.arrived.remove(&tag);
        }
        bytes
    }

    /// Nobody will take those that are here. Returns what is held of them no more.
    pub fn forget_arrived(&mut self) -> Held {
        let mut all = Held::default();
        for (_, queue) in self.arrived.drain() {
            queue.iter().for_each(|bytes| all.add(Held::one(bytes.len() as u64)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotmap::SlotMap;

    /// H2, M2.
    #[test]
    fn messages_meet_receives_of_their_tag_in_order() {
        let mut keys: SlotMap<OpKey, ()> = SlotMap::with_key();
        let mut m = Matching::default();
        let [a, b, c, d] = [(1, 10), (1, 20_000), (2, 5), (1, 7)].map(|(tag, size)| {
            let key = keys.insert(());
            m.post(tag, Posted { key, pieces: Vec::new(), size });
            key
        });
        assert!(m.cancel(b) && !m.cancel(b));
        assert_eq!(m.take(1).map(|p| p.key), Some(a));
        assert_eq!(m.take(1).map(|p| p.key), Some(d));
        assert!(m.take(1).is_none() && !m.cancel(a));
        assert_eq!(m.take_posted(), [c]);
        m.arrived(1, vec![1]);
        m.arrived(1, vec![2, 2]);
        assert_eq!((m.take_arrived(1), m.take_arrived(2)), (Some(vec![1]), None));
        assert_eq!((m.forget_arrived(), m.take_arrived(1)), (Held::one(2), None));
    }
}
