//! Densities, distribution functions, quantiles and random values of one family agree with each
//! other and the literature.

use proptest::prelude::*;
use weir_stats::{Distribution, Family, seeded};

/// One or two members of every family, heavy, light and bell-shaped.
fn members() -> Vec<Distribution> {
    vec![
        Distribution::Normal { mean: 50.0, sd: 4.0 },
        Distribution::Lognormal { location: 100.0, mu: 2.0, sigma: 0.7 },
        Distribution::Gamma { location: 10.0, shape: 0.6, scale: 3.0 },
        Distribution::Gamma { location: -5.0, shape: 40.0, scale: 0.1 },
        Distribution::Weibull { location: 80.0, shape: 3.6, scale: 12.0 },
        Distribution::Weibull { location: 0.0, shape: 0.8, scale: 1e6 },
        Distribution::Pearson5 { location: 30.0, shape: 2.5, scale: 8.0 },
        Distribution::Exponential { location: 1000.0, scale: 25.0 },
        Distribution::Erlang { location: 2.0, shape: 3, scale: 2.0 },
        Distribution::GeneralisedGamma { location: 5.0, mu: 1.0, sigma: 0.5, lambda: 0.6 },
        Distribution::GeneralisedGamma { location: 5.0, mu: 1.0, sigma: 0.5, lambda: -0.8 },
        Distribution::GeneralisedGamma { location: 5.0, mu: 1.0, sigma: 0.5, lambda: 0.01 },
        Distribution::GeneralisedGamma { location: 5.0, mu: 1.0, sigma: 0.5, lambda: 0.0 },
    ]
}

#[test]
fn the_quantile_undoes_the_distribution_function_from_one_tail_to_the_other() {
    for d in members() {
        for p in [1e-9, 1e-4, 0.01, 0.3, 0.5, 0.8, 0.99, 1.0 - 1e-6] {
            let (cdf, survival) = d.tails(d.quantile(p));
            // A shift by a large location costs digits near it: 1e-6 of p there.
            assert!((cdf / p - 1.0).abs() < 1e-6 || (cdf - p).abs() < 1e-9, "{d:?} {p}: {cdf}");
            assert!((survival / (1.0 - p) - 1.0).abs() < 1e-6, "{d:?} {p}: {survival}");
        }
    }
}

#[test]
fn densities_integrate_to_their_distribution_functions() {
    for d in members() {
        for (low, high) in [(0.05, 0.3), (0.3, 0.9), (0.9, 0.999)] {
            let (a, b) = (d.quantile(low), d.quantile(high));
            let steps = 2000;
            let width = (b - a) / f64::from(steps);
            // Simpson's rule.
            let integral: f64 = (0..steps)
                .map(|i| {
                    let x = a + f64::from(i) * width;
                    (d.pdf(x) + 4.0 * d.pdf(x + width / 2.0) + d.pdf(x + width)) * width / 6.0
                })
                .sum();
            assert!((integral - (high - low)).abs() < 1e-7, "{d:?} {low}..{high}: {integral}");
        }
    }
}

#[test]
fn random_values_follow_the_distribution_function() {
    let mut random = seeded(11);
    for d in members() {
        let sample = weir_stats::Sample::signed((0..20_000).map(|_| d.sample(&mut random)).collect()).unwrap();
        let tests = weir_stats::goodness::test_given(&d, &sample);
        // 13 members, 3 tests, seeded: a true fault drives p to 0.
        for tested in [tests.chi_square, tests.kolmogorov_smirnov, tests.anderson_darling] {
            assert!(tested.p > 1e-3, "{d:?}: {tests:?}");
        }
    }
}

#[test]
fn means_are_those_of_the_quantile_function() {
    for d in members() {
        let mean = d.mean().unwrap();
        let steps = 100_000;
        let sum: f64 = (0..steps).map(|i| d.quantile((f64::from(i) + 0.5) / f64::from(steps))).sum();
        let integral = sum / f64::from(steps);
        let spread = d.quantile(0.75) - d.quantile(0.25);
        // The midpoint rule misses most of what lies beyond the last step; heaviest for Pearson 5
        // of shape 2.5.
        assert!((integral - mean).abs() < 0.005 * spread, "{d:?}: {integral} against {mean}");
    }
    assert_eq!(Distribution::Pearson5 { location: 0.0, shape: 0.9, scale: 1.0 }.mean(), None);
    let heavy = Distribution::GeneralisedGamma { location: 0.0, mu: 0.0, sigma: 2.0, lambda: -1.0 };
    assert_eq!(heavy.mean(), None);
}

