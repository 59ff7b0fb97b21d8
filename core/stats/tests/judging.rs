//! Outliers, warm-up, stopping and independence: planted effects are found, and none where there
//! are none.

use proptest::prelude::*;
use weir_stats::independence::{Independence, Tally, effective_count};
use weir_stats::outliers::{Mark, OutlierRule, TimeoutModes, outlier_report};
use weir_stats::stopping::{Budget, Decision, Stop, relative_width, relative_width_in_order};
use weir_stats::{
    Distribution, Error, Random, Sample, dependent_quantile_interval, open_unit, quantile_interval, seeded, warmup,
};

const USUAL: Distribution = Distribution::Weibull { location: 160_000.0, shape: 3.6, scale: 9000.0 };

fn series(count: usize, random: &mut Random) -> Vec<f64> {
    (0..count).map(|_| USUAL.sample(random)).collect()
}

/// 8 ranks, 500 repetitions; `delayed` says which samples a time-out hits.
fn marks(delayed: impl Fn(u32, u32) -> bool, random: &mut Random) -> Vec<Mark> {
    let mut marks = Vec::new();
    for repetition in 0..500 {
        for rank in 0..8 {
            let delay = if delayed(rank, repetition) { 205e6 } else { 0.0 };
            marks.push(Mark { launch: 0, rank, repetition, value: USUAL.sample(random) + delay });
        }
    }
    marks
}

fn report(marks: &[Mark]) -> weir_stats::outliers::OutlierReport {
    let sample = Sample::durations(marks.iter().map(|m| m.value).collect()).unwrap();
    let boundary = OutlierRule::default().boundary(&sample);
    outlier_report(marks, boundary, sample.median(), TimeoutModes::default()).unwrap()
}

#[test]
fn planted_outliers_are_found_and_nothing_else() {
    let planted = |rank: u32, repetition: u32| (rank * 61 + repetition * 13) % 200 == 7;
    let marks = marks(planted, &mut seeded(61));
    let report = report(&marks);
    let truth: Vec<&Mark> = marks.iter().filter(|m| planted(m.rank, m.repetition)).collect();
    assert_eq!(report.outliers, truth.len() as u64);
    assert!(truth.iter().all(|m| m.value > report.boundary));
    assert_eq!(report.timeouts, [report.outliers, 0, 0, 0, 0, 0]);
    assert_eq!((report.samples, report.by_rank.len(), report.by_launch.len()), (4000, 8, 1));
    assert_eq!(report.by_rank.iter().map(|s| s.outliers).sum::<u64>(), report.outliers);
}

#[test]
fn without_outliers_none_are_found() {
    let report = report(&marks(|_, _| false, &mut seeded(62)));
    assert_eq!((report.outliers, report.bursts.count, report.operations_hit), (0, 0, 0.0));
    assert_eq!((report.equal_ranks_p, report.bursts.independent_p), (None, None));
}

#[test]
fn the_rule_is_blind_when_more_than_its_share_is_delayed_as_the_seed_warns() {
    let report = report(&marks(|rank, repetition| (rank + repetition) % 50 == 0, &mut seeded(63)));
    assert_eq!(report.outliers, 0);
}

#[test]
fn outliers_of_one_rank_are_told_from_outliers_of_all() {
    let uneven = report(&marks(|rank, repetition| rank == 3 && repetition % 13 == 0, &mut seeded(64)));
    assert_eq!((uneven.by_rank[3].number, uneven.by_rank[3].outliers), (3, 39));
    assert_eq!(uneven.equal_ranks_p, None, "39 outliers on 8 ranks are too few for the test");
    let marks = marks(|rank, repetition| rank == 3 && repetition % 12 == 0, &mut seeded(64));
    let uneven = outlier_report(&marks, 1e8, 168_000.0, TimeoutModes::default()).unwrap();
    assert!(uneven.equal_ranks_p.is_some_and(|p| p < 1e-6), "{uneven:?}");
    // One or none of 8 ranks in each repetition: as many operations as outliers, a little above
    // independence.
    assert!((uneven.operations_hit - 42.0 / 500.0).abs() < 1e-12);
    assert!(uneven.independent_operations_hit < uneven.operations_hit);
}

