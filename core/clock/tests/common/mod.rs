//! A synthetic network: hosts with clocks that are set wrong, drift and wander, links that jitter,
//! queue, lose and are not symmetric. Everything follows from a seed; time is virtual.
#![allow(dead_code, reason = "each test file uses its part")]

use weir_clock::{Action, Effort, Model, Participant, Probe, Schedule, StopRule};

/// One second, ns.
pub const SECOND: f64 = 1e9;

/// SplitMix64 (Steele, Lea & Flood 2014).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / 2f64.powi(53)
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }
}

/// A host's clock: offset, drift, and a drift that swings slowly.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub origin_ns: f64,
    pub drift: f64,
    /// Amplitude of the swing of the drift (ratio), its period in ns, its phase.
    pub swing: f64,
    pub period_ns: f64,
    pub phase: f64,
}

impl Clock {
    /// The clock's time at true time `t`, ns.
    pub fn exact(&self, t: f64) -> f64 {
        let omega = std::f64::consts::TAU / self.period_ns;
        let swung = self.swing / omega * ((omega * t + self.phase).sin() - self.phase.sin());
        self.origin_ns + t * (1.0 + self.drift) + swung
    }

    pub fn read(&self, t: f64) -> i64 {
        self.exact(t).floor() as i64
    }

    /// Its drift at true time `t` (ratio).
    pub fn drift_at(&self, t: f64) -> f64 {
        let omega = std::f64::consts::TAU / self.period_ns;
        self.drift + self.swing * (omega * t + self.phase).cos()
    }
}

/// What is wrong with clocks and links.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// Clocks start up to this far apart either way, ns.
    pub offset_ns: f64,
    /// Each clock's drift, either way (ratio).
    pub drift: f64,
    /// Greatest change of the difference of two drifts, per second.
    pub wander_per_s: f64,
    /// Least delays of both directions together, ns.
    pub floors_ns: f64,
    /// Share of it by which the directions differ, either way.
    pub asymmetry: f64,
    /// Mean of the exponential jitter of one direction, ns.
    pub jitter_ns: f64,
    /// Probability that a probe meets the start of a queue in one direction, and the queue's mean
    /// length, ns. The queue drains in real time: the probes after it wait less and less.
    pub burst: f64,
    pub burst_ns: f64,
    /// Probability of loss.
    pub loss: f64,
    /// Probability of a lone late probe, up to 20 ms in one direction.
    pub outlier: f64,
    /// Probability that the remote time is garbage, up to a second off.
    pub garbage: f64,
}

impl Trouble {
    /// Symmetric delays with jitter, nothing else; clocks as bad as they come.
    pub const JITTER: Trouble = Trouble {
        offset_ns: 5.0 * SECOND,
        drift: 100e-6,
        wander_per_s: 2e-9,
        floors_ns: 40_000.0,
        asymmetry: 0.0,
        jitter_ns: 3_000.0,
        burst: 0.0,
        burst_ns: 0.0,
        loss: 0.0,
        outlier: 0.0,
        garbage: 0.0,
    };
}

/// The network between `clocks`, at a true time.
#[derive(Clone, Debug)]
pub struct Net {
    pub clocks: Vec<Clock>,
    trouble: Trouble,
    seed: u64,
    rng: Rng,
}

/// One pair's link in use: the floors of its directions and when their queues will be empty.
struct Link {
    floor_ns: [f64; 2],
    busy_until: [f64; 2],
}

impl Net {
    pub fn new(ranks: u32, trouble: Trouble, seed: u64) -> Net {
        let mut rng = Rng(seed);
        let clocks = (0..ranks).map(|_| {
            let period_ns = rng.between(20.0, 200.0) * SECOND;
            // Two clocks may wander apart: each takes half.
            let swing = trouble.wander_per_s / 2.0 * period_ns / SECOND / std::f64::consts::TAU;
            Clock {
                origin_ns: rng.between(-1.0, 1.0) * trouble.offset_ns,
                drift: rng.between(-1.0, 1.0) * trouble.drift,
                swing,
                period_ns,
                phase: rng.between(0.0, std::f64::consts::TAU),
            }
        });
        Net { clocks: clocks.collect(), trouble, seed, rng: Rng(seed ^ 0xabcd) }
    }

    fn link(&self, a: u32, b: u32) -> Link {
        // The same pair has the same floors in every synchronisation.
        let mut rng = Rng(self.seed ^ (u64::from(a) << 32) ^ u64::from(b));
        let sum = self.trouble.floors_ns * rng.between(0.5, 1.0);
        let sign = if rng.chance(0.5) { 1.0 } else { -1.0 };
        // The full asymmetry, not a share of it: tests want the worst.
        let lean = sign * self.trouble.asymmetry;
        Link { floor_ns: [0.5 * sum * (1.0 + lean), 0.5 * sum * (1.0 - lean)], busy_until: [0.0; 2] }
    }

