//! A process: its place in the model, and the ops that are not communication.

use std::collections::BTreeMap;

use weir_annotations::Value;
use weir_annotations::expr::EvalError;
use weir_annotations::program::{Law, Loop, Message, OpKind, Pc, Serial, Take, Time as Timed, Until, choice_of};
use weir_stats::{Distribution, Random, open_unit, seeded};

use crate::matching::Wanted;
use crate::observe::{Doing, Observer, Span};
use crate::tour::{Kind as Moment, Tour};
use crate::vm::collective::Turn;
use crate::vm::persistent::{Key, Persistent};
use crate::vm::polls::Polls;
use crate::vm::requests::Named;
use crate::vm::{Run, Step, What};
use crate::{Cause, Time};

/// What a process is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum State {
    /// An event is coming that makes it go on.
    Ready,
    /// It waits for requests.
    Waiting,
    /// It waits for a message that it only looks at.
    Probing(Wanted),
    /// It waits in a look for what can change its answer. `probes`: a message can. `counted`: it
    /// might stop looking by itself.
    Polling { probes: bool, counted: bool },
    /// It has ended.
    Done,
}

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    pub pc: Pc,
    pub state: State,
    /// An event that ends its wait is coming.
    pub waking: bool,
    /// Until when its time has a cause.
    pub accounted: Time,
    /// When its last wait ended.
    pub woken: Time,
    /// How long it has computed since.
    pub busy: Time,
    /// The luck of its messages.
    pub luck: Random,
    /// The luck of all else.
    pub own: Random,
    /// Messages it has sent.
    pub sent: u64,
    /// Collectives it has begun.
    pub begun: u64,
    /// Requests that the model named, oldest first.
    pub requests: Vec<Named>,
    /// Its persistent requests, by name and index.
    pub persistents: BTreeMap<Key, Vec<Persistent>>,
    /// How many it has made.
    pub made: u64,
    /// How many requests the `MPI_Startall` at hand has begun.
    pub started: usize,
    /// What it waits for: (position in the list, request).
    pub wait: Vec<(u32, u32)>,
    /// How many of these are not complete.
    pub open: u32,
    /// One of these is enough.
    pub any: bool,
    /// How many collectives it has begun, by communicator and group.
    pub turns: Vec<Turn>,
    /// Its looks in vain.
    pub polls: Option<Box<Polls>>,
    /// What its serial times are multiplied by.
    factor: f64,
}

/// Mixed into the seed, so that messages and the rest draw from sequences of their own.
const LUCK_STREAM: u64 = 0x6d65_7373_6167_6573;
const OWN_STREAM: u64 = 0x7365_7269_616c;

impl Process {
    pub fn new(rank: u32, seed: u64) -> Self {
        // The multiplier of Knuth's generator spreads neighbours; `seed_from_u64` does the rest.
        let mixed = seed ^ u64::from(rank).wrapping_add(1).wrapping_mul(6_364_136_223_846_793_005);
        Self {
            pc: 0,
            state: State::Ready,
            waking: false,
            accounted: Time::ZERO,
            woken: Time::ZERO,
            busy: Time::ZERO,
            luck: seeded(mixed ^ LUCK_STREAM),
            own: seeded(mixed ^ OWN_STREAM),
            sent: 0,
            begun: 0,
            requests: Vec::new(),
            persistents: BTreeMap::new(),
            made: 0,
            started: 0,
            wait: Vec::new(),
            open: 0,
            any: false,
            turns: Vec::new(),
            polls: None,
            factor: 1.0,
        }
    }

    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Gives itself to a tour. The luck of its messages is left out: a tour is made where nothing
    /// varies.
    pub fn tour(&mut self, tour: &mut Tour, rank: u32) {
        let Self {
            pc,
            state,
            waking,
            accounted,
            woken,
            busy,
            luck: _,
            own,
            sent: _,
            begun: _,
            requests,
            persistents,
            made: _,
            started,
            wait,
            open,
            any,
            turns,
            polls: _,
            factor: _,
        } = self;
        let number = match state {
            State::Ready => 0,
            State::Waiting => 1,
            State::Probing(_) => 2,
            State::Done => 3,
            State::Polling { probes, counted } => 4 + u64::from(*probes) + 2 * u64::from(*counted),
        };
        tour.word(number);
        if number == 3 {
            return;
        }
        if let State::Probing(wanted) = state {
            let Wanted { to, from, comm, tag } = *wanted;
            [u64::from(to), u64::from(comm)].into_iter().for_each(|part| tour.word(part));
            tour.maybe(from.map(u64::from));
            tour.maybe(tag.map(i64::cast_unsigned));
        }
        let blocked = number > 0 && !*waking;
        [u64::from(*pc), u64::from(*waking), u64::from(*open), u64::from(*any)].into_iter().for_each(|w| tour.word(w));
        [requests.len(), wait.len(), turns.len()].into_iter().for_each(|n| tour.word(n as u64));
        // A persistent request is known by its place: its number only tells it from others.
        let numbers: Vec<u64> = persistents.values().flatten().map(Persistent::number).collect();
        for named in requests {
            named.tour(tour);
            tour.maybe(numbers.iter().position(|number| *number == named.maker).map(|place| place as u64));
        }
        [numbers.len(), *started].into_iter().for_each(|n| tour.word(n as u64));
        for (key, made) in persistents {
            made.iter().for_each(|one| one.tour(*key, tour));
        }
        for (position, request) in wait {
            tour.word((*position).into());
            tour.request(*request);
        }
        turns.iter().for_each(|turn| turn.tour(tour));
        tour.generator(own);
        tour.moment(accounted, if blocked { Moment::WaitsSince } else { Moment::Account }, rank);
        tour.since_wait(woken, busy);
    }
}

