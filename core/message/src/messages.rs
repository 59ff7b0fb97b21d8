//! The state of one endpoint's messages: its tables, and what the caller may ask of them.

use crate::api::{Completion, MessageError, PeerEvent, Superstep};
use crate::arrivals::{Arrivals, Arriving};
use crate::asked::Asked;
use crate::budget::{Copies, HELD_BYTES, Unexpected, WAITING_BYTES};
use crate::completions::Completions;
use crate::config::Config;
use crate::counters::{Counters, Streams, Totals};
use crate::keys::{MsgKey, SendKey, key};
use crate::lives::Trace;
use crate::memory::Memory;
use crate::notice::{Sink, Step};
use crate::peers::Peers;
use crate::receives::Receives;
use crate::regions::Regions;
use crate::rndvs::Rndvs;
use crate::sends::{Role, SendState, Sends};
use crate::session::Sessions;
use crate::source::{Pool, Source};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weir_link::{DownReason, Endpoint, EndpointName, Event, NameError, Time};
use weir_match::{Match, Matcher};

/// What keeps the places of peers that are gone is looked at so often, unless it is known that it
/// has ended: it costs a look at all messages.
const RELEASE_NS: u64 = 50_000_000;

/// One endpoint's messages. `M` is the memory of operations, `S` takes the trace and news for
/// people.
pub struct Messages<M, S> {
    pub(crate) cfg: Config,
    pub(crate) sessions: Sessions,
    pub(crate) matcher: Matcher,
    pub(crate) sends: Sends<M>,
    pub(crate) recvs: Receives<M>,
    pub(crate) msgs: Arrivals<M>,
    pub(crate) asked: Asked,
    pub(crate) rndvs: Rndvs<M>,
    /// Messages claimed, by context. Looked at only by those rare calls.
    pub(crate) claims: BTreeMap<usize, MsgKey>,
    pub(crate) regions: Regions<M>,
    pub(crate) peers: Peers,
    pub(crate) done: Completions,
    pub(crate) loopback: Loopback,
    pub(crate) pool: Pool,
    /// The send whose payload is still to be copied ([`Messages::send_lent`]).
    pub(crate) lent: Option<SendKey>,
    pub(crate) copies: Copies,
    pub(crate) unexpected: Unexpected,
    pub(crate) told: Told,
    /// Sends may be queued beyond [`crate::sending::QUEUE_MSGS`] for a peer: to wait for the queue
    /// did not help once.
    pub(crate) queues_on: bool,
    /// No peer can be reached any more; the system's error number.
    pub(crate) broken: Option<i32>,
    pub(crate) counters: Counters,
    pub(crate) trace: Trace<S>,
    /// Something to transmit was queued by an operation that transmits nothing itself.
    pub(crate) wants_transmit: bool,
    /// Peers for which answers are kept, and how many answers to one may be.
    pub(crate) keeping: Vec<u32>,
    pub(crate) kept_max: usize,
    /// Peers that have asked for more, and are to be given up.
    pub(crate) overran: Vec<u32>,
    /// What the caller was not told of peers yet: at most that each of those it knows has come, and
    /// has gone.
    pub(crate) news: Vec<PeerEvent>,
    /// A message has come that no receive took, and nobody has looked for one since.
    pub(crate) unasked: bool,
    /// Places of peers that are gone are looked after from then on: something refers to them.
    pub(crate) release_at: Time,
    /// It is a completion that nobody has taken.
    pub(crate) named: bool,
    /// Strangers for whom there is no place.
    pub(crate) refused: Vec<u32>,
    own_name: [u8; 48],
    /// Kept between calls for their memory.
    events: Vec<Event>,
    matches: Vec<Match>,
}

/// What the carrier of what this endpoint sends to itself keeps between calls.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    /// This endpoint as a peer of its own.
    pub peer: Option<u32>,
    /// Envelope and payload of what is handed over, one behind the other: what events index.
    pub bytes: Vec<u8>,
    /// Operations whose control messages have arrived. They hear of it after what these were
    /// answered: the end of a write must not come before its refusal.
    pub arrived: Vec<u64>,
}

/// What people were told once, and are not told again.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// That sends have waited for room and get more.
    pub no_room: bool,
    /// And that there is none left.
    pub no_end: bool,
    /// That unexpected messages have filled their budget.
    pub full: bool,
}

