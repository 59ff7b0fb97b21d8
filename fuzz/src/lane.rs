//! Lanes (spec/lanes.md): two endpoints with packets and TCP connections between them. The input cuts the bytes of a
//! connection, breaks it off, alters heads, repeats units and greetings and, where it knows the job's key, forges them.
//!
//! Each end reads and writes as the engine's driver does (`engine/src/lanes.rs`), with memory in place of sockets.

use std::convert::Infallible;

use arbitrary::Arbitrary;
use weir_link::{Config, Counters, GREETING_LEN, LANE_GREETING_NS, LaneConfig, LaneHealth, LaneUnit, Level, Time};
use weir_link::{UNIT_HEAD_LEN, UnitHead, UnitIn};
use weir_wire::frame::Credit;
use weir_wire::lane::UNIT_MAX;

use crate::forge::{Lie, Snoop};
use crate::input::{Few, Rest};
use crate::pair::{self, Besides, Net, PEER};
use crate::row::{Past, Row};
use crate::upper::byte_of;

/// As the driver has it: bytes read besides payload, bytes in one turn.
const STAGE_BYTES: usize = 4096;
const TURN_BYTES: usize = 64 << 10;
const CONNS_MAX: usize = 16;
/// Timers that outlive everything else.
const SILENCE_NS: u64 = 60_000_000_000;

/// One run.
#[derive(Arbitrary, Debug)]
pub struct Input {
    options: u16,
    lanes: u8,
    delay_us: u16,
    steps: Rest<Step, 300>,
}

/// One event. `side` is who reads, writes or is called; connections are counted modulo what there is.
#[derive(Arbitrary, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Step {
    Net(pair::Step),
    /// Long enough for a lane.
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
    /// A unit that went to `side` once comes again.
    Repeat {
        conn: u8,
        side: bool,
        which: u8,
    },
    /// A stranger connects with a greeting that was seen, or with one byte of it changed, or a part of it.
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

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    Greeted,
    Stranger,
    Up,
    Gone,
}

/// An end lets go of its connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Over;

/// One end of a connection, as its driver keeps it.
struct End {
    stage: Stage,
    since: Time,
    lane: u32,
    staged: Vec<u8>,
    /// Where the first staged byte stands among all that came.
    taken: u64,
    put_off: bool,
    unit: Option<(UnitIn, u32)>,
    head: Vec<u8>,
    head_done: usize,
    out: Option<(LaneUnit, u32)>,
    health: LaneHealth,
}

impl End {
    fn new(stage: Stage, since: Time) -> End {
        End {
            stage,
            since,
            lane: 0,
            staged: Vec::new(),
            taken: 0,
            put_off: false,
            unit: None,
            head: Vec::new(),
            head_done: 0,
            out: None,
            health: LaneHealth::new(since),
        }
    }

    fn unstage(&mut self, n: usize) {
        self.staged.drain(..n);
        self.taken += n as u64;
    }
}

/// A connection: its ends by side, and what is on its way to each.
struct Conn {
    ends: [End; 2],
    rows: [Row; 2],
    mute: bool,
}

/// All connections, and what the input knows of them.
struct Lanes {
    conns: Vec<Conn>,
    harm: Harm,
    /// Greetings made by the endpoints, and those that were accepted.
    made: Vec<[u8; GREETING_LEN]>,
    accepted: Vec<[u8; GREETING_LEN]>,
    /// Units that went to each side.
    past: [Vec<Past>; 2],
    snoop: Snoop,
    /// An altered head was read.
    altered: bool,
}

fn config(options: u16, lanes: u8) -> Config {
    let bit = |n: u8| lanes >> n & 1 != 0;
    let ms = core::time::Duration::from_millis;
    Config {
        level: Level::Integrity,
        lane: LaneConfig {
            on: true,
            min_rate: 0,
            rtt_max: ms(100_000),
            loss_max_ppm: if bit(0) { 1000 } else { 1_000_000 },
            min_bytes: if bit(1) { 12 << 10 } else { 500 },
            unit_bytes: [700, 5000, 64 << 10, 1 << 20][usize::from(lanes >> 2 & 3)],
            pause: ms(1),
            pause_max: ms(if bit(4) { 4 } else { 2000 }),
        },
        ..pair::config(options & !3)
    }
}

