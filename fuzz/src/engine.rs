//! The messages of two endpoints over a network that does what the input says: matching, placing,
//! parity, remote memory and completions, in memory that may not be touched a byte too far nor a
//! moment too long. Afterwards the network heals and everything must come to its end.
//!
//! Byte `i` of operation `id` is [`byte_of`]`(id, i)`; the immediate data of every message and
//! write names the operation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use arbitrary::Arbitrary;
use weir_link::{Level, Time};
use weir_message::{Access, Completion, Config, MessageError, Messages, OpError, OpKind, SendMode};

use crate::driver::{Driver, Ended, Host, How};
use crate::guarded::Guarded;
use crate::input::Rest;
use crate::upper::byte_of;

/// Packets that may be under way to one side; what comes beyond is lost.
const FLYING_MAX: usize = 20_000;
/// After healing all must be over within this many rounds.
const HEALED_ROUNDS: usize = 20_000;
/// The part of a region that is read; its content does not change.
const READABLE: usize = 48 << 10;
/// The part behind it, which is written, each byte by one operation at most.
const WRITABLE: usize = 256 << 10;
/// Longest message.
const LONGEST: usize = 300_000;
const RIGHTS: Access = Access { remote_read: true, remote_write: true };
/// Counters of a region, behind the part that is written.
const COUNTERS: usize = 4;
/// How often connections are looked at while something is open.
const LOOK_NS: u64 = 1_100_000;
/// The only peer of each side.
const PEER: u32 = 0;

/// One run.
#[derive(Arbitrary, Debug)]
pub struct Input {
    options: u16,
    delay_us: u16,
    steps: Rest<Step, 200>,
}

/// One event. `side` says whose; numbers are taken modulo what there is.
#[derive(Arbitrary, Copy, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Step {
    Send {
        side: bool,
        tag: Tag,
        len: Len,
        mode: u8,
    },
    Recv {
        side: bool,
        tag: Tag,
        any_source: bool,
        ignore: bool,
        room: Len,
        split: bool,
    },
    /// Many receives for whatever comes.
    RecvAll {
        side: bool,
        count: u8,
    },
    Cancel {
        side: bool,
        which: u8,
    },
    Register {
        side: bool,
    },
    Unregister {
        side: bool,
        which: u8,
    },
    /// Into a region of the other side; `wrong` ones are to be refused.
    Write {
        side: bool,
        which: u8,
        len: Len,
        mode: u8,
        data: bool,
        wrong: u8,
    },
    Read {
        side: bool,
        which: u8,
        at: u16,
        len: u16,
        wrong: u8,
    },
    /// One is added to counters of a region of the other side; `wrong` ones are to be refused.
    Add {
        side: bool,
        which: u8,
        counter: u8,
        count: u8,
        fetch: bool,
        wrong: u8,
    },
    /// Some packets arrive, beginning with the `skip`th under way.
    Deliver {
        side: bool,
        skip: u8,
        count: u8,
    },
    Drop {
        side: bool,
        skip: u8,
        count: u8,
    },
    Duplicate {
        side: bool,
        skip: u8,
    },
    AdvanceUs(u16),
    /// The network works for some rounds; of 256 packets `loss` get lost, others come late.
    Run {
        rounds: u8,
        loss: u8,
        seed: u16,
    },
}

/// A length: how long, roughly, and the rest.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub struct Len(u8, u16);

impl Len {
    fn bytes(self) -> usize {
        let fine = usize::from(self.1);
        match self.0 % 6 {
            0 => fine % 64,
            1 => fine % 2000,
            2 => fine % 5000,
            3 => fine % 40_000,
            4 => fine,
            _ => 65_536 + 3 * fine % (LONGEST - 65_536),
        }
    }
}

/// A tag, or none.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub struct Tag(u8);

impl Tag {
    fn value(self) -> Option<u64> {
        (!self.0.is_multiple_of(5)).then(|| u64::from(self.0 % 5))
    }
}

pub(crate) fn how(mode: u8) -> How {
    let mode_of = [SendMode::Inject, SendMode::Transmit, SendMode::Acknowledged, SendMode::Delivery, SendMode::Match];
    How { mode: mode_of[usize::from(mode % 5)], copy: mode & 0xe0 == 0xe0, split: mode & 8 != 0 }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn pattern(id: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| byte_of(id, i)).collect()
}

/// A message on its way.
#[derive(Debug)]
struct Message {
    from: usize,
    tag: Option<u64>,
    len: usize,
    received: bool,
}

