//! The engine: processes take their steps in the order of virtual time.
//!
//! Everything happens at an event: a message reaches its receiver's node, a process goes on after a
//! serial segment or a wait. Events are taken in order of time, so whatever is sent later arrives
//! later, and a receive that is matched now is matched for good. At one instant arrivals come
//! first, then processes go on (the lowest first), then those that look (test, probe): a look sees
//! all that is there by then. No step recurses; memory is that of processes and of messages under
//! way.

mod collective;
mod expressions;
mod messages;
mod persistent;
mod polls;
mod process;
mod queue;
mod requests;
mod slab;
mod steady;
mod still;
mod verdict;

use weir_annotations::Value;
use weir_annotations::expr::{NUMPROCS, PROCNUM};
use weir_annotations::program::{Message, Model, OpKind, Pc};

use crate::loss::{ByCause, Losses};
use crate::machine::{Beyond, Machine};
use crate::matching::Matching;
use crate::network::Network;
use crate::observe::{Nobody, Observer, STEPS_TOLD};
use crate::options::Options;
use crate::outcome::{Crowded, Failure, NO_OP, Outcome, Verdict};
use crate::{Cause, Time};

use collective::Activity;
use messages::Msg;
use process::Process;
use requests::Request;
use slab::Slab;

/// Processes of a model at most: their numbers are part of the order of events.
pub const MOST_PROCESSES: u32 = 1 << 22;

/// Bytes that all processes' state may take before anything is under way.
const MOST_STATE: u64 = 8 << 30;

/// Runs a model once.
#[must_use]
pub fn evaluate(model: &Model, machine: &Machine, options: &Options, seed: u64) -> Outcome {
    evaluate_observed(model, machine, options, seed, &mut Nobody)
}

/// As [`evaluate`], and tells an observer what happens.
pub fn evaluate_observed<O: Observer>(
    model: &Model,
    machine: &Machine,
    options: &Options,
    seed: u64,
    observer: &mut O,
) -> Outcome {
    let refused = refusal(model, machine);
    let mut run = Run::new(model, machine, options, seed, observer, refused.is_some());
    match refused {
        Some(message) => {
            run.failure = Some(Failure { process: 0, op: NO_OP, at: Time::ZERO, message, also: Vec::new() });
        }
        None => {
            run.begin();
            run.go_on();
        }
    }
    run.outcome()
}

/// Why a model cannot be run on a machine at all.
fn refusal(model: &Model, machine: &Machine) -> Option<String> {
    let numprocs = model.numprocs;
    if numprocs > MOST_PROCESSES || numprocs == 0 {
        return Some(format!("{numprocs} processes, and from 1 to {MOST_PROCESSES} can be evaluated"));
    }
    if let Some(places) = machine.places().filter(|places| *places < u64::from(numprocs)) {
        let each = machine.placement.ranks_per_node;
        return Some(format!("{numprocs} processes on a machine with places for {places}, {each} on a node"));
    }
    let each = size_of::<Process>() + size_of::<ByCause>() + size_of::<Value>() * model.slots.len().max(2);
    let state = each as u64 * u64::from(numprocs);
    (state > MOST_STATE).then(|| {
        let variables = model.slots.len();
        format!(
            "{numprocs} processes with {variables} variables each take {} GiB, and {} may be",
            state >> 30,
            MOST_STATE >> 30
        )
    })
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A message reaches its receiver's node.
    Reach,
    /// A message is there.
    There,
    /// A lost message sets out again.
    Again,
    /// The announcement of a message that is not eager is there.
    Announced,
    /// The bytes of a message set out on what it shares with others.
    Begin,
    /// The announcement of a message that shares its way has come.
    Land,
    /// The memory of a send may be used again.
    Free,
    /// A collective goes on at a process.
    Step,
    /// A process goes on.
    Resume,
    /// A process looks.
    Look,
}

/// Order: time, then class and process and number in one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: Time,
    key: u64,
    what: What,
    id: u32,
}

/// Bits of a key that are a message's number at its sender, so that they keep their order.
const NUMBER_BITS: u32 = 38;