/// Runs the input; returns how many units were read to their end.
///
/// # Panics
/// If a promise is broken.
pub fn run(input: &Input) -> u64 {
    let harm = [Harm::Altered, Harm::Altered, Harm::Repeated, Harm::Forged][usize::from(input.lanes >> 6)];
    let cfg = config(input.options, input.lanes);
    let mut net = Net::new(&cfg);
    for s in &mut net.sides {
        s.honest_peer = harm != Harm::Forged;
    }
    let mut lanes = Lanes::new(harm);
    if input.lanes & 32 == 0 {
        lanes.meet(&mut net);
        if input.options >> 11 & 3 != 0 {
            lanes.message(&mut net, usize::from(input.options >> 13 & 1), 0, 20 << 10);
            lanes.connect_both(&mut net);
        }
    }
    for step in &input.steps.0 {
        lanes.step(&mut net, step);
        net.collect();
        if harm == Harm::Forged {
            lanes.snoop.look(&net);
        }
        for s in &net.sides {
            s.check_limits(PEER, &cfg);
        }
    }
    if harm == Harm::Altered {
        net.heal(1000 * (1 + u64::from(input.delay_us)), |net| lanes.heal(net));
        let damaged = count(&net, |c| c.lane.heads_damaged) > 0;
        assert!(!damaged || lanes.altered, "a head was damaged that nobody altered");
        assert_eq!(
            count(&net, |c| c.violations),
            0,
            "{:?}",
            net.sides.each_ref().map(|s| s.ep.counters().last_violation)
        );
    } else {
        lanes.silence(&mut net);
    }
    for s in &net.sides {
        s.check_limits(PEER, &cfg);
    }
    count(&net, |c| c.lane.units_received)
}

fn count(net: &Net, f: impl Fn(&Counters) -> u64) -> u64 {
    net.sides.iter().map(|s| f(&s.ep.counters())).sum()
}

