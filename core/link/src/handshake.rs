//! Opening an association: the four packets, refusals and resets (spec 2.3, 3).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use rand_core::RngCore;
use smallvec::SmallVec;
use weir_wire::handshake as wire;
use weir_wire::seal::Role;
use weir_wire::{AddrList, EndpointName, Handshake, Kind, Params, RefuseCode, packet};

use weir_session::{Carrier, Terms};

use crate::association::{Association, Cx, PeerParams, State, carries};
use crate::config::PATHS_MAX;
use crate::endpoint::{Datagram, Endpoint, INDEX_BITS, with_association};
use crate::opening::{Accepted, Opening};
use crate::paths::Path;
use crate::{Config, DownReason, Event, Level, PacketBuf, PeerId, RxMeta, Time, Transmit};

/// CONFIRMs sent before the cookie is taken for stale and the opening starts again with INIT.
const CONFIRM_TRIES: u32 = 6;
/// INITs in a row that must be refused by an endpoint other than the one wanted before that is
/// believed to live there no more: some 35 ms. Whoever lives answers one of them; a stranger who
/// passes a third member's answers on must keep on.
const STALE_VERDICT: u32 = 3;
/// The driver has read all that has arrived within this time.
const READ_NS: u64 = 100_000_000;

/// Endpoint id and addresses of a name.
pub(crate) fn name_parts(name: &EndpointName) -> (u64, SmallVec<[SocketAddr; 2]>) {
    (name.endpoint_id, name.addresses.iter().map(|ip| SocketAddr::new(*ip, name.port)).collect())
}

pub(crate) fn reason_of(code: RefuseCode) -> DownReason {
    match code {
        RefuseCode::StaleIncarnation => DownReason::StaleIncarnation,
        RefuseCode::Features | RefuseCode::Other(_) => DownReason::Version,
        RefuseCode::Level => DownReason::LevelTooLow,
        RefuseCode::NoRoom => DownReason::NoRoom,
        RefuseCode::ShuttingDown => DownReason::ShuttingDown,
    }
}

impl Endpoint {
    /// This endpoint's name, to be handed to peers.
    #[must_use]
    pub fn name(&self) -> EndpointName {
        let port = self.local_addrs.first().map_or(0, SocketAddr::port);
        let mut name = EndpointName::new(port, self.handshake.fingerprint, self.endpoint_id);
        for a in self.local_addrs.iter().filter(|a| a.port() == port) {
            name.push(a.ip());
        }
        name
    }

    fn params(cfg: &Config, addrs: &[SocketAddr]) -> Params {
        let mut addresses = AddrList::new();
        for a in addrs {
            if addresses.try_push(*a).is_err() {
                break;
            }
        }
        Params {
            max_datagram: cfg.max_datagram.max(weir_wire::MIN_DATAGRAM_LEN),
            streams: cfg.session.streams,
            initial_credit_msgs: cfg.session.initial_credit_msgs,
            initial_credit_bytes: cfg.session.initial_credit_bytes,
            rx_buffer_bytes: cfg.rx_buffer_bytes,
            ack_delay_max_us: cfg.ack_delay_max.as_micros() as u32,
            peer_timeout_ms: cfg.peer_timeout.as_millis() as u32,
            bulk_connections: if cfg.bulk.on { weir_bulk::VERSION } else { 0 },
            ecn: cfg.ecn,
            sctp: if cfg.sctp { weir_wire::sctp::VERSION } else { 0 },
            parity_rows: weir_wire::MAX_PARITY_ROWS,
            addresses,
        }
    }

    fn new_association_id(&mut self, peer: PeerId) -> u64 {
        // Never 0: that is "none yet".
        let random = self.rng.next_u64() | 1 << 63;
        random >> INDEX_BITS << INDEX_BITS | u64::from(peer.0)
    }

