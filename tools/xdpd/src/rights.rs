//! What the helper keeps of root's rights: four of some forty.

use crate::Mode;
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use std::io;

/// To attach the program, to load it, to make AF_XDP sockets, and to lock their frames in memory
/// where the limit cannot be raised (in containers).
const KEPT: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::BPF).union(CapabilitySet::NET_RAW).union(CapabilitySet::IPC_LOCK);

/// What nobody can be served without in this mode (`spec/xdp.md` 6.1). Ring buffers need no right
/// to make sockets.
fn needed(mode: Mode) -> &'static [(CapabilitySet, &'static str)] {
    const NEEDED: [(CapabilitySet, &str); 3] = [
        (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
        (CapabilitySet::BPF, "CAP_BPF"),
        (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
    ];
    match mode {
        Mode::Ring => &NEEDED[..2],
        Mode::Generic | Mode::Native => &NEEDED,
    }
}

/// The rights that this process needs in this mode and does not have, by name.
///
/// # Errors
/// The system's.
pub fn lacking(mode: Mode) -> io::Result<Vec<&'static str>> {
    Ok(lacking_of(mode, capabilities(None)?.permitted))
}

fn lacking_of(mode: Mode, permitted: CapabilitySet) -> Vec<&'static str> {
    needed(mode).iter().filter(|(right, _)| !permitted.contains(*right)).map(|(_, name)| *name).collect()
}

/// Gives up all rights but those needed, for good. Ranks' frames are locked memory, of which there
/// may be as much as ranks need.
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
        let none = CapabilitySet::empty();
        assert_eq!(lacking_of(Mode::Ring, none), ["CAP_NET_ADMIN", "CAP_BPF"]);
        assert!(lacking_of(Mode::Ring, KEPT - CapabilitySet::NET_RAW).is_empty(), "a ring buffer is no socket");
        for mode in [Mode::Generic, Mode::Native] {
            assert_eq!(lacking_of(mode, none), ["CAP_NET_ADMIN", "CAP_BPF", "CAP_NET_RAW"]);
            assert_eq!(lacking_of(mode, KEPT - CapabilitySet::NET_RAW), ["CAP_NET_RAW"]);
        }
        for mode in [Mode::Ring, Mode::Generic, Mode::Native] {
            assert_eq!(lacking_of(mode, KEPT - CapabilitySet::BPF), ["CAP_BPF"]);
            assert!(lacking_of(mode, KEPT).is_empty());
        }
    }
}
