//! What the helper keeps of root's rights: four of some forty.

use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use std::io;

/// To attach the program, to load it, to make AF_XDP sockets, and to lock their frames in memory where the limit cannot be raised (in containers).
const KEPT: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::BPF).union(CapabilitySet::NET_RAW).union(CapabilitySet::IPC_LOCK);

/// What nothing can be served without.
const NEEDED: [(CapabilitySet, &str); 2] =
    [(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"), (CapabilitySet::BPF, "CAP_BPF")];

/// The rights that this process needs and does not have, by name.
///
/// # Errors
/// The system's.
pub fn lacking() -> io::Result<Vec<&'static str>> {
    Ok(lacking_of(capabilities(None)?.permitted))
}

fn lacking_of(permitted: CapabilitySet) -> Vec<&'static str> {
    NEEDED.iter().filter(|(right, _)| !permitted.contains(*right)).map(|(_, name)| *name).collect()
}

/// Gives up all rights but those needed, for good. Ranks' frames are locked memory, of which there may be as much as ranks need.
///
/// # Errors
/// The system's.
pub fn keep_few() -> io::Result<()> {
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
    set_no_new_privs(true)?;
    let kept = capabilities(None)?.permitted & KEPT;
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_named() {
        assert_eq!(lacking_of(CapabilitySet::empty()), ["CAP_NET_ADMIN", "CAP_BPF"]);
        assert_eq!(lacking_of(KEPT - CapabilitySet::BPF), ["CAP_BPF"]);
        assert!(lacking_of(KEPT).is_empty());
    }
}
