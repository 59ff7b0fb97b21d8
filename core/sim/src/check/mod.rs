//! Checkers: what must hold in every run, whatever the network does. They see everything, from above.

pub mod counters;
pub mod delivery;
pub mod liveness;
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
}

impl Checks {
    /// A program has died.
    pub fn died(&mut self, program: Program, now: u64) {
        self.order.died(program);
        self.liveness.died(program, now);
    }
}
