//! How much of each kind may be under way with one peer.

/// Writes with immediate data towards one peer that its program may not have noticed yet
/// (spec/envelopes.md): each takes a place in its queue.
pub(crate) const NOTICES_MAX: u32 = 4096;

/// Larger writes towards one peer that may be under way: each holds a rendezvous transfer open
/// there.
pub(crate) const REQUESTS_MAX: u32 = 1024;
/// Larger writes of one peer that may be under way here: twice what one that behaves begins.
pub(crate) const WRITES_OPEN_MAX: u32 = 2 * REQUESTS_MAX;
/// Reads from one peer, and reads of one peer, that may be under way: each holds a rendezvous
/// transfer open here.
pub(crate) const READS_MAX: u32 = 2 * REQUESTS_MAX;
/// Elements of atomic operations towards one peer that may be under way: each has an answer coming.
pub(crate) const ATOMICS_MAX: u32 = 2048;
/// Pieces of writes towards one peer that may wait for its answer: well below the answers that it
/// has room for.
pub(crate) const ANSWERS_MAX: u32 = 16 << 10;
