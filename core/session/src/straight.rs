//! Messages that go straight: into a carrier that loses nothing and has room now. Nothing of them
//! need be remembered, for nothing can be asked of it again. And those that come straight: all of
//! the next one at once.

use crate::messages::{ENVELOPE_MAX, KEPT_MAX};
use crate::sessions::Common;
use crate::{Carrier, FragmentIn, Message, STREAMS_MAX, Session};

/// The numbers of a message that goes straight.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// Among the matched messages.
    pub mseq: u64,
    /// Within its stream.
    pub sseq: u32,
}

impl Session {
    /// Whether a matched message of `len` bytes behind an envelope of `envelope_len` may go
    /// straight: credit lets it out, and nothing waits that would have to go before it, or as soon.
    #[must_use]
    #[inline]
    pub fn goes_straight(&self, len: usize, envelope_len: usize) -> bool {
        self.carrier() == Carrier::Shm && self.is_next_out(len, envelope_len)
    }

    /// Whether a short one may go at once in a packet of its own, by the same rules.
    #[must_use]
    #[inline]
    pub fn goes_alone(&self, common: &Common, m: &Message<'_>) -> bool {
        self.carrier() == Carrier::Link
            && m.len as usize <= KEPT_MAX
            && m.envelope.len() <= ENVELOPE_MAX
            && m.stream < common.cfg.streams
            && u64::from(m.len) <= self.max_matched_len()
            && self.is_next_out(m.len as usize, m.envelope.len())
    }

    #[inline]
    fn is_next_out(&self, len: usize, envelope_len: usize) -> bool {
        self.up
            && !self.closing
            && len + envelope_len <= self.piece_max
            && !self.has_notices()
            && !self.has_data()
            && !self.has_control()
            && self.out.lets_out(len as u32)
    }

    /// The numbers of a message for which [`Session::goes_straight`] was true, and which the
    /// carrier takes now.
    #[inline]
    pub fn go_straight(&mut self, common: &mut Common, stream: u16, len: u32) -> Numbers {
        common.counters.messages_sent += 1;
        self.out.go_straight(stream, len)
    }

    /// Accepts a message for which [`Session::goes_alone`] was true, and which the carrier takes
    /// now, all of it: its number. Its payload is kept here until it has arrived. Its fate is to be
    /// told as that of any other, but the layer above hears no more of it.
    #[inline]
    pub fn go_alone(&mut self, common: &mut Common, m: &Message<'_>, payload: &[u8]) -> u64 {
        common.counters.messages_sent += 1;
        self.out.go_alone(m, payload)
    }

    /// Messages whose payload is kept here are not known to have arrived.
    #[must_use]
    #[inline]
    pub fn has_kept(&self) -> bool {
        self.out.matched.kept > 0
    }

    /// Whether a matched message of which `len` bytes have come is all there and the next one, and
    /// breaks no rule: then [`Session::take_next`] is all that is to be done about it here.
    #[must_use]
    #[inline]
    pub fn is_next(&self, f: &FragmentIn, len: usize) -> bool {
        self.down.is_none()
            && f.stream < STREAMS_MAX
            && f.offset == 0
            && len == f.total_len as usize
            && self.inn.is_next(f.mseq, f.total_len)
    }

