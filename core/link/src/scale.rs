//! Products that are divided again.

/// `a * b / c`, at most `u64::MAX`. A division of 128 bits takes longer than most of what stands
/// around it, and nearly all products need no more than 64.
#[inline]
pub(crate) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => wide(a, b, c),
    }
}

#[cold]
#[inline(never)]
fn wide(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_ways_agree(a in 0u32..=64, b in 0u32..=64, c in 0u32..64, low in any::<[u64; 3]>()) {
            // Of all lengths alike, so that products stand on both sides of 64 bits.
            let cut = |bits: u32, low: u64| if bits == 0 { 0 } else { low >> (64 - bits) };
            let (a, b, c) = (cut(a, low[0]), cut(b, low[1]), cut(c, low[2]).max(1));
            prop_assert_eq!(mul_div(a, b, c), wide(a, b, c));
        }
    }
}