fn key(class: u64, process: u32, number: u64) -> u64 {
    class << 62 | u64::from(process) << NUMBER_BITS | number & ((1 << NUMBER_BITS) - 1)
}

/// Why a step could not be taken: the run is over.
#[derive(Debug)]
pub(crate) struct Stop;

type Step<T> = Result<T, Stop>;

/// One run.
pub(crate) struct Run<'a, O: Observer> {
    model: &'a Model,
    machine: &'a Machine,
    options: &'a Options,
    observer: &'a mut O,
    now: Time,
    events: queue::Queue,
    processes: Vec<Process>,
    /// All processes' slots, `width` each.
    slots: Vec<Value>,
    width: usize,
    network: Network<'a>,
    matching: Matching,
    messages: Slab<Msg>,
    requests: Slab<Request>,
    activities: Slab<Activity>,
    gatherings: collective::Gatherings,
    meetings: collective::Meetings,
    losses: Losses,
    local_beyond: Beyond,
    steps: u64,
    still: still::Still,
    steady: steady::Steady,
    /// What may be under way at once.
    most_under_way: u64,
    /// When the clock ends, and the process and op that went beyond first.
    clock_end: Time,
    beyond_end: Option<(u32, Pc)>,
    /// Persistent requests of all processes.
    persistents: u64,
    sent: u64,
    sent_bytes: u64,
    lost: u64,
    ready_unposted: u64,
    /// A look that was taken for waiting though its process counts.
    taken_for_waiting: Option<Pc>,
    failure: Option<Failure>,
    out_of_budget: Option<(u32, Pc, bool)>,
    crowded: Option<Crowded>,
}

impl<'a, O: Observer> Run<'a, O> {
    fn new(
        model: &'a Model,
        machine: &'a Machine,
        options: &'a Options,
        seed: u64,
        observer: &'a mut O,
        refused: bool,
    ) -> Self {
        let numprocs = if refused { 0 } else { model.numprocs };
        let mut run = Self {
            model,
            machine,
            options,
            observer,
            now: Time::ZERO,
            events: queue::Queue::new(),
            processes: (0..numprocs).map(|rank| Process::new(rank, seed)).collect(),
            slots: Vec::new(),
            width: model.slots.len().max(2),
            network: Network::new(machine, options, numprocs, seed),
            matching: Matching::new(numprocs, has_wildcards(model)),
            messages: Slab::new(),
            requests: Slab::new(),
            activities: Slab::new(),
            gatherings: collective::Gatherings::default(),
            meetings: collective::Meetings::default(),
            losses: Losses {
                by_process: vec![ByCause::default(); numprocs as usize],
                by_op: vec![ByCause::default(); model.ops.len()],
            },
            local_beyond: Beyond::default(),
            steps: 0,
            still: still::Still::default(),
            steady: steady::Steady::default(),
            most_under_way: options.most_under_way(numprocs),
            clock_end: Time::clock_end(numprocs),
            beyond_end: None,
            persistents: 0,
            sent: 0,
            sent_bytes: 0,
            lost: 0,
            ready_unposted: 0,
            taken_for_waiting: None,
            failure: None,
            out_of_budget: None,
            crowded: None,
        };
        run.set_factors();
        run.steady = steady::Steady::new(model, !refused && run.is_fixed());
        for rank in 0..numprocs {
            let start = run.slots.len();
            run.slots.extend_from_slice(&model.slots);
            run.slots.resize(start + run.width, Value::default());
            run.slots[start + PROCNUM.0 as usize] = Value::Int(i64::from(rank));
            run.slots[start + NUMPROCS.0 as usize] = Value::Int(i64::from(numprocs));
        }
        run
    }

    fn begin(&mut self) {
        for rank in 0..self.model.numprocs {
            self.push(Time::ZERO, What::Resume, rank, rank, 0);
        }
    }

