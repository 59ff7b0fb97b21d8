//! The matcher: carries the rule of the crate's documentation out on the indexes of `store`.
//!
//! Between calls the state is *settled*: no waiting message is eligible for the first receive that
//! matches it. It follows that a message without a gap below it is matched by no posted receive,
//! and that few things can unsettle the state while messages wait behind a gap: a gap that closes;
//! the removal of a tagged receive that is not on one stream (they may be eligible for one posted
//! later that is); and, where a receive on one stream must not skip a message held for another one,
//! whatever makes either go away. [`Matcher::settle`] looks at just the messages concerned.

use crate::slab::{NIL, Node};
use crate::store::{BY_ARRIVAL, BY_PEER, BY_TAG, BY_TAG_ANY, Buffer, Message, Store};
use crate::types::{
    Arrival, Class, Match, MsgToken, OpToken, Pattern, Posted, QueueStatistics, Source, Stats, StreamBits,
};
use alloc::{collections::BTreeSet, vec::Vec};

/// Matches messages to receives; see the crate's documentation for the rule.
///
/// Cost: posting and arriving take constant time, and allocate nothing once as many receives and
/// messages have been kept before, when messages come in order and receives are on one stream, of
/// one source or any. Each further ignore mask in use costs an arriving message one look-up more. A
/// receive on one stream walks over the waiting messages that agree with it in the stream bits
/// until one matches, any other over all it could have from its source; an untagged one takes the
/// first. Cancelling walks over the receives.
#[derive(Debug)]
pub struct Matcher {
    store: Store,
    queue_statistics: QueueStatistics,
    peak: usize,
    /// Set when a receive on one stream has to leave a message that is eligible for it, because an
    /// earlier one that it matches too is held for another receive. That takes a receive before it
    /// that is not on one stream and yet looks at bits which this one ignores: no face is known to
    /// post such receives. While this is set, more is offered anew than needs to be.
    must_not_skip: bool,
    /// The only tagged receive that is posted, where it is an ordinary one and was posted while no
    /// message waited: in no index, for there is nothing to tell it from. Whatever needs the
    /// indexes puts it there first ([`Matcher::file`]); until then no message waits.
    lone: Option<Lone>,
    /// Kept between calls for its memory.
    released: Vec<u32>,
}

/// A receive that is in no index.
#[derive(Copy, Clone, Debug)]
struct Lone {
    op: OpToken,
    source: Source,
    tag: u64,
    ignore: u64,
}

impl Lone {
    #[inline]
    fn accepts(&self, peer: u32, tag: u64) -> bool {
        let is_source = match self.source {
            Source::Any => true,
            Source::Peer(p) => p == peer,
        };
        is_source && (self.tag ^ tag) & !self.ignore == 0
    }
}

/// Longer messages count as long in the queue statistics.
pub const QUEUE_STATISTICS_LONG_BYTES: u64 = 64 << 10;

/// Messages to be offered again, by (peer, position); the node last.
type Offers = BTreeSet<(u32, u64, u32)>;

impl Default for Matcher {
    fn default() -> Self {
        Self::new(StreamBits::default())
    }
}

impl Matcher {
    /// An empty matcher for messages whose stream depends on these bits of their tag.
    pub fn new(bits: StreamBits) -> Self {
        Matcher {
            store: Store::new(bits),
            queue_statistics: QueueStatistics::default(),
            peak: 0,
            must_not_skip: false,
            lone: None,
            released: Vec::new(),
        }
    }

    /// Posts a receive. It may take a waiting message at once, several if it is a multi-receive
    /// buffer.
    #[inline]
    pub fn post(&mut self, p: Posted, out: &mut Vec<Match>) {
        let is_alone = self.lone.is_none() && self.store.messages.len() == 0 && self.store.tagged_receives == 0;
        if is_alone && p.class == Class::Tagged && p.multi.is_none() {
            self.lone = Some(Lone { op: p.op, source: p.source, tag: p.tag, ignore: p.ignore });
            return;
        }
        self.post_filed(p, out);
    }

