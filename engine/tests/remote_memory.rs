//! Remote memory: writes and reads between two endpoints over loopback, and what must fail.

mod common;

use common::{
    LIMIT, Pair, RIGHTS, config, counter, iov, pair, pair_with, pattern, post, register, register_with, rma_op, send,
    wait,
};
use std::time::Instant;
use weir_engine::{
    Access, CarrierUse, Class, EngineConfig, EngineError, Iov, OpError, OpKind, PeekOp, Queue, RmaOp, SendMode,
};

fn write_mode(p: &Pair, key: u64, data: &[Iov], immediate: Option<u64>, mode: SendMode) {
    let op = RmaOp { data: immediate, mode, ..rma_op(p.to_b, key, data) };
    let start = Instant::now();
    // SAFETY: every test keeps its buffers until the completion.
    while let Err(e) = unsafe { p.a.write(&op) } {
        assert!(matches!(e, EngineError::Again) && start.elapsed() < LIMIT, "{e}");
        p.a.progress();
        p.b.progress();
    }
}

fn try_read(p: &Pair, key: u64, into: &mut [u8]) -> Result<(), EngineError> {
    // SAFETY: every test keeps its buffers until the completion.
    unsafe { p.a.read(&rma_op(p.to_b, key, &iov(into))) }
}

fn read(p: &Pair, key: u64, into: &mut [u8]) {
    try_read(p, key, into).expect("read");
}

#[test]
fn remote_memory_is_written_and_read_within_its_rights() {
    let p = pair();
    let mut memory = vec![0u8; 1 << 20];
    // SAFETY: `memory` lives to the end of the test.
    let key = unsafe { p.b.register(&iov(&mut memory), RIGHTS, Some(42), false) }.expect("register");
    assert_eq!(key, 42);
    for len in [1, 1000, 20_000, 500_000] {
        let mut data = pattern(len, 7);
        let src = iov(&mut data);
        let op = |iov, remote_addr, data| RmaOp { remote_addr, data, context: 31, ..rma_op(p.to_b, key, iov) };
        // SAFETY: the buffers outlive the completions.
        unsafe { p.a.write(&op(&src, 100, Some(55))) }.expect("write");
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
        let note = wait(&p.b, &p.a, Queue::Recv);
        assert_eq!((note.kind, note.data), (OpKind::RemoteWrite, Some(55)));
        assert!(memory[100..100 + len] == data[..]);
        let mut back = vec![0; len];
        let dst = iov(&mut back);
        // SAFETY: as above.
        unsafe { p.a.read(&op(&dst, 100, None)) }.expect("read");
        let got = wait(&p.a, &p.b, Queue::Send);
        assert_eq!((got.kind, got.result), (OpKind::Read, Ok(())));
        assert!(back == data);
        for addr in [(1 << 20) - len as u64 + 1, u64::MAX] {
            // SAFETY: as above.
            unsafe { p.a.read(&op(&dst, addr, None)) }.expect("read");
            assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Err(OpError::Access), "{len} bytes at {addr}");
            // SAFETY: as above.
            unsafe { p.a.write(&op(&src, addr, None)) }.expect("write");
            assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Err(OpError::Access), "{len} bytes at {addr}");
        }
    }
    assert!(p.b.unregister(42) && !p.b.unregister(42));
}

#[test]
fn a_refused_write_is_told_whatever_carries_it() {
    for carrier in [CarrierUse::Network, CarrierUse::Shm] {
        let p = pair_with(EngineConfig { carrier, ..config() });
        let mut memory = vec![0u8; 64];
        let key = register_with(&p.b, &mut memory, Access { remote_read: true, remote_write: false });
        let mut data = pattern(5000, 3);
        let src = iov(&mut data);
        for len in [1, 64, 5000] {
            for mode in [SendMode::Transmit, SendMode::Acknowledged, SendMode::Delivery] {
                let part = [Iov { len, ..src[0] }];
                write_mode(&p, key, &part, None, mode);
                assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Err(OpError::Access), "{carrier:?} {len} {mode:?}");
            }
        }
        assert_eq!(memory, [0; 64]);
    }
}

#[test]
fn a_write_is_over_when_it_is_answered_though_nothing_follows() {
    // Far fewer than there are between two looks at a timer, and far more than it takes.
    const POLLS: u32 = 100;
    for mode in [SendMode::Transmit, SendMode::Delivery] {
        let p = pair_with(EngineConfig { carrier: CarrierUse::Shm, watchdog_us: 0, ..config() });
        let mut memory = vec![0u8; 64];
        let key = register(&p.b, &mut memory);
        let mut data = pattern(64, 3);
        let src = iov(&mut data);
        let mut late = 0;
        for _ in 0..50 {
            write_mode(&p, key, &src, None, mode);
            let (start, mut out, mut polls) = (Instant::now(), Vec::new(), 0);
            while p.a.poll(Queue::Send, &mut out, 1) == 0 {
                p.b.progress();
                polls += 1;
                assert!(start.elapsed() < LIMIT);
            }
            assert_eq!(out[0].result, Ok(()));
            late += u32::from(polls > POLLS);
        }
        assert!(late < 25, "{late} of 50 writes waited for a timer ({mode:?})");
    }
}

