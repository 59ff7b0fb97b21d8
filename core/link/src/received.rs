//! Packet numbers received and when to acknowledge them (spec 4).

use alloc::vec::Vec;
use weir_session::RangeSet;
use weir_wire::frame::AckTimes;

use crate::rtt::clock_us;
use crate::{Config, Time};

/// Ranges kept; beyond it the lowest are given up, and with them everything below.
const RANGES_MAX: usize = 512;
/// A packet this far below the largest is taken for a replay.
const WINDOW: u64 = 1 << 20;
/// A path of the peer that brought nothing for so long is not waited for when numbers are counted
/// that lack.
const QUIET_NS: u64 = 100_000_000;

/// What came by one path of the peer. Its packets keep their order; those of several do not.
#[derive(Clone, Debug, Default)]
struct Way {
    /// One past the largest number that came by it; 0: none has.
    end: u64,
    /// When that was read, and how long it may have waited unseen.
    at: Time,
    receiver_delay_ns: u32,
    /// When anything came by it but what asks after a path or acknowledges.
    heard: Time,
    /// Our path back, and packets and bytes that want an acknowledgement since the last one was
    /// sent for this way.
    path: u8,
    packets: u32,
    bytes: u32,
    /// An acknowledgement is due now, or at this time.
    now: bool,
    deadline: Time,
}

impl Way {
    /// Something came by it of late, and it is not only asked after.
    fn is_used(&self, now: Time) -> bool {
        self.end > 0 && self.heard > Time::ZERO && now.since_ns(self.heard) < QUIET_NS
    }

    fn is_due(&self, now: Time) -> bool {
        self.packets > 0 && (self.now || self.deadline <= now)
    }
}

/// Receiving side of the packet number space.
#[derive(Debug, Default)]
pub(crate) struct Received {
    got: RangeSet,
    /// Numbers below are not accepted.
    floor: u64,
    /// Numbers below this lack if they have not come: every path of the peer in use has brought a
    /// later one.
    passed: u64,
    /// By the peer's number of the path.
    ways: Vec<Way>,
    /// Packets to be acknowledged one by one: what came after a gap proves the loss.
    urgent: u32,
}

impl Received {
    /// As if the packet before `pn` had come.
    #[cfg(test)]
    pub(crate) fn start_at(&mut self, pn: u64) {
        self.got = RangeSet::new();
        self.got.insert(pn - 1, pn, |_, _| {});
        (self.floor, self.passed) = (pn - 1, pn);
    }

    /// One past the largest number received.
    pub(crate) fn expected(&self) -> u64 {
        self.got.end()
    }

    /// The number was seen before, or is too old to tell.
    pub(crate) fn is_replay(&self, pn: u64) -> bool {
        let end = self.got.end();
        if pn >= end {
            return false;
        }
        pn < self.floor || end - pn > WINDOW || self.got.contains(pn)
    }

    /// With what comes by this path of the peer now, it uses others than its first. Of that alone
    /// nobody asks what it is used for.
    pub(crate) fn has_several(&self, way: u8) -> bool {
        way > 0 || self.ways.len() > 1
    }

    /// A packet was accepted that came by the peer's path of this number; `is_probe`: one of those
    /// that go by paths in no other use. Returns by how much the count of lacking packets changed.
    pub(crate) fn accept(&mut self, now: Time, (way, is_probe): (u8, bool), pn: u64, receiver_delay_ns: u32) -> i64 {
        if !self.got.extend_prefix(pn, pn + 1) {
            self.got.insert(pn, pn + 1, |_, _| {});
        }
        if self.got.len() > RANGES_MAX
            && let Some(e) = self.got.pop_lowest()
        {
            self.floor = e;
        }
        let way = usize::from(way);
        if self.ways.len() <= way {
            self.ways.reserve_exact(way + 1 - self.ways.len());
            self.ways.resize(way + 1, Way::default());
        }
        let w = &mut self.ways[way];
        if !is_probe {
            w.heard = now;
        }
        if pn >= w.end {
            (w.end, w.at, w.receiver_delay_ns) = (pn + 1, now, receiver_delay_ns);
        }
        // As nearly always: of one path, and in its turn.
        if pn == self.passed && self.ways.len() == 1 {
            self.passed = pn + 1;
            return 0;
        }
        let in_use = self.ways.iter().filter(|w| w.is_used(now));
        let (before, passed) = (self.passed, in_use.map(|w| w.end).min().unwrap_or(0));
        self.passed = before.max(passed);
        let mut missing = -i64::from(pn < before);
        self.got.gaps(before, self.passed, |a, b| {
            missing += (b - a) as i64;
            true
        });
        missing
    }