/// An operation that has not ended.
#[derive(Debug)]
enum What {
    Send(u64),
    /// `any`: of the class that takes every tagged, or every untagged message.
    Recv {
        cancelled: bool,
        any: Option<bool>,
    },
    Write {
        id: u64,
        region: usize,
        sure: bool,
        wrong: bool,
    },
    Read {
        region: usize,
        at: usize,
        wrong: bool,
    },
    Add {
        region: usize,
        counter: usize,
        count: usize,
        fetch: bool,
        wrong: bool,
    },
}

/// A counter of a region: the additions begun, those that are done, and what it held before some of
/// them.
#[derive(Debug, Default)]
struct Counter {
    begun: u64,
    added: u64,
    held: BTreeSet<u64>,
}

/// A region of one side.
#[derive(Debug)]
struct Region {
    side: usize,
    key: u64,
    live: bool,
    /// Bytes of the writable part that have been given to writes.
    given: usize,
    counters: [Counter; COUNTERS],
}

/// Where a write goes.
#[derive(Debug)]
struct Landing {
    region: usize,
    at: usize,
    len: usize,
}

pub(crate) struct Net<H> {
    pub(crate) now: Time,
    pub(crate) sides: [Driver<H>; 2],
    addrs: [SocketAddr; 2],
    flying: [VecDeque<Vec<u8>>; 2],
    /// Not ended, by side and context.
    ops: BTreeMap<(usize, usize), What>,
    messages: BTreeMap<u64, Message>,
    regions: Vec<Region>,
    writes: BTreeMap<u64, Landing>,
    /// Writes whose notice is still to come, or may be.
    noticed: BTreeSet<u64>,
    next_id: u64,
    pub(crate) ended: u64,
    /// A side has given the other up, after too many lost packets: only memory is watched from now
    /// on.
    down: bool,
}

fn addr(side: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + u8::try_from(side).expect("0 or 1")], 4791))
}

pub(crate) const KEY: [u8; 32] = [7; 32];

pub(crate) fn id_of(side: usize) -> u64 {
    1000 + side as u64
}

pub(crate) fn seed_of(side: usize) -> [u8; 32] {
    [40 + u8::try_from(side).expect("0 or 1"); 32]
}

/// The settings that the input chooses.
pub(crate) fn config(options: u16) -> Config {
    let bit = |n: u16| usize::from(options >> n & 1);
    Config {
        eager_bytes: [64 << 10, 1000][bit(1)],
        copy_bytes: [64 << 10, 0][bit(2)],
        credit_msgs: [4096, 16][bit(4)],
        ..Config::default()
    }
}

pub(crate) fn level(options: u16) -> Level {
    if options & 1 == 0 { Level::Integrity } else { Level::Encrypt }
}

pub(crate) fn credit_bytes(options: u16) -> u64 {
    if options >> 3 & 1 == 0 { 1 << 20 } else { 1 << 17 }
}

pub(crate) fn tune(options: u16, proto: &mut weir_link::Config) {
    if options >> 5 & 1 != 0 {
        proto.parity_min_loss_ppm = 0;
        proto.parity_min_rtt = core::time::Duration::ZERO;
    }
    if options >> 6 & 1 != 0 {
        proto.session.grant_budget = 1 << 14;
        proto.session.grant_share = 1 << 12;
        proto.session.grant_step = 1 << 11;
    }
}

/// Runs the input and heals; returns how many operations ended well.
pub fn run(input: &Input) -> u64 {
    let mut net = Net::new(input.options);
    for step in &input.steps.0 {
        net.step(*step);
        net.settle();
    }
    net.heal(1000 * (1 + u64::from(input.delay_us % 4000)));
    net.ended
}

impl Net<Messages<Guarded, ()>> {
    fn new(options: u16) -> Self {
        let cfg = config(options);
        let mut proto = weir_link::Config {
            level: level(options),
            rx_buffer_bytes: 4 << 20,
            max_datagram: 1472,
            ..weir_link::Config::default()
        };
        proto.session.initial_credit_bytes = credit_bytes(options);
        tune(options, &mut proto);
        let side = |i: usize| Driver::new(&cfg, proto.clone(), KEY, id_of(i), addr(i), seed_of(i));
        Net::of([side(0), side(1)], [addr(0), addr(1)])
    }
}

