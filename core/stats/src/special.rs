//! Special functions that `statrs` lacks or has for moderate arguments only.

use statrs::function::{beta::checked_beta_reg, erf, gamma};

pub(crate) use statrs::function::gamma::{digamma, ln_gamma};

/// Standard normal distribution function.
pub(crate) fn normal_cdf(z: f64) -> f64 {
    0.5 * erf::erfc(-z / std::f64::consts::SQRT_2)
}

/// Standard normal quantile, `p` in 0..=1.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    -std::f64::consts::SQRT_2 * erf::erfc_inv(2.0 * p)
}

/// Two-sided probability of a standard normal beyond |z|.
pub(crate) fn two_sided(z: f64) -> f64 {
    erf::erfc(z.abs() / std::f64::consts::SQRT_2)
}

/// Above this shape the regularised gamma functions are taken from a normal approximation: the
/// series needs about root a terms, and the error of Wilson and Hilferty's cube root is then below
/// 1e-6.
const GAMMA_SHAPE_LIMIT: f64 = 1e5;

/// Regularised incomplete gamma functions (P, Q) of shape `a` > 0 at `x`.
pub(crate) fn gamma_pq(a: f64, x: f64) -> (f64, f64) {
    if x.is_nan() || x <= 0.0 {
        return (0.0, 1.0);
    }
    if x == f64::INFINITY {
        return (1.0, 0.0);
    }
    if a > GAMMA_SHAPE_LIMIT {
        let z = ((x / a).cbrt() - 1.0 + 1.0 / (9.0 * a)) * (9.0 * a).sqrt();
        return (normal_cdf(z), normal_cdf(-z));
    }
    if x < 1e-9 {
        // The library takes such an x for 0; two terms of the series are exact here.
        let p = (a * x.ln() - ln_gamma(a + 1.0)).exp() * (1.0 - a * x / (a + 1.0));
        return (p.min(1.0), (1.0 - p).max(0.0));
    }
    if x <= a + 1.0 {
        let p = gamma::checked_gamma_lr(a, x).unwrap_or(0.0).clamp(0.0, 1.0);
        (p, 1.0 - p)
    } else {
        let q = gamma::checked_gamma_ur(a, x).unwrap_or(0.0).clamp(0.0, 1.0);
        (1.0 - q, q)
    }
}

/// The x with P(a, x) = `p` and Q(a, x) = `q`, where `p + q` = 1 and the smaller one carries the
/// precision.
pub(crate) fn gamma_inverse(a: f64, p: f64, q: f64) -> f64 {
    if p <= 0.0 {
        return 0.0;
    }
    if q <= 0.0 {
        return f64::INFINITY;
    }
    let by_p = p <= q;
    // Excess of the distribution function over its target, rising in x whichever tail is used.
    let excess = |x: f64| {
        let (low, high) = gamma_pq(a, x);
        if by_p { low / p - 1.0 } else { 1.0 - high / q }
    };
    let target = if by_p { p } else { q };
    let normal = if by_p { normal_quantile(p) } else { -normal_quantile(q) };
    let cube = 1.0 - 1.0 / (9.0 * a) + normal / (3.0 * a.sqrt());
    let small = ((p.ln() + ln_gamma(a + 1.0)) / a).exp();
    let mut x = if a > 0.5 && cube > 0.2 { a * cube.powi(3) } else { small };
    x = x.clamp(1e-300, 1e300);
    let (mut low, mut high) = (0.0_f64, f64::INFINITY);
    for _ in 0..200 {
        let error = excess(x);
        if error == 0.0 || (high - low) <= x * 4.0 * f64::EPSILON {
            break;
        }
        if error < 0.0 {
            low = x
        } else {
            high = x
        }
        let ln_density = (a - 1.0) * x.ln() - x - ln_gamma(a);
        let mut next = x - error * target / ln_density.exp();
        if !(next > low && next < high) {
            next = match (low > 0.0, high.is_finite()) {
                (true, true) => (low * high).sqrt(),
                (true, false) => low * 4.0,
                _ => high / 16.0,
            };
        }
        if (next - x).abs() <= x * 1e-14 || next == 0.0 {
            return next;
        }
        x = next;
    }
    x
}

/// Second derivative of ln Gamma, by recurrence up to 8 and the asymptotic series (Abramowitz and
/// Stegun 6.4.12).
pub(crate) fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 8.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    sum + 1.0 / x
        + r / 2.0
        + r / x * (1.0 / 6.0 - r * (1.0 / 30.0 - r * (1.0 / 42.0 - r * (1.0 / 30.0 - r * 5.0 / 66.0))))
}

/// Probability that a chi-square variable with `df` degrees of freedom exceeds `x`.
pub(crate) fn chi_square_tail(df: f64, x: f64) -> f64 {
    gamma_pq(df / 2.0, x / 2.0).1
}

/// Two-sided probability of Student's t with `df` degrees of freedom beyond |t|.
pub(crate) fn student_two_sided(t: f64, df: f64) -> f64 {
    if df > 5000.0 {
        return two_sided(t); // 0.1 % apart at a probability of 0.05; the library's fraction converges slowly from there
    }
    checked_beta_reg(df / 2.0, 0.5, df / (df + t * t)).unwrap_or_else(|_| two_sided(t))
}

