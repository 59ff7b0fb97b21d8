//! What is exchanged where it is more than a message with a partner: words that machines,
//! operations and patterns share.

/// How operations on the memory of others are completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Each for itself, at its target.
    Flush,
    /// By all of the group together.
    Fence,
    /// Each for itself, by a lock of its target for it alone.
    Lock,
}

/// A message of several that are exchanged at once: with whom, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The other rank.
    pub peer: usize,
    /// Bytes.
    pub bytes: usize,
}

/// A rank's part in a step of messages: it computes, then exchanges all of them at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Time to compute, ns.
    pub compute_ns: u64,
    /// What is sent, each from the beginning of the buffer.
    pub sends: Vec<Leg>,
    /// What is received, one behind the other.
    pub receives: Vec<Leg>,
}
