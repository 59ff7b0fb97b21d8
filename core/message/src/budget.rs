//! What the engine may hold for others: copies of the caller's payloads, and messages nobody has
//! asked for yet.

use alloc::vec::Vec;
use core::time::Duration;
use weir_link::Time;

/// Of the budget of copies, what a peer may have even when the others have used up the whole: who
/// cannot send to one peer shall not wait for the rest.
pub const COPIES_RESERVE: u64 = 64 << 10;
/// What a held message costs beside its payload: its entries here and in the matcher, and the
/// protocol's memory of a number.
pub const HELD_BYTES: u64 = 256;
/// What a send costs beside its payload while it waits to be asked for, or (to this endpoint
/// itself) to be received.
pub const WAITING_BYTES: u64 = 512;

/// Sends to a peer that have found no room for so long get twice the room, and each time as much
/// longer as there is more: the program may be inside a send that by MPI's rules is not to wait
/// (`MPI_Isend`), and receive only afterwards, and its peer likewise. Half a second: longer than a
/// receiver that takes anything at all leaves them without room; a receiver that only computes for
/// some seconds shall not cost all the memory.
const STALLED_NS: u64 = 500_000_000;
/// So many times the budget is all they get: what a program may have sent ahead has to end
/// somewhere short of the machine's memory.
pub const MORE_MAX: u64 = 16;
/// Refusals further apart are of different waits. 5 s: a process whose turn comes seldom still
/// waits.
const APART_NS: u64 = 5_000_000_000;

/// Copies of payloads, made so that the caller's memory is free before the peer has acknowledged
/// it.
///
/// Some could be done without: the memory is lent instead. These may take half of the whole only,
/// and so much for a peer. Those that must be made are refused when there is no room, and an MPI
/// then waits inside a send that is not to wait; so they may take all there is, and more when that
/// wait does not end ([`Copies::refused`]).
#[derive(Debug)]
pub struct Copies {
    /// In all, bytes.
    bytes: u64,
    max: u64,
    peer_max: u64,
    /// What copies that must be made may take now: `max`, until a wait has not ended.
    must_max: u64,
    /// Who has found no room in all that for so long, while messages for this process wait that
    /// nobody receives, is taken for one of a circle of processes that all wait inside their sends.
    give_up_ns: u64,
}

/// What to do for a send that has found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Try again.
    Wait,
    /// Try again; there is more room now.
    More,
    /// There will be none.
    Never,
}

/// Sends to one peer that are refused again and again.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    first: Time,
    last: Time,
    /// What the first of them asked for.
    bytes: u64,
}

/// Whether a wait of so many ns is one that does not end.
pub fn has_stalled(waited_ns: u64) -> bool {
    waited_ns >= STALLED_NS
}

impl Refused {
    /// A send that asks for so many bytes is refused (again). Returns for how long that has been
    /// so, ns.
    pub fn again(this: &mut Option<Refused>, now: Time, bytes: u64) -> u64 {
        let r = this.get_or_insert(Refused { first: now, last: now, bytes });
        if now.since_ns(r.last) > APART_NS {
            *r = Refused { first: now, last: now, bytes };
        }
        r.last = now;
        now.since_ns(r.first)
    }

    /// A send that took so many bytes was accepted. The wait of one that asked for more goes on:
    /// small sends of another thread must not prolong it for ever.
    #[inline]
    pub fn accepted(this: &mut Option<Refused>, bytes: u64) {
        if this.is_some_and(|r| bytes >= r.bytes) {
            *this = None;
        }
    }
}

impl Copies {
    /// Bytes of all copies now.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// At most `max` bytes in all, and for one peer `peer_max` of copies that could be done
    /// without. A send that finds no room in the most that there can be is given up after
    /// `give_up`.
    pub fn new(max: u64, peer_max: u64, give_up: Duration) -> Copies {
        Copies { bytes: 0, max, peer_max, must_max: max, give_up_ns: give_up.as_nanos() as u64 }
    }

