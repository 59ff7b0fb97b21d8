#![no_std]
#![forbid(unsafe_code)]
//! The Weir protocol as a pure state machine (`spec/protocol.md`): bytes, time and randomness go
//! in; packets, events and the next timeout come out. No socket, clock or thread.
//!
//! Contract: after each call of a method that takes `&mut self`, take the events, then call
//! [`Endpoint::poll_transmit`] until it returns `None`, then sleep until a datagram comes or
//! [`Endpoint::next_timeout`] has passed.

extern crate alloc;

mod acking;
mod alive;
mod alone;
mod api;
mod asked;
mod asking;
mod association;
mod build;
mod bulk;
mod config;
mod congestion;
mod counters;
mod crypt;
mod delivery;
#[cfg(test)]
mod differential;
mod endpoint;
mod handshake;
mod hash;
#[cfg(test)]
mod hostile;
mod judging;
mod known;
mod life;
#[cfg(test)]
mod marked;
mod marks;
mod mtu;
mod opening;
mod openings;
mod parity;
mod paths;
mod receive;
mod received;
mod recovery;
#[cfg(test)]
mod requirements;
mod rtt;
mod scale;
mod sctp;
mod show;
mod spent;
mod striping;
mod supersteps;
mod template;
mod timers;
mod turns;

pub use api::*;
pub use asked::Answer;
pub use asking::ASKINGS_MAX;
pub use config::{Config, CongestionKind, Mechanisms};
pub use congestion::{Acked, Came, Congestion};
pub use counters::{Counters, PathStats, PeerCounters, PeerStats};
pub use endpoint::Endpoint;
pub use paths::LONG_TRIP_NS;
pub use sctp::SCTP_HELLO_LEN;
pub use weir_bulk::{
    BULK_CONNECT_NS, BULK_GREETING_NS, BulkHealth, BulkRecord, Config as BulkConfig, GREETING_LEN, RECORD_HEAD_LEN,
    RecordHead, RecordIn,
};
pub use weir_session::{
    Config as SessionConfig, Credit, DownReason, Event, Hole, Message, Payloads, PeerId, RndvOpened, STREAMS_MAX,
    SendError, Time,
};
pub use weir_wire::{DataKey, EndpointName, Level, crc32c_append};
