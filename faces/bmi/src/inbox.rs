//! Unexpected messages that wait to be handed out: for each class a queue for each peer, served in
//! rotation (spec/bmi.md B2).

use crate::addresses::AddrKey;
use crate::memory::Block;
use slotmap::SecondaryMap;
use std::collections::{BTreeMap, VecDeque};

/// Places that the queue of a peer keeps when it is empty, for its next messages.
const KEPT_MAX: usize = 8;
/// Messages of a peer that are on their way from the engine at once, at most: as many as a turn
/// has. So no more than these have left the engine's budget, and are not handed out yet.
pub const COMING_MAX: usize = 16;

/// Where a message is.
#[derive(Debug)]
pub enum Body {
    /// Here.
    Here(Block),
    /// In the engine, which holds it under this number.
    Claimed(usize),
    /// On its way from there.
    Coming(usize),
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

impl Entry {
    /// If it is claimed, it is on its way from now on; returns what is to be fetched.
    fn set_out(&mut self) -> Option<Entry> {
        let Body::Claimed(context) = self.body else { return None };
        self.body = Body::Coming(context);
        Some(Entry { tag: self.tag, size: self.size, body: Body::Claimed(context) })
    }
}

#[derive(Debug, Default)]
struct Class {
    /// Whose turn it is; each that has something is here once.
    turn: VecDeque<AddrKey>,
    /// Messages that the first of them has handed out in its turn.
    handed: usize,
    queues: SecondaryMap<AddrKey, VecDeque<Entry>>,
}

/// Some of the 256 classes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Classes([u64; 4]);

impl Classes {
    /// One more; false: it was among them.
    fn insert(&mut self, class: u8) -> bool {
        let fresh = !self.contains(class);
        self.0[usize::from(class >> 6)] |= 1 << (class & 63);
        fresh
    }

    fn contains(self, class: u8) -> bool {
        self.0[usize::from(class >> 6)] >> (class & 63) & 1 == 1
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..4u8).flat_map(move |word| {
            let mut bits = self.0[usize::from(word)];
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as u8)?;
                bits &= bits - 1;
                Some(word << 6 | bit)
            })
        })
    }
}

/// All that wait.
#[derive(Debug)]
pub struct Inbox {
    classes: BTreeMap<u8, Class>,
    /// Classes that the program looks at.
    looked_at: Classes,
    /// How many.
    waiting: usize,
    /// Something that is looked at has come since this was last set back.
    pub news: bool,
    /// Messages of a turn, at the most.
    pub turn_max: usize,
    /// The class that the program asked for last: where none waits, those of it that come are taken
    /// as they are.
    pub wanted: Option<u8>,
}

impl Default for Inbox {
    fn default() -> Inbox {
        // Class 0 is that of the functions without one.
        let mut looked_at = Classes::default();
        looked_at.insert(0);
        Inbox { classes: BTreeMap::new(), looked_at, waiting: 0, news: false, turn_max: 1, wanted: None }
    }
}

impl Inbox {
    /// One has come.
    ///
    /// # Errors
    /// It is of an address that is no more, and whose place another has: it is nobody's, and the
    /// caller lets go of what holds it.
    pub fn push(&mut self, class: u8, from: AddrKey, entry: Entry) -> Result<(), Entry> {
        let is_looked_at = self.looked_at.contains(class);
        let class = self.classes.entry(class).or_default();
        let Some(queue) = class.queues.entry(from) else { return Err(entry) };
        let queue = queue.or_default();
        self.news |= is_looked_at;
        if queue.is_empty() {
            class.turn.push_back(from);
        }
        queue.push_back(entry);
        self.waiting += 1;
        Ok(())
    }

    /// One that was claimed is here, or (none) lost; it keeps its place among those of its peer.
    /// False: it has none any more, for the address is dropped.
    pub fn arrived(&mut self, class: u8, from: AddrKey, context: usize, message: Option<(Block, usize)>) -> bool {
        self.news |= self.looked_at.contains(class);
        let Some(c) = self.classes.get_mut(&class) else { return false };
        let Some(queue) = c.queues.get_mut(from) else { return false };
        let is_it = |e: &Entry| matches!(e.body, Body::Coming(of) if of == context);
        let Some(at) = queue.iter().position(is_it) else { return false };
        if let Some((block, size)) = message {
            (queue[at].size, queue[at].body) = (size, Body::Here(block));
        } else {
            queue.remove(at);
            self.waiting -= 1;
            if queue.is_empty() {
                c.handed = if c.turn.front() == Some(&from) { 0 } else { c.handed };
                c.turn.retain(|key| *key != from);
            }
        }
        true
    }

    /// The program looks at this class from now on.
    pub fn look_at(&mut self, class: u8) {
        if self.looked_at.insert(class) {
            self.news |= self.has(class);
        }
    }

