//! All lines through a set of vertical intervals: their slopes and their values, by linear
//! programming in two variables.

/// The true value at `x` lies in `low..=high`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strip {
    pub x: f64,
    pub low: f64,
    pub high: f64,
}

/// A closed interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub low: f64,
    pub high: f64,
}

impl Range {
    /// The largest absolute value in it.
    pub fn magnitude(self) -> f64 {
        self.low.abs().max(self.high.abs())
    }
}

/// Slopes of the lines that pass through all strips, of those in `prior`; `None` if there is none.
///
/// Eliminating the intercept from `low_i <= c + s x_i <= high_i` leaves exactly the pairwise
/// conditions (Fourier-Motzkin), so this is not an approximation.
pub(crate) fn slopes(strips: &[Strip], prior: Range) -> Option<Range> {
    let mut range = prior;
    for (i, a) in strips.iter().enumerate() {
        for b in &strips[i + 1..] {
            let (left, right) = if a.x <= b.x { (a, b) } else { (b, a) };
            let run = right.x - left.x;
            if run == 0.0 {
                if left.low > right.high || right.low > left.high {
                    return None;
                }
                continue;
            }
            range.high = range.high.min((right.high - left.low) / run);
            range.low = range.low.max((right.low - left.high) / run);
        }
    }
    (range.low <= range.high).then_some(range)
}

/// Values at `x` of the lines through all strips whose slopes are in `slopes` (as [`slopes`] gave
/// them).
pub(crate) fn values(strips: &[Strip], slopes: Range, x: f64) -> Range {
    let high = |s: f64| strips.iter().map(|p| p.high - s * (p.x - x)).fold(f64::INFINITY, f64::min);
    let low = |s: f64| strips.iter().map(|p| s * (p.x - x) - p.low).fold(f64::INFINITY, f64::min);
    Range { low: -greatest(high_point(slopes, low)), high: greatest(high_point(slopes, high)) }
}

/// Where a concave function is greatest, by ternary search, and its values around there.
fn high_point(over: Range, f: impl Fn(f64) -> f64) -> [f64; 3] {
    let (mut a, mut b) = (over.low, over.high);
    // (2/3)^120 < 2^-64: as fine as f64 allows.
    for _ in 0..120 {
        let third = (b - a) / 3.0;
        if f(a + third) < f(b - third) { a += third } else { b -= third }
    }
    [f(a), f(b), f((a + b) / 2.0)]
}

fn greatest(of: [f64; 3]) -> f64 {
    of[0].max(of[1]).max(of[2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const ANY: Range = Range { low: -10.0, high: 10.0 };

    #[test]
    fn two_strips_bound_slope_and_values_exactly() {
        let strips = [Strip { x: 0.0, low: -1.0, high: 1.0 }, Strip { x: 4.0, low: 3.0, high: 5.0 }];
        let s = slopes(&strips, ANY).unwrap();
        assert_eq!(s, Range { low: 0.5, high: 1.5 });
        let at_8 = values(&strips, s, 8.0);
        assert!((at_8.low - 5.0).abs() < 1e-9 && (at_8.high - 11.0).abs() < 1e-9, "{at_8:?}");
    }

    #[test]
    fn a_middle_strip_off_every_chord_leaves_no_line() {
        let strips = [
            Strip { x: 0.0, low: 0.0, high: 1.0 },
            Strip { x: 1.0, low: 3.0, high: 4.0 },
            Strip { x: 2.0, low: 0.0, high: 1.0 },
        ];
        assert_eq!(slopes(&strips, ANY), None);
    }

    #[test]
    fn one_strip_leaves_the_prior() {
        let strips = [Strip { x: 5.0, low: 1.0, high: 2.0 }];
        assert_eq!(slopes(&strips, ANY), Some(ANY));
        let v = values(&strips, ANY, 6.0);
        assert!((v.low + 9.0).abs() < 1e-9 && (v.high - 12.0).abs() < 1e-9, "{v:?}");
    }

    proptest! {
        /// Any line drawn through the strips is within the bounds, and the bounds are touched by
        /// lines in the strips.
        #[test]
        fn bounds_hold_every_line_and_are_tight(
            (c, s) in (-5.0f64..5.0, -2.0f64..2.0),
            parts in prop::collection::vec((-10.0f64..10.0, 0.01f64..3.0, 0.01f64..3.0), 2..12),
            x in -20.0f64..20.0,
        ) {
            let strips: Vec<Strip> =
                parts.iter().map(|(x, d, u)| Strip { x: *x, low: c + s * x - d, high: c + s * x + u }).collect();
            let range = slopes(&strips, ANY).unwrap();
            prop_assert!(range.low <= s && s <= range.high);
            let v = values(&strips, range, x);
            let truth = c + s * x;
            prop_assert!(v.low <= truth + 1e-9 && truth <= v.high + 1e-9);
            // Tight: pinning the value at x just beyond the bound leaves no line.
            for pinned in [v.high + 1e-4, v.low - 1e-4] {
                let mut more = strips.clone();
                more.push(Strip { x, low: pinned, high: pinned });
                prop_assert_eq!(slopes(&more, ANY), None);
            }
            for pinned in [v.high - 1e-4 * (v.high - v.low), v.low + 1e-4 * (v.high - v.low)] {
                let mut more = strips.clone();
                more.push(Strip { x, low: pinned - 1e-9, high: pinned + 1e-9 });
                prop_assert!(slopes(&more, ANY).is_some());
            }
        }
    }
}
