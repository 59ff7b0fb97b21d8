//! Unexpected messages that wait to be handed out: for each class a queue for each peer, served in rotation (spec/bmi.md B2).

use crate::addresses::AddrKey;
use crate::memory::Block;
use std::collections::{HashMap, VecDeque};

/// Where a message is.
#[derive(Debug)]
pub enum Body {
    /// Here.
    Here(Block),
    /// In the engine, which holds it under this number.
    Claimed(usize),
}

/// A message.
#[derive(Debug)]
pub struct Entry {
    /// Its tag.
    pub tag: i32,
    /// Its length, bytes.
    pub size: usize,
    /// Where it is.
    pub body: Body,
}

#[derive(Debug, Default)]
struct Class {
    /// Whose turn it is; each that has something is here once.
    turn: VecDeque<AddrKey>,
    queues: HashMap<AddrKey, VecDeque<Entry>>,
}

/// All that wait.
#[derive(Debug, Default)]
pub struct Inbox {
    classes: HashMap<u8, Class>,
    /// How many.
    waiting: usize,
    /// Something has come since this was last set back.
    pub news: bool,
}

impl Inbox {
    /// One has come.
    pub fn push(&mut self, class: u8, from: AddrKey, entry: Entry) {
        self.put(class, from, entry, false);
    }

    /// One that was taken out is not ready yet, or could not be handed out: it is the next of its peer again.
    pub fn put_back(&mut self, class: u8, from: AddrKey, entry: Entry) {
        self.put(class, from, entry, true);
    }

    fn put(&mut self, class: u8, from: AddrKey, entry: Entry, first: bool) {
        let class = self.classes.entry(class).or_default();
        let queue = class.queues.entry(from).or_default();
        if queue.is_empty() {
            class.turn.push_back(from);
        }
        if first {
            queue.push_front(entry)
        } else {
            queue.push_back(entry)
        }
        self.waiting += 1;
        self.news = true;
    }

    /// The oldest of the peer whose turn it is.
    pub fn pop(&mut self, class: u8) -> Option<(AddrKey, Entry)> {
        let class = self.classes.get_mut(&class)?;
        let from = class.turn.pop_front()?;
        let queue = class.queues.get_mut(&from)?;
        let entry = queue.pop_front()?;
        if queue.is_empty() {
            class.queues.remove(&from);
        } else {
            class.turn.push_back(from);
        }
        self.waiting -= 1;
        Some((from, entry))
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// None does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whether any of this class waits.
    #[must_use]
    pub fn has(&self, class: u8) -> bool {
        self.classes.get(&class).is_some_and(|c| !c.turn.is_empty())
    }

    /// Takes away what waits of a peer.
    pub fn forget(&mut self, from: AddrKey) -> Vec<Entry> {
        let mut all = Vec::new();
        for class in self.classes.values_mut() {
            if let Some(queue) = class.queues.remove(&from) {
                class.turn.retain(|key| *key != from);
                all.extend(queue);
            }
        }
        self.waiting -= all.len();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotmap::SlotMap;

    fn entry(tag: i32) -> Entry {
        Entry { tag, size: 0, body: Body::Claimed(0) }
    }

    /// H16.
    #[test]
    fn peers_are_served_in_rotation_and_each_in_order() {
        let mut keys: SlotMap<AddrKey, ()> = SlotMap::with_key();
        let [a, b, c] = [0; 3].map(|_| keys.insert(()));
        let mut inbox = Inbox::default();
        for tag in 0..4 {
            inbox.push(0, a, entry(tag));
        }
        inbox.push(0, b, entry(10));
        inbox.push(0, c, entry(20));
        inbox.push(1, a, entry(30));
        let order: Vec<i32> = std::iter::from_fn(|| inbox.pop(0)).map(|(_, e)| e.tag).collect();
        assert_eq!(order, [0, 10, 20, 1, 2, 3]);
        assert!(!inbox.has(0) && inbox.has(1) && inbox.len() == 1);
        inbox.push(0, b, entry(1));
        inbox.put_back(0, b, entry(0));
        assert_eq!((inbox.forget(b).len(), inbox.len(), inbox.has(0)), (2, 1, false));
    }
}
