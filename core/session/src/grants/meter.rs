//! What came in, by intervals: the rate, and what loss and marks take of the budget (spec 5.3).

use super::Grants;
use crate::{PeerId, Time};

/// Measured over intervals: what came in.
#[derive(Debug, Default)]
pub(super) struct Meter {
    pub(super) started: Time,
    /// Number of the interval, from 1 on.
    pub(super) interval: u64,
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) missing: u64,
    /// Packets of rendezvous transfers, and those of them that a switch marked.
    pub(super) rndv_packets: u64,
    pub(super) marked: u64,
    pub(super) base_ns: u64,
    pub(super) rate: u64,
    pub(super) rtt_ns: u64,
}

/// Interval of the meter, or a round trip where that is longer: some 80 packets at 1 Gbit/s, enough
/// to speak of a rate.
const METER_NS: u64 = 1_000_000;
/// After so many intervals without a word the rate that was measured is left as it is: silence is
/// no rate.
const METER_STALE: u64 = 8;
/// The rate fades by this part in an interval that brought less: one stalled interval must not
/// shrink the budget to nothing.
const RATE_FADES_PART: u64 = 8;
/// Lacking packets, one of so many and at least so many, that show that too much was asked for. A
/// twentieth: more than random loss takes.
const LOSS_PART: u64 = 20;
const LOSS_LEAST: u64 = 4;
/// Lacking packets of a peer that count for each packet of a rendezvous transfer that it brings:
/// who brings nothing was not asked for too much, whatever numbers it skips. 8: a burst that is
/// dropped whole still counts with the little that is left of it, and incasts are what they were
/// without this bound.
const LACK_PER_PACKET: u64 = 8;
/// Packets in intervals without such loss that let the budget grow again.
const GROWS_FROM_PACKETS: u64 = 16;
/// The scale of the budget, in [`SCALE_ONE`]ths: what a loss leaves, where it ends (an eighth: 32
/// KiB of the default budget, two steps), and how it grows back (1/64 an interval at most: slower
/// than it falls, or every second interval would lose).
pub(super) const SCALE_ONE: u64 = 256;
const SCALE_KEEPS: (u64, u64) = (7, 10);
pub(super) const SCALE_MIN: u64 = 32;
const SCALE_GROWS: u64 = 4;

impl Grants {
    /// Feeds the meter: a packet of the peer with `bytes` of rendezvous transfer data came, marked
    /// by a switch or not; `missing` more (or fewer) are lacking.
    pub fn measure(&mut self, now: Time, peer: PeerId, (bytes, is_marked): (u64, bool), missing: i64, base_ns: u64) {
        let interval = self.meter.interval;
        let a = self.account(peer);
        if a.interval != interval {
            (a.interval, a.lacking, a.may_lack) = (interval, 0, 0);
        }
        let before = a.lacking.min(a.may_lack);
        a.lacking = a.lacking.saturating_add_signed(missing);
        a.may_lack += if bytes > 0 { LACK_PER_PACKET } else { 0 };
        let after = a.lacking.min(a.may_lack);
        let m = &mut self.meter;
        m.bytes += bytes;
        m.packets += 1;
        m.rndv_packets += u64::from(bytes > 0);
        m.marked += u64::from(bytes > 0 && is_marked);
        m.missing = m.missing + after - before;
        m.base_ns = m.base_ns.max(base_ns);
        let elapsed = now.since_ns(m.started);
        if elapsed < METER_NS.max(m.base_ns) {
            return;
        }
        if elapsed < METER_STALE * METER_NS.max(m.base_ns) {
            let rate = (u128::from(m.bytes) * 1_000_000_000 / u128::from(elapsed)) as u64;
            m.rate = rate.max(m.rate - m.rate / RATE_FADES_PART);
            m.rtt_ns = m.base_ns;
        }
        // A switch that drops a twentieth and more of what was asked for was asked for too much.
        if m.missing * LOSS_PART > m.packets && m.missing >= LOSS_LEAST {
            self.scale = (self.scale * SCALE_KEEPS.0 / SCALE_KEEPS.1).max(SCALE_MIN);
            (self.unharmed, self.clean) = (0, 0);
        } else {
            self.unharmed += m.packets;
            self.clean += m.packets;
        }
        if m.marked > 0 && self.unharmed > 0 {
            // Half of the part that was marked, as DCTCP; not averaged, for what an interval brings
            // is as many packets as many rounds of a window.
            self.unmarked = (self.unmarked - self.unmarked * m.marked / m.rndv_packets / 2).max(SCALE_MIN);
            self.cuts += 1;
            self.clean = 0;
        }
        // Each for itself: where others have every interval marked, what loss took comes back all
        // the same.
        for (part, packets) in [(&mut self.scale, &mut self.unharmed), (&mut self.unmarked, &mut self.clean)] {
            if *packets >= GROWS_FROM_PACKETS {
                (*part, *packets) = ((*part + SCALE_GROWS).min(SCALE_ONE), 0);
            }
        }
        *m = Meter { started: now, interval: interval + 1, rate: m.rate, rtt_ns: m.rtt_ns, ..Meter::default() };
    }

