//! What each part of the congestion control is worth: it is left out, and the same networks and
//! work are run again.

use std::collections::BTreeMap;
use std::time::Duration;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use weir_link::{Config, CongestionKind};

use crate::mark_table;
use crate::run::Report;
use crate::scenario::EndpointSpec;
use crate::spec::{MS, SEC, US};
use crate::table::{self, Point, Wire};
use crate::work::{Flow, Workload};

/// A part of the protocol that can be left out.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Only RTT probes steer the window.
    RttProbes,
    /// Delay is the lesser of round trip and one-way time.
    OneWayDelay,
    /// Small windows bear more delay.
    SmallWindowTargets,
    /// Delay that varies whatever the window is is no queue.
    NonCongestiveDelay,
    /// Bursts grow while little is lost.
    LearntBursts,
    /// Loss without delay lowers nothing, up to 10 %: left out, NewReno takes the controller's
    /// place.
    LossTolerance,
    /// A window without a queue keeps up to 16 packets.
    QuietFloor,
    /// On lossy paths the last packets of a message are not waited for so long.
    TailTimers,
    /// Parity fragments on long lossy paths.
    Parity,
    /// Receivers grant no more than a budget.
    GrantBudget,
    /// What has least to come is granted first.
    GrantOrder,
    /// Who waits too long gets a share whatever the order.
    GrantPatience,
    /// Windows shrink when what they sent is marked.
    MarkedWindows,
    /// Less is granted when what comes is marked.
    MarkedGrants,
}

/// All, in the order of the page.
pub const ALL: [Part; 14] = [
    Part::RttProbes,
    Part::OneWayDelay,
    Part::SmallWindowTargets,
    Part::NonCongestiveDelay,
    Part::LearntBursts,
    Part::LossTolerance,
    Part::QuietFloor,
    Part::TailTimers,
    Part::Parity,
    Part::GrantBudget,
    Part::GrantOrder,
    Part::GrantPatience,
    Part::MarkedWindows,
    Part::MarkedGrants,
];

impl Part {
    /// Its name in commands and scenarios.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::RttProbes => "rtt-probes",
            Part::OneWayDelay => "one-way-delay",
            Part::SmallWindowTargets => "small-window-targets",
            Part::NonCongestiveDelay => "non-congestive-delay",
            Part::LearntBursts => "learnt-bursts",
            Part::LossTolerance => "loss-tolerance",
            Part::QuietFloor => "quiet-floor",
            Part::TailTimers => "tail-timers",
            Part::Parity => "parity",
            Part::GrantBudget => "grant-budget",
            Part::GrantOrder => "grant-order",
            Part::GrantPatience => "grant-patience",
            Part::MarkedWindows => "marked-windows",
            Part::MarkedGrants => "marked-grants",
        }
    }

    /// Takes it out of a configuration.
    pub fn leave_out(self, cfg: &mut Config) {
        /// Never reached here.
        const NEVER: Duration = Duration::from_secs(3600);
        match self {
            Part::RttProbes => cfg.mechanisms.rtt_probes = false,
            Part::OneWayDelay => cfg.mechanisms.one_way_delay = false,
            Part::SmallWindowTargets => cfg.mechanisms.small_window_targets = false,
            Part::NonCongestiveDelay => cfg.mechanisms.non_congestive_delay = false,
            Part::LearntBursts => cfg.mechanisms.learnt_bursts = false,
            Part::LossTolerance => cfg.congestion = CongestionKind::Reno,
            Part::QuietFloor => cfg.quiet_window_packets_max = cfg.min_window_packets,
            Part::TailTimers => cfg.lossy_ppm = u32::MAX,
            Part::Parity => cfg.parity = false,
            Part::GrantBudget => {
                cfg.session.grant_budget = 1 << 40;
                cfg.session.grant_budget_max = 1 << 40;
            }
            Part::GrantOrder => cfg.session.grant_overtake = 0,
            Part::GrantPatience => cfg.session.grant_patience = NEVER,
            Part::MarkedWindows => cfg.mechanisms.marked_windows = false,
            Part::MarkedGrants => cfg.mechanisms.marked_grants = false,
        }
    }
}

