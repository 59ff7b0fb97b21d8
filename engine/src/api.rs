//! What a face sees of an endpoint: operations, completions, errors.
//!
//! The types mirror what message-passing interfaces have in common (libfabric, MPI, BSP): a peer is a small integer, a tag is 64 bits with an ignore mask, an operation carries an
//! opaque context that its completion returns.

use crate::memory::Gather;
use weir_message::MessageError;

pub use weir_message::{
    AMO_COUNT_MAX, Access, Atomic, AtomicOp, AtomicType, Class, Completion, DownReason, OpError, OpKind, PeekOp,
    SendMode,
};

/// A contiguous piece of the caller's memory.
#[derive(Clone, Copy, Debug)]
pub struct Iov {
    /// First byte.
    pub base: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

// SAFETY: an Iov is a plain address; who dereferences it (memory.rs) states why it is valid.
unsafe impl Send for Iov {}

/// A message to send.
#[derive(Debug)]
pub struct SendOp<'a> {
    /// Destination, from [`crate::Endpoint::insert_peer`].
    pub peer: u32,
    /// Tagged or untagged.
    pub class: Class,
    /// Tag; ignored for untagged messages.
    pub tag: u64,
    /// Immediate data handed to the receiver with the completion.
    pub data: Option<u64>,
    /// The message, gathered.
    pub iov: &'a [Iov],
    /// When it counts as complete.
    pub mode: SendMode,
    /// The caller's memory is free on return, whenever it counts as complete. Copies are memory the caller does not see, so such a message may have
    /// [`crate::MAX_INJECT_BYTES`] at most. `Inject` implies it.
    pub copy: bool,
    /// Whether a completion is wanted; without, only failures are reported.
    pub report: bool,
    /// Returned in the completion.
    pub context: usize,
    /// Returned in the completion untouched, for the face's own use.
    pub user: u64,
}

impl SendOp<'_> {
    /// With its memory by name.
    ///
    /// # Safety
    /// As for [`crate::Endpoint::send`].
    pub(crate) unsafe fn named(&self) -> weir_message::SendOp<Gather> {
        let Self { peer, class, tag, data, iov: _, mode, copy, report, context, user } = *self;
        // SAFETY: passed on from the caller.
        let memory = unsafe { Gather::new(self.iov) };
        weir_message::SendOp { peer, class, tag, data, memory, mode, copy, report, context, user }
    }
}

/// A receive to post.
#[derive(Debug)]
pub struct RecvOp<'a> {
    /// Only from this peer, or from any.
    pub source: Option<u32>,
    /// Tagged or untagged.
    pub class: Class,
    /// Tag wanted; ignored for untagged receives.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
    /// Where the message goes, scattered.
    pub iov: &'a [Iov],
    /// Multi-receive: the buffer takes messages one behind the other until less than this many bytes are free.
    pub multi_min: Option<usize>,
    /// Whether a completion is wanted; without, only failures are reported.
    pub report: bool,
    /// Returned in the completion.
    pub context: usize,
    /// Returned in the completion untouched, for the face's own use.
    pub user: u64,
}

impl RecvOp<'_> {
    /// With its memory by name.
    ///
    /// # Safety
    /// As for [`crate::Endpoint::recv`].
    pub(crate) unsafe fn named(&self) -> weir_message::RecvOp<Gather> {
        // SAFETY: passed on from the caller.
        self.over(unsafe { Gather::new(self.iov) })
    }

    /// The same without memory.
    pub(crate) fn without_memory(&self) -> weir_message::RecvOp<Gather> {
        self.over(Gather::default())
    }

    fn over(&self, memory: Gather) -> weir_message::RecvOp<Gather> {
        let Self { source, class, tag, ignore, iov: _, multi_min, report, context, user } = *self;
        weir_message::RecvOp { source, class, tag, ignore, memory, multi_min, report, context, user }
    }
}

/// A remote memory operation.
#[derive(Debug)]
pub struct RmaOp<'a> {
    /// The peer that registered the memory.
    pub peer: u32,
    /// Local memory: source of a write, destination of a read.
    pub iov: &'a [Iov],
    /// Offset into the remote region, or virtual address (whichever the region was registered with).
    pub remote_addr: u64,
    /// Key of the remote region.
    pub key: u64,
    /// Immediate data for the target's receive queue (writes only).
    pub data: Option<u64>,
    /// All modes complete when the data is in the target's memory; `Inject` copies. Whether a refusal is told for certain, see [`SendMode`].
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

