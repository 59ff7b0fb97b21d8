//! What a pipe is like: plain data.

use crate::{Chance, TimeNs};

/// How much may wait for a pipe; a packet that does not fit is dropped as it comes (tail drop).
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct QueueLimit {
    /// Most packets that may wait; `None` for no limit.
    pub packets: Option<u32>,
    /// Most bytes that may wait; `None` for no limit.
    pub bytes: Option<u64>,
    /// The packet being sent counts as waiting until its last bit has left, as in a switch that
    /// frees its memory then. If not, it does not count, and one that need not wait is always
    /// taken.
    pub counts_sending: bool,
}

/// From how much waiting on a queue marks what comes (RFC 3168): its length as the packet comes,
/// that packet not counted, as a switch with one threshold does (RFC 8257, 3.1).
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Mark {
    /// So many packets wait; `None`: packets do not matter.
    pub packets: Option<u32>,
    /// So many bytes wait.
    pub bytes: Option<u64>,
}

impl Mark {
    /// Whether a packet is marked that finds so much waiting.
    pub(crate) fn is_reached(&self, packets: u64, bytes: u64) -> bool {
        self.packets.is_some_and(|k| packets >= u64::from(k)) || self.bytes.is_some_and(|k| bytes >= k)
    }
}

/// Two-state loss (Gilbert-Elliott): before each packet the state may change; in the bad state
/// packets are lost with a chance of its own.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Burst {
    /// From the good state, in which it begins, to the bad.
    pub to_bad: Chance,
    /// From the bad state to the good; the inverse is the mean length of a burst in packets.
    pub to_good: Chance,
    /// Loss in the bad state.
    pub loss: Chance,
    /// Each such time without a packet may change the state too, up to [`Burst::IDLE_STEPS_MAX`]
    /// times; 0: only packets do. Without it whoever backs off never sees the end of a burst.
    pub idle_step_ns: TimeNs,
}

impl Burst {
    /// Most changes of state for the time before one packet.
    pub const IDLE_STEPS_MAX: u64 = 100;
}

/// Loss on the wire, after the queue: a lost packet has used its share of the rate.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Loss {
    /// Each packet is lost independently with this probability; with bursts, in the good state.
    pub each: Chance,
    /// Bursts.
    pub burst: Option<Burst>,
}

impl Loss {
    /// Nothing is lost.
    pub const NONE: Loss = Loss { each: Chance::NEVER, burst: None };

    /// Each packet is lost independently with this probability.
    #[must_use]
    pub const fn independent(each: Chance) -> Self {
        Loss { each, burst: None }
    }

    /// The share of packets lost in the long run, in `[0, 1]`; time without packets aside.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let each = self.each.fraction();
        let Some(b) = self.burst else { return each };
        let (to_bad, to_good) = (b.to_bad.fraction(), b.to_good.fraction());
        if to_bad <= 0.0 {
            return each; // it never leaves the good state
        }
        let bad = to_bad / (to_bad + to_good);
        bad * b.loss.fraction() + (1.0 - bad) * each
    }
}

/// Holding some packets back so that later ones overtake them.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Reorder {
    /// Probability that a packet is held back.
    pub chance: Chance,
    /// The least that it is held beyond the pipe's own delay and jitter.
    pub least_ns: TimeNs,
    /// The most; uniform between the two.
    pub most_ns: TimeNs,
}

/// Everything one direction of a link does to packets. The default does nothing: infinite rate, no
/// delay, no fault.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PipeSpec {
    /// Bytes per second; 0: infinitely fast.
    pub rate_bytes_per_s: u64,
    /// Bytes added to each packet where time is computed (what it costs on the wire besides).
    pub wire_overhead_bytes: u32,
    /// Bytes added to each packet where memory is counted.
    pub queue_overhead_bytes: u32,
    /// What may wait.
    pub queue: QueueLimit,
    /// When it marks packets that are ECN-capable; by default never.
    pub mark: Mark,
    /// Propagation time.
    pub delay_ns: TimeNs,
    /// Extra delay, uniform in `0..=jitter_ns`, that never reorders: a packet does not arrive
    /// before its predecessor.
    pub jitter_ns: TimeNs,
    /// Loss.
    pub loss: Loss,
    /// Probability of a second copy. It has a jitter of its own and is not damaged.
    pub duplicate: Chance,
    /// The copy comes up to so much later than it would as a packet.
    pub duplicate_ns: TimeNs,
    /// Held-back packets.
    pub reorder: Reorder,
    /// Probability of damage that checksums notice.
    pub corrupt: Chance,
    /// Probability of damage that the Internet checksum does not notice.
    pub corrupt_hidden: Chance,
    /// Longer packets vanish.
    pub mtu_bytes: u32,
}

impl Default for PipeSpec {
    fn default() -> Self {
        PipeSpec {
            rate_bytes_per_s: 0,
            wire_overhead_bytes: 0,
            queue_overhead_bytes: 0,
            queue: QueueLimit::default(),
            mark: Mark::default(),
            delay_ns: 0,
            jitter_ns: 0,
            loss: Loss::NONE,
            duplicate: Chance::NEVER,
            duplicate_ns: 0,
            reorder: Reorder::default(),
            corrupt: Chance::NEVER,
            corrupt_hidden: Chance::NEVER,
            mtu_bytes: u32::MAX,
        }
    }
}

impl PipeSpec {
    /// How long a packet of `bytes` occupies the pipe.
    #[must_use]
    pub fn serialise_ns(&self, bytes: u64) -> TimeNs {
        serialise_ns(self.rate_bytes_per_s, bytes.saturating_add(u64::from(self.wire_overhead_bytes)))
    }

    /// The least time that a packet of `bytes` can take through the pipe.
    #[must_use]
    pub fn least_ns(&self, bytes: u64) -> TimeNs {
        self.serialise_ns(bytes).saturating_add(self.delay_ns)
    }
}

/// How long so many bytes take at a rate (0: infinitely fast), rounded up.
#[must_use]
pub fn serialise_ns(rate_bytes_per_s: u64, bytes: u64) -> TimeNs {
    const SEC_NS: u64 = 1_000_000_000;
    if rate_bytes_per_s == 0 {
        return 0;
    }
    match bytes.checked_mul(SEC_NS) {
        Some(product) => product.div_ceil(rate_bytes_per_s),
        None => (u128::from(bytes) * u128::from(SEC_NS))
            .div_ceil(u128::from(rate_bytes_per_s))
            .try_into()
            .unwrap_or(TimeNs::MAX),
    }
}
