//! Rank 0's part in measuring a cell: it decides what comes after each batch, and learns from what
//! all say of the last one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use weir_clock::{Outcome, WindowConfig, Windows};
use weir_distribution::StartSync;

use crate::budget::{Budget, Lost, Next, Pace, Progress};
use crate::cell::{Failure, Measured, Noted};
use crate::collect::{self, Rules};
use crate::plan::Spec;

/// The widest windows, ns: several retransmission time-outs.
const WIDEST_NS: f64 = 2e9;
/// No cell needs less, ns.
const LEAST_WIDEST_NS: f64 = 1e6;
/// All windows together of a cell whose repetitions are counted, if each is missed no more than
/// once, ns.
const COUNTED_NS: f64 = 10e9;
/// When more than half of so many agreed starts were missed, windows do not work here.
const JUDGED_WINDOWS: u64 = 200;
/// The same when four of five of so many were missed, although windows have grown since the first
/// of them.
const HOPELESS_WINDOWS: u64 = 30;
/// All windows of a plan together, ns: who is kept from the processor for some milliseconds misses
/// those of one plan only.
const PLAN_NS: i64 = 20_000_000;
/// Windows in a plan, if they last no longer than [`LONGEST_PLAN_NS`] together.
const LEAST_WINDOWS: i64 = 16;
/// Nobody looks whether to stop before a plan is over, ns.
pub(crate) const LONGEST_PLAN_NS: i64 = 250_000_000;
/// Windows in a plan however wide they are: from the second on it shows whether they are wide
/// enough.
const FEWEST_WINDOWS: i64 = 2;
/// How often what did not count is made up for: what is found to be warm-up may change with every
/// repetition more.
const ROUNDS: u32 = 4;
/// At most half of the repetitions is taken for warm-up, in whole batches of some: twice as many as
/// asked for and so many more are enough.
const ENOUGH_FOR_WARM_UP: u64 = 16;
/// The most windows that a plan can have.
pub(crate) const MOST_WINDOWS: usize = 400;
/// Repetitions that must fit into a cell's time.
const FEWEST: f64 = 100.0;
/// The same where windows are used whatever comes: better few repetitions than none that began
/// together.
const FEWEST_FIXED: f64 = 10.0;
/// Fewer repetitions that began together are next to nothing.
const HANDFUL: f64 = FEWEST / 2.0;
/// When windows have had this part of a cell's time, most of them missed and hardly any left,
/// barriers get the rest, and what was lost.
const TRIAL: f64 = 0.25;
/// Windows that take no more than this part of a cell's time together are planned in one go: fewer
/// say little of how wide they must be.
const CHEAP: f64 = 1.0 / 16.0;
/// Where windows must be used and have left next to nothing, a cell goes on by such parts of its
/// time, for as long again.
const EXTENSION: f64 = 1.0 / 8.0;

/// What rank 0 tells all at the end of each batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Batch {
        count: u32,
        windows: Option<(i64, i64)>,
    },
    /// Clocks are brought together before the next batch.
    Resync,
    /// Windows do not work: what was measured so far does not count, and repetitions are begun by a
    /// barrier from now on.
    Afresh,
    Enough {
        why: String,
    },
    /// Somebody was asked to stop, or failed outside of an operation: nothing of this cell is kept.
    Drop,
}

/// What each rank tells rank 0 at the end of each batch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Word {
    pub stopped: bool,
    pub width: Option<f64>,
    /// Agreed starts that this rank missed, by their place in the batch.
    pub missed: Vec<u32>,
    /// They were one run, and wider windows would not have helped.
    pub stall: bool,
    pub shortest_ns: i64,
    pub longest_ns: i64,
    pub latest_ns: i64,
    /// Bound on the error of this rank's clock while the next plan lasts.
    pub error_ns: f64,
}