    /// Puts the lone receive into the indexes.
    #[inline]
    fn file(&mut self) {
        if self.lone.is_some() {
            self.file_lone();
        }
    }

    #[cold]
    fn file_lone(&mut self) {
        if let Some(Lone { op, source, tag, ignore }) = self.lone.take() {
            self.store.add_receive(&Posted { class: Class::Tagged, source, tag, ignore, op, multi: None }, None);
        }
    }

    fn post_filed(&mut self, p: Posted, out: &mut Vec<Match>) {
        self.file();
        let mut multi = p.multi.map(|m| Buffer { used: 0, room: m.room, min_room: m.min_room });
        if self.store.messages.len() != 0 {
            while let Some(ix) = self.find(&p.pattern()) {
                let m = *self.store.messages.get(ix);
                self.store.remove_message(ix);
                self.count(m.len, false);
                let (hit, done) = bind(p.op, &mut multi, m.msg, m.len);
                out.push(hit);
                if done {
                    return;
                }
            }
        }
        self.store.add_receive(&p, multi);
    }

    /// Whether a receive is posted for a message with a tag: somebody waits, or will.
    pub fn awaits_tagged(&self) -> bool {
        self.lone.is_some() || self.store.tagged_receives > 0
    }

    /// Tells of an arrived message. It may be matched at once, or release others that were held for
    /// it.
    #[inline]
    pub fn arrive(&mut self, a: Arrival, out: &mut Vec<Match>) {
        self.file();
        let peer = self.store.peer_mut(a.peer);
        let position = peer.position(a.mseq);
        if !peer.note_next(position, a.stream, a.sseq) {
            return self.arrive_out_of_order(&a, position, out);
        }
        // Nothing is behind a gap of this peer, so nobody else is concerned, unless the receive was
        // open to other peers too.
        let receive = self.store.first_receive(a.peer, a.class, a.tag);
        if receive == NIL {
            return self.keep(&a, position);
        }
        let mut offers = Offers::new();
        self.take(receive, a.msg, a.len, &mut offers, out);
        if !offers.is_empty() {
            self.settle(offers, out);
        }
    }

    /// The receive that a message takes at once, where that is an ordinary one and nobody else is
    /// concerned. Otherwise changes nothing: it is to [`Matcher::arrive`].
    #[inline]
    pub fn take_at_once(&mut self, a: &Arrival) -> Option<OpToken> {
        if a.class == Class::Untagged || self.store.tagged_receives > 0 {
            return self.take_filed_at_once(a);
        }
        let op = self.lone.filter(|lone| lone.accepts(a.peer, a.tag))?.op;
        let peer = self.store.peer_mut(a.peer);
        let position = peer.position(a.mseq);
        if !peer.note_next(position, a.stream, a.sseq) {
            return None;
        }
        self.count(a.len, true);
        self.lone = None;
        Some(op)
    }

    /// Notes a tagged message that somebody takes without a receive, if it is the next one of its
    /// peer, no receive that is posted would take it, and none of its peer with the same tag waits.
    /// Otherwise false, and nothing is changed: it is to [`Matcher::arrive`].
    #[inline]
    pub fn pass(&mut self, a: &Arrival) -> bool {
        let is_received = if self.store.tagged_receives > 0 {
            self.store.first_receive(a.peer, Class::Tagged, a.tag) != NIL
        } else {
            self.lone.is_some_and(|lone| lone.accepts(a.peer, a.tag))
        };
        let like = Pattern { class: Class::Tagged, source: Source::Peer(a.peer), tag: a.tag, ignore: 0 };
        let waits = || self.store.messages.len() != 0 && self.earliest_on_stream(a.peer, &like).is_some();
        if is_received || waits() {
            return false;
        }
        let peer = self.store.peer_mut(a.peer);
        let position = peer.position(a.mseq);
        let is_next = peer.note_next(position, a.stream, a.sseq);
        if is_next {
            self.count(a.len, false);
        }
        is_next
    }

