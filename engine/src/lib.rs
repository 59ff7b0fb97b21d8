//! One endpoint of a parallel job: drives the protocol and the matcher over a transport, owns
//! completion queues, memory pools, the watchdog thread and the counters.
//!
//! A face (libfabric, BSP, ...) calls [`Endpoint`]; which transport carries the bytes it does not
//! see. Progress (design, section 5): the caller's thread makes it when it polls; if nobody polls
//! for a while and something waits, the watchdog thread steps in, so acknowledgements, grants and
//! rendezvous go on while the program computes.

mod api;
mod armed;
#[cfg(feature = "bare")]
pub mod bare;
mod broken;
mod bulk_connections;
mod clock;
mod config;
mod core;
mod counters;
mod device;
mod diagnostics;
mod event;
mod files;
mod forked;
mod group;
mod live;
mod lock;
mod memory;
mod open;
mod policy;
mod polling;
mod processor;
mod reading;
mod records;
mod sctp;
mod sending;
mod shm;
mod socket;
mod stat;
mod state;
mod team;
mod telling;
mod trace;
mod traffic;
mod waiting;
mod watch;
mod watchdog;
pub mod xdp;

pub use api::*;
pub use broken::{after_panic, keep_panics};
pub use config::{BulkUse, CarrierUse, EcnUse, EngineConfig, Level, SctpControl, SettingNames, XdpUse};
pub use counters::{Carried, EngineCounters, OwnCounters};
pub use diagnostics::{Diagnostic, Diagnostics, silent};
pub use event::EventFd;
pub use group::Group;
pub use lock::{Guard, Lock};
pub use open::{job_key, key_fingerprint};
pub use policy::{shares_memory, takes_bulk};
pub use polling::{Seen, SleepHere, Sleeper};
pub use team::{Team, TeamError};
pub use traffic::{Traffic, traffic};
pub use weir_collective as collective;
pub use weir_message::{INJECT_BYTES as MAX_INJECT_BYTES, MultiOrder, StreamBits, Totals};
pub use weir_sctp::{NoSctp, available as sctp_available};
pub use weir_shm::RemotePiece;
/// Boards: memory of all processes of a program on one host, for a face whose processes meet step
/// by step (`spec/shm.md` 11). Whether memory may be shared is [`shares_memory`]'s to say; that a
/// member is gone the endpoint tells, as ever.
pub use weir_shm::board;
pub use weir_shm::bytes::SharedBytes;
pub use weir_shm::{BoardMemory, Made as MadeBoard, NoBoard, Ticket as BoardTicket, join_board, make_board};

use crate::clock::now;
use crate::core::Core;
use crate::memory::Gather;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use weir_link::{EndpointName, Time};
use weir_message::Memory;

/// Longest message, bytes.
pub const MAX_MESSAGE_BYTES: u64 = 1 << 40;
/// Most pieces of memory one operation may name.
pub const MAX_IOV: usize = 64;
/// Length of an endpoint's name, bytes.
pub const NAME_BYTES: usize = 48;

/// Which completions are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Sends, and remote writes and reads begun here.
    Send,
    /// Receives, and remote writes that landed here with immediate data.
    Recv,
    /// Both, in the order in which they ended: for a face that has one queue for everything and
    /// wants to look at the socket once.
    Both,
}

