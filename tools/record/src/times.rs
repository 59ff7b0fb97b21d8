//! Times of computing between calls, as the language says them.

use std::collections::BTreeMap;

/// Below this mean a time is the recorder's own and is left out, nanoseconds.
const LEAST_NS: f64 = 100.0;
/// A spread (standard deviation / mean) below this is none.
const NO_SPREAD: f64 = 0.01;
/// Of shorter times no doubts are told.
const WORTH_A_WORD_NS: f64 = 5e3;
/// A law that misses a mean by more than this is told.
const CLOSE: f64 = 0.25;
/// A law that misses no mean by more than this is preferred to one with more numbers.
const SAME: f64 = 0.1;

/// What is recorded of one place.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moments {
    count: f64,
    mean: f64,
    square: f64,
}

impl Moments {
    /// Takes up a time (Welford 1962).
    pub fn add(&mut self, ns: f64) {
        self.count += 1.0;
        let off = ns - self.mean;
        self.mean += off / self.count;
        self.square += off * (ns - self.mean);
    }

    /// Standard deviation / mean.
    fn spread(self) -> f64 {
        if self.count < 2.0 || self.mean <= 0.0 { 0.0 } else { (self.square / (self.count - 1.0)).sqrt() / self.mean }
    }
}

/// A time as a law.
#[derive(Debug, Clone, PartialEq)]
pub struct Law {
    /// What follows `time =`.
    pub text: String,
    /// Whether it uses the parameter `split`.
    pub split: bool,
    /// What is doubtful about it.
    pub doubt: Option<String>,
}

/// The law of what was recorded, by number of processes. `fixed`: the model is for the recorded
/// number only. None: no time to speak of.
#[must_use]
pub fn law(by_count: &BTreeMap<i64, Moments>, fixed: bool) -> Option<Law> {
    if by_count.values().all(|m| m.mean < LEAST_NS) {
        return None;
    }
    let spread = by_count.values().map(|m| m.spread()).fold(0.0, f64::max);
    let greatest = by_count.values().map(|m| m.mean).fold(0.0, f64::max);
    let (scale, unit) = unit(greatest);
    // Mean and spread of a lognormal law are those that were recorded.
    let sigma = if spread < NO_SPREAD { 0.0 } else { (1.0 + spread * spread).ln().sqrt() };
    let median = (-sigma * sigma / 2.0).exp();
    let shown = |ns: f64| digits(ns / scale * median);
    let (mut split, mut doubt) = (false, None);
    let time = match by_count.first_key_value() {
        Some((_, only)) if fixed => shown(only.mean),
        Some((n, only)) if by_count.len() == 1 => {
            split = true;
            format!("{}*pow({n}.0/numprocs, split)", shown(only.mean))
        }
        _ => {
            let (text, off) = fitted(by_count, &shown);
            let means: Vec<String> =
                by_count.iter().map(|(n, m)| format!("{} {unit} with {n}", digits(m.mean / scale))).collect();
            doubt = (off > CLOSE && greatest > WORTH_A_WORD_NS)
                .then(|| format!("its time is no sum of a constant and a part shared by all: {}", means.join(", ")));
            text
        }
    };
    let text =
        if sigma > 0.0 { format!("lognormal({time}, {}) {unit}", digits(sigma)) } else { format!("{time} {unit}") };
    Some(Law { text, split, doubt })
}