    fn take_filed_at_once(&mut self, a: &Arrival) -> Option<OpToken> {
        if !self.store.gappy.is_empty() {
            return None;
        }
        let receive = self.store.first_receive(a.peer, a.class, a.tag);
        if receive == NIL || self.store.receives.get(receive).multi.is_some() {
            return None;
        }
        let peer = self.store.peer_mut(a.peer);
        let position = peer.position(a.mseq);
        if !peer.note_next(position, a.stream, a.sseq) {
            return None;
        }
        self.count(a.len, true);
        let op = self.store.receives.get(receive).op;
        self.store.remove_receive(receive);
        Some(op)
    }

    #[inline]
    fn keep(&mut self, a: &Arrival, position: u64) {
        let ix = self.store.make_message(a, position);
        self.store.link_message(ix);
        self.peak = self.peak.max(self.store.messages.len());
    }

    #[cold]
    fn arrive_out_of_order(&mut self, a: &Arrival, position: u64, out: &mut Vec<Match>) {
        let ix = self.store.make_message(a, position);
        self.note(a.peer, position, a.stream, a.sseq, Some(ix), out);
        self.peak = self.peak.max(self.store.messages.len());
    }

    /// A number that is not to be matched (for example an RMA request) fills its place in the
    /// order.
    pub fn note_other(&mut self, peer: u32, mseq: u64, stream: u16, sseq: u32, out: &mut Vec<Match>) {
        let p = self.store.peer_mut(peer);
        let position = p.position(mseq);
        if !p.note_next(position, stream, sseq) {
            self.file();
            self.note(peer, position, stream, sseq, None, out);
        }
    }

    /// Notes a number, puts its message into the indexes and offers what has become eligible.
    fn note(&mut self, peer: u32, position: u64, stream: u16, sseq: u32, new: Option<u32>, out: &mut Vec<Match>) {
        let mut released = core::mem::take(&mut self.released);
        self.store.peer_mut(peer).note(position, stream, sseq, new.unwrap_or(NIL), &mut released);
        if let Some(ix) = new {
            self.store.link_message(ix);
            released.push(ix);
        }
        self.store.pass_closed_gaps(peer, &mut released);
        let mut offers = Offers::new();
        for ix in released.drain(..) {
            // A message may be gone: forgotten, or of a peer whose stream numbers contradict its
            // message numbers.
            if let Some(m) = self.store.messages.live(ix) {
                offers.insert((m.peer, m.position, ix));
            }
        }
        self.released = released;
        self.settle(offers, out);
    }

    /// The message that a receive posted now would take.
    pub fn peek(&mut self, class: Class, source: Source, tag: u64, ignore: u64) -> Option<MsgToken> {
        self.find(&Pattern { class, source, tag, ignore }).map(|ix| self.store.messages.get(ix).msg)
    }

    /// Takes that message out: no receive can match it any more.
    pub fn claim(&mut self, class: Class, source: Source, tag: u64, ignore: u64) -> Option<MsgToken> {
        let ix = self.find(&Pattern { class, source, tag, ignore })?;
        let m = *self.store.messages.get(ix);
        self.store.remove_message(ix);
        self.count(m.len, false);
        Some(m.msg)
    }

    /// Drops a waiting message whose sender has withdrawn it; false when it is not waiting. Its
    /// number stays noted. A receive that had to wait for it may now take a later one, hence `out`.
    /// Takes time in proportion to the messages waiting.
    pub fn forget(&mut self, msg: MsgToken, out: &mut Vec<Match>) -> bool {
        let found = self.store.messages.iter().find(|(_, m)| m.msg == msg);
        let Some((ix, _)) = found else {
            return false;
        };
        let mut offers = Offers::new();
        self.offer_later(ix, &mut offers);
        self.store.remove_message(ix);
        self.settle(offers, out);
        true
    }

