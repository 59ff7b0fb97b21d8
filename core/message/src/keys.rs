//! The names of operations and messages, towards the protocol and the matcher too.

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

/// A key as a token for `link` and `match`; never [`NO_TOKEN`] (a slot map's versions start at 1,
/// in the upper half).
pub fn token<K: slotmap::Key>(key: K) -> u64 {
    key.data().as_ffi()
}

/// The key behind a token.
pub fn key<K: slotmap::Key>(token: u64) -> K {
    K::from(slotmap::KeyData::from_ffi(token))
}
