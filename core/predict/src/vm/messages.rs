//! Messages: from a send to the receive that has them.

use weir_annotations::Value;
use weir_annotations::program::{FieldId, Pc, Recv, Send, SendMode};
use weir_stats::open_unit;

use crate::loss::{Awaited, Parts};
use crate::machine::SendEnd;
use crate::matching::{ChannelId, Wanted};
use crate::network::{Cargo, Entry};
use crate::observe::{Doing, Observer, Passed};
use crate::tour::{Kind as Moment, Order, Tour, What as Ordered};
use crate::vm::process::{Flow, State};
use crate::vm::requests::{Kind, NOBODY, Request, carried};
use crate::vm::{Run, Step, What, key};
use crate::{Cause, Time};

/// What a message tells its receiver.
pub(super) type Carried = Option<Box<[(FieldId, Value)]>>;

/// A message under way, or waiting for its receive.
#[derive(Debug)]
pub(super) struct Msg {
    pub from: u32,
    pub to: u32,
    pub tag: i64,
    /// The communicator, collectives apart.
    pub comm: u32,
    pub bytes: u64,
    pub op: Pc,
    /// Place among the messages of its sender.
    number: u64,
    channel: ChannelId,
    unit: f64,
    sent: Time,
    /// The sender's last wait, and what it had computed since, when it sent.
    woken: Time,
    busy: Time,
    /// When it set out, the last time it did.
    launched: Time,
    parts: Parts,
    /// It was announced first, and that took so long.
    asked: Option<Time>,
    ready: bool,
    lost: u32,
    /// When it came, and waits for those before it on its channel.
    landed: Option<Time>,
    /// Who waits for its receive, and who receives it; [`NOBODY`].
    send_request: u32,
    recv_request: u32,
    carries: Carried,
}

impl Msg {
    fn cargo(&self) -> Cargo {
        Cargo { from: self.from, to: self.to, bytes: self.bytes, unit: self.unit, asked: self.asked }
    }

    /// Gives itself to a tour; `place` is its own. Its luck is left out: a tour is made where
    /// nothing varies.
    pub fn tour(&mut self, tour: &mut Tour, place: u32) {
        let Self {
            from,
            to,
            tag,
            comm,
            bytes,
            op,
            number,
            channel: _,
            unit: _,
            sent,
            woken,
            busy,
            launched,
            parts,
            asked,
            ready,
            lost,
            landed,
            send_request,
            recv_request,
            carries,
        } = self;
        tour.word(landed.is_some().into());
        if let Some(landed) = landed {
            tour.moment(landed, Moment::Lies, place);
        }
        [*from, *to, *comm, *op, *lost, u32::from(*ready)].into_iter().for_each(|part| tour.word(part.into()));
        tour.tag(*comm, *tag);
        tour.word(*bytes);
        tour.ordered(Order::Sender(*from), *number, Ordered::Message(place));
        parts.tour(tour);
        tour.word(asked.is_some().into());
        tour.span(asked.unwrap_or_default());
        tour.request(*send_request);
        tour.request(*recv_request);
        carried(carries, tour);
        tour.moment(sent, Moment::Lies, place);
        tour.moment(launched, Moment::Lies, place);
        tour.since_wait(woken, busy);
    }
}

/// A message to be sent.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub to: u32,
    pub tag: i64,
    pub comm: u32,
    pub bytes: u64,
    pub mode: SendMode,
    pub op: Pc,
    pub carries: Carried,
}

/// The number that collectives of a communicator match under, and that its own messages do.
pub(super) fn matched_comm(comm: u32, collective: bool) -> u32 {
    comm << 1 | u32::from(collective)
}

