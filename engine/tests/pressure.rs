//! Two sides that send to each other under one tag faster than they may, and one that is late: in
//! order, whole, and without an end to waiting.

mod common;

use common::{LIMIT, Pair, config, counter, open, pair_of, pattern, post, send, wait};
use std::time::{Duration, Instant};
use weir_engine::{Completion, EngineConfig, EngineError, Queue, SendMode};

/// Who gives nobody up here, however long the whole test is not run.
fn patient() -> EngineConfig {
    EngineConfig { peer_timeout: LIMIT, connect_timeout: LIMIT, ..config() }
}

/// As little memory and credit as can be set.
fn narrow() -> EngineConfig {
    EngineConfig {
        copied_bytes: 64 << 10,
        copied_peer_bytes: 64 << 10,
        credit_bytes: 4096,
        credit_msgs: 16,
        unexpected_bytes: 0,
        ..patient()
    }
}

const TAG: u64 = 1;

/// One side of the exchange: sends message after message, and takes what comes one at a time.
struct Side<'a> {
    ep: &'a weir_engine::Endpoint,
    peer: u32,
    begun: usize,
    taken: usize,
    refused: usize,
    buf: Box<[u8]>,
    out: Vec<Completion>,
}

fn content(i: usize, len: usize) -> Vec<u8> {
    let mut data = pattern(len, i as u8);
    data[..8].copy_from_slice(&(i as u64).to_le_bytes());
    data
}

impl<'a> Side<'a> {
    fn new(ep: &'a weir_engine::Endpoint, peer: u32, len: usize) -> Side<'a> {
        let mut buf = vec![0; len].into_boxed_slice();
        post(ep, Some(peer), TAG, &mut buf);
        Side { ep, peer, begun: 0, taken: 0, refused: 0, buf, out: Vec::new() }
    }

    /// Sends until refused, then takes what is there.
    fn step(&mut self, rounds: usize) {
        while self.begun < rounds {
            let mut data = content(self.begun, self.buf.len());
            match send(self.ep, self.peer, TAG, &mut data, SendMode::Inject) {
                Ok(()) => self.begun += 1,
                Err(EngineError::Again) => {
                    self.refused += 1;
                    break;
                }
                Err(e) => panic!("{e}"),
            }
        }
        self.out.clear();
        self.ep.poll(Queue::Recv, &mut self.out, 1);
        for c in &self.out {
            assert_eq!((c.result, c.len), (Ok(()), self.buf.len()));
            assert!(self.buf[..] == content(self.taken, self.buf.len())[..], "message {}", self.taken);
            self.taken += 1;
            if self.taken < rounds {
                post(self.ep, Some(self.peer), TAG, &mut self.buf);
            }
        }
        self.out.clear();
        self.ep.poll(Queue::Send, &mut self.out, 64);
        assert!(self.out.iter().all(|c| c.result.is_ok()), "{:?}", self.out);
    }
}

#[test]
fn ten_thousand_rounds_between_two_that_are_refused_again_and_again_end() {
    const ROUNDS: usize = 10_000;
    let p = pair_of(narrow(), narrow());
    let (mut a, mut b) = (Side::new(&p.a, p.to_b, 700), Side::new(&p.b, p.to_a, 700));
    let start = Instant::now();
    while a.taken < ROUNDS || b.taken < ROUNDS {
        a.step(ROUNDS);
        b.step(ROUNDS);
        assert!(start.elapsed() < LIMIT, "{} and {}: {}", a.taken, b.taken, p.a.counters_json());
    }
    for (side, ep) in [(&a, &p.a), (&b, &p.b)] {
        assert!(side.refused > 0, "nothing was refused");
        assert!(counter(ep, "refused_sends") > 0 && counter(ep, "stalls_credit") > 0, "{}", ep.counters_json());
        assert!(counter(ep, "copied_bytes_peak") <= 64 << 10);
        assert_eq!(counter(ep, "unexpected_bytes"), 0);
    }
}

/// Everything is begun while the other does not look at all, not even by its watchdog.
fn to_one_who_is_late(p: &Pair) {
    const COUNT: usize = 300;
    let sizes = [8, 100, 3000, 40_000, 200_000];
    let mut data: Vec<Vec<u8>> = (0..COUNT).map(|i| content(i, sizes[i % sizes.len()])).collect();
    let (start, mut begun, mut ended) = (Instant::now(), 0, Vec::new());
    while start.elapsed() < Duration::from_secs(1) {
        while begun < COUNT && send(&p.a, p.to_b, TAG, &mut data[begun], SendMode::Delivery).is_ok() {
            begun += 1;
        }
        p.a.poll(Queue::Send, &mut ended, 16);
    }
    assert_eq!(begun, COUNT, "all are accepted: their memory is lent");
    assert!(ended.is_empty(), "delivered to one who has not looked: {ended:?}");
    for sent in &data {
        let mut buf = vec![0; sent.len()];
        post(&p.b, None, TAG, &mut buf);
        assert_eq!(wait(&p.b, &p.a, Queue::Recv).len, sent.len());
        assert!(buf == *sent);
    }
    while ended.len() < COUNT {
        p.b.progress();
        p.a.poll(Queue::Send, &mut ended, 16);
        assert!(start.elapsed() < LIMIT, "{} of {COUNT}", ended.len());
    }
    assert!(ended.iter().all(|c| c.result.is_ok()));
}

#[test]
fn one_who_comes_a_second_late_finds_everything_in_order() {
    let deaf = EngineConfig { watchdog_us: 0, ..patient() };
    // Late from the start: not even the handshake was answered.
    let p = pair_of(patient(), deaf.clone());
    to_one_who_is_late(&p);
    // Late in the middle.
    to_one_who_is_late(&p);
    let p = pair_of(narrow(), EngineConfig { watchdog_us: 0, ..narrow() });
    to_one_who_is_late(&p);
    // Somebody else is not kept waiting.
    let (late, third) = (open(deaf), open(patient()));
    let hub = open(patient());
    let (to_late, to_third) =
        (hub.insert_peer(&late.name()).expect("name"), hub.insert_peer(&third.name()).expect("name"));
    third.insert_peer(&hub.name()).expect("name");
    let mut held: Vec<Vec<u8>> = (0..50).map(|i| content(i, 200_000)).collect();
    for data in &mut held {
        send(&hub, to_late, TAG, data, SendMode::Delivery).expect("send");
    }
    for i in 0..200 {
        let (mut data, mut buf) = (content(i, 50_000), vec![0; 50_000]);
        post(&third, None, TAG, &mut buf);
        send(&hub, to_third, TAG, &mut data, SendMode::Delivery).expect("send");
        wait(&third, &hub, Queue::Recv);
        assert_eq!(wait(&hub, &third, Queue::Send).tag, TAG);
        assert!(buf == data);
    }
    assert_eq!(counter(&late, "polls"), 0, "it has not looked");
    late.insert_peer(&hub.name()).expect("name");
    for sent in &held {
        let mut buf = vec![0; sent.len()];
        post(&late, None, TAG, &mut buf);
        wait(&late, &hub, Queue::Recv);
        assert!(buf == *sent);
    }
}