impl<H: Host> Net<H> {
    /// Of two that do not know each other yet.
    pub(crate) fn of(mut sides: [Driver<H>; 2], addrs: [SocketAddr; 2]) -> Self {
        let names = [sides[0].name(), sides[1].name()];
        for i in 0..2 {
            assert_eq!(sides[i].insert_peer(&names[1 - i]), PEER);
        }
        Net {
            now: Time(1_000_000),
            sides,
            addrs,
            flying: Default::default(),
            ops: BTreeMap::new(),
            messages: BTreeMap::new(),
            regions: Vec::new(),
            writes: BTreeMap::new(),
            noticed: BTreeSet::new(),
            next_id: 1,
            ended: 0,
            down: false,
        }
    }

    /// What the engines want to send gets under way, and what has ended is looked at.
    pub(crate) fn settle(&mut self) {
        for i in 0..2 {
            self.transmit(i);
            self.down |= self.sides[i].is_down(PEER);
            while let Some(e) = self.sides[i].poll(self.now) {
                self.ended(i, &e);
            }
            self.transmit(i);
        }
    }

    fn transmit(&mut self, i: usize) {
        let mut count = 0;
        while let Some((remote, bytes)) = self.sides[i].transmit(self.now) {
            assert_eq!(remote, self.addrs[1 - i]);
            if self.flying[1 - i].len() < FLYING_MAX {
                self.flying[1 - i].push_back(bytes);
            }
            count += 1;
            assert!(count < 2 * FLYING_MAX, "transmits for ever");
        }
    }

    fn ended(&mut self, side: usize, e: &Ended) {
        let c = &e.completion;
        self.down |= matches!(c.result, Err(OpError::PeerDown(_)));
        self.ended += u64::from(c.result.is_ok());
        if c.kind == OpKind::RemoteWrite {
            return self.notice(side, c);
        }
        let what = self.ops.remove(&(side, c.context)).expect("an operation ended twice, or never began");
        if self.down {
            return;
        }
        match what {
            What::Send(id) => assert_eq!(c.result, Ok(()), "send {id} failed"),
            What::Recv { cancelled, .. } if c.result == Err(OpError::Cancelled) => assert!(cancelled, "not cancelled"),
            What::Recv { .. } => self.received(side, e),
            What::Write { id, region, sure, wrong } => {
                let live = self.regions[region].live;
                match c.result {
                    Ok(()) if wrong => assert!(!sure, "refused write {id} succeeded: {:?}", self.writes[&id]),
                    Ok(()) if sure && live => self.landed(id),
                    Ok(()) => {}
                    Err(error) => {
                        assert!(error == OpError::Access && (wrong || !live), "a write failed: {error}");
                        assert!(!self.noticed.remove(&id) || !live, "notice of a write that failed is awaited");
                    }
                }
            }
            What::Add { region, counter, count, fetch, wrong } => match c.result {
                Ok(()) => {
                    assert!(!wrong && e.memory.len() == if fetch { 8 * count } else { 0 }, "added something else");
                    for (i, counter) in (counter..counter + count).enumerate() {
                        self.added(region, counter, fetch.then(|| word(&e.memory, 8 * i)));
                    }
                }
                Err(error) => {
                    assert_eq!(error, OpError::Access);
                    assert!(wrong || !self.regions[region].live, "an addition failed: {error}");
                }
            },
            What::Read { region, at, wrong } => match c.result {
                Ok(()) => {
                    let content = pattern(region as u64, READABLE);
                    assert!(!wrong && e.memory == content[at..at + e.memory.len()], "read something else");
                }
                Err(error) => {
                    assert!(matches!(error, OpError::Access | OpError::Cancelled), "{error}");
                    assert!(wrong || !self.regions[region].live, "a read failed: {error}");
                }
            },
        }
    }

    fn received(&mut self, side: usize, e: &Ended) {
        let c = &e.completion;
        let id = c.data.expect("every message names its operation");
        let m = self.messages.get_mut(&id).expect("a message nobody sent");
        assert!(m.from != side && !std::mem::replace(&mut m.received, true), "received twice");
        assert_eq!((c.tag, c.source), (m.tag.unwrap_or(0), Some(PEER)));
        let room = e.memory.len();
        match c.result {
            Ok(()) => assert_eq!(c.len, m.len),
            Err(OpError::Truncated { excess }) => assert_eq!((c.len, m.len), (room, room + excess)),
            Err(other) => panic!("a receive failed: {other}"),
        }
        let (bytes, rest) = e.memory.split_at(c.len);
        assert!(bytes == pattern(id, c.len), "message {id} of {} bytes changed on the way", m.len);
        assert!(rest.iter().all(|b| *b == 0), "bytes behind the message were written");
    }