    /// A send has been refused for lack of room for `waited_ns`; `owes` says whether messages for
    /// this process wait that nobody receives. The room doubles when the wait is long enough, up to
    /// [`MORE_MAX`] times the budget, and stays.
    pub fn refused(&mut self, waited_ns: u64, owes: bool) -> Refusal {
        let most = self.max.saturating_mul(MORE_MAX);
        if self.must_max < most {
            if !has_stalled(waited_ns / (self.must_max / self.max.max(1)).max(1)) {
                return Refusal::Wait;
            }
            self.must_max = self.must_max.saturating_mul(2).min(most);
            return Refusal::More;
        }
        if owes && waited_ns >= self.give_up_ns { Refusal::Never } else { Refusal::Wait }
    }

    /// Takes room for a copy for a peer, who has `of_peer` bytes already; false when there is none.
    #[inline]
    pub fn take(&mut self, of_peer: &mut u64, bytes: u64, must: bool) -> bool {
        let after = *of_peer + bytes;
        let (max, peer_max) = if must { (self.must_max, self.must_max) } else { (self.max / 2, self.peer_max) };
        if after > COPIES_RESERVE && (after > peer_max || self.bytes + bytes > max) {
            return false;
        }
        *of_peer = after;
        self.bytes += bytes;
        true
    }

