//! Many threads on one endpoint: sends, receives, cancellations, polls and sleeps at once. Who
//! polls takes whatever has ended, so each thread's operations end wherever they end.

mod common;

use common::{LIMIT, config, counter, iov, open, pattern, recv_op, send_op};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_engine::{BulkUse, Completion, Endpoint, EngineConfig, EngineError, OpError, Queue, RecvOp, SendMode, SendOp};

const THREADS: usize = 4;
const MESSAGES: usize = 200;
/// Sends and receives that a thread has open at once.
const WINDOW: usize = 8;
const SIZES: [usize; 8] = [0, 8, 700, 3000, 30_000, 70_000, 140_000, 300_000];
/// Of an operation that no thread waits for.
const NOBODY: usize = usize::MAX;

fn len_of(thread: usize, i: usize) -> usize {
    SIZES[(i * 5 + thread) % SIZES.len()]
}

fn seed_of(from: usize, thread: usize, i: usize) -> u8 {
    (from * 101 + thread * 17 + i) as u8
}

/// One endpoint, and which of the operations of its threads have ended.
struct Side {
    ep: Arc<Endpoint>,
    number: usize,
    /// By endpoint: the same one, and the other.
    peer: u32,
    sent: Vec<AtomicUsize>,
    received: Vec<[AtomicBool; MESSAGES]>,
    cancelled: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

impl Side {
    fn new(ep: Arc<Endpoint>, number: usize, peer: u32) -> Side {
        let flags = || (0..THREADS).map(|_| [const { AtomicBool::new(false) }; MESSAGES]).collect();
        Side {
            ep,
            number,
            peer,
            sent: (0..THREADS).map(|_| AtomicUsize::new(0)).collect(),
            received: flags(),
            cancelled: AtomicUsize::new(0),
            wrong: Mutex::new(Vec::new()),
        }
    }

    /// Takes what has ended, whosever it is.
    fn poll(&self, queue: Queue) {
        let mut out = Vec::new();
        self.ep.poll(queue, &mut out, 3);
        for c in out {
            if let Err(e) = self.ended(&c) {
                self.wrong.lock().expect("lock").push(e);
            }
        }
    }

    fn ended(&self, c: &Completion) -> Result<(), String> {
        if c.context == NOBODY {
            self.cancelled.fetch_add(1, Ordering::Relaxed);
            return (c.result == Err(OpError::Cancelled)).then_some(()).ok_or(format!("{c:?}"));
        }
        let (thread, i) = (c.context / MESSAGES, c.context % MESSAGES);
        let told = format!("operation {i} of thread {thread}: {c:?}");
        match (c.user, c.result) {
            (1, Ok(())) => _ = self.sent[thread].fetch_add(1, Ordering::Release),
            (2, Ok(())) if (c.len, c.tag) == (len_of(thread, i), thread as u64) => {
                if self.received[thread][i].swap(true, Ordering::Release) {
                    return Err(format!("twice: {told}"));
                }
            }
            _ => return Err(told),
        }
        Ok(())
    }

    fn check(&self, start: Instant, doing: &str) {
        let wrong = self.wrong.lock().expect("lock");
        assert!(wrong.is_empty(), "{wrong:?}");
        assert!(start.elapsed() < LIMIT, "{doing}: {}", self.ep.counters_json());
    }

    fn when_accepted(&self, start: Instant, mut f: impl FnMut() -> Result<(), EngineError>) {
        while let Err(e) = f() {
            assert!(matches!(e, EngineError::Again), "{e}");
            self.poll(Queue::Both);
            self.check(start, "refused for ever");
        }
    }

