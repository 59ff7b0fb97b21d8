//! Which carrier takes what is sent to a peer, and why. What arrives is taken from any.
//!
//! | peer | carrier | reason |
//! |---|---|---|
//! | this endpoint itself | none: its session is drained into its own arriving side (`weir_message`, `loopback`) | nothing has to travel |
//! | of this host, user, job and network namespace | shared memory | a tenth of the time of packets over loopback; found by trying, which costs one refused connection where it is not so |
//! | any other | packets | always there, and survive loss and links that fail |
//! | any other, where both are set to it | SCTP, once it is up (`spec/sctp.md`) | to be measured beside packets |
//! | any other, 8 KiB and more (by turns, or one after the other, 2 KiB), where the network is at its best | a bulk TCP connection beside packets | a fifth of the processor time for a byte (`spec/bulk.md` 6) |
//!
//! Shared memory that does not come up gives its session to packets, with all that waits. It is not
//! tried again: what made it fail is likely to be there still. Chosen once for a peer, before the
//! first thing is sent to it: a session that packets carry already stays with them.

use crate::config::{BulkUse, CarrierUse, EngineConfig};
use crate::core::Core;
use weir_link::PeerId;
use weir_session::Carrier;

/// Whether this endpoint shares memory at all.
pub fn shares_memory(cfg: &EngineConfig) -> bool {
    match cfg.carrier {
        CarrierUse::Shm => true,
        // Who captures or injects faults wants to see packets.
        CarrierUse::Auto => cfg.capture.is_none() && cfg.faults.is_none(),
        CarrierUse::Network | CarrierUse::Udp | CarrierUse::Tcp | CarrierUse::Sctp => false,
    }
}

/// Whether it takes bulk TCP connections: only at a level that TCP can keep.
pub fn takes_bulk(cfg: &EngineConfig) -> bool {
    let limited = matches!(cfg.carrier, CarrierUse::Udp | CarrierUse::Sctp);
    cfg.bulk_connections != BulkUse::Off && !limited && cfg.level == weir_link::Level::Integrity
}

/// Whether they are used whatever the network is like.
pub fn bulk_always(cfg: &EngineConfig) -> bool {
    cfg.carrier == CarrierUse::Tcp || cfg.bulk_connections == BulkUse::Always
}

/// What carries what is sent to a peer, in a word, and why, for people.
pub fn told(core: &Core, peer: u32) -> (&'static str, String) {
    let proto = core.st.proto();
    let carrier = proto.sessions().get(PeerId(peer)).map_or(Carrier::Link, |s| s.carrier());
    let shm = core.shm.as_ref();
    match carrier {
        Carrier::Loopback => ("self", "the endpoint itself".to_owned()),
        Carrier::Shm => {
            let large = match shm.and_then(|s| s.pull(peer)) {
                Some(Ok(())) => "large messages are read from the sender's memory".to_owned(),
                Some(Err(why)) => format!("large messages are copied twice: {why}"),
                None if core.st.messages.down(peer).is_some() => "it is over".to_owned(),
                None => "not used yet".to_owned(),
            };
            ("shm", format!("a process of this host and user; {large}"))
        }
        Carrier::Sctp => ("sctp", core.sctp.as_ref().map_or_else(String::new, |sctp| sctp.told(&core.st, peer))),
        Carrier::Link => {
            if let Some(sctp) = &core.sctp {
                return ("udp", sctp.told(&core.st, peer));
            }
            let word = if proto.has_bulk(PeerId(peer)) { "udp+tcp" } else { "udp" };
            let why = match (shm, shm.and_then(|s| s.why(peer, proto.peer_endpoint_id(PeerId(peer))))) {
                (_, Some(why)) => format!("no shared memory: {why}"),
                (Some(_), None) => "it was there before shared memory was".to_owned(),
                (None, None) => format!("this endpoint shares no memory: {}", core.no_shm),
            };
            (word, why)
        }
    }
}