/// What the endpoint's threads share.
struct Shared {
    core: lock::Lock<Core>,
    /// When the caller last polled, nanoseconds.
    last_poll: AtomicU64,
    /// When polling last found something, nanoseconds.
    last_found: AtomicU64,
    /// Something was sent since the caller last polled.
    sent_since_poll: AtomicBool,
    /// The endpoints of the process with which it shares its polls.
    group: std::sync::OnceLock<Group>,
    /// Polls of others of them were what made progress last.
    helped: AtomicBool,
    /// Until when it needs no turn of them, for it has nothing to do, nanoseconds.
    quiet_until: AtomicU64,
    /// Callers sleep, each on the descriptor of what it waits for: the watchdog makes all progress
    /// and writes those that it has something for.
    armed: armed::Armed,
    /// The caller that is `armed` sleeps on the sockets themselves: it makes the progress.
    sleeps_here: AtomicBool,
    /// Another caller has armed meanwhile, and sleeps on `notify`.
    armed_beside: AtomicBool,
    stop: AtomicBool,
    /// People were told that a panic left it half changed.
    told_broken: AtomicBool,
    /// Where it is, for people.
    place: String,
    /// The next pass of the watchdog panics.
    #[cfg(test)]
    watchdog_panics: AtomicBool,
    /// The descriptors of the sockets, and of bulk connections and shared memory (-1: none), which
    /// live as long as `core`.
    sockets: [RawFd; weir_net::WAKE_SOURCES],
    others: [RawFd; 2],
    /// Written when completions come while armed.
    notify: EventFd,
    /// The same of those who wait for less.
    narrower: armed::Narrower,
    /// Where the watchdog sleeps.
    watch: watch::Watch,
    waiting: waiting::Waiting,
    coalesce_ns: u64,
    watchdog_ns: u64,
    /// The process that opened it: a child made by fork(2) has a copy without the threads, and must
    /// not say farewell for its parent.
    pid: u32,
    stats: Option<String>,
    /// Takes what there is to say to people.
    diagnostics: Diagnostics,
    linger: Duration,
}

impl Shared {
    /// The program polls: the watchdog need not, and is not to be woken by what comes. True: it was
    /// elsewhere since it last polled; if it finds nothing, it is to be told to
    /// [`Shared::is_back`].
    #[inline]
    fn polled(&self, at: Time) -> bool {
        let last = self.last_poll.load(Ordering::Relaxed);
        self.attended(at);
        let away_ns = at.0.saturating_sub(last);
        let was_elsewhere = away_ns > waiting::ELSEWHERE_NS;
        if was_elsewhere && away_ns >= self.watchdog_ns {
            self.watch.keep_look(at);
        }
        was_elsewhere
    }

    /// Somebody looks after the endpoint: the watchdog need not, and is not to be woken by what
    /// comes.
    #[inline]
    fn attended(&self, at: Time) {
        self.last_poll.store(at.0, Ordering::Relaxed);
        self.sent_since_poll.store(false, Ordering::Relaxed);
        // Where another thread sleeps until something comes, what comes is to wake it, whoever
        // polls meanwhile.
        if self.watch.is_watched() && !self.armed.any() {
            self.watch.program_is_back(self.look_time());
        }
    }

    /// What the program did elsewhere is no waiting: its patience begins anew. But where others had
    /// its core meanwhile, they would have it spin for nothing a time slice long.
    fn is_back(&self, at: Time) {
        if !self.waiting.was_displaced() {
            self.last_found.store(at.0, Ordering::Relaxed);
        }
    }

    /// Its group, if there are others in it.
    #[inline]
    fn group_of_several(&self) -> Option<&Group> {
        self.group.get().filter(|group| group.has_others())
    }

    /// The program sends, with the core locked: the answer is its to find, as a rule. But one that
    /// sends again without having polled may not poll for long, and leaves what comes to the
    /// watchdog; and so does one of whose threads another sleeps until something comes.
    fn sent(&self) {
        // (Not swapped: with the core locked nobody else sets it, and an exchange costs as much as
        // twenty loads.)
        if !self.sent_since_poll.load(Ordering::Relaxed) {
            self.sent_since_poll.store(true, Ordering::Relaxed);
            self.waiting.sends(now);
            if self.watch.is_watched() && !self.armed.any() {
                self.watch.program_is_back(self.look_time());
            }
            if self.sleeps_here.load(Ordering::Relaxed) {
                // Who sleeps does not know of this send. If nothing comes for it, the watchdog sees
                // to it, as where the program is away.
                self.last_poll.store(now().0, Ordering::Relaxed);
            }
        }
        self.look_soon();
    }

