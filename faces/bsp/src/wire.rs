//! Messages between the processes of a program, over the engine: what a superstep waits for, by
//! kind.
//!
//! A tag is the superstep, the round of heads if it is one, and the kind, so what comes early waits
//! for its superstep, and of one kind what one process sends is received in its order.

use crate::counts::ROUNDS_MAX;
use crate::tuning;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_engine::{
    Carried, Class, Completion, DownReason, Endpoint, EngineError, Iov, MAX_INJECT_BYTES, OpError, OpKind, OwnQueue,
    Queue, RecvOp, RemotePiece, SendMode, SendOp, Superstep,
};
use weir_superstep::Slots;

/// Completions taken at once.
const AT_ONCE: usize = 64;
/// Longest text that goes with the news of an end.
const NEWS_BYTES: usize = 1024;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The head of a superstep message, with its body if that is short. Of even and odd supersteps:
    /// those of the next one are awaited already.
    FirstEven = 0,
    /// The same.
    FirstOdd = 1,
    /// A body that is long.
    Body = 2,
    /// What gets asked for.
    Reply = 3,
    /// The end of all, with a text for people.
    News = 4,
    /// A run that is put, and travels alone.
    Apart = 5,
    /// A run that was got, and travels alone.
    ApartReply = 6,
    /// Of a round of heads, with as many of them as have room. Of even and odd supersteps: those of
    /// the next one are awaited already.
    RoundEven = 7,
    /// The same.
    RoundOdd = 8,
    /// The others of such a round.
    Rest = 9,
    /// Nothing: of who meets on a board. That one waits for it tells whether its sender lives.
    Watch = 10,
}

/// How many kinds there are.
const KINDS: usize = 11;
/// Bits of a tag that say the kind; above them the round, and from bit 16 on the superstep.
const KIND_BITS: u32 = 8;
const SUPERSTEP_SHIFT: u32 = 16;
/// Bits of a receive's context that say of whom; the others say how long it must be (0 for what has
/// any length).
const PID_BITS: u32 = 20;
const PID_MASK: usize = (1 << PID_BITS) - 1;
/// The kind of a send's completion, which has none.
const SENT: u64 = KINDS as u64;
/// Of the news of the end.
const TOLD: u64 = SENT + 2;
/// Of [`Kind::Watch`], of which only a failure is told.
const WATCHED: u64 = SENT + 3;

/// Whose memory a send is from, and so who waits until it is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// This library's, of even supersteps, ...
    Even = 0,
    /// ... and of odd ones: it is needed again two supersteps later.
    Odd = 1,
    /// The program's: it is free at the end of the superstep.
    Program = 2,
}

impl Hold {
    /// The library's, of a superstep.
    #[must_use]
    pub fn of(superstep: u64) -> Hold {
        if superstep.is_multiple_of(2) { Hold::Even } else { Hold::Odd }
    }
}

impl Kind {
    /// The first message of a superstep.
    #[must_use]
    pub fn first(superstep: u64) -> Kind {
        if superstep.is_multiple_of(2) { Kind::FirstEven } else { Kind::FirstOdd }
    }

    /// A round of a superstep.
    #[must_use]
    pub fn round(superstep: u64) -> Kind {
        if superstep.is_multiple_of(2) { Kind::RoundEven } else { Kind::RoundOdd }
    }

    /// Which superstep's, of those that are awaited before it is known how long they are.
    fn side(self) -> Option<usize> {
        match self {
            Kind::FirstEven | Kind::RoundEven => Some(0),
            Kind::FirstOdd | Kind::RoundOdd => Some(1),
            _ => None,
        }
    }

    fn is_round(self) -> bool {
        matches!(self, Kind::RoundEven | Kind::RoundOdd)
    }

    const ALL: [Kind; KINDS] = [
        Kind::FirstEven,
        Kind::FirstOdd,
        Kind::Body,
        Kind::Reply,
        Kind::News,
        Kind::Apart,
        Kind::ApartReply,
        Kind::RoundEven,
        Kind::RoundOdd,
        Kind::Rest,
        Kind::Watch,
    ];
}

