//! Which associations are up or being opened: a look that asks about them costs nothing for all
//! the peers that are only known.

use alloc::vec::Vec;

use crate::PeerId;

/// Their peers, in no order that means anything, but the same in each run.
#[derive(Default)]
pub(crate) struct Alive {
    list: Vec<PeerId>,
    /// Where each peer stands in the list, from 1 on; 0: it does not.
    place: Vec<u32>,
}

impl Alive {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.list.iter().copied()
    }

    /// It is opened, or is up.
    pub(crate) fn insert(&mut self, peer: PeerId) {
        let at = peer.0 as usize;
        if self.place.len() <= at {
            self.place.resize(at + 1, 0);
        }
        if self.place[at] == 0 {
            self.list.push(peer);
            self.place[at] = self.list.len() as u32;
        }
    }

    /// It is over.
    pub(crate) fn remove(&mut self, peer: PeerId) {
        let Some(place) = self.place.get_mut(peer.0 as usize).map(core::mem::take).filter(|place| *place > 0) else {
            return;
        };
        self.list.swap_remove(place as usize - 1);
        if let Some(moved) = self.list.get(place as usize - 1) {
            self.place[moved.0 as usize] = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{P, Two};
    use crate::requirements::quiet;

    #[test]
    fn each_is_there_once_from_its_opening_to_its_end() {
        let mut alive = Alive::default();
        let peers = |alive: &Alive| {
            let mut all: Vec<u32> = alive.iter().map(|p| p.0).collect();
            all.sort_unstable();
            all
        };
        [7, 2, 9, 2, 0].into_iter().for_each(|p| alive.insert(PeerId(p)));
        assert_eq!(peers(&alive), [0, 2, 7, 9]);
        [7, 3, 7, 100].into_iter().for_each(|p| alive.remove(PeerId(p)));
        assert_eq!(peers(&alive), [0, 2, 9]);
        alive.insert(PeerId(7));
        [0, 9, 2].into_iter().for_each(|p| alive.remove(PeerId(p)));
        assert_eq!(peers(&alive), [7]);
        alive.remove(PeerId(7));
        assert!(alive.is_empty());
    }

    #[test]
    fn an_endpoint_looks_at_who_is_alive_and_at_no_other() {
        let mut t = Two::up(&quiet());
        assert_eq!(t.ends[0].openings.alive.iter().collect::<Vec<_>>(), [P]);
        assert!(t.ends[0].expects_packets() && t.ends[0].has_associations());
        let (now, events) = (t.now, &mut t.events[0]);
        t.ends[0].give_up(now, P, "a rule", events);
        assert!(t.ends[0].openings.alive.is_empty());
        assert!(!t.ends[0].expects_packets() && !t.ends[0].has_associations());
    }
}
