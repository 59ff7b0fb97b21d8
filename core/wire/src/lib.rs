#![no_std]
#![forbid(unsafe_code)]
//! The bytes of the Weir protocol (`spec/protocol.md` sections 2, 3.3 and 7): packets, frames,
//! handshake packets and endpoint names are parsed and written here, and protected (`seal`). No
//! state beyond keys, no clock, no socket.
//!
//! Reading a datagram: [`packet::kind`] tells the handshake packets
//! ([`handshake::Handshake::parse`]) from the protected ones ([`packet::Header::parse`],
//! [`seal::RecvKeys::open`], then [`frame::Frames::parse`], which checks *every* frame before the
//! first is handed out, because a packet with one malformed frame has no effect at all).
//!
//! Writing one: [`packet::Header::write`], the writers of [`frame`], then [`seal::SendKeys::seal`].
//!
//! Nothing here allocates for each packet, except that the caller's buffer may grow.

extern crate alloc;

mod bytes;

pub mod addr;
pub mod bulk;
pub mod frame;
pub mod handshake;
pub mod name;
pub mod number;
pub mod packet;
pub mod sctp;
pub mod seal;

pub use addr::{AddrList, MAX_ADDRESSES};
pub use frame::{DataKey, Frame, FrameError, Frames};
pub use handshake::{Handshake, Params, RefuseCode};
pub use name::{EndpointName, NAME_LEN, NameError};
pub use number::expand;
pub use packet::{Header, Kind, Level, PacketError};
pub use seal::{HandshakeKey, JobKey, SessionKeys, crc32c_append};

/// Version of the protocol, the high half of byte 0 of every packet and byte 0 of every name.
pub const VERSION: u8 = 1;
/// Largest envelope of a message in bytes (spec 1).
pub const MAX_ENVELOPE_LEN: usize = 48;
/// Most `(gap, len)` entries in an ACK frame (spec 2.2).
pub const MAX_ACK_ENTRIES: usize = 32;
/// Most rows of parity of one group of fragments (spec 6.6).
pub const MAX_PARITY_ROWS: u8 = 3;
/// Most fragments one PARITY frame covers (spec 6.6).
pub const MAX_PARITY_COUNT: u8 = 48;
/// Smallest `max_datagram` an endpoint may announce: the size every path is taken to carry (spec
/// 8).
pub const MIN_DATAGRAM_LEN: u16 = 1200;
