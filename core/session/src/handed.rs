//! What a carrier was handed that is in order and loses nothing while it lives: a fragment has
//! arrived when the peer has read past its end.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::sessions::Common;
use crate::{Event, Fragment, Session};

/// Fragments handed over whose fate is not known, each with where it ends in the row of bytes that
/// the carrier carries.
#[derive(Debug, Default)]
pub struct Handed(VecDeque<(u64, Fragment)>);

impl Handed {
    /// A fragment was handed over, which ends there.
    #[inline]
    pub fn push(&mut self, end: u64, f: Fragment) {
        self.0.push_back((end, f));
    }

    /// The fate of none is unknown.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether some of them end within what the peer has read.
    #[must_use]
    #[inline]
    pub fn any_within(&self, read: u64) -> bool {
        self.0.front().is_some_and(|(end, _)| *end <= read)
    }

    /// The peer has read so far: what ends there has arrived, and `each` is called with it.
    pub fn read(
        &mut self,
        read: u64,
        s: &mut Session,
        common: &mut Common,
        events: &mut Vec<Event>,
        mut each: impl FnMut(&Fragment),
    ) {
        while self.any_within(read)
            && let Some((_, f)) = self.0.pop_front()
        {
            each(&f);
            if let Some(token) = s.arrived(common, &f) {
                events.push(Event::Sent { peer: s.peer, token });
            }
        }
    }

    /// The carrier is gone: what it was handed is to be sent again by whatever carries then. It is
    /// still known here, for the peer may tell later that it had read it.
    pub fn give_back(&self, s: &mut Session) {
        self.0.iter().for_each(|(_, f)| s.lost(*f));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Flow, Line, Message, Sessions, Terms};
    use alloc::vec;

    /// A session with a message of 100 bytes handed over in ten pieces.
    fn handed_over() -> (Sessions, crate::PeerId, Handed) {
        let mut sessions = Sessions::new(Config::default());
        let peer = sessions.add();
        let (s, common) = sessions.get_mut(peer).expect("just added");
        assert!(s.begin(common, Terms { credit_msgs: 10, credit_bytes: 1000 }));
        let m = Message { control: false, stream: 0, envelope: b"e", len: 100, patient: false, token: 7 };
        s.send(common, &m).expect("there is credit");
        let mut handed = Handed::default();
        for i in 0..10 {
            let piece = s.next_flow(Line::Main).expect("more");
            assert_eq!((piece.flow, piece.from), (Flow::Message(0), i * 10));
            s.took_flow(Line::Main, piece.from + 10);
            handed.push(piece.from + 10, Fragment::of(piece.flow, piece.from, piece.from + 10));
        }
        (sessions, peer, handed)
    }

    // spec: L-4.1, L-4.3
    #[test]
    fn what_the_peer_has_read_past_has_arrived_and_no_more() {
        let (mut sessions, peer, mut handed) = handed_over();
        let (s, common) = sessions.get_mut(peer).expect("there");
        let (mut events, mut pieces) = (vec![], 0);
        assert!(!handed.any_within(9) && handed.any_within(10));
        handed.read(59, s, common, &mut events, |_| pieces += 1);
        assert_eq!((pieces, handed.len(), events.len()), (5, 5, 0));
        handed.read(100, s, common, &mut events, |f| pieces += f.payload_len());
        assert_eq!((pieces, handed.is_empty()), (5 + 50, true));
        assert_eq!(events, [Event::Sent { peer, token: 7 }]);
    }

    #[test]
    fn what_is_given_back_may_still_turn_out_to_have_been_read() {
        let (mut sessions, peer, mut handed) = handed_over();
        let (s, common) = sessions.get_mut(peer).expect("there");
        let mut events = vec![];
        handed.read(40, s, common, &mut events, |_| ());
        handed.give_back(s);
        let piece = s.next_lost().expect("it is to be sent again");
        assert_eq!((piece.from, piece.to), (40, 50));
        handed.read(100, s, common, &mut events, |_| ());
        assert_eq!(events, [Event::Sent { peer, token: 7 }]);
        assert_eq!(s.next_lost(), None);
    }
}