/// The networks and work on which parts are tried.
#[must_use]
pub fn points(endpoint: &EndpointSpec) -> Vec<Point> {
    let e = endpoint;
    let mut all = table::incast_points(e, &[8, 32], &[64 << 10, 1 << 20], &[64, 256, 1000], 2 << 20);
    all.extend(table::fan_in_points(e, &[8, 32], &[10 * US, MS], &[0, 10_000], &[32, 64, 256], (64 << 10, 16)));
    let delays = [10 * US, MS, 10 * MS];
    all.extend(table::ping_pong_points(e, &delays, &[0, 10_000, 20_000], &[8, 30_000, 300_000, 1 << 20], 50));
    all.extend(table::stream_points(e, &delays, &[0, 10_000, 20_000], &[16, 64, 1000], 8 << 20));
    all.extend(table::exchange_points(e, 1000, &[2, 8], &[10 * US, MS], &[300_000, 1 << 20], &[0, 10_000], 3));
    all.extend(table::exchange_points(e, 1000, &[2], &[10 * US, MS], &[4 << 20], &[0, 10_000], 3));
    all.extend(table::jitter_points(e, &delays, &[200 * US, MS, 5 * MS], &[0, 10_000], 16 << 20));
    let marking = [(128, Some(32)), (64, Some(20))];
    all.extend(mark_table::points(e, (&[8, 32], &[10 * US]), &[30_000, 64 << 10, 1 << 20], &marking, 2 << 20));
    all.extend(lossy(e));
    all.extend(collectives(e));
    all.extend(flows(e));
    all
}

/// Streams through much loss.
fn lossy(e: &EndpointSpec) -> Vec<Point> {
    let mut all = Vec::new();
    for delay_ns in [MS, 10 * MS, 50 * MS] {
        for loss_ppm in [50_000, 300_000] {
            let wire = Wire { delay_ns, loss_ppm, queue_packets: 1000, ..Wire::GIGABIT };
            let name = format!("lossy stream 256K {:>5} us {:>4} %", delay_ns / US, f64::from(loss_ppm) / 1e4);
            let work = Workload::Stream { len: (1 << 18, 1 << 18), count: 8, tags: 8, window: 4 };
            all.push(table::point(name, wire, 2, e, work));
        }
    }
    all
}

/// All to all, and supersteps.
fn collectives(e: &EndpointSpec) -> Vec<Point> {
    let mut all = Vec::new();
    for loss_ppm in [0, 20_000] {
        let wire = Wire { loss_ppm, ..Wire::GIGABIT };
        let percent = f64::from(loss_ppm) / 1e4;
        for len in [30_000, 300_000] {
            let work = Workload::AllToAll { len, rounds: 4 };
            all.push(table::point(format!("all-to-all 8 x {len} {percent} %"), wire, 8, e, work));
        }
        let work = Workload::Superstep { steps: 8, len: (100, 100_000), compute_ns: 200 * US };
        all.push(table::point(format!("superstep 8 x 100..100000 {percent} %"), wire, 8, e, work));
        // One that has much, beside many that have little.
        let flow = |i: u64| Flow {
            start_ns: i * MS,
            len: if i == 0 { 8 << 20 } else { 200_000 },
            count: if i == 0 { 4 } else { 40 },
            window: 2,
        };
        let work = Workload::Flows((0..9).map(flow).collect());
        all.push(table::point(format!("long beside short, 9:1 {percent} %"), wire, 10, e, work));
    }
    all
}

/// Flows that share a slow port, begun together and one after another.
fn flows(e: &EndpointSpec) -> Vec<Point> {
    let one = |gap_ns: u64| {
        let wire = Wire { rate_bits_per_s: 100_000_000, queue_packets: 1000, ..Wire::GIGABIT };
        let flow = |i| Flow { start_ns: i * gap_ns, len: 32_000, count: 600 + 40 * i as u32, window: 32 };
        let work = Workload::Flows((0..8).map(flow).collect());
        table::point(format!("8 flows, one each {} ms", gap_ns / MS), wire, 9, e, work)
    };
    vec![one(0), one(SEC)]
}

