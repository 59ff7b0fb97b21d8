//! Weir's own endpoint as a port that sends and receives and waits: every operation is over when
//! its call returns, so that the caller's memory is borrowed for as long as the endpoint uses it.

use std::cell::{RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::sync::Arc;

use weir_engine::{
    AMO_COUNT_MAX, Access, AmoOp, Atomic, AtomicOp, AtomicType, Class, Completion, Diagnostic, Endpoint, EngineConfig,
    EngineError, Iov, MAX_INJECT_BYTES, NAME_BYTES, OpError, OpKind, PeekOp, Queue, RecvOp, RmaOp, SendMode, SendOp,
};

use crate::error::{BenchError, Result};
use crate::exchange::Leg;

/// Contexts of receives: from here on, by their place.
const RECEIVE: usize = 1 << 40;
/// Contexts of mail ([`super::mail`]): from here on.
pub(super) const MAIL: usize = 1 << 41;
/// Completions taken at once.
const AT_ONCE: usize = 64;

/// An endpoint and its peers, by rank.
pub struct Port {
    endpoint: Arc<Endpoint>,
    peers: Vec<u32>,
    found: RefCell<Vec<Completion>>,
    /// Ends of mail that nobody has looked at yet.
    mail: RefCell<VecDeque<Completion>>,
}

/// What is sent.
#[derive(Clone, Copy)]
pub struct Out<'a> {
    /// The message.
    pub data: &'a [u8],
    /// To this rank.
    pub to: usize,
    /// So many times.
    pub count: usize,
}

/// What is received: `count` messages one behind the other, each as long as the others.
pub struct In<'a> {
    /// Where.
    pub into: &'a mut [u8],
    /// From this rank, or anybody.
    pub from: Option<usize>,
    /// How many.
    pub count: usize,
    /// Whether each must fill its place.
    pub exact: bool,
}

fn engine(error: EngineError) -> BenchError {
    BenchError::machine("Weir", error)
}

