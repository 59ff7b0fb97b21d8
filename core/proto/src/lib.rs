#![no_std]
#![forbid(unsafe_code)]
//! The Weir protocol as a pure state machine (`spec/protocol.md`): bytes, time and randomness go in; packets,
//! events and the next timeout come out. No socket, clock or thread.
//!
//! Contract: after each call of a method that takes `&mut self`, take the events, then call
//! [`Endpoint::poll_transmit`] until it returns `None`, then sleep until a datagram comes or
//! [`Endpoint::next_timeout`] has passed.

extern crate alloc;

mod api;
mod config;
mod counters;
mod endpoint;
mod time;

pub use api::*;
pub use config::{Config, CongestionKind};
pub use counters::{Counters, PathStats, PeerStats};
pub use endpoint::Endpoint;
pub use time::Time;

/// Protection level (spec 2.1).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// CRC32C.
    Integrity,
    /// AES-256-GCM over clear frames.
    Auth,
    /// AES-256-GCM, frames encrypted.
    Encrypt,
}

pub(crate) fn crc32c_append(_crc: u32, _b: &[u8]) -> u32 { 0 }
