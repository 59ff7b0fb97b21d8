//! Fitted distributions as the format records them, turned into what the statistics crate can
//! evaluate, and into words.

use weir_distribution::{Family, FitRecord};
use weir_stats::Distribution;

use crate::units;

/// A parameter by the format's name.
#[must_use]
pub fn parameter(fit: &FitRecord, name: &str) -> Option<f64> {
    fit.parameters.get(name).copied().filter(|v| v.is_finite())
}

/// The parameter that says what form the distribution has; none for families that have one form
/// only.
#[must_use]
pub fn shape_parameter(fit: &FitRecord) -> Option<f64> {
    parameter(fit, "shape").or_else(|| parameter(fit, "sigma"))
}

/// The density at `n` even places of a range (ns, 1/ns).
#[must_use]
pub fn curve_of(fit: &FitRecord, low: f64, high: f64, n: usize) -> Option<Vec<(f64, f64)>> {
    let distribution = Distribution::recorded(fit.family.as_str(), fit.location_ns, &fit.parameters)?;
    let points = (0..n).map(|i| {
        let x = low + (high - low) * (i as f64 + 0.5) / n as f64;
        (x, distribution.pdf(x))
    });
    Some(points.filter(|p| p.1.is_finite()).collect())
}

/// A family's name for people.
#[must_use]
pub fn name(family: &str) -> &str {
    match family {
        Family::PEARSON5 => "Pearson 5",
        Family::WEIBULL => "Weibull",
        Family::GENERALISED_GAMMA => "generalised gamma",
        other => other,
    }
}

/// A fit in few words: `Pearson 5, shape 3.1`.
#[must_use]
pub fn short_words(fit: &FitRecord) -> String {
    let name = name(fit.family.as_str());
    shape_parameter(fit).map_or_else(|| name.to_owned(), |shape| format!("{name}, shape {}", units::number(shape)))
}

/// A fit in words: `Pearson 5, shape 3.1, scale 12 µs from 40 µs`.
#[must_use]
pub fn words(fit: &FitRecord) -> String {
    let mut text = name(fit.family.as_str()).to_owned();
    for (parameter, value) in &fit.parameters {
        let (word, value) = match parameter.strip_suffix("_ns") {
            Some(word) => (word, units::time(*value)),
            None => (parameter.as_str(), units::number(*value)),
        };
        text += &format!(", {word} {value}");
    }
    if fit.location_ns != 0.0 {
        text += &format!(" from {}", units::time(fit.location_ns));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(family: &str, parameters: &[(&str, f64)]) -> FitRecord {
        let parameters: std::collections::BTreeMap<&str, f64> = parameters.iter().copied().collect();
        let mut fit: FitRecord = serde_json::from_value(serde_json::json!({
            "family": family, "location_ns": 100.0, "parameters": {}, "chosen": true
        }))
        .expect("a fit");
        // A number that is none cannot pass through JSON.
        fit.parameters = parameters.into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
        fit
    }

    #[test]
    fn every_family_of_the_format_can_be_drawn() {
        for family in Family::KNOWN.iter().copied().chain(["erlang"]) {
            let names = [
                ("mean_ns", 50.0),
                ("stddev_ns", 10.0),
                ("mu", 3.0),
                ("sigma", 0.5),
                ("lambda", 0.7),
                ("shape", 3.0),
                ("scale_ns", 20.0),
            ];
            let curve = curve_of(&record(family, &names), 0.0, 2000.0, 20_000).unwrap_or_else(|| panic!("{family}"));
            let area: f64 = curve.iter().map(|p| p.1 * 0.1).sum();
            assert!((area - 1.0).abs() < 0.02, "{family}: {area}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_not_drawn() {
        assert!(curve_of(&record("of the future", &[]), 0.0, 1.0, 9).is_none());
        assert!(curve_of(&record("gamma", &[("shape", -3.0), ("scale_ns", 1.0)]), 0.0, 1.0, 9).is_none());
        assert!(curve_of(&record("gamma", &[("shape", f64::NAN), ("scale_ns", 1.0)]), 0.0, 1.0, 9).is_none());
    }

    #[test]
    fn a_fit_in_words_has_units() {
        let text = words(&record("pearson5", &[("shape", 3.1), ("scale_ns", 12_000.0)]));
        assert_eq!(text, "Pearson 5, scale 12 µs, shape 3.1 from 100 ns");
    }
}
