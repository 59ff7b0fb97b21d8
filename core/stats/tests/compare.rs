//! Tests of two samples against the literature, brute force and their nominal rates.

use proptest::prelude::*;
use weir_stats::compare::{
    Comparison, Test, anderson_darling, brunner_munzel, hodges_lehmann, holm, kolmogorov_smirnov, mann_whitney,
};
use weir_stats::{Distribution, Error, Random, Sample, seeded};

fn sample(values: &[f64]) -> Sample {
    Sample::signed(values.to_vec()).unwrap()
}

fn draw(distribution: &Distribution, count: usize, random: &mut Random) -> Sample {
    Sample::signed((0..count).map(|_| distribution.sample(random)).collect()).unwrap()
}

const BASE: Distribution = Distribution::Lognormal { location: 100.0, mu: 3.0, sigma: 0.5 };

#[test]
fn mann_whitney_counts_small_samples_out() {
    // All 5 of b above all 4 of a: U = 20, one arrangement of 126 on each side.
    let got = mann_whitney(&sample(&[1.0, 2.0, 3.0, 4.0]), &sample(&[5.0, 6.0, 7.0, 8.0, 9.0])).unwrap();
    assert_eq!(got.statistic, 20.0);
    assert!((got.p - 2.0 / 126.0).abs() < 1e-12, "{got:?}");
    // n = m = 3, U = 1: arrangements with U <= 1 are 2 of 20.
    let got = mann_whitney(&sample(&[1.0, 2.0, 4.0]), &sample(&[3.0, 5.0, 6.0])).unwrap();
    assert_eq!(got.statistic, 8.0);
    assert!((got.p - 0.2).abs() < 1e-12, "{got:?}");
}

#[test]
fn brunner_munzel_gives_the_published_example() {
    // Pain scores of Neubert and Brunner (Computational Statistics & Data Analysis 51, 2007), as in
    // R's lawstat and scipy: W = 3.1375, df = 17.683, p = 0.0057862.
    let y = [1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 1.0, 1.0];
    let n = [3.0, 3.0, 4.0, 3.0, 1.0, 2.0, 3.0, 1.0, 1.0, 5.0, 4.0];
    let got = brunner_munzel(&sample(&y), &sample(&n)).unwrap();
    assert!((got.statistic - 3.137467).abs() < 1e-5, "{got:?}");
    assert!((got.p - 0.005786208666).abs() < 1e-8, "{got:?}");
}

#[test]
fn samples_that_do_not_overlap_are_told_apart_by_every_test() {
    let (a, b) = (draw(&BASE, 50, &mut seeded(51)), sample(&(0..60).map(|i| 1e4 + f64::from(i)).collect::<Vec<_>>()));
    let c = Comparison::of(&a, &b, 0.95).unwrap();
    for t in [c.mann_whitney, c.brunner_munzel, c.kolmogorov_smirnov, c.anderson_darling] {
        assert!(t.p < 1e-6, "{c:?}");
    }
    assert_eq!(c.b_greater, 1.0);
    assert!(c.is_shift(0.01, 100.0) && !c.is_shift(0.01, 1e5));
}

/// Share of trials with p below 0.05, when samples of `a` and `b` are compared.
fn rate(
    a: (&Distribution, usize),
    b: (&Distribution, usize),
    seed: u64,
    test: impl Fn(&Sample, &Sample) -> Test,
) -> f64 {
    let mut random = seeded(seed);
    let rejected =
        (0..TRIALS).filter(|_| test(&draw(a.0, a.1, &mut random), &draw(b.0, b.1, &mut random)).p < 0.05).count();
    rejected as f64 / TRIALS as f64
}

const TRIALS: usize = 3000;
/// 4 standard errors of a rate of 0.05.
const REACH: f64 = 4.0 * 0.003979;

#[test]
fn equal_distributions_are_called_different_at_the_nominal_rate() {
    for (n, m) in [(15, 12), (60, 90), (500, 300)] {
        let at = |test: fn(&Sample, &Sample) -> Test| rate((&BASE, n), (&BASE, m), 52, test);
        let rates = [
            at(|a, b| mann_whitney(a, b).unwrap()),
            at(|a, b| brunner_munzel(a, b).unwrap()),
            at(kolmogorov_smirnov),
            at(|a, b| anderson_darling(a, b).unwrap()),
        ];
        for (i, rate) in rates.iter().enumerate() {
            // KS of small samples has few possible values and stays below the nominal rate.
            let low = if i == 2 && n < 50 { 0.015 } else { 0.05 - REACH - 0.008 };
            assert!((low..0.05 + REACH + 0.004).contains(rate), "{n} {m}: {rates:?}");
        }
    }
}

