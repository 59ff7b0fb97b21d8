//! What one of several paths delivers, and whose turn it is (spec 8.1); `striping` chooses by it.

use crate::Time;

/// A packet as most networks take it: longer ones need as much time for as many bytes, and so few
/// of them tell as much.
pub(crate) const USUAL_BYTES: u64 = 1472;
/// A path whose train told nothing is tried again after so long, doubling up to 2^7 times it.
const TRY_NS: u64 = 10_000_000;
const TRIES_MAX: u8 = 7;
/// A train of so many packets, of at most [`USUAL_BYTES`], says what a path delivers; one of so
/// many bytes has said enough.
pub(crate) const TRAIN_PACKETS: u64 = 6;
const TRAIN_BYTES: u64 = 64 << 10;
/// Longer than this no train lasts whose window was never full: who sends now and then, and never
/// has nothing in flight, says nothing of the path. Six packets at 36 kbit/s.
const TRAIN_US: u32 = 2_000_000;
/// Weight of a train: a quarter.
const TRAIN_WEIGHT: u64 = 4;

/// What a path delivers, by the receiver's clock: bytes between two of its readings, over the time
/// between them. What waits in front of the first, and what the acknowledgements need on their way
/// back, is not in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delivery {
    /// Bytes acknowledged, all in all; when the train's first packet was read and what had been
    /// acknowledged by then.
    pub(crate) bytes: u64,
    pub(crate) mark: Option<(u32, u64)>,
    /// The window was full since.
    pub(crate) was_full: bool,
    pub(crate) rate: u64,
    /// Time that a byte takes at this rate, in 1/65536 ns; and when all that was sent has left the
    /// slowest link, by that.
    pub(crate) byte_cost: u64,
    pub(crate) drained: Time,
    /// Trains that told nothing, and when the next may be tried.
    pub(crate) tries: u8,
    pub(crate) try_at: Time,
}

impl Delivery {
    /// Bytes were acknowledged; `read_us`: when the newest of them was read. `is_idle`: nothing is
    /// in flight any more.
    pub(crate) fn on_ack(&mut self, bytes: u64, read_us: Option<u32>, mtu: u64, is_idle: bool) {
        self.bytes += bytes;
        match (self.mark, read_us) {
            (Some((began_us, had)), Some(read_us)) => {
                let (took_us, came) = (u64::from(read_us.wrapping_sub(began_us)), self.bytes - had);
                let is_enough = came >= TRAIN_BYTES || (is_idle && came >= TRAIN_PACKETS * mtu.min(USUAL_BYTES));
                let most_us = if self.was_full { u32::MAX / 2 } else { TRAIN_US };
                if is_enough && (1..=u64::from(most_us)).contains(&took_us) {
                    self.learn(came * 1_000_000 / took_us);
                    self.mark = Some((read_us, self.bytes));
                    self.was_full = false;
                } else if (u64::from(most_us)..=u64::from(u32::MAX / 2)).contains(&took_us) {
                    self.mark = Some((read_us, self.bytes));
                }
            }
            (None, Some(read_us)) => self.mark = Some((read_us, self.bytes)),
            (_, None) => {}
        }
        if is_idle {
            self.breaks_off();
        }
    }

    /// Nothing came, or nothing went: what is acknowledged next belongs to no train that began
    /// before (P-8.24).
    pub(crate) fn breaks_off(&mut self) {
        (self.mark, self.was_full) = (None, false);
    }

    /// A train came at this rate. One that the sender itself held back says only that the path is
    /// at least so fast.
    pub(crate) fn learn(&mut self, rate: u64) {
        if self.rate == 0 {
            self.rate = rate;
        } else if rate > self.rate || self.was_full {
            self.rate = self.rate - self.rate / TRAIN_WEIGHT + rate / TRAIN_WEIGHT;
        }
        self.byte_cost = ((1_000_000_000 << 16) / self.rate.max(1)).min(1 << 40);
    }

    /// A packet was sent; so much is in flight with it; `is_full`: the window is.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: u64, in_flight: u64, is_full: bool) {
        self.was_full |= is_full;
        if self.byte_cost == 0 {
            return;
        }
        // What was acknowledged waits nowhere: a rate that was too low makes no queue that lasts.
        self.drained = self.drained.max(now).plus_ns(self.cost(bytes)).min(now.plus_ns(self.cost(in_flight)));
    }

    /// The time that so many bytes take at this rate.
    fn cost(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.byte_cost) >> 16
    }

    /// How long what is in flight waits for the slowest link, by what was sent.
    pub(crate) fn queue_ns(&self, now: Time, in_flight: u64) -> u64 {
        self.drained.since_ns(now).min(self.cost(in_flight))
    }

    /// The path was tried, and it is to be seen what it delivers.
    pub(crate) fn is_tried(&mut self, now: Time) {
        self.try_at = now.plus_ns(TRY_NS << self.tries.min(TRIES_MAX));
        self.tries = self.tries.saturating_add(1);
    }

    /// When all that was sent has left the slowest link.
    pub(crate) fn drained(&self) -> Time {
        self.drained
    }

    /// Bytes per second; 0: not known.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }
}

/// Whose turn it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn {
    pub(crate) path: u8,
    /// Packets that still go by it.
    pub(crate) left: u32,
    /// There are several to choose from.
    pub(crate) is_chosen: bool,
}

impl Turn {
    /// Whether the next packet of a run may go by the path without a new choice.
    pub(crate) fn goes_on(&self, path: u8) -> bool {
        !self.is_chosen || (self.path == path && self.left > 0)
    }

    /// A packet with data went.
    pub(crate) fn took(&mut self, path: u8) {
        if path == self.path {
            self.left = self.left.saturating_sub(1);
        }
    }
}
