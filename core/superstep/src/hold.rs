//! How long a process that has its counts holds its data back (`spec/superstep.md` 2.4).
//!
//! Processes end the reduction at different times, up to all its rounds apart. What the first ones
//! send would stand in the switch before the reduction's last messages to the others: these begin
//! when that has drained, their own data delays the next, and a superstep of short messages takes
//! several times what its data takes (`docs/lab/2026-11-26-hold.md`).

/// Most that is held back. Where a message takes longer than this, it waits for a processor rather
/// than for a wire, and to hold back is of no use.
pub const MOST_NS: u64 = 200_000;

/// Who sends more in all does not hold back: long messages ask first, and only who has its own
/// counts grants.
pub const MOST_BYTES: u64 = 1 << 20;
/// So many hold back, and more.
const LEAST_PROCESSES: u32 = 5;
/// A round of the reduction takes this part of the least round trip: that is of full packets and
/// their acknowledgement, and the reduction's messages are short and go one way.
const ROUND_PART: u64 = 4;

/// How long a process of so many holds back what it sends, so many bytes in all: what the
/// reduction's messages take, one after another, at this least round trip (0: not known yet). Few
/// processes do not: the stagger is shorter than what is held back (4 x 4 KiB would take a quarter
/// longer).
#[must_use]
pub fn hold_ns(processes: u32, bytes: u64, least_round_trip_ns: u64) -> u64 {
    if processes < LEAST_PROCESSES || bytes == 0 || bytes > MOST_BYTES {
        return 0;
    }
    let rounds = u64::from(u32::BITS - (processes - 1).leading_zeros());
    (least_round_trip_ns / ROUND_PART).saturating_mul(rounds).min(MOST_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_way_for_each_round() {
        assert_eq!(
            [1, 2, 3, 4, 5, 8, 9, 1024].map(|p| hold_ns(p, 1, 20_000)),
            [0, 0, 0, 0, 15_000, 15_000, 20_000, 50_000]
        );
    }

    #[test]
    fn it_is_nothing_where_nothing_is_known_or_gained() {
        assert_eq!(hold_ns(1024, 1, 0), 0);
        assert_eq!((hold_ns(8, 0, 20_000), hold_ns(8, MOST_BYTES + 1, 20_000)), (0, 0));
        assert_eq!((hold_ns(8, MOST_BYTES, u64::MAX), hold_ns(u32::MAX, 1, u64::MAX)), (MOST_NS, MOST_NS));
    }
}
