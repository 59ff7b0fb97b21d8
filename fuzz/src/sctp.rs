//! An endpoint and a peer that lies by SCTP: user messages of any stream, kind and content come to
//! it in the peer's name, beside what the peer's own endpoint says. The association is a genuine
//! one, over loopback; the library usrsctp is needed.
//!
//! The books: nothing is written beside the memory of a receive; every send ends when the peer has
//! gone; another peer has its messages as if nothing were.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use weir_engine::bare::{sctp_hello, sctp_is_up, sctp_says, sctp_unhear};
use weir_engine::{CarrierUse, Class, Completion, Endpoint, EngineConfig, Iov, Queue, RecvOp, SendMode, SendOp};

use crate::input::{Few, Rest};

/// Nothing takes this long but what hangs.
const LIMIT: Duration = Duration::from_secs(30);
/// The payload protocol identifier of kind 0 (spec/sctp.md 4).
const PPID: u32 = 0x5745_0000;
const HELLO: u8 = 1;
/// Behind the memory of a receive.
const BEYOND: usize = 64;
/// What stands there, and in it before something comes.
const BLANK: u8 = 0xa5;
/// The tag of what the other peer says.
const OTHER_TAG: u64 = 99;

/// One run.
#[derive(Arbitrary, Debug)]
pub struct Input {
    steps: Rest<Step, 60>,
}

/// One event.
#[derive(Arbitrary, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Step {
    /// A record with a head.
    Record {
        stream: Stream,
        kind: u8,
        read: Read,
        tell: bool,
        /// Rarely one of the bits that are to be 0.
        reserved: u8,
        body: Body,
    },
    /// Anything.
    Raw { stream: u16, kind: Option<u8>, ppid: u32, bytes: Few<u8, 80> },
    /// Nothing came before it, or it comes once more.
    Hello { stream: Stream, first: bool, damage: Option<u8> },
    /// The endpoint sends.
    Send { tag: u8, len: u32, mode: u8 },
    /// It receives.
    Receive { tag: u8, len: u16 },
    /// Both endpoints do what they have to.
    Pass(u8),
}

/// Mostly one that there is.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub struct Stream(u8, u16);

impl Stream {
    fn number(self) -> u16 {
        if self.0 < 250 { u16::from(self.0 % 12) } else { self.1 }
    }
}

/// How much was read of a stream, perhaps.
#[derive(Arbitrary, Copy, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Read {
    None,
    Near(u8),
    Any(u64),
}

impl Read {
    fn number(self) -> u64 {
        match self {
            Read::None => 0,
            Read::Near(n) => u64::from(n % 8),
            Read::Any(n) => n,
        }
    }
}

/// An envelope.
#[derive(Arbitrary, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Envelope {
    /// Of a small message, for a receive that there may be.
    Eager {
        tag: u8,
    },
    /// Of any kind.
    Words {
        kind: u8,
        flags: u8,
        code: u16,
        words: Few<u16, 5>,
        wide: bool,
    },
    Raw(Few<u8, 60>),
}

impl Envelope {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Envelope::Eager { tag } => {
                let mut bytes = vec![1, 1, 0, 0];
                bytes.extend_from_slice(&u64::from(tag % 4).to_le_bytes());
                bytes
            }
            Envelope::Words { kind, flags, code, words, wide } => {
                let mut bytes = vec![kind % 15, *flags];
                bytes.extend_from_slice(&code.to_le_bytes());
                let word = |w: &u16| u64::from(*w) << if *wide { 24 } else { 0 };
                bytes.extend(words.0.iter().flat_map(|w| word(w).to_le_bytes()));
                bytes
            }
            Envelope::Raw(bytes) => bytes.0.clone(),
        }
    }
}

