//! An upper layer that believes nothing: it sits on one endpoint, keeps its own books, and checks
//! every event.
//!
//! It knows every payload: byte `i` of operation `token` is [`byte_of`], and the first 8 bytes of
//! an envelope name the token, so an honest peer's messages can be checked to the last byte.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use weir_link::{
    Config, DataKey, Endpoint, Event, Hole, Message, PacketBuf, Payloads, PeerId, RecordIn, RndvOpened, RxMeta,
    SendError, Time,
};

/// Byte `i` of the payload of operation `token`.
#[must_use]
pub fn byte_of(token: u64, i: u64) -> u8 {
    let x = (token ^ (i / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x.to_le_bytes()[usize::try_from(i % 8).expect("small")]
}

/// Disjoint ranges of bytes.
#[derive(Default, Debug)]
pub struct Cover(BTreeMap<u64, u64>);

impl Cover {
    /// Adds `[from, to)`; false if a byte of it was there already.
    pub fn add(&mut self, from: u64, to: u64) -> bool {
        if from >= to {
            return true;
        }
        if self.0.range(..to).next_back().is_some_and(|(_, end)| *end > from) {
            return false;
        }
        let (mut from, mut to) = (from, to);
        if let Some((&start, &end)) = self.0.range(..from).next_back()
            && end == from
        {
            from = start;
        }
        if let Some(end) = self.0.remove(&to) {
            to = end;
        }
        self.0.insert(from, to);
        true
    }

    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }

    /// Nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, at: u64) -> bool {
        self.0.range(..=at).next_back().is_some_and(|(_, end)| *end > at)
    }

    /// Adds what of `[from, to)` is not there yet.
    fn unite(&mut self, mut from: u64, mut to: u64) {
        while let Some((&start, &end)) = self.0.range(..=to).next_back()
            && end >= from
        {
            self.0.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        self.0.insert(from, to);
    }

    fn add_missing(&mut self, from: u64, to: u64) {
        for at in from..to {
            if !self.has(at) {
                self.add(at, at + 1);
            }
        }
    }
}

/// Something being received.
#[derive(Default, Debug)]
struct Incoming {
    total: u64,
    /// The sender's operation, if the peer is honest.
    token: Option<u64>,
    reported: Cover,
    /// Restored from parity; the endpoint may still report such bytes when they were in the same
    /// packet.
    restored: Cover,
    complete: bool,
    closed: bool,
}

impl Incoming {
    fn missing(&self) -> u64 {
        let mut missing = self.total - self.reported.len();
        for (from, to) in &self.restored.0 {
            missing -= (*from..*to).filter(|at| !self.reported.has(*at)).count() as u64;
        }
        missing
    }
}

/// What the endpoint is still to report, and may still read.
struct Outgoing(BTreeMap<u64, u64>);

impl Payloads for Outgoing {
    fn read(&self, token: u64, offset: u64, dst: &mut [u8]) {
        let len = *self.0.get(&token).expect("memory of an operation that is over was read");
        assert!(offset + dst.len() as u64 <= len, "read past the end of an operation");
        for (i, d) in (offset..).zip(dst) {
            *d = byte_of(token, i);
        }
    }
}

/// A packet the endpoint sent.
pub struct Sent {
    /// To.
    pub remote: SocketAddr,
    /// Complete, with gathered payload.
    pub bytes: Vec<u8>,
}

/// One endpoint with its books.
pub struct Upper {
    /// The endpoint.
    pub ep: Endpoint,
    /// The peer is honest: its payloads are [`byte_of`].
    pub honest_peer: bool,
    outgoing: Outgoing,
    next_token: u64,
    messages: BTreeMap<(PeerId, bool, u64), Incoming>,
    rndvs: BTreeMap<(PeerId, u64), Incoming>,
    /// Matched messages of honest peers by their number within the stream.
    numbers: BTreeMap<(PeerId, u16, u32), u64>,
    unconsumed: BTreeMap<PeerId, (u32, u64)>,
    /// Matched messages and their bytes: those that came or begin to come, and those that were
    /// consumed.
    announced: BTreeMap<PeerId, (u64, u64)>,
    consumed: BTreeMap<PeerId, (u64, u64)>,
    /// Peers that are down.
    pub down: BTreeSet<PeerId>,
    /// Peers that came up.
    pub up: BTreeSet<PeerId>,
    /// The one of them that came last.
    pub newest: Option<PeerId>,
    /// Tokens of the peer that were completely received here.
    pub received: BTreeSet<u64>,
    /// Tokens reported as sent.
    pub sent: Vec<u64>,
    closed: bool,
    polls: Cell<u64>,
}

impl Upper {
    /// Tokens count up from `first_token`.
    #[must_use]
    pub fn new(ep: Endpoint, first_token: u64, honest_peer: bool) -> Upper {
        Upper {
            ep,
            honest_peer,
            outgoing: Outgoing(BTreeMap::new()),
            next_token: first_token,
            messages: BTreeMap::new(),
            rndvs: BTreeMap::new(),
            numbers: BTreeMap::new(),
            unconsumed: BTreeMap::new(),
            announced: BTreeMap::new(),
            consumed: BTreeMap::new(),
            down: BTreeSet::new(),
            up: BTreeSet::new(),
            newest: None,
            received: BTreeSet::new(),
            sent: Vec::new(),
            closed: false,
            polls: Cell::new(0),
        }
    }

    /// Operations not yet reported.
    #[must_use]
    pub fn open_ops(&self) -> usize {
        self.outgoing.0.len()
    }

    /// Sends a message whose envelope begins with its token and is filled up to `env_len` (8 to 48)
    /// bytes.
    ///
    /// # Errors
    /// What the endpoint says.
    #[expect(clippy::too_many_arguments, reason = "the fields of a message")]
    pub fn send(
        &mut self,
        now: Time,
        peer: PeerId,
        control: bool,
        stream: u16,
        env_len: usize,
        len: u32,
        patient: bool,
    ) -> Result<u64, SendError> {
        let token = self.next_token;
        let mut envelope = [0xee; 48];
        envelope[..8].copy_from_slice(&token.to_le_bytes());
        let envelope = &envelope[..env_len.clamp(8, 48)];
        self.ep.send(now, peer, Message { control, stream, envelope, len, patient, token })?;
        self.next_token += 1;
        self.outgoing.0.insert(token, len.into());
        Ok(token)
    }

    /// Opens a rendezvous transfer for operation `token` of the peer.
    ///
    /// # Errors
    /// What the endpoint says.
    pub fn open_rndv(
        &mut self,
        now: Time,
        peer: PeerId,
        len: u64,
        token: Option<u64>,
    ) -> Result<RndvOpened, SendError> {
        let opened = self.ep.open_rndv(now, peer, len)?;
        assert!(len > 0 && opened.granted <= len, "granted more than there is, or opened for nothing");
        let new = Incoming { total: len, token, ..Incoming::default() };
        assert!(self.rndvs.insert((peer, opened.handle), new).is_none(), "handle given out twice");
        Ok(opened)
    }

    /// The token that the next operation will have.
    #[must_use]
    pub fn next_token(&self) -> u64 {
        self.next_token
    }

    /// Sends a rendezvous transfer.
    ///
    /// # Errors
    /// What the endpoint says.
    pub fn send_rndv(
        &mut self,
        now: Time,
        peer: PeerId,
        handle: u64,
        granted: u64,
        len: u64,
    ) -> Result<u64, SendError> {
        let token = self.next_token;
        self.ep.send_rndv(now, peer, handle, granted, len, token)?;
        self.next_token += 1;
        self.outgoing.0.insert(token, len);
        Ok(token)
    }

    /// Gives up sending.
    pub fn abort_rndv(&mut self, now: Time, peer: PeerId, handle: u64, code: u16) {
        if let Some(token) = self.ep.abort_rndv(now, peer, handle, code) {
            assert!(self.outgoing.0.remove(&token).is_some(), "aborted an operation that is over");
        }
    }

    /// Gives up receiving the `i`th open rendezvous transfer; returns its handle.
    pub fn close_rndv(&mut self, i: usize) -> Option<(PeerId, u64)> {
        let open: Vec<_> = self.rndvs.iter().filter(|(_, b)| !b.complete && !b.closed).map(|(k, _)| *k).collect();
        let key = *open.get(i % open.len().max(1))?;
        self.ep.close_rndv(key.0, key.1);
        self.rndvs.get_mut(&key)?.closed = true;
        Some(key)
    }

    /// Gives back all credit for what was received completely.
    pub fn consume(&mut self) {
        for (peer, (msgs, bytes)) in std::mem::take(&mut self.unconsumed) {
            self.ep.consume(peer, msgs, bytes);
            let c = self.consumed.entry(peer).or_default();
            *c = (c.0 + u64::from(msgs), c.1 + bytes);
        }
    }

    /// A message or rendezvous data of an honest peer is what it claims to be, whatever way it
    /// comes: payload of a record.
    ///
    /// # Panics
    /// If it is another.
    pub fn check_payload(&self, peer: PeerId, key: DataKey, offset: u64, bytes: &[u8]) {
        let known = match key {
            DataKey::Message(mseq) => self.messages.get(&(peer, false, mseq)),
            DataKey::Rndv(handle) => self.rndvs.get(&(peer, handle)),
        };
        if let (true, Some(token)) = (self.honest_peer, known.and_then(|k| k.token)) {
            let right = (offset..).zip(bytes).all(|(i, b)| *b == byte_of(token, i));
            assert!(right, "a record with other bytes of {token}, from {offset}");
        }
    }

    /// A head came on a bulk connection. False: the endpoint will have no more of it.
    pub fn record_tells(&mut self, now: Time, peer: PeerId, bulk: u32, head: &[u8]) -> bool {
        let mut events = Vec::new();
        let good = self.ep.record_tells(now, peer, bulk, head, &mut events);
        self.take(now, events, head);
        good
    }

    /// The record begins.
    ///
    /// # Panics
    /// If it belongs to a message that was not told.
    pub fn record_begins(&mut self, now: Time, peer: PeerId, head: &[u8]) -> Option<RecordIn> {
        let mut events = Vec::new();
        let record = self.ep.record_begins(now, peer, head, &mut events);
        self.take(now, events, head);
        if let Some(RecordIn { key: DataKey::Message(mseq), .. }) = record {
            assert!(self.messages.contains_key(&(peer, false, mseq)), "a record of a message that was not told");
        }
        record
    }

    /// A message came in one record. False: the endpoint will have no more of it.
    pub fn record_whole(&mut self, now: Time, peer: PeerId, bytes: &[u8], head_len: usize) -> bool {
        let mut events = Vec::new();
        let good = self.ep.record_whole(now, peer, (bytes, head_len), &mut events);
        self.take(now, events, bytes);
        good
    }

    /// All of the record was read. Its bytes count as reported from now on.
    ///
    /// # Panics
    /// If the endpoint does not say what is complete by it, or says it of what is not.
    pub fn record_ends(&mut self, now: Time, peer: PeerId, bulk: u32, record: &RecordIn) {
        let end = record.offset + u64::from(record.len);
        if let Some(known) = self.open_incoming(peer, record.key)
            && end <= known.total
        {
            known.reported.unite(record.offset, end);
        }
        let mut events = Vec::new();
        self.ep.record_ends(now, peer, bulk, record, &mut events);
        self.take(now, events, &[]);
        let down = self.ep.is_down(peer);
        if let Some(known) = self.open_incoming(peer, record.key) {
            assert!(down || known.missing() > 0, "all is here and nobody said so");
        }
    }

    /// What is being received and neither complete nor closed.
    fn open_incoming(&mut self, peer: PeerId, key: DataKey) -> Option<&mut Incoming> {
        let known = match key {
            DataKey::Message(mseq) => self.messages.get_mut(&(peer, false, mseq)),
            DataKey::Rndv(handle) => self.rndvs.get_mut(&(peer, handle)),
        };
        known.filter(|k| !k.complete && !k.closed)
    }

    /// The operation has not ended: its memory may be read.
    #[must_use]
    pub fn is_open(&self, token: u64) -> bool {
        self.outgoing.0.contains_key(&token)
    }

    /// Handles of the rendezvous transfers that are being received.
    pub fn open_handles(&self) -> impl Iterator<Item = u64> {
        self.rndvs.iter().filter(|(_, b)| !b.complete && !b.closed).map(|(k, _)| k.1)
    }

    /// What a peer can make an endpoint hold has its limits.
    ///
    /// # Panics
    /// If it goes beyond.
    pub fn check_limits(&self, peer: PeerId, cfg: &Config) {
        let (announced, consumed) = (self.announced.get(&peer), self.consumed.get(&peer));
        let ((msgs, bytes), (msgs_done, bytes_done)) =
            (announced.copied().unwrap_or_default(), consumed.copied().unwrap_or_default());
        assert!(
            msgs <= msgs_done + u64::from(cfg.session.initial_credit_msgs),
            "{msgs} messages, {msgs_done} consumed"
        );
        // More with a bulk connection or over a long path, which is forgotten when the session
        // ends.
        let most = cfg.session.bulk_credit().max(cfg.session.long_credit());
        let initial = cfg.session.initial_credit_bytes;
        let session = self.ep.sessions().get(peer);
        let more = session.map_or(0, |s| if s.down().is_some() { most } else { s.bulk_credit().min(most) });
        let let_in = initial + more;
        assert!(bytes <= bytes_done + let_in, "{bytes} message bytes, {bytes_done} consumed");
        let stats = self.ep.peer_stats(peer);
        assert!(stats.rndvs_in <= cfg.session.rndvs_max && stats.rndvs_open <= cfg.session.rndvs_max, "{stats:?}");
    }

    /// Closes the endpoint.
    pub fn close(&mut self, now: Time) {
        self.closed = true;
        self.ep.close(now);
    }

    /// Has no more to do with a peer; the endpoint forgets it if it is down.
    ///
    /// # Panics
    /// If a peer that lives is forgotten, or one is not.
    pub fn forget(&mut self, now: Time, peer: PeerId) -> bool {
        if !self.ep.forget(now, peer) {
            return false;
        }
        // Who closes is not told that nothing is left to be done for a peer.
        assert!(self.down.remove(&peer) || self.closed, "one that lives was forgotten");
        assert!(self.ep.is_down(peer) && self.ep.peers().all(|p| p != peer) && !self.ep.forget(now, peer));
        assert_eq!(
            self.ep.send(
                now,
                peer,
                Message { control: false, stream: 0, envelope: &[], len: 0, patient: true, token: 0 }
            ),
            Err(SendError::Closed)
        );
        // Its place may be given to another, whose numbers begin anew.
        self.up.remove(&peer);
        self.unconsumed.remove(&peer);
        self.announced.remove(&peer);
        self.consumed.remove(&peer);
        self.numbers.retain(|k, _| k.0 != peer);
        self.messages.retain(|k, _| k.0 != peer);
        self.rndvs.retain(|k, _| k.0 != peer);
        true
    }

    /// A datagram arrives.
    pub fn handle(&mut self, now: Time, from: SocketAddr, mut datagram: Vec<u8>) {
        let mut events = Vec::new();
        let meta = RxMeta { remote: from, local: None, receiver_delay_ns: 0, ecn: 0 };
        self.ep.handle(now, meta, &mut datagram, &mut events);
        self.take(now, events, &datagram);
    }

    /// Lets timers fire that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        let mut events = Vec::new();
        self.ep.handle_timeout(now, &mut events);
        self.take(now, events, &[]);
    }

    /// Everything the endpoint wants to send now.
    ///
    /// # Panics
    /// If it does not come to an end.
    pub fn transmit(&mut self, now: Time) -> Vec<Sent> {
        let mut buf = PacketBuf::new();
        let mut all = Vec::new();
        while let Some(t) = self.ep.poll_transmit(now, &self.outgoing, &mut buf) {
            let mut bytes = buf.head.clone();
            if let Some(p) = t.payload {
                let at = bytes.len();
                bytes.resize(at + usize::from(p.len), 0);
                self.outgoing.read(p.token, p.offset, &mut bytes[at..]);
            }
            assert!(!bytes.is_empty() && bytes.len() <= 65_507, "no UDP payload: {} bytes", bytes.len());
            all.push(Sent { remote: t.remote, bytes });
            assert!(all.len() < 20_000, "transmits for ever");
        }
        self.polls.set(self.polls.get() + 1);
        all
    }

    fn take(&mut self, now: Time, events: Vec<Event>, datagram: &[u8]) {
        for e in events {
            self.event(now, e, datagram);
        }
    }

    fn event(&mut self, now: Time, event: Event, d: &[u8]) {
        match event {
            Event::Up { peer } => {
                assert!(self.up.insert(peer), "up twice");
                self.newest = Some(peer);
            }
            Event::Down { peer, .. } => assert!(self.down.insert(peer), "down twice"),
            Event::Sent { token, .. } => {
                assert!(self.outgoing.0.remove(&token).is_some(), "{token} reported twice or never made");
                self.sent.push(token);
            }
            Event::Failed { token, .. } => {
                assert!(self.outgoing.0.remove(&token).is_some(), "{token} reported twice or never made");
            }
            Event::Message {
                peer,
                control,
                stream,
                mseq,
                sseq,
                total_len,
                offset,
                envelope,
                payload,
                first,
                complete,
            } => {
                if first && !control {
                    self.number(peer, stream, sseq, mseq, total_len);
                }
                let (envelope, payload) = (&d[envelope], &d[payload]);
                let place = Place { offset: offset.into(), payload, complete };
                self.message(peer, control, mseq, total_len, envelope, first, &place);
            }
            Event::Rndv { peer, handle, offset, payload, complete } => {
                let honest = self.honest_peer;
                let rndv = self.rndvs.get_mut(&(peer, handle)).expect("rendezvous transfer of a handle never opened");
                assert!(!rndv.closed, "bytes for a closed handle");
                Place { offset, payload: &d[payload], complete }.fill(rndv, honest);
                if complete && let Some(token) = rndv.token {
                    self.received.insert(token);
                }
            }
            Event::RndvAborted { peer, handle, .. } => {
                let rndv = self.rndvs.get_mut(&(peer, handle)).expect("abort of a handle never opened");
                assert!(!rndv.closed && !rndv.complete, "abort of a closed handle");
                rndv.closed = true;
            }
            Event::Parity { peer, key, hole, parity } => self.parity(now, peer, key, &hole, &parity),
        }
    }

    /// A matched message is told for the first time: an honest peer numbers those of a stream in
    /// the order of all.
    fn number(&mut self, peer: PeerId, stream: u16, sseq: u32, mseq: u64, total_len: u32) {
        let a = self.announced.entry(peer).or_default();
        *a = (a.0 + 1, a.1 + u64::from(total_len));
        if !self.honest_peer {
            return;
        }
        let key = (peer, stream, sseq);
        let before = self.numbers.range((peer, stream, 0)..key).next_back();
        let after = self.numbers.range(key..=(peer, stream, u32::MAX)).next();
        let between = before.is_none_or(|(_, m)| *m < mseq) && after.is_none_or(|(k, m)| *k != key && *m > mseq);
        assert!(between, "{mseq} is {sseq} of stream {stream}, between {before:?} and {after:?}");
        self.numbers.insert(key, mseq);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one event")]
    fn message(
        &mut self,
        peer: PeerId,
        control: bool,
        mseq: u64,
        total_len: u32,
        envelope: &[u8],
        first: bool,
        place: &Place<'_>,
    ) {
        let honest = self.honest_peer;
        let known = self.messages.contains_key(&(peer, control, mseq));
        assert_eq!(known, !first, "the first sight of a message is told once");
        let m = self.messages.entry((peer, control, mseq)).or_default();
        if first {
            m.total = total_len.into();
            if honest {
                let token = u64::from_le_bytes(envelope[..8].try_into().expect("8 bytes"));
                assert!(envelope[8..].iter().all(|b| *b == 0xee));
                m.token = Some(token);
            }
        } else if honest && !envelope.is_empty() {
            // An empty envelope is that of a message restored from parity.
            assert_eq!(m.token.map(u64::to_le_bytes).as_ref().map(|t| &t[..]), Some(&envelope[..8]));
        }
        assert_eq!(m.total, u64::from(total_len), "a message changed its length");
        if control {
            assert!(first && place.complete, "control messages come whole");
        }
        place.fill(m, honest);
        if place.complete {
            if let Some(token) = m.token {
                assert!(self.received.insert(token), "delivered twice");
            }
            if !control {
                let u = self.unconsumed.entry(peer).or_default();
                *u = (u.0 + 1, u.1 + u64::from(total_len));
            }
        }
    }

    fn parity(&mut self, now: Time, peer: PeerId, key: DataKey, hole: &Hole, payload: &[u8]) {
        let incoming = match key {
            DataKey::Message(mseq) => {
                self.messages.get_mut(&(peer, false, mseq)).expect("parity of a message never seen")
            }
            DataKey::Rndv(handle) => self.rndvs.get_mut(&(peer, handle)).expect("parity of a handle never opened"),
        };
        assert!(!incoming.closed && !incoming.complete, "parity for what is over");
        let (offset, end) = (hole.offset, hole.offset + u64::from(hole.len));
        assert!(payload.len() == usize::from(hole.frag) && hole.len > 0 && end <= incoming.total);
        let mut sum = payload.to_vec();
        let restored = hole.restore(incoming.total, &mut sum, |at, dst| {
            for (at, b) in (at..).zip(dst) {
                // All that is read must be there, or the engine would restore nonsense.
                let there = incoming.reported.has(at) || incoming.restored.has(at);
                assert!(there, "byte {at} is wanted for restoring and missing");
                *b = incoming.token.map_or(0, |token| byte_of(token, at));
            }
            true
        });
        let restored = restored.expect("the hole lies within one fragment of its group");
        if let (true, Some(token)) = (self.honest_peer, incoming.token) {
            assert!((offset..).zip(restored).all(|(at, b)| *b == byte_of(token, at)), "restored another byte");
        }
        incoming.restored.add_missing(offset, end);
        let mut events = Vec::new();
        self.ep.restored(now, peer, key, offset, hole.len.into(), &mut events);
        self.take(now, events, &[]);
    }
}

/// New bytes of something.
struct Place<'a> {
    offset: u64,
    payload: &'a [u8],
    complete: bool,
}

impl Place<'_> {
    fn fill(&self, into: &mut Incoming, honest: bool) {
        let end = self.offset + self.payload.len() as u64;
        assert!(end <= into.total, "bytes past the end");
        assert!(!into.complete, "bytes after the end");
        assert!(into.reported.add(self.offset, end), "a byte was reported twice");
        if let (true, Some(token)) = (honest, into.token) {
            for (i, b) in (self.offset..).zip(self.payload) {
                assert_eq!(*b, byte_of(token, i), "byte {i} of {token} changed on the way");
            }
        }
        into.complete = self.complete;
        assert_eq!(into.missing() == 0, self.complete, "complete means that all is here, and is said then");
    }
}
