//! What the descriptors are that an endpoint waits for.

/// What a descriptor in the wait set is: the upper half of its tag; the lower is a number.
pub const TAG_LISTENER: u64 = 0;
pub const TAG_STRANGER: u64 = 1 << 32;
pub const TAG_PEER: u64 = 2 << 32;
pub const TAG_PROCESS: u64 = 3 << 32;
