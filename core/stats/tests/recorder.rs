//! The streaming recorder against the whole data it has seen.

use proptest::prelude::*;
use weir_stats::{
    Distribution, Error, Recorder, RecorderConfig, Sample, Slots, Summary, histogram_from_base64,
    histogram_from_v2_deflate, seeded,
};

fn recorder(reservoir: usize, seed: u64) -> Recorder {
    Recorder::new(RecorderConfig { reservoir, seed, ..RecorderConfig::default() }).unwrap()
}

fn record_all(recorder: &mut Recorder, values: impl IntoIterator<Item = f64>) {
    for value in values {
        recorder.record(value).unwrap();
    }
}

fn durations(count: usize, seed: u64) -> Vec<f64> {
    let mut random = seeded(seed);
    let family = Distribution::Lognormal { location: 900.0, mu: 6.0, sigma: 0.8 };
    (0..count).map(|_| family.sample(&mut random)).collect()
}

#[test]
fn while_all_is_kept_the_summary_is_the_exact_one() {
    let values = durations(5000, 1);
    let mut recorder = recorder(5000, 0);
    for (i, &value) in values.iter().enumerate() {
        assert_eq!(recorder.record(value).unwrap(), Some(i));
    }
    assert_eq!(recorder.kept(), values);
    assert_eq!(recorder.summary().unwrap(), Summary::of(&Sample::durations(values).unwrap()));
}

#[test]
fn beyond_the_reservoir_quantiles_keep_three_digits_and_extremes_are_exact() {
    let values = durations(200_000, 2);
    let mut recorder = recorder(1000, 0);
    record_all(&mut recorder, values.iter().copied());
    assert_eq!((recorder.kept().len(), recorder.keeps_all()), (1000, false));
    let exact = Summary::of(&Sample::durations(values).unwrap());
    let got = recorder.summary().unwrap();
    assert_eq!((got.count, got.min, got.max), (exact.count, exact.min, exact.max));
    let pairs = [
        (got.p1, exact.p1),
        (got.p5, exact.p5),
        (got.p25, exact.p25),
        (got.p50, exact.p50),
        (got.p75, exact.p75),
        (got.p90, exact.p90),
        (got.p99, exact.p99),
        (got.p99_9, exact.p99_9),
        (got.median_interval.low, exact.median_interval.low),
        (got.median_interval.high, exact.median_interval.high),
    ];
    for (got, exact) in pairs {
        assert!((got / exact - 1.0).abs() < 1.5e-3, "{got} against {exact}");
    }
    assert!((got.mean / exact.mean - 1.0).abs() < 1e-10 && (got.sd / exact.sd - 1.0).abs() < 1e-9);
    // The only thing taken from the 1000 kept: sd of a median absolute deviation is about 1.2 mad /
    // sqrt(1000), here with skew.
    assert!((got.mad / exact.mad - 1.0).abs() < 0.2, "{} against {}", got.mad, exact.mad);
}

/// Chi-square of how often each of `n` items was kept in `trials` reservoirs of `k`; items of one
/// trial are negatively correlated, which makes the statistic (n - 1) / n of a chi-square with n -
/// 1 degrees of freedom divided by (1 - k / n).
fn uniformity(n: usize, k: usize, trials: usize, mut kept: impl FnMut(u64) -> Vec<usize>) -> f64 {
    let mut counts = vec![0.0; n];
    for trial in 0..trials {
        let items = kept(trial as u64);
        assert_eq!(items.len(), k);
        items.iter().for_each(|i| counts[*i] += 1.0);
    }
    let expected = (trials * k) as f64 / n as f64;
    let raw: f64 = counts.iter().map(|c| (c - expected) * (c - expected) / expected).sum();
    raw / (1.0 - k as f64 / n as f64)
}

/// Mean and 4.5 standard deviations of a chi-square with `df` degrees.
fn plausible(statistic: f64, df: f64) -> bool {
    (statistic - df).abs() < 4.5 * (2.0 * df).sqrt()
}

#[test]
fn every_item_of_a_stream_is_kept_equally_often() {
    let statistic = uniformity(100, 10, 20_000, |seed| {
        let mut random = seeded(seed);
        let mut slots = Slots::new(10, &mut random);
        let mut kept = vec![0; 10];
        for i in 0..100 {
            if let Some(place) = slots.offer(&mut random) {
                kept[place] = i;
            }
        }
        kept
    });
    assert!(plausible(statistic, 99.0), "{statistic}");
}

#[test]
fn every_item_of_merged_streams_is_kept_equally_often_also_of_those_after_the_merge() {
    let statistic = uniformity(100, 10, 20_000, |seed| {
        let mut one = recorder(10, seed);
        let mut two = recorder(10, seed + 1_000_000);
        record_all(&mut one, (0..25).map(f64::from));
        record_all(&mut two, (25..75).map(f64::from));
        one.merge(&two).unwrap();
        record_all(&mut one, (75..100).map(f64::from));
        one.kept().iter().map(|v| *v as usize).collect()
    });
    assert!(plausible(statistic, 99.0), "{statistic}");
}

