use super::*;
use crate::api::{AtomicType, Completion};
use crate::config::Config;
use crate::testing::{Bytes, PEER, Pair};
use alloc::vec::Vec;

const ALL: Access = Access { remote_read: true, remote_write: true };

fn amo(op: AtomicOp, of: AtomicType, key: u64, addr: u64) -> AmoOp<Bytes> {
    AmoOp {
        peer: PEER,
        atomic: Atomic::new(op, of).expect("there is one"),
        count: 1,
        operand: Bytes::default(),
        compare: Bytes::default(),
        result: Bytes::default(),
        remote_addr: addr,
        key,
        report: true,
        context: 7,
        user: 8,
    }
}

/// Adds `n` to the u64 at the beginning of a region.
fn add(key: u64, n: u64, result: &Bytes) -> AmoOp<Bytes> {
    AmoOp {
        operand: Bytes::new(&n.to_le_bytes()),
        result: result.clone(),
        ..amo(AtomicOp::Sum, AtomicType::U64, key, 0)
    }
}

fn pair() -> Pair {
    Pair::connected(&Config::default(), &weir_link::Config::default())
}

fn register(pair: &mut Pair, memory: &Bytes) -> u64 {
    pair.sides[1].register(memory.clone(), 0, ALL, None).expect("registered")
}

fn word(memory: &Bytes, at: usize) -> u64 {
    u64::from_le_bytes(memory.to_vec()[at..at + 8].try_into().expect("eight"))
}

fn ends(pair: &mut Pair) -> Vec<(OpKind, Result<(), OpError>)> {
    pair.ended(0).iter().map(|c| (c.kind, c.result)).collect()
}

#[test]
fn an_element_is_changed_and_what_it_held_is_told() {
    let mut pair = pair();
    let memory = Bytes::new(&[0; 32]);
    let key = register(&mut pair, &memory);
    memory.write(8, &40u64.to_le_bytes());
    let result = Bytes::new(&[0; 8]);
    let op = AmoOp {
        operand: Bytes::new(&2u64.to_le_bytes()),
        result: result.clone(),
        ..amo(AtomicOp::Sum, AtomicType::U64, key, 8)
    };
    pair.sides[0].atomic(pair.now, op).expect("accepted");
    pair.settle();
    let ended = pair.ended(0);
    let [Completion { context: 7, user: 8, kind: OpKind::FetchAtomic, result: Ok(()), .. }] = ended[..] else {
        panic!("{ended:?}")
    };
    assert_eq!((word(&memory, 8), word(&result, 0)), (42, 40));
    // Compared: it is not what is expected, and then it is.
    for (compare, holds) in [(41u64, 42u64), (42, 1)] {
        let op = AmoOp {
            operand: Bytes::new(&1u64.to_le_bytes()),
            compare: Bytes::new(&compare.to_le_bytes()),
            result: result.clone(),
            ..amo(AtomicOp::SwapIfEqual, AtomicType::U64, key, 8)
        };
        pair.sides[0].atomic(pair.now, op).expect("accepted");
        pair.settle();
        assert_eq!((word(&memory, 8), word(&result, 0)), (holds, 42), "compared with {compare}");
    }
    // Nobody wants to know what it held; and only that is wanted.
    pair.ended(0);
    let op = AmoOp { operand: Bytes::new(&[9]), ..amo(AtomicOp::Write, AtomicType::U8, key, 31) };
    pair.sides[0].atomic(pair.now, op).expect("accepted");
    let byte = Bytes::new(&[0]);
    let op = AmoOp { result: byte.clone(), ..amo(AtomicOp::Read, AtomicType::U8, key, 8) };
    pair.sides[0].atomic(pair.now, op).expect("accepted");
    pair.settle();
    assert_eq!(ends(&mut pair), [(OpKind::Atomic, Ok(())), (OpKind::FetchAtomic, Ok(()))]);
    assert_eq!((memory.to_vec()[31], byte.to_vec()), (9, [1].to_vec()));
    assert_eq!((pair.sides[0].counters().atomics, pair.sides[1].counters().atomics_executed), (5, 5));
    assert_eq!((pair.sides[0].held(), pair.sides[1].held()), ([0; 4], [0; 4]));
}

#[test]
fn each_of_several_elements_is_changed_for_itself() {
    let mut pair = pair();
    let memory = Bytes::new(&[5, 0, 250, 0, 0, 0]);
    let key = register(&mut pair, &memory);
    let result = Bytes::new(&[9; 6]);
    let op = AmoOp {
        count: 3,
        operand: Bytes::new(&[1, 0, 7, 0, 255, 255]),
        result: result.clone(),
        ..amo(AtomicOp::Sum, AtomicType::U16, key, 0)
    };
    pair.sides[0].atomic(pair.now, op).expect("accepted");
    pair.settle();
    assert_eq!(ends(&mut pair), [(OpKind::FetchAtomic, Ok(()))], "one completion");
    assert_eq!(memory.to_vec(), [6, 0, 1, 1, 255, 255]);
    assert_eq!(result.to_vec(), [5, 0, 250, 0, 0, 0]);
    // The last of them does not lie in the region.
    let op = AmoOp { count: 3, operand: Bytes::new(&[0; 6]), ..amo(AtomicOp::Write, AtomicType::U16, key, 2) };
    pair.sides[0].atomic(pair.now, op).expect("accepted");
    pair.settle();
    assert_eq!(ends(&mut pair), [(OpKind::Atomic, Err(OpError::Access))]);
    assert_eq!(pair.sides[0].peers[PEER].atomics, 0);
    assert_eq!((pair.sides[0].held(), pair.sides[1].held()), ([0; 4], [0; 4]));
}

