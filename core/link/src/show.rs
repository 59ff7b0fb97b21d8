//! What a driver needs to show packets and messages to people: traces.

use core::ops::Range;

use weir_wire::{Header, Level, expand};

use crate::PeerId;
use crate::endpoint::{Endpoint, INDEX_BITS};

impl Endpoint {
    /// The peer whose packets to us bear this association id.
    #[must_use]
    pub fn peer_of_association(&self, id: u64) -> Option<PeerId> {
        let index = id as u32 & ((1 << INDEX_BITS) - 1);
        self.assocs.get(index as usize).filter(|a| a.local_id == id && id != 0).map(|_| PeerId(index))
    }

    /// Where the frames lie of a PROTECTED packet, whole, that was just written to this peer; at
    /// level encrypt they are decrypted in place.
    #[must_use]
    pub fn reveal(&self, peer: PeerId, packet: &mut [u8]) -> Option<Range<usize>> {
        let header = Header::parse(packet).ok()?;
        if header.level != Level::Encrypt {
            return Some(header.level.frames_offset()..packet.len() - header.level.trailer_len());
        }
        let a = self.assocs.get(peer.0 as usize)?;
        a.crypt.as_ref()?.keys.send.reopen(expand(header.number, a.rec.next()), packet).ok()
    }

    /// The number of the message accepted last for this peer, matched or control: the `mseq` that
    /// its fragments bear.
    #[must_use]
    pub fn last_message(&self, peer: PeerId, control: bool) -> Option<u64> {
        self.sessions.get(peer)?.last_message(control)
    }
}
