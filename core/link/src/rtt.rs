//! Round-trip time of one path: smoothed as in RFC 9002 section 5, and the minimum of the last ten seconds.

use crate::Time;

/// Half of the window over which the minimum is kept.
const HALF_WINDOW_NS: u64 = 5_000_000_000;

/// Estimator; all values in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    pub(crate) srtt: u64,
    pub(crate) var: u64,
    pub(crate) latest: u64,
    pub(crate) sampled: bool,
    /// Minimum of the running half window and of the one before.
    min_now: u64,
    min_before: u64,
    half_started: Time,
}

impl Rtt {
    pub(crate) fn new(initial_ns: u64) -> Self {
        Rtt {
            srtt: initial_ns,
            var: initial_ns / 2,
            latest: initial_ns,
            sampled: false,
            min_now: u64::MAX,
            min_before: u64::MAX,
            half_started: Time::ZERO,
        }
    }

    /// A sample: `raw` from sending to the acknowledgement's arrival, `delay` of it spent at the receiver on purpose.
    pub(crate) fn sample(&mut self, now: Time, raw: u64, delay: u64) {
        if now.since_ns(self.half_started) > HALF_WINDOW_NS {
            self.min_before =
                if now.since_ns(self.half_started) > 2 * HALF_WINDOW_NS { u64::MAX } else { self.min_now };
            self.min_now = u64::MAX;
            self.half_started = now;
        }
        // The minimum is of what was measured: the delay is the peer's word. One that would make the sample smaller than
        // anything seen is not believed (RFC 9002 5.2, 5.3).
        self.min_now = self.min_now.min(raw.max(1));
        let adjusted = if raw >= self.min().saturating_add(delay) { raw - delay } else { raw };
        self.latest = adjusted;
        if self.sampled {
            let dev = self.srtt.abs_diff(adjusted);
            self.var = (3 * self.var + dev) / 4;
            self.srtt = (7 * self.srtt + adjusted) / 8;
        } else {
            self.sampled = true;
            self.srtt = adjusted;
            self.var = adjusted / 2;
        }
    }

    fn min(&self) -> u64 {
        self.min_now.min(self.min_before)
    }

    /// Smallest round trip of the last ten seconds, the smoothed one before any sample.
    pub(crate) fn base(&self) -> u64 {
        let m = self.min();
        if m == u64::MAX { self.srtt } else { m }
    }

    /// Probe timeout without back-off (spec 4).
    pub(crate) fn pto(&self, var_min: u64, ack_delay_max: u64) -> u64 {
        self.srtt + (4 * self.var).max(var_min) + ack_delay_max.max(self.srtt / 8)
    }

    /// How long an acknowledgement may wait for more to acknowledge: an eighth of a round trip changes little for the
    /// sender, and on long paths spares most of the packets that carry nothing else.
    pub(crate) fn ack_delay(&self, least: core::time::Duration) -> u64 {
        let least = least.as_nanos() as u64;
        if self.sampled { least.max(self.srtt / 8) } else { least }
    }
}
