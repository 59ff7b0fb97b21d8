//! Histograms for plots, and what is drawn from them.

use proptest::prelude::*;
use weir_stats::bins::{Bins, FIXED_WIDTH_NS, HistogramSampler, MOST_BINS, Width};
use weir_stats::{Distribution, Recorder, RecorderConfig, Sample, compare, seeded};

const AUTOMATIC: Width = Width::Automatic { least: 0.0 };

fn sample(count: usize) -> Sample {
    let family = Distribution::Lognormal { location: 100_000.0, mu: 9.0, sigma: 0.5 };
    let mut random = seeded(81);
    Sample::durations((0..count).map(|_| family.sample(&mut random)).collect()).unwrap()
}

#[test]
fn the_automatic_width_is_freedman_and_diaconis() {
    let sample = sample(1000);
    let bins = Bins::of(&sample, AUTOMATIC, f64::INFINITY).unwrap();
    let expected = 2.0 * (sample.quantile(0.75) - sample.quantile(0.25)) / 10.0;
    assert!((bins.width / expected - 1.0).abs() < 1e-12);
    assert_eq!(bins.total(), 1000);
}

#[test]
fn the_fixed_width_is_kept_and_bins_begin_at_its_multiples() {
    let bins = Bins::of(&sample(1000), Width::Fixed(FIXED_WIDTH_NS), f64::INFINITY).unwrap();
    assert_eq!((bins.width, bins.start), (50_000.0, 100_000.0));
    let sorted = sample(1000);
    for (low, high, count) in bins.iter() {
        let inside = sorted.sorted().iter().filter(|v| (low..high).contains(*v)).count() as u64;
        assert_eq!(count, inside, "{low}..{high}");
    }
}

#[test]
fn an_outlier_far_away_does_not_make_a_million_bins() {
    let mut values = sample(1000).sorted().to_vec();
    values.push(1e13);
    let sample = Sample::durations(values).unwrap();
    for width in [AUTOMATIC, Width::Fixed(1.0)] {
        let bins = Bins::of(&sample, width, f64::INFINITY).unwrap();
        assert!(bins.counts.len() <= MOST_BINS && bins.total() == 1001);
    }
    let limited = Bins::of(&sample, AUTOMATIC, 1e6).unwrap();
    assert_eq!((limited.total(), limited.max < 1e6), (1000, true));
    assert!(Bins::of(&sample, AUTOMATIC, 1.0).is_err());
}

#[test]
fn widths_that_make_no_sense_are_refused() {
    for width in [Width::Fixed(0.0), Width::Fixed(f64::NAN), Width::Automatic { least: -1.0 }] {
        assert!(Bins::of(&sample(10), width, f64::INFINITY).is_err(), "{width:?}");
    }
}

#[test]
fn values_drawn_from_a_histogram_follow_the_data_and_never_fall_below_the_least() {
    let sample = sample(20_000);
    let sampler = Bins::of(&sample, AUTOMATIC, f64::INFINITY).unwrap().sampler().unwrap();
    let mut random = seeded(82);
    let drawn = Sample::durations((0..20_000).map(|_| sampler.sample(&mut random)).collect()).unwrap();
    assert!(drawn.min() >= sample.min() && drawn.max() <= sample.max());
    let test = compare::kolmogorov_smirnov(&sample, &drawn);
    assert!(test.p > 0.001, "{test:?}");
    assert_eq!((sampler.quantile(0.0), sampler.quantile(1.0)), (sample.min(), sample.max()));
}

#[test]
fn values_drawn_from_a_recorder_follow_all_it_has_seen() {
    let sample = sample(50_000);
    let mut recorder = Recorder::new(RecorderConfig { reservoir: 10, ..RecorderConfig::default() }).unwrap();
    for value in sample.sorted() {
        recorder.record(*value).unwrap();
    }
    let sampler = HistogramSampler::of_recorder(&recorder).unwrap();
    for p in [0.0, 0.001, 0.1, 0.5, 0.9, 0.999, 1.0] {
        let (got, expected) = (sampler.quantile(p), sample.quantile(p));
        assert!((got / expected - 1.0).abs() < 1.5e-3, "{p}: {got} against {expected}");
    }
    assert!(HistogramSampler::of_recorder(&Recorder::new(RecorderConfig::default()).unwrap()).is_err());
}

#[test]
fn bins_that_make_no_histogram_are_refused() {
    let new = |bins: &[(f64, f64, u64)]| HistogramSampler::new(bins.iter().copied(), 0.0, 10.0);
    assert!(new(&[]).is_err() && new(&[(0.0, 1.0, 0)]).is_err());
    assert!(new(&[(1.0, 0.0, 1)]).is_err() && new(&[(0.0, f64::NAN, 1)]).is_err());
    assert!(new(&[(0.0, 5.0, 1), (2.0, 6.0, 1)]).is_err());
    assert!(HistogramSampler::new([(0.0, 1.0, 1)], 5.0, 1.0).is_err());
    // A bin with one value in it that reaches far: within the recorded range only.
    let one = HistogramSampler::new([(0.0, 100.0, 4)], 20.0, 30.0).unwrap();
    assert_eq!((one.quantile(0.0), one.quantile(0.5), one.quantile(1.0)), (20.0, 25.0, 30.0));
}

proptest! {
    #[test]
    fn every_value_is_counted_in_the_bin_it_lies_in(
        values in prop::collection::vec(prop_oneof![0.0..100.0, Just(0.0), Just(1e300), 1e6..1e6 + 1e-6, Just(5.0)], 1..80),
        width in prop_oneof![Just(AUTOMATIC), (0.01..1e3).prop_map(Width::Fixed)],
    ) {
        let sample = Sample::durations(values.clone()).unwrap();
        let bins = Bins::of(&sample, width, f64::INFINITY).unwrap();
        prop_assert_eq!(bins.total(), values.len() as u64);
        prop_assert!(bins.counts.len() <= MOST_BINS + 1 && bins.width > 0.0 && bins.start <= sample.min());
        let sampler = bins.sampler().unwrap();
        for p in [0.0, 0.3, 1.0] {
            prop_assert!((sample.min()..=sample.max()).contains(&sampler.quantile(p)));
        }
    }
}
