//! Supersteps as a BSP library makes them: a reduction that is the barrier and tells everybody the
//! counts, then the messages, all receives posted, in the order of a plan (`spec/superstep.md`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weir_superstep::{Flow, Order, OwnQueue, Plan, Slots, counts, hold_ns};

use super::PROTOCOL;
use crate::rank::{App, Io, Outcome, RecvId, RecvOp, SendId, SendOp};
use crate::rng::{Rng, mix};
use crate::spec::{HostId, Ns};

/// Who sends how much to whom.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Relation {
    /// Everybody so many bytes to everybody.
    Total(u64),
    /// Everybody so many to the next.
    Shift(u64),
    /// Everybody to so many others, drawn anew for each superstep, between so many and so many
    /// bytes.
    Sparse {
        /// Destinations.
        degree: u32,
        /// Least and most bytes.
        bytes: (u64, u64),
    },
    /// Everybody so many to the first: the worst skew.
    ToOne(u64),
}

/// What of the plan is used: all of it, unless something is to be compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Uses {
    /// Destinations in the order of a Latin square, else 0, 1, 2 ...
    pub order: bool,
    /// The symmetric square instead of the cyclic one.
    pub mirrored: bool,
    /// The endpoints are told the plan.
    pub told: bool,
    /// Data is held back until the others have the counts too.
    #[serde(default)]
    pub hold: bool,
    /// Length of a slot; 0: no slots.
    pub slot_ns: Ns,
    /// What may wait in a host's interface, bytes; 0: what the protocol finds right
    /// ([`OwnQueue::Auto`]); the greatest number: what the system lets wait.
    #[serde(default)]
    pub own_queue: u64,
}

impl Uses {
    /// What a BSP library does on a switched network.
    pub const ALL: Uses = Uses { order: true, mirrored: false, told: true, hold: true, slot_ns: 0, own_queue: 0 };
}

impl Uses {
    fn own_queue(&self) -> OwnQueue {
        match self.own_queue {
            0 => OwnQueue::Auto,
            u64::MAX => OwnQueue::System,
            bytes => OwnQueue::Bytes(bytes),
        }
    }
}

/// A program of supersteps.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bsp {
    /// How many.
    pub steps: u32,
    /// The h-relation.
    pub relation: Relation,
    /// Computation in each.
    pub compute_ns: Ns,
    /// What of the plan is used.
    pub uses: Uses,
}

impl Bsp {
    /// What a process sends in a superstep.
    #[must_use]
    pub fn sends(&self, step: u32, from: HostId, p: u32, seed: u64) -> Vec<Flow> {
        let flow = |rank, bytes| Flow { rank, bytes };
        match self.relation {
            Relation::Total(bytes) => (0..p).filter(|to| *to != from).map(|to| flow(to, bytes)).collect(),
            Relation::Shift(bytes) => vec![flow((from + 1) % p, bytes)],
            Relation::ToOne(bytes) => {
                if from == 0 {
                    Vec::new()
                } else {
                    vec![flow(0, bytes)]
                }
            }
            Relation::Sparse { degree, bytes } => {
                let mut rng = Rng::new(mix(seed), u64::from(step) << 32 | u64::from(from));
                let mut to = BTreeSet::new();
                while (to.len() as u32) < degree.min(p - 1) {
                    to.insert((from + 1 + rng.below(u64::from(p) - 1) as u32) % p);
                }
                to.into_iter().map(|to| flow(to, rng.log_between(bytes.0, bytes.1))).collect()
            }
        }
    }

    fn order(&self) -> Order {
        match (self.uses.order, self.uses.mirrored) {
            (false, _) => Order::Ascending,
            (true, false) => Order::Cyclic,
            (true, true) => Order::Mirrored,
        }
    }