    /// Takes events until there is none.
    fn go_on(&mut self) {
        loop {
            if self.events.peek().is_none_or(|event| event.at > self.now) {
                self.network.settle(self.now);
            }
            if let Some((at, key)) = self.network.next_flow()
                && self.events.peek().is_none_or(|event| (at, key) < (event.at, event.key))
            {
                if self.flow_ends(at).is_err() {
                    return;
                }
                continue;
            }
            let Some(event) = self.events.pop() else {
                if self.answer_polls() {
                    continue;
                }
                return;
            };
            debug_assert!(event.at >= self.now, "time goes back");
            if event.at > self.clock_end {
                self.clock_ends();
                return;
            }
            if event.at > self.now {
                self.still.moved(self.steps);
            }
            self.now = event.at;
            self.still.changes += u64::from(!matches!(event.what, What::Resume | What::Look));
            let step = match event.what {
                What::Reach => self.reach(event.id),
                What::There => self.there(event.id),
                What::Again => self.again(event.id),
                What::Announced => self.announced(event.id),
                What::Begin => self.begin_flow(event.id),
                What::Land => self.announcement_lands(event.id),
                What::Free => {
                    self.free(event.id);
                    Ok(())
                }
                What::Step => self.step(event.id),
                What::Resume | What::Look => self.resume(event.id, event.what == What::Look),
            };
            if step.is_err() {
                return;
            }
        }
    }

    /// The flow that ends first ends.
    fn flow_ends(&mut self, at: Time) -> Step<()> {
        if at > self.clock_end {
            self.clock_ends();
            return Err(Stop);
        }
        if at > self.now {
            self.still.moved(self.steps);
        }
        self.now = at;
        self.still.changes += 1;
        match self.network.end_flow(at) {
            Some((id, took)) => self.end_flow(id, took),
            None => Ok(()),
        }
    }

    fn push(&mut self, at: Time, what: What, id: u32, process: u32, number: u64) {
        let class = match what {
            What::Reach | What::There | What::Again | What::Announced | What::Begin | What::Land => 0,
            What::Free | What::Step | What::Resume => 1,
            What::Look => 2,
        };
        if at > self.clock_end && self.beyond_end.is_none() {
            let op = match what {
                What::Reach | What::There | What::Again | What::Announced | What::Begin | What::Land => {
                    self.messages[id].op
                }
                What::Step => self.requests[self.activities[id].request()].op,
                What::Free => self.requests[id].op,
                What::Resume | What::Look => self.processes[process as usize].pc,
            };
            self.beyond_end = Some((process, op));
        }
        self.events.push(Event { at, key: key(class, process, number), what, id });
    }

    /// What comes next is beyond the end of the clock.
    fn clock_ends(&mut self) {
        let (process, op) = self.beyond_end.unwrap_or((0, NO_OP));
        let end = self.clock_end.seconds();
        let message =
            format!("this takes virtual time beyond its end, {end:.1e} s: a time or a rate is out of all reason");
        self.failure = Some(Failure { process, op, at: self.now, message, also: Vec::new() });
    }

