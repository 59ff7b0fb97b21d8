#![no_std]
#![forbid(unsafe_code)]
//! What is true of a peer, whatever carries its fragments: the numbers of messages, what was handed
//! to a carrier and what is known to have arrived, credit both ways, rendezvous data and their
//! grants, and the verdict that the peer is dead.
//!
//! The layer above calls [`Session::send`] and its like. A carrier (packets, a TCP connection,
//! shared memory) pulls what may go ([`Session::next_message`], [`Session::next_flow`], ...), says
//! what it took, and tells the fate of each [`Fragment`] later: [`Session::arrived`] or
//! [`Session::lost`]. What comes in it hands up by [`Session::on_message`] and its like. A fragment
//! may arrive twice, by two carriers: the numbers make that harmless.

extern crate alloc;

mod api;
mod arriving;
mod carrier;
mod config;
mod fate;
pub mod galois;
mod grants;
mod handed;
mod hole;
mod messages;
mod offer;
mod ranges;
mod rndvs;
mod session;
mod sessions;
mod straight;
mod time;

pub use api::*;
pub use arriving::{FragmentIn, STREAMS_MAX};
pub use carrier::Carrier;
pub use config::Config;
pub use grants::Grants;
pub use handed::Handed;
pub use hole::{Factors, Hole, factor_in_row, factors_for};
pub use messages::{KEPT_MAX, OutMessage};
pub use offer::{Flow, Fragment, Line, Piece};
pub use ranges::RangeSet;
pub use rndvs::OutRndv;
pub use session::{PeerCounters, Session, Terms};
pub use sessions::{Common, Counters, Sessions};
pub use straight::Numbers;
pub use time::Time;
pub use weir_wire::DataKey;
