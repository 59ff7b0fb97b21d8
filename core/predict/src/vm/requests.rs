//! Requests: what a process waits for, tests, and learns.

use weir_annotations::Value;
use weir_annotations::expr::Slot;
use weir_annotations::program::{Bound, FieldId, Message, OpKind, Pc, Requests, WaitMode};

use crate::loss::Awaited;
use crate::observe::{Doing, Observer, Span};
use crate::tour::{Kind as Moment, Tour};
use crate::vm::messages::Carried;
use crate::vm::process::{Flow, Process, State};
use crate::vm::{Run, Step, What};
use crate::{Cause, Time};

/// No request, no activity.
pub(super) const NOBODY: u32 = u32::MAX;

/// What a request is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Recv,
    Collective,
}

/// An operation that was begun.
#[derive(Debug)]
pub(super) struct Request {
    pub owner: u32,
    /// The collective at its owner that it is part of; [`NOBODY`].
    pub activity: u32,
    pub kind: Kind,
    pub op: Pc,
    /// When it was complete.
    pub done: Option<Time>,
    /// Its owner waits for it.
    waited: bool,
    /// Its owner has waited for it, and it is about to be freed.
    taken: bool,
    /// Its owner has given it up: it is freed when it is complete.
    pub given_up: bool,
    pub peer: Option<u32>,
    pub tag: Option<i64>,
    pub comm: u32,
    /// When it was begun, and its owner's last wait and what it had computed since.
    pub posted: Time,
    pub woken: Time,
    pub busy: Time,
    /// Bytes a receive has room for.
    pub room: Option<u64>,
    /// What a receive got.
    pub source: i64,
    pub tag_got: i64,
    pub bytes: u64,
    pub carries: Carried,
}

impl Request {
    pub fn new(owner: u32, process: &Process, kind: Kind, now: Time) -> Self {
        Self {
            owner,
            activity: NOBODY,
            kind,
            op: process.pc,
            done: None,
            waited: false,
            taken: false,
            given_up: false,
            peer: None,
            tag: None,
            comm: 0,
            posted: now,
            woken: process.woken,
            busy: process.busy,
            room: None,
            source: -1,
            tag_got: -1,
            bytes: 0,
            carries: None,
        }
    }

    pub fn is_waited_for(&self) -> bool {
        self.waited
    }

    /// Gives itself to a tour; `place` is its own.
    pub fn tour(&mut self, tour: &mut Tour, place: u32) {
        let Self {
            owner,
            activity,
            kind,
            op,
            done,
            waited,
            taken,
            given_up,
            peer,
            tag,
            comm,
            posted,
            woken,
            busy,
            room,
            source,
            tag_got,
            bytes,
            carries,
        } = self;
        [*owner, *op, *comm].into_iter().for_each(|part| tour.word(part.into()));
        tour.activity(*activity);
        tour.word(*kind as u64);
        [*waited, *taken, *given_up, done.is_some(), tag.is_some()].into_iter().for_each(|is| tour.word(is.into()));
        match (*kind, *peer) {
            (Kind::Collective, Some(activity)) => tour.activity(activity),
            (_, peer) => tour.maybe(peer.map(u64::from)),
        }
        tour.tag(*comm, tag.unwrap_or(-1));
        tour.maybe(*room);
        tour.signed(*source);
        tour.tag(*comm, *tag_got);
        tour.word(*bytes);
        carried(carries, tour);
        tour.moment(posted, Moment::Lies, place);
        if let Some(done) = done {
            tour.moment(done, Moment::Done, place);
        }
        tour.since_wait(woken, busy);
    }
}

/// Gives what a message tells to a tour.
pub(super) fn carried(carries: &Carried, tour: &mut Tour) {
    let all = carries.as_deref().unwrap_or(&[]);
    tour.word(all.len() as u64);
    for (field, value) in all {
        tour.word(field.0.into());
        valued(*value, tour);
    }
}

/// Gives a value to a tour.
pub(super) fn valued(value: Value, tour: &mut Tour) {
    let (kind, bits) = match value {
        Value::Int(n) => (0, n.cast_unsigned()),
        Value::Float(x) => (1, x.to_bits()),
    };
    tour.word(kind);
    tour.word(bits);
}

