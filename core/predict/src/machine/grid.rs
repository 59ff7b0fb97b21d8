//! Measured distributions by size and contention, and what lies between and beyond them.

use super::path::Draw;
use crate::Quantiles;

/// What a message meets on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Messages in flight on the fullest of its links, itself included.
    pub messages: u32,
    /// Bytes per second of the slowest of its links if it were alone there; infinite without a
    /// limit.
    pub alone_bytes_per_s: f64,
    /// The least share of a link, in bytes per second, that it has there among the messages in
    /// flight.
    pub share_bytes_per_s: f64,
}

impl Level {
    /// Nothing else is there.
    pub const ALONE: Self = Self { messages: 1, alone_bytes_per_s: f64::INFINITY, share_bytes_per_s: f64::INFINITY };
}

/// How often, and how far, a draw went beyond what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Beyond {
    /// Draws for sizes above the largest measured.
    pub sizes: u64,
    /// The largest of these, in bytes.
    pub size_max: u64,
    /// Draws for more messages in flight than were measured.
    pub levels: u64,
    /// The most of these.
    pub level_max: u32,
    /// Draws for fewer than were measured.
    pub below: u64,
    /// The fewest of these.
    pub below_min: u32,
}

impl Beyond {
    /// Counts what came since `before` so many times more.
    pub(crate) fn repeat_since(&mut self, before: &Self, times: u64) {
        let all = [(&mut self.sizes, before.sizes), (&mut self.levels, before.levels), (&mut self.below, before.below)];
        for (now, before) in all {
            *now = now.saturating_add((*now - before).saturating_mul(times));
        }
    }
}

/// Distributions in nanoseconds, by contention level (messages in flight at once) and size in
/// bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// Both rising; no list is empty.
    levels: Vec<(u32, Vec<(u64, Quantiles)>)>,
    /// It holds for any level: a figure said so.
    any_level: bool,
}

/// Where a number stands between two of a rising list: the lower's index, and the share of the way
/// to the next. Above 1 beyond the last.
struct Between(usize, f64);

impl Grid {
    /// Of (level, size, distribution), in any order; of several for the same place the first
    /// counts. `None` without any.
    #[must_use]
    pub fn new(mut cells: Vec<(u32, u64, Quantiles)>) -> Option<Self> {
        cells.sort_by_key(|c| (c.0, c.1));
        cells.dedup_by_key(|c| (c.0, c.1));
        let mut levels: Vec<(u32, Vec<(u64, Quantiles)>)> = Vec::new();
        for (level, size, table) in cells {
            match levels.last_mut() {
                Some((last, sizes)) if *last == level => sizes.push((size, table)),
                _ => levels.push((level, vec![(size, table)])),
            }
        }
        if levels.is_empty() { None } else { Some(Self { levels, any_level: false }) }
    }

    /// The same, known to hold for any level: no draw is beyond.
    #[must_use]
    pub fn for_any_level(self) -> Self {
        Self { any_level: true, ..self }
    }

    /// The least time of a size without contention: the least recorded at the lowest level, between
    /// sizes on a straight line.
    #[must_use]
    pub fn least(&self, bytes: u64) -> f64 {
        along(&self.levels[0].1, bytes, Draw::Least, 0.0)
    }

    /// The levels for which there are distributions, rising.
    pub fn levels(&self) -> impl Iterator<Item = u32> + '_ {
        self.levels.iter().map(|l| l.0)
    }

    /// The sizes at a level, rising.
    pub fn sizes_at(&self, level: u32) -> impl Iterator<Item = u64> + '_ {
        self.levels.iter().filter(move |l| l.0 == level).flat_map(|l| &l.1).map(|s| s.0)
    }

    /// The distribution at a place, if it was measured.
    #[must_use]
    pub fn cell(&self, level: u32, size: u64) -> Option<&Quantiles> {
        let sizes = &self.levels.iter().find(|l| l.0 == level)?.1;
        sizes.iter().find(|s| s.0 == size).map(|s| &s.1)
    }

    /// Only the lowest level: what a benchmark of two processes knows.
    #[must_use]
    pub fn lowest(&self) -> Self {
        Self { levels: vec![self.levels[0].clone()], any_level: self.any_level }
    }

    /// A draw in nanoseconds. Between sizes, and between levels, quantiles are on a straight line:
    /// the same `unit` is looked up in each neighbour. Below the smallest size and the lowest level
    /// it is theirs; above the highest level that one's; above the largest size the line through
    /// the last two goes on. What lies outside of the levels, or above the sizes, is counted in
    /// `beyond`.
    pub fn draw(&self, bytes: u64, level: Level, draw: Draw, unit: f64, beyond: &mut Beyond) -> f64 {
        let messages = level.messages;
        let Between(i, share) = between(self.levels.len(), |i| u64::from(self.levels[i].0), u64::from(messages));
        let (lowest, highest) = (self.levels[0].0, self.levels[self.levels.len() - 1].0);
        if messages > highest && !self.any_level {
            beyond.levels += 1;
            beyond.level_max = beyond.level_max.max(messages);
        }
        if messages < lowest && !self.any_level {
            beyond.below_min = if beyond.below == 0 { messages } else { beyond.below_min.min(messages) };
            beyond.below += 1;
        }
        let sizes = &self.levels[i].1;
        if bytes > sizes[sizes.len() - 1].0 {
            beyond.sizes += 1;
            beyond.size_max = beyond.size_max.max(bytes);
        }
        let low = along(sizes, bytes, draw, unit);
        if share <= 0.0 {
            return low;
        }
        let share = share.min(1.0);
        low + (along(&self.levels[i + 1].1, bytes, draw, unit) - low) * share
    }
}

