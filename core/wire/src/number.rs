//! Numbers of which only the low 32 bits travel: packet numbers, `mseq`, `msgs_limit` (spec 2.1,
//! RFC 9000 appendix A.3).

/// The full number whose low 32 bits are `low` and which lies closest to `expected` (usually the
/// largest seen plus one).
///
/// Halfway cases take the larger number, as in RFC 9000 A.3; the result never leaves the range of
/// `u64`.
#[inline]
#[must_use]
pub fn expand(low: u32, expected: u64) -> u64 {
    let ahead = low.wrapping_sub(truncate(expected)).cast_signed();
    match expected.checked_add_signed(ahead.into()) {
        Some(number) if ahead != i32::MIN => number,
        _ => expand_at_an_edge(low, expected),
    }
}

/// The same where the number may be as far ahead as behind, or the range of `u64` ends.
#[cold]
fn expand_at_an_edge(low: u32, expected: u64) -> u64 {
    const WINDOW: u64 = 1 << 32;
    const HALF: u64 = WINDOW / 2;
    let candidate = (expected & !(WINDOW - 1)) | u64::from(low);
    if expected >= HALF && candidate <= expected - HALF {
        candidate.checked_add(WINDOW).unwrap_or(candidate)
    } else if candidate > expected.saturating_add(HALF) && candidate >= WINDOW {
        candidate - WINDOW
    } else {
        candidate
    }
}

/// The low 32 bits, as written in packets. The other side can expand them while fewer than 2^31
/// numbers are under way.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "truncation is the purpose")]
pub const fn truncate(full: u64) -> u32 {
    full as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_short_way_finds_the_same_number(
            expected in prop_oneof![any::<u64>(), 0..1u64 << 33, u64::MAX - (1 << 33)..=u64::MAX],
            low in any::<u32>(),
            near in -3i64..=3,
            half in any::<bool>(),
        ) {
            // Anywhere, and around what is as near by either way.
            let edge = truncate(expected.wrapping_add_signed(near).wrapping_add(u64::from(half) << 31));
            for low in [low, edge] {
                prop_assert_eq!(expand(low, expected), expand_at_an_edge(low, expected));
            }
        }
    }
}
