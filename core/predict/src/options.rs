//! How a run is evaluated: modes, ablations, what-if.

use std::sync::Arc;

use crate::machine::Draw;

/// Steps that a run may take before it is given up. Of control alone some 30 million are taken in a
/// second, of messages some 10 million; a million iterations of a Jacobi with 8 processes are some
/// 100 million.
pub const USUAL_BUDGET: u64 = 200_000_000;

/// What may be under way at once: some 1 GB. And for each process.
pub const USUAL_UNDER_WAY: u64 = 2_000_000;
/// See [`USUAL_UNDER_WAY`].
pub const USUAL_UNDER_WAY_EACH: u64 = 16;

/// How a run is evaluated. The default is the normal mode.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// How communication times are drawn from their distributions. Serial times and choices are
    /// drawn in each mode.
    pub draw: Draw,
    /// Whether messages slow each other: else each meets the lowest level that was measured, or its
    /// link alone.
    pub contention: bool,
    /// Whether nodes send and take only so many bytes at once.
    pub node_limits: bool,
    /// Whether messages are lost.
    pub losses: bool,
    /// What if bytes took no time?
    pub infinite_bandwidth: bool,
    /// What if processors were so many times as fast? Above 0.
    pub cpu_times: f64,
    /// Factors on each process's serial times; none: 1. For "what if the load were balanced?" see
    /// [`Options::balanced`].
    pub serial_factors: Option<Arc<[f64]>>,
    /// Whether loops that repeat exactly are skipped in whole periods: the outcome is the same, but
    /// for [`crate::Outcome::skipped`].
    pub skip_repeats: bool,
    /// Steps (ops and events) after which the run is given up. What is skipped takes none.
    pub budget: u64,
    /// Messages, requests and collectives that may be under way at once before the run is given up;
    /// none: [`USUAL_UNDER_WAY`] and [`USUAL_UNDER_WAY_EACH`] for each process.
    pub most_under_way: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            draw: Draw::Full,
            contention: true,
            node_limits: true,
            losses: true,
            infinite_bandwidth: false,
            cpu_times: 1.0,
            serial_factors: None,
            skip_repeats: true,
            budget: USUAL_BUDGET,
            most_under_way: None,
        }
    }
}

impl Options {
    /// The classical model that a ping-pong between two processes gives: nothing shared, always the
    /// mean.
    #[must_use]
    pub fn two_by_one(draw: Draw) -> Self {
        Self { draw, ..Self::without_contention() }
    }

    /// What if no message met another?
    #[must_use]
    pub fn without_contention() -> Self {
        Self { contention: false, node_limits: false, losses: false, ..Self::default() }
    }

    /// What if every process computed as much as they do on average? `outcome` is of a run as it
    /// is.
    #[must_use]
    pub fn balanced(mut self, outcome: &crate::Outcome) -> Self {
        let computed: Vec<f64> =
            outcome.losses.by_process.iter().map(|one| one.of(crate::Cause::Computation).seconds()).collect();
        let mean = computed.iter().sum::<f64>() / computed.len().max(1) as f64;
        let factor = |own: f64| if own > 0.0 { mean / own } else { 1.0 };
        self.serial_factors = Some(computed.into_iter().map(factor).collect());
        self
    }

    pub(crate) fn most_under_way(&self, numprocs: u32) -> u64 {
        self.most_under_way.unwrap_or(USUAL_UNDER_WAY + USUAL_UNDER_WAY_EACH * u64::from(numprocs))
    }

    pub(crate) fn serial_factor(&self, process: u32) -> f64 {
        let own = self.serial_factors.as_ref().and_then(|f| f.get(process as usize)).copied().unwrap_or(1.0);
        let cpu = if self.cpu_times > 0.0 && self.cpu_times.is_finite() { self.cpu_times } else { 1.0 };
        own / cpu
    }
}