    /// Begins to open.
    pub(crate) fn open(&mut self, now: Time, peer: PeerId) {
        let local_id = self.new_association_id(peer);
        let mut nonce = [0; wire::NONCE_LEN];
        self.rng.fill_bytes(&mut nonce);
        let (level, features, opener_id) = (self.cfg.level, self.cfg.features, self.endpoint_id);
        let Endpoint { assocs, openings, cfg, lateness, .. } = self;
        let Some(a) = assocs.get_mut(peer.0 as usize) else { return };
        a.local_id = local_id;
        openings.alive.insert(peer);
        a.state = State::Opening;
        let mut o = Opening {
            opening: wire::Opening {
                level,
                features,
                opener_id,
                responder_id: a.endpoint_id,
                opener_association: local_id,
                nonce,
            },
            cookie: None,
            send_at: Time::MAX,
            give_up: Time::MAX,
            last: Time::MAX,
            end: Time::MAX,
            late_ns: 0,
            has_place: false,
            is_queued: true,
            interval_ns: cfg.handshake_retry.as_nanos() as u64,
            asked_at: now,
            tries: 0,
            confirms: 0,
            confirmed: false,
            strangers: 0,
        };
        if openings.begin(cfg, peer) {
            o.start(now, lateness.total_ns + openings.crowded_ns(), cfg.connect_timeout);
        }
        a.opening = Some(Box::new(o));
        self.counters.handshakes_opened += 1;
    }

    /// What counts in no verdict about others: what the endpoint was itself late by, and the time
    /// in which many openings went on.
    fn late_ns(&self) -> u64 {
        self.lateness.total_ns + self.openings.crowded_ns()
    }

    /// Openings that wait begin, as far as there are places.
    pub(crate) fn admit_openings(&mut self, now: Time) {
        while let Some(peer) = self.openings.next(&self.cfg) {
            let (late_ns, timeout) = (self.late_ns(), self.cfg.connect_timeout);
            let opening = self.assocs.get_mut(peer.0 as usize).and_then(|a| a.opening.as_mut());
            if let Some(o) = opening.filter(|o| o.is_queued) {
                o.start(now, late_ns, timeout);
                self.openings.take_place();
                self.touch(peer);
            }
        }
    }

    /// INIT or CONFIRM, when it is due.
    pub(crate) fn build_opening(&mut self, now: Time, peer: PeerId, out: &mut PacketBuf) -> Option<Transmit> {
        let a = self.assocs.get_mut(peer.0 as usize)?;
        let o = a.opening.as_mut()?;
        if o.send_at > now {
            return None;
        }
        if o.cookie.is_some() && o.confirms >= CONFIRM_TRIES {
            o.cookie = None;
        }
        let repeats = if o.cookie.is_some() { o.confirms > 0 } else { o.tries > 0 };
        if repeats {
            self.counters.handshakes_repeated += 1;
            if core::mem::take(&mut o.has_place) {
                self.openings.leave_place();
            }
        } else {
            o.asked_at = now;
        }
        let (packet, remote, local) = match o.cookie {
            Some((cookie, remote, local)) => {
                o.confirms += 1;
                o.confirmed = true;
                let params = Self::params(&self.cfg, &self.local_addrs);
                (Handshake::Confirm(wire::Confirm { opening: o.opening, cookie, params }), remote, local)
            }
            None => {
                let remote = *a.addrs.get(o.tries as usize % a.addrs.len().max(1))?;
                o.tries += 1;
                (Handshake::Init(o.opening), remote, None)
            }
        };
        // Half to three halves of the interval: a thousand openers that start together and overflow
        // a switch must not all repeat at the same moments.
        let interval_ns = self.openings.interval_ns(&self.cfg, o.interval_ns, self.askings.len(), o.confirmed);
        let spread = ((u128::from(self.rng.next_u64()) * u128::from(interval_ns)) >> 64) as u64;
        o.send_at = now.plus_ns(interval_ns / 2 + spread);
        o.interval_ns = interval_ns * 2;
        packet.write(&self.handshake.key, &mut out.head);
        Some(Transmit { remote, local, peer, payload: None })
    }

    fn answer(&mut self, meta: &RxMeta, p: &Handshake) {
        let bytes = self.handshake.write(p);
        self.post(meta.remote, meta.local, bytes);
    }

    fn post(&mut self, remote: SocketAddr, local: Option<IpAddr>, bytes: Vec<u8>) {
        if self.outbox.len() < crate::endpoint::OUTBOX_MAX {
            self.outbox.push_back(Datagram { remote, local, bytes });
        }
    }

