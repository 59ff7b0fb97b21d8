//! The matcher.

use crate::types::*;
use alloc::{collections::BTreeMap, collections::BTreeSet, vec::Vec};

#[derive(Default)]
struct Peer {
    next: u64,
    ahead: BTreeSet<u64>,
    stream_next: BTreeMap<u16, u32>,
    stream_ahead: BTreeSet<(u16, u32)>,
}

/// Matches messages to receives; see the crate's documentation for the rule.
pub struct Matcher {
    posted: Vec<(Posted, u64)>,
    waiting: Vec<Arrival>,
    peers: BTreeMap<u32, Peer>,
    threshold: u64,
    stats: Stats,
}

impl Default for Matcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Matcher {
    /// An empty matcher whose census calls messages above 64 KiB long.
    pub fn new() -> Self {
        Matcher {
            posted: Vec::new(),
            waiting: Vec::new(),
            peers: BTreeMap::new(),
            threshold: 65536,
            stats: Stats::default(),
        }
    }

    /// Messages of more than `bytes` count as long from now on.
    pub fn set_census_threshold(&mut self, bytes: u64) {
        self.threshold = bytes;
    }

    /// Posts a receive. It may take a waiting message at once, several if it is a multi-receive buffer.
    pub fn post(&mut self, p: Posted, out: &mut Vec<Match>) {
        self.posted.push((p, 0));
        while let Some(i) = self.find(&p.pattern(), true) {
            let m = self.waiting.remove(i);
            let r = self.posted.len() - 1;
            if self.take(r, m, false, out) {
                break;
            }
        }
    }

    /// Tells of an arrived message. It may be matched at once, or release others that were held for it.
    pub fn arrive(&mut self, a: Arrival, out: &mut Vec<Match>) {
        self.waiting.push(a);
        self.note_other(a.peer, a.mseq, a.stream, a.sseq, out);
    }

    /// A number that is not to be matched (for example an RMA request) fills its place in the order.
    pub fn note_other(
        &mut self,
        peer: u32,
        mseq: u64,
        stream: u16,
        sseq: u32,
        out: &mut Vec<Match>,
    ) {
        let p = self.peers.entry(peer).or_default();
        p.ahead.insert(mseq);
        while p.ahead.remove(&p.next) {
            p.next += 1;
        }
        p.stream_ahead.insert((stream, sseq));
        let n = p.stream_next.entry(stream).or_default();
        while p.stream_ahead.remove(&(stream, *n)) {
            *n = n.wrapping_add(1);
        }
        self.settle(out);
    }

    /// The message a receive posted now would take.
    pub fn peek(&self, class: Class, source: Source, tag: u64, ignore: u64) -> Option<MsgToken> {
        self.find(
            &Pattern {
                class,
                source,
                tag,
                ignore,
            },
            false,
        )
        .map(|i| self.waiting[i].msg)
    }

    /// Takes that message out: no receive can match it any more.
    pub fn claim(
        &mut self,
        class: Class,
        source: Source,
        tag: u64,
        ignore: u64,
    ) -> Option<MsgToken> {
        let i = self.find(
            &Pattern {
                class,
                source,
                tag,
                ignore,
            },
            false,
        )?;
        let m = self.waiting.remove(i);
        self.count(m.len, false);
        Some(m.msg)
    }

    /// Takes a receive back. Returns false when it is not posted. Messages held for it may match others.
    pub fn cancel(&mut self, op: OpToken, out: &mut Vec<Match>) -> bool {
        let Some(i) = self.posted.iter().position(|p| p.0.op == op) else {
            return false;
        };
        self.posted.remove(i);
        self.settle(out);
        true
    }