/// Rank 0's part.
pub(crate) struct Leader {
    budget: Budget,
    progress: Progress,
    pace: Pace,
    /// Whether the last batch's words were not looked at yet.
    unlearnt: bool,
    windows: Option<Windows>,
    config: WindowConfig,
    may_fall_back: bool,
    /// The cell's share of the launch's time, ns.
    share_ns: f64,
    /// How long the operation takes where nothing delays it, ns.
    operation_ns: f64,
    windows_failed: Option<Failure>,
    window_ns: Option<f64>,
    /// Agreed starts so far, and those of them that were missed.
    planned: u64,
    agreed_ns: Vec<Option<i64>>,
    lost: u64,
    /// Time of repetitions that were missed, and of what was before the cell was begun anew, ns.
    missed_ns: f64,
    anew_ns: f64,
    start: StartSync,
    /// When the budget began to count.
    begun_ns: i64,
    /// When what is kept of the cell began.
    kept_ns: i64,
    batch_ns: i64,
    pilot: usize,
    /// Repetitions that shall count, if so many are asked for, and how often what does not may
    /// still be made up for.
    asked: u64,
    rounds: u32,
}

impl Leader {
    pub fn new(spec: &Spec, mut budget: Budget, rules: &Rules, may_fall_back: bool, now_ns: i64) -> Leader {
        let asked = budget.repetitions.unwrap_or(0);
        // What is known not to count comes on top at once.
        let warm_up = collect::certain_warm_up(spec.start, rules, asked);
        budget.repetitions = budget.repetitions.map(|n| n + warm_up);

        // Windows so wide that few repetitions fit into the time are worse than a barrier.
        let fewest = if may_fall_back { FEWEST } else { FEWEST_FIXED };
        let config = WindowConfig { width_max_ns: widest_ns(&budget, fewest), ..WindowConfig::default() };
        let windows = (spec.start == StartSync::Window).then(|| Windows::new(config, 0));
        Leader {
            budget,
            progress: Progress::default(),
            pace: Pace::default(),
            unlearnt: false,
            windows,
            config,
            may_fall_back,
            share_ns: budget.time_ns,
            operation_ns: f64::INFINITY,
            windows_failed: None,
            window_ns: None,
            planned: 0,
            agreed_ns: Vec::new(),
            lost: 0,
            missed_ns: 0.0,
            anew_ns: 0.0,
            start: spec.start,
            begun_ns: now_ns,
            kept_ns: now_ns,
            batch_ns: now_ns,
            pilot: 0,
            asked,
            rounds: ROUNDS,
        }
    }

    /// Whether so many repetitions that count are too few of those asked for, and more are to be
    /// made.
    pub fn again(&mut self, counted: u64) -> bool {
        let short = self.asked.saturating_sub(counted);
        let goes = short > 0 && self.rounds > 1 && self.progress.done < self.budget.most;
        if goes {
            self.rounds -= 1;
            self.progress.last_count = 0;
            self.progress.missed = 0;
            let twice = self.asked.saturating_mul(2).saturating_add(ENOUGH_FOR_WARM_UP);
            let wanted = (self.progress.done + short).max(if self.rounds == 1 { twice } else { 0 });
            // Not for ever: nobody waits for three times what was asked for.
            let most = self.asked.saturating_mul(3).max(twice);
            self.budget.repetitions = Some(wanted.min(most).max(self.progress.done));
        }
        goes
    }

    /// Decides what comes after a batch. `due`: the clocks are to be brought together before the
    /// next one.
    pub fn order(&mut self, words: &[Word], now_ns: i64, due: bool) -> Order {
        if words.iter().any(|word| word.stopped) {
            return Order::Drop;
        }
        if std::mem::take(&mut self.unlearnt) {
            self.learn(words, now_ns);
        }
        let mut next = self.budget.next(&self.progress);
        if self.windows.is_some() && self.may_fall_back {
            if matches!(next, Next::Enough(_)) && self.has_too_little() {
                self.windows_failed.get_or_insert(Failure::Few);
            }
            if self.windows_failed.is_some() {
                self.fall_back(now_ns);
                return Order::Afresh;
            }
        }
        while matches!(next, Next::Enough(_)) && self.goes_on() {
            next = self.budget.next(&self.progress);
        }
        match next {
            Next::Enough(why) => Order::Enough { why: why.to_owned() },
            Next::Batch(_) if due => Order::Resync,
            Next::Batch(count) => self.batch(count, words, now_ns),
        }
    }