/// Order statistics (places from 0) that enclose a quantile, with their coverage.
pub(crate) struct Ranks {
    pub low: usize,
    pub high: usize,
    pub coverage: f64,
}

/// The closest pair of order statistics, each tail's error at most half of what is allowed, that
/// encloses the quantile `p` of any continuous distribution. Sums the binomial distribution exactly
/// over the +-12 sd that matter.
pub(crate) fn binomial_interval_ranks(n: usize, p: f64, confidence: f64) -> Ranks {
    let tail = (1.0 - confidence) / 2.0;
    let (first, mass) = binomial_window(n, p);
    let last = first + mass.len() - 1;
    // B counts the values under the quantile; the k-th value (from 1) is above it when B < k.
    let mut low = (1, if first == 0 { mass[0] } else { 0.0 });
    let mut high = (n, if last == n { 1.0 - mass[mass.len() - 1] } else { 1.0 });
    let mut found_high = false;
    let mut below = 0.0;
    for (k, m) in (first..).zip(&mass) {
        if (1..=n).contains(&k) {
            if below <= tail {
                low = (k, below);
            }
            if !found_high && 1.0 - below <= tail {
                high = (k, below);
                found_high = true;
            }
        }
        below += m;
    }
    Ranks { low: low.0 - 1, high: high.0 - 1, coverage: (high.1 - low.1).clamp(0.0, 1.0) }
}

/// The binomial probabilities around the mode, normalised, and the number of the first.
fn binomial_window(n: usize, p: f64) -> (usize, Vec<f64>) {
    let nf = n as f64;
    let mode = (((nf + 1.0) * p).floor() as usize).min(n);
    let reach = (12.0 * (nf * p * (1.0 - p)).sqrt()).ceil() as usize + 30;
    let (first, last) = (mode.saturating_sub(reach), (mode + reach).min(n));
    let odds = p / (1.0 - p);
    let mut mass = vec![0.0; last - first + 1];
    mass[mode - first] = 1.0;
    for k in mode..last {
        mass[k + 1 - first] = mass[k - first] * odds * (n - k) as f64 / (k + 1) as f64;
    }
    for k in (first..mode).rev() {
        mass[k - first] = mass[k + 1 - first] / odds * (k + 1) as f64 / (n - k) as f64;
    }
    let total: f64 = mass.iter().sum();
    mass.iter_mut().for_each(|m| *m /= total);
    (first, mass)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, expected: f64, relative: f64) {
        assert!((got / expected - 1.0).abs() < relative, "{got} against {expected}");
    }

    #[test]
    fn the_inverse_gamma_function_undoes_the_function_over_shapes_and_tails() {
        for a in [0.01, 0.3, 1.0, 2.5, 50.0, 1e4, 9e4, 3e5] {
            for p in [1e-12, 1e-3, 0.2, 0.5, 0.9, 1.0 - 1e-9] {
                let x = gamma_inverse(a, p, 1.0 - p);
                // Shape 0.01 puts the 0.2 quantile at 1e-70 and the least ones below every number.
                if x > 1e-290 {
                    let (low, high) = gamma_pq(a, x);
                    let ratio = if p < 0.5 { low / p } else { high / (1.0 - p) };
                    assert!((ratio - 1.0).abs() < 1e-6, "shape {a}, p {p}: {ratio}");
                }
            }
        }
    }

    #[test]
    fn the_two_forms_of_the_gamma_function_meet_at_large_shapes() {
        for z in [-3.0, 0.0, 2.0] {
            let at = |a: f64| gamma_pq(a, a + z * a.sqrt()).0;
            near(at(GAMMA_SHAPE_LIMIT * 1.0001), at(GAMMA_SHAPE_LIMIT * 0.9999), 1e-4);
        }
    }

    #[test]
    fn special_functions_give_the_handbooks_values() {
        near(trigamma(1.0), std::f64::consts::PI.powi(2) / 6.0, 1e-12);
        near(trigamma(0.5), std::f64::consts::PI.powi(2) / 2.0, 1e-12);
        near(trigamma(100.0), 0.010_050_166_663_333_57, 1e-12);
        near(chi_square_tail(10.0, 18.307_038), 0.05, 1e-6);
        near(student_two_sided(2.228_139, 10.0), 0.05, 1e-5);
        near(student_two_sided(1.96, 4999.0), student_two_sided(1.96, 5001.0), 2e-3);
        near(two_sided(1.959_963_985), 0.05, 1e-8);
        near(normal_quantile(1e-9), -5.997_807, 1e-6);
    }

    #[test]
    fn the_shape_of_a_gamma_solves_its_equation_at_every_magnitude() {
        for k in [1e-3_f64, 0.1, 1.0, 30.0, 1e3, 4e4] {
            near(crate::shape::gamma_shape(k.ln() - digamma(k)).unwrap(), k, 1e-6);
        }
        assert!(crate::shape::gamma_shape(0.0).is_none() && crate::shape::gamma_shape(f64::NAN).is_none());
        // Across the switch to the series.
        near(crate::shape::gamma_shape(0.99999e-5).unwrap(), crate::shape::gamma_shape(1.00001e-5).unwrap(), 1e-4);
    }
}
