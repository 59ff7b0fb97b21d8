//! Nodes with stable 32-bit indexes, and doubly linked lists through them.
//!
//! Nothing is allocated while the number of nodes stays below what it was before; a slab that was
//! large and is no longer used gives its memory back (see [`Slab::remove`]).

use alloc::vec::Vec;

/// "No node".
pub const NIL: u32 = u32::MAX;

/// Neighbours of a node in one list.
#[derive(Copy, Clone, Debug)]
pub struct Links {
    /// Towards the head.
    pub prev: u32,
    /// Towards the tail.
    pub next: u32,
}

impl Links {
    /// In no list.
    pub const NONE: Links = Links { prev: NIL, next: NIL };
}

/// Something a [`Slab`] holds.
pub trait Place: Copy {
    /// Whether the place is in use.
    fn is_live(&self) -> bool;
    /// Marks the place as unused. (The rest stays as it is: overwriting it would cost more than the
    /// list work.)
    fn vacate(&mut self);
}

/// Something that can be in lists.
pub trait Node: Place {
    /// Neighbours in list `which`; a node may be in several lists at a time.
    fn links(&self, which: usize) -> Links;
    /// The same, to change them.
    fn links_mut(&mut self, which: usize) -> &mut Links;
}

/// Below this many places memory is never given back.
const KEEP: usize = 64;
/// A slab is looked at for trimming after this many removals plus twice its size.
const WINDOW: usize = 1024;

/// Nodes by index.
#[derive(Debug)]
pub struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
    /// Most live nodes at a time in this window.
    peak: usize,
    /// Removals in this window.
    removals: usize,
}

impl<T: Place> Slab<T> {
    pub const fn new() -> Self {
        Slab { items: Vec::new(), free: Vec::new(), peak: 0, removals: 0 }
    }

    /// Live nodes.
    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// Places allocated.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.items.capacity()
    }

    #[inline]
    pub fn get(&self, ix: u32) -> &T {
        &self.items[ix as usize]
    }

    /// The node, if there is one at this index.
    pub fn live(&self, ix: u32) -> Option<&T> {
        self.items.get(ix as usize).filter(|n| n.is_live())
    }

    #[inline]
    pub fn get_mut(&mut self, ix: u32) -> &mut T {
        &mut self.items[ix as usize]
    }

    #[inline]
    pub fn insert(&mut self, node: T) -> u32 {
        let ix = if let Some(ix) = self.free.pop() {
            self.items[ix as usize] = node;
            ix
        } else {
            self.items.push(node);
            (self.items.len() - 1) as u32
        };
        self.peak = self.peak.max(self.len());
        ix
    }

    /// Removes a live node. Now and then, when lately far fewer nodes were live than there are
    /// places, gives the unused places above the highest live node back, and says so by `true`.
    /// Indexes of live nodes never change.
    #[inline]
    pub fn remove(&mut self, ix: u32) -> bool {
        self.items[ix as usize].vacate();
        self.free.push(ix);
        self.removals += 1;
        self.removals > WINDOW + 2 * self.items.len() && self.end_window()
    }

    #[cold]
    fn end_window(&mut self) -> bool {
        let trim = self.items.len() > KEEP && self.peak < self.items.len() / 4;
        if trim {
            let keep = self.items.iter().rposition(T::is_live).map_or(0, |i| i + 1).max(2 * self.peak);
            self.items.truncate(keep);
            self.items.shrink_to(keep);
            // Lowest places are used first from now on, so that the next window can trim further.
            self.free.clear();
            self.free.extend((0..keep as u32).rev().filter(|ix| !self.items[*ix as usize].is_live()));
            self.free.shrink_to(keep);
        }
        self.removals = 0;
        self.peak = self.len();
        trim
    }

    /// Live nodes in index order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.items.iter().enumerate().filter(|(_, n)| n.is_live()).map(|(i, n)| (i as u32, n))
    }
}

/// A list of nodes of one slab; which of a node's links it uses is said with each call.
#[derive(Copy, Clone, Debug)]
pub struct List {
    /// First node or `NIL`.
    pub head: u32,
    /// Last node or `NIL`.
    pub tail: u32,
}

