//! Message matching with the exact order MPI asks for, and the envelopes that messages carry.
//!
//! Pure: no clock, socket or thread; time and bytes stay outside. The engine tells the [`Matcher`]
//! which receives are posted and which messages arrive (in whatever order the network brings them)
//! and is told which belong together.
//!
//! # The rule
//!
//! A receive *matches* a message when the class is the same, the source is the message's peer or
//! any, and the tags agree in all bits not set in `ignore` (libfabric `fi_tagged(3)`; untagged
//! messages have no tag, so all agree).
//!
//! A receive is *on one stream* when it is tagged and ignores none of the [`StreamBits`]: all
//! messages of a peer that match it travel on the same stream, see [`stream_of`]. A message is
//! *eligible* for such a receive once all earlier messages of its stream have arrived, and for any
//! other receive once all earlier messages of its peer have arrived.
//!
//! 1. A message goes to the *first posted* receive that matches it. While that one may not take it
//!    yet it is *held*: no receive posted later may take it. It is offered anew when a gap closes
//!    or that receive goes away.
//! 2. A receive takes, of one peer, always the earliest message that matches it. It never skips one
//!    that is not eligible, nor one that is held for another receive (which may yet leave it).
//! 3. Between peers there is no order. A receive being posted, a peek and a claim choose the peer
//!    whose eligible, matching message arrived first. Several messages released by one event are
//!    offered in the order (peer, number).
//!
//! `DESIGN.md` section 3, "Ordering", gives the reason: a lost packet stalls only what MPI obliges
//! it to stall.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod atomic;
mod bins;
pub mod envelope;
mod matcher;
#[cfg(test)]
mod model;
mod order;
#[cfg(test)]
mod property;
#[cfg(test)]
mod rules;
mod slab;
mod store;
mod types;

pub use matcher::{Matcher, QUEUE_STATISTICS_LONG_BYTES};
pub use types::{
    Arrival, Class, Match, MsgToken, Multi, OpToken, Pattern, Posted, QueueStatistics, Source, Stats, StreamBits,
    stream_of,
};