#[test]
fn unequal_spreads_alone_mislead_mann_whitney_but_not_brunner_munzel() {
    let wide = Distribution::Normal { mean: 0.0, sd: 10.0 };
    let narrow = Distribution::Normal { mean: 0.0, sd: 1.0 };
    let brunner = rate((&wide, 20), (&narrow, 80), 53, |a, b| brunner_munzel(a, b).unwrap());
    let mann = rate((&wide, 20), (&narrow, 80), 53, |a, b| mann_whitney(a, b).unwrap());
    assert!((brunner - 0.05).abs() < REACH + 0.015, "{brunner}");
    assert!(mann > 0.08, "{mann}");
}

#[test]
fn tests_of_the_whole_shape_see_a_spread_that_tests_of_location_do_not() {
    let (a, b) = (Distribution::Normal { mean: 0.0, sd: 1.0 }, Distribution::Normal { mean: 0.0, sd: 2.0 });
    let mut random = seeded(54);
    let (x, y) = (draw(&a, 500, &mut random), draw(&b, 500, &mut random));
    assert!(kolmogorov_smirnov(&x, &y).p < 1e-4 && anderson_darling(&x, &y).unwrap().p < 1e-4);
    assert!(brunner_munzel(&x, &y).unwrap().p > 0.01);
}

#[test]
fn the_shift_and_its_interval_find_the_planted_shift_as_often_as_they_say() {
    let shifted = Distribution::Lognormal { location: 104.0, mu: 3.0, sigma: 0.5 };
    let mut random = seeded(55);
    let trials = 1500;
    let mut covered = 0;
    for _ in 0..trials {
        let (a, b) = (draw(&BASE, 60, &mut random), draw(&shifted, 80, &mut random));
        let (shift, interval) = hodges_lehmann(&a, &b, 0.95).unwrap();
        assert!(interval.contains(shift));
        covered += usize::from(interval.contains(4.0));
    }
    let share = covered as f64 / trials as f64;
    assert!((share - 0.95).abs() < 4.0 * (0.95 * 0.05 / trials as f64).sqrt() + 0.003, "{share}");
}

#[test]
fn an_interval_of_few_values_says_how_often_it_covers() {
    // All of b - a: covered unless all of one side are above all of the other, 2 arrangements of 6.
    let (shift, interval) = hodges_lehmann(&sample(&[10.0, 12.0]), &sample(&[13.0, 17.0]), 0.95).unwrap();
    assert_eq!((shift, interval.low, interval.high), (4.0, 1.0, 7.0));
    assert!((interval.coverage - 2.0 / 3.0).abs() < 1e-12, "{interval:?}");
    let mut random = seeded(58);
    let trials = 3000;
    for (n, m) in [(2, 2), (3, 2), (4, 4), (8, 5), (30, 6)] {
        let (mut covered, mut said) = (0, 0.0);
        for _ in 0..trials {
            let (a, b) = (draw(&BASE, n, &mut random), draw(&BASE, m, &mut random));
            let (_, interval) = hodges_lehmann(&a, &b, 0.95).unwrap();
            covered += usize::from(interval.contains(0.0));
            said = interval.coverage;
        }
        let share = covered as f64 / trials as f64;
        assert!(
            (share - said).abs() < 4.0 * (said * (1.0 - said) / trials as f64).sqrt() + 0.004,
            "{n} {m}: {share} {said}"
        );
    }
}

#[test]
fn the_shift_of_a_hundred_thousand_values_needs_no_table_of_ten_thousand_million() {
    let shifted = Distribution::Lognormal { location: 101.0, mu: 3.0, sigma: 0.5 };
    let mut random = seeded(56);
    let (a, b) = (draw(&BASE, 100_000, &mut random), draw(&shifted, 100_000, &mut random));
    let (shift, interval) = hodges_lehmann(&a, &b, 0.99).unwrap();
    assert!(interval.contains(1.0) && (shift - 1.0).abs() < 0.2 && interval.width() < 0.4, "{shift} {interval:?}");
}

