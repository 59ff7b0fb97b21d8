//! The words spoken with [`Messages`](crate::Messages): operations, completions, errors.
//!
//! The types mirror what message-passing interfaces have in common (libfabric, MPI, BSP): a peer is
//! a small integer, a tag is 64 bits with an ignore mask, an operation carries an opaque context
//! that its completion returns.

use core::fmt;

/// Why a peer is down.
pub use weir_link::DownReason;

/// Tagged and untagged messages never match each other.
pub use weir_match::Class;

/// Which bits of a tag decide over its stream.
pub use weir_match::StreamBits;

/// The slots of a medium that all share.
pub use weir_superstep::{OwnQueue, Slots};

/// Atomic operations, and the types they are for.
pub use weir_match::atomic::{Atomic, AtomicOp, AtomicType};

/// When a send counts as complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// The data is copied at once; the caller's memory is free on return. Completes at once.
    Inject,
    /// The caller's memory may be reused (data copied, or acknowledged by the peer's endpoint).
    Transmit,
    /// The peer's endpoint has acknowledged all of it: nothing depends on this side any more. A
    /// remote write that was refused may, rarely, not be told as such: its acknowledgement came
    /// without the refusal (spec/envelopes.md 2).
    Acknowledged,
    /// The peer's endpoint has the whole message (in its buffer or the user's), and has put a
    /// remote write into its memory: no refused write completes without an error.
    Delivery,
    /// The peer has matched the message with a receive.
    Match,
}

/// A message to send.
#[derive(Debug)]
pub struct SendOp<M> {
    /// Destination, from [`Messages::insert_peer`](crate::Messages::insert_peer).
    pub peer: u32,
    /// Tagged or untagged.
    pub class: Class,
    /// Tag; ignored for untagged messages.
    pub tag: u64,
    /// Immediate data handed to the receiver with the completion.
    pub data: Option<u64>,
    /// The message.
    pub memory: M,
    /// When it counts as complete.
    pub mode: SendMode,
    /// The caller's memory is free on return, whenever it counts as complete. Copies are memory the
    /// caller does not see, so such a message may have [`INJECT_BYTES`](crate::INJECT_BYTES) at
    /// most. `Inject` implies it.
    pub copy: bool,
    /// Whether a completion is wanted; without, only failures are reported.
    pub report: bool,
    /// Returned in the completion.
    pub context: usize,
    /// Returned in the completion untouched, for the face's own use.
    pub user: u64,
}

impl<M> SendOp<M> {
    /// The same operation on other memory: a face names its memory as it likes, and what carries
    /// the operation out names it in its own way.
    #[inline]
    pub fn with_memory<N>(&self, memory: N) -> SendOp<N> {
        let Self { peer, class, tag, data, mode, copy, report, context, user, .. } = *self;
        SendOp { peer, class, tag, data, mode, copy, report, context, user, memory }
    }

    /// The caller wants its memory back at once.
    pub(crate) fn must_copy(&self) -> bool {
        self.copy || self.mode == SendMode::Inject
    }
}

/// A receive to post.
#[derive(Debug)]
pub struct RecvOp<M> {
    /// Only from this peer, or from any.
    pub source: Option<u32>,
    /// Tagged or untagged.
    pub class: Class,
    /// Tag wanted; ignored for untagged receives.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
    /// Where the message goes.
    pub memory: M,
    /// Multi-receive: the buffer takes messages one behind the other until less than this many
    /// bytes are free.
    pub multi_min: Option<usize>,
    /// Whether a completion is wanted; without, only failures are reported.
    pub report: bool,
    /// Returned in the completion.
    pub context: usize,
    /// Returned in the completion untouched, for the face's own use.
    pub user: u64,
}

impl<M> RecvOp<M> {
    /// The same operation on other memory: a face names its memory as it likes, and what carries
    /// the operation out names it in its own way.
    #[inline]
    pub fn with_memory<N>(&self, memory: N) -> RecvOp<N> {
        let Self { source, class, tag, ignore, multi_min, report, context, user, .. } = *self;
        RecvOp { source, class, tag, ignore, multi_min, report, context, user, memory }
    }
}

/// What a process knows of a superstep when it begins: told once to
/// [`Messages::superstep`](crate::Messages::superstep).
#[derive(Debug, Clone, Copy, Default)]
pub struct Superstep<'a> {
    /// Bytes of payload that are to go to each peer, in the order in which they are going to be
    /// sent. Peers that get nothing are left out.
    pub sends: &'a [(u32, u64)],
    /// Bytes that are to come from each peer, in the order in which the peers serve this endpoint:
    /// best one in which all endpoints are served by different ones at a time
    /// (`weir_superstep::Plan` makes both).
    pub receives: &'a [(u32, u64)],
    /// Data of packets goes in slots of a medium that all share. `None` on any other: a window and
    /// grants hold back there what is too much.
    pub slots: Option<Slots>,
    /// What may wait in this host's interface, in front of acknowledgements and grants, while the
    /// superstep is told. Whoever moves packets sees to it
    /// ([`weir_link::Endpoint::own_queue_bytes`]).
    pub own_queue: OwnQueue,
}

