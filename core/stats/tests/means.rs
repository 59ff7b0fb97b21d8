//! Differences of centres against the literature and their nominal rates.

use weir_stats::means::{Estimate, difference, mean_of, welch};
use weir_stats::{Distribution, Error, Interval, Random, Sample, quantile_interval, seeded};

fn draw(distribution: &Distribution, count: usize, random: &mut Random) -> Vec<f64> {
    (0..count).map(|_| distribution.sample(random)).collect()
}

#[test]
fn welch_gives_the_published_example() {
    // Example 3 of the article on Welch's test in Wikipedia, as R's t.test gives it: t = -2.2261,
    // df = 24.5, p = 0.0355.
    let a = [19.8, 20.4, 19.6, 17.8, 18.5, 18.9, 18.3, 18.9, 19.5, 22.0];
    let b = [
        28.2, 26.6, 20.1, 23.3, 25.2, 22.1, 17.7, 27.6, 20.6, 13.7, 23.2, 17.5, 20.6, 18.0, 23.9, 21.6, 24.3, 20.4,
        24.0, 13.2,
    ];
    let got = welch(&a, &b, (0.0, 0.0), 0.95).unwrap();
    assert!((got.estimate - 2.22).abs() < 0.01 && (got.p - 0.0355).abs() < 2e-3, "{got:?}");
}

#[test]
fn welch_rejects_and_covers_at_the_nominal_rate_whatever_the_variances() {
    let mut random = seeded(91);
    let (wide, narrow) = (Distribution::Normal { mean: 5.0, sd: 4.0 }, Distribution::Normal { mean: 5.0, sd: 1.0 });
    for (n, m) in [(3, 3), (5, 5), (3, 8)] {
        let trials = 4000;
        let (mut rejected, mut covered) = (0, 0);
        for _ in 0..trials {
            let found = welch(&draw(&wide, n, &mut random), &draw(&narrow, m, &mut random), (0.0, 0.0), 0.95).unwrap();
            rejected += usize::from(found.p < 0.05);
            covered += usize::from(found.interval.contains(0.0));
        }
        assert_eq!(rejected + covered, trials, "test and interval say the same");
        let share = f64::from(rejected as u32) / trials as f64;
        // Welch's degrees of freedom are an approximation: with three values in the wider group it
        // is up to half as much again.
        assert!((0.02..0.09).contains(&share), "{n} {m}: {share}");
    }
}

#[test]
fn values_that_happen_to_be_equal_are_not_known_without_error() {
    let found = welch(&[10.0, 10.0], &[11.0, 11.0], (0.25, 0.25), 0.95).unwrap();
    // t = 1 / sqrt(0.25), two degrees of freedom.
    assert!((found.p - 0.1835).abs() < 1e-3 && found.interval.contains(0.0), "{found:?}");
    assert_eq!(welch(&[10.0, 10.0], &[10.0, 10.0], (0.0, 0.0), 0.95).unwrap().p, 1.0);
    assert_eq!(welch(&[10.0], &[10.0, 10.0], (0.0, 0.0), 0.95).unwrap_err(), Error::TooFew { have: 1, need: 2 });
    assert!(welch(&[1.0, f64::NAN], &[1.0, 2.0], (0.0, 0.0), 0.95).is_err());
    assert!(welch(&[1.0, 2.0], &[1.0, 2.0], (-1.0, 0.0), 0.95).is_err());
}

fn median(values: Vec<f64>) -> Estimate {
    let sample = Sample::signed(values).unwrap();
    Estimate { value: sample.median(), interval: quantile_interval(&sample, 0.5, 0.95).unwrap() }
}

#[test]
fn a_difference_of_medians_covers_and_rejects_at_the_nominal_rate() {
    let mut random = seeded(92);
    let skewed = Distribution::Exponential { location: 100.0, scale: 20.0 };
    for (n, m) in [(30, 30), (300, 80)] {
        let trials = 3000;
        let (mut rejected, mut covered) = (0, 0);
        for _ in 0..trials {
            let (a, b) = (median(draw(&skewed, n, &mut random)), median(draw(&skewed, m, &mut random)));
            let found = difference(&a, &b, 0.0, 0.95).unwrap();
            assert!((found.estimate - (b.value - a.value)).abs() < 1e-9);
            rejected += usize::from(found.p < 0.05);
            covered += usize::from(found.interval.contains(0.0));
        }
        assert_eq!(rejected + covered, trials, "test and interval say the same");
        let share = f64::from(rejected as u32) / trials as f64;
        assert!((0.015..0.068).contains(&share), "{n} {m}: {share}");
    }
}

#[test]
fn the_error_of_a_mean_of_estimates_falls_with_the_root_of_their_number() {
    let one = Estimate { value: 10.0, interval: Interval { low: 8.0, high: 14.0, coverage: 0.95 } };
    let four = mean_of(&[one; 4], 0.95).unwrap();
    assert!((four.interval.low - 9.0).abs() < 1e-9 && (four.interval.high - 12.0).abs() < 1e-9, "{four:?}");
    assert!(mean_of(&[], 0.95).is_err());
    let sure = Estimate { interval: Interval { coverage: 1.0, ..one.interval }, ..one };
    let outside = Estimate { value: 1.0, ..one };
    assert!(mean_of(&[sure], 0.95).is_err() && mean_of(&[outside], 0.95).is_err());
    assert!(difference(&one, &sure, 0.0, 0.95).is_err() && difference(&one, &one, f64::NAN, 0.95).is_err());
}