    /// Takes a receive back; false when it is not posted. Messages that were held for it may now
    /// match others, hence `out`. Takes time in proportion to the receives posted.
    pub fn cancel(&mut self, op: OpToken, out: &mut Vec<Match>) -> bool {
        self.file();
        let Some(ix) = self.store.receives.iter().find(|(_, r)| r.op == op).map(|(ix, _)| ix) else {
            return false;
        };
        let mut offers = Offers::new();
        self.remove_receive(ix, &mut offers);
        self.settle(offers, out);
        true
    }

    /// Forgets a peer that will send no more. `ops` gets the receives directed at it, in posting
    /// order; `msgs` its messages with a gap below them, in their order: they are dropped. Its
    /// other waiting messages stay and can still be received. A later arrival from the same index
    /// starts a new numbering from 0.
    pub fn remove_peer(&mut self, peer: u32, ops: &mut Vec<OpToken>, msgs: &mut Vec<MsgToken>) {
        self.file();
        let mut lost: Vec<(u64, u32)> = Vec::new();
        for class in [Class::Tagged, Class::Untagged] {
            let mut at = self.store.first_behind_gap(peer, class);
            while at != NIL {
                let m = self.store.messages.get(at);
                lost.push((m.position, at));
                at = m.links(BY_PEER).next;
            }
        }
        lost.sort_unstable();
        for (_, ix) in lost {
            msgs.push(self.store.messages.get(ix).msg);
            self.store.remove_message(ix);
        }
        if let Some(p) = self.store.peers.get_mut(peer as usize) {
            p.restart();
        }
        let all = self.store.receives.iter();
        let mut directed: Vec<(u64, u32)> = all
            .filter(|(ix, _)| self.store.pattern_of(*ix).source == Source::Peer(peer))
            .map(|(ix, r)| (r.seq, ix))
            .collect();
        directed.sort_unstable();
        // None of them holds a message: those of this peer that could be held have just been
        // dropped.
        for (_, ix) in directed {
            ops.push(self.store.receives.get(ix).op);
            self.store.remove_receive(ix);
        }
    }

    /// Messages that wait, for a receive or for a gap to close.
    pub fn unexpected_count(&self) -> usize {
        self.store.messages.len()
    }

    /// Numbers of this peer that are remembered because of gaps below them. The protocol's credit
    /// bounds them.
    #[cfg(test)]
    pub(crate) fn ahead_count(&self, peer: u32) -> usize {
        self.store.peers.get(peer as usize).map_or(0, |p| p.ahead())
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        Stats {
            queue_statistics: self.queue_statistics,
            posted: self.store.receives.len() + usize::from(self.lone.is_some()),
            unexpected: self.store.messages.len(),
            behind_gap: self.store.behind_gap,
            unexpected_peak: self.peak,
        }
    }

    /// Nothing is posted or waiting, and no index has kept anything.
    #[cfg(test)]
    pub(crate) fn assert_empty(&self) {
        assert!(self.lone.is_none());
        let s = &self.store;
        assert_eq!(s.tagged_receives, 0);
        assert_eq!((s.receives.len(), s.messages.len(), s.bins.len(), s.behind_gap), (0, 0, 0, 0));
        assert!(s.gappy.is_empty() && s.arrived.iter().all(|l| l.is_empty()));
        assert!(s.peers.iter().all(|p| p.waiting.iter().all(|l| l.is_empty()) && p.behind_gap == [NIL; 2]));
    }

    #[inline]
    fn count(&mut self, len: u64, expected: bool) {
        let c = &mut self.queue_statistics;
        *match (expected, len > QUEUE_STATISTICS_LONG_BYTES) {
            (true, false) => &mut c.expected_short,
            (true, true) => &mut c.expected_long,
            (false, false) => &mut c.unexpected_short,
            (false, true) => &mut c.unexpected_long,
        } += 1;
    }