/// What the engine has to say goes to standard error, in one write a line.
fn tell(what: &Diagnostic<'_>) {
    use std::io::Write;
    let text = match what {
        Diagnostic::Trace(text) | Diagnostic::Counters(text) => (*text).to_owned(),
        Diagnostic::Notice(line) | Diagnostic::PeerDown { line, .. } => format!("weir: {line}\n"),
    };
    // Not `eprint`, which panics when nobody reads standard error any more.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

impl Port {
    /// Opens an endpoint.
    ///
    /// # Errors
    /// The engine's.
    pub fn open(config: EngineConfig) -> Result<Port> {
        let key = weir_engine::job_key().map_err(engine)?;
        Port::open_with_key(config, key)
    }

    /// Opens an endpoint with this job key.
    ///
    /// # Errors
    /// The engine's.
    pub fn open_with_key(config: EngineConfig, key: [u8; 32]) -> Result<Port> {
        let endpoint = Endpoint::open_told(config, key, std::sync::Arc::new(tell)).map_err(engine)?;
        let (found, mail) = (RefCell::new(Vec::with_capacity(AT_ONCE)), RefCell::default());
        Ok(Port { endpoint, peers: Vec::new(), found, mail })
    }

    /// This endpoint's name, to be told to the others.
    #[must_use]
    pub fn name(&self) -> [u8; NAME_BYTES] {
        self.endpoint.name()
    }

    /// All counters of the endpoint as one JSON document.
    #[must_use]
    pub fn counters_json(&self) -> String {
        self.endpoint.counters_json()
    }

    /// Makes the others known, by rank.
    ///
    /// # Errors
    /// The engine's.
    pub fn connect(&mut self, names: &[[u8; NAME_BYTES]]) -> Result<()> {
        self.peers = names
            .iter()
            .enumerate()
            .map(|(rank, name)| {
                let failed = |error| BenchError::machine(format!("Weir, to rank {rank}"), error);
                self.endpoint.insert_peer(name).map_err(failed)
            })
            .collect::<Result<_>>()?;
        Ok(())
    }

    /// Ends in good order: what was sent arrives.
    pub fn close(&self) {
        self.endpoint.close();
    }

    /// Whether a message with this tag from this rank has come.
    ///
    /// # Errors
    /// The engine's.
    pub fn arrived(&self, from: usize, tag: u16) -> Result<bool> {
        let mut state = State::default();
        self.take(&mut state);
        if let Some(error) = state.failed {
            return Err(error);
        }
        let op = PeekOp {
            source: Some(self.peers[from]),
            class: Class::Tagged,
            tag: tag.into(),
            ignore: 0,
            claim: false,
            discard: false,
            context: 0,
        };
        Ok(self.endpoint.peek(&op).map_err(engine)?.is_some())
    }

    /// Posts the receives, begins the sends, waits for the receives, calls `received`, waits for
    /// the sends. Returns who sent the last message.
    ///
    /// # Errors
    /// The engine's. Nothing is under way any more in either case.
    #[inline]
    pub fn run(
        &self,
        out: Option<Out<'_>>,
        mut into: Option<In<'_>>,
        tag: u16,
        received: impl FnOnce(),
    ) -> Result<Option<usize>> {
        let (to, from) = (out.as_ref().map(|send| send.to), into.as_ref().map(|receive| receive.from));
        let with = match (to, from.flatten()) {
            (Some(to), Some(from)) => Some(to).filter(|to| *to == from),
            (to, from) => to.or(from),
        };
        let mut state = State { with, ..State::default() };
        if let Some(receive) = &mut into {
            let each = receive.into.len() / receive.count.max(1);
            state.expected = if receive.exact { Expected::Each(each) } else { Expected::Any };
            for i in 0..receive.count {
                let piece = &mut receive.into[i * each..(i + 1) * each];
                self.post(piece, receive.from, tag, i, &mut state);
            }
        }
        if let Some(send) = out {
            let each = send.data.len() / send.count.max(1);
            for i in 0..send.count {
                self.send(&send.data[i * each..(i + 1) * each], send.to, tag, &mut state);
            }
        }
        while state.receiving > 0 {
            self.take(&mut state);
        }
        received();
        while state.sending > 0 {
            self.take(&mut state);
        }
        match state.failed {
            Some(error) => Err(error),
            None => Ok(state.source.and_then(|peer| self.rank_of(peer))),
        }
    }

    /// Posts all receives, one behind the other, begins all sends, each from the beginning of
    /// `out`, and waits for all.
    ///
    /// # Errors
    /// The engine's, or if a buffer is shorter than its messages. Nothing is under way any more in
    /// either case.
    pub fn exchange(&self, out: &[u8], sends: &[Leg], into: &mut [u8], receives: &[Leg], tag: u16) -> Result<()> {
        let (room, wanted) = (into.len(), receives.iter().map(|leg| leg.bytes).sum::<usize>());
        if room < wanted || sends.iter().any(|leg| leg.bytes > out.len()) {
            return Err(BenchError::machine("Weir", "a buffer is shorter than its messages"));
        }
        let mut state = State { expected: Expected::Legs(receives), ..State::default() };
        let mut rest = into;
        for (place, leg) in receives.iter().enumerate() {
            let (one, others) = rest.split_at_mut(leg.bytes);
            self.post(one, Some(leg.peer), tag, place, &mut state);
            rest = others;
        }
        for leg in sends {
            self.send(&out[..leg.bytes], leg.peer, tag, &mut state);
        }
        while state.receiving + state.sending > 0 {
            self.take(&mut state);
        }
        state.failed.map_or(Ok(()), Err)
    }

    /// Makes memory known that others reach; it is zero.
    ///
    /// # Errors
    /// The engine's.
    pub fn region(&self, bytes: usize) -> Result<Region> {
        let memory: Box<[UnsafeCell<u64>]> = (0..bytes.div_ceil(8)).map(|_| UnsafeCell::new(0)).collect();
        let iov = [Iov { base: memory.as_ptr().cast_mut().cast(), len: bytes }];
        let access = Access { remote_read: true, remote_write: true };
        // SAFETY: the memory is the region's, which withdraws it before it goes; all of it is in
        // cells that may change at any time.
        let key = unsafe { self.endpoint.register(&iov, access, None, false) }.map_err(engine)?;
        Ok(Region { endpoint: self.endpoint.clone(), memory, bytes, key })
    }

    /// An operation on the beginning of a rank's region, of which nothing is asked yet.
    fn remote<'a>(&self, rank: usize, key: u64, memory: &'a [Iov]) -> RmaOp<'a> {
        RmaOp {
            peer: self.peers[rank],
            memory,
            remote_addr: 0,
            key,
            data: None,
            mode: SendMode::Delivery,
            copy: false,
            report: true,
            context: 0,
            user: 0,
        }
    }

    /// Writes to the beginning of a rank's region; it is there when this returns.
    ///
    /// # Errors
    /// The engine's.
    pub fn write(&self, data: &[u8], rank: usize, key: u64) -> Result<()> {
        let iov = [Iov { base: data.as_ptr().cast_mut(), len: data.len() }];
        let op = self.remote(rank, key, &iov);
        // SAFETY: `data` is borrowed until this has completed; the engine only reads it.
        self.complete(|| unsafe { self.endpoint.write(&op) })
    }

    /// Reads from the beginning of a rank's region.
    ///
    /// # Errors
    /// The engine's.
    pub fn read(&self, into: &mut [u8], rank: usize, key: u64) -> Result<()> {
        let iov = [Iov { base: into.as_mut_ptr(), len: into.len() }];
        let op = self.remote(rank, key, &iov);
        // SAFETY: `into` is borrowed until this has completed.
        self.complete(|| unsafe { self.endpoint.read(&op) })
    }

    /// Adds numbers to those at the beginning of a rank's region, as many at once as one operation
    /// takes.
    ///
    /// # Errors
    /// The engine's.
    pub fn add(&self, numbers: &[f64], rank: usize, key: u64) -> Result<()> {
        let atomic = sum(AtomicType::F64)?;
        let mut state = State::default();
        for (place, some) in numbers.chunks(AMO_COUNT_MAX as usize).enumerate() {
            let operand = [Iov { base: some.as_ptr().cast_mut().cast(), len: size_of_val(some) }];
            let op = AmoOp {
                peer: self.peers[rank],
                atomic,
                count: some.len() as u32,
                operand: &operand[..],
                compare: &[],
                result: &[],
                remote_addr: (place * 8 * AMO_COUNT_MAX as usize) as u64,
                key,
                report: true,
                context: 0,
                user: 0,
            };
            // SAFETY: `numbers` is read before the call returns, and nothing is written.
            self.begin(&mut state, || unsafe { self.endpoint.atomic(&op) });
        }
        self.finish(state)
    }

    /// Adds a number to the first of a rank's region, and tells what that was.
    ///
    /// # Errors
    /// The engine's.
    pub fn fetch_add(&self, number: i64, rank: usize, key: u64) -> Result<i64> {
        let (mut number, mut held) = (number.to_ne_bytes(), [0; 8]);
        let operand = [Iov { base: number.as_mut_ptr(), len: 8 }];
        let result = [Iov { base: held.as_mut_ptr(), len: 8 }];
        let op = AmoOp {
            peer: self.peers[rank],
            atomic: sum(AtomicType::I64)?,
            count: 1,
            operand: &operand[..],
            compare: &[],
            result: &result[..],
            remote_addr: 0,
            key,
            report: true,
            context: 0,
            user: 0,
        };
        // SAFETY: both numbers live until this has completed.
        self.complete(|| unsafe { self.endpoint.atomic(&op) })?;
        Ok(i64::from_ne_bytes(held))
    }

    /// Begins one operation and waits for its end.
    #[inline]
    fn complete(&self, begin: impl FnMut() -> std::result::Result<(), EngineError>) -> Result<()> {
        let mut state = State::default();
        self.begin(&mut state, begin);
        self.finish(state)
    }

    /// Begins an operation, trying again while there is no room for it.
    #[inline]
    fn begin(&self, state: &mut State<'_>, mut begin: impl FnMut() -> std::result::Result<(), EngineError>) {
        while state.failed.is_none() {
            match begin() {
                Ok(()) => {
                    state.sending += 1;
                    return;
                }
                Err(EngineError::Again) => self.take(state),
                Err(error) => state.fail(engine(error), self),
            }
        }
    }

    /// Waits for all that were begun.
    #[inline]
    fn finish(&self, mut state: State<'_>) -> Result<()> {
        while state.sending > 0 {
            self.take(&mut state);
        }
        state.failed.map_or(Ok(()), Err)
    }

    fn post(&self, piece: &mut [u8], from: Option<usize>, tag: u16, place: usize, state: &mut State<'_>) {
        if state.failed.is_some() {
            return;
        }
        let iov = [Iov { base: piece.as_mut_ptr(), len: piece.len() }];
        let op = RecvOp {
            source: from.map(|rank| self.peers[rank]),
            class: Class::Tagged,
            tag: tag.into(),
            ignore: 0,
            memory: &iov,
            multi_min: None,
            report: true,
            context: RECEIVE + place,
            user: 0,
        };
        loop {
            // SAFETY: `piece` is borrowed by `run`, which does not return before this receive has
            // completed.
            match unsafe { self.endpoint.recv(&op) } {
                Ok(()) => {
                    state.posted = place + 1;
                    break state.receiving += 1;
                }
                Err(EngineError::Again) => self.take(state),
                Err(error) => break state.fail(BenchError::machine(self.with(from), error), self),
            }
        }
    }

    fn send(&self, data: &[u8], to: usize, tag: u16, state: &mut State<'_>) {
        let inject = data.len() <= MAX_INJECT_BYTES;
        let iov = [Iov { base: data.as_ptr().cast_mut(), len: data.len() }];
        let op = SendOp {
            peer: self.peers[to],
            class: Class::Tagged,
            tag: tag.into(),
            data: None,
            memory: &iov,
            mode: if inject { SendMode::Inject } else { SendMode::Transmit },
            copy: false,
            report: !inject,
            context: 0,
            user: 0,
        };
        while state.failed.is_none() {
            // SAFETY: `data` is borrowed by `run`, which does not return before this send has
            // completed; the engine only reads it.
            match unsafe { self.endpoint.send(&op) } {
                Ok(()) => {
                    state.sending += usize::from(!inject);
                    return;
                }
                Err(EngineError::Again) => self.take(state),
                Err(error) => state.fail(BenchError::machine(self.with(Some(to)), error), self),
            }
        }
    }

    /// Makes progress and takes what has completed.
    #[inline]
    fn take(&self, state: &mut State<'_>) {
        let mut found = self.found.borrow_mut();
        if self.endpoint.poll(Queue::Both, &mut found, AT_ONCE) == 0
            && let Err(error) = self.endpoint.check()
        {
            state.fail(engine(error), self);
            // Nothing completes any more, and nothing of theirs is touched.
            (state.receiving, state.sending) = (0, 0);
        }
        for done in found.drain(..) {
            self.note(&done, state);
        }
    }

    fn note(&self, done: &Completion, state: &mut State<'_>) {
        if done.context >= MAIL {
            return self.mail.borrow_mut().push_back(*done);
        }
        match done.kind {
            OpKind::Recv => {
                state.receiving = state.receiving.saturating_sub(1);
                state.source = done.source;
                if let Some(wanted) =
                    state.expected.at(done.context).filter(|&len| done.result.is_ok() && len != done.len)
                {
                    let text = format!("a message of {} bytes, {wanted} were expected", done.len);
                    state.fail(BenchError::machine("Weir", text), self);
                }
            }
            // An injected send that failed was not counted.
            _ if done.report => state.sending = state.sending.saturating_sub(1),
            _ => {}
        }
        match done.result {
            Ok(()) | Err(OpError::Cancelled) => {}
            Err(error) => state.fail(BenchError::machine(self.with(state.with), error), self),
        }
    }

    /// Weir, and the other rank with where it is, as far as that is known.
    #[cold]
    pub(super) fn with(&self, rank: Option<usize>) -> String {
        let Some(rank) = rank else { return "Weir".into() };
        let at = self.peers.get(rank).and_then(|peer| self.endpoint.peer_address(*peer));
        format!("Weir, with rank {rank}{}", at.map_or_else(String::new, |at| format!(" at {at}")))
    }
}

