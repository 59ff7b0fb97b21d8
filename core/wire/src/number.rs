//! Numbers of which only the low 32 bits travel: packet numbers, `mseq`, `msgs_limit` (spec 2.1, RFC 9000 appendix A.3).

/// The full number whose low 32 bits are `low` and which lies closest to `expected` (usually the largest seen plus one).
///
/// Halfway cases take the larger number, as in RFC 9000 A.3; the result never leaves the range of `u64`.
#[inline]
#[must_use]
pub fn expand(low: u32, expected: u64) -> u64 {
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

/// The low 32 bits, as written in packets. The other side can expand them while fewer than 2^31 numbers are under way.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "truncation is the purpose")]
pub const fn truncate(full: u64) -> u32 {
    full as u32
}
