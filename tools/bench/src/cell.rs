//! Measuring one cell, at every rank: batches until rank 0 says that it is enough, then all that was noted goes to rank 0.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use weir_clock::{Arrival, Outcome, Plan, WindowConfig, Windows};
use weir_distribution::{StartSync, Warning};
use weir_stats::stopping;

use crate::budget::{Budget, Lost, Next, PILOT, Pace, Progress};
use crate::clock::Clock;
use crate::collect::{self, Rules};
use crate::error::{BenchError, Result};
use crate::kernels::Kernel;
use crate::machine::{Control, Machine};
use crate::measure::{self, Buffer, Pair, Part, Slots, Starts, Together};
use crate::operation::Class;
use crate::plan::Spec;

/// A start counts as missed when a rank began so much later than agreed, ns: longer than a reading of the clock takes, shorter than any message.
const LATE_NS: i64 = 500;
/// The widest windows, ns: several retransmission time-outs.
const WIDEST_NS: f64 = 2e9;
/// No cell needs less, ns.
const LEAST_WIDEST_NS: f64 = 1e6;
/// All windows together of a cell whose repetitions are counted, if each is missed no more than once, ns.
const COUNTED_NS: f64 = 10e9;
/// Of the repetitions of a plan, those that a window must hold, per cent: the others may cost the next start. Windows that hold the whole of a heavy tail would be so wide that hardly any fit into the
/// time.
const HELD_PERCENT: usize = 95;
/// When more than half of so many agreed starts were missed, windows do not work here.
const JUDGED_WINDOWS: u64 = 200;
/// The same when four of five of so many were missed, although windows have grown since the first of them.
const HOPELESS_WINDOWS: u64 = 30;
/// All windows of a plan together, ns: who is kept from the processor for some milliseconds misses those of one plan only.
const PLAN_NS: i64 = 20_000_000;
/// Repetitions by which a rank judges how wide windows have to be: of the few of one plan of wide windows, the longest would be the one in twenty.
const REMEMBERED: usize = 256;
/// Windows in a plan, if they last no longer than [`LONGEST_PLAN_NS`] together.
const LEAST_WINDOWS: i64 = 16;
/// Nobody looks whether to stop before a plan is over, ns.
const LONGEST_PLAN_NS: i64 = 250_000_000;
/// Windows in a plan however wide they are: from the second on it shows whether they are wide enough.
const FEWEST_WINDOWS: i64 = 2;
/// How often what did not count is made up for: what is found to be warm-up may change with every repetition more.
const ROUNDS: u32 = 4;
/// The most windows that a plan can have.
const MOST_WINDOWS: usize = 400;
/// Repetitions that must fit into a cell's time.
const FEWEST: f64 = 100.0;
/// The same where windows are used whatever comes: better few repetitions than none that began together.
const FEWEST_FIXED: f64 = 10.0;
/// The interval of the median is looked at when there are so many times as many repetitions as the last time: to look takes a while, and
/// who looks often ends by chance.
const LOOK_AGAIN: f64 = 1.25;

/// What rank 0 tells all at the end of each batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Order {
    Batch {
        count: u32,
        windows: Option<(i64, i64)>,
    },
    /// Clocks are brought together before the next batch.
    Resync,
    /// Windows do not work: what was measured so far does not count, and repetitions are begun by a barrier from now on.
    Afresh,
    Enough {
        why: String,
    },
    /// Somebody was asked to stop, or failed outside of an operation: nothing of this cell is kept.
    Drop,
}

/// What each rank tells rank 0 at the end of each batch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Word {
    stopped: bool,
    width: Option<f64>,
    /// Agreed starts that this rank missed, by their place in the batch.
    missed: Vec<u32>,
    /// They were one run, and wider windows would not have helped.
    stall: bool,
    longest_ns: i64,
    latest_ns: i64,
    /// Bound on the error of this rank's clock while the next plan lasts.
    error_ns: f64,
}

