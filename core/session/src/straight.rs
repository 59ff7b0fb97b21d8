//! Messages that go straight: into a carrier that loses nothing and has room now. Nothing of them need be remembered, for nothing can be asked of it again.

use crate::sessions::Common;
use crate::{Carrier, Session};

/// The numbers of a message that goes straight.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// Among the matched messages.
    pub mseq: u64,
    /// Within its stream.
    pub sseq: u32,
}

impl Session {
    /// Whether a matched message of `len` bytes behind an envelope of `envelope_len` may go straight: credit lets it out, and nothing waits that would have to go before it, or as soon.
    #[must_use]
    #[inline]
    pub fn goes_straight(&self, len: usize, envelope_len: usize) -> bool {
        self.carrier() == Carrier::Shm
            && self.up
            && !self.closing
            && len + envelope_len <= self.piece_max
            && !self.has_notices()
            && !self.has_data()
            && !self.has_control()
            && self.out.lets_out(len as u32)
    }

    /// The numbers of a message for which [`Session::goes_straight`] was true, and which the carrier takes now.
    #[inline]
    pub fn go_straight(&mut self, common: &mut Common, stream: u16, len: u32) -> Numbers {
        common.counters.messages_sent += 1;
        self.out.go_straight(stream, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Terms;
    use crate::{Config, DownReason, Fragment, Message, PeerId, Sessions};
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