#[test]
fn a_short_stream_merged_into_a_longer_one_is_kept_with_its_fair_share() {
    let statistic = uniformity(60, 10, 20_000, |seed| {
        let mut one = recorder(10, seed);
        let mut two = recorder(10, seed + 1_000_000);
        record_all(&mut one, (0..4).map(f64::from));
        record_all(&mut two, (4..60).map(f64::from));
        one.merge(&two).unwrap();
        one.kept().iter().map(|v| *v as usize).collect()
    });
    assert!(plausible(statistic, 59.0), "{statistic}");
}

#[test]
fn merged_recorders_are_as_one_that_saw_everything() {
    let values = durations(30_000, 3);
    let mut whole = recorder(50_000, 0);
    record_all(&mut whole, values.iter().copied());
    let mut merged = recorder(50_000, 0);
    for part in values.chunks(7001) {
        let mut recorder = recorder(50_000, 9);
        record_all(&mut recorder, part.iter().copied());
        merged.merge(&recorder).unwrap();
    }
    assert_eq!(merged.kept(), whole.kept());
    assert_eq!(merged.histogram(), whole.histogram());
    assert_eq!(merged.summary().unwrap(), whole.summary().unwrap());
    assert!((merged.moments().mean() / whole.moments().mean() - 1.0).abs() < 1e-12);
    assert!((merged.moments().sd() / whole.moments().sd() - 1.0).abs() < 1e-10);
}

#[test]
fn recorders_of_different_kinds_do_not_merge() {
    let mut one = recorder(10, 0);
    assert!(one.merge(&recorder(11, 0)).is_err());
    let other = Recorder::new(RecorderConfig { reservoir: 10, digits: 2, seed: 0 }).unwrap();
    assert!(one.merge(&other).is_err());
    assert!(Recorder::new(RecorderConfig { digits: 9, ..RecorderConfig::default() }).is_err());
    assert!(Recorder::new(RecorderConfig { reservoir: 0, ..RecorderConfig::default() }).is_err());
}

#[test]
fn a_value_that_is_no_duration_is_refused_and_leaves_no_trace() {
    let mut recorder = recorder(10, 0);
    recorder.record(5.0).unwrap();
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
        assert!(recorder.record(bad).is_err());
    }
    assert_eq!((recorder.count(), recorder.kept(), recorder.histogram().len()), (1, &[5.0][..], 1));
}

#[test]
fn an_empty_recorder_has_no_summary() {
    let recorder = recorder(10, 0);
    assert_eq!(recorder.summary().unwrap_err(), Error::TooFew { have: 0, need: 1 });
    assert_eq!((recorder.min(), recorder.max(), recorder.quantile(0.5)), (None, None, None));
}

#[test]
fn values_beyond_the_histogram_are_counted_at_its_end() {
    let mut recorder = recorder(2, 0);
    record_all(&mut recorder, [f64::MAX, 0.0, 1e18].iter().copied());
    assert_eq!((recorder.histogram().len(), recorder.max()), (3, Some(f64::MAX)));
    assert!(recorder.summary().unwrap().p50 >= (1u64 << 49) as f64);
}

#[test]
fn a_histogram_comes_back_from_bytes_and_text() {
    let mut recorder = recorder(10, 0);
    record_all(&mut recorder, durations(10_000, 4).iter().copied());
    assert_eq!(&histogram_from_v2_deflate(&recorder.to_v2_deflate()).unwrap(), recorder.histogram());
    assert_eq!(&histogram_from_base64(&recorder.to_base64()).unwrap(), recorder.histogram());
    assert!(matches!(histogram_from_base64("not base64!"), Err(Error::Corrupt(_))));
    assert!(histogram_from_v2_deflate(&[]).is_err());
}

proptest! {
    #[test]
    fn damaged_histograms_are_read_or_refused_but_never_a_panic(
        cut in 0usize..400,
        place in 0usize..400,
        value: u8,
    ) {
        let mut recorder = recorder(10, 0);
        record_all(&mut recorder, (1..200).map(|i| f64::from(i * i)));
        let mut bytes = recorder.to_v2_deflate();
        let length = bytes.len();
        bytes[place % length] = value;
        bytes.truncate(length - cut % length);
        let _ = histogram_from_v2_deflate(&bytes);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = histogram_from_v2_deflate(&bytes);
    }

    #[test]
    fn any_durations_can_be_recorded_merged_and_summed_up(
        one in prop::collection::vec(prop_oneof![0.0..1e4, Just(0.0), Just(f64::MAX), Just(1e-300)], 0..80),
        two in prop::collection::vec(0.0..1e9, 0..80),
        reservoir in 1usize..50,
    ) {
        let mut a = recorder(reservoir, 1);
        let mut b = recorder(reservoir, 2);
        record_all(&mut a, one.iter().copied());
        record_all(&mut b, two.iter().copied());
        a.merge(&b).unwrap();
        let total = one.len() + two.len();
        prop_assert_eq!(a.count(), total as u64);
        prop_assert_eq!(a.kept().len(), total.min(reservoir));
        prop_assert!(a.kept().iter().all(|v| one.contains(v) || two.contains(v)));
        if total > 0 {
            let s = a.summary().unwrap();
            let order = [s.min, s.p1, s.p5, s.p25, s.p50, s.p75, s.p90, s.p99, s.p99_9, s.max];
            prop_assert!(order.is_sorted(), "{:?}", order);
        }
    }
}
