//! One rank's global clock: its counter, calibrated, and its place among the others', by
//! `weir-clock` over a [`Machine`].

use serde::{Deserialize, Serialize};
use weir_clock::{Effort, Exchange, MODEL_BYTES, Probe, Reading, Schedule, TickPair, Ticks, Timeline};

use crate::error::{BenchError, Result};
use crate::machine::{Control, Machine, TAG_CLOCK};

/// Pairs of readings by which a counter is calibrated.
const PAIRS: usize = 64;
/// From one to the next, ns: together a tenth of a second, in which 30 ns of a reading are less
/// than a millionth.
const SPACING_NS: u64 = 1_600_000;

/// The first synchronisation measures drift.
fn first() -> Effort {
    Effort::default()
}

/// The later ones only where the offset has gone: drift then shows between them.
fn later() -> Effort {
    Effort { batches: 3, spacing_ns: 1_000_000, ..Effort::default() }
}

const SECOND_NS: i64 = 1_000_000_000;
/// Clocks are brought together at least so often, ns. Between two synchronisations a drift that
/// wanders by 2e-9 a second moves a clock by 6 ns from the line between them; over an hour it would
/// be milliseconds.
const RESYNC_NS: i64 = 5 * SECOND_NS;
/// Readings by which it is found how long one takes.
const READINGS: usize = 1000;
/// The kernel's own clock, which all ranks read alike where one kernel runs them.
const KERNEL_CLOCK: &str = "monotonic-raw";

/// Reads pairs of counter and kernel clock.
pub fn pairs<M: Machine>(m: &M) -> Vec<TickPair> {
    let mut pairs = Vec::with_capacity(PAIRS);
    for _ in 0..PAIRS {
        // Of three, the one that was interrupted least.
        let three = [m.tick_pair(), m.tick_pair(), m.tick_pair()];
        pairs.extend(three.into_iter().min_by_key(|p| p.after.wrapping_sub(p.before)));
        m.pause(SPACING_NS);
    }
    pairs
}

/// Pairs on their way to ranks that read the same counter.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Told(Vec<(u64, i64, u64)>);

/// This rank's clock.
pub struct Clock {
    ticks: Ticks,
    timeline: Timeline,
    /// Rate of rank 0's clock against this one, minus one, as far as the timeline knows.
    slope: f64,
    schedule: Schedule,
    /// What each rank's clock is, by rank: ranks with equal numbers read one counter.
    domains: Vec<u64>,
    rank: usize,
    /// Rank 0's clock at the origin of the launch, ns.
    origin_ns: i64,
    /// When clocks were brought together, since the origin, and the largest error bound then: at
    /// rank 0 only.
    resyncs: Vec<(i64, f64)>,
    /// When they were brought together last, on this rank's clock, ns.
    synced_ns: i64,
    /// Smallest step seen between two readings, ns.
    step_ns: f64,
    /// The largest bound so far on this rank's error, ns.
    worst_own_ns: f64,
}

/// What a rank tells of its clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Quality {
    /// Bound on its distance from rank 0's clock, the worst over the launch so far, ns.
    pub error_ns: f64,
    /// Its rate against rank 0's, parts per million.
    pub drift_ppm: f64,
    /// Ticks a second.
    pub frequency_hz: f64,
    /// Smallest step seen, ns.
    pub resolution_ns: f64,
}

impl Clock {
    /// Calibrates this rank's counter and brings it together with all others'. `node` names what
    /// runs one kernel clock; all its ranks read one counter if `shared`.
    ///
    /// # Errors
    /// A counter that no steady rate explains, or the machine's.
    pub fn start<M: Machine>(m: &M, node: &str, shared: bool) -> Result<Clock> {
        let (ticks, domains) = steady(m, node, shared)?;
        let step_ns = ticks.duration_ns(least_step(m));
        let schedule = Schedule::with_domains(&domains);
        let mut clock = Clock {
            ticks,
            timeline: Timeline::root(),
            slope: 0.0,
            schedule,
            domains,
            rank: m.rank(),
            origin_ns: 0,
            resyncs: Vec::new(),
            synced_ns: 0,
            step_ns,
            worst_own_ns: 0.0,
        };
        let model = clock.model(m, first())?;
        clock.timeline = if m.rank() == 0 { Timeline::root() } else { Timeline::new(model, &first().assumptions) };
        clock.origin_ns = m.share(&clock.ticks.to_ns(m.ticks()))?;
        clock.note(m)?;
        Ok(clock)
    }

    /// Whether any two ranks have different clocks.
    #[must_use]
    pub fn is_distributed(&self) -> bool {
        self.domains.iter().any(|d| *d != self.domains[0])
    }