impl List {
    pub const EMPTY: List = List { head: NIL, tail: NIL };

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Puts a node behind `prev`, or in front of all when that is `NIL`.
    #[inline]
    pub fn insert_after<T: Node>(&mut self, slab: &mut Slab<T>, which: usize, prev: u32, ix: u32) {
        let next = if prev == NIL { self.head } else { slab.get(prev).links(which).next };
        *slab.get_mut(ix).links_mut(which) = Links { prev, next };
        if prev == NIL {
            self.head = ix;
        } else {
            slab.get_mut(prev).links_mut(which).next = ix;
        }
        if next == NIL {
            self.tail = ix;
        } else {
            slab.get_mut(next).links_mut(which).prev = ix;
        }
    }

    #[inline]
    pub fn push_back<T: Node>(&mut self, slab: &mut Slab<T>, which: usize, ix: u32) {
        self.insert_after(slab, which, self.tail, ix);
    }

    #[inline]
    pub fn unlink<T: Node>(&mut self, slab: &mut Slab<T>, which: usize, ix: u32) {
        let Links { prev, next } = slab.get(ix).links(which);
        if prev == NIL {
            self.head = next;
        } else {
            slab.get_mut(prev).links_mut(which).next = next;
        }
        if next == NIL {
            self.tail = prev;
        } else {
            slab.get_mut(next).links_mut(which).prev = prev;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Copy, Clone)]
    struct N(u64, Links);

    impl Place for N {
        fn is_live(&self) -> bool {
            self.0 != 0
        }
        fn vacate(&mut self) {
            self.0 = 0;
        }
    }

    impl Node for N {
        fn links(&self, _: usize) -> Links {
            self.1
        }
        fn links_mut(&mut self, _: usize) -> &mut Links {
            &mut self.1
        }
    }

    fn values(list: &List, slab: &Slab<N>) -> Vec<u64> {
        let mut out = Vec::new();
        let mut at = list.head;
        while at != NIL {
            out.push(slab.get(at).0);
            at = slab.get(at).1.next;
        }
        let mut back = Vec::new();
        let mut at = list.tail;
        while at != NIL {
            back.push(slab.get(at).0);
            at = slab.get(at).1.prev;
        }
        back.reverse();
        assert_eq!(out, back);
        out
    }

    #[test]
    fn list_keeps_order() {
        let (mut slab, mut list) = (Slab::new(), List::EMPTY);
        let ix: Vec<u32> = (1..=4).map(|v| slab.insert(N(v, Links::NONE))).collect();
        list.push_back(&mut slab, 0, ix[1]);
        list.insert_after(&mut slab, 0, NIL, ix[0]);
        list.push_back(&mut slab, 0, ix[3]);
        list.insert_after(&mut slab, 0, ix[1], ix[2]);
        assert_eq!(values(&list, &slab), [1, 2, 3, 4]);
        list.unlink(&mut slab, 0, ix[0]);
        list.unlink(&mut slab, 0, ix[2]);
        assert_eq!(values(&list, &slab), [2, 4]);
        list.unlink(&mut slab, 0, ix[3]);
        list.unlink(&mut slab, 0, ix[1]);
        assert!(list.is_empty() && list.tail == NIL);
    }

    #[test]
    fn memory_comes_back_after_a_burst_and_indexes_stay() {
        let mut slab = Slab::new();
        let first = slab.insert(N(7, Links::NONE));
        let burst: Vec<u32> = (0..100_000).map(|v| slab.insert(N(v + 10, Links::NONE))).collect();
        for ix in burst {
            slab.remove(ix);
        }
        for round in 0..600_000 {
            let ix = slab.insert(N(round + 1, Links::NONE));
            slab.remove(ix);
        }
        assert_eq!(slab.get(first).0, 7);
        assert_eq!(slab.len(), 1);
        assert!(slab.places() < 1000, "{}", slab.places());
    }

    #[test]
    fn a_program_that_fills_and_drains_in_turn_keeps_its_memory() {
        let mut slab = Slab::new();
        let mut trims = 0;
        for _ in 0..50 {
            let all: Vec<u32> = (0..2000).map(|v| slab.insert(N(v + 1, Links::NONE))).collect();
            trims += all.into_iter().filter(|ix| slab.remove(*ix)).count();
        }
        assert_eq!(trims, 0);
    }
}
