//! Arithmetic on nanoseconds that neither overflows nor loses the small part beside the large.

/// Times beyond this (73 years from a clock's origin, either way) are refused: sums of a time and
/// an offset cannot overflow then.
pub const LIMIT_NS: i64 = i64::MAX / 4;

/// `later - earlier`. Exact up to 2^53 ns (104 days), relative error 10^-16 beyond.
pub(crate) fn gap(later: i64, earlier: i64) -> f64 {
    (i128::from(later) - i128::from(earlier)) as f64
}

/// Nearest integer, halves away from zero, saturating (`f64::round` needs std).
pub(crate) fn round(x: f64) -> i64 {
    (x + 0.5_f64.copysign(x)) as i64
}

/// Smallest integer not below `x`, saturating.
pub(crate) fn ceil(x: f64) -> i64 {
    let cut = x as i64;
    if (cut as f64) < x { cut.saturating_add(1) } else { cut }
}

/// The middle of two times without overflow, rounded down.
pub(crate) fn middle(a: i64, b: i64) -> i64 {
    ((i128::from(a) + i128::from(b)) >> 1) as i64
}

/// Is this a time we accept?
pub(crate) fn in_limit(time_ns: i64) -> bool {
    (-LIMIT_NS..=LIMIT_NS).contains(&time_ns)
}

/// The median; `values` is put in order. 0 for an empty slice.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => 0.0,
        _ if n % 2 == 1 => values[n / 2],
        _ => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_goes_to_the_nearest_and_saturates() {
        assert_eq!([round(0.4), round(0.5), round(-0.5), round(-1.4)], [0, 1, -1, -1]);
        assert_eq!((round(1e30), round(-1e30), round(f64::NAN)), (i64::MAX, i64::MIN, 0));
        assert_eq!([ceil(0.1), ceil(1.0), ceil(-0.9)], [1, 1, 0]);
    }

    #[test]
    fn gaps_and_middles_survive_the_ends_of_the_range() {
        assert_eq!(gap(i64::MAX, i64::MIN), 2f64.powi(64));
        assert_eq!(middle(i64::MAX, i64::MAX - 2), i64::MAX - 1);
        assert_eq!(middle(-3, 0), -2);
    }

    #[test]
    fn the_median_of_an_even_count_is_the_mean_of_the_middle_two() {
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&mut [9.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&mut []), 0.0);
    }
}