/// What one rank measured in a cell, on the global clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Noted {
    /// Begins, since the launch's origin, ns.
    pub begin_ns: Vec<i64>,
    /// Ends.
    pub end_ns: Vec<i64>,
    /// From begin to end on this rank's own counter, ns.
    pub length_ns: Vec<f64>,
    /// Bound on the error of the above that is due to the clock, ns: the largest at any of them.
    pub error_ns: f32,
    /// What no bound is below, as a reading takes its time, ns.
    pub least_ns: f32,
    /// Repetitions whose agreed start this rank missed.
    pub missed: Vec<u32>,
}

/// A measured cell, at rank 0.
#[derive(Clone, Debug)]
pub struct Measured {
    /// By rank; nothing from those that took no part.
    pub ranks: Vec<Noted>,
    /// Repetitions.
    pub repetitions: usize,
    /// Those of the first batch, in which connections are made.
    pub pilot: usize,
    /// Why it ended.
    pub why: String,
    /// Beginning and end since the origin, ns.
    pub span_ns: (i64, i64),
    /// The last distance of agreed starts, ns.
    pub window_ns: Option<f64>,
    /// How all repetitions were begun, but for those of the first batch.
    pub start: StartSync,
    /// Agreed starts were missed even when far apart.
    pub windows_failed: bool,
    /// The agreed starts since the origin, ns, by repetition; nothing for those begun otherwise. Empty without windows.
    pub agreed_ns: Vec<Option<i64>>,
    /// Time from the first repetition to the end of the last one, what was begun anew included, ns.
    pub elapsed_ns: f64,
    /// What of it did not go to repetitions that count.
    pub lost: Lost,
}

impl Measured {
    /// What was wrong with the starts, for people, if they were to be `asked`.
    #[must_use]
    pub fn warnings(&self, asked: StartSync) -> Vec<Warning> {
        if !self.windows_failed {
            return Vec::new();
        }
        let message = match self.start == asked {
            true => {
                "many starts agreed by the clock were missed, also when far apart: few repetitions are left, and they are those without delays"
            }
            false => "too many starts agreed by the clock were missed; all repetitions were begun by a barrier instead",
        };
        let advice = Some("weir bench --start barrier, or fewer ranks than processors".into());
        vec![Warning { code: "windows-missed".into(), message: message.into(), advice }]
    }
}

/// How a cell ended.
pub enum Outcomes {
    /// Measured; with what was, at rank 0.
    Done(Option<Box<Measured>>),
    /// Somebody asked to stop.
    Stopped,
}

/// What a cell is measured with.
pub struct Bench<'a, M: Machine> {
    /// The machine.
    pub m: &'a M,
    /// This rank's clock.
    pub clock: &'a mut Clock,
    /// Set when this process was asked to stop.
    pub stop: &'a AtomicBool,
    /// Whether a barrier may take the place of windows that do not work; else the cell keeps them, and says so.
    pub may_fall_back: bool,
    /// How samples are judged: what does not count is made up for.
    pub rules: &'a Rules,
}

/// What a rank needs for a cell.
struct Work<M: Machine> {
    part: Option<Part>,
    group: Option<M::Group>,
    kernel: Option<Kernel>,
    out: Buffer,
    into: Buffer,
    numbers: Vec<f64>,
    sums: Vec<f64>,
}