    /// With the core locked: what was just sent may be lost, what was held back must be sent, long
    /// before a watchdog that expected nothing looks again. Costs the look at one flag while the
    /// program polls.
    fn look_soon(&self) {
        if self.watch.is_long() {
            self.watch.hurry(self.look_time().min(watch::UNSEEN_MAX));
        }
    }
}

/// An endpoint. May be used from several threads.
pub struct Endpoint {
    shared: Arc<Shared>,
    name: [u8; NAME_BYTES],
    watchdog: std::sync::Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Endpoint {
    /// This endpoint's name, to be given to peers by whatever means they have.
    #[must_use]
    pub fn name(&self) -> [u8; NAME_BYTES] {
        self.name
    }

    /// Makes a peer known by its name; the same name gives the same index. Nothing is sent yet.
    ///
    /// # Errors
    /// [`EngineError::Name`] when the name cannot be used: not one, another version, another job
    /// key.
    pub fn insert_peer(&self, name: &[u8]) -> Result<u32, EngineError> {
        let bytes: &[u8; NAME_BYTES] = name
            .try_into()
            .map_err(|_| EngineError::Name(format!("a peer's name has {NAME_BYTES} bytes, not {}", name.len())))?;
        let decoded = EndpointName::decode(bytes)
            .map_err(|e| EngineError::Name(format!("not an endpoint name of this version: {e}")))?;
        let mut core = self.shared.enter()?;
        let peer = core.st.messages.insert_peer(&decoded).map_err(|e| EngineError::Name(explain_name(&e, &decoded)))?;
        core.choose_carrier(peer);
        Ok(peer)
    }

    /// Forgets that the caller knows this peer; what is under way goes on.
    pub fn remove_peer(&self, peer: u32) {
        let Ok(mut core) = self.shared.enter() else { return };
        core.st.messages.remove_peer(now(), peer);
    }

    /// Ends what there is with a peer and forgets it, so that its place can be another's. It is
    /// told, and finds this endpoint closed to it. What waits for it here fails.
    ///
    /// # Errors
    /// [`EngineError::Again`] while something sent to it is on its way: make progress and repeat,
    /// or [`Endpoint::drop_peer`].
    pub fn forget_peer(&self, peer: u32) -> Result<(), EngineError> {
        let mut core = self.shared.enter()?;
        if core.st.messages.owes_peer(peer) {
            return Err(EngineError::Again);
        }
        self.end_peer(&mut core, peer);
        Ok(())
    }

    /// The same at once: what is on its way to it may not arrive.
    pub fn drop_peer(&self, peer: u32) {
        let Ok(mut core) = self.shared.enter() else { return };
        self.end_peer(&mut core, peer);
    }

    fn end_peer(&self, core: &mut Core, peer: u32) {
        let now = now();
        core.drop_peer(now, peer);
        core.transmit(now);
        self.shared.look_soon();
        self.wake_sleeper(core);
    }

    /// Moves what is new of peers to `out`, oldest first: who came by itself, and who is gone.
    /// Nothing unless [`EngineConfig::strangers_max`] says that the face wants to know; then a
    /// sleeper on [`Endpoint::notify_fd`] is woken by such news as by completions. What is new of a
    /// peer is here before completions that name it.
    pub fn peer_events(&self, out: &mut Vec<PeerEvent>) {
        if let Ok(mut core) = self.shared.enter() {
            core.st.messages.take_news(out);
        }
    }

    /// The name a peer was inserted with.
    #[must_use]
    pub fn peer_name(&self, peer: u32) -> Option<[u8; NAME_BYTES]> {
        self.shared.enter().ok()?.st.messages.peer_name(peer)
    }

    /// Whether shared memory carries what is sent to a peer: the system says at once that its
    /// program has ended, but nothing says that it stands still.
    #[must_use]
    pub fn shares_memory_with(&self, peer: u32) -> bool {
        let Ok(core) = self.shared.enter() else { return false };
        let session = core.st.proto().sessions().get(weir_link::PeerId(peer));
        session.is_some_and(|s| s.is_up() && s.carrier() == weir_session::Carrier::Shm)
    }

    /// Least round trip to a peer of late, as far as packets measured one: what the way takes where
    /// nothing waits.
    #[must_use]
    pub fn least_round_trip(&self, peer: u32) -> Option<Duration> {
        let core = self.shared.enter().ok()?;
        let ns = core.st.proto().min_rtt_ns(weir_link::PeerId(peer));
        (ns > 0).then(|| Duration::from_nanos(ns))
    }

    /// Where a peer is, as far as is known.
    #[must_use]
    pub fn peer_address(&self, peer: u32) -> Option<std::net::SocketAddr> {
        self.shared.enter().ok()?.st.proto().peer_address(weir_link::PeerId(peer))
    }

    /// Asks who lives at these addresses of one host, for a caller that was not given a name. The
    /// answer comes as [`PeerEvent::Answer`], which wakes a sleeper as completions do: a name to be
    /// inserted, or why there is none. Nothing is kept of it on the other side. Returns the ticket
    /// by which the answer is known.
    ///
    /// # Errors
    /// [`EngineError::Again`] when as many are asked as may be, [`EngineError::Invalid`] without an
    /// address, [`EngineError::Closed`].
    pub fn ask(&self, addresses: &[std::net::SocketAddr]) -> Result<u64, EngineError> {
        if addresses.is_empty() {
            return Err(EngineError::Invalid("no address to ask at"));
        }
        let mut core = self.shared.enter()?;
        if core.st.closed {
            return Err(EngineError::Closed);
        }
        let now = now();
        let ticket = core.st.proto_mut().ask(now, addresses).ok_or(EngineError::Again)?;
        core.transmit(now);
        self.shared.look_soon();
        Ok(ticket)
    }

    /// Asks no further.
    pub fn ask_no_more(&self, ticket: u64) {
        let Ok(mut core) = self.shared.enter() else { return };
        core.st.proto_mut().ask_no_more(ticket);
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] for an unknown peer, [`EngineError::PeerDown`] for a directed
    /// receive that can never match.
    ///
    /// # Safety
    /// The memory of `op.memory` is writable and not otherwise used until the completion (of a
    /// multi-receive: the one with `multi_done`).
    pub unsafe fn recv(&self, op: &RecvOp<'_>) -> Result<(), EngineError> {
        // SAFETY: passed on from the caller.
        unsafe { self.recv_and_see(op) }.map(|_| ())
    }

    /// The same, and whether there are completions to be taken: its own, perhaps, if the message
    /// had arrived.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn recv_and_see(&self, op: &RecvOp<'_>) -> Result<bool, EngineError> {
        check_iov(op.memory)?;
        let mut core = self.shared.enter()?;
        if core.st.closed {
            return Err(EngineError::Closed);
        }
        // The time matters only if something that has arrived is matched; reading the clock costs
        // as much as posting.
        let at = if core.st.messages.unexpected_count() > 0 { now() } else { Time(0) };
        // SAFETY: passed on from the caller.
        core.st.messages.recv(at, op.with_memory(unsafe { Gather::new(op.memory) }))?;
        if core.st.messages.wants_transmit() {
            core.transmit(if at == Time(0) { now() } else { at });
            self.shared.look_soon();
        }
        if at != Time(0) {
            // Only what had arrived can have completed it.
            self.wake_sleeper(&core);
        }
        Ok(core.st.messages.completions() != (0, 0))
    }