impl<O: Observer> Run<'_, O> {
    /// Whether a send of this kind is complete without its receiver.
    pub(super) fn is_local(&self, from: u32, out: &Outgoing) -> bool {
        match out.mode {
            SendMode::Buffered => true,
            SendMode::Synchronous => false,
            SendMode::Standard | SendMode::Ready => self.network.path(from, out.to).is_eager(out.bytes),
        }
    }

    /// What a send takes at its own end.
    pub(super) fn send_end(&mut self, from: u32, out: &Outgoing) -> SendEnd {
        let (path, draw) = (self.network.path(from, out.to), self.options.draw);
        let luck = &mut self.processes[from as usize].luck;
        // Of what waits for permission only the announcement is sent by the call.
        let bytes = if out.mode == SendMode::Buffered || path.is_eager(out.bytes) { out.bytes } else { 0 };
        let end = path.send.send(bytes, draw, || open_unit(luck), &mut self.local_beyond);
        let here = |time| self.network.in_this_launch(time);
        SendEnd { call: here(end.call), complete: here(end.complete) }
    }

    /// A send that is complete without its receiver is so when its memory may be used again.
    pub(super) fn complete_later(&mut self, request: u32, after: Time) {
        let at = self.now + after;
        let owner = self.requests[request].owner;
        self.push(at, What::Free, request, owner, 0);
    }

    /// The memory of a send may be used again.
    pub(super) fn free(&mut self, request: u32) {
        let (owner, activity) = (self.requests[request].owner, self.requests[request].activity);
        let waiting = if activity == NOBODY { request } else { self.activities[activity].request() };
        let rest = self.now - self.processes[owner as usize].accounted;
        if self.requests[waiting].is_waited_for() && rest > Time::ZERO {
            self.keep(owner, rest, Cause::Overhead, Doing::Send);
        }
        self.complete(request, &Awaited { ready: self.now, ..Awaited::default() });
    }

    /// How long the end of a receive keeps its process.
    pub(super) fn receive_overhead(&mut self, at: u32, from: u32, bytes: u64) -> Time {
        let (path, draw) = (self.network.path(from, at), self.options.draw);
        let luck = &mut self.processes[at as usize].luck;
        path.receive.time(bytes, draw, || open_unit(luck), &mut self.local_beyond)
    }

    /// A message sets out from a process, or its announcement does.
    pub(super) fn post(&mut self, from: u32, out: Outgoing, send_request: u32) {
        self.sent += 1;
        self.sent_bytes = self.sent_bytes.saturating_add(out.bytes);
        let path = self.network.path(from, out.to);
        let eager = out.mode == SendMode::Buffered || path.is_eager(out.bytes);
        let channel = self.matching.channel(from, out.to, out.comm);
        let process = &mut self.processes[from as usize];
        process.sent += 1;
        let mut message = Msg {
            from,
            to: out.to,
            tag: out.tag,
            comm: out.comm,
            bytes: out.bytes,
            op: out.op,
            number: process.sent,
            channel,
            unit: open_unit(&mut process.luck),
            sent: self.now,
            woken: process.woken,
            busy: process.busy,
            launched: self.now,
            parts: Parts::default(),
            asked: (!eager).then(|| self.network.announcement(from, out.to)),
            ready: out.mode == SendMode::Ready,
            lost: 0,
            landed: None,
            send_request,
            recv_request: NOBODY,
            carries: out.carries,
        };
        if self.network.is_shared(from, out.to) {
            return self.post_shared(message);
        }
        let (at, what) = match message.asked {
            None => {
                let (reach, parts) = self.network.launch(self.now, message.cargo());
                message.parts = parts;
                (reach, What::Reach)
            }
            Some(announcement) => (self.now + announcement, What::Announced),
        };
        // Nothing overtakes what was sent before on the channel.
        let line = self.matching.at(channel);
        let ordered = at.max(line.last);
        line.last = ordered;
        line.under_way += 1;
        message.parts.flight.contention += ordered - at;
        let number = message.number;
        let id = self.messages.insert(message);
        self.push(ordered, what, id, from, number);
    }

    /// As [`Self::post`], of a message that shares its way: when it is there follows from what else
    /// begins and ends.
    fn post_shared(&mut self, mut message: Msg) {
        let (at, what) = match message.asked {
            None => {
                let (lead, parts) = self.network.lead(message.cargo());
                message.parts = parts;
                (self.now + lead, What::Begin)
            }
            Some(announcement) => (self.now + announcement, What::Land),
        };
        let (from, number, channel) = (message.from, message.number, message.channel);
        let id = self.messages.insert(message);
        let line = self.matching.at(channel);
        line.under_way += 1;
        line.way.push_back(id);
        self.push(at, what, id, from, number);
    }

    /// The bytes of a message set out on what it shares with others.
    pub(super) fn begin_flow(&mut self, id: u32) -> Step<()> {
        let message = &self.messages[id];
        let (from, number, cargo) = (message.from, message.number, message.cargo());
        self.count(from)?;
        self.network.begin_flow(self.now, cargo, id, key(0, from, number));
        Ok(())
    }

    /// The bytes of a message that shares its way are through, after `took`.
    pub(super) fn end_flow(&mut self, id: u32, took: Time) -> Step<()> {
        let message = &mut self.messages[id];
        message.parts.flight.contention += (took - message.parts.flight.bandwidth).or_zero();
        let (from, number, cargo, channel) = (message.from, message.number, message.cargo(), message.channel);
        let data = message.recv_request != NOBODY;
        self.count(from)?;
        if let Entry::Lost = self.network.enter(self.now, cargo) {
            self.lost += 1;
            let message = &mut self.messages[id];
            let again = self.now + self.network.timeout(message.lost);
            message.lost += 1;
            message.parts.retransmission += again - message.launched;
            self.push(again, What::Again, id, from, number);
            return Ok(());
        }
        if data { self.there(id) } else { self.land(id, channel) }
    }

    /// An announcement of a message that shares its way is there.
    pub(super) fn announcement_lands(&mut self, id: u32) -> Step<()> {
        let channel = self.messages[id].channel;
        self.count(self.messages[id].from)?;
        self.land(id, channel)
    }

    /// A message has come; it is there as soon as those before it on its channel are, and those
    /// behind it that have come with it.
    fn land(&mut self, id: u32, channel: ChannelId) -> Step<()> {
        self.messages[id].landed = Some(self.now);
        if self.matching.at(channel).way.front() != Some(&id) {
            return Ok(());
        }
        let was_lost = self.messages[id].lost > 0;
        while let Some(next) = self.matching.at(channel).way.front().copied() {
            let message = &mut self.messages[next];
            let Some(landed) = message.landed else { break };
            let waited = self.now - landed;
            if was_lost {
                message.parts.retransmission += waited;
            } else {
                message.parts.flight.contention += waited;
            }
            let asked = message.asked.is_some();
            self.matching.at(channel).way.pop_front();
            if asked { self.announced(next)? } else { self.there(next)? }
        }
        Ok(())
    }

    /// Data of a message whose receive is there set out.
    fn launch_data(&mut self, id: u32, recv_request: u32) {
        let message = &mut self.messages[id];
        message.recv_request = recv_request;
        message.launched = self.now;
        if self.network.is_shared(message.from, message.to) {
            let (lead, parts) = self.network.lead(message.cargo());
            message.parts = parts;
            let (from, number) = (message.from, message.number);
            return self.push(self.now + lead, What::Begin, id, from, number);
        }
        let (reach, parts) = self.network.launch(self.now, message.cargo());
        message.parts = parts;
        let (from, number) = (message.from, message.number);
        self.push(reach, What::Reach, id, from, number);
    }

    /// A message reaches its receiver's node.
    pub(super) fn reach(&mut self, id: u32) -> Step<()> {
        let now = self.now;
        let message = &self.messages[id];
        let (from, number, cargo) = (message.from, message.number, message.cargo());
        let data = message.recv_request != NOBODY;
        self.count(from)?;
        let held = if data { Time::ZERO } else { self.matching.at(self.messages[id].channel).held };
        if held > now {
            self.messages[id].parts.retransmission += held - now;
            self.push(held, What::Reach, id, from, number);
            return Ok(());
        }
        match self.network.enter(now, cargo) {
            Entry::There(at) if at <= now => return self.there(id),
            Entry::There(at) => {
                self.messages[id].parts.serialisation += at - now;
                self.push(at, What::There, id, from, number);
            }
            Entry::Lost => {
                self.network.leave(cargo.from, cargo.to);
                self.lost += 1;
                let message = &mut self.messages[id];
                let again = now + self.network.timeout(message.lost);
                message.lost += 1;
                message.parts.retransmission += again - message.launched;
                let channel = message.channel;
                if !data {
                    self.matching.at(channel).held = again;
                }
                self.push(again, What::Again, id, from, number);
            }
        }
        Ok(())
    }

    /// A message that was lost sets out again.
    pub(super) fn again(&mut self, id: u32) -> Step<()> {
        let cargo = self.messages[id].cargo();
        if self.network.is_shared(cargo.from, cargo.to) {
            let (lead, parts) = self.network.lead(cargo);
            let message = &mut self.messages[id];
            message.launched = self.now;
            message.parts = Parts { retransmission: message.parts.retransmission, ..parts };
            let (from, number) = (message.from, message.number);
            self.push(self.now + lead, What::Begin, id, from, number);
            return Ok(());
        }
        let (reach, parts) = self.network.launch(self.now, self.messages[id].cargo());
        let message = &mut self.messages[id];
        message.launched = self.now;
        message.parts = Parts { retransmission: message.parts.retransmission, ..parts };
        let (from, number, channel) = (message.from, message.number, message.channel);
        if message.recv_request == NOBODY {
            let line = self.matching.at(channel);
            line.held = reach;
            line.last = line.last.max(reach);
        }
        self.push(reach, What::Reach, id, from, number);
        Ok(())
    }

    /// All of a message is there.
    pub(super) fn there(&mut self, id: u32) -> Step<()> {
        let message = &self.messages[id];
        let (from, to, channel, tag, recv) =
            (message.from, message.to, message.channel, message.tag, message.recv_request);
        self.network.leave(from, to);
        if recv != NOBODY {
            return self.hand_over(id, recv);
        }
        self.matching.at(channel).under_way -= 1;
        match self.matching.arrived(channel, id, tag) {
            Some(recv) => self.hand_over(id, recv),
            None => self.unexpected(id),
        }
    }

    /// The announcement of a message is there.
    pub(super) fn announced(&mut self, id: u32) -> Step<()> {
        let message = &self.messages[id];
        let (from, channel, tag) = (message.from, message.channel, message.tag);
        self.count(from)?;
        self.matching.at(channel).under_way -= 1;
        match self.matching.arrived(channel, id, tag) {
            Some(recv) => self.matched(id, recv).map(|_| ()),
            None => self.unexpected(id),
        }
    }

    /// A message that nobody has asked for: perhaps somebody looks for it.
    fn unexpected(&mut self, id: u32) -> Step<()> {
        let message = &self.messages[id];
        self.ready_unposted += u64::from(message.ready);
        let to = message.to;
        if let State::Probing(wanted) = self.processes[to as usize].state {
            let fits = wanted.comm == message.comm
                && wanted.from.is_none_or(|from| from == message.from)
                && wanted.tag.is_none_or(|tag| tag == message.tag);
            if fits && !self.processes[to as usize].waking {
                let awaited = self.awaited_from_sender(id);
                self.charge(to, &awaited);
                self.wake(to);
            }
        }
        if let State::Polling { .. } = self.processes[to as usize].state {
            let awaited = self.awaited_from_sender(id);
            self.news(to, true, &awaited);
        }
        Ok(())
    }

    fn awaited_from_sender(&self, id: u32) -> Awaited {
        let message = &self.messages[id];
        Awaited { ready: message.sent, woken: message.woken, busy: message.busy, parts: message.parts }
    }

    /// A receive has got a message: if all of it is there, it is complete now. Returns whether it
    /// is.
    pub(super) fn matched(&mut self, id: u32, recv: u32) -> Step<bool> {
        if self.messages[id].asked.is_some() {
            self.fits(id, recv)?;
            self.launch_data(id, recv);
            return Ok(false);
        }
        self.hand_over(id, recv)?;
        Ok(true)
    }

    /// A message longer than its receive has room for is an error of the model.
    fn fits(&mut self, id: u32, recv: u32) -> Step<()> {
        let (message, request) = (&self.messages[id], &self.requests[recv]);
        match request.room {
            Some(room) if message.bytes > room => {
                let text = format!(
                    "a message of {} bytes from process {} meets a receive with room for {room}",
                    message.bytes, message.from
                );
                let (owner, op) = (request.owner, request.op);
                self.wrong(owner, op, text)
            }
            _ => Ok(()),
        }
    }

    /// A receive has all of a message.
    fn hand_over(&mut self, id: u32, recv: u32) -> Step<()> {
        self.fits(id, recv)?;
        let awaited = self.awaited_from_sender(id);
        let message = &mut self.messages[id];
        let carries = message.carries.take();
        let request = &mut self.requests[recv];
        request.source = i64::from(message.from);
        request.tag_got = message.tag;
        request.bytes = message.bytes;
        request.carries = carries;
        let by_receiver =
            Awaited { ready: request.posted, woken: request.woken, busy: request.busy, parts: message.parts };
        let parts = &message.parts;
        let under_way = parts.flight.total() + parts.retransmission + parts.serialisation;
        let arrived = if message.asked.is_some() { self.now } else { (message.sent + under_way).min(self.now) };
        let passed = Passed {
            from: message.from,
            to: message.to,
            bytes: message.bytes,
            tag: message.tag,
            comm: message.comm >> 1,
            collective: message.comm & 1 == 1,
            sent: message.sent,
            arrived,
            received: self.now,
            send_op: message.op,
            receive_op: request.op,
        };
        let send = message.send_request;
        self.observer.message(&passed);
        self.messages.free(id);
        self.complete(recv, &awaited);
        if send != NOBODY {
            self.complete(send, &by_receiver);
        }
        Ok(())
    }

    /// A send's arguments, but for what its message carries; none for one to nobody.
    pub(super) fn outgoing(&mut self, rank: u32, send: &Send) -> Step<Option<Outgoing>> {
        let Some(to) = self.rank(rank, &send.to)? else { return Ok(None) };
        let comm = self.comm(rank, &send.comm)?;
        Ok(Some(Outgoing {
            to,
            tag: self.tag(rank, &send.tag)?,
            comm: matched_comm(comm, false),
            bytes: self.bytes(rank, &send.size)?,
            mode: send.mode,
            op: self.processes[rank as usize].pc,
            carries: None,
        }))
    }

    /// What a send's message carries.
    pub(super) fn carried(&mut self, rank: u32, send: &Send) -> Step<Carried> {
        let mut carries = Vec::new();
        for (field, expr) in &send.carries {
            carries.push((*field, self.value(rank, expr)?));
        }
        Ok((!carries.is_empty()).then(|| carries.into_boxed_slice()))
    }

    /// What a receive or probe asks for; none for one from nobody.
    pub(super) fn wanted(&mut self, rank: u32, recv: &Recv) -> Step<Option<Wanted>> {
        let from = match &recv.from {
            None => None,
            Some(from) => match self.rank(rank, from)? {
                None => return Ok(None),
                some => some,
            },
        };
        let comm = self.comm(rank, &recv.comm)?;
        let tag = match &recv.tag {
            None => None,
            Some(tag) => Some(self.tag(rank, tag)?),
        };
        Ok(Some(Wanted { to: rank, from, comm: matched_comm(comm, false), tag }))
    }

    /// Begins a send; `blocks`: nothing else goes on until it ends. Returns its request unless that
    /// is over with what it keeps the process.
    fn begin_send(&mut self, rank: u32, send: &Send, blocks: bool) -> Step<Option<u32>> {
        let asked_for = send.request.is_some();
        let Some(out) = self.outgoing(rank, send)? else {
            return Ok(asked_for.then(|| self.nothing(rank, Kind::Send)));
        };
        let carries = self.carried(rank, send)?;
        self.begin_outgoing(rank, Outgoing { carries, ..out }, asked_for, blocks)
    }

    /// Begins a send whose arguments are known.
    pub(super) fn begin_outgoing(
        &mut self,
        rank: u32,
        out: Outgoing,
        asked_for: bool,
        blocks: bool,
    ) -> Step<Option<u32>> {
        let local = self.is_local(rank, &out);
        let SendEnd { call, complete } = self.send_end(rank, &out);
        let kept = if blocks && local { complete } else { call };
        let later = local && complete > kept;
        let mut request = None;
        if asked_for || !local || later {
            let mut made = Request::new(rank, &self.processes[rank as usize], Kind::Send, self.now);
            (made.op, made.peer, made.tag, made.comm) = (out.op, Some(out.to), Some(out.tag), out.comm);
            made.done = (local && !later).then_some(self.now);
            request = Some(self.requests.insert(made));
        }
        let told = if local { NOBODY } else { request.unwrap_or(NOBODY) };
        self.post(rank, out, told);
        if kept > Time::ZERO {
            self.keep(rank, kept, Cause::Overhead, Doing::Send);
        }
        if let (true, Some(request)) = (later, request) {
            self.complete_later(request, complete);
        }
        Ok(request)
    }

    /// Begins a receive.
    fn begin_recv(&mut self, rank: u32, recv: &Recv) -> Step<u32> {
        let Some(wanted) = self.wanted(rank, recv)? else { return Ok(self.nothing(rank, Kind::Recv)) };
        let room = self.room(rank, recv)?;
        self.begin_wanted(rank, wanted, room, self.processes[rank as usize].pc)
    }

    /// Bytes that a receive has room for.
    pub(super) fn room(&mut self, rank: u32, recv: &Recv) -> Step<Option<u64>> {
        recv.size.as_ref().map(|size| self.bytes(rank, size)).transpose()
    }

    /// Begins a receive whose arguments are known, which this op said.
    pub(super) fn begin_wanted(&mut self, rank: u32, wanted: Wanted, room: Option<u64>, op: Pc) -> Step<u32> {
        let mut made = Request::new(rank, &self.processes[rank as usize], Kind::Recv, self.now);
        made.op = op;
        (made.peer, made.tag, made.comm, made.room) = (wanted.from, wanted.tag, wanted.comm, room);
        let request = self.requests.insert(made);
        if let Some(message) = self.matching.posted(wanted, request) {
            self.matched(message, request)?;
        }
        Ok(request)
    }

    /// A request that is complete and means nothing (`MPI_PROC_NULL`).
    pub(super) fn nothing(&mut self, rank: u32, kind: Kind) -> u32 {
        let mut made = Request::new(rank, &self.processes[rank as usize], kind, self.now);
        made.done = Some(self.now);
        self.requests.insert(made)
    }

    pub(super) fn send_op(&mut self, rank: u32, send: &Send) -> Step<Flow> {
        let request = self.begin_send(rank, send, send.request.is_none())?;
        match (&send.request, request) {
            (Some(name), Some(request)) => {
                self.name(rank, name, request)?;
                Ok(self.next_op(rank))
            }
            (_, Some(request)) => {
                self.processes[rank as usize].wait.push((0, request));
                self.begin_wait(rank, false)
            }
            (_, None) => Ok(self.next_op(rank)),
        }
    }

    pub(super) fn recv_op(&mut self, rank: u32, recv: &Recv) -> Step<Flow> {
        let request = self.begin_recv(rank, recv)?;
        if let Some(name) = &recv.request {
            self.name(rank, name, request)?;
            return Ok(self.next_op(rank));
        }
        self.processes[rank as usize].wait.push((0, request));
        self.begin_wait(rank, false)
    }

    pub(super) fn sendrecv_op(&mut self, rank: u32, send: &Send, recv: &Recv) -> Step<Flow> {
        let received = self.begin_recv(rank, recv)?;
        let sent = self.begin_send(rank, send, false)?;
        let wait = &mut self.processes[rank as usize].wait;
        wait.push((0, received));
        wait.extend(sent.map(|sent| (1, sent)));
        self.begin_wait(rank, false)
    }

    /// The process goes on behind its op, when what has kept it is over.
    pub(super) fn next_op(&mut self, rank: u32) -> Flow {
        let at = self.processes[rank as usize].accounted;
        if at > self.now {
            self.push(at, What::Resume, rank, rank, 0);
        }
        let process = &mut self.processes[rank as usize];
        process.pc += 1;
        process.state = State::Ready;
        if at > self.now { Flow::Later } else { Flow::On }
    }

    /// A blocking or non-blocking probe.
    pub(super) fn probe(&mut self, rank: u32) -> Step<Flow> {
        let model = self.model;
        let pc = self.processes[rank as usize].pc;
        let recv = match model.ops.get(pc as usize).map(|op| &op.kind) {
            Some(weir_annotations::program::OpKind::Message(message)) => match &**message {
                weir_annotations::program::Message::Probe(recv) => recv,
                _ => return Ok(Flow::On),
            },
            _ => return Ok(Flow::On),
        };
        let wanted = self.wanted(rank, recv)?;
        let found = wanted.and_then(|wanted| self.matching.peek(wanted));
        match (wanted, found) {
            (Some(wanted), None) if recv.blocking => {
                self.processes[rank as usize].state = State::Probing(wanted);
                return Ok(Flow::Later);
            }
            (Some(_), None) => {
                if self.waits_in_look(rank, true) {
                    return Ok(Flow::Later);
                }
                self.bind_flag(rank, &recv.binds, false)?;
            }
            (_, found) => {
                let seen = found.map(|id| {
                    let m = &self.messages[id];
                    (i64::from(m.from), m.tag, m.bytes, m.carries.clone())
                });
                let (source, tag, bytes, carries) = seen.unwrap_or((-1, -1, 0, None));
                self.bind_flag(rank, &recv.binds, true)?;
                self.bind(rank, &recv.binds, source, tag, bytes, carries.as_deref())?;
            }
        }
        Ok(self.next_op(rank))
    }
}