#[test]
fn a_burst_is_told_from_as_many_single_outliers() {
    let burst = report(&marks(|rank, repetition| rank == 2 && (100..130).contains(&repetition), &mut seeded(65)));
    assert_eq!((burst.bursts.count, burst.bursts.longest, burst.bursts.mean_length), (1, 30, 30.0));
    assert!(burst.bursts.independent_p.unwrap() < 1e-9);
    let single = report(&marks(|rank, repetition| rank == 2 && repetition % 16 == 3, &mut seeded(65)));
    assert_eq!(single.bursts.longest, 1);
    assert!(single.bursts.independent_p.unwrap() > 0.5);
}

#[test]
fn independent_outliers_look_bursty_as_rarely_as_the_significance_says() {
    let mut random = seeded(66);
    let trials = 2000;
    let mut low = 0;
    for _ in 0..trials {
        let marks: Vec<Mark> = (0..300)
            .map(|repetition| {
                let value = if open_unit(&mut random) < 0.1 { 100.0 } else { 1.0 };
                Mark { launch: 0, rank: 0, repetition, value }
            })
            .collect();
        let report = outlier_report(&marks, 50.0, 1.0, TimeoutModes::default()).unwrap();
        low += usize::from(report.bursts.independent_p.unwrap() < 0.05);
    }
    let share = low as f64 / trials as f64;
    assert!((0.02..0.075).contains(&share), "{share}");
}

#[test]
fn time_outs_are_counted_by_how_often_they_doubled() {
    let modes = TimeoutModes::default();
    for (excess, expected) in [(200e6, Some(1)), (610e6, Some(2)), (1.41e9, Some(3)), (3.0e9, Some(4))] {
        assert_eq!(modes.classify(excess), expected, "{excess}");
    }
    for excess in [0.0, -1.0, 100e6, 400e6, f64::NAN, f64::INFINITY] {
        assert_eq!(modes.classify(excess), None, "{excess}");
    }
}

#[test]
fn the_outlier_rule_is_adjustable_and_refuses_nonsense() {
    let sample = Sample::durations((1..=101).map(f64::from).collect()).unwrap();
    assert_eq!(OutlierRule::default().boundary(&sample), 500.0);
    assert_eq!(OutlierRule::new(0.5, 10.0).unwrap().boundary(&sample), 510.0);
    assert_eq!(OutlierRule::default().boundary(&Sample::durations(vec![0.0; 5]).unwrap()), f64::INFINITY);
    for (p, m) in [(0.0, 5.0), (1.1, 5.0), (0.9, 0.5), (f64::NAN, 5.0), (0.9, f64::INFINITY)] {
        assert!(OutlierRule::new(p, m).is_err());
    }
    let modes = TimeoutModes::default();
    assert_eq!(outlier_report(&[], 1.0, 1.0, modes).unwrap_err(), Error::TooFew { have: 0, need: 1 });
    let bad = Mark { launch: 0, rank: 0, repetition: 0, value: f64::NAN };
    assert!(outlier_report(&[bad], 1.0, 1.0, modes).is_err());
}

#[test]
fn planted_warm_up_is_found_to_the_batch() {
    let mut random = seeded(67);
    for (slow, factor) in [(3, 10.0), (30, 1.5), (100, 1.2)] {
        let mut values = series(1000, &mut random);
        values[..slow].iter_mut().for_each(|v| *v *= factor);
        let found = warmup::detect(&values, warmup::SIGNIFICANCE, &mut random).unwrap();
        assert!(found.samples >= slow && found.samples < slow + 15 && found.settled, "{slow} {factor}: {found:?}");
    }
}

