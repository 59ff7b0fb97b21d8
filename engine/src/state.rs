//! The tables of one endpoint: operations in flight, arriving messages, bodies, regions, peers.

use crate::api::{Access, Completion, OpError, OpKind};
use crate::budget::{Refused, WAITING_BYTES};
use crate::memory::{Gather, INLINE_BYTES, Pool, Source};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::net::SocketAddr;
use weir_match::Class;
use weir_proto::{DownReason, Time};

slotmap::new_key_type! {
    /// A send, remote write, remote read, or answer to one.
    pub struct SendKey;
    /// A posted receive.
    pub struct RecvKey;
    /// A message that has begun to arrive.
    pub struct MsgKey;
}

/// Token of messages that need no notice.
pub const NO_TOKEN: u64 = 0;

/// A key as a token for `proto` and `match`; never [`NO_TOKEN`] (a slot map's versions start at 1, in the upper half).
pub fn token<K: slotmap::Key>(key: K) -> u64 {
    key.data().as_ffi()
}

/// The key behind a token.
pub fn key<K: slotmap::Key>(token: u64) -> K {
    K::from(slotmap::KeyData::from_ffi(token))
}

/// What an entry of the send table is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An eager message.
    Eager,
    /// A rendezvous or large remote write whose request is out; the receiver has not answered.
    Requested,
    /// A rendezvous or large remote write whose body is on its way.
    Body,
    /// A remote write, waiting for its pieces.
    Write,
    /// One packet-sized piece of a remote write.
    Piece(SendKey),
    /// A remote read, waiting for its body.
    Read,
    /// The answer to a peer's remote read.
    ReadReply,
    /// A large message to this endpoint itself, waiting to be matched.
    ToSelf,
}

/// One entry of the send table.
pub struct SendState {
    /// Destination.
    pub peer: u32,
    /// The payload (sends, writes).
    pub source: Source,
    /// Payload length, bytes.
    pub len: u64,
    /// What it is doing.
    pub role: Role,
    /// What the completion says.
    pub kind: OpKind,
    /// Tagged or untagged.
    pub class: Class,
    /// For the completion and the trace.
    pub tag: u64,
    /// For the completion.
    pub context: usize,
    /// For the completion.
    pub user: u64,
    /// Whether success is reported.
    pub report: bool,
    /// The completion was already given; the entry lives on for its payload.
    pub announced: bool,
    /// Acknowledgements of its packets, by the protocol, still awaited: until then its payload may be read.
    pub awaits: u32,
    /// Answers of the peer still awaited: a match, or that writes have been done.
    pub answers: u32,
    /// What it will end with, known before all that is awaited has come.
    pub refused: Option<OpError>,
    /// Where a remote read puts its bytes.
    pub dest: Gather,
    /// The peer's handle of the body it is sent as.
    pub body: Option<u64>,
    /// What it takes of the budget of copies, bytes.
    pub charge: u64,
    /// Its number in the trace (0: none).
    pub number: u64,
}

/// What the copy of a payload takes of the budget of copies, bytes, for a send that `waits` to be asked for it.
pub fn copy_cost(len: usize, waits: bool) -> u64 {
    let payload = if len <= INLINE_BYTES { 0 } else { Pool::cost(len) };
    payload + if waits { WAITING_BYTES } else { 0 }
}

/// A posted receive.
pub struct RecvState {
    /// Where the message goes.
    pub dest: Gather,
    /// For the completion.
    pub context: usize,
    /// For the completion.
    pub user: u64,
    /// For the completion.
    pub class: Class,
    /// Whether success is reported.
    pub report: bool,
    /// Multi-receive: messages bound and not yet complete.
    pub multi: Option<MultiState>,
    /// Its number in the trace (0: none).
    pub number: u64,
}

/// State of a multi-receive buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct MultiState {
    /// Messages bound, not yet complete.
    pub pending: u32,
    /// The matcher will bind no more.
    pub closed: bool,
}

/// Where the bytes of an arriving message go.
pub enum Place {
    /// Nowhere yet: nothing has arrived but the envelope.
    Nowhere,
    /// An engine buffer, waiting to be matched.
    Buffer(Vec<u8>),
    /// A receive's memory.
    Recv {
        /// The receive.
        recv: RecvKey,
        /// The part of its memory this message may use.
        dest: Gather,
    },
    /// Thrown away (the receive was cancelled or failed meanwhile).
    Discard,
}

/// What the sender did with the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriage {
    /// The payload comes with the envelope.
    Eager,
    /// The sender waits to be asked for it (its operation's token).
    Rendezvous(u64),
    /// A message to self whose payload stays with the send (its key).
    Own(SendKey),
}