#[test]
fn what_the_target_refuses_fails_and_changes_nothing() {
    let mut pair = pair();
    let memory = Bytes::new(&[3; 16]);
    let key = register(&mut pair, &memory);
    let only = |read, write| Access { remote_read: read, remote_write: write };
    let to_read = pair.sides[1].register(memory.clone(), 0, only(true, false), None).expect("registered");
    let to_write = pair.sides[1].register(memory.clone(), 0, only(false, true), None).expect("registered");
    let some = Bytes::new(&[0; 8]);
    let none = Bytes::default();
    for (key, addr, result, error) in [
        (99, 0, &none, OpError::Access),
        (key, 16, &none, OpError::Access),
        (key, 9, &none, OpError::Access),
        (key, u64::MAX, &none, OpError::Access),
        (key, 4, &none, OpError::Alignment),
        (to_read, 0, &none, OpError::Access),
        (to_write, 0, &some, OpError::Access),
    ] {
        let op = AmoOp { remote_addr: addr, ..add(key, 1, result) };
        pair.sides[0].atomic(pair.now, op).expect("accepted");
        pair.settle();
        let ended = ends(&mut pair);
        assert!(matches!(ended[..], [(_, Err(e))] if e == error), "key {key} addr {addr}: {ended:?}");
    }
    assert_eq!((memory.to_vec(), some.to_vec()), ([3; 16].to_vec(), [0; 8].to_vec()));
    // Reading needs no right to write.
    pair.sides[0]
        .atomic(pair.now, AmoOp { result: some.clone(), ..amo(AtomicOp::Read, AtomicType::U64, to_read, 8) })
        .expect("accepted");
    pair.settle();
    assert_eq!(ends(&mut pair), [(OpKind::FetchAtomic, Ok(()))]);
    assert_eq!(some.to_vec(), [3; 8]);
    // A region that is withdrawn while the operation is under way.
    pair.sides[0].atomic(pair.now, add(key, 1, &none)).expect("accepted");
    assert!(pair.sides[1].unregister(pair.now, key));
    pair.settle();
    assert_eq!(ends(&mut pair), [(OpKind::Atomic, Err(OpError::Access))]);
    assert_eq!(memory.to_vec(), [3; 16]);
}

#[test]
fn memory_that_does_not_fit_the_operation_is_refused_at_once() {
    let mut pair = pair();
    let (eight, four) = (Bytes::new(&[0; 8]), Bytes::new(&[0; 4]));
    let sum = || add(1, 1, &Bytes::default());
    let swap = || AmoOp { operand: eight.clone(), ..amo(AtomicOp::SwapIfEqual, AtomicType::U64, 1, 0) };
    for op in [
        AmoOp { count: 0, ..sum() },
        AmoOp { count: 2, ..sum() },
        AmoOp { operand: four.clone(), ..sum() },
        AmoOp { result: four.clone(), ..sum() },
        swap(),
        amo(AtomicOp::Read, AtomicType::U64, 1, 0),
    ] {
        let refused = pair.sides[0].atomic(pair.now, op);
        assert!(matches!(refused, Err(MessageError::Invalid(_))), "{refused:?}");
    }
    let many = AmoOp { count: AMO_COUNT_MAX + 1, ..sum() };
    assert!(matches!(pair.sides[0].atomic(pair.now, many), Err(MessageError::TooBig { .. })));
    assert!(matches!(pair.sides[0].atomic(pair.now, AmoOp { peer: 9, ..sum() }), Err(MessageError::Invalid(_))));
    assert_eq!(pair.sides[0].held(), [0; 4]);
}

#[test]
fn whatever_is_lost_doubled_or_late_each_is_executed_once() {
    let mut pair = pair();
    let memory = Bytes::new(&[0; 8]);
    let key = register(&mut pair, &memory);
    let results: Vec<Bytes> = (0..300).map(|_| Bytes::new(&[0; 8])).collect();
    let mut late: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut dice = 1u64;
    let mut rest = results.iter();
    for _ in 0..3000 {
        if let Some(result) = rest.next() {
            pair.sides[0].atomic(pair.now, add(key, 1, result)).expect("accepted");
        }
        pair.transmit();
        for to in 0..2 {
            let flying = core::mem::take(&mut pair.flying[to]);
            for packet in flying {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                match dice >> 61 {
                    0 | 1 => {}
                    2 => late.push((to, packet)),
                    3 => pair.flying[to].extend([packet.clone(), packet]),
                    _ => pair.flying[to].push_back(packet),
                }
            }
        }
        if late.len() > 8 {
            let (to, packet) = late.swap_remove(dice as usize % 8);
            pair.flying[to].push_back(packet);
        }
        pair.deliver(0);
        pair.deliver(1);
        pair.advance(300_000);
    }
    pair.settle();
    let ended = ends(&mut pair);
    assert_eq!((ended.len(), word(&memory, 0)), (300, 300));
    assert!(ended.iter().all(|(kind, result)| (*kind, *result) == (OpKind::FetchAtomic, Ok(()))), "{ended:?}");
    let mut before: Vec<u64> = results.iter().map(|r| word(r, 0)).collect();
    before.sort_unstable();
    assert_eq!(before, (0..300).collect::<Vec<u64>>(), "each has seen another value");
}

