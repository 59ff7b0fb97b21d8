//! When a cell has been measured enough, how many repetitions come next, and which share of a
//! launch's time is a cell's.
//!
//! A launch's time is shared equally among its cells. What a cell leaves, those after it may use.
//! Time for which the machine stands still does not count in the cell that it hits, which goes on
//! for its share; nor does what was spent on agreed starts that did not work. What a cell takes
//! beyond its share, be it such a stall or ten repetitions of something slow, is not taken from the
//! others as long as it is a quarter of the launch's time in all, by which the launch then takes
//! longer; beyond that the others give it up evenly, but each keeps half of its share whatever
//! comes.

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
    /// What a repetition takes, ns, of an operation that is to go on without a pause: whatever
    /// comes behind the first batch is one batch.
    pub unbroken_ns: Option<f64>,
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
    /// The same without a stall in it.
    pub usual_ns: f64,
    /// Relative width of the interval of the median at the rank where it is widest, if it was
    /// looked at after the last batch.
    pub relative_width: Option<f64>,
    /// Part of the time spent for which the machine stood still, ns.
    pub lost_ns: f64,
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
/// Longest batch: an interrupted run ends after it, and some launchers kill a second after they
/// asked, ns.
const LONGEST_NS: f64 = 0.25e9;
/// The interval is believed from so many repetitions on.
pub const BELIEVED: u64 = 100;

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
        if let Some(each_ns) = self.unbroken_ns {
            return self.rest(p, wanted, each_ns);
        }
        let each_ns = (p.usual_ns / p.last_count.max(1) as f64).max(1.0);
        // Whether what stalled the last batch has gone, the next one shows, which must not last
        // much longer than it may if not.
        let longest = LONGEST_NS / (p.last_ns / p.last_count.max(1) as f64).max(each_ns);
        if self.repetitions.is_some() {
            return Next::Batch(fitted(longest, p, wanted));
        }
        let narrow = p.relative_width.zip(self.relative_width).is_some_and(|(is, wanted)| is <= wanted);
        if narrow && p.done >= BELIEVED {
            return Next::Enough("confidence");
        }
        let left_ns = self.time_ns - (p.elapsed_ns - p.lost_ns);
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

impl Budget {
    /// All that is left to do, at once.
    fn rest(&self, p: &Progress, wanted: u64, each_ns: f64) -> Next {
        if self.repetitions.is_none() && p.done > PILOT {
            return Next::Enough("time");
        }
        let left = (self.time_ns - (p.elapsed_ns - p.lost_ns)) / each_ns;
        let count = if self.repetitions.is_some() { u64::MAX } else { (left as u64).max(LEAST) };
        Next::Batch(count.min(wanted - p.done))
    }
}

fn fitted(count: f64, p: &Progress, wanted: u64) -> u64 {
    (count as u64).clamp(1, GROWTH * p.last_count.max(1)).min(wanted - p.done)
}

/// A batch that took so many times as long as its repetitions usually take was stalled.
const STALL_FACTOR: f64 = 4.0;
/// Less than this is no stall: a scheduler's turn, a retransmission, ns.
const STALL_LEAST_NS: f64 = 20e6;
/// So many stalls of a cell are forgiven, the longest: where there are more, this is how fast the
/// machine is.
const STALLS: usize = 2;
/// From so many batches on, what is usual is not found anew after each.
const FEW_BATCHES: usize = 16;

/// The batches of a cell: what is usual for them, and what was lost to stalls.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// Repetitions of each batch, and its time, ns.
    batches: Vec<(u64, f64)>,
    /// Time of a repetition in the batch of the median, ns.
    usual_ns: f64,
    /// Batches of which that is so.
    judged: usize,
    /// The longest stalls, the longest first, ns.
    stalls: [f64; STALLS],
    /// Lost before the cell was begun anew, ns.
    before_ns: f64,
}

impl Pace {
    /// A batch was made.
    pub fn add(&mut self, count: u64, took_ns: f64) {
        self.batches.push((count.max(1), took_ns));
        let n = self.batches.len();
        if n > FEW_BATCHES && n < self.judged + self.judged / 4 {
            self.note(self.excess_ns(count.max(1), took_ns));
            return;
        }
        let mut each: Vec<f64> = self.batches.iter().map(|&(count, ns)| ns / count as f64).collect();
        // The lower one of two: of a stalled batch and another, the other is the usual one.
        self.usual_ns = *each.select_nth_unstable_by((n - 1) / 2, f64::total_cmp).1;
        self.judged = n;
        self.stalls = [0.0; STALLS];
        for i in 0..n {
            let (count, took_ns) = self.batches[i];
            self.note(self.excess_ns(count, took_ns));
        }
    }