impl<M: Machine> Bench<'_, M> {
    /// Measures a cell; all ranks call it.
    ///
    /// # Errors
    /// The machine's.
    pub fn cell(&mut self, spec: &Spec, budget: &Budget) -> Result<Outcomes> {
        let mut work = self.prepare(spec)?;
        let outcome = self.measure(spec, budget, &mut work);
        kept_on_failure(work.group, outcome)
    }

    fn measure(&mut self, spec: &Spec, budget: &Budget, work: &mut Work<M>) -> Result<Outcomes> {
        let active = spec.active();
        let mut slots = Slots::default();
        let mut missed = Vec::new();
        let mut looked_at = 0;
        let first = self.m.rank() == 0;
        let mut lead =
            first.then(|| Leader::new(spec, *budget, self.rules, self.may_fall_back, self.clock.now_ns(self.m)));
        // Once for each cell also those who take no part are asked.
        let mut words = self.m.gather_values(&self.heard(Word::default()))?;
        loop {
            let due = self.clock.is_due(self.m);
            let order = lead.as_mut().map(|lead| lead.order(&words, self.clock.now_ns(self.m), due));
            match self.order(order, &active)? {
                Order::Batch { count, windows } => {
                    let plan = windows.map(|(first_ns, width_ns)| Plan { first_ns, width_ns, count });
                    let first = slots.begin.len();
                    self.batch(spec, work, &mut slots, count as usize, plan.as_ref())?;
                    let mut word = self.word(&slots, first, plan.as_ref(), &mut missed);
                    if budget.relative_width.is_some() && is_time_to_look(slots.begin.len(), looked_at) {
                        looked_at = slots.begin.len();
                        word.width = self.width(spec, &slots);
                    }
                    make_room(&mut slots, MOST_WINDOWS);
                    words = self.words(self.heard(word), &active)?;
                }
                Order::Resync => {
                    self.clock.again(self.m)?;
                    words = self.m.gather_values(&self.heard(Word::default()))?;
                }
                Order::Afresh => {
                    slots = Slots::default();
                    missed.clear();
                    looked_at = 0;
                }
                Order::Enough { why } => {
                    self.clock.again(self.m)?;
                    let ranks = self.collect(spec, &slots, &missed)?;
                    let measured = lead.as_ref().map(|lead| lead.measured(ranks, why, self));
                    let again = match (&measured, &mut lead) {
                        (Some(measured), Some(lead)) => lead.again(collect::counted(spec, measured, self.rules)),
                        _ => false,
                    };
                    // Only a number of repetitions can be missed by what does not count.
                    if budget.repetitions.is_none() || !self.m.share(&again)? {
                        return Ok(Outcomes::Done(measured.map(Box::new)));
                    }
                    words = self.m.gather_values(&self.heard(Word::default()))?;
                }
                Order::Drop => return Ok(Outcomes::Stopped),
            }
        }
    }

    /// A word with what is known of this process and its clock by now.
    fn heard(&self, word: Word) -> Word {
        let error_ns = self.clock.bound_after(self.m, LONGEST_PLAN_NS);
        Word { stopped: self.stop.load(Ordering::Relaxed), error_ns, ..word }
    }

    /// Rank 0's order, at every rank that takes part; the others hear of the last one only, and wait for it without keeping a processor, or rank 0, busy.
    fn order(&self, order: Option<Order>, active: &[usize]) -> Result<Order> {
        let Some(order) = order else {
            if !active.contains(&self.m.rank()) {
                self.m.wait_quietly(0)?;
            }
            return self.m.hear(0);
        };
        match order {
            Order::Batch { .. } => self.m.tell(&order, active)?,
            _ => self.m.tell(&order, &(0..self.m.size()).collect::<Vec<_>>())?,
        }
        Ok(order)
    }

    /// What those that take part say of a batch, at rank 0, and what it says itself.
    fn words(&self, word: Word, active: &[usize]) -> Result<Vec<Word>> {
        if self.m.rank() != 0 {
            self.m.tell(&word, &[0])?;
            return Ok(Vec::new());
        }
        let mut words = vec![word];
        for &rank in active.iter().filter(|&&rank| rank != 0) {
            if !active.contains(&0) {
                self.m.wait_quietly(rank)?;
            }
            words.push(self.m.hear(rank)?);
        }
        Ok(words)
    }

    fn prepare(&self, spec: &Spec) -> Result<Work<M>> {
        let (rank, members) = (self.m.rank(), &spec.placement.members);
        // Who takes no part has nothing to do with the others' barriers.
        let group = self.m.group(&spec.active())?;
        let part = spec.part(rank).map(|(peer, first)| Part { peer, first });
        let active = group.is_some();
        let (out, into) = match active {
            true => spec.operation.buffer_bytes(spec.size, members.len(), spec.count as usize),
            false => (0, 0),
        };
        let kernel = match (members.iter().position(|&r| r == rank), spec.operation.kind.class()) {
            (Some(place), Class::Kernel) => {
                Some(Kernel::new(spec.operation.kind, spec.count, members, place, self.clock.ticks_per_us()))
            }
            _ => None,
        };
        let kernel = match kernel.transpose() {
            Ok(kernel) => kernel,
            Err(error) => return kept_on_failure(group, Err(error)),
        };
        let summed = if active && spec.operation.kind.sums() { spec.size as usize / 8 } else { 0 };
        if let Some(group) = &group {
            self.m.make_room(group, 8 * summed);
        }
        Ok(Work {
            part,
            group,
            kernel,
            out: Buffer::new(out as usize),
            into: Buffer::new(into as usize),
            numbers: vec![1.0; summed],
            sums: vec![1.0; summed],
        })
    }

    /// Measures `count` repetitions.
    fn batch(
        &self,
        spec: &Spec,
        work: &mut Work<M>,
        slots: &mut Slots,
        count: usize,
        plan: Option<&Plan>,
    ) -> Result<()> {
        let kind = spec.operation.kind;
        let Some(group) = &work.group else { return Ok(()) };
        let instants: Vec<u64> = match plan {
            Some(plan) => (0..count as u32).map(|k| self.clock.ticks_at(plan.start_ns(k))).collect(),
            None => Vec::new(),
        };
        let starts = match (plan, spec.start) {
            (Some(_), _) => Starts::Window(&instants),
            // The first batch, and where windows do not work.
            (None, StartSync::Barrier | StartSync::Window) => Starts::Barrier,
            (None, StartSync::None) => Starts::None,
        };
        let first = slots.grow(count);
        if plan.is_none() {
            self.m.barrier(group)?;
        }
        let (out, into) = (work.out.get(), work.into.get_mut());
        match (kind.class(), work.part, &mut work.kernel) {
            (Class::PointToPoint, Some(part), _) => {
                let pairs = spec.pairing.as_ref().map_or(&[][..], |pairing| &pairing.pairs);
                let mut pair = Pair { part, pairs, out, into, window: spec.count as usize };
                measure::pair(self.m, kind, &mut pair, slots, first, || self.m.barrier(group))
            }
            (Class::Collective, ..) => {
                let (numbers, sums) = (work.numbers.as_slice(), work.sums.as_mut_slice());
                let mut together = Together { group, out, into, numbers, sums };
                measure::collective(self.m, kind, &mut together, &starts, slots, first)
            }
            (Class::Kernel, _, Some(kernel)) => measure::kernel(self.m, kernel, group, &starts, slots, first),
            _ => Ok(()),
        }
    }

    /// What this rank has to say about its last batch.
    fn word(&self, slots: &Slots, first: usize, plan: Option<&Plan>, missed: &mut Vec<u32>) -> Word {
        let count = slots.begin.len() - first;
        // The first batch made connections, which no window has to hold.
        let from = if plan.is_some() {
            slots.begin.len().saturating_sub(REMEMBERED).max(PILOT as usize).min(first)
        } else {
            first
        };
        let both = slots.begin[from..].iter().zip(&slots.end[from..]);
        let mut took: Vec<i64> = both.map(|(&b, &e)| self.clock.length_ns(b, e) as i64).collect();
        took.sort_unstable();
        let mut word = Word {
            // The shortest of the first repetitions is the one that made no connection.
            longest_ns: took.first().copied().unwrap_or(0),
            ..Word::default()
        };
        let Some(plan) = plan else { return word };
        for k in 0..count {
            let begin_ns = self.clock.at(slots.begin[first + k]).global_ns - LATE_NS;
            if let Arrival::Missed { late_ns } = plan.arrive(k as u32, begin_ns) {
                word.missed.push(k as u32);
                word.latest_ns = word.latest_ns.max(late_ns);
            }
        }
        word.stall = is_stall(&word.missed, count);
        missed.extend(word.missed.iter().map(|k| first as u32 + k));
        let held = (took.len() * HELD_PERCENT / 100).max(1);
        word.longest_ns = took.get(held - 1).copied().unwrap_or(0);
        word
    }

    /// Relative width of the interval of the median of what this rank sees: with as many independent samples as its samples are worth.
    fn width(&self, spec: &Spec, slots: &Slots) -> Option<f64> {
        let first = slots.begin.len().min(PILOT as usize);
        let (begin, end) = (&slots.begin[first..], &slots.end[first..]);
        // A message that goes one way begins here and ends elsewhere; from one to the next it is a message and an answer.
        let end = if spec.operation.kind.is_seen_elsewhere() { begin.get(1..).unwrap_or_default() } else { end };
        let both = begin.iter().zip(end).filter(|(b, e)| **b != u64::MAX && **e != u64::MAX && e >= b);
        let lengths: Vec<f64> = both.map(|(&b, &e)| self.clock.length_ns(b, e)).collect();
        stopping::relative_width_in_order(&lengths, weir_stats::CONFIDENCE).ok().filter(|width| width.is_finite())
    }

    /// Everybody's notes, at rank 0.
    fn collect(&mut self, spec: &Spec, slots: &Slots, missed: &[u32]) -> Result<Vec<Noted>> {
        let active = spec.active().contains(&self.m.rank());
        let noted = if active { self.noted(slots, missed.to_vec()) } else { Noted::default() };
        let bytes = noted.to_bytes();
        drop(noted);
        self.m.gather_read(bytes, Noted::from_bytes)
    }

    fn noted(&mut self, slots: &Slots, missed: Vec<u32>) -> Noted {
        let (begin_ns, begin_error_ns) = self.clock.convert(&slots.begin);
        let (end_ns, end_error_ns) = self.clock.convert(&slots.end);
        let error_ns = begin_error_ns.max(end_error_ns);
        self.clock.saw(error_ns);
        let lengths = slots.begin.iter().zip(&slots.end).map(|(&b, &e)| self.clock.length_ns(b, e));
        let (length_ns, least_ns) = (lengths.collect(), self.clock.least_ns() as f32);
        Noted { begin_ns, end_ns, length_ns, error_ns: error_ns as f32, least_ns, missed }
    }
}

