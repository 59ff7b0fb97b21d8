//! Bulk connections (spec/bulk.md): two endpoints with packets and TCP connections between them.
//! The input cuts the bytes of a connection, breaks it off, alters heads, repeats records and
//! greetings and, where it knows the job's key, forges them.
//!
//! Each end is the driver that ships (`core/bulk-driver`), lent rows of bytes in place of sockets
//! and an upper layer that believes nothing.

use std::net::SocketAddr;

use arbitrary::Arbitrary;
use weir_bulk_driver::{Broken, Head, Limits, NotMade, ROUND_NS, Read, Surroundings};
use weir_link::{BulkConfig, BulkNews, BulkRecord, Config, Counters, Endpoint, GREETING_LEN, Level, PeerId, Time};
use weir_link::{RECORD_HEAD_LEN, RecordIn};
use weir_wire::MAX_ENVELOPE_LEN;
use weir_wire::bulk::RECORD_MAX;
use weir_wire::frame::Credit;

use crate::forge::{Lie, Snoop};
use crate::input::{Few, Rest};
use crate::pair::{self, Besides, Net, PEER, addr};
use crate::row::{Past, Row};
use crate::upper::{Upper, byte_of};

/// Connections of a side, and bytes in one turn: few, so that both are reached.
const LIMITS: Limits = Limits { conns: 16, turn_bytes: 64 << 10 };
/// Connections in all.
const CONNS_MAX: usize = 16;
/// Bytes that one step moves at most.
const STEP_BYTES: usize = 64 << 10;
/// Timers that outlive everything else.
const SILENCE_NS: u64 = 60_000_000_000;

/// One run.
#[derive(Arbitrary, Debug)]
pub struct Input {
    options: u16,
    bulk_connections: u8,
    delay_us: u16,
    steps: Rest<Step, 300>,
}

/// One event. `side` is who reads, writes or is called; connections are counted modulo what there
/// is.
#[derive(Arbitrary, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Step {
    Net(pair::Step),
    /// Long enough for a bulk connection.
    Message {
        side: bool,
        stream: u8,
        len: u32,
        connects: bool,
    },
    /// The oldest wish for a connection is fulfilled, or not.
    Connect {
        side: bool,
        refuse: u8,
    },
    Write {
        conn: u8,
        side: bool,
        bytes: u16,
    },
    Read {
        conn: u8,
        side: bool,
        bytes: u16,
    },
    /// Everything that can move does, in pieces of so many bytes.
    Pump {
        rounds: u8,
        bytes: u16,
    },
    /// This end is gone; of what is on its way to the other only so much arrives.
    Break {
        conn: u8,
        side: bool,
        keep: u16,
    },
    /// The network under a connection fails for good: nothing passes any more, not even its end.
    Mute {
        conn: u8,
    },
    /// One byte of a head or greeting changes on its way to `side`.
    Alter {
        conn: u8,
        side: bool,
        which: u8,
        at: u8,
        mask: u8,
    },
    /// A record that went to `side` once comes again.
    Repeat {
        conn: u8,
        side: bool,
        which: u8,
    },
    /// A stranger connects with a greeting that was seen, or with one byte of it changed, or a part
    /// of it.
    Stranger {
        side: bool,
        which: u8,
        at: u8,
        mask: Option<u8>,
        len: u8,
        ends: bool,
    },
    /// A greeting made with the key.
    Greet {
        side: bool,
        ahead: u8,
    },
    Forge {
        conn: u8,
        side: bool,
        lie: Lie,
        msgs: u16,
        bytes: u32,
        read: u32,
        at_once: bool,
    },
    Raw {
        conn: u8,
        side: bool,
        bytes: Few<u8, 120>,
    },
    Tidy,
}

/// What the input may do to the bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Harm {
    /// Only what a head's checksum shows: everything must come to its end.
    Altered,
    /// What was sent comes again: nothing wrong may be delivered.
    Repeated,
    /// It knows the job's key: the books must still be right.
    Forged,
}