    /// Forgets a peer that will send no more. `ops` gets the receives directed at it; `msgs` its messages that lie behind
    /// a gap, which no receive may ever take. Its other waiting messages stay and can still be received. A later arrival
    /// from the same index starts a new numbering.
    pub fn remove_peer(&mut self, peer: u32, ops: &mut Vec<OpToken>, msgs: &mut Vec<MsgToken>) {
        self.posted.retain(|p| {
            let gone = p.0.source == Source::Peer(peer);
            if gone {
                ops.push(p.0.op);
            }
            !gone
        });
        let Some(p) = self.peers.remove(&peer) else {
            return;
        };
        let mut gone: Vec<(u64, MsgToken)> = Vec::new();
        self.waiting.retain(|m| {
            let lost = m.peer == peer && m.mseq >= p.next;
            if lost {
                gone.push((m.mseq, m.msg));
            }
            !lost
        });
        gone.sort_unstable();
        msgs.extend(gone.into_iter().map(|g| g.1));
    }

    /// Messages that wait, for a receive or for a gap to close.
    pub fn unexpected_count(&self) -> usize {
        self.waiting.len()
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        Stats {
            posted: self.posted.len(),
            unexpected: self.waiting.len(),
            behind_gap: self
                .waiting
                .iter()
                .filter(|m| !self.eligible(m, false))
                .count(),
            ..self.stats
        }
    }

    fn count(&mut self, len: u64, expected: bool) {
        let c = &mut self.stats.census;
        match (expected, len > self.threshold) {
            (true, false) => c.expected_short += 1,
            (true, true) => c.expected_long += 1,
            (false, false) => c.unexpected_short += 1,
            (false, true) => c.unexpected_long += 1,
        }
    }

    fn eligible(&self, m: &Arrival, exact: bool) -> bool {
        let Some(p) = self.peers.get(&m.peer) else {
            return true;
        };
        m.mseq < p.next
            || exact
                && p.stream_next
                    .get(&m.stream)
                    .is_some_and(|n| (m.sseq.wrapping_sub(*n) as i32) < 0)
    }

    fn first(&self, m: &Arrival, but_last: bool) -> Option<usize> {
        let n = self.posted.len() - but_last as usize;
        self.posted[..n]
            .iter()
            .position(|p| p.0.pattern().accepts(m.peer, m.class, m.tag))
    }

    fn find(&self, p: &Pattern, but_last: bool) -> Option<usize> {
        let fits = |m: &Arrival| {
            p.accepts(m.peer, m.class, m.tag)
                && self.eligible(m, p.is_exact())
                && self.first(m, but_last).is_none()
        };
        let peer = self.waiting.iter().find(|m| fits(m))?.peer;
        (0..self.waiting.len())
            .filter(|i| self.waiting[*i].peer == peer && fits(&self.waiting[*i]))
            .min_by_key(|i| self.waiting[*i].mseq)
    }

    fn settle(&mut self, out: &mut Vec<Match>) {
        loop {
            let hit = (0..self.waiting.len())
                .filter_map(|i| {
                    let m = &self.waiting[i];
                    let r = self.first(m, false)?;
                    self.eligible(m, self.posted[r].0.pattern().is_exact())
                        .then_some((m.peer, m.mseq, i, r))
                })
                .min();
            let Some((_, _, i, r)) = hit else { return };
            let m = self.waiting.remove(i);
            self.take(r, m, true, out);
        }
    }

    fn take(&mut self, r: usize, m: Arrival, expected: bool, out: &mut Vec<Match>) -> bool {
        self.count(m.len, expected);
        let (p, used) = &mut self.posted[r];
        let mut hit = Match {
            op: p.op,
            msg: m.msg,
            multi_offset: None,
            multi_room: 0,
            multi_done: false,
        };
        let mut done = true;
        if let Some(multi) = p.multi {
            let room = multi.room - *used;
            hit.multi_offset = Some(*used);
            hit.multi_room = room;
            *used += m.len.min(room);
            done = multi.room - *used < multi.min_room.max(1);
            hit.multi_done = done;
        }
        out.push(hit);
        if done {
            self.posted.remove(r);
        }
        done
    }
}
