//! The emulated network as arithmetic: no clock, no socket, no thread, one seed.
//!
//! What links do to packets is [`weir_net`]'s, which the simulator uses too. Randomness comes from
//! one `rand_pcg` generator per pipe, derived from the seed in the spec. The same arrivals in the
//! same order therefore give the same drops, copies and delivery times, whether they come from a
//! unit test or from a real interface.
//!
//! [`Fabric`] is a set of stars (one per network): every packet crosses the sender's `up` pipe, the
//! switch, and the receiver's `down` pipe, whose queue is the switch output port that all senders
//! share.

mod fabric;

pub use fabric::{Corruption, Destination, Fabric, Handle, Pipe, PortId, Sink};
pub use weir_net::{Burst, Chance, Collisions, Counters, Events, Loss, Mark, PipeSpec, QueueLimit, Reorder, TimeNs};
