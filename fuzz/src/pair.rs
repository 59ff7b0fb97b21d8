//! Two honest endpoints and a network that does what the input says; afterwards the network heals
//! and everything must come to an end.

use std::collections::VecDeque;
use std::net::SocketAddr;

use arbitrary::Arbitrary;
use weir_link::{Config, CongestionKind, Endpoint, Level, PeerId, Time};

use crate::input::Rest;
use crate::upper::Upper;

/// After healing all must be over within this time on the endpoints' clock ...
const HEALED_S: u64 = 120;
/// ... and this many rounds.
const HEALED_ROUNDS: usize = 200_000;

/// One run.
#[derive(Arbitrary, Debug)]
pub struct Input {
    options: u16,
    delay_us: u16,
    steps: Rest<Step, 300>,
}

/// One event. `side` says whose; numbers are taken modulo what there is.
#[derive(Arbitrary, Copy, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Step {
    Send {
        side: bool,
        control: bool,
        stream: u8,
        env_len: u8,
        len: u16,
        patient: bool,
    },
    SendBig {
        side: bool,
        len: u32,
    },
    /// A rendezvous transfer from `side` to the other.
    Rndv {
        side: bool,
        len: u32,
    },
    /// Some packets arrive, beginning with the `skip`th under way.
    Deliver {
        side: bool,
        skip: u8,
        count: u8,
    },
    DeliverAll,
    Drop {
        side: bool,
        skip: u8,
        count: u8,
    },
    Duplicate {
        side: bool,
        skip: u8,
    },
    /// One byte changes on the way.
    Corrupt {
        side: bool,
        skip: u8,
        at: u16,
        mask: u8,
    },
    /// A packet that arrived long ago comes again.
    Replay {
        side: bool,
        which: u8,
    },
    /// Bytes from a stranger.
    Stray {
        side: bool,
        bytes: [u8; 24],
        len: u8,
    },
    AdvanceUs(u16),
    AdvanceMs(u8),
    /// To the next timeout of this side.
    Timeout {
        side: bool,
    },
    Consume {
        side: bool,
    },
    CloseRndv {
        side: bool,
        which: u8,
    },
    AbortRndv {
        side: bool,
        which: u8,
    },
    /// The upper layer has no more to do with the peer, if it is down.
    Forget {
        side: bool,
    },
    /// What ends everything happens when `sure` is 0, or hardly anything would run long.
    Close {
        side: bool,
        sure: u8,
    },
}

/// Both endpoints and the packets between them.
pub(crate) struct Net {
    pub(crate) now: Time,
    pub(crate) sides: [Upper; 2],
    /// Packets on their way to each side.
    pub(crate) flying: [VecDeque<Vec<u8>>; 2],
    arrived: [Vec<Vec<u8>>; 2],
    /// Rendezvous transfers under way: sending side, handle.
    rndvs: Vec<(usize, u64)>,
    closing: bool,
}

pub(crate) fn addr(side: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + u8::try_from(side).expect("0 or 1")], 4791))
}

/// The only peer of each side.
pub(crate) const PEER: PeerId = PeerId(0);
/// The job's.
pub(crate) const KEY: [u8; 32] = [7; 32];

pub(crate) fn config(options: u16) -> Config {
    let bit = |n: u16| options >> n & 1 != 0;
    let mut cfg = Config {
        level: [Level::Integrity, Level::Integrity, Level::Auth, Level::Encrypt][usize::from(options & 3)],
        congestion: if bit(2) { CongestionKind::Reno } else { CongestionKind::Target },
        gather: bit(3),
        parity: bit(4),
        max_datagram: if bit(5) { 8972 } else { 1472 },
        ..Config::default()
    };
    if bit(6) {
        cfg.session.initial_credit_msgs = 4;
        cfg.session.initial_credit_bytes = 1 << 16;
    }
    if bit(7) {
        cfg.session.send_queue_msgs = 8;
        cfg.session.control_window = 4;
        cfg.session.rndvs_max = 2;
    }
    if bit(8) {
        cfg.session.grant_budget = 1 << 14;
        cfg.session.grant_share = 1 << 12;
        cfg.session.grant_step = 1 << 11;
    }
    if bit(9) {
        cfg.parity_min_loss_ppm = 0;
        cfg.parity_min_rtt = core::time::Duration::ZERO;
    }
    if bit(10) {
        cfg.gather_min = 0;
        cfg.session.streams = 1;
    }
    cfg
}

/// What else goes on while the network heals.
#[derive(Default)]
pub(crate) struct Besides {
    /// Something moved.
    pub(crate) moved: bool,
    /// When to look again though nothing moves.
    pub(crate) next: Option<Time>,
}

