//! From planted notes of the ranks to the cell's record: no machine takes part.

use clap::Parser;
use weir_bench::cell::{Measured, Noted};
use weir_bench::collect::{self, FITTED, Relations, Rules, fits, to_fit};
use weir_bench::options::Args;
use weir_bench::pairing::Layout;
use weir_bench::plan::{self, Spec};
use weir_distribution::{Cell, HistogramRecord, Sample, StartSync, flags};
use weir_stats::{Distribution, Random, histogram_from_base64, open_unit, seeded};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// The one cell of a command line on so many nodes of one rank each.
fn spec(line: &str, ranks: usize, start: StartSync) -> Spec {
    let words = ["bench"].into_iter().chain(line.split_whitespace());
    let settings = Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).args.settings().unwrap();
    let names: Vec<String> = (0..ranks).map(|rank| format!("node{rank}")).collect();
    plan::cells(&settings, &Layout::of_names(&names), start).unwrap().remove(0)
}

struct Apart;

impl Relations for Apart {
    fn same_node(&self, _: usize, _: usize) -> bool {
        false
    }
    fn same_clock(&self, _: usize, _: usize) -> bool {
        true
    }
}

const RULES: Rules =
    Rules { keep: 200_000, warm_up: Some(0), percentile: 0.99, multiplier: 5.0, seed: 7, counted: None };
/// Starts of repetitions are so far apart, ns.
const PITCH_NS: i64 = 1_000_000;

/// What ranks noted whose repetitions took `length(rank, repetition)` and began
/// `late(rank, repetition)` after the common start.
fn measured(
    ranks: usize,
    repetitions: usize,
    length: impl Fn(usize, usize) -> f64,
    late: impl Fn(usize, usize) -> i64,
) -> Measured {
    let noted = |rank: usize| {
        let begin_ns: Vec<i64> = (0..repetitions).map(|k| k as i64 * PITCH_NS + late(rank, k)).collect();
        let length_ns: Vec<f64> = (0..repetitions).map(|k| length(rank, k)).collect();
        let end_ns = begin_ns.iter().zip(&length_ns).map(|(b, l)| b + *l as i64).collect();
        Noted {
            begin_ns,
            end_ns,
            length_ns,
            error_ns: 0.0,
            least_ns: 0.0,
            missed: Vec::new(),
            moved: Vec::new(),
            carried: None,
            cpu_ns: None,
            alone_ns: None,
            waits: Vec::new(),
        }
    };
    Measured {
        ranks: (0..ranks).map(noted).collect(),
        repetitions,
        pilot: 0,
        why: "repetitions".into(),
        span_ns: (0, repetitions as i64 * PITCH_NS),
        window_ns: None,
        start: StartSync::Window,
        windows_failed: None,
        agreed_ns: Vec::new(),
        elapsed_ns: 0.0,
        lost: Default::default(),
    }
}

fn collected(measured: &Measured, rules: &Rules) -> (Cell, Vec<Sample>) {
    let spec = spec("-t allreduce -s 8", measured.ranks.len(), StartSync::Window);
    collect::cell(&spec, measured, rules, &Apart).unwrap()
}

/// A series with correlation `r` from one to the next, normal with mean 1e5 and standard
/// deviation 1000.
fn correlated(r: f64, count: usize, random: &mut Random) -> Vec<f64> {
    let normal = Distribution::Normal { mean: 0.0, sd: 1.0 };
    let mut value = normal.sample(random);
    let next = |_| {
        value = r * value + (1.0 - r * r).sqrt() * normal.sample(random);
        1e5 + 1000.0 * value
    };
    (0..count).map(next).collect()
}

#[test]
fn processor_time_is_the_ranks_together_or_not_told() {
    let mut all = measured(3, 20, |_, _| 1000.0, |_, _| 0);
    for (noted, cpu_ns) in all.ranks.iter_mut().zip([5, 70, 900]) {
        noted.cpu_ns = Some(cpu_ns);
    }
    let rules = RULES;
    assert_eq!(collected(&all, &rules).0.cpu_ns, Some(975.0));
    all.ranks[1].cpu_ns = None;
    assert_eq!(collected(&all, &rules).0.cpu_ns, None);
}