    /// Brings the clocks together anew; what was read since the last time can then be converted
    /// better.
    ///
    /// # Errors
    /// The machine's.
    pub fn again<M: Machine>(&mut self, m: &M) -> Result<()> {
        if !self.is_distributed() {
            return Ok(());
        }
        let model = self.model(m, later())?;
        self.timeline.push(model).map_err(|error| BenchError::machine("clocks", error))?;
        self.note(m)
    }

    fn model<M: Machine>(&self, m: &M, effort: Effort) -> Result<weir_clock::Model> {
        let mut probes = Probes { m, ticks: &self.ticks };
        let part = weir_clock::synchronise(&self.schedule, self.rank as u32, effort, &mut probes);
        let part = part.map_err(|error| match error {
            weir_clock::SyncError::Exchange(error) => error,
            other => BenchError::machine("clocks", other.to_string()),
        })?;
        m.agree(part.result().map_err(|error| BenchError::machine("clocks", error)))
    }

    fn note<M: Machine>(&mut self, m: &M) -> Result<()> {
        let now = self.ticks.to_ns(m.ticks());
        let second = self.timeline.at(now + SECOND_NS).global_ns - self.timeline.at(now).global_ns;
        self.slope = (second - SECOND_NS) as f64 / SECOND_NS as f64;
        self.synced_ns = now;
        let error_ns = self.bound_after(m, 0);
        self.saw(error_ns);
        let errors = m.gather_values(&error_ns)?;
        if m.rank() == 0 {
            let worst = errors.into_iter().fold(0.0, f64::max);
            self.resyncs.push((self.ticks.to_ns(m.ticks()) - self.origin_ns, worst));
        }
        Ok(())
    }

    /// Whether it is time to bring the clocks together again, also within a cell: the bound grows
    /// as the square of the time between.
    pub fn is_due<M: Machine>(&self, m: &M) -> bool {
        self.is_distributed() && self.ticks.to_ns(m.ticks()) - self.synced_ns > RESYNC_NS
    }

    /// Bound on this rank's error in `ahead_ns` from now, if clocks are not brought together
    /// before: it grows since the last time that they were.
    pub fn bound_after<M: Machine>(&self, m: &M, ahead_ns: i64) -> f64 {
        let then_ns = self.ticks.to_ns(m.ticks()).saturating_add(ahead_ns);
        self.timeline.at(then_ns).error_ns + self.least_ns()
    }

    /// What no bound is below, ns: a tick, and the time of a reading. Also ranks that read one
    /// counter do not read it at one instant, and the kernel that compares processors' counters
    /// cannot see a difference that is less.
    #[must_use]
    pub fn least_ns(&self) -> f64 {
        self.ticks.ns_per_tick() + self.step_ns
    }

    /// Keeps the largest bound that anything was converted with.
    pub fn saw(&mut self, error_ns: f64) {
        self.worst_own_ns = self.worst_own_ns.max(error_ns);
    }

    /// The largest error bound over ranks after the last synchronisation, ns; at rank 0 only.
    #[must_use]
    pub fn worst_ns(&self) -> f64 {
        self.resyncs.last().map_or(0.0, |(_, error)| *error)
    }

    /// Synchronisations: when, since the origin, and the largest error bound; at rank 0 only.
    #[must_use]
    pub fn resyncs(&self) -> &[(i64, f64)] {
        &self.resyncs
    }

    /// Whether two ranks read one counter.
    #[must_use]
    pub fn same(&self, a: usize, b: usize) -> bool {
        self.domains[a] == self.domains[b]
    }

    /// Global time since the origin of a reading of this rank's counter, and its error bound.
    #[must_use]
    pub fn at(&self, ticks: u64) -> Reading {
        let reading = self.timeline.at(self.ticks.to_ns(ticks));
        Reading { global_ns: reading.global_ns - self.origin_ns, error_ns: reading.error_ns + self.least_ns() }
    }

    /// Global times of readings, and the largest of their error bounds: between two
    /// synchronisations it is larger than at either.
    #[must_use]
    pub fn convert(&self, ticks: &[u64]) -> (Vec<i64>, f64) {
        let mut worst_ns = 0.0f64;
        let one = |&ticks: &u64| {
            let reading = self.at(ticks);
            worst_ns = worst_ns.max(reading.error_ns);
            reading.global_ns
        };
        (ticks.iter().map(one).collect(), worst_ns)
    }

    /// Length between two readings of this rank's counter on the global clock, ns.
    #[must_use]
    pub fn length_ns(&self, begin: u64, end: u64) -> f64 {
        let ticks = end.wrapping_sub(begin).cast_signed();
        self.ticks.duration_ns(ticks.unsigned_abs()) * (ticks.signum() as f64) * (1.0 + self.slope)
    }

