//! The endpoint: all associations behind one socket, and their turns to send.

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;
use rand_chacha::ChaCha12Rng;
use rand_core::{RngCore, SeedableRng};
use weir_session::{Carrier, Sessions};
use weir_superstep::OwnQueue;

use crate::association::{Association, Cx, State, carries};
use crate::crypt::Handshake;
use crate::hash::IdHash;
use crate::judging::{Lateness, Unread};
use crate::openings::Openings;
use crate::paths::PathState;
use crate::spent::Spent;
use crate::template::Template;
use crate::turns::{Outflow, Turns};
use crate::{
    BulkNews, Config, Counters, Credit, DataKey, DownReason, Event, Level, Message, PacketBuf, PathStats, Payloads,
    PeerCounters, PeerId, PeerStats, RndvOpened, RxMeta, SendError, Time, Transmit,
};

/// Association ids hold the peer's index in their low bits, so that finding it costs no look-up.
pub(crate) const INDEX_BITS: u32 = 24;
/// Stateless answers that may wait; more are dropped like any datagram.
pub(crate) const OUTBOX_MAX: usize = 1024;

/// A handshake answer that belongs to no association.
pub(crate) struct Datagram {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) bytes: Vec<u8>,
}

/// At most so many events a second, in bursts of a tenth of that.
#[derive(Debug)]
pub(crate) struct RateLimit {
    per_s: u64,
    /// Tokens in 1/10^9.
    tokens: u64,
    at: Time,
}

impl RateLimit {
    fn new(per_s: u32) -> Self {
        let per_s = u64::from(per_s);
        RateLimit { per_s, tokens: (per_s / 10).max(1) * 1_000_000_000, at: Time::ZERO }
    }

    pub(crate) fn take(&mut self, now: Time) -> bool {
        let full = (self.per_s / 10).max(1) * 1_000_000_000;
        self.tokens = (u128::from(self.tokens) + u128::from(now.since_ns(self.at)) * u128::from(self.per_s))
            .min(u128::from(full)) as u64;
        self.at = self.at.max(now);
        let ok = self.tokens >= 1_000_000_000;
        if ok {
            self.tokens -= 1_000_000_000;
        }
        ok
    }
}

/// One endpoint: every association behind one socket.
pub struct Endpoint {
    pub(crate) cfg: Config,
    pub(crate) counters: Counters,
    pub(crate) sessions: Sessions,
    pub(crate) rng: ChaCha12Rng,
    pub(crate) handshake: Handshake,
    pub(crate) endpoint_id: u64,
    pub(crate) local_addrs: Vec<SocketAddr>,
    #[expect(clippy::vec_box, reason = "an association is large and must not be moved when peers are added")]
    pub(crate) assocs: Vec<Box<Association>>,
    pub(crate) by_endpoint: HashMap<u64, PeerId, IdHash>,
    /// Places of forgotten peers, oldest first.
    pub(crate) vacant: VecDeque<PeerId>,
    /// What is left of them: a recorded CONFIRM of a dead association is to be known for one.
    pub(crate) spent: Spent,
    /// Forgotten, but still to be told that they are closed, or to be let go of by a carrier.
    pub(crate) forgetting: Vec<PeerId>,
    /// Associations with something to send.
    pub(crate) ready: VecDeque<PeerId>,
    pub(crate) turns: Turns,
    /// What leaves, to all of them.
    pub(crate) outflow: Outflow,
    /// Whom this superstep sends to: their receivers grant what they know is coming, one after
    /// another.
    pub(crate) granted: Vec<PeerId>,
    /// What may wait in this host's interface meanwhile.
    pub(crate) own_queue: OwnQueue,
    /// Goes on with the packets of a flow as long as nothing else happens.
    pub(crate) template: Option<Template>,
    /// Runs and short cuts are switched off, and how many packets runs wrote: they must make no
    /// difference.
    #[cfg(test)]
    pub(crate) plain: bool,
    #[cfg(test)]
    pub(crate) template_packets: u64,
    pub(crate) timers: BinaryHeap<Reverse<(Time, PeerId)>>,
    pub(crate) outbox: VecDeque<Datagram>,
    /// Bulk connections that the driver is to connect.
    pub(crate) bulk_news: VecDeque<BulkNews>,
    /// INIT, CONFIRM, answers to our own openings, RESET: a flood of one kind must not stop
    /// another.
    pub(crate) init_limit: RateLimit,
    pub(crate) confirm_limit: RateLimit,
    pub(crate) answer_limit: RateLimit,
    pub(crate) reset_seen_limit: RateLimit,
    pub(crate) reset_limit: RateLimit,
    pub(crate) closing: bool,
    pub(crate) openings: Openings,
    pub(crate) lateness: Lateness,
    pub(crate) unread: Unread,
    /// Who is asked for at which addresses, and what was found.
    pub(crate) askings: Vec<crate::asked::Asking>,
    pub(crate) answers: Vec<crate::asked::Answer>,
}