    /// The waiting message that a receive of this pattern, posted now, takes.
    #[inline]
    fn find(&mut self, p: &Pattern) -> Option<u32> {
        if p.is_on_one_stream(self.store.stream_bits) {
            return match p.source {
                Source::Peer(peer) => self.find_on_stream(peer, p),
                Source::Any => self.find_on_stream_of_any(p),
            };
        }
        let s = &self.store;
        match p.source {
            Source::Peer(peer) => self.find_masked(peer, p),
            Source::Any => {
                let first = self.walk(s.arrived(p.class), BY_ARRIVAL, |m| {
                    p.accepts(m.peer, m.class, m.tag) && s.is_eligible(m, false)
                })?;
                self.find_masked(s.messages.get(first).peer, p)
            }
        }
    }

    /// The earliest message of the peer that this pattern, which is on one stream, accepts, if it
    /// is free.
    #[inline]
    fn find_on_stream(&mut self, peer: u32, p: &Pattern) -> Option<u32> {
        let at = self.earliest_on_stream(peer, p)?;
        let m = self.store.messages.get(at);
        if self.is_free(m) {
            return Some(at);
        }
        self.must_not_skip |= self.store.is_eligible(m, true);
        None
    }

    /// The same for any peer: of those whose earliest is free the one with the free message that
    /// arrived first.
    fn find_on_stream_of_any(&mut self, p: &Pattern) -> Option<u32> {
        self.store.need_any_index();
        let mut at = self.store.first_on_stream(Source::Any, p.tag);
        while at != NIL {
            let m = self.store.messages.get(at);
            let (peer, next) = (m.peer, m.links(BY_TAG_ANY).next);
            if p.accepts(peer, m.class, m.tag) && self.is_free(m) {
                // Should they have come out of order, an earlier one of that peer.
                if let Some(found) = self.find_on_stream(peer, p) {
                    return Some(found);
                }
            }
            at = next;
        }
        None
    }

    /// The earliest message of the peer that this pattern, which is on one stream, accepts, whether
    /// it may be taken or not.
    #[inline]
    fn earliest_on_stream(&self, peer: u32, p: &Pattern) -> Option<u32> {
        let first = self.store.first_on_stream(Source::Peer(peer), p.tag);
        self.walk(first, BY_TAG, |m| p.accepts(peer, m.class, m.tag))
    }

    /// The earliest message of the peer that this pattern accepts, if it lies before all gaps.
    fn find_masked(&self, peer: u32, p: &Pattern) -> Option<u32> {
        let s = &self.store;
        let at = self.walk(s.waiting(peer, p.class), BY_PEER, |m| {
            p.accepts(m.peer, m.class, m.tag) || !s.is_eligible(m, false)
        })?;
        s.is_eligible(s.messages.get(at), false).then_some(at)
    }

    /// The first node of a list for which `wanted` holds.
    #[inline]
    fn walk(&self, mut at: u32, which: usize, wanted: impl Fn(&Message) -> bool) -> Option<u32> {
        while at != NIL {
            let m = self.store.messages.get(at);
            if wanted(m) {
                return Some(at);
            }
            at = m.links(which).next;
        }
        None
    }

    /// Whether a receive on one stream may take this message: in order within its stream, and not
    /// held for a posted receive.
    #[inline]
    fn is_free(&self, m: &Message) -> bool {
        let s = &self.store;
        s.is_eligible(m, false) || s.is_eligible(m, true) && s.first_receive(m.peer, m.class, m.tag) == NIL
    }

    /// Offers messages to the receives until no more match.
    fn settle(&mut self, mut offers: Offers, out: &mut Vec<Match>) {
        while let Some((_, _, ix)) = offers.pop_first() {
            let m = *self.store.messages.get(ix);
            let receive = self.store.first_receive(m.peer, m.class, m.tag);
            if receive == NIL || !self.may_take(receive, ix) {
                continue;
            }
            self.offer_later(ix, &mut offers);
            self.store.remove_message(ix);
            self.take(receive, m.msg, m.len, &mut offers, out);
        }
        self.must_not_skip &= !self.store.gappy.is_empty();
    }