/// Whether so many repetitions are enough more than those that were looked at last.
fn is_time_to_look(count: usize, looked_at: usize) -> bool {
    count as u64 >= crate::budget::BELIEVED && count as f64 >= LOOK_AGAIN * looked_at as f64
}

/// Makes room for `count` more and has the kernel give it, without filling it: what has grown to megabytes must not be moved between the agreement on a start and that start.
fn make_room(slots: &mut Slots, count: usize) {
    let len = slots.grow(count);
    slots.begin.truncate(len);
    slots.end.truncate(len);
}

/// Lets go of a group unless something failed. To free it is a call of all its ranks: who failed alone would wait for the others in it, and they for it, instead of ending the job.
fn kept_on_failure<G, T>(group: Option<G>, outcome: Result<T>) -> Result<T> {
    if outcome.is_err() {
        std::mem::forget(group);
    }
    outcome
}

/// Whether the starts that a rank missed in a plan, by repetition, were one run of which it recovered before the plan's end at `end`: then something kept it from its processor, which has nothing to do
/// with how wide windows are.
fn is_stall(missed: &[u32], end: usize) -> bool {
    let one_run = missed.windows(2).all(|pair| pair[1] == pair[0] + 1);
    one_run && missed.last().is_some_and(|last| (*last as usize) + 1 < end)
}