#[test]
fn a_slow_decay_is_cut_where_little_of_it_is_left() {
    let mut random = seeded(68);
    let values: Vec<f64> =
        series(2000, &mut random).iter().enumerate().map(|(i, v)| v + 30_000.0 * (-(i as f64) / 50.0).exp()).collect();
    let found = warmup::detect(&values, 0.01, &mut random).unwrap();
    // At 100 samples 4000 are left of 30,000, at 300 it is 75: the spread of the rest is 2400.
    assert!((60..350).contains(&found.samples) && found.settled, "{found:?}");
}

#[test]
fn a_series_that_never_settles_is_said_to_be_so() {
    let mut random = seeded(69);
    let values: Vec<f64> = series(1000, &mut random).iter().enumerate().map(|(i, v)| v - 60.0 * i as f64).collect();
    let found = warmup::detect(&values, 0.01, &mut random).unwrap();
    assert!(found.samples > 0 && !found.settled, "{found:?}");
}

#[test]
fn no_warm_up_is_found_where_there_is_none_but_for_the_significance() {
    let mut random = seeded(70);
    let trials = 400;
    let heavy = Distribution::Pearson5 { location: 1000.0, shape: 1.5, scale: 100.0 };
    for family in [USUAL, heavy] {
        let found = (0..trials)
            .filter(|_| {
                let values: Vec<f64> = (0..200).map(|_| family.sample(&mut random)).collect();
                warmup::detect(&values, 0.05, &mut random).unwrap().samples > 0
            })
            .count();
        let share = found as f64 / trials as f64;
        assert!(share < 0.05 + 4.0 * 0.0109, "{family:?}: {share}");
    }
    assert_eq!(warmup::detect(&[7.0; 100], 0.01, &mut random).unwrap().samples, 0);
}

#[test]
fn warm_up_refuses_what_it_cannot_judge() {
    let mut random = seeded(71);
    assert!(matches!(warmup::detect(&[1.0; 10], 0.01, &mut random), Err(Error::TooFew { .. })));
    assert!(warmup::detect(&[f64::NAN; 50], 0.01, &mut random).is_err());
    assert!(warmup::detect(&[1.0; 50], 0.0, &mut random).is_err());
}

#[test]
fn measuring_stops_when_the_median_is_known_well_enough() {
    let mut random = seeded(72);
    let budget = Budget { relative_width: Some(0.002), ..Budget::default() };
    let mut values = Vec::new();
    let mut expected_first = 0;
    loop {
        let more = series(100, &mut random);
        values.extend(more);
        let sample = Sample::durations(values.clone()).unwrap();
        match budget.decide(&sample, 1e6).unwrap() {
            Decision::Continue { expected } => {
                assert!(expected > values.len() as u64);
                expected_first = if values.len() == 100 { expected } else { expected_first };
            }
            Decision::Stop(why) => {
                assert_eq!(why, Stop::Width);
                assert!(relative_width(&sample, 0.5, 0.95) <= 0.002);
                break;
            }
        }
        assert!(values.len() < 10_000);
    }
    // sd of the data is about 2500 of 168,000: 2 * 1.96 * 1.25 * 2500 / (0.002 * 168,000) squared
    // is 1330. Widths of order statistics scatter by a third.
    assert!((600..3000).contains(&values.len()), "{}", values.len());
    assert!((300..5000).contains(&expected_first), "{expected_first}");
}