    fn refuse(&mut self, meta: &RxMeta, opener_association: u64, code: RefuseCode) {
        self.counters.handshakes_refused += 1;
        let endpoint_id = self.endpoint_id;
        self.answer(meta, &Handshake::Refuse(wire::Refuse { code, opener_association, endpoint_id }));
    }

    /// A packet for an association that is not here.
    pub(crate) fn send_reset(&mut self, now: Time, meta: &RxMeta, association: u64) {
        if self.reset_limit.take(now) {
            self.counters.resets_sent += 1;
            self.answer(meta, &Handshake::Reset(wire::Reset { association, endpoint_id: self.endpoint_id }));
        }
    }

    /// Before the MAC is computed: each kind has its own limit, and answers that name no opening of
    /// ours, which a stranger cannot guess, are not looked at (spec 10).
    fn is_worth_a_mac(&mut self, now: Time, datagram: &[u8]) -> bool {
        let limit = match packet::kind(datagram) {
            Ok(Kind::Init) => &mut self.init_limit,
            Ok(Kind::Confirm) => &mut self.confirm_limit,
            Ok(Kind::Reset) => &mut self.reset_seen_limit,
            Ok(Kind::Cookie | Kind::Accept | Kind::Refuse) => {
                let id = datagram.get(8..16).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
                let a = self.assocs.get((id & ((1 << INDEX_BITS) - 1)) as usize);
                if !a.is_some_and(|a| a.state == State::Opening && a.local_id == id) && !self.is_asking(id) {
                    self.counters.dropped_state += 1;
                    return false;
                }
                &mut self.answer_limit
            }
            Ok(Kind::Protected) | Err(_) => {
                self.counters.dropped_malformed += 1;
                return false;
            }
        };
        let ok = limit.take(now);
        self.counters.dropped_rate_limit += u64::from(!ok);
        ok
    }

    /// Any packet but PROTECTED.
    pub(crate) fn handle_handshake(&mut self, now: Time, meta: &RxMeta, datagram: &[u8], events: &mut Vec<Event>) {
        if !self.is_worth_a_mac(now, datagram) {
            return;
        }
        match Handshake::parse(datagram, &self.handshake.key) {
            Err(weir_wire::PacketError::Check) => self.counters.dropped_check += 1,
            Err(_) => self.counters.dropped_malformed += 1,
            Ok(Handshake::Init(o)) => self.on_init(now, meta, &o),
            Ok(Handshake::Cookie(c)) => self.on_cookie(now, meta, &c),
            Ok(Handshake::Confirm(c)) => self.on_confirm(now, meta, &c, events),
            Ok(Handshake::Accept(c)) => self.on_accept(now, meta, &c, events),
            Ok(Handshake::Refuse(r)) => self.on_refuse(now, meta, &r, events),
            Ok(Handshake::Reset(r)) => self.on_reset(now, meta, &r, events),
        }
    }

    /// The endpoint wanted is believed, wherever it says so. That another one lives at its address
    /// is believed only of that address, and when it answers several times: a stranger may have
    /// repeated our INIT to a third member.
    fn on_refuse(&mut self, now: Time, meta: &RxMeta, r: &wire::Refuse, events: &mut Vec<Event>) {
        if self.on_asking_refused(meta, r) {
            return;
        }
        let peer = PeerId(r.opener_association as u32 & ((1 << INDEX_BITS) - 1));
        let ours = with_association!(self, peer, now)
            .filter(|(a, _)| a.local_id == r.opener_association && a.state == State::Opening);
        let Some((a, mut cx)) = ours else {
            self.counters.dropped_state += 1;
            return;
        };
        let at_its_address = a.addrs.contains(&meta.remote);
        let is_it = a.endpoint_id == r.endpoint_id || (a.endpoint_id == 0 && at_its_address);
        if is_it && r.code != RefuseCode::StaleIncarnation {
            a.go_down(&mut cx, reason_of(r.code), events);
        } else if let Some(o) = a.opening.as_mut()
            && !is_it
            && at_its_address
            && r.code == RefuseCode::StaleIncarnation
            // A cookie came: the endpoint wanted is there.
            && o.cookie.is_none()
        {
            o.strangers += u32::from(o.strangers < o.tries);
            if o.strangers >= STALE_VERDICT {
                a.go_down(&mut cx, DownReason::StaleIncarnation, events);
            }
        } else {
            self.counters.dropped_state += 1;
        }
        self.touch(peer);
    }