    /// Looks for a message that has arrived and that no receive has taken. Looks only: the poll
    /// that usually follows makes progress. (A library that asks several transports for a message
    /// from anybody asks each once, then makes progress on all; one that ran ahead here would
    /// answer before the others had a chance, and the receive that follows might take theirs.)
    ///
    /// # Errors
    /// [`EngineError::Invalid`] when the context already holds a claim.
    pub fn peek(&self, op: &PeekOp) -> Result<Option<Completion>, EngineError> {
        // (The time matters only to what is thrown away: of that the sender is told.)
        let now = if op.discard { now() } else { Time::ZERO };
        let mut core = self.shared.enter()?;
        let found = core.st.messages.peek(now, op);
        if found.is_ok() && op.discard {
            core.transmit(now);
            self.shared.look_soon();
            self.wake_sleeper(&core);
        }
        Ok(found?)
    }

    /// Receives a message claimed with the same context before.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] when there is no such claim.
    ///
    /// # Safety
    /// As for [`Endpoint::recv`].
    pub unsafe fn recv_claimed(&self, op: &RecvOp<'_>) -> Result<(), EngineError> {
        check_iov(op.memory)?;
        let now = now();
        let mut core = self.shared.enter()?;
        // SAFETY: passed on from the caller.
        core.st.messages.recv_claimed(now, op.with_memory(unsafe { Gather::new(op.memory) }), false)?;
        if core.st.messages.wants_transmit() {
            core.transmit(now);
            self.shared.look_soon();
        }
        self.wake_sleeper(&core);
        Ok(())
    }