/// What stands behind the head of a record.
#[derive(Arbitrary, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Body {
    Words {
        a: u64,
        b: u64,
    },
    NearWords {
        a: u8,
        b: u16,
    },
    Entries(Few<(Stream, Read, u8), 8>),
    Whole {
        stream: u8,
        sseq: u8,
        mseq: u8,
        envelope: Envelope,
        len: u16,
        wrong: u8,
    },
    Control {
        mseq: u8,
        envelope: Envelope,
        wrong: u8,
        len: u8,
    },
    Message {
        stream: u8,
        sseq: u8,
        mseq: u8,
        total: u32,
        offset: u32,
        near: bool,
        envelope: Envelope,
        len: u16,
        wrong: u8,
    },
    Rndv {
        handle: u64,
        near: bool,
        offset: u32,
        len: u16,
        said: u16,
    },
    Raw(Few<u8, 120>),
}

/// A length that is said, now and then a wrong one.
fn said(len: usize, wrong: u8) -> u16 {
    let off = if wrong > 230 { i32::from(wrong) - 243 } else { 0 };
    (len as i32 + off) as u16
}

impl Body {
    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Body::Words { a, b } => [a, b].iter().for_each(|w| out.extend_from_slice(&w.to_le_bytes())),
            Body::NearWords { a, b } => {
                [u64::from(*a), u64::from(*b)].iter().for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
            }
            Body::Entries(entries) => {
                for (stream, read, reserved) in &entries.0 {
                    out.extend_from_slice(&u64::from(stream.number()).to_le_bytes());
                    if *reserved > 250 {
                        let at = out.len() - 6;
                        out[at] = *reserved;
                    }
                    out.extend_from_slice(&read.number().to_le_bytes());
                }
            }
            Body::Whole { stream, sseq, mseq, envelope, len, wrong } => {
                let envelope = envelope.bytes();
                out.extend_from_slice(&u16::from(*stream % 12).to_le_bytes());
                out.extend_from_slice(&said(envelope.len(), *wrong).to_le_bytes());
                out.extend_from_slice(&u32::from(*sseq % 8).to_le_bytes());
                out.extend_from_slice(&u32::from(*mseq % 8).to_le_bytes());
                out.extend_from_slice(&envelope);
                out.resize(out.len() + usize::from(len % 5000), 0x11);
            }
            Body::Control { mseq, envelope, wrong, len } => {
                let envelope = envelope.bytes();
                out.extend_from_slice(&u32::from(*mseq % 8).to_le_bytes());
                out.extend_from_slice(&said(envelope.len(), *wrong).to_le_bytes());
                out.extend_from_slice(&[0; 2]);
                out.extend_from_slice(&envelope);
                out.resize(out.len() + usize::from(len % 100), 0x22);
            }
            Body::Message { stream, sseq, mseq, total, offset, near, envelope, len, wrong } => {
                let (envelope, len) = (envelope.bytes(), usize::from(len % 17_000));
                let (total, offset) = if *near { (total % 40_000, offset % 40_000) } else { (*total, *offset) };
                out.extend_from_slice(&u16::from(*stream % 12).to_le_bytes());
                out.extend_from_slice(&said(envelope.len(), *wrong).to_le_bytes());
                out.extend_from_slice(&u32::from(*sseq % 8).to_le_bytes());
                out.extend_from_slice(&u64::from(*mseq % 8).to_le_bytes());
                let part = u32::from(said(len, wrong.rotate_left(4)));
                [total, offset, part, 0].iter().for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
                out.extend_from_slice(&envelope);
                out.resize(out.len() + len, 0x33);
            }
            Body::Rndv { handle, near, offset, len, said } => {
                let handle = if *near { handle % 4 + (handle >> 60 << 32) } else { *handle };
                out.extend_from_slice(&handle.to_le_bytes());
                out.extend_from_slice(&u64::from(*offset).to_le_bytes());
                out.extend_from_slice(&u64::from(*said).to_le_bytes());
                out.resize(out.len() + usize::from(len % 17_000), 0x44);
            }
            Body::Raw(bytes) => out.extend_from_slice(&bytes.0),
        }
        out
    }
}

/// An endpoint that takes SCTP, without a thread.
fn endpoint(carrier: CarrierUse) -> Arc<Endpoint> {
    let addrs = vec!["127.0.0.1".parse().expect("an address")];
    let cfg = EngineConfig {
        addrs,
        carrier,
        watchdog_us: 0,
        linger: Duration::from_millis(5),
        peer_timeout: Duration::from_millis(500),
        ..EngineConfig::default()
    };
    Endpoint::open_with_key(cfg, [7; 32]).expect("it opens")
}

