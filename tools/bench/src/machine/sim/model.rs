//! What is planted: how long messages take, and what the processes' clocks show.

use std::cell::Cell;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// The shape of message times above their floor, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Always the floor.
    Constant,
    /// Exponential with this mean.
    Exponential(f64),
    /// Weibull.
    Weibull {
        /// Shape parameter.
        shape: f64,
        /// Scale, ns.
        scale: f64,
    },
    /// Lognormal.
    Lognormal {
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
}

impl Shape {
    fn sample(self, random: &mut Pcg64) -> f64 {
        match self {
            Shape::Constant => 0.0,
            Shape::Exponential(mean) => -mean * open_unit(random).ln(),
            Shape::Weibull { shape, scale } => scale * (-open_unit(random).ln()).powf(1.0 / shape),
            Shape::Lognormal { mu, sigma } => {
                // Box and Muller.
                let radius = (-2.0 * open_unit(random).ln()).sqrt();
                (mu + sigma * radius * (std::f64::consts::TAU * open_unit(random)).cos()).exp()
            }
        }
    }
}

/// A uniform number in (0, 1].
fn open_unit(random: &mut Pcg64) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// A process's clock: `ticks = ticks_per_ns * (1 + drift) * (t + offset_ns)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wrong {
    /// How far ahead it is at the beginning, ns.
    pub offset_ns: f64,
    /// How much too fast it goes, as a fraction.
    pub drift: f64,
}

/// A warm-up: the first messages of each rank take longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warming {
    /// So many of them.
    pub messages: u32,
    /// Of those that are at least so long, which the clocks' and the harness's own are not, bytes.
    pub bytes: usize,
    /// By so much, ns.
    pub longer_ns: f64,
}

/// Phases of a machine: each has a speed of its own, so that what is measured within one is alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phases {
    /// How long each lasts, ns.
    pub each_ns: f64,
    /// Messages take longer by up to so much, the same for all of a phase, uniformly distributed
    /// over phases, ns.
    pub longer_ns: f64,
}

/// The machine stands still for a while: what would arrive then arrives so much later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stall {
    /// When it begins, ns.
    pub at_ns: f64,
    /// How long it lasts, ns.
    pub for_ns: f64,
}

/// A machine.
#[derive(Clone, Debug)]
pub struct Model {
    /// Seed of everything random.
    pub seed: u64,
    /// The node of each rank.
    pub nodes: Vec<usize>,
    /// Least time of an empty message between nodes, ns.
    pub floor_ns: f64,
    /// The same within a node, ns.
    pub floor_within_ns: f64,
    /// For each byte, ns.
    pub byte_ns: f64,
    /// What is added to the floor.
    pub shape: Shape,
    /// For each other message under way when one is begun, the random part grows by this fraction
    /// of itself.
    pub contention: f64,
    /// Messages of mail overtake those of other tags.
    pub streams: bool,
    /// Local completion: how long a send keeps the sender, ns.
    pub local_ns: f64,
    /// One message in so many (at random) takes `outlier_ns` longer; 0: none.
    pub outlier_every: u32,
    /// See `outlier_every`.
    pub outlier_ns: f64,
    /// What is slower at the beginning.
    pub warming: Option<Warming>,
    /// Its phases.
    pub phases: Option<Phases>,
    /// When it stands still, each time after the one before it.
    pub stalls: Vec<Stall>,
    /// Ticks in a nanosecond of a right clock.
    pub ticks_per_ns: f64,
    /// How long a reading of the clock takes, ns.
    pub reading_ns: f64,
    /// The clocks of the ranks; who is not listed has a right one.
    pub clocks: Vec<Wrong>,
    /// Ranks that read the kernel's clock and no cycle counter.
    pub kernel_clocks: Vec<usize>,
    /// Ranks whose readings of the counter no steady rate explains, until they read the kernel's
    /// clock; those of `kernel_clocks` never do.
    pub unsteady: Vec<usize>,
    /// Ranks that change their processor, and when, ns.
    pub moves: Vec<(usize, f64)>,
    /// A message of a rank's thread t takes t times so much longer, ns.
    pub thread_ns: f64,
    /// Its ranks cannot have several threads.
    pub no_threads: bool,
    /// This rank dies when its time reaches so many ns.
    pub death: Option<(usize, f64)>,
}