    /// Throws away a claimed message; completes like a receive of no bytes.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] when there is no such claim.
    pub fn discard_claimed(&self, op: &RecvOp<'_>) -> Result<(), EngineError> {
        let now = now();
        let mut core = self.shared.enter()?;
        core.st.messages.recv_claimed(now, op.with_memory(Gather::default()), true)?;
        core.transmit(now);
        self.shared.look_soon();
        self.wake_sleeper(&core);
        Ok(())
    }

    /// Cancels a receive to which no message is bound yet; its completion says so. False when there
    /// is none.
    pub fn cancel(&self, context: usize) -> bool {
        let now = now();
        let Ok(mut core) = self.shared.enter() else { return false };
        let cancelled = core.st.messages.cancel(now, context);
        self.wake_sleeper(&core);
        cancelled
    }

    /// Cancels a send whose receiver has not asked for it yet; its completion says so, and its
    /// memory is the caller's again. False when there is none: what is on its way, or was copied,
    /// goes on to its end, which a peer that lives makes soon, and the peer's death at the latest
    /// ([`Endpoint::drop_peer`]).
    pub fn cancel_send(&self, context: usize) -> bool {
        let Ok(mut core) = self.shared.enter() else { return false };
        let cancelled = core.st.messages.cancel_send(context);
        self.wake_sleeper(&core);
        cancelled
    }

    /// A superstep begins, of which this is known: what comes is granted in the order given, ahead
    /// of being asked for, and what goes is paced (`spec/superstep.md`). It holds until the next
    /// call; an empty one ends it. A face calls it when a reduction has told it the counts, before
    /// it posts receives and begins sends. It changes pace and order only: what is sent and
    /// received need not be what was told, and a face that never calls it sees no difference.
    /// Shared memory, bulk TCP and what this endpoint sends to itself hold back by themselves and
    /// are as ever.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] when a peer is not known: then nothing has changed.
    pub fn superstep(&self, step: &Superstep<'_>) -> Result<(), EngineError> {
        let now = now();
        let mut core = self.shared.enter()?;
        core.st.messages.superstep(now, step)?;
        core.bound_backlog(now);
        if core.st.messages.endpoint().may_transmit() {
            core.transmit(now);
            self.shared.look_soon();
        }
        Ok(())
    }

    /// Lets peers reach memory under `key`. They address it from 0 on, or by its own addresses if
    /// `virtual_address`.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] when the key is in use.
    ///
    /// # Safety
    /// The memory stays valid, and may be changed by peers, until [`Endpoint::unregister`].
    pub unsafe fn register(
        &self,
        iov: &[Iov],
        access: Access,
        key: Option<u64>,
        virtual_address: bool,
    ) -> Result<u64, EngineError> {
        // SAFETY: passed on from the caller.
        let memory = unsafe { Gather::new(iov) };
        let base = if virtual_address { iov.first().map_or(0, |p| p.base as u64) } else { 0 };
        Ok(self.shared.enter()?.st.messages.register(memory, base, access, key)?)
    }

