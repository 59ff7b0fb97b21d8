//! The grant scheduler: which incoming body may send how far, over all peers of the endpoint (spec 5).

use alloc::vec::Vec;

use crate::{Config, PeerId, Time};

/// A body that has not been granted to its end.
#[derive(Copy, Clone, Debug)]
struct Waiting {
    peer: PeerId,
    handle: u64,
    len: u64,
    granted: u64,
    /// Since when it got nothing.
    since: Time,
    /// Later bodies served before it.
    overtaken: u8,
}

/// Measured over intervals: what came in.
#[derive(Debug, Default)]
struct Meter {
    started: Time,
    bytes: u64,
    packets: u64,
    missing: u64,
    base_ns: u64,
    rate: u64,
    rtt_ns: u64,
}

/// All bodies waiting for grants, in order of arrival.
#[derive(Debug)]
pub(crate) struct Grants {
    waiting: Vec<Waiting>,
    /// Granted and not received, all peers.
    outstanding: u64,
    floor: u64,
    ceiling: u64,
    step: u64,
    share: u64,
    overtake: u8,
    patience_ns: u64,
    /// Shrinks under loss, in 1/256.
    scale: u64,
    meter: Meter,
}

/// Interval of the meter.
const METER_NS: u64 = 1_000_000;

impl Grants {
    pub(crate) fn new(cfg: &Config) -> Self {
        Grants {
            waiting: Vec::new(),
            outstanding: 0,
            floor: cfg.grant_budget,
            ceiling: cfg.grant_budget_max.max(cfg.grant_budget),
            step: cfg.grant_step.max(1),
            share: cfg.grant_share,
            overtake: cfg.grant_overtake,
            patience_ns: cfg.grant_patience.as_nanos() as u64,
            scale: 256,
            meter: Meter::default(),
        }
    }

    /// Bytes that may be granted and unreceived: the configured budget plus what the wires hold (1.25 x rate x round
    /// trip), less after loss.
    fn budget(&self) -> u64 {
        let wire = u128::from(self.meter.rate) * u128::from(self.meter.rtt_ns) * 5 / 4 / 1_000_000_000;
        ((self.floor + wire as u64).min(self.ceiling) * self.scale / 256).max(32 << 10)
    }

    fn room(&self) -> u64 {
        self.budget().saturating_sub(self.outstanding)
    }

    /// A body was opened: what it may send at once. Registered if that is not all.
    pub(crate) fn open(&mut self, len: u64) -> u64 {
        let room = self.room();
        let granted = if self.waiting.is_empty() {
            len.min(room).min((room / 2).max(self.share))
        } else if room >= len.min(self.share) {
            len.min(self.share)
        } else {
            0
        };
        self.outstanding += granted;
        granted
    }

    /// Puts a body that is not granted to its end in the queue.
    pub(crate) fn wait(&mut self, now: Time, peer: PeerId, handle: u64, len: u64, granted: u64) {
        if granted < len {
            self.waiting.push(Waiting { peer, handle, len, granted, since: now, overtaken: 0 });
        }
    }

    /// Granted bytes arrived, or will not come any more.
    pub(crate) fn returned(&mut self, bytes: u64) {
        self.outstanding = self.outstanding.saturating_sub(bytes);
    }

    /// The body is gone.
    pub(crate) fn forget(&mut self, peer: PeerId, handle: u64) {
        self.waiting.retain(|w| w.peer != peer || w.handle != handle);
    }

    /// The peer is gone.
    pub(crate) fn forget_peer(&mut self, peer: PeerId) {
        self.waiting.retain(|w| w.peer != peer);
    }

    /// Feeds the meter: `bytes` of body data came, `packets` with them, `missing` more (or fewer) are lacking.
    pub(crate) fn measure(&mut self, now: Time, bytes: u64, packets: u64, missing: i64, base_ns: u64) {
        let m = &mut self.meter;
        m.bytes += bytes;
        m.packets += packets;
        m.missing = m.missing.saturating_add_signed(missing);
        m.base_ns = m.base_ns.max(base_ns);
        let elapsed = now.since_ns(m.started);
        if elapsed < METER_NS.max(m.base_ns) {
            return;
        }
        if elapsed < 8 * METER_NS.max(m.base_ns) {
            let rate = (u128::from(m.bytes) * 1_000_000_000 / u128::from(elapsed)) as u64;
            m.rate = rate.max(m.rate - m.rate / 8);
            m.rtt_ns = m.base_ns;
        }
        // A switch that drops a twentieth and more of what was asked for was asked for too much.
        if m.missing * 20 > m.packets && m.missing >= 4 {
            self.scale = (self.scale * 7 / 10).max(32);
        } else if m.packets >= 16 {
            self.scale = (self.scale + 4).min(256);
        }
        *m = Meter { started: now, rate: m.rate, rtt_ns: m.rtt_ns, ..Meter::default() };
    }