/// A message that has begun to arrive and is not yet delivered.
pub struct RxMsg {
    /// Sender.
    pub peer: u32,
    /// Tag.
    pub tag: u64,
    /// Immediate data.
    pub data: Option<u64>,
    /// Its stream.
    pub stream: u16,
    /// Length, bytes.
    pub len: u64,
    /// Eager payload is complete.
    pub complete: bool,
    /// All of it is in its multi-receive, and an earlier one of its peer is not.
    pub waits_in_line: bool,
    /// How its payload travels.
    pub carriage: Carriage,
    /// The sender wants to know of the match (its operation's token).
    pub sync: Option<u64>,
    /// Where its bytes go.
    pub place: Place,
    /// It was not asked for when it had come, and takes part of the budget of unexpected messages.
    pub held: bool,
    /// Its number in the trace (0: none).
    pub number: u64,
}

/// Who gets the news when a body is complete.
#[derive(Clone, Copy, Debug)]
pub enum BodyOwner {
    /// A rendezvous message.
    Msg(MsgKey),
    /// A remote read of ours.
    Read(SendKey),
    /// A peer's large remote write into our memory.
    Write {
        /// Immediate data for our receive queue.
        data: Option<u64>,
        /// Key of the region, so that it is not closed meanwhile unseen.
        region: u64,
        /// The writer's operation, which waits to hear how it ended.
        op: u64,
    },
}

/// A body being received.
pub struct BodyDest {
    /// Where its bytes go.
    pub dest: Gather,
    /// Who is told.
    pub owner: BodyOwner,
    /// Length, bytes.
    pub len: u64,
}

/// Memory that peers may reach.
pub struct Region {
    /// The memory.
    pub memory: Gather,
    /// Address that peers call its first byte (0, or its virtual address).
    pub base: u64,
    /// What they may do.
    pub access: Access,
}

/// What the engine knows of a peer.
pub struct PeerState {
    /// Its name.
    pub name: [u8; 48],
    /// The caller knows it (it was inserted): completions may name it.
    pub inserted: bool,
    /// Established: its credit is known.
    pub up: bool,
    /// Dead, and why.
    pub down: Option<DownReason>,
    /// Messages with fragments still missing.
    pub partial: SmallVec<[(u64, MsgKey); 4]>,
    /// Its messages that were put into multi-receives and are not reported yet, in the order in which they were sent.
    pub in_line: VecDeque<MsgKey>,
    /// When something was last sent to it.
    pub last_send: Time,
    /// Large remote writes towards it that have not ended.
    pub requests: u32,
    /// Bodies of its large writes that are open here.
    pub writes_open: u32,
    /// Remote reads from it that have not ended.
    pub reads: u32,
    /// Reads of its that are being answered.
    pub replies: u32,
    /// Its answers that small remote writes towards it wait for.
    pub answers: u32,
    /// Copies of payloads for it, bytes.
    pub copied_bytes: u64,
    /// Its sends are refused for lack of room.
    pub refused: Option<Refused>,
    /// Sent with their payload before its credit was known, bytes.
    pub early_bytes: usize,
    /// Writes with immediate data, in both directions.
    pub notices: Notices,
    /// What its streams carried.
    pub streams: crate::counters::Streams,
    /// Where it does not answer TCP, as of the last time that it was tried; and whether that was said.
    pub no_tcp_to: Option<SocketAddr>,
    pub told_no_tcp: bool,
}

impl PeerState {
    /// A peer nothing is known of.
    pub fn new() -> PeerState {
        PeerState {
            name: [0; 48],
            inserted: false,
            up: false,
            down: None,
            partial: SmallVec::new(),
            in_line: VecDeque::new(),
            last_send: Time(0),
            requests: 0,
            writes_open: 0,
            reads: 0,
            replies: 0,
            answers: 0,
            copied_bytes: 0,
            refused: None,
            early_bytes: 0,
            notices: Notices::default(),
            streams: crate::counters::Streams::default(),
            no_tcp_to: None,
            told_no_tcp: false,
        }
    }
}

/// The credit of writes with immediate data: their notices wait in the target's queue until its program takes them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Notices {
    /// Begun here.
    pub begun: u64,
    /// Of these, taken there (or refused).
    pub taken: u64,
    /// Of the peer, waiting here or about to arrive.
    pub held: u32,
    /// Of the peer, taken here (or refused).
    pub done: u64,
    /// How many of these it has been told of.
    pub told: u64,
}

/// Completions of one direction, oldest first.
pub type CompletionQueue = std::collections::VecDeque<Completion>;
