//! Summaries, intervals and launches against brute force and known distributions.

use proptest::prelude::*;
use weir_stats::{
    CONFIDENCE, Distribution, Error, Sample, Summary, bootstrap_interval, dependent_quantile_interval,
    quantile_interval, seeded,
};

fn draw(distribution: &Distribution, count: usize, random: &mut weir_stats::Random) -> Sample {
    Sample::signed((0..count).map(|_| distribution.sample(random)).collect()).unwrap()
}

const EXPONENTIAL: Distribution = Distribution::Exponential { location: 10.0, scale: 5.0 };

/// True when a share seen in `trials` independent trials lies within 4 standard errors of
/// `expected`: a false alarm in 16,000.
fn near(share: f64, expected: f64, trials: usize) -> bool {
    (share - expected).abs() < 4.0 * (expected * (1.0 - expected) / trials as f64).sqrt()
}

#[test]
fn a_summary_of_the_numbers_0_to_1000_is_what_a_hand_computes() {
    let summary = Summary::of(&Sample::durations((0..=1000).rev().map(f64::from).collect()).unwrap());
    assert_eq!(summary.count, 1001);
    let quantiles = [summary.min, summary.p1, summary.p5, summary.p25, summary.p50, summary.p75, summary.p90];
    assert_eq!(quantiles, [0.0, 10.0, 50.0, 250.0, 500.0, 750.0, 900.0]);
    assert_eq!([summary.p99, summary.p99_9, summary.max, summary.mean], [990.0, 999.0, 1000.0, 500.0]);
    assert!((summary.sd - (1001.0_f64 * 1002.0 / 12.0).sqrt()).abs() < 1e-9);
    assert_eq!(summary.mad, 250.0);
}

#[test]
fn the_interval_of_the_median_is_the_textbooks_for_ten_values() {
    let sample = Sample::durations((1..=10).map(f64::from).collect()).unwrap();
    let interval = quantile_interval(&sample, 0.5, 0.95).unwrap();
    // Order statistics 2 and 9, coverage 1 - 2 (1 + 10) / 1024.
    assert_eq!((interval.low, interval.high), (2.0, 9.0));
    assert!((interval.coverage - (1.0 - 22.0 / 1024.0)).abs() < 1e-12);
}

#[test]
fn too_few_values_for_the_confidence_give_the_range_and_its_true_coverage() {
    let sample = Sample::durations(vec![3.0, 1.0, 2.0]).unwrap();
    let interval = quantile_interval(&sample, 0.5, 0.95).unwrap();
    assert_eq!((interval.low, interval.high), (1.0, 3.0));
    assert!((interval.coverage - 0.75).abs() < 1e-12);
    let one = quantile_interval(&Sample::durations(vec![4.0]).unwrap(), 0.5, 0.95).unwrap();
    assert_eq!((one.low, one.high, one.coverage), (4.0, 4.0, 0.0));
}

#[test]
fn samples_worth_all_their_number_have_the_interval_of_independent_ones() {
    for count in [1, 2, 7, 100, 1001] {
        let sample = Sample::durations((0..count).map(f64::from).collect()).unwrap();
        let all = dependent_quantile_interval(&sample, 0.5, 0.95, f64::from(count)).unwrap();
        assert_eq!(all, quantile_interval(&sample, 0.5, 0.95).unwrap());
        let more = dependent_quantile_interval(&sample, 0.5, 0.95, 1e9).unwrap();
        assert_eq!(more, all, "no more than there are");
    }
    // Worth ten: order statistics 2 and 9 of ten lie at 2/11 and 9/11.
    let sample = Sample::durations((1..=1099).map(f64::from).collect()).unwrap();
    let ten = dependent_quantile_interval(&sample, 0.5, 0.95, 10.9).unwrap();
    assert_eq!((ten.low, ten.high), (200.0, 900.0));
    assert!((ten.coverage - (1.0 - 22.0 / 1024.0)).abs() < 1e-12);
    assert!(dependent_quantile_interval(&sample, 0.5, 0.95, 0.0).is_err());
    assert!(dependent_quantile_interval(&sample, 0.5, 0.95, f64::NAN).is_err());
}

#[test]
fn order_statistics_cover_a_quantile_as_often_as_they_say() {
    let mut random = seeded(1);
    for (p, count) in [(0.5, 25), (0.5, 400), (0.9, 100), (0.99, 1500)] {
        let truth = EXPONENTIAL.quantile(p);
        let trials = 3000;
        let (mut covered, mut coverage) = (0, 0.0);
        for _ in 0..trials {
            let interval = quantile_interval(&draw(&EXPONENTIAL, count, &mut random), p, CONFIDENCE).unwrap();
            covered += usize::from(interval.contains(truth));
            coverage = interval.coverage;
        }
        assert!(coverage >= CONFIDENCE, "p {p} n {count}: {coverage}");
        let share = covered as f64 / trials as f64;
        assert!(near(share, coverage, trials), "p {p} n {count}: {share} covered, {coverage} said");
    }
}

