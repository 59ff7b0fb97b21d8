//! Which carrier takes what a session sends.

use serde::Serialize;

/// The carrier of everything that a session sends. What arrives is taken from any: the numbers of
/// the session make it harmless by which way, and how often, a fragment comes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// Packets, and a bulk TCP connection beside them where it pays.
    #[default]
    Link,
    /// Memory shared with a process of the same host.
    Shm,
    /// None: the peer is this endpoint itself, and the arriving side of the same session takes it.
    Loopback,
    /// SCTP between the two endpoints of an association (spec/sctp.md).
    Sctp,
}

impl Carrier {
    /// How many there are.
    pub(crate) const COUNT: usize = 4;

    /// Its place in a table, and in a set of flags.
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    pub(crate) fn flag(self) -> u8 {
        1 << self.index()
    }
}