impl<M: Memory, S: Sink> Messages<M, S> {
    /// The messages of `link`'s endpoint, which nobody has used yet.
    pub fn new(cfg: Config, proto: Endpoint, sink: S) -> Self {
        const {
            assert!(
                size_of::<Arriving<M>>() as u64 <= HELD_BYTES - 112,
                "the matcher's entry and the table's own need the rest"
            );
            assert!(size_of::<SendState<M>>() as u64 <= WAITING_BYTES - 128);
        }
        Messages {
            own_name: proto.name().encode(),
            sessions: Sessions::new(proto),
            matcher: Matcher::new(cfg.stream_bits),
            sends: Sends::default(),
            recvs: Receives::default(),
            msgs: Arrivals::default(),
            asked: Asked::default(),
            rndvs: Rndvs::default(),
            claims: BTreeMap::new(),
            regions: Regions::default(),
            peers: Peers::default(),
            done: Completions::default(),
            loopback: Loopback::default(),
            pool: Pool::default(),
            lent: None,
            copies: Copies::new(cfg.copied_bytes, cfg.copied_peer_bytes, cfg.send_timeout),
            unexpected: Unexpected::new(cfg.unexpected_bytes),
            told: Told::default(),
            queues_on: false,
            broken: None,
            counters: Counters::default(),
            trace: Trace::new(sink),
            wants_transmit: false,
            keeping: Vec::new(),
            kept_max: cfg.answers_max(),
            overran: Vec::new(),
            news: Vec::new(),
            unasked: false,
            release_at: Time::ZERO,
            named: false,
            refused: Vec::new(),
            events: Vec::new(),
            matches: Vec::new(),
            cfg,
        }
    }

    /// A superstep begins, of which this is known (`spec/superstep.md`): what comes is granted in
    /// order and without being asked for, what goes is paced. It holds until the next call; an
    /// empty one ends it. Nothing depends on it but the pace: what was not told is sent and
    /// received as ever, and what was told need not come. Carriers that hold back by themselves
    /// (shared memory, bulk TCP, this endpoint itself) are as ever. Call it before receives are
    /// posted and sends begun, and transmit afterwards.
    ///
    /// # Errors
    /// [`MessageError::Invalid`] when a peer is not known: then nothing has changed.
    pub fn superstep(&mut self, now: Time, step: &Superstep<'_>) -> Result<(), MessageError> {
        let mut all = step.sends.iter().chain(step.receives);
        if all.any(|(peer, _)| self.peers.get(*peer).is_none()) {
            return Err(MessageError::Invalid("no such peer"));
        }
        self.counters.supersteps += 1;
        self.sessions.superstep(now, step);
        Ok(())
    }

    /// This endpoint's name.
    pub fn own_name(&self) -> [u8; 48] {
        self.own_name
    }

    /// Makes a peer known by its name; the same name gives the same index. Nothing is sent yet.
    ///
    /// # Errors
    /// As [`Endpoint::peer`].
    pub fn insert_peer(&mut self, name: &EndpointName) -> Result<u32, NameError> {
        let peer = self.sessions.endpoint_mut().peer(name)?.0;
        if self.peers.ensure(peer).down.is_some() && !self.sessions.is_down(peer) {
            // The protocol gave the place of a forgotten peer to this one.
            self.peers.renew(peer);
        }
        self.peers.no_stranger(peer);
        let slot = &mut self.peers[peer];
        slot.name = name.encode();
        slot.inserted = true;
        if slot.name == self.own_name {
            self.begin_loopback(peer);
        }
        Ok(peer)
    }

    /// Forgets that the caller knows this peer; what is under way goes on.
    pub fn remove_peer(&mut self, now: Time, peer: u32) {
        self.peers.no_stranger(peer);
        self.news.retain(|event| event.peer() != Some(peer));
        let Some(slot) = self.peers.get_mut(peer) else { return };
        slot.inserted = false;
        if slot.down.is_some() {
            self.peers.note_dead(peer);
            self.release_dead(now);
        }
    }

    /// The name a peer was inserted with.
    pub fn peer_name(&self, peer: u32) -> Option<[u8; 48]> {
        self.peers.get(peer).filter(|p| p.inserted && !p.stranger).map(|p| p.name)
    }

    /// Whether something sent to this peer is still on its way, or an answer to it kept.
    pub fn owes_peer(&self, peer: u32) -> bool {
        let slot = self.peers.get(peer).filter(|p| p.down.is_none());
        slot.is_some_and(|p| {
            !p.kept.is_empty() || self.sessions.has_open(peer) || self.sends.peers().any(|p| p == peer)
        })
    }

