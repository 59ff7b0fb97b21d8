//! `bmi_weir` and `bmi_sctp`: messages by the engine (spec/bmi.md 11). What carries them they do
//! not see.

mod posting;
mod unexpected;

use crate::addresses::AddrKey;
use crate::codes::{self, Code};
use crate::log::tell;
use crate::memory::Block;
use crate::method::Kind;
use crate::ops::{Limit, OpKey};
use crate::settings::Settings;
use crate::tables::{ByNumber, Tables};
use slotmap::SecondaryMap;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unexpected::{Come, look};
use weir_engine::{
    CarrierUse, Completion, Diagnostic, DownReason, Endpoint, EngineConfig, EngineError, Iov, NoSctp, OpError,
    PeerEvent, Queue, Seen, SleepHere, StreamBits,
};

/// Longest message, bytes.
pub const SIZE_MAX: u64 = 1 << 30;
/// Longest unexpected message, bytes.
pub const UNEXPECTED_MAX: u64 = 16 << 10;
/// Messages that the engine holds for us by number; those behind them wait in the engine's own
/// order.
const CLAIMS_MAX: usize = 4096;
/// Looks after silent peers in the time after which one is taken for dead.
const WATCHES: u32 = 8;
/// Completions taken in one pass.
const PASS: usize = 256;

/// What the `user` word of a completion says.
const OPERATION: u64 = 1;
const CLAIM: u64 = 2;

/// The engine's tag (V2): unexpected messages of a class have one tag, and theirs travels as
/// immediate data.
fn engine_tag(tag: i32, unexpected: Option<u8>) -> (u64, Option<u64>) {
    let low = u64::from(tag.cast_unsigned());
    match unexpected {
        None => (low, None),
        Some(class) => (1 << 40 | u64::from(class) << 32, Some(low)),
    }
}

/// Who is at an address, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody was asked for, or the one found is gone.
    Unknown,
    /// Somebody is asked for.
    Asking(u64),
    /// This peer of the engine.
    Up(u32),
    /// Who came by itself, and is gone.
    Gone,
}

/// A post that waits for its address, or for room in the engine.
struct Kept {
    key: OpKey,
    is_recv: bool,
    tag: i32,
    unexpected: Option<u8>,
    pieces: Vec<Iov>,
    size: u64,
}

struct Place {
    addrs: Vec<SocketAddr>,
    state: State,
    kept: VecDeque<Kept>,
}

/// A message of which the engine has been told where it goes.
struct Taking {
    from: AddrKey,
    class: u8,
    block: Block,
}

/// The method.
pub struct Weir {
    ep: Arc<Endpoint>,
    places: SecondaryMap<AddrKey, Place>,
    /// Addresses of a peer: what it sends comes from the first.
    by_peer: ByNumber<u32, Vec<AddrKey>>,
    tickets: HashMap<u64, AddrKey>,
    /// Addresses that are still to be asked, for too many were at once.
    to_ask: Vec<AddrKey>,
    /// Peers that are down and may be forgotten once their messages are taken.
    leaving: Vec<u32>,
    /// Addresses with posts that found no room.
    held_up: BTreeSet<AddrKey>,
    claims: usize,
    next_claim: usize,
    taking: ByNumber<usize, Taking>,
    /// Peers on shared memory that are asked whether they live: by ticket, and since when.
    watched: HashMap<u64, (AddrKey, Instant)>,
    next_watch: Instant,
    /// The same on the engine's clock, nanoseconds.
    watch_due_ns: u64,
    /// Pings that somebody waits for, and what they have found.
    pings: HashMap<u64, Option<Result<(), Code>>>,
    out: Vec<Completion>,
    events: Vec<PeerEvent>,
    /// Unexpected messages that have just come, to be handed out at once.
    come: Vec<Come>,
    /// Our key for people, and what was told of others'.
    key: String,
    told: Told,
    /// Which of the two methods it is.
    kind: Kind,
    /// Our number in the table of methods.
    number: usize,
    server: bool,
    patience: Duration,
}