    /// Repetitions that began together.
    fn together(&self) -> u64 {
        self.planned - self.lost
    }

    /// Whether windows left so little, now that the cell is over, that barriers would give far
    /// more.
    fn has_too_little(&self) -> bool {
        if self.planned == 0 {
            return false;
        }
        if let Some(wanted) = self.budget.repetitions {
            return 2 * self.together() < wanted;
        }
        let more_would_fit = 2.0 * FEWEST * self.operation_ns < self.share_ns;
        (self.together() as f64) < HANDFUL && (more_would_fit || 4 * self.lost > self.planned)
    }

    /// Whether a cell that must use windows, and has next to nothing by them, goes on; gives it the
    /// time.
    fn goes_on(&mut self) -> bool {
        let goes = self.windows.is_some()
            && self.budget.repetitions.is_none()
            && self.progress.done < self.budget.most
            && (self.together() as f64) < FEWEST_FIXED
            && self.budget.time_ns < 2.0 * self.share_ns;
        if goes {
            self.budget.time_ns += EXTENSION * self.share_ns;
        }
        goes
    }

    /// Windows that a plan has at least: so many as cost next to nothing.
    fn cheap_windows(&self) -> u64 {
        let Some(windows) = self.windows.as_ref().filter(|_| self.progress.done > 0) else { return 0 };
        if self.budget.repetitions.is_some() {
            return 0;
        }
        let fit = CHEAP * self.share_ns / windows.width_ns().max(1) as f64;
        (fit as u64).min(LEAST_WINDOWS.unsigned_abs()).min(self.budget.most - self.progress.done)
    }

    fn batch(&mut self, count: u64, words: &[Word], now_ns: i64) -> Order {
        let fit = self.windows.as_ref().map(|windows| windows_in_plan(windows.width_ns()));
        let fit = fit.map_or(u64::MAX, |fit| fit.min(MOST_WINDOWS as u64));
        let count = count.max(self.cheap_windows()).min(fit).min(u64::from(u32::MAX)) as u32;
        self.progress.last_count = u64::from(count);
        self.unlearnt = true;
        self.batch_ns = now_ns;
        // The first repetitions make connections: what they take says nothing of windows.
        let windows = self.windows.as_ref().filter(|_| self.progress.done > 0);
        let clock_error_ns = words.iter().map(|word| word.error_ns).fold(0.0, f64::max);
        let plan = windows.map(|windows| windows.plan(now_ns, count, clock_error_ns));
        self.window_ns = plan.map(|plan| plan.width_ns as f64).or(self.window_ns);
        if self.windows.is_some() {
            self.agreed_ns.extend((0..count).map(|k| plan.map(|plan| plan.start_ns(k))));
        }
        Order::Batch { count, windows: plan.map(|plan| (plan.first_ns, plan.width_ns)) }
    }

    /// Begins the cell anew, by barriers: repetitions that began in two ways are no one
    /// distribution. As with a stall, the time that was spent is not taken from those to come.
    fn fall_back(&mut self, now_ns: i64) {
        let elapsed_ns = self.progress.elapsed_ns;
        self.pace.begin_anew(elapsed_ns);
        self.progress = Progress { elapsed_ns, lost_ns: self.pace.lost_ns(), ..Progress::default() };
        (self.anew_ns, self.missed_ns) = (elapsed_ns, 0.0);
        self.windows = None;
        self.start = StartSync::Barrier;
        self.window_ns = None;
        self.agreed_ns = Vec::new();
        self.pilot = 0;
        self.kept_ns = now_ns;
    }