/// Whether a process goes on with its next op now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// It does.
    On,
    /// An event will make it.
    Later,
}

impl<O: Observer> Run<'_, O> {
    /// The factor on each process's serial times.
    pub(super) fn set_factors(&mut self) {
        for (rank, process) in (0u32..).zip(&mut self.processes) {
            let slow = self.model.slowness.get(rank as usize).copied().unwrap_or(1.0);
            process.factor = slow / self.machine.cpu.speed(rank) * self.options.serial_factor(rank);
        }
    }

    /// A process goes on; `look`: it does so to test or probe.
    pub(super) fn resume(&mut self, rank: u32, look: bool) -> Step<()> {
        let now = self.now;
        let process = &mut self.processes[rank as usize];
        let waited = !matches!(process.state, State::Ready);
        self.still.changes += u64::from(waited);
        if waited {
            process.waking = false;
            process.woken = now;
            process.busy = Time::ZERO;
        }
        let flow = match process.state {
            State::Waiting => self.finish_wait(rank)?,
            State::Probing(_) => {
                process.state = State::Ready;
                self.probe(rank)?
            }
            State::Polling { .. } => {
                process.state = State::Ready;
                self.look(rank)?
            }
            _ if look => self.look(rank)?,
            _ => Flow::On,
        };
        if flow == Flow::On { self.walk(rank) } else { Ok(()) }
    }

    /// Takes ops until one takes time.
    fn walk(&mut self, rank: u32) -> Step<()> {
        let ops = &self.model.ops;
        loop {
            self.count(rank)?;
            let pc = self.processes[rank as usize].pc;
            let Some(op) = ops.get(pc as usize) else {
                return self.wrong(rank, pc, "the model goes on behind its last op");
            };
            let next = match &op.kind {
                OpKind::Serial(serial) => match self.serial(rank, serial)? {
                    Flow::On => pc + 1,
                    Flow::Later => return Ok(()),
                },
                OpKind::Message(message) => match self.communicate(rank, message)? {
                    Flow::On => continue,
                    Flow::Later => return Ok(()),
                },
                OpKind::Set(slot, expr) => {
                    let value = self.value(rank, expr)?;
                    self.set(rank, *slot, value)?;
                    pc + 1
                }
                OpKind::Take(take) => {
                    self.take(rank, take)?;
                    pc + 1
                }
                OpKind::Jump(target) => *target,
                OpKind::JumpUnless(condition, target) => {
                    if self.value(rank, condition)?.truth() {
                        pc + 1
                    } else {
                        *target
                    }
                }
                OpKind::Choose(branches) => {
                    let unit = open_unit(&mut self.processes[rank as usize].own);
                    match choice_of(branches, self.slots_of(rank), unit) {
                        Ok(Some(target)) => target,
                        Ok(None) => return self.wrong(rank, pc, "weights must be 0 or more, and one of them above 0"),
                        Err(e) => return self.no_value(rank, e),
                    }
                }
                OpKind::LoopBegin(around) => self.loop_begin(rank, pc, around)?,
                OpKind::LoopEnd(begin) => {
                    if self.repeats(rank) {
                        return self.give_up(rank, true);
                    }
                    self.skip_periods(rank, *begin);
                    self.loop_end(rank, pc, *begin)?
                }
                OpKind::Check(condition, text) => {
                    if !self.value(rank, condition)?.truth() {
                        return self.wrong(rank, pc, text.to_string());
                    }
                    pc + 1
                }
                OpKind::End => {
                    self.still.changes += 1;
                    self.processes[rank as usize].state = State::Done;
                    return Ok(());
                }
            };
            self.processes[rank as usize].pc = next;
        }
    }

    fn communicate(&mut self, rank: u32, message: &Message) -> Step<Flow> {
        let looks = matches!(message, Message::Test(_)) || matches!(message, Message::Probe(recv) if !recv.blocking);
        self.still.changes += u64::from(!looks);
        if !looks && let Some(polls) = &mut self.processes[rank as usize].polls {
            polls.acts();
        }
        match message {
            Message::Send(send) => self.send_op(rank, send),
            Message::Recv(recv) => self.recv_op(rank, recv),
            Message::Sendrecv(send, recv) => self.sendrecv_op(rank, send, recv),
            Message::SendInit(send) => self.send_init(rank, send),
            Message::RecvInit(recv) => self.recv_init(rank, recv),
            Message::Start(list) => self.start_op(rank, list),
            Message::Free(request) => self.free_op(rank, request),
            Message::Wait(requests) => self.wait_op(rank, requests),
            Message::Probe(recv) if recv.blocking => self.probe(rank),
            Message::Collective(collective) => self.collective_op(rank, collective),
            Message::Test(_) | Message::Probe(_) => {
                self.push(self.now, What::Look, rank, rank, 0);
                Ok(Flow::Later)
            }
        }
    }

    fn loop_begin(&mut self, rank: u32, pc: Pc, around: &Loop) -> Step<Pc> {
        self.steady.begins(rank, pc, self.steps);
        self.set(rank, around.index, Value::Int(0))?;
        if let Until::Count(count) = &around.until {
            let count = self.value(rank, count)?;
            let whole = match count {
                Value::Int(n) => Some(n),
                Value::Float(f) => Value::Float(f.trunc()).as_i64(),
            };
            let Some(n) = whole.filter(|n| *n >= 0) else {
                return self.wrong(rank, pc, format!("a loop of {count} iterations"));
            };
            self.set(rank, around.left, Value::Int(n))?;
        }
        self.loop_decide(rank, pc, around)
    }

    fn loop_decide(&mut self, rank: u32, begin: Pc, around: &Loop) -> Step<Pc> {
        let again = match &around.until {
            Until::Count(_) => self.slot(rank, around.left).is_some_and(Value::truth),
            Until::While(condition) => self.value(rank, condition)?.truth(),
        };
        Ok(if again { begin + 1 } else { around.exit })
    }

    fn loop_end(&mut self, rank: u32, pc: Pc, begin: Pc) -> Step<Pc> {
        let ops = &self.model.ops;
        let Some(OpKind::LoopBegin(around)) = ops.get(begin as usize).map(|op| &op.kind) else {
            return self.wrong(rank, pc, "the end of a loop without its beginning");
        };
        for (slot, by) in [(around.index, 1), (around.left, -1)] {
            let counted = matches!(around.until, Until::Count(_));
            if slot == around.index || counted {
                let now = self.slot(rank, slot).and_then(Value::as_i64).unwrap_or(0);
                self.set(rank, slot, Value::Int(now.saturating_add(by)))?;
            }
        }
        self.loop_decide(rank, begin, around)
    }

    fn take(&mut self, rank: u32, take: &Take) -> Step<()> {
        let row = self.slot(rank, take.cursor).and_then(Value::as_i64).unwrap_or(0);
        let model = self.model;
        let table = model.streams.get(take.stream.0 as usize);
        let there = table.filter(|t| row >= 0 && (row as u64) < t.rows() as u64);
        let Some(table) = there else { return self.set(rank, take.valid, Value::Int(0)) };
        for (column, slot) in &take.fields {
            let value = table.value(row as usize, *column).unwrap_or_default();
            self.set(rank, *slot, value)?;
        }
        self.set(rank, take.valid, Value::Int(1))?;
        self.set(rank, take.cursor, Value::Int(row + 1))
    }

    fn serial(&mut self, rank: u32, serial: &Serial) -> Step<Flow> {
        let Some((_, time, _)) = serial.times.first() else { return Ok(Flow::On) };
        let (value, unit_ns) = self.draw_time(rank, time)?;
        let process = &mut self.processes[rank as usize];
        let time = Time::from_units(value * process.factor, unit_ns);
        if time <= Time::ZERO {
            return Ok(Flow::On);
        }
        process.busy += time;
        self.keep(rank, time, Cause::Computation, Doing::Compute);
        self.push(self.now + time, What::Resume, rank, rank, 0);
        self.processes[rank as usize].pc += 1;
        Ok(Flow::Later)
    }

    /// A process is kept for a time from now on.
    pub(super) fn keep(&mut self, rank: u32, time: Time, cause: Cause, doing: Doing) {
        let process = &self.processes[rank as usize];
        let (start, op) = (process.accounted, process.pc);
        self.account(rank, start + time, cause);
        self.observer.span(&Span { process: rank, start, end: start + time, doing, op });
    }

    /// A time of the model, and the nanoseconds of its unit.
    fn draw_time(&mut self, rank: u32, time: &Timed) -> Step<(f64, f64)> {
        let unit = time.unit_ns;
        let law = match &time.law {
            Law::Fixed(value) => {
                let value = self.value(rank, value)?;
                // Only what is drawn below 0 counts as 0.
                if value.as_f64() < 0.0 {
                    return self.not_drawn(rank, format!("a time below 0: {value}"));
                }
                return Ok((value.as_f64(), unit));
            }
            Law::Uniform(low, high) => {
                let (low, high) = (self.value(rank, low)?.as_f64(), self.value(rank, high)?.as_f64());
                if low > high {
                    let said = format!(
                        "a time that cannot be drawn: uniform({low}, {high}) has its low end above its high one"
                    );
                    return self.not_drawn(rank, said);
                }
                let share = open_unit(&mut self.processes[rank as usize].own);
                return Ok((low + (high - low) * share, unit));
            }
            Law::Draw(stream, column) => return self.draw_row(rank, stream.0, *column).map(|v| (v, unit)),
            Law::Normal(mean, sd) => Distribution::Normal { mean: self.float(rank, mean)?, sd: self.float(rank, sd)? },
            Law::Exponential(mean) => Distribution::Exponential { location: 0.0, scale: self.float(rank, mean)? },
            Law::Lognormal(median, sigma) => {
                let mu = self.float(rank, median)?.ln();
                Distribution::Lognormal { location: 0.0, mu, sigma: self.float(rank, sigma)? }
            }
            Law::Gamma(shape, scale) => {
                Distribution::Gamma { location: 0.0, shape: self.float(rank, shape)?, scale: self.float(rank, scale)? }
            }
            Law::Weibull(shape, scale) => Distribution::Weibull {
                location: 0.0,
                shape: self.float(rank, shape)?,
                scale: self.float(rank, scale)?,
            },
            Law::Pearson5(shape, scale, location) => Distribution::Pearson5 {
                location: self.float(rank, location)?,
                shape: self.float(rank, shape)?,
                scale: self.float(rank, scale)?,
            },
        };
        if let Err(e) = law.check() {
            return self.not_drawn(rank, format!("a time that cannot be drawn: {e}"));
        }
        let drawn = law.sample(&mut self.processes[rank as usize].own) * unit;
        if !drawn.is_finite() {
            return self.no_value(rank, EvalError::NotFinite);
        }
        // To a thousandth of a nanosecond: logarithms and powers may differ in their last bit
        // between machines.
        Ok(((drawn * 1e3).round() / 1e3, 1.0))
    }

    #[cold]
    fn not_drawn<T>(&mut self, rank: u32, said: String) -> Step<T> {
        let op = self.processes[rank as usize].pc;
        self.wrong(rank, op, said)
    }

    fn float(&mut self, rank: u32, expr: &weir_annotations::Expr) -> Step<f64> {
        self.value(rank, expr).map(Value::as_f64)
    }

    fn draw_row(&mut self, rank: u32, stream: u32, column: usize) -> Step<f64> {
        let model = self.model;
        let table = model.streams.get(stream as usize).filter(|t| t.rows() > 0);
        let op = self.processes[rank as usize].pc;
        let Some(table) = table else { return self.wrong(rank, op, "the stream to draw from is empty") };
        let unit = open_unit(&mut self.processes[rank as usize].own);
        let row = ((unit * table.rows() as f64) as usize).min(table.rows() - 1);
        Ok(table.value(row, column).unwrap_or_default().as_f64())
    }
}