#[test]
fn every_rank_is_among_what_is_fitted() {
    // 4 ranks of different floors in the order of samples files, of which every eighth is always
    // rank 0's.
    let sample = |i: u32| Sample {
        rank: i % 4,
        repetition: i / 4,
        duration_ns: 1000.0 * f64::from(1 + i % 4) + f64::from(i / 4 % 7),
        ..Sample::default()
    };
    let samples: Vec<Sample> = (0..80_000).map(sample).collect();
    let chosen = to_fit(&samples, 5);
    assert_eq!(chosen.len(), FITTED);
    for rank in 0..4 {
        let floor = 1000.0 * f64::from(1 + rank);
        let own = chosen.iter().filter(|d| (floor..floor + 7.0).contains(*d)).count();
        // A quarter, standard error 43.
        assert!((2300..2700).contains(&own), "rank {rank}: {own} of {FITTED}");
    }
    assert_eq!(chosen, to_fit(&samples, 5));
    assert_ne!(chosen, to_fit(&samples, 6));
    assert_eq!(to_fit(&samples[..100], 5).len(), 100);
    // What does not count, or stands beside the uniform choice, is not fitted.
    let flagged = |flags| Sample { duration_ns: 9e9, flags, ..Sample::default() };
    let mut few = samples[..100].to_vec();
    few.extend([flags::WARM_UP, flags::MISSED_WINDOW, flags::OUTLIER | flags::BESIDE].map(flagged));
    assert!(to_fit(&few, 5).iter().all(|d| *d < 1e9));
}

#[test]
fn a_fit_says_how_its_probabilities_were_found() {
    let mut random = seeded(21);
    let truth = Distribution::Gamma { location: 1000.0, shape: 14.0, scale: 10.0 };
    let mut draw = |count: usize| -> Vec<f64> { (0..count).map(|_| truth.sample(&mut random)).collect() };
    let many = fits(draw(FITTED), 1);
    assert!(many.iter().flat_map(|f| &f.tests).all(|t| t.method.as_deref() == Some("table") && t.replicates.is_none()));
    let few = fits(draw(500), 2);
    let chosen = few.iter().find(|f| f.chosen).unwrap();
    assert!(chosen.tests.iter().any(|t| t.method.as_deref() == Some("bootstrap") && t.replicates.is_some()), "{few:?}");
    assert!(chosen.reason.as_deref().is_some_and(|r| r.contains("BIC") || r.contains("only")), "{chosen:?}");
    let wrong = few.iter().find(|f| f.family.0 == "exponential").unwrap();
    assert!(wrong.reason.is_none() && wrong.tests.iter().any(|t| t.p_value.is_some_and(|p| p < 0.003)), "{wrong:?}");
}

#[test]
fn the_medians_interval_covers_the_median_of_dependent_repetitions() {
    // 4 ranks that wait for each other, in repetitions that depend on those before: in 300 draws
    // the share covered has a standard error of 0.013. The interval of as many independent samples
    // covers in half of them.
    let mut random = seeded(22);
    let trials = 300;
    let mut covered = 0;
    for _ in 0..trials {
        let common = correlated(0.6, 400, &mut random);
        let small: Vec<f64> = (0..1600).map(|_| 50.0 * open_unit(&mut random) - 25.0).collect();
        let (cell, _) = collected(&measured(4, 400, |rank, k| common[k] + small[4 * k + rank], |_, _| 0), &RULES);
        let summary = cell.summary.unwrap();
        let (low, high) = (summary.median_low_ns.unwrap(), summary.median_high_ns.unwrap());
        covered += usize::from(low <= 1e5 && 1e5 <= high);
        assert!(summary.median_level.unwrap() >= 0.95 && summary.count == 1600);
        assert!(cell.independence.unwrap().effective_count < 600.0);
    }
    let share = covered as f64 / trials as f64;
    assert!((0.90..0.99).contains(&share), "{share}");
}

