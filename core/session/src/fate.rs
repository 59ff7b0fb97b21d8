//! What became of what a carrier took: it has arrived, or is lost and offered again.

use crate::Session;
use crate::offer::{Flow, Fragment, Piece};
use crate::sessions::Common;

impl Session {
    // What is sent again.

    /// The oldest that is still missing.
    #[inline]
    pub fn next_lost(&mut self) -> Option<Piece> {
        while let Some(f) = self.lost.front().copied() {
            let missing = match f {
                Fragment::Message { mseq, offset, len } => {
                    let gap = self.out.matched.get(mseq).and_then(|m| m.missing(offset, len));
                    gap.map(|(a, b)| (Flow::Message(mseq), u64::from(a), u64::from(b)))
                }
                Fragment::Rndv { slot, generation, offset, len } => {
                    let gap = self.rndvs_out.missing(slot, generation, offset, len);
                    gap.map(|(a, b)| (Flow::Rndv(slot, generation), a, b))
                }
                _ => None,
            };
            if let Some((flow, from, to)) = missing {
                return Some(Piece { flow, from, to });
            }
            self.lost.pop_front();
        }
        if self.lost.capacity() > 64 {
            self.lost.shrink_to(16);
        }
        None
    }

    /// The carrier took of it what lies before `to`.
    pub fn took_lost(&mut self, to: u64) {
        let rest = match self.lost.front() {
            Some(&Fragment::Message { mseq, offset, len }) => {
                let end = u64::from(offset) + u64::from(len);
                (to < end).then(|| Fragment::of(Flow::Message(mseq), to, end))
            }
            Some(&Fragment::Rndv { slot, generation, offset, len }) => {
                let end = offset + u64::from(len);
                (to < end).then(|| Fragment::of(Flow::Rndv(slot, generation), to, end))
            }
            _ => None,
        };
        match rest {
            Some(r) => self.lost[0] = r,
            None => {
                self.lost.pop_front();
            }
        }
    }

    // Fate.

    /// It has arrived. The token of what has arrived completely by that.
    #[inline]
    pub fn arrived(&mut self, common: &mut Common, f: &Fragment) -> Option<u64> {
        match *f {
            Fragment::Message { mseq, offset, len } => self.out.matched.acked(mseq, offset, len),
            Fragment::Control { mseq } => {
                let len = self.out.control.get(mseq).map_or(0, |m| m.len);
                self.out.control.acked(mseq, 0, len)
            }
            Fragment::Rndv { slot, generation, offset, len } => {
                let t = self.rndvs_out.acked(slot, generation, offset, u64::from(len));
                common.counters.rndvs_sent += u64::from(t.is_some());
                t
            }
            Fragment::Credit | Fragment::Grant { .. } | Fragment::Abort { .. } => None,
        }
    }

    /// The peer said that rendezvous data arrived in more pieces than an honest one would.
    #[must_use]
    pub fn is_shredded(&self) -> bool {
        self.rndvs_out.is_shredded()
    }