/// As many reads from `b` into `buf` as `a` accepts.
fn read_until_refused(p: &Pair, key: u64, buf: &mut [u8]) -> usize {
    let mut accepted = 0;
    loop {
        match try_read(p, key, buf) {
            Ok(()) => accepted += 1,
            Err(EngineError::Again) => return accepted,
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn any_number_of_reads_leaves_room_for_the_rendezvous_of_messages() {
    let p = pair_with(EngineConfig { watchdog_us: 0, credit_msgs: 16, eager_bytes: 16, ..config() });
    let mut memory = pattern(16 << 10, 3);
    let key = register_with(&p.b, &mut memory, Access { remote_read: true, remote_write: false });
    let mut data = pattern(100_000, 4);
    send(&p.b, p.to_a, 7, &mut data, SendMode::Transmit).expect("sent");
    let start = Instant::now();
    let seek =
        PeekOp { source: None, class: Class::Tagged, tag: 7, ignore: 0, claim: false, discard: false, context: 1 };
    while p.a.peek(&seek).expect("peek").is_none() {
        p.a.progress();
        p.b.progress();
        assert!(start.elapsed() < LIMIT);
    }
    // The requests are acknowledged long before their answers have come, and more are accepted.
    let mut into = vec![0; 16 << 10];
    let mut reads = 0;
    for _ in 0..6 {
        reads += read_until_refused(&p, key, &mut into);
        p.b.progress();
        p.a.progress();
    }
    reads += read_until_refused(&p, key, &mut into);
    let mut buf = vec![0; 100_000];
    post(&p.a, Some(p.to_b), 7, &mut buf);
    let got = wait(&p.a, &p.b, Queue::Recv);
    assert_eq!((got.context, got.result), (7, Ok(())));
    assert!(buf == data);
    assert_eq!(wait(&p.b, &p.a, Queue::Send).result, Ok(()));
    for _ in 0..reads {
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
    }
    assert!(into == memory);
    // All ended: there is room again.
    assert!(read_until_refused(&p, key, &mut into) > 1000);
    drop(p); // `into` is still being read into
}

#[test]
fn a_refused_write_leaves_no_piece_behind() {
    let p = pair_with(EngineConfig { watchdog_us: 0, ..config() });
    let mut memory = vec![0u8; 32 << 10];
    let key = register(&p.b, &mut memory);
    let mut data = pattern(32 << 10, 9);
    let mut accepted = 0;
    loop {
        let iov = iov(&mut data);
        let op = RmaOp { context: accepted, ..rma_op(p.to_b, key, &iov) };
        // SAFETY: `data` lives to the end of the test.
        match unsafe { p.a.write(&op) } {
            Ok(()) => accepted += 1,
            Err(EngineError::Again) => break,
            Err(e) => panic!("{e}"),
        }
        assert!(accepted < 10_000, "no bound");
    }
    let control = counter(&p.a, "messages_sent");
    assert_eq!(control % accepted as u64, 0, "a part of the refused write was queued");
    for i in 0..accepted {
        let c = wait(&p.a, &p.b, Queue::Send);
        assert_eq!((c.context, c.result), (i, Ok(())));
    }
    assert!(memory == data);
}

#[test]
fn the_notice_of_a_write_comes_after_all_its_data_and_says_how_much() {
    let p = pair_with(EngineConfig { faults: Some("loss=20%,seed=3".into()), ..config() });
    for (round, len) in
        [20_000usize, 1, 1500, 0, 32 << 10, 3000, 100_000, 20_000].into_iter().cycle().take(64).enumerate()
    {
        let mut data = pattern(len, round as u8);
        let mut target = vec![0u8; len];
        let key = register(&p.b, &mut target);
        write_mode(&p, key, &iov(&mut data), Some(round as u64), SendMode::Transmit);
        let c = wait(&p.b, &p.a, Queue::Recv);
        assert_eq!((c.kind, c.data, c.len), (OpKind::RemoteWrite, Some(round as u64), len));
        assert!(target == data, "round {round}: the notice of {len} bytes came before them");
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
        p.b.unregister(key);
    }
}

/// Memory that faults when it is touched after its end.
struct Mapping([Iov; 1]);

impl Mapping {
    fn new(len: usize) -> Mapping {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the system's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, kind, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Mapping([Iov { base: base.cast(), len }])
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`, and no reference to it is left. It stays reserved, so
        // that nothing else of the process comes to lie there.
        unsafe { libc::mprotect(self.0[0].base.cast(), self.0[0].len, libc::PROT_NONE) };
    }
}

#[test]
fn the_memory_of_a_refused_write_is_not_read_after_its_completion() {
    let p = pair_with(EngineConfig { faults: Some("loss=30%,seed=5".into()), ..config() });
    let mut target = vec![0u8; 64];
    let key = register(&p.b, &mut target);
    for mode in [SendMode::Transmit, SendMode::Delivery] {
        for len in [32 << 10, 200_000] {
            for _ in 0..20 {
                let source = Mapping::new(len);
                write_mode(&p, key, &source.0, None, mode);
                let c = wait(&p.a, &p.b, Queue::Send);
                drop(source);
                assert!(c.result == Err(OpError::Access) || mode == SendMode::Transmit, "{mode:?}: {:?}", c.result);
                for _ in 0..200 {
                    p.a.progress();
                    p.b.progress();
                }
            }
        }
    }
    assert!(target.iter().all(|b| *b == 0));
}

#[test]
fn a_refused_write_whose_delivery_is_asked_for_never_succeeds() {
    let p = pair_with(EngineConfig { faults: Some("loss=30%,seed=6".into()), ..config() });
    let mut target = vec![0u8; 4000];
    let key = register(&p.b, &mut target);
    let mut data = pattern(5000, 1);
    for round in 0..300 {
        // Out of the region; in it; no such region.
        let (len, key, want) =
            [(5000, key, Err(OpError::Access)), (4000, key, Ok(())), (8, key + 9, Err(OpError::Access))][round % 3];
        write_mode(&p, key, &iov(&mut data[..len]), None, SendMode::Delivery);
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, want, "round {round}");
    }
    assert!(target[..] == data[..4000]);
}

/// Makes progress on both sides until the other has written `byte` to the beginning of `memory`.
fn until_begun(p: &Pair, memory: &[u8], byte: u8) {
    let start = Instant::now();
    // SAFETY: a live slice, whose bytes the engine changes.
    while unsafe { memory.as_ptr().read_volatile() } != byte {
        p.a.progress();
        p.b.progress();
        assert!(start.elapsed() < LIMIT);
    }
}

const LARGE: usize = 8 << 20;

#[test]
fn a_read_from_a_region_withdrawn_meanwhile_fails_and_brings_no_zeros() {
    let p = pair();
    for faults in 0..8 {
        let mut target = vec![9u8; LARGE];
        let mut got = vec![0u8; LARGE];
        let key = register(&p.b, &mut target);
        read(&p, key, &mut got);
        until_begun(&p, &got, 9);
        (0..faults).for_each(|_| p.b.progress());
        assert!(p.b.unregister(key));
        target.fill(7);
        let c = wait(&p.a, &p.b, Queue::Send);
        match c.result {
            Ok(()) => assert!(got.iter().all(|b| *b == 9), "not what was in the region"),
            e => assert_eq!(e, Err(OpError::Cancelled)),
        }
        assert!(got.iter().all(|b| *b == 9 || *b == 0), "read after the region was withdrawn");
    }
    // Both go on.
    let (mut small, mut target) = ([0u8; 8], [3u8; 8]);
    let key = register(&p.b, &mut target);
    read(&p, key, &mut small);
    assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
    assert_eq!(small, target);
}

#[test]
fn a_large_write_to_a_region_withdrawn_meanwhile_fails() {
    // Without watchdogs: nothing goes on while this test, begun to be written to, waits for a
    // processor.
    let p = pair_with(EngineConfig { watchdog_us: 0, ..config() });
    let mut data = vec![9u8; LARGE];
    let mut failed = 0;
    for round in 0..8u64 {
        let mut target = vec![0u8; LARGE];
        let key = register(&p.b, &mut target);
        write_mode(&p, key, &iov(&mut data), (round % 2 == 0).then_some(round), SendMode::Transmit);
        until_begun(&p, &target, 9);
        assert!(p.b.unregister(key));
        target.fill(7);
        let c = wait(&p.a, &p.b, Queue::Send);
        failed += u32::from(c.result == Err(OpError::Access));
        assert!(target.iter().all(|b| *b == 7), "written after the region was withdrawn");
    }
    assert_eq!(failed, 8);
    let mut out = Vec::new();
    assert_eq!(p.b.poll(Queue::Recv, &mut out, 1), 0, "a notice of a write that failed");
    assert!(!p.b.counters_json().contains("\"rndvs_in\":1"), "{}", p.b.counters_json());
}

#[test]
fn the_key_of_a_region_withdrawn_is_not_given_to_the_next() {
    let p = pair();
    let (mut first, mut second, mut data) = ([1u8; 8], [2u8; 8], [3u8; 8]);
    let old = register(&p.b, &mut first);
    assert!(p.b.unregister(old));
    let new = register(&p.b, &mut second);
    assert_ne!(old, new);
    write_mode(&p, old, &iov(&mut data), None, SendMode::Delivery);
    assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Err(OpError::Access));
    assert_eq!(second, [2; 8]);
}