    /// Ends what packets carry of the association with a peer, at once. What waits for it fails.
    pub fn close_peer(&mut self, now: Time, peer: u32) {
        self.with_events(now, &[], |proto, events| proto.close_peer(now, weir_link::PeerId(peer), events));
    }

    /// Something is new of peers.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty() || self.sessions.endpoint().has_answers()
    }

    /// Messages wait for which there is no receive, or have come since somebody looked for one.
    #[must_use]
    pub fn has_unasked(&self) -> bool {
        self.unasked || self.matcher.unexpected_count() > 0
    }

    /// Moves what is new of peers to `out`, oldest first.
    pub fn take_news(&mut self, out: &mut Vec<PeerEvent>) {
        out.append(&mut self.news);
        let proto = self.sessions.endpoint_mut();
        if proto.has_answers() {
            out.extend(
                proto.take_answers().into_iter().map(|a| PeerEvent::Answer { ticket: a.ticket, found: a.found }),
            );
        }
    }

    /// A stranger for whom there is no place: whoever carries its packets or records is to end
    /// that.
    #[inline]
    pub fn take_refused(&mut self) -> Option<u32> {
        self.refused.pop()
    }

    /// A peer is up that the caller did not insert.
    pub(crate) fn stranger_up(&mut self, peer: u32) {
        let Some(max) = self.cfg.strangers_max else { return };
        if self.peers.strangers() < max {
            self.peers.admit_stranger(peer);
            self.news.push(PeerEvent::Arrived { peer });
        } else {
            self.counters.strangers_refused += 1;
            // What it sends until then is nobody's.
            self.peers[peer].overran = true;
            self.refused.push(peer);
        }
    }

    /// Why this peer is down, if it is.
    pub fn down(&self, peer: u32) -> Option<DownReason> {
        self.peers.get(peer)?.down
    }

    /// Gives back the places of peers that are down, that the caller does not know, and that
    /// nothing here refers to.
    pub(crate) fn release_dead(&mut self, now: Time) {
        if !self.peers.any_dead() {
            return;
        }
        // Messages that came in full before the peer died are still receivable, and completions
        // name it.
        let mut used: Vec<u32> = self.msgs.peers().collect();
        used.extend(self.sends.peers());
        used.extend(self.done.sources());
        used.sort_unstable();
        let sessions = &mut self.sessions;
        self.peers.release_dead(|p| used.binary_search(&p).is_ok() || !sessions.forget(now, p));
        self.release_at = now.plus_ns(RELEASE_NS);
        let peers = &self.peers;
        self.named = self.done.sources().any(|p| peers.is_dead(p));
    }

    /// Whoever is gone may have been let go of since, and may knock.
    #[inline]
    pub(crate) fn retry_dead(&mut self, now: Time) {
        if self.peers.any_dead() && now >= self.release_at {
            self.release_dead(now);
        }
    }

    /// So many completions were taken: one of them may have named a peer that is gone.
    #[inline]
    pub(crate) fn have_taken(&mut self, now: Time, n: usize) -> usize {
        // (With many more to take, not for each: to look goes through them all.)
        if n > 0 && self.named && (now >= self.release_at || self.done.len() == (0, 0)) {
            self.release_dead(now);
        }
        n
    }

    /// The associations below, for who carries their packets and connections. What is reported
    /// there as events comes here by [`Messages::with_events`].
    pub fn endpoint(&self) -> &Endpoint {
        self.sessions.endpoint()
    }

    /// The same.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        self.sessions.endpoint_mut()
    }

    /// The payload of an operation, by the token that [`Messages::poll_transmit`] names; none once
    /// it is over.
    pub fn payload(&self, token: u64) -> Option<&Source<M>> {
        self.sends.get(key::<SendKey>(token)).map(|s| &s.source)
    }

    /// Whether that payload stays as it is until the operation's end, so that a peer on this host
    /// may read it from where it lies. The memory of a region does not: it may be withdrawn while a
    /// peer's read is under way, and from then on no byte of it is to be seen.
    pub fn lends(&self, token: u64) -> bool {
        let k = key::<SendKey>(token);
        // (Nor does that of a send which is still to be copied.)
        self.lent != Some(k) && self.sends.get(k).is_some_and(|s| s.role != Role::ReadReply)
    }

    /// Takes up to `max` completions of sends, and of remote writes and reads begun here, oldest
    /// first. Returns how many.
    #[inline]
    pub fn take_sent(&mut self, max: usize, each: impl FnMut(&Completion)) -> usize {
        self.done.take_sent(max, each)
    }

    /// Completions that wait: of sends and remote operations begun here, and of receives and what
    /// else peers did.
    pub fn completions(&self) -> (usize, usize) {
        self.done.len()
    }

    /// Whether any completion waits, or news of a peer, or a message that nobody has looked for
    /// ([`Config::tell_unasked`](crate::Config)).
    pub fn has_completions(&self) -> bool {
        !self.done.is_empty() || self.unasked || self.has_news()
    }

    /// Operations ended so far.
    pub fn totals(&self) -> Totals {
        self.done.totals()
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether somebody waits for a peer, or soon will: a receive is posted for a message with a
    /// tag, or an operation on the way to a peer is not over.
    pub fn awaits_peers(&self) -> bool {
        self.matcher.awaits_tagged() || self.sends.len() > 0
    }

    /// What the matcher counted.
    pub fn matcher_stats(&self) -> weir_match::Stats {
        self.matcher.stats()
    }

    /// Messages that have arrived and that no receive has taken.
    pub fn unexpected_count(&self) -> usize {
        self.matcher.unexpected_count()
    }

    /// What the streams of a peer carried.
    pub fn streams(&self, peer: u32) -> Streams {
        self.peers.get(peer).map(|p| p.streams.clone()).unwrap_or_default()
    }

    /// What waits in the tables: operations, receives, messages, rendezvous transfers.
    pub fn held(&self) -> [usize; 4] {
        [self.sends.len(), self.recvs.len(), self.msgs.len(), self.rndvs.len()]
    }

    /// Whether an operation that transmits nothing itself has left something to transmit.
    pub fn wants_transmit(&self) -> bool {
        self.wants_transmit
    }

    /// The caller is about to transmit.
    pub fn begin_transmit(&mut self) {
        self.wants_transmit = false;
    }

    /// Whether something that was reported as complete, or an answer, has not reached its peer:
    /// what closing must wait for. (What this endpoint never received of itself nobody misses.)
    pub fn owes(&self) -> bool {
        let kept = || (0..self.sessions.endpoint().sessions().len()).any(|p| self.sessions.has_kept(p as u32));
        self.sends.owe(self.loopback.peer) || kept() || self.keeping.iter().any(|&peer| !self.is_own(peer))
    }

    /// After closing: no byte of the caller's memory is read or written any more.
    pub fn forget_memory(&mut self) {
        self.rndvs.clear();
        self.regions.clear();
        self.claims.clear();
        self.msgs.clear();
        self.recvs.clear();
        self.sends.clear();
        self.matcher = Matcher::new(self.cfg.stream_bits);
    }

    /// The system's error number, once no peer can be reached any more.
    pub fn broken(&self) -> Option<i32> {
        self.broken
    }

    /// Where trace and news go.
    pub fn sink(&self) -> &S {
        self.trace.sink()
    }

    /// The same.
    pub fn sink_mut(&mut self) -> &mut S {
        self.trace.sink_mut()
    }

    /// New operations have no chance once the socket is unusable.
    pub(crate) fn check_socket(&self) -> Result<(), MessageError> {
        self.broken.map_or(Ok(()), |errno| Err(MessageError::Socket(errno)))
    }

    /// Tells a checker, if there is one.
    #[inline]
    pub(crate) fn step(&mut self, step: Step) {
        self.trace.sink_mut().step(step);
    }

    /// Queues the completion of an operation.
    pub(crate) fn complete(&mut self, c: Completion) {
        self.done.push(c);
    }

    /// Calls the matcher, and has each match that comes of it acted on.
    #[inline]
    pub(crate) fn with_matches<T>(
        &mut self,
        call: impl FnOnce(&mut Matcher, &mut Vec<Match>) -> T,
        act: impl FnOnce(&mut Self, &T, &mut Vec<Match>),
    ) -> T {
        let mut matches = core::mem::take(&mut self.matches);
        let result = call(&mut self.matcher, &mut matches);
        act(self, &result, &mut matches);
        matches.clear();
        self.matches = matches;
        result
    }

    /// The events of one call of the protocol, to be acted on.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// Gives the memory of events back.
    pub(crate) fn give_events(&mut self, mut events: Vec<Event>) {
        events.clear();
        self.events = events;
    }
}
