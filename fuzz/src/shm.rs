//! Shared memory: a ring whose contents a broken peer writes, and a handshake whose messages are
//! meddled with (spec/shm.md).

use crate::input::Rest;
use arbitrary::Arbitrary;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_shm::handshake::{Connector, Keys, Listener, NONCE_LEN, Pair, Reason, Terms};
use weir_shm::ring::{Consumer, Corrupt, HeapRing, NoRoom, Producer};

/// 2 KiB: a lap is a few long records or 32 short ones.
const WORDS: usize = 256;

/// One thing that happens to a ring.
#[derive(Arbitrary, Clone, Debug)]
pub enum Step {
    /// A record of so many bytes, perhaps too many.
    Commit(u16, u16),
    /// One that is begun and given up.
    GiveUp(u16),
    /// What was committed is shown.
    Publish,
    /// So many are received, and one more: mostly there is room again.
    Receive(u8),
    /// The reader is about to sleep.
    Sleep,
    /// The writer is about to sleep for want of room.
    WaitForRoom,
    /// The pages are given back if nothing is in them.
    Trim,
    /// A word anywhere, taken up only by an input that says so.
    Scribble(u16, u64),
    /// The same, a header that could be right, in a line.
    Forge(u8, u16, u16),
}

/// What happens to a ring.
#[derive(Arbitrary, Clone, Debug)]
pub struct Steps {
    /// Whether the peer keeps the rules.
    hostile: bool,
    origin: u8,
    steps: Rest<Step, 400>,
}

struct Model {
    tx: Producer<Arc<HeapRing>>,
    rx: Consumer<Arc<HeapRing>>,
    memory: Arc<HeapRing>,
    committed: VecDeque<(u16, Vec<u8>)>,
    published: VecDeque<(u16, Vec<u8>)>,
    sleeps: bool,
    fill: u8,
    received: u64,
    /// After the first scribble nothing is known of what comes.
    known: bool,
    /// The reader's error, which stays.
    broken: Option<Corrupt>,
}

/// Runs a ring; returns how many records were received.
///
/// # Panics
/// If the ring breaks a promise.
pub fn ring(input: &Steps) -> u64 {
    let memory = Arc::new(HeapRing::new(WORDS));
    let origin = usize::from(input.origin);
    let mut model = Model {
        tx: Producer::new(Arc::clone(&memory), origin),
        rx: Consumer::new(Arc::clone(&memory), origin),
        memory,
        committed: VecDeque::new(),
        published: VecDeque::new(),
        sleeps: false,
        fill: 0,
        received: 0,
        known: true,
        broken: None,
    };
    input.steps.0.iter().for_each(|step| model.step(step, input.hostile));
    let _ = model.tx.close();
    model.published.append(&mut model.committed);
    while model.receive() {}
    assert!(!model.known || model.published.is_empty(), "a record was lost");
    model.received
}

impl Model {
    fn step(&mut self, step: &Step, hostile: bool) {
        match *step {
            Step::Commit(kind, len) => self.commit(kind, usize::from(len) % 520),
            Step::GiveUp(len) => {
                let len = usize::from(len) % 520;
                if let Ok(mut room) = self.tx.reserve(1, len) {
                    room.write(0, &vec![0xff; len]);
                }
            }
            Step::Publish => {
                let shows = !self.committed.is_empty();
                let woken = self.tx.publish();
                assert!(!self.known || woken || !(shows && self.sleeps), "somebody sleeps beside a record");
                self.sleeps &= !woken;
                self.published.append(&mut self.committed);
            }
            Step::Receive(count) => (0..=count % 16).take_while(|_| self.receive()).for_each(drop),
            Step::Sleep => {
                self.sleeps = self.rx.prepare_sleep();
                assert!(!(self.known && self.sleeps) || self.published.is_empty(), "somebody sleeps beside a record");
            }
            Step::WaitForRoom => {
                assert!(self.tx.prepare_sleep().is_ok() || !self.known);
                self.tx.cancel_sleep();
            }
            Step::Trim => self.trim(),
            Step::Scribble(word, value) if hostile => {
                self.known = false;
                self.memory.scribble(usize::from(word) % (WORDS + 4), value);
            }
            Step::Forge(line, kind, len) if hostile => {
                self.known = false;
                let line = usize::from(line) % (WORDS / 8);
                let header = 1 << 63 | (line as u64) << 48 | u64::from(kind) << 32 | (u64::from(len) % 600);
                self.memory.scribble(4 + line * 8, header);
            }
            Step::Scribble(..) | Step::Forge(..) => {}
        }
    }

