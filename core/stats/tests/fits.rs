//! Fits find the parameters that data were made with, and never panic whatever the data.

use proptest::prelude::*;
use weir_stats::choice::fit_all;
use weir_stats::fit::{Fit, fit, fit_at};
use weir_stats::goodness::{GoodnessOptions, PMethod};
use weir_stats::{Distribution, Error, Family, Random, Sample, seeded};

fn draw(distribution: &Distribution, count: usize, random: &mut Random) -> Sample {
    Sample::signed((0..count).map(|_| distribution.sample(random)).collect()).unwrap()
}

/// Standard errors from the observed information: the inverse of minus the second derivatives of
/// the log likelihood at its maximum, by finite differences.
fn standard_errors(fit: &Fit, sample: &Sample) -> Vec<f64> {
    let family = fit.distribution.family();
    let at = fit.distribution.parameters();
    let size = at.len();
    let spread = sample.quantile(0.75) - sample.quantile(0.25);
    let steps: Vec<f64> = family
        .parameter_names()
        .iter()
        .zip(&at)
        .map(|(name, value)| match *name {
            "location" => 1e-3 * (sample.min() - value),
            "mean" | "sd" => 1e-3 * spread,
            "mu" | "lambda" => 1e-3,
            _ => 1e-3 * value,
        })
        .collect();
    let value = |changes: &[(usize, f64)]| {
        let mut parameters = at.clone();
        changes.iter().for_each(|(i, c)| parameters[*i] += c * steps[*i]);
        Distribution::new(family, &parameters).unwrap().log_likelihood(sample.sorted())
    };
    let mut information = vec![vec![0.0; size]; size];
    for i in 0..size {
        for j in 0..size {
            let second = if i == j {
                value(&[(i, 1.0)]) - 2.0 * value(&[]) + value(&[(i, -1.0)])
            } else {
                let diagonal = value(&[(i, 1.0), (j, 1.0)]) + value(&[(i, -1.0), (j, -1.0)]);
                (diagonal - value(&[(i, 1.0), (j, -1.0)]) - value(&[(i, -1.0), (j, 1.0)])) / 4.0
            };
            information[i][j] = -second / (steps[i] * steps[j]);
        }
    }
    invert(information).iter().enumerate().map(|(i, row)| row[i].sqrt()).collect()
}

/// Gauss-Jordan with pivots.
fn invert(mut matrix: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let size = matrix.len();
    for (i, row) in matrix.iter_mut().enumerate() {
        row.extend((0..size).map(|j| f64::from(u8::from(i == j))));
    }
    for column in 0..size {
        let pivot =
            (column..size).max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs())).unwrap();
        matrix.swap(column, pivot);
        let lead = matrix[column][column];
        matrix[column].iter_mut().for_each(|v| *v /= lead);
        let base = matrix[column].clone();
        for (i, row) in matrix.iter_mut().enumerate().filter(|(i, _)| *i != column) {
            let factor = row[column];
            assert!(i < size && factor.is_finite());
            row.iter_mut().zip(&base).for_each(|(v, b)| *v -= factor * b);
        }
    }
    matrix.into_iter().map(|row| row[size..].to_vec()).collect()
}

/// Regular members: likelihood theory gives their errors.
fn regular_members() -> Vec<Distribution> {
    vec![
        Distribution::Normal { mean: 5000.0, sd: 40.0 },
        Distribution::Lognormal { location: 1000.0, mu: 4.0, sigma: 0.6 },
        Distribution::Gamma { location: 200.0, shape: 4.0, scale: 15.0 },
        Distribution::Weibull { location: 160_000.0, shape: 3.6, scale: 9000.0 },
        Distribution::Pearson5 { location: 500.0, shape: 3.0, scale: 90.0 },
        Distribution::GeneralisedGamma { location: 300.0, mu: 3.0, sigma: 0.5, lambda: 0.5 },
        Distribution::GeneralisedGamma { location: 300.0, mu: 3.0, sigma: 0.5, lambda: -0.6 },
    ]
}

#[test]
fn parameters_are_recovered_within_their_standard_errors() {
    let mut random = seeded(21);
    for truth in regular_members() {
        for count in [2000, 20_000] {
            let sample = draw(&truth, count, &mut random);
            let fit = fit(truth.family(), &sample).unwrap();
            assert!(!fit.at_bound, "{fit:?}");
            let errors = standard_errors(&fit, &sample);
            for (i, (got, expected)) in fit.distribution.parameters().iter().zip(truth.parameters()).enumerate() {
                // 4 standard errors of seeded data; NaN errors (no maximum) fail as well.
                let off = (got - expected).abs() / errors[i];
                assert!(off < 4.0, "{truth:?} {count}: {:?} off by {off} of {errors:?}", fit.distribution);
            }
        }
    }
}