    /// Withdraws a region; false when there is none of this key. Reads and large writes of peers
    /// that are under way fail at these.
    pub fn unregister(&self, key: u64) -> bool {
        let now = now();
        let Ok(mut core) = self.shared.enter() else { return false };
        let known = core.st.messages.unregister(now, key);
        if core.st.messages.wants_transmit() {
            core.transmit(now);
            self.shared.look_soon();
        }
        known
    }

    /// Starts a remote write.
    ///
    /// # Errors
    /// As for [`Endpoint::send`].
    ///
    /// # Safety
    /// As for [`Endpoint::send`].
    pub unsafe fn write(&self, op: &RmaOp<'_>) -> Result<(), EngineError> {
        check_iov(op.memory)?;
        let now = now();
        let mut core = self.shared.enter()?;
        // SAFETY: passed on from the caller.
        let op = op.with_memory(unsafe { Gather::new(op.memory) });
        let (peer, bytes) = (op.peer, op.memory.len() as usize);
        core.st.messages.write(now, op)?;
        self.after_send(&mut core, now, peer, bytes);
        Ok(())
    }

    /// Starts a remote read.
    ///
    /// # Errors
    /// As for [`Endpoint::send`].
    ///
    /// # Safety
    /// As for [`Endpoint::recv`].
    pub unsafe fn read(&self, op: &RmaOp<'_>) -> Result<(), EngineError> {
        check_iov(op.memory)?;
        let now = now();
        let mut core = self.shared.enter()?;
        // SAFETY: passed on from the caller.
        core.st.messages.read(now, op.with_memory(unsafe { Gather::new(op.memory) }))?;
        self.after_send(&mut core, now, op.peer, 0);
        Ok(())
    }

    /// Starts an atomic operation on a peer's memory. It completes when the target has answered.
    ///
    /// # Errors
    /// As for [`Endpoint::send`].
    ///
    /// # Safety
    /// The memory of `op.operand` and `op.compare` is readable until this returns; that of
    /// `op.result` is writable and not otherwise used until the completion.
    pub unsafe fn atomic(&self, op: &AmoOp<'_>) -> Result<(), EngineError> {
        [op.operand, op.compare, op.result].into_iter().try_for_each(check_iov)?;
        let now = now();
        let mut core = self.shared.enter()?;
        if core.st.closed {
            return Err(EngineError::Closed);
        }
        // SAFETY: passed on from the caller.
        let op = op.with_memory(|iov| unsafe { Gather::new(iov) });
        let peer = op.peer;
        core.st.messages.atomic(now, op)?;
        self.after_send(&mut core, now, peer, 0);
        Ok(())
    }

