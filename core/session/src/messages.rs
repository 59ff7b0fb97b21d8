//! Messages of one session: numbering, credit, what is sent and acknowledged, what has arrived
//! (spec 1, 5).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::ranges::RangeSet;
use crate::{Credit, Message, Numbers};
use weir_wire::expand;

/// Largest envelope (spec 1).
pub(crate) const ENVELOPE_MAX: usize = 48;
/// Payload of a message up to here may be kept with it.
pub const KEPT_MAX: usize = 64;
/// Control messages a receiver remembers ahead of the lowest missing (spec 10).
const CONTROL_AHEAD_MAX: u64 = 4096;
/// Matched messages a peer may send ahead of the lowest incomplete one, at least (spec 5): each is
/// remembered here and in the matcher until the gap closes.
const MATCHED_AHEAD_MAX: u64 = 65_536;

/// A message being sent.
#[derive(Debug)]
pub struct OutMessage {
    /// The operation ([`Message::token`]).
    pub token: u64,
    /// Length, bytes.
    pub len: u32,
    /// Bytes handed to a carrier for the first time.
    pub(crate) sent: u32,
    acked: RangeSet,
    /// Number within its stream.
    pub sseq: u32,
    /// Its stream.
    pub stream: u16,
    env_len: u8,
    /// Some packet carried it.
    started: bool,
    done: bool,
    /// See [`Message::patient`].
    pub patient: bool,
    envelope: [u8; ENVELOPE_MAX],
    /// All of its payload, if that is kept here.
    is_kept: bool,
    kept: [u8; KEPT_MAX],
}

impl OutMessage {
    /// Its envelope.
    #[must_use]
    #[inline]
    pub fn envelope(&self) -> &[u8] {
        &self.envelope[..usize::from(self.env_len)]
    }

    /// Its payload, if that is kept here: else it is the operation's.
    #[must_use]
    #[inline]
    pub fn kept(&self) -> Option<&[u8]> {
        self.is_kept.then(|| &self.kept[..KEPT_MAX.min(self.len as usize)])
    }

    #[inline]
    fn new(m: &Message<'_>, sseq: u32) -> Self {
        let mut envelope = [0; ENVELOPE_MAX];
        envelope[..m.envelope.len()].copy_from_slice(m.envelope);
        OutMessage {
            token: m.token,
            len: m.len,
            sent: 0,
            acked: RangeSet::new(),
            sseq,
            stream: m.stream,
            env_len: m.envelope.len() as u8,
            started: false,
            done: false,
            patient: m.patient,
            envelope,
            is_kept: false,
            kept: [0; KEPT_MAX],
        }
    }

    /// One that has arrived.
    #[cold]
    fn over() -> Self {
        let nothing = Message { control: false, stream: 0, envelope: &[], len: 0, patient: true, token: 0 };
        OutMessage { started: true, done: true, ..OutMessage::new(&nothing, 0) }
    }

    /// Bytes of it, or if it has none it, wait to be handed to a carrier for the first time.
    pub(crate) fn has_more(&self) -> bool {
        self.sent < self.len || !self.started
    }

    /// All of it has arrived.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// First part of `[offset, offset+len)` not yet acknowledged; for an empty message the empty
    /// part.
    pub(crate) fn missing(&self, offset: u32, len: u32) -> Option<(u32, u32)> {
        if self.done {
            return None;
        }
        if self.len == 0 {
            return Some((0, 0));
        }
        self.acked.first_gap(u64::from(offset), u64::from(offset) + u64::from(len)).map(|(a, b)| (a as u32, b as u32))
    }
}

/// Messages of one kind on their way out, indexed by number.
#[derive(Debug, Default)]
pub(crate) struct OutRing {
    ring: VecDeque<OutMessage>,
    base: u64,
    /// Messages no packet carried yet.
    pub(crate) unsent: usize,
    /// Messages not completely acknowledged, and of these the ones whose payload is kept here.
    pub(crate) open: usize,
    pub(crate) kept: usize,
}

