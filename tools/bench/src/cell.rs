//! Measuring one cell, at every rank: batches until rank 0 says that it is enough, then all that
//! was noted goes to rank 0.

use std::sync::atomic::{AtomicBool, Ordering};

use weir_clock::{Arrival, Plan};
use weir_distribution::{Carried, StartSync, Warning};
use weir_stats::stopping;

use crate::budget::{Budget, Lost, PILOT};
use crate::carried::{self, Tally};
use crate::clock::Clock;
use crate::collect::{self, Rules};
use crate::error::{BenchError, Result};
use crate::exchange::Turn;
use crate::kernels::{Farm, Kernel, Wait};
use crate::leader::{LONGEST_PLAN_NS, Leader, MOST_WINDOWS, Order, Word};
use crate::machine::{Control, Machine};
use crate::measure::{self, Buffer, Pair, Part, Slots, Starts, Together};
use crate::open_loop;
use crate::operation::{Class, Kind};
use crate::overlap;
use crate::plan::{MOST_SAMPLES, Spec};
use crate::talk::Talk;
use crate::threads;

/// A start counts as missed when a rank began so much later than agreed, ns: longer than a reading
/// of the clock takes, shorter than any message.
const LATE_NS: i64 = 500;
/// Of the repetitions of a plan, those that a window must hold, per cent: the others may cost the
/// next start. Windows that hold the whole of a heavy tail would be so wide that hardly any fit
/// into the time.
const HELD_PERCENT: usize = 95;
/// Repetitions by which a rank judges how wide windows have to be: of the few of one plan of wide
/// windows, the longest would be the one in twenty.
const REMEMBERED: usize = 256;
/// The interval of the median is looked at when there are so many times as many repetitions as the
/// last time: to look takes a while, and who looks often ends by chance.
const LOOK_AGAIN: f64 = 1.25;

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
    /// Batches in which this rank changed its processor: the first repetition of each, and how many
    /// it has.
    pub moved: Vec<(u32, u32)>,
    /// What carried its messages, if it could be counted.
    pub carried: Option<Carried>,
    /// Processor time that its process had in all batches, ns, if it can tell.
    pub cpu_ns: Option<u64>,
    /// What the exchange takes alone, and how long it computed in each, ns, of `overlap`.
    pub alone_ns: Option<f64>,
    /// How long answers were waited for here, of what has some.
    pub waits: Vec<Wait>,
}

/// What was wrong with starts that were agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Many were missed, also when far apart.
    Missed,
    /// Too few repetitions fitted into the cell's time.
    Few,
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
    /// Why agreed starts did not work, if they did not.
    pub windows_failed: Option<Failure>,
    /// The agreed starts since the origin, ns, by repetition; nothing for those begun otherwise.
    /// Empty without windows.
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
        let Some(failure) = self.windows_failed else { return Vec::new() };
        let (message, advice) = match (self.start == asked, failure) {
            (true, _) => (
                "many starts agreed by the clock were missed, also when far apart: what is left are the repetitions without delays",
                "weir bench --start barrier, or fewer ranks than processors",
            ),
            (false, Failure::Missed) => (
                "too many starts agreed by the clock were missed; all repetitions were begun by a barrier instead",
                "weir bench --start barrier, or fewer ranks than processors",
            ),
            (false, Failure::Few) => (
                "too few repetitions fitted into the time between starts agreed by the clock; all were begun by a barrier instead",
                "weir bench --start barrier, or more --time",
            ),
        };
        vec![Warning { code: "windows-missed".into(), message: message.into(), advice: Some(advice.into()) }]
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
    /// Whether a barrier may take the place of windows that do not work; else the cell keeps them,
    /// and says so.
    pub may_fall_back: bool,
    /// How samples are judged: what does not count is made up for.
    pub rules: &'a Rules,
}

/// What a rank needs for a cell.
struct Work<M: Machine> {
    part: Option<Part>,
    /// Goes before the group of which it is.
    window: Option<M::Window>,
    group: Option<M::Group>,
    kernel: Option<Kernel>,
    blocks: M::Blocks,
    turns: Vec<Turn>,
    /// What is sent and where it arrives, of each thread.
    buffers: Vec<(Buffer, Buffer)>,
    numbers: Vec<f64>,
    sums: Vec<f64>,
    /// Of `overlap`, once it is known.
    alone_ns: Option<f64>,
    /// Messages by their tags, of an open loop.
    payloads: Vec<Vec<u8>>,
}