#[test]
fn the_likelihood_found_is_above_the_truths_by_no_more_than_theory_allows() {
    let mut random = seeded(22);
    let mut members = regular_members();
    members.extend([
        Distribution::Erlang { location: 50.0, shape: 3, scale: 8.0 },
        Distribution::Exponential { location: 90.0, scale: 10.0 },
        Distribution::Weibull { location: 100.0, shape: 1.5, scale: 20.0 },
        Distribution::Gamma { location: 100.0, shape: 1.5, scale: 20.0 },
    ]);
    for truth in members {
        for count in [50, 500, 10_000] {
            let sample = draw(&truth, count, &mut random);
            let fit = fit(truth.family(), &sample).unwrap();
            let gain = 2.0 * (fit.log_likelihood - truth.log_likelihood(sample.sorted()));
            // Twice the gain is chi-square with as many degrees of freedom as parameters (Wilks):
            // at 4 degrees beyond 23.5 once in 10,000. Below 0 would be a maximum missed; grouping
            // and the search's steps may cost 0.01.
            assert!((-0.01..23.5).contains(&gain), "{truth:?} {count}: {fit:?} gains {gain}");
        }
    }
}

#[test]
fn a_location_at_which_the_density_is_greatest_is_found_to_the_spacing_of_the_values() {
    let mut random = seeded(23);
    let count = 5000;
    for (truth, rate) in [
        (Distribution::Exponential { location: 700.0, scale: 30.0 }, 30.0 / count as f64),
        // The least of n values is about scale n^(-1/shape) above the location.
        (Distribution::Weibull { location: 700.0, shape: 0.8, scale: 30.0 }, 30.0 * (count as f64).powf(-1.25)),
        (Distribution::Gamma { location: 700.0, shape: 0.9, scale: 30.0 }, 30.0 * (count as f64).powf(-1.0 / 0.9)),
    ] {
        let sample = draw(&truth, count, &mut random);
        let fit = fit(truth.family(), &sample).unwrap();
        let off = (fit.distribution.location() - 700.0).abs();
        // Exceeding 10 of these scales has probability e^-10; half the mean spacing is the bound of
        // the search.
        assert!(off < 10.0 * rate + 30.0 / count as f64, "{truth:?}: {fit:?}");
        if let Some((shape, expected)) = fit.distribution.parameters().get(1).zip(truth.parameters().get(1)) {
            // Relative error of a shape with the location known: about 0.8 / sqrt(n), 1.2 for
            // gamma.
            assert!((shape / expected - 1.0).abs() < 5.0 * 1.2 / (count as f64).sqrt(), "{truth:?}: {fit:?}");
        }
    }
}

#[test]
fn an_erlang_keeps_a_whole_shape() {
    let truth = Distribution::Erlang { location: 50.0, shape: 3, scale: 8.0 };
    let fit = fit(Family::Erlang, &draw(&truth, 20_000, &mut seeded(24))).unwrap();
    let Distribution::Erlang { shape, scale, location } = fit.distribution else { panic!("{fit:?}") };
    // The error of a whole number vanishes; those of the others follow with it known: scale /
    // sqrt(3 n) and less than 0.2.
    assert_eq!(shape, 3);
    assert!((scale - 8.0).abs() < 5.0 * 8.0 / (3.0 * 20_000.0_f64).sqrt() + 0.1, "{fit:?}");
    assert!((location - 50.0).abs() < 0.5, "{fit:?}");
}

#[test]
fn a_known_location_is_kept() {
    let truth = Distribution::Gamma { location: 200.0, shape: 2.0, scale: 15.0 };
    let sample = draw(&truth, 5000, &mut seeded(25));
    for family in Family::ALL.into_iter().filter(|f| *f != Family::Normal) {
        let fixed = fit_at(family, &sample, 200.0).unwrap();
        assert!((fixed.distribution.location() - 200.0).abs() < 1e-9);
        if family != Family::Exponential {
            let free = fit(family, &sample).unwrap();
            assert!(free.log_likelihood >= fixed.log_likelihood - 0.01, "{family}: {free:?} {fixed:?}");
        }
    }
    assert!(matches!(fit_at(Family::Gamma, &sample, 1e6), Err(Error::Argument { .. })));
    assert!(fit_at(Family::Gamma, &sample, f64::NAN).is_err());
}