#[test]
fn the_interval_of_ten_million_values_is_as_narrow_as_the_normal_approximation_says() {
    let count = 10_000_000;
    let sample = Sample::durations((0..count).map(f64::from).collect()).unwrap();
    let interval = quantile_interval(&sample, 0.5, 0.95).unwrap();
    let expected = 2.0 * 1.959964 * (f64::from(count) * 0.25).sqrt();
    assert!((interval.width() - expected).abs() < 3.0, "{} against {expected}", interval.width());
}

#[test]
fn a_bootstrap_interval_covers_a_mean_about_as_often_as_asked() {
    let mut random = seeded(2);
    let trials = 400;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let covered = (0..trials)
        .filter(|_| {
            let sample = draw(&EXPONENTIAL, 100, &mut random);
            bootstrap_interval(&sample, mean, 0.9, 300, &mut random).unwrap().contains(15.0)
        })
        .count();
    // Percentile intervals of skewed means of 100 values cover a little less than nominal: 0.88
    // instead of 0.90.
    let share = covered as f64 / trials as f64;
    assert!(share > 0.82 && share < 0.95, "{share}");
}

#[test]
fn a_bootstrap_repeats_bit_by_bit_and_refuses_bad_arguments() {
    let sample = draw(&EXPONENTIAL, 50, &mut seeded(3));
    let max = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let run = || bootstrap_interval(&sample, max, 0.95, 100, &mut seeded(4)).unwrap();
    assert_eq!(run(), run());
    assert!(bootstrap_interval(&sample, max, 1.5, 100, &mut seeded(4)).is_err());
    assert!(bootstrap_interval(&sample, max, 0.95, 3, &mut seeded(4)).is_err());
    assert!(bootstrap_interval(&sample, |_| f64::NAN, 0.95, 100, &mut seeded(4)).is_err());
}

#[test]
fn what_is_no_duration_is_refused_by_place() {
    let refuse = |values: &[f64]| Sample::durations(values.to_vec()).unwrap_err();
    assert_eq!(refuse(&[]), Error::TooFew { have: 0, need: 1 });
    assert_eq!(refuse(&[1.0, -2.0]), Error::Negative { index: 1, value: -2.0 });
    assert_eq!(refuse(&[1.0, 2.0, f64::INFINITY]), Error::NotFinite { index: 2, value: f64::INFINITY });
    assert!(matches!(refuse(&[f64::NAN]), Error::NotFinite { index: 0, .. }));
    assert!(Sample::signed(vec![-1.0, 2.0]).is_ok());
    assert!(Sample::signed(vec![f64::NEG_INFINITY]).is_err());
    assert!(refuse(&[-2.0]).to_string().contains("value 0 is -2"));
}

fn values() -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![
        Just(0.0),
        Just(1.0),
        Just(f64::MAX),
        Just(f64::MIN_POSITIVE),
        0.0..10.0,
        0.0..1e12,
        (0u32..5).prop_map(f64::from)
    ];
    prop::collection::vec(value, 1..60)
}

proptest! {
    #[test]
    fn every_summary_is_in_order_and_within_the_data(values in values()) {
        let sample = Sample::durations(values.clone()).unwrap();
        let s = Summary::of(&sample);
        let order = [s.min, s.p1, s.p5, s.p25, s.p50, s.p75, s.p90, s.p99, s.p99_9, s.max];
        prop_assert!(order.is_sorted(), "{order:?}");
        prop_assert!(s.min <= s.mean && s.mean <= s.max);
        prop_assert!(s.sd >= 0.0 && s.mad >= 0.0);
        prop_assert!(s.median_interval.low <= s.p50 && s.p50 <= s.median_interval.high);
    }

    #[test]
    fn the_median_deviation_is_that_of_brute_force(values in prop::collection::vec(0.0..100.0, 1..40)) {
        let sample = Sample::durations(values.clone()).unwrap();
        let median = sample.median();
        let deviations = Sample::durations(values.iter().map(|v| (v - median).abs()).collect()).unwrap();
        prop_assert!((sample.mad() - deviations.median()).abs() <= 1e-12 * 100.0);
    }

    #[test]
    fn a_sample_does_not_depend_on_the_order_it_came_in(mut values in values()) {
        let one = Sample::durations(values.clone()).unwrap();
        values.reverse();
        prop_assert_eq!(Summary::of(&one), Summary::of(&Sample::durations(values).unwrap()));
    }

    #[test]
    fn thinning_keeps_the_ends(values in values(), limit in 2usize..20) {
        let sample = Sample::durations(values).unwrap();
        let thin = sample.thinned(limit);
        prop_assert!(thin.len() <= limit.max(sample.count().min(limit)) && thin.is_sorted());
        prop_assert_eq!((thin[0], thin[thin.len() - 1]), (sample.min(), sample.max()));
    }
}
