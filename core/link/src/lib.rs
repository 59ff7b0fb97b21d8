#![no_std]
#![forbid(unsafe_code)]
//! The Weir protocol as a pure state machine (`spec/protocol.md`): bytes, time and randomness go in; packets,
//! events and the next timeout come out. No socket, clock or thread.
//!
//! Contract: after each call of a method that takes `&mut self`, take the events, then call
//! [`Endpoint::poll_transmit`] until it returns `None`, then sleep until a datagram comes or
//! [`Endpoint::next_timeout`] has passed.

extern crate alloc;

mod acking;
mod alone;
mod api;
mod asked;
mod asking;
mod association;
mod build;
mod config;
mod congestion;
mod counters;
mod crypt;
mod delivery;
mod endpoint;
mod handshake;
mod hash;
#[cfg(test)]
mod hostile;
mod judging;
mod known;
mod lane;
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
mod run;
mod scale;
mod show;
mod spent;
mod striping;
mod supersteps;
mod timers;
#[cfg(test)]
mod twins;

pub use api::*;
pub use asked::Answer;
pub use asking::ASKINGS_MAX;
pub use config::{Config, CongestionKind, Mechanisms};
pub use congestion::{Acked, Congestion};
pub use counters::{Counters, PathStats, PeerCounters, PeerStats};
pub use endpoint::Endpoint;
pub use weir_lane::{
    Config as LaneConfig, GREETING_LEN, LANE_CONNECT_NS, LANE_GREETING_NS, LaneHealth, LaneUnit, UNIT_HEAD_LEN,
    UnitHead, UnitIn,
};
pub use weir_session::{
    BodyOpened, Config as SessionConfig, Credit, DownReason, Event, Hole, Message, Payloads, PeerId, STREAMS_MAX,
    SendError, Time,
};
pub use weir_wire::{BodyKey, EndpointName, Level, crc32c_append};
