//! The engine: processes take their steps in the order of virtual time.
//!
//! Everything happens at an event: a message reaches its receiver's node, a process goes on after a serial segment or a wait.
//! Events are taken in order of time, so whatever is sent later arrives later, and a receive that is matched now is matched for good.
//! At one instant arrivals come first, then processes go on (the lowest first), then those that look (test, probe): a look
//! sees all that is there by then. No step recurses; memory is that of processes and of messages under way.

mod collective;
mod expressions;
mod messages;
mod process;
mod requests;
mod slab;
mod verdict;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_annotations::Value;
use weir_annotations::expr::{NUMPROCS, PROCNUM};
use weir_annotations::program::{Message, Model, OpKind, Pc};

use crate::loss::{ByCause, Losses};
use crate::machine::{Beyond, Machine};
use crate::matching::Matching;
use crate::network::Network;
use crate::observe::{Nobody, Observer};
use crate::options::Options;
use crate::outcome::{Failure, Outcome, Verdict};
use crate::{Cause, Time};

use collective::Activity;
use messages::Msg;
use process::Process;
use requests::Request;
use slab::Slab;

/// Processes of a model at most: their numbers are part of the order of events.
pub const MOST_PROCESSES: u32 = 1 << 22;

/// Steps that may be taken while time stands still, in all and for each process: what takes more goes round in a circle, and is
/// given up after seconds, not when the budget is used up.
const STILL_STEPS: u64 = 20_000_000;
const STILL_STEPS_EACH: u64 = 10_000;

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
    let mut run = Run::new(model, machine, options, seed, observer);
    if model.numprocs > MOST_PROCESSES || model.numprocs == 0 {
        let message = format!("{} processes, and from 1 to {MOST_PROCESSES} can be evaluated", model.numprocs);
        run.failure = Some(Failure { process: 0, op: 0, at: Time::ZERO, message });
    } else {
        run.begin();
        run.go_on();
    }
    run.outcome()
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
    events: BinaryHeap<Reverse<Event>>,
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
    losses: Losses,
    local_beyond: Beyond,
    steps: u64,
    /// How many of these there were when time went on last, and how many more there may be before it does.
    still_from: u64,
    still_most: u64,
    sent: u64,
    sent_bytes: u64,
    lost: u64,
    ready_unposted: u64,
    failure: Option<Failure>,
    out_of_budget: Option<(u32, Pc)>,
}

impl<'a, O: Observer> Run<'a, O> {
    fn new(model: &'a Model, machine: &'a Machine, options: &'a Options, seed: u64, observer: &'a mut O) -> Self {
        let numprocs = if model.numprocs > MOST_PROCESSES { 0 } else { model.numprocs };
        let mut run = Self {
            model,
            machine,
            options,
            observer,
            now: Time::ZERO,
            events: BinaryHeap::new(),
            processes: (0..numprocs).map(|rank| Process::new(rank, seed)).collect(),
            slots: Vec::new(),
            width: model.slots.len().max(2),
            network: Network::new(machine, options, numprocs, seed),
            matching: Matching::new(numprocs, has_wildcards(model)),
            messages: Slab::new(),
            requests: Slab::new(),
            activities: Slab::new(),
            gatherings: collective::Gatherings::default(),
            losses: Losses {
                by_process: vec![ByCause::default(); numprocs as usize],
                by_op: vec![ByCause::default(); model.ops.len()],
            },
            local_beyond: Beyond::default(),
            steps: 0,
            still_from: 0,
            still_most: STILL_STEPS + STILL_STEPS_EACH * u64::from(numprocs),
            sent: 0,
            sent_bytes: 0,
            lost: 0,
            ready_unposted: 0,
            failure: None,
            out_of_budget: None,
        };
        run.set_factors();
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
        while let Some(Reverse(event)) = self.events.pop() {
            debug_assert!(event.at >= self.now, "time goes back");
            if event.at > self.now {
                self.still_from = self.steps;
            }
            self.now = event.at;
            let step = match event.what {
                What::Reach => self.reach(event.id),
                What::There => self.there(event.id),
                What::Again => self.again(event.id),
                What::Announced => self.announced(event.id),
                What::Step => self.step(event.id),
                What::Resume | What::Look => self.resume(event.id, event.what == What::Look),
            };
            if step.is_err() {
                return;
            }
        }
    }

    fn push(&mut self, at: Time, what: What, id: u32, process: u32, number: u64) {
        let class = match what {
            What::Reach | What::There | What::Again | What::Announced => 0,
            What::Step | What::Resume => 1,
            What::Look => 2,
        };
        self.events.push(Reverse(Event { at, key: key(class, process, number), what, id }));
    }

    /// Counts a step of a process; an error when there have been too many.
    fn count(&mut self, process: u32) -> Step<()> {
        self.steps += 1;
        let still = self.steps - self.still_from > self.still_most;
        if still || self.steps + self.matching.looked > self.options.budget {
            self.out_of_budget = Some((process, self.processes[process as usize].pc));
            return Err(Stop);
        }
        Ok(())
    }

    /// The model is wrong at a process's op.
    fn wrong<T>(&mut self, process: u32, op: Pc, message: impl Into<String>) -> Step<T> {
        self.failure = Some(Failure { process, op, at: self.now, message: message.into() });
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
            steps: self.steps + self.matching.looked,
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
            Message::Recv(recv) | Message::Sendrecv(_, recv) | Message::Probe(recv) => recv.from.is_none(),
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
        let mut run = Run::new(&model, &machine, &options, 1, &mut nobody);
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
