//! `bmi_tcp`: the wire of the originals (spec/bmi.md 9). Connections are made on first use and
//! hidden; a receiver takes each message by (peer, tag).

#[forbid(unsafe_code)]
pub mod codec;
mod conn;
#[forbid(unsafe_code)]
mod held;
mod matching;
mod sockets;
mod transfer;

use crate::addresses::AddrKey;
use crate::codes::{self, Code};
use crate::inbox::Entry;
use crate::log::tell;
use crate::ops::{Limit, OpKey};
use crate::settings::Settings;
use crate::tables::{Post, Posted, Tables};
use codec::{Header, Wire};
use conn::{Conn, Dest, Out};
use held::Held;
use matching::{Matching, Posted as PostedRecv};
use slotmap::{Key, KeyData, SecondaryMap, SlotMap, new_key_type};
use sockets::{Failure, Listener, Poll};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

new_key_type! {
    /// A connection: index and generation.
    pub struct ConnKey;
}

/// Messages that wait to leave with others (T12): no longer ones, and at most so many of a
/// connection.
const BATCH_SIZE_MAX: u64 = 4 << 10;
const BATCH_MESSAGES: usize = 31;
/// Connections taken in one pass.
const PASS_ACCEPTS: usize = 64;
/// A listener without a free descriptor does not accept for so long (T6).
const DEAF: Duration = Duration::from_millis(100);
/// Looks at what was not acknowledged, in the time of a peer's silence: of two seconds four in the
/// last, in which who is waited for is asked at each.
const WATCHES: u32 = 8;
/// A receive from who is not connected dials after so long, unless a send has done so: requests
/// follow their receives, and OrangeFS goes astray where a receive fails before its request is
/// posted. (The originals never dial for a receive.)
const ASK_AFTER: Duration = Duration::from_millis(100);
/// Timers that are none any more, beside as many as there are connections.
const TIMERS_SPARE: usize = 64;
/// The key of the listener among the descriptors.
const LISTENER: u64 = 0;

/// What is known of an address.
#[derive(Default)]
struct Place {
    /// Where it is dialled; nowhere if it came by itself.
    addrs: Vec<SocketAddr>,
    conn: Option<ConnKey>,
    /// When it is dialled if nobody sends to it by then: receives wait.
    ask_at: Option<Instant>,
    matching: Matching,
    /// What is held for it.
    held: Held,
}

/// The method.
pub struct Tcp {
    settings: Settings,
    number: usize,
    poll: Poll,
    listener: Option<Listener>,
    deaf_until: Option<Instant>,
    conns: SlotMap<ConnKey, Conn>,
    places: SecondaryMap<AddrKey, Place>,
    /// Connections that are not read, for what they bring has no room.
    resting: BTreeSet<ConnKey>,
    /// Room has come free.
    freed: bool,
    /// What is held, of all.
    held: Held,
    /// How many came by themselves.
    strangers: usize,
    /// That connections are turned away was said.
    told_full: bool,
    timers: BinaryHeap<Reverse<(Instant, ConnKey)>>,
    /// Addresses with receives and without connection, and when they are dialled. The oldest first.
    asking: VecDeque<(Instant, AddrKey)>,
    /// Connections by which something has left of which it is not known that it has arrived, and
    /// when to look.
    watched: Vec<ConnKey>,
    watch_at: Option<Instant>,
    buffers: [Option<usize>; 2],
    pings: HashMap<u64, sockets::Dial>,
    next_ping: u64,
    ready: Vec<sockets::Ready>,
    /// Memory for what is read ahead.
    spare: Vec<u8>,
    /// When several posts were last expected, or the last of them came.
    batch_at: Option<Instant>,
    /// Connections by which several messages are to leave at once.
    batches: Vec<ConnKey>,
}

