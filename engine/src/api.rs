//! What a face sees of an endpoint: operations, completions, errors.
//!
//! The types are those of `weir_message`, which says what each field means; here their memory is
//! the caller's own, by address.

use weir_message::MessageError;

pub use weir_message::{
    AMO_COUNT_MAX, Access, Atomic, AtomicOp, AtomicType, Class, Completion, DownReason, Handed, OpError, OpKind,
    OwnQueue, PeekOp, PeerEvent, SendMode, Slots, Superstep, Wanted,
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

/// A message to send: its memory is a list of pieces, gathered.
pub type SendOp<'a> = weir_message::SendOp<&'a [Iov]>;
/// A receive to post: its memory is a list of pieces, to be scattered over.
pub type RecvOp<'a> = weir_message::RecvOp<&'a [Iov]>;
/// A remote memory operation: its local memory is a list of pieces.
pub type RmaOp<'a> = weir_message::RmaOp<&'a [Iov]>;
/// An atomic operation on a peer's memory. In which order those of one endpoint are executed is not
/// said: who needs an order waits for completions.
pub type AmoOp<'a> = weir_message::AmoOp<&'a [Iov]>;

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
    /// The endpoint is of the process that this one was made from, by fork(2).
    #[error("the endpoint belongs to the process that this one was forked from")]
    Inherited,
}

impl EngineError {
    /// The same, with a variable at fault called as `by` says: a setting has two names (`WEIR_X`,
    /// `FI_WEIR_X`), and who reads of it looks for the one that was set.
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