/// For mail.
impl Port {
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A rank as the endpoint knows it.
    pub(super) fn peer(&self, rank: usize) -> u32 {
        self.peers[rank]
    }

    /// The rank of somebody whom the endpoint knows.
    pub(super) fn rank_of(&self, peer: u32) -> Option<usize> {
        self.peers.iter().position(|one| *one == peer)
    }

    /// The next end of mail that was found.
    pub(super) fn taken(&self) -> Option<Completion> {
        self.mail.borrow_mut().pop_front()
    }

    /// Makes progress, and looks what has ended.
    pub(super) fn look(&self) -> Result<()> {
        let mut state = State::default();
        self.take(&mut state);
        state.failed.map_or(Ok(()), Err)
    }
}

fn sum(of: AtomicType) -> Result<Atomic> {
    Atomic::new(AtomicOp::Sum, of).ok_or_else(|| BenchError::machine("Weir", "no such atomic operation"))
}

/// Memory that others reach, until it goes.
pub struct Region {
    endpoint: Arc<Endpoint>,
    memory: Box<[UnsafeCell<u64>]>,
    bytes: usize,
    key: u64,
}

impl Region {
    /// By which others name it.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.key
    }

    /// What it holds from its beginning on. Others should not be writing there, or anything may be
    /// seen.
    pub fn look(&self, into: &mut [u8]) {
        let base: *const u8 = self.memory.as_ptr().cast();
        for (place, byte) in into.iter_mut().take(self.bytes).enumerate() {
            // SAFETY: within the memory; volatile, since the endpoint's threads and other processes
            // change it.
            *byte = unsafe { base.add(place).read_volatile() };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.endpoint.unregister(self.key);
    }
}

