//! The greatest value of a function of one variable.

/// Maximises by golden sections; the function itself remembers its best.
pub(crate) fn golden_section(mut low: f64, mut high: f64, steps: usize, mut value_at: impl FnMut(f64) -> f64) {
    const SHARE: f64 = 0.618_033_988_749_894_8;
    let (mut x, mut y) = (high - SHARE * (high - low), low + SHARE * (high - low));
    let (mut at_x, mut at_y) = (value_at(x), value_at(y));
    for _ in 0..steps {
        if at_x >= at_y {
            (high, y, at_y) = (y, x, at_x);
            x = high - SHARE * (high - low);
            at_x = value_at(x);
        } else {
            (low, x, at_x) = (x, y, at_y);
            y = low + SHARE * (high - low);
            at_y = value_at(y);
        }
    }
}