    /// The peer itself is believed. Anybody else at its address (its next incarnation, or a third
    /// party that was made to answer by a packet with a forged source) only makes us ask.
    fn on_reset(&mut self, now: Time, meta: &RxMeta, r: &wire::Reset, events: &mut Vec<Event>) {
        let found = self.assocs.iter().find(|a| a.state == State::Up && a.remote_id == r.association).map(|a| a.id);
        let Some((a, mut cx)) = found.and_then(|p| with_association!(self, p, now)) else {
            self.counters.dropped_state += 1;
            return;
        };
        let peer = a.id;
        if a.endpoint_id == r.endpoint_id {
            // The same incarnation: it knows the association no more, or has ended it without a
            // word that came here.
            a.go_down(&mut cx, DownReason::GivenUp, events);
        } else if a.paths.iter().any(|p| p.remote == meta.remote) {
            a.doubt(now, DownReason::Restarted);
        } else {
            self.counters.dropped_state += 1;
        }
        self.touch(peer);
    }

    /// Checks that need no state; refuses if one fails.
    fn acceptable(&mut self, now: Time, meta: &RxMeta, o: &wire::Opening) -> bool {
        // 0: whoever is at this address (spec 7).
        let code = if o.responder_id != self.endpoint_id && o.responder_id != 0 {
            RefuseCode::StaleIncarnation
        } else if o.features != self.cfg.features {
            self.ask_too(now, o.opener_id);
            RefuseCode::Features
        } else if self.closing {
            RefuseCode::ShuttingDown
        } else {
            return o.opener_id != self.endpoint_id;
        };
        self.refuse(meta, o.opener_association, code);
        false
    }

    /// A peer we know by name, and may be waiting for, follows other rules. It is refused; our own
    /// opening, which it will refuse likewise, lets our side know too (spec 3). What it said is
    /// believed no further, for anybody in the job may say it.
    fn ask_too(&mut self, now: Time, opener_id: u64) {
        if let Some(&p) = self.by_endpoint.get(&opener_id)
            && self.assocs.get(p.0 as usize).is_some_and(|a| !a.addrs.is_empty())
            && !self.closing
        {
            // Who only waits, and would go by another carrier, would never ask by packets.
            if self.sessions.get(p).is_some_and(|s| !s.is_up() && !s.has_open()) {
                self.sessions.set_carrier(p, Carrier::Link);
            }
            self.ensure_open(now, p);
        }
    }

    /// An INIT of another version, if it is one: the opener is told (spec 2.6). Anything else is
    /// dropped.
    pub(crate) fn on_other_version(&mut self, now: Time, meta: &RxMeta, datagram: &[u8]) {
        if !self.init_limit.take(now) {
            self.counters.dropped_rate_limit += 1;
            return;
        }
        match wire::foreign_opening(datagram, &self.handshake.key) {
            Some(opener_association) => self.refuse(meta, opener_association, RefuseCode::Features),
            None => self.counters.dropped_malformed += 1,
        }
    }

    /// Our own opening to the same peer, if it is the one that is to win (spec 3, simultaneous
    /// opening).
    fn winning(&self, opener_id: u64) -> Option<&Opening> {
        let a = self.by_endpoint.get(&opener_id).and_then(|p| self.assocs.get(p.0 as usize))?;
        // (Of one that waits for its turn the other side knows nothing.)
        let is_to_win = |o: &&Opening| a.state == State::Opening && self.endpoint_id < opener_id && !o.waits();
        a.opening.as_deref().filter(is_to_win)
    }

    /// Who opens to us lives, though it may not have answered our own opening.
    fn note_peer_opens(&mut self, now: Time, opener_id: u64) {
        let known = self.by_endpoint.get(&opener_id).and_then(|p| self.assocs.get_mut(p.0 as usize));
        if let Some(o) = known.and_then(|a| a.opening.as_mut()) {
            o.hear(now, self.cfg.connect_timeout);
        }
    }