/// The association of `$peer` and the context to work on it, from disjoint fields of the endpoint.
macro_rules! with_association {
    ($self:ident, $peer:expr, $now:expr) => {{
        #[cfg(test)]
        let plain = $self.plain;
        let Endpoint {
            assocs,
            sessions,
            cfg,
            counters,
            rng,
            endpoint_id,
            bulk_news,
            openings,
            outflow,
            lateness,
            unread,
            ..
        } = $self;
        let (endpoint_id, late_ns) = (*endpoint_id, lateness.total_ns + openings.crowded_ns());
        assocs.get_mut($peer.0 as usize).zip(sessions.get_mut($peer)).map(|(a, (s, common))| {
            let cx = Cx {
                now: $now,
                cfg,
                counters,
                s,
                common,
                rng,
                endpoint_id,
                bulk_news,
                openings,
                outflow,
                late_ns,
                unread,
                #[cfg(test)]
                plain,
            };
            (a, cx)
        })
    }};
}
pub(crate) use with_association;

impl Endpoint {
    /// Makes an endpoint. `endpoint_id` must be random and new for each incarnation, and is drawn
    /// from `seed` if it is 0 or all ones (which on the wire mean "whoever is at this address" and
    /// "who is there?"); `local_addrs` are told to peers, best first; `seed` is the only source of
    /// randomness (cookies, nonces, association ids).
    #[must_use]
    pub fn new(
        mut config: Config,
        job_key: [u8; 32],
        endpoint_id: u64,
        local_addrs: &[SocketAddr],
        seed: [u8; 32],
    ) -> Endpoint {
        config.session.streams = config.session.streams.clamp(1, crate::STREAMS_MAX);
        config.session.control_len_max = crate::build::control_len_max(&config);
        let mut rng = ChaCha12Rng::from_seed(seed);
        let handshake = Handshake::new(&job_key, &mut rng);
        let endpoint_id = match endpoint_id {
            0 | crate::asked::NOBODY => rng.next_u64().clamp(1, crate::asked::NOBODY - 1),
            given => given,
        };
        Endpoint {
            handshake,
            counters: Counters::default(),
            sessions: Sessions::new(config.session.clone()),
            rng,
            endpoint_id,
            local_addrs: local_addrs.iter().copied().take(crate::config::PATHS_MAX).collect(),
            assocs: Vec::new(),
            by_endpoint: HashMap::default(),
            vacant: VecDeque::new(),
            spent: Spent::default(),
            forgetting: Vec::new(),
            ready: VecDeque::new(),
            turns: Turns::default(),
            outflow: Outflow::default(),
            granted: Vec::new(),
            own_queue: OwnQueue::System,
            template: None,
            #[cfg(test)]
            plain: false,
            #[cfg(test)]
            template_packets: 0,
            timers: BinaryHeap::new(),
            outbox: VecDeque::new(),
            bulk_news: VecDeque::new(),
            init_limit: RateLimit::new(config.init_rate_per_s),
            confirm_limit: RateLimit::new(config.init_rate_per_s),
            answer_limit: RateLimit::new(config.init_rate_per_s),
            reset_seen_limit: RateLimit::new(config.init_rate_per_s),
            reset_limit: RateLimit::new(config.reset_rate_per_s),
            closing: false,
            openings: Openings::default(),
            lateness: Lateness::default(),
            unread: Unread::default(),
            askings: Vec::new(),
            answers: Vec::new(),
            cfg: config,
        }
    }

    /// Largest payload of a control message, whatever its envelope.
    #[must_use]
    pub fn max_control_len(&self) -> usize {
        crate::build::control_len_max(&self.cfg)
    }

    pub(crate) fn touch(&mut self, peer: PeerId) {
        self.sessions.touch_for(Carrier::Link, peer);
    }