    /// Next body to raise and its new limit. Call until `None`.
    pub(crate) fn next(&mut self, now: Time) -> Option<(PeerId, u64, u64)> {
        let first = self.waiting.first()?;
        // Of those in front (the same that `deadline` looks at) the one that has waited longest beyond patience, else
        // the one with least to come, unless the first was overtaken often enough.
        let front = || self.waiting.iter().enumerate().take(usize::from(self.overtake) + 1);
        let impatient = front().filter(|(_, w)| now.since_ns(w.since) >= self.patience_ns).min_by_key(|(_, w)| w.since);
        // Starved bodies get one share above the budget.
        let starved = impatient.is_some();
        let pick = match impatient {
            Some((i, _)) => i,
            None if first.overtaken < self.overtake => front().min_by_key(|(_, w)| w.len - w.granted)?.0,
            None => 0,
        };
        let w = &self.waiting[pick];
        let left = w.len - w.granted;
        let room = if starved { self.room().max(self.step) } else { self.room() };
        if room < left.min(self.step) {
            return None;
        }
        let add = left.min(if starved { room.min(self.share.max(self.step)) } else { room });
        for e in &mut self.waiting[..pick] {
            e.overtaken = e.overtaken.saturating_add(1);
        }
        self.outstanding += add;
        let w = &mut self.waiting[pick];
        w.granted += add;
        w.since = now;
        w.overtaken = 0;
        let out = (w.peer, w.handle, w.granted);
        if w.granted == w.len {
            self.waiting.remove(pick);
        }
        Some(out)
    }

    /// Some body waits for more.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When a waiting body has lost patience.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.waiting.iter().take(usize::from(self.overtake) + 1).map(|w| w.since.plus_ns(self.patience_ns)).min()
    }

    #[cfg(test)]
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_stays_due_behind_a_first_that_was_served() {
        let cfg = Config { grant_budget: 64 << 10, ..Config::default() };
        let mut g = Grants::new(&cfg);
        for i in 0..3 {
            let granted = g.open(1 << 20);
            // The last has least to come: it is everyone's first choice.
            g.wait(Time(1 + i), PeerId(i as u32), 7, (1 << 20) - i * 65536, granted);
        }
        let late = Time(20_000_000);
        let mut served = [0; 3];
        while let Some((peer, ..)) = g.next(late) {
            served[peer.0 as usize] += 1;
        }
        assert_eq!(served, [1, 1, 1]);
        assert!(g.deadline().is_some_and(|t| t > late), "a deadline in the past that nothing answers is a busy loop");
    }

    #[test]
    fn budget_order_and_patience() {
        let cfg = Config { grant_budget: 256 << 10, ..Config::default() };
        let mut g = Grants::new(&cfg);
        let t = Time(1);
        let a = g.open(10 << 20);
        assert_eq!(a, 128 << 10);
        g.wait(t, PeerId(0), 1, 10 << 20, a);
        let b = g.open(1 << 20);
        assert_eq!(b, 64 << 10);
        g.wait(t, PeerId(1), 2, 1 << 20, b);
        // The smaller one first, up to the budget.
        assert_eq!(g.next(t), Some((PeerId(1), 2, 128 << 10)));
        assert_eq!(g.next(t), None);
        assert_eq!(g.outstanding(), 256 << 10);
        g.returned(16 << 10);
        assert_eq!(g.next(t), Some((PeerId(1), 2, 144 << 10)));
        // The big one has waited long enough.
        let late = Time(20_000_000);
        assert_eq!(g.next(late).map(|x| x.0), Some(PeerId(0)));
        g.forget_peer(PeerId(0));
        g.forget(PeerId(1), 2);
        assert_eq!(g.deadline(), None);
    }
}