impl Model {
    /// A machine of `ranks` processes, each on a node of its own, right clocks, messages of 10 us
    /// that vary little.
    #[must_use]
    pub fn plain(ranks: usize) -> Model {
        Model {
            seed: 1,
            nodes: (0..ranks).collect(),
            floor_ns: 10_000.0,
            floor_within_ns: 1_000.0,
            byte_ns: 0.1,
            shape: Shape::Exponential(200.0),
            contention: 0.0,
            streams: false,
            local_ns: 500.0,
            outlier_every: 0,
            outlier_ns: 0.0,
            warming: None,
            phases: None,
            stalls: Vec::new(),
            ticks_per_ns: 1.0,
            reading_ns: 10.0,
            clocks: Vec::new(),
            kernel_clocks: Vec::new(),
            unsteady: Vec::new(),
            moves: Vec::new(),
            thread_ns: 0.0,
            no_threads: false,
            death: None,
        }
    }

    pub(super) fn clock(&self, rank: usize) -> Wrong {
        self.clocks.get(rank).copied().unwrap_or(Wrong { offset_ns: 0.0, drift: 0.0 })
    }

    pub(super) fn random(&self, rank: usize) -> Pcg64 {
        Pcg64::seed_from_u64(self.seed ^ (rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// What a warm-up adds to a message of a rank that has posted `posted` which count for it;
    /// counts it.
    pub(super) fn warming_ns(&self, posted: &Cell<u32>, bytes: usize) -> f64 {
        let Some(warming) = self.warming.filter(|w| bytes >= w.bytes) else { return 0.0 };
        let before = posted.replace(posted.get().saturating_add(1));
        if before < warming.messages { warming.longer_ns } else { 0.0 }
    }

    /// What the machine's phase adds to a message that is sent now, ns.
    pub(super) fn phase_ns(&self, now_ns: f64) -> f64 {
        let Some(phases) = self.phases else { return 0.0 };
        let number = (now_ns.max(0.0) / phases.each_ns) as u64;
        phases.longer_ns * open_unit(&mut Pcg64::seed_from_u64(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The processor of a rank: its own, and another after each move.
    pub(super) fn processor(&self, rank: usize, now_ns: f64) -> u32 {
        let moves = self.moves.iter().filter(|(who, at)| *who == rank && *at <= now_ns).count();
        (rank + moves * self.nodes.len()) as u32
    }

    /// When a message arrives that would arrive at this time if the machine never stood still, ns.
    pub(super) fn after_stalls(&self, arrives_ns: f64) -> f64 {
        let begun = self.stalls.partition_point(|stall| stall.at_ns <= arrives_ns);
        let last = self.stalls[..begun].last().filter(|stall| arrives_ns < stall.at_ns + stall.for_ns);
        arrives_ns + last.map_or(0.0, |stall| stall.for_ns)
    }

    /// How long a message is under way, ns.
    pub(super) fn transit_ns(&self, random: &mut Pcg64, from: usize, to: usize, bytes: usize, others: usize) -> f64 {
        let floor = if self.nodes[from] == self.nodes[to] { self.floor_within_ns } else { self.floor_ns };
        let varying = self.shape.sample(random) * (1.0 + self.contention * others as f64);
        let late = self.outlier_every > 0 && random.next_u64().is_multiple_of(u64::from(self.outlier_every));
        floor + self.byte_ns * bytes as f64 + varying + if late { self.outlier_ns } else { 0.0 }
    }
}
