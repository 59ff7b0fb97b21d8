//! Tests of fit reject the truth as often as they say, and what is wrong far more often.

use weir_stats::fit::fit;
use weir_stats::goodness::{Goodness, GoodnessOptions, PMethod, random_subset, test_family, test_fitted, test_given};
use weir_stats::{Distribution, Family, Random, Sample, seeded};

fn draw(distribution: &Distribution, count: usize, random: &mut Random) -> Sample {
    Sample::signed((0..count).map(|_| distribution.sample(random)).collect()).unwrap()
}

const WEIBULL: Distribution = Distribution::Weibull { location: 160.0, shape: 3.6, scale: 60.0 };

/// Shares of trials in which chi-square, KS and AD gave a p-value below `significance`.
fn rejections(trials: usize, significance: f64, mut run: impl FnMut() -> Goodness) -> [f64; 3] {
    let mut rejected = [0usize; 3];
    for _ in 0..trials {
        let g = run();
        for (i, t) in [g.chi_square, g.kolmogorov_smirnov, g.anderson_darling].iter().enumerate() {
            rejected[i] += usize::from(t.p < significance);
        }
    }
    rejected.map(|r| r as f64 / trials as f64)
}

/// Within 4 standard errors of `nominal`, and as much again of `slack` for approximate tables.
fn near(shares: [f64; 3], nominal: f64, trials: usize, slack: f64) -> bool {
    let reach = 4.0 * (nominal * (1.0 - nominal) / trials as f64).sqrt() + slack;
    shares.iter().all(|s| (s - nominal).abs() < reach)
}

#[test]
fn a_distribution_given_beforehand_is_rejected_at_the_nominal_rate_when_true() {
    let mut random = seeded(41);
    for (count, significance, trials) in [(20, 0.05, 4000), (500, 0.05, 3000), (500, 0.01, 3000), (500, 0.5, 3000)] {
        let shares = rejections(trials, significance, || test_given(&WEIBULL, &draw(&WEIBULL, count, &mut random)));
        // Chi-square with few values per bin is coarse, hence the slack.
        assert!(near(shares, significance, trials, 0.1 * significance), "{count} {significance}: {shares:?}");
    }
}

#[test]
fn a_fit_of_all_tested_on_a_twentieth_is_rejected_at_the_nominal_rate() {
    let mut random = seeded(42);
    let trials = 400;
    let shares = rejections(trials, 0.05, || {
        let sample = draw(&WEIBULL, 4000, &mut random);
        let fitted = fit(Family::Weibull, &sample).unwrap().distribution;
        test_given(&fitted, &random_subset(&sample, 200, &mut random))
    });
    assert!(near(shares, 0.05, trials, 0.01), "{shares:?}");
}

#[test]
fn the_bootstrap_rejects_a_true_family_at_the_nominal_rate() {
    let mut random = seeded(43);
    let trials = 150;
    let options = GoodnessOptions { subset: 60, significance: 0.1, replicates: 59 };
    for truth in [WEIBULL, Distribution::Lognormal { location: 100.0, mu: 3.0, sigma: 0.6 }] {
        let shares = rejections(trials, 0.1, || {
            test_family(truth.family(), &draw(&truth, 60, &mut random), &options, &mut random).unwrap()
        });
        assert!(near(shares, 0.1, trials, 0.02), "{truth:?} {shares:?}");
    }
}

#[test]
fn the_table_is_an_upper_bound_for_a_fit_to_the_same_values() {
    let mut random = seeded(44);
    let shares = rejections(300, 0.05, || {
        let sample = draw(&WEIBULL, 300, &mut random);
        let tested = test_fitted(&fit(Family::Weibull, &sample).unwrap().distribution, &sample);
        assert_eq!(tested.anderson_darling.method, PMethod::TableUpperBound);
        tested
    });
    assert!(shares.iter().all(|s| *s <= 0.05), "{shares:?}");
    assert!(shares[1] < 0.01 && shares[2] < 0.01, "fitting changes nothing? {shares:?}");
}

