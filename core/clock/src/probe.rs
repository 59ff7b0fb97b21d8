//! Offset of a remote clock from probes: one batch, one estimate.

use crate::number::{gap, in_limit, middle, round};
use alloc::vec::Vec;

/// One exchange: the prober notes its clock, sends, the remote side notes its own clock and
/// answers, the prober notes the arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Prober's clock just before sending, ns.
    pub send_ns: i64,
    /// Remote clock somewhere between arrival of the probe and departure of the answer, ns.
    pub remote_ns: i64,
    /// Prober's clock just after receiving, ns.
    pub receive_ns: i64,
}

impl Probe {
    /// Round-trip time on the prober's clock, ns.
    #[must_use]
    pub fn rtt_ns(&self) -> f64 {
        gap(self.receive_ns, self.send_ns)
    }

    /// Remote clock minus prober's clock if both ways took equally long, ns:
    /// `remote - (send + rtt/2)`. What to add to the prober's time to get the remote's; its
    /// negative, `send + rtt/2 - remote`, is what to add to the remote's.
    #[must_use]
    pub fn offset_ns(&self) -> i64 {
        self.remote_ns.saturating_sub(middle(self.send_ns, self.receive_ns))
    }

    /// Times in range, and in order on the prober's clock.
    fn is_sane(&self) -> bool {
        in_limit(self.send_ns)
            && in_limit(self.remote_ns)
            && in_limit(self.receive_ns)
            && self.send_ns <= self.receive_ns
    }
}

/// What is taken for granted about network and clocks. Every bound holds as far as this does;
/// report it with them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumptions {
    /// The least possible delays of the two directions differ by at most this share of their sum: 0
    /// for equal, 1 for no assumption. Values outside of 0..=1 count as the nearer end.
    pub asymmetry: f64,
    /// Delay that no message can beat, in either direction, ns; 0 if unknown. Narrows the hard
    /// bound.
    pub floor_ns: f64,
    /// The rule that tells floors may fail with probability `2^-floor_bits` for each pair and
    /// synchronisation. The rule: the least of a batch's delays stands above the floor by at most
    /// its distance to the `k`-th least. Where delays are densest at their floor (exponential,
    /// uniform) it fails for one batch with probability `2^-(k-1)` a direction, and for all of `n`
    /// batches with `2^-(n (k-2))`: the more batches, the smaller `k` may be, and the distance with
    /// it. A batch with fewer than `k` probes claims no knowledge of the floor.
    pub floor_bits: u32,
    /// Greatest difference of two clocks' rates (5e-4 is 500 ppm, the limit NTP sets itself, RFC
    /// 5905 section 11.3).
    pub max_drift: f64,
    /// Greatest change of that difference in one second. 2e-9: a quartz of 0.1 ppm per kelvin whose
    /// temperature changes by about 1 kelvin a minute; over a minute between two synchronisations
    /// that leaves 1 us, as Grove found.
    pub wander_per_s: f64,
    /// Granularity of the clocks, ns: a reading of `t` means a time in
    /// `t - resolution ..= t + resolution`.
    pub resolution_ns: f64,
}

impl Default for Assumptions {
    /// Floors equal within a tenth of the round trip, failure of the floor rule at 2^-20 (10^-6),
    /// 500 ppm, 2 ppb per second.
    fn default() -> Self {
        Assumptions {
            asymmetry: 0.1,
            floor_ns: 0.0,
            floor_bits: 20,
            max_drift: 500e-6,
            wander_per_s: 2e-9,
            resolution_ns: 1.0,
        }
    }
}

impl Assumptions {
    /// The `k` of the floor rule for `batches` batches.
    pub(crate) fn floor_rank(&self, batches: usize) -> usize {
        let bits = (self.floor_bits as usize).max(1);
        2 + bits.div_ceil(batches.max(1))
    }

    /// [`Assumptions::wander_per_s`] for times in ns.
    #[must_use]
    pub fn wander_per_ns(&self) -> f64 {
        self.wander_per_s * 1e-9
    }