    /// The copy is no longer needed.
    #[inline]
    pub fn give_back(&mut self, of_peer: &mut u64, bytes: u64) {
        *of_peer = of_peer.saturating_sub(bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Messages that arrived before anybody asked for them, and the message credit given for them ahead
/// of their being received (`spec/protocol.md` 5).
#[derive(Debug)]
pub struct Unexpected {
    /// Entries and payloads held, bytes.
    bytes: u64,
    max: u64,
    peers: Vec<Share>,
    /// Peers that would have got credit, had there been room.
    starved: Vec<u32>,
}

/// What one peer has here.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Its messages held.
    held: u32,
    /// Of these, those whose place in its credit was made good already.
    ahead: u32,
    /// It is among the starved.
    starved: bool,
}

impl Unexpected {
    /// Credit is given ahead while less than `max` bytes are held.
    pub fn new(max: u64) -> Unexpected {
        Unexpected { bytes: 0, max, peers: Vec::new(), starved: Vec::new() }
    }

    /// A message of this peer is held from now on. Returns the messages of credit to give it now; 0
    /// when the budget is used up.
    pub fn hold(&mut self, peer: u32) -> u32 {
        let i = peer as usize;
        if i >= self.peers.len() {
            self.peers.resize(i + 1, Share::default());
        }
        self.bytes += HELD_BYTES;
        let share = &mut self.peers[i];
        share.held += 1;
        if self.bytes <= self.max {
            share.ahead += 1;
            return 1;
        }
        if !core::mem::replace(&mut share.starved, true) {
            self.starved.push(peer);
        }
        0
    }

    /// So much of held messages' payload has a buffer.
    pub fn add_payload(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// And so much has none any more.
    pub fn drop_payload(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// A held message is received or gone. Returns the messages of credit to give its peer: 1,
    /// unless it was given ahead.
    pub fn leave(&mut self, peer: u32) -> u32 {
        let Some(share) = self.peers.get_mut(peer as usize) else { return 1 };
        self.bytes = self.bytes.saturating_sub(HELD_BYTES);
        share.held = share.held.saturating_sub(1);
        if share.ahead > share.held {
            share.ahead = share.held;
            return 0;
        }
        1
    }

    /// Some peer waits for room.
    #[inline]
    pub fn is_full(&self) -> bool {
        !self.starved.is_empty()
    }

    /// A peer that had to wait and need not any more, with the messages of credit to give it. Not
    /// before a quarter of the budget is free, lest it be told of every message.
    #[inline]
    pub fn relieve(&mut self) -> Option<(u32, u32)> {
        if self.starved.is_empty() || self.bytes > self.max / 4 * 3 {
            return None;
        }
        self.relieve_one()
    }

    fn relieve_one(&mut self) -> Option<(u32, u32)> {
        let peer = self.starved.pop()?;
        let share = &mut self.peers[peer as usize];
        share.starved = false;
        let owed = share.held - share.ahead;
        let room = u32::try_from((self.max - self.bytes) / HELD_BYTES).unwrap_or(u32::MAX);
        let given = owed.min(room);
        share.ahead += given;
        Some((peer, given))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn copies_are_bounded_in_all_and_for_a_peer_and_leave_each_peer_a_little() {
        let mut copies = Copies::new(2 << 20, 512 << 10, GIVE_UP);
        let mut peers = [0u64; 20];
        for p in &mut peers {
            while copies.take(p, 16 << 10, false) {}
        }
        assert_eq!((peers[0], peers[1]), (512 << 10, 512 << 10));
        assert!(peers[2..].iter().all(|p| *p == COPIES_RESERVE));
        // What must be copied has the rest for itself.
        let before = copies.bytes;
        assert!(before <= (1 << 20) + 18 * COPIES_RESERVE);
        while copies.take(&mut peers[0], 16 << 10, true) {}
        assert_eq!(copies.bytes, before.max(2 << 20));
        let first = &mut peers[0];
        while *first > 0 {
            copies.give_back(first, 16 << 10);
        }
        for p in &mut peers[1..] {
            while *p > 0 {
                copies.give_back(p, 16 << 10);
            }
        }
        assert_eq!(copies.bytes, 0);
    }

    const GIVE_UP: Duration = Duration::from_secs(30);

    /// A process that sends to one peer in a loop, as an MPI does inside a send: takes 16 KiB each
    /// time, every ms; nothing is given back. Returns what it was told and when, ms.
    fn flood(copies: &mut Copies, owes: bool, time_ms: u64) -> Vec<(u64, Refusal, u64)> {
        let (mut refused, mut of_peer, mut told) = (None, 0, Vec::new());
        for ms in 1..=time_ms {
            let now = Time(ms * 1_000_000);
            while copies.take(&mut of_peer, 16 << 10, true) {
                Refused::accepted(&mut refused, 16 << 10);
            }
            match copies.refused(Refused::again(&mut refused, now, 16 << 10), owes) {
                Refusal::Wait => {}
                refusal => {
                    told.push((ms, refusal, copies.bytes));
                    refused = refused.filter(|_| refusal == Refusal::Never);
                }
            }
        }
        told
    }

    #[test]
    fn a_wait_that_does_not_end_gets_more_room_up_to_a_limit_and_then_fails() {
        let mut copies = Copies::new(1 << 20, 1 << 20, GIVE_UP);
        let told = flood(&mut copies, true, 40_000);
        let more: Vec<_> = told.iter().filter(|t| t.1 == Refusal::More).map(|t| t.2 >> 20).collect();
        assert_eq!(more, [1, 2, 4, 8], "MiB taken when there was more");
        assert!(told[0].0 > 500 && told[0].0 < 510, "{told:?}");
        assert!(told[3].0 > 7500 && told[3].0 < 7600, "0.5, 1, 2 and 4 s: {told:?}");
        assert_eq!(copies.bytes, 16 << 20);
        let never = told.iter().find(|t| t.1 == Refusal::Never).expect("failed");
        assert!((37_500..38_000).contains(&never.0), "{never:?}");
    }

    #[test]
    fn a_send_whose_process_has_nothing_to_receive_waits_for_its_receiver_however_long() {
        let mut copies = Copies::new(1 << 20, 1 << 20, GIVE_UP);
        let told = flood(&mut copies, false, 100_000);
        assert!(told.len() == 4 && told.iter().all(|t| t.1 == Refusal::More), "{told:?}");
    }

    #[test]
    fn no_more_room_is_had_while_some_becomes_free() {
        let (mut copies, mut refused, mut of_peer) = (Copies::new(1 << 20, 1 << 20, GIVE_UP), None, 0);
        for ms in 1..10_000u64 {
            while copies.take(&mut of_peer, 16 << 10, true) {
                Refused::accepted(&mut refused, 16 << 10);
            }
            let waited_ns = Refused::again(&mut refused, Time(ms * 1_000_000), 16 << 10);
            assert_eq!(copies.refused(waited_ns, true), Refusal::Wait, "at {ms} ms");
            if ms % 400 == 0 {
                copies.give_back(&mut of_peer, 16 << 10);
            }
        }
        assert_eq!(copies.bytes, 1 << 20);
    }

    #[test]
    fn small_sends_that_get_through_do_not_prolong_the_wait_of_a_large_one() {
        let mut refused = None;
        Refused::again(&mut refused, Time(1), 16 << 10);
        Refused::accepted(&mut refused, 100);
        assert_eq!(Refused::again(&mut refused, Time(1_000_001), 16 << 10), 1_000_000);
        Refused::accepted(&mut refused, 16 << 10);
        assert!(refused.is_none());
        // One that is given up is not waiting, however much later another one is refused.
        Refused::again(&mut refused, Time(1), 16 << 10);
        assert_eq!(Refused::again(&mut refused, Time(60_000_000_000), 8 << 10), 0);
    }

    /// One step of a peer that sends as fast as its credit lets it, or of the program that
    /// receives.
    #[derive(Clone, Debug)]
    enum Step {
        Send { peer: usize, payload: u64 },
        Receive { peer: usize, nth: usize },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let send = (0usize..5, 0u64..2000).prop_map(|(peer, payload)| Step::Send { peer, payload });
        let receive = (0usize..5, any::<usize>()).prop_map(|(peer, nth)| Step::Receive { peer, nth });
        proptest::collection::vec(prop_oneof![3 => send, 1 => receive], 1..600)
    }

    proptest! {
        // spec: P-5.4
        #[test]
        fn credit_is_given_once_for_each_message_and_memory_stays_bounded(steps in steps(), max in 0u64..40_000) {
            const WINDOW: u64 = 8;
            const PAYLOAD: u64 = 2000;
            let mut u = Unexpected::new(max);
            let mut held: Vec<Vec<u64>> = vec![Vec::new(); 5];
            // Sent, and allowed to send.
            let (mut sent, mut limit) = ([0u64; 5], [WINDOW; 5]);
            for step in steps {
                match step {
                    Step::Send { peer, payload } if sent[peer] < limit[peer] => {
                        sent[peer] += 1;
                        limit[peer] += u64::from(u.hold(peer as u32));
                        u.add_payload(payload);
                        held[peer].push(payload);
                    }
                    Step::Receive { peer, nth } if !held[peer].is_empty() => {
                        let nth = nth % held[peer].len();
                        let payload = held[peer].swap_remove(nth);
                        u.drop_payload(payload);
                        limit[peer] += u64::from(u.leave(peer as u32));
                        while let Some((peer, given)) = u.relieve() {
                            limit[peer as usize] += u64::from(given);
                        }
                    }
                    _ => {}
                }
                let in_all: u64 = held.iter().flatten().map(|p| p + HELD_BYTES).sum();
                prop_assert_eq!(u.bytes, in_all);
                prop_assert!(in_all <= max + 5 * (WINDOW + 1) * (PAYLOAD + HELD_BYTES), "{} of {}", in_all, max);
                for p in 0..5 {
                    // Never more than the window beyond what is held, never less than what was
                    // received allows.
                    let received = sent[p] - held[p].len() as u64;
                    prop_assert!(limit[p] <= sent[p] + WINDOW);
                    prop_assert!(limit[p] >= received + WINDOW);
                }
            }
            // All received: everybody has the whole window again.
            for p in 0..5 {
                for payload in core::mem::take(&mut held[p]) {
                    u.drop_payload(payload);
                    limit[p] += u64::from(u.leave(p as u32));
                    while let Some((peer, given)) = u.relieve() {
                        limit[peer as usize] += u64::from(given);
                    }
                }
            }
            prop_assert_eq!(u.bytes, 0);
            for p in 0..5 {
                prop_assert_eq!(limit[p], sent[p] + WINDOW);
            }
        }
    }

    // spec: P-5.4
    #[test]
    fn a_peer_that_had_to_wait_gets_its_credit_when_another_makes_room() {
        let mut u = Unexpected::new(100 * HELD_BYTES);
        assert_eq!((0..100).map(|_| u.hold(0)).sum::<u32>(), 100);
        assert_eq!((u.hold(1), u.hold(1)), (0, 0));
        assert!(u.is_full());
        for _ in 0..100 {
            assert_eq!(u.leave(0), 0, "given ahead");
        }
        assert_eq!(u.relieve(), Some((1, 2)));
        assert!(!u.is_full() && u.relieve().is_none());
        assert_eq!(u.leave(1) + u.leave(1), 0);
    }
}