/// A connection.
struct Conn {
    id: u32,
    /// What is on its way to each side.
    rows: [Row; 2],
    mute: bool,
    ends: [End; 2],
}

/// One end of it.
#[derive(Default)]
struct End {
    /// The driver has it, or is to take it.
    held: bool,
    waits: bool,
    /// It has failed, and the driver will hear of it.
    broken: bool,
    /// The number of its bulk connection.
    bulk: u32,
    /// Where the next head stands among all bytes that come.
    head_at: u64,
    /// Records are to be written whose heads stand there, and are so long; a part of one was
    /// written.
    heads_due: Vec<(usize, usize)>,
    writes: bool,
}

/// All connections, and what the input knows of them.
struct Books {
    conns: Vec<Conn>,
    made_conns: u32,
    harm: Harm,
    /// Greetings made by the endpoints, and those that were accepted.
    made: Vec<[u8; GREETING_LEN]>,
    accepted: Vec<[u8; GREETING_LEN]>,
    /// Records that went to each side.
    past: [Vec<Past>; 2],
    /// An altered head was read.
    altered: bool,
    /// Which connection may move bytes in this step, and how many more.
    turn: (u32, usize),
    /// Who connects in this step is refused.
    refuses: bool,
    /// What is taken now was read of this one.
    reading: u32,
    moved: bool,
}

/// Both ends' drivers, and what they are lent.
struct BulkConnections {
    drivers: [weir_bulk_driver::BulkConnections<u32>; 2],
    books: Books,
    snoop: Snoop,
}

/// What the driver of one side is lent.
struct Lent<'a> {
    books: &'a mut Books,
    upper: &'a mut Upper,
    side: usize,
}

fn config(options: u16, bulk_connections: u8) -> Config {
    let bit = |n: u8| bulk_connections >> n & 1 != 0;
    let ms = core::time::Duration::from_millis;
    Config {
        level: Level::Integrity,
        bulk: BulkConfig {
            on: true,
            min_rate: 0,
            rtt_max: ms(100_000),
            loss_max_ppm: if bit(0) { 1000 } else { 1_000_000 },
            min_bytes: if bit(1) { 12 << 10 } else { 500 },
            lone_bytes: if bit(1) { 2 << 10 } else { 100 },
            record_bytes: [700, 5000, 64 << 10, 1 << 20][usize::from(bulk_connections >> 2 & 3)],
            pause: ms(1),
            pause_max: ms(if bit(4) { 4 } else { 2000 }),
        },
        ..pair::config(options & !3)
    }
}

/// Runs the input; returns how many records were read to their end.
///
/// # Panics
/// If a promise is broken.
pub fn run(input: &Input) -> u64 {
    let harm = [Harm::Altered, Harm::Altered, Harm::Repeated, Harm::Forged][usize::from(input.bulk_connections >> 6)];
    let cfg = config(input.options, input.bulk_connections);
    let mut net = Net::new(&cfg);
    for s in &mut net.sides {
        s.honest_peer = harm != Harm::Forged;
    }
    let mut bulk_connections = BulkConnections::new(harm);
    if input.bulk_connections & 32 == 0 {
        bulk_connections.meet(&mut net);
        if input.options >> 11 & 3 != 0 {
            bulk_connections.message(&mut net, usize::from(input.options >> 13 & 1), 0, 20 << 10);
            bulk_connections.connect_both(&mut net);
        }
    }
    for step in &input.steps.0 {
        bulk_connections.step(&mut net, step);
        net.collect();
        if harm == Harm::Forged {
            bulk_connections.snoop.look(&net);
        }
        for s in &net.sides {
            s.check_limits(PEER, &cfg);
        }
    }
    if harm == Harm::Altered {
        net.heal(1000 * (1 + u64::from(input.delay_us)), |net| bulk_connections.heal(net));
        let damaged = count(&net, |c| c.bulk.heads_damaged) > 0;
        assert!(!damaged || bulk_connections.books.altered, "a head was damaged that nobody altered");
        assert_eq!(
            count(&net, |c| c.violations),
            0,
            "{:?}",
            net.sides.each_ref().map(|s| s.ep.counters().last_violation)
        );
    } else {
        bulk_connections.silence(&mut net);
    }
    for s in &net.sides {
        s.check_limits(PEER, &cfg);
    }
    count(&net, |c| c.bulk.records_received)
}

