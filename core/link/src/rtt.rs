//! Round-trip time of one path: smoothed as in RFC 9002 section 5, and the minimum of the last ten
//! seconds.

use crate::Time;

/// A reading of a clock as ACK frames have it: microseconds, modulo 2^32.
pub(crate) fn clock_us(t: Time) -> u32 {
    (t.0 / 1000) as u32
}

/// The time that packets take to the peer, by two clocks that nobody has set alike: what it is more
/// than the least of the last ten seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct OneWay {
    /// Least differences of the running half window and of the one before, microseconds modulo
    /// 2^32.
    now: Option<u32>,
    before: Option<u32>,
    half_started: Time,
}

impl OneWay {
    /// A packet sent at `sent_us` of our clock was read at `read_us` of the peer's. Returns how
    /// much longer it took than the fastest, nanoseconds.
    pub(crate) fn sample(&mut self, now: Time, sent_us: u32, read_us: u32) -> u64 {
        let since_ns = now.since_ns(self.half_started);
        if since_ns > HALF_WINDOW_NS {
            self.before = if since_ns > 2 * HALF_WINDOW_NS { None } else { self.now };
            (self.now, self.half_started) = (None, now);
        }
        let took = read_us.wrapping_sub(sent_us);
        let beyond = |least: Option<u32>| least.map_or(0, |least| took.wrapping_sub(least) as i32);
        if self.now.is_none() || beyond(self.now) < 0 {
            self.now = Some(took);
        }
        beyond(self.now).max(beyond(self.before)).max(0) as u64 * 1000
    }
}

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

    /// A sample: `raw` from sending to the acknowledgement's arrival, `delay` of it spent at the
    /// receiver on purpose.
    pub(crate) fn sample(&mut self, now: Time, raw: u64, delay: u64) {
        if now.since_ns(self.half_started) > HALF_WINDOW_NS {
            self.min_before =
                if now.since_ns(self.half_started) > 2 * HALF_WINDOW_NS { u64::MAX } else { self.min_now };
            self.min_now = u64::MAX;
            self.half_started = now;
        }
        // The minimum is of what was measured: the delay is the peer's word. One that would make
        // the sample smaller than anything seen is not believed (RFC 9002 5.2, 5.3).
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

    /// Before anything is sampled: an exchange of the handshake took so long. Probe timeouts are to
    /// be longer than that; pacing knows nothing of it.
    pub(crate) fn suppose(&mut self, took_ns: u64) {
        if !self.sampled {
            self.var = self.var.max(took_ns / 2);
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

    /// How long an acknowledgement may wait for more to acknowledge: an eighth of a round trip
    /// changes little for the sender, and on long paths spares most of the packets that carry
    /// nothing else.
    pub(crate) fn ack_delay(&self, least: core::time::Duration) -> u64 {
        let least = least.as_nanos() as u64;
        if self.sampled { least.max(self.srtt / 8) } else { least }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS_US: u32 = 1000;

    /// Time in milliseconds.
    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    // spec: P-4.10, P-6.3
    #[test]
    fn one_way_time_is_told_from_its_least_whatever_the_clocks_show() {
        // The peer's clock is ahead, behind, and passes 2^32 meanwhile.
        for offset in [0, 5_000_000, u32::MAX - 2 * MS_US, 0u32.wrapping_sub(1 << 31)] {
            let mut w = OneWay::default();
            let mut took = |ms: u64, us: u32| {
                let sent = ms as u32 * MS_US;
                w.sample(at(ms), sent, sent.wrapping_add(us).wrapping_add(offset))
            };
            assert_eq!(took(1, 700), 0);
            assert_eq!(took(2, 1200), 500_000);
            assert_eq!(took(3, 400), 0, "a new least");
            assert_eq!(took(4, 1200), 800_000);
            // The least is forgotten after 10 s, not before.
            assert_eq!(took(5006, 1200), 800_000);
            assert_eq!(took(9000, 1200), 800_000);
            assert_eq!(took(10_100, 1200), 0);
        }
    }

    // spec: P-6.3
    #[test]
    fn a_clock_that_drifts_hides_no_more_than_it_drifts_in_the_window() {
        // 100 parts per million, fast or slow, and a queue of 2 ms from 2 s on.
        for slow in [false, true] {
            let mut w = OneWay::default();
            for ms in 0..9000u64 {
                let drift = ms as u32 / 10;
                let queue = if ms >= 2000 { 2 * MS_US } else { 0 };
                let sent = ms as u32 * MS_US;
                let read = sent.wrapping_add(queue);
                let read = if slow { read.wrapping_sub(drift) } else { read.wrapping_add(drift) };
                let seen_us = w.sample(at(ms), sent, read) / 1000;
                let range = if slow {
                    u64::from(queue).saturating_sub(1000)..=u64::from(queue)
                } else {
                    u64::from(queue)..=u64::from(queue) + 1000
                };
                assert!(range.contains(&seen_us), "{ms} ms, slow {slow}: {seen_us} us");
            }
        }
    }
}