    /// The classes it looks at.
    #[must_use]
    pub fn looked_at(&self) -> Classes {
        self.looked_at
    }

    /// Whether any waits that the program looks at. Of the others nobody is to be woken: they would
    /// keep him awake for ever.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.waiting > 0 && self.looked_at.iter().any(|class| self.has(class))
    }

    /// The oldest of the peer whose turn it is, if it is here. Else the next to be fetched of those
    /// that are claimed ([`Inbox::arrived`]); whose oldest is on its way lets others go before.
    pub fn pop(&mut self, class: u8) -> Option<(AddrKey, Entry)> {
        let class = self.classes.get_mut(&class)?;
        for _ in 0..class.turn.len() {
            let from = *class.turn.front()?;
            // (Of one whose place another address has meanwhile nothing is left.)
            let Some(queue) = class.queues.get_mut(from).filter(|queue| !queue.is_empty()) else {
                class.turn.pop_front();
                class.handed = 0;
                continue;
            };
            if !matches!(queue.front(), Some(Entry { body: Body::Here(_), .. })) {
                if let Some(claimed) = queue.iter_mut().take(COMING_MAX).find_map(Entry::set_out) {
                    // (One that has to be fetched first is no turn yet.)
                    return Some((from, claimed));
                }
                class.turn.rotate_left(1);
                class.handed = 0;
                continue;
            }
            let entry = queue.pop_front()?;
            class.handed += 1;
            if queue.is_empty() {
                if queue.capacity() > KEPT_MAX {
                    class.queues.remove(from);
                }
                class.turn.pop_front();
                class.handed = 0;
            } else if class.handed >= self.turn_max {
                class.turn.rotate_left(1);
                class.handed = 0;
            }
            self.waiting -= 1;
            return Some((from, entry));
        }
        None
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

    /// Whether any of this class waits that is here or to be fetched: what is on its way tells when
    /// it comes.
    #[must_use]
    pub fn has(&self, class: u8) -> bool {
        let Some(class) = self.classes.get(&class).filter(|_| self.waiting > 0) else { return false };
        let is_ready = |from: &AddrKey| {
            let first = class.queues.get(*from).and_then(VecDeque::front);
            first.is_some_and(|e| !matches!(e.body, Body::Coming(_)))
        };
        class.turn.iter().any(is_ready)
    }

    /// Takes away what waits of a peer.
    pub fn forget(&mut self, from: AddrKey) -> Vec<Entry> {
        self.take_away(from, |_| true)
    }

    /// The same of classes that nobody looks at.
    pub fn forget_unlooked(&mut self, from: AddrKey) -> Vec<Entry> {
        let looked_at = self.looked_at;
        self.take_away(from, |class| !looked_at.contains(class))
    }

    fn take_away(&mut self, from: AddrKey, of: impl Fn(u8) -> bool) -> Vec<Entry> {
        let mut all = Vec::new();
        for (_, class) in self.classes.iter_mut().filter(|(class, _)| of(**class)) {
            if let Some(queue) = class.queues.remove(from) {
                class.handed = if class.turn.front() == Some(&from) { 0 } else { class.handed };
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
        Entry { tag, size: 0, body: Body::Here(Block::for_message(0).expect("memory")) }
    }

    fn push(inbox: &mut Inbox, class: u8, from: AddrKey, tag: i32) {
        inbox.push(class, from, entry(tag)).expect("an address that lives");
    }

    #[test]
    fn what_is_of_an_address_that_is_no_more_is_given_back() {
        let mut keys: SlotMap<AddrKey, ()> = SlotMap::with_key();
        let gone = keys.insert(());
        let mut inbox = Inbox::default();
        push(&mut inbox, 0, gone, 1);
        keys.remove(gone);
        let other = keys.insert(());
        assert_eq!(inbox.forget(gone).len(), 1);
        push(&mut inbox, 0, other, 2);
        inbox.news = false;
        let claimed = || Entry { tag: 3, size: 0, body: Body::Claimed(77) };
        let back = inbox.push(0, gone, claimed());
        assert!(matches!(back, Err(Entry { body: Body::Claimed(77), .. })), "{back:?}");
        assert!(!inbox.arrived(0, gone, 77, None) && !inbox.arrived(9, other, 77, None));
        inbox.news = false;
        assert_eq!((inbox.len(), inbox.news, inbox.pop(0).map(|(_, e)| e.tag)), (1, false, Some(2)));
    }

    /// H16.
    #[test]
    fn peers_are_served_in_rotation_and_each_in_order() {
        let mut keys: SlotMap<AddrKey, ()> = SlotMap::with_key();
        let [a, b, c] = [0; 3].map(|_| keys.insert(()));
        let mut inbox = Inbox::default();
        for tag in 0..4 {
            push(&mut inbox, 0, a, tag);
        }
        push(&mut inbox, 0, b, 10);
        push(&mut inbox, 0, c, 20);
        push(&mut inbox, 1, a, 30);
        let order: Vec<i32> = std::iter::from_fn(|| inbox.pop(0)).map(|(_, e)| e.tag).collect();
        assert_eq!(order, [0, 10, 20, 1, 2, 3]);
        assert!(!inbox.has(0) && inbox.has(1) && inbox.len() == 1);
        push(&mut inbox, 0, b, 1);
        push(&mut inbox, 0, b, 0);
        assert_eq!((inbox.forget(b).len(), inbox.len(), inbox.has(0)), (2, 1, false));
    }

    /// M9: what is fetched in any order is handed out as it was sent, and no more is fetched of a
    /// peer than a turn has.
    #[test]
    fn what_is_on_its_way_keeps_its_place_and_others_go_before_it() {
        let mut keys: SlotMap<AddrKey, ()> = SlotMap::with_key();
        let [a, b] = [0; 2].map(|_| keys.insert(()));
        let mut inbox = Inbox::default();
        let claimed = |n: usize| Entry { tag: n as i32, size: 5000, body: Body::Claimed(n) };
        for n in 0..COMING_MAX + 4 {
            inbox.push(0, a, claimed(n)).expect("it lives");
        }
        push(&mut inbox, 0, a, 999);
        push(&mut inbox, 0, b, 50);
        let mut fetched = Vec::new();
        let mut handed = Vec::new();
        while inbox.has(0)
            && let Some((_, entry)) = inbox.pop(0)
        {
            match entry.body {
                Body::Claimed(context) => fetched.push(context),
                _ => handed.push(entry.tag),
            }
        }
        assert_eq!(fetched, (0..COMING_MAX).collect::<Vec<_>>());
        assert_eq!(handed, [50], "the first is on its way: others go before");
        assert!(!inbox.is_wanted() && inbox.len() == COMING_MAX + 5 && inbox.pop(0).is_none());
        inbox.news = false;
        // The last comes first, and one is lost.
        let block = || Some((Block::for_message(0).expect("memory"), 1));
        for context in (0..COMING_MAX).rev() {
            assert!(inbox.arrived(0, a, context, if context == 3 { None } else { block() }));
            assert!(inbox.news && !inbox.arrived(0, a, context, None), "twice");
        }
        let mut order = Vec::new();
        while let Some((from, entry)) = inbox.pop(0) {
            match entry.body {
                Body::Claimed(context) => assert!(inbox.arrived(0, from, context, block())),
                _ => order.push(entry.tag),
            }
        }
        let expected: Vec<i32> = (0..COMING_MAX as i32 + 4).filter(|n| *n != 3).chain([999]).collect();
        assert_eq!((order, inbox.len()), (expected, 0));
    }

    /// B2.
    #[test]
    fn a_turn_is_of_so_many_messages_at_the_most() {
        let mut keys: SlotMap<AddrKey, ()> = SlotMap::with_key();
        let [a, b, c] = [0; 3].map(|_| keys.insert(()));
        let mut inbox = Inbox { turn_max: 2, ..Inbox::default() };
        for tag in 0..4 {
            push(&mut inbox, 0, a, tag);
            push(&mut inbox, 0, b, 10 + tag);
        }
        push(&mut inbox, 0, c, 20);
        let mut order: Vec<i32> = (0..6).filter_map(|_| inbox.pop(0)).map(|(_, e)| e.tag).collect();
        // A turn whose peer goes before its end is no part of the next one's.
        assert_eq!(inbox.forget(a).len(), 1);
        order.extend(std::iter::from_fn(|| inbox.pop(0)).map(|(_, e)| e.tag));
        assert_eq!((order, inbox.len()), (vec![0, 1, 10, 11, 20, 2, 12, 13], 0));
    }

    /// W4.
    #[test]
    fn a_class_that_nobody_looks_at_is_no_news_and_goes_with_its_peer() {
        let mut keys: SlotMap<AddrKey, ()> = SlotMap::with_key();
        let [a, b] = [0; 2].map(|_| keys.insert(()));
        let mut inbox = Inbox::default();
        push(&mut inbox, 7, a, 1);
        push(&mut inbox, 7, b, 2);
        assert!(!inbox.news && !inbox.is_wanted() && !inbox.is_empty());
        assert_eq!((inbox.forget_unlooked(a).len(), inbox.len()), (1, 1));
        inbox.look_at(7);
        assert!(inbox.news && inbox.is_wanted() && inbox.forget_unlooked(b).is_empty());
        inbox.look_at(255);
        assert!(inbox.looked_at().iter().eq([0, 7, 255]));
        push(&mut inbox, 0, a, 3);
        assert_eq!((inbox.forget_unlooked(a).len(), inbox.pop(7).map(|(_, e)| e.tag)), (0, Some(2)));
    }
}