/// The tag of a message.
fn tag_of(kind: Kind, superstep: u64, round: usize) -> u64 {
    superstep << SUPERSTEP_SHIFT | (round as u64) << KIND_BITS | kind as u64
}

/// Why messages do not go on.
#[derive(Debug)]
pub enum WireError {
    /// A process is gone.
    Gone {
        /// Which.
        pid: usize,
        /// Why.
        reason: DownReason,
    },
    /// A process ended all, and has told people why.
    Ended,
    /// Anything else.
    Other(String),
}

/// How the engine is told of a superstep.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// So many bytes go by packets in one direction, or nothing is told.
    pub least: u64,
    /// What may wait in this host's interface.
    pub queue: OwnQueue,
    /// The slots that data goes in, if the medium is one that all share.
    pub slots: Option<Slots>,
}

/// The endpoint and its messages.
pub struct Wire {
    endpoint: Arc<Endpoint>,
    /// By pid.
    peers: Vec<u32>,
    own: usize,
    found: Vec<Completion>,
    /// Receives that are posted, by kind.
    posted: [usize; KINDS],
    /// How long the first message of a process was, by pid, for even and odd supersteps.
    firsts: [Vec<usize>; 2],
    /// The same of rounds, by round; none has not come.
    rounds: [[Option<usize>; ROUNDS_MAX]; 2],
    /// The superstep whose first messages are awaited, or have come.
    awaits: Option<u64>,
    /// Sends whose memory is still the engine's, by whose it is.
    sending: [usize; 3],
    /// The superstep in which the engine was told last what it is to send and get; that holds until
    /// it is told anew.
    paced: Option<u64>,
    /// That, by the engine's numbers of peers: sends, and receives.
    flows: [Vec<(u32, u64)>; 2],
    /// Bytes to others that it was told of so far as going in slots.
    slotted_bytes: u64,
    news: Box<[u8; NEWS_BYTES]>,
    /// Why processes are gone whose [`Kind::Watch`] is awaited.
    lost: Vec<Option<DownReason>>,
}

impl Wire {
    /// Among these processes, by pid, of which this one is `own`.
    ///
    /// # Errors
    /// A name that cannot be used.
    pub fn new(endpoint: Arc<Endpoint>, names: &[Vec<u8>], own: usize) -> Result<Wire, EngineError> {
        let peers = names.iter().map(|name| endpoint.insert_peer(name)).collect::<Result<Vec<_>, _>>()?;
        let firsts = [vec![0; peers.len()], vec![0; peers.len()]];
        let mut wire = Wire {
            endpoint,
            peers,
            own,
            found: Vec::with_capacity(AT_ONCE),
            posted: [0; KINDS],
            firsts,
            rounds: [[None; ROUNDS_MAX]; 2],
            awaits: None,
            sending: [0; 3],
            paced: None,
            flows: Default::default(),
            slotted_bytes: 0,
            news: Box::new([0; NEWS_BYTES]),
            lost: vec![None; names.len()],
        };
        wire.listen()?;
        Ok(wire)
    }

    /// From anybody, at any time: the end.
    fn listen(&mut self) -> Result<(), EngineError> {
        let memory = [Iov { base: self.news.as_mut_ptr(), len: NEWS_BYTES }];
        let op = RecvOp { source: None, ..Self::receive(0, Kind::News, 0, &memory) };
        // SAFETY: the memory lives as long as this, and nothing is received after the endpoint is
        // closed (`Drop`).
        unsafe { self.endpoint.recv(&op) }
    }