impl OutRing {
    pub(crate) fn next(&self) -> u64 {
        self.base + self.ring.len() as u64
    }

    pub(crate) fn span(&self) -> usize {
        self.ring.len()
    }

    fn push(&mut self, m: OutMessage) -> u64 {
        self.ring.push_back(m);
        self.unsent += 1;
        self.open += 1;
        self.base + self.ring.len() as u64 - 1
    }

    /// One that a packet has carried.
    #[inline]
    fn push_started(&mut self, m: OutMessage) -> u64 {
        self.kept += usize::from(m.is_kept);
        self.ring.push_back(m);
        self.open += 1;
        self.next() - 1
    }

    /// The number of a message that nobody will ask for. Behind messages whose fate is open it
    /// takes a place, for places go by numbers.
    #[inline]
    fn skip(&mut self) -> u64 {
        if self.ring.is_empty() {
            self.base += 1;
        } else {
            self.ring.push_back(OutMessage::over());
        }
        self.next() - 1
    }

    pub(crate) fn get(&self, mseq: u64) -> Option<&OutMessage> {
        self.ring.get(usize::try_from(mseq.checked_sub(self.base)?).ok()?)
    }

    /// Notes that `[sent, to)` was handed to a packet for the first time.
    pub(crate) fn advance(&mut self, mseq: u64, to: u32) {
        if let Some(i) = mseq.checked_sub(self.base)
            && let Some(m) = self.ring.get_mut(i as usize)
        {
            m.sent = to;
            if !m.started {
                m.started = true;
                self.unsent -= 1;
            }
        }
    }

    /// Bytes were acknowledged; returns the token once all are, unless the payload is kept here:
    /// then nobody waits for it.
    pub(crate) fn acked(&mut self, mseq: u64, offset: u32, len: u32) -> Option<u64> {
        let i = usize::try_from(mseq.checked_sub(self.base)?).ok()?;
        let m = self.ring.get_mut(i)?;
        if m.done {
            return None;
        }
        if !(offset == 0 && len == m.len) {
            let (lo, hi) = (u64::from(offset), u64::from(offset) + u64::from(len));
            if !m.acked.extend_prefix(lo, hi) {
                m.acked.insert(lo, hi, |_, _| {});
            }
            if m.acked.prefix() < u64::from(m.len) {
                return None;
            }
        }
        m.done = true;
        self.open -= 1;
        self.kept -= usize::from(m.is_kept);
        let token = (!m.is_kept).then_some(m.token);
        if i == 0 {
            while self.ring.front().is_some_and(|m| m.done) {
                self.ring.pop_front();
                self.base += 1;
            }
            if self.ring.is_empty() && self.ring.capacity() > 32 {
                self.ring.shrink_to(8);
            }
        }
        token
    }

    /// Takes every open token out.
    pub(crate) fn drain_tokens(&mut self, mut f: impl FnMut(u64)) {
        for m in self.ring.drain(..) {
            self.base += 1;
            if !m.done && !m.is_kept {
                f(m.token);
            }
        }
        self.ring = VecDeque::new();
        self.unsent = 0;
        self.open = 0;
        self.kept = 0;
    }
}

/// Outgoing side.
#[derive(Debug, Default)]
pub(crate) struct MessagesOut {
    pub(crate) matched: OutRing,
    pub(crate) control: OutRing,
    /// Control messages sent and not yet acknowledged, at most.
    control_window: u32,
    /// First control message not yet sent.
    pub(crate) control_next: u64,
    /// First matched message not yet admitted by credit.
    admitted: u64,
    bytes_admitted: u64,
    bytes_queued: u64,
    msgs_limit: u64,
    bytes_limit: u64,
    /// Next number of each stream; grows to the highest used.
    sseq: Vec<u32>,
    /// The front message waits for credit.
    pub(crate) stalled: bool,
}

