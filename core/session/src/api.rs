//! The types that cross the border between a session, its carriers and the layer above.

use alloc::vec::Vec;
use core::ops::Range;

use serde::Serialize;

use crate::{DataKey, Hole};

/// Index of a peer in its endpoint; stable until the endpoint forgets it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct PeerId(pub u32);

/// Where payload bytes come from when a packet is written. The engine implements it over user
/// memory.
pub trait Payloads {
    /// Fills `dst` completely with the bytes of the operation `token` starting at `offset`.
    fn read(&self, token: u64, offset: u64, dst: &mut [u8]);

    /// Continues the CRC32C `crc` over `len` payload bytes. The provided method reads through
    /// [`Payloads::read`] in pieces; memory that can be borrowed should override it with
    /// [`weir_wire::crc32c_append`].
    fn crc(&self, token: u64, offset: u64, len: usize, crc: u32) -> u32 {
        let mut piece = [0u8; 4096];
        let (mut crc, mut done) = (crc, 0usize);
        while done < len {
            let n = (len - done).min(piece.len());
            self.read(token, offset + done as u64, &mut piece[..n]);
            crc = weir_wire::crc32c_append(crc, &piece[..n]);
            done += n;
        }
        crc
    }
}

/// A message to send.
#[derive(Copy, Clone, Debug)]
pub struct Message<'a> {
    /// Unordered control message: not matched, not counted against credit, at most
    /// `Config::control_len_max` bytes.
    pub control: bool,
    /// Stream of a matched message, below the number of streams agreed (`Config::streams`); 0 for
    /// control.
    pub stream: u16,
    /// Opaque to the protocol, at most 48 bytes; repeated in every fragment.
    pub envelope: &'a [u8],
    /// Payload bytes.
    pub len: u32,
    /// Nobody waits for [`Event::Sent`]: the acknowledgement need not be hurried and may travel
    /// with an answer.
    pub patient: bool,
    /// The caller's name for the operation: given to [`Payloads`], and in exactly one
    /// [`Event::Sent`] or [`Event::Failed`].
    pub token: u64,
}

/// Why a send was refused. Nothing was queued.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// The peer is down, or the endpoint is closing, or there is no such peer.
    #[error("the peer is down")]
    Closed,
    /// As many messages as `Config::send_queue_msgs` wait already; try again after events.
    #[error("the send queue to this peer is full")]
    QueueFull,
    /// Longer than the message kind allows (envelope over 48 bytes, control message over one
    /// packet, matched message over half the peer's initial byte credit).
    #[error("message or envelope too long")]
    TooLong,
}

/// Credit left towards a peer, after what is queued.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Credit {
    /// Matched messages.
    pub msgs: u32,
    /// Sum of their lengths in bytes.
    pub bytes: u64,
}

/// Answer of [`Session::open_rndv`](crate::Session::open_rndv): tell both to the sender.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RndvOpened {
    /// Names the rendezvous transfer on the wire.
    pub handle: u64,
    /// The sender may send `[0, granted)` at once; more is granted by the protocol itself.
    pub granted: u64,
}

