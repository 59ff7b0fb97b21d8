#![no_std]
#![forbid(unsafe_code)]
//! A bulk TCP connection to a peer (spec/bulk.md), as a carrier: large payload goes by it while the
//! network is at its best.
//!
//! It pulls from the session what stands in [`weir_session::Line::Bulk`], remembers what it was
//! handed until the peer has read it, and gives the rest back when the connection is over. No
//! socket: a driver owns the connection, writes the heads that it is given here and the payload
//! behind them, and brings what it reads. No packet either: that a connection is wanted, how far it
//! was read and that it is over is also said in BULK frames, which the link carries: it asks for
//! them ([`BulkConnection::due`], [`BulkConnection::frame`]) and brings those of the peer
//! ([`BulkConnection::heard`]).

extern crate alloc;

mod app_acks;
mod config;
mod connection;
mod health;
mod records;

pub use config::{Config, Counters};
pub use connection::{BulkConnection, Cx};
pub use health::{BULK_CONNECT_NS, BULK_GREETING_NS, BulkHealth};
pub use records::{BulkRecord, RecordIn, Wrong, record_begins};
pub use weir_wire::bulk::{GREETING_LEN, RECORD_HEAD_LEN, RecordHead};

/// Version of `spec/bulk.md` that is spoken here.
pub const VERSION: u8 = 2;