    fn note(&mut self, stall_ns: f64) {
        if let Some(place) = self.stalls.iter().position(|longer| stall_ns > *longer) {
            self.stalls[place..].rotate_right(1);
            self.stalls[place] = stall_ns;
        }
    }

    fn excess_ns(&self, count: u64, took_ns: f64) -> f64 {
        let usual_ns = count as f64 * self.usual_ns;
        let excess_ns = took_ns - usual_ns;
        if took_ns > STALL_FACTOR * usual_ns && excess_ns > STALL_LEAST_NS { excess_ns } else { 0.0 }
    }

    /// What a batch would have taken without a stall, ns.
    #[must_use]
    pub fn without_stall_ns(&self, count: u64, took_ns: f64) -> f64 {
        took_ns - self.excess_ns(count.max(1), took_ns)
    }

    /// Time lost, ns.
    #[must_use]
    pub fn lost_ns(&self) -> f64 {
        self.before_ns + self.stalls.iter().sum::<f64>()
    }

    /// Time that stalls took since the cell was begun (anew), forgiven or not, ns.
    #[must_use]
    pub fn stalled_ns(&self) -> f64 {
        self.batches.iter().map(|&(count, took_ns)| self.excess_ns(count, took_ns)).sum()
    }

    /// The cell is begun anew in another way: what was usual is not any more, and the time spent so
    /// far, ns, is lost.
    pub fn begin_anew(&mut self, spent_ns: f64) {
        *self = Pace { before_ns: spent_ns, ..Pace::default() };
    }
}

/// By this part of its time a launch may take longer, so that what a cell takes beyond its share is
/// not the others' loss.
const ALLOWANCE: f64 = 0.25;
/// This part of its share a cell has whatever others took.
const SURE: f64 = 0.5;
/// A cell's end takes some time more than was meant, which is made up for by those after it; beyond
/// this part it is more than that.
const SLACK: f64 = 0.1;
/// The least that a cell gets, ns.
const LEAST_NS: f64 = 1e6;

/// What took time beside repetitions that count and are within their cell's share, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lost {
    /// The machine stood still.
    pub stalls_ns: f64,
    /// Repetitions whose agreed start somebody missed.
    pub missed_ns: f64,
    /// Cells before they were begun anew in another way.
    pub anew_ns: f64,
    /// Repetitions so slow that the fewest of them are longer than their cell's share.
    pub slow_ns: f64,
    /// Before and after a cell's repetitions: clocks are brought together, samples gathered and
    /// written.
    pub between_ns: f64,
}

impl Lost {
    /// Adds another cell's.
    pub fn add(&mut self, other: &Lost) {
        self.stalls_ns += other.stalls_ns;
        self.missed_ns += other.missed_ns;
        self.anew_ns += other.anew_ns;
        self.slow_ns += other.slow_ns;
        self.between_ns += other.between_ns;
    }

    /// The same of a cell that was given so much and took so much in all, ns, of which `elapsed_ns`
    /// went to repetitions.
    #[must_use]
    pub fn of_cell(self, given_ns: f64, elapsed_ns: f64, took_ns: f64) -> Lost {
        let told_ns = self.stalls_ns + self.missed_ns + self.anew_ns;
        let slow_ns = (elapsed_ns - told_ns - given_ns).max(0.0);
        Lost { slow_ns, between_ns: (took_ns - elapsed_ns).max(0.0), ..self }
    }
}

/// How a launch's time is shared among its cells.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    time_ns: f64,
    cells: usize,
    done: usize,
    /// What the cells that are done were given, and what they took, ns.
    given_ns: f64,
    spent_ns: f64,
    /// Of that, what cells took beyond what they were given, ns.
    beyond_ns: f64,
}

impl Shares {
    /// Of so much time among so many cells.
    #[must_use]
    pub fn new(time_ns: f64, cells: usize) -> Shares {
        Shares { time_ns, cells, done: 0, given_ns: 0.0, spent_ns: 0.0, beyond_ns: 0.0 }
    }

    /// What the next cell may take, ns.
    #[must_use]
    pub fn next_ns(&self) -> f64 {
        let to_come = self.cells.saturating_sub(self.done).max(1) as f64;
        let allowed_ns = self.beyond_ns.min(ALLOWANCE * self.time_ns);
        let even_ns = (self.time_ns + allowed_ns - self.spent_ns) / to_come;
        let sure_ns = SURE * self.time_ns / self.cells.max(1) as f64;
        even_ns.max(sure_ns).max(LEAST_NS)
    }

