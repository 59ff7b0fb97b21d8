//! The driver of bulk TCP connections (spec/bulk.md): when one is dialled, taken, greeted, fed,
//! read and given up. What goes by it and when one pays is `core/bulk`'s affair.
//!
//! Pure: no socket, clock or memory. Whoever has those lends them in each call ([`Surroundings`]):
//! the engine sockets and the messages of an endpoint, the simulator its network, the fuzz target
//! rows of bytes. So all three drive what ships.
//!
//! Nothing depends on a connection: what the peer has not acknowledged is sent in packets once it
//! is gone. So whatever is wrong with one, it is dropped.
//!
//! # Modules
//!
//! `surroundings` holds what is lent; `conn` one connection, read and written; `bulk_connections`
//! all of an endpoint.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bulk_connections;
mod conn;
mod surroundings;
#[cfg(test)]
mod tests;

pub use bulk_connections::{ACCEPTS_MAX, BulkConnections, Limits, ROUND_MAX_NS, ROUND_NS, STRANGERS_MAX};
pub use conn::STAGE_BYTES;
pub use surroundings::{Broken, Head, Interest, NotMade, Read, Surroundings};