/// A question about arrived messages that no receive has taken.
#[derive(Debug)]
pub struct PeekOp {
    /// Only from this peer, or from any.
    pub source: Option<u32>,
    /// Tagged or untagged.
    pub class: Class,
    /// Tag wanted.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
    /// Keep the message for a later [`Messages::recv_claimed`](crate::Messages::recv_claimed) with
    /// this context.
    pub claim: bool,
    /// Throw the message away.
    pub discard: bool,
    /// Names the claim.
    pub context: usize,
}

/// A remote memory operation.
#[derive(Debug)]
pub struct RmaOp<M> {
    /// The peer that registered the memory.
    pub peer: u32,
    /// Local memory: source of a write, destination of a read.
    pub memory: M,
    /// Offset into the remote region, or virtual address (whichever the region was registered
    /// with).
    pub remote_addr: u64,
    /// Key of the remote region.
    pub key: u64,
    /// Immediate data for the target's receive queue (writes only).
    pub data: Option<u64>,
    /// All modes complete when the data is in the target's memory; `Inject` copies. Whether a
    /// refusal is told for certain, see [`SendMode`].
    pub mode: SendMode,
    /// As in [`SendOp`].
    pub copy: bool,
    /// Whether a completion is wanted; without, only failures are reported.
    pub report: bool,
    /// Returned in the completion.
    pub context: usize,
    /// Returned in the completion untouched, for the face's own use.
    pub user: u64,
}

impl<M> RmaOp<M> {
    /// The same operation on other memory: a face names its memory as it likes, and what carries
    /// the operation out names it in its own way.
    #[inline]
    pub fn with_memory<N>(&self, memory: N) -> RmaOp<N> {
        let Self { peer, remote_addr, key, data, mode, copy, report, context, user, .. } = *self;
        RmaOp { peer, remote_addr, key, data, mode, copy, report, context, user, memory }
    }

    /// The caller wants its memory back at once.
    pub(crate) fn must_copy(&self) -> bool {
        self.copy || self.mode == SendMode::Inject
    }
}

/// What became of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// One that was not inserted here has opened to us: from now on it has this number in
    /// completions, and can be sent to. Its place is taken until it is forgotten.
    Arrived {
        /// Its number.
        peer: u32,
    },
    /// One that is known here has gone down, after all that waited for it has failed. Its place is
    /// taken until it is forgotten.
    Down {
        /// Its number.
        peer: u32,
        /// Why.
        reason: DownReason,
    },
    /// Who lives at the addresses that were asked (`Endpoint::ask`): its name, to be inserted; or
    /// why nobody was found.
    Answer {
        /// Of which asking.
        ticket: u64,
        /// The name, or why there is none.
        found: Result<[u8; 48], DownReason>,
    },
}

impl PeerEvent {
    /// Of whom it tells, if that is a peer that has a number.
    #[must_use]
    pub fn peer(&self) -> Option<u32> {
        match *self {
            Self::Arrived { peer } | Self::Down { peer, .. } => Some(peer),
            Self::Answer { .. } => None,
        }
    }
}

/// An atomic operation on a peer's memory: on one element, or on several behind each other, each
/// for itself.
#[derive(Debug)]
pub struct AmoOp<M> {
    /// The peer that registered the memory.
    pub peer: u32,
    /// What is done, to elements of which type.
    pub atomic: Atomic,
    /// How many elements, 1 to [`AMO_COUNT_MAX`](crate::AMO_COUNT_MAX).
    pub count: u32,
    /// The operands, of the elements' type; not looked at where the operation has none.
    pub operand: M,
    /// What the elements are compared with, or masks; not looked at where the operation has none.
    pub compare: M,
    /// Where that goes what the elements held; empty: it is not wanted.
    pub result: M,
    /// Offset into the remote region, or virtual address, of the first element. It must be a
    /// multiple of its size at the target.
    pub remote_addr: u64,
    /// Key of the remote region.
    pub key: u64,
    /// Whether a completion is wanted; without, only failures are reported.
    pub report: bool,
    /// Returned in the completion.
    pub context: usize,
    /// Returned in the completion untouched, for the face's own use.
    pub user: u64,
}