#[test]
fn prentices_family_contains_weibull_gamma_lognormal_exponential_and_pearson5() {
    let (sigma, mu) = (0.4_f64, 1.3_f64);
    let member = |lambda: f64, sigma: f64| Distribution::GeneralisedGamma { location: 7.0, mu, sigma, lambda };
    let k = 1.0 / (sigma * sigma);
    let pairs = [
        (member(1.0, sigma), Distribution::Weibull { location: 7.0, shape: 1.0 / sigma, scale: mu.exp() }),
        (member(1.0, 1.0), Distribution::Exponential { location: 7.0, scale: mu.exp() }),
        (member(sigma, sigma), Distribution::Gamma { location: 7.0, shape: k, scale: mu.exp() / k }),
        (member(-sigma, sigma), Distribution::Pearson5 { location: 7.0, shape: k, scale: mu.exp() * k }),
        (member(0.0, sigma), Distribution::Lognormal { location: 7.0, mu, sigma }),
    ];
    for (general, special) in pairs {
        for p in [0.001, 0.2, 0.7, 0.9999] {
            let x = special.quantile(p);
            assert!((general.ln_pdf(x) - special.ln_pdf(x)).abs() < 1e-9, "{special:?} at {p}");
            assert!((general.cdf(x) - p).abs() < 1e-9, "{special:?} at {p}");
        }
    }
    // Near 0 the general form tends to the lognormal without a jump.
    for lambda in [1.1e-4, -1.1e-4, 2e-3] {
        let x = Distribution::Lognormal { location: 7.0, mu, sigma }.quantile(0.9);
        assert!((member(lambda, sigma).pdf(x) / member(0.0, sigma).pdf(x) - 1.0).abs() < lambda.abs() + 1e-6);
    }
}

#[test]
fn values_of_the_literature_come_out() {
    let near = |got: f64, expected: f64| assert!((got / expected - 1.0).abs() < 1e-9, "{got} against {expected}");
    // Chi-square tables: 5 % and 95 % points for 10 degrees of freedom, as gamma of shape 5 and
    // scale 2.
    let chi_square = Distribution::Gamma { location: 0.0, shape: 5.0, scale: 2.0 };
    near(chi_square.quantile(0.95), 18.307038053275146);
    near(chi_square.quantile(0.05), 3.940299136117306);
    near(Distribution::Normal { mean: 0.0, sd: 1.0 }.quantile(0.975), 1.959963984540054);
    // Weibull with shape 2: median = scale sqrt(ln 2).
    near(Distribution::Weibull { location: 0.0, shape: 2.0, scale: 3.0 }.quantile(0.5), 3.0 * 2.0_f64.ln().sqrt());
    // Pearson 5 of shape 1: F = exp(-scale / t).
    near(Distribution::Pearson5 { location: 0.0, shape: 1.0, scale: 2.0 }.cdf(4.0), (-0.5_f64).exp());
}

#[test]
fn nothing_lies_below_the_location() {
    for d in members().into_iter().filter(|d| d.family() != Family::Normal) {
        let x = d.location() - 1.0;
        assert_eq!((d.pdf(x), d.cdf(x), d.survival(x), d.quantile(0.0)), (0.0, 0.0, 1.0, d.location()));
        assert_eq!(d.quantile(1.0), f64::INFINITY);
    }
}

#[test]
fn a_distribution_is_made_from_its_name_and_parameters_and_refuses_bad_ones() {
    for d in members() {
        let family = Family::from_name(d.family().name()).unwrap();
        assert_eq!(Distribution::new(family, &d.parameters()).unwrap(), d);
        assert!(Distribution::new(family, &[]).is_err());
        for place in 0..d.parameters().len() {
            for bad in [f64::NAN, f64::INFINITY] {
                let mut parameters = d.parameters();
                parameters[place] = bad;
                assert!(Distribution::new(family, &parameters).is_err(), "{d:?} {place} {bad}");
            }
        }
    }
    assert!(Distribution::new(Family::Gamma, &[0.0, 0.0, 1.0]).is_err());
    assert!(Distribution::new(Family::Erlang, &[0.0, 1.5, 1.0]).is_err());
    assert_eq!(Family::from_name("cauchy"), None);
}

