//! The table of peers: what messages know of each.

use crate::budget::Refused;
use crate::counters::Streams;
use crate::keys::MsgKey;
use crate::limits::NOTICES_MAX;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};
use smallvec::SmallVec;
use weir_link::DownReason;
use weir_match::envelope::Envelope;

/// What is known of a peer.
#[derive(Debug)]
pub(crate) struct PeerState {
    /// Its name.
    pub name: [u8; 48],
    /// The caller knows it (it was inserted): completions may name it.
    pub inserted: bool,
    /// It came by itself, and the caller was told of it.
    pub stranger: bool,
    /// Established: its credit is known.
    pub up: bool,
    /// Dead, and why.
    pub down: Option<DownReason>,
    /// Messages with fragments still missing.
    pub partial: SmallVec<[(u64, MsgKey); 4]>,
    /// Its messages that were put into multi-receives and are not reported yet, in the order in
    /// which they were sent.
    pub in_line: VecDeque<MsgKey>,
    /// Large remote writes towards it that have not ended.
    pub requests: u32,
    /// Rendezvous transfers of its large writes that are open here.
    pub writes_open: u32,
    /// Remote reads from it that have not ended.
    pub reads: u32,
    /// Reads of its that are being answered.
    pub replies: u32,
    /// Its answers that small remote writes towards it wait for.
    pub answers: u32,
    /// Elements of atomic operations towards it that it has not answered.
    pub atomics: u32,
    /// Copies of payloads for it, bytes.
    pub copied_bytes: u64,
    /// Its sends are refused for lack of room.
    pub refused: Option<Refused>,
    /// It could not grant at once what it was asked for last: others send to it.
    pub is_crowded: bool,
    /// Sent with their payload before its credit was known, bytes.
    pub early_bytes: usize,
    /// Writes with immediate data, in both directions.
    pub notices: Notices,
    /// What its streams carried.
    pub streams: Streams,
    /// Answers to it that found no room, oldest first; and the credit that waits for them.
    pub kept: VecDeque<Envelope>,
    pub owed_msgs: u32,
    pub owed_bytes: u64,
    /// It has asked for more than it may, or there is no place for it; it is about to be given up.
    pub overran: bool,
}

impl PeerState {
    /// A peer nothing is known of.
    fn new() -> PeerState {
        PeerState {
            name: [0; 48],
            inserted: false,
            stranger: false,
            up: false,
            down: None,
            partial: SmallVec::new(),
            in_line: VecDeque::new(),
            requests: 0,
            writes_open: 0,
            reads: 0,
            replies: 0,
            answers: 0,
            atomics: 0,
            copied_bytes: 0,
            refused: None,
            is_crowded: false,
            early_bytes: 0,
            notices: Notices::default(),
            streams: Streams::default(),
            kept: VecDeque::new(),
            owed_msgs: 0,
            owed_bytes: 0,
            overran: false,
        }
    }

    /// It went down: nothing is owed to it any more, and nothing that lacks bytes will have them.
    pub(crate) fn go_down(&mut self, reason: DownReason) {
        self.down = Some(reason);
        self.partial.clear();
        self.kept = VecDeque::new();
        (self.owed_msgs, self.owed_bytes) = (0, 0);
    }

    /// Its message of this number, if bytes of it are missing.
    pub(crate) fn partial(&self, mseq: u64) -> Option<MsgKey> {
        self.partial.iter().rev().find(|(m, _)| *m == mseq).map(|&(_, k)| k)
    }
}

/// The credit of writes with immediate data: their notices wait in the target's queue until its
/// program takes them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notices {
    /// Begun here.
    begun: u64,
    /// Of these, taken there (or refused).
    taken: u64,
    /// Of the peer, waiting here or about to arrive.
    held: u32,
    /// Of the peer, taken here (or refused).
    done: u64,
    /// How many of these it has been told of.
    told: u64,
}

impl Notices {
    /// Whether one more may be begun here.
    pub(crate) fn may_begin(&self) -> bool {
        self.begun.saturating_sub(self.taken) < u64::from(NOTICES_MAX)
    }

    /// One is.
    pub(crate) fn begin(&mut self) {
        self.begun += 1;
    }