impl Tcp {
    /// Opens it; a server listens.
    ///
    /// # Errors
    /// The code; a line says what is wrong.
    pub fn open(settings: &Settings, number: usize, listen: Option<(&[SocketAddr], bool)>) -> Result<Tcp, Code> {
        let told = |what: &str, error: &std::io::Error| {
            tell(&format!("{what}: {error}"));
            codes::of_io(error)
        };
        let poll = Poll::new().map_err(|e| told("making an epoll descriptor", &e))?;
        let listener = match listen {
            None => None,
            Some((addrs, only)) => {
                let first = addrs.first().ok_or(Code::EINVAL)?;
                let listener = Listener::bind(*first, only).map_err(|e| told(&format!("listening at {first}"), &e))?;
                poll.add(listener.fd(), LISTENER, true, false).map_err(|e| told("watching a listener", &e))?;
                Some(listener)
            }
        };
        Ok(Tcp {
            settings: settings.clone(),
            number,
            poll,
            listener,
            deaf_until: None,
            conns: SlotMap::with_key(),
            places: SecondaryMap::new(),
            resting: BTreeSet::new(),
            freed: false,
            held: Held::default(),
            strangers: 0,
            told_full: false,
            timers: BinaryHeap::new(),
            asking: VecDeque::new(),
            watched: Vec::new(),
            watch_at: None,
            buffers: [None; 2],
            pings: HashMap::new(),
            next_ping: 1,
            ready: Vec::new(),
            spare: Vec::new(),
            batch_at: None,
            batches: Vec::new(),
        })
    }

