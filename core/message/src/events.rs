//! What the protocol reports, and the death of peers.

use crate::api::{OpError, PeerEvent};
use crate::keys::{SendKey, key};
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::{Notice, Sink, Step};
use crate::receiving::Fragment;
use crate::rndvs::RndvOwner;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use weir_link::{
    BulkRecord, DataKey, DownReason, Endpoint, Event, Hole, PacketBuf, PeerId, RecordIn, RxMeta, Time, Transmit,
};

/// Acts on the events of one datagram: first on what does not end sends, then on what does, as it
/// came.
///
/// A target's refusal may stand behind the acknowledgement of the same write and must be seen
/// first. But what a peer acknowledged before its farewell in the same datagram has succeeded.
fn in_order(events: &[Event], mut act: impl FnMut(&Event)) {
    let ends = |e: &&Event| matches!(e, Event::Sent { .. } | Event::Down { .. } | Event::Failed { .. });
    match events {
        [] => {}
        [only] => act(only),
        _ => events.iter().filter(|e| !ends(e)).chain(events.iter().filter(ends)).for_each(act),
    }
}

impl<M: Memory, S: Sink> Messages<M, S> {
    /// A datagram arrives. It is opened in place.
    pub fn datagram(&mut self, now: Time, meta: RxMeta, datagram: &mut [u8]) {
        self.retry_dead(now);
        let mut events = self.take_events();
        if self.trace.on(2) {
            self.handle_traced(now, meta, datagram, &mut events);
        } else {
            self.sessions.endpoint_mut().handle(now, meta, datagram, &mut events);
        }
        in_order(&events, |event| self.event(now, event, datagram));
        self.give_events(events);
        if !self.overran.is_empty() {
            self.give_up_overrun(now);
        }
    }

    /// Calls the protocol and acts on the events, whose ranges index `bytes`.
    pub fn with_events<T>(
        &mut self,
        now: Time,
        bytes: &[u8],
        call: impl FnOnce(&mut Endpoint, &mut Vec<Event>) -> T,
    ) -> T {
        let mut events = self.take_events();
        let result = call(self.sessions.endpoint_mut(), &mut events);
        in_order(&events, |event| self.event(now, event, bytes));
        self.give_events(events);
        if !self.overran.is_empty() {
            self.give_up_overrun(now);
        }
        result
    }

    /// Gives up the peers that asked for more than they may, and tells them.
    #[cold]
    fn give_up_overrun(&mut self, now: Time) {
        while let Some(peer) = self.overran.pop() {
            self.counters.overruns += 1;
            self.peer_down(now, PeerId(peer), DownReason::Violation);
            let mut events = Vec::new();
            let why = "more answers asked for than credit allows";
            self.sessions.endpoint_mut().give_up(now, PeerId(peer), why, &mut events);
            for event in &events {
                self.event(now, event, &[]);
            }
        }
    }

    /// When [`Messages::timeouts`] wants to be called at the latest.
    pub fn next_timeout(&self) -> Option<Time> {
        if self.has_own() { Some(Time::ZERO) } else { self.sessions.endpoint().next_timeout() }
    }

    /// Runs the timers that are due.
    pub fn timeouts(&mut self, now: Time) {
        self.retry_dead(now);
        // Mostly it is called because something is to be sent.
        let is_due = self.sessions.endpoint_mut().look(now);
        if is_due || !self.overran.is_empty() {
            self.with_events(now, &[], |proto, events| {
                if is_due {
                    proto.run_timers(now, events);
                }
            });
        }
    }