    /// Packets carry from now on what the session with this peer sends: another carrier has failed,
    /// or is not to be had. What that had taken and not delivered is told by
    /// [`weir_session::Session::lost`].
    pub fn carry(&mut self, now: Time, peer: PeerId, events: &mut Vec<Event>) {
        self.sessions.set_carrier(peer, Carrier::Link);
        let Some((a, mut cx)) = with_association!(self, peer, now) else { return };
        match a.state {
            // (Its terms hold, and what has come of credit since.)
            State::Up if cx.s.is_up() => {
                a.set_piece_max(cx.s);
                a.set_round_trip(cx.s);
            }
            State::Up => a.take_over(&mut cx, events),
            State::Idle if cx.s.has_open() => self.open(now, peer),
            State::Down(reason) => cx.s.end(cx.common, reason, events),
            State::Idle | State::Opening => {}
        }
        self.touch(peer);
    }

    /// The layer above finds that the peer broke a rule of its own: the peer is told, as of any
    /// violation, and everything of it fails, whatever carries it.
    pub fn give_up(&mut self, now: Time, peer: PeerId, why: &'static str, events: &mut Vec<Event>) {
        self.sessions.common_mut().advance(now);
        if let Some((a, mut cx)) = with_association!(self, peer, now)
            && !matches!(a.state, State::Down(_))
        {
            a.violated(&mut cx, why, events);
        }
        // Packets give no verdict on a peer that another carrier reaches; this one is not theirs.
        self.sessions.end(peer, DownReason::Violation, events);
        self.touch(peer);
    }

    /// The verdict of another carrier: the session with this peer is over. An association that
    /// packets never began ends with it, so that the peer can be forgotten; one that they did begin
    /// comes to its own end.
    pub fn end(&mut self, now: Time, peer: PeerId, reason: DownReason, events: &mut Vec<Event>) {
        if let Some((a, mut cx)) = with_association!(self, peer, now)
            && matches!(a.state, State::Idle)
        {
            a.go_down(&mut cx, reason, events);
        }
        self.sessions.end(peer, reason, events);
    }

    /// Packets carry what some peer sends, or an association is being opened: arrivals are to be
    /// expected.
    #[must_use]
    pub fn expects_packets(&self) -> bool {
        // (Of all that are known, only these are looked at: there may be ten thousand.)
        let awaits = |peer: PeerId| match self.assocs.get(peer.0 as usize).map(|a| a.state) {
            Some(State::Opening) => true,
            Some(State::Up) => self.sessions.get(peer).is_some_and(carries),
            _ => false,
        };
        !self.askings.is_empty() || self.openings.alive.iter().any(awaits)
    }

    /// Some association is up, or being opened.
    #[must_use]
    pub fn has_associations(&self) -> bool {
        !self.askings.is_empty() || !self.openings.alive.is_empty()
    }

    /// The sessions, which other carriers share.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The same, to be changed.
    pub fn sessions_mut(&mut self) -> &mut Sessions {
        &mut self.sessions
    }

    /// The peer with this endpoint id, if one is known.
    #[must_use]
    pub fn peer_of(&self, endpoint_id: u64) -> Option<PeerId> {
        self.by_endpoint.get(&endpoint_id).copied()
    }

    /// Something was queued: opens the association if that has not begun, and wants a bulk
    /// connection if it would pay.
    pub(crate) fn ensure_open(&mut self, now: Time, peer: PeerId) {
        if let Some((a, mut cx)) = with_association!(self, peer, now).filter(|(_, cx)| carries(cx.s)) {
            match a.state {
                State::Up => a.consider_bulk(&mut cx),
                State::Idle => self.open(now, peer),
                State::Opening | State::Down(_) => {}
            }
        }
        self.sessions.touch(peer);
    }

    /// Queues a message; the envelope is copied, the payload is read later through [`Payloads`]
    /// until the token is reported.
    ///
    /// # Errors
    /// See [`SendError`]; nothing was queued then.
    pub fn send(&mut self, now: Time, peer: PeerId, m: Message<'_>) -> Result<(), SendError> {
        self.sessions.send(peer, &m)?;
        self.ensure_open(now, peer);
        Ok(())
    }

    /// Credit left right now, after what is queued. Zero before the association is up.
    #[must_use]
    pub fn credit(&self, peer: PeerId) -> Credit {
        self.sessions.credit(peer)
    }

    /// Longest matched message the peer takes (spec 5): half of its initial byte credit; before it
    /// is up, of ours.
    #[must_use]
    pub fn max_matched_len(&self, peer: PeerId) -> u64 {
        self.sessions.get(peer).map_or(0, |s| s.max_matched_len())
    }

