//! What an endpoint shares with its queues, counters, address vector and domain, which lie between
//! it and the object that the application has.

use crate::abi::FI_ADDR_NOTAVAIL;
use crate::table::{NONE, Table};
use std::sync::{Arc, LazyLock};
use weir_engine::Endpoint;

/// What an endpoint shares with its queues, counters and address vector.
pub struct EpCore {
    /// The engine.
    pub engine: Arc<Endpoint>,
    /// From libfabric addresses to the engine's peers.
    pub forward: Table,
    /// And back.
    pub reverse: Table,
}

impl EpCore {
    /// A completion's peer as a libfabric address.
    #[inline]
    pub fn address_of(&self, peer: Option<u32>) -> u64 {
        // An entry never set reads as NONE, which is FI_ADDR_NOTAVAIL.
        peer.map_or(FI_ADDR_NOTAVAIL, |p| self.reverse.get(u64::from(p)))
    }
}

const _: () = assert!(NONE == FI_ADDR_NOTAVAIL);

/// The endpoints of the process, of whatever fabric (each of Open MPI's two has its own): a program
/// that polls a queue of one, waiting for what another is to do, does not know that the other needs
/// it too.
pub static ENDPOINTS: LazyLock<weir_engine::Group> = LazyLock::new(weir_engine::Group::new);