/// What is compared.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Payload a second, from the start to the end of all work.
    Rate,
    /// The time that 99 % of the messages took at most.
    P99,
    /// How little the worst off sender got while all sent, as part of an equal share.
    Share,
}

/// What a run is worth that broke a promise or did not end: next to nothing.
const BROKEN: f64 = 1e-3;

/// The metrics of a run; greater is better for all (of times the reciprocal).
fn metrics(r: &Report) -> Vec<(Metric, f64)> {
    if r.violation.is_some() {
        return vec![(Metric::Rate, BROKEN), (Metric::P99, BROKEN)];
    }
    let mut all = vec![(Metric::Rate, r.goodput_bits_per_s()), (Metric::P99, 1e9 / r.quantile_ns(0.99).max(1) as f64)];
    all.extend(least_share(r).map(|share| (Metric::Share, share)));
    all
}

/// Of senders that began and have not ended, what the one with least got, as part of an equal
/// share.
fn least_share(r: &Report) -> Option<f64> {
    let mut ends: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (from, at, _) in &r.arrivals {
        let e = ends.entry(*from).or_insert((*at, *at));
        e.1 = *at;
    }
    let begin = ends.values().map(|e| e.0).max()?;
    let end = ends.values().map(|e| e.1).min()?;
    if ends.len() < 3 || end <= begin {
        return None;
    }
    let mut got: BTreeMap<u32, f64> = ends.keys().map(|from| (*from, 0.0)).collect();
    for (from, _, bytes) in r.arrivals.iter().filter(|a| (begin..end).contains(&a.1)) {
        *got.entry(*from).or_default() += *bytes as f64;
    }
    let (sum, least) = (got.values().sum::<f64>(), got.values().copied().fold(f64::INFINITY, f64::min));
    // A share of nothing is worse than any other by a factor that is no number.
    (sum > 0.0).then(|| (least * got.len() as f64 / sum).max(0.01))
}

/// A cell where the part makes a difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The network and work.
    pub cell: String,
    /// What is left without the part, 1 being what there is with it (mean over seeds, geometric).
    pub ratio: f64,
}

/// What leaving a part out did to one metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The metric.
    pub metric: Metric,
    /// Cells that have it.
    pub cells: usize,
    /// Those that got worse, and better, with every seed.
    pub worse: Vec<Found>,
    /// See `worse`.
    pub better: Vec<Found>,
}

/// A difference smaller than this is none.
pub const NOTABLE: f64 = 0.03;

