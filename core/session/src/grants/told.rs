//! Grants in a superstep, where it is known who sends how much (`spec/superstep.md` 4).
//!
//! All that come are to end at a time, for the superstep ends with the last: so each of a few holds
//! a part, in the order of the Latin square, and of these the one with most to come is next.

use weir_superstep::OwnQueue;

use super::{Account, Grants, Waiting};
use crate::{PeerId, Time};

/// So many send at a time. With fewer the wire waits for one that others keep, with more their
/// packets meet in the switch; and each part is then a step, which a sender brings as a whole
/// (`docs/lab/2026-11-26-supersteps-2.md`).
pub(super) const TOLD_SENDERS: u64 = 6;
/// What is granted ahead, in own queues: a grant waits in one, the data in another, and a third of
/// it is what the packets of a step and the rest of the way take.
const AHEAD_QUEUES: u64 = 3;

impl Grants {
    /// A superstep begins: rendezvous transfers of these peers are granted before those of all
    /// others, those of the first [`TOLD_SENDERS`] that wait at a time. It is the order in which
    /// the peers serve this endpoint and others, so that each of them is asked by few at a time
    /// (`spec/superstep.md` 4). No peers: as ever.
    pub(crate) fn set_order(&mut self, peers: impl Iterator<Item = PeerId>, own_queue: OwnQueue) {
        self.own_queue = own_queue;
        let before = core::mem::take(&mut self.placed);
        for peer in core::mem::take(&mut self.order) {
            self.account(peer).rank = 0;
        }
        for (peer, rank) in peers.zip(1..) {
            self.account(peer).rank = rank;
            self.order.push(peer);
        }
        for ((_, serial), w) in before {
            self.line_up(serial, w);
        }
        for i in 0..self.order.len() {
            let peer = self.order[i];
            for serial in self.serials(peer) {
                if let Some(w) = self.leave_line(peer, serial) {
                    self.line_up(serial, w);
                }
            }
        }
        self.changed |= !self.nobody_waits();
    }

    /// What may be granted ahead of what comes, besides what the wires hold.
    pub(super) fn ahead(&self) -> u64 {
        // (A rate of 0 is none that is known: then the least.)
        match self.own_queue.bytes(self.meter.rate.max(1)) {
            Some(bytes) if !self.order.is_empty() => AHEAD_QUEUES.saturating_mul(bytes),
            _ if self.is_both_ways() => self.floor.saturating_mul(2),
            _ => self.floor,
        }
    }

    /// Of those that have a place, so many peers wait before this place; no more are counted than
    /// may send at a time.
    fn waiting_before(&self, place: u32) -> u64 {
        let (mut peers, mut from) = (0, 0);
        while peers < TOLD_SENDERS
            && let Some((&(found, _), _)) = self.placed.range((from, 0)..).next()
            && found < place
        {
            (peers, from) = (peers + 1, found + 1);
        }
        peers
    }

    /// What each of so many peers may hold while rendezvous transfers of theirs wait. No bound
    /// where they are of one.
    fn told_part(&self, peers: u64) -> u64 {
        if peers <= 1 { u64::MAX } else { (self.budget() / peers.min(TOLD_SENDERS)).max(self.step) }
    }

    /// What a rendezvous transfer of a peer that has a place is granted when it is opened. The
    /// others that are to come are counted, though they have not asked yet.
    pub(super) fn open_told(&self, account: &Account, len: u64, room: u64) -> u64 {
        if self.waiting_before(account.rank) >= TOLD_SENDERS {
            return 0;
        }
        len.min(room).min(self.told_part(self.order.len() as u64).saturating_sub(account.outstanding))
    }