    /// A message for which [`Session::is_next`] was true is taken.
    #[inline]
    pub fn take_next(&mut self, common: &mut Common, f: &FragmentIn) {
        common.counters.messages_received += 1;
        self.inn.take_next(f.total_len);
        self.credit_dirty |= self.inn.gap_closed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Terms;
    use crate::{Config, DownReason, Fragment, PeerId, Sessions};
    use alloc::vec::Vec;

    const PEER: PeerId = PeerId(0);
    const ENVELOPE: &[u8] = &[1, 2, 3, 4];

    fn up(terms: Terms) -> Sessions {
        let mut all = Sessions::new(Config::default());
        assert_eq!(all.add(), PEER);
        all.set_carrier(PEER, Carrier::Shm);
        with(&mut all, |s, common| {
            s.set_piece_max(4096);
            assert!(!s.goes_straight(8, 4), "not up yet");
            assert!(s.begin(common, terms));
        });
        all
    }

    fn with<T>(all: &mut Sessions, f: impl FnOnce(&mut Session, &mut Common) -> T) -> T {
        let (s, common) = all.get_mut(PEER).expect("added");
        f(s, common)
    }

    fn message(len: u32, token: u64) -> Message<'static> {
        Message { control: false, stream: 0, envelope: ENVELOPE, len, patient: false, token }
    }

    const AMPLE: Terms = Terms { credit_msgs: 1000, credit_bytes: 1 << 20 };

    #[test]
    fn numbers_go_on_where_straight_and_other_messages_alternate() {
        let mut all = up(AMPLE);
        with(&mut all, |s, common| {
            assert_eq!(s.go_straight(common, 0, 8), Numbers { mseq: 0, sseq: 0 });
            assert_eq!(s.go_straight(common, 1, 8), Numbers { mseq: 1, sseq: 0 });
        });
        all.send(PEER, &message(8, 70)).expect("accepted");
        with(&mut all, |s, common| {
            assert!(!s.goes_straight(8, 4), "another waits to go");
            let piece = s.next_small().expect("it goes");
            assert_eq!(piece.flow, crate::Flow::Message(2));
            s.took_small(piece.to);
            assert!(s.goes_straight(8, 4), "nothing waits, though its fate is open");
            assert_eq!(s.go_straight(common, 0, 8), Numbers { mseq: 3, sseq: 2 });
            assert!(s.has_open());
            assert_eq!(s.arrived(common, &Fragment::Message { mseq: 2, offset: 0, len: 8 }), Some(70));
            assert!(!s.has_open(), "the straight one behind it is not waited for");
            assert_eq!(s.go_straight(common, 0, 8), Numbers { mseq: 4, sseq: 3 });
        });
    }

    #[test]
    fn credit_holds_for_what_goes_straight_too() {
        let mut all = up(Terms { credit_msgs: 3, credit_bytes: 100 });
        with(&mut all, |s, common| {
            assert!(s.goes_straight(100, 4) && !s.goes_straight(101, 4));
            s.go_straight(common, 0, 60);
            assert!(s.goes_straight(40, 4) && !s.goes_straight(41, 4));
            assert_eq!((s.credit().msgs, s.credit().bytes), (2, 40));
            s.go_straight(common, 0, 0);
            s.go_straight(common, 0, 0);
            assert!(!s.goes_straight(0, 4), "three messages were allowed");
            s.on_credit(common, 4, 200);
            assert!(s.goes_straight(0, 4));
        });
    }

    #[test]
    fn what_is_long_or_has_no_such_carrier_does_not_go_straight() {
        let mut all = up(AMPLE);
        assert!(with(&mut all, |s, _| s.goes_straight(4092, 4) && !s.goes_straight(4093, 4)));
        with(&mut all, |s, _| s.close());
        assert!(!with(&mut all, |s, _| s.goes_straight(8, 4)), "it closes");
        let mut all = up(AMPLE);
        all.end(PEER, DownReason::Closed, &mut Vec::new());
        assert!(!with(&mut all, |s, _| s.goes_straight(8, 4)), "it is over");
        let mut all = up(AMPLE);
        all.set_carrier(PEER, Carrier::Link);
        assert!(!with(&mut all, |s, _| s.goes_straight(8, 4)), "packets get lost");
    }