#[test]
fn holm_gives_the_textbooks_adjusted_values() {
    let got = holm(&[0.01, 0.04, 0.03, 0.005]);
    let expected = [0.03, 0.06, 0.06, 0.02];
    assert!(got.iter().zip(expected).all(|(g, e)| (g - e).abs() < 1e-12), "{got:?}");
    assert_eq!(holm(&[]), Vec::<f64>::new());
    assert_eq!(holm(&[0.9, f64::NAN]), vec![1.0, 1.0]);
}

#[test]
fn holm_keeps_false_alarms_among_many_cells_at_the_nominal_rate() {
    let mut random = seeded(57);
    let trials = 2000;
    let any = (0..trials)
        .filter(|_| {
            let p: Vec<f64> = (0..40).map(|_| weir_stats::open_unit(&mut random)).collect();
            holm(&p).iter().any(|p| *p < 0.05)
        })
        .count();
    // 1 - (1 - 0.05 / 40)^40 = 0.0488.
    assert!((any as f64 / trials as f64 - 0.0488).abs() < 4.0 * 0.0049, "{any}");
}

#[test]
fn equal_and_single_values_are_no_difference_and_no_panic() {
    let (equal, one) = (sample(&[5.0; 30]), sample(&[5.0]));
    let c = Comparison::of(&equal, &equal, 0.95).unwrap();
    for t in [c.mann_whitney, c.brunner_munzel, c.kolmogorov_smirnov] {
        assert_eq!(t.p, 1.0, "{c:?}");
    }
    assert!(c.anderson_darling.p > 0.5 && c.shift == 0.0 && c.b_greater == 0.5);
    assert_eq!(Comparison::of(&equal, &one, 0.95).unwrap_err(), Error::TooFew { have: 1, need: 2 });
    assert!(Comparison::of(&equal, &equal, 0.0).is_err());
}

proptest! {
    #[test]
    fn the_shift_is_the_median_of_all_differences(
        a in prop::collection::vec(-50i32..50, 2..30),
        b in prop::collection::vec(-50.0..50.0, 2..30),
    ) {
        let a: Vec<f64> = a.into_iter().map(f64::from).collect();
        let differences: Vec<f64> = b.iter().flat_map(|y| a.iter().map(move |x| y - x)).collect();
        let (shift, interval) = hodges_lehmann(&sample(&a), &sample(&b), 0.9).unwrap();
        let all = sample(&differences);
        prop_assert!((shift - all.median()).abs() < 1e-9);
        prop_assert!(differences.contains(&interval.low) && differences.contains(&interval.high));
    }

    #[test]
    fn swapping_the_samples_swaps_the_signs_and_keeps_the_probabilities(
        a in prop::collection::vec(0u8..20, 2..40),
        b in prop::collection::vec(0u8..25, 2..40),
    ) {
        let a = sample(&a.into_iter().map(f64::from).collect::<Vec<_>>());
        let b = sample(&b.into_iter().map(f64::from).collect::<Vec<_>>());
        let one = Comparison::of(&a, &b, 0.95).unwrap();
        let two = Comparison::of(&b, &a, 0.95).unwrap();
        prop_assert!((one.shift + two.shift).abs() < 1e-9);
        prop_assert!((one.b_greater + two.b_greater - 1.0).abs() < 1e-9);
        for (x, y) in [
            (one.mann_whitney, two.mann_whitney),
            (one.brunner_munzel, two.brunner_munzel),
            (one.kolmogorov_smirnov, two.kolmogorov_smirnov),
            (one.anderson_darling, two.anderson_darling),
        ] {
            prop_assert!((x.p - y.p).abs() < 1e-9 && (0.0..=1.0).contains(&x.p), "{x:?} {y:?}");
        }
    }

    #[test]
    fn any_two_samples_can_be_compared(
        a in prop::collection::vec(prop_oneof![-1e300..1e300, Just(f64::MAX), Just(f64::MIN), 0.0..1.0], 2..20),
        b in prop::collection::vec(prop_oneof![-1e300..1e300, Just(f64::MAX), Just(0.0)], 2..20),
    ) {
        let c = Comparison::of(&sample(&a), &sample(&b), 0.95).unwrap();
        prop_assert!(!c.shift.is_nan() && (0.0..=1.0).contains(&c.b_greater), "{c:?}");
    }
}