    /// The part of a process in a superstep.
    #[must_use]
    pub fn plan(&self, step: u32, me: HostId, p: u32, seed: u64) -> Plan {
        let out = self.sends(step, me, p, seed);
        let inn: Vec<Flow> = match self.relation {
            Relation::Total(bytes) => (0..p).map(|rank| Flow { rank, bytes }).collect(),
            Relation::Shift(bytes) => vec![Flow { rank: (me + p - 1) % p, bytes }],
            Relation::ToOne(bytes) => (1..p).filter(|_| me == 0).map(|rank| Flow { rank, bytes }).collect(),
            Relation::Sparse { .. } => {
                let of = |rank| self.sends(step, rank, p, seed).into_iter().find(|f| f.rank == me);
                (0..p).filter_map(|rank| of(rank).map(|f| Flow { rank, bytes: f.bytes })).collect()
            }
        };
        Plan::new(self.order(), me, p, &out, &inn)
    }

    /// The most bytes any process sends or gets in a superstep: h.
    #[must_use]
    pub fn h(&self, step: u32, p: u32, seed: u64) -> u64 {
        let (mut out, mut inn) = (vec![0u64; p as usize], vec![0u64; p as usize]);
        for from in 0..p {
            for f in self.sends(step, from, p, seed) {
                out[from as usize] += f.bytes;
                inn[f.rank as usize] += f.bytes;
            }
        }
        out.into_iter().chain(inn).max().unwrap_or(0)
    }

    /// Bytes and messages of all supersteps.
    #[must_use]
    pub fn volume(&self, p: u32) -> (u64, u64) {
        let (flows, bytes) = match self.relation {
            Relation::Total(bytes) => (u64::from(p) * u64::from(p - 1), bytes),
            Relation::Shift(bytes) | Relation::ToOne(bytes) => (u64::from(p), bytes),
            Relation::Sparse { degree, bytes } => (u64::from(p) * u64::from(degree), bytes.1),
        };
        let rounds = u64::from(rounds(p) * p) + flows;
        (u64::from(self.steps) * (flows * bytes + rounds * 64), u64::from(self.steps) * rounds)
    }
}

/// Rounds of the reduction.
fn rounds(p: u32) -> u32 {
    p.next_power_of_two().trailing_zeros()
}

/// Where a process stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// It computes until then.
    Computing(Ns),
    /// It waits for the message of this round.
    Reducing(u32),
    /// It has the counts and holds its data back until then.
    Holding(Ns),
    /// It waits for what comes.
    Exchanging,
    /// It is done, but for sends that are not known to have arrived.
    Over,
}

/// One process of such a program.
#[derive(Debug)]
pub struct Process {
    bsp: Bsp,
    me: HostId,
    p: u32,
    seed: u64,
    step: u32,
    stage: Stage,
    /// Rounds of the reduction whose message has come, by superstep: others may be ahead.
    rounds: BTreeMap<RecvId, u32>,
    came: BTreeSet<u32>,
    receives: BTreeSet<RecvId>,
    sends: BTreeSet<SendId>,
}

impl Process {
    /// Process `me` of `p`.
    #[must_use]
    pub fn new(bsp: Bsp, me: HostId, p: u32, seed: u64) -> Process {
        let stage = Stage::Computing(0);
        let (rounds, came, receives, sends) = Default::default();
        Process { bsp, me, p, seed, step: 0, stage, rounds, came, receives, sends }
    }

    fn tag(&self, round: u32) -> u64 {
        u64::from(self.step) << 8 | u64::from(round)
    }

    fn send(&mut self, io: &mut Io<'_, '_>, to: HostId, round: u32, len: u64) {
        let op = SendOp { to, tagged: true, tag: self.tag(round), len, sync: false };
        self.sends.insert(io.send(op));
    }

    fn receive(&self, io: &mut Io<'_, '_>, from: HostId, round: u32) -> RecvId {
        let tag = self.tag(round);
        io.receive(RecvOp { from: Some(from), tagged: true, tag, ignore: PROTOCOL, room: u64::MAX })
    }

    /// The reduction begins: its receives are posted.
    fn reduce(&mut self, io: &mut Io<'_, '_>) {
        for round in 0..rounds(self.p) {
            let from = (self.me + self.p - (1 << round) % self.p) % self.p;
            let id = self.receive(io, from, 1 + round);
            self.rounds.insert(id, round);
        }
        self.stage = Stage::Reducing(0);
        self.tell_round(io, 0);
    }