impl MessagesOut {
    pub(crate) fn new(control_window: u32) -> Self {
        MessagesOut { control_window, ..MessagesOut::default() }
    }

    /// One past the last control message that may be sent now.
    pub(crate) fn control_end(&self) -> u64 {
        self.control.next().min(self.control.base + u64::from(self.control_window))
    }

    pub(crate) fn push(&mut self, m: &Message<'_>) -> u64 {
        if m.control {
            return self.control.push(OutMessage::new(m, 0));
        }
        let sseq = self.next_of_stream(m.stream);
        self.bytes_queued += u64::from(m.len);
        self.matched.push(OutMessage::new(m, sseq))
    }

    fn next_of_stream(&mut self, stream: u16) -> u32 {
        let s = usize::from(stream);
        if s >= self.sseq.len() {
            self.sseq.resize(s + 1, 0);
        }
        let sseq = self.sseq[s];
        self.sseq[s] = sseq.wrapping_add(1);
        sseq
    }

    /// Whether credit lets out one more message of `len` bytes, and none waits for it.
    #[inline]
    pub(crate) fn lets_out(&self, len: u32) -> bool {
        self.admitted == self.matched.next()
            && self.admitted < self.msgs_limit
            && self.bytes_admitted + u64::from(len) <= self.bytes_limit
    }

    /// A message is handed over of which nothing is kept.
    #[inline]
    pub(crate) fn go_straight(&mut self, stream: u16, len: u32) -> Numbers {
        let sseq = self.next_of_stream(stream);
        self.bytes_queued += u64::from(len);
        self.bytes_admitted += u64::from(len);
        self.admitted += 1;
        Numbers { mseq: self.matched.skip(), sseq }
    }

    /// A message is accepted and handed over, all of it, in one; its payload is kept.
    #[inline]
    pub(crate) fn go_alone(&mut self, m: &Message<'_>, payload: &[u8]) -> u64 {
        let sseq = self.next_of_stream(m.stream);
        self.bytes_queued += u64::from(m.len);
        self.bytes_admitted += u64::from(m.len);
        self.admitted += 1;
        let mut out = OutMessage::new(m, sseq);
        (out.sent, out.started, out.is_kept) = (m.len, true, true);
        out.kept[..payload.len()].copy_from_slice(payload);
        self.matched.push_started(out)
    }

    /// Limits as the peer states them; they never shrink.
    pub(crate) fn set_limits(&mut self, msgs: u64, bytes: u64) {
        self.msgs_limit = self.msgs_limit.max(msgs);
        self.bytes_limit = self.bytes_limit.max(bytes);
    }

    /// The limits' low half is known: expands `msgs`.
    pub(crate) fn raise_limits(&mut self, msgs_low: u32, bytes: u64) {
        let msgs = expand(msgs_low, self.msgs_limit);
        self.set_limits(msgs, bytes);
    }

    /// Next matched message that credit lets out, with its length.
    pub(crate) fn admit(&mut self) -> Option<(u64, u32)> {
        let m = self.matched.get(self.admitted)?;
        if self.admitted >= self.msgs_limit || self.bytes_admitted + u64::from(m.len) > self.bytes_limit {
            self.stalled = true;
            return None;
        }
        self.stalled = false;
        self.bytes_admitted += u64::from(m.len);
        self.admitted += 1;
        Some((self.admitted - 1, m.len))
    }

    pub(crate) fn credit(&self) -> Credit {
        Credit {
            msgs: u32::try_from(self.msgs_limit.saturating_sub(self.matched.next())).unwrap_or(u32::MAX),
            bytes: self.bytes_limit.saturating_sub(self.bytes_queued),
        }
    }

    /// Matched messages that wait for credit.
    pub(crate) fn waiting(&self) -> usize {
        (self.matched.next() - self.admitted) as usize
    }