#[test]
fn densities_vanish_far_out() {
    for family in Family::ALL {
        for shape in [0.5, 1.0, 1e5] {
            for scale in [1e-9, 1.0, 1e9] {
                let parameters = [0.0, shape, scale, -1.0];
                let Ok(d) = Distribution::new(family, &parameters[..family.parameter_names().len()]) else { continue };
                for x in [1e305, f64::MAX, f64::INFINITY] {
                    assert!(d.pdf(x) < 1e-50, "{d:?} at {x}: {}", d.pdf(x));
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn no_argument_makes_a_function_panic_or_leave_its_range(
        family in 0usize..8,
        parameters in prop::collection::vec(prop_oneof![-1e3..1e3, 1e-9..1e-3, 1e5..1e9, Just(1.0)], 4),
        x: f64,
        p: f64,
        seed: u64,
    ) {
        let family = Family::ALL[family];
        let Ok(d) = Distribution::new(family, &parameters[..family.parameter_names().len()]) else { return Ok(()) };
        let (cdf, survival) = d.tails(x);
        prop_assert!((0.0..=1.0).contains(&cdf) || x.is_nan(), "{d:?} at {x}: {cdf}");
        prop_assert!((0.0..=1.0).contains(&survival) || x.is_nan());
        prop_assert!(!d.quantile(p).is_nan() , "{d:?} {p}");
        prop_assert!(x.is_nan() || d.pdf(x) >= 0.0, "{d:?} at {x}: {}", d.pdf(x));
        let drawn = d.sample(&mut seeded(seed));
        prop_assert!(!drawn.is_nan() && drawn >= d.location(), "{d:?}: {drawn}");
        let _ = d.mean();
    }

    #[test]
    fn distribution_functions_rise(family in 0usize..13, a in -10.0..1e4, b in -10.0..1e4) {
        let d = members()[family];
        let (low, high) = if a < b { (a, b) } else { (b, a) };
        prop_assert!(d.cdf(low) <= d.cdf(high) + 1e-12);
        prop_assert!(d.survival(low) + 1e-12 >= d.survival(high));
    }
}

#[test]
fn what_a_file_records_is_the_distribution_of_its_family() {
    let parameters = |list: &[(&str, f64)]| list.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let all = parameters(&[
        ("mean_ns", 50.0),
        ("stddev_ns", 10.0),
        ("mu", 3.0),
        ("sigma", 0.5),
        ("lambda", 0.7),
        ("shape", 3.0),
        ("scale_ns", 20.0),
    ]);
    for (family, known) in [
        ("normal", Distribution::Normal { mean: 150.0, sd: 10.0 }),
        ("lognormal", Distribution::Lognormal { location: 100.0, mu: 3.0, sigma: 0.5 }),
        ("gamma", Distribution::Gamma { location: 100.0, shape: 3.0, scale: 20.0 }),
        ("weibull", Distribution::Weibull { location: 100.0, shape: 3.0, scale: 20.0 }),
        ("pearson5", Distribution::Pearson5 { location: 100.0, shape: 3.0, scale: 20.0 }),
        ("exponential", Distribution::Exponential { location: 100.0, scale: 20.0 }),
        ("erlang", Distribution::Erlang { location: 100.0, shape: 3, scale: 20.0 }),
        ("generalised-gamma", Distribution::GeneralisedGamma { location: 100.0, mu: 3.0, sigma: 0.5, lambda: 0.7 }),
    ] {
        assert_eq!(Distribution::recorded(family, 100.0, &all), Some(known), "{family}");
    }
    assert_eq!(Distribution::recorded("of the future", 100.0, &all), None);
    assert_eq!(Distribution::recorded("gamma", 100.0, &parameters(&[("shape", 3.0)])), None);
    for wrong in [-3.0, 0.0, f64::NAN] {
        assert_eq!(Distribution::recorded("gamma", 100.0, &parameters(&[("shape", wrong), ("scale_ns", 1.0)])), None);
    }
}
