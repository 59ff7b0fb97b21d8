#![no_std]
#![forbid(unsafe_code)]
//! The model of a network that the simulator and the emulator share: what a link and a switch do to
//! packets.
//!
//! No clock and no packet: time is a count of nanoseconds that the caller supplies, of a packet
//! only its length is known, and luck comes from a generator that the caller gives each pipe. The
//! same packets in the same order therefore meet the same fate.
//!
//! * [`Pipe`] is one direction of one link: a tail-drop queue, a rate, a wire with delay, jitter,
//!   loss and other faults. It answers each packet at once with its whole fate, in O(1) amortised.
//! * [`Switch`] is a row of pipes, its output queues, which may share one memory; O(log n) for a
//!   packet where they do.
//! * [`Medium`] is what several stations share, one packet at a time; they may collide
//!   ([`Collisions`]).
//! * [`Events`] is a queue of things to come, by time.
//! * [`Datagrams`] is the device below an endpoint, whatever it is, and [`Faulty`] a bad network
//!   before any of them.
//! * [`Server`] is what has a rate and serves one after another; [`Chance`] a probability.

extern crate alloc;

mod chance;
mod datagrams;
mod events;
mod faulty;
mod medium;
mod pipe;
mod spec;
mod switch;

pub use chance::{Chance, below};
pub use datagrams::{Datagrams, Route, RxInfo, WAKE_SOURCES};
pub use events::Events;
pub use faulty::Faulty;
pub use medium::{Collisions, Medium, Passed};
pub use pipe::{Counters, Harm, Offer, Pipe, Server, Why};
pub use spec::{Burst, Loss, Mark, PipeSpec, QueueLimit, Reorder, serialise_ns};
pub use switch::{Memory, Switch};

/// Nanoseconds since an origin that the caller chooses.
pub type TimeNs = u64;