    /// Counts a step of a process; an error when there have been too many.
    fn count(&mut self, process: u32) -> Step<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_TOLD) {
            self.observer.steps(self.steps + self.matching.looked + self.network.looked(), self.now);
        }
        if self.steps + self.matching.looked + self.network.looked() > self.options.budget {
            return self.give_up(process, false);
        }
        if self.under_way() > self.most_under_way {
            self.crowd();
            return Err(Stop);
        }
        Ok(())
    }

    /// A process takes steps and comes to nothing.
    fn give_up(&mut self, process: u32, endless: bool) -> Step<()> {
        self.out_of_budget = Some((process, self.processes[process as usize].pc, endless));
        Err(Stop)
    }

    /// Messages, requests and collectives under way.
    fn under_way(&self) -> u64 {
        let gathering = self.meetings.open() + self.gatherings.open();
        let requests = self.requests.live() + self.persistents;
        self.messages.live() + requests + self.activities.live() + self.meetings.groups + gathering
    }

    /// Too much is under way: finds out where most of it comes from.
    #[cold]
    fn crowd(&mut self) {
        let mut by_op = vec![0u64; self.model.ops.len() + 1];
        let last = self.model.ops.len();
        let ops = self.messages.iter().map(|m| m.op).chain(self.requests.iter().map(|r| r.op));
        ops.for_each(|op| by_op[(op as usize).min(last)] += 1);
        // The first of equals.
        let most = by_op.iter().enumerate().rev().max_by_key(|(_, n)| **n).map_or((0, 0), |(op, n)| (op, *n));
        self.crowded = Some(Crowded { under_way: self.under_way(), op: most.0 as Pc, of_op: most.1, at: self.now });
    }

    /// The model is wrong at a process's op.
    fn wrong<T>(&mut self, process: u32, op: Pc, message: impl Into<String>) -> Step<T> {
        self.failure = Some(Failure { process, op, at: self.now, message: message.into(), also: Vec::new() });
        Err(Stop)
    }

    /// Puts a process's time, from where its account stands, to a cause.
    fn account(&mut self, process: u32, to: Time, cause: Cause) {
        let own = &mut self.processes[process as usize];
        let time = to - own.accounted;
        if time <= Time::ZERO {
            return;
        }
        own.accounted = to;
        self.losses.by_process[process as usize].put(cause, time);
        if let Some(op) = self.losses.by_op.get_mut(own.pc as usize) {
            op.put(cause, time);
        }
    }

    fn outcome(mut self) -> Outcome {
        let verdict = self.verdict();
        let accounted = self.processes.iter().map(|p| p.accounted);
        let time = accounted.max().unwrap_or(Time::ZERO).max(match verdict {
            Verdict::Finished => Time::ZERO,
            _ => self.now,
        });
        let ends = self.processes.iter().map(|p| p.accounted).collect();
        for rank in 0..self.processes.len() as u32 {
            let done = self.processes[rank as usize].is_done();
            self.account(rank, time, if done { Cause::Imbalance } else { Cause::Synchronisation });
        }
        let (unreceived, unreceived_count) = self.unreceived();
        Outcome {
            verdict,
            time,
            ends,
            messages: self.sent,
            bytes: self.sent_bytes,
            lost: self.lost,
            steps: self.steps + self.matching.looked + self.network.looked(),
            looked: self.matching.looked + self.network.looked(),
            skipped: std::mem::take(&mut self.steady.skipped),
            unreceived,
            unreceived_count,
            notices: self.notices(),
            losses: self.losses,
        }
    }
}

/// Whether any receive or probe names no source.
fn has_wildcards(model: &Model) -> bool {
    model.ops.iter().any(|op| match &op.kind {
        OpKind::Message(message) => match &**message {
            Message::Recv(recv) | Message::RecvInit(recv) | Message::Sendrecv(_, recv) | Message::Probe(recv) => {
                recv.from.is_none()
            }
            _ => false,
        },
        _ => false,
    })
}

#[cfg(test)]
#[path = "../../tests/common/mod.rs"]
mod common;

#[cfg(test)]
mod tests {
    use super::common::{self, *};
    use super::{Nobody, Options, Run, Verdict};

    /// How many messages, requests, activities and channels had a place at once.
    fn places(programs: &[Vec<common::Step>]) -> [usize; 4] {
        let (model, machine, options) = (model(programs), simple(), Options::default());
        let mut nobody = Nobody;
        let mut run = Run::new(&model, &machine, &options, 1, &mut nobody, false);
        run.begin();
        run.go_on();
        assert_eq!(run.verdict(), Verdict::Finished);
        [run.messages.places(), run.requests.places(), run.activities.places(), run.matching.channels()]
    }

    #[test]
    fn memory_is_that_of_what_is_under_way_not_of_what_was() {
        use weir_annotations::program::CollectiveOp;
        let round = |me: i64| {
            let (next, before) = ((me + 1) % 4, (me + 3) % 4);
            let barrier = collective(CollectiveOp::Alltoall, 10, None, None);
            [irecv(before, 0), issend(next, 100, 1), wait_all(&[0, 1]), send(next, 5), recv_any(), barrier]
        };
        let programs: Vec<_> = (0..4).map(|me| (0..2000).flat_map(|_| round(me)).collect()).collect();
        for (what, places) in ["messages", "requests", "activities", "channels"].into_iter().zip(places(&programs)) {
            assert!(places < 80, "{places} {what}");
        }
    }
}