    /// The peer says that its program has taken so many.
    pub(crate) fn taken_there(&mut self, count: u64) {
        self.taken = self.taken.max(count.min(self.begun));
    }

    /// One of the peer arrives; false when it has more here than it may.
    pub(crate) fn admit(&mut self) -> bool {
        let room = self.held < NOTICES_MAX;
        self.held += u32::from(room);
        room
    }

    /// One of the peer is out of the way.
    pub(crate) fn done(&mut self) {
        self.held = self.held.saturating_sub(1);
        self.done += 1;
    }

    /// What to tell the peer now: a quarter of what it may have here is news.
    pub(crate) fn tell(&mut self) -> Option<u64> {
        if self.done - self.told < u64::from(NOTICES_MAX / 4) {
            return None;
        }
        self.told = self.done;
        Some(self.done)
    }
}

/// The table, by index.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    table: Vec<PeerState>,
    /// Peers that went down and whose places have not been given back.
    dead: Vec<u32>,
    /// How many came by themselves.
    strangers: usize,
}

impl Peers {
    /// Makes sure that there is an entry (the protocol may know a peer that was never inserted).
    #[inline]
    pub(crate) fn ensure(&mut self, peer: u32) -> &mut PeerState {
        while self.table.len() <= peer as usize {
            self.table.push(PeerState::new());
        }
        &mut self.table[peer as usize]
    }

    /// The place of a forgotten peer was given to another.
    pub(crate) fn renew(&mut self, peer: u32) {
        self.no_stranger(peer);
        *self.ensure(peer) = PeerState::new();
    }

    #[inline]
    pub(crate) fn get(&self, peer: u32) -> Option<&PeerState> {
        self.table.get(peer as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, peer: u32) -> Option<&mut PeerState> {
        self.table.get_mut(peer as usize)
    }

    /// How many came by themselves.
    pub(crate) fn strangers(&self) -> usize {
        self.strangers
    }

    /// One has: the caller knows it from now on.
    pub(crate) fn admit_stranger(&mut self, peer: u32) {
        let slot = self.ensure(peer);
        (slot.inserted, slot.stranger) = (true, true);
        self.strangers += 1;
    }

    /// It is one no longer: it was inserted, or forgotten.
    pub(crate) fn no_stranger(&mut self, peer: u32) {
        if self.get_mut(peer).is_some_and(|slot| core::mem::take(&mut slot.stranger)) {
            self.strangers -= 1;
        }
    }

    /// The peer as completions may name it.
    #[inline]
    pub(crate) fn source(&self, peer: u32) -> Option<u32> {
        self.get(peer).filter(|p| p.inserted).map(|_| peer)
    }

    /// Why a peer is down (for operations that find out late).
    pub(crate) fn down_reason(&self, peer: u32) -> DownReason {
        self.get(peer).and_then(|p| p.down).unwrap_or(DownReason::Closed)
    }

    /// A peer went down; its place is given back once nothing refers to it.
    pub(crate) fn note_dead(&mut self, peer: u32) {
        self.dead.push(peer);
    }

    /// Whether places wait to be given back.
    pub(crate) fn any_dead(&self) -> bool {
        !self.dead.is_empty()
    }

    /// This one's place is among them.
    pub(crate) fn is_dead(&self, peer: u32) -> bool {
        self.dead.contains(&peer)
    }

    /// Those of them that the caller does not know and that `keep` does not want are gone.
    pub(crate) fn release_dead(&mut self, mut keep: impl FnMut(u32) -> bool) {
        let mut dead = core::mem::take(&mut self.dead);
        dead.retain(|&p| self.get(p).is_some_and(|s| s.down.is_some() && !s.inserted));
        dead.retain(|&p| keep(p));
        self.dead = dead;
    }
}

/// A peer of which it is known that there is an entry.
impl Index<u32> for Peers {
    type Output = PeerState;

    #[inline]
    fn index(&self, peer: u32) -> &PeerState {
        &self.table[peer as usize]
    }
}

impl IndexMut<u32> for Peers {
    #[inline]
    fn index_mut(&mut self, peer: u32) -> &mut PeerState {
        &mut self.table[peer as usize]
    }
}