/// Who has another key is not told so by who is asked (V5). What each side can know it says in a
/// line: once, a stranger may be anybody.
#[derive(Default)]
struct Told {
    /// Packets come that are not sealed with our key.
    refused: bool,
    /// Addresses of which no answer came.
    unanswered: BTreeSet<SocketAddr>,
}

/// Addresses of which it is told that no answer came, at most.
const UNANSWERED_MAX: usize = 16;

fn code_of(error: &EngineError) -> Code {
    match error {
        EngineError::Again => Code::EAGAIN,
        EngineError::NoMemory { .. } => Code::ENOMEM,
        EngineError::PeerDown(reason) => code_of_down(*reason),
        EngineError::TooBig { .. } => Code::EMSGSIZE,
        EngineError::Key(_) => Code::EACCES,
        EngineError::Io { source, .. } => codes::of_io(source),
        EngineError::Closed | EngineError::Broken | EngineError::Inherited => Code::EIO,
        EngineError::Invalid(_) | EngineError::Name(_) | EngineError::Config { .. } => Code::EINVAL,
    }
}

/// F1, of a peer that was found.
fn code_of_down(reason: DownReason) -> Code {
    match reason {
        DownReason::ConnectTimeout => Code::ETIMEDOUT,
        DownReason::Version | DownReason::LevelTooLow => Code::EPROTO,
        DownReason::NoRoom => Code::EBUSY,
        DownReason::Aborted => Code::ECANCEL,
        _ => Code::ECONNRESET,
    }
}

/// F1, of one that was not.
fn code_of_absence(reason: DownReason) -> Code {
    match reason {
        DownReason::Unreachable | DownReason::ShuttingDown => Code::ECONNREFUSED,
        other => code_of_down(other),
    }
}

fn code_of_op(error: OpError) -> Code {
    match error {
        OpError::Truncated { .. } => Code::EMSGSIZE,
        OpError::Cancelled => Code::ECANCEL,
        OpError::PeerDown(reason) => code_of_down(reason),
        OpError::Socket(_) => Code::EIO,
        OpError::NoMessage | OpError::Access | OpError::Alignment => Code::EPROTO,
    }
}

impl Weir {
    /// Opens the endpoint. `listen`: where a server listens, and at nothing else if `only`.
    ///
    /// # Errors
    /// The code; a line says what is wrong.
    pub fn open(settings: &Settings, number: usize, listen: Option<(&[SocketAddr], bool)>) -> Result<Weir, Code> {
        Weir::open_with_key(settings, settings.key()?, number, listen)
    }

    /// Opens `bmi_sctp`: SCTP carries messages whatever is set (V6).
    ///
    /// # Errors
    /// As [`Weir::open`]; `BMI_ENOPROTOOPT` where there is no SCTP.
    pub fn open_by_sctp(
        settings: &Settings,
        number: usize,
        listen: Option<(&[SocketAddr], bool)>,
    ) -> Result<Weir, Code> {
        // (In a child made by fork packets carry everything, which the engine says.)
        if let Err(why) = weir_engine::sctp_available()
            && !matches!(why, NoSctp::Forked)
        {
            tell(&format!("bmi_sctp: {why}"));
            return Err(Code::ENOPROTOOPT);
        }
        let engine = EngineConfig { carrier: CarrierUse::Sctp, ..settings.engine.clone() };
        let mut weir = Weir::open(&Settings { engine, ..settings.clone() }, number, listen)?;
        weir.kind = Kind::Sctp;
        Ok(weir)
    }