    #[test]
    fn what_goes_alone_is_numbered_and_kept_as_any_other() {
        let mut all = up(Terms { credit_msgs: 2, credit_bytes: 100 });
        assert!(with(&mut all, |s, common| !s.goes_alone(common, &message(8, 70))), "no packets carry it");
        all.set_carrier(PEER, Carrier::Link);
        with(&mut all, |s, common| {
            let m = message(8, 70);
            assert!(s.goes_alone(common, &m) && !s.goes_alone(common, &message(51, 70)), "half of the credit at most");
            let beyond = Message { stream: common.cfg.streams, ..m };
            assert!(!s.goes_alone(common, &beyond), "there is no such stream");
            assert_eq!(s.go_alone(common, &m, &[5; 8]), 0);
            assert_eq!((s.has_open(), s.has_kept(), s.has_data(), s.queued()), (true, true, false, 0));
            assert_eq!(s.message(0).and_then(crate::OutMessage::kept), Some(&[5; 8][..]));
            let fragment = Fragment::Message { mseq: 0, offset: 0, len: 8 };
            s.lost(fragment);
            assert!(!s.goes_alone(common, &m), "what was lost goes first");
            assert_eq!(s.next_lost().map(|piece| (piece.from, piece.to)), Some((0, 8)));
            s.took_lost(8);
            assert_eq!(s.go_alone(common, &message(0, 71), &[]), 1);
            assert!(!s.goes_alone(common, &message(0, 72)), "two messages were allowed");
            assert_eq!(s.arrived(common, &fragment), None, "nobody waits for it");
            assert!(s.has_open() && s.has_kept());
        });
        let mut events = Vec::new();
        all.end(PEER, DownReason::Unreachable, &mut events);
        assert!(matches!(events[..], [crate::Event::Down { .. }]), "nor for its end");
        with(&mut all, |s, _| assert!(!s.has_open() && !s.has_kept()));
    }

    #[test]
    fn only_the_next_message_is_taken_at_once_and_only_once() {
        let mut all = up(AMPLE);
        let f = |mseq, total_len| FragmentIn { stream: 0, mseq, sseq: mseq as u32, total_len, offset: 0 };
        with(&mut all, |s, common| {
            assert!(s.is_next(&f(0, 8), 8) && s.is_next(&f(0, 0), 0));
            assert!(!s.is_next(&f(0, 8), 7), "a part");
            assert!(!s.is_next(&f(1, 8), 8), "another is to come first");
            assert!(!s.is_next(&f(0, u32::MAX), u32::MAX as usize), "more than credit lets in");
            assert!(!s.is_next(&FragmentIn { stream: STREAMS_MAX, ..f(0, 8) }, 8), "no such stream");
            s.take_next(common, &f(0, 8));
            assert!(!s.is_next(&f(0, 8), 8) && s.is_next(&f(1, 8), 8));
            let mut events = Vec::new();
            for (mseq, news) in [(0, 0), (2, 1), (1, 2)] {
                assert!(mseq != 1 || !s.is_next(&f(mseq, 8), 8), "one behind it is here already");
                s.on_message(common, &f(mseq, 8), &(0..4), &(4..12), &mut events).expect("no rule is broken");
                assert_eq!(events.len(), news);
            }
            assert!(s.is_next(&f(3, 8), 8));
        });
        all.end(PEER, DownReason::Closed, &mut Vec::new());
        assert!(with(&mut all, |s, _| !s.is_next(&f(3, 8), 8)), "it is over");
    }

    #[test]
    fn the_end_of_a_session_fails_no_message_that_went_straight() {
        let mut all = up(AMPLE);
        all.send(PEER, &message(8, 70)).expect("accepted");
        with(&mut all, |s, common| {
            s.took_small(8);
            s.go_straight(common, 0, 8);
        });
        let mut events = Vec::new();
        all.end(PEER, DownReason::Unreachable, &mut events);
        let failed: Vec<u64> = events
            .iter()
            .filter_map(|e| if let crate::Event::Failed { token, .. } = e { Some(*token) } else { None })
            .collect();
        assert_eq!(failed, [70]);
    }
}
