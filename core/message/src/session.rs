//! What messages ask of the associations with peers: the one place where the protocol is called.

use crate::api::Superstep;
use crate::keys::NO_TOKEN;
use alloc::vec::Vec;
use weir_link::{DataKey, Endpoint, Event, Message, PeerId, RndvOpened, SendError, Time};
use weir_match::envelope::{self, Envelope};
use weir_session::Carrier;

/// The associations, peers by index.
pub(crate) struct Sessions {
    proto: Endpoint,
}

impl Sessions {
    pub(crate) fn new(proto: Endpoint) -> Sessions {
        Sessions { proto }
    }

    #[inline]
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.proto
    }

    #[inline]
    pub(crate) fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.proto
    }

    /// Hands over a matched message with `len` bytes of payload of the operation `token`.
    #[expect(clippy::too_many_arguments, reason = "the fields of a message")]
    #[inline]
    pub(crate) fn send(
        &mut self,
        now: Time,
        peer: u32,
        stream: u16,
        envelope: &Envelope,
        len: u32,
        token: u64,
        patient: bool,
    ) -> Result<(), SendError> {
        let mut buf = [0; envelope::MAX_BYTES];
        let n = envelope.encode(&mut buf);
        let message = Message { control: false, stream, envelope: &buf[..n], len, patient, token };
        self.proto.send(now, PeerId(peer), message)
    }

    /// The same of a control message.
    #[inline]
    pub(crate) fn send_control(
        &mut self,
        now: Time,
        peer: u32,
        envelope: &Envelope,
        len: u32,
        token: u64,
        patient: bool,
    ) -> Result<(), SendError> {
        let mut buf = [0; envelope::MAX_BYTES];
        let n = envelope.encode(&mut buf);
        let message = Message { control: true, stream: 0, envelope: &buf[..n], len, patient, token };
        self.proto.send(now, PeerId(peer), message)
    }

    /// A control message without payload.
    #[inline]
    pub(crate) fn tell(&mut self, now: Time, peer: u32, envelope: &Envelope) -> Result<(), SendError> {
        self.send_control(now, peer, envelope, 0, NO_TOKEN, false)
    }

    /// Control messages that may be handed over now.
    pub(crate) fn control_room(&self, peer: u32) -> usize {
        self.proto.control_room(PeerId(peer))
    }

    /// Longest payload of a control message.
    pub(crate) fn max_control_len(&self) -> usize {
        self.proto.max_control_len()
    }

    /// Matched messages that wait for credit or window.
    #[inline]
    pub(crate) fn unsent(&self, peer: u32) -> usize {
        self.proto.unsent(PeerId(peer))
    }

    /// Bytes of credit left.
    #[inline]
    pub(crate) fn credit_bytes(&self, peer: u32) -> u64 {
        self.proto.credit(PeerId(peer)).bytes
    }

    /// Longest matched message.
    #[inline]
    pub(crate) fn max_matched_len(&self, peer: u32) -> u64 {
        self.proto.max_matched_len(PeerId(peer))
    }

    /// Bytes the congestion window lets out at once; `None` where there is none.
    pub(crate) fn free_window(&self, peer: u32) -> Option<u64> {
        self.proto.free_window(PeerId(peer))
    }

    /// What it takes to ask the peer, nanoseconds.
    pub(crate) fn asking_ns(&self, peer: u32) -> u64 {
        self.proto.asking_ns(PeerId(peer))
    }

    /// Payload of this length and more is read by the peer where it lies.
    #[inline]
    pub(crate) fn lent_from(&self, peer: u32) -> u64 {
        self.proto.sessions().get(PeerId(peer)).map_or(u64::MAX, weir_session::Session::lent_from)
    }

    /// What the carrier says of a fragment is that the peer has read it, which it does before it
    /// looks at it.
    pub(crate) fn tells_reading(&self, peer: u32) -> bool {
        let carrier = self.proto.sessions().get(PeerId(peer)).map(weir_session::Session::carrier);
        // (What is accepted before SCTP is up may go by it yet.)
        matches!(carrier, Some(Carrier::Shm | Carrier::Sctp)) || self.proto.offers_sctp()
    }

    /// Large payload goes by a TCP connection.
    #[inline]
    pub(crate) fn has_bulk(&self, peer: u32) -> bool {
        self.proto.has_bulk(PeerId(peer))
    }

    /// Matched messages of the peer are out of the way: it may send as many more.
    #[inline]
    pub(crate) fn consume(&mut self, peer: u32, msgs: u32, bytes: u64) {
        self.proto.consume(PeerId(peer), msgs, bytes);
    }

    /// What is known of a superstep, for the sessions.
    pub(crate) fn superstep(&mut self, now: Time, step: &Superstep<'_>) {
        let peers =
            |flows: &[(u32, u64)]| flows.iter().map(|(peer, bytes)| (PeerId(*peer), *bytes)).collect::<Vec<_>>();
        self.proto.superstep(now, &peers(step.sends), &peers(step.receives), step.slots, step.own_queue);
    }

    /// Bytes of credit that the peer gave ahead.
    #[inline]
    pub(crate) fn credit_ahead(&self, peer: u32) -> u64 {
        self.proto.sessions().get(PeerId(peer)).map_or(0, weir_session::Session::credit_ahead)
    }

    pub(crate) fn open_rndv(&mut self, now: Time, peer: u32, len: u64) -> Result<RndvOpened, SendError> {
        self.proto.open_rndv(now, PeerId(peer), len)
    }

    pub(crate) fn close_rndv(&mut self, peer: u32, handle: u64) {
        self.proto.close_rndv(PeerId(peer), handle);
    }

    pub(crate) fn send_rndv(
        &mut self,
        now: Time,
        peer: u32,
        handle: u64,
        granted: u64,
        len: u64,
        token: u64,
    ) -> Result<(), SendError> {
        self.proto.send_rndv(now, PeerId(peer), handle, granted, len, token)
    }

    pub(crate) fn abort_rndv(&mut self, now: Time, peer: u32, handle: u64) {
        self.proto.abort_rndv(now, PeerId(peer), handle, 1);
    }

    /// Missing bytes were computed and put into their place.
    pub(crate) fn restored(
        &mut self,
        now: Time,
        peer: u32,
        key: DataKey,
        offset: u64,
        len: u32,
        events: &mut Vec<Event>,
    ) {
        self.proto.restored(now, PeerId(peer), key, offset, len, events);
    }

    /// Gives the place of a peer that is down to another; false when it is not yet to be had.
    pub(crate) fn forget(&mut self, now: Time, peer: u32) -> bool {
        self.proto.forget(now, PeerId(peer))
    }

    /// Something handed over is not known to have arrived.
    pub(crate) fn has_open(&self, peer: u32) -> bool {
        self.proto.sessions().get(PeerId(peer)).is_some_and(weir_session::Session::has_open)
    }

    /// Something of which nothing is kept elsewhere is not known to have arrived.
    pub(crate) fn has_kept(&self, peer: u32) -> bool {
        self.proto.sessions().get(PeerId(peer)).is_some_and(weir_session::Session::has_kept)
    }

    pub(crate) fn is_down(&self, peer: u32) -> bool {
        self.proto.is_down(PeerId(peer))
    }

    /// Number of the message handed over last, for the trace.
    pub(crate) fn last_message(&self, peer: u32, control: bool) -> Option<u64> {
        self.proto.last_message(PeerId(peer), control)
    }
}