/// Rank 0's part.
struct Leader {
    budget: Budget,
    progress: Progress,
    pace: Pace,
    /// Whether the last batch's words were not looked at yet.
    unlearnt: bool,
    windows: Option<Windows>,
    config: WindowConfig,
    may_fall_back: bool,
    windows_failed: bool,
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
    /// Repetitions that shall count, if so many are asked for, and how often what does not may still be made up for.
    asked: u64,
    rounds: u32,
}

impl Leader {
    fn new(spec: &Spec, mut budget: Budget, rules: &Rules, may_fall_back: bool, now_ns: i64) -> Leader {
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
            windows_failed: false,
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

    /// Whether so many repetitions that count are too few of those asked for, and more are to be made.
    fn again(&mut self, counted: u64) -> bool {
        let short = self.asked.saturating_sub(counted);
        let goes = short > 0 && self.rounds > 1 && self.progress.done < self.budget.most;
        if goes {
            self.rounds -= 1;
            self.progress.last_count = 0;
            // Not for ever: nobody waits for three times what was asked for.
            let most = self.asked.saturating_mul(3);
            self.progress.missed = 0;
            self.budget.repetitions = Some((self.progress.done + short).min(most).max(self.progress.done));
        }
        goes
    }

    /// Decides what comes after a batch. `due`: the clocks are to be brought together before the next one.
    fn order(&mut self, words: &[Word], now_ns: i64, due: bool) -> Order {
        if words.iter().any(|word| word.stopped) {
            return Order::Drop;
        }
        if std::mem::take(&mut self.unlearnt) {
            self.learn(words, now_ns);
        }
        if self.windows_failed && self.may_fall_back && self.windows.is_some() {
            self.fall_back(now_ns);
            return Order::Afresh;
        }
        match self.budget.next(&self.progress) {
            Next::Enough(why) => Order::Enough { why: why.to_owned() },
            Next::Batch(_) if due => Order::Resync,
            Next::Batch(count) => self.batch(count, words, now_ns),
        }
    }

    fn batch(&mut self, count: u64, words: &[Word], now_ns: i64) -> Order {
        let fit = self.windows.as_ref().map(|windows| windows_in_plan(windows.width_ns()));
        let fit = fit.map_or(u64::MAX, |fit| fit.min(MOST_WINDOWS as u64));
        let count = count.min(fit).min(u64::from(u32::MAX)) as u32;
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

    /// Begins the cell anew, by barriers: repetitions that began in two ways are no one distribution. The time that was spent is gone.
    fn fall_back(&mut self, now_ns: i64) {
        self.pace.begin_anew();
        let (elapsed_ns, lost_ns) = (self.progress.elapsed_ns, self.pace.lost_ns());
        self.progress = Progress { elapsed_ns, lost_ns, ..Progress::default() };
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
        self.windows_failed |= at_widest || mostly || hopeless;
    }

    fn measured<M: Machine>(&self, ranks: Vec<Noted>, why: String, bench: &Bench<'_, M>) -> Measured {
        Measured {
            ranks,
            repetitions: self.progress.done as usize,
            pilot: self.pilot,
            why,
            span_ns: (self.kept_ns, bench.clock.now_ns(bench.m)),
            window_ns: self.window_ns,
            start: self.start,
            windows_failed: self.windows_failed || (self.windows.is_some() && 4 * self.lost > self.planned),
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

/// The widest windows of a cell, ns, if `fewest` are to fit into its time. Of a number of repetitions nobody said how long they may take; but where others keep the processors busy
/// every start is missed however wide the windows are, and the widest would make a minute's measurement an hour's.
fn widest_ns(budget: &Budget, fewest: f64) -> i64 {
    let wanted = budget.repetitions.map_or(budget.time_ns / fewest, |n| COUNTED_NS / n.max(1) as f64);
    wanted.clamp(LEAST_WIDEST_NS, WIDEST_NS) as i64
}

/// Windows that hold an operation of this length whatever the number of repetitions, ns.
fn holding_ns(usual_ns: i64) -> i64 {
    usual_ns.saturating_mul(2).clamp(0, WIDEST_NS as i64)
}

/// Two counts and two bounds.
const HEAD_BYTES: usize = 24;

/// How many windows of this width are agreed on at once.
fn windows_in_plan(width_ns: i64) -> u64 {
    let width_ns = width_ns.max(1);
    let least = (LONGEST_PLAN_NS / width_ns).clamp(FEWEST_WINDOWS, LEAST_WINDOWS);
    (PLAN_NS / width_ns).max(least).unsigned_abs()
}

impl Noted {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(24 * self.begin_ns.len() + 4 * self.missed.len() + HEAD_BYTES);
        bytes.extend((self.begin_ns.len() as u64).to_le_bytes());
        bytes.extend((self.missed.len() as u64).to_le_bytes());
        bytes.extend(self.error_ns.to_le_bytes());
        bytes.extend(self.least_ns.to_le_bytes());
        bytes.extend(self.begin_ns.iter().flat_map(|v| v.to_le_bytes()));
        bytes.extend(self.end_ns.iter().flat_map(|v| v.to_le_bytes()));
        bytes.extend(self.length_ns.iter().flat_map(|v| v.to_le_bytes()));
        bytes.extend(self.missed.iter().flat_map(|v| v.to_le_bytes()));
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Noted> {
        let broken = || BenchError::machine("exchange among ranks", "a rank's samples came in pieces");
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(broken)?;
        let count = |at: usize| head[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let (samples, missed) = (count(0), count(8));
        let expected = samples.checked_mul(24).and_then(|n| n.checked_add(missed.checked_mul(4)?));
        if expected != Some(rest.len() as u64) {
            return Err(broken());
        }
        let (begin, rest) = rest.split_at(8 * samples as usize);
        let (end, rest) = rest.split_at(8 * samples as usize);
        let (length, missed) = rest.split_at(8 * samples as usize);
        let word = |b: &[u8]| b.first_chunk().map_or([0; 8], |b| *b);
        Ok(Noted {
            begin_ns: begin.chunks_exact(8).map(|b| i64::from_le_bytes(word(b))).collect(),
            end_ns: end.chunks_exact(8).map(|b| i64::from_le_bytes(word(b))).collect(),
            length_ns: length.chunks_exact(8).map(|b| f64::from_le_bytes(word(b))).collect(),
            error_ns: head[16..].first_chunk().map_or(0.0, |b| f32::from_le_bytes(*b)),
            least_ns: head[20..].first_chunk().map_or(0.0, |b| f32::from_le_bytes(*b)),
            missed: missed.chunks_exact(4).filter_map(|b| b.first_chunk().map(|b| u32::from_le_bytes(*b))).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_was_made_is_used_without_moving_what_is_there() {
        let mut slots = Slots::default();
        slots.grow(1000);
        make_room(&mut slots, MOST_WINDOWS);
        let places = |slots: &Slots| (slots.begin.as_ptr(), slots.end.as_ptr());
        let before = places(&slots);
        assert_eq!((slots.grow(MOST_WINDOWS), places(&slots)), (1000, before));
    }

    #[test]
    fn a_plan_has_no_more_windows_than_there_is_room_for() {
        let least = WindowConfig::default().width_min_ns;
        assert!(PLAN_NS / least <= MOST_WINDOWS as i64 && LEAST_WINDOWS <= MOST_WINDOWS as i64);
    }

    #[test]
    fn a_group_is_let_go_only_when_nothing_failed() {
        struct Group<'a>(&'a std::cell::Cell<u32>);
        impl Drop for Group<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let freed = std::cell::Cell::new(0);
        kept_on_failure(Some(Group(&freed)), Err::<(), _>(BenchError::machine("send", "cut"))).unwrap_err();
        assert_eq!(freed.get(), 0);
        kept_on_failure(Some(Group(&freed)), Ok(())).unwrap();
        assert_eq!(freed.get(), 1);
    }

    #[test]
    fn one_run_of_missed_starts_that_ends_is_a_stall() {
        assert!(is_stall(&[5], 20) && is_stall(&[5, 6, 7], 20));
        assert!(!is_stall(&[], 20), "nothing was missed");
        assert!(!is_stall(&[5, 6, 9], 20), "two runs");
        assert!(!is_stall(&[18, 19], 20), "it did not recover");
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
                // The first batch is begun by a barrier, and so are those after windows were given up.
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
        let budget = Budget { repetitions: Some(1000), time_ns: 1e9, relative_width: None, most: 1_000_000 };
        let rules = Rules { keep: 100, warm_up: Some(0), percentile: 0.99, multiplier: 5.0, seed: 1 };
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
        let budget = |repetitions| Budget { repetitions, time_ns: 1e9, relative_width: None, most: u64::MAX };
        for n in [1, 10, 200, 20_000] {
            let widest_ns = widest_ns(&budget(Some(n)), 100.0);
            assert!(n * widest_ns as u64 <= 20_000_000_000 && widest_ns >= 1_000_000, "{n}: {widest_ns}");
        }
        assert_eq!(widest_ns(&budget(None), 100.0), 10_000_000);
    }

    #[test]
    fn notes_travel_whole_or_not_at_all() {
        let noted = Noted {
            begin_ns: vec![-5, i64::MAX],
            end_ns: vec![7, 8],
            length_ns: vec![1.5, -0.25],
            error_ns: 12.5,
            least_ns: 0.5,
            missed: vec![1],
        };
        let bytes = noted.to_bytes();
        assert_eq!(Noted::from_bytes(&bytes).unwrap(), noted);
        for len in 0..bytes.len() {
            assert!(Noted::from_bytes(&bytes[..len]).is_err(), "{len}");
        }
        let mut wrong = bytes.clone();
        wrong[7] = 0xff;
        assert!(Noted::from_bytes(&wrong).is_err());
    }
}
