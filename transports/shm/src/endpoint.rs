//! One endpoint: what its owner calls. What happens at its sockets is in `service`.

use crate::counters::ShmCounters;
use crate::handshake::{Connector, Keys, NONCE_LEN, Pair, Terms};
use crate::mapped::{MEMORY_BYTES, MappedRing, OwnPage, RING_BYTES};
use crate::peers::{Dial, Link, Peer, PeerIx, Peers, State};
use crate::pull::{self, NotRead};
use crate::ring::{Corrupt, NoRoom, Record, Reservation};
use crate::strangers::Strangers;
use crate::sys::{self, PIECES_MAX, RemotePiece};
use crate::tags::TAG_LISTENER;
use crate::why::{NoPull, OpenError, Why};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

/// Connections that wait to be accepted, at most. Beyond it connectors try again.
const BACKLOG: i32 = 128;

/// Rings of those left to their sockets that are looked at where the others have nothing.
const DORMANT_LOOKS: usize = 4;

/// What an endpoint may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Peers at a time. Each costs two descriptors and half a MiB of address space.
    pub max_peers: usize,
    /// Connections that have not proved themselves, at a time.
    pub max_strangers: usize,
    /// How long a handshake may take, in nanoseconds.
    pub handshake_ns: u64,
    /// How often sockets are looked at while nobody sleeps, in nanoseconds.
    pub socket_check_ns: u64,
    /// A ring on which nothing was sent for so long gives its pages back, in nanoseconds.
    pub trim_ns: u64,
    /// So many peers' rings are looked at though nothing comes by them. Of more, those that are
    /// quiet are left to their sockets.
    pub awake: usize,
    /// How often quiet ones are looked for by who sleeps now and then, in nanoseconds.
    pub doze_ns: u64,
    /// Whether peers' memory is read directly where that is possible.
    pub pull: bool,
}

impl Default for Config {
    /// The reasons are in spec/shm.md 8.
    fn default() -> Config {
        Config {
            max_peers: 4096,
            max_strangers: 64,
            handshake_ns: 2_000_000_000,
            socket_check_ns: 1_000_000,
            trim_ns: 1_000_000_000,
            awake: 8,
            doze_ns: 5_000_000,
            pull: true,
        }
    }
}

/// What happened to an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is up. `id` is the peer's endpoint id: it may be one that connected by itself.
    Up {
        /// The peer.
        peer: PeerIx,
        /// Its endpoint id.
        id: u64,
    },
    /// It did not come up, or has ended. Read what is left, then [`Shm::forget`] it.
    Over {
        /// The peer.
        peer: PeerIx,
        /// Why.
        why: Why,
    },
}

/// Why a peer cannot be connected to at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The id is one's own.
    #[error("an endpoint does not share memory with itself")]
    Own,
    /// [`Config::max_peers`].
    #[error("as many peers as this endpoint takes")]
    TooManyPeers,
    /// This is a child made by fork; the endpoint is its parent's.
    #[error("the endpoint belongs to the process that opened it, not to its forked child")]
    Forked,
}

/// Why a record cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No room now; after the peer has read there is.
    #[error("the ring is full")]
    Full,
    /// No room ever, see [`Shm::MAX_PAYLOAD`], or a kind above [`KIND_MAX`](crate::ring::KIND_MAX).
    #[error("no such record fits the ring")]
    TooLong,
    /// Not up yet.
    #[error("the association is not up yet")]
    NotUp,
    /// Over, or never was.
    #[error("the association is over")]
    Over,
    /// This is a child made by fork.
    #[error("the endpoint belongs to the process that opened it, not to its forked child")]
    Forked,
}

/// Why nothing can be received of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// No such peer, or never up.
    #[error("there is no association")]
    NoAssociation,
    /// The peer wrote nonsense; the association is over.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// This is a child made by fork.
    #[error("the endpoint belongs to the process that opened it, not to its forked child")]
    Forked,
}