    /// A write is in its region, all of it.
    fn landed(&self, id: u64) {
        let Landing { region, at, len } = self.writes[&id];
        let r = &self.regions[region];
        let memory = self.sides[r.side].region(r.key).expect("live");
        assert!(memory[at..at + len] == pattern(id, len), "write {id} of {len} bytes is not there");
    }

    /// An addition is done: each once, and each has seen another value.
    fn added(&mut self, region: usize, counter: usize, held: Option<u64>) {
        let r = &mut self.regions[region];
        let c = &mut r.counters[counter];
        c.added += 1;
        assert!(held.is_none_or(|held| held < c.begun && c.held.insert(held)), "two have seen {held:?}");
        if r.live {
            let memory = self.sides[r.side].region(r.key).expect("live");
            let holds = word(&memory, READABLE + WRITABLE + 8 * counter);
            assert!((c.added..=c.begun).contains(&holds), "{holds}: {} of {} additions are done", c.added, c.begun);
        }
    }

    fn notice(&mut self, side: usize, c: &Completion) {
        let id = c.data.expect("a notice has data");
        assert!(self.noticed.remove(&id), "a notice of nothing, or the second");
        let w = &self.writes[&id];
        let r = &self.regions[w.region];
        assert!(r.side == side && c.len == w.len, "{} of {} bytes", c.len, w.len);
        if r.live {
            self.landed(id);
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id << 20
    }

    fn begun(&mut self, side: usize, begun: Result<usize, MessageError>, what: What) -> bool {
        match begun {
            Ok(context) => {
                assert!(self.ops.insert((side, context), what).is_none());
                true
            }
            Err(_) => false,
        }
    }

    pub(crate) fn step(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Send { side, tag, len, mode } => self.send(side.into(), tag.value(), len.bytes(), how(mode)),
            Step::Recv { side, tag, any_source, ignore, room, split } => {
                let (i, source) = (usize::from(side), (!any_source).then_some(PEER));
                let ignore = if ignore { 3 } else { 0 };
                let begun = self.sides[i].recv(now, source, tag.value(), ignore, room.bytes(), split);
                self.begun(i, begun, What::Recv { cancelled: false, any: None });
            }
            Step::RecvAll { side, count } => {
                for k in 0..count % 16 {
                    self.recv_any(side.into(), k % 4 > 0);
                }
            }
            Step::Cancel { side, which } => {
                let i = usize::from(side);
                let posted = self.ops.iter().filter(|(k, w)| k.0 == i && matches!(w, What::Recv { .. }));
                let posted: Vec<usize> = posted.map(|(k, _)| k.1).collect();
                if let Some(&context) = posted.get(usize::from(which) % posted.len().max(1))
                    && self.sides[i].cancel(now, context)
                {
                    self.ops.insert((i, context), What::Recv { cancelled: true, any: None });
                }
            }
            Step::Register { side } => self.register(side.into()),
            Step::Unregister { side, which } => {
                if let Some(r) = self.pick_region(side.into(), which)
                    && self.regions[r].live
                {
                    self.regions[r].live = false;
                    let key = self.regions[r].key;
                    assert!(self.sides[usize::from(side)].unregister(now, key));
                }
            }
            Step::Write { side, which, len, mode, data, wrong } => {
                self.write(side.into(), which, len.bytes(), how(mode), data, wrong);
            }
            Step::Read { side, which, at, len, wrong } => self.read(side.into(), which, at, len, wrong),
            Step::Add { side, which, counter, count, fetch, wrong } => {
                self.add(side.into(), which, (counter.into(), count.into()), fetch, wrong);
            }
            Step::Deliver { side, skip, count } => {
                let to = usize::from(side);
                let at = usize::from(skip) % self.flying[to].len().max(1);
                for _ in 0..=count {
                    let Some(p) = self.flying[to].remove(at) else { break };
                    self.arrive(to, p);
                }
            }
            Step::Drop { side, skip, count } => {
                let to = usize::from(side);
                let at = usize::from(skip) % self.flying[to].len().max(1);
                for _ in 0..=count {
                    self.flying[to].remove(at);
                }
            }
            Step::Duplicate { side, skip } => {
                let to = usize::from(side);
                let at = usize::from(skip) % self.flying[to].len().max(1);
                if let Some(p) = self.flying[to].get(at).cloned() {
                    self.flying[to].push_back(p);
                }
            }
            Step::AdvanceUs(us) => self.advance(1000 * u64::from(us % 3000)),
            Step::Run { rounds, loss, seed } => self.run_network(rounds % 64, loss, seed),
        }
    }