    /// The next packet to be sent: `out`, and behind it the payload that it names
    /// ([`Messages::payload`]). None: nothing is to be sent now.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, out: &mut PacketBuf) -> Option<Transmit> {
        if !self.keeping.is_empty() {
            self.tell_kept(now);
        }
        self.carry_own(now);
        let t = self.sessions.endpoint_mut().poll_transmit(now, &self.sends, out)?;
        if self.trace.on(2) {
            self.trace_packet_out(&t, &out.head);
        }
        Some(t)
    }

    /// Whether [`Messages::poll_transmit`] may have more packets: false is certain.
    #[inline]
    pub fn may_transmit(&self) -> bool {
        !self.keeping.is_empty() || self.has_own() || self.sessions.endpoint().may_transmit()
    }

    /// A record of a TCP connection begins to come, for the trace.
    pub fn record_begins(&mut self, peer: u32, record: &RecordIn) {
        if self.trace.on(2) {
            self.trace_record_in(peer, record);
        }
    }

    /// A record is handed to a TCP connection, for the trace.
    pub fn record_leaves(&mut self, record: &BulkRecord) {
        if self.trace.on(2) {
            self.trace_record_out(record);
        }
    }

    /// What comes now comes by a TCP connection, or (`false`) in packets again; for the trace.
    pub fn set_by_bulk(&mut self, by_bulk: bool) {
        self.trace.set_by_bulk(by_bulk);
    }

    /// Acts on one event of the protocol.
    fn event(&mut self, now: Time, event: &Event, datagram: &[u8]) {
        match *event {
            Event::Message {
                peer,
                control,
                stream,
                mseq,
                sseq,
                total_len,
                offset,
                ref envelope,
                ref payload,
                first,
                complete,
            } => {
                let Some(bytes) = datagram.get(payload.clone()) else {
                    return;
                };
                if self.is_given_up(peer) {
                    return;
                }
                if control {
                    let envelope = datagram.get(envelope.clone()).unwrap_or(&[]);
                    self.control(now, peer.0, envelope, bytes);
                } else {
                    let piece = Fragment { peer: peer.0, stream, mseq, sseq, total_len, offset, first, complete };
                    let envelope = datagram.get(envelope.clone()).unwrap_or(&[]);
                    self.fragment(now, piece, envelope, bytes);
                }
            }
            Event::Rndv { peer, handle, offset, ref payload, complete } => {
                let bytes = datagram.get(payload.clone()).unwrap_or(&[]);
                self.rndv(now, peer.0, handle, offset, bytes, complete);
            }
            Event::Sent { token, .. } => self.sent(token),
            Event::Up { peer } => {
                if self.peers.ensure(peer.0).down.is_some() {
                    // The protocol gave the place of a forgotten peer to this one.
                    self.peers.renew(peer.0);
                }
                self.peers[peer.0].up = true;
                self.step(Step::Up { peer: peer.0 });
                if !self.peers[peer.0].inserted {
                    self.stranger_up(peer.0);
                }
                if self.trace.on(1) {
                    self.trace_peer_up(peer);
                }
                self.release_dead(now);
            }
            Event::Down { peer, reason } => {
                if self.peers.ensure(peer.0).down.is_none() {
                    self.peer_down(now, peer, reason);
                }
                self.peers.note_dead(peer.0);
                self.release_dead(now);
            }
            Event::Failed { token, reason, .. } => self.send_failed(token, reason),
            Event::RndvAborted { peer, handle, .. } => self.rndv_aborted(now, peer.0, handle),
            Event::Parity { peer, key, ref hole, ref parity } => self.parity(now, peer.0, key, hole, parity),
        }
    }

    /// Restores what is missing of a fragment from its group's parity.
    ///
    /// Of messages only. The memory of a remote write or read may be written by others at the same
    /// time, or have been; where they meet, their own bytes are undefined, but no byte elsewhere
    /// may suffer, as it would if it were computed from those.
    fn parity(&mut self, now: Time, peer: u32, key: DataKey, hole: &Hole, parity: &[u8]) {
        let total = match key {
            DataKey::Rndv(handle) => {
                let rndv = self.rndvs.get(peer, handle);
                rndv.filter(|b| matches!(b.owner, RndvOwner::Msg(_))).map(|b| b.len)
            }
            DataKey::Message(mseq) => self.partial(peer, mseq).and_then(|k| self.msgs.get(k)).map(|m| m.len),
        };
        let Some(total) = total else { return };
        let mut sum = parity.to_vec();
        let read = |at, dst: &mut [u8]| self.read_placed(peer, key, at, dst);
        let Some(bytes) = hole.restore(total, &mut sum, read) else { return };
        self.put(peer, key, hole.offset, bytes);
        self.step(Step::Restored { peer, key, offset: hole.offset, len: u64::from(hole.len) });
        // Reports completion, if this was the last hole, as an event of its own.
        let mut events = Vec::new();
        self.sessions.restored(now, peer, key, hole.offset, u32::from(hole.len), &mut events);
        for event in &events {
            self.event(now, event, &[]);
        }
    }

    /// Messages are done with this peer, whatever the protocol still has of it.
    #[inline]
    pub(crate) fn is_given_up(&self, peer: PeerId) -> bool {
        // Hardly ever is there any.
        (self.counters.overruns > 0 || self.counters.strangers_refused > 0)
            && self.peers.get(peer.0).is_some_and(|p| p.overran)
    }

    fn send_failed(&mut self, token: u64, reason: DownReason) {
        let k = key::<SendKey>(token);
        if let Some(s) = self.sends.remove(k) {
            self.finish_send(s, Err(OpError::PeerDown(reason)));
        }
    }

    /// Where a peer is, for people: the address that carries its data, else the first of its name.
    pub(crate) fn address_of(&self, peer: PeerId) -> String {
        let stats = self.sessions.endpoint().peer_stats(peer);
        let path = stats.paths.get(usize::from(stats.primary_path)).or(stats.paths.first());
        if let Some(path) = path {
            return path.remote.clone();
        }
        let name = self.peers.get(peer.0).and_then(|p| weir_wire::EndpointName::decode(&p.name).ok());
        let address = name.and_then(|name| Some(core::net::SocketAddr::new(*name.addresses.first()?, name.port)));
        address.map_or_else(|| format!("number {}", peer.0), |address| address.to_string())
    }

    /// Fails everything that waits for this peer and nothing else.
    #[cold]
    fn peer_down(&mut self, now: Time, peer: PeerId, reason: DownReason) {
        let slot = self.peers.ensure(peer.0);
        slot.go_down(reason);
        if slot.inserted && self.cfg.strangers_max.is_some() {
            self.news.push(PeerEvent::Down { peer: peer.0, reason });
        }
        self.step(Step::Down { peer: peer.0, reason });
        let who = self.address_of(peer);
        if self.trace.on(1) {
            self.trace_peer_down(peer, &who, reason);
        }
        self.trace.sink_mut().notice(&Notice::PeerDown { who: &who, reason });
        let error = OpError::PeerDown(reason);
        let sends = self.sends.of_peer(peer.0);
        self.fail_sends(sends, error);
        let (mut ops, mut held) = (Vec::new(), Vec::new());
        self.matcher.remove_peer(peer.0, &mut ops, &mut held);
        for op in ops {
            self.fail_recv(key(op), error);
        }
        for msg in held {
            self.drop_msg(key(msg));
        }
        // Among them receives whose rendezvous was under way: neither the matcher nor the
        // unfinished below know of them.
        self.fail_rndvs(now, Some(peer.0), error);
        // What had begun to arrive, or was announced, and cannot be completed; complete unexpected
        // messages stay receivable.
        self.break_unfinished(now, Some(peer.0), error);
    }

    /// The socket cannot be used any more, says the system: no peer can be reached, and nothing
    /// more will come from any. All that waits fails, and new operations are refused; what this
    /// endpoint has sent to itself can still be received.
    pub fn fail_all(&mut self, now: Time, errno: i32) {
        self.carry_own(now);
        self.broken = Some(errno);
        let error = OpError::Socket(errno);
        let sends = self.sends.of_others(self.loopback.peer);
        self.fail_sends(sends, error);
        self.fail_rndvs(now, None, error);
        self.break_unfinished(now, None, error);
        for k in self.recvs.keys() {
            self.take_back(now, k, error);
        }
    }

    /// Messages that cannot be completed any more, of one peer, or of all others than this endpoint
    /// itself. One that was claimed waits for its receive, which is to hear of it.
    fn break_unfinished(&mut self, now: Time, of: Option<u32>, error: OpError) {
        for k in self.msgs.unfinished(of) {
            let is_own = self.msgs.get(k).is_some_and(|m| self.is_own(m.peer));
            if (of.is_some() || !is_own) && !self.claims.values().any(|claimed| *claimed == k) {
                self.break_msg(now, k, error);
            }
        }
    }

    fn fail_sends(&mut self, sends: Vec<SendKey>, error: OpError) {
        for k in sends {
            if let Some(s) = self.sends.remove(k) {
                self.finish_send(s, Err(error));
            }
        }
    }

    /// Of one peer, or all others than this endpoint itself.
    fn fail_rndvs(&mut self, now: Time, of: Option<u32>, error: OpError) {
        for (peer, handle) in self.rndvs.keys(of) {
            if (of.is_some() || !self.is_own(peer))
                && let Some(b) = self.take_rndv(peer, handle)
            {
                self.rndv_failed(now, b.owner, error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::{Arriving, Carriage, Place};
    use crate::testing::Bytes;

    #[test]
    fn what_a_farewell_acknowledges_has_succeeded_and_a_refusal_comes_before_its_acknowledgement() {
        let peer = PeerId(0);
        let reason = DownReason::Closed;
        let sent = |token| Event::Sent { peer, token };
        let aborted = Event::RndvAborted { peer, handle: 1, code: 0 };
        let down = Event::Down { peer, reason };
        let events = [sent(1), sent(2), aborted, down, Event::Failed { peer, token: 3, reason }];
        let mut seen = String::new();
        in_order(&events, |e| {
            seen.push(match e {
                Event::Sent { .. } => 's',
                Event::Down { .. } => 'd',
                Event::Failed { .. } => 'f',
                _ => 'o',
            });
        });
        assert_eq!(seen, "ossdf");
    }

    fn messages() -> Messages<Bytes, ()> {
        let addr = core::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let proto = Endpoint::new(weir_link::Config::default(), [1; 32], 1, &[addr], [2; 32]);
        Messages::new(crate::config::Config::default(), proto, ())
    }

    /// A message of three fragments of 100 bytes of which 60 bytes in the middle one are missing:
    /// the piece before them was sent again alone.
    // spec: P-6.21
    #[test]
    fn a_hole_that_begins_inside_a_fragment_is_restored_from_parity() {
        let mut st = messages();
        let want: Vec<u8> = (0..300u32).map(|i| (i * i + 3) as u8).collect();
        let mut have = want.clone();
        have[140..200].fill(0);
        let k = st.msgs.insert(Arriving {
            peer: 0,
            tag: 1,
            data: None,
            stream: 0,
            len: 300,
            complete: false,
            waits_in_line: false,
            carriage: Carriage::Eager,
            sync: None,
            place: Place::Buffer(have),
            held: false,
            number: 0,
        });
        st.peers.ensure(0).partial.push((5, k));
        let parity: Vec<u8> = (0..100).map(|j| want[j] ^ want[100 + j] ^ want[200 + j]).collect();
        let hole = Hole { base: 0, frag: 100, count: 3, offset: 140, len: 60, factors: [1, 0, 0] };
        st.parity(Time(1), 0, DataKey::Message(5), &hole, &parity);
        let Some(Arriving { place: Place::Buffer(got), .. }) = st.msgs.get(k) else { panic!("the message is gone") };
        assert_eq!(got, &want);
    }
}