    /// Greatest share of `width_ns` by which unequal floors can shift the middle.
    pub(crate) fn fixed_ns(&self, width_ns: f64) -> f64 {
        (0.5 * self.asymmetry.clamp(0.0, 1.0) * width_ns).min(self.hard_ns(width_ns))
    }

    /// The bound that needs no assumption but the floor.
    pub(crate) fn hard_ns(&self, width_ns: f64) -> f64 {
        (0.5 * width_ns - self.floor_ns.max(0.0)).max(0.0)
    }
}

/// What is known of the drift while a batch is judged: the remote's rate against the prober's,
/// minus one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Best knowledge of the relative rate.
    pub slope: f64,
    /// How far it may be wrong.
    pub error: f64,
}

impl Rate {
    /// Nothing known but the assumptions.
    #[must_use]
    pub fn unknown(assumptions: &Assumptions) -> Rate {
        Rate { slope: 0.0, error: assumptions.max_drift }
    }
}

/// Offset of the remote clock at one time, from one batch of probes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Prober's time at which the offset holds, ns.
    pub at_ns: i64,
    /// Remote minus prober, ns.
    pub offset_ns: i64,
    /// Width of the interval proved to hold the offset, ns: least delay forth plus least delay
    /// back.
    pub width_ns: f64,
    /// How far the width may be above the sum of the floors, by the floor rule, ns (the whole width
    /// if there were too few probes).
    pub slack_ns: f64,
    /// Least round trip, ns.
    pub rtt_min_ns: f64,
    /// Probes that agree with the estimate.
    pub used: u32,
    /// Probes thrown away: times out of order or range, or contradicting the majority.
    pub refused: u32,
}

impl Estimate {
    /// Cristian's estimate: the middle of the probe with the least round trip. Better than
    /// [`Estimate::envelope`] only where the two directions are slow together (one shared medium).
    ///
    /// `None` if no probe is usable.
    #[must_use]
    pub fn cristian(probes: &[Probe], rate: Rate, assumptions: &Assumptions) -> Option<Estimate> {
        let batch = Batch::new(probes, rate, assumptions)?;
        let envelope = batch.envelope(assumptions.floor_rank(1), Trust::ByRefusals)?;
        let own = batch.bounds.iter().find(|b| b.is_fastest)?;
        let width_ns = own.high - own.low + 1.0;
        Some(Estimate {
            offset_ns: batch.base_ns.saturating_add(round((own.low + own.high) / 2.0)),
            width_ns,
            slack_ns: (width_ns - envelope.width_ns + envelope.slack_ns).clamp(0.0, width_ns),
            ..envelope
        })
    }

    /// Intersection of what all probes prove: the least delay forth and the least delay back need
    /// not belong to the same probe. Drift within the batch is taken out with `rate`, and its
    /// uncertainty widens what far probes prove. Probes that contradict the greatest agreeing set
    /// (Marzullo & Owicki 1983) are refused; and where some were, others may be wrong by too little
    /// to contradict, so the tightest proof of either direction is not relied on.
    ///
    /// `None` if no probe is usable or fewer than half agree.
    #[must_use]
    pub fn envelope(probes: &[Probe], rate: Rate, assumptions: &Assumptions) -> Option<Estimate> {
        Batch::new(probes, rate, assumptions)?.envelope(assumptions.floor_rank(1), Trust::ByRefusals)
    }

    /// [`Estimate::envelope`]s of several batches; those that give none are left out. The slack is
    /// such that, by the floor rule, at least one batch is no further above its floors. A probe
    /// refused in one batch is a warning for all.
    pub(crate) fn of_batches(batches: &[Vec<Probe>], rate: Rate, assumptions: &Assumptions) -> Vec<Estimate> {
        let rank = assumptions.floor_rank(batches.len());
        let judged: Vec<Batch> = batches.iter().filter_map(|b| Batch::new(b, rate, assumptions)).collect();
        let with = |trust| judged.iter().filter_map(|b| b.envelope(rank, trust)).collect::<Vec<Estimate>>();
        let trusting = with(Trust::All);
        if trusting.iter().all(|e| e.refused == 0) { trusting } else { with(Trust::AllButTightest) }
    }