fn count(net: &Net, f: impl Fn(&Counters) -> u64) -> u64 {
    net.sides.iter().map(|s| f(&s.ep.counters())).sum()
}

impl BulkConnections {
    fn new(harm: Harm) -> BulkConnections {
        let books = Books {
            conns: Vec::new(),
            made_conns: 0,
            harm,
            made: Vec::new(),
            accepted: Vec::new(),
            past: Default::default(),
            altered: false,
            turn: (0, 0),
            refuses: false,
            reading: 0,
            moved: false,
        };
        BulkConnections {
            drivers: [(); 2].map(|()| weir_bulk_driver::BulkConnections::new(LIMITS)),
            books,
            snoop: Snoop::new(),
        }
    }

    /// Both sides know each other and the way between them.
    fn meet(&mut self, net: &mut Net) {
        for _ in 0..2 {
            for s in &mut net.sides {
                let _ = s.send(net.now, PEER, false, 0, 8, 10, false);
            }
            for _ in 0..6 {
                net.collect();
                self.snoop.look(net);
                net.step(pair::Step::DeliverAll);
                self.snoop.forget_places();
                net.advance(10_000);
            }
        }
    }

    fn message(&mut self, net: &mut Net, side: usize, stream: u8, len: u32) {
        let stream = u16::from(stream % 4);
        let _ = net.sides[side].send(net.now, PEER, false, stream, 16, len, false);
    }

    /// Whoever wants a connection gets it, and the greetings are read.
    fn connect_both(&mut self, net: &mut Net) {
        // Who is not to connect asks for it.
        net.collect();
        net.step(pair::Step::DeliverAll);
        let before = self.books.made_conns;
        for side in [0, 1] {
            self.progress(net, side, (0, 0));
        }
        net.advance(ROUND_NS);
        for id in before + 1..=self.books.made_conns {
            for side in [0, 1, 0] {
                self.progress(net, side, (id, GREETING_LEN));
            }
        }
    }

    fn step(&mut self, net: &mut Net, step: &Step) {
        match step {
            Step::Net(step) => {
                self.snoop.forget_places();
                net.step(*step);
            }
            Step::Message { side, stream, len, connects } => {
                self.message(net, usize::from(*side), *stream, 500 + len % (200 << 10));
                if *connects {
                    self.connect_both(net);
                }
            }
            Step::Connect { side, refuse } => {
                self.books.refuses = *refuse < 32;
                self.progress(net, usize::from(*side), (0, 0));
                self.books.refuses = false;
            }
            Step::Write { conn, side, bytes } => {
                let Some(id) = self.pick(*conn) else { return };
                self.transmit(net, usize::from(*side), (id, (*bytes).into()));
            }
            Step::Read { conn, side, bytes } => {
                let Some(id) = self.pick(*conn) else { return };
                self.progress(net, usize::from(*side), (id, (*bytes).into()));
            }
            Step::Pump { rounds, bytes } => {
                for _ in 0..=rounds % 8 {
                    self.pump(net, usize::from(*bytes).max(1));
                    net.collect();
                }
            }
            Step::Break { conn, side, keep } => {
                let (Some(id), side) = (self.pick(*conn), usize::from(*side)) else { return };
                self.break_end(net, id, side);
                self.books.conn(id).rows[1 - side].cut(usize::from(*keep) << 2);
            }
            Step::Mute { conn } => {
                let Some(id) = self.pick(*conn) else { return };
                self.books.conn(id).mute = true;
            }
            Step::Tidy => {
                net.advance(ROUND_NS);
                for side in [0, 1] {
                    self.progress(net, side, (0, 0));
                }
            }
            harm => self.harm(net, harm),
        }
        self.after_all();
    }

