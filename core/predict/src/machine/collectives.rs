//! How collectives are made: of which messages, or drawn from measured ones.

use std::collections::BTreeMap;

use weir_annotations::program::CollectiveOp;

use super::grid::Grid;

/// Up to so many bytes for each process an all-to-all is Bruck's from so many processes on: MPICH's
/// `MPIR_CVAR_ALLTOALL_SHORT_MSG_SIZE` and the 8 in its choice of algorithms.
const ALLTOALL_SHORT: u64 = 256;
const ALLTOALL_MANY: u32 = 8;
/// Up to so many it sends all at once, beyond in rounds: MPICH's
/// `MPIR_CVAR_ALLTOALL_MEDIUM_MSG_SIZE`.
const ALLTOALL_AT_ONCE: u64 = 32_768;

/// An algorithm. Not each can do each operation: [`Algorithm::can`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// The root with each other process, one after the other. All to all: everybody posts its
    /// receives, then sends to the next, the one after it, ... without waiting in between.
    Linear,
    /// A binomial tree. Barrier: up and down again. Allreduce: reduce, then bcast.
    Binomial,
    /// In round k with the processes at distance 2^k: dissemination for barriers, Bruck's for all
    /// to all and allgather.
    Bruck,
    /// Round k with the process whose number differs in bit k, what is beyond a power of two folded
    /// in first (allreduce), or by a process's lower neighbours at distance 2^k (scan).
    Doubling,
    /// In step i to the i-th next process and from the i-th previous one (all to all), or round the
    /// ring (allgather, reduce-scatter).
    Ring,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Linear, Self::Binomial, Self::Bruck, Self::Doubling, Self::Ring];

    /// The name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Binomial => "binomial",
            Self::Bruck => "bruck",
            Self::Doubling => "doubling",
            Self::Ring => "ring",
        }
    }

    /// The algorithm of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }

    /// Whether it can do this operation.
    #[must_use]
    pub fn can(self, operation: CollectiveOp) -> bool {
        use CollectiveOp as Op;
        match self {
            Self::Linear => true,
            Self::Binomial => !matches!(operation, Op::Alltoall | Op::Scan | Op::Exscan),
            Self::Bruck => matches!(operation, Op::Barrier | Op::Alltoall | Op::Allgather),
            Self::Doubling => matches!(operation, Op::Allreduce | Op::Scan | Op::Exscan),
            Self::Ring => matches!(operation, Op::Alltoall | Op::Allgather | Op::ReduceScatter),
        }
    }

    /// What is taken where nothing is said, for so many bytes and processes.
    #[must_use]
    pub fn usual(operation: CollectiveOp, bytes: u64, processes: u32) -> Self {
        use CollectiveOp as Op;
        match operation {
            Op::Barrier => Self::Bruck,
            Op::Bcast | Op::Reduce => Self::Binomial,
            Op::Scatter | Op::Gather => Self::Linear,
            Op::Alltoall if bytes <= ALLTOALL_SHORT && processes >= ALLTOALL_MANY => Self::Bruck,
            Op::Alltoall if bytes <= ALLTOALL_AT_ONCE => Self::Linear,
            Op::Allgather | Op::Alltoall | Op::ReduceScatter => Self::Ring,
            Op::Allreduce | Op::Scan | Op::Exscan => Self::Doubling,
        }
    }
}

/// The name of an operation in files: MPI's without prefix, `_` as `-`.
#[must_use]
pub fn operation_name(operation: CollectiveOp) -> &'static str {
    use CollectiveOp as Op;
    match operation {
        Op::Barrier => "barrier",
        Op::Bcast => "bcast",
        Op::Scatter => "scatter",
        Op::Gather => "gather",
        Op::Allgather => "allgather",
        Op::Alltoall => "alltoall",
        Op::Reduce => "reduce",
        Op::Allreduce => "allreduce",
        Op::ReduceScatter => "reduce-scatter",
        Op::Scan => "scan",
        Op::Exscan => "exscan",
    }
}

/// The operation of this name in files.
#[must_use]
pub fn operation_of(name: &str) -> Option<CollectiveOp> {
    CollectiveOp::ALL.into_iter().find(|op| operation_name(*op) == name)
}

/// Measured collectives: by operation, distributions by number of processes (in place of the level)
/// and size.
pub type Measured = BTreeMap<CollectiveOp, Grid>;

/// How collectives are made.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Collectives {
    /// For an operation: up to a size in bytes (rising) which algorithm; beyond the last, the last.
    /// Not listed: the usual one.
    pub chosen: BTreeMap<CollectiveOp, Vec<(u64, Algorithm)>>,
    /// Operations that are drawn as a whole instead. They must have been measured at this number of
    /// processes, or at more and fewer.
    pub measured: Measured,
}

impl Collectives {
    /// The algorithm for an operation of this size; one that cannot do it counts as the usual one.
    #[must_use]
    pub fn algorithm(&self, operation: CollectiveOp, bytes: u64, processes: u32) -> Algorithm {
        let listed = self.chosen.get(&operation).into_iter().flatten();
        let mut found = None;
        for (most, algorithm) in listed {
            found = Some(*algorithm);
            if bytes <= *most {
                break;
            }
        }
        found.filter(|a| a.can(operation)).unwrap_or_else(|| Algorithm::usual(operation, bytes, processes))
    }
}