    pub(crate) fn send(&mut self, side: usize, tag: Option<u64>, len: usize, how: How) {
        let id = self.id();
        let begun = self.sides[side].send(self.now, PEER, tag, id, &pattern(id, len), how);
        if self.begun(side, begun, What::Send(id)) {
            self.messages.insert(id, Message { from: side, tag, len, received: false });
        }
    }

    fn recv_any(&mut self, side: usize, tagged: bool) {
        let begun = self.sides[side].recv(self.now, None, tagged.then_some(0), u64::MAX, LONGEST, false);
        self.begun(side, begun, What::Recv { cancelled: false, any: Some(tagged) });
    }

    fn register(&mut self, side: usize) {
        if self.regions.len() >= 16 {
            return;
        }
        let mut content = pattern(self.regions.len() as u64, READABLE);
        content.resize(READABLE + WRITABLE + 8 * COUNTERS, 0);
        let key = self.sides[side].register(&content, RIGHTS).expect("room for regions");
        self.regions.push(Region { side, key, live: true, given: 0, counters: Default::default() });
    }

    fn pick_region(&self, side: usize, which: u8) -> Option<usize> {
        let own: Vec<usize> = (0..self.regions.len()).filter(|r| self.regions[*r].side == side).collect();
        own.get(usize::from(which) % own.len().max(1)).copied()
    }

    fn write(&mut self, side: usize, which: u8, len: usize, how: How, data: bool, wrong: u8) {
        let Some(region) = self.pick_region(1 - side, which) else { return };
        let (id, r) = (self.id(), &mut self.regions[region]);
        // One of eight names no region, or bytes behind its end.
        let wrong = if wrong.is_multiple_of(8) { 1 + wrong / 8 % 2 } else { 0 };
        let mut at = READABLE + r.given;
        if wrong == 0 && r.given + len > WRITABLE {
            return;
        }
        let key = r.key + if wrong == 1 { 1000 } else { 0 };
        if wrong == 2 {
            at = READABLE + WRITABLE + 8 * COUNTERS - len / 2;
        }
        let wrong = wrong == 1 || (wrong == 2 && at + len > READABLE + WRITABLE + 8 * COUNTERS);
        let gone = !r.live;
        let data = data.then_some(id);
        let begun = self.sides[side].write(self.now, PEER, key, at as u64, data, &pattern(id, len), how);
        let sure = matches!(how.mode, SendMode::Delivery | SendMode::Match);
        if self.begun(side, begun, What::Write { id, region, sure, wrong: wrong || gone }) {
            if !wrong {
                self.regions[region].given += len;
            }
            self.writes.insert(id, Landing { region, at, len });
            if data.is_some() && !wrong && !gone {
                self.noticed.insert(id);
            }
        }
    }

    fn read(&mut self, side: usize, which: u8, at: u16, len: u16, wrong: u8) {
        let Some(region) = self.pick_region(1 - side, which) else { return };
        let at = usize::from(at) % READABLE;
        let len = usize::from(len).min(READABLE - at);
        let wrong = wrong.is_multiple_of(8);
        let r = &self.regions[region];
        let key = r.key + if wrong { 1000 } else { 0 };
        // Nothing is asked of the peer for no bytes.
        let wrong = (wrong || !r.live) && len > 0;
        let begun = self.sides[side].read(self.now, PEER, key, at as u64, len, at.is_multiple_of(2));
        self.begun(side, begun, What::Read { region, at, wrong });
    }

    fn add(&mut self, side: usize, which: u8, (counter, count): (usize, usize), fetch: bool, wrong: u8) {
        let Some(region) = self.pick_region(1 - side, which) else { return };
        let counter = counter % COUNTERS;
        let count = 1 + count % (COUNTERS - counter);
        // One of eight names no region.
        let wrong = wrong.is_multiple_of(8);
        let r = &self.regions[region];
        let (key, at) = (r.key + if wrong { 1000 } else { 0 }, (READABLE + WRITABLE + 8 * counter) as u64);
        let wrong = wrong || !r.live;
        let begun = self.sides[side].add(self.now, PEER, key, at, count as u32, fetch);
        if self.begun(side, begun, What::Add { region, counter, count, fetch, wrong }) && !wrong {
            self.regions[region].counters[counter..counter + count].iter_mut().for_each(|c| c.begun += 1);
        }
    }

