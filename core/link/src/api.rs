//! The types that cross the border of the crate: what the caller hands in, what it gets back.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::PeerId;

/// Why a name was refused by [`Endpoint::peer`](crate::Endpoint::peer).
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// The peer was made with another job key: its fingerprint is not ours.
    #[error("the peer uses another job key")]
    Key,
    /// The name is of another protocol version.
    #[error("the peer speaks another protocol version")]
    Version,
    /// The name holds no address.
    #[error("the name holds no address")]
    NoAddress,
    /// No more peers fit (2^24).
    #[error("too many peers")]
    TooMany,
}

/// Circumstances of a received datagram.
#[derive(Copy, Clone, Debug)]
pub struct RxMeta {
    /// Where it came from.
    pub remote: SocketAddr,
    /// Our address it was sent to, if the driver knows.
    pub local: Option<IpAddr>,
    /// How long before this reading the caller had last looked at the socket: the datagram may have
    /// waited that long unseen.
    pub receiver_delay_ns: u32,
    /// ECN bits of the IP header (0 when unknown).
    pub ecn: u8,
}

/// A packet to send: `PacketBuf::head`, directly followed by `payload` if there is one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Destination.
    pub remote: SocketAddr,
    /// Source address to send from; `None`: the system's choice.
    pub local: Option<IpAddr>,
    /// The peer it goes to; `PeerId(u32::MAX)` for handshake answers that belong to no peer yet.
    pub peer: PeerId,
    /// The last frame's payload, to be taken straight from the user's memory behind `head`.
    pub payload: Option<PayloadRef>,
}

/// A piece of an operation's payload.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PayloadRef {
    /// The operation, as given in [`Message::token`] or to `send_rndv`.
    pub token: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u16,
}

/// The buffer a packet is written into; reused from packet to packet.
#[derive(Clone, Debug, Default)]
pub struct PacketBuf {
    /// Header, frames and copied payloads, contiguous.
    pub head: Vec<u8>,
}

impl PacketBuf {
    /// An empty buffer with room for a packet of the usual size.
    #[must_use]
    pub fn new() -> Self {
        PacketBuf { head: Vec::with_capacity(2048) }
    }
}

/// A connection is to be made to a peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BulkNews {
    /// To whom.
    pub peer: PeerId,
    /// Where it listens.
    pub remote: SocketAddr,
    /// Our own address on that path, if it is known.
    pub local: Option<IpAddr>,
}