impl<M: Copy> AmoOp<M> {
    /// The same operation on memory that is named in another way.
    #[inline]
    pub fn with_memory<N>(&self, name: impl Fn(M) -> N) -> AmoOp<N> {
        let Self { peer, atomic, count, remote_addr, key, report, context, user, .. } = *self;
        let [operand, compare, result] = [self.operand, self.compare, self.result].map(name);
        AmoOp { peer, atomic, count, operand, compare, result, remote_addr, key, report, context, user }
    }
}

/// What peers may do with a registered region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Peers may read it.
    pub remote_read: bool,
    /// Peers may write it.
    pub remote_write: bool,
}

/// What a completion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// A message sent.
    Send,
    /// A message received.
    Recv,
    /// A multi-receive buffer handed back without a message (cancelled).
    MultiRecvReleased,
    /// A peek.
    Peek,
    /// A remote write, seen by its initiator.
    Write,
    /// A remote read, seen by its initiator.
    Read,
    /// A remote write with immediate data, seen by its target.
    RemoteWrite,
    /// An atomic operation on a peer's memory, whose result was not wanted.
    Atomic,
    /// The same with a result, which is there.
    FetchAtomic,
}

/// The end of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The operation's context.
    pub context: usize,
    /// The operation's `user` word.
    pub user: u64,
    /// What it was.
    pub kind: OpKind,
    /// Tagged or untagged (sends and receives).
    pub class: Class,
    /// Whether the caller asked for success to be reported.
    pub report: bool,
    /// A multi-receive buffer is released with this completion.
    pub multi_done: bool,
    /// Bytes received (receives and peeks), after truncation.
    pub len: usize,
    /// Where a multi-receive put the message ([`Memory::address`](crate::Memory::address)); else 0.
    pub address: usize,
    /// The message's tag.
    pub tag: u64,
    /// Immediate data that came with the message.
    pub data: Option<u64>,
    /// Who sent it; `None` when that peer was never inserted.
    pub source: Option<u32>,
    /// How it went.
    pub result: Result<(), OpError>,
}

impl Completion {
    /// What a face tells its program of a peek that found nothing; one that found a message differs
    /// in what it says of it.
    #[must_use]
    pub fn nothing_found(op: &PeekOp) -> Completion {
        Completion {
            context: op.context,
            user: 0,
            kind: OpKind::Peek,
            class: op.class,
            report: true,
            multi_done: false,
            len: 0,
            address: 0,
            tag: op.tag,
            data: None,
            source: None,
            result: Err(OpError::NoMessage),
        }
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpError {
    /// The message was longer than the receive's memory by this many bytes; the front part was
    /// delivered.
    Truncated {
        /// Bytes that did not fit.
        excess: usize,
    },
    /// Cancelled by its owner.
    Cancelled,
    /// No message matches (peek, claim).
    NoMessage,
    /// The peer is gone or cannot be reached.
    PeerDown(weir_link::DownReason),
    /// Key, range or access right of a remote memory operation was refused by the target.
    Access,
    /// The element of an atomic operation does not lie at a multiple of its size.
    Alignment,
    /// This endpoint's own socket is unusable; the system's error number.
    Socket(i32),
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpError::Truncated { excess } => {
                write!(f, "message truncated, {excess} bytes did not fit")
            }
            OpError::Cancelled => f.write_str("cancelled"),
            OpError::NoMessage => f.write_str("no matching message"),
            OpError::PeerDown(reason) => write!(f, "peer down: {reason}"),
            OpError::Access => f.write_str("remote memory key, range or access refused"),
            OpError::Alignment => f.write_str("remote memory of an atomic operation is not aligned to its size"),
            OpError::Socket(errno) => {
                write!(f, "the endpoint's socket is unusable (system error {errno})")
            }
        }
    }
}

/// Why a call was refused. Nothing has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Try again after progress: a bounded queue is full.
    #[error("a bounded queue is full; make progress and try again")]
    Again,
    /// Sends that wait have used up their memory, and trying again has not helped for long.
    #[error("sends that wait for their receivers have used up their {limit} bytes")]
    NoMemory {
        /// Bytes they may use.
        limit: u64,
    },
    /// The peer is gone.
    #[error("peer down: {0}")]
    PeerDown(DownReason),
    /// No such peer index, key or claim.
    #[error("{0}")]
    Invalid(&'static str),
    /// The message exceeds a limit.
    #[error("{what} is {given}, the limit is {limit}")]
    TooBig {
        /// What was too big.
        what: &'static str,
        /// The value given.
        given: u64,
        /// The limit.
        limit: u64,
    },
    /// The endpoint's socket is unusable ([`Messages::fail_all`](crate::Messages::fail_all)); the
    /// system's error number.
    #[error("the endpoint's socket is unusable (system error {0})")]
    Socket(i32),
    /// The endpoint is closed.
    #[error("the endpoint is closed")]
    Closed,
}
