//! What the helper keeps of root's rights: three of some forty.

use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use std::io;

/// To attach the program, to load it, to make AF_XDP sockets.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::BPF).union(CapabilitySet::NET_RAW);

/// Gives up all rights but those needed, for good. Ranks' frames are locked memory, of which there may be as much as ranks need.
///
/// # Errors
/// The system's.
pub fn keep_few() -> io::Result<()> {
    // Without the right to raise it the limit stays, and with it perhaps the number of ranks.
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
    set_no_new_privs(true)?;
    let kept = capabilities(None)?.permitted & KEPT;
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })?;
    Ok(())
}