    /// Operations ended so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.shared.core.lock().st.messages.totals()
    }

    /// What went over the wire so far.
    #[must_use]
    pub fn carried(&self) -> Carried {
        let Ok(core) = self.shared.enter() else { return Carried::default() };
        let (link, shm) =
            (core.st.proto().counters(), core.shm.as_ref().map(|shm| *shm.counters()).unwrap_or_default());
        Carried {
            packets_sent: link.packets_sent,
            packets_received: link.packets_received,
            acks_sent: link.acks_sent,
            acks_received: link.acks_received,
            packets_lost: link.packets_lost,
            repairs_sent: link.repairs_sent,
            stalls: link.stalls_window + link.stalls_pacing,
            records_sent: shm.tx_records,
            records_received: shm.rx_records,
        }
    }

    /// Packets that came so far and were dropped because they are not sealed with the job's key, or
    /// are damaged.
    #[must_use]
    pub fn packets_refused(&self) -> u64 {
        self.shared.enter().map_or(0, |core| core.st.proto().counters().dropped_check)
    }

    /// All counters as one JSON document.
    #[must_use]
    pub fn counters_json(&self) -> String {
        let numbers = self.shared.enter().map(|core| stat::numbers(&core));
        numbers.map_or_else(|_| stat::broken().to_string(), |numbers| numbers.document().to_string())
    }

    /// Closes: refuses new operations, lets what was sent arrive (for the linger time at most),
    /// then touches the caller's memory no more. Completions stay to be polled.
    ///
    /// The linger time is used up in full only when the peer lives and does not answer: stopped,
    /// cut off, or (in one process) an endpoint that nobody polls while its watchdog is off. A peer
    /// whose process is gone is noticed within a fraction of a second. In a child made by fork(2)
    /// this does nothing: the association is its parent's.
    pub fn close(&self) {
        let shared = &*self.shared;
        if self.is_inherited() || std::mem::replace(&mut shared.core.lock().st.closed, true) {
            return;
        }
        if let Some(group) = shared.group.get() {
            group.remove(shared);
        }
        // A panic has ended all of it before: that is as good as done.
        let _ = self.farewell();
        shared.stop.store(true, Ordering::Release);
        shared.watch.wake();
        if let Some(thread) = self.watchdog.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
            let _ = thread.join();
        }
        let ended = traffic::keep(shared, |core| {
            if let Some(to) = &shared.stats {
                stat::dump(core, to, &shared.diagnostics);
            }
            core.finished = true;
            core.close_connections();
            core.st.messages.forget_memory();
        });
        if ended.is_none() {
            // What is half changed is not touched any more, by nobody.
            shared.core.lock().finished = true;
        }
    }

    /// Whether this process was forked from the one that opened the endpoint: what there is of it
    /// here is a copy, and the sockets, descriptors and shared memory under it are the parent's.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.shared.is_inherited()
    }

    /// Whether the endpoint is in order. To be asked by who waits and finds nothing: after a panic
    /// inside it nothing comes any more.
    ///
    /// # Errors
    /// [`EngineError::Broken`].
    #[inline]
    pub fn check(&self) -> Result<(), EngineError> {
        if self.shared.core.is_poisoned() { Err(self.shared.why_broken()) } else { Ok(()) }
    }

    /// For tests of faces: panics as a defect would, inside the engine.
    #[doc(hidden)]
    pub fn panic_inside(&self) {
        let _core = self.shared.enter();
        panic!("a defect, by order of a test");
    }
}

impl Endpoint {
    /// First what was promised but waits for its peer to ask for it, then the protocol's own
    /// farewell.
    fn farewell(&self) -> Result<(), EngineError> {
        let deadline = std::time::Instant::now() + self.shared.linger;
        self.progress_until(deadline, |core| core.st.messages.broken().is_some() || !core.st.messages.owes())?;
        {
            let mut core = self.shared.enter()?;
            let now = now();
            core.st.proto_mut().close(now);
            core.transmit(now);
        }
        self.progress_until(deadline, |core| core.st.messages.broken().is_some() || core.is_drained())
    }