    /// Intervals so far after which the budget was made smaller because of marks.
    #[must_use]
    pub fn marked_intervals(&self) -> u64 {
        self.cuts
    }
}

#[cfg(test)]
mod tests {
    use super::super::BUDGET_MIN;
    use super::*;
    use crate::Config;

    const MS: u64 = 1_000_000;

    // spec: P-5.19
    /// An interval of the meter of a hundred packets at `rate` packets a millisecond, so many
    /// marked.
    fn interval(g: &mut Grants, now: &mut u64, marked: usize, rtt_ns: u64) {
        for i in 0..100 {
            *now += rtt_ns.max(METER_NS) / 100;
            g.measure(Time(*now), PeerId(0), (1428, i < marked), 0, rtt_ns);
        }
    }

    // spec: P-6.30, P-10.8
    #[test]
    fn marks_shrink_what_waits_in_queues_and_not_what_the_wires_hold() {
        let mut g = Grants::new(&Config::default());
        let mut now = 1_000_000_000;
        // The first packet of all begins an interval.
        g.measure(Time(now), PeerId(0), (1428, false), 0, 0);
        interval(&mut g, &mut now, 0, METER_NS);
        let (wire, whole) = (g.wire(4), g.budget());
        assert!(wire > 100_000 && whole > wire + 256 * 1024, "{wire} {whole}");
        interval(&mut g, &mut now, 100, METER_NS);
        assert_eq!(g.unmarked, SCALE_ONE / 2, "all marked: half is left");
        interval(&mut g, &mut now, 10, METER_NS);
        assert_eq!(g.unmarked, SCALE_ONE / 2 - 6, "a tenth marked: a twentieth less");
        (0..20).for_each(|_| interval(&mut g, &mut now, 100, METER_NS));
        let least = g.budget() - g.wire(4);
        assert!((BUDGET_MIN..BUDGET_MIN + 8192).contains(&least), "{least} above the wire");
        assert_eq!((g.scale, g.marked_intervals()), (SCALE_ONE, 22));
        (0..64).for_each(|_| interval(&mut g, &mut now, 0, METER_NS));
        assert_eq!(g.unmarked, SCALE_ONE);
        // Marks on what brings nothing say nothing.
        for _ in 0..200 {
            now += METER_NS / 100;
            g.measure(Time(now), PeerId(0), (0, true), 0, 0);
        }
        assert_eq!((g.unmarked, g.marked_intervals()), (SCALE_ONE, 22));
    }

    // spec: P-5.26
    #[test]
    fn what_loss_took_comes_back_where_every_interval_is_marked() {
        let mut g = Grants::new(&Config::default());
        let mut now = 1_000_000_000;
        g.scale = SCALE_MIN;
        (0..100).for_each(|_| interval(&mut g, &mut now, 3, METER_NS));
        assert_eq!(g.scale, SCALE_ONE);
    }

    // spec: P-5.26
    #[test]
    fn what_loss_took_comes_back_on_a_slow_wire_too() {
        for packets_per_ms in [3, 8, 80] {
            let mut g = Grants::new(&Config::default());
            let mut now = 0;
            let mut come = |g: &mut Grants, packets: u64, missing: i64| {
                for nth in 0..packets {
                    now += MS / packets_per_ms + 1;
                    g.measure(Time(now), PeerId(0), (1400, false), if nth == 0 { missing } else { 0 }, 0);
                }
            };
            // (The first interval ends with its first packet.)
            come(&mut g, 1, 0);
            while g.scale > SCALE_MIN {
                come(&mut g, packets_per_ms, 4 + packets_per_ms as i64 / LOSS_PART as i64);
            }
            assert_eq!(g.budget(), BUDGET_MIN);
            let most = (SCALE_ONE - SCALE_MIN) / SCALE_GROWS * (GROWS_FROM_PACKETS + packets_per_ms);
            come(&mut g, most, 0);
            assert_eq!(g.scale, SCALE_ONE, "{packets_per_ms} packets a millisecond");
        }
    }
}