    fn tell_round(&mut self, io: &mut Io<'_, '_>, round: u32) {
        if round < rounds(self.p) {
            let cost = counts::choose(self.p).cost(self.p, self.p - 1);
            let to = (self.me + (1 << round)) % self.p;
            self.send(io, to, 1 + round, (cost.bytes / u64::from(cost.rounds.max(1))).max(8));
        }
    }

    /// Until when it holds back what it has to send.
    fn hold(&self, io: &mut Io<'_, '_>) -> Ns {
        if !self.bsp.uses.hold {
            return io.now();
        }
        let bytes = self.bsp.sends(self.step, self.me, self.p, self.seed).iter().map(|f| f.bytes).sum();
        let partners = (0..rounds(self.p)).map(|round| (self.me + (1 << round)) % self.p);
        let trip = partners.map(|to| io.least_round_trip(to)).max().unwrap_or(0);
        io.now() + hold_ns(self.p, bytes, trip)
    }

    fn exchange(&mut self, io: &mut Io<'_, '_>) {
        let plan = self.bsp.plan(self.step, self.me, self.p, self.seed);
        if self.bsp.uses.told {
            let slots = (self.bsp.uses.slot_ns > 0).then_some(Slots { slots: self.p, slot_ns: self.bsp.uses.slot_ns });
            io.superstep(&plan, slots, self.bsp.uses.own_queue());
        }
        for f in &plan.inn {
            let id = self.receive(io, f.rank, 0);
            self.receives.insert(id);
        }
        for f in &plan.out {
            self.send(io, f.rank, 0, f.bytes);
        }
        self.stage = Stage::Exchanging;
    }

    fn go(&mut self, io: &mut Io<'_, '_>) {
        loop {
            match self.stage {
                Stage::Computing(until) if io.now() < until => return,
                Stage::Computing(_) if self.step == self.bsp.steps => self.stage = Stage::Over,
                Stage::Computing(_) => self.reduce(io),
                Stage::Reducing(round) if round == rounds(self.p) => {
                    self.came.clear();
                    self.stage = Stage::Holding(self.hold(io));
                }
                Stage::Holding(until) if io.now() < until => return,
                Stage::Holding(_) => self.exchange(io),
                Stage::Reducing(round) if self.came.contains(&round) => {
                    self.stage = Stage::Reducing(round + 1);
                    self.tell_round(io, round + 1);
                }
                Stage::Exchanging if self.receives.is_empty() => {
                    io.superstep_ends(self.step);
                    self.step += 1;
                    self.stage = Stage::Computing(io.now() + self.bsp.compute_ns);
                }
                _ => return,
            }
        }
    }
}

impl App for Process {
    fn start(&mut self, io: &mut Io<'_, '_>) {
        self.go(io);
    }

    fn outcome(&mut self, io: &mut Io<'_, '_>, outcome: Outcome) {
        match outcome {
            Outcome::Sent(id) | Outcome::SendFailed(id) => _ = self.sends.remove(&id),
            Outcome::Received { receive, .. } | Outcome::RecvFailed(receive) => {
                if let Some(round) = self.rounds.remove(&receive) {
                    self.came.insert(round);
                }
                self.receives.remove(&receive);
            }
            Outcome::Part { .. } | Outcome::Back { .. } | Outcome::Remote(_) => {}
        }
        self.go(io);
    }

    fn wake(&mut self, io: &mut Io<'_, '_>) {
        self.go(io);
    }

    fn next_wake(&self) -> Option<Ns> {
        match self.stage {
            Stage::Computing(until) | Stage::Holding(until) => Some(until),
            _ => None,
        }
    }

    fn is_done(&self) -> bool {
        self.stage == Stage::Over && self.sends.is_empty()
    }

    fn state(&self) -> String {
        format!(
            "superstep {} {:?}, {} receives, {} sends open",
            self.step,
            self.stage,
            self.receives.len(),
            self.sends.len()
        )
    }
}
