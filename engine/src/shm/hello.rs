//! Who a peer on shared memory is: its first record says so (spec/shm.md 10).

use super::records::{HELLO_LEN, PULL_MIN, SMALL_MAX};
use super::{RING_RECORDS, SharedMemory};
use crate::state::State;
use weir_link::{DownReason, EndpointName, Event, PeerId, Time};
use weir_session::{Carrier, Terms};
use weir_shm::PeerIx;

/// A peer that comes again waits so long until what it was before is forgotten: as long as one that
/// comes by packets.
const HELLO_WAIT_NS: u64 = 10_000_000_000;

impl SharedMemory {
    /// The peer has said who it is and what it lets us send.
    pub(super) fn hello(&mut self, st: &mut State, now: Time, ix: PeerIx, bytes: &[u8]) -> Result<(), &'static str> {
        let hello: &[u8; HELLO_LEN] = bytes.first_chunk().ok_or("short hello")?;
        let name: &[u8; 48] = hello.first_chunk().expect("shorter");
        let decoded = EndpointName::decode(name).map_err(|_| "hello without a name")?;
        if self.shm.peer_id(ix) != Some(decoded.endpoint_id) {
            return Err("hello of somebody else");
        }
        if bytes[66..68] != self.features.to_le_bytes() {
            return Err("hello with other features");
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let terms = Terms { credit_msgs: word(48), credit_bytes: word(56) };
        let peer = st.proto_mut().peer(&decoded).map_err(|_| "hello with a name of another job")?;
        if self.must_wait(st, now, ix, peer, hello)? {
            return Ok(());
        }
        self.bind(st, ix, peer);
        let pulls = bytes[64] & 1 != 0;
        self.entry(st, ix).pulls = pulls;
        st.messages.with_events(now, &[], |proto, events| {
            let Some(s) = proto.sessions().get(peer) else { return Err("no session") };
            if s.down().is_some() {
                return Err("a peer that is down");
            }
            if s.carrier() == Carrier::Link && !s.is_up() && !s.has_open() {
                proto.sessions_mut().set_carrier(peer, Carrier::Shm);
            }
            let Some((s, common)) = proto.sessions_mut().get_mut(peer) else { return Err("no session") };
            if s.carrier() == Carrier::Shm {
                s.set_piece_max(SMALL_MAX);
                if pulls {
                    s.set_lent_from(PULL_MIN);
                }
                events.push(Event::Up { peer });
                if !s.begin(common, terms) {
                    proto.end(now, peer, DownReason::NoRoom, events);
                }
                proto.sessions_mut().touch(peer);
            }
            Ok(())
        })
    }

    /// Whether a hello has to wait: its peer was here before, and who refers to that has not let go
    /// of it yet. (One that drops a peer and comes again at once was ended, when the other's
    /// program was slow to look.)
    fn must_wait(
        &mut self,
        st: &mut State,
        now: Time,
        ix: PeerIx,
        peer: PeerId,
        hello: &[u8; HELLO_LEN],
    ) -> Result<bool, &'static str> {
        let is_over = st.proto().sessions().get(peer).is_some_and(|s| s.down().is_some());
        if !self.dead_may_return || !is_over {
            return Ok(false);
        }
        let entry = self.entry(st, ix);
        let since = entry.hello.take().map_or(now, |waits| waits.1);
        if now.since_ns(since) >= HELLO_WAIT_NS {
            return Err("a peer that is not forgotten");
        }
        entry.hello = Some(Box::new((*hello, since)));
        self.waiting.push(ix);
        // What stands behind it wakes nobody, and keeps nobody from sleeping or being read.
        self.shm.hold(ix, true);
        Ok(true)
    }

    /// Those whose hello waits say it again.
    pub(super) fn say_hello_again(&mut self, st: &mut State, now: Time) {
        for ix in std::mem::take(&mut self.waiting) {
            let Some((hello, _)) = self.there(ix).and_then(|p| p.hello.as_deref()).copied() else { continue };
            if self.hello(st, now, ix, &hello).is_err() {
                self.shm.close(ix);
                self.end(st, now, ix, DownReason::Violation);
                continue;
            }
            if !self.waiting.contains(&ix)
                && let Some(p) = self.table.get_mut(ix.slot()).and_then(Option::as_mut).filter(|p| p.ix == ix)
            {
                p.hello = None;
                self.shm.hold(ix, false);
                // Nobody tells again of what it wrote meanwhile.
                self.read(st, now, ix, RING_RECORDS);
            }
        }
    }
}
