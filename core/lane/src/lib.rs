#![no_std]
#![forbid(unsafe_code)]
//! A bulk TCP connection to a peer, a *lane* (spec/lanes.md), as a carrier: large payload goes by it while the network is at its best.
//!
//! It pulls from the session what stands in [`weir_session::Line::Bulk`], remembers what it was handed until the peer has read it, and gives the rest back when the connection is over. No socket:
//! a driver owns the connection, writes the heads that it is given here and the payload behind them, and brings what it reads. No packet either: that a connection is wanted, how far it was read
//! and that it is over is also said in LANE frames, which the link carries: it asks for them ([`Lane::due`], [`Lane::frame`]) and brings those of the peer ([`Lane::heard`]).

extern crate alloc;

mod config;
mod connection;
mod health;
mod telling;
mod units;

pub use config::{Config, Counters};
pub use connection::{Cx, Lane};
pub use health::{LANE_CONNECT_NS, LANE_GREETING_NS, LaneHealth};
pub use units::{LaneUnit, UnitIn, Wrong, unit_begins};
pub use weir_wire::lane::{GREETING_LEN, UNIT_HEAD_LEN, UnitHead};

/// Version of `spec/lanes.md` that is spoken here.
pub const VERSION: u8 = 2;
