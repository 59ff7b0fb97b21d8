//! What the tests of whole endpoints share: opening them, the operations with what most tests want
//! of them, and waiting.

// Each test program uses its part.
#![allow(dead_code)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_engine::{
    Access, CarrierUse, Class, Completion, Diagnostic, Diagnostics, Endpoint, EngineConfig, EngineError, Iov, Queue,
    RecvOp, RmaOp, SendMode, SendOp,
};

/// The key of all jobs here.
pub const KEY: [u8; 32] = [7; 32];

/// Nothing takes this long, however busy the machine, but what hangs.
pub const LIMIT: Duration = Duration::from_secs(120);

/// All rights on registered memory.
pub const RIGHTS: Access = Access { remote_read: true, remote_write: true };

/// On loopback only; by packets, or with `WEIR_TEST_CARRIER` by shared memory (`shm`) or SCTP
/// (`sctp`, with a timer for a machine that loses nothing for long).
pub fn config() -> EngineConfig {
    let carrier = match std::env::var("WEIR_TEST_CARRIER").as_deref() {
        Ok("shm") => CarrierUse::Shm,
        Ok("sctp") => CarrierUse::Sctp,
        _ => CarrierUse::Network,
    };
    let addrs = vec!["127.0.0.1".parse().expect("address")];
    EngineConfig { addrs, carrier, sctp_rto_min_ms: 20, ..EngineConfig::default() }
}

/// On loopback only, by packets whatever the suite runs over: for tests that are about packets.
pub fn packets() -> EngineConfig {
    EngineConfig { carrier: CarrierUse::Network, ..config() }
}

/// Whether the test that calls this is to be left out, since it asks something of packets and the
/// suite runs over another carrier. Says so: `cargo xtask test` counts the line as a test skipped,
/// which the test program itself cannot.
pub fn about_packets(why: &str) -> bool {
    use std::io::Write;
    if config().carrier == CarrierUse::Network {
        return false;
    }
    let thread = std::thread::current();
    let line = format!("IGNORED, not passed: {}. {why}\n", thread.name().unwrap_or("a test"));
    // Not by a macro: of tests that pass that is not shown.
    let _ = std::io::stderr().write_all(line.as_bytes());
    true
}

/// Whether these tests are to run over shared memory, as far as they are not about packets.
pub fn over_shared_memory() -> bool {
    config().carrier == CarrierUse::Shm
}

/// What endpoints have to say, on standard error, where tests of other processes look for it.
pub fn told() -> Diagnostics {
    use std::io::Write;
    Arc::new(|what: &Diagnostic<'_>| {
        let text = match what {
            Diagnostic::Notice(line) => format!("weir: {line}\n"),
            Diagnostic::Trace(text) | Diagnostic::Counters(text) => (*text).to_owned(),
            Diagnostic::PeerDown { .. } => return,
        };
        // Some of them are in want of everything.
        let _ = std::io::stderr().write_all(text.as_bytes());
    })
}

pub fn open(cfg: EngineConfig) -> Arc<Endpoint> {
    Endpoint::open_told(cfg, KEY, told()).expect("open")
}

/// An endpoint, and what it says of peers that died.
pub fn open_keeping(cfg: EngineConfig) -> (Arc<Endpoint>, Arc<Mutex<Vec<String>>>) {
    let deaths = Arc::new(Mutex::new(Vec::new()));
    let kept = deaths.clone();
    let keep = move |what: &Diagnostic<'_>| {
        if let Diagnostic::PeerDown { line, .. } = what {
            kept.lock().expect("kept").push((*line).to_owned());
        }
    };
    (Endpoint::open_told(cfg, KEY, Arc::new(keep)).expect("open"), deaths)
}

/// Two endpoints that know each other.
pub struct Pair {
    pub a: Arc<Endpoint>,
    pub b: Arc<Endpoint>,
    /// `b` as `a` knows it, and the other way round.
    pub to_b: u32,
    pub to_a: u32,
}

pub fn pair_of(a: EngineConfig, b: EngineConfig) -> Pair {
    let (a, b) = (open(a), open(b));
    let to_b = a.insert_peer(&b.name()).expect("name");
    let to_a = b.insert_peer(&a.name()).expect("name");
    Pair { a, b, to_b, to_a }
}