    /// What this rank's counter shows at a global time since the origin, as far as is known now.
    #[must_use]
    pub fn ticks_at(&self, global_ns: i64) -> u64 {
        let wanted = global_ns.saturating_add(self.origin_ns);
        // The timeline knows the drift better than the last synchronisation alone, which is short.
        // The clocks' rates differ by far less than a thousandth, so that each step is that much
        // nearer.
        let mut local = wanted;
        for _ in 0..4 {
            local = local.saturating_add(wanted - self.timeline.at(local).global_ns);
        }
        self.ticks.from_ns(local)
    }

    /// Global time now, since the origin, ns.
    pub fn now_ns<M: Machine>(&self, m: &M) -> i64 {
        self.at(m.ticks()).global_ns
    }

    /// Ticks in a microsecond.
    #[must_use]
    pub fn ticks_per_us(&self) -> f64 {
        1000.0 / self.ticks.ns_per_tick()
    }

    /// How good this rank's clock is.
    #[must_use]
    pub fn quality(&self) -> Quality {
        Quality {
            error_ns: self.worst_own_ns,
            drift_ppm: -self.slope * 1e6,
            frequency_hz: self.ticks.frequency_hz(),
            resolution_ns: self.step_ns,
        }
    }
}

/// Counters that go at a steady rate, and which ranks read one: cycle counters where all of them
/// do, else the kernels' clocks.
fn steady<M: Machine>(m: &M, node: &str, shared: bool) -> Result<(Ticks, Vec<u64>)> {
    loop {
        let domains = domains(m, node, shared)?;
        match m.agree(calibrated(m, &domains)) {
            Ok(ticks) => return Ok((ticks, domains)),
            // A counter that is not steady after all: no rank reads one then. Every rank has come
            // here, also those that have no other clock to change to, and must go on with the
            // others.
            Err(error @ (BenchError::Told(_) | BenchError::Elsewhere { .. })) => {
                let changed = m.distrust_counter();
                if !m.everybody(&changed)?.contains(&true) {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// By rank, what its clock is: ranks with equal numbers read one counter.
fn domains<M: Machine>(m: &M, node: &str, shared: bool) -> Result<Vec<u64>> {
    let source = m.clock_source();
    let own = (shared || source == KERNEL_CLOCK).then(|| format!("{source} of {node}"));
    let all = m.everybody(&own)?;
    let domain = |(rank, name): (usize, &Option<String>)| {
        let first = name.as_ref().and_then(|_| all.iter().position(|one| one == name));
        first.unwrap_or(rank) as u64
    };
    Ok(all.iter().enumerate().map(domain).collect())
}

/// The smallest step between two readings, ticks.
fn least_step<M: Machine>(m: &M) -> u64 {
    let steps = (0..READINGS).filter_map(|_| {
        let (a, b) = (m.ticks(), m.ticks());
        (b > a).then_some(b - a)
    });
    steps.min().unwrap_or(1)
}

/// Ranks that read one counter must know it by the same numbers: the first of them calibrates, the
/// others take over.
fn calibrated<M: Machine>(m: &M, domains: &[u64]) -> Result<Ticks> {
    let rank = m.rank();
    let leader_of = |rank: usize| domains.iter().position(|d| *d == domains[rank]).unwrap_or(rank);
    let own = if leader_of(rank) == rank { pairs(m) } else { Vec::new() };
    let told = Told(own.iter().map(|p| (p.before, p.monotonic_ns, p.after)).collect());
    let all = m.everybody(&told)?;
    let used = all[leader_of(rank)].0.iter();
    let used: Vec<TickPair> =
        used.map(|&(before, monotonic_ns, after)| TickPair { before, monotonic_ns, after }).collect();
    Ticks::calibrate(&used).map_err(|error| BenchError::machine(format!("clock of rank {rank}"), error))
}

/// Probes over the machine's messages.
struct Probes<'a, M> {
    m: &'a M,
    ticks: &'a Ticks,
}

/// In place of a probe: no more follow.
const END: [u8; 8] = [0xff; 8];
const QUESTION: [u8; 8] = [0; 8];

impl<M: Machine> Probes<'_, M> {
    fn now_ns(&self) -> i64 {
        self.ticks.to_ns(self.m.ticks())
    }
}

impl<M: Machine> Exchange for Probes<'_, M> {
    type Error = BenchError;

    fn probe(&mut self, reference: u32) -> Result<Option<Probe>> {
        let mut answer = [0; 8];
        let send_ns = self.now_ns();
        self.m.send(&QUESTION, reference as usize, TAG_CLOCK)?;
        self.m.recv(&mut answer, reference as usize, TAG_CLOCK)?;
        let receive_ns = self.now_ns();
        Ok(Some(Probe { send_ns, remote_ns: i64::from_le_bytes(answer), receive_ns }))
    }

    fn finish(&mut self, reference: u32) -> Result<()> {
        self.m.send(&END, reference as usize, TAG_CLOCK)
    }

    fn serve(&mut self, client: u32) -> Result<()> {
        let mut question = [0; 8];
        loop {
            self.m.recv(&mut question, client as usize, TAG_CLOCK)?;
            if question == END {
                return Ok(());
            }
            self.m.send(&self.now_ns().to_le_bytes(), client as usize, TAG_CLOCK)?;
        }
    }

    fn give(&mut self, client: u32, model: &[u8; MODEL_BYTES]) -> Result<()> {
        self.m.send(model, client as usize, TAG_CLOCK)
    }

    fn take(&mut self, reference: u32) -> Result<[u8; MODEL_BYTES]> {
        let mut model = [0; MODEL_BYTES];
        self.m.recv(&mut model, reference as usize, TAG_CLOCK)?;
        Ok(model)
    }

    fn wait_until(&mut self, local_ns: i64) -> Result<()> {
        self.m.spin_until(self.ticks.from_ns(local_ns));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Messages;
    use crate::machine::sim::{self, Model, Wrong};

    #[test]
    fn an_unsteady_counter_is_given_up_by_all_also_where_some_read_none() {
        let model = Model { kernel_clocks: vec![1], unsteady: vec![0], ..Model::plain(4) };
        let clocks = sim::run(&model, |m| {
            let started = Clock::start(m, "node", true).map(|clock| clock.is_distributed());
            (started.map_err(|error| error.to_string()), m.clock_source())
        });
        // All on one node, and its kernel's clock is one.
        assert_eq!(clocks, vec![(Ok(false), KERNEL_CLOCK); 4]);
    }

    #[test]
    fn a_machine_without_any_steady_clock_fails_at_all_ranks() {
        let model = Model { kernel_clocks: vec![0, 1], unsteady: vec![0], ..Model::plain(2) };
        let failed = sim::run(&model, |m| Clock::start(m, "node", true).err().map(|error| error.to_string()));
        for text in failed {
            assert!(text.as_ref().is_some_and(|t| t.contains("clock of rank 0")), "{text:?}");
        }
    }

    #[test]
    fn ranks_have_one_clock_where_they_read_one() {
        // Ranks 0 and 1 read cycle counters, 2 and 3 the kernel's clock.
        let model = Model { kernel_clocks: vec![2, 3], ..Model::plain(4) };
        let found = |shared: bool, apart: bool| {
            let all = sim::run(&model, |m| {
                let node = if apart { format!("node {}", m.rank()) } else { "node".to_owned() };
                domains(m, &node, shared).unwrap()
            });
            assert!(all.iter().all(|one| *one == all[0]));
            all[0].clone()
        };
        assert_eq!(found(true, false), [0, 0, 2, 2]);
        assert_eq!(
            found(false, false),
            [0, 1, 2, 2],
            "the kernel's clock is one even if it does not trust the counters"
        );
        assert_eq!(found(true, true), [0, 1, 2, 3]);
    }

    #[test]
    fn the_bound_between_two_synchronisations_is_known_and_kept() {
        let clocks = (0..2).map(|r| Wrong { offset_ns: 1e6 * f64::from(r), drift: 1e-6 * f64::from(r) }).collect();
        let model = Model { clocks, ..Model::plain(2) };
        let bounds = sim::run(&model, |m| {
            let mut clock = Clock::start(m, &format!("node {}", m.rank()), true).unwrap();
            let before = m.ticks();
            m.pause(3_600_000_000_000);
            let after = m.ticks();
            clock.again(m).unwrap();
            let of = |ticks: &[u64]| clock.convert(ticks).1;
            (of(&[before]), of(&[before, before + (after - before) / 2, after]), of(&[after]), clock.quality().error_ns)
        });
        let (begin, all, end, _) = bounds[1];
        // wander / 2 * 1800 s * 1800 s
        assert!(all > 3.0e6 && begin < 1e5 && end < 1e5, "{bounds:?}");
        assert!(bounds[0].1 > 0.0 && bounds[0].1 < 100.0, "who is the reference is off by a reading: {bounds:?}");
    }

    #[test]
    fn clocks_are_due_again_after_some_seconds_and_the_bound_grows_until_then() {
        let due = sim::run(&Model::plain(2), |m| {
            let clock = Clock::start(m, &format!("node {}", m.rank()), true).unwrap();
            let (fresh, now) = (clock.is_due(m), clock.bound_after(m, 0));
            m.pause(6_000_000_000);
            (fresh, clock.is_due(m), clock.bound_after(m, 0) > now || m.rank() == 0)
        });
        assert_eq!(due, [(false, true, true); 2]);
        let alone = sim::run(&Model::plain(2), |m| {
            let clock = Clock::start(m, "node", true).unwrap();
            m.pause(6_000_000_000);
            clock.is_due(m)
        });
        assert_eq!(alone, [false; 2], "one clock needs no bringing together");
    }
}