    /// The opener of an association we hold for established has not seen our ACCEPT and knocks
    /// again: it lives, though nothing of it can come through yet. Without this a network that
    /// loses handshake packets for a while makes us declare it dead. Once a protected packet came
    /// only those count, so a recorded INIT keeps no association alive.
    fn note_opener_lives(&mut self, now: Time, o: &wire::Opening) {
        let known = self.by_endpoint.get(&o.opener_id).and_then(|p| self.assocs.get_mut(p.0 as usize));
        let waits = known.filter(|a| {
            a.state == State::Up && a.rx.expected() == 0 && a.accepted.as_ref().is_some_and(|x| x.nonce == o.nonce)
        });
        if let Some(a) = waits {
            a.heard = now;
            a.pings = 0;
        }
    }

    fn on_init(&mut self, now: Time, meta: &RxMeta, o: &wire::Opening) {
        // To no use while ours goes well, that is while its first INIT may still be answered.
        let ignored = self.winning(o.opener_id).is_some_and(|ours| ours.confirmed || ours.tries < 2);
        if !self.acceptable(now, meta, o) {
            return;
        }
        self.note_peer_opens(now, o.opener_id);
        if !ignored {
            self.note_opener_lives(now, o);
            let cookie = self.handshake.cookie(now, &meta.remote, o);
            self.answer(meta, &Handshake::Cookie(wire::Cookie { opener_association: o.opener_association, cookie }));
        }
    }

    fn on_cookie(&mut self, now: Time, meta: &RxMeta, c: &wire::Cookie) {
        let peer = PeerId(c.opener_association as u32 & ((1 << INDEX_BITS) - 1));
        let (late_ns, timeout) = (self.late_ns(), self.cfg.connect_timeout);
        match self.assocs.get_mut(peer.0 as usize) {
            Some(a) if a.state == State::Opening && a.local_id == c.opener_association => {
                if let Some(o) = a.opening.as_mut().filter(|o| o.cookie.is_none()) {
                    if o.tries == 1 {
                        // (After several it may be one that was not there before.)
                        self.openings.answered(now.since_ns(o.asked_at));
                    }
                    o.cookie = Some((c.cookie, meta.remote, meta.local));
                    o.confirms = 0;
                    o.interval_ns = self.cfg.handshake_retry.as_nanos() as u64;
                    if o.has_place || self.openings.go_on(&self.cfg, peer) {
                        o.start(now, late_ns, timeout);
                    } else {
                        o.is_queued = true;
                        o.send_at = Time::MAX;
                        o.hear(now, timeout);
                    }
                }
                self.touch(peer);
            }
            _ => self.counters.dropped_state += 1,
        }
    }

    /// A peer that is known here opens anew: what it had with us is over there. Where the dead may
    /// return that is no reason to refuse it: it asks again until its former place is free here,
    /// and one whose farewell was lost is doubted.
    fn refuse_anew(&mut self, now: Time, meta: &RxMeta, opener_association: u64, peer: PeerId) {
        if !self.cfg.dead_may_return {
            return self.refuse(meta, opener_association, RefuseCode::NoRoom);
        }
        self.counters.dropped_state += 1;
        self.assocs[peer.0 as usize].doubt(now, DownReason::GivenUp);
        self.touch(peer);
    }

    fn on_confirm(&mut self, now: Time, meta: &RxMeta, c: &wire::Confirm, events: &mut Vec<Event>) {
        let o = &c.opening;
        // Once we sent a CONFIRM the peer may have accepted it, and there would be two
        // associations.
        let ignored = self.winning(o.opener_id).is_some_and(|ours| ours.confirmed);
        if !self.acceptable(now, meta, o) {
            return;
        }
        self.note_peer_opens(now, o.opener_id);
        if ignored {
            return;
        }
        if !self.handshake.cookie_is_good(now, &c.cookie, &meta.remote, o) {
            self.counters.dropped_check += 1;
            return;
        }
        self.note_opener_lives(now, o);
        // One that was forgotten after it went down is new again, but for what it said before.
        if self.spent.has(crate::crypt::Handshake::epoch(now), o.opener_id, &o.nonce) {
            return self.refuse(meta, o.opener_association, RefuseCode::NoRoom);
        }
        let said = |a: &Association| a.accepted.as_ref().is_some_and(|x| x.nonce == o.nonce);
        let is_new = |a: &Association| a.vacant || (a.forgetting && !said(a));
        let known = self.by_endpoint.get(&o.opener_id).copied().filter(|p| !is_new(&self.assocs[p.0 as usize]));
        let peer = match known {
            Some(p) => {
                let a = &self.assocs[p.0 as usize];
                if let Some(acc) = a.accepted.as_ref().filter(|x| x.nonce == o.nonce) {
                    let bytes = acc.packet.clone();
                    return self.post(meta.remote, meta.local, bytes);
                }
                if !matches!(a.state, State::Idle | State::Opening) {
                    return self.refuse_anew(now, meta, o.opener_association, p);
                }
                p
            }
            None => {
                if !self.has_room(now) {
                    return self.refuse(meta, o.opener_association, RefuseCode::NoRoom);
                }
                match self.add_peer(o.opener_id, &[], now) {
                    Some(p) => p,
                    None => return self.refuse(meta, o.opener_association, RefuseCode::NoRoom),
                }
            }
        };
        self.accept(now, meta, c, peer, events);
    }