#[test]
fn dependence_is_in_the_record_and_independence_too() {
    let mut random = seeded(23);
    let record = |r: f64, random: &mut Random| {
        let series = correlated(r, 5000, random);
        collected(&measured(2, 5000, |_, k| series[k], |_, _| 0), &RULES).0.independence.unwrap()
    };
    let dependent = record(0.6, &mut random);
    assert!((dependent.autocorrelation[0] - 0.58).abs() < 0.06, "{dependent:?}");
    assert!(dependent.ljung_box_p < 1e-6 && dependent.runs_p < 1e-6 && dependent.effective_count < 2600.0);
    let free = record(0.0, &mut random);
    assert!(free.autocorrelation[0].abs() < 0.06 && free.ljung_box_p > 1e-3, "{free:?}");
    // Both ranks took the same time: 10,000 samples are worth 5000.
    assert!((3800.0..=5000.0).contains(&free.effective_count), "{free:?}");
    let (equal, _) = collected(&measured(2, 100, |_, _| 500.0, |_, _| 0), &RULES);
    assert!(equal.independence.is_none() && equal.summary.unwrap().median_low_ns == Some(500.0));
}

#[test]
fn missed_starts_are_no_part_of_the_skew() {
    // Starts are up to 99 ns apart, but 400 us where rank 2 came late.
    let missed: Vec<u32> = (0..1000).filter(|k| k % 50 == 17).collect();
    let late = |rank: usize, k: usize| match rank {
        2 if missed.contains(&(k as u32)) => 400_000,
        1 => (k % 100) as i64,
        _ => 0,
    };
    let mut measured = measured(3, 1000, |_, _| 5000.0, late);
    measured.ranks[2].missed.clone_from(&missed);
    let (cell, _) = collected(&measured, &RULES);
    assert_eq!(cell.missed_windows, missed.len() as u64);
    let skew = cell.skew.unwrap();
    assert_eq!((skew.summary.count, skew.summary.max_ns), (1000 - missed.len() as u64, 99.0));
    let Some(HistogramRecord::Hdr(histogram)) = skew.histogram else { panic!("no histogram") };
    let histogram = histogram_from_base64(&histogram.v2_deflate_base64).unwrap();
    assert_eq!((histogram.len(), histogram.max()), (skew.summary.count, 99));
}

#[test]
fn no_outlier_is_lost_when_a_choice_of_samples_is_kept() {
    // 12,000 samples, of which 500 are kept; 60 outliers.
    let is_outlier = |rank: usize, k: usize| rank == 1 && k % 100 == 3;
    let length = |rank: usize, k: usize| if is_outlier(rank, k) { 2e8 + k as f64 } else { 1000.0 + (k % 10) as f64 };
    let measured = measured(2, 6000, length, |_, _| 0);
    let (cell, samples) = collected(&measured, &Rules { keep: 500, ..RULES });
    assert_eq!(cell.outliers.as_ref().unwrap().count, 60);
    let mut outliers: Vec<u32> = samples.iter().filter(|s| s.is_outlier()).map(|s| s.repetition).collect();
    outliers.dedup();
    assert_eq!(outliers, (0..6000).filter(|k| is_outlier(1, *k as usize)).collect::<Vec<u32>>());
    // The uniform choice is as large as ever, and no statistic takes the others for part of it.
    assert_eq!(samples.iter().filter(|s| s.counts()).count(), 500);
    let beside = samples.iter().filter(|s| s.is_beside());
    assert!(beside.clone().all(|s| s.is_outlier() && !s.counts()) && beside.count() > 40);
    assert_eq!(cell.summary.unwrap().count, 12_000);
    // More outliers than samples are to be kept: as many as these.
    let (cell, samples) = collected(&measured, &Rules { keep: 20, ..RULES });
    assert_eq!((cell.outliers.unwrap().count, samples.iter().filter(|s| s.is_beside()).count()), (60, 20));
    // All are kept: nothing is beside them.
    let (_, samples) = collected(&measured, &RULES);
    assert!(samples.len() == 12_000 && samples.iter().all(|s| !s.is_beside()));
}

#[test]
fn times_that_never_settle_are_said_to_be_so() {
    let mut random = seeded(24);
    let noise: Vec<f64> = (0..2000).map(|_| 100.0 * open_unit(&mut random)).collect();
    let rules = Rules { warm_up: None, ..RULES };
    let falling = collected(&measured(2, 1000, |_, k| 90_000.0 - 60.0 * k as f64 + noise[k], |_, _| 0), &rules).0;
    assert!(falling.warm_up > 0 && falling.warnings.iter().any(|w| w.code == "not-settled"), "{:?}", falling.warnings);
    let steady = collected(&measured(2, 1000, |_, k| 90_000.0 + noise[k], |_, _| 0), &rules).0;
    assert!(steady.warnings.is_empty(), "{:?}", steady.warnings);
}