#[test]
fn an_answer_that_finds_no_room_is_told_when_there_is() {
    let wide = weir_link::Config::default();
    let session = weir_link::SessionConfig { control_queue: 4, ..wide.session.clone() };
    let narrow = weir_link::Config { session, ..wide.clone() };
    let mut pair: Pair = Pair::connected_of(&Config::default(), [&wide, &narrow]);
    let memory = Bytes::new(&[0; 8]);
    let key = register(&mut pair, &memory);
    for _ in 0..40 {
        pair.sides[0].atomic(pair.now, add(key, 1, &Bytes::default())).expect("accepted");
    }
    pair.transmit();
    // They arrive, and what is said to them is lost for a while.
    for _ in 0..30 {
        pair.deliver(1);
        pair.flying[0].clear();
        pair.advance(3_000_000);
    }
    assert!(pair.sides[1].counters().answers_kept > 0, "the queue had room");
    assert_eq!(ends(&mut pair), []);
    pair.settle();
    assert_eq!((ends(&mut pair).len(), word(&memory, 0)), (40, 40));
    assert!(!pair.sides[1].owes());
}

#[test]
fn so_many_are_under_way_and_no_more() {
    let mut pair = pair();
    let memory = Bytes::new(&[0; 8]);
    let key = register(&mut pair, &memory);
    let mut begun = 0;
    while pair.sides[0].atomic(pair.now, add(key, 1, &Bytes::default())).is_ok() {
        begun += 1;
    }
    assert_eq!(begun, ATOMICS_MAX);
    pair.settle();
    assert_eq!((ends(&mut pair).len(), word(&memory, 0)), (begun as usize, u64::from(begun)));
    pair.sides[0].atomic(pair.now, add(key, 1, &Bytes::default())).expect("there is room again");
}

#[test]
fn a_peer_that_goes_fails_what_it_has_not_answered_and_no_memory_is_written_afterwards() {
    let mut pair = pair();
    let memory = Bytes::new(&[0; 8]);
    let key = register(&mut pair, &memory);
    let result = Bytes::new(&[1; 8]);
    let several = AmoOp {
        count: 2,
        operand: Bytes::new(&[1; 8]),
        result: result.clone(),
        ..amo(AtomicOp::Sum, AtomicType::U32, key, 0)
    };
    pair.sides[0].atomic(pair.now, add(key, 1, &result)).expect("accepted");
    pair.sides[0].atomic(pair.now, several).expect("accepted");
    pair.transmit();
    pair.deliver(1);
    let answers = core::mem::take(&mut pair.flying[0]);
    // Nothing is heard of it any more.
    for _ in 0..1000 {
        pair.flying = Default::default();
        pair.advance(100_000_000);
    }
    let ended = ends(&mut pair);
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert!(ended.iter().all(|(_, r)| matches!(r, Err(OpError::PeerDown(_)))), "{ended:?}");
    pair.flying[0] = answers;
    pair.settle();
    assert_eq!(result.to_vec(), [1; 8]);
    assert_eq!((pair.sides[0].held(), ends(&mut pair)), ([0; 4], Vec::new()));
    let again = pair.sides[0].atomic(pair.now, add(key, 1, &result));
    assert!(matches!(again, Err(MessageError::PeerDown(_))), "{again:?}");
}

#[test]
fn answers_that_nobody_asked_for_harm_nothing() {
    let mut pair = pair();
    let memory = Bytes::new(&[0; 8]);
    let key = register(&mut pair, &memory);
    let result = Bytes::new(&[0; 8]);
    pair.sides[0].atomic(pair.now, add(key, 1, &result)).expect("accepted");
    let op = pair.sides[0].sends.of_peer(PEER)[0];
    let mut envelope = [0; weir_match::envelope::MAX_BYTES];
    // Of an operation that is over, and an answer that lacks what was asked for.
    for (op, value) in [(token(op) ^ (1 << 33), Some(5)), (token(op), None), (token(op), Some(6))] {
        let n = Envelope::AtomicDone { op, status: Status::Ok, value }.encode(&mut envelope);
        pair.sides[0].control(pair.now, PEER, &envelope[..n], &[]);
    }
    assert_eq!(ends(&mut pair), [(OpKind::FetchAtomic, Err(OpError::Access))]);
    pair.settle();
    assert_eq!((result.to_vec(), ends(&mut pair)), ([0; 8].to_vec(), Vec::new()));
}