    /// Makes progress, asleep in between, until `done` or the deadline.
    fn progress_until(
        &self,
        deadline: std::time::Instant,
        done: impl Fn(&mut Core) -> bool,
    ) -> Result<(), EngineError> {
        // (A peer that has read what it was handed by shared memory wakes nobody.)
        const SLEEP_MAX_NS: u64 = 1_000_000;
        loop {
            let (timeout, blocked, ready) = {
                let mut core = self.shared.enter()?;
                core.progress(now());
                self.wake_sleeper(&core);
                if done(&mut core) {
                    return Ok(());
                }
                (core.next_timeout(), core.blocked_at(), core.prepare_sleep())
            };
            if std::time::Instant::now() >= deadline {
                return Ok(());
            }
            let left = timeout.map_or(SLEEP_MAX_NS, |t| t.0.saturating_sub(now().0));
            let sleep = Duration::from_nanos(left.clamp(1000, SLEEP_MAX_NS));
            if ready {
                waiting::wait_ready(&[(self.shared.sockets, blocked, self.shared.others)], sleep);
            }
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close();
    }
}

fn check_iov(iov: &[Iov]) -> Result<(), EngineError> {
    if iov.len() > MAX_IOV {
        return Err(EngineError::TooBig {
            what: "number of memory pieces",
            given: iov.len() as u64,
            limit: MAX_IOV as u64,
        });
    }
    let total = iov.iter().fold(0u64, |sum, p| sum.saturating_add(p.len as u64));
    if total > MAX_MESSAGE_BYTES {
        return Err(EngineError::TooBig { what: "number of bytes", given: total, limit: MAX_MESSAGE_BYTES });
    }
    if iov.iter().any(|p| p.base.is_null() && p.len > 0) {
        return Err(EngineError::Invalid("null memory with a length"));
    }
    Ok(())
}

fn explain_name(e: &weir_link::NameError, name: &EndpointName) -> String {
    let first = name.addresses.iter().next().map(|ip| std::net::SocketAddr::new(*ip, name.port));
    let at = first.map_or_else(String::new, |at| format!(" (peer at {at})"));
    match e {
        weir_link::NameError::Key => {
            format!(
                "the peer uses another job key{at}: give all ranks the same WEIR_KEY or WEIR_KEY_FILE, or share ~/.config/weir/key"
            )
        }
        other => format!("{other}{at}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// Nothing takes this long, however busy the machine, but what hangs.
    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn an_unusable_socket_fails_what_waits_and_is_named() {
        let cfg = EngineConfig {
            addrs: vec!["127.0.0.1".parse().expect("address")],
            linger: 2 * LIMIT,
            ..EngineConfig::packets()
        };
        let ep = Endpoint::open_with_key(cfg.clone(), [1; 32]).expect("open");
        let other = Endpoint::open_with_key(cfg, [1; 32]).expect("open");
        let to = ep.insert_peer(&other.name()).expect("name");
        let (mut data, mut buf) = ([0u8; 100_000], [0u8; 8]);
        let send = |data: &mut [u8]| {
            let op = SendOp {
                peer: to,
                class: Class::Tagged,
                tag: 1,
                data: None,
                memory: &[Iov { base: data.as_mut_ptr(), len: data.len() }],
                mode: SendMode::Delivery,
                copy: false,
                report: true,
                context: 1,
                user: 0,
            };
            // SAFETY: the memory lives to the end of the test.
            unsafe { ep.send(&op) }
        };
        let receive = |buf: &mut [u8]| {
            let op = RecvOp {
                source: None,
                class: Class::Tagged,
                tag: 2,
                ignore: 0,
                memory: &[Iov { base: buf.as_mut_ptr(), len: buf.len() }],
                multi_min: None,
                report: true,
                context: 2,
                user: 0,
            };
            // SAFETY: the memory lives to the end of the test.
            unsafe { ep.recv(&op) }
        };
        receive(&mut buf).expect("posted");
        send(&mut data).expect("accepted");
        // Something else of the process took the descriptor.
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        // SAFETY: both descriptors are open; the transport still owns the number and closes it
        // once.
        assert!(unsafe { libc::dup2(null.as_raw_fd(), ep.shared.sockets[0]) } >= 0);
        let (start, mut out) = (std::time::Instant::now(), Vec::new());
        while out.len() < 2 {
            ep.poll(Queue::Both, &mut out, 8);
            assert!(start.elapsed() < LIMIT, "{}", ep.counters_json());
        }
        for c in &out {
            assert_eq!(c.result, Err(OpError::Socket(libc::ENOTSOCK)), "{c:?}");
        }
        let text = send(&mut data).expect_err("must be refused").to_string();
        assert!(text.contains("socket"), "{text}");
        assert!(receive(&mut buf).is_err());
        assert!(ep.counters_json().contains("\"socket_errors\":1"), "{}", ep.counters_json());
        let start = std::time::Instant::now();
        ep.close();
        assert!(start.elapsed() < LIMIT, "nothing can be waited for");
    }
}