    /// The port it listens at; 0 for a client.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.listener.as_ref().map_or(0, Listener::port)
    }

    /// Readable when there is something.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.poll.fd()
    }

    /// False: do not sleep.
    #[must_use]
    pub fn arm(&self) -> bool {
        !self.freed
    }

    /// When to look although nothing wakes a sleeper.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let first = self.timers.peek().map(|Reverse((at, _))| *at);
        let ask = self.asking.front().map(|(at, _)| *at);
        [first, ask, self.deaf_until, self.watch_at].into_iter().flatten().min()
    }

    /// Unposted payload held, bytes.
    #[must_use]
    pub fn buffered(&self) -> u64 {
        self.held.bytes
    }

    /// Socket buffers from now on.
    pub fn set_buffer(&mut self, send: bool, bytes: usize) {
        self.buffers[usize::from(send)] = Some(bytes);
        if let Some(listener) = &mut self.listener {
            listener.set_buffers(self.buffers);
        }
    }

    fn place(&mut self, t: &Tables, addr: AddrKey) -> &mut Place {
        if !self.places.contains_key(addr) {
            let addrs = t.addrs.get(addr).map(|a| a.places.clone()).unwrap_or_default();
            self.places.insert(addr, Place { addrs, ..Place::default() });
        }
        &mut self.places[addr]
    }

    // Posts.

    /// Begins a send or a receive.
    ///
    /// # Errors
    /// The code of the refusal.
    pub fn post(&mut self, t: &mut Tables, post: &Post<'_>, is_recv: bool) -> Result<Posted, Code> {
        let place = self.place(t, post.addr);
        let reachable = place.conn.is_some() || !place.addrs.is_empty();
        if is_recv {
            return self.post_recv(t, post, reachable);
        }
        if !reachable {
            return Err(Code::ECONNRESET);
        }
        let key = self.connect(post.addr)?;
        let conn = &mut self.conns[key];
        let wire = conn.stream.wire().unwrap_or(self.settings.wire);
        if post.unexpected.is_some_and(|class| class > 0) && wire == Wire::OrangeFs {
            return Err(Code::EOPNOTSUPP);
        }
        let header = Header::of(post.tag, post.size, post.unexpected).encode(wire);
        let mut out = Out::new(post.key, &header[..wire.header_len()], post.pieces, post.size);
        let (size, out_of) = (post.size, conn.out.len());
        let waits = out_of > 0 || conn.is_connecting();
        if size <= BATCH_SIZE_MAX && (!waits || conn.batched) && self.is_one_of_several() {
            self.conns[key].out.push_back(out.keep(post.pieces));
            if !waits {
                self.conns[key].batched = true;
                self.batches.push(key);
            } else if out_of >= BATCH_MESSAGES {
                self.write(t, key);
            }
            return Ok(Posted::Begun);
        }
        // Whoever takes its time between two posts does not make the first wait for it.
        self.write_batches(t);
        let Some(conn) = self.conns.get_mut(key) else { return Err(Code::ECONNRESET) };
        if conn.out.is_empty() && !conn.is_connecting() {
            match conn.write(&mut out) {
                Ok(true) => {
                    self.watch(key);
                    return Ok(Posted::Done(post.size));
                }
                Ok(false) => self.watch(key),
                Err(failure) => {
                    self.end(t, key, &failure);
                    return Err(Code::ECONNRESET);
                }
            }
        }
        // What did not go at once is remembered piece by piece.
        let conn = &mut self.conns[key];
        conn.out.push_back(out.keep(post.pieces));
        self.set_interest(key);
        Ok(Posted::Begun)
    }

    fn post_recv(&mut self, t: &mut Tables, post: &Post<'_>, reachable: bool) -> Result<Posted, Code> {
        let place = &mut self.places[post.addr];
        if let Some(bytes) = place.matching.take_arrived(post.tag) {
            self.release(post.addr, Held::one(bytes.len() as u64));
            if bytes.len() as u64 > post.size {
                t.ops.end(post.key, Err(Code::EMSGSIZE));
                return Ok(Posted::Begun);
            }
            conn::write_to(post.pieces, 0, &bytes);
            return Ok(Posted::Done(bytes.len() as u64));
        }
        if !reachable {
            return Err(Code::ECONNRESET);
        }
        let conn = self.places[post.addr].conn;
        if let Some(key) = conn
            && self.takes_over(t, key, post)
        {
            return Ok(Posted::Begun);
        }
        let posted = PostedRecv { key: post.key, pieces: post.pieces.to_vec(), size: post.size };
        let place = &mut self.places[post.addr];
        place.matching.post(post.tag, posted);
        if let Some(key) = conn {
            if self.conns[key].watched.is_none() {
                self.watch(key);
            }
        } else if place.ask_at.is_none() {
            let at = Instant::now() + ASK_AFTER;
            place.ask_at = Some(at);
            self.asking.push_back((at, post.addr));
        }
        Ok(Posted::Begun)
    }

    /// A message that has begun to come and that nobody had posted for: the receive takes it from
    /// where it is.
    fn takes_over(&mut self, t: &mut Tables, key: ConnKey, post: &Post<'_>) -> bool {
        let conn = &mut self.conns[key];
        let Some(incoming) = conn.incoming.as_mut().filter(|i| i.header.tag == post.tag) else { return false };
        let Dest::Buffer(bytes) = &mut incoming.dest else { return false };
        let bytes = std::mem::take(bytes);
        if incoming.header.size > post.size {
            incoming.dest = Dest::Discard;
            t.ops.end(post.key, Err(Code::EMSGSIZE));
        } else {
            conn::write_to(post.pieces, 0, &bytes);
            incoming.dest = Dest::User { key: post.key, pieces: post.pieces.to_vec() };
        }
        self.release(post.addr, Held::one(bytes.len() as u64));
        self.read(t, key);
        true
    }

    // Connections.

    /// The connection of an address, dialled if there is none.
    fn connect(&mut self, addr: AddrKey) -> Result<ConnKey, Code> {
        if let Some(key) = self.places[addr].conn {
            return Ok(key);
        }
        self.places[addr].ask_at = None;
        // What an earlier incarnation sent is nobody's any more.
        let stale = self.places[addr].matching.forget_arrived();
        self.release(addr, stale);
        let mut last = Code::EADDRNOTAVAIL;
        for i in 0..self.places[addr].addrs.len() {
            match self.dial(addr, i) {
                Ok(key) => return Ok(key),
                Err(error) => last = codes::of_io(&error),
            }
        }
        Err(last)
    }

    fn dial(&mut self, addr: AddrKey, which: usize) -> std::io::Result<ConnKey> {
        let to = self.places[addr].addrs[which];
        let (socket, connecting) = sockets::dial(to, self.buffers, self.settings.engine.peer_timeout)?;
        let until = connecting.then(|| Instant::now() + self.settings.engine.connect_timeout);
        let conn = Conn::new(socket, addr, Some(self.settings.wire), until, which);
        let key = self.add(conn)?;
        self.places[addr].conn = Some(key);
        Ok(key)
    }

    fn add(&mut self, conn: Conn) -> std::io::Result<ConnKey> {
        let (fd, connecting) = (conn.fd(), conn.is_connecting());
        let key = self.conns.insert(conn);
        if let Err(error) = self.poll.add(fd, key.data().as_ffi(), true, connecting) {
            self.conns.remove(key);
            return Err(error);
        }
        self.conns[key].interest = (true, connecting);
        self.arm_timer(key);
        Ok(key)
    }

    /// Closes a connection: its operations end, and nobody else's.
    fn end(&mut self, t: &mut Tables, key: ConnKey, why: &Failure) {
        let Some(conn) = self.conns.remove(key) else { return };
        self.poll.remove(conn.fd());
        self.resting.remove(&key);
        let addr = conn.addr;
        let place = &mut self.places[addr];
        let stranger = place.addrs.is_empty();
        if let Failure::Refused(what) = why {
            t.counters.refused += 1;
            let who = t.addrs.get(addr).and_then(|a| a.places.first()).map_or_else(String::new, ToString::to_string);
            tell(&format!("{who} is not listened to any more: {what}"));
        }
        // Another address of the host may be the right one, as long as nothing has been said.
        let next = conn.which + 1;
        if conn.is_connecting() && next < place.addrs.len() && !matches!(why, Failure::Local) {
            place.conn = None;
            let out = conn.out;
            for i in next..self.places[addr].addrs.len() {
                if let Ok(new) = self.dial(addr, i) {
                    self.conns[new].out = out;
                    self.set_interest(new);
                    return;
                }
            }
            return self.fail(t, addr, out.into_iter().map(|o| o.key).collect(), why.code(true));
        }
        let was_connecting = conn.is_connecting();
        let mut keys: Vec<OpKey> = conn.out.iter().map(|o| o.key).collect();
        if let Some(incoming) = conn.incoming {
            match incoming.dest {
                Dest::User { key, .. } => keys.push(key),
                Dest::Buffer(bytes) | Dest::Inbox(bytes) => self.release(addr, Held::one(bytes.len() as u64)),
                Dest::Discard => {}
            }
        }
        self.fail(t, addr, keys, why.code(was_connecting));
        let unlooked = t.forget_unlooked(addr);
        self.forget_entries(addr, &unlooked);
        if stranger {
            self.strangers -= 1;
            t.is_gone(addr);
        }
    }

    /// What waits for an address fails.
    fn fail(&mut self, t: &mut Tables, addr: AddrKey, mut keys: Vec<OpKey>, code: Code) {
        let place = &mut self.places[addr];
        place.conn = None;
        keys.extend(place.matching.take_posted());
        t.fail(keys, code);
    }

    /// So much more is held of an address.
    fn hold(&mut self, addr: AddrKey, more: Held) {
        self.held.add(more);
        if let Some(place) = self.places.get_mut(addr) {
            place.held.add(more);
        }
    }

    /// So much less is.
    fn release(&mut self, addr: AddrKey, less: Held) {
        self.held.take(less);
        if let Some(place) = self.places.get_mut(addr) {
            place.held.take(less);
        }
        self.freed |= !self.resting.is_empty();
    }

    fn set_interest(&mut self, key: ConnKey) {
        let resting = self.resting.contains(&key);
        let Some(conn) = self.conns.get_mut(key) else { return };
        let wanted = (!resting, conn.is_connecting() || !conn.out.is_empty());
        if conn.interest != wanted {
            conn.interest = wanted;
            self.poll.modify(conn.fd(), key.data().as_ffi(), wanted.0, wanted.1);
        }
        self.arm_timer(key);
    }

    fn arm_timer(&mut self, key: ConnKey) {
        let resting = self.resting.contains(&key);
        let Some(conn) = self.conns.get_mut(key) else { return };
        // (A header has less time than the payload before it had.)
        let due = conn.deadline(resting, &self.settings);
        if let Some(at) = due.filter(|at| conn.armed.is_none_or(|armed| *at < armed)) {
            conn.armed = Some(at);
            self.timers.push(Reverse((at, key)));
            if self.timers.len() > 2 * self.conns.len() + TIMERS_SPARE {
                let conns = &self.conns;
                self.timers.retain(|Reverse((at, key))| conns.get(*key).is_some_and(|c| c.armed == Some(*at)));
            }
        }
    }

    // Progress.

    /// One pass.
    pub fn progress(&mut self, t: &mut Tables) {
        let now = Instant::now();
        self.write_batches(t);
        self.wake_resting(t);
        self.run_timers(t, now);
        let mut ready = std::mem::take(&mut self.ready);
        self.poll.look(&mut ready);
        for sockets::Ready { id, readable, writable, over } in ready.drain(..) {
            if id == LISTENER {
                self.accept(t, now);
                continue;
            }
            let key: ConnKey = KeyData::from_ffi(id).into();
            if over && self.resting.contains(&key) {
                // It would be told of for ever, and what is left in it has no room.
                self.end(t, key, &Failure::Ended);
                continue;
            }
            if writable {
                self.write(t, key);
            }
            if readable {
                self.read(t, key);
            }
        }
        self.ready = ready;
    }

    fn wake_resting(&mut self, t: &mut Tables) {
        if !std::mem::take(&mut self.freed) {
            return;
        }
        for key in self.resting.iter().copied().collect::<Vec<_>>() {
            if !self.must_rest(key, self.allowance(key)) {
                self.resting.remove(&key);
                self.read(t, key);
                self.set_interest(key);
            }
        }
    }

    fn run_timers(&mut self, t: &mut Tables, now: Instant) {
        if self.deaf_until.is_some_and(|until| until <= now) {
            self.deaf_until = None;
            if let Some(listener) = &self.listener {
                self.poll.modify(listener.fd(), LISTENER, true, false);
            }
        }
        if self.watch_at.is_some_and(|at| at <= now) {
            self.look_at_watched(t, now);
        }
        self.ask(t, now);
        while let Some(Reverse((at, key))) = self.timers.peek().copied() {
            if at > now {
                return;
            }
            self.timers.pop();
            let resting = self.resting.contains(&key);
            let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.armed == Some(at)) else { continue };
            conn.armed = None;
            match conn.deadline(resting, &self.settings) {
                Some(due) if due <= now => {
                    let why = conn.too_late();
                    self.end(t, key, &why);
                }
                _ => self.arm_timer(key),
            }
        }
    }

    /// Dials those whom somebody wants to hear of and nobody has sent to.
    fn ask(&mut self, t: &mut Tables, now: Instant) {
        while let Some(&(at, addr)) = self.asking.front()
            && at <= now
        {
            self.asking.pop_front();
            // (It may have been dialled meanwhile, and asked for anew.)
            let Some(place) = self.places.get_mut(addr).filter(|p| p.ask_at == Some(at)) else { continue };
            place.ask_at = None;
            if place.conn.is_none()
                && place.matching.waits()
                && let Err(code) = self.connect(addr)
            {
                self.fail(t, addr, Vec::new(), code);
            }
        }
    }

    /// Something leaves by a connection, or is waited for.
    fn watch(&mut self, key: ConnKey) {
        let now = Instant::now();
        // Nobody has looked for a while: what was under way then says nothing of now.
        let overdue = self.watch_at.is_some_and(|at| at <= now);
        let Some(conn) = self.conns.get_mut(key).filter(|conn| overdue || conn.watched.is_none()) else { return };
        if conn.watched.replace(now).is_none() {
            self.watched.push(key);
        }
        self.watch_at.get_or_insert(now + self.settings.engine.peer_timeout / WATCHES);
    }

    /// Ends the connections whose peers' hosts do not acknowledge anything (T10).
    fn look_at_watched(&mut self, t: &mut Tables, now: Instant) {
        let silence = self.settings.engine.peer_timeout;
        let mut gone = Vec::new();
        let (conns, places) = (&mut self.conns, &self.places);
        self.watched.retain(|&key| {
            let Some(conn) = conns.get_mut(key) else { return false };
            let waits = conn.incoming.is_some() || places.get(conn.addr).is_some_and(|p| p.matching.waits());
            let unanswered = conn.unanswered(waits);
            let watched = conn.watched.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
            if unanswered.is_too_long(watched, silence) {
                gone.push(key);
            } else if waits && !conn.is_connecting() && unanswered.is_to_be_asked(silence) {
                conn.ask();
            } else if !waits && !unanswered.any && conn.out.is_empty() {
                conn.watched = None;
            }
            conn.watched.is_some()
        });
        self.watch_at = (!self.watched.is_empty()).then(|| now + silence / WATCHES);
        for key in gone {
            self.end(t, key, &Failure::System(std::io::Error::from_raw_os_error(libc::ETIMEDOUT)));
        }
    }

    fn accept(&mut self, t: &mut Tables, now: Instant) {
        // The program has files of its own, and peers to dial: whoever connects may not take all
        // descriptors. (Programs change the limit.)
        let most = sockets::descriptors_max() / 2;
        for _ in 0..PASS_ACCEPTS {
            let Some(listener) = &self.listener else { return };
            let (socket, from) = match listener.accept(self.settings.engine.peer_timeout) {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return,
                Err(_) => {
                    // Without a free descriptor it would be ready for ever.
                    self.deaf_until = Some(now + DEAF);
                    return self.poll.modify(listener.fd(), LISTENER, false, false);
                }
            };
            if self.strangers >= self.settings.peers_max.min(most) {
                t.counters.refused += 1;
                if self.strangers >= most && !std::mem::replace(&mut self.told_full, true) {
                    tell(&format!(
                        "{most} connections are taken, half of the descriptors of this process (ulimit -n); others are turned away"
                    ));
                }
                continue;
            }
            let addr = t.addrs.arrived(self.number, Some(from));
            let conn = Conn::new(socket, addr, None, None, 0);
            match self.add(conn) {
                Ok(key) => {
                    self.strangers += 1;
                    self.places.insert(addr, Place { conn: Some(key), ..Place::default() });
                }
                Err(_) => t.is_gone(addr),
            }
        }
    }

    // Ends.

    /// The program has an unexpected message.
    pub fn handed_out(&mut self, _t: &mut Tables, from: AddrKey, size: usize) {
        self.release(from, Held::one(size as u64));
    }

    /// Gives an operation up (C2 to C4, T8).
    pub fn cancel(&mut self, t: &mut Tables, key: OpKey, forceful: bool) {
        // What only waits for others has been said to go.
        self.write_batches(t);
        let Some(addr) = t.ops.get(key).filter(|op| op.done.is_none()).map(|op| op.addr) else { return };
        let Some(place) = self.places.get_mut(addr) else { return };
        if place.matching.cancel(key) {
            return t.ops.end(key, Err(Code::ECANCEL));
        }
        let Some(conn) = place.conn.and_then(|c| self.conns.get_mut(c)) else { return };
        if let Some(i) = conn.out.iter().position(|out| out.key == key && !out.has_begun()) {
            conn.out.remove(i);
            return t.ops.end(key, Err(Code::ECANCEL));
        }
        if forceful {
            return self.drop_connection(t, addr);
        }
        // What has begun is finished: thrown away, a message would be lost that the next receive
        // should have had.
        t.ops.limit(key, Limit::Drop, Instant::now() + self.settings.engine.peer_timeout);
    }

    /// Ends the connection of an address.
    pub fn drop_connection(&mut self, t: &mut Tables, addr: AddrKey) {
        self.write_batches(t);
        match self.places.get(addr).map(|p| p.conn) {
            Some(Some(key)) => self.end(t, key, &Failure::Local),
            Some(None) => self.fail(t, addr, Vec::new(), Code::ECONNRESET),
            None => {}
        }
    }

    /// The address names nothing any more, nor do these messages of its that wait to be handed out.
    pub fn forget(&mut self, addr: AddrKey, entries: &[Entry]) {
        self.forget_entries(addr, entries);
        let stale = self.places.get_mut(addr).map_or_else(Held::default, |p| p.matching.forget_arrived());
        self.release(addr, stale);
        if let Some(place) = self.places.remove(addr)
            && let Some(conn) = place.conn.and_then(|key| self.conns.remove(key))
        {
            self.poll.remove(conn.fd());
            self.strangers -= usize::from(place.addrs.is_empty());
        }
    }

    /// Messages of an address that nobody will be handed.
    fn forget_entries(&mut self, addr: AddrKey, entries: &[Entry]) {
        for entry in entries {
            self.release(addr, Held::one(entry.size as u64));
        }
    }

    // Whether somebody is there.

    /// Dials an address, to hang up again.
    ///
    /// # Errors
    /// The code.
    pub fn ping(&mut self, t: &Tables, addr: AddrKey) -> Result<u64, Code> {
        let to = *self.place(t, addr).addrs.first().ok_or(Code::EOPNOTSUPP)?;
        let dial = sockets::Dial::new(to, self.settings.engine.peer_timeout).map_err(|e| codes::of_io(&e))?;
        let ticket = self.next_ping;
        self.next_ping += 1;
        self.pings.insert(ticket, dial);
        Ok(ticket)
    }

    /// Whether it was answered, if that is known.
    pub fn pinged(&mut self, _t: &mut Tables, ticket: u64) -> Option<Result<(), Code>> {
        let found = self.pings.get(&ticket).map_or(Some(Err(Code::EINVAL)), sockets::Dial::result);
        if found.is_some() {
            self.pings.remove(&ticket);
        }
        found
    }

    /// Nobody waits for it any more.
    pub fn no_ping(&mut self, ticket: u64) {
        self.pings.remove(&ticket);
    }

    /// Lets what was sent leave, for a while, and is over.
    pub fn close_all(&mut self, until: Instant) {
        let busy = |tcp: &Tcp| tcp.conns.values().any(|c| !c.out.is_empty());
        let mut t = Tables::default();
        self.write_batches(&mut t);
        while busy(self) && Instant::now() < until {
            let keys: Vec<ConnKey> = self.conns.iter().filter(|(_, c)| !c.out.is_empty()).map(|(k, _)| k).collect();
            for key in keys {
                self.write(&mut t, key);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.conns.clear();
        self.places.clear();
        self.pings.clear();
        // (A call that still resolves a name may hold the library for a while longer.)
        self.listener = None;
    }

    /// As [`Tcp::close_all`], for as long as the settings say.
    pub fn close(&mut self) {
        self.close_all(Instant::now() + self.settings.engine.linger);
    }
}