    fn learn(&mut self, words: &[Word], now_ns: i64) {
        let p = &mut self.progress;
        let pilot = p.done == 0;
        if pilot {
            self.pilot = p.last_count as usize;
        }
        p.done += p.last_count;
        let took_ns = (now_ns - self.batch_ns) as f64;
        self.pace.add(p.last_count, took_ns);
        p.last_ns = took_ns;
        (p.usual_ns, p.lost_ns) = (self.pace.without_stall_ns(p.last_count, took_ns), self.pace.lost_ns());
        p.elapsed_ns = (now_ns - self.begun_ns) as f64;
        let widths = words.iter().filter_map(|word| word.width);
        p.relative_width = widths.fold(None, |most: Option<f64>, width| Some(most.map_or(width, |m| m.max(width))));
        let shortest_ns = words.iter().map(|word| word.shortest_ns).max().unwrap_or(0);
        self.operation_ns = self.operation_ns.min(shortest_ns as f64);
        let Some(windows) = &mut self.windows else { return };
        if pilot {
            let usual_ns = words.iter().map(|word| word.longest_ns).max().unwrap_or(0);
            self.config.width_max_ns = self.config.width_max_ns.max(holding_ns(usual_ns));
            *windows = Windows::new(self.config, usual_ns);
            return;
        }
        // Missed at one is missed at all.
        let union = |of: &dyn Fn(&&Word) -> bool| -> BTreeSet<u32> {
            words.iter().filter(of).flat_map(|word| word.missed.iter().copied()).collect()
        };
        let (all, narrow) = (union(&|_| true), union(&|word| !word.stall));
        windows.learn(&Outcome {
            windows: u32::try_from(p.last_count).unwrap_or(u32::MAX),
            missed_first: all.contains(&0),
            missed_later: narrow.iter().filter(|&&k| k > 0).count() as u32,
            longest_ns: words.iter().map(|word| word.longest_ns).max().unwrap_or(0),
            latest_ns: words.iter().map(|word| word.latest_ns).max().unwrap_or(0),
        });
        p.missed += all.len() as u64;
        self.missed_ns += p.usual_ns * all.len() as f64 / p.last_count.max(1) as f64;
        self.lost += all.len() as u64;
        self.planned += p.last_count;
        let mostly = self.planned >= JUDGED_WINDOWS && 2 * self.lost > self.planned;
        let hopeless = self.planned >= HOPELESS_WINDOWS && 5 * self.lost > 4 * self.planned;
        let at_widest = windows.is_saturated() && 4 * self.lost > self.planned;
        let few = ((self.planned - self.lost) as f64) < FEWEST && 2 * self.lost > self.planned;
        let tried_ns = p.elapsed_ns - p.lost_ns;
        let dear = few && self.may_fall_back && self.budget.repetitions.is_none() && tried_ns > TRIAL * self.share_ns;
        if at_widest || mostly || hopeless || dear {
            self.windows_failed = Some(Failure::Missed);
        }
    }

    pub fn measured(&self, ranks: Vec<Noted>, why: String, now_ns: i64) -> Measured {
        let many = self.windows.is_some() && 4 * self.lost > self.planned;
        Measured {
            ranks,
            repetitions: self.progress.done as usize,
            pilot: self.pilot,
            why,
            span_ns: (self.kept_ns, now_ns),
            window_ns: self.window_ns,
            start: self.start,
            windows_failed: self.windows_failed.or(many.then_some(Failure::Missed)),
            agreed_ns: self.agreed_ns.clone(),
            elapsed_ns: self.progress.elapsed_ns,
            lost: Lost {
                stalls_ns: self.pace.stalled_ns(),
                missed_ns: self.missed_ns,
                anew_ns: self.anew_ns,
                ..Lost::default()
            },
        }
    }
}

/// The widest windows of a cell, ns, if `fewest` are to fit into its time. Of a number of
/// repetitions nobody said how long they may take; but where others keep the processors busy every
/// start is missed however wide the windows are, and the widest would make a minute's measurement
/// an hour's.
fn widest_ns(budget: &Budget, fewest: f64) -> i64 {
    let wanted = budget.repetitions.map_or(budget.time_ns / fewest, |n| COUNTED_NS / n.max(1) as f64);
    wanted.clamp(LEAST_WIDEST_NS, WIDEST_NS) as i64
}