/// An endpoint and what it has under way.
struct Victim {
    ep: Arc<Endpoint>,
    /// Kept to the end; what is sent lies there.
    sent: Vec<Box<[u8]>>,
    /// The same, with what may not be touched behind the memory of the receive.
    received: Vec<Box<[u8]>>,
    /// Sends that have not ended, and those that have.
    open: usize,
    completions: Vec<Completion>,
}

impl Victim {
    fn pass(&mut self) {
        self.ep.poll(Queue::Both, &mut self.completions, 64);
        self.open -= self.completions.iter().filter(|c| c.context == 1).count();
        self.completions.clear();
    }

    #[allow(unsafe_code, reason = "the engine's memory is raw")]
    fn send(&mut self, peer: u32, tag: u64, len: usize, mode: SendMode) {
        self.sent.push(vec![0x77; len].into());
        let data = self.sent.last_mut().expect("just pushed");
        let memory = &[Iov { base: data.as_mut_ptr(), len }];
        let class = Class::Tagged;
        let op = SendOp { peer, class, tag, data: None, memory, mode, copy: false, report: true, context: 1, user: 0 };
        // SAFETY: the memory lives until the endpoint has been dropped (see `Drop`).
        self.open += usize::from(unsafe { self.ep.send(&op) }.is_ok());
    }

    #[allow(unsafe_code, reason = "the engine's memory is raw")]
    fn receive(&mut self, tag: u64, len: usize) {
        self.received.push(vec![BLANK; len + BEYOND].into());
        let memory = &[Iov { base: self.received.last_mut().expect("just pushed").as_mut_ptr(), len }];
        let (source, class, multi_min) = (None, Class::Tagged, None);
        let op = RecvOp { source, class, tag, ignore: 0, memory, multi_min, report: true, context: 2, user: 0 };
        // SAFETY: the same.
        let _ = unsafe { self.ep.recv(&op) };
    }
}

/// One message from the first to the second, each with what the other calls it; how many sends of
/// the victim's ended meanwhile.
#[allow(unsafe_code, reason = "the engine's memory is raw")]
fn message((from, peer): (&Endpoint, u32), (to, source): (&Endpoint, u32)) -> usize {
    let (mut data, mut buf) = ([0x5b; 40], [0; 40]);
    let memory = &[Iov { base: buf.as_mut_ptr(), len: buf.len() }];
    let (source, class, multi_min) = (Some(source), Class::Tagged, None);
    let recv =
        RecvOp { source, class, tag: OTHER_TAG, ignore: 0, memory, multi_min, report: true, context: 3, user: 0 };
    // SAFETY: both end before this function does, or it does not return.
    unsafe { to.recv(&recv) }.expect("room");
    let memory = &[Iov { base: data.as_mut_ptr(), len: data.len() }];
    let mode = SendMode::Delivery;
    let send = SendOp {
        peer,
        class,
        tag: OTHER_TAG,
        data: None,
        memory,
        mode,
        copy: false,
        report: true,
        context: 4,
        user: 0,
    };
    // SAFETY: the same.
    unsafe { from.send(&send) }.expect("room");
    let (mut out, begun, mut ended, mut others) = (Vec::new(), Instant::now(), 0, 0);
    while ended < 2 {
        to.poll(Queue::Both, &mut out, 64);
        from.poll(Queue::Both, &mut out, 64);
        for completion in out.drain(..) {
            assert!(completion.context < 3 || completion.result.is_ok(), "{completion:?}");
            ended += u32::from(completion.context > 2);
            others += usize::from(completion.context == 1);
        }
        if begun.elapsed() > LIMIT {
            // (The memory is still theirs.)
            eprintln!("the message of an honest peer does not come: {} {}", from.counters_json(), to.counters_json());
            std::process::abort();
        }
    }
    assert_eq!(buf, data);
    others
}