#[test]
fn the_width_of_dependent_values_is_that_of_the_interval_they_are_worth() {
    let mut random = seeded(74);
    let independent = series(5000, &mut random);
    let sample = Sample::durations(independent.clone()).unwrap();
    let plain = relative_width(&sample, 0.5, 0.95);
    let in_order = relative_width_in_order(&independent, 0.95).unwrap();
    assert!((0.8..1.25).contains(&(in_order / plain)), "{in_order} against {plain}");
    // Each value a hundred times in a row is worth fifty values.
    let phases: Vec<f64> = independent[..50].iter().flat_map(|v| [*v; 100]).collect();
    let sample = Sample::durations(phases.clone()).unwrap();
    let tallies: Vec<Tally> =
        phases.iter().map(|v| Tally { samples: 1, below: u32::from(*v <= sample.median()) }).collect();
    let interval = dependent_quantile_interval(&sample, 0.5, 0.95, effective_count(&tallies)).unwrap();
    let expected = interval.width() / sample.median();
    assert_eq!(relative_width_in_order(&phases, 0.95).unwrap(), expected);
    assert!(expected > 5.0 * relative_width(&sample, 0.5, 0.95), "{expected}");
    assert_eq!(relative_width_in_order(&[7.0; 400], 0.95).unwrap(), 0.0);
    assert_eq!(relative_width_in_order(&[1.0, 2.0], 0.95).unwrap(), f64::INFINITY);
    assert!(relative_width_in_order(&[], 0.95).is_err() && relative_width_in_order(&[f64::NAN], 0.95).is_err());
}

#[test]
fn measuring_stops_by_time_and_by_count() {
    let sample = Sample::durations(series(200, &mut seeded(73))).unwrap();
    let endless = Budget { relative_width: Some(1e-9), time_ns: Some(1e9), most: 1000, ..Budget::default() };
    assert_eq!(endless.decide(&sample, 1e9).unwrap(), Decision::Stop(Stop::Time));
    let Decision::Continue { expected } = endless.decide(&sample, 0.5e9).unwrap() else { panic!("stopped early") };
    assert_eq!(expected, 400);
    assert_eq!(Budget { most: 200, ..endless }.decide(&sample, 0.0).unwrap(), Decision::Stop(Stop::Count));
    let early = Sample::durations(vec![5.0; 50]).unwrap();
    assert!(matches!(Budget::default().decide(&early, 1.0).unwrap(), Decision::Continue { .. }));
    for bad in [
        Budget { quantile: 1.0, ..Budget::default() },
        Budget { relative_width: Some(0.0), ..Budget::default() },
        Budget { time_ns: Some(f64::NAN), ..Budget::default() },
        Budget { most: 5, ..Budget::default() },
    ] {
        assert!(bad.decide(&early, 1.0).is_err(), "{bad:?}");
    }
}

/// Autoregressive series with correlation `r` from one to the next.
fn correlated(r: f64, count: usize, random: &mut Random) -> Vec<f64> {
    let normal = Distribution::Normal { mean: 0.0, sd: 1.0 };
    let mut value = 0.0;
    (0..count)
        .map(|_| {
            value = r * value + (1.0 - r * r).sqrt() * normal.sample(random);
            value
        })
        .collect()
}

#[test]
fn independent_series_are_called_dependent_as_rarely_as_the_significance_says() {
    let mut random = seeded(74);
    let trials = 2000;
    let (mut runs, mut box_) = (0, 0);
    for _ in 0..trials {
        let found = Independence::of(&series(300, &mut random)).unwrap();
        runs += usize::from(found.runs.p < 0.05);
        box_ += usize::from(found.ljung_box.p < 0.05);
    }
    for share in [runs as f64 / trials as f64, box_ as f64 / trials as f64] {
        assert!((share - 0.05).abs() < 4.0 * 0.00487 + 0.01, "{share}");
    }
}

#[test]
fn correlation_is_found_and_lessens_what_the_series_is_worth() {
    let mut random = seeded(75);
    let found = Independence::of(&correlated(0.6, 20_000, &mut random)).unwrap();
    assert!(found.runs.p < 1e-6 && found.runs.statistic < 0.0 && found.ljung_box.p < 1e-6);
    // Of ranks: (6 / pi) asin(r / 2) = 0.582; standard error below 0.01.
    assert!((found.autocorrelation[0] - 0.582).abs() < 0.03, "{found:?}");
}

