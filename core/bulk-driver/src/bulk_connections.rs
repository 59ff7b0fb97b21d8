//! All connections of an endpoint: dialled, taken, each in its turn, and dropped.

use alloc::vec::Vec;
use core::net::SocketAddr;

use slotmap::{Key, KeyData, SlotMap};
use smallvec::SmallVec;
use weir_link::{BULK_CONNECT_NS, BULK_GREETING_NS, BulkNews, Endpoint, PeerId, Time};

use crate::conn::{Conn, Over, Stage};
use crate::surroundings::{Interest, NotMade, Surroundings};

slotmap::new_key_type! {
    pub(crate) struct ConnKey;
}

/// Connections whose greeting has not come, at most; the oldest gives way.
pub const STRANGERS_MAX: usize = 64;
/// How often new connections are looked for, and old ones that are over; and how many are taken at
/// a time.
pub const ROUND_NS: u64 = 1_000_000;
/// The same while there are none, at most: less and less often, for to ask costs who polls for
/// messages a system call.
pub const ROUND_MAX_NS: u64 = 8 * ROUND_NS;
/// Each time later by this part. So half a second goes by before rounds are as rare as that: it is
/// where programs begin that connections are made.
const LATER: u64 = 64;
/// See [`ROUND_NS`].
pub const ACCEPTS_MAX: usize = 16;

/// What an endpoint may have and do.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Connections.
    pub conns: usize,
    /// Bytes read in one pass of progress, and written in one pass, by all connections together,
    /// before others have their turn.
    pub turn_bytes: u64,
}

/// All connections of an endpoint. `S`: one's bytes ([`Surroundings::Stream`]).
pub struct BulkConnections<S> {
    pub(crate) conns: SlotMap<ConnKey, Conn<S>>,
    limits: Limits,
    closed: bool,
    round_at: Time,
    /// Until the next round.
    round_ns: u64,
    polls: usize,
    /// Passes in which one of several was to be read first.
    reads: usize,
    /// Which connection, by its place, is the first to write in the next pass.
    first_writer: usize,
    /// Where a connection puts together what it writes.
    room: Vec<u8>,
    /// A turn of writing was used up, and something may be left.
    more: bool,
}