/// Runs the input; returns how many lies were told while SCTP was up.
pub fn run(input: &Input) -> u64 {
    let liar = endpoint(CarrierUse::Sctp);
    let mut victim = Victim {
        ep: endpoint(CarrierUse::Sctp),
        sent: Vec::new(),
        received: Vec::new(),
        open: 0,
        completions: Vec::new(),
    };
    let ep = victim.ep.clone();
    let peer = ep.insert_peer(&liar.name()).expect("a name");
    let its_peer = liar.insert_peer(&ep.name()).expect("a name");
    message((&ep, peer), (&liar, its_peer));
    let begun = Instant::now();
    while !sctp_is_up(&ep, peer) || !sctp_is_up(&liar, its_peer) {
        ep.progress();
        liar.progress();
        assert!(begun.elapsed() < LIMIT, "SCTP does not come up: {}", ep.counters_json());
    }
    let hello = sctp_hello(&liar, its_peer).expect("it is up");
    let mut told = 0;
    for step in &input.steps.0 {
        told += u64::from(sctp_is_up(&ep, peer));
        match step {
            Step::Record { stream, kind, read, tell, reserved, body } => {
                let mut record = read.number().to_le_bytes().to_vec();
                record.extend_from_slice(&[u8::from(*tell), 0, 0, 0, 0, 0, 0, 0]);
                if *reserved > 250 {
                    record[usize::from(8 + reserved % 8)] |= 1 << (reserved % 7 + 1);
                }
                record.extend_from_slice(&body.bytes());
                sctp_says(&ep, peer, (stream.number(), PPID | u32::from(kind_of(*kind, body))), &record);
            }
            Step::Raw { stream, kind, ppid, bytes } => {
                let ppid = kind.map_or(*ppid, |kind| PPID | u32::from(kind));
                sctp_says(&ep, peer, (*stream, ppid), &bytes.0);
            }
            Step::Hello { stream, first, damage } => {
                let mut bytes = hello.clone();
                if let Some(damage) = damage {
                    let at = usize::from(*damage) % bytes.len();
                    bytes[at] ^= 1 << (damage % 8);
                }
                if *first {
                    sctp_unhear(&ep, peer);
                }
                sctp_says(&ep, peer, (stream.number(), PPID | u32::from(HELLO)), &bytes);
            }
            Step::Send { tag, len, mode } => {
                let modes = [SendMode::Transmit, SendMode::Delivery, SendMode::Match];
                victim.send(peer, u64::from(tag % 4), (len % 100_000) as usize, modes[usize::from(mode % 3)]);
            }
            Step::Receive { tag, len } => victim.receive(u64::from(tag % 4), usize::from(len % 6000)),
            Step::Pass(n) => {
                for _ in 0..n % 8 {
                    victim.pass();
                    liar.progress();
                }
            }
        }
    }
    // Another peer has its messages, both ways.
    let other = endpoint(CarrierUse::Network);
    let theirs = other.insert_peer(&ep.name()).expect("a name");
    let ours = ep.insert_peer(&other.name()).expect("a name");
    victim.open -= message((&other, theirs), (&ep, ours));
    victim.open -= message((&ep, ours), (&other, theirs));
    // The liar goes: nothing that was to go to it is left.
    liar.close();
    drop(liar);
    let begun = Instant::now();
    while victim.open > 0 {
        victim.pass();
        assert!(begun.elapsed() < LIMIT, "{} sends do not end: {}", victim.open, ep.counters_json());
    }
    for memory in &victim.received {
        assert!(memory[memory.len() - BEYOND..].iter().all(|b| *b == BLANK), "written beside a receive");
    }
    other.close();
    ep.close();
    drop(ep);
    told
}

/// The kind that a number means: mostly that to which the body belongs.
fn kind_of(kind: u8, body: &Body) -> u8 {
    match body {
        _ if kind < 16 => kind,
        Body::Words { .. } | Body::NearWords { .. } => 8 + kind % 3,
        Body::Entries(_) => 12,
        Body::Whole { .. } => 2,
        Body::Control { .. } => 3,
        Body::Message { .. } => 4,
        Body::Rndv { .. } => 5,
        Body::Raw(_) => kind % 14,
    }
}