    /// Length of the longest matched message not yet admitted.
    pub(crate) fn longest_waiting(&self) -> u32 {
        (self.admitted..self.matched.next()).filter_map(|i| self.matched.get(i)).map(|m| m.len).max().unwrap_or(0)
    }
}

/// A matched message that has partly arrived, or waits for an earlier one.
#[derive(Debug, Default)]
struct InMessage {
    total_len: u32,
    seen: bool,
    done: bool,
    got: RangeSet,
}

/// What a fragment brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// Nothing new.
    Duplicate,
    /// New bytes were reported to the closure.
    New,
    /// The peer broke a rule.
    Violation(&'static str),
}

/// Incoming side.
#[derive(Debug)]
pub(crate) struct MessagesIn {
    ring: VecDeque<InMessage>,
    /// Lowest matched message not complete.
    base: u64,
    /// One past the highest matched message seen.
    top: u64,
    bytes_seen: u64,
    /// Limits the peer has been told.
    msgs_limit: u64,
    bytes_limit: u64,
    initial_msgs: u32,
    initial_bytes: u64,
    consumed_msgs: u64,
    consumed_bytes: u64,
    /// Up to here bytes are expected: the peer was given credit for them ahead, and need not be
    /// given it again as they are consumed.
    expected_end: u64,
    /// Bytes let in beside the initial credit because the peer has a bulk connection, or had one.
    bulk_bytes: u64,
    /// Consumed messages were not made good because of a gap.
    held: bool,
    control: RangeSet,
}

impl MessagesIn {
    pub(crate) fn new(initial_msgs: u32, initial_bytes: u64) -> Self {
        MessagesIn {
            ring: VecDeque::new(),
            base: 0,
            top: 0,
            bytes_seen: 0,
            msgs_limit: u64::from(initial_msgs),
            bytes_limit: initial_bytes,
            initial_msgs,
            initial_bytes,
            consumed_msgs: 0,
            consumed_bytes: 0,
            expected_end: 0,
            bulk_bytes: 0,
            held: false,
            control: RangeSet::new(),
        }
    }