/// Runs the input and heals; returns how many operations arrived.
pub fn run(input: &Input) -> usize {
    let mut net = Net::new(&config(input.options));
    for step in &input.steps.0 {
        net.step(*step);
        net.collect();
    }
    net.heal(1000 * (1 + u64::from(input.delay_us)), |_| Besides::default());
    net.sides.iter().map(|s| s.received.len()).sum()
}

impl Net {
    pub(crate) fn new(cfg: &Config) -> Net {
        let side = |i: usize| {
            let seed = [40 + u8::try_from(i).expect("0 or 1"); 32];
            let ep = Endpoint::new(cfg.clone(), KEY, 1000 + i as u64, &[addr(i)], seed);
            Upper::new(ep, (1 + i as u64) << 32, true)
        };
        let mut sides = [side(0), side(1)];
        let names = [sides[0].ep.name(), sides[1].ep.name()];
        for i in 0..2 {
            assert_eq!(sides[i].ep.peer(&names[1 - i]), Ok(PEER));
        }
        Net {
            now: Time(1_000_000),
            sides,
            flying: Default::default(),
            arrived: Default::default(),
            rndvs: Vec::new(),
            closing: false,
        }
    }

    /// Whatever the endpoints want to send is under way from now on.
    pub(crate) fn collect(&mut self) {
        for i in 0..2 {
            for p in self.sides[i].transmit(self.now) {
                assert_eq!(p.remote, addr(1 - i));
                self.flying[1 - i].push_back(p.bytes);
            }
        }
    }

    fn arrive(&mut self, to: usize, bytes: Vec<u8>) {
        if self.arrived[to].len() < 64 {
            self.arrived[to].push(bytes.clone());
        }
        self.sides[to].handle(self.now, addr(1 - to), bytes);
    }

    /// Moves the clock; timers fire as they come due, as a driver that sleeps would have it.
    pub(crate) fn advance(&mut self, ns: u64) {
        let until = self.now.plus_ns(ns);
        let mut rounds = 0;
        loop {
            let due = self.sides.iter().filter_map(|s| s.ep.next_timeout()).min().filter(|t| *t <= until);
            let Some(due) = due else { break };
            self.now = self.now.max(due);
            for s in &mut self.sides {
                if s.ep.next_timeout().is_some_and(|t| t <= self.now) {
                    s.handle_timeout(self.now);
                }
            }
            self.collect();
            rounds += 1;
            assert!(rounds < 100_000, "timers come due for ever");
        }
        self.now = until;
    }

    fn pick(&self, to: usize, skip: u8) -> usize {
        usize::from(skip) % self.flying[to].len().max(1)
    }

