//! NewReno as in RFC 9002 section 7, for comparison with the default.

use super::{Acked, Congestion};
use crate::{Config, Time};

/// State of RFC 9002 7.3.
#[derive(Clone, Debug)]
pub(crate) struct Reno {
    window: u64,
    ssthresh: u64,
    recovery_start: Option<Time>,
    limited: bool,
    mtu: u64,
    initial_packets: u64,
    min_packets: u64,
    burst_packets: u64,
    max: u64,
    acked_in_avoidance: u64,
    marked_rounds: u64,
}

impl Reno {
    pub(crate) fn new(cfg: &Config, mtu: u64) -> Self {
        Reno {
            window: u64::from(cfg.initial_window_packets) * mtu,
            ssthresh: u64::MAX,
            recovery_start: None,
            limited: false,
            mtu,
            initial_packets: u64::from(cfg.initial_window_packets),
            min_packets: u64::from(cfg.min_window_packets),
            burst_packets: u64::from(cfg.pacing_burst_packets),
            max: cfg.max_window_bytes,
            acked_in_avoidance: 0,
            marked_rounds: 0,
        }
    }

    /// What was sent at `sent_at` met congestion. True if that is news.
    fn halve(&mut self, now: Time, sent_at: Time) -> bool {
        if self.recovery_start.is_some_and(|t| sent_at <= t) {
            return false;
        }
        self.recovery_start = Some(now);
        self.window = (self.window / 2).max(self.min_packets * self.mtu);
        self.ssthresh = self.window;
        true
    }
}

impl Congestion for Reno {
    fn on_sent(&mut self, _now: Time, _bytes: u64, limited: bool, _was_idle: bool) {
        self.limited |= limited;
    }

    fn on_ack(&mut self, a: &Acked) {
        // A mark is taken as a loss (RFC 9002, 7.1).
        if a.marked > 0 && self.halve(a.now, a.sent_at) {
            self.marked_rounds += 1;
        }
        if self.recovery_start.is_some_and(|t| a.sent_at <= t) || !self.limited {
            return;
        }
        if self.window < self.ssthresh {
            self.window += a.bytes;
        } else {
            self.acked_in_avoidance += a.bytes;
            if self.acked_in_avoidance >= self.window {
                self.acked_in_avoidance -= self.window;
                self.window += self.mtu;
            }
        }
        self.window = self.window.min(self.max);
        if a.newest_seq == a.sent_seq {
            self.limited = false;
        }
    }

    fn on_loss(&mut self, now: Time, _bytes: u64, _packets: u32, sent_at: Time) {
        self.halve(now, sent_at);
    }

    fn on_spurious(&mut self, _bytes: u64) {}

    fn on_timeout(&mut self, _now: Time, count: u32) {
        if count >= 3 {
            self.window = self.min_packets * self.mtu;
            self.recovery_start = None;
        }
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn pacing_quarters(&self) -> u64 {
        if self.window < self.ssthresh { 8 } else { 5 }
    }

    fn burst_packets(&self) -> u64 {
        self.burst_packets
    }

    fn rate(&self) -> u64 {
        0
    }

    fn marked_rounds(&self) -> u64 {
        self.marked_rounds
    }

    fn on_mtu(&mut self, mtu: u64) {
        self.window = self.window.max(self.min_packets * mtu);
        self.mtu = mtu;
    }

    fn reset(&mut self) {
        self.window = self.initial_packets * self.mtu;
        self.ssthresh = u64::MAX;
        self.recovery_start = None;
        self.acked_in_avoidance = 0;
    }
}