    /// Least round trip to the peer of late, nanoseconds; 0 before the first was measured.
    #[must_use]
    pub fn min_rtt_ns(&self, peer: PeerId) -> u64 {
        let path = self.assocs.get(peer.0 as usize).and_then(|a| a.path());
        path.filter(|p| p.rtt.sampled).map_or(0, |p| p.rtt.base())
    }

    /// What it takes to ask the peer, nanoseconds: the least round trip of late, and what is there
    /// beside it whatever is sent (spec 6.3) or though nothing else is (spec 6.10); 0 before the
    /// first was measured.
    #[must_use]
    pub fn asking_ns(&self, peer: PeerId) -> u64 {
        let path = self.assocs.get(peer.0 as usize).and_then(|a| a.path());
        path.filter(|p| p.rtt.sampled).map_or(0, |p| p.asking_ns())
    }

    /// Bytes that the window towards the peer lets out at once: what is free of it while nothing
    /// waits to leave, else nothing. `None` where no window holds anything back, for packets do not
    /// carry what the session sends.
    #[must_use]
    pub fn free_window(&self, peer: PeerId) -> Option<u64> {
        let s = self.sessions.get(peer)?;
        if s.carrier() != Carrier::Link {
            return None;
        }
        let a = self.assocs.get(peer.0 as usize)?;
        let free = a.path().map_or(0, |p| p.window(a.peer.rx_buffer).saturating_sub(p.in_flight));
        Some(if s.has_data() { 0 } else { free })
    }

    /// Control messages the peer's window has room for. Who can wait sends no more than that;
    /// answers a peer waits for may exceed it (up to `Config::control_queue`).
    #[must_use]
    pub fn control_room(&self, peer: PeerId) -> usize {
        self.sessions.control_room(peer)
    }

    /// The network says that no program has this port any more (ICMP port unreachable). A hint that
    /// may be forged or of a firewall: the peers there are asked, and given up only when they do
    /// not answer while the hint repeats (spec 9).
    pub fn refused(&mut self, now: Time, remote: SocketAddr) {
        self.asking_unreachable(remote);
        for i in 0..self.assocs.len() {
            let a = &mut self.assocs[i];
            if a.paths.iter().any(|p| p.remote == remote) {
                a.doubt(now, DownReason::Unreachable);
                self.touch(PeerId(i as u32));
            }
        }
    }

    /// Messages accepted, not yet transmitted for the first time.
    #[must_use]
    pub fn queued(&self, peer: PeerId) -> usize {
        self.sessions.get(peer).map_or(0, |s| s.queued())
    }

    /// Of these, matched messages: what `Config::send_queue_msgs` bounds.
    #[must_use]
    pub fn unsent(&self, peer: PeerId) -> usize {
        self.sessions.get(peer).map_or(0, |s| s.unsent())
    }

    /// The upper layer freed that much of what the peer sent as matched messages: the peer may send
    /// as much again.
    #[inline]
    pub fn consume(&mut self, peer: PeerId, msgs: u32, bytes: u64) {
        self.sessions.consume(peer, msgs, bytes);
    }

    /// Receiver: opens a handle for `len` bytes of the peer.
    ///
    /// # Errors
    /// `QueueFull` when `Config::rndvs_max` are open, `Closed` when the peer is down, `TooLong` for
    /// an empty rendezvous transfer: nothing would ever end it.
    pub fn open_rndv(&mut self, now: Time, peer: PeerId, len: u64) -> Result<RndvOpened, SendError> {
        self.sessions.open_rndv(now, peer, len)
    }

    /// Receiver: gives up on a handle; late fragments are dropped silently.
    pub fn close_rndv(&mut self, peer: PeerId, handle: u64) {
        self.sessions.close_rndv(peer, handle);
    }

    /// Sender: sends `len` bytes to a handle the peer opened and told us, with what it granted.
    ///
    /// # Errors
    /// `QueueFull` when the handle is in use already, `Closed` when the peer is down, `TooLong` for
    /// an empty rendezvous transfer.
    pub fn send_rndv(
        &mut self,
        now: Time,
        peer: PeerId,
        handle: u64,
        granted: u64,
        len: u64,
        token: u64,
    ) -> Result<(), SendError> {
        self.sessions.send_rndv(peer, handle, granted, len, token)?;
        self.ensure_open(now, peer);
        Ok(())
    }