impl<S> BulkConnections<S> {
    /// None yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        BulkConnections {
            conns: SlotMap::with_key(),
            limits,
            closed: false,
            round_at: Time(0),
            round_ns: ROUND_NS,
            polls: 0,
            reads: 0,
            first_writer: 0,
            room: Vec::new(),
            more: false,
        }
    }

    /// Drops all connections, each by `end`, and makes and takes no more.
    pub fn close(&mut self, mut end: impl FnMut(S)) {
        (self.closed, self.more) = (true, false);
        self.conns.drain().for_each(|(_, c)| end(c.io));
    }

    /// How many connections there are, whatever their state.
    #[must_use]
    pub fn len(&self) -> usize {
        self.conns.len()
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    /// How many bytes of heads at most one connection keeps that were not put off.
    #[must_use]
    pub fn staged(&self) -> usize {
        self.conns.values().filter(|c| !c.put_off).map(|c| c.have).max().unwrap_or(0)
    }

    /// All connections.
    pub fn streams(&self) -> impl Iterator<Item = &S> {
        self.conns.values().map(|c| &c.io)
    }

    /// Those that carry records: whose, and the bulk connection's number.
    pub fn up(&self) -> impl Iterator<Item = (PeerId, u32)> {
        self.conns.values().filter(|c| c.stage == Stage::Up).map(|c| (c.peer, c.bulk))
    }

    /// Bytes that may be written in one pass from now on.
    pub fn set_turn_bytes(&mut self, turn_bytes: u64) {
        self.limits.turn_bytes = turn_bytes;
    }

    /// When to look although nothing wakes a sleeper. What has passed is to be looked at now.
    pub fn next_timeout(&self, endpoint: &Endpoint, now: Time) -> Option<Time> {
        // What took too long, or is over, is dropped at the next round.
        let round = self.round_at.plus_ns(ROUND_NS);
        let at = |c: &Conn<S>| match c.stage {
            Stage::Connecting => Some(round.max(c.since.plus_ns(BULK_CONNECT_NS + 1))),
            Stage::Greeted | Stage::Stranger => Some(round.max(c.since.plus_ns(BULK_GREETING_NS + 1))),
            Stage::Up if c.put_off => Some(now),
            Stage::Up if !endpoint.bulk_is_up(c.peer, c.bulk) => Some(round),
            Stage::Up => c.health.next_look(),
        };
        let more = (self.more || (!self.closed && endpoint.has_bulk_news())).then_some(now);
        self.conns.values().filter_map(at).chain(more).min()
    }

    /// The caller has slept: who connects may have ended that, and would end the next sleep at
    /// once.
    pub fn has_slept(&mut self) {
        self.round_ns = ROUND_NS;
    }

    /// Connects, accepts, reads. `busy`: there were datagrams, which come first. Returns the bytes
    /// read.
    pub fn progress<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time, busy: bool) -> u64 {
        while let Some(news) = on.endpoint_mut().take_bulk_news() {
            self.connect(on, now, &news);
            self.round_ns = ROUND_NS;
        }
        let round = now.since_ns(self.round_at) >= self.round_ns;
        if round {
            self.round_at = now;
            self.accept(on, now);
            let later_ns = ROUND_MAX_NS.min(self.round_ns + self.round_ns / LATER);
            self.round_ns = if self.conns.is_empty() { later_ns } else { ROUND_NS };
        }
        self.polls = self.polls.wrapping_add(1);
        let (mut read, most) = (0, self.limits.turn_bytes);
        if !self.conns.is_empty() && (!busy || self.polls.is_multiple_of(8)) {
            for k in self.readable(on) {
                read += self.serve(on, now, k, most - read);
                if read >= most {
                    break;
                }
            }
        }
        if round {
            self.tidy(on, now);
        }
        read
    }

    /// Reads some `most` bytes of a connection, or greets once it is made. Returns how many came.
    fn serve<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time, k: ConnKey, most: u64) -> u64 {
        let Some(c) = self.conns.get_mut(k) else { return 0 };
        let before = c.stage;
        let result = if before == Stage::Connecting { c.greet(on, now).map(|()| 0) } else { c.read(on, now, most) };
        match &result {
            Ok(_) if before == Stage::Connecting && c.stage == Stage::Greeted => {
                on.watch_for(&c.io, k.data().as_ffi(), Interest::Read);
            }
            Ok(_) if before == Stage::Stranger && c.stage == Stage::Up => self.replace(on, k),
            Ok(_) => {}
            Err(over) => self.drop_conn(on, now, k, *over),
        }
        result.unwrap_or(0)
    }

    /// Connections that may have something, each time another first. With one only, that is the
    /// cheapest of questions.
    fn readable(&mut self, on: &mut impl Surroundings<Stream = S>) -> SmallVec<[ConnKey; 32]> {
        let mut only = self.conns.iter();
        if let (Some((k, c)), None) = (only.next(), only.next())
            && c.stage == Stage::Up
        {
            return SmallVec::from_slice(&[k]);
        }
        let mut keys: SmallVec<[ConnKey; 32]> = SmallVec::new();
        if on.ready(|key| keys.push(ConnKey::from(KeyData::from_ffi(key)))) {
            keys.extend(self.conns.iter().filter(|(_, c)| c.put_off).map(|(k, _)| k));
            keys.sort_unstable();
            keys.dedup();
        } else {
            keys.extend(self.conns.keys());
        }
        if !keys.is_empty() {
            // (Not of the polls: with traffic of other kinds each eighth reads, and the first of
            // two would always be the same.)
            self.reads = self.reads.wrapping_add(1);
            let first = self.reads % keys.len();
            keys.rotate_left(first);
        }
        keys
    }

    pub(crate) fn connect<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time, news: &BulkNews) {
        // When there are too many here, or it is closed, that says nothing of the network.
        let mut why = Over::Failed;
        if !self.closed && self.conns.len() < self.limits.conns {
            match on.connect(news) {
                Ok(io) => {
                    if self.insert(on, Conn::new(io, now, Some(news), Some(news.remote)), Interest::Made) {
                        on.endpoint_mut().sessions_mut().hold(news.peer);
                        return;
                    }
                }
                Err(NotMade::Lacking) => {}
                Err(NotMade::Refused(w)) => why = Over::NotMade(Some(w)),
            }
        }
        give_up_asking(on, now, news.peer, now, news.remote, why);
    }

    fn insert(&mut self, on: &mut impl Surroundings<Stream = S>, conn: Conn<S>, interest: Interest) -> bool {
        let k = self.conns.insert(conn);
        let watched = on.watch(&self.conns[k].io, k.data().as_ffi(), interest);
        if !watched && let Some(c) = self.conns.remove(k) {
            on.close(c.io);
        }
        watched
    }

    fn accept(&mut self, on: &mut impl Surroundings<Stream = S>, now: Time) {
        for _ in 0..ACCEPTS_MAX {
            if self.closed {
                return;
            }
            let Some(io) = on.accept(now) else { return };
            let strangers = || self.conns.iter().filter(|(_, c)| c.stage == Stage::Stranger);
            let full = self.conns.len() >= self.limits.conns || strangers().count() >= STRANGERS_MAX;
            let oldest = strangers().min_by_key(|(_, c)| c.since).map(|(k, _)| k);
            match oldest {
                Some(oldest) if full => _ = self.forget(on, oldest),
                None if full => {
                    on.close(io);
                    continue;
                }
                _ => {}
            }
            let to = on.remote(&io);
            self.insert(on, Conn::new(io, now, None, to), Interest::Read);
        }
    }

    /// Writes what is to go by bulk connections. Where the last turn ended the next one begins.
    pub fn transmit<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time) {
        if self.conns.is_empty() {
            self.more = false;
            return;
        }
        let mut over: SmallVec<[(ConnKey, Over<E::Why>); 4]> = SmallVec::new();
        let (first, mut left) = (self.first_writer, self.limits.turn_bytes);
        self.more = false;
        for wrapped in [false, true] {
            let its_turn =
                |(i, (_, c)): &(usize, (ConnKey, &mut Conn<S>))| (*i < first) == wrapped && c.stage == Stage::Up;
            for (i, (k, c)) in self.conns.iter_mut().enumerate().filter(its_turn) {
                let was_blocked = c.blocked;
                let written = if self.more { Ok(0) } else { c.write(on, now, left, &mut self.room) };
                match written.and_then(|n| c.watch(on, now).map(|()| n)) {
                    Ok(n) => {
                        left = left.saturating_sub(n);
                        if left == 0 && !self.more {
                            (self.more, self.first_writer) = (true, i + 1);
                        }
                        if c.blocked != was_blocked {
                            let interest = if c.blocked { Interest::ReadOrRoom } else { Interest::Read };
                            on.watch_for(&c.io, k.data().as_ffi(), interest);
                        }
                    }
                    Err(why) => over.push((k, why)),
                }
            }
        }
        for (k, why) in over {
            self.drop_conn(on, now, k, why);
        }
    }

    /// Drops what took too long and what is over.
    fn tidy<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time) {
        let is_over = |on: &E, c: &Conn<S>| {
            let age = now.since_ns(c.since);
            match c.stage {
                Stage::Connecting => age > BULK_CONNECT_NS,
                Stage::Greeted | Stage::Stranger => age > BULK_GREETING_NS,
                Stage::Up => !on.endpoint().bulk_is_up(c.peer, c.bulk),
            }
        };
        let over: SmallVec<[ConnKey; 4]> = self.conns.iter().filter(|(_, c)| is_over(on, c)).map(|(k, _)| k).collect();
        for k in over {
            // Perhaps it was this process that took too long, and what is awaited has come.
            if self.conns.get(k).is_some_and(|c| c.stage != Stage::Up) {
                self.serve(on, now, k, 1);
            }
            let Some(c) = self.conns.get(k).filter(|c| is_over(on, c)) else { continue };
            let unanswered = c.stage == Stage::Connecting;
            self.drop_conn(on, now, k, if unanswered { Over::NotMade(None) } else { Over::Failed });
        }
    }

    /// A bulk connection takes the place of the peer's former one.
    fn replace(&mut self, on: &mut impl Surroundings<Stream = S>, k: ConnKey) {
        let peer = self.conns[k].peer;
        let former = |(other, c): &(ConnKey, &Conn<S>)| *other != k && c.stage == Stage::Up && c.peer == peer;
        let former: SmallVec<[ConnKey; 2]> = self.conns.iter().filter(former).map(|(k, _)| k).collect();
        for k in former {
            self.forget(on, k);
        }
    }

    /// Closes a connection and has the protocol go on without it.
    fn drop_conn<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time, k: ConnKey, over: Over<E::Why>) {
        let Some(c) = self.forget(on, k) else { return };
        match c {
            (Stage::Stranger, ..) => {}
            (Stage::Connecting, peer, _, since, to) => give_up_asking(on, now, peer, since, to, over),
            (Stage::Greeted | Stage::Up, peer, bulk, ..) => on.is_over(now, peer, bulk),
        }
    }

    /// Closes a connection, and says of whom it was.
    fn forget(
        &mut self,
        on: &mut impl Surroundings<Stream = S>,
        k: ConnKey,
    ) -> Option<(Stage, PeerId, u32, Time, SocketAddr)> {
        let c = self.conns.remove(k)?;
        on.close(c.io);
        if c.stage != Stage::Stranger {
            on.endpoint_mut().sessions_mut().let_go(c.peer);
        }
        Some((c.stage, c.peer, c.bulk, c.since, c.to))
    }
}

/// A bulk connection that was asked for is not to be had: no connection, tried since then, to
/// there. It is numbered by its greeting.
fn give_up_asking<E: Surroundings>(
    on: &mut E,
    now: Time,
    peer: PeerId,
    since: Time,
    to: SocketAddr,
    why: Over<E::Why>,
) {
    let Some((bulk, _)) = on.endpoint_mut().bulk_greeting(peer) else { return };
    on.endpoint_mut().bulk_over(now, peer, bulk);
    let Over::NotMade(why) = why else { return };
    // Whose packets do not come either is gone, or has other troubles. (A refusal comes at once; of
    // the second before it anything will do.)
    let since = since.min(Time(now.0.saturating_sub(BULK_CONNECT_NS)));
    if on.endpoint().heard_since(peer, since) {
        on.no_tcp(peer, to, why);
    }
}