    /// Makes the association and answers ACCEPT.
    fn accept(&mut self, now: Time, meta: &RxMeta, c: &wire::Confirm, peer: PeerId, events: &mut Vec<Event>) {
        let o = &c.opening;
        let level = self.cfg.level.max(o.level);
        let local_id = self.new_association_id(peer);
        let mut nonce = [0; wire::NONCE_LEN];
        self.rng.fill_bytes(&mut nonce);
        let crypt = Box::new(self.handshake.session(level, Role::Responder, o, &nonce));
        let packet = self.handshake.write(&Handshake::Accept(wire::Accept {
            level,
            features: self.cfg.features,
            opener_association: o.opener_association,
            responder_id: self.endpoint_id,
            responder_association: local_id,
            nonce,
            params: Self::params(&self.cfg, &self.local_addrs),
        }));
        self.post(meta.remote, meta.local, packet.clone());
        self.counters.handshakes_accepted += 1;
        let Some((a, mut cx)) = with_association!(self, peer, now) else { return };
        a.local_id = local_id;
        a.accepted = Some(Box::new(Accepted { nonce: o.nonce, packet }));
        a.remote_id = o.opener_association;
        a.crypt = Some(crypt);
        // Where this endpoint's own openings take long, so do its first messages.
        let took_ns = cx.openings.crowd_took_ns().unwrap_or(0);
        a.establish(&mut cx, &c.params, (meta, took_ns), events);
        self.touch(peer);
    }

    fn on_accept(&mut self, now: Time, meta: &RxMeta, c: &wire::Accept, events: &mut Vec<Event>) {
        let peer = PeerId(c.opener_association as u32 & ((1 << INDEX_BITS) - 1));
        let Endpoint { assocs, handshake, counters, .. } = self;
        let opening = assocs
            .get_mut(peer.0 as usize)
            .filter(|a| {
                let expected = a.endpoint_id == c.responder_id || a.endpoint_id == 0;
                a.state == State::Opening && a.local_id == c.opener_association && expected
            })
            .and_then(|a| {
                let o = a.opening.as_ref()?;
                let agreed = o.cookie.is_some() && c.level >= o.opening.level && c.features == o.opening.features;
                agreed.then_some((o.opening, now.since_ns(o.asked_at)))
            });
        let Some((opening, took_ns)) = opening else {
            counters.dropped_state += 1;
            return;
        };
        let crypt = Box::new(handshake.session(c.level, Role::Opener, &opening, &c.nonce));
        let Some((a, mut cx)) = with_association!(self, peer, now) else { return };
        a.remote_id = c.responder_association;
        a.crypt = Some(crypt);
        let learned = a.endpoint_id == 0;
        a.endpoint_id = c.responder_id;
        cx.openings.answered(took_ns);
        let took_ns = cx.openings.crowd_took_ns().unwrap_or(0);
        a.establish(&mut cx, &c.params, (meta, took_ns), events);
        if learned {
            // Named again by its own name, it is the same peer; an association it has already under
            // that name stays.
            self.by_endpoint.entry(c.responder_id).or_insert(peer);
        }
        self.touch(peer);
    }
}