    /// Sender: gives up, or declines a handle it was told. Returns the token of a rendezvous
    /// transfer that was under way, which is released at once and not reported.
    pub fn abort_rndv(&mut self, _now: Time, peer: PeerId, handle: u64, code: u16) -> Option<u64> {
        self.sessions.abort_rndv(peer, handle, code)
    }

    /// After [`Event::Parity`] was applied: the restored range counts as received, and the sender
    /// is told.
    pub fn restored(&mut self, now: Time, peer: PeerId, key: DataKey, offset: u64, len: u32, events: &mut Vec<Event>) {
        let Some((a, mut cx)) = with_association!(self, peer, now) else { return };
        a.restored(&mut cx, key, offset, len, events);
        self.touch(peer);
    }

    /// Whether [`Endpoint::poll_transmit`] may have more to say: false is certain.
    #[must_use]
    #[inline]
    pub fn may_transmit(&self) -> bool {
        !self.ready.is_empty()
            || !self.outbox.is_empty()
            || self.sessions.has_touched(Carrier::Link)
            || self.sessions.common().grants.has_changed()
            || self.openings.can_admit(&self.cfg)
    }

    /// Puts in line whoever has something to send. [`Endpoint::poll_transmit`] does so too; who
    /// bounds what waits in this host's interface has to know of them before
    /// ([`Endpoint::own_queue_bytes`]).
    #[inline]
    pub fn take_up(&mut self, now: Time) {
        let has_changed = self.sessions.has_touched(Carrier::Link) || self.sessions.common().grants.has_changed();
        if has_changed || self.openings.can_admit(&self.cfg) {
            self.template = None;
            self.settle(now);
        }
    }

    /// Writes the next packet into `out` (cleared first). `None`: nothing to send now. Call until
    /// `None`.
    pub fn poll_transmit(&mut self, now: Time, payloads: &impl Payloads, out: &mut PacketBuf) -> Option<Transmit> {
        if let Some(d) = self.outbox.pop_front() {
            out.head.clear();
            out.head.extend_from_slice(&d.bytes);
            self.counters.packets_sent += 1;
            self.counters.bytes_sent += d.bytes.len() as u64;
            return Some(Transmit { remote: d.remote, local: d.local, peer: PeerId(u32::MAX), payload: None });
        }
        self.take_up(now);
        if let Some(t) = self.go_on(now, payloads, out) {
            return Some(t);
        }
        while let Some(&peer) = self.ready.front() {
            if self.is_others_turn() {
                self.end_turn();
                continue;
            }
            out.head.clear();
            let built = if self.assocs[peer.0 as usize].state == State::Opening {
                self.build_opening(now, peer, out)
            } else {
                let (a, mut cx) = with_association!(self, peer, now)?;
                a.build(&mut cx, payloads, out)
            };
            if let Some(t) = built {
                self.count_sent(&t, out);
                let a = &mut self.assocs[peer.0 as usize];
                if core::mem::take(&mut a.has_template) {
                    self.template = self.sessions.get_mut(peer).and_then(|(s, _)| a.begin_template(s, now, out, &t));
                } else if !self.sessions.get(peer).is_some_and(|s| a.wants_to_send(s, now)) {
                    // That was all: what the next call would find out at greater cost.
                    a.probes = 0;
                    self.has_sent_all(peer, now);
                }
                #[cfg(test)]
                if self.plain {
                    self.template = None;
                }
                return Some(t);
            }
            self.has_sent_all(peer, now);
        }
        None
    }

    /// The peer whose turn it is has nothing more to say now.
    fn has_sent_all(&mut self, peer: PeerId, now: Time) {
        self.leave_line(now);
        let Some((a, cx)) = with_association!(self, peer, now) else { return };
        a.ready = false;
        let due = a.deadline(cx.s, cx.cfg);
        self.arm(peer, due);
    }

    /// The next packet by the template, if there is one and it goes on.
    fn go_on(&mut self, now: Time, payloads: &impl Payloads, out: &mut PacketBuf) -> Option<Transmit> {
        let others_turn = self.template.is_some() && self.is_others_turn();
        let template = self.template.as_mut()?;
        let same = template.now == now && self.ready.front() == Some(&template.peer) && !others_turn;
        let built = match with_association!(self, template.peer, now) {
            Some((a, mut cx)) if same => a.build_from_template(&mut cx, template, payloads, out),
            _ => None,
        };
        match &built {
            Some(t) => {
                #[cfg(test)]
                {
                    self.template_packets += 1;
                }
                self.count_sent(t, out);
            }
            None => self.template = None,
        }
        built
    }