/// Compares cells by name: for each metric a value for each seed, with everything and without the
/// part.
fn effects(with: &[Vec<Vec<(Metric, f64)>>], without: &[Vec<Vec<(Metric, f64)>>], names: &[String]) -> Vec<Effect> {
    let mut all: BTreeMap<Metric, Effect> = BTreeMap::new();
    for (cell, name) in names.iter().enumerate() {
        let mut ratios: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
        for (one, other) in with[cell].iter().zip(&without[cell]) {
            for (metric, value) in one {
                let other = other.iter().find(|(m, _)| m == metric).map(|(_, v)| v / value);
                ratios.entry(*metric).or_default().extend(other);
            }
        }
        for (metric, ratios) in ratios {
            let e = all.entry(metric).or_insert(Effect { metric, cells: 0, worse: Vec::new(), better: Vec::new() });
            e.cells += 1;
            let ratio = (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp();
            let found = Found { cell: name.clone(), ratio };
            if ratios.iter().all(|r| *r < 1.0 - NOTABLE) {
                e.worse.push(found);
            } else if ratios.iter().all(|r| *r > 1.0 + NOTABLE) {
                e.better.push(found);
            }
        }
    }
    for e in all.values_mut() {
        e.worse.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        e.better.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    }
    all.into_values().collect()
}

/// All cells, measured with some seeds.
pub struct Measured {
    names: Vec<String>,
    seeds: Vec<u64>,
    /// Of each cell, for each seed.
    values: Vec<Vec<Vec<(Metric, f64)>>>,
}

impl Measured {
    /// Runs all cells with each of the seeds and these parts left out. `tick` is called after each
    /// run: there are as many as cells times seeds.
    #[must_use]
    pub fn new(left_out: &[Part], seeds: &[u64], tick: &(impl Fn() + Sync)) -> Measured {
        let endpoint = EndpointSpec { left_out: left_out.to_vec(), ..EndpointSpec::default() };
        let one = |p: &Point, seed: u64| {
            let mut p = p.clone();
            p.scenario.seed = seed;
            let found = metrics(&table::measure(&p));
            tick();
            found
        };
        let points = points(&endpoint);
        let values = points.par_iter().map(|p| seeds.par_iter().map(|seed| one(p, *seed)).collect()).collect();
        Measured { names: points.into_iter().map(|p| p.name).collect(), seeds: seeds.to_vec(), values }
    }

    /// What this, with everything, loses and wins without the part.
    #[must_use]
    pub fn without(&self, part: Part, tick: &(impl Fn() + Sync)) -> Vec<Effect> {
        effects(&self.values, &Measured::new(&[part], &self.seeds, tick).values, &self.names)
    }
}

/// The head of the page's table.
pub const MARKDOWN_HEAD: &str =
    "| left out | | cells | worse | better | most lost | most won |\n|---|---|---:|---:|---:|---|---|";

/// The page's rows of a part, one for each metric.
#[must_use]
pub fn markdown(part: Part, effects: &[Effect]) -> String {
    let first = |cells: &[Found]| {
        let cell = |f: &Found| f.cell.split_whitespace().collect::<Vec<_>>().join(" ");
        cells.first().map_or("-".to_owned(), |f| format!("x {:.2}: {}", f.ratio, cell(f)))
    };
    let mut lines = Vec::new();
    for (i, e) in effects.iter().enumerate() {
        let name = if i == 0 { format!("`{}`", part.name()) } else { String::new() };
        let metric = match e.metric {
            Metric::Rate => "rate",
            Metric::P99 => "1/p99",
            Metric::Share => "least share",
        };
        let (worse, better) = (first(&e.worse), first(&e.better));
        lines.push(format!(
            "| {name} | {metric} | {} | {} | {} | {worse} | {better} |",
            e.cells,
            e.worse.len(),
            e.better.len()
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_takes_something_out() {
        let default = format!("{:?}", Config::default());
        for part in ALL {
            let mut cfg = Config::default();
            part.leave_out(&mut cfg);
            assert_ne!(format!("{cfg:?}"), default, "{}", part.name());
            let text = serde_json::to_string(&part).expect("a name");
            assert_eq!(text, format!("\"{}\"", part.name()));
        }
    }

    #[test]
    fn a_cell_counts_if_all_seeds_agree() {
        let of = |values: &[f64]| values.iter().map(|v| vec![(Metric::Rate, *v)]).collect::<Vec<_>>();
        let with = [of(&[10.0, 10.0]), of(&[10.0, 10.0]), of(&[10.0, 10.0]), of(&[10.0, 10.0])];
        let without = [of(&[5.0, 8.0]), of(&[5.0, 12.0]), of(&[11.0, 12.0]), of(&[9.9, 9.8])];
        let names = ["worse", "either", "better", "alike"].map(str::to_owned);
        let [e] = &effects(&with, &without, &names)[..] else { panic!("one metric") };
        assert_eq!((e.cells, e.worse.len(), e.better.len()), (4, 1, 1));
        assert_eq!((&*e.worse[0].cell, &*e.better[0].cell), ("worse", "better"));
        assert!((e.worse[0].ratio - 0.4f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn all_points_run_and_have_names_of_their_own() {
        let all = points(&EndpointSpec::default());
        let names: std::collections::BTreeSet<&str> = all.iter().map(|p| &*p.name).collect();
        assert_eq!(names.len(), all.len());
        for p in
            all.iter().filter(|p| p.name.starts_with("long beside") || p.name.starts_with("lossy stream 256K  1000"))
        {
            assert_eq!(table::measure(p).violation, None, "{}", p.name);
        }
    }
}