/// The plainest of: the same for any number, shared by all, a constant and a shared part (least
/// squares of relative errors). With the greatest relative error.
fn fitted(by_count: &BTreeMap<i64, Moments>, shown: &dyn Fn(f64) -> String) -> (String, f64) {
    let all: Vec<(f64, f64)> = by_count.iter().map(|(n, m)| (*n as f64, m.mean.max(1.0))).collect();
    let off = |of: &dyn Fn(f64) -> f64| all.iter().map(|(n, t)| (of(*n) / t - 1.0).abs()).fold(0.0, f64::max);
    let count = all.len() as f64;
    let same = all.iter().map(|(_, t)| t).sum::<f64>() / count;
    let shared = all.iter().map(|(n, t)| t * n).sum::<f64>() / count;
    let same_off = off(&|_| same);
    let shared_off = off(&|n| shared / n);
    let (mut a, mut b) = both(&all);
    if a < 0.0 {
        (a, b) = (0.0, shared);
    } else if b < 0.0 {
        (a, b) = (same, 0.0);
    }
    let both_off = off(&|n| a + b / n);
    if same_off <= SAME || (same_off <= shared_off && same_off <= both_off) {
        (shown(same), same_off)
    } else if shared_off <= SAME || shared_off <= both_off {
        (format!("{}/numprocs", real(shown(shared))), shared_off)
    } else {
        (format!("({} + {}/numprocs)", shown(a), real(shown(b))), both_off)
    }
}

/// a and b of t = a + b / n, each error relative to t.
fn both(all: &[(f64, f64)]) -> (f64, f64) {
    // Of the equations a/t + b/(n t) = 1.
    let (mut uu, mut uv, mut vv, mut u1, mut v1) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (n, t) in all {
        let (u, v) = (1.0 / t, 1.0 / (n * t));
        (uu, uv, vv, u1, v1) = (uu + u * u, uv + u * v, vv + v * v, u1 + u, v1 + v);
    }
    let d = uu * vv - uv * uv;
    if d <= 0.0 { (0.0, 0.0) } else { ((u1 * vv - v1 * uv) / d, (v1 * uu - u1 * uv) / d) }
}

fn unit(ns: f64) -> (f64, &'static str) {
    match ns {
        ns if ns < 1e3 => (1.0, "ns"),
        ns if ns < 1e6 => (1e3, "us"),
        ns if ns < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// Four significant digits.
fn digits(value: f64) -> String {
    let decimals = (3 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The same as a real number: of two whole ones, as in C, a quotient is whole, and 3/4 nothing.
fn real(digits: String) -> String {
    if digits.contains('.') { digits } else { digits + ".0" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[(i64, &[f64])], fixed: bool) -> Option<String> {
        let mut by_count: BTreeMap<i64, Moments> = BTreeMap::new();
        for (n, times) in all {
            times.iter().for_each(|t| by_count.entry(*n).or_default().add(*t));
        }
        law(&by_count, fixed).map(|law| law.text)
    }

    #[test]
    fn times_are_said_by_mean_and_spread_and_follow_the_count() {
        assert_eq!(of(&[(4, &[50.0, 60.0])], false), None);
        assert_eq!(of(&[(4, &[1500.0, 1500.0])], true).unwrap(), "1.5 us");
        assert_eq!(of(&[(4, &[1500.0, 1500.0])], false).unwrap(), "1.5*pow(4.0/numprocs, split) us");
        assert_eq!(of(&[(2, &[1500.0]), (4, &[1510.0])], false).unwrap(), "1.505 us");
        assert_eq!(of(&[(2, &[4e6]), (4, &[2e6])], false).unwrap(), "8.0/numprocs ms");
        assert_eq!(of(&[(2, &[6e6]), (4, &[4e6]), (8, &[3e6])], false).unwrap(), "(2 + 8.0/numprocs) ms");
        // Mean 2, deviation sqrt 2: the median of the lognormal law with these.
        let sigma = 1.5f64.ln().sqrt();
        let text = of(&[(4, &[1e3, 3e3])], true).unwrap();
        assert_eq!(text, format!("lognormal({}, {}) us", digits(2.0 / 1.5f64.sqrt()), digits(sigma)));
    }

    #[test]
    fn a_time_that_grows_with_the_count_is_doubtful() {
        let by_count = [(2, 1e6), (4, 2e6)].map(|(n, t)| {
            let mut m = Moments::default();
            m.add(t);
            (n, m)
        });
        assert!(law(&BTreeMap::from(by_count), false).unwrap().doubt.unwrap().contains("1 ms with 2, 2 ms with 4"));
    }
}