    fn commit(&mut self, kind: u16, len: usize) {
        self.fill = self.fill.wrapping_add(1) | 0x80;
        let payload: Vec<u8> = (0..len).map(|i| self.fill ^ i as u8).collect();
        match self.tx.reserve(kind, len) {
            Ok(mut room) => {
                room.write(0, &payload);
                room.commit();
                self.committed.push_back((kind, payload));
            }
            Err(NoRoom::TooLong) => assert!(len > self.tx.max_payload() || kind == u16::MAX),
            Err(NoRoom::Full) => {
                assert!(
                    !self.known || !self.committed.is_empty() || !self.published.is_empty(),
                    "an empty ring is full"
                );
            }
            Err(NoRoom::Corrupt(_)) => assert!(!self.known),
        }
    }

    /// Whether there was a record.
    fn receive(&mut self) -> bool {
        self.rx.cancel_sleep();
        self.sleeps = false;
        let got = self.rx.try_recv().map(|record| record.map(|record| (record.kind(), record.bytes().to_vec())));
        match got {
            Ok(got) => {
                assert!(got.as_ref().is_none_or(|(_, bytes)| bytes.len() <= self.tx.max_payload()));
                self.received += u64::from(got.is_some());
                let expected = self.published.pop_front();
                assert!(!self.known || got == expected, "another record than was sent");
                got.is_some()
            }
            Err(cause) => {
                assert!(!self.known && self.broken.is_none_or(|before| before == cause));
                self.broken = Some(cause);
                false
            }
        }
    }

    fn trim(&mut self) {
        match self.tx.unused(128) {
            Ok(Some(ranges)) => {
                assert!(!self.known || self.committed.is_empty() && self.published.is_empty());
                for word in ranges.into_iter().flat_map(|range| range.start / 8..range.end / 8) {
                    self.memory.scribble(4 + word, 0);
                }
            }
            Ok(None) => {}
            Err(_) => assert!(!self.known),
        }
    }
}

/// What is done to one message.
#[derive(Arbitrary, Clone, Debug)]
pub enum Change {
    /// Nothing.
    None,
    /// Bits of one byte, if any.
    Flip(u8, u8),
    /// Cut off.
    Cut(u8),
    /// Made longer.
    Longer(u8),
    /// Another altogether.
    Other(Vec<u8>),
}

impl Change {
    fn of(&self, message: &[u8]) -> Vec<u8> {
        let mut message = message.to_vec();
        match self {
            Change::None => {}
            Change::Flip(at, bits) => {
                let at = usize::from(*at) % message.len();
                message[at] ^= bits;
            }
            Change::Cut(len) => message.truncate(usize::from(*len)),
            Change::Longer(len) => message.resize(message.len() + usize::from(*len), 0),
            Change::Other(bytes) => message.clone_from(bytes),
        }
        message
    }
}

/// A handshake and what is done to its four messages.
#[derive(Arbitrary, Clone, Debug)]
pub struct Meddling {
    pair: [u64; 2],
    nonces: [[u8; NONCE_LEN]; 2],
    changes: [Change; 4],
    other_key: bool,
}

/// Runs a handshake; returns 1 if both sides came up.
///
/// # Panics
/// If a side takes what it must not, or refuses what is genuine.
pub fn handshake(input: &Meddling) -> u64 {
    let [connector, listener] = input.pair;
    let keys = Keys::derive(&[1; 32]);
    let theirs = Keys::derive(&[if input.other_key { 2 } else { 1 }; 32]);
    let terms = |n| Terms { probe_address: n, probe_value: n + 1, memory_bytes: n + 2, ring_bytes: n + 3 };
    let mut ours = Connector::new(Pair { connector, listener }, &input.nonces[0]);
    let hello = input.changes[0].of(ours.hello());
    let Ok(their) = Listener::new(&theirs, &hello, listener, &input.nonces[1]) else {
        assert!(hello != ours.hello() || connector == listener, "a genuine HELLO was refused");
        return 0;
    };
    let genuine = hello == ours.hello() && !input.other_key;
    let challenge = input.changes[1].of(their.challenge());
    let proof = match ours.challenge(&keys, &challenge, &terms(1)) {
        Ok(proof) => {
            assert!(genuine && challenge == their.challenge(), "a changed CHALLENGE was taken");
            proof
        }
        Err(cause) => {
            assert!(!genuine || challenge != their.challenge(), "a genuine CHALLENGE was refused: {cause:?}");
            return 0;
        }
    };
    let sent = input.changes[2].of(&proof);
    let (told, ready) = match their.proof(&theirs, &sent, &terms(10)) {
        Ok(both) => both,
        Err(cause) => {
            assert!(sent != proof, "a genuine PROOF was refused: {cause:?}");
            return 0;
        }
    };
    assert!(sent == proof && told == terms(1), "a changed PROOF was taken");
    let answer = input.changes[3].of(&ready);
    match ours.ready(&keys, &answer) {
        Ok(told) => assert!(answer == ready && told == terms(10), "a changed READY was taken"),
        Err(Reason::Key | Reason::Version | Reason::Malformed) if answer != ready => return 0,
        // A refusal is not signed, and whoever can change messages can cut the connection.
        Err(cause) => {
            assert!(answer != ready, "a genuine READY was refused: {cause:?}");
            return 0;
        }
    }
    1
}