    /// The same with this key.
    fn open_with_key(
        settings: &Settings,
        key: [u8; 32],
        number: usize,
        listen: Option<(&[SocketAddr], bool)>,
    ) -> Result<Weir, Code> {
        let mut config = EngineConfig { stream_bits: StreamBits(u64::MAX), ..settings.engine.clone() };
        if let Some((addrs, only)) = listen {
            (config.port, config.port_span) = (addrs.first().map_or(0, SocketAddr::port), 1);
            config.bulk_credit_bytes = settings.bulk_credit;
            let named: Vec<IpAddr> = addrs.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified()).collect();
            if only && !named.is_empty() {
                (config.addrs, config.everywhere) = (named, false);
            }
        }
        let patience = config.peer_timeout;
        let sink = |what: &Diagnostic<'_>| tell(&what.to_string());
        let ep = Endpoint::open_told(config, key, Arc::new(sink)).map_err(|error| {
            tell(&error.to_string());
            code_of(&error)
        })?;
        Ok(Weir {
            ep,
            places: SecondaryMap::new(),
            by_peer: ByNumber::default(),
            tickets: HashMap::new(),
            to_ask: Vec::new(),
            leaving: Vec::new(),
            held_up: BTreeSet::new(),
            claims: 0,
            next_claim: 1,
            taking: ByNumber::default(),
            watched: HashMap::new(),
            next_watch: Instant::now(),
            watch_due_ns: 0,
            pings: HashMap::new(),
            out: Vec::new(),
            events: Vec::new(),
            come: Vec::new(),
            key: settings.key_named(&key),
            told: Told::default(),
            kind: Kind::Weir,
            number,
            server: listen.is_some(),
            patience,
        })
    }

    /// Which of the two methods it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The port it listens at; 0 for a client.
    #[must_use]
    pub fn port(&self) -> u16 {
        let name = self.ep.name();
        if self.server { u16::from_be_bytes([name[2], name[3]]) } else { 0 }
    }

    /// Packets that came and are not sealed with its key, or are damaged.
    #[must_use]
    pub fn packets_refused(&self) -> u64 {
        self.ep.packets_refused()
    }

    /// Readable when something is to be collected, once armed.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.ep.notify_fd()
    }

    /// Several posts are likely to follow, and then a test.
    pub fn expect_several(&self) {
        self.ep.expect_several();
    }

    /// False: do not sleep.
    #[must_use]
    pub fn arm(&self) -> bool {
        // (All of it, whoever is held up: the watchdog is to make progress meanwhile.)
        self.ep.arm() && !self.is_held_up()
    }

    /// As [`Weir::arm`], for a thread that sleeps on the sockets itself.
    pub fn sleep_here(&self, most: Duration) -> SleepHere {
        self.ep.sleep_here(most)
    }

    /// The program's thread gave the core away between two looks.
    pub fn yielded(&self, time: Duration) {
        self.ep.yielded(time);
    }

    /// Something waits for room, which nobody tells of.
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        !self.held_up.is_empty() || !self.to_ask.is_empty()
    }

    fn ask(&mut self, addr: AddrKey) {
        let Some(place) = self.places.get_mut(addr) else { return };
        match self.ep.ask(&place.addrs) {
            Ok(ticket) => {
                place.state = State::Asking(ticket);
                self.tickets.insert(ticket, addr);
            }
            Err(_) => {
                if !self.to_ask.contains(&addr) {
                    self.to_ask.push(addr);
                }
            }
        }
    }

    // Progress.

    /// One pass: what has ended, who has come or gone, what has arrived.
    pub fn progress(&mut self, t: &mut Tables) {
        let seen = match t.inbox.wanted.filter(|_| t.inbox.is_empty()) {
            Some(class) => self.look_for(t, class),
            None => self.look(t),
        };
        if !self.to_ask.is_empty() || !self.held_up.is_empty() {
            self.progress_of_some(t);
        }
        if seen.unasked {
            self.claim(t);
        }
        if !self.leaving.is_empty() {
            self.let_go(t);
            // (Whoever looks whether they have left anything may have seen what came since.)
            self.claim(t);
        }
        if seen.at_ns >= self.watch_due_ns {
            self.watch_due_ns = seen.at_ns + (self.patience / WATCHES).as_nanos() as u64;
            self.watch(t);
        }
    }

    /// What some addresses wait for.
    fn progress_of_some(&mut self, t: &mut Tables) {
        for addr in std::mem::take(&mut self.to_ask) {
            if self.places.get(addr).is_some_and(|p| p.state == State::Unknown && !p.kept.is_empty()) {
                self.ask(addr);
            }
        }
        for addr in std::mem::take(&mut self.held_up) {
            self.go_on(t, addr);
        }
    }

    /// When to look after silent peers next.
    #[must_use]
    pub fn next_timeout(&self, waits: bool) -> Option<Instant> {
        (waits || !self.watched.is_empty()).then_some(self.next_watch)
    }

    /// Peers on shared memory of whom something is wanted are asked whether they live, by packets:
    /// over packets silence is noticed below, there a process that was stopped is as one that
    /// computes.
    fn watch(&mut self, t: &mut Tables) {
        let now = Instant::now();
        self.next_watch = now + self.patience / WATCHES;
        self.tell_of_refused();
        let silent: Vec<(u64, AddrKey)> = self
            .watched
            .iter()
            .filter(|(_, (_, since))| now.duration_since(*since) >= self.patience / WATCHES * 5)
            .map(|(ticket, (addr, _))| (*ticket, *addr))
            .collect();
        for (ticket, addr) in silent {
            self.watched.remove(&ticket);
            self.ep.ask_no_more(ticket);
            tell("a peer of this host does not answer any more; taken for dead (WEIR_PEER_TIMEOUT_MS)");
            self.drop_connection(t, addr);
        }
        let asked: HashSet<AddrKey> = self.watched.values().map(|(addr, _)| *addr).collect();
        for (addr, place) in &self.places {
            if let State::Up(peer) = place.state
                && t.addrs.get(addr).is_some_and(|a| a.ops > 0)
                && !asked.contains(&addr)
                && self.ep.shares_memory_with(peer)
                && let Some(at) = self.ep.peer_address(peer)
                && let Ok(ticket) = self.ep.ask(&[at])
            {
                self.watched.insert(ticket, (addr, now));
            }
        }
    }

    /// That packets come of somebody who has another key.
    fn tell_of_refused(&mut self) {
        if !self.told.refused && self.ep.packets_refused() > 0 {
            self.told.refused = true;
            tell(&format!("packets come that are not sealed with {}: who has another one is not answered", self.key));
        }
    }

    /// That nobody answers at an address, where a network would have said that nobody is there.
    fn tell_of_silence(&mut self, addr: AddrKey) {
        let Some(at) = self.places.get(addr).and_then(|place| place.addrs.first().copied()) else { return };
        if self.told.unanswered.len() < UNANSWERED_MAX && self.told.unanswered.insert(at) {
            tell(&format!(
                "{at} does not answer: nobody is there, a firewall drops packets, or a server has another key; here is {}",
                self.key
            ));
        }
    }

    /// Looks at what has arrived. (With the library's lock, for which other threads wait: not by a
    /// poll that may sleep.)
    fn look(&mut self, t: &mut Tables) -> Seen {
        let seen = self.ep.look(Queue::Both, &mut self.out, PASS);
        self.ended(t, seen);
        seen
    }

    /// The ends of receives that are there already: sends that wait for others wait on (W8).
    fn take_received(&mut self, t: &mut Tables) {
        let seen = self.ep.take(Queue::Recv, &mut self.out, PASS);
        self.ended(t, seen);
    }

    /// Acts on what a look has found.
    fn ended(&mut self, t: &mut Tables, seen: Seen) {
        // What is new of a peer is there before completions that name it.
        if seen.peers {
            self.hear(t);
        }
        if self.out.is_empty() {
            return;
        }
        let mut out = std::mem::take(&mut self.out);
        for c in out.drain(..) {
            if c.user == OPERATION {
                let key = OpKey::from_id(c.context as i64);
                let size = t.ops.get(key).map_or(0, |op| if op.is_recv { c.len as u64 } else { op.size });
                t.ops.end(key, c.result.map(|()| size).map_err(code_of_op));
            } else {
                self.taken(t, &c);
            }
        }
        self.out = out;
    }

    /// Who has come or gone.
    fn hear(&mut self, t: &mut Tables) {
        let mut events = std::mem::take(&mut self.events);
        self.ep.peer_events(&mut events);
        for event in events.drain(..) {
            self.event(t, event);
        }
        self.events = events;
    }

    fn event(&mut self, t: &mut Tables, event: PeerEvent) {
        match event {
            PeerEvent::Arrived { peer } => {
                let addr = t.addrs.arrived(self.number, self.ep.peer_address(peer));
                self.places.insert(addr, Place { addrs: Vec::new(), state: State::Up(peer), kept: VecDeque::new() });
                self.by_peer.entry(peer).or_default().push(addr);
            }
            PeerEvent::Down { peer, reason } => {
                for addr in self.by_peer.get(&peer).cloned().unwrap_or_default() {
                    self.lost(t, addr, code_of_down(reason));
                }
                self.leaving.push(peer);
            }
            PeerEvent::Answer { ticket, .. } if self.watched.contains_key(&ticket) => {
                self.watched.remove(&ticket);
            }
            // (Whichever thread makes progress when it comes.)
            PeerEvent::Answer { ticket, found } if self.pings.contains_key(&ticket) => {
                self.pings.insert(ticket, Some(found.map(|_| ()).map_err(code_of_absence)));
            }
            PeerEvent::Answer { ticket, found } => {
                let Some(addr) = self.tickets.remove(&ticket) else { return };
                match found {
                    Ok(name) => self.found(t, addr, &name),
                    Err(reason) => {
                        if reason == DownReason::ConnectTimeout {
                            self.tell_of_silence(addr);
                        }
                        self.lost(t, addr, code_of_absence(reason));
                    }
                }
            }
        }
    }

    /// Who lives at an address is known.
    fn found(&mut self, t: &mut Tables, addr: AddrKey, name: &[u8; 48]) {
        let own = self.ep.name();
        // Ourselves, by one of our addresses.
        let name = if name[8..16] == own[8..16] { &own } else { name };
        let mut inserted = self.ep.insert_peer(name);
        if let Ok(peer) = inserted
            && self.leaving.contains(&peer)
        {
            // It was taken for dead and lives: its former place is no good.
            self.forget_peer(t, peer);
            inserted = self.ep.insert_peer(name);
        }
        match inserted {
            Ok(peer) => {
                let Some(place) = self.places.get_mut(addr) else { return };
                place.state = State::Up(peer);
                let addrs = self.by_peer.entry(peer).or_default();
                if !addrs.contains(&addr) {
                    addrs.push(addr);
                }
                self.go_on(t, addr);
            }
            Err(error) => {
                tell(&error.to_string());
                self.lost(t, addr, Code::EPROTO);
            }
        }
    }

    /// The peer of an address is gone, or nobody was found: what waited for it has failed. One that
    /// was looked up may be asked for again.
    fn lost(&mut self, t: &mut Tables, addr: AddrKey, code: Code) {
        let Some(place) = self.places.get_mut(addr) else { return };
        let looked_up = !place.addrs.is_empty();
        place.state = if looked_up { State::Unknown } else { State::Gone };
        let kept = std::mem::take(&mut place.kept);
        self.held_up.remove(&addr);
        t.fail(kept.into_iter().map(|kept| kept.key), code);
        if !looked_up {
            t.is_gone(addr);
        }
    }

    /// Peers that are down are forgotten when nothing of theirs is left to be taken.
    fn let_go(&mut self, t: &mut Tables) {
        for peer in std::mem::take(&mut self.leaving) {
            let is_left = |class| matches!(self.ep.peek(&look(class, Some(peer), None)), Ok(Some(_)));
            let left = t.inbox.looked_at().iter().any(is_left);
            if left {
                self.leaving.push(peer);
                continue;
            }
            self.forget_peer(t, peer);
        }
    }

    /// The engine says that the peer of an address is dead; of one that was so before it was found
    /// again no event tells. (If one has told meanwhile, the address is another's already.)
    fn is_dead(&mut self, t: &mut Tables, addr: AddrKey, peer: u32) {
        if self.places.get(addr).is_some_and(|place| place.state == State::Up(peer)) {
            self.claim(t);
            self.forget_peer(t, peer);
        }
    }

    /// A peer that is down is forgotten, and its place in the engine can be another's.
    fn forget_peer(&mut self, t: &mut Tables, peer: u32) {
        self.discard_rest(peer);
        let addrs = self.no_more(peer);
        self.ep.remove_peer(peer);
        self.lost_all(t, &addrs, peer);
    }

    /// The number of a peer says nothing any more. Its addresses.
    fn no_more(&mut self, peer: u32) -> Vec<AddrKey> {
        self.leaving.retain(|p| *p != peer);
        self.by_peer.remove(&peer).unwrap_or_default()
    }

    /// Of these addresses, those that are still the peer's have lost it.
    fn lost_all(&mut self, t: &mut Tables, addrs: &[AddrKey], peer: u32) {
        for &addr in addrs {
            if self.places.get(addr).is_some_and(|place| place.state == State::Up(peer)) {
                self.lost(t, addr, Code::ECONNRESET);
            }
            t.spent.push(addr);
        }
    }

    // Ends.

    /// Gives an operation up, as far as that can be done; its end is told as ever.
    pub fn cancel(&mut self, t: &mut Tables, key: OpKey) {
        let Some(op) = t.ops.get(key) else { return };
        let (addr, is_recv) = (op.addr, op.is_recv);
        if let Some(place) = self.places.get_mut(addr)
            && let Some(i) = place.kept.iter().position(|kept| kept.key == key)
        {
            place.kept.remove(i);
            return t.ops.end(key, Err(Code::ECANCEL));
        }
        let context = key.to_id() as usize;
        let given_up = if is_recv { self.ep.cancel(context) } else { self.ep.cancel_send(context) };
        self.look(t);
        if !given_up && t.ops.get(key).is_some_and(|op| op.done.is_none()) {
            t.ops.limit(key, Limit::Drop, Instant::now() + self.patience);
        }
    }

    /// Ends what there is with an address. It may be used again, if it was looked up.
    pub fn drop_connection(&mut self, t: &mut Tables, addr: AddrKey) {
        let Some(place) = self.places.get(addr) else { return };
        match place.state {
            State::Up(peer) => {
                // What was there whole before may still be handed out.
                self.claim(t);
                self.discard_rest(peer);
                let addrs = self.no_more(peer);
                self.ep.drop_peer(peer);
                self.look(t);
                // It tells nobody of an end that it made itself.
                self.lost_all(t, &addrs, peer);
            }
            State::Asking(ticket) => {
                self.ep.ask_no_more(ticket);
                self.tickets.remove(&ticket);
                self.lost(t, addr, Code::ECONNRESET);
            }
            State::Unknown | State::Gone => self.lost(t, addr, Code::ECONNRESET),
        }
    }

    /// The address names nothing any more.
    pub fn forget(&mut self, addr: AddrKey) {
        let Some(place) = self.places.remove(addr) else { return };
        self.held_up.remove(&addr);
        self.watched.retain(|_, (of, _)| *of != addr);
        if let State::Up(peer) = place.state
            && let Some(addrs) = self.by_peer.get_mut(&peer)
        {
            addrs.retain(|a| *a != addr);
        }
    }

    /// Where the peer of an address is.
    #[must_use]
    pub fn peer_address(&self, addr: AddrKey) -> Option<IpAddr> {
        let place = self.places.get(addr)?;
        match place.state {
            State::Up(peer) => self.ep.peer_address(peer).map(|a| a.ip()),
            _ => place.addrs.first().map(SocketAddr::ip),
        }
    }

    /// Asks who is at an address, whatever is known of it, if nobody is asked for yet.
    pub fn ping(&mut self, t: &Tables, addr: AddrKey) -> Result<u64, Code> {
        let place = self.place(t, addr);
        if place.addrs.is_empty() {
            return Err(Code::EOPNOTSUPP);
        }
        let addrs = place.addrs.clone();
        let ticket = self.ep.ask(&addrs).map_err(|error| code_of(&error))?;
        self.pings.insert(ticket, None);
        Ok(ticket)
    }

    /// What a ping has found, if it is over.
    pub fn pinged(&mut self, t: &mut Tables, ticket: u64) -> Option<Result<(), Code>> {
        self.progress(t);
        let found = self.pings.get(&ticket).copied().flatten();
        if found.is_some() {
            self.pings.remove(&ticket);
        }
        found
    }

    /// A ping that nobody waits for any more.
    pub fn no_ping(&mut self, ticket: u64) {
        self.pings.remove(&ticket);
        self.ep.ask_no_more(ticket);
    }

    /// Lets what was sent arrive, for a while, and is over.
    pub fn close(&mut self) {
        self.ep.close();
    }
}

#[cfg(test)]
mod tests;