/// One endpoint and its peers on this host.
pub struct Shm {
    pub(crate) id: u64,
    pub(crate) config: Config,
    pub(crate) keys: Keys,
    pub(crate) page: OwnPage,
    pub(crate) listener: OwnedFd,
    pub(crate) wait: OwnedFd,
    pub(crate) peers: Peers,
    pub(crate) strangers: Strangers,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: ShmCounters,
    /// When sockets are looked at next; 0 for at once.
    pub(crate) service_at_ns: u64,
    /// How long after the last look, while nobody shares memory.
    pub(crate) alone_ns: u64,
    pub(crate) trim_at_ns: u64,
    /// When quiet rings are looked for, if anybody has slept here since the last time; and which of
    /// those left to their sockets is looked at next.
    pub(crate) doze_at_ns: u64,
    pub(crate) has_slept: bool,
    pub(crate) next_dormant: usize,
    /// Until when no connection is taken, for want of descriptors.
    pub(crate) paused_until_ns: Option<u64>,
    /// Peers whose handshake is ours to drive.
    pub(crate) dialling: Vec<PeerIx>,
    next_live: usize,
    pieces: Vec<RemotePiece>,
}

impl std::fmt::Debug for Shm {
    /// Without the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shm").field("id", &self.id).field("peers", &self.peers.len()).finish_non_exhaustive()
    }
}

impl Shm {
    /// The longest payload of a record.
    pub const MAX_PAYLOAD: usize = RING_BYTES / 4 - 8;

    /// Listens for peers at the name of `endpoint_id`, which is random and used once.
    ///
    /// # Errors
    /// See [`OpenError`]: without it this endpoint uses other carriers.
    pub fn open(endpoint_id: u64, job_key: &[u8; 32], config: Config) -> Result<Shm, OpenError> {
        let system = |call| move |cause| OpenError::System { call, cause };
        let keys = Keys::derive(job_key);
        let mut probe = [0; 8];
        getrandom::fill(&mut probe).map_err(|_| OpenError::Random)?;
        let page = OwnPage::new(u64::from_ne_bytes(probe)).map_err(system("madvise(MADV_WIPEONFORK)"))?;
        let listener = sys::listen(&keys.socket_name(endpoint_id), BACKLOG).map_err(|cause| match cause.kind() {
            io::ErrorKind::AddrInUse => OpenError::NameTaken,
            _ => OpenError::System { call: "listening at an abstract Unix socket", cause },
        })?;
        let wait = sys::epoll().map_err(system("epoll_create1"))?;
        sys::epoll_add(&wait, &listener, TAG_LISTENER).map_err(system("epoll_ctl"))?;
        Ok(Shm {
            id: endpoint_id,
            config,
            keys,
            page,
            listener,
            wait,
            peers: Peers::default(),
            strangers: Strangers::default(),
            events: VecDeque::new(),
            counters: ShmCounters::default(),
            service_at_ns: 0,
            alone_ns: 0,
            trim_at_ns: 0,
            doze_at_ns: 0,
            has_slept: false,
            next_dormant: 0,
            paused_until_ns: None,
            dialling: Vec::new(),
            next_live: 0,
            pieces: Vec::new(),
        })
    }