#[test]
fn shifting_and_stretching_the_data_shifts_and_stretches_the_fit() {
    let sample = draw(&Distribution::Lognormal { location: 10.0, mu: 1.0, sigma: 0.5 }, 1000, &mut seeded(26));
    let factor = 1e6;
    let moved = Sample::signed(sample.sorted().iter().map(|v| v * factor + 1e9).collect()).unwrap();
    for family in Family::ALL {
        let (one, two) = (fit(family, &sample).unwrap(), fit(family, &moved).unwrap());
        for p in [0.01, 0.5, 0.99] {
            let expected = one.distribution.quantile(p) * factor + 1e9;
            let got = two.distribution.quantile(p);
            assert!((got - expected).abs() < 2e-3 * factor, "{family} {p}: {got} against {expected}");
        }
        let shift = two.log_likelihood - (one.log_likelihood - 1000.0 * factor.ln());
        assert!(shift.abs() < 0.01, "{family}: {shift}");
    }
}

#[test]
fn durations_get_no_location_below_zero() {
    // Nearly symmetric data with room to minus infinity: the location would go there.
    let values: Vec<f64> =
        draw(&Distribution::Normal { mean: 100.0, sd: 10.0 }, 2000, &mut seeded(27)).sorted().to_vec();
    let durations = Sample::durations(values.clone()).unwrap();
    for family in [Family::Gamma, Family::Lognormal, Family::Weibull, Family::Pearson5, Family::GeneralisedGamma] {
        assert!(fit(family, &durations).unwrap().distribution.location() >= 0.0, "{family}");
    }
    let far = fit(Family::Lognormal, &Sample::signed(values).unwrap()).unwrap();
    assert!(far.distribution.location() < 0.0, "{far:?}");
}

#[test]
fn rounded_values_with_many_ties_are_fitted() {
    // A clock of 10 ns over a distribution 50 ns wide: 20 different values.
    let truth = Distribution::Gamma { location: 1000.0, shape: 4.0, scale: 12.0 };
    let mut random = seeded(28);
    let rounded: Vec<f64> = (0..20_000).map(|_| (truth.sample(&mut random) / 10.0).round() * 10.0).collect();
    let sample = Sample::durations(rounded).unwrap();
    // The exponential is too far from a gamma of shape 4 for this.
    for family in Family::ALL.into_iter().filter(|f| *f != Family::Exponential) {
        let fit = fit(family, &sample).unwrap();
        let median = fit.distribution.quantile(0.5);
        assert!((median - truth.quantile(0.5)).abs() < 8.0, "{family}: {fit:?}");
    }
}

#[test]
fn the_family_that_made_the_data_is_chosen() {
    let options = GoodnessOptions::default();
    let families =
        [Family::Normal, Family::Lognormal, Family::Gamma, Family::Weibull, Family::Pearson5, Family::Exponential];
    let members = [
        Distribution::Normal { mean: 5000.0, sd: 40.0 },
        Distribution::Lognormal { location: 1000.0, mu: 4.0, sigma: 0.8 },
        Distribution::Gamma { location: 200.0, shape: 2.0, scale: 15.0 },
        Distribution::Weibull { location: 160.0, shape: 1.8, scale: 90.0 },
        Distribution::Pearson5 { location: 500.0, shape: 2.5, scale: 90.0 },
        Distribution::Exponential { location: 500.0, scale: 10.0 },
    ];
    let mut random = seeded(29);
    for truth in members {
        let report = fit_all(&draw(&truth, 20_000, &mut random), &families, &options, &mut random).unwrap();
        let best = report.best().unwrap();
        assert_eq!(best.fit.distribution.family(), truth.family(), "{}", report.reason);
        assert!(report.reason.starts_with(truth.family().name()), "{}", report.reason);
        assert_eq!((best.subset.count, best.fit.count), (500, 20_000));
    }
}

#[test]
fn with_few_values_the_choice_rests_on_the_bootstrap() {
    let mut random = seeded(35);
    let skewed = draw(&Distribution::Gamma { location: 1000.0, shape: 14.0, scale: 10.0 }, 500, &mut random);
    let options = GoodnessOptions::default();
    // The normal has the least BIC, having a parameter less, if the gamma's three are not worth it;
    // either way a family that only an upper bound lets pass is not chosen.
    let alone = fit_all(&skewed, &[Family::Normal], &options, &mut random).unwrap();
    assert!(alone.reason.contains("every family is rejected"), "{}", alone.reason);
    let both = fit_all(&skewed, &[Family::Normal, Family::Gamma], &options, &mut random).unwrap();
    let best = both.best().unwrap();
    assert_eq!(best.fit.distribution.family(), Family::Gamma, "{}", both.reason);
    assert!(matches!(best.subset.anderson_darling.method, PMethod::Bootstrap(_)), "{best:?}");
}