impl RmaOp<'_> {
    /// With its memory by name.
    ///
    /// # Safety
    /// As for [`crate::Endpoint::write`] or [`crate::Endpoint::read`].
    pub(crate) unsafe fn named(&self) -> weir_message::RmaOp<Gather> {
        let Self { peer, iov: _, remote_addr, key, data, mode, copy, report, context, user } = *self;
        // SAFETY: passed on from the caller.
        let memory = unsafe { Gather::new(self.iov) };
        weir_message::RmaOp { peer, memory, remote_addr, key, data, mode, copy, report, context, user }
    }
}

/// An atomic operation on a peer's memory: on one element, or on several behind each other, each for itself. In which order those of one endpoint are executed is not said: who needs an order
/// waits for completions.
#[derive(Debug)]
pub struct AmoOp<'a> {
    /// The peer that registered the memory.
    pub peer: u32,
    /// What is done, to elements of which type.
    pub atomic: Atomic,
    /// How many elements, 1 to [`AMO_COUNT_MAX`].
    pub count: u32,
    /// The operands; not looked at where the operation has none.
    pub operand: &'a [Iov],
    /// What the elements are compared with, or masks; not looked at where the operation has none.
    pub compare: &'a [Iov],
    /// Where that goes what the elements held; empty: it is not wanted.
    pub result: &'a [Iov],
    /// Offset into the remote region, or virtual address, of the first element. It must lie at a multiple of its size.
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

impl AmoOp<'_> {
    /// With its memory by name.
    ///
    /// # Safety
    /// As for [`crate::Endpoint::atomic`].
    pub(crate) unsafe fn named(&self) -> weir_message::AmoOp<Gather> {
        let Self { peer, atomic, count, operand, compare, result, remote_addr, key, report, context, user } = *self;
        // SAFETY: passed on from the caller.
        let [operand, compare, result] = [operand, compare, result].map(|iov| unsafe { Gather::new(iov) });
        weir_message::AmoOp { peer, atomic, count, operand, compare, result, remote_addr, key, report, context, user }
    }
}

/// Why a call was refused.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Try again after progress: a bounded queue is full.
    #[error("a bounded queue is full; make progress and try again")]
    Again,
    /// Sends that wait have used up their memory, and trying again has not helped for long.
    #[error(
        "sends that wait for their receivers have used up their {limit} bytes; give them more with WEIR_COPIED_BYTES"
    )]
    NoMemory {
        /// Bytes they may use.
        limit: u64,
    },
    /// The peer is gone.
    #[error("peer down: {0}")]
    PeerDown(weir_link::DownReason),
    /// No such peer index, key or claim.
    #[error("{0}")]
    Invalid(&'static str),
    /// The message or vector exceeds a limit.
    #[error("{what} is {given}, the limit is {limit}")]
    TooBig {
        /// What was too big.
        what: &'static str,
        /// The value given.
        given: u64,
        /// The limit.
        limit: u64,
    },
    /// A peer's name cannot be used.
    #[error("{0}")]
    Name(String),
    /// Configuration.
    #[error("{variable}: {problem}")]
    Config {
        /// The environment variable or parameter at fault.
        variable: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The job's key.
    #[error("{0}")]
    Key(String),
    /// The system refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The endpoint is closed.
    #[error("the endpoint is closed")]
    Closed,
    /// A panic, that is a defect in Weir, left the endpoint half changed.
    #[error("the endpoint is out of order after a defect in weir")]
    Broken,
}

impl EngineError {
    /// The same, with a variable at fault called as `by` says: a setting has two names (`WEIR_X`, `FI_WEIR_X`), and who reads of it
    /// looks for the one that was set.
    #[must_use]
    pub fn with_variable(self, by: impl FnOnce(&str) -> String) -> Self {
        match self {
            Self::Config { variable, problem } => Self::Config { variable: by(&variable), problem },
            other => other,
        }
    }
}

impl From<MessageError> for EngineError {
    fn from(e: MessageError) -> Self {
        match e {
            MessageError::Again => Self::Again,
            MessageError::NoMemory { limit } => Self::NoMemory { limit },
            MessageError::PeerDown(reason) => Self::PeerDown(reason),
            MessageError::Invalid(what) => Self::Invalid(what),
            MessageError::TooBig { what, given, limit } => Self::TooBig { what, given, limit },
            MessageError::Socket(errno) => Self::Io {
                doing: "the endpoint's socket is unusable".into(),
                source: std::io::Error::from_raw_os_error(errno),
            },
            MessageError::Closed => Self::Closed,
        }
    }
}