    /// The next cell, which was given so much, took so much, with all that belongs to it.
    pub fn took(&mut self, given_ns: f64, took_ns: f64) {
        self.done += 1;
        self.given_ns += given_ns;
        self.spent_ns += took_ns;
        self.beyond_ns += (took_ns - (1.0 + SLACK) * given_ns).max(0.0);
    }

    /// What the cells to come take together, as it seems, ns: where those that are done took longer
    /// than they were given, as on a busy machine, the others will too.
    #[must_use]
    pub fn left_ns(&self) -> f64 {
        let longer = if self.given_ns > 0.0 { (self.spent_ns / self.given_ns).max(1.0) } else { 1.0 };
        self.next_ns() * longer * self.cells.saturating_sub(self.done) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget =
        Budget { repetitions: None, time_ns: 1e9, relative_width: None, most: 1_000_000, unbroken_ns: None };

    /// Measures with repetitions of so many ns; returns repetitions, time, the longest batch, and
    /// why it ended.
    fn play(
        budget: &Budget,
        each_ns: impl Fn(u64) -> f64,
        width: impl Fn(u64) -> f64,
    ) -> (u64, f64, f64, &'static str) {
        let (mut p, mut pace) = (Progress::default(), Pace::default());
        let mut longest = 0.0f64;
        loop {
            match budget.next(&p) {
                Next::Enough(why) => return (p.done, p.elapsed_ns, longest, why),
                Next::Batch(count) => {
                    assert!(count > 0);
                    let took: f64 = (p.done..p.done + count).map(&each_ns).sum();
                    longest = longest.max(took);
                    let (done, elapsed_ns) = (p.done + count, p.elapsed_ns + took);
                    pace.add(count, took);
                    p = Progress {
                        done,
                        missed: 0,
                        elapsed_ns,
                        last_count: count,
                        last_ns: took,
                        usual_ns: pace.without_stall_ns(count, took),
                        relative_width: Some(width(done)),
                        lost_ns: pace.lost_ns(),
                    };
                }
            }
        }
    }

    #[test]
    fn what_is_to_go_on_without_a_pause_is_one_batch() {
        let time = Budget { unbroken_ns: Some(1e6), ..BUDGET };
        // The first two, then all others.
        assert_eq!(play(&time, |_| 1e6, |_| 0.0), (1000, 1e9, 998e6, "time"));
        let counted = Budget { repetitions: Some(5000), ..time };
        assert_eq!(play(&counted, |_| 1e6, |_| 0.0), (5000, 5e9, 4998e6, "repetitions"));
        let short = Budget { time_ns: 1.0, ..time };
        assert_eq!(play(&short, |_| 1e6, |_| 0.0).0, 12);
        let few = Budget { most: 100, ..time };
        assert_eq!(play(&few, |_| 1e6, |_| 0.0).0, 100);
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
    fn a_cell_that_a_stall_hit_has_its_share_all_the_same() {
        let plain = play(&BUDGET, |_| 1e5, |_| 1.0).0;
        // At the very beginning, in the second batch, in the middle, at the end: ten times the
        // cell's time.
        for at in [0, 1, 5, 100, 5000, plain - 10] {
            let (done, elapsed, _, why) = play(&BUDGET, |i| if i == at { 1e10 } else { 1e5 }, |_| 1.0);
            assert_eq!(why, "time");
            assert!(done * 10 > plain * 8, "{done} of {plain} repetitions with a stall at {at}");
            assert!(elapsed < 1.13e10, "{elapsed}");
        }
    }

    #[test]
    fn what_stalls_again_and_again_is_just_slow() {
        // Three of ten repetitions wait for a time-out.
        let (_, elapsed, ..) = play(&BUDGET, |i| if i % 10 < 3 { 0.3e9 } else { 1e5 }, |_| 1.0);
        assert!(elapsed < 4e9, "{elapsed}");
        let mut pace = Pace::default();
        for _ in 0..1000 {
            pace.add(100, 1e6);
            pace.add(100, 1e9);
        }
        assert!(pace.lost_ns() < 2.0 * 1e9, "{}", pace.lost_ns());
    }

    #[test]
    fn a_stall_is_seen_late_in_a_long_cell_too() {
        let mut pace = Pace::default();
        (0..1001).for_each(|_| pace.add(100, 1e6));
        pace.add(100, 5e9);
        assert_eq!((pace.lost_ns(), pace.without_stall_ns(100, 5e9)), (4.999e9, 1e6));
        pace.add(100, 9e9);
        pace.add(100, 2e9);
        assert_eq!(pace.lost_ns(), 4.999e9 + 8.999e9, "the longest two");
        pace.begin_anew(20e9);
        pace.add(10, 1e9);
        assert_eq!(pace.lost_ns(), 20e9, "one batch tells nothing");
    }

    /// Plays a launch of ten cells in 10 s; what each was given, in s, and the time in all.
    fn given(took_s: impl Fn(usize, f64) -> f64) -> (Vec<f64>, f64) {
        let mut shares = Shares::new(10e9, 10);
        let mut given = Vec::new();
        for cell in 0..10 {
            let next_ns = shares.next_ns();
            given.push((next_ns / 1e6).round() / 1e3);
            shares.took(next_ns, 1e9 * took_s(cell, next_ns / 1e9));
        }
        (given, shares.spent_ns / 1e9)
    }

    #[test]
    fn what_a_cell_leaves_the_others_may_use() {
        let (given, all) = given(|cell, share| if cell == 0 { 0.1 } else { share });
        assert_eq!((given[0], given[1], given[9]), (1.0, 1.1, 1.1));
        assert!((all - 10.0).abs() < 0.01, "{all}");
    }

    #[test]
    fn where_cells_take_longer_than_their_share_more_time_is_left_than_the_shares_to_come() {
        let mut shares = Shares::new(10e9, 10);
        assert!((shares.left_ns() - 10e9).abs() < 1.0);
        for _ in 0..2 {
            shares.took(shares.next_ns(), 4.0 * shares.next_ns());
        }
        let others = shares.next_ns() * 8.0;
        assert!((shares.left_ns() - 4.0 * others).abs() < 1.0, "{}", shares.left_ns());
    }

    #[test]
    fn what_a_cell_takes_beyond_its_share_is_not_the_others_loss_within_the_allowance() {
        let (given, all) = given(|cell, share| if cell == 3 { share + 2.0 } else { share });
        assert!(given.iter().all(|s| *s > 0.97), "{given:?}");
        assert!(all < 12.5, "{all}");
    }

    #[test]
    fn beyond_the_allowance_each_keeps_half_of_its_share() {
        let stalled = |for_s: f64| given(move |cell, share| if cell == 3 { share + for_s } else { share });
        // 1.5 s of 4 are beyond the allowance: six cells share the loss.
        let (four, all) = stalled(4.0);
        assert!(four[4..].iter().all(|s| (0.7..0.8).contains(s)), "{four:?}");
        assert!(all < 12.6, "{all}");
        let (hour, all) = stalled(3600.0);
        assert!(hour[4..].iter().all(|s| *s == 0.5), "{hour:?}");
        assert!(all < 3608.0, "{all}");
    }

    #[test]
    fn small_overruns_of_every_cell_do_not_make_a_launch_longer() {
        let (_, all) = given(|_, share| share * 1.08);
        assert!(all < 10.2, "{all}");
    }

    #[test]
    fn a_machine_that_becomes_slow_holds_no_more_than_one_batch_up() {
        // Others want the processors from the 100 000th repetition on: each takes a thousand times
        // as long.
        let budget = Budget { time_ns: 100e9, ..BUDGET };
        let (mut p, mut pace, mut long) = (Progress::default(), Pace::default(), 0);
        while let Next::Batch(count) = budget.next(&p) {
            let took: f64 = (p.done..p.done + count).map(|i| if i < 100_000 { 2e3 } else { 2e6 }).sum();
            long += u32::from(took > 2.0 * LONGEST_NS);
            pace.add(count, took);
            p = Progress {
                done: p.done + count,
                elapsed_ns: p.elapsed_ns + took,
                last_count: count,
                last_ns: took,
                usual_ns: pace.without_stall_ns(count, took),
                lost_ns: pace.lost_ns(),
                ..Progress::default()
            };
        }
        assert_eq!(long, 1);
    }

    #[test]
    fn what_a_cell_took_is_told_apart() {
        let lost = Lost { stalls_ns: 3e9, missed_ns: 1e9, anew_ns: 2e9, ..Lost::default() };
        let lost = lost.of_cell(5e9, 12e9, 12.5e9);
        assert_eq!((lost.slow_ns, lost.between_ns), (1e9, 0.5e9));
        let mut pace = Pace::default();
        (0..10).for_each(|_| pace.add(100, 1e6));
        (0..5).for_each(|_| pace.add(100, 1e9));
        // All of them, not the longest two that are forgiven.
        assert_eq!(pace.stalled_ns(), 5.0 * 0.999e9);
        pace.begin_anew(5e9);
        assert_eq!(pace.stalled_ns(), 0.0);
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
            let p = Progress { done, missed, last_count: 100, last_ns: 1e6, usual_ns: 1e6, ..Progress::default() };
            budget.next(&p)
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
