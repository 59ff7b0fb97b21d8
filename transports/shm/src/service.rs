//! What happens at an endpoint's sockets: strangers, handshakes, wakings, ends. Each look does a
//! bounded amount of work.

use crate::endpoint::{Event, Shm, drop_dial};
use crate::handshake::{self, Listener, NONCE_LEN, Reason, SIGNED_LEN, Terms};
use crate::mapped::{MEMORY_BYTES, MappedRing, RING_BYTES, map_pair, ring_offset};
use crate::peers::{Link, Peer, PeerIx, State};
use crate::pull::{self, Probe};
use crate::ring::{Consumer, Producer};
use crate::strangers::Stranger;
use crate::sys::{self, Mapping, MemoryError};
use crate::tags::{TAG_LISTENER, TAG_PEER, TAG_PROCESS, TAG_STRANGER};
use crate::why::{NoPull, Why};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Rounds of 16 ready descriptors at a look; the rest waits for the next, which comes at once.
const ROUNDS: usize = 4;
/// Connections taken at a look.
const ACCEPTS: usize = 16;
/// Messages read of a peer's socket at a look: one wakes, more is a peer's idle talk.
const MESSAGES: usize = 4;
/// How often sockets are looked at while a handshake is under way.
const HANDSHAKE_CHECK_NS: u64 = 20_000;
/// While nobody shares memory sockets are looked at less and less often, down to this: a look costs
/// who polls for messages a system call.
const ALONE_CHECK_MAX_NS: u64 = 8_000_000;
/// Each time later by this part. So half a second goes by before looks are as rare as that: where a
/// program begins, its processes meet, and some only once others have.
const ALONE_LATER: u64 = 64;
/// After so many looks for quiet rings one is left to its socket.
const DOZE_LOOKS: u32 = 2;
/// Lines of a page, at one of which a pair's rings begin.
const ORIGINS: u64 = 64;
/// How long no connection is taken after descriptors ran out.
const PAUSE_NS: u64 = 100_000_000;