    /// Nothing is left of connections that nobody has, nor of the bytes of those that are mute.
    fn after_all(&mut self) {
        let conns = &mut self.books.conns;
        conns.retain(|c| c.ends.iter().any(|e| e.held || e.waits));
        conns.iter_mut().filter(|c| c.mute).flat_map(|c| &mut c.rows).for_each(|row| row.cut(0));
    }

    /// What nobody who is honest does.
    fn harm(&mut self, net: &mut Net, step: &Step) {
        let harm = self.books.harm;
        match step {
            Step::Alter { conn, side, which, at, mask } => {
                let Some(id) = self.pick(*conn) else { return };
                let rows = &mut self.books.conn(id).rows;
                rows[usize::from(*side)].alter(usize::from(*which), usize::from(*at), (*mask).max(1));
            }
            Step::Repeat { conn, side, which } if harm != Harm::Altered => {
                let (Some(id), side) = (self.pick(*conn), usize::from(*side)) else { return };
                let past = &self.books.past[side];
                let past = past.get(usize::from(*which) % past.len().max(1)).map(|p| (p.bytes(), p.head_len()));
                let c = self.books.conn(id);
                if let Some((bytes, head_len)) = past.filter(|_| !c.ends[1 - side].writes && c.rows[side].has_room()) {
                    c.rows[side].push_record(&bytes, head_len);
                }
            }
            Step::Stranger { side, which, at, mask, len, ends } => {
                let made = &self.books.made;
                let seen = made.get(usize::from(*which) % made.len().max(1));
                let mut bytes = seen.copied().unwrap_or([0x5a; GREETING_LEN]);
                // What it is not, it is altered to; else it may be a copy that comes before the
                // original.
                bytes[usize::from(*at) % GREETING_LEN] ^= mask.unwrap_or(0);
                let len = if *len > 40 { GREETING_LEN } else { usize::from(*len) };
                self.stranger(net, usize::from(*side), &bytes[..len.min(GREETING_LEN)], *ends);
            }
            Step::Greet { side, ahead } if harm == Harm::Forged => {
                let newest = self.books.conns.iter().flat_map(|c| c.ends.iter().map(|e| e.bulk)).max().unwrap_or(0);
                let side = usize::from(*side);
                let Some(bytes) = self.snoop.greeting(side, newest.wrapping_add((*ahead).into())) else { return };
                self.stranger(net, side, &bytes, false);
            }
            Step::Forge { conn, side, lie, msgs, bytes, read, at_once } if harm == Harm::Forged => {
                let Some(id) = self.pick(*conn) else { return };
                // Small numbers of bytes read are true more often.
                let read =
                    if *read < 7 << 29 { u64::from((*read >> 12).saturating_sub(7 << 16)) } else { u64::from(*read) };
                let credit = Credit { msgs_limit: u32::from(*msgs), bytes_limit: (*bytes).into() };
                self.forge(net, id, usize::from(*side), lie, credit, read);
                if *at_once {
                    self.progress(net, usize::from(*side), (id, 1 << 20));
                }
            }
            Step::Raw { conn, side, bytes } if harm == Harm::Forged => {
                let Some(id) = self.pick(*conn) else { return };
                let row = &mut self.books.conn(id).rows[usize::from(*side)];
                if row.has_room() {
                    row.push(&bytes.0);
                }
            }
            _ => {}
        }
    }

    fn pick(&self, conn: u8) -> Option<u32> {
        let at = usize::from(conn).checked_rem(self.books.conns.len())?;
        Some(self.books.conns[at].id)
    }