/// Repetitions of `ranks` samples each; how many are at most their median.
fn tallies(values: &[f64], ranks: usize) -> Vec<Tally> {
    let median = Sample::signed(values.to_vec()).unwrap().median();
    let below = |of: &[f64]| of.iter().filter(|v| **v <= median).count() as u32;
    values.chunks(ranks).map(|of| Tally { samples: of.len() as u32, below: below(of) }).collect()
}

#[test]
fn correlated_samples_are_worth_fewer() {
    let mut random = seeded(76);
    // Of signs about the median, lag k: (2 / pi) asin(r^k); for r = 0.6 these sum up to 0.898, so n
    // / 2.8.
    let worth = effective_count(&tallies(&correlated(0.6, 20_000, &mut random), 1));
    assert!((5700.0..8700.0).contains(&worth), "{worth}");
    let worth = effective_count(&tallies(&correlated(0.0, 20_000, &mut random), 1));
    assert!((15_000.0..=20_000.0).contains(&worth), "{worth}");
    // So many that neighbours are added up first.
    let worth = effective_count(&tallies(&correlated(0.6, 400_000, &mut random), 1));
    assert!((115_000.0..172_000.0).contains(&worth), "{worth}");
}

#[test]
fn ranks_of_a_repetition_that_move_together_count_once() {
    let mut random = seeded(77);
    let repetitions = series(3000, &mut random);
    let together: Vec<f64> =
        repetitions.iter().flat_map(|v| (0..8).map(move |rank| v + f64::from(rank) * 0.01)).collect();
    let worth = effective_count(&tallies(&together, 8));
    assert!((2200.0..3200.0).contains(&worth), "{worth}");
    let apart = series(24_000, &mut random);
    let worth = effective_count(&tallies(&apart, 8));
    assert!((19_000.0..=24_000.0).contains(&worth), "{worth}");
}

#[test]
fn what_cannot_be_estimated_is_worth_its_repetitions_at_most() {
    let one = Tally { samples: 4, below: 2 };
    assert_eq!(effective_count(&[]), 0.0);
    assert_eq!(effective_count(&[one; 9]), 9.0);
    assert_eq!(effective_count(&[Tally { samples: 4, below: 4 }; 50]), 50.0);
    assert_eq!(effective_count(&[Tally { samples: 1, below: 1 }; 3]), 3.0);
}

/// Shares of `trials` in which the interval of the median covers 0: as made for independent
/// samples, and for what they are worth.
fn coverage(trials: usize, ranks: usize, mut draw: impl FnMut() -> Vec<f64>) -> (f64, f64) {
    let (mut naive, mut sound) = (0, 0);
    for _ in 0..trials {
        let values = draw();
        let sample = Sample::signed(values.clone()).unwrap();
        let worth = effective_count(&tallies(&values, ranks));
        naive += usize::from(quantile_interval(&sample, 0.5, 0.95).unwrap().contains(0.0));
        sound += usize::from(dependent_quantile_interval(&sample, 0.5, 0.95, worth).unwrap().contains(0.0));
    }
    (naive as f64 / trials as f64, sound as f64 / trials as f64)
}

#[test]
fn the_interval_of_a_dependent_median_covers_it_as_often_as_it_says() {
    // Standard error of a share of 0.95 in 800 trials: 0.0077. Estimating the dependence costs a
    // little.
    let mut random = seeded(78);
    for (r, count) in [(0.0, 400), (0.6, 400), (0.8, 1000)] {
        let (naive, sound) = coverage(800, 1, || correlated(r, count, &mut random));
        assert!((0.915..0.985).contains(&sound), "r {r}: {sound}");
        assert!(r == 0.0 || naive < 0.85, "r {r}: {naive} if dependence is ignored");
    }
    let normal = Distribution::Normal { mean: 0.0, sd: 0.1 };
    let (naive, sound) = coverage(800, 4, || {
        let common = correlated(0.3, 200, &mut random);
        common.iter().flat_map(|v| [v; 4]).map(|v| v + normal.sample(&mut random)).collect()
    });
    assert!((0.915..0.985).contains(&sound) && naive < 0.75, "ranks together: {sound}, {naive} if that is ignored");
}

