//! Congestion control: what a controller is told and what it answers (spec 6), and the pacer that
//! spreads its window.

mod both_ways;
mod marks;
mod noncongestive;
mod reno;
mod target;

use alloc::boxed::Box;
use core::fmt::Debug;

pub use both_ways::Came;
pub(crate) use reno::Reno;
pub(crate) use target::Target;

use crate::scale::mul_div;
use crate::{Config, CongestionKind, Time};

/// What one acknowledgement brought on one path.
#[derive(Copy, Clone, Debug)]
pub struct Acked {
    /// Now.
    pub now: Time,
    /// Bytes newly acknowledged.
    pub bytes: u64,
    /// Packets newly acknowledged.
    pub packets: u32,
    /// Packets that are news to be marked by a switch.
    pub marked: u32,
    /// Round trip of the newest of them if it is certain enough to steer by, nanoseconds.
    pub rtt_ns: Option<u64>,
    /// If it is: the round trip with the way back, less what processes were late by, nanoseconds.
    pub whole_rtt_ns: u64,
    /// Smallest round trip of the path, nanoseconds.
    pub base_ns: u64,
    /// Path sequence number of the newest acknowledged packet, and of the newest sent.
    pub newest_seq: u32,
    /// See `newest_seq`.
    pub sent_seq: u32,
    /// When the newest acknowledged packet was sent.
    pub sent_at: Time,
    /// When the oldest of the newly acknowledged packets was sent.
    pub oldest_sent_at: Time,
    /// Packet size in bytes.
    pub mtu: u64,
    /// What has come so far.
    pub came: Came,
}

/// A controller of one path's window.
pub trait Congestion: Debug + Send + Sync {
    /// A packet of `bytes` is sent; `limited`: the window is full with it; `was_idle`: nothing was
    /// in flight before.
    fn on_sent(&mut self, now: Time, bytes: u64, limited: bool, was_idle: bool);
    /// Packets were acknowledged.
    fn on_ack(&mut self, a: &Acked);
    /// `bytes` in `packets` packets were declared lost, the newest of them sent at `sent_at`.
    fn on_loss(&mut self, now: Time, bytes: u64, packets: u32, sent_at: Time);
    /// `bytes` in one packet declared lost arrived after all.
    fn on_spurious(&mut self, bytes: u64);
    /// The `count`-th probe timeout in a row fired.
    fn on_timeout(&mut self, now: Time, count: u32);
    /// Bytes that may be in flight.
    fn window(&self) -> u64;
    /// Pacing rate in windows per smoothed round trip, times 4.
    fn pacing_quarters(&self) -> u64;
    /// Packets the pacer may let out at once, whatever the rate.
    fn burst_packets(&self) -> u64;
    /// Measured delivery rate in bytes per second, 0 if unknown.
    fn rate(&self) -> u64;
    /// Delay of others' making, such as jitter, that is there beside the least round trip,
    /// nanoseconds (spec 6.3).
    fn noncongestive_ns(&self) -> u64 {
        0
    }
    /// Bulk data goes both ways (spec 6.10).
    fn is_both_ways(&self) -> bool {
        false
    }
    /// While it does: what a round trip takes beside the least though nothing else is in flight,
    /// nanoseconds.
    fn alone_ns(&self) -> u64 {
        0
    }
    /// Rounds so far after which the window was made smaller because of marks.
    fn marked_rounds(&self) -> u64 {
        0
    }
    /// The packet size of the path changed.
    fn on_mtu(&mut self, mtu: u64);
    /// The receiver grants one sender after another what it knows is coming: its grants bound what
    /// waits at its port, and a delay is mostly this host's own interface (`spec/superstep.md` 6).
    fn set_granted(&mut self, _on: bool) {}
    /// Everything starts over (the path came back after a failure).
    fn reset(&mut self);
}

/// Makes the controller the configuration asks for.
pub(crate) fn make(cfg: &Config, mtu: u64) -> Box<dyn Congestion> {
    match cfg.congestion {
        CongestionKind::Target => Box::new(Target::new(cfg, mtu)),
        CongestionKind::Reno => Box::new(Reno::new(cfg, mtu)),
    }
}

/// Spreads a window over the round trip: a virtual clock that may run ahead of the real one by one
/// burst.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pacer {
    /// When the virtual sender is done with all that was sent.
    done: Time,
    /// Cost of a byte in 1/65536 ns.
    byte_cost: u64,
    /// How far `done` may lie in the future.
    burst_ns: u64,
}

impl Pacer {
    /// Sets the rate from window and round trip; `burst_min` and `burst_max` in bytes.
    pub(crate) fn set(&mut self, window: u64, quarters: u64, srtt_ns: u64, burst_min: u64, burst_max: u64) {
        let per_rtt = (window * quarters / 4).max(1);
        self.byte_cost = mul_div(srtt_ns, 1 << 16, per_rtt).min(1 << 40);
        // Bytes in 100 us at this rate.
        let in_100us = (100_000u64 << 16).checked_div(self.byte_cost).unwrap_or(burst_max);
        let burst = in_100us.clamp(burst_min, burst_max.max(burst_min));
        self.burst_ns = (burst * self.byte_cost) >> 16;
    }

    /// A packet may go now.
    pub(crate) fn open(&self, now: Time) -> bool {
        self.done.0 <= now.0.saturating_add(self.burst_ns)
    }

    /// When it is worth trying again: half a burst can go then.
    pub(crate) fn opens_at(&self) -> Time {
        Time(self.done.0.saturating_sub(self.burst_ns / 2))
    }

    pub(crate) fn on_sent(&mut self, now: Time, bytes: u64) {
        self.done = Time(self.done.0.max(now.0) + ((bytes * self.byte_cost) >> 16));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: P-6.14
    #[test]
    fn pacer_holds_its_rate() {
        let mut p = Pacer::default();
        // 100 kB per ms at gain 1: 100 MB/s.
        p.set(100_000, 4, 1_000_000, 3000, 65536);
        let (mut now, mut sent) = (Time::ZERO, 0u64);
        while now.0 < 100_000_000 {
            while p.open(now) {
                p.on_sent(now, 1500);
                sent += 1500;
            }
            assert!(p.opens_at() > now);
            now = p.opens_at();
        }
        let want = 10_000_000f64;
        assert!((sent as f64 - want).abs() < want * 0.02, "{sent}");
    }
}