    /// Somebody connects, and what they say is read at once.
    fn stranger(&mut self, net: &mut Net, side: usize, bytes: &[u8], ended: bool) {
        if self.books.conns.len() >= CONNS_MAX {
            return;
        }
        let id = self.books.add();
        let c = self.books.conn(id);
        c.ends[side].waits = true;
        c.rows[side].push(bytes);
        c.rows[side].ended = ended;
        net.advance(ROUND_NS);
        self.progress(net, side, (id, GREETING_LEN));
    }

    fn forge(&mut self, net: &Net, id: u32, to: usize, lie: &Lie, credit: Credit, read: u64) {
        let row = &mut self.books.conn(id).rows[to];
        if row.has_room()
            && let Some((bytes, head_len)) = self.snoop.record(net, to, lie, credit, read)
        {
            row.push_record(&bytes, head_len);
        }
    }

    /// An end fails, and its driver lets go of it.
    fn break_end(&mut self, net: &mut Net, id: u32, side: usize) {
        self.books.conn(id).ends[side].broken = true;
        self.progress(net, side, (id, 1));
    }

    /// The driver of a side connects, accepts and reads so many bytes of one connection. Says
    /// whether something moved.
    fn progress(&mut self, net: &mut Net, side: usize, turn: (u32, usize)) -> bool {
        let BulkConnections { drivers, books, .. } = self;
        (books.turn, books.moved) = (turn, false);
        let driver = &mut drivers[side];
        driver.has_slept();
        driver.progress(&mut Lent { books, upper: &mut net.sides[side], side }, net.now, false);
        assert!(driver.staged() < RECORD_HEAD_LEN + MAX_ENVELOPE_LEN, "more is kept than a head");
        let held = books.conns.iter().filter(|c| c.ends[side].held).count();
        assert_eq!(driver.len(), held, "a connection was left open, or closed twice");
        books.moved
    }

    /// It writes so many bytes to one connection. Says whether something moved.
    fn transmit(&mut self, net: &mut Net, side: usize, turn: (u32, usize)) -> bool {
        let BulkConnections { drivers, books, .. } = self;
        (books.turn, books.moved) = (turn, false);
        drivers[side].transmit(&mut Lent { books, upper: &mut net.sides[side], side }, net.now);
        books.moved
    }

    fn pump(&mut self, net: &mut Net, bytes: usize) -> bool {
        let mut moved = false;
        for id in self.books.conns.iter().map(|c| c.id).collect::<Vec<_>>() {
            for side in [0, 1] {
                moved |= self.transmit(net, side, (id, bytes));
                moved |= self.progress(net, side, (id, bytes));
            }
        }
        moved
    }

    /// All goes well from now on.
    fn heal(&mut self, net: &mut Net) -> Besides {
        let mut moved = false;
        for side in [0, 1] {
            moved |= self.progress(net, side, (0, 0));
        }
        moved |= self.pump(net, STEP_BYTES);
        self.after_all();
        let next = [0, 1].map(|i| self.drivers[i].next_timeout(&net.sides[i].ep, net.now));
        let waits = self.books.conns.iter().any(|c| c.ends.iter().any(|e| e.waits));
        let accept = waits.then(|| net.now.plus_ns(ROUND_NS));
        Besides { moved, next: next.into_iter().flatten().chain(accept).min() }
    }

    /// Nothing comes any more, and both sides close.
    fn silence(&mut self, net: &mut Net) {
        self.books.refuses = true;
        // What is put off, and who waits to be taken, needs another pass.
        for _ in 0..3 {
            net.advance(ROUND_NS);
            for id in self.books.conns.iter().map(|c| c.id).collect::<Vec<_>>() {
                for side in [0, 1] {
                    self.break_end(net, id, side);
                }
            }
        }
        assert!(self.drivers.iter().all(weir_bulk_driver::BulkConnections::is_empty), "a broken connection is kept");
        for s in &mut net.sides {
            s.close(net.now);
        }
        net.collect();
        net.advance(SILENCE_NS);
        let open: Vec<_> = net.sides.iter().map(Upper::open_ops).collect();
        assert_eq!(open, [0, 0], "operations outlive the peer timeout and the linger time");
    }
}

