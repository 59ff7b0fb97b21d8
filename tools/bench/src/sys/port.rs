//! Weir's own endpoint as a port that sends and receives and waits: every operation is over when its call returns, so that the caller's memory is borrowed for as long as the endpoint uses it.

use std::cell::RefCell;
use std::sync::Arc;

use weir_engine::{
    Class, Completion, Diagnostic, Endpoint, EngineConfig, EngineError, Iov, MAX_INJECT_BYTES, NAME_BYTES, OpError,
    OpKind, PeekOp, Queue, RecvOp, SendMode, SendOp,
};

use crate::error::{BenchError, Result};

/// Contexts of receives: from here on, by their place.
const RECEIVE: usize = 1 << 40;
/// Completions taken at once.
const AT_ONCE: usize = 64;

/// An endpoint and its peers, by rank.
pub struct Port {
    endpoint: Arc<Endpoint>,
    peers: Vec<u32>,
    found: RefCell<Vec<Completion>>,
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
        Ok(Port { endpoint, peers: Vec::new(), found: RefCell::new(Vec::with_capacity(AT_ONCE)) })
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
            .map(|name| self.endpoint.insert_peer(name))
            .collect::<std::result::Result<_, _>>()
            .map_err(engine)?;
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

    /// Posts the receives, begins the sends, waits for the receives, calls `received`, waits for the sends. Returns who sent the last message.
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
        let mut state = State::default();
        if let Some(receive) = &mut into {
            let each = receive.into.len() / receive.count.max(1);
            state.expected = if receive.exact { Some(each) } else { None };
            for i in 0..receive.count {
                let piece = &mut receive.into[i * each..(i + 1) * each];
                self.post(piece, receive.from, tag, i, &mut state);
            }
        }
        if let Some(send) = out {
            for _ in 0..send.count {
                self.send(send.data, send.to, tag, &mut state);
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
            None => Ok(state.source.and_then(|peer| self.peers.iter().position(|one| *one == peer))),
        }
    }

    fn post(&self, piece: &mut [u8], from: Option<usize>, tag: u16, place: usize, state: &mut State) {
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
            // SAFETY: `piece` is borrowed by `run`, which does not return before this receive has completed.
            match unsafe { self.endpoint.recv(&op) } {
                Ok(()) => {
                    state.posted = place + 1;
                    break state.receiving += 1;
                }
                Err(EngineError::Again) => self.take(state),
                Err(error) => break state.fail(engine(error), self),
            }
        }
    }

    fn send(&self, data: &[u8], to: usize, tag: u16, state: &mut State) {
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
            // SAFETY: `data` is borrowed by `run`, which does not return before this send has completed; the engine only reads it.
            match unsafe { self.endpoint.send(&op) } {
                Ok(()) => {
                    state.sending += usize::from(!inject);
                    return;
                }
                Err(EngineError::Again) => self.take(state),
                Err(error) => state.fail(engine(error), self),
            }
        }
    }

    /// Makes progress and takes what has completed.
    #[inline]
    fn take(&self, state: &mut State) {
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

    fn note(&self, done: &Completion, state: &mut State) {
        match done.kind {
            OpKind::Recv => {
                state.receiving = state.receiving.saturating_sub(1);
                state.source = done.source;
                if done.result.is_ok() && state.expected.is_some_and(|len| len != done.len) {
                    let text =
                        format!("a message of {} bytes, {} were expected", done.len, state.expected.unwrap_or(0));
                    state.fail(BenchError::machine("Weir", text), self);
                }
            }
            // An injected send that failed was not counted.
            _ if done.report => state.sending = state.sending.saturating_sub(1),
            _ => {}
        }
        match done.result {
            Ok(()) | Err(OpError::Cancelled) => {}
            Err(error) => state.fail(BenchError::machine("Weir", error), self),
        }
    }
}

#[derive(Default)]
struct State {
    /// Receives posted: those at the places below.
    posted: usize,
    /// Receives that have not completed.
    receiving: usize,
    sending: usize,
    expected: Option<usize>,
    source: Option<u32>,
    failed: Option<BenchError>,
}

impl State {
    /// Keeps the first error, and takes back the receives that nothing will come for.
    fn fail(&mut self, error: BenchError, port: &Port) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(error);
        // Completions of those cancelled come as of any other; of those that have completed the engine knows nothing any more.
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
    fn a_window_whose_end_failed_takes_back_the_receives_that_nothing_will_come_for() {
        const COUNT: usize = 64;
        let [sender, receiver] = two();
        let sending = std::thread::spawn(move || {
            let good = Out { data: &[1; 8], to: 1, count: COUNT - 4 };
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
