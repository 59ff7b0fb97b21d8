//! Loops that repeat exactly: whole periods of them are skipped (`spec/prediction.md` 3.10).
//!
//! Where nothing varies, what comes follows from the state alone. So if one process comes to the
//! end of the same loop again and the state of the whole machine, seen from now, is as it was, then
//! all between the two comes again, as often as no loop that counts down meanwhile comes to its
//! end. That many periods at once change only times, counts and losses, and each by what one period
//! changed it.

use weir_annotations::Value;
use weir_annotations::expr::Slot;
use weir_annotations::program::{Model, OpKind, Pc, Until};

use crate::loss::{ByCause, Losses};
use crate::machine::Beyond;
use crate::observe::Observer;
use crate::outcome::Skipped;
use crate::tour::{Shift, Tour};
use crate::vm::requests::valued;
use crate::vm::{Event, NUMBER_BITS, Run, What};

/// Iterations that must be left for a look to be worth while.
const WORTH: i64 = 16;
/// Loops that are watched at a time.
const WATCHED: usize = 8;
/// Words that may be written down for each step taken: a fraction of what the step costs.
const WORDS_PER_STEP: u64 = 2;
/// Processes beyond which nothing is skipped: a picture of all would take too much memory.
const MOST_PROCESSES: u32 = 1 << 16;

/// A loop of the model.
#[derive(Debug)]
struct Loop {
    begin: Pc,
    index: Slot,
    left: Slot,
    /// It counts down.
    counts: bool,
    /// Nothing in it reads its counters, so that they may differ from one picture to the next.
    free: bool,
}

/// What is known about loops that repeat.
#[derive(Debug, Default)]
pub(super) struct Steady {
    on: bool,
    loops: Vec<Loop>,
    /// By op, the loop that begins there: its number and 1; else 0.
    loop_at: Vec<u32>,
    /// By slot: a counter of a free loop.
    counter: Vec<bool>,
    /// By process and loop: the step at which it began last.
    begun: Vec<u64>,
    watches: Vec<Watch>,
    /// Words written down so far.
    spent: u64,
    /// What was skipped, by loop.
    pub skipped: Vec<Skipped>,
}

/// A loop that is watched: at the ends of its iterations at one process.
#[derive(Debug)]
struct Watch {
    of: u32,
    rank: u32,
    /// The step at which it began.
    since: u64,
    /// How many steps later the next picture is taken.
    next: u64,
    picture: Option<Box<Picture>>,
}

/// The state at one time, and what there was of all that only grows.
#[derive(Debug)]
struct Picture {
    step: u64,
    tour: Tour,
    /// By process that has not ended, and free loop: the index, and what is left.
    counters: Vec<(i64, i64)>,
    totals: Totals,
    /// Cheap to compare first.
    live: [u64; 4],
}

/// What only grows.
#[derive(Debug, Clone)]
struct Totals {
    losses: Losses,
    sent: u64,
    sent_bytes: u64,
    ready_unposted: u64,
    beyond: Beyond,
    local_beyond: Beyond,
}

impl Steady {
    /// `on`: nothing varies, and nobody watches.
    pub fn new(model: &Model, on: bool) -> Self {
        let mut steady = Self::default();
        if !on || model.numprocs > MOST_PROCESSES {
            return steady;
        }
        steady.loops = loops(model);
        steady.on = steady.loops.iter().any(|l| l.counts && l.free);
        if !steady.on {
            return steady;
        }
        steady.loop_at = vec![0; model.ops.len()];
        steady.counter = vec![false; model.slots.len().max(2)];
        for (number, one) in (1u32..).zip(&steady.loops) {
            steady.loop_at[one.begin as usize] = number;
            for slot in [one.index, one.left] {
                if let Some(counter) = steady.counter.get_mut(slot.0 as usize) {
                    *counter |= one.free;
                }
            }
        }
        steady.begun = vec![0; steady.loops.len() * model.numprocs as usize];
        steady
    }

    /// A process begins the loop there.
    #[inline]
    pub fn begins(&mut self, rank: u32, begin: Pc, step: u64) {
        if let Some(number) = self.loop_at.get(begin as usize).and_then(|n| n.checked_sub(1)) {
            let at = rank as usize * self.loops.len() + number as usize;
            self.begun[at] = step;
        }
    }