/// A request that the model named.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named {
    pub id: u32,
    pub index: i64,
    pub request: u32,
    /// The number of the persistent request that began it; 0: none.
    pub maker: u64,
}

impl Named {
    /// Gives itself to a tour, but for what began it.
    pub fn tour(&self, tour: &mut Tour) {
        let Self { id, index, request, maker: _ } = self;
        tour.word((*id).into());
        tour.signed(*index);
        tour.request(*request);
    }
}

impl<O: Observer> Run<'_, O> {
    /// Enters a request under its name.
    pub(super) fn name(&mut self, rank: u32, name: &weir_annotations::program::Request, request: u32) -> Step<()> {
        let index = match &name.index {
            None => 0,
            Some(index) => self.whole(rank, index)?,
        };
        self.processes[rank as usize].requests.push(Named { id: name.id.0, index, request, maker: 0 });
        Ok(())
    }

    /// Fills the process's list of what it waits for or tests; returns how many of it are complete.
    fn listed(&mut self, rank: u32, requests: &Requests) -> Step<usize> {
        let mut list = std::mem::take(&mut self.processes[rank as usize].wait);
        list.clear();
        for (position, asked) in (0u32..).zip(&requests.list) {
            let index = match &asked.index {
                None => None,
                Some(index) => Some(self.whole(rank, index)?),
            };
            let named = &self.processes[rank as usize].requests;
            let fitting = named.iter().filter(|n| n.id == asked.id.0 && index.is_none_or(|i| i == n.index));
            let most = if requests.mode == WaitMode::One { 1 } else { usize::MAX };
            // One that is named twice is waited for, and freed, once.
            let before = list.len();
            for n in fitting.take(most) {
                if !list[..before].iter().any(|(_, listed)| *listed == n.request) {
                    list.push((position, n.request));
                }
            }
            self.steps += named.len() as u64;
        }
        let complete = list.iter().filter(|(_, request)| self.requests[*request].done.is_some()).count();
        self.processes[rank as usize].wait = list;
        Ok(complete)
    }

    pub(super) fn wait_op(&mut self, rank: u32, requests: &Requests) -> Step<Flow> {
        self.listed(rank, requests)?;
        self.begin_wait(rank, matches!(requests.mode, WaitMode::Any | WaitMode::Some))
    }

    /// Waits for all in the process's list, or any of them.
    pub(super) fn begin_wait(&mut self, rank: u32, any: bool) -> Step<Flow> {
        let process = &mut self.processes[rank as usize];
        let requests = &mut self.requests;
        let open = process.wait.iter().filter(|(_, r)| requests[*r].done.is_none()).count();
        let enough = open == 0 || any && open < process.wait.len();
        if enough && process.accounted <= self.now {
            return self.finish_wait(rank);
        }
        process.state = State::Waiting;
        process.any = any;
        process.open = open as u32;
        for (_, request) in &process.wait {
            let request = &mut requests[*request];
            request.waited = request.done.is_none();
        }
        if enough {
            self.wake(rank);
        }
        Ok(Flow::Later)
    }

    /// A request is complete now.
    pub(super) fn complete(&mut self, id: u32, awaited: &Awaited) {
        let request = &mut self.requests[id];
        request.done = Some(self.now);
        let (owner, activity, waited) = (request.owner, request.activity, request.waited);
        request.waited = false;
        if activity != NOBODY {
            return self.activity_completes(activity, id, awaited);
        }
        if self.requests[id].given_up {
            return self.requests.free(id);
        }
        if !waited {
            return self.news(owner, false, awaited);
        }
        self.charge(owner, awaited);
        let process = &mut self.processes[owner as usize];
        process.open -= 1;
        if process.any || process.open == 0 {
            self.wake(owner);
        }
    }

    /// A process that waits goes on, now or when what keeps it is over.
    pub(super) fn wake(&mut self, rank: u32) {
        let process = &mut self.processes[rank as usize];
        if !process.waking {
            process.waking = true;
            let at = process.accounted.max(self.now);
            self.push(at, What::Resume, rank, rank, 0);
        }
    }

    /// Divides what a process has waited until now by cause.
    pub(super) fn charge(&mut self, rank: u32, awaited: &Awaited) {
        let process = &mut self.processes[rank as usize];
        let (from, to, op) = (process.accounted, self.now, process.pc);
        if to <= from {
            return;
        }
        process.accounted = to;
        let (own, by_op) = (&mut self.losses.by_process[rank as usize], self.losses.by_op.get_mut(op as usize));
        match by_op {
            Some(by_op) => awaited.divide(from, to, |cause, time| {
                own.put(cause, time);
                by_op.put(cause, time);
            }),
            None => awaited.divide(from, to, |cause, time| own.put(cause, time)),
        }
        self.observer.span(&Span { process: rank, start: from, end: to, doing: Doing::Wait, op });
    }

    /// The process's op at hand, as a message.
    fn message_op(&self, rank: u32) -> Option<&'_ Message> {
        match &self.model.ops.get(self.processes[rank as usize].pc as usize)?.kind {
            OpKind::Message(message) => Some(message),
            _ => None,
        }
    }

    /// What a process waited for is there.
    pub(super) fn finish_wait(&mut self, rank: u32) -> Step<Flow> {
        let model = self.model;
        let pc = self.processes[rank as usize].pc;
        let requests = match &model.ops[pc as usize].kind {
            OpKind::Message(message) => match &**message {
                Message::Wait(requests) => Some(requests),
                _ => None,
            },
            _ => None,
        };
        self.consume(rank, requests)?;
        Ok(self.next_op(rank))
    }

    /// Takes what is complete of the process's list: binds what it says, frees it.
    fn consume(&mut self, rank: u32, requests: Option<&Requests>) -> Step<()> {
        let mut list = std::mem::take(&mut self.processes[rank as usize].wait);
        let mode = requests.map_or(WaitMode::All, |requests| requests.mode);
        let listed = list.len();
        let mut taken = if mode == WaitMode::Any { self.earliest(&list) } else { None };
        if matches!(mode, WaitMode::Any | WaitMode::Some) {
            for (_, request) in &list {
                self.requests[*request].waited = false;
            }
            list.retain(
                |one| if mode == WaitMode::Any { taken == Some(*one) } else { self.requests[one.1].done.is_some() },
            );
        }
        let mut last = None;
        for (position, id) in &list {
            self.requests[*id].taken = true;
            if self.requests[*id].kind == Kind::Recv {
                self.received(rank, *id)?;
                last = Some(*id);
            }
            taken = Some((*position, *id));
        }
        if let Some(requests) = requests {
            let (named, all) = (&mut self.processes[rank as usize].requests, &self.requests);
            named.retain(|n| !all[n.request].taken);
            self.bind_flag(rank, &requests.binds, true)?;
            let index = taken.map_or(-1, |(position, _)| i64::from(position));
            for (_, slot) in requests.binds.iter().filter(|b| b.0 == Bound::Index) {
                self.set(rank, *slot, Value::Int(index))?;
            }
            self.bind_outcount(rank, &requests.binds, if listed == 0 { -1 } else { list.len() as i64 })?;
            if let Some(id) = last {
                self.bind_received(rank, id, &requests.binds)?;
            }
        }
        for (_, id) in list.drain(..) {
            self.requests.free(id);
        }
        self.processes[rank as usize].wait = list;
        Ok(())
    }

    /// The earliest complete of a list; the first position among equals.
    fn earliest(&self, list: &[(u32, u32)]) -> Option<(u32, u32)> {
        let complete = list.iter().filter_map(|(p, id)| self.requests[*id].done.map(|at| (at, *p, *id)));
        complete.min_by_key(|(at, position, _)| (*at, *position)).map(|(_, position, id)| (position, id))
    }

    /// The end of a receive: its own binds, and the time it keeps the process.
    fn received(&mut self, rank: u32, id: u32) -> Step<()> {
        let model = self.model;
        let request = &self.requests[id];
        let (op, source, bytes) = (request.op, request.source, request.bytes);
        let binds = match model.ops.get(op as usize).map(|op| &op.kind) {
            Some(OpKind::Message(message)) => match &**message {
                Message::Recv(recv) | Message::RecvInit(recv) | Message::Sendrecv(_, recv) => recv.binds.as_slice(),
                _ => &[],
            },
            _ => &[],
        };
        self.bind_received(rank, id, binds)?;
        if let Ok(source) = u32::try_from(source) {
            let overhead = self.receive_overhead(rank, source, bytes);
            if overhead > Time::ZERO {
                self.keep(rank, overhead, Cause::Overhead, Doing::Receive);
            }
        }
        Ok(())
    }

    fn bind_received(&mut self, rank: u32, id: u32, binds: &[(Bound, Slot)]) -> Step<()> {
        if binds.is_empty() {
            return Ok(());
        }
        let request = &self.requests[id];
        let (source, tag, bytes) = (request.source, request.tag_got, request.bytes);
        let carries = request.carries.clone();
        self.bind(rank, binds, source, tag, bytes, carries.as_deref())
    }

    /// Puts what is learned of a message into slots.
    pub(super) fn bind(
        &mut self,
        rank: u32,
        binds: &[(Bound, Slot)],
        source: i64,
        tag: i64,
        bytes: u64,
        carries: Option<&[(FieldId, Value)]>,
    ) -> Step<()> {
        for (what, slot) in binds {
            let value = match what {
                Bound::Source => Value::Int(source),
                Bound::Tag => Value::Int(tag),
                Bound::Size => Value::Int(i64::try_from(bytes).unwrap_or(i64::MAX)),
                Bound::Flag | Bound::Index | Bound::Outcount => continue,
                Bound::Carried(field) => {
                    let found = carries.and_then(|c| c.iter().find(|c| c.0 == *field)).map(|c| c.1);
                    match found {
                        Some(value) => value,
                        None => return self.not_carried(rank, *field, source),
                    }
                }
            };
            self.set(rank, *slot, value)?;
        }
        Ok(())
    }

    fn not_carried(&mut self, rank: u32, field: FieldId, source: i64) -> Step<()> {
        let name = self.model.fields.get(field.0 as usize).cloned().unwrap_or_default();
        let op = self.processes[rank as usize].pc;
        self.wrong(rank, op, format!("the message from process {source} carries no `{name}`"))
    }

    pub(super) fn bind_flag(&mut self, rank: u32, binds: &[(Bound, Slot)], flag: bool) -> Step<()> {
        for (_, slot) in binds.iter().filter(|b| b.0 == Bound::Flag) {
            self.set(rank, *slot, Value::Int(i64::from(flag)))?;
        }
        Ok(())
    }

    fn bind_outcount(&mut self, rank: u32, binds: &[(Bound, Slot)], count: i64) -> Step<()> {
        for (_, slot) in binds.iter().filter(|b| b.0 == Bound::Outcount) {
            self.set(rank, *slot, Value::Int(count))?;
        }
        Ok(())
    }

    /// A test or `MPI_Iprobe`.
    pub(super) fn look(&mut self, rank: u32) -> Step<Flow> {
        let model = self.model;
        if !matches!(self.message_op(rank), Some(Message::Test(_))) {
            return self.probe(rank);
        }
        let pc = self.processes[rank as usize].pc;
        let OpKind::Message(message) = &model.ops[pc as usize].kind else { return Ok(Flow::On) };
        let Message::Test(requests) = &**message else { return Ok(Flow::On) };
        let complete = self.listed(rank, requests)?;
        let listed = self.processes[rank as usize].wait.len();
        let flag = match requests.mode {
            WaitMode::Any | WaitMode::Some => complete > 0 || listed == 0,
            WaitMode::One | WaitMode::All => complete == listed,
        };
        if flag {
            self.still.changes += u64::from(listed > 0);
            if let Some(polls) = &mut self.processes[rank as usize].polls {
                polls.acts();
            }
            self.consume(rank, Some(requests))?;
        } else {
            self.processes[rank as usize].wait.clear();
            if self.waits_in_look(rank, false) {
                return Ok(Flow::Later);
            }
            self.bind_flag(rank, &requests.binds, false)?;
            self.bind_outcount(rank, &requests.binds, 0)?;
        }
        Ok(self.next_op(rank))
    }
}
