//! The order in which people find things: operations by family and name, whatever order they were
//! measured in (which is shuffled, so that a drift of the machine does not look like a difference
//! of operations), and the configuration that most was measured in before an odd one.

use std::cmp::Reverse;

use weir_distribution::{Bandwidth, Operation, Run};

use crate::digest::{Key, Level, Point, Profile};

/// Kinds of operations, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Between pairs of ranks.
    PointToPoint,
    /// All ranks together.
    Collective,
    /// An application.
    Kernel,
}

const POINT_TO_POINT: [&str; 9] = [
    Operation::PING_PONG,
    Operation::PING_PONG_FILLED,
    Operation::SEND,
    Operation::ISEND,
    Operation::ISENDLOCAL,
    Operation::SENDRECV,
    Operation::DUPLEX_ISEND,
    Operation::MESSAGE_RATE,
    Operation::OPEN_LOOP,
];
const KERNELS: [&str; 4] = [Operation::FARM, Operation::BOTS, Operation::FFT, Operation::JACOBI];

/// The family of an operation, given with or without its size mode; one of the future counts by
/// whether it has pairs.
#[must_use]
pub fn family(operation: &str, has_pairs: bool) -> Family {
    let bare = operation.strip_suffix("-each").or_else(|| operation.strip_suffix("-total")).unwrap_or(operation);
    match bare {
        name if KERNELS.contains(&name) => Family::Kernel,
        name if has_pairs || POINT_TO_POINT.contains(&name) => Family::PointToPoint,
        _ => Family::Collective,
    }
}

impl Profile {
    /// The family of its operation.
    #[must_use]
    pub fn family(&self) -> Family {
        family(&self.key.operation, self.levels.iter().any(|l| l.pairs > 0))
    }

    /// The bandwidth at one of its points; of an application only what was recorded, as with its
    /// size in its time nothing is transferred at a rate, and none where ranks computed meanwhile.
    #[must_use]
    pub fn bandwidth_of(&self, point: &Point) -> Option<Bandwidth> {
        let is_application = self.family() == Family::Kernel && point.recorded_bandwidth.is_none();
        let is_moved = !is_application && point.overlap.is_none();
        point.bandwidth().filter(|b| is_moved && b.p50_bytes_per_s.is_finite())
    }

    /// Cells at a level, each launch counted.
    #[must_use]
    pub fn cells_at(&self, level: usize) -> usize {
        self.at_level(level).map(|p| p.launches as usize).sum()
    }

    /// Cells at each level.
    #[must_use]
    pub fn cells(&self) -> Vec<usize> {
        (0..self.levels.len()).map(|l| self.cells_at(l)).collect()
    }
}

/// The level to show first, given the cells of each: that of the most cells; of several the
/// highest, since contention is what small benchmarks hide.
#[must_use]
pub fn main_level(cells: &[usize]) -> usize {
    (0..cells.len()).max_by_key(|l| cells[*l]).unwrap_or(0)
}

/// Levels one after the other: ascending, but those with less than half the cells of another at the
/// end.
#[must_use]
pub fn level_order(cells: &[usize]) -> Vec<usize> {
    let most = cells.iter().copied().max().unwrap_or(0);
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.sort_by_key(|l| 2 * cells[*l] < most);
    order
}

/// At most `limit` levels to draw, ascending: the lowest, the highest, some between, and the main
/// one in any case.
#[must_use]
pub fn drawn_levels(cells: &[usize], limit: usize) -> Vec<usize> {
    let main = main_level(cells);
    let mut chosen = spread_out((0..cells.len()).collect(), limit);
    if !chosen.contains(&main) && !chosen.is_empty() {
        // The ends stay, if there is room for more than they.
        let place = if chosen.len() > 2 { 1 } else { 0 };
        chosen[place] = main;
        chosen.sort_unstable();
    }
    chosen
}

/// At most `limit` things, evenly spread, the first and the last among them.
pub fn spread_out<T>(all: Vec<T>, limit: usize) -> Vec<T> {
    let n = all.len();
    if n <= limit || limit < 2 {
        return all.into_iter().take(limit).collect();
    }
    let mut wanted: Vec<usize> = (0..limit).map(|i| i * (n - 1) / (limit - 1)).collect();
    wanted.dedup();
    all.into_iter().enumerate().filter(|(i, _)| wanted.binary_search(i).is_ok()).map(|(_, t)| t).collect()
}

/// Puts operations in order and tells each of its points how finely the clock ticked.
pub fn arrange(run: &Run, profiles: &mut [Profile]) {
    profiles.sort_by_cached_key(|p| {
        let cells: usize = p.cells().iter().sum();
        (p.family(), p.key.operation.clone(), Reverse(cells), p.key.clone())
    });
    let clocks = run.launches.iter().filter_map(|l| l.clock.as_ref());
    let tick = clocks.filter_map(|c| c.resolution_ns).filter(|t| t.is_finite() && *t > 0.0).fold(0.0, f64::max);
    for profile in profiles {
        let tick = if is_halved(&profile.key) { tick / 2.0 } else { tick };
        profile.points.values_mut().for_each(|p| p.tick_ns = tick);
    }
}

/// Whether a sample is half of what was timed.
#[must_use]
pub fn is_halved(key: &Key) -> bool {
    key.operation == Operation::PING_PONG || key.operation == Operation::PING_PONG_FILLED
}

/// Cells of each level, given the level of each cell.
#[must_use]
pub fn count_levels(levels: &[Level], of_cells: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut counts = vec![0; levels.len()];
    for level in of_cells {
        if let Some(count) = counts.get_mut(level) {
            *count += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_follow_the_name_and_then_the_pairs() {
        for (operation, pairs, expected) in [
            ("ping-pong", true, Family::PointToPoint),
            ("gather-each", false, Family::Collective),
            ("fft", false, Family::Kernel),
            ("of-the-future", true, Family::PointToPoint),
            ("of-the-future-total", false, Family::Collective),
        ] {
            assert_eq!(family(operation, pairs), expected, "{operation}");
        }
        assert!(Family::PointToPoint < Family::Collective && Family::Collective < Family::Kernel);
    }

    #[test]
    fn an_odd_level_comes_last_and_is_not_shown_first() {
        assert_eq!(main_level(&[8, 1]), 0);
        assert_eq!(level_order(&[1, 8]), [1, 0]);
        assert_eq!(main_level(&[6, 6, 6]), 2, "of equal ones the highest");
        assert_eq!(level_order(&[6, 5, 6]), [0, 1, 2]);
        assert_eq!((main_level(&[]), level_order(&[])), (0, Vec::new()));
    }

    #[test]
    fn the_level_shown_first_is_always_drawn() {
        let cells = [1, 1, 1, 9, 1, 1, 1, 1];
        for limit in 1..=8 {
            let drawn = drawn_levels(&cells, limit);
            assert!(drawn.contains(&3) && drawn.len() == limit && drawn.is_sorted(), "{limit}: {drawn:?}");
        }
        assert_eq!(drawn_levels(&[4; 6], 2), [0, 5]);
        assert!(drawn_levels(&[], 4).is_empty());
    }

    #[test]
    fn ends_are_kept_when_some_are_chosen() {
        assert_eq!(spread_out((0..10).collect(), 4), [0, 3, 6, 9]);
        assert_eq!(spread_out((0..3).collect(), 9), [0, 1, 2]);
        assert_eq!(spread_out((0..3).collect(), 1), [0]);
        assert!(spread_out(Vec::<u8>::new(), 4).is_empty());
    }
}