    /// When a message sent at `t` in a direction arrives.
    fn deliver(&mut self, link: &mut Link, way: usize, t: f64) -> f64 {
        let Trouble { burst, burst_ns, jitter_ns, outlier, .. } = self.trouble;
        if self.rng.chance(burst) {
            link.busy_until[way] = link.busy_until[way].max(t) + self.rng.exponential(burst_ns);
        }
        let queued = (link.busy_until[way] - t).max(0.0);
        let late = if self.rng.chance(outlier) { self.rng.between(0.0, 2e7) } else { 0.0 };
        t + link.floor_ns[way] + queued + self.rng.exponential(jitter_ns) + late
    }

    /// One probe at true time `t`: its outcome and when the client goes on.
    fn probe(&mut self, link: &mut Link, client: u32, reference: u32, t: f64) -> (Option<Probe>, f64) {
        let (c, r) = (self.clocks[client as usize], self.clocks[reference as usize]);
        if self.rng.chance(self.trouble.loss) {
            return (None, t + 1e6);
        }
        let arrived = self.deliver(link, 0, t);
        let read = arrived + self.rng.between(0.0, 50.0);
        let left = read + self.rng.between(0.0, 50.0);
        let back = self.deliver(link, 1, left);
        let off = if self.rng.chance(self.trouble.garbage) { self.rng.between(-1e9, 1e9) } else { 0.0 };
        let probe = Probe { send_ns: c.read(t), remote_ns: r.read(read + off), receive_ns: c.read(back) };
        (Some(probe), back + 500.0)
    }

    /// A batch of `count` probes between two ranks from true time `t` on.
    pub fn batch(&mut self, client: u32, reference: u32, count: u32, mut t: f64) -> Vec<Probe> {
        let mut link = self.link(client, reference);
        let mut probes = Vec::new();
        for _ in 0..count {
            let (probe, next) = self.probe(&mut link, client, reference, t);
            probes.extend(probe);
            t = next;
        }
        probes
    }

    /// A whole synchronisation from true time `t` on: every rank's participant at its end, and when
    /// the last one ended.
    pub fn synchronise(&mut self, schedule: &Schedule, effort: Effort, t: f64) -> (Vec<Participant>, f64) {
        let ranks = self.clocks.len() as u32;
        let mut parts: Vec<Participant> =
            (0..ranks).map(|r| Participant::new(schedule, r, effort).expect("rank in schedule")).collect();
        let mut ready = vec![t; ranks as usize];
        for step in schedule.steps() {
            let (c, r) = (step.client as usize, step.reference as usize);
            let mut now = ready[c].max(ready[r]);
            let mut link = self.link(step.client, step.reference);
            loop {
                match parts[c].action() {
                    Action::Probe { reference } => {
                        assert_eq!(reference, step.reference);
                        let (outcome, next) = self.probe(&mut link, step.client, reference, now);
                        parts[c].probed(outcome);
                        now = next;
                    }
                    Action::WaitUntil { local_ns } => {
                        let clock = self.clocks[c];
                        now += (local_ns as f64 - clock.exact(now)).max(0.0) * 1.001;
                        parts[c].done();
                    }
                    Action::Finish { reference } => {
                        assert_eq!(reference, step.reference);
                        assert_eq!(parts[r].action(), Action::Serve { client: step.client });
                        parts[c].done();
                        parts[r].done();
                    }
                    Action::Take { reference } => {
                        assert_eq!(reference, step.reference);
                        assert_eq!(parts[r].action(), Action::Give { client: step.client });
                        let bytes = parts[r].give_bytes();
                        parts[r].done();
                        parts[c].took(&bytes);
                        break;
                    }
                    other => panic!("rank {c} in {step:?}: {other:?}"),
                }
            }
            (ready[c], ready[r]) = (now, now);
        }
        for (rank, part) in parts.iter().enumerate() {
            assert_eq!(part.action(), Action::End, "rank {rank}");
        }
        (parts, ready.into_iter().fold(t, f64::max))
    }

    /// True global minus what `global_ns` says, for `rank` at true time `t`, ns.
    pub fn error_ns(&self, t: f64, global_ns: i64) -> f64 {
        self.clocks[0].exact(t) - global_ns as f64
    }
}

/// What the clocks' whole-ns readings may add to an error, ns: one on either clock.
pub const READING_NS: f64 = 2.0;

/// A synchronisation cheap enough for many ranks and cases.
pub fn effort() -> Effort {
    Effort { stop: StopRule { patience: 20, least: 50, most: 120 }, ..Effort::default() }
}

/// The models of all ranks; panics if one has none.
pub fn models(parts: &[Participant]) -> Vec<Model> {
    parts.iter().map(|p| p.result().expect("synchronised")).collect()
}