impl Association {
    /// Timers of an opening.
    pub(crate) fn opening_timeout(&mut self, cx: &mut Cx<'_>, events: &mut Vec<Event>) {
        let Some(o) = self.opening.as_mut().filter(|o| o.give_up <= cx.now) else { return };
        if !o.is_over(cx.now, cx.late_ns) {
            return;
        }
        // What has arrived is read first: the answer may be there.
        if !cx.unread.may_judge(Time(cx.now.0.saturating_sub(READ_NS))) {
            o.give_up = cx.now.plus_ns(READ_NS);
            return;
        }
        self.go_down(cx, DownReason::ConnectTimeout, events);
    }

    /// It has an end, whichever: another opening may have its place.
    pub(crate) fn end_opening(&mut self, cx: &mut Cx<'_>) {
        if let Some(o) = self.opening.take() {
            cx.openings.end(o.has_place);
        }
    }

    /// Both sides agree: the association is up. `took_ns`: what its first messages may take until
    /// they are acknowledged.
    fn establish(&mut self, cx: &mut Cx<'_>, p: &Params, (meta, took_ns): (&RxMeta, u64), events: &mut Vec<Event>) {
        cx.openings.alive.insert(self.id);
        self.state = State::Up;
        if self.opening.is_some() {
            cx.openings.comes_up(cx.now);
        }
        self.end_opening(cx);
        self.peer = PeerParams {
            max_datagram: p.max_datagram,
            rx_buffer: p.rx_buffer_bytes.max(64 << 10),
            // A peer cannot make us wait longer than a tenth of a second by what it says.
            ack_delay_max_ns: u64::from(p.ack_delay_max_us.min(100_000)) * 1000,
            bulk_connections: cx.cfg.bulk.on
                && p.bulk_connections == weir_bulk::VERSION
                && self.level() == Level::Integrity,
            ecn: p.ecn,
            sctp: cx.cfg.sctp && p.sctp == weir_wire::sctp::VERSION && self.level() == Level::Integrity,
            parity_rows: p.parity_rows.clamp(1, weir_wire::MAX_PARITY_ROWS),
            connects: cx.endpoint_id < self.endpoint_id,
            terms: Terms { credit_msgs: u64::from(p.initial_credit_msgs), credit_bytes: p.initial_credit_bytes },
        };
        if self.peer.sctp {
            cx.openings.for_sctp.push_back(self.id);
        }
        self.heard = cx.now;
        self.last_ping = cx.now;
        let max = cx.cfg.max_datagram.min(p.max_datagram);
        let known: SmallVec<[SocketAddr; 16]> = self.addrs.iter().chain(p.addresses.iter()).copied().collect();
        self.paths.clear();
        for remote in known {
            self.add_path(cx, remote, None, max);
        }
        self.paths.truncate(PATHS_MAX - 1);
        self.add_path(cx, meta.remote, meta.local, max);
        if let Some(i) = self.paths.iter().position(|p| p.remote == meta.remote) {
            self.primary = i as u8;
            self.paths[i].local = meta.local;
            self.paths[i].make_valid(cx.cfg, cx.now);
            self.paths[i].rtt.suppose(took_ns);
        }
        self.paths.shrink_to_fit();
        // Where another carrier has the session, packets are there if it fails.
        if carries(cx.s) {
            self.take_over(cx, events);
        }
    }

    /// The association is up and carries the session.
    pub(crate) fn take_over(&mut self, cx: &mut Cx<'_>, events: &mut Vec<Event>) {
        if !cx.s.is_up() {
            events.push(Event::Up { peer: self.id });
        }
        self.set_piece_max(cx.s);
        self.set_round_trip(cx.s);
        let least = if self.peer.bulk_connections { u64::from(cx.cfg.bulk.min_bytes) } else { 0 };
        cx.s.allow_bulk(least, u64::from(cx.cfg.bulk.lone_bytes));
        if !cx.s.begin(cx.common, self.peer.terms) {
            // Queued before the peer's limits were known; it would never be let out.
            self.go_down(cx, DownReason::NoRoom, events);
            self.close_pending = Some(1);
        }
    }

    fn add_path(&mut self, cx: &Cx<'_>, remote: SocketAddr, local: Option<IpAddr>, max: u16) {
        if self.paths.len() < PATHS_MAX && !self.paths.iter().any(|p| p.remote == remote) {
            self.paths.reserve_exact(1);
            self.paths.push(Path::new(cx.cfg, cx.now, remote, local, max));
        }
    }
}
