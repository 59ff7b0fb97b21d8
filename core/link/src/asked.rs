//! What an endpoint keeps of askings (`asking`), and what they find.

use core::net::SocketAddr;

use smallvec::SmallVec;
use weir_wire::handshake as wire;

use crate::{DownReason, Time};

/// The endpoint id that nobody has: who opens to it asks who is there.
pub(crate) const NOBODY: u64 = u64::MAX;

/// What an asking has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// As [`Endpoint::ask`] gave it.
    pub ticket: u64,
    /// The name of who lives there, by the address that answered; or why nobody was found.
    pub found: Result<[u8; weir_wire::NAME_LEN], DownReason>,
}

/// One asking.
pub(crate) struct Asking {
    pub(crate) opening: wire::Opening,
    pub(crate) addrs: SmallVec<[SocketAddr; 2]>,
    pub(crate) send_at: Time,
    pub(crate) give_up: Time,
    pub(crate) interval_ns: u64,
    pub(crate) tries: u32,
    /// Of these, how many the network refused.
    pub(crate) refused: u32,
}