    /// By slot: whether it is a counter of a loop in which nothing reads it.
    pub fn counters_at(&self) -> &[bool] {
        &self.counter
    }

    fn begun(&self, rank: u32, of: u32) -> u64 {
        self.begun[rank as usize * self.loops.len() + of as usize]
    }
}

/// The loops of a model.
fn loops(model: &Model) -> Vec<Loop> {
    let mut all: Vec<Loop> = Vec::new();
    for (at, op) in model.ops.iter().enumerate() {
        let OpKind::LoopBegin(around) = &op.kind else { continue };
        let (index, left) = (around.index, around.left);
        let end = (around.exit as usize).clamp(at + 1, model.ops.len());
        let counts = matches!(around.until, Until::Count(_));
        let reads = |op: &weir_annotations::program::Op| {
            let mut found = false;
            op.clone().each_expr(&mut |expr| found |= expr.mentions(&mut |slot| slot == index || slot == left));
            found
        };
        // How often it is done is asked only before it begins.
        let first = if counts { at + 1 } else { at };
        let free = index != left && !model.ops[first..end].iter().any(reads);
        all.push(Loop { begin: at as Pc, index, left, counts, free });
    }
    // Counters that two loops share are no counters.
    let shared = |a: &Loop, b: &Loop| [a.index, a.left].iter().any(|slot| [b.index, b.left].contains(slot));
    for at in 0..all.len() {
        let alone = all.iter().enumerate().all(|(other, l)| other == at || !shared(&all[at], l));
        all[at].free &= alone;
    }
    all
}