    fn arrive(&mut self, to: usize, mut bytes: Vec<u8>) {
        self.sides[to].datagram(self.now, self.addrs[1 - to], &mut bytes);
    }

    /// Moves the clock; timers fire as they come due, as a driver that sleeps would have it.
    fn advance(&mut self, ns: u64) {
        let until = self.now.plus_ns(ns);
        let mut rounds = 0;
        loop {
            let due = self.sides.iter().filter_map(Driver::next_timeout).min().filter(|t| *t <= until);
            let Some(due) = due else { break };
            self.now = self.now.max(due);
            for s in &mut self.sides {
                if s.next_timeout().is_some_and(|t| t <= self.now) {
                    s.timeouts(self.now);
                }
            }
            self.settle();
            rounds += 1;
            assert!(rounds < 100_000, "timers come due for ever");
        }
        self.now = until;
    }

    pub(crate) fn run_network(&mut self, rounds: u8, loss: u8, seed: u16) {
        let mut state = u64::from(seed) << 1 | 1;
        let mut dice = move || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 56) as u8
        };
        for _ in 0..rounds {
            self.advance(1000 * (1 + u64::from(seed % 3000)));
            for to in 0..2 {
                for p in std::mem::take(&mut self.flying[to]) {
                    match dice() {
                        d if d < loss => {}
                        255 => self.flying[to].push_back(p),
                        _ => self.arrive(to, p),
                    }
                }
            }
            self.settle();
        }
    }

    /// From now on every packet arrives after `delay_ns`, and there is a receive for every message.
    pub(crate) fn heal(&mut self, delay_ns: u64) {
        for _ in 0..HEALED_ROUNDS {
            if self.down {
                return;
            }
            for i in 0..2 {
                for tagged in [true, false] {
                    let wanted = |m: &&Message| m.from != i && !m.received && m.tag.is_some() == tagged;
                    if self.messages.values().any(|m| wanted(&m)) && self.posted(i, tagged) < 16 {
                        self.recv_any(i, tagged);
                    }
                }
            }
            self.turn_bulk_connections();
            self.settle();
            let over = self.messages.values().all(|m| m.received)
                && self.ops.values().all(|w| matches!(w, What::Recv { .. }))
                && self.sides.iter().all(|s| s.held()[0] == 0);
            if over {
                return self.check();
            }
            let idle = self.flying.iter().all(VecDeque::is_empty);
            let timers = |s: &Driver<H>| s.next_timeout().into_iter().chain(s.host.next_look(self.now));
            let next = self.sides.iter().flat_map(timers).min();
            let next = next.expect("operations are open and no timer runs").since_ns(self.now).max(1);
            // While there are connections, what they bring is looked for.
            let next = if self.sides.iter().any(|s| s.host.connections() > 0) { next.min(LOOK_NS) } else { next };
            self.advance(if idle { next } else { delay_ns });
            for to in 0..2 {
                for p in std::mem::take(&mut self.flying[to]) {
                    self.arrive(to, p);
                }
            }
            self.settle();
        }
        let open: Vec<_> = self.messages.iter().filter(|m| !m.1.received).collect();
        panic!("open after the network healed: {:?}\n{open:?}", self.ops);
    }

    /// Both sides read and write what they can by bulk connections.
    pub(crate) fn turn_bulk_connections(&mut self) {
        for s in &mut self.sides {
            s.host.turn(self.now);
        }
    }

    fn posted(&self, side: usize, tagged: bool) -> usize {
        let all = |w: &What| matches!(w, What::Recv { any, .. } if *any == Some(tagged));
        self.ops.iter().filter(|(k, w)| k.0 == side && all(w)).count()
    }

    /// Nothing is left but receives for messages that nobody sent.
    fn check(&mut self) {
        for ((side, context), what) in std::mem::take(&mut self.ops) {
            assert!(self.sides[side].cancel(self.now, context), "{what:?} is bound to nothing and cannot be cancelled");
            self.ops.insert((side, context), What::Recv { cancelled: true, any: None });
        }
        self.settle();
        for (i, s) in self.sides.iter().enumerate() {
            assert_eq!(s.held(), [0; 4], "side {i} still holds operations, receives, messages, rendezvous transfers");
        }
        let gone = |id: &u64| !self.regions[self.writes[id].region].live;
        assert!(self.noticed.iter().all(gone), "notices that never came: {:?}", self.noticed);
    }
}