    /// Whether order allows the first receive that matches a message to take it. Messages before it
    /// have been offered.
    fn may_take(&mut self, receive: u32, ix: u32) -> bool {
        let m = self.store.messages.get(ix);
        if self.store.is_eligible(m, false) {
            return true;
        }
        let p = self.store.pattern_of(receive);
        if !p.is_on_one_stream(self.store.stream_bits) || !self.store.is_eligible(m, true) {
            return false;
        }
        let is_earliest = self.earliest_on_stream(m.peer, &p) == Some(ix);
        self.must_not_skip |= !is_earliest;
        is_earliest
    }

    /// Where a receive had to wait because of a message that is about to go, appends those it may
    /// take next to `offers`.
    #[inline]
    fn offer_later(&self, ix: u32, offers: &mut Offers) {
        if self.must_not_skip {
            let m = self.store.messages.get(ix);
            self.offer_stream(m.peer, m.links(BY_TAG).next, |_| true, offers);
        }
    }

    /// Appends to `offers`, of the messages that agree in the stream bits, those wanted from this
    /// one on.
    fn offer_stream(&self, peer: u32, mut at: u32, wanted: impl Fn(&Message) -> bool, offers: &mut Offers) {
        while at != NIL {
            let m = self.store.messages.get(at);
            if !self.store.is_eligible(m, true) {
                // They are of one stream, so those behind it are not eligible either.
                return;
            }
            if wanted(m) {
                offers.insert((peer, m.position, at));
            }
            at = m.links(BY_TAG).next;
        }
    }

    /// Gives a message to a receive. Appends messages that were held for the receive to `offers` if
    /// it is used up.
    #[inline]
    fn take(&mut self, receive: u32, msg: MsgToken, len: u64, offers: &mut Offers, out: &mut Vec<Match>) {
        self.count(len, true);
        let r = self.store.receives.get_mut(receive);
        let (hit, done) = bind(r.op, &mut r.multi, msg, len);
        out.push(hit);
        if done {
            self.remove_receive(receive, offers);
        }
    }

    /// Removes a receive and appends the messages that were held for it, and that another may take,
    /// to `offers`.
    #[inline]
    fn remove_receive(&mut self, receive: u32, offers: &mut Offers) {
        if !self.store.gappy.is_empty() {
            self.offer_held(receive, offers);
        }
        self.store.remove_receive(receive);
    }

    #[cold]
    fn offer_held(&self, receive: u32, offers: &mut Offers) {
        let p = self.store.pattern_of(receive);
        if p.class == Class::Untagged || p.is_on_one_stream(self.store.stream_bits) && !self.must_not_skip {
            // What is not eligible for these is not eligible for any other receive that matches it.
            return;
        }
        let accepted = |m: &Message| p.accepts(m.peer, m.class, m.tag);
        let mut offer_of = |peer: u32| {
            if p.is_on_one_stream(self.store.stream_bits) {
                let first = self.store.first_on_stream(Source::Peer(peer), p.tag);
                return self.offer_stream(peer, first, accepted, offers);
            }
            let mut at = self.store.first_behind_gap(peer, Class::Tagged);
            while at != NIL {
                let m = self.store.messages.get(at);
                if accepted(m) && self.store.is_eligible(m, true) {
                    offers.insert((m.peer, m.position, at));
                }
                at = m.links(BY_PEER).next;
            }
        };
        match p.source {
            Source::Peer(peer) => offer_of(peer),
            Source::Any => self.store.gappy.iter().for_each(|peer| offer_of(*peer)),
        }
    }
}

/// Puts a message of `len` bytes into a receive; says whether the receive is used up.
#[inline]
fn bind(op: OpToken, multi: &mut Option<Buffer>, msg: MsgToken, len: u64) -> (Match, bool) {
    let Some(buffer) = multi else {
        return (Match { op, msg, multi_offset: None, multi_room: 0, multi_done: false }, true);
    };
    let (offset, room) = (buffer.used, buffer.room - buffer.used);
    buffer.used += len.min(room);
    let left = buffer.room - buffer.used;
    let done = left == 0 || left < buffer.min_room;
    (Match { op, msg, multi_offset: Some(offset), multi_room: room, multi_done: done }, done)
}