/// Why a peer went down.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, thiserror::Error)]
pub enum DownReason {
    /// Nothing was heard for `Config::peer_timeout`, or no program has the peer's port any more.
    #[error("peer unreachable: it does not answer any more")]
    Unreachable,
    /// Its program has ended, without closing: the system says so.
    #[error("the peer's program has ended")]
    Gone,
    /// The handshake was not answered within `Config::connect_timeout` (also: another job key).
    #[error("connection timed out (peer absent, address unreachable, or another job key)")]
    ConnectTimeout,
    /// The peer closed in good order.
    #[error("closed by the peer")]
    Closed,
    /// Another incarnation answers at the peer's address: it restarted.
    #[error("the peer restarted")]
    Restarted,
    /// The peer lives and has ended the association without a word that came here: it had heard
    /// nothing for its own timeout.
    #[error(
        "the peer has given this process up: it heard nothing from here for its own WEIR_PEER_TIMEOUT_MS, or lost its opening"
    )]
    GivenUp,
    /// At this address lives another incarnation.
    #[error("stale address: another incarnation answers there")]
    StaleIncarnation,
    /// Protocol version or features (`Config::features`) are not the same on both sides.
    #[error("it runs another version of weir that this one cannot talk to: install the same on all hosts")]
    Version,
    /// The peer's protection level is lower than demanded here.
    #[error("protection level too low")]
    LevelTooLow,
    /// The peer has no room for another association.
    #[error("refused: no room")]
    NoRoom,
    /// The peer is shutting down.
    #[error("refused: the peer is shutting down")]
    ShuttingDown,
    /// The peer broke a rule of the protocol; the text is in the counters.
    #[error("protocol violation by the peer")]
    Violation,
    /// This endpoint closed, and the linger time ran out for this operation.
    #[error("closed locally")]
    LocalClose,
    /// 2^40 packets were sent: the keys are spent.
    #[error("packet numbers exhausted")]
    Exhausted,
    /// The peer sends, but acknowledges nothing of what it is sent (`Config::sent_packets_max`).
    #[error("the peer acknowledges nothing")]
    Unacknowledged,
    /// The rendezvous transfer's receiver gave up on it.
    #[error("aborted by the peer")]
    Aborted,
}

/// What happened. Ranges index the datagram given to `handle`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The association is established.
    Up {
        /// The peer; may be one that opened to us, unknown before.
        peer: PeerId,
    },
    /// The association is over; every token of the peer is reported as `Failed` after this.
    Down {
        /// The peer.
        peer: PeerId,
        /// Why.
        reason: DownReason,
    },
    /// New bytes of a message; no byte is ever reported twice.
    Message {
        /// From whom.
        peer: PeerId,
        /// Control message: a numbering of its own, always `first` and `complete`.
        control: bool,
        /// Stream of a matched message.
        stream: u16,
        /// Number of the message.
        mseq: u64,
        /// Number within its stream.
        sseq: u32,
        /// Length of the whole message in bytes.
        total_len: u32,
        /// Place of `payload` in the message.
        offset: u32,
        /// The opaque envelope.
        envelope: Range<usize>,
        /// The new bytes.
        payload: Range<usize>,
        /// First sight of this message: match it now.
        first: bool,
        /// With these bytes all of it is here.
        complete: bool,
    },
    /// New bytes of a rendezvous transfer; no byte is ever reported twice.
    Rndv {
        /// From whom.
        peer: PeerId,
        /// As returned by `open_rndv`.
        handle: u64,
        /// Place of `payload` in the rendezvous transfer.
        offset: u64,
        /// The new bytes.
        payload: Range<usize>,
        /// With these bytes all of it is here; the handle is closed.
        complete: bool,
    },
    /// The sender gave up; the handle is closed.
    RndvAborted {
        /// From whom.
        peer: PeerId,
        /// As returned by `open_rndv`.
        handle: u64,
        /// The sender's reason.
        code: u16,
    },
    /// A part of one fragment can be restored: compute it with [`Hole::restore`], write it to its
    /// place, then call `restored`. Always after the other events of its datagram. If the restored
    /// range completes the operation, `restored` reports an event with an empty payload (and, for a
    /// message, an empty envelope) that is `complete`.
    Parity {
        /// From whom.
        peer: PeerId,
        /// What is protected.
        key: DataKey,
        /// What is missing.
        hole: Hole,
        /// The sum of the group's fragments, each with the factor that the hole says.
        parity: Vec<u8>,
    },
    /// All bytes are acknowledged by the peer's endpoint: the memory behind the token may be
    /// reused.
    Sent {
        /// To whom.
        peer: PeerId,
        /// The operation.
        token: u64,
    },
    /// The operation will not complete.
    Failed {
        /// To whom.
        peer: PeerId,
        /// The operation.
        token: u64,
        /// Why.
        reason: DownReason,
    },
}
