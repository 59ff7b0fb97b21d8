//! Packet numbers received and when to acknowledge them (spec 4).

use weir_session::RangeSet;
use weir_wire::frame::AckTimes;

use crate::rtt::clock_us;
use crate::{Config, Time};

/// Ranges kept; beyond it the lowest are given up, and with them everything below.
const RANGES_MAX: usize = 256;
/// A packet this far below the largest is taken for a replay.
const WINDOW: u64 = 1 << 20;

/// Receiving side of the packet number space.
#[derive(Debug, Default)]
pub(crate) struct Received {
    got: RangeSet,
    /// Numbers below are not accepted.
    floor: u64,
    /// When the largest was read, and how long it may have waited unseen.
    largest_at: Time,
    largest_slack_ns: u32,
    /// Ack-eliciting packets since the last acknowledgement was sent.
    packets: u32,
    bytes: u32,
    /// An acknowledgement is due now, or at this time.
    now: bool,
    pub(crate) deadline: Time,
    /// Packets to be acknowledged one by one: what came after a gap proves the loss.
    urgent: u32,
    /// Path by which a packet came last that wants an acknowledgement.
    pub(crate) path: u8,
}

impl Received {
    /// As if the packet before `pn` had come.
    #[cfg(test)]
    pub(crate) fn start_at(&mut self, pn: u64) {
        self.got = RangeSet::new();
        self.got.insert(pn - 1, pn, |_, _| {});
        self.floor = pn - 1;
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

    /// A packet was accepted. Returns by how much the count of lacking packets changed.
    pub(crate) fn accept(&mut self, now: Time, pn: u64, slack_ns: u32) -> i64 {
        let end = self.got.end();
        let missing = if pn >= end { (pn - end) as i64 } else { -1 };
        self.got.insert(pn, pn + 1, |_, _| {});
        if self.got.len() > RANGES_MAX
            && let Some(e) = self.got.pop_lowest()
        {
            self.floor = e;
        }
        if pn >= end {
            self.largest_at = now;
            self.largest_slack_ns = slack_ns;
        }
        missing
    }

    /// The packet accepted from `path` wants an acknowledgement, `delay_ns` from now at the latest.
    pub(crate) fn eliciting(
        &mut self,
        now: Time,
        path: u8,
        missing: i64,
        (bytes, at_once): (usize, bool),
        delay_ns: u64,
        cfg: &Config,
    ) {
        self.path = path;
        if self.packets == 0 {
            self.deadline = now.plus_ns(delay_ns);
        }
        self.packets += 1;
        self.bytes = self.bytes.saturating_add(bytes as u32);
        self.now |= at_once
            || missing != 0
            || self.urgent > 0
            || self.packets >= cfg.ack_every_packets
            || self.bytes >= cfg.ack_every_bytes;
        self.urgent = if missing > 0 { cfg.reorder_threshold } else { self.urgent.saturating_sub(1) };
    }

    /// The next packet acknowledges once more, if there is anything to acknowledge.
    pub(crate) fn repeat(&mut self) {
        if self.expected() > 0 {
            self.packets = self.packets.max(1);
        }
    }

    /// Something waits to be acknowledged.
    pub(crate) fn pending(&self) -> bool {
        self.packets > 0
    }

    /// An acknowledgement has to go out even alone.
    pub(crate) fn due(&self, now: Time) -> bool {
        self.packets > 0 && (self.now || self.deadline <= now)
    }

    /// When it has to go out.
    pub(crate) fn due_at(&self) -> Option<Time> {
        (self.packets > 0).then_some(if self.now { Time::ZERO } else { self.deadline })
    }

    /// What an ACK frame tells of the largest number.
    pub(crate) fn times(&self, now: Time) -> AckTimes {
        AckTimes {
            delay_ns: u32::try_from(now.since_ns(self.largest_at)).unwrap_or(u32::MAX),
            slack_us: u16::try_from(self.largest_slack_ns.div_ceil(1000)).unwrap_or(u16::MAX),
            read_us: clock_us(self.largest_at),
        }
    }

    /// Ranges `[lo, hi)`, highest first.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.got.iter().rev()
    }

    /// An ACK frame was written.
    pub(crate) fn acknowledged(&mut self) {
        self.packets = 0;
        self.bytes = 0;
        self.now = false;
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
        assert_eq!(r.accept(Time(1), 0, 0), 0);
        r.eliciting(Time(1), 0, 0, (100, false), 25_000, &cfg);
        assert!(!r.due(Time(1)) && r.due(Time(25_001)));
        assert!(r.is_replay(0) && !r.is_replay(1));
        let m = r.accept(Time(2), 5, 0);
        assert_eq!(m, 4);
        r.eliciting(Time(2), 0, m, (100, false), 25_000, &cfg);
        assert!(r.due(Time(2)));
        // So are the next, which the peer counts to tell loss from reordering.
        for n in 6..9 {
            r.acknowledged();
            assert_eq!(r.accept(Time(2), n, 0), 0);
            r.eliciting(Time(2), 0, 0, (100, false), 25_000, &cfg);
            assert!(r.due(Time(2)));
        }
        r.acknowledged();
        assert_eq!(r.accept(Time(2), 9, 0), 0);
        r.eliciting(Time(2), 0, 0, (100, false), 25_000, &cfg);
        assert!(!r.due(Time(2)));
        assert_eq!(r.accept(Time(3), 3, 0), -1);
        for i in 0..600u64 {
            r.accept(Time(4), 11 + 2 * i, 0);
        }
        assert!(r.ranges().count() <= RANGES_MAX);
        assert!(r.is_replay(12), "given up with its range");
    }
}