impl Books {
    fn add(&mut self) -> u32 {
        self.made_conns += 1;
        let id = self.made_conns;
        self.conns.push(Conn { id, rows: Default::default(), mute: false, ends: Default::default() });
        id
    }

    fn conn(&mut self, id: u32) -> &mut Conn {
        self.conns.iter_mut().find(|c| c.id == id).expect("a connection that is there")
    }

    /// The connection that is this bulk connection to a side.
    fn bulk(&mut self, side: usize, bulk: u32) -> &mut Conn {
        let is_it = |c: &&mut Conn| c.ends[side].held && c.ends[side].bulk == bulk;
        self.conns.iter_mut().find(is_it).expect("a bulk connection with a connection")
    }
}

impl Surroundings for Lent<'_> {
    type Stream = u32;
    type Why = ();

    fn accept(&mut self, _: Time) -> Option<u32> {
        let c = self.books.conns.iter_mut().find(|c| c.ends[self.side].waits)?;
        let e = &mut c.ends[self.side];
        (e.waits, e.held, self.books.moved) = (false, true, true);
        Some(c.id)
    }

    fn connect(&mut self, news: &BulkNews) -> Result<u32, NotMade<()>> {
        assert_eq!(news.peer, PEER);
        self.books.moved = true;
        if self.books.conns.len() >= CONNS_MAX {
            return Err(NotMade::Lacking);
        }
        if self.books.refuses {
            return Err(NotMade::Refused(()));
        }
        let id = self.books.add();
        let ends = &mut self.books.conn(id).ends;
        (ends[self.side].held, ends[1 - self.side].waits) = (true, true);
        Ok(id)
    }

    fn is_connected(&mut self, id: &mut u32) -> Result<bool, ()> {
        let broken = self.books.conn(*id).ends[self.side].broken;
        if broken { Err(()) } else { Ok(true) }
    }

    fn close(&mut self, id: u32) {
        let (side, c) = (self.side, self.books.conn(id));
        c.ends[side] = End { bulk: c.ends[side].bulk, ..End::default() };
        c.rows[1 - side].ended = true;
        self.books.moved = true;
    }

    fn remote(&self, _: &u32) -> Option<SocketAddr> {
        Some(addr(1 - self.side))
    }

    fn lost_segments(&self, _: &u32) -> Result<u32, Broken> {
        Ok(0)
    }

    fn write(&mut self, id: &mut u32, head: &[u8], payload: Option<(&BulkRecord, u32)>) -> Result<usize, Broken> {
        let (side, turn) = (self.side, self.books.turn);
        let c = self.books.conn(*id);
        let (e, row) = (&mut c.ends[side], &mut c.rows[1 - side]);
        if e.broken {
            return Err(Broken);
        }
        let Some((record, done)) = payload else {
            row.push_record(head, head.len());
            self.books.moved = true;
            return Ok(head.len());
        };
        if !self.upper.is_open(record.token) {
            // The send was given up, and its memory is the caller's again.
            return Err(Broken);
        }
        let rest = (record.len - done) as usize;
        let most = if turn.0 == *id && row.has_room() { turn.1.min(head.len() + rest) } else { 0 };
        if most == 0 {
            return Ok(0);
        }
        for (behind, head_len) in e.heads_due.drain(..) {
            row.note_record(behind, head_len);
        }
        let of_head = most.min(head.len());
        row.push(&head[..of_head]);
        let from = record.offset + u64::from(done);
        row.extend((from..).take(most - of_head).map(|i| byte_of(record.token, i)));
        e.writes = most < head.len() + rest;
        self.books.turn.1 -= most;
        self.books.moved = true;
        Ok(most)
    }

    fn payload(&mut self, record: &BulkRecord, bytes: &mut Vec<u8>) -> Result<(), Broken> {
        if !self.upper.is_open(record.token) {
            return Err(Broken);
        }
        bytes.extend((record.offset..).take(record.len as usize).map(|i| byte_of(record.token, i)));
        Ok(())
    }

    fn read(
        &mut self,
        id: &mut u32,
        payload: Option<(PeerId, &RecordIn, u32)>,
        stage: &mut [u8],
    ) -> Result<Read, Broken> {
        assert!(!stage.is_empty(), "no head is so long");
        let (side, turn) = (self.side, self.books.turn);
        self.books.reading = *id;
        let c = self.books.conn(*id);
        if c.ends[side].broken {
            return Err(Broken);
        }
        let most = if turn.0 == *id && !c.mute { turn.1 } else { 0 };
        if most > 0 && c.rows[side].len() == 0 && c.rows[side].ended {
            return Ok(Read::End);
        }
        let rest = payload.map_or(0, |(_, record, done)| (record.len - done) as usize);
        let n = most.min(rest + stage.len()).min(c.rows[side].len());
        let bytes: Vec<u8> = c.rows[side].take(n).collect();
        self.books.turn.1 -= n;
        self.books.moved |= n > 0;
        let (there, behind) = bytes.split_at(n.min(rest));
        if let Some((peer, record, done)) = payload {
            self.upper.check_payload(peer, record.key, record.offset + u64::from(done), there);
        }
        stage[..behind.len()].copy_from_slice(behind);
        Ok(Read::Bytes { payload: there.len(), staged: behind.len(), more: n > 0 })
    }

    fn endpoint(&self) -> &Endpoint {
        &self.upper.ep
    }

    fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.upper.ep
    }

    fn record_tells(&mut self, now: Time, peer: PeerId, bulk: u32, head: &[u8]) -> Head {
        let c = self.books.bulk(self.side, bulk);
        let altered = c.rows[self.side].is_altered(c.ends[self.side].head_at);
        self.books.altered |= altered;
        self.books.moved = true;
        let sends = self.upper.sent.len();
        if !self.upper.record_tells(now, peer, bulk, head) {
            return Head::Wrong;
        }
        assert!(!altered, "an altered head was taken");
        if self.upper.sent.len() > sends { Head::Answers } else { Head::Good }
    }

    fn record_begins(&mut self, now: Time, peer: PeerId, bulk: u32, head: &[u8]) -> Option<RecordIn> {
        let record = self.upper.record_begins(now, peer, head)?;
        self.books.bulk(self.side, bulk).ends[self.side].head_at += head.len() as u64 + u64::from(record.len);
        Some(record)
    }

    fn record_whole(&mut self, now: Time, peer: PeerId, bulk: u32, bytes: &[u8], head_len: usize) -> bool {
        self.books.bulk(self.side, bulk).ends[self.side].head_at += bytes.len() as u64;
        self.upper.record_whole(now, peer, bytes, head_len)
    }

    fn put(&mut self, peer: PeerId, record: &RecordIn, done: u32, bytes: &[u8]) {
        self.upper.check_payload(peer, record.key, record.offset + u64::from(done), bytes);
    }

    fn record_ends(&mut self, now: Time, peer: PeerId, bulk: u32, record: &RecordIn) {
        self.upper.record_ends(now, peer, bulk, record);
    }

    fn next_record(&mut self, now: Time, peer: PeerId, bulk: u32, head: &mut Vec<u8>) -> Option<BulkRecord> {
        let behind = head.len();
        let record = self.upper.ep.bulk_next(now, peer, bulk, head)?;
        let head = &head[behind..];
        assert!((1..=RECORD_MAX).contains(&record.len) && head.len() >= RECORD_HEAD_LEN);
        self.books.bulk(self.side, bulk).ends[self.side].heads_due.push((behind, head.len()));
        Past::keep(&mut self.books.past[1 - self.side], head, &record);
        Some(record)
    }

    fn greeting(&mut self, peer: PeerId) -> Option<(u32, [u8; GREETING_LEN])> {
        let (bulk, greeting) = self.upper.ep.bulk_greeting(peer)?;
        assert!(!self.books.made.contains(&greeting), "a greeting was used twice");
        self.books.made.push(greeting);
        Some((bulk, greeting))
    }

    fn greeted(&mut self, now: Time, bytes: &[u8; GREETING_LEN]) -> Option<(PeerId, u32, [u8; GREETING_LEN])> {
        let (peer, bulk, answer) = self.upper.ep.bulk_greeted(now, bytes)?;
        assert_eq!(peer, PEER);
        let Books { harm, made, accepted, .. } = self.books;
        assert!(!accepted.contains(bytes), "a greeting is good once");
        assert!(*harm == Harm::Forged || made.contains(bytes), "a greeting that nobody made");
        accepted.push(*bytes);
        Some((peer, bulk, answer))
    }

    fn is_up(&mut self, _: PeerId, bulk: u32) {
        let (id, side) = (self.books.reading, self.side);
        let c = self.books.conn(id);
        assert!(!c.rows[side].is_altered(0), "an altered greeting was taken");
        (c.ends[side].bulk, c.ends[side].head_at) = (bulk, GREETING_LEN as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A net with a bulk connection that both ends have up.
    fn with_bulk(harm: Harm) -> (Net, BulkConnections) {
        let mut net = Net::new(&config(0, 0));
        let mut bulk_connections = BulkConnections::new(harm);
        for s in &mut net.sides {
            s.honest_peer = harm != Harm::Forged;
        }
        bulk_connections.meet(&mut net);
        bulk_connections.message(&mut net, 0, 0, 20 << 10);
        bulk_connections.connect_both(&mut net);
        assert!(net.sides.iter().all(|s| s.ep.has_bulk(PEER)));
        (net, bulk_connections)
    }

    #[test]
    fn what_is_forged_with_the_key_is_genuine_both_ways() {
        for side in 0..2 {
            let (mut net, mut bulk_connections) = with_bulk(Harm::Forged);
            let lie = Lie::Near { mseq: 9, total: 300, offset: 0, len: 300 };
            let id = bulk_connections.pick(0).unwrap();
            bulk_connections.forge(&net, id, side, &lie, Credit { msgs_limit: 0, bytes_limit: 0 }, 0);
            assert!(bulk_connections.progress(&mut net, side, (id, STEP_BYTES)));
            let c = net.sides[side].ep.counters();
            assert_eq!((c.bulk.records_received, c.violations), (1, 0), "{}", c.last_violation);
        }
    }

    #[test]
    fn what_is_altered_is_refused_and_what_is_repeated_is_not() {
        for harm in [Harm::Altered, Harm::Repeated] {
            let (mut net, mut bulk_connections) = with_bulk(harm);
            // Three records of at most 700 bytes.
            bulk_connections.message(&mut net, 0, 1, 2000);
            let id = bulk_connections.pick(0).unwrap();
            assert!(bulk_connections.transmit(&mut net, 0, (id, 10_000)));
            if harm == Harm::Altered {
                bulk_connections.books.conn(id).rows[1].alter(0, 17, 2);
            } else {
                bulk_connections.step(&mut net, &Step::Repeat { conn: 0, side: true, which: 0 });
            }
            bulk_connections.progress(&mut net, 1, (id, 10_000));
            let c = net.sides[1].ep.counters();
            let (records, damaged) = if harm == Harm::Altered { (0, 1) } else { (4, 0) };
            assert_eq!(
                (c.bulk.records_received, c.bulk.heads_damaged, bulk_connections.books.altered),
                (records, damaged, damaged == 1)
            );
            assert_eq!((c.violations, c.bulk.failed), (0, damaged));
        }
    }
}