    fn count_sent(&mut self, t: &Transmit, out: &PacketBuf) {
        let bytes = out.head.len() as u64 + t.payload.map_or(0, |p| u64::from(p.len));
        self.count_turn_bytes(t.peer, bytes);
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += bytes;
    }

    /// A datagram arrived. It may be changed: the AEAD opens in place. Event ranges index it.
    pub fn handle(&mut self, now: Time, meta: RxMeta, datagram: &mut [u8], events: &mut Vec<Event>) {
        self.sessions.common_mut().advance(now);
        self.counters.packets_received += 1;
        self.counters.bytes_received += datagram.len() as u64;
        match datagram.first() {
            Some(0x15) => self.handle_protected(now, &meta, datagram, events),
            Some(b) if b >> 4 == 1 => self.handle_handshake(now, &meta, datagram, events),
            _ => self.on_other_version(now, &meta, datagram),
        }
    }

    /// Closes: no new sends; what was accepted is still delivered, for `Config::linger` at most.
    pub fn close(&mut self, now: Time) {
        if self.closing {
            return;
        }
        self.closing = true;
        let end = now + self.cfg.linger;
        for i in 0..self.assocs.len() {
            let peer = PeerId(i as u32);
            if let Some((a, cx)) = with_association!(self, peer, now) {
                a.closing = Some(end);
                cx.s.close();
                a.check_drained(cx.s);
            }
            self.touch(peer);
        }
    }

    /// Ends what there is with one peer, at once: what is under way with it fails, and it is told.
    /// [`Endpoint::forget`] gives its place back.
    pub fn close_peer(&mut self, now: Time, peer: PeerId, events: &mut Vec<Event>) {
        self.sessions.common_mut().advance(now);
        if let Some((a, mut cx)) = with_association!(self, peer, now) {
            a.end_here(&mut cx, events);
        }
        self.touch(peer);
    }

    /// After `close`: nothing unacknowledged is left, and the peers have been told.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let is_drained = |a: &Association| self.sessions.get(a.id).is_none_or(|s| a.is_drained(s));
        self.closing && self.assocs.iter().all(|a| is_drained(a))
    }

    /// Counters of the endpoint.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { session: self.sessions.common().counters.clone(), ..self.counters.clone() }
    }

    /// What is known about a peer; defaults for an unknown one.
    #[must_use]
    pub fn peer_stats(&self, peer: PeerId) -> PeerStats {
        let Some((a, s)) = self.assocs.get(peer.0 as usize).zip(self.sessions.get(peer)) else {
            return PeerStats::default();
        };
        let (rndvs_open, rndvs_in) = s.rndvs_open();
        PeerStats {
            state: match a.state {
                // Another carrier has it.
                _ if !carries(s) && s.down().is_some() => "down",
                _ if !carries(s) && s.is_up() => "up",
                State::Idle => "idle",
                State::Opening => "opening",
                State::Up if a.closing.is_some() => "closing",
                State::Up => "up",
                State::Down(_) => "down",
            },
            level: match a.level() {
                Level::Integrity => 0,
                Level::Auth => 1,
                Level::Encrypt => 2,
            },
            primary_path: a.primary,
            bulk_connections_open: usize::from(a.bulk.as_ref().is_some_and(|bulk| bulk.is_up())),
            messages_open: s.messages_open(),
            messages_waiting: s.messages_waiting(),
            rndvs_open,
            rndvs_in,
            counts: PeerCounters { session: *s.counts(), ..a.counts },
            paths: a
                .paths
                .iter()
                .map(|p| PathStats {
                    remote: alloc::format!("{}", p.remote),
                    state: match p.state {
                        PathState::Unvalidated => "unvalidated",
                        PathState::Valid => "valid",
                        PathState::Suspect => "suspect",
                    },
                    srtt_us: p.rtt.srtt as f64 / 1e3,
                    min_rtt_us: p.rtt.base() as f64 / 1e3,
                    noncongestive_us: p.cc.noncongestive_ns() as f64 / 1e3,
                    rttvar_us: p.rtt.var as f64 / 1e3,
                    bytes_sent: p.bytes_sent,
                    bytes_received: p.bytes_received,
                    rate_bytes_per_s: p.delivery.rate(),
                    window_bytes: p.window(a.peer.rx_buffer),
                    in_flight_bytes: p.in_flight,
                    mtu: p.mtu.size(),
                    reorder_threshold: p.reorder,
                    probe_timeouts: p.ptos,
                })
                .collect(),
        }
    }
}
