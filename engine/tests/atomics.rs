//! Atomic operations on a peer's memory, over packets or (`WEIR_TEST_CARRIER=shm`) over shared
//! memory.

mod common;

use common::{LIMIT, Pair, RIGHTS, config, counter, iov, open, pair, pair_with, register, register_with, wait};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use weir_engine::{
    Access, AmoOp, Atomic, AtomicOp, AtomicType, EngineConfig, EngineError, Iov, OpError, OpKind, Queue,
};

fn amo<'a>(p: &Pair, op: AtomicOp, key: u64, operand: &'a [Iov], result: &'a [Iov]) -> AmoOp<'a> {
    AmoOp {
        peer: p.to_b,
        atomic: Atomic::new(op, AtomicType::U64).expect("there is one"),
        count: 1,
        operand,
        compare: &[],
        result,
        remote_addr: 0,
        key,
        report: true,
        context: 3,
        user: 4,
    }
}

#[test]
fn an_element_is_changed_and_what_it_held_is_told() {
    let p = pair();
    let mut memory = vec![0u64; 4];
    let bytes = Iov { base: memory.as_mut_ptr().cast(), len: 32 };
    // SAFETY: `memory` lives to the end of the test.
    let key = unsafe { p.b.register(&[bytes], RIGHTS, None, false) }.expect("register");
    let (mut operand, mut compare, mut result) = (5u64.to_ne_bytes(), 5u64.to_ne_bytes(), [9u8; 8]);
    let (operand, compare, to) = (iov(&mut operand), iov(&mut compare), iov(&mut result));
    for (op, fetch, held, holds) in [
        (AtomicOp::Sum, true, 0, 5),
        (AtomicOp::SwapIfUnequal, true, 5, 5),
        (AtomicOp::Sum, false, 5, 10),
        (AtomicOp::SwapIfUnequal, true, 10, 5),
        (AtomicOp::Read, true, 5, 5),
        (AtomicOp::Prod, true, 5, 25),
    ] {
        let wanted = if fetch { &to[..] } else { &[] };
        let op = AmoOp { compare: &compare, remote_addr: 8, ..amo(&p, op, key, &operand, wanted) };
        // SAFETY: the buffers outlive the completion.
        unsafe { p.a.atomic(&op) }.expect("accepted");
        let c = wait(&p.a, &p.b, Queue::Send);
        let kind = if fetch { OpKind::FetchAtomic } else { OpKind::Atomic };
        assert_eq!((c.kind, c.context, c.user, c.result), (kind, 3, 4, Ok(())));
        // SAFETY: nothing is under way.
        unsafe {
            assert_eq!(bytes.base.cast::<u64>().add(1).read(), holds, "{op:?}");
            assert!(!fetch || to[0].base.cast::<u64>().read_unaligned() == held, "{op:?}");
        }
    }
    assert_eq!(counter(&p.a, "atomics"), 6);
    assert_eq!(counter(&p.b, "atomics_executed"), 6);
}

#[test]
fn what_the_target_refuses_fails_and_names_what_is_wrong() {
    let p = pair();
    let mut memory = vec![7u8; 64];
    let key = register(&p.b, &mut memory);
    let only_read = Access { remote_read: true, remote_write: false };
    let mut other = vec![7u8; 64];
    let to_read = register_with(&p.b, &mut other, only_read);
    let mut operand = 1u64.to_ne_bytes();
    let operand = iov(&mut operand);
    // From the first multiple of eight on.
    let aligned = memory.as_ptr().addr().next_multiple_of(8) - memory.as_ptr().addr();
    for (key, addr, error) in [
        (key, aligned as u64 + 4, OpError::Alignment),
        (key, 57, OpError::Access),
        (key, u64::MAX - 3, OpError::Access),
        (99, 0, OpError::Access),
        (to_read, 0, OpError::Access),
    ] {
        let op = AmoOp { remote_addr: addr, ..amo(&p, AtomicOp::Sum, key, &operand, &[]) };
        // SAFETY: the buffers outlive the completion.
        unsafe { p.a.atomic(&op) }.expect("accepted");
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Err(error), "key {key}, at {addr}");
    }
    assert!(memory.iter().chain(&other).all(|b| *b == 7));
    // What cannot be meant is refused at once.
    let short = [Iov { base: operand[0].base, len: 4 }];
    let op = amo(&p, AtomicOp::Sum, key, &short, &[]);
    // SAFETY: it is refused.
    assert!(matches!(unsafe { p.a.atomic(&op) }, Err(EngineError::Invalid(_))));
}