pub fn pair_with(cfg: EngineConfig) -> Pair {
    pair_of(cfg.clone(), cfg)
}

pub fn pair() -> Pair {
    pair_with(config())
}

pub fn iov(data: &mut [u8]) -> [Iov; 1] {
    [Iov { base: data.as_mut_ptr(), len: data.len() }]
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8).wrapping_add(seed)).collect()
}

/// A tagged message whose completion bears its tag as context.
pub fn send_op(peer: u32, tag: u64, iov: &[Iov], mode: SendMode) -> SendOp<'_> {
    let context = tag as usize;
    SendOp {
        peer,
        class: Class::Tagged,
        tag,
        data: None,
        memory: iov,
        mode,
        copy: false,
        report: true,
        context,
        user: 0,
    }
}

/// A receive of a tagged message whose completion bears its tag as context.
pub fn recv_op(source: Option<u32>, tag: u64, iov: &[Iov]) -> RecvOp<'_> {
    let context = tag as usize;
    RecvOp {
        source,
        class: Class::Tagged,
        tag,
        ignore: 0,
        memory: iov,
        multi_min: None,
        report: true,
        context,
        user: 0,
    }
}

/// A write to, or a read from, the beginning of a region, complete when it is done there.
pub fn rma_op(peer: u32, key: u64, iov: &[Iov]) -> RmaOp<'_> {
    let mode = SendMode::Delivery;
    RmaOp { peer, memory: iov, remote_addr: 0, key, data: None, mode, copy: false, report: true, context: 1, user: 0 }
}

pub fn send(ep: &Endpoint, peer: u32, tag: u64, data: &mut [u8], mode: SendMode) -> Result<(), EngineError> {
    // SAFETY: every test keeps its buffers until the completion.
    unsafe { ep.send(&send_op(peer, tag, &iov(data), mode)) }
}

/// Sends, after as much progress as it takes until the message is accepted.
pub fn send_when_accepted(ep: &Endpoint, op: &SendOp<'_>) {
    let start = Instant::now();
    // SAFETY: every test keeps its buffers until the completion.
    while let Err(e) = unsafe { ep.send(op) } {
        assert!(matches!(e, EngineError::Again), "{e}");
        assert!(start.elapsed() < LIMIT, "send refused for too long");
        ep.progress();
    }
}

pub fn try_post(ep: &Endpoint, source: Option<u32>, tag: u64, buf: &mut [u8]) -> Result<(), EngineError> {
    // SAFETY: every test keeps its buffers until the completion.
    unsafe { ep.recv(&recv_op(source, tag, &iov(buf))) }
}

pub fn post(ep: &Endpoint, source: Option<u32>, tag: u64, buf: &mut [u8]) {
    try_post(ep, source, tag, buf).expect("receive");
}

pub fn register_with(ep: &Endpoint, memory: &mut [u8], rights: Access) -> u64 {
    // SAFETY: every test keeps its memory until it is unregistered, or to its end.
    unsafe { ep.register(&iov(memory), rights, None, false) }.expect("register")
}

pub fn register(ep: &Endpoint, memory: &mut [u8]) -> u64 {
    register_with(ep, memory, RIGHTS)
}

/// Polls a queue of `ep`, and `other` for its progress, until a completion comes.
pub fn wait(ep: &Endpoint, other: &Endpoint, queue: Queue) -> Completion {
    let (start, mut out) = (Instant::now(), Vec::new());
    while ep.poll(queue, &mut out, 1) == 0 {
        other.progress();
        assert!(start.elapsed() < LIMIT, "no completion within {LIMIT:?}: {}", ep.counters_json());
    }
    out[0]
}

/// The first counter of that name, wherever it stands.
pub fn counter(ep: &Endpoint, name: &str) -> u64 {
    let json = ep.counters_json();
    let at = json.split(&format!("\"{name}\":")).nth(1).unwrap_or_else(|| panic!("no {name} in {json}"));
    at.split([',', '}']).next().and_then(|n| n.parse().ok()).expect("number")
}