    /// It was lost, or its carrier is gone: it is to be sent again, as far as it still matters.
    pub fn lost(&mut self, f: Fragment) {
        match f {
            Fragment::Message { .. } | Fragment::Rndv { .. } => self.lost.push_back(f),
            Fragment::Control { mseq } => self.lost_control.push_back(mseq),
            Fragment::Credit => self.credit_dirty = true,
            Fragment::Grant { handle } => {
                if let Some(b) = self.rndvs_in.get_mut(handle)
                    && !b.grant_dirty
                {
                    b.grant_dirty = true;
                    self.grants_dirty.push_back(handle);
                }
            }
            Fragment::Abort { handle, code } => self.aborts.push_back((handle, code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::offer::Line;
    use crate::offer::tests::{PEER, control, fragment, message, of_message, send, up, with};
    use crate::{Config, DownReason, Event, Sessions, Time};

    #[test]
    fn what_is_told_of_rendezvous_data_that_is_over_does_not_touch_what_has_its_place() {
        let mut all = up(Config::default());
        all.send_rndv(PEER, 7, 100, 100, 40).expect("accepted");
        let (old, _) = with(&mut all, |s, _| s.rndv_of(7).map(|(f, b)| (f, b.len))).expect("under way");
        assert_eq!(all.abort_rndv(PEER, 7, 1), Some(40));
        all.send_rndv(PEER, 8, 100, 100, 41).expect("accepted");
        with(&mut all, |s, common| {
            let (new, _) = s.rndv_of(8).expect("under way");
            let (Flow::Rndv(slot, before), Flow::Rndv(same, _)) = (old, new) else { panic!("rndvs") };
            assert_eq!(slot, same, "else this test shows nothing");
            assert_eq!(s.next_flow(Line::Main), Some(Piece { flow: new, from: 0, to: 100 }));
            let stale = Fragment::Rndv { slot, generation: before, offset: 0, len: 100 };
            assert_eq!(s.arrived(common, &stale), None);
            s.lost(stale);
            assert_eq!((s.next_lost(), s.rndv(slot, before).is_none(), s.rndv_of(8).is_some()), (None, true, true));
        });
    }

    // spec: P-4.20, P-4.21
    #[test]
    fn what_a_carrier_lost_is_offered_again_as_far_as_it_has_not_come_by_another() {
        let mut all = up(Config::default());
        send(&mut all, &[message(9000, 5), message(9000, 6)]);
        with(&mut all, |s, common| {
            for _ in 0..2 {
                assert!(s.took_flow(Line::Main, 9000));
            }
            s.lost(fragment(0, 0, 4000));
            s.lost(fragment(1, 8000, 1000));
            assert_eq!(s.arrived(common, &fragment(0, 1000, 1000)), None);
            assert_eq!(s.next_lost(), of_message(0, 0, 1000), "the oldest, up to what is there");
            s.took_lost(1000);
            assert_eq!(s.next_lost(), of_message(0, 2000, 4000));
            s.took_lost(2500);
            assert_eq!((s.next_lost(), s.lost_waiting()), (of_message(0, 2500, 4000), 2));
            s.took_lost(4000);
            assert_eq!(s.arrived(common, &fragment(1, 0, 9000)), Some(6));
            assert_eq!((s.next_lost(), s.lost_waiting(), s.has_data()), (None, 0, false));
        });
    }

    #[test]
    fn an_empty_message_that_was_lost_is_offered_again_once() {
        let mut all = up(Config::default());
        send(&mut all, &[message(0, 5)]);
        with(&mut all, |s, common| {
            s.took_small(0);
            s.lost(fragment(0, 0, 0));
            assert_eq!(s.next_lost(), of_message(0, 0, 0));
            s.took_lost(0);
            assert_eq!(s.next_lost(), None);
            assert_eq!(s.arrived(common, &fragment(0, 0, 0)), Some(5));
        });
    }

    #[test]
    fn a_message_is_told_as_sent_once_whatever_comes_twice() {
        let mut all = up(Config::default());
        send(&mut all, &[message(3000, 5), message(10, 6)]);
        with(&mut all, |s, common| {
            assert_eq!(s.arrived(common, &fragment(0, 1000, 2000)), None);
            assert_eq!(s.arrived(common, &fragment(0, 1000, 2000)), None);
            assert_eq!(s.arrived(common, &fragment(1, 0, 10)), Some(6));
            assert_eq!(s.arrived(common, &fragment(0, 0, 1500)), Some(5));
            assert_eq!(s.arrived(common, &fragment(0, 0, 3000)), None);
            assert_eq!(s.arrived(common, &fragment(1, 0, 10)), None);
            assert_eq!(s.arrived(common, &fragment(99, 0, 10)), None, "one that was never sent");
            assert_eq!(s.messages_open(), 0);
        });
    }

    // spec: P-5.10
    #[test]
    fn lost_control_messages_go_before_new_ones_and_no_more_than_the_window_are_out() {
        let mut all = up(Config { control_window: 2, ..Config::default() });
        send(&mut all, &[control(10), control(11), control(12)]);
        with(&mut all, |s, common| {
            let next = |s: &mut Session| s.next_control().map(|(mseq, m, again)| (mseq, m.token, again));
            assert_eq!(next(s), Some((0, 10, false)));
            s.took_control();
            assert_eq!(next(s), Some((1, 11, false)));
            s.took_control();
            assert_eq!((next(s), s.has_control(), s.awaits_control()), (None, false, true));
            s.lost(Fragment::Control { mseq: 1 });
            s.lost(Fragment::Control { mseq: 0 });
            assert_eq!(s.arrived(common, &Fragment::Control { mseq: 1 }), Some(11));
            assert_eq!(next(s), Some((0, 10, true)), "the other has come after all");
            s.took_control();
            assert_eq!(next(s), None, "the window ends behind the second while the first has not come");
            assert_eq!(s.arrived(common, &Fragment::Control { mseq: 0 }), Some(10));
            assert_eq!(next(s), Some((2, 12, false)));
        });
    }

    // spec: P-4.22
    #[test]
    fn credit_that_was_lost_is_told_as_it_is_then() {
        let mut all = up(Config::default());
        with(&mut all, |s, common| {
            assert_eq!(s.take_credit(common), None);
            s.lost(Fragment::Credit);
            assert!(s.has_notices());
            let told = s.take_credit(common).expect("to be told");
            assert_eq!(s.take_credit(common), None);
            let came = crate::FragmentIn { mseq: 0, sseq: 0, stream: 0, total_len: 1, offset: 0 };
            s.on_message(common, &came, &(0..0), &(0..1), &mut Vec::new()).expect("keeps to the rules");
            assert!(!s.consume(common, 1, 1), "of so little nothing is to be told by itself");
            s.lost(Fragment::Credit);
            assert_eq!(s.take_credit(common), Some((told.0 + 1, told.1 + 1)));
            assert_eq!(common.counters.credits_sent, 2);
        });
    }

    // spec: P-4.22
    #[test]
    fn a_grant_that_was_lost_is_told_once_as_it_is_then_and_not_at_all_when_nobody_wants_the_data() {
        let mut all = up(Config::default());
        let opened = |all: &mut Sessions| all.open_rndv(Time(1), PEER, 10 << 20).expect("opened");
        let (wanted, unwanted) = (opened(&mut all), opened(&mut all));
        with(&mut all, |s, common| {
            for handle in [unwanted.handle, wanted.handle, wanted.handle] {
                s.lost(Fragment::Grant { handle });
            }
            s.raise_grant(common, Time(2), wanted.handle, wanted.granted + 5);
        });
        all.close_rndv(PEER, unwanted.handle);
        with(&mut all, |s, common| {
            assert_eq!(s.take_grant(common), Some((wanted.handle, wanted.granted + 5)));
            assert_eq!((s.take_grant(common), s.has_notices()), (None, false));
            s.lost(Fragment::Grant { handle: unwanted.handle });
            assert_eq!(s.take_grant(common), None);
        });
    }

    #[test]
    fn an_abort_that_was_lost_is_told_again() {
        let mut all = up(Config::default());
        assert_eq!(all.abort_rndv(PEER, 9, 3), None);
        with(&mut all, |s, _| {
            assert_eq!(s.take_abort(), Some((9, 3)));
            assert_eq!(s.take_abort(), None);
            s.lost(Fragment::Abort { handle: 9, code: 3 });
            assert_eq!(s.take_abort(), Some((9, 3)));
        });
    }

    #[test]
    fn nothing_is_offered_when_the_session_is_over_and_late_fates_are_harmless() {
        let mut all = up(Config::default());
        send(&mut all, &[message(3000, 0), message(3, 1), control(2)]);
        all.send_rndv(PEER, 7, 10, 10, 3).expect("accepted");
        with(&mut all, |s, _| s.lost(fragment(0, 0, 1000)));
        let mut events = Vec::new();
        all.end(PEER, DownReason::Unreachable, &mut events);
        let failed = |e: &Event| matches!(e, Event::Failed { .. });
        assert_eq!(events.iter().filter(|e| failed(e)).count(), 4);
        with(&mut all, |s, common| {
            assert!(!s.has_data() && !s.has_control() && !s.has_notices());
            assert_eq!((s.next_small(), s.next_flow(Line::Main), s.next_lost()), (None, None, None));
            assert!(s.next_control().is_none());
            assert_eq!(s.arrived(common, &fragment(0, 0, 3000)), None);
            s.lost(fragment(0, 0, 3000));
            s.lost(Fragment::Control { mseq: 0 });
            assert_eq!((s.next_lost(), s.next_control().is_none()), (None, true));
        });
    }
}