    /// Begins an association, or finds the one there is. It comes up, or does not, by
    /// [`poll`](Shm::poll). One that is over and had come up is found too, until it is forgotten;
    /// one that had not is tried again.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(&mut self, peer_id: u64, now_ns: u64) -> Result<PeerIx, ConnectError> {
        if !self.page.is_ours() {
            return Err(ConnectError::Forked);
        }
        if peer_id == self.id {
            return Err(ConnectError::Own);
        }
        let deadline_ns = now_ns.saturating_add(self.config.handshake_ns);
        let ix = match self.peers.find(peer_id) {
            Some(ix) => {
                let Some(peer) = self.peers.get_mut(ix) else { return Err(ConnectError::Own) };
                if !matches!(peer.state, State::Over(_)) || peer.link.is_some() {
                    return Ok(ix);
                }
                (peer.state, peer.deadline_ns) = (State::Connecting, deadline_ns);
                ix
            }
            None if self.peers.len() >= self.config.max_peers => return Err(ConnectError::TooManyPeers),
            None => self.peers.add(peer_id, deadline_ns),
        };
        self.dial(ix, peer_id);
        Ok(ix)
    }

    fn dial(&mut self, ix: PeerIx, peer_id: u64) {
        let mut nonce = [0; NONCE_LEN];
        if getrandom::fill(&mut nonce).is_err() {
            return self.over(ix, Why::BadHandshake);
        }
        let handshake = Connector::new(Pair { connector: self.id, listener: peer_id }, &nonce);
        if let Some(peer) = self.peers.get_mut(ix) {
            peer.dial = Some(Dial { socket: None, handshake, memory: None });
        }
        self.dialling.push(ix);
        self.redial(ix);
        self.service_at_ns = 0;
    }

    /// The peers there are.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerIx> {
        self.peers.handles()
    }

    /// Where the association with a peer stands; none for one that was forgotten.
    #[must_use]
    pub fn state(&self, peer: PeerIx) -> Option<State> {
        self.peers.get(peer).map(|peer| peer.state)
    }

    /// The endpoint id of a peer.
    #[must_use]
    pub fn peer_id(&self, peer: PeerIx) -> Option<u64> {
        self.peers.get(peer).map(|peer| peer.id)
    }

    /// Whether the peer's memory can be read directly, and if not why; none before it is up.
    #[must_use]
    pub fn can_pull(&self, peer: PeerIx) -> Option<Result<(), NoPull>> {
        self.peers.get(peer)?.link.as_ref().map(|link| link.pull.map(|_| ()))
    }

    /// Counts since the endpoint was opened.
    #[must_use]
    pub fn counters(&self) -> &ShmCounters {
        &self.counters
    }

    #[inline]
    fn link(&mut self, peer: PeerIx) -> Result<&mut Link, SendError> {
        if !self.page.is_ours() {
            return Err(SendError::Forked);
        }
        match self.peers.get_mut(peer) {
            Some(Peer { state: State::Up, link: Some(link), .. }) => Ok(link),
            Some(Peer { state: State::Connecting, .. }) => Err(SendError::NotUp),
            _ => Err(SendError::Over),
        }
    }

    /// Room for a record of `len` bytes in the peer's ring, to be filled in place and committed,
    /// then shown by [`publish`](Shm::publish).
    ///
    /// # Errors
    /// See [`SendError`].
    #[inline]
    pub fn reserve(&mut self, peer: PeerIx, kind: u16, len: usize) -> Result<Reservation<'_, MappedRing>, SendError> {
        // A reservation that is handed out borrows the ring, so what went wrong is found out
        // before.
        let link = self.link(peer)?;
        let (room, dormant) = (link.tx.make_room(kind, len), link.dormant);
        if dormant {
            // It may answer, or make room.
            self.peers.rouse(peer);
        }
        match room {
            Ok(()) => {}
            Err(NoRoom::Full) => {
                self.counters.tx_full += 1;
                return Err(SendError::Full);
            }
            Err(NoRoom::TooLong) => return Err(SendError::TooLong),
            Err(NoRoom::Corrupt(_)) => {
                self.corrupt(peer);
                return Err(SendError::Over);
            }
        }
        self.counters.tx_records += 1;
        self.counters.tx_bytes += len as u64;
        // (That it is up was seen.)
        let Some(Peer { link: Some(link), .. }) = self.peers.get_mut(peer) else { return Err(SendError::Over) };
        link.tx_records += 1;
        Ok(link.tx.reservation(kind, len))
    }

    /// Shows the peer all records committed for it, and wakes it if it sleeps: no system call if it
    /// does not.
    ///
    /// # Errors
    /// See [`SendError`].
    #[inline]
    pub fn publish(&mut self, peer: PeerIx) -> Result<(), SendError> {
        if self.link(peer)?.tx.publish() {
            self.wake(peer);
        }
        Ok(())
    }

    /// Sends one record gathered from `pieces` and publishes it.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(&mut self, peer: PeerIx, kind: u16, pieces: &[IoSlice<'_>]) -> Result<(), SendError> {
        let len = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.len()));
        let mut room = self.reserve(peer, kind, len)?;
        let mut at = 0;
        for piece in pieces {
            room.write(at, piece);
            at += piece.len();
        }
        room.commit();
        self.publish(peer)
    }

    /// Where what was committed for the peer ends, in bytes since the association began: a mark to
    /// compare with [`read_there`](Shm::read_there).
    ///
    /// # Errors
    /// See [`SendError`].
    #[inline]
    pub fn tail(&mut self, peer: PeerIx) -> Result<u64, SendError> {
        Ok(self.link(peer)?.tx.tail())
    }

    /// How far the peer has read, in bytes since the association began: records that end there or
    /// before were taken. Looks at a cache line that the peer writes.
    ///
    /// # Errors
    /// See [`SendError`].
    #[inline]
    pub fn read_there(&mut self, peer: PeerIx) -> Result<u64, SendError> {
        if !self.page.is_ours() {
            return Err(SendError::Forked);
        }
        // Also of a peer that is gone: what it read before has arrived.
        let Some(Peer { link: Some(link), .. }) = self.peers.get_mut(peer) else { return Err(SendError::Over) };
        match link.tx.read_there() {
            Ok(position) => Ok(position),
            Err(_) => {
                self.corrupt(peer);
                Err(SendError::Over)
            }
        }
    }

    /// Wakes the peer. If its socket is full of such messages it will wake all the same; if it is
    /// gone, that is seen elsewhere.
    #[cold]
    fn wake(&mut self, peer: PeerIx) {
        if let Ok(link) = self.link(peer) {
            let _ = sys::send(&link.socket, b"w", None);
            self.counters.tx_wakes += 1;
        }
    }

    /// The next peer of which something can be received, in turn; none if nothing is found. Looks
    /// at one cache line of the ring of each peer that was active of late, and if there is nothing
    /// at those of some others; what came of these is found by [`poll`](Shm::poll) at the latest.
    #[inline]
    pub fn next_ready(&mut self) -> Option<PeerIx> {
        if !self.page.is_ours() {
            return None;
        }
        let first = if self.next_live < self.peers.awake { self.next_live } else { 0 };
        let at = match self.peers.live.get(first) {
            Some(live) if live.is_ready() => first,
            Some(_) if self.peers.live.len() > 1 => self.ready_behind(first)?,
            _ => return None,
        };
        self.next_live = at + 1;
        self.peers.handle(self.peers.live[at].slot)
    }

    /// The next ring that has something, of those behind this one in turn; else one of those left
    /// to their sockets.
    fn ready_behind(&mut self, first: usize) -> Option<usize> {
        let awake = self.peers.awake;
        let mut others = (first + 1..awake).chain(0..first.min(awake));
        let found = others.find(|at| self.peers.live[*at].is_ready());
        if found.is_some() || awake == self.peers.live.len() {
            return found;
        }
        self.peers.look_at_dormant(&mut self.next_dormant, DORMANT_LOOKS)
    }

    /// From now on, or no more, what comes of this peer is left where it is: nobody is told of it,
    /// nor kept from sleeping by it. Its end is told as ever.
    pub fn hold(&mut self, peer: PeerIx, held: bool) {
        if let Some(at) = self.peers.get(peer).and_then(|peer| peer.live) {
            self.peers.live[at].held = held;
        }
    }

    /// Whether [`try_recv`](Shm::try_recv) has something to find: a record, nonsense, or a peer to
    /// be woken for the room that was made. One look at a cache line; false is certain, but for
    /// what the peer publishes meanwhile.
    #[inline]
    #[must_use]
    pub fn has_more(&self, peer: PeerIx) -> bool {
        self.page.is_ours()
            && self.peers.get(peer).and_then(|peer| peer.live).is_some_and(|at| self.peers.live[at].rx.has_news())
    }

    /// The peer's next record, if it has published one. Call it until there is none: only then is a
    /// peer woken that waits for room.
    ///
    /// # Errors
    /// See [`RecvError`].
    #[inline]
    pub fn try_recv(&mut self, peer: PeerIx) -> Result<Option<Record<'_, MappedRing>>, RecvError> {
        if !self.page.is_ours() {
            return Err(RecvError::Forked);
        }
        let at = self.peers.get(peer).and_then(|peer| peer.live).ok_or(RecvError::NoAssociation)?;
        let rx = &mut self.peers.live[at].rx;
        let found = rx.find();
        if rx.take_wake() {
            self.wake(peer);
        }
        match found {
            Ok(Some(found)) => {
                let record = self.peers.live[at].rx.take(found);
                self.counters.rx_records += 1;
                self.counters.rx_bytes += record.len() as u64;
                Ok(Some(record))
            }
            Ok(None) => Ok(None),
            Err(cause) => {
                self.corrupt(peer);
                Err(cause.into())
            }
        }
    }

    /// Reads from the peer's memory into ours: the remote pieces in their order fill the local
    /// ones. Returns how many bytes; fewer than asked where a piece of the peer's is not there. The
    /// addresses are the peer's word, and what they lead to is the peer's loss.
    ///
    /// # Errors
    /// `Unsupported` if [`can_pull`](Shm::can_pull) says no, `ConnectionReset` if the peer ended
    /// meanwhile (what was read is not to be trusted then), else the system's, which are the
    /// sender's fault.
    pub fn pull(&mut self, peer: PeerIx, remote: &[RemotePiece], local: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        // SAFETY: an IoSliceMut is an iovec (its documentation says so) of memory we may write.
        unsafe { self.pull_into(peer, remote, &*(std::ptr::from_mut(local) as *const [libc::iovec])) }
    }

    /// As [`pull`](Shm::pull), into memory of which there may be no reference: pieces may overlap,
    /// and others may use them.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// Every local piece may be written.
    pub unsafe fn pull_into(
        &mut self,
        peer: PeerIx,
        remote: &[RemotePiece],
        local: &[libc::iovec],
    ) -> io::Result<usize> {
        let mut pieces = std::mem::take(&mut self.pieces);
        // SAFETY: passed on from the caller.
        let result = unsafe { self.pull_by(peer, remote, local, &mut pieces) };
        self.pieces = pieces;
        result
    }

    /// # Safety
    /// Every local piece may be written.
    unsafe fn pull_by(
        &mut self,
        peer: PeerIx,
        remote: &[RemotePiece],
        local: &[libc::iovec],
        pieces: &mut Vec<RemotePiece>,
    ) -> io::Result<usize> {
        let link = self.link(peer).map_err(|_| io::ErrorKind::ConnectionReset)?;
        let probe = link.pull.map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why))?;
        let named = remote.iter().copied().filter(|piece| piece.len > 0).take(PIECES_MAX - 1);
        // SAFETY: passed on from the caller.
        let read = unsafe { pull::read(probe, named, local, pieces) };
        // A peer that closes says so before it lets go of its memory: seen after the read, that it
        // has not said so covers the read.
        fence(Ordering::Acquire);
        let live = self.peers.get(peer).and_then(|peer| peer.live);
        let closed = live.is_none_or(|at| self.peers.live[at].rx.is_closed());
        match read {
            Ok(n) if !closed => {
                self.counters.pulls += 1;
                self.counters.pulled_bytes += n as u64;
                Ok(n)
            }
            Err(NotRead::System(cause)) if !closed => Err(cause),
            _ => {
                self.service_at_ns = 0;
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
    }

    /// Drives handshakes, notices ends, and appends what happened to `events`. Without system calls
    /// most of the time.
    #[inline]
    pub fn poll(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        if self.is_due(now_ns) {
            self.service(now_ns);
        }
        if !self.events.is_empty() {
            events.extend(self.events.drain(..));
        }
    }

    /// Whether [`poll`](Shm::poll) looks at the sockets at this time: then
    /// [`next_ready`](Shm::next_ready) may find afterwards what it did not see before.
    #[must_use]
    #[inline]
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.service_at_ns
    }

    /// Whether [`poll`](Shm::poll) has events to tell that it knows of already. What is still to be
    /// found out by it is not counted.
    #[must_use]
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Readable when there is something to [`poll`](Shm::poll) for, or somebody woke this endpoint.
    /// For a wait set of the caller's.
    #[must_use]
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.wait.as_fd()
    }

    /// Says to all peers that this endpoint is about to sleep on [`wait_fd`](Shm::wait_fd). False
    /// if there is something to do first: records to receive, room where there was none, an event.
    /// After true sleep, no longer than [`next_timeout_ns`](Shm::next_timeout_ns) says, then
    /// [`cancel_sleep`](Shm::cancel_sleep).
    #[must_use]
    pub fn prepare_sleep(&mut self) -> bool {
        if !self.page.is_ours() {
            return true;
        }
        let may = self.events.is_empty() && (0..self.peers.awake).all(|at| self.prepare_peer(at));
        if !may {
            self.cancel_sleep();
        }
        self.has_slept |= may;
        may
    }

    /// As [`prepare_sleep`](Shm::prepare_sleep), for the ring at `at`.
    fn prepare_peer(&mut self, at: usize) -> bool {
        let Some(peer) = self.peers.handle(self.peers.live[at].slot) else { return true };
        let wakes = self.peers.live[at].rx.take_wake();
        let published = self.publish(peer);
        if wakes {
            self.wake(peer);
        }
        if published.is_err() {
            // Over: nothing comes any more, and the socket has said so.
            return !self.peers.live[at].is_ready();
        }
        if !self.peers.live[at].held && !self.peers.live[at].rx.prepare_sleep() {
            let rx = &self.peers.live[at].rx;
            if rx.is_closed() && !rx.has_record() {
                // It has said so, whatever its socket does.
                self.over(peer, Why::Closed);
            }
            return false;
        }
        match self.link(peer).map(|link| link.tx.prepare_sleep()) {
            Ok(Ok(may)) => may,
            Ok(Err(_)) => {
                self.corrupt(peer);
                false
            }
            Err(_) => true,
        }
    }

    /// This endpoint looks again: peers need not wake it. Where nobody shares memory or is about
    /// to, what woke it was hardly here: [`looks_soon`](Shm::looks_soon) if it was nowhere else.
    pub fn cancel_sleep(&mut self) {
        if !self.page.is_ours() {
            return;
        }
        if !self.peers.live.is_empty() || !self.dialling.is_empty() || self.strangers.len() > 0 {
            self.service_at_ns = 0;
        }
        for at in 0..self.peers.awake {
            self.peers.live[at].rx.cancel_sleep();
            if let Some(Ok(link)) = self.peers.handle(self.peers.live[at].slot).map(|peer| self.link(peer)) {
                link.tx.cancel_sleep();
            }
        }
    }

    /// The next [`poll`](Shm::poll) looks at the sockets: what is ready there would end each sleep
    /// at once.
    pub fn looks_soon(&mut self) {
        if self.page.is_ours() {
            self.service_at_ns = 0;
        }
    }

    /// Ends an association in order: the peer reads what was sent, then hears of the end. What it
    /// sent can still be read here.
    pub fn close(&mut self, peer: PeerIx) {
        if self.page.is_ours() {
            self.over(peer, Why::Closed);
        }
    }

    /// Gives up a peer with everything; ends the association if it is up. Its handle leads nowhere
    /// from now on.
    pub fn forget(&mut self, peer: PeerIx) {
        if self.page.is_ours() {
            self.over(peer, Why::Closed);
            self.events.retain(
                |event| !matches!(event, Event::Over { peer: of, .. } | Event::Up { peer: of, .. } if *of == peer),
            );
            self.peers.remove(peer);
        }
    }

    /// The association is over because of what the peer wrote: nothing more is read of it.
    #[cold]
    pub(crate) fn corrupt(&mut self, peer: PeerIx) {
        self.over(peer, Why::Corrupt);
        self.peers.unlive(peer);
    }

    /// Ends an association, or an attempt, once.
    pub(crate) fn over(&mut self, ix: PeerIx, why: Why) {
        let Some(peer) = self.peers.get_mut(ix) else { return };
        if matches!(peer.state, State::Over(_)) {
            return;
        }
        peer.state = State::Over(why);
        drop_dial(&self.wait, peer);
        if let Some(link) = &mut peer.link {
            // The end of the connection wakes the peer.
            let _ = link.tx.close();
            for fd in [Some(&link.socket), link.pidfd.as_ref()].into_iter().flatten() {
                sys::epoll_remove(&self.wait, fd);
            }
            sys::shutdown(&link.socket);
            self.counters.peers_over += 1;
        }
        self.dialling.retain(|other| *other != ix);
        self.events.push_back(Event::Over { peer: ix, why });
    }

    /// What this side tells of itself.
    pub(crate) fn own_terms(&self) -> Terms {
        let (probe_address, probe_value) = self.page.probe();
        Terms { probe_address, probe_value, memory_bytes: MEMORY_BYTES as u64, ring_bytes: RING_BYTES as u64 }
    }

    /// When [`poll`](Shm::poll) wants to be called at the latest, in nanoseconds; none if only
    /// descriptors matter.
    #[must_use]
    pub fn next_timeout_ns(&self) -> Option<u64> {
        let dials = self.dialling.iter().filter_map(|ix| self.peers.get(*ix)).map(|peer| self.dial_timeout_ns(peer));
        dials.chain(self.strangers.next_timeout_ns()).chain(self.paused_until_ns).min()
    }
}

/// Gives up a connection that is being made, with its memory. Closing does not take it out of the
/// wait set where a forked child has a copy.
pub(crate) fn drop_dial(wait: &OwnedFd, peer: &mut Peer) {
    if let Some(socket) = peer.dial.take().and_then(|dial| dial.socket) {
        sys::epoll_remove(wait, &socket);
    }
}

impl Drop for Shm {
    /// Closes every association in order. In a forked child only its copies go.
    fn drop(&mut self) {
        if self.page.is_ours() {
            for peer in self.peers.handles() {
                self.over(peer, Why::Closed);
            }
        }
    }
}