/// How long the messages are that are waited for.
#[derive(Clone, Copy, Default)]
enum Expected<'a> {
    #[default]
    Any,
    Each(usize),
    Legs(&'a [Leg]),
}

impl Expected<'_> {
    /// How long that of the receive with this context is, if that is known.
    #[inline]
    fn at(&self, context: usize) -> Option<usize> {
        match self {
            Expected::Any => None,
            Expected::Each(bytes) => Some(*bytes),
            Expected::Legs(legs) => legs.get(context.checked_sub(RECEIVE)?).map(|leg| leg.bytes),
        }
    }
}

#[derive(Default)]
struct State<'a> {
    /// Receives posted: those at the places below.
    posted: usize,
    /// Receives that have not completed.
    receiving: usize,
    sending: usize,
    expected: Expected<'a>,
    source: Option<u32>,
    /// The other rank, if there is one only.
    with: Option<usize>,
    failed: Option<BenchError>,
}

impl State<'_> {
    /// Keeps the first error, and takes back the receives that nothing will come for.
    fn fail(&mut self, error: BenchError, port: &Port) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(error);
        // Completions of those cancelled come as of any other; of those that have completed the
        // engine knows nothing any more.
        (0..self.posted).for_each(|place| {
            port.endpoint.cancel(RECEIVE + place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ports on this machine that know each other, the first one as rank 0.
    fn two() -> [Port; 2] {
        let config = || EngineConfig { addrs: vec!["127.0.0.1".parse().unwrap()], ..EngineConfig::default() };
        let mut ports = [Port::open(config()).unwrap(), Port::open(config()).unwrap()];
        let names = [ports[0].name(), ports[1].name()];
        ports.iter_mut().for_each(|port| port.connect(&names).unwrap());
        ports
    }

    #[test]
    fn who_cannot_be_reached_is_named_with_rank_host_and_port() {
        let config = || EngineConfig { addrs: vec!["127.0.0.1".parse().unwrap()], ..EngineConfig::default() };
        let mut one = Port::open_with_key(config(), [1; 32]).unwrap();
        let other = Port::open_with_key(config(), [2; 32]).unwrap();
        let said = one.connect(&[one.name(), other.name()]).unwrap_err().to_string();
        assert!(said.starts_with("Weir, to rank 1: the peer uses another job key (peer at 127.0.0.1:"), "{said}");
        // One that ends in the middle of a call.
        let [one, other] = two();
        let waiting = std::thread::spawn(move || {
            let mut word = [0];
            one.run(None, Some(In { into: &mut word, from: Some(1), count: 1, exact: true }), 2, || {}).unwrap_err()
        });
        other.run(Some(Out { data: &[1], to: 0, count: 1 }), None, 1, || {}).unwrap();
        other.close();
        let said = waiting.join().unwrap().to_string();
        assert!(said.starts_with("Weir, with rank 1 at 127.0.0.1:"), "{said}");
    }

    #[test]
    fn memory_of_another_is_written_read_and_added_to() {
        let [one, other] = two();
        // Larger than one operation of either kind, and nothing at all.
        for bytes in [0, 8, 4096, 300_000] {
            let region = other.region(bytes).unwrap();
            let (key, numbers) = (region.key(), vec![1.5; bytes / 8]);
            one.add(&numbers, 1, key).unwrap();
            one.add(&numbers, 1, key).unwrap();
            let mut held = vec![0; bytes];
            one.read(&mut held, 1, key).unwrap();
            let floats = held.chunks_exact(8).map(|b| f64::from_ne_bytes(*b.first_chunk().unwrap()));
            assert_eq!(floats.filter(|n| *n == 3.0).count(), bytes / 8);
            let data: Vec<u8> = (0..bytes).map(|i| (i * 7) as u8).collect();
            one.write(&data, 1, key).unwrap();
            region.look(&mut held);
            assert_eq!(held, data);
            if bytes >= 8 {
                let before = i64::from_ne_bytes(*data.first_chunk().unwrap());
                assert_eq!(one.fetch_add(5, 1, key).unwrap(), before);
                assert_eq!(one.fetch_add(-5, 1, key).unwrap(), before + 5);
            }
            let gone = region.key();
            drop(region);
            assert!(bytes == 0 || one.write(&[0; 8], 1, gone).is_err());
        }
        one.close();
        other.close();
    }

    #[test]
    fn receives_that_stand_posted_take_what_they_name_and_are_taken_back() {
        let [one, other] = two();
        let sending = std::thread::spawn(move || {
            let (short, long) = ([1; 8], vec![2; 300_000]);
            one.mail(0, 0, |mail| {
                for tag in [7, 9, 8] {
                    mail.send(&short, 1, tag)?;
                    mail.send(&long, 1, tag)?;
                }
                Ok(())
            })
            .unwrap();
            let mut word = [0];
            one.run(None, Some(In { into: &mut word, from: Some(1), count: 1, exact: true }), 2, || {}).unwrap();
            one
        });
        let took = other.mail(3, 300_000, |mail| {
            (0..3).try_for_each(|place| mail.post(place, Some(0), 7 + place as u64, 0))?;
            let mut took = Vec::new();
            for _ in 0..6 {
                let arrived = mail.wait_any()?;
                took.push((arrived.place as u64 + 7 == arrived.tag, mail.memory(arrived.place)[arrived.bytes - 1]));
                mail.post(arrived.place, Some(0), arrived.tag, 0)?;
            }
            // A place is free once.
            mail.post(0, None, 0, 15).unwrap_err();
            Ok(took)
        });
        let took = took.unwrap();
        assert!(took.iter().all(|(right, _)| *right), "{took:?}");
        assert_eq!(took.iter().filter(|(_, byte)| *byte == 2).count(), 3);
        other.run(Some(Out { data: &[0], to: 0, count: 1 }), None, 2, || {}).unwrap();
        let one = sending.join().unwrap();
        one.close();
        other.close();
    }

    #[test]
    fn a_window_whose_end_failed_takes_back_the_receives_that_nothing_will_come_for() {
        const COUNT: usize = 64;
        let [sender, receiver] = two();
        let sending = std::thread::spawn(move || {
            let good = Out { data: &[1; 8 * (COUNT - 4)], to: 1, count: COUNT - 4 };
            sender.run(Some(good), None, 1, || {}).unwrap();
            // One is too short, and the last three never come.
            sender.run(Some(Out { data: &[1; 4], to: 1, count: 1 }), None, 1, || {}).unwrap();
            let mut word = [0; 1];
            sender.run(None, Some(In { into: &mut word, from: Some(1), count: 1, exact: true }), 2, || {}).unwrap();
        });
        let mut into = [0; 8 * COUNT];
        let window = In { into: &mut into, from: Some(0), count: COUNT, exact: true };
        let text = receiver.run(None, Some(window), 1, || {}).unwrap_err().to_string();
        assert!(text.contains("a message of 4 bytes, 8 were expected"), "{text}");
        receiver.run(Some(Out { data: &[0], to: 0, count: 1 }), None, 2, || {}).unwrap();
        receiver.close();
        sending.join().unwrap();
    }
}
