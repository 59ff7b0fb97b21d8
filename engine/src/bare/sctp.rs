//! User messages of SCTP as a peer that lies writes them: they come to the endpoint as if its SCTP
//! had brought them, however long they are and by whatever stream.

use crate::Endpoint;
use crate::clock;
use weir_link::PeerId;

/// Says something to an endpoint in the name of one of its peers: a stream and a payload protocol
/// identifier, and the message.
pub fn sctp_says(ep: &Endpoint, peer: u32, by: (u16, u32), message: &[u8]) {
    let core = &mut *ep.shared.core.lock();
    if let Some(sctp) = &mut core.sctp {
        sctp.message(&mut core.st, clock::now(), PeerId(peer), by, message);
    }
}

/// Whether SCTP carries what goes to a peer.
#[must_use]
pub fn sctp_is_up(ep: &Endpoint, peer: u32) -> bool {
    ep.shared.core.lock().sctp.as_ref().is_some_and(|sctp| sctp.is_up(PeerId(peer)))
}

/// The HELLO of an endpoint for a peer.
#[must_use]
pub fn sctp_hello(ep: &Endpoint, peer: u32) -> Option<Vec<u8>> {
    ep.shared.core.lock().st.proto().sctp_hello(PeerId(peer)).map(Vec::from)
}

/// A peer has not said its HELLO, to this endpoint's mind.
pub fn sctp_unhear(ep: &Endpoint, peer: u32) {
    if let Some(sctp) = &mut ep.shared.core.lock().sctp {
        sctp.unhear(PeerId(peer));
    }
}