    /// Bound on the error that holds whatever the delays were, ns (only the known floor, the drift
    /// limit and honest clocks are assumed).
    #[must_use]
    pub fn hard_bound_ns(&self, assumptions: &Assumptions) -> f64 {
        assumptions.hard_ns(self.width_ns)
    }

    /// Bound on the error under the assumptions, ns: half of what the floors may differ by and half
    /// of what the width may be above them.
    #[must_use]
    pub fn bound_ns(&self, assumptions: &Assumptions) -> f64 {
        (assumptions.fixed_ns(self.width_ns) + 0.5 * self.slack_ns).min(self.hard_bound_ns(assumptions))
    }
}

/// What one probe proves about the offset at the batch's reference time, relative to the batch's
/// base.
struct Proof {
    low: f64,
    high: f64,
    is_fastest: bool,
}

/// Which of the probes that agree count. A remote time that is wrong by less than the delay
/// contradicts nobody and yet moves the envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    All,
    /// One in each direction may be wrong: the second tightest proof bounds the offset, the
    /// tightest still the floors.
    AllButTightest,
    /// The one or the other, as the batch has refused no probe or some.
    ByRefusals,
}

/// The sane probes of a batch, drift taken out.
struct Batch {
    at_ns: i64,
    base_ns: i64,
    rtt_min_ns: f64,
    bounds: Vec<Proof>,
    insane: usize,
}

impl Batch {
    fn new(probes: &[Probe], rate: Rate, assumptions: &Assumptions) -> Option<Batch> {
        let sane = || probes.iter().filter(|p| p.is_sane());
        let fastest = sane().min_by_key(|p| p.receive_ns - p.send_ns)?;
        let at_ns = middle(fastest.send_ns, fastest.receive_ns);
        let base_ns = fastest.offset_ns();
        let proof = |p: &Probe| {
            let away = gap(middle(p.send_ns, p.receive_ns), at_ns);
            let drifted = rate.slope * away;
            // The remote clock was read half a round trip from the middle at most.
            let unsure = rate.error * away.abs()
                + 0.5 * (rate.slope.abs() + rate.error) * p.rtt_ns()
                + assumptions.resolution_ns
                + 0.5;
            Proof {
                low: gap(p.remote_ns, p.receive_ns.saturating_add(base_ns)) - drifted - unsure,
                high: gap(p.remote_ns, p.send_ns.saturating_add(base_ns)) - drifted + unsure,
                is_fastest: core::ptr::eq(p, fastest),
            }
        };
        let bounds: Vec<Proof> = sane().map(proof).collect();
        let insane = probes.len() - bounds.len();
        Some(Batch { at_ns, base_ns, rtt_min_ns: fastest.rtt_ns(), bounds, insane })
    }

    fn envelope(&self, rank: usize, trust: Trust) -> Option<Estimate> {
        let (point, votes) = self.most_agreed();
        if 2 * votes < self.bounds.len() {
            return None;
        }
        let agrees = |p: &&Proof| p.low <= point && point <= p.high;
        let mut highs: Vec<f64> = self.bounds.iter().filter(agrees).map(|p| p.high).collect();
        let mut lows: Vec<f64> = self.bounds.iter().filter(agrees).map(|p| -p.low).collect();
        let refused = self.insane + self.bounds.len() - highs.len();
        let is_trusting = trust == Trust::All || trust == Trust::ByRefusals && refused == 0;
        let judge = if is_trusting { least_and_slack } else { second_and_slack };
        let (high, forth) = judge(&mut highs, rank)?;
        let (low, back) = judge(&mut lows, rank)?;
        // The 1 is for rounding the offset to a whole number.
        let width_ns = high + low + 1.0;
        Some(Estimate {
            at_ns: self.at_ns,
            offset_ns: self.base_ns.saturating_add(round((high - low) / 2.0)),
            width_ns,
            slack_ns: (forth + back + 1.0).min(width_ns),
            rtt_min_ns: self.rtt_min_ns,
            used: highs.len() as u32,
            refused: refused as u32,
        })
    }

