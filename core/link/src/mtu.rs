//! Search for the largest datagram a path carries, and the black hole test (RFC 8899, spec 8).

use weir_wire::frame::{ACK_HEAD_LEN, MSG_HEAD_LEN, PING_LEN};

use crate::{Config, Level, Time};

/// Tries of one size before it is given up (RFC 8899 MAX_PROBES).
const TRIES: u8 = 3;
/// Sizes tried besides the interface's own: jumbo Ethernet, Ethernet over IPv4 and IPv6, common
/// tunnels.
const CANDIDATES: [u16; 4] = [8972, 1472, 1452, 1400];
/// Losses of big packets in a row that make a black hole.
const BLACK_HOLE_LOSSES: u8 = 3;

/// State of the search on one path.
#[derive(Clone, Debug)]
pub(crate) struct MtuSearch {
    size: u16,
    base: u16,
    max: u16,
    /// Size being tried, how often it was sent, when the next try is due.
    trying: u16,
    tries: u8,
    due: Time,
    enabled: bool,
    big_losses: u8,
    /// When the first of them was found.
    big_lost_at: Time,
    small_acked_since: bool,
}

impl MtuSearch {
    pub(crate) fn new(cfg: &Config, max: u16) -> Self {
        let base = cfg.mtu_base.min(max);
        MtuSearch {
            size: base,
            base,
            max,
            trying: max,
            tries: 0,
            due: Time::ZERO,
            enabled: cfg.mtu_probing,
            big_losses: 0,
            big_lost_at: Time::ZERO,
            small_acked_since: false,
        }
    }

    /// Largest datagram known to pass.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// The size to send on the `ptos`-th probe timeout in a row: small ones find out a black hole.
    pub(crate) fn size_for(&self, ptos: u32) -> u16 {
        if ptos >= 2 { self.base } else { self.size }
    }

    /// When the next probe is due.
    pub(crate) fn due(&self) -> Option<Time> {
        (self.enabled && self.trying > self.size).then_some(self.due)
    }

    /// A probe goes out now; `again_ns`: how long to wait for its acknowledgement.
    pub(crate) fn probe(&mut self, now: Time, again_ns: u64) -> Option<u16> {
        if self.due().is_none_or(|t| t > now) {
            return None;
        }
        if self.tries >= TRIES {
            self.tries = 0;
            self.trying = CANDIDATES.iter().copied().find(|c| *c < self.trying && *c > self.size).unwrap_or(self.size);
            if self.trying <= self.size {
                return None;
            }
        }
        self.tries += 1;
        self.due = now.plus_ns(again_ns);
        Some(self.trying)
    }

    /// A probe of this size was acknowledged. True if the size grew.
    pub(crate) fn on_probe_acked(&mut self, size: u16) -> bool {
        if size <= self.size || size > self.max {
            return false;
        }
        self.size = size;
        self.big_losses = 0;
        // Candidates come from the top: what is above was tried in vain.
        self.trying = size;
        self.tries = 0;
        true
    }

    pub(crate) fn on_acked(&mut self, size: u16) {
        if size > self.base {
            self.big_losses = 0;
            self.small_acked_since = false;
        } else if self.big_losses > 0 {
            self.small_acked_since = true;
        }
    }

    /// A data packet was lost.
    pub(crate) fn on_lost(&mut self, now: Time, size: u16) {
        if size <= self.base || self.size <= self.base {
            return;
        }
        if self.big_losses == 0 {
            self.big_lost_at = now;
            self.small_acked_since = false;
        }
        self.big_losses = self.big_losses.saturating_add(1);
    }

    /// Whether [`Self::test`] has anything to judge.
    #[inline]
    pub(crate) fn is_suspect(&self) -> bool {
        self.big_losses >= BLACK_HOLE_LOSSES && self.small_acked_since
    }

    /// Black hole by what is known now? Reordering alone must not look like one, so `settle_ns`
    /// must have passed since the first loss without a big packet getting through. True: the size
    /// is back to the base.
    pub(crate) fn test(&mut self, now: Time, settle_ns: u64, cfg: &Config) -> bool {
        if !self.is_suspect() || now.since_ns(self.big_lost_at) < settle_ns {
            return false;
        }
        self.size = self.base;
        self.big_losses = 0;
        self.small_acked_since = false;
        self.trying = self.max;
        self.tries = 0;
        self.due = now + cfg.mtu_retry;
        true
    }
}

/// Payload and envelope of a message that fits one packet beside a plain acknowledgement.
pub(crate) fn message_room(datagram: u16, level: Level) -> usize {
    usize::from(datagram).saturating_sub(level.overhead() + MSG_HEAD_LEN + ACK_HEAD_LEN + PING_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: P-8.10, P-8.11
    #[test]
    fn search_from_the_top_then_black_hole() {
        let cfg = Config::default();
        let mut m = MtuSearch::new(&cfg, 8972);
        let mut now = Time(1);
        let mut sizes = alloc::vec::Vec::new();
        while let Some(s) = m.probe(now, 10) {
            sizes.push(s);
            if s == 1472 {
                assert!(m.on_probe_acked(s));
            }
            now = now.plus_ns(10);
        }
        assert_eq!(sizes, [8972, 8972, 8972, 1472]);
        assert_eq!(m.size(), 1472);
        for _ in 0..3 {
            m.on_lost(now, 1472);
        }
        m.on_acked(600);
        assert!(!m.test(now, 100, &cfg));
        now = now.plus_ns(100);
        assert!(m.test(now, 100, &cfg));
        assert_eq!(m.size(), 1200);
        assert_eq!(m.due(), Some(now + cfg.mtu_retry));
    }
}
