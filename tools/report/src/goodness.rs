//! How well fitted families fit, in words; and how many humps a distribution has, which no family
//! of ours can follow.

use weir_distribution::{FitRecord, TestRecord};

use crate::digest::Point;
use crate::scale::{Kind, Scale};
use crate::units;

/// A test's p-value below which it rejects.
pub const SIGNIFICANCE: f64 = 0.01;
/// Bins in which humps are looked for.
const BINS: usize = 32;
/// Least part of the samples that a hump has.
const LEAST_PART: f64 = 0.05;

/// Tests by the format's words and by those of people, the most telling first.
pub const TESTS: [(&str, &str); 3] = [("ad", "AD"), ("ks", "KS"), ("chi2", "χ²")];

fn test<'a>(fit: &'a FitRecord, name: &str) -> Option<&'a TestRecord> {
    fit.tests.iter().find(|t| t.test == name)
}

/// A test's statistic and p-value: `2.81 (p 0.02)`.
#[must_use]
pub fn test_words(fit: &FitRecord, name: &str) -> String {
    let Some(test) = test(fit, name) else { return "–".into() };
    let p = test.p_value.map_or_else(String::new, |p| format!(" (p {})", units::p_value(p)));
    format!("{}{p}", units::number(test.statistic))
}

/// Tests that reject a fit, in words. Each of several tests must be surer than one alone
/// (Bonferroni).
#[must_use]
pub fn rejected_by(fit: &FitRecord) -> Vec<&'static str> {
    let p = |name: &str| test(fit, name).and_then(|t| t.p_value);
    let known = TESTS.iter().filter(|t| p(t.0).is_some()).count().max(1) as f64;
    TESTS.iter().filter(|t| p(t.0).is_some_and(|p| p < SIGNIFICANCE / known)).map(|t| t.1).collect()
}

/// The fits that come next to the chosen one, by Anderson and Darling's statistic, which weighs
/// tails as well as the body.
#[must_use]
pub fn next_best(point: &Point, limit: usize) -> Vec<&FitRecord> {
    let distance = |f: &FitRecord| TESTS.iter().find_map(|t| test(f, t.0)).map_or(f64::INFINITY, |t| t.statistic);
    let mut others: Vec<&FitRecord> = point.sound_fits().filter(|f| !f.chosen).collect();
    others.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    others.truncate(limit);
    others
}

/// What is to be said of the chosen fit: whether tests reject it, and whether the samples have
/// several humps.
#[must_use]
pub fn verdict(point: &Point, fit: &FitRecord) -> String {
    let rejected = rejected_by(fit);
    let mut words = if rejected.is_empty() {
        if fit.tests.iter().any(|t| t.p_value.is_some()) { "not rejected" } else { "not tested" }.to_owned()
    } else {
        format!("rejected by {}", rejected.join(", "))
    };
    let humps = humps(point);
    if humps > 1 {
        words += &format!("; {humps} humps");
    }
    words
}

/// The range that holds the body of a distribution, and which part of the samples lies above it.
///
/// It ends at the highest of some quantiles at which the middle half still has a tenth of the axis:
/// farther out a tail a thousand times as long would squeeze all there is to see into one bin.
#[must_use]
pub fn body(point: &Point) -> (f64, f64, f64) {
    let at = |p: f64| point.curve.quantile(p).unwrap_or(0.0);
    let spread = (at(0.75) - at(0.25)).max(4.0 * point.tick_ns).max(1e-3 * at(0.5).abs());
    let low = if at(0.5) - at(0.0) <= 6.0 * spread { at(0.0) } else { at(0.01).max(at(0.25) - 4.0 * spread) };
    let near = |p: &f64| at(*p) - low <= 10.0 * spread;
    let high =
        [1.0, 0.995, 0.99, 0.975, 0.95, 0.9, 0.85, 0.8].into_iter().find(near).map_or(at(0.75) + 4.0 * spread, at);
    let high = high.max(low);
    let beyond = 1.0 - point.curve.at_most(high) / point.curve.count().max(f64::MIN_POSITIVE);
    (low, high, beyond.clamp(0.0, 1.0))
}

/// Humps of the body: peaks that a valley, deeper than chance makes it, parts from each other.
#[must_use]
pub fn humps(point: &Point) -> usize {
    if !point.has_form() {
        return 0;
    }
    let (low, high, _) = body(point);
    let scale = binned(low, high, point.tick_ns, BINS);
    let bins = scale.1;
    let mut counts = point.curve.histogram(&scale.0, bins);
    // What lies beyond stands at the ends and is no hump.
    let (least, most) = scale.0.range();
    if let Some(first) = counts.first_mut() {
        *first = (*first - point.curve.at_most(least)).max(0.0);
    }
    if let Some(last) = counts.last_mut() {
        *last = (*last - (point.curve.count() - point.curve.at_most(most))).max(0.0);
    }
    count_humps(&counts)
}

