//! The table of operations begun here whose payload or answer is under way: sends, remote writes
//! and reads, and answers to peers' reads.

use crate::api::{OpError, OpKind};
use crate::keys::{SendKey, key};
use crate::memory::Memory;
use crate::source::Source;
use alloc::vec::Vec;
use slotmap::SlotMap;
use weir_link::Payloads;
use weir_match::Class;

/// What an entry is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// An eager message.
    Eager,
    /// A rendezvous or large remote write whose request is out; the receiver has not answered.
    Requested,
    /// A rendezvous or large remote write whose rendezvous transfer is on its way.
    Rndv,
    /// A remote write, waiting for its pieces.
    Write,
    /// One packet-sized piece of a remote write.
    Piece(SendKey),
    /// A remote read, waiting for its rendezvous transfer.
    Read,
    /// The answer to a peer's remote read.
    ReadReply,
    /// An atomic operation on one element, waiting for its answer: all there is of an operation, or
    /// one of several elements. Its payload is where the answer goes.
    Atomic(Option<SendKey>),
    /// An atomic operation on several elements, waiting for them.
    Atomics,
}

/// One entry.
#[derive(Debug)]
pub(crate) struct SendState<M> {
    /// Destination.
    pub peer: u32,
    /// The payload (sends, writes).
    pub source: Source<M>,
    /// Payload length, bytes.
    pub len: u64,
    /// What it is doing.
    pub role: Role,
    /// What the completion says.
    pub kind: OpKind,
    /// Tagged or untagged.
    pub class: Class,
    /// For the completion and the trace; of a remote operation and of an answer, the region's key.
    pub tag: u64,
    /// For the completion.
    pub context: usize,
    /// For the completion.
    pub user: u64,
    /// Whether success is reported.
    pub report: bool,
    /// The completion was already given; the entry lives on for its payload.
    pub announced: bool,
    /// Acknowledgements of its packets, by the protocol, still awaited: until then its payload may
    /// be read.
    pub awaits: u32,
    /// Answers of the peer still awaited: a match, or that writes have been done.
    pub answers: u32,
    /// What it will end with, known before all that is awaited has come.
    pub refused: Option<OpError>,
    /// The handle of the rendezvous transfer it is sent as, by its receiver.
    pub rndv: Option<u64>,
    /// What it takes of the budget of copies, bytes.
    pub charge: u64,
    /// Its number in the trace (0: none).
    pub number: u64,
}

impl<M> SendState<M> {
    /// An operation towards `peer`, one acknowledgement awaited, of which nobody wants to hear.
    #[inline]
    pub(crate) fn new(peer: u32, source: Source<M>, len: u64, role: Role, kind: OpKind) -> Self {
        SendState {
            peer,
            source,
            len,
            role,
            kind,
            class: Class::Untagged,
            tag: 0,
            context: 0,
            user: 0,
            report: false,
            announced: false,
            awaits: 1,
            answers: 0,
            refused: None,
            rndv: None,
            charge: 0,
            number: 0,
        }
    }

    /// Nothing is awaited any more.
    pub(crate) fn is_over(&self) -> bool {
        self.awaits == 0 && self.answers == 0
    }

    /// Nobody waits for its acknowledgement.
    pub(crate) fn is_patient(&self) -> bool {
        self.announced && self.answers == 0
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Sends<M> {
    table: SlotMap<SendKey, SendState<M>>,
}

impl<M> Default for Sends<M> {
    fn default() -> Self {
        Sends { table: SlotMap::with_key() }
    }
}

impl<M> Sends<M> {
    pub(crate) fn insert(&mut self, s: SendState<M>) -> SendKey {
        self.table.insert(s)
    }

    pub(crate) fn get(&self, k: SendKey) -> Option<&SendState<M>> {
        self.table.get(k)
    }

    pub(crate) fn get_mut(&mut self, k: SendKey) -> Option<&mut SendState<M>> {
        self.table.get_mut(k)
    }

    pub(crate) fn remove(&mut self, k: SendKey) -> Option<SendState<M>> {
        self.table.remove(k)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Those that `wanted` says.
    fn keys_of(&self, wanted: impl Fn(&SendState<M>) -> bool) -> Vec<SendKey> {
        self.table.iter().filter(|(_, s)| wanted(s)).map(|(k, _)| k).collect()
    }

    /// Those that depend on a peer.
    pub(crate) fn of_peer(&self, peer: u32) -> Vec<SendKey> {
        self.keys_of(|s| s.peer == peer)
    }

    /// Those that depend on any peer but this endpoint itself (`own`).
    pub(crate) fn of_others(&self, own: Option<u32>) -> Vec<SendKey> {
        self.keys_of(|s| Some(s.peer) != own)
    }

    /// Messages of this context to others than this endpoint itself (`own`) that wait to be asked
    /// for.
    pub(crate) fn waiting(&self, context: usize, own: Option<u32>) -> Vec<SendKey> {
        let waits = |s: &SendState<M>| s.role == Role::Requested && s.kind == OpKind::Send && !s.announced;
        self.keys_of(|s| s.context == context && waits(s) && Some(s.peer) != own)
    }

    /// Elements of an atomic operation.
    pub(crate) fn elements_of(&self, parent: SendKey) -> Vec<SendKey> {
        self.keys_of(|s| s.role == Role::Atomic(Some(parent)))
    }

    /// Answers to peers that read a region.
    pub(crate) fn answers_from(&self, region: u64) -> Vec<SendKey> {
        self.keys_of(|s| s.role == Role::ReadReply && s.tag == region)
    }

    /// Whether something that was reported as complete has not reached its peer, another than this
    /// endpoint itself (`own`).
    pub(crate) fn owe(&self, own: Option<u32>) -> bool {
        self.table.values().any(|s| s.announced && Some(s.peer) != own)
    }

    /// Whose they are, each as often as it has any.
    pub(crate) fn peers(&self) -> impl Iterator<Item = u32> {
        self.table.values().map(|s| s.peer)
    }

    pub(crate) fn clear(&mut self) {
        self.table.clear();
    }
}

/// The protocol reads payloads through this.
impl<M: Memory> Payloads for Sends<M> {
    fn read(&self, token: u64, offset: u64, dst: &mut [u8]) {
        match self.get(key::<SendKey>(token)) {
            Some(s) => s.source.read(offset, dst),
            // Only after a failure that the protocol has not seen yet; what is sent then is never
            // used.
            None => dst.fill(0),
        }
    }

    fn crc(&self, token: u64, offset: u64, len: usize, crc: u32) -> u32 {
        self.get(key::<SendKey>(token)).map_or(crc, |s| s.source.crc32c(offset, len, crc))
    }
}
