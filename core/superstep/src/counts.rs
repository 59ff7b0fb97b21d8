//! How processes tell each other how much they are going to send, so that sizes are known before
//! data.
//!
//! All of them end in every process knowing what it gets from whom. They differ in what they cost,
//! and in what else is known then. All processes must use the same: [`choose`] goes by what all
//! know alike, never by what one of them has measured or is about to send.

/// An exchange of counts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Exchange {
    /// All rows to all, doubling: everybody knows the whole matrix (who is busy, who has the
    /// largest fan-in), in ceil(log2 p) rounds.
    Matrix,
    /// Each process its own column only, forwarded in ceil(log2 p) rounds (Bruck and others, 1997).
    Column,
    /// First how many there are to come, a sum over all that each gets its own part of (halving,
    /// ceil(log2 p) rounds of at most p counts of 2 bytes together); then one message from each
    /// sender to each receiver, and nothing between those that have nothing for each other.
    Sparse,
}

/// What an exchange costs one process.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Cost {
    /// Messages one after another.
    pub rounds: u32,
    /// Bytes that it sends.
    pub bytes: u64,
}

/// Bytes of a count: a length, and how many messages it is made of, packed.
pub const COUNT_BYTES: u64 = 8;

fn rounds(p: u32) -> u32 {
    p.max(1).next_power_of_two().trailing_zeros()
}

impl Exchange {
    /// The cost among `p` processes where none sends to, or gets from, more than `degree` others.
    #[must_use]
    pub fn cost(self, p: u32, degree: u32) -> Cost {
        let (n, log) = (u64::from(p), rounds(p));
        match self {
            _ if p < 2 => Cost { rounds: 0, bytes: 0 },
            // All rows but one's own, each of p counts, pass through each process.
            Exchange::Matrix => Cost { rounds: log, bytes: (n - 1) * n * COUNT_BYTES },
            // In each round half of the blocks.
            Exchange::Column => Cost { rounds: log, bytes: n.div_ceil(2) * u64::from(log) * COUNT_BYTES },
            // The sum: halves of p counts; then the counts themselves, which leave one after
            // another.
            Exchange::Sparse => {
                let degree = degree.min(p - 1);
                Cost { rounds: log + u32::from(degree > 0), bytes: n * 2 + u64::from(degree) * COUNT_BYTES }
            }
        }
    }
}

impl Cost {
    /// Time, if a round takes `round_ns` and a byte `byte_ns`.
    #[must_use]
    pub fn ns(&self, round_ns: f64, byte_ns: f64) -> f64 {
        f64::from(self.rounds) * round_ns + self.bytes as f64 * byte_ns
    }
}

/// Up to so many processes the whole matrix fits in a packet or two of each round: 16 KiB at 46.
/// More would cost more than a round trip of a fast network (10 us at 10 Gbit/s are 12 KB).
pub const MATRIX_MAX: u32 = 46;
/// Up to so many processes each one's column is cheaper than asking first how many there are to
/// come: a message more costs as much as 12 KB, and log2(p) p 4 bytes is that at 300.
pub const COLUMN_MAX: u32 = 300;

/// The exchange for `p` processes. The same wherever it is asked.
#[must_use]
pub fn choose(p: u32) -> Exchange {
    match p {
        _ if p <= MATRIX_MAX => Exchange::Matrix,
        _ if p <= COLUMN_MAX => Exchange::Column,
        _ => Exchange::Sparse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network of 10 Gbit/s whose messages take 10 us.
    const ROUND_NS: f64 = 10_000.0;
    const BYTE_NS: f64 = 0.8;

    fn ns(e: Exchange, p: u32) -> f64 {
        e.cost(p, 8).ns(ROUND_NS, BYTE_NS)
    }

    #[test]
    fn the_choice_is_within_a_round_of_the_cheapest_wherever_traffic_is_sparse() {
        for p in 1..5000 {
            let all = [Exchange::Matrix, Exchange::Column, Exchange::Sparse].map(|e| ns(e, p));
            let least = all.iter().copied().fold(f64::MAX, f64::min);
            assert!(ns(choose(p), p) <= least + 1.4 * ROUND_NS, "{p}: {} and {all:?}", ns(choose(p), p));
        }
    }

    #[test]
    fn no_process_has_work_of_the_square_of_many() {
        assert_eq!(Exchange::Matrix.cost(4, 3), Cost { rounds: 2, bytes: 96 });
        assert_eq!(Exchange::Column.cost(8, 7), Cost { rounds: 3, bytes: 96 });
        assert_eq!(Exchange::Sparse.cost(1024, 8), Cost { rounds: 11, bytes: 2112 });
        assert_eq!(Exchange::Sparse.cost(1, 8).rounds, 0);
        for p in [47, 64, 1024, 100_000] {
            assert!(choose(p).cost(p, 16).bytes < u64::from(p) * 100, "{p}");
        }
    }
}