    fn receive(peer: u32, kind: Kind, superstep: u64, memory: &[Iov]) -> RecvOp<'_> {
        RecvOp {
            source: Some(peer),
            class: Class::Tagged,
            tag: tag_of(kind, superstep, 0),
            ignore: 0,
            memory,
            multi_min: None,
            report: true,
            context: peer as usize,
            user: kind as u64,
        }
    }

    /// Waits for a message of `from` into this memory.
    ///
    /// # Errors
    /// [`WireError`].
    ///
    /// # Safety
    /// The memory is nobody's but the engine's until [`Wire::is_waiting`] says that all of this
    /// kind have come.
    pub unsafe fn post(&mut self, from: usize, kind: Kind, superstep: u64, memory: &[Iov]) -> Result<(), WireError> {
        let len: usize = if kind.side().is_some() { 0 } else { memory.iter().map(|piece| piece.len).sum() };
        // SAFETY: passed on from the caller.
        unsafe { self.post_as(from, kind, tag_of(kind, superstep, 0), len, memory) }
    }

    /// Waits for the message of a round.
    ///
    /// # Errors
    /// [`WireError`].
    ///
    /// # Safety
    /// The memory is nobody's but the engine's until [`Wire::wait_round`] says how much has come.
    pub unsafe fn post_round(
        &mut self,
        from: usize,
        superstep: u64,
        round: usize,
        memory: &[Iov],
    ) -> Result<(), WireError> {
        let kind = Kind::round(superstep);
        self.rounds[(superstep % 2) as usize][round] = None;
        // SAFETY: passed on from the caller.
        unsafe { self.post_as(from, kind, tag_of(kind, superstep, round), round, memory) }
    }

    /// # Safety
    /// That of [`Wire::post`].
    unsafe fn post_as(
        &mut self,
        from: usize,
        kind: Kind,
        tag: u64,
        what: usize,
        memory: &[Iov],
    ) -> Result<(), WireError> {
        let context = from | what << PID_BITS;
        let op = RecvOp { context, tag, ..Self::receive(self.peers[from], kind, 0, memory) };
        // SAFETY: passed on from the caller.
        self.accepted(from, |endpoint| unsafe { endpoint.recv(&op) })?;
        self.posted[kind as usize] += 1;
        Ok(())
    }

    /// Sends a copy, of [`MAX_INJECT_BYTES`] at most.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn send_copy(&mut self, to: usize, kind: Kind, superstep: u64, pieces: &[&[u8]]) -> Result<(), WireError> {
        let mut memory = [Iov { base: std::ptr::null_mut(), len: 0 }; 8];
        let mut used = 0;
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            let Some(iov) = memory.get_mut(used) else { return Err(WireError::Other("too many pieces".into())) };
            *iov = Iov { base: piece.as_ptr().cast_mut(), len: piece.len() };
            used += 1;
        }
        let op = self.send_op(to, kind, superstep, &memory[..used], None);
        // SAFETY: it is copied before this returns.
        self.accepted(to, |endpoint| unsafe { endpoint.send(&op) })
    }

    /// Sends the message of a round, as [`Wire::send_copy`] does.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn send_round(&mut self, to: usize, superstep: u64, round: usize, bytes: &[u8]) -> Result<(), WireError> {
        let memory = [Iov { base: bytes.as_ptr().cast_mut(), len: bytes.len() }];
        let kind = Kind::round(superstep);
        let op = SendOp { tag: tag_of(kind, superstep, round), ..self.send_op(to, kind, superstep, &memory, None) };
        // SAFETY: it is copied before this returns.
        self.accepted(to, |endpoint| unsafe { endpoint.send(&op) })
    }

    /// Waits for the message of a round; returns its length.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn wait_round(&mut self, superstep: u64, round: usize) -> Result<usize, WireError> {
        loop {
            if let Some(len) = self.rounds[(superstep % 2) as usize][round].take() {
                return Ok(len);
            }
            self.turn()?;
        }
    }

    /// Sends from memory that is free again when [`Wire::wait_sent`] has returned.
    ///
    /// # Errors
    /// [`WireError`].
    ///
    /// # Safety
    /// The memory stays as it is until then.
    pub unsafe fn send(
        &mut self,
        to: usize,
        kind: Kind,
        superstep: u64,
        memory: &[Iov],
        hold: Hold,
    ) -> Result<(), WireError> {
        let op = self.send_op(to, kind, superstep, memory, Some(hold));
        // SAFETY: passed on from the caller.
        self.accepted(to, |endpoint| unsafe { endpoint.send(&op) })?;
        self.sending[hold as usize] += 1;
        Ok(())
    }

    fn send_op<'a>(&self, to: usize, kind: Kind, superstep: u64, memory: &'a [Iov], hold: Option<Hold>) -> SendOp<'a> {
        SendOp {
            peer: self.peers[to],
            class: Class::Tagged,
            tag: tag_of(kind, superstep, 0),
            data: None,
            memory,
            mode: if hold.is_none() { SendMode::Inject } else { SendMode::Transmit },
            copy: false,
            report: hold.is_some(),
            // Of a copied one only a failure is told, and maybe much later.
            context: to << 2 | hold.map_or(0, |hold| hold as usize),
            user: SENT + u64::from(hold.is_none()),
        }
    }

    /// From now on it is known of all others when they are gone, though nothing is awaited of them:
    /// [`Wire::lost`].
    ///
    /// # Errors
    /// [`WireError`].
    pub fn watch(&mut self) -> Result<(), WireError> {
        let own = self.own;
        // Nothing wakes who sleeps in the engine when another process writes to the board.
        self.endpoint.waits_elsewhere();
        (0..self.peers.len()).filter(|pid| *pid != own).try_for_each(|pid| {
            self.watch_one(pid)?;
            // Each is to be connected: whose memory is shared may stop for as long as it likes, and
            // be read from.
            self.greet(pid)
        })
    }

    fn watch_one(&mut self, pid: usize) -> Result<(), WireError> {
        // SAFETY: no memory.
        match unsafe { self.post(pid, Kind::Watch, 0, &[]) } {
            Err(WireError::Gone { reason, .. }) => self.lost[pid] = Some(reason),
            other => other?,
        }
        Ok(())
    }

    /// Why a process that is watched is gone, if it is.
    #[must_use]
    pub fn lost(&self, pid: usize) -> Option<DownReason> {
        self.lost[pid]
    }

    /// A process is waited for that has nothing to send: where only its silence tells of its death,
    /// it is asked for an acknowledgement.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn nudge(&mut self, pid: usize) -> Result<(), WireError> {
        if self.endpoint.shares_memory_with(self.peers[pid]) { Ok(()) } else { self.greet(pid) }
    }

    fn greet(&mut self, pid: usize) -> Result<(), WireError> {
        let op = SendOp { user: WATCHED, ..self.send_op(pid, Kind::Watch, 0, &[], None) };
        // SAFETY: no memory.
        match self.accepted(pid, |endpoint| unsafe { endpoint.send(&op) }) {
            Err(WireError::Gone { reason, .. }) => self.lost[pid] = Some(reason),
            other => other?,
        }
        Ok(())
    }

    /// This process begins to wait for what comes on the board.
    pub fn begin_wait(&self) {
        self.endpoint.begin_wait();
    }

    /// Of which others this process can read the memory: a bit for each of the first 64.
    #[must_use]
    pub fn reach(&self) -> u64 {
        let reached = |pid: &usize| *pid != self.own && self.endpoint.can_read_memory(self.peers[*pid]);
        (0..self.peers.len().min(64)).filter(reached).fold(0, |mask, pid| mask | 1 << pid)
    }

    /// Reads the memory of a process.
    ///
    /// # Errors
    /// [`WireError`].
    ///
    /// # Safety
    /// The local memory is writable, and nobody else's now.
    pub unsafe fn read_memory(&mut self, pid: usize, remote: &[RemotePiece], local: &[Iov]) -> Result<(), WireError> {
        // SAFETY: passed on from the caller.
        match unsafe { self.endpoint.read_memory(self.peers[pid], remote, local) } {
            Ok(()) => Ok(()),
            Err(EngineError::PeerDown(reason)) => Err(WireError::Gone { pid, reason }),
            Err(other) => Err(WireError::Other(format!("process {pid}: {other}"))),
        }
    }

    /// Whether receives of this kind are open.
    #[must_use]
    pub fn is_waiting(&self, kind: Kind) -> bool {
        self.posted[kind as usize] > 0
    }

    /// Whether the first messages of a superstep are awaited, or have come.
    #[must_use]
    pub fn awaits(&self, superstep: u64) -> bool {
        self.awaits == Some(superstep)
    }

    /// They are from now on.
    pub fn set_awaits(&mut self, superstep: u64) {
        self.awaits = Some(superstep);
    }

    /// What follows in this superstep is known: bytes to and from each process, in the order of
    /// service. The engine is told if packets carry at least `pace.least` of them in one direction;
    /// else nothing is done.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn pace(
        &mut self,
        superstep: u64,
        sends: impl Iterator<Item = (usize, u64)>,
        receives: impl Iterator<Item = (usize, u64)>,
        pace: Pace,
    ) -> Result<(), WireError> {
        let Wire { endpoint, peers, flows: [out, inn], .. } = self;
        // (Asked only of those with whom something long is exchanged.)
        let by_packets = |(pid, bytes): (usize, u64)| {
            (bytes > 0 && !endpoint.shares_memory_with(peers[pid])).then(|| (peers[pid], bytes))
        };
        out.clear();
        out.extend(sends.filter_map(by_packets));
        inn.clear();
        inn.extend(receives.filter_map(by_packets));
        let sum = |flows: &[(u32, u64)]| flows.iter().map(|flow| flow.1).sum::<u64>();
        let out_bytes = sum(out);
        if out_bytes.max(sum(inn)) < pace.least {
            return Ok(());
        }
        self.paced = Some(superstep);
        self.slotted_bytes += if pace.slots.is_some() { out_bytes } else { 0 };
        tuning::telling();
        self.tell_engine(pace.queue, pace.slots)
    }

    /// The longest of the least round trips to some processes, nanoseconds; 0 where packets
    /// measured none.
    pub fn least_round_trip_ns(&self, to: impl Iterator<Item = usize>) -> u64 {
        let trip = |pid: usize| self.endpoint.least_round_trip(self.peers[pid]);
        to.filter_map(trip).map(|trip| trip.as_nanos() as u64).max().unwrap_or(0)
    }

    /// Nothing more is told.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn pace_no_more(&mut self) -> Result<(), WireError> {
        self.end_pace(u64::MAX)
    }

    /// A superstep begins. If nothing was told in the one before, what was told earlier is over.
    ///
    /// # Errors
    /// [`WireError`].
    #[inline]
    pub fn end_pace(&mut self, superstep: u64) -> Result<(), WireError> {
        if self.paced.is_none_or(|told| told + 1 >= superstep) {
            return Ok(());
        }
        self.paced = None;
        self.flows.iter_mut().for_each(Vec::clear);
        self.tell_engine(OwnQueue::System, None)
    }

    fn tell_engine(&self, own_queue: OwnQueue, slots: Option<Slots>) -> Result<(), WireError> {
        let [sends, receives] = &self.flows;
        let step = Superstep { sends, receives, slots, own_queue };
        self.endpoint.superstep(&step).map_err(|e| WireError::Other(e.to_string()))
    }

    /// Waits until the engine has no memory of this owner any more to send from.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn wait_sent(&mut self, hold: Hold) -> Result<(), WireError> {
        while self.sending[hold as usize] > 0 {
            self.turn()?;
        }
        Ok(())
    }

    /// What went over the wire so far.
    #[must_use]
    pub fn carried(&self) -> Carried {
        self.endpoint.carried()
    }

    /// Bytes to others so far that packets were to carry in slots.
    #[must_use]
    pub fn slotted_bytes(&self) -> u64 {
        self.slotted_bytes
    }

    /// How long the first message of a process was.
    #[must_use]
    pub fn first_len(&self, superstep: u64, pid: usize) -> usize {
        self.firsts[(superstep % 2) as usize][pid]
    }

    /// Waits for all receives of a kind.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn wait(&mut self, kind: Kind) -> Result<(), WireError> {
        while self.is_waiting(kind) {
            self.turn()?;
        }
        Ok(())
    }

    /// One pass of progress; takes what has completed.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn turn(&mut self) -> Result<(), WireError> {
        if self.endpoint.poll(Queue::Both, &mut self.found, AT_ONCE) == 0 {
            return self.endpoint.check().map_err(|e| WireError::Other(e.to_string()));
        }
        let mut found = std::mem::take(&mut self.found);
        let mut result = Ok(());
        // All of them: behind a send to a peer that is gone may stand the word of why it is gone,
        // which says more.
        for c in found.drain(..) {
            match self.completed(&c) {
                Err(WireError::Ended) => result = Err(WireError::Ended),
                other => result = result.and(other),
            }
        }
        self.found = found;
        result
    }

    fn completed(&mut self, c: &Completion) -> Result<(), WireError> {
        let is_receive = c.kind == OpKind::Recv;
        match c.result {
            Ok(()) if is_receive => self.received(c),
            Ok(()) => {
                if c.user == SENT {
                    self.sending[c.context & 3] -= 1;
                }
                Ok(())
            }
            Err(OpError::PeerDown(reason)) if c.user == Kind::News as u64 => Err(WireError::Other(reason.to_string())),
            Err(OpError::PeerDown(reason)) if c.user == Kind::Watch as u64 && is_receive => {
                self.lost[c.context & PID_MASK] = Some(reason);
                Ok(())
            }
            Err(OpError::PeerDown(reason)) if c.user == WATCHED => {
                self.lost[c.context >> 2] = Some(reason);
                Ok(())
            }
            Err(OpError::PeerDown(reason)) => {
                let pid = if is_receive { c.context & PID_MASK } else { c.context >> 2 };
                Err(WireError::Gone { pid, reason })
            }
            Err(error) => Err(WireError::Other(format!("a message failed: {error}"))),
        }
    }

    fn received(&mut self, c: &Completion) -> Result<(), WireError> {
        let kind = c.user as usize;
        if kind == Kind::News as usize {
            return Err(WireError::Ended);
        }
        let (pid, what) = (c.context & PID_MASK, c.context >> PID_BITS);
        match Kind::ALL.get(kind).and_then(|kind| Some((*kind, kind.side()?))) {
            Some((kind, side)) if kind.is_round() => self.rounds[side][what] = Some(c.len),
            Some((_, side)) => self.firsts[side][pid] = c.len,
            None if c.len == what => {}
            None => {
                let text = format!("process {pid} sent {} bytes where {what} were to come", c.len);
                return Err(WireError::Other(text));
            }
        }
        self.posted[kind] -= 1;
        if kind == Kind::Watch as usize { self.watch_one(pid) } else { Ok(()) }
    }

    /// Calls until it is not told to try again.
    fn accepted(&mut self, pid: usize, call: impl Fn(&Endpoint) -> Result<(), EngineError>) -> Result<(), WireError> {
        loop {
            match call(&self.endpoint) {
                Ok(()) => return Ok(()),
                Err(EngineError::Again) => self.turn()?,
                Err(EngineError::PeerDown(reason)) => return Err(WireError::Gone { pid, reason }),
                Err(other) => return Err(WireError::Other(other.to_string())),
            }
        }
    }

    /// Tells these others that it is over, as far as they can be told, and waits until they know,
    /// for `patience` at most.
    pub fn tell(&mut self, others: impl Iterator<Item = usize>, text: &str, patience: Duration) {
        let mut end = text.len().min(NEWS_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let memory = [Iov { base: text.as_ptr().cast_mut(), len: end }];
        let mut open = 0;
        for pid in others.filter(|pid| *pid != self.own && *pid < self.peers.len()) {
            let mut op = self.send_op(pid, Kind::News, 0, &memory, Some(Hold::Program));
            (op.mode, op.copy, op.user) = (SendMode::Acknowledged, true, TOLD);
            // SAFETY: copied before this returns. Who cannot be told is gone, or finds out by
            // itself.
            open += usize::from(unsafe { self.endpoint.send(&op) }.is_ok());
        }
        let since = Instant::now();
        while open > 0 && since.elapsed() < patience && self.endpoint.check().is_ok() {
            self.endpoint.poll(Queue::Both, &mut self.found, AT_ONCE);
            open -= self.found.drain(..).filter(|c| c.user == TOLD).count().min(open);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // From here on nothing writes to memory of this.
        self.endpoint.close();
    }
}

const _: () = assert!(NEWS_BYTES <= MAX_INJECT_BYTES);