#[test]
fn a_wrong_family_is_rejected() {
    let mut random = seeded(45);
    let options = GoodnessOptions::default();
    let heavy = draw(&Distribution::Pearson5 { location: 500.0, shape: 2.0, scale: 90.0 }, 500, &mut random);
    for wrong in [Family::Normal, Family::Exponential, Family::Weibull] {
        let tested = test_family(wrong, &heavy, &options, &mut random).unwrap();
        assert!(!tested.passes(0.01) && tested.anderson_darling.p < 0.01, "{wrong}: {tested:?}");
    }
    let right = test_family(Family::Pearson5, &heavy, &options, &mut random).unwrap();
    assert!(right.passes(0.01) && matches!(right.anderson_darling.method, PMethod::Bootstrap(_)), "{right:?}");
}

#[test]
fn a_wrong_family_that_the_table_lets_pass_is_rejected_by_the_bootstrap() {
    let mut random = seeded(47);
    let options = GoodnessOptions::default();
    let skewed = draw(&Distribution::Gamma { location: 1000.0, shape: 14.0, scale: 10.0 }, 500, &mut random);
    let by_table = test_fitted(&fit(Family::Normal, &skewed).unwrap().distribution, &skewed);
    assert!(by_table.passes(options.significance), "an upper bound that rejects shows nothing here: {by_table:?}");
    let tested = test_family(Family::Normal, &skewed, &options, &mut random).unwrap();
    assert!(!tested.passes(options.significance), "{tested:?}");
    let rejecting = [tested.chi_square, tested.kolmogorov_smirnov, tested.anderson_darling];
    let rejecting = rejecting.iter().filter(|t| t.p < options.significance / 3.0);
    for t in rejecting {
        assert!(matches!(t.method, PMethod::Bootstrap(399)), "{tested:?}");
    }
    let right = test_family(Family::Gamma, &skewed, &options, &mut random).unwrap();
    assert!(right.passes(options.significance), "{right:?}");
}

#[test]
fn replicates_that_could_never_reject_are_refused() {
    let sample = draw(&WEIBULL, 60, &mut seeded(48));
    for (significance, enough) in [(0.01, 300), (0.05, 60), (0.1, 30)] {
        let test = |replicates| {
            let options = GoodnessOptions { significance, replicates, ..GoodnessOptions::default() };
            test_family(Family::Exponential, &sample, &options, &mut seeded(49))
        };
        assert!(test(enough).is_ok());
        for too_few in [0, 49.min(enough - 1), enough - 1] {
            assert!(test(too_few).unwrap_err().to_string().contains("3 / significance"), "{significance} {too_few}");
        }
    }
}

#[test]
fn a_subset_is_of_the_sample_without_repetition_and_the_least_is_not_always_in_it() {
    let sample = Sample::durations((0..1000).map(f64::from).collect()).unwrap();
    let mut random = seeded(46);
    let mut with_least = 0;
    for _ in 0..2000 {
        let subset = random_subset(&sample, 100, &mut random);
        assert_eq!(subset.count(), 100);
        assert!(subset.sorted().windows(2).all(|w| w[0] < w[1]));
        with_least += usize::from(subset.min() == 0.0);
    }
    // 0.1 of them, standard error 0.0067.
    assert!((with_least as f64 / 2000.0 - 0.1).abs() < 0.027, "{with_least}");
    assert_eq!(random_subset(&sample, 5000, &mut random), sample);
}

#[test]
fn tests_of_one_value_or_of_values_that_the_distribution_excludes_give_numbers() {
    let one = test_given(&WEIBULL, &Sample::durations(vec![200.0]).unwrap());
    assert!((0.0..=1.0).contains(&one.kolmogorov_smirnov.p));
    let outside = test_given(&WEIBULL, &Sample::durations(vec![1.0; 50]).unwrap());
    assert!(!outside.passes(0.01) && outside.anderson_darling.statistic.is_finite(), "{outside:?}");
}