impl Lanes {
    fn new(harm: Harm) -> Lanes {
        Lanes {
            conns: Vec::new(),
            harm,
            made: Vec::new(),
            accepted: Vec::new(),
            past: Default::default(),
            snoop: Snoop::new(),
            altered: false,
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
        let before = self.conns.len();
        for side in 0..2 {
            self.connect(net, side, false);
        }
        for k in before..self.conns.len() {
            for side in [0, 1, 0] {
                self.read(net, k, side, GREETING_LEN);
            }
        }
    }

    fn read_last(&mut self, net: &mut Net, side: usize) {
        if let Some(k) = self.conns.len().checked_sub(1) {
            self.read(net, k, side, GREETING_LEN);
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
            Step::Connect { side, refuse } => _ = self.connect(net, usize::from(*side), *refuse < 32),
            Step::Write { conn, side, bytes } => {
                let Some(k) = self.pick(*conn) else { return };
                self.write(net, k, usize::from(*side), (*bytes).into());
            }
            Step::Read { conn, side, bytes } => {
                let Some(k) = self.pick(*conn) else { return };
                self.read(net, k, usize::from(*side), (*bytes).into());
            }
            Step::Pump { rounds, bytes } => {
                for _ in 0..=rounds % 8 {
                    self.pump(net, usize::from(*bytes).max(1));
                    net.collect();
                }
            }
            Step::Break { conn, side, keep } => {
                let (Some(k), side) = (self.pick(*conn), usize::from(*side)) else { return };
                self.drop_end(net, k, side);
                self.conns[k].rows[1 - side].cut(usize::from(*keep) << 2);
            }
            Step::Mute { conn } => {
                let Some(k) = self.pick(*conn) else { return };
                self.conns[k].mute = true;
            }
            Step::Tidy => self.tidy(net),
            harm => self.harm(net, harm),
        }
        self.after_all();
    }

    /// Nothing is left of connections that nobody has, nor of the bytes of those that are mute.
    fn after_all(&mut self) {
        self.conns.retain(|c| c.ends.iter().any(|e| e.stage != Stage::Gone));
        self.conns.iter_mut().filter(|c| c.mute).flat_map(|c| &mut c.rows).for_each(|row| row.cut(0));
    }

    /// What nobody who is honest does.
    fn harm(&mut self, net: &mut Net, step: &Step) {
        let now = net.now;
        match step {
            Step::Alter { conn, side, which, at, mask } => {
                let Some(k) = self.pick(*conn) else { return };
                self.conns[k].rows[usize::from(*side)].alter(usize::from(*which), usize::from(*at), (*mask).max(1));
            }
            Step::Repeat { conn, side, which } if self.harm != Harm::Altered => {
                let (Some(k), side) = (self.pick(*conn), usize::from(*side)) else { return };
                let past = &self.past[side];
                let between = self.conns[k].ends[1 - side].out.is_none();
                let row = &mut self.conns[k].rows[side];
                if let Some(p) = past.get(usize::from(*which) % past.len().max(1)).filter(|_| between && row.has_room())
                {
                    row.push_unit(&p.bytes(), p.head_len());
                }
            }
            Step::Stranger { side, which, at, mask, len, ends } => {
                let seen = self.made.get(usize::from(*which) % self.made.len().max(1));
                let mut bytes = seen.copied().unwrap_or([0x5a; GREETING_LEN]);
                // What it is not, it is altered to; else it may be a copy that comes before the original.
                bytes[usize::from(*at) % GREETING_LEN] ^= mask.unwrap_or(0);
                let len = if *len > 40 { GREETING_LEN } else { usize::from(*len) };
                self.stranger(now, usize::from(*side), &bytes[..len.min(GREETING_LEN)], *ends);
                self.read_last(net, usize::from(*side));
            }
            Step::Greet { side, ahead } if self.harm == Harm::Forged => {
                let newest = self.conns.iter().flat_map(|c| c.ends.iter().map(|e| e.lane)).max().unwrap_or(0);
                let side = usize::from(*side);
                let Some(bytes) = self.snoop.greeting(side, newest.wrapping_add((*ahead).into())) else { return };
                self.stranger(now, side, &bytes, false);
                self.read_last(net, side);
            }
            Step::Forge { conn, side, lie, msgs, bytes, read, at_once } if self.harm == Harm::Forged => {
                let Some(k) = self.pick(*conn) else { return };
                // Small numbers of bytes read are true more often.
                let read =
                    if *read < 7 << 29 { u64::from((*read >> 12).saturating_sub(7 << 16)) } else { u64::from(*read) };
                let credit = Credit { msgs_limit: u32::from(*msgs), bytes_limit: (*bytes).into() };
                self.forge(net, k, usize::from(*side), lie, credit, read);
                if *at_once {
                    self.read(net, k, usize::from(*side), 1 << 20);
                }
            }
            Step::Raw { conn, side, bytes } if self.harm == Harm::Forged => {
                let Some(k) = self.pick(*conn) else { return };
                let row = &mut self.conns[k].rows[usize::from(*side)];
                if row.has_room() {
                    row.push(&bytes.0);
                }
            }
            _ => {}
        }
    }

    fn pick(&self, conn: u8) -> Option<usize> {
        usize::from(conn).checked_rem(self.conns.len())
    }

    fn stranger(&mut self, now: Time, side: usize, bytes: &[u8], ended: bool) {
        if self.conns.len() >= CONNS_MAX {
            return;
        }
        let mut c = Conn {
            ends: [End::new(Stage::Gone, now), End::new(Stage::Gone, now)],
            rows: [Row::default(), Row::default()],
            mute: false,
        };
        c.ends[side].stage = Stage::Stranger;
        c.rows[side].push(bytes);
        c.rows[side].ended = ended;
        self.conns.push(c);
    }

    fn forge(&mut self, net: &Net, k: usize, to: usize, lie: &Lie, credit: Credit, read: u64) {
        let row = &mut self.conns[k].rows[to];
        if row.has_room()
            && let Some((bytes, head_len)) = self.snoop.unit(net, to, lie, credit, read)
        {
            row.push_unit(&bytes, head_len);
        }
    }

    /// Connects as the driver would. False: nobody wants to.
    fn connect(&mut self, net: &mut Net, side: usize, refuse: bool) -> bool {
        let now = net.now;
        let Some(news) = net.sides[side].ep.take_lane_news() else { return false };
        assert_eq!(news.peer, PEER);
        let Some((lane, greeting)) = net.sides[side].ep.lane_greeting(PEER) else { return true };
        if refuse || self.conns.len() >= CONNS_MAX {
            net.sides[side].ep.lane_over(now, PEER, lane);
            return true;
        }
        assert!(!self.made.contains(&greeting), "a greeting was used twice");
        self.made.push(greeting);
        let mut c = Conn {
            ends: [End::new(Stage::Stranger, now), End::new(Stage::Stranger, now)],
            rows: [Row::default(), Row::default()],
            mute: false,
        };
        (c.ends[side].stage, c.ends[side].lane) = (Stage::Greeted, lane);
        c.rows[1 - side].push_unit(&greeting, GREETING_LEN);
        self.conns.push(c);
        true
    }

    fn drop_end(&mut self, net: &mut Net, k: usize, side: usize) {
        let c = &mut self.conns[k];
        let (stage, lane) = (c.ends[side].stage, c.ends[side].lane);
        c.ends[side] = End { lane, ..End::new(Stage::Gone, net.now) };
        c.rows[1 - side].ended = true;
        match stage {
            Stage::Greeted | Stage::Up => {
                net.sides[side].ep.lane_over(net.now, PEER, lane);
            }
            Stage::Stranger | Stage::Gone => {}
        }
    }

    /// Drops what took too long, if what is awaited has not come meanwhile, and what is over.
    fn tidy(&mut self, net: &mut Net) {
        for k in 0..self.conns.len() {
            for side in 0..2 {
                if matches!(self.conns[k].ends[side].stage, Stage::Greeted | Stage::Stranger) {
                    self.read(net, k, side, GREETING_LEN);
                }
                let (e, ep) = (&mut self.conns[k].ends[side], &net.sides[side].ep);
                let over = match e.stage {
                    Stage::Greeted | Stage::Stranger => net.now.since_ns(e.since) > LANE_GREETING_NS,
                    Stage::Up => !ep.lane_is_up(PEER, e.lane) || e.is_given_up(ep.lane_waits(PEER, e.lane), net.now),
                    Stage::Gone => false,
                };
                if over {
                    self.drop_end(net, k, side);
                }
            }
        }
    }

    fn pump(&mut self, net: &mut Net, bytes: usize) -> bool {
        let mut moved = false;
        for k in 0..self.conns.len() {
            for side in 0..2 {
                moved |= self.write(net, k, side, bytes);
                moved |= self.read(net, k, side, bytes);
            }
        }
        moved
    }

    /// All goes well from now on.
    fn heal(&mut self, net: &mut Net) -> Besides {
        let mut moved = false;
        for side in 0..2 {
            while self.connect(net, side, false) {
                moved = true;
            }
        }
        moved |= self.pump(net, TURN_BYTES);
        self.tidy(net);
        self.after_all();
        let next = self.conns.iter().flat_map(|c| &c.ends).filter_map(|e| match e.stage {
            Stage::Greeted | Stage::Stranger => Some(e.since.plus_ns(LANE_GREETING_NS + 1)),
            Stage::Up => e.health.next_look(),
            Stage::Gone => None,
        });
        Besides { moved, next: next.min() }
    }

    /// Nothing comes any more, and both sides close.
    fn silence(&mut self, net: &mut Net) {
        for k in 0..self.conns.len() {
            for side in 0..2 {
                self.drop_end(net, k, side);
            }
        }
        for s in &mut net.sides {
            s.close(net.now);
        }
        net.collect();
        net.advance(SILENCE_NS);
        let open: Vec<_> = net.sides.iter().map(crate::upper::Upper::open_ops).collect();
        assert_eq!(open, [0, 0], "operations outlive the peer timeout and the linger time");
    }

    /// Writes units until there is no more, or so many bytes are written. Says whether something moved.
    fn write(&mut self, net: &mut Net, k: usize, side: usize, most: usize) -> bool {
        let mut turn = 0;
        while turn < most {
            let Conn { ends, rows, .. } = &mut self.conns[k];
            let (e, row, s) = (&mut ends[side], &mut rows[1 - side], &mut net.sides[side]);
            if e.stage != Stage::Up || !row.has_room() {
                break;
            }
            let (unit, done) = match e.out {
                Some(out) => out,
                None => {
                    e.head.clear();
                    e.head_done = 0;
                    let Some(unit) = s.ep.lane_next(net.now, PEER, e.lane, &mut e.head) else { break };
                    assert!((1..=UNIT_MAX).contains(&unit.len) && e.head.len() >= UNIT_HEAD_LEN);
                    row.note_unit(e.head.len());
                    Past::keep(&mut self.past[1 - side], &e.head, &unit);
                    (unit, 0)
                }
            };
            e.out = Some((unit, done));
            if !s.is_open(unit.token) {
                // The send was given up, and its memory is the caller's again.
                self.drop_end(net, k, side);
                return true;
            }
            let of_head = (most - turn).min(e.head.len() - e.head_done);
            row.push(&e.head[e.head_done..e.head_done + of_head]);
            e.head_done += of_head;
            let n = (most - turn - of_head).min((unit.len - done) as usize) as u32;
            row.extend((0..n).map(|i| byte_of(unit.token, unit.offset + u64::from(done + i))));
            turn += of_head + n as usize;
            e.out = (done + n < unit.len).then_some((unit, done + n));
        }
        turn > 0
    }

    /// Reads up to so many bytes. Says whether something moved.
    fn read(&mut self, net: &mut Net, k: usize, side: usize, most: usize) -> bool {
        let mut total = 0;
        let e = &mut self.conns[k].ends[side];
        let put_off = std::mem::take(&mut e.put_off);
        let mut result = match e.stage {
            Stage::Up if !net.sides[side].ep.lane_is_up(PEER, e.lane) => Err(Over),
            _ if put_off => self.take_staged(net, k, side),
            _ => Ok(()),
        };
        while result.is_ok() && total < most {
            let Conn { ends, rows, mute } = &mut self.conns[k];
            let (e, row) = (&mut ends[side], &mut rows[side]);
            if e.stage == Stage::Gone || e.put_off || *mute {
                break;
            }
            let room = e.unit.map_or(0, |(unit, done)| (unit.len - done) as usize) + STAGE_BYTES - e.staged.len();
            assert!(room > 0, "no head is so long");
            let n = room.min(most - total).min(row.len());
            if n == 0 {
                if row.ended {
                    result = Err(Over);
                }
                break;
            }
            total += n;
            e.staged.extend(row.take(n));
            result = self.take_staged(net, k, side);
        }
        if let Err(Over) = result {
            self.drop_end(net, k, side);
        }
        put_off || total > 0 || result.is_err()
    }

    /// A greeting, or the answer to ours, may be there.
    fn greeted(&mut self, net: &mut Net, k: usize, side: usize) -> Result<(), Over> {
        let Conn { ends, rows, .. } = &mut self.conns[k];
        let (e, now) = (&mut ends[side], net.now);
        let Some(bytes) = e.staged.first_chunk::<GREETING_LEN>().copied() else { return Ok(()) };
        if e.stage == Stage::Greeted {
            if !net.sides[side].ep.lane_answered(now, PEER, e.lane, &bytes) {
                return Err(Over);
            }
        } else {
            let answered = net.sides[side].ep.lane_greeted(now, &bytes);
            let (peer, lane, answer) = answered.ok_or(Over)?;
            assert_eq!(peer, PEER);
            assert!(!self.accepted.contains(&bytes), "a greeting is good once");
            assert!(self.harm == Harm::Forged || self.made.contains(&bytes), "a greeting that nobody made");
            self.accepted.push(bytes);
            e.lane = lane;
            rows[1 - side].push_unit(&answer, GREETING_LEN);
        }
        (e.stage, e.health) = (Stage::Up, LaneHealth::new(now));
        assert!(!rows[side].is_altered(e.taken), "an altered greeting was taken");
        e.unstage(GREETING_LEN);
        Ok(())
    }

    /// Takes greetings, heads and payload out of the stage, and ends the unit that is complete.
    fn take_staged(&mut self, net: &mut Net, k: usize, side: usize) -> Result<(), Over> {
        if self.conns[k].ends[side].stage != Stage::Up {
            self.greeted(net, k, side)?;
            if self.conns[k].ends[side].stage != Stage::Up {
                return Ok(());
            }
        }
        let Conn { ends, rows, .. } = &mut self.conns[k];
        let (e, row, s, now) = (&mut ends[side], &rows[side], &mut net.sides[side], net.now);
        loop {
            if let Some((unit, done)) = &mut e.unit {
                let n = ((unit.len - *done) as usize).min(e.staged.len());
                s.check_payload(PEER, unit.key, unit.offset + u64::from(*done), &e.staged[..n]);
                *done += n as u32;
                let whole = (*done == unit.len).then_some(*unit);
                e.unstage(n);
                let Some(unit) = whole else { break };
                e.unit = None;
                s.unit_ends(now, PEER, e.lane, &unit);
            }
            let whole = |n: &usize| (UNIT_HEAD_LEN..=e.staged.len()).contains(n);
            let Some(len) = UnitHead::len_with_envelope(&e.staged).filter(whole) else { break };
            let (head, sends) = (e.staged[..len].to_vec(), s.sent.len());
            let mut good = s.unit_tells(now, PEER, e.lane, &head);
            if good && s.sent.len() > sends {
                e.put_off = true;
                break;
            }
            e.unit = if good { s.unit_begins(now, PEER, &head).map(|u| (u, 0)) } else { None };
            good = e.unit.is_some();
            self.altered |= row.is_altered(e.taken);
            assert!(!good || !row.is_altered(e.taken), "an altered head was taken");
            if !good {
                return Err(Over);
            }
            e.unstage(len);
        }
        assert!(e.put_off || e.staged.len() < UNIT_HEAD_LEN + 48, "more is kept than a head");
        Ok(())
    }
}

impl End {
    /// As the driver asks; nothing is lost here.
    fn is_given_up(&mut self, read: Option<u64>, now: Time) -> bool {
        self.health.suffers(now, read, || Ok::<_, Infallible>(0)).is_ok_and(|given_up| given_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A net with a lane that both ends have up.
    fn with_lane(harm: Harm) -> (Net, Lanes) {
        let mut net = Net::new(&config(0, 0));
        let mut lanes = Lanes::new(harm);
        for s in &mut net.sides {
            s.honest_peer = harm != Harm::Forged;
        }
        lanes.meet(&mut net);
        lanes.message(&mut net, 0, 0, 20 << 10);
        lanes.connect_both(&mut net);
        assert!(net.sides.iter().all(|s| s.ep.has_lane(PEER)));
        (net, lanes)
    }

    #[test]
    fn what_is_forged_with_the_key_is_genuine_both_ways() {
        for side in 0..2 {
            let (mut net, mut lanes) = with_lane(Harm::Forged);
            let lie = Lie::Near { mseq: 9, total: 300, offset: 0, len: 300 };
            lanes.forge(&net, 0, side, &lie, Credit { msgs_limit: 0, bytes_limit: 0 }, 0);
            assert!(lanes.read(&mut net, 0, side, TURN_BYTES));
            let c = net.sides[side].ep.counters();
            assert_eq!((c.lane.units_received, c.violations), (1, 0), "{}", c.last_violation);
        }
    }

    #[test]
    fn what_is_altered_is_refused_and_what_is_repeated_is_not() {
        for harm in [Harm::Altered, Harm::Repeated] {
            let (mut net, mut lanes) = with_lane(harm);
            // Three units of at most 700 bytes.
            lanes.message(&mut net, 0, 1, 2000);
            assert!(lanes.write(&mut net, 0, 0, 10_000));
            if harm == Harm::Altered {
                lanes.conns[0].rows[1].alter(0, 17, 2);
            } else {
                lanes.step(&mut net, &Step::Repeat { conn: 0, side: true, which: 0 });
            }
            lanes.read(&mut net, 0, 1, 10_000);
            let c = net.sides[1].ep.counters();
            let (units, damaged) = if harm == Harm::Altered { (0, 1) } else { (4, 0) };
            assert_eq!((c.lane.units_received, c.lane.heads_damaged, lanes.altered), (units, damaged, damaged == 1));
            assert_eq!((c.violations, c.lane.failed), (0, damaged));
        }
    }
}