    /// The packet accepted from that path of the peer wants an acknowledgement, `delay_ns` from now
    /// at the latest; `path` leads back.
    pub(crate) fn eliciting(
        &mut self,
        now: Time,
        (way, path): (u8, u8),
        missing: i64,
        (bytes, at_once): (usize, bool),
        delay_ns: u64,
        cfg: &Config,
    ) {
        let Some(w) = self.ways.get_mut(usize::from(way)) else { return };
        w.path = path;
        if w.packets == 0 {
            w.deadline = now.plus_ns(delay_ns);
        }
        w.packets += 1;
        w.bytes = w.bytes.saturating_add(bytes as u32);
        w.now |= at_once
            || missing != 0
            || self.urgent > 0
            || w.packets >= cfg.ack_every_packets
            || w.bytes >= cfg.ack_every_bytes;
        self.urgent = if missing > 0 { cfg.reorder_threshold } else { self.urgent.saturating_sub(1) };
    }

    /// The next packet acknowledges once more, if there is anything to acknowledge.
    pub(crate) fn repeat(&mut self) {
        if let Some(w) = self.ways.iter_mut().max_by_key(|w| w.end).filter(|w| w.end > 0) {
            w.packets = w.packets.max(1);
        }
    }

    /// An acknowledgement has to go out even alone.
    pub(crate) fn due(&self, now: Time) -> bool {
        self.ways.iter().any(|w| w.is_due(now))
    }

    /// When one has to go out.
    pub(crate) fn due_at(&self) -> Option<Time> {
        let pending = self.ways.iter().filter(|w| w.packets > 0);
        pending.map(|w| if w.now { Time::ZERO } else { w.deadline }).min()
    }

    /// Which of the peer's paths the next acknowledgement is for: of those that wait for one the
    /// one that has come least far, so that each is the first to tell of its newest packet.
    pub(crate) fn next(&self) -> Option<u8> {
        if let [only] = self.ways.as_slice() {
            return (only.packets > 0).then_some(0);
        }
        let pending = self.ways.iter().enumerate().filter(|(_, w)| w.packets > 0);
        pending.min_by_key(|(_, w)| w.end).map(|(i, _)| i as u8)
    }

    /// Our path back to where the packets of this one come from.
    pub(crate) fn back(&self, way: u8) -> u8 {
        self.ways.get(usize::from(way)).map_or(0, |w| w.path)
    }