    /// Next rendezvous transfer to raise among those of peers that have a place: of the first few
    /// of them the one with most to come.
    pub(super) fn next_told(&mut self, now: Time) -> Option<(PeerId, u64, u64)> {
        let part = self.told_part(self.waiting_before(u32::MAX));
        let own = |w: &Waiting| match w.bulk {
            true => u64::MAX,
            false => part.saturating_sub(self.accounts.get(w.peer.0 as usize).map_or(0, |a| a.outstanding)),
        };
        let room = |w: &Waiting| own(w).min(self.room_for(w.bulk));
        let (mut peers, mut place) = (0, 0);
        let first = self.placed.iter().take_while(|((at, _), _)| {
            peers += u64::from(*at != place);
            place = *at;
            peers <= TOLD_SENDERS
        });
        let may = first.filter(|(_, w)| room(w) >= self.least(w));
        let (&key, &w) = may.min_by_key(|(key, w)| (core::cmp::Reverse(w.len - w.granted), **key))?;
        let add = (w.len - w.granted).min(room(&w));
        self.book(now, w.peer, add, w.bulk);
        let w = Waiting { granted: w.granted + add, since: now, ..w };
        if w.granted == w.len {
            self.placed.remove(&key);
            self.by_handle.remove(&(w.peer, w.handle));
        } else {
            self.placed.insert(key, w);
        }
        Some((w.peer, w.handle, w.granted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use alloc::vec::Vec;

    /// What each of so many peers holds, served in the order from the last to the first.
    fn told(peers: u32, len: impl Fn(u32) -> u64, own_queue: OwnQueue) -> (Grants, Vec<u64>) {
        let mut g = Grants::new(&Config::default());
        g.set_order((0..peers).rev().map(PeerId), own_queue);
        let mut held: Vec<u64> = (0..peers).map(|_| 0).collect();
        for p in 0..peers {
            let granted = g.open(Time(1), PeerId(p), len(p), false);
            g.wait(Time(1), PeerId(p), 1, len(p), granted, false);
            held[p as usize] = granted;
        }
        (g, held)
    }

    // spec: P-5.20
    #[test]
    fn the_first_in_the_order_hold_a_part_each_and_the_others_wait() {
        let (mut g, mut held) = told(9, |_| 1 << 20, OwnQueue::Auto);
        while let Some((peer, _, limit)) = g.next(Time(1)) {
            held[peer.0 as usize] = limit;
        }
        // Who asked first and found nobody before it began; all together hold no more than what is
        // ahead.
        assert_eq!(held.iter().sum::<u64>(), 96 << 10);
        assert!(held.iter().all(|h| *h == 0 || *h == 16 << 10), "{held:?}");
        // From now on the six that come first go on, until they are through.
        let mut before_the_last = None;
        for turn in 2..10_000 {
            // (They bring it by turns.)
            let mut peers = (0..9).map(|p| (p + turn as u32) % 9);
            let Some(who) = peers.find(|p| g.accounts[*p as usize].outstanding > 0) else {
                break;
            };
            // A gigabit a second.
            let now = Time(turn * 131_072);
            g.arrived(now, PeerId(who), 16 << 10);
            while let Some((peer, _, limit)) = g.next(now) {
                held[peer.0 as usize] = limit;
                if peer.0 < 3 && before_the_last.is_none() {
                    before_the_last = Some(held[3..].iter().filter(|h| **h == 1 << 20).count());
                }
                assert!(g.accounts[peer.0 as usize].outstanding <= 96 << 10, "{peer:?} at {turn}");
            }
        }
        assert!(held.iter().all(|h| *h == 1 << 20), "{held:?}");
        // A seventh goes on when one of the six has all.
        assert_eq!(before_the_last, Some(1));
        assert_eq!((g.outstanding(), g.placed.len(), g.by_handle.len()), (0, 0, 0));
    }

    #[test]
    fn of_those_that_send_the_one_with_most_to_come_is_next() {
        let (mut g, _) = told(3, |p| u64::from(p + 1) << 20, OwnQueue::Bytes(16 << 10));
        while g.next(Time(1)).is_some() {}
        for p in [0, 1, 2] {
            g.arrived(Time(2), PeerId(p), 16 << 10);
        }
        assert_eq!(g.next(Time(2)).map(|n| n.0), Some(PeerId(2)));
    }

    #[test]
    fn what_is_not_told_and_what_the_system_lets_wait_have_the_usual_budget() {
        let (g, _) = told(0, |_| 0, OwnQueue::Auto);
        assert_eq!(g.ahead(), 256 << 10);
        let (g, _) = told(3, |_| 1 << 20, OwnQueue::System);
        assert_eq!(g.ahead(), 256 << 10);
        let (mut g, _) = told(3, |_| 1 << 20, OwnQueue::Auto);
        assert_eq!(g.ahead(), 96 << 10);
        g.meter.rate = 1_250_000_000;
        assert_eq!(g.ahead(), 937_500);
    }

    #[test]
    fn the_next_superstep_has_another_order_and_of_what_waits_nothing_is_lost() {
        let mut g = Grants::new(&Config::default());
        let (first, second, other) = (PeerId(3), PeerId(1), PeerId(7));
        g.set_order([first, second].into_iter(), OwnQueue::Auto);
        for peer in [second, first, other] {
            g.wait(Time(200), peer, 6, 1 << 20, 100, false);
        }
        assert_eq!((g.placed.len(), g.waiting.len(), g.patience.len()), (2, 1, 1));
        // Those that have a place come first, though another waits longer.
        assert_eq!(g.next(Time(201)).map(|n| n.0), Some(first));
        g.set_order([second].into_iter(), OwnQueue::Auto);
        assert_eq!((g.placed.len(), g.waiting.len(), g.patience.len()), (1, 2, 2));
        g.set_order(core::iter::empty(), OwnQueue::System);
        assert_eq!((g.placed.len(), g.waiting.len(), g.patience.len()), (0, 3, 3));
        for peer in [first, second, other] {
            g.forget_peer(peer);
        }
        assert_eq!((g.outstanding(), g.deadline(), g.by_handle.len()), (0, None, 0));
    }
}
