//! When a cell has been measured enough, and how many repetitions come next.

/// The limits of one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// So many repetitions with a good start, however long they take.
    pub repetitions: Option<u64>,
    /// Else until this much time has passed, ns.
    pub time_ns: f64,
    /// Or until the interval of the median is narrower than this fraction of it.
    pub relative_width: Option<f64>,
    /// Never more repetitions than memory is meant for.
    pub most: u64,
}

/// How a cell stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Repetitions made.
    pub done: u64,
    /// Those of them that do not count, as somebody missed the agreed start.
    pub missed: u64,
    /// Time spent, ns.
    pub elapsed_ns: f64,
    /// Repetitions of the last batch.
    pub last_count: u64,
    /// Time the last batch took, ns.
    pub last_ns: f64,
    /// Relative width of the interval of the median at the rank where it is widest.
    pub relative_width: Option<f64>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// So many repetitions.
    Batch(u64),
    /// Nothing; why.
    Enough(&'static str),
}

/// The first batch tells how long a repetition takes.
pub const PILOT: u64 = 2;
/// Fewer repetitions say nothing, and no time limit asks for them.
const LEAST: u64 = 10;
/// A batch is at most so many times the one before: the pilot holds what is slow only once.
const GROWTH: u64 = 8;
/// Batches a cell is cut into: between them ranks agree on going on.
const BATCHES: f64 = 8.0;
/// Longest batch: an interrupted run ends after it, and some launchers kill a second after they asked, ns.
const LONGEST_NS: f64 = 0.25e9;
/// The interval is believed from so many repetitions on.
const BELIEVED: u64 = 100;

impl Budget {
    /// What comes next.
    #[must_use]
    pub fn next(&self, p: &Progress) -> Next {
        // What was missed is made up for, but not for ever.
        let wanted = self.repetitions.map_or(self.most, |n| n + p.missed.min(n)).min(self.most);
        if p.done >= wanted {
            return Next::Enough(if self.repetitions.is_some() { "repetitions" } else { "samples" });
        }
        if p.done == 0 {
            return Next::Batch(PILOT.min(wanted));
        }
        let each_ns = (p.last_ns / p.last_count.max(1) as f64).max(1.0);
        let longest = LONGEST_NS / each_ns;
        if self.repetitions.is_some() {
            return Next::Batch(fitted(longest, p, wanted));
        }
        let narrow = p.relative_width.zip(self.relative_width).is_some_and(|(is, wanted)| is <= wanted);
        if narrow && p.done >= BELIEVED {
            return Next::Enough("confidence");
        }
        let left_ns = self.time_ns - p.elapsed_ns;
        if p.done < LEAST {
            return Next::Batch(fitted(longest.min(left_ns / BATCHES / each_ns), p, wanted).min(LEAST));
        }
        if left_ns < each_ns {
            return Next::Enough("time");
        }
        let slice_ns = (self.time_ns / BATCHES).min(left_ns);
        Next::Batch(fitted(longest.min(slice_ns / each_ns), p, wanted))
    }
}

fn fitted(count: f64, p: &Progress, wanted: u64) -> u64 {
    (count as u64).clamp(1, GROWTH * p.last_count.max(1)).min(wanted - p.done)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget { repetitions: None, time_ns: 1e9, relative_width: None, most: 1_000_000 };

    /// Measures with repetitions of so many ns; returns repetitions, time, the longest batch, and why it ended.
    fn play(
        budget: &Budget,
        each_ns: impl Fn(u64) -> f64,
        width: impl Fn(u64) -> f64,
    ) -> (u64, f64, f64, &'static str) {
        let mut p = Progress::default();
        let mut longest = 0.0f64;
        loop {
            match budget.next(&p) {
                Next::Enough(why) => return (p.done, p.elapsed_ns, longest, why),
                Next::Batch(count) => {
                    assert!(count > 0);
                    let took: f64 = (p.done..p.done + count).map(&each_ns).sum();
                    longest = longest.max(took);
                    let (done, elapsed_ns) = (p.done + count, p.elapsed_ns + took);
                    p = Progress {
                        done,
                        missed: 0,
                        elapsed_ns,
                        last_count: count,
                        last_ns: took,
                        relative_width: Some(width(done)),
                    };
                }
            }
        }
    }

    #[test]
    fn the_time_is_kept() {
        for each_ns in [100.0, 10_000.0, 1e6, 5e7] {
            let budget = Budget { most: u64::MAX, ..BUDGET };
            let (_, elapsed, _, why) = play(&budget, |_| each_ns, |_| 1.0);
            assert_eq!(why, "time");
            assert!((0.8e9..1.2e9).contains(&elapsed), "{each_ns}: {elapsed}");
        }
    }

    #[test]
    fn a_slow_beginning_does_not_fool_it() {
        let (done, elapsed, ..) = play(&BUDGET, |i| if i < 2 { 5e7 } else { 1000.0 }, |_| 1.0);
        assert!(done > 500_000 && elapsed < 1.3e9, "{done} {elapsed}");
    }

    #[test]
    fn even_slow_operations_are_repeated_a_little() {
        let (done, _, _, why) = play(&BUDGET, |_| 1e9, |_| 1.0);
        assert_eq!((done, why), (10, "time"));
    }

    #[test]
    fn a_number_of_repetitions_is_met_exactly_in_short_batches() {
        let budget = Budget { repetitions: Some(12_345), ..BUDGET };
        let (done, _, longest, why) = play(&budget, |_| 1e6, |_| 0.0);
        assert_eq!((done, why), (12_345, "repetitions"));
        assert!(longest <= 0.26e9);
    }

    #[test]
    fn missed_repetitions_are_made_up_for_once() {
        let budget = Budget { repetitions: Some(100), ..BUDGET };
        let at = |done, missed| {
            budget.next(&Progress { done, missed, last_count: 100, last_ns: 1e6, ..Progress::default() })
        };
        assert_eq!(at(100, 30), Next::Batch(30));
        assert_eq!(at(130, 30), Next::Enough("repetitions"));
        assert_eq!(at(200, 190), Next::Enough("repetitions"));
    }

    #[test]
    fn narrow_intervals_end_a_cell_early() {
        let budget = Budget { relative_width: Some(0.01), ..BUDGET };
        let (done, elapsed, _, why) = play(&budget, |_| 1e5, |done| 1.0 / (done as f64).sqrt());
        assert_eq!(why, "confidence");
        assert!(done >= 100 && elapsed < 1.1e9, "{done}");
        let early = play(&Budget { relative_width: Some(0.5), ..BUDGET }, |_| 1e5, |_| 0.0);
        assert!((100..1000).contains(&early.0), "{early:?}");
    }

    #[test]
    fn memory_bounds_the_repetitions() {
        let budget = Budget { most: 1000, ..BUDGET };
        let (done, _, _, why) = play(&budget, |_| 10.0, |_| 1.0);
        assert_eq!((done, why), (1000, "samples"));
    }
}