#[test]
fn with_twenty_times_the_subset_the_table_is_used() {
    let mut random = seeded(36);
    let options = GoodnessOptions::default();
    let method = |count, random: &mut Random| {
        let sample = draw(&Distribution::Weibull { location: 100.0, shape: 3.0, scale: 9.0 }, count, random);
        let report = fit_all(&sample, &[Family::Weibull], &options, random).unwrap();
        report.best().unwrap().subset.kolmogorov_smirnov.method
    };
    assert_eq!(method(10_000, &mut random), PMethod::Table);
    assert!(matches!(method(9_999, &mut random), PMethod::Bootstrap(_)));
}

#[test]
fn data_of_no_family_are_said_to_be_of_none() {
    let mut random = seeded(30);
    let two_modes = |random: &mut Random| {
        let far = if weir_stats::open_unit(random) < 0.4 { 500.0 } else { 0.0 };
        far + Distribution::Normal { mean: 100.0, sd: 3.0 }.sample(random)
    };
    let sample = Sample::durations((0..3000).map(|_| two_modes(&mut random)).collect()).unwrap();
    let report = fit_all(&sample, &Family::ALL, &GoodnessOptions::default(), &mut random).unwrap();
    assert!(report.chosen == Some(0) && report.reason.contains("every family is rejected"), "{}", report.reason);
}

#[test]
fn a_report_repeats_bit_by_bit() {
    let sample = draw(&regular_members()[1], 600, &mut seeded(31));
    let options = GoodnessOptions { subset: 60, significance: 0.2, replicates: 20 };
    let run = || fit_all(&sample, &Family::ALL, &options, &mut seeded(32)).unwrap();
    assert_eq!(run(), run());
}

#[test]
fn too_few_or_equal_values_are_an_error_for_each_family_and_no_choice_in_a_report() {
    let three = Sample::durations(vec![1.0, 2.0, 3.0]).unwrap();
    assert_eq!(fit(Family::Gamma, &three).unwrap_err(), Error::TooFew { have: 3, need: 4 });
    let equal = Sample::durations(vec![5.0; 100]).unwrap();
    for family in Family::ALL {
        assert_eq!(fit(family, &equal).unwrap_err(), Error::NoSpread { count: 100, value: 5.0 });
    }
    let report = fit_all(&equal, &Family::ALL, &GoodnessOptions::default(), &mut seeded(33)).unwrap();
    assert!(report.best().is_none() && report.failed.len() == 8 && report.reason == "no family could be fitted");
    let bad = GoodnessOptions { significance: 2.0, ..GoodnessOptions::default() };
    assert!(fit_all(&three, &Family::ALL, &bad, &mut seeded(34)).is_err());
}

/// Data as bad as they come: few, tied, tiny, huge, far from 0, heavy-tailed, with zeros.
fn awkward() -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![
        Just(0.0),
        Just(1.0),
        Just(1e-300),
        Just(1e300),
        Just(f64::MAX),
        0.0..1.0,
        1e6..1e6 + 1e-3,
        (0i32..60).prop_map(|e| 10f64.powi(e)),
        (0u32..4).prop_map(f64::from),
    ];
    let ordinary = (0.0..1e6f64, 0.001..1e4f64, prop::collection::vec(0.0..1.0f64, 4..60))
        .prop_map(|(shift, width, units)| units.into_iter().map(|u| shift + width * u).collect());
    prop_oneof![prop::collection::vec(value, 1..40), ordinary]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_fit_of_anything_is_a_valid_distribution_or_an_error(values in awkward(), family in 0usize..8) {
        let family = Family::ALL[family];
        let sample = Sample::durations(values).unwrap();
        if let Ok(fit) = fit(family, &sample) {
            prop_assert!(fit.distribution.check().is_ok(), "{fit:?}");
            prop_assert!(fit.log_likelihood.is_finite() && fit.bic.is_finite(), "{fit:?}");
            prop_assert!(fit.distribution.location() <= sample.min(), "{fit:?}");
            prop_assert!(sample.sorted().iter().all(|v| !fit.distribution.cdf(*v).is_nan()));
            prop_assert!(!fit.distribution.quantile(0.5).is_nan());
        }
    }

    #[test]
    fn a_report_of_anything_has_every_family_in_one_of_its_lists(values in awkward(), seed: u64) {
        let sample = Sample::durations(values).unwrap();
        let options = GoodnessOptions { subset: 20, significance: 0.6, replicates: 5 };
        let families = [Family::Exponential, Family::Lognormal, Family::Pearson5];
        let report = fit_all(&sample, &families, &options, &mut seeded(seed)).unwrap();
        prop_assert_eq!(report.candidates.len() + report.failed.len(), 3);
        for candidate in &report.candidates {
            for t in [candidate.subset.chi_square, candidate.subset.kolmogorov_smirnov, candidate.subset.anderson_darling] {
                prop_assert!((0.0..=1.0).contains(&t.p), "{t:?}");
            }
        }
    }
}
