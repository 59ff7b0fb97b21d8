//! Checkers: what must hold in every run, whatever the network does. They see everything, from
//! above.

pub mod counters;
pub mod delivery;
pub mod idle;
pub mod liveness;
pub mod many;
pub mod memory;
pub mod order;
pub mod payload;
pub mod remote;

use std::fmt;

use crate::spec::HostId;

/// One incarnation of the program on a host.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Program {
    /// The host.
    pub host: HostId,
    /// Incarnations before this one.
    pub incarnation: u32,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.incarnation == 0 {
            write!(f, "host {}", self.host)
        } else {
            write!(f, "host {} (incarnation {})", self.host, self.incarnation)
        }
    }
}

/// What a run came to that is promised nothing of: whether the swarm does what it is to do.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Messages that went into buffers for several.
    pub parts: u64,
    /// Of these, those that did not fit.
    pub cut: u64,
    /// Such buffers handed back.
    pub handed_back: u64,
    /// Ranks that ended in good order.
    pub left_in_order: u64,
    /// Ranks that ended because time was over.
    pub left_late: u64,
    /// Peers that ranks had done with while they lived, or before they were known to be dead.
    pub dropped: u64,
    /// Peers forgotten.
    pub forgotten: u64,
    /// Their places given to others.
    pub places_reused: u64,
}

impl Tally {
    /// Adds that of another run.
    pub fn add(&mut self, other: &Tally) {
        self.parts += other.parts;
        self.cut += other.cut;
        self.handed_back += other.handed_back;
        self.left_in_order += other.left_in_order;
        self.left_late += other.left_late;
        self.dropped += other.dropped;
        self.forgotten += other.forgotten;
        self.places_reused += other.places_reused;
    }
}

/// All checkers of a run.
#[derive(Debug, Default)]
pub struct Checks {
    /// Exactly once.
    pub delivery: delivery::Delivery,
    /// MPI's order.
    pub order: order::Order,
    /// Bounded memory.
    pub memory: memory::Memory,
    /// Remote memory.
    pub remote: remote::Remote,
    /// Atomic operations.
    pub counters: counters::Counters,
    /// Verdicts on peers.
    pub liveness: liveness::Liveness,
    /// How often some things happened.
    pub tally: Tally,
}

impl Checks {
    /// A program has died.
    pub fn died(&mut self, program: Program, now: u64) {
        self.order.died(program);
        self.liveness.died(program, now);
    }
}