    pub(crate) fn step(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Send { side, control, stream, env_len, len, patient } => {
                let stream = if control { 0 } else { u16::from(stream % 4) };
                let len = if control { len % 1500 } else { len };
                let (side, env_len) = (&mut self.sides[usize::from(side)], env_len.into());
                let _ = side.send(now, PEER, control, stream, env_len, len.into(), patient);
            }
            Step::SendBig { side, len } => {
                let _ = self.sides[usize::from(side)].send(now, PEER, false, 1, 20, len % (600 << 10), false);
            }
            Step::Rndv { side, len } => self.rndv(usize::from(side), u64::from(len % (2 << 20))),
            Step::Deliver { side, skip, count } => {
                let (to, at) = (usize::from(side), self.pick(usize::from(side), skip));
                for _ in 0..=count {
                    let Some(p) = self.flying[to].remove(at) else { break };
                    self.arrive(to, p);
                }
            }
            Step::DeliverAll => {
                for to in 0..2 {
                    for p in std::mem::take(&mut self.flying[to]) {
                        self.arrive(to, p);
                    }
                }
            }
            Step::Drop { side, skip, count } => {
                let (to, at) = (usize::from(side), self.pick(usize::from(side), skip));
                for _ in 0..=count {
                    self.flying[to].remove(at);
                }
            }
            Step::Duplicate { side, skip } => {
                let to = usize::from(side);
                if let Some(p) = self.flying[to].get(self.pick(to, skip)) {
                    let copy = p.clone();
                    self.flying[to].push_back(copy);
                }
            }
            Step::Corrupt { side, skip, at, mask } => self.corrupt(usize::from(side), skip, at, mask),
            Step::Replay { side, which } => {
                let to = usize::from(side);
                let n = self.arrived[to].len();
                if let Some(p) = self.arrived[to].get(usize::from(which) % n.max(1)) {
                    let copy = p.clone();
                    self.sides[to].handle(now, addr(1 - to), copy);
                }
            }
            Step::Stray { side, bytes, len } => {
                let bytes = bytes[..usize::from(len) % 25].to_vec();
                self.sides[usize::from(side)].handle(now, addr(usize::from(!side)), bytes);
            }
            Step::AdvanceUs(us) => self.advance(1000 * u64::from(us % 2000)),
            Step::AdvanceMs(ms) => {
                // Beyond the peer timeout now and then.
                let ms = if ms == 255 { 6000 } else { u64::from(ms % 64) };
                self.advance(1_000_000 * ms);
            }
            Step::Timeout { side } => {
                if let Some(t) = self.sides[usize::from(side)].ep.next_timeout() {
                    self.advance(t.since_ns(now));
                }
            }
            Step::Consume { side } => self.sides[usize::from(side)].consume(),
            Step::CloseRndv { side, which } => {
                // The receiver gives up and, as the engine would, tells the sender by other means.
                if let Some((_, handle)) = self.sides[usize::from(side)].close_rndv(which.into()) {
                    self.sides[usize::from(!side)].abort_rndv(now, PEER, handle, 1);
                }
            }
            Step::AbortRndv { side, which } => {
                let i = usize::from(which) % self.rndvs.len().max(1);
                if let Some(&(from, handle)) = self.rndvs.get(i)
                    && from == usize::from(side)
                {
                    self.sides[from].abort_rndv(now, PEER, handle, 2);
                }
            }
            Step::Forget { side } => {
                self.sides[usize::from(side)].forget(now, PEER);
            }
            Step::Close { side, sure: 0 } => {
                self.closing = true;
                self.sides[usize::from(side)].close(now);
            }
            Step::Close { .. } => {}
        }
    }

    fn rndv(&mut self, from: usize, len: u64) {
        let to = 1 - from;
        let token = self.sides[from].next_token();
        let Ok(opened) = self.sides[to].open_rndv(self.now, PEER, len, Some(token)) else { return };
        match self.sides[from].send_rndv(self.now, PEER, opened.handle, opened.granted, len) {
            Ok(_) => self.rndvs.push((from, opened.handle)),
            Err(_) => {
                self.sides[to].ep.close_rndv(PEER, opened.handle);
            }
        }
    }

    /// A single changed byte never passes CRC32C, nor the ciphers.
    fn corrupt(&mut self, to: usize, skip: u8, at: u16, mask: u8) {
        let i = self.pick(to, skip);
        if let Some(mut p) = self.flying[to].remove(i) {
            let at = usize::from(at) % p.len();
            p[at] ^= mask.max(1);
            self.sides[to].handle(self.now, addr(1 - to), p);
        }
    }

    /// From now on every packet arrives, in order, after `delay_ns`, and everything received is
    /// consumed.
    pub(crate) fn heal(&mut self, delay_ns: u64, mut besides: impl FnMut(&mut Net) -> Besides) {
        let limit = self.now.plus_ns(HEALED_S * 1_000_000_000);
        for _ in 0..HEALED_ROUNDS {
            let besides = besides(self);
            self.collect();
            if self.sides.iter().all(|s| s.open_ops() == 0) {
                return self.check();
            }
            let before = self.flying.each_ref().map(VecDeque::len);
            let idle = before == [0, 0] && !besides.moved;
            self.advance(if idle { self.to_next_timeout(besides.next) } else { delay_ns });
            for (to, count) in before.into_iter().enumerate() {
                for _ in 0..count {
                    let Some(p) = self.flying[to].pop_front() else { break };
                    self.arrive(to, p);
                }
                self.sides[to].consume();
            }
            if self.now > limit {
                break;
            }
        }
        let left: Vec<_> = self.sides.iter().map(Upper::open_ops).collect();
        let stats: Vec<_> = self.sides.iter().map(|s| s.ep.peer_stats(PEER)).collect();
        panic!("operations still open at {:?} after the network healed: {left:?}\n{stats:#?}", self.now);
    }

    fn to_next_timeout(&self, besides: Option<Time>) -> u64 {
        let next = self.sides.iter().filter_map(|s| s.ep.next_timeout()).chain(besides).min();
        let next = next.expect("operations are open, nothing is under way, and no timer runs");
        next.since_ns(self.now).max(1)
    }

    /// What is reported as sent has arrived.
    fn check(&self) {
        for i in 0..2 {
            let aborted_may_be_sent = !self.rndvs.is_empty();
            for token in &self.sides[i].sent {
                let arrived = self.sides[1 - i].received.contains(token);
                assert!(arrived || aborted_may_be_sent, "{token} was reported as sent and has not arrived");
            }
        }
    }
}