/// A scale of at most `bins` bins that are whole ticks wide, so that none holds more ticks than
/// another; and their number.
#[must_use]
pub fn binned(low: f64, high: f64, tick_ns: f64, bins: usize) -> (Scale, usize) {
    let width = (high - low) / bins as f64;
    if !(tick_ns > 0.0 && width > 0.0 && width < 20.0 * tick_ns) {
        let room = (high - low) * 0.02;
        return (Scale::new(Kind::Linear, low - room, high + room, 0.0, 1.0), bins);
    }
    let width = (width / tick_ns).ceil() * tick_ns;
    // Edges lie between ticks.
    let from = low - tick_ns / 2.0;
    let needed = (((high - from) / width).floor() as usize + 1).clamp(4, bins + 1);
    (Scale::new(Kind::Linear, from, from + needed as f64 * width, 0.0, 1.0), needed)
}

fn count_humps(counts: &[f64]) -> usize {
    let total: f64 = counts.iter().sum();
    let at = |i: usize| counts.get(i).copied().unwrap_or(0.0);
    let smooth: Vec<f64> = (0..counts.len())
        .map(|i| (if i > 0 { at(i - 1) } else { 0.0 }) * 0.25 + at(i) * 0.5 + at(i + 1) * 0.25)
        .collect();
    // Walks up to peaks and down into valleys; a turn counts once it is larger than chance makes
    // it.
    let sure = |high: f64, low: f64| high - low > 0.4 * high && high - low > 4.0 * (high + low).sqrt();
    let (mut humps, mut rising, mut peak, mut valley, mut mass) = (0, true, 0.0f64, 0.0f64, 0.0f64);
    for (value, count) in smooth.iter().zip(counts) {
        mass += count;
        if rising {
            peak = peak.max(*value);
            if sure(peak, *value) {
                humps += usize::from(mass >= LEAST_PART * total);
                (rising, valley, mass) = (false, *value, 0.0);
            }
        } else {
            if *value < valley {
                (valley, mass) = (*value, 0.0);
            }
            if sure(*value, valley) {
                (rising, peak) = (true, *value);
            }
        }
    }
    humps + usize::from(rising && peak > 0.0 && mass >= LEAST_PART * total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(p: [f64; 3]) -> FitRecord {
        let tests: Vec<_> = TESTS
            .iter()
            .zip(p)
            .map(|((name, _), p)| serde_json::json!({"test": name, "statistic": 1.5, "p_value": p}))
            .collect();
        let record = serde_json::json!({"family": "gamma", "location_ns": 0.0, "parameters": {}, "tests": tests});
        serde_json::from_value(record).expect("a fit")
    }

    #[test]
    fn a_fit_is_rejected_by_what_rejects_it() {
        assert!(rejected_by(&fit([0.3, 0.02, 0.004])).is_empty(), "one of three must be below a third of 0.01");
        assert_eq!(rejected_by(&fit([0.3, 0.002, 1e-9])), ["KS", "χ²"]);
        assert_eq!(test_words(&fit([0.3, 0.002, 1e-9]), "ad"), "1.5 (p 0.3)");
    }

    #[test]
    fn humps_are_counted_and_noise_is_not() {
        let hump = |at: f64, height: f64| {
            (0..32).map(move |i| height * (-0.5 * ((f64::from(i) - at) / 2.5).powi(2)).exp()).collect::<Vec<f64>>()
        };
        let both = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(b).map(|(x, y)| x + y).collect::<Vec<f64>>();
        assert_eq!(count_humps(&hump(8.0, 400.0)), 1);
        assert_eq!(count_humps(&hump(0.0, 400.0)), 1, "one that begins at its peak");
        assert_eq!(count_humps(&hump(31.0, 400.0)), 1, "one that ends at its peak");
        assert_eq!(count_humps(&both(hump(8.0, 400.0), hump(22.0, 200.0))), 2);
        assert_eq!(count_humps(&both(hump(8.0, 400.0), hump(22.0, 9.0))), 1, "a few samples are no hump");
        let noisy: Vec<f64> =
            hump(14.0, 60.0).iter().enumerate().map(|(i, v)| v + [3.0, -3.0][i % 2]).map(|v| v.max(0.0)).collect();
        assert_eq!(count_humps(&noisy), 1);
        assert_eq!(count_humps(&[]), 0);
    }

    #[test]
    fn bins_are_whole_ticks_wide() {
        let (scale, bins) = binned(1000.0, 1400.0, 20.0, 32);
        let (low, high) = scale.range();
        assert_eq!((low, bins), (990.0, 21));
        assert!(((high - low) / bins as f64 - 20.0).abs() < 1e-9 && high >= 1400.0);
        let (scale, bins) = binned(1000.0, 5000.0, 0.0, 32);
        assert!(bins == 32 && scale.holds(1000.0) && scale.holds(5000.0));
    }
}