impl<O: Observer> Run<'_, O> {
    /// A process is at the end of an iteration of the loop that begins there: if all is as it was
    /// at the same place before, whole periods are skipped.
    #[inline]
    pub(super) fn skip_periods(&mut self, rank: u32, begin: Pc) {
        if self.steady.on
            && let Some(of) = self.steady.loop_at.get(begin as usize).and_then(|n| n.checked_sub(1))
        {
            self.watch(rank, of);
        }
    }

    fn watch(&mut self, rank: u32, of: u32) {
        let one = &self.steady.loops[of as usize];
        if !one.counts || !one.free {
            return;
        }
        let left = self.slot(rank, one.left).and_then(Value::as_i64).unwrap_or(0);
        let since = self.steady.begun(rank, of);
        let mut at = self.steady.watches.iter().position(|w| w.of == of);
        if let Some(watch) = at.map(|at| &self.steady.watches[at]) {
            if watch.rank != rank {
                return;
            }
            if watch.since != since || left < WORTH {
                self.steady.watches.retain(|w| w.of != of);
                at = None;
            }
        }
        if left < WORTH || self.beyond_end.is_some() {
            return;
        }
        let at = match at {
            Some(at) => at,
            None if self.steady.watches.len() < WATCHED => {
                self.steady.watches.push(Watch { of, rank, since, next: 0, picture: None });
                self.steady.watches.len() - 1
            }
            None => return,
        };
        if self.steady.spent > self.steps.saturating_mul(WORDS_PER_STEP) {
            return;
        }
        let due = self.steps - since >= self.steady.watches[at].next;
        let alike = self.steady.watches[at].picture.as_ref().is_some_and(|picture| picture.live == self.live());
        if due || alike {
            self.compare(at, due);
        }
    }

    fn live(&self) -> [u64; 4] {
        [
            self.events.len() as u64 + self.network.flowing().0,
            self.messages.live(),
            self.requests.live(),
            self.activities.live(),
        ]
    }

    /// Looks at the state; skips what comes again of it; keeps it as the next picture if that is
    /// due.
    #[cold]
    fn compare(&mut self, at: usize, due: bool) {
        let mut tour = Tour::look(self.now);
        self.tour(&mut tour);
        self.steady.spent += tour.len();
        let Some(counters) = self.counters() else { return };
        if let Some(picture) = self.steady.watches[at].picture.take() {
            if let Some((shift, times)) = self.repeats_since(&picture, &tour, &counters) {
                let (of, rank) = (self.steady.watches[at].of, self.steady.watches[at].rank);
                self.skip(&picture, &counters, shift, times, of, rank);
                return;
            }
            self.steady.watches[at].picture = Some(picture);
        }
        if due {
            let (step, live) = (self.steps, self.live());
            let picture = Picture { step, tour, counters, totals: self.totals(), live };
            let watch = &mut self.steady.watches[at];
            watch.next = (step - watch.since).saturating_mul(2);
            watch.picture = Some(Box::new(picture));
        }
    }

    /// How the state moves on in all the periods that can be skipped, and how many these are; none:
    /// it is not as it was.
    fn repeats_since(&self, picture: &Picture, tour: &Tour, counters: &[(i64, i64)]) -> Option<(Shift, u64)> {
        let (time, shift) = tour.period(&picture.tour)?;
        let mut times = u64::MAX;
        let mut pairs = picture.counters.iter().zip(counters);
        for rank in (0..self.processes.len() as u32).filter(|rank| !self.processes[*rank as usize].is_done()) {
            for (of, one) in (0u32..).zip(&self.steady.loops).filter(|(_, one)| one.free) {
                let (was, is) = pairs.next()?;
                if was == is {
                    continue;
                }
                let done = is.0.checked_sub(was.0)?;
                let counted = if one.counts { was.1.checked_sub(is.1)? == done } else { was.1 == is.1 };
                if done <= 0 || !counted || self.steady.begun(rank, of) > picture.step {
                    return None;
                }
                if one.counts {
                    times = times.min(u64::try_from((is.1 - 1) / done).ok()?);
                }
            }
        }
        // What counts nothing down never ends, and is run until the budget does.
        let last = self.events.iter().map(|event| event.at).max().unwrap_or(self.now).max(self.now);
        let last = last.max(self.network.flowing().1);
        let room = (self.clock_end - last).or_zero().yoctoseconds() / time.yoctoseconds();
        let times = Some(times).filter(|times| *times < u64::MAX)?.min(u64::try_from(room).unwrap_or(u64::MAX));
        (times > 0).then(|| (shift.times(times), times))
    }

    /// Moves all on by so many periods.
    fn skip(&mut self, picture: &Picture, counters: &[(i64, i64)], shift: Shift, times: u64, of: u32, rank: u32) {
        let by = shift.by();
        let mut tour = Tour::shift(self.now, shift);
        self.tour(&mut tour);
        self.events.shift(by);
        self.now += by;
        self.count_on(&picture.counters, counters, times);
        let messages = (self.sent - picture.totals.sent).saturating_mul(times);
        let before = self.steady.loops[..of as usize].iter().filter(|l| l.free).count();
        let free = self.steady.loops.iter().filter(|l| l.free).count();
        let not_done = self.processes[..rank as usize].iter().filter(|p| !p.is_done()).count();
        let place = not_done * free + before;
        let each = counters[place].0 - picture.counters[place].0;
        self.add_totals(&picture.totals, times);
        let op = self.steady.loops[of as usize].begin;
        let all = &mut self.steady.skipped;
        let at = all.iter().position(|s| s.op == op).unwrap_or_else(|| {
            all.push(Skipped { op, ..Skipped::default() });
            all.len() - 1
        });
        all[at].iterations = all[at].iterations.saturating_add(each.unsigned_abs().saturating_mul(times));
        all[at].time += by;
        all[at].messages = all[at].messages.saturating_add(messages);
    }

    /// Counters of loops after so many more periods.
    fn count_on(&mut self, before: &[(i64, i64)], now: &[(i64, i64)], times: u64) {
        let times = i64::try_from(times).unwrap_or(i64::MAX);
        let mut pairs = before.iter().zip(now);
        for rank in 0..self.processes.len() {
            if self.processes[rank].is_done() {
                continue;
            }
            for one in self.steady.loops.iter().filter(|l| l.free) {
                let Some((was, is)) = pairs.next() else { return };
                if was != is {
                    let slots = &mut self.slots[rank * self.width..(rank + 1) * self.width];
                    let done = is.0 - was.0;
                    slots[one.index.0 as usize] = Value::Int(is.0.saturating_add(done.saturating_mul(times)));
                    if one.counts {
                        slots[one.left.0 as usize] = Value::Int(is.1 - done * times);
                    }
                }
            }
        }
    }

    /// By process that has not ended, and free loop: the index, and what is left. None: one is no
    /// whole number.
    fn counters(&self) -> Option<Vec<(i64, i64)>> {
        let mut all = Vec::new();
        for rank in (0..self.processes.len() as u32).filter(|rank| !self.processes[*rank as usize].is_done()) {
            let slots = self.slots_of(rank);
            for one in self.steady.loops.iter().filter(|l| l.free) {
                match (slots.get(one.index.0 as usize)?, slots.get(one.left.0 as usize)?) {
                    (Value::Int(index), Value::Int(left)) => all.push((*index, *left)),
                    _ => return None,
                }
            }
        }
        Some(all)
    }

    fn totals(&self) -> Totals {
        Totals {
            losses: self.losses.clone(),
            sent: self.sent,
            sent_bytes: self.sent_bytes,
            ready_unposted: self.ready_unposted,
            beyond: self.network.beyond,
            local_beyond: self.local_beyond,
        }
    }

    fn add_totals(&mut self, before: &Totals, times: u64) {
        let on = |now: &mut u64, before: u64| *now = now.saturating_add((*now - before).saturating_mul(times));
        on(&mut self.sent, before.sent);
        on(&mut self.sent_bytes, before.sent_bytes);
        on(&mut self.ready_unposted, before.ready_unposted);
        self.network.beyond.repeat_since(&before.beyond, times);
        self.local_beyond.repeat_since(&before.local_beyond, times);
        let each = |now: &mut Vec<ByCause>, before: &[ByCause]| {
            now.iter_mut().zip(before).for_each(|(now, before)| now.repeat_since(before, times));
        };
        each(&mut self.losses.by_process, &before.losses.by_process);
        each(&mut self.losses.by_op, &before.losses.by_op);
    }

    /// Goes through all that decides how the run goes on. A process stands at the end of an
    /// iteration; the others wait, or have an event.
    fn tour(&mut self, tour: &mut Tour) {
        for turn in self.processes.iter().filter(|p| !p.is_done()).flat_map(|p| &p.turns) {
            turn.stands(tour);
        }
        let mut events: Vec<Event> = self.events.iter().copied().collect();
        events.sort_unstable();
        tour.word(events.len() as u64);
        for Event { at, key, what, id } in events {
            tour.span(at - self.now);
            // Of the key, numbers of messages and collectives are in orders of their own.
            tour.word(key >> NUMBER_BITS);
            tour.word(what as u64);
            match what {
                What::Reach | What::There | What::Again | What::Announced | What::Begin | What::Land => {
                    tour.message(id)
                }
                What::Free => tour.request(id),
                What::Step => tour.activity(id),
                What::Resume | What::Look => tour.word(id.into()),
            }
        }
        for rank in 0..self.processes.len() as u32 {
            self.tour_polls(rank, tour);
            let process = &mut self.processes[rank as usize];
            process.tour(tour, rank);
            if !process.is_done() {
                let slots = &self.slots[rank as usize * self.width..(rank as usize + 1) * self.width];
                let kept = slots.iter().zip(&self.steady.counter).filter(|(_, counter)| !**counter);
                kept.for_each(|(value, _)| valued(*value, tour));
            }
        }
        self.matching.tour(tour);
        self.meetings.tour(tour);
        self.gatherings.tour(tour);
        self.network.tour(tour);
        loop {
            if let Some(id) = tour.next_message() {
                self.messages[id].tour(tour, id);
            } else if let Some(id) = tour.next_request() {
                self.requests[id].tour(tour, id);
            } else if let Some(id) = tour.next_activity() {
                self.activities[id].tour(tour, id);
            } else {
                break;
            }
        }
        tour.end();
    }

    /// Whether what comes follows from the state alone.
    pub(super) fn is_fixed(&self) -> bool {
        self.options.skip_repeats && !self.observer.watches() && !self.machine.varies(self.options, self.model)
    }
}
