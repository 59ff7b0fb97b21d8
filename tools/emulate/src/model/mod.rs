//! The emulated network as arithmetic: no clock, no socket, no thread, one seed.
//!
//! Time is a `u64` count of nanoseconds that the caller supplies; randomness comes from one `rand_pcg` generator per
//! pipe, derived from the seed in the spec. The same arrivals in the same order therefore give the same drops,
//! copies and delivery times, whether they come from a unit test or from a real interface.
//!
//! * [`Pipe`] is one direction of one link: a tail-drop queue, a serialiser, a lossy wire.
//! * [`Fabric`] is a set of stars (one per network): every packet crosses the sender's `up` pipe, the switch, and the
//!   receiver's `down` pipe, whose queue is the switch output port that all senders share.

mod fabric;
mod loss;
mod pipe;
mod schedule;

pub use fabric::{Destination, Fabric, Handle, PortId, Sink};
pub use loss::{Loss, LossState};
pub use pipe::{Corruption, Counters, DropCause, Offer, Pipe, PipeParams, QueueLimit, Reorder};
pub use schedule::Schedule;

/// Nanoseconds since an arbitrary origin chosen by the caller.
pub type TimeNs = u64;

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// True with the given probability. Draws nothing for 0 and 1, so that switching a fault off leaves other draws alone
/// only in whole runs, never inside one packet.
pub(crate) fn chance(rng: &mut Pcg64Mcg, probability: f64) -> bool {
    if probability <= 0.0 {
        false
    } else if probability >= 1.0 {
        true
    } else {
        uniform(rng) < probability
    }
}

/// A number uniform in `[0, 1)` with 53 random bits.
pub(crate) fn uniform(rng: &mut Pcg64Mcg) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}