/// Windows that hold an operation of this length whatever the number of repetitions, ns.
fn holding_ns(usual_ns: i64) -> i64 {
    usual_ns.saturating_mul(2).clamp(0, WIDEST_NS as i64)
}

/// How many windows of this width are agreed on at once.
fn windows_in_plan(width_ns: i64) -> u64 {
    let width_ns = width_ns.max(1);
    let least = (LONGEST_PLAN_NS / width_ns).clamp(FEWEST_WINDOWS, LEAST_WINDOWS);
    (PLAN_NS / width_ns).max(least).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_no_more_windows_than_there_is_room_for() {
        let least = WindowConfig::default().width_min_ns;
        assert!(PLAN_NS / least <= MOST_WINDOWS as i64 && LEAST_WINDOWS <= MOST_WINDOWS as i64);
    }

    #[test]
    fn a_start_missed_at_one_rank_or_another_is_missed() {
        let mut lead = leader();
        let word = |missed: &[u32]| Word { missed: missed.to_vec(), longest_ns: 1000, ..Word::default() };
        lead.order(&[], 0, false);
        lead.order(&[word(&[]), word(&[])], 1000, false);
        lead.order(&[word(&[3, 5]), word(&[5, 9])], 2000, false);
        assert_eq!(lead.progress.missed, 3);
    }

    #[test]
    fn windows_that_are_nearly_all_missed_are_given_up_soon() {
        let mut lead = leader();
        let word =
            |missed: std::ops::Range<u32>| Word { missed: missed.collect(), longest_ns: 1000, ..Word::default() };
        lead.order(&[], 0, false);
        let mut planned = 0;
        let mut last = 0..0;
        for round in 1..100 {
            match lead.order(&[word(last.clone()), word(0..0)], round * 1_000_000, false) {
                Order::Batch { count, windows: Some(_) } => {
                    planned += count;
                    last = 0..count;
                }
                // The first batch is begun by a barrier, and so are those after windows were given
                // up.
                Order::Batch { .. } if planned == 0 => last = 0..0,
                _ => break,
            }
        }
        assert_eq!(lead.start, StartSync::Barrier);
        assert!(planned < 200, "{planned} starts were missed before");
    }

    fn leader() -> Leader {
        use crate::options::tests::args;
        let settings = args(&["-t", "bcast", "-s", "8"]).settings().unwrap();
        let layout = crate::pairing::Layout { nodes: vec![0, 1] };
        let spec = crate::plan::cells(&settings, &layout, StartSync::Window).unwrap().remove(0);
        let budget =
            Budget { repetitions: Some(1000), time_ns: 1e9, relative_width: None, most: 1_000_000, unbroken_ns: None };
        let rules = Rules { keep: 100, warm_up: Some(0), percentile: 0.99, multiplier: 5.0, seed: 1, counted: None };
        Leader::new(&spec, budget, &rules, true, 0)
    }

    #[test]
    fn no_plan_lasts_so_long_that_nobody_looks_whether_to_stop() {
        for width_ns in [1, 50_000, 1_000_000, 20_000_000, 100_000_000, 2_000_000_000] {
            let count = windows_in_plan(width_ns).cast_signed();
            assert!(count >= FEWEST_WINDOWS);
            assert!(count == FEWEST_WINDOWS || count * width_ns <= LONGEST_PLAN_NS, "{count} of {width_ns}");
        }
        assert_eq!((windows_in_plan(50_000), windows_in_plan(5_000_000)), (400, 16));
    }

    #[test]
    fn windows_of_a_counted_cell_end_in_a_time_that_somebody_waits_for() {
        let budget =
            |repetitions| Budget { repetitions, time_ns: 1e9, relative_width: None, most: u64::MAX, unbroken_ns: None };
        for n in [1, 10, 200, 20_000] {
            let widest_ns = widest_ns(&budget(Some(n)), 100.0);
            assert!(n * widest_ns as u64 <= 20_000_000_000 && widest_ns >= 1_000_000, "{n}: {widest_ns}");
        }
        assert_eq!(widest_ns(&budget(None), 100.0), 10_000_000);
    }
}
