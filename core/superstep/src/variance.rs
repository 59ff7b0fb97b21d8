//! What the spread of one link does to a machine of many: the slowest of them decides (seed 3.7,
//! 3.8).

use libm::{erfc, exp, pow, sqrt};

/// The distribution of one edge, from that of the slowest of `n`: its `n`th root.
#[must_use]
pub fn edge_from_slowest(cdf: f64, n: u32) -> f64 {
    pow(cdf.clamp(0.0, 1.0), 1.0 / f64::from(n.max(1)))
}

/// The distribution of the slowest of `n`, from that of one.
#[must_use]
pub fn slowest_from_edge(cdf: f64, n: u32) -> f64 {
    pow(cdf.clamp(0.0, 1.0), f64::from(n.max(1)))
}

/// How many standard deviations above the mean the slowest of `n` normal times lies on average:
/// E[max] = mean + c sd.
#[must_use]
pub fn slowest_of_normals(n: u32) -> f64 {
    if n < 2 {
        return 0.0;
    }
    // E[max] = integral of 1 - F(x)^n over x > 0 less that of F(x)^n over x < 0.
    let f = |x: f64| 0.5 * erfc(-x / sqrt(2.0));
    let (steps, width) = (4000u32, 12.0 / 4000.0);
    (0..steps)
        .map(|i| {
            let x = (f64::from(i) + 0.5) * width;
            let n = f64::from(n);
            (1.0 - pow(f(x), n) - pow(f(-x), n)) * width
        })
        .sum()
}

/// The same for all links of a fully connected machine of `p`.
#[must_use]
pub fn slowest_link_of_normals(p: u32) -> f64 {
    slowest_of_normals(p.saturating_mul(p.saturating_sub(1)) / 2)
}

/// The density of the standard normal distribution, for those who integrate themselves.
#[must_use]
pub fn normal_density(x: f64) -> f64 {
    exp(-x * x / 2.0) / sqrt(2.0 * core::f64::consts::PI)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_normals_lies_where_the_seed_says() {
        for (n, c) in [(1, 0.0), (2, 0.564), (4, 1.029), (8, 1.424), (16, 1.766)] {
            assert!((slowest_of_normals(n) - c).abs() < 6e-4, "{n}: {}", slowest_of_normals(n));
        }
        for (p, c) in [(2, 0.0), (4, 1.267), (6, 1.736), (8, 2.014), (16, 2.572), (32, 3.03)] {
            assert!((slowest_link_of_normals(p) - c).abs() < 6e-3, "{p}: {}", slowest_link_of_normals(p));
        }
    }

    #[test]
    fn an_edge_is_the_root_of_the_slowest() {
        for n in [1, 2, 5, 28] {
            for f in [0.0, 0.1, 0.5, 0.99, 1.0] {
                assert!((edge_from_slowest(slowest_from_edge(f, n), n) - f).abs() < 1e-9);
            }
        }
        assert!((edge_from_slowest(0.25, 2) - 0.5).abs() < 1e-12);
    }
}