fn would_block(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Shm {
    /// Looks at all that is ready, and at what has had its time.
    #[cold]
    pub(crate) fn service(&mut self, now_ns: u64) {
        if !self.page.is_ours() {
            self.service_at_ns = u64::MAX;
            return;
        }
        self.counters.socket_checks += 1;
        let mut tags = [(0, false); 16];
        let mut more = false;
        for _ in 0..ROUNDS {
            let n = sys::epoll_ready(&self.wait, &mut tags).unwrap_or(0);
            for (tag, _) in &tags[..n] {
                self.serve(*tag, now_ns);
            }
            more = n == tags.len();
            if !more {
                break;
            }
        }
        self.time_outs(now_ns);
        if now_ns >= self.trim_at_ns {
            self.trim_at_ns = now_ns.saturating_add(self.config.trim_ns);
            self.trim();
        }
        if now_ns >= self.doze_at_ns && self.has_slept {
            self.doze_at_ns = now_ns.saturating_add(self.config.doze_ns);
            self.has_slept = false;
            self.peers.doze(self.config.awake, DOZE_LOOKS);
        }
        self.service_at_ns = if more { 0 } else { now_ns.saturating_add(self.check_ns()) };
    }

    /// Until the next look.
    fn check_ns(&mut self) -> u64 {
        let often = self.config.socket_check_ns;
        if !self.dialling.is_empty() || self.strangers.len() > 0 {
            self.alone_ns = often;
            return HANDSHAKE_CHECK_NS.min(often);
        }
        let more = ALONE_CHECK_MAX_NS.min(self.alone_ns.saturating_add(self.alone_ns / ALONE_LATER));
        self.alone_ns = if self.peers.live.is_empty() { more.max(often) } else { often };
        self.alone_ns
    }

    fn serve(&mut self, tag: u64, now_ns: u64) {
        let number = tag as u32;
        match tag - u64::from(number) {
            TAG_LISTENER => self.accept(now_ns),
            TAG_STRANGER => self.hear_stranger(number as usize),
            TAG_PEER => {
                if let Some(peer) = self.peers.handle(number) {
                    self.hear_peer(peer);
                }
            }
            TAG_PROCESS => {
                // A tag may be of a peer that went in this very look.
                let peer = self.peers.handle(number);
                let link = peer.and_then(|peer| self.peers.get(peer)?.link.as_ref());
                if let (Some(peer), true) = (peer, link.is_some_and(|l| sys::is_over(&l.socket, l.pidfd.as_ref()))) {
                    self.ended(peer);
                }
            }
            _ => {}
        }
    }

    /// The peer's process or connection is at its end: in order if it said so before.
    fn ended(&mut self, peer: PeerIx) {
        let live = self.peers.get(peer).and_then(|peer| peer.live);
        let closed = live.is_some_and(|at| self.peers.live[at].rx.is_closed());
        self.over(peer, if closed { Why::Closed } else { Why::Died });
    }

    fn accept(&mut self, now_ns: u64) {
        for _ in 0..ACCEPTS {
            let socket = match sys::accept(&self.listener) {
                Ok(socket) => socket,
                Err(e)
                    if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)) =>
                {
                    // The connection stays in the queue; to be told of it at once again would keep
                    // a processor busy.
                    self.counters.accept_failures += 1;
                    sys::epoll_remove(&self.wait, &self.listener);
                    self.paused_until_ns = Some(now_ns.saturating_add(PAUSE_NS));
                    return;
                }
                Err(_) => return,
            };
            if sys::credentials(&socket).is_ok_and(|who| who.uid == sys::own_uid()) {
                self.add_stranger(socket, now_ns);
            } else {
                self.counters.refused_other_user += 1;
            }
        }
    }

    fn add_stranger(&mut self, socket: OwnedFd, now_ns: u64) {
        let full = self.strangers.len() >= self.config.max_strangers;
        if let Some(at) = self.strangers.oldest().filter(|_| full) {
            self.drop_stranger(at);
            self.counters.strangers_expired += 1;
        }
        let deadline_ns = now_ns.saturating_add(self.config.handshake_ns);
        let at = self.strangers.put(Stranger { socket, handshake: None, deadline_ns });
        let socket = self.strangers.get(at).map(|stranger| &stranger.socket);
        if socket.is_none_or(|socket| sys::epoll_add(&self.wait, socket, TAG_STRANGER + at as u64).is_err()) {
            self.strangers.take(at);
        }
    }

    fn hear_stranger(&mut self, at: usize) {
        // One byte more than any message has, so that a longer one is found out.
        let mut bytes = [0; SIGNED_LEN + 1];
        let Some(stranger) = self.strangers.get(at) else { return };
        let (n, memory) = match sys::recv(&stranger.socket, &mut bytes) {
            Ok((n, memory)) if n > 0 => (n, memory),
            Err(e) if would_block(&e) => return,
            _ => return self.drop_stranger(at),
        };
        let Some(mut stranger) = self.strangers.take(at) else { return };
        let reason = match stranger.handshake.take() {
            None => match self.greet(&stranger.socket, &bytes[..n]) {
                Ok(handshake) => {
                    stranger.handshake = Some(handshake);
                    return self.strangers.put_back(at, stranger);
                }
                Err(reason) => (reason, 0),
            },
            Some(handshake) => match self.admit(&stranger.socket, &handshake, &bytes[..n], memory) {
                Ok((ix, ready, link)) => return self.admitted(ix, stranger.socket, &ready, link),
                Err(reason) => (reason, handshake.connector()),
            },
        };
        match reason.0 {
            Reason::Key => self.counters.refused_key += 1,
            Reason::Crossed | Reason::Already => {}
            _ => self.counters.refused_other += 1,
        }
        let _ = sys::send(&stranger.socket, &handshake::refuse(reason.0, self.id, reason.1), None);
        sys::epoll_remove(&self.wait, &stranger.socket);
    }

    fn drop_stranger(&mut self, at: usize) {
        if let Some(stranger) = self.strangers.take(at) {
            sys::epoll_remove(&self.wait, &stranger.socket);
        }
    }

    fn greet(&self, socket: &OwnedFd, hello: &[u8]) -> Result<Listener, Reason> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|_| Reason::Full)?;
        let handshake = Listener::new(&self.keys, hello, self.id, &nonce)?;
        sys::send(socket, handshake.challenge(), None).map_err(|_| Reason::Malformed)?;
        Ok(handshake)
    }

    /// Takes a stranger's PROOF and memory: which peer it is, READY for it, and what its link is
    /// made of.
    fn admit(
        &mut self,
        socket: &OwnedFd,
        handshake: &Listener,
        proof: &[u8],
        memory: Option<OwnedFd>,
    ) -> Result<(PeerIx, [u8; SIGNED_LEN], Made), Reason> {
        let (terms, ready) = handshake.proof(&self.keys, proof, &self.own_terms())?;
        let memory = memory.ok_or(Reason::Memory)?;
        let sizes = terms.memory_bytes == MEMORY_BYTES as u64 && terms.ring_bytes == RING_BYTES as u64;
        if !sizes || !sys::is_sealed_memory(&memory, MEMORY_BYTES) {
            return Err(Reason::Memory);
        }
        let id = handshake.connector();
        let ix = self.peers.find(id);
        if let Some(peer) = ix.and_then(|ix| self.peers.get(ix)) {
            if peer.link.is_some() {
                return Err(Reason::Already);
            }
            // Both connect: the connection of the lesser id counts.
            if peer.dial.is_some() && self.id < id {
                return Err(Reason::Crossed);
            }
        } else if self.peers.len() >= self.config.max_peers {
            return Err(Reason::Full);
        }
        let (mapping, [rx, tx]) = map_pair(&memory).map_err(|_| Reason::Full)?;
        let made = self.make_link(socket, &terms, mapping, tx, rx, 1);
        let ix = ix.unwrap_or_else(|| self.peers.add(id, 0));
        Ok((ix, ready, made))
    }

    fn admitted(&mut self, ix: PeerIx, socket: OwnedFd, ready: &[u8], made: Made) {
        let sent = sys::send(&socket, ready, None);
        self.come_up(ix, socket, made);
        if sent.is_err() {
            self.over(ix, Why::Died);
        }
    }

    /// Who is at the other end, and whether its memory can be read.
    fn make_link(
        &self,
        socket: &OwnedFd,
        terms: &Terms,
        mapping: Arc<Mapping>,
        tx: MappedRing,
        rx: MappedRing,
        tx_ring: usize,
    ) -> Made {
        let pid = sys::credentials(socket).map_or(0, |who| who.pid);
        let pull = if self.config.pull { pull::probe(pid, terms) } else { Err(NoPull::Off) };
        Made { pidfd: sys::peer_pidfd(socket, pid).ok(), pull, mapping, tx, rx, tx_ring }
    }

    fn come_up(&mut self, ix: PeerIx, socket: OwnedFd, made: Made) {
        let Made { pidfd, pull, mapping, tx, rx, tx_ring } = made;
        let added = sys::epoll_add(&self.wait, &socket, TAG_PEER + u64::from(ix.slot));
        // The wait set has it as a stranger's, or as a dialled one's, perhaps already: the tag is
        // put right.
        let added = added.or_else(|_| {
            sys::epoll_remove(&self.wait, &socket);
            sys::epoll_add(&self.wait, &socket, TAG_PEER + u64::from(ix.slot))
        });
        if let Some(pidfd) = &pidfd {
            // Without it the socket alone tells the end.
            let _ = sys::epoll_add(&self.wait, pidfd, TAG_PROCESS + u64::from(ix.slot));
        }
        let Some(peer) = self.peers.get_mut(ix) else { return };
        let id = peer.id;
        drop_dial(&self.wait, peer);
        peer.state = State::Up;
        // Looking at many peers whose next records all lie at one place of a page would use one set
        // of the cache only.
        let origin = ((self.id ^ id) % ORIGINS) as usize;
        let tx = Producer::new(tx, origin);
        let link = Link {
            socket,
            pidfd,
            pull,
            tx,
            mapping,
            tx_ring,
            tx_records: 0,
            tx_seen: 0,
            trimmed: false,
            dormant: false,
        };
        peer.link = Some(Box::new(link));
        self.peers.set_live(ix, Consumer::new(rx, origin));
        self.dialling.retain(|other| *other != ix);
        self.counters.peers_up += 1;
        self.events.push_back(Event::Up { peer: ix, id });
        if added.is_err() {
            self.over(ix, Why::NoDescriptors);
        }
    }

    /// A peer's socket has something: a step of our handshake, a waking, or its end.
    fn hear_peer(&mut self, ix: PeerIx) {
        match self.peers.get(ix) {
            Some(Peer { dial: Some(_), .. }) => self.hear_dialled(ix),
            Some(Peer { state: State::Up, link: Some(_), .. }) => self.hear_up(ix),
            _ => {}
        }
    }

    fn hear_up(&mut self, ix: PeerIx) {
        for _ in 0..MESSAGES {
            let Some(link) = self.peers.get(ix).and_then(|peer| peer.link.as_ref()) else { return };
            match sys::recv_plain(&link.socket, &mut [0; 8]) {
                Ok(n) if n > 0 => {
                    self.counters.rx_wakes += 1;
                    self.peers.rouse(ix);
                }
                Err(e) if would_block(&e) => return,
                _ => return self.ended(ix),
            }
        }
    }

    /// Connects, if the listener's queue has room by now, and says HELLO.
    pub(crate) fn redial(&mut self, ix: PeerIx) {
        let Some(Peer { id, dial: Some(dial), .. }) = self.peers.get_mut(ix) else { return };
        if dial.socket.is_some() {
            return;
        }
        let why = match sys::connect(&self.keys.socket_name(*id)) {
            Ok(socket) => {
                let same = sys::credentials(&socket).is_ok_and(|who| who.uid == sys::own_uid());
                let said = sys::send(&socket, dial.handshake.hello(), None);
                let added = sys::epoll_add(&self.wait, &socket, TAG_PEER + u64::from(ix.slot));
                dial.socket = Some(socket);
                match (same, said.is_ok() && added.is_ok()) {
                    (true, true) => return,
                    (false, _) => Why::OtherUser,
                    _ => Why::BadHandshake,
                }
            }
            Err(e) if would_block(&e) => return,
            Err(e) => match e.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE) => Why::NoDescriptors,
                Some(libc::ECONNREFUSED) => Why::Elsewhere,
                Some(libc::EPERM | libc::EACCES) => Why::OtherUser,
                _ => Why::BadHandshake,
            },
        };
        self.over(ix, why);
    }

    fn hear_dialled(&mut self, ix: PeerIx) {
        let mut bytes = [0; SIGNED_LEN + 1];
        let Some(Peer { dial: Some(dial), .. }) = self.peers.get_mut(ix) else { return };
        let Some(socket) = &dial.socket else { return };
        let n = match sys::recv_plain(socket, &mut bytes) {
            Ok(n) if n > 0 => n,
            Err(e) if would_block(&e) => return,
            // Closed without a word: what a listener of another user does, but its user was seen
            // before.
            _ => return self.over(ix, Why::BadHandshake),
        };
        let step =
            if dial.handshake.has_proved() { self.take_ready(ix, &bytes[..n]) } else { self.prove(ix, &bytes[..n]) };
        match step {
            Ok(()) => {}
            Err(Some(why)) => self.over(ix, why),
            // The peer's own connection is to come; until it does, the handshake's time runs.
            Err(None) => {
                if let Some(peer) = self.peers.get_mut(ix) {
                    drop_dial(&self.wait, peer);
                }
            }
        }
    }

    /// CHALLENGE has come: makes the memory and sends PROOF with it. The error is why it is over,
    /// none where the peer connects itself.
    fn prove(&mut self, ix: PeerIx, challenge: &[u8]) -> Result<(), Option<Why>> {
        let terms = self.own_terms();
        let Some(Peer { dial: Some(dial), .. }) = self.peers.get_mut(ix) else { return Ok(()) };
        let proof = dial.handshake.challenge(&self.keys, challenge, &terms).map_err(refused)?;
        // Not before the listener has proved itself: a stranger makes us allocate nothing.
        let memory = sys::sealed_memory(MEMORY_BYTES).map_err(|e| match e {
            MemoryError::Make(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => Why::NoDescriptors,
            MemoryError::Make(_) => Why::NoMemory,
            MemoryError::FileSize => Why::FileSize,
            MemoryError::Seal => Why::NoSeals,
        })?;
        dial.memory = Some(map_pair(&memory).map_err(|_| Why::NoMemory)?);
        let socket = dial.socket.as_ref().ok_or(Why::BadHandshake)?;
        sys::send(socket, &proof, Some(&memory)).map_err(|_| Some(Why::BadHandshake))
    }

    fn take_ready(&mut self, ix: PeerIx, ready: &[u8]) -> Result<(), Option<Why>> {
        let Some(Peer { dial: Some(dial), .. }) = self.peers.get_mut(ix) else { return Ok(()) };
        let terms = dial.handshake.ready(&self.keys, ready).map_err(refused)?;
        let (Some(socket), Some((mapping, [tx, rx]))) = (dial.socket.take(), dial.memory.take()) else {
            return Err(Some(Why::BadHandshake));
        };
        let made = self.make_link(&socket, &terms, mapping, tx, rx, 0);
        self.come_up(ix, socket, made);
        Ok(())
    }

    /// When a peer that is dialled wants to be looked at.
    pub(crate) fn dial_timeout_ns(&self, peer: &Peer) -> u64 {
        let waits = peer.dial.as_ref().is_some_and(|dial| dial.socket.is_none());
        if waits { peer.deadline_ns.min(self.service_at_ns) } else { peer.deadline_ns }
    }

    fn time_outs(&mut self, now_ns: u64) {
        for ix in self.dialling.clone() {
            if self.peers.get(ix).is_some_and(|peer| now_ns >= peer.deadline_ns) {
                self.over(ix, Why::TimedOut);
            } else {
                self.redial(ix);
            }
        }
        for at in 0..self.strangers.places() {
            if self.strangers.get(at).is_some_and(|stranger| now_ns >= stranger.deadline_ns) {
                self.drop_stranger(at);
                self.counters.strangers_expired += 1;
            }
        }
        if self.paused_until_ns.is_some_and(|until| now_ns >= until) {
            self.paused_until_ns = None;
            let _ = sys::epoll_add(&self.wait, &self.listener, TAG_LISTENER);
        }
    }

    /// Gives back the pages of rings on which nothing was sent since the last look and all was
    /// read.
    fn trim(&mut self) {
        let page = sys::page_bytes();
        for ix in self.peers.handles() {
            let Some(Peer { state: State::Up, link: Some(link), .. }) = self.peers.get_mut(ix) else { continue };
            if link.tx_seen != link.tx_records {
                (link.tx_seen, link.trimmed) = (link.tx_records, false);
                continue;
            }
            if link.trimmed {
                continue;
            }
            match link.tx.unused(page) {
                Ok(Some(ranges)) => {
                    let at = ring_offset(link.tx_ring);
                    for range in ranges {
                        // Where the system cannot, the pages stay.
                        let _ = link.mapping.punch(at + range.start..at + range.end);
                    }
                    link.trimmed = true;
                    self.counters.trims += 1;
                }
                Ok(None) => {}
                Err(_) => self.corrupt(ix),
            }
        }
    }
}

/// What an association is made of, beside its socket.
struct Made {
    pidfd: Option<OwnedFd>,
    pull: Result<Probe, NoPull>,
    mapping: Arc<Mapping>,
    tx: MappedRing,
    rx: MappedRing,
    tx_ring: usize,
}

/// What a refusal means to who connects; none if the peer's own connection is to come.
fn refused(reason: Reason) -> Option<Why> {
    Some(match reason {
        Reason::Crossed => return None,
        Reason::Version => Why::OtherVersion,
        Reason::Key => Why::WrongKey,
        Reason::Memory => Why::BadMemory,
        Reason::Full => Why::TooManyPeers,
        Reason::Already => Why::Already,
        Reason::Malformed => Why::BadHandshake,
    })
}