    /// Our paths back to where packets came from of late.
    pub(crate) fn in_use(&self, now: Time) -> impl Iterator<Item = u8> + '_ {
        self.ways.iter().filter(move |w| w.is_used(now)).map(|w| w.path)
    }

    /// What an ACK frame tells of the largest number of a path of the peer.
    pub(crate) fn times(&self, way: u8, now: Time) -> AckTimes {
        let Some(w) = self.ways.get(usize::from(way)) else {
            return AckTimes { delay_ns: 0, receiver_delay_us: 0, read_us: 0 };
        };
        AckTimes {
            delay_ns: u32::try_from(now.since_ns(w.at)).unwrap_or(u32::MAX),
            receiver_delay_us: u16::try_from(w.receiver_delay_ns.div_ceil(1000)).unwrap_or(u16::MAX),
            read_us: clock_us(w.at),
        }
    }

    /// Ranges `[lo, hi)` up to the largest number of a path of the peer, highest first.
    pub(crate) fn ranges(&self, way: u8) -> impl Iterator<Item = (u64, u64)> + '_ {
        let end = self.ways.get(usize::from(way)).map_or(0, |w| w.end);
        self.got.iter().rev().filter(move |(lo, _)| *lo < end).map(move |(lo, hi)| (lo, hi.min(end)))
    }

    /// The only one of these ranges, as mostly.
    #[inline]
    pub(crate) fn only_range(&self, way: u8) -> Option<(u64, u64)> {
        let (lo, hi) = self.got.only()?;
        let end = self.ways.get(usize::from(way))?.end;
        (lo < end).then_some((lo, hi.min(end)))
    }

    /// An ACK frame was written for this path of the peer.
    pub(crate) fn acknowledged(&mut self, way: u8) {
        if let Some(w) = self.ways.get_mut(usize::from(way)) {
            (w.packets, w.bytes, w.now) = (0, 0, false);
        }
    }

    /// Nothing is to be acknowledged any more.
    pub(crate) fn settle(&mut self) {
        (0..self.ways.len() as u8).for_each(|way| self.acknowledged(way));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: P-2.7, P-4.1, P-4.3, P-4.4
    #[test]
    fn replays_are_known() {
        let cfg = Config::default();
        let mut r = Received::default();
        assert_eq!(r.accept(Time(1), (0, false), 0, 0), 0);
        r.eliciting(Time(1), (0, 0), 0, (100, false), 25_000, &cfg);
        assert!(!r.due(Time(1)) && r.due(Time(25_001)));
        assert!(r.is_replay(0) && !r.is_replay(1));
        let m = r.accept(Time(2), (0, false), 5, 0);
        assert_eq!(m, 4);
        r.eliciting(Time(2), (0, 0), m, (100, false), 25_000, &cfg);
        assert!(r.due(Time(2)));
        // So are the next, which the peer counts to tell loss from reordering.
        for n in 6..9 {
            r.acknowledged(0);
            assert_eq!(r.accept(Time(2), (0, false), n, 0), 0);
            r.eliciting(Time(2), (0, 0), 0, (100, false), 25_000, &cfg);
            assert!(r.due(Time(2)));
        }
        r.acknowledged(0);
        assert_eq!(r.accept(Time(2), (0, false), 9, 0), 0);
        r.eliciting(Time(2), (0, 0), 0, (100, false), 25_000, &cfg);
        assert!(!r.due(Time(2)));
        assert_eq!(r.accept(Time(3), (0, false), 3, 0), -1);
        for i in 0..1200u64 {
            r.accept(Time(4), (0, false), 11 + 2 * i, 0);
        }
        assert!(r.ranges(0).count() <= RANGES_MAX);
        assert!(r.is_replay(12), "given up with its range");
    }

    // spec: P-4.3, P-4.25, P-4.26
    #[test]
    fn of_several_paths_each_is_acknowledged_up_to_its_newest_and_lacks_what_all_have_passed() {
        let cfg = Config::default();
        let mut r = Received::default();
        let got = |r: &mut Received, at: u64, way: u8, pn: u64| {
            let missing = r.accept(Time(at), (way, false), pn, 0);
            r.eliciting(Time(at), (way, way), missing, (100, false), 25_000, &cfg);
            missing
        };
        assert_eq!((got(&mut r, 1, 0, 0), got(&mut r, 2, 1, 1)), (0, 0));
        (0..2).for_each(|way| r.acknowledged(way));
        // 2 to 4 are on the slow path: nothing lacks, and nobody hurries.
        assert_eq!((got(&mut r, 3, 0, 5), got(&mut r, 4, 0, 6)), (0, 0));
        assert!(!r.due(Time(5)) && r.due(Time(25_003)));
        // 2 is lost: 3 says so, of the slow path.
        assert_eq!(got(&mut r, 6, 1, 3), 1);
        assert!(r.due(Time(6)));
        assert_eq!((r.next(), r.back(1)), (Some(1), 1));
        assert_eq!(r.ranges(1).collect::<alloc::vec::Vec<_>>(), [(3, 4), (0, 2)]);
        assert_eq!(r.ranges(0).collect::<alloc::vec::Vec<_>>(), [(5, 7), (3, 4), (0, 2)]);
        assert_eq!(r.times(1, Time(8)).delay_ns, 2);
        assert_eq!(got(&mut r, 7, 1, 2), -1, "late after all");
        // The slow one is used no more: what it did not bring lacks when it is not waited for.
        assert_eq!(got(&mut r, QUIET_NS + 10, 0, 8), 2, "4 and 7");
        r.settle();
        assert_eq!(r.due_at(), None);
    }

    // spec: P-4.26
    #[test]
    fn a_path_that_is_only_asked_after_is_not_waited_for() {
        let mut r = Received::default();
        assert_eq!(r.accept(Time(1), (0, false), 0, 0), 0);
        // The challenge of the second path, once in a second.
        assert_eq!(r.accept(Time(2), (1, true), 1, 0), 0);
        assert_eq!(r.accept(Time(3), (0, false), 4, 0), 2, "2 and 3 lack at once");
        assert_eq!(r.in_use(Time(4)).count(), 1);
    }
}
