//! Whose packet is next of those peers for which something waits (spec 6.9), and what may wait in
//! this host's own interface meanwhile.

use crate::{Endpoint, PeerId, Time};

/// What leaves in this time may wait in this host's interface, and all that wait have a turn in it:
/// as Linux has it for each TCP connection (TCP small queues).
const OWN_QUEUE_NS: u64 = 1_000_000;
/// At least so much may wait: 22 packets, in whose time a sleeper wakes.
const OWN_QUEUE_LEAST: u64 = 32 << 10;
/// So much while nobody knows what leaves: what Linux lets wait unless it is told otherwise.
const OWN_QUEUE_FIRST: u64 = 256 << 10;
/// Who was served less than others may catch up by so much.
const CATCH_UP: u64 = 64 << 10;
/// After so long without anybody who waits all begin anew.
const FORGOTTEN_NS: u64 = 10_000_000;
/// Who was served less by no more than this waits as all do: else who asks again and again would be
/// served twice, now and then, before another is once.
const ALIKE: u64 = 4 << 10;
/// Those that somebody passes at once, at most: many may wait, and the first are served soon.
const PASSED_MOST: usize = 64;
/// What may wait in the interface is bounded for so long after several waited at once.
const CROWDED_NS: u64 = 1_000_000_000;
/// Least turn, bytes: as long as a step of grants.
const TURN_LEAST: u64 = 16 << 10;
/// A rate is that of so many bytes at least: of acknowledgements that come in a heap each tells of
/// 64 KiB.
const METER_BYTES: u64 = 128 << 10;
/// And of so much time.
const METER_NS: u64 = 1_000_000;

/// What leaves this endpoint, by what is acknowledged of it, whatever the peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outflow {
    since: Time,
    bytes: u64,
    /// Bytes per second; 0: not known.
    rate: u64,
}

impl Outflow {
    pub(crate) fn on_acked(&mut self, now: Time, bytes: u64) {
        if self.since == Time::ZERO {
            self.since = now;
        }
        self.bytes += bytes;
        if self.bytes < METER_BYTES {
            return;
        }
        let elapsed = now.since_ns(self.since);
        if elapsed >= METER_NS {
            let rate = crate::scale::mul_div(self.bytes, 1_000_000_000, elapsed).min(1 << 50);
            // (Time without anything to send is in some of these.)
            self.rate = rate.max(self.rate - self.rate / 8);
            (self.since, self.bytes) = (now, 0);
        }
    }

    /// What may wait in this host's interface, bytes: a power of two, so that it seldom changes.
    pub(crate) fn own_queue(&self) -> u64 {
        if self.rate == 0 {
            return OWN_QUEUE_FIRST;
        }
        crate::scale::mul_div(self.rate, OWN_QUEUE_NS, 1_000_000_000).max(OWN_QUEUE_LEAST).next_power_of_two()
    }
}

/// The order in which peers are served: who got least is next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    /// Packets of this turn.
    pub(crate) packets: u32,
    /// What whoever is served had got before: of all that wait the least.
    least: u64,
    /// What any had got at most.
    most: u64,
    /// Nobody waits, and since when.
    pub(crate) empty_since: Time,
    /// Several waited at once not long before this.
    crowded_until: Time,
}

impl Endpoint {
    /// What may wait in this host's interface now, bytes; `None`: as much as the system lets wait.
    /// Whoever moves packets sees to it.
    #[must_use]
    pub fn own_queue_bytes(&self, now: Time) -> Option<u64> {
        if !self.granted.is_empty() {
            return self.told_queue_bytes();
        }
        (now < self.turns.crowded_until).then(|| self.outflow.own_queue())
    }

    /// Whether [`Endpoint::own_queue_bytes`] follows what leaves: in a superstep it changes only with
    /// that.
    #[must_use]
    #[inline]
    pub fn own_queue_follows(&self) -> bool {
        self.granted.is_empty()
    }

    /// Packets to one peer before another is served.
    fn turn_packets(&self) -> u32 {
        if !self.granted.is_empty() {
            return self.cfg.told_batch_packets;
        }
        let each = (self.outflow.own_queue() / self.ready.len().max(1) as u64).max(TURN_LEAST);
        let packets = each / u64::from(self.cfg.max_datagram).max(1);
        packets.clamp(1, u64::from(self.cfg.peer_batch_packets.max(1))) as u32
    }

    /// Whether the peer in front has had its turn, and others wait.
    #[inline]
    pub(crate) fn is_others_turn(&self) -> bool {
        self.ready.len() > 1 && self.turns.packets >= self.turn_packets()
    }

    /// The peer in front has had its turn: it stands behind those that got no more than it.
    pub(crate) fn end_turn(&mut self) {
        self.turns.packets = 0;
        if let Some(peer) = self.ready.pop_front() {
            self.line_up(peer);
        }
    }

    /// Something waits for a peer.
    pub(crate) fn enter_line(&mut self, now: Time, peer: PeerId) {
        if self.ready.is_empty() && now.since_ns(self.turns.empty_since) >= FORGOTTEN_NS {
            self.turns.least = self.turns.most + CATCH_UP;
        }
        let a = &mut self.assocs[peer.0 as usize];
        a.ready = true;
        // What others got while it had nothing to send is not owed to it.
        a.served = a.served.max(self.turns.least.saturating_sub(CATCH_UP));
        if !self.ready.is_empty() {
            self.turns.crowded_until = now.plus_ns(CROWDED_NS);
        }
        self.line_up(peer);
    }

    fn line_up(&mut self, peer: PeerId) {
        let served = |peer: &PeerId| self.assocs[peer.0 as usize].served;
        let own = served(&peer);
        // A superstep has an order of its own, and so have slots.
        let has_order = !self.granted.is_empty() || self.sessions.common().slot().is_some();
        let most = if has_order { 0 } else { PASSED_MOST };
        // Who has its turn keeps it.
        let others = self.ready.len() - usize::from(self.turns.packets > 0).min(self.ready.len());
        let passes = |other: &&PeerId| served(other) > own + ALIKE;
        let passed = self.ready.iter().rev().take(others.min(most)).take_while(passes).count();
        self.ready.insert(self.ready.len() - passed, peer);
    }

    /// A packet of so many bytes to a peer was written.
    #[inline]
    pub(crate) fn count_turn_bytes(&mut self, peer: PeerId, bytes: u64) {
        if let Some(a) = self.assocs.get_mut(peer.0 as usize) {
            if self.turns.packets == 0 {
                self.turns.least = self.turns.least.max(a.served);
            }
            a.served += bytes;
            self.turns.most = self.turns.most.max(a.served);
        }
        self.turns.packets += 1;
    }
}