impl<M: Machine> Bench<'_, M> {
    /// Measures a cell; all ranks call it.
    ///
    /// # Errors
    /// The machine's.
    pub fn cell(&mut self, spec: &Spec, budget: &Budget) -> Result<Outcomes> {
        let mut work = self.prepare(spec)?;
        let outcome = self.measure(spec, budget, &mut work);
        kept_on_failure((work.window, work.group), outcome)
    }

    fn measure(&mut self, spec: &Spec, budget: &Budget, work: &mut Work<M>) -> Result<Outcomes> {
        let active = spec.active();
        let mut slots = Slots::default();
        let (mut missed, mut moved) = (Vec::new(), Vec::new());
        let mut looked_at = 0;
        let (mut tally, mut cpu_ns) = (Tally::new(self.m), None);
        let first = self.m.rank() == 0;
        let mut lead =
            first.then(|| Leader::new(spec, *budget, self.rules, self.may_fall_back, self.clock.now_ns(self.m)));
        if spec.operation.kind == Kind::Overlap {
            self.find_alone(spec, budget, work)?;
        }
        // Once for each cell also those who take no part are asked.
        let mut words = self.m.gather_values(&self.heard(Word::default()))?;
        loop {
            let due = self.clock.is_due(self.m);
            let order = lead.as_mut().map(|lead| lead.order(&words, self.clock.now_ns(self.m), due));
            match self.order(order, &active)? {
                Order::Batch { count, windows } => {
                    let plan = windows.map(|(first_ns, width_ns)| Plan { first_ns, width_ns, count });
                    let first = slots.begin.len();
                    let before = tally.before(self.m);
                    let processor = self.m.processor();
                    let cpu_before = self.m.cpu_ns();
                    let other = self.batch(spec, work, &mut slots, count as usize, plan.as_ref())?;
                    let spent = self.m.cpu_ns().zip(cpu_before).map(|(now, then)| now.saturating_sub(then));
                    cpu_ns = spent.map(|spent| cpu_ns.unwrap_or(0) + spent);
                    if other || self.m.processor() != processor {
                        moved.push((first as u32, (slots.begin.len() - first) as u32));
                    }
                    tally.after(self.m, &before);
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
                    (tally, cpu_ns) = (Tally::new(self.m), None);
                    missed.clear();
                    moved.clear();
                    looked_at = 0;
                }
                Order::Enough { why } => {
                    self.clock.again(self.m)?;
                    let own = Noted {
                        missed: missed.clone(),
                        moved: moved.clone(),
                        carried: tally.sum(),
                        cpu_ns,
                        alone_ns: work.alone_ns,
                        waits: work.kernel.as_ref().map_or_else(Vec::new, |kernel| kernel.waits().to_vec()),
                        ..Noted::default()
                    };
                    let ranks = self.collect(spec, &slots, own)?;
                    let measured = lead.as_ref().map(|lead| lead.measured(ranks, why, self.clock.now_ns(self.m)));
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

    /// Rank 0's order, at every rank that takes part; the others hear of the last one only, and
    /// wait for it without keeping a processor, or rank 0, busy.
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
            true => spec.buffer_bytes(),
            false => (0, 0),
        };
        let kernel = match (members.iter().position(|&r| r == rank), spec.operation.kind.class()) {
            (Some(place), Class::Kernel) => Some(self.kernel(spec, place)),
            _ => None,
        };
        let summed = if active && spec.operation.kind.sums() { spec.size as usize / 8 } else { 0 };
        if let Some(group) = &group {
            self.m.make_room(group, 8 * summed);
        }
        let own = self.own(spec, group.as_ref());
        let threads = spec.threads.map_or(1, |threads| threads.count as usize);
        let own = match spec.threads {
            Some(of) => self.m.make_threads(threads, of.apart).and(own),
            None => own,
        };
        let (kernel, (window, blocks, own_sums)) = match kernel.transpose().and_then(|kernel| Ok((kernel, own?))) {
            Ok(both) => both,
            Err(error) => return kept_on_failure(group, Err(error)),
        };
        Ok(Work {
            part,
            window,
            group,
            kernel,
            blocks,
            turns: spec.turns(rank),
            buffers: (0..threads).map(|_| (Buffer::new(out as usize), Buffer::new(into as usize))).collect(),
            numbers: vec![1.0; summed],
            sums: vec![1.0; own_sums.unwrap_or(summed)],
            alone_ns: None,
            payloads: match spec.tagged {
                Some(of) if active && spec.operation.kind == Kind::OpenLoop => of.payloads(spec.size as usize),
                _ => Vec::new(),
            },
        })
    }

    /// The kernel of the member at this place.
    fn kernel(&self, spec: &Spec, place: usize) -> Result<Kernel> {
        let (kind, members, ticks_per_us) = (spec.operation.kind, &spec.placement.members, self.clock.ticks_per_us());
        let Some(of) = spec.tagged else { return Kernel::new(kind, spec.count, members, place, ticks_per_us) };
        let most_waits = MOST_SAMPLES as usize / members.len().max(1);
        let place = (members.len(), place);
        Ok(Kernel::Farm(Farm::new(spec.count, of, place, spec.size as usize, ticks_per_us, most_waits)))
    }

    /// This rank's memory that others reach, the lengths of all blocks, and how many sums it keeps,
    /// if not all.
    #[allow(clippy::type_complexity)]
    fn own(&self, spec: &Spec, group: Option<&M::Group>) -> Result<(Option<M::Window>, M::Blocks, Option<usize>)> {
        let (kind, active) = (spec.operation.kind, spec.active());
        let lengths = spec.block_lengths();
        let place = active.iter().position(|&rank| rank == self.m.rank());
        let kept = place.filter(|_| kind == Kind::ReduceScatter).map(|place| lengths[place]);
        let window = match (group, kind.access()) {
            (Some(group), Some(access)) => Some(self.m.window(group, spec.size as usize, access)?),
            _ => None,
        };
        Ok((window, self.m.blocks(&lengths)?, kept))
    }

    /// Measures `count` repetitions; returns whether another thread of this rank than its own
    /// changed its processor.
    fn batch(
        &self,
        spec: &Spec,
        work: &mut Work<M>,
        slots: &mut Slots,
        count: usize,
        plan: Option<&Plan>,
    ) -> Result<bool> {
        let kind = spec.operation.kind;
        let Some(group) = &work.group else { return Ok(false) };
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
        if let (Some(of), Some(part)) = (spec.threads, work.part) {
            let pairs = spec.pairing.as_ref().map_or(&[][..], |pairing| &pairing.pairs);
            let (buffers, window) = (work.buffers.as_mut_slice(), spec.count as usize);
            let mut batch = threads::Batch { part, pairs, buffers, apart: of.apart, window };
            return threads::pair(self.m, kind, &mut batch, slots, first, || self.m.barrier(group));
        }
        if let (Kind::OpenLoop, Some(of), Some(part)) = (kind, spec.tagged, work.part) {
            let peer = spec.active().iter().position(|&rank| rank == part.peer).unwrap_or_default();
            let ticks_per_us = self.clock.ticks_per_us();
            let pair = open_loop::Pair { m: self.m, group, peer, of, payloads: &work.payloads, ticks_per_us };
            let (due, came) = (&mut slots.begin[first..], &mut slots.end[first..]);
            pair.loops(part.first, due, came, || self.m.barrier(group))?;
            return Ok(false);
        }
        let Some((out, into)) = work.buffers.first_mut().map(|(out, into)| (out.get_mut(), into.get_mut())) else {
            return Ok(false);
        };
        let numbers = work.numbers.as_slice();
        match (kind.class(), work.part, &mut work.kernel) {
            (Class::PointToPoint | Class::OneSided, Some(part), _) => {
                let pairs = spec.pairing.as_ref().map_or(&[][..], |pairing| &pairing.pairs);
                let place = spec.active().iter().position(|&rank| rank == part.peer);
                let memory = work.window.as_ref().zip(place);
                let talk = Talk::of_ranks(part.peer, out, into, spec.count as usize);
                let compute = (work.alone_ns.unwrap_or(0.0) / 1000.0 * self.clock.ticks_per_us()) as u64;
                let mut pair = Pair { talk, first: part.first, pairs, numbers, memory, again: None, compute };
                measure::pair(self.m, kind, &mut pair, slots, first, || self.m.barrier(group))?;
            }
            (Class::Collective, ..) => {
                let (sums, blocks, turns) = (work.sums.as_mut_slice(), &work.blocks, work.turns.as_slice());
                let ticks_per_us = self.clock.ticks_per_us();
                let mut together = Together { group, out, into, numbers, sums, blocks, turns, ticks_per_us };
                measure::collective(self.m, kind, &mut together, &starts, slots, first)?;
            }
            (Class::Kernel, _, Some(kernel)) => measure::kernel(self.m, kernel, group, &starts, slots, first)?,
            _ => {}
        }
        Ok(false)
    }

    /// How long the exchange of `overlap` takes alone; those that take part call it.
    fn find_alone(&self, spec: &Spec, budget: &Budget, work: &mut Work<M>) -> Result<()> {
        let (Some(group), Some(part), Some((out, into))) = (&work.group, work.part, work.buffers.first_mut()) else {
            return Ok(());
        };
        let mut pair = Pair::alone(part, out.get_mut(), into.get_mut());
        pair.pairs = spec.pairing.as_ref().map_or(&[][..], |pairing| &pairing.pairs);
        let ticks_per_us = self.clock.ticks_per_us();
        work.alone_ns = Some(overlap::alone_ns(self.m, group, &mut pair, budget.time_ns, ticks_per_us)?);
        Ok(())
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
        let shortest_ns = took.first().copied().unwrap_or(0);
        // The shortest of the first repetitions is the one that made no connection.
        let mut word = Word { shortest_ns, longest_ns: shortest_ns, ..Word::default() };
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

    /// Relative width of the interval of the median of what this rank sees: with as many
    /// independent samples as its samples are worth.
    fn width(&self, spec: &Spec, slots: &Slots) -> Option<f64> {
        let first = slots.begin.len().min(PILOT as usize);
        let (begin, end) = (&slots.begin[first..], &slots.end[first..]);
        // A message that goes one way begins here and ends elsewhere; from one to the next it is a
        // message and an answer.
        let end = if spec.operation.kind.is_seen_elsewhere() { begin.get(1..).unwrap_or_default() } else { end };
        let both = begin.iter().zip(end).filter(|(b, e)| **b != u64::MAX && **e != u64::MAX && e >= b);
        let lengths: Vec<f64> = both.map(|(&b, &e)| self.clock.length_ns(b, e)).collect();
        stopping::relative_width_in_order(&lengths, weir_stats::CONFIDENCE).ok().filter(|width| width.is_finite())
    }

    /// Everybody's notes, at rank 0: what is this rank's `own`, and the times.
    fn collect(&mut self, spec: &Spec, slots: &Slots, own: Noted) -> Result<Vec<Noted>> {
        let active = spec.active().contains(&self.m.rank());
        let noted = if active { self.noted(slots, own) } else { Noted::default() };
        let bytes = noted.to_bytes();
        drop(noted);
        self.m.gather_read(bytes, Noted::from_bytes)
    }

    fn noted(&mut self, slots: &Slots, own: Noted) -> Noted {
        let (begin_ns, begin_error_ns) = self.clock.convert(&slots.begin);
        let (end_ns, end_error_ns) = self.clock.convert(&slots.end);
        let error_ns = begin_error_ns.max(end_error_ns);
        self.clock.saw(error_ns);
        let lengths = slots.begin.iter().zip(&slots.end).map(|(&b, &e)| self.clock.length_ns(b, e));
        let (length_ns, least_ns) = (lengths.collect(), self.clock.least_ns() as f32);
        Noted { begin_ns, end_ns, length_ns, error_ns: error_ns as f32, least_ns, ..own }
    }
}

/// Whether so many repetitions are enough more than those that were looked at last.
fn is_time_to_look(count: usize, looked_at: usize) -> bool {
    count as u64 >= crate::budget::BELIEVED && count as f64 >= LOOK_AGAIN * looked_at as f64
}

/// Makes room for `count` more and has the kernel give it, without filling it: what has grown to
/// megabytes must not be moved between the agreement on a start and that start.
fn make_room(slots: &mut Slots, count: usize) {
    let len = slots.grow(count);
    slots.begin.truncate(len);
    slots.end.truncate(len);
}

/// Lets go of a group and its memory unless something failed. To free them is a call of all its
/// ranks: who failed alone would wait for the others in it, and they for it, instead of ending the
/// job.
fn kept_on_failure<G, T>(shared: G, outcome: Result<T>) -> Result<T> {
    if outcome.is_err() {
        std::mem::forget(shared);
    }
    outcome
}

/// Whether the starts that a rank missed in a plan, by repetition, were one run of which it
/// recovered before the plan's end at `end`: then something kept it from its processor, which has
/// nothing to do with how wide windows are.
fn is_stall(missed: &[u32], end: usize) -> bool {
    let one_run = missed.windows(2).all(|pair| pair[1] == pair[0] + 1);
    one_run && missed.last().is_some_and(|last| (*last as usize) + 1 < end)
}

/// Three counts and two bounds.
const BOUNDS_END: usize = 32;
/// And what was counted of carriers, and of processor time: whether it was, and how much; and what
/// an exchange takes alone, likewise.
const CPU_AT: usize = BOUNDS_END + 8 * carried::NUMBERS;
const ALONE_AT: usize = CPU_AT + 16;
/// And the number of waits.
const WAITS_AT: usize = ALONE_AT + 16;
const HEAD_BYTES: usize = WAITS_AT + 8;
impl Noted {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(
            24 * self.begin_ns.len() + 4 * self.missed.len() + 8 * (self.moved.len() + self.waits.len()) + HEAD_BYTES,
        );
        bytes.extend((self.begin_ns.len() as u64).to_le_bytes());
        bytes.extend((self.missed.len() as u64).to_le_bytes());
        bytes.extend((self.moved.len() as u64).to_le_bytes());
        bytes.extend(self.error_ns.to_le_bytes());
        bytes.extend(self.least_ns.to_le_bytes());
        bytes.extend(carried::to_numbers(self.carried).iter().flat_map(|v| v.to_le_bytes()));
        let cpu = [u64::from(self.cpu_ns.is_some()), self.cpu_ns.unwrap_or(0)];
        let alone = [u64::from(self.alone_ns.is_some()), self.alone_ns.unwrap_or(0.0).to_bits()];
        bytes.extend(cpu.iter().chain(&alone).chain(&[self.waits.len() as u64]).flat_map(|v| v.to_le_bytes()));
        bytes.extend(self.begin_ns.iter().flat_map(|v| v.to_le_bytes()));
        bytes.extend(self.end_ns.iter().flat_map(|v| v.to_le_bytes()));
        bytes.extend(self.length_ns.iter().flat_map(|v| v.to_le_bytes()));
        bytes.extend(self.missed.iter().flat_map(|v| v.to_le_bytes()));
        bytes.extend(self.moved.iter().flat_map(|(first, count)| [first.to_le_bytes(), count.to_le_bytes()]).flatten());
        bytes.extend(self.waits.iter().flat_map(|(of, ns)| [of.to_le_bytes(), ns.to_le_bytes()]).flatten());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Noted> {
        let broken = || BenchError::machine("exchange among ranks", "a rank's samples came in pieces");
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(broken)?;
        let count = |at: usize| head[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let (samples, missed, moved, waits) = (count(0), count(8), count(16), count(WAITS_AT));
        let expected = samples.checked_mul(24).and_then(|n| n.checked_add(missed.checked_mul(4)?));
        let expected = expected.and_then(|n| n.checked_add(moved.checked_add(waits)?.checked_mul(8)?));
        if expected != Some(rest.len() as u64) {
            return Err(broken());
        }
        let (begin, rest) = rest.split_at(8 * samples as usize);
        let (end, rest) = rest.split_at(8 * samples as usize);
        let (length, rest) = rest.split_at(8 * samples as usize);
        let (missed, rest) = rest.split_at(4 * missed as usize);
        let (moved, waits) = rest.split_at(8 * moved as usize);
        let half = |b: &[u8]| b.first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
        let word = |b: &[u8]| b.first_chunk().map_or([0; 8], |b| *b);
        let counted: [u64; carried::NUMBERS] =
            std::array::from_fn(|i| u64::from_le_bytes(word(&head[BOUNDS_END + 8 * i..])));
        Ok(Noted {
            begin_ns: begin.chunks_exact(8).map(|b| i64::from_le_bytes(word(b))).collect(),
            end_ns: end.chunks_exact(8).map(|b| i64::from_le_bytes(word(b))).collect(),
            length_ns: length.chunks_exact(8).map(|b| f64::from_le_bytes(word(b))).collect(),
            error_ns: head[24..].first_chunk().map_or(0.0, |b| f32::from_le_bytes(*b)),
            least_ns: head[28..].first_chunk().map_or(0.0, |b| f32::from_le_bytes(*b)),
            missed: missed.chunks_exact(4).map(half).collect(),
            moved: moved.chunks_exact(8).map(|b| (half(b), half(&b[4..]))).collect(),
            carried: carried::of_numbers(&counted),
            cpu_ns: (count(CPU_AT) != 0).then(|| count(CPU_AT + 8)),
            alone_ns: (count(ALONE_AT) != 0).then(|| f64::from_bits(count(ALONE_AT + 8))),
            waits: waits.chunks_exact(8).map(|b| (half(b), f32::from_bits(half(&b[4..])))).collect(),
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
    fn notes_travel_whole_or_not_at_all() {
        let noted = Noted {
            begin_ns: vec![-5, i64::MAX],
            end_ns: vec![7, 8],
            length_ns: vec![1.5, -0.25],
            error_ns: 12.5,
            least_ns: 0.5,
            missed: vec![1],
            moved: vec![(0, 2), (7, 9)],
            carried: Some(Carried { weir_bytes: 17, ..Carried::default() }),
            cpu_ns: Some(u64::MAX),
            alone_ns: Some(12.25),
            waits: vec![(0, 1.5), (7, 2e9)],
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