fn between(len: usize, at: impl Fn(usize) -> u64, wanted: u64) -> Between {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = usize::midpoint(low, high);
        if at(middle) <= wanted { low = middle + 1 } else { high = middle }
    }
    // `low` is now how many are at or below.
    match low {
        0 => Between(0, 0.0),
        _ if len == 1 => Between(0, 0.0),
        n => {
            let i = (n - 1).min(len - 2);
            let (a, b) = (at(i), at(i + 1));
            Between(i, (wanted - a) as f64 / (b - a) as f64)
        }
    }
}

fn along(sizes: &[(u64, Quantiles)], bytes: u64, draw: Draw, unit: f64) -> f64 {
    let Between(i, share) = between(sizes.len(), |i| sizes[i].0, bytes);
    let low = draw.of(&sizes[i].1, unit);
    if share <= 0.0 {
        return low;
    }
    let high = draw.of(&sizes[i + 1].1, unit);
    let on = low + (high - low) * share;
    // Beyond the largest the line may go up only.
    if share > 1.0 { on.max(high) } else { on }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let even = |low: f64, high: f64| Quantiles::of_bins(&[(low, high, 1.0)]).unwrap();
        Grid::new(vec![
            (4, 1000, even(4000.0, 8000.0)),
            (1, 0, even(1000.0, 2000.0)),
            (1, 1000, even(2000.0, 4000.0)),
            (4, 0, even(1000.0, 6000.0)),
        ])
        .unwrap()
    }

    fn draw(bytes: u64, messages: u32, unit: f64) -> (f64, Beyond) {
        let mut beyond = Beyond::default();
        let level = Level { messages, ..Level::ALONE };
        (grid().draw(bytes, level, Draw::Full, unit, &mut beyond), beyond)
    }

    #[test]
    fn between_sizes_and_levels_quantiles_are_on_straight_lines() {
        assert_eq!(draw(0, 1, 0.5).0, 1500.0);
        assert_eq!(draw(500, 1, 0.5).0, 2250.0);
        assert_eq!(draw(1000, 2, 0.0).0, 2000.0 + 2000.0 / 3.0);
        assert_eq!(draw(500, 4, 1.0).0, 7000.0);
        assert_eq!(draw(500, 4, 1.0).1, Beyond::default());
    }

    #[test]
    fn beyond_is_counted() {
        let (value, beyond) = draw(3000, 9, 0.0);
        assert_eq!(value, 10_000.0);
        assert_eq!(beyond, Beyond { sizes: 1, size_max: 3000, levels: 1, level_max: 9, ..Beyond::default() });
    }

    #[test]
    fn one_level_has_what_is_beyond_it_too_unless_it_holds_for_any() {
        let one = || Grid::new(vec![(4, 0, Quantiles::constant(1000.0))]).unwrap();
        let beyond = |grid: &Grid, messages| {
            let mut beyond = Beyond::default();
            grid.draw(0, Level { messages, ..Level::ALONE }, Draw::Full, 0.5, &mut beyond);
            beyond
        };
        assert_eq!(beyond(&one(), 4), Beyond::default());
        assert_eq!(beyond(&one(), 64), Beyond { levels: 1, level_max: 64, ..Beyond::default() });
        assert_eq!(beyond(&one(), 2), Beyond { below: 1, below_min: 2, ..Beyond::default() });
        assert_eq!(beyond(&one().for_any_level(), 64), Beyond::default());
    }

    #[test]
    fn the_least_is_of_the_lowest_level() {
        assert_eq!(grid().least(500), 1500.0);
        assert_eq!(grid().lowest().levels().count(), 1);
    }
}