/// Adds one `count` times, as many under way as are accepted; returns what was held each time.
fn add_many(p: &Pair, key: u64, count: usize) -> Vec<u64> {
    let (mut operand, mut held) = (1u64.to_ne_bytes(), vec![0u64; count]);
    let operand = iov(&mut operand);
    let (start, mut out) = (Instant::now(), Vec::new());
    for place in &mut held {
        let to = [Iov { base: std::ptr::from_mut(place).cast(), len: 8 }];
        let op = amo(p, AtomicOp::Sum, key, &operand, &to);
        // SAFETY: the buffers outlive the completion.
        while let Err(e) = unsafe { p.a.atomic(&op) } {
            assert!(matches!(e, EngineError::Again) && start.elapsed() < LIMIT, "{e}");
            p.a.poll(Queue::Send, &mut out, 64);
            p.b.progress();
        }
    }
    while out.len() < count {
        p.a.poll(Queue::Send, &mut out, 64);
        p.b.progress();
        assert!(start.elapsed() < LIMIT, "{} of {count}: {}", out.len(), p.a.counters_json());
    }
    assert!(out.iter().all(|c| c.result == Ok(())));
    held
}

#[test]
fn the_programs_own_atomic_instructions_and_those_of_a_peer_agree() {
    const OWN: u64 = 200_000;
    let p = pair();
    let word = AtomicU64::new(0);
    let place = [Iov { base: word.as_ptr().cast(), len: 8 }];
    // SAFETY: `word` lives to the end of the test.
    let key = unsafe { p.b.register(&place, RIGHTS, None, true) }.expect("register");
    let held = std::thread::scope(|s| {
        s.spawn(|| (0..OWN).for_each(|_| _ = word.fetch_add(1, Ordering::Relaxed)));
        let (mut operand, mut held) = (1u64.to_ne_bytes(), Vec::new());
        for _ in 0..500 {
            let mut result = [0u8; 8];
            let (operand, to) = (iov(&mut operand), iov(&mut result));
            let remote_addr = place[0].base as u64;
            let op = AmoOp { remote_addr, ..amo(&p, AtomicOp::Sum, key, &operand, &to) };
            // SAFETY: the buffers outlive the completion.
            unsafe { p.a.atomic(&op) }.expect("accepted");
            assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
            held.push(u64::from_ne_bytes(result));
        }
        held
    });
    assert_eq!(word.load(Ordering::SeqCst), OWN + 500);
    assert!(held.windows(2).all(|w| w[0] < w[1]));
}

#[test]
fn thousands_at_a_time_are_each_executed_once_whatever_is_lost() {
    for faults in ["", "loss=5%,dup=5%,jitter=200us,seed=3"] {
        let faults = (!faults.is_empty()).then(|| faults.to_owned());
        let p = pair_with(EngineConfig { faults, watchdog_us: 0, ..config() });
        let mut memory = vec![0u64; 1];
        let place = [Iov { base: memory.as_mut_ptr().cast(), len: 8 }];
        // SAFETY: `memory` lives to the end of the round, `p` less long.
        let key = unsafe { p.b.register(&place, RIGHTS, None, false) }.expect("register");
        let mut held = add_many(&p, key, 5000);
        held.sort_unstable();
        assert!(held.iter().copied().eq(0..5000), "each has seen another value");
        drop(p);
        assert_eq!(memory[0], 5000);
    }
}

#[test]
fn ones_own_memory_is_changed_like_that_of_others() {
    let a = open(config());
    let to_self = a.insert_peer(&a.name()).expect("name");
    let b = a.clone();
    let p = Pair { a, b, to_b: to_self, to_a: to_self };
    let mut memory = vec![0u64; 1];
    let place = [Iov { base: memory.as_mut_ptr().cast(), len: 8 }];
    // SAFETY: `memory` lives to the end of the test.
    let key = unsafe { p.b.register(&place, RIGHTS, None, false) }.expect("register");
    assert!(add_many(&p, key, 3000).into_iter().eq(0..3000));
    drop(p);
    assert_eq!(memory[0], 3000);
}

#[test]
fn a_peer_that_closes_fails_what_it_has_not_answered() {
    let p = pair_with(EngineConfig { watchdog_us: 0, ..config() });
    let mut memory = vec![0u64; 1];
    let place = [Iov { base: memory.as_mut_ptr().cast(), len: 8 }];
    // SAFETY: `memory` lives to the end of the test.
    let key = unsafe { p.b.register(&place, RIGHTS, None, false) }.expect("register");
    assert_eq!(add_many(&p, key, 1), [0]);
    let (mut operand, mut result) = (1u64.to_ne_bytes(), [9u8; 8]);
    let (operand, to) = (iov(&mut operand), iov(&mut result));
    let closing = p.b.clone();
    // Nobody polls `b` from now on; it closes.
    let closer = std::thread::spawn(move || closing.close());
    let mut failed = false;
    let start = Instant::now();
    while !failed {
        // SAFETY: the buffers outlive the completion.
        match unsafe { p.a.atomic(&amo(&p, AtomicOp::Sum, key, &operand, &to)) } {
            Ok(()) => failed = matches!(wait(&p.a, &p.a, Queue::Send).result, Err(OpError::PeerDown(_))),
            Err(EngineError::PeerDown(_)) => failed = true,
            Err(e) => panic!("{e}"),
        }
        assert!(start.elapsed() < LIMIT);
    }
    closer.join().expect("closed");
}
