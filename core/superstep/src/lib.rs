//! What the processes of a superstep know of each other, and what follows from it
//! (`spec/superstep.md`): in which order they send and grant, how fast, how they tell each other
//! the counts, what it costs; and the protocol of a superstep as a small machine that is checked
//! exhaustively.
//!
//! Pure: no clock, no chance but what is given, no memory but what is returned.
//!
//! | module | holds |
//! |---|---|
//! | [`order`] | who is served when: Latin squares and what they are compared with |
//! | [`plan`] | one process's part of a superstep: what it sends and gets, in order |
//! | [`counts`] | how the counts are told: dense or sparse, and the price of each |
//! | [`hold`] | how long data waits for the last words of the reduction |
//! | [`own_queue`] | how much may wait in a process's own interface |
//! | [`slots`] | random slots, the pacing of a shared medium |
//! | [`shared_medium`] | how a shared medium collapses, and the slot that keeps clear of that |
//! | [`variance`] | what the spread of one link does to many |
//! | [`cost`] | w + h g + l |
//! | [`protocol`] | the superstep protocol as a transition function, for model checks |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cost;
pub mod counts;
pub mod hold;
pub mod order;
pub mod own_queue;
pub mod plan;
pub mod protocol;
pub mod shared_medium;
pub mod slots;
pub mod variance;

pub use hold::hold_ns;
pub use order::Order;
pub use own_queue::OwnQueue;
pub use plan::{Flow, Plan};
pub use slots::{SlotPacer, Slots};