    /// A control message; true if it is new.
    pub(crate) fn on_control(&mut self, low: u32) -> Result<Option<u64>, &'static str> {
        let mseq = expand(low, self.control.end());
        if mseq >= self.control.prefix() + CONTROL_AHEAD_MAX {
            return Err("control message too far ahead");
        }
        Ok((self.control.insert(mseq, mseq + 1, |_, _| {}) > 0).then_some(mseq))
    }

    /// One past the highest matched message that was heard of.
    pub(crate) fn announced(&self) -> u64 {
        self.top
    }

    /// Number of a matched message from its low half.
    #[inline]
    pub(crate) fn number(&self, low: u32) -> u64 {
        expand(low, self.top)
    }

    /// The usual case, of a message of which all has come: it is the next one, nothing is missing
    /// before it, and credit lets it in.
    #[inline]
    pub(crate) fn is_next(&self, mseq: u64, len: u32) -> bool {
        mseq == self.base
            && mseq < self.msgs_limit
            && self.ring.is_empty()
            && self.bytes_seen + u64::from(len) <= self.bytes_limit
    }

    /// All of the next message is here.
    #[inline]
    pub(crate) fn take_next(&mut self, len: u32) {
        self.bytes_seen += u64::from(len);
        self.base += 1;
        self.top = self.top.max(self.base);
    }

    /// A fragment `[offset, offset+len)` of matched message `mseq`.
    /// `f(offset, len, first, complete)` for each new part.
    pub(crate) fn on_fragment(
        &mut self,
        mseq: u64,
        total_len: u32,
        offset: u32,
        len: u32,
        mut f: impl FnMut(u32, u32, bool, bool),
    ) -> Arrived {
        if mseq < self.base {
            return Arrived::Duplicate;
        }
        if mseq >= self.msgs_limit {
            return Arrived::Violation("message beyond the credit");
        }
        if offset == 0 && len == total_len && self.is_next(mseq, len) {
            self.take_next(len);
            f(0, len, true, true);
            return Arrived::New;
        }
        let i = (mseq - self.base) as usize;
        if self.follows_on(i, total_len, offset, len) {
            f(offset, len, false, false);
            return Arrived::New;
        }
        if i >= self.ring.len() {
            self.ring.resize_with(i + 1, InMessage::default);
        }
        if !self.ring[i].seen {
            if !self.note_bytes(total_len) {
                return Arrived::Violation("message bytes beyond the credit");
            }
            self.top = self.top.max(mseq + 1);
        }
        let m = &mut self.ring[i];
        if m.done {
            return Arrived::Duplicate;
        }
        let mut first = !m.seen;
        if first {
            m.seen = true;
            m.total_len = total_len;
        } else if m.total_len != total_len {
            return Arrived::Violation("message length changed");
        }
        if total_len == 0 {
            m.done = true;
            f(0, 0, first, true);
        } else {
            let mut parts: smallvec::SmallVec<[(u32, u32); 4]> = smallvec::SmallVec::new();
            m.got
                .insert(u64::from(offset), u64::from(offset) + u64::from(len), |a, b| parts.push((a as u32, b as u32)));
            if parts.is_empty() && !first {
                return Arrived::Duplicate;
            }
            m.done = m.got.prefix() == u64::from(total_len);
            if parts.is_empty() {
                parts.push((offset, offset));
            }
            let n = parts.len();
            for (k, (a, b)) in parts.into_iter().enumerate() {
                f(a, b - a, first, m.done && k + 1 == n);
                first = false;
            }
        }
        if i == 0 {
            self.drop_done();
        }
        Arrived::New
    }

    /// A part of matched message `mseq` is about to come, elsewhere than in packets.
    /// `Ok(Some(first))`: it is wanted, and is the first that is heard of the message.
    pub(crate) fn announce(&mut self, mseq: u64, total_len: u32) -> Result<Option<bool>, &'static str> {
        let Some(i) = mseq.checked_sub(self.base) else { return Ok(None) };
        if mseq >= self.msgs_limit {
            return Err("message beyond the credit");
        }
        let i = i as usize;
        if i >= self.ring.len() {
            self.ring.resize_with(i + 1, InMessage::default);
        }
        if !self.ring[i].seen {
            if !self.note_bytes(total_len) {
                return Err("message bytes beyond the credit");
            }
            self.top = self.top.max(mseq + 1);
            let m = &mut self.ring[i];
            (m.seen, m.total_len) = (true, total_len);
            return Ok(Some(true));
        }
        let m = &self.ring[i];
        if m.total_len != total_len {
            return Err("message length changed");
        }
        Ok((!m.done).then_some(false))
    }

    /// The usual case for a message of many packets: the next one, and not the last. It is taken
    /// down if that is so.
    #[inline]
    fn follows_on(&mut self, i: usize, total_len: u32, offset: u32, len: u32) -> bool {
        let (from, to) = (u64::from(offset), u64::from(offset) + u64::from(len));
        self.ring.get_mut(i).is_some_and(|m| {
            m.seen && !m.done && m.total_len == total_len && to < u64::from(total_len) && m.got.extend_prefix(from, to)
        })
    }

    /// Moves on behind what is complete.
    fn drop_done(&mut self) {
        while self.ring.front().is_some_and(|m| m.done) {
            self.ring.pop_front();
            self.base += 1;
        }
        if self.ring.is_empty() && self.ring.capacity() > 32 {
            self.ring.shrink_to(8);
        }
    }

    /// What of `[lo, hi)` of message `mseq` has not arrived; `None` if nothing is known of the
    /// message.
    pub(crate) fn holes(&self, mseq: u64, lo: u64, hi: u64, f: impl FnMut(u64, u64) -> bool) -> Option<u32> {
        let m = self.ring.get(usize::try_from(mseq.checked_sub(self.base)?).ok()?)?;
        if !m.seen || m.done {
            return None;
        }
        m.got.gaps(lo, hi.min(u64::from(m.total_len)), f);
        Some(m.total_len)
    }

    fn note_bytes(&mut self, len: u32) -> bool {
        if self.bytes_seen + u64::from(len) > self.bytes_limit {
            return false;
        }
        self.bytes_seen += u64::from(len);
        true
    }

    /// So many bytes more are expected than were consumed, and are to be let in beside the initial
    /// credit. True when the peer should be told. What was given ahead before and did not come
    /// counts.
    pub(crate) fn expect(&mut self, bytes: u64) -> bool {
        self.expected_end = self.expected_end.max(self.consumed_bytes.min(self.bytes_seen).saturating_add(bytes));
        self.wanted().1 > self.bytes_limit
    }

    /// So many bytes are let in beside the initial credit from now on.
    pub(crate) fn let_in(&mut self, bytes: u64) {
        self.bulk_bytes = bytes;
    }

    /// What is let in beside the initial credit because of a bulk connection.
    pub(crate) fn bulk_bytes(&self) -> u64 {
        self.bulk_bytes
    }

    /// Bytes that may be here and not consumed, beside what is expected.
    #[inline]
    fn bytes_let_in(&self) -> u64 {
        self.initial_bytes + self.bulk_bytes
    }

    /// Bytes the peer may send ahead of what was consumed, beside the initial credit.
    pub(crate) fn expected(&self) -> u64 {
        self.expected_end.saturating_sub(self.consumed_bytes.min(self.bytes_seen))
    }

    /// The peer has half of what is let in left, messages and bytes.
    pub(crate) fn has_half(&self) -> bool {
        let msgs = self.msgs_limit.saturating_sub(self.top);
        let bytes = self.bytes_limit.saturating_sub(self.bytes_seen);
        msgs >= u64::from(self.initial_msgs.div_ceil(2)) && bytes >= self.bytes_let_in() / 2
    }

    /// The upper layer freed messages. True when the peer should be told.
    #[inline]
    pub(crate) fn consume(&mut self, msgs: u32, bytes: u64) -> bool {
        self.consumed_msgs += u64::from(msgs);
        self.consumed_bytes += bytes;
        // No limit is above these; as long as they are no news, neither is what a gap holds back of
        // them.
        let (msgs_max, bytes_max) =
            (self.consumed_msgs + u64::from(self.initial_msgs), self.consumed_bytes + self.bytes_let_in());
        if msgs_max < self.msgs_limit + self.news_msgs() && bytes_max < self.bytes_limit + self.news_bytes() {
            return false;
        }
        self.is_news()
    }

    /// So much more credit is worth telling.
    #[inline]
    fn news_msgs(&self) -> u64 {
        u64::from(self.initial_msgs / 4).max(1)
    }

    /// The same of bytes.
    #[inline]
    fn news_bytes(&self) -> u64 {
        (self.bytes_let_in() / 4).max(1)
    }

    fn is_news(&mut self) -> bool {
        let (m, b) = self.wanted();
        self.held = self.consumed_msgs.min(self.top) + u64::from(self.initial_msgs) > m;
        m - self.msgs_limit >= self.news_msgs() || b - self.bytes_limit >= self.news_bytes()
    }

    /// A message arrived: true when a gap that held credit back has closed and the peer should be
    /// told.
    pub(crate) fn gap_closed(&mut self) -> bool {
        self.held && self.consume(0, 0)
    }

    /// Limits by what was consumed. Never above what was received or is expected plus the initial
    /// credit, whatever the caller says, nor far above a gap: what was sent before it needs no
    /// credit to be sent again.
    fn wanted(&self) -> (u64, u64) {
        let initial = u64::from(self.initial_msgs);
        let ahead = self.base + MATCHED_AHEAD_MAX.max(initial);
        (
            (self.consumed_msgs.min(self.top) + initial).min(ahead).max(self.msgs_limit),
            (self.consumed_bytes.min(self.bytes_seen).max(self.expected_end) + self.bytes_let_in())
                .max(self.bytes_limit),
        )
    }

    /// The newest limits, now told to the peer.
    pub(crate) fn advertise(&mut self) -> (u64, u64) {
        (self.msgs_limit, self.bytes_limit) = self.wanted();
        (self.msgs_limit, self.bytes_limit)
    }

    /// Heap bytes held.
    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        self.ring.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: P-5.2, P-5.6, P-5.24
    #[test]
    fn fragments_are_reported_once_and_credit_binds() {
        let mut m = MessagesIn::new(4, 1000);
        let mut got = Vec::new();
        assert_eq!(m.on_fragment(1, 100, 50, 50, |a, n, f, c| got.push((a, n, f, c))), Arrived::New);
        assert_eq!(m.on_fragment(1, 100, 50, 50, |_, _, _, _| panic!("twice")), Arrived::Duplicate);
        assert_eq!(m.on_fragment(1, 100, 0, 100, |a, n, f, c| got.push((a, n, f, c))), Arrived::New);
        assert_eq!(got, [(50, 50, true, false), (0, 50, false, true)]);
        assert_eq!(m.on_fragment(0, 0, 0, 0, |a, n, f, c| got.push((a, n, f, c))), Arrived::New);
        assert_eq!(m.pending(), 0);
        assert!(matches!(m.on_fragment(4, 1, 0, 1, |_, _, _, _| ()), Arrived::Violation(_)));
        assert!(matches!(m.on_fragment(2, 901, 0, 901, |_, _, _, _| ()), Arrived::Violation(_)));
        assert!(m.consume(1, 100));
        assert_eq!(m.advertise(), (5, 1100));
    }

    // spec: P-5.5
    #[test]
    fn what_is_expected_is_let_in_ahead_and_once() {
        let mut m = MessagesIn::new(100, 1000);
        assert!(m.expect(5000));
        assert_eq!((m.advertise(), m.expected()), ((100, 6000), 5000));
        assert!(!m.expect(4000), "that is within what was given");
        // It comes, and is consumed: no more credit for it.
        assert_eq!(m.on_fragment(0, 5000, 0, 5000, |_, _, _, _| ()), Arrived::New);
        assert!(!m.consume(1, 5000));
        assert_eq!((m.advertise(), m.expected()), ((101, 6000), 0));
        // From then on as ever.
        assert_eq!(m.on_fragment(1, 1000, 0, 1000, |_, _, _, _| ()), Arrived::New);
        assert!(m.consume(1, 1000));
        assert_eq!(m.advertise().1, 7000);
        assert!(matches!(m.on_fragment(2, 1001, 0, 1001, |_, _, _, _| ()), Arrived::Violation(_)));
    }

    #[test]
    fn a_peer_that_leaves_a_gap_for_ever_gets_no_more_credit() {
        let mut m = MessagesIn::new(1000, 1 << 20);
        let mut sent = 1;
        // It lies: number 0 never comes. Everything else is taken by the upper layer at once.
        loop {
            let got = m.on_fragment(sent, 8, 0, 8, |_, _, _, _| ());
            assert!(!m.gap_closed() || got == Arrived::New);
            if got != Arrived::New {
                assert!(matches!(got, Arrived::Violation(_)));
                break;
            }
            sent += 1;
            if m.consume(1, 8) {
                m.advertise();
            }
            assert!(sent <= MATCHED_AHEAD_MAX, "unbounded");
        }
        assert!(m.pending() as u64 <= MATCHED_AHEAD_MAX);
        // An honest peer's gap closes in the end, and it is told.
        assert_eq!(m.on_fragment(0, 8, 0, 8, |_, _, _, _| ()), Arrived::New);
        assert!(m.gap_closed());
        assert_eq!(m.advertise().0, sent - 1 + 1000);
        assert!(!m.gap_closed() && m.pending() == 0);
    }
}