    /// An offset that as many probes as possible allow, and how many do.
    fn most_agreed(&self) -> (f64, usize) {
        // Starts sort before ends at the same place: intervals are closed.
        let mut edges: Vec<(f64, bool)> = self.bounds.iter().flat_map(|p| [(p.low, false), (p.high, true)]).collect();
        edges.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (mut now, mut best) = (0usize, (0.0, 0usize));
        for (place, is_end) in edges {
            if is_end {
                now = now.saturating_sub(1);
            } else {
                now += 1;
                if now > best.1 {
                    best = (place, now);
                }
            }
        }
        best
    }
}

/// The least value and how far it may be above the floor; infinite with fewer values than `rank`.
fn least_and_slack(values: &mut [f64], rank: usize) -> Option<(f64, f64)> {
    values.sort_unstable_by(f64::total_cmp);
    let least = *values.first()?;
    let slack = match values.get(rank - 1) {
        Some(ranked) => ranked - least,
        None => f64::INFINITY,
    };
    Some((least, slack))
}

/// The same if the least value may be wrong: the second least value, and how far it may be above
/// the floor whether the least was right or not.
fn second_and_slack(values: &mut [f64], rank: usize) -> Option<(f64, f64)> {
    let (least, slack_if_right) = least_and_slack(values, rank)?;
    let (second, slack_if_wrong) = least_and_slack(&mut values[1..], rank)?;
    Some((second, (second - least + slack_if_right).max(slack_if_wrong)))
}

/// When a batch ends: enough probes in a row that were no faster than the fastest (Grove 2003,
/// section 4.3.2, there 100 to 1000, because the last word was one probe; here the batch's
/// statistics stand behind it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopRule {
    /// Probes in a row without a new minimum after which the batch ends.
    pub patience: u32,
    /// Probes to make in any case. Too few tell no floor, see [`Assumptions::floor_bits`].
    pub least: u32,
    /// Probes after which the batch ends in any case; bounds time and memory.
    pub most: u32,
}

impl Default for StopRule {
    /// 30 in a row, at least 60, at most 400.
    fn default() -> Self {
        StopRule { patience: 30, least: 60, most: 400 }
    }
}

/// Whether a batch wants another probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Make another probe.
    Continue,
    /// The batch is complete.
    Stop,
}

/// Collects a batch and applies the [`StopRule`].
#[derive(Clone, Debug)]
pub struct MinimumFilter {
    rule: StopRule,
    probes: Vec<Probe>,
    tried: u32,
    failed: u32,
    rtt_min_ns: i64,
}

impl MinimumFilter {
    /// An empty batch.
    #[must_use]
    pub fn new(rule: StopRule) -> Self {
        MinimumFilter { rule, probes: Vec::new(), tried: 0, failed: 0, rtt_min_ns: i64::MAX }
    }

    /// Takes the outcome of a probe; `None` if it was lost.
    pub fn offer(&mut self, outcome: Option<Probe>) -> Verdict {
        self.tried = self.tried.saturating_add(1);
        self.failed = self.failed.saturating_add(1);
        if let Some(probe) = outcome {
            let rtt_ns = probe.receive_ns.saturating_sub(probe.send_ns);
            if probe.is_sane() && rtt_ns < self.rtt_min_ns {
                self.rtt_min_ns = rtt_ns;
                self.failed = 0;
            }
            self.probes.push(probe);
        }
        let enough = self.tried >= self.rule.least && self.failed >= self.rule.patience;
        if enough || self.tried >= self.rule.most { Verdict::Stop } else { Verdict::Continue }
    }

    /// The probes that came back.
    #[must_use]
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// Probes tried, lost ones included.
    #[must_use]
    pub fn tried(&self) -> u32 {
        self.tried
    }
}