#[test]
fn a_median_between_the_times_of_two_ranks_is_known_however_much_repetitions_resemble_each_other() {
    // As in a bcast: the root is always quicker than the other rank, and both share long phases of
    // the machine.
    let mut random = seeded(79);
    let noise = Distribution::Normal { mean: 0.0, sd: 0.3 };
    let mut draw = || -> Vec<f64> {
        let common = correlated(0.8, 400, &mut random);
        common.iter().flat_map(|v| [v - 3.0, v + 3.0]).map(|v| v + noise.sample(&mut random)).collect()
    };
    let values = draw();
    let means: Vec<f64> = values.chunks(2).map(|of| (of[0] + of[1]) / 2.0).collect();
    assert!(Independence::of(&means).unwrap().autocorrelation[0] > 0.6);
    assert!(effective_count(&tallies(&values, 2)) > 0.95 * values.len() as f64);
    let (_, sound) = coverage(300, 2, draw);
    assert!(sound > 0.95, "{sound}");
}

#[test]
fn independence_refuses_what_it_cannot_judge() {
    assert!(matches!(Independence::of(&[1.0; 5]), Err(Error::TooFew { .. })));
    assert!(matches!(Independence::of(&[1.0; 50]), Err(Error::NoSpread { .. })));
    assert!(Independence::of(&[f64::NAN; 50]).is_err());
}

fn tallies_of(values: &[f64]) -> Vec<Tally> {
    if values.is_empty() { Vec::new() } else { tallies(values, 3) }
}

proptest! {
    #[test]
    fn any_series_is_judged_without_panic(
        values in prop::collection::vec(prop_oneof![Just(0.0), Just(f64::MAX), Just(f64::MIN), -1e3..1e3, 0.0..1e-300], 0..120),
        seed: u64,
    ) {
        if let Ok(found) = warmup::detect(&values, 0.1, &mut seeded(seed)) {
            prop_assert!(found.samples <= values.len() / 2 && found.p > 0.0 && found.p <= 1.0, "{found:?}");
        }
        if let Ok(found) = Independence::of(&values) {
            prop_assert!((0.0..=1.0).contains(&found.runs.p) && (0.0..=1.0).contains(&found.ljung_box.p), "{found:?}");
        }
        let worth = effective_count(&tallies_of(&values));
        prop_assert!(worth >= 0.0 && worth <= values.len() as f64, "{worth}");
    }

    #[test]
    fn counts_of_an_outlier_report_add_up(
        raw in prop::collection::vec((0u32..3, 0u32..4, 0u32..50, 0.0..10.0), 1..200),
        boundary in 0.0..10.0,
    ) {
        let marks: Vec<Mark> = raw
            .into_iter()
            .map(|(launch, rank, repetition, value)| Mark { launch, rank, repetition, value })
            .collect();
        let r = outlier_report(&marks, boundary, 5.0, TimeoutModes::default()).unwrap();
        for shares in [&r.by_rank, &r.by_launch] {
            prop_assert_eq!(shares.iter().map(|s| s.samples).sum::<u64>(), marks.len() as u64);
            prop_assert_eq!(shares.iter().map(|s| s.outliers).sum::<u64>(), r.outliers);
            prop_assert!(shares.windows(2).all(|w| w[0].number < w[1].number));
        }
        prop_assert!(r.bursts.count <= r.outliers && r.bursts.longest <= r.outliers);
        prop_assert!((0.0..=1.0).contains(&r.operations_hit));
        for p in [r.equal_ranks_p, r.bursts.independent_p].into_iter().flatten() {
            prop_assert!((0.0..=1.0).contains(&p));
        }
    }
}