    /// One thread's part: as many messages to its like at the other endpoint as come from there.
    fn run(&self, thread: usize) {
        let start = Instant::now();
        let queue = [Queue::Both, Queue::Recv, Queue::Send, Queue::Both][thread % 4];
        // All are kept to the end: another thread may see that they have ended.
        let mut out: Vec<Vec<u8>> =
            (0..MESSAGES).map(|i| pattern(len_of(thread, i), seed_of(self.number, thread, i))).collect();
        let mut into: Vec<Vec<u8>> = (0..MESSAGES).map(|i| vec![0; len_of(thread, i)]).collect();
        let mut never = [0u8; 8];
        let (mut posted, mut begun, mut checked) = (0, 0, 0);
        while checked < MESSAGES || self.sent[thread].load(Ordering::Acquire) < MESSAGES {
            if posted < MESSAGES && posted < checked + WINDOW {
                let iov = iov(&mut into[posted]);
                let context = thread * MESSAGES + posted;
                let op = RecvOp { context, user: 2, ..recv_op(Some(self.peer), thread as u64, &iov) };
                // SAFETY: `into` lives until all has ended.
                self.when_accepted(start, || unsafe { self.ep.recv(&op) });
                posted += 1;
            }
            if begun < MESSAGES && begun < self.sent[thread].load(Ordering::Acquire) + WINDOW {
                let iov = iov(&mut out[begun]);
                let mode = [SendMode::Transmit, SendMode::Delivery, SendMode::Match][begun % 3];
                let context = thread * MESSAGES + begun;
                let op = SendOp { context, user: 1, ..send_op(self.peer, thread as u64, &iov, mode) };
                // SAFETY: `out` lives until all has ended.
                self.when_accepted(start, || unsafe { self.ep.send(&op) });
                begun += 1;
            }
            if checked < MESSAGES && self.received[thread][checked].load(Ordering::Acquire) {
                let want = pattern(len_of(thread, checked), seed_of(1 - self.number, thread, checked));
                assert!(into[checked] == want, "payload of message {checked} of thread {thread}");
                checked += 1;
                if checked % 50 == 0 {
                    let iov = iov(&mut never);
                    let op = RecvOp { context: NOBODY, ..recv_op(None, 1000 + thread as u64, &iov) };
                    // SAFETY: `never` lives until all has ended.
                    self.when_accepted(start, || unsafe { self.ep.recv(&op) });
                    // Which of those of all threads it is does not matter.
                    assert!(self.ep.cancel(NOBODY));
                }
            }
            self.poll(queue);
            self.check(start, "stuck");
        }
        // Nobody's memory goes before all cancellations have been told.
        while self.cancelled.load(Ordering::Relaxed) < THREADS * (MESSAGES / 50) {
            self.poll(Queue::Both);
            self.check(start, "cancellations are not told");
        }
    }

    /// A thread that sleeps until something has ended.
    fn sleep(&self, over: &AtomicBool) {
        while !over.load(Ordering::Acquire) {
            if self.ep.arm() {
                let mut fd = libc::pollfd { fd: self.ep.notify_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one valid pollfd.
                unsafe { libc::poll(&raw mut fd, 1, 20) };
            }
            self.poll(Queue::Both);
        }
    }
}

fn both(cfg: &EngineConfig) {
    let (a, b) = (open(cfg.clone()), open(cfg.clone()));
    let (to_b, to_a) = (a.insert_peer(&b.name()).expect("name"), b.insert_peer(&a.name()).expect("name"));
    let sides = [Side::new(a, 0, to_b), Side::new(b, 1, to_a)];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            sides.iter().flat_map(|side| (0..THREADS).map(move |t| scope.spawn(move || side.run(t)))).collect();
        let over = &over;
        for side in &sides {
            scope.spawn(move || side.sleep(over));
            scope.spawn(move || {
                while !over.load(Ordering::Acquire) {
                    assert_eq!(counter(&side.ep, "violations"), 0);
                    side.ep.progress();
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let failed = workers.into_iter().map(|w| w.join()).filter(Result::is_err).count();
        over.store(true, Ordering::Release);
        assert_eq!(failed, 0, "threads failed");
    });
    for side in &sides {
        assert!(side.wrong.lock().expect("lock").is_empty());
        let totals = side.ep.totals();
        assert_eq!((totals.sends, totals.send_errors), ((THREADS * MESSAGES) as u64, 0));
        assert_eq!(totals.recvs, (THREADS * MESSAGES) as u64);
        assert_eq!(totals.recv_errors, (THREADS * (MESSAGES / 50)) as u64, "those that were cancelled");
    }
}

#[test]
fn threads_of_one_endpoint_send_receive_and_poll_at_once_in_packets() {
    both(&EngineConfig { bulk_connections: BulkUse::Off, ..config() });
}

#[test]
fn threads_of_one_endpoint_send_receive_and_poll_at_once_with_bulk_connections() {
    both(&EngineConfig { bulk_connections: BulkUse::Always, ..config() });
}
